// Goal: records/query finds what CloudKit's would, in its order and page by page, and refuses by name what this server does
// not do. Method: bodies as clients send them, over the in-process transport, and the engine's own client.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Synchronization
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
      (filter("title", "NOT_IN", #"{"value":["t0","t4"],"type":"STRING_LIST"}"#), ["n1", "n2", "n3"]),
      (filter("title", "NOT_BEGINS_WITH", #"{"value":"t4"}"#), ["n1", "n2", "n3", "n4"]),
      (filter("rank", "LESS_THAN_OR_EQUALS", #"{"value":1}"#), ["n0", "n1", "n2", "n3"]),
      (filter("rank", "GREATER_THAN", #"{"value":1}"#), ["n4"]),
      (filter("tags", "LIST_CONTAINS", #"{"value":"t2","type":"STRING"}"#), ["n2"]),
      (filter("tags", "NOT_LIST_CONTAINS", #"{"value":"t2"}"#), ["n0", "n1", "n3", "n4"]),
      (filter("tags", "LIST_CONTAINS_ANY", #"{"value":["t1","t3"]}"#), ["n1", "n3"]),
      (filter("tags", "NOT_LIST_CONTAINS_ANY", #"{"value":["t1","t3"]}"#), ["n0", "n2", "n4"]),
      (filter("tags", "LIST_CONTAINS_ALL", #"{"value":["all","t1"]}"#), ["n1"]),
      (filter("tags", "NOT_LIST_CONTAINS_ALL", #"{"value":["all","t1"]}"#), ["n0", "n2", "n3", "n4"]),
      (filter("tags", "LIST_MEMBER_BEGINS_WITH", #"{"value":"t3"}"#), ["n3"]),
      (filter("tags", "NOT_LIST_MEMBER_BEGINS_WITH", #"{"value":"t3"}"#), ["n0", "n1", "n2", "n4"]),
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
    let place = #""fieldValue":{"value":{"latitude":1,"longitude":1},"type":"LOCATION"}"#
    let list = #"{"value":[],"type":"STRING_LIST"}"#
    let many = Array(repeating: #"{"fieldName":"title","comparator":"EQUALS",\#(value)}"#, count: 101)
      .joined(separator: ",")
    for (body, words) in [
      (#"{\#(Self.zone)}"#, "query"),
      (#"{\#(Self.zone),"query":{}}"#, "recordType"),
      (#"{\#(Self.zone),"query":{"recordType":""}}"#, "recordType"),
      (#"{\#(Self.zone),"query":{"recordType":"None"}}"#, "Did not find record type: None"),
      (#"{"zoneID":{"zoneName":"Gone"},"query":{"recordType":"Note"}}"#, "ZONE_NOT_FOUND"),
      (query(#","sortBy":[{"fieldName":"none"}]"#), "'none' is not marked queryable"),
      (query(#","sortBy":[{}]"#), "fieldName"),
      (query(#","sortBy":[{"fieldName":"___other"}]"#), "___other"),
      (query(#","sortBy":[{"systemFieldName":"other"}]"#), "other"),
      (query(#","filterBy":[{"fieldName":"title",\#(value)}]"#), "comparator"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"NEAR",\#(value)}]"#), "NEAR"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"NEAR",\#(place)}]"#), "distance"),
      (query(#","filterBy":[{"fieldName":"title","comparator":"LIKE",\#(value)}]"#), "LIKE"),
      (query(#","filterBy":[{"comparator":"EQUALS",\#(value)}]"#), "fieldName"),
      (query(#","filterBy":[{"comparator":"CONTAINS_ANY_TOKENS","fieldValue":{"value":" -"}}]"#), "words"),
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

  @Test func `an order names each field once, and few of them`() async throws {
    let server = try await Self.server()
    func sorted(_ fields: [String]) -> String {
      let sorts = fields.map { #"{"fieldName":"\#($0)"}"# }.joined(separator: ",")
      return #"{\#(Self.zone),"query":{"recordType":"Note","sortBy":[\#(sorts)]}}"#
    }
    #expect(try refusal(server, sorted(["title", "rank", "title"])).contains("'title' twice"))
    #expect(try refusal(server, sorted((0..<17).map { "f\($0)" })).contains("at most 16 sorts"))
  }

  /// The sum is some hundred thousand steps, which take a moment. The product is ten thousand millions in each query: no limit
  /// of a test's time is long enough for it.
  @Test func `lists are compared at the cost of their sum`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    let count = 100_000
    try await client.note("n0", ["all": .list(.int64s, (0..<count).map { .int64(Int64($0)) }), "one": 0])
    for number in 1..<4 {
      try await client.note("n\(number)", ["all": .list(.int64s, [7]), "one": .int64(Int64(number))])
    }
    func query(_ field: String, _ comparator: String, _ values: [Int]) -> String {
      let value = #"{"value":[\#(values.map(String.init).joined(separator: ","))],"type":"INT64_LIST"}"#
      return #","filterBy":[{"fieldName":"\#(field)","comparator":"\#(comparator)","fieldValue":\#(value)}]"#
    }
    let none = (0..<count).map { -1 - $0 }
    #expect(try names(server, query("all", "LIST_CONTAINS_ANY", none)) == [])
    #expect(try names(server, query("all", "NOT_LIST_CONTAINS_ANY", none)).count == 4)
    #expect(try names(server, query("all", "LIST_CONTAINS_ALL", (0..<count).reversed())) == ["n0"])
    #expect(try names(server, query("all", "NOT_LIST_CONTAINS_ALL", (0..<count).reversed())).count == 3)
    #expect(try names(server, query("all", "LIST_CONTAINS_ANY", none + [count - 1])) == ["n0"])
    #expect(try names(server, query("one", "IN", none + [2])) == ["n2"])
    #expect(try names(server, query("one", "NOT_IN", none + [2])).count == 3)
  }

  @Test func `what records are sorted by is kept up to the bytes of an answer, and pages are shorter`() async throws {
    var limits = ServerLimits()
    limits.answerBytesMax = 3_500
    let server = CloudServer.still(limits: limits)
    let client = server.client()
    try await client.createZone(notes)
    for number in 0..<20 {
      // In an order that is neither that of the names nor its reverse.
      let text = "\((number * 7) % 20 + 10)" + String(repeating: "x", count: 998)
      try await client.note("n\(number)", ["text": .string(text), "list": .list(.strings, [.string(text)])])
    }
    let expected = (0..<20).sorted { $0 * 7 % 20 < $1 * 7 % 20 }.map { "n\($0)" }
    for isAscending in [true, false] {
      var (found, pages, marker) = ([String](), 0, "null")
      while pages < 30 {
        let sort = #""sortBy":[{"fieldName":"text","ascending":\#(isAscending)}]"#
        let body =
          #"{\#(Self.zone),"desiredKeys":[],"continuationMarker":\#(marker),"query":{"recordType":"Note",\#(sort)}}"#
        let reply = try WireJSON.decode(QueryReply.self, Array(try server.post("records/query", body).body.utf8))
        // Three texts are kept, and the last of them says that there is more.
        #expect((1...3).contains(reply.records.count), "\(reply.records.count)")
        found += reply.records.compactMap(\.recordName)
        pages += 1
        guard let next = reply.continuationMarker else { break }
        marker = "\"\(next)\""
      }
      #expect(found == (isAscending ? expected : expected.reversed()), "\(found)")
    }
    // A list has no order, and is not kept.
    #expect(try names(server, #","sortBy":[{"fieldName":"list"}]"#, #""desiredKeys":[],"#).count > 3)
  }

  @Test func `a query that takes too long ends`() async throws {
    let clock = PacedClock()
    let server = CloudServer(
      inMemory: SystemEnvironment(fileSystem: POSIXFileSystem(), clock: clock, random: SeededRandom(seed: 7)))
    let client = server.client()
    try await client.createZone(notes)
    for number in 0..<50 { try await client.note("n\(number)") }
    #expect(try names(server, #","sortBy":[{"fieldName":"title"}]"#).count == 50)
    // From here on each look at the clock shows a second more.
    clock.pace.withLock { $0 = 1_000_000_000 }
    let body = #"{\#(Self.zone),"query":{"recordType":"Note","sortBy":[{"fieldName":"title"}]}}"#
    let answer = try server.post("records/query", body)
    #expect(answer.status == 503 && answer.body.contains("TRY_AGAIN_LATER"), "\(answer.body)")
    #expect(answer.body.contains("takes more than"), "\(answer.body)")
  }

  @Test func `an order by distance begins with the nearest, and records without a place come last`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    for (name, place) in [
      ("paris", (48.85, 2.35)), ("rome", (41.9, 12.5)), ("oslo", (59.9, 10.75)), ("fiji", (-17.8, 178)),
    ] {
      try await client.note(name, ["at": .location(Location(latitude: place.0, longitude: place.1))])
    }
    try await client.note("nowhere", ["title": "t"])
    func order(_ latitude: Double, _ longitude: Double, _ more: String = "") throws -> [String] {
      let place = #"{"latitude":\#(latitude),"longitude":\#(longitude)}"#
      return try names(server, #","sortBy":[{"fieldName":"at","relativeLocation":\#(place)\#(more)}]"#)
    }
    #expect(try order(41.9, 12.5) == ["rome", "paris", "oslo", "fiji", "nowhere"])
    #expect(try order(59.9, 10.75, #","ascending":true"#) == ["oslo", "paris", "rome", "fiji", "nowhere"])
    #expect(try order(59.9, 10.75, #","ascending":false"#) == ["fiji", "rome", "paris", "oslo", "nowhere"])
    // Over the date line.
    #expect(try order(-17, -179).first == "fiji")
    let wrong =
      #"{\#(Self.zone),"query":{"recordType":"Note","sortBy":[{"fieldName":"title","relativeLocation":{"latitude":1,"longitude":1}}]}}"#
    #expect(try refusal(server, wrong).contains("LOCATION"))
    let far =
      #"{\#(Self.zone),"query":{"recordType":"Note","sortBy":[{"fieldName":"at","relativeLocation":{"latitude":91,"longitude":1}}]}}"#
    #expect(try refusal(server, far).contains("latitude"))
  }

  @Test func `NEAR finds what is within so many metres`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    for (name, place) in [("paris", (48.85, 2.35)), ("versailles", (48.8, 2.13)), ("rome", (41.9, 12.5))] {
      try await client.note(name, ["at": .location(Location(latitude: place.0, longitude: place.1))])
    }
    try await client.note("nowhere", ["title": "t"])
    func near(_ metres: Double) throws -> [String] {
      let value = #""fieldValue":{"value":{"latitude":48.85,"longitude":2.35},"type":"LOCATION"}"#
      return try names(
        server, #","filterBy":{"fieldName":"at","comparator":"NEAR","distance":\#(metres),\#(value)}"#)
    }
    #expect(try near(0) == ["paris"])
    #expect(try near(17_100) == ["paris", "versailles"])
    // 1,106 km from Paris to Rome.
    #expect(try near(1_100_000) == ["paris", "versailles"])
    #expect(try near(1_115_000) == ["paris", "rome", "versailles"])
  }

  @Test func `a search for words looks through one field or all, whatever their letters`() async throws {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    try await client.note("a", ["title": "Milk, and bread", "body": "from the shop", "count": .int64(3)])
    try await client.note("b", ["title": "MILK", "body": "the cow's", "tags": .list(.strings, ["Bread", "shop now"])])
    try await client.note("c", ["title": "milkshake"])
    func search(_ comparator: String, _ words: String, _ field: String? = nil) throws -> [String] {
      let place = field.map { #""fieldName":"\#($0)","# } ?? ""
      return try names(
        server, #","filterBy":{\#(place)"comparator":"\#(comparator)","fieldValue":{"value":"\#(words)"}}"#)
    }
    #expect(try search("CONTAINS_ALL_TOKENS", "milk") == ["a", "b"])
    #expect(try search("CONTAINS_ALL_TOKENS", "Bread milk") == ["a", "b"])
    #expect(try search("CONTAINS_ALL_TOKENS", "bread milk", "title") == ["a"])
    #expect(try search("CONTAINS_ANY_TOKENS", "bread milk", "title") == ["a", "b"])
    #expect(try search("CONTAINS_ANY_TOKENS", "now, cow", "tags") == ["b"])
    #expect(try search("CONTAINS_ANY_TOKENS", "3") == [])
  }

  @Test func `who made a record, and its parent, can be asked for`() async throws {
    let server = try await Self.server()
    let client = server.client()
    var child = CloudOperation(.create, name: "child", type: "Note", fields: ["title": "t"])
    child.parent = "n0"
    _ = try await client.one(child)
    func filter(_ place: String, _ comparator: String, _ value: String) -> String {
      #","filterBy":{\#(place),"comparator":"\#(comparator)","fieldValue":{"value":\#(value)}}"#
    }
    let all = ["child", "n0", "n1", "n2", "n3", "n4"]
    let user = CloudServer.defaultUser
    for (query, expected) in [
      (filter(#""systemFieldName":"createdUserRecordName""#, "EQUALS", #"{"recordName":"\#(user)"}"#), all),
      (filter(#""fieldName":"___modifiedBy""#, "EQUALS", #""\#(user)""#), all),
      (filter(#""systemFieldName":"modifiedUserRecordName""#, "NOT_EQUALS", #""\#(user)""#), []),
      (filter(#""systemFieldName":"parent""#, "EQUALS", #"{"recordName":"n0"}"#), ["child"]),
      (filter(#""systemFieldName":"share""#, "EQUALS", #"{"recordName":"n0"}"#), []),
      (#","sortBy":[{"systemFieldName":"parent","ascending":false}]"#, ["child", "n0", "n1", "n2", "n3", "n4"]),
    ] {
      #expect(try names(server, query) == expected, "\(query)")
    }
  }

  @Test func `zoneWide asks all zones of a database, page by page`() async throws {
    let server = try await Self.server()
    let client = server.client()
    try await client.createZone(ZoneID("More"))
    for zone in [ZoneID("More"), ZoneID(Names.defaultZone)] {
      for name in ["n0", "m"] {
        _ = try await client.one(CloudOperation(.create, name: name, type: "Note", fields: ["title": "t"]), in: zone)
      }
    }
    var found: [String] = []
    var marker = "null"
    for _ in 0..<9 {
      let body = #"{"zoneWide":true,"resultsLimit":2,"continuationMarker":\#(marker),"query":{"recordType":"Note"}}"#
      let reply = try WireJSON.decode(QueryReply.self, Array(try server.post("records/query", body).body.utf8))
      found += reply.records.map { "\($0.zoneID?.zoneName ?? "-")/\($0.recordName ?? "-")" }
      guard let next = reply.continuationMarker else { break }
      marker = "\"\(next)\""
    }
    #expect(found.count == 9 && Set(found).count == 9, "\(found)")
    #expect(Set(found).isSuperset(of: ["More/n0", "Notes/n0", "_defaultZone/n0", "More/m", "_defaultZone/m"]))
    #expect(found.map { $0.split(separator: "/")[1] } == ["m", "m", "n0", "n0", "n0", "n1", "n2", "n3", "n4"])
    // A zone that is named counts.
    let one = #"{"zoneWide":true,"zoneID":{"zoneName":"More"},"query":{"recordType":"Note"}}"#
    let reply = try WireJSON.decode(QueryReply.self, Array(try server.post("records/query", one).body.utf8))
    #expect(reply.records.compactMap(\.recordName) == ["m", "n0"])
  }

  @Test func `a query brings the zone's token if it is asked to`() async throws {
    let server = try await Self.server()
    let body = #"{\#(Self.zone),"query":{"recordType":"Note"}}"#
    let answer = try server.post("records/query", body, query: "getCurrentSyncToken=true")
    let token = try #require(answer.body.split(separator: #""syncToken":""#).last?.split(separator: "\"").first)
    let client = server.client()
    let page = try await client.zoneChanges(in: notes, since: ChangeToken(rawValue: String(token)), limit: 9)
    #expect(page.changes.isEmpty && page.token.rawValue == String(token))
    #expect(try !server.post("records/query", body).body.contains("syncToken"))
    let inDefault = try server.post(
      "records/query", #"{"query":{"recordType":"Note"}}"#, query: "getCurrentSyncToken=true")
    #expect(inDefault.status == 400 && inDefault.body.contains("SyncZone"))
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
