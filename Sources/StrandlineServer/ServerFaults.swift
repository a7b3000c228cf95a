// The faults that a test or the command line can switch on, and the server's limits.

import StrandlineSystem

/// What the server does wrong on demand. By default nothing.
public struct ServerFaults: Sendable, Hashable {
  /// Refuses requests because the server is busy.
  public struct Throttle: Sendable, Hashable {
    /// 503 (`TRY_AGAIN_LATER`) or 429 (`THROTTLED`).
    public var status: Int
    /// Seconds that the client should wait, in the header and in the body; nil for none.
    public var retryAfter: Double?
    /// How many requests are refused; nil for all.
    public var requests: Int?
    /// Makes a refusal.
    public init(status: Int = 503, retryAfter: Double? = nil, requests: Int? = nil) {
      self.status = status
      self.retryAfter = retryAfter
      self.requests = requests
    }
  }

  /// By how much every answer is delayed, in whole milliseconds.
  public var latency: Duration {
    get { .milliseconds(latencyMilliseconds) }
    set { latencyMilliseconds = newValue.wholeMilliseconds }
  }
  package var latencyMilliseconds: Int64 = 0
  /// Refuses requests because the server is busy.
  public var throttle: Throttle?
  /// The N-th `records/modify` from now (1 is the next) is applied and durable, and never answered: the server prints
  /// `dropped answer N`, and the connection stays open without a byte until the client closes it.
  public var dropAnswer: Int?
  /// Sync tokens given out before this was switched on are refused as expired; later ones are valid.
  public var expireTokens = false
  /// After a deletion, shows a client once more the records as it had seen them first; CloudServer+Feed.swift has the
  /// details.
  package var replayPage = false
  /// Requests that save records are refused with `QUOTA_EXCEEDED`, with the deletions in them. Deletions alone are taken.
  public var quotaExceeded = false
  /// Requests need a session: 421 without one, and each answer brings the next token. A token stays valid until its
  /// successor is first used, so that a lost answer does not lose the session. The public database is read without one. A
  /// server keeps no sessions: once it was started again it takes any token that an earlier one gave out, an old one too,
  /// as the session's newest.
  public var requireSession = false
  /// With `requireSession`: a token is valid for one request only.
  package var strictRotation = false
  /// By how much the server's clock is ahead of this machine's, in whole milliseconds; negative if it is late. Answers show
  /// it in `Date`, and records in the times at which the server saved them. Set it lower while clients run, and the clock goes
  /// back.
  public var clockAhead: Duration {
    get { .milliseconds(clockAheadMilliseconds) }
    set { clockAheadMilliseconds = newValue.wholeMilliseconds }
  }
  package var clockAheadMilliseconds: Int64 = 0
  /// `create` of a name that exists is refused with `CONFLICT` instead of `EXISTS`; which one the live service uses is
  /// not known.
  package var createConflictInsteadOfExists = false

  /// The content host answers every request with this status and without JSON: 421 as one that was sent on a connection to another
  /// host, 503 as one that is busy; nil as it should.
  public var contentHostStatus: Int?
  /// Addresses of contents that were given out before this was switched on are refused as expired (410); later ones are valid.
  public var expireContentAddresses = false

  /// No faults.
  public init() {}
}

/// The server's limits: CloudKit's where CloudKit has one. A test may make them smaller.
package struct ServerLimits: Sendable, Hashable {
  /// The most operations, or names looked up, in one request.
  package var operationsMax = 200
  /// The most zones that one `changes/zone` asks about.
  package var zonesAskedMax = 200
  /// The most zones of one database; CloudKit's limit for a container.
  package var zonesMax = 1000
  /// The most records in one page of changes.
  package var resultsMax = 200
  /// The most bytes of one record, names and values.
  package var recordBytesMax = 1_000_000
  /// The most bytes of the content of an asset: 50 MB by CloudKit's table of properties; its page on uploads says 15.
  package var assetBytesMax: Int64 = 50_000_000
  /// The most characters of a record's or zone's name, counted in Unicode scalars: of a character that a reader sees as
  /// one there is no limit to its bytes.
  package var nameCharactersMax = 255
  /// The most records that refer to one target with DELETE_SELF.
  package var deleteSelfSourcesMax = 750
  /// The bytes of records at which an answer ends, whatever number of records or zones was asked for. Pages of changes
  /// end there, with one record in all at least, and say that more is to come; a lookup of more than one record is refused
  /// with `LIMIT_EXCEEDED`, and so is a modification whose answer would show more.
  package var answerBytesMax = 8 << 20
  /// The most bytes of the records that one `records/modify` saves, as they are after it.
  package var modifyBytesMax = 32 << 20
  /// The most references with DELETE_SELF or VALIDATE of the records that one `records/modify` saves, as they are after
  /// it. CloudKit names no such limit.
  package var modifyLinksMax = 20_000
  /// How many references and changes one `records/modify` may look at again, because an operation is refused after others
  /// were applied that are then looked at without it.
  package var modifyRepeatsMax = 1_000_000
  /// How long a query may take: the server has no indexes, and reads the records that a query names fields of.
  package var queryMillisecondsMax: Int64 = 10_000
  /// Whether a field of a record type keeps the type of its first value: a value of another type is then refused, as in
  /// CloudKit's production environment. No limit of bytes, but a rule of the server like the others here.
  package var fixesFieldTypes = true
  /// The most bytes of a request's header.
  package var headerBytesMax = 16 << 10
  /// The most bytes of a request's body.
  package var bodyBytesMax = 16 << 20
  /// The most bytes that all requests' bodies, and all answers that are being sent, take at a time, without those of 64 KiB or
  /// less. If they are more, the connections are cut that have for longest sent no whole request, or not read their answer.
  package var bodiesBytesMax = 256 << 20
  /// The most requests at a time that hold more than a little while they are answered. Others wait, none is refused.
  package var largeRequestsMax = 8
  /// The most connections at a time, as far as the process may have so many descriptors. If all are taken, the one that
  /// has sent no whole request for longest is cut for a new one; if all are being answered, the new one gets 503.
  package var connectionsMax = 500

  /// The default limits.
  package init() {}
}
