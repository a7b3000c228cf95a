// `bench log`: measures the log next to SQLite and to a bare loop of the same writes, all in one run.
//
// Each workload runs at two sizes, to check that its time grows no faster than its size. LogBench+Works.swift and
// LogBench+Reading.swift have the workloads, Contenders.swift the contenders, BenchRun.swift what alternates them.

/// The benchmark of the log.
package struct LogBench: Benchmark {
  package var bench: BenchRun
  private let plotPath: String?

  /// - Parameter plotPath: Where to write a plot of the appends against the number of writers; nil for no plot.
  package init(_ bench: BenchRun, plotPath: String?) {
    self.bench = bench
    self.plotPath = plotPath
  }

  package mutating func run() async throws {
    try await measureWrites()
    try await measureGroups()
    try await measureBulk()
    try await measureReading()
    try await countSyncs()
    if let plotPath { try await plot(to: plotPath) }
  }

  func wants(_ work: String) -> Bool { work.hasPrefix(bench.prefix) || bench.prefix.hasPrefix(work) }

  /// The number of operations: `full`, or `quick` if the sizes are small.
  func count(_ full: Int, quick: Int) -> Int { bench.isQuick ? quick : full }
}
