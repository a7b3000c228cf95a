// A load on `strandline serve` that is disturbed: many connections look up, modify and fetch changes, connections end in
// the middle of requests, and the server is killed twice and started again. At the end every record that was acknowledged
// is read back.
//
// Each connection writes a few records of its own, again and again, so the server's memory should not grow. Each write
// carries the number of the connection's round. A request whose answer did not come may have been applied or not; the
// record must then have the number of the last acknowledged round or of a later one that was tried.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineLogBench
import StrandlineSystem
import Synchronization

/// One run of the mixed load.
struct MixedLoad {
  /// What a run found.
  struct Outcome {
    /// The peak of the server's resident memory, in samples of 50 ms.
    var residentMax = 0
    /// The largest ratio of the peaks of the second and the first half of a server's life.
    var growth = 0.0
    var requests = 0
    var acknowledged = 0
    var lost = 0
  }

  var connections = 200
  var seconds = 30.0
  private let work: WorkDirectory
  private let stop: Flag
  private let templates: Templates
  private static let lives = 3
  private static let sampleMilliseconds: Int64 = 50

  init(_ work: WorkDirectory, stop: Flag, records: [Record]) {
    self.work = work
    self.stop = stop
    templates = Templates(records)
  }

  private var clock: any SystemClock { work.console.environment.clock }

  func run(_ directory: String) async throws -> Outcome {
    var server = try work.startServer(directory)
    try await ServerBench.database(server).createZone(ServerBench.zone)
    guard let port = UInt16(server.port) else { throw BenchFailure(description: "'\(server.url)' has no port") }
    let hasEnded = Flag()
    let (clock, templates, stop) = (clock, templates, stop)
    let clients = (0..<connections).map { Client($0, port: port, templates) }
    let running = clients.map { client in
      Task { try await onThread("mixed") { try client.run(clock, until: hasEnded, stop) } }
    }
    var outcome = Outcome()
    do {
      for life in 1...Self.lives {
        let samples = try watch(server, nanoseconds: UInt64(seconds / Double(Self.lives) * 1e9))
        let half = samples.count / 2
        let (early, late) = (samples[..<half].max() ?? 0, samples[half...].max() ?? 0)
        outcome.residentMax = max(outcome.residentMax, early, late)
        if early > 0 { outcome.growth = max(outcome.growth, Double(late) / Double(early)) }
        if life == Self.lives { break }
        server.child.kill(.kill)
        try work.finish(server.child)
        _ = try work.removeText(server.errorPath)
        server = try work.startServer(directory, port: "\(port)")
      }
    } catch {
      hasEnded.set()
      for task in running { _ = await task.result }
      throw error
    }
    hasEnded.set()
    for task in running { try await task.value }
    outcome.requests = clients.reduce(0) { $0 + $1.requests }
    let database = ServerBench.database(server)
    for client in clients {
      let (acknowledged, lost) = try await client.check(database)
      outcome.acknowledged += acknowledged
      outcome.lost += lost
    }
    try work.stop(server)
    return outcome
  }

  /// Samples the server's resident memory for a time.
  private func watch(_ server: WorkDirectory.Server, nanoseconds: UInt64) throws -> [Int] {
    let start = clock.monotonicNanoseconds()
    var samples: [Int] = []
    while clock.monotonicNanoseconds() - start < nanoseconds {
      try stop.check()
      clock.sleepBlocking(milliseconds: Self.sampleMilliseconds)
      if let bytes = Measures.residentBytes(of: server.child.processID) { samples.append(bytes) }
    }
    return samples
  }

  /// The requests of all clients, but for their numbers.
  fileprivate struct Templates: Sendable {
    let fields: [String: FieldValue]

    init(_ records: [Record]) { fields = records.first?.fields ?? [:] }

    /// Saves ten records under names that begin with `prefix`; the placeholder stands for the round.
    func modify(_ prefix: String) -> PreparedRequest {
      var fields = fields.mapValues { FieldValue?.some($0) }
      fields[MixedLoad.roundField] = .some(.int64(PreparedRequest.placeholder))
      let operations = (0..<ServerBench.batch).map {
        CloudOperation(.forceReplace, name: "\(prefix)-\($0)", type: "Load", fields: fields)
      }
      return request("records/modify", WireJSON.encode(operations, in: ServerBench.zone, atomic: false))
    }

    func lookup(_ prefix: String) -> PreparedRequest {
      let items = (0..<ServerBench.batch).map { RecordsLookupRequest.Item(recordName: "\(prefix)-\($0)") }
      return request(
        "records/lookup", WireJSON.encode(RecordsLookupRequest(zoneID: WireZoneID(ServerBench.zone), records: items)))
    }

    func changes() -> PreparedRequest {
      request(
        "changes/zone",
        WireJSON.encode(
          ZoneChangesRequest(zones: [.init(zoneID: WireZoneID(ServerBench.zone), syncToken: nil, resultsLimit: 50)])))
    }

    private func request(_ endpoint: String, _ body: [UInt8]) -> PreparedRequest {
      PreparedRequest(endpoint, body, container: ServerBench.container)
    }
  }

  fileprivate static let roundField = "loadRound"
}

extension MixedLoad {
  /// One connection, and the records that it writes.
  fileprivate final class Client: Sendable {
    private struct State {
      var round = 0
      var acknowledged = 0
      var requests = 0
    }
    private let prefix: String
    private let port: UInt16
    private let random: SeededRandom
    private let templates: Templates
    private let state = Mutex(State())

    /// The longest time without a server.
    private static let patienceMilliseconds: Int64 = 60_000
    private static let retryMilliseconds: Int64 = 20
    /// The rounds have as many digits as the placeholder.
    private static let firstRound = 1_000_000_000

    init(_ number: Int, port: UInt16, _ templates: Templates) {
      prefix = "c\(number)"
      self.port = port
      self.templates = templates
      random = SeededRandom(seed: UInt64(number) + 1)
    }

    var requests: Int { state.withLock { $0.requests } }

    func run(_ clock: any SystemClock, until end: Flag, _ stop: Flag) throws {
      var modify = templates.modify(prefix)
      // Records that are never checked: a request that loses its connection may be applied later than the next one.
      var loose = templates.modify(prefix + "-loose")
      loose.number(from: Self.firstRound, step: 0)
      let lookup = templates.lookup(prefix)
      let changes = templates.changes()
      var waited: Int64 = 0
      var connection: LoadConnection?
      defer { connection?.close() }
      var hasWritten = false
      while !end.isSet {
        try stop.check()
        do {
          if connection == nil { connection = try LoadConnection(port: port) }
          let choice = hasWritten ? random.below(100) : 0
          switch choice {
          case 0..<45:
            let round = state.withLock { state in
              state.round += 1
              return state.round
            }
            modify.number(from: Self.firstRound + round, step: 0)
            try connection?.exchange(modify.bytes)
            state.withLock { $0.acknowledged = round }
            hasWritten = true
          case 45..<85: try connection?.exchange(lookup.bytes)
          case 85..<97: try connection?.exchange(changes.bytes)
          case 97:
            // The whole request, and no reader for its answer.
            try connection?.send(loose.bytes)
            connection?.close()
            connection = nil
          default:
            try connection?.send(Array(modify.bytes[..<Int(random.below(UInt64(modify.bytes.count)))]))
            connection?.close()
            connection = nil
          }
          state.withLock { $0.requests += 1 }
          waited = 0
        } catch let error as SystemError {
          // The server was killed. It is started again at once.
          guard waited < Self.patienceMilliseconds else { throw error }
          connection?.close()
          connection = nil
          clock.sleepBlocking(milliseconds: Self.retryMilliseconds)
          waited += Self.retryMilliseconds
        }
      }
    }

    /// Reads the records back. Returns how many were acknowledged, and how many of these are gone or older.
    func check(_ database: WebServicesDatabase) async throws -> (acknowledged: Int, lost: Int) {
      let (tried, acknowledged) = state.withLock { ($0.round, $0.acknowledged) }
      guard acknowledged > 0 else { return (0, 0) }
      let names = (0..<ServerBench.batch).map { "\(prefix)-\($0)" }
      let found = try await database.lookup(names, in: ServerBench.zone)
      let rounds = (Self.firstRound + acknowledged)...(Self.firstRound + tried)
      let kept = names.filter { name in
        guard case .record(let record) = found[name], case .int64(let round)? = record.fields[MixedLoad.roundField]
        else { return false }
        return rounds.contains(Int(round))
      }
      return (names.count, names.count - kept.count)
    }
  }
}
