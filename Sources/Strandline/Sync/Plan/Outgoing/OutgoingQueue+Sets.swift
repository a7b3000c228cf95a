// Records that go to the server together: what transactions wrote in a zone that the app wants to be uploaded atomically
// (`StoreOptions.atomicZones`). The log says which record is in which set; here is found out when a whole set can go.
//
// A set goes in a request of its own, and after everything that is ready by itself. As long as one of its records cannot go,
// for whatever reason a record cannot, none of it does. When something has changed about that one or about a record of the
// set, the whole set is looked at anew: what kept it back may have ended together with the record that needed it. What a set
// needs goes with it, and so do the sets that need each other: alone each would wait for the other for ever.

import StrandlineLog
import StrandlineSystem

extension OutgoingQueue {
  /// What was found of a set.
  enum TakenSet {
    case work(Work)
    /// It is no longer one: its records are ready, each by itself.
    case separated
  }

  /// Takes a set of which every record can go; nil if there is none. Everything that is owed has been looked at.
  mutating func takeSet(_ reading: inout Reading) throws -> TakenSet? {
    for zone in lanes.keys.sorted() where reading.only.map({ $0 == zone }) ?? true && !reading.frozen.contains(zone) {
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

  /// The records of a set are sent one by one after all: no request can hold them, or there is only one.
  mutating func separate(_ items: [UploadItem], in zone: ZoneID) {
    for item in items { endWait(of: item.id) }
    var lane = lanes.removeValue(forKey: zone) ?? UploadLane()
    lane.append(UploadPlan.units(items.filter { !$0.isDeletion }))
    // The cursor comes to a newer one.
    for item in items where item.isDeletion && item.lsn <= cursor { lane.add(deletion: item.lsn) }
    lanes[zone] = lane
  }

  /// The records of a set and what they need, if all of it can go; else the set waits for what cannot.
  private mutating func gather(_ set: RecordSet, _ reading: inout Reading) throws -> [UploadItem]? {
    var items: [UploadItem] = []
    var left = reading.facts.members(of: set)
    var met = Set(left)
    unwatch(set)
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
      switch waits[id] {
      // What is not durable yet cannot be read: the next round comes to it.
      case _ where pending.newest > reading.facts.durableLSN:
        watch(met, for: set)
        return nil
      case .together where !halts.contains(id, entry, pending): break
      // Another record of these was in the way when they were looked at before.
      case .target(let other) where met.contains(other): break
      // The app has changed it since this round began: what goes with it does not wait for the next one.
      case nil where mayGo(id, entry, pending, reading): break
      default:
        watch(met, for: set)
        return nil
      }
      if pending.isDeletion, entry.base == nil {
        if reading.facts.mayHaveBeenSent(pending) {
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

  /// Adds what a record needs and the server lacks.
  ///
  /// - Returns: what it needs and cannot go.
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
        // The server has it, or had it. If its change waits for one of these they go together, whatever the server has.
        guard case .target(let waited)? = waits[target], met.contains(waited) else { continue }
      }
      met.insert(target)
      if let other = reading.facts.set(of: target) {
        left.append(target)
        for member in reading.facts.members(of: other) where met.insert(member).inserted {
          left.append(member)
        }
      } else if needed.base != nil {
        left.append(target)
      } else if case .ready(let single) = try find(target, &reading) {
        items.append(single)
      } else {
        return target
      }
    }
    return nil
  }

  /// Adds the records whose unsent saves leave what is to be deleted, if they go only with these: they wait for one of them,
  /// themselves or through others, or are of a set.
  ///
  /// - Returns: one that does not, and goes before, with those that it waits for.
  private mutating func addReferrers(
    of id: RecordID, to left: inout [RecordID], _ met: inout Set<RecordID>, _ facts: some SyncFacts
  ) throws -> [RecordID]? {
    try readLeft(in: id.zone, facts)
    for referrer in lanes[id.zone]?.kept.keepers(of: id.key) ?? [] where referrer != id && !met.contains(referrer) {
      var way = [referrer]
      while let last = way.last, !met.contains(last), facts.set(of: last) == nil {
        guard case .target(let next)? = waits[last], !way.contains(next) else { return way }
        way.append(next)
      }
      for next in way {
        let members = facts.set(of: next).map { facts.members(of: $0) } ?? [next]
        for member in members where met.insert(member).inserted { left.append(member) }
      }
    }
    return nil
  }

  /// The deletions among some records of what the server never had: nothing is sent for them.
  private func neverSent(_ items: [UploadItem], _ facts: some SyncFacts) throws -> [(id: RecordID, lsn: LSN)] {
    try items.compactMap { item in
      guard item.isDeletion, try facts.entry(item.id)?.base == nil else { return nil }
      return (item.id, item.lsn)
    }
  }
}
