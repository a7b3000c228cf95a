// The moment between two segments: the last one was left, its successor is named and listed, and has its opening frame
// alone. Each user of the log meets it: a compaction that leaves it again, a flush, CONTROL, a clean close.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A log whose next segment is empty` {
  /// Checks what a kill and a power cut leave.
  private func check(_ disk: SimulatedDisk, _ bodies: [[UInt8]], _ what: Comment) throws {
    for image in [disk.clone(), disk.imageAfterCrash(.none)] {
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(image, seed: 1))
      #expect(!report.isDamaged, "\(what): \(report)")
      #expect(try recovered(image) == bodies, what)
    }
  }

  @Test func `is left only once, however often it is asked to`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1))
    for _ in 0..<4 { try log.finishSegment() }
    #expect(disk.segments.count == 2)
    try check(disk, [body(1)], "left")
    try log.compact { $0.map(LogSurvivor.init) }
    try log.finishSegment()
    try log.write(body(2))
    try check(disk, [body(1), body(2)], "written")
    try log.close()
    try check(disk, [body(1), body(2)], "closed")
  }

  /// A log of which the first group in a segment was refused for want of space.
  private func refused(_ disk: SimulatedDisk, _ options: LogOptions) throws -> Log {
    let log = try openLog(disk, options: options)
    try log.write(body(1, count: 2_000))
    // The segment is full and sealed.
    try log.write(body(2, count: 2_000))
    // There is room for the next one, and not for the group.
    disk.capacity = disk.usedBytes + 8_000
    #expect(logError { try log.write(body(3, count: 20_000)) }?.code == .rejected)
    #expect(disk.segments.count == 2)
    disk.capacity = nil
    log.resume()
    return log
  }

  @Test(arguments: [SyncStrength.durable, .ordered])
  func `is left as it is when its first group was refused`(_ strength: SyncStrength) throws {
    var options = tiny
    options.strength = strength
    let bodies = [1, 2].map { body($0, count: 2_000) }
    func disk() -> SimulatedDisk {
      let disk = SimulatedDisk()
      disk.isOrderedSyncWeak = true
      return disk
    }
    let left = disk()
    var log = try refused(left, options)
    try log.finishSegment()
    try log.write(body(4))
    try log.flushBlocking()
    try check(left, bodies + [body(4)], "left")

    let flushed = disk()
    log = try refused(flushed, options)
    try log.flushBlocking()
    try log.raiseControl()
    try check(flushed, bodies, "flushed")
    try log.write(body(4))
    #expect(try recovered(flushed) == bodies + [body(4)])

    let closed = disk()
    log = try refused(closed, options)
    try log.close()
    try check(closed, bodies, "closed")
    #expect(try bound(closed.imageAfterCrash(.none)).lsn == 2)
  }

  @Test func `L4: loses nothing, wherever a crash falls while it is made, gone on in and left`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(0, count: 1_300))
    disk.keepsHistory = true
    var marks: [(calls: Int, acknowledged: Int)] = [(0, 1)]
    for number in 1..<6 {
      try log.write(body(number, count: 1_300))
      marks.append((disk.history.count, number + 1))
    }
    try log.close()
    #expect(disk.segments.count == 2)
    var images = 0
    for (call, state) in (disk.history + [disk.clone()]).enumerated() {
      let acknowledged = marks.last { $0.calls <= call }?.acknowledged ?? 1
      let losses = state.crashLosses().map { ($0.description, state.imageAfterCrash($0)) }
      for (loss, image) in losses + [("the process only", state.clone())] {
        images += 1
        let report = try LogVerifier.verify(at: storePath, environment: .simulated(image, seed: 1))
        #expect(!report.isDamaged, "before call \(call + 1), \(loss): \(report)")
        let found = try recovered(image)
        #expect(found.count >= acknowledged, "before call \(call + 1), \(loss)")
        #expect(found == (0..<found.count).map { body($0, count: 1_300) }, "before call \(call + 1), \(loss)")
      }
    }
    #expect(images > 80)
  }

  @Test func `is bounded on the medium by a clean close, also if CONTROL was raised before`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1, count: 2_000))
    // It seals the segment.
    try log.write(body(2, count: 2_000))
    try log.raiseControl()
    try log.close()
    #expect(try bound(disk.imageAfterCrash(.none)).lsn == 2)
  }

  @Test func `is bounded while it takes nothing`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1))
    disk.capacity = disk.usedBytes
    #expect(logError { try log.write(body(2, count: 20_000)) }?.code == .rejected)
    try log.raiseControl()
    #expect(try bound(disk).lsn == 1)
    disk.capacity = nil
    log.resume()
    try log.close()
  }
}
