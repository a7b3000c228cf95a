// What a cycle did, and how a cycle is asked for.

/// What one cycle did. Counts of records unless said otherwise.
public struct SyncReport: Hashable, Sendable {
  /// Requests that left.
  public var requests = 0
  /// Versions that came and were taken.
  public var fetchedSaves = 0
  /// Deletions that came.
  public var fetchedDeletes = 0
  /// Own writes that came back.
  public var echoes = 0
  /// Mutations that the server took.
  public var uploaded = 0
  /// Mutations that the server had already taken, though its answer was lost.
  public var recognized = 0
  /// Conflicts that were merged.
  public var merged = 0
  /// Versions or mutations that would have brought a deleted record back.
  public var blocked = 0
  /// Records set aside with the server's words.
  public var held = 0
  /// Milliseconds spent waiting because the server or our own backoff said so.
  public var waitedMilliseconds: Int64 = 0
  /// Nothing yet.
  public init() {}
}

/// How a cycle is asked for.
package struct CycleOptions: Sendable {
  package enum Direction: Sendable { case both, pullOnly, pushOnly }
  package var direction: Direction = .both
  /// Only this zone; nil for all.
  package var zone: ZoneID?
  /// How long the cycle may wait inside in all before it gives up with `.throttled` or `.unreachable`; nil for as
  /// long as it takes.
  package var waitMillisecondsMax: Int64? = 30_000
  /// A person asked: our own backoff may be cut short, the server's word not.
  package var isUserInitiated = true
  package init() {}
}

extension SyncReport {
  /// Adds what another part of the cycle did.
  mutating func add(_ other: SyncReport) {
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
  }
}
