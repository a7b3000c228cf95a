// The conflicts of a record, as the log tells them: what both sides were made from, what each of them was, what became of them
// and by which rule. An app shows them, and saves what it wants back.

import StrandlineSystem

/// One conflict of a record: an edit of this device met another one, or a deletion.
public struct RecordConflict: Hashable, Sendable {
  /// Where its outcome stands in the log. `conflicts(of:after:)` goes on after this.
  public var position: LogPosition
  /// Which record.
  public var id: RecordID
  /// When it was decided, in milliseconds since 1970 by this device's clock; nil where the log does not say it.
  public var milliseconds: Int64?
  /// The rule that decided: `join`, `clientWins`, `serverWins` or `resolver`; `replace` for a new life in the place of the
  /// server's; `revive` for an edit that began a new life after a deletion; `deletion` for an edit that ended with its record.
  public var rule: String
  /// Why it was not the rule that the app declared, or which rule of it gave the edit up; nil if there is nothing to say.
  public var reason: String?
  /// The version that both sides were made from; nil if it is not known, or if compaction has removed it.
  public var ancestor: Record?
  /// What was saved here; nil if compaction has removed it.
  public var local: Record?
  /// What the server had; nil if the record was deleted there, or if compaction has removed it.
  public var server: Record?
  /// What both became; nil if the record is gone.
  public var result: Record?
}

extension RecordStore {
  /// The conflicts of a record that the log still knows, the oldest first.
  ///
  /// What is here is what was decided: a conflict stays decided until the app saves something else. To take the other side,
  /// save the fields of `local` or `server`.
  ///
  /// - Parameters:
  ///   - id: the record.
  ///   - lsn: only conflicts after this event: the LSN of the last one's position, for the next page.
  ///   - limit: the most conflicts.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.invalidValue` for a limit below 1; `.damaged` if the log cannot be read further,
  ///   `.fromTheFuture`, `.io`, `.closed`.
  /// - Complexity: O(bytes of the log after `lsn`).
  public func conflicts(
    of id: RecordID, after lsn: LSN = .none, limit: Int = 100, fileID: String = #fileID, line: Int = #line
  ) throws -> [RecordConflict] {
    try CallSite(fileID, line).run("reading the conflicts of record '\(id)'") {
      try check(limit: limit)
      var conflicts: [RecordConflict] = []
      var next: LSN? = lsn
      while let after = next, conflicts.count < limit {
        let page = try history(of: id, after: after, limit: 256, fileID: fileID, line: line)
        for change in page.changes where conflicts.count < limit {
          if let conflict = try conflict(change) { conflicts.append(conflict) }
        }
        next = page.next
      }
      return conflicts
    }
  }

  /// The conflict that a change is the outcome of; nil if it is of none.
  private func conflict(_ change: RecordChange) throws(StrandlineError) -> RecordConflict? {
    var conflict = RecordConflict(position: change.position, id: change.id, milliseconds: change.milliseconds, rule: "")
    conflict.reason = change.reason
    conflict.local = try change.mutation.flatMap { (lsn) throws(StrandlineError) in try version(of: change.id, at: lsn)
    }
    switch (change.kind, change.outcome) {
    case (.merged, _):
      conflict.rule = change.rule ?? ""
      conflict.ancestor = try change.ancestor.flatMap { (lsn) throws(StrandlineError) in
        try version(of: change.id, at: lsn)
      }
      conflict.server = try change.base.flatMap { (lsn) throws(StrandlineError) in try version(of: change.id, at: lsn) }
      conflict.result = change.record
      return conflict.isOfBothSides ? conflict : nil
    case (.settled, .discarded):
      conflict.rule = change.reason == nil ? "" : "serverWins"
      conflict.server = try arrival(before: change)
      conflict.result = conflict.server
      return conflict.server == nil ? nil : conflict
    case (.settled, .deletedOnServer):
      conflict.rule = "deletion"
      return conflict
    default: return nil
    }
  }

  /// The version that the server's answer brought in the transaction of a decision, a few events before it.
  private func arrival(before change: RecordChange) throws(StrandlineError) -> Record? {
    for lsn in stride(from: change.position.lsn.rawValue, to: 1, by: -1).prefix(3) {
      guard case .fetchedSave(let fetched)? = try source.eventIfKept(at: LSN(lsn - 1)), fetched.id == change.id else {
        continue
      }
      return try version(of: change.id, at: LSN(lsn - 1))
    }
    return nil
  }

  /// The version in an event, or in the mutation that it acknowledged; nil if compaction has removed it.
  private func version(of id: RecordID, at lsn: LSN) throws(StrandlineError) -> Record? {
    var place = lsn
    if case .settled(let settled)? = try source.eventIfKept(at: lsn) { place = settled.lsn }
    guard let shown = try source.versionIfKept(at: place, of: id) else { return nil }
    return shown.record(id, system: shown.system)
  }
}

extension RecordConflict {
  /// Whether both sides changed the record, to different values. If not, the edit was only moved to a newer version.
  fileprivate var isOfBothSides: Bool {
    guard rule == "join", let server, let local else { return true }
    if server.fields == local.fields, server.parent == local.parent { return false }
    return ancestor.map { $0.fields != server.fields || $0.parent != server.parent } ?? true
  }
}

extension RecordConflict: CustomStringConvertible {
  /// The record, the rule and the place.
  public var description: String { "conflict of \(id) at event \(position.lsn), by \(rule)".oneLine }
}
