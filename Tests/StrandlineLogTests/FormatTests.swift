// The bytes: every field where the format says, every single bit of a header and of a frame guarded, and nothing
// accepted that no version wrote. The offsets are written out here a second time on purpose.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

private func little(_ bytes: ArraySlice<UInt8>) -> UInt64 {
  bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
}

private let uuid = (1...16).map { UInt8($0) }

private func header() -> SegmentHeader {
  SegmentHeader(
    storeUUID: uuid, segmentID: 0x1122_3344_5566_7788, salt: 0xCAFE_F00D, role: .store, kind: .rewritten)
}

/// A CRC over the changed bytes, so that what is refused is refused for its meaning.
private func resealed(_ bytes: [UInt8]) -> [UInt8] {
  var result = bytes
  result.patch(u32: CRC32C.checksum(bytes, 0..<124), at: 124)
  return result
}

@Suite(.timeLimit(.minutes(30)))
struct `The header of a segment` {
  @Test func `has each field where the format says`() throws {
    let bytes = header().encoded()
    #expect(bytes.count == 128)
    #expect(bytes[0..<8] == [0x89, 0x53, 0x54, 0x52, 0x0D, 0x0A, 0x1A, 0x0A])
    #expect(little(bytes[8..<10]) == 1)
    #expect(little(bytes[10..<12]) == 0)
    #expect(little(bytes[12..<16]) == 128)
    #expect(little(bytes[16..<24]) == 0)
    #expect(little(bytes[24..<32]) == 0)
    #expect(Array(bytes[32..<48]) == uuid)
    #expect(little(bytes[48..<56]) == 0x1122_3344_5566_7788)
    #expect(little(bytes[56..<60]) == 0xCAFE_F00D)
    #expect(Array(bytes[60..<64]) == Array("stor".utf8))
    #expect(bytes[64] == 1)
    #expect(bytes[65..<124].allSatisfy { $0 == 0 })
    #expect(little(bytes[124..<128]) == UInt64(CRC32C.checksum(Array(bytes[0..<124]))))
    #expect(try SegmentHeader.decode(bytes, file: "f", named: 0x1122_3344_5566_7788) == header())
  }

  @Test func `is refused with any one bit flipped, and at any length`() throws {
    let bytes = header().encoded()
    for bit in 0..<bytes.count * 8 {
      var flipped = bytes
      flipped[bit / 8] ^= 1 << (bit % 8)
      let error = logError { _ = try SegmentHeader.decode(flipped, file: "f", named: header().segmentID) }
      #expect(error?.code == .damaged, "bit \(bit)")
    }
    for count in 0..<bytes.count {
      let error = logError {
        _ = try SegmentHeader.decode(Array(bytes[..<count]), file: "f", named: header().segmentID)
      }
      #expect(error?.code == .damaged, "\(count) bytes")
    }
  }

  @Test func `of a later version is told from a damaged one`() throws {
    let changes: [(at: Int, to: UInt8, code: LogError.Code)] = [
      (8, 2, .fromTheFuture), (8, 0, .fromTheFuture), (12, 136, .fromTheFuture), (16, 1, .fromTheFuture),
      (23, 0x80, .fromTheFuture), (10, 1, .fromTheFuture),
      (64, 3, .fromTheFuture), (65, 1, .fromTheFuture), (115, 1, .fromTheFuture), (60, 0x78, .fromTheFuture),
      (123, 0xFF, .damaged),
      (48, 1, .foreignSegment),
    ]
    for change in changes {
      var bytes = header().encoded()
      bytes[change.at] = change.to
      let error = logError {
        _ = try SegmentHeader.decode(resealed(bytes), file: "f", named: header().segmentID)
      }
      #expect(error?.code == change.code, "byte \(change.at)")
      #expect(error?.offset != nil)
    }
    var saltless = header().encoded()
    saltless.patch(u32: 0, at: 56)
    #expect(
      logError { _ = try SegmentHeader.decode(resealed(saltless), file: "f", named: header().segmentID) }?.code
        == .damaged)
    for (at, byte) in [(24, UInt8(4)), (31, 0x80)] {
      var bytes = header().encoded()
      bytes[at] = byte
      _ = try SegmentHeader.decode(resealed(bytes), file: "f", named: header().segmentID)
    }
  }

  @Test func `has a name that sorts, and no other name is taken for one`() {
    #expect(SegmentName.name(0x1F) == "000000000000001f.seg")
    #expect(SegmentName.segmentID(of: "000000000000001f.seg") == 0x1F)
    for name in ["1f.seg", "000000000000001F.seg", "000000000000001f.tmp", "+00000000000001f.seg", ".seg", ""] {
      #expect(SegmentName.segmentID(of: name) == nil, "\(name)")
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A frame` {
  /// A log of one event, in bytes.
  private func segment(_ body: [UInt8]) throws -> (bytes: [UInt8], identity: SegmentIdentity) {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body)
    try log.close()
    let bytes = try #require(disk.peek(disk.segments[0]))
    let header = try SegmentHeader.decode(bytes, file: "f", named: 1)
    return (bytes, header.identity)
  }

  @Test func `has each field where the format says, after an opening frame`() throws {
    let content = body(1, count: 13)
    let (bytes, identity) = try segment(content)
    var seed = ByteWriter()
    seed.raw(Array(bytes[32..<48]))
    seed.raw(Array(bytes[48..<56]))
    seed.raw(Array(bytes[56..<60]))
    #expect(identity.seed == CRC32C.checksum(seed.bytes))

    let opening = 4096
    let event = opening + 32 + 32
    let index = event + 32 + 16
    let seal = index + 32 + 8
    #expect(bytes.count == seal + 32 + 8)
    for (start, length, lsn, type, flags) in [
      (opening, 32, 1, 2, 0), (event, 13, 1, 1, 7), (index, 8, 2, 3, 4), (seal, 8, 2, 4, 0),
    ] {
      let padded = (length + 7) / 8 * 8
      #expect(little(bytes[start + 4..<start + 8]) == UInt64(length))
      #expect(little(bytes[start + 8..<start + 16]) == UInt64(lsn))
      #expect(bytes[start + 16] == UInt8(type))
      #expect(bytes[start + 17] == UInt8(flags))
      #expect(little(bytes[start + 18..<start + 20]) == 0)
      #expect(little(bytes[start + 20..<start + 24]) == 0)
      #expect(little(bytes[start + 24..<start + 28]) == UInt64(identity.salt))
      #expect(
        little(bytes[start + 28..<start + 32])
          == UInt64(CRC32C.checksum(Array(bytes[start + 32..<start + 32 + padded]))))
      var head = ByteWriter()
      head.u32(identity.seed)
      head.u32(UInt32(start))
      head.raw(Array(bytes[start + 4..<start + 32]))
      #expect(little(bytes[start..<start + 4]) == UInt64(CRC32C.checksum(head.bytes)))
    }
    #expect(Array(bytes[event + 32..<event + 45]) == content)
    #expect(Array(bytes[event + 45..<event + 48]) == [0, 0, 0])

    let openingBody = opening + 32
    #expect(bytes[openingBody..<openingBody + 24].allSatisfy { $0 == 0 })
    #expect(little(bytes[openingBody + 24..<openingBody + 28]) == UInt64(event))
    #expect(little(bytes[openingBody + 28..<openingBody + 32]) == 0)

    var chain = ByteWriter()
    chain.u32(0)
    chain.u64(1)
    chain.u8(1)
    chain.u16(0)
    chain.u32(13)
    chain.raw(Array(bytes[event + 28..<event + 32]))
    let place = index + 32
    #expect(little(bytes[place..<place + 4]) == 0)
    #expect(little(bytes[place + 4..<place + 8]) == UInt64(event))
    #expect(little(bytes[seal + 32..<seal + 36]) == UInt64(CRC32C.checksum(chain.bytes)))
    #expect(little(bytes[seal + 36..<seal + 40]) == UInt64(index))
  }

  @Test func `does not verify with any one bit flipped, nor anywhere else`() throws {
    let (bytes, identity) = try segment(body(1, count: 21))
    let start = 4096 + 64
    let frame = Array(bytes[start..<start + 32 + 24])
    func verifies(_ frame: [UInt8], at offset: Int, _ identity: SegmentIdentity) -> Bool {
      guard case .success(let header) = FrameHeader.decode(frame, at: 0, offset: UInt32(offset), identity: identity)
      else { return false }
      return header.frameBytes == frame.count && header.bodyMatches(frame, at: 0)
    }
    #expect(verifies(frame, at: start, identity))
    for bit in 0..<frame.count * 8 {
      var flipped = frame
      flipped[bit / 8] ^= 1 << (bit % 8)
      #expect(!verifies(flipped, at: start, identity), "bit \(bit)")
    }
    for offset in stride(from: 0, to: 1 << 20, by: 8) where offset != start {
      if verifies(frame, at: offset, identity) { Issue.record("it verifies at \(offset)") }
    }
    let other = SegmentIdentity(storeUUID: uuid, segmentID: 1, salt: identity.salt)
    #expect(!verifies(frame, at: start, other))
    let zeros = [UInt8](repeating: 0, count: 32)
    #expect(
      FrameHeader.decode(zeros, at: 0, offset: 4096, identity: identity)
        == .failure(FrameFaultError(fault: .unwritten)))
  }

  @Test func `is chained by what it says, wherever it lies`() {
    var one = Chain()
    var two = Chain()
    one.add(lsn: 5, type: 1, schema: 9, bodyLength: 3, bodyCRC: 77)
    two.add(lsn: 5, type: 1, schema: 9, bodyLength: 3, bodyCRC: 77)
    #expect(one.value == two.value)
    for (lsn, schema, length, crc) in [(6, 9, 3, 77), (5, 8, 3, 77), (5, 9, 4, 77), (5, 9, 3, 78)] {
      var other = Chain()
      other.add(lsn: UInt64(lsn), type: 1, schema: UInt16(schema), bodyLength: length, bodyCRC: UInt32(crc))
      #expect(other.value != one.value)
    }
  }

  @Test func `bodies of an index and a seal come back as they went, and others are none`() {
    let index = IndexBody(entries: [.init(lsnDelta: 0, offset: 4_256), .init(lsnDelta: 9, offset: 20_000)])
    #expect(IndexBody.decode(index.encoded(), at: 0, count: 16) == index)
    #expect(IndexBody.decode([], at: 0, count: 0) == IndexBody())
    #expect(IndexBody.decode(index.encoded(), at: 0, count: 12) == nil, "half an entry")
    for entries in [
      [IndexBody.Entry(lsnDelta: 3, offset: 1), .init(lsnDelta: 3, offset: 2)],
      [.init(lsnDelta: 3, offset: 2), .init(lsnDelta: 4, offset: 2)],
      [.init(lsnDelta: 3, offset: 1), .init(lsnDelta: 2, offset: 9)],
    ] {
      #expect(IndexBody.decode(IndexBody(entries: entries).encoded(), at: 0, count: 16) == nil, "\(entries)")
    }
    let seal = SealBody(contentChain: 9, indexOffset: 5_000)
    #expect(SealBody.decode(seal.encoded(), at: 0, count: 8) == seal)
    let longer = seal.encoded() + [0]
    #expect(SealBody.decode(longer, at: 0, count: 9) == nil)
  }

  @Test func `the body of an opening frame comes back as it went`() {
    let opening = OpeningBody(
      firstLSN: 8, predecessorID: 2, predecessorEnd: 5_000, chain: 4, durableEnd: 4_192, rangeLastLSN: 12,
      rangeChain: 6)
    #expect(OpeningBody.decode(opening.encoded(), at: 0, count: 32, lsn: 8) == opening)
    let longer = opening.encoded() + [0]
    #expect(OpeningBody.decode(longer, at: 0, count: 33, lsn: 8) == nil)
  }
}
