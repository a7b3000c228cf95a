// Edits of typed values: an update writes what its closure changed, and a save of a value that was read a while ago what was
// changed in it since. Method: fields under each rule, changed on both sides between read and save, once and several times.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineTesting
import Testing

/// The records of `Item`, without a version.
private struct Plain: SyncRecord, Equatable {
  static let recordType = "Item"
  var id = "n"
  var title = ""
  var body: String?
  var tags: Set<String> = []
  var opens = 0
}

private func open(_ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) async throws -> RecordStore {
  var configuration = SyncConfiguration.simulated(SimulatedCloud())
  configuration.isAutomatic = false
  var options = StoreOptions()
  options.conflicts["Item"] = Item.rules
  return try await RecordStore.open(
    at: "/store", syncing: configuration, options: options, environment: .simulated(disk: disk, seed: seed))
}

private func error(_ body: () async throws -> Void) async -> StrandlineError? {
  do { try await body() } catch { return error as? StrandlineError }
  return nil
}

extension RecordStore {
  fileprivate func item() throws -> Item { try #require(try fetch(Item.self, id: "n")) }

  /// When each field was written last.
  fileprivate func stamps() throws -> [String: FieldStamp] {
    try core.withLock { try $0.view(RecordID("n"))?.version.stamp.fields ?? [:] }
  }

  /// A change by someone else.
  fileprivate func change(_ body: (inout Item) -> Void) async throws { try await update(Item.self, id: "n", body) }
}

@Suite(.timeLimit(.minutes(30)))
struct UpdateTests {
  @Test func `an update writes what the closure changed, and nothing else`() async throws {
    let store = try await open()
    var record = Record(type: "Item", id: RecordID("n"), fields: ["title": "a", "opens": 1, "unknown": "kept"])
    record["tags"] = .list(.strings, ["z", "a"])
    record["best"] = 0
    record["fixed"] = ""
    try await store.write { try $0.save(record) }
    let before = try store.stamps()
    let (item, receipt) = try await store.update(Item.self, id: "n") { item in
      item.body = "new"
      item.opens += 1
    }
    let after = try store.stamps()
    #expect(Set(after.keys.filter { after[$0] != before[$0] }) == ["body", "opens"])
    #expect(item == Item(title: "a", body: "new", tags: ["a", "z"], opens: 2) && receipt.lsns != nil)
    let stored = try #require(try store.record(RecordID("n")))
    #expect(stored["unknown"] == "kept" && stored["tags"] == .list(.strings, ["z", "a"]) && stored["version"] == nil)
  }

  @Test func `an update that changes nothing writes nothing`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    #expect(try await store.update(Item.self, id: "n") { $0.title = "a" }.receipt.lsns == nil)
    #expect(try store.updateBlocking(Item.self, id: "n") { _ in }.receipt.lsns == nil)
  }

  @Test func `an update that removes a value writes a null, and moves below another parent`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(body: "old")) }
    try await store.update(Item.self, id: "n") { $0.body = nil }
    #expect(try store.item().body == nil && store.stamps()["body"] != nil)
    try await store.update(Item.self, id: "n") { $0.parent = Parent(id: "top") }
    #expect(try store.record(RecordID("n"))?.parent == "top")
    try await store.update(Item.self, id: "n") { $0.title = "below" }
    #expect(try store.record(RecordID("n"))?.parent == "top")
    try await store.update(Item.self, id: "n") { $0.parent = nil }
    #expect(try store.record(RecordID("n"))?.parent == nil)
  }

  @Test func `a closure that throws changes nothing, and the transaction may go on`() async throws {
    struct Refusal: Error {}
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    await #expect(throws: Refusal.self) { try await store.update(Item.self, id: "n") { _ in throw Refusal() } }
    try await store.write { tx in
      do {
        try tx.update(Item.self, id: "n") { item in
          item.title = "lost"
          throw Refusal()
        }
      } catch is Refusal {}
      try tx.update(Item.self, id: "n") { $0.body = "written" }
    }
    #expect(try store.item() == Item(title: "a", body: "written"))
  }

  @Test func `an update of what does not live, or to another ID, throws`() async throws {
    let store = try await open()
    #expect(await error { try await store.update(Item.self, id: "n") { $0.title = "x" } }?.code == .noSuchRecord)
    try await store.write { try $0.save(Item()) }
    let other = await error { try await store.update(Item.self, id: "n") { $0.id = "other" } }
    #expect(other?.code == .misuse && other?.message.contains("keeps its name") == true)
    try await store.write { try $0.delete(Item.self, id: "n") }
    let deleted = await error { try await store.update(Item.self, id: "n") { $0.title = "x" } }
    #expect(deleted?.code == .recordWasDeleted && deleted?.location?.contains("EditTests") == true)
    #expect(try store.fetch(Item.self, id: "n") == nil)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct VersionedSaveTests {
  @Test func `a value that a screen has held erases nothing that others changed`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", tags: ["x"], opens: 5, best: 10)) }
    var held = try store.item()
    try await store.change { item in
      item.body = "by another"
      item.tags.insert("y")
      item.opens += 10
      item.best = 20
      item.parent = Parent(id: "top")
    }
    held.title = "b"
    held.tags = ["z"]
    held.opens += 1
    held.best = 15
    let saved = try await store.write { [held] in try $0.save(held) }.value
    let expected = Item(
      title: "b", body: "by another", tags: ["y", "z"], opens: 16, best: 20, parent: Parent(id: "top"))
    #expect(try saved == expected && store.item() == expected)
  }

  @Test func `where both changed a field, the save is the later write, unless a rule says otherwise`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", body: "a", opens: 1, fixed: "a")) }
    var held = try store.item()
    try await store.change { item in
      item.title = "theirs"
      item.body = nil
      item.opens = 2
    }
    (held.title, held.body, held.opens) = ("mine", "mine", 2)
    try await store.write { [held] in try $0.save(held) }
    // Both have counted one, so it is two more, though their numbers are equal.
    #expect(try store.item() == Item(title: "mine", body: "mine", opens: 3, fixed: "a"))
  }

  @Test func `the server wins by its rule, and another screen of this device does not`() async throws {
    let fleet = try Fleet()
    let (here, there) = (fleet.device("here"), fleet.device("there"))
    var rules = ConflictRules()
    rules["Item"].fields = ["fixed": .serverWins]
    for device in [here, there] { try await device.open(conflicts: rules) }
    let store = try await here.open()
    try await store.write { try $0.save(Item(fixed: "a")) }
    try await exchange(here, there)
    var (first, second) = (try store.item(), try store.item())
    first.fixed = "first"
    second.fixed = "second"
    try await store.write { try $0.save(&first) }
    try await store.write { try $0.save(&second) }
    #expect(try store.item().fixed == "second" && second.fixed == "second")
    try await exchange(here, there)
    try await there.open().update(Item.self, id: "n") { $0.fixed = "theirs" }
    try await exchange(there, here)
    second.fixed = "late"
    try await store.write { try $0.save(&second) }
    #expect(try store.item().fixed == "theirs" && second.fixed == "theirs")
  }

  @Test func `what a rule does not take of a save is told as an edit that has lost`() async throws {
    let fleet = try Fleet()
    let (here, there) = (fleet.device("here"), fleet.device("there"))
    var rules = ConflictRules()
    rules["Item"].fields = ["best": .greatest, "fixed": .serverWins]
    for device in [here, there] { try await device.open(conflicts: rules) }
    let store = try await here.open()
    let id = RecordID("n")
    func told() throws -> [RecordConflict] { try store.conflicts(of: id) }
    try await store.write { try $0.save(Item(title: "a", best: 10, fixed: "a")) }
    try await exchange(here, there)
    var held = try store.item()
    var copy = held
    try await there.open().update(Item.self, id: "n") { ($0.fixed, $0.best) = ("theirs", 20) }
    try await exchange(there, here)
    // Of this save nothing is taken, so nothing is owed.
    (held.fixed, held.best) = ("mine", 15)
    let lost = try await store.write { try $0.save(&held) }
    #expect(held == Item(title: "a", best: 20, fixed: "theirs"))
    #expect(try await lost.outcome() == [id: .lost])
    await #expect(throws: StrandlineError.self) { try await lost.uploaded() }
    #expect(try store.status().unsettled == 0)
    var conflict = try #require(try told().first)
    #expect(
      conflict.rule == .join
        && conflict.fields.map(\.description) == [
          "best by greatest, lost: here", "fixed by serverWins, lost: here",
        ])
    #expect(conflict.local?["best"] == 15 && conflict.local?["fixed"] == "mine")
    #expect(conflict.server?["best"] == 20 && conflict.result?["fixed"] == "theirs" && conflict.reason != nil)
    // Of this one the title.
    (copy.title, copy.fixed, copy.best) = ("mine", "mine", 16)
    let partly = try await store.write { try $0.save(&copy) }
    #expect(copy == Item(title: "mine", best: 20, fixed: "theirs"))
    conflict = try #require(try told().last)
    #expect(conflict.local?["best"] == 16 && conflict.result?["title"] == "mine" && conflict.result?["best"] == 20)
    try await exchange(here, there)
    #expect(try await partly.outcome() == [id: .partlyLost(fields: ["best", "fixed"])])
    try await partly.uploaded()
    // What this store has written and not sent wins by its rule too, and is still owed.
    held = try store.item()
    try await store.change { $0.best = 30 }
    held.best = 25
    try await store.write { try $0.save(&held) }
    #expect(try held.best == 30 && told().count == 3)
    #expect(try told().last?.server?["best"] == 30 && told().last?.result?["best"] == 30)
    // Where the value is what the store has, nothing has lost.
    held.best = 30
    try await store.write { try $0.save(&held) }
    #expect(try told().count == 3)
    try await exchange(here, there)
    #expect(try await there.open().item() == Item(title: "mine", best: 30, fixed: "theirs"))
  }

  @Test func `a form that the type would not write is no edit`() async throws {
    struct Forms: SyncRecord {
      struct Wind: JSONField, Equatable { var knots = 0 }
      static var prototype: Forms? { Forms(stars: 3) }
      var id = "n"
      var version = RecordVersion()
      var stars = 0
      var wind = Wind()
      var tags: Set<String> = []
      var share: Float = 0
    }
    let fleet = try Fleet()
    let device = fleet.device("here")
    var rules = ConflictRules()
    rules["Forms"].record = .serverWins
    let store = try await device.open(conflicts: rules)
    // Another app, another order, another precision; and no stars.
    var record = Record(type: "Forms", id: RecordID("n"))
    record["wind"] = .bytes(Array(#"{"unit": "kn", "knots": 0}"#.utf8))
    record["tags"] = .list(.strings, ["z", "a"])
    record["share"] = .double(0.1)
    try await store.write { try $0.save(record) }
    // The server has it, so its rule could win.
    try await device.exchange()
    var held = try #require(try store.fetch(Forms.self, id: "n"))
    held.stars = 5
    held.wind.knots = 7
    held.tags = ["b"]
    held.share = 0.5
    try await store.write { try $0.save(&held) }
    #expect(held.stars == 5 && held.wind.knots == 7 && held.tags == ["b"] && held.share == 0.5)
  }

  @Test func `a value that goes on with its saves is never guessed`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", opens: 1, fixed: "off")) }
    var shown = try store.item()
    var (left, right) = (shown, shown)
    shown.fixed = "on"
    try await store.write { try $0.save(&shown) }
    (shown.fixed, shown.title) = ("off", "b")
    try await store.write { try $0.save(&shown) }
    #expect(try store.item() == Item(title: "b", opens: 1, fixed: "off"))
    left.opens = 2
    try await store.write { try $0.save(&left) }
    right.opens = 2
    try await store.write { try $0.save(&right) }
    #expect(try store.item().opens == 3 && right.opens == 3)
    // The same by the values themselves.
    var next = right
    next.opens = 4
    try await store.write { [next, right] in try $0.save(next, from: right) }
    var last = next
    last.opens = 5
    try await store.write { [last, next] in try $0.save(last, from: next) }
    #expect(try store.item().opens == 5)
    // Without a version it is a plain save.
    var plain = try #require(try store.fetch(Plain.self, id: "n"))
    plain.title = "plain"
    try await store.write { try $0.save(&plain) }
    #expect(try store.fetch(Plain.self, id: "n") == plain)
  }

  @Test func `what a transaction that failed has shown of others is no edit`() async throws {
    struct Refusal: Error {}
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", opens: 5)) }
    var held = try store.item()
    try await store.change { item in
      item.opens += 10
      item.title = "theirs"
    }
    held.opens += 1
    for _ in 0..<2 {
      await #expect(throws: Refusal.self) {
        try await store.write { tx in
          try tx.update(Item.self, id: "n") { $0.best = 7 }
          try tx.save(&held)
          held.opens += 1
          try tx.save(&held)
          throw Refusal()
        }
      }
    }
    #expect(held.title == "theirs" && held.opens == 18)
    try await store.change { $0.title = "later" }
    try await store.write { try $0.save(&held) }
    #expect(try store.item() == Item(title: "later", opens: 18) && held.title == "later")
    // A new value is new again.
    var new = Item(id: "new", title: "a")
    await #expect(throws: Refusal.self) {
      try await store.write { tx in
        try tx.save(&new)
        new.title = "b"
        try tx.save(&new)
        throw Refusal()
      }
    }
    try await store.write { try $0.save(&new) }
    #expect(try store.fetch(Item.self, id: "new")?.title == "b")
  }

  @Test func `saves that change nothing hold nothing`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    var held = try store.item()
    for _ in 0..<2 {
      // In one transaction, and with what is not durable yet.
      let receipt = try await store.write { tx in
        try tx.update(Item.self, id: "n") { $0.opens += 1 }
        for _ in 0..<10_000 { try tx.save(&held) }
      }
      #expect(receipt.lsns != nil)
    }
    let unchanged = try await store.write { tx in for _ in 0..<30_000 { try tx.save(&held) } }
    #expect(unchanged.lsns == nil)
    held.title = "b"
    try await store.write { try $0.save(&held) }
    #expect(try store.item().title == "b")
  }

  @Test func `a transaction that fails takes no durable state with it`() async throws {
    struct Refusal: Error {}
    let store = try await open()
    try await store.write { try $0.save(Item(opens: 0)) }
    var held = try store.item()
    for number in 1...7 {
      held.opens = number
      try await store.write { [held] in try $0.save(held) }
    }
    var copy = held
    await #expect(throws: Refusal.self) {
      try await store.write { [held] tx in
        var other = held
        for number in 100...120 {
          other.opens = number
          try tx.save(other)
        }
        throw Refusal()
      }
    }
    copy.body = "done"
    copy.opens = 8
    try await store.write { [copy] in try $0.save(copy) }
    #expect(try store.item() == Item(body: "done", opens: 8))
  }

  @Test func `a record that lives on by the rule that edits win takes the edits of before`() async throws {
    let fleet = try Fleet()
    let (here, there) = (fleet.device("here"), fleet.device("there"))
    var rules = ConflictRules()
    rules["Item"].deletion = .editRevives
    for device in [here, there] { try await device.open(conflicts: rules) }
    let store = try await here.open()
    try await store.write { try $0.save(Item(title: "a")) }
    try await exchange(here, there)
    var held = try store.item()
    try await there.remove("n")
    try await there.exchange()
    try await store.change { $0.title = "revives" }
    try await exchange(here, there)
    held.body = "late"
    try await store.write { try $0.save(&held) }
    #expect(try store.item() == Item(title: "revives", body: "late"))
  }

  @Test func `a value under another ID is a new one`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    var copy = try store.item()
    copy.id = "m"
    try await store.write { try $0.save(&copy) }
    copy.body = "mine"
    try await store.update(Item.self, id: "m") { $0.title = "theirs" }
    try await store.write { try $0.save(&copy) }
    #expect(try store.fetch(Item.self, id: "m") == Item(id: "m", title: "theirs", body: "mine"))
    #expect(try store.item() == Item(title: "a"))
  }

  @Test func `what is saved from one version again and again is one edit`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", opens: 5)) }
    var held = try store.item()
    held.opens = 6
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.item().opens == 6)
    held.opens = 7
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.item().opens == 7)
    // Others count, and change the title; the screen, which has not read again, counts and puts the body in.
    try await store.change { item in
      item.opens += 100
      item.title = "theirs"
    }
    held.opens = 8
    held.body = "mine"
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.item() == Item(title: "theirs", body: "mine", opens: 108))
    let unchanged = try await store.write { [held] in try $0.save(held) }
    #expect(unchanged.lsns == nil)
    #expect(try store.conflicts(of: RecordID("n")).isEmpty, "nobody is in conflict with himself")
  }

  @Test func `what is put back from one version is put back`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(fixed: "off")) }
    var held = try store.item()
    for state in ["on", "off", "on", "off"] {
      held.fixed = state
      try await store.write { [held] in try $0.save(held) }
      #expect(try store.item().fixed == state)
    }
  }

  @Test func `copies of one value, saved one after the other, keep each other's edits`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", tags: ["x"], opens: 5)) }
    let list = try store.item()
    var (detail, swiped) = (list, list)
    detail.title = "b"
    detail.opens = 6
    try await store.write { [detail] in try $0.save(detail) }
    swiped.body = "done"
    try await store.write { [swiped] in try $0.save(swiped) }
    detail.tags = []
    try await store.write { [detail] in try $0.save(detail) }
    #expect(try store.item() == Item(title: "b", body: "done", tags: [], opens: 6))
  }

  @Test func `a value goes on with the version that its save returned`() async throws {
    let store = try await open()
    // A new value is written whole, and has a version from then on.
    var item = try await store.write { try $0.save(Item(title: "a", opens: 1)) }.value
    for number in 2...20 {
      try await store.change { $0.opens += 100 }
      item.opens += 1
      item.body = "\(number)"
      item = try await store.write { [item] in try $0.save(item) }.value
    }
    #expect(try store.item() == item && item == Item(title: "a", body: "20", opens: 20 + 19 * 100))
    try await store.write { try $0.delete(Item.self, id: "n") }
    item = try await store.write { try $0.create(Item(title: "again")) }.value
    try await store.change { $0.body = "theirs" }
    item.title = "b"
    try await store.write { [item] in try $0.save(item) }
    #expect(try store.item() == Item(title: "b", body: "theirs"))
  }

  @Test func `a transaction that fails takes its versions back`() async throws {
    struct Refusal: Error {}
    let disk = SimulatedDisk()
    let store = try await open(disk)
    try await store.write { try $0.save(Item(title: "a", opens: 5)) }
    var held = try store.item()
    held.opens = 6
    await #expect(throws: Refusal.self) {
      try await store.write { tx in
        held = try tx.save(held)
        held = try tx.save(held)
        throw Refusal()
      }
    }
    disk.capacity = disk.usedBytes
    #expect(await error { try await store.write { tx in held = try tx.save(held) } }?.code == .diskFull)
    disk.capacity = nil
    try await store.change { $0.title = "b" }
    held = try await store.write { [held] in try $0.save(held) }.value
    #expect(try store.item() == Item(title: "b", opens: 6) && held == store.item())
    // The same where the value was new.
    var new = Item(id: "new", title: "a")
    await #expect(throws: Refusal.self) {
      try await store.write { tx in
        new = try tx.save(new)
        throw Refusal()
      }
    }
    try await store.write { [new] in try $0.save(new) }
    #expect(try store.fetch(Item.self, id: "new") == new)
    // What was read in such a transaction says nothing that the store has ever held.
    var read: Item?
    await #expect(throws: Refusal.self) {
      try await store.write { tx in
        try tx.update(Item.self, id: "n") { $0.title = "never" }
        read = try tx.fetch(Item.self, id: "n")
        throw Refusal()
      }
    }
    let stray = try #require(read)
    #expect(await error { try await store.write { try $0.save(stray) } }?.code == .misuse)
  }

  @Test func `a value of a life that is over is not saved`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    var held = try store.item()
    held.title = "b"
    try await store.write { try $0.delete(Item.self, id: "n") }
    #expect(await error { try await store.write { [held] in try $0.save(held) } }?.code == .recordWasDeleted)
    try await store.write { try $0.create(Item(title: "new")) }
    let again = await error { try await store.write { [held] in try $0.save(held) } }
    #expect(again?.code == .recordWasDeleted && again?.message.contains("another life") == true)
    #expect(try store.item().title == "new")
  }

  @Test func `neither compaction nor a reopening takes what a value was`() async throws {
    let disk = SimulatedDisk()
    var store = try await open(disk)
    try await store.write { try $0.save(Item(title: "a", opens: 5)) }
    var held = try store.item()
    for number in 1...50 { try await store.change { $0.opens = 5 + number } }
    try await store.compact(keeping: .latest)
    try await store.close()
    store = try await open(disk, seed: 2)
    held.opens += 1
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.item().opens == 56)
  }

  @Test func `a version says nothing of its value, and no data holds it`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    let read = try store.item()
    #expect(read == Item(title: "a") && read.hashValue == Item(title: "a").hashValue)
    #expect(try store.record(RecordID("n"))?.fields["version"] == nil)
    let data = try JSONEncoder().encode(read)
    let back = try JSONDecoder().decode(Item.self, from: data)
    #expect(back == read)
    #expect(throws: DecodingError.self) { try JSONDecoder().decode(RecordVersion.self, from: Data("1".utf8)) }
    var bare = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    bare["version"] = nil
    #expect(try JSONDecoder().decode(Item.self, from: JSONSerialization.data(withJSONObject: bare)) == read)
    // So it is written whole.
    try await store.change { $0.body = "theirs" }
    try await store.write { try $0.save(back) }
    #expect(try store.item().body == nil)
  }

  @Test func `an optional version is one too`() async throws {
    struct Other: SyncRecord {
      static let recordType = "Item"
      var id = "n"
      var version: RecordVersion?
      var title = ""
      var body: String?
    }
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a")) }
    var held = try #require(try store.fetch(Other.self, id: "n"))
    try await store.change { $0.body = "theirs" }
    held.title = "b"
    let saved = try await store.write { [held] in try $0.save(held) }.value
    #expect(saved.body == "theirs" && saved.version != nil)
    held.version = nil
    try await store.write { [held] in try $0.save(held) }
    #expect(try store.item().body == nil)
  }

  @Test func `a save from the value of before is the same for a type without a version`() async throws {
    let store = try await open()
    try await store.write { try $0.save(Item(title: "a", tags: ["x"], opens: 5)) }
    let old = try #require(try store.fetch(Plain.self, id: "n"))
    try await store.change { item in
      item.body = "theirs"
      item.tags.insert("y")
      item.opens += 10
    }
    var new = old
    new.title = "b"
    new.tags = []
    new.opens += 1
    let saved = try await store.write { [new] in try $0.save(new, from: old) }.value
    #expect(saved == Plain(title: "b", body: "theirs", tags: ["y"], opens: 16))
    #expect(try store.fetch(Plain.self, id: "n") == saved)
    let other = await error { try await store.write { try $0.save(Plain(id: "m"), from: old) } }
    #expect(other?.code == .misuse)
    // A plain save writes all fields.
    try await store.write { try $0.save(old) }
    #expect(try store.fetch(Plain.self, id: "n") == old)
  }
}
