// A run says what was written to it: against a dictionary, over random keys and values, alone and merged with others.
// And an open and a look-up read no more than they say.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A sorted run` {
  /// Several runs of random entries: each by itself, all together, and what is written of them as one.
  @Test(arguments: Campaign.seeds(1...40, every: 10))
  func `says what a dictionary says`(seed: UInt64) throws {
    let bench = try RunBench(SimulatedDisk(), seed: seed)
    let random = bench.random
    // A cache of a few blocks, of many, and none.
    let cache = BlockCache(bytesMax: [0, 10_000, 1 << 24][random.number(below: 3)])
    var models: [RunModel] = []
    var runs: [Run] = []
    for number in 1...UInt64(1 + random.number(below: 5)) {
      let model = random.model(random.number(below: 4) == 0 ? random.number(below: 4) : random.number(below: 600))
      let identity = try bench.write(number, model, properties: random.bytes(random.number(below: 40)))
      models.insert(model, at: 0)
      runs.insert(try bench.open(identity, cache: cache), at: 0)
    }
    let others = (0..<200).map { _ in random.key() }
    for (run, model) in zip(runs, models) {
      #expect(run.entryCount == model.count, "\(random)")
      #expect(run.tombstoneCount == model.values.count { $0 == nil }, "\(random)")
      let entries = model.entries()
      #expect(try run.entries() == entries, "\(random)")
      try run.verify()
      for key in Array(model.keys) + others { #expect(try run.answer(key) == model[key], "\(random): \(key)") }
      for (place, key) in (others.prefix(30) + model.keys.prefix(30)).enumerated() {
        let count = Self.count(place)
        #expect(try run.entries(from: key, count) == entries.from(key, count), "\(random): from \(key)")
      }
    }
    try checkMerged(runs, models, others, bench)
  }

  /// How much of what is behind a key is read: sometimes all, else some, which is in several blocks if values are long.
  private static func count(_ place: Int) -> Int { place % 10 == 0 ? .max : 20 }

  private func checkMerged(_ runs: [Run], _ models: [RunModel], _ others: [[UInt8]], _ bench: RunBench) throws {
    let merged = models.reversed().reduce(into: RunModel()) { $0.merge($1) { $1 } }
    let living = merged.filter { $0.value != nil }.entries()
    for (place, key) in ([[]] + others.prefix(30) + merged.keys.prefix(30)).enumerated() {
      let count = Self.count(place)
      var cursor = try MergedCursor(runs, from: key)
      #expect(try cursor.rest(count) == living.from(key, count), "\(bench.random): from \(key)")
    }
    for (number, dropsTombstones) in [(100, false), (101, true)] as [(UInt64, Bool)] {
      let writer = try bench.writer(number, keyCount: merged.count)
      _ = try writer.merge(runs, dropsTombstones: dropsTombstones)
      let run = try bench.open(try writer.finish())
      #expect(try run.entries() == (dropsTombstones ? living : merged.entries()), "\(bench.random)")
      try run.verify()
    }
  }

  /// All short keys of three letters, with a filter that lets every key through: what a run does not have is found nowhere
  /// between what it has.
  @Test(arguments: Campaign.seeds(1...12, every: 4))
  func `finds no key between its keys`(seed: UInt64) throws {
    let bench = try RunBench(SimulatedDisk(), seed: seed)
    var keys: [[UInt8]] = [[]]
    for length in 1...5 {
      keys += keys.filter { $0.count == length - 1 }.flatMap { key in [0x00, 0x61, 0xFF].map { key + [$0] } }
    }
    var model = RunModel()
    for key in keys where bench.random.number(below: Int(2 + seed % 3)) == 0 {
      model[key] = .some(bench.random.value())
    }
    // So many others that all bits of a filter for no keys are set.
    for number in 0..<800 { model[[0x80] + Array("\(number)".utf8)] = .some([]) }
    let writer = try bench.writer(1, keyCount: 0)
    for entry in model.entries() { try writer.append(entry.key, entry.value) }
    let run = try bench.open(try writer.finish())
    #expect(keys.allSatisfy { run.mayContain(RunKey($0)) }, "\(bench.random): the filter spares look-ups")
    let entries = model.entries()
    for key in keys {
      #expect(try run.answer(key) == model[key], "\(bench.random): \(key)")
      var cursor = try run.cursor(from: key)
      let next = try cursor.advance() ? cursor.key : nil
      #expect(next == entries.first { !$0.key.precedes(key) }?.key, "\(bench.random): from \(key)")
    }
  }

  @Test func `may be empty`() throws {
    let bench = try RunBench(SimulatedDisk())
    let run = try bench.open(try bench.write(1, [:], properties: [7, 8]))
    #expect(run.entryCount == 0 && run.properties == [7, 8])
    #expect(try run.answer([]) == nil && run.answer([1]) == nil)
    #expect(try run.entries().isEmpty && run.entries(from: [9]).isEmpty)
    try run.verify()
    var cursor = try MergedCursor([run, run])
    #expect(try !cursor.advance())
    var none = try MergedCursor([])
    #expect(try !none.advance())
  }

  @Test func `has the longest key and a value larger than a block`() throws {
    let bench = try RunBench(SimulatedDisk())
    let long = [UInt8](repeating: 0x61, count: RunFormat.keyBytesMax)
    let model: RunModel = [
      []: [], [0x61]: bench.random.bytes(200_000), long: [1], Array(long.dropLast()): nil,
      Array(long.dropLast()) + [0xFF]: bench.random.bytes(5000),
    ]
    let run = try bench.open(try bench.write(1, model))
    #expect(try run.entries() == model.entries())
    for (key, value) in model { #expect(try run.answer(key) == .some(value)) }
    try run.verify()
  }

  @Test func `is opened with three reads, and a look-up reads one block or none`() throws {
    let injector = FaultInjector(SimulatedDisk())
    let bench = try RunBench(injector)
    let keys = (0..<5000).map { Array("key \($0)".utf8) }
    let identity = try bench.write(1, RunModel(uniqueKeysWithValues: keys.map { ($0, $0 + $0) }))
    injector.resetCounts()
    let run = try bench.open(identity)
    #expect(injector.count(.read) == 3 && injector.count(.open) == 1 && injector.totalCount == 5)
    injector.resetCounts()
    #expect(try run.answer(keys[777]) == keys[777] + keys[777])
    #expect(injector.totalCount == 1)
    #expect(try run.answer(keys[777]) == keys[777] + keys[777])
    #expect(injector.totalCount == 1)
    for number in 0..<2000 { #expect(try run.answer(Array("none \(number)".utf8)) == nil) }
    // The filter lets about one in a hundred through.
    #expect(injector.totalCount < 60)
  }

  @Test func `has a filter that takes one foreign key in a hundred for its own, and none of its own for a foreign one`()
    throws
  {
    let bench = try RunBench(SimulatedDisk())
    let own = (0..<30_000).map { Array("key \($0)".utf8) }
    let run = try bench.open(try bench.write(1, RunModel(uniqueKeysWithValues: own.map { ($0, []) })))
    #expect(own.allSatisfy { run.mayContain(RunKey($0)) })
    let wrong = (0..<100_000).count { run.mayContain(RunKey(Array("other \($0)".utf8))) }
    #expect(500..<1500 ~= wrong, "\(wrong) of 100,000")
  }

  @Test func `takes keys that rise only`() async {
    await #expect(processExitsWith: .failure) {
      let bench = try RunBench(SimulatedDisk())
      let writer = try bench.writer(1, keyCount: 2)
      try writer.append([1, 2], [])
      try writer.append([1, 2], [])
    }
    await #expect(processExitsWith: .failure) {
      let bench = try RunBench(SimulatedDisk())
      let writer = try bench.writer(1, keyCount: 2)
      try writer.append([1, 2], [])
      try writer.append([1], [])
    }
  }

  @Test func `that is not finished leaves nothing`() throws {
    let disk = SimulatedDisk()
    let bench = try RunBench(disk)
    try {
      let writer = try bench.writer(1, keyCount: 1)
      try writer.append([1], [2])
      #expect(disk.paths.count == 1)
    }()
    #expect(disk.paths.isEmpty)
  }

  /// The real disk: a file that was cut gives an error and no signal, and one that was removed is read to its end.
  @Test func `stays readable after it was removed, and says so when it was cut`() throws {
    let folder = try TemporaryFolder()
    let bench = try RunBench(POSIXFileSystem(), folder("runs"))
    let model = RunModel(
      uniqueKeysWithValues: (0..<20_000).map { (Array("key \($0)".utf8), bench.random.bytes(40)) })
    let removed = try bench.open(try bench.write(1, model), cache: BlockCache(bytesMax: 20_000))
    let cut = try bench.open(try bench.write(2, model), cache: BlockCache(bytesMax: 20_000))
    try bench.folder.remove([1])
    #expect(try removed.entries() == model.entries())
    try removed.verify()
    let file = try POSIXFileSystem().open(cut.path, .readWrite)
    try file.truncate(to: 100_000)
    file.close()
    #expect { try cut.entries() } throws: { ($0 as? RunError)?.code == .damaged }
    #expect { try cut.verify() } throws: { ($0 as? RunError)?.code == .damaged }
  }
}
