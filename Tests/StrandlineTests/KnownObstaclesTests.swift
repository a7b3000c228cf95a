// Goal: what `pendingChanges` and receipts say of a record that is not sent is what the queue waits for. `KnownObstacles` reads the graph
// from the log, the queue keeps its own waits. Method: random histories (RecordPlaceTests.swift); whenever the plan asks, waits or has
// nothing left to do, the waits of each pending record are followed in the queue, and compared.

import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

/// Follows the queue's own waits.
private struct QueueWaits {
  let plan: SyncPlan
  let facts: LogFacts

  /// The records that cannot be sent for a reason of their own and for which a record waits, itself among them.
  ///
  /// - Returns: nil if the queue has yet to read one of the records on the way; also whether all waits on the way are for other records: one that waits for a moment or an answer may need a record
  ///   that is held as well, which the queue finds when it reads it.
  func causes(of id: RecordID) throws -> (found: Set<RecordID>, isAll: Bool)? {
    var (found, met, open, isAll) = (Set<RecordID>(), Set([id]), [id], true)
    while let id = open.popLast() {
      guard let entry = try facts.entry(id), let pending = entry.pending else { continue }
      if plan.queue.isUnread(id, pending) { return nil }
      // A hold because of a reference is only shown.
      if let held = facts.held(id), held.lsn >= pending.newest { found.insert(id) }
      var next: [RecordID] = []
      switch plan.queue.places[id] {
      case .waits(.hold)?: found.insert(id)
      // A halt that began while its set waited.
      case .waits(.together)? where plan.keepsBack(id, entry, pending): found.insert(id)
      case .waits(.target(let target))?: next = [target]
      case .waits(.together)?: next = facts.set(of: id).map { facts.members(of: $0) } ?? []
      case nil where plan.keepsBack(id, entry, pending): found.insert(id)
      case .waits?, .ready?, .inFlight?, .halved?, nil: isAll = false
      }
      open += next.filter { met.insert($0).inserted }
    }
    return (found, isAll)
  }
}

extension KnownObstacles {
  /// As of a store with this plan's engine.
  fileprivate init(_ plan: SyncPlan, _ facts: LogFacts) {
    self.init(
      facts, isAnyKeptBack: true,
      halt: { zone, type in
        let ofType = plan.queue.halts.types[UploadHalts.HaltedType(zone: zone, type: type)]
        return (ofType ?? plan.allRefusedZones(facts)[zone]).map {
          SyncStatus.Halt(zone: zone, type: ofType == nil ? nil : type, code: $0.code, reason: $0.reason)
        }
      }, leavesOut: { _ in false })
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The obstacle to a record` {
  /// What is wrong with the obstacle of a record; nil if nothing is.
  private func broken(_ id: RecordID, _ plan: SyncPlan, _ facts: LogFacts) throws -> (String?, kind: String) {
    var known = KnownObstacles(plan, facts)
    guard let entry = try facts.entry(id), let pending = entry.pending else { return (nil, "none") }
    let cause = try known.cause(of: id)
    let obstacle = try known.obstacle(to: id, entry, pending)
    guard let (found, isAll) = try QueueWaits(plan: plan, facts: facts).causes(of: id) else { return (nil, "unread") }
    let place = plan.queue.places[id].map { "\($0)" } ?? "no place"
    let words = "\(id.name) has \(place), of \(found.map(\.name).sorted()): \(String(describing: cause))"
    if !found.isEmpty, cause == nil { return ("no cause: \(words)", "") }
    if found.isEmpty, isAll, cause != nil { return ("a cause: \(words)", "") }
    if found.contains(id), cause?.id != id { return ("another one's cause: \(words)", "") }
    if let cause, obstacle == nil { return ("no obstacle: \(cause)", "") }
    // A record waits for one of those that it lacks, and `pendingChanges` names one of them.
    if case .waits(.target)? = plan.queue.places[id], obstacle == nil { return ("no obstacle: \(words)", "") }
    switch obstacle {
    case nil: return (nil, "none")
    case .held?: return (nil, "held")
    case .target?: return (nil, "target")
    case .referrer?: return (nil, "referrer")
    case .together?: return (nil, "together")
    case .zoneLost?: return (nil, "zoneLost")
    case .zoneLeftOut?: return (nil, "zoneLeftOut")
    case .halted?: return (nil, "halted")
    }
  }

  @Test func `is what the queue waits for, whatever the app writes and the server answers`() throws {
    var kinds: [String: Int] = [:]
    for seed in Campaign.seeds(1...600, every: 4) {
      var history = try RandomHistory(seed: seed)
      history.look = { driver, step in
        for name in RandomHistory.names {
          let id = RecordID(name, zone: LogLines.zone)
          let (broken, kind) = try self.broken(id, driver.plan, driver.facts)
          try #require(broken == nil, "\(step): \(broken ?? "")")
          kinds[kind, default: 0] += 1
        }
      }
      try history.run()
    }
    // The histories come to these kinds. In none does a deletion wait for the save that releases it.
    for kind in ["held", "target", "together", "halted"] {
      #expect(kinds[kind, default: 0] > 3, "\(kind): \(kinds)")
    }
  }
}
