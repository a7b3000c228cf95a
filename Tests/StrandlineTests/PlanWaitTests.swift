// Goal: what the plan has set aside, asked or put off comes to an end: each wait has something that ends it, and each question is
// asked. Method: as in PlanTests.swift, a few lines for each; and drawn histories, at the end of which the server takes everything.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

extension `The plan of a cycle` {
  func id(_ name: String) -> RecordID { RecordID(name, zone: zone) }

  /// The next request that does not ask which zones have changed.
  func request(_ driver: inout PlanDriver) throws -> SyncRequest {
    let request = try driver.request()
    guard case .changedZones = request else { return request }
    try driver.answer(request, .changed(token: "list \(driver.facts.durableLSN)"))
    return try driver.request()
  }

  func expectPage(
    _ driver: inout PlanDriver, from token: String?, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> SyncRequest {
    let request = try request(&driver)
    guard case .pages(let pages) = request else { throw PlanDriver.Unexpected(words: request.words) }
    #expect(pages.map(\.token?.rawValue) == [token], sourceLocation: sourceLocation)
    return request
  }

  func expectLookup(
    _ driver: inout PlanDriver, _ names: [String], sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> SyncRequest {
    let request = try request(&driver)
    guard case .lookUp(let lookup) = request else { throw PlanDriver.Unexpected(words: request.words) }
    #expect(lookup.names == names.map { CloudName($0) }, sourceLocation: sourceLocation)
    return request
  }

  func wait(_ driver: inout PlanDriver) throws -> RequestPace.Wait {
    let next = try driver.next()
    guard case .wait(let wait) = next else { throw PlanDriver.Unexpected(words: "\(next)") }
    driver.facts.advance(milliseconds: wait.milliseconds)
    return wait
  }

  /// A cycle that the engine makes by itself, some time later.
  func later(_ driver: inout PlanDriver, milliseconds: Int64) {
    driver.facts.advance(milliseconds: milliseconds)
    driver.begin { ($0.isUserInitiated, $0.asksForChanges) = (false, false) }
  }

  /// A plan with edits of records that the server has.
  func edited(_ names: [String]) throws -> PlanDriver {
    try asked(Lines.seen() + names.map { Lines.fetched($0) } + names.map { Lines.saved($0, base: 1) })
  }

  // MARK: Waits

  @Test func `a record that waits for another one is looked at again when that one is saved`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("parent"), Lines.saved("child", needs: "parent")]) {
      $0.batch.operations = 1
    }
    let parent = try expectUpload(&driver, ["parent"])
    try driver.answer(parent.request, .refused(parent.upload, .accessDenied))
    try driver.answer(driver.request(), .changed(token: "d2"))
    try expectEnd(&driver)
    #expect(driver.plan.queue.wait(of: id("child")) == .target(id("parent")))
    later(&driver, milliseconds: 300_000)
    let again = try expectUpload(&driver, ["parent"])
    try driver.answer(again.request, .taken(again.upload))
    let child = try expectUpload(&driver, ["child"])
    try driver.answer(child.request, .taken(child.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `a deletion that references forbid is sent again when something has changed in the zone`() throws {
    var driver = try asked(Lines.seen() + [Lines.fetched("other"), Lines.fetched("old")])
    let base = driver.facts.durableLSN.rawValue
    try driver.facts.append([Lines.deleted("old", base: base)])
    driver.begin { $0.asksForChanges = false }
    let old = try expectUpload(&driver, ["old"])
    try driver.answer(old.request, .refused(old.upload, .validatingReferenceError))
    try driver.answer(driver.request(), .changed(token: "d2"))
    try expectEnd(&driver)
    try driver.facts.append([Lines.deleted("other", base: base - 1)])
    later(&driver, milliseconds: 0)
    let other = try expectUpload(&driver, ["other"])
    try driver.answer(other.request, .taken(other.upload))
    _ = try expectUpload(&driver, ["old"])
  }

  @Test func `a conflict is looked up, and with the same tag the zone is fetched before it is sent again`() throws {
    var driver = try edited(["n"])
    let (request, upload) = try expectUpload(&driver, ["n"])
    try driver.answer(request, .refused(upload, .conflict))
    try driver.answer(expectLookup(&driver, ["n"]), .found(["n"], tag: "a"))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    let again = try expectUpload(&driver, ["n"])
    try driver.answer(again.request, .taken(again.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `what the server wants later of one record is waited for as long as it has named`() throws {
    var driver = try asked(Lines.seen() + ["a", "b"].map { Lines.saved($0) })
    let (request, upload) = try expectUpload(&driver, ["a", "b"])
    try driver.answer(request, .refused(upload, .tryAgainLater, only: ["b"], retryAfter: 600))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    let waited = try wait(&driver)
    #expect(waited.isOfPart && waited.isServers && waited.milliseconds == 600_000)
    _ = try expectUpload(&driver, ["b"])
  }

  private func expectPageAfterWaits(_ driver: inout PlanDriver) throws -> SyncRequest {
    while true {
      switch try driver.next() {
      case .wait(let wait): driver.facts.advance(milliseconds: wait.milliseconds)
      case .ask(let request) where request.kind == .page: return request
      case let next: throw PlanDriver.Unexpected(words: "\(next)")
      }
    }
  }

  @Test func `what may have been applied is not sent again while the feed cannot be asked`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    try driver.refuse(expectUpload(&driver, ["n"]).request, .internalError)
    for _ in 0..<4 { try driver.refuse(expectPageAfterWaits(&driver), .internalError) }
    try driver.answer(expectPageAfterWaits(&driver), .page("t1"))
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `what is under way is not sent a second time, whatever is looked at meanwhile`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("parent")])
    let (upload, _) = try expectUpload(&driver, ["parent"])
    // The app writes what needs it, and all is looked at again.
    try driver.facts.append([Lines.saved("child", needs: "parent")])
    driver.plan.cycle.roundEnd = driver.facts.durableLSN
    driver.plan.queue.lookAgain()
    try driver.plan.lookAhead(driver.facts)
    #expect(driver.plan.cycle.made.count == 1, "the operation of what needs it, and no other one")
    // It may have been applied, and the feed, which would say so, cannot be asked.
    try driver.refuse(upload, .internalError)
    for _ in 0..<4 { try driver.refuse(expectPageAfterWaits(&driver), .internalError) }
    try driver.answer(expectPageAfterWaits(&driver), .page("t1"))
    let parent = try expectUpload(&driver, ["parent"])
    try driver.answer(parent.request, .taken(parent.upload))
    _ = try expectUpload(&driver, ["child"])
  }

  // MARK: Limits

  /// The sizes of requests until nothing is asked any more, of which those that are larger than the server takes are refused.
  private func sizes(_ driver: inout PlanDriver, max: Int) throws -> [Int] {
    var sizes: [Int] = []
    while case .ask(let request) = try driver.next() {
      let count: Int
      let answer: SyncAnswer
      switch request {
      case .modify(let upload):
        (count, answer) = (upload.uploads.count, .taken(upload))
        _ = try driver.leave(request)
      case .lookUp(let lookup): (count, answer) = (lookup.names.count, .found(lookup.names.map(\.text), tag: "a"))
      case .pages(let pages): (count, answer) = (pages.count, .pages(of: pages, "t1"))
      default: (count, answer) = (1, .page("t1"))
      }
      sizes.append(count)
      if count > max { try driver.refuse(request, .limitExceeded) } else { try driver.answer(request, answer) }
    }
    return sizes
  }

  @Test func `a smaller upload becomes as large as before once full ones were answered`() throws {
    var driver = try asked(Lines.seen() + (0..<40).map { Lines.saved("n\($0)") }) { $0.batch.operations = 4 }
    // The halves of what was refused say nothing, but for the last one.
    #expect(try sizes(&driver, max: 2) == [4] + Array(repeating: 2, count: 9) + [4] + Array(repeating: 2, count: 11))
    #expect(driver.plan.limits.operations.growsAfter == 16)
  }

  @Test func `a smaller lookup doubles with each answer`() throws {
    let names = (0..<16).map { "n\($0)" }.sorted()
    var driver = try asked(
      Lines.seen() + names.map { Lines.fetched($0) } + names.map { .blocked(.asking(id($0))) })
    #expect(try sizes(&driver, max: 4) == [16, 8, 4, 8, 4, 8, 4, 4])
  }

  @Test func `a smaller lookup of what was listed grows after some answers`() throws {
    let items = (0..<1_100).map { Listed.Item(name: "n\($0)", changeTag: "a", modifiedMilliseconds: 1) }
    var driver = try asked(Lines.seen() + [.listed(Listed(zone: zone, items: items))])
    #expect(try sizes(&driver, max: 199) == [200] + Array(repeating: 100, count: 8) + [200, 100, 100, 100])
  }

  @Test func `fewer zones in a request become as many as before after some answers`() throws {
    let zones = (0..<4).map { ZoneID("Z\($0)") }
    var driver = try asked(zones.flatMap { Lines.seen($0) })
    var counts: [Int] = []
    for number in 0..<6 {
      try driver.facts.append(zones.map { Lines.dirty($0) })
      later(&driver, milliseconds: 0)
      counts += try sizes(&driver, max: number == 0 ? 3 : 4)
    }
    #expect(counts == [4] + Array(repeating: 2, count: 8) + [4, 4], "\(counts)")
  }

  // MARK: Waits that the server names

  @Test func `whatever is refused, the time that the server names is waited for, and no person ends it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("n")])
    let (request, _) = try expectUpload(&driver, ["n"])
    try driver.refuse(request, .accessDenied) { $0.retryAfter = 600 }
    #expect(driver.appended.contains("pace"))
    driver.begin { $0.asksForChanges = false }
    let waited = try wait(&driver)
    #expect(waited.isServers && waited.milliseconds == 600_000)
    _ = try expectUpload(&driver, ["n"])
  }

  @Test func `a record is held as long as the server has named`() throws {
    var driver = try asked(Lines.seen() + ["a", "b"].map { Lines.saved($0) })
    let (request, upload) = try expectUpload(&driver, ["a", "b"])
    try driver.answer(request, .refused(upload, .accessDenied, only: ["b"], retryAfter: 600))
    try driver.answer(driver.request(), .changed(token: "d2"))
    try expectEnd(&driver)
    let held = try #require(driver.facts.held(id("b")))
    #expect(held.isServers && held.durationMilliseconds == 600_000)
    // Neither the time of the engine's own holds nor a person ends it.
    driver.facts.advance(milliseconds: 599_999)
    driver.begin { $0.asksForChanges = false }
    try expectEnd(&driver)
    later(&driver, milliseconds: 1)
    _ = try expectUpload(&driver, ["b"])
  }
}

extension Blocked {
  /// A version of which it is asked what the server has.
  fileprivate static func asking(_ id: RecordID) -> Blocked {
    Blocked(id: id, subject: .version, changeTag: "b", births: [], consequence: .lookup, words: "older")
  }
}
