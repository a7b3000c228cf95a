// One table of what each server error means, for a whole request and for one item of it. Formats/remote.md has it for people; a test
// compares the two.

/// What follows from a refusal.
package enum ErrorPolicy: Hashable, Sendable {
  /// Wait, then try again. The server may have applied any part of the request.
  case retry
  /// Look the record up, merge, send again.
  case resolve
  /// The server does not have the record.
  case missing
  /// The server does not have the zone.
  case zoneMissing
  /// Do not send this record again until it is edited or released; send the others.
  case hold
  /// A reference forbids it: wait for the record that it refers to, or, of a deletion, for those that refer to it.
  case target
  /// The request is too large: send it in halves. If it holds one record, hold that record.
  case split
  /// Another record of the request was refused, and with it all of them: send this one again, together with that one.
  case together
  /// The storage of the zone's owner is full: nothing but deletions is sent to the owner's zones for a while.
  case stopSaves
  /// The user has to sign in.
  case signIn
  /// End the cycle with this error.
  case halt

  /// What a refusal of one item means.
  package static func item(_ error: CloudError) -> ErrorPolicy {
    switch error.code {
    case .throttled, .tryAgainLater, .zoneBusy, .internalError, .serviceUnavailable, .networkError,
      .unexpectedServerResponse:
      .retry
    case .conflict, .exists: .resolve
    case .notFound: .missing
    case .validatingReferenceError: .target
    // The batch is too large, not the record; if it has one record: hold.
    case .limitExceeded: .split
    case .zoneNotFound: .zoneMissing
    case .atomicError: .together
    case .authenticationRequired, .authenticationFailed: .signIn
    // Quota, permission, validation, wrong types, and every unknown code.
    default: .hold
    }
  }

  /// What a refusal of a whole request means.
  package static func request(_ error: CloudError) -> ErrorPolicy {
    switch error.code {
    case .throttled, .tryAgainLater, .zoneBusy, .internalError, .serviceUnavailable, .networkError: .retry
    case .zoneNotFound: .zoneMissing
    case .authenticationRequired, .authenticationFailed: .signIn
    case .badRequest, .limitExceeded, .answerTooLarge: .split
    // Half a batch would exceed the quota too.
    case .quotaExceeded: .stopSaves
    default:
      if error.httpStatus == 413 {
        .split
      } else
      // A gateway in between may fail with an answer that is not CloudKit's.
      if let status = error.httpStatus, (500...599).contains(status) {
        .retry
      } else {
        .halt
      }
    }
  }

  /// Whether a request that was refused as a whole with this error changed nothing at the server. An answer that is not CloudKit's,
  /// one that could not be read, and one of an overloaded server do not say.
  static func appliedNothing(_ error: CloudError) -> Bool {
    guard request(error) != .retry, error.code != .answerTooLarge else { return false }
    return error.code != .unexpectedServerResponse || error.httpStatus == 413
  }

  /// Whether a request that only reads may succeed if it asks for less. BAD_REQUEST has another cause than the size.
  package static func asksForLess(_ error: CloudError) -> Bool { request(error) == .split && error.code != .badRequest }

  /// Whether one record may have caused this refusal of a request for several. Alone it would be refused again.
  package static func mayBeOfOneRecord(_ error: CloudError) -> Bool {
    switch item(error) {
    case .hold, .split, .target, .resolve: true
    case .retry, .missing, .zoneMissing, .together, .stopSaves, .signIn, .halt: false
    }
  }

  /// Whether a request may have been refused because its change token has expired. CloudKit Web Services documents no code for that;
  /// the live service answered BAD_REQUEST for the zone. Other servers may use a code like SYNC_TOKEN_EXPIRED.
  package static func mayBeExpiredToken(_ error: CloudError) -> Bool {
    let code = error.code.rawValue.uppercased()
    return error.code == .badRequest || (code.contains("TOKEN") && code.contains("EXPIRED"))
  }
}

extension CloudError {
  /// The public form of a refusal that ends a cycle. `retryAfter` is set only if the server named the wait.
  package func asStrandlineError(_ doing: String, wait: Double? = nil, isServers: Bool = false) -> StrandlineError {
    let retryAfter = isServers ? wait : nil
    // Without the engine's own backoff, which delays automatic cycles only and not a later `now()`.
    let later = retryAfter.map { "; try again in \(Int($0.rounded(.up))) s" } ?? ""
    switch code {
    case .conflict, .exists:
      return StrandlineError(
        .throttled, "\(doing): \(reason); unsent changes stay in the store, and are sent again\(later)",
        underlying: self,
        retryAfter: retryAfter)
    case .networkError:
      return StrandlineError(
        .unreachable, "\(doing): the server cannot be reached: \(reason)\(later)", underlying: self,
        retryAfter: retryAfter)
    case .authenticationRequired, .authenticationFailed:
      let place = redirectURL.map { " at \($0)" } ?? ""
      return StrandlineError(
        .needsSignIn,
        "\(doing): the server requires a sign-in\(place): \(reason); sign in and pass the new web auth token",
        underlying: self)
    default:
      if ErrorPolicy.request(self) == .retry {
        return StrandlineError(
          .throttled, "\(doing): the server asks to try again later (\(code.rawValue): \(reason))\(later)",
          underlying: self, retryAfter: retryAfter)
      }
      return StrandlineError(
        .serverRefused, "\(doing): the server refused the request: \(self); unsent changes stay in the store",
        underlying: self)
    }
  }
}
