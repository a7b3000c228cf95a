// Goal: the client says of every reply that others observed at the live service what it means.
//
// The replies are in a file that does not belong to the package, beside its folder; CI_OBSERVED names another one. Without
// the file the tests are skipped, and the run of all checks fails. A reply without an expectation here is a failure.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem
import Testing

/// One reply of the file.
struct ObservedReply: Sendable {
  var id: String
  /// nil where the observer did not say it.
  var status: Int?
  var headers: HTTPHeaders
  var body: [UInt8]

  static var path: String {
    if let path = ProcessEnvironment.value(of: "CI_OBSERVED") { return path }
    let beside = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(4).joined(separator: "/")
    return "\(beside)/shared/reference/cloudkit/observed_replies.json"
  }

  static var isPresent: Bool {
    // A file that cannot be read is read by the test, which then says why.
    ((try? POSIXFileSystem().kind(of: path)) ?? .file) != .absent
  }

  static func all() throws -> [ObservedReply] {
    let file = try POSIXFileSystem().open(path, .read)
    defer { file.close() }
    let bytes = try file.read(at: 0, count: Int(try file.size()))
    let root = try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
    return try #require(root["items"] as? [[String: Any]]).map { item in
      var headers = HTTPHeaders()
      for (name, value) in item["headers"] as? [String: String] ?? [:] { headers.append(name, value) }
      return ObservedReply(
        id: try #require(item["id"] as? String), status: item["http"] as? Int, headers: headers,
        body: try item["body"].map { Array(try JSONSerialization.data(withJSONObject: $0)) } ?? [])
    }
  }

  /// A client that gets this reply.
  func client(status: Int = 200, scope: DatabaseScope = .private) -> WebServicesDatabase {
    let response = HTTPResponse(status: self.status ?? status, headers: headers, body: body)
    return .over(ScriptedTransport { _, _ in response }, scope: scope)
  }
}

/// Apple's list of error codes lies beside the replies.
@Suite(.timeLimit(.minutes(30)), .enabled(if: ObservedReply.isPresent, "there is no file of observed replies"))
struct ErrorListTests {
  @Test func `no error of the CloudKit framework is missing`() throws {
    let folder = ObservedReply.path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(
      separator: "/")
    let file = try POSIXFileSystem().open("\(folder)/ckerror_codes.json", .read)
    defer { file.close() }
    let bytes = try file.read(at: 0, count: Int(try file.size()))
    let root = try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
    let listed = try #require(root["codes"] as? [[String: Any]])
    #expect(listed.count >= 37)
    for one in listed {
      let (number, name) = (try #require(one["raw"] as? Int), try #require(one["swift"] as? String))
      try #require(CloudError.Code(ckErrorCode: number) != nil, "\(number) \(name)")
      #expect(CloudError.Code.byCKErrorCode[number - 1].name == name)
    }
  }
}

@Suite(.timeLimit(.minutes(30)), .enabled(if: ObservedReply.isPresent, "there is no file of observed replies"))
struct ObservedRepliesTests {
  private struct Expectation: Sendable {
    var code: CloudError.Code
    var reason = ""
  }

  /// Refusals of one zone of changes/zone, by the zone's name.
  private static let zones: [String: (zone: ZoneID, Expectation)] = [
    "changes-zone-garbage-token": (
      ZoneID("PrimarySync"), .init(code: .badRequest, reason: "Unknown sync continuation type")
    ),
    "changes-zone-truncated-token": (
      ZoneID("PrimarySync"), .init(code: .badRequest, reason: "Invalid continuation format")
    ),
    "changes-zone-db-token": (ZoneID("PrimarySync"), .init(code: .badRequest)),
    "changes-zone-missing-zone": (ZoneID("SharedSync"), .init(code: .zoneNotFound)),
    "changes-zone-shared-reverse": (
      ZoneID("Notes", owner: "_owner", scope: .shared),
      .init(code: .badRequest, reason: "Reverse sync of share db is unsupported")
    ),
  ]

  /// Refusals of one operation of records/modify on the record X.
  private static let operations: [String: Expectation] = [
    "modify-update-missing-with-tag": .init(
      code: .notFound, reason: "recordChangeTag specified, but record not found"),
    "modify-conflict-a": .init(code: .conflict, reason: "client oplock error updating record"),
    "modify-conflict-b": .init(
      code: .conflict, reason: "record to update already exists with a different change tag"),
    "modify-validating-reference": .init(
      code: .validatingReferenceError,
      reason: "Field=<field>, recordID=<blocker>, title=Record delete would violate validating reference, "
        + "rejecting update"),
    "field-type-mismatch": .init(code: .badRequest, reason: "Invalid value, [FIELD] type [TYPE]."),
  ]

  /// Refusals of a whole request. Where the observer did not say the status, one that goes with the code.
  private static let whole: [String: (status: Int, Expectation)] = [
    "sync-token-on-non-sync-zone": (
      400, .init(code: .badRequest, reason: "syncToken operations supported only in SyncZone")
    ),
    "users-endpoint-wrong-db": (
      400, .init(code: .badRequest, reason: "endpoint not applicable in the database type")
    ),
    "throttled": (429, .init(code: .throttled, reason: "Database throttled, retry later")),
    "auth-required": (421, .init(code: .authenticationRequired, reason: "request needs authorization")),
    "photos-bad-request-extra-keys": (400, .init(code: .badRequest, reason: "Index has invalid data")),
  ]

  /// Those that have a test of their own.
  private static let others: Set<String> = [
    "zones-changes-deleted-zone", "lookup-missing", "lookup-found-public", "modify-forceDelete-ok",
    "shared-db-zone-without-owner", "response-headers",
  ]

  private func reply(_ id: String) throws -> ObservedReply {
    try #require(try ObservedReply.all().first { $0.id == id }, "the file has no reply '\(id)'")
  }

  private func expect(_ error: CloudError?, _ expected: Expectation, _ id: String) {
    #expect(error?.code == expected.code, "\(id)")
    #expect(error?.reason == expected.reason, "\(id)")
  }

  @Test func `every reply has an expectation`() throws {
    let ids = try ObservedReply.all().map(\.id)
    let expected = Set(Self.zones.keys).union(Self.operations.keys).union(Self.whole.keys).union(Self.others)
    #expect(Set(ids) == expected)
    #expect(ids.count == expected.count)
  }

  @Test func `a refusal of a zone is that zone's error`() async throws {
    for (id, (zone, expected)) in Self.zones {
      let client = try reply(id).client(scope: zone.scope)
      let error = try await refusal {
        _ = try await client.zoneChanges(in: zone, since: ChangeToken(rawValue: "token"), limit: 1)
      }
      expect(error, expected, id)
    }
  }

  @Test func `a refusal of an operation is that record's error`() async throws {
    for (id, expected) in Self.operations {
      let client = try reply(id).client()
      for operation in [
        CloudOperation(.update, name: "X", type: "Note", changeTag: "1"),
        CloudOperation(.delete, name: "X", changeTag: "1"),
      ] {
        expect(try await client.modify([operation], in: notes, atomic: false)["X"]?.error, expected, id)
      }
    }
  }

  @Test func `a refusal of a whole request is the call's error, under its own status and under 200`() async throws {
    for (id, (status, expected)) in Self.whole {
      var reply = try reply(id)
      for status in [reply.status ?? status, 200] {
        reply.status = status
        let client = reply.client()
        for ask: () async throws -> Void in [
          { _ = try await client.zoneChanges(in: notes, since: nil, limit: 1) },
          { _ = try await client.lookup(["a"], in: notes) }, { _ = try await client.user() },
        ] {
          let error = try await refusal(ask)
          expect(error, expected, "\(id), status \(status)")
          if id == "throttled" { #expect(error?.retryAfter == 110_207) }
          if id == "auth-required" { #expect(error?.redirectURL == "<url>") }
        }
      }
    }
  }

  @Test func `a record that is not there, one that is, and a deletion`() async throws {
    let missing = try await reply("lookup-missing").client(scope: .public).lookup(["2/2/<cdhash>"], in: notes)
    expect(missing["2/2/<cdhash>"]?.error, .init(code: .notFound, reason: "Record not found"), "lookup-missing")

    var found = try reply("lookup-found-public")
    // The transcription has a placeholder where bytes were: that value cannot be read, and is kept as it came.
    let bent = try await found.client(scope: .public).lookup(["2/2/<cdhash>"], in: notes)["2/2/<cdhash>"]?.record
    guard case .opaque(let value)? = bent?.fields["signedTicket"] else {
      Issue.record("\(bent.map { "\($0.fields)" } ?? "no record")")
      return
    }
    #expect(String(decoding: value.json, as: UTF8.self).contains("<base64>"))
    found.body = Array(String(decoding: found.body, as: UTF8.self).replacing("<base64>", with: "AQID").utf8)
    let record = try await found.client(scope: .public).lookup(["2/2/<cdhash>"], in: notes)["2/2/<cdhash>"]?.record
    #expect(record?.type == "DeveloperIDTicket")
    #expect(record?.fields == ["signedTicket": .bytes([1, 2, 3])])
    #expect(record?.system.changeTag == "lo5d1jwm")
    #expect(record?.system.modified?.milliseconds == 1_698_214_460_428)

    let deletion = CloudOperation(.forceDelete, name: "X")
    let deleted = try await reply("modify-forceDelete-ok").client().modify([deletion], in: notes, atomic: false)
    #expect(deleted["X"]?.isDeleted == true)
  }

  @Test func `a reply to another request, a refusal without a code, and the header`() async throws {
    // A reply of the older zones/changes, whose token has another key: the client does not ask that endpoint.
    let older = try reply("zones-changes-deleted-zone").client()
    let unread = try await refusal { _ = try await older.databaseChanges(since: nil, limit: 1) }
    #expect(unread?.code == .unexpectedServerResponse)
    #expect(unread?.reason.contains("syncToken") == true)

    for status in [200, 400] {
      let client = try reply("shared-db-zone-without-owner").client(status: status)
      let error = try await refusal { _ = try await client.zoneChanges(in: notes, since: nil, limit: 1) }
      #expect(error?.code == .unexpectedServerResponse)
      #expect(error?.reason.contains("ownerRecordName field for calls to sharedb") == true, "\(error?.reason ?? "")")
    }

    var header = try reply("response-headers")
    header.body = Array("{\"serverErrorCode\":\"BAD_REQUEST\"}".utf8)
    let error = try await refusal { _ = try await header.client(status: 400).user() }
    #expect(error?.requestUUID == "<uuid>")
    header.body = Array("{\"users\":[{\"userRecordName\":\"_u\"}]}".utf8)
    #expect(try await header.client().user() == "_u")
  }
}
