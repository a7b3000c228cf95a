// Goal: what many zones have changed comes in few requests, each zone's page in a transaction of its own, and what is wrong with
// one zone keeps no other one back. Method: two devices and a cloud that is counted, or that answers badly about zones by name.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `Many zones that have changed` {
  private static let zones = (0..<300).map { ZoneID("Zone\($0)") }

  @Test func `are fetched by a handful of requests`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for value in ["one", "two"] {
      for zone in Self.zones { try await b.write("n", ["title": .string(value)], zone: zone) }
      #expect(try await b.run() == nil)
      let before = cloud.count(.zoneChanges)
      #expect(try await a.run() == nil)
      for zone in Self.zones {
        #expect(try await a.open().record(RecordID("n", zone: zone))?["title"] == .string(value))
      }
      if value == "two" { #expect(cloud.count(.zoneChanges) - before <= 6, "\(cloud.count(.zoneChanges) - before)") }
    }
  }

  @Test func `of which one is busy come without it, and it is asked again when the server said`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    let (zones, busy) = (Self.zones.prefix(5), Self.zones[2])
    for value in ["one", "two"] {
      for zone in zones { try await b.write("n", ["title": .string(value)], zone: zone) }
      try await b.run()
      if value == "one" { #expect(try await a.run() == nil) }
    }
    cloud.refuse { $0.zones[busy] = CloudError(.zoneBusy, reason: "later", retryAfter: 600) }
    try await a.write("mine", zone: zones[0])
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(
      error?.code == .throttled && error?.message.contains("zone '\(busy)'") == true, "\(String(describing: error))")
    #expect(cloud.sent == [["mine"]])
    for zone in zones {
      let expected: FieldValue = zone == busy ? "one" : "two"
      #expect(try await a.open().record(RecordID("n", zone: zone))?["title"] == expected)
    }
    // It keeps nothing else back, and no person makes it faster.
    cloud.refuse { $0.queries = [] }
    try await b.write("n", ["title": "three"], zone: zones[0])
    try await b.run()
    _ = try await a.run(waitMillisecondsMax: 0)
    #expect(try await a.open().record(RecordID("n", zone: zones[0]))?["title"] == "three")
    #expect(cloud.script.withLock { $0.queries }.joined().allSatisfy { $0.zone != busy })
    cloud.refuse { $0.zones = [:] }
    a.clock.advance(milliseconds: 600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.open().record(RecordID("n", zone: busy))?["title"] == "two")
  }

  @Test(arguments: [
    CloudError(.zoneBusy, reason: "later", retryAfter: 600), CloudError(.serviceUnavailable, reason: "later"),
    CloudError(.internalError, reason: "later"),
  ])
  func `of which one is refused when it is asked for alone are fetched and sent to without it`(_ refusal: CloudError)
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    let (busy, other) = (Self.zones[0], Self.zones[1])
    for zone in [busy, other] { try await b.write("n", ["title": "one"], zone: zone) }
    try await b.run()
    #expect(try await a.run() == nil)
    try await b.write("n", ["title": "two"], zone: busy)
    try await b.run()
    cloud.refuse { $0.zones[busy] = refusal }
    try await a.write("mine", zone: other)
    let error = try await a.run(waitMillisecondsMax: 0)
    #expect(
      error?.code == .throttled && error?.message.contains("zone '\(busy)'") == true, "\(String(describing: error))")
    #expect(cloud.sent == [["mine"]])
    try await b.write("n", ["title": "two"], zone: other)
    try await b.run()
    try await a.run(waitMillisecondsMax: 0, isUserInitiated: false)
    #expect(try await a.open().record(RecordID("n", zone: other))?["title"] == "two")
    #expect(try await a.open().record(RecordID("n", zone: busy))?["title"] == "one")
    cloud.refuse { $0.zones = [:] }
    a.clock.advance(milliseconds: 600_000)
    #expect(try await a.run() == nil)
    #expect(try await a.open().record(RecordID("n", zone: busy))?["title"] == "two")
  }

  @Test func `all wait when the server is in trouble, though only one is asked for`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    for zone in Self.zones.prefix(2) { try await b.write("n", ["title": "one"], zone: zone) }
    try await b.run()
    #expect(try await a.run() == nil)
    try await b.write("n", ["title": "two"], zone: Self.zones[0])
    try await b.run()
    cloud.refuse { $0.requests[.zoneChanges] = [CloudError(.throttled, reason: "later", retryAfter: 600)] }
    try await a.write("mine", zone: Self.zones[1])
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    cloud.forgetSent()
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .throttled)
    #expect(cloud.requestCount == 0 && cloud.sent == [])
  }

  /// A cloud that takes one zone a request.
  private final class OneZoneCloud: ForwardingDatabase {
    let base: any CloudDatabase
    let asked: Mutex<[Int]> = Mutex([])

    init(_ base: any CloudDatabase) { self.base = base }

    func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
      asked.withLock { $0.append(queries.count) }
      return try await base.zoneChanges(of: Array(queries.prefix(1)))
    }
  }

  @Test func `come from a database that takes one zone a request`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = OneZoneCloud(a.web())
    try await a.open(database: cloud)
    let zones = Self.zones.prefix(5)
    for value in ["one", "two"] {
      for zone in zones { try await b.write("n", ["title": .string(value)], zone: zone) }
      try await b.run()
      cloud.asked.withLock { $0 = [] }
      #expect(try await a.run() == nil)
      for zone in zones {
        #expect(try await a.open().record(RecordID("n", zone: zone))?["title"] == .string(value))
      }
    }
    #expect(cloud.asked.withLock { $0 } == [5, 1, 1, 1, 1])
  }
}
