// Writes JSON without spaces into one byte array: the caller says what comes next, in the order in which it is to stand.
// Equal calls give equal bytes.
//
// A caller that leaves out a key or closes what is not open has a mistake in its code: that traps, and never depends on
// the values that are written.

private import StrandlineSystem

/// A number that JSON does not have: NaN or an infinity.
package struct NonFiniteNumber: Error, Hashable, Sendable, CustomStringConvertible {
  package var value: Double
  package var description: String { "\(value) is not a finite number, and JSON has no other" }
}

/// Builds a text of JSON.
package struct JSONWriter: Sendable {
  /// How the control characters in strings are written.
  package enum ControlEscapes: Sendable {
    /// The five that have one as an escape of two bytes, such as `\n`; the others as `\u001b`.
    case short
    /// All as `\u000a`.
    case hexadecimal
  }

  /// What was written.
  package private(set) var bytes: [UInt8] = []
  private let hasShortEscapes: Bool
  /// The open lists and objects: whether it is an object.
  private var open: [Bool] = []
  private var state = State.value

  /// What may come next.
  private enum State {
    /// A value without a comma before it: the first of a text or of a list, or the value of a key.
    case value
    /// The first key of an object, or its end.
    case firstKey
    /// A comma, or the end of what is open.
    case comma
  }

  package init(capacity: Int = 0, controls: ControlEscapes = .short) {
    hasShortEscapes = controls == .short
    bytes.reserveCapacity(capacity)
  }

  /// Ends a text and returns it. The writer is as new.
  package mutating func finish() -> [UInt8] {
    precondition(open.isEmpty && state == .comma, "a text of JSON is one whole value")
    state = .value
    defer { bytes = [] }
    return bytes
  }

  /// Ends a line: what follows is another text.
  package mutating func endLine() {
    precondition(open.isEmpty && state == .comma, "a text of JSON is one whole value")
    bytes.append(UInt8(ascii: "\n"))
    state = .value
  }

  /// Drops what was written, and keeps the memory.
  package mutating func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    open.removeAll(keepingCapacity: true)
    state = .value
  }

  // MARK: Lists and objects

  package mutating func beginArray() { begin(isObject: false, UInt8(ascii: "["), .value) }

  package mutating func endArray() { end(isObject: false, UInt8(ascii: "]")) }

  package mutating func beginObject() { begin(isObject: true, UInt8(ascii: "{"), .firstKey) }

  package mutating func endObject() { end(isObject: true, UInt8(ascii: "}")) }

  /// Writes a key. Its value follows. That an object gets no key twice is up to the caller.
  package mutating func key(_ name: String) {
    beforeKey()
    bytes.append(quoted: name, hasShortEscapes: hasShortEscapes)
    bytes.append(UInt8(ascii: ":"))
  }

  /// Writes a key whose UTF-8, which must be valid, is in `text[range]`.
  package mutating func key(utf8 text: [UInt8], _ range: Range<Int>) {
    beforeKey()
    bytes.append(quoted: text, range, hasShortEscapes: hasShortEscapes)
    bytes.append(UInt8(ascii: ":"))
  }

  private mutating func beforeKey() {
    precondition(open.last == true && state != .value, "a key where none can be")
    if state == .comma { bytes.append(UInt8(ascii: ",")) }
    state = .value
  }

  private mutating func beforeValue() {
    switch state {
    case .value: break
    case .comma:
      precondition(open.last == false, "a value where none can be")
      bytes.append(UInt8(ascii: ","))
    case .firstKey: preconditionFailure("a value without a key")
    }
    state = .comma
  }

  private mutating func begin(isObject: Bool, _ bracket: UInt8, _ next: State) {
    beforeValue()
    open.append(isObject)
    bytes.append(bracket)
    state = next
  }

  private mutating func end(isObject: Bool, _ bracket: UInt8) {
    // In a list whose last byte is its bracket no value was written.
    precondition(open.last == isObject, "the end of what is not open")
    precondition(state != .value || (!isObject && bytes.last == UInt8(ascii: "[")), "a key without a value")
    open.removeLast()
    bytes.append(bracket)
    state = .comma
  }

  // MARK: Values

  package mutating func string(_ text: String) {
    beforeValue()
    bytes.append(quoted: text, hasShortEscapes: hasShortEscapes)
  }

  /// Writes a string whose UTF-8, which must be valid, is in `text[range]`.
  package mutating func string(utf8 text: [UInt8], _ range: Range<Int>) {
    beforeValue()
    bytes.append(quoted: text, range, hasShortEscapes: hasShortEscapes)
  }

  /// Writes bytes as a string of base64, with padding.
  package mutating func base64(_ value: [UInt8], _ range: Range<Int>? = nil) {
    beforeValue()
    bytes.append(UInt8(ascii: "\""))
    bytes.append(base64: value, range ?? 0..<value.count)
    bytes.append(UInt8(ascii: "\""))
  }

  package mutating func int64(_ value: Int64) {
    beforeValue()
    if value < 0 { bytes.append(UInt8(ascii: "-")) }
    appendDigits(value.magnitude)
  }

  package mutating func uint64(_ value: UInt64) {
    beforeValue()
    appendDigits(value)
  }

  /// Writes a number in the shortest form that reads back as the same double, with a fraction or an exponent.
  package mutating func double(_ value: Double) throws(NonFiniteNumber) {
    guard value.isFinite else { throw NonFiniteNumber(value: value) }
    beforeValue()
    bytes.append(utf8: value.description)
  }

  /// Writes a number in the same way, but a whole one without a fraction if it has no exponent: `3`.
  package mutating func number(_ value: Double) throws(NonFiniteNumber) {
    if let whole = Int64(exactly: value), whole.magnitude < 1 << 53, whole != 0 || value.sign == .plus {
      return int64(whole)
    }
    guard value.isFinite else { throw NonFiniteNumber(value: value) }
    let text = value.description
    beforeValue()
    bytes.append(utf8: text.hasSuffix(".0") ? String(text.dropLast(2)) : text)
  }

  package mutating func bool(_ value: Bool) {
    beforeValue()
    bytes.append(utf8: value ? "true" : "false")
  }

  package mutating func null() {
    beforeValue()
    bytes.append(utf8: "null")
  }

  /// Writes one value that is JSON already, as it stands in `json[range]`. That it is JSON is up to the caller.
  package mutating func raw(_ json: [UInt8], _ range: Range<Int>? = nil) {
    beforeValue()
    if let range { bytes += json[range] } else { bytes += json }
  }

  private mutating func appendDigits(_ value: UInt64) {
    if value < 10 { return bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: value)) }
    var (rest, count) = (value, 1)
    while rest >= 10 {
      rest /= 10
      count += 1
    }
    bytes.append(contentsOf: repeatElement(UInt8(ascii: "0"), count: count))
    (rest, count) = (value, bytes.count)
    while rest > 0 {
      count -= 1
      bytes[count] += UInt8(truncatingIfNeeded: rest % 10)
      rest /= 10
    }
  }
}
