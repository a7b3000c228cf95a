// Appending: how many syncs a commit costs, that many share one, in which order LSNs are given, and what a
// cancelled task learns.

import Dispatch
import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Appending` {
  @Test func `costs one write and one sync, and no sync of a folder but for a new segment`() throws {
    let faults = FaultInjector(SimulatedDisk())
    var options = tiny
    options.segmentBytesMax = 64 << 10
    options.preallocationFirstStepBytes = 64 << 10
    let log = try openLog(faults, options: options)
    for number in 0..<20 {
      faults.resetCounts()
      try log.write(body(number, count: 500), body(number, count: 3))
      // CONTROL is compared before it.
      #expect(faults.count(.sync) == 1 && faults.count(.write) == 1 && faults.count(.read) == 1)
      #expect(faults.totalCount == 3)
    }
    try log.close()
    let again = try openLog(faults, options: options, seed: 8)
    faults.resetCounts()
    try again.write(body(1))
    // The new segment and the list of segments each come under another name, synced.
    #expect(faults.count(.syncDirectory) == 2 && faults.count(.sync) == 3 && faults.count(.create) == 2)
    faults.resetCounts()
    try again.write(body(2))
    #expect(faults.totalCount == 3)
    faults.resetCounts()
    #expect(try again.read(1).body == body(0, count: 500))
    #expect(faults.count(.read) == 1)
    try again.close()
  }

  @Test func `many at once shares one sync, up to the limits of a group`() throws {
    let faults = FaultInjector(SimulatedDisk())
    var options = tiny
    options.segmentBytesMax = 1 << 20
    // Of 56 bytes each.
    options.groupBytesMax = 50 * 56
    let log = try openLog(faults, options: options)
    let lsns = try (0..<120).map { try log.append(transaction([body($0)])).upperBound }
    #expect(lsns == Array(1...120))
    #expect(log.durableLSN == 0 && log.nextLSN == 121)
    #expect(logError { _ = try log.read(1) }?.code == .notDurable)
    #expect(logError { _ = try log.read(121) }?.code == .noSuchLSN)
    #expect(logError { try log.waitUntilDurableBlocking(121) }?.code == .noSuchLSN)
    faults.resetCounts()
    try log.waitUntilDurableBlocking(50)
    #expect(faults.count(.sync) == 1 && log.durableLSN == 50)
    try log.waitUntilDurableBlocking(120)
    #expect(faults.count(.sync) == 3)
    try log.close()
  }

  @Test func `a group is bounded by bytes, and a larger transaction is one alone`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    var options = tiny
    options.segmentBytesMax = 1 << 20
    options.groupBytesMax = 4_000
    let log = try openLog(faults, options: options)
    for number in 0..<3 { _ = try log.append(transaction([body(number, count: 1_800)])) }
    _ = try log.append(transaction([body(7, count: 9_000)]))
    faults.resetCounts()
    try log.waitUntilDurableBlocking(4)
    #expect(faults.count(.sync) == 3)
    try log.close()
    #expect(try recovered(disk).map(\.count) == [1_800, 1_800, 1_800, 9_000])
  }

  @Test func `a transaction never spans segments, and one too large for any has its own`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    var bodies: [[UInt8]] = []
    for (number, size) in [100, 3_000, 2_000, 30_000, 10, 3_700, 3_700].enumerated() {
      bodies += [body(number, count: size), body(number + 50, count: 30)]
      try log.write(bodies[bodies.count - 2], bodies[bodies.count - 1])
    }
    try log.close()
    var seen: [LogEvent] = []
    try openLog(disk, seed: 9) { seen.append($0) }.close()
    #expect(seen.map(\.body) == bodies)
    for event in seen where !event.isFirst {
      #expect(seen[Int(event.lsn) - 2].segmentID == event.segmentID)
    }
    // Whatever goes beyond the soft size is the last of its segment: the large one, and the one that fills it.
    var beyond = 0
    for (event, next) in zip(seen, seen.dropFirst()) where event.isLast {
      let end = Int(event.offset) + LogFormat.frameBytes(bodyLength: event.body.count)
      if end >= tiny.segmentBytesMax { beyond += 1 }
      #expect((end >= tiny.segmentBytesMax) == (next.segmentID != event.segmentID), "LSN \(event.lsn) ends at \(end)")
    }
    #expect(beyond == 3)
  }

  @Test func `what is above the limit is refused before anything, and the limit itself is taken`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.transactionBytesMax = 10_000
    let log = try openLog(disk, options: options)
    #expect(logError { try log.write(body(1, count: 9_969)) }?.code == .transactionTooLarge)
    #expect(log.nextLSN == 1)
    try log.write(body(1, count: 9_968))
    try log.write([])
    try log.close()
    #expect(try recovered(disk) == [body(1, count: 9_968), []])
    var large = LogTransaction()
    for _ in 0..<3 { large.add(schema: 0, body: [UInt8](repeating: 1, count: 24 << 20)) }
    #expect(large.count == 3 && large.frameBytes > 64 << 20)
    #expect(logError { _ = try openLog(SimulatedDisk()).append(large) }?.code == .transactionTooLarge)
  }

  @Test func `64 MiB in one transaction, with a body larger than any chunk`() throws {
    let folder = try TemporaryFolder()
    defer { folder.remove() }
    let path = folder.path + "/large.strand"
    let log = try Log.open(at: path, role: .store, environment: .real) { _ in }
    try log.write(body(1))
    let large = [UInt8](repeating: 7, count: (64 << 20) - 2 * 32 - 8)
    try log.write(large, [1])
    try log.write(body(2))
    #expect(try log.read(2).body == large)
    try log.close()
    var counts: [Int] = []
    try Log.open(at: path, role: .store, environment: .real) { counts.append($0.body.count) }.close()
    #expect(counts == [20, large.count, 1, 20])
  }

  @Test func `from many tasks at once, LSNs follow the order of calls and syncs are shared`() async throws {
    let (tasks, rounds) = (64, 10)
    let faults = FaultInjector(SimulatedDisk())
    var options = tiny
    options.segmentBytesMax = 1 << 20
    options.preallocationFirstStepBytes = 1 << 20
    let disk = HoldingDisk(faults)
    let log = try Log.open(
      at: storePath, role: .store, options: options,
      // Where time is simulated a task leads and its thread is held, which may be the only one.
      environment: SystemEnvironment(fileSystem: disk, clock: RealClock(), random: SeededRandom(seed: 7)),
      createIfAbsent: true, replay: { _ in })
    let order = Noted()
    faults.resetCounts()
    disk.hold(log, callers: tasks)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<tasks {
        group.addTask {
          defer { disk.callerEnds() }
          for round in 0..<rounds {
            let content = body(task * 100 + round)
            // The call and the note of it under one lock: the order of calls is the order of LSNs.
            let lsn = try order.list.withLock { order in
              let lsn = try log.append(transaction([content])).upperBound
              order.append((lsn, content))
              return lsn
            }
            disk.appended()
            try await log.waitUntilDurable(lsn)
            #expect(log.durableLSN >= lsn)
            #expect(try log.read(lsn).body == content)
          }
        }
      }
      try await group.waitForAll()
    }
    let issued = order.list.withLock { $0 }
    #expect(issued.map(\.lsn) == Array(1...UInt64(tasks * rounds)))
    // A task that one sync has not served had appended when that ended, so the next one serves it.
    #expect(faults.count(.sync) <= 2 * rounds, "\(faults.count(.sync)) syncs for \(tasks * rounds) commits")
    try log.close()
    var seen: [[UInt8]] = []
    try openLog(faults, options: options, seed: 8) { seen.append($0.body) }.close()
    #expect(seen == issued.map(\.body))
  }

  // The threads of these tests are the system's own: a queue of Dispatch shares its threads with tasks, and a test that
  // blocks or spins there while it waits for another one can take the last.

  @Test func `from threads and tasks together leaves no caller waiting`() async throws {
    let log = try openLog(SimulatedDisk())
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<16 {
        group.addTask {
          for round in 0..<10 {
            let lsn = try log.append(transaction([body(number * 10 + round, count: 700)])).upperBound
            try await log.waitUntilDurable(lsn)
          }
        }
        group.addTask {
          try await onThread("test") {
            for round in 0..<10 { try log.write(body(1_000 + number * 10 + round, count: 300)) }
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(log.durableLSN == 320)
    try log.close()
  }

  @Test(arguments: [Overlap.concurrent, .inTurns])
  func `a thread that has led long enough leaves the others to another leader`(overlap: Overlap) async throws {
    let slow = DiskWithSlowSync(SimulatedDisk())
    var options = tiny
    options.groupBytesMax = 1
    let log = try openLog(slow, options, overlap)
    let rounds: UInt64 = 20
    try await onThread("test") {
      for round in 0..<rounds {
        // During the first sync two more threads queue up; the first needs only its own group. Most of them wait by
        // the time when it ends; the others lead, which must be right too.
        let others = Mutex<[BlockingThread]>([])
        slow.duringNextSync {
          for number in 2...3 {
            do {
              let other = try BlockingThread.start(name: "other") {
                do { try log.write(body(number)) } catch { Issue.record("\(error)") }
              }
              others.withLock { $0.append(other) }
            } catch { Issue.record("\(error)") }
          }
          while log.nextLSN < round * 3 + 4 {}
        }
        try log.write(body(1))
        for other in others.withLock({ $0 }) { other.join() }
        #expect(log.durableLSN == round * 3 + 3)
      }
    }
    try log.close()
  }

  @Test(arguments: [Overlap.concurrent, .inTurns])
  func `a thread does not wait for a task to run`(overlap: Overlap) async throws {
    let slow = DiskWithSlowSync(SimulatedDisk())
    var options = tiny
    options.groupBytesMax = 1
    let log = try openLog(slow, options, overlap)
    for round: UInt64 in 0..<20 {
      let isWritten = Flag()
      let hasGivenUp = Flag()
      try await withThrowingTaskGroup(of: Void.self) { group in
        let thread = Mutex<BlockingThread?>(nil)
        // During the sync of a group that two tasks wait for, a thread queues up for the next one, and tasks that do
        // not end before it is written take all threads that tasks run on.
        slow.duringNextSync {
          do {
            let started = try BlockingThread.start(name: "other") {
              do { try log.write(body(2)) } catch { Issue.record("\(error)") }
              isWritten.set()
            }
            thread.withLock { $0 = started }
          } catch { Issue.record("\(error)") }
          for _ in 0..<64 {
            Task.detached {
              for _ in 0..<5_000_000 {
                if isWritten.isSet || hasGivenUp.isSet { return }
              }
              hasGivenUp.set()
            }
          }
          while log.nextLSN < round * 2 + 3 {}
        }
        let lsn = try log.append(transaction([body(1)])).upperBound
        for _ in 0..<2 { group.addTask { try await log.waitUntilDurable(lsn) } }
        try await group.waitForAll()
        try await onThread("test") { thread.withLock { $0 }?.join() }
      }
      try #require(!hasGivenUp.isSet, "round \(round)")
      #expect(log.durableLSN == round * 2 + 2)
    }
    try log.close()
  }

  @Test func `in turns a group is written by the task that waits for it, before anything else runs`() async throws {
    let slow = DiskWithSlowSync(SimulatedDisk())
    let log = try openLog(slow, tiny, .inTurns)
    let runner = OneAtATimeExecutor()
    for round in 0..<20 {
      let order = Order()
      slow.duringNextSync { order.add("sync") }
      // The second task is ready when the first one waits. On a thread of its own the sync could come after it.
      await withTaskGroup(of: Void.self) { group in
        group.addTask(executorPreference: runner) {
          do {
            let lsn = try log.append(transaction([body(round)])).upperBound
            try await log.waitUntilDurable(lsn)
          } catch { Issue.record("\(error)") }
        }
        group.addTask(executorPreference: runner) { order.add("other") }
      }
      #expect(order.first == "sync", "round \(round)")
    }
    #expect(log.durableLSN == 20)
    try log.close()
  }

  @Test func `a cancelled task waits for the outcome all the same`() async throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    let task = Task {
      while !Task.isCancelled { await Task.yield() }
      let lsn = try log.append(transaction([body(1)])).upperBound
      try await log.waitUntilDurable(lsn)
      return lsn
    }
    task.cancel()
    #expect(try await task.value == 1)
    #expect(log.durableLSN == 1)
    try log.close()
  }

  @Test func `a failure reaches every task that waits, and every later one`() async throws {
    let faults = FaultInjector(SimulatedDisk())
    let log = try openLog(faults)
    try log.write(body(0))
    faults.plan(DiskFault([.sync], error: .device("", "")))
    let lsns = try (1...20).map { try log.append(transaction([body($0)])).upperBound }
    await withTaskGroup(of: LogError.Code?.self) { group in
      for lsn in lsns {
        group.addTask {
          do {
            try await log.waitUntilDurable(lsn)
            return nil
          } catch { return (error as? LogError)?.code }
        }
      }
      for await code in group { #expect(code == .outcomeUnknown) }
    }
    try await log.waitUntilDurable(1)
    guard case .poisoned = log.state else {
      Issue.record("not poisoned")
      return
    }
    #expect(logError { try log.close() }?.code == .outcomeUnknown)
    #expect(logError { _ = try log.append(transaction([[1]])) }?.code == .closed)
    try log.close()
  }

  @Test func `that no caller waits for is written by close`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<30 { _ = try log.append(transaction([body(number, count: 400)])) }
    try log.close()
    #expect(try recovered(disk.imageAfterCrash(.none)) == (0..<30).map { body($0, count: 400) })
    try log.close()
    #expect(logError { _ = try log.read(1) }?.code == .closed)
    #expect(logError { try log.flushBlocking() }?.code == .closed)
    // What is durable stays so, whenever a caller asks.
    try log.waitUntilDurableBlocking(1)
    #expect(logError { try log.waitUntilDurableBlocking(31) }?.code == .closed)
    log.resume()
    guard case .closed = log.state else {
      Issue.record("not closed")
      return
    }
  }

  @Test func `is promised after a while by the idle thread, once`() async throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.controlIntervalMilliseconds = 200
    let clock = WatchClock()
    let log = try Log.open(
      at: storePath, role: .store, options: options,
      environment: SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 3))
    ) { _ in }
    try log.write(body(1))
    // No caller waits for the second; the watch writes it too.
    _ = try log.append(transaction([body(2)]))
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1))
    var seen = 0
    for _ in 0..<10_000 where seen < 2 {
      clock.wake()
      await Task.yield()
      try reader.poll { _ in seen += 1 }
    }
    #expect(seen == 2 && reader.lastLSN == 2)
    let end = disk.everything
    try log.raiseControl()
    #expect(disk.everything == end)
    try log.close()
  }

  @Test func `a large queue costs what it holds`() throws {
    var options = LogOptions(controlIntervalMilliseconds: nil)
    options.lockWaitMilliseconds = 0
    let log = try openLog(SimulatedDisk(), options: options)
    for number in 0..<20_000 {
      var one = LogTransaction()
      one.add(schema: 1, body: [UInt8(truncatingIfNeeded: number)])
      _ = try log.append(one)
    }
    try log.waitUntilDurableBlocking(20_000)
    #expect(try log.read(12_345).body == [UInt8(truncatingIfNeeded: 12_344)])
    try log.close()
  }
}

/// What happened, in this order.
private final class Order: Sendable {
  private let names = Mutex<[String]>([])
  var first: String? { names.withLock { $0.first } }
  func add(_ name: String) { names.withLock { $0.append(name) } }
}

/// A log in simulated time that writes groups for tasks in one of the two ways.
private func openLog(_ fileSystem: any FileSystem, _ options: LogOptions, _ overlap: Overlap) throws -> Log {
  try Log.open(
    at: storePath, role: .store, options: options,
    environment: SystemEnvironment(
      fileSystem: fileSystem, clock: SimulatedClock(autoAdvance: true), random: SeededRandom(seed: 7),
      overlap: overlap)
  ) { _ in }
}

/// A disk on which something happens during a sync of a file.
final class DiskWithSlowSync: ForwardingFileSystem {
  let base: any FileSystem
  private let action = Mutex<(@Sendable () -> Void)?>(nil)

  init(_ base: any FileSystem) { self.base = base }

  func duringNextSync(_ body: @escaping @Sendable () -> Void) { action.withLock { $0 = body } }
  fileprivate func act() {
    let body = action.withLock { action in
      defer { action = nil }
      return action
    }
    if let body { LockPlace.asAnotherThread(body) }
  }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    SlowFile(self, try folder.open(name, mode))
  }
}

private final class SlowFile: ForwardingFile {
  let disk: DiskWithSlowSync
  let base: any File
  init(_ disk: DiskWithSlowSync, _ base: any File) {
    self.disk = disk
    self.base = base
  }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    disk.act()
    try base.sync(strength)
  }
}

/// A disk that holds each sync until every caller that has not ended waits for one, however the machine schedules them. Each
/// appends one event at a time.
private final class HoldingDisk: ForwardingFileSystem {
  let base: any FileSystem
  private struct State {
    var log: Log?
    var callers = 0
    var appended: UInt64 = 0
    /// What was durable when the sync that is held began.
    var durable: UInt64 = 0
    var isHeld = false

    var mayGo: Bool { appended - durable >= UInt64(callers) }
  }
  private let state = Mutex(State())
  private let free = DispatchSemaphore(value: 0)

  init(_ base: any FileSystem) { self.base = base }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    HeldFile(disk: self, base: try folder.open(name, mode))
  }

  func hold(_ log: Log, callers: Int) { state.withLock { ($0.log, $0.callers) = (log, callers) } }
  func appended() { change { $0.appended += 1 } }
  func callerEnds() { change { $0.callers -= 1 } }

  private func change(_ body: (inout State) -> Void) {
    let isFree = state.withLock { state in
      body(&state)
      guard state.isHeld, state.mayGo else { return false }
      state.isHeld = false
      return true
    }
    if isFree { free.signal() }
  }

  fileprivate func holdSync() {
    guard let durable = state.withLock({ $0.log })?.durableLSN else { return }
    let waits = state.withLock { state in
      state.durable = durable
      state.isHeld = !state.mayGo
      return state.isHeld
    }
    if waits { free.wait() }
  }
}

private final class HeldFile: ForwardingFile {
  let base: any File
  private let disk: HoldingDisk
  init(disk: HoldingDisk, base: any File) { (self.disk, self.base) = (disk, base) }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    disk.holdSync()
    try base.sync(strength)
  }
}

/// What was appended, in the order of calls.
private final class Noted: Sendable {
  let list = Mutex<[(lsn: UInt64, body: [UInt8])]>([])
}
