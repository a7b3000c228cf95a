// Several devices and a server in one process, on simulated disks and clocks, for the sync tests and the simulation.
//
// Each device has a disk that can lose power and a clock that can be wrong by years, and exchanges the same JSON with the
// server as over a socket. Nothing sleeps.

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
  package let address = CloudAddress(container: "iCloud.test", environment: .development)
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

  /// Makes a device, whose store is created at the first `open`.
  package func device(
    _ name: String, clockSkewMilliseconds: Int64 = 0, segmentBytesMax: Int? = nil, transactionBytesMax: Int? = nil
  ) -> Device {
    var options = Device.options
    if let transactionBytesMax { options.log.transactionBytesMax = transactionBytesMax }
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

/// A device: a store on a simulated disk that syncs with the fleet's server.
package final class Device: Sendable {
  package let name: String
  package let clock: SimulatedClock
  private let fleet: Fleet
  private let random: SeededRandom
  private let parts: Mutex<(disk: SimulatedDisk, store: RecordStore?)>
  private let options: StoreOptions
  private let afterRequest = RequestHook()
  /// The events after which the invariants were found to hold.
  private let checked: Mutex<[LogEvent]> = Mutex([])

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

  /// Options without idle markers and background work, so that a simulated run has no other threads.
  package static let options: StoreOptions = {
    var options = LogOptions()
    options.controlIntervalMilliseconds = nil
    options.ballastBytes = 0
    options.upkeep = .onDemand
    // Runs after a handful of changes, so that a short life has many, and merges them.
    var index = IndexOptions()
    index.flushCount = 6
    index.closeCount = 3
    index.mergeWidth = 3
    return StoreOptions(log: options, index: index)
  }()

  /// Opens the store, or returns it if it is open. Its engine syncs only in `sync()`; with another cloud than the fleet's
  /// if `database` is not nil. `conflicts`, `schema`, `atomicZones` and `firstFetch` count if the store was not open.
  @discardableResult
  package func open(
    through transport: (any Transport)? = nil, database: (any CloudDatabase)? = nil,
    conflicts: ConflictRules = ConflictRules(), schema: Schema = Schema(), atomicZones: Set<ZoneID> = [],
    firstFetch: FirstFetch = .pageByPage, configure: (inout SyncConfiguration) -> Void = { _ in }
  ) async throws -> RecordStore {
    if let store = parts.withLock({ $0.store }) { return store }
    let environment = environment
    var configuration = SyncConfiguration(
      database
        ?? web(through: transport ?? HookedTransport(InProcessTransport(fleet.server), afterRequest)))
    configuration.isAutomatic = false
    configuration.firstFetch = firstFetch
    configure(&configuration)
    var options = options
    (options.conflicts, options.schema, options.atomicZones) = (conflicts, schema, atomicZones)
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: options, environment: environment)
    parts.withLock { $0.store = store }
    return store
  }

  /// The client of the fleet's server.
  package func web(through transport: (any Transport)? = nil) -> WebServicesDatabase {
    WebServicesDatabase(
      address: fleet.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
      transport: transport ?? InProcessTransport(fleet.server), environment: environment.system)
  }

  package func close() async throws {
    let store = parts.withLock { parts in
      defer { parts.store = nil }
      return parts.store
    }
    try await store?.close()
  }

  /// Cuts the power: unsynced changes are lost as `loss` says, and the open store is dropped.
  package func crash(_ loss: CrashLoss = .none) {
    parts.withLock { parts in
      parts.disk = parts.disk.imageAfterCrash(loss)
      parts.store = nil
    }
  }

  /// Replaces the device's disk by a copy of `image`, as a restored backup or a clone does.
  package func restore(from image: SimulatedDisk) {
    parts.withLock { parts in
      parts.disk = image.clone()
      parts.store = nil
    }
  }

  /// Sets what the app on this device does during a sync cycle: `body` runs after each answer, before the engine gets
  /// it. nil for nothing.
  package func whileAsking(_ body: (@Sendable () -> Void)?) { afterRequest.body.withLock { $0 = body } }

  /// Runs one sync cycle, as a person asks for it or as the engine begins it by itself.
  @discardableResult
  package func sync(
    _ direction: CycleOptions.Direction = .both, waitMillisecondsMax: Int64? = 30_000, isUserInitiated: Bool = true
  ) async throws -> SyncReport {
    var options = CycleOptions()
    options.isUserInitiated = isUserInitiated
    options.direction = direction
    options.waitMillisecondsMax = waitMillisecondsMax
    return try await open().engine.cycle(options)
  }

  /// All records that the app sees, one on each line, ordered by zone and name.
  package func dump() async throws -> [String] {
    var lines: [String] = []
    try await open().forEachRecord { record in
      let fields = record.fields.sorted { $0.key.precedesByUTF8($1.key) }.map { "\($0.key)=\($0.value)" }
      lines.append("\(record.id) \(record.type) \(record.parent ?? "-") \(fields.joined(separator: " "))")
    }
    return lines
  }

  /// Returns the first invariant of the projections that does not hold, or nil. Also compares the projections with those
  /// of a new replay of the log.
  package func brokenInvariant() async throws -> String? {
    let store = try await open()
    if let broken = store.projections.withLock({ $0.brokenInvariant() }) { return "\(name): \(broken)" }
    let replayed = try replay()
    if let broken = replayed.broken { return "\(name), replayed: \(broken)" }
    let difference = try store.projections.withLock { (state) throws(StrandlineError) in
      try replayed.projections.difference(from: state)
    }
    return difference.isEmpty ? nil : "\(name): a replay of the log gives other projections: \(difference.words)"
  }

  /// Compacts the store. `broken` says what is wrong afterwards, or is nil: every event that the projections refer to
  /// must read as before.
  package func compact(
    keeping history: HistoryRetention = .latest
  ) async throws -> (report: StoreCompaction, broken: String?) {
    let store = try await open()
    let before = try contents(of: store)
    let report = try await store.compact(keeping: history)
    let after = try contents(of: store)
    if let lsn = before.keys.first(where: { before[$0] != after[$0] }) {
      return (report, "\(name): event \(lsn) has other bytes after a compaction")
    }
    return (report, try await brokenInvariant())
  }

  /// The bytes of every event that the projections refer to.
  private func contents(of store: RecordStore) throws -> [LSN: [UInt8]] {
    guard case .writer(let log) = store.source else { return [:] }
    let entries = try store.projections.withLock { (state) throws(StrandlineError) in try state.allEntries() }
    let attempted = store.projections.withLock { $0.outbox.attempted.all() }
    var result: [LSN: [UInt8]] = [:]
    for entry in entries.values {
      for lsn in [entry.base?.version, entry.base?.content, entry.pending?.newest] {
        if let lsn { result[lsn] = try log.read(lsn.rawValue).body }
      }
    }
    for lsn in attempted { result[lsn] = try log.read(lsn.rawValue).body }
    return result
  }

  /// Applies all events of the log to new projections. Stops at the first event after which an invariant does not hold.
  ///
  /// A check takes as long as there are records. So in a store of 32 and more not every event has one, and an event
  /// has none if it and those before it are, byte for byte, the ones that were checked by the last replay.
  private func replay() throws -> (projections: Projections, broken: String?) {
    guard let store = parts.withLock({ $0.store }) else { return (Projections(), "the store is not open") }
    var projections = Projections()
    let known = checked.withLock { $0 }
    var events: [LogEvent] = []
    var isKnown = true
    var lsn = LSN(1)
    while lsn <= store.durableLSN {
      if let found = try store.source.readIfKept(lsn.rawValue) {
        try projections.apply(found.decoded(), at: lsn, isDurable: true)
        isKnown = isKnown && events.count < known.count && known[events.count].hasContent(of: found)
        // Spread, so that of pairs of events not always the same one is checked.
        let number = (lsn.rawValue &* 0x9E37_79B9_7F4A_7C15) >> 32
        let isDue = number % UInt64(1 + projections.records.count / 32) == 0 || lsn == store.durableLSN
        if !isKnown, isDue, let broken = projections.brokenInvariant() { return (projections, "at \(lsn): \(broken)") }
        events.append(found)
      }
      lsn = lsn.advanced(by: 1)
    }
    checked.withLock { $0 = events }
    return (projections, projections.brokenInvariant())
  }
}

extension LogEvent {
  /// Whether the other event is this one; compaction may have moved it.
  fileprivate func hasContent(of other: LogEvent) -> Bool {
    lsn == other.lsn && schema == other.schema && body == other.body
  }
}

/// What the app on a device does during a request.
private final class RequestHook: Sendable {
  let body: Mutex<(@Sendable () -> Void)?> = Mutex(nil)
}

/// A transport that runs the hook after each answer, before it returns the answer to the engine.
private struct HookedTransport: Transport {
  let base: any Transport
  let hook: RequestHook

  init(_ base: any Transport, _ hook: RequestHook) {
    self.base = base
    self.hook = hook
  }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    let response = try await base.send(request)
    hook.body.withLock { $0 }?()
    return response
  }
}
