// Who answers the requests of an HTTPServer: the cloud, or a page for people that hands on to the cloud.

package import StrandlineCloudKit
package import StrandlineSystem

/// Answers the requests of an `HTTPServer`. Called on the thread of the connection, which may block.
package protocol HTTPService: Sendable {
  /// The clock of delays.
  var clock: any SystemClock { get }
  /// Why no request can be answered any more; the server then stops. Nil while they can.
  var failure: String? { get }
  /// How long the answer to a request is held back.
  func delayMilliseconds(of request: HTTPRequest) -> Int64
  /// The answer. Returns when it may be sent.
  func serve(_ request: HTTPRequest) -> HTTPAnswer
  /// Is told of a request that was refused before it could be asked for an answer.
  func wasRefused(_ refusal: RefusedRequest)
  /// Who takes the body of a request, of which only the head has come, in pieces; nil: `serve` gets the whole body.
  func sink(for request: HTTPRequest) -> IncomingContent?
}

extension HTTPService {
  package func wasRefused(_ refusal: RefusedRequest) {}
}

/// A request that the connection refused, because of its host, its origin, its size or its syntax.
package struct RefusedRequest: Sendable {
  /// Method and path, if they could be read.
  package var target: (method: String, path: String)?
  package var status: Int
  package var response: [UInt8]
}

/// What a connection does with a request.
package enum HTTPAnswer: Sendable {
  case respond(HTTPResponse)
  /// Send nothing and keep the connection until the client closes it.
  case hang
  /// Send status 200 and the header, then what the closure sends; when it returns, the connection ends. With a length, of as many
  /// bytes.
  case stream(HTTPHeaders, length: Int? = nil, @Sendable (HTTPStream) -> Void)
}

/// An answer that is sent piece by piece.
package struct HTTPStream {
  /// Sends bytes. Returns false if the client has gone or does not read.
  package let send: ([UInt8]) -> Bool
  /// Waits for so many milliseconds. Returns false, at once, when the client has gone or the server stops.
  package let pause: (Int64) -> Bool

  package init(send: @escaping ([UInt8]) -> Bool, pause: @escaping (Int64) -> Bool) {
    self.send = send
    self.pause = pause
  }
}

extension CloudServer: HTTPService {
  package var clock: any SystemClock { environment.clock }

  package func delayMilliseconds(of request: HTTPRequest) -> Int64 { latencyMilliseconds }

  package func sink(for request: HTTPRequest) -> IncomingContent? {
    request.path.hasPrefix(Self.contentPath) && request.method == "POST" ? upload(request) : nil
  }

  package func serve(_ request: HTTPRequest) -> HTTPAnswer {
    if request.path.hasPrefix(Self.contentPath) { return download(request) }
    return switch answer(request) {
    case .respond(let response): .respond(response)
    case .hang: .hang
    case .push(let headers, let box): .stream(headers) { stream in Self.send(from: box, to: stream) }
    }
  }

  /// Sends the next push of a mailbox. It is looked for in short steps, because the thread also notices that the client has gone.
  private static func send(from box: PushBox, to stream: HTTPStream) {
    for _ in 0..<(courierMilliseconds / courierStepMilliseconds) {
      if let push = box.take() {
        // A client that does not read it has lost it, as one whose connection has broken.
        _ = stream.send(push)
        return
      }
      guard stream.pause(courierStepMilliseconds) else { return }
    }
  }

  private static var courierStepMilliseconds: Int64 { 20 }
}
