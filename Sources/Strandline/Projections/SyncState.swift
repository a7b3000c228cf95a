// The state of this device's sync: account, zones, tokens, holds, blocks and waits.

/// What is known of a zone.
package struct ZoneState: Hashable, Sendable {
  /// This log has seen it at the server.
  package var wasSeen = false
  /// It has changes to fetch.
  package var isDirty = false
  /// It is gone at the server; frozen here.
  package var isLost = false
  package var lostReason = ""
  package var token: ChangeToken?
  /// The event that brought the token.
  package var tokenLSN: LSN = .none
  /// The zone is being fetched from its beginning and the last page has not come: deletions in it may be older than what is
  /// here.
  package var isFullFetch = false
  /// A full fetch that removed nothing has happened: records that were deleted at the server before it may still be here.
  package var hasGhosts = false
  /// The open sweep, 0 for none.
  package var sweepEpoch: UInt64 = 0
}

/// One opening of the log for writing.
package struct Tenure: Hashable, Sendable {
  package var tenure: UInt64
  package var writer: WriterID
  /// Its first event; it ends before the next one's first.
  package var first: LSN
}

/// What the sync engine has learned, from the log.
package struct SyncState: Sendable {
  package var bound: Bound?
  package var zones: [ZoneID: ZoneState] = [:]
  package var databaseToken: ChangeToken?
  package var tenures: [Tenure] = []
  /// Mutations that are not sent for now.
  package var held: [RecordID: Held] = [:]
  /// Versions that the server could not show.
  package var unread: [RecordID: Held] = [:]
  /// Open blocks: what has to be asked of the server.
  package var openBlocks: [RecordID: Blocked] = [:]
  package var pace: Pace?
  /// The greatest hybrid time in the log.
  package var latest: HybridTime = .zero
  package var isParked = false

  package init() {}

  /// The writer that the newest tenure writes as.
  package var writer: WriterID? { tenures.last?.writer }

  /// The writer of an event of this log. The writer number may change within a tenure.
  package func author(of lsn: LSN) -> WriterID? { tenures.last { $0.first <= lsn }?.writer }

  /// Whether the log's own writer wrote `lsn` under `tenure`: the position lies in that tenure's range.
  package func owns(_ lsn: LSN, tenure: UInt64, upTo end: LSN) -> Bool {
    guard lsn != .none, lsn <= end else { return false }
    return tenures.last { $0.first <= lsn }?.tenure == tenure
  }
}
