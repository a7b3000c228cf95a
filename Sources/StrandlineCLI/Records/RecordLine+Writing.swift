// Encodes a record as one line of JSON, as `export` and `get --json` print it. Each value has one form and keys are
// sorted, so that the exports of equal stores are equal byte for byte.
//
// The fields of a record that was read from a store are written from the bytes of its event, where they lie in that order.

import Strandline
import StrandlineCloudKit
import StrandlineJSON
import StrandlineSystem

extension Record {
  /// The line without its line end. `zone` says whether the line names the record's zone.
  func line(zone isNamed: Bool) -> [UInt8] {
    var json = JSONWriter(capacity: 512, controls: .hexadecimal)
    writeLine(zone: isNamed, to: &json)
    return json.finish()
  }

  /// Writes the line without its line end. `json` is to write control characters as hexadecimal numbers.
  func writeLine(zone isNamed: Bool, to json: inout JSONWriter) {
    json.beginObject()
    json.key("fields")
    json.beginObject()
    let isWritten = forEachFieldInPlace { field in
      json.key(utf8: field.bytes, field.name)
      field.writeLine(to: &json)
    }
    if !isWritten {
      for (name, value) in fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        json.key(name)
        value.writeLine(to: &json)
      }
    }
    json.endObject()
    if let parent {
      json.key("parent")
      json.string(parent)
    }
    json.key("recordName")
    json.string(id.name)
    json.key("recordType")
    json.string(type)
    if isNamed {
      json.key("zoneName")
      json.string(id.zone.name)
    }
    json.endObject()
  }
}

extension FieldInPlace {
  /// Writes the value as a line has it.
  fileprivate func writeLine(to json: inout JSONWriter) {
    switch value {
    case .text(let text): json.string(utf8: bytes, text)
    case .texts([]): FieldValue.list(.strings, []).writeLine(to: &json)
    case .texts(let texts):
      json.beginArray()
      for text in texts { json.string(utf8: bytes, text) }
      json.endArray()
    case .other(let value): value.writeLine(to: &json)
    }
  }
}

extension FieldValue {
  /// The value as a line has it.
  var line: [UInt8] {
    var json = JSONWriter(controls: .hexadecimal)
    writeLine(to: &json)
    return json.finish()
  }

  /// Writes plain JSON for strings, integers and non-empty lists of them; for all other values an object with the type.
  fileprivate func writeLine(to json: inout JSONWriter) {
    switch self {
    case .string, .int64: WireField.writeBare(self, to: &json, .line)
    case .list(.strings, let items) where !items.isEmpty, .list(.int64s, let items) where !items.isEmpty:
      WireField.writeBare(self, to: &json, .line)
    default: WireField.write(self, to: &json, .line)
    }
  }
}
