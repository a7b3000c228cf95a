// What the server's tests share: a server in memory with a stopped clock, and short functions for requests.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Synchronization

/// A clock that moves only when a test sets it, and does not sleep.
final class StillClock: SystemClock {
  private let now = Mutex<Int64>(1_767_225_600_000)
  func wallMilliseconds() -> Int64 { now.withLock { $0 } }
  func monotonicNanoseconds() -> UInt64 { UInt64(wallMilliseconds()) * 1_000_000 }
  func sleep(milliseconds: Int64) async throws { advance(milliseconds) }
  func sleepBlocking(milliseconds: Int64) { advance(milliseconds) }
  func advance(_ milliseconds: Int64) { now.withLock { $0 += milliseconds } }
}

/// A clock whose monotonic time goes on by a pace with each look at it.
final class PacedClock: SystemClock {
  let pace = Mutex<UInt64>(0)
  private let now = Mutex<UInt64>(1)
  func wallMilliseconds() -> Int64 { 1_767_225_600_000 }
  func monotonicNanoseconds() -> UInt64 {
    let pace = pace.withLock { $0 }
    return now.withLock { now in
      now += pace
      return now
    }
  }
  func sleep(milliseconds: Int64) async throws {}
  func sleepBlocking(milliseconds: Int64) {}
}

extension SystemEnvironment {
  static func still() -> SystemEnvironment {
    SystemEnvironment(fileSystem: POSIXFileSystem(), clock: StillClock(), random: SeededRandom(seed: 7))
  }
}

extension CloudServer {
  static func still(faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits()) -> CloudServer {
    CloudServer(inMemory: .still(), faults: faults, limits: limits)
  }

  /// The client on a private database of this server.
  func client(session: WebSession? = nil) -> WebServicesDatabase {
    WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: session,
      baseURL: "http://127.0.0.1:1",
      transport: InProcessTransport(self), environment: .still())
  }
}

let notes = ZoneID("Notes")
let database = DatabaseKey(
  container: "iCloud.test", environment: "development", scope: .private, user: CloudServer.defaultUser)

extension CloudResult {
  var record: ServerRecord? { if case .record(let record) = self { record } else { nil } }
  var error: CloudError? { if case .failed(let error, _) = self { error } else { nil } }
  var code: CloudError.Code? { error?.code }
  var isDeleted: Bool { if case .deleted = self { true } else { false } }
}

extension WebServicesDatabase {
  /// One operation, not atomic.
  func one(_ operation: CloudOperation, in zone: ZoneID = notes) async throws -> CloudResult? {
    try await modify([operation], in: zone, atomic: false)[operation.name]
  }

  /// Creates a note and returns its tag.
  @discardableResult
  func note(_ name: String, _ fields: [String: FieldValue?] = ["title": "t"]) async throws -> String? {
    try await one(CloudOperation(.create, name: name, type: "Note", fields: fields))?.record?.system.changeTag
  }

  /// All changes to the end.
  func everything(
    in zone: ZoneID = notes, since token: ChangeToken? = nil, limit: Int = 200
  ) async throws -> (changes: [ZoneChange], token: ChangeToken?, pages: Int) {
    var token = token
    var changes: [ZoneChange] = []
    var pages = 0
    while true {
      let page = try await zoneChanges(in: zone, since: token, limit: limit)
      changes += page.changes
      token = page.token
      pages += 1
      if !page.moreComing { return (changes, token, pages) }
    }
  }
}

extension ZoneChange {
  var name: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name), .failed(let name, _): name
    }
  }
  /// "a" for a living record, "-a" for a tombstone.
  var mark: String {
    switch self {
    case .saved(let record): record.name
    case .deleted(let name): "-" + name
    case .failed(let name, _): "!" + name
    }
  }
}

/// Environments with another seed.
enum SystemEnvironmentSeed {
  static var other: SystemEnvironment {
    var environment = SystemEnvironment.still()
    environment.random = SeededRandom(seed: 8)
    return environment
  }
}

extension CloudDatabase {
  private func page(_ query: ZoneQuery) async throws -> ZonePage {
    guard let answer = try await zoneChanges(of: [query])[query.zone] else {
      throw CloudError(.unexpectedServerResponse, reason: "the answer says nothing of zone '\(query.zone)'")
    }
    return try answer.get()
  }

  /// The page of one zone.
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await page(ZoneQuery(zone, since: token, limit: limit))
  }

  /// The same without the values of fields.
  func zoneListing(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await page(ZoneQuery(zone, since: token, limit: limit, listsOnly: true))
  }
}
