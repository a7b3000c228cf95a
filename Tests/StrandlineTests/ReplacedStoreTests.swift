// A store whose folder is moved or removed while it is open: at each call that changes the disk, of each step that it takes
// beside commits. What is at the path is never changed, and what was acknowledged is where the folder was moved to.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

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
  private enum Step: CaseIterable { case flush, index, backup, suspend, close }

  private func take(_ step: Step, _ store: RecordStore) throws {
    switch step {
    case .flush: try #require(store.index).flush()
    case .index: try store.addIndex(RecordIndex("T", "n"))
    case .backup: _ = try store.backupBlocking(to: "/backup")
    case .suspend: try store.suspendBlocking()
    case .close: try store.closeBlocking()
    }
  }

  private func made() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    for (path, name) in [("/store", "own"), ("/other", "other")] {
      let store = try open(disk, seed: path == "/store" ? 1 : 2, at: path)
      try store.put(name)
      try store.closeBlocking()
    }
    return disk
  }

  private func files(_ disk: SimulatedDisk, _ path: String) -> [String: [UInt8]] {
    var result: [String: [UInt8]] = [:]
    for file in disk.paths where file.hasPrefix(path + "/") {
      result[String(file.dropFirst(path.count))] = disk.peek(file)
    }
    return result
  }

  @Test func `is written nowhere else, at any call of what it does beside commits`() throws {
    let base = try made()
    var cases = 0
    for step in Step.allCases {
      func begun(_ disk: SimulatedDisk) throws -> RecordStore {
        let store = try open(disk, seed: 3)
        for number in 0..<3 { try store.put("n\(number)") }
        return store
      }
      let counting = base.clone()
      let counted = try begun(counting)
      let first = counting.callCount
      try take(step, counted)
      for call in first + 1...counting.callCount {
        cases += 1
        let disk = base.clone()
        let store = try begun(disk)
        disk.interrupt(beforeCall: call) {
          do {
            try disk.renameFolder("/store", to: "/moved")
            try disk.renameFolder("/other", to: "/store")
          } catch { Issue.record(error) }
        }
        let found = code { try take(step, store) }
        #expect(found == nil || found == .storeReplaced, "\(step) \(call): \(found as Any)")
        if step != .close { _ = code { try store.closeBlocking() } }
        #expect(files(disk, "/store") == files(base, "/other"), "\(step) \(call)")
        let moved = try open(disk, seed: 5, at: "/moved")
        #expect(try moved.names() == ["n0", "n1", "n2", "own"], "\(step) \(call)")
        try moved.closeBlocking()
        let other = try open(disk, seed: 6)
        #expect(try other.names() == ["other"], "\(step) \(call)")
        try other.closeBlocking()
      }
    }
    #expect(cases > 40, "\(cases)")
  }

  @Test func `is refused to a second store of the process, and told by reads and writes`() throws {
    let disk = try made()
    let store = try open(disk, seed: 3)
    let reader = try RecordStore.openReadOnly(
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
