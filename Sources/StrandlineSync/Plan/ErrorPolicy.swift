// One table of what each server error means and what follows from it. `ErrorMeaning.init(_:)` has a line for each code; everything else
// here only reads such a line. Formats/remote.md has the first two columns for people; a test compares the two.

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
  /// The receipts of the record's contents may be too old: the contents go up again, and then the record.
  case receipt
  /// The storage of the zone's owner is full: nothing but deletions is sent to the owner's zones for a while.
  case stopSaves
  /// The user has to sign in.
  case signIn
  /// End the cycle with this error.
  case halt

  /// Whether one record may have caused this refusal of a request for several. Alone it would be refused again.
  package var mayBeOfOneRecord: Bool {
    switch self {
    case .hold, .split, .target, .resolve: true
    case .retry, .missing, .zoneMissing, .together, .receipt, .stopSaves, .signIn, .halt: false
    }
  }

  /// Whether a record that was refused is held.
  var holds: Bool {
    switch self {
    case .hold, .split, .halt: true
    case .retry, .resolve, .missing, .zoneMissing, .target, .together, .receipt, .stopSaves, .signIn: false
    }
  }

  /// Whether the server did nothing with a record that was refused. After a `retry` it may have saved it.
  var appliedNothing: Bool {
    switch self {
    case .hold, .halt, .split, .target, .signIn, .zoneMissing, .together, .receipt, .resolve: true
    case .retry, .missing, .stopSaves: false
    }
  }
}

/// How long a record is held that was refused with an error, if the server names no time.
enum HoldTime: Hashable, Sendable {
  /// Until it is edited or released: the record itself, or one that it refers to, is wrong, and time does not change that.
  case untilEdited
  /// As long as the app wants to wait for storage.
  case overQuota
  /// Longer each time.
  case doubling
}

/// What an error means: a line of the table.
package struct ErrorMeaning: Hashable, Sendable {
  /// The refusal of one item.
  package var item: ErrorPolicy
  /// The refusal of a whole request.
  package var request: ErrorPolicy
  /// Whether a request that was refused as a whole with it changed nothing at the server. An answer that is not CloudKit's, one that
  /// could not be read, and one of an overloaded server do not say.
  var appliedNothing = true
  /// Whether a smaller request may succeed: one that reads asks for less, and one that writes carries fewer records from now on.
  package var asksForLess = false
  /// Whether the answer was too large, and not the request: an answer that has no smaller parts is asked for again later.
  var isOfAnswer = false
  /// Whether the server answers no request of this kind.
  var isOfKind = false
  var hold = HoldTime.doubling
  /// Whether a record may have been refused because of a receipt of a content: the server documents neither how long one counts nor a code.
  var mayBeOfReceipt = false
  /// Whether a request may have been refused because its change token has expired. CloudKit Web Services documents no code for that; the
  /// live service answered BAD_REQUEST for the zone. Other servers may use a code like SYNC_TOKEN_EXPIRED.
  package var mayBeExpiredToken = false
  /// The error with which a cycle ends by it.
  var ends = StrandlineError.Code.serverRefused

  private init(_ item: ErrorPolicy, _ request: ErrorPolicy, _ change: (inout Self) -> Void = { _ in }) {
    (self.item, self.request) = (item, request)
    change(&self)
  }

  package init(_ error: CloudError) {
    switch error.code {
    case .throttled, .tryAgainLater, .zoneBusy, .internalError, .serviceUnavailable:
      self.init(.retry, .retry) { ($0.appliedNothing, $0.ends) = (false, .throttled) }
    case .networkError: self.init(.retry, .retry) { ($0.appliedNothing, $0.ends) = (false, .unreachable) }
    case .noSecureConnection: self.init(.retry, .halt) { ($0.appliedNothing, $0.ends) = (false, .unreachable) }
    case .unexpectedServerResponse: self.init(.retry, .halt) { $0.appliedNothing = false }
    case .conflict, .exists: self.init(.resolve, .halt) { $0.ends = .throttled }
    case .notFound: self.init(.missing, .halt)
    case .validatingReferenceError: self.init(.target, .halt) { $0.hold = .untilEdited }
    case .atomicError: self.init(.together, .halt)
    case .zoneNotFound: self.init(.zoneMissing, .zoneMissing)
    case .authenticationRequired, .authenticationFailed, .noAccount:
      self.init(.signIn, .signIn) { $0.ends = .needsSignIn }
    case .badRequest:
      self.init(.hold, .split) { ($0.hold, $0.mayBeExpiredToken, $0.mayBeOfReceipt) = (.untilEdited, true, true) }
    // The batch is too large, not the record; if it has one record: hold.
    case .limitExceeded: self.init(.split, .split) { ($0.asksForLess, $0.hold) = (true, .untilEdited) }
    case .answerTooLarge:
      self.init(.hold, .split) {
        ($0.appliedNothing, $0.asksForLess, $0.isOfAnswer) = (false, true, true)
      }
    // Half a batch would exceed the quota too.
    case .quotaExceeded: self.init(.hold, .stopSaves) { $0.hold = .overQuota }
    case .unsupported: self.init(.hold, .halt) { $0.isOfKind = true }
    // Permission, validation, wrong types, and every unknown code.
    default:
      let code = error.code.rawValue.uppercased()
      self.init(.hold, .halt) { $0.mayBeExpiredToken = code.contains("TOKEN") && code.contains("EXPIRED") }
    }
    // A code that says more than the status counts.
    guard request == .halt, let status = error.httpStatus else { return }
    if status == 413 {
      (request, appliedNothing, asksForLess) = (.split, true, true)
    } else if (500...599).contains(status) {
      // A gateway in between may fail with an answer that is not CloudKit's.
      (request, appliedNothing, ends) = (.retry, false, .throttled)
    }
  }
}

extension CloudError {
  /// What it means.
  package var meaning: ErrorMeaning { ErrorMeaning(self) }

  /// Whether no other request can succeed either: the cycle ends with it at once, and no zone or record has a part in it.
  var endsCycle: Bool { meaning.request == .signIn || code == .noSecureConnection }
}

extension CloudError {
  /// The public form of a refusal that ends a cycle. `retryAfter` is set only if the server named the wait.
  package func asStrandlineError(_ doing: String, wait: Double? = nil, isServers: Bool = false) -> StrandlineError {
    let retryAfter = isServers ? wait : nil
    // Without the engine's own backoff, which delays automatic cycles only and not a later `sync()`.
    let later = retryAfter.map { "; try again in \(Int($0.rounded(.up))) s" } ?? ""
    let meaning = meaning
    switch meaning.ends {
    case .throttled where meaning.item == .resolve:
      return error(
        .throttled, "\(doing): \(words); unsent changes stay in the store, and are sent again\(later)", retryAfter)
    case .throttled:
      return error(.throttled, "\(doing): the server asks to try again later (\(words))\(later)", retryAfter)
    case .unreachable:
      return error(.unreachable, "\(doing): the server cannot be reached: \(words)\(later)", retryAfter)
    case .needsSignIn:
      let place = redirectURL.map { " at \($0)" } ?? ""
      return error(
        .needsSignIn,
        "\(doing): the server requires a sign-in\(place): \(reason) (\(code.rawValue)); sign in and pass the new web auth token"
      )
    default:
      return error(
        .serverRefused, "\(doing): the server refused the request: \(words); unsent changes stay in the store")
    }
  }

  /// The words of the server are in the message, once.
  private func error(_ code: StrandlineError.Code, _ message: String, _ retryAfter: Double? = nil) -> StrandlineError {
    var error = StrandlineError(code, message, underlying: self, retryAfter: retryAfter)
    error.saysCause = true
    return error
  }
}

extension Held {
  /// What the refusal means for which a change is held.
  var meaning: ErrorMeaning { CloudError(CloudError.Code(rawValue: code), reason: words).meaning }

  /// Whether a reference is the cause. Then the hold is only shown to the app, and the record waits for its target.
  var isOfReference: Bool { durationMilliseconds == 0 && meaning.item == .target }
}
