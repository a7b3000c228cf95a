// The one public error: a code that programs ask, a sentence that people read, what caused it, and where.

/// What went wrong. Everything that Strandline's public calls throw, besides `CancellationError`.
public struct StrandlineError: Error, Sendable, CustomStringConvertible {
  /// The kind of failure. New codes may come; switch with a default.
  public struct Code: RawRepresentable, Hashable, Sendable {
    /// The code's name.
    public let rawValue: String
    /// Names a code.
    public init(rawValue: String) { self.rawValue = rawValue }
    private init(_ rawValue: String) { self.rawValue = rawValue }

    /// No store is at the path.
    public static let noSuchStore = Code("noSuchStore")
    /// Something else is at the path.
    public static let notAStore = Code("notAStore")
    /// Another process (or this one) holds the store.
    public static let storeHeld = Code("storeHeld")
    /// Acknowledged data is damaged; nothing was changed.
    public static let damaged = Code("damaged")
    /// The store was written by a newer version.
    public static let fromTheFuture = Code("fromTheFuture")
    /// No room on the disk. Nothing of the write was kept; writes work again when there is room.
    public static let diskFull = Code("diskFull")
    /// The device or the file system failed. The write did not happen, or its outcome is unknown if the
    /// message says so.
    public static let io = Code("io")
    /// A write's outcome cannot be known: the sync failed. The store refuses writes until it is reopened.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The store is closed.
    public static let closed = Code("closed")
    /// The store was opened for reading.
    public static let readOnly = Code("readOnly")
    /// The store was compacted by its writer since it was opened for reading; open it again.
    public static let outdated = Code("outdated")
    /// The record was deleted; `create` begins a new life under its name.
    public static let recordWasDeleted = Code("recordWasDeleted")
    /// The record lives already.
    public static let recordExists = Code("recordExists")
    /// There is no such record.
    public static let noSuchRecord = Code("noSuchRecord")
    /// A name that CloudKit would refuse.
    public static let invalidName = Code("invalidName")
    /// A value that CloudKit would refuse.
    public static let invalidValue = Code("invalidValue")
    /// A record or transaction over the limit.
    public static let tooLarge = Code("tooLarge")
    /// A record does not have the shape that the Swift type asks for.
    public static let typeMismatch = Code("typeMismatch")
    /// The store was opened without `syncing:`.
    public static let notSyncing = Code("notSyncing")
    /// The store belongs to another container, environment or user.
    public static let accountMismatch = Code("accountMismatch")
    /// The server wants a sign-in.
    public static let needsSignIn = Code("needsSignIn")
    /// The server cannot be reached.
    public static let unreachable = Code("unreachable")
    /// The server asks to come back later.
    public static let throttled = Code("throttled")
    /// The server refused or answered what cannot be understood.
    public static let serverRefused = Code("serverRefused")
    /// The zone is gone at the server; it is kept here, readable, until you decide.
    public static let zoneLost = Code("zoneLost")

    /// Whether the same call may succeed later without anybody's help.
    public var isTransient: Bool {
      [.unreachable, .throttled, .storeHeld, .diskFull, .outdated].contains(self)
    }
  }

  /// The kind of failure.
  public var code: Code
  /// What happened, where, and what to do.
  public var message: String
  /// What caused it.
  public var underlying: (any Error)?
  /// How long to wait, in seconds, where the server said so.
  public var retryAfter: Double?
  /// The source line that made this error.
  public var location: String

  /// Makes an error.
  public init(
    _ code: Code, _ message: String, underlying: (any Error)? = nil, retryAfter: Double? = nil,
    file: String = #fileID, line: Int = #line
  ) {
    self.code = code
    self.message = message
    self.underlying = underlying
    self.retryAfter = retryAfter
    self.location = "\(file):\(line)"
  }

  /// The sentence, and the chain of causes.
  public var description: String {
    guard let underlying else { return message }
    return "\(message) [\(underlying)]"
  }
}
