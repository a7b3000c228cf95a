// Goal: seven mistakes that only whole worlds have found are found by the plan alone, in milliseconds. Method: as in PlanTests.swift; a
// plan that goes round without a request, or reads on and on, is stopped after some turns.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

extension `The plan of a cycle` {
  // MARK: Ends of waits

  @Test func `a refused deletion that a person releases is sent again, whatever has changed in its zone`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("old")])
    try driver.facts.append([Lines.deleted("old", base: driver.facts.durableLSN.rawValue)])
    driver.begin { $0.asksForChanges = false }
    let old = try expectUpload(&driver, ["old"])
    try driver.answer(old.request, .refused(old.upload, .validatingReferenceError))
    try driver.answer(driver.request(), .changed(token: "d2"))
    try expectEnd(&driver)
    #expect(driver.plan.queue.wait(of: id("old")) == .references)
    let held = try #require(driver.facts.held(id("old")))
    try driver.facts.append([.released(Released(id: held.id, lsn: held.lsn))])
    driver.plan.holdEnded(held.id, driver.facts)
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["old"])
  }

  @Test func `the refusals of a change that was taken at last do not count for the next change`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    for _ in 0..<2 {
      let creation = try expectUpload(&driver, ["n"])
      try driver.answer(creation.request, .refused(creation.upload, .exists))
      try driver.answer(expectLookup(&driver, ["n"]), .found([], tag: "a", of: ["n"]))
    }
    let creation = try expectUpload(&driver, ["n"])
    // The app writes while it is under way, so something of the record is still pending when it is taken.
    try driver.facts.append([Lines.saved("n", base: 1)])
    try driver.answer(creation.request, .taken(creation.upload))
    let edit = try expectUpload(&driver, ["n"])
    try driver.answer(edit.request, .refused(edit.upload, .conflict))
    try driver.answer(expectLookup(&driver, ["n"]), .found(["n"], tag: "new"))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    // It is the first refusal: at once, and not after a backoff.
    let again = try expectUpload(&driver, ["n"])
    try driver.answer(again.request, .taken(again.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  // MARK: Targets

  @Test func `records that need each other in a circle are found once each, and go in the order of the log`() throws {
    var driver = try asked(Lines.seen())
    driver.facts.limitReads(to: 200)
    // What is found first leads to the last one, and that one back to the second.
    try driver.facts.append([
      Lines.saved("a", needs: "c"), Lines.saved("b", needs: "a"), Lines.saved("c", needs: "b"),
    ])
    later(&driver, milliseconds: 0)
    let circle = try expectUpload(&driver, ["a", "b", "c"])
    try driver.answer(circle.request, .taken(circle.upload))
    try expectEnd(&driver)
  }

  @Test func `a target that the queue has not come to goes in the first request, with what needs it`() throws {
    let others = (0..<300).map { Lines.saved("n\($0)") }
    var driver = try asked(
      Lines.seen() + [Lines.saved("child", needs: "parent")] + others + [Lines.saved("parent")])
    let upload = try driver.leave(driver.request())
    #expect(upload.uploads.prefix(2).map(\.id.name) == ["parent", "child"])
  }

  // MARK: Questions

  @Test(arguments: [["a"], ["a", "b"]])
  func `a lookup that is refused alone is told once, and not asked again`(_ names: [String]) throws {
    let questions = names.map { name in
      Event.blocked(
        Blocked(id: id(name), subject: .version, changeTag: "b", births: [], consequence: .lookup, words: "older"))
    }
    var driver = try asked(Lines.seen() + names.map { Lines.fetched($0) } + questions)
    if names.count > 1 { try driver.refuse(expectLookup(&driver, names), .badRequest) }
    try driver.refuse(expectLookup(&driver, ["a"]), .badRequest)
    if names.count > 1 {
      let other = try expectLookup(&driver, ["b"])
      try driver.plan.apply(SyncOutcome(result: .success(.found(["b"], tag: "a"))), to: other, driver.facts)
    }
    driver.plan.cycle.idleTurns = 0
    driver.plan.idleTurnsMax = 100
    let told = try driver.plan.next(driver.facts, SyncPlan.Means())
    guard case .store(.answers(let step)) = told else { throw PlanDriver.Unexpected(words: "\(told)") }
    let unreadable = step.changes.filter { if case .unreadable = $0.kind { true } else { false } }
    #expect(unreadable.map(\.id.name) == ["a"])
    driver.plan.steps.insert(.answers(step), at: 0)
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  /// Refuses each upload in the same way and answers each lookup, until nothing is left to do.
  ///
  /// - Returns: how often something was sent.
  /// - Throws: if the plan waits more often than twenty uploads can ask for.
  private func uploads(
    _ driver: inout PlanDriver, refused code: CloudError.Code, lookups: SyncAnswer
  ) throws -> Int {
    driver.plan.idleTurnsMax = 1_000
    var (count, waits) = (0, 0)
    while count < 20 {
      switch try driver.next() {
      case .wait(let wait):
        waits += 1
        if waits > 60 { throw PlanDriver.Unexpected(words: "it waits and waits") }
        driver.facts.advance(milliseconds: wait.milliseconds)
      case .done: return count
      case .ask(let request):
        switch request {
        case .modify(let upload):
          _ = try driver.leave(request)
          count += 1
          try driver.answer(request, .refused(upload, code))
        case .lookUp: try driver.answer(request, lookups)
        case .changedZones: try driver.answer(request, .changed(token: "list \(driver.facts.durableLSN)"))
        default: try driver.answer(request, .page("page \(driver.facts.durableLSN)"))
        }
      case let next: throw PlanDriver.Unexpected(words: "\(next)")
      }
    }
    return count
  }

  @Test func `a record that was refused too often is held once, and the cycle ends`() throws {
    var driver = try edited(["n"])
    #expect(try uploads(&driver, refused: .conflict, lookups: .found(["n"], tag: "a")) == RecordMemory.holdsAt)
    #expect(driver.appended.count { $0 == "held" } == 1 && driver.plan.cycle.report.held == 1)
    #expect(driver.facts.held(id("n"))?.durationMilliseconds == 300_000)
    #expect(driver.plan.records.refusedTooOften.isEmpty)
  }

  @Test func `a record that no lookup shows is held, and a later refusal holds it again`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let hidden = SyncAnswer.records(["n": .failed(CloudError(.internalError, reason: "not now"), serverRecord: nil)])
    #expect(try uploads(&driver, refused: .exists, lookups: hidden) == RecordMemory.holdsAt)
    let held = try #require(driver.facts.held(id("n")))
    #expect(held.code == "EXISTS" && held.words.contains("asked for 9 times"), "\(held)")
    later(&driver, milliseconds: held.durationMilliseconds)
    #expect(try uploads(&driver, refused: .exists, lookups: hidden) == 1)
  }
}
