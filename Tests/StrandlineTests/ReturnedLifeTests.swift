// A record that was deleted may come back at the server by a way that knows nothing of deletions: a tool that puts a backup
// back, a device whose disk was. Whoever knows that it was deleted deletes it again, also if another record has had the name
// since and is still shown here: what the app did about that one is no reason to keep the old one, nor to bring it back itself.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

extension Fleet {
  /// The server's record 'n'.
  fileprivate var note: JournalRecord? {
    get throws { try server.records(zone: "Main", in: database)?["n"] }
  }
}

extension JournalRecord {
  fileprivate var stamp: WireStamp {
    get throws {
      guard case .bytes(let bytes)? = fields[Names.stampField] else { return try StampCodec.decode([]) }
      return try StampCodec.decode(bytes)
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A deleted record that a tool puts back` {
  /// Device a and b know a second record by the name; the server has the first one again.
  ///
  /// - Parameter isBeside: a device that did not know of the deletion has brought the first one's life back beside the second one's.
  private func world(
    _ deletion: DeletionRule, _ isBeside: Bool
  ) async throws -> (fleet: Fleet, a: Device, b: Device) {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    var conflicts = ConflictRules()
    conflicts["Note"].deletion = deletion
    for device in [a, b] { try await device.open(conflicts: conflicts) }
    try await a.put("n", ["title": "first"])
    try await exchange(a, b)
    let first = try #require(try fleet.note)
    try await b.remove("n")
    try await exchange(b, a)
    try await b.create("n", ["title": "second"])
    try await exchange(b, a)
    #expect(try await a.value("n") == "second")
    let web = b.web()
    fleet.serverClock.advance(milliseconds: 60_000)
    if isBeside {
      var (stamp, old) = try (#require(try fleet.note).stamp, first.stamp)
      stamp.births.formUnion(old.births)
      _ = try await web.modify(
        [
          CloudOperation(
            .forceUpdate, name: "n", type: "Note", fields: [Names.stampField: .bytes(StampCodec.encode(stamp))])
        ], in: .main, atomic: false)
      try await exchange(a, b)
      #expect(try await a.value("n") == "second")
      fleet.serverClock.advance(milliseconds: 60_000)
    }
    var fields: [String: FieldValue?] = [:]
    for (name, value) in first.fields { fields[name] = value }
    for operation in [
      CloudOperation(.forceDelete, name: "n"), CloudOperation(.create, name: "n", type: "Note", fields: fields),
    ] {
      let result = try await web.modify([operation], in: .main, atomic: false)["n"]
      if case .failed(let error, _)? = result { throw error }
    }
    return (fleet, a, b)
  }

  private func rest(_ fleet: Fleet, _ devices: Device...) async throws {
    for _ in 0..<3 {
      for device in devices {
        try await device.exchange()
        for clock in [device.clock, fleet.serverClock] { clock.advance(milliseconds: 60_000) }
      }
    }
  }

  @Test(arguments: [false, true]) func `is deleted again`(_ isBeside: Bool) async throws {
    let (fleet, a, b) = try await world(.deletionWins, isBeside)
    try await rest(fleet, a, b)
    #expect(try await !a.lives("n"))
    #expect(try fleet.note == nil)
    try await expectAgreement(a, b)
  }

  @Test(arguments: [false, true])
  func `is deleted again, and what was edited of the other record is not brought back`(_ isBeside: Bool) async throws {
    let (fleet, a, b) = try await world(.deletionWins, isBeside)
    try await a.put("n", ["body": "edited"])
    try await rest(fleet, a, b)
    #expect(try await !a.lives("n"))
    #expect(try fleet.note == nil)
    try await expectAgreement(a, b)
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test(arguments: [false, true])
  func `gives way to the other record where an edit of that wins over deletions`(_ isBeside: Bool) async throws {
    let (fleet, a, b) = try await world(.editRevives, isBeside)
    try await a.put("n", ["body": "edited"])
    try await rest(fleet, a, b)
    for device in [a, b] {
      #expect(try await device.value("n") == "second")
      #expect(try await device.value("n", "body") == "edited")
    }
    try await expectAgreement(a, b)
    try await rest(fleet, fleet.device("new"), a)
    #expect(try await a.value("n", "body") == "edited")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A server that was put back to a record that was deleted since` {
  /// - Parameter resyncs: a person decides for what is here.
  @Test(arguments: [false, true])
  func `takes nothing from the record that has its name now`(_ resyncs: Bool) async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.put("n", ["title": "first"])
    try await a.exchange()
    fleet.serverClock.advance(milliseconds: 60_000)
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await a.remove("n")
    try await a.exchange()
    try await a.create("n", ["title": "second"])
    try await a.exchange()
    let old = try fleet.server(of: image)
    try await a.close()
    try await a.open(through: InProcessTransport(old))
    for _ in 0..<3 { _ = try await a.run() }
    #expect(try await a.value("n") == "second")
    #expect(try old.records(zone: "Main", in: fleet.database)?["n"]?.fields["title"] == .string("first"))
    guard resyncs else { return }
    try await a.open().engine.resync(.main, from: .here)
    for _ in 0..<3 {
      _ = try await a.run()
      for clock in [a.clock, fleet.serverClock] { clock.advance(milliseconds: 600_000) }
    }
    #expect(try await a.value("n") == "second")
    #expect(try old.records(zone: "Main", in: fleet.database)?["n"]?.fields["title"] == .string("second"))
    #expect(try await a.owesNothing)
  }
}
