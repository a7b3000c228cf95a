// What is owed to the server, record by record, and what each waits for as far as the log says it: without an engine, and
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
    /// It is a deletion, and at the server that record still refers to it, whose change is held or goes with one that is. To
    /// delete it first could have the server delete the other one along with it.
    case referrer(RecordID)
    /// A transaction that is uploaded as a whole wrote it, and that record of it cannot go.
    case together(RecordID)
    /// Its zone is gone at the server.
    case zoneLost(ZoneLoss)
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

/// A page of what is owed.
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
  /// - Complexity: O(records of the page + held records), a few reads of the log for each.
  public func pendingChanges(
    after lsn: LSN = .none, limit: Int = 1_000, fileID: String = #fileID, line: Int = #line
  ) throws -> PendingChangePage {
    try CallSite(fileID, line).run("reading what is owed by the store at '\(path)'") {
      try requireOpen()
      try check(limit: limit)
      let durable = min(source.durableLSN, projections.appliedLSN)
      let lsns = projections.owed(limit, after: lsn, upTo: durable)
      var changes: [PendingChange] = []
      var known = KnownObstacles()
      for lsn in lsns {
        guard let id = try owner(ofPending: lsn), let change = try pendingChange(of: id, &known),
          change.lsn == lsn
        else {
          continue
        }
        changes.append(change)
      }
      return PendingChangePage(changes: changes, next: lsns.count < limit ? nil : lsns.last)
    }
  }

  /// What a record owes; nil if it owes nothing.
  package func pendingChange(of id: RecordID) throws -> PendingChange? {
    var known = KnownObstacles()
    return try pendingChange(of: id, &known)
  }

  /// What stands in the way of several records, and is found once for a page.
  struct KnownObstacles {
    /// The records to which one refers at the server whose save is held, or goes with one that is; each with one such record.
    /// Nil before it was asked for: only a deletion needs it.
    var referrers: [RecordID: RecordID]?
    /// Of a set, the record of it that cannot go; nil if all can.
    var kept: [RecordSet: RecordID?] = [:]
  }

  func pendingChange(of id: RecordID, _ known: inout KnownObstacles) throws -> PendingChange? {
    guard let entry = try projections.entry(id), let pending = entry.pending else { return nil }
    let (held, zone, attempted) = projections.withLock { state in
      (state.sync.held[id], state.sync.zones[id.zone], state.outbox.attempted(pending))
    }
    let made: Int64?
    // A damaged event has no age.
    do { made = try mutationTime(pending.since)?.milliseconds } catch let error as StrandlineError
      where error.isOfOneRecord
    {
      made = nil
    }
    let wall = environment.clock.wallMilliseconds()
    let obstacle: PendingChange.Obstacle? =
      if let reason = zone?.lostReason {
        .zoneLost(reason)
      } else if let held {
        .held(StoreStatus.Held(held, wall: wall))
      } else if let halt = (driver.withLock { $0 } as? SyncEngine)?.watch.halt(of: id.zone, entry.type) {
        .halted(halt)
      } else {
        try obstacle(of: id, pending, &known)
      }
    return PendingChange(
      id: id, isDeletion: pending.isDeletion, lsn: pending.newest, since: pending.since, milliseconds: made,
      changeTag: entry.base?.changeTag, mayHaveArrived: attempted != nil, obstacle: obstacle)
  }

  /// Why a record is not sent that is not held: another one is.
  private func obstacle(
    of id: RecordID, _ pending: Pending, _ known: inout KnownObstacles
  ) throws -> PendingChange.Obstacle? {
    let target = try missingTarget(of: id, pending)
    if let target, try projections.entry(target)?.pending != nil { return .target(target) }
    if pending.isDeletion, let referrer = try referrer(of: id, &known) { return .referrer(referrer) }
    if let set = projections.set(of: id) {
      let kept = try known.kept[set] ?? keptMember(of: set, &known)
      known.kept[set] = .some(kept)
      // The record itself is none of these: it would have been found above.
      if let kept { return .together(kept) }
    }
    return target.map { .target($0) }
  }

  /// A record of a set that cannot go: one that is held if there is one, else one that waits for a record that is owed too.
  private func keptMember(of set: RecordSet, _ known: inout KnownObstacles) throws -> RecordID? {
    var waiting: RecordID?
    for other in projections.members(of: set) {
      guard let pending = try projections.entry(other)?.pending else { continue }
      if projections.held(other) != nil { return other }
      if pending.isDeletion, try referrer(of: other, &known) != nil { return other }
      guard waiting == nil, let target = try missingTarget(of: other, pending) else { continue }
      if try projections.entry(target)?.pending != nil { waiting = other }
    }
    return waiting
  }

  /// The record whose newest change stands at `lsn`; nil if it has been settled meanwhile.
  func owner(ofPending lsn: LSN) throws(StrandlineError) -> RecordID? {
    do throws(StrandlineError) { return try source.eventIfKept(at: lsn)?.recordID } catch {
      // The engine holds what it cannot read.
      guard error.isOfOneRecord, let held = projections.withLock({ $0.sync.held.values.first { $0.lsn == lsn } }) else {
        throw error
      }
      return held.id
    }
  }

  private func referrer(of id: RecordID, _ known: inout KnownObstacles) throws -> RecordID? {
    let referrers = try known.referrers ?? heldReferrers()
    known.referrers = referrers
    return referrers[id]
  }

  /// What `KnownObstacles` knows of the records that others refer to.
  private func heldReferrers() throws -> [RecordID: RecordID] {
    var referrers: [RecordID: RecordID] = [:]
    let held = projections.withLock { Set($0.sync.held.keys) }
    let sets = Set(held.compactMap { projections.set(of: $0) })
    for id in held.union(sets.flatMap { projections.members(of: $0) }).sorted() {
      guard let entry = try projections.entry(id), entry.pending?.isDeletion == false, let base = entry.base else {
        continue
      }
      let set = held.contains(id) ? nil : projections.set(of: id)
      do throws(StrandlineError) {
        guard let shown = try source.versionIfKept(at: base.content) else { continue }
        UploadQueue.forEachTarget(of: shown.record(id, system: nil)) { name, _ in
          let target = RecordID(name, zone: id.zone)
          // What goes with it does not wait for it, but for the one that is held.
          if let set, projections.set(of: target) == set { return }
          referrers[target] = id
        }
      } catch {
        guard error.isOfOneRecord else { throw error }
      }
    }
    return referrers
  }

  /// A record that a save needs, and that the server does not have: if there are several, one that is held, or else one that this
  /// store still owes, for which the save waits; nil if there is none, or if the save cannot be read.
  private func missingTarget(of id: RecordID, _ pending: Pending) throws -> RecordID? {
    guard !pending.isDeletion else { return nil }
    var names: [String] = []
    do throws(StrandlineError) {
      guard let shown = try source.versionIfKept(at: pending.newest) else { return nil }
      UploadQueue.forEachTarget(of: shown.record(id, system: nil)) { name, isBinding in
        if isBinding, name != id.name { names.append(name) }
      }
    } catch {
      guard error.isOfOneRecord else { throw error }
      return nil
    }
    let set = projections.set(of: id)
    var (owed, missing): (RecordID?, RecordID?) = (nil, nil)
    for name in names {
      let target = RecordID(name, zone: id.zone)
      // What goes with it is there when it is.
      if set != nil, projections.set(of: target) == set { continue }
      let entry = try projections.entry(target)
      guard entry?.base == nil else { continue }
      guard entry?.pending != nil else {
        missing = missing ?? target
        continue
      }
      // Of records that wait for each other it says nothing to name the next one.
      if projections.held(target) != nil { return target }
      owed = owed ?? target
    }
    return owed ?? missing
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
    case .halted(let halt): "refused: \(halt)"
    }
  }
}

extension PendingChangePage: CustomStringConvertible {
  /// How many, and whether there are more.
  public var description: String { "\(String.count(changes.count, "change"))\(next == nil ? "" : ", more to come")" }
}
