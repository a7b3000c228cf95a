// Lists the pending records, and why each is not sent yet, from the log alone: without an engine, and without a request.

public import Foundation
import StrandlineLog
import StrandlineSystem
import Synchronization

/// A record with changes that the server has not settled.
public struct PendingChange: Hashable, Sendable {
  /// Why it is not sent, as far as this store knows.
  public enum Obstacle: Hashable, Sendable {
    /// The server refused it.
    case held(HeldRecord)
    /// It refers to that record, which the server does not have.
    case target(RecordID)
    /// It is a deletion, and at the server that record still refers to it; the change that removes the reference cannot be sent. If the
    /// deletion were sent first, the server could delete that record too.
    case referrer(RecordID)
    /// It is of a transaction that is uploaded as a whole, and that record of the transaction cannot be sent.
    case together(RecordID)
    /// Its zone is not synced, because it is lost or was erased.
    case zoneLost(ZoneLoss)
    /// This app does not sync its zone (`SyncConfiguration.zones`). Only known in a store with an engine.
    case zoneLeftOut
    /// The server refuses every record of its type, or every change of its zone, as this store's engine has found.
    case halted(SyncStatus.Halt)
  }

  /// The record whose change is pending.
  public var id: RecordID
  /// Whether it is to be deleted.
  public var isDeletion: Bool
  /// The newest change, the one to be sent.
  public var lsn: LSN
  /// The oldest change that the server lacks.
  public var since: LSN
  /// When the oldest change was made, by this device's clock; nil if its event cannot be read.
  public var date: Date? { milliseconds.map { Date(milliseconds: $0) } }
  package var milliseconds: Int64?
  /// The change tag of the server's version that it was made from; nil if the server has none.
  public var changeTag: String?
  /// A request may have carried it, and the answer is not known.
  public var mayHaveArrived: Bool
  /// Why it is not sent; nil if no reason is known.
  public var obstacle: Obstacle?
}

/// A page of pending changes.
public struct PendingChangePage: Hashable, Sendable {
  /// The records, in the order of their newest changes, about the order in which they are sent.
  public var changes: [PendingChange]
  /// The argument of `pendingChanges(after:limit:)` for the next page; nil if this is the last.
  public var next: LSN?
}

extension RecordStore {
  /// A page of the records with changes that the server has not settled, in the order of the log.
  ///
  /// - Parameters:
  ///   - lsn: `PendingChangePage.next` of the page before.
  ///   - limit: the most records of a page.
  /// - Throws: `StrandlineError`: `.invalidValue` for a limit below 1; `.damaged` if the event of a change cannot be read
  ///   and it is not known which record it is of; `.io`, `.closed`.
  /// - Complexity: O(records of the page + records that those wait for), a few reads of the log for each. If a record is held and the
  ///   page has a deletion, also O(records with pending changes).
  public func pendingChanges(
    after lsn: LSN = .zero, limit: Int = 1_000
  ) throws -> PendingChangePage {
    try CallSite.unnamed.run("reading the pending changes of the store at '\(path)'") {
      try requireOpen()
      try check(limit: limit)
      let durable = min(source.durableLSN, projections.appliedLSN)
      let lsns = projections.owed(limit, after: lsn, upTo: durable)
      var changes: [PendingChange] = []
      var known = KnownObstacles(self)
      for lsn in lsns {
        guard let id = try owner(ofPending: lsn) else {
          // If this is a reader, the writing process may have settled it, and compacted.
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
  /// The record, the change and its obstacle.
  public var description: String {
    "\(isDeletion ? "deletion" : "save") of \(id) at event \(lsn)\(obstacle.map { ", \($0)" } ?? "")".oneLine
  }
}

extension PendingChange.Obstacle: CustomStringConvertible {
  /// The reason, in short.
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
  /// The number of changes, and whether more follow.
  public var description: String { "\(String.count(changes.count, "change"))\(next == nil ? "" : ", more to come")" }
}
