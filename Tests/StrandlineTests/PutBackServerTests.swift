// Goal: a comparison with a server that was put back to an older state removes nothing here, and what such a server has lost goes
// up by a resync.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A comparison with a server that was put back` {
  /// A device whose server forgets the newest version of "v", and "w".
  ///
  /// - Parameter editsOld: else it forgets "w" alone.
  private func putBack(editsOld: Bool = true) async throws -> (fleet: Fleet, old: CloudServer, b: Device) {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.put("v", ["title": "one"])
    try await b.put("same", ["title": "one"])
    try await b.exchange()
    let image = fleet.serverDisk.imageAfterCrash(.all)
    if editsOld { try await b.put("v", ["title": "two"]) }
    try await b.put("w", ["title": "new"])
    try await b.exchange()
    let old = try fleet.server(of: image)
    try await b.close()
    try await b.open(through: InProcessTransport(old))
    return (fleet, old, b)
  }

  @Test func `118: removes nothing, and what is here goes up by a resync`() async throws {
    let (fleet, old, b) = try await putBack()
    let error = await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(error?.code == .zoneLost)
    #expect(try await b.mainZone().lostReason == .wentBack)
    #expect(try await b.livingNames() == ["v", "w", "same"])
    #expect(try await b.value("v") == "two")
    try await b.open().engine.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    let late = fleet.device("late")
    try await late.open(through: InProcessTransport(old))
    try await late.exchange()
    #expect(try await late.livingNames() == ["v", "w", "same"])
    #expect(try await late.value("v") == "two")
    try await expectAgreement(b, late)
  }

  @Test func `118: sends by a resync from here also what it took before it was known`() async throws {
    let (fleet, old, b) = try await putBack()
    // The older version of "v" is left out of the list and of lookups at first, so only "w" differs.
    try await b.close()
    let cloud = HidingCloud(b.web(through: InProcessTransport(old)))
    try await b.open(database: cloud)
    let current = try await b.open().projections.withLock { $0.sync.zones[.main]?.token }
    #expect(current != nil)
    cloud.hide("v")
    let found = try await b.open().engine.verify(.main)
    #expect(found.mended == ["w"], "\(found)")
    #expect(try await b.livingNames() == ["v", "same"])
    cloud.hide(nil)
    await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(try await b.mainZone().lostReason == .wentBack)
    try await b.open().engine.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    #expect(try await b.livingNames() == ["v", "w", "same"])
    #expect(try await b.value("w") == "new")
    let late = fleet.device("late")
    try await late.open(through: InProcessTransport(old))
    try await late.exchange()
    #expect(try await late.value("w") == "new")
    #expect(try await late.value("v") == "two")
    try await expectAgreement(b, late)
  }

  /// Nothing that such a server shows is older than what it has acknowledged.
  @Test func `118: takes a new record that alone is missing for a deleted one, and its history has it`() async throws {
    let (_, _, b) = try await putBack(editsOld: false)
    let found = try await b.open().engine.verify(.main)
    #expect(found.mended == ["w"], "\(found)")
    #expect(try await b.livingNames() == ["v", "same"])
    #expect(try await b.mainZone().lostReason == nil)
    let history = try await b.open().history(of: RecordID("w"))
    #expect(history.changes.contains { $0.record?["title"] == "new" }, "\(history)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A resync of what a server lost that was put back` {
  /// "x" was deleted elsewhere, and a sweep has removed it here.
  ///
  /// - Parameter isOlder: the server was put back to a time after that; else to one when "x" was not created.
  @Test(arguments: [false, true]) func `sends nothing again that another device had deleted`(
    _ isOlder: Bool
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await b.openRefusing()
    if isOlder { try await b.put("x", ["title": "one"]) }
    for name in ["same", "v"] { try await b.put(name, ["title": "one"]) }
    try await exchange(b, a)
    var image = fleet.serverDisk.imageAfterCrash(.all)
    if !isOlder { try await b.put("x", ["title": "one"]) }
    if !isOlder { try await b.put("v", ["title": "two"]) }
    try await exchange(b, a)
    try await a.remove("x")
    try await a.exchange()
    if isOlder {
      image = fleet.serverDisk.imageAfterCrash(.all)
      fleet.serverClock.advance(milliseconds: 1_000)
      try await b.put("v", ["title": "two"])
      try await b.exchange(.pushOnly)
    }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
    }
    #expect(try await b.run() == nil)
    #expect(try await b.livingNames() == ["same", "v"])
    if !isOlder {
      try await b.put("same", ["title": "two"])
      try await b.exchange()
    }
    let old = try fleet.server(of: image)
    try await b.close()
    try await b.open(through: InProcessTransport(old))
    await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(try await b.mainZone().lostReason == .wentBack)
    try await b.open().engine.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    #expect(try await b.livingNames() == ["same", "v"])
    #expect(try await b.value("v") == "two")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A server that does not say what it has of an older version that it shows` {
  @Test(arguments: [false, true]) func `has nothing removed before`(_ sweeps: Bool) async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    for name in ["v", "same"] { try await b.put(name, ["title": "one"]) }
    try await b.exchange()
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await b.put("v", ["title": "two"])
    try await b.put("w", ["title": "new"])
    try await b.exchange()
    let old = try fleet.server(of: image)
    try await b.close()
    let cloud = HidingCloud(b.web(through: InProcessTransport(old)))
    cloud.hide("v", fromLists: false)
    try await b.open(database: cloud)
    let c = fleet.device("c")
    try await c.open(through: InProcessTransport(old))
    try await c.exchange()
    for round in 0..<2 {
      if sweeps {
        // The zone has changed, by more than the old server has forgotten.
        for number in 0..<10 { try await c.put("c\(number)", ["title": .string("\(round)")]) }
        try await c.exchange()
        cloud.refuseToken()
        #expect(try await b.run() != nil)
      } else {
        await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
      }
      #expect(try await b.livingNames().isSuperset(of: ["v", "w", "same"]))
    }
    cloud.hide(nil)
    await #expect(throws: StrandlineError.self) { try await b.open().engine.verify(.main) }
    #expect(try await b.mainZone().lostReason == .wentBack)
    #expect(try await b.livingNames().isSuperset(of: ["v", "w", "same"]))
  }
}

/// A cloud that leaves one record's older version out, and answers a lookup of it with the version that it was told to keep.
private final class HidingCloud: ZoneByZoneDatabase {
  let base: any CloudDatabase
  private let hidden = Mutex<String?>(nil)
  private let isListed = Mutex(false)
  private let refusesToken = Mutex(false)

  init(_ base: any CloudDatabase) { self.base = base }

  func hide(_ name: String?, fromLists: Bool = true) {
    hidden.withLock { $0 = name }
    isListed.withLock { $0 = !fromLists }
  }

  /// The next token has expired.
  func refuseToken() { refusesToken.withLock { $0 = true } }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    var found = try await base.lookup(names, in: zone)
    // Says nothing of it, as a busy server does.
    if let name = hidden.withLock({ $0 }), found[name] != nil {
      found[name] = .failed(CloudError(.tryAgainLater, reason: "busy"), serverRecord: nil)
    }
    return found
  }

  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    let isRefused = refusesToken.withLock { refuses in
      defer { if token != nil { refuses = false } }
      return refuses && token != nil
    }
    if isRefused { throw tokenExpired }
    var page = try await base.zoneChanges(in: zone, since: token, limit: limit)
    if isListed.withLock({ $0 }) { return page }
    let name = hidden.withLock { $0 }
    page.changes.removeAll { if case .saved(let record) = $0 { record.name == name } else { false } }
    return page
  }
}
