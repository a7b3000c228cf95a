// How a store comes into being and is opened: what stands in the way is named, and an open leaves nothing behind.

import StrandlineLog
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Opening a log` {
  @Test func `in a missing or an empty folder makes a store, whole`() throws {
    for makesFolder in [false, true] {
      let disk = SimulatedDisk()
      if makesFolder { try disk.makeDirectory(storePath) }
      let log = try openLog(disk)
      #expect(log.isNew && log.nextLSN == 1 && log.durableLSN == 0 && log.storeUUID.count == 16)
      #expect(disk.directoryPaths == [storePath])
      #expect(disk.paths == ["0000000000000001.seg", "CONTROL", "LOCK", "MANIFEST"].map { storePath + "/" + $0 })
      try log.close()
      let again = try openLog(disk.imageAfterCrash(.none), seed: 8)
      #expect(!again.isNew && again.storeUUID == log.storeUUID && again.tenure != log.tenure)
      #expect(again.recovery.segments == 1 && again.recovery.events == 0 && !again.recovery.torn)
      try again.close()
    }
  }

  @Test func `takes a path with slashes behind it, and a relative one`() throws {
    let disk = SimulatedDisk()
    try disk.makeDirectory("/a")
    for path in ["/a/b//", "c"] {
      let log = try openLog(disk, path: path)
      try log.write(body(1))
      try log.close()
      #expect(try openLog(disk, path: path).durableLSN == 1)
    }
    #expect(disk.directoryPaths == ["/a", "/a/b", "/c"])
  }

  @Test func `that need not exist is refused when it does not`() throws {
    let disk = SimulatedDisk()
    #expect(logError { _ = try openLog(disk, createIfAbsent: false) }?.code == .absent)
    try disk.makeDirectory(storePath)
    #expect(logError { _ = try openLog(disk, createIfAbsent: false) }?.code == .absent)
    #expect(logError { _ = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) }?.code == .absent)
    #expect(disk.paths.isEmpty)
  }

  @Test func `in a folder with other files, or with a lock alone, is refused and changes nothing`() throws {
    for (name, code) in [
      ("LOCK", LogError.Code.notAStore), ("notes.txt", .notEmptyDirectory),
      ("0000000000000001.tmp", .notEmptyDirectory),
    ] {
      let disk = SimulatedDisk()
      disk.poke(storePath + "/" + name, name == "LOCK" ? [] : [1])
      let before = disk.everything
      let error = logError { _ = try openLog(disk) }
      #expect(error?.code == code && error?.file == storePath, "\(name)")
      #expect(disk.everything == before)
      #expect(
        logError { _ = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) }?.code == code)
    }
    let disk = SimulatedDisk()
    disk.poke(storePath, [1])
    #expect(logError { _ = try openLog(disk) }?.code == .notAStore)
  }

  @Test func `beside other files of the owner leaves them alone, and removes what an interrupted writer left`() throws {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    try log.write(body(1))
    try log.close()
    disk.poke(storePath + "/session", [5])
    disk.poke(storePath + "/0000000000000002.tmp", [9, 9])
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1))
    try reader.poll { _ in }
    #expect(reader.lastLSN == 1 && disk.peek(storePath + "/0000000000000002.tmp") != nil)
    log = try openLog(disk, seed: 8)
    #expect(disk.peek(storePath + "/0000000000000002.tmp") == nil && disk.peek(storePath + "/session") == [5])
    try log.write(body(2))
    try log.close()
    #expect(try recovered(disk) == [body(1), body(2)])
  }

  @Test func `without an append changes no byte`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<7 { try log.write(body(number, count: 900)) }
    try log.close()
    let before = disk.everything
    for seed in 20..<25 {
      let log = try openLog(disk, seed: UInt64(seed))
      try log.raiseControl()
      try log.close()
      #expect(disk.everything == before)
    }
  }

  @Test func `takes the lock, waits a little for it, and says who has it`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    let clock = SimulatedClock(autoAdvance: true)
    var options = tiny
    options.lockWaitMilliseconds = 250
    let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 3))
    let begun = clock.monotonicNanoseconds()
    let error = logError {
      _ = try Log.open(at: storePath, role: .store, options: options, environment: environment) { _ in }
    }
    #expect(error?.code == .held)
    #expect(clock.monotonicNanoseconds() - begun == 250_000_000)
    try log.close()
    // A reader that looks whether the lock is free holds it for an instant; that must not keep a writer out.
    let glance = try #require(try disk.lock(storePath + "/LOCK", exclusive: false))
    let letsGo = ClockThatActs { glance.unlock() }
    let patient = try Log.open(
      at: storePath, role: .store, options: options,
      environment: SystemEnvironment(fileSystem: disk, clock: letsGo, random: SeededRandom(seed: 3))
    ) { _ in }
    try patient.close()
  }

  @Test func `gives the lock back when replaying throws, with that error`() throws {
    struct Enough: Error {}
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(body(number)) }
    try log.close()
    var seen = 0
    #expect(throws: Enough.self) {
      _ = try openLog(disk) { _ in
        seen += 1
        if seen == 2 { throw Enough() }
      }
    }
    #expect(seen == 2)
    try openLog(disk).close()
  }

  @Test func `a log that is let go gives its lock back and loses nothing acknowledged`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      try log.write(body(1))
      _ = try log.append(transaction([body(2)]))
    }
    #expect(try recovered(disk) == [body(1)])
    try openLog(disk, seed: 9).close()
  }

  @Test func `by two at once gives one store to one of them`() throws {
    // The second creator begins when the first has built its folder and not yet renamed it.
    let disk = SimulatedDisk()
    let race = RacingDisk(disk)
    race.beforeRename = {
      let other = try openLog(disk, seed: 55)
      try other.write(body(1))
      try other.close()
    }
    let log = try openLog(race)
    #expect(!log.isNew && log.durableLSN == 1)
    try log.close()
    #expect(disk.directoryPaths == [storePath])
    // The same, and the other one still holds it.
    let second = SimulatedDisk()
    let held = Mutex<Log?>(nil)
    let raceForLock = RacingDisk(second)
    raceForLock.beforeRename = {
      let log = try openLog(second, seed: 56)
      held.withLock { $0 = log }
    }
    #expect(logError { _ = try openLog(raceForLock) }?.code == .held)
    #expect(second.directoryPaths == [storePath])
    try held.withLock { try $0?.close() }
  }

  @Test func `with clocks that are years off, or stand, changes nothing`() throws {
    let disk = SimulatedDisk()
    for (seed, wall) in [(1, Int64(-1)), (2, 0), (3, 9_999_999_999_999), (4, 1)] {
      let clock = SimulatedClock(wallMilliseconds: wall, autoAdvance: false)
      let log = try Log.open(
        at: storePath, role: .store, options: tiny,
        environment: SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: UInt64(seed)))
      ) { _ in }
      try log.write(body(seed))
      try log.close()
    }
    #expect(try recovered(disk) == (1...4).map { body($0) })
  }
}

/// A clock whose first sleep does something.
final class ClockThatActs: SystemClock {
  private let clock = SimulatedClock(autoAdvance: true)
  private let act: @Sendable () -> Void
  init(_ act: @escaping @Sendable () -> Void) { self.act = act }
  func wallMilliseconds() -> Int64 { clock.wallMilliseconds() }
  func monotonicNanoseconds() -> UInt64 { clock.monotonicNanoseconds() }
  func sleep(milliseconds: Int64) async throws { try await clock.sleep(milliseconds: milliseconds) }
  func sleepBlocking(milliseconds: Int64) { act() }
}

/// A disk on which something happens right before a call.
final class RacingDisk: ForwardingFileSystem {
  let base: any FileSystem
  private let actions = Mutex<[DiskCall: @Sendable () throws -> Void]>([:])
  /// Before the first rename of a folder.
  var beforeRename: (@Sendable () throws -> Void)? {
    get { actions.withLock { $0[.rename] } }
    set { actions.withLock { $0[.rename] = newValue } }
  }
  /// Before each listing.
  var beforeList: (@Sendable () throws -> Void)? {
    get { actions.withLock { $0[.list] } }
    set { actions.withLock { $0[.list] = newValue } }
  }
  /// Before each lock.
  var beforeLock: (@Sendable () throws -> Void)? {
    get { actions.withLock { $0[.lock] } }
    set { actions.withLock { $0[.lock] = newValue } }
  }
  /// Before each read.
  var beforeRead: (@Sendable () throws -> Void)? {
    get { actions.withLock { $0[.read] } }
    set { actions.withLock { $0[.read] = newValue } }
  }

  init(_ base: any FileSystem) { self.base = base }

  fileprivate func act(_ call: DiskCall, once: Bool = false) {
    let action = actions.withLock { actions in
      defer { if once { actions[call] = nil } }
      return actions[call]
    }
    do { if let action { try LockPlace.asAnotherThread(action) } } catch {
      Issue.record("what happens meanwhile failed: \(error)")
    }
  }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    RacingFile(self, try folder.open(name, mode))
  }
  func list(_ name: String, in folder: any Folder) throws(SystemError) -> [String] {
    act(.list)
    return try folder.list(name)
  }
  func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    if newPath == storePath { act(.rename, once: true) }
    try base.renameFolder(path, to: newPath)
  }
  func lock(_ name: String, exclusive: Bool, in folder: any Folder) throws(SystemError) -> (any FileLock)? {
    act(.lock)
    return try folder.lock(name, exclusive: exclusive)
  }
}

/// A file of a racing disk.
private final class RacingFile: ForwardingFile {
  let disk: RacingDisk
  let base: any File
  init(_ disk: RacingDisk, _ base: any File) {
    self.disk = disk
    self.base = base
  }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    disk.act(.read)
    return try base.read(at: offset, count: count)
  }
}
