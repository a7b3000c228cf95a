// Goal: rewriting segments loses nothing that is alive, brings nothing back, and keeps every LSN. Method: a map from
// keys to values, written by events, beside a log that merges and compacts at drawn moments; after every step the
// log is opened again on a copy, read by a reader that has followed it, and verified.

import Dispatch
import StrandlineLog
import StrandlineLogProofs
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import StrandlineTestSupport
import Testing

/// Events that set a key: the key, and a value that tells which event it is.
private struct Pairs {
  var latest: [UInt8: UInt64] = [:]
  var bodies: [UInt64: [UInt8]] = [:]

  mutating func note(_ lsn: UInt64, _ body: [UInt8]) {
    latest[body[0]] = lsn
    bodies[lsn] = body
  }

  /// The newest event of each key survives.
  func survivors(_ transaction: [LogEvent]) -> [LogSurvivor] {
    transaction.filter { latest[$0.body[0]] == $0.lsn }.map(LogSurvivor.init)
  }

  /// What a log must have: the newest of each key, with its LSN; more only if it is as it was written.
  func check(_ events: [LogEvent], _ comment: String) {
    var seen: [UInt8: UInt64] = [:]
    var last: UInt64 = 0
    for event in events {
      #expect(event.lsn > last && bodies[event.lsn] == event.body, "\(comment): LSN \(event.lsn)")
      last = event.lsn
      seen[event.body[0]] = event.lsn
    }
    #expect(seen == latest, "\(comment)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct CompactionTests {
  @Test(arguments: Campaign.seeds(1...6, every: 3)) func `at any moment keeps what is alive, and every LSN`(
    seed: UInt64
  ) throws {
    let random = SeededRandom(seed: seed)
    let disk = SimulatedDisk()
    var pairs = Pairs()
    var log = try openLog(disk)
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1))
    var followed = Pairs()
    for step in 0..<120 {
      switch random.below(12) {
      case 0..<7:
        var transaction = LogTransaction()
        var bodies: [[UInt8]] = []
        for _ in 0...random.below(3) {
          bodies.append([UInt8(random.below(20))] + body(step, count: Int(random.below(900))))
          transaction.add(schema: 1, body: bodies[bodies.count - 1])
        }
        let lsns = try log.append(transaction)
        try log.waitUntilDurableBlocking(lsns.upperBound)
        for (lsn, body) in zip(lsns, bodies) { pairs.note(lsn, body) }
      case 7: try log.maintain()
      case 8: try log.mergeSegments()
      case 9:
        let snapshot = pairs
        try log.compact { snapshot.survivors($0) }
      case 10:
        try log.close()
        log = try openLog(disk, seed: random.next())
      default:
        // The process dies; another takes over.
        log = try openLog(SimulatedDisk())
        log = try openLog(disk, seed: random.next())
      }
      try log.raiseControl()
      // What the log itself reads, by LSN.
      for (key, lsn) in pairs.latest {
        #expect(try log.read(lsn).body == pairs.bodies[lsn], "step \(step), key \(key)")
      }
      // A reader that has followed it all along.
      try reader.poll { followed.note($0.lsn, $0.body) }
      #expect(followed.latest == pairs.latest, "step \(step)")
      for lsn in pairs.latest.values { #expect(try reader.read(lsn).body == pairs.bodies[lsn]) }
      // Another process, now.
      var events: [LogEvent] = []
      try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).poll { events.append($0) }
      pairs.check(events, "step \(step), a reader")
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
      #expect(report.findings.isEmpty, "step \(step): \(report.findings)")
    }
    try log.close()
    var events: [LogEvent] = []
    try openLog(disk) { events.append($0) }.close()
    pairs.check(events, "at the end")
  }

  @Test func `a loop of writers leaves few segments`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.segmentBytesMax = 256 << 10
    for number in 0..<200 {
      let log = try openLog(disk, options: options)
      try log.write(body(number))
      try log.close()
      let again = try openLog(disk, options: options)
      try again.mergeSegments()
      try again.close()
    }
    #expect(disk.segments.count < 24, "\(disk.segments.count) segments")
    #expect(try recovered(disk) == (0..<200).map { body($0) })
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1)).isSound)
  }

  @Test func `what is removed is told from what never was`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<40 { try log.write([UInt8(number % 2)] + body(number, count: 700)) }
    let report = try log.compact { $0.filter { $0.lsn % 5 == 0 }.map(LogSurvivor.init) }
    #expect(report.eventsKept < report.eventsRead && report.bytesAfter < report.bytesBefore)
    #expect(logError { _ = try log.read(1) }?.code == .compacted)
    #expect(try log.read(5).body == [0] + body(4, count: 700))
    #expect(logError { _ = try log.read(99) }?.code == .noSuchLSN)
    try log.close()
    let again = try openLog(disk)
    #expect(logError { _ = try again.read(1) }?.code == .compacted)
    #expect(try again.read(5).body == [0] + body(4, count: 700))
    try again.close()
  }

  /// Which events give the state as of one event alone: those of segments that stayed as they were too.
  @Test func `says as of which event it was judged what is alive, through merges and reopenings`() throws {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    for number in 0..<40 { try log.write([UInt8(number % 2)] + body(number, count: 700)) }
    try log.finishSegment()
    #expect(try log.compactedLSN() == 0)
    try log.compact { $0.map(LogSurvivor.init) }
    #expect(try log.compactedLSN() == 0)
    // The first segment changes, and the last is judged as well.
    try log.compact { $0.filter { $0.lsn != 2 }.map(LogSurvivor.init) }
    #expect(try log.compactedLSN() == 40)
    for number in 40..<80 { try log.write([0] + body(number, count: 50)) }
    try log.finishSegment()
    try log.compact(upTo: 30) { $0.filter { $0.lsn != 3 }.map(LogSurvivor.init) }
    #expect(try log.compactedLSN() == 40)
    for _ in 0..<20 {
      try log.write([0])
      try log.close()
      log = try openLog(disk, options: tiny)
      try log.mergeSegments()
    }
    #expect(try log.compactedLSN() == 40)
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(try reader.compactedLSN() == 40)
    try log.compact { $0.map { LogSurvivor(lsn: $0.lsn, schema: $0.schema, body: [9]) } }
    let last = try log.compactedLSN()
    #expect(try last >= 99 && reader.compactedLSN() == last)
    try log.close()
  }

  @Test func `an event may be packed into other bytes under its LSN`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<40 { try log.write([UInt8(number)] + body(number, count: 500)) }
    try log.compact { transaction in
      transaction.map { LogSurvivor(lsn: $0.lsn, schema: 77, body: [$0.body[0]]) }
    }
    let packed = try log.read(1)
    #expect(packed.schema == 77 && packed.body == [0])
    try log.close()
    var count = 0
    try openLog(disk) { event in
      count += 1
      #expect(event.body[0] == UInt8(event.lsn - 1))
    }.close()
    #expect(count == 40)
  }

  @Test func `a consumer holds back what it has not read, and is named when that is much`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.consumerHoldBytesMax = 10_000
    let log = try openLog(disk, options: options)
    for number in 0..<30 { try log.write(body(number, count: 900)) }
    let consumer = log.register(consumer: "index", after: 12)
    let error = logError { try log.compact { _ in [] } }
    #expect(error?.code == .consumerHolds && error?.message.contains("'index'") == true)
    #expect(try log.read(13).body == body(12, count: 900))
    #expect(logError { _ = try log.read(1) }?.code == .compacted)
    consumer.advance(to: 30)
    try log.compact { _ in [] }
    #expect(logError { _ = try log.read(13) }?.code == .compacted)
    try log.close()
    #expect(try recovered(disk).count < 30)
  }

  @Test func `what an owner throws, or says of strangers, changes nothing`() throws {
    struct Sick: Error {}
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<30 { try log.write(body(number, count: 900)) }
    #expect(throws: Sick.self) { try log.compact { _ in throw Sick() } }
    #expect(log.upkeepReport.failures == 1 && log.upkeepReport.failure != nil)
    #expect(
      logError { try log.compact { $0.map { LogSurvivor(lsn: $0.lsn + 100, schema: 0, body: []) } } }?.code
        == .noSuchLSN)
    #expect(logError { try log.compact { ($0 + $0).map(LogSurvivor.init) } }?.code == .noSuchLSN)
    #expect(log.upkeepReport.failures == 3)
    try log.write(body(30))
    try log.compact { $0.map(LogSurvivor.init) }
    #expect(log.upkeepReport.failures == 0)
    try log.close()
    #expect(try recovered(disk).count == 31)
  }

  /// Damage that only the cleaner meets: it is said, it is bounded, and appends go on.
  @Test func `damage in a finished segment fails the compaction and no append`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<30 { try log.write(body(number, count: 900)) }
    let file = disk.segments[0]
    var bytes = try #require(disk.peek(file))
    bytes[5000] ^= 1
    disk.poke(file, bytes)
    let before = disk.paths
    for attempt in 1...3 {
      let error = logError { try log.compact { _ in [] } }
      #expect(error?.code == .damaged && error?.file == file)
      #expect(log.upkeepReport.failures == attempt)
      #expect(disk.paths == before)
    }
    try log.write(body(30))
    #expect(try log.read(31).body == body(30))
    try log.close()
  }
}

@Suite(.timeLimit(.minutes(30))) struct UpkeepTests {
  @Test func `a close gives back the space of a segment that nothing was appended to`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.preallocationFirstStepBytes = 64 << 10
    options.segmentBytesMax = 1 << 20
    var log = try openLog(disk, options: options)
    try log.write(body(1))
    try log.close()
    log = try openLog(disk, options: options, seed: 8)
    try log.finishSegment()
    try log.close()
    #expect(disk.segments.count == 2)
    #expect(disk.segments.allSatisfy { disk.peek($0)?.count ?? .max < 8 << 10 })
    #expect(try recovered(disk.imageAfterCrash(.none)) == [body(1)])
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1)).isSound)
    // So does one that has made a store, or kept the end of one, and did no more.
    let empty = SimulatedDisk()
    try openLog(empty, options: options).close()
    #expect(empty.peek(empty.segments[0])?.count ?? .max < 8 << 10)
    #expect(try recovered(empty.imageAfterCrash(.none)).isEmpty)
  }

  @Test func `space that cannot be given back holds up no append, and is given back when that is possible`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults)
    let error = SystemError(call: "", subject: "", errno: 5)
    faults.plan(DiskFault([.truncate], isSticky: true, error: error))
    // Those before the last one have space to give back.
    while disk.segments.count < 3 {
      try log.write(body(1, count: 900))
      try log.maintain()
    }
    #expect(log.upkeepReport.failures > 0 && log.upkeepReport.failure?.underlying?.call == "ftruncate")
    let reserved = try #require(disk.peek(disk.segments[0])?.count)
    faults.clear()
    try log.maintain()
    #expect(log.upkeepReport.failures == 0)
    #expect(try #require(disk.peek(disk.segments[0])?.count) < reserved)
    try log.close()
  }

  @Test func `beside commits it gives space back, and a close leaves no file that no list names`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.upkeep = .inBackground
    let log = try openLog(disk, options: options)
    for number in 0..<200 {
      try log.write(body(number, count: 300))
      log.waitForUpkeep()
    }
    #expect(log.upkeepReport.failure == nil)
    try log.close()
    #expect(try recovered(disk) == (0..<200).map { body($0, count: 300) })
    let manifest = try Manifest.decode(try #require(disk.peek(storePath + "/MANIFEST")), file: "MANIFEST")
    #expect(manifest.entries.count > 5)
    let listed = Set(manifest.entries.map { storePath + "/" + SegmentName.name($0.segmentID) })
    #expect(Set(disk.segments) == listed)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A merge after a recovery that copied` {
  @Test func `leaves no segment out between two others`() throws {
    var options = tiny
    options.segmentBytesMax = 16 << 10
    options.mergeWidth = 2
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk, options: options)
      try log.write(body(1))
      try log.close()
    }
    do {
      // LSN 2 is promised, LSN 3 is not: it is copied into a successor by the next open.
      let log = try openLog(disk, options: options, seed: 2)
      try log.write(body(2))
      try log.raiseControl()
      try log.write(body(3))
    }
    let log = try openLog(disk, options: options, seed: 3)
    #expect(log.recovery.copiedEvents == 1)
    try log.finishSegment()
    try log.write(body(4, count: 3_000))
    try log.write(body(5, count: 3_000))
    try log.mergeSegments()
    #expect(log.upkeepReport.segmentsMerged == 3)
    for lsn in 1...UInt64(5) { #expect(try log.read(lsn).body.prefix(20) == body(Int(lsn)).prefix(20)) }
    let copy = disk.imageAfterCrash(.all)
    #expect(try recovered(copy).count == 5)
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(copy, seed: 1)).isSound)
  }

  /// The history that found it.
  @Test func `holds in the drawn history that found one left out`() throws {
    var histories = LogHistories(seed: 0x60)
    try histories.runRandom()
  }
}

@Suite(.timeLimit(.minutes(30))) struct UpkeepAtCloseTests {
  /// A file that is changed after the lock was given back could be the next writer's.
  @Test func `nothing changes a file once the log is closed`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<30 { try log.write(body(number, count: 900)) }
    try log.close()
    let before = disk.everything
    #expect(logError { try log.compact { _ in [] } }?.code == .closed)
    #expect(logError { try log.mergeSegments() }?.code == .closed)
    #expect(logError { try log.maintain() }?.code == .closed)
    #expect(logError { try log.finishSegment() }?.code == .closed)
    #expect(disk.everything == before)
    try log.waitUntilDurableBlocking(30)
  }

  @Test func `a close waits for a compaction that is under way`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<30 { try log.write(body(number, count: 900)) }
    let closing = DispatchQueue(label: "closing")
    let result = Mutex<Result<Void, any Error>?>(nil)
    var isFirst = true
    try log.compact { transaction in
      if isFirst {
        isFirst = false
        closing.async {
          let closed = Result { try log.close() }
          result.withLock { $0 = closed }
        }
      }
      // The lock is held as long as the compaction runs.
      let lock = try disk.lock(storePath + "/LOCK", exclusive: true)
      #expect(lock == nil)
      return transaction.map(LogSurvivor.init)
    }
    closing.sync {}
    try result.withLock { try $0?.get() }
    #expect(try recovered(disk) == (0..<30).map { body($0, count: 900) })
  }
}
