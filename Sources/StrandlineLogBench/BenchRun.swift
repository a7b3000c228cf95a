// What the benchmarks of the log and of the store have in common: options, a directory, rounds in which the contenders
// alternate, and the rows.
//
// The order of the contenders rotates from round to round, so that other load on the machine affects all of them alike;
// the median of the rounds counts.

package import StrandlineHost
package import StrandlineSystem

/// What is under benchmark gave a wrong result.
package struct BenchFailure: Error, CustomStringConvertible {
  package var description: String

  package init(description: String) { self.description = description }
}

/// One run of a benchmark.
package struct BenchRun: Sendable {
  package let rounds: Int
  /// Whether the sizes only test the benchmark; the figures then mean nothing.
  let isQuick: Bool
  /// Only the rows whose names begin with this.
  package let prefix: String
  let directory: String
  package let environment: SystemEnvironment
  /// Set by an interrupt. Checked before every write, because a round may be long.
  package let stop: Flag
  package fileprivate(set) var rows: [BenchRow] = []

  /// - Parameter directory: Where the benchmark writes. It leaves files there, which the caller removes.
  package init(
    rounds: Int, isQuick: Bool, prefix: String, directory: String, environment: SystemEnvironment, stop: Flag
  ) {
    self.rounds = rounds
    self.isQuick = isQuick
    self.prefix = prefix
    self.directory = directory
    self.environment = environment
    self.stop = stop
  }
}

/// The measurements of one contender in all rounds of one size.
package struct Measurements: Sendable {
  package var seconds: [Double] = []
  package var latencies: [UInt64] = []
  package var peakBytes = 0

  package init() {}

  /// The rate of each round: `amount` of work per second.
  package func rates(_ amount: Double) -> [Double] { seconds.map { amount / max($0, 1e-6) } }

  /// The microseconds below which this part of the single calls lies; nil if they were not measured.
  package func quantile(_ part: Double) -> Double? {
    let sorted = latencies.sorted()
    return sorted.isEmpty ? nil : Double(sorted[Int(Double(sorted.count - 1) * part)]) / 1_000
  }
}

/// A benchmark: a run, and the workloads that the conforming type adds.
package protocol Benchmark {
  var bench: BenchRun { get set }
}

extension Benchmark {
  package var environment: SystemEnvironment { bench.environment }
  package var stop: Flag { bench.stop }

  /// The path of a name in the directory.
  package func path(_ name: String) -> String { bench.directory + "/" + name }

  /// Whether SQLite can be compared: it is installed, and the contenders use the real file system as it is.
  package var hasSQLite: Bool { environment.fileSystem is POSIXFileSystem && SQLitePeer.version != nil }

  package func checkInterrupt() throws { try stop.check() }

  package mutating func add(_ row: BenchRow) {
    guard row.work.hasPrefix(bench.prefix) else { return }
    var row = row
    // At small sizes the bars of times and rates mean nothing; counts do not depend on the size.
    if bench.isQuick, row.unit != "count" { row.bars = [] }
    bench.rows.append(row)
  }

  /// Runs `rounds` rounds of each of the `sizes` with each contender; the contenders alternate.
  ///
  /// - Returns: The measurements by size, then by contender.
  package func race(_ contenders: [any Contender], sizes: [Int], rounds: Int) async throws -> [[Measurements]] {
    let outcome: Result<[[Measurements]], any Error>
    do { outcome = .success(try await alternate(contenders, sizes, rounds)) } catch { outcome = .failure(error) }
    // After a failure too: a log that is released and not closed may still prepare a file, in a directory that is about
    // to be removed. If both fail, the error of the round is reported.
    let ended = contenders.map { contender in Result { try contender.end() } }
    let records = try outcome.get()
    for result in ended { try result.get() }
    return records
  }

  private func alternate(
    _ contenders: [any Contender], _ sizes: [Int], _ rounds: Int
  ) async throws -> [[Measurements]] {
    var records = sizes.map { _ in contenders.map { _ in Measurements() } }
    for round in 0..<rounds {
      for turn in contenders.indices {
        let index = (turn + round) % contenders.count
        for (sizeIndex, size) in sizes.enumerated() {
          try checkInterrupt()
          Measures.resetPeak()
          let sample = try await contenders[index].round(size)
          records[sizeIndex][index].seconds.append(Double(sample.nanoseconds) / 1e9)
          records[sizeIndex][index].latencies += sample.latencies
          records[sizeIndex][index].peakBytes = max(records[sizeIndex][index].peakBytes, Measures.peakBytes)
        }
      }
    }
    return records
  }

  package static func median(_ numbers: [Double]) -> Double {
    numbers.isEmpty ? 0 : numbers.sorted()[numbers.count / 2]
  }
}
