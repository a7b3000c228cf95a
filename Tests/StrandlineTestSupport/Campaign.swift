// How much of a campaign a test takes: those that no verb of the command runs take a slice in a run of all tests, which is to
// stay below three minutes. The whole runs with STRANDLINE_WHOLE_CAMPAIGNS=1, as `.ci/run` does.

import StrandlineSystem

package enum Campaign {
  /// Whether all of it is to be run.
  package static let isWhole = ProcessEnvironment.value(of: "STRANDLINE_WHOLE_CAMPAIGNS") == "1"

  /// Whether a case is taken: every one, or one of so many; which ones depends on `seed`.
  package static func takes(_ number: Int, _ seed: Int = 0, every part: Int = 6) -> Bool {
    isWhole || (number + seed) % part == 0
  }

  /// The places that are taken.
  package static func places(_ places: some Sequence<Int>, _ seed: Int) -> [Int] {
    places.enumerated().filter { takes($0.offset, seed) }.map(\.element)
  }

  /// The seeds that are taken.
  package static func seeds(_ seeds: ClosedRange<UInt64>, every part: Int = 6) -> [UInt64] {
    seeds.filter { takes(Int($0), every: part) }
  }
}
