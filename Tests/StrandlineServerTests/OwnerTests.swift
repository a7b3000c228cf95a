// Goal: a request that names another user's zone neither reads nor writes the own zone of that name. Method: every endpoint
// that takes a zone's ID, with owners of every kind.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct OwnerTests {
  /// Each endpoint with a zone's ID in its request; the refusal stands in the answer's item or is the whole answer.
  private static func requests(_ zone: String) -> [(endpoint: String, body: String)] {
    [
      (
        "records/modify",
        #"{"zoneID":\#(zone),"operations":[{"operationType":"forceUpdate","record":{"recordName":"n","recordType":"Note"}}]}"#
      ), ("records/lookup", #"{"zoneID":\#(zone),"records":[{"recordName":"n"}]}"#),
      ("changes/zone", #"{"zones":[{"zoneID":\#(zone)}]}"#), ("zones/lookup", #"{"zones":[\#(zone)]}"#),
    ]
  }

  private static func server() async throws -> CloudServer {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("n")
    return server
  }

  @Test func `another user's zone in the private database does not exist`() async throws {
    let server = try await Self.server()
    let before = try server.record("n", zone: "Notes", in: database)
    for (endpoint, body) in Self.requests(#"{"zoneName":"Notes","ownerRecordName":"_stranger"}"#) {
      let (status, text) = try server.post(endpoint, body)
      #expect(text.contains(#""serverErrorCode":"ZONE_NOT_FOUND""#), "\(endpoint): \(text)")
      #expect(status == (endpoint.hasPrefix("records/") ? 404 : 200), "\(endpoint)")
      #expect(!text.contains("\"recordChangeTag\"") && !text.contains("\"syncToken\""), "\(endpoint): \(text)")
    }
    for type in ["create", "delete"] {
      let zone = #"{"zoneID":{"zoneName":"Notes","ownerRecordName":"_stranger"}}"#
      let (_, text) = try server.post(
        "zones/modify", #"{"operations":[{"operationType":"\#(type)","zone":\#(zone)}]}"#)
      #expect(text.contains(#""serverErrorCode":"ZONE_NOT_FOUND""#), "\(text)")
    }
    #expect(try server.record("n", zone: "Notes", in: database) == before)
  }

  @Test func `the own zone has the user's name, the placeholder or none as its owner`() async throws {
    let server = try await Self.server()
    for owner in [#""""#, #""__defaultOwner__""#, #""\#(CloudServer.defaultUser)""#, "null"] {
      for (endpoint, body) in Self.requests(#"{"zoneName":"Notes","ownerRecordName":\#(owner)}"#) {
        let (status, text) = try server.post(endpoint, body)
        #expect(status == 200 && !text.contains("serverErrorCode"), "\(endpoint) \(owner): \(text)")
      }
    }
  }

  @Test func `a zone of the shared database needs its owner, and none is shared`() async throws {
    let server = try await Self.server()
    for (endpoint, body) in Self.requests(#"{"zoneName":"Notes"}"#) {
      let (_, text) = try server.post(endpoint, body, scope: "shared")
      #expect(text.contains(#""serverErrorCode":"BAD_REQUEST""#), "\(endpoint): \(text)")
      #expect(text.contains("zoneID needs to have ownerRecordName field for calls to sharedb"), "\(endpoint): \(text)")
    }
    for (endpoint, body) in Self.requests(#"{"zoneName":"Notes","ownerRecordName":"_stranger"}"#) {
      let (_, text) = try server.post(endpoint, body, scope: "shared")
      #expect(text.contains(#""serverErrorCode":"ZONE_NOT_FOUND""#), "\(endpoint): \(text)")
    }
    let (_, text) = try server.post(
      "changes/zone", #"{"zones":[{"zoneID":{"zoneName":"Notes","ownerRecordName":"_owner"},"reverse":true}]}"#,
      scope: "shared")
    #expect(text.contains("Reverse sync of share db is unsupported"), "\(text)")
  }

  @Test func `users-caller shows the user in a list and bare`() throws {
    let server = CloudServer.still()
    let path = "/database/1/iCloud.test/development/public/users/caller"
    guard
      case .respond(let response) = server.answer(
        HTTPRequest(method: "GET", origin: "http://127.0.0.1:1", path: path))
    else {
      Issue.record("no answer")
      return
    }
    let user = CloudServer.defaultUser
    #expect(
      String(decoding: response.body, as: UTF8.self)
        == #"{"userRecordName":"\#(user)","users":[{"userRecordName":"\#(user)"}]}"#)
  }
}
