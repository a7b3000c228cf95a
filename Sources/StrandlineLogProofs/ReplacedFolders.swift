// What becomes of a store whose folder is moved, removed or replaced while it is written: before each call that changes the
// disk, of each operation, once.
//
// Nothing of what lies at the path afterwards may change, and what was acknowledged is whole where the folder was moved to.
// An operation that is under way ends in the folder that it holds; the next one finds out and throws.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// What happens to the folder of a store.
package enum FolderFate: String, CaseIterable, Sendable {
  /// It lies somewhere else, and nothing at its path.
  case moved
  /// Another store lies at its path.
  case replacedByAnother
  /// An older copy of it lies at its path.
  case replacedByOlder
  /// A second process has made a store at its path, and writes it.
  case secondWriter
  /// It was removed.
  case removed
  /// It was removed, and another store lies at its path.
  case removedAndReplaced
  /// An older copy was put over its files.
  case overwrittenByOlder
  /// Another store's files were put over its files.
  case overwrittenByAnother
  /// A copy of its files that was made since this writer opened it was put over them.
  case overwrittenBySameSession
  /// Its disk was mounted again, with other numbers of files.
  case remounted

  /// Whether the store is still the one at its path.
  var goesOn: Bool { self == .remounted }
  /// Whether its files have other bytes now: then what is written before the next look goes into them.
  var isInPlace: Bool {
    self == .overwrittenByOlder || self == .overwrittenByAnother || self == .overwrittenBySameSession
  }
  /// Where the files of the writer are; nil if they have no name.
  var keptPath: String? {
    switch self {
    case .moved, .replacedByAnother, .replacedByOlder, .secondWriter: ReplacedFolders.movedPath
    case .remounted: ReplacedFolders.path
    case .removed, .removedAndReplaced, .overwrittenByOlder, .overwrittenByAnother, .overwrittenBySameSession: nil
    }
  }
}

/// What a writer does meanwhile.
package enum FolderOperation: String, CaseIterable, Sendable {
  case append, rollOver, prepare, compact, merge, flush, backup, close
}

/// The same file system as another process sees it.
private final class OtherProcess: ForwardingFileSystem {
  let base: any FileSystem
  let openStores = OpenStores()
  init(_ base: any FileSystem) { self.base = base }
}

/// Notes which calls write CONTROL.
private final class ControlMeter: ForwardingFileSystem {
  let disk: SimulatedDisk
  let calls = Mutex<Set<Int>>([])
  var base: any FileSystem { disk }
  init(_ disk: SimulatedDisk) { self.disk = disk }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    let file = try folder.open(name, mode)
    return name == LogFormat.controlName ? MeteredFile(self, file) : file
  }
}

private final class MeteredFile: ForwardingFile {
  let meter: ControlMeter
  let base: any File
  init(_ meter: ControlMeter, _ base: any File) {
    self.meter = meter
    self.base = base
  }

  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    meter.calls.withLock { _ = $0.insert(meter.disk.callCount + 1) }
    try base.write(bytes, range, at: offset)
  }
}

/// The campaign: every fate of a folder, at every mutating call of every operation.
package struct ReplacedFolders {
  static let path = "/store"
  static let movedPath = "/moved"
  private static let olderPath = "/older"
  private static let otherPath = "/other"
  static let options = LogOptions(
    segmentBytesMax: 16 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
    lockWaitMilliseconds: 0, controlIntervalMilliseconds: nil, ballastBytes: 0, mergeWidth: 3, upkeep: .onDemand)

  /// What was found to be wrong.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  private let base: SimulatedDisk
  /// How many cases were tried, and how many of them with power cuts.
  package private(set) var cases = 0
  package private(set) var powerCuts = 0

  package init() throws {
    base = SimulatedDisk()
    try Self.make(base, Self.path, seed: 1, events: 0..<4)
    try Self.copyFiles(of: try base.folder(Self.path), over: Self.olderPath, base)
    try Self.make(base, Self.path, seed: 2, events: 4..<8)
    try Self.make(base, Self.otherPath, seed: 3, events: 90..<93)
    try base.folder("/").sync()
  }

  private static func make(_ disk: SimulatedDisk, _ path: String, seed: UInt64, events: Range<Int>) throws {
    let log = try Log.open(at: path, role: .store, options: options, environment: .simulated(disk, seed: seed)) { _ in }
    for number in events { try write(number, to: log) }
    try log.close()
  }

  private static func body(_ number: Int) -> [UInt8] { [UInt8](repeating: UInt8(number % 251), count: 300 + number) }

  private static func write(_ number: Int, to log: Log) throws {
    var transaction = LogTransaction()
    transaction.add(schema: 1, body: body(number))
    try log.waitUntilDurableBlocking(log.append(transaction).upperBound)
  }

  /// Copies files as `cp` does: into those that are there.
  private static func copyFiles(of folder: any Folder, over path: String, _ disk: SimulatedDisk) throws {
    if try disk.kind(of: path) == .absent { try disk.makeDirectory(path) }
    let target = try disk.folder(path)
    for name in try folder.list().sorted() where try folder.kind(of: name) == .file {
      let source = try folder.open(name, .read)
      defer { source.close() }
      let bytes = try source.read(at: 0, count: Int(try source.size()))
      let copy = try target.open(name, try target.kind(of: name) == .file ? .readWrite : .create)
      defer { copy.close() }
      try copy.truncate(to: 0)
      try copy.write(bytes, at: 0)
      try copy.sync(.durable)
    }
    try target.sync()
  }

  // MARK: One case

  private final class Count: Sendable {
    let value = Mutex(0)
  }

  /// What is to befall the folder in a case.
  private struct Event {
    var fate: FolderFate
    var call: Int
    /// Whether the writer's next look is due after it.
    var isLookDue: Bool
    /// The call writes CONTROL.
    var isControlWrite: Bool
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
      copy = ReplacedFolders.files(disk, path)
      try write(9)
      switch operation {
      case .append, .rollOver, .prepare, .flush, .backup, .close: break
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
      case .prepare:
        try log.prepareSegment()
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
  /// - Throws: `Failure`, which names the case.
  package mutating func run() throws {
    for operation in FolderOperation.allCases {
      let meter = ControlMeter(base.clone())
      var writer = try Writer(meter.disk, through: meter)
      try writer.prepare(operation)
      let first = writer.disk.callCount
      try writer.run(operation)
      try demand(writer.disk.callCount > first, "\(operation) changes nothing on the disk")
      let calls = first + 1...writer.disk.callCount
      let controlWrites = meter.calls.withLock { $0 }
      for fate in FolderFate.allCases {
        for call in calls {
          for isLookDue in [true, false] {
            let event = Event(
              fate: fate, call: call, isLookDue: isLookDue, isControlWrite: controlWrites.contains(call))
            // Between the comparison and the write that follows it at once nobody can see the copy, and the write makes
            // the files equal again.
            if fate == .overwrittenBySameSession, event.isControlWrite { continue }
            try run(operation, event)
          }
        }
      }
    }
  }

  private mutating func run(_ operation: FolderOperation, _ event: Event) throws {
    cases += 1
    do {
      try attempt(operation, event)
    } catch {
      let look = event.isLookDue ? "a look is due" : "no look is due"
      throw Failure(description: "\(operation), \(event.fate) before call \(event.call), \(look): \(error)")
    }
  }

  private mutating func attempt(_ operation: FolderOperation, _ event: Event) throws {
    let fate = event.fate
    let disk = base.clone()
    var writer = try Writer(disk)
    try writer.prepare(operation)
    let second = Mutex<Result<Log?, any Error>>(.success(nil))
    let acknowledged = Mutex(0)
    let (clock, copy, count) = (writer.clock, writer.copy, writer.acknowledgedCount)
    disk.interrupt(beforeCall: event.call) {
      acknowledged.withLock { $0 = count.value.withLock { $0 } }
      let result = Result { try Self.befall(fate, disk, copy) }
      second.withLock { $0 = result }
      if event.isLookDue { clock.advance(milliseconds: 200) }
    }
    var outcome: (any Error)?
    do { try writer.run(operation) } catch { outcome = error }
    let other = try second.withLock { try $0.get() }
    if let outcome { try demandReplaced(outcome, fate) }
    let found = fate.goesOn ? [:] : Self.files(disk, Self.path)
    if fate != .secondWriter, !fate.isInPlace, !fate.goesOn {
      try demand(found == Self.files(base, fate.sourcePath), "what lies at the path was changed")
    }
    if fate.isInPlace, !event.isControlWrite {
      let put = fate == .overwrittenBySameSession ? copy["/CONTROL"] : base.peek(fate.sourcePath + "/CONTROL")
      try demand(found["/CONTROL"] == put, "CONTROL of what was put over the files was changed")
      let later = count.value.withLock { $0 } - acknowledged.withLock { $0 }
      try demand(later == 0, "\(later) writes were acknowledged after it")
    }
    // Whatever the operation came to, the next one knows.
    clock.advance(milliseconds: 200)
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
    if !fate.goesOn { try demand(Self.files(disk, Self.path) == found, "what lies at the path was changed later") }
    if let kept = fate.keptPath { try judge(disk, kept, writer.acknowledged, operation) }
    if cases % 10 == 0 {
      powerCuts += 1
      let image = disk.imageAfterCrash(using: SeededRandom(seed: UInt64(cases)))
      if let kept = fate.keptPath { try judge(image, kept, writer.acknowledged, operation) }
      if fate == .replacedByAnother { try judge(image, Self.path, Array(90..<93), .append) }
    }
    if let other {
      try Self.write(99, to: other)
      try other.close()
      try judge(disk, Self.path, [90, 99], .append)
    }
  }

  private func demand(_ condition: Bool, _ words: String) throws {
    guard condition else { throw Failure(description: words) }
  }

  private func demandReplaced(_ error: any Error, _ fate: FolderFate) throws {
    guard !fate.goesOn, let error = error as? LogError else { throw error }
    // What is done beside commits says what failed: in a folder that was removed nothing gets a name any more.
    let isRemoved = fate == .removed || fate == .removedAndReplaced
    // What was written into files that had other bytes by then is neither there nor not there.
    let isUnknown = error.code == .outcomeUnknown && (fate.isInPlace || isRemoved)
    guard error.code == .replaced || isUnknown || (isRemoved && error.underlying?.isAbsent == true) else {
      throw error
    }
  }

  /// Everything that was acknowledged is there, in order, and nothing that was not written.
  private func judge(
    _ disk: SimulatedDisk, _ path: String, _ acknowledged: [Int], _ operation: FolderOperation
  ) throws {
    var found: [(lsn: UInt64, body: [UInt8])] = []
    let log = try Log.open(
      at: path, role: .store, options: Self.options, environment: .simulated(OtherProcess(disk.clone()), seed: 21)
    ) { found.append(($0.lsn, $0.body)) }
    try log.close()
    for (index, number) in acknowledged.enumerated() {
      let lsn = UInt64(index + 1)
      let event = found.first { $0.lsn == lsn }
      if event == nil, operation == .compact, lsn % 3 == 0 { continue }
      try demand(event?.body == Self.body(number), "LSN \(lsn) of '\(path)', which was acknowledged, is not there")
    }
  }

  // MARK: Fates

  /// - Returns: the log of a second writer.
  private static func befall(
    _ fate: FolderFate, _ disk: SimulatedDisk, _ copy: [String: [UInt8]]
  ) throws -> Log? {
    func remove() throws {
      try disk.folder(path).removeContents()
      try disk.removeDirectory(path)
    }
    func move(_ from: String, to: String) throws { try disk.renameFolder(from, to: to) }
    defer { _ = Result { try disk.folder("/").sync() } }
    switch fate {
    case .moved: try move(path, to: movedPath)
    case .replacedByAnother, .replacedByOlder:
      try move(path, to: movedPath)
      try move(fate.sourcePath, to: path)
    case .secondWriter:
      try move(path, to: movedPath)
      let log = try Log.open(
        at: path, role: .store, options: options, environment: .simulated(OtherProcess(disk), seed: 31)
      ) { _ in }
      try write(90, to: log)
      return log
    case .removed: try remove()
    case .removedAndReplaced:
      try remove()
      try move(otherPath, to: path)
    case .overwrittenByOlder, .overwrittenByAnother:
      try copyFiles(of: try disk.folder(fate.sourcePath), over: path, disk)
    case .overwrittenBySameSession:
      let folder = try disk.folder(path)
      for (key, bytes) in copy.sorted(by: { $0.key < $1.key }) {
        let name = String(key.dropFirst())
        let file = try folder.open(name, try folder.kind(of: name) == .file ? .readWrite : .create)
        defer { file.close() }
        try file.truncate(to: 0)
        try file.write(bytes, at: 0)
        try file.sync(.durable)
      }
    case .remounted: disk.remount()
    }
    return nil
  }

  /// The files of a folder and their bytes.
  private static func files(_ disk: SimulatedDisk, _ path: String) -> [String: [UInt8]] {
    var result: [String: [UInt8]] = [:]
    for file in disk.paths where file.hasPrefix(path + "/") {
      result[String(file.dropFirst(path.count))] = disk.peek(file)
    }
    return result
  }
}

extension FolderFate {
  /// The folder whose files lie at the path afterwards.
  fileprivate var sourcePath: String {
    switch self {
    case .replacedByAnother, .removedAndReplaced, .overwrittenByAnother: "/other"
    case .replacedByOlder, .overwrittenByOlder: "/older"
    case .moved, .removed, .secondWriter, .overwrittenBySameSession, .remounted: "/nothing"
    }
  }
}
