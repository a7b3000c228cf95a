// Goal: a store whose files the system refuses while the device is locked says so, changes nothing, and can be opened when
// the device is unlocked. Method: each file call of an open, and all after it, is refused, on stores that were closed and
// on stores whose writers died in the middle of their work.

@testable import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

private func id(_ name: String) -> RecordID { RecordID(name) }

/// A device that can be locked.
private final class Phone: Sendable {
  let disk: SimulatedDisk
  let faults: FaultInjector
  private let isLocked = Atomic(false)

  init(_ disk: SimulatedDisk) {
    self.disk = disk
    faults = FaultInjector(disk)
  }

  /// Refuses file calls from the `ordinal`th on.
  func lock(from ordinal: Int, isTold: Bool = true, _ error: SystemError) {
    isLocked.store(isTold, ordering: .releasing)
    faults.plan(DiskFault([], ordinal: ordinal, isSticky: true, error: error))
  }

  func unlock() {
    isLocked.store(false, ordering: .releasing)
    faults.clear()
  }

  func environment(seed: UInt64) -> StoreEnvironment {
    let fileSystem = ProtectedFileSystem(faults) { !self.isLocked.load(ordering: .acquiring) }
    return StoreEnvironment(
      SystemEnvironment(
        fileSystem: fileSystem, clock: SimulatedClock(autoAdvance: true), random: SeededRandom(seed: seed)),
      isSimulated: true)
  }

  func open(seed: UInt64) throws -> RecordStore {
    var options = StoreOptions()
    options.segmentBytesMax = 8_192
    return try RecordStore.openBlocking(at: "/store", options: options, environment: environment(seed: seed))
  }

  /// Every file with its bytes.
  var files: [String: [UInt8]] { Dictionary(uniqueKeysWithValues: disk.paths.map { ($0, disk.peek($0) ?? []) }) }
}

/// Stores as an open may find them.
private enum Scene: String, CaseIterable {
  case closed, torn, interruptedCompaction

  func make() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    let phone = Phone(disk)
    let store = try phone.open(seed: 1)
    for number in 0..<60 {
      try store.writeBlocking { tx in
        try tx.save(Record(type: "T", id: id("r\(number % 7)"), fields: ["n": .int64(Int64(number))]))
      }
    }
    switch self {
    case .closed: try store.closeBlocking()
    case .torn:
      // Its last group is complete, and not all of it is promised.
      return disk.imageAfterCrash(.all)
    case .interruptedCompaction:
      phone.faults.plan(DiskFault([.rename], pathSuffix: "MANIFEST", isSticky: true, error: .device("", "")))
      do { try store.compactBlocking() } catch { return disk.imageAfterCrash(.all) }
      Issue.record("the compaction was not interrupted")
    }
    return disk
  }
}

private func thrown(_ body: () throws -> Void) -> StrandlineError? {
  do {
    try body()
    return nil
  } catch {
    if let error = error as? StrandlineError { return error }
    Issue.record(error)
    return nil
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `On a locked device` {
  @Test(arguments: Scene.allCases)
  fileprivate func `24: each file call of an open may be refused: it is temporary, and nothing is damaged`(
    scene: Scene
  ) throws {
    let made = try scene.make()
    for readOnly in [false, true] {
      var ordinal = 0
      var isStruck = true
      while isStruck {
        ordinal += 1
        let comment: Comment = "\(scene), reading only: \(readOnly), call \(ordinal)"
        let phone = Phone(made.clone())
        let before = phone.files
        phone.lock(from: ordinal, ordinal % 2 == 0 ? .notPermitted("", "") : .forbidden("", ""))
        let error = thrown {
          if readOnly {
            _ = try RecordStore.openReadOnlyBlocking(at: "/store", environment: phone.environment(seed: 2))
          } else {
            _ = try phone.open(seed: 2)
          }
        }
        isStruck = phone.faults.struckCount > 0
        if isStruck {
          #expect(error?.code == .temporarilyUnavailable, comment)
          #expect(error?.code.isTransient == true && error?.message.contains("device is locked") == true, comment)
        } else {
          #expect(error == nil, comment)
        }
        #expect(!phone.disk.directoryPaths.contains { $0.hasSuffix("quarantine") }, comment)
        if readOnly || scene == .closed { #expect(phone.files == before, comment) }
        phone.unlock()
        let store = try phone.open(seed: 3)
        #expect(try store.records(ofType: "T").count == 7, comment)
        #expect(try store.record(id("r3"))?["n"] == 59, comment)
        try store.closeBlocking()
      }
      #expect(ordinal > 10)
    }
  }

  @Test func `reads and writes are refused for the time, and go on afterwards`() throws {
    let phone = Phone(try Scene.closed.make())
    let store = try phone.open(seed: 2)
    phone.lock(from: 1, .notPermitted("", ""))
    #expect(thrown { _ = try store.record(id("r1")) }?.code == .temporarilyUnavailable)
    // The first write makes a segment; nothing of it is written.
    #expect(
      thrown { try store.writeBlocking { try $0.delete(id("r1")) } }?.code == .temporarilyUnavailable)
    phone.unlock()
    #expect(try store.record(id("r1"))?["n"] == 57)
    try store.writeBlocking { try $0.delete(id("r1")) }
    #expect(try store.record(id("r1")) == nil)
    try store.closeBlocking()
  }

  @Test func `a suspended store is resumed when it is unlocked`() throws {
    let phone = Phone(try Scene.closed.make())
    let store = try phone.open(seed: 2)
    try store.suspendBlocking()
    phone.lock(from: 1, .notPermitted("", ""))
    #expect(thrown { try store.resumeBlocking() }?.code == .temporarilyUnavailable)
    #expect(store.isSuspended)
    phone.unlock()
    try store.resumeBlocking()
    try store.writeBlocking { try $0.delete(id("r1")) }
    try store.closeBlocking()
  }

  @Test func `what is refused for good, and damage, are what they are`() throws {
    let phone = Phone(try Scene.closed.make())
    phone.lock(from: 3, isTold: false, .forbidden("", ""))
    #expect(thrown { _ = try phone.open(seed: 2) }?.code == .io)
    phone.unlock()
    phone.lock(from: 3, .device("", ""))
    #expect(thrown { _ = try phone.open(seed: 2) }?.code == .io)
    phone.unlock()
    var bytes = try #require(phone.disk.peek("/store/MANIFEST"))
    bytes[20] ^= 1
    phone.disk.poke("/store/MANIFEST", bytes)
    phone.lock(from: .max, .notPermitted("", ""))
    #expect(thrown { _ = try phone.open(seed: 2) }?.code == .damaged)
  }

  @Test func `a call that was not made because a store was replaced says that, locked or not`() throws {
    for isLocked in [false, true] {
      let faults = FaultInjector(SimulatedDisk())
      let disk = ProtectedFileSystem(faults) { !isLocked }
      func cause(_ error: SystemError) -> SystemError.Cause? {
        faults.plan(DiskFault([.makeDirectory], error: error))
        defer { faults.clear() }
        do throws(SystemError) { try disk.makeDirectory("/a") } catch { return error.cause }
        return nil
      }
      #expect(cause(.replaced("", "")) == .replacement)
      #expect(cause(.stale("", "")) == nil)
      #expect(cause(.forbidden("", "")) == (isLocked ? .deviceLocked : nil))
    }
    func code(_ error: SystemError) -> StrandlineError.Code? {
      (StrandlineError.translating(error, "reading") as? StrandlineError)?.code
    }
    #expect(code(.replaced("open", "/a")) == .storeReplaced && code(.stale("open", "/a")) == .io)
  }

  @Test func `the store's folder is treated as the options say, at each open for writing`() throws {
    let disk = SimulatedDisk()
    let environment = StoreEnvironment.simulated(disk: disk, seed: 1)
    try RecordStore.openBlocking(at: "/s", environment: environment).closeBlocking()
    // A sync in the background works, and what was not uploaded is in a backup of the device.
    #expect(disk.treatment(of: "/s") == FileTreatment(.untilFirstUnlock, isLeftOutOfBackups: false))
    for protection in FileProtection.allCases {
      for isExcluded in [true, false] {
        var options = StoreOptions()
        (options.fileProtection, options.isExcludedFromBackup) = (protection, isExcluded)
        #expect(options.fileProtection == protection && options.isExcludedFromBackup == isExcluded)
        try RecordStore.openBlocking(at: "/s", options: options, environment: environment).closeBlocking()
        let treatment = try #require(disk.treatment(of: "/s"))
        #expect(treatment == options.fileTreatment && treatment.isLeftOutOfBackups == isExcluded)
      }
    }
    _ = try RecordStore.openReadOnlyBlocking(at: "/s", environment: environment)
    #expect(disk.treatment(of: "/s") == FileTreatment(.inherited, isLeftOutOfBackups: false))
  }

  @Test func `a real file system is asked in the same way`() throws {
    let folder = try TemporaryFolder()
    let asked = Asked()
    let environment = StoreEnvironment.real {
      asked.count.add(1, ordering: .relaxed)
      return false
    }
    let store = try RecordStore.openBlocking(at: folder("store"), environment: environment)
    try store.writeBlocking { try $0.save(Record(type: "T", id: id("a"), fields: ["n": 1])) }
    #expect(try store.record(id("a"))?["n"] == 1)
    try store.closeBlocking()
    // No call was refused, so nothing was asked.
    #expect(asked.count.load(ordering: .relaxed) == 0)
  }
}

private final class Asked: Sendable { let count = Atomic(0) }
