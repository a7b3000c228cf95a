// Devices and a cloud in one process, on simulated disks and clocks: what sync tests and the simulator stand on.
//
// Every device has a disk of its own that can lose power, a clock of its own that can be wrong by years, and reaches one
// server object through the same JSON as over a socket. Nothing sleeps.

package import Strandline
package import StrandlineCloudKit
import StrandlineLog
package import StrandlineServer
package import StrandlineSimulation
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
      controlIntervalMilliseconds: nil)
  }

  /// A new device; its store is made on first `open`.
  package func device(
    _ name: String, clockSkewMilliseconds: Int64 = 0, segmentBytesMax: Int? = nil
  ) -> Device {
    var options = Device.options
    if let segmentBytesMax { options.segmentBytesMax = segmentBytesMax }
    var hash: UInt64 = seed
    for byte in name.utf8 { hash = hash &* 31 &+ UInt64(byte) }
    return Device(
      name: name, fleet: self, seed: hash,
      clock: SimulatedClock(
        wallMilliseconds: serverClock.wallMilliseconds() + clockSkewMilliseconds, autoAdvance: true),
      options: options)
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
  private let options: StoreOptions
  private let meddler = Meddler()

  fileprivate init(name: String, fleet: Fleet, seed: UInt64, clock: SimulatedClock, options: StoreOptions) {
    self.options = options
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
    options.controlIntervalMilliseconds = nil
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
      at: "/store", syncing: configuration, options: options, environment: environment)
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
    let replayed = try replay { _, projections in projections.brokenInvariant() }
    if let broken = replayed.broken { return "\(name), replayed: \(broken)" }
    let difference = store.core.withLock { core in
      replayed.projections.difference(from: core.projections)
    }
    return difference.isEmpty ? nil : "\(name): a replay gives others: \(difference.words)"
  }

  /// Compacts the store. What was wrong with it afterwards, in words: everything that the projections point at must
  /// read as before.
  package func compact() async throws -> (report: StoreCompaction, broken: String?) {
    let store = try await open()
    let before = try contents(of: store)
    let report = try await store.compact()
    let after = try contents(of: store)
    if let lsn = before.keys.first(where: { before[$0] != after[$0] }) {
      return (report, "\(name): event \(lsn) reads otherwise after a compaction")
    }
    return (report, try await brokenInvariant())
  }

  /// The bytes of every event that the projections point at.
  private func contents(of store: RecordStore) throws -> [LSN: [UInt8]] {
    guard case .writer(let log) = store.source else { return [:] }
    let zones = store.core.withLock { $0.projections.records.zones }
    var result: [LSN: [UInt8]] = [:]
    for entry in zones.values.flatMap(\.values) {
      for lsn in [entry.base?.version, entry.base?.content, entry.pending?.newest, entry.pending?.attempted] {
        if let lsn { result[lsn] = try log.read(lsn.rawValue).body }
      }
    }
    return result
  }

  /// Folds the log anew, and stops where `check` says something.
  package func replay(
    _ check: (LSN, borrowing Projections) -> String?
  ) throws -> (projections: Projections, broken: String?) {
    guard let store = parts.withLock({ $0.store }) else { return (Projections(), "the store is not open") }
    var projections = Projections()
    var lsn = LSN(1)
    while lsn <= store.durableLSN {
      if let event = try store.source.eventIfKept(at: lsn) {
        projections.apply(event, at: lsn, isDurable: true)
        if let broken = check(lsn, projections) { return (projections, "at \(lsn): \(broken)") }
      }
      lsn = lsn.advanced(by: 1)
    }
    return (projections, nil)
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
