// `bench sync`: what the engine itself costs. How many requests it makes when nothing is to be done, how long an edit takes
// from one device to another, whether unsent and held records make it slower, how long it thinks before it sends the first of
// very many, and how fast the random worlds run.
//
// The rows of whole processes that sync real records are those of `bench wire`, which makes them here too.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLogBench
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting

/// The benchmark of the engine.
struct SyncBench: Benchmark {
  var bench: BenchRun
  private let work: WorkDirectory
  private let isQuick: Bool
  private var progress: Progress
  /// The milliseconds at the smaller size, by the row's name.
  private var halves: [String: Double] = [:]

  /// The rows. A test compares them with the output.
  static let works =
    ["sync.idle", "sync.edit", "sync.backlog", "sync.holds", "sync.plan", "sync.simulate", "sync.fleet"]
    + WireBench.storeWorks.filter { $0.hasPrefix(prefix) }
  /// With what the names of all rows begin.
  static let prefix = "sync."

  init(_ bench: BenchRun, _ work: WorkDirectory, isQuick: Bool) {
    self.bench = bench
    self.work = work
    self.isQuick = isQuick
    progress = Progress(work.console)
  }

  mutating func run() async throws {
    defer { progress.end() }
    try await measureIdle()
    try await measureEdit()
    for factor in 1...2 {
      try await measureBacklog(factor)
      try await measureHolds(factor)
    }
    try measurePlan()
    try await measureWorlds()
    try await measureFleet()
    var wire = WireBench(bench, work, real: [], isQuick: isQuick)
    try await wire.measureProcesses()
    bench = wire.bench
  }

  /// Whether a row is wanted, and says that it is measured.
  private mutating func begins(_ work: String, _ factor: Int = 1) throws -> Bool {
    let name = work + (factor == 1 ? "" : ".x2")
    // What grows needs the figure at the smaller size.
    guard name.hasPrefix(bench.prefix) || (work + ".x2").hasPrefix(bench.prefix) else { return false }
    try checkInterrupt()
    progress.update("measuring \(name)")
    return true
  }

  // MARK: Rows

  private mutating func measureIdle() async throws {
    guard try begins("sync.idle") else { return }
    let store = try await open("idle", cloud: BenchCloud(environment))
    try await store.write { tx in try tx.save(Self.record("n0")) }
    // The last of them fetches what the first one has uploaded.
    for _ in 0..<3 { _ = try await store.engine.cycle(CycleOptions()) }
    let before = store.durableLSN
    let report = try await store.engine.cycle(CycleOptions())
    guard store.durableLSN == before else {
      throw BenchFailure(description: "a sync with nothing to do wrote to the log")
    }
    var row = BenchRow(
      work: "sync.idle", unit: "count", ours: Double(report.requests), residentBytes: Measures.peakBytes, rounds: 1)
    row.atMost(1)
    add(row)
    try await remove(store)
  }

  /// From the write on one device until an app on another one sees it: both engines run by themselves, without the times that they
  /// leave between a cause and its run, and the other one gets a push.
  private mutating func measureEdit() async throws {
    guard try begins("sync.edit") else { return }
    guard environment.fileSystem is POSIXFileSystem else {
      return work.console.say(
        "note: the benchmark is not on the real file system, where it could start a server: without sync.edit")
    }
    let folder = work("edit-server")
    let server = try work.startServer(folder)
    let outcome: Result<[Double], any Error>
    do { outcome = .success(try await measureEdits(server.url)) } catch { outcome = .failure(error) }
    let stopped = Result { try work.stop(server) }
    let seconds = try outcome.get()
    try stopped.get()
    try environment.fileSystem.unlink(server.errorPath)
    try environment.fileSystem.removeTree(folder)
    addMilliseconds("sync.edit", 1, seconds) { $0.atMost(50) }
  }

  private func measureEdits(_ url: String) async throws -> [Double] {
    let stores = try await [open("edit-a", url: url), open("edit-b", url: url)]
    var seconds: [Double] = []
    var arrivals = stores[1].observe(RecordID("n0")).makeAsyncIterator()
    for number in 0..<(isQuick ? 3 : 60) {
      try checkInterrupt()
      let begin = environment.clock.monotonicNanoseconds()
      try await stores[0].write { tx in try tx.save(Self.record("n0", number)) }.uploaded()
      // As a push would tell it.
      try stores[1].engine.wake(.push)
      var arrived: Record??
      repeat {
        arrived = try await arrivals.next()
      } while arrived != nil && arrived??["number"] != .int64(Int64(number))
      if arrived == nil { throw BenchFailure(description: "an edit did not arrive") }
      // The first ones bind the stores and create the zone.
      if number > 1 { seconds.append(Double(environment.clock.monotonicNanoseconds() - begin) / 1e9) }
    }
    for store in stores { try await remove(store) }
    return seconds
  }

  /// What it costs to plan the next request when so many records are unsent.
  private mutating func measureBacklog(_ factor: Int) async throws {
    guard try begins("sync.backlog", factor) else { return }
    let store = try await open("backlog", cloud: BenchCloud(environment))
    try await fill(store, (isQuick ? 1_000 : 100_000) * factor, "Note")
    try await store.write { tx in try tx.save(Self.record("edit")) }
    var seconds: [Double] = []
    for _ in 0..<(isQuick ? 3 : 200) {
      try checkInterrupt()
      let begin = environment.clock.monotonicNanoseconds()
      guard try store.planUpload(to: .private) > 0 else { throw BenchFailure(description: "nothing is planned") }
      seconds.append(Double(environment.clock.monotonicNanoseconds() - begin) / 1e9)
    }
    try await remove(store)
    addMilliseconds("sync.backlog", factor, seconds) { $0.atMost(1) }
  }

  /// What an edit costs, with its request to a server in this process, when so many records are held.
  private mutating func measureHolds(_ factor: Int) async throws {
    guard try begins("sync.holds", factor) else { return }
    let cloud = BenchCloud(environment)
    let store = try await open("holds", cloud: cloud)
    let count = (isQuick ? 400 : 8_000) * factor
    try await fill(store, count, BenchCloud.refusedType)
    var options = CycleOptions()
    options.asksForChanges = false
    _ = try await store.engine.cycle(options)
    guard try store.status().held.count == count else {
      throw BenchFailure(description: "\(try store.status().held.count) records are held, not \(count)")
    }
    var seconds: [Double] = []
    for number in 0..<(isQuick ? 3 : 60) {
      try checkInterrupt()
      let begin = environment.clock.monotonicNanoseconds()
      try await store.write { tx in try tx.save(Self.record("edit", number)) }
      guard try await store.engine.cycle(options).uploaded == 1 else {
        throw BenchFailure(description: "an edit beside held records was not uploaded")
      }
      seconds.append(Double(environment.clock.monotonicNanoseconds() - begin) / 1e9)
    }
    try await remove(store)
    addMilliseconds("sync.holds", factor, seconds) { _ in }
  }

  /// The plan alone, without a store, tasks and a disk: from the begin of a cycle in a new process to its first upload. It reads one
  /// window of the log, however much is pending.
  private mutating func measurePlan() throws {
    let larger = "sync.plan.x100"
    guard larger.hasPrefix(bench.prefix) || bench.prefix.hasPrefix("sync.plan") else { return }
    var before: Double?
    for (name, count) in [("sync.plan", 10_000), (larger, 1_000_000)] {
      try checkInterrupt()
      progress.update("measuring \(name)")
      var seconds: [Double] = []
      for _ in 0..<(isQuick ? 3 : 200) {
        let facts = PendingFacts(count, environment.clock)
        let begin = environment.clock.monotonicNanoseconds()
        let records = try facts.firstUpload(environment.random)
        seconds.append(Double(environment.clock.monotonicNanoseconds() - begin) / 1e9)
        guard records > 0 else { throw BenchFailure(description: "nothing is planned") }
      }
      let median = Self.median(seconds) * 1_000
      var row = BenchRow(
        work: name, unit: "ms", ours: median, residentBytes: Measures.peakBytes, max: seconds.max().map { $0 * 1_000 },
        rounds: seconds.count)
      row.atMost(50)
      if let before { row.grows(median / max(before, 1e-9), atMost: 1.5) }
      before = median
      add(row)
    }
  }

  private mutating func measureWorlds() async throws {
    guard try begins("sync.simulate") else { return }
    var rates: [Double] = []
    for round in 0..<(isQuick ? 1 : min(3, bench.rounds)) {
      let begin = environment.clock.monotonicNanoseconds()
      var milliseconds: Int64 = 0
      for number in 0..<(isQuick ? 1 : 60) {
        try checkInterrupt()
        let outcome = await SimulatedWorld(seed: UInt64(round * 1_000 + number)).run(keepsHistory: false)
        if let failure = outcome.failure { throw BenchFailure(description: failure.message) }
        milliseconds += outcome.tally.deviceMilliseconds
      }
      let seconds = Double(environment.clock.monotonicNanoseconds() - begin) / 1e9
      rates.append(Double(milliseconds) / 86_400_000 / max(seconds, 1e-6))
    }
    var row = BenchRow(
      work: "sync.simulate", unit: "1/s", ours: Self.median(rates), residentBytes: Measures.peakBytes,
      max: rates.max(), rounds: rates.count)
    row.atLeast(200)
    add(row)
  }

  /// The requests of the busiest 5 minutes after an outage, in percent of the mean.
  private mutating func measureFleet() async throws {
    guard try begins("sync.fleet") else { return }
    var shape = FleetShape()
    if isQuick { (shape.devices, shape.days) = (4, 2) }
    let outcome = try await FleetLoad.run(shape) { _ in try checkInterrupt() }
    if !isQuick, let missed = outcome.missed.first { throw BenchFailure(description: missed) }
    var row = BenchRow(
      work: "sync.fleet", unit: "count", ours: outcome.peak / outcome.mean * 100, residentBytes: Measures.peakBytes,
      rounds: 1)
    row.atMost(FleetOutcome.peakRatioMax * 100)
    add(row)
  }

  /// Adds a row of a time, that of the larger size with the bar that it does not grow.
  private mutating func addMilliseconds(
    _ work: String, _ factor: Int, _ seconds: [Double], _ bar: (inout BenchRow) -> Void
  ) {
    let sorted = seconds.sorted()
    let median = Self.median(seconds) * 1_000
    var row = BenchRow(
      work: work + (factor == 1 ? "" : ".x2"), unit: "ms", ours: median, residentBytes: Measures.peakBytes,
      max: sorted.last.map { $0 * 1_000 }, p50: median * 1_000,
      p99: sorted.isEmpty ? nil : sorted[Int(Double(sorted.count - 1) * 0.99)] * 1e6, rounds: sorted.count)
    bar(&row)
    if factor == 1 {
      halves[work] = median
    } else if let half = halves[work] {
      row.grows(median / max(half, 1e-9), atMost: 1.5)
    }
    add(row)
  }

  // MARK: Stores

  private static func record(_ name: String, type: String = "Note", _ number: Int = 0) -> Record {
    Record(type: type, id: RecordID(name), fields: ["title": .string(name), "number": .int64(Int64(number))])
  }

  private func fill(_ store: RecordStore, _ count: Int, _ type: String) async throws {
    for begin in stride(from: 0, to: count, by: 1_000) {
      try checkInterrupt()
      try await store.write { tx in
        for number in begin..<min(count, begin + 1_000) {
          try tx.save(Self.record("n\(number)", type: type, number))
        }
      }
    }
  }

  private func open(_ name: String, cloud: BenchCloud) async throws -> RecordStore {
    try await open(name, SyncConfiguration(cloud))
  }

  private func open(_ name: String, url: String) async throws -> RecordStore {
    let timeout = work.console.requestTimeout
    return try await open(
      name,
      SyncConfiguration { storePath, environment in
        WebServicesDatabase(
          address: BenchCloud.address, apiToken: "",
          session: try WebSession(path: storePath + "/session", environment: environment.system), baseURL: url,
          transport: NetworkTransport(timeout: timeout), environment: environment.system)
      }, isAutomatic: true)
  }

  private func open(
    _ name: String, _ configuration: SyncConfiguration, isAutomatic: Bool = false
  ) async throws -> RecordStore {
    var configuration = configuration
    configuration.isAutomatic = isAutomatic
    (configuration.pace.debounce, configuration.pace.spread) = (.zero, .zero)
    return try await RecordStore.open(
      at: path(name), syncing: configuration, environment: StoreEnvironment(environment))
  }

  private func remove(_ store: RecordStore) async throws {
    try await store.close()
    try environment.fileSystem.removeTree(store.path)
  }
}

/// A server in this process that refuses the records of one type, each with words of its own.
private struct BenchCloud: ForwardingDatabase {
  static let address = CloudAddress(container: "iCloud.bench", environment: .development)
  static let refusedType = "Refused"
  let base: any CloudDatabase

  init(_ environment: SystemEnvironment) {
    let random = SeededRandom(seed: 1)
    let server = CloudServer(
      inMemory: SystemEnvironment(fileSystem: SimulatedDisk(), clock: environment.clock, random: random))
    base = WebServicesDatabase(
      address: Self.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
      transport: InProcessTransport(server), environment: environment)
  }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    var results: [CloudName: CloudResult] = [:]
    for operation in operations where operation.type == Self.refusedType {
      let error = CloudError(.badRequest, reason: "'\(operation.name)' is wrong")
      results[operation.name] = .failed(error, serverRecord: nil)
    }
    let others = operations.filter { $0.type != Self.refusedType }
    if others.isEmpty { return results }
    return try await base.modify(others, in: zone, atomic: atomic).merging(results) { $1 }
  }
}
