// Readers of other processes: what they are served while a writer holds the store and when none does, that a live
// file is never called damaged for being live, and that looking changes nothing.

import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A reader of another process` {
  private func reader(_ fileSystem: any FileSystem) throws -> LogReader {
    try LogReader.open(at: storePath, role: .store, environment: .simulated(fileSystem, seed: 1))
  }

  private func poll(_ reader: LogReader) throws -> [[UInt8]] {
    var bodies: [[UInt8]] = []
    try reader.poll { bodies.append($0.body) }
    return bodies
  }

  @Test func `is served up to the last promise while a writer holds the store`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    let reader = try reader(disk)
    #expect(try reader.isHeldByWriter)
    #expect(try poll(reader).isEmpty && reader.storeUUID == log.storeUUID)
    try log.write(body(1), body(2))
    // Durable for the writer, and not yet promised to readers of other processes.
    #expect(try poll(reader).isEmpty)
    try log.write(body(3))
    #expect(try poll(reader) == [body(1), body(2)])
    #expect(try reader.read(2).body == body(2))
    #expect(logError { _ = try reader.read(3) }?.code == .noSuchLSN)
    try log.raiseControl()
    #expect(try poll(reader) == [body(3)])
    #expect(try poll(reader).isEmpty)
    try log.close()
    #expect(try !reader.isHeldByWriter)
    #expect(try poll(reader).isEmpty)
  }

  @Test func `is served everything complete when no writer holds it, and once`() throws {
    let disk = SimulatedDisk()
    var log: Log? = try openLog(disk)
    let reader = try reader(disk)
    try log?.write(body(1))
    try log?.write(body(2))
    log = nil
    #expect(try poll(reader) == [body(1), body(2)])
    #expect(reader.recovery.copiedEvents == 1 && reader.recovery.lastLSN == 2 && !reader.recovery.torn)
    // The next writer copies what was not promised; the reader does not see it a second time.
    log = try openLog(disk, seed: 8)
    #expect(log?.recovery.copiedEvents == 1)
    try log?.write(body(3))
    try log?.raiseControl()
    #expect(try poll(reader) == [body(3)])
    for lsn in 1...3 { #expect(try reader.read(UInt64(lsn)).body == body(lsn)) }
    log = nil
  }

  @Test func `follows over many segments and reopenings, each event once`() throws {
    let disk = SimulatedDisk()
    var log: Log? = try openLog(disk)
    let reader = try reader(disk)
    var seen: [[UInt8]] = []
    var written: [[UInt8]] = []
    let random = SeededRandom(seed: 12)
    for number in 0..<120 {
      switch random.below(5) {
      case 0:
        try log?.close()
        log = nil
        log = try openLog(disk, seed: UInt64(number) + 100)
      case 1:
        log = nil
        if random.below(2) == 0 { seen += try poll(reader) }
        log = try openLog(disk, seed: UInt64(number) + 100)
      default:
        written.append(body(number, count: Int(random.below(1_800))))
        try log?.write(written[written.count - 1])
      }
      if random.below(3) == 0 { seen += try poll(reader) }
      #expect(seen == Array(written.prefix(seen.count)))
    }
    try log?.close()
    seen += try poll(reader)
    #expect(seen == written && disk.segments.count > 10)
    for (index, content) in written.enumerated() { #expect(try reader.read(UInt64(index + 1)).body == content) }
  }

  @Test func `takes an incomplete end of a live file for not yet, and looks twice before it speaks of damage`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    let race = RacingDisk(disk)
    let reader = try reader(race)
    // Every time the reader has read a piece, the writer has gone on: what it read is older than what it reads next.
    let number = Mutex(0)
    race.beforeRead = {
      let next = number.withLock { number in
        number += 1
        return number
      }
      if next < 60 { try log.write(body(next, count: 700)) }
    }
    race.beforeLock = race.beforeRead
    race.beforeList = race.beforeRead
    var seen: [[UInt8]] = []
    for _ in 0..<80 { seen += try poll(reader) }
    try log.close()
    seen += try poll(reader)
    #expect(seen == (1..<60).map { body($0, count: 700) })
  }

  @Test func `sees damage below a promise also while a writer holds the store`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(body(number, count: 300)) }
    let file = disk.segments[0]
    var bytes = try #require(disk.peek(file))
    bytes[firstGroup + 100] ^= 1
    disk.poke(file, bytes)
    let reader = try reader(disk)
    let error = logError { _ = try poll(reader) }
    #expect(error?.code == .damaged && error?.lsns?.lowerBound == 1)
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report.isHeldByWriter && report.findings.first?.lsns?.lowerBound == 1)
    try log.close()
  }

  @Test func `verify says nothing of what is only a writer's moment, though he may be gone before it looks`() throws {
    let disk = SimulatedDisk()
    let race = RacingDisk(disk)
    let log = try openLog(disk)
    for number in 0..<12 { try log.write(body(number, count: 900)) }
    // Each look meets another moment of it: an output that no list names yet, an input that is gone.
    let moments = Mutex(0)
    race.beforeRead = {
      let moment = moments.withLock { moments in
        moments += 1
        return moments
      }
      // Now and then: the store must not grow faster than it is read.
      guard moment < 2_000 else { return }
      if moment % 29 == 4 { try log.compact { $0.filter { $0.lsn % 3 != 0 }.map(LogSurvivor.init) } }
      if moment % 29 == 18 {
        try log.write(body(moment))
        try log.finishSegment()
      }
    }
    race.beforeLock = race.beforeRead
    race.beforeList = race.beforeRead
    for _ in 0..<20 {
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(race, seed: 1))
      #expect(report.isSound, "\(report.findings)")
    }
    #expect(moments.withLock { $0 } > 100)
    try log.close()
  }

  @Test func `verify calls a segment without a place stray only when no writer is making it`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<12 { try log.write(body(number, count: 900)) }
    disk.keepsHistory = true
    try log.compact { $0.filter { $0.lsn % 3 != 0 }.map(LogSurvivor.init) }
    var strays = 0
    for state in disk.history {
      let image = state.clone()
      let held = try #require(try image.lock(storePath + "/LOCK", exclusive: true))
      let environment = SystemEnvironment.simulated(image, seed: 1)
      #expect(try LogVerifier.verify(at: storePath, environment: environment).isSound)
      held.unlock()
      let report = try LogVerifier.verify(at: storePath, environment: environment)
      #expect(!report.isDamaged)
      if report.findings.contains(where: { $0.kind == .stray }) { strays += 1 }
    }
    #expect(strays > 0)
    try log.close()
  }

  @Test func `takes a missing lock for a free one, as in a copy`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1))
    let copy = disk.clone()
    copy.pokeRemove(storePath + "/LOCK")
    #expect(try poll(try reader(copy)) == [body(1)])
    #expect(copy.peek(storePath + "/LOCK") == nil)
    try log.close()
  }

  @Test func `changes no byte and keeps no lock`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<9 { try log.write(body(number, count: 900)) }
    let before = disk.everything
    let calls = disk.callCount
    let reader = try reader(disk)
    _ = try poll(reader)
    var frames: [FrameView] = []
    try reader.frames { frames.append($0) }
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report.isSound && report.isHeldByWriter)
    #expect(disk.everything == before && disk.callCount == calls)
    // Opening frames name what precedes them, each group promises what precedes it, and events are dense.
    #expect(frames.filter { $0.type == .opening }.map { $0.opening?.predecessorID } == [0, 1, 2])
    #expect(frames.filter { $0.type == .event }.map(\.lsn) == Array(1...9))
    #expect(frames.filter(\.header.isSynced).map(\.lsn) == Array(1...9))
    #expect(
      frames.allSatisfy { $0.offset % 8 == 0 && $0.frameBytes == LogFormat.frameBytes(bodyLength: $0.body.count) })
    try log.close()
    try openLog(disk, seed: 9).close()
  }

  @Test func `hands a transaction out again if its visitor threw in the middle`() throws {
    struct Stop: Error {}
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<4 { try log.write(body(number), body(number + 10)) }
    try log.close()
    let reader = try reader(disk)
    var seen: [UInt64] = []
    #expect(throws: Stop.self) {
      try reader.poll { event in
        if event.lsn == 4 { throw Stop() }
        seen.append(event.lsn)
      }
    }
    #expect(reader.lastLSN == 2)
    try reader.poll { seen.append($0.lsn) }
    #expect(seen == [1, 2, 3, 3, 4, 5, 6, 7, 8])
  }

  @Test func `while a writer appends on another thread sees a growing prefix`() async throws {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let path = folder.path + "/live.strand"
    var options = tiny
    options.segmentBytesMax = 64 << 10
    let log = try Log.open(at: path, role: .store, options: options, environment: .real) { _ in }
    let reader = try LogReader.open(at: path, environment: .real)
    let writing = Task {
      for number in 0..<800 {
        let lsn = try log.append(transaction([body(number, count: number % 900)])).upperBound
        try await log.waitUntilDurable(lsn)
      }
      try log.close()
    }
    var seen = 0
    while seen < 800 {
      try reader.poll { event in
        #expect(event.lsn == UInt64(seen + 1) && event.body == body(seen, count: seen % 900))
        seen += 1
      }
      await Task.yield()
    }
    try await writing.value
    #expect(try LogVerifier.verify(at: path, environment: .real).isSound)
  }

  @Test func `of what a failed sync left in memory is taken back with an error, not in silence`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    var log: Log? = try openLog(faults)
    try log?.write(body(1))
    let end = try #require(disk.peek(disk.segments[0])).lastIndex { $0 != 0 }
    faults.plan(DiskFault([.sync], error: .device("", "")))
    #expect(logError { try log?.write(body(2)) }?.code == .outcomeUnknown)
    log = nil
    let reader = try reader(disk)
    var seen: [[UInt8]] = []
    try reader.poll { seen.append($0.body) }
    #expect(seen == [body(1), body(2)])
    // The system forgets the pages that it could not write.
    var bytes = try #require(disk.peek(disk.segments[0]))
    for place in try #require(end) + 1..<bytes.count { bytes[place] = 0 }
    disk.poke(disk.segments[0], bytes)
    let next = try openLog(disk)
    try next.write(body(3))
    try next.write(body(4))
    for _ in 0..<3 {
      #expect(logError { try reader.poll { seen.append($0.body) } }?.code == .foreignSegment)
      #expect(seen == [body(1), body(2)])
    }
    try next.close()
    #expect(try recovered(disk) == [body(1), body(3), body(4)])
  }
}
