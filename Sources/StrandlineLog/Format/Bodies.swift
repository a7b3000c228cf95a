// The bodies that the log itself writes: how a segment begins, where its events lie, how it ends; and the chain.
//
// An opening frame is the first frame of a segment and binds it to its predecessor: where that one ends (which seals it
// there), with which event, by which chain. Layout: Formats/log.md, "Opening", "Index", "Seal", "Chain".

import StrandlineSystem

/// How a segment continues the one before it.
package struct OpeningBody: Hashable, Sendable {
  /// The LSN of the first event in this segment, or the first of its range; it stands in the frame's header.
  package var firstLSN: UInt64
  /// 0 in a store's first segment. A rewritten segment has the predecessor of the first that it replaces.
  package var predecessorID: UInt64
  /// In a rewritten segment the last LSN of its range, whether its event is still there or not; else 0.
  package var rangeLastLSN: UInt64
  /// Where the predecessor ends: bytes from here on are void.
  package var predecessorEnd: UInt32
  /// The chain at the LSN before `firstLSN`.
  package var chain: UInt32
  /// Everything below this was synced before the file had its name: the end of this frame, or of what was copied
  /// behind it, or of the whole segment.
  package var durableEnd: UInt32
  /// In a rewritten segment the chain at `rangeLastLSN`, as it was before anything was left out; else 0.
  package var rangeChain: UInt32

  /// The last event before this segment.
  package var predecessorLastLSN: UInt64 { firstLSN - 1 }

  package init(
    firstLSN: UInt64, predecessorID: UInt64, predecessorEnd: UInt32, chain: UInt32, durableEnd: UInt32,
    rangeLastLSN: UInt64 = 0, rangeChain: UInt32 = 0
  ) {
    self.firstLSN = firstLSN
    self.predecessorID = predecessorID
    self.rangeLastLSN = rangeLastLSN
    self.predecessorEnd = predecessorEnd
    self.chain = chain
    self.durableEnd = durableEnd
    self.rangeChain = rangeChain
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.openingBodyBytes)
    writer.u64(predecessorID)
    writer.u64(rangeLastLSN)
    writer.u32(predecessorEnd)
    writer.u32(chain)
    writer.u32(durableEnd)
    writer.u32(rangeChain)
    precondition(writer.count == LogFormat.openingBodyBytes)
    return writer.bytes
  }

  /// The frame, which lies behind the header's page.
  package func encodedFrame(_ identity: SegmentIdentity) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.append(
      frame: .opening, lsn: firstLSN, body: encoded(), at: UInt32(LogFormat.headerPageBytes), identity: identity)
    return bytes
  }

  /// - Parameter lsn: that of the frame's header.
  /// - Returns: nil if the body has another length.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int, lsn: UInt64) -> OpeningBody? {
    guard count == LogFormat.openingBodyBytes else { return nil }
    return OpeningBody(
      firstLSN: lsn, predecessorID: bytes.u64(at: start), predecessorEnd: bytes.u32(at: start + 16),
      chain: bytes.u32(at: start + 20), durableEnd: bytes.u32(at: start + 24), rangeLastLSN: bytes.u64(at: start + 8),
      rangeChain: bytes.u32(at: start + 28))
  }

  /// Whether the fields agree with each other and with the segment's kind.
  func isConsistent(_ kind: SegmentKind) -> Bool {
    guard 1..<LogFormat.numberMax ~= firstLSN, predecessorID < LogFormat.numberMax,
      predecessorID != 0 || (firstLSN == 1 && predecessorEnd == 0 && chain == 0),
      predecessorID == 0 || Int(predecessorEnd) >= LogFormat.openingEnd, Int(durableEnd) >= LogFormat.openingEnd
    else { return false }
    return switch kind {
    case .live: rangeLastLSN == 0 && rangeChain == 0
    case .rewritten: firstLSN - 1..<LogFormat.numberMax ~= rangeLastLSN
    }
  }
}

/// Where some of a segment's events begin: the first, and then one every 4 KiB, within transactions too.
package struct IndexBody: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    /// The LSN of the event that begins at `offset`, above the segment's first.
    package var lsnDelta: UInt32
    package var offset: UInt32

    package init(lsnDelta: UInt32, offset: UInt32) {
      self.lsnDelta = lsnDelta
      self.offset = offset
    }
  }

  package var entries: [Entry]

  package init(entries: [Entry] = []) { self.entries = entries }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: entries.count * LogFormat.indexEntryBytes)
    for entry in entries {
      writer.u32(entry.lsnDelta)
      writer.u32(entry.offset)
    }
    return writer.bytes
  }

  /// nil if the bytes are no index: half an entry, or entries that do not rise.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> IndexBody? {
    guard count % LogFormat.indexEntryBytes == 0 else { return nil }
    var index = IndexBody()
    index.entries.reserveCapacity(count / LogFormat.indexEntryBytes)
    for at in stride(from: start, to: start + count, by: LogFormat.indexEntryBytes) {
      let entry = Entry(lsnDelta: bytes.u32(at: at), offset: bytes.u32(at: at + 4))
      if let last = index.entries.last, last.lsnDelta >= entry.lsnDelta || last.offset >= entry.offset { return nil }
      index.entries.append(entry)
    }
    return index
  }
}

/// The last frame of a finished segment; it stands right behind the index.
package struct SealBody: Hashable, Sendable {
  /// Over its events as they are in it, begun with the chain of its opening frame. In a segment that is not rewritten
  /// that is the chain at its last LSN.
  package var contentChain: UInt32
  /// Where the index frame begins.
  package var indexOffset: UInt32

  package init(contentChain: UInt32, indexOffset: UInt32) {
    self.contentChain = contentChain
    self.indexOffset = indexOffset
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.sealBodyBytes)
    writer.u32(contentChain)
    writer.u32(indexOffset)
    precondition(writer.count == LogFormat.sealBodyBytes)
    return writer.bytes
  }

  /// nil if the body has another length.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> SealBody? {
    guard count == LogFormat.sealBodyBytes else { return nil }
    return SealBody(contentChain: bytes.u32(at: start), indexOffset: bytes.u32(at: start + 4))
  }
}

/// The end of a finished segment: its index, and its seal.
enum SegmentTrailer {
  /// As it is written at `offset`.
  ///
  /// - Parameter isSynced: it is a group of its own: everything before it is on the medium.
  static func encoded(
    _ index: IndexBody, at offset: UInt32, lastLSN: UInt64, chain: UInt32, isSynced: Bool, identity: SegmentIdentity
  ) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.append(
      frame: .index, flags: isSynced ? LogFormat.flagSynced : 0, lsn: lastLSN + 1, body: index.encoded(), at: offset,
      identity: identity)
    bytes.append(
      frame: .seal, lsn: lastLSN + 1, body: SealBody(contentChain: chain, indexOffset: offset).encoded(),
      at: offset + UInt32(bytes.count), identity: identity)
    return bytes
  }

  /// The bytes of an index with `entries` places, and the seal.
  static func bytes(entries: Int) -> Int {
    LogFormat.frameBytes(bodyLength: entries * LogFormat.indexEntryBytes) + LogFormat.sealFrameBytes
  }

  /// The seal that ends at `end`, and the last LSN that it says; nil if the bytes before `end` are none.
  static func seal(
    _ file: any File, identity: SegmentIdentity, end: UInt32
  ) throws(LogError) -> (seal: SealBody, lastLSN: UInt64)? {
    let count = LogFormat.sealFrameBytes
    guard Int(end) >= LogFormat.openingEnd + LogFormat.frameHeaderBytes + count else { return nil }
    let offset = end - UInt32(count)
    let bytes: [UInt8]
    do {
      bytes = try file.read(at: UInt64(offset), count: count)
    } catch {
      throw .system("cannot read segment '\(file.path)'", error, file: file.path)
    }
    guard bytes.count == count,
      case .success(let header) = FrameHeader.decode(bytes, at: 0, offset: offset, identity: identity),
      header.type == FrameType.seal.rawValue, header.frameBytes == count, header.bodyMatches(bytes, at: 0),
      1..<LogFormat.numberMax ~= header.lsn,
      let seal = SealBody.decode(bytes, at: LogFormat.frameHeaderBytes, count: header.bodyLength),
      seal.indexOffset >= UInt32(LogFormat.openingEnd), seal.indexOffset < offset
    else { return nil }
    return (seal, header.lsn - 1)
  }
}

/// One number for a whole history: equal chains at equal LSNs mean equal events, wherever they lie.
package struct Chain: Sendable {
  package private(set) var value: UInt32

  package init(_ value: UInt32 = 0) { self.value = value }

  /// Takes in one event.
  package mutating func add(lsn: UInt64, type: UInt8, schema: UInt16, bodyLength: Int, bodyCRC: UInt32) {
    // The bytes of a step lie across three numbers, so that a step touches no memory.
    let length = UInt64(UInt32(bodyLength))
    value = CRC32C.checksum(
      words: UInt64(value) | lsn << 32,
      lsn >> 32 | UInt64(type) << 32 | UInt64(schema) << 40 | length << 56,
      length >> 8 | UInt64(bodyCRC) << 24, count: LogFormat.chainStepBytes)
  }

  package mutating func add(_ header: FrameHeader) {
    add(
      lsn: header.lsn, type: header.type, schema: header.schema, bodyLength: header.bodyLength,
      bodyCRC: header.bodyCRC)
  }
}
