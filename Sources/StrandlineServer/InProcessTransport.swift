// Hands a client's requests to a server in the same process: the same JSON, headers and refusals as over a socket.

package import StrandlineCloudKit
internal import StrandlineSystem
internal import Strandline

/// Carries requests to a `CloudServer` without a network.
package struct InProcessTransport: Transport {
  private let server: CloudServer
  private let waitsForDroppedAnswers: Bool

  /// A transport to a server.
  package init(_ server: CloudServer) { self.init(server, waitsForDroppedAnswers: true) }

  /// - Parameter waitsForDroppedAnswers: whether a call whose answer is dropped waits until its task is cancelled. If
  ///   false, it throws a network error at once.
  package init(_ server: CloudServer, waitsForDroppedAnswers: Bool) {
    self.server = server
    self.waitsForDroppedAnswers = waitsForDroppedAnswers
  }

  /// Sends a request and returns its answer. If the fault `dropAnswer` drops the answer, the call waits until its task is
  /// cancelled.
  package func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    try Task.checkCancellation()
    let latency = server.latencyMilliseconds
    if latency > 0 { try await server.environment.clock.sleep(milliseconds: latency) }
    switch server.answer(request) {
    case .respond(let response): return response
    case .push(let headers, let box):
      let push = try await box.next(within: CloudServer.courierMilliseconds, server.environment.clock)
      return HTTPResponse(status: 200, headers: headers, body: push)
    case .hang:
      guard waitsForDroppedAnswers else {
        throw CloudError(.networkError, reason: "the connection broke before the answer came")
      }
      // A stream without values ends when the task that reads it is cancelled.
      let (never, _) = AsyncStream<Never>.makeStream()
      for await _ in never {}
      throw CancellationError()
    }
  }
}
