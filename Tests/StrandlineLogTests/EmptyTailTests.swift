// The moment between two segments: the last one was left, its successor was prepared and holds nothing yet, because the
// opening frame goes in with the first group. The log still ends in the last one, for each of its users: a compaction
// that leaves it again, a flush, CONTROL, a clean close.

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
    try log.prepareSegment()
    try log.finishSegment()
    try log.prepareSegment()
    for _ in 0..<3 { try log.finishSegment() }
    try check(disk, [body(1)], "left")
    try log.compact { $0.map(LogSurvivor.init) }
    try log.finishSegment()
    try log.write(body(2))
    try check(disk, [body(1), body(2)], "written")
    try log.close()
    try check(disk, [body(1), body(2)], "closed")
  }

  /// A log of which the first group in a prepared segment was refused for want of space.
  private func refused(_ disk: SimulatedDisk, _ options: LogOptions) throws -> Log {
    let log = try openLog(disk, options: options)
    try log.write(body(1, count: 2_000))
    try log.prepareSegment()
    // The segment is full and sealed.
    try log.write(body(2, count: 2_000))
    disk.capacity = disk.usedBytes
    #expect(logError { try log.write(body(3, count: 20_000)) }?.code == .rejected)
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
