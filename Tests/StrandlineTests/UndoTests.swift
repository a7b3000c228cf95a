// Goal: an undo gives back what a transaction took and takes nothing that came since; an undo of an undo is a redo. Method: each
// kind of change once, with and without a change since; then random transactions, against a copy of what there was.

import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct UndoTests {
  private struct Shelf: SyncRecord, Equatable {
    var id: String
    var title = ""
    var note: String?
    var visits = 0
    var tags: Set<String> = []
    var parent: Parent<Shelf>?
  }

  private func open(_ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) throws -> RecordStore {
    var options = StoreOptions()
    var rules = TypeRules()
    rules.fields = ["visits": .counter, "tags": .union]
    options.conflicts["Shelf"] = rules
    options.schema["Shelf"].parent = ParentSchema(whenDeleted: .delete)
    return try RecordStore.openBlocking(
      at: "/s", options: options, environment: .simulated(disk: disk, seed: seed))
  }

  private func all(_ store: RecordStore) throws -> [String: Shelf] {
    Dictionary(uniqueKeysWithValues: try store.fetch(Shelf.self).map { ($0.id, $0) })
  }

  private struct Plank: SyncRecord, Equatable {
    static var prototype: Plank? { Plank(id: "", width: 3, marks: ["new"]) }
    var id: String
    var width: Int
    var marks: [String]
  }

  @Test func `a field that a record had not is the prototype's again`() async throws {
    let store = try open()
    try await store.write { try $0.save(Record(type: "Plank", id: RecordID("old"))) }
    let before = try store.fetch(Plank.self, id: "old")
    let receipt = try await store.update(Plank.self, id: "old") { ($0.width, $0.marks) = (5, []) }.receipt
    try await store.undo(receipt)
    #expect(before?.width == 3 && before?.marks == ["new"])
    // A null of a list is an empty list, which another device may have sent: that is not told from one that was never there.
    #expect(try store.fetch(Plank.self, id: "old") == Plank(id: "old", width: 3, marks: []))
    try await store.close()
  }

  @Test func `an edit, a creation and a deletion are taken back, and made again`() async throws {
    let store = try open()
    try await store.write { tx in
      for name in ["a", "b"] { try tx.save(Shelf(id: name, title: name)) }
      try tx.save(Shelf(id: "c", title: "child", parent: Parent(id: "b")))
    }
    let before = try all(store)
    let receipt = try await store.write { tx in
      try tx.update(Shelf.self, id: "a") { ($0.title, $0.note, $0.visits) = ("new", "added", 3) }
      try tx.delete(Shelf.self, id: "b")
      try tx.save(Shelf(id: "d", title: "made"))
    }
    let after = try all(store)
    #expect(Set(after.keys) == ["a", "d"])
    let undone = try await store.undo(receipt)
    #expect(undone.kept.isEmpty)
    #expect(try all(store) == before)
    let redone = try await store.undo(undone.receipt)
    #expect(redone.kept.isEmpty)
    #expect(try all(store) == after)
    try await store.close()
  }

  @Test func `what was changed since stays and is told`() async throws {
    let store = try open()
    try await store.write { tx in
      for name in ["a", "b", "c", "d"] { try tx.save(Shelf(id: name, title: "old", note: "old")) }
    }
    let receipt = try await store.write { tx in
      for name in ["a", "b"] { try tx.update(Shelf.self, id: name) { ($0.title, $0.note) = ("mine", "mine") } }
      try tx.delete(Shelf.self, id: "c")
      try tx.save(Shelf(id: "e", title: "mine"))
    }
    try await store.write { tx in
      try tx.update(Shelf.self, id: "a") { $0.title = "later" }
      try tx.delete(Shelf.self, id: "b")
      try tx.create(Shelf(id: "c", title: "later"))
      try tx.update(Shelf.self, id: "e") { $0.note = "later" }
    }
    let undone = try await store.undo(receipt)
    // In the order of records, whatever became of them.
    #expect(
      undone.kept == [
        .init(RecordID("a"), "title", .changedSince), .init(RecordID("b"), nil, .deletedSince),
        .init(RecordID("c"), nil, .createdSince), .init(RecordID("e"), nil, .changedSince),
      ])
    let now = try all(store)
    #expect(now["a"] == Shelf(id: "a", title: "later", note: "old"))
    #expect(now["b"] == nil)
    #expect(now["c"]?.title == "later")
    #expect(now["e"] == Shelf(id: "e", title: "mine", note: "later"))
    try await store.close()
  }

  @Test func `a counter and a set lose what the transaction added, and keep what came since`() async throws {
    let store = try open()
    try await store.write { try $0.save(Shelf(id: "a", visits: 10, tags: ["old", "gone"])) }
    let receipt = try await store.write { tx in
      try tx.update(Shelf.self, id: "a") { ($0.visits, $0.tags) = ($0.visits + 5, ["old", "mine"]) }
    }
    try await store.write { tx in
      try tx.update(Shelf.self, id: "a") {
        $0.visits += 100
        $0.tags.insert("later")
      }
    }
    #expect(try await store.undo(receipt).kept.isEmpty)
    #expect(try store.fetch(Shelf.self, id: "a") == Shelf(id: "a", visits: 110, tags: ["old", "gone", "later"]))
    try await store.close()
  }

  @Test func `a parent that was changed since stays, and so does a record that got another one`() async throws {
    let store = try open()
    try await store.write { tx in
      for name in ["x", "y", "z"] { try tx.save(Shelf(id: name)) }
      for name in ["a", "b"] { try tx.save(Shelf(id: name, parent: Parent(id: "x"))) }
    }
    let receipt = try await store.write { tx in
      for name in ["a", "b"] { try tx.update(Shelf.self, id: name) { $0.parent = Parent(id: "y") } }
      try tx.save(Shelf(id: "c", parent: Parent(id: "y")))
    }
    try await store.write { tx in
      for name in ["b", "c"] { try tx.update(Shelf.self, id: name) { $0.parent = Parent(id: "z") } }
    }
    let undone = try await store.undo(receipt)
    #expect(
      undone.kept == [
        .init(RecordID("b"), "parent", .changedSince), .init(RecordID("c"), nil, .changedSince),
      ])
    let now = try all(store)
    #expect(now["a"]?.parent == Parent(id: "x"))
    #expect(now["b"]?.parent == Parent(id: "z") && now["c"]?.parent == Parent(id: "z"))
    try await store.close()
  }

  @Test func `a counter with a fraction, and one that began with the transaction, lose what it added`() async throws {
    let store = try open()
    try await store.write { tx in
      try tx.create(Record(type: "Shelf", id: RecordID("a"), fields: ["visits": .double(1.5)]))
      try tx.create(Record(type: "Shelf", id: RecordID("b")))
    }
    func add(_ number: FieldValue, to name: String) async throws -> Receipt {
      try await store.write { tx in
        var record = try #require(try tx.record(RecordID(name)))
        record["visits"] = number
        try tx.save(record)
      }
    }
    let (first, second) = (try await add(.double(3.5), to: "a"), try await add(.int64(2), to: "b"))
    _ = (try await add(.double(13.5), to: "a"), try await add(.int64(7), to: "b"))
    #expect(try await store.undo(first).kept.isEmpty)
    #expect(try await store.undo(second).kept.isEmpty)
    #expect(try store.record(RecordID("a"))?["visits"] == .double(11.5))
    #expect(try store.record(RecordID("b"))?["visits"] == .int64(5))
    try await store.close()
  }

  @Test func `what compaction has removed cannot be taken back, and that is said`() async throws {
    let store = try open()
    func edit(_ names: [String]) async throws -> Receipt {
      try await store.write { tx in for name in names { try tx.update(Shelf.self, id: name) { $0.title = "new" } } }
    }
    try await store.write { tx in for name in ["a", "b", "c"] { try tx.save(Shelf(id: name, title: "old")) } }
    let (whole, receipt) = (try await edit(["b", "c"]), try await edit(["a"]))
    try await store.write { try $0.update(Shelf.self, id: "a") { $0.note = "later" } }
    try await store.compact(keeping: .latest)
    let named = await #expect(throws: StrandlineError.self) { try await store.undo(whole) }
    #expect(named?.code == .positionExpired)
    #expect(named?.message.contains("changed 'Main/b', 'Main/c', and cannot") == true, "\(named?.message ?? "")")
    // The event of an edit that a later one carries is gone, and with it the name.
    let error = await #expect(throws: StrandlineError.self) { try await store.undo(receipt) }
    #expect(error?.code == .positionExpired)
    #expect(error?.message.contains("which records the transaction changed is not known") == true, "\(error as Any)")
    #expect(try store.fetch(Shelf.self, id: "a")?.title == "new")
    let other = try open()
    let foreign = await #expect(throws: StrandlineError.self) { try await other.undo(receipt) }
    #expect(foreign?.code == .misuse)
    try await store.close()
    try await other.close()
  }

  @Test func `a transaction that changed nothing has an undo that changes nothing`() async throws {
    let store = try open()
    let receipt = try await store.write { _ in }
    let undone = try await store.undo(receipt)
    #expect(undone.receipt.lsns == nil && undone.kept.isEmpty)
    try await store.close()
  }

  @Test func `what another device has changed since stays, and both devices agree`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    func save(_ device: Device, _ fields: [String: FieldValue]) async throws -> Receipt {
      try await device.open().write { tx in
        var record = try tx.record(RecordID("r")) ?? Record(type: "Note", id: RecordID("r"))
        for (field, value) in fields { record[field] = value }
        try tx.save(record)
      }
    }
    _ = try await save(a, ["title": "old", "note": "old", "place": "old"])
    try await a.exchange()
    try await b.exchange()
    let receipt = try await save(a, ["title": "a's", "note": "a's"])
    try await a.exchange()
    try await b.exchange()
    // The same field as the first device, and another one.
    _ = try await save(b, ["title": "b's", "place": "b's"])
    try await b.exchange()
    try await a.exchange()
    let undone = try await a.open().undo(receipt)
    #expect(undone.kept == [.init(RecordID("r"), "title", .changedSince)])
    try await a.exchange()
    try await b.exchange()
    for device in [a, b] {
      let fields = try await device.open().record(RecordID("r"))?.fields
      #expect(fields == ["title": "b's", "note": "old", "place": "b's"], "\(device.name)")
    }
    // What it put back is an edit like any: the redo is one too.
    try await a.open().undo(undone.receipt)
    try await a.exchange()
    try await b.exchange()
    for device in [a, b] {
      let fields = try await device.open().record(RecordID("r"))?.fields
      #expect(fields == ["title": "b's", "note": "a's", "place": "b's"], "\(device.name)")
    }
  }

  /// What a test expects of an undo of edits: values by record and field, and the sums of counters.
  private struct Model {
    var values: [String: [String: String]] = [:]
    var visits: [String: Int] = [:]
  }

  /// An edit of one record, and what its fields had before it and have after it.
  private struct Edit {
    var name: String
    var before: [String: String]
    var after: [String: String]
    var added: Int
    var receipt: Receipt
  }

  @Test func `random edits are taken back in any order, but for what was changed since`() async throws {
    for seed in 1...UInt64(Campaign.isWhole ? 500 : 40) {
      let random = SeededRandom(seed: seed)
      func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
      let store = try open(seed: seed)
      var (model, edits) = (Model(), [Edit]())
      for name in ["a", "b"] {
        try await store.write { try $0.create(Shelf(id: name, title: "new", note: "new")) }
        (model.values[name], model.visits[name]) = (["title": "new", "note": "new"], 0)
      }
      for number in 0..<6 {
        let (name, added, fields) = (["a", "b"][below(2)], below(3) * below(9), below(3))
        let before = try #require(model.values[name])
        var after = before
        if fields != 1 { after["title"] = ["x", "y", "edit \(number)"][below(3)] }
        if fields != 0 { after["note"] = ["x", "y", "edit \(number)"][below(3)] }
        let (title, note) = (after["title"] ?? "", after["note"])
        let receipt = try await store.update(Shelf.self, id: name) {
          ($0.title, $0.note, $0.visits) = (title, note, $0.visits + added)
        }.receipt
        (model.values[name], model.visits[name]) = (after, (model.visits[name] ?? 0) + added)
        edits.append(Edit(name: name, before: before, after: after, added: added, receipt: receipt))
      }
      while !edits.isEmpty {
        let edit = edits.remove(at: below(edits.count))
        var kept: [String] = []
        for field in ["note", "title"] where edit.before[field] != edit.after[field] {
          if model.values[edit.name]?[field] == edit.after[field] {
            model.values[edit.name]?[field] = edit.before[field]
          } else {
            kept.append(field)
          }
        }
        model.visits[edit.name, default: 0] -= edit.added
        let undone = try await store.undo(edit.receipt)
        #expect(
          undone.kept.map(\.field) == kept && undone.kept.allSatisfy { $0.reason == .changedSince }, "seed \(seed)")
        for (name, shelf) in try all(store) {
          #expect(
            ["title": shelf.title, "note": try #require(shelf.note)] == model.values[name], "seed \(seed), \(name)")
          #expect(shelf.visits == model.visits[name], "seed \(seed), \(name)")
        }
      }
      try await store.close()
    }
  }

  @Test func `random transactions are undone to what they were, the last first`() async throws {
    for seed in 1...UInt64(Campaign.isWhole ? 2_000 : 60) {
      let random = SeededRandom(seed: seed)
      func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
      let store = try open(seed: seed)
      func change(_ tx: inout WriteTransaction) throws {
        for _ in 0...below(4) {
          let name = "r\(below(5))"
          if try tx.fetch(Shelf.self, id: name) == nil {
            try tx.create(Shelf(id: name, title: "t\(below(9))", visits: below(3), tags: ["x\(below(3))"]))
          } else if below(4) == 0 {
            try tx.delete(Shelf.self, id: name)
          } else {
            try tx.update(Shelf.self, id: name) { shelf in
              switch below(5) {
              case 0: shelf.title = "t\(below(9))"
              case 1: shelf.note = below(2) == 0 ? nil : "n\(below(9))"
              case 2: shelf.visits += below(5)
              case 3: shelf.tags.formSymmetricDifference(["x\(below(4))"])
              default:
                // A parent that does not hang below it.
                shelf.parent = below(2) == 0 ? nil : Parent(id: "top\(below(2))")
              }
            }
          }
        }
      }
      var states = [try all(store)]
      var receipts: [Receipt] = []
      for _ in 0..<4 {
        receipts.append(try await store.write { try change(&$0) })
        states.append(try all(store))
      }
      // Taken back one after the other, the last first, each state is there again.
      for place in receipts.indices.reversed() {
        let undone = try await store.undo(receipts[place])
        #expect(undone.kept.isEmpty, "seed \(seed)")
        #expect(try all(store) == states[place], "seed \(seed), transaction \(place)")
      }
      try await store.close()
    }
  }
}

extension Undone.Kept {
  fileprivate init(_ id: RecordID, _ field: String?, _ reason: Reason) {
    self.init(id: id, field: field, reason: reason)
  }
}
