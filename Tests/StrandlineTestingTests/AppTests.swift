// Tests as the author of an app writes them: they use only what Strandline, StrandlineServer and StrandlineTesting make
// public. PublicInterfaceTests checks this by compiling this file as part of another package. The code between the two
// marks is the README's example; with the next test it is an example of the documentation, character by character.

import Strandline
import StrandlineTesting
import Testing

struct Note: SyncRecord {
  var id = RecordName.random()
  var title: String
}

// README begins
@Test(.timeLimit(.minutes(30))) func `a note outlives a power cut`() async throws {
  let note = Note(title: "Low tide at six")
  let disk = SimulatedDisk()
  let store = try await RecordStore.open(at: "/notes", environment: .simulated(disk: disk, seed: 1))
  try await store.write { try $0.save(note) }

  let found = disk.afterPowerCut(seed: 8231)  // the seed chooses what of the unsynced work is lost
  let again = try await RecordStore.open(at: "/notes", environment: .simulated(disk: found, seed: 1))
  #expect(try again.fetch(Note.self, id: note.id)?.title == "Low tide at six")
}
// README ends

@Test(.timeLimit(.minutes(30))) func `a note is uploaded by itself`() async throws {
  let clock = SimulatedClock(autoAdvance: false)
  var syncing = SyncConfiguration.simulated(SimulatedCloud())
  syncing.isAutomatic = true  // a simulated cloud is synced by hand otherwise
  let store = try await RecordStore.open(
    at: "/notes", syncing: syncing, environment: .simulated(disk: SimulatedDisk(), clock: clock, seed: 1))
  let receipt = try await store.write { try $0.save(Note(title: "Low tide at six")) }
  while try !store.pendingChanges().changes.isEmpty {
    if clock.sleeperCount > 0 { clock.advance(by: .seconds(1)) }  // the engine waits for the next second
    await Task.yield()
  }
  try await receipt.uploaded()  // at once: the server has it
  try await store.close()
}

@Test(.timeLimit(.minutes(30))) func `two devices share a note`() async throws {
  let cloud = SimulatedCloud()
  let note = Note(title: "Low tide at six")
  let phone = try await RecordStore.open(
    at: "/notes", syncing: .simulated(cloud), environment: .simulated(disk: SimulatedDisk(), seed: 1))
  let tablet = try await RecordStore.open(
    at: "/notes", syncing: .simulated(cloud), environment: .simulated(disk: SimulatedDisk(), seed: 2))
  try await phone.write { try $0.save(note) }
  try await phone.sync()
  try await tablet.sync()
  #expect(try tablet.fetch(Note.self, id: note.id)?.title == "Low tide at six")
}

@Test(.timeLimit(.minutes(30))) func `all devices count the same notes, in six worlds`() async {
  for seed in UInt64(1)...6 {
    var world = SimulatedWorld(seed: seed, devices: 3, faults: [.power, .app])
    world.configure { configuration, _ in
      configuration.isAutomatic = false  // here the app sets its own policies
    }
    world.check { stores in
      let counts = try stores.map { try $0.count(Note.self) }
      return Set(counts).count == 1 ? nil : "the devices count \(counts) notes"
    }
    let failure = await world.run().failure
    #expect(failure == nil, "\(failure.map { "\($0)" } ?? "")")
  }
}

import StrandlineServer

/// A store of notes on a simulated disk.
private func open(
  _ disk: SimulatedDisk, clock: SimulatedClock = SimulatedClock(), seed: UInt64 = 1, cloud: SimulatedCloud? = nil
) async throws -> RecordStore {
  try await RecordStore.open(
    at: "/notes", syncing: cloud.map { .simulated($0) },
    environment: .simulated(disk: disk, clock: clock, seed: seed))
}

private func titles(_ store: RecordStore) throws -> [String: String] {
  var result: [String: String] = [:]
  for note in try store.fetch(Note.self) { result[note.id] = note.title }
  return result
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do { try await body() } catch { return (error as? StrandlineError)?.code }
  return nil
}

/// The writes of an app: one note, then two edits in one transaction, then a deletion. Returns the state that was
/// acknowledged last, and the state after the write that did not return.
private func live(on disk: SimulatedDisk) async -> (acknowledged: [String: String], issued: [String: String]) {
  var states: [[String: String]] = [[:], ["a": "1"], ["a": "2", "b": "1"], ["b": "1"]]
  var acknowledged = states.removeFirst()
  do {
    let store = try await open(disk)
    try await store.write { try $0.save(Note(id: "a", title: "1")) }
    acknowledged = states.removeFirst()
    try await store.write { tx in
      try tx.save(Note(id: "a", title: "2"))
      try tx.save(Note(id: "b", title: "1"))
    }
    acknowledged = states.removeFirst()
    try await store.write { tx in try tx.delete(RecordID("a")) }
    acknowledged = states.removeFirst()
  } catch { return (acknowledged, states.first ?? acknowledged) }
  return (acknowledged, states.first ?? acknowledged)
}

@Test(.timeLimit(.minutes(30))) func `a power cut at any call loses nothing that was acknowledged`() async throws {
  let calm = SimulatedDisk()
  #expect(await live(on: calm).acknowledged == ["b": "1"])
  #expect(calm.callCount > 10)
  for call in 1...calm.callCount {
    let disk = SimulatedDisk()
    disk.cutPower(atCall: call)
    let (acknowledged, issued) = await live(on: disk)
    for seed in 1...5 as ClosedRange<UInt64> {
      let found = try titles(try await open(disk.afterPowerCut(seed: seed)))
      #expect(found == acknowledged || found == issued, "power cut at call \(call), seed \(seed)")
    }
  }
}

@Test(.timeLimit(.minutes(30))) func `a power cut loses unsynced work, as the seed chooses`() async throws {
  // The names of files that were just created: with enough seeds each of them is kept by some and lost by others.
  let disk = SimulatedDisk()
  disk.cutPower(atCall: 4)
  _ = await live(on: disk)
  let sizes = Set((1...40 as ClosedRange<UInt64>).map { disk.afterPowerCut(seed: $0).usedBytes })
  #expect(sizes.count > 1)
  #expect(disk.afterPowerCut(seed: 3).usedBytes == disk.afterPowerCut(seed: 3).usedBytes)
}

@Test(.timeLimit(.minutes(30))) func `a store on a disk without power throws, and can be closed`() async throws {
  let disk = SimulatedDisk()
  let store = try await open(disk)
  _ = disk.afterPowerCut(seed: 1)
  let code = await code { try await store.write { try $0.save(Note(title: "unheard")) } }
  #expect(code == .io || code == .outcomeUnknown)
}

@Test(.timeLimit(.minutes(30))) func `a write to a full disk throws and changes nothing`() async throws {
  let disk = SimulatedDisk()
  let store = try await open(disk)
  try await store.write { try $0.save(Note(id: "a", title: "before")) }
  disk.capacity = disk.usedBytes
  #expect(await code { try await store.write { try $0.save(Note(id: "a", title: "no room")) } } == .diskFull)
  #expect(try titles(store) == ["a": "before"])
  disk.capacity = nil
  try await store.write { try $0.save(Note(id: "b", title: "after")) }
  #expect(try titles(store) == ["a": "before", "b": "after"])
  try await store.close()
  #expect(try titles(try await open(disk)) == ["a": "before", "b": "after"])
}

@Test(.timeLimit(.minutes(30))) func `a write that does not fit onto the disk throws`() async throws {
  let disk = SimulatedDisk(capacity: 1 << 20)
  let store = try await open(disk)
  let long = String(repeating: "tide ", count: 150_000)
  let tooMuch: (inout WriteTransaction) throws -> Void = { tx in
    for number in 0..<4 { try tx.save(Note(id: "\(number)", title: long)) }
  }
  #expect(await code { try await store.write(tooMuch) } == .diskFull)
  #expect(try titles(store).isEmpty)
  disk.capacity = nil
  try await store.write(tooMuch)
  #expect(try titles(store).count == 4)
}

@Test(.timeLimit(.minutes(30))) func `whichever call fails, nothing acknowledged is lost`() async throws {
  let calm = SimulatedDisk()
  _ = await live(on: calm)
  var failures = 0
  for call in 1...calm.callCount {
    let disk = SimulatedDisk()
    disk.failCall(call)
    let (acknowledged, issued) = await live(on: disk)
    if acknowledged != ["b": "1"] { failures += 1 }
    for found in [disk.afterPowerCut(seed: 1), disk.afterPowerCut(seed: 2)] {
      let titles = try titles(try await open(found))
      #expect(titles == acknowledged || titles == issued, "call \(call) failed")
    }
  }
  #expect(failures > 5)
}

@Test(.timeLimit(.minutes(30))) func `a clock that is turned back ten years changes nothing`() async throws {
  let (disk, clock, cloud) = (SimulatedDisk(), SimulatedClock(), SimulatedCloud())
  var store = try await open(disk, clock: clock, cloud: cloud)
  try await store.write { try $0.save(Note(id: "a", title: "1")) }
  try await store.sync()
  clock.turnWallClock(by: .seconds(-10 * 365 * 86_400))
  // The later edit wins although the clock was turned back, also after a restart and on another device.
  try await store.write { try $0.save(Note(id: "a", title: "2")) }
  try await store.sync()
  try await store.close()
  store = try await open(disk, clock: clock, cloud: cloud)
  #expect(try titles(store) == ["a": "2"])
  try await store.write { try $0.save(Note(id: "a", title: "3")) }
  clock.advance(by: .seconds(60))
  try await store.sync()
  let other = try await open(SimulatedDisk(), seed: 2, cloud: cloud)
  try await other.sync()
  #expect(try titles(other) == ["a": "3"])
}

@Test(.timeLimit(.minutes(30))) func `two devices that edit offline agree after a sync`() async throws {
  let cloud = SimulatedCloud()
  let phone = try await open(SimulatedDisk(), seed: 1, cloud: cloud)
  let tablet = try await open(SimulatedDisk(), seed: 2, cloud: cloud)
  try await phone.write { try $0.save(Note(id: "a", title: "1")) }
  try await phone.sync()
  try await tablet.sync()
  try await phone.write { try $0.save(Note(id: "a", title: "by phone")) }
  try await tablet.write { try $0.save(Note(id: "a", title: "by tablet")) }
  for store in [phone, tablet, phone] { try await store.sync() }
  #expect(try titles(phone) == titles(tablet))
  #expect(try titles(phone)["a"]?.hasPrefix("by ") == true)
  try await tablet.write { tx in try tx.delete(RecordID("a")) }
  for store in [tablet, phone] { try await store.sync() }
  #expect(try titles(phone).isEmpty)
}

@Test(.timeLimit(.minutes(30)))
func `after a lost answer the request is repeated, and nothing is applied twice`() async throws {
  let cloud = SimulatedCloud()
  let store = try await open(SimulatedDisk(), cloud: cloud)
  var faults = ServerFaults()
  faults.dropAnswer = 1
  cloud.server.setFaults(faults)
  let receipt = try await store.write { try $0.save(Note(id: "a", title: "1")) }
  _ = try await store.sync()
  try await receipt.uploaded()
  #expect(cloud.server.statistics.droppedAnswers == 1)
  #expect(cloud.server.statistics.appliedOperations == 1)
}
