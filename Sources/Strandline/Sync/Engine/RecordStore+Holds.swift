// A person's two decisions about a change that the server refused: send it again, or discard it.

import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Sends held records with the next sync, though they have not changed; for instance when the cause of the refusal is gone at the
  /// server. A fetched record that could not be read is fetched again. `heldRecords()` lists them. All of this is durable
  /// when this returns.
  ///
  /// - Throws: `StrandlineError`: `.noSuchRecord` if one of them is not held, and then nothing has changed; as `write`.
  /// - Complexity: O(ids).
  public func releaseHolds(of ids: [RecordID]) async throws {
    // A record may be held in both directions, and then the status names it twice.
    let ids = Set(ids.map(canonical)).sorted()
    try await CallSite.unnamed.run("releasing held records") {
      try requireWritable()
      try await commit { core in
        for id in ids {
          let (held, unread) = core.projections.withLock { ($0.sync.held[id], $0.sync.unread[id]) }
          guard held != nil || unread != nil else {
            throw StrandlineError(.noSuchRecord, "'\(id)' is not held; nothing was released")
          }
          for hold in [held, unread].compactMap(\.self) { try core.append(.released(Released(id: id, lsn: hold.lsn))) }
          if unread == nil { continue }
          // The change token has moved past it: only a lookup brings it.
          try core.append(
            .blocked(
              Blocked(id: id, subject: .version, births: [], consequence: .lookup, words: "its hold was released")))
        }
      }
    }
    driver.withLock { $0 }?.holdsEnded(ids)
  }

  /// Discards every pending change of some records. They show the server's version again; a record that the server never had is
  /// gone, and a pending deletion is undone, with the pending deletions of children that it caused. If a request has carried a
  /// change and its answer was lost, the server may have it: then the next sync brings it back. All of this is durable when this
  /// returns.
  ///
  /// The discarded changes stay in the history until a compaction removes them.
  ///
  /// - Throws: `StrandlineError`: `.noSuchRecord` if one has no pending change, and then nothing has changed; as `write`.
  /// - Complexity: O(ids).
  public func discardChanges(of ids: [RecordID]) async throws {
    let ids = ids.map(canonical)
    // With the children whose deletions end too.
    var discarded: Set<RecordID> = []
    try await CallSite.unnamed.run("discarding changes") {
      try requireWritable()
      try await commit { core in
        var done: Set<RecordID> = []
        defer { discarded = done }
        for id in ids where !done.contains(id) {
          guard let pending = try core.projections.entry(id)?.pending else {
            throw StrandlineError(.noSuchRecord, "'\(id)' has no pending change; nothing was discarded")
          }
          let below = try core.pendingBelow(id, deletedAt: pending.newest)
          for (id, lsn) in below {
            try core.append(.discarded(Discarded(id: id, lsn: lsn)))
            done.insert(id)
          }
          try core.append(.discarded(Discarded(id: id, lsn: pending.newest)))
          done.insert(id)
        }
      }
    }
    driver.withLock { $0 }?.holdsEnded(discarded.sorted())
  }
}
