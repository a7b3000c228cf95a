// The labels of a file's calls and parameters: what tells two functions of one name apart. Only the grammar that the rule about
// examples needs.

/// A name with a list in parentheses after it: a call, or the parameters of a declaration; or with a closure alone.
struct LabelledName {
  var name: Substring
  var line: Int
  /// The arguments or parameters, without those of inner parentheses as ones of their own.
  var parts: [Substring]

  /// The labels of the arguments of a call.
  var labels: Set<Substring> {
    Set(parts.compactMap { part in part.firstIndex(of: ":").map { Self.trimmed(part[..<$0]) } }.filter(\.isWord))
  }

  /// The labels that each call of a declared function has: those of parameters without a default, but for a last closure.
  var requiredLabels: Set<Substring> {
    Set(
      parts.enumerated().compactMap { place, part in
        let isClosure = part.contains("->") && place == parts.count - 1
        guard let colon = part.firstIndex(of: ":"), !isClosure, !part.contains("="), !part.contains("...") else {
          return nil
        }
        let label = Self.trimmed(part[..<colon]).prefix { $0 != " " }
        return label == "_" ? nil : label
      })
  }

  private static func trimmed(_ text: Substring) -> Substring {
    var text = text
    while text.first?.isWhitespace == true { text.removeFirst() }
    while text.last?.isWhitespace == true { text.removeLast() }
    return text
  }

  /// All of a file, in their order.
  static func all(in source: SourceText) -> [LabelledName] {
    var found: [LabelledName] = []
    for (number, line) in source.codeLines.enumerated() {
      var rest = line
      while let start = rest.firstIndex(where: \.isPartOfName) {
        let end = rest[start...].firstIndex { !$0.isPartOfName } ?? rest.endIndex
        let name = rest[start..<end]
        rest = rest[end...]
        // A Substring's indices are those of the whole text.
        guard let open = opening(after: end, in: source.code) else { continue }
        let parts = source.code[open] == "(" ? parts(from: open, in: source.code) : []
        found.append(LabelledName(name: name, line: number + 1, parts: parts))
      }
    }
    return found
  }

  /// The parenthesis or brace after a name, and after generic parameters.
  private static func opening(after end: String.Index, in code: String) -> String.Index? {
    var place = end
    if place < code.endIndex, code[place] == "<" {
      guard let close = code[place...].firstIndex(of: ">") else { return nil }
      place = code.index(after: close)
    }
    guard place < code.endIndex else { return nil }
    if code[place] == "(" { return place }
    let next = code.index(after: place)
    return code[place] == " " && next < code.endIndex && code[next] == "{" ? next : nil
  }

  private static func parts(from open: String.Index, in code: String) -> [Substring] {
    var (depth, parts, start) = (0, [Substring](), code.index(after: open))
    var place = open
    while place < code.endIndex {
      switch code[place] {
      case "(", "[", "{": depth += 1
      case ")", "]", "}":
        depth -= 1
        if depth == 0 {
          let last = code[start..<place]
          return last.allSatisfy(\.isWhitespace) ? parts : parts + [last]
        }
      case "," where depth == 1:
        parts.append(code[start..<place])
        start = code.index(after: place)
      default: break
      }
      place = code.index(after: place)
    }
    return parts
  }
}

extension Character {
  fileprivate var isPartOfName: Bool { isLetter || isNumber || self == "_" }
}

extension Substring {
  fileprivate var isWord: Bool { !isEmpty && allSatisfy { $0.isPartOfName } }
}
