// A JSON value as a tree, for what `--json` prints of reports: their members are gathered in no order, and the same members
// become a line of text for people. It is only written, never read; records are written without it.

import StrandlineJSON
import StrandlineSystem

/// A JSON value.
enum JSONValue: Hashable, Sendable {
  case null
  case bool(Bool)
  case integer(Int64)
  case string(String)
  case array([JSONValue])
  case object([String: JSONValue])
  /// A value that is JSON already.
  case raw([UInt8])

  /// The value as JSON with keys sorted by UTF-8, no spaces, and the least escaping.
  var canonicalBytes: [UInt8] {
    var writer = JSONWriter(controls: .hexadecimal)
    write(with: &writer)
    return writer.finish()
  }

  private func write(with writer: inout JSONWriter) {
    switch self {
    case .null: writer.null()
    case .bool(let value): writer.bool(value)
    case .integer(let value): writer.int64(value)
    case .string(let value): writer.string(value)
    case .array(let items):
      writer.beginArray()
      for item in items { item.write(with: &writer) }
      writer.endArray()
    case .object(let members):
      writer.beginObject()
      for (key, value) in members.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        writer.key(key)
        value.write(with: &writer)
      }
      writer.endObject()
    case .raw(let json): writer.raw(json)
    }
  }
}
