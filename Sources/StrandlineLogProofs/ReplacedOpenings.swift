// What becomes of a log whose folder is moved, removed or replaced while it is opened, after its writer was killed: before each
// call that changes the disk, and while events are replayed, once.
//
// Such an open removes segments that no list names, moves others away, copies the end of the log, and on a full disk gives
// the ballast back. Every one of these names is one of the other store's as well, which has segments of all numbers.

import StrandlineLog
package import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// What the writer was doing when it was killed.
package enum FolderOpening: String, CaseIterable, Sendable {
  /// A compaction, of which no list names what it made.
  case openUnlisted
  /// A compaction, of which the list names what it made, and not what it replaced.
  case openListed
  /// It had written an event that nothing has promised, and the disk is full.
  case openFull
}

/// The campaign: every fate of a folder, at every mutating call of an open, and while it replays.
package struct ReplacedOpenings {
  private static let path = FolderFate.path
  private static let events = 14
  private static let options: LogOptions = {
    var options = ReplacedFolders.options
    options.ballastBytes = 8 << 10
    options.mergeWidth = 100
    // So that an open has an end to copy.
    options.publishesGroups = false
    return options
  }()

  /// A disk as the killed writer has left it.
  private struct Left {
    var disk: SimulatedDisk
    /// How many calls that change the disk an open makes, and how many of them before the first event.
    var calls = 0
    var callsBeforeEvents = 0
    /// How many events it replays.
    var events = 0
    var metered: [Int: MeteredCall] = [:]

    init(_ disk: SimulatedDisk) { self.disk = disk }
    /// The last ones are no calls, but the first and the last event that is replayed.
    var moments: Int { calls + 2 }
  }

  private let left: [FolderOpening: Left]
  /// How many cases were tried, and how many of them with power cuts.
  package private(set) var cases = 0
  package private(set) var powerCuts = 0
  /// In how many of them the open found out, and threw.
  package private(set) var refusals = 0
  /// What a test changes on the disk of each case before that is judged: the campaign must find it.
  package var meddle: @Sendable (SimulatedDisk) -> Void = { _ in }

  package init() throws {
    let disk = SimulatedDisk()
    try Self.make(disk, FolderFate.otherPath, seed: 3, 90..<130).close()
    try Self.make(disk, Self.path, seed: 1, 0..<4).close()
    disk.put(disk.files(in: Self.path), over: FolderFate.olderPath)
    let log = try Self.make(disk, Self.path, seed: 2, 4..<Self.events)
    try disk.folder("/").sync()
    var left = [FolderOpening.openFull: Left(disk.clone())]
    let before = Self.leftovers(disk)
    let listed = disk.peek(Self.path + "/" + LogFormat.manifestName)
    disk.keepsHistory = true
    try log.compact { $0.filter { $0.lsn % 3 != 0 }.map { LogSurvivor($0) } }
    for image in disk.history where Self.leftovers(image) > before {
      let isListed = image.peek(Self.path + "/" + LogFormat.manifestName) != listed
      let opening = isListed ? FolderOpening.openListed : .openUnlisted
      if let other = left[opening], Self.leftovers(other.disk) >= Self.leftovers(image) { continue }
      left[opening] = Left(image.clone())
    }
    for (opening, found) in left {
      if opening == .openFull { found.disk.capacity = found.disk.usedBytes }
      left[opening] = try Self.measured(found)
    }
    guard left.count == FolderOpening.allCases.count else { throw LogProblem("no writer was killed in a compaction") }
    self.left = left
  }

  /// Makes a log with a segment for each event, or goes on with it.
  private static func make(
    _ disk: SimulatedDisk, _ path: String, seed: UInt64, _ events: Range<Int>
  ) throws -> Log {
    let log = try Log.open(at: path, role: .store, options: options, environment: .simulated(disk, seed: seed)) { _ in }
    for number in events {
      try log.finishSegment()
      try ReplacedFolders.write(number, to: log)
    }
    return log
  }

  /// How many files a killed writer has left.
  private static func leftovers(_ disk: SimulatedDisk) -> Int {
    let files = disk.files(in: path)
    let listed = files["/" + LogFormat.manifestName].flatMap { try? Manifest.decode($0, file: path) }?.entries.count
    let segments = files.keys.filter { $0.hasSuffix(LogFormat.segmentSuffix) }.count
    return segments - (listed ?? 0) + files.keys.filter { $0.hasSuffix(LogFormat.temporarySuffix) }.count
  }

  private static func open(
    _ fileSystem: any FileSystem, clock: SimulatedClock = SimulatedClock(), replay: () -> Void = {}
  ) throws -> Log {
    try Log.open(
      at: path, role: .store, options: options,
      environment: SystemEnvironment(fileSystem: fileSystem, clock: clock, random: SeededRandom(seed: 11)),
      createIfAbsent: false
    ) { _ in replay() }
  }

  private static func measured(_ left: Left) throws -> Left {
    let meter = CallMeter(left.disk.clone())
    let first = meter.disk.callCount
    var before: Int?
    var result = left
    var events = 0
    _ = try open(meter) {
      events += 1
      before = before ?? meter.disk.callCount - first
    }
    result.events = events
    result.calls = meter.disk.callCount - first
    result.callsBeforeEvents = before ?? 0
    result.metered = Dictionary(uniqueKeysWithValues: meter.calls.map { ($0.key - first, $0.value) })
    return result
  }

  // MARK: Cases

  /// Runs the cases that are chosen, and ends at the first one that fails.
  ///
  /// - Parameter choose: which of them, by their number; all by default.
  /// - Throws: `FolderFailure`.
  package mutating func run(choose: (Int) -> Bool = { _ in true }) throws {
    var number = 0
    for opening in FolderOpening.allCases {
      // A writer that opens looks before each change, whenever it has looked last.
      for one in FolderCase.all(.log, opening.rawValue, calls: left[opening]?.moments ?? 0) where one.isLookDue {
        defer { number += 1 }
        if choose(number) { try run(one) }
      }
    }
  }

  /// Runs one case.
  ///
  /// - Throws: `FolderFailure`; `LogProblem` if there is no such case.
  package mutating func replay(_ one: FolderCase) throws { try run(one) }

  private mutating func run(_ one: FolderCase) throws {
    guard one.campaign == .log, let opening = FolderOpening(rawValue: one.operation), let left = left[opening],
      one.call <= left.moments
    else { throw LogProblem("there is no case \(one)") }
    if one.fate.isBlind(before: left.metered[one.call]) { return }
    cases += 1
    do { try attempt(one, left) } catch { throw FolderFailure(one, "\(error)") }
  }

  private mutating func attempt(_ one: FolderCase, _ left: Left) throws {
    let fate = one.fate
    let disk = left.disk.clone()
    let clock = SimulatedClock()
    let copy = disk.files(in: Self.path)
    let second = Mutex<Result<Log?, any Error>>(.success(nil))
    let befall: @Sendable () -> Void = {
      let capacity = disk.capacity
      disk.capacity = nil
      let result = Result { try fate.befall(disk, copy, second: ReplacedFolders.second) }
      second.withLock { $0 = result }
      // No smaller than it was: the ballast may have been given back.
      if let capacity { disk.capacity = max(capacity, disk.usedBytes) }
    }
    if one.call <= left.calls { disk.interrupt(beforeCall: disk.callCount + one.call, befall) }
    var replayed = 0
    let outcome = Result {
      try Self.open(disk, clock: clock) {
        replayed += 1
        let moment = one.call - left.calls
        if (moment == 1 && replayed == 1) || (moment == 2 && replayed == left.events) { befall() }
      }
    }
    disk.endInterruption()
    disk.capacity = nil
    let other = try second.withLock { try $0.get() }
    // What came before the first event may be what was opened: nothing is held before.
    let isOpened = one.call <= left.callsBeforeEvents
    try judge(outcome, fate, isOpened: isOpened)
    try cutPower(disk, one, 0)
    meddle(disk)
    let found = fate.goesOn ? [:] : disk.files(in: Self.path)
    let isJudged = !fate.goesOn && fate != .secondWriter && !(fate.isInPlace && isOpened)
    if isJudged, fate != .overwrittenBySameSession {
      let changes = fate.changes(in: found, of: fate.sourcePath.map { left.disk.files(in: $0) } ?? [:])
      try demand(changes.isEmpty, "what is at the path was changed: \(changes.joined(separator: ", "))")
    }
    if case .success(let log) = outcome, !isOpened, fate != .overwrittenBySameSession {
      clock.advance(milliseconds: Int64(StoreLook.milliseconds))
      let later = Result { try ReplacedFolders.write(50, to: log) }
      if case .success = later { try demand(fate.goesOn, "a write was taken") }
      if fate.goesOn { try later.get() }
      if isJudged { try demand(disk.files(in: Self.path) == found, "what is at the path was changed later") }
    }
    if let kept = fate.keptPath { try ReplacedFolders.judge(disk, kept, Array(0..<Self.events), .compact) }
    try cutPower(disk, one, 1)
    if let other {
      try ReplacedFolders.write(99, to: other)
      try other.close()
      try ReplacedFolders.judge(disk, Self.path, [90, 99], .append)
    }
  }

  private mutating func judge(_ outcome: Result<Log, any Error>, _ fate: FolderFate, isOpened: Bool) throws {
    guard case .failure(let error) = outcome else { return }
    refusals += 1
    guard !fate.goesOn, let error = error as? LogError else { throw error }
    // The files that it reads are of two stores, or gone.
    if fate.isInPlace || fate.isRemoved || error.code == .replaced { return }
    guard isOpened, error.code == .held && fate == .secondWriter || error.code == .absent && fate == .moved else {
      throw error
    }
  }

  private mutating func cutPower(_ disk: SimulatedDisk, _ one: FolderCase, _ moment: UInt64) throws {
    let others = ReplacedFolders.others(one.fate)
    guard one.hasPowerCut, one.fate.keptPath != nil || others != nil else { return }
    powerCuts += 1
    let image = disk.imageAfterCrash(using: SeededRandom(seed: one.seed &+ moment))
    if let kept = one.fate.keptPath { try ReplacedFolders.judge(image, kept, Array(0..<Self.events), .compact) }
    if let others { try ReplacedFolders.judge(image, Self.path, others, .append) }
  }

  private func demand(_ condition: Bool, _ words: @autoclosure () -> String) throws {
    guard condition else { throw LogProblem(words()) }
  }
}
