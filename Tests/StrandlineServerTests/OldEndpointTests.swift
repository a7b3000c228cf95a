// Goal: clients that the engine is not get what Apple's older endpoints answer: records/changes, zones/changes, feeds that go
// back in time, and the users of a container. Method: bodies as such clients send them, over the in-process transport.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct OldEndpointTests {
  private static let zone = #""zoneID":{"zoneName":"Notes"}"#

  /// Notes a to e, of which b was changed and d deleted.
  private static func server(limits: ServerLimits = ServerLimits()) async throws -> CloudServer {
    let server = CloudServer.still(limits: limits)
    let client = server.client()
    try await client.createZone(notes)
    for name in ["a", "b", "c", "d", "e"] { try await client.note(name) }
    _ = try await client.one(CloudOperation(.forceUpdate, name: "b", type: "Note", fields: ["title": "new"]))
    _ = try await client.one(CloudOperation(.forceDelete, name: "d"))
    return server
  }

  private func marks(_ records: [WireRecord]?) -> [String] {
    (records ?? []).map { ($0.deleted == true ? "-" : "") + ($0.recordName ?? "?") }
  }

  /// A page of records/changes has the keys of a zone's page.
  private func changes(_ server: CloudServer, _ more: String) throws -> ZoneChangesReply.Zone {
    let answer = try server.post("records/changes", "{\(Self.zone)\(more)}")
    #expect(answer.status == 200, "\(answer.body)")
    return try WireJSON.decode(ZoneChangesReply.Zone.self, Array(answer.body.utf8))
  }

  @Test func `records-changes brings a zone page by page, with the tokens of changes-zone`() async throws {
    let server = try await Self.server()
    var found: [String] = []
    var token = ""
    var more = true
    while more {
      let page = try changes(server, #","resultsLimit":2,"syncToken":"\#(token)""#)
      found += marks(page.records)
      token = page.syncToken ?? ""
      more = page.moreComing == true
    }
    #expect(found == ["a", "c", "e", "b", "-d"])
    try await server.client().note("f")
    let page = try await server.client().zoneChanges(in: notes, since: ChangeToken(rawValue: token), limit: 9)
    #expect(page.changes.map(\.mark) == ["f"])
    let short = try changes(server, #","desiredKeys":[],"desiredRecordTypes":["Other"]"#)
    #expect(marks(short.records) == ["-d"])
    for (body, status, words) in [
      ("{}", 400, "AppDefaultZone does not support getChanges call"),
      (#"{"zoneID":{"zoneName":"Gone"}}"#, 404, "ZONE_NOT_FOUND"),
      (#"{\#(Self.zone),"syncToken":"x"}"#, 400, "Unknown sync continuation type"),
      (#"{\#(Self.zone),"syncToken":5}"#, 400, "syncToken"),
    ] {
      let answer = try server.post("records/changes", body)
      #expect(answer.status == status && answer.body.contains(words), "\(body): \(answer.body)")
    }
    #expect(try server.post("records/changes", "{\(Self.zone)}", scope: "public").status == 400)
  }

  @Test func `a reverse feed begins with the newest change and ends with the oldest`() async throws {
    let server = try await Self.server()
    for limit in 1...6 {
      var found: [String] = []
      var pages = 0
      var token = ""
      var more = true
      while more, pages < 20 {
        let page = try changes(server, #","reverse":true,"resultsLimit":\#(limit),"syncToken":"\#(token)""#)
        found += marks(page.records)
        token = try #require(page.syncToken)
        more = page.moreComing == true
        pages += 1
        // What changes meanwhile is not shown, and moves nothing.
        if pages == 1, limit == 2 { try await server.client().note("late") }
      }
      let all = ["-d", "b", "e", "c", "a"]
      #expect(found == (limit > 2 ? ["late"] : []) + all, "\(limit)")
      let end = try changes(server, #","reverse":true,"syncToken":"\#(token)""#)
      #expect(end.records?.isEmpty == true && end.moreComing == false && end.syncToken == token)
    }
    // The key of changes/zone, of the request or of the zone.
    for body in [
      #"{"reverse":true,"zones":[{\#(Self.zone)}]}"#, #"{"zones":[{\#(Self.zone),"reverse":true}]}"#,
      #"{"reverse":false,"zones":[{\#(Self.zone),"reverse":true}]}"#,
    ] {
      #expect(marks(try server.pages(body).first?.records).first == "late", "\(body)")
    }
    // The tokens of the two directions are apart.
    let forward = try #require(try changes(server, #","resultsLimit":1"#).syncToken)
    let back = try #require(try changes(server, #","reverse":true,"resultsLimit":1"#).syncToken)
    for more in [#","reverse":true,"syncToken":"\#(forward)""#, #","syncToken":"\#(back)""#] {
      let answer = try server.post("records/changes", "{\(Self.zone)\(more)}")
      #expect(answer.status == 400 && answer.body.contains("Unknown sync continuation type"), "\(answer.body)")
    }
  }

  @Test func `a reverse feed ends its pages at the server's bytes too`() async throws {
    var limits = ServerLimits()
    limits.answerBytesMax = 600
    let server = try await Self.server(limits: limits)
    var found: [String] = []
    var token = ""
    var pages = 0
    var more = true
    while more, pages < 20 {
      let page = try changes(server, #","reverse":true,"syncToken":"\#(token)""#)
      found += marks(page.records)
      token = page.syncToken ?? ""
      more = page.moreComing == true
      pages += 1
    }
    #expect(found == ["-d", "b", "e", "c", "a"] && pages > 1)
    // A zone for which no byte is left begins with its newest change the next time.
    try await server.client().createZone(ZoneID("Other"))
    for name in ["x", "y"] {
      _ = try await server.client().one(
        CloudOperation(.create, name: name, type: "Note"), in: ZoneID("Other"))
    }
    let both = try server.pages(#"{"reverse":true,"zones":[{\#(Self.zone)},{"zoneID":{"zoneName":"Other"}}]}"#)
    #expect(both.last?.records?.isEmpty == true && both.last?.moreComing == true)
    let rest =
      #"{"zones":[{"zoneID":{"zoneName":"Other"},"reverse":true,"syncToken":"\#(both.last?.syncToken ?? "")"}]}"#
    #expect(marks(try server.pages(rest).first?.records).first == "y")
  }

  @Test func `zones-changes answers as changes-database does, under the older names`() async throws {
    let server = try await Self.server()
    try await server.client().createZone(ZoneID("Other"))
    func ask(_ body: String) throws -> String {
      let answer = try server.post("zones/changes", body)
      #expect(answer.status == 200, "\(answer.body)")
      return answer.body
    }
    let first = try ask("{}")
    let new = try await server.client().databaseChanges(since: nil, limit: 200)
    #expect(first.contains(#""metaSyncToken":"\#(new.token.rawValue)""#) && first.contains(#""zoneName":"Other""#))
    try server.deleteZone("Other", in: database)
    for key in ["metaSyncToken", "syncToken"] {
      let later = try ask(#"{"\#(key)":"\#(new.token.rawValue)"}"#)
      #expect(later.contains(#""deleted":true"#) && !later.contains(#""zoneName":"Notes""#), "\(later)")
    }
    #expect(try server.post("zones/changes", #"{"metaSyncToken":"x"}"#).status == 400)
    #expect(try server.post("zones/changes", "{}", scope: "public").status == 400)
  }

  @Test func `the users whom the server knows are found by their record names`() async throws {
    let server = try await Self.server()
    let user = CloudServer.defaultUser
    func users(_ endpoint: String, _ body: String) throws -> String {
      let answer = try server.post(endpoint, body, scope: "public")
      #expect(answer.status == 200, "\(endpoint): \(answer.body)")
      return answer.body
    }
    let found = #"{"users":[{"lookupInfo":{"userRecordName":"\#(user)"},"userRecordName":"\#(user)"}]}"#
    let nobody = #"{"users":[]}"#
    let named = #"{"userRecordName":"\#(user)"}"#
    #expect(try users("users/discover", #"{"lookupInfos":[\#(named),\#(named),{"userRecordName":"_x"}]}"#) == found)
    #expect(try users("users/discover", #"{"lookupInfos":[{"emailAddress":"a@b.c"},{"phoneNumber":"1"}]}"#) == nobody)
    #expect(try users("users/discover", "{}") == nobody)
    #expect(try users("users/lookup/id", #"{"users":[\#(named)]}"#) == found)
    #expect(try users("users/lookup/email", #"{"users":[{"emailAddress":"a@b.c"}]}"#) == nobody)
    #expect(try users("users/lookup/contacts", #"{"contacts":[{}]}"#) == nobody)
    let all = HTTPRequest(
      method: "GET", origin: "http://127.0.0.1:1", path: "/database/1/iCloud.test/development/public/users/discover")
    guard case .respond(let answer) = server.answer(all) else { return }
    #expect(String(decoding: answer.body, as: UTF8.self) == found)
    for endpoint in ["users/discover", "users/lookup/id", "users/lookup/email", "users/lookup/contacts"] {
      #expect(try server.post(endpoint, "{}").status == 400)
    }
    #expect(try server.post("users/lookup/other", "{}", scope: "public").status == 404)
    let many = Array(repeating: named, count: 201).joined(separator: ",")
    #expect(try server.post("users/discover", #"{"lookupInfos":[\#(many)]}"#, scope: "public").status == 400)
  }
}
