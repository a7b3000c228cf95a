// Goal: a server that goes on answering badly about one record, or about one zone, is asked less and less often, keeps nothing
// else back, and what it refuses is held by name with its words. Method: a cloud that refuses what a test names, runs of a person
// and of the engine in simulated time, and counts of requests.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Device {
  /// Makes runs as the engine by itself does, for so many minutes.
  fileprivate func runByItself(minutes: Int64) async throws {
    let end = clock.monotonicNanoseconds() + UInt64(minutes) * 60_000_000_000
    while clock.monotonicNanoseconds() < end {
      try await run(waitMillisecondsMax: 0, isUserInitiated: false)
      let due = try await open().engine.nextDue?.milliseconds ?? 60_000
      clock.advance(milliseconds: max(1, min(60_000, due)))
    }
  }

  fileprivate func held(_ name: String) async throws -> HeldRecord? {
    try await open().status().held.first { $0.id.name == name }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A record that the server has and does not show` {
  @Test(arguments: [CloudError.Code.internalError, .accessDenied, .unexpectedServerResponse])
  func `is asked for later and later, and held at the ninth refusal in the server's words`(_ code: CloudError.Code)
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["n"] = [CloudError(.exists, reason: "it is there")]
      script.isForever = true
      script.shown["n"] = .failed(name: "n", CloudError(code, reason: "not this one"))
    }
    try await a.write("n")
    try await a.write("other")
    try await a.runByItself(minutes: 14)
    let held = try #require(await a.held("n"))
    #expect(held.code == .exists, "\(held)")
    #expect(held.reason.contains("it is there") && held.reason.contains("not this one"), "\(held)")
    #expect(held.reason.contains("asked for 9 times"), "\(held)")
    #expect((9...11).contains(cloud.sent.joined().count { $0 == "n" }), "\(cloud.sent)")
    #expect(cloud.count(.lookup) <= 11)
    cloud.forgetSent()
    try await a.runByItself(minutes: 60)
    #expect(cloud.sent.count <= 4, "once a hold: \(cloud.sent)")
    cloud.refuse { ($0.items, $0.shown) = ([:], [:]) }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `is held as well where no request may ask for it`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["n"] = [CloudError(.exists, reason: "it is there")]
      script.requests[.lookup] = [CloudError(.accessDenied, reason: "no lookups")]
      script.isForever = true
    }
    try await a.write("n")
    try await a.runByItself(minutes: 30)
    let held = try #require(await a.held("n"))
    #expect(held.code == .exists && held.reason.contains("no lookups"), "\(held)")
    #expect(cloud.sent.joined().count { $0 == "n" } <= 12, "\(cloud.sent.count)")
  }

  @Test func `is held after an edit too, of which no other request is made than lookups`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await b.put("n", ["title": "two"])
    try await b.exchange()
    cloud.refuse { script in
      script.shown["n"] = .failed(name: "n", CloudError(.internalError, reason: "not this one"))
      script.hidden = ["n"]
    }
    try await a.write("n", ["text": "mine"])
    _ = try? await a.sync(.pushOnly, waitMillisecondsMax: 0)
    try await a.runByItself(minutes: 14)
    let held = try #require(await a.held("n"))
    #expect(held.code == .conflict && held.reason.contains("not this one"), "\(held)")
    cloud.refuse { ($0.shown, $0.hidden) = ([:], []) }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    #expect(try await a.value("n") == "two")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A record that the server wants later` {
  @Test func `waits the time that the server names, and nothing else does`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.tryAgainLater, reason: "later", retryAfter: 3_600)] }
    for name in ["n", "m"] { try await a.write(name) }
    _ = try await a.run(waitMillisecondsMax: 0)
    #expect(try await a.unsettled == 1)
    try await a.write("more")
    cloud.forgetSent()
    _ = try await a.run(waitMillisecondsMax: 0)
    #expect(cloud.sent == [["more"]] && cloud.count(.databaseChanges) == 1)
    a.clock.advance(milliseconds: 3_500_000)
    _ = try await a.run(waitMillisecondsMax: 0)
    #expect(cloud.sent == [["more"]], "no person ends a wait of the server's")
    a.clock.advance(milliseconds: 110_000)
    #expect(try await a.run(waitMillisecondsMax: 0) == nil)
    #expect(cloud.sent == [["more"], ["n"]])
    #expect(try await a.owesNothing)
  }

  @Test func `keeps no request back when it is alone the next time`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["n"] = [CloudError(.tryAgainLater, reason: "later", retryAfter: 600)]
      script.isForever = true
    }
    for name in ["n", "m"] { try await a.write(name) }
    try await a.runByItself(minutes: 60)
    #expect(cloud.count(.databaseChanges) >= 55, "\(cloud.count(.databaseChanges))")
    #expect((6...8).contains(cloud.sent.count), "\(cloud.sent.count)")
  }
}

/// A cloud whose feed of the main zone, or whose list of zones, says without end that more is to come.
private final class CirclingCloud: ZoneByZoneDatabase {
  enum Circle: CaseIterable { case alternating, three, empty, emptyAlternating }

  let cloud: RefusingCloud
  /// What the feed does; nil: what the server does.
  let circle: Mutex<Circle?> = Mutex(nil)
  let circlesList = Mutex(false)
  let pages = Mutex(0)

  init(_ cloud: RefusingCloud) { self.cloud = cloud }

  var base: any CloudDatabase { cloud }

  private func next() -> Int {
    pages.withLock { pages in
      pages += 1
      return pages
    }
  }

  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    guard zone == .main, let circle = circle.withLock({ $0 }) else {
      return try await cloud.zoneChanges(in: zone, since: token, limit: limit)
    }
    let all = try await cloud.web.zoneChanges(in: zone, since: nil, limit: limit)
    let number = next()
    if number > 2_000 { throw CloudError(.authenticationFailed, reason: "asked without end") }
    let (length, isEmpty) =
      switch circle {
      case .alternating: (2, false)
      case .three: (3, false)
      case .empty: (Int.max, true)
      case .emptyAlternating: (2, true)
      }
    return ZonePage(
      changes: isEmpty ? [] : all.changes, token: ChangeToken(rawValue: "t\(number % length)"), moreComing: true)
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    guard circlesList.withLock({ $0 }) else { return try await cloud.databaseChanges(since: token, limit: limit) }
    let all = try await cloud.web.databaseChanges(since: nil, limit: limit)
    let number = next()
    if number > 2_000 { throw CloudError(.authenticationFailed, reason: "asked without end") }
    return DatabasePage(zones: all.zones, token: ChangeToken(rawValue: "t\(number % 2)"), moreComing: true)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A feed that does not end` {
  @Test(arguments: CirclingCloud.Circle.allCases)
  fileprivate func `is asked again later and later, and keeps no other zone and no upload back`(
    _ circle: CirclingCloud.Circle
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let work = ZoneID("Work")
    for zone in [.main, work] { try await b.write("n", ["title": "one"], zone: zone) }
    try await b.run()
    let circling = CirclingCloud(RefusingCloud(a))
    let (cloud, pages) = (circling.cloud, { circling.pages.withLock { $0 } })
    try await a.open(database: circling)
    try await a.run()
    for zone in [.main, work] { try await b.write("n", ["title": "two"], zone: zone) }
    try await b.run()
    circling.circle.withLock { $0 = circle }
    try await a.write("mine", zone: work)
    let error = try await a.run()
    #expect(error?.code == .throttled, "\(String(describing: error))")
    #expect(error?.message.contains("more is to come") == true, "\(String(describing: error))")
    #expect(pages() <= (circle == .empty ? 212 : 12), "\(pages())")
    #expect(cloud.sent.joined().contains("mine"))
    #expect(try await a.open().record(RecordID("n", zone: work))?["title"] == "two")
    // By itself it is asked more and more rarely, and the others go on meanwhile.
    let before = pages()
    try await a.runByItself(minutes: 60)
    #expect((1...15).contains(pages() - before), "\(pages() - before)")
    try await b.write("n", ["title": "three"], zone: work)
    try await b.run()
    try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
    #expect(try await a.open().record(RecordID("n", zone: work))?["title"] == "three")
    circling.circle.withLock { $0 = nil }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == "two")
  }

  @Test func `of zones keeps none of them from being fetched`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("n", ["title": "one"])
    try await b.run()
    let circling = CirclingCloud(RefusingCloud(a))
    circling.circlesList.withLock { $0 = true }
    try await a.open(database: circling)
    try await a.write("mine")
    let error = try await a.run()
    #expect(error?.code == .throttled, "\(String(describing: error))")
    #expect(circling.pages.withLock { $0 } <= 12, "\(circling.pages.withLock { $0 })")
    #expect(try await a.value("n") == "one")
    #expect(circling.cloud.sent.joined().contains("mine"))
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A token that the server refuses under another code` {
  @Test(arguments: ["SYNC_TOKEN_EXPIRED", "CHANGE_TOKEN_EXPIRED", "TOKEN_HAS_EXPIRED"])
  func `is left, and the feed is read from its beginning`(_ code: String) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    try await b.run()
    try await b.write("n", ["title": "two"])
    try await b.run()
    cloud.refuse { $0.requests[.zoneChanges] = [CloudError(CloudError.Code(rawValue: code), reason: "too old")] }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == "two")
    try await b.write("n", ["title": "three"])
    try await b.run()
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(CloudError.Code(rawValue: code), reason: "too old")] }
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == "three")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A zone that the list names as gone` {
  /// A device with a record of a zone, and a list that names the zone as gone.
  private func listed(_ loss: ZoneLoss, isThere: Bool) async throws -> (a: Device, cloud: RefusingCloud) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    try await b.run()
    if isThere {
      try await b.write("n", ["title": "two"])
      try await b.run()
    } else {
      try await b.open().engine.eraseZone(.main)
      try await b.run()
    }
    cloud.refuse { script in
      script.list = { _, page in
        DatabasePage(
          zones: [DatabasePage.Zone(id: .main, loss: loss)], token: page.token, moreComing: page.moreComing)
      }
    }
    cloud.forgetSent()
    return (a, cloud)
  }

  @Test(arguments: [ZoneLoss.deleted, .purged])
  func `is lost for that reason if the list of all zones agrees`(_ loss: ZoneLoss) async throws {
    let (a, cloud) = try await listed(loss, isThere: false)
    #expect(try await a.run()?.code == .zoneLost)
    #expect(cloud.count(.zones) == 1)
    #expect(try await a.open().status().zones.first { $0.id == .main }?.lostReason == loss)
    #expect(try await a.value("n") == "one")
  }

  @Test func `is not if it is there, and is fetched`() async throws {
    let (a, cloud) = try await listed(.deleted, isThere: true)
    #expect(try await a.run() == nil)
    #expect(cloud.count(.zones) == 1)
    #expect(try await a.value("n") == "two")
    #expect(try await a.owesNothing)
  }

  @Test func `is asked for again after a crash before the answer`() async throws {
    let (a, cloud) = try await listed(.deleted, isThere: false)
    cloud.refuse { $0.requests[.zones] = [CloudError(.networkError, reason: "no answer")] }
    #expect(try await a.run(waitMillisecondsMax: 0) != nil)
    #expect(try await a.open().status().zones.allSatisfy { !$0.isLost })
    a.crash()
    _ = try await a.openRefusing()
    #expect(try await a.run()?.code == .zoneLost)
  }

  @Test func `is forgotten in silence if nothing of it is here`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("n")
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: ZoneID("Old")))
        return page
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: ZoneID("Old"), loss: .deleted))
        return page
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A child whose parent's edit is over quota` {
  @Test func `is held in the server's words, asked for no more, and goes with its parent`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("p", ["title": "one"])
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.items["p"] = [CloudError(.quotaExceeded, reason: "full")]
      script.items["c"] = [CloudError(.validatingReferenceError, reason: "the parent was not saved")]
      script.isForever = true
    }
    try await a.write("p", ["title": "two"])
    try await a.write("c", ["title": "child"], parent: "p")
    cloud.forgetSent()
    #expect(try await a.run() == nil)
    let held = try #require(await a.held("c"))
    #expect(held.code == .validatingReferenceError && held.reason == "the parent was not saved", "\(held)")
    #expect(cloud.sent.joined().count { $0 == "c" } == 1, "\(cloud.sent)")
    cloud.forgetSent()
    try await a.runByItself(minutes: 60)
    #expect(cloud.sent.joined().count { $0 == "c" } <= 5, "\(cloud.sent)")
    cloud.refuse { $0.items = [:] }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `An update that the server does not find, though its feed shows the record` {
  @Test func `has its zone fetched from the beginning once, and is held`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    for name in ["n", "m"] { try await a.write(name, ["title": "one"]) }
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    let fromStart = Mutex(0)
    cloud.refuse { script in
      script.items["n"] = [CloudError(.notFound, reason: "no such record")]
      script.isForever = true
      script.page = { _, page in
        // Only the feed from its beginning shows the other record.
        if page.changes.contains(where: { $0.isOf("m") }) { fromStart.withLock { $0 += 1 } }
        return page
      }
    }
    try await a.write("n", ["title": "two"])
    try await a.runByItself(minutes: 5)
    let held = try #require(await a.held("n"))
    #expect(held.code == .notFound && held.reason.contains("no such record"), "\(held)")
    #expect(fromStart.withLock { $0 } == 1, "\(fromStart.withLock { $0 })")
    #expect(cloud.sent.joined().count { $0 == "n" } <= 10)
    cloud.refuse { $0.items = [:] }
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }
}

extension ZoneChange {
  /// Whether it shows this record.
  fileprivate func isOf(_ name: String) -> Bool {
    if case .saved(let record) = self { record.name == name } else { false }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A request that is refused for quota` {
  /// A device whose saves are refused whole.
  private func full() async throws -> (a: Device, cloud: RefusingCloud) {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("old")
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.refusal = { request, operations in
        request == .modify && operations.contains { $0.kind != .delete }
          ? CloudError(.quotaExceeded, reason: "the storage is full") : nil
      }
    }
    for name in ["n", "m"] { try await a.write(name) }
    cloud.forgetSent()
    return (a, cloud)
  }

  @Test func `is found by every verb, also after a relaunch, with the server's words`() async throws {
    let (a, _) = try await full()
    #expect(try await a.run()?.code == .serverRefused)
    for _ in 0..<2 {
      let store = try await a.open()
      let held = try store.status().held
      #expect(held.map(\.id.name) == ["m", "n"] && held.allSatisfy { $0.code == .quotaExceeded }, "\(held)")
      #expect(held.allSatisfy { $0.reason == "the storage is full" && $0.retryMilliseconds ?? 0 > 0 }, "\(held)")
      for change in try store.pendingChanges().changes {
        guard case .held(let held)? = change.obstacle else {
          Issue.record("\(change)")
          continue
        }
        #expect(held.reason == "the storage is full")
      }
      _ = try await a.openRefusing()
    }
  }

  @Test func `is made no more often for it, and what is held goes when the halt ends`() async throws {
    let (a, cloud) = try await full()
    try await a.runByItself(minutes: 60)
    // At 0, 5, 15 and 35 minutes.
    #expect(cloud.sent.count == 4, "\(cloud.sent)")
    // A deletion shortens the wait of them all, and not only of the halt.
    cloud.refuse { $0.refusal = nil }
    try await a.erase("old")
    try await a.runByItself(minutes: 6)
    #expect(try await a.owesNothing)
  }

  @Test func `is tried again after a relaunch when the time of its holds is over`() async throws {
    let (a, _) = try await full()
    #expect(try await a.run(isUserInitiated: false)?.code == .serverRefused)
    let cloud = try await a.openRefusing()
    try await a.runByItself(minutes: 4)
    #expect(cloud.count(.modify) == 0)
    a.clock.advance(milliseconds: 120_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(try await a.owesNothing)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A type that the server refuses` {
  /// A device with three records of a type that the server refuses alike.
  private func refused() async throws -> (a: Device, cloud: RefusingCloud) {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("old", type: "Kind")
    #expect(try await a.run() == nil)
    for number in 0..<3 { try await a.write("bad\(number)", type: "Kind") }
    cloud.refuse { script in
      for number in 0..<3 { script.items["bad\(number)"] = [CloudError(.badRequest, reason: "no such field")] }
      script.isForever = true
    }
    #expect(try await a.run(isUserInitiated: false)?.message.contains("every 'Kind'") == true)
    cloud.forgetSent()
    return (a, cloud)
  }

  @Test func `lets a good record through within minutes, and the bad ones are then held by name`() async throws {
    let (a, cloud) = try await refused()
    try await a.write("good", type: "Kind")
    try await a.runByItself(minutes: 6)
    #expect(cloud.sent.first == ["good"], "\(cloud.sent)")
    let status = try await a.open().status()
    #expect(status.held.map(\.id.name) == ["bad0", "bad1", "bad2"] && status.unsettled == 3, "\(status.held)")
    cloud.forgetSent()
    for number in 0..<3 { try await a.write("good\(number)", type: "Kind") }
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(try await a.unsettled == 3)
  }

  @Test func `does so at once for a person, however many bad ones came before`() async throws {
    let (a, cloud) = try await refused()
    try await a.write("good", type: "Kind")
    #expect(try await a.run() == nil)
    #expect(cloud.sent.first == ["good"], "\(cloud.sent)")
    #expect(try await a.unsettled == 3)
  }

  @Test func `is halted before a batch of it leaves that was made ready meanwhile`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.open().write { tx in
      for number in 0..<450 { try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["v": 1])) }
    }
    cloud.refuse { script in
      for number in 0..<450 { script.items["n\(number)"] = [CloudError(.accessDenied, reason: "not this type")] }
      script.isForever = true
    }
    #expect(try await a.run()?.code == .serverRefused)
    #expect(cloud.sent.map(\.count) == [200])
  }

  @Test func `keeps no deletion back`() async throws {
    let (a, cloud) = try await refused()
    try await a.erase("old")
    #expect(try await a.run(isUserInitiated: false)?.message.contains("every 'Kind'") == true)
    #expect(cloud.sent == [["old"]])
  }

  @Test func `is asked for one record now and then, and all of it goes when one is taken`() async throws {
    let (a, cloud) = try await refused()
    try await a.runByItself(minutes: 120)
    #expect((4...6).contains(cloud.sent.count), "\(cloud.sent)")
    #expect(cloud.sent.allSatisfy { $0.count == 1 }, "\(cloud.sent)")
    cloud.refuse { $0.items = [:] }
    cloud.forgetSent()
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [1, 2], "\(cloud.sent)")
    #expect(try await a.owesNothing)
  }

  @Test func `is tried with all records of a circle that need each other, and with no more`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let circles = [["a", "b", "c"], ["d", "e", "f"]]
    try await a.open().write { tx in
      for circle in circles {
        for (place, name) in circle.enumerated() {
          let next = link(circle[(place + 1) % circle.count])
          try tx.save(Record(type: "Kind", id: RecordID(name), fields: ["next": next]))
        }
      }
    }
    cloud.refuse { script in
      for name in circles.joined() { script.items[name] = [CloudError(.badRequest, reason: "no such field")] }
      script.isForever = true
    }
    #expect(try await a.run(isUserInitiated: false)?.message.contains("every 'Kind'") == true)
    cloud.forgetSent()
    try await a.runByItself(minutes: 60)
    #expect((2...4).contains(cloud.sent.count), "\(cloud.sent)")
    #expect(cloud.sent.allSatisfy { circles.contains($0.sorted()) }, "\(cloud.sent)")
    cloud.refuse { $0.items = [:] }
    cloud.forgetSent()
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [3, 3], "\(cloud.sent)")
    #expect(try await a.owesNothing)
  }

  @Test func `is tried with a record that was refused, if an edit may have mended it`() async throws {
    let (a, cloud) = try await refused()
    cloud.refuse { $0.items["bad1"] = [] }
    try await a.write("bad1", ["title": "mended"], type: "Kind")
    try await a.runByItself(minutes: 6)
    #expect(cloud.sent.first == ["bad1"], "\(cloud.sent)")
    #expect(try await a.open().status().held.map(\.id.name) == ["bad0", "bad2"])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What concerns a part` {
  /// How often the list of changed zones is asked for in an hour of automatic runs, and the sentence then.
  private func lists(
    _ refuse: @Sendable (inout RefusingCloud.Script) -> Void
  ) async throws -> (count: Int, sentence: String) {
    let a = try Fleet().device("a")
    let cloud = RefusingCloud(a)
    try await a.open(database: cloud)
    try await a.write("old")
    #expect(try await a.run() == nil)
    cloud.refuse(refuse)
    try await a.write("n")
    try await a.close()
    let (clock, times) = (a.clock, Times())
    cloud.refuse { script in
      script.list = { _, page in
        times.add(clock.wallMilliseconds())
        return page
      }
    }
    try await a.open(database: cloud) { $0.isAutomatic = true }
    let end = clock.wallMilliseconds() + 3_600_000
    let engine = try await a.open().engine
    var sentence = ""
    for await status in engine.statuses {
      if status.phase != .fetching, status.phase != .uploading { sentence = status.sentence }
      if clock.wallMilliseconds() >= end { break }
    }
    try await a.close()
    return (times.count(before: end), sentence)
  }

  private final class Times: Sendable {
    private let all: Mutex<[Int64]> = Mutex([])
    func add(_ time: Int64) { all.withLock { $0.append(time) } }
    func count(before end: Int64) -> Int { all.withLock { $0.count { $0 < end } } }
  }

  @Test func `one record that is wanted later for ever, delays no poll, and is named`() async throws {
    let (count, sentence) = try await lists { script in
      script.items["n"] = [CloudError(.tryAgainLater, reason: "later")]
      script.isForever = true
    }
    #expect(count >= 60, "\(count)")
    #expect(sentence.hasPrefix("1 change waits: the server wants it later"), "\(sentence)")
  }

  @Test func `a zone that may not be written, delays no poll, and is named`() async throws {
    let (count, sentence) = try await lists { script in
      script.refusal = { request, _ in request == .modify ? CloudError(.accessDenied, reason: "read only") : nil }
    }
    #expect(count >= 60, "\(count)")
    #expect(sentence.hasPrefix("1 zone not uploaded until"), "\(sentence)")
  }
}
