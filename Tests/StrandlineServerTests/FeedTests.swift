// Goal: the feed of a zone and of the database, and tokens of every good and bad kind. Method: the client over
// the in-process transport against a server in memory.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct FeedTests {
  private func reason(_ body: () async throws -> Void) async -> String? {
    do {
      try await body()
      return nil
    } catch let error as CloudError {
      return error.code == .badRequest ? error.reason : "\(error)"
    } catch {
      return "\(error)"
    }
  }

  @Test func `pages bring each record once, at its latest change, tombstones too`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    for name in ["a", "b", "c", "d", "e"] { try await client.note(name) }
    _ = try await client.one(CloudOperation(.forceUpdate, name: "b", type: "Note", fields: ["title": "new"]))
    _ = try await client.one(CloudOperation(.forceDelete, name: "d"))
    for limit in 1...6 {
      let all = try await client.everything(limit: limit)
      #expect(all.changes.map(\.mark) == ["a", "c", "e", "b", "-d"])
      #expect(all.pages == (5 + limit - 1) / limit)
    }
    // Each page's token can be used any number of times.
    let first = try await client.zoneChanges(in: notes, since: nil, limit: 2)
    for _ in 0..<2 {
      #expect(try await client.everything(since: first.token).changes.map(\.mark) == ["e", "b", "-d"])
    }
    // A re-creation takes the tombstone's place.
    try await client.note("d")
    #expect(try await client.everything().changes.map(\.mark) == ["a", "c", "e", "b", "d"])
  }

  @Test func `a client that has everything gets the same token again`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    let empty = try await client.zoneChanges(in: notes, since: nil, limit: 10)
    #expect(empty.changes.isEmpty && !empty.moreComing)
    #expect(try await client.zoneChanges(in: notes, since: empty.token, limit: 10).token == empty.token)
    try await client.note("a")
    let token = try #require(try await client.everything(since: empty.token).token)
    try await client.createZone(ZoneID("Other"))
    let again = try await client.zoneChanges(in: notes, since: token, limit: 10)
    #expect(again.changes.isEmpty)
    #expect(again.token == token)
  }

  @Test func `a page ends at its limit in bytes too`() async throws {
    var limits = ServerLimits()
    limits.answerBytesMax = 1500
    let client = CloudServer.still(limits: limits).client()
    try await client.createZone(notes)
    for index in 0..<6 { try await client.note("\(index)", ["t": .string(String(repeating: "x", count: 1000))]) }
    let all = try await client.everything()
    #expect(all.changes.count == 6)
    #expect(all.pages == 3)
  }

  @Test func `the database feed names zones by their latest change`() async throws {
    let client = CloudServer.still().client()
    let other = ZoneID("Other")
    try await client.createZone(notes)
    try await client.createZone(other)
    try await client.createZone(notes)
    let start = try await client.databaseChanges(since: nil, limit: 10)
    #expect(start.zones.map(\.id) == [notes, other])
    try await client.note("a")
    let more = try await client.databaseChanges(since: start.token, limit: 10)
    #expect(more.zones == [.init(id: notes)])
    let still = try await client.databaseChanges(since: more.token, limit: 10)
    #expect(still.zones.isEmpty && still.token == more.token)
    let one = try await client.databaseChanges(since: nil, limit: 1)
    #expect(one.moreComing && one.zones.map(\.id) == [other])
  }

  @Test func `a deleted zone leaves the feed and its tokens die, also when it comes again`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("a")
    let before = try await client.databaseChanges(since: nil, limit: 10).token
    let token = try await client.everything().token
    try server.deleteZone("Notes", in: database)
    #expect(try await client.databaseChanges(since: before, limit: 10).zones == [.init(id: notes, loss: .deleted)])
    do {
      _ = try await client.zoneChanges(in: notes, since: token, limit: 10)
      Issue.record("the zone is gone")
    } catch let error as CloudError {
      #expect(error.code == .zoneNotFound)
    }
    try await client.createZone(notes)
    #expect(try await client.databaseChanges(since: before, limit: 10).zones == [.init(id: notes)])
    #expect(
      await reason { _ = try await client.zoneChanges(in: notes, since: token, limit: 10) }
        == "client knowledge differs from server knowledge")
    #expect(try await client.everything().changes.isEmpty)
  }

  @Test func `bad tokens are refused with the reasons that the live service gives`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("a")
    let good = try #require(try await client.everything().token).rawValue
    let ofDatabase = try await client.databaseChanges(since: nil, limit: 1).token.rawValue
    func ask(_ token: String) async -> String? {
      await reason { _ = try await client.zoneChanges(in: notes, since: ChangeToken(rawValue: token), limit: 10) }
    }
    #expect(await ask(good) == nil)
    #expect(await ask("INVALID_GARBAGE_TOKEN") == "Unknown sync continuation type")
    #expect(await ask("\u{1F30A}") == "Unknown sync continuation type")
    #expect(await ask(ofDatabase) == "Unknown sync continuation type")
    for length in 4..<good.utf8.count {
      #expect(await ask(String(good.prefix(length))) == "Invalid continuation format", "\(length)")
    }
    #expect(await ask(good + "AAAA") == "Invalid continuation format")
    var bent = Array(good)
    bent[30] = bent[30] == "A" ? "B" : "A"
    #expect(await ask(String(bent)) == "Invalid continuation format")
    let stranger = CloudServer(inMemory: SystemEnvironmentSeed.other)
    try await stranger.client().createZone(notes)
    let foreign = try await stranger.client().everything().token?.rawValue ?? ""
    #expect(await ask(foreign) == "client knowledge differs from server knowledge")
    var faults = ServerFaults()
    faults.expireTokens = true
    server.setFaults(faults)
    #expect(await ask(good) == "client knowledge differs from server knowledge")
    let fresh = try #require(try await client.everything().token).rawValue
    #expect(await ask(fresh) == nil)
    server.setFaults(ServerFaults())
    #expect(await ask(good) == "client knowledge differs from server knowledge", "expired stays expired")
    #expect(await ask(fresh) == nil)
  }

  @Test func `the stale page comes once, to a client that has seen the deletion`() async throws {
    var faults = ServerFaults()
    faults.replayPage = true
    let server = CloudServer.still(faults: faults)
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("kept", ["title": "old"])
    try await client.note("gone")
    // What is shown without fields is not kept for a request that asks for them.
    #expect(try await client.zoneListing(in: notes, since: nil, limit: 10).changes.count == 2)
    let first = try await client.zoneChanges(in: notes, since: nil, limit: 10)
    _ = try await client.one(CloudOperation(.forceUpdate, name: "kept", type: "Note", fields: ["title": "new"]))
    #expect(try await client.zoneChanges(in: notes, since: first.token, limit: 10).changes.map(\.mark) == ["kept"])
    _ = try await client.one(CloudOperation(.forceDelete, name: "gone"))
    // A client that has not seen the deletion yet gets the normal changes.
    let normal = try await client.zoneChanges(in: notes, since: first.token, limit: 10)
    #expect(normal.changes.map(\.mark) == ["kept", "-gone"] && !normal.moreComing)
    let listed = try await client.zoneListing(in: notes, since: normal.token, limit: 10)
    #expect(listed.changes.isEmpty && !listed.moreComing)
    let stale = try await client.zoneChanges(in: notes, since: normal.token, limit: 10)
    #expect(stale.changes.map(\.mark) == ["kept", "gone"])
    #expect(stale.token == normal.token && stale.moreComing)
    guard case .saved(let kept) = stale.changes[0] else {
      Issue.record("kept is not there")
      return
    }
    #expect(kept.fields["title"] == "old")
    let quiet = try await client.zoneChanges(in: notes, since: stale.token, limit: 10)
    #expect(quiet.changes.isEmpty && !quiet.moreComing)
    #expect(server.statistics.replayedPages == 1)
  }

  @Test func `a long feed with many rewrites stays right`() async throws {
    let client = CloudServer.still().client()
    try await client.createZone(notes)
    var expected: [String] = []
    for round in 0..<12 {
      let names = (0..<150).map { "\(($0 * 7 + round * 13) % 300)" }.uniqued
      let operations = names.map { CloudOperation(.forceUpdate, name: $0, type: "Note", fields: ["r": 1]) }
      _ = try await client.modify(operations, in: notes, atomic: false)
      expected = expected.filter { !names.contains($0) } + names
    }
    #expect(try await client.everything(limit: 37).changes.map(\.name) == expected)
  }
}

extension [String] {
  fileprivate var uniqued: [String] {
    var seen: Set<String> = []
    return filter { seen.insert($0).inserted }
  }
}
