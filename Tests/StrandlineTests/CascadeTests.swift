// What a deletion does to the records below, in the app's own transaction: with and without sync, from memory, from sorted tables with
// an index and without one; and how a restoration takes it back. Random forests are compared with a dictionary.

import Foundation
import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

/// Folders are below folders, items below folders by a field, notes lose their place, tasks are moved to the inbox.
private func declare(_ schema: inout Schema) {
  schema["Folder"].parent = ParentSchema(whenDeleted: .delete)
  schema["Item"].parent = ParentSchema("folder", whenDeleted: .delete)
  schema["Note"].parent = ParentSchema("folder", whenDeleted: .setNil)
  schema["Task"].parent = ParentSchema("folder", whenDeleted: .move(to: "inbox"))
  schema["Page"].parent = ParentSchema("folder")
}

/// A store without sync.
private func open(
  _ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1, _ change: (inout StoreOptions) -> Void = { _ in }
) throws -> RecordStore {
  var options = indexTestOptions()
  declare(&options.schema)
  change(&options)
  return try RecordStore.openBlocking(
    at: "/store", options: options, environment: .simulated(disk: disk, seed: seed))
}

private func record(_ type: String, _ name: String, below parent: String? = nil) -> Record {
  var record = Record(type: type, id: RecordID(name), fields: ["title": .string(name)])
  if type == "Folder" { record.parent = parent } else { record["folder"] = parent.map { .reference(Reference($0)) } }
  return record
}

private func error(_ body: () throws -> Void) -> StrandlineError? {
  do { try body() } catch { return error as? StrandlineError }
  return nil
}

extension RecordStore {
  fileprivate func save(_ records: Record...) throws {
    try writeBlocking { tx in for one in records { try tx.save(one) } }
  }

  /// Deletes a record, and returns the names of what was deleted with it.
  @discardableResult
  fileprivate func remove(_ name: String) throws -> [String] {
    try writeBlocking { tx in try tx.delete(RecordID(name)) }.value.map(\.name)
  }

  fileprivate var names: [String] { get throws { try recordIDs().map(\.name) } }

  fileprivate func place(_ name: String) throws -> String? {
    guard case .reference(let reference)? = try record(RecordID(name))?["folder"] else { return nil }
    return reference.name
  }

  fileprivate func restoreBlocking(_ name: String) throws { try restoreBlocking([RecordID(name)]) }
}

@Suite(.timeLimit(.minutes(30))) struct CascadeTests {
  @Test func `a deletion takes along what is below it, in its transaction, in a store without sync`() throws {
    let store = try open()
    try store.save(
      record("Folder", "f"), record("Folder", "g", below: "f"), record("Item", "i", below: "g"),
      record("Item", "j", below: "f"), record("Item", "other", below: "elsewhere"), record("Page", "p", below: "f"))
    let elsewhere = RecordID("j", zone: ZoneID("Other"))
    try store.save(Record(type: "Item", id: elsewhere, fields: ["folder": .reference(Reference("f"))]))
    let before = store.durableLSN
    let deleted = try store.writeBlocking { tx in
      let deleted = try tx.delete(RecordID("f"))
      #expect(try tx.record(RecordID("i")) == nil)
      return deleted
    }
    #expect(deleted.value.map(\.name) == ["f", "g", "j", "i"])
    #expect(try store.names == ["other", "p", "j"])
    #expect(deleted.receipt.lsns == before.advanced(by: 1)...before.advanced(by: 4))
    let history = try store.history(of: RecordID("i")).changes
    #expect(history.last?.kind == .deleted)
    #expect(history.last?.cause == before.advanced(by: 1))
    #expect(try store.history(of: RecordID("f")).changes.last?.cause == nil)
    #expect(try store.remove("f") == [])
  }

  @Test func `a child stays without its parent or is moved, as its type declares`() throws {
    for deletesInbox in [false, true] {
      let store = try open()
      try store.save(
        record("Folder", "f"), record("Folder", "inbox"), record("Note", "n", below: "f"),
        record("Task", "t", below: "f"), record("Page", "p", below: "f"))
      let deleted = try store.writeBlocking { tx in
        if deletesInbox { try tx.delete(RecordID("inbox")) }
        return try tx.delete(RecordID("f"))
      }.value
      #expect(deleted.map(\.name) == ["f"])
      #expect(try store.place("n") == nil)
      #expect(try store.place("t") == (deletesInbox ? nil : "inbox"))
      #expect(try store.place("p") == "f")
    }
  }

  @Test func `a transaction finds what it has written itself, before and after its first deletion`() throws {
    let store = try open()
    try store.save(record("Folder", "f"), record("Folder", "g"), record("Item", "moves", below: "f"))
    let deleted = try store.writeBlocking { tx in
      try tx.save(record("Item", "new", below: "f"))
      try tx.delete(RecordID("other"))
      var moved = try #require(try tx.record(RecordID("moves")))
      moved["folder"] = .string("g")
      try tx.save(moved)
      let first = try tx.delete(RecordID("f"))
      try tx.create(record("Folder", "f"))
      try tx.create(record("Item", "new", below: "f"))
      try tx.save(record("Item", "last", below: "f"))
      return (first, try tx.delete(RecordID("f")))
    }.value
    #expect(deleted.0.map(\.name) == ["f", "new"])
    #expect(deleted.1.map(\.name) == ["f", "last", "new"])
    #expect(try store.names == ["g", "moves"])
  }

  @Test func `what hangs in a circle is deleted once`() async throws {
    let a = try Fleet().device("a")
    // Only a sync can bring it.
    let store = try await a.open()
    try await store.write { tx in
      try tx.save(Record(type: "Folder", id: RecordID("a"), fields: ["of": "b"]))
      try tx.save(Record(type: "Folder", id: RecordID("b"), fields: ["of": "a"]))
    }
    try await a.close()
    var schema = Schema()
    schema["Folder"].parent = ParentSchema("of", whenDeleted: .delete)
    let again = try await a.open(schema: schema)
    let deleted = try await again.write { try $0.delete(RecordID("a")) }.value
    #expect(deleted.map(\.name) == ["a", "b"])
  }

  /// Random forests, moved, deleted and created again, with flushes, reopened stores, with the index and before it is built.
  @Test(arguments: 1...12) func `random forests are what a dictionary says`(_ seed: Int) throws {
    let random = SeededRandom(seed: UInt64(seed))
    let disk = SimulatedDisk()
    func openAgain(_ number: Int) throws -> RecordStore {
      let store = try open(disk, seed: UInt64(seed * 1_000 + number))
      if seed % 3 != 0 {
        try store.buildIndexesBlocking()
      } else {
        for index in try store.indexes() { try store.dropIndex(index.index) }
      }
      return store
    }
    var store = try openAgain(0)
    var forest = Forest()
    for step in 0..<120 {
      if random.below(15) == 0 {
        try store.closeBlocking()
        store = try openAgain(step + 1)
      }
      var changed = forest
      try store.writeBlocking { tx in
        for _ in 0...random.below(5) { try changed.change(&tx, random, "seed \(seed), step \(step)") }
      }
      forest = changed
      try forest.check(store, "seed \(seed), step \(step)")
    }
    try store.closeBlocking()
  }

  @Test func `what does not fit into a transaction is refused with what to do, and nothing is changed`() throws {
    let store = try open { $0.log.transactionBytesMax = 8_000 }
    try store.save(record("Folder", "f"))
    for start in stride(from: 0, to: 200, by: 20) {
      try store.writeBlocking { tx in
        for number in start..<start + 20 { try tx.save(record("Item", "i\(number)", below: "f")) }
      }
    }
    let refused = try #require(error { try store.remove("f") })
    #expect(refused.code == .tooLarge)
    #expect(refused.message.contains("200 records below 'Main/f'"), "\(refused.message)")
    #expect(refused.message.contains("the lowest first and in several transactions"))
    #expect(try store.names.count == 201)
    for start in stride(from: 0, to: 200, by: 20) {
      try store.writeBlocking { tx in for number in start..<start + 20 { try tx.delete(RecordID("i\(number)")) } }
    }
    #expect(try store.remove("f") == ["f"])
  }

  @Test func `in a zone that is uploaded atomically it is one request or nothing`() throws {
    let store = try open { $0.atomicZones = [.main] }
    try store.save(record("Folder", "f"))
    for start in stride(from: 0, to: 210, by: 70) {
      try store.writeBlocking { tx in
        for number in start..<start + 70 { try tx.save(record("Item", "i\(number)", below: "f")) }
      }
    }
    let refused = try #require(error { try store.remove("f") })
    #expect(refused.code == .tooLarge)
    #expect(refused.message.contains("210 records below 'Main/f'"), "\(refused.message)")
    #expect(refused.message.contains("a request holds 200"), "\(refused.message)")
    #expect(try store.names.count == 211)
  }

  /// A chain of 200 and a folder of 4,000.
  @Test func `a deep chain and a wide folder are deleted whole`() throws {
    let store = try open { options in
      options.index.flushCount = 512
      options.log.segmentBytesMax = 1 << 20
    }
    try store.writeBlocking { tx in
      try tx.save(record("Folder", "c0"))
      for number in 1..<200 { try tx.save(Self.unchecked("c\(number)", below: "c\(number - 1)")) }
    }
    try store.writeBlocking { tx in
      try tx.save(record("Folder", "wide"))
      for number in 0..<4_000 { try tx.save(record("Item", "w\(number)", below: "wide")) }
    }
    try store.buildIndexesBlocking()
    #expect(try store.remove("c0").count == 200)
    #expect(try store.remove("wide").count == 4_001)
    #expect(try store.names.isEmpty)
  }

  /// An item: its parent is an item too, by a text.
  private static func unchecked(_ name: String, below parent: String) -> Record {
    Record(type: "Item", id: RecordID(name), fields: ["folder": .string(parent)])
  }

  @Test func `no device has the children after the first sync`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var schema = Schema()
    declare(&schema)
    let store = try await a.open(schema: schema)
    try await b.open(schema: schema)
    try await store.write { tx in
      for one in [record("Folder", "f"), record("Folder", "g", below: "f"), record("Item", "i", below: "g")] {
        try tx.save(one)
      }
    }
    try await exchange(a, b)
    #expect(try await b.lives("i"))
    try await a.remove("f")
    #expect(try await a.dump().isEmpty)
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await b.dump().isEmpty)
  }
}

/// Records by their names, each with its type and what it is below.
private struct Forest {
  private var records: [String: (type: String, parent: String?)] = [:]
  /// A task is moved also to what was never there: it may still come.
  private var hadInbox = false

  /// Deletes a record, or saves it below another one.
  mutating func change(_ tx: inout WriteTransaction, _ random: SeededRandom, _ words: String) throws {
    let name = random.below(12) == 0 ? "inbox" : "r\(random.below(30))"
    if random.below(3) == 0 {
      let found = Set(try tx.delete(RecordID(name)).map(\.name))
      let expected = delete(name)
      #expect(found == expected, "\(words), deletion of \(name)")
      return
    }
    let drawn = ["Folder", "Item", "Note", "Task"][Int(random.below(4))]
    let type = records[name]?.type ?? (name == "inbox" ? "Folder" : drawn)
    let parent = records.keys.sorted().randomElement(random).flatMap { isBelow($0, name) ? nil : $0 }
    let one = record(type, name, below: parent)
    if records[name] != nil { try tx.save(one) } else { try tx.create(one) }
    records[name] = (type, parent)
    if name == "inbox" { hadInbox = true }
  }

  private func isBelow(_ name: String, _ other: String) -> Bool {
    var next: String? = name
    while let one = next {
      if one == other { return true }
      next = records[one]?.parent
    }
    return false
  }

  private mutating func delete(_ name: String) -> Set<String> {
    guard records[name] != nil else { return [] }
    var (gone, open, left) = (Set([name]), [name], [String]())
    while let next = open.popLast() {
      for (child, known) in records where known.parent == next {
        if known.type == "Note" || known.type == "Task" {
          left.append(child)
        } else if gone.insert(child).inserted {
          open.append(child)
        }
      }
    }
    for one in gone { records[one] = nil }
    for child in left {
      let isThere = records["inbox"] != nil || !hadInbox
      let isMoved = records[child]?.type == "Task" && isThere && !isBelow("inbox", child)
      records[child]?.parent = isMoved ? "inbox" : nil
    }
    return gone
  }

  func check(_ store: RecordStore, _ words: String) throws {
    #expect(try Set(store.names) == Set(records.keys), "\(words)")
    for (name, known) in records {
      let one = try store.record(RecordID(name))
      let place = try known.type == "Folder" ? one?.parent : store.place(name)
      #expect(place == known.parent, "\(words), parent of \(name)")
    }
  }
}

extension Array {
  fileprivate func randomElement(_ random: SeededRandom) -> Element? {
    isEmpty ? nil : self[Int(random.below(UInt64(count)))]
  }
}

@Suite(.timeLimit(.minutes(30))) struct CascadeRestoringTests {
  @Test func `a restoration brings back what the deletion took along, and only that`() throws {
    let disk = SimulatedDisk()
    var store = try open(disk)
    try store.save(
      record("Folder", "f"), record("Folder", "g", below: "f"), record("Item", "i", below: "g"),
      record("Item", "before", below: "f"), record("Item", "again", below: "f"), record("Item", "gone", below: "f"))
    try store.remove("before")
    try store.remove("f")
    try store.writeBlocking { tx in
      try tx.create(record("Item", "again"))
      try tx.create(record("Item", "gone"))
    }
    try store.remove("gone")
    try store.closeBlocking()
    store = try open(disk, seed: 2)
    let start = store.durableLSN
    try store.restoreBlocking("f")
    #expect(try store.names == ["again", "f", "g", "i"])
    #expect(try store.place("i") == "g")
    #expect(try store.record(RecordID("g"))?.parent == "f")
    #expect(try store.place("again") == nil)
    // One transaction: `opened`, and three records.
    let lsns = start.advanced(by: 1)...store.durableLSN
    #expect(lsns.upperBound.rawValue - lsns.lowerBound.rawValue == 3)
    // What the first deletion took is not what the second one takes.
    try store.remove("i")
    try store.remove("f")
    try store.restoreBlocking("f")
    #expect(try store.names == ["again", "f", "g"])
    let refused = error { try store.restoreBlocking("f") }
    #expect(refused?.code == .recordExists)
  }

  @Test func `a child is not restored below a parent that is gone, and is with it`() throws {
    let store = try open()
    try store.save(record("Folder", "f"), record("Item", "i", below: "f"), record("Note", "n", below: "f"))
    try store.remove("n")
    try store.remove("f")
    let refused = try #require(error { try store.restoreBlocking("i") })
    #expect(refused.code == .recordWasDeleted)
    #expect(refused.message.contains("restore 'f'"), "\(refused.message)")
    // Another rule than deletion stands in no one's way.
    try store.restoreBlocking("n")
    try store.restoreBlocking([RecordID("i"), RecordID("f")])
    #expect(try store.names == ["f", "i", "n"])
  }

  @Test func `a deletion that the server has confirmed is taken back with all that it took`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var schema = Schema()
    declare(&schema)
    for device in [a, b] { try await device.open(schema: schema) }
    try await a.open().write { tx in
      for one in [record("Folder", "f"), record("Item", "i", below: "f"), record("Item", "k", below: "f")] {
        try tx.save(one)
      }
    }
    try await exchange(a, b)
    // The other device edits one of them meanwhile: the deletion stands on its version.
    try await b.put("i", ["title": "of b"])
    try await b.exchange()
    try await a.remove("f")
    try await exchange(a, b, a)
    #expect(try await a.dump().isEmpty)
    #expect(try await b.dump().isEmpty)
    try await a.open().restore(RecordID("f"))
    #expect(try await a.value("i") == "of b")
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await b.open().recordIDs().map(\.name) == ["f", "i", "k"])
  }

  /// Two devices with folders p and q, and below p an item, and a folder with an item.
  private func twoDevices() async throws -> (a: Device, b: Device) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var schema = Schema()
    declare(&schema)
    for device in [a, b] { try await device.open(schema: schema) }
    try await a.open().write { tx in
      for one in [
        record("Folder", "p"), record("Folder", "q"), record("Item", "i", below: "p"), record("Item", "k", below: "p"),
        record("Folder", "g", below: "p"), record("Item", "j", below: "g"),
      ] { try tx.save(one) }
    }
    try await exchange(a, b)
    return (a, b)
  }

  @Test func `what another device has moved out of it lives, with what is below that`() async throws {
    let (a, b) = try await twoDevices()
    try await b.move("g", below: "q")
    try await b.open().write { tx in try tx.save(record("Item", "i", below: "q")) }
    try await b.exchange()
    #expect(try await a.open().write { tx in try tx.delete(RecordID("p")) }.value.count == 5)
    try await exchange(a, b, a, b)
    try await expectAgreement(a, b)
    #expect(try await a.open().recordIDs().map(\.name) == ["g", "i", "j", "q"])
    #expect(try await a.open().place("i") == "q")
  }

  @Test func `lives again with a deletion that is given up`() async throws {
    let (a, b) = try await twoDevices()
    try await a.remove("p")
    try await a.open().discardChanges(of: [RecordID("p"), RecordID("k")])
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await b.open().recordIDs().map(\.name) == ["g", "i", "j", "k", "p", "q"])
  }

  @Test func `comes back with a deletion that is given up, and the engine hears of each record`() async throws {
    let (a, _) = try await twoDevices()
    try await a.remove("p")
    let (store, heard) = (try await a.open(), HeardDiscards())
    let engine = store.driver.withLock { driver in
      defer { driver = heard }
      return driver
    }
    try await store.discardChanges(of: [RecordID("p")])
    store.driver.withLock { $0 = engine }
    #expect(heard.ids.withLock { $0 }.map(\.name) == ["g", "i", "j", "k", "p"])
  }

  @Test func `what the engine deletes with a parent says so, and comes back with it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var schema = Schema()
    declare(&schema)
    try await a.open(schema: schema)
    try await a.open().write { tx in
      for one in [record("Folder", "f"), record("Folder", "g", below: "f"), record("Item", "i", below: "g")] {
        try tx.save(one)
      }
    }
    try await exchange(a, b)
    // This one declares nothing.
    try await b.remove("f")
    try await exchange(b, a, a, a)
    #expect(try await a.dump().isEmpty)
    let store = try await a.open()
    let last = try #require(try store.history(of: RecordID("g")).changes.last { $0.kind == .deleted })
    let deletion = try #require(try store.history(of: RecordID("f")).changes.last { $0.kind == .fetchedDeletion })
    #expect(last.cause == deletion.position.lsn)
    try await store.restore(RecordID("f"))
    #expect(try store.recordIDs().map(\.name) == ["f", "g", "i"])
  }
}

extension Device {
  fileprivate func move(_ name: String, below parent: String) async throws {
    try await open().write { tx in
      var record = try #require(try tx.record(RecordID(name)))
      record.parent = parent
      try tx.save(record)
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct ParentCycleTests {
  private func refused(_ store: RecordStore, _ body: (inout WriteTransaction) throws -> Void) -> String? {
    let found = error { try store.writeBlocking(body) }
    if let found { #expect(found.code == .invalidValue, "\(found)") }
    return found?.message
  }

  @Test func `a record cannot be below itself`() throws {
    let store = try open()
    // A type of which nothing is declared has the record's own parent.
    var plain = Record(type: "Plain", id: RecordID("a"))
    plain.parent = "a"
    for one in [record("Folder", "a", below: "a"), record("Item", "a", below: "a"), plain] {
      let message = try #require(refused(store) { try $0.save(one) })
      #expect(message.contains("'a' is below 'a'"), "\(message)")
    }
    #expect(try store.names.isEmpty)
  }

  @Test func `a circle is refused at the write that closes it, by the names of its records`() throws {
    let store = try open()
    try store.save(record("Folder", "a"), record("Folder", "b", below: "a"), record("Folder", "c", below: "b"))
    let message = try #require(refused(store) { try $0.save(record("Folder", "a", below: "c")) })
    #expect(message.contains("'a' is below 'c' is below 'b' is below 'a'"), "\(message)")
    // In one transaction, and by a record that is created last.
    let second = refused(store) { tx in
      try tx.save(record("Folder", "x", below: "y"))
      try tx.save(record("Folder", "y", below: "x"))
    }
    #expect(second?.contains("'y' is below 'x' is below 'y'") == true, "\(second ?? "-")")
    // A field and the record's parent in turns.
    try store.save(record("Item", "i", below: "c"))
    let third = refused(store) { try $0.save(record("Folder", "a", below: "i")) }
    #expect(third != nil)
    // An edit that leaves the parent as it is, and one that opens the chain, are none.
    try store.writeBlocking { tx in
      var c = try #require(try tx.record(RecordID("c")))
      c["title"] = "new"
      try tx.save(c)
      try tx.save(record("Folder", "b"))
      try tx.save(record("Folder", "a", below: "c"))
    }
    #expect(try store.record(RecordID("a"))?.parent == "c")
  }

  @Test func `the parent beside a declared field makes no circle either`() throws {
    let store = try open()
    func item(_ name: String, _ parent: String) -> Record {
      var one = record("Item", name)
      one.parent = parent
      return one
    }
    try store.save(record("Folder", "f"), item("i", "f"))
    let found = refused(store) { try $0.save(item("i", "i")) }
    #expect(found != nil)
  }

  @Test func `a long chain is named by its ends`() throws {
    let store = try open()
    try store.writeBlocking { tx in
      try tx.save(record("Folder", "n0"))
      for number in 1..<40 { try tx.save(record("Folder", "n\(number)", below: "n\(number - 1)")) }
    }
    let message = try #require(refused(store) { try $0.save(record("Folder", "n0", below: "n39")) })
    #expect(message.contains("'n0' is below 'n39'"), "\(message)")
    #expect(message.contains("…"), "\(message)")
    #expect(message.utf8.count < 500)
  }

  /// What came by a sync is there, and neither it nor a record below it is refused for it.
  @Test func `a circle that was merged is no one's fault`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["x", "y"] { try await a.put(name, ["title": "t"], type: "Folder") }
    try await exchange(a, b)
    try await a.move("x", below: "y")
    try await b.move("y", below: "x")
    try await exchange(a, b, a)
    try await expectAgreement(a, b)
    #expect(try await a.open().record(RecordID("x"))?.parent == "y")
    #expect(try await a.open().record(RecordID("y"))?.parent == "x")
    try await a.put("x", ["title": "new"])
    try await a.put("z", ["title": "t"], type: "Folder")
    try await a.move("z", below: "x")
    await #expect(throws: StrandlineError.self) { try await a.move("y", below: "z") }
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }
}

/// In the engine's place: hears whose changes were discarded.
private final class HeardDiscards: SyncDriver {
  let ids = Mutex<[RecordID]>([])
  func localWriteEnded() {}
  func obstacle(to open: OpenMutations) throws -> StrandlineError? { nil }
  func holdsEnded(_ ids: [RecordID]) { self.ids.withLock { $0 += ids } }
  func pause() async {}
  func resume() {}
  func stop() async {}
}
