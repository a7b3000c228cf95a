// Goal: a fault of the engine that lets it go in a circle without a request is an error, and not a warm device.

import Testing

@testable import Strandline

@Suite struct `The limit of steps` {
  private func steps(_ count: Int, _ limit: inout StepLimit, requests: Int) throws {
    for _ in 0..<count { try limit.count(requests: requests, in: "/s") }
  }

  @Test func `ends a run that does nothing, and no other`() throws {
    var limit = StepLimit()
    try steps(100_000, &limit, requests: 1)
    try steps(100_000, &limit, requests: 2)
    let error = #expect(throws: StrandlineError.self) { try steps(1, &limit, requests: 2) }
    #expect(error?.code == .noProgress && error?.message.contains("'/s'") == true)
  }
}
