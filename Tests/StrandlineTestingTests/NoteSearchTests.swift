// Goal: the worked example of a projection equals its store after any crash: before its database's transaction, within it,
// between its commit and whatever the store learns of it, and after a power cut of the store. Method: random histories on
// a simulated disk beside a real SQLite file, a fault at a random batch, and after each restart the index against the
// records, title by title and word by word.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

/// The search, which ends like a process that crashed at a certain batch.
private final class CrashingSearch: Projection {
  enum Crash: CaseIterable { case beforeTransaction, afterCommit }
  struct Crashed: Error {}
  let name = "note search"
  let search: NoteSearch
  private let crash: Crash
  private let batchesLeft: Mutex<Int>

  init(_ search: NoteSearch, _ crash: Crash, afterBatches count: Int) {
    self.search = search
    self.crash = crash
    batchesLeft = Mutex(count)
  }

  func appliedPosition() throws -> LogPosition? { try search.appliedPosition() }

  func apply(_ batch: ProjectionBatch) throws {
    let isNow = batchesLeft.withLock { left in
      left -= 1
      return left < 0
    }
    if isNow, crash == .beforeTransaction { throw Crashed() }
    try search.apply(batch)
    if isNow { throw Crashed() }
  }
}

@Suite(
  .enabled(if: SQLiteDatabase.hasFullTextSearch, "SQLite with FTS5 is not installed on this machine"),
  .timeLimit(.minutes(30)))
struct `The example of a projection` {
  private static let words = ["tide", "moon", "wind", "gull", "sand"]

  private func open(_ disk: SimulatedDisk, _ seed: UInt64) async throws -> RecordStore {
    // As on Apple's systems, where a power cut may take what was synced with `.ordered` alone.
    disk.isOrderedSyncWeak = true
    return try await RecordStore.open(
      at: "/notes", durability: seed % 2 == 0 ? .durable : .ordered, environment: .simulated(disk: disk, seed: seed))
  }

  private func write(_ store: RecordStore, _ random: SeededRandom) async throws {
    try await store.write { tx in
      for _ in 0...random.below(5) {
        let id = RecordID("n\(random.below(40))")
        if random.below(4) == 0 {
          try tx.delete(id)
          continue
        }
        let title = (0...random.below(2)).map { _ in Self.words[Int(random.below(5))] }.joined(separator: " ")
        let record = Record(type: "Note", id: id, fields: ["title": .string(title)])
        if try tx.record(id) == nil { try tx.create(record) } else { try tx.save(record) }
      }
    }
  }

  private func check(_ search: NoteSearch, against store: RecordStore, _ comment: Comment) throws {
    var titles: [RecordID: String] = [:]
    try store.forEachRecord(ofType: "Note") { record in
      if case .string(let title)? = record["title"] { titles[record.id] = title }
    }
    for word in Self.words {
      let expected = titles.filter { $0.value.split(separator: " ").contains(Substring(word)) }.keys
      #expect(try search.notes(matching: word) == expected.sorted { "\($0)" < "\($1)" }, comment)
    }
    #expect(try search.appliedPosition()?.lsn == store.durableLSN, comment)
  }

  @Test(arguments: Campaign.seeds(1...8, every: 4))
  func `is in step after a crash at any point`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    let folder = try TemporaryFolder()
    var disk = SimulatedDisk()
    var store = try await open(disk, seed)
    for round in 0..<25 {
      let comment: Comment = "seed \(seed), round \(round)"
      for _ in 0..<random.below(8) { try await write(store, random) }
      if random.below(6) == 0 { try await store.compact(keeping: .latest) }
      let search = try NoteSearch(path: folder("search.sqlite"))
      switch random.below(4) {
      case 0:
        let crash = CrashingSearch.Crash.allCases[Int(random.below(2))]
        let crashing = CrashingSearch(search, crash, afterBatches: Int(random.below(2)))
        do { try await store.bringUpToDate(crashing) } catch is CrashingSearch.Crashed {}
      case 1:
        // In the middle of the transaction, at a certain note.
        let other = try SQLiteDatabase(path: folder("search.sqlite"))
        try other.run(
          "CREATE TRIGGER crash BEFORE INSERT ON notes WHEN NEW.id = 'Main/n\(random.below(40))' "
            + "BEGIN SELECT RAISE(ROLLBACK, 'crashed'); END")
        do { try await store.bringUpToDate(search) } catch is SQLiteError {}
        try other.run("DROP TRIGGER crash")
      case 2: try await store.bringUpToDate(search)
      default: break
      }
      if random.below(3) == 0 {
        // Power is cut: what the index holds is never ahead of what is left.
        disk = disk.afterPowerCut(seed: random.next())
        store = try await open(disk, seed &+ UInt64(round))
      } else if random.below(3) == 0 {
        try await store.close()
        store = try await open(disk, seed &+ UInt64(round))
      }
      let again = try NoteSearch(path: folder("search.sqlite"))
      let position = try await store.bringUpToDate(again)
      #expect(position.lsn == store.durableLSN, comment)
      try check(again, against: store, comment)
    }
    try await store.close()
  }

  @Test func `follows the store until it is closed`() async throws {
    let folder = try TemporaryFolder()
    let store = try await open(SimulatedDisk(), 1)
    let search = try NoteSearch(path: folder("search.sqlite"))
    let following = Task { try await store.project(into: search) }
    for round in 0..<20 {
      let title = round % 2 == 0 ? "tide" : "moon"
      try await store.write { try $0.save(Record(type: "Note", id: RecordID("n"), fields: ["title": .string(title)])) }
      // The transaction of the index is seen soon; a test waits for it without a clock.
      while try search.notes(matching: title).isEmpty { await Task.yield() }
    }
    try await store.close()
    try await following.value
    #expect(try search.notes(matching: "moon") == [RecordID("n")])
    #expect(throws: SQLiteError.self) { try search.notes(matching: "\"") }
  }
}
