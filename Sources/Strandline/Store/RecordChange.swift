// One event of the log as a change of one record: what an app sees of a record's history, and of what changed since it
// last looked.
//
// An event that is of several records, or of none, is no change here: requests, tokens, zones and waits are what the sync
// engine keeps for itself, and `log-dump` shows them.

public import Foundation
import StrandlineSystem

/// A change of a record: what was done to it, here or by the server, and when.
public struct RecordChange: Hashable, Sendable {
  /// What was done.
  public enum Kind: String, Hashable, Sendable, CaseIterable {
    /// The app saved the record.
    case saved
    /// The app deleted it.
    case deleted
    /// What was saved here and a version of the server became one version, which is still to be sent.
    case merged
    /// What was changed here met another change at the server, and one of them has lost, or both were put together;
    /// `fields` says which side lost, and `rule` by which rule.
    case conflicted
    /// The server's version came.
    case fetched
    /// The server no longer has the record.
    case fetchedDeletion
    /// A mutation of the app is no longer owed to the server; `outcome` says why.
    case settled
    /// A version, a mutation or a deletion was not applied; the server will be asked about the record.
    case blocked
    /// A mutation is not sent, or a version not applied, for now; `reason` says why.
    case held
    /// A hold ended.
    case released
    /// The app gave up what was not sent yet.
    case discarded
  }

  /// Where a change comes from.
  public enum Origin: String, Hashable, Sendable, CaseIterable {
    /// This device.
    case local
    /// The server, or another device by way of it.
    case server
  }

  /// Where the change stands in the log. What follows it is `changes(since:)` this position.
  public var position: LogPosition
  /// Which record.
  public var id: RecordID
  /// What was done.
  public var kind: Kind
  /// Who did it.
  public var origin: Origin
  /// When: by this device's clock for what it did, by the server's for what came from there.
  /// Nil where the log does not say it.
  public var date: Date? { milliseconds.map { Date(milliseconds: $0) } }
  package var milliseconds: Int64?
  /// The record as it was saved, merged or fetched. Nil for other changes, and where compaction has removed it.
  public var record: Record?
  /// The mutation that was settled, merged, held, released, given up or blocked, or that met a conflict; nil for other changes.
  package var mutation: LSN?
  /// What became of the mutation, if it was settled.
  public var outcome: MutationOutcome?
  /// Code and words of a hold, a block or a refusal; why an edit was given up, and why a merge did not go by its rule.
  public var reason: String?
  /// Of a merge or a conflict: the rule by which it was decided, as `RecordConflict.rule` names it. What was saved here is the
  /// change at `mutation`, what came from the server the one at `base`, and both were made from the one at `ancestor`: an
  /// app can show them, and saves what it wants back.
  public var rule: RecordConflict.Rule?
  /// Of a conflict: what became of each field that a rule decided.
  public var fields: [ConflictField] = []
  /// Of a merge or a conflict: the change that brought the server's version or deletion, or acknowledged it.
  package var base: LSN?
  /// Of a merge or a conflict: the change with the version that both sides were made from; nil if that is not known.
  package var ancestor: LSN?
  /// Of a deletion: that of the record above it, which took this one along (`ParentSchema.whenDeleted`). Nil for one that was
  /// asked for.
  public var cause: LSN?
  /// Compaction has left nothing of the change but that it happened.
  public var isCompacted = false
}

extension RecordChange {
  /// The change that an event is; nil for an event of no record, or of several.
  ///
  /// - Throws: `.damaged` if the record in it cannot be decoded.
  init?(_ event: Event, at position: LogPosition) throws(StrandlineError) {
    guard let id = event.recordID else { return nil }
    switch event {
    case .saved(let saved):
      self.init(position, id, .saved, .local, saved.time.milliseconds)
    case .superseded(let saved):
      self.init(packed: .saved, of: id, at: position, by: .local, saved.time.milliseconds)
    case .deleted(let deleted):
      self.init(position, id, .deleted, .local, deleted.time.milliseconds)
      cause = deleted.cause == .zero ? nil : deleted.cause
    case .merged(let merged):
      self.init(position, id, .merged, .local, merged.time.milliseconds, of: merged.local)
      reason = Self.words("", merged.words)
      rule = RecordConflict.Rule(rawValue: merged.rule)
      base = merged.base == .zero ? nil : merged.base
      ancestor = merged.ancestor == .zero ? nil : merged.ancestor
    case .conflicted(let conflicted):
      self.init(position, id, .conflicted, .local, conflicted.wallMilliseconds, of: conflicted.local)
      reason = Self.words("", conflicted.words)
      rule = RecordConflict.Rule(rawValue: conflicted.rule)
      fields = conflicted.fields.map(ConflictField.init)
      base = conflicted.server == .zero ? nil : conflicted.server
      ancestor = conflicted.ancestor == .zero ? nil : conflicted.ancestor
    case .fetchedSave(let fetched):
      self.init(position, id, .fetched, .server, fetched.modified?.milliseconds)
    case .fetchedDelete:
      self.init(position, id, .fetchedDeletion, .server, nil)
    case .settled(let settled):
      self.init(position, id, .settled, settled.origin, settled.modified?.milliseconds, of: settled.lsn)
      outcome = settled.mutationOutcome
      reason = Self.words(settled.code, settled.words)
    case .blocked(let blocked):
      self.init(position, id, .blocked, .local, nil, of: blocked.lsn)
      reason = Self.words("", blocked.words)
    case .held(let held):
      self.init(position, id, .held, .local, held.wallMilliseconds, of: held.lsn)
      reason = Self.words(held.code, held.words)
    case .released(let released): self.init(position, id, .released, .local, nil, of: released.lsn)
    case .discarded(let discarded): self.init(position, id, .discarded, .local, nil, of: discarded.lsn)
    default: return nil
    }
    guard let shown = try ShownVersion(event, at: position.lsn) else { return }
    self.record = shown.record(id, system: shown.system)
  }

  private init(
    _ position: LogPosition, _ id: RecordID, _ kind: Kind, _ origin: Origin, _ milliseconds: Int64?,
    of mutation: LSN = .zero
  ) {
    self.init(position: position, id: id, kind: kind, origin: origin, milliseconds: milliseconds)
    if mutation != .zero { self.mutation = mutation }
  }

  private static func words(_ code: String, _ words: String) -> String? {
    let parts = [code, words].filter { !$0.isEmpty }
    return parts.isEmpty ? nil : parts.joined(separator: ": ")
  }

  /// A change of which compaction has left the place alone, and of a save the time.
  init(packed kind: Kind, of id: RecordID, at position: LogPosition, by origin: Origin, _ milliseconds: Int64? = nil) {
    self.init(position, id, kind, origin, milliseconds)
    isCompacted = true
  }
}

extension Settled {
  /// Who ended the mutation: the server by its answer, or this device, which found that there was nothing to send.
  fileprivate var origin: RecordChange.Origin {
    switch outcome {
    case .saved, .deleted, .merged, .deletedOnServer, .rejected, .lost: .server
    case .superseded, .cancelled, .discarded: .local
    }
  }

  /// The outcome of the mutation that the event names.
  var mutationOutcome: MutationOutcome {
    switch outcome {
    case .saved, .deleted: .saved
    case .merged: .merged
    case .superseded: .superseded(by: lsn)
    case .cancelled: .cancelled
    case .deletedOnServer: .deletedOnServer
    case .rejected: .rejected(code: CloudError.Code(rawValue: code), reason: words)
    case .discarded: .discarded
    case .lost: .lost
    }
  }
}

/// The positions of events: each with the tenure under which it was written.
struct PositionFinder {
  private let tenures: [Tenure]

  init(_ sync: SyncState) { tenures = sync.tenures }

  /// - Complexity: O(log(tenures)).
  func position(of lsn: LSN) -> LogPosition {
    let next = tenures.partitioningIndex { $0.first > lsn }
    // A repair may have lost the event that names the first tenure.
    return LogPosition(tenure: next == 0 ? 0 : tenures[next - 1].tenure, lsn: lsn)
  }
}

extension LogPosition {
  /// The place before the first event of every store.
  public static let start = LogPosition(tenure: 0, lsn: .zero)
}

extension StoreView {
  /// The newest event that the view shows, in a form that may leave the process: what changes after the view is
  /// `changes(since:)` this position.
  public var position: LogPosition {
    LogPosition(tenure: store.projections.sync.tenure(of: lsn) ?? 0, lsn: lsn)
  }
}

extension EventCodec {
  /// The kind of the event in a body; nil if this version does not know it.
  static func kind(ofBody body: [UInt8]) -> EventKind? {
    guard body.count >= PayloadHeader.bytes else { return nil }
    return EventKind(rawValue: UInt16(body[0]) | UInt16(body[1]) << 8)
  }
}

extension EventKind {
  /// Whether compaction wrote the event in place of others.
  package var isPacked: Bool { self == .deletions || self == .superseded }
}
