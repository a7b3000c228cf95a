// What stands between a fleet and its databases: it counts, refuses what is more than the server can do, and fails all
// requests during the outage.

import StrandlineCloudKit
import Strandline
import StrandlineServer
import StrandlineSimulation
import Synchronization

/// The server's front of a fleet.
final class FleetGate: Sendable {
  struct Counts: Sendable {
    var requests: [Int]
    var refused: [Int]
    var overload = 0
    /// Requests before the end of a wait that the server had named.
    var early = 0
  }
  private struct State: Sendable {
    var counts: Counts
    /// Requests that the server can answer at once.
    var tokens: Double
    var filled: UInt64
    /// Until when each device was told to wait, and how many of its requests were refused.
    var devices: [Int: (until: UInt64, refused: Int)] = [:]
  }
  private let state: Mutex<State>
  private let clock: SimulatedClock
  private let begin: UInt64
  /// Requests a second.
  let capacity: Double
  /// Seconds of its capacity that the server can answer at once.
  private static let burstSeconds = 10.0
  private static let retryAfterSeconds: UInt64 = 30

  init(_ clock: SimulatedClock, capacity: Double, minutes: Int) {
    (self.clock, self.capacity) = (clock, capacity)
    begin = clock.monotonicNanoseconds()
    let zeros = Array(repeating: 0, count: minutes + 1)
    state = Mutex(
      State(
        counts: Counts(requests: zeros, refused: zeros), tokens: max(10, capacity * Self.burstSeconds), filled: begin))
  }

  var counts: Counts { state.withLock { $0.counts } }
  /// How many requests of a device were refused so far.
  func counts(of device: Int) -> Int { state.withLock { $0.devices[device]?.refused ?? 0 } }

  /// A request has come. Returns its refusal; nil if the server answers it.
  func refusal(of device: Int) throws(CloudError) -> HTTPResponse? {
    // Two records that are created in two requests never have one creation time.
    clock.advance(milliseconds: 1)
    let now = clock.monotonicNanoseconds()
    let milliseconds = Int64((now - begin) / 1_000_000)
    let isOut = milliseconds >= FleetShape.outageBegin && milliseconds < FleetShape.outageEnd
    let isAnswered = state.withLock { state in
      let minute = min(Int(milliseconds / 60_000), state.counts.requests.count - 1)
      state.counts.requests[minute] += 1
      let most = max(10, capacity * Self.burstSeconds)
      state.tokens = min(most, state.tokens + capacity * Double(now - state.filled) / 1e9)
      state.filled = now
      if now < state.devices[device]?.until ?? 0 { state.counts.early += 1 }
      if !isOut, state.tokens >= 1 {
        state.tokens -= 1
        return true
      }
      state.counts.refused[minute] += 1
      state.devices[device, default: (0, 0)].refused += 1
      if !isOut {
        state.counts.overload += 1
        state.devices[device, default: (0, 0)].until = now + Self.retryAfterSeconds * 1_000_000_000
      }
      return false
    }
    if isAnswered { return nil }
    if isOut { throw CloudError(.networkError, reason: "the server is out") }
    let body = "{\"serverErrorCode\":\"TRY_AGAIN_LATER\",\"reason\":\"busy\",\"retryAfter\":\(Self.retryAfterSeconds)}"
    var response = HTTPResponse(status: 503, body: Array(body.utf8))
    response.headers["Retry-After"] = "\(Self.retryAfterSeconds)"
    return response
  }
}

/// A device's way to its database.
struct FleetTransport: Transport {
  let base: InProcessTransport
  let gate: FleetGate
  let device: Int

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    if let refusal = try gate.refusal(of: device) { return refusal }
    return try await base.send(request)
  }
}
