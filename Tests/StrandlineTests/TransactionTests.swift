// What `write` promises besides durability: the closure's value, the limit of a transaction, one spelling of a zone, one
// type under a name, and a receipt that any later process can take up again.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

private let id = RecordID("n")

private func note(_ id: RecordID = id, _ fields: [String: FieldValue] = ["title": "x"], type: String = "Note") -> Record
{
  Record(type: type, id: id, fields: fields)
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do {
    try await body()
    return nil
  } catch { return (error as? StrandlineError)?.code }
}

private func agree(_ devices: Device...) async throws {
  for _ in 0..<3 {
    for device in devices {
      try await device.sync()
      let broken = try await device.brokenInvariant()
      #expect(broken == nil)
    }
  }
  let first = try await devices[0].dump()
  for device in devices {
    #expect(try await device.dump() == first)
    #expect(try await device.open().status().unsettled == 0)
    #expect(try await device.open().status().openBlocks == 0)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A write` {
  // MARK: Its value

  @Test func `returns what its closure returns beside the receipt`() async throws {
    let store = try await Fleet().device("a").open()
    let (title, receipt) = try await store.write { tx in
      try tx.save(note())
      return try tx.record(id)?["title"]
    }
    #expect(title == "x")
    #expect(receipt.lsns == LSN(1)...LSN(2), "the tenure's first event, and the save")
    #expect(try store.writeBlocking { tx in try tx.delete(id) }.value == [id])
    // Ignored, as where there is no value.
    try await store.write { tx in try tx.delete(id) }
    try store.writeBlocking { tx in try tx.delete(id) }
    // A closure of one call: the receipt alone, whatever the call returns.
    let creation = try await store.write { tx in try tx.create(note()) }
    #expect(creation.lsns == LSN(4)...LSN(4))
    let deletion = try await store.write { try $0.delete(id) }
    #expect(deletion.lsns == LSN(5)...LSN(5))
  }

  @Test func `may return a value that cannot be sent`() async throws {
    final class Box { var count = 0 }
    let store = try await Fleet().device("a").open()
    let box = try await store.write { tx -> Box in
      let box = Box()
      box.count = try tx.record(id) == nil ? 0 : 1
      return box
    }.value
    #expect(box.count == 0)
  }

  // MARK: Its limit

  @Test func `above the limit is refused at the save that passes it, and writes nothing`() async throws {
    #expect(LogOptions().transactionBytesMax == 64 << 20)
    var options = Device.options
    options.log.transactionBytesMax = 100_000
    let store = try await RecordStore.open(
      at: "/s", options: options, environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { try $0.save(note(RecordID("before"))) }
    let before = store.durableLSN
    var saved = 0
    // Without the refusal in `save` this would not end.
    let refused = await code {
      try await store.write { tx in
        while true {
          try tx.save(note(RecordID("n\(saved)")))
          saved += 1
        }
      }
    }
    #expect(refused == .tooLarge)
    #expect(saved > 100 && saved < 100_000)
    // A closure that ignores the refusal gets nothing of it written either.
    let swallowed = await code {
      try await store.write { tx in for number in 0..<10_000 { try? tx.save(note(RecordID("n\(number)"))) } }
    }
    #expect(swallowed == .tooLarge)
    #expect(store.durableLSN == before)
    #expect(try store.recordIDs() == [RecordID("before")])
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try await store.write { tx in for number in 0..<saved { try tx.save(note(RecordID("n\(number)"))) } }
    #expect(store.recordCount == saved + 1)
    try await store.close()
  }

  // MARK: One spelling of a zone

  private static let own = CloudServer.defaultUser
  private static let notes = ZoneID("Notes")

  @Test func `takes CloudKit's placeholder for the user as no owner`() async throws {
    var zone = ZoneID("Notes", owner: "__defaultOwner__")
    #expect(zone == Self.notes)
    zone.owner = "_other"
    zone.owner = "__defaultOwner__"
    #expect(zone.owner.isEmpty)
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { tx in
      try tx.save(note(RecordID("n", zone: ZoneID("Notes", owner: "__defaultOwner__"))))
    }
    try await agree(a, b)
    #expect(try await a.open().recordIDs() == [RecordID("n", zone: Self.notes)])
    #expect(try await a.open().status().zones.map(\.id) == [Self.notes])
    #expect(try await b.open().recordIDs() == [RecordID("n", zone: Self.notes)])
  }

  @Test func `takes the own user's name as no owner once it is known`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let store = try await a.open()
    let named = RecordID("n", zone: ZoneID("Notes", owner: Self.own))
    #expect(await code { try await store.write { try $0.save(note(named)) } } == .foreignZone)
    try await store.write { try $0.save(note(RecordID("n", zone: Self.notes))) }
    try await a.sync()
    try await store.write { tx in
      var record = try #require(try tx.record(named))
      #expect(record.id.zone == Self.notes)
      record["title"] = "by name"
      try tx.save(Record(type: "Note", id: named, fields: record.fields))
    }
    #expect(try store.record(named)?["title"] == "by name")
    #expect(try store.recordIDs(in: named.zone) == [RecordID("n", zone: Self.notes)])
    try await agree(a, b)
    #expect(try await b.open().recordIDs() == [RecordID("n", zone: Self.notes)])
    #expect(try await store.write { try $0.delete(named) }.value.count == 1)
    #expect(store.recordCount == 0)
  }

  @Test(arguments: ["__defaultOwner__", CloudServer.defaultUser])
  func `meets its own zone again, however the server spells its owner`(_ spelling: String) async throws {
    let fleet = try Fleet()
    let database = WebServicesDatabase(
      address: fleet.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
      transport: InProcessTransport(fleet.server), environment: fleet.device("a").environment.system)
    var configuration = SyncConfiguration(SpellingDatabase(base: database, owner: spelling))
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: "/s", syncing: configuration, environment: .simulated(disk: SimulatedDisk(), seed: 3))
    try await store.write { try $0.save(note(RecordID("n", zone: Self.notes))) }
    for _ in 0..<3 { try await store.sync() }
    #expect(try store.recordIDs() == [RecordID("n", zone: Self.notes)])
    #expect(try store.status().zones.map(\.id) == [Self.notes])
    try await store.close()
  }

  @Test func `refuses another user's zone and a database that is not synced`() async throws {
    let device = try Fleet().device("a")
    let local = try await RecordStore.open(at: "/l", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let store = try await device.open()
    let foreign = note(RecordID("n", zone: ZoneID("Notes", owner: "_other")))
    let shared = note(RecordID("n", zone: ZoneID("Notes", owner: "_other", scope: .shared)))
    let open = note(RecordID("n", zone: ZoneID("Notes", scope: .public)))
    let pointing = note(
      RecordID("p"), ["to": .list(.references, [.reference(Reference("x", zone: foreign.id.zone))])])
    for (index, store) in [local, store, store].enumerated() {
      #expect(await code { try await store.write { try $0.save(foreign) } } == .foreignZone)
      #expect(await code { try await store.write { try $0.create(shared) } } == .foreignScope)
      #expect(await code { try await store.write { try $0.save(open) } } == .foreignScope)
      #expect(await code { try await store.write { try $0.save(pointing) } } == .foreignZone)
      #expect(store.recordCount == 0)
      if index == 1 { try await device.sync() }
    }
    try await local.close()
  }

  @Test func `keeps one spelling of a reference, so that every device reads its stamp`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { tx in
      try tx.save(
        note(
          id, ["own": .reference(Reference("x", zone: id.zone)), "far": .reference(Reference("y", zone: Self.notes))]))
    }
    let saved = try await a.open().record(id)
    #expect(saved?["own"] == .reference(Reference("x")))
    #expect(saved?["far"] == .reference(Reference("y", zone: Self.notes)))
    try await agree(a, b)
    let stamps = try await b.open().core.withLock { try $0.view(id)?.version.stamp.fields }
    #expect(stamps?.count == 2)
    #expect(stamps?.values.allSatisfy { $0.writer != 0 } == true, "writer 0: the value is not the one that was stamped")
  }

  // MARK: One type under a name

  @Test func `of a second type under a living name is refused`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let store = try await a.open()
    #expect(
      await code {
        try await store.write { tx in
          try tx.save(note())
          try tx.save(note(type: "Task"))
        }
      } == .typeMismatch)
    #expect(store.recordCount == 0)
    try await store.write { try $0.save(note()) }
    try await agree(a, b)
    for device in [a, b] {
      let store = try await device.open()
      #expect(await code { try await store.write { try $0.save(note(type: "Task")) } } == .typeMismatch)
      #expect(await code { try await store.write { try $0.create(note(type: "Task")) } } == .recordExists)
    }
  }

  @Test(arguments: [CycleOptions.Direction.both, .pushOnly])
  func `that meets a record of another type at the server ends as rejected, and joins nothing`(
    _ direction: CycleOptions.Direction
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { try $0.save(note(id, ["title": "a note"])) }
    let store = try await b.open()
    let receipt = try await store.write { try $0.save(note(id, ["done": 1], type: "Task")) }
    try await a.sync()
    try await b.sync(direction)
    guard case .rejected(let code, let reason)? = try await receipt.outcome()[id] else {
      Issue.record("\(try await receipt.outcome())")
      return
    }
    #expect(code == .typeMismatch)
    #expect(reason.contains("'Note'") && reason.contains("'Task'"))
    try await agree(a, b)
    let other = try await a.open().record(id)
    #expect(try store.record(id) == other)
    #expect(try store.record(id)?.fields == ["title": "a note"])
    #expect(try store.recordIDs(ofType: "Note") == [id])
    #expect(try store.recordIDs(ofType: "Task").isEmpty)
    // The way that the reason names.
    try await store.write { try $0.delete(id) }
    try await b.sync()
    try await store.write { try $0.create(note(id, ["done": 1], type: "Task")) }
    try await agree(a, b)
    #expect(try await a.open().record(id)?.type == "Task")
    #expect(try await a.open().record(id)?.fields == ["done": 1])
  }

  @Test func `that gives a name another type is refused until the deletion is at the server, and stands then`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { try $0.save(note(id, ["title": "a note"])) }
    try await agree(a, b)
    for isOneTransaction in [true, false] {
      if !isOneTransaction { try await a.open().write { try $0.delete(id) } }
      let error = await #expect(throws: StrandlineError.self) {
        try await a.open().write { tx in
          if isOneTransaction { try tx.delete(id) }
          try tx.create(note(id, ["done": 1], type: "Task"))
        }
      }
      #expect(error?.code == .typeMismatch)
      #expect(try await a.open().record(id)?.type == (isOneTransaction ? "Note" : nil))
    }
    try await a.sync()
    try await a.open().write { try $0.create(note(id, ["done": 1], type: "Task")) }
    // The old life was edited elsewhere.
    try await b.open().write { try $0.save(note(id, ["title": "edited"])) }
    try await b.sync()
    try await agree(a, b)
    #expect(try await b.open().record(id)?.type == "Task")
    #expect(try await b.open().record(id)?.fields == ["done": 1])
  }

  @Test func `never leaves fields of two types in one record, and devices agree, whatever the order`() async throws {
    var rejected = 0
    for seed in Campaign.seeds(1...60, every: 3) {
      let random = SeededRandom(seed: seed)
      let fleet = try Fleet(seed: seed)
      var faults = ServerFaults()
      faults.replayPage = seed % 3 == 0
      faults.createConflictInsteadOfExists = seed % 2 == 0
      fleet.server.setFaults(faults)
      let devices = ["a", "b", "c"].map { fleet.device($0) }
      var receipts: [Receipt] = []
      for step in 0..<40 {
        let device = devices[Int(random.below(3))]
        device.clock.advance(milliseconds: Int64(random.below(3_000)))
        let store = try await device.open()
        let id = RecordID("n\(random.below(2))")
        let (action, type) = (random.below(8), ["Note", "Task"][Int(random.below(2))])
        if action > 4 {
          try await device.sync(random.below(4) == 0 ? .pushOnly : .both)
        } else {
          receipts.append(
            try await store.write { tx in
              if var record = try tx.record(id), action < 3 {
                record["of\(record.type)\(action)"] = .int64(Int64(step))
                try tx.save(record)
              } else {
                try tx.delete(id)
                // Another type has to wait until the deletion is at the server.
                do {
                  if action < 4 { try tx.create(note(id, ["of\(type)": .int64(Int64(step))], type: type)) }
                } catch StrandlineError.Code.typeMismatch {}
              }
            })
        }
        if let broken = try await device.brokenInvariant() { Issue.record("seed \(seed), step \(step): \(broken)") }
      }
      fleet.server.setFaults(ServerFaults())
      for _ in 0..<4 { for device in devices { try await device.sync() } }
      let dumps = try await [devices[0].dump(), devices[1].dump(), devices[2].dump()]
      #expect(Set(dumps).count == 1, "seed \(seed): \(dumps)")
      for device in devices {
        let store = try await device.open()
        #expect(try store.status().unsettled == 0, "seed \(seed), device \(device.name)")
        for type in ["Note", "Task"] {
          for record in try store.records(ofType: type) {
            #expect(record.fields.keys.allSatisfy { $0.hasPrefix("of\(type)") }, "seed \(seed): \(record.fields)")
          }
        }
      }
      for receipt in receipts {
        for case .rejected(let code, _) in try await receipt.outcome().values {
          #expect(code == .typeMismatch)
          rejected += 1
        }
      }
    }
    print("types: \(rejected) creations were rejected")
    #expect(rejected > (Campaign.isWhole ? 20 : 6))
  }

  // MARK: Its receipt after relaunches

  @Test func `has a position that later processes take up, again and again`() async throws {
    let device = try Fleet().device("a")
    let empty = try await device.open().write { _ in }
    let receipt = try await device.open().write { try $0.save(note()) }
    var position = receipt.position
    for number in 0..<3 {
      try await device.close()
      let store = try await device.open()
      let looking = try await store.write { tx in _ = try tx.record(id) }
      let again = try store.receipt(at: position)
      #expect(again.lsns == receipt.lsns)
      #expect(again.position == receipt.position)
      position = again.position
      // Of a transaction that changed nothing: it is the position of what it saw, of whichever tenure.
      _ = try store.receipt(at: looking.position)
      #expect(try store.receipt(at: empty.position).lsns == nil)
      // The next process is of another tenure, and has written under it.
      try await store.write { try $0.save(note(RecordID("m\(number)"))) }
    }
    try await device.sync()
    #expect(try await device.open().receipt(at: position).outcome() == [id: .saved])
    // Of a log that a restored backup has replaced.
    let stranger = LogPosition(tenure: position.tenure ^ 1, lsn: position.lsn)
    let store = try await device.open()
    #expect(await code { _ = try store.receipt(at: stranger) } == .noSuchRecord)
  }
}

/// Names the user's own zones under an owner, as a transport other than that of Web Services may.
private struct SpellingDatabase: ForwardingDatabase {
  let base: any CloudDatabase
  let owner: String

  func zones() async throws -> [ZoneID] { try await base.zones().map(spelled) }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    var page = try await base.databaseChanges(since: token, limit: limit)
    for place in page.zones.indices { page.zones[place].id = spelled(page.zones[place].id) }
    return page
  }
  private func spelled(_ zone: ZoneID) -> ZoneID { ZoneID(zone.name, owner: owner, scope: zone.scope) }
}
