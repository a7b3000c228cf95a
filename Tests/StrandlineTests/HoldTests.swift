// How long a record is set aside that the server refused: a wait of ours ends when a person wants it, one of the server's does not,
// and what was wrong is tried again by another version of the app.

import StrandlineSimulation
import StrandlineSyncProofs
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30))) struct HoldTests {
  @Test func `51: a person has a refused record sent again at once, and the engine by itself does not`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.write("n")
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.count(.modify) == 0)
    #expect(try await a.run() == nil)
    #expect(cloud.count(.modify) == 1)
    #expect(try await a.owesNothing)
  }

  @Test func `a record that is held in both directions is released in both, and then shows the server's version`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("n", ["title": "one"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await b.put("n", ["title": "two"])
    try await b.exchange()
    var unreadable = CloudError(.unexpectedServerResponse, reason: "no key")
    unreadable.raw = Array("{}".utf8)
    let error = unreadable
    cloud.refuse { script in
      script.shown["n"] = .failed(name: "n", error)
      script.items["n"] = [CloudError(.badRequest, reason: "wrong")]
    }
    try await a.write("n", ["title": "mine"])
    #expect(try await a.run() == nil)
    let store = try await a.open()
    #expect(try store.status().held.map(\.isDownload).count == 2)
    cloud.refuse { $0.shown = [:] }
    try await store.releaseHolds(of: store.status().held.map(\.id))
    try await store.discardChanges(of: [RecordID("n")])
    #expect(try await a.run() == nil)
    #expect(try await a.value("n") == "two")
    #expect(try await a.owesNothing)
  }

  @Test func `a person who asks again and again has a refused record sent once each time`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { ($0.items["n"], $0.isForever) = ([CloudError(.accessDenied, reason: "no")], true) }
    try await a.write("n")
    for count in 1...4 {
      #expect(try await a.run() == nil)
      #expect(cloud.count(.modify) == count)
      if count == 2 {
        // After a relaunch too.
        try await a.close()
        try await a.open(database: cloud)
      }
    }
    #expect(try await a.open().status().held.first?.attempts == 4)
  }

  @Test func `the wait that the server named for one record is kept, whatever a person does`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.quotaExceeded, reason: "full", retryAfter: 600)] }
    try await a.write("n")
    #expect(try await a.run() == nil)
    cloud.forgetSent()
    for _ in 0..<2 {
      #expect(try await a.run() == nil)
      #expect(cloud.count(.modify) == 0)
      try await a.close()
      try await a.open(database: cloud)
    }
    a.clock.advance(milliseconds: 600_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.count(.modify) == 1)
    #expect(try await a.owesNothing)
  }

  @Test func `a wait of no time that the server names is none`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "no", retryAfter: 0)] }
    try await a.write("n")
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.first?.retryMilliseconds == 300_000)
    a.clock.advance(milliseconds: 300_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `a record that the app changes while it is refused is not held, and the change is sent`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["n"] = [CloudError(.badRequest, reason: "wrong")]
      script.beforeModify = { number in
        if number == 1 { try await a.write("n", ["title": "right"]) }
        #expect(try await a.open().status().held.isEmpty)
      }
    }
    try await a.write("n", ["title": "wrong"])
    #expect(try await a.run() == nil)
    #expect(cloud.sent == [["n"], ["n"]])
    #expect(try await a.owesNothing)
  }

  @Test func `a record that the app deletes while it is sent is deleted after it, and no lookup is made`() async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.beforeModify = { number in if number == 1 { try await a.erase("n") } }
    }
    for name in ["n", "m"] { try await a.write(name) }
    #expect(try await a.run() == nil)
    #expect(cloud.sent == [["n", "m"], ["n"]] && cloud.count(.lookup) == 0, "\(cloud.sent)")
    #expect(try await a.owesNothing)
    try await b.exchange()
    try await expectAgreement(a, b)
    #expect(try await !b.lives("n"))
  }

  @Test func `a hold that has ended meanwhile is not ended once more`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.write("n")
    #expect(try await a.run() == nil)
    let store = try await a.open()
    let held = try #require(store.projections.held(RecordID("n")))
    let release = AppendStep(events: [
      .event(.released(Released(id: held.id, lsn: held.lsn)), if: .held(held.id, held.lsn))
    ])
    for isHeld in [true, false] {
      let before = store.durableLSN
      _ = try await store.perform(.append(release), cloud)
      #expect((store.durableLSN > before) == isHeld)
      #expect(store.projections.held(held.id) == nil)
    }
    // One of a newer change stays.
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.write("n", ["title": "two"])
    #expect(try await a.run() == nil)
    _ = try await store.perform(.append(release), cloud)
    #expect(store.projections.held(held.id) != nil)
  }

  @Test func `a hold ends on time, though the clock was turned back and a run has failed`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.items["n"] = [CloudError(.accessDenied, reason: "no")] }
    try await a.write("n")
    #expect(try await a.run(isUserInitiated: false) == nil)
    a.clock.advance(milliseconds: 200_000)
    a.clock.setWall(milliseconds: a.clock.wallMilliseconds() - 86_400_000)
    cloud.refuse { $0.requests[.databaseChanges] = [CloudError(.networkError, reason: "away")] }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    a.clock.advance(milliseconds: 10_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.sent == [["n"]])
    a.clock.advance(milliseconds: 90_000)
    #expect(try await a.run(isUserInitiated: false) == nil)
    #expect(cloud.sent == [["n"], ["n"]])
    #expect(try await a.owesNothing)
  }

  @Test func `51: what was refused as wrong is sent once by each version of the app`() async throws {
    let a = try Fleet().device("a")
    let cloud = RefusingCloud(a)
    cloud.refuse { ($0.items["n"], $0.isForever) = ([CloudError(.badRequest, reason: "wrong")], true) }
    func launch(_ version: String) async throws {
      try await a.close()
      try await a.open(database: cloud) { $0.appVersion = version }
      for _ in 0..<2 { #expect(try await a.run() == nil) }
    }
    for (version, count) in [("1", 1), ("1", 1), ("2", 2), ("2", 2), ("", 2), ("1", 3)] {
      if count == 1, cloud.count(.modify) == 0 {
        try await a.open(database: cloud) { $0.appVersion = version }
        try await a.write("n")
      }
      try await launch(version)
      #expect(cloud.count(.modify) == count, "version '\(version)'")
    }
    cloud.refuse { ($0.items, $0.isForever) = ([:], false) }
    try await launch("3")
    #expect(try await a.owesNothing)
  }
}
