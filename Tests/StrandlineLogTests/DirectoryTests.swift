// MANIFEST and CONTROL: every field where the format says, every single bit guarded, absurd numbers under right
// checksums answered or refused; and what the two say of a directory, held against the segments in it. The offsets
// are written out here a second time on purpose.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

private func little(_ bytes: ArraySlice<UInt8>) -> UInt64 {
  bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
}

private let uuid = (1...16).map { UInt8($0) }
private let manifestPath = storePath + "/MANIFEST"
private let controlPath = storePath + "/CONTROL"

/// Numbers that overflow, wrap, or point behind every end.
private let strange: [UInt64] = [
  0, 1, 2, 3, 7, 255, 4_095, 4_096, 4_192, 4_193, 1 << 16, 1 << 31, 0xFFFF_FFFF, 1 << 32, (1 << 62) - 1, 1 << 62,
  1 << 63, .max - 1, .max,
]

extension [UInt8] {
  fileprivate func with(_ value: UInt64, at offset: Int, width: Int) -> [UInt8] {
    var result = self
    for byte in 0..<width { result[offset + byte] = UInt8(truncatingIfNeeded: value >> (8 * UInt64(byte))) }
    return result
  }

  /// A manifest with both of its checksums right.
  fileprivate var resealedManifest: [UInt8] {
    var result = self
    result.patch(u32: CRC32C.checksum(result, 0..<124), at: 124)
    result.patch(u32: CRC32C.checksum(result, 0..<count - 4), at: count - 4)
    return result
  }

  /// Two slots with right checksums.
  fileprivate var resealedControl: [UInt8] {
    var result = self
    for start in [0, 4096] {
      result.patch(u32: CRC32C.checksum(result, start..<start + 60), at: start + 60)
    }
    return result
  }
}

/// A store of two segments, closed twice, so that both slots of CONTROL have been written.
private func closedStore(seed: UInt64 = 7) throws -> (disk: SimulatedDisk, bodies: [[UInt8]]) {
  let disk = SimulatedDisk()
  var bodies: [[UInt8]] = []
  for round in 0..<2 {
    let log = try openLog(disk, seed: seed + UInt64(round))
    for _ in 0..<3 {
      bodies.append(body(bodies.count + Int(seed), count: 1_100))
      try log.write(bodies[bodies.count - 1])
    }
    try log.close()
  }
  return (disk.imageAfterCrash(.all), bodies)
}

/// A writer, a reader and `verify` refuse what is there with one of these codes and name the file; nothing changes.
private func expectRefusal(
  _ disk: SimulatedDisk, _ codes: Set<LogError.Code>, file: String?, _ comment: String,
  sourceLocation: SourceLocation = #_sourceLocation
) {
  let before = disk.everything
  let error = logError { _ = try openLog(disk) }
  #expect(
    error.map { codes.contains($0.code) } == true, "\(comment): \(String(describing: error))",
    sourceLocation: sourceLocation)
  if let file { #expect(error?.file == file, "\(comment)", sourceLocation: sourceLocation) }
  if error?.code != .fromTheFuture {
    #expect(error?.message.contains("backup") == true, "\(comment)", sourceLocation: sourceLocation)
  }
  let environment = SystemEnvironment.simulated(disk, seed: 1)
  let reading = logError { try LogReader.open(at: storePath, environment: environment).poll { _ in } }
  #expect(
    reading.map { codes.contains($0.code) } == true, "\(comment), a reader: \(String(describing: reading))",
    sourceLocation: sourceLocation)
  var verdict: LogError.Code?
  do {
    let report = try LogVerifier.verify(at: storePath, environment: environment)
    verdict = report.isDamaged ? .damaged : nil
  } catch { verdict = error.code }
  #expect(verdict != nil, "\(comment): verify finds nothing", sourceLocation: sourceLocation)
  #expect(disk.everything == before, "\(comment): something was changed", sourceLocation: sourceLocation)
}

/// What a log with a strange number is: served in order, or refused; and if it was served it takes an append.
private func answer(_ image: SimulatedDisk, _ bodies: [[UInt8]], _ comment: String) -> Set<LogError.Code> {
  var codes: Set<LogError.Code> = []
  let environment = SystemEnvironment.simulated(image, seed: 1)
  for error in [
    logError { try LogReader.open(at: storePath, environment: environment).poll { _ in } },
    logError { _ = try LogVerifier.verify(at: storePath, environment: environment) },
    logError {
      var seen: [[UInt8]] = []
      var log = try openLog(image) { seen.append($0.body) }
      #expect(seen == bodies, "\(comment): it was taken, and not all of it")
      for lsn in 1...UInt64(bodies.count) { _ = try log.read(lsn) }
      try log.write([1])
      try log.finishSegment()
      try log.close()
      log = try openLog(image)
      #expect(log.durableLSN == UInt64(bodies.count + 1), "\(comment)")
      try log.close()
    },
  ] {
    if let error { codes.insert(error.code) }
  }
  return codes
}

@Suite(.timeLimit(.minutes(30)))
struct `The list of segments` {
  private func manifest() -> Manifest {
    var manifest = Manifest(storeUUID: uuid, role: .server, nextSegmentID: 0x0A0B_0C0D)
    manifest.entries = [
      ManifestEntry(
        segmentID: 3, salt: 0xCAFE_F00D, firstLSN: 5,
        end: SegmentEnd(offset: 7_000, lastLSN: 0x0102_0304_0506, chain: 0x5566_7788)),
      ManifestEntry(segmentID: 9, salt: 0xBEEF, firstLSN: 0x0102_0304_0507),
    ]
    manifest.ownerBytes = [0xAA, 0xBB, 0xCC]
    manifest.readOnlyCompatibleBits = 1 << 40
    return manifest
  }

  @Test func `has each field where the format says, and comes back as it went`() throws {
    let bytes = manifest().encoded()
    #expect(bytes.count == 128 + 2 * 40 + 3 + 4)
    #expect(bytes[0..<8] == [0x89, 0x53, 0x54, 0x4D, 0x0D, 0x0A, 0x1A, 0x0A])
    #expect(little(bytes[8..<10]) == 1)
    #expect(little(bytes[10..<12]) == 0)
    #expect(little(bytes[12..<16]) == 128)
    #expect(little(bytes[16..<24]) == 0)
    #expect(little(bytes[24..<32]) == 1 << 40)
    #expect(Array(bytes[32..<48]) == uuid)
    #expect(Array(bytes[48..<52]) == Array("srvr".utf8))
    #expect(little(bytes[52..<56]) == 2)
    #expect(little(bytes[56..<64]) == 0x0A0B_0C0D)
    #expect(little(bytes[64..<68]) == 3)
    #expect(bytes[68..<124].allSatisfy { $0 == 0 })
    #expect(little(bytes[124..<128]) == UInt64(CRC32C.checksum(Array(bytes[0..<124]))))
    #expect(little(bytes[128..<136]) == 3)
    #expect(little(bytes[136..<144]) == 5)
    #expect(little(bytes[144..<152]) == 0x0102_0304_0506)
    #expect(little(bytes[152..<156]) == 7_000)
    #expect(little(bytes[156..<160]) == 0x5566_7788)
    #expect(little(bytes[160..<164]) == 0xCAFE_F00D)
    #expect(little(bytes[164..<168]) == 0)
    #expect(little(bytes[168..<176]) == 9 && little(bytes[176..<184]) == 0x0102_0304_0507)
    #expect(bytes[184..<200].allSatisfy { $0 == 0 } && little(bytes[200..<204]) == 0xBEEF)
    #expect(Array(bytes[208..<211]) == [0xAA, 0xBB, 0xCC])
    #expect(little(bytes[211..<215]) == UInt64(CRC32C.checksum(Array(bytes[..<211]))))
    #expect(try Manifest.decode(bytes, file: "f") == manifest())
  }

  @Test func `is damaged with any one bit flipped, and at any length`() throws {
    let bytes = manifest().encoded()
    for bit in 0..<bytes.count * 8 {
      var flipped = bytes
      flipped[bit / 8] ^= 1 << (bit % 8)
      #expect(logError { _ = try Manifest.decode(flipped, file: "f") }?.code == .damaged, "bit \(bit)")
    }
    for count in 0..<bytes.count {
      let error = logError { _ = try Manifest.decode(Array(bytes[..<count]), file: "f") }
      #expect(error?.code == .damaged && error?.file == "f", "\(count) bytes")
    }
    for count in [1, 8, 64] {
      let longer = bytes + [UInt8](repeating: 0, count: count)
      #expect(logError { _ = try Manifest.decode(longer, file: "f") }?.code == .damaged)
    }
  }

  @Test func `of a later version is told from a damaged one`() throws {
    for (at, byte) in [
      (8, UInt8(0)), (8, 2), (10, 1), (12, 129), (16, 1), (23, 0x80), (48, 0x78), (68, 1), (123, 1), (164, 1),
      (207, 1),
    ] {
      let bytes = manifest().encoded().with(UInt64(byte), at: at, width: 1).resealedManifest
      #expect(logError { _ = try Manifest.decode(bytes, file: "f") }?.code == .fromTheFuture, "byte \(at)")
    }
    for (at, byte) in [(24, UInt8(1)), (31, 0x80)] {
      let bytes = manifest().encoded().with(UInt64(byte), at: at, width: 1).resealedManifest
      _ = try Manifest.decode(bytes, file: "f")
    }
  }

  @Test func `that contradicts itself is damaged`() throws {
    let changes: [(inout Manifest) -> Void] = [
      { $0.entries = [] }, { $0.nextSegmentID = 0 }, { $0.nextSegmentID = 9 },
      { $0.nextSegmentID = 1 << 62 }, { $0.entries[0].segmentID = 0 }, { $0.entries[1].segmentID = 3 },
      { $0.entries[0].segmentID = 0x0A0B_0C0D }, { $0.entries[0].firstLSN = 1 << 62 },
      { $0.entries[0].end?.lastLSN = .max }, { $0.entries[0].end?.lastLSN = 3 }, { $0.entries[0].end?.offset = 4159 },
      { $0.entries[0].firstLSN = 0 }, { $0.entries[1].firstLSN = 0 },
      { $0.entries[1].end = SegmentEnd(offset: 5_000, lastLSN: 0, chain: 0) },
    ]
    for (index, change) in changes.enumerated() {
      var manifest = manifest()
      change(&manifest)
      let error = logError { _ = try Manifest.decode(manifest.encoded(), file: "f") }
      #expect(error?.code == .damaged, "change \(index): \(String(describing: error))")
    }
  }

  @Test func `that is missing, cut or changed in any byte is refused by its name, and nothing is changed`() throws {
    let (disk, _) = try closedStore()
    let bytes = try #require(disk.peek(manifestPath))
    let missing = disk.clone()
    missing.pokeRemove(manifestPath)
    expectRefusal(missing, [.damaged], file: manifestPath, "missing")
    for at in bytes.indices {
      let changed = disk.clone()
      changed.poke(manifestPath, bytes.with(UInt64(bytes[at] ^ 1 << UInt8(at % 8)), at: at, width: 1))
      expectRefusal(changed, [.damaged], file: manifestPath, "byte \(at)")
    }
    for count in stride(from: 0, to: bytes.count, by: 7) {
      let cut = disk.clone()
      cut.poke(manifestPath, Array(bytes[..<count]))
      expectRefusal(cut, [.damaged], file: manifestPath, "cut to \(count)")
    }
  }

  @Test func `with absurd numbers under right checksums is answered or refused`() throws {
    let (disk, bodies) = try closedStore()
    let bytes = try #require(disk.peek(manifestPath))
    var fields = [(8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (32, 8), (48, 4), (52, 4), (56, 8), (64, 4), (68, 8)]
    for entry in stride(from: 128, to: bytes.count - 4, by: 40) {
      for (at, width) in [(0, 8), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)] {
        fields.append((entry + at, width))
      }
    }
    var codes: Set<LogError.Code> = []
    for (at, width) in fields {
      for value in strange {
        let image = disk.clone()
        image.poke(manifestPath, bytes.with(value, at: at, width: width).resealedManifest)
        codes.formUnion(answer(image, bodies, "byte \(at) is \(value)"))
      }
    }
    #expect(codes == [.damaged, .fromTheFuture, .foreignSegment], "\(codes)")
  }

  @Test func `a feature that only writers must know stops them and no reader, there and in a segment`() throws {
    let (disk, bodies) = try closedStore()
    let segment = disk.segments[1]
    for path in [manifestPath, segment] {
      let image = disk.clone()
      var bytes = try #require(image.peek(path)).with(1, at: 24, width: 8)
      if path == segment {
        bytes.patch(u32: CRC32C.checksum(bytes, 0..<124), at: 124)
      } else {
        bytes = bytes.resealedManifest
      }
      image.poke(path, bytes)
      let before = image.everything
      let error = logError { _ = try openLog(image) }
      #expect(error?.code == .fromTheFuture && error?.file == path && error?.offset == 24)
      #expect(image.everything == before)
      var seen: [[UInt8]] = []
      try LogReader.open(at: storePath, environment: .simulated(image, seed: 1)).poll { seen.append($0.body) }
      #expect(seen == bodies)
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The bounds of a log` {
  private func control() -> Control {
    var control = Control(
      storeUUID: uuid,
      bound: LogBound(segmentID: 0x1122_3344_5566_7788, lsn: 0x0102_0304_0506, end: 0xCAFE_F00D))
    control.sequence = 0x1234_5678_9ABC
    return control
  }

  @Test func `have each field where the format says, and come back as they went`() throws {
    let bytes = control().encoded()
    #expect(bytes.count == 64)
    #expect(bytes[0..<8] == [0x89, 0x53, 0x54, 0x43, 0x0D, 0x0A, 0x1A, 0x0A])
    #expect(little(bytes[8..<10]) == 1)
    #expect(little(bytes[10..<16]) == 0)
    #expect(Array(bytes[16..<32]) == uuid)
    #expect(little(bytes[32..<40]) == 0x1234_5678_9ABC)
    #expect(little(bytes[40..<48]) == 0x1122_3344_5566_7788)
    #expect(little(bytes[48..<56]) == 0x0102_0304_0506)
    #expect(little(bytes[56..<60]) == 0xCAFE_F00D)
    #expect(little(bytes[60..<64]) == UInt64(CRC32C.checksum(Array(bytes[..<60]))))
    #expect(try Control.decode(bytes, at: 0, file: "f") == control())
    #expect(try Control.decode([7, 7, 7] + bytes, at: 3, file: "f") == control())
  }

  @Test func `do not verify with any one bit flipped, nor at any other length`() throws {
    var bytes = control().encoded()
    var verified: [Int] = []
    for bit in 0..<bytes.count * 8 {
      bytes[bit / 8] ^= 1 << (bit % 8)
      if try Control.decode(bytes, at: 0, file: "f") != nil { verified.append(bit) }
      bytes[bit / 8] ^= 1 << (bit % 8)
    }
    #expect(verified.isEmpty)
    for count in stride(from: 0, to: bytes.count, by: 31) {
      #expect(try Control.decode(Array(bytes[..<count]), at: 0, file: "f") == nil)
    }
  }

  @Test func `of a later version are refused as that`() throws {
    for (at, byte) in [(8, UInt8(0)), (8, 2), (10, 1), (12, 1), (15, 0x80)] {
      var bytes = control().encoded().with(UInt64(byte), at: at, width: 1)
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<60), at: 60)
      #expect(
        logError { _ = try Control.decode(bytes, at: 0, file: "f") }?.code == .fromTheFuture, "byte \(at)")
    }
  }

  @Test func `with one torn slot hold, and without both are damage`() throws {
    let (disk, bodies) = try closedStore()
    let bytes = try #require(disk.peek(controlPath))
    #expect(bytes.count == 8192)
    let slots = try [0, 4096].map { try #require(try Control.decode(bytes, at: $0, file: "f")) }
    #expect(Set(slots.map(\.bound.lsn)) == [3, 6] && abs(Int(slots[0].sequence) - Int(slots[1].sequence)) == 1)
    for start in [0, 4096] {
      for kept in [0, 40, 63] {
        let torn = disk.clone()
        torn.poke(
          controlPath,
          Array(bytes[..<(start + kept)]) + [UInt8](repeating: 0xEE, count: 512 - kept) + bytes[(start + 512)...])
        #expect(try recovered(torn) == bodies)
        let report = try LogVerifier.verify(at: storePath, environment: .simulated(torn, seed: 1))
        #expect(report.isSound && report.isControlTorn, "no damage, and not unsaid")
        // A writer that goes on from one slot never leaves less than it found, wherever it is interrupted.
        let log = try openLog(torn)
        try log.write([9])
        torn.keepsHistory = true
        try log.close()
        for state in torn.history + [torn.clone()] {
          for loss in state.crashLosses() { #expect(try recovered(state.imageAfterCrash(loss)) == bodies + [[9]]) }
        }
      }
    }
    let both = disk.clone()
    both.poke(controlPath, bytes.with(0, at: 0, width: 1).with(0, at: 4096, width: 1))
    expectRefusal(both, [.damaged], file: controlPath, "both slots")
    let missing = disk.clone()
    missing.pokeRemove(controlPath)
    expectRefusal(missing, [.damaged], file: controlPath, "missing")
    for count in [0, 1, 63] {
      let cut = disk.clone()
      cut.poke(controlPath, Array(bytes[..<count]))
      expectRefusal(cut, [.damaged], file: controlPath, "cut to \(count)")
    }
  }

  @Test func `of another store are refused`() throws {
    let (disk, _) = try closedStore()
    let other = try closedStore(seed: 60).disk
    disk.poke(controlPath, try #require(other.peek(controlPath)))
    expectRefusal(disk, [.foreignSegment], file: controlPath, "another store's")
  }

  @Test func `above the log are noticed: the end of the log was cut away or is of an older day`() throws {
    let (disk, _) = try closedStore()
    let bytes = try #require(disk.peek(controlPath))
    let path = disk.segments[1]
    let tail = try #require(disk.peek(path))
    #expect(disk.segments.count == 2)
    // Whole groups are gone, with every promise that spoke of them.
    for length in stride(from: firstGroup, to: tail.count, by: 40) {
      let cut = disk.clone()
      cut.poke(path, Array(tail[..<length]))
      expectRefusal(cut, [.damaged], file: path, "cut to \(length)")
    }
    // The bounds name another segment as the tail: then the last LSN tells.
    let far = disk.clone()
    far.poke(
      controlPath,
      bytes.with(99, at: 40, width: 8).with(99, at: 4096 + 40, width: 8).with(7, at: 48, width: 8)
        .with(7, at: 4096 + 48, width: 8).resealedControl)
    expectRefusal(far, [.missingSegment], file: nil, "LSN 7 was durable")
    #expect(logError { _ = try openLog(far) }?.lsns == 7...7)
  }

  @Test func `with absurd numbers under right checksums are answered or refused`() throws {
    let (disk, bodies) = try closedStore()
    let bytes = try #require(disk.peek(controlPath))
    var codes: Set<LogError.Code> = []
    for (at, width) in [
      (8, 2), (10, 2), (12, 4), (16, 8), (32, 8), (40, 8), (48, 8), (56, 4), (60, 8), (80, 8),
    ] {
      for value in strange {
        for start in [[0], [4096], [0, 4096]] {
          var content = bytes
          for start in start { content = content.with(value, at: start + at, width: width) }
          let image = disk.clone()
          image.poke(controlPath, content.resealedControl)
          codes.formUnion(answer(image, bodies, "byte \(at) of \(start) is \(value)"))
        }
      }
    }
    #expect(codes == [.damaged, .fromTheFuture, .foreignSegment], "\(codes)")
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A directory` {
  /// What a copy of a closed store goes on to, apart from the original: bodies that begin with `number`.
  private func continued(_ disk: SimulatedDisk, _ number: Int, writers: Int) throws -> SimulatedDisk {
    let copy = disk.clone()
    for writer in 0..<writers {
      let log = try openLog(copy, seed: UInt64(number + writer))
      try log.write(body(number + writer, count: 500))
      try log.close()
    }
    return copy.imageAfterCrash(.all)
  }

  @Test func `L7: the removal of the last segment is noticed, by the list and by the bounds`() throws {
    let (old, bodies) = try closedStore()
    let disk = try continued(old, 300, writers: 1)
    let last = try #require(disk.segments.last)
    let removed = disk.clone()
    removed.pokeRemove(last)
    expectRefusal(removed, [.missingSegment], file: last, "the last segment")
    #expect(logError { _ = try openLog(removed) }?.lsns?.lowerBound == UInt64(bodies.count + 1))
    // An older list does not hide it.
    removed.poke(manifestPath, try #require(old.peek(manifestPath)))
    expectRefusal(removed, [.missingSegment], file: nil, "with an older list")
    #expect(logError { _ = try openLog(removed) }?.lsns == 7...7)
    // Nor do older bounds.
    let bounds = disk.clone()
    bounds.pokeRemove(last)
    bounds.poke(controlPath, try #require(old.peek(controlPath)))
    expectRefusal(bounds, [.missingSegment], file: last, "with older bounds")
    // Without any segment it is no new store.
    let empty = disk.clone()
    for path in empty.segments { empty.pokeRemove(path) }
    let before = empty.everything
    #expect(logError { _ = try openLog(empty) }?.code == .missingSegment)
    #expect(empty.everything == before)
  }

  @Test func `L7: an unlisted segment that continues the log is adopted, with all that follows it`() throws {
    let (old, bodies) = try closedStore()
    let disk = try continued(old, 300, writers: 3)
    let added = (0..<3).map { body(300 + $0, count: 500) }
    // The list is of the day before.
    disk.poke(manifestPath, try #require(old.peek(manifestPath)))
    var seen: [[UInt8]] = []
    let environment = SystemEnvironment.simulated(disk, seed: 1)
    try LogReader.open(at: storePath, environment: environment).poll { seen.append($0.body) }
    #expect(seen == bodies + added)
    #expect(try LogVerifier.verify(at: storePath, environment: environment).isSound)
    let before = disk.everything
    var log = try openLog(disk)
    #expect(log.recovery.adopted == [3, 4, 5] && log.recovery.quarantined.isEmpty)
    #expect(log.durableLSN == UInt64(seen.count))
    #expect(disk.everything == before, "an open without an append changes no byte")
    try log.write([1])
    try log.close()
    log = try openLog(disk, seed: 9)
    #expect(log.recovery.adopted.isEmpty && log.durableLSN == UInt64(seen.count + 1))
    let list = try Manifest.decode(try #require(disk.peek(manifestPath)), file: "f")
    #expect(list.entries.map(\.segmentID) == [1, 2, 3, 4, 5, 6])
    try log.close()
  }

  @Test func `L7: a segment of this store without a place is moved aside with its bytes, and reported`() throws {
    let (old, bodies) = try closedStore()
    let disk = try continued(old, 300, writers: 1)
    let other = try continued(old, 500, writers: 3)
    // Segment 5 continues the other's segment 4.
    let stray = storePath + "/" + SegmentName.name(5)
    let content = try #require(other.peek(stray))
    disk.poke(stray, content)
    let environment = SystemEnvironment.simulated(disk, seed: 1)
    let before = disk.everything
    var seen: [[UInt8]] = []
    try LogReader.open(at: storePath, environment: environment).poll { seen.append($0.body) }
    #expect(seen == bodies + [body(300, count: 500)])
    let report = try LogVerifier.verify(at: storePath, environment: environment)
    #expect(report.findings.map(\.kind) == [.stray] && report.findings.first?.file == stray)
    #expect(!report.isDamaged && disk.everything == before)

    let aside = storePath + "/quarantine/" + SegmentName.name(5)
    // A file of that name that is there already stays what it is.
    disk.poke(aside, [42])
    let log = try openLog(disk)
    #expect(log.recovery.quarantined == [5] && log.recovery.adopted.isEmpty)
    #expect(disk.peek(stray) == nil && disk.peek(aside) == [42] && disk.peek(aside + ".1") == content)
    #expect(disk.everything.filter { !$0.key.contains("5.seg") } == before.filter { !$0.key.contains("5.seg") })
    try log.write([1])
    try log.close()
    #expect(disk.peek(stray) == nil, "an ID that was given once is not given again")
    #expect(try recovered(disk) == seen + [[1]])
    #expect(try LogVerifier.verify(at: storePath, environment: environment).isSound)
    // One that names the log's own last segment as the one before it, and is of another history, is no stray: which
    // of the two is right is not known.
    let fork = try continued(old, 300, writers: 1)
    let path = storePath + "/" + SegmentName.name(4)
    fork.poke(path, try #require(other.peek(path)))
    expectRefusal(fork, [.damaged, .foreignSegment], file: nil, "a fork")
  }

  @Test func `L7: a crash while a segment is moved aside loses neither it nor the log`() throws {
    let (old, bodies) = try closedStore()
    let other = try continued(old, 500, writers: 2)
    let stray = storePath + "/" + SegmentName.name(4)
    let content = try #require(other.peek(stray))
    old.poke(stray, content)
    old.keepsHistory = true
    _ = try openLog(old, seed: 3)
    var images = 0
    for state in old.history + [old.clone()] {
      for loss in state.crashLosses() {
        let image = state.imageAfterCrash(loss)
        #expect(try recovered(image) == bodies)
        #expect(image.paths.contains { $0.contains("4.seg") && image.peek($0) == content }, "its bytes are gone")
        images += 1
      }
    }
    #expect(images > 5)
  }

  @Test func `L7: a segment of another store is refused and untouched, listed or not`() throws {
    let (disk, _) = try closedStore()
    let other = try continued(try closedStore(seed: 60).disk, 700, writers: 2)
    for id in [2, 3, 4] as [UInt64] {
      let image = disk.clone()
      let path = storePath + "/" + SegmentName.name(id)
      image.poke(path, try #require(other.peek(path)))
      expectRefusal(image, [.foreignSegment], file: path, "segment \(id)")
    }
  }

  @Test func `L7: a segment is listed before anything in it is acknowledged`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...14 {
      try log.write(body(number, count: 1_300))
      let image = disk.imageAfterCrash(.none)
      let list = try Manifest.decode(try #require(image.peek(manifestPath)), file: "f")
      #expect(Set(list.entries.map { storePath + "/" + SegmentName.name($0.segmentID) }) == Set(image.segments))
      #expect(list.nextSegmentID > UInt64(image.segments.count))
    }
    #expect(disk.segments.count >= 4)
    try log.close()
  }

  @Test func `is read no further than its header says, however large the file is`() throws {
    let (disk, _) = try closedStore()
    let bytes = try #require(disk.peek(manifestPath))
    disk.poke(manifestPath, bytes + [UInt8](repeating: 0, count: 8 << 20))
    let meter = LargestRead(disk)
    let error = logError { try LogReader.open(at: storePath, environment: .simulated(meter, seed: 1)).poll { _ in } }
    #expect(error?.code == .damaged && error?.file == manifestPath)
    #expect(meter.bytes <= 256 << 10)
  }

  @Test func `of bounds that may not be written is told before anything is appended`() throws {
    let (disk, bodies) = try closedStore()
    let before = disk.everything
    let faults = FaultInjector(disk)
    // It is opened to be read before, and again to be written.
    faults.plan(
      DiskFault([.open], pathSuffix: "CONTROL", ordinal: 2, error: SystemError(call: "", subject: "", errno: 13)))
    let error = logError { try openLog(faults).close() }
    #expect(error?.code == .io && error?.file == controlPath && error?.underlying?.errno == 13)
    #expect(disk.everything == before)
    #expect(try recovered(disk) == bodies)
  }

  @Test func `L16: an open of a closed store reads as much, however much its segments hold`() throws {
    var reads: [Int] = []
    for size in [10, 40_000] {
      let faults = FaultInjector(SimulatedDisk())
      var options = tiny
      options.segmentBytesMax = size < 100 ? 4_250 : 60_000
      let log = try openLog(faults, options: options)
      for number in 0..<12 { try log.write(body(number, count: size)) }
      try log.close()
      let segments = (faults.base as? SimulatedDisk)?.segments.count ?? 0
      #expect(segments == 6)
      faults.resetCounts()
      let again = try Log.open(
        at: storePath, role: .store, options: options, environment: .simulated(faults, seed: 8), from: nil
      ) { _ in Issue.record("nothing is replayed") }
      #expect(again.durableLSN == 12 && again.recovery.bytesRead == 0)
      reads.append(faults.count(.read))
      // Bounds, list and the last seal before the lock and under it, and once the last segment's first page, and the bounds by the
      // descriptor that is held.
      #expect(faults.count(.read) == 2 * 3 + 2)
      try again.close()
    }
    #expect(Set(reads).count == 1)
  }
}

/// Remembers the largest answer to a read.
private final class LargestRead: ForwardingFileSystem {
  let base: any FileSystem
  private let largest = Atomic(0)
  var bytes: Int { largest.load(ordering: .relaxed) }

  init(_ base: any FileSystem) { self.base = base }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    MeasuredFile(self, try folder.open(name, mode))
  }

  private final class MeasuredFile: ForwardingFile {
    let disk: LargestRead
    let base: any File
    init(_ disk: LargestRead, _ base: any File) {
      self.disk = disk
      self.base = base
    }
    func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
      let bytes = try base.read(at: offset, count: count)
      disk.largest.max(bytes.count, ordering: .relaxed)
      return bytes
    }
  }
}
