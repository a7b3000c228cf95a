// Records that two or more devices change before they hear of each other. The names of the tests begin with the numbers of
// the scenarios.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// A fleet whose devices have the same rules for notes, and all hold the note `n`.
private func devices(
  _ count: Int, _ rules: TypeRules = TypeRules(), holding fields: [String: FieldValue]
) async throws -> [Device] {
  let fleet = try Fleet()
  var conflicts = ConflictRules()
  conflicts["Note"] = rules
  let devices = (0..<count).map { fleet.device("d\($0)") }
  for device in devices { try await device.open(conflicts: conflicts) }
  try await devices[0].put("n", fields)
  for device in devices { try await device.exchange() }
  return devices
}

/// Every order of three.
private let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]

/// Rules by which the field `count` of a note is a counter.
private func counting() -> ConflictRules {
  var conflicts = ConflictRules()
  conflicts["Note"].fields = ["count": .counter]
  return conflicts
}

/// A device that has counted the note `n` from 0 to 1 and has not sent that, another device, and a copy of the first one's disk.
///
/// - Parameter isRenamed: an earlier copy has sent another note, by which each learns that its disk was copied.
private func copied(isRenamed: Bool) async throws -> (a: Device, b: Device, copy: Device) {
  let fleet = try Fleet()
  let (a, b, copy, early) = (fleet.device("a"), fleet.device("b"), fleet.device("copy"), fleet.device("early"))
  for device in [a, b] { try await device.open(conflicts: counting()) }
  try await a.put("n", ["count": 0])
  try await exchange(a, b)
  early.restore(from: a.disk)
  try await a.put("n", ["count": 1])
  copy.restore(from: a.disk)
  for device in [early, copy] { try await device.open(conflicts: counting()) }
  if isRenamed {
    try await early.put("other", ["count": 0])
    try await early.exchange()
  }
  return (a, b, copy)
}

@Suite(.timeLimit(.minutes(30))) struct ScenarioConflictTests {
  @Test func `56: edits of different fields both survive`() async throws {
    for order in [[0, 1, 0], [1, 0, 1]] {
      let d = try await devices(2, holding: ["title": "t", "body": "b"])
      try await d[0].put("n", ["title": "A"])
      try await d[1].put("n", ["body": "B"])
      for place in order { try await d[place].exchange() }
      #expect(try await d[0].value("n", "title") == "A")
      #expect(try await d[0].value("n", "body") == "B")
      try await expectAgreement(d[0], d[1])
    }
  }

  @Test func `57: edits of one field at one time have one winner, whatever the order`() async throws {
    var winners: Set<FieldValue?> = []
    for order in [[0, 1, 0], [1, 0, 1]] {
      let d = try await devices(2, holding: ["title": "t"])
      let now = d[0].clock.wallMilliseconds() + 1_000
      for (place, device) in d.enumerated() {
        device.clock.setWall(milliseconds: now)
        try await device.put("n", ["title": .string("from \(place)")])
      }
      for place in order { try await d[place].exchange() }
      try await expectAgreement(d[0], d[1])
      winners.insert(try await d[0].value("n"))
    }
    #expect(winners.count == 1)
  }

  // The server's clock stands meanwhile, and a minute is the most by which a stamp may be ahead of it.
  @Test(arguments: [(30, 45), (45, 30)])
  func `58, 59: the later edit of a field wins, when the server's is fetched first`(_ local: Int, _ server: Int)
    async throws
  {
    let d = try await devices(2, holding: ["title": "t"])
    d[0].clock.advance(milliseconds: Int64(server) * 1_000)
    try await d[0].put("n", ["title": "server"])
    d[1].clock.advance(milliseconds: Int64(local) * 1_000)
    try await d[1].put("n", ["title": "local"])
    try await d[0].exchange()
    try await d[1].exchange(.pullOnly)
    #expect(try await d[1].value("n") == (local > server ? "local" : "server"))
    try await exchange(d[1], d[0])
    #expect(try await d[0].value("n") == (local > server ? "local" : "server"))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `60: three devices edit two fields, and all orders end alike`() async throws {
    var ends: Set<[String]> = []
    for order in orders {
      let d = try await devices(3, holding: ["title": "t", "body": "b"])
      for (place, device) in d.enumerated() {
        device.clock.advance(milliseconds: Int64([3, 1, 2][place]) * 10_000)
        try await device.put("n", ["title": .string("title \(place)"), "body": .string("body \(place)")])
      }
      for _ in 0..<2 { for place in order { try await d[place].exchange() } }
      try await expectAgreement(d[0], d[1], d[2])
      ends.insert(try await d[0].dump())
    }
    #expect(ends.count == 1)
  }

  @Test func `60: unions, counters and greatest values end alike in all orders`() async throws {
    var rules = TypeRules()
    rules.fields = ["tags": .union, "count": .counter, "best": .greatest]
    var ends: Set<[String]> = []
    for order in orders {
      let d = try await devices(
        3, rules, holding: ["tags": .list(.strings, ["x", "y"]), "count": 10, "best": 5, "title": "t"])
      let tags: [[FieldValue]] = [["x", "y", "b", "a"], ["y", "b"], ["y", "x", "a"]]
      for (place, device) in d.enumerated() {
        device.clock.advance(milliseconds: Int64([3, 1, 2][place]) * 10_000)
        try await device.put(
          "n",
          [
            "tags": .list(.strings, tags[place]), "count": .int64([13, 9, 110][place]),
            "best": .int64([6, 9, 2][place]), "title": .string("from \(place)"),
          ])
      }
      for _ in 0..<2 { for place in order { try await d[place].exchange() } }
      try await expectAgreement(d[0], d[1], d[2])
      ends.insert(try await d[0].dump())
      #expect(try await d[0].value("n", "tags") == .list(.strings, ["a", "b", "y"]))
      #expect(try await d[0].value("n", "count") == 112)
      #expect(try await d[0].value("n", "best") == 9)
    }
    #expect(ends.count == 1)
  }

  @Test func `60: a counter counts an edit once whose answer was lost`() async throws {
    let conflicts = counting()
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(
      through: InProcessTransport(fleet.server, waitsForDroppedAnswers: false), conflicts: conflicts)
    try await b.open(conflicts: conflicts)
    try await a.put("n", ["count": 5])
    try await exchange(a, b)
    try await a.put("n", ["count": 6])
    var faults = ServerFaults()
    faults.dropAnswer = 1
    fleet.server.setFaults(faults)
    _ = try? await a.sync(.pushOnly, waitMillisecondsMax: 0)
    fleet.server.setFaults(ServerFaults())
    try await b.exchange()
    try await b.put("n", ["count": 16])
    try await b.exchange()
    try await a.put("n", ["count": 106])
    a.clock.advance(milliseconds: 600_000)
    try await exchange(a, b)
    #expect(try await b.value("n", "count") == 116)
    try await expectAgreement(a, b)
  }

  @Test func `60: a counter counts an edit once that a disk put back does not know to be sent`() async throws {
    let conflicts = counting()
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for device in [a, b] { try await device.open(conflicts: conflicts) }
    try await a.put("n", ["count": 0])
    try await exchange(a, b)
    try await a.put("n", ["count": 1])
    try await a.put("n", ["count": 2])
    let image = a.disk.clone()
    try await exchange(a, b)
    try await b.put("n", ["count": 4])
    try await b.exchange()
    a.restore(from: image)
    try await a.open(conflicts: conflicts)
    try await a.put("n", ["count": 3])
    try await exchange(a, b)
    #expect(try await b.value("n", "count") == 5)
    try await expectAgreement(a, b)
  }

  /// A copy of a disk merges an edit that was not sent; then the original sends it, from a merge of its own. What another device
  /// adds is less than nothing, so the greater number is no answer.
  ///
  /// - Parameters:
  ///   - isRenamed: the original has learned that it was copied, and writes under another ID.
  ///   - more: what the copy adds after its merge.
  @Test(arguments: [(false, 0), (true, 0), (true, 100)])
  func `60: a counter counts an edit once that a copy has merged, and the original has sent`(
    _ isRenamed: Bool, _ more: Int64
  ) async throws {
    let (a, b, copy) = try await copied(isRenamed: isRenamed)
    try await b.put("n", ["count": -10])
    try await b.exchange()
    try await copy.exchange(.pullOnly)
    #expect(try await copy.value("n", "count") == -9)
    if more > 0 { try await copy.put("n", ["count": .int64(more - 9)]) }
    try await exchange(a, b)
    #expect(try await b.value("n", "count") == -9)
    try await b.put("n", ["count": -19])
    try await exchange(b, copy, a, b)
    #expect(try await copy.value("n", "count") == .int64(more - 19))
    try await expectAgreement(a, b, copy)
  }

  /// The original has sent a part of what the copy's merge carries on.
  @Test(arguments: [false, true])
  func `60: a counter counts an edit once that a copy has added to and merged, and the original has sent`(
    _ isRenamed: Bool
  ) async throws {
    let (a, b, copy) = try await copied(isRenamed: isRenamed)
    try await copy.put("n", ["count": 101])
    try await b.put("n", ["count": 10])
    try await b.exchange()
    try await copy.exchange(.pullOnly)
    #expect(try await copy.value("n", "count") == 111)
    try await exchange(a, copy, a, b)
    #expect(try await copy.value("n", "count") == 111)
    try await expectAgreement(a, b, copy)
  }

  @Test func `61: a field set to null arrives, and another device's field survives`() async throws {
    let d = try await devices(2, holding: ["title": "t", "body": "b"])
    try await d[0].put("n", ["title": nil])
    try await d[1].put("n", ["body": "B"])
    try await exchange(d[0], d[1], d[0])
    #expect(try await d[1].value("n", "title") == nil)
    #expect(try await d[0].value("n", "body") == "B")
    try await expectAgreement(d[0], d[1])
  }

  @Test func `63: a new tag for the values that an edit was made from is no conflict`() async throws {
    let d = try await devices(2, holding: ["title": "t"])
    let id = RecordID("n")
    try await d[1].put("n", ["title": "edited"])
    let web = d[0].web()
    guard case .record(let known)? = try await web.lookup(["n"], in: id.zone)["n"] else {
      Issue.record("the record is not at the server")
      return
    }
    let touch = CloudOperation(
      .update, name: "n", type: "Note", changeTag: known.system.changeTag, fields: known.fields.mapValues { .some($0) })
    _ = try await web.modify([touch], in: id.zone, atomic: false)
    let report = try await d[1].exchange()
    #expect(report.merged == 0)
    #expect(report.uploaded == 1)
    try await exchange(d[0])
    #expect(try await d[0].value("n") == "edited")
    try await expectAgreement(d[0], d[1])
  }

  @Test func `63: the same edit on two devices is no conflict`() async throws {
    let d = try await devices(2, holding: ["title": "t"])
    for device in d { try await device.put("n", ["title": "the same"]) }
    try await d[0].exchange()
    #expect(try await d[1].exchange().merged == 0)
    try await exchange(d[0], d[1])
    try await expectAgreement(d[0], d[1])
  }

  @Test func `63: a value that was written twice, and is what it was, is a change all the same`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "one"])
    try await exchange(a, b)
    try await b.put("n", ["title": "from b"])
    for title in ["two", "one"] {
      for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 600_000) }
      try await a.put("n", ["title": .string(title)])
      try await a.exchange()
    }
    let report = try await b.exchange()
    #expect(report.merged == 1)
    try await exchange(a)
    #expect(try await a.value("n") == "one", "it was written after the edit of the other device")
    try await expectAgreement(a, b)
  }

  @Test func `64: a second conflict is merged with the server's newest version`() async throws {
    let d = try await devices(2, holding: ["title": "t", "body": "b", "note": "n"])
    try await d[1].put("n", ["note": "mine"])
    try await d[0].put("n", ["title": "first"])
    try await d[0].exchange()
    try await d[1].exchange(.pullOnly)
    try await d[0].put("n", ["body": "second"])
    try await d[0].exchange()
    try await exchange(d[1], d[0])
    #expect(try await d[0].value("n", "title") == "first")
    #expect(try await d[0].value("n", "body") == "second")
    #expect(try await d[0].value("n", "note") == "mine")
    try await expectAgreement(d[0], d[1])
  }

  @Test func `66: a version that is known already changes nothing, and an unsent edit survives`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    try await a.put("n", ["title": "unsent"])
    cloud.showAgain(.saved(try await cloud.current("n")))
    try await b.put("other", ["title": "x"])
    try await b.exchange()
    let report = try await a.exchange(.pullOnly)
    #expect(report.echoes == 1)
    #expect(try await a.value("n") == "unsent")
    try await exchange(a, b)
    #expect(try await b.value("n") == "unsent")
    try await expectAgreement(a, b)
  }

  @Test func `67, 68: an older version than the one that is known is not applied`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "change 1"])
    try await b.exchange()
    let old = try await cloud.current("n")
    try await b.put("n", ["title": "change 2"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "change 2")
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "change 2")
    try await expectAgreement(a, b)
  }

  @Test func `70: one name created on two devices is one record`() async throws {
    for order in [[0, 1, 0], [1, 0, 1]] {
      let fleet = try Fleet()
      let d = [fleet.device("a"), fleet.device("b")]
      try await d[0].put("red", ["title": "red", "body": "A"])
      try await d[1].put("red", ["title": "red", "note": "B"])
      for place in order { try await d[place].exchange() }
      #expect(try await d[0].value("red", "body") == "A")
      #expect(try await d[0].value("red", "note") == "B")
      try await expectAgreement(d[0], d[1])
    }
  }

  @Test func `72: a resolver decides by both sides and their ancestor`() async throws {
    let asked = Mutex<[Conflict]>([])
    var rules = TypeRules()
    rules.record = .resolver { conflict in
      asked.withLock { $0.append(conflict) }
      var record = conflict.server
      record["title"] = "both"
      return record
    }
    let d = try await devices(2, rules, holding: ["title": "t", "body": "b"])
    try await d[0].put("n", ["title": "server"])
    try await d[1].put("n", ["title": "local"])
    try await exchange(d[0], d[1], d[0])
    let conflicts = asked.withLock { $0 }
    #expect(conflicts.count == 1)
    #expect(conflicts.first?.ancestor?["title"] == "t")
    #expect(conflicts.first?.local["title"] == "local")
    #expect(conflicts.first?.server["title"] == "server")
    #expect(conflicts.first?.server.system?.changeTag != nil)
    #expect(try await d[0].value("n") == "both")
    #expect(try await d[0].value("n", "body") == "b")
    try await expectAgreement(d[0], d[1])
    // The history has both sides and their ancestor.
    let history = try await d[1].open().history(of: RecordID("n")).changes
    let merge = try #require(history.last { $0.kind == .merged })
    #expect(merge.rule == .resolver)
    #expect(merge.reason == nil)
    func title(_ lsn: LSN?) -> FieldValue? { history.first { $0.position.lsn == lsn }?.record?["title"] }
    #expect(title(merge.ancestor) == "t")
    #expect(title(merge.mutation) == "local")
    #expect(title(merge.base) == "server")
  }

  struct Unable: Error {}

  @Test(arguments: ["throws", "another type", "an invalid value", "another record"])
  func `72: without a valid answer of the resolver the record is joined, and the history says why`(_ defect: String)
    async throws
  {
    var rules = TypeRules()
    rules.record = .resolver { conflict in
      var record = conflict.local
      switch defect {
      case "another type": record.type = "Task"
      case "an invalid value": record["title"] = .double(.nan)
      case "another record": record = Record(type: "Note", id: RecordID("m"), fields: [:])
      default: throw Unable()
      }
      return record
    }
    let d = try await devices(2, rules, holding: ["title": "t", "body": "b"])
    try await d[0].put("n", ["title": "A"])
    try await d[1].put("n", ["body": "B"])
    try await d[1].put("other", ["title": "goes on"])
    try await exchange(d[0], d[1], d[0])
    #expect(try await d[0].value("n", "title") == "A")
    #expect(try await d[0].value("n", "body") == "B")
    #expect(try await d[0].value("other") == "goes on")
    try await expectAgreement(d[0], d[1])
    let merge = try await d[1].open().history(of: RecordID("n")).changes.last { $0.kind == .merged }
    #expect(merge?.rule == .join)
    #expect(merge?.reason?.contains("the resolver failed") == true)
  }

  @Test(arguments: [1, 100])
  func `72: a resolver runs while the app writes, and is asked again for what was written`(_ writes: Int) async throws {
    let store = Mutex<RecordStore?>(nil)
    let asked = Mutex(0)
    var rules = TypeRules()
    rules.record = .resolver { conflict in
      let count = asked.withLock { asked in
        asked += 1
        return asked
      }
      if count <= writes, let store = store.withLock({ $0 }) {
        try store.writeBlocking { tx in
          var record = try tx.record(conflict.id) ?? conflict.local
          record["body"] = .string("write \(count)")
          try tx.save(record)
        }
      }
      return conflict.local
    }
    let d = try await devices(2, rules, holding: ["title": "t", "body": "b"])
    try await d[0].put("n", ["title": "server"])
    try await d[1].put("n", ["title": "local"])
    let opened = try await d[1].open()
    store.withLock { $0 = opened }
    try await exchange(d[0], d[1])
    store.withLock { $0 = nil }
    try await exchange(d[1], d[0])
    #expect(asked.withLock { $0 } == (writes == 1 ? 2 : 3))
    #expect(try await d[0].value("n", "body") == .string("write \(min(writes, 3))"))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `72: a resolver is asked of each version of a record that one page has`() async throws {
    let asked = Mutex(0)
    var rules = TypeRules()
    rules.record = .resolver { conflict in
      asked.withLock { $0 += 1 }
      guard case .string(let ours)? = conflict.local["title"], case .string(let theirs)? = conflict.server["title"]
      else { throw Unable() }
      var record = conflict.local
      record["title"] = .string("\(ours) \(theirs)")
      return record
    }
    var conflicts = ConflictRules()
    conflicts["Note"] = rules
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud, conflicts: conflicts)
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    try await a.put("n", ["title": "a"])
    try await b.put("n", ["title": "1"])
    try await b.exchange()
    cloud.showAgain(.saved(try await cloud.current("n")))
    try await b.put("n", ["title": "2"])
    try await exchange(b, a, b)
    #expect(try await b.value("n") == "a 1 2")
    #expect(asked.withLock { $0 } == 3, "of the second version twice: before and after the first was decided")
    try await expectAgreement(a, b)
  }

  @Test func `74: what this device changed stands, and what only the server has is kept`() async throws {
    var rules = TypeRules()
    rules.record = .clientWins
    let d = try await devices(2, rules, holding: ["title": "t", "body": "b"])
    try await d[1].put("n", ["title": "local"])
    d[0].clock.advance(milliseconds: 10_000)
    try await d[0].put("n", ["title": "server", "new": "of another version"])
    try await exchange(d[0], d[1], d[0])
    #expect(try await d[0].value("n", "title") == "local")
    #expect(try await d[0].value("n", "body") == "b")
    #expect(try await d[0].value("n", "new") == "of another version")
    try await expectAgreement(d[0], d[1])
  }

  @Test func `75: the server's version stands, and the history has the edit that was given up`() async throws {
    var rules = TypeRules()
    rules.record = .serverWins
    let d = try await devices(2, rules, holding: ["title": "t", "body": "b"])
    try await d[0].put("n", ["title": "server"])
    d[1].clock.advance(milliseconds: 10_000)
    try await d[1].put("n", ["title": "local", "body": "local"])
    try await d[0].exchange()
    let report = try await d[1].exchange()
    #expect(report.uploaded == 0)
    #expect(try await d[1].value("n", "title") == "server")
    #expect(try await d[1].value("n", "body") == "b")
    try await expectAgreement(d[0], d[1])
    let history = try await d[1].open().history(of: RecordID("n")).changes
    let settled = try #require(history.last { $0.kind == .settled })
    #expect(settled.outcome == .discarded)
    #expect(settled.reason?.contains("serverWins") == true)
    #expect(history.contains { $0.position.lsn == settled.mutation && $0.record?["title"] == "local" })
  }

  @Test func `75, 74: single fields have rules of their own`() async throws {
    var rules = TypeRules()
    rules.fields = ["server": .serverWins, "client": .clientWins]
    let d = try await devices(2, rules, holding: ["server": "", "client": "", "later": ""])
    try await d[1].put("n", ["server": "b", "client": "b", "later": "b"])
    d[0].clock.advance(milliseconds: 10_000)
    try await d[0].put("n", ["server": "a", "client": "a", "later": "a"])
    try await exchange(d[0], d[1], d[0])
    #expect(try await d[0].value("n", "server") == "a")
    #expect(try await d[0].value("n", "client") == "b")
    #expect(try await d[0].value("n", "later") == "a")
    try await expectAgreement(d[0], d[1])
  }

  @Test func `76: the winner may save first or last`() async throws {
    for order in [[0, 1, 0], [1, 0, 1]] {
      let d = try await devices(2, holding: ["title": "t"])
      try await d[0].put("n", ["title": "earlier"])
      d[1].clock.advance(milliseconds: 10_000)
      try await d[1].put("n", ["title": "later"])
      for place in order { try await d[place].exchange() }
      #expect(try await d[0].value("n") == "later")
      try await expectAgreement(d[0], d[1])
    }
  }

  @Test(arguments: [true, false])
  func `77: a list is merged item by item where it is declared a set`(_ isSet: Bool) async throws {
    var rules = TypeRules()
    if isSet { rules.fields = ["tags": .union] }
    let d = try await devices(2, rules, holding: ["tags": .list(.strings, ["one", "two"])])
    try await d[0].put("n", ["tags": .list(.strings, ["one", "two", "three"])])
    d[1].clock.advance(milliseconds: 10_000)
    try await d[1].put("n", ["tags": .list(.strings, ["one"])])
    try await exchange(d[0], d[1], d[0])
    #expect(try await d[0].value("n", "tags") == .list(.strings, isSet ? ["one", "three"] : ["one"]))
    try await expectAgreement(d[0], d[1])
  }

  @Test func `79: many devices end in agreement, and no edit without a rival is lost`() async throws {
    let random = SeededRandom(seed: 79)
    let d = try await devices(20, holding: ["title": "t"])
    for round in 0..<3 {
      for (place, device) in d.enumerated() where random.below(2) == 0 {
        device.clock.advance(milliseconds: Int64(random.below(60_000)))
        // A field of its own, and one that all write.
        try await device.put("n", ["own\(place)": .int64(Int64(round)), "title": .string("\(place) in \(round)")])
        if random.below(2) == 0 { try await device.exchange() }
      }
    }
    var own: [FieldValue?] = []
    for (place, device) in d.enumerated() { own.append(try await device.value("n", "own\(place)")) }
    for _ in 0..<2 { for device in d { try await device.exchange() } }
    let dump = try await d[0].dump()
    for (place, device) in d.enumerated() {
      #expect(try await device.dump() == dump)
      #expect(try await d[0].value("n", "own\(place)") == own[place])
      #expect(try await device.open().status().unsettled == 0)
    }
  }

  @Test func `a record that cannot be read is read when this version can, and is not asked for again and again`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    try await b.put("n", ["title": "of a newer version"])
    try await b.exchange()
    try await cloud.breakRecord("n")
    // In place of the version that the feed has.
    try await a.exchange(.pushOnly)
    cloud.replaceNext(.failed(name: "n", cloud.defect(of: "n")))
    for round in 0..<4 {
      try await b.put("other", ["title": .string("\(round)")])
      try await exchange(b, a)
    }
    #expect(try await a.value("n") == "t")
    #expect(cloud.lookupCount == 1)
    #expect(try await a.open().status().openBlocks == 0)
    // Only another version of the program can read what this one has kept.
    #expect(cloud.readAgainCount == 0)
    try await a.close()
    try await a.open(database: cloud)
    for _ in 0..<2 { try await a.exchange() }
    #expect(cloud.readAgainCount == 1)
    #expect(try await a.value("n") == "t")
    try await a.close()
    cloud.canRead.withLock { $0 = true }
    try await a.open(database: cloud)
    try await a.exchange()
    #expect(cloud.readAgainCount == 2)
    #expect(try await a.value("n") == "of a newer version")
    #expect(cloud.lookupCount == 1)
    try await expectAgreement(a, b)
  }

  /// Damages the event that a store's record has its values, or its unsettled ones, from.
  private func damageNewest(_ name: String, of device: Device) async throws {
    let store = try await device.open()
    let entry = try #require(try store.projections.entry(RecordID(name)))
    let lsn = try #require(entry.pending?.newest ?? entry.base?.content)
    let text = FieldValue.string(String(repeating: "x", count: 1_000))
    for number in 0..<100 {
      try await store.write { tx in
        try tx.save(Record(type: "Note", id: RecordID("filler\(number)"), fields: ["title": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw Unable() }
    let place = try #require(log.place(of: lsn.rawValue))
    try await device.close()
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(device.disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    device.disk.poke(file, bytes)
  }

  @Test func `a damaged edit holds its record, and the rest of the page is applied`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", segmentBytesMax: 64 << 10), fleet.device("b"))
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    try await a.put("n", ["title": "unsent"])
    try await damageNewest("n", of: a)
    try await b.put("n", ["title": "server"])
    try await b.put("other", ["title": "x"])
    try await b.exchange()
    for _ in 0..<2 { try await a.sync(.pullOnly) }
    #expect(try await a.value("other") == "x")
    let held = try await a.open().projections.sync.unread[RecordID("n")]
    #expect(held?.code == "DAMAGED" && held?.words.isEmpty == false)
    #expect(try await a.sync(.pullOnly).held == 0, "it is not asked for again")
  }

  @Test(arguments: [true, false])
  func `a version that is damaged here, and that nothing is owed of, gives way to the server's`(_ isDeletion: Bool)
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", segmentBytesMax: 64 << 10), fleet.device("b"))
    try await b.put("n", ["title": "t", "body": "b"])
    try await exchange(b, a)
    try await damageNewest("n", of: a)
    if isDeletion { try await b.remove("n") } else { try await b.put("n", ["title": "server"]) }
    try await b.exchange()
    #expect(try await a.sync().held == 0)
    #expect(try await a.open().status().held.isEmpty)
    let (mine, other) = try await (a.open().record(RecordID("n")), b.open().record(RecordID("n")))
    #expect(mine?["title"] == (isDeletion ? nil : "server"))
    #expect(mine?.fields == other?.fields)
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test func `a version that is damaged here comes back with the answer to a lookup`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", segmentBytesMax: 64 << 10), fleet.device("b"))
    try await b.put("n", ["title": "t"])
    try await exchange(b, a)
    try await damageNewest("n", of: a)
    await #expect(throws: StrandlineError.self) { try await a.open().record(RecordID("n")) }
    try await a.open().commit { core in
      try core.append(
        .blocked(
          Blocked(id: RecordID("n"), subject: .version, births: [], consequence: .lookup, words: "a test's")))
    }
    try await a.sync()
    #expect(try await a.value("n") == "t")
  }

  /// A new life takes the place of one that another device has edited, and is acknowledged. What it replaced is shown again.
  @Test func `67, 68: an old page undoes no life that has taken another one's place`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = LateCloud(a.web())
    try await a.open(database: cloud)
    try await b.put("n", ["title": "old"])
    try await exchange(b, a)
    try await b.put("n", ["title": "edited", "body": "edited"])
    try await b.exchange()
    let old = try await cloud.current("n")
    try await a.open().write { tx in
      try tx.delete(RecordID("n"))
      try tx.create(Record(type: "Note", id: RecordID("n"), fields: ["title": "new"]))
    }
    try await a.exchange()
    #expect(try await a.open().status().unsettled == 0)
    #expect(try await a.value("n") == "new")
    cloud.showAgain(.saved(old))
    try await b.put("other", ["title": "x"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "new")
    #expect(try await a.value("n", "body") == nil)
    try await exchange(b, a)
    try await expectAgreement(a, b)
  }
}
