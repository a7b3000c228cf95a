// The workloads of `bench log` that read: verifying, opening, and counting the syncs of a reader, which must be none.

import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization

extension LogBench {
  /// Opens a log for writing without replaying its events.
  private func openWithoutReplay(_ path: String, _ options: LogOptions = .init()) throws -> Log {
    try Log.open(
      at: path, role: .store, options: options, environment: environment, createIfAbsent: false, from: nil
    ) { _ in }
  }

  /// Appends events of 200 bytes, about `bytes` in all, in transactions of about 1 MiB.
  private func fill(_ log: Log, bytes: Int) throws {
    let body = body(200)
    let frame = LogFormat.frameBytes(bodyLength: body.count)
    let most = max(1, (1 << 20) / frame)
    var left = bytes / frame
    while left > 0 {
      try checkInterrupt()
      try log.waitUntilDurableBlocking(log.append(Self.transaction(body, times: min(left, most))).upperBound)
      left -= most
    }
  }

  /// Runs `body` on a thread of its own and returns the seconds that it took.
  private func timed(_ body: @escaping @Sendable () throws -> Void) async throws -> Double {
    let clock = environment.clock
    let nanoseconds = try await onThread("bench") {
      let begin = clock.monotonicNanoseconds()
      try body()
      return clock.monotonicNanoseconds() - begin
    }
    // At least a microsecond, so that no rate is infinite with a clock that stands still.
    return max(Double(nanoseconds) / 1e9, 1e-6)
  }

  mutating func measureReading() async throws {
    guard wants("log.verify.200") || wants("log.open.clean") || wants("log.open.crash") else { return }
    let bytes = count(1_000_000_000, quick: 4_000_000)
    let rounds = min(bench.rounds, 5)
    var halves: [String: Double] = [:]
    let path = path("corpus")
    for (suffix, size) in [("", bytes), (".x2", 2 * bytes)] {
      let works = self
      try await onThread("bench") { [suffix] in
        let log = suffix.isEmpty ? try works.openLog("corpus") : try works.openWithoutReplay(path)
        let filled = Result { try works.fill(log, bytes: bytes) }
        // Also after an interrupt, so that no thread of the log works in a directory that is being removed.
        try log.close()
        try filled.get()
      }
      if wants("log.verify.200" + suffix) {
        try await verify("log.verify.200", suffix, path, size: size, rounds: rounds, &halves)
      }
      if wants("log.open.clean" + suffix) { try await openClean("log.open.clean", suffix, path, rounds, &halves) }
      if wants("log.open.crash" + suffix) { try await openCrash("log.open.crash", suffix, path, rounds, &halves) }
    }
    try environment.fileSystem.removeTree(path)
  }

  /// Measures verifying a log, and as the limit reading all its bytes.
  private mutating func verify(
    _ work: String, _ suffix: String, _ path: String, size: Int, rounds: Int, _ halves: inout [String: Double]
  ) async throws {
    let environment = environment
    var (ours, bare): ([Double], [Double]) = ([], [])
    var peak = 0
    for _ in 0..<rounds {
      try checkInterrupt()
      bare.append(try await timed { try Self.readAll(path, environment.fileSystem) })
      Measures.resetPeak()
      ours.append(
        try await timed {
          let report = try LogVerifier.verify(at: path, environment: environment)
          guard report.isSound, report.bytes >= UInt64(size) else {
            throw BenchFailure(description: "the benchmark's own log does not verify: \(report.findings)")
          }
        })
      peak = max(peak, Measures.peakBytes)
    }
    let megabytes = Double(size) / 1e6
    var row = BenchRow(
      work: work + suffix, unit: "MB/s", ours: megabytes / Self.median(ours), sqlite: nil,
      limit: megabytes / Self.median(bare), residentBytes: peak, max: ours.min().map { megabytes / $0 },
      rounds: rounds)
    row.atLeast(3_000)
    if let half = halves[work] { row.grows(Self.median(ours) / max(half, 1e-9)) }
    if let half = halves[work + ".rss"] {
      row.bars.append(
        .init(
          text: "memory \(BenchRow.figure(Double(peak) / half)) × that of half (≤ 1.2)",
          isMet: Double(peak) <= 1.2 * half))
    }
    halves[work] = Self.median(ours)
    halves[work + ".rss"] = Double(peak)
    add(row)
  }

  private static func readAll(_ path: String, _ fileSystem: any FileSystem) throws {
    for name in try fileSystem.list(path) where name.hasSuffix(LogFormat.segmentSuffix) {
      let file = try fileSystem.open(path + "/" + name, .read)
      defer { file.close() }
      var offset: UInt64 = 0
      while true {
        let bytes = try file.read(at: offset, count: LogFormat.readChunkBytes)
        if bytes.isEmpty { break }
        offset += UInt64(bytes.count)
      }
    }
  }

  /// Measures opening a log that was closed, and reading its last event.
  private mutating func openClean(
    _ work: String, _ suffix: String, _ path: String, _ rounds: Int, _ halves: inout [String: Double]
  ) async throws {
    let works = self
    var times: [Double] = []
    Measures.resetPeak()
    for _ in 0..<rounds {
      try checkInterrupt()
      times.append(try await works.openAndReadLast(path))
    }
    addOpen(work, suffix, times, bound: 10, &halves)
  }

  /// Measures the same after a writer that ended in the middle of a segment without an idle marker and without closing.
  private mutating func openCrash(
    _ work: String, _ suffix: String, _ path: String, _ rounds: Int, _ halves: inout [String: Double]
  ) async throws {
    let works = self
    let tail = count(8 << 20, quick: 1 << 20)
    var times: [Double] = []
    for _ in 0..<rounds {
      try checkInterrupt()
      try await onThread("bench") {
        // The log is released and not closed: this unlocks it and writes nothing.
        let log = try works.openWithoutReplay(path, LogOptions(controlIntervalMilliseconds: nil))
        // A killed process has no thread that still works either.
        defer { log.waitForUpkeep() }
        try works.fill(log, bytes: tail)
      }
      Measures.resetPeak()
      times.append(try await works.openAndReadLast(path))
    }
    addOpen(work, suffix, times, bound: 10 + Double(tail) / Double(2 << 20), &halves)
  }

  /// The seconds for opening a log and reading its last event, without closing it.
  private func openAndReadLast(_ path: String) async throws -> Double {
    let opened = Mutex<Log?>(nil)
    let seconds = try await timed {
      let log = try openWithoutReplay(path)
      guard try log.read(log.durableLSN).body.count == 200 else {
        throw BenchFailure(description: "the last event of the benchmark's own log is not what was written")
      }
      opened.withLock { $0 = log }
    }
    try opened.withLock { try $0?.close() }
    return seconds
  }

  private mutating func addOpen(
    _ work: String, _ suffix: String, _ seconds: [Double], bound: Double, _ halves: inout [String: Double]
  ) {
    let median = Self.median(seconds)
    var row = BenchRow(
      work: work + suffix, unit: "ms", ours: median * 1_000, sqlite: nil, limit: nil,
      residentBytes: Measures.peakBytes, max: seconds.max().map { $0 * 1_000 }, rounds: seconds.count)
    row.atMost(bound)
    if let half = halves[work] { row.grows(median / max(half, 1e-9)) }
    halves[work] = median
    add(row)
  }

  // MARK: Syncs

  /// Counts the syncs of a group commit and of a reader. Measures no time.
  mutating func countSyncs() async throws {
    guard wants("log.syncs") else { return }
    for (suffix, groups) in [("", 500), (".x2", 1_000)] {
      try checkInterrupt()
      let works = self
      let (perGroup, reading) = try await onThread("bench") { [suffix] in try works.syncs("syncs" + suffix, groups) }
      var row = BenchRow(
        work: "log.syncs" + suffix, unit: "count", ours: perGroup, sqlite: nil, limit: nil,
        residentBytes: Measures.peakBytes, rounds: groups)
      row.bars.append(.init(text: "1 a group", isMet: perGroup == 1))
      add(row)
      row = BenchRow(
        work: "log.syncs.reading" + suffix, unit: "count", ours: reading, sqlite: nil, limit: nil,
        residentBytes: Measures.peakBytes, rounds: groups)
      row.bars.append(.init(text: "none", isMet: reading == 0))
      add(row)
    }
  }

  private func syncs(_ name: String, _ groups: Int) throws -> (perGroup: Double, reading: Double) {
    let counting = FaultInjector(environment.fileSystem)
    var countingEnvironment = environment
    countingEnvironment.fileSystem = counting
    let path = path(name)
    let log = try Log.open(at: path, role: .store, environment: countingEnvironment) { _ in }
    let body = body(100)
    counting.resetCounts()
    for _ in 0..<groups { try log.waitUntilDurableBlocking(log.append(Self.transaction(body)).upperBound) }
    let writing = counting.count(.sync) + counting.count(.syncDirectory)
    try log.close()
    counting.resetCounts()
    // From here on the log is only read and verified.
    let reader = try LogReader.open(at: path, role: .store, environment: countingEnvironment)
    try reader.poll { _ in }
    for lsn in 1...UInt64(groups) { _ = try reader.read(lsn) }
    _ = try LogVerifier.verify(at: path, environment: countingEnvironment)
    return (Double(writing) / Double(groups), Double(counting.count(.sync) + counting.count(.syncDirectory)))
  }
}
