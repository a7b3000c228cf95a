// Goal: no public call that throws is without a test of what it throws. Method: the sources are read as text, and every
// public declaration that throws is named; ErrorTests holds the names against its table.

import StrandlineHost
import StrandlineSystem

/// The public declarations of the products' modules that throw.
enum PublicThrowingCalls {
  static let modules = [
    "StrandlineModel", "StrandlineSync", "Strandline", "StrandlineCloudKit", "StrandlineServer", "StrandlineTesting",
  ]

  /// "RecordStore.record(_:)" and the like: type, name, "<>" if it is generic, labels without `fileID` and `line`.
  static func inSources() throws -> [String] {
    try modules.flatMap { try calls(inFolder: "\(root)/Sources/\($0)").map(\.name) }
  }

  /// Those that take the caller's line: their errors name it.
  static func askingForLine() throws -> Set<String> {
    Set(try modules.flatMap { try calls(inFolder: "\(root)/Sources/\($0)").filter(\.asksForLine).map(\.name) })
  }

  private static var root: String {
    #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
  }

  private typealias Call = (name: String, asksForLine: Bool)

  private static func calls(inFolder folder: String) throws -> [Call] {
    let disk = POSIXFileSystem()
    var result: [Call] = []
    for name in try disk.list(folder).sorted() {
      let path = "\(folder)/\(name)"
      if try disk.kind(of: path) == .directory { result += try calls(inFolder: path) }
      guard name.hasSuffix(".swift") else { continue }
      let file = try disk.open(path, .read)
      defer { file.close() }
      result += calls(in: String(decoding: try file.read(at: 0, count: Int(try file.size())), as: UTF8.self))
    }
    return result
  }

  /// The names in one file.
  static func names(in text: String) -> [String] { calls(in: text).map(\.name) }

  private static func calls(in text: String) -> [Call] {
    let lines = text.replacing("nonisolated(nonsending) ", with: "")
      .split(separator: "\n", omittingEmptySubsequences: false)
    var result: [Call] = []
    var type = ""
    var isPublicProtocol = false
    for (number, line) in lines.enumerated() {
      let words = line.split(whereSeparator: { " <:{".contains($0) })
      if line.first?.isLetter == true,
        let kind = words.firstIndex(where: { ["struct", "class", "enum", "extension", "protocol"].contains($0) }),
        kind + 1 < words.count
      {
        type = String(words[kind + 1])
        isPublicProtocol = line.hasPrefix("public protocol")
        continue
      }
      guard words.first == "public" || (isPublicProtocol && words.first == "func") else { continue }
      let rest = lines[number...].prefix(8).joined(separator: " ")
      if let call = call(rest) ?? propertyName(rest).map({ ($0, false) }) {
        result.append(("\(type).\(call.name)", call.asksForLine))
      }
    }
    return result
  }

  /// The name of a function or initializer that throws.
  private static func call(_ text: String) -> Call? {
    guard let open = text.firstIndex(of: "("), let close = closing(text, from: open) else { return nil }
    let head = text[..<open].split(separator: " ")
    guard let word = head.last(where: { $0 != "(" }) else { return nil }
    let isFunction = head.contains("func") && head.count >= 2
    guard isFunction || word == "init" else { return nil }
    // Up to the body, or up to the next declaration of a protocol.
    let tail = text[text.index(after: close)...].prefix { $0 != "{" && $0 != "}" && $0 != "/" && $0 != "(" }
    let after = tail.split(separator: " ").prefix { $0 != "func" && $0 != "var" }
    guard after.contains(where: { $0 == "throws" || $0.hasPrefix("throws(") }) else { return nil }
    var name = word
    var generic = ""
    if isFunction, let function = head.firstIndex(of: "func"), function + 1 < head.count {
      name = head[function + 1]
      if let angle = name.firstIndex(of: "<") {
        name = name[..<angle]
        generic = "<>"
      }
    }
    let all = parameters(text[text.index(after: open)..<close])
    let labels = all.filter { $0 != "fileID" && $0 != "line" }
    // What Codable prescribes: it throws Codable's errors.
    let codable = ["init": ["from"], "encode": ["to"], "decode": ["_", "forKey"]]
    if codable[String(name)] == labels { return nil }
    return ("\(name)\(generic)(\(labels.map { $0 + ":" }.joined()))", all.contains("fileID"))
  }

  /// The name of a property whose getter throws.
  private static func propertyName(_ text: String) -> String? {
    let words = text.split(whereSeparator: { " :{".contains($0) })
    guard let variable = words.firstIndex(of: "var"), variable < 3, variable + 1 < words.count else { return nil }
    guard let brace = text.firstIndex(of: "{") else { return nil }
    let body = text[text.index(after: brace)...].split(separator: " ").prefix(2)
    return body.elementsEqual(["get", "throws"]) ? String(words[variable + 1]) : nil
  }

  private static func closing(_ text: String, from open: String.Index) -> String.Index? {
    var depth = 0
    var index = open
    while index < text.endIndex {
      if text[index] == "(" { depth += 1 }
      if text[index] == ")" {
        depth -= 1
        if depth == 0 { return index }
      }
      index = text.index(after: index)
    }
    return nil
  }

  /// The labels of a parameter list.
  private static func parameters(_ list: Substring) -> [String] {
    var parts: [String] = [""]
    var depth = 0
    for character in list {
      if "([<{".contains(character) { depth += 1 }
      if ")]}".contains(character) || (character == ">" && parts[parts.count - 1].last != "-") { depth -= 1 }
      if character == ",", depth == 0 { parts.append("") } else { parts[parts.count - 1].append(character) }
    }
    return parts.compactMap { $0.split(whereSeparator: { " :".contains($0) }).first.map(String.init) }
  }
}
