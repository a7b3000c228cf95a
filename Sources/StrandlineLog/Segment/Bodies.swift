// The bodies that the log itself writes: a marker's promise and a segment's opening; and the chain in both.
//
// A marker says how far the last sync that returned success reached. That sentence is what tells a torn tail
// from a damaged middle: a frame that does not verify below a promise was acknowledged, above every promise it
// was not. An opening frame is the first frame of a segment and binds it to its predecessor: where that one
// ends (which seals it there), with which event, by which chain. Layout: Formats/log.md, "Marker", "Opening".

package import StrandlineSystem

/// A promise: everything up to `durableLSN` was synced before this was written.
package struct MarkerBody: Hashable, Sendable {
  package var durableLSN: UInt64
  /// Where the last synced unit ends in this segment; idle markers behind it are not promised.
  package var durableEnd: UInt32
  package var framesSincePrevious: UInt32
  package var chain: UInt32
  /// The strength of the sync behind the promise.
  package var strength: SyncStrength
  /// The highest LSN that a sync of strength `.durable` covered.
  package var fullFlushLSN: UInt64

  package init(
    durableLSN: UInt64, durableEnd: UInt32, framesSincePrevious: UInt32, chain: UInt32, strength: SyncStrength,
    fullFlushLSN: UInt64
  ) {
    self.durableLSN = durableLSN
    self.durableEnd = durableEnd
    self.framesSincePrevious = framesSincePrevious
    self.chain = chain
    self.strength = strength
    self.fullFlushLSN = fullFlushLSN
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.markerBodyBytes)
    writer.u64(durableLSN)
    writer.u32(durableEnd)
    writer.u32(framesSincePrevious)
    writer.u32(chain)
    writer.u32(strength.rawValue)
    writer.u64(fullFlushLSN)
    precondition(writer.count == LogFormat.markerBodyBytes)
    return writer.bytes
  }

  /// nil if the bytes are no marker's: another length, or a strength that nobody wrote.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> MarkerBody? {
    guard count == LogFormat.markerBodyBytes, let strength = SyncStrength(rawValue: bytes.u32(at: start + 20)) else {
      return nil
    }
    return MarkerBody(
      durableLSN: bytes.u64(at: start), durableEnd: bytes.u32(at: start + 8),
      framesSincePrevious: bytes.u32(at: start + 12), chain: bytes.u32(at: start + 16), strength: strength,
      fullFlushLSN: bytes.u64(at: start + 24))
  }
}

/// How a segment came to have its events.
package enum SegmentKind: UInt32, Hashable, Sendable {
  /// A writer appended them: LSNs without gaps.
  case live = 0
  /// They were copied out of older segments, of which some may have been left out.
  case rewritten = 1
}

/// How a segment continues the one before it.
package struct OpeningBody: Hashable, Sendable {
  package var firstLSN: UInt64
  /// 0 in a store's first segment. A rewritten segment has the predecessor of the first that it replaces.
  package var predecessorID: UInt64
  package var predecessorLastLSN: UInt64
  /// Where the predecessor ends: bytes from here on are void.
  package var predecessorEnd: UInt32
  /// The chain at the predecessor's last LSN.
  package var chain: UInt32
  /// The end of this frame, or of what was written behind it; synced before the file had its name. 0 in a segment
  /// that was made ahead: its opening frame is synced with its first group.
  package var durableEnd: UInt32
  package var kind: SegmentKind
  /// How many writers have appended to this store, this one counted. For people.
  package var opens: UInt64
  /// In a rewritten segment the last LSN of its range, whether its event is still there or not; else 0.
  package var rangeLastLSN: UInt64
  /// In a rewritten segment the chain at that LSN, as it was before anything was left out; else 0.
  package var rangeChain: UInt32

  package init(
    firstLSN: UInt64, predecessorID: UInt64, predecessorLastLSN: UInt64, predecessorEnd: UInt32, chain: UInt32,
    durableEnd: UInt32, opens: UInt64, kind: SegmentKind = .live, rangeLastLSN: UInt64 = 0, rangeChain: UInt32 = 0
  ) {
    self.firstLSN = firstLSN
    self.predecessorID = predecessorID
    self.predecessorLastLSN = predecessorLastLSN
    self.predecessorEnd = predecessorEnd
    self.chain = chain
    self.durableEnd = durableEnd
    self.kind = kind
    self.opens = opens
    self.rangeLastLSN = rangeLastLSN
    self.rangeChain = rangeChain
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.openingBodyBytes)
    writer.u64(firstLSN)
    writer.u64(predecessorID)
    writer.u64(predecessorLastLSN)
    writer.u32(predecessorEnd)
    writer.u32(chain)
    writer.u32(durableEnd)
    writer.u32(kind.rawValue)
    writer.u64(opens)
    writer.u64(rangeLastLSN)
    writer.u32(rangeChain)
    writer.u32(0)
    precondition(writer.count == LogFormat.openingBodyBytes)
    return writer.bytes
  }

  /// nil if the bytes are no opening's: another length, a kind that nobody wrote, or something in the reserved word.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> OpeningBody? {
    guard count == LogFormat.openingBodyBytes, bytes.u32(at: start + 60) == 0,
      let kind = SegmentKind(rawValue: bytes.u32(at: start + 36))
    else { return nil }
    return OpeningBody(
      firstLSN: bytes.u64(at: start), predecessorID: bytes.u64(at: start + 8),
      predecessorLastLSN: bytes.u64(at: start + 16), predecessorEnd: bytes.u32(at: start + 24),
      chain: bytes.u32(at: start + 28), durableEnd: bytes.u32(at: start + 32), opens: bytes.u64(at: start + 40),
      kind: kind, rangeLastLSN: bytes.u64(at: start + 48), rangeChain: bytes.u32(at: start + 56))
  }
}

/// Where some of a segment's transactions begin: one at least every 16 KiB.
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

/// The last frame of a segment that was brought to its end: what must be in it.
package struct SealBody: Hashable, Sendable {
  package var firstLSN: UInt64
  package var lastLSN: UInt64
  /// How many events it holds.
  package var events: UInt64
  /// Over its events as they are in it, begun with the chain of its opening frame. In a live segment that is the
  /// chain at its last LSN.
  package var contentChain: UInt32
  /// Where the index frame begins.
  package var indexOffset: UInt32
  /// Where this frame ends.
  package var end: UInt32

  package init(
    firstLSN: UInt64, lastLSN: UInt64, events: UInt64, contentChain: UInt32, indexOffset: UInt32, end: UInt32
  ) {
    self.firstLSN = firstLSN
    self.lastLSN = lastLSN
    self.events = events
    self.contentChain = contentChain
    self.indexOffset = indexOffset
    self.end = end
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.sealBodyBytes)
    writer.u64(firstLSN)
    writer.u64(lastLSN)
    writer.u64(events)
    writer.u32(contentChain)
    writer.u32(indexOffset)
    writer.u32(end)
    writer.u32(0)
    precondition(writer.count == LogFormat.sealBodyBytes)
    return writer.bytes
  }

  /// nil if the bytes are no seal's.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> SealBody? {
    guard count == LogFormat.sealBodyBytes, bytes.u32(at: start + 36) == 0 else { return nil }
    return SealBody(
      firstLSN: bytes.u64(at: start), lastLSN: bytes.u64(at: start + 8), events: bytes.u64(at: start + 16),
      contentChain: bytes.u32(at: start + 24), indexOffset: bytes.u32(at: start + 28), end: bytes.u32(at: start + 32))
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
