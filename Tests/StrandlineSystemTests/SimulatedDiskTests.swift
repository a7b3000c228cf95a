// What the simulated disk guarantees: what survives a crash, what may be lost, and that nothing else changes.
//
// Method: a short history for each guarantee; for the random crashes, a few thousand seeds, whose results are compared
// with a bound that is computed from the history without the disk's code.

import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct SimulatedDiskTests {
  /// A disk with one durable file of `count` bytes of `fill`.
  private func disk(_ count: Int, fill: UInt8 = 1) throws -> (SimulatedDisk, any File) {
    let disk = SimulatedDisk()
    disk.poke("/a", [UInt8](repeating: fill, count: count))
    return (disk, try disk.open("/a", .readWrite))
  }

  @Test func `a write that was not synced is lost or kept`() throws {
    let (disk, file) = try disk(1_024)
    try file.write([9, 9], at: 10)
    #expect(disk.peek("/a")?[10] == 9)
    #expect(disk.imageAfterCrash(.none).peek("/a")?[10] == 1)
    #expect(disk.imageAfterCrash(.all).peek("/a")?[10] == 9)
    try file.sync(.durable)
    #expect(disk.imageAfterCrash(.none).peek("/a")?[10] == 9)
    #expect(disk.unsyncedEffects().isEmpty)
  }

  @Test func `a created file may be lost until its directory is synced`() throws {
    let disk = SimulatedDisk()
    let file = try disk.open("/a", .create)
    try file.write([1], at: 0)
    try file.sync(.durable)
    #expect(disk.imageAfterCrash(.none).paths == [])
    try disk.syncDirectory("/")
    #expect(disk.imageAfterCrash(.none).peek("/a") == [1])
  }

  @Test func `a name may survive without its bytes`() throws {
    let disk = SimulatedDisk()
    let file = try disk.open("/a", .create)
    try disk.syncDirectory("/")
    try file.write([1], at: 0)
    #expect(disk.imageAfterCrash(.none).peek("/a") == [])
  }

  @Test func `a rename is whole or absent`() throws {
    let disk = SimulatedDisk()
    disk.poke("/d/new", [2])
    disk.poke("/d/old", [1])
    try disk.rename("/d/new", to: "/d/old")
    for loss in disk.crashLosses() {
      let image = disk.imageAfterCrash(loss)
      let happened = image.paths == ["/d/old"] && image.peek("/d/old") == [2]
      let notYet = image.paths == ["/d/new", "/d/old"] && image.peek("/d/old") == [1]
      #expect(happened || notYet, "\(loss)")
    }
    try disk.syncDirectory("/d")
    #expect(disk.imageAfterCrash(.none).paths == ["/d/old"])
  }

  @Test func `a renamed directory keeps its files`() throws {
    let disk = SimulatedDisk()
    try disk.makeDirectory("/s.init")
    let file = try disk.open("/s.init/LOCK", .create)
    try file.sync(.durable)
    try disk.syncDirectory("/s.init")
    try disk.rename("/s.init", to: "/s")
    #expect(disk.imageAfterCrash(.none).directoryPaths == [])
    try disk.syncDirectory("/")
    #expect(disk.imageAfterCrash(.none).paths == ["/s/LOCK"])
  }

  @Test func `of the operations on one name, a crash loses the last ones`() throws {
    let disk = SimulatedDisk()
    _ = try disk.open("/a.tmp", .create)
    try disk.rename("/a.tmp", to: "/a")
    _ = try disk.open("/b", .create)
    let effects = disk.unsyncedEffects()
    #expect(effects.count == 3)
    // The rename depends on the creation; the operation on the other name does not.
    #expect(disk.imageAfterCrash(.allBut(0)).paths == ["/b"])
    #expect(disk.imageAfterCrash(.only(1)).paths == ["/a"])
    #expect(disk.imageAfterCrash(.only(0)).paths == ["/a.tmp"])
    #expect(disk.imageAfterCrash(keeping: { $0.index != 1 }).paths == ["/a.tmp", "/b"])
  }

  @Test func `each sector and each size may be lost independently`() throws {
    let (disk, file) = try disk(512)
    try file.write([UInt8](repeating: 2, count: 1_024), at: 256)
    // The size, and sectors 0, 1 and 2.
    #expect(disk.unsyncedEffects().map(\.kind) == [.size(from: 512, to: 1_280), .sector(0), .sector(1), .sector(2)])
    #expect(disk.imageAfterCrash(.allBut(0)).peek("/a")?.count == 512)
    let holed = try #require(disk.imageAfterCrash(.allBut(2)).peek("/a"))
    #expect(holed.count == 1_280)
    #expect(holed[300] == 2 && holed[600] == 0 && holed[1_100] == 2)
    let alone = try #require(disk.imageAfterCrash(.only(0)).peek("/a"))
    #expect(alone == [UInt8](repeating: 1, count: 512) + [UInt8](repeating: 0, count: 768))
  }

  @Test func `bytes of an earlier sync keep their value in a torn sector`() throws {
    let (disk, file) = try disk(512, fill: 7)
    try file.write([1, 2, 3], at: 100)
    for seed in 0..<2_000 {
      let bytes = try #require(disk.imageAfterCrash(using: SeededRandom(seed: UInt64(seed))).peek("/a"))
      #expect(bytes.count == 512)
      #expect(bytes.enumerated().allSatisfy { (100..<103).contains($0.offset) || $0.element == 7 }, "seed \(seed)")
    }
  }

  @Test func `random crashes reach every outcome and invent nothing outside of unsynced ranges`() throws {
    let (disk, file) = try disk(8_192)
    try file.write([UInt8](repeating: 2, count: 1_000), at: 1_000)
    try file.write([UInt8](repeating: 3, count: 1_000), at: 1_500)
    try file.preallocate(at: 8_192, length: 4_096)
    var sizes: Set<Int> = []
    var seen: Set<UInt8> = []
    for seed in 0..<2_000 {
      let image = disk.imageAfterCrash(using: SeededRandom(seed: UInt64(seed)))
      let bytes = try #require(image.peek("/a"))
      sizes.insert(bytes.count)
      seen.formUnion(bytes[1_000..<2_500])
      #expect(bytes[..<1_000].allSatisfy { $0 == 1 } && bytes[2_500..<8_192].allSatisfy { $0 == 1 }, "seed \(seed)")
      #expect(image.unsyncedEffects().isEmpty)
    }
    #expect(sizes == [8_192, 12_288])
    #expect(seen.isSuperset(of: [0, 1, 2, 3]))
  }

  @Test func `the same seed gives the same crash`() throws {
    let (disk, file) = try disk(4_096)
    try file.write([UInt8](repeating: 2, count: 3_000), at: 500)
    let first = disk.imageAfterCrash(using: SeededRandom(seed: 5)).peek("/a")
    #expect(first == disk.imageAfterCrash(using: SeededRandom(seed: 5)).peek("/a"))
  }

  @Test func `truncated bytes read as zero when the file grows again`() throws {
    let (disk, file) = try disk(1_024)
    try file.truncate(to: 100)
    try file.preallocate(at: 0, length: 1_024)
    #expect(try file.read(at: 100, count: 2_000) == [UInt8](repeating: 0, count: 924))
    try file.sync(.durable)
    #expect(disk.imageAfterCrash(.none).peek("/a")?[100...].allSatisfy { $0 == 0 } == true)
  }

  @Test func `a crash loses the pages of a failed sync although a later sync succeeded`() throws {
    let (disk, file) = try disk(512)
    disk.failedSyncLosesPages = true
    try file.write([5], at: 0)
    disk.failSync(atCall: 2, with: .device("fdatasync", "/a"))
    #expect(throws: SystemError.device("fdatasync", "/a")) { try file.sync(.durable) }
    try file.write([6], at: 1)
    try file.sync(.durable)
    #expect(try file.read(at: 0, count: 2) == [5, 6])
    #expect(disk.imageAfterCrash(.all).peek("/a")?.prefix(2) == [1, 6])
  }

  @Test func `after a barrier a suffix may be missing, never what it covers`() throws {
    let (disk, file) = try disk(2_048, fill: 0)
    disk.isOrderedSyncWeak = true
    disk.poke("/b", [0])
    let other = try disk.open("/b", .readWrite)
    try file.write([1], at: 0)
    try file.write([1], at: 600)
    try file.sync(.ordered)
    try other.write([2], at: 0)
    #expect(disk.imageAfterCrash(.none).peek("/a")?[0] == 0)
    #expect(disk.unsyncedEffectCount == 3)
    for index in 0..<3 {
      for loss in [CrashLoss.allBut(index), .only(index)] { try check(disk.imageAfterCrash(loss), "\(loss)") }
    }
    var outcomes: Set<[UInt8]> = []
    for seed in 0..<500 {
      outcomes.insert(try check(disk.imageAfterCrash(using: SeededRandom(seed: UInt64(seed))), "seed \(seed)"))
    }
    #expect(outcomes.isSuperset(of: [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 2]]))
    // A durable sync of one file also makes durable what a barrier has covered of the other.
    try other.sync(.durable)
    #expect(disk.imageAfterCrash(.none).peek("/a")?[600] == 1)
  }

  /// Whether a later write survived only if the earlier ones did.
  @discardableResult
  private func check(_ image: SimulatedDisk, _ what: Comment) throws -> [UInt8] {
    let first = try #require(image.peek("/a"))
    let second = try #require(image.peek("/b"))
    #expect(second[0] == 0 || (first[0] == 1 && first[600] == 1), what)
    return [first[0], first[600], second[0]]
  }

  @Test func `the power is cut at the planned call and stays off`() throws {
    for isTearing in [false, true] {
      let (disk, file) = try disk(512)
      disk.crashAtCall = 2
      disk.isTearing = isTearing
      try file.write([5], at: 0)
      #expect(throws: SystemError.powerIsOff("/a")) { try file.write([6], at: 1) }
      #expect(disk.isOff)
      #expect(throws: SystemError.powerIsOff("/a")) { try file.read(at: 0, count: 1) }
      #expect(disk.imageAfterCrash(.all).peek("/a")?.prefix(2) == [5, isTearing ? 6 : 1])
      #expect(try disk.imageAfterCrash(.none).open("/a", .read).read(at: 0, count: 2) == [1, 1])
    }
  }

  @Test func `a history holds the disk before each call`() throws {
    let (disk, file) = try disk(512)
    disk.keepsHistory = true
    try file.write([5], at: 0)
    try file.sync(.durable)
    let history = disk.history
    #expect(history.count == 2)
    #expect(history[0].peek("/a")?[0] == 1)
    #expect(history[1].imageAfterCrash(.none).peek("/a")?[0] == 1)
    #expect(history[1].imageAfterCrash(.all).peek("/a")?[0] == 5)
  }

  @Test func `on a full disk only growth fails`() throws {
    let (disk, file) = try disk(512)
    disk.capacity = 512
    #expect(throws: SystemError.full("pwrite", "/a")) { try file.write([1], at: 512) }
    #expect(throws: SystemError.full("fallocate", "/a")) { try file.preallocate(at: 0, length: 513) }
    #expect(throws: SystemError.full("open", "/b")) { try disk.open("/b", .create) }
    try file.write([4], at: 511)
    #expect(try file.size() == 512)
    disk.capacity = 1_024
    try file.write([1], at: 512)
    try disk.unlink("/a")
    #expect(disk.usedBytes == 0)
  }

  @Test func `locks exclude each other and end with the power`() throws {
    let disk = SimulatedDisk()
    #expect(throws: SystemError.absent("open", "/LOCK")) { try disk.lock("/LOCK", exclusive: false) }
    let lock = try #require(try disk.lock("/LOCK", exclusive: true))
    #expect(try disk.lock("/LOCK", exclusive: true) == nil)
    #expect(try disk.lock("/LOCK", exclusive: false) == nil)
    #expect(try disk.imageAfterCrash(.all).lock("/LOCK", exclusive: true) != nil)
    lock.unlock()
    lock.unlock()
    let shared = try #require(try disk.lock("/LOCK", exclusive: false))
    #expect(try disk.lock("/LOCK", exclusive: false) != nil)
    #expect(try disk.lock("/LOCK", exclusive: true) == nil)
    shared.unlock()
  }

  @Test func `a clone and its original do not share changes`() throws {
    let (disk, file) = try disk(512)
    try file.write([5], at: 0)
    let clone = disk.clone()
    try file.write([6], at: 0)
    #expect(clone.peek("/a")?[0] == 5)
    #expect(clone.imageAfterCrash(.none).peek("/a")?[0] == 1)
  }

  @Test func `calls on a closed file throw`() throws {
    let (disk, file) = try disk(512)
    file.close()
    #expect(throws: SystemError.closed("pread", "/a")) { try file.read(at: 0, count: 1) }
    let reader = try disk.open("/a", .read)
    #expect(throws: SystemError.closed("pwrite", "/a")) { try reader.write([1], at: 0) }
  }
}
