// What becomes of a store whose folder is moved, removed or replaced while it is written: before each call that changes the
// disk, of each operation, once.
//
// Nothing of what is at the path afterwards may change, and what was acknowledged is whole where the folder was moved to.
// An operation that is under way ends in the folder that it holds; the next one finds out and throws.

import StrandlineLog
package import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// What a writer does meanwhile.
package enum FolderOperation: String, CaseIterable, Sendable {
  case append, rollOver, maintain, compact, merge, flush, backup, close
}

/// The campaign: every fate of a folder, at every mutating call of every operation.
package struct ReplacedFolders {
  private static let path = FolderFate.path
  static let options = LogOptions(
    segmentBytesMax: 16 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
    lockWaitMilliseconds: 0, controlIntervalMilliseconds: nil, ballastBytes: 0, mergeWidth: 3, upkeep: .onDemand)

  private let base: SimulatedDisk
  /// How many cases were tried, and how many of them with power cuts.
  package private(set) var cases = 0
  package private(set) var powerCuts = 0
  /// What a test changes on the disk of each case before that is judged: the campaign must find it.
  package var meddle: @Sendable (SimulatedDisk) -> Void = { _ in }

  package init() throws {
    base = SimulatedDisk()
    try Self.make(base, Self.path, seed: 1, events: 0..<4)
    base.put(base.files(in: Self.path), over: FolderFate.olderPath)
    try Self.make(base, Self.path, seed: 2, events: 4..<8)
    try Self.make(base, FolderFate.otherPath, seed: 3, events: 90..<93)
    try base.folder("/").sync()
  }

  private static func make(_ disk: SimulatedDisk, _ path: String, seed: UInt64, events: Range<Int>) throws {
    let log = try Log.open(at: path, role: .store, options: options, environment: .simulated(disk, seed: seed)) { _ in }
    for number in events { try write(number, to: log) }
    try log.close()
  }

  static func body(_ number: Int) -> [UInt8] { [UInt8](repeating: UInt8(number % 251), count: 300 + number) }

  static func write(_ number: Int, to log: Log) throws {
    var transaction = LogTransaction()
    transaction.add(schema: 1, body: body(number))
    try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
  }

  // MARK: One case

  private final class Count: Sendable {
    let value = Mutex(0)
  }

  /// A writer in a case.
  private struct Writer {
    let disk: SimulatedDisk
    let clock = SimulatedClock()
    let log: Log
    var acknowledged: [Int] = Array(0..<8)
    /// How many of them there are, for what befalls the folder meanwhile.
    let acknowledgedCount = Count()
    /// The files after the first write of this session.
    private(set) var copy: [String: [UInt8]] = [:]

    init(_ disk: SimulatedDisk, through fileSystem: (any FileSystem)? = nil) throws {
      self.disk = disk
      let environment = SystemEnvironment(fileSystem: fileSystem ?? disk, clock: clock, random: SeededRandom(seed: 11))
      log = try Log.open(at: path, role: .store, options: options, environment: environment) { _ in }
    }

    mutating func write(_ number: Int) throws {
      try ReplacedFolders.write(number, to: log)
      acknowledged.append(number)
      acknowledgedCount.value.withLock { $0 += 1 }
    }

    /// What the operation needs before it.
    mutating func prepare(_ operation: FolderOperation) throws {
      try write(8)
      copy = disk.files(in: path)
      try write(9)
      switch operation {
      case .append, .rollOver, .flush, .backup, .close: break
      case .maintain: try log.finishSegment()
      case .compact, .merge:
        for number in 10..<13 {
          try log.finishSegment()
          try write(number)
        }
        try log.finishSegment()
      }
    }

    mutating func run(_ operation: FolderOperation) throws {
      switch operation {
      case .append: for number in 20..<24 { try write(number) }
      case .rollOver:
        try log.finishSegment()
        for number in 20..<70 { try write(number) }
      case .maintain:
        try log.maintain()
        try write(20)
      case .compact: try log.compact { $0.filter { $0.lsn % 3 != 0 }.map { LogSurvivor($0) } }
      case .merge: try log.mergeSegments()
      case .flush:
        try write(20)
        try log.flushBlocking()
        try log.raiseControl()
      case .backup:
        try log.checkPlace()
        do {
          _ = try LogBackup.make(
            of: log.folder, at: "/backup", role: .store, environment: .simulated(disk, seed: 5),
            ownerBytes: { _, bytes in bytes })
        } catch {
          try log.checkPlace()
          throw error
        }
      case .close: try log.close()
      }
    }
  }

  /// Runs every case, and ends at the first one that fails.
  ///
  /// - Throws: `FolderFailure`.
  package mutating func run() throws {
    for operation in FolderOperation.allCases {
      let calls = try calls(of: operation)
      for one in FolderCase.all(.log, operation.rawValue, calls: calls.count) { try run(operation, calls, one) }
    }
  }

  /// Runs one case.
  ///
  /// - Throws: `FolderFailure`; `LogProblem` if there is no such case.
  package mutating func replay(_ one: FolderCase) throws {
    if one.campaign == .log, FolderOpening(rawValue: one.operation) != nil {
      var openings = try ReplacedOpenings()
      openings.meddle = meddle
      return try openings.replay(one)
    }
    guard one.campaign == .log, let operation = FolderOperation(rawValue: one.operation) else {
      throw LogProblem("there is no case \(one)")
    }
    let calls = try calls(of: operation)
    guard one.call <= calls.count else {
      throw LogProblem("there is no case \(one): \(operation) makes \(calls.count) calls")
    }
    try run(operation, calls, one)
  }

  /// The calls that change the disk of an operation, and which of them may change a file that has a name.
  private struct Calls {
    var first: Int
    var count: Int
    var metered: [Int: MeteredCall]
  }

  private func calls(of operation: FolderOperation) throws -> Calls {
    let meter = CallMeter(base.clone())
    var writer = try Writer(meter.disk, through: meter)
    try writer.prepare(operation)
    let first = writer.disk.callCount + 1
    try writer.run(operation)
    let count = writer.disk.callCount + 1 - first
    guard count > 0 else { throw LogProblem("\(operation) changes nothing on the disk") }
    return Calls(first: first, count: count, metered: meter.calls)
  }

  private mutating func run(_ operation: FolderOperation, _ calls: Calls, _ one: FolderCase) throws {
    let call = calls.first + one.call - 1
    if one.fate.isBlind(before: calls.metered[call]) { return }
    cases += 1
    do { try attempt(operation, one, call) } catch { throw FolderFailure(one, "\(error)") }
  }

  private mutating func attempt(_ operation: FolderOperation, _ one: FolderCase, _ call: Int) throws {
    let fate = one.fate
    let disk = base.clone()
    var writer = try Writer(disk)
    try writer.prepare(operation)
    let second = Mutex<Result<Log?, any Error>>(.success(nil))
    let acknowledged = Mutex(0)
    let (clock, copy, count) = (writer.clock, writer.copy, writer.acknowledgedCount)
    disk.interrupt(beforeCall: call) {
      acknowledged.withLock { $0 = count.value.withLock { $0 } }
      let result = Result { try fate.befall(disk, copy, second: Self.second) }
      second.withLock { $0 = result }
      if one.isLookDue { clock.advance(milliseconds: Int64(StoreLook.milliseconds)) }
    }
    var outcome: (any Error)?
    do { try writer.run(operation) } catch { outcome = error }
    let other = try second.withLock { try $0.get() }
    if let outcome { try demandReplaced(outcome, fate) }
    try cutPower(disk, writer, operation, one, 0)
    meddle(disk)
    let found = fate.goesOn ? [:] : disk.files(in: Self.path)
    if fate != .secondWriter, !fate.goesOn {
      let put = fate == .overwrittenBySameSession ? copy : fate.sourcePath.map { base.files(in: $0) } ?? [:]
      let changes = fate.changes(in: found, of: put)
      try demand(changes.isEmpty, "what is at the path was changed: \(changes.joined(separator: ", "))")
    }
    if fate.isInPlace {
      let later = count.value.withLock { $0 } - acknowledged.withLock { $0 }
      try demand(later == 0, "\(later) writes were acknowledged after it")
    }
    // Whatever the operation came to, the next one knows.
    clock.advance(milliseconds: Int64(StoreLook.milliseconds))
    if operation != .close {
      do {
        try writer.write(50)
        try demand(fate.goesOn, "a write was taken")
      } catch let error as LogError {
        try demandReplaced(error, fate)
      }
      do {
        try writer.log.close()
        try demand(fate.goesOn, "a close said nothing")
      } catch let error as LogError {
        try demandReplaced(error, fate)
      }
    }
    if !fate.goesOn { try demand(disk.files(in: Self.path) == found, "what is at the path was changed later") }
    if let kept = fate.keptPath { try Self.judge(disk, kept, writer.acknowledged, operation) }
    try cutPower(disk, writer, operation, one, 1)
    if let other {
      try Self.write(99, to: other)
      try other.close()
      try Self.judge(disk, Self.path, [90, 99], .append)
    }
  }

  /// Judges what a power cut leaves at this moment, in a part of the cases. Of files of two stores in one folder nothing is said.
  private mutating func cutPower(
    _ disk: SimulatedDisk, _ writer: Writer, _ operation: FolderOperation, _ one: FolderCase, _ moment: UInt64
  ) throws {
    let others = Self.others(one.fate)
    guard one.hasPowerCut, one.fate.keptPath != nil || others != nil else { return }
    powerCuts += 1
    let image = disk.imageAfterCrash(using: SeededRandom(seed: one.seed &+ moment))
    if let kept = one.fate.keptPath { try Self.judge(image, kept, writer.acknowledged, operation) }
    if let others { try Self.judge(image, Self.path, others, .append) }
  }

  /// What was acknowledged in another log that is whole at the path afterwards; nil if there is none.
  static func others(_ fate: FolderFate) -> [Int]? {
    switch fate {
    case .replacedByAnother, .removedAndReplaced, .emptiedAndFilled: Array(90..<93)
    case .replacedByOlder: Array(0..<4)
    case .secondWriter: [90]
    case .moved, .removed, .remounted, .overwrittenByOlder, .overwrittenByAnother, .overwrittenBySameSession: nil
    }
  }

  static func second(_ fileSystem: any FileSystem) throws -> Log {
    let log = try Log.open(
      at: path, role: .store, options: options, environment: .simulated(fileSystem, seed: 31)
    ) { _ in }
    try write(90, to: log)
    return log
  }

  private func demand(_ condition: Bool, _ words: String) throws {
    guard condition else { throw LogProblem(words) }
  }

  private func demandReplaced(_ error: any Error, _ fate: FolderFate) throws {
    guard !fate.goesOn, let error = error as? LogError else { throw error }
    // What is done beside commits says what failed: in a folder that was removed nothing gets a name any more.
    // What was written into files that had other bytes by then is neither there nor not there.
    let isUnknown = error.code == .outcomeUnknown && (fate.isInPlace || fate.isRemoved)
    guard error.code == .replaced || isUnknown || (fate.isRemoved && error.underlying?.isAbsent == true) else {
      throw error
    }
  }

  /// Everything that was acknowledged is there, in order, and nothing that was not written.
  ///
  /// - Parameter operation: a compaction may leave some out.
  static func judge(
    _ disk: SimulatedDisk, _ path: String, _ acknowledged: [Int], _ operation: FolderOperation
  ) throws {
    var found: [(lsn: UInt64, body: [UInt8])] = []
    let log = try Log.open(
      at: path, role: .store, options: options, environment: .simulated(OtherProcess(disk.clone()), seed: 21)
    ) { found.append(($0.lsn, $0.body)) }
    try log.close()
    for (index, number) in acknowledged.enumerated() {
      let lsn = UInt64(index + 1)
      let event = found.first { $0.lsn == lsn }
      if event == nil, operation == .compact, lsn % 3 == 0 { continue }
      guard event?.body == body(number) else {
        throw LogProblem("LSN \(lsn) of '\(path)', which was acknowledged, is not there")
      }
    }
  }
}
