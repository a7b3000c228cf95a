// Sends a transaction's records in one atomic request, in zones that the app has declared atomic (`StoreOptions.atomicZones`). The log
// says which upload set each record is in; this file finds out when a whole set can be sent.
//
// A set gets its own request, after everything else that is ready. While one of its records cannot be sent, none is. When
// that record or any other of the set changes, the whole set is checked again. The targets that a set needs are sent
// with it, and sets that need each other are sent together: alone, each would wait for the other for ever.

import StrandlineLog
import StrandlineSystem

extension OutgoingQueue {
  /// The result of taking a set.
  enum TakenSet {
    case work(Work)
    /// The set was dissolved: each of its records is ready by itself.
    case separated
  }

  /// Takes a set whose records can all be sent; nil if there is none. Called when everything pending was read.
  mutating func takeSet(_ reading: inout Reading) throws -> TakenSet? {
    for zone in lanes.keys.sorted() where reading.sends(to: zone) {
      while let number = lanes[zone]?.sets.first {
        lanes[zone]?.sets.remove(number)
        if let taken = try take(RecordSet(zone: zone, number: number), &reading) { return taken }
      }
    }
    return nil
  }

  private mutating func take(_ set: RecordSet, _ reading: inout Reading) throws -> TakenSet? {
    let gathered = try gather(set, &reading)
    if !reading.unreadable.isEmpty {
      lanes[set.zone]?.sets.insert(set.number)
      return .work(.hold(reading.unreadable))
    }
    guard let items = gathered, !items.isEmpty else { return nil }
    let cancelled = try neverSent(items, reading.facts)
    guard cancelled.isEmpty else {
      lanes[set.zone]?.sets.insert(set.number)
      return .work(.cancel(cancelled))
    }
    if items.count > UploadPlan.operationsMax || items.count == 1 {
      separate(items, in: set.zone)
      return .separated
    }
    for item in items { endWait(of: item.id) }
    return .work(.sendTogether(set.zone, UploadPlan.units(items).flatMap { $0 }))
  }

  /// Dissolves a set that fits into no request, or has only one record: its records are sent one by one.
  mutating func separate(_ items: [UploadItem], in zone: ZoneID) {
    for item in items { endWait(of: item.id) }
    add(UploadPlan.units(items.filter { !$0.isDeletion }), in: zone)
    // The cursor will find later ones.
    for item in items where item.isDeletion && item.lsn <= cursor { add(deletion: item.lsn, of: item.id) }
  }

  /// The records of a set and the targets that they need, if all can be sent; if not, the set waits for those that cannot.
  private mutating func gather(_ set: RecordSet, _ reading: inout Reading) throws -> [UploadItem]? {
    var items: [UploadItem] = []
    var left = reading.facts.members(of: set)
    var met = Set(left)
    unwatch(set)
    try letThrough(left, reading.facts)
    var (place, checked) = (0, 0)
    while place < left.count || checked < items.count {
      guard place < left.count else {
        let item = items[checked]
        checked += 1
        if let target = try addNeeds(of: item, to: &items, &left, &met, &reading) {
          watch(met.union([target]), for: set)
          return nil
        }
        continue
      }
      let id = left[place]
      place += 1
      guard let entry = try reading.facts.entry(id), let pending = entry.pending else { continue }
      switch wait(of: id) {
      // A change that is not durable yet cannot be read: the next round does. One that a halt keeps back is read again at its end.
      case _ where pending.newest > reading.facts.durableLSN || halts.contains(id, entry, pending):
        watch(met, for: set)
        return nil
      case .together: break
      // It waits for another record of this request, or for one that goes with them, if it can.
      case .target(let other)
      where try met.contains(other) || (!pending.isDeletion && goesAlong(other, with: met, reading.facts)): break
      case .target(let other):
        watch(met.union([other]), for: set)
        return nil
      // The app has changed it since this round began: the set does not wait for the next round.
      case nil where mayGo(id, entry, pending, reading): break
      // The lookup after a conflict has failed, and while its type was halted nobody has looked at it.
      case nil where meetsConflictAgain(id, entry, pending, reading.facts):
        wait(id, for: .lookup)
        lookups.append(id)
        watch(met, for: set, keepsProbe: true)
        return nil
      // The server has refused it because of a reference, and nobody has looked at it since its type was halted.
      case nil where try goesDespiteHold(id, entry, pending, met, &reading): break
      default:
        watch(met, for: set)
        return nil
      }
      if pending.isDeletion, entry.base == nil {
        if try reading.facts.mayBeAtServer(id, deletedBy: pending) {
          wait(id, for: .lookup)
          lookups.append(id)
          watch(met, for: set)
          return nil
        }
        items.append(UploadItem(id: id, lsn: pending.newest, first: pending.first, isDeletion: true, targets: []))
        continue
      }
      guard let item = try item(of: id, entry, pending, &reading) else { return nil }
      if pending.isDeletion,
        let others = try addReferrers(of: id, to: &left, &met, reading.facts)
      {
        watch(met.union(others), for: set)
        return nil
      }
      items.append(item)
    }
    return items
  }

  /// Whether a record of the set that is held because of a reference can go now. If not, it waits for its target.
  private mutating func goesDespiteHold(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ met: Set<RecordID>, _ reading: inout Reading
  ) throws -> Bool {
    guard !pending.isDeletion, reading.facts.held(id)?.isOfReference == true, !halts.contains(id, entry, pending),
      refusedTag(of: id) == nil, let item = try item(of: id, entry, pending, &reading)
    else { return false }
    guard case .record(let target) = try lack(of: item, reading.facts), !met.contains(target),
      try !goesAlong(target, with: met, reading.facts)
    else { return true }
    wait(id, for: .target(target))
    return false
  }

  /// Whether a record would be sent with the change tag of a conflict.
  private func meetsConflictAgain(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ facts: some SyncFacts
  ) -> Bool {
    guard let tag = refusedTag(of: id), (entry.base?.changeTag).equalsUTF8(tag) else { return false }
    return facts.held(id).map { $0.lsn < pending.newest } ?? true
  }

  /// Whether a record that one of `ids` needs is taken along: it waits for one of them in turn, or the server lacks it.
  private func goesAlong(_ id: RecordID, with ids: Set<RecordID>, _ facts: some SyncFacts) throws -> Bool {
    if case .target(let other)? = wait(of: id), ids.contains(other) { return true }
    return try lacksSave(of: id, facts)
  }

  /// Adds the targets of a record that the server lacks.
  ///
  /// - Returns: a target that cannot be sent.
  private mutating func addNeeds(
    of item: UploadItem, to items: inout [UploadItem], _ left: inout [RecordID], _ met: inout Set<RecordID>,
    _ reading: inout Reading
  ) throws -> RecordID? {
    for name in item.needs {
      let target = RecordID(name, zone: item.id.zone)
      guard !met.contains(target), let needed = try reading.facts.entry(target),
        let pending = needed.pending,
        !pending.isDeletion
      else { continue }
      if needed.base != nil {
        // The server has it, or had it. Only if its change waits for one of these, they are sent together.
        guard case .target(let waited)? = wait(of: target), met.contains(waited) else { continue }
      }
      met.insert(target)
      let together = reading.facts.set(of: target).map { reading.facts.members(of: $0) }
      try letThrough(together ?? [target], with: item.id, reading.facts)
      if let together {
        left.append(target)
        for member in together where met.insert(member).inserted { left.append(member) }
      } else if needed.base != nil {
        left.append(target)
      } else if case .ready(let single) = try find(target, &reading, isSent: { met.contains($0) }) {
        items.append(single)
      } else {
        return target
      }
    }
    return nil
  }

  /// Adds the records whose unsent saves release the record to be deleted (CascadeGuard.swift), if they can only be sent with the
  /// set: they wait for one of its records, directly or through others, or are in an upload set.
  ///
  /// - Returns: if one can be sent before the set: that record, and those that it waits for.
  private mutating func addReferrers(
    of id: RecordID, to left: inout [RecordID], _ met: inout Set<RecordID>, _ facts: some SyncFacts
  ) throws -> [RecordID]? {
    try loadReleased(in: id.zone, facts)
    for referrer in lanes[id.zone]?.cascades.savesAtRisk(fromDeleting: id.key) ?? []
    where referrer != id && !met.contains(referrer) {
      var way = [referrer]
      while let last = way.last, !met.contains(last), facts.set(of: last) == nil {
        guard case .target(let next)? = wait(of: last), !way.contains(next) else { return way }
        way.append(next)
      }
      for next in way {
        let members = facts.set(of: next).map { facts.members(of: $0) } ?? [next]
        for member in members where met.insert(member).inserted { left.append(member) }
      }
    }
    return nil
  }

  /// The deletions of records that the server never had: nothing is sent for them.
  private func neverSent(_ items: [UploadItem], _ facts: some SyncFacts) throws -> [(id: RecordID, lsn: LSN)] {
    try items.compactMap { item in
      guard item.isDeletion, try facts.entry(item.id)?.base == nil else { return nil }
      return (item.id, item.lsn)
    }
  }
}
