// Finds why a pending record is not sent: the nearest cause, and the next record on the way to it. The edges are the plan's own
// (StrandlineSync/Plan/Outgoing: `lacks` of OutgoingQueue+Order.swift, CascadeGuard.swift, and the members of upload sets), read from the
// log. So the answer is the same in a process without an engine, and in one whose queue has yet to read the record.
//
// A record that cannot be sent blocks those that refer to it, those of its upload set, and deletions that have to wait for its save.
// So the cause may be several records away, with circles on the way. A breadth-first search starts at the record; its results are
// cached, as the records of one page mostly wait for the same one.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// The obstacles of records, in the state of the store at its creation.
struct KnownObstacles {
  /// A node of the graph: a pending record, or an upload set.
  private enum Place: Hashable {
    case record(RecordID)
    case set(RecordSet)
  }

  /// An edge: the node that is waited for, and the obstacle to report for it.
  private struct Wait {
    var place: Place
    var obstacle: PendingChange.Obstacle
  }

  private struct Node {
    /// Why the record itself cannot be sent.
    var cause: PendingChange.Obstacle?
    var waits: [Wait]
  }

  /// The way from a node to the nearest cause.
  private struct Way {
    var next: Wait
    /// How many edges away the cause is: at least 1.
    var distance: Int
  }

  private let facts: any SyncFacts
  /// The engine's halt of a type in a zone.
  private let halt: (ZoneID, String) -> SyncStatus.Halt?
  private let leavesOut: (ZoneID) -> Bool
  /// Whether anything is held, halted or lost.
  private let isAnyKeptBack: Bool
  /// Whether only causes count that a person has to end, and not holds with a timer.
  private let onlyLasting: Bool
  /// The nodes that were visited; nil if nothing of one is pending.
  private var nodes: [Place: Node?] = [:]
  /// The ways that were found; nil if no cause is reachable.
  private var ways: [Place: Way?] = [:]
  /// The references that pending saves release, by zone; nil until a deletion needs them.
  private var cascades: [ZoneID: CascadeGuard]?

  init(_ store: RecordStore, onlyLasting: Bool = false) {
    let engine = store.driver.withLock { $0 } as? SyncEngine
    self.init(
      StoreFacts(store), isAnyKeptBack: store.keepsBack, onlyLasting: onlyLasting,
      halt: { zone, type in engine?.watch.halt(of: zone, type) },
      leavesOut: { zone in engine?.leavesOut(zone) == true })
  }

  /// - Parameters:
  ///   - halt: the engine's halt of a type in a zone.
  ///   - leavesOut: whether the engine does not sync a zone.
  init(
    _ facts: any SyncFacts, isAnyKeptBack: Bool, onlyLasting: Bool = false,
    halt: @escaping (ZoneID, String) -> SyncStatus.Halt?, leavesOut: @escaping (ZoneID) -> Bool
  ) {
    (self.facts, self.isAnyKeptBack, self.onlyLasting) = (facts, isAnyKeptBack, onlyLasting)
    (self.halt, self.leavesOut) = (halt, leavesOut)
  }

  /// The nearest record that cannot be sent for a reason of its own, and that reason; nil if this one waits for no such record.
  mutating func cause(of id: RecordID) throws -> (id: RecordID, obstacle: PendingChange.Obstacle)? {
    guard let node = try node(.record(id)) else { return nil }
    if let cause = node.cause { return (id, cause) }
    guard isAnyKeptBack, var next = try way(from: .record(id))?.next.place else { return nil }
    while let way = ways[next].flatMap(\.self) { next = way.next.place }
    guard case .record(let last) = next, let cause = try self.node(next)?.cause else { return nil }
    return (last, cause)
  }

  /// Why a record is not sent: its own reason, or the next record on the way to the nearest one; nil if no reason is known.
  mutating func obstacle(to id: RecordID, _ entry: RecordEntry, _ pending: Pending) throws -> PendingChange.Obstacle? {
    if let cause = cause(of: id, entry) { return cause }
    if isAnyKeptBack, let wait = try way(from: .record(id))?.next {
      // The set's next node is its record that cannot be sent.
      guard case .set = wait.place else { return wait.obstacle }
      return ways[wait.place].flatMap(\.self)?.next.obstacle
    }
    // It only waits for its turn, or for a target that the server may refuse.
    let targets = try targets(of: id, entry, pending)
    return (targets.first { $0.pending != nil } ?? targets.first).map { .target($0.id) }
  }

  /// Why the record itself cannot be sent.
  private func cause(of id: RecordID, _ entry: RecordEntry) -> PendingChange.Obstacle? {
    let (held, lost) = facts.learned { ($0.held[id], $0.zones[id.zone]?.lostReason) }
    if leavesOut(id.zone) { return .zoneLeftOut }
    if let lost { return .zoneLost(lost) }
    if let held, held.lsn >= entry.pending?.newest ?? .zero, !onlyLasting || held.durationMilliseconds == 0 {
      return .held(HeldRecord(held, wall: facts.now.wall))
    }
    return halt(id.zone, entry.type).map { .halted($0) }
  }

  /// Searches for the nearest cause, breadth first. O(nodes that it waits for).
  private mutating func way(from start: Place) throws -> Way? {
    if let known = ways[start] { return known }
    var found = [start]
    /// How far away each found node is; and from which node, by which edge.
    var distances = [start: 0]
    var steps: [Place: (from: Place, wait: Wait)] = [:]
    /// The best node: it is a cause, or has a known way to one. Its cause's distance from the start, and from the node.
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
      // No cause is reachable from any of these.
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

  /// The edges of a record.
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

  /// The targets of a save that the server does not have, without those of its upload set; none if the save cannot be read, or not
  /// yet.
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
    // The rest of its upload set does not block it.
    return all[id.zone]?.savesAtRisk(fromDeleting: id.key).filter {
      $0 != id && (set == nil || facts.set(of: $0) != set)
    } ?? []
  }

  /// The references that all pending saves release. O(records with pending changes).
  private func allCascades() throws -> [ZoneID: CascadeGuard] {
    var all: [ZoneID: CascadeGuard] = [:]
    for lsn in facts.pending(.max, after: .zero, upTo: facts.appliedLSN) {
      guard let id = try facts.owner(ofPending: lsn) else { continue }
      try facts.loadReleased(of: id, into: &all[id.zone, default: CascadeGuard()])
    }
    for zone in all.keys { try facts.loadTargets(of: &all[zone, default: CascadeGuard()], in: zone) }
    return all
  }
}
