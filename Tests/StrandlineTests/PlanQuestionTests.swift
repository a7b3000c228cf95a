// Goal: what is in question is asked, what is held or halted is tried again, and what was decided too late is left out. Method: as
// in PlanTests.swift, a few lines for each.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

extension `The plan of a cycle` {
  // MARK: Doubts

  @Test func `a save that the server does not find is asked for in the feed, then in all of it, and sent again`() throws
  {
    var driver = try edited(["n"])
    let first = try expectUpload(&driver, ["n"])
    try driver.answer(first.request, .refused(first.upload, .notFound))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    try driver.answer(expectPage(&driver, from: nil), .page("t2"))
    let second = try expectUpload(&driver, ["n"])
    try driver.answer(second.request, .refused(second.upload, .notFound))
    // Not a second time from the beginning: the feed has shown it.
    try driver.answer(driver.request(), .changed(token: "d2"))
    let third = try expectUpload(&driver, ["n"])
    try driver.answer(third.request, .taken(third.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `what the log has in question is looked up in each cycle, and what a page could not show at once`() throws
  {
    let blocked = Blocked(
      id: id("n"), subject: .version, changeTag: "b", births: [], consequence: .lookup, words: "older")
    var driver = try asked(Lines.seen() + [Lines.fetched("n"), .blocked(blocked)], [zone])
    let failed = ZoneChange.failed(name: "m", CloudError(.internalError, reason: "not now"))
    let page = ZonePage(changes: [failed], token: ChangeToken(rawValue: "t1"), moreComing: false)
    try driver.answer(expectPage(&driver, from: "t0"), .pages([zone: .success(page)]))
    try driver.answer(expectLookup(&driver, ["m", "n"]), .found(["m", "n"], tag: "a"))
    try expectEnd(&driver)
    driver.begin()
    try driver.answer(expectLookup(&driver, ["n"]), .found(["n"], tag: "a"))
    try expectEnd(&driver)
  }

  // MARK: Holds

  /// The upload of a record that is refused in the same way each time, until it is held.
  ///
  /// - Returns: how often it was sent, and how long was waited.
  private func refused(_ driver: inout PlanDriver) throws -> (count: Int, waits: [Int64]) {
    var (count, waits): (Int, [Int64]) = (0, [])
    while count < 20 {
      switch try driver.next() {
      case .wait(let wait):
        waits.append(wait.milliseconds)
        driver.facts.advance(milliseconds: wait.milliseconds)
      case .ask(let request):
        switch request {
        case .modify(let upload):
          _ = try driver.leave(request)
          count += 1
          try driver.answer(request, .refused(upload, .conflict))
        case .lookUp: try driver.answer(request, .found(["n"], tag: "a"))
        case .changedZones: try driver.answer(request, .changed(token: "d\(count)"))
        default: try driver.answer(request, .page("t\(count)"))
        }
      case .done: return (count, waits)
      case let next: throw PlanDriver.Unexpected(words: "\(next)")
      }
    }
    throw PlanDriver.Unexpected(words: "it is not held")
  }

  @Test func `a record that is refused again and again waits longer and longer, is held, and is sent again by itself`()
    throws
  {
    var driver = try edited(["n"])
    let (count, waits) = try refused(&driver)
    #expect(count == RecordMemory.holdsAt && waits.count == count - RecordMemory.waitsAt)
    for (number, wait) in waits.enumerated() {
      #expect((Int64(500) << Int64(number)...Int64(1_000) << Int64(number)).contains(wait), "\(waits)")
    }
    // Each time it is held for longer.
    for milliseconds in [Int64(300_000), 600_000] {
      #expect(driver.facts.held(id("n"))?.durationMilliseconds == milliseconds)
      later(&driver, milliseconds: milliseconds - 1)
      try expectEnd(&driver)
      #expect(driver.plan.nextDue(at: driver.facts.now)?.milliseconds == 1)
      later(&driver, milliseconds: 1)
      #expect(try refused(&driver).count == 2)
    }
  }

  @Test(arguments: [true, false]) func `a hold ends in a process that began after it, before its end or after`(
    _ isOver: Bool
  ) throws {
    var driver = try asked(Lines.seen() + [Lines.saved("a"), Lines.saved("b")])
    let (request, upload) = try expectUpload(&driver, ["a", "b"])
    try driver.answer(request, .refused(upload, .accessDenied, only: ["b"]))
    driver.facts.advance(milliseconds: isOver ? 300_000 : 200_000)
    driver.relaunch()
    driver.begin { $0.isUserInitiated = false }
    try driver.answer(driver.request(), .user("user"))
    try driver.answer(driver.request(), .changed(token: "d2"))
    if !isOver {
      try expectEnd(&driver)
      later(&driver, milliseconds: 100_000)
    }
    _ = try expectUpload(&driver, ["b"])
  }

  // MARK: Tokens

  @Test func `a refused token of the list is left out once, and a list from the beginning names each zone`() throws {
    var driver = try asked(Lines.seen())
    driver.begin()
    let first = try driver.request()
    guard case .changedZones(let list) = first else { throw PlanDriver.Unexpected(words: first.words) }
    #expect(list.token?.rawValue == "d1")
    try driver.refuse(first, .badRequest)
    let second = try driver.request()
    guard case .changedZones(let list) = second else { throw PlanDriver.Unexpected(words: second.words) }
    #expect(list.token == nil)
    try driver.answer(second, .changed(token: "d2"))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    try expectEnd(&driver)
    #expect(driver.facts.learned { $0.databaseTokens[.private]?.rawValue } == "d2")
  }

  @Test func `a server that refuses each token that it has given is asked no more in this cycle`() throws {
    var driver = try asked(Lines.seen(), [zone])
    var tokens: [String?] = []
    while tokens.count < 20, case .ask(let request) = try? driver.next() {
      guard case .pages(let pages) = request, let page = pages.first, pages.count == 1 else {
        throw PlanDriver.Unexpected(words: request.words)
      }
      tokens.append(page.token?.rawValue)
      if page.token == nil {
        try driver.answer(request, .page("t\(tokens.count)", more: true))
      } else {
        try driver.refuse(request, .badRequest)
      }
    }
    #expect(tokens == ["t0", nil, "t2", nil, "t4", nil, "t6"], "\(tokens)")
  }

  @Test func `a zone to erase whose token is refused is left alone, if nothing in it is known here`() throws {
    var driver = try asked(Lines.seen())
    try driver.facts.append([.zoneChanged(.lost(zone, .erasing, words: "the app", policy: "erase"))])
    try driver.refuse(expectPage(&driver, from: "t0"), .badRequest)
    try driver.answer(expectPage(&driver, from: nil), .page("other"))
    try expectEnd(&driver)
    #expect(driver.facts.zone(zone)?.lostReason == .erased)
  }

  // MARK: Zones in question

  @Test(arguments: [true, false]) func `a zone that the list names as gone is asked about before it is lost`(
    _ isThere: Bool
  ) throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("n")])
    driver.begin()
    let gone = DatabasePage.Zone(id: zone, loss: .deleted)
    try driver.answer(
      driver.request(),
      .changedZones(DatabasePage(zones: [gone], token: ChangeToken(rawValue: "d2"), moreComing: false)))
    let question = try driver.request()
    guard case .allZones(zone) = question else { throw PlanDriver.Unexpected(words: question.words) }
    try driver.answer(question, .allZones(isThere ? [zone] : []))
    if isThere {
      try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
      try expectEnd(&driver)
    } else {
      #expect(throws: StrandlineError.self) { _ = try driver.next() }
    }
    #expect(driver.facts.zone(zone)?.lostReason == (isThere ? nil : .deleted))
  }

  // MARK: Premises

  @Test func `a page of a feed that has begun again meanwhile ends no wait, and its token is no place in it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (upload, _) = try expectUpload(&driver, ["n"])
    try driver.refuse(upload, .networkError)
    _ = try wait(&driver)
    let page = try expectPage(&driver, from: "t0")
    try driver.facts.append([.zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "a person"))])
    try driver.answer(page, .page("t1"))
    #expect(driver.facts.zone(zone)?.token == nil && driver.facts.zone(zone)?.isDirty == true)
    #expect(driver.plan.queue.wait(of: id("n")) == .fetch)
    try driver.answer(expectPage(&driver, from: nil), .page("t2"))
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `a list that was asked for with another token than the database has now says nothing`() throws {
    var driver = try asked(Lines.seen())
    driver.begin()
    let list = try driver.request()
    let newer = DatabaseTokenAdvanced(scope: .private, asked: nil, token: ChangeToken(rawValue: "d9"))
    try driver.facts.append([.databaseTokenAdvanced(newer)])
    try driver.answer(list, .changed([zone], token: "d2"))
    #expect(driver.facts.learned { $0.databaseTokens[.private]?.rawValue } == "d9")
    #expect(driver.facts.zone(zone)?.isDirty == false)
  }

  @Test func `what the app has written since a record was refused is sent, and not held`() throws {
    var driver = try asked(Lines.seen() + ["a", "b"].map { Lines.saved($0) })
    let (request, upload) = try expectUpload(&driver, ["a", "b"])
    try driver.plan.apply(
      SyncOutcome(result: .success(.refused(upload, .accessDenied, only: ["b"]))), to: request, driver.facts)
    try driver.facts.append([Lines.saved("b")])
    try driver.answer(driver.request(), .changed(token: "d2"))
    #expect(driver.facts.held(id("b")) == nil && !driver.appended.contains("held"))
    _ = try expectUpload(&driver, ["b"])
  }

  @Test func `a creation that comes after a deletion of what was never sent is not settled with it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n"), Lines.deleted("n", base: 0)])
    guard case .store(.append(let step)) = try driver.plan.next(driver.facts, SyncPlan.Means()) else {
      throw PlanDriver.Unexpected(words: "the deletion is not settled")
    }
    try driver.facts.append([Lines.saved("n")])
    driver.plan.steps.insert(.append(step), at: 0)
    _ = try expectUpload(&driver, ["n"])
    #expect(driver.appended == ["sent"])
  }

  @Test func `a hold that a person has ended wakes nobody at the time at which it would have ended`() throws {
    var driver = try edited(["n"])
    _ = try refused(&driver)
    #expect(driver.plan.nextDue(at: driver.facts.now)?.milliseconds == 300_000)
    let held = try #require(driver.facts.held(id("n")))
    try driver.facts.append([.released(Released(id: held.id, lsn: held.lsn))])
    driver.plan.holdEnded(id("n"), driver.facts)
    #expect(driver.plan.nextDue(at: driver.facts.now) == nil)
    driver.begin()
    _ = try refused(&driver)
    // It is held again before the engine hears that a person has ended the first hold.
    driver.plan.holdEnded(id("n"), driver.facts)
    #expect(driver.plan.nextDue(at: driver.facts.now) != nil)
  }

  // MARK: Halts

  @Test func `a type that is refused alike is halted, and one of it is tried after a while, and then all`() throws {
    var driver = try asked(Lines.seen() + ["a", "b", "c"].map { Lines.saved($0) })
    let (request, upload) = try expectUpload(&driver, ["a", "b", "c"])
    try driver.answer(request, .refused(upload, .accessDenied))
    try driver.answer(driver.request(), .changed(token: "d2"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    #expect(driver.facts.learned { $0.held.isEmpty })
    #expect(driver.plan.nextDue(at: driver.facts.now)?.milliseconds == 300_000)
    later(&driver, milliseconds: 299_999)
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    // None of them is new to the server: one of them goes.
    later(&driver, milliseconds: 1)
    let probe = try expectUpload(&driver, ["a"])
    try driver.answer(probe.request, .refused(probe.upload, .accessDenied))
    try driver.answer(driver.request(), .changed(token: "d3"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    #expect(driver.plan.nextDue(at: driver.facts.now)?.milliseconds == 600_000)
    // One that was not sent before goes first.
    try driver.facts.append([Lines.saved("d")])
    driver.begin { $0.asksForChanges = false }
    let other = try expectUpload(&driver, ["d"])
    try driver.answer(other.request, .taken(other.upload))
    let rest = try expectUpload(&driver, ["a", "b", "c"])
    try driver.answer(rest.request, .taken(rest.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `changes that a zone refuses whole are tried again by themselves`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    try driver.refuse(request, .accessDenied)
    #expect(throws: CloudError.self) { _ = try driver.next() }
    #expect(driver.plan.nextDue(at: driver.facts.now)?.milliseconds == 300_000)
    later(&driver, milliseconds: 299_999)
    #expect(throws: CloudError.self) { _ = try driver.next() }
    later(&driver, milliseconds: 1)
    _ = try expectUpload(&driver, ["n"])
  }
}
