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

/// How a segment continues the one before it.
package struct OpeningBody: Hashable, Sendable {
  package var firstLSN: UInt64
  /// 0 in a store's first segment.
  package var predecessorID: UInt64
  package var predecessorLastLSN: UInt64
  /// Where the predecessor ends: bytes from here on are void.
  package var predecessorEnd: UInt32
  /// The chain at the predecessor's last LSN.
  package var chain: UInt32
  /// The end of this frame, or of the frames that were copied behind it; synced before the file had its name.
  package var durableEnd: UInt32
  /// How many writers have appended to this store, this one counted. For people.
  package var opens: UInt64

  package init(
    firstLSN: UInt64, predecessorID: UInt64, predecessorLastLSN: UInt64, predecessorEnd: UInt32, chain: UInt32,
    durableEnd: UInt32, opens: UInt64
  ) {
    self.firstLSN = firstLSN
    self.predecessorID = predecessorID
    self.predecessorLastLSN = predecessorLastLSN
    self.predecessorEnd = predecessorEnd
    self.chain = chain
    self.durableEnd = durableEnd
    self.opens = opens
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: LogFormat.openingBodyBytes)
    writer.u64(firstLSN)
    writer.u64(predecessorID)
    writer.u64(predecessorLastLSN)
    writer.u32(predecessorEnd)
    writer.u32(chain)
    writer.u32(durableEnd)
    writer.u32(0)
    writer.u64(opens)
    precondition(writer.count == LogFormat.openingBodyBytes)
    return writer.bytes
  }

  /// nil if the bytes are no opening's: another length, or something in the reserved word.
  package static func decode(_ bytes: [UInt8], at start: Int, count: Int) -> OpeningBody? {
    guard count == LogFormat.openingBodyBytes, bytes.u32(at: start + 36) == 0 else { return nil }
    return OpeningBody(
      firstLSN: bytes.u64(at: start), predecessorID: bytes.u64(at: start + 8),
      predecessorLastLSN: bytes.u64(at: start + 16), predecessorEnd: bytes.u32(at: start + 24),
      chain: bytes.u32(at: start + 28), durableEnd: bytes.u32(at: start + 32), opens: bytes.u64(at: start + 40))
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
