// Goal: a device whose store was damaged and repaired agrees with all others after it has synced; what it had not sent
// and what survived arrives; no change of another device at the server is undone. Method: a
// history for each place that a hole can have, and random histories with random damage, beside a second device.

import Strandline
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

private let id = RecordID("n")

private func note(_ id: RecordID, _ fields: [String: FieldValue]) -> Record {
  Record(type: "Note", id: id, fields: fields)
}

/// An event, and where its frame lies.
private struct Placed {
  var lsn: LSN
  var event: Event
  var found: LogEvent
}

extension Device {
  fileprivate func save(_ id: RecordID, _ fields: [String: FieldValue]) async throws {
    try await open().write { tx in
      var record = try tx.record(id) ?? note(id, [:])
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  fileprivate func remove(_ id: RecordID) async throws { try await open().write { tx in try tx.delete(id) } }

  fileprivate func read(_ id: RecordID, _ field: String = "title") async throws -> FieldValue? {
    try await open().record(id)?[field]
  }

  /// The next writer has a segment of its own.
  fileprivate func reopen() async throws {
    try await close()
    try await open()
  }

  fileprivate func placed() throws -> [Placed] {
    var result: [Placed] = []
    try LogReader.open(at: "/store", environment: environment.system).poll { found in
      result.append(Placed(lsn: LSN(found.lsn), event: try found.decoded(), found: found))
    }
    return result
  }

  /// Flips a bit in the body of each event that `isHit`; the store is closed first.
  fileprivate func damage(_ isHit: (Placed) -> Bool) async throws -> Int {
    try await close()
    let hit = try placed().filter(isHit)
    for event in hit {
      let path = "/store/" + SegmentName.name(event.found.segmentID)
      var bytes = try #require(disk.peek(path))
      bytes[Int(event.found.offset) + LogFormat.frameHeaderBytes + event.found.body.count / 2] ^= 0x20
      disk.poke(path, bytes)
    }
    return hit.count
  }

  /// Repairs the store and moves the new one to its place.
  @discardableResult
  fileprivate func repair() async throws -> StoreRepair.Plan {
    try await close()
    let plan = try {
      let repair = try StoreRepair(at: "/store", environment: environment)
      try repair.apply(into: "/new")
      return repair.plan
    }()
    try disk.rename("/store", to: "/old")
    try disk.rename("/new", to: "/store")
    #expect(try LogVerifier.verify(at: "/store", environment: environment.system).isSound)
    let store = try await open()
    #expect(store.projections.withLock { $0.outbox.count } == plan.unsettled)
    let broken = try await brokenInvariant()
    #expect(broken == nil)
    // Whatever is shown can be read.
    _ = try await dump()
    return plan
  }

  fileprivate func settle() async throws {
    try await sync(waitMillisecondsMax: nil)
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }
}

private func agree(_ devices: Device..., comment: String = "") async throws {
  for _ in 0..<4 { for device in devices { try await device.settle() } }
  let first = try await devices[0].dump()
  for device in devices {
    #expect(try await device.dump() == first, "\(comment)")
    let status = try await device.open().status()
    #expect(status.unsettled == 0 && status.openBlocks == 0 && status.held.isEmpty, "\(comment)")
  }
}

/// Two devices that hold the record "n", and agree; each writer's events lie in a segment of its own.
private func pair() async throws -> (fleet: Fleet, a: Device, b: Device) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  try await a.save(id, ["title": "first"])
  try await a.settle()
  try await b.settle()
  try await a.reopen()
  return (fleet, a, b)
}

private func isSettlement(_ placed: Placed) -> Bool {
  if case .settled = placed.event { return true }
  return false
}

@Suite(.timeLimit(.minutes(30))) struct RepairTests {
  @Test func `what was acknowledged in a hole is not sent over what came after it`() async throws {
    let (_, a, b) = try await pair()
    try await a.save(id, ["title": "second"])
    try await a.settle()
    try await b.settle()
    try await b.save(id, ["title": "third"])
    try await b.settle()
    try await a.settle()
    #expect(try await a.read(id) == "third")
    #expect(try await a.damage(isSettlement) == 2)
    let plan = try await a.repair()
    #expect(plan.unsettled == 0 && plan.zonesReset.map(\.name) == ["Main"])
    try await agree(a, b)
    #expect(try await b.read(id) == "third")
  }

  @Test func `what was acknowledged in a hole is recognized at the server`() async throws {
    let (fleet, a, b) = try await pair()
    try await a.save(id, ["title": "second"])
    try await a.settle()
    #expect(try await a.damage(isSettlement) == 2)
    #expect(try await a.repair().unsettled > 0)
    let applied = fleet.applications
    try await agree(a, b)
    #expect(fleet.applications == applied)
    #expect(try await b.read(id) == "second")
  }

  @Test func `a deletion that was settled in a hole does not hit the next life of its name`() async throws {
    let (_, a, b) = try await pair()
    try await a.remove(id)
    try await a.settle()
    try await b.settle()
    try await b.open().write { tx in try tx.create(note(id, ["title": "anew"])) }
    try await b.settle()
    try await a.settle()
    #expect(try await a.read(id) == "anew")
    #expect(try await a.damage(isSettlement) == 2)
    try await a.repair()
    try await agree(a, b)
    #expect(try await a.read(id) == "anew")
    #expect(try await b.read(id) == "anew")
  }

  @Test func `an edit that was settled in a hole does not bring back what was deleted after it`() async throws {
    let (_, a, b) = try await pair()
    try await a.save(id, ["title": "second"])
    try await a.settle()
    try await b.settle()
    try await b.remove(id)
    try await b.settle()
    try await a.settle()
    #expect(try await a.damage(isSettlement) == 2)
    try await a.repair()
    try await agree(a, b)
    #expect(try await a.read(id) == nil)
    #expect(try await b.read(id) == nil)
  }

  @Test func `a deletion of which nothing else is left is sent`() async throws {
    let (_, a, b) = try await pair()
    try await a.remove(id)
    try await a.close()
    let segments = a.disk.paths.filter { $0.hasSuffix(".seg") }
    #expect(segments.count == 2)
    try a.disk.unlink(segments[0])
    let plan = try await a.repair()
    #expect(plan.unsettled == 1 && plan.salvage.lost.count == 1 && !plan.isBound)
    #expect(try await a.read(id) == nil)
    try await agree(a, b)
    #expect(try await b.read(id) == nil)
  }

  @Test func `an edit whose base is lost joins what the server has, and the rest is fetched`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let other = RecordID("other")
    try await b.save(id, ["title": "b", "body": "b"])
    try await b.save(other, ["title": "other"])
    try await b.settle()
    try await a.settle()
    try await a.reopen()
    try await a.save(id, ["title": "a"])
    try await b.save(id, ["count": 7])
    try await b.settle()
    try await a.close()
    let segments = a.disk.paths.filter { $0.hasSuffix(".seg") }
    try a.disk.unlink(segments[0])
    try await a.repair()
    #expect(try await a.read(id) == "a")
    #expect(try await a.read(other) == nil)
    try await agree(a, b)
    #expect(try await b.read(id) == "a")
    #expect(try await b.read(id, "body") == "b")
    #expect(try await b.read(id, "count") == 7)
    #expect(try await b.read(other) == "other")
  }

  @Test func `of a transaction with a damaged member the app's own part is kept`() async throws {
    let (_, a, b) = try await pair()
    try await a.open().write { tx in
      try tx.save(note(RecordID("x"), ["title": "x"]))
      try tx.save(note(RecordID("y"), ["title": "y"]))
      try tx.delete(id)
    }
    #expect(
      try await a.damage {
        if case .saved(let saved) = $0.event { return saved.id.name == "y" }
        return false
      } == 1)
    let plan = try await a.repair()
    #expect(plan.salvage.partialTransactions == 1 && plan.eventsLeftBehind == 1)
    try await agree(a, b)
    #expect(try await b.read(RecordID("x")) == "x")
    #expect(try await b.read(RecordID("y")) == nil)
    #expect(try await b.read(id) == nil)
  }

  @Test func `removes no record that the server does not show, once`() async throws {
    let (_, a, b) = try await pair()
    for name in ["kept", "other"] { try await a.save(RecordID(name), ["title": "t"]) }
    try await exchange(a, b)
    let isToken: (Placed) -> Bool = { if case .tokenAdvanced = $0.event { true } else { false } }
    #expect(try await a.damage(isToken) > 0)
    #expect(try await a.repair().unsettled == 0)
    try await b.remove(RecordID("kept"))
    try await b.exchange()
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.hidesDeletions = true
      script.pageMax = 1
      // The decision outlives a token that is refused in the middle.
      script.beforePage = { if $0 == 2 { throw CloudError(.changeTokenExpired, reason: "expired") } }
    }
    try await a.exchange(.pullOnly)
    #expect(try await a.read(RecordID("kept")) == "t")
    #expect(try await a.open().status().zones.allSatisfy { !$0.ghostsPossible && !$0.isLost })
    try await b.save(RecordID("other"), ["title": "u"])
    try await b.exchange()
    cloud.refuse { script in
      script.beforePage = nil
      script.requests[.zoneChanges] = [CloudError(.changeTokenExpired, reason: "expired")]
    }
    try await a.exchange(.pullOnly)
    #expect(try await a.read(RecordID("kept")) == nil)
  }

  @Test func `a store that never synced is not frozen by its repair`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for name in ["x", "y", "z"] { try await a.save(RecordID(name), ["title": .string(name)]) }
    #expect(try await a.damage { $0.event.recordID?.name == "y" } == 1)
    let plan = try await a.repair()
    #expect(plan.zonesReset.isEmpty && plan.unsettled == 2)
    try await agree(a, b)
    #expect(try await b.open().recordIDs().map(\.name) == ["x", "z"])
  }

  @Test func `of the files beside the segments loses nothing and fetches nothing again`() async throws {
    let (fleet, a, b) = try await pair()
    try await a.save(id, ["title": "unsent"])
    try await a.close()
    let writer = try await a.open().core.withLock { $0.writer }
    try await a.close()
    for file in ["MANIFEST", "CONTROL"] { try a.disk.unlink("/store/" + file) }
    let plan = try await a.repair()
    #expect(plan.salvage.lost.isEmpty && plan.zonesReset.isEmpty && plan.unsettled == 1 && plan.isBound)
    // What the old store has sent is unknown, so the new one writes under its own writer ID.
    #expect(try await a.open().core.withLock { $0.writer } != writer)
    let applied = fleet.applications
    try await agree(a, b)
    #expect(fleet.applications == applied + 1)
    #expect(try await b.read(id) == "unsent")
  }

  @Test func `a server's journal is refused, with the reason`() async throws {
    let (fleet, _, _) = try await pair()
    try fleet.server.close()
    let environment = StoreEnvironment(
      SystemEnvironment(fileSystem: fleet.serverDisk, clock: fleet.serverClock, random: SeededRandom(seed: 1)))
    #expect { _ = try StoreRepair(at: "/cloud", environment: environment) } throws: { error in
      (error as? StrandlineError)?.code == .notAStore && "\(error)".contains("journal")
    }
  }

  @Test func `that loses power at any call leaves a whole repaired store or none`() async throws {
    let (_, a, _) = try await pair()
    try await a.save(id, ["title": "second"])
    try await a.settle()
    try await a.save(id, ["title": "unsent"])
    _ = try await a.damage(isSettlement)
    let disk = a.disk.imageAfterCrash(.all)
    disk.keepsHistory = true
    func environment(_ disk: SimulatedDisk) -> StoreEnvironment {
      StoreEnvironment(SystemEnvironment(fileSystem: disk, clock: a.clock, random: SeededRandom(seed: 5)))
    }
    let plan = try {
      let repair = try StoreRepair(at: "/store", environment: environment(disk))
      try repair.apply(into: "/new")
      return repair.plan
    }()
    var born = 0
    for (call, state) in (disk.history + [disk]).enumerated() {
      for loss in [CrashLoss.none, .all] {
        let image = state.imageAfterCrash(loss)
        guard try image.kind(of: "/new") != .absent else { continue }
        born += 1
        let store = try RecordStore.openReadOnlyBlocking(at: "/new", environment: environment(image))
        let sync = store.projections.sync
        #expect(sync.zones.values.allSatisfy { $0.token == nil && $0.isDirty }, "call \(call)")
        #expect(store.projections.withLock { $0.outbox.count } == plan.unsettled, "call \(call)")
        #expect(sync.tenures.count == 3, "call \(call)")
      }
    }
    #expect(born > 0)
  }

  /// One random life of two devices, a random damage, a repair; and what must hold then.
  @Test(arguments: Campaign.seeds(1...60)) func `at random converges, and undoes nothing`(seed: UInt64) async throws {
    let fleet = try Fleet(seed: seed)
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let random = SeededRandom(seed: seed)
    func name() -> RecordID { RecordID("r\(random.below(5))") }
    for step in 0..<50 {
      let device = random.below(3) == 0 ? b : a
      device.clock.advance(milliseconds: Int64(random.below(2_000)))
      fleet.serverClock.advance(milliseconds: Int64(random.below(2_000)))
      let id = name()
      do {
        switch random.below(16) {
        case 0..<7:
          let field = ["title", "body", "count"][Int(random.below(3))]
          try await device.save(id, [field: .string("\(device.name) \(step)")])
        case 7..<9: try await device.remove(id)
        case 9: try await device.open().write { tx in try tx.create(note(id, ["title": .string("anew \(step)")])) }
        case 10..<14: try await device.settle()
        default: try await a.reopen()
        }
      } catch let error as StrandlineError where [.recordWasDeleted, .recordExists].contains(error.code) {
        continue
      }
    }
    try await a.save(RecordID("r9"), ["title": "unsent"])
    try await a.reopen()
    let owed = Set(try await a.open().projections.owed)
    try await a.close()
    let before = try a.placed()

    // The damage: some events, or all of a segment, perhaps with the list of segments.
    var hit: Set<LSN> = []
    let files = a.disk.paths.filter { $0.hasSuffix(".seg") }
    if files.count > 1, random.below(4) == 0 {
      try a.disk.unlink(files[Int(random.below(UInt64(files.count)))])
    } else {
      for _ in 0...random.below(4) { hit.insert(before[Int(random.below(UInt64(before.count)))].lsn) }
      // Lost settlements of one record are the hardest case.
      let name = name()
      if random.below(2) == 0 {
        for placed in before where isSettlement(placed) && placed.event.recordID == name { hit.insert(placed.lsn) }
      }
      _ = try await a.damage { hit.contains($0.lsn) }
    }
    if random.below(4) == 0 { try a.disk.unlink("/store/MANIFEST") }
    if random.below(4) == 0 { try a.disk.unlink("/store/CONTROL") }

    let observer = fleet.device("observer")
    try await observer.settle()
    let atServer = try await versions(observer)
    let plan = try await a.repair()
    let comment = "seed \(seed): \(plan)"
    // Compared by their bytes too: the LSNs of a lost end are unknown, and events of the new store may have them.
    let left = Dictionary(uniqueKeysWithValues: try a.placed().map { ($0.lsn, $0.found.body) })
    let survived = Set(before.filter { left[$0.lsn] == $0.found.body }.map(\.lsn))
    let pending: Set<RecordID> = try await a.open().projections.withLock { state in
      let entries = state.records.changed.compactMapValues { $0 }
      return Set(entries.filter { $0.1.pending?.isDeletion == false }.map(\.0))
    }
    try await agree(a, b, observer, comment: comment)
    let late = fleet.device("late")
    try await agree(late, a, comment: comment)
    let final = try await versions(late)

    // Who deleted what: the app on either device, as far as it is still known.
    var deleted: [RecordID: Set<Birth>] = [:]
    for placed in before + (try b.placed()) {
      if case .deleted(let event) = placed.event { deleted[event.id, default: []].formUnion(event.births) }
    }
    // No record at the server is deleted or set back that no device changed.
    for (id, version) in atServer where version.stamp.births.isDisjoint(with: deleted[id] ?? []) {
      guard let now = final[id] else {
        Issue.record("\(id) is gone, though no device deleted it: \(comment)")
        continue
      }
      for (field, stamp) in version.stamp.fields {
        #expect(now.stamp.fields[field].map { $0 >= stamp } == true, "\(id).\(field) went back: \(comment)")
      }
    }
    // What was not sent and is still there arrives.
    for placed in before where owed.contains(placed.lsn) && survived.contains(placed.lsn) {
      guard let loaded = try LoadedVersion(placed.event, at: placed.lsn), let id = placed.event.recordID,
        loaded.version.stamp.births.isDisjoint(with: deleted[id] ?? [])
      else { continue }
      for (field, since) in loaded.dirty where since == placed.lsn {
        let now = final[id]?.stamp.fields[field]
        #expect(
          now.map { $0 >= loaded.version.stamp.fields[field] ?? $0 } == true, "\(id).\(field) is lost: \(comment)")
      }
    }
    // What was deleted, and is known to be, stays away; but for what the damage made look unsent.
    for placed in before where survived.contains(placed.lsn) {
      guard case .deleted(let event) = placed.event, !pending.contains(event.id), let now = final[event.id] else {
        continue
      }
      #expect(!now.stamp.births.isSubset(of: deleted[event.id] ?? []), "\(event.id) came back: \(comment)")
    }
  }

  private func versions(_ device: Device) async throws -> [RecordID: Version] {
    let store = try await device.open()
    var result: [RecordID: Version] = [:]
    for id in try store.recordIDs() { result[id] = try store.core.withLock { try $0.view(id)?.version } }
    return result
  }
}
