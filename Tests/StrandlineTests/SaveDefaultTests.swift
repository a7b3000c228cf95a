// Goal: what an app saves as a default gives way to everything that a user has done, on every device and in every order, is at the
// server once, and tells no conflict. Method: the store alone, case by case; then two devices, with each thing that a default
// can meet; then fifteen defaults on three devices in all orders, with edits, deletions and power cuts between the syncs.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private struct Settings: SyncRecord, Equatable {
  var id = "settings"
  var theme = "light"
  var size: Int?
}

private let id = RecordID("settings")

extension Device {
  /// What an app does at each launch.
  @discardableResult
  fileprivate func seed(_ theme: String = "light", _ name: String = "settings") async throws -> Receipt {
    try await open().write { try $0.saveDefault(Settings(id: name, theme: theme)) }
  }

  fileprivate func edit(_ theme: String, _ name: String = "settings") async throws {
    try await open().update(Settings.self, id: name) { $0.theme = theme }
  }

  fileprivate func theme(_ name: String = "settings") async throws -> String? {
    try await open().fetch(Settings.self, id: name)?.theme
  }

  /// Opens the store with a cloud that has forgotten what was deleted, as it is for a new device.
  fileprivate func openForgetful() async throws -> RefusingCloud {
    let cloud = try await openRefusing()
    cloud.refuse { $0.hidesDeletions = true }
    return cloud
  }

  fileprivate func conflicts(_ name: String = "settings") async throws -> Int {
    try await open().conflicts(of: RecordID(name)).count
  }
}

@Suite(.timeLimit(.minutes(30)))
struct SaveDefaultTests {
  private func open(_ disk: SimulatedDisk = SimulatedDisk()) throws -> RecordStore {
    try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: disk, seed: 1))
  }

  private func stamp(_ store: RecordStore) throws -> Stamp {
    let loaded = try store.core.withLock { core in try core.view(id) }
    return try #require(loaded).version.stamp
  }

  @Test func `a default is saved where there is nothing, and an update stamps its own fields alone`() async throws {
    let store = try open()
    #expect(try await store.write { try $0.saveDefault(Settings(size: 3)) }.value)
    #expect(try store.fetch(Settings.self, id: "settings") == Settings(size: 3))
    #expect(try stamp(store).births == [.ofDefaults])
    #expect(try stamp(store).fields == ["theme": .ofDefaults, "size": .ofDefaults])
    // Another default, also with other values.
    #expect(try await !store.write { try $0.saveDefault(Settings(theme: "dark")) }.value)
    #expect(try await !store.write { try $0.saveDefault(Record(type: "Settings", id: id)) }.value)
    #expect(try store.fetch(Settings.self, id: "settings") == Settings(size: 3))
    try await store.update(Settings.self, id: "settings") { $0.theme = "dark" }
    let edited = try stamp(store)
    #expect(edited.fields["size"] == .ofDefaults)
    #expect(edited.fields["theme"].map { $0 > .ofDefaults } == true)
    // It is the user's record now.
    #expect(edited.births.count == 2 && edited.births.contains(.ofDefaults))
    try await store.update(Settings.self, id: "settings") { $0.size = 4 }
    #expect(try stamp(store).births == edited.births)
    try await store.close()
  }

  @Test func `a default does nothing under a deleted name, and is refused under a name of another type`() async throws {
    let store = try open()
    try await store.write { try $0.saveDefault(Settings()) }
    try await store.write { try $0.delete(id) }
    #expect(try await !store.write { try $0.saveDefault(Settings()) }.value)
    #expect(try store.record(id) == nil)
    try await store.write { try $0.save(Record(type: "Note", id: RecordID("other"))) }
    let error = await #expect(throws: StrandlineError.self) {
      try await store.write { try $0.saveDefault(Settings(id: "other")) }
    }
    #expect(error?.code == .typeMismatch)
    try await store.close()
  }

  @Test func `a default is as durable as any save, and its undo is a deletion`() async throws {
    let disk = SimulatedDisk()
    var store = try open(disk)
    try await store.write { try $0.saveDefault(Settings()) }
    let image = disk.imageAfterCrash(.none)
    store = try open(image)
    let receipt = try await store.update(Settings.self, id: "settings") { $0.theme = "dark" }.receipt
    try await store.undo(receipt)
    #expect(try store.fetch(Settings.self, id: "settings") == Settings())
    let seeded = try await store.write { try $0.saveDefault(Settings(id: "other")) }.receipt
    let undone = try await store.undo(seeded)
    #expect(try store.fetch(Settings.self, id: "other") == nil)
    try await store.undo(undone.receipt)
    #expect(try store.fetch(Settings.self, id: "other") != nil)
    try await store.close()
  }

  // MARK: What it meets

  /// The history that a seed by `save` loses: A's user has chosen, and B is new.
  @Test func `a new device's default gives way to the user's value, in whichever order`() async throws {
    for isRace in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b", clockSkewMilliseconds: 5_000))
      try await a.seed()
      try await a.edit("sepia")
      if !isRace { try await a.exchange() }
      // A's upload comes between B's fetch and B's upload.
      if isRace {
        let cloud = try await b.openRefusing()
        cloud.refuse { $0.beforeModify = { number in if number == 1 { try await a.sync() } } }
      }
      let receipt = try await b.seed("dark")
      try await exchange(b, a, b)
      for device in [a, b] {
        #expect(try await device.theme() == "sepia", "race \(isRace)")
        #expect(try await device.conflicts() == 0)
      }
      try await receipt.uploaded()
      #expect(try await receipt.outcome() == [id: .merged])
      #expect(fleet.applications == 1)
      try await expectAgreement(a, b)
    }
  }

  @Test func `a field that only the default has is not added to the record that was there`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.seed("sepia")
    try await a.exchange()
    try await b.open().write { try $0.saveDefault(Settings(size: 9)) }
    try await b.exchange()
    #expect(try await b.open().fetch(Settings.self, id: "settings") == Settings(theme: "sepia"))
    #expect(fleet.applications == 1)
    // What B's user writes goes up, and nothing else.
    try await b.open().update(Settings.self, id: "settings") { $0.size = 2 }
    try await exchange(b, a)
    #expect(try await a.open().fetch(Settings.self, id: "settings") == Settings(theme: "sepia", size: 2))
    try await expectAgreement(a, b)
  }

  @Test func `what was written into a default before the first sync meets the other device's record field by field`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.seed("sepia")
    try await a.open().update(Settings.self, id: "settings") { $0.size = 1 }
    try await a.exchange()
    try await b.seed("dark")
    try await b.edit("black")
    try await exchange(b, a)
    #expect(try await a.open().fetch(Settings.self, id: "settings") == Settings(theme: "black", size: 1))
    try await expectAgreement(a, b)
  }

  @Test func `an answer that was lost, and a restored backup, do not send a default twice`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    cloud.refuse { $0.lostAnswers = [CloudError(.networkError, reason: "lost")] }
    let receipt = try await a.seed()
    let image = a.disk.clone()
    _ = try? await a.sync(waitMillisecondsMax: 0)
    try await a.run()
    #expect(try await receipt.outcome() == [id: .saved])
    b.restore(from: image)
    try await b.edit("dark")
    try await exchange(b, a)
    #expect(fleet.applications == 2)
    #expect(try await a.theme() == "dark")
    try await expectAgreement(a, b)
  }

  // MARK: Deletions

  @Test func `a deletion that the feed tells ends a default that was not sent`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await b.put("other", ["title": "t"])
    try await a.seed()
    try await exchange(b, a)
    try await a.remove("settings")
    try await a.exchange()
    let receipt = try await b.seed()
    try await b.exchange()
    #expect(try await !b.lives("settings"))
    try await receipt.uploaded()
    #expect(try await receipt.outcome() == [id: .cancelled])
    #expect(try await b.conflicts() == 0)
    try await a.exchange()
    try await expectAgreement(a, b)
  }

  @Test func `a deletion that the server has forgotten is made again by the device that knows it`() async throws {
    for isOfUserLife in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      if isOfUserLife { try await a.open().write { try $0.save(Settings()) } } else { try await a.seed() }
      try await a.exchange()
      try await a.remove("settings")
      try await a.exchange()
      _ = try await b.openForgetful()
      try await b.seed()
      try await b.exchange()
      // No device tells this one.
      #expect(try await b.lives("settings"))
      try await a.exchange()
      #expect(try await !a.lives("settings"))
      try await b.close()
      try await exchange(a, b)
      #expect(try await !b.lives("settings"))
      try await b.seed()
      #expect(try await !b.lives("settings"))
      try await expectAgreement(a, b)
    }
  }

  @Test func `what a user has written into a default is not taken by a deletion that has not seen it`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.seed()
    try await a.exchange()
    try await a.remove("settings")
    try await a.exchange()
    _ = try await b.openForgetful()
    try await b.seed()
    try await b.exchange()
    try await b.edit("black")
    try await b.exchange()
    try await b.close()
    try await exchange(a, b, a)
    for device in [a, b] { #expect(try await device.theme() == "black") }
    // And the deletion that has seen it does.
    try await a.remove("settings")
    try await exchange(a, b)
    try await expectAgreement(a, b)
    #expect(try await !b.lives("settings"))
  }

  @Test(arguments: [DeletionRule.deletionWins, .editRevives])
  func `a pending deletion of a default ends another device's default, and not what its user wrote`(
    _ rule: DeletionRule
  ) async throws {
    for isEdited in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      var rules = ConflictRules()
      rules["Settings"].deletion = rule
      for device in [a, b] { try await device.open(conflicts: rules) }
      try await a.seed()
      if isEdited { try await a.edit("sepia") }
      try await a.exchange()
      try await b.seed()
      try await b.remove("settings")
      try await exchange(b, a, b)
      for device in [a, b] { #expect(try await device.theme() == (isEdited ? "sepia" : nil)) }
      #expect(try await b.conflicts() == 0)
      try await expectAgreement(a, b)
    }
  }

  @Test func `a default deleted before it was sent is deleted at the server too, which has another device's`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.seed()
    try await a.exchange()
    try await b.seed()
    let receipt = try await b.open().write { try $0.delete(id) }
    // Nothing is fetched: the page would say that the server has it.
    var options = CycleOptions()
    options.direction = .pushOnly
    _ = try await b.open().engine.cycle(options)
    try await receipt.uploaded()
    // The store deletes what it found there by an event of its own.
    let outcome = try await receipt.outcome()[id]
    let isSuperseded = if case .superseded = outcome { true } else { false }
    #expect(isSuperseded, "\(outcome.map { "\($0)" } ?? "none")")
    try await a.exchange()
    #expect(try await !a.lives("settings"))
    try await exchange(b, a)
    try await expectAgreement(a, b)
    // Where no device has sent it there is nothing to delete.
    try await b.seed("light", "other")
    let other = try await b.open().write { try $0.delete(RecordID("other")) }
    _ = try await b.open().engine.cycle(options)
    #expect(try await other.outcome() == [RecordID("other"): .cancelled])
  }

  @Test func `a default and a creation of a user are one record, the user's`() async throws {
    for isDefaultFirst in [false, true] {
      let fleet = try Fleet()
      let (a, b) = (fleet.device("a"), fleet.device("b"))
      try await a.open().write { try $0.create(Settings(theme: "sepia")) }
      try await b.open().write { try $0.saveDefault(Settings(theme: "dark", size: 3)) }
      try await isDefaultFirst ? exchange(b, a, b) : exchange(a, b, a)
      for device in [a, b] { #expect(try await device.theme() == "sepia") }
      try await expectAgreement(a, b)
      // Whoever deletes it has deleted both.
      try await a.remove("settings")
      try await exchange(a, b)
      #expect(try await !b.lives("settings"))
      try await expectAgreement(a, b)
    }
  }

  @Test func `compaction keeps a default that is owed, and what it is`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.seed()
    try await a.edit("sepia")
    try await a.exchange()
    try await b.seed("dark")
    #expect(try await b.compact().broken == nil)
    try await b.close()
    try await b.exchange()
    #expect(try await b.compact().broken == nil)
    #expect(try await b.theme() == "sepia")
    try await expectAgreement(a, b)
  }
}

// MARK: All orders

/// Fifteen defaults on three devices. Each has another idea of them: the app's versions differ.
@Suite(.timeLimit(.minutes(30)))
struct SaveDefaultOrderTests {
  private static let names = (0..<15).map { "category\($0)" }

  private struct Scene {
    let fleet: Fleet
    let devices: [Device]

    init(seed: UInt64) throws {
      let fleet = try Fleet(seed: seed)
      self.fleet = fleet
      // Clocks that are ahead and behind, so that time alone would choose another device's.
      devices = ["a", "b", "c"].enumerated().map {
        fleet.device($1, clockSkewMilliseconds: [0, 40_000, -40_000][$0])
      }
    }

    func seed(_ device: Int) async throws {
      let theme = "of \(devices[device].name)"
      try await devices[device].open().write { tx in
        for name in SaveDefaultOrderTests.names { try tx.saveDefault(Settings(id: name, theme: theme)) }
      }
    }

    /// The themes by name, the same on all devices.
    func end() async throws -> [String: String] {
      for _ in 0..<2 { for device in devices { try await device.exchange() } }
      try await expectAgreement(devices[0], devices[1], devices[2])
      let values = try await devices[0].open().fetch(Settings.self)
      return Dictionary(uniqueKeysWithValues: values.map { ($0.id, $0.theme) })
    }
  }

  /// All orders of six steps, two of each device: it launches, and it syncs.
  static let orders: [[Int]] = {
    var orders: [[Int]] = [[]]
    for _ in 0..<6 {
      orders = orders.flatMap { order in
        (0..<3).filter { device in order.count { $0 == device } < 2 }.map { order + [$0] }
      }
    }
    return orders
  }()

  @Test func `the orders are all that there are`() { #expect(Set(Self.orders).count == 90 && Self.orders.count == 90) }

  @Test(arguments: orders)
  func `fifteen defaults on three devices end as fifteen, the first's, and are sent once`(_ order: [Int]) async throws {
    let scene = try Scene(seed: 1)
    var (launched, synced): ([Int], [Int]) = ([], [])
    for device in order {
      if launched.contains(device) {
        try await scene.devices[device].exchange()
        synced.append(device)
      } else {
        try await scene.seed(device)
        launched.append(device)
      }
    }
    let end = try await scene.end()
    // The first that syncs: the others find its records.
    let first = scene.devices[synced[0]].name
    #expect(end == Dictionary(uniqueKeysWithValues: Self.names.map { ($0, "of \(first)") }))
    #expect(scene.fleet.applications == 15)
    for device in scene.devices { #expect(try await device.conflicts(Self.names[3]) == 0) }
  }

  /// Each device in its turn launches, edits or deletes, syncs or loses its power, as a number says; one of them edits and deletes.
  @Test(arguments: 1...120 as ClosedRange<UInt64>)
  func `with edits, deletions and power cuts in between nothing of the user is lost`(_ seed: UInt64) async throws {
    let scene = try Scene(seed: seed)
    let random = SeededRandom(seed: seed)
    let user = Int(random.below(3))
    var (edited, deleted): ([String: String], Set<String>) = ([:], [])
    for step in 0..<24 {
      let number = random.below(3) == 0 ? user : Int(random.below(3))
      let device = scene.devices[number]
      switch random.below(6) {
      case 0, 1: try await scene.seed(number)
      case 2: device.crash(.none)
      case 3 where number == user:
        let name = Self.names[Int(random.below(15))]
        guard try await device.lives(name) else { break }
        try await device.edit("step \(step)", name)
        edited[name] = "step \(step)"
      case 4 where number == user && random.below(3) == 0:
        let name = Self.names[Int(random.below(15))]
        guard try await device.lives(name) else { break }
        try await device.remove(name)
        edited[name] = nil
        deleted.insert(name)
      default: try await device.exchange()
      }
    }
    for device in scene.devices.indices { try await scene.seed(device) }
    let end = try await scene.end()
    #expect(Set(end.keys) == Set(Self.names).subtracting(deleted), "seed \(seed)")
    for (name, theme) in edited { #expect(end[name] == theme, "seed \(seed), \(name)") }
    for name in Self.names where edited[name] == nil && !deleted.contains(name) {
      #expect(end[name]?.hasPrefix("of ") == true, "seed \(seed), \(name)")
    }
    for device in scene.devices {
      for name in Self.names { #expect(try await device.conflicts(name) == 0, "seed \(seed), \(device.name), \(name)") }
    }
  }
}
