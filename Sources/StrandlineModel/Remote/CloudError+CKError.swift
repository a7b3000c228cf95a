// Maps the errors of Apple's CloudKit framework to the codes of CloudKit Web Services, the only ones that the engine knows. An app's
// own `CloudDatabase` over CKDatabase needs no error handling beyond this.
//
// The numbers are those of CKError.Code (CloudKit/CKError.h of the macOS 26 SDK). Formats/remote.md has the same table.

extension CloudError.Code {
  /// The code for a `CKError.Code`, by its number; nil for an unknown number.
  ///
  /// `partialFailure` has no meaning of its own: pass on the errors of its items. If an adapter passes on nothing else, the engine
  /// looks up the server's versions before it sends anything again.
  ///
  /// - Complexity: O(1).
  public init?(ckErrorCode number: Int) {
    guard number >= 1, number <= Self.byCKErrorCode.count else { return nil }
    self = Self.byCKErrorCode[number - 1].code
  }

  /// Swift's names of the codes, from number 1 on without a gap, each with the web's code.
  package static let byCKErrorCode: [(name: String, code: CloudError.Code)] = [
    ("internalError", .internalError),
    ("partialFailure", .unexpectedServerResponse),
    ("networkUnavailable", .networkError),
    ("networkFailure", .networkError),
    ("badContainer", CloudError.Code(rawValue: "BAD_CONTAINER")),
    ("serviceUnavailable", .serviceUnavailable),
    ("requestRateLimited", .throttled),
    ("missingEntitlement", CloudError.Code(rawValue: "MISSING_ENTITLEMENT")),
    ("notAuthenticated", .authenticationRequired),
    ("permissionFailure", .accessDenied),
    ("unknownItem", .notFound),
    ("invalidArguments", .badRequest),
    // An adapter should fetch the rest; if it throws this instead, the engine asks again.
    ("resultsTruncated", .tryAgainLater),
    ("serverRecordChanged", .conflict),
    ("serverRejectedRequest", .badRequest),
    ("assetFileNotFound", CloudError.Code(rawValue: "ASSET_FILE_NOT_FOUND")),
    ("assetFileModified", CloudError.Code(rawValue: "ASSET_FILE_MODIFIED")),
    // The app is too old for this container: a person has to update it.
    ("incompatibleVersion", CloudError.Code(rawValue: "INCOMPATIBLE_VERSION")),
    ("constraintViolation", .uniqueFieldError),
    // Any part of it may have been applied, as after a lost answer.
    ("operationCancelled", .networkError),
    ("changeTokenExpired", .changeTokenExpired),
    ("batchRequestFailed", .atomicError),
    ("zoneBusy", .zoneBusy),
    ("badDatabase", CloudError.Code(rawValue: "BAD_DATABASE")),
    ("quotaExceeded", .quotaExceeded),
    ("zoneNotFound", .zoneNotFound),
    ("limitExceeded", .limitExceeded),
    // The engine confirms it with the list of zones.
    ("userDeletedZone", .zoneNotFound),
    ("tooManyParticipants", CloudError.Code(rawValue: "TOO_MANY_PARTICIPANTS")),
    ("alreadyShared", CloudError.Code(rawValue: "ALREADY_SHARED")),
    ("referenceViolation", .validatingReferenceError),
    // No usable account, for any reason: nothing is sent, and nothing is lost.
    ("managedAccountRestricted", .authenticationRequired),
    ("participantMayNeedVerification", CloudError.Code(rawValue: "PARTICIPANT_MAY_NEED_VERIFICATION")),
    ("serverResponseLost", .networkError),
    ("assetNotAvailable", CloudError.Code(rawValue: "ASSET_NOT_AVAILABLE")),
    ("accountTemporarilyUnavailable", .authenticationRequired),
    ("participantAlreadyInvited", CloudError.Code(rawValue: "PARTICIPANT_ALREADY_INVITED")),
  ]
}
