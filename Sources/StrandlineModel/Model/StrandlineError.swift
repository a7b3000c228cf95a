// The one error that the store's public calls throw: a code for programs, a sentence for people, the place on disk and
// the line of the app that it is about, and what caused it.

/// What went wrong. The store and its engine throw this, besides `CancellationError` and what an app's own closure throws.
///
/// A `CloudDatabase` throws `CloudError`; the engine makes a `StrandlineError` of it, with the refusal as `underlying`.
public struct StrandlineError: Error, Sendable, CustomStringConvertible {
  /// The kind of failure. Later versions may add codes, so a `switch` needs a default.
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
    /// Another writer, in this process or another one, has the store open.
    public static let storeHeld = Code("storeHeld")
    /// The store does not lie at its path any more: its folder was moved, removed or replaced, or a copy was put over its
    /// files, while it was open or suspended. Nothing was written to what lies there now. The message says where what was
    /// acknowledged is; close the store, and open the one at the path.
    public static let storeReplaced = Code("storeReplaced")
    /// Acknowledged data is damaged; nothing was changed.
    public static let damaged = Code("damaged")
    /// The store holds data of a later version of Strandline, or the server a record of a later version of the app
    /// (`NewerVersionRule.haltForUpgrade`); nothing was changed.
    public static let fromTheFuture = Code("fromTheFuture")
    /// The disk or the quota is full. Nothing of the write was kept; writes succeed again when there is room.
    public static let diskFull = Code("diskFull")
    /// The device or the file system failed. The write did not happen, or its outcome is unknown if the
    /// message says so.
    public static let io = Code("io")
    /// The system refuses the store's files because the device is locked (data protection on iOS). Nothing was changed and
    /// nothing is damaged; the same call succeeds when the device is unlocked.
    public static let temporarilyUnavailable = Code("temporarilyUnavailable")
    /// A write's outcome cannot be known: the sync failed. The store refuses writes until it is reopened.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The store is closed.
    public static let closed = Code("closed")
    /// The store is suspended and cannot be written; it can again after `resume()`.
    public static let suspended = Code("suspended")
    /// The store was opened with `openReadOnly`, which cannot write.
    public static let readOnly = Code("readOnly")
    /// The store was compacted by its writer since it was opened for reading; open it again.
    public static let outdated = Code("outdated")
    /// The record was deleted; `create` begins a new life under its name.
    public static let recordWasDeleted = Code("recordWasDeleted")
    /// `create` was asked for a record that exists.
    public static let recordExists = Code("recordExists")
    /// What the call names is not there: a position of another store, or of a history that a restored backup has replaced; a
    /// record that is not held (`RecordStore.releaseHolds`), that owes nothing (`discardChanges`), or of which the log has no
    /// version (`restore`); a record that is edited and never was here (`update`). Nothing was changed.
    public static let noSuchRecord = Code("noSuchRecord")
    /// The content of an asset is not in the store: it was not staged, or was removed because nothing named it.
    public static let noSuchContent = Code("noSuchContent")
    /// Compaction has removed events after the position: not all that changed since then can be told. Begin with a view
    /// of the store, and go on after its position.
    public static let positionExpired = Code("positionExpired")
    /// A view that is held, or a projection that has not applied them, keeps more than 256 MiB of events from being
    /// compacted. What is older was compacted.
    public static let eventsHeld = Code("eventsHeld")
    /// A name that CloudKit would refuse.
    public static let invalidName = Code("invalidName")
    /// The zone belongs to another user, or to a user whom the store does not know yet; or the configuration leaves it out
    /// (`SyncConfiguration.zones`).
    public static let foreignZone = Code("foreignZone")
    /// The record's zone lies in a database that the store does not sync: private, shared or public.
    public static let foreignScope = Code("foreignScope")
    /// A value that CloudKit would refuse.
    public static let invalidValue = Code("invalidValue")
    /// A record or transaction over the limit.
    public static let tooLarge = Code("tooLarge")
    /// A record does not have the shape that the Swift type asks for.
    public static let typeMismatch = Code("typeMismatch")
    /// A record lacks a field for a property that is not optional, and the type has no prototype with a value for it.
    public static let missingField = Code("missingField")
    /// A call that cannot be made where or as it was: inside a closure of `write` one that would wait for that closure, which
    /// the message names with the call; a closure of `update` that gives the value another ID; a value whose version is that
    /// of a transaction that failed. Nothing was changed.
    public static let misuse = Code("misuse")
    /// The store was opened without `syncing:`.
    public static let notSyncing = Code("notSyncing")
    /// The store belongs to another container, environment or user.
    public static let accountMismatch = Code("accountMismatch")
    /// The server asks for a sign-in.
    public static let needsSignIn = Code("needsSignIn")
    /// The server cannot be reached.
    public static let unreachable = Code("unreachable")
    /// The server is busy, or limits this client; try again after `retryAfter`.
    public static let throttled = Code("throttled")
    /// The server refused the request, or its answer cannot be parsed.
    public static let serverRefused = Code("serverRefused")
    /// A change is not at the server, and will not be before the app or a person does something: it is held, or it was
    /// rejected or given up, or its record was deleted there.
    public static let notUploaded = Code("notUploaded")
    /// The sync engine went in a circle and has ended the run: a fault of this library. What is owed stays in the store.
    public static let noProgress = Code("noProgress")
    /// The store knows no such zone.
    public static let noSuchZone = Code("noSuchZone")
    /// The server no longer has the zone, or much less of it than it once acknowledged. Its records stay readable here;
    /// `SyncEngine.resync` lets one side decide.
    public static let zoneLost = Code("zoneLost")

    /// Whether the same call may succeed later although neither app nor user does anything about the cause.
    public var isTransient: Bool {
      [.unreachable, .throttled, .storeHeld, .diskFull, .outdated, .temporarilyUnavailable].contains(self)
    }
  }

  /// The kind of failure.
  public var code: Code
  /// What happened, where, and what to do.
  public var message: String
  /// The file or folder that the error is about, as a path; nil if it is about none.
  ///
  /// For `.damaged` the file whose bytes do not verify. For `.notAStore`, `.storeHeld` or `.io` it may be the store's
  /// folder.
  public var file: String?
  /// The first byte in `file` that the error is about, counted from 0; nil if it is about the file as a whole.
  public var offset: UInt64?
  /// The events that the error is about: those that cannot be read, or those whose write has an unknown outcome. Nil if
  /// it is about none, or if the damage leaves open which they were.
  public var lsns: ClosedRange<LSN>?
  /// What caused it: an operating system's error, a server's refusal (`CloudError`), or nil.
  ///
  /// Of these only `CloudError` is a public type; print the others.
  public var underlying: (any Error)?
  /// A run of the index failed, and the runs have to be made anew.
  package var isOfIndex = false
  /// The index said what the log does not say: nothing that was made of its runs is believed. It is of the index then.
  package var isOfLyingIndex = false
  /// One record cannot be read, and others can: what failed is neither the index nor the file system.
  package var isOfOneRecord: Bool { !isOfIndex && (code == .damaged || code == .fromTheFuture) }
  /// The message has the words of `underlying`, in another order.
  package var saysCause = false
  /// How long to wait before the next try, in seconds, where the server said so.
  public var retryAfter: Double?
  /// The line of the app that made the call that failed, as "Module/File.swift:41".
  ///
  /// Public functions in which the caller can make a mistake, as in a value, a condition or a schema, take its `#fileID` and `#line` as
  /// default arguments: `open`, `write`, what a transaction does, queries. An error inside a closure of `write` names the line of the
  /// transaction's call. Nil elsewhere.
  public var location: String?

  /// Makes an error, for an app's own `CloudDatabase` or its tests.
  public init(
    _ code: Code, _ message: String, file: String? = nil, offset: UInt64? = nil, lsns: ClosedRange<LSN>? = nil,
    underlying: (any Error)? = nil, retryAfter: Double? = nil, location: String? = nil
  ) {
    self.code = code
    self.message = message
    self.file = file
    self.offset = offset
    self.lsns = lsns
    self.underlying = underlying
    self.retryAfter = retryAfter
    self.location = location
  }

  /// One line: the message, its chain of causes in brackets, and the caller's line.
  public var description: String {
    let place = location.map { " (called at \($0))" } ?? ""
    return (chain + place).split(whereSeparator: \.isNewline).joined(separator: " ")
  }

  /// The message, and the causes that it does not quote already.
  private var chain: String {
    guard let underlying else { return message }
    let cause = (underlying as? StrandlineError)?.chain ?? "\(underlying)"
    return saysCause || message.contains(cause) ? message : "\(message) [\(cause)]"
  }
}

extension StrandlineError.Code {
  /// Lets a `catch` or a `switch` ask for a code:
  ///
  /// ```swift
  /// do {
  ///   try await store.write { tx in try tx.save(note) }
  /// } catch StrandlineError.Code.recordWasDeleted {
  ///   try await store.write { tx in try tx.create(note) }
  /// } catch StrandlineError.Code.diskFull {
  ///   showFullDisk()
  /// }
  /// ```
  ///
  /// An error of any other type matches no code.
  public static func ~= (code: Self, error: any Error) -> Bool { (error as? StrandlineError)?.code == code }
}
