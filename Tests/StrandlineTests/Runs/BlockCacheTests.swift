// The cache of blocks: within its budget, right with several readers, and it keeps what is used.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The cache of blocks` {
  private static func model(_ count: Int, _ mark: UInt8) -> RunModel {
    RunModel(
      uniqueKeysWithValues: (0..<count).map { (Array("key \($0)".utf8), [UInt8](repeating: mark, count: $0 % 90)) })
  }

  @Test(arguments: [0, 3000, 20_000, 3 << 20])
  func `stays within its budget, and does not change an answer`(bytesMax: Int) throws {
    let bench = try RunBench(SimulatedDisk())
    let cache = BlockCache(bytesMax: bytesMax)
    let models = [Self.model(3000, 1), Self.model(4000, 2)]
    var runs: [Run] = []
    for (index, model) in models.enumerated() {
      runs.append(try bench.open(try bench.write(UInt64(index + 1), model), cache: cache))
    }
    for step in 0..<20_000 {
      let number = bench.random.number(below: 2)
      let key = Array("key \(bench.random.number(below: 5000))".utf8)
      #expect(try runs[number].answer(key) == models[number][key])
      if step % 100 == 0 { #expect(cache.usedBytes <= bytesMax) }
    }
    #expect(cache.usedBytes > 0 || bytesMax < 20_000)
    // A run that is closed takes no space any more.
    runs.removeAll()
    #expect(cache.usedBytes == 0)
  }

  /// Whatever was inserted, used and removed: what is found has its own bytes, and what is counted is found.
  @Test(arguments: 1...3 as ClosedRange<UInt64>)
  func `finds all that it has`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    let bytesMax = [3000, 60_000, 1 << 21][Int(seed % 3)]
    let cache = BlockCache(bytesMax: bytesMax)
    // Many runs with blocks of the same numbers.
    var owners = (0..<100).map { _ in cache.newOwner() }
    var sizes: [BlockCache.Key: Int] = [:]
    func bytes(_ key: BlockCache.Key) -> [UInt8] {
      [UInt8](repeating: UInt8(truncatingIfNeeded: key.block &+ Int(key.owner) * 31), count: sizes[key] ?? 0)
    }
    for step in 0..<12_000 {
      let key = BlockCache.Key(owner: owners[random.number(below: 100)], block: random.number(below: 90))
      if sizes[key] == nil { sizes[key] = random.number(below: 300) }
      if let found = cache.block(key) {
        guard found == bytes(key) else { throw RunError(.system, "\(random)", "step \(step): other bytes") }
      } else {
        cache.insert(bytes(key), key)
      }
      if step % 4000 == 3999 {
        cache.removeAll(of: owners[0])
        owners[0] = cache.newOwner()
      }
      guard step % 1500 == 1499 else { continue }
      // Each block costs the same beside its bytes.
      let found = sizes.keys.filter { cache.block($0) != nil }
      let cost = cache.usedBytes - found.reduce(0) { $0 + (sizes[$1] ?? 0) }
      #expect(cache.usedBytes <= bytesMax && cost == found.count * 128, "\(random), step \(step)")
      #expect(!found.contains { $0.owner != owners[0] && !owners.contains($0.owner) }, "\(random), step \(step)")
    }
  }

  @Test func `keeps the blocks that are used`() throws {
    let injector = FaultInjector(SimulatedDisk())
    let bench = try RunBench(injector)
    let run = try bench.open(try bench.write(1, Self.model(20_000, 1)), cache: BlockCache(bytesMax: 40_000))
    let hot = Array("key 777".utf8)
    _ = try run.answer(hot)
    injector.resetCounts()
    var others = 0
    for _ in 0..<3000 {
      _ = try run.answer(hot)
      let before = injector.count(.read)
      _ = try run.answer(Array("key \(bench.random.number(below: 20_000))".utf8))
      others += injector.count(.read) - before
    }
    // Nearly every other look-up read a block, the one that is used again and again none.
    #expect(others > 2500)
    #expect(injector.count(.read) - others < 10)
  }

  /// Readers on several threads, with a cache that is smaller than the run: each gets its own answers, and none of a
  /// block that was replaced meanwhile.
  @Test func `is shared by readers on several threads`() async throws {
    let bench = try RunBench(SimulatedDisk())
    let model = Self.model(6000, 1)
    let run = try bench.open(try bench.write(1, model), cache: BlockCache(bytesMax: 3 << 14))
    let entries = model.entries()
    let wrong = await withTaskGroup(of: Int.self) { group in
      for reader in 0..<4 {
        group.addTask {
          let random = SeededRandom(seed: UInt64(reader))
          var wrong = 0
          for _ in 0..<5000 {
            let key = Array("key \(random.number(below: 7000))".utf8)
            do { if try run.answer(key) != model[key] { wrong += 1 } } catch { wrong += 1 }
          }
          do { if try run.entries() != entries { wrong += 1 } } catch { wrong += 1 }
          return wrong
        }
      }
      return await group.reduce(0, +)
    }
    #expect(wrong == 0)
  }
}
