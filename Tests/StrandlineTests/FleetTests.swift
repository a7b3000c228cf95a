// A slice of the fleet's random lives. The whole campaign runs in release through `strandline crash-test`.

import StrandlineSyncProofs
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30))) struct FleetTests {
  @Test func `random lives of a fleet end in agreement`() async throws {
    var first: UInt64 = 1
    var count: UInt64 = 24
    if let seed = ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap({ UInt64($0) }) { (first, count) = (seed, 1) }
    if let many = ProcessEnvironment.value(of: "STRANDLINE_LIVES").flatMap({ UInt64($0) }) { count = many }
    var tally = FleetSimulation.Tally()
    for seed in first..<(first + count) {
      do { tally.add(try await FleetSimulation.run(seed: seed)) } catch {
        Issue.record("\(error)\nreplay: STRANDLINE_SEED=\(seed) swift test --filter FleetTests")
        return
      }
    }
    print("fleet: \(count) lives, \(tally)")
    if count > 1 { #expect(tally.recognized > 0 && tally.merged > 0 && tally.blocked > 0 && tally.crashes > 0) }
  }
}
