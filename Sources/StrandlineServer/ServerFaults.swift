// What the server can be told to do wrong, and what it takes: one value each, so that a test or a command line
// says the whole of it at once.

/// Misbehaviour on demand. The default is to behave.
public struct ServerFaults: Sendable, Hashable {
  /// A refusal for being busy.
  public struct Throttle: Sendable, Hashable {
    /// 503 (`TRY_AGAIN_LATER`) or 429 (`THROTTLED`).
    public var status: Int
    /// Seconds, said in the header and in the body; nil says nothing.
    public var retryAfter: Double?
    /// How many requests are refused; nil for all.
    public var requests: Int?
    /// Joins the parts.
    public init(status: Int = 503, retryAfter: Double? = nil, requests: Int? = nil) {
      self.status = status
      self.retryAfter = retryAfter
      self.requests = requests
    }
  }

  /// Milliseconds that every answer waits.
  public var latencyMilliseconds: Int64 = 0
  /// Refuses requests as too many.
  public var throttle: Throttle?
  /// The N-th `records/modify` from now (1 is the next) is applied and durable, and never answered: a line
  /// `dropped answer N` is given out, and the connection stays open without a byte until the client closes it.
  public var dropAnswer: Int?
  /// Sync tokens given out before this was switched on are refused as expired; tokens given out since are good.
  public var expireTokens = false
  /// Serves a stale page: see `CloudServer`, "The stale page".
  public var replayPage = false
  /// Writes are refused with `QUOTA_EXCEEDED`.
  public var quotaExceeded = false
  /// Requests need a session: 421 without one, and each answer brings the next token. The token before stays
  /// good until its successor is first used, so that a lost answer does not lose the session.
  public var requireSession = false
  /// With `requireSession`: a token dies with the request that carried it.
  public var strictRotation = false
  /// `create` of a name that exists says `CONFLICT` instead of `EXISTS`; which of them the service says is not
  /// known.
  public var createConflictInsteadOfExists = false

  /// No faults.
  public init() {}
}

/// What the server takes: CloudKit's figures, which a test may make smaller.
public struct ServerLimits: Sendable, Hashable {
  /// Operations, or names looked up, in one request.
  public var operationsMax = 200
  /// Records in one page of changes.
  public var resultsMax = 200
  /// Bytes of one record, names and values.
  public var recordBytesMax = 1_000_000
  /// Characters of a record's or zone's name.
  public var nameCharactersMax = 255
  /// Records that refer to one target with DELETE_SELF.
  public var deleteSelfSourcesMax = 750
  /// Bytes at which a page of changes ends, even if it is not full; it has one record at least.
  public var pageBytesMax = 8 << 20
  /// Bytes of a request's header.
  public var headerBytesMax = 16 << 10
  /// Bytes of a request's body.
  public var bodyBytesMax = 16 << 20
  /// Connections at a time.
  public var connectionsMax = 64

  /// CloudKit's figures.
  public init() {}
}
