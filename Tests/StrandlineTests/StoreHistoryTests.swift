// A slice of the random histories of a store. The whole campaign runs in release through `strandline crash-test --store`.

import StrandlineSyncProofs
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30))) struct `Random histories of a store` {
  @Test func `end as the model says`() async throws {
    var first: UInt64 = 1
    var count: UInt64 = 60
    if let seed = ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap({ UInt64($0) }) { (first, count) = (seed, 1) }
    if let many = ProcessEnvironment.value(of: "STRANDLINE_HISTORIES").flatMap({ UInt64($0) }) { count = many }
    var tally = StoreHistory.Tally()
    for seed in first..<first + count {
      do { tally.add(try await StoreHistory.run(seed: seed)) } catch let failure as StoreHistory.Failure {
        let steps = failure.steps.map { "\($0)" }.joined(separator: ",")
        Issue.record("\(failure)\nreplay: strandline crash-test --store 1 --seed \(seed) --steps \(steps)")
        return
      }
    }
    print("store histories: \(count), \(tally)")
    guard count >= 60 else { return }
    #expect(tally.powerCuts > 0 && tally.failures > 0 && tally.compactions > 0 && tally.damages > 0)
    #expect(tally.settled > 0 && tally.pages > 0 && tally.viewReads > 0 && tally.comparisons > 0 && tally.runsMax > 2)
    #expect(tally.fetched > 0 && tally.indexChanges > 0 && tally.writesBesideBuilds > 0 && tally.indexedPages > 0)
    #expect(tally.cascaded > 0 && tally.mistakesRefused > 0)
    #expect(tally.observed > 0 && tally.failedReads > 0 && tally.refreshes > 0)
  }
}
