// What the sync engine does, waits for and owes, as one value: for a line in an app's settings, for a progress bar, and for the
// mail of a user whose sync does not work.

/// What the sync engine does, waits for and owes, at one moment. Moments are milliseconds since 1970 by this device's clock.
public struct SyncStatus: Hashable, Sendable {
  /// What the engine does.
  public enum Phase: String, Hashable, Sendable, CaseIterable {
    /// Nothing: it waits for a write, a push or the next poll.
    case idle
    /// It asks the server for changes.
    case fetching
    /// It sends changes.
    case uploading
    /// A request has failed or was refused, and the next one waits: `wait` says until when and why.
    case waiting
    /// Something waits for a person, or for the server to take what it refuses whole (`halts`, `held`): `sentence` says what.
    /// All the rest goes on being synced, except after `StrandlineError.Code.needsSignIn`, `accountMismatch` and `fromTheFuture`.
    case needsPerson
    /// The store is suspended.
    case paused
    /// The store is closed.
    case stopped
  }

  /// Records that are set aside for one cause.
  public struct HeldGroup: Hashable, Sendable {
    /// The server's code; `DAMAGED`; `NEWER_SCHEMA` (`NewerVersionRule.reject`); or `PARENT_MISSING` for versions that are shown when the record above them has come, at
    /// the latest with the last page of their zone (`ParentSchema`).
    public var code: String
    /// How many.
    public var count: Int
    /// Whether versions of the server are set aside, which cannot be read; else changes of this store.
    public var isDownload: Bool
    /// When the first of them is tried again by itself; nil if only an edit, `releaseHolds` or `discardChanges` ends it.
    public var nextTryMilliseconds: Int64?
  }

  /// How many records with unsent changes wait, by what they wait for.
  public struct Waits: Hashable, Sendable {
    /// A record that they refer to, and that the server does not have.
    public var target = 0
    /// A fetch of their zone.
    public var fetch = 0
    /// What the server holds of them.
    public var lookup = 0
    /// A moment.
    public var time = 0
    /// The end of their hold.
    public var hold = 0
    /// Deletions: records that refer to them.
    public var references = 0
    /// The other records of a transaction that is uploaded as a whole.
    public var together = 0
    /// Nothing waits.
    public init() {}
  }

  /// How far something is.
  public struct Progress: Hashable, Sendable {
    /// How much is done.
    public var done: Int
    /// How much there is in all, as far as it is known.
    public var total: Int
  }

  /// What the run under way, or the last one, has fetched.
  public struct Download: Hashable, Sendable {
    /// Pages of changes, of one zone each.
    public var pages: Int
    /// Records and deletions in them.
    public var records: Int
    /// Zones with changes that are not fetched yet.
    public var zonesLeft: Int
    /// Of zones that were listed first (`FirstFetch.recentFirst`): the records that are here, of those and the ones that are
    /// still to be fetched. Nil if nothing is.
    public var listing: Progress?
  }

  /// A wait before the next request.
  public struct Wait: Hashable, Sendable {
    /// Until when.
    public var untilMilliseconds: Int64
    /// The code of what caused it.
    public var code: String
    /// The same in words, as the server sent them.
    public var reason: String
    /// Whether the server named it. The engine's own ends early when the app calls `now()`.
    public var isServers: Bool
  }

  /// A zone, or a type of records in it, that is lost or that the server refuses whole. Nothing of it is sent, but for deletions
  /// where the storage is full; of a lost zone nothing is fetched either.
  public struct Halt: Hashable, Sendable {
    /// Where.
    public var zone: ZoneID
    /// The type of which the server refuses every record; nil if it is the whole zone.
    public var type: String?
    /// The server's code, or `zoneLost` for a zone that is lost.
    public var code: String
    /// The same in words.
    public var reason: String
    /// Why the zone is lost; nil if it is not.
    public var lostReason: ZoneLoss?
    /// When the engine sends it again by itself. Any run that a person wants does before (`SyncEngine.now(deadline:)`,
    /// `SyncCause.foreground`), and so does a relaunch. Nil if the next run does, or, of a lost zone, if a person has to decide.
    public var nextTryMilliseconds: Int64?
  }

  /// Failures in a row.
  public struct Retry: Hashable, Sendable {
    /// How many.
    public var count: Int
    /// The code of the last one.
    public var code: String
  }

  /// A request that was answered, or failed.
  public struct Operation: Hashable, Sendable {
    /// What was asked: `account`, `zoneList`, `query`, `page`, `lookup`, `upload` or `listed`.
    public var kind: String
    /// When it ended.
    public var milliseconds: Int64
    /// How long it took.
    public var durationMilliseconds: Int64
    /// The code with which it failed as a whole; nil if it was answered.
    public var failure: String?
  }

  /// When this was the status.
  public var milliseconds: Int64
  /// What the engine does.
  public var phase: Phase
  /// Records with changes that the server has not settled.
  public var unsettled: Int
  /// How long ago the oldest of those changes was made; nil if there is none, or if its event is damaged.
  public var oldestUnsettledMilliseconds: Int64?
  /// What is set aside, by cause, the most first.
  public var held: [HeldGroup]
  /// What records with unsent changes wait for, as of the engine's last step.
  public var waits: Waits
  /// How many records the request under way carries.
  public var inFlight: Int
  /// Of the run under way: the changes that the server has taken, of those and what is unsettled. Nil if there is none.
  public var upload: Progress?
  /// What the run under way, or the last one, has fetched.
  public var download: Download
  /// When the server last took a change; nil if it has not since the store was opened.
  public var lastUploadMilliseconds: Int64?
  /// When the server last answered a question for changes; nil if it has not since the store was opened.
  public var lastFetchMilliseconds: Int64?
  /// What the next request waits for; nil if it may leave.
  public var wait: Wait?
  /// The types and zones of which nothing is sent or fetched.
  public var halts: [Halt]
  /// Zones that the configuration leaves out (`SyncConfiguration.zones`), and of which changes are here that are not sent: in order,
  /// as the last run that sends has found them.
  public var leftOut: [ZoneID]
  /// What the app's rules have decided about lost zones since the store was opened: of each zone the newest, in order.
  public var lossesDecided: [ZoneLossDecision]
  /// Failures since the last success; nil if there is none.
  public var retry: Retry?
  /// Why the last run failed, nil if it did not: the code, and the sentence.
  public var failureCode: StrandlineError.Code?
  /// Whether it failed in a zone, a type or a record alone: all the rest was synced, and the next run comes as after any other.
  public var failsInPart: Bool
  /// The sentence of that error. It may name records.
  public var failure: String?
  /// The last request.
  public var lastOperation: Operation?
  /// Whose the store is, since its first sync.
  public var account: StoreStatus.Account?
  /// Bytes of the log's segments, as far as they are written.
  public var logBytes: UInt64
}

extension SyncStatus.Waits {
  mutating func count(_ wait: UploadWait, _ change: Int) {
    switch wait {
    case .target: target += change
    case .fetch: fetch += change
    case .lookup: lookup += change
    case .time: time += change
    case .hold: hold += change
    case .references: references += change
    case .together: together += change
    }
  }

  /// How many records wait.
  public var total: Int { target + fetch + lookup + time + hold + references + together }
}

extension SyncStatus.Wait {
  init(_ wait: RequestPace.Wait, wall: Int64) {
    self.init(
      untilMilliseconds: wall &+ wait.milliseconds, code: wait.error.code.rawValue, reason: wait.error.reason,
      isServers: wait.isServers)
  }
}

extension Projections {
  /// How much of what zones have listed is here; nil if nothing is left to fetch. The names of one page count as fetched when
  /// the last of them is here.
  func listing(in synced: SyncedDatabase) -> SyncStatus.Progress? {
    let open = sync.listed.filter { sync.zones[$0.key]?.isLost != true && synced.takes($0.key, sync) }
    guard !open.isEmpty else { return nil }
    let left = open.values.reduce(0) { $0 + $1.count }
    let done = open.keys.reduce(0) { $0 + (records.living[$1]?.total ?? 0) }
    return SyncStatus.Progress(done: done, total: done + left)
  }
}
