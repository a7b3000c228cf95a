// Goal: stores sync through CloudKit's framework as by the web: no lookup after a conflict, no more requests, the reasons of lost zones,
// empty lists; and a store may change from one face to the other in the middle of unsent edits. Method: devices on one server, on
// simulated disks, with requests counted by the server.

import CloudKit
import Foundation
import Strandline
import StrandlineCloudKit
@testable import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

private let id = RecordID("n")

/// A device with the adapter over the stand-in.
private struct NativeDevice {
  let device: Device
  let cloud: StandInCloud
  private let fleet: Fleet

  init(_ fleet: Fleet, _ name: String) {
    self.fleet = fleet
    device = fleet.device(name)
    cloud = StandInCloud(
      fleet.address, over: InProcessTransport(fleet.server, waitsForDroppedAnswers: false),
      ownUser: CloudServer.defaultUser)
  }

  var database: NativeCloudDatabase {
    NativeCloudDatabase(
      CKContainer(fleet.address.container, cloud), environment: fleet.address.environment)
  }

  @discardableResult
  func open(configure: (inout SyncConfiguration) -> Void = { _ in }) async throws -> RecordStore {
    try await device.open(database: database, configure: configure)
  }

  /// Closes the store and opens it with the other face.
  func change(toNative isNative: Bool) async throws {
    try await device.close()
    if isNative { try await open() } else { try await device.open() }
  }
}

extension Device {
  fileprivate func put(_ fields: [String: FieldValue?], _ id: RecordID = id) async throws {
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  /// Cycles until nothing is owed, three at most.
  fileprivate func settle() async throws {
    for _ in 0..<3 { try await sync() }
    let broken = try await brokenInvariant()
    #expect(broken == nil)
    let status = try await open().status()
    #expect(status.unsettled == 0 && status.held.isEmpty, "\(name): \(status)")
  }
}

private func expectEqual(_ devices: Device...) async throws {
  let first = try await devices[0].dump()
  for device in devices.dropFirst() { #expect(try await device.dump() == first, "\(device.name)") }
}

@Suite(.timeLimit(.minutes(30)))
struct `Stores through CloudKit's framework` {
  @Test func `agree with each other and with those of the web`() async throws {
    let fleet = try Fleet()
    let (a, b, c) = (NativeDevice(fleet, "a"), NativeDevice(fleet, "b"), fleet.device("c"))
    try await a.open()
    try await b.open()
    try await a.device.put(["title": "one", "list": .list(.strings, ["x"]), "secret": .encrypted("s")])
    for device in [a.device, b.device, c] { try await device.settle() }
    try await b.device.put(["title": "two", "more": .double(3), "flag": 1])
    try await c.put(["body": "three"])
    try await a.device.put(["list": .list(.strings, []), "secret": nil])
    for device in [a.device, b.device, c, a.device, b.device, c] { try await device.settle() }
    try await expectEqual(a.device, b.device, c)
    // The empty list is still one of texts, where nobody knew it otherwise too.
    let d = NativeDevice(fleet, "d")
    try await d.open()
    try await d.device.settle()
    let fields = try await d.device.open().record(id)?.fields
    #expect(
      fields == ["title": "two", "more": .double(3), "flag": 1, "body": "three", "list": .list(.strings, [])])
    try await d.device.open().write { try $0.delete(id) }
    for device in [d.device, a.device, c] { try await device.settle() }
    for device in [a.device, c] { #expect(try await device.open().record(id) == nil) }
  }

  @Test func `settle a conflict without a lookup`() async throws {
    let fleet = try Fleet()
    let (a, b) = (NativeDevice(fleet, "a"), fleet.device("b"))
    try await a.open()
    try await a.device.put(["title": "one"])
    try await a.device.settle()
    try await b.settle()
    try await b.put(["body": "theirs"])
    try await b.settle()
    try await a.device.put(["title": "mine"])
    _ = a.cloud.takeRequests()
    let report = try await a.device.sync(.pushOnly)
    // The one lookup is the stand-in's, for what Apple's server sends along.
    #expect(
      a.cloud.takeRequests().filter { $0.hasPrefix("private/records") } == [
        "private/records/modify", "private/records/lookup", "private/records/modify",
      ])
    #expect(report.merged == 1)
    try await b.settle()
    #expect(try await b.open().record(id)?.fields == ["title": "mine", "body": "theirs"])
  }

  /// The version that comes with the refusal wins in all fields, so that nothing is left to send.
  @Test func `remember nothing of a change that a conflict has settled`() async throws {
    let fleet = try Fleet()
    let (a, b) = (NativeDevice(fleet, "a"), fleet.device("b"))
    try await a.open()
    try await a.device.put(["title": "one"])
    try await a.device.settle()
    try await b.settle()
    try await a.device.put(["title": "mine"])
    b.clock.advance(milliseconds: 60_000)
    try await b.put(["title": "theirs"])
    try await b.settle()
    try await a.device.sync(.pushOnly)
    let store = try await a.device.open()
    #expect(try store.record(id)?["title"] == "theirs")
    #expect(try store.status().unsettled == 0)
    #expect(try store.engine.remembered == [:])
  }

  @Test func `send up to 400 operations in a request`() async throws {
    var limits = ServerLimits()
    limits.operationsMax = 400
    let fleet = try Fleet(limits: limits)
    let a = NativeDevice(fleet, "a")
    let store = try await a.open()
    try await store.write { tx in
      for number in 0..<1000 {
        try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["number": .int64(Int64(number))]))
      }
    }
    try await a.device.settle()
    #expect(fleet.server.statistics.requests["records/modify"] == 3)
    #expect(fleet.server.statistics.appliedOperations == 1000)
    // A server that takes fewer is learned, and nothing is sent twice.
    let small = try Fleet()
    let b = NativeDevice(small, "b")
    try await b.open().write { tx in
      for number in 0..<500 { try tx.save(Record(type: "Note", id: RecordID("n\(number)"))) }
    }
    try await b.device.settle()
    #expect(small.server.statistics.appliedOperations == 500)
    #expect(small.server.statistics.requests["records/modify"] == 4)
  }

  @Test func `ask no more often than by the web`() async throws {
    func requests(isNative: Bool) async throws -> [String: Int] {
      let fleet = try Fleet()
      let (a, b) = (NativeDevice(fleet, "a"), NativeDevice(fleet, "b"))
      for device in [a, b] { try await device.change(toNative: isNative) }
      for round in 0..<4 {
        try await a.device.put(["title": .string("a\(round)")])
        try await b.device.put(["title": .string("b\(round)")], RecordID("m\(round)"))
        for device in [a, b, a] { try await device.device.sync() }
      }
      return fleet.server.statistics.requests
    }
    #expect(try await requests(isNative: true) == requests(isNative: false))
  }

  @Test func `learn why a zone is gone from the refusal alone`() async throws {
    for (code, info, loss) in [
      (CKError.Code.userDeletedZone, [:], ZoneLoss.purged), (.zoneNotFound, [:], .notFound),
      (.zoneNotFound, [CKErrorUserDidResetEncryptedDataKey: NSNumber(value: true)], .encryptedDataReset),
    ] as [(CKError.Code, [String: Any], ZoneLoss)] {
      let fleet = try Fleet()
      let a = NativeDevice(fleet, "a")
      try await a.open()
      try await a.device.put(["title": "one"])
      try await a.device.settle()
      let database = DatabaseKey(
        container: fleet.address.container, environment: fleet.address.environment.rawValue, scope: .private,
        user: CloudServer.defaultUser)
      try fleet.server.deleteZone("Main", in: database)
      try await a.device.put(["title": "two"])
      a.cloud.failNext(CKError(code, userInfo: info))
      await #expect(throws: StrandlineError.self) { try await a.device.sync(.pushOnly) }
      let lost = try await a.device.open().status().zones.first { $0.id == .main }?.lostReason
      #expect(lost == loss, "\(code)")
    }
  }

  @Test func `change to the other face and back in the middle of unsent edits`() async throws {
    let fleet = try Fleet()
    let (a, b) = (NativeDevice(fleet, "a"), NativeDevice(fleet, "b"))
    try await a.change(toNative: false)
    try await b.open()
    for number in 0..<5 { try await a.device.put(["title": "begin"], RecordID("n\(number)")) }
    try await a.device.settle()
    try await b.device.settle()
    for (round, isNative) in [true, false, true, true, false].enumerated() {
      try await a.device.put(["title": .string("a\(round)")], RecordID("n0"))
      try await a.device.put(["new": .string("a\(round)")], RecordID("n1"))
      try await a.device.open().write { try $0.delete(RecordID("n2")) }
      try await b.device.put(["title": .string("b\(round)")], RecordID("n1"))
      try await b.device.put(["title": .string("b\(round)")], RecordID("n3"))
      if round == 3 { try await b.device.open().write { try $0.delete(RecordID("n4")) } }
      try await b.device.settle()
      let held = try await a.device.open().status().held.count
      try await a.change(toNative: isNative)
      #expect(try await a.device.open().status().held.count == held)
      let asked = fleet.server.statistics.requests["records/lookup"] ?? 0
      try await a.device.sync()
      try await a.device.settle()
      try await b.device.settle()
      try await expectEqual(a.device, b.device)
      if isNative, round == 0 {
        #expect(
          fleet.server.statistics.requests["records/lookup"] ?? 0 > asked, "a base without an archive is looked up")
      }
      #expect(try await a.device.open().record(RecordID("n0"))?["title"] == .string("a\(round)"))
      #expect(try await b.device.open().record(RecordID("n1"))?["new"] == .string("a\(round)"))
      #expect(try await a.device.open().record(RecordID("n2")) == nil)
      try await a.device.open().write { tx in
        try tx.create(Record(type: "Note", id: RecordID("n2"), fields: ["title": "again"]))
      }
      try await a.device.settle()
      try await b.device.settle()
    }
    #expect(try await b.device.open().record(RecordID("n4")) == nil)
    try await expectEqual(a.device, b.device)
  }

  @Test func `begin the other face with a full fetch under a sweep`() async throws {
    let fleet = try Fleet()
    let (a, b) = (NativeDevice(fleet, "a"), fleet.device("b"))
    try await a.change(toNative: false)
    for number in 0..<3 { try await a.device.put(["title": "a"], RecordID("n\(number)")) }
    try await a.device.settle()
    try await b.settle()
    for (isNative, name) in [(true, "n0"), (false, "n1")] {
      try await a.device.close()
      // Deleted while nobody looked: the other face's token would have missed it.
      try await b.open().write { try $0.delete(RecordID(name)) }
      try await b.settle()
      try await a.change(toNative: isNative)
      let before = try await a.device.open().durableLSN
      try await a.device.sync()
      #expect(try await a.device.open().record(RecordID(name)) == nil, "\(name)")
      var kinds: [String] = []
      var lsn = before.advanced(by: 1)
      let store = try await a.device.open()
      while lsn <= store.durableLSN {
        if let event = try store.source.eventIfKept(at: lsn) { kinds.append(event.kindName) }
        lsn = lsn.advanced(by: 1)
      }
      #expect(kinds.contains("sweepBegan") && kinds.contains("sweepEnded"), "\(kinds)")
      let token = try #require(store.projections.withLock { $0.sync.zones[.main]?.token })
      #expect(token.isNative == isNative)
    }
    #expect(try await a.device.open().record(RecordID("n2")) != nil)
  }
}
