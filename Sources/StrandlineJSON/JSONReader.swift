// Reads JSON by RFC 8259, strictly, in one pass: the caller says which value it expects next, and gets it without a tree
// between. What a caller passes over is checked as well.
//
//     var reader = try JSONReader(bytes, limits: limits)
//     try reader.beginObject()
//     while let key = try reader.nextKey(in: Key.names) {
//       switch Key(rawValue: key) {
//       case .name: name = try reader.string()
//       case nil: unknown.append(try reader.skipValue().range)
//       }
//     }
//     try reader.finish()
//
// Refused are, beyond what the grammar excludes: bytes that are not UTF-8, a byte order mark, half a surrogate pair, a key
// that an object has twice, and more than the caller's limits allow. The text is in memory as a whole. Of JSON Lines each
// line is a text: `restart` reads the next with the memory of the last.
//
// No call recurses: a text that nests deeply costs memory up to the limit of the depth, and no stack.

private import StrandlineSystem

/// A cursor over a text of JSON.
///
/// After an error the reader stands at some place in the text. A caller may go on only from a place that it has kept
/// (`mark`).
package struct JSONReader: Sendable {
  /// What the text lies in. Ranges of tokens and keys are places in it.
  package private(set) var bytes: [UInt8]
  private(set) var start: Int
  private(set) var end: Int
  var at: Int
  private let limits: JSONLimits
  /// Whether the innermost list or object has just begun, so that no comma precedes what follows.
  private var isFresh = false
  private var frames: [Frame] = []
  private var keys = ReadKeys()
  /// The place of the key that was read last, without its quotes.
  private var keyRange = 0..<0
  private var keyHasEscapes = false
  /// The place of the last error with its line and column. The next counts from there: many errors cost one pass.
  var counted = (place: 0, line: 1, column: 1)

  /// An open list or object.
  private struct Frame: Sendable {
    var isObject: Bool
    var keys: ReadKeys.Mark
  }

  /// Begins to read `bytes`, or the part of them in `range`.
  ///
  /// - Throws: a `.limit` if they are more than the limit.
  package init(_ bytes: [UInt8], _ range: Range<Int>? = nil, limits: JSONLimits) throws(JSONError) {
    self.init(limits: limits)
    try restart(bytes, range ?? 0..<bytes.count)
  }

  /// A reader without a text. `restart` gives it one.
  package init(limits: JSONLimits) {
    bytes = []
    self.limits = limits
    (start, end, at) = (0, 0, 0)
    frames.reserveCapacity(8)
  }

  /// Begins to read another text, with the same limits.
  package mutating func restart(_ bytes: [UInt8], _ range: Range<Int>) throws(JSONError) {
    self.bytes = bytes
    try restart(in: range)
  }

  /// Begins to read another text in the same bytes.
  package mutating func restart(in range: Range<Int>) throws(JSONError) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    while !frames.isEmpty { close() }
    (start, end, at) = (range.lowerBound, range.upperBound, range.lowerBound)
    counted = (start, 1, 1)
    isFresh = false
    // Places of keys are kept in 32 bits.
    guard range.count <= limits.bytesMax, end <= Int(Int32.max) else {
      throw error(.limit, start, "the text has \(range.count) bytes; the limit is \(limits.bytesMax)")
    }
  }

  /// Ends a text of one value.
  ///
  /// - Throws: if something but white space follows.
  package mutating func finish() throws(JSONError) {
    precondition(frames.isEmpty, "a list or an object is open")
    skipSpace()
    guard at == end else { throw unexpected("the end of the text") }
  }

  // MARK: Lists and objects

  /// Enters a list.
  package mutating func beginArray() throws(JSONError) {
    skipSpace()
    guard current == UInt8(ascii: "[") else { throw mismatch(.array) }
    try open(isObject: false)
  }

  /// Goes to the next item of the innermost list, which the caller then reads.
  ///
  /// - Returns: false if there is none. Then the list is closed.
  package mutating func nextItem() throws(JSONError) -> Bool {
    precondition(frames.last?.isObject == false, "no list is open")
    skipSpace()
    if current == UInt8(ascii: "]") {
      at += 1
      close()
      return false
    }
    if isFresh {
      isFresh = false
      return true
    }
    guard current == UInt8(ascii: ",") else { throw unexpected("',' or ']'") }
    at += 1
    return true
  }

  /// Enters an object.
  package mutating func beginObject() throws(JSONError) {
    skipSpace()
    guard current == UInt8(ascii: "{") else { throw mismatch(.object) }
    try open(isObject: true)
  }

  /// Goes to the next key of the innermost object, whose value the caller then reads.
  ///
  /// - Returns: nil if there is none. Then the object is closed.
  /// - Throws: also if the object has the key twice.
  package mutating func nextKey() throws(JSONError) -> String? {
    guard try advanceToKey() != nil else { return nil }
    return key
  }

  /// Goes to the next key in the same way, without a string for it.
  ///
  /// - Returns: its place in `names`, or -1 if it is none of them; then `key` is its text.
  package mutating func nextKey(in names: JSONKeys) throws(JSONError) -> Int? {
    guard let words = try advanceToKey() else { return nil }
    if keyHasEscapes {
      let text = bytes.unescapedBytes(in: keyRange)
      return names.place(of: words, in: text, 0)
    }
    return names.place(of: words, in: bytes, keyRange.lowerBound)
  }

  /// The key that was read last.
  package var key: String {
    keyHasEscapes ? bytes.unescapedText(in: keyRange) : bytes.text(in: keyRange)
  }

  /// Where the key that was read last is in `bytes`, with its quotes.
  package var keyPlace: Range<Int> { keyRange.lowerBound - 1..<keyRange.upperBound + 1 }

  /// Goes to the quotes of the next key; false: the object is closed.
  @inline(__always)
  private mutating func goToKey() throws(JSONError) -> Bool {
    skipSpace()
    if current == UInt8(ascii: "}") {
      at += 1
      close()
      return false
    }
    if isFresh {
      isFresh = false
    } else {
      guard current == UInt8(ascii: ",") else { throw unexpected("',' or '}'") }
      at += 1
      skipSpace()
    }
    guard current == UInt8(ascii: "\"") else { throw unexpected("a key in double quotes") }
    return true
  }

  @inline(__always)
  private mutating func goBehindColon() throws(JSONError) {
    skipSpace()
    guard current == UInt8(ascii: ":") else { throw unexpected("':' after a key") }
    at += 1
  }

  private mutating func advanceToKey() throws(JSONError) -> KeyWords? {
    precondition(frames.last?.isObject == true, "no object is open")
    guard try goToKey() else { return nil }
    let text = try scanString()
    keyRange = text.characters
    keyHasEscapes = text.hasEscapes
    let words = try insertKey()
    try goBehindColon()
    return words
  }

  /// Adds the key that was just read to those of the innermost object.
  private mutating func insertKey() throws(JSONError) -> KeyWords {
    let top = frames.count - 1
    let words: KeyWords
    let isNew: Bool
    if keyHasEscapes {
      let text = bytes.unescapedBytes(in: keyRange)
      words = KeyWords(text, 0..<text.count)
      isNew = keys.insert(unescaped: text, in: bytes, &frames[top].keys)
    } else {
      words = KeyWords(bytes, keyRange)
      isNew = keys.insert(words, keyRange.lowerBound, in: bytes, &frames[top].keys)
    }
    guard isNew else {
      throw error(.repeatedKey, keyRange.lowerBound - 1, "the key '\(key.prefix(80))' occurs twice in one object")
    }
    return words
  }

  private mutating func open(isObject: Bool) throws(JSONError) {
    guard frames.count < limits.depthMax else {
      throw error(.limit, at, "more than \(limits.depthMax) lists and objects in each other")
    }
    at += 1
    frames.append(Frame(isObject: isObject, keys: keys.mark))
    isFresh = true
  }

  private mutating func close() {
    let frame = frames.removeLast()
    if frame.isObject { keys.drop(to: frame.keys) }
    isFresh = false
  }

  // MARK: Going back

  /// A place before a value.
  package struct Mark: Sendable {
    fileprivate let at: Int
    fileprivate let depth: Int
    fileprivate let isFresh: Bool
    fileprivate let text: Int
  }

  /// The place at which the reader stands, for `move`: before a value, behind its key or after `nextItem` has said that
  /// there is one.
  package var mark: Mark { Mark(at: at, depth: frames.count, isFresh: isFresh, text: start) }

  /// Goes to a mark of this text whose list or object is still open: back to a value after an error, to pass over it, or to
  /// where the reader stood before it read a token. What was opened since is closed.
  ///
  /// The keys that were read of that object stay read: from a mark before other keys, only the value can be read.
  package mutating func move(to mark: Mark) {
    precondition(mark.depth <= frames.count && mark.text == start, "the mark is not of an open list or object")
    while frames.count > mark.depth { close() }
    at = mark.at
    isFresh = mark.isFresh
  }

  /// Goes to a value that was passed over, which the caller reads to its end, as one list or object more in those that are
  /// open now.
  ///
  /// - Returns: where the reader stood, for `move(to:)`.
  package mutating func goBack(to token: JSONToken) -> Mark {
    precondition(token.range.lowerBound >= start && token.range.upperBound <= end, "the token is of another text")
    defer { at = token.range.lowerBound }
    return mark
  }

  // MARK: Passing over

  /// Passes over a value and checks it as if it were read.
  @discardableResult
  package mutating func skipValue() throws(JSONError) -> JSONToken {
    let kind = try kind()
    let begin = at
    switch kind {
    case .string: return try scanString()
    case .number: _ = try scanNumber()
    case .bool: _ = try bool()
    case .null: try null()
    case .object, .array: try skipContainer()
    }
    return JSONToken(kind: kind, range: begin..<at, hasEscapes: false)
  }

  private mutating func skipContainer() throws(JSONError) {
    let depth = frames.count
    repeat {
      switch try kind() {
      case .object: try open(isObject: true)
      case .array: try open(isObject: false)
      case .string: _ = try scanString()
      case .number: _ = try scanNumber()
      case .bool: _ = try bool()
      case .null: try null()
      }
      // To the next value: of this list or object, or of one around it.
      while frames.count > depth {
        if frames[frames.count - 1].isObject ? try advanceToKey() != nil : try nextItem() { break }
      }
    } while frames.count > depth
  }

  /// Passes over a value of which only the structure is checked: brackets, commas, colons, and where strings end. Strings
  /// may hold any bytes, keys may repeat, and for a number or a word any run of bytes may stand that ends where one would:
  /// `NaN`, `undefined`, `0x1`.
  ///
  /// - Returns: where it is.
  /// - Throws: a `.structure` or a `.limit`: where the value ends cannot be said.
  package mutating func skipStructure() throws(JSONError) -> Range<Int> {
    skipSpace()
    let begin = at
    let depth = frames.count
    repeat {
      skipSpace()
      switch current {
      case UInt8(ascii: "{"): try open(isObject: true)
      case UInt8(ascii: "["): try open(isObject: false)
      case UInt8(ascii: "\""): try skipQuoted()
      default: try skipWord()
      }
      while frames.count > depth {
        if frames[frames.count - 1].isObject ? try skipKey() != nil : try nextItem() { break }
      }
    } while frames.count > depth
    return begin..<at
  }

  /// Goes to the next key of the innermost object in the same way. Its value is then to be passed over, or read.
  ///
  /// - Returns: where the key is, with its quotes; nil if there is none. Then the object is closed.
  package mutating func skipKey() throws(JSONError) -> Range<Int>? {
    guard try goToKey() else { return nil }
    let begin = at
    try skipQuoted()
    let key = begin..<at
    try goBehindColon()
    return key
  }

  private mutating func skipQuoted() throws(JSONError) {
    let begin = at
    at += 1
    while at < end, bytes[at] != UInt8(ascii: "\"") { at += bytes[at] == UInt8(ascii: "\\") ? 2 : 1 }
    guard at < end else {
      at = end
      throw error(.structure, begin, "a string without its closing quote")
    }
    at += 1
  }

  /// Passes over what stands for a number or a word, whatever it is.
  private mutating func skipWord() throws(JSONError) {
    let begin = at
    while at < end, !Self.endsWord(bytes[at]) { at += 1 }
    guard at > begin else { throw unexpected("a value") }
  }

  private static func endsWord(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "]"), UInt8(ascii: "}"), UInt8(ascii: "["),
      UInt8(ascii: "{"), UInt8(ascii: "\""), 0...0x20:
      true
    default: false
    }
  }

  // MARK: The place

  /// Where in `bytes` the reader stands: after `kind`, at the first byte of the value.
  package var place: Int { at }

  /// The byte at the place; 0 at the end, which is no part of any token.
  @inline(__always)
  var current: UInt8 { at < end ? bytes[at] : 0 }

  /// Skips white space: mostly there is none, or one space.
  @inline(__always)
  mutating func skipSpace() {
    if at < end, bytes[at] <= 0x20 { skipSpaces() }
  }

  private mutating func skipSpaces() {
    while at < end {
      switch bytes[at] {
      case 0x20, 0x0A, 0x0D, 0x09: at += 1
      default: return
      }
    }
  }
}
