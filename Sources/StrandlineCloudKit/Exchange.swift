// The state of one request and its answer: the inputs that may come, in any order, and the actions that follow.
//
// The caller, the task that cancels it, and the transport work on different threads, so a cancellation or a completion
// may come before the caller waits. A caller that is never resumed waits for ever, and one that is resumed twice ends
// the process. Here neither can happen: the first input that ends the exchange decides its outcome, an outcome that
// comes before the caller waits is kept until it does, and every later input is ignored.
//
// Pure, without threads, locks or connections, so that a test can try every order.

private import Strandline

/// One request under way. `Caller` is what waits for the answer: a continuation, or a number in a test.
package struct Exchange<Caller: Sendable>: Sendable {
  /// What the transport has to do after an input, outside of any lock.
  package enum Action: Sendable {
    /// Send the request.
    case start
    /// Hand the outcome to the caller.
    case resume(Caller, Result<HTTPResponse, any Error>)
    /// Cancel the request.
    case cancel
  }

  private enum State: Sendable {
    case idle
    case waiting(Caller)
    /// The outcome came before the caller.
    case decided(Result<HTTPResponse, any Error>)
    case over
  }

  private let origin: String
  private let answerBytesMax: Int
  private var state = State.idle
  private var response = HTTPResponse(status: 0)

  /// An exchange before its request is sent.
  ///
  /// - Parameters:
  ///   - origin: the server, as errors name it.
  ///   - answerBytesMax: the largest body that is taken.
  package init(origin: String, answerBytesMax: Int) {
    self.origin = origin
    self.answerBytesMax = answerBytesMax
  }

  /// Whether the caller has its outcome; then no input changes anything.
  package var isOver: Bool { if case .over = state { true } else { false } }

  // MARK: Inputs

  /// The caller waits from now on. Must be called once.
  package mutating func wait(_ caller: Caller) -> [Action] {
    switch state {
    case .idle:
      state = .waiting(caller)
      return [.start]
    case .decided(let outcome):
      state = .over
      return [.resume(caller, outcome)]
    case .waiting, .over: preconditionFailure("an exchange has one caller, who waits once")
    }
  }

  /// The caller's task was cancelled: it is resumed at once, before the transport reports the end.
  package mutating func cancel() -> [Action] { end(.failure(CancellationError()), cancelling: true) }

  /// Status and header of the answer came. If they come again, the last ones count.
  package mutating func receive(status: Int, headers: HTTPHeaders) -> [Action] {
    guard isOpen else { return [] }
    response = HTTPResponse(status: status, headers: headers, body: response.body)
    return []
  }

  /// The next piece of the answer's body came.
  package mutating func receive(_ piece: some Collection<UInt8>) -> [Action] {
    guard isOpen else { return [] }
    guard piece.count <= answerBytesMax - response.body.count else {
      response.body = []
      return end(tooLarge(response), cancelling: true)
    }
    response.body.append(contentsOf: piece)
    return []
  }

  /// The whole time has passed without the whole answer.
  package mutating func giveUp(afterSeconds seconds: Double) -> [Action] {
    end(failure("timed out: no whole answer within \(seconds) s"), cancelling: true)
  }

  /// URLSession completed the request: with the whole answer, or with a problem.
  package mutating func complete(_ problem: Problem?) -> [Action] {
    switch problem {
    case .cancelled: end(.failure(CancellationError()), cancelling: false)
    case .failed(let words): end(failure(words), cancelling: false)
    case .noSecureConnection(let words): end(failure(words, .noSecureConnection), cancelling: false)
    case .ofContent(let error): end(.failure(error), cancelling: false)
    case .tooLarge(let head): end(tooLarge(head), cancelling: false)
    case nil: end(answer, cancelling: false)
    }
  }

  /// The transport read the whole answer, and has checked it.
  package mutating func complete(with answer: HTTPResponse) -> [Action] { end(.success(answer), cancelling: false) }

  /// Why an exchange completed without its whole answer.
  package enum Problem: Sendable {
    case cancelled
    /// In words that hold no token.
    case failed(String)
    /// There is no secure connection, and time alone does not change it. In words that hold no token.
    case noSecureConnection(String)
    /// The content to send could not be read, or the one that came could not be kept.
    case ofContent(any Error)
    /// The body of the answer that begins so has more bytes than are taken.
    case tooLarge(HTTPResponse)
  }

  // MARK: Outcomes

  private var isOpen: Bool {
    switch state {
    case .idle, .waiting: true
    case .decided, .over: false
    }
  }

  private mutating func end(_ outcome: Result<HTTPResponse, any Error>, cancelling: Bool) -> [Action] {
    let cancelled: [Action] = cancelling ? [.cancel] : []
    switch state {
    case .idle:
      state = .decided(outcome)
      return cancelled
    case .waiting(let caller):
      state = .over
      return [.resume(caller, outcome)] + cancelled
    case .decided, .over: return []
    }
  }

  private func failure(
    _ words: String, _ code: CloudError.Code = .networkError
  ) -> Result<HTTPResponse, any Error> {
    .failure(CloudError(code, reason: "\(origin): \(words)"))
  }

  private func tooLarge(_ head: HTTPResponse) -> Result<HTTPResponse, any Error> {
    .failure(
      AnswerTooLarge(head: head, description: "\(origin): the answer is larger than \(answerBytesMax) bytes"))
  }

  private var answer: Result<HTTPResponse, any Error> {
    guard response.status != 0 else { return failure("the answer is not HTTP") }
    // A body shorter than its Content-Length means that the connection broke, also where URLSession reports success.
    if let length = response.headers["content-length"].flatMap({ Int($0) }),
      response.headers["content-encoding"] == nil, response.body.count < length
    {
      return failure("the connection ended after \(response.body.count) of \(length) bytes")
    }
    return .success(response)
  }
}
