// What is pending, record by record, and what each waits for as far as the log says it: without an engine, and
// without a request.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// A record with changes that the server has not settled.
public struct PendingChange: Hashable, Sendable {
  /// Why it is not sent, as far as this store knows.
  public enum Obstacle: Hashable, Sendable {
    /// The server refused it.
    case held(StoreStatus.Held)
    /// It refers to a record that the server does not have.
    case target(RecordID)
    /// It is a deletion, and at the server that record still refers to it, whose change cannot go. To delete it first could
    /// have the server delete the other one along with it.
    case referrer(RecordID)
    /// A transaction that is uploaded as a whole wrote it, and that record of it cannot go.
    case together(RecordID)
    /// Its zone is not synced, because it is lost or was erased.
    case zoneLost(ZoneLoss)
    /// The configuration of this store's engine leaves its zone out (`SyncConfiguration.zones`). A store that was opened without
    /// an engine does not know that.
    case zoneLeftOut
    /// The server refuses every record of its type, or everything of its zone, as the engine of this store has found.
    case halted(SyncStatus.Halt)
  }

  /// Which.
  public var id: RecordID
  /// Whether it is to be deleted.
  public var isDeletion: Bool
  /// The newest change, which is what is sent.
  public var lsn: LSN
  /// The oldest change that the server lacks.
  public var since: LSN
  /// When that was made, in milliseconds since 1970 by this device's clock; nil if its event cannot be read.
  public var milliseconds: Int64?
  /// The version of the server that it was made from; nil if the server has none.
  public var changeTag: String?
  /// A request may have carried it, and the answer is not known.
  public var mayHaveArrived: Bool
  /// Why it is not sent; nil if nothing is known that forbids it.
  public var obstacle: Obstacle?
}

/// A page of what is pending.
public struct PendingChangePage: Hashable, Sendable {
  /// The records, in the order of their newest changes, which is about that in which they are sent.
  public var changes: [PendingChange]
  /// What `pendingChanges(after:limit:)` takes for the next page; nil if this is the last.
  public var next: LSN?
}

extension RecordStore {
  /// The records with changes that the server has not settled, a page of them, in the order of the log.
  ///
  /// - Parameters:
  ///   - lsn: `PendingChangePage.next` of the page before.
  ///   - limit: the most records of a page.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.invalidValue` for a limit below 1; `.damaged` if the event of a change cannot be read
  ///   and it is not known which record it is of; `.io`, `.closed`.
  /// - Complexity: O(records of the page + records that those wait for), a few reads of the log for each. If something is
  ///   held and the page has a deletion, O(records that owe something) besides.
  public func pendingChanges(
    after lsn: LSN = .none, limit: Int = 1_000, fileID: String = #fileID, line: Int = #line
  ) throws -> PendingChangePage {
    try CallSite(fileID, line).run("reading what is owed by the store at '\(path)'") {
      try requireOpen()
      try check(limit: limit)
      let durable = min(source.durableLSN, projections.appliedLSN)
      let lsns = projections.owed(limit, after: lsn, upTo: durable)
      var changes: [PendingChange] = []
      var known = KnownObstacles(self)
      for lsn in lsns {
        guard let id = try owner(ofPending: lsn) else {
          // Under a reader another process may have settled it, and compacted.
          if !source.isReader { try projections.checkIsNotOwed(lsn) }
          continue
        }
        try projections.checkOwed(lsn, by: id)
        guard let change = try pendingChange(of: id, &known), change.lsn == lsn else { continue }
        changes.append(change)
      }
      return PendingChangePage(changes: changes, next: lsns.count < limit ? nil : lsns.last)
    }
  }

  /// The pending change of a record; nil if it has none.
  package func pendingChange(of id: RecordID) throws -> PendingChange? {
    var known = KnownObstacles(self)
    return try pendingChange(of: id, &known)
  }

  func pendingChange(of id: RecordID, _ known: inout KnownObstacles) throws -> PendingChange? {
    guard let entry = try projections.entry(id), let pending = entry.pending else { return nil }
    let attempted = projections.withLock { $0.outbox.attempted(pending) }
    let made: Int64?
    // A damaged event has no age.
    do { made = try mutationTime(pending.since)?.milliseconds } catch let error as StrandlineError
      where error.isOfOneRecord
    {
      made = nil
    }
    return PendingChange(
      id: id, isDeletion: pending.isDeletion, lsn: pending.newest, since: pending.since, milliseconds: made,
      changeTag: entry.base?.changeTag, mayHaveArrived: attempted != nil,
      obstacle: try known.obstacle(to: id, entry, pending))
  }

  /// The record whose newest change is at `lsn`; nil if it has been settled meanwhile.
  func owner(ofPending lsn: LSN) throws(StrandlineError) -> RecordID? {
    try StoreFacts(self).owner(ofPending: lsn)
  }
}

extension PendingChange: CustomStringConvertible {
  /// The record, the change and what is in its way.
  public var description: String {
    "\(isDeletion ? "deletion" : "save") of \(id) at event \(lsn)\(obstacle.map { ", \($0)" } ?? "")".oneLine
  }
}

extension PendingChange.Obstacle: CustomStringConvertible {
  /// What is in the way.
  public var description: String {
    switch self {
    case .held(let held): "held: \(held.code)".oneLine
    case .target(let target): "refers to \(target)".oneLine
    case .referrer(let referrer): "is referred to by \(referrer), which cannot go".oneLine
    case .together(let other): "goes with \(other), which cannot go".oneLine
    case .zoneLost(let reason): "zone lost: \(reason)"
    case .zoneLeftOut: "zone left out"
    case .halted(let halt): "refused: \(halt)"
    }
  }
}

extension PendingChangePage: CustomStringConvertible {
  /// How many, and whether there are more.
  public var description: String { "\(String.count(changes.count, "change"))\(next == nil ? "" : ", more to come")" }
}
