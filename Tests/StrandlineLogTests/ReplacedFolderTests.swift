// A log is reached through its folder: a folder that is moved takes its writer along, and what is at its path afterwards is
// never written. And what CONTROL says of a group is there before its writers hear of it.

import StrandlineHost
import StrandlineLog
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A folder that is replaced while it is written` {
  @Test func `is never the one that is written, at any call of any operation`() throws {
    var campaign = try ReplacedFolders()
    try campaign.run()
    print("replaced folders: \(campaign.cases) cases, \(campaign.powerCuts) disks after a power cut")
    #expect(campaign.cases > 500 && campaign.powerCuts > 50, "\(campaign.cases) \(campaign.powerCuts)")
  }

  @Test func `is cleared up nowhere else while its log is opened, whatever becomes of its folder`() throws {
    var campaign = try ReplacedOpenings()
    try campaign.run { Campaign.takes($0, every: 4) }
    print(
      "replaced openings: \(campaign.cases) cases, \(campaign.refusals) refused, "
        + "\(campaign.powerCuts) disks after a power cut")
    #expect(campaign.cases > (Campaign.isWhole ? 300 : 70), "\(campaign.cases)")
    #expect(campaign.refusals > (Campaign.isWhole ? 100 : 20), "\(campaign.refusals)")
    #expect(campaign.powerCuts > (Campaign.isWhole ? 40 : 5), "\(campaign.powerCuts)")
  }

  @Test func `is noticed by the campaign of openings when it is written, and the case repeats it`() throws {
    for damaged in ["/store/MANIFEST", "/moved/MANIFEST"] {
      var campaign = try ReplacedOpenings()
      campaign.meddle = { disk in
        if disk.peek("/moved/MANIFEST") != nil, disk.peek(damaged) != nil { disk.poke(damaged, [1]) }
      }
      let failure = try #require(#expect(throws: FolderFailure.self) { try campaign.run() })
      let one = try #require(FolderCase("\(failure.folderCase)"))
      var folders = try ReplacedFolders()
      folders.meddle = campaign.meddle
      #expect(throws: FolderFailure.self) { try folders.replay(one) }
      folders.meddle = { _ in }
      try folders.replay(one)
    }
  }

  @Test func `is noticed by the campaign when it is written, and the case repeats it`() throws {
    for damaged in ["/store/MANIFEST", "/moved/MANIFEST"] {
      var campaign = try ReplacedFolders()
      campaign.meddle = { disk in
        if disk.peek("/moved/MANIFEST") != nil, disk.peek(damaged) != nil { disk.poke(damaged, [1]) }
      }
      let failure = try #require(#expect(throws: FolderFailure.self) { try campaign.run() })
      #expect("\(failure)".hasSuffix("repeat it with: strandline crash-test --folder \(failure.folderCase)"))
      let one = try #require(FolderCase("\(failure.folderCase)"))
      #expect(throws: FolderFailure.self) { try campaign.replay(one) }
      campaign.meddle = { _ in }
      try campaign.replay(one)
    }
  }

  private var publishing: LogOptions {
    var options = tiny
    options.publishesGroups = true
    return options
  }

  /// The writer of a new store has a segment open before it appends anything.
  @Test func `keeps what a backup put over its files, where the writer has appended nothing`() throws {
    let made = SimulatedDisk()
    let backedUp = try openLog(made)
    for number in 0..<20 { try backedUp.write(body(number)) }
    try backedUp.close()
    let backup = made.files(in: storePath)
    let disk = SimulatedDisk()
    let log = try openLog(disk, seed: 8)
    disk.put(backup, over: storePath)
    let error = logError { try log.close() }
    #expect(error?.code == .replaced)
    // A group between two comparisons may have gone into the copy.
    #expect(error?.message.contains("may have gone into the copy") == true, "\(error as Any)")
    #expect(error?.message.contains("nothing was written") == false, "\(error as Any)")
    #expect(disk.files(in: storePath).filter { backup[$0.key] != nil } == backup)
  }

  @Test func `is not taken for another one whose log is at its path`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    try log.write(body(1))
    try disk.rename(storePath, to: "/moved")
    let error = logError { _ = try openLog(disk, seed: 8) }
    #expect(error?.code == .held && error?.message.contains("still writes") == true, "\(error as Any)")
    let closing = logError { try log.close() }
    #expect(closing?.code == .replaced && closing?.message.contains("moved away") == true, "\(closing as Any)")
    #expect(closing?.message.contains("nothing was written to what is there now") == true, "\(closing as Any)")
    // Now it may.
    let other = try openLog(disk, seed: 8)
    #expect(other.isNew)
    // A second end of the first one gives back nothing of the second one's.
    try log.close()
    #expect(logError { _ = try openLog(disk, seed: 9) }?.code == .held)
    try other.close()
  }

  @Test func `is told to a reader, for which nothing new comes any more`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: publishing)
    try log.write(body(1))
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 8))
    try reader.poll { _ in }
    disk.remount()
    try reader.poll { _ in }
    try disk.rename(storePath, to: "/moved")
    #expect(logError { try reader.poll { _ in } }?.code == .replaced)
    #expect(try reader.read(1).body == body(1))
    try log.write(body(2))
    #expect(throws: LogError.self) { try log.close() }
    let other = try openLog(disk, seed: 9)
    try other.write(body(3))
    #expect(logError { try reader.poll { _ in } }?.code == .replaced)
    try other.close()
  }

  /// Another store's files are in the folder that the reader has open.
  @Test(arguments: [1, 3, 60]) func `is told to a reader though the folder is the same`(events: Int) throws {
    let made = SimulatedDisk()
    let other = try openLog(made, seed: 8)
    for number in 0..<events { try other.write(body(100 + number, count: 300)) }
    try other.close()
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: publishing)
    for number in 0..<3 { try log.write(body(number)) }
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 9))
    try reader.poll { _ in }
    try disk.folder(storePath).removeContents()
    disk.put(made.files(in: storePath), over: storePath)
    var seen = 0
    for _ in 0..<2 { #expect(logError { try reader.poll { _ in seen += 1 } }?.code == .replaced) }
    #expect(seen == 0 && reader.lastLSN == 3)
    #expect(logError { try log.close() }?.code == .replaced)
  }

  @Test func `never says of what is being written that it was not written`() throws {
    let disk = SimulatedDisk()
    let slow = DiskWithSlowSync(disk)
    let log = try openLog(slow, options: publishing)
    try log.write(body(1))
    let met = Mutex<LogError?>(nil)
    slow.duringNextSync {
      let error = logError {
        try disk.rename(storePath, to: "/moved")
        try log.checkPlace()
      }
      met.withLock { $0 = error }
      // Nobody who waits for the group is told anything yet.
      if case .open = log.state { return }
      Issue.record("a group that is being written was given up")
    }
    // Its sync was under way, and returned.
    try log.write(body(2))
    #expect(met.withLock { $0?.code } == .replaced)
    #expect(logError { try log.write(body(3)) }?.code == .replaced)
    #expect(log.durableLSN == 2)
    #expect(logError { try log.close() }?.code == .replaced)
    try disk.rename("/moved", to: storePath)
    #expect(try recovered(disk) == [body(1), body(2)])
  }

  @Test func `leaves the outcome of a sync that failed unknown`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try Log.open(
      at: storePath, role: .store, options: publishing,
      environment: SystemEnvironment(fileSystem: faults, clock: SimulatedClock(), random: SeededRandom(seed: 3))
    ) { _ in }
    try log.write(body(1))
    try disk.rename(storePath, to: "/moved")
    faults.plan(DiskFault([.sync], error: .device("", "")))
    let error = logError { try log.write(body(2)) }
    #expect(error?.code == .outcomeUnknown && error?.message.contains("moved away") == true, "\(error as Any)")
    // Of later ones it is known.
    #expect(logError { try log.write(body(3)) }?.code == .replaced)
    #expect(throws: LogError.self) { try log.close() }
  }

  @Test func `whose LOCK alone is gone says so`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: publishing)
    try log.write(body(1))
    disk.pokeRemove(storePath + "/LOCK")
    let error = logError { try log.checkPlace() }
    #expect(error?.code == .replaced && error?.message.contains("LOCK") == true, "\(error as Any)")
    #expect(throws: LogError.self) { try log.close() }
    #expect(try recovered(disk) == [body(1)])
  }

  /// The trial of a process that changes its directory.
  @Test func `is the one that a relative path named at open, wherever the process is later`() throws {
    let disk = SimulatedDisk()
    for folder in ["/a", "/b"] { try disk.makeDirectory(folder) }
    let process = WanderingProcess(disk)
    let there = try openLog(disk, path: "/b/n.strand")
    try there.write(body(1))
    try there.close()
    let before = disk.paths.filter { $0.hasPrefix("/b/") }.map { disk.peek($0) }
    let log = try openLog(process, path: "n.strand")
    #expect(log.path == "/a/n.strand")
    process.directory.withLock { $0 = "/b" }
    for number in 0..<60 { try log.write(body(number, count: 700)) }
    try log.close()
    #expect(disk.paths.filter { $0.hasPrefix("/b/") }.map { disk.peek($0) } == before)
    var seen = 0
    try openLog(disk, seed: 9, path: "/a/n.strand") { _ in seen += 1 }.close()
    #expect(seen == 60)
  }

  @Test func `makes a look that fails stop nothing`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let clock = SimulatedClock()
    let log = try Log.open(
      at: storePath, role: .store, options: publishing,
      environment: SystemEnvironment(fileSystem: faults, clock: clock, random: SeededRandom(seed: 3))
    ) { _ in }
    try log.write(body(1))
    faults.plan(DiskFault([.folder, .identity], isSticky: true, error: .device("", "")))
    clock.advance(milliseconds: 1_000)
    try log.write(body(2))
    try log.close()
    faults.clear()
    #expect(try recovered(disk) == [body(1), body(2)])
  }
}

/// ESTALE, as a network drive says it of a file that is still there.
@Suite(.timeLimit(.minutes(30))) struct `A stale handle of a drive is no replaced store` {
  private func open(_ faults: FaultInjector) throws -> Log {
    var options = tiny
    options.publishesGroups = true
    options.mergeWidth = 3
    return try openLog(faults, options: options)
  }

  @Test func `where a group is synced`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try open(faults)
    try log.write(body(1))
    faults.plan(DiskFault([.sync], error: .stale("", "")))
    let error = logError { try log.write(body(2)) }
    #expect(error?.code == .outcomeUnknown && error?.underlying?.isReplacement == false, "\(error as Any)")
    #expect(logError { try log.write(body(3)) }?.code == .poisoned)
    #expect(throws: LogError.self) { try log.close() }
    #expect(try recovered(disk).first == body(1))
  }

  @Test func `where CONTROL is read before a group`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try open(faults)
    try log.write(body(1))
    faults.plan(DiskFault([.read], pathSuffix: "/CONTROL", error: .stale("", "")))
    let error = logError { try log.write(body(2)) }
    #expect(error?.code == .rejected && error?.underlying?.isReplacement == false, "\(error as Any)")
    log.resume()
    try log.write(body(3))
    try log.close()
    #expect(try recovered(disk) == [body(1), body(3)])
  }

  /// The group is durable by then, and its writer is told so; the bound is raised later.
  @Test func `where CONTROL is read after a group`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try open(faults)
    try log.write(body(1))
    faults.plan(DiskFault([.read], pathSuffix: "/CONTROL", ordinal: 2, error: .stale("", "")))
    try log.write(body(2))
    #expect(faults.struckCount == 1)
    #expect(try bound(disk).lsn == 1)
    try log.close()
    #expect(try bound(disk).lsn == 2)
    #expect(try recovered(disk) == [body(1), body(2)])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What a writer was told` {
  @Test func `is found by whoever opens or polls after it, though no time passes`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.publishesGroups = true
    let log = try openLog(disk, options: options)
    let early = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 8))
    var seen: [[UInt8]] = []
    for number in 0..<60 {
      try log.write(body(number))
      try early.poll { seen.append($0.body) }
      #expect(seen.count == number + 1 && seen.last == body(number))
      var fresh: [[UInt8]] = []
      try LogReader.open(at: storePath, environment: .simulated(disk, seed: 9)).poll { fresh.append($0.body) }
      #expect(fresh == seen)
      #expect(try bound(disk).lsn == UInt64(number + 1))
    }
    try log.close()
  }

  /// CONTROL cannot be written for one group, and its page may be torn by that.
  @Test func `is found again from the next group on, when CONTROL could not be written once`() throws {
    for moment in [DiskFault.Moment.before, .afterBytes(40), .after] {
      let disk = SimulatedDisk()
      let faults = FaultInjector(disk)
      var options = tiny
      options.publishesGroups = true
      let log = try openLog(faults, options: options)
      for number in 0..<3 { try log.write(body(number)) }
      faults.plan(DiskFault([.write], pathSuffix: "/CONTROL", moment: moment, error: .device("", "")))
      try log.write(body(3))
      #expect(faults.struckCount == 1)
      try log.write(body(4))
      var fresh: [[UInt8]] = []
      try LogReader.open(at: storePath, environment: .simulated(disk, seed: 9)).poll { fresh.append($0.body) }
      #expect(fresh == (0..<5).map { body($0) })
      #expect(try bound(disk).lsn == 5)
      try log.close()
    }
  }

  @Test func `is not written over a copy that was put over the files after CONTROL could not be written`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    var options = tiny
    options.publishesGroups = true
    let log = try openLog(faults, options: options)
    for number in 0..<3 { try log.write(body(number)) }
    let copy = disk.files(in: storePath)
    for number in 3..<5 { try log.write(body(number)) }
    faults.plan(DiskFault([.write], pathSuffix: "/CONTROL", error: .device("", "")))
    try log.write(body(5))
    disk.put(copy, over: storePath)
    #expect(throws: LogError.self) { try log.write(body(6)) }
    #expect(throws: LogError.self) { try log.close() }
    #expect(disk.files(in: storePath)["/CONTROL"] == copy["/CONTROL"])
  }

  @Test func `is not shown before it is durable`() throws {
    let disk = SimulatedDisk()
    let slow = DiskWithSlowSync(disk)
    var options = tiny
    options.publishesGroups = true
    let log = try openLog(slow, options: options)
    try log.write(body(1))
    slow.duringNextSync {
      do {
        var seen = 0
        try LogReader.open(at: storePath, environment: .simulated(disk, seed: 9)).poll { _ in seen += 1 }
        #expect(seen == 1)
      } catch { Issue.record("the reader met \(error)") }
    }
    try log.write(body(2))
    try log.close()
  }

  @Test(arguments: Campaign.seeds(1...60))
  func `is there after a power cut that tears what CONTROL says of it`(seed: UInt64) throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.publishesGroups = true
    let log = try openLog(disk, options: options, seed: seed)
    let random = SeededRandom(seed: seed)
    var bodies: [[UInt8]] = []
    for number in 0..<Int(3 + random.below(40)) {
      bodies.append(body(number, count: 20 + Int(random.below(400))))
      try log.write(bodies[number])
      let image = disk.imageAfterCrash(using: SeededRandom(seed: random.next()))
      #expect(try recovered(image) == bodies)
    }
    try log.close()
  }
}

/// A process that changes its directory.
private final class WanderingProcess: ForwardingFileSystem {
  let base: any FileSystem
  let directory = Mutex("/a")
  init(_ base: any FileSystem) { self.base = base }
  func absolutePath(_ path: String) throws(SystemError) -> String {
    path.hasPrefix("/") ? path : directory.withLock { $0 } + "/" + path
  }
}
