// What a test of several devices does with one of them, in a line each; and a cloud that shows a change later than the
// server would.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
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

extension Fleet {
  /// The private database of the user.
  var database: DatabaseKey {
    DatabaseKey(
      container: address.container, environment: address.environment.rawValue, scope: .private,
      user: CloudServer.defaultUser)
  }

  /// A server that has what the disk of this one had when the image was made.
  func server(of image: SimulatedDisk) throws -> CloudServer {
    try CloudServer(
      directory: "/cloud",
      environment: SystemEnvironment(fileSystem: image, clock: serverClock, random: SeededRandom(seed: 9)),
      controlIntervalMilliseconds: nil)
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
final class LateCloud: ZoneByZoneDatabase {
  let base: any CloudDatabase
  private let late: Mutex<[ZoneChange]> = Mutex([])
  private let unreadable: Mutex<[String: ServerRecord]> = Mutex([:])
  private let replacement: Mutex<ZoneChange?> = Mutex(nil)
  private let lookups = Mutex(0)

  init(_ base: any CloudDatabase) { self.base = base }

  /// The next page begins with these changes.
  func showAgain(_ changes: ZoneChange...) { late.withLock { $0 += changes } }

  /// The next page has this change in place of what the server says of the same record.
  func replaceNext(_ change: ZoneChange) { replacement.withLock { $0 = change } }

  /// A note cannot be read from now on.
  func breakRecord(_ name: String) async throws {
    let record = try await current(name)
    unreadable.withLock { $0[name] = record }
  }

  /// Notes can be read again, where they are asked for.
  func mendRecords() { unreadable.withLock { $0 = [:] } }

  /// What is known of a note that cannot be read.
  func defect(of name: String) -> CloudError {
    var error = CloudError(.unexpectedServerResponse, reason: "the record cannot be read")
    error.raw = Array(name.utf8)
    return error
  }

  /// This version can read what was kept of the notes.
  let canRead = Mutex(false)

  private let readAgain = Mutex(0)
  /// How often what was kept was read again.
  var readAgainCount: Int { readAgain.withLock { $0 } }

  func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? {
    readAgain.withLock { $0 += 1 }
    guard canRead.withLock({ $0 }) else { return nil }
    return unreadable.withLock { $0[String(decoding: raw, as: UTF8.self)] }
  }

  /// How many records were looked up.
  var lookupCount: Int { lookups.withLock { $0 } }

  /// The version of a note that the server holds now.
  func current(_ name: String) async throws -> ServerRecord {
    guard case .record(let record)? = try await base.lookup([name], in: RecordID(name).zone)[name] else {
      throw CloudError(.notFound, reason: "the test expects '\(name)' to live")
    }
    return record
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    lookups.withLock { $0 += names.count }
    var found = try await base.lookup(names, in: zone)
    for name in unreadable.withLock({ Array($0.keys) }) where found[name] != nil {
      found[name] = .failed(defect(of: name), serverRecord: nil)
    }
    return found
  }
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    var page = try await base.zoneChanges(in: zone, since: token, limit: limit)
    let again = late.withLock { late in
      defer { late = [] }
      return late
    }
    let replaced = replacement.withLock { replacement in
      defer { replacement = nil }
      return replacement
    }
    if let replaced { page.changes.removeAll { $0.name == replaced.name } }
    page.changes = again + [replaced].compactMap(\.self) + page.changes
    return page
  }
}

extension ZoneChange {
  fileprivate var name: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name), .failed(let name, _): name
    }
  }
}
