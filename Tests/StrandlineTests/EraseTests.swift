// Goal: an app that ends a zone ends it at the server, whatever is lost on the way, and nothing that is not sent goes
// with it without a word.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Device {
  fileprivate func state() async throws -> StoreStatus.Zone {
    try #require(try await open().status().zones.first { $0.id == .main })
  }

  fileprivate func lastLSN() async throws -> LSN { try await open().durableLSN }
}

/// Two devices with the same three records.
private func devices() async throws -> (fleet: Fleet, a: Device, b: Device, cloud: RefusingCloud) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  for index in 0..<3 { try await a.put("n\(index)", ["title": .string("t\(index)")]) }
  try await exchange(a, b)
  let cloud = try await a.openRefusing()
  return (fleet, a, b, cloud)
}

/// All tokens given out so far have expired.
private func expired() -> ServerFaults {
  var faults = ServerFaults()
  faults.expireTokens = true
  return faults
}

private func isAtServer(_ zone: ZoneID, _ device: Device) async throws -> Bool {
  try await device.web().zones().contains { $0.name == zone.name }
}

@Suite(.timeLimit(.minutes(30))) struct EraseTests {
  @Test func `an erased zone is gone at the server, readable here, and asks no person`() async throws {
    let (_, a, b, cloud) = try await devices()
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.state().lostReason == .erasing)
    try await a.exchange()
    #expect(try await a.state().lostReason == .erased)
    #expect(try await !isAtServer(.main, a))
    #expect(try await a.dump().count == 3)
    let status = try await a.open().engine.status
    #expect(status.halts.isEmpty && status.sentence == "Synced")
    // The list of changed zones names it: that is the erasure, and no loss.
    try await a.exchange()
    #expect(try await a.state().lostReason == .erased)
    #expect(cloud.count(.deleteZone) == 1)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.state().lostReason == .deleted)
    #expect(try await b.dump().count == 3)
  }

  @Test func `what is not sent is kept, unless it is given up by name`() async throws {
    let (_, a, _, cloud) = try await devices()
    try await a.put("n1", ["title": "edited"])
    let before = try await a.lastLSN()
    let refused = await #expect(throws: StrandlineError.self) { try await a.open().engine.eraseZone(.main) }
    #expect(refused?.code == .notUploaded)
    #expect(refused?.message.contains("n1") == true)
    #expect(try await a.lastLSN() == before)
    #expect(try await a.value("n1") == "edited")
    try await a.open().engine.eraseZone(.main, discardingUnsent: true)
    try await a.exchange()
    #expect(try await a.value("n1") == "t1")
    #expect(try await a.open().status().unsettled == 0)
    #expect(cloud.sent.isEmpty, "an erased zone is sent nothing")
    let history = try await a.open().history(of: RecordID("n1"))
    #expect(history.changes.contains { $0.record?["title"] == "edited" }, "\(history)")
    await #expect(throws: StrandlineError.self) { try await a.open().engine.eraseZone(ZoneID("Never")) }
  }

  @Test func `an erasure that is refused is not asked for with each write, but after a wait, or by a person`()
    async throws
  {
    let (_, a, _, cloud) = try await devices()
    cloud.refuse { script in
      script.refusal = { request, _ in request == .deleteZone ? CloudError(.accessDenied, reason: "not yours") : nil }
    }
    /// Runs as the engine does by itself, and returns how often it asked for the erasure.
    func tries(isUserInitiated: Bool = false) async throws -> Int {
      let before = cloud.count(.deleteZone)
      let error = try await a.run(waitMillisecondsMax: 0, isUserInitiated: isUserInitiated)
      #expect(error?.code == .serverRefused && error?.message.contains("not yours") == true)
      return cloud.count(.deleteZone) - before
    }
    try await a.open().engine.eraseZone(.main)
    #expect(try await tries() == 1)
    for _ in 0..<3 { #expect(try await tries() == 0) }
    #expect(try await a.open().engine.status.halts.map(\.zone) == [.main])
    // Five minutes, then ten.
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 0)
    a.clock.advance(milliseconds: 300_001)
    #expect(try await tries() == 1)
    #expect(try await tries(isUserInitiated: true) == 1)
    // An erasure that the app takes back is not named any more.
    try await a.open().engine.resumeZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    // What it wants then is another erasure, which waits for nothing.
    try await a.open().engine.eraseZone(.main)
    #expect(try await tries() == 1)
    #expect(try await tries() == 0)
    cloud.refuse { $0.refusal = nil }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: true) == nil)
    #expect(try await a.state().lostReason == .erased)
  }

  @Test func `an erasure is not asked for before a wait that the server names is over`() async throws {
    let (_, a, _, cloud) = try await devices()
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.accessDenied, reason: "not now", retryAfter: 3_600)] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
    for minutes in [10, 20, 25] as [Int64] {
      a.clock.advance(milliseconds: minutes * 60_000)
      #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil)
      #expect(cloud.count(.deleteZone) == 1)
    }
    a.clock.advance(milliseconds: 6 * 60_000)
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    #expect(try await a.state().lostReason == .erased)
  }

  @Test func `an answer to an erasure that is none of the server's is followed by a wait as well`() async throws {
    let (_, a, _, cloud) = try await devices()
    cloud.refuse { script in
      script.requests[.deleteZone] = [CloudError(.unexpectedServerResponse, reason: "a page of a hotel")]
      script.isForever = true
    }
    try await a.open().engine.eraseZone(.main)
    for _ in 0..<3 { #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) != nil) }
    #expect(cloud.count(.deleteZone) == 1)
    a.clock.advance(milliseconds: 300_001)
    cloud.refuse { $0.requests = [:] }
    #expect(try await a.run(waitMillisecondsMax: 0, isUserInitiated: false) == nil)
    #expect(try await a.state().lostReason == .erased)
  }

  @Test func `a lost answer, a refusal and a crash have the zone deleted once more`() async throws {
    let (_, a, _, cloud) = try await devices()
    // The server has deleted it, and the answer is lost.
    let web = cloud.web
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.networkError, reason: "lost")] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    try await web.deleteZone(.main)
    #expect(try await a.state().lostReason == .erasing)
    a.crash()
    let again = RefusingCloud(a)
    try await a.open(database: again)
    #expect(try await a.state().lostReason == .erasing)
    try await a.exchange()
    #expect(try await a.state().lostReason == .erased)
    #expect(again.count(.deleteZone) == 0, "the feed says that it is gone")
    #expect(try await a.dump().count == 3)
  }

  @Test(arguments: [false, true]) func `a deletion that did not arrive is sent again to the same zone`(
    _ crashes: Bool
  ) async throws {
    let (_, a, b, cloud) = try await devices()
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.networkError, reason: "lost")] }
    try await a.open().engine.eraseZone(.main)
    // The zone goes on meanwhile; it is the same one.
    try await b.put("n3", ["title": "later"])
    try await b.exchange()
    if crashes {
      #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
      a.crash()
      try await a.open(database: RefusingCloud(a))
    }
    try await a.exchange()
    #expect(try await a.state().lostReason == .erased)
    #expect(try await !isAtServer(.main, b))
  }

  @Test func `a deletion that did not arrive is sent again though the token has expired since`() async throws {
    let (fleet, a, b, cloud) = try await devices()
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.networkError, reason: "lost")] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    // Another device has changed what it can.
    for name in ["n0", "n1"] { try await b.put(name, ["title": "of b"]) }
    try await b.exchange()
    fleet.server.setFaults(expired())
    try await a.exchange()
    #expect(try await a.state().lostReason == .erased)
    #expect(try await !isAtServer(.main, b))
  }

  @Test func `is gone at the server also if the feed begins with an empty page`() async throws {
    let (fleet, a, b, cloud) = try await devices()
    try await a.exchange()
    fleet.server.setFaults(expired())
    cloud.forgetSent()
    cloud.refuse { script in
      script.pageMax = 1
      script.hidden = ["n0"]
    }
    try await a.open().engine.eraseZone(.main)
    try await a.exchange()
    // Its token, which is refused, an empty page, and one with a record that is known here.
    #expect(cloud.count(.zoneChanges) == 3)
    #expect(try await a.state().lostReason == .erased)
    #expect(try await !isAtServer(.main, b))
  }

  @Test func `what the engine learns while the app ends a zone does not undo that`() async throws {
    let (_, a, _, cloud) = try await devices()
    let store = try await a.open()
    try await cloud.web.deleteZone(.main)
    try await a.put("n1", ["title": "edited"])
    // The app ends it while the server is asked for the list of zones.
    cloud.refuse { script in
      script.refusal = { kind, _ in
        if kind == .zones {
          _ = try? store.commitBlocking { core in
            try core.append(.zoneChanged(.lost(.main, .erasing, words: "asked for", policy: "erase")))
          }
        }
        return nil
      }
    }
    _ = try? await a.exchange(.pushOnly)
    #expect(cloud.count(.zones) > 0)
    #expect(try await [.erasing, .erased].contains(a.state().lostReason))
  }

  @Test(arguments: [false, true]) func `a zone that another device made after a lost answer is left alone`(
    _ expires: Bool
  ) async throws {
    let (fleet, a, b, cloud) = try await devices()
    // A token that has expired before says nothing of the zone: it is asked for another one first.
    if expires { fleet.server.setFaults(expired()) }
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.networkError, reason: "lost")] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    #expect(cloud.count(.deleteZone) == 1)
    // It did arrive. The server gives no two records one creation time.
    try await cloud.web.deleteZone(.main)
    fleet.serverClock.advance(milliseconds: 1_000)
    #expect(try await b.run()?.code == .zoneLost)
    try await b.open().engine.resync(.main, from: .here)
    try await b.exchange()
    a.crash()
    let again = RefusingCloud(a)
    try await a.open(database: again)
    for _ in 0..<2 { #expect(try await a.run() == nil) }
    #expect(again.count(.deleteZone) == 0)
    #expect(try await isAtServer(.main, b))
    #expect(try await a.state().lostReason == .erased)
    #expect(try await a.open().engine.status.halts.isEmpty)
    // Nothing of the new zone comes before a person decides, and all of it afterwards; and a new erasure ends the new one.
    try await b.put("new", ["title": "new"])
    try await b.exchange()
    try await a.exchange()
    #expect(try await !a.lives("new"))
    try await a.open().engine.resumeZone(.main)
    try await a.exchange()
    try await expectAgreement(a, b)
    try await a.open().engine.eraseZone(.main)
    try await a.exchange()
    #expect(try await !isAtServer(.main, b))
  }

  @Test func `a zone that was never fetched is told from one that was made since, too`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.put("n", ["title": "t"])
    try await a.exchange(.pushOnly)
    #expect(try await a.state().hasToken == false)
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.networkError, reason: "lost")] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .unreachable)
    try await cloud.web.deleteZone(.main)
    try await b.put("mine", ["title": "t"])
    try await b.exchange()
    try await a.exchange()
    #expect(cloud.count(.deleteZone) == 1)
    #expect(try await isAtServer(.main, b))
    #expect(try await a.state().lostReason == .erased)
  }

  @Test func `a refusal ends the run with that error, and the zone stays to be erased`() async throws {
    let (_, a, _, cloud) = try await devices()
    cloud.refuse { $0.requests[.deleteZone] = [CloudError(.accessDenied, reason: "no")] }
    try await a.open().engine.eraseZone(.main)
    #expect(try await a.run()?.message.contains("ACCESS_DENIED") == true)
    #expect(try await a.state().lostReason == .erasing)
    // The app takes it back: then nothing is deleted.
    try await a.open().engine.resumeZone(.main)
    try await a.exchange()
    #expect(try await !a.state().isLost)
    #expect(try await isAtServer(.main, a))
    #expect(cloud.count(.deleteZone) == 1)
  }

  @Test func `what is written to an erased zone stays here with an error, and resync makes the zone anew`() async throws
  {
    let (_, a, b, _) = try await devices()
    try await a.open().engine.eraseZone(.main)
    try await a.exchange()
    try await a.put("n1", ["title": "later"])
    let error = try #require(try await a.run())
    #expect(error.code == .zoneLost && error.message.contains("creates it again from here"), "\(error)")
    #expect(try await !isAtServer(.main, a))
    try await a.open().engine.resync(.main, from: .here)
    try await a.exchange()
    try await b.open().engine.resumeZone(.main)
    try await exchange(b, a)
    #expect(try await b.value("n1") == "later")
    try await expectAgreement(a, b)
  }

  @Test func `resync from the server removes here what the server has lost`() async throws {
    let (_, a, b, _) = try await devices()
    try await a.open().engine.eraseZone(.main)
    try await a.exchange()
    for device in [a, b] {
      if device === b { #expect(try await b.run()?.code == .zoneLost) }
      try await device.open().engine.resync(.main, from: .server)
      try await device.exchange()
      #expect(try await device.dump() == [])
      let zone = try await device.state()
      #expect(zone.lostReason == .erased && !zone.ghostsPossible)
      #expect(try await device.open().engine.status.halts.isEmpty)
    }
    // Another device makes a zone of that name: this one is asked before it takes part.
    try await a.open().engine.resync(.main, from: .here)
    try await a.put("new", ["title": "new"])
    try await a.exchange()
    try await b.exchange()
    #expect(try await b.dump() == [])
    try await b.open().engine.resumeZone(.main)
    try await b.exchange()
    #expect(try await b.value("new") == "new")
  }
}
