// The errors of the stand-in for Apple's CloudKit, with the numbers that Apple's have. The texts of the keys are the stand-in's own:
// Apple does not document them, so the adapter uses the names alone.

public import Foundation

/// The domain of CloudKit's errors.
public let CKErrorDomain = "CKErrorDomain"
/// Seconds to wait, an NSNumber.
public let CKErrorRetryAfterKey = "stand-in.retryAfter"
/// The errors of items, by their IDs.
public let CKPartialErrorsByItemIDKey = "stand-in.partialErrors"
/// Whether the zone is gone because the user reset the encrypted data, an NSNumber.
public let CKErrorUserDidResetEncryptedDataKey = "stand-in.userDidResetEncryptedData"
/// The server's version of a record that could not be saved.
public let CKRecordChangedErrorServerRecordKey = "stand-in.serverRecord"

/// An error of CloudKit.
public struct CKError: Error, CustomNSError, Sendable {
  /// What is wrong.
  public enum Code: Int, Sendable, CaseIterable {
    /// By the numbers of CKError.h.
    case internalError = 1
    case partialFailure, networkUnavailable, networkFailure, badContainer, serviceUnavailable, requestRateLimited
    case missingEntitlement, notAuthenticated, permissionFailure, unknownItem, invalidArguments, resultsTruncated
    case serverRecordChanged, serverRejectedRequest, assetFileNotFound, assetFileModified, incompatibleVersion
    case constraintViolation, operationCancelled, changeTokenExpired, batchRequestFailed, zoneBusy, badDatabase
    case quotaExceeded, zoneNotFound, limitExceeded, userDeletedZone, tooManyParticipants, alreadyShared
    case referenceViolation, managedAccountRestricted, participantMayNeedVerification, serverResponseLost
    case assetNotAvailable, accountTemporarilyUnavailable, participantAlreadyInvited
  }

  private let error: NSError

  /// An error with these details.
  public init(_ code: Code, userInfo: [String: Any] = [:]) {
    error = NSError(domain: CKErrorDomain, code: code.rawValue, userInfo: userInfo)
  }

  /// What is wrong.
  public var code: Code { Code(rawValue: error.code) ?? .internalError }
  /// Its number.
  public var errorCode: Int { error.code }
  /// The details.
  public var errorUserInfo: [String: Any] { error.userInfo }
  /// The details.
  public var userInfo: [String: Any] { error.userInfo }
  /// The domain.
  public static var errorDomain: String { CKErrorDomain }
  /// The words.
  public var localizedDescription: String { userInfo[NSLocalizedDescriptionKey] as? String ?? "\(code)" }

  /// The errors of items.
  public var partialErrorsByItemID: [AnyHashable: any Error]? {
    userInfo[CKPartialErrorsByItemIDKey] as? [AnyHashable: any Error]
  }
  /// The server's version of the record.
  public var serverRecord: CKRecord? { userInfo[CKRecordChangedErrorServerRecordKey] as? CKRecord }
  /// Seconds to wait.
  public var retryAfterSeconds: Double? { (userInfo[CKErrorRetryAfterKey] as? NSNumber)?.doubleValue }
}
