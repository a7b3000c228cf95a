// Goal: what follows from each refusal is decided, and is decided in one place. Method: a table written by hand, of which no
// line is computed: each code, of one item and of a whole request, and each HTTP status that changes something. No store, no
// request. Formats/remote.md has the first two columns for people.

import StrandlineHost
import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

/// A refusal, and all that the engine asks of it.
private struct Row: Sendable, CustomTestStringConvertible {
  var code: String
  var status: Int?
  var item: ErrorPolicy
  var request: ErrorPolicy
  /// Of a request refused as a whole with it nothing was applied.
  var nothing: Bool
  /// A smaller request may succeed.
  var less: Bool
  /// The answer was too large, and not the request.
  var answer: Bool
  /// The server answers no request of this kind.
  var kind: Bool
  /// It may be the fault of one record of several.
  var one: Bool
  /// The change token may have expired.
  var token: Bool
  /// How long a record is held that was refused with it.
  var hold: HoldTime
  /// The error that a cycle ends with, if it ends with this.
  var ends: StrandlineError.Code

  init(
    _ code: String, status: Int? = nil, _ item: ErrorPolicy, _ request: ErrorPolicy, nothing: Bool = false,
    less: Bool = false, answer: Bool = false, kind: Bool = false, one: Bool = false, token: Bool = false,
    hold: HoldTime = .doubling, ends: StrandlineError.Code
  ) {
    (self.code, self.status, self.item, self.request) = (code, status, item, request)
    (self.nothing, self.less, self.answer, self.kind) = (nothing, less, answer, kind)
    (self.one, self.token, self.hold, self.ends) = (one, token, hold, ends)
  }

  var error: CloudError { CloudError(CloudError.Code(rawValue: code), reason: "no", httpStatus: status) }
  var testDescription: String { status.map { "\(code) with HTTP \($0)" } ?? code }
}

private let rows: [Row] = [
  // Wait. Any part of a request may have been applied.
  Row("THROTTLED", .retry, .retry, ends: .throttled),
  Row("TRY_AGAIN_LATER", .retry, .retry, ends: .throttled),
  Row("ZONE_BUSY", .retry, .retry, ends: .throttled),
  Row("INTERNAL_ERROR", .retry, .retry, ends: .throttled),
  Row("SERVICE_UNAVAILABLE", .retry, .retry, ends: .throttled),
  Row("NETWORK_ERROR", .retry, .retry, ends: .unreachable),
  // No secure connection: the cycle ends, and no record or zone has a part in it.
  Row("NO_SECURE_CONNECTION", .retry, .halt, ends: .unreachable),
  // An answer that is none of CloudKit's: of an item it is asked again, a request ends with it, and says nothing.
  Row("UNEXPECTED_SERVER_RESPONSE", .retry, .halt, ends: .serverRefused),
  // The record, or what it needs.
  Row("CONFLICT", .resolve, .halt, nothing: true, one: true, ends: .throttled),
  Row("EXISTS", .resolve, .halt, nothing: true, one: true, ends: .throttled),
  Row("NOT_FOUND", .missing, .halt, nothing: true, ends: .serverRefused),
  Row("VALIDATING_REFERENCE_ERROR", .target, .halt, nothing: true, one: true, hold: .untilEdited, ends: .serverRefused),
  Row("ATOMIC_ERROR", .together, .halt, nothing: true, ends: .serverRefused),
  Row("ACCESS_DENIED", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("UNIQUE_FIELD_ERROR", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("UNSUPPORTED", .hold, .halt, nothing: true, kind: true, one: true, ends: .serverRefused),
  // The zone.
  Row("ZONE_NOT_FOUND", .zoneMissing, .zoneMissing, nothing: true, ends: .serverRefused),
  // The token.
  Row("CHANGE_TOKEN_EXPIRED", .hold, .halt, nothing: true, one: true, token: true, ends: .serverRefused),
  Row("SYNC_TOKEN_EXPIRED", .hold, .halt, nothing: true, one: true, token: true, ends: .serverRefused),
  Row("EXPIRED_CHANGE_TOKEN", .hold, .halt, nothing: true, one: true, token: true, ends: .serverRefused),
  // Only both words together mean that.
  Row("TOKEN_UNKNOWN", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("SESSION_EXPIRED", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  // The size, or one record among many.
  Row("BAD_REQUEST", .hold, .split, nothing: true, one: true, token: true, hold: .untilEdited, ends: .serverRefused),
  Row("LIMIT_EXCEEDED", .split, .split, nothing: true, less: true, one: true, hold: .untilEdited, ends: .serverRefused),
  Row("ANSWER_TOO_LARGE", .hold, .split, less: true, answer: true, one: true, ends: .serverRefused),
  // The owner's storage.
  Row("QUOTA_EXCEEDED", .hold, .stopSaves, nothing: true, one: true, hold: .overQuota, ends: .serverRefused),
  // The account.
  Row("AUTHENTICATION_REQUIRED", .signIn, .signIn, nothing: true, ends: .needsSignIn),
  Row("AUTHENTICATION_FAILED", .signIn, .signIn, nothing: true, ends: .needsSignIn),
  Row("NO_ACCOUNT", .signIn, .signIn, nothing: true, ends: .needsSignIn),
  // Any other.
  Row("SOMETHING_NEW", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("", .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  // A gateway on the way says that the request is too large, or fails. A code that says more than the status counts.
  Row("SOMETHING_NEW", status: 413, .hold, .split, nothing: true, less: true, one: true, ends: .serverRefused),
  Row("UNEXPECTED_SERVER_RESPONSE", status: 413, .retry, .split, nothing: true, less: true, ends: .serverRefused),
  Row("SOMETHING_NEW", status: 499, .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("SOMETHING_NEW", status: 500, .hold, .retry, one: true, ends: .throttled),
  Row("SOMETHING_NEW", status: 599, .hold, .retry, one: true, ends: .throttled),
  Row("SOMETHING_NEW", status: 600, .hold, .halt, nothing: true, one: true, ends: .serverRefused),
  Row("UNEXPECTED_SERVER_RESPONSE", status: 502, .retry, .retry, ends: .throttled),
  Row("UNEXPECTED_SERVER_RESPONSE", status: 200, .retry, .halt, ends: .serverRefused),
  Row("ACCESS_DENIED", status: 503, .hold, .retry, one: true, ends: .throttled),
  Row("CONFLICT", status: 503, .resolve, .retry, one: true, ends: .throttled),
  Row(
    "BAD_REQUEST", status: 500, .hold, .split, nothing: true, one: true, token: true, hold: .untilEdited,
    ends: .serverRefused),
  Row(
    "QUOTA_EXCEEDED", status: 500, .hold, .stopSaves, nothing: true, one: true, hold: .overQuota, ends: .serverRefused),
  Row("AUTHENTICATION_REQUIRED", status: 500, .signIn, .signIn, nothing: true, ends: .needsSignIn),
  Row("THROTTLED", status: 413, .retry, .retry, ends: .throttled),
  Row("NETWORK_ERROR", status: 413, .retry, .retry, ends: .unreachable),
  Row("ZONE_NOT_FOUND", status: 404, .zoneMissing, .zoneMissing, nothing: true, ends: .serverRefused),
]

@Suite(.timeLimit(.minutes(30))) struct `What follows from a refusal` {
  @Test func `is what the table says`() {
    for row in rows {
      let (error, name) = (row.error, row.testDescription)
      #expect(error.meaning.item == row.item, "\(name), of one item")
      #expect(error.meaning.request == row.request, "\(name), of a whole request")
      #expect(error.meaning.appliedNothing == row.nothing, "\(name), whether nothing was applied")
      #expect(error.meaning.asksForLess == row.less, "\(name), whether a smaller request may succeed")
      #expect(error.meaning.isOfAnswer == row.answer, "\(name), whether the answer was too large")
      #expect(error.meaning.isOfKind == row.kind, "\(name), whether no request of the kind is answered")
      #expect(error.meaning.item.mayBeOfOneRecord == row.one, "\(name), whether it may be of one record")
      #expect(error.meaning.mayBeExpiredToken == row.token, "\(name), whether the token may have expired")
      #expect(error.meaning.hold == row.hold, "\(name), how long a record is held")
      // The log keeps the code, and not the status.
      if row.status == nil { #expect(held(row.code).meaning == error.meaning, "\(name), of a hold in the log") }
      #expect(error.asStrandlineError("syncing").code == row.ends, "\(name), as the end of a cycle")
    }
  }

  private func held(_ code: String, milliseconds: Int64 = 0) -> Held {
    Held(
      id: RecordID("n", zone: ZoneID("Notes")), direction: .upload, lsn: LSN(1), code: code, words: "no", attempts: 1,
      durationMilliseconds: milliseconds, wallMilliseconds: 0)
  }

  @Test func `says of a hold whether a reference is its cause, and it only shows that the record waits`() {
    for row in rows {
      #expect(held(row.code).isOfReference == (row.item == .target), "\(row.testDescription)")
      #expect(!held(row.code, milliseconds: 5).isOfReference, "\(row.testDescription)")
    }
  }

  @Test func `is decided for every code that the library names, and for every policy`() throws {
    let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    let file = try POSIXFileSystem().open("\(root)/Sources/StrandlineModel/Remote/CloudError.swift", .read)
    defer { file.close() }
    let source = String(decoding: try file.read(at: 0, count: Int(try file.size())), as: UTF8.self)
    let named = source.matches(of: /Code\("([A-Z_]+)"\)/).map { String($0.output.1) }
    #expect(named.count >= 21)
    let codes = rows.filter { $0.status == nil }.map(\.code)
    #expect(Set(named).subtracting(codes) == [] && Set(codes).count == codes.count)
    // Of each policy there is a row, so that a switch over them has been thought through.
    let policies: Set<ErrorPolicy> = [
      .retry, .resolve, .missing, .zoneMissing, .hold, .target, .split, .together, .stopSaves, .signIn, .halt,
    ]
    #expect(Set(rows.flatMap { [$0.item, $0.request] }) == policies)
  }

  @Test func `names a time only if the server did, and a place to sign in`() {
    let busy = CloudError(.throttled, reason: "busy", retryAfter: 30)
    #expect(busy.asStrandlineError("syncing", wait: 1.2, isServers: true).retryAfter == 1.2)
    #expect(busy.asStrandlineError("syncing", wait: 1.2, isServers: true).message.hasSuffix("try again in 2 s"))
    #expect(busy.asStrandlineError("syncing", wait: 1.2).retryAfter == nil)
    #expect(!busy.asStrandlineError("syncing", wait: 1.2).message.contains("try again in"))
    let away = CloudError(.authenticationRequired, reason: "who", redirectURL: "https://there")
    #expect(away.asStrandlineError("syncing").message.contains("sign-in at https://there: who"))
  }
  @Test func `says the server's words and its code once`() {
    for row in rows {
      let refusal = CloudError(
        CloudError.Code(rawValue: row.code), reason: "these words", retryAfter: 30, httpStatus: row.status)
      let wrapped = [
        refusal.asStrandlineError("syncing"), refusal.asStrandlineError("syncing", wait: 9, isServers: true),
      ]
      for said in wrapped.map({ "\($0)" }) {
        for words in ["these words", row.code] where !words.isEmpty {
          #expect(said.ranges(of: words).count == 1, "\(row.testDescription): \(said)")
        }
      }
    }
  }
}
