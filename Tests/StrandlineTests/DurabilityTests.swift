// What `durability:` promises: on a disk on which a barrier keeps the order of writes and brings nothing to the medium.

import Strandline
import StrandlineSimulation
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A store that is opened as ordered` {
  private let path = "/notes"

  private func note(_ number: Int) -> Record {
    Record(type: "Note", id: RecordID("n\(number)"), fields: ["title": .string("note \(number)")])
  }

  private func open(
    _ disk: SimulatedDisk, _ durability: Durability, _ cloud: SimulatedCloud? = nil, seed: UInt64 = 1
  ) async throws -> RecordStore {
    try await RecordStore.open(
      at: path, syncing: cloud.map { .simulated($0) }, durability: durability,
      environment: .simulated(disk: disk, seed: seed))
  }

  /// The notes that a store on this disk has: a beginning of those that were written.
  private func count(_ disk: SimulatedDisk) async throws -> Int {
    let store = try await open(disk, .durable, seed: 9)
    let found = try (0..<20).map { try store.record(note($0).id) != nil }
    let count = found.prefix { $0 }.count
    #expect(found.dropFirst(count).allSatisfy { !$0 }, "a transaction is there without one before it")
    try await store.close()
    return count
  }

  @Test func `may lose its newest transactions to a power cut, and never one before another`() async throws {
    let disk = SimulatedDisk()
    disk.isOrderedSyncWeak = true
    let store = try await open(disk, .ordered)
    for number in 0..<20 { try await store.write { _ = try $0.save(note(number)) } }
    var counts: Set<Int> = []
    for seed in 0..<60 { counts.insert(try await count(disk.clone().afterPowerCut(seed: UInt64(seed)))) }
    #expect(counts.count > 2 && counts.min() ?? 20 < 20)
    // A crash of the process alone loses nothing.
    #expect(try await count(disk.imageAfterCrash(.all)) == 20)
    try await store.close()
    #expect(try await count(disk.imageAfterCrash(.none)) == 20)
  }

  @Test func `loses nothing that a server has`() async throws {
    for durability in [Durability.ordered, .durable] {
      let disk = SimulatedDisk()
      disk.isOrderedSyncWeak = true
      let store = try await open(disk, durability, SimulatedCloud())
      for number in 0..<5 { try await store.write { _ = try $0.save(note(number)) } }
      #expect(try await count(disk.imageAfterCrash(.none)) == (durability == .durable ? 5 : 0))
      try await store.sync()
      #expect(try await count(disk.imageAfterCrash(.none)) == 5)
      try await store.close()
    }
  }
}
