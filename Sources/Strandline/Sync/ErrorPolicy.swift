// What an error means: one table, asked by (code, whole request or item). Formats/remote.md states it for people; a
// test holds the two against each other.

/// What follows from a refusal.
package enum ErrorPolicy: Hashable, Sendable {
  /// Come back later; nothing was decided.
  case retry
  /// Look the record up, merge, send again.
  case resolve
  /// The record is not there.
  case missing
  /// The zone is not there.
  case zoneMissing
  /// Set this record aside, with the server's words.
  case hold
  /// Too much at once: ask for half of it. Of one record alone: set it aside.
  case split
  /// A person is needed.
  case signIn
  /// Stop with the server's words; nothing is lost.
  case halt

  /// What a refusal of one item means.
  package static func item(_ error: CloudError) -> ErrorPolicy {
    switch error.code {
    case .throttled, .tryAgainLater, .zoneBusy, .internalError, .serviceUnavailable, .networkError,
      .unexpectedServerResponse:
      .retry
    case .conflict, .exists: .resolve
    case .notFound: .missing
    case .zoneNotFound: .zoneMissing
    case .authenticationRequired, .authenticationFailed: .signIn
    // Quota, permission, validation, wrong types, and every code that is not known: this record waits for somebody,
    // the others do not.
    default: .hold
    }
  }

  /// What a refusal of a whole request means.
  package static func request(_ error: CloudError) -> ErrorPolicy {
    switch error.code {
    case .throttled, .tryAgainLater, .zoneBusy, .internalError, .serviceUnavailable, .networkError: .retry
    case .zoneNotFound: .zoneMissing
    case .authenticationRequired, .authenticationFailed: .signIn
    case .badRequest, .limitExceeded: .split
    // Quota is nothing that half a batch would mend.
    case .quotaExceeded: .halt
    default:
      if error.httpStatus == 413 {
        .split
      } else
      // A gateway in between may fail without CloudKit's words.
      if let status = error.httpStatus, (500...599).contains(status) {
        .retry
      } else {
        .halt
      }
    }
  }

  /// Whether a refusal of a request with a change token may be the token's fault. The web has no code for it: what has
  /// been seen is a BAD_REQUEST for that zone.
  static func mayBeExpiredToken(_ error: CloudError) -> Bool {
    error.code == .badRequest || error.code == .changeTokenExpired || error.code.rawValue.contains("TOKEN")
  }
}

extension CloudError {
  /// The public form of a refusal that stops a cycle. `retryAfter` is said only where the server said it.
  func asStrandlineError(_ doing: String, wait: Double? = nil, isServers: Bool = false) -> StrandlineError {
    let retryAfter = isServers ? wait : nil
    // The engine's own waits are not said: they bind its automatic cycles alone, and a call by hand does not wait.
    let later = retryAfter.map { "; try again in \(Int($0.rounded(.up))) s" } ?? ""
    switch code {
    case .networkError:
      return StrandlineError(
        .unreachable, "\(doing): the server cannot be reached: \(reason)\(later)", underlying: self,
        retryAfter: retryAfter)
    case .authenticationRequired, .authenticationFailed:
      let place = redirectURL.map { " at \($0)" } ?? ""
      return StrandlineError(
        .needsSignIn, "\(doing): the server wants a sign-in\(place): \(reason); give a new web auth token",
        underlying: self)
    default:
      if ErrorPolicy.request(self) == .retry {
        return StrandlineError(
          .throttled, "\(doing): the server asks to try again later (\(code.rawValue): \(reason))\(later)",
          underlying: self, retryAfter: retryAfter)
      }
      return StrandlineError(
        .serverRefused, "\(doing): the server refused: \(self); nothing is lost, what is unsent stays unsent",
        underlying: self)
    }
  }
}
