// One writer on one disk, and what its log must hold at each call: the hand of the crash tests (the oracle stands in
// Proof/LogBounds.swift).

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// A writer. It waits on its own thread, so that a run is the same each time.
final class LogScene {
  let disk: SimulatedDisk
  private let environment: SystemEnvironment
  private let options: LogOptions
  private var bounds: LogBounds
  private var log: Log?
  /// What the last open returned.
  private(set) var replayed: [LogEvent] = []
  /// The bounds as they changed, each with the number of mutating calls before.
  private var marks: [(calls: Int, bounds: LogBounds)] = []
  private var callsForgotten = 0
  private let seed: UInt64
  /// What was really done beside appends.
  private(set) var work = UpkeepWork()
  /// CONTROL covers everything up to here: it was raised, or the log was closed or opened.
  private(set) var raisedLSN = 0

  /// Of a long log an open reads only so many events one by one.
  private static let readsMax = 24

  init(
    disk: SimulatedDisk, seed: UInt64, strength: SyncStrength, after bounds: LogBounds = LogBounds(issued: []),
    options: LogOptions = LogHistories.options
  ) {
    self.disk = disk
    self.seed = seed
    self.bounds = bounds
    var options = options
    options.strength = strength
    self.options = options
    disk.isOrderedSyncWeak = strength == .ordered
    environment = .simulated(disk, seed: seed)
    note()
  }

  private func note() { marks.append((disk.callCount - callsForgotten, bounds)) }

  /// Calls are counted from here on.
  func forgetCalls() {
    callsForgotten = disk.callCount
    marks = [(0, bounds)]
  }

  /// What must hold if the power goes before the call of this number (counted from 0).
  func bounds(beforeCall call: Int) -> LogBounds {
    var result = marks[0].bounds
    for mark in marks where mark.calls <= call { result = mark.bounds }
    return result
  }

  func open() throws {
    replayed = []
    let log = try Log.open(
      at: LogHistories.path, role: .store, options: options, environment: environment
    ) { replayed.append($0) }
    self.log = log
    var reach = try bounds.check(replayed, by: "an open")
    // Behind the last event that is there may be some that were given up: the log still counts them.
    if !bounds.droppable.isEmpty, log.durableLSN > UInt64(reach) {
      reach = Int(min(log.durableLSN, UInt64(bounds.issued.count)))
    }
    guard log.durableLSN == UInt64(reach), log.nextLSN == UInt64(reach + 1) else {
      throw LogProblem("an open up to LSN \(reach) says that LSN \(log.durableLSN) is durable")
    }
    let stride = max(1, replayed.count / Self.readsMax)
    for (index, event) in replayed.enumerated() where index % stride == 0 || index == replayed.count - 1 {
      guard try log.read(event.lsn).has(event.content) else {
        throw LogProblem("LSN \(event.lsn) was read otherwise than replayed")
      }
    }
    bounds.settle(on: replayed, reach: reach)
    bounds.flushed = options.strength == .durable ? reach : min(bounds.flushed, reach)
    note()
  }

  /// As a process that dies: nothing is flushed.
  func letGo() { log = nil }

  func perform(_ operation: LogOperation) throws {
    switch operation {
    case .small: try append([[11]])
    case .three: try append([[40, 0, 90]])
    case .large: try append([[1_500]])
    case .filling: try append([[options.segmentBytesMax - 4_492]])
    case .pair: try append([[24], [300, 7]])
    case .double: try append([[800, 1_100]])
    case .idle:
      try log?.raiseControl()
      raisedLSN = bounds.flushed
    case .close:
      try log?.close()
      bounds.flushed = bounds.acknowledged
      raisedLSN = bounds.acknowledged
      try open()
    case .vanish:
      letGo()
      try open()
    case .failedSync:
      disk.failedSyncLosesPages = true
      for call in disk.callCount + 1...disk.callCount + Self.callsMax {
        disk.failSync(atCall: call, with: .device("fdatasync", ""))
      }
      let rejection = try failingAppend([[60], [700]])
      disk.healSyncs()
      guard rejection != nil else { throw LogProblem("a sync failed, and the append was acknowledged") }
      letGo()
      try open()
    case .full:
      disk.capacity = disk.usedBytes
      let rejection = try failingAppend([[900], [options.preallocationStepBytesMax]])
      disk.capacity = nil
      if rejection != nil { log?.resume() }
      try goOnAfterRefusal()
    case .maintain: try log?.maintain()
    case .merge:
      guard let log else { throw LogProblem("the scene has no writer") }
      let before = log.upkeepReport.segmentsMerged
      try log.mergeSegments()
      work.merged += log.upkeepReport.segmentsMerged - before
      try readBack(log)
    case .compact: try compact()
    }
  }

  /// The log may have gone on in a segment that is empty, because its first group was refused: an owner need not append
  /// next.
  private func goOnAfterRefusal() throws {
    switch bounds.issued.count % 4 {
    case 0: break
    case 1:
      try log?.flushBlocking()
      bounds.flushed = bounds.acknowledged
      try perform(.idle)
    case 2: try log?.finishSegment()
    default: return try perform(.close)
    }
    try append([[5]])
  }

  /// More calls than an append makes.
  private static let callsMax = 24

  /// Appends, and returns the error that the log gave; what a clean rejection refused is issued no more.
  private func failingAppend(_ transactions: [[Int]]) throws -> LogError? {
    do {
      try append(transactions)
      return nil
    } catch let error as LogError {
      guard !disk.isOff, let log else { throw error }
      if case .rejecting = log.state {
        // A group before the refused one may have gone through.
        bounds.issued.removeSubrange(Int(log.durableLSN)...)
        acknowledge(bounds.issued.count)
        note()
      }
      return error
    }
  }

  /// Appends transactions that have events of these sizes, and waits for the last one.
  private func append(_ transactions: [[Int]]) throws {
    guard let log else { throw LogProblem("the scene has no writer") }
    var last: UInt64 = 0
    for sizes in transactions {
      var transaction = LogTransaction()
      let first = UInt64(bounds.issued.count + 1)
      var events: [LogEventContent] = []
      for (index, size) in sizes.enumerated() {
        let lsn = first + UInt64(index)
        let body = Self.body(lsn: lsn, seed: seed, size: size)
        transaction.add(schema: UInt16(truncatingIfNeeded: lsn), body: body)
        events.append(
          LogEventContent(
            lsn: lsn, schema: UInt16(truncatingIfNeeded: lsn), body: body, index: UInt32(index),
            isFirst: index == 0, isLast: index == sizes.count - 1))
      }
      let lsns = try log.append(transaction)
      guard lsns == first...first + UInt64(sizes.count) - 1 else {
        throw LogProblem("an append after LSN \(first - 1) was given the LSNs \(lsns)")
      }
      bounds.issued += events
      note()
      last = lsns.upperBound
    }
    try log.waitUntilDurableBlocking(last)
    acknowledge(bounds.issued.count)
    note()
  }

  private func acknowledge(_ count: Int) {
    bounds.acknowledged = count
    bounds.flushed = options.strength == .durable ? count : min(bounds.flushed, count)
  }

  /// Bytes that no other event of any writer has: equal payloads would hide a torn write.
  private static func body(lsn: UInt64, seed: UInt64, size: Int) -> [UInt8] {
    var word = (lsn &* 0x9E37_79B9_7F4A_7C15) ^ (seed &* 0xD134_2543_DE82_EF95)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(size)
    while bytes.count < size {
      word ^= word << 13
      word ^= word >> 7
      word ^= word << 17
      bytes.append(UInt8(truncatingIfNeeded: word >> 24))
    }
    return bytes
  }
}

/// What a run did beside appends: without it a proof of upkeep would prove nothing.
package struct UpkeepWork: Sendable, Hashable, CustomStringConvertible {
  /// Segments that became part of a larger one.
  package var merged = 0
  /// Segments that a compaction wrote, and events that it left out.
  package var compacted = 0, eventsDropped = 0

  package init() {}

  package var isComplete: Bool { merged > 0 && compacted > 0 && eventsDropped > 0 }

  package var description: String {
    "\(merged) segments merged, \(compacted) compacted (\(eventsDropped) events left out)"
  }
}

// MARK: - Upkeep

extension LogScene {
  /// Gives up one transaction in three of those that will outlive a power cut, and compacts.
  private func compact() throws {
    guard let log else { throw LogProblem("the scene has no writer") }
    bounds.rounds += 1
    let random = SeededRandom(seed: seed ^ (bounds.rounds &* 0x9E37_79B9_7F4A_7C15))
    var givenUp: Set<UInt64> = []
    var isGivenUp = false
    for event in bounds.issued.prefix(bounds.flushed) {
      if event.isFirst { isGivenUp = random.below(3) == 0 }
      if isGivenUp { givenUp.insert(event.lsn) }
    }
    bounds.droppable.formUnion(givenUp)
    // Before the first call: from now on a crash may find them or not.
    note()
    var dropped: Set<UInt64> = []
    // As a store does: the segment that it writes to is left first, so that it is rewritten too.
    if bounds.rounds % 2 == 0 { try log.finishSegment() }
    let report = try log.compact { events in
      let lsns = events.map(\.lsn)
      guard givenUp.isSuperset(of: lsns) else { return events.map(LogSurvivor.init) }
      dropped.formUnion(lsns)
      return []
    }
    work.compacted += report.segmentsWritten
    work.eventsDropped += dropped.count
    // It has returned: they never come back, whatever happens.
    bounds.gone.formUnion(dropped)
    note()
    try readBack(log)
  }

  /// Some events are read by their numbers: those that are there as they were written, those that are gone not.
  private func readBack(_ log: Log) throws {
    let stride = max(1, bounds.acknowledged / Self.readsMax)
    for event in bounds.issued.prefix(bounds.acknowledged) where Int(event.lsn) % stride == 0 {
      let found: LogEvent
      switch Result(catching: { () throws(LogError) in try log.read(event.lsn) }) {
      case .success(let event): found = event
      case .failure(let error):
        guard error.code == .compacted, bounds.mayBeAbsent(Int(event.lsn)) else { throw error }
        continue
      }
      guard found.has(event), !bounds.gone.contains(event.lsn) else {
        throw LogProblem("LSN \(event.lsn) was read otherwise than written, or after it was gone")
      }
    }
  }
}
