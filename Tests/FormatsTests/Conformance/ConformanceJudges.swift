// What the package's own code makes of a store of the conformance set: its reader, its writer, `verify` and repair.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// One of those that judge a log.
enum ConformanceJudge: CaseIterable {
  case reader, writer, verify, repair

  /// What is wrong with this judge's opinion of `store`, in words; nil if it is what the page demands.
  func objection(to store: ConformanceText.Store) throws -> String? {
    let disk = SimulatedDisk()
    for (name, bytes) in store.files { disk.poke("/store/\(name)", bytes) }
    let environment = SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(autoAdvance: false), random: SeededRandom(seed: 5))
    let demand = Demanded(store)
    switch self {
    case .reader: return compare(read(demand, environment), demand.opening)
    case .writer: return compare(write(demand, environment), demand.writing)
    case .verify: return verify(demand, environment)
    case .repair: return repair(demand, environment)
    }
  }

  private func compare(_ found: String, _ demanded: String) -> String? {
    found == demanded || (demanded == "future" && found.hasPrefix("future"))
      ? nil : "\(self) says \(found), the page demands \(demanded)"
  }

  /// The verdict of an error, in the words of the text.
  private static func words(_ error: any Error) -> String {
    guard let error = error as? LogError else { return "\(error)" }
    let file = error.file?.split(separator: "/").last.map(String.init) ?? "?"
    switch error.code {
    case .damaged, .missingSegment, .foreignSegment, .fromTheFuture, .wrongRole:
      return "\(error.verdict) \(file == "store" ? "." : file)"
    default: return "\(error.code) \(file): \(error.message)"
    }
  }

  private func read(_ demand: Demanded, _ environment: SystemEnvironment) -> String {
    do {
      let reader = try LogReader.open(at: "/store", role: demand.role, environment: environment)
      var events = 0
      try reader.poll { _ in events += 1 }
      return "\(reader.recovery.torn ? "torn" : "sound") \(reader.lastLSN) \(events)"
    } catch {
      return Self.words(error)
    }
  }

  /// Opens for writing, appends one event, closes, and reads it all again: what was odd is odd no more.
  private func write(_ demand: Demanded, _ environment: SystemEnvironment) -> String {
    var events = 0
    let log: Log
    do {
      log = try Log.open(
        at: "/store", role: demand.role, options: Self.options, environment: environment
      ) { _ in events += 1 }
    } catch {
      return Self.words(error)
    }
    do {
      let report = log.recovery
      var words = "\(report.torn ? "torn" : "sound") \(report.lastLSN) \(events)"
      for id in report.removed { words += " leftover \(SegmentName.name(id))" }
      for id in report.quarantined { words += " quarantine \(SegmentName.name(id))" }
      var transaction = LogTransaction()
      transaction.add(schema: 1, body: [1, 2, 3])
      let lsn = try log.append(transaction).upperBound
      try log.waitUntilDurableBlocking(lsn)
      try log.close()
      let again = read(demand, environment)
      let expected = "sound \(report.lastLSN + 1) \(events + 1)"
      return again == expected && lsn == report.lastLSN + 1 ? words : "\(words), and then \(again)"
    } catch {
      return "\(events) events, and then \(Self.words(error))"
    }
  }

  private static let options = LogOptions(
    preallocationFirstStepBytes: 1, preallocationStepBytesMax: 1, publishesGroups: false,
    controlIntervalMilliseconds: nil, ballastBytes: 0, upkeep: .onDemand)

  private func verify(_ demand: Demanded, _ environment: SystemEnvironment) -> String? {
    let report: VerificationReport
    do {
      report = try LogVerifier.verify(at: "/store", environment: environment)
    } catch {
      let words = Self.words(error)
      // `verify` asks for no role, and a directory without a segment is none that it could verify.
      return words == demand.opening || demand.opening == "missing ." ? nil : compare(words, demand.opening)
    }
    let damages = report.findings.filter { $0.kind == .damage }.map {
      Self.words(LogError($0.code, $0.message, file: $0.file))
    }
    let isTorn = report.findings.contains { $0.kind == .tornTail }
    let strays = report.findings.filter { $0.kind == .stray }.count
    if demand.word == "wrongRole" { return nil }
    guard demand.isServed, !demand.isDamagedForVerify else {
      // Of what is missing at the end of the log a report may name the last segment or the folder.
      let isFound = damages.contains {
        demand.isDamagedForVerify || $0 == demand.opening || (demand.word == "missing" && $0.hasPrefix("missing"))
      }
      return isFound ? nil : "verify finds \(damages), the page demands \(demand.opening)"
    }
    let found = "\(damages) \(isTorn ? "torn" : "sound") \(report.lastLSN) \(report.events) strays \(strays)"
    return compare(found, "[] \(demand.opening) strays \(demand.strays)")
  }

  /// Repair has nothing to do for what is served, and leaves alone what it does not understand.
  private func repair(_ demand: Demanded, _ environment: SystemEnvironment) -> String? {
    do {
      let salvage = try LogSalvage(at: "/store", environment: environment)
      var events = 0
      let report = try salvage.read { part, _ in events += part.count }
      if demand.isFutureForRepair || demand.word == "future" || demand.word == "foreign" { return "repair accepts it" }
      guard demand.isServed else { return report.isDamaged ? nil : "repair finds nothing to do" }
      let expected = "damaged \(demand.isDamagedForVerify), \(demand.events) events, none lost"
      let lost = report.hasLostEvents ? "\(report.lost) lost" : "none lost"
      return compare("damaged \(report.isDamaged), \(events) events, \(lost)", expected)
    } catch {
      let words = Self.words(error)
      // A salvage asks for no role: it meets segments of another one.
      if demand.word == "wrongRole", words.hasPrefix("foreign") { return nil }
      if demand.isFutureForRepair { return compare(words, "future") }
      return words == demand.opening || demand.opening == "missing ." ? nil : compare(words, demand.opening)
    }
  }
}

/// What a store's lines demand.
struct Demanded {
  let role: LogRole
  /// Without the word `verdict`.
  let opening: String
  let word: String
  let isReadOnly: Bool
  let isDamagedForVerify: Bool
  let isFutureForRepair: Bool
  private let kept: [String]

  init(_ store: ConformanceText.Store) {
    role = store.role == "srvr" ? .server : .store
    opening = store.demand.first.map { String($0.dropFirst("verdict ".count)) } ?? ""
    word = opening.split(separator: " ").first.map(String.init) ?? ""
    isReadOnly = store.demand.contains("writing future")
    isDamagedForVerify = store.demand.contains("verify damaged")
    isFutureForRepair = store.demand.contains("repair future")
    kept = store.demand.filter { $0.hasPrefix("leftover") || $0.hasPrefix("quarantine") }
  }

  var isServed: Bool { word == "sound" || word == "torn" }
  var events: String { opening.split(separator: " ").last.map(String.init) ?? "" }
  var strays: Int { kept.count }
  /// What a writer says.
  var writing: String {
    isReadOnly ? "future" : ([opening] + kept).joined(separator: " ")
  }
}
