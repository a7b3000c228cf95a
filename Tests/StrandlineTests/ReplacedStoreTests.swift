// A store whose folder is moved, removed or replaced while it is open: at each call that changes the disk, of each operation.
// What is at the path is never changed, and what was acknowledged is where the folder was moved to. The engine is
// ReplacedStores; a run of all tests takes a slice.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

extension FolderFate {
  /// What has become of a folder, once a call has come.
  final class Struck: Sendable {
    fileprivate let found = Mutex<Result<[String: [UInt8]], any Error>?>(nil)
    /// The files that were at the path right after; nil if the call never came.
    var files: [String: [UInt8]]? { get throws { try found.withLock { try $0?.get() } } }
  }

  /// Lets it happen before a call that changes the disk.
  ///
  /// - Parameter second: writes a store at the path, for `.secondWriter`.
  func befall(
    _ disk: SimulatedDisk, beforeCall call: Int, _ copy: [String: [UInt8]],
    second: @escaping @Sendable (any FileSystem) throws -> Void
  ) -> Struck {
    let struck = Struck()
    disk.interrupt(beforeCall: call) {
      let result = Result {
        _ = try self.befall(disk, copy, second: second)
        return disk.files(in: Self.path)
      }
      struck.found.withLock { $0 = result }
    }
    return struck
  }
}

private func open(_ disk: any FileSystem, seed: UInt64, at path: String = "/store") throws -> RecordStore {
  try RecordStore.openBlocking(
    at: path,
    environment: StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: seed)),
      isSimulated: true))
}

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do {
    try body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

extension RecordStore {
  fileprivate func put(_ name: String) throws {
    try writeBlocking { try $0.save(Record(type: "T", id: RecordID(name), fields: ["n": 1])) }
  }
  fileprivate func names() throws -> [String] {
    var result: [String] = []
    try forEachRecord { result.append($0.id.name) }
    return result.sorted()
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A store that is replaced` {
  private func made() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    for (path, name) in [("/store", "own"), ("/other", "other")] {
      let store = try open(disk, seed: path == "/store" ? 1 : 2, at: path)
      try store.put(name)
      try store.closeBlocking()
    }
    return disk
  }

  @Test func `is written nowhere else, at any call of what it does, whatever becomes of its folder`() throws {
    var campaign = try ReplacedStores()
    try campaign.run { Campaign.takes($0, every: 24) }
    print("replaced stores: \(campaign.cases) cases, \(campaign.powerCuts) disks after a power cut")
    #expect(campaign.cases > (Campaign.isWhole ? 2_000 : 120), "\(campaign.cases)")
    #expect(campaign.powerCuts > (Campaign.isWhole ? 400 : 20), "\(campaign.powerCuts)")
  }

  @Test func `is noticed by the campaign when it is changed or loses a write`() throws {
    for (damaged, words) in [("/store/MANIFEST", "was changed"), ("/moved/MANIFEST", "")] {
      var campaign = try ReplacedStores()
      campaign.meddle = { disk in
        if disk.peek("/moved/MANIFEST") != nil, disk.peek(damaged) != nil { disk.poke(damaged, [1]) }
      }
      let failure = try #require(
        #expect(throws: FolderFailure.self) { try campaign.run { Campaign.takes($0, every: 24) } })
      #expect(failure.what.contains(words), "\(failure)")
      #expect(failure.command == "strandline crash-test --folder \(failure.folderCase)")
      // Its words are the case, which fails again alone.
      let one = try #require(FolderCase("\(failure.folderCase)"))
      #expect(one == failure.folderCase)
      #expect(throws: FolderFailure.self) { try campaign.replay(one) }
      campaign.meddle = { _ in }
      try campaign.replay(one)
    }
  }

  /// The inbox is a log of its own, which is opened by its path: of a store that was moved, that may lead into another one's.
  @Test(arguments: [FolderFate.replacedByOlder, .replacedByAnother, .secondWriter])
  func `takes nothing out of the inbox of what is at its path`(_ fate: FolderFate) throws {
    let disk = try made()
    func leave(_ name: String, at path: String = "/store") throws {
      let environment = StoreEnvironment(
        SystemEnvironment(
          fileSystem: OtherProcess(disk), clock: SimulatedClock(), random: SeededRandom(seed: 7)), isSimulated: true)
      try RecordStore.inbox(at: path, environment: environment).write {
        try $0.save(Record(type: "T", id: RecordID(name), fields: ["n": 1]))
      }
    }
    try leave("early")
    disk.put(disk.files(in: "/store"), over: FolderFate.olderPath)
    let store = try open(disk, seed: 3)
    #expect(try store.names() == ["early", "own"])
    let second = try fate.befall(disk, [:]) { disk in try open(disk, seed: 4) }
    try leave("for what is there")
    let found = disk.files(in: "/store")
    let error = #expect(throws: StrandlineError.self) { try store.refresh() }
    #expect(error?.code == .storeReplaced, "\(String(describing: error))")
    #expect(try store.status().inbox?.failure?.contains("another") == true)
    #expect(try store.names() == ["early", "own"])
    #expect(disk.files(in: "/store") == found)
    _ = Result { try store.closeBlocking() }
    #expect(disk.files(in: "/store") == found)
    if let second = second.flatMap(\.self) {
      _ = try second.refresh()
      #expect(try second.names() == ["for what is there"])
      try second.closeBlocking()
    } else {
      let there = try open(OtherProcess(disk), seed: 5)
      #expect(try there.names().contains("for what is there"))
      try there.closeBlocking()
    }
  }

  @Test(arguments: FolderFate.allCases, [false, true])
  func `gets what is left for it, and not another one that comes to its path meanwhile`(
    _ fate: FolderFate, hadInbox: Bool
  ) throws {
    func leave(_ name: String, _ disk: SimulatedDisk) throws {
      let environment = StoreEnvironment(
        SystemEnvironment(
          fileSystem: OtherProcess(disk), clock: SimulatedClock(), random: SeededRandom(seed: 7)), isSimulated: true)
      try RecordStore.inbox(at: "/store", environment: environment).write {
        try $0.save(Record(type: "T", id: RecordID(name), fields: ["n": 1]))
      }
    }
    var (call, left) = (0, 0)
    var isMet = true
    while isMet {
      call += 1
      let comment: Comment = "\(fate), call \(call)"
      let disk = try made()
      disk.put(disk.files(in: "/store"), over: FolderFate.olderPath)
      if hadInbox { try leave("early", disk) }
      try disk.folder("/").sync()
      let copy = disk.files(in: "/store")
      let struck = fate.befall(disk, beforeCall: disk.callCount + call, copy) { disk in
        let second = try open(disk, seed: 8)
        try second.put("other")
        try second.closeBlocking()
      }
      let outcome = Result { try leave("late", disk) }
      disk.endInterruption()
      let there = try struck.files
      isMet = there != nil
      guard let there else { break }
      if case .success = outcome { left += 1 }
      for image in [disk, disk.imageAfterCrash(using: SeededRandom(seed: UInt64(call)))] {
        // A new inbox is made by its path: an empty one may be left where another store has come right then.
        func own(_ files: [String: [UInt8]]) -> [String: [UInt8]] { files.filter { !$0.key.hasPrefix("/inbox") } }
        #expect(own(image.files(in: "/store")) == own(there), comment)
        try judge(image, fate, hadInbox: hadInbox, hasLeft: (try? outcome.get()) != nil, comment)
      }
      if case .failure(let error) = outcome {
        let code = (error as? StrandlineError)?.code
        // Before the folder of the inbox is opened there is nothing at the path, or something else.
        let isSaid = code == .storeReplaced || code == .noSuchStore
        let isRead = fate.isInPlace || fate.isRemoved && code != .io
        #expect(!fate.goesOn && (isSaid || (code != nil && isRead)), "\(comment): \(error)")
      }
    }
    #expect(call > 5 && left > 0, "\(fate): \(call) calls, \(left) taken")
  }

  /// Looks at what is in the stores that a fate has left: the one in which an inbox was written, and the other one.
  private func judge(
    _ disk: SimulatedDisk, _ fate: FolderFate, hadInbox: Bool, hasLeft: Bool, _ comment: Comment
  ) throws {
    func names(_ path: String) throws -> Set<String> {
      let store = try open(OtherProcess(disk.clone()), seed: 9, at: path)
      defer { _ = Result { try store.closeBlocking() } }
      return Set(try store.names())
    }
    if let kept = fate.keptPath {
      let found = try names(kept)
      #expect(found.contains("own") && found.contains("early") == hadInbox, comment)
      if hasLeft { #expect(found.contains("late"), comment) }
    }
    switch fate {
    case .replacedByAnother, .removedAndReplaced, .secondWriter: #expect(try names("/store") == ["other"], comment)
    // It is still the folder of this path, in which a first inbox is made.
    case .emptiedAndFilled:
      #expect(try names("/store").subtracting(hadInbox ? [] : ["late"]) == ["other"], comment)
    case .replacedByOlder: #expect(try names("/store").subtracting(["late"]) == ["own"], comment)
    case .moved, .removed, .overwrittenByOlder, .overwrittenByAnother, .overwrittenBySameSession, .remounted: break
    }
  }

  /// An open of a long log without tables writes some while it reads.
  @Test(arguments: FolderFate.allCases)
  func `gets no tables of a log that is being opened, whatever becomes of its folder`(_ fate: FolderFate) throws {
    let disk = SimulatedDisk()
    @Sendable func open(_ disk: any FileSystem, seed: UInt64, at path: String = "/store") throws -> RecordStore {
      var log = LogOptions()
      log.segmentBytesMax = 2 << 10
      (log.controlIntervalMilliseconds, log.ballastBytes, log.upkeep) = (nil, 0, .onDemand)
      var index = IndexOptions()
      (index.flushCount, index.mergeWidth) = (2, 100)
      return try RecordStore.openBlocking(
        at: path, options: StoreOptions(log: log, index: index),
        environment: StoreEnvironment(
          SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: seed)),
          isSimulated: true))
    }
    for (path, seed) in [("/store", 1 as UInt64), ("/other", 2), ("/older", 3)] {
      let store = try open(disk, seed: seed, at: path)
      for number in 0..<40 {
        try store.put("\(path.dropFirst())\(number)")
        if path != "/store", number % 5 == 0 { try #require(store.index).flush(always: true) }
      }
      try store.closeBlocking()
    }
    for file in disk.paths where file.hasPrefix("/store/runs/") { disk.pokeRemove(file) }
    try disk.folder("/").sync()
    let copy = disk.files(in: "/store")
    let meter = CallMeter(disk.clone())
    let first = meter.disk.callCount
    _ = try open(meter, seed: 4)
    let calls = meter.disk.callCount - first
    #expect(calls > 20 && meter.disk.files(in: "/store").keys.contains { $0.hasSuffix(".run") })
    // Until LOCK and CONTROL are held, an open opens what is there.
    for call in 4...calls where !fate.isBlind(before: meter.calls[first + call]) {
      let image = disk.clone()
      let struck = fate.befall(image, beforeCall: first + call, copy) { disk in
        let second = try open(disk, seed: 5)
        try second.put("second")
        try second.closeBlocking()
      }
      let error = Result { _ = try open(image, seed: 4) }
      let put = try #require(try struck.files, "\(fate), call \(call)")
      guard !fate.goesOn, fate != .overwrittenBySameSession else {
        try error.get()
        continue
      }
      // A file of its own under a temporary name may stay: the next writer removes it.
      let changes = fate.changes(in: image.files(in: "/store"), of: put).filter { !$0.hasSuffix(".tmp") }
      #expect(changes.isEmpty, "\(fate), call \(call): \(changes)")
    }
  }

  /// To most file systems of Linux they are two.
  @Test func `is another one than that of a path that Unicode calls equal`() throws {
    let folder = try TemporaryFolder()
    let disk = POSIXFileSystem()
    let paths = ["caf\u{E9}", "cafe\u{301}"].map { folder($0) }
    for path in paths where try disk.kind(of: path) == .absent { try disk.makeDirectory(path) }
    guard try disk.folder(folder.path).list().count == 2 else { return }
    let stores = try paths.map { try open(disk, seed: 1, at: $0) }
    for (store, name) in zip(stores, ["one", "two"]) { try store.put(name) }
    for store in stores { try store.closeBlocking() }
    #expect(try paths.map { try open(disk, seed: 1, at: $0).names() } == [["one"], ["two"]])
  }

  /// Some drives say of each file that it has no name, and number files anew when they are mounted again.
  @Test func `is not given up on a drive that counts no names`() throws {
    let disk = SimulatedDisk()
    disk.countNoNames()
    let clock = SimulatedClock()
    let store = try RecordStore.openBlocking(
      at: "/store",
      environment: StoreEnvironment(
        SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 1)), isSimulated: true))
    try store.put("a")
    disk.remount()
    clock.advance(milliseconds: Int64(StoreLook.milliseconds))
    try store.put("b")
    // What is there in its place is found all the same.
    try disk.renameFolder("/store", to: "/moved")
    clock.advance(milliseconds: Int64(StoreLook.milliseconds))
    #expect(code { try store.put("c") } == .storeReplaced)
    _ = Result { try store.closeBlocking() }
  }

  /// What lies at the path when it is resumed: an older copy; or one that another process has gone on with, beyond what was
  /// acknowledged here, and whose tables say so.
  @Test(arguments: [0, 1, 40]) func `is not resumed over an older copy, which stays as it is`(_ later: Int) throws {
    let disk = SimulatedDisk()
    let store = try open(disk, seed: 1)
    for name in ["a", "b"] { try store.put(name) }
    let older = disk.files(in: "/store")
    try store.put("c")
    try store.suspendBlocking()
    let newer = disk.files(in: "/store")
    func put(_ files: [String: [UInt8]]) {
      for path in disk.paths where path.hasPrefix("/store/") && files[String(path.dropFirst(6))] == nil {
        disk.pokeRemove(path)
      }
      disk.put(files, over: "/store")
    }
    put(older)
    if later > 0 {
      let other = try open(OtherProcess(disk), seed: 2)
      for number in 0..<later { try other.put("other\(number)") }
      try other.closeBlocking()
    }
    let copy = disk.files(in: "/store")
    let error = #expect(throws: StrandlineError.self) { try store.resumeBlocking() }
    #expect(
      error?.code == .storeReplaced && error?.message.contains("an older copy") == true, "\(String(describing: error))")
    #expect(disk.files(in: "/store") == copy)
    #expect(store.isSuspended)
    // It goes on when the files are back.
    put(newer)
    try store.resumeBlocking()
    try store.put("d")
    #expect(try store.names() == ["a", "b", "c", "d"])
    try store.closeBlocking()
    let next = try open(disk, seed: 3)
    #expect(try next.names() == ["a", "b", "c", "d"])
    try next.closeBlocking()
  }

  @Test func `is refused to a second store of the process, and told by reads and writes`() throws {
    let disk = try made()
    let store = try open(disk, seed: 3)
    let reader = try RecordStore.openReadOnlyBlocking(
      at: "/store",
      environment: StoreEnvironment(
        SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: 4)),
        isSimulated: true))
    try store.put("a")
    #expect(try reader.refresh())
    #expect(try reader.names() == ["a", "own"])
    try disk.folder("/store").removeContents()
    try disk.removeDirectory("/store")
    #expect(code { _ = try open(disk, seed: 5) } == .storeHeld)
    #expect(code { _ = try reader.refresh() } == .storeReplaced)
    #expect(try reader.names() == ["a", "own"])
    #expect(code { try store.closeBlocking() } == .storeReplaced)
    let next = try open(disk, seed: 6)
    #expect(try next.names() == [])
    try next.put("b")
    try next.closeBlocking()
  }
}
