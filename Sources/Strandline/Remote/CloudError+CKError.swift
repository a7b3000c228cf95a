// What the errors of Apple's CloudKit framework mean, in the codes of the web. With this an app's own `CloudDatabase` over
// CKDatabase decides nothing: the engine knows one set of codes.
//
// The numbers are those of CKError.Code (CloudKit/CKError.h of the macOS 26 SDK). Formats/remote.md has the same table.

extension CloudError.Code {
  /// The code that stands for one of `CKError.Code`, by its number; nil for a number that is none of them.
  ///
  /// `partialFailure` says nothing by itself: the errors of its items do. Where an adapter has nothing else, the engine
  /// asks what the server holds before it sends anything again.
  ///
  /// - Complexity: O(1).
  public init?(ckErrorCode number: Int) {
    guard number >= 1, number <= Self.byCKErrorCode.count else { return nil }
    self = Self.byCKErrorCode[number - 1].code
  }

  /// Swift's names of the codes, from number 1 on without a gap, and what each of them is on the web.
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
    // More is to come; an adapter asks on. One that gives it as an error is asked again.
    ("resultsTruncated", .tryAgainLater),
    ("serverRecordChanged", .conflict),
    ("serverRejectedRequest", .badRequest),
    ("assetFileNotFound", CloudError.Code(rawValue: "ASSET_FILE_NOT_FOUND")),
    ("assetFileModified", CloudError.Code(rawValue: "ASSET_FILE_MODIFIED")),
    // The app is too old for this container: a person has to update it.
    ("incompatibleVersion", CloudError.Code(rawValue: "INCOMPATIBLE_VERSION")),
    ("constraintViolation", .uniqueFieldError),
    // Any part of it may have been applied, as of an answer that was lost.
    ("operationCancelled", .networkError),
    ("changeTokenExpired", .changeTokenExpired),
    ("batchRequestFailed", .atomicError),
    ("zoneBusy", .zoneBusy),
    ("badDatabase", CloudError.Code(rawValue: "BAD_DATABASE")),
    ("quotaExceeded", .quotaExceeded),
    ("zoneNotFound", .zoneNotFound),
    ("limitExceeded", .limitExceeded),
    // The engine asks for the list of zones before it believes it.
    ("userDeletedZone", .zoneNotFound),
    ("tooManyParticipants", CloudError.Code(rawValue: "TOO_MANY_PARTICIPANTS")),
    ("alreadyShared", CloudError.Code(rawValue: "ALREADY_SHARED")),
    ("referenceViolation", .validatingReferenceError),
    // No account that may be used, whatever the reason: nothing is sent, and nothing is lost.
    ("managedAccountRestricted", .authenticationRequired),
    ("participantMayNeedVerification", CloudError.Code(rawValue: "PARTICIPANT_MAY_NEED_VERIFICATION")),
    ("serverResponseLost", .networkError),
    ("assetNotAvailable", CloudError.Code(rawValue: "ASSET_NOT_AVAILABLE")),
    ("accountTemporarilyUnavailable", .authenticationRequired),
    ("participantAlreadyInvited", CloudError.Code(rawValue: "PARTICIPANT_ALREADY_INVITED")),
  ]
}
