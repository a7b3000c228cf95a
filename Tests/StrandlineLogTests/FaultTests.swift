// Calls that fail: every call of a scenario, once each, with every error that matters. Whatever fails, nothing is
// acknowledged that is not durable, a clean rejection leaves nothing on disk, a failed sync is never repeated, and
// the next open finds a prefix with everything acknowledged.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

/// A writer that goes on as long as it can, and the list of what it may claim.
private final class Writer {
  let disk = SimulatedDisk()
  let faults: FaultInjector
  var log: Log?
  /// What was appended and not rejected, transaction by transaction.
  var issued: [[UInt8]] = []
  var acknowledged = 0
  var number = 0
  var errors: [LogError] = []

  init() {
    disk.failedSyncLosesPages = true
    faults = FaultInjector(disk)
  }

  /// Opens, appends over several segments with a reopen and promises in between, and closes.
  func run() {
    step { try self.open() }
    for index in 0..<9 {
      write([20 + index, 900])
      if index % 3 == 1 { step { try self.log?.raiseControl() } }
      if index == 4 {
        step { try self.log?.close() }
        self.log = nil
        step { try self.open() }
      }
    }
    step { try self.log?.close() }
    log = nil
  }

  func open() throws {
    var found: [[UInt8]] = []
    log = try openLog(faults, seed: UInt64(number) + 5) { found.append($0.body) }
    check(found)
    // What an open has returned is there to stay.
    issued = found
    acknowledged = found.count
  }

  /// Holds what an open returned against the list.
  func check(_ found: [[UInt8]], _ comment: String = "") {
    #expect(found.count >= acknowledged && found.count <= issued.count, "\(comment)")
    #expect(Array(issued.prefix(found.count)) == found, "\(comment)")
    #expect(found.count % 2 == 0, "\(comment): a part of a transaction")
  }

  func write(_ sizes: [Int]) {
    if log == nil { step { try self.open() } }
    guard let log else { return }
    number += 1
    let bodies = sizes.map { body(number, count: $0) }
    do {
      let lsns = try log.append(transaction(bodies))
      issued += bodies
      try log.waitUntilDurableBlocking(lsns.upperBound)
      acknowledged = issued.count
    } catch let error as LogError {
      failed(error)
    } catch {
      Issue.record("\(error)")
    }
  }

  private func step(_ body: () throws -> Void) {
    do {
      try body()
    } catch let error as LogError {
      failed(error)
    } catch {
      Issue.record("\(error)")
    }
  }

  private func failed(_ error: LogError) {
    errors.append(error)
    guard let log else { return }
    switch log.state {
    case .open, .closed: break
    case .rejecting(let cause):
      #expect(cause.code == .rejected && cause.underlying != nil)
      // Nothing of it is anywhere, now or later.
      issued.removeSubrange(acknowledged...)
      log.resume()
      #expect(log.nextLSN == UInt64(acknowledged + 1))
    case .poisoned(let cause):
      #expect(cause.code == .outcomeUnknown)
      let syncs = faults.count(.sync) + faults.count(.syncDirectory)
      #expect(logError { try log.write([1]) }?.code == .poisoned)
      #expect(logError { try log.flushBlocking() }?.code == .poisoned)
      if issued.count > acknowledged {
        #expect(logError { try log.waitUntilDurableBlocking(UInt64(issued.count)) }?.code == .outcomeUnknown)
      }
      for lsn in 0..<acknowledged {
        #expect((try? log.read(UInt64(lsn + 1)).body) == issued[lsn], "a durable event in a poisoned log")
      }
      #expect(logError { try log.close() }?.code == .outcomeUnknown)
      #expect(faults.count(.sync) + faults.count(.syncDirectory) == syncs, "no sync after one that failed")
      self.log = nil
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `When a call fails` {
  /// The scenario with one fault; what is left must open, at once and after a power cut.
  private func run(_ fault: DiskFault?, _ comment: String) -> Writer {
    let writer = Writer()
    if let fault { writer.faults.plan(fault) }
    writer.run()
    writer.log = nil
    if fault != nil { #expect(writer.faults.struckCount > 0, "\(comment)") }
    writer.faults.clear()
    #expect(!writer.errors.contains { [.damaged, .missingSegment, .foreignSegment].contains($0.code) }, "\(comment)")
    for loss in [CrashLoss.all, .none] {
      do {
        writer.check(try recovered(writer.disk.imageAfterCrash(loss)), "\(comment), \(loss)")
      } catch {
        Issue.record("\(comment), \(loss): \(error)")
      }
    }
    return writer
  }

  @Test func `any one of them, once`() {
    let healthy = run(nil, "no fault")
    #expect(healthy.errors.isEmpty && healthy.acknowledged == 18)
    var tried = 0
    for call in DiskCall.allCases {
      let count = healthy.faults.count(call)
      for ordinal in stride(from: 1, through: count, by: 1) {
        var moments: [DiskFault.Moment] = [.before]
        if call.isMutating { moments.append(.after) }
        if call == .write { moments += [.afterBytes(1), .afterBytes(100), .afterBytes(600)] }
        for moment in moments {
          tried += 1
          _ = run(
            DiskFault([call], ordinal: ordinal, moment: moment, error: .device("", "")),
            "\(call) number \(ordinal) \(moment)")
        }
      }
    }
    print("faults: \(tried) single failures tried")
    #expect(tried > 150)
  }

  @Test func `every sync: nothing later is acknowledged, and none is repeated`() {
    let healthy = run(nil, "no fault")
    for call in [DiskCall.sync, .syncDirectory] {
      for ordinal in 1...healthy.faults.count(call) {
        for error in [SystemError.device("", ""), .full("", ""), .interrupted("", "")] {
          let writer = run(DiskFault([call], ordinal: ordinal, error: error), "\(call) \(ordinal) \(error)")
          #expect(!writer.errors.isEmpty, "\(call) number \(ordinal) failed and no caller got an error")
        }
      }
    }
  }

  @Test func `a full disk at every reservation and creation is a clean rejection`() throws {
    for call in [DiskCall.preallocate, .create] {
      for ordinal in 1...6 {
        let disk = SimulatedDisk()
        let faults = FaultInjector(disk)
        let log = try openLog(faults)
        var bodies: [[UInt8]] = []
        faults.plan(DiskFault([call], ordinal: ordinal, isSticky: true, error: .full("", "")))
        var rejected = false
        for number in 0..<20 where !rejected {
          let content = body(number, count: 1_500)
          let first = try log.append(transaction([content]))
          let second = try log.append(transaction([content]))
          let error = logError { try log.waitUntilDurableBlocking(second.upperBound) }
          guard let error else {
            bodies += [content, content]
            continue
          }
          // What was in flight was rejected whole, with what was queued behind it; what a group before it made
          // durable stays.
          rejected = true
          #expect(error.code == .rejected && error.isFull)
          if log.durableLSN >= first.upperBound { bodies.append(content) }
          #expect(log.durableLSN == UInt64(bodies.count))
        }
        #expect(rejected, "\(call) \(ordinal)")
        let before = disk.everything
        #expect(logError { try log.write([1]) }?.code == .rejected)
        guard case .rejecting = log.state else {
          Issue.record("not rejecting")
          continue
        }
        #expect(try recovered(disk.imageAfterCrash(.all)) == bodies)
        #expect(disk.everything == before)
        // Space is back: no reopening is needed.
        faults.clear()
        log.resume()
        for number in 50..<60 {
          bodies.append(body(number, count: 1_000))
          #expect(try log.write(body(number, count: 1_000)).lowerBound == UInt64(bodies.count))
        }
        try log.close()
        #expect(try recovered(disk) == bodies)
        #expect(disk.paths.allSatisfy { !$0.hasSuffix(".tmp") })
      }
    }
  }

  @Test func `a disk without room takes reads, a close and, after room was made, appends`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1, count: 900))
    disk.capacity = disk.usedBytes
    #expect(logError { for number in 0..<9 { try log.write(body(number, count: 900)) } }?.isFull == true)
    #expect(try log.read(1).body == body(1, count: 900))
    disk.capacity = nil
    log.resume()
    try log.write(body(77))
    disk.capacity = disk.usedBytes
    try log.close()
  }

  @Test func `a group that fails takes down what is queued behind it, and those are not tried`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    var options = tiny
    options.groupBytesMax = 1
    let log = try openLog(faults, options: options)
    try log.write(body(1))
    faults.plan(DiskFault([.sync], error: .device("", "")))
    let lsns = try (2...5).map { try log.append(transaction([body($0)])).lowerBound }
    let writes = faults.count(.write)
    for lsn in lsns {
      let error = logError { try log.waitUntilDurableBlocking(lsn) }
      #expect(error?.code == .outcomeUnknown && error?.lsns == 2...5)
    }
    #expect(faults.count(.write) == writes + 1)
    #expect(log.durableLSN == 1)
  }

  /// The first segment is made in the temporary folder of the store, a later one under a temporary name.
  @Test(arguments: [DiskCall.preallocate, .write, .sync], [false, true])
  func `an error names the live segment where it is, not where it was made`(_ call: DiskCall, isLater: Bool) throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults)
    while isLater && disk.segments.count < 2 { try log.write(body(1, count: 900)) }
    let path = try #require(disk.segments.last)
    faults.plan(DiskFault([call], isSticky: true, error: SystemError(call: "", subject: "", errno: 28)))
    let error = logError { try log.write(body(2, count: 5_000)) }
    #expect(error?.underlying?.subject == path && error?.underlying?.call == call.systemName)
    #expect(error?.message.contains(".init-") == false && error?.message.contains(".tmp") == false)
  }

  @Test func `reads that end short are read as the end they pretend, and nothing is invented`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(body(number, count: 800)) }
    try log.close()
    let faults = FaultInjector(disk)
    faults.shortReadBytes = 100
    let error = logError { _ = try openLog(faults) }
    #expect(error?.code == .damaged)
    faults.clear()
    #expect(try recovered(disk).count == 3)
  }
}
