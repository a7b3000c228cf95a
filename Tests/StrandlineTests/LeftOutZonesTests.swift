// Goal: a zone that the app leaves out is as if it were not there, for the server, and as it is, for the app; and nothing that is not
// sent is so in silence. Method: two devices, of which one leaves a zone out and takes it in, with a cloud that is counted.

import Strandline
import StrandlineCloudKit
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A zone that is left out` {
  private let data = ZoneID("com.apple.coredata.cloudkit.zone")
  private var datum: RecordID { RecordID("cd", zone: data) }

  /// Opens a device's store so that it syncs these zones.
  @discardableResult
  private func open(_ device: Device, _ zones: SyncedZones) async throws -> RefusingCloud {
    try await device.close()
    let cloud = RefusingCloud(device)
    try await device.open(database: cloud) { $0.zones = zones }
    return cloud
  }

  /// The zones that requests for pages have named.
  private func asked(_ cloud: RefusingCloud) -> Set<ZoneID> {
    Set(cloud.script.withLock { $0.queries }.joined().map(\.zone))
  }

  private func title(_ device: Device, _ id: RecordID) async throws -> FieldValue? {
    try await device.open().record(id)?["title"]
  }

  @Test(arguments: [SyncedZones.only([.main]), .allBut([ZoneID("com.apple.coredata.cloudkit.zone")])])
  func `is not asked about, whatever happens in it, and is fetched from its beginning when it is taken in`(
    _ zones: SyncedZones
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for id in [datum, RecordID("n")] { try await b.write(id.name, ["title": "one"], zone: id.zone) }
    try await b.run()
    var cloud = try await open(a, zones)
    #expect(try await a.run() == nil)
    #expect(asked(cloud) == [.main])
    #expect(try await title(a, RecordID("n")) == "one")
    #expect(try await title(a, datum) == nil)
    let before = try await a.open().status().durableLSN
    for value in ["two", "three", "four"] {
      try await b.write("cd", ["title": .string(value)], zone: data)
      try await b.run()
      #expect(try await a.run() == nil)
    }
    #expect(asked(cloud) == [.main] && cloud.count(.zones) == 0)
    // That it changes again and again is no news: what is written is the token of the list.
    #expect(try await a.open().status().durableLSN.rawValue - before.rawValue <= 3)
    let status = try await a.open().engine.status
    #expect(status.download.zonesLeft == 0 && status.leftOut == [] && status.sentence == "Synced", "\(status)")
    cloud = try await open(a, .all)
    #expect(try await a.run() == nil)
    #expect(try await title(a, datum) == "four")
    #expect(cloud.script.withLock { $0.queries }.joined().first { $0.zone == data }?.token == nil)
  }

  @Test func `takes no write, and no decision about it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("cd", ["title": "one"], zone: data)
    try await b.run()
    try await a.run()
    try await open(a, .allBut([data]))
    let store = try await a.open()
    let record = try #require(try store.record(datum))
    let refusals: [() async throws -> Void] = [
      { try await a.write("cd", ["title": "mine"], zone: data) },
      { try await a.write("new", zone: data) },
      { _ = try await store.write { tx in try tx.create(Record(type: "Note", id: RecordID("new", zone: data))) } },
      { try await a.erase("cd", zone: data) },
      { try await store.engine.resumeZone(data) },
      { try await store.engine.resync(data, from: .server) },
      { try await store.engine.eraseZone(data) },
      { _ = try await store.engine.verify(data) },
      {
        var options = CycleOptions()
        options.zone = data
        _ = try await store.engine.cycle(options)
      },
    ]
    for (number, refused) in refusals.enumerated() {
      let error = await #expect(throws: StrandlineError.self, "\(number)") { try await refused() }
      #expect(error?.code == .foreignZone, "\(number): \(String(describing: error))")
      #expect(error?.message.contains("'SyncConfiguration.zones' leaves zone '\(data)' out") == true, "\(number)")
    }
    // What is here stays readable.
    #expect(try store.record(datum) == record)
    try await a.write("n")
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `keeps what it owes, says so, and sends it when it is taken in`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.write("cd", ["title": "one"], zone: data)
    #expect(try await a.run() == nil)
    try await a.open().write { tx in
      var record = try #require(try tx.record(datum))
      record["title"] = "two"
      try tx.save(record)
    }
    try await a.write("new", zone: ZoneID("Fresh"))
    var cloud = try await open(a, .only([.main]))
    try await a.write("n")
    #expect(try await a.run() == nil)
    #expect(cloud.sent == [["n"]] && cloud.count(.createZone) == 1)
    let store = try await a.open()
    let changes = try store.pendingChanges().changes
    #expect(changes.map(\.id) == [datum, RecordID("new", zone: ZoneID("Fresh"))])
    for change in changes { #expect(change.obstacle == .zoneLeftOut) }
    let status = try store.engine.status
    #expect(status.leftOut == [ZoneID("Fresh"), data])
    #expect(status.sentence == "Changes of 2 zones that this app does not sync stay on this device")
    #expect(status.diagnostics().contains("leftOut: 2\n"))
    cloud = try await open(a, .all)
    #expect(try await a.run() == nil)
    #expect(Set(cloud.sent.joined()) == ["cd", "new"])
    #expect(try await a.owesNothing)
    #expect(try await a.open().engine.status.leftOut == [])
    try await b.run()
    #expect(try await title(b, datum) == "two")
  }

  @Test func `ends the wait of a receipt, whose record waits for one of it`() async throws {
    let a = try Fleet().device("a")
    try await open(a, .all)
    let receipt = try await a.open().write { tx in
      try tx.save(Record(type: "Note", id: datum))
    }
    let position = receipt.position
    try await open(a, .allBut([data]))
    let again = try await a.open().receipt(at: position)
    let error = await #expect(throws: StrandlineError.self) { try await again.uploaded() }
    #expect(error?.code == .foreignZone && error?.message.contains("'\(datum)' is not sent") == true)
  }

  @Test func `is neither lost nor erased, until it is taken in`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.write("cd", ["title": "one"], zone: data)
    try await b.run()
    for _ in 0..<2 { try await a.run() }
    var cloud = try await open(a, .allBut([data]))
    try await b.open().engine.eraseZone(data)
    try await b.run()
    #expect(try await a.run() == nil)
    #expect(cloud.count(.zones) == 0 && cloud.count(.deleteZone) == 0)
    #expect(try await a.open().status().zones.allSatisfy { !$0.isLost })
    #expect(try await title(a, datum) == "one")
    cloud = try await open(a, .all)
    #expect(try await a.run()?.code == .zoneLost)
    #expect(try await a.open().status().zones.contains { $0.id == data && $0.isLost })
    // One that is lost by then asks nobody, and one that is to be ended stays.
    try await open(a, .allBut([data]))
    #expect(try await a.run() == nil)
    #expect(try await a.open().engine.status.halts == [])
    try await open(a, .all)
    try await a.open().engine.resync(data, from: .here)
    #expect(try await a.run() == nil)
    try await a.open().engine.eraseZone(data)
    cloud = try await open(a, .allBut([data]))
    #expect(try await a.run() == nil)
    #expect(cloud.count(.deleteZone) == 0)
  }

  @Test func `is meant however its owner is spelled`() async throws {
    let a = try Fleet().device("a")
    try await a.write("cd", zone: data)
    #expect(try await a.run() == nil)
    let user = try await a.web().user()
    try await open(a, .allBut([ZoneID(data.name, owner: user)]))
    let error = await #expect(throws: StrandlineError.self) { try await a.write("cd", ["title": "x"], zone: data) }
    #expect(error?.code == .foreignZone)
  }
}
