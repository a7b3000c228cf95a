// A power cut, a failed call and a full disk at every call of a life of runs: written, listed, merged, removed. The list
// that is found names runs that are whole, and is the one before the call or the one after it.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Testing

/// What the list said, and what its runs said together, after each step of a life.
private struct Life {
  /// By the list's binding, which numbers the lists.
  var models: [[UInt8]: RunModel] = [:]
  /// The number of the last list whose `replace` returned, and of the last that was begun.
  var durable: UInt8 = 0
  var begun: UInt8 = 0

  private var list: RunList
  private var parts: [(run: RunIdentity, model: RunModel)] = []

  init(_ bench: RunBench) { list = RunList(storeUUID: bench.storeUUID) }

  private mutating func newNumber() -> UInt64 {
    defer { list.nextRunNumber += 1 }
    return list.nextRunNumber
  }

  private mutating func replace(_ bench: RunBench) throws {
    begun += 1
    list.entries = parts.map { .init($0.run) }
    list.binding = [begun]
    models[[begun]] = parts.reversed().reduce(into: RunModel()) { $0.merge($1.model) { $1 } }
    try list.replace(bench.folder)
    durable = begun
  }

  /// Writes two runs, merges them, removes what they were made of, and writes another.
  mutating func live(_ bench: RunBench) throws {
    for size in [3, 40] {
      let model = bench.random.model(size)
      parts.insert((try bench.write(newNumber(), model), model), at: 0)
      try replace(bench)
    }
    let old = parts
    let runs = try old.map { try bench.open($0.run) }
    let writer = try bench.writer(newNumber(), keyCount: runs.reduce(0) { $0 + $1.entryCount })
    _ = try writer.merge(runs, dropsTombstones: true)
    let merged = old.reversed().reduce(into: RunModel()) { $0.merge($1.model) { $1 } }.filter { $0.value != nil }
    parts = [(try writer.finish(), merged)]
    try replace(bench)
    try bench.folder.remove(old.map(\.run.runNumber))
    let model = bench.random.model(10)
    parts.insert((try bench.write(newNumber(), model), model), at: 0)
    try replace(bench)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A crash among runs` {
  /// What a disk holds is one of the lists `durable...begun`, whole; and work goes on there.
  private func check(_ disk: any FileSystem, _ life: Life, durable: UInt8, begun: UInt8, _ what: String) throws {
    let bench = try RunBench(disk, seed: 3)
    let list = try RunList.load(bench.folder, storeUUID: bench.storeUUID)
    let number = list?.binding.first ?? 0
    #expect(durable...begun ~= number, "\(what): list \(number) of \(durable) to \(begun)")
    let runs = try (list?.entries ?? []).map { try bench.open($0.run) }
    for run in runs { try run.verify() }
    var cursor = try MergedCursor(runs)
    let expected = (life.models[list?.binding ?? []] ?? [:]).filter { $0.value != nil }
    #expect(try cursor.rest() == expected.entries(), "\(what)")
    try bench.folder.removeLeftovers(keeping: list?.runNumbers ?? [])
    #expect(try disk.list("/runs").count == runs.count + (list == nil ? 0 : 1), "\(what)")
    var next = list ?? RunList(storeUUID: bench.storeUUID)
    next.entries.insert(.init(try bench.write(next.nextRunNumber, [[9]: [9]])), at: 0)
    next.nextRunNumber += 1
    try next.replace(bench.folder)
    #expect(try RunList.load(bench.folder, storeUUID: bench.storeUUID) == next)
  }

  @Test func `leaves the list before or the one after it, at every call`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    disk.keepsHistory = true
    var life = Life(bench)
    // Which lists may be found at each call.
    try life.live(bench)
    let history = disk.history + [disk.clone()]
    #expect(history.count > 30)
    var images = 0
    var found: Set<UInt8> = []
    for (call, moment) in history.enumerated() {
      let lists = try lists(at: call + 1)
      let losses = moment.crashLosses()
      // A large write has hundreds of sectors; some stand for all.
      for (number, loss) in losses.enumerated() where number < 12 || number % 17 == 0 {
        images += 1
        try check(
          moment.imageAfterCrash(loss), life, durable: lists.durable, begun: lists.begun, "call \(call), \(loss)")
      }
      for seed in 1...6 as ClosedRange<UInt64> {
        images += 1
        let image = moment.imageAfterCrash(using: SeededRandom(seed: seed &+ UInt64(call) << 8))
        try check(
          image, life, durable: lists.durable, begun: lists.begun, "call \(call), random loss with seed \(seed)")
        found.insert(try RunList.load(RunBench(image).folder, storeUUID: bench.storeUUID)?.binding.first ?? 0)
      }
    }
    #expect(images > 400 && found == [0, 1, 2, 3, 4], "\(images) images, lists \(found)")
  }

  /// The same life up to a call: which list was durable, and which was begun.
  private func lists(at call: Int) throws -> (durable: UInt8, begun: UInt8) {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    disk.crashAtCall = disk.callCount + call
    var life = Life(bench)
    do { try life.live(bench) } catch is RunError {} catch is RunListFailure {} catch is SystemError {}
    return (life.durable, life.begun)
  }

  @Test func `is told apart from a call that fails`() throws {
    let clean = SimulatedDisk()
    let first = try RunBench(clean)
    let begin = clean.callCount
    var whole = Life(first)
    try whole.live(first)
    for call in begin + 1...clean.callCount {
      let disk = SimulatedDisk()
      let bench = try RunBench(disk)
      disk.failCall(call)
      var life = Life(bench)
      #expect(throws: (any Error).self, "call \(call)") { try life.live(bench) }
      for image in [disk.clone(), disk.imageAfterCrash(.none), disk.imageAfterCrash(.all)] {
        try check(image, life, durable: life.durable, begun: life.begun, "failed call \(call)")
      }
    }
  }

  /// The disk is full from some number of bytes on: nothing is lost, the space comes back, and there is an error that says
  /// so.
  @Test func `is no full disk`() throws {
    let clean = SimulatedDisk()
    let cleanBench = try RunBench(clean)
    var whole = Life(cleanBench)
    try whole.live(cleanBench)
    let largest = clean.usedBytes * 2
    var failures = 0
    for capacity in stride(from: 0, through: largest, by: 97) {
      let disk = SimulatedDisk()
      let bench = try RunBench(disk)
      disk.capacity = capacity
      var life = Life(bench)
      do {
        try life.live(bench)
      } catch let error as RunError {
        failures += 1
        #expect(error.cause?.isFull == true, "\(capacity): \(error)")
      } catch let error as RunListFailure {
        failures += 1
        guard case .refused(let cause) = error else { throw error }
        #expect(cause.cause?.isFull == true, "\(capacity): \(error)")
      }
      // What the writer had begun is gone; of a list that failed, at most its temporary file is left.
      #expect(!disk.paths.contains { $0.hasSuffix(".tmp") && !$0.hasSuffix("RUNS.tmp") }, "\(capacity)")
      disk.capacity = nil
      try check(disk, life, durable: life.durable, begun: life.durable, "capacity \(capacity)")
    }
    #expect(failures > 30, "\(failures)")
  }
}
