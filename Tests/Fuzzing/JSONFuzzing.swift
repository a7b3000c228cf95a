// Fuzzes the reader of JSON: reading values, passing over them and finding their structure must agree, and what was read is
// read again from what the writer makes of it.

import StrandlineJSON
import StrandlineSystem

enum JSONFuzzing {
  private static let limits = JSONLimits(bytesMax: 1 << 20, depthMax: 100)

  /// Input: a text of JSON.
  static func run(_ input: inout FuzzInput) {
    let bytes = input.rest()
    let skipping = defect { () throws(JSONError) in
      var reader = try JSONReader(bytes, limits: limits)
      try reader.skipValue()
      try reader.finish()
    }
    let structure = defect { () throws(JSONError) in
      var reader = try JSONReader(bytes, limits: limits)
      _ = try reader.skipStructure()
      try reader.finish()
    }
    var writer = JSONWriter()
    let reading = defect { () throws(JSONError) in
      var reader = try JSONReader(bytes, limits: limits)
      try copy(&reader, to: &writer)
      try reader.finish()
    }
    if let structure { require(skipping != nil, "a value without structure is passed over: \(structure)") }
    if let skipping { require(skipping.offset <= bytes.count, "\(skipping) is behind the end") }
    // Only a reader of values finds numbers that Swift has not.
    if reading?.kind != .value {
      require(reading == skipping, "passed over: \(skipping as Any), read: \(reading as Any)")
    }
    guard reading == nil else { return }
    let written = writer.finish()
    var second = JSONWriter()
    let again = defect { () throws(JSONError) in
      var reader = try JSONReader(written, limits: limits)
      try copy(&reader, to: &second)
      try reader.finish()
    }
    require(again == nil && second.finish() == written, "what was written is read otherwise: \(again as Any)")
  }

  private static func defect(_ body: () throws(JSONError) -> Void) -> JSONError? {
    do {
      try body()
      return nil
    } catch { return error }
  }

  private static func copy(_ reader: inout JSONReader, to writer: inout JSONWriter) throws(JSONError) {
    switch try reader.kind() {
    case .object:
      try reader.beginObject()
      writer.beginObject()
      while let key = try reader.nextKey() {
        writer.key(key)
        try copy(&reader, to: &writer)
      }
      writer.endObject()
    case .array:
      try reader.beginArray()
      writer.beginArray()
      while try reader.nextItem() { try copy(&reader, to: &writer) }
      writer.endArray()
    case .string: writer.string(try reader.string())
    case .bool: writer.bool(try reader.bool())
    case .null:
      _ = try reader.skipNull()
      writer.null()
    case .number:
      let token = try reader.skipValue()
      switch try reader.number(of: token) {
      case .int64(let number): writer.int64(number)
      case .double(let number):
        // The nearest double of a number that is not whole may be whole.
        if let whole = Int64(exactly: number) { return writer.int64(whole) }
        do { try writer.double(number) } catch { require(false, "\(error)") }
      }
    }
  }
}
