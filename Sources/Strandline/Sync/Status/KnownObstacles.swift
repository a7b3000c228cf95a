// Why a pending record is not sent: the cause nearest to it, and the next record on the way there. The edges of the graph are the
// plan's own (Plan/Outgoing/OutgoingQueue+Order.swift, CascadeGuard.swift, and the sets); here they are followed.
//
// A record that cannot go keeps back those that refer to it, those that go with it, and the deletions of what it refers to.
// So the cause may lie several records away, and there may be circles on the way. It is looked for from the record outwards.
// What is found is remembered: records of one page mostly wait for the same one.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// The obstacles of records, found one after the other, as the store stood when the first was asked for.
struct KnownObstacles {
  /// What may keep something back: a record that is owed, or the records that go together as a whole.
  private enum Place: Hashable {
    case record(RecordID)
    case set(RecordSet)
  }

  /// A place that is waited for, and the word for that.
  private struct Wait {
    var place: Place
    var obstacle: PendingChange.Obstacle
  }

  private struct Node {
    /// What forbids the record itself to be sent.
    var cause: PendingChange.Obstacle?
    var waits: [Wait]
  }

  /// The way from a place to the cause nearest to it.
  private struct Way {
    var next: Wait
    /// How many places away that is: at least 1.
    var distance: Int
  }

  private let facts: StoreFacts
  /// What the engine knows to be refused of a type in a zone.
  private let halt: (ZoneID, String) -> SyncStatus.Halt?
  private let leavesOut: (ZoneID) -> Bool
  /// Whether anything is held, halted or lost.
  private let isAnyKeptBack: Bool
  /// Only what a person has to end counts as a cause, and not a hold that ends by itself.
  private let onlyLasting: Bool
  /// What each place waits for that was looked at; nil if nothing of it is owed.
  private var nodes: [Place: Node?] = [:]
  /// What was found of each place from which was looked; nil if no cause keeps it back.
  private var ways: [Place: Way?] = [:]
  /// What the saves that are owed leave, by zone. Nil before it was asked for: only a deletion needs it.
  private var cascades: [ZoneID: CascadeGuard]?

  init(_ store: RecordStore, onlyLasting: Bool = false) {
    self.onlyLasting = onlyLasting
    (facts, isAnyKeptBack) = (StoreFacts(store), store.keepsBack)
    let engine = store.driver.withLock { $0 } as? SyncEngine
    halt = { zone, type in engine?.watch.halt(of: zone, type) }
    leavesOut = { zone in engine?.leavesOut(zone) == true }
  }

  /// Why a record is not sent; nil if nothing is known that forbids it.
  ///
  /// Following `target`, `referrer` and `together` from record to record ends at one that is held, halted or of a lost zone,
  /// if there is one: each is nearer to it.
  mutating func obstacle(to id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> PendingChange.Obstacle? {
    if let cause = cause(of: id, entry) { return cause }
    if isAnyKeptBack, let wait = try way(from: .record(id))?.next {
      // The set's own next place is the record of it that is in the way.
      guard case .set = wait.place else { return wait.obstacle }
      return ways[wait.place].flatMap(\.self)?.next.obstacle
    }
    // Nothing but the order of the requests, or what the server may refuse, keeps it back.
    let targets = try targets(of: id, entry, pending)
    return (targets.first { $0.pending != nil } ?? targets.first).map { .target($0.id) }
  }

  /// What forbids the record itself to be sent.
  private func cause(of id: RecordID, _ entry: RecordEntry) -> PendingChange.Obstacle? {
    let (held, lost) = facts.learned { ($0.held[id], $0.zones[id.zone]?.lostReason) }
    if leavesOut(id.zone) { return .zoneLeftOut }
    if let lost { return .zoneLost(lost) }
    if let held, held.lsn >= entry.pending?.newest ?? .none, !onlyLasting || held.durationMilliseconds == 0 {
      return .held(StoreStatus.Held(held, wall: facts.now.wall))
    }
    return halt(id.zone, entry.type).map { .halted($0) }
  }

  /// Looks for the cause nearest to a place, in widening circles. O(what it waits for).
  private mutating func way(from start: Place) throws -> Way? {
    if let known = ways[start] { return known }
    var found = [start]
    /// How far away each of them is, and from which one it was found.
    var distances = [start: 0]
    var steps: [Place: (from: Place, wait: Wait)] = [:]
    /// The place on the nearest way that is known, and how far away its end is from the start and from that place.
    var best: (place: Place, distance: Int, rest: Int)?
    var index = 0
    while index < found.count {
      let place = found[index]
      index += 1
      let distance = distances[place] ?? 0
      if let best, distance >= best.distance { break }
      guard let node = try node(place) else { continue }
      if node.cause != nil {
        best = (place, distance, 0)
      } else if let known = ways[place] {
        guard let known, best.map({ distance + known.distance < $0.distance }) ?? true else { continue }
        best = (place, distance + known.distance, known.distance)
      } else {
        for wait in node.waits where distances[wait.place] == nil {
          distances[wait.place] = distance + 1
          steps[wait.place] = (place, wait)
          found.append(wait.place)
        }
      }
    }
    guard let best else {
      // Nor is there one for any of these.
      for place in found { ways[place] = .some(nil) }
      return nil
    }
    var (place, distance) = (best.place, best.rest)
    while let step = steps[place] {
      distance += 1
      ways[step.from] = Way(next: step.wait, distance: distance)
      place = step.from
    }
    return ways[start].flatMap(\.self)
  }

  private mutating func node(_ place: Place) throws -> Node? {
    if let known = nodes[place] { return known }
    var node: Node?
    switch place {
    case .record(let id):
      guard let entry = try facts.entry(id), let pending = entry.pending else { break }
      let cause = cause(of: id, entry)
      node = Node(cause: cause, waits: cause == nil ? try waits(of: id, entry, pending) : [])
    case .set(let set):
      node = Node(waits: facts.members(of: set).map { Wait(place: .record($0), obstacle: .together($0)) })
    }
    nodes[place] = .some(node)
    return node
  }

  /// What a record waits for.
  private mutating func waits(of id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> [Wait] {
    var waits = try targets(of: id, entry, pending).filter { $0.pending != nil }.map {
      Wait(place: .record($0.id), obstacle: .target($0.id))
    }
    if pending.isDeletion {
      waits += try referrers(of: id).map { Wait(place: .record($0), obstacle: .referrer($0)) }
    }
    if let set = facts.set(of: id) { waits.append(Wait(place: .set(set), obstacle: .together(id))) }
    return waits
  }

  /// The records that a save needs and the server does not have, but for those that go with it; none if the save cannot be read,
  /// or not yet.
  private func targets(of id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> [LackingTarget] {
    guard !pending.isDeletion, pending.newest <= facts.durableLSN else { return [] }
    let item: UploadItem?
    do throws(StrandlineError) { item = try facts.item(of: id, entry, pending) } catch {
      guard error.isOfOneRecord else { throw error }
      return []
    }
    guard let item else { return [] }
    let set = facts.set(of: id)
    return try facts.lacks(of: item).filter { set == nil || facts.set(of: $0.id) != set }
  }

  private mutating func referrers(of id: RecordID) throws -> [RecordID] {
    let all = try cascades ?? allCascades()
    cascades = all
    let set = facts.set(of: id)
    // What goes with it does not keep it back.
    return all[id.zone]?.savesAtRisk(fromDeleting: id.key).filter {
      $0 != id && (set == nil || facts.set(of: $0) != set)
    } ?? []
  }

  /// What the saves that are owed leave. O(records that owe something).
  private func allCascades() throws -> [ZoneID: CascadeGuard] {
    var all: [ZoneID: CascadeGuard] = [:]
    for lsn in facts.pending(.max, after: .none, upTo: facts.appliedLSN) {
      guard let id = try facts.owner(ofPending: lsn) else { continue }
      try facts.loadReleased(of: id, into: &all[id.zone, default: CascadeGuard()])
    }
    for zone in all.keys { try facts.loadTargets(of: &all[zone, default: CascadeGuard()], in: zone) }
    return all
  }
}
