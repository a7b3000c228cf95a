// One writer on one disk, and the list that says what its log must hold: the oracle of the crash tests.

import StrandlineLog
import StrandlineSystem

/// Something that the log promised not to do.
package struct LogProblem: Error, CustomStringConvertible {
  var what: String
  init(_ what: String) { self.what = what }
  package var description: String { what }
}

/// What of an event a crash must not change.
struct LogEventContent: Hashable {
  var lsn: UInt64
  var schema: UInt16
  var body: [UInt8]
  var index: UInt32
  var isFirst: Bool
  var isLast: Bool
}

extension LogEvent {
  /// The same as comparing `content`, without making one.
  func has(_ other: LogEventContent) -> Bool {
    lsn == other.lsn && schema == other.schema && indexInTransaction == other.index && isFirst == other.isFirst
      && isLast == other.isLast && body == other.body
  }

  /// Without its place, which a copy changes.
  var content: LogEventContent {
    LogEventContent(
      lsn: lsn, schema: schema, body: body, index: indexInTransaction, isFirst: isFirst, isLast: isLast)
  }
}

/// What may be found after a crash: at least what was acknowledged and not given up since, at most what was issued.
/// LSNs are stable: an event may go, but no other event ever has its number.
struct LogBounds {
  /// Every event that was issued, in order: the one at index i has LSN i + 1.
  var issued: [LogEventContent]
  /// How many of them were acknowledged, or returned by an open: they outlive the process.
  var acknowledged = 0
  /// How many of those outlive the power too. The same, unless syncs are barriers only.
  var flushed = 0
  /// LSNs that the owner needs no more: each may be there or not.
  var droppable: Set<UInt64> = []
  /// LSNs that an open did not return: they never come back.
  var gone: Set<UInt64> = []

  /// What must hold when not only the process is gone.
  var afterPowerCut: LogBounds {
    var result = self
    result.acknowledged = flushed
    return result
  }

  private func mayBeAbsent(_ lsn: Int) -> Bool {
    !droppable.isEmpty && (droppable.contains(UInt64(lsn)) || gone.contains(UInt64(lsn)))
  }

  /// Checks what was found; returns the LSN up to which it reaches, which is the number of events if none may go.
  @discardableResult
  func check(_ events: [LogEvent], by whom: String) throws -> Int {
    var reach = 0
    for event in events {
      guard event.lsn > UInt64(reach) else {
        throw LogProblem("\(whom) found LSN \(event.lsn) after LSN \(reach)")
      }
      guard event.lsn <= UInt64(issued.count) else {
        throw LogProblem("\(issued.count) events were issued, and \(whom) found LSN \(event.lsn)")
      }
      let lsn = Int(event.lsn)
      while reach < lsn - 1 {
        reach += 1
        guard mayBeAbsent(reach) else { throw LogProblem("\(whom) found LSN \(lsn) and not LSN \(reach)") }
      }
      reach = lsn
      guard event.has(issued[lsn - 1]) else {
        throw LogProblem("\(whom) found another event with LSN \(lsn) than was issued, \(event.body.count) bytes")
      }
      if !gone.isEmpty, gone.contains(event.lsn) { throw LogProblem("\(whom) found LSN \(lsn), which was gone") }
    }
    let last = reach
    // What may be absent at the end counts as far as it was acknowledged, or as its transaction goes.
    while reach < issued.count, mayBeAbsent(reach + 1), reach < acknowledged || !issued[reach].isFirst { reach += 1 }
    guard reach >= acknowledged else {
      throw LogProblem("\(acknowledged) events were acknowledged, and \(whom) found those up to \(last)")
    }
    if reach > 0, !issued[reach - 1].isLast { throw LogProblem("\(whom) found a part of a transaction") }
    return reach
  }

  /// What an open has returned stays; what it has not returned never comes back.
  mutating func settle(on events: [LogEvent], reach: Int) {
    issued.removeSubrange(reach...)
    acknowledged = reach
    guard !droppable.isEmpty else { return }
    let found = Set(events.map(\.lsn))
    gone.formUnion(droppable.filter { $0 <= UInt64(reach) && !found.contains($0) })
  }
}

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
    case .idle: try log?.promiseNow()
    case .close:
      try log?.close()
      bounds.flushed = bounds.acknowledged
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
      try append([[5]])
    }
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
