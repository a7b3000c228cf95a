// Goal: an answer that does not help ends no run and is not asked for without end: lookups that do not say what the server
// has, versions that fit into no transaction together, tokens that the server refuses as soon as it has given them.

import Foundation
import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// A device whose next run has to look "n" up: its creation was not answered, and the app has deleted it since.
private func asking() async throws -> (a: Device, cloud: RefusingCloud) {
  let a = try Fleet().device("a")
  let cloud = try await a.openRefusing()
  cloud.refuse { $0.requests[.modify] = [CloudError(.networkError, reason: "no answer")] }
  try await a.write("n")
  #expect(try await a.run(waitMillisecondsMax: 0) != nil)
  try await a.erase("n")
  return (a, cloud)
}

@Suite(.timeLimit(.minutes(30))) struct UnhelpfulAnswerTests {
  @Test(arguments: [CloudError.Code.throttled, .internalError, .accessDenied])
  func `a lookup whose answer does not say what the server has is made later and later`(_ code: CloudError.Code)
    async throws
  {
    let (a, cloud) = try await asking()
    try await a.write("other")
    let asked = Mutex(0)
    cloud.refuse { script in
      script.shown["n"] = .failed(name: "n", CloudError(code, reason: "not this one"))
      script.refusal = { request, _ in
        guard request == .lookup else { return nil }
        return asked.withLock { count in
          count += 1
          return count > 50 ? CloudError(.authenticationFailed, reason: "asked without end") : nil
        }
      }
    }
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(error?.message.contains("not this one") == true, "\(String(describing: error))")
    #expect(asked.withLock { $0 } <= 2)
    #expect(try await a.unsettled == 1)
    #expect(cloud.sent.joined().contains("other"))
    cloud.refuse { $0.shown = [:] }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [false, true])
  func `versions of conflicts that fit into no transaction together are taken in parts`(areBrought: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", transactionBytesMax: 300_000), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.bringsVersions = areBrought }
    let text = FieldValue.string(String(repeating: "x", count: 8_000))
    for number in 0..<60 { try await a.write("n\(number)", ["text": text]) }
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await b.open().write { tx in
      for number in 0..<60 {
        guard var record = try tx.record(RecordID("n\(number)")) else { continue }
        record["b"] = 1
        try tx.save(record)
      }
    }
    try await b.exchange()
    for number in 0..<60 { try await a.write("n\(number)", ["a": 1]) }
    try await a.sync(.pushOnly)
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await a.open().record(RecordID("n59"))?["b"] == 1)
    #expect(try await b.open().record(RecordID("n59"))?["a"] == 1)
  }

  @Test func `a server that refuses each of its own tokens is given up in this run, with an error`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for number in 0..<4 { try await b.put("n\(number)", ["title": "t"]) }
    try await b.exchange()
    let pages = Mutex(0)
    cloud.refuse { script in
      script.pageMax = 1
      // The first page's token differs each time, as where others change the zone meanwhile.
      script.page = { number, page in
        var page = page
        if page.moreComing { page.token = ChangeToken(rawValue: "other \(number)") }
        return page
      }
      script.refusal = { request, _ in
        guard request == .zoneChanges else { return nil }
        return pages.withLock { pages in
          pages += 1
          return pages > 60 ? CloudError(.authenticationFailed, reason: "asked without end") : nil
        }
      }
    }
    try await a.write("mine")
    let error = try await a.run()
    #expect(error?.code == .serverRefused, "\(String(describing: error))")
    #expect(pages.withLock { $0 } < 30)
  }

  @Test(arguments: [CloudError.Code.authenticationRequired, .authenticationFailed])
  func `one record that a lookup refuses for its sign-in keeps no other back`(_ code: CloudError.Code) async throws {
    let (a, cloud) = try await asking()
    try await a.write("other")
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(code, reason: "not this one")) }
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(error?.code == .needsSignIn, "\(String(describing: error))")
    #expect(cloud.sent.joined().contains("other"))
    cloud.refuse { $0.shown = [:] }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [CloudError.Code.accessDenied, .badRequest], [1, 5])
  func `a record that no request may ask for is held by name, and keeps its zone from nothing`(
    _ code: CloudError.Code, _ count: Int
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let names = (0..<count).map { "n\($0)" }
    for name in names + ["m"] { try await b.write(name, ["title": "b"]) }
    try await b.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      for name in names {
        script.shown[name] = .failed(name: name, CloudError(.unexpectedServerResponse, reason: "cannot be read"))
      }
      script.requests[.lookup] = [CloudError(code, reason: "not this one")]
      script.isForever = true
    }
    try await a.write("mine")
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(cloud.sent.joined().contains("mine"))
    #expect(try await a.value("m") == "b")
    let status = try await a.open().status()
    #expect(status.held.map(\.id.name) == names && status.held.allSatisfy(\.isDownload))
    #expect(status.held.allSatisfy { $0.reason.contains("not this one") && $0.code == code })
    #expect(status.openBlocks == 0)
    #expect(cloud.count(.lookup) <= count + 3)
    // It is not asked for with each write.
    let asked = cloud.count(.lookup)
    try await a.write("mine", ["title": "two"])
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(cloud.count(.lookup) == asked)
    cloud.refuse { ($0.shown, $0.requests) = ([:], [:]) }
    try await a.open().releaseHolds(of: names.map { RecordID($0) })
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `a record of which no lookup says whether it is deleted is asked for until one does`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await b.put("n", ["title": "one"])
    try await exchange(b, a)
    try await b.remove("n")
    try await exchange(b, a)
    try await b.create("n", ["title": "two"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "two")
    cloud.refuse { script in
      script.requests[.lookup] = [CloudError(.accessDenied, reason: "not this one")]
      script.isForever = true
    }
    try await b.remove("n")
    try await b.exchange()
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["n"])
    let events = try await a.open().durableLSN
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    #expect(try await a.open().durableLSN == events)
    cloud.refuse { $0.requests = [:] }
    try await a.open().releaseHolds(of: [RecordID("n")])
    try await a.exchange()
    #expect(try await !a.lives("n"))
    try await expectAgreement(a, b)
  }

  @Test func `where every lookup is refused, few are made, nothing is held, and it is tried again later`() async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let names = (0..<300).map { "n\($0)" }
    for name in names { try await b.write(name, ["title": "b"]) }
    try await b.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      for name in names {
        script.shown[name] = .failed(name: name, CloudError(.unexpectedServerResponse, reason: "cannot be read"))
      }
      script.requests[.lookup] = [CloudError(.accessDenied, reason: "not now")]
      script.isForever = true
    }
    try await a.write("mine")
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .serverRefused)
    #expect(cloud.count(.lookup) <= 20)
    // Each was held by the page that could not show it, and is asked for again.
    #expect(try await a.open().status().openBlocks == 300)
    let asked = cloud.count(.lookup)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    #expect(cloud.count(.lookup) == asked && cloud.sent.joined().contains("mine"))
    cloud.refuse { ($0.shown, $0.requests) = ([:], [:]) }
    a.clock.advance(milliseconds: 60_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test(arguments: [false, true])
  func `a record that fits into no transaction keeps no other zone waiting, and the run says so`(_ isLast: Bool)
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a", transactionBytesMax: 100_000), fleet.device("b"))
    let big = ZoneID("Big")
    try await b.write("n", ["text": .string(String(repeating: "x", count: 200_000))], zone: big)
    if !isLast {
      try await b.exchange()
      for number in 0..<3 { try await b.write("later\(number)", zone: big) }
    }
    try await b.write("m", ["title": "b"])
    try await b.exchange()
    try await a.write("mine")
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(error?.code == .serverRefused && error?.message.contains("'n'") == true, "\(String(describing: error))")
    #expect(try await a.value("m") == "b")
    #expect(try await a.unsettled == 0)
  }

  @Test func `a list of changed zones may name the default zone, which has no feed`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: ZoneID(Names.defaultZone)))
        return page
      }
    }
    try await a.write("n")
    for _ in 0..<2 { #expect(try await a.run(waitMillisecondsMax: 0) == nil) }
    #expect(try await a.open().status().zones.map(\.id) == [.main])
  }

  @Test func `a record for which the server names a wait in a lookup is not asked for before`() async throws {
    let (a, cloud) = try await asking()
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(.throttled, reason: "later", retryAfter: 40)) }
    #expect(try await a.run(waitMillisecondsMax: 20_000)?.retryAfter ?? 0 > 30)
    let asked = cloud.requestCount
    #expect(try await a.run(waitMillisecondsMax: 20_000) != nil)
    #expect(cloud.requestCount == asked)
    cloud.refuse { $0.shown = [:] }
    #expect(try await a.run(waitMillisecondsMax: 60_000) == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a wait that the server names in a lookup for one of two records keeps no other back`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[.modify] = [CloudError(.networkError, reason: "no answer")] }
    for name in ["n", "m"] { try await a.write(name) }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    for name in ["n", "m"] { try await a.erase(name) }
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(.throttled, reason: "later", retryAfter: 3_600)) }
    #expect(try await a.run(waitMillisecondsMax: 20_000)?.retryAfter ?? 0 > 3_000)
    #expect(try await a.open().pendingChanges().changes.map(\.id.name) == ["n"])
    // All else goes on, and the one is not asked for before its time.
    try await a.write("other")
    let asked = cloud.count(.lookup)
    #expect(try await a.run(waitMillisecondsMax: 20_000) != nil)
    #expect(cloud.sent.contains(["other"]) && cloud.count(.lookup) == asked)
    cloud.refuse { $0.shown = [:] }
    #expect(try await a.run(waitMillisecondsMax: 4_000_000) == nil)
    #expect(try await a.owesNothing && cloud.count(.lookup) == asked + 1)
  }

  @Test func `a record for which the server names a wait again and again keeps no other back, and is held as long`()
    async throws
  {
    let (a, cloud) = try await asking()
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(.throttled, reason: "later", retryAfter: 3_600)) }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    var lookups = cloud.count(.lookup)
    for number in 1..<9 {
      a.clock.advance(milliseconds: 3_601_000)
      let error = try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
      #expect((error == nil) == (number == 8), "it is held then, and nothing is waited for")
      try await a.write("other\(number)")
      try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
      #expect(cloud.sent.last == ["other\(number)"])
      #expect(cloud.count(.lookup) == lookups + 1)
      lookups += 1
    }
    let held = try await a.open().status().held
    #expect(held.map(\.retryDelay) == [.seconds(3_600)])
    a.clock.advance(milliseconds: 600_000)
    try await a.run(waitMillisecondsMax: 0)
    #expect(cloud.count(.lookup) == lookups, "no person ends what the server has named")
  }

  @Test func `a record for which the server names a very short wait is held as long as one for which it names none`()
    async throws
  {
    let (a, cloud) = try await asking()
    cloud.refuse { $0.shown["n"] = .failed(name: "n", CloudError(.throttled, reason: "later", retryAfter: 1)) }
    func delay(after milliseconds: Int64) async throws -> Duration? {
      for _ in 0..<12 {
        try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
        if let held = try await a.open().status().held.first { return held.retryDelay }
        a.clock.advance(milliseconds: milliseconds)
      }
      return nil
    }
    #expect(try await delay(after: 300_000) == .seconds(300))
    // In this time nobody asks for it.
    let lookups = cloud.count(.lookup)
    for _ in 0..<10 {
      a.clock.advance(milliseconds: 20_000)
      try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
    }
    #expect(cloud.count(.lookup) == lookups)
    a.clock.advance(milliseconds: 101_000)
    #expect(try await delay(after: 1_000) == .seconds(600))
    #expect(cloud.count(.lookup) == lookups + 1)
  }

  @Test func `a record for which no upload waits keeps none back, whatever wait the server names for it`() async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await b.write("q")
    try await b.run()
    #expect(try await a.run() == nil)
    try await b.write("q", ["title": "two"])
    try await b.run()
    cloud.refuse { $0.shown["q"] = .failed(name: "q", CloudError(.throttled, reason: "later", retryAfter: 3_600)) }
    for number in 0..<3 {
      try await a.write("n\(number)")
      try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
      #expect(cloud.sent.last == ["n\(number)"])
      a.clock.advance(milliseconds: 3_601_000)
    }
    #expect(cloud.count(.lookup) > 0)
    cloud.refuse { $0.shown = [:] }
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test(arguments: [CloudError.Code.answerTooLarge, .limitExceeded])
  func `a page that is too large is asked for in smaller parts`(_ code: CloudError.Code) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<30 { try await b.write("n\(number)") }
    try await b.run()
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[.zoneChanges] = Array(repeating: CloudError(code, reason: "too much"), count: 4) }
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(cloud.count(.zoneChanges) >= 4 + 30 / (200 / 16))
    try await expectAgreement(a, b)
  }

  @Test func `no page is small enough for a server whose every answer is too large, and the run says so`() async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.refusal = { request, _ in request == .zoneChanges ? CloudError(.answerTooLarge, reason: "too much") : nil }
    }
    try await a.open().resync(.main, from: .server)
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(
      error?.code == .serverRefused && error?.message.contains("too much") == true, "\(String(describing: error))")
    #expect(cloud.count(.zoneChanges) < 20)
  }

  @Test func `a batch whose answer is too large is applied once, and the next ones are smaller`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.lostAnswers = [CloudError(.answerTooLarge, reason: "too much")] }
    for number in 0..<40 { try await a.write("n\(number)") }
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(try await a.owesNothing)
    #expect(fleet.server.statistics.appliedOperations == 40)
    for number in 0..<40 { try await a.write("n\(number)", ["title": "new"]) }
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(cloud.sent.map(\.count) == [40, 20, 20])
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test(arguments: [RefusingCloud.Request.user, .databaseChanges])
  func `what cannot be asked for in smaller parts is asked for again later`(_ request: RefusingCloud.Request)
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[request] = [CloudError(.answerTooLarge, reason: "too much")] }
    try await a.write("n")
    #expect(try await a.run(waitMillisecondsMax: 0)?.message.contains("too much") == true)
    #expect(cloud.count(request) == 1)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [true, false])
  func `what goes in one request whose answer is always too large is sent later and later`(_ isSet: Bool) async throws {
    let a = try Fleet().device("a")
    try await a.write("old")
    try await a.exchange()
    let cloud = try await a.openRefusing(atomicZones: isSet ? [.main] : [])
    cloud.refuse { script in
      script.refusal = { request, _ in request == .modify ? CloudError(.answerTooLarge, reason: "too much") : nil }
    }
    try await a.open().write { tx in
      for number in 0..<(isSet ? 3 : 1) { try tx.save(Record(type: "Note", id: RecordID("n\(number)"))) }
    }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) < 12)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a run of one zone waits for no record of another one`() async throws {
    let a = try Fleet().device("a")
    let (one, two) = (ZoneID("One"), ZoneID("Two"))
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["later"] = Array(repeating: CloudError(.tryAgainLater, reason: "later"), count: 3) }
    try await a.write("later", zone: two)
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    try await a.write("n", zone: one)
    var options = CycleOptions()
    // A person's run would try what was postponed at once.
    (options.zone, options.waitMillisecondsMax, options.isUserInitiated) = (one, 0, false)
    a.clock.advance(milliseconds: 2_000)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    #expect(try await a.open().engine.cycle(options).waitedMilliseconds == 0)
    #expect(try await a.unsettled == 1)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `what fails on this device is no answer of the server's`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    for request in [RefusingCloud.Request.user, .databaseChanges, .createZone, .modify] {
      cloud.refuse { $0.requests[request] = [StrandlineError(.diskFull, "the session's file cannot be written")] }
      #expect(try await a.run(waitMillisecondsMax: 0)?.code == .diskFull)
      let status = try await a.open().engine.status
      #expect(status.sentence(in: .current) == "Not synced: no room on this device" && status.unsettled == 1)
      #expect(status.lastOperation?.failure == "diskFull")
      #expect(try await a.open().pendingChange(of: RecordID("n"))?.mayHaveArrived == false)
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }
}
