// The engine's status as one value: for a line in an app's settings, for a progress bar, and for the support mail of a user whose
// sync does not work.

public import Foundation

/// What the sync engine is doing, what it waits for and what is pending, at one moment. Times are by this device's clock.
public struct SyncStatus: Hashable, Sendable {
  /// What the engine is doing.
  public enum Phase: String, Hashable, Sendable, CaseIterable {
    /// Nothing: it waits for a write, a push or the next poll.
    case idle
    /// It asks the server for changes.
    case fetching
    /// It sends changes.
    case uploading
    /// A request has failed or was refused, and the next one waits: `wait` says until when and why.
    case waiting
    /// A record waits for a person (`held`), or the server refuses a whole type or zone (`halts`): `sentence` says what. All other
    /// records are still synced, except after `StrandlineError.Code.needsSignIn`, `accountMismatch` and `fromTheFuture`.
    case needsPerson
    /// The store is suspended.
    case paused
    /// The store is closed.
    case stopped
  }

  /// Records that are held for one cause.
  public struct HeldGroup: Hashable, Sendable {
    /// The server's code; `.damaged`; `.newerSchema` (`NewerVersionRule.reject`); or `.parentMissing` for fetched records that the app
    /// does not see until their parent has arrived, at the latest with the last page of their zone (`ParentSchema`).
    public var code: CloudError.Code
    /// The number of records.
    public var count: Int
    /// Whether these are versions of the server that cannot be read; if not, changes of this store.
    public var isDownload: Bool
    /// When the first of them is tried again by itself; nil if only an edit, `releaseHolds` or `discardChanges` ends it.
    public var nextTry: Date? { nextTryMilliseconds.map { Date(milliseconds: $0) } }
    package var nextTryMilliseconds: Int64?
  }

  /// A progress, for a progress bar.
  public struct Progress: Hashable, Sendable {
    /// The number of records that are done.
    public var done: Int
    /// The number of all records, as far as it is known.
    public var total: Int
  }

  /// The fetches of the cycle under way, or of the last one.
  public struct Download: Hashable, Sendable {
    /// Pages of changes, of one zone each.
    public var pages: Int
    /// Records and deletions in them.
    public var records: Int
    /// Zones with changes that are not fetched yet.
    public var zonesLeft: Int
    /// For zones that are listed first (`FirstFetch.recentFirst`): the records that are here, and the total with those that are
    /// still to be fetched. Nil if none is.
    public var listing: Progress?
  }

  /// A wait before the next request.
  public struct Wait: Hashable, Sendable {
    /// The end of the wait.
    public var end: Date { Date(milliseconds: untilMilliseconds) }
    package var untilMilliseconds: Int64
    /// The code of the error that caused it.
    public var code: CloudError.Code
    /// The server's words for it.
    public var reason: String
    /// Whether the server named it. The engine's own ends early when the app calls `RecordStore.sync()`.
    public var isServers: Bool
  }

  /// A lost zone, or a zone or type that the server refuses as a whole. Its changes are not sent, except deletions when the storage is
  /// full; a lost zone is not fetched either.
  public struct Halt: Hashable, Sendable {
    /// The zone.
    public var zone: ZoneID
    /// The type of which the server refuses every record; nil if it is the whole zone.
    public var type: String?
    /// The server's code, or `.zoneLost` for a zone that is lost.
    public var code: CloudError.Code
    /// The server's words, or why the zone is lost.
    public var reason: String
    /// Why the zone is lost; nil if it is not.
    public var lostReason: ZoneLoss?
    /// When the engine tries it again by itself. A user-initiated cycle (`RecordStore.sync(deadline:)`, `SyncCause.foreground`) does so
    /// earlier, and so does a relaunch. Nil if the next cycle does, or, for a lost zone, if a person has to decide.
    public var nextTry: Date? { nextTryMilliseconds.map { Date(milliseconds: $0) } }
    package var nextTryMilliseconds: Int64?
  }

  /// Failures in a row.
  package struct Retry: Hashable, Sendable {
    /// The number of failures.
    package var count: Int
    /// The code of the last one.
    package var code: String
  }

  /// A request that was answered, or failed.
  package struct Operation: Hashable, Sendable {
    /// The kind of request: `account`, `zoneList`, `query`, `page`, `lookup`, `upload` or `listed`.
    package var kind: String
    /// When it ended.
    package var milliseconds: Int64
    /// How long it took.
    package var durationMilliseconds: Int64
    /// The code with which it failed as a whole; nil if it was answered.
    package var failure: String?
  }

  /// The time of this status.
  public var date: Date { Date(milliseconds: milliseconds) }
  package var milliseconds: Int64
  /// What the engine is doing.
  public var phase: Phase
  /// Records with changes that the server has not settled.
  public var unsettled: Int
  /// How long ago the oldest of those changes was made; nil if there is none, or if its event is damaged.
  package var oldestUnsettledMilliseconds: Int64?
  /// The held records, by cause, the largest group first.
  public var held: [HeldGroup]
  /// The waits of records with unsent changes, as of the engine's last step.
  package var waits: UploadWait.Counts
  /// The number of records in the request under way.
  package var inFlight: Int
  /// The changes that the server has accepted in the cycle under way, of those and the ones still unsettled. Nil between cycles.
  public var upload: Progress?
  /// The fetches of the cycle under way, or of the last one.
  public var download: Download
  /// When the server last accepted a change; nil if it has not since the store was opened.
  public var lastUpload: Date? { lastUploadMilliseconds.map { Date(milliseconds: $0) } }
  package var lastUploadMilliseconds: Int64?
  /// When the server last answered a request for changes; nil if it has not since the store was opened.
  public var lastFetch: Date? { lastFetchMilliseconds.map { Date(milliseconds: $0) } }
  package var lastFetchMilliseconds: Int64?
  /// The wait before the next request; nil if it may be sent.
  public var wait: Wait?
  /// The types and zones that are not sent or fetched.
  public var halts: [Halt]
  /// Zones with unsent changes that this app does not sync (`SyncConfiguration.zones`), in order, as of the last cycle that sends.
  public var leftOut: [ZoneID]
  /// Decisions of the app's rules about lost zones since the store was opened: the newest of each zone, in order.
  public var lossesDecided: [ZoneLossDecision]
  /// Failures since the last success; nil if there is none.
  package var retry: Retry?
  /// The code of the error with which the last cycle failed; nil if it succeeded.
  public var failureCode: StrandlineError.Code?
  /// Whether it failed only in a zone, a type or a record: all the rest was synced, and the next cycle comes without a backoff.
  package var failsInPart: Bool
  /// The message of that error. It may name records.
  public var failure: String?
  /// The last request.
  package var lastOperation: Operation?
  /// The account to which the store belongs, since its first sync.
  public var account: SyncedAccount?
  /// The size of the log's segments in bytes, as far as they are written.
  package var logBytes: UInt64
}

extension ZoneLossDecision {
  /// When it was decided, by this device's clock.
  public var date: Date { Date(milliseconds: milliseconds) }
}

extension SyncStatus.Wait {
  init(_ wait: RequestPace.Wait, wall: Int64) {
    self.init(
      untilMilliseconds: wall &+ wait.milliseconds, code: wait.error.code, reason: wait.error.reason,
      isServers: wait.isServers)
  }
}

extension Projections {
  /// The progress of fetching listed records; nil if none is left to fetch. The names of one page count as fetched when all of them
  /// are here.
  func listing(in synced: SyncedDatabase) -> SyncStatus.Progress? {
    let open = sync.listed.filter { sync.zones[$0.key]?.isLost != true && synced.takes($0.key, sync) }
    guard !open.isEmpty else { return nil }
    let left = open.values.reduce(0) { $0 + $1.count }
    let done = open.keys.reduce(0) { $0 + (records.living[$1]?.total ?? 0) }
    return SyncStatus.Progress(done: done, total: done + left)
  }
}
