// Short histories crashed at every call, and long ones at drawn places: what remains is always a prefix that holds
// everything acknowledged, and there is never a false alarm. The engine is LogHistories. These are slices: all histories
// of up to three operations, and thousands of drawn ones, run in release through `strandline crash-test`.

import StrandlineLogProofs
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A log that lost power` {
  @Test func `in any history of one operation, and a slice of those of two, at any call`() throws {
    var histories = LogHistories(seed: 1, recoverySample: 64)
    for length in 0...1 { try histories.runAll(length: length) }
    try histories.runAll(length: 2) { $0 % 3 == 1 }
    print("crash tests, complete for 1 operation, a slice of 2: \(histories.report)")
    #expect(histories.report.histories == 1 + 8 + 21)
  }

  @Test func `in a slice of the histories of three operations`() throws {
    var histories = LogHistories(seed: 3, recoverySample: 32)
    try histories.runAll(length: 3) { $0 % 51 == 5 }
    print("crash tests, a slice of 3 operations: \(histories.report)")
    #expect(histories.report.histories >= 10)
  }

  @Test func `and syncs by barriers only: a suffix may be gone, never a hole, and no alarm`() throws {
    var histories = LogHistories(seed: 5, recoverySample: 64, strength: .ordered)
    for length in 0...1 { try histories.runAll(length: length) }
    try histories.runAll(length: 2) { $0 % 3 == 0 && Campaign.takes($0 / 3) }
    for seed in Campaign.seeds(0...29) {
      var drawn = LogHistories(seed: seed, recoverySample: 4, strength: .ordered)
      try drawn.runRandom(length: 40, crashes: 4)
    }
    print("crash tests, barriers: \(histories.report) and drawn ones")
    #expect(histories.report.images > (Campaign.isWhole ? 500 : 100))
  }

  @Test(arguments: 0..<(Campaign.isWhole ? 4 : 1)) func `in long drawn histories`(part: UInt64) throws {
    var report = LogHistoryReport()
    for number in 0..<16 {
      var histories = LogHistories(seed: part * 1_000 + UInt64(number), recoverySample: 4)
      try histories.runRandom(length: 40, crashes: 4)
      report += histories.report
    }
    print("crash tests, drawn: \(report)")
    #expect(report.images > 100)
  }

  #if !DEBUG
    /// Too slow without optimization.
    @Test(arguments: 0..<2) func `in any history of three operations, at any call`(half: Int) throws {
      var histories = LogHistories(seed: 1, recoverySample: 16)
      try histories.runAll(length: 3) { $0 % 2 == half }
      print("crash tests, complete for 3 operations, half \(half): \(histories.report)")
      #expect(histories.report.histories == 256)
    }
  #endif
}
