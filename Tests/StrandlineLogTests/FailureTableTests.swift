// What can befall a log, row by row, and where it is proved. Rows that have no test of their own elsewhere have it
// here; so have the histories of full disks and of the two strengths of sync.
//
//   1  torn write at the end                 `case 1`; CrashTests (all histories of two operations)
//   2  lost sector inside acknowledged data  DamageTests: of any sector below the promise is refused
//   3  zeros at the end                      `case 3`
//   4  garbage at the end                    `case 4`; CrashTests (drawn histories)
//   5  bit flip in a length                  `case 5`; FormatTests: does not verify with any one bit flipped
//   6  bit flip with valid frames behind it  DamageTests: of any bit below the promise is refused
//   7  bit flip in the last group            `case 7`
//   8  duplicate, misplaced, foreign file    DamageTests: Files that do not belong together; DirectoryTests: L7
//   9  missing segment                       DamageTests: a segment that is missing; DirectoryTests: the last one
//  10  stale frames of an older file         `case 10`
//  11  stale frames of an aborted group      DecisionTests: L2: the seal is where the promise ends
//  12  a sync that fails                     FaultTests: every sync
//  13  memory shows what the disk lacks      FaultTests (its disk drops pages); DecisionTests: L1
//  14  a full disk                           FaultTests: a full disk at every reservation; `L16` here
//  15  a short write                         FaultTests: any one of them (writes that end after some bytes)
//  16  an interrupted call                   FaultTests: every sync (EINTR is a failure)
//  17  a name without a sync of its folder   CrashTests (names are among what is lost); EmptyTailTests: L4
//  18  an older copy of the directory        `case 18`
//  19  an index snapshot of another history  not the log's: it keeps none
//  20  two writers                           OpeningTests: takes the lock; by two at once
//  21  clocks that jump                      OpeningTests: with clocks that are years off
//  22  files that may only be read           `case 22`
//  23  a version from the future             DamageTests, DirectoryTests: of a later version
//  24  a cut or changed header               FormatTests; DamageTests: an empty or cut segment with a name
//  25  a huge length                         DamageTests: a crafted length
//  26  a crash during recovery               CrashTests (all histories); DirectoryTests: while moved aside
//  27  damage that only a later read meets   `case 27`

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The failure table` {
  /// A store whose second group is written and not synced; what it holds with it and without.
  private func inFlight() throws -> (state: SimulatedDisk, bodies: [[UInt8]]) {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    let bodies = [body(1, count: 600), body(2, count: 900), body(3, count: 1_500)]
    try log.write(bodies[0])
    disk.keepsHistory = true
    try log.write(bodies[1], bodies[2])
    return (disk.history[disk.history.count - 1], bodies)
  }

  /// Opens it and expects whole transactions; then something else is written, and only that is added.
  private func expectSafe(_ image: SimulatedDisk, _ bodies: [[UInt8]], _ comment: String) throws {
    var found: [[UInt8]] = []
    let log = try openLog(image, seed: 8) { found.append($0.body) }
    #expect((found.count == 1 || found.count == 3) && found == Array(bodies.prefix(found.count)), "\(comment)")
    try log.write(body(9, count: 1_400))
    try log.close()
    #expect(try recovered(image) == found + [body(9, count: 1_400)], "\(comment)")
  }

  @Test func `case 1: of a group in flight any subset of sectors survives`() throws {
    let (state, bodies) = try inFlight()
    let count = state.unsyncedEffects().count
    #expect(5...9 ~= count)
    for subset in 0..<1 << count {
      try expectSafe(state.imageAfterCrash { subset >> $0.index & 1 == 1 }, bodies, "subset \(subset)")
    }
  }

  @Test func `case 3: zeros behind the promise are a tail, and before it damage`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      for number in 0..<4 { try log.write(body(number, count: 300)) }
    }
    let file = disk.segments[0]
    let bytes = try #require(disk.peek(file))
    let promised = firstGroup + 3 * 336
    for at in stride(from: 4096, to: promised + 336, by: 64) {
      let image = disk.clone()
      image.poke(file, Array(bytes[..<at]) + [UInt8](repeating: 0, count: bytes.count - at))
      if at < firstGroup {
        // What the store's own first sync covered.
        #expect(logError { _ = try openLog(image) }?.code == .damaged, "zeros from \(at)")
        continue
      }
      // The promises behind it are zeros as well: whole groups are left, each of them before `at`.
      let left = try recovered(image)
      #expect(left == (0..<(at - firstGroup) / 336).map { body($0, count: 300) }, "zeros from \(at)")
      // As long as one promise is left behind the zeros, they are damage.
      let holed = disk.clone()
      holed.poke(
        file, Array(bytes[..<at]) + [UInt8](repeating: 0, count: max(0, promised - at)) + bytes[max(at, promised)...])
      if at < promised { #expect(logError { _ = try openLog(holed) }?.code == .damaged, "a hole from \(at)") }
    }
  }

  @Test func `case 4: garbage where a group was in flight is never taken for one`() throws {
    let (state, bodies) = try inFlight()
    let file = storePath + "/" + SegmentName.name(1)
    let older = Array(try #require(state.peek(file))[4096...])
    let random = SeededRandom(seed: 4)
    let end = firstGroup + 632
    for round in 0..<200 {
      let image = state.imageAfterCrash(.all)
      var bytes = try #require(image.peek(file))
      for sector in stride(from: (end + 511) / 512 * 512, to: bytes.count, by: 512) where random.below(2) == 0 {
        let last = min(sector + 512, bytes.count)
        // Noise, or bytes of this log from elsewhere.
        let junk =
          round % 2 == 0
          ? random.bytes(last - sector)
          : (0..<last - sector).map { older[(Int(random.below(8)) * 8 + $0) % older.count] }
        bytes.replaceSubrange(sector..<last, with: junk)
      }
      image.poke(file, bytes)
      try expectSafe(image, bodies, "round \(round)")
    }
  }

  @Test func `case 5: a flipped bit in a length is noticed before the length is used`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(body(number, count: 100)) }
    try log.close()
    let file = disk.segments[0]
    let bytes = try #require(disk.peek(file))
    var frames: [UInt32] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames { frames.append($0.offset) }
    #expect(frames.count == 1 + 3 + 2)
    for frame in frames {
      for bit in 0..<32 {
        let image = disk.clone()
        var content = bytes
        content[Int(frame) + 4 + bit / 8] ^= 1 << UInt8(bit % 8)
        image.poke(file, content)
        let error = logError { _ = try openLog(image) }
        #expect(error?.code == .damaged && error?.file == file, "frame \(frame), bit \(bit)")
      }
    }
  }

  @Test func `case 7: a flipped bit in the last group is noticed after a clean close, and after a quiet moment`() throws
  {
    for ending in ["close", "idle", "kill"] {
      let disk = SimulatedDisk()
      do {
        let log = try openLog(disk)
        for number in 0..<3 { try log.write(body(number, count: 100)) }
        if ending == "close" { try log.close() }
        if ending == "idle" { try log.raiseControl() }
      }
      let file = disk.segments[0]
      let bytes = try #require(disk.peek(file))
      let group = 136
      for bit in (firstGroup + 2 * group) * 8..<(firstGroup + 3 * group) * 8 where bit % 5 == 0 {
        let image = disk.clone()
        var content = bytes
        content[bit / 8] ^= 1 << UInt8(bit % 8)
        image.poke(file, content)
        if ending == "kill" {
          // Nothing says that it was acknowledged: the known limit. Nothing altered is served.
          #expect(try recovered(image) == (0..<2).map { body($0, count: 100) })
        } else {
          let error = logError { _ = try openLog(image) }
          #expect(error?.code == .damaged && error?.lsns == 3...3, "\(ending), bit \(bit)")
        }
      }
    }
  }

  @Test func `case 10: the bytes of an older segment behind the end are nothing`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<9 { try log.write(body(number, count: 900)) }
    try log.close()
    let older = Array(try #require(disk.peek(disk.segments[0]))[4096...])
    let file = disk.segments[2]
    let bytes = try #require(disk.peek(file))
    let open = disk.clone()
    let writer = try openLog(open, seed: 8)
    for number in 9..<11 { try writer.write(body(number, count: 900)) }
    let live = try #require(open.segments.last)
    let image = open.clone()
    var content = try #require(image.peek(live))
    let end = firstGroup + 2 * 1_000
    content.replaceSubrange(end..., with: older)
    image.poke(live, content)
    var seen = 0
    let again = try openLog(image, seed: 9) { event in
      #expect(event.body == body(seen, count: 900))
      seen += 1
    }
    #expect(seen == 11 && again.recovery.torn && again.recovery.copiedEvents == 1)
    try again.write([1])
    try again.close()
    #expect(try recovered(image).count == 12)
    // Behind a seal too.
    disk.poke(file, bytes + older)
    #expect(try recovered(disk).count == 9)
    try writer.close()
  }

  @Test func `case 18: an older copy of the whole directory opens without an alarm, and as what it was`() throws {
    let disk = SimulatedDisk()
    var copies: [(SimulatedDisk, Int)] = []
    var tenures: Set<UInt64> = []
    var written = 0
    for writer in 0..<3 {
      let log = try openLog(disk, seed: UInt64(writer) + 70)
      tenures.insert(log.tenure)
      for _ in 0..<4 {
        try log.write(body(written, count: 1_300))
        written += 1
        copies.append((disk.imageAfterCrash(.all), written))
      }
      try log.close()
      copies.append((disk.imageAfterCrash(.all), written))
    }
    for (number, (copy, count)) in copies.enumerated() {
      let log = try openLog(copy, seed: 200 + UInt64(number))
      #expect(log.durableLSN == UInt64(count))
      // A comparison tells it from the original: another tenure writes the same LSNs.
      #expect(tenures.insert(log.tenure).inserted)
      try log.write([1])
      try log.close()
      #expect(try LogVerifier.verify(at: storePath, environment: .simulated(copy, seed: 1)).isSound)
    }
  }

  @Test func `case 22: a store that may only be read is read, and a writer is told and changes nothing`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      for number in 0..<4 { try log.write(body(number, count: 1_300)) }
    }
    let before = disk.everything
    let faults = FaultInjector(disk)
    let changing = Set(DiskCall.allCases.filter(\.isMutating))
    faults.plan(DiskFault(changing, isSticky: true, error: .forbidden("", "")))
    var seen: [[UInt8]] = []
    let reader = try LogReader.open(at: storePath, environment: .simulated(faults, seed: 1))
    try reader.poll { seen.append($0.body) }
    #expect(seen == (0..<4).map { body($0, count: 1_300) })
    #expect(try reader.read(4).body == seen[3])
    #expect(try !LogVerifier.verify(at: storePath, environment: .simulated(faults, seed: 1)).isDamaged)
    #expect(faults.struckCount == 0)
    faults.plan(DiskFault([.lock], isSticky: true, error: .forbidden("", "")))
    let error = logError { _ = try openLog(faults) }
    #expect(error?.code == .io && error?.file != nil && disk.everything == before)
    faults.clear()
    faults.plan(DiskFault(changing, isSticky: true, error: .forbidden("", "")))
    #expect(logError { _ = try openLog(faults) }?.code == .io)
    #expect(disk.everything == before)
  }

  @Test func `case 27: damage to a finished file under an open log is told to who reads it, and appends go on`() throws
  {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<9 { try log.write(body(number, count: 900)) }
    let file = disk.segments[0]
    var bytes = try #require(disk.peek(file))
    bytes[firstGroup + 936 + 200] ^= 1
    disk.poke(file, bytes)
    let error = logError { _ = try log.read(2) }
    #expect(error?.code == .damaged && error?.file == file && error?.lsns == 2...2)
    #expect(try log.read(1).body == body(0, count: 900) && log.read(3).body == body(2, count: 900))
    for number in 9..<20 { try log.write(body(number, count: 900)) }
    try log.close()
    #expect(logError { _ = try openLog(disk, seed: 9) }?.lsns?.lowerBound == 2)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A full disk` {
  /// A store whose second event is whole and promised by nothing.
  private func store(_ options: LogOptions) throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk, options: options)
      try log.write(body(1, count: 900))
      try log.write(body(2, count: 900))
    }
    disk.capacity = disk.usedBytes
    return disk
  }

  @Test func `L16: at an open is met by the ballast`() throws {
    var options = tiny
    options.ballastBytes = 64 << 10
    let disk = try store(options)
    let ballast = storePath + "/BALLAST"
    #expect(disk.peek(ballast) == [UInt8](repeating: 0, count: 64 << 10))
    disk.keepsHistory = true
    var seen: [[UInt8]] = []
    let log = try openLog(disk, options: options, seed: 8) { seen.append($0.body) }
    guard case .open = log.state else {
      Issue.record("not open: \(log.state)")
      return
    }
    #expect(seen == [body(1, count: 900), body(2, count: 900)] && log.recovery.copiedEvents == 1)
    #expect(disk.peek(ballast) == nil)
    try log.write(body(3, count: 900))
    #expect(try recovered(disk.imageAfterCrash(.none)) == seen + [body(3, count: 900)])
    for state in disk.history {
      for loss in state.crashLosses() {
        let image = state.imageAfterCrash(loss)
        image.capacity = nil
        #expect(try recovered(image).prefix(2) == seen.prefix(2))
      }
    }
    try log.close()
  }

  @Test func `L16: what the ballast gives back does for the copy and for the list too, and comes back at a close`()
    throws
  {
    var options = tiny
    // As in a store of an app: a first step takes as much as the ballast has.
    options.preallocationFirstStepBytes = 16 << 10
    options.ballastBytes = 16 << 10
    let disk = try store(options)
    var log = try openLog(disk, options: options, seed: 8)
    guard case .open = log.state else {
      Issue.record("not open: \(log.state)")
      return
    }
    #expect(log.recovery.copiedEvents == 1 && disk.peek(storePath + "/BALLAST") == nil)
    try log.write(body(3, count: 900))
    try log.close()
    #expect(try recovered(disk) == (1...3).map { body($0, count: 900) })
    // With room, a writer that came for a moment leaves it as it should be.
    disk.capacity = nil
    disk.pokeRemove(storePath + "/BALLAST")
    log = try openLog(disk, options: options, seed: 9)
    try log.close()
    #expect(disk.peek(storePath + "/BALLAST") == nil, "an open without an append changes nothing")
    log = try openLog(disk, options: options, seed: 10)
    try log.write(body(4))
    try log.close()
    #expect(disk.peek(storePath + "/BALLAST")?.count == 16 << 10)
    #expect(log.upkeepReport.failure == nil)
  }

  @Test func `takes what it has room for, and not only whole steps`() throws {
    var options = tiny
    options.preallocationFirstStepBytes = 1 << 20
    options.segmentBytesMax = 4 << 20
    let disk = SimulatedDisk()
    var log = try openLog(disk, options: options)
    try log.write(body(1))
    try log.close()
    disk.capacity = disk.usedBytes + (64 << 10)
    log = try openLog(disk, options: options, seed: 8)
    for number in 2..<10 { try log.write(body(number, count: 900)) }
    #expect(throws: (any Error).self) { for _ in 0..<100 { try log.write(body(0, count: 900)) } }
    let count = Int(log.durableLSN)
    #expect(count > 30 && logError { try log.write([1]) }?.code == .rejected)
    try? log.close()
    disk.capacity = nil
    #expect(try recovered(disk).count == count)
  }

  @Test func `L16: at an open without ballast leaves a log that reads, and goes on when there is room`() throws {
    let disk = try store(tiny)
    let before = disk.everything
    let bodies = [body(1, count: 900), body(2, count: 900)]
    var seen: [[UInt8]] = []
    let log = try openLog(disk, seed: 8) { seen.append($0.body) }
    guard case .rejecting(let cause) = log.state else {
      Issue.record("not rejecting: \(log.state)")
      return
    }
    #expect(cause.isFull && seen == bodies)
    for lsn in 1...2 { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    for _ in 0..<3 {
      let error = logError { try log.write([9]) }
      #expect(error?.isFull == true, "\(String(describing: error))")
      #expect(logError { try log.flushBlocking() } != nil)
      // Still full: it goes on rejecting.
      log.resume()
      guard case .rejecting = log.state else {
        Issue.record("not rejecting any more: \(log.state)")
        return
      }
    }
    #expect(disk.everything == before)
    #expect(try recovered(roomy(disk)) == bodies)
    disk.capacity = nil
    log.resume()
    guard case .open = log.state else {
      Issue.record("not open again: \(log.state)")
      return
    }
    #expect(log.nextLSN == 3 && log.durableLSN == 2)
    // What was only read before is on the medium now.
    #expect(try recovered(disk.imageAfterCrash(.none)) == bodies)
    for lsn in 1...2 { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    try log.write(body(3, count: 900))
    try log.close()
    #expect(try recovered(disk) == bodies + [body(3, count: 900)])
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1)).isSound)
  }

  private func roomy(_ disk: SimulatedDisk) -> SimulatedDisk {
    let copy = disk.clone()
    copy.capacity = nil
    return copy
  }

  @Test func `L16: at an open and still at the close loses nothing`() throws {
    let disk = try store(tiny)
    let before = disk.everything
    let log = try openLog(disk, seed: 8)
    #expect(logError { try log.close() }?.isFull == true)
    #expect(disk.everything == before)
    #expect(try recovered(roomy(disk)).count == 2)
  }

  @Test func `L16: at an open keeps the list as it is, until the end of the log is copied`() throws {
    let disk = try store(tiny)
    let before = disk.everything
    let log = try openLog(disk, seed: 8)
    // There is space again, and a caller looks after files before it resumes the log.
    disk.capacity = nil
    for work in [
      { try log.maintain() }, { try log.mergeSegments() },
      { _ = try log.compact { $0.map(LogSurvivor.init) } },
    ] as [() throws -> Void] {
      #expect(logError(work)?.isFull == true)
      #expect(disk.everything == before)
    }
    log.resume()
    try log.maintain()
    try log.close()
    #expect(try recovered(disk).count == 2)
  }

  @Test func `L16: an end that is promised needs no room at an open`() throws {
    let disk = SimulatedDisk()
    let first = try openLog(disk)
    for number in 0..<5 { try first.write(body(number, count: 1_300)) }
    try first.close()
    disk.capacity = disk.usedBytes
    let log = try openLog(disk, seed: 8)
    guard case .open = log.state else {
      Issue.record("not open: \(log.state)")
      return
    }
    #expect(logError { try log.write([1]) }?.code == .rejected)
    disk.capacity = nil
    log.resume()
    try log.write([1])
    try log.close()
    #expect(try recovered(disk).count == 6)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The two strengths of sync` {
  private var ordered: LogOptions {
    var options = tiny
    options.strength = .ordered
    return options
  }

  private func weakDisk() -> SimulatedDisk {
    let disk = SimulatedDisk()
    disk.isOrderedSyncWeak = true
    return disk
  }

  @Test func `L9: a flush makes durable what barriers only ordered, in whichever segment it is`() throws {
    let disk = weakDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults, options: ordered)
    var wasWeak = false
    for number in 1...10 {
      try log.write(body(number, count: 1_300))
      let left = try recovered(disk.imageAfterCrash(.none))
      #expect(left == (1..<1 + left.count).map { body($0, count: 1_300) })
      if left.count < number { wasWeak = true }
      guard number % 2 == 0 else { continue }
      try log.flushBlocking()
      #expect(try recovered(disk.imageAfterCrash(.none)).count == number, "after the flush of \(number)")
      let calls = faults.totalCount
      try log.flushBlocking()
      #expect(faults.totalCount == calls, "once is enough")
    }
    #expect(wasWeak, "barriers that are as good as syncs prove nothing")
    #expect(disk.segments.count >= 4)
    try log.close()
    #expect(try recovered(disk.imageAfterCrash(.none)).count == 10)
  }

  @Test func `L9: an open makes durable what an earlier writer left to barriers`() throws {
    for strength in [SyncStrength.ordered, .durable] {
      let disk = weakDisk()
      do {
        let log = try openLog(disk, options: ordered)
        for number in 1...2 { try log.write(body(number)) }
      }
      #expect(try recovered(disk.imageAfterCrash(.none)).isEmpty)
      var options = tiny
      options.strength = strength
      let log = try openLog(disk, options: options, seed: 8)
      #expect(log.recovery.copiedEvents == 1 && log.durableLSN == 2)
      #expect(try recovered(disk.imageAfterCrash(.none)) == [body(1), body(2)], "\(strength)")
      try log.close()
    }
  }

  @Test func `L9: where groups are durable a flush costs nothing, and in a poisoned log it says so`() throws {
    let faults = FaultInjector(SimulatedDisk())
    let log = try openLog(faults)
    try log.write(body(1))
    faults.resetCounts()
    try log.flushBlocking()
    #expect(faults.totalCount == 0)
    try log.close()
    #expect(logError { try log.flushBlocking() }?.code == .closed)

    let weak = FaultInjector(weakDisk())
    let other = try openLog(weak, options: ordered)
    try other.write(body(1))
    weak.plan(DiskFault([.sync], error: .device("", "")))
    #expect(logError { try other.flushBlocking() }?.code == .outcomeUnknown)
    #expect(logError { try other.flushBlocking() }?.code == .poisoned)
    #expect(logError { try other.write(body(2)) }?.code == .poisoned)
  }
}
