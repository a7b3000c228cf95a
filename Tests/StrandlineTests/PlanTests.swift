// Goal: what the engine asks next, and what follows from an answer, by the plan alone: no store, no server, no task. Each history is
// a few lines; a wrong line of the plan fails one of them in milliseconds. Worlds and fleets come after.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30))) struct `The plan of a cycle` {
  typealias Lines = LogLines
  let zone = LogLines.zone

  /// A plan that has asked for the account and for the list of changed zones.
  func asked(
    _ events: [Event] = [], _ zones: [ZoneID] = [], _ configure: (inout SyncConfiguration) -> Void = { _ in }
  ) throws -> PlanDriver {
    var driver = try PlanDriver(events, configure)
    driver.begin()
    try driver.answer(driver.request(), .user("user"))
    let list = try driver.request()
    try driver.answer(list, .changed(zones))
    driver.appended = []
    return driver
  }

  func expectEnd(_ driver: inout PlanDriver, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let next = try driver.next()
    guard case .done = next else {
      Issue.record("\(next)", sourceLocation: sourceLocation)
      return
    }
  }

  /// - Parameter isSorted: the order of the operations does not count.
  func expectUpload(
    _ driver: inout PlanDriver, isSorted: Bool = false, _ names: [String],
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> (request: SyncRequest, upload: UploadRequest) {
    let request = try driver.request()
    guard case .modify(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
    let sent = upload.uploads.map(\.id.name)
    #expect((isSorted ? sent.sorted() : sent) == names, sourceLocation: sourceLocation)
    _ = try driver.leave(request)
    return (request, upload)
  }

  // MARK: The order of requests

  @Test func `asks for the account, the list, the pages and then sends, one request a turn`() throws {
    var driver = try PlanDriver(Lines.seen() + [Lines.saved("n")])
    driver.begin()
    var words: [String] = []
    for answer in [
      SyncAnswer.user("user"), .changed([zone]), .page("t1", more: true), .page("t2"),
    ] {
      let request = try driver.request()
      words.append(request.words)
      try driver.answer(request, answer)
    }
    #expect(
      words == [
        "asking who is signed in", "asking which zones changed", "fetching changes of zone 'Notes'",
        "fetching changes of zone 'Notes'",
      ])
    let (request, upload) = try expectUpload(&driver, ["n"])
    try driver.answer(request, .taken(upload))
    try expectEnd(&driver)
    #expect(driver.appended.suffix(2) == ["sent", "settled"] && driver.plan.remembered == [:])
    // Nothing is left for the next cycle but the question what has changed.
    driver.begin { $0.asksForChanges = false }
    try expectEnd(&driver)
  }

  @Test func `another user than the store's ends the cycle before anything is asked or sent`() throws {
    var driver = try PlanDriver(Lines.seen() + [Lines.saved("n")])
    for _ in 0..<2 {
      driver.begin()
      let request = try driver.request()
      #expect(throws: AnotherAccount.self) { try driver.answer(request, .user("another")) }
    }
  }

  @Test(arguments: [0, 1, 199, 200, 201, 1_000_000])
  func `a start reads one window of what is pending, however much`(_ count: Int) throws {
    let known = try PlanDriver(Lines.seen())
    let facts = ManyPending(count, known.facts.learned { $0 })
    var plan = known.plan
    var options = CycleOptions()
    options.direction = .pushOnly
    plan.begin(options, facts)
    func next() throws -> SyncPlan.Next {
      while true {
        let next = try plan.next(facts, SyncPlan.Means())
        guard case .store(let step) = next else { return next }
        if case .takeKept = step {
          try plan.recorded(step, .taken(TakenChanges()), facts)
        } else {
          try plan.recorded(step, .done, facts)
        }
      }
    }
    guard case .ask(.user) = try next() else { throw PlanDriver.Unexpected(words: "no question of who is signed in") }
    try plan.apply(SyncOutcome(result: .success(.user("user"))), to: .user, facts)
    if case .ask(.modify(let upload)) = try next() {
      #expect(upload.uploads.count == min(count, 200))
    } else {
      #expect(count == 0)
    }
    // Each is named once, but for the question whether there is any; read to see whose it is, and to make its operation.
    let (names, changes, entries) = facts.asked
    #expect(names <= min(count, 200) + 8 && changes <= 3 * min(count, 200) && entries <= 5 * min(count, 200))
  }

  // MARK: Pages

  @Test func `a refused token is left out once, and kept if that is refused too`() throws {
    var driver = try asked(Lines.seen(), [zone])
    func page() throws -> PageRequest {
      let found = try pages(&driver)
      return try #require(found.pages.first)
    }
    let first = try page()
    #expect(first.token?.rawValue == "t0")
    try driver.refuse(driver.request(), .badRequest)
    let second = try page()
    #expect(second.token == nil)
    try driver.refuse(driver.request(), .badRequest)
    #expect(throws: CloudError.self) { _ = try driver.next() }
    #expect(driver.facts.zone(zone)?.token?.rawValue == "t0")
    // The next cycle asks with it.
    driver.begin()
    try driver.answer(driver.request(), .changed(token: "d1"))
    let third = try page()
    #expect(third.token?.rawValue == "t0")
    try driver.refuse(driver.request(), .badRequest)
    try driver.answer(driver.request(), .page("new"))
    #expect(driver.facts.zone(zone)?.token?.rawValue == "new")
  }

  /// Zones that were fetched once and have changed.
  private static func changed(_ names: [String]) -> [Event] {
    names.flatMap { Lines.seen(ZoneID($0)) + [Lines.dirty(ZoneID($0))] }
  }

  private func pages(_ driver: inout PlanDriver) throws -> (request: SyncRequest, pages: [PageRequest]) {
    let request = try driver.request()
    guard case .pages(let pages) = request else { throw PlanDriver.Unexpected(words: request.words) }
    return (request, pages)
  }

  @Test func `zones with a token share requests, and share their room`() throws {
    var driver = try asked(Self.changed((100..<220).map { "Z\($0)" }))
    var shapes: [[Int]] = []
    while case .ask(let request) = try driver.next() {
      guard case .pages(let pages) = request else { throw PlanDriver.Unexpected(words: request.words) }
      shapes.append([pages.count, pages[0].limit])
      #expect(pages.allSatisfy { $0.token?.rawValue == "t0" && $0.limit == pages[0].limit })
      try driver.answer(request, .pages(of: pages, "t1"))
    }
    #expect(shapes == [[50, 20], [50, 20], [20, 50]])
    #expect((100..<220).allSatisfy { driver.facts.zone(ZoneID("Z\($0)"))?.token?.rawValue == "t1" })
  }

  @Test func `a feed that goes on, that begins, or that something is wrong with, is asked for alone`() throws {
    let begins = [Lines.dirty(ZoneID("New"))]
    var driver = try asked(Self.changed(["A", "B", "C"]) + begins)
    let (first, shared) = try pages(&driver)
    #expect(shared.map(\.zone.name) == ["A", "B", "C"])
    // One is at its end, one goes on, and of one the answer had no room for anything.
    try driver.answer(
      first,
      .pages([
        ZoneID("A"): .success(ZonePage(changes: [], token: ChangeToken(rawValue: "a1"), moreComing: false)),
        ZoneID("B"): .success(ZonePage(changes: [], token: ChangeToken(rawValue: "b1"), moreComing: true)),
        ZoneID("C"): .success(ZonePage(changes: [], token: ChangeToken(rawValue: "t0"), moreComing: true)),
      ]))
    for (name, token) in [("B", "b1"), ("C", "t0"), ("New", nil)] {
      let (request, alone) = try pages(&driver)
      #expect(alone.map(\.zone.name) == [name] && alone[0].token?.rawValue == token && alone[0].limit == 200)
      try driver.answer(request, .page("\(name)2", of: ZoneID(name)))
    }
    try expectEnd(&driver)
    #expect(driver.facts.zone(ZoneID("A"))?.isDirty == false && driver.facts.zone(ZoneID("C"))?.isDirty == false)
  }

  @Test func `what is wrong with one of the zones that share a request is that zone's`() throws {
    var driver = try asked(Self.changed(["Busy", "Gone", "Late", "Old", "Well"]) + [Lines.fetched("n")])
    let (request, shared) = try pages(&driver)
    #expect(shared.count == 5)
    func refused(_ code: CloudError.Code, _ wait: Double? = nil) -> Result<ZonePage, CloudError> {
      .failure(CloudError(code, reason: "refused", retryAfter: wait))
    }
    var answers: [ZoneID: Result<ZonePage, CloudError>] = [
      ZoneID("Busy"): refused(.zoneBusy), ZoneID("Gone"): refused(.zoneNotFound),
      ZoneID("Late"): refused(.tryAgainLater, 600), ZoneID("Old"): refused(.badRequest),
    ]
    answers[ZoneID("Well")] = .success(
      ZonePage(changes: [], token: ChangeToken(rawValue: "w1"), moreComing: false))
    try driver.answer(request, .pages(answers))
    #expect(driver.facts.zone(ZoneID("Well"))?.isDirty == false)
    let question = try driver.request()
    guard case .allZones(let asked) = question else { throw PlanDriver.Unexpected(words: question.words) }
    #expect(asked == ZoneID("Gone"))
    try driver.answer(question, .allZones([]))
    // The token is left out, once.
    let (again, old) = try pages(&driver)
    #expect(old.map(\.zone.name) == ["Old"] && old[0].token == nil)
    try driver.answer(again, .page("o1", of: ZoneID("Old")))
    // The others are waited for, and nothing else waits.
    let busy = try driver.next()
    guard case .wait(let wait) = busy else { throw PlanDriver.Unexpected(words: "\(busy)") }
    #expect(wait.isOfPart && !wait.isServers && wait.error.code == .zoneBusy, "\(wait)")
    driver.facts.advance(milliseconds: wait.milliseconds)
    let (last, alone) = try pages(&driver)
    #expect(alone.map(\.zone.name) == ["Busy"] && alone[0].token?.rawValue == "t0")
    try driver.answer(last, .page("b1", of: ZoneID("Busy")))
    // A person does not end the wait that the server has named.
    driver.begin { $0.asksForChanges = false }
    let late = try driver.next()
    guard case .wait(let wait) = late else { throw PlanDriver.Unexpected(words: "\(late)") }
    #expect(wait.isOfPart && wait.isServers && wait.milliseconds > 590_000)
    driver.facts.advance(milliseconds: wait.milliseconds)
    try driver.answer(driver.request(), .page("l1", of: ZoneID("Late")))
    try expectEnd(&driver)
  }

  @Test func `a shared request that is refused whole is halved, down to single zones`() throws {
    var driver = try asked(Self.changed((0..<6).map { "Z\($0)" }))
    var counts: [Int] = []
    while case .ask(let request) = try driver.next() {
      guard case .pages(let pages) = request else { throw PlanDriver.Unexpected(words: request.words) }
      counts.append(pages.count)
      if pages.count < 3 {
        try driver.answer(request, .pages(of: pages, "t1"))
      } else {
        try driver.refuse(request, .limitExceeded)
      }
    }
    #expect(counts == [6, 3, 1, 1, 1, 1, 1, 1], "\(counts)")
    #expect((0..<6).allSatisfy { driver.facts.zone(ZoneID("Z\($0)"))?.isDirty == false })
  }

  @Test func `the page after a shared one is not asked for ahead, and the one after that is`() throws {
    var driver = try asked(Self.changed(["A", "B"]))
    let (request, _) = try pages(&driver)
    let more = Result<ZonePage, CloudError>.success(
      ZonePage(changes: [], token: ChangeToken(rawValue: "t1"), moreComing: true))
    try driver.plan.apply(
      SyncOutcome(result: .success(.pages([ZoneID("A"): more, ZoneID("B"): more]))), to: request, driver.facts)
    #expect(driver.plan.steps.count == 2)
    for case .page(let step) in driver.plan.steps { #expect(step.ahead == nil) }
    let (next, alone) = try pages(&driver)
    #expect(alone.map(\.zone.name) == ["A"])
    try driver.plan.apply(
      SyncOutcome(result: .success(.page("t2", of: ZoneID("A"), more: true))), to: next, driver.facts)
    guard case .page(let step)? = driver.plan.steps.first else { throw PlanDriver.Unexpected(words: "no page") }
    let (_, then) = try pages(&driver)
    #expect(then == step.ahead.map { [$0] })
  }

  @Test func `a zone that is refused when it is asked for alone rests, and nothing else does`() throws {
    let codes: [CloudError.Code] = [.zoneBusy, .internalError, .throttled, .serviceUnavailable]
    for (code, wait) in codes.flatMap({ [($0, nil), ($0, 600.0)] }) {
      var driver = try asked(Self.changed(["A"]) + Lines.seen() + [Lines.saved("n")])
      let (request, alone) = try pages(&driver)
      #expect(alone.map(\.zone.name) == ["A"])
      let busy = CloudError(code, reason: "later", retryAfter: wait)
      try driver.answer(request, .pages([ZoneID("A"): .failure(busy)]))
      let (sent, upload) = try expectUpload(&driver, ["n"])
      try driver.answer(sent, .taken(upload))
      let next = try driver.next()
      guard case .wait(let rest) = next else { throw PlanDriver.Unexpected(words: "\(next)") }
      #expect(rest.isOfPart && rest.isServers == (wait != nil) && rest.error.code == code, "\(rest)")
      #expect(rest.milliseconds == 600_000 || wait == nil)
      #expect(!driver.appended.contains("pace"), "the log has no wait of all requests")
      driver.facts.advance(milliseconds: rest.milliseconds)
      try driver.answer(driver.request(), .page("a1", of: ZoneID("A")))
      try expectEnd(&driver)
    }
  }

  @Test func `the page after one that was refused is asked for with the same token, later and later`() throws {
    var driver = try asked(Self.changed(["A"]))
    let (first, _) = try pages(&driver)
    try driver.answer(first, .page("a1", of: ZoneID("A"), more: true))
    var waits: [Int64] = []
    for _ in 0..<5 {
      let (request, alone) = try pages(&driver)
      #expect(alone.map(\.token?.rawValue) == ["a1"])
      try driver.answer(
        request, .pages([ZoneID("A"): .failure(CloudError(.internalError, reason: "no"))]))
      guard case .wait(let rest) = try driver.next() else { throw PlanDriver.Unexpected(words: "no wait") }
      waits.append(rest.milliseconds)
      driver.facts.advance(milliseconds: rest.milliseconds)
    }
    for (place, wait) in waits.enumerated() {
      #expect(((500 << Int64(place))...(1_000 << Int64(place))).contains(wait), "\(waits)")
    }
    try driver.answer(driver.request(), .page("a2", of: ZoneID("A"), more: true))
    try driver.answer(driver.request(), .page("a3", of: ZoneID("A")))
    try expectEnd(&driver)
  }

  @Test func `a refused sign-in in the place of one page ends the cycle, when the other pages are applied`() throws {
    for names in [["B"], ["A", "B", "C"]] {
      var driver = try asked(Self.changed(names))
      let (request, shared) = try pages(&driver)
      guard case .pages(var answers) = SyncAnswer.pages(of: shared, "t1") else { return }
      answers[ZoneID("B")] = .failure(CloudError(.authenticationRequired, reason: "sign in"))
      #expect(throws: CloudError.self) { try driver.answer(request, .pages(answers)) }
      for name in names {
        #expect(driver.facts.zone(ZoneID(name))?.token?.rawValue == (name == "B" ? "t0" : "t1"))
      }
      driver.begin()
      #expect(try driver.request().kind == .account)
    }
  }

  @Test func `a shared request that is not answered asks for fewer zones, with more of each, and grows again`() throws {
    for code in [CloudError.Code.networkError, .answerTooLarge] {
      var driver = try asked(Self.changed((100..<140).map { "Z\($0)" }))
      var shapes: [[Int]] = []
      func next() throws -> (request: SyncRequest, pages: [PageRequest]) {
        if case .wait(let wait) = try driver.next() { driver.facts.advance(milliseconds: wait.milliseconds) }
        let found = try pages(&driver)
        shapes.append([found.pages.count, found.pages[0].limit])
        return found
      }
      for _ in 0..<2 { try driver.refuse(next().request, code) }
      let small = try next()
      try driver.answer(small.request, .pages(of: small.pages, "t1"))
      #expect(shapes == [[40, 25], [20, 50], [10, 100]], "\(code): \(shapes)")
      #expect(driver.plan.limits.zones.current == 10)
      for _ in 0..<driver.plan.limits.zones.growsAfter { driver.plan.limits.zones.answered(10) }
      #expect(driver.plan.limits.zones.current == 20)
    }
  }

  @Test func `one page that is not answered says nothing of how many may share a request`() throws {
    for code in [CloudError.Code.networkError, .answerTooLarge] {
      var driver = try asked(Self.changed(["A"]))
      try driver.refuse(driver.request(), code)
      #expect(driver.plan.limits.zones.current == SyncPlan.zonesTogetherMax)
    }
  }

  @Test func `a zone that the server does not have is lost when the list of all zones says so too`() throws {
    for isThere in [true, false] {
      var driver = try asked(Lines.seen() + [Lines.fetched("n")], [zone])
      try driver.refuse(driver.request(), .zoneNotFound)
      let question = try driver.request()
      guard case .allZones(zone) = question else {
        Issue.record("\(question)")
        continue
      }
      try driver.answer(question, .allZones(isThere ? [zone] : []))
      if isThere {
        guard case .wait(let wait) = try driver.next() else {
          Issue.record("it is asked for again at once")
          continue
        }
        driver.facts.advance(milliseconds: wait.milliseconds)
        let again = try driver.request()
        #expect(again.words == "fetching changes of zone 'Notes'")
      } else {
        #expect(throws: StrandlineError.self) { _ = try driver.next() }
        #expect(driver.facts.zone(zone)?.lostReason == .notFound)
      }
    }
  }

  @Test func `what waits for the feed of a zone that is lost does not wait for ever`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("old"), Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    // The answer is lost, so the feed is asked first; the zone is gone.
    try driver.refuse(request, .internalError)
    try driver.refuse(driver.request(), .zoneNotFound)
    try driver.answer(driver.request(), .allZones([]))
    for _ in 0..<2 {
      #expect(throws: StrandlineError.self, "the loss is told in each cycle that owes something to the zone") {
        while case .wait(let wait) = try driver.next() { driver.facts.advance(milliseconds: wait.milliseconds) }
      }
      driver.begin { $0.asksForChanges = false }
    }
    #expect(driver.plan.queue.places.waits.isEmpty)
  }

  // MARK: Uploads

  @Test func `a target goes before what needs it, and what needs each other goes in one unit`() throws {
    var driver = try asked(
      Lines.seen() + [
        Lines.saved("child", needs: "parent"), Lines.saved("a", needs: "b"), Lines.saved("b", needs: "a"),
        Lines.saved("parent"),
      ])
    let (_, upload) = try expectUpload(&driver, ["parent", "child", "a", "b"])
    #expect(upload.isAtomic == false)
  }

  @Test func `deletions go after the saves`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("old")])
    let base = driver.facts.durableLSN.rawValue
    try driver.facts.append([Lines.deleted("old", base: base), Lines.saved("n")])
    driver.begin { $0.asksForChanges = false }
    let saves = try expectUpload(&driver, ["n"])
    try driver.answer(saves.request, .taken(saves.upload))
    let deletions = try expectUpload(&driver, ["old"])
    try driver.answer(deletions.request, .taken(deletions.upload))
    try expectEnd(&driver)
  }

  @Test func `a zone that was never seen is created before the first save`() throws {
    var driver = try asked([Lines.saved("n")])
    let request = try driver.request()
    guard case .createZone(zone, .upload) = request else {
      Issue.record("\(request)")
      return
    }
    try driver.answer(request, .done)
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `what may have been applied is not sent again before the feed was asked`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    try driver.refuse(request, .networkError)
    guard case .wait(let wait) = try driver.next() else {
      Issue.record("it is sent again at once")
      return
    }
    driver.facts.advance(milliseconds: wait.milliseconds)
    let page = try driver.request()
    #expect(page.words == "fetching changes of zone 'Notes'")
    try driver.answer(page, .page("t1"))
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `what the server names is waited for to the millisecond, by each kind, and logged`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    try driver.refuse(request, .throttled) { $0.retryAfter = 10 }
    #expect(driver.appended.contains("pace"))
    // A relaunch in the wait keeps it.
    let relaunched = SyncPlan(
      driver.facts, driver.plan.address, driver.plan.policies,
      RequestPace.Policy(SyncPace(), SeededRandom(seed: 1)))
    #expect(relaunched.pace.longestWait(at: driver.facts.now)?.isServers == true)
    driver.facts.advance(milliseconds: 9_999)
    guard case .wait(let wait) = try driver.next() else {
      Issue.record("it is asked before the wait is over")
      return
    }
    #expect(wait.isServers && wait.milliseconds == 1)
    driver.facts.advance(milliseconds: 1)
    let first = try driver.request()
    #expect(first.kind == .page)
  }

  @Test func `a batch that is too much goes in halves at once, and one record that is wrong is found and held`() throws
  {
    var driver = try asked(Lines.seen() + (0..<8).map { Lines.saved("n\($0)") })
    var sizes: [Int] = []
    while case .ask(let request) = try driver.next(), case .modify(let upload) = request {
      _ = try driver.leave(request)
      sizes.append(upload.uploads.count)
      if upload.uploads.contains(where: { $0.id.name == "n5" }) {
        try driver.refuse(request, .badRequest)
      } else {
        try driver.answer(request, .taken(upload))
      }
    }
    #expect(sizes == [8, 4, 4, 2, 1, 1, 2])
    #expect(driver.facts.held(RecordID("n5", zone: zone)) != nil)
    #expect(driver.plan.limits.operations.current == 200, "one wrong record says nothing of their number")
  }

  @Test func `what is made ahead of an upload has the bytes of one request at most`() throws {
    let bytesMax = 4_000
    var driver = try asked(Lines.seen() + (0..<100).map { Lines.saved("n\($0)") }) { $0.batch.bytes = bytesMax }
    let request = try driver.request()
    let first = try driver.leave(request)
    try driver.plan.lookAhead(driver.facts)
    let made = driver.plan.cycle.made.values.map(\.bytes)
    #expect((2..<50).contains(made.count) && made.reduce(0, +) - (made.max() ?? 0) < bytesMax, "\(made.count)")
    try driver.answer(request, .taken(first))
    // The next batch takes all of it but for what was beyond its end.
    _ = try driver.leave(driver.request())
    #expect(driver.plan.cycle.made.count <= 1)
  }

  @Test func `what is under way and was refused is not sent again because the queue comes to it meanwhile`() throws {
    // The parent goes with its child, long before the queue comes to it.
    let others = (0..<300).map { Lines.saved("n\($0)") }
    var driver = try asked(Lines.seen() + [Lines.saved("child", needs: "parent")] + others + [Lines.saved("parent")])
    var sent: [String] = []
    while case .ask(let request) = try driver.next(), case .modify(let upload) = request {
      _ = try driver.leave(request)
      sent += upload.uploads.map(\.id.name)
      try driver.plan.lookAhead(driver.facts)
      try driver.answer(
        request,
        upload.uploads.contains { $0.id.name == "parent" }
          ? .refused(upload, .accessDenied, only: ["parent"]) : .taken(upload))
    }
    #expect(sent.count == 302 && Set(sent).count == 302, "\(sent.count)")
    #expect(driver.facts.held(RecordID("parent", zone: zone)) != nil)
  }

  @Test func `a deletion that can be read no more when it is its turn is held, and the rest goes`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("old"), Lines.fetched("older")])
    let base = driver.facts.durableLSN.rawValue
    try driver.facts.append([
      Lines.deleted("old", base: base - 1), Lines.deleted("older", base: base), Lines.saved("n"),
    ])
    driver.begin { $0.asksForChanges = false }
    let saves = try expectUpload(&driver, ["n"])
    try driver.facts.damage(RecordID("old", zone: zone))
    try driver.answer(saves.request, .taken(saves.upload))
    let deletions = try expectUpload(&driver, ["older"])
    try driver.answer(deletions.request, .taken(deletions.upload))
    try expectEnd(&driver)
    #expect(driver.facts.held(RecordID("old", zone: zone))?.code == Held.damaged)
    #expect(driver.appended.count { $0 == "held" } == 1)
  }

  @Test func `of a refused type one record is tried, with all of a circle that it needs`() throws {
    let circle = (0..<3).map { Lines.saved("c\($0)", type: "Kind", needs: "c\(($0 + 1) % 3)") }
    let others = (0..<3).map { Lines.saved("d\($0)", type: "Kind") }
    var driver = try asked(Lines.seen() + circle + others)
    let first = try driver.request()
    try driver.answer(first, .refused(driver.leave(first), .accessDenied))
    #expect(driver.plan.queue.halts.types.count == 1)
    for isTaken in [false, true] {
      #expect(throws: RefusedCycle.self) { while true { try endTurn(&driver) } }
      driver.begin { $0.asksForChanges = false }
      let (request, upload) = try expectUpload(&driver, ["c0", "c1", "c2"])
      try driver.answer(request, isTaken ? .taken(upload) : .refused(upload, .accessDenied))
    }
    let (request, upload) = try expectUpload(&driver, ["d0", "d1", "d2"])
    try driver.answer(request, .taken(upload))
    try expectEnd(&driver)
  }

  /// Answers the question what has changed, and nothing else.
  private func endTurn(_ driver: inout PlanDriver) throws {
    let next = try driver.next()
    guard case .ask(let request) = next, request.kind == .zoneList else {
      throw PlanDriver.Unexpected(words: "\(next)")
    }
    try driver.answer(request, .changed(token: "d2"))
  }

  @Test func `a limit that was found grows again after full requests that were answered`() {
    var limit = AdaptiveLimit(200, isCostly: true)
    limit.refused(200)
    limit.growLater()
    #expect(limit.current == 100 && limit.growsAfter == 8)
    var grown = (0..<7).map { _ in limit.answered(100) }
    // A smaller one says nothing.
    grown += [limit.answered(99), limit.answered(100)]
    #expect(grown == Array(repeating: false, count: 8) + [true] && limit.current == 200)
    var free = AdaptiveLimit(200)
    free.shrink(to: 0)
    #expect(free.current == 1)
    for _ in 0..<8 { free.answered(free.current) }
    #expect(free.current == 200)
  }

  @Test func `a record that is refused as wrong is held by an event, and the others are settled`() throws {
    var driver = try asked(Lines.seen() + ["a", "b", "c"].map { Lines.saved($0) })
    let (request, upload) = try expectUpload(&driver, ["a", "b", "c"])
    try driver.answer(request, .refused(upload, .accessDenied, only: ["b"]))
    #expect(driver.appended.suffix(4).sorted() == ["held", "refused", "settled", "settled"])
    // As one of three was refused, other devices may have changed something.
    try driver.answer(driver.request(), .changed(token: "d2"))
    try expectEnd(&driver)
    #expect(driver.plan.cycle.report.held == 1 && driver.plan.cycle.report.uploaded == 2)
    // A person has it sent once more.
    driver.begin { $0.asksForChanges = false }
    _ = try expectUpload(&driver, ["b"])
  }

  @Test func `full storage stops saves and not deletions, until the halt ends`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("old")])
    let base = driver.facts.durableLSN.rawValue
    try driver.facts.append([Lines.saved("n"), Lines.deleted("old", base: base)])
    driver.begin { $0.asksForChanges = false }
    let saves = try expectUpload(&driver, ["n"])
    try driver.refuse(saves.request, .quotaExceeded)
    let deletions = try expectUpload(&driver, ["old"])
    try driver.answer(deletions.request, .taken(deletions.upload))
    #expect(throws: CloudError.self) { _ = try driver.next() }
    driver.facts.advance(milliseconds: 600_000)
    driver.begin {
      $0.asksForChanges = false
      $0.isUserInitiated = false
    }
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `a refused sign-in ends the cycle, and the log knows first that nothing was applied`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    #expect(throws: CloudError.self) { try driver.refuse(request, .authenticationRequired) }
    #expect(driver.appended.last == "refused")
    driver.begin()
    let account = try driver.request()
    #expect(account.kind == .account)
  }

  @Test func `a refused certificate ends the cycle at once, and nothing is halted by it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    #expect(throws: CloudError.self) { try driver.refuse(request, .noSecureConnection) }
    driver.begin()
    let next = try driver.request()
    #expect(![.upload, .account].contains(next.kind), "\(next)")
    #expect(throws: CloudError.self) { try driver.refuse(next, .noSecureConnection) }
    for code in [CloudError.Code.noSecureConnection, .authenticationRequired] { #expect(CloudError(code).endsCycle) }
    for code in [CloudError.Code.networkError, .accessDenied] { #expect(!CloudError(code).endsCycle) }
  }

  @Test func `a deletion of what was never sent is settled without a request`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n"), Lines.deleted("n", base: 0)])
    try expectEnd(&driver)
    #expect(driver.appended == ["settled"])
  }

  // MARK: Erasing

  @Test func `a zone is asked for its token before it is deleted, and again if the answer to that was lost`() throws {
    var driver = try asked(Lines.seen())
    try driver.facts.append([.zoneChanged(.lost(zone, .erasing, words: "the app", policy: "erase"))])
    for isLost in [true, false] {
      let identity = try driver.request()
      guard case .pages(let pages) = identity, pages.map(\.purpose) == [.identity] else {
        Issue.record("\(identity)")
        return
      }
      try driver.answer(identity, .page("t0"))
      let deletion = try driver.request()
      guard case .eraseZone(zone) = deletion else {
        Issue.record("\(deletion)")
        return
      }
      if isLost {
        try driver.refuse(deletion, .networkError)
        guard case .wait(let wait) = try driver.next() else {
          Issue.record("no wait")
          return
        }
        driver.facts.advance(milliseconds: wait.milliseconds)
      } else {
        try driver.answer(deletion, .done)
      }
    }
    #expect(driver.facts.zone(zone)?.lostReason == .erased)
    try expectEnd(&driver)
  }

  @Test func `a zone that the server has no page of is asked later whether it is the one to erase`() throws {
    let old = ZoneID("Old")
    var driver = try asked(Lines.seen(old) + Lines.seen() + [Lines.saved("n")])
    try driver.facts.append([.zoneChanged(.lost(old, .erasing, words: "the app", policy: "erase"))])
    let (identity, _) = try pages(&driver)
    let busy = CloudError(.zoneBusy, reason: "later", retryAfter: 600)
    try driver.answer(identity, .pages([old: .failure(busy)]))
    let (sent, upload) = try expectUpload(&driver, ["n"])
    try driver.answer(sent, .taken(upload))
    let next = try driver.next()
    guard case .wait(let rest) = next else { throw PlanDriver.Unexpected(words: "\(next)") }
    #expect(rest.isOfPart && rest.isServers && rest.milliseconds == 600_000, "\(rest)")
    driver.facts.advance(milliseconds: rest.milliseconds)
    try driver.answer(driver.request(), .page("t0", of: old))
    let deletion = try driver.request()
    guard case .eraseZone(old) = deletion else { throw PlanDriver.Unexpected(words: deletion.words) }
    try driver.answer(deletion, .done)
    try expectEnd(&driver)
  }

  // MARK: What holds whatever happens

  /// Random answers to whatever is asked: the plan ends, asks for nothing twice in a turn, and what it sends is pending.
  @Test func `always ends, sends only what is pending, and no target after its referrer`() throws {
    for seed in Campaign.seeds(1...400, every: 4) {
      let random = SeededRandom(seed: seed)
      func below(_ count: UInt64) -> Int { Int(random.below(count)) }
      var driver = try PlanDriver(below(2) == 0 ? [] : LogLines.seen(), random: seed)
      let names = (0..<6).map { "n\($0)" }
      for name in names where below(3) > 0 {
        try driver.facts.append([
          LogLines.saved(name, needs: below(3) == 0 ? names[below(6)] : nil, contents: below(3) == 0 ? [1] : [])
        ])
      }
      for cycle in 0..<4 {
        driver.begin()
        var turns = 0
        loop: while true {
          turns += 1
          try #require(turns < 400, "seed \(seed), cycle \(cycle): the cycle does not end")
          let next: SyncPlan.Next
          do { next = try driver.next() } catch { break loop }
          switch next {
          case .done, .outOfTime: break loop
          case .store: Issue.record("steps are carried out before")
          case .wait(let wait):
            try #require(wait.milliseconds > 0, "seed \(seed): a wait of nothing")
            driver.facts.advance(milliseconds: wait.milliseconds)
            if turns > 60 { break loop }
          case .ask(let request): do { try answer(&driver, request, below, seed) } catch is CloudError { break loop }
          }
        }
        driver.facts.advance(milliseconds: Int64(below(100_000_000)))
      }
    }
  }

  func answer(
    _ driver: inout PlanDriver, _ request: SyncRequest, _ below: (UInt64) -> Int, _ seed: UInt64
  ) throws {
    let codes: [CloudError.Code] = [
      .internalError, .throttled, .networkError, .badRequest, .zoneNotFound, .quotaExceeded, .accessDenied,
      .limitExceeded, .conflict, .notFound, .exists, .validatingReferenceError, .zoneBusy, .authenticationRequired,
    ]
    if case .modify(let upload) = request {
      var before: Set<String> = []
      for one in upload.uploads {
        let entry = try driver.facts.entry(one.id)
        #expect(entry?.pending?.newest == one.lsn, "seed \(seed): '\(one.id)' is not pending")
        #expect(before.insert(one.id.name).inserted, "seed \(seed): '\(one.id)' is sent twice in a request")
      }
      let places = Dictionary(uniqueKeysWithValues: upload.uploads.enumerated().map { ($1.id.key, $0) })
      for (place, one) in upload.uploads.enumerated() {
        for need in one.item.needs where need != one.id.key {
          guard let target = places[need], target > place else { continue }
          let unit = UploadPlan.units(upload.uploads.map(\.item)).first { $0.contains { $0.id == one.id } }
          #expect(unit?.contains { $0.id.key == need } == true, "seed \(seed): '\(need)' goes after what needs it")
        }
      }
      _ = try driver.leave(request)
      if below(3) == 0 {
        try driver.answer(request, .taken(upload))
      } else if below(2) == 0 {
        try driver.answer(
          request,
          .refused(upload, codes[below(14)], only: Set(upload.uploads.map(\.id.name).filter { _ in below(2) == 0 })))
      } else {
        try driver.refuse(request, codes[below(14)])
      }
      return
    }
    if below(4) == 0 { return try driver.refuse(request, codes[below(14)]) }
    switch request {
    case .user: try driver.answer(request, .user("user"))
    case .changedZones: try driver.answer(request, .changed(below(2) == 0 ? [zone] : [], token: "d\(below(1_000))"))
    case .allZones: try driver.answer(request, .allZones(below(2) == 0 ? [zone] : []))
    case .pages(let pages):
      var answers: [ZoneID: Result<ZonePage, CloudError>] = [:]
      for page in pages where pages.count == 1 || below(4) > 0 {
        let token = ChangeToken(rawValue: "t\(below(1_000))")
        answers[page.zone] =
          below(4) > 0
          ? .success(ZonePage(changes: [], token: token, moreComing: below(4) == 0))
          : .failure(CloudError(codes[below(14)], reason: "refused"))
      }
      try driver.answer(request, .pages(answers))
    case .newest: try driver.answer(request, .newest(NewestPage(records: [], marker: nil)))
    case .lookUp(let lookup):
      var results: [CloudName: CloudResult] = [:]
      for name in lookup.names where below(3) > 0 {
        results[name] = .failed(CloudError([.notFound, .internalError][below(2)], reason: "no"), serverRecord: nil)
      }
      try driver.answer(request, .records(results))
    case .createZone, .eraseZone: try driver.answer(request, .done)
    case .uploadContent(let upload): try driver.answer(request, .uploaded(upload))
    case .modify: break
    }
  }
}
