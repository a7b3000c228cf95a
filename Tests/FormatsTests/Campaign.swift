// The campaigns that hand damaged files to the decoders of the pages: each file is written and read by a process in Python, so
// a run of all tests takes a slice of them. The whole runs with STRANDLINE_WHOLE_CAMPAIGNS=1, as `.ci/run` does.

import StrandlineSystem

enum Campaign {
  private static let isWhole = ProcessEnvironment.value(of: "STRANDLINE_WHOLE_CAMPAIGNS") == "1"

  /// All places, or every fourth; which ones depends on `seed`.
  static func places(_ places: some Sequence<Int>, _ seed: Int) -> [Int] {
    isWhole ? Array(places) : places.enumerated().filter { ($0.offset + seed) % 4 == 0 }.map(\.element)
  }
}
