// What client and server exchange: read from JSON straight into the types that the program works with, and written from
// them, without a tree between.
//
// A message is read strictly as JSON, and widely as a message: keys that this version does not know are passed over, and
// null is an absent key. Keys are written in the order of their UTF-8, so that equal messages have equal bytes and a
// simulated run can be repeated.

package import StrandlineJSON

/// What has a form in JSON.
package protocol WireMessage: Sendable {
  /// Reads the next value.
  ///
  /// - Throws: if it is no JSON, or not this message. The reader then stands at some place in it.
  init(_ json: inout JSONReader) throws(JSONError)

  /// Writes one value.
  func write(into json: inout JSONWriter)
}

/// Encodes and decodes whole messages.
package enum WireJSON {
  /// The most lists and objects in each other. CloudKit's own answers have fewer than ten; the rest is for values of types
  /// that this version does not know.
  package static let depthMax = 512
  /// The most items of one list in a message, lists in a field's value apart: each may cost hundreds of bytes in memory and
  /// two in the text. The service takes and gives 200 records, and a database has 1,000 zones.
  static let itemsMax = 20_000
  /// The longest answer that a client reads, in bytes.
  package static let answerBytesMax = 64 << 20

  package static func encode(_ message: some WireMessage) -> [UInt8] {
    var json = JSONWriter(capacity: 256)
    message.write(into: &json)
    return json.finish()
  }

  /// Decodes a text of one message.
  package static func decode<Message: WireMessage>(
    _ type: Message.Type, _ bytes: [UInt8], bytesMax: Int = answerBytesMax
  ) throws(JSONError) -> Message {
    var json = try JSONReader(bytes, limits: JSONLimits(bytesMax: bytesMax, depthMax: depthMax))
    let message = try Message(&json)
    try json.finish()
    return message
  }
}

// MARK: Objects

/// The keys of an object, in the order of their raw values.
protocol WireKey: CaseIterable, RawRepresentable<Int>, Sendable {
  static var names: JSONKeys { get }
}

extension JSONReader {
  /// Reads an object: calls `read` for each key that is known, and passes over the values of the others.
  @inline(__always)
  mutating func object<Key: WireKey>(
    _ type: Key.Type, _ read: (Key, inout JSONReader) throws(JSONError) -> Void
  ) throws(JSONError) {
    try beginObject()
    while let place = try nextKey(in: Key.names) {
      guard let key = Key(rawValue: place) else {
        try skipValue()
        continue
      }
      do throws(JSONError) { try read(key, &self) } catch { throw error.inside("\(key)") }
    }
  }

  /// The error of a list that goes on here.
  var tooManyItems: JSONError {
    mutating get { error("a list of more than \(WireJSON.itemsMax) items", at: place) }
  }

  /// Reads a value that may be null.
  @inline(__always)
  mutating func optional<Value: WireMessage>() throws(JSONError) -> Value? {
    try skipNull() ? nil : try Value(&self)
  }
}

extension JSONWriter {
  /// Writes a key with its value; nothing for nil.
  @inline(__always)
  mutating func member(_ key: String, _ value: (some WireMessage)?) {
    guard let value else { return }
    self.key(key)
    value.write(into: &self)
  }
}

// MARK: Parts of messages

extension String: WireMessage {
  package init(_ json: inout JSONReader) throws(JSONError) { self = try json.string() }
  package func write(into json: inout JSONWriter) { json.string(self) }
}

extension Bool: WireMessage {
  package init(_ json: inout JSONReader) throws(JSONError) { self = try json.bool() }
  package func write(into json: inout JSONWriter) { json.bool(self) }
}

extension Int: WireMessage {
  package init(_ json: inout JSONReader) throws(JSONError) { self = Int(clamping: try json.int64()) }
  package func write(into json: inout JSONWriter) { json.int64(Int64(self)) }
}

extension Array: WireMessage where Element: WireMessage {
  package init(_ json: inout JSONReader) throws(JSONError) {
    self = []
    try json.beginArray()
    while try json.nextItem() {
      guard count < WireJSON.itemsMax else { throw json.tooManyItems }
      do throws(JSONError) { append(try Element(&json)) } catch { throw error.inside(item: count) }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginArray()
    for item in self { item.write(into: &json) }
    json.endArray()
  }
}
