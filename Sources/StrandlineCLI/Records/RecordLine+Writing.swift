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
    var isVerbatim = hasNameOfServer
    let isWritten = forEachFieldInPlace { field in
      if !isVerbatim { isVerbatim = field.isOfServer }
      json.key(utf8: field.bytes, field.name)
      field.writeLine(to: &json)
    }
    if !isWritten {
      for (name, value) in fields.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
        if !isVerbatim { isVerbatim = Names.defect(newField: name) != nil || value.isOfServer }
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
    if isVerbatim {
      json.key("verbatim")
      json.bool(true)
    }
    if isNamed {
      json.key("zoneName")
      json.string(id.zone.name)
    }
    json.endObject()
  }

  /// Whether only a server can have given it one of its names.
  private var hasNameOfServer: Bool {
    Names.defect(recordName: id.name) != nil || Names.defect(newType: type) != nil
      || Names.defect(zoneName: id.zone.name) != nil || parent.map { Names.defect(recordName: $0) != nil } ?? false
  }
}

extension FieldInPlace {
  /// Whether only a server can have given it its name or value.
  fileprivate var isOfServer: Bool {
    if case .other(let value) = value, value.isOfServer { return true }
    return Names.defect(newField: String(decoding: bytes[name], as: UTF8.self)) != nil
  }

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
  /// Whether only a server can have given a field this value.
  fileprivate var isOfServer: Bool { defect != nil && defect(isKept: true) == nil }

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
