// Goal: what the plan makes of contents that have to go up before their records: which go up, what their refusal means, and that no wait
// for one outlasts its reason. Method: the plan alone, driven by hand.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

extension LogLines {
  /// A picture with these contents, which are on this device alone, one in each field.
  fileprivate static func picture(_ name: String, _ contents: UInt8..., in zone: ZoneID = zone) -> Event {
    saved(name, in: zone, type: "Picture", contents: contents)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The plan of contents` {
  typealias Lines = LogLines

  /// A plan that has asked for the account and for the list of changed zones.
  private func asked(
    _ events: [Event], _ configure: (inout SyncConfiguration) -> Void = { _ in }
  ) throws -> PlanDriver {
    var driver = try PlanDriver(Lines.seen() + events, configure)
    try begin(&driver)
    return driver
  }

  private func begin(_ driver: inout PlanDriver, _ configure: (inout CycleOptions) -> Void = { _ in }) throws {
    driver.begin(configure)
    while true {
      let request = try driver.request()
      switch request {
      case .user: try driver.answer(request, .user("user"))
      case .changedZones:
        try driver.answer(request, .changed())
        driver.appended = []
        return
      default: throw PlanDriver.Unexpected(words: request.words)
      }
    }
  }

  /// The next request, but for the question which zones have changed: a refusal may have the plan ask for it.
  private func request(_ driver: inout PlanDriver) throws -> SyncRequest {
    while true {
      let request = try driver.request()
      guard case .changedZones = request else { return request }
      try driver.answer(request, .changed())
    }
  }

  /// The next request: the upload of the content of this field.
  private func content(
    _ driver: inout PlanDriver, _ field: String, of name: String, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> (request: SyncRequest, upload: ContentUpload) {
    let request = try self.request(&driver)
    guard case .uploadContent(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
    #expect(upload.place.field == field && upload.item.id.name == name, sourceLocation: sourceLocation)
    return (request, upload)
  }

  private func takeContent(
    _ driver: inout PlanDriver, _ field: String, of name: String, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let (request, upload) = try content(&driver, field, of: name, sourceLocation: sourceLocation)
    try driver.answer(request, .uploaded(upload))
  }

  /// The next request: the upload of these records.
  private func records(
    _ driver: inout PlanDriver, _ names: [String], sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> (request: SyncRequest, upload: UploadRequest) {
    let request = try self.request(&driver)
    guard case .modify(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
    #expect(upload.uploads.map(\.id.name).sorted() == names, sourceLocation: sourceLocation)
    return (request, try driver.leave(request))
  }

  private func takeRecords(
    _ driver: inout PlanDriver, _ names: [String], sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let (request, upload) = try records(&driver, names, sourceLocation: sourceLocation)
    try driver.answer(request, .taken(upload))
  }

  private func expectEnd(_ driver: inout PlanDriver, sourceLocation: SourceLocation = #_sourceLocation) throws {
    var next = try driver.next()
    while case .ask(.changedZones(let list)) = next {
      try driver.answer(.changedZones(list), .changed())
      next = try driver.next()
    }
    guard case .done = next else {
      Issue.record("the cycle goes on", sourceLocation: sourceLocation)
      return
    }
    #expect(driver.plan.remembered["contents"] == nil, sourceLocation: sourceLocation)
  }

  private func picture(_ name: String) -> RecordID { RecordID(name, zone: Lines.zone) }

  // MARK: The order

  @Test func `records without contents go first, and a record when its last content is there`() throws {
    var driver = try asked([Lines.picture("a", 1, 2), Lines.saved("n")])
    try takeRecords(&driver, ["n"])
    for field in ["photo1", "photo2"] { try takeContent(&driver, field, of: "a") }
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
  }

  @Test(arguments: [true, false])
  func `a record whose contents are there does not wait for a record that is changed meanwhile`(
    _ isDeleted: Bool
  ) throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2)])
    try takeContent(&driver, "photo1", of: "a")
    try driver.facts.append([isDeleted ? Lines.deleted("b", base: 0) : Lines.saved("b", type: "Picture")])
    if !isDeleted { try takeRecords(&driver, ["b"]) }
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
  }

  @Test func `a record whose contents are there does not wait for one of a zone that is not sent now`() throws {
    let other = ZoneID("Other")
    var driver = try asked(Lines.seen(other) + [Lines.picture("a", 1), Lines.picture("b", 2, in: other)])
    let (request, upload) = try content(&driver, "photo1", of: "a")
    // The server loses that zone while the content goes up.
    try driver.facts.append([.zoneChanged(.lost(other, .deleted, words: "gone"))])
    try driver.answer(request, .uploaded(upload))
    try takeRecords(&driver, ["a"])
  }

  @Test func `what needs a record that waits for its contents waits for that record, in a circle too`() throws {
    var driver = try asked([
      Lines.saved("a", needs: "p"), Lines.saved("p", type: "Picture", contents: [1]),
      Lines.saved("b", needs: "q"), Lines.saved("q", type: "Picture", needs: "b", contents: [2]), Lines.saved("n"),
    ])
    try takeRecords(&driver, ["n"])
    try takeContent(&driver, "photo1", of: "p")
    try takeContent(&driver, "photo2", of: "q")
    try takeRecords(&driver, ["b", "p", "q"])
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
  }

  // MARK: The waits end

  @Test func `a change of a record does not wait for a content that it does not name any more`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2)])
    let (request, _) = try content(&driver, "photo1", of: "a")
    try driver.refuse(request, .serviceUnavailable) { $0.retryAfter = 3_600 }
    try driver.facts.append([Lines.saved("a", type: "Picture"), Lines.deleted("b", base: 0)])
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
    #expect(driver.facts.pending(9, after: .zero, upTo: driver.facts.durableLSN).isEmpty)
  }

  @Test func `a record that is deleted while its content goes up is not sent`() throws {
    var driver = try asked([Lines.picture("a", 1)])
    let (request, upload) = try content(&driver, "photo1", of: "a")
    try driver.facts.append([Lines.deleted("a", base: 0)])
    try driver.answer(request, .uploaded(upload))
    try expectEnd(&driver)
    #expect(driver.appended == ["settled"])
  }

  @Test func `a record that waits for a moment is not sent before it because its old contents are there`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2)])
    try takeContent(&driver, "photo1", of: "a")
    try driver.facts.append([Lines.saved("a", type: "Picture"), Lines.saved("n")])
    let (request, upload) = try records(&driver, ["a", "n"])
    try driver.answer(request, .refused(upload, .zoneBusy, only: ["a"], retryAfter: 600))
    // The feed says whether the server has it all the same.
    let feed = try self.request(&driver)
    guard case .pages(let pages) = feed else { throw PlanDriver.Unexpected(words: feed.words) }
    try driver.answer(feed, .pages(of: pages, "t1"))
    try takeContent(&driver, "photo2", of: "b")
    try takeRecords(&driver, ["b"])
  }

  // MARK: Refusals

  @Test func `a refused content holds its record alone, and the reason names the field`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2)])
    let (request, _) = try content(&driver, "photo1", of: "a")
    try driver.refuse(request, .limitExceeded)
    try takeContent(&driver, "photo2", of: "b")
    try takeRecords(&driver, ["b"])
    try expectEnd(&driver)
    let held = try #require(driver.facts.held(picture("a")))
    #expect(held.words == "the content of field 'photo1': refused" && held.durationMilliseconds == 0)
  }

  @Test func `full storage is asked once and not for each content`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2), Lines.picture("c", 3)])
    let (request, _) = try content(&driver, "photo1", of: "a")
    try driver.refuse(request, .quotaExceeded)
    #expect(throws: (any Error).self) { try expectEnd(&driver) }
    #expect(driver.appended == ["held"])
    // A person makes room and syncs.
    try begin(&driver) { $0.isUserInitiated = true }
    var names: Set<String> = []
    for _ in 0..<3 {
      let request = try self.request(&driver)
      guard case .uploadContent(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
      names.insert(upload.item.id.name)
      try driver.answer(request, .uploaded(upload))
    }
    #expect(names == ["a", "b", "c"])
    try takeRecords(&driver, ["a", "b", "c"])
    try expectEnd(&driver)
  }

  // MARK: Receipts

  @Test func `contents that take longer than a receipt counts go up once each`() throws {
    var driver = try asked([Lines.picture("a", 1, 2, 3, 4)])
    for _ in 0..<4 {
      let request = try self.request(&driver)
      guard case .uploadContent(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
      driver.facts.advance(milliseconds: ContentLane.receiptMilliseconds - 1)
      try driver.answer(request, .uploaded(upload))
    }
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
  }

  @Test func `a receipt that has become old is not used, whatever goes up later`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2)])
    try takeContent(&driver, "photo1", of: "a")
    let (request, upload) = try content(&driver, "photo2", of: "b")
    driver.facts.advance(milliseconds: ContentLane.receiptMilliseconds)
    try driver.answer(request, .uploaded(upload))
    try takeRecords(&driver, ["b"])
    try takeContent(&driver, "photo1", of: "a")
    try takeRecords(&driver, ["a"])
    try expectEnd(&driver)
  }

  @Test func `a record that the server may have refused for its receipt is sent once more with a fresh one`() throws {
    var driver = try asked([Lines.picture("a", 1), Lines.picture("b", 2), Lines.picture("c", 3)])
    for (field, name) in [("photo1", "a"), ("photo2", "b"), ("photo3", "c")] {
      try takeContent(&driver, field, of: name)
    }
    let (request, upload) = try records(&driver, ["a", "b", "c"])
    // Three of one type that are refused alike halt their type, if it is the records.
    try driver.answer(request, .refused(upload, .badRequest))
    #expect(!driver.appended.contains("held"))
    for _ in 0..<3 {
      let request = try self.request(&driver)
      guard case .uploadContent(let upload) = request else { throw PlanDriver.Unexpected(words: request.words) }
      try driver.answer(request, .uploaded(upload))
    }
    let (again, second) = try records(&driver, ["a", "b", "c"])
    try driver.answer(again, .refused(second, .badRequest, only: ["b"]))
    try expectEnd(&driver)
    #expect(driver.facts.held(picture("b")) != nil && driver.facts.held(picture("a")) == nil)
  }
}
