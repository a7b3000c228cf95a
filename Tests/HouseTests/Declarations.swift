// Parses the declarations of a Swift file and the extents of its blocks: only the grammar that the rules about long
// functions and unused declarations need.

/// A pair of braces.
struct CodeBlock {
  enum Kind { case type, code }
  var kind: Kind
  /// The line of the keyword that declares it, else of its opening brace; from 1 on.
  var firstLine: Int
  var lastLine: Int
  /// The declaration: the words from the keyword to the brace.
  var header: String
  /// Whether all enclosing blocks are those of types.
  var isOutermost: Bool
  var lines: Int { lastLine - firstLine + 1 }
}

/// A named declaration, at the top of a file or in a type.
struct Declaration {
  var name: Substring
  var keyword: Substring
  var line: Int
  /// The words before the keyword, and the names of its attributes without the @.
  var modifiers: [Substring]
  /// The header of the type that it is declared in; empty at the top.
  var container: String
}

/// The blocks and declarations of a file.
struct CodeStructure {
  private(set) var blocks: [CodeBlock] = []
  private(set) var declarations: [Declaration] = []

  private static let typeKeywords: Set<Substring> = ["struct", "class", "enum", "protocol", "actor", "extension"]
  private static let codeKeywords: Set<Substring> = ["func", "init", "deinit", "subscript", "var", "let"]
  private static let namingKeywords: Set<Substring> = typeKeywords.subtracting(["extension"])
    .union(["func", "var", "let", "case", "typealias", "associatedtype"])
  private static let keywords = namingKeywords.union(codeKeywords).union(["extension", "import"])

  private struct Open {
    var kind: CodeBlock.Kind
    var firstLine: Int
    var header: String
    var isOutermost: Bool
    /// Parentheses and brackets that are open around the block.
    var depth: Int
  }
  /// A word of the current statement.
  private struct Word {
    var text: Substring
    var line: Int
  }

  private var open: [Open] = []
  private var depth = 0
  private var line = 1
  /// The words since the last brace or declaration that are not in parentheses.
  private var words: [Word] = []
  /// The keyword whose name has not been read yet.
  private var naming: (keyword: Substring, modifiers: [Substring])?
  /// The names that follow a case, a comma apart.
  private var isListingCases = false

  init(_ source: SourceText) {
    let code = source.code.utf8
    var start: String.Index?
    var previous = UInt8(ascii: "\n")
    for index in code.indices {
      let byte = code[index]
      if byte.isPartOfWord {
        if start == nil { start = index }
        continue
      }
      if let begin = start {
        read(Substring(code[begin..<index]), after: previous)
        start = nil
      }
      read(byte)
      previous = byte
    }
  }

  private var isInCode: Bool { open.last?.kind == .code }
  /// Whether the current position is in no parentheses except those around the block.
  private var isBare: Bool { depth == (open.last?.depth ?? 0) }

  private mutating func read(_ word: Substring, after previous: UInt8) {
    guard isBare, previous != UInt8(ascii: ".") else { return }
    let isKeyword = previous != UInt8(ascii: "#") && previous != UInt8(ascii: "@")
    if let (keyword, modifiers) = naming, isKeyword {
      naming = nil
      // `class func` declares no class.
      if !isInCode, keyword != "class" || !Self.codeKeywords.contains(word) {
        declarations.append(
          Declaration(
            name: word, keyword: keyword, line: line, modifiers: modifiers, container: open.last?.header ?? ""))
        isListingCases = keyword == "case"
      }
    }
    if isKeyword, Self.keywords.contains(word) {
      naming = Self.namingKeywords.contains(word) ? (word, words.map(\.text)) : nil
      isListingCases = false
      words = []
    }
    words.append(Word(text: word, line: line))
  }

  private mutating func read(_ byte: UInt8) {
    switch byte {
    case UInt8(ascii: "\n"): line += 1
    case UInt8(ascii: "("), UInt8(ascii: "["):
      depth += 1
      // An operator, or a name in backticks.
      naming = nil
    case UInt8(ascii: ")"), UInt8(ascii: "]"): depth -= 1
    case UInt8(ascii: ",") where isListingCases && isBare: naming = ("case", [])
    case UInt8(ascii: "{"): begin()
    case UInt8(ascii: "}"): end()
    default: break
    }
  }

  private mutating func begin() {
    let keyword = isBare ? words.first : nil
    let isType = keyword.map { !isInCode && Self.typeKeywords.contains($0.text) } ?? false
    let isNamed = keyword.map { isType || Self.codeKeywords.contains($0.text) } ?? false
    open.append(
      Open(
        kind: isType ? .type : .code, firstLine: isNamed ? keyword?.line ?? line : line,
        header: words.map { String($0.text) }.joined(separator: " "), isOutermost: !isInCode, depth: depth))
    forgetStatement()
  }

  private mutating func end() {
    forgetStatement()
    guard let block = open.popLast() else { return }
    depth = block.depth
    blocks.append(
      CodeBlock(
        kind: block.kind, firstLine: block.firstLine, lastLine: line, header: block.header,
        isOutermost: block.isOutermost))
  }

  private mutating func forgetStatement() {
    words = []
    naming = nil
    isListingCases = false
  }
}
