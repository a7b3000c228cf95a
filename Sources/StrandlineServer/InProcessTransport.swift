// A client's requests handed to a server in the same process: the same JSON, headers and refusals as over a
// socket, without one.

public import StrandlineCloudKit
internal import StrandlineSystem
internal import Strandline

/// Carries requests to a server object.
public struct InProcessTransport: Transport {
  private let server: CloudServer
  private let isPatient: Bool

  /// A way to a server.
  public init(_ server: CloudServer) { self.init(server, isPatient: true) }

  /// - Parameter isPatient: waits for an answer that was dropped; otherwise such a connection breaks at once.
  package init(_ server: CloudServer, isPatient: Bool) {
    self.server = server
    self.isPatient = isPatient
  }

  /// Sends a request. An answer that the server was told to drop never comes: the call ends when the task is
  /// cancelled.
  public func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    try Task.checkCancellation()
    let latency = server.latencyMilliseconds
    if latency > 0 { try await server.environment.clock.sleep(milliseconds: latency) }
    switch server.answer(request) {
    case .respond(let response): return response
    case .hang:
      guard isPatient else { throw CloudError(.networkError, reason: "the connection broke before the answer came") }
      // A stream that nobody writes to ends with the task that reads it.
      let (never, _) = AsyncStream<Never>.makeStream()
      for await _ in never {}
      throw CancellationError()
    }
  }
}
