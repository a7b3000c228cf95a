// Takes a transaction back: what each of its records held before, where nobody has changed it since.
//
// Three views decide it, field by field: the store before the transaction, after it, and now. What the log says of the first
// two is all that is needed, so an undo is possible after a relaunch, and a redo is the undo of an undo.

import StrandlineLog
import StrandlineSystem

/// What became of an undo.
public struct Undone: Sendable {
  /// A change that was not taken back, because something has happened to it since.
  public struct Kept: Hashable, Sendable {
    /// Why it stays.
    public enum Reason: Hashable, Sendable, CaseIterable {
      /// The field has another value by now.
      case changedSince
      /// The record was deleted since.
      case deletedSince
      /// The record was deleted, and created again since.
      case createdSince
    }

    /// The record whose change stays.
    public let id: RecordID
    /// The field; nil for the record as a whole, `parent` for its parent.
    public let field: String?
    /// Why it stays.
    public let reason: Reason
  }

  /// The transaction that took it back. Its own undo is a redo.
  public let receipt: Receipt
  /// What was not taken back, in the order of records and fields.
  public let kept: [Kept]
}

extension Undone: CustomStringConvertible {
  /// The receipt, and how much stays.
  public var description: String {
    "\(receipt); \(kept.count) change\(kept.count == 1 ? "" : "s") stay\(kept.count == 1 ? "s" : "")"
  }
}

extension Undone.Kept: CustomStringConvertible {
  /// The record, the field and the reason.
  public var description: String { "\(id)\(field.map { ", \($0)" } ?? ""): \(reason)".oneLine }
}

extension RecordStore {
  /// Takes a transaction back, in one new transaction, which is durable when this returns.
  ///
  /// ```swift
  /// let receipt = try await store.write { try $0.delete(Folder.self, id: id) }.receipt
  /// let undone = try await store.undo(receipt)  // the folder is back, with all that was deleted with it
  /// try await store.undo(undone.receipt)  // and gone again: a redo
  /// ```
  ///
  /// Each field that the transaction has changed gets the value that it had before, if it still has what the transaction gave it.
  /// A field that was changed since stays, and is in `Undone.kept`; but the difference that the transaction made to a counter
  /// is taken off it, and what it added to a set is removed, and what it removed is added. A record that was deleted is created
  /// again, which is a new life; one that was created is deleted, by the rules of `WriteTransaction.delete(_:)`, unless it was
  /// changed since.
  ///
  /// - Throws: `StrandlineError`: `.positionExpired` if a compaction has removed what the store held then
  ///   (`StoreOptions.history`), with the names of the records that it has left; `.misuse` for a receipt of another store; else as `view(asOf:)` and `write`. Nothing has
  ///   changed then.
  /// - Complexity: O(bytes of the log since the transaction).
  @discardableResult
  public func undo(_ receipt: Receipt) async throws -> Undone {
    let site = CallSite.unnamed
    let (before, after) = try site.run("undoing a transaction of the store at '\(path)'") {
      try recordsAround(receipt, site)
    }
    let (kept, new) = try await commit("undo", "", 0) { tx in
      try site.run("undoing a transaction") {
        var undo = UndoRun(before: before, after: after)
        return try undo.apply(to: &tx)
      }
    }
    return Undone(receipt: new, kept: kept)
  }

  /// The records that a transaction has changed, as they were before it and after it.
  private func recordsAround(
    _ receipt: Receipt, _ site: CallSite
  ) throws -> (before: [RecordID: Record], after: [RecordID: Record]) {
    try requireOpen()
    guard receipt.store === self else {
      throw StrandlineError(.misuse, "the receipt is of another store, or of one that was open before")
    }
    guard let lsns = receipt.lsns else { return ([:], [:]) }
    let end = LSN(lsns.lowerBound.rawValue - 1)
    let start = end == .zero ? LogPosition.start : LogPosition(tenure: projections.sync.tenure(of: end) ?? 0, lsn: end)
    let ids = try changedRecords(lsns)
    func records(_ position: LogPosition) throws -> [RecordID: Record] {
      let found = try view(asOf: position).records(ids)
      return Dictionary(found.map { ($0.id, $0) }) { first, _ in first }
    }
    do { return (try records(start), try records(receipt.position)) } catch let error as StrandlineError
      where error.code == .positionExpired
    {
      throw error.naming(ids, of: lsns)
    }
  }

  /// The records that a transaction has changed, in order, as far as its events are in the log.
  private func changedRecords(_ lsns: ClosedRange<LSN>) throws -> [RecordID] {
    var ids: Set<RecordID> = []
    try source.scan(after: LSN(lsns.lowerBound.rawValue - 1), upTo: lsns.upperBound) { found in
      if EventCodec.kind(ofBody: found.body)?.isOfOneRecord == true, let id = try found.decoded().recordID {
        ids.insert(id)
      }
      return true
    }
    return ids.sorted()
  }
}

extension StrandlineError {
  private static let namesMax = 10

  /// The error, with the records of which compaction has removed what a transaction changed.
  fileprivate func naming(_ ids: [RecordID], of lsns: ClosedRange<LSN>) -> StrandlineError {
    var error = self
    let names = ids.prefix(Self.namesMax).map { "'\($0)'" }.joined(separator: ", ")
    let more = ids.count > Self.namesMax ? " and \(ids.count - Self.namesMax) others" : ""
    error.message +=
      ids.isEmpty
      ? "; which records the transaction changed is not known any more either"
      : "; the transaction of events \(lsns) changed \(names)\(more), and cannot be taken back"
    return error
  }
}

/// The undo of one transaction, inside another.
private struct UndoRun {
  let before: [RecordID: Record]
  let after: [RecordID: Record]
  private var kept: [Undone.Kept] = []

  init(before: [RecordID: Record], after: [RecordID: Record]) { (self.before, self.after) = (before, after) }

  mutating func apply(to tx: inout WriteTransaction) throws -> [Undone.Kept] {
    let ids = Set(before.keys).union(after.keys).sorted()
    // What was deleted comes back first: what is edited may point at it.
    for id in ids where after[id] == nil { try create(id, &tx) }
    for id in ids where before[id] != nil && after[id] != nil { try edit(id, &tx) }
    for id in ids where before[id] == nil { try delete(id, &tx) }
    return kept.sorted { left, right in
      left.id == right.id ? (left.field ?? "").precedesByUTF8(right.field ?? "") : left.id < right.id
    }
  }

  private mutating func keep(_ id: RecordID, _ field: String?, _ reason: Undone.Kept.Reason) {
    kept.append(Undone.Kept(id: id, field: field, reason: reason))
  }

  private mutating func create(_ id: RecordID, _ tx: inout WriteTransaction) throws {
    guard let old = before[id] else { return }
    guard try tx.find(id) == nil else { return keep(id, nil, .createdSince) }
    try tx.createAgain(Record(type: old.type, id: id, fields: old.fields, parent: old.parent))
  }

  private mutating func delete(_ id: RecordID, _ tx: inout WriteTransaction) throws {
    guard let new = after[id], let now = try tx.find(id) else { return }
    guard now.fields == new.fields, sameParent(now, new) else { return keep(id, nil, .changedSince) }
    try tx.delete(id, fileID: "", line: 0)
  }

  private mutating func edit(_ id: RecordID, _ tx: inout WriteTransaction) throws {
    guard let old = before[id], let new = after[id] else { return }
    guard var now = try tx.find(id) else { return keep(id, nil, .deletedSince) }
    let rules = tx.core.declared.conflicts[now.type]
    let names = Set(old.fields.keys).union(new.fields.keys).sorted { $0.precedesByUTF8($1) }
    for name in names where old[name] != new[name] {
      if now[name] == new[name] {
        now[name] = old[name]
      } else if let value = Self.difference(old[name], new[name], now[name], rules.fields[name]) {
        now[name] = value
      } else {
        keep(id, name, .changedSince)
      }
    }
    if !sameParent(old, new) {
      if sameParent(now, new) { now.parent = old.parent } else { keep(id, "parent", .changedSince) }
    }
    try tx.put(now, creating: false)
  }

  private func sameParent(_ left: Record, _ right: Record) -> Bool {
    left.parent.map { CloudName($0) } == right.parent.map { CloudName($0) }
  }

  /// What a counter or a set is without what the transaction made of it; nil for every other field.
  private static func difference(
    _ old: FieldValue?, _ new: FieldValue?, _ now: FieldValue?, _ rule: FieldRule?
  ) -> FieldValue? {
    guard let new, let now else { return nil }
    switch (rule, new) {
    case (.counter, .int64): return FieldMerge.sum(old ?? .int64(0), now, .some(new))
    case (.counter, .double): return FieldMerge.sum(old ?? .double(0), now, .some(new))
    case (.union, .list(let kind, _)): return FieldMerge.union(old ?? .list(kind, []), now, .some(new))
    default: return nil
    }
  }
}
