// Brings a deleted record back as it was, for the user who misses it: the log still has what was deleted, and what was written
// here and ended with another device's deletion.

extension RecordStore {
  /// Creates a deleted record again, with what its last version held, as far as the log still has it.
  ///
  /// It does not matter who deleted it. What was edited here and lost to the deletion of another device is part of it; what was
  /// discarded, or refused for good by the server, is not. The record begins a new life: every device gets it with the next
  /// sync, and old copies of the deleted one stay deleted. To take back an edit of a record that lives, save the version that
  /// `history(of:)` or `conflicts(of:)` shows.
  ///
  /// The restored record is durable when this returns.
  ///
  /// - Parameters:
  ///   - id: the record.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Returns: the receipt of the creation.
  /// - Throws: `StrandlineError`: `.recordExists` if it lives; `.noSuchRecord` if the log has no version of it, because
  ///   there never was one or a compaction has removed it (`StoreOptions.compaction`); else as `history(of:)` and `write`.
  /// - Complexity: O(bytes of the log).
  @discardableResult
  public func restore(_ id: RecordID, fileID: String = #fileID, line: Int = #line) async throws -> Receipt {
    try await CallSite(fileID, line).run("restoring record '\(id)'") {
      let last = try lastVersion(of: id, fileID: fileID, line: line)
      return try await write(fileID: fileID, line: line) { tx in try tx.createAgain(last) }
    }
  }

  /// What a record held at last, to be created again.
  ///
  /// - Throws: as `restore`.
  package func lastVersion(of id: RecordID, fileID: String = #fileID, line: Int = #line) throws -> Record {
    let id = canonical(id)
    var last = LastVersion()
    var next: LSN? = .some(.none)
    while let after = next {
      let page = try history(of: id, after: after, fileID: fileID, line: line)
      for change in page.changes { last.take(change) }
      next = page.next
    }
    guard let record = last.record else {
      throw StrandlineError(
        .noSuchRecord,
        "the log at '\(path)' has no version of '\(id)' to restore: it never had one, or a compaction has removed it")
    }
    return Record(type: record.type, id: id, fields: record.fields, parent: record.parent)
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
