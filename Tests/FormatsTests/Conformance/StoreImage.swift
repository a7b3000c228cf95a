// A store as statements that can be made wrong one by one: every field of every structure by its name, every frame in its
// order. Encoding computes the checksums anew, so that what was made wrong is a statement and not a byte.

import StrandlineSystem

/// The type numbers of frames.
enum FrameNumber {
  static let event: UInt64 = 1
  static let opening: UInt64 = 2
  static let index: UInt64 = 3
  static let seal: UInt64 = 4
}

/// One frame.
struct FrameImage: Sendable {
  var header: Fields
  var body: [UInt8]
  /// How the body is laid out; nil for a body of the owner's, and for an index.
  var bodyLayout: FieldLayout?
  /// What stands between the body and the next multiple of eight.
  var padding: UInt8 = 0

  var bytes: Int { 32 + (body.count + 7) / 8 * 8 }

  init(_ layouts: LogLayouts, _ type: UInt64, lsn: UInt64, flags: UInt64 = 0, body: [UInt8]) throws {
    header = Fields(layouts.frame)
    self.body = body
    try header.set("type", type)
    try header.set("lsn", lsn)
    try header.set("flags", flags)
    try header.set("bodyLength", UInt64(body.count))
    if type == FrameNumber.opening { bodyLayout = layouts.opening }
    if type == FrameNumber.seal { bodyLayout = layouts.seal }
    if type == FrameNumber.event { try header.set("schema", 1) }
  }

  /// Sets a field of the header, or else of the body.
  mutating func set(_ name: String, _ value: UInt64) throws {
    if header.layout.has(name) { return try header.set(name, value) }
    guard let bodyLayout else { throw PageError("a frame without a field '\(name)'") }
    let range = try bodyLayout.range(name)
    for (index, place) in range.enumerated() {
      body[place] = UInt8(truncatingIfNeeded: value >> (8 * UInt64(index)))
    }
  }

  func get(_ name: String) throws -> UInt64 {
    if header.layout.has(name) { return try header.get(name) }
    guard let bodyLayout else { throw PageError("a frame without a field '\(name)'") }
    return body[try bodyLayout.range(name)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// Another body, of another length.
  mutating func replace(body: [UInt8]) throws {
    self.body = body
    try header.set("bodyLength", UInt64(body.count))
  }

  /// The frame at `offset` of a segment with this seed.
  func encoded(at offset: UInt32, seed: UInt32) throws -> [UInt8] {
    let padded = body + [UInt8](repeating: padding, count: bytes - 32 - body.count)
    var header = header
    try header.set("bodyCRC", UInt64(CRC32C.checksum(padded)))
    let covered = littleEndian(seed) + littleEndian(offset) + header.bytes[4...]
    try header.set("headCRC", UInt64(CRC32C.checksum(covered)))
    return header.bytes + padded
  }
}

/// One segment's file.
struct SegmentImage: Sendable {
  var name: String
  var header: Fields
  /// From 4096 on, without gaps.
  var frames: [FrameImage]
  /// Behind the last frame.
  var rest: [UInt8] = []
  /// Bytes 128 to 4095, but for those that are zero.
  var pageBytes: [Int: UInt8] = [:]

  var seed: UInt32 {
    get throws {
      let identity = try header.layout.range("storeUUID").lowerBound..<header.layout.range("salt").upperBound
      return CRC32C.checksum(Array(header.bytes[identity]))
    }
  }

  /// Where the frame at `index` begins; or, one above the last, where the frames end.
  func offset(_ index: Int) -> Int { frames[..<index].reduce(4096) { $0 + $1.bytes } }
  var end: Int { offset(frames.count) }

  /// Gives the salt, and the tag of every frame.
  mutating func set(salt: UInt64) throws {
    try header.set("salt", salt)
    for index in frames.indices { try frames[index].header.set("tag", salt) }
  }

  /// Lets `frame` lie at `offset` behind the last frame, with zeros between.
  mutating func leave(_ frame: FrameImage, at offset: Int) throws {
    var frame = frame
    try frame.header.set("tag", header.get("salt"))
    rest = [UInt8](repeating: 0, count: offset - end) + (try frame.encoded(at: UInt32(offset), seed: seed))
  }

  /// Appends a frame.
  mutating func append(_ frame: FrameImage) throws {
    var frame = frame
    try frame.header.set("tag", header.get("salt"))
    frames.append(frame)
  }

  func encoded() throws -> [UInt8] {
    var bytes = try withChecksum(header, over: 124)
    bytes += [UInt8](repeating: 0, count: 4096 - bytes.count)
    for (place, byte) in pageBytes { bytes[place] = byte }
    for frame in frames { bytes += try frame.encoded(at: UInt32(bytes.count), seed: seed) }
    return bytes + rest
  }
}

/// A whole store.
struct StoreImage: Sendable {
  let layouts: LogLayouts
  var manifest: Fields
  var entries: [Fields] = []
  var owner: [UInt8] = []
  /// nil: zeros.
  var slots: [Fields?] = [nil, nil]
  var segments: [SegmentImage] = []
  /// What is done to the bytes at last: lengths, files that are gone, others that are there.
  var finish: @Sendable (inout [String: [UInt8]]) throws -> Void = { _ in }

  /// The files, by name.
  func encoded() throws -> [String: [UInt8]] {
    var list = try withChecksum(manifest, over: 124)
    for entry in entries { list += entry.bytes }
    list += owner
    list += littleEndian(CRC32C.checksum(list))
    var bounds: [UInt8] = []
    for slot in slots {
      bounds += try slot.map { try withChecksum($0, over: 60) } ?? [UInt8](repeating: 0, count: 64)
      bounds += [UInt8](repeating: 0, count: 4096 - 64)
    }
    var files = ["MANIFEST": list, "CONTROL": bounds]
    for segment in segments { files[segment.name] = try segment.encoded() }
    try finish(&files)
    return files
  }

  /// Changes the segment with this ID.
  mutating func segment(_ id: UInt64, _ change: (inout SegmentImage) throws -> Void) throws {
    guard let index = segments.firstIndex(where: { $0.name == segmentName(id) }) else {
      throw PageError("no segment \(id)")
    }
    try change(&segments[index])
  }

  /// Changes the header of the segment with this ID, and leaves its frames as they are: they verify under the one that it had.
  mutating func headerAlone(_ id: UInt64, _ change: (inout Fields) throws -> Void) throws {
    var header = try segment(id).header
    try change(&header)
    let bytes = try withChecksum(header, over: 124)
    finish = { files in files[segmentName(id)]?.replaceSubrange(0..<bytes.count, with: bytes) }
  }

  /// Changes one frame of the segment with this ID.
  mutating func frame(_ id: UInt64, _ index: Int, _ change: (inout FrameImage) throws -> Void) throws {
    try segment(id) { try change(&$0.frames[index]) }
  }

  /// Changes the entries, and says how many they are.
  mutating func list(_ change: (inout [Fields]) throws -> Void) throws {
    try change(&entries)
    try manifest.set("entryCount", UInt64(entries.count))
  }

  func segment(_ id: UInt64) throws -> SegmentImage {
    guard let found = segments.first(where: { $0.name == segmentName(id) }) else { throw PageError("no segment \(id)") }
    return found
  }
}

/// A structure whose last four bytes are the checksum of the `count` before them.
private func withChecksum(_ fields: Fields, over count: Int) throws -> [UInt8] {
  fields.bytes[..<count] + littleEndian(CRC32C.checksum(Array(fields.bytes[..<count])))
}

func littleEndian(_ value: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) } }

/// The file name of a segment.
func segmentName(_ id: UInt64) -> String {
  let digits = String(id, radix: 16)
  return String(repeating: "0", count: 16 - digits.count) + digits + ".seg"
}
