// Goal: what the plan reads of the log does not grow with what is pending. Method: logs of up to a million pending records, of which
// each answer is computed, and counted.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

/// A plan on a log with very many pending records. The log stays as it is, whatever the plan has the store append.
private struct ManyDriver {
  let facts: ManyPending
  var plan: SyncPlan

  init(
    _ count: Int, _ events: [Event], knowsNothing: Bool = false,
    _ configure: (inout SyncConfiguration) -> Void = { _ in }
  ) throws {
    let known = try PlanDriver(events, configure)
    (facts, plan) = (ManyPending(count, known.facts.learned { $0 }, knowsNothing: knowsNothing), known.plan)
    plan.begin(CycleOptions(), facts)
  }

  /// What the plan wants next, after all steps that are only events.
  mutating func next() throws -> SyncPlan.Next {
    while true {
      let next = try plan.next(facts, SyncPlan.Means())
      switch next {
      case .store(.append(let step)): try plan.recorded(.append(step), .done, facts)
      case .store(.takeKept(let again)):
        try plan.recorded(.takeKept(readsAgain: again), .taken(TakenChanges()), facts)
      default: return next
      }
    }
  }

  mutating func answer(_ answer: SyncAnswer) throws {
    guard case .ask(let request) = try next() else { throw PlanDriver.Unexpected(words: "no request") }
    try plan.apply(SyncOutcome(result: .success(answer)), to: request, facts)
  }
}

extension `The plan of a cycle` {
  @Test func `the rule for a lost zone is carried out without reading what is pending in it`() throws {
    let lost = Event.zoneChanged(.lost(zone, .deleted, words: "gone"))
    var driver = try ManyDriver(1_000_000, Lines.seen() + [lost]) { $0.zoneLosses[.deleted] = .uploadAgain }
    try driver.answer(.user("user"))
    guard case .store(.decideLoss(let step)) = try driver.next() else {
      throw PlanDriver.Unexpected(words: "no decision")
    }
    let (names, changes, entries) = driver.facts.asked
    #expect(names <= 8 && changes == 0 && entries <= 8, "\(names) names, \(changes) changes, \(entries) entries")
    // The store counts, in the step.
    try driver.plan.recorded(.decideLoss(step), .decided(unsent: 1_000_000), driver.facts)
    #expect(driver.plan.cycle.report.lossesDecided.map(\.unsent) == [1_000_000])
  }

  @Test(arguments: [0, 1, 1_000_000])
  func `a zone that is gone is lost or forgotten without reading what is pending in it`(_ count: Int) throws {
    var driver = try ManyDriver(count, Lines.seen(token: nil), knowsNothing: true)
    try driver.answer(.user("user"))
    let page = DatabasePage(
      zones: [DatabasePage.Zone(id: zone, loss: .deleted)], token: ChangeToken(rawValue: "d1"), moreComing: false)
    try driver.answer(.changedZones(page))
    if count > 0 {
      try driver.answer(.allZones([]))
      #expect(driver.plan.steps.count == 1)
    }
    guard case .append(let step)? = driver.plan.steps.last,
      case .event(.zoneChanged(let event), _)? = step.events.first
    else { throw PlanDriver.Unexpected(words: "\(driver.plan.steps)") }
    #expect(event.change == (count > 0 ? .lost : .forgotten))
    let (names, changes, entries) = driver.facts.asked
    #expect(names <= 8 && changes == 0 && entries <= 8, "\(names) names, \(changes) changes, \(entries) entries")
  }

  @Test func `a turn looks at 4,096 changes if one is ready, and once at each if none is`() throws {
    let (lost, ready) = (ZoneID("Lost"), zone)
    let facts = ManyPending(10_000, SyncState()) { $0 == 1 ? ready : lost }
    var queue = OutgoingQueue(scope: .private)
    func next() throws -> [String]? {
      let reading = OutgoingQueue.Reading(facts, only: nil, frozen: [lost], upTo: facts.durableLSN)
      guard let work = try queue.next(reading) else { return nil }
      guard case .send(_, let units) = work else { throw PlanDriver.Unexpected(words: "\(work)") }
      return units.joined().map(\.id.name)
    }
    #expect(try next() == ["n1"])
    let first = facts.asked
    #expect((4_096..<4_096 + 200).contains(first.names) && first.changes <= 2 * first.names, "\(first)")
    #expect(try next() == nil)
    let second = facts.asked
    #expect(second.names == 10_000 && second.changes <= 2 * second.names, "\(second)")
    // They are read again when something changes, and not in each turn.
    #expect(try next() == nil)
    #expect(facts.asked.changes == second.changes && facts.asked.names == second.names)
  }
}
