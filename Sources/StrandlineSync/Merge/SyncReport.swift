// The report that the app gets of a cycle.

/// What one cycle did. The numbers count records unless they say otherwise.
public struct SyncReport: Hashable, Sendable {
  /// HTTP requests that were sent.
  package var requests = 0
  /// Versions that were fetched and applied.
  public var fetchedSaves = 0
  /// Deletions that were fetched and applied.
  public var fetchedDeletes = 0
  /// Fetched versions that this store had already, its own uploads among them.
  package var echoes = 0
  /// Mutations that the server acknowledged.
  public var uploaded = 0
  /// Mutations whose upload lost its answer, and that a fetched version contains: so they had arrived.
  package var recognized = 0
  /// Conflicts that were merged.
  public var merged = 0
  /// Fetched versions and deletions that were deferred because they may be older than this store's, and edits that were given up
  /// because the record was deleted elsewhere or has another type there.
  package var blocked = 0
  /// Records held because the server refused them, or because they cannot be read.
  public var held = 0
  /// Milliseconds in waits that the server or the engine's backoff imposed, and in requests that failed.
  package var waitedMilliseconds: Int64 = 0
  /// The deadline of `now(deadline:)` passed before everything was done. The rest stays pending: `SyncEngine.status` says what.
  public var isUnfinished = false
  /// Decisions of the app's rules (`SyncConfiguration.zoneLosses`) about lost zones.
  public var lossesDecided: [ZoneLossDecision] = []
  /// The result of the comparison, if the cycle was to verify a zone.
  package var verification: ZoneVerification?
  /// A report with all counts 0.
  package init() {}
}

extension SyncReport {
  /// Adds the counts of another part of the cycle.
  package mutating func add(_ other: SyncReport) {
    requests += other.requests
    fetchedSaves += other.fetchedSaves
    fetchedDeletes += other.fetchedDeletes
    echoes += other.echoes
    uploaded += other.uploaded
    recognized += other.recognized
    merged += other.merged
    blocked += other.blocked
    held += other.held
    waitedMilliseconds += other.waitedMilliseconds
    lossesDecided += other.lossesDecided
  }
}
