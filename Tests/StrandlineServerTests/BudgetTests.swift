// Goal: no request makes the server build an answer whose size the request chooses, and every client that follows the
// protocol gets all that there is all the same. Method: requests as a client's JSON over the in-process transport, with a
// small budget; the length of each answer is compared with it.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

extension CloudServer {
  /// The status and the body of an answer to a request of the private database.
  func post(
    _ endpoint: String, _ body: String, scope: String = "private", query: String = ""
  ) throws -> (status: Int, body: String) {
    let path = "/database/1/iCloud.test/development/\(scope)/\(endpoint)"
    let request = HTTPRequest(origin: "http://127.0.0.1:1", path: path, query: query, body: Array(body.utf8))
    guard case .respond(let response) = answer(request) else { throw CloudError(.networkError, reason: "no answer") }
    return (response.status, String(decoding: response.body, as: UTF8.self))
  }

  /// The pages that an answer to changes/zone brings.
  func pages(_ body: String) throws -> [ZoneChangesReply.Zone] {
    try WireJSON.decode(ZoneChangesReply.self, Array(try post("changes/zone", body).body.utf8)).zones
  }
}

@Suite(.timeLimit(.minutes(30)))
struct BudgetTests {
  /// Zones with ten records of a thousand bytes each, and some, and the budget.
  private static func server(
    zones: Int = 1, _ change: (inout ServerLimits) -> Void = { _ in }
  ) async throws -> CloudServer {
    var limits = ServerLimits()
    limits.answerBytesMax = 3_500
    change(&limits)
    let server = CloudServer.still(limits: limits)
    let client = server.client()
    for zone in 0..<zones {
      let id = ZoneID("Z\(zone)")
      try await client.createZone(id)
      let operations = (0..<10).map {
        CloudOperation(
          .create, name: "z\(zone)-\($0)", type: "Note", fields: ["t": .string(String(repeating: "x", count: 1000))])
      }
      _ = try await client.modify(operations, in: id, atomic: false)
    }
    return server
  }

  private static func entry(_ zone: String, _ token: String? = nil, _ more: String = "") -> String {
    #"{"zoneID":{"zoneName":"\#(zone)"}\#(token.map { #","syncToken":"\#($0)""# } ?? "")\#(more)}"#
  }

  @Test func `a zone that a request names forty times has one page`() async throws {
    let server = try await Self.server()
    let once = try server.post("changes/zone", #"{"zones":[\#(Self.entry("Z0"))]}"#)
    let entries = [String](repeating: Self.entry("Z0"), count: 40).joined(separator: ",")
    let often = try server.post("changes/zone", #"{"zones":[\#(entries)]}"#)
    #expect(often.status == 200 && often.body == once.body)
  }

  @Test func `a zone that a request names twice in different ways is refused, and the others are answered`()
    async throws
  {
    let server = try await Self.server(zones: 2)
    let token = try #require(try server.pages(#"{"zones":[\#(Self.entry("Z0"))]}"#).first?.syncToken)
    let zones = try server.pages(
      #"{"zones":[\#(Self.entry("Z0", token)),\#(Self.entry("Z1")),\#(Self.entry("Z0"))]}"#)
    #expect(zones.map(\.zoneID?.zoneName) == ["Z0", "Z1"])
    #expect(zones[0].error?.reason?.contains("more than once, and in different ways") == true)
    #expect(zones[1].records?.isEmpty == false)
  }

  @Test func `one budget holds for the pages of all zones, and a client gets everything all the same`() async throws {
    let server = try await Self.server(zones: 5)
    var tokens = [String?](repeating: nil, count: 5)
    var names: Set<String> = []
    var rounds = 0
    var isStarved = false
    while true {
      rounds += 1
      let entries = (0..<5).map { Self.entry("Z\($0)", tokens[$0]) }.joined(separator: ",")
      let (status, body) = try server.post("changes/zone", #"{"zones":[\#(entries)]}"#)
      #expect(status == 200)
      // One record may go beyond the budget, and each zone has its token.
      #expect(body.utf8.count < 3_500 + 1_500 + 5 * 400)
      let zones = try WireJSON.decode(ZoneChangesReply.self, Array(body.utf8)).zones
      try #require(zones.count == 5)
      for (index, zone) in zones.enumerated() {
        #expect(zone.error == nil)
        let new = (zone.records ?? []).compactMap(\.recordName)
        #expect(names.isDisjoint(with: new))
        names.formUnion(new)
        if zone.moreComing == true, new.isEmpty {
          isStarved = true
          // Nothing is skipped: the token is the one that was asked with, or stands for the beginning.
          if let asked = tokens[index] { #expect(zone.syncToken == asked) }
        }
        #expect(zone.syncToken?.isEmpty == false)
        tokens[index] = zone.syncToken
      }
      if zones.allSatisfy({ $0.moreComing != true }) { break }
      try #require(rounds < 50)
    }
    #expect(names.count == 50)
    #expect(isStarved)
  }

  @Test func `what a filter drops counts too, because it was read`() async throws {
    let server = try await Self.server()
    let page = try #require(
      try server.pages(#"{"zones":[\#(Self.entry("Z0", nil, #","desiredRecordTypes":["Other"]"#))]}"#).first)
    #expect(page.records?.isEmpty == true && page.moreComing == true)
    let next = try #require(
      try server.pages(#"{"zones":[\#(Self.entry("Z0", page.syncToken))]}"#).first?.records?.first?.recordName)
    #expect(next != "z0-0" && next != "z0-9")
  }

  @Test func `more zones than the limit are refused with the number`() async throws {
    let server = try await Self.server()
    let entries = (0..<1_000).map { Self.entry("N\($0)") }.joined(separator: ",")
    let changes = try server.post("changes/zone", #"{"zones":[\#(entries)]}"#)
    #expect(changes.status == 400 && changes.body.contains("1000 zones in one request; the limit is 200"))
    let ids = (0..<1_000).map { #"{"zoneName":"N\#($0)"}"# }.joined(separator: ",")
    let lookup = try server.post("zones/lookup", #"{"zones":[\#(ids)]}"#)
    #expect(lookup.status == 400 && lookup.body.contains("1000 zones in one request; the limit is 200"))
  }

  @Test func `a list of so many items that its message would fill the memory is read no further`() async throws {
    let server = try await Self.server()
    for (endpoint, key, item) in [
      ("records/modify", "operations", #"{"operationType":"create","record":{}}"#),
      ("records/lookup", "records", #"{"recordName":""}"#),
      ("changes/zone", "zones", #"{"zoneID":{}}"#), ("zones/lookup", "zones", "{}"),
    ] {
      let items = Array(repeating: item, count: 20_001).joined(separator: ",")
      let answer = try server.post(endpoint, #"{"zoneID":{"zoneName":"Z0"},"\#(key)":[\#(items)]}"#)
      #expect(
        answer.status == 400 && answer.body.contains("a list of more than 20000 items"), "\(endpoint): \(answer.body)")
    }
  }

  @Test func `a database takes so many zones, and no more`() async throws {
    let server = try await Self.server { $0.zonesMax = 2 }
    let client = server.client()
    try await client.createZone(ZoneID("Z1"))
    let refusal = await #expect(throws: CloudError.self) { try await client.createZone(ZoneID("Z2")) }
    #expect(refusal?.code == .limitExceeded)
    try await client.createZone(ZoneID("Z1"))
  }

  @Test func `a lookup of more than the budget is refused whole, and one record is always shown`() async throws {
    let server = try await Self.server { $0.answerBytesMax = 2_500 }
    func lookUp(_ count: Int) throws -> (status: Int, body: String) {
      let names = (0..<count).map { #"{"recordName":"z0-\#($0)"}"# }.joined(separator: ",")
      return try server.post("records/lookup", #"{"zoneID":{"zoneName":"Z0"},"records":[\#(names)]}"#)
    }
    let refused = try lookUp(10)
    #expect(refused.status == 413)
    #expect(refused.body.contains(#""serverErrorCode":"LIMIT_EXCEEDED""#) && refused.body.contains("10 records"))
    #expect(try lookUp(1).status == 200)
    // The same name, again and again.
    let same = [String](repeating: #"{"recordName":"z0-1"}"#, count: 200).joined(separator: ",")
    let often = try server.post("records/lookup", #"{"zoneID":{"zoneName":"Z0"},"records":[\#(same)]}"#)
    #expect(often.status == 413)
  }

  @Test func `a name has so many Unicode scalars, not so many characters of any length`() async throws {
    let server = try await Self.server()
    let long = "e" + String(repeating: "\u{301}", count: 10_000)
    #expect(long.count == 1)
    let zone = try server.post(
      "zones/modify", #"{"operations":[{"operationType":"create","zone":{"zoneID":{"zoneName":"\#(long)"}}}]}"#)
    #expect(zone.body.contains("a zone's name has 1 to 255 characters"))
    let result = try await server.client().one(CloudOperation(.create, name: long, type: "Note"), in: ZoneID("Z0"))
    #expect(result?.code == .badRequest)
  }
}
