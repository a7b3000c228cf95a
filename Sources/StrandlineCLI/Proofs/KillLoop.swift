// The kill loop: import, sync and serve run as processes on real records and a real file system, and are killed with
// SIGKILL at random moments, again and again.
//
// After each kill, verify must find no damage, and every record of every acknowledged batch must be there in the
// acknowledged version or a newer one. At the end, when everything is settled, a new third device must equal both
// others byte for byte, every acknowledged record must exist (unless this loop deleted it), no change may have been
// applied twice, and no deleted record may exist.
//
// Each save carries the number of its round. Rounds follow one another on one machine's clock, so where two devices
// wrote the same record the merge keeps the greater round, and "or a newer one" can be checked by number.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineSystem

/// One run of the kill loop.
final class KillLoop {
  private let work: WorkDirectory
  private let console: Console
  private let options: CrashTestOptions
  private let random: SeededRandom
  private let start: UInt64
  private let serverPath: String
  private var server: WorkDirectory.Server?
  private var population: [Record] = []
  private var devices: [Device]
  private var round: Int64 = 0
  private var kills: [String: Int] = ["import": 0, "sync": 0, "serve": 0]
  private var acknowledged = 0
  private var deleted: Set<RecordID> = []
  /// The records of `--records`; nil to take those of this machine.
  private let given: GivenRecords?
  /// Whether a failure may be one of the stores, so that they are worth keeping: from the first round to the last check.
  private(set) var isUnderTest = false

  /// A device, and the saves that it has acknowledged.
  private struct Device {
    var name: String
    var path: String
    /// The round of the newest acknowledged save of each record.
    var rounds: [RecordID: Int64] = [:]
    /// The last acknowledged LSN.
    var lsn: UInt64 = 0
  }

  private static let container = "iCloud.org.strandline.kills"
  private static let roundField = "killRound"
  private static let populationMax = 10_000
  private static let sliceMax = 1_000
  private static let settlingRoundsMax = 8

  init(_ work: WorkDirectory, _ options: CrashTestOptions, _ given: GivenRecords?) {
    self.given = given
    self.work = work
    self.options = options
    console = work.console
    random = SeededRandom(seed: options.seed)
    start = console.environment.clock.monotonicNanoseconds()
    serverPath = work("server.strand")
    devices = ["A", "B"].map { Device(name: $0, path: work("\($0).strand")) }
  }

  private var elapsedNanoseconds: UInt64 { console.environment.clock.monotonicNanoseconds() - start }
  private var killCount: Int { kills.values.reduce(0, +) }

  func run() throws -> ExitCode {
    try console.print("seed \(options.seed)")
    try loadRecords()
    server = try work.startServer(serverPath)
    isUnderTest = true
    var progress = Progress(console)
    defer { progress.end() }
    while killCount < options.kills || elapsedNanoseconds < UInt64(options.seconds) * 1_000_000_000 {
      round += 1
      let device = below(devices.count)
      switch below(10) {
      case 0..<4: try killImport(device)
      case 4..<7: try killSync(device)
      case 7..<9: try killServer(device)
      default: try deleteSome(device)
      }
      progress.update("\(Words.plural(killCount, "kill")), \(Words.plural(acknowledged, "acknowledged record"))")
    }
    progress.end()
    try settle()
    let count = try checkThird()
    try checkEnd()
    if let server { try work.stop(server) }
    isUnderTest = false
    guard acknowledged > 0, count > 0 else {
      throw Failure(
        .dataDamaged,
        "crash-test: too few records or kills: \(Words.plural(acknowledged, "acknowledged save")), "
          + "\(Words.plural(count, "record")) compared, so nothing is proven",
        try: "the same command with more records after --records, or a greater number after --kills")
    }
    let words = kills.sorted { $0.key < $1.key }.map { "\($0.value) of \($0.key)" }.joined(separator: ", ")
    try console.print(
      "crash-test: \(Words.plural(killCount, "kill")) (\(words)), \(Words.plural(acknowledged, "acknowledged save")), 0 lost, "
        + "0 duplicated, 0 resurrected; \(Words.plural(count, "record")) on three devices, byte for byte; "
        + Words.seconds(nanoseconds: elapsedNanoseconds))
    return .done
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  private func loadRecords() throws {
    var records = given
    if records == nil {
      let path = work("records.jsonl")
      try console.print("records: " + LocalRecords.save(at: path, console.fileSystem))
      records = try GivenRecords(path, console)
    }
    population = records.map { given in given.order.prefix(Self.populationMax).compactMap { given.records[$0] } } ?? []
    try console.print("working on \(Words.plural(population.count, "record")) in \(work.path)")
    try console.flush()
  }

  // MARK: Kills

  /// Waits for a random time.
  private func pause(_ millisecondsMax: Int) {
    console.environment.clock.sleepBlocking(milliseconds: Int64(below(millisecondsMax + 1)))
  }

  /// Kills a child and returns whether the kill has ended it. If it had ended before, its exit code must be 0, or one
  /// after which a sync is tried again.
  private func kill(_ child: ChildProcess, _ verb: String, _ errorPath: String) throws -> Bool {
    child.kill(.kill)
    let status = try work.finish(child)
    let words = try work.removeText(errorPath)
    switch status {
    case .signalled(ChildSignal.kill.number):
      kills[verb, default: 0] += 1
      return true
    case .exited(0): return false
    case .exited(let code) where verb == "sync" && [ExitCode.unreachable, .tryLater].map(\.rawValue).contains(code):
      return false
    default: throw failure("\(verb) ended with \(status): \(words)")
    }
  }

  private func killImport(_ which: Int) throws {
    let size = min(population.count, 1 + below(Self.sliceMax))
    let first = below(population.count - size + 1)
    let slice = population[first..<first + size].map { record in
      var record = record
      record.fields[Self.roundField] = .int64(round)
      return record
    }
    let path = work("slice.jsonl")
    let file = try console.fileSystem.open(path, .create)
    try file.write(slice.flatMap { $0.line(zone: true) + [UInt8(ascii: "\n")] }, at: 0)
    file.close()
    defer { remove(path) }

    let batch = 10 + below(90)
    let batches = (slice.count + batch - 1) / batch
    let (child, errorPath) = try work.spawn(
      ["import", "--acks", "--batch", String(batch), devices[which].path, path])
    var acks: [UInt64] = []
    func readAck() throws -> Bool {
      guard let line = try child.output?.readLine() else { return false }
      // The last line of a killed process may be incomplete; only whole lines count.
      guard line.hasPrefix("ACK "), let lsn = UInt64(line.dropFirst(4)) else { return false }
      acks.append(lsn)
      return true
    }
    for _ in 0..<below(batches + 1) where try !readAck() { break }
    pause(8)
    _ = try kill(child, "import", errorPath)
    while try readAck() {}

    for (number, lsn) in acks.enumerated() {
      let saved = slice[number * batch..<min((number + 1) * batch, slice.count)]
      for record in saved { devices[which].rounds[record.id] = round }
      devices[which].lsn = max(devices[which].lsn, lsn)
      acknowledged += saved.count
    }
    try check(which)
  }

  private func killSync(_ which: Int) throws {
    let (child, errorPath) = try work.spawn(syncArguments(devices[which].path))
    pause(150)
    _ = try kill(child, "sync", errorPath)
    try check(which)
  }

  private func killServer(_ which: Int) throws {
    guard let old = server else { return }
    let (child, errorPath) = try work.spawn(syncArguments(devices[which].path))
    pause(100)
    _ = try kill(old.child, "serve", old.errorPath)
    try expect(!Verification(serverPath, console.environment).isDamaged, "the server's journal is damaged")
    let survives = below(4) == 0
    if !survives { _ = try kill(child, "sync", errorPath) }
    server = try work.startServer(serverPath, port: old.port)
    if survives {
      let status = try work.finish(child)
      let words = try work.removeText(errorPath)
      let good = [ExitCode.done, .unreachable, .tryLater].map { ExitStatus.exited($0.rawValue) }
      try expect(good.contains(status), "a sync whose server was killed ended with \(status): \(words)")
    }
    try check(which)
  }

  /// Deletes a few records that the server knows; they are not imported again.
  private func deleteSome(_ which: Int) throws {
    guard population.count > 100 else { return }
    let store = try? Command.readOnly(devices[which].path, console)
    guard let store else { return }
    let candidates = try (0..<5).compactMap { _ in try store.record(population[below(population.count)].id) }
    let ids = Set(candidates.filter { $0.system != nil }.map(\.id)).sorted()
    guard !ids.isEmpty else { return }
    for id in ids { try work.succeed(["delete", "--zone", id.zone.name, devices[which].path, id.name]) }
    deleted.formUnion(ids)
    population.removeAll { ids.contains($0.id) }
  }

  // MARK: Checks

  /// Checks that a device holds what it has acknowledged and that its log is not damaged.
  private func check(_ which: Int) throws {
    let device = devices[which]
    guard try console.fileSystem.kind(of: device.path) == .directory else {
      return try expect(device.lsn == 0, "\(device.name) has acknowledged saves, but its store is missing")
    }
    let verification = try Verification(device.path, console.environment)
    try expect(!verification.isDamaged, "\(device.name) is damaged: \(verification.summary)")
    try expect(
      verification.report.lastLSN >= device.lsn,
      "\(device.name) acknowledged LSN \(device.lsn), but its log ends at LSN \(verification.report.lastLSN)")
    guard !device.rounds.isEmpty else { return }
    let store = try Command.readOnly(device.path, console)
    for (id, round) in device.rounds where !deleted.contains(id) {
      guard case .int64(let found)? = try store.record(id)?.fields[Self.roundField], found >= round else {
        throw failure("\(device.name) acknowledged '\(id)' in round \(round), but it is lost")
      }
    }
  }

  private func settle() throws {
    for _ in 0..<Self.settlingRoundsMax {
      for device in devices { try work.succeed(syncArguments(device.path)) }
      let owed = try devices.map { try Command.readOnly($0.path, console).status().unsettled }
      if owed.allSatisfy({ $0 == 0 }), try export(devices[0].path) == export(devices[1].path) { return }
    }
    throw failure("the devices still differ or have unsettled mutations after \(Self.settlingRoundsMax) syncs of each")
  }

  /// Checks that a new device equals both others, and returns the number of records.
  private func checkThird() throws -> Int {
    let third = work("C.strand")
    try work.succeed(syncArguments(third))
    let exports = try (devices.map(\.path) + [third]).map { try export($0) }
    try expect(exports[0] == exports[1], "A and B differ")
    try expect(exports[0] == exports[2], "a new device differs from A and B")
    return exports[0].count { $0 == UInt8(ascii: "\n") }
  }

  private func checkEnd() throws {
    for which in devices.indices {
      try check(which)
      let reading = try DeviceReading(devices[which].path, console.environment)
      try expect(reading.openCount == 0, "\(devices[which].name) has \(reading.openCount) mutations without an outcome")
      try expect(
        reading.resurrected.isEmpty,
        "\(devices[which].name) has deleted records again: \(reading.resurrected.prefix(5))")
    }
    // What one device has acknowledged must in the end exist on the other one too.
    let store = try Command.readOnly(devices[0].path, console)
    for (id, round) in devices[1].rounds where !deleted.contains(id) {
      guard case .int64(let found)? = try store.record(id)?.fields[Self.roundField], found >= round else {
        throw failure("B acknowledged '\(id)' in round \(round), but A does not have it at the end")
      }
    }
    try expect(!Verification(serverPath, console.environment).isDamaged, "the server's journal is damaged")
    let journal = try JournalCounts(serverPath, console.environment)
    try expect(journal.duplicated.isEmpty, "applied more than once: \(journal.duplicated.prefix(5))")
  }

  // MARK: Helpers

  private func syncArguments(_ path: String) -> [String] {
    ["sync", "--url", server?.url ?? "", "--container", Self.container, path]
  }

  private func export(_ path: String) throws -> [UInt8] {
    var bytes: [UInt8] = []
    try Command.export(path, zone: nil, console) { lines, _ in bytes += lines }
    return bytes
  }

  private func remove(_ path: String) {
    do { try console.fileSystem.unlink(path) } catch {
      // The whole directory is removed at the end.
    }
  }

  private func failure(_ words: String) -> Failure {
    Failure(.recoverable, "crash-test, round \(round): \(words)", try: options.replay)
  }

  private func expect(_ condition: @autoclosure () throws -> Bool, _ words: @autoclosure () throws -> String) throws {
    guard try condition() else { throw failure(try words()) }
  }
}
