// Damage at rest. Below a promise every damaged byte is noticed, named with file, offset and LSNs, and nothing on
// disk is changed; above every promise it is a torn tail and heals by itself.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Damage at rest` {
  private let path = storePath + "/" + SegmentName.name(1)

  /// A store of one segment: six events, promised by a clean close up to `promisedEnd`.
  private func store(count: Int = 6, size: Int = 300, closing: Bool = true) throws -> (SimulatedDisk, [[UInt8]]) {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    var bodies: [[UInt8]] = []
    for number in 0..<count {
      bodies.append(body(number, count: size))
      try log.write(bodies[number])
    }
    if closing { try log.close() }
    return (disk.imageAfterCrash(.all), bodies)
  }

  /// Opens what is there and expects a refusal that says where, and an untouched disk.
  private func expectRefusal(
    _ disk: SimulatedDisk, _ comment: @autoclosure () -> String, codes: Set<LogError.Code> = [.damaged],
    file: String? = nil
  ) {
    let before = disk.everything
    let error = logError { _ = try openLog(disk) }
    #expect(error.map { codes.contains($0.code) } == true, "\(comment()): \(String(describing: error))")
    #expect(error?.file == file ?? path && error?.offset != nil, "\(comment())")
    #expect(error?.message.contains("backup") == true || error?.code == .fromTheFuture, "\(comment())")
    #expect(disk.everything == before, "\(comment()): the disk was changed")
    let report = try? LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report?.isDamaged == true, "\(comment()): verify")
    #expect(disk.everything == before, "\(comment()): verify changed the disk")
    let reading = logError {
      try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).poll { _ in }
    }
    #expect(reading.map { codes.contains($0.code) } == true, "\(comment()): a reader")
  }

  @Test func `of any sector below the promise is refused`() throws {
    let (disk, bodies) = try store()
    let bytes = try #require(disk.peek(path))
    #expect(bodies.count == 6)
    for sector in 0...(bytes.count - 1) / 512 where sector == 0 || sector >= 8 {
      for filling in [UInt8(0), 0xA5] {
        let damaged = disk.clone()
        var content = bytes
        for index in sector * 512..<min((sector + 1) * 512, bytes.count) { content[index] = filling }
        damaged.poke(path, content)
        expectRefusal(damaged, "sector \(sector) filled with \(filling)")
      }
    }
  }

  @Test func `22: of any bit below the promise is refused, with the LSN it is in`() throws {
    let (disk, _) = try store(count: 3, size: 40)
    let bytes = try #require(disk.peek(path))
    for bit in (0..<128 * 8).map({ $0 }) + Array(4096 * 8..<bytes.count * 8) where bit % 3 == 0 || bit < 4096 * 8 {
      let damaged = disk.clone()
      var content = bytes
      content[bit / 8] ^= 1 << (bit % 8)
      damaged.poke(path, content)
      let before = damaged.everything
      let error = logError { _ = try openLog(damaged) }
      guard error?.code == .damaged, let offset = error?.offset else {
        Issue.record("bit \(bit): \(String(describing: error))")
        continue
      }
      #expect(offset <= UInt64(bit / 8))
      // Behind the opening frame, the first LSN that is lost is named; behind the last event, none is.
      if bit / 8 >= firstGroup {
        let event = (bit / 8 - firstGroup) / 72 + 1
        #expect(error?.lsns == (event <= 3 ? UInt64(event)...3 : nil), "bit \(bit)")
      }
      #expect(damaged.everything == before)
    }
  }

  @Test func `3: above the promise is a torn tail and heals`() throws {
    // Without a close the last group is promised by nothing.
    let (disk, bodies) = try store(closing: false)
    let bytes = try #require(disk.peek(path))
    let last = firstGroup + 5 * 336
    for at in stride(from: last, to: last + 336, by: 5) {
      let damaged = disk.clone()
      var content = bytes
      content[at] ^= 0x10
      damaged.poke(path, content)
      var seen: [[UInt8]] = []
      let log = try openLog(damaged) { seen.append($0.body) }
      #expect(seen == Array(bodies.dropLast()), "byte \(at)")
      #expect(log.recovery.torn && log.recovery.bytesSetAside > 0)
      // What was torn never comes back, not even under a tail of the same length.
      try log.write(body(99, count: 300))
      try log.close()
      #expect(try recovered(damaged) == Array(bodies.dropLast()) + [body(99, count: 300)])
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(damaged, seed: 1))
      #expect(report.isSound, "\(report)")
    }
  }

  @Test func `4: by cutting the file is refused below the promise and heals above`() throws {
    let (disk, bodies) = try store(closing: false)
    let bytes = try #require(disk.peek(path))
    let group = 336
    let lastGroup = firstGroup + 5 * group
    let lengths = Array(stride(from: 0, to: 4096, by: 97)) + Array(stride(from: 4096, to: lastGroup + group, by: 13))
    for length in lengths + [
      127, 128, 4095, 4096, firstGroup - 1, firstGroup, lastGroup, lastGroup + 31, lastGroup + 32,
    ] {
      let damaged = disk.clone()
      damaged.poke(path, Array(bytes[..<length]))
      if length < firstGroup {
        expectRefusal(damaged, "cut to \(length)")
      } else {
        // The writer was killed: nothing outside the segment says how far it went, and the promises in it are cut
        // too. What is left is a prefix in whole transactions.
        let left = try recovered(damaged)
        #expect(left == Array(bodies.prefix(left.count)), "cut to \(length)")
        #expect(left.count == (length - firstGroup) / group, "cut to \(length)")
      }
    }
  }

  @Test func `of a sealed segment is refused wherever it is, also a cut`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<9 { try log.write(body(number, count: 900)) }
    try log.close()
    let files = disk.segments
    #expect(files.count == 3)
    for file in files.dropLast() {
      let bytes = try #require(disk.peek(file))
      for at in Array(stride(from: 4096, to: bytes.count, by: 61)) + [bytes.count - 1] {
        let damaged = disk.clone()
        var content = bytes
        content[at] ^= 4
        damaged.poke(file, content)
        expectRefusal(damaged, "\(file) byte \(at)", file: file)
        damaged.poke(file, Array(bytes[..<at]))
        expectRefusal(damaged, "\(file) cut to \(at)", file: file)
      }
      // Void bytes behind an end belong to no event.
      let longer = disk.clone()
      longer.poke(file, bytes + (0..<3_000).map { UInt8(truncatingIfNeeded: $0 &* 7) } + bytes[4096...])
      #expect(try recovered(longer).count == 9)
      #expect(try LogVerifier.verify(at: storePath, environment: .simulated(longer, seed: 1)).isSound)
    }
  }

  @Test func `verify goes on behind it, and says how far it reaches`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<6 { try log.write(body(number, count: 900)) }
    try log.close()
    let file = disk.segments[0]
    var bytes = try #require(disk.peek(file))
    // The body of LSN 2, and the header of LSN 4's frame in the next segment.
    let second = firstGroup + 936
    bytes[second + 100] ^= 1
    disk.poke(file, bytes)
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report.findings.count == 1)
    #expect(report.findings.first?.lsns == 2...2)
    #expect(report.findings.first?.offset == UInt64(second))
    #expect(report.findings.first?.end == UInt64(second + 936))
    #expect(report.lastLSN == 6 && report.events == 5)
    #expect(report.segments == 2)
  }

  @Test func `of padding that no checksum covers is found by verify`() throws {
    let (disk, bodies) = try store()
    var bytes = try #require(disk.peek(path))
    bytes[2_000] = 1
    disk.poke(path, bytes)
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report.findings.map(\.offset) == [2_000])
    #expect(try recovered(disk) == bodies)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Files that do not belong together` {
  /// A store of three segments.
  private func store(seed: UInt64 = 7, role: LogRole = .store) throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    let log = try openLog(disk, seed: seed, role: role)
    for number in 0..<9 { try log.write(body(number &+ Int(seed), count: 900)) }
    try log.close()
    #expect(disk.segments.count == 3)
    return disk.imageAfterCrash(.all)
  }

  private func expect(_ code: LogError.Code, _ disk: SimulatedDisk, role: LogRole = .store) {
    let before = disk.everything
    let error = logError { _ = try openLog(disk, role: role) }
    #expect(error?.code == code, "\(String(describing: error))")
    #expect(error?.file != nil)
    #expect(disk.everything == before)
    let reading = logError {
      try LogReader.open(at: storePath, role: role, environment: .simulated(disk, seed: 1)).poll { _ in }
    }
    #expect(reading?.code == code, "\(String(describing: reading))")
  }

  @Test func `a segment that is missing is named with its LSNs`() throws {
    for index in 0..<2 {
      let disk = try store()
      disk.pokeRemove(disk.segments[index])
      expect(.missingSegment, disk)
      let error = logError { _ = try openLog(disk) }
      #expect(error?.lsns?.upperBound == UInt64(index * 3 + 3) || error?.lsns?.upperBound == UInt64(index * 4 + 4))
    }
  }

  @Test func `a segment of another store, or under another name, is foreign`() throws {
    let disk = try store()
    let other = try store(seed: 8)
    let files = disk.segments
    let foreign = disk.clone()
    foreign.poke(files[1], try #require(other.peek(files[1])))
    expect(.foreignSegment, foreign)
    #expect(logError { _ = try openLog(foreign) }?.offset == 32)
    let copied = disk.clone()
    copied.poke(files[2], try #require(disk.peek(files[1])))
    expect(.foreignSegment, copied)
    let twice = disk.clone()
    twice.poke(storePath + "/" + SegmentName.name(9), try #require(disk.peek(files[2])))
    expect(.foreignSegment, twice)
    let strange = disk.clone()
    strange.poke(storePath + "/backup.seg", [1, 2, 3])
    expect(.foreignSegment, strange)
    let last = disk.clone()
    last.poke(storePath + "/ffffffffffffffff.seg", try #require(disk.peek(files[2])))
    expect(.foreignSegment, last)
  }

  @Test func `198: a segment of another history of the same store is foreign`() throws {
    let disk = try store()
    // Two continuations of one copy: the files have the same names and link to each other, but not the chain.
    func continued(_ number: Int) throws -> SimulatedDisk {
      let copy = disk.clone()
      let log = try openLog(copy, seed: UInt64(number))
      for index in 0..<6 { try log.write(body(number * 100 + index, count: 900)) }
      try log.close()
      return copy
    }
    let one = try continued(1)
    let two = try continued(2)
    let file = storePath + "/" + SegmentName.name(4)
    let mixed = one.clone()
    mixed.poke(file, try #require(two.peek(file)))
    #expect(one.segments.count >= 5)
    expect(.foreignSegment, mixed)
  }

  @Test func `an empty or cut segment with a name is damage, never a new one`() throws {
    for index in 0..<3 {
      let disk = try store()
      disk.poke(disk.segments[index], [])
      expect(.damaged, disk)
    }
    let disk = try store()
    disk.poke(storePath + "/" + SegmentName.name(4), [])
    expect(.damaged, disk)
  }

  @Test func `a log of the other role is refused, and a reader that asks for none takes it`() throws {
    expect(.wrongRole, try store(), role: .server)
    let disk = try store(role: .server)
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(reader.role == .server)
  }

  @Test func `23, 162: a log from the future is refused before the lock is touched`() throws {
    for (at, byte) in [(8, UInt8(2)), (16, 1), (24, 1)] {
      let disk = try store()
      let file = try #require(disk.segments.last)
      var bytes = try #require(disk.peek(file))
      bytes[at] = byte
      bytes.patch(u32: CRC32C.checksum(bytes, 0..<124), at: 124)
      disk.poke(file, bytes)
      disk.pokeRemove(storePath + "/LOCK")
      let calls = disk.callCount
      #expect(logError { _ = try openLog(disk) }?.code == .fromTheFuture)
      #expect(disk.callCount == calls)
      // Features that a reader need not know stop only writers.
      let reading = logError {
        try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).poll { _ in }
      }
      #expect(reading?.code == (at == 24 ? nil : .fromTheFuture))
    }
  }

  @Test func `a frame from the future is an error and never torn, unless it may be skipped`() throws {
    for (type, flags, code) in [
      (UInt8(5), UInt8(0), LogError.Code.fromTheFuture), (1, 8, .fromTheFuture), (0x80, 0, nil), (0xFF, 0, nil),
      (3, 0, nil), (4, 0, .damaged),
    ] as [(UInt8, UInt8, LogError.Code?)] {
      let disk = SimulatedDisk()
      do {
        // Not closed: behind a seal there would be nothing to read on for.
        let log = try openLog(disk)
        try log.write(body(1))
        try log.raiseControl()
      }
      let file = disk.segments[0]
      let start = firstGroup + 56
      var bytes = Array(try #require(disk.peek(file))[..<start])
      let header = try SegmentHeader.decode(bytes, file: file, named: 1)
      var frame = ByteWriter()
      frame.u32(0)
      frame.u32(8)
      frame.u64(2)
      frame.u8(type)
      frame.u8(flags)
      frame.u16(0)
      frame.u32(0)
      frame.u32(header.salt)
      frame.u32(CRC32C.checksum([1, 2, 3, 4, 5, 6, 7, 8]))
      frame.raw([1, 2, 3, 4, 5, 6, 7, 8])
      frame.patch(u32: header.identity.headCRC(frame.bytes, headerAt: 0, offset: UInt32(start)), at: 0)
      bytes += frame.bytes
      disk.poke(file, bytes)
      let error = logError {
        let log = try openLog(disk)
        #expect(!log.recovery.torn)
        try log.write(body(2))
        try log.close()
        #expect(try recovered(disk) == [body(1), body(2)])
      }
      #expect(error?.code == code, "type \(type) flags \(flags): \(String(describing: error))")
    }
  }

  @Test func `a crafted length allocates nothing and is no frame`() throws {
    for length in [UInt32(1 << 26) + 1, 1 << 26, 0x7FFF_FFFF, 0xFFFF_FFFF] {
      let disk = SimulatedDisk()
      let log = try openLog(disk)
      try log.write(body(1))
      try log.close()
      let file = disk.segments[0]
      var bytes = try #require(disk.peek(file))
      let header = try SegmentHeader.decode(bytes, file: file, named: 1)
      let start = bytes.count
      var frame = [UInt8](repeating: 0, count: 32)
      frame.patch(u32: length, at: 4)
      frame.patch(u64: 2, at: 8)
      frame[16] = 1
      frame[17] = 3
      frame.patch(u32: header.salt, at: 24)
      frame.patch(u32: header.identity.headCRC(frame, headerAt: 0, offset: UInt32(start)), at: 0)
      bytes += frame
      disk.poke(file, bytes)
      #expect(try recovered(disk) == [body(1)])
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Crafted bytes` {
  /// Numbers that overflow, wrap, or point behind every end.
  private let strange: [UInt64] = [
    0, 1, 7, 31, 4_095, 4_096, 1 << 16, 1 << 26, (1 << 26) + 1, 1 << 31, 0xFFFF_FFFF, 1 << 32, 1 << 62, 1 << 63,
    .max - 1,
    .max,
  ]

  /// Every field of the header, of the opening frame and of an event becomes every strange number, with
  /// the checksums made right again: whatever it means, it is an answer or an error and never a trap.
  @Test func `with checksums that are right is answered or refused`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<5 { try log.write(body(number, count: 900), body(number, count: 9)) }
    try log.close()
    let files = disk.segments
    #expect(files.count == 2)
    var tried = 0
    var codes: Set<LogError.Code> = []
    for (index, file) in files.enumerated() {
      let bytes = try #require(disk.peek(file))
      let header = try SegmentHeader.decode(bytes, file: file, named: UInt64(index + 1))
      let opening = 4096
      let event = firstGroup
      var fields: [(start: Int, at: Int, width: Int)] = []
      for (at, width) in [
        (8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (32, 8), (48, 8), (56, 4), (60, 4), (64, 1), (65, 1),
      ] {
        fields.append((0, at, width))
      }
      for start in [opening, event] {
        for (at, width) in [(4, 4), (8, 8), (16, 1), (17, 1), (18, 2), (20, 4)] { fields.append((start, at, width)) }
      }
      for (at, width) in [(0, 8), (8, 8), (16, 4), (20, 4), (24, 4), (28, 4)] {
        fields.append((opening, 32 + at, width))
      }
      for field in fields {
        for value in strange {
          var content = bytes
          for byte in 0..<field.width {
            content[field.start + field.at + byte] = UInt8(truncatingIfNeeded: value >> (8 * UInt64(byte)))
          }
          if field.start == 0 {
            content.patch(u32: CRC32C.checksum(content, 0..<124), at: 124)
          } else {
            let length = field.start == opening ? 32 : 904
            content.patch(
              u32: CRC32C.checksum(content, field.start + 32..<field.start + 32 + length), at: field.start + 28)
            content.patch(
              u32: header.identity.headCRC(content, headerAt: field.start, offset: UInt32(field.start)), at: field.start
            )
          }
          let image = disk.clone()
          image.poke(file, content)
          tried += 1
          // Another LSN and another opening are never what was written.
          let mustRefuse = content != bytes && field.start > 0 && (field.at == 8 || field.at >= 32)
          if mustRefuse { #expect(logError { _ = try openLog(image.clone()) } != nil, "\(field) \(value)") }
          let environment = SystemEnvironment.simulated(image, seed: 1)
          for error in [
            logError { try LogReader.open(at: storePath, environment: environment).poll { _ in } },
            logError { _ = try LogVerifier.verify(at: storePath, environment: environment) },
            logError { try LogReader.open(at: storePath, environment: environment).frames { _ in } },
            logError {
              var next: UInt64 = 1
              let log = try openLog(image) { event in
                #expect(event.lsn == next, "an LSN out of order was served")
                next += 1
              }
              try log.write([1])
              try log.close()
            },
          ] {
            if let error { codes.insert(error.code) }
          }
        }
      }
    }
    print("crafted bytes: \(tried) logs with checksums made right")
    #expect(codes.isSubset(of: [.damaged, .fromTheFuture, .foreignSegment, .missingSegment]), "\(codes)")
    #expect(tried > 800)
  }

  @Test func `in any field of a seal, under right checksums, is refused by who reads what it seals`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<5 { try log.write(body(number, count: 900), body(number, count: 9)) }
    try log.close()
    for (index, file) in disk.segments.enumerated() {
      let bytes = try #require(disk.peek(file))
      let header = try SegmentHeader.decode(bytes, file: file, named: UInt64(index + 1))
      let places = Array(stride(from: 4096, through: bytes.count - LogFormat.sealFrameBytes, by: 8))
      let start = try #require(places.last { bytes[$0 + 16] == FrameType.seal.rawValue })
      for at in [0, 4] {
        var content = bytes
        let body = start + LogFormat.frameHeaderBytes
        content[body + at] ^= 1
        content.patch(u32: CRC32C.checksum(content, body..<body + LogFormat.sealBodyBytes), at: start + 28)
        content.patch(u32: header.identity.headCRC(content, headerAt: start, offset: UInt32(start)), at: start)
        let image = disk.clone()
        image.poke(file, content)
        let environment = SystemEnvironment.simulated(image, seed: 1)
        for error in [
          logError { _ = try openLog(image.clone()) },
          logError { try LogReader.open(at: storePath, environment: environment).poll { _ in } },
        ] { #expect(error?.code == .damaged && error?.file == file, "byte \(at) of the seal of \(file)") }
        let report = try LogVerifier.verify(at: storePath, environment: environment)
        #expect(report.isDamaged && report.findings.contains { $0.file == file })
      }
    }
  }

  @Test func `in any number and place is answered or refused`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<8 { try log.write(body(number, count: 900)) }
    try log.close()
    let random = SeededRandom(seed: 77)
    for _ in 0..<1_500 {
      let image = disk.clone()
      for _ in 0...random.below(3) {
        let file = disk.segments[Int(random.below(UInt64(disk.segments.count)))]
        var content = try #require(image.peek(file))
        if content.isEmpty { continue }
        let at = Int(random.below(UInt64(content.count)))
        switch random.below(5) {
        case 0: content[at] ^= UInt8(1 << random.below(8))
        case 1: for index in at..<min(content.count, at + 512) { content[index] = 0 }
        case 2: content.removeSubrange(at...)
        case 3: content += random.bytes(Int(random.below(600)))
        default: for index in at..<min(content.count, at + 40) { content[index] = UInt8(random.below(256)) }
        }
        image.poke(file, content)
      }
      let error = logError {
        var seen: [[UInt8]] = []
        try openLog(image) { seen.append($0.body) }.close()
        #expect(seen == (0..<seen.count).map { body($0, count: 900) })
      }
      if let error { #expect(error.code == .damaged && error.offset != nil, "\(error)") }
    }
  }
}
