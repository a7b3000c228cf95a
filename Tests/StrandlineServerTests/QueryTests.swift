// Goal: records/query finds what CloudKit's would, in its order and page by page, and refuses by name what this server does
// not do. Method: bodies as clients send them, over the in-process transport, and the engine's own client.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct QueryTests {
  private static let zone = #""zoneID":{"zoneName":"Notes"}"#

  /// Five notes, each a second after the one before, and a task.
  private static func server(limits: ServerLimits = ServerLimits()) async throws -> CloudServer {
    let clock = StillClock()
    let server = CloudServer(
      inMemory: SystemEnvironment(fileSystem: POSIXFileSystem(), clock: clock, random: SeededRandom(seed: 7)),
      limits: limits)
    let client = server.client()
    try await client.createZone(notes)
    for number in 0..<5 {
      clock.advance(1_000)
      try await client.note(
        "n\(number)",
        [
          "title": .string("t\(4 - number)"), "rank": .int64(Int64(number / 2)),
          "tags": .list(.strings, ["all", .string("t\(number)")]),
          "above": .reference(Reference("n0", action: .deleteSelf)),
        ])
    }
    _ = try await client.one(CloudOperation(.create, name: "task", type: "Task", fields: ["title": "t"]))
    return server
  }

  private func names(_ server: CloudServer, _ query: String, _ more: String = "") throws -> [String] {
    let body = #"{\#(Self.zone),\#(more)"query":{"recordType":"Note"\#(query)}}"#
    let answer = try server.post("records/query", body)
    #expect(answer.status == 200, "\(answer.body)")
    return try WireJSON.decode(QueryReply.self, Array(answer.body.utf8)).records.compactMap(\.recordName)
  }

  private func refusal(_ server: CloudServer, _ body: String) throws -> String {
    let answer = try server.post("records/query", body)
    #expect((400..<500).contains(answer.status), "\(answer.body)")
    return answer.body
  }

  @Test func `the newest come first by the modified time, and a changed record moves there`() async throws {
    let server = try await Self.server()
    let client = server.client()
    var page = try await client.newestRecords(ofType: "Note", in: notes, limit: 2, after: nil)
    #expect(page.records.map(\.name) == ["n4", "n3"])
    #expect(page.records[0].fields["title"] == "t0" && page.records[0].system.changeTag != nil)
    page = try await client.newestRecords(ofType: "Note", in: notes, limit: 2, after: page.marker)
    #expect(page.records.map(\.name) == ["n2", "n1"])
    // The version behind which the next page begins stays the place, though its record is the newest now, and another is gone.
    _ = try await client.one(CloudOperation(.forceUpdate, name: "n1", type: "Note", fields: ["title": "again"]))
    let last = try await client.newestRecords(ofType: "Note", in: notes, limit: 2, after: page.marker)
    #expect(last.records.map(\.name) == ["n0"] && last.marker == nil)
    _ = try await client.one(CloudOperation(.forceDelete, name: "n4"))
    let rest = try await client.newestRecords(ofType: "Note", in: notes, limit: 9, after: nil)
    #expect(rest.records.map(\.name).sorted() == ["n0", "n1", "n2", "n3"])
    let tasks = try await client.newestRecords(ofType: "Task", in: notes, limit: 9, after: nil)
    #expect(tasks.records.map(\.name) == ["task"])
  }

  @Test func `filters and sorts mean what the store's own queries mean`() async throws {
    let server = try await Self.server()
    func filter(_ field: String, _ comparator: String, _ value: String) -> String {
      #","filterBy":[{"fieldName":"\#(field)","comparator":"\#(comparator)","fieldValue":\#(value)}]"#
    }
    let named = #""fieldValue":{"value":{"recordName":"n2"},"type":"REFERENCE"}"#
    for (query, expected) in [
      ("", ["n0", "n1", "n2", "n3", "n4"]),
      (#","sortBy":[{"fieldName":"title","ascending":true}]"#, ["n4", "n3", "n2", "n1", "n0"]),
      (#","sortBy":[{"fieldName":"rank","ascending":false},{"fieldName":"title"}]"#, ["n4", "n3", "n2", "n1", "n0"]),
      (#","sortBy":{"fieldName":"___createTime","ascending":false}"#, ["n4", "n3", "n2", "n1", "n0"]),
      (#","sortBy":[{"systemFieldName":"recordName","ascending":false}]"#, ["n4", "n3", "n2", "n1", "n0"]),
      (filter("title", "EQUALS", #"{"value":"t3","type":"STRING"}"#), ["n1"]),
      (filter("title", "NOT_EQUALS", #"{"value":"t3"}"#), ["n0", "n2", "n3", "n4"]),
      (filter("title", "BEGINS_WITH", #"{"value":"t"}"#), ["n0", "n1", "n2", "n3", "n4"]),
      (filter("title", "IN", #"{"value":["t0","t4"],"type":"STRING_LIST"}"#), ["n0", "n4"]),
      (filter("rank", "LESS_THAN", #"{"value":1,"type":"INT64"}"#), ["n0", "n1"]),
      (filter("rank", "GREATER_THAN_OR_EQUALS", #"{"value":1,"type":"INT64"}"#), ["n2", "n3", "n4"]),
      (filter("tags", "LIST_CONTAINS", #"{"value":"t2","type":"STRING"}"#), ["n2"]),
      (
        filter("above", "EQUALS", #"{"value":{"recordName":"n0"},"type":"REFERENCE"}"#), ["n0", "n1", "n2", "n3", "n4"]
      ),
      (filter("___modTime", "GREATER_THAN", #"{"value":1767225604000,"type":"TIMESTAMP"}"#), ["n4"]),
      (#","filterBy":{"systemFieldName":"recordName","comparator":"EQUALS",\#(named)}"#, ["n2"]),
    ] {
      #expect(try names(server, query) == expected, "\(query)")
    }
    let answer = try server.post(
      "records/query",
      #"{\#(Self.zone),"desiredKeys":["rank"],"numbersAsStrings":true,"resultsLimit":1,"query":{"recordType":"Note"}}"#)
    #expect(answer.body.contains(#""fields":{"rank":{"type":"INT64","value":"0"}}"#), "\(answer.body)")
    #expect(answer.body.contains(#""continuationMarker":""#))
  }

  @Test func `pages follow each other in every order, each record once`() async throws {
    let server = try await Self.server()
    for sort in ["", #","sortBy":[{"fieldName":"rank"}]"#, #","sortBy":[{"fieldName":"rank","ascending":false}]"#] {
      var found: [String] = []
      var marker = ""
      repeat {
        let after = marker.isEmpty ? "null" : "\"\(marker)\""
        let body =
          #"{\#(Self.zone),"resultsLimit":2,"continuationMarker":\#(after),"query":{"recordType":"Note"\#(sort)}}"#
        let reply = try WireJSON.decode(QueryReply.self, Array(try server.post("records/query", body).body.utf8))
        found += reply.records.compactMap(\.recordName)
        marker = reply.continuationMarker ?? ""
      } while !marker.isEmpty && found.count < 20
      #expect(found.sorted() == ["n0", "n1", "n2", "n3", "n4"], "\(sort): \(found)")
    }
  }

  @Test func `what is not done is refused by name`() async throws {
    let server = try await Self.server()
    func query(_ parts: String) -> String { #"{\#(Self.zone),"query":{"recordType":"Note"\#(parts)}}"# }
    let value = #""fieldValue":{"value":"t"}"#
    let list = #"{"value":[],"type":"STRING_LIST"}"#
    let many = Array(repeating: #"{"fieldName":"title","comparator":"EQUALS",\#(value)}"#, count: 101)
      .joined(separator: ",")
    for (body, words) in [
      (#"{\#(Self.zone)}"#, "query"),
      (#"{\#(Self.zone),"query":{}}"#, "recordType"),
      (#"{\#(Self.zone),"query":{"recordType":""}}"#, "recordType"),
      (#"{\#(Self.zone),"query":{"recordType":"None"}}"#, "Did not find record type: None"),
      (#"{"zoneID":{"zoneName":"Gone"},"query":{"recordType":"Note"}}"#, "ZONE_NOT_FOUND"),
      (#"{"zoneWide":true,"query":{"recordType":"Note"}}"#, "one zone at a time"),
      (query(#","sortBy":[{"fieldName":"none"}]"#), "'none' is not marked queryable"),
      (query(#","sortBy":[{}]"#), "fieldName"),
      (query(#","sortBy":[{"fieldName":"___modifiedBy"}]"#), "___modifiedBy"),
      (query(#","sortBy":[{"systemFieldName":"share"}]"#), "share"),
      (query(#","filterBy":[{"fieldName":"title",\#(value)}]"#), "comparator"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"NEAR",\#(value)}]"#), "NEAR"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"EQUALS"}]"#), "fieldValue"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"EQUALS","fieldValue":\#(list)}]"#), "list"),
      (query(#","filterBy":[\#(many)]"#), "at most 100"),
      (#"{\#(Self.zone),"continuationMarker":"x","query":{"recordType":"Note"}}"#, "continuation"),
    ] {
      let answer = try refusal(server, body)
      #expect(answer.contains(words), "\(body.prefix(200)): \(answer)")
    }
    // Tokens of the feed are no markers, and markers are no tokens.
    let feed = try await server.client().zoneChanges(in: notes, since: nil, limit: 2)
    _ = try refusal(
      server, #"{\#(Self.zone),"continuationMarker":"\#(feed.token.rawValue)","query":{"recordType":"Note"}}"#)
    let marker = try #require(
      try await server.client().newestRecords(ofType: "Note", in: notes, limit: 1, after: nil).marker)
    await #expect(throws: CloudError.self) {
      try await server.client().zoneChanges(in: notes, since: ChangeToken(rawValue: marker), limit: 2)
    }
  }

  @Test func `an answer ends at the server's bytes, and goes on behind them`() async throws {
    var limits = ServerLimits()
    limits.answerBytesMax = 1_500
    let server = try await Self.server(limits: limits)
    let client = server.client()
    var found: [String] = []
    var marker: String?
    repeat {
      let page = try await client.newestRecords(ofType: "Note", in: notes, limit: 200, after: marker)
      #expect(page.records.count < 5)
      found += page.records.map(\.name)
      marker = page.marker
    } while marker != nil && found.count < 20
    #expect(found == ["n4", "n3", "n2", "n1", "n0"])
  }

  @Test func `a page without fields has names, types, tags and times`() async throws {
    let server = try await Self.server()
    let page = try await server.client().zoneListing(in: notes, since: nil, limit: 200)
    #expect(!page.hasFields && page.changes.count == 6 && !page.moreComing)
    for case .saved(let record) in page.changes {
      #expect(record.fields.isEmpty && !record.type.isEmpty)
      #expect(record.system.changeTag != nil && record.system.modified != nil)
    }
    #expect(try await server.client().zoneChanges(in: notes, since: page.token, limit: 200).changes.isEmpty)
  }
}
