// The requests that the engines of a world make, in words: what a change of the engine must not change, or what it was meant
// to change, seen as the difference of two texts. Nothing is measured and nothing decided here; without a trace the devices
// have their databases as they are.

internal import Strandline
internal import StrandlineSystem
internal import Synchronization

/// The requests of all devices of a world, one line each, in the order in which they began; then what everyone holds at rest.
final class WorldRequests: Sendable {
  private struct State {
    var lines: [String] = []
    /// The step under way, in words.
    var step = ""
  }
  private let state = Mutex(State())

  /// What was asked by now. A request that has not ended says so.
  var lines: [String] { state.withLock { $0.lines } }

  /// A step of the plan begins; nil for the rest.
  func begin(step: Int?) { state.withLock { $0.step = step.map { "\($0)" } ?? "rest" } }

  /// The world's end, in which nothing is asked.
  func note(_ words: String) { state.withLock { $0.lines.append("end \(words)") } }

  /// Writes a request down, does it, and writes down how it ended.
  fileprivate func tracing<Answer: Sendable>(
    _ device: Int, _ words: String, _ request: () async throws -> Answer, _ answered: (Answer) -> String
  ) async throws -> Answer {
    let place = state.withLock { state in
      state.lines.append("\(state.step) d\(device) \(words)")
      return state.lines.count - 1
    }
    func end(_ outcome: String) { state.withLock { $0.lines[place] += " -> \(outcome)" } }
    do {
      let answer = try await request()
      end(answered(answer))
      return answer
    } catch {
      switch error {
      case let error as CloudError: end(error.code.rawValue.oneLine)
      case let error as StrandlineError: end("this device: \(error.code)")
      case is CancellationError: end("cancelled")
      default: end("threw \("\(error)".oneLine)")
      }
      throw error
    }
  }
}

/// The database of a device, whose requests are written down.
struct TracedDatabase: ForwardingDatabase {
  let base: any CloudDatabase
  let device: Int
  let requests: WorldRequests

  func user() async throws -> String {
    try await requests.tracing(device, "user", { try await base.user() }, { $0.oneLine })
  }

  func zones() async throws -> [ZoneID] {
    try await requests.tracing(device, "zones", { try await base.zones() }, { Self.list($0.map { "\($0)" }) })
  }

  func createZone(_ zone: ZoneID) async throws {
    try await requests.tracing(device, "create zone \(zone)", { try await base.createZone(zone) }, { "done" })
  }

  func deleteZone(_ zone: ZoneID) async throws {
    try await requests.tracing(device, "delete zone \(zone)", { try await base.deleteZone(zone) }, { "done" })
  }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    let words = "modify \(zone)\(atomic ? " atomic" : ""): \(Self.list(operations.map(Self.words)))"
    return try await requests.tracing(
      device, words, { try await base.modify(operations, in: zone, atomic: atomic) },
      { results in Self.list(operations.map { Self.words(results[$0.name]) }) })
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await requests.tracing(
      device, "look up \(zone): \(Self.list(names))", { try await base.lookup(names, in: zone) },
      { results in Self.list(names.map { Self.words(results[$0]) }) })
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    let words = queries.map { query in
      "page\(query.listsOnly ? " without fields" : "") \(query.zone) \(Self.words(query.token, query.limit))"
    }
    return try await requests.tracing(
      device, words.joined(separator: "; "), { try await base.zoneChanges(of: queries) },
      { answers in queries.map { Self.words(answers[$0.zone]) }.joined(separator: "; ") })
  }

  func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    try await requests.tracing(
      device, "newest \(type.oneLine) \(zone) from \(marker == nil ? "the first" : "a marker"), limit \(limit)",
      { try await base.newestRecords(ofType: type, in: zone, limit: limit, after: marker) },
      { page in Self.list(page.records.map(\.name), more: page.marker != nil) })
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await requests.tracing(
      device, "changed zones \(Self.words(token, limit))",
      { try await base.databaseChanges(since: token, limit: limit) },
      { page in
        Self.list(page.zones.map { "\($0.id)\($0.loss.map { " \($0)" } ?? "")" }, more: page.moreComing)
      })
  }

  // MARK: Words

  private static func words(_ token: ChangeToken?, _ limit: Int) -> String {
    "from \(token == nil ? "the beginning" : "a token"), limit \(limit)"
  }

  private static func words(_ operation: CloudOperation) -> String {
    let names = operation.fields.sorted { $0.key.precedesByUTF8($1.key) }
    let fields = names.map { $0.value == nil ? "no \($0.key)" : $0.key }
    var words = "\(operation.kind.rawValue) \(operation.name)"
    if !operation.type.isEmpty { words += " \(operation.type)" }
    if operation.changeTag != nil { words += " with a tag" }
    if let parent = operation.parent { words += " below \(parent)" }
    return fields.isEmpty ? words : "\(words) {\(fields.joined(separator: " "))}"
  }

  private static func words(_ result: CloudResult?) -> String {
    switch result {
    case .record: "there"
    case .deleted: "deleted"
    case .failed(let error, let version): "\(error.code.rawValue)\(version == nil ? "" : " with a version")"
    case nil: "no result"
    }
  }

  private static func words(_ answer: Result<ZonePage, CloudError>?) -> String {
    switch answer {
    case .success(let page): words(page)
    case .failure(let error): error.code.rawValue.oneLine
    case nil: "no page"
    }
  }

  private static func words(_ page: ZonePage) -> String {
    let changes = page.changes.map { change in
      switch change {
      case .saved(let record): record.name
      case .deleted(let name): "\(name) deleted"
      case .failed(let name, let error): "\(name) \(error.code.rawValue)"
      }
    }
    return "\(page.hasFields ? "" : "names of ")\(list(changes, more: page.moreComing))"
  }

  /// Names are the server's: each line stays one.
  private static func list(_ words: [String], more: Bool = false) -> String {
    ((words.isEmpty ? ["nothing"] : words) + (more ? ["more"] : [])).joined(separator: ", ").oneLine
  }
}
