// What a test of several devices does with one of them, in a line each; and a cloud that shows a change later than the
// server would.

import Strandline
import StrandlineCloudKit
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Device {
  /// Saves fields of a note; one of nil is removed.
  func put(_ name: String, _ fields: [String: FieldValue?], type: String = "Note") async throws {
    try await open().write { tx in
      var record = try tx.record(RecordID(name)) ?? Record(type: type, id: RecordID(name), fields: [:])
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
    try await verify()
  }

  /// Begins a new life of a note.
  func create(_ name: String, _ fields: [String: FieldValue], type: String = "Note") async throws {
    try await open().write { tx in try tx.create(Record(type: type, id: RecordID(name), fields: fields)) }
    try await verify()
  }

  func remove(_ name: String) async throws {
    try await open().write { tx in try tx.delete(RecordID(name)) }
    try await verify()
  }

  /// A field of a note; nil also if the note does not live.
  func value(_ name: String, _ field: String = "title") async throws -> FieldValue? {
    try await open().record(RecordID(name))?[field]
  }

  func lives(_ name: String) async throws -> Bool { try await open().record(RecordID(name)) != nil }

  /// One cycle, after which every invariant holds.
  @discardableResult
  func exchange(_ direction: CycleOptions.Direction = .both) async throws -> SyncReport {
    let report = try await sync(direction)
    try await verify()
    return report
  }

  func verify() async throws {
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }
}

/// Syncs the devices in this order.
func exchange(_ devices: Device...) async throws { for device in devices { try await device.exchange() } }

/// Expects that all devices show the same, and that nothing is owed, held or blocked on any.
func expectAgreement(_ devices: Device..., sourceLocation: SourceLocation = #_sourceLocation) async throws {
  let first = try await devices[0].dump()
  for device in devices {
    #expect(try await device.dump() == first, "\(device.name)", sourceLocation: sourceLocation)
    let status = try await device.open().status()
    #expect(status.unsettled == 0, "\(device.name)", sourceLocation: sourceLocation)
    #expect(status.openBlocks == 0, "\(device.name)", sourceLocation: sourceLocation)
    #expect(status.held.isEmpty, "\(device.name)", sourceLocation: sourceLocation)
  }
}

/// A cloud that shows changes in a page that the server shows no more, as one whose replica lags does.
final class LateCloud: CloudDatabase {
  private let base: any CloudDatabase
  private let late: Mutex<[ZoneChange]> = Mutex([])

  init(_ base: any CloudDatabase) { self.base = base }

  /// The next page begins with these changes.
  func showAgain(_ changes: ZoneChange...) { late.withLock { $0 += changes } }

  /// The version of a note that the server holds now.
  func current(_ name: String) async throws -> ServerRecord {
    guard case .record(let record)? = try await base.lookup([name], in: RecordID(name).zone)[name] else {
      throw CloudError(.notFound, reason: "the test expects '\(name)' to live")
    }
    return record
  }

  var address: CloudAddress { base.address }
  func user() async throws -> String { try await base.user() }
  func zones() async throws -> [ZoneID] { try await base.zones() }
  func createZone(_ zone: ZoneID) async throws { try await base.createZone(zone) }
  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [String: CloudResult] {
    try await base.modify(operations, in: zone, atomic: atomic)
  }
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [String: CloudResult] {
    try await base.lookup(names, in: zone)
  }
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    var page = try await base.zoneChanges(in: zone, since: token, limit: limit)
    let again = late.withLock { late in
      defer { late = [] }
      return late
    }
    page.changes = again + page.changes
    return page
  }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await base.databaseChanges(since: token, limit: limit)
  }
}
