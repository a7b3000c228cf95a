// The histories that the format was decided by, each as a test under the number of its decision. Every one of them
// lost, doubled or invented an event under the rule that stood before, or raised a false alarm.

import StrandlineLog
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The decisions of the log` {
  /// A store whose last group is complete and not promised.
  private func storeAboveItsPromise() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1, count: 600))
    try log.write(body(2, count: 600))
    return disk.clone()
  }

  @Test func `L1: a successor that persists without its copied frames is never named`() throws {
    // 1. the open copies LSN 2 into a successor that seals its predecessor before it
    // 2. the power goes at any call, and any effect is lost
    // 3. were the successor named before its content was durable, LSN 2 would be void
    let disk = try storeAboveItsPromise()
    disk.keepsHistory = true
    let log = try openLog(disk, seed: 8)
    #expect(log.recovery.copiedEvents == 1 && disk.segments.count == 2)
    for state in disk.history + [disk.clone()] {
      for loss in state.crashLosses() + (0..<state.unsyncedEffectCount).map({ .only($0) }) {
        #expect(try recovered(state.imageAfterCrash(loss)) == [body(1, count: 600), body(2, count: 600)])
      }
    }
    try log.close()
  }

  @Test func `L1: copied frames are acknowledged: damage to them is refused`() throws {
    let disk = try storeAboveItsPromise()
    try openLog(disk, seed: 8).close()
    let file = disk.segments[1]
    let bytes = try #require(disk.peek(file))
    for at in stride(from: firstGroup, to: firstGroup + 632, by: 9) {
      let damaged = disk.clone()
      var content = bytes
      content[at] ^= 2
      damaged.poke(file, content)
      let error = logError { _ = try openLog(damaged) }
      #expect(error?.code == .damaged && error?.file == file && error?.lsns?.lowerBound == 2)
    }
  }

  @Test func `L2: the seal is where the promise ends, and what is behind it is void for ever`() throws {
    // A frame of a torn group must not come back when a group of the same length follows.
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1, count: 600))
    disk.keepsHistory = true
    try log.write(body(2, count: 600), body(3, count: 600))
    // Of the group that was in flight the second frame is lost, the first is there.
    let before = disk.history[disk.history.count - 1]
    let effects = before.unsyncedEffects()
    let image = before.imageAfterCrash { $0.index < effects.count - 1 }
    let again = try openLog(image, seed: 8)
    #expect(again.recovery.torn && again.durableLSN == 1)
    try again.write(body(9, count: 600), body(8, count: 600))
    try again.close()
    #expect(try recovered(image) == [body(1, count: 600), body(9, count: 600), body(8, count: 600)])
    let opening = try #require(openings(image).last)
    #expect(Int(opening.predecessorEnd) == firstGroup + 632 && opening.predecessorLastLSN == 1)
  }

  private func openings(_ disk: SimulatedDisk) throws -> [OpeningBody] {
    var result: [OpeningBody] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames {
      if let opening = $0.opening { result.append(opening) }
    }
    return result
  }

  @Test func `L2: bytes behind the end cannot unmake what precedes them, whatever they are`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1))
    try log.write(body(2))
    try log.close()
    let file = disk.segments[0]
    let bytes = try #require(disk.peek(file))
    let random = SeededRandom(seed: 3)
    for round in 0..<40 {
      let junk = disk.clone()
      // Noise, or the segment's own earlier bytes, which verify nowhere else.
      junk.poke(file, bytes + (round % 2 == 0 ? random.bytes(3_000) : Array(bytes[4096...])))
      var seen: [[UInt8]] = []
      let log = try openLog(junk) { seen.append($0.body) }
      #expect(seen == [body(1), body(2)])
      try log.close()
    }
  }

  @Test func `L2: a later promise, behind a frame that does not verify, makes it damage`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...4 { try log.write(body(number)) }
    let copy = disk.clone()
    let file = copy.segments[0]
    var bytes = try #require(copy.peek(file))
    // Only the group at the end still says that LSN 2 and 3 were acknowledged.
    let first = firstGroup + 56
    for index in first..<first + 2 * 56 { bytes[index] = 0 }
    copy.poke(file, bytes)
    let error = logError { _ = try openLog(copy) }
    #expect(error?.code == .damaged && error?.lsns == 2...3 && error?.offset == UInt64(first))
    try log.close()
  }

  @Test func `L2: a read that fails is an error and never a tail`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...6 { try log.write(body(number, count: 900)) }
    try log.close()
    let faults = FaultInjector(disk)
    let opened = try openLog(faults, seed: 8)
    let reads = faults.count(.read)
    try opened.close()
    for ordinal in 1...reads {
      let before = disk.everything
      faults.plan(DiskFault([.read], ordinal: ordinal, isSticky: ordinal % 2 == 0, error: .device("", "")))
      #expect(logError { _ = try openLog(faults, seed: 9) }?.code == .io)
      faults.clear()
      #expect(disk.everything == before)
    }
    try openLog(faults, seed: 10).close()
  }

  @Test func `L3: no promise stands inside a group, and none promises more than the sync before it`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    var options = tiny
    options.segmentBytesMax = 64 << 10
    let log = try openLog(faults, options: options)
    for number in 0..<6 {
      for part in 0...number { _ = try log.append(transaction([body(number * 10 + part, count: 90)])) }
      try log.waitUntilDurableBlocking(log.nextLSN - 1)
      if number % 2 == 0 { try log.raiseControl() }
    }
    try log.close()
    var promises: [UInt64] = []
    var lastEnd = UInt32(firstGroup)
    var lsn: UInt64 = 0
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames { frame in
      if frame.header.isSynced {
        // It begins a group, right behind the unit before it.
        #expect(frame.offset == lastEnd && frame.lsn == lsn + 1)
        promises.append(frame.lsn)
      }
      if frame.type == .event {
        lastEnd = frame.offset + UInt32(frame.frameBytes)
        lsn = frame.lsn
      }
    }
    // The six groups, and the end of the segment.
    #expect(promises == [1, 2, 4, 7, 11, 16, 22] && lsn == 21)
    // Segment, list and bounds of the new store; the groups; the seal, and the bounds of the close.
    #expect(faults.count(.sync) == 3 + 6 + 2)
  }

  @Test func `L3: an opening frame follows the last sync of its predecessor`() throws {
    // Crash at every call of a rotation: a successor that is named never promises an end that is not durable.
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...5 { try log.write(body(number, count: 800)) }
    disk.keepsHistory = true
    try log.write(body(6, count: 800))
    #expect(disk.segments.count == 2)
    for state in disk.history {
      for loss in state.crashLosses() {
        let left = try recovered(state.imageAfterCrash(loss))
        #expect(left.count >= 5 && left == (1...6).prefix(left.count).map { body($0, count: 800) })
      }
    }
  }

  @Test func `L10: what a dead writer left unpromised is served, what a living one has in flight is not`() throws {
    let disk = SimulatedDisk()
    let held = RacingDisk(disk)
    var log: Log? = try openLog(disk)
    try log?.write(body(1))
    try log?.write(body(2))
    let reader = try LogReader.open(at: storePath, environment: .simulated(held, seed: 1))
    var seen: [UInt64] = []
    try reader.poll { seen.append($0.lsn) }
    #expect(seen == [1])
    log = nil
    try reader.poll { seen.append($0.lsn) }
    #expect(seen == [1, 2])
    // A writer that comes between the reading and the question makes the answer "held".
    log = try openLog(disk, seed: 8)
    try log?.write(body(3))
    log = nil
    let other = try LogReader.open(at: storePath, environment: .simulated(held, seed: 1))
    held.beforeLock = {
      held.beforeLock = nil
      _ = try disk.lock(storePath + "/LOCK", exclusive: true).map { Keeper.keep($0) }
    }
    seen = []
    try other.poll { seen.append($0.lsn) }
    #expect(seen == [1, 2])
    Keeper.release()
    try other.poll { seen.append($0.lsn) }
    #expect(seen == [1, 2, 3])
  }

  @Test func `L11: a group that fails fails all behind it, and a clean failure gives the numbers back`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults)
    try log.write(body(1))
    let before = disk.everything
    faults.plan(DiskFault([.preallocate], error: .full("", "")))
    let large = try log.append(transaction([body(2, count: 5_000)]))
    let behind = try log.append(transaction([body(3)]))
    #expect(large == 2...2 && behind == 3...3)
    #expect(logError { try log.waitUntilDurableBlocking(behind.upperBound) }?.code == .rejected)
    // LSN 3 depends on LSN 2 (its closure saw it): it must not become durable alone.
    #expect(logError { try log.waitUntilDurableBlocking(large.upperBound) }?.lsns == 2...3)
    #expect(disk.everything.filter { $0.key.hasSuffix(".seg") } == before.filter { $0.key.hasSuffix(".seg") })
    log.resume()
    #expect(log.nextLSN == 2)
    try log.write(body(4))
    try log.close()
    #expect(try recovered(disk) == [body(1), body(4)])
  }

  @Test func `L16: a writer that appends nothing leaves nothing, and each that appends has its own segment`() throws {
    let disk = SimulatedDisk()
    for round in 1...4 {
      let log = try openLog(disk, seed: UInt64(round) + 20)
      if round % 2 == 1 { try log.write(body(round)) }
      try log.close()
    }
    #expect(disk.segments.count == 2)
    #expect(try openings(disk).map(\.predecessorID) == [0, 1])
    // Reserved space is given back at a clean close, and of a predecessor when its successor is durable.
    for file in disk.segments {
      #expect(try #require(disk.peek(file)).count == firstGroup + 56 + closingBytes(places: 1))
    }
  }
}

/// Holds a lock for as long as a test needs it.
private enum Keeper {
  private static let held = LockBox()
  static func keep(_ lock: any FileLock) { held.set(lock) }
  static func release() { held.set(nil) }
}

private final class LockBox: Sendable {
  private let lock = Mutex<(any FileLock)?>(nil)
  func set(_ new: (any FileLock)?) {
    lock.withLock { lock in
      lock?.unlock()
      lock = new
    }
  }
}
