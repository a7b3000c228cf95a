// CloudKit's errors in the engine's words. `CloudError.Code.byCKErrorCode` is the table of codes; here is what an error says
// besides: how long to wait, why a zone is gone, the errors of single items.

#if canImport(CloudKit)
  internal import CloudKit
  internal import Foundation
  internal import Strandline
  internal import StrandlineCloudKit

  /// Where the framework puts the server's name of the request. It documents no name for the key.
  private let requestKey = "RequestUUID"
  /// The most characters of its words that are kept.
  private let wordsMax = 1_000

  extension CloudError {
    /// An error of the framework.
    init(native error: any Error) {
      guard let error = error as? CKError else {
        let known = error as NSError
        // Without an answer it is not known what was done.
        let code: Code = known.domain == NSURLErrorDomain ? .networkError : .unexpectedServerResponse
        self.init(code, reason: String("\(known.domain) \(known.code)".prefix(wordsMax)))
        return
      }
      // A failure of parts is passed on as that of a part which has not only followed from another one's.
      if error.code == .partialFailure, let parts = error.partialErrorsByItemID?.values, !parts.isEmpty {
        let errors = parts.map { CloudError(native: $0) }.sorted { $0.description < $1.description }
        self = errors.first { $0.code != .atomicError } ?? errors[0]
        return
      }
      self.init(
        Code(ckErrorCode: error.errorCode) ?? Code(rawValue: "CKERROR_\(error.errorCode)"),
        reason: String(error.localizedDescription.prefix(wordsMax)),
        retryAfter: WebServicesErrors.bounded(error.retryAfterSeconds),
        requestUUID: error.userInfo[requestKey] as? String)
      zoneLoss = error.zoneLoss
    }
  }

  extension CKError {
    /// Why a zone is gone; nil if it does not say so.
    fileprivate var zoneLoss: ZoneLoss? {
      switch code {
      // In the settings of the device: all data of the app.
      case .userDeletedZone: .purged
      case .zoneNotFound where (userInfo[CKErrorUserDidResetEncryptedDataKey] as? NSNumber)?.boolValue == true:
        .encryptedDataReset
      default: nil
      }
    }

    /// Whether it is about the zone that was asked for, and not about the request.
    var isOfZone: Bool {
      switch code {
      case .zoneNotFound, .userDeletedZone, .changeTokenExpired, .zoneBusy, .permissionFailure, .invalidArguments,
        .serverRejectedRequest, .unknownItem, .internalError:
        true
      default: false
      }
    }
  }
#endif
