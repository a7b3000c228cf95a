// Goal: what a request asks for beside its records is done or refused by name, never passed over; and a body that is no
// JSON is refused whole, with its place. Method: bodies as other clients send them, over the in-process transport.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineServer
import Testing

@Suite(.timeLimit(.minutes(30)))
struct RequestTests {
  private static func server() async throws -> CloudServer {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note(
      "n", ["i": .int64(.max), "d": 1.5, "t": .date(milliseconds: 5), "l": .list(.int64s, [1, -2]), "s": "text"])
    return server
  }

  private static let zone = #""zoneID":{"zoneName":"Notes"}"#

  @Test func `numbersAsStrings shows whole numbers as text, and no others`() async throws {
    let server = try await Self.server()
    let update =
      #"{"operationType":"forceUpdate","record":{"recordName":"n","recordType":"Note","fields":{}}"#
    for (endpoint, body) in [
      ("records/lookup", #"{\#(Self.zone),"records":[{"recordName":"n"}],"numbersAsStrings":true}"#),
      ("records/modify", #"{\#(Self.zone),"numbersAsStrings":true,"operations":[\#(update)}]}"#),
      ("records/modify", #"{\#(Self.zone),"operations":[\#(update),"numbersAsStrings":true}]}"#),
      ("changes/zone", #"{"zones":[{\#(Self.zone)}],"numbersAsStrings":true}"#),
      ("changes/zone", #"{"zones":[{\#(Self.zone),"numbersAsStrings":true}]}"#),
      ("changes/zone", #"{"zones":[{\#(Self.zone),"numberAsStrings":true}]}"#),
    ] {
      let text = try server.post(endpoint, body).body
      #expect(text.contains(#""i":{"type":"INT64","value":"9223372036854775807"}"#), "\(endpoint): \(text)")
      #expect(text.contains(#""l":{"type":"INT64_LIST","value":["1","-2"]}"#), "\(text)")
      #expect(text.contains(#""d":{"type":"DOUBLE","value":1.5}"#) && text.contains(#""value":5}"#), "\(text)")
    }
    let plain = try server.post(
      "changes/zone", #"{"zones":[{\#(Self.zone),"numbersAsStrings":false}],"numbersAsStrings":true}"#)
    #expect(plain.body.contains(#""value":9223372036854775807}"#), "a zone's own key counts")
  }

  @Test func `desiredKeys of an operation, or of its record, count over those of the request`() async throws {
    let server = try await Self.server()
    let record = #""recordName":"n","recordType":"Note","fields":{}"#
    func shown(_ operation: String, _ more: String = "") throws -> [String] {
      let body = #"{\#(Self.zone),\#(more)"operations":[{"operationType":"forceUpdate",\#(operation)}]}"#
      let answer = try server.post("records/modify", body).body
      let reply = try WireJSON.decode(RecordsReply.self, Array(answer.utf8))
      return try #require(reply.records.first?.fields).keys.sorted()
    }
    #expect(try shown(#""record":{\#(record)},"desiredKeys":["s"]"#) == ["s"])
    #expect(try shown(#""record":{\#(record)},"desiredKeys":["s","i","none"]"#, #""desiredKeys":[],"#) == ["i", "s"])
    #expect(try shown(#""record":{\#(record),"desiredKeys":[]}"#) == [])
    #expect(try shown(#""record":{\#(record)}"#, #""desiredKeys":["d"],"#) == ["d"])
    #expect(try shown(#""record":{\#(record)}"#).count == 5)
  }

  @Test(arguments: [
    #""createShortGUID":true"#, #""forRecord":{"recordName":"n"}"#, #""publicPermission":"READ_ONLY""#,
    #""participants":[]"#,
  ])
  func `what needs sharing is refused by the key's name`(_ key: String) async throws {
    let server = try await Self.server()
    let record = #"{"recordName":"new","recordType":"Note",\#(key)}"#
    let answer = try server.post(
      "records/modify", #"{\#(Self.zone),"operations":[{"operationType":"create","record":\#(record)}]}"#)
    let name = try #require(key.split(separator: "\"").first)
    #expect(answer.status == 200 && answer.body.contains(#""serverErrorCode":"BAD_REQUEST""#))
    #expect(answer.body.contains("the key '\(name)'"), "\(answer.body)")
    #expect(try server.record("new", zone: "Notes", in: database) == nil)
  }

  @Test func `keys that say nothing, or that CloudKit has not, are passed over`() async throws {
    let server = try await Self.server()
    let record =
      #"{"recordName":"new","recordType":"Note","createShortGUID":false,"forRecord":null,"zoneID":{"zoneName":"Other"},"x":[{}]}"#
    let answer = try server.post(
      "records/modify",
      #"{\#(Self.zone),"zoneWide":false,"operations":[{"operationType":"create","record":\#(record),"y":1}]}"#)
    #expect(!answer.body.contains("serverErrorCode"), "\(answer.body)")
    #expect(try server.record("new", zone: "Notes", in: database) != nil)
  }

  @Test func `getCurrentSyncToken brings the zone's token, from which only later changes come`() async throws {
    let server = try await Self.server()
    let body = #"{\#(Self.zone),"records":[{"recordName":"n"}]}"#
    let answer = try server.post("records/lookup", body, query: "getCurrentSyncToken=true&remapEnums=true").body
    let token = try #require(try WireJSON.decode(RecordsReply.self, Array(answer.utf8)).syncToken)
    let save = #"{"operationType":"create","record":{"recordName":"m","recordType":"Note"}}"#
    let saved = try server.post(
      "records/modify", #"{\#(Self.zone),"operations":[\#(save)]}"#, query: "getCurrentSyncToken=true"
    ).body
    let after = try #require(try WireJSON.decode(RecordsReply.self, Array(saved.utf8)).syncToken)
    func names(_ token: String) throws -> [String?] {
      try server.pages(#"{"zones":[{\#(Self.zone),"syncToken":"\#(token)"}]}"#).first?.records?.map(\.recordName) ?? []
    }
    #expect(try names(token) == ["m"])
    #expect(try names(after) == [])
    #expect(!(try server.post("records/lookup", body).body.contains("syncToken")))
    let refused = try server.post("records/lookup", #"{"records":[]}"#, query: "getCurrentSyncToken=true")
    #expect(refused.status == 400)
    #expect(refused.body.contains("syncToken operations supported only in SyncZone"))
  }

  @Test func `encrypted values come back with the type that they were sent with`() async throws {
    let server = try await Self.server()
    let fields =
      #"{"b":{"type":"ENCRYPTED_BYTES","value":"AQI="},"t":{"isEncrypted":true,"type":"STRING","value":"s"}}"#
    let record = #"{"recordName":"e","recordType":"Secret","fields":\#(fields)}"#
    let saved = try server.post(
      "records/modify", #"{\#(Self.zone),"operations":[{"operationType":"create","record":\#(record)}]}"#)
    #expect(saved.body.contains("\"fields\":" + fields), "\(saved.body)")
    let found = try server.post("records/lookup", #"{\#(Self.zone),"records":[{"recordName":"e"}]}"#)
    #expect(found.body.contains("\"fields\":" + fields), "\(found.body)")
    #expect(
      try server.record("e", zone: "Notes", in: database)?.fields == [
        "b": .encrypted(.bytes([1, 2])), "t": .encrypted("s"),
      ])
  }

  /// Bodies that are no JSON by RFC 8259, with a part of what is said of them.
  private static let bad: [(body: [UInt8], words: String)] = [
    (Array(#"{"records":[],}"#.utf8), "line 1, column 15: expected a key in double quotes"),
    (Array("{\"records\":[],\n\"records\":[]}".utf8), "line 2, column 1: the key 'records' occurs twice"),
    ([0xEF, 0xBB, 0xBF] + Array("{}".utf8), "line 1, column 1: "),
    ([UInt8]("{\"records\":[]}".data(using: .utf16LittleEndian) ?? Data()), "line 1, column 2: "),
    ([0xFF, 0xFE] + [UInt8]("{}".data(using: .utf16LittleEndian) ?? Data()), "line 1, column 1: "),
    (Array(#"{"records":[{"recordName":""#.utf8) + [0xC3, 0x28] + Array("\"}]}".utf8), "records[0].recordName: "),
    (Array(#"{"records":[{"recordName":""#.utf8) + [0xC0, 0x80] + Array("\"}]}".utf8), "records[0].recordName: "),
    (Array(#"{"records":[{"recordName":""#.utf8) + [0xED, 0xA0, 0x80] + Array("\"}]}".utf8), "line 1, column 28: "),
    (Array(#"{"records":[{"recordName":"\udc00"}]}"#.utf8), "half a surrogate pair"),
    (Array(#"{"records":[{"recordName":"a\#u{1}"}]}"#.utf8), "records[0].recordName: "),
    (Array(#"{"records":[{"recordName":01}]}"#.utf8), "line 1, column "),
    (Array(#"{"records":[]}x"#.utf8), "line 1, column 15: expected the end of the text"),
    (Array(#"{'records':[]}"#.utf8), "line 1, column 2: "),
    (Array(#"{"records":NaN}"#.utf8), "line 1, column 12: records: "),
    (Array((#"{"x":"# + String(repeating: "[", count: 100_000)).utf8), "more than 512 lists and objects in each other"),
    (
      Array((#"{"records":[{"recordName":"n"}],"x":"# + String(repeating: "9", count: 400) + "e}").utf8),
      "line 1, column "
    ),
  ]

  @Test func `a body that is no JSON is refused whole, with line, column and path`() async throws {
    let server = try await Self.server()
    let path = "/database/1/iCloud.test/development/private/records/lookup"
    for (body, words) in Self.bad {
      guard
        case .respond(let response) = server.answer(HTTPRequest(origin: "http://127.0.0.1:1", path: path, body: body))
      else {
        Issue.record("no answer")
        continue
      }
      let text = String(decoding: response.body, as: UTF8.self)
      #expect(response.status == 400, "\(words)")
      #expect(
        text.contains(#""serverErrorCode":"BAD_REQUEST""#) && text.contains("the body cannot be read: line "), "\(text)"
      )
      #expect(text.contains(words), "\(words): \(text)")
    }
  }

  @Test func `a body cut at every byte is refused, and changes nothing`() async throws {
    let server = try await Self.server()
    let whole =
      #"{\#(Self.zone),"operations":[{"operationType":"create","record":{"recordName":"cut","recordType":"Note"}}]}"#
    for length in 1..<whole.utf8.count {
      #expect(try server.post("records/modify", String(whole.prefix(length))).status == 400)
    }
    #expect(try server.record("cut", zone: "Notes", in: database) == nil)
    #expect(try server.post("records/modify", whole).status == 200)
  }
}
