// Goal: what an app has decided once about lost zones, batches and quota is carried out by the engine alone: in the run that
// learns of it, once, through crashes, with a word about it, and without an end to what is not sent.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

extension Device {
  fileprivate func names() async throws -> [String] {
    var names: [String] = []
    try await open().forEachRecord { names.append($0.id.name) }
    return names
  }

  /// Closes the store, and opens it with rules for lost zones.
  fileprivate func open(_ rules: [ZoneLoss: ZoneLossRule]) async throws -> RefusingCloud {
    try await close()
    let cloud = RefusingCloud(self)
    try await open(database: cloud) { configuration in
      for (reason, rule) in rules { configuration.zoneLosses[reason] = rule }
    }
    return cloud
  }
}

/// A cloud whose list of changed zones names this reason for the loss of the zone that was deleted.
private func name(_ reason: ZoneLoss, _ cloud: RefusingCloud) {
  cloud.refuse { script in
    script.list = { _, page in
      var page = page
      for index in page.zones.indices where page.zones[index].loss != nil { page.zones[index].loss = reason }
      return page
    }
  }
}

/// A device with three records that are synced, and a rule.
private func device(_ rules: [ZoneLoss: ZoneLossRule]) async throws -> (Fleet, Device, RefusingCloud) {
  let fleet = try Fleet()
  let a = fleet.device("a")
  for index in 0..<3 { try await a.put("n\(index)", ["title": .string("t\(index)")]) }
  try await a.exchange()
  return (fleet, a, try await a.open(rules))
}

private let losses: [ZoneLoss] = [.deleted, .purged, .encryptedDataReset]

@Suite(.timeLimit(.minutes(30))) struct `The rules of an app for lost zones` {
  @Test(arguments: losses) func `132, 133, 134: without one a zone is frozen for every reason`(
    _ reason: ZoneLoss
  ) async throws {
    let (fleet, a, cloud) = try await device([:])
    name(reason, cloud)
    try fleet.server.deleteZone("Main", in: fleet.database)
    #expect(try await a.run()?.code == .zoneLost)
    #expect(try await a.mainZone().lostReason == reason)
    #expect(try await a.names().count == 3)
    #expect(cloud.sent.isEmpty && cloud.count(.createZone) == 0)
  }

  @Test(arguments: losses) func `134: uploads everything again, in the run that learns of the loss, and says so`(
    _ reason: ZoneLoss
  ) async throws {
    let (fleet, a, cloud) = try await device([reason: .uploadAgain])
    name(reason, cloud)
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await a.put("n1", ["title": "edited"])
    try await a.put("new", ["title": "not sent"])
    let report = try await a.exchange()
    let decision = try #require(report.lossesDecided.first)
    #expect(decision.zone == .main && decision.reason == reason && decision.rule == .uploadAgain)
    #expect(decision.unsent == 2)
    let status = try await a.open().engine.status
    #expect(status.lossesDecided == [decision] && status.halts.isEmpty)
    #expect(status.diagnostics().contains("lossDecided: uploadAgain, \(reason), "))
    #expect(try fleet.server.records(zone: "Main", in: fleet.database)?.count == 4)
    #expect(try await a.owesNothing)
    let late = fleet.device("late")
    try await late.exchange()
    #expect(try await late.value("n1") == "edited")
    try await expectAgreement(a, late)
  }

  @Test(arguments: losses) func `132, 133: removes what was synced, and keeps an edit in the history`(
    _ reason: ZoneLoss
  ) async throws {
    let (fleet, a, cloud) = try await device([reason: .removeHere])
    name(reason, cloud)
    try await a.put("n1", ["title": "edited"])
    let receipt = try await a.open().write { tx in
      var record = try #require(try tx.record(RecordID("n2")))
      record["title"] = "edited too"
      try tx.save(record)
    }
    try fleet.server.deleteZone("Main", in: fleet.database)
    let report = try await a.exchange()
    #expect(report.lossesDecided.map(\.unsent) == [2])
    #expect(try await a.names() == [])
    #expect(try await a.unsettled == 0)
    #expect(try await a.open().status().held.isEmpty)
    let refused = await #expect(throws: StrandlineError.self) { try await receipt.uploaded() }
    #expect(refused?.code == .notUploaded)
    #expect(try await receipt.outcome() == [RecordID("n2"): .deletedOnServer])
    let history = try await a.open().history(of: RecordID("n1"))
    #expect(history.changes.contains { $0.record?["title"] == "edited" })
    #expect(try await a.open().engine.status.halts.isEmpty)
  }

  @Test func `133: what is written after a removal makes the zone anew, and nothing that was removed comes back`()
    async throws
  {
    let (fleet, a, cloud) = try await device([.deleted: .removeHere])
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await a.exchange()
    #expect(try await a.names() == [])
    #expect(cloud.count(.createZone) == 0 && cloud.sent.isEmpty)
    // A relaunch, and a poll, do nothing about a zone to which nothing is owed.
    a.crash()
    let again = try await a.open([.deleted: .removeHere])
    try await a.exchange()
    #expect(again.count(.createZone) == 0)
    let receipt = try await a.open().write { tx in
      try tx.save(Record(type: "Note", id: RecordID("new"), fields: ["title": "new"]))
    }
    let waiting = Task { try await receipt.uploaded() }
    try await a.exchange()
    try await waiting.value
    #expect(try fleet.server.records(zone: "Main", in: fleet.database).map { Array($0.keys) } == ["new"])
    #expect(try await a.owesNothing)
  }

  @Test func `132: a device that removed its records follows one that uploads them again`() async throws {
    let (fleet, a, _) = try await device([.deleted: .removeHere])
    let b = fleet.device("b")
    try await b.exchange()
    _ = try await b.open([.deleted: .uploadAgain])
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await a.exchange()
    #expect(try await a.names() == [])
    try await exchange(b, a, b)
    #expect(try await a.names().count == 3)
    try await expectAgreement(a, b)
  }

  @Test(arguments: [ZoneLossRule.uploadAgain, .removeHere])
  func `a decision outlasts a crash at any request, and is carried out once`(_ rule: ZoneLossRule) async throws {
    for request in 1...12 {
      let (fleet, a, cloud) = try await device([.deleted: rule])
      try fleet.server.deleteZone("Main", in: fleet.database)
      try await a.put("n1", ["title": "edited"])
      let count = Mutex(0)
      cloud.refuse { script in
        script.refusal = { _, _ in
          count.withLock { count in
            count += 1
            return count >= request ? CloudError(.networkError, reason: "away") : nil
          }
        }
      }
      let error = try await a.run(waitMillisecondsMax: 0)
      a.crash()
      _ = try await a.open([.deleted: rule])
      for _ in 0..<3 where try await a.run() != nil {}
      #expect(try await a.owesNothing || rule == .removeHere, "request \(request): \(String(describing: error))")
      #expect(try await a.unsettled == 0, "request \(request)")
      #expect(try await a.names().count == (rule == .uploadAgain ? 3 : 0), "request \(request)")
      let onServer = try fleet.server.records(zone: "Main", in: fleet.database)?.count ?? 0
      #expect(onServer == (rule == .uploadAgain ? 3 : 0), "request \(request)")
    }
  }

  @Test func `a zone that is lost again and again is asked about, and decided again the day after`() async throws {
    let (fleet, a, cloud) = try await device([.deleted: .uploadAgain])
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await a.exchange()
    #expect(cloud.count(.createZone) == 1)
    try fleet.server.deleteZone("Main", in: fleet.database)
    #expect(try await a.run()?.code == .zoneLost)
    // Neither a relaunch nor a compaction forgets that it has decided.
    try await a.open().compact()
    a.crash()
    let again = try await a.open([.deleted: .uploadAgain])
    #expect(try await a.run() == nil, "nothing is owed")
    #expect(try await a.mainZone().lostReason == .deleted)
    #expect(try await a.open().engine.status.halts.count == 1)
    #expect(again.count(.createZone) == 0)
    try await a.put("n1", ["title": "edited"])
    for _ in 0..<23 {
      #expect(try await a.run()?.code == .zoneLost)
      a.clock.advance(milliseconds: 3_600_000)
    }
    #expect(again.count(.createZone) == 0)
    a.clock.advance(milliseconds: 3_600_000)
    let report = try await a.exchange()
    #expect(report.lossesDecided.count == 1)
    #expect(again.count(.createZone) == 1)
    #expect(try await a.owesNothing)
  }

  @Test func `a cloud that loses the zone whenever it is made does not keep a run from ending`() async throws {
    let (fleet, a, cloud) = try await device([.deleted: .uploadAgain, .notFound: .uploadAgain])
    cloud.refuse { $0.beforeModify = { _ in try fleet.server.deleteZone("Main", in: fleet.database) } }
    try fleet.server.deleteZone("Main", in: fleet.database)
    #expect(try await a.run()?.code == .zoneLost)
    #expect(cloud.count(.createZone) == 1)
    #expect(cloud.requestCount < 30)
    #expect(try await a.names().count == 3)
  }

  @Test func `an app that ends a zone which a rule removed does not delete what another device has made anew`()
    async throws
  {
    let (fleet, a, _) = try await device([.deleted: .removeHere])
    let b = fleet.device("b")
    _ = try await b.open([.deleted: .uploadAgain])
    try await b.exchange()
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await a.exchange()
    #expect(try await a.names() == [])
    try await b.exchange()
    #expect(try fleet.server.records(zone: "Main", in: fleet.database)?.count == 3)
    try await a.open().engine.eraseZone(.main)
    _ = try await a.run()
    #expect(try fleet.server.records(zone: "Main", in: fleet.database)?.count == 3)
  }

  @Test func `after a person has decided, a rule may decide at once`() async throws {
    let (fleet, a, _) = try await device([.deleted: .uploadAgain])
    for decided in [true, false] {
      try fleet.server.deleteZone("Main", in: fleet.database)
      let error = try await a.run()
      #expect((error == nil) == decided)
    }
    try await a.open().engine.resync(.main, from: .here)
    #expect(try await a.run() == nil)
    try fleet.server.deleteZone("Main", in: fleet.database)
    #expect(try await a.run() == nil)
    #expect(try fleet.server.records(zone: "Main", in: fleet.database)?.count == 3)
  }

  @Test func `what the app has ended itself has no rule`() async throws {
    var rules = ZoneLossRules()
    rules[.erased] = .uploadAgain
    rules[.erasing] = .removeHere
    #expect(ZoneLoss.allCases.allSatisfy { rules[$0] == .ask })
    let (fleet, a, _) = try await device([.deleted: .uploadAgain, .notFound: .uploadAgain])
    try await a.open().engine.eraseZone(.main)
    try await a.exchange()
    try await a.exchange()
    #expect(try await a.mainZone().lostReason == .erased)
    #expect(try fleet.server.records(zone: "Main", in: fleet.database) == nil)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The limits of an app` {
  @Test func `a request holds no more operations than the app wants, and one at least`() async throws {
    for (operations, most) in [(7, 7), (1, 1), (0, 1), (500, 200)] {
      let a = try Fleet().device("a")
      let cloud = RefusingCloud(a)
      try await a.open(database: cloud) { $0.batch.operations = operations }
      try await a.open().write { tx in
        for index in 0..<230 { try tx.save(Record(type: "Note", id: RecordID("n\(index)"))) }
      }
      try await a.exchange()
      #expect(cloud.sent.map(\.count).max() == most)
      #expect(cloud.sent.reduce(0) { $0 + $1.count } == 230)
      #expect(cloud.sent.count == (230 + most - 1) / most)
      #expect(try await a.owesNothing)
    }
  }

  @Test func `a request holds no more bytes than the app wants, but what goes as a whole goes`() async throws {
    let a = try Fleet().device("a")
    let cloud = RefusingCloud(a)
    try await a.open(database: cloud) { $0.batch.bytes = 20_000 }
    let text = FieldValue.string(String(repeating: "a", count: 6_000))
    for index in 0..<9 { try await a.put("n\(index)", ["text": text]) }
    try await a.put("large", ["text": .string(String(repeating: "a", count: 100_000))])
    // A circle of four, which no request of 20,000 bytes holds.
    try await a.open().write { tx in
      for index in 0..<4 {
        let fields = ["text": text, "next": link("c\((index + 1) % 4)")]
        try tx.save(Record(type: "Note", id: RecordID("c\(index)"), fields: fields))
      }
    }
    try await a.exchange()
    let batches = cloud.script.withLock { $0.batches }
    for batch in batches where !batch.contains(where: { $0.name == "large" || $0.name.hasPrefix("c") }) {
      #expect(batch.count <= 3)
    }
    #expect(batches.contains { $0.map(\.name) == ["large"] })
    #expect(batches.contains { Set($0.map(\.name)) == ["c0", "c1", "c2", "c3"] })
    #expect(try await a.owesNothing)
  }

  @Test func `50, 137: a record over quota waits longer each time, if the server names no time`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let full = CloudError(.quotaExceeded, reason: "full")
    cloud.refuse { script in
      (script.items["n"], script.isForever) = ([full], true)
    }
    try await a.put("n", ["title": "t"])
    var waits: [Int64] = []
    for _ in 0..<4 {
      try await a.exchange()
      let wait = try #require(try await a.open().status().held.first?.retryMilliseconds)
      waits.append(wait)
      a.clock.advance(milliseconds: wait)
    }
    #expect(waits == [300_000, 600_000, 1_200_000, 2_400_000])
    var named = full
    named.retryAfter = 7
    cloud.refuse { [named] script in script.items["n"] = [named] }
    try await a.exchange()
    #expect(try await a.open().status().held.first?.retryMilliseconds == 7_000)
  }
}
