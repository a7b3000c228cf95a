// Orders uploads by references: the server must get a target before the record that refers to it, or in the same request.
//
// A ready record pulls the targets that the server lacks into its batch. If one of these cannot be sent, the record waits for it.
// Records that need each other are sent in one request, so that no two wait for each other.

package import StrandlineLog
import StrandlineSystem

extension OutgoingQueue {
  /// Adds missing reference targets to the ready records. Records whose targets cannot be sent wait; the rest is sorted, targets
  /// first.
  mutating func order(_ reading: inout Reading) throws {
    let found = reading.found
    reading.found = [:]
    for (zone, items) in found.sorted(by: { $0.key < $1.key }) {
      var all: [CloudName: UploadItem] = [:]
      var order: [CloudName] = []
      // A record may be found twice: it woke, and the cursor came to it.
      for item in items.sorted(by: { $0.first < $1.first })
      where all.updateValue(item, forKey: item.id.key) == nil {
        order.append(item.id.key)
      }
      let missing = try addTargets(to: &all, &order, zone, &reading)
      for (name, target) in missing.sorted(by: { $0.key < $1.key }) {
        wait(RecordID(name, zone: zone), for: .target(RecordID(target, zone: zone)))
      }
      let ready = order.compactMap { missing[$0] == nil ? all[$0] : nil }
      add(UploadPlan.units(ready), in: zone)
    }
  }

  /// Adds the targets that have to be sent before the records that refer to them.
  ///
  /// - Returns: each record that cannot be sent, with the target that is the reason.
  private mutating func addTargets(
    to all: inout [CloudName: UploadItem], _ order: inout [CloudName], _ zone: ZoneID, _ reading: inout Reading
  ) throws -> [CloudName: CloudName] {
    var missing: [CloudName: CloudName] = [:]
    var needing: [CloudName: [CloudName]] = [:]
    // First those that a halted type lets through, with what they need and what that needs in turn.
    var first = halts.hasTypes ? order.filter { halts.isLetThrough(RecordID($0, zone: zone)) } : []
    var (firstPlace, place) = (0, 0)
    var met: Set<CloudName> = []
    while firstPlace < first.count || place < order.count {
      let isFirst = firstPlace < first.count
      let name = isFirst ? first[firstPlace] : order[place]
      if isFirst { firstPlace += 1 } else { place += 1 }
      guard met.insert(name).inserted else { continue }
      let needs = all[name]?.needs ?? []
      for need in needs { needing[need, default: []].append(name) }
      for target in all[name]?.targets ?? [] where missing[name] == nil {
        if needs.contains(target),
          try letAlong(RecordID(target, zone: zone), with: RecordID(name, zone: zone), reading.facts)
        {
          first.append(target)
        }
        if all[target] != nil { continue }
        switch try find(RecordID(target, zone: zone), &reading, isSent: { all[$0.key] != nil }) {
        case .atServer: break
        case .ready(let item):
          endWait(of: item.id)
          all[target] = item
          order.append(target)
        case .waits: if needs.contains(target) { missing[name] = target }
        }
      }
    }
    var added = Array(missing.keys)
    while let name = added.popLast() {
      // A record that the server has keeps no other back, even if a change of it waits.
      if needing[name] != nil, try reading.facts.entry(RecordID(name, zone: zone))?.base != nil { continue }
      for other in needing[name] ?? [] where missing[other] == nil {
        missing[other] = name
        added.append(other)
      }
    }
    return missing
  }

  enum Found {
    /// The server has it, or it has no pending save, or it will be sent before the next batch.
    case atServer
    case ready(UploadItem)
    case waits
  }

  /// The state of a record to which another one refers. If the two wait for each other, the wait ends when both are sent together.
  ///
  /// - Parameter isSent: whether a record is in the request so far.
  mutating func find(
    _ id: RecordID, _ reading: inout Reading, isSent: (RecordID) -> Bool
  ) throws -> Found {
    guard let entry = try reading.facts.entry(id), let pending = entry.pending, entry.base == nil,
      !pending.isDeletion, places[id] != .inFlight(pending.newest)
    else { return .atServer }
    switch wait(of: id) {
    case nil: break
    case .target(let other) where try isSent(other) || lacksSave(of: other, reading.facts): break
    default: return .waits
    }
    if places[id] == .ready(pending.newest, isDeletion: false) { return .atServer }
    guard reading.facts.set(of: id) == nil, mayGo(id, entry, pending, reading),
      let item = try item(of: id, entry, pending, &reading)
    else { return .waits }
    return .ready(item)
  }

  /// Whether the server lacks a record, as far as this store knows, and a save of it is pending: the request that needs it brings it,
  /// if it can be sent.
  func lacksSave(of id: RecordID, _ facts: some SyncFacts) throws -> Bool {
    guard let entry = try facts.entry(id), let pending = entry.pending else { return false }
    return entry.base == nil && !pending.isDeletion
  }

  /// Whether a record that was not read yet, or that waits for one of the same request, may be sent along with another one.
  func mayGo(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ reading: Reading) -> Bool {
    pending.newest <= reading.facts.durableLSN
      && reading.facts.held(id).map { $0.lsn < pending.newest || ($0.isOfReference && wait(of: id) != nil) } ?? true
      && !halts.contains(id, entry, pending)
      && refusedTag(of: id).map { (entry.base?.changeTag).equalsUTF8($0) == false } ?? true
  }

  /// Which target of a record the server lacks, as far as this store knows.
  enum Lack {
    case nothing
    case record(RecordID)
    /// Only records that wait for this one: they are sent together or not at all.
    case circle
  }

  /// The target to wait for, if the server refused a record because of a reference: first one that no request of this store brings,
  /// last one that the same request brings. Two records that wait for each other would wait for ever, so such a target does not
  /// count.
  func lack(of item: UploadItem, _ facts: some SyncFacts) throws -> Lack {
    let lacks = try facts.lacks(of: item)
    let set = facts.set(of: item.id)
    func rank(_ target: LackingTarget) -> Int { !target.isSaved ? 0 : facts.set(of: target.id) != set ? 1 : 2 }
    for target in lacks.sorted(by: { rank($0) < rank($1) }) where !waitsInTurn(target.id, for: item.id) {
      return .record(target.id)
    }
    return lacks.isEmpty ? .nothing : .circle
  }

  func waitsInTurn(_ target: RecordID, for id: RecordID) -> Bool {
    var met: Set<RecordID> = []
    var next = target
    while met.insert(next).inserted, case .target(let other)? = wait(of: next) {
      if other == id { return true }
      next = other
    }
    return false
  }
}

extension SyncFacts {
  /// The upload item of a pending record, with its references; nil if a newer change has replaced this one and compaction has removed
  /// it.
  ///
  /// - Parameter event: an event that was read already: mostly the version to be sent.
  package func item(
    of id: RecordID, _ entry: RecordEntry, _ pending: Pending, _ event: LogEvent? = nil
  ) throws(StrandlineError) -> UploadItem? {
    guard let source = pending.isDeletion ? entry.base?.content : pending.newest else { return nil }
    var shown: ShownVersion?
    if let event, event.lsn == source.rawValue {
      shown = try ShownVersion(event, of: id)
    } else {
      shown = try versionIfKept(at: source, of: id)
    }
    guard let shown else { return nil }
    var item = UploadItem(
      id: id, lsn: pending.newest, first: pending.first, isDeletion: pending.isDeletion, targets: [])
    OutgoingQueue.forEachTarget(of: shown.record(id, system: nil)) { name, action in
      item.targets.append(CloudName(name))
      if action != .none, !pending.isDeletion { item.needs.append(CloudName(name)) }
    }
    if item.targets.count > 1 { item.targets.sort() }
    return item
  }
}

/// A record that another one needs and the server does not have, as far as this store knows.
package struct LackingTarget {
  package var id: RecordID
  /// Its own pending change.
  package var pending: Pending?

  var isSaved: Bool { pending?.isDeletion == false }
}

extension FoldFacts {
  /// The records that `item` needs and that the server does not have, as far as this store knows.
  ///
  /// - Parameter names: targets that need not be looked for.
  package func lacks(of item: UploadItem, but names: Set<CloudName> = []) throws -> [LackingTarget] {
    try item.needs.compactMap { name in
      guard name != item.id.key, !names.contains(name) else { return nil }
      let id = RecordID(name, zone: item.id.zone)
      let found = try entry(id)
      return found?.base == nil ? LackingTarget(id: id, pending: found?.pending) : nil
    }
  }

  /// A target of `item` with a pending save that is neither at the server nor in the same request; nil if there is none.
  package func missingTarget(of item: UploadItem, sentWith names: Set<CloudName>) throws -> RecordID? {
    try lacks(of: item, but: names).first(where: \.isSaved)?.id
  }
}
