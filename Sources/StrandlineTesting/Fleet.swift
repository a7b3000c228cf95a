// Devices and a cloud in one process, on simulated disks and clocks: what sync tests and the simulator stand on.
//
// Every device has a disk of its own that can lose power, a clock of its own that can be wrong by years, and reaches one
// server object through the same JSON as over a socket. Nothing sleeps.

package import Strandline
package import StrandlineCloudKit
import StrandlineLog
package import StrandlineServer
import StrandlineSystem
import Synchronization

/// A server and its devices.
package final class Fleet: Sendable {
  package let server: CloudServer
  package let serverDisk = SimulatedDisk()
  package let serverClock: SimulatedClock
  package let address = CloudAddress(container: "iCloud.test")
  private let seed: UInt64

  package init(seed: UInt64 = 1, faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits()) throws {
    self.seed = seed
    serverClock = SimulatedClock(wallMilliseconds: 1_767_225_600_000, autoAdvance: true)
    let environment = SystemEnvironment(
      fileSystem: serverDisk, clock: serverClock, random: SeededRandom(seed: seed ^ 0x5E_4E_4E))
    server = try CloudServer(
      directory: "/cloud", faults: faults, limits: limits, environment: environment,
      idleMarkerMilliseconds: nil)
  }

  /// A new device; its store is made on first `open`.
  package func device(_ name: String, clockSkewMilliseconds: Int64 = 0) -> Device {
    var hash: UInt64 = seed
    for byte in name.utf8 { hash = hash &* 31 &+ UInt64(byte) }
    return Device(
      name: name, fleet: self, seed: hash,
      clock: SimulatedClock(
        wallMilliseconds: serverClock.wallMilliseconds() + clockSkewMilliseconds, autoAdvance: true))
  }

  /// How often the server has applied an operation to each record name, by its journal.
  package var applications: Int { server.statistics.appliedOperations }
}

/// A device: a store on a simulated disk, and the way to the cloud.
package final class Device: Sendable {
  package let name: String
  package let clock: SimulatedClock
  private let fleet: Fleet
  private let random: SeededRandom
  private let parts: Mutex<(disk: SimulatedDisk, store: RecordStore?)>
  private let meddler = Meddler()

  fileprivate init(name: String, fleet: Fleet, seed: UInt64, clock: SimulatedClock) {
    self.name = name
    self.fleet = fleet
    self.clock = clock
    self.random = SeededRandom(seed: seed)
    self.parts = Mutex((SimulatedDisk(), nil))
  }

  package var disk: SimulatedDisk { parts.withLock { $0.disk } }

  package var environment: StoreEnvironment {
    StoreEnvironment(SystemEnvironment(fileSystem: disk, clock: clock, random: random))
  }

  /// No idle markers: a simulated run has no thread of its own.
  package static let options: StoreOptions = {
    var options = LogOptions()
    options.idleMarkerMilliseconds = nil
    options.ballastBytes = 0
    options.upkeep = .onDemand
    return StoreOptions(log: options)
  }()

  /// The store, opened with an engine that only `sync()` moves.
  @discardableResult
  package func open(through transport: (any Transport)? = nil) async throws -> RecordStore {
    if let store = parts.withLock({ $0.store }) { return store }
    let environment = environment
    var configuration = SyncConfiguration(
      WebServicesDatabase(
        address: fleet.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
        transport: transport ?? MeddledTransport(InProcessTransport(fleet.server), meddler),
        environment: environment.system))
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: Device.options, environment: environment)
    parts.withLock { $0.store = store }
    return store
  }

  package func close() async throws {
    let store = parts.withLock { parts in
      defer { parts.store = nil }
      return parts.store
    }
    try await store?.close()
  }

  /// The power goes: what was not synced is lost as `loss` says, and the store object with it.
  package func crash(_ loss: CrashLoss = .none) {
    parts.withLock { parts in
      parts.disk = parts.disk.imageAfterCrash(loss)
      parts.store = nil
    }
  }

  /// The device's disk becomes a copy of another's: restored from a backup, or cloned.
  package func restore(from image: SimulatedDisk) {
    parts.withLock { parts in
      parts.disk = image.clone()
      parts.store = nil
    }
  }

  /// What happens on this device while a request is under way: the app goes on living during a cycle.
  package func whileAsking(_ body: (@Sendable () -> Void)?) { meddler.body.withLock { $0 = body } }

  /// One cycle.
  @discardableResult
  package func sync(
    _ direction: CycleOptions.Direction = .both, waitMillisecondsMax: Int64? = 30_000
  ) async throws -> SyncReport {
    var options = CycleOptions()
    options.direction = direction
    options.waitMillisecondsMax = waitMillisecondsMax
    return try await open().sync.cycle(options)
  }

  /// Everything that the app sees, one line a record, in the order of zone and name.
  package func dump() async throws -> [String] {
    var lines: [String] = []
    try await open().forEachRecord { record in
      let fields = record.fields.sorted { $0.key.precedesByUTF8($1.key) }.map { "\($0.key)=\($0.value)" }
      lines.append("\(record.id) \(record.type) \(record.parent ?? "-") \(fields.joined(separator: " "))")
    }
    return lines
  }

  /// The first relation between the projections that does not hold; nil if all do. Also held against what a fresh
  /// replay of the log makes of it.
  package func brokenInvariant() async throws -> String? {
    let store = try await open()
    if let broken = store.core.withLock({ $0.projections.brokenInvariant() }) { return "\(name): \(broken)" }
    var replayed = Projections()
    var lsn = LSN(1)
    while lsn <= store.durableLSN {
      defer { lsn = lsn.advanced(by: 1) }
      guard let event = try store.source.eventIfThere(at: lsn) else { continue }
      replayed.apply(event, at: lsn, isDurable: true)
      if let broken = replayed.brokenInvariant() { return "\(name), replayed to \(lsn): \(broken)" }
    }
    return store.core.withLock { core in
      if replayed.records.zones != core.projections.records.zones { return "\(name): a replay gives other records" }
      if replayed.deletions.entries != core.projections.deletions.entries {
        return "\(name): a replay gives another deletion index"
      }
      if replayed.outbox.all != core.projections.outbox.all { return "\(name): a replay gives another outbox" }
      return nil
    }
  }
}

/// What a device does while it waits for an answer.
private final class Meddler: Sendable {
  let body: Mutex<(@Sendable () -> Void)?> = Mutex(nil)
}

/// A way to the server on which the app's own life goes on.
private struct MeddledTransport: Transport {
  let base: any Transport
  let meddler: Meddler

  init(_ base: any Transport, _ meddler: Meddler) {
    self.base = base
    self.meddler = meddler
  }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    let response = try await base.send(request)
    meddler.body.withLock { $0 }?()
    return response
  }
}
