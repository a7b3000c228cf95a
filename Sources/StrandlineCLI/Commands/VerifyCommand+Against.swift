// `verify --against`: compares a store with its server, zone by zone.

import Strandline
import StrandlineHost
import StrandlineJSON
import StrandlineSystem

/// One run of `verify --against`.
struct ServerComparison {
  private let target: SyncTarget
  private let zone: ZoneID?
  private let isJSON: Bool
  private let console: Console

  /// How many names of a kind are shown one by one.
  private static let shownMax = 20

  init(_ arguments: Arguments, _ console: Console) throws {
    target = try SyncTarget(arguments, "verify --against", url: "--against", console)
    zone = try arguments.zone()
    isJSON = arguments.has("--json")
    self.console = console
  }

  func run() async throws -> ExitCode {
    let path = target.storePath
    guard !Command.isNew(path, console) else {
      throw Failure(.noSuchStore, "'\(path)' is not a store; there is nothing to compare")
    }
    let session = SessionBox()
    let store = try await target.open(session, isAutomatic: false)
    Command.sayRecovery(of: store, at: path, console)
    let outcome: Result<[ZoneVerification], any Error>
    do { outcome = .success(try await compare(store, session)) } catch { outcome = .failure(error) }
    do { try await store.close() } catch { if case .success = outcome { throw error } }
    let found = try outcome.mapError(target.failure).get()
    return found.allSatisfy(\.isEqual) ? .done : .recoverable
  }

  private func compare(_ store: RecordStore, _ session: SessionBox) async throws -> [ZoneVerification] {
    let engine = try store.engine
    let atServer = Set(store.projections.withLock { $0.sync.zones.filter(\.value.wasSeen).keys })
    let known = try store.status().zones.filter { atServer.contains($0.id) || $0.isLost }
    let zones = zone.map { [$0] } ?? known.filter { ![.erased, .erasing].contains($0.lostReason) }.map(\.id)
    guard !zones.isEmpty else {
      throw Failure(
        .noSuchStore, "nothing of the store at '\(target.storePath)' was ever synced; there is nothing to compare",
        try: "strandline sync --url URL --container ID \(ShellWord.quote(target.storePath))")
    }
    var found: [ZoneVerification] = []
    for zone in zones {
      found.append(
        try await target.signedIn(session) { try await engine.verification(of: zone, CycleOptions()) })
      try show(found[found.count - 1])
    }
    return found
  }

  private func show(_ found: ZoneVerification) throws {
    if isJSON { return try console.write(found.json.canonicalBytes + [UInt8(ascii: "\n")]) }
    let kinds: [(names: [String], words: String)] = [
      (found.missingHere, "missing here"), (found.missingThere, "missing at the server"),
      (found.different, "different"), (found.unreadable, "unreadable"), (found.mended, "mended"),
    ]
    for (names, words) in kinds {
      for name in names.prefix(Self.shownMax) { try console.print("\(words)  \(printable(name))") }
      if names.count > Self.shownMax {
        try console.print("\(words)  \(Words.count(names.count - Self.shownMax)) more; --json names them all")
      }
    }
    let counts = kinds.filter { !$0.names.isEmpty }.map { "\(Words.count($0.names.count)) \($0.words)" }
    let unsent = found.unsent > 0 ? ["\(Words.plural(found.unsent, "record")) to send"] : []
    try console.print(
      "\(printable(found.zone.description)): "
        + (["\(found.isEqual ? "equal" : "not equal"), \(Words.plural(found.records, "record")) at the server"] + counts
        + unsent).joined(separator: ", ") + ", digest \(found.digestHere.hex)"
        + (found.digestHere == found.digestThere ? "" : ", there \(found.digestThere.hex)"))
  }
}

extension ZoneVerification {
  fileprivate var json: JSONValue {
    func list(_ names: [String]) -> JSONValue { .array(names.map { .string($0) }) }
    return .object([
      "zoneName": .string(zone.name), "isEqual": .bool(isEqual), "records": .integer(Int64(records)),
      "equal": .integer(Int64(equal)), "missingHere": list(missingHere), "missingThere": list(missingThere),
      "different": list(different), "unreadable": list(unreadable), "mended": list(mended),
      "unsent": .integer(Int64(unsent)), "digestHere": .string(digestHere.hex), "digestThere": .string(digestThere.hex),
    ])
  }
}

extension UInt64 {
  /// Sixteen digits.
  fileprivate var hex: String {
    let digits = String(self, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}
