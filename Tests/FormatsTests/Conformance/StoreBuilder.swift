// Builds stores that are right: the bases of the conformance set.

import StrandlineSystem

/// Appends to one segment, and knows what its index and its seal must say.
struct SegmentBuilder {
  private let layouts: LogLayouts
  private(set) var image: SegmentImage
  let id: UInt64
  let salt: UInt64
  private(set) var lsn: UInt64
  private(set) var chain: UInt32
  private(set) var rangeLastLSN: UInt64?
  private var index: [UInt8] = []
  private let firstLSN: UInt64
  private var isIndexed = false

  /// How it continues the one before.
  struct Before {
    var id: UInt64 = 0
    var end = 0
    var lsn: UInt64 = 0
    var chain: UInt32 = 0
  }

  init(_ layouts: LogLayouts, _ id: UInt64, kind: UInt64, after before: Before, role: String = "stor") throws {
    self.layouts = layouts
    self.id = id
    salt = 0x5A17_0000 + id
    lsn = before.lsn
    chain = before.chain
    firstLSN = before.lsn + 1
    var header = Fields(layouts.segment)
    try StoreBuilder.begin(&header, letter: "R")
    try header.set("segmentID", id)
    try header.set("role", bytes: Array(role.utf8))
    try header.set("kind", kind)
    image = SegmentImage(name: segmentName(id), header: header, frames: [])
    var opening = try FrameImage(
      layouts, FrameNumber.opening, lsn: firstLSN, body: [UInt8](repeating: 0, count: layouts.opening.count))
    try opening.set("predecessorID", before.id)
    try opening.set("predecessorEnd", UInt64(before.end))
    try opening.set("chain", UInt64(before.chain))
    try opening.set("durableEnd", 4160)
    image.frames = [opening]
    try image.set(salt: salt)
  }

  /// What continues it.
  var before: Before { Before(id: id, end: image.end, lsn: lsn, chain: chain) }

  private mutating func append(_ frame: FrameImage) throws {
    var frame = frame
    try frame.header.set("tag", salt)
    image.frames.append(frame)
  }

  /// A transaction of events with the LSNs that follow, or with these.
  mutating func transaction(_ count: Int, isSynced: Bool = true, lsns: [UInt64]? = nil) throws {
    for place in 0..<count {
      lsn = lsns?[place] ?? lsn + 1
      if place == 0, !isIndexed {
        index = littleEndian(UInt32(lsn - firstLSN)) + littleEndian(UInt32(image.end))
        isIndexed = true
      }
      let flags: UInt64 = (place == 0 ? 1 : 0) | (place == count - 1 ? 2 : 0) | (place == 0 && isSynced ? 4 : 0)
      let body = Array("event \(lsn)".utf8)
      var frame = try FrameImage(layouts, FrameNumber.event, lsn: lsn, flags: flags, body: body)
      try frame.set("indexInTransaction", UInt64(place))
      try append(frame)
      let padded = body + [UInt8](repeating: 0, count: frame.bytes - 32 - body.count)
      var step = Fields(try StoreBuilder.stepLayout())
      try step.set("chain", UInt64(chain))
      try step.set("lsn", lsn)
      try step.set("type", 1)
      try step.set("schema", 1)
      try step.set("bodyLength", UInt64(body.count))
      try step.set("bodyCRC", UInt64(CRC32C.checksum(padded)))
      chain = CRC32C.checksum(step.bytes)
    }
  }

  /// What was appended so far was synced before the file had its name.
  mutating func promiseCopies() throws { try image.frames[0].set("durableEnd", UInt64(image.end)) }

  /// The index and the seal.
  mutating func close(isSynced: Bool = true) throws {
    let next = (rangeLastLSN ?? lsn) + 1
    let place = image.end
    try append(FrameImage(layouts, FrameNumber.index, lsn: next, flags: isSynced ? 4 : 0, body: index))
    try append(
      FrameImage(layouts, FrameNumber.seal, lsn: next, body: littleEndian(chain) + littleEndian(UInt32(place))))
  }

  /// It stands for a range, whose chain this was before events were left out; ends it.
  mutating func finishRewritten(_ last: UInt64, chain rangeChain: UInt32) throws {
    rangeLastLSN = last
    try close(isSynced: false)
    try image.frames[0].set("rangeLastLSN", last)
    try image.frames[0].set("rangeChain", UInt64(rangeChain))
    try promiseCopies()
  }

  /// A frame of any type.
  mutating func add(_ type: UInt64, lsn: UInt64, flags: UInt64 = 0, body: [UInt8] = []) throws {
    try append(FrameImage(layouts, type, lsn: lsn, flags: flags, body: body))
  }
}

/// Puts segments together with their list and their bounds.
struct StoreBuilder {
  let layouts: LogLayouts
  var image: StoreImage

  init(_ layouts: LogLayouts, role: String = "stor", nextSegmentID: UInt64) throws {
    self.layouts = layouts
    var manifest = Fields(layouts.manifest)
    try Self.begin(&manifest, letter: "M")
    try manifest.set("role", bytes: Array(role.utf8))
    try manifest.set("nextSegmentID", nextSegmentID)
    image = StoreImage(layouts: layouts, manifest: manifest)
  }

  static func begin(_ header: inout Fields, letter: String) throws {
    try header.set("magic", bytes: [0x89, 0x53, 0x54] + Array(letter.utf8) + [0x0D, 0x0A, 0x1A, 0x0A])
    try header.set("version", 1)
    try header.set("headerLength", 128)
    try header.set("storeUUID", bytes: Array(0..<16))
  }

  /// What one step of the chain covers; the page gives it as a formula.
  static func stepLayout() throws -> FieldLayout {
    let rows = [
      ["0", "4", "chain"], ["4", "8", "lsn"], ["12", "1", "type"], ["13", "2", "schema"], ["15", "4", "bodyLength"],
      ["19", "4", "bodyCRC"],
    ]
    return try FieldLayout(Page.Table(heading: "Chain", columns: ["offset", "bytes", "name"], rows: rows))
  }

  /// Adds a segment and its entry.
  ///
  /// - Parameter end: whether the list says where it ends.
  mutating func add(_ segment: SegmentBuilder, end: Bool = false) throws {
    image.segments.append(segment.image)
    var entry = Fields(layouts.entry)
    try entry.set("segmentID", segment.id)
    try entry.set("salt", segment.salt)
    try entry.set("firstLSN", segment.image.frames[0].get("lsn"))
    if end {
      let opening = segment.image.frames[0]
      let isRewritten = segment.rangeLastLSN != nil
      try entry.set("lastLSN", segment.rangeLastLSN ?? segment.lsn)
      try entry.set("end", UInt64(segment.image.end))
      try entry.set("chain", isRewritten ? opening.get("rangeChain") : UInt64(segment.chain))
    }
    try image.list { $0.append(entry) }
  }

  /// Writes a slot.
  mutating func bound(_ sequence: UInt64, segment: UInt64, lsn: UInt64, end: Int) throws {
    var slot = Fields(layouts.slot)
    try slot.set("magic", bytes: [0x89, 0x53, 0x54, 0x43, 0x0D, 0x0A, 0x1A, 0x0A])
    try slot.set("version", 1)
    try slot.set("storeUUID", bytes: Array(0..<16))
    try slot.set("sequence", sequence)
    try slot.set("tailSegmentID", segment)
    try slot.set("durableLSN", lsn)
    try slot.set("durableEnd", UInt64(end))
    image.slots[Int(sequence % 2)] = slot
  }
}
