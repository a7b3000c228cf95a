// Goal: for any answer the client returns results or an error that says what was wrong, record by record where possible,
// and never traps. Method: answers from a script, among them the observed replies of the live service.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import Testing

@Suite(.timeLimit(.minutes(30)))
struct AnswerTests {
  private func save(_ name: String) -> CloudOperation { CloudOperation(.create, name: name, type: "Note") }

  @Test func `results are matched by name; a missing or doubled one fails that record alone`() async throws {
    let client = WebServicesDatabase.over(
      ScriptedTransport(
        """
        {"records":[{"recordName":"d","deleted":true},{"recordName":"stranger","deleted":true},
         {"recordName":"twice","recordType":"Note","recordChangeTag":"1"},
         {"recordName":"b","serverErrorCode":"CONFLICT","reason":"client oplock error updating record"},
         {"recordName":"odd","serverErrorCode":"BRAND_NEW_CODE","retryAfter":"7","uuid":5},
         {"recordName":"a","recordType":"Note","recordChangeTag":"1e","modified":{"timestamp":5.0,"userRecordName":"_u"}},
         {"recordName":"untagged","recordType":"Note"},{"deleted":true},
         {"recordName":"twice","serverErrorCode":"CONFLICT"},
         {"recordName":"bent","recordType":5,"recordChangeTag":"1"}]}
        """))
    let names = ["a", "b", "twice", "odd", "untagged", "bent", "missing"]
    let results = try await client.modify(
      names.map(save) + [CloudOperation(.forceDelete, name: "d")], in: notes, atomic: false)
    #expect(Set(results.keys) == Set(texts: names + ["d"]))
    #expect(results["a"]?.record?.system.changeTag == "1e")
    #expect(results["a"]?.record?.system.modified == ServerTimestamp(milliseconds: 5, user: "_u"))
    #expect(results["b"]?.error?.code == .conflict)
    #expect(results["d"]?.isDeleted == true)
    #expect(results["odd"]?.error?.code.rawValue == "BRAND_NEW_CODE")
    #expect(results["odd"]?.error?.retryAfter == 7)
    for name in ["twice", "untagged", "bent", "missing"] {
      #expect(results[name]?.error?.code == .unexpectedServerResponse, "\(name)")
    }
  }

  @Test func `an answer that cannot be read is an error with its first bytes`() async throws {
    let bodies = [
      "", " ", "<html><title>Sign in to Free WiFi</title>", "{", "[]", "null", "5", "{}", "{\"records\":5}",
      "{\"records\":[5]}", "{\"records\":[{\"recordName\":{}}]}", "\u{0}\u{1}", "{\"records\":[",
      String(repeating: "[", count: 100_000), "{\"records\":[{\"recordName\":\"\\ud83c\"}]}", "{\"records\":NaN}",
    ]
    for body in bodies {
      let client = WebServicesDatabase.over(ScriptedTransport(body))
      let error = try await refusal { _ = try await client.modify([save("a")], in: notes, atomic: false) }
      #expect(error?.code == .unexpectedServerResponse, "\(body.prefix(40))")
      #expect(error?.httpStatus == 200)
      for ask: () async throws -> Void in [
        { _ = try await client.zones() }, { try await client.createZone(notes) }, { _ = try await client.user() },
        { _ = try await client.zoneChanges(in: notes, since: nil, limit: 1) },
        { _ = try await client.databaseChanges(since: nil, limit: 1) },
        { _ = try await client.lookup(["a"], in: notes) },
      ] { #expect(try await refusal(ask)?.code == .unexpectedServerResponse, "\(body.prefix(40))") }
    }
    let portal = WebServicesDatabase.over(ScriptedTransport("<html>\nSign in"))
    let error = try await refusal { _ = try await portal.zones() }
    #expect(error?.reason.contains("14 bytes that begin with '<html> Sign in'") == true)
  }

  @Test(arguments: [
    (503, "<html>", "SERVICE_UNAVAILABLE"), (500, "", "INTERNAL_ERROR"), (502, "x", "INTERNAL_ERROR"),
    (504, "", "INTERNAL_ERROR"), (429, "", "THROTTLED"), (413, "", "LIMIT_EXCEEDED"),
    (421, "", "AUTHENTICATION_REQUIRED"), (404, "<html>", "UNEXPECTED_SERVER_RESPONSE"),
    (403, "", "UNEXPECTED_SERVER_RESPONSE"), (302, "", "UNEXPECTED_SERVER_RESPONSE"),
    (100, "", "UNEXPECTED_SERVER_RESPONSE"), (599, "{\"a\":1}", "UNEXPECTED_SERVER_RESPONSE"),
    (400, "{\"serverErrorCode\":\"BAD_REQUEST\",\"reason\":\"no\"}", "BAD_REQUEST"),
    (413, "{\"serverErrorCode\":\"QUOTA_EXCEEDED\"}", "QUOTA_EXCEEDED"),
    (400, "{\"serverErrorCode\":\"ATOMIC_ERROR\",\"uuid\":\"u\"}", "ATOMIC_ERROR"),
    (200, "{\"serverErrorCode\":\"ACCESS_DENIED\"}", "ACCESS_DENIED"),
    (412, "{\"serverErrorCode\":\"SOMETHING_NEW\"}", "SOMETHING_NEW"),
    (400, "{\"extensionErrorCode\":\"E\"}", "E"),
  ])
  func `a whole refusal keeps its code and status`(_ status: Int, _ body: String, _ code: String) async throws {
    let client = WebServicesDatabase.over(
      ScriptedTransport(status: status, headers: ["X-Apple-Request-UUID": "u"], body))
    let error = try await refusal { _ = try await client.modify([save("a")], in: notes, atomic: true) }
    #expect(error?.code.rawValue == code)
    #expect(error?.httpStatus == status)
    #expect(error?.requestUUID == "u")
  }

  @Test(arguments: [
    ("30", "", 30.0), ("0", "", 0), ("-5", "9", 9), ("99999999999999999999999", "", 172_800), ("", "110207", 110_207),
    ("", "-3", 0), ("", "1e300", 172_800), ("", "1e400", nil), ("", "\"12\"", 12), ("", "\"soon\"", nil),
    ("", "null", nil), ("", "[1]", nil), ("20", "99", 20), ("tomorrow", "4", 4),
    ("Thu, 28 May 2026 20:27:10 GMT", "", 30), ("Thu, 28 May 2020 20:26:55 GMT", "", 0),
    ("Thu, 99 Zzz 2026 20:26:55 GMT", "3", 3),
  ])
  func `waits are read from the header, else from JSON, and bounded`(
    _ header: String, _ json: String, _ seconds: Double?
  ) async throws {
    let body = "{\"serverErrorCode\":\"THROTTLED\"" + (json.isEmpty ? "}" : ",\"retryAfter\":\(json)}")
    let client = WebServicesDatabase.over(
      ScriptedTransport(status: 429, headers: header.isEmpty ? [:] : ["retry-after": header], body))
    let error = try await refusal { _ = try await client.zones() }
    #expect(error?.code == .throttled)
    #expect(error?.retryAfter == seconds)
  }

  @Test func `an atomic refusal that holds results is read record by record`() async throws {
    let client = WebServicesDatabase.over(
      ScriptedTransport(
        status: 400,
        """
        {"serverErrorCode":"ATOMIC_ERROR","records":[{"recordName":"a","serverErrorCode":"ATOMIC_ERROR"},
        {"recordName":"b","serverErrorCode":"CONFLICT"}]}
        """))
    let results = try await client.modify([save("a"), save("b")], in: notes, atomic: true)
    #expect(results["a"]?.error?.code == .atomicError)
    #expect(results["b"]?.error?.code == .conflict)
  }

  @Test func `a record that cannot be read fails alone and not its page`() async throws {
    let bad = [
      "5", "{\"value\":NaN}", "{\"value\":01}", "{\"value\":\"\\ud800\"}", "{\"isEncrypted\":5,\"value\":1}",
    ]
    for field in bad {
      let page = try await WebServicesDatabase.over(
        ScriptedTransport(
          """
          {"zones":[{"zoneID":{"zoneName":"Notes"},"syncToken":"t","moreComing":null,"records":[
          {"recordName":"bad","recordType":"Note","recordChangeTag":"1","fields":{"f":\(field)}},
          {"recordName":"good","recordType":"Note","recordChangeTag":"1","fields":{"f":{"value":"x"}}}]}]}
          """)
      ).zoneChanges(in: notes, since: nil, limit: 200)
      #expect(!page.moreComing)
      guard page.changes.count == 2, case .failed("bad", let error) = page.changes[0],
        case .saved(let good) = page.changes[1]
      else {
        Issue.record("\(field): \(page.changes)")
        continue
      }
      #expect(error.code == .unexpectedServerResponse)
      #expect(good.fields == ["f": "x"])
    }
  }

  @Test func `values are read by their type, inferred without one, and unknown keys are kept`() async throws {
    let result = try await WebServicesDatabase.over(
      ScriptedTransport(
        """
        {"records":[{"recordName":"r","recordType":"Note","recordChangeTag":"lo5d1jwm","pluginFields":{},
        "zoneID":{"zoneName":"Notes","ownerRecordName":"_u","zoneType":"REGULAR_CUSTOM_ZONE"},"deleted":false,
        "stableUrl":{"b":[1,2.5,null,true],"a":"\\u0001\\""},"expirationTime":99999999999999999999,
        "parent":{"recordName":"p"},"created":{"timestamp":1767225600000,"userRecordName":"_u","deviceID":"2"},
        "fields":{"s":{"value":"x"},"i":{"value":3},"d":{"value":2.5},"z":{"value":-0.0,"type":"DOUBLE"},
        "n":{"value":null,"type":"STRING"},"n2":{"type":"STRING"},"l":{"value":["a"]},"e":{"value":[]},
        "digits":{"value":"-9223372036854775808","type":"INT64"},"t":{"value":1767225600000.4,"type":"TIMESTAMP"},
        "r":{"value":{"recordName":"x","zoneID":{"zoneName":"Notes","ownerRecordName":"_u"}}},
        "o":{"value":{"recordName":"x","zoneID":{"zoneName":"Other","ownerRecordName":"_u"}}},
        "w":{"value":{"b":18446744073709551615,"a":[1.50]},"type":"WHATEVER"},"wn":{"value":null,"type":"WHATEVER"},
        "c":{"value":"s","type":"STRING","isEncrypted":true},"cb":{"value":"AQ==","type":"ENCRYPTED_BYTES"},
        "a":{"value":{"fileChecksum":"c","size":4,"downloadURL":"https://x/${f}"},"type":"ASSETID"}}}]}
        """)
    ).lookup(["r"], in: notes)["r"]
    let record = try #require(result?.record)
    #expect(
      record.fields == [
        "s": "x", "i": 3, "d": 2.5, "z": 0.0, "l": .list(.strings, ["a"]), "e": .list(.unknown, []),
        "digits": .int64(.min), "t": .date(milliseconds: 1_767_225_600_000), "r": .reference(Reference("x")),
        "o": .reference(Reference("x", zone: ZoneID("Other"))), "c": .encrypted("s"),
        "w": .opaque(OpaqueValue(type: "WHATEVER", json: Array(#"{"b":18446744073709551615,"a":[1.50]}"#.utf8))),
        "cb": .encrypted(.bytes([1])),
        "a": .asset(Asset(fileChecksum: "c", size: 4, downloadURL: "https://x/${f}")),
      ])
    #expect(record.parent == "p")
    #expect(record.system.created == ServerTimestamp(milliseconds: 1_767_225_600_000, user: "_u", device: "2"))
    #expect(
      String(decoding: record.system.unknown, as: UTF8.self)
        == #"{"stableUrl":{"b":[1,2.5,null,true],"a":"\u0001\""},"expirationTime":99999999999999999999}"#)
  }

  @Test func `pages of several zones are one request, and each is read by itself`() async throws {
    let transport = ScriptedTransport(
      """
      {"zones":[
      {"zoneID":{"zoneName":"B"},"serverErrorCode":"ZONE_NOT_FOUND","reason":"gone"},
      {"zoneID":{"zoneName":"A"},"syncToken":"a1","moreComing":true,"records":[{"recordName":"x","deleted":true}]},
      {"zoneID":{"zoneName":"C"},"syncToken":""},
      {"zoneID":{"zoneName":"D"},"syncToken":"d1"},{"zoneID":{"zoneName":"D"},"syncToken":"d2"},
      {"syncToken":"nobody's"},{"zoneID":{"zoneName":"Unasked"},"syncToken":"u1"}]}
      """)
    let token = ChangeToken(rawValue: "t")
    let queries = [
      ZoneQuery(ZoneID("A"), since: token, limit: 20), ZoneQuery(ZoneID("B"), since: token, limit: 20),
      ZoneQuery(ZoneID("C"), since: nil, limit: 20, listsOnly: true), ZoneQuery(ZoneID("D"), since: token, limit: 300),
      ZoneQuery(ZoneID("E"), since: ChangeToken(rawValue: ""), limit: 0),
    ]
    let answers = try await WebServicesDatabase.over(transport).zoneChanges(of: queries)
    #expect(transport.sent.count == 1)
    let body = transport.sent.first.map { String(decoding: $0.body, as: UTF8.self) } ?? ""
    #expect(
      body == #"{"resultsLimit":200,"zones":[{"resultsLimit":20,"syncToken":"t","zoneID":{"zoneName":"A"}},"#
        + #"{"resultsLimit":20,"syncToken":"t","zoneID":{"zoneName":"B"}},"#
        + #"{"desiredKeys":[],"resultsLimit":20,"zoneID":{"zoneName":"C"}},"#
        + #"{"resultsLimit":200,"syncToken":"t","zoneID":{"zoneName":"D"}},"#
        + #"{"resultsLimit":1,"zoneID":{"zoneName":"E"}}]}"#)
    let page = try #require(try answers[ZoneID("A")]?.get())
    #expect(page.token.rawValue == "a1" && page.moreComing && page.changes.count == 1 && page.hasFields)
    guard case .failure(let gone)? = answers[ZoneID("B")], case .failure(let unread)? = answers[ZoneID("C")] else {
      Issue.record("\(answers)")
      return
    }
    #expect(gone == CloudError(.zoneNotFound, reason: "gone") && unread.code == .unexpectedServerResponse)
    #expect(answers[ZoneID("D")] == nil && answers[ZoneID("E")] == nil && answers.count == 3)
  }

  @Test func `zones of two owners that have one name are told apart`() async throws {
    let zones = ["_a", "_b"].map { ZoneID("Notes", owner: $0, scope: .shared) }
    let client = WebServicesDatabase.over(
      ScriptedTransport(
        """
        {"zones":[{"zoneID":{"zoneName":"Notes","ownerRecordName":"_b"},"syncToken":"b1"},
        {"zoneID":{"zoneName":"Notes","ownerRecordName":"_a"},"syncToken":"a1"}]}
        """), scope: .shared)
    let answers = try await client.zoneChanges(of: zones.map { ZoneQuery($0, since: nil, limit: 1) })
    #expect(try zones.map { try answers[$0]?.get().token.rawValue } == ["a1", "b1"])
  }

  @Test func `the observed replies of the live service are read`() async throws {
    func changes(_ entry: String) async throws -> CloudError? {
      let client = WebServicesDatabase.over(
        ScriptedTransport("{\"zones\":[{\"zoneID\":{\"zoneName\":\"Notes\"},\(entry)}]}"))
      return try await refusal {
        _ = try await client.zoneChanges(in: notes, since: ChangeToken(rawValue: "x"), limit: 200)
      }
    }
    let garbage = try await changes(
      "\"serverErrorCode\":\"BAD_REQUEST\",\"reason\":\"Unknown sync continuation type\"")
    #expect(garbage == CloudError(.badRequest, reason: "Unknown sync continuation type"))
    #expect(try await changes("\"serverErrorCode\":\"ZONE_NOT_FOUND\"")?.code == .zoneNotFound)
    #expect(try await changes("\"records\":[]")?.code == .unexpectedServerResponse, "no token")
    let lookup = try await WebServicesDatabase.over(
      ScriptedTransport(
        "{\"records\":[{\"recordName\":\"2/2/x\",\"reason\":\"Record not found\",\"serverErrorCode\":\"NOT_FOUND\"}]}")
    ).lookup(["2/2/x"], in: notes)
    #expect(lookup["2/2/x"]?.error == CloudError(.notFound, reason: "Record not found"))
    let deleted = try await WebServicesDatabase.over(
      ScriptedTransport(
        """
        {"moreComing":false,"syncToken":"s","zones":[{"zoneID":{"zoneName":"Gone","ownerRecordName":"_u",
        "zoneType":"REGULAR_CUSTOM_ZONE"},"deleted":true}]}
        """)
    ).databaseChanges(since: nil, limit: 200)
    #expect(deleted.zones == [.init(id: ZoneID("Gone"), loss: .deleted)])
    let throttled = try await refusal {
      _ = try await WebServicesDatabase.over(
        ScriptedTransport(
          status: 429,
          """
          {"reason":"Database throttled, retry later","retryAfter":110207,"serverErrorCode":"THROTTLED",
          "error_code":"THROTTLED","messageForDeveloper":"Database throttled, retry later","uuid":"u"}
          """)
      ).zones()
    }
    #expect(throttled?.retryAfter == 110_207)
    for body in ["{\"users\":[{\"userRecordName\":\"_u\"}]}", "{\"userRecordName\":\"_u\"}"] {
      #expect(try await WebServicesDatabase.over(ScriptedTransport(body)).user() == "_u")
    }
    let exists = ScriptedTransport(
      "{\"zones\":[{\"zoneID\":{\"zoneName\":\"Notes\"},\"serverErrorCode\":\"EXISTS\"}]}")
    try await WebServicesDatabase.over(exists).createZone(notes)
  }

  @Test func `requests have the right path, query and body`() async throws {
    let transport = ScriptedTransport("{\"records\":[],\"zones\":[],\"syncToken\":\"t\"}")
    let client = WebServicesDatabase.over(transport, scope: .shared, apiToken: "a+b/c=", baseURL: "http://cloud.test/")
    let zone = ZoneID("Z", owner: "_o", scope: .shared)
    _ = try await client.modify(
      [
        CloudOperation(.update, name: "n", type: "T", changeTag: "1", fields: ["gone": nil, "d": .double(3)]),
        CloudOperation(.delete, name: "m", changeTag: "2"),
      ], in: zone, atomic: false)
    let request = try #require(transport.sent.first)
    #expect(request.method == "POST")
    #expect(request.path == "/database/1/iCloud.test/development/shared/records/modify")
    #expect(request.query == "ckAPIToken=a%2Bb%2Fc%3D")
    #expect(!"\(request)".contains("ckAPIToken"))
    #expect(
      String(decoding: request.body, as: UTF8.self) == #"{"atomic":false,"desiredKeys":[],"operations":["#
        + #"{"operationType":"update","record":{"fields":{"d":{"type":"DOUBLE","value":3},"gone":{"value":null}},"#
        + #""recordChangeTag":"1","recordName":"n","recordType":"T"}},"#
        + #"{"operationType":"delete","record":{"recordChangeTag":"2","recordName":"m"}}],"#
        + #""zoneID":{"ownerRecordName":"_o","zoneName":"Z"}}"#)
    // The service's meaning of an empty token is ambiguous, so none is sent.
    _ = try await client.databaseChanges(since: ChangeToken(rawValue: ""), limit: 1000)
    #expect(transport.sent.last.map { String(decoding: $0.body, as: UTF8.self) } == #"{"resultsLimit":200}"#)
    for operations in [
      (0...200).map { save("\($0)") }, [save("a"), save("a")],
      [CloudOperation(.create, name: "x", type: "T", fields: ["d": .double(.nan)])],
    ] {
      let error = try await refusal { _ = try await client.modify(operations, in: zone, atomic: false) }
      #expect(error?.code == .badRequest)
    }
    #expect(transport.sent.count == 2)
    #expect(try await client.modify([], in: zone, atomic: true).isEmpty)
  }

  @Test func `a token in an answer is replaced in the error`() async throws {
    let disk = SimulatedDisk()
    let session = try WebSession(path: "/session", environment: .on(disk))
    try session.signIn(token: "secret+token/1==")
    let body = "{\"serverErrorCode\":\"BAD_REQUEST\",\"reason\":\"bad secret+token/1== and api+key\"}"
    let plain = "<html> ?ckWebAuthToken=secret%2Btoken%2F1%3D%3D"
    for answer in [ScriptedTransport(status: 400, body), ScriptedTransport(plain)] {
      let client = WebServicesDatabase.over(answer, apiToken: "api+key", session: session)
      let error = try await refusal { _ = try await client.zones() }
      let text = error.map { "\($0)" } ?? ""
      #expect(text.contains("<token>"))
      #expect(!text.contains("secret") && !text.contains("api+key"))
    }
    #expect(!"\(session)".contains("secret"))
  }

  /// The clock here when the request leaves, in milliseconds after 20:26:40; how long the answer takes; what it names as
  /// its time; the offset.
  @Test(
    arguments: [
      (0, 0, "20:26:40", 0), (999, 0, "20:26:40", 0), (700, 600, "20:26:40", 0), (700, 600, "20:26:41", 0),
      (0, 5_000, "20:26:40", 0), (0, 5_000, "20:26:43", 0), (0, 5_000, "20:26:45", 0), (0, 5_000, "20:26:46", 1_000),
      (1_000, 5_000, "20:26:40", -1), (0, 0, "21:26:40", 3_600_000), (0, 2_000, "21:26:40", 3_598_000),
      (0, 0, "19:26:40", -3_599_001), (0, 2_000, "19:26:40", -3_599_001),
    ] as [(Int64, Int64, String, Int64)])
  func `an answer's time moves the clock no further than it must`(
    start: Int64, takes: Int64, named: String, offset: Int64
  ) async throws {
    let clock = SimulatedClock(wallMilliseconds: now + start, autoAdvance: false)
    let transport = ScriptedTransport { _, _ in
      clock.advance(milliseconds: takes)
      return HTTPResponse(
        status: 200, headers: ["Date": "Thu, 28 May 2026 \(named) GMT"], body: Array(#"{"zones":[]}"#.utf8))
    }
    let client = WebServicesDatabase.over(transport, clock: clock)
    #expect(client.serverClockOffset == nil)
    _ = try await client.zones()
    #expect(client.serverClockOffset == .milliseconds(offset))
  }

  @Test(arguments: [
    // The clock here is an hour behind, right, two days ahead; and an answer that does not say its time.
    ("Thu, 28 May 2026 21:26:40 GMT", "Thu, 28 May 2026 21:27:40 GMT", 60.0),
    ("Thu, 28 May 2026 20:26:40 GMT", "Thu, 28 May 2026 20:27:40 GMT", 60),
    ("Tue, 26 May 2026 20:26:40 GMT", "Tue, 26 May 2026 20:27:40 GMT", 60),
    ("Thu, 28 May 2026 21:26:40 GMT", "Thu, 28 May 2026 21:26:40 GMT", 0),
    ("Thu, 28 May 2026 21:26:40 GMT", "Thu, 28 May 2026 20:26:40 GMT", 0),
    ("soon", "Thu, 28 May 2026 20:27:40 GMT", 60),
  ])
  func `a date to come again at is measured by the answer's own clock`(date: String, again: String, seconds: Double)
    async throws
  {
    let client = WebServicesDatabase.over(
      ScriptedTransport(status: 503, headers: ["Date": date, "Retry-After": again], "busy"))
    #expect(try await refusal { _ = try await client.zones() }?.retryAfter == seconds)
  }

  @Test func `the server's words have an end`() async throws {
    let long = String(repeating: "é", count: 100_000)
    let body = #"""
      {"serverErrorCode":"\#(long)","reason":"\#(long)","uuid":"\#(long)","redirectURL":"https://\#(long)"}
      """#
    let client = WebServicesDatabase.over(ScriptedTransport(status: 500, body))
    let error = try #require(try await refusal { _ = try await client.zones() })
    #expect(error.reason == String(repeating: "é", count: 999) + "…")
    #expect(error.code.rawValue.unicodeScalars.count == 100 && error.requestUUID?.unicodeScalars.count == 100)
    #expect(error.redirectURL == nil)
    let fits = WebServicesDatabase.over(
      ScriptedTransport(status: 421, #"{"serverErrorCode":"A","reason":"b","redirectURL":"https://c"}"#))
    let whole = try await refusal { _ = try await fits.zones() }
    #expect(whole?.reason == "b" && whole?.redirectURL == "https://c")
  }

  @Test func `a record whose bytes were kept is read again`() {
    let client = WebServicesDatabase.over(ScriptedTransport("{}"))
    func read(_ text: String) -> ServerRecord? { client.record(readingAgain: Array(text.utf8), in: notes) }
    let record = read(
      #"{"recordName":"r","recordType":"Note","recordChangeTag":"1","fields":{"f":{"type":"STRING","value":"x"}}}"#)
    #expect(record?.name == "r" && record?.fields == ["f": "x"])
    for unreadable in [
      "", "{", #"{"recordName":"r","recordType":"Note","recordChangeTag":"1","fields":{"f":5}}"#,
      #"{"recordName":"r","recordType":"Note","fields":{}}"#, #"{"recordName":"r","deleted":true}"#,
    ] {
      #expect(read(unreadable) == nil, "\(unreadable)")
    }
  }
}
