// Goal: nothing that is owed stays behind in silence. Each test is a history in which an engine once gave up quietly, held
// a record for ever, or asked a server too often. Method: the fleet's server behind a cloud that refuses what the test
// names; clocks that advance when the engine waits.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private func busy(_ retryAfter: Double? = nil) -> CloudError {
  CloudError(.serviceUnavailable, reason: "busy", retryAfter: retryAfter, httpStatus: 503)
}

@Suite(.timeLimit(.minutes(30))) struct `References between unsent records` {
  @Test func `a parent that is edited during the first of two requests does not let its child go before it`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    // The parent stands at the end of the first batch, its children in the second.
    for number in 0..<199 { try await a.write("n\(number)") }
    try await a.write("parent", ["title": "one"])
    for number in 0..<5 { try await a.write("child\(number)", ["of": link("parent")]) }
    cloud.refuse {
      $0.beforeModify = { number in if number == 1 { try await a.write("parent", ["title": "two"]) } }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a child goes when its parent, which was held, is mended`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["parent"] = [CloudError(.badRequest, reason: "a wrong value")] }
    try await a.write("parent", ["title": "wrong"])
    try await a.write("child", ["of": link("parent")])
    try await a.write("other")
    _ = try await a.run()
    #expect(try await a.open().status().held.map(\.id.name) == ["parent"])
    try await a.write("parent", ["title": "right"])
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `150: two records that validate each other on the border of a batch go in one request`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for number in 0..<199 { try await a.write("n\(number)") }
    try await a.open().write { tx in
      try tx.save(Record(type: "Note", id: RecordID("x"), fields: ["of": link("y")]))
      try tx.save(Record(type: "Note", id: RecordID("y"), fields: ["of": link("x")]))
    }
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
    #expect(cloud.sent.map(\.count) == [199, 2])
  }

  @Test func `145: a child is not sent in the request after the one in which its parent was refused`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.items["parent"] = [CloudError(.badRequest, reason: "a wrong value")]
      $0.isForever = true
    }
    try await a.write("parent")
    for number in 0..<250 { try await a.write("child\(number)", ["of": link("parent")]) }
    _ = try await a.run()
    // Those that went with the parent were refused; nothing more was sent after its refusal.
    #expect(cloud.sent.count == 1)
    #expect(try await a.open().status().held.map(\.id.name) == ["parent"])
    cloud.refuse { $0.items = [:] }
    try await a.write("parent", ["title": "mended"])
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test func `a deletion does not wait for what its record referred to`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let clouds = [try await a.openRefusing(), try await b.openRefusing()]
    for cloud in clouds {
      cloud.refuse {
        $0.items["target"] = [CloudError(.notFound, reason: "no")]
        $0.isForever = true
      }
    }
    try await a.write("target")
    try await a.write("child", ["link": .reference(Reference("target", action: .deleteSelf))])
    _ = try await a.run()
    try await b.exchange()
    try #require(try await b.lives("child"))
    try await b.write("target", ["n": 2])
    try await b.erase("child")
    _ = try await b.run()
    #expect(try await b.open().pendingChanges().changes.map(\.id.name) == ["target"])
    try await a.exchange(.pullOnly)
    #expect(try await !a.lives("child"))
  }

  @Test func `a deleted record does not wait for the save that it was before`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("self")
    try await a.write("self", ["link": .reference(Reference("self", action: .validate))])
    try await a.exchange()
    cloud.refuse { $0.items["self"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.write("self", ["n": 1])
    _ = try await a.run()
    #expect(try await a.open().status().held.count == 1)
    try await a.erase("self")
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a deletion of what the server never had does not wait for what refers to it there`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.items["target"] = [CloudError(.uniqueFieldError, reason: "taken")]
      $0.isForever = true
    }
    // The server takes a reference to what it does not have.
    try await b.write("child", ["link": .reference(Reference("target", action: .deleteSelf))])
    try await b.exchange()
    try await a.write("target")
    try await a.write("child", ["n": 1])
    _ = try await a.run()
    #expect(try await a.unsettled == 2)
    try await a.erase("target")
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    try await exchange(b)
    #expect(try await b.value("child", "n") == 1)
  }

  @Test func `a deletion that another device's child forbids goes when the child is gone`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.write("parent")
    try await a.run()
    try await b.run()
    try await b.write("child", ["of": link("parent")])
    try await b.run()
    try await a.erase("parent")
    _ = try await a.run()
    #expect(try await a.unsettled == 1)
    try await b.erase("child")
    #expect(try await b.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
    try await b.run()
    let seen = try await b.open().record(RecordID("parent"))
    #expect(seen == nil)
  }

  @Test func `a parent that is saved last goes before 250 children, in the least number of requests`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for number in 0..<250 { try await a.write("child\(number)", ["of": link("parent")]) }
    try await a.write("parent")
    #expect(try await a.run() == nil)
    #expect(cloud.sent.count == 2 && cloud.sent[0].first == "parent")
    #expect(try await a.unsettled == 0)
  }

  @Test func `the old parent is deleted after the save that leaves it, also while that save is held`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let cloud = try await a.openRefusing()
    for name in ["old", "new"] { try await a.write(name) }
    try await a.write("child", ["of": link("old", .deleteSelf)])
    try await a.run()
    cloud.refuse { $0.items["child"] = [CloudError(.badRequest, reason: "a wrong value")] }
    try await a.write("child", ["of": link("new", .deleteSelf)])
    try await a.erase("old")
    _ = try await a.run()
    #expect(cloud.sent.last == ["child"], "the server would delete the child with its old parent")
    try await a.write("child", ["title": "mended"])
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
    let b = fleet.device("b")
    try await b.run()
    #expect(try await b.open().record(RecordID("child"))?["title"] == "mended")
    let old = try await b.open().record(RecordID("old"))
    #expect(old == nil)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Refusals that must not be silent` {
  @Test func `a type of one zone that is refused as a whole does not stop the other zone`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.isForever = true
      for number in 0..<3 {
        script.items["bad\(number)"] = [CloudError(.accessDenied, reason: "no permission for Secret")]
      }
    }
    let (first, second) = (ZoneID("A"), ZoneID("B"))
    for number in 0..<3 { try await a.write("bad\(number)", type: "Secret", zone: first) }
    try await a.write("good", zone: first)
    try await a.write("other", zone: second)
    let error = try #require(try await a.run())
    #expect(error.code == .serverRefused && error.message.contains("Secret") && error.message.contains("zone 'A'"))
    #expect(try await a.unsettled == 3, "the rest was sent")
    #expect(try await a.open().status().held.isEmpty)
    // The next run of a person tries again.
    cloud.refuse { $0.items = [:] }
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test func `a zone that is refused as a whole does not stop the zone behind it`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let (first, second) = (ZoneID("A"), ZoneID("B"))
    try await a.write("n", zone: first)
    try await a.write("n", zone: second)
    #expect(try await a.run() == nil)
    cloud.refuse {
      $0.refusal = { request, operations in
        request == .modify && operations.contains { $0.name.hasPrefix("a") }
          ? CloudError(.accessDenied, reason: "zone A is closed", httpStatus: 403) : nil
      }
    }
    try await a.open().write { tx in
      for number in 0..<900 { try tx.save(Record(type: "Note", id: RecordID("a\(number)", zone: first))) }
      try tx.save(Record(type: "Note", id: RecordID("b", zone: second)))
    }
    for _ in 0..<2 {
      let error = try #require(try await a.run())
      #expect(error.code == .serverRefused && error.message.contains("zone A is closed"))
      #expect(try await a.unsettled == 900, "the zone behind it was sent")
    }
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `two that are refused alike are held, by name`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      for number in 0..<2 { script.items["bad\(number)"] = [CloudError(.badRequest, reason: "wrong")] }
    }
    for number in 0..<2 { try await a.write("bad\(number)") }
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["bad0", "bad1"])
  }

  @Test func `a server that refuses uploads for ever and answers fetches is asked less and less often`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.refusal = { request, _ in request == .modify ? busy() : nil } }
    try await a.write("n")
    let error = try #require(try await a.run())
    #expect(error.code == .throttled, "owed work that was refused is an error")
    #expect(cloud.count(.modify) <= 6, "1, 2, 4, 8 … seconds in 30")
    let waits = a.clock.sleeps.filter { $0 >= 400 }
    #expect(waits.count >= 3 && (waits.last ?? 0) > waits[0] * 2, "\(waits)")
    #expect(try await a.unsettled == 1)
  }

  @Test func `an item that is throttled for ever is asked less and less often`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.items["n"] = [CloudError(.throttled, reason: "slow down")]
      $0.isForever = true
    }
    try await a.write("n")
    let error = try #require(try await a.run())
    #expect(error.code == .throttled)
    #expect(cloud.count(.modify) <= 6)
  }

  @Test(arguments: [CloudError.Code.zoneBusy, .throttled, .internalError])
  func `a record that is postponed for ever does not keep those of other zones waiting`(
    _ code: CloudError.Code
  ) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.items["n"] = [CloudError(code, reason: "later")]
      $0.isForever = true
    }
    try await a.write("n")
    for _ in 0..<4 { #expect(try await a.run()?.code == .throttled, "owed work that was refused is an error") }
    try await a.write("other", zone: ZoneID("Work"))
    try await a.write("n", ["title": "again"])
    #expect(try await a.run()?.code == .throttled)
    #expect(try await a.unsettled == 1)
    #expect(try await a.open().status().held.isEmpty)
  }

  @Test func `a create that is not found for ever is asked less and less often`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.items["n"] = [CloudError(.notFound, reason: "there is no such record")]
      $0.isForever = true
    }
    try await a.write("n")
    #expect(try await a.run() != nil)
    #expect(cloud.requestCount < 40)
  }

  @Test(arguments: [CloudError.Code.authenticationRequired, .zoneNotFound])
  func `what is wrong with one record alone stops neither deletions nor other zones`(_ code: CloudError.Code)
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["n", "gone"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    cloud.refuse {
      $0.items["n"] = [CloudError(code, reason: "not this one")]
      $0.isForever = true
    }
    try await a.write("n", ["title": "two"])
    try await a.erase("gone")
    for number in 0..<3 {
      _ = try await a.run()
      try await a.write("other\(number)", zone: ZoneID("Work"))
    }
    _ = try await a.run()
    #expect(try await a.unsettled == 1)
  }

  @Test func `a wait that an item names is kept`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.throttled, reason: "slow down", retryAfter: 200)] }
    try await a.write("n")
    let error = try #require(try await a.run())
    #expect(error.code == .throttled && error.retryAfter ?? 0 > 190)
    cloud.forgetSent()
    let again = try await a.run()
    #expect(again?.code == .throttled)
    #expect(cloud.requestCount == 0, "nothing is asked within the wait")
    a.clock.advance(milliseconds: 200_000)
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test func `a wait of the engine's own that is longer does not hide the one that the server named`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse {
      $0.refusal = { _, _ in CloudError(.throttled, reason: "slow down", retryAfter: 9, httpStatus: 429) }
    }
    try await a.write("n")
    for _ in 0..<5 { _ = try await a.run() }
    cloud.forgetSent()
    _ = try await a.run(waitMillisecondsMax: 0)
    #expect(cloud.requestCount == 0, "a person ends the engine's own wait alone")
  }

  @Test func `an error of the transport's own is one failed request`() async throws {
    struct Foreign: Error {}
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests = [.databaseChanges: [Foreign(), CancellationError()], .modify: [Foreign()]] }
    try await a.write("n")
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test func `a thousand records of which a third is refused go in one run`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      for number in stride(from: 0, to: 1_000, by: 3) {
        script.items["n\(number)"] = [CloudError(.badRequest, reason: "record \(number) is too large")]
      }
    }
    try await a.open().write { tx in
      for number in 0..<1_000 { try tx.save(Record(type: "Note", id: RecordID("n\(number)"))) }
    }
    #expect(try await a.run() == nil)
    let status = try await a.open().status()
    #expect(status.held.count == 334 && status.unsettled == 334)
    #expect(cloud.count(.modify) == 5)
  }

  @Test func `64: a conflict for ever backs off, and is held at last`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse {
      $0.items["n"] = [CloudError(.conflict, reason: "changed")]
      $0.isForever = true
    }
    cloud.forgetSent()
    try await a.write("n", ["title": "two"])
    let error = try #require(try await a.run())
    #expect(error.code == .throttled && error.message.contains("'Main/n' was refused"))
    #expect(cloud.count(.modify) <= 8)
    // Nothing ends in silence: in the end it is held, with its cause and a next try.
    for _ in 0..<20 {
      if try await !a.open().status().held.isEmpty { break }
      a.clock.advance(milliseconds: 300_000)
      _ = try await a.run()
    }
    #expect(try await a.open().status().held.map(\.code) == [.conflict])
    cloud.refuse { $0.items = [:] }
    a.clock.advance(milliseconds: 2 * 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test(arguments: [CloudError.Code.zoneNotFound, .atomicError, .notFound])
  func `64: what is held after many refusals names the last of them`(_ code: CloudError.Code) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("other")
    #expect(try await a.run() == nil)
    cloud.refuse {
      $0.items["n"] = [CloudError(code, reason: "the server's own words")]
      $0.isForever = true
    }
    try await a.write("n")
    let first = try #require(try await a.run())
    #expect(first.code == .throttled && first.message.contains("'Main/n' was refused"), "\(first)")
    for _ in 0..<20 {
      if try await !a.open().status().held.isEmpty { break }
      a.clock.advance(milliseconds: 300_000)
      _ = try await a.run()
    }
    #expect(try await a.open().status().held.map(\.code) == [code])
    let words = try #require(try await a.open().status().held.first?.reason)
    #expect(words.hasPrefix("refused ") && words.contains("the server's own words"), "\(words)")
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    a.clock.advance(milliseconds: 2 * 3_600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `what a conflict left to be looked up waits while lookups have to wait, and no step is made in vain`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["x", "y"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    let conflict = CloudError(.conflict, reason: "client oplock error updating record")
    cloud.refuse {
      $0.items["x"] = [conflict]
      $0.requests[.lookup] = [CloudError(.accessDenied, reason: "not now")]
    }
    try await a.write("x", ["n": 1])
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    // Its lookup is due again while the lookup of another record has to wait.
    cloud.refuse {
      $0.items["y"] = [conflict]
      $0.requests[.lookup] = (0..<5).map { _ in CloudError(.internalError, reason: "trouble") }
    }
    cloud.forgetSent()
    try await a.write("y", ["n": 1])
    #expect(try await a.run(waitMillisecondsMax: nil) == nil)
    #expect(cloud.requestCount < 40, "\(cloud.requestCount)")
    #expect(try await a.owesNothing)
  }

  @Test func `a whole refusal that names a wait is kept, whatever the app writes meanwhile`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.requests[.modify] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 315)] }
    try await a.write("n")
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) == 1)
    for number in 0..<3 {
      a.clock.advance(milliseconds: 100_000)
      try await a.write("m\(number)")
      #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)?.code == .serverRefused)
    }
    #expect(cloud.count(.modify) == 1)
    a.clock.advance(milliseconds: 16_000)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a zone that is missing for each record of a request, and there, is asked for later and later`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("other")
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    let missing = CloudError(.zoneNotFound, reason: "no such zone")
    cloud.refuse { $0.items = ["n": [missing, missing, missing], "m": [missing, missing, missing]] }
    for name in ["n", "m"] { try await a.write(name) }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(cloud.count(.modify) == 1)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `one conflict is settled in the same run`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["n"] = [CloudError(.conflict, reason: "changed")] }
    try await a.write("n", ["title": "two"])
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  @Test func `a record that was not found once but is there is sent again`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["n"] = [CloudError(.notFound, reason: "no such record")] }
    try await a.write("n", ["title": "two"])
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a record that is not found is not forgotten while the feed from its beginning waits`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    let wasShown = Mutex(false)
    cloud.refuse { script in
      script.items["n"] = Array(repeating: CloudError(.notFound, reason: "no such record"), count: 2)
      script.page = { _, page in
        // The first page that shows it leads nowhere, so that pages wait and uploads do not.
        if page.changes.isEmpty || wasShown.withLock({ $0 }) { return page }
        wasShown.withLock { $0 = true }
        return ZonePage(changes: page.changes, token: page.token, moreComing: true)
      }
    }
    try await a.write("n", ["title": "two"])
    #expect(try await a.run() == nil)
    #expect(wasShown.withLock { $0 })
    #expect(try await a.owesNothing)
  }

  @Test func `a zone that one request does not find is lost only if the list of zones agrees`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["n", "m"] { try await a.write(name, ["title": "one"]) }
    #expect(try await a.run() == nil)
    cloud.refuse { $0.requests[.modify] = [CloudError(.zoneNotFound, reason: "no such zone")] }
    for name in ["n", "m"] { try await a.write(name, ["title": "two"]) }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    // One item beside a sibling that was saved.
    cloud.refuse { $0.items["n"] = [CloudError(.zoneNotFound, reason: "no such zone")] }
    for name in ["n", "m"] { try await a.write(name, ["title": "three"]) }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `50, 137: a hold whose cause may pass is tried again by itself`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 315)] }
    for name in ["n", "m"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    let status = try await a.open().status()
    #expect(status.held.map(\.id.name) == ["n"] && status.unsettled == 1)
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 1, "not before the time that the server named")
    a.clock.advance(milliseconds: 315_000)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    // The same after a relaunch, and with a clock that was turned back by years.
    cloud.refuse { $0.items["n"] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 315)] }
    try await a.write("n", ["title": "more"])
    #expect(try await a.run() == nil)
    let again = try await a.openRefusing()
    a.clock.setWall(milliseconds: 0)
    _ = again
    #expect(try await a.run() == nil)
    a.clock.advance(milliseconds: 316_000)
    #expect(try await a.run() == nil)
    #expect(try await a.unsettled == 0)
  }

  /// A store of small records of which the event of one is damaged.
  private func damaged(_ count: Int, _ name: String) async throws -> (a: Device, cloud: RefusingCloud) {
    let a = try Fleet().device("a", segmentBytesMax: 8 << 10)
    let store = try await a.open()
    let text = FieldValue.string(String(repeating: "x", count: 600))
    try await store.write { tx in
      for number in 0..<count {
        try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["text": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let lsn = try #require(try store.projections.entry(RecordID(name))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    try await a.close()
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(a.disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    a.disk.poke(file, bytes)
    let cloud = RefusingCloud(a)
    try await a.open(database: cloud)
    return (a, cloud)
  }

  @Test func `18: a damaged event of one record does not stop the others`() async throws {
    let (a, cloud) = try await damaged(60, "n20")
    try await a.sync()
    #expect(Set(cloud.sent.flatMap { $0 }).count == 59 && !cloud.sent.joined().contains("n20"))
    let status = try await a.open().status()
    #expect(status.held.map(\.id.name) == ["n20"] && status.held.map(\.code) == [.damaged] && status.unsettled == 1)
    try await a.sync()
    #expect(try await a.open().status().held.map(\.attempts) == [1])
  }

  @Test func `18: a damaged event that is met while a request is under way is held, whatever the answer`() async throws
  {
    let (a, cloud) = try await damaged(260, "n230")
    cloud.refuse { $0.items["n1"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.sync()
    let status = try await a.open().status()
    #expect(Set(status.held.map(\.id.name)) == ["n1", "n230"])
    #expect(try await a.unsettled == 2)
  }

  @Test func `18: a damaged version of the server's stops neither the deletions nor the others`() async throws {
    let a = try Fleet().device("a", segmentBytesMax: 8 << 10)
    let store = try await a.open()
    let text = FieldValue.string(String(repeating: "x", count: 600))
    for number in 0..<60 { try await a.write("n\(number)", ["text": text]) }
    try await a.exchange()
    for number in 60..<90 { try await a.write("n\(number)", ["text": text]) }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let base = try #require(try store.projections.entry(RecordID("n20"))?.base)
    let place = try #require(log.place(of: base.content.rawValue))
    try await a.close()
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(a.disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    let cloud = RefusingCloud(a)
    try await a.open(database: cloud)
    try await a.open().write { tx in
      var record = Record(type: "Note", id: RecordID("n20"))
      record["text"] = "new"
      try tx.save(record)
    }
    try await a.close()
    a.disk.poke(file, bytes)
    try await a.open(database: cloud)
    try await a.erase("n1")
    for _ in 0..<2 {
      try await a.sync()
      let status = try await a.open().status()
      #expect(status.held.map(\.id.name) == ["n20"] && status.held.map(\.code) == [.damaged])
      #expect(status.unsettled == 1 && status.held.map(\.attempts) == [1])
    }
    #expect(cloud.sent.joined().contains("n1") && !cloud.sent.joined().contains("n20"))
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Pages that are older than what is known` {
  @Test(arguments: [true, false])
  func `a feed that repeats itself is asked again, later and later`(_ isEmpty: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("n")
    try await b.run()
    let cloud = try await a.openRefusing()
    try await a.run()
    try await b.write("n", ["title": "two"])
    try await b.run()
    let token = try await a.open().projections.sync.zones[.main]?.token
    cloud.refuse { script in
      script.page = { _, page in
        guard let token else { return page }
        return ZonePage(changes: isEmpty ? [] : page.changes, token: token, moreComing: true)
      }
    }
    cloud.forgetSent()
    #expect(try await a.run()?.code == .throttled)
    #expect(cloud.count(.zoneChanges) <= 6, "1, 2, 4, 8 … seconds in 30")
    // The first few pages were answered; that it goes on did not change what else is synced.
    try await a.write("other", zone: ZoneID("Work"))
    _ = try await a.run()
    #expect(try await a.unsettled == 0)
    cloud.refuse { $0.page = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.open().record(RecordID("n"))?["title"] == "two")
  }

  @Test func `a list of zones that repeats itself is asked again, later and later`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    for _ in 0..<2 { try await a.run() }
    let token = try await a.open().projections.sync.databaseTokens[.private]
    cloud.refuse { script in
      script.list = { number, page in
        guard let token, number < 3 else { return page }
        return DatabasePage(zones: [], token: token, moreComing: true)
      }
    }
    cloud.forgetSent()
    let before = a.clock.sleeps.count
    #expect(try await a.run() == nil)
    #expect(cloud.count(.databaseChanges) == 3)
    let waits = a.clock.sleeps.dropFirst(before)
    #expect(waits.count == 2 && waits.first ?? 0 >= 400 && waits.last ?? 0 >= 800, "\(waits)")
  }

  @Test func `an old page does not end the doubt about a deletion`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    // A second life: a tombstone does not say which of the two it ended.
    try await a.write("n")
    try await a.run()
    try await a.erase("n")
    try await a.run()
    try await a.open().write { tx in try tx.create(Record(type: "Note", id: RecordID("n"), fields: ["title": "one"])) }
    try await a.run()
    try await b.run()
    try await b.write("n", ["title": "two"])
    try await b.run()
    let old = try await cloud.web.zoneChanges(in: .main, since: nil, limit: 200)
    try await b.erase("n")
    try await b.run()
    cloud.forgetSent()
    cloud.refuse { script in
      script.page = { number, page in
        var page = page
        if number == 1 { page.moreComing = true }
        if number == 2 { page.changes = old.changes }
        return page
      }
    }
    #expect(try await a.run() == nil)
    cloud.refuse { $0.page = nil }
    #expect(try await a.run() == nil)
    let seen = try await a.open().record(RecordID("n"))
    #expect(seen == nil)
    #expect(try await a.open().status().openBlocks == 0)
  }
}

extension `Pages that are older than what is known` {
  @Test func `an old page does not end a life that came after one whose births were never known`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("n")
    try await b.run()
    try await b.erase("n")
    try await b.run()
    // This device hears of the first life that it is over, and of nothing else.
    let cloud = try await a.openRefusing()
    try await a.run()
    let old = try await cloud.web.zoneChanges(in: .main, since: nil, limit: 200)
    #expect(old.changes.count == 1)
    try await b.open().write { tx in try tx.create(Record(type: "Note", id: RecordID("n"), fields: ["title": "second"]))
    }
    try await b.run()
    // The token that it asks with next is newer than that life.
    for number in 0..<2 {
      try await a.run()
      try await b.write("other", ["number": .int64(Int64(number))])
      try await b.run()
    }
    cloud.forgetSent()
    cloud.refuse { script in
      script.page = { number, page in
        number == 1 ? ZonePage(changes: old.changes, token: page.token, moreComing: true) : page
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.open().record(RecordID("n"))?["title"] == "second")
    cloud.refuse { $0.page = nil }
    try await b.write("n", ["title": "edited"])
    try await b.run()
    #expect(try await a.run() == nil)
    #expect(try await a.open().record(RecordID("n"))?["title"] == "edited")
    #expect(try await b.run() == nil)
    #expect(try await b.open().record(RecordID("n"))?["title"] == "edited")
  }

  @Test func `an old page of what another tool wrote does not undo a newer version`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let cloud = try await a.openRefusing()
    try await a.write("other")
    try await a.run()
    // Without a stamp: only the server's time says which version is the older.
    fleet.serverClock.advance(milliseconds: 1_000)
    let written = CloudOperation(.forceUpdate, name: "n", type: "Note", fields: ["title": .some("tool")])
    _ = try await cloud.web.modify([written], in: .main, atomic: false)
    let old = try await cloud.web.zoneChanges(in: .main, since: nil, limit: 200)
    try await a.run()
    for clock in [fleet.serverClock, a.clock] { clock.advance(milliseconds: 2_000) }
    try await a.write("n", ["title": "mine"])
    #expect(try await a.run() == nil)
    try await a.write("other", ["title": "two"])
    cloud.forgetSent()
    cloud.refuse { script in
      script.page = { number, page in
        guard number == 1 else { return page }
        return ZonePage(changes: old.changes, token: page.token, moreComing: true)
      }
    }
    #expect(try await a.run() == nil)
    #expect(cloud.count(.zoneChanges) > 0)
    #expect(try await a.open().record(RecordID("n"))?["title"] == "mine")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What a person does about a hold` {
  @Test func `a released record is sent again, a discarded one shows the server's version, and what waited goes`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("edited", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      for name in ["edited", "new", "parent"] {
        script.items[name] = [CloudError(.badRequest, reason: "wrong: \(name)")]
      }
    }
    try await a.write("edited", ["title": "two"])
    try await a.write("new")
    try await a.write("parent")
    try await a.write("child", ["of": link("parent")])
    _ = try await a.run()
    let store = try await a.open()
    #expect(try store.status().held.map(\.id.name) == ["edited", "new", "parent"])
    await #expect(throws: StrandlineError.self) {
      try await store.releaseHolds(of: [RecordID("parent"), RecordID("child")])
    }
    #expect(try store.status().held.count == 3, "all or none")
    try await store.releaseHolds(of: [RecordID("parent")])
    #expect(try await a.run() == nil)
    #expect(try store.status().held.map(\.id.name) == ["edited", "new"] && store.status().unsettled == 2)
    try await store.discardChanges(of: [RecordID("edited"), RecordID("new")])
    #expect(try store.record(RecordID("edited"))?["title"] == "one" && store.record(RecordID("new")) == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    await #expect(throws: StrandlineError.self) { try await store.discardChanges(of: [RecordID("edited")]) }
  }

  @Test func `a discarded deletion is undone`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "read only")] }
    try await a.erase("n")
    _ = try await a.run()
    let store = try await a.open()
    #expect(try store.record(RecordID("n")) == nil && store.status().held.map(\.code) == [.accessDenied])
    try await store.discardChanges(of: [RecordID("n")])
    #expect(try store.record(RecordID("n"))?["title"] == "one")
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }
}

private final class Call: Sendable {
  let task: Mutex<Task<Void, any Error>?> = Mutex(nil)
}

@Suite(.timeLimit(.minutes(30))) struct `Callers of an engine` {
  @Test func `122: ten calls during a run are one more`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    a.clock.autoAdvance = false
    cloud.refuse { $0.requests[.databaseChanges] = [busy(5)] }
    let engine = try await a.open().engine
    let first = Task { try await engine.sync() }
    while a.clock.sleeperCount == 0 { await Task.yield() }
    let others = (0..<10).map { _ in Task { try await engine.sync() } }
    while engine.callerCount < 11 { await Task.yield() }
    a.clock.advance(milliseconds: 5_000)
    for call in [first] + others { _ = try await call.value }
    // Refused and answered in the first run, answered in the second.
    #expect(cloud.count(.databaseChanges) == 3)
  }

  @Test func `a close ends a wait at once`() async throws {
    let a = try Fleet().device("a")
    a.clock.autoAdvance = false
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.refusal = { _, _ in busy(20) } }
    let engine = try await a.open().engine
    let call = Task { try await engine.sync() }
    while a.clock.sleeperCount == 0 { await Task.yield() }
    try await a.close()
    do {
      _ = try await call.value
      Issue.record("the run succeeded")
    } catch let error as StrandlineError { #expect(error.code == .closed) }
  }

  @Test(arguments: [RefusingCloud.Request.modify, .lookup, .zoneChanges])
  func `what a run had in hand when it was cancelled is sent next`(_ request: RefusingCloud.Request) async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    let call = Call()
    cloud.refuse { script in
      script.items["n"] = [CloudError(.conflict, reason: "changed")]
      script.refusal = { found, _ in
        if found == request { call.task.withLock { $0?.cancel() } }
        return nil
      }
    }
    try await a.write("n", ["title": "two"])
    try await a.write("m")
    let task = Task { _ = try await a.sync() }
    call.task.withLock { $0 = task }
    _ = await task.result
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a request that needs a sign-in ends the run at once, and is not sent again`() async throws {
    for code in [CloudError.Code.authenticationFailed, .authenticationRequired] {
      for request in [RefusingCloud.Request.user, .databaseChanges, .zoneChanges, .modify] {
        let a = try Fleet().device("a")
        let cloud = try await a.openRefusing()
        try await a.write("n")
        #expect(try await a.run() == nil)
        try await a.write("n", ["title": "t"])
        cloud.forgetSent()
        cloud.refuse {
          $0.requests[request] = [CloudError(code, reason: "who is there?")]
          $0.isForever = true
        }
        try await a.close()
        try await a.open(database: cloud)
        let error = try #require(try await a.run())
        #expect(error.code == .needsSignIn && cloud.count(request) == 1, "\(code.rawValue) of \(request)")
        #expect(try await a.open().status().waitMilliseconds == nil)
      }
    }
  }

  @Test func `a sign-in that one record needs does not lose the others`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["n", "m", "o"] { try await a.write(name) }
    cloud.refuse { $0.items["m"] = [CloudError(.authenticationFailed, reason: "who is there?")] }
    let error = try #require(try await a.run())
    #expect(error.code == .needsSignIn)
    #expect(try await a.unsettled == 1)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a caller that is cancelled leaves at once`() async throws {
    let a = try Fleet().device("a")
    a.clock.autoAdvance = false
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.refusal = { _, _ in busy(20) } }
    let engine = try await a.open().engine
    let first = Task { try await engine.sync() }
    while a.clock.sleeperCount == 0 { await Task.yield() }
    let second = Task { try await engine.sync() }
    second.cancel()
    await #expect(throws: CancellationError.self) { try await second.value }
    first.cancel()
    await #expect(throws: CancellationError.self) { try await first.value }
    try await a.close()
  }
}
