// Goal: every error of CloudKit's framework has its row, for a request and for an item, with its wait, its words and why a zone is gone.
// Method: each code in each kind of request.

import CloudKit
import Foundation
import Strandline
@testable import StrandlineNativeCloudKit
import Testing

/// What the engine is told of each code.
private let table: [(CKError.Code, String)] = [
  (.internalError, "INTERNAL_ERROR"), (.partialFailure, "UNEXPECTED_SERVER_RESPONSE"),
  (.networkUnavailable, "NETWORK_ERROR"), (.networkFailure, "NETWORK_ERROR"), (.badContainer, "BAD_CONTAINER"),
  (.serviceUnavailable, "SERVICE_UNAVAILABLE"), (.requestRateLimited, "THROTTLED"),
  (.missingEntitlement, "MISSING_ENTITLEMENT"), (.notAuthenticated, "AUTHENTICATION_REQUIRED"),
  (.permissionFailure, "ACCESS_DENIED"), (.unknownItem, "NOT_FOUND"), (.invalidArguments, "BAD_REQUEST"),
  (.resultsTruncated, "TRY_AGAIN_LATER"), (.serverRecordChanged, "CONFLICT"),
  (.serverRejectedRequest, "BAD_REQUEST"), (.assetFileNotFound, "ASSET_FILE_NOT_FOUND"),
  (.assetFileModified, "ASSET_FILE_MODIFIED"), (.incompatibleVersion, "INCOMPATIBLE_VERSION"),
  (.constraintViolation, "UNIQUE_FIELD_ERROR"), (.operationCancelled, "NETWORK_ERROR"),
  (.changeTokenExpired, "CHANGE_TOKEN_EXPIRED"), (.batchRequestFailed, "ATOMIC_ERROR"), (.zoneBusy, "ZONE_BUSY"),
  (.badDatabase, "BAD_DATABASE"), (.quotaExceeded, "QUOTA_EXCEEDED"), (.zoneNotFound, "ZONE_NOT_FOUND"),
  (.limitExceeded, "LIMIT_EXCEEDED"), (.userDeletedZone, "ZONE_NOT_FOUND"),
  (.tooManyParticipants, "TOO_MANY_PARTICIPANTS"), (.alreadyShared, "ALREADY_SHARED"),
  (.referenceViolation, "VALIDATING_REFERENCE_ERROR"), (.managedAccountRestricted, "AUTHENTICATION_REQUIRED"),
  (.participantMayNeedVerification, "PARTICIPANT_MAY_NEED_VERIFICATION"), (.serverResponseLost, "NETWORK_ERROR"),
  (.assetNotAvailable, "ASSET_NOT_AVAILABLE"), (.accountTemporarilyUnavailable, "AUTHENTICATION_REQUIRED"),
  (.participantAlreadyInvited, "PARTICIPANT_ALREADY_INVITED"),
]

@Suite(.timeLimit(.minutes(30)))
struct `Errors of CloudKit's framework` {
  @Test func `have a row each`() {
    #expect(table.map(\.0) == CKError.Code.allCases)
    for (code, expected) in table {
      let error = CloudError(native: CKError(code, userInfo: [NSLocalizedDescriptionKey: "why", "RequestUUID": "u-1"]))
      #expect(error.code.rawValue == expected, "\(code)")
      #expect(error.reason == "why" && error.requestUUID == "u-1" && error.retryAfter == nil, "\(code)")
      #expect(error.zoneLoss == (code == .userDeletedZone ? .purged : nil), "\(code)")
    }
  }

  @Test func `bring the wait that the server names`() {
    func wait(_ seconds: Double) -> Double? {
      let info = [CKErrorRetryAfterKey: NSNumber(value: seconds)]
      return CloudError(native: CKError(.serviceUnavailable, userInfo: info)).retryAfter
    }
    #expect(wait(2.5) == 2.5 && wait(0) == 0 && wait(-1) == 0 && wait(1e9) == 172_800 && wait(.nan) == nil)
  }

  @Test func `say why a zone is gone`() {
    func loss(_ code: CKError.Code, _ wasReset: NSNumber?) -> ZoneLoss? {
      let info = wasReset.map { [CKErrorUserDidResetEncryptedDataKey: $0] } ?? [:]
      return CloudError(native: CKError(code, userInfo: info)).zoneLoss
    }
    #expect(loss(.zoneNotFound, nil) == nil && loss(.zoneNotFound, false) == nil)
    #expect(loss(.zoneNotFound, true) == .encryptedDataReset && loss(.userDeletedZone, nil) == .purged)
    #expect(loss(.internalError, true) == nil)
  }

  @Test func `of parts are passed on as that of the part which failed first`() {
    func partial(_ parts: [AnyHashable: any Error]) -> CloudError {
      CloudError(native: CKError(.partialFailure, userInfo: [CKPartialErrorsByItemIDKey: parts]))
    }
    let (a, b) = (CKRecord.ID(recordName: "a"), CKRecord.ID(recordName: "b"))
    #expect(partial([a: CKError(.batchRequestFailed), b: CKError(.quotaExceeded)]).code == .quotaExceeded)
    #expect(partial([a: CKError(.batchRequestFailed)]).code == .atomicError)
    #expect(partial([:]).code == .unexpectedServerResponse)
    let inner = CKError(.partialFailure, userInfo: [CKPartialErrorsByItemIDKey: [b: CKError(.zoneBusy)]])
    #expect(partial([a: inner]).code == .zoneBusy)
  }

  @Test func `of other parts of the system are told from them`() {
    #expect(CloudError(native: NSError(domain: NSURLErrorDomain, code: -1009)).code == .networkError)
    let foreign = CloudError(native: NSError(domain: "Somewhere", code: 7))
    #expect(foreign.code == .unexpectedServerResponse && foreign.reason == "Somewhere 7")
    let long = String(repeating: "x", count: 5_000)
    #expect(CloudError(native: CKError(.zoneBusy, userInfo: [NSLocalizedDescriptionKey: long])).reason.count == 1_000)
  }

  @Test func `reach the engine from each request`() async throws {
    let scene = try await NativeScene()
    let (database, zone) = (scene.database, scene.zone)
    let system = try await scene.create("n", ["title": "a"])
    let update = CloudOperation(
      .update, name: "n", type: "Note", changeTag: system.changeTag, archive: system.archive, fields: ["title": "b"])
    let requests: [(String, () async throws -> Void)] = [
      ("user", { _ = try await database.user() }), ("zones", { _ = try await database.zones() }),
      ("createZone", { try await database.createZone(zone) }), ("deleteZone", { try await database.deleteZone(zone) }),
      ("modify", { _ = try await database.modify([update], in: zone, atomic: false) }),
      ("lookup", { _ = try await database.lookup(["n"], in: zone) }),
      ("database", { _ = try await database.databaseChanges(since: nil, limit: 10) }),
      ("zone", { _ = try await database.zoneChanges(of: [ZoneQuery(zone, since: nil, limit: 10)]) }),
    ]
    for (name, request) in requests {
      for code in [CKError.Code.notAuthenticated, .accountTemporarilyUnavailable, .managedAccountRestricted] {
        scene.cloud.failNext(CKError(code))
        #expect(try await refusal(request).code == .authenticationRequired, "\(name)")
      }
      scene.cloud.failNext(CKError(.requestRateLimited, userInfo: [CKErrorRetryAfterKey: NSNumber(value: 7)]))
      let error = try await refusal(request)
      #expect(error.code == .throttled && error.retryAfter == 7, "\(name)")
    }
    // What is said of a zone is no refusal of the request.
    for code in [CKError.Code.zoneNotFound, .userDeletedZone, .changeTokenExpired, .zoneBusy] {
      scene.cloud.failNext(CKError(code))
      let answer = try await database.zoneChanges(of: [ZoneQuery(zone, since: nil, limit: 10)])
      guard case .failure(let error)? = answer[zone] else {
        Issue.record("\(code) did not reach the zone")
        continue
      }
      #expect(error == CloudError(native: CKError(code)))
    }
  }

  @Test func `of a request that was cancelled are told from a cancelled task`() async throws {
    let scene = try await NativeScene()
    let database = scene.database
    scene.cloud.failNext(CKError(.operationCancelled))
    #expect(try await refusal { _ = try await database.zones() }.code == .networkError)
    let task = Task { () async throws -> [ZoneID] in
      while !Task.isCancelled { await Task.yield() }
      return try await database.zones()
    }
    task.cancel()
    await #expect(throws: CancellationError.self) { _ = try await task.value }
  }
}
