// The fields of a record that was read, in the bytes of the event that holds them. They are checked when the record is
// read, so that damage is thrown there, and decoded when a caller asks for them: most callers ask for a few.

import StrandlineSystem

/// The fields of a version, undecoded.
final class EncodedFields: UndecodedFields {
  /// The body of an event.
  private let bytes: [UInt8]
  /// Where the names lie in it, in their order. A field's stamp and value stand behind its name.
  private let names: [Range<Int>]
  /// Where the last field ends.
  private let end: Int
  let parent: String?
  /// All of them, once they were asked for.
  private let decoded = OrderedMutex<Decoded?>(nil)

  private struct Decoded: Sendable {
    var values: [String: FieldValue] = [:]
    var nulls: Set<String> = []
  }

  /// Takes the content of a version, after a check of all of it: what this accepts can be decoded.
  ///
  /// - Parameter reader: stands where the content begins, which fills the rest.
  init(content reader: inout ByteReader) throws(ByteReaderError) {
    let stampCount = try reader.count(minimumBytes: FieldStamp.bytesMin)
    try reader.skip(stampCount * FieldStamp.bytesMin)
    let count = try reader.count(minimumBytes: ContentField.bytesMin)
    var names: [Range<Int>] = []
    names.reserveCapacity(count)
    var parent: String?
    for number in 0..<count {
      let start = reader.offset
      let name = try reader.skipString()
      guard number == 0 || reader.bytes.precedes(names[number - 1], reader.bytes, name) else {
        throw ByteReaderError(offset: start, what: "fields out of order")
      }
      names.append(name)
      guard try reader.varint() <= UInt64(stampCount) else {
        throw ByteReaderError(offset: start, what: "a missing stamp")
      }
      if Self.isParent(reader.bytes, name) {
        if case .reference(let reference)? = try FieldCodec.decode(from: &reader) { parent = reference.name }
      } else {
        try FieldCodec.skip(from: &reader)
      }
    }
    end = reader.offset
    try Self.skipRest(&reader, fieldCount: count)
    (bytes, self.names, self.parent) = (reader.bytes, names, parent)
  }

  /// Passes over what follows the fields: what was seen, unknown parts of the stamp, the dirty map.
  private static func skipRest(_ reader: inout ByteReader, fieldCount: Int) throws(ByteReaderError) {
    for _ in 0..<(try reader.count(minimumBytes: SeenEntry.bytesMin)) {
      try reader.skip(8)
      _ = try reader.varint()
      try reader.skip(8 + 8)
    }
    try reader.skipBlob()
    for _ in 0..<(try reader.count(minimumBytes: DirtyField.bytesMin)) {
      guard try reader.varint() < UInt64(fieldCount) else {
        throw ByteReaderError(offset: reader.offset, what: "a missing dirty field")
      }
      _ = try reader.varint()
    }
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the end") }
  }

  private static func isParent(_ bytes: [UInt8], _ name: Range<Int>) -> Bool {
    !name.isEmpty && bytes[name.lowerBound] == UInt8(ascii: "_") && bytes.order(name, of: Version.parentField) == 0
  }

  // MARK: Values

  package func find(_ name: String) -> FieldValue?? {
    let place = names.partitioningIndex { bytes.order($0, of: name) >= 0 }
    guard place < names.count, bytes.order(names[place], of: name) == 0, !Self.isParent(bytes, names[place]) else {
      return nil
    }
    return value(of: names[place])
  }

  /// How many bytes the event has that holds the fields.
  var byteCount: Int { bytes.count }

  /// Decodes the event once more: few callers ask.
  package var births: Set<Birth>? {
    guard let event = try? EventCodec.decode(bytes) else { return nil }
    return switch event {
    case .saved(let saved): saved.births
    case .merged(let merged): merged.births
    case .fetchedSave(let fetched): fetched.births
    default: nil
    }
  }

  func forEachInPlace(_ body: (FieldInPlace) -> Void) {
    for name in names where !Self.isParent(bytes, name) {
      let value = checked(name) { (reader) throws(ByteReaderError) in
        _ = try reader.varint()
        return try ValueInPlace(&reader)
      }
      if let value { body(FieldInPlace(bytes: bytes, name: name, value: value)) }
    }
  }

  var values: [String: FieldValue] { all.values }
  var nulls: Set<String> { all.nulls }

  private var all: Decoded {
    if let decoded = decoded.withLock({ $0 }) { return decoded }
    var all = Decoded()
    all.values.reserveCapacity(names.count)
    for name in names where !Self.isParent(bytes, name) {
      switch value(of: name) {
      case .some(.some(let value)): all.values[bytes.text(in: name)] = value
      case .some(nil): all.nulls.insert(bytes.text(in: name))
      case nil: break
      }
    }
    decoded.withLock { $0 = all }
    return all
  }

  /// The value behind a name; nil within if it was set to null, nil if the field is absent for an app.
  private func value(of name: Range<Int>) -> FieldValue?? {
    checked(name) { (reader) throws(ByteReaderError) in
      let stamp = try reader.varint()
      if let value = try FieldCodec.decode(from: &reader) { return value }
      return stamp > 0 ? .some(nil) : nil
    }
  }

  /// Reads what stands behind a name, which `init` has checked.
  private func checked<Value>(
    _ name: Range<Int>, _ read: (inout ByteReader) throws(ByteReaderError) -> Value
  ) -> Value {
    var reader = ByteReader(bytes, name.upperBound..<end)
    do throws(ByteReaderError) { return try read(&reader) } catch {
      preconditionFailure("bytes that `init` has checked cannot be decoded: \(error)")
    }
  }
}

extension ValueInPlace {
  /// Reads a value that was checked before; nil for null.
  init?(_ reader: inout ByteReader) throws(ByteReaderError) {
    let start = reader
    switch ValueTag(rawValue: try reader.u8()) {
    case .string: self = .text(try reader.skipBlob())
    case .list where !reader.isAtEnd && reader.bytes[reader.offset] == FieldValue.ListKind.strings.rawValue:
      try reader.skip(1)
      var texts: [Range<Int>] = []
      let count = try reader.count(minimumBytes: 1)
      texts.reserveCapacity(count)
      for _ in 0..<count { texts.append(try reader.skipBlob()) }
      self = .texts(texts)
    default:
      reader = start
      guard let value = try FieldCodec.decode(from: &reader) else { return nil }
      self = .other(value)
    }
  }
}
