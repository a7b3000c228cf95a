// The workloads of `bench log` that write: one durable write at a time, many at once, and many in one transaction.

import StrandlineHost
import StrandlineLog
import StrandlineSystem
import Synchronization

extension LogBench {
  /// Random bytes, which neither a file system nor a disk can compress.
  func body(_ count: Int) -> [UInt8] { SeededRandom(seed: 0x5EED).bytes(count) }

  func openLog(_ name: String) throws -> Log {
    try Log.open(at: path(name), role: .store, environment: environment) { _ in }
  }

  static func transaction(_ body: [UInt8], times: Int = 1) -> LogTransaction {
    var transaction = LogTransaction()
    for _ in 0..<times { transaction.add(schema: 0, body: body) }
    return transaction
  }

  /// The bare loop with both methods of reserving space, with `bytes` in each write.
  private func bareLoops(_ name: String, bytes: Int) throws -> [any Contender] {
    let piece = body(bytes)
    return try BareLoop.Preset.allCases.map { preset in
      let loop = try BareLoop(environment.fileSystem, path("\(name)-\(preset.rawValue)"), preset)
      return BlockingContender(
        clock: environment.clock,
        work: { [stop] count in
          for _ in 0..<count {
            try stop.check()
            try loop.write(piece)
          }
        },
        close: { loop.close() })
    }
  }

  private func sqlite(_ name: String, _ body: [UInt8], times: Int = 1, writers: Int = 1) throws -> [any Contender] {
    guard hasSQLite else { return [] }
    let peer = try SQLitePeer(path: path(name + ".sqlite"))
    return [
      BlockingContender(
        clock: environment.clock,
        work: { [stop] count in
          if writers == 1 {
            for _ in 0..<count {
              try stop.check()
              try peer.insert(body, times: times)
            }
            return
          }
          let failure = Mutex<(any Error)?>(nil)
          let threads = try (0..<writers).map { _ in
            try BlockingThread.start(name: "sqlite") {
              do {
                for _ in 0..<count {
                  try stop.check()
                  try peer.insert(body, times: times)
                }
              } catch { failure.withLock { $0 = error } }
            }
          }
          for thread in threads { thread.join() }
          if let error = failure.withLock({ $0 }) { throw error }
        },
        close: { peer.close() })
    ]
  }

  /// Makes the rows of a workload, one for each size. In `records`, the first contender is our log, followed by SQLite if
  /// it is installed, and by the bare loops.
  private func rows(
    _ work: String, unit: String, sizes: [Int], amount: Double, _ records: [[Measurements]]
  ) -> [BenchRow] {
    var result: [BenchRow] = []
    for (index, size) in sizes.enumerated() {
      let rates = records[index].map { Self.median($0.rates(Double(size) * amount)) }
      let peers = hasSQLite ? 1 : 0
      let ours = records[index][0]
      var row = BenchRow(
        work: work + (index == 0 ? "" : ".x2"), unit: unit, ours: rates[0], sqlite: hasSQLite ? rates[1] : nil,
        limit: rates[(1 + peers)...].max(), residentBytes: ours.peakBytes,
        max: ours.rates(Double(size) * amount).max(), p50: ours.quantile(0.5), p99: ours.quantile(0.99),
        rounds: ours.seconds.count)
      if index > 0 {
        row.grows(Self.median(ours.seconds) / Swift.max(Self.median(records[0][0].seconds), 1e-9))
      }
      result.append(row)
    }
    return result
  }

  // MARK: One at a time

  mutating func measureWrites() async throws {
    for (work, bytes, factor) in [("log.durable.100", 100, 1.1), ("log.durable.1k", 1_000, 1.5)] {
      guard wants(work) else { continue }
      let body = body(bytes)
      let sizes = [count(1_000, quick: 10), count(2_000, quick: 20)]
      if !bench.prefix.hasPrefix(work + ".async") {
        let log = try openLog(work)
        let ours = BlockingContender(
          clock: environment.clock,
          work: { [stop] count in
            for _ in 0..<count {
              try stop.check()
              try log.waitUntilDurableBlocking(log.append(Self.transaction(body)).upperBound)
            }
          }, close: { try log.close() })
        let frame = LogFormat.frameBytes(bodyLength: bytes)
        let records = try await race(
          [ours] + sqlite(work, body) + bareLoops(work, bytes: frame), sizes: sizes, rounds: bench.rounds)
        for var row in rows(work, unit: "1/s", sizes: sizes, amount: 1, records) {
          row.atLeast(0.95, of: row.limit, "limit")
          row.atLeast(factor, of: row.sqlite, "SQLite")
          add(row)
        }
      }
      guard bytes == 100 else { continue }
      try await measureOneTask(work + ".async", body, sizes)
    }
  }

  private mutating func measureOneTask(_ work: String, _ body: [UInt8], _ sizes: [Int]) async throws {
    let ours = TaskContender(clock: environment.clock, log: try openLog(work), body: body, writers: 1, stop: stop)
    let frame = LogFormat.frameBytes(bodyLength: body.count)
    let records = try await race(
      [ours] + sqlite(work, body) + bareLoops(work, bytes: frame), sizes: sizes, rounds: bench.rounds)
    for var row in rows(work, unit: "1/s", sizes: sizes, amount: 1, records) {
      row.atLeast(0.6, of: row.limit, "limit")
      add(row)
    }
  }

  // MARK: Many at once

  mutating func measureGroups() async throws {
    let work = "log.group64.100"
    guard wants(work) else { return }
    let writers = 64
    let body = body(100)
    let sizes = [count(250, quick: 2), count(500, quick: 4)]
    let ours = TaskContender(clock: environment.clock, log: try openLog(work), body: body, writers: writers, stop: stop)
    // SQLite has one writer at a time. 64 connections with a busy handler starve each other for seconds; one connection
    // behind a lock is faster, so that is compared.
    let peers = try sqlite(work, body, writers: writers)
    // The limit: one thread writes the frames of all 64 writers as one piece.
    let piece = writers * LogFormat.frameBytes(bodyLength: body.count)
    let records = try await race(
      [ours] + peers + bareLoops(work, bytes: piece), sizes: sizes, rounds: bench.rounds)
    for var row in rows(work, unit: "1/s", sizes: sizes, amount: Double(writers), records) {
      row.atLeast(0.4, of: row.limit, "limit")
      row.atLeast(25, of: row.sqlite, "SQLite")
      if let p50 = row.p50, let p99 = row.p99, p50 > 0 {
        row.bars.append(.init(text: "p99 \(BenchRow.figure(p99 / p50)) × the median (≤ 2)", isMet: p99 <= 2 * p50))
      }
      add(row)
    }
  }

  // MARK: Many in one transaction

  mutating func measureBulk() async throws {
    let work = "log.bulk400.100"
    guard wants(work) else { return }
    let batch = 400
    let body = body(100)
    let sizes = [count(2_500, quick: 10), count(5_000, quick: 20)]
    let environment = environment
    let ours = FreshContender(
      clock: environment.clock, stop: stop, directory: path("bulk-ours"), fileSystem: environment.fileSystem,
      make: { path in
        let log = try Log.open(at: path + "/log", role: .store, environment: environment) { _ in }
        return (
          { try log.waitUntilDurableBlocking(log.append(Self.transaction(body, times: batch)).upperBound) },
          { try log.close() }
        )
      })
    var contenders: [any Contender] = [ours]
    if hasSQLite {
      contenders.append(
        FreshContender(
          clock: environment.clock, stop: stop, directory: path("bulk-sqlite"), fileSystem: environment.fileSystem,
          make: { path in
            let peer = try SQLitePeer(path: path + "/bulk.sqlite")
            return ({ try peer.insert(body, times: batch) }, { peer.close() })
          }))
    }
    let piece = self.body(batch * LogFormat.frameBytes(bodyLength: body.count))
    let fileSystem = environment.fileSystem
    for preset in BareLoop.Preset.allCases {
      contenders.append(
        FreshContender(
          clock: environment.clock, stop: stop, directory: path("bulk-\(preset.rawValue)"),
          fileSystem: environment.fileSystem,
          make: { path in
            let loop = try BareLoop(fileSystem, path + "/bulk", preset)
            return ({ try loop.write(piece) }, { loop.close() })
          }))
    }
    let records = try await race(contenders, sizes: sizes, rounds: min(bench.rounds, 5))
    for var row in rows(work, unit: "1/s", sizes: sizes, amount: Double(batch), records) {
      row.atLeast(0.5, of: row.limit, "limit")
      row.atLeast(1_400_000)
      row.atLeast(2, of: row.sqlite, "SQLite")
      add(row)
    }
  }

  // MARK: Plot

  /// Measures and plots durable appends per second against the number of concurrent writers.
  mutating func plot(to path: String) async throws {
    let body = body(100)
    let writers = bench.isQuick ? [1, 2, 4] : [1, 2, 4, 8, 16, 32, 64]
    var ours = Plot.Line(name: "Strandline")
    var peer = Plot.Line(name: "SQLite \(SQLitePeer.version ?? ""), WAL, synchronous FULL")
    for number in writers {
      let each = bench.isQuick ? 4 : max(100, 2_000 / number)
      let name = "plot-\(number)"
      let task = TaskContender(
        clock: environment.clock, log: try openLog(name), body: body, writers: number, stop: stop)
      let contenders = try [task] + sqlite(name, body, writers: number)
      let records = try await race(contenders, sizes: [each], rounds: bench.rounds)
      let rates = records[0].map { Self.median($0.rates(Double(each * number))) }
      ours.points.append((Double(number), rates[0]))
      if rates.count > 1 { peer.points.append((Double(number), rates[1])) }
    }
    let plot = Plot(
      title: "Durable appends of 100 bytes", horizontal: "concurrent writers", vertical: "durable appends per second",
      lines: peer.points.isEmpty ? [ours] : [ours, peer])
    try plot.save(at: path, environment.fileSystem)
  }
}

/// A blocking implementation that starts each round with an empty directory and removes it at the end.
struct FreshContender: Contender {
  let clock: any SystemClock
  let stop: Flag
  let directory: String
  let fileSystem: any FileSystem
  /// Opens what a round works on. Returns one operation of the round, and the function that closes it.
  let make: @Sendable (_ path: String) throws -> (work: () throws -> Void, close: () throws -> Void)

  func round(_ count: Int) async throws -> Sample {
    try await onThread("bench") {
      try fileSystem.makeDirectory(directory)
      let (work, close) = try make(directory)
      let begin = clock.monotonicNanoseconds()
      for _ in 0..<count {
        try stop.check()
        try work()
      }
      let sample = Sample(nanoseconds: clock.monotonicNanoseconds() - begin)
      try close()
      try fileSystem.removeTree(directory)
      return sample
    }
  }

  func end() throws {}
}
