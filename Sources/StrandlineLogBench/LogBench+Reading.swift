// The works of `bench log` that read: checking every byte, opening, and what no reader may do: sync.

import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization

extension LogBench {
  /// Opens a log as somebody does who wants to go on with it and not to hear its events again.
  private func openWithoutReplay(_ path: String, _ options: LogOptions = .init()) throws -> Log {
    try Log.open(
      at: path, role: .store, options: options, environment: environment, createIfAbsent: false, from: nil
    ) { _ in }
  }

  /// Appends events of 200 bytes until the log has `bytes` more, about 1 MiB a transaction.
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

  /// Waits until another's round is a plain thread's.
  private func timed(_ body: @escaping @Sendable () throws -> Void) async throws -> Double {
    let clock = environment.clock
    let nanoseconds = try await onThread("bench") {
      let begin = clock.monotonicNanoseconds()
      try body()
      return clock.monotonicNanoseconds() - begin
    }
    // No clock that stands still makes a figure infinite.
    return max(Double(nanoseconds) / 1e9, 1e-6)
  }

  mutating func measureReading() async throws {
    guard wants("log.verify.200") || wants("log.open.clean") || wants("log.open.crash") else { return }
    let bytes = count(1_000_000_000, quick: 4_000_000)
    let rounds = min(options.rounds, 5)
    var halves: [String: Double] = [:]
    let path = place("corpus")
    for (suffix, size) in [("", bytes), (".x2", 2 * bytes)] {
      let bench = self
      try await onThread("bench") { [suffix] in
        let log = suffix.isEmpty ? try bench.openLog("corpus") : try bench.openWithoutReplay(path)
        try bench.fill(log, bytes: bytes)
        try log.close()
      }
      if wants("log.verify.200" + suffix) {
        try await verify("log.verify.200", suffix, path, size: size, rounds: rounds, &halves)
      }
      if wants("log.open.clean" + suffix) { try await openClean("log.open.clean", suffix, path, rounds, &halves) }
      if wants("log.open.crash" + suffix) { try await openCrash("log.open.crash", suffix, path, rounds, &halves) }
    }
    try environment.fileSystem.removeTree(path)
  }

  /// Every byte read and checked, beside reading every byte.
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
            throw LogBenchFailure(description: "the benchmark's own log does not verify: \(report.findings)")
          }
        })
      peak = max(peak, Measures.peakBytes)
    }
    let megabytes = Double(size) / 1e6
    var row = LogBenchRow(
      work: work + suffix, unit: "MB/s", ours: megabytes / Self.median(ours), sqlite: nil,
      limit: megabytes / Self.median(bare), residentBytes: peak, max: ours.min().map { megabytes / $0 },
      rounds: rounds)
    row.atLeast(3_000)
    if let half = halves[work] { row.grows(Self.median(ours) / max(half, 1e-9)) }
    if let half = halves[work + ".rss"] {
      row.bars.append(
        .init(
          text: "memory \(LogBenchRow.figure(Double(peak) / half)) × that of half (≤ 1.2)",
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

  /// Open and read the last event, of a log that was closed.
  private mutating func openClean(
    _ work: String, _ suffix: String, _ path: String, _ rounds: Int, _ halves: inout [String: Double]
  ) async throws {
    let bench = self
    var times: [Double] = []
    Measures.resetPeak()
    for _ in 0..<rounds {
      try checkInterrupt()
      times.append(try await bench.openAndReadLast(path))
    }
    addOpen(work, suffix, times, bound: 10, &halves)
  }

  /// The same after a writer that vanished in the middle of a segment: nothing promised, nothing closed.
  private mutating func openCrash(
    _ work: String, _ suffix: String, _ path: String, _ rounds: Int, _ halves: inout [String: Double]
  ) async throws {
    let bench = self
    let tail = count(8 << 20, quick: 1 << 20)
    var times: [Double] = []
    for _ in 0..<rounds {
      try checkInterrupt()
      try await onThread("bench") {
        // Let go without being closed: the lock is given back, and nothing is written.
        let log = try bench.openWithoutReplay(path, LogOptions(controlIntervalMilliseconds: nil))
        try bench.fill(log, bytes: tail)
        // Nor has a process that was killed a thread that goes on.
        log.waitForUpkeep()
      }
      Measures.resetPeak()
      times.append(try await bench.openAndReadLast(path))
    }
    addOpen(work, suffix, times, bound: 10 + Double(tail) / Double(2 << 20), &halves)
  }

  /// Seconds until the last event was read; closing is no part of opening.
  private func openAndReadLast(_ path: String) async throws -> Double {
    let opened = Mutex<Log?>(nil)
    let seconds = try await timed {
      let log = try openWithoutReplay(path)
      guard try log.read(log.durableLSN).body.count == 200 else {
        throw LogBenchFailure(description: "the last event of the benchmark's own log is not what was written")
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
    var row = LogBenchRow(
      work: work + suffix, unit: "ms", ours: median * 1_000, sqlite: nil, limit: nil,
      residentBytes: Measures.peakBytes, max: seconds.max().map { $0 * 1_000 }, rounds: seconds.count)
    row.atMost(bound)
    if let half = halves[work] { row.grows(median / max(half, 1e-9)) }
    halves[work] = median
    add(row)
  }

  // MARK: Syncs

  /// Counts, no clock: what a commit and a read ask of the disk.
  mutating func countSyncs() async throws {
    guard wants("log.syncs") else { return }
    for (suffix, groups) in [("", 500), (".x2", 1_000)] {
      try checkInterrupt()
      let bench = self
      let (perGroup, reading) = try await onThread("bench") { [suffix] in try bench.syncs("syncs" + suffix, groups) }
      var row = LogBenchRow(
        work: "log.syncs" + suffix, unit: "count", ours: perGroup, sqlite: nil, limit: nil,
        residentBytes: Measures.peakBytes, rounds: groups)
      row.bars.append(.init(text: "1 a group", isMet: perGroup == 1))
      add(row)
      row = LogBenchRow(
        work: "log.syncs.reading" + suffix, unit: "count", ours: reading, sqlite: nil, limit: nil,
        residentBytes: Measures.peakBytes, rounds: groups)
      row.bars.append(.init(text: "none", isMet: reading == 0))
      add(row)
    }
  }

  private func syncs(_ name: String, _ groups: Int) throws -> (perGroup: Double, reading: Double) {
    let counting = FaultInjector(environment.fileSystem)
    var surroundings = environment
    surroundings.fileSystem = counting
    let path = place(name)
    let log = try Log.open(at: path, role: .store, environment: surroundings) { _ in }
    let body = body(100)
    counting.resetCounts()
    for _ in 0..<groups { try log.waitUntilDurableBlocking(log.append(Self.transaction(body)).upperBound) }
    let writing = counting.count(.sync) + counting.count(.syncDirectory)
    try log.close()
    counting.resetCounts()
    // A log that is only read, by its readers and by those who check it.
    let reader = try LogReader.open(at: path, role: .store, environment: surroundings)
    try reader.poll { _ in }
    for lsn in 1...UInt64(groups) { _ = try reader.read(lsn) }
    _ = try LogVerifier.verify(at: path, environment: surroundings)
    return (Double(writing) / Double(groups), Double(counting.count(.sync) + counting.count(.syncDirectory)))
  }
}
