// An error of the cloud. The codes are those of CloudKit Web Services; a native adapter maps CKError to them. The set is open: an unknown
// code is passed on as it arrived.

/// A refusal, of a whole request or of one item in it.
public struct CloudError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The server's code: an open set.
  public struct Code: RawRepresentable, Hashable, Sendable {
    /// The code as the server spells it.
    public let rawValue: String
    /// Wraps a code as the server sent it.
    public init(rawValue: String) { self.rawValue = rawValue }
    private init(_ rawValue: String) { self.rawValue = rawValue }

    /// No permission for the endpoint, record, zone or database.
    public static let accessDenied = Code("ACCESS_DENIED")
    /// Another item of an atomic batch failed.
    public static let atomicError = Code("ATOMIC_ERROR")
    /// The credentials were rejected.
    public static let authenticationFailed = Code("AUTHENTICATION_FAILED")
    /// No user is signed in, or the session has ended.
    public static let authenticationRequired = Code("AUTHENTICATION_REQUIRED")
    /// Set by a native adapter: the device has no account. A session of the web that has ended is `authenticationRequired`, which does
    /// not say that the user is gone.
    public static let noAccount = Code("NO_ACCOUNT")
    /// The request was invalid; also a wrong field type or an unusable change token.
    public static let badRequest = Code("BAD_REQUEST")
    /// The change tag is stale.
    public static let conflict = Code("CONFLICT")
    /// The record to be created exists.
    public static let exists = Code("EXISTS")
    /// The server failed.
    public static let internalError = Code("INTERNAL_ERROR")
    /// The record or resource is missing.
    public static let notFound = Code("NOT_FOUND")
    /// The user's or the app's quota is used up.
    public static let quotaExceeded = Code("QUOTA_EXCEEDED")
    /// Too many requests.
    public static let throttled = Code("THROTTLED")
    /// The server is busy.
    public static let tryAgainLater = Code("TRY_AGAIN_LATER")
    /// A VALIDATE reference would break.
    public static let validatingReferenceError = Code("VALIDATING_REFERENCE_ERROR")
    /// The zone is missing.
    public static let zoneNotFound = Code("ZONE_NOT_FOUND")
    /// A unique field clashes.
    public static let uniqueFieldError = Code("UNIQUE_FIELD_ERROR")
    /// The zone is busy.
    public static let zoneBusy = Code("ZONE_BUSY")
    /// Too much in one request.
    public static let limitExceeded = Code("LIMIT_EXCEEDED")
    /// The change token has expired (native; the web says `BAD_REQUEST`).
    public static let changeTokenExpired = Code("CHANGE_TOKEN_EXPIRED")
    /// Set by the client, never sent by a server: the server could not be reached, or the connection broke.
    public static let networkError = Code("NETWORK_ERROR")
    /// Set by the client: there is no secure connection, because the server's certificate is not accepted, or this machine has no
    /// library for TLS. Nothing of the request was sent. The same request is not tried again: time alone does not change it.
    public static let noSecureConnection = Code("NO_SECURE_CONNECTION")
    /// Set by the client: an answer larger than it accepts. The request may have been carried out.
    public static let answerTooLarge = Code("ANSWER_TOO_LARGE")
    /// Set by the client: HTTP 503 without a body that can be parsed.
    public static let serviceUnavailable = Code("SERVICE_UNAVAILABLE")
    /// Set by the client: an answer that cannot be parsed.
    public static let unexpectedServerResponse = Code("UNEXPECTED_SERVER_RESPONSE")
    /// Set by the client: the transport cannot make this request.
    public static let unsupported = Code("UNSUPPORTED")
  }

  /// The server's code.
  public var code: Code
  /// The server's reason, as it sent it.
  public var reason: String
  /// Seconds to wait, if the server named a time.
  public var retryAfter: Double?
  /// The server's name for the request.
  public var requestUUID: String?
  /// The HTTP status; nil for an item, or without HTTP.
  public var httpStatus: Int?
  /// Where a person can sign in.
  public var redirectURL: String?
  /// Why the zone is gone of which this says that it is; nil if it does not say why.
  public var zoneLoss: ZoneLoss?
  /// The bytes of an item that this client could not read; empty for any other error. A store keeps them with the held record.
  public var raw: [UInt8] = []

  /// Makes an error.
  public init(
    _ code: Code, reason: String = "", retryAfter: Double? = nil, requestUUID: String? = nil,
    httpStatus: Int? = nil, redirectURL: String? = nil
  ) {
    self.code = code
    self.reason = reason
    self.retryAfter = retryAfter
    self.requestUUID = requestUUID
    self.httpStatus = httpStatus
    self.redirectURL = redirectURL
  }

  /// One line: code, reason, and the server's name for the request.
  public var description: String { words(afterStatus: retryAfter.map { ", retry after \($0) s" } ?? "") }

  /// The same without the time to wait, which is shorter when it is shown later.
  package var words: String { words(afterStatus: "") }

  private func words(afterStatus wait: String) -> String {
    var text = code.rawValue
    if !reason.isEmpty { text += ": \(reason)" }
    if let httpStatus { text += " (HTTP \(httpStatus))" }
    text += wait
    if let requestUUID { text += ", request \(requestUUID)" }
    return text.oneLine
  }
}
