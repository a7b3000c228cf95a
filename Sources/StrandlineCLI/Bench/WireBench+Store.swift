// The rows of `bench wire` that run whole processes as a user does: `import`, `export`, and `sync` with a `serve` on this
// machine, which has the same processors.
//
// A round makes a store from lines, exports it, uploads it to a new server and downloads it to an empty device. Each
// process is timed from its start to its end, with the opening of its store. A separate process tells what memory an
// upload takes, because what a process has used before it was started counts as its own in the system's figures.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineJSON
import StrandlineLogBench
import StrandlineSystem
import Synchronization

extension WireBench {
  /// The rows for which processes are started, each of which is measured at two sizes.
  static let storeWorks = [
    importWork, exportWork, uploadWork, requestsWork, downloadWork, firstWork, switchesWork, memoryWork,
  ]

  private static let importWork = "import.real"
  private static let exportWork = "export.real"
  private static let uploadWork = "sync.upload"
  private static let requestsWork = "sync.upload.requests"
  private static let downloadWork = "sync.download"
  private static let firstWork = "sync.download.first"
  private static let switchesWork = "sync.switches"
  private static let memoryWork = "sync.rss"

  fileprivate static let container = "iCloud.bench"
  /// The records that a user sees first: a page.
  fileprivate static let firstRecords = 200
  private static let roundsMax = 3

  mutating func measureProcesses() async throws {
    var wanted = Self.storeWorks.filter { wants($0) }
    guard environment.fileSystem is POSIXFileSystem || wanted.isEmpty else {
      work.console.say(
        "note: the benchmark is not on the real file system, where it could start processes: without "
          + wanted.joined(separator: ", "))
      return
    }
    if wanted.contains(Self.memoryWork), Measures.resident == nil {
      work.console.say("note: this system does not tell what memory is resident: without \(Self.memoryWork)")
      wanted.removeAll { $0 == Self.memoryWork }
    }
    guard !wanted.isEmpty else { return }
    for factor in 1...2 {
      progress.update("measuring import.real\(factor == 1 ? "" : ".x2") and what follows")
      let lines = try writeLines(factor)
      let round = ProcessRound(
        work: work, environment: environment, stop: stop, lines: lines, count: records.count * factor,
        wanted: Set(wanted))
      var figures = Figures()
      let rounds = wanted == [Self.memoryWork] ? 0 : min(bench.rounds, Self.roundsMax)
      for _ in 0..<rounds {
        try checkInterrupt()
        figures.add(try await onThread("bench") { try round.run() })
      }
      if wanted.contains(Self.memoryWork) {
        figures.add(try await onThread("bench") { try round.measureMemory() })
      }
      addRows(figures, factor, records.count * factor)
      try environment.fileSystem.unlink(lines)
    }
  }

  /// Writes the records, twice under different names if `factor` is 2.
  private func writeLines(_ factor: Int) throws -> String {
    let path = path("wire.jsonl")
    let file = try environment.fileSystem.open(path, .create)
    defer { file.close() }
    var json = JSONWriter(controls: .hexadecimal)
    var offset: UInt64 = 0
    func flush() throws {
      try file.write(json.bytes, at: offset)
      offset += UInt64(json.bytes.count)
      json.removeAll()
    }
    for copy in 0..<factor {
      for record in records {
        try checkInterrupt()
        let name = record.id.name + (copy == 0 ? "" : ".x\(copy + 1)")
        Record(type: record.type, id: RecordID(name), fields: record.fields, parent: record.parent)
          .writeLine(zone: false, to: &json)
        json.endLine()
        if json.bytes.count > 1 << 20 { try flush() }
      }
    }
    try flush()
    return path
  }

  // MARK: Rows

  private mutating func addRows(_ figures: Figures, _ factor: Int, _ count: Int) {
    let requestsMin = Double((count + WebServicesDatabase.operationsMax - 1) / WebServicesDatabase.operationsMax)
    for (work, bar) in [
      (Self.importWork, 80_000.0), (Self.exportWork, 100_000), (Self.uploadWork, 10_000), (Self.downloadWork, 15_000),
    ] {
      guard let seconds = figures[work] else { continue }
      let rates = seconds.map { Double(count) / max($0, 1e-6) }
      var row = row(work, factor, "1/s", rates)
      if factor == 1 { row.atLeast(bar) }
      grow(&row, work, factor, Self.median(seconds))
      add(row)
    }
    if let requests = figures[Self.requestsWork] {
      var row = row(Self.requestsWork, factor, "count", requests)
      row.limit = requestsMin
      row.atMost(requestsMin + 3)
      add(row)
    }
    if let milliseconds = figures[Self.firstWork] {
      var row = row(Self.firstWork, factor, "ms", milliseconds)
      row.atMost(500)
      add(row)
    }
    if let switches = figures[Self.switchesWork] {
      var row = row(Self.switchesWork, factor, "count", switches)
      // A run of a few requests is mostly the start of the process.
      if !isQuick { row.atMost(50) }
      add(row)
    }
    if let bytes = figures[Self.memoryWork] {
      var row = row(Self.memoryWork, factor, "B", bytes)
      row.residentBytes = Int(Self.median(bytes))
      row.atMost(32_000_000)
      grow(&row, Self.memoryWork, factor, Self.median(bytes), atMost: 1.25)
      add(row)
    }
  }

  private func row(_ work: String, _ factor: Int, _ unit: String, _ figures: [Double]) -> BenchRow {
    BenchRow(
      work: work + (factor == 1 ? "" : ".x2"), unit: unit, ours: Self.median(figures),
      residentBytes: Measures.peakBytes, max: figures.max(), rounds: figures.count)
  }

  // MARK: Memory

  /// Uploads a store, and prints how much more memory was resident at the peak than when the store had been opened. Runs in
  /// a process of its own, because the memory of one that has made the store tells nothing.
  static func printResident(_ path: String, url: String, _ console: Console) async throws {
    guard let before = Measures.resident else {
      throw Failure(.recoverable, "this system does not tell what memory is resident")
    }
    // Without one, this would make it.
    guard !Command.isNew(path, console) else { throw Failure(.noSuchStore, "there is no store at '\(path)'") }
    var configuration = SyncConfiguration { storePath, environment in
      WebServicesDatabase(
        address: CloudAddress(container: container, environment: .development), apiToken: "",
        session: try WebSession(path: storePath + "/session", environment: environment.system), baseURL: url,
        transport: NetworkTransport(timeout: console.requestTimeout), environment: environment.system)
    }
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: path, syncing: configuration, environment: StoreEnvironment(console.environment))
    let opened = Measures.resident ?? before
    Measures.resetPeak()
    let report = try await store.engine.cycle(CycleOptions())
    try console.print("uploaded \(report.uploaded)")
    try console.print("bytes \(max(0, Measures.peakBytes - opened.anonymous - opened.file))")
    try await store.close()
  }
}

/// What the rounds found, by the rows' names: seconds, milliseconds, bytes or counts.
private struct Figures: Sendable {
  private var found: [String: [Double]] = [:]

  subscript(work: String) -> [Double]? { found[work] }

  mutating func add(_ work: String, _ figure: Double) { found[work, default: []].append(figure) }

  mutating func add(_ other: Figures) {
    for (work, figures) in other.found { found[work, default: []] += figures }
  }
}

/// One round: what is measured, and with what.
private struct ProcessRound: Sendable {
  let work: WorkDirectory
  let environment: SystemEnvironment
  let stop: Flag
  /// A file of JSON Lines, and how many it has.
  let lines: String
  let count: Int
  /// The rows that are wanted.
  let wanted: Set<String>

  /// How a process ended that succeeded.
  private struct Finished {
    var seconds: Double
    var output: [UInt8]
    /// How often the system took a processor from it, or it gave one back.
    var switches: Int
  }

  func run() throws -> Figures {
    var figures = Figures()
    let store = work("store")
    let imported = try run(["import", store, lines])
    figures.add("import.real", imported.seconds)
    if wanted.contains("export.real") {
      let output = work("export.jsonl")
      figures.add("export.real", try run(["export", store], output: .file(output)).seconds)
      try check(try lineCount(of: output), "lines were exported")
      try environment.fileSystem.unlink(output)
    }
    if wanted.contains(where: { $0.hasPrefix("sync.") && $0 != "sync.rss" }) { try sync(store, &figures) }
    try environment.fileSystem.removeTree(store)
    return figures
  }

  private func sync(_ store: String, _ figures: inout Figures) throws {
    try withServer { url in
      let uploaded = try run(["sync", "--json", "--url", url, "--container", WireBench.container, store])
      try check(try number("uploaded", in: uploaded.output), "records were uploaded")
      let requests = try number("requests", in: uploaded.output)
      figures.add("sync.upload", uploaded.seconds)
      figures.add("sync.upload.requests", Double(requests))
      figures.add("sync.switches", Double(uploaded.switches) / Double(max(1, requests)))
      if wanted.contains(where: { $0.hasPrefix("sync.download") }) { try download(url, &figures) }
    }
  }

  private func download(_ url: String, _ figures: inout Figures) throws {
    let device = work("device")
    let reader = try FirstRecords(device, min(count, WireBench.firstRecords), environment)
    let downloaded = Result {
      try run(["sync", "--json", "--url", url, "--container", WireBench.container, device])
    }
    let first = Result { try reader.end() }
    let finished = try downloaded.get()
    try check(try number("fetchedSaves", in: finished.output), "records were downloaded")
    figures.add("sync.download", finished.seconds)
    figures.add("sync.download.first", try first.get())
    try environment.fileSystem.removeTree(device)
  }

  /// Uploads a new store by a process that tells its memory.
  func measureMemory() throws -> Figures {
    var figures = Figures()
    let store = work("store")
    _ = try run(["import", store, lines])
    try withServer { url in
      let output = try run(["bench", "--resident", store, "--url", url, "wire"]).output
      let numbers = String(decoding: output, as: UTF8.self).split(separator: "\n").compactMap {
        $0.split(separator: " ").last.flatMap { Int($0) }
      }
      guard numbers.count == 2 else {
        throw BenchFailure(description: "a child printed '\(String(decoding: output, as: UTF8.self))'")
      }
      try check(numbers[0], "records were uploaded")
      figures.add("sync.rss", Double(numbers[1]))
    }
    try environment.fileSystem.removeTree(store)
    return figures
  }

  // MARK: Processes

  private func withServer(_ body: (String) throws -> Void) throws {
    let folder = work("server")
    let server = try work.startServer(folder)
    let outcome = Result { try body(server.url) }
    // If both fail, the error of the body is reported.
    let stopped = Result { try work.stop(server) }
    try outcome.get()
    try stopped.get()
    try environment.fileSystem.unlink(server.errorPath)
    try environment.fileSystem.removeTree(folder)
  }

  /// Runs `strandline` to its end.
  private func run(_ arguments: [String], output: ChildOutput = .pipe) throws -> Finished {
    try stop.check()
    let begin = environment.clock.monotonicNanoseconds()
    let (child, errorPath) = try work.spawn(arguments, output: output)
    let bytes = try child.output?.readAll() ?? []
    let status = try work.finish(child)
    let nanoseconds = environment.clock.monotonicNanoseconds() - begin
    let words = try work.removeText(errorPath)
    try stop.check()
    guard status == .exited(0) else {
      throw BenchFailure(description: "strandline \(arguments.joined(separator: " ")): \(status): \(words)")
    }
    return Finished(seconds: Double(nanoseconds) / 1e9, output: bytes, switches: child.usage?.contextSwitches ?? 0)
  }

  // MARK: What they say

  private func check(_ found: Int, _ what: String) throws {
    guard found == count else { throw BenchFailure(description: "\(found) \(what), not \(count)") }
  }

  /// A member of the object that `sync --json` prints.
  private func number(_ name: String, in output: [UInt8]) throws -> Int {
    var json = try JSONReader(output, limits: JSONLimits(bytesMax: 64 << 10, depthMax: 2))
    var number: Int64?
    try json.beginObject()
    while let key = try json.nextKey() {
      if key == name { number = try json.int64() } else { try json.skipValue() }
    }
    guard let number else { throw BenchFailure(description: "'sync --json' printed no '\(name)'") }
    return Int(number)
  }

  private func lineCount(of path: String) throws -> Int {
    let file = try environment.fileSystem.open(path, .read)
    defer { file.close() }
    var (lines, offset): (Int, UInt64) = (0, 0)
    while true {
      let bytes = try file.read(at: offset, count: 1 << 20)
      if bytes.isEmpty { return lines }
      offset += UInt64(bytes.count)
      lines += bytes.count { $0 == UInt8(ascii: "\n") }
    }
  }
}

/// Watches a store that another process makes and fills, and tells when its first records could be read.
private struct FirstRecords {
  private let isOver = Flag()
  private let found: Found
  private let thread: BlockingThread

  private final class Found: Sendable {
    let milliseconds = Mutex<Result<Double, any Error>>(.failure(CancellationError()))
  }

  /// Begins to watch: the time counts from now.
  init(_ path: String, _ count: Int, _ environment: SystemEnvironment) throws {
    let (found, isOver) = (Found(), isOver)
    self.found = found
    let begin = environment.clock.monotonicNanoseconds()
    thread = try BlockingThread.start(name: "first-records") {
      let outcome = Result {
        try Self.watch(path, count, environment, isOver)
        return Double(environment.clock.monotonicNanoseconds() - begin) / 1e6
      }
      found.milliseconds.withLock { $0 = outcome }
    }
  }

  /// Returns when the records can be read.
  private static func watch(
    _ path: String, _ count: Int, _ environment: SystemEnvironment, _ isOver: Flag
  ) throws {
    var store: RecordStore?
    while true {
      // While the store is being made it cannot be opened. When the process has ended, it can.
      let isLast = isOver.isSet
      do {
        let opened = try store ?? RecordStore.openReadOnlyBlocking(at: path, environment: StoreEnvironment(environment))
        store = opened
        try opened.refresh()
        if opened.recordCount >= count { return try opened.closeBlocking() }
      } catch { if isLast { throw error } }
      if isLast { throw BenchFailure(description: "a store does not show the \(count) records that it was sent") }
      environment.clock.sleepBlocking(milliseconds: 2)
    }
  }

  /// The milliseconds after which they could be read. The process that fills the store has ended.
  func end() throws -> Double {
    isOver.set()
    thread.join()
    return try found.milliseconds.withLock { try $0.get() }
  }
}
