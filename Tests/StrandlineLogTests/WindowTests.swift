// What outlives damage at rest to the segment that a writer was appending to: everything that was acknowledged when
// CONTROL was last raised. The window that is left is measured here, and named in Formats/log.md, "The window".

import StrandlineHost
import StrandlineLog
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A live segment that is cut or zeroed` {
  @Test func `is damage up to where CONTROL was last raised, in drawn lives`() throws {
    var report = LiveSegmentLossReport()
    for seed in Campaign.seeds(1...12) {
      var run = LiveSegmentLoss(seed: seed)
      try run.run()
      report += run.report
    }
    print("the window: \(report)")
    #expect(report.refused > (Campaign.isWhole ? 500 : 100) && report.healed > (Campaign.isWhole ? 100 : 20))
  }

  @Test func `has lost no more than what was acknowledged in the last 200 ms`() throws {
    let disk = SimulatedDisk()
    let clock = WatchClock()
    var options = tiny
    options.controlIntervalMilliseconds = 200
    let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 7))
    let log = try Log.open(at: storePath, role: .store, options: options, environment: environment) { _ in }
    #expect(try bound(disk).lsn == 0)
    try log.write(body(1))
    // The watch sleeps since the first append; whatever is written meanwhile does not put it off.
    clock.waitUntilAsleep()
    for number in 2...5 { try log.write(body(number)) }
    #expect(try bound(disk).lsn == 0)
    clock.wake()
    while try bound(disk).lsn < 5 {}
    #expect(clock.monotonicNanoseconds() == 200 * 1_000_000)
    let path = disk.segments[0]
    let bytes = try #require(disk.peek(path))
    for length in stride(from: 4096, to: firstGroup + 5 * 56, by: 8) {
      let cut = disk.clone()
      cut.poke(path, Array(bytes[..<length]))
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(cut, seed: 1))
      #expect(report.isDamaged, "cut to \(length)")
    }
    try log.close()
  }

  @Test func `is covered also when its first sync took longer than the watch slept`() throws {
    let disk = SimulatedDisk()
    let slow = DiskWithSlowSync(disk)
    let clock = WatchClock()
    var options = tiny
    options.controlIntervalMilliseconds = 200
    let environment = SystemEnvironment(fileSystem: slow, clock: clock, random: SeededRandom(seed: 7))
    let log = try Log.open(at: storePath, role: .store, options: options, environment: environment) { _ in }
    // The watch wakes in the middle of the sync, finds nothing that it may promise, and sleeps again.
    slow.duringNextSync {
      clock.waitUntilAsleep()
      clock.wake()
      clock.waitUntilAsleep()
    }
    try log.write(body(1))
    clock.wake()
    while try bound(disk).lsn < 1 {}
    try log.close()
  }

  @Test func `has lost nothing that was acknowledged, however fast a writer is`() throws {
    let disk = SimulatedDisk()
    let clock = WatchClock()
    var options = LogOptions()
    options.upkeep = .onDemand
    let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 7))
    let log = try Log.open(at: storePath, role: .store, options: options, environment: environment) { _ in }
    var behind = 0
    for number in 0..<150 {
      let last = try log.write(body(number, count: 100_000)).upperBound
      behind = max(behind, Int(last - (try bound(disk).lsn)) * 100_032)
    }
    // The watch never woke.
    #expect(clock.monotonicNanoseconds() == 0)
    #expect(behind == 0, "\(behind) bytes")
    clock.wake()
    try log.close()
  }

  @Test func `costs a commit no sync`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults)
    try log.write(body(1))
    faults.resetCounts()
    for number in 2...9 {
      try log.write(body(number))
      try log.raiseControl()
    }
    #expect(faults.count(.sync) == 8, "one for each group, and none for CONTROL")
    try log.close()
  }

  @Test func `opens after a power cut with several raises in memory, whatever was written back of them`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...6 {
      try log.write(body(number))
      try log.raiseControl()
    }
    for seed in 0..<200 {
      let left = disk.afterPowerCut(seed: UInt64(seed))
      #expect(try recovered(left) == (1...6).map { body($0) }, "seed \(seed)")
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(left, seed: 1))
      #expect(!report.isDamaged, "seed \(seed)")
    }
    withExtendedLifetime(log) {}
  }

  /// A raise that fails is upkeep's failure: nothing that a writer waits for.
  @Test func `is said where CONTROL cannot be raised, and writers go on`() throws {
    let faults = FaultInjector(SimulatedDisk())
    let log = try openLog(faults)
    try log.write(body(1))
    faults.plan(DiskFault([.write], pathSuffix: "CONTROL", isSticky: true, error: .device("", "")))
    #expect(logError { try log.raiseControl() }?.code == .io)
    #expect(log.upkeepReport.failures == 1 && log.upkeepReport.failure?.underlying?.isFull == false)
    try log.write(body(2))
    faults.clear()
    try log.close()
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `What MANIFEST says of a segment` {
  private let manifestPath = storePath + "/MANIFEST"

  /// A closed store of three segments and what its list says.
  private func store() throws -> (disk: SimulatedDisk, manifest: Manifest) {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<11 { try log.write(body(number, count: 900)) }
    try log.close()
    let manifest = try Manifest.decode(try #require(disk.peek(manifestPath)), file: manifestPath)
    #expect(manifest.entries.count == 3)
    return (disk.imageAfterCrash(.all), manifest)
  }

  @Test func `is held against the segment: a listed one that was zeroed is never left out`() throws {
    let (disk, manifest) = try store()
    for entry in manifest.entries {
      let image = disk.clone()
      let path = storePath + "/" + SegmentName.name(entry.segmentID)
      let bytes = try #require(image.peek(path))
      image.poke(path, Array(bytes[..<4096]) + [UInt8](repeating: 0, count: bytes.count - 4096))
      #expect(logError { _ = try openLog(image) }?.code == .damaged, "\(path)")
      #expect(try LogVerifier.verify(at: storePath, environment: .simulated(image, seed: 1)).isDamaged, "\(path)")
    }
  }

  @Test func `of where it ends is held against the log`() throws {
    let (disk, manifest) = try store()
    let changes: [(inout SegmentEnd) -> Void] = [
      { $0.offset += 8 }, { $0.offset -= 8 }, { $0.lastLSN += 1 }, { $0.lastLSN -= 1 }, { $0.chain ^= 1 },
    ]
    for index in manifest.entries.indices where manifest.entries[index].end != nil {
      for (number, change) in changes.enumerated() {
        var changed = manifest
        if var end = changed.entries[index].end {
          change(&end)
          changed.entries[index].end = end
        }
        let image = disk.clone()
        image.poke(manifestPath, changed.encoded())
        let error = logError { _ = try openLog(image) }
        #expect([.damaged, .foreignSegment].contains(error?.code), "entry \(index), change \(number)")
        let report = try LogVerifier.verify(at: storePath, environment: .simulated(image, seed: 1))
        #expect(report.isDamaged, "entry \(index), change \(number)")
      }
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `What an interrupted writer leaves` {
  /// A log with enough in it to be compacted.
  private func filled(_ disk: any FileSystem) throws -> Log {
    let log = try openLog(disk)
    for number in 0..<14 { try log.write(body(number, count: 900)) }
    return log
  }

  @Test func `of a compaction is gone after the next open, and nothing of it stays readable`() throws {
    let disk = SimulatedDisk()
    let log = try filled(disk)
    disk.keepsHistory = true
    try log.compact { events in events.filter { $0.lsn % 2 == 1 }.map(LogSurvivor.init) }
    var redundant = 0
    for state in disk.history {
      for loss in [CrashLoss.all, .none] {
        let image = state.imageAfterCrash(loss)
        let again = try openLog(image, seed: 9)
        redundant += again.recovery.removed.count
        #expect(again.recovery.quarantined.isEmpty)
        try again.close()
        let manifest = try Manifest.decode(try #require(image.peek(storePath + "/MANIFEST")), file: "m")
        let listed = Set(manifest.entries.map { storePath + "/" + SegmentName.name($0.segmentID) })
        #expect(Set(image.segments) == listed)
        #expect(try LogVerifier.verify(at: storePath, environment: .simulated(image, seed: 1)).quarantine.isEmpty)
      }
    }
    #expect(redundant > 0, "some of the disks have a file that no list names")
    try log.close()
  }

  @Test func `of a compaction that could not remove its inputs is told, and removed by the next one`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try filled(faults)
    let before = Set(disk.segments)
    faults.plan(DiskFault([.unlink], isSticky: true, error: .device("", "")))
    let error = logError { try log.compact { $0.filter { $0.lsn > 5 }.map(LogSurvivor.init) } }
    #expect(error?.code == .io && error?.message.contains("cannot be removed") == true)
    #expect(before.isSubset(of: disk.segments))
    faults.clear()
    try log.compact { $0.map(LogSurvivor.init) }
    #expect(before.subtracting(disk.segments).count >= 2)
    try log.close()
  }

  @Test func `with events that the log does not have is kept in quarantine, and said`() throws {
    let disk = SimulatedDisk()
    let log = try filled(disk)
    try log.close()
    // A segment of this store whose range goes beyond the log's.
    let manifest = try Manifest.decode(try #require(disk.peek(storePath + "/MANIFEST")), file: "m")
    let header = SegmentHeader(
      storeUUID: manifest.storeUUID, segmentID: 77, salt: 5, role: .store, kind: .rewritten)
    let opening = OpeningBody(
      firstLSN: 10, predecessorID: 3, predecessorEnd: 5_000, chain: 1, durableEnd: 4_160, rangeLastLSN: 99,
      rangeChain: 3)
    let frame = opening.encodedFrame(header.identity)
    disk.poke(
      storePath + "/" + SegmentName.name(77),
      header.encoded() + [UInt8](repeating: 0, count: 4096 - 128) + frame)
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(report.findings.map(\.kind) == [.stray])
    let again = try openLog(disk, seed: 9)
    #expect(again.recovery.quarantined == [77] && again.recovery.removed.isEmpty)
    try again.close()
    let after = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(after.findings.isEmpty && after.quarantine == [QuarantinedFile(name: SegmentName.name(77), bytes: 4_160)])
  }

  @Test func `beside a store that was being made is gone after the next open, unless it is being made now`() throws {
    let disk = SimulatedDisk()
    disk.keepsHistory = true
    let log = try openLog(disk)
    let states = disk.history
    try log.close()
    var (found, lockless) = (0, 0)
    for state in states {
      let losses = state.crashLosses()
      for loss in losses.count < 12 ? losses : losses.prefix(4) + losses.suffix(4) {
        let image = state.imageAfterCrash(loss)
        let before = try image.list("/").filter { $0.hasPrefix("store.init-") }
        found += before.count
        lockless += try before.count { try image.kind(of: "/\($0)/LOCK") == .absent }
        try openLog(image, seed: 9).close()
        #expect(try image.list("/") == ["store"], "\(loss)")
      }
    }
    #expect(found > 3 && lockless > 0)
    // One with what no store has is somebody's, with a lock or without; so is one with another name.
    let kept = ["store.init-0123456789abcdef", "store.init-1123456789abcdef", "store.init-", "store.init-0123"]
    let others = SimulatedDisk()
    for name in kept { try others.makeDirectory("/" + name) }
    for name in kept.prefix(2) { try others.open("/\(name)/letter.txt", .create).close() }
    try #require(try others.lock("/\(kept[1])/LOCK", exclusive: true)).unlock()
    try openLog(others).close()
    #expect(try Set(others.list("/")) == Set(kept + ["store"]))
    // One that is held stays.
    let held = SimulatedDisk()
    try held.makeDirectory("/store.init-0123456789abcdef")
    let lock = try #require(try held.lock("/store.init-0123456789abcdef/LOCK", exclusive: true))
    try openLog(held).close()
    #expect(try held.kind(of: "/store.init-0123456789abcdef") == .directory)
    lock.unlock()
    try openLog(held, seed: 8).close()
    #expect(try held.kind(of: "/store.init-0123456789abcdef") == .absent)
  }

  @Test func `beside a store that is made is made again, if it was taken for a leftover before it had its lock`() throws
  {
    let disk = SimulatedDisk()
    let racing = RacingDisk(disk)
    let removed = Mutex(0)
    racing.beforeLock = {
      let found = try disk.list("/").filter { $0.hasPrefix("store.init-") }
      guard removed.withLock({ $0 }) < 2, let name = found.first else { return }
      removed.withLock { $0 += 1 }
      try openLog(disk, seed: 9, path: "/store").close()
      #expect(try disk.kind(of: "/" + name) == .absent)
      for name in ["LOCK", "CONTROL", "MANIFEST", SegmentName.name(1)] { try disk.unlink("/store/" + name) }
      try disk.removeDirectory("/store")
    }
    try openLog(racing).close()
    #expect(removed.withLock { $0 } == 2)
    #expect(try disk.list("/") == ["store"])
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1)).findings.isEmpty)
  }

  @Test func `beside a store is left alone, if it has got its own name when it is locked`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk, path: "/other")
    try log.write(body(1))
    try log.close()
    let unfinished = "/store.init-0123456789abcdef"
    try disk.renameFolder("/other", to: unfinished)
    let racing = RacingDisk(disk)
    racing.beforeLock = {
      if try disk.kind(of: unfinished) == .directory { try disk.renameFolder(unfinished, to: "/other") }
    }
    try openLog(racing).close()
    var found: [[UInt8]] = []
    try openLog(disk, path: "/other", createIfAbsent: false) { found.append($0.body) }.close()
    #expect(found == [body(1)])
  }
}
