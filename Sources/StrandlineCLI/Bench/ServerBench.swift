// The rows of `bench wire` that measure `strandline serve`: lookups and durable modifies over 50 connections, and a mixed
// load over 200 that is disturbed.
//
// The server runs as a process of its own on the real disk, the load in this one: each connection has a thread, which
// sends its next request when it has the answer. Both share the machine's processors, as the figures' bars assume.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem
import Synchronization

/// The benchmark of the local server.
struct ServerBench: Benchmark {
  var bench: BenchRun
  private let work: WorkDirectory
  private let records: [Record]
  private let isQuick: Bool
  private let isSoak: Bool
  private var progress: Progress
  /// The seconds of one request at the smaller size, by the row's name.
  private var halves: [String: Double] = [:]

  /// The rows. A test compares them with the output.
  static let works = ["server.lookup", "server.modify", "server.rss"]
  static let container = "iCloud.org.strandline.load"
  static let zone = ZoneID("Load")
  /// The records of one request.
  static let batch = 10
  private static let connections = 50

  /// - Parameters:
  ///   - real: records whose fields those of the load have; if it is empty, they are made from a seed.
  ///   - isSoak: whether the mixed load runs for ten minutes.
  init(_ bench: BenchRun, _ work: WorkDirectory, real: [Record], isQuick: Bool, isSoak: Bool) {
    self.bench = bench
    self.work = work
    records = real.isEmpty ? (0..<100).map { BenchNote.record($0, StoreBench.data) } : real
    self.isQuick = isQuick
    self.isSoak = isSoak
    progress = Progress(work.console)
  }

  mutating func run() async throws {
    // A process cannot use a disk in memory.
    guard environment.fileSystem is POSIXFileSystem else { return }
    defer { progress.end() }
    for factor in 1...2 {
      if wants("server.lookup", factor) { try await measureLookups(factor) }
      if wants("server.modify", factor) { try await measureModifies(factor) }
    }
    if wants("server.rss", 1) { try await measureMixedLoad() }
  }

  private func name(_ work: String, _ factor: Int) -> String { work + (factor == 1 ? "" : ".x2") }
  private func wants(_ work: String, _ factor: Int) -> Bool { name(work, factor).hasPrefix(bench.prefix) }

  // MARK: Lookups

  private mutating func measureLookups(_ factor: Int) async throws {
    let title = name("server.lookup", factor)
    progress.update("measuring \(title)")
    let count = (isQuick ? 200 : 10_000) * factor
    let server = try await startServer("lookup\(factor)", records: count)
    let random = SeededRandom(seed: 11)
    // Each connection asks for the same few sets of names in turn, so that making the requests costs nothing.
    let requests = (0..<32).map { _ in
      let items = (0..<Self.batch).map { _ in
        RecordsLookupRequest.Item(recordName: Self.recordName(Int(random.below(UInt64(count)))))
      }
      return PreparedRequest(
        "records/lookup", WireJSON.encode(RecordsLookupRequest(zoneID: WireZoneID(Self.zone), records: items)),
        container: Self.container)
    }
    let clients = try connect(to: server) { index in
      { number in requests[(number + index) % requests.count].bytes }
    }
    var row = try await measure("server.lookup", factor, server, clients, requests: isQuick ? 2 : 120)
    row.atLeast(3_000)
    add(row)
  }

  // MARK: Modifies

  private mutating func measureModifies(_ factor: Int) async throws {
    let title = name("server.modify", factor)
    progress.update("measuring \(title)")
    let server = try await startServer("modify\(factor)", records: 0)
    let operations = (0..<Self.batch).map { number in
      CloudOperation(
        .create, name: "n\(PreparedRequest.placeholder)", type: "Load",
        fields: records[number % records.count].fields.mapValues { .some($0) })
    }
    let template = PreparedRequest(
      "records/modify", WireJSON.encode(operations, in: Self.zone, atomic: false), container: Self.container)
    // Each connection makes records of its own, and no request makes those of another.
    let clients = try connect(to: server) { index in
      var request = template
      var made = 0
      return { _ in
        request.number(from: (index * 1_000_000 + made) * Self.batch, step: 1)
        made += 1
        return request.bytes
      }
    }
    var row = try await measure("server.modify", factor, server, clients, requests: (isQuick ? 2 : 60) * factor)
    row.atLeast(1_500)
    add(row)
  }

  // MARK: A load of one kind

  /// Makes the bytes of the next request of a connection; it is given how many there were.
  typealias Requests = (_ number: Int) -> [UInt8]

  private func connect(
    to server: WorkDirectory.Server, _ requests: (_ index: Int) -> sending Requests
  ) throws -> [LoadClient] {
    guard let port = UInt16(server.port) else { throw BenchFailure(description: "'\(server.url)' has no port") }
    return try (0..<Self.connections).map { try LoadClient(port: port, requests($0)) }
  }

  /// Measures rounds in which each connection sends so many requests, stops the server, and makes the row.
  private mutating func measure(
    _ work: String, _ factor: Int, _ server: WorkDirectory.Server, _ clients: [LoadClient], requests: Int
  ) async throws -> BenchRow {
    let (clock, stop) = (environment.clock, bench.stop)
    // Not measured: the first requests find caches empty.
    _ = try await Self.runAll(clients, max(1, requests / 4), clock, stop)
    var measured = Measurements()
    for _ in 0..<bench.rounds {
      try checkInterrupt()
      let begin = clock.monotonicNanoseconds()
      measured.latencies += try await Self.runAll(clients, requests, clock, stop)
      measured.seconds.append(Double(clock.monotonicNanoseconds() - begin) / 1e9)
    }
    let resident = Measures.residentBytes(of: server.child.processID) ?? 0
    for client in clients { client.close() }
    try self.work.stop(server)
    let rates = measured.rates(Double(requests * clients.count))
    let p99 = measured.quantile(0.99) ?? 0
    var row = BenchRow(
      work: name(work, factor), unit: "1/s", ours: Self.median(rates), residentBytes: resident, max: rates.max(),
      p50: measured.quantile(0.5), p99: p99, rounds: rates.count)
    if work == "server.lookup" {
      row.bars.append(BenchRow.Bar(text: "p99 \(BenchRow.figure(p99 / 1_000)) ms (≤ 20)", isMet: p99 <= 20_000))
    }
    let seconds = Self.median(measured.seconds)
    if factor == 1 {
      halves[work] = seconds / Double(requests)
    } else if let half = halves[work] {
      // Twice the records, or twice the requests: the time of one request must not grow with either.
      row.grows(2 * seconds / Double(requests) / max(half, 1e-9))
    }
    return row
  }

  /// Runs all clients at the same time. Returns the nanoseconds of all requests.
  private static func runAll(
    _ clients: [LoadClient], _ requests: Int, _ clock: any SystemClock, _ stop: Flag
  ) async throws -> [UInt64] {
    try await withThrowingTaskGroup(of: [UInt64].self) { group in
      for client in clients {
        group.addTask { try await onThread("load") { try client.run(requests, clock, stop) } }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
  }

  // MARK: The server

  static func recordName(_ number: Int) -> String { "r\(number)" }

  /// Starts a server with a zone of so many records.
  private func startServer(_ directory: String, records count: Int) async throws -> WorkDirectory.Server {
    let server = try work.startServer(path(directory))
    let database = Self.database(server)
    try await database.createZone(Self.zone)
    let size = WebServicesDatabase.operationsMax
    for start in stride(from: 0, to: count, by: size) {
      try checkInterrupt()
      let operations = (start..<min(start + size, count)).map { number in
        CloudOperation(
          .create, name: Self.recordName(number), type: "Load",
          fields: records[number % records.count].fields.mapValues { .some($0) })
      }
      let results = try await database.modify(operations, in: Self.zone, atomic: false)
      for case .failed(let error, _) in results.values { throw error }
    }
    return server
  }

  static func database(_ server: WorkDirectory.Server) -> WebServicesDatabase {
    WebServicesDatabase(address: CloudAddress(container: container, environment: .development), baseURL: server.url)
  }

  // MARK: A mixed load

  private mutating func measureMixedLoad() async throws {
    var load = MixedLoad(work, stop: bench.stop, records: records)
    load.connections = isQuick ? 10 : 200
    load.seconds = isSoak ? 600 : (isQuick ? 1.5 : 30)
    let seconds = Int(load.seconds.rounded(.up))
    progress.update("measuring server.rss for \(seconds) s")
    let outcome = try await load.run(path("mixed"))
    var row = BenchRow(
      work: "server.rss", unit: "B", ours: Double(outcome.residentMax), residentBytes: outcome.residentMax,
      max: Double(outcome.residentMax), rounds: outcome.requests)
    row.bars.append(
      BenchRow.Bar(
        text: "\(BenchRow.figure(outcome.growth)) × that of the beginning (≤ 1.25)", isMet: outcome.growth <= 1.25))
    row.bars.append(
      BenchRow.Bar(
        text: "\(Words.plural(outcome.lost, "acknowledged record")) of \(Words.count(outcome.acknowledged)) lost",
        isMet: outcome.lost == 0 && outcome.acknowledged > 0))
    if outcome.lost > 0 || outcome.acknowledged == 0 {
      throw BenchFailure(
        description: "of \(outcome.acknowledged) acknowledged records \(outcome.lost) are lost after the kills")
    }
    add(row)
  }
}

/// A connection that sends requests of one kind, on a thread of its own in each round.
private final class LoadClient: Sendable {
  private struct State {
    var connection: LoadConnection
    let next: ServerBench.Requests
    var count = 0
  }
  private let state: Mutex<State>

  init(port: UInt16, _ next: sending @escaping ServerBench.Requests) throws {
    state = Mutex(State(connection: try LoadConnection(port: port), next: next))
  }

  /// Sends requests one after the other. Returns the nanoseconds of each.
  func run(_ requests: Int, _ clock: any SystemClock, _ stop: Flag) throws -> [UInt64] {
    try state.withLock { state in
      var latencies: [UInt64] = []
      latencies.reserveCapacity(requests)
      for _ in 0..<requests {
        try stop.check()
        let request = state.next(state.count)
        state.count += 1
        let begin = clock.monotonicNanoseconds()
        try state.connection.exchange(request)
        latencies.append(clock.monotonicNanoseconds() - begin)
      }
      return latencies
    }
  }

  func close() { state.withLock { $0.connection.close() } }
}
