// The rule about state: a type holds no more stored properties than a reader can keep in mind. What one owner alone holds in
// a nested struct counts as its own, so that a box around half of them changes nothing.

/// The stored properties of a type, as the rule about state needs them.
struct StateOfType {
  /// With the types around it: "SyncMachine.Prepared".
  var name: String
  var path: String
  var line: Int
  /// What each stored property holds: the words of its annotation, or of the call that makes its value.
  var properties: [String] = []
}

/// Reads the stored properties of structs, classes and actors.
struct StateReader {
  private struct Open {
    /// The type whose body it is; nil for any other block.
    var name: String?
    /// Its place in `types`; nil for an extension, enumeration or protocol.
    var place: Int?
    var depth: Int
  }

  private(set) var types: [StateOfType] = []
  private let path: String
  private let code: [UInt8]
  private var open: [Open] = []
  /// Parentheses and brackets that are open.
  private var depth = 0
  private var line = 1
  /// The statement so far: all of it but what is in braces.
  private var statement: [UInt8] = []
  private var statementLine = 1

  init(_ source: SourceText) {
    path = source.path
    code = Array(source.code.utf8)
    for byte in code { read(byte) }
    endStatement(with: nil)
  }

  private mutating func read(_ byte: UInt8) {
    switch byte {
    case UInt8(ascii: "{"):
      begin()
      return
    case UInt8(ascii: "}"):
      endStatement(with: nil)
      if let block = open.popLast() { depth = block.depth }
      return
    case UInt8(ascii: "("), UInt8(ascii: "["): depth += 1
    case UInt8(ascii: ")"), UInt8(ascii: "]"): depth -= 1
    case UInt8(ascii: ";") where isBare: endStatement(with: nil)
    case UInt8(ascii: "\n"):
      line += 1
      if isBare, !goesOn { endStatement(with: nil) }
    default: break
    }
    // What is in functions declares no stored property.
    guard open.last?.name != nil || open.isEmpty else { return }
    if statement.isEmpty {
      if byte <= UInt8(ascii: " ") || byte == UInt8(ascii: ";") { return }
      statementLine = line
    }
    statement.append(byte)
  }

  private var isBare: Bool { depth == (open.last?.depth ?? 0) }

  /// Whether the statement needs what comes on the next line.
  private var goesOn: Bool {
    guard let first = statement.first, let last = statement.last(where: { $0 > UInt8(ascii: " ") }) else { return true }
    // What follows a block: a call of it.
    guard first.isPartOfWord || first == UInt8(ascii: "@") else { return false }
    if "=:,<&|".utf8.contains(last) { return true }
    let words = String(decoding: statement, as: UTF8.self)[...].words
    // Attributes and modifiers stand on lines of their own.
    return !words.contains { Self.keywords.contains($0) }
  }

  private static let kinds: Set<Substring> = ["struct", "class", "actor", "enum", "extension", "protocol"]
  private static let keywords: Set<Substring> = kinds.union([
    "var", "let", "func", "init", "deinit", "subscript", "case", "typealias", "associatedtype", "import", "if", "guard",
    "for", "while", "switch", "return", "try", "await",
  ])

  private static let modifiers: Set<Substring> = [
    "public", "package", "internal", "fileprivate", "private", "final", "lazy", "weak", "unowned", "nonisolated",
    "unsafe",
    "override",
  ]

  /// What comes after `var` or `let`; nil if the statement declares no property of an instance.
  private static func declared(_ statement: String) -> String? {
    var rest = statement[...]
    while let word = rest.prefixMatch(of: /@?(\w+)(?:\([^)]*\))?\s+/) {
      rest = rest[word.range.upperBound...]
      if word.output.1 == "var" || word.output.1 == "let" { return String(rest) }
      guard word.output.0.first == "@" || modifiers.contains(word.output.1) else { return nil }
    }
    return nil
  }

  private mutating func begin() {
    let text = String(decoding: statement, as: UTF8.self)
    let words = text[...].words
    let isMember = isBare && (open.isEmpty || open.last?.name != nil)
    if isMember, let at = words.firstIndex(where: { Self.kinds.contains($0) }), at + 1 < words.count,
      !words[..<at].contains(where: { ["var", "let", "func", "init", "case"].contains($0) }),
      !["func", "var", "let", "subscript"].contains(words[at + 1])
    {
      let name = (open.last?.name.map { $0 + "." } ?? "") + words[at + 1]
      let holds: Set<Substring> = ["struct", "class", "actor"]
      if holds.contains(words[at]) {
        types.append(StateOfType(name: name, path: path, line: statementLine))
        open.append(Open(name: name, place: types.count - 1, depth: depth))
      } else {
        open.append(Open(name: name, place: nil, depth: depth))
      }
      statement = []
    } else {
      if isMember { endStatement(with: UInt8(ascii: "{")) }
      open.append(Open(name: nil, place: nil, depth: depth))
    }
  }

  /// Ends a statement; `next` is the brace that follows it, if one does. What follows that block counts as a statement of its
  /// own, which declares nothing.
  private mutating func endStatement(with next: UInt8?) {
    defer { statement = [] }
    guard let block = open.last, let place = block.place, isBare else { return }
    let text = String(decoding: statement, as: UTF8.self)
    guard let rest = Self.declared(text) else { return }
    let parts = rest.split(separator: /\s=\s/, maxSplits: 1, omittingEmptySubsequences: false)
    // A body without a value before it computes. One that watches comes after a value, which every such property here has.
    if next != nil, parts.count == 1 { return }
    guard let head = parts.first else { return }
    let value = parts.count > 1 ? String(parts[1]) : ""
    let annotation = head.split(separator: ":", maxSplits: 1).dropFirst().first.map { String($0) } ?? ""
    // `let a, b: Int`.
    let names = 1 + head.prefix { $0 != ":" }.count { $0 == "," }
    let held = annotation.isEmpty ? String(value.prefix { $0 != "\n" }) : annotation
    for _ in 0..<names { types[place].properties.append(held) }
  }
}

extension Rules {
  /// The most stored properties of a type.
  static let propertiesMax = 12

  /// Types with more state than a reader can keep in mind.
  ///
  /// - Parameters:
  ///   - plain: the names of types that are plain data: many values, none of which says what another one means. Each with
  ///     the reason. A name that is not needed is a finding too.
  ///   - toGo: types that are too large and are to be divided, with how many they may have until then.
  static func holdsLittle(
    _ sources: [SourceText], plain: [String: String] = [:], toGo: [String: Int] = [:]
  ) -> [String] {
    let types = sources.flatMap { StateReader($0).types }
    let byName = Dictionary(types.map { ($0.name, $0) }) { first, _ in first }
    func count(_ type: StateOfType, _ seen: Set<String>) -> Int {
      type.properties.reduce(0) { sum, held in
        guard let inner = nested(held, in: type, byName), !seen.contains(inner.name), plain[inner.name] == nil else {
          return sum + 1
        }
        return sum + count(inner, seen.union([inner.name]))
      }
    }
    var (unneeded, left) = (plain, toGo)
    var findings: [String] = []
    for type in types.sorted(by: { $0.name < $1.name }) {
      let number = count(type, [type.name])
      guard number > propertiesMax else { continue }
      if unneeded.removeValue(forKey: type.name) != nil { continue }
      if let most = left.removeValue(forKey: type.name), number <= most { continue }
      findings.append("\(type.path):\(type.line): \(type.name) has \(number) stored properties")
    }
    findings += unneeded.keys.sorted().map { "an unneeded exception: \($0)" }
    return findings + left.keys.sorted().map { "it need not go any more: \($0)" }
  }

  /// The struct that a property holds as it is, or in a lock, if it is declared in the type that holds it: nobody else does.
  private static func nested(_ held: String, in type: StateOfType, _ byName: [String: StateOfType]) -> StateOfType? {
    guard let found = held.firstMatch(of: /^\s*(?:Mutex[<(])?\s*([A-Z]\w*)\b(?![.<])/) else { return nil }
    return byName["\(type.name).\(found.output.1)"]
  }
}
