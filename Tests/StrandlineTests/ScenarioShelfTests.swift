// Records that come before their parent, and records whose parent goes. The names of the tests begin with the numbers of the
// scenarios. The pages have one change each, in the order in which the server was told of it.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// Notes hang below what their field `of` names.
private func schema(_ rule: ChildRule = .keep, field: String? = "of") -> Schema {
  var schema = Schema()
  schema["Note"].parent = ParentSchema(field, whenDeleted: rule)
  return schema
}

extension Device {
  /// Opens the store with that schema and pages of one change.
  fileprivate func openShelving(_ schema: Schema = schema()) async throws -> RefusingCloud {
    try await close()
    let cloud = RefusingCloud(self)
    cloud.refuse { $0.pageMax = 1 }
    try await open(database: cloud, schema: schema)
    return cloud
  }

  /// Saves a note below another one, and syncs.
  fileprivate func upload(_ name: String, below parent: String? = nil) async throws {
    try await write(name, ["of": parent.map { link($0, .none) }].compactMapValues { $0 })
    try await exchange()
  }

  /// What a note hangs below; nil also if it does not live.
  fileprivate func place(_ name: String) async throws -> String? {
    guard case .reference(let reference)? = try await value(name, "of") else { return nil }
    return reference.name
  }
}

extension RefusingCloud {
  /// The n-th request for a page, and those that follow, fail.
  fileprivate func failPages(from first: Int) {
    refuse { script in
      let counter = Counter()
      script.refusal = { request, _ in
        guard request == .zoneChanges, counter.next() >= first else { return nil }
        return CloudError(.zoneBusy, reason: "ask again later")
      }
    }
  }

  fileprivate func mend() { refuse { $0.refusal = nil } }
}

private final class Counter: Sendable {
  private let count = Mutex(0)
  func next() -> Int {
    count.withLock {
      $0 += 1
      return $0
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioShelfTests {
  @Test func `140: a child that comes before its parent appears with it, in one transaction`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for (name, parent) in [("leaf", "child"), ("child", "list"), ("list", nil), ("last", nil)] {
      try await b.upload(name, below: parent)
    }
    let cloud = try await a.openShelving()
    cloud.failPages(from: 3)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.dump() == [])
    let held = try await a.open().status().held
    #expect(
      held.map(\.id.name) == ["child", "leaf"] && held.allSatisfy { $0.code == .parentMissing && $0.isDownload })
    let start = try await a.open().durableLSN
    cloud.mend()
    let seen = Mutex<[[String]]>([])
    cloud.refuse { script in
      script.page = { _, page in
        let names = page.changes.compactMap { change in if case .saved(let record) = change { record.name } else { nil }
        }
        seen.withLock { $0.append(names) }
        return page
      }
    }
    #expect(try await a.run() == nil)
    #expect(seen.withLock { $0.first } == ["list"])
    let store = try await a.open()
    var transactions: [String: Int] = [:]
    var number = 0
    guard case .writer(let log) = store.source else {
      Issue.record("the store is not open for writing")
      return
    }
    for lsn in start.advanced(by: 1).rawValue...store.durableLSN.rawValue {
      let found = try log.read(lsn)
      if found.isFirst { number += 1 }
      if case .fetchedSave(let event) = try found.decoded() { transactions[event.id.name] = number }
    }
    #expect(transactions.count == 4)
    #expect(Set(["leaf", "child", "list"].map { transactions[$0] }).count == 1)
    try await expectAgreement(a, b)
  }

  @Test func `141: what waits outlasts a relaunch, a power cut and a compaction`() async throws {
    for way in 0..<3 {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      for (name, parent) in [("child", "list"), ("list", nil), ("last", nil)] {
        try await b.upload(name, below: parent)
      }
      let cloud = try await a.openShelving()
      cloud.failPages(from: 2)
      #expect(try await a.run(waitMillisecondsMax: 0) != nil)
      switch way {
      case 0: try await a.close()
      case 1: a.crash()
      default:
        #expect(try await a.compact().broken == nil)
        try await a.close()
      }
      _ = try await a.openShelving()
      #expect(try await !a.lives("child"))
      #expect(try await a.open().status().held.map(\.id.name) == ["child"])
      #expect(try await a.run() == nil)
      try await expectAgreement(a, b)
      #expect(try await a.place("child") == "list")
    }
  }

  @Test func `149: a record that is put below one that is not known is shown at its old place until that comes`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.upload("x")
    try await b.upload("n", below: "x")
    let cloud = try await a.openShelving()
    try await a.exchange()
    try await b.upload("n", below: "y")
    try await b.upload("y")
    cloud.failPages(from: 2)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.place("n") == "x")
    #expect(try await a.open().status().held.map(\.code) == [.parentMissing])
    cloud.mend()
    #expect(try await a.run() == nil)
    #expect(try await a.place("n") == "y")
    try await expectAgreement(a, b)
  }

  @Test func `140: without a parent it appears with the last page`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for (name, parent) in [("child", "none"), ("other", nil), ("last", nil)] { try await b.upload(name, below: parent) }
    let cloud = try await a.openShelving()
    cloud.failPages(from: 3)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.dump().count == 1)
    cloud.mend()
    #expect(try await a.run() == nil)
    #expect(try await a.place("child") == "none")
    try await expectAgreement(a, b)
  }

  @Test func `140: a record with a change that is not sent does not wait, and is merged`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.upload("n")
    try await a.exchange()
    try await b.upload("n", below: "list")
    try await b.upload("list")
    let cloud = try await a.openShelving()
    try await a.put("n", ["title": "mine"])
    cloud.failPages(from: 2)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.place("n") == "list")
    #expect(try await a.open().status().held.isEmpty)
    cloud.mend()
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await b.value("n") == "mine")
  }

  @Test func `140: what is learned of a record that waits is behind its version`() async throws {
    // It is deleted, changed once more, written here, asked for by a person, and fetched from the beginning.
    for way in 0..<5 {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      for (name, parent) in [("child", "list"), ("other", nil)] { try await b.upload(name, below: parent) }
      let cloud = try await a.openShelving()
      cloud.failPages(from: 2)
      #expect(try await a.run(waitMillisecondsMax: 0) != nil)
      #expect(try await a.open().status().held.map(\.id.name) == ["child"])
      switch way {
      case 0:
        try await b.remove("child")
        try await b.exchange()
      case 1: try await b.upload("child", below: "other")
      case 2: try await a.put("child", ["title": "mine"])
      case 3: try await a.open().releaseHolds(of: [RecordID("child")])
      default: break
      }
      if way == 3 {
        #expect(try await a.run(waitMillisecondsMax: 0) != nil)
        #expect(try await a.place("child") == "list")
      }
      cloud.mend()
      if way == 4 {
        cloud.refuse { $0.requests[.zoneChanges] = [CloudError(.changeTokenExpired, reason: "the token has expired")] }
      }
      try await b.upload("list")
      try await exchange(a, b, a)
      try await expectAgreement(a, b)
      #expect(try await a.lives("child") == (way != 0))
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioChildRuleTests {
  @Test func `146: a child is moved below a record that is deleted elsewhere: by the declared rule`() async throws {
    for (rule, place) in [(ChildRule.keep, "x"), (.delete, nil), (.setNil, nil), (.move(to: "inbox"), "inbox")] {
      for field in ["of", nil] {
        let fleet = try Fleet()
        let (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
        for device in [a, b] { try await device.open(schema: schema(rule, field: field)) }
        for name in ["inbox", "x", "y"] { try await a.put(name, ["title": "t"]) }
        func move(_ device: Device, _ name: String, _ parent: String) async throws {
          if field == nil {
            try await device.write(name, parent: parent)
          } else {
            try await device.write(name, ["of": link(parent, .none)])
          }
        }
        try await move(a, "n", "y")
        try await move(a, "m", "x")
        try await exchange(a, b, c)
        try await b.remove("x")
        try await b.exchange()
        try await move(a, "n", "x")
        try await exchange(a, b, a, c)
        try await expectAgreement(a, b, c)
        for name in ["n", "m"] {
          #expect(try await c.lives(name) == (rule != .delete), "\(rule)")
          let record = try await c.open().record(RecordID(name))
          let found = field == nil ? record?.parent : try await c.place(name)
          #expect(found == place, "\(rule) \(name)")
        }
      }
    }
  }

  @Test func `146: the rule is applied though the process ends behind the page of the deletion`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("x", ["title": "t"])
    try await a.upload("n", below: "x")
    try await b.exchange()
    try await b.remove("x")
    try await b.exchange()
    // The page of the deletion is durable, and the next one does not come.
    try await a.close()
    let cloud = RefusingCloud(a)
    cloud.refuse { $0.pageMax = 1 }
    try await a.open(database: cloud, schema: schema(.setNil))
    try await b.put("later", ["title": "t"])
    try await b.exchange()
    cloud.failPages(from: 3)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await !a.lives("x"))
    #expect(try await a.place("n") == "x")
    a.crash()
    try await a.open(schema: schema(.setNil))
    try await exchange(a, b)
    #expect(try await a.lives("n"))
    #expect(try await a.place("n") == nil)
    try await expectAgreement(a, b)
  }

  @Test func `146: a child that a tool has made larger than a save may be goes as declared`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(schema: schema(.setNil))
    try await a.put("x", ["title": "t"])
    try await exchange(a, b)
    var fields: [String: FieldValue?] = ["of": link("x", .none)]
    for number in 0..<300 { fields["field\(number)"] = .string("x") }
    let large = CloudOperation(.create, name: "n", type: "Note", fields: fields)
    guard case .record? = try await b.web().modify([large], in: .main, atomic: false)["n"] else {
      Issue.record("the server refuses it")
      return
    }
    try await exchange(a, b)
    await #expect(throws: StrandlineError.self) { try await a.write("n", ["more": 1]) }
    try await b.remove("x")
    try await b.exchange()
    try await a.put("mine", ["title": "t"])
    #expect(try await a.run() == nil)
    #expect(try await a.place("n") == nil)
    #expect(try await a.owesNothing)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `146: a child that comes below a record that is gone`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(schema: schema(.delete))
    try await a.put("x", ["title": "t"])
    try await exchange(a, b)
    try await b.write("n", ["of": link("x", .none)])
    try await a.remove("x")
    try await exchange(a, b, a, b)
    try await expectAgreement(a, b)
    #expect(try await !b.lives("n"))
  }

  @Test func `a schema that names what cannot be is refused at the open`() async throws {
    let a = try Fleet().device("a")
    for schema in [schema(.move(to: "")), schema(field: "_of")] {
      await #expect(throws: StrandlineError.self) { try await a.open(schema: schema) }
    }
    try await a.open(schema: schema(.move(to: "inbox")))
  }
}
