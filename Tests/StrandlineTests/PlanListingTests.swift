// Goal: a listed record that the server does not show is held, in whatever order the rest of its list arrives. Method: as in PlanTests.swift.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

extension `The plan of a cycle` {
  private static func listed(_ names: String...) -> Event {
    .listed(
      Listed(zone: LogLines.zone, items: names.map { Listed.Item(name: $0, changeTag: "a", modifiedMilliseconds: 2) }))
  }

  private func expectListed(_ driver: inout PlanDriver, _ names: [String]) throws -> SyncRequest {
    let request = try driver.request()
    guard case .lookUp(let lookup) = request, lookup.purpose == .listed else {
      throw PlanDriver.Unexpected(words: request.words)
    }
    #expect(lookup.names == names.map { CloudName($0) })
    return request
  }

  @Test func `a listed record that was refused alone is held, also if all others have arrived meanwhile`() throws {
    var driver = try asked(Lines.seen() + [Self.listed("old"), Self.listed("new")])
    driver.plan.limits.listed = AdaptiveLimit(1)
    try driver.refuse(expectListed(&driver, ["new"]), .badRequest)
    // An answer to another question brings the rest of the list.
    try driver.facts.append([Lines.fetched("old")])
    var told: [RecordID] = []
    while case .store(let step) = try driver.plan.next(driver.facts, SyncPlan.Means()) {
      guard case .answers(let step) = step else { throw PlanDriver.Unexpected(words: "\(step)") }
      for change in step.changes { if case .unreadable = change.kind { told.append(change.id) } }
      try driver.facts.append(
        step.after.compactMap { if case .event(let event, _) = $0 { event } else { nil } })
      try driver.plan.recorded(.answers(step), .taken(TakenChanges()), driver.facts)
    }
    #expect(told == [id("new")])
    #expect(driver.facts.learned { $0.listed.isEmpty })
    #expect(driver.plan[zone].isAtRest, "nothing of the zone is left to do")
  }
}
