// Goal: after a full fetch a store holds what the server has and what it has not sent yet, and nothing else; whatever would
// remove much waits for a person.

import Strandline
import StrandlineServer
import StrandlineSyncProofs
import Synchronization
import Testing

/// Two devices with the same synced records, where the second one's cloud shows no deletions any more.
private func devicesWithoutDeletions(
  _ count: Int
) async throws -> (fleet: Fleet, a: Device, b: Device, cloud: RefusingCloud) {
  let made = try await devicesWithNotes(count)
  made.cloud.refuse { $0.hidesDeletions = true }
  return made
}

@Suite(.timeLimit(.minutes(30))) struct SweepTests {
  @Test func `106, 108: behind an expired token, what is gone at the server goes, and what is not sent stays`()
    async throws
  {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(6)
    for name in ["n0", "n1", "n2"] { try await a.remove(name) }
    try await a.put("new", ["title": "new"])
    try await a.exchange()
    try await b.put("n3", ["title": "edited"])
    try await b.put("n0", ["title": "edited, and gone there"])
    try await b.put("mine", ["title": "not sent"])
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    try await b.exchange(.pullOnly)
    #expect(try await b.livingNames() == ["n0", "n3", "n4", "n5", "new", "mine"])
    #expect(try await b.value("n3") == "edited")
    #expect(try await !b.mainZone().ghostsPossible)
    // The edit of the record that is gone ends when the server has said so.
    try await b.exchange()
    try await exchange(a, b)
    #expect(try await b.livingNames() == ["n3", "n4", "n5", "new", "mine"])
    #expect(try await b.open().status().unsettled == 0)
    #expect(try await b.open().status().held.isEmpty)
    #expect(try await a.livingNames() == b.livingNames())
    // What was swept stays deleted: an old version of it is of a life that has ended.
    await #expect(throws: StrandlineError.self) { try await b.put("n1", ["title": "back"]) }
    let before = try await b.open().durableLSN
    try await b.exchange()
    #expect(try await b.open().durableLSN == before)
  }

  @Test func `108: what could not be read and is gone at the server is not held any more`() async throws {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(0)
    var unreadable = CloudError(.unexpectedServerResponse, reason: "no key")
    unreadable.raw = Array("{}".utf8)
    let error = unreadable
    cloud.refuse { script in
      for name in ["gone", "kept"] { script.shown[name] = .failed(name: name, error) }
    }
    for name in ["gone", "kept"] { try await a.put(name, ["title": "t"]) }
    try await exchange(a, b)
    #expect(try await b.open().status().held.map(\.id.name) == ["gone", "kept"])
    try await a.remove("gone")
    try await a.exchange()
    cloud.refuse { ($0.shown["gone"], $0.requests[.zoneChanges]) = (nil, [tokenExpired]) }
    try await b.exchange()
    #expect(try await b.open().status().held.map(\.id.name) == ["kept"])
    #expect(try await !b.mainZone().ghostsPossible)
    cloud.refuse { ($0.shown, $0.requests[.zoneChanges]) = ([:], [tokenExpired]) }
    try await a.put("other", ["title": "t"])
    try await exchange(a, b)
    #expect(try await b.livingNames() == ["kept", "other"])
    #expect(try await b.owesNothing)
  }

  @Test func `108: with the hold of what is gone ends that of its edit, which is sent`() async throws {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(1)
    try await a.put("gone", ["title": "t"])
    try await exchange(a, b)
    var unreadable = CloudError(.unexpectedServerResponse, reason: "no key")
    unreadable.raw = Array("{}".utf8)
    let error = unreadable
    cloud.refuse { script in
      script.shown["gone"] = .failed(name: "gone", error)
      script.items["gone"] = [CloudError(.badRequest, reason: "wrong")]
    }
    try await a.put("gone", ["title": "u"])
    try await a.exchange()
    try await b.put("gone", ["title": "edited"])
    _ = try await b.run()
    #expect(try await Set(b.open().status().held.map(\.isDownload)) == [true, false])
    try await a.remove("gone")
    try await a.exchange()
    cloud.refuse { ($0.shown, $0.requests[.zoneChanges]) = ([:], [tokenExpired]) }
    #expect(try await b.run() == nil)
    #expect(try await b.owesNothing)
    #expect(try await b.livingNames() == a.livingNames())
  }

  @Test func `162: what waits for a later version of the app waits on when the zone is fetched anew`() async throws {
    func schema(_ number: Int64) -> Schema {
      var schema = Schema()
      schema["Note"].version = SchemaVersion(number, whenNewer: .reject)
      return schema
    }
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(schema: schema(2))
    let cloud = RefusingCloud(b)
    try await b.open(database: cloud, schema: schema(1))
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    #expect(try await b.open().status().held.map(\.code) == [.newerSchema])
    try await a.put("other", ["title": "t"], type: "Other")
    try await a.exchange()
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    try await b.exchange()
    #expect(try await b.livingNames() == ["other"])
    #expect(try await b.open().status().held.map(\.code) == [.newerSchema])
    try await b.close()
    try await b.open(schema: schema(2))
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `133: with a zone whose end at the server a person lets stand, its holds end too`() async throws {
    let (fleet, a, b, cloud) = try await devicesWithoutDeletions(0)
    var unreadable = CloudError(.unexpectedServerResponse, reason: "no key")
    unreadable.raw = Array("{}".utf8)
    let error = unreadable
    cloud.refuse { $0.shown["n"] = .failed(name: "n", error) }
    try await a.put("n", ["title": "t"])
    try await exchange(a, b)
    #expect(try await b.open().status().held.map(\.id.name) == ["n"])
    try fleet.server.deleteZone("Main", in: fleet.database)
    _ = try await b.run()
    try await b.open().engine.resync(.main, from: .server)
    _ = try await b.run()
    #expect(try await b.mainZone().lostReason == .erased)
    #expect(try await b.open().status().held.isEmpty)
  }

  @Test(arguments: [false, true])
  func `110: a sweep that was interrupted goes on, and what came meanwhile is not removed`(
    _ compacts: Bool
  ) async throws {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(30)
    for name in ["n3", "n20"] { try await a.remove(name) }
    try await a.exchange()
    // The token is refused, three pages come, and the next one is refused.
    let pages = Mutex(0)
    cloud.refuse { script in
      script.pageMax = 7
      script.requests[.zoneChanges] = [tokenExpired]
      script.refusal = { request, _ in
        guard request == .zoneChanges else { return nil }
        return pages.withLock { pages in
          pages += 1
          return pages > 4 ? CloudError(.accessDenied, reason: "not now") : nil
        }
      }
    }
    await #expect(throws: StrandlineError.self) { try await b.exchange() }
    #expect(try await b.mainZone().ghostsPossible)
    #expect(try await b.livingNames().count == 30)
    if compacts { try await b.open().compact() }
    try await b.close()
    try await a.put("between", ["title": "new"])
    try await a.put("n1", ["title": "changed"])
    try await a.exchange()
    let again = RefusingCloud(b)
    again.refuse { script in
      script.pageMax = 7
      script.hidesDeletions = true
    }
    try await b.open(database: again)
    try await b.exchange()
    #expect(try await b.livingNames() == a.livingNames())
    #expect(try await b.livingNames().count == 29)
    #expect(try await !b.mainZone().ghostsPossible)
    #expect(again.count(.zoneChanges) <= 4, "the pages that were in are not asked for again")
    try await expectAgreement(a, b)
  }

  @Test(arguments: ResyncSource.allCases)
  func `a sweep that would remove much freezes the zone, and a person decides`(_ source: ResyncSource) async throws {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(150)
    try await a.open().write { tx in for index in 0..<130 { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    try await b.put("n5", ["title": "edited"])
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    let error = await #expect(throws: StrandlineError.self) { try await b.exchange() }
    #expect(error?.code == .zoneLost)
    #expect(error?.message.contains("the server lists 20 of the 150 records") == true)
    #expect(try await b.mainZone().lostReason == .missingRecords)
    #expect(try await b.livingNames().count == 150)
    try await b.open().engine.resync(.main, from: source)
    try await b.exchange()
    try await exchange(a, b)
    #expect(try await b.livingNames().count == (source == .server ? 20 : 150))
    if source == .here { #expect(try await a.value("n5") == "edited") }
    #expect(try await b.open().status().unsettled == 0)
    #expect(try await b.open().status().held.isEmpty)
    #expect(try await a.livingNames() == b.livingNames())
    try await expectAgreement(a, b)
  }

  @Test func `132: a token that is refused in the middle of uploading again does not make a removal of it`()
    async throws
  {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(6)
    for name in ["n0", "n1"] { try await a.remove(name) }
    try await a.exchange()
    try await b.open().engine.resync(.main, from: .here)
    cloud.forgetSent()
    cloud.refuse { script in
      script.pageMax = 2
      script.beforePage = { if $0 == 2 { throw tokenExpired } }
    }
    try await b.exchange()
    #expect(cloud.count(.zoneChanges) > 3)
    try await exchange(a, b)
    #expect(try await b.livingNames() == ["n0", "n1", "n2", "n3", "n4", "n5"])
    #expect(try await a.livingNames() == b.livingNames())
    try await expectAgreement(a, b)
  }

  @Test func `108: what a page could not show is not held when a lookup shows that it is what is here`() async throws {
    let (_, a, b, cloud) = try await devicesWithoutDeletions(2)
    try await a.put("n0", ["title": "edited"])
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.page = { _, page in
        var page = page
        page.changes = page.changes.map { change in
          guard case .saved(let record) = change, record.name == "n1" else { return change }
          return .failed(name: "n1", CloudError(.internalError, reason: "trouble"))
        }
        return page
      }
    }
    try await b.exchange()
    #expect(cloud.count(.lookup) == 1)
    #expect(try await b.open().status().held.isEmpty)
    #expect(try await b.livingNames() == ["n0", "n1"])
  }

  @Test func `44, 132: a zone that is gone is made anew from here, with what was not sent`() async throws {
    let (fleet, _, b, _) = try await devicesWithoutDeletions(5)
    try fleet.server.deleteZone("Main", in: fleet.database)
    try await b.put("n1", ["title": "edited"])
    try await b.remove("n2")
    await #expect(throws: StrandlineError.self) { try await b.exchange() }
    #expect(try await b.mainZone().isLost)
    try await b.open().engine.resync(.main, from: .here)
    try await b.exchange()
    #expect(try await b.open().status().unsettled == 0)
    #expect(try await b.open().status().held.isEmpty)
    #expect(try fleet.server.records(zone: "Main", in: fleet.database)?.count == 4)
    let late = fleet.device("late")
    try await late.exchange()
    #expect(try await late.livingNames() == b.livingNames())
    #expect(try await late.value("n1") == "edited")
    await #expect(throws: StrandlineError.self) { try await b.open().engine.resync(ZoneID("Other"), from: .here) }
  }
}
