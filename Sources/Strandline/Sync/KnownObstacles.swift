// Why a record that is owed is not sent: the cause nearest to it, and the next record on the way there.
//
// A record that cannot go keeps back those that refer to it, those that go with it, and the deletions of what it refers to.
// So the cause may lie several records away, and there may be circles on the way. It is looked for from the record outwards.
// What is found is remembered: records of one page mostly wait for the same one.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// The obstacles of records, found one after the other, as the store stood when the first was asked for.
struct KnownObstacles {
  /// A record that another one waits for, and the word for that.
  private struct Wait {
    var id: RecordID
    var obstacle: PendingChange.Obstacle
  }

  /// A record that is owed.
  private struct Node {
    /// What forbids the record itself to be sent.
    var cause: PendingChange.Obstacle?
    var waits: [Wait]
  }

  /// The way from a record to the cause nearest to it.
  private struct Way {
    var next: PendingChange.Obstacle
    /// How many records away that is: at least 1.
    var distance: Int
  }

  private let store: RecordStore
  /// What each record waits for that was looked at; nil if it owes nothing.
  private var nodes: [RecordID: Node?] = [:]
  /// What was found of each record from which was looked; nil if no cause keeps it back.
  private var ways: [RecordID: Way?] = [:]
  /// The records that each one is referred to by at the server, among those whose saves are owed. Nil before it was asked for:
  /// only a deletion needs it.
  private var referrers: [RecordID: [RecordID]]?

  init(_ store: RecordStore) { self.store = store }

  /// Why a record is not sent; nil if nothing is known that forbids it.
  ///
  /// Following `target`, `referrer` and `together` from record to record ends at one that is held, halted or of a lost zone,
  /// if there is one: each is nearer to it.
  mutating func obstacle(to id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> PendingChange.Obstacle? {
    if let cause = cause(of: id, entry) { return cause }
    if store.keepsBack, let way = try way(from: id) { return way.next }
    // Nothing but the order of the requests, or what the server may refuse, keeps it back.
    let targets = try targets(of: id, pending)
    if let owed = targets.first(where: \.isOwed) { return .target(owed.id) }
    return try waitingMember(besides: id) ?? targets.first.map { .target($0.id) }
  }

  /// What forbids the record itself to be sent.
  private func cause(of id: RecordID, _ entry: RecordEntry) -> PendingChange.Obstacle? {
    let (held, lost) = store.projections.withLock { ($0.sync.held[id], $0.sync.zones[id.zone]?.lostReason) }
    if let lost { return .zoneLost(lost) }
    if let held { return .held(StoreStatus.Held(held, wall: store.environment.clock.wallMilliseconds())) }
    return (store.driver.withLock { $0 } as? SyncEngine)?.watch.halt(of: id.zone, entry.type).map { .halted($0) }
  }

  /// Looks for the cause nearest to a record, in widening circles. O(records that it waits for).
  private mutating func way(from start: RecordID) throws -> Way? {
    if let known = ways[start] { return known }
    var found = [start]
    /// How far away each of them is, and from which one it was found.
    var distances = [start: 0]
    var steps: [RecordID: (from: RecordID, wait: Wait)] = [:]
    /// The record on the nearest way that is known, how far away its end is from the start, and from that record.
    var best: (id: RecordID, distance: Int, rest: Int)?
    var place = 0
    while place < found.count {
      let id = found[place]
      place += 1
      let distance = distances[id] ?? 0
      if let best, distance >= best.distance { break }
      guard let node = try node(id) else { continue }
      if node.cause != nil {
        best = (id, distance, 0)
      } else if let known = ways[id] {
        guard let known, best.map({ distance + known.distance < $0.distance }) ?? true else { continue }
        best = (id, distance + known.distance, known.distance)
      } else {
        for wait in node.waits where distances[wait.id] == nil {
          distances[wait.id] = distance + 1
          steps[wait.id] = (id, wait)
          found.append(wait.id)
        }
      }
    }
    guard let best else {
      // Nor is there one for any of these.
      for id in found { ways[id] = .some(nil) }
      return nil
    }
    var (id, distance) = (best.id, best.rest)
    while let step = steps[id] {
      distance += 1
      ways[step.from] = Way(next: step.wait.obstacle, distance: distance)
      id = step.from
    }
    return ways[start].flatMap(\.self)
  }

  private mutating func node(_ id: RecordID) throws -> Node? {
    if let known = nodes[id] { return known }
    var node: Node?
    if let entry = try store.projections.entry(id), let pending = entry.pending {
      let cause = cause(of: id, entry)
      node = Node(cause: cause, waits: cause == nil ? try waits(of: id, pending) : [])
    }
    nodes[id] = .some(node)
    return node
  }

  /// The records for which one waits.
  private mutating func waits(of id: RecordID, _ pending: Pending) throws -> [Wait] {
    var waits = try targets(of: id, pending).filter(\.isOwed).map { Wait(id: $0.id, obstacle: .target($0.id)) }
    if pending.isDeletion { waits += try referrers(of: id).map { Wait(id: $0, obstacle: .referrer($0)) } }
    if let set = store.projections.set(of: id) {
      for other in store.projections.members(of: set) where other != id {
        waits.append(Wait(id: other, obstacle: .together(other)))
      }
    }
    return waits
  }

  /// The records that a save needs and the server does not have, but for those that go with it; none if the save cannot be read.
  private func targets(of id: RecordID, _ pending: Pending) throws -> [(id: RecordID, isOwed: Bool)] {
    guard !pending.isDeletion else { return [] }
    let set = store.projections.set(of: id)
    return try names(at: pending.newest, of: id, onlyBinding: true).compactMap { name in
      let target = RecordID(name, zone: id.zone)
      if target == id || set != nil && store.projections.set(of: target) == set { return nil }
      let entry = try store.projections.entry(target)
      return entry?.base == nil ? (target, entry?.pending != nil) : nil
    }
  }

  /// A record that goes with this one, and waits for a further one that is owed.
  private func waitingMember(besides id: RecordID) throws -> PendingChange.Obstacle? {
    guard let set = store.projections.set(of: id) else { return nil }
    for other in store.projections.members(of: set) where other != id {
      guard let pending = try store.projections.entry(other)?.pending else { continue }
      if try targets(of: other, pending).contains(where: \.isOwed) { return .together(other) }
    }
    return nil
  }

  private mutating func referrers(of id: RecordID) throws -> [RecordID] {
    let all = try referrers ?? allReferrers()
    referrers = all
    let set = store.projections.set(of: id)
    // What goes with it does not keep it back.
    return all[id]?.filter { set == nil || store.projections.set(of: $0) != set } ?? []
  }

  /// What the saves that are owed refer to at the server. O(records that owe something).
  private func allReferrers() throws -> [RecordID: [RecordID]] {
    var referrers: [RecordID: [RecordID]] = [:]
    for lsn in store.projections.owed {
      guard let id = try store.owner(ofPending: lsn), let entry = try store.projections.entry(id),
        entry.pending?.isDeletion == false, let base = entry.base
      else { continue }
      for name in Set(try names(at: base.content, of: id, onlyBinding: false)) where name != id.name {
        referrers[RecordID(name, zone: id.zone), default: []].append(id)
      }
    }
    return referrers
  }

  /// The names that the version in an event refers to; none if it cannot be read.
  private func names(at lsn: LSN, of id: RecordID, onlyBinding: Bool) throws -> [String] {
    var names: [String] = []
    do throws(StrandlineError) {
      guard let shown = try store.source.versionIfKept(at: lsn) else { return [] }
      UploadQueue.forEachTarget(of: shown.record(id, system: nil)) { name, isBinding in
        if isBinding || !onlyBinding { names.append(name) }
      }
    } catch {
      guard error.isOfOneRecord else { throw error }
    }
    return names
  }
}
