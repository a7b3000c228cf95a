// One writer on one disk, and the list that says what its log must hold: the oracle of the crash tests.

import StrandlineLog
import StrandlineSystem

/// Something that the log promised not to do.
struct LogProblem: Error, CustomStringConvertible {
  var what: String
  init(_ what: String) { self.what = what }
  var description: String { what }
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
  /// Without its place, which a copy changes.
  var content: LogEventContent {
    LogEventContent(
      lsn: lsn, schema: schema, body: body, index: indexInTransaction, isFirst: isFirst, isLast: isLast)
  }
}

/// What may be found after a crash: at least what was acknowledged, at most what was issued.
struct LogBounds {
  /// Every event that was issued, in order.
  var issued: [LogEventContent]
  /// How many of them were acknowledged, or returned by an open: they outlive the process.
  var acknowledged = 0
  /// How many of those outlive the power too. The same, unless syncs are barriers only.
  var flushed = 0

  /// What must hold when not only the process is gone.
  var afterPowerCut: LogBounds { LogBounds(issued: issued, acknowledged: flushed, flushed: flushed) }

  /// Checks what was found; returns how many events that are.
  func check(_ events: [LogEvent], by whom: String) throws -> Int {
    guard events.count >= acknowledged else {
      throw LogProblem("\(acknowledged) events were acknowledged, and \(whom) found \(events.count)")
    }
    guard events.count <= issued.count else {
      throw LogProblem("\(issued.count) events were issued, and \(whom) found \(events.count)")
    }
    for (index, event) in events.enumerated() where event.content != issued[index] {
      throw LogProblem(
        "\(whom) found another event \(index + 1) than was issued: LSN \(event.lsn), \(event.body.count) bytes")
    }
    if let last = events.last, !last.isLast { throw LogProblem("\(whom) found a part of a transaction") }
    return events.count
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

  init(disk: SimulatedDisk, seed: UInt64, strength: SyncStrength, after bounds: LogBounds = LogBounds(issued: [])) {
    self.disk = disk
    self.seed = seed
    self.bounds = bounds
    var options = LogHistories.options
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
    let count = try bounds.check(replayed, by: "an open")
    guard log.durableLSN == UInt64(count), log.nextLSN == UInt64(count + 1) else {
      throw LogProblem("an open of \(count) events says that LSN \(log.durableLSN) is durable")
    }
    for event in replayed where try log.read(event.lsn).content != event.content {
      throw LogProblem("LSN \(event.lsn) was read otherwise than replayed")
    }
    // What an open has returned stays; what it has not returned never comes back.
    bounds.issued.removeSubrange(count...)
    acknowledge(count)
    note()
  }

  /// As a process that dies: nothing is flushed.
  func letGo() { log = nil }

  func perform(_ operation: LogOperation) throws {
    switch operation {
    case .small: try append([[11]])
    case .three: try append([[40, 0, 90]])
    case .large: try append([[1_500]])
    case .filling: try append([[3_700]])
    case .pair: try append([[24], [300, 7]])
    case .idle: try log?.promiseNow()
    case .close:
      try log?.close()
      bounds.flushed = bounds.acknowledged
      try open()
    case .vanish:
      letGo()
      try open()
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
