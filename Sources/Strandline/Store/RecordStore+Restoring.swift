// Brings a deleted record back as it was, for the user who misses it: the log still has what was deleted, and what was written
// here and ended with another device's deletion.

import StrandlineLog

extension RecordStore {
  /// Creates a deleted record again, with what its last version held, as far as the log still has it; and in the same transaction
  /// all records below it that its deletion took along on this device (`ParentSchema.whenDeleted`).
  ///
  /// It does not matter who deleted it. What was edited here and lost to the deletion of another device is part of it; what was
  /// discarded, or refused for good by the server, is not. The record begins a new life: every device gets it with the next
  /// sync, and old copies of the deleted one stay deleted. To take back an edit of a record that lives, save the version that
  /// `history(of:)` or `conflicts(of:)` shows.
  ///
  /// Of what the deletion took along, those stay as they are that were created again since, and those deleted of which the log
  /// has no version any more. What was moved, or lost its parent, is not moved back. The receipt has an outcome for each record
  /// that was restored.
  ///
  /// The restored records are durable when this returns.
  ///
  /// - Parameters:
  ///   - id: the record.
  /// - Returns: the receipt of the creation.
  /// - Throws: `StrandlineError`: `.recordExists` if it lives; `.noSuchRecord` if the log has no version of it, because
  ///   there never was one or a compaction has removed it (`StoreOptions.history`); `.recordWasDeleted` if it would be
  ///   below a deleted record, and records of its type are deleted with their parent: restore that one; else as
  ///   `history(of:)` and `write`.
  /// - Complexity: O(bytes of the log).
  @discardableResult
  public func restore(_ id: RecordID) async throws -> Receipt {
    try await CallSite.unnamed.run("restoring record '\(id)'") {
      let lost = try lostRecords([id])
      return try await commit("restore", "", 0) { tx in try tx.restore(lost) }.receipt
    }
  }

  /// The same of several records in one transaction, on a plain thread.
  package func restoreBlocking(_ ids: [RecordID], fileID: String = #fileID, line: Int = #line) throws {
    let lost = try CallSite(fileID, line).run("restoring records") { try lostRecords(ids) }
    try writeBlocking(fileID: fileID, line: line) { tx in try tx.restore(lost) }
  }

  /// What some records held at last, and those that their deletions took along.
  private func lostRecords(_ ids: [RecordID]) throws -> LostRecords {
    try requireOpen()
    let ids = ids.map(canonical)
    let durable = durableLSN
    var deletions = TakenAlong(of: ids)
    try source.scan(after: .zero, upTo: durable) { found in
      try deletions.take(found)
      return true
    }
    var versions: [RecordID: LastVersion] = [:]
    for id in ids + deletions.taken.map(\.id) { versions[id] = LastVersion() }
    try source.scan(after: .zero, upTo: durable) { found in
      guard EventCodec.kind(ofBody: found.body)?.isOfOneRecord == true else { return true }
      let event = try found.decoded()
      guard let id = event.recordID, versions[id] != nil,
        let change = try RecordChange(event, at: LogPosition(tenure: 0, lsn: LSN(found.lsn)))
      else { return true }
      versions[id]?.take(change)
      return true
    }
    let asked = try ids.map { id in
      guard let record = versions[id]?.record else {
        throw StrandlineError(
          .noSuchRecord,
          "the log at '\(path)' has no version of '\(id)' to restore: it never had one, or a compaction has removed it")
      }
      return record.withoutSystem(id)
    }
    let known = Set(ids)
    return LostRecords(
      asked: asked,
      taken: deletions.taken.filter { !known.contains($0.id) }.compactMap { taken in
        versions[taken.id]?.record?.withoutSystem(taken.id)
      })
  }
}

/// Deleted records that a restoration creates again.
private struct LostRecords {
  var asked: [Record]
  /// What was deleted with them, each after the record above it.
  var taken: [Record]
}

extension WriteTransaction {
  fileprivate mutating func restore(_ lost: LostRecords) throws {
    let ids = Set((lost.asked + lost.taken).map(\.id))
    for record in lost.asked {
      try requireParent(of: record, among: ids)
      try createAgain(record)
    }
    for record in lost.taken where try find(record.id) == nil { try createAgain(record) }
  }

  /// Refuses a record that would be deleted again because the one above it was.
  private func requireParent(of record: Record, among ids: Set<RecordID>) throws {
    guard let parent = core.declared.schema.childRule(of: record.type), parent.whenDeleted == .delete,
      let name = parent.parentName(record)
    else { return }
    let above = RecordID(name, zone: record.id.zone)
    guard !ids.contains(above), try isDeleted(above) else { return }
    throw StrandlineError(
      .recordWasDeleted,
      "record '\(record.id)' is below '\(name)', which was deleted, and records of type '\(record.type)' are deleted with "
        + "their parent; restore '\(name)', which brings back what was deleted with it")
  }
}

/// Which records the deletions of some others took along, while the log is read from the beginning: what the last deletion of each
/// took, and of that those that have not lived since.
private struct TakenAlong {
  private let asked: Set<RecordID>
  /// The events that deleted one that was asked for, or one that was taken, with the one that was asked for.
  private var causes: [LSN: RecordID] = [:]
  private var byAsked: [RecordID: [RecordID: LSN]] = [:]
  /// What took each record last.
  private var takers: [RecordID: RecordID] = [:]
  /// The transaction that brought a version of one that was deleted; a deletion in the same one still counts.
  private var shown: [RecordID: Int] = [:]
  private var transaction = 0

  init(of ids: [RecordID]) { asked = Set(ids) }

  var taken: [(id: RecordID, lsn: LSN)] {
    asked.flatMap { (byAsked[$0] ?? [:]).map { (id: $0, lsn: $1) } }.sorted { $0.lsn < $1.lsn }
  }

  mutating func take(_ found: LogEvent) throws {
    if found.isFirst { transaction += 1 }
    let lsn = LSN(found.lsn)
    switch EventCodec.kind(ofBody: found.body) {
    case .deleted:
      guard case .deleted(let deleted) = try found.decoded() else { return }
      if asked.contains(deleted.id) {
        if let before = shown.removeValue(forKey: deleted.id), before != transaction { livesAgain(deleted.id) }
        causes[lsn] = deleted.id
      } else if let by = causes[deleted.cause] {
        // Its own deletion may have taken records below it along.
        causes[lsn] = by
        takers[deleted.id] = by
        byAsked[by, default: [:]][deleted.id] = lsn
      } else if takers[deleted.id] != nil, let id = shown.removeValue(forKey: deleted.id), id != transaction {
        livesAgain(deleted.id)
      }
    case .fetchedDelete:
      guard case .fetchedDelete(let deleted) = try found.decoded(), asked.contains(deleted.id) else { return }
      if shown.removeValue(forKey: deleted.id) != nil { livesAgain(deleted.id) }
      causes[lsn] = deleted.id
    case .saved, .merged, .superseded, .discarded:
      guard let id = try found.decoded().recordID else { return }
      livesAgain(id)
    case .settled:
      guard case .settled(let settled) = try found.decoded(),
        [.rejected, .discarded, .superseded].contains(settled.outcome)
      else { return }
      livesAgain(settled.id)
    case .fetchedSave:
      guard let id = try found.decoded().recordID, asked.contains(id) || takers[id] != nil else { return }
      shown[id] = transaction
    default: break
    }
  }

  /// What its last deletion took is of a life that is over, and so is that it was taken.
  private mutating func livesAgain(_ id: RecordID) {
    byAsked[id] = nil
    if let by = takers.removeValue(forKey: id) { byAsked[by]?[id] = nil }
  }
}

extension Record {
  /// The record as an app would have made it.
  fileprivate func withoutSystem(_ id: RecordID) -> Record {
    Record(type: type, id: id, fields: fields, parent: parent)
  }
}

/// The newest version of a record that was not given up, while its history is read from the beginning.
private struct LastVersion {
  /// What the server had, and the event that said so.
  private var atServer: (lsn: LSN, record: Record)?
  /// What was written here and is not settled.
  private var written: (lsn: LSN, record: Record)?

  var record: Record? { (written ?? atServer)?.record }

  mutating func take(_ change: RecordChange) {
    let lsn = change.position.lsn
    switch change.kind {
    case .saved, .merged: written = change.record.map { (lsn, $0) }
    case .fetched: atServer = change.record.map { (lsn, $0) } ?? atServer
    case .discarded: written = nil
    // The life ends, and what was written in it with it: another one may follow under the name.
    case .deleted, .fetchedDeletion: endWritten()
    case .settled where written != nil && change.mutation == written?.lsn:
      switch change.outcome {
      case .saved, .merged, .deletedOnServer, .cancelled: endWritten()
      case .rejected, .discarded, .lost: written = nil
      default: break
      }
    default: break
    }
  }

  /// What was written counts as the server's, unless a version has come since: that one includes it.
  private mutating func endWritten() {
    if let written, atServer.map({ $0.lsn < written.lsn }) ?? true { atServer = written }
    written = nil
  }
}
