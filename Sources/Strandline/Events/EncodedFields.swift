// The fields of a record that was read, in the bytes of the event that holds them. They are checked when the record is
// read, so that damage is thrown there, and decoded when a caller asks for them: most callers ask for a few.

import StrandlineSystem
import Synchronization

/// The fields of a version, undecoded.
final class EncodedFields: UndecodedFields {
  /// The body of an event.
  private let bytes: [UInt8]
  /// Where the fields begin in it, in the order of their names, and at last where the last one ends.
  private let places: [Int]
  let parent: String?
  /// All of them, once they were asked for.
  private let decoded = Mutex<Decoded?>(nil)

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
    var places: [Int] = []
    places.reserveCapacity(count + 1)
    var parent: String?
    var last = 0..<0
    for number in 0..<count {
      places.append(reader.offset)
      let start = reader.offset
      let name = try reader.skipString()
      guard number == 0 || reader.bytes.precedes(last, reader.bytes, name) else {
        throw ByteReaderError(offset: start, what: "fields out of order")
      }
      last = name
      guard try reader.varint() <= UInt64(stampCount) else {
        throw ByteReaderError(offset: start, what: "a missing stamp")
      }
      if Self.isParent(reader.bytes, name) {
        if case .reference(let reference)? = try FieldCodec.decode(from: &reader) { parent = reference.name }
      } else {
        try FieldCodec.skip(from: &reader)
      }
    }
    places.append(reader.offset)
    try Self.skipRest(&reader, fieldCount: count)
    (bytes, self.places, self.parent) = (reader.bytes, places, parent)
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

  func find(_ name: String) -> FieldValue?? {
    var (low, high) = (0, places.count - 1)
    while low < high {
      let middle = (low + high) / 2
      let (found, rest) = Self.name(bytes, places[middle], places[places.count - 1])
      let order = bytes.order(found, of: name)
      if order == 0 { return name == Version.parentField ? nil : value(at: rest) }
      if order < 0 { low = middle + 1 } else { high = middle }
    }
    return nil
  }

  var values: [String: FieldValue] { all.values }
  var nulls: Set<String> { all.nulls }

  private var all: Decoded {
    if let decoded = decoded.withLock({ $0 }) { return decoded }
    var all = Decoded()
    all.values.reserveCapacity(places.count - 1)
    for place in places.dropLast() {
      let (name, rest) = Self.name(bytes, place, places[places.count - 1])
      guard !Self.isParent(bytes, name) else { continue }
      switch value(at: rest) {
      case .some(.some(let value)): all.values[bytes.text(in: name)] = value
      case .some(nil): all.nulls.insert(bytes.text(in: name))
      case nil: break
      }
    }
    decoded.withLock { $0 = all }
    return all
  }

  /// Where the name of a field lies, and where it ends.
  private static func name(_ bytes: [UInt8], _ place: Int, _ end: Int) -> (name: Range<Int>, end: Int) {
    checked { () throws(ByteReaderError) in
      var reader = ByteReader(bytes, place..<end)
      let name = try reader.skipBlob()
      return (name, reader.offset)
    }
  }

  /// The value behind a name; nil within if it was set to null, nil if the field is absent for an app.
  private func value(at place: Int) -> FieldValue?? {
    Self.checked { () throws(ByteReaderError) in
      var reader = ByteReader(bytes, place..<places[places.count - 1])
      let stamp = try reader.varint()
      if let value = try FieldCodec.decode(from: &reader) { return value }
      return stamp > 0 ? .some(nil) : nil
    }
  }

  /// `init` has accepted the bytes.
  private static func checked<Result>(_ body: () throws(ByteReaderError) -> Result) -> Result {
    do { return try body() } catch { preconditionFailure("bytes that were checked cannot be decoded: \(error)") }
  }
}
