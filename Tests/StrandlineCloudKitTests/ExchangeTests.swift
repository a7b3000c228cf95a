// Goal: a caller is resumed exactly once, with what ended its request first, whatever comes in whatever order. Method:
// every order of every choice of inputs, on the value that decides, beside a model of three lines.

import Strandline
import StrandlineCloudKit
import Testing

@Suite(.timeLimit(.minutes(30))) struct ExchangeTests {
  private enum Input: CaseIterable {
    case wait, cancel, cancelAgain, head, piece, largePiece, answer, timeOut, cancelled

    /// The outcome if this input is the first that ends the exchange; nil if it does not end it.
    func ends(after seen: [Input]) -> String? {
      switch self {
      case .wait, .head, .piece: nil
      case .cancel, .cancelAgain, .cancelled: "cancelled"
      case .largePiece: "here: the answer is larger than 5 bytes"
      case .timeOut: "here: timed out: no whole answer within 9.0 s"
      case .answer:
        if !seen.contains(.head) {
          "here: the answer is not HTTP"
        } else {
          seen.contains(.piece) ? "200 abc" : "here: the connection ended after 0 of 3 bytes"
        }
      }
    }
  }

  /// What an exchange asked for.
  private struct Done: Equatable {
    var starts = 0
    var cancels = 0
    var outcomes: [String] = []
  }

  private func feed(_ inputs: [Input]) -> (exchange: Exchange<Int>, done: Done) {
    var exchange = Exchange<Int>(origin: "here", answerBytesMax: 5)
    var done = Done()
    for input in inputs {
      let actions =
        switch input {
        case .wait: exchange.wait(7)
        case .cancel, .cancelAgain: exchange.cancel()
        case .head: exchange.receive(status: 200, headers: ["Content-Length": "3"])
        case .piece: exchange.receive(Array("abc".utf8))
        case .largePiece: exchange.receive(Array("abcdef".utf8))
        case .answer: exchange.complete(nil)
        case .timeOut: exchange.giveUp(afterSeconds: 9)
        case .cancelled: exchange.complete(.cancelled)
        }
      for action in actions {
        switch action {
        case .start: done.starts += 1
        case .cancel: done.cancels += 1
        case .resume(let caller, let outcome):
          #expect(caller == 7)
          done.outcomes.append(Self.words(outcome))
        }
      }
    }
    return (exchange, done)
  }

  private static func words(_ outcome: Result<HTTPResponse, any Error>) -> String {
    switch outcome {
    case .success(let response): "\(response.status) \(String(decoding: response.body, as: UTF8.self))"
    case .failure(let error as CloudError): error.reason
    case .failure(let error as AnswerTooLarge): error.description
    case .failure(is CancellationError): "cancelled"
    case .failure(let error): "\(error)"
    }
  }

  /// The result of a sequence, without a state: the first end decides, and the caller is resumed when it waits.
  private func expected(_ inputs: [Input]) -> Done {
    let end = inputs.indices.first { inputs[$0].ends(after: Array(inputs[..<$0])) != nil }
    let wait = inputs.firstIndex(of: .wait)
    var done = Done()
    if let wait, wait < end ?? .max { done.starts = 1 }
    if let end {
      // What URLSession reports as completed needs no cancelling.
      if [.cancel, .cancelAgain, .largePiece, .timeOut].contains(inputs[end]) { done.cancels = 1 }
      if wait != nil { done.outcomes = [inputs[end].ends(after: Array(inputs[..<end])) ?? ""] }
    }
    return done
  }

  @Test func `a failure is told with the code that its kind has`() {
    let problems: [(Exchange<Int>.Problem, CloudError.Code)] = [
      (.failed("words"), .networkError), (.noSecureConnection("words"), .noSecureConnection),
    ]
    for (problem, code) in problems {
      var exchange = Exchange<Int>(origin: "here", answerBytesMax: 5)
      _ = exchange.wait(7)
      for case .resume(_, .failure(let error)) in exchange.complete(problem) {
        #expect(error as? CloudError == CloudError(code, reason: "here: words"))
      }
      #expect(exchange.isOver)
    }
  }

  @Test func `every order of inputs resumes the caller once`() {
    var tried = 0
    var failures: [String] = []
    func extend(_ inputs: [Input], _ left: [Input]) {
      let (exchange, done) = feed(inputs)
      tried += 1
      if done != expected(inputs) { failures.append("\(inputs): \(done), and should be \(expected(inputs))") }
      if exchange.isOver != !done.outcomes.isEmpty { failures.append("\(inputs): over is \(exchange.isOver)") }
      for (place, next) in left.enumerated() {
        var rest = left
        rest.remove(at: place)
        extend(inputs + [next], rest)
      }
    }
    extend([], [.wait, .cancel, .head, .piece, .largePiece, .answer, .timeOut])
    extend([], [.wait, .cancel, .cancelAgain, .cancelled, .answer, .timeOut])
    let shortest = failures.min { $0.count < $1.count }
    #expect(failures.isEmpty, "\(failures.count) of \(tried) orders are wrong, the shortest: \(shortest ?? "")")
    #expect(tried == 13_700 + 1_957)
  }

  @Test func `a body is accepted up to the limit, piece by piece`() {
    var exchange = Exchange<Int>(origin: "here", answerBytesMax: 5)
    _ = exchange.wait(1)
    _ = exchange.receive(status: 200, headers: [:])
    for byte in "abcde".utf8 { #expect(exchange.receive([byte]).isEmpty) }
    var other = exchange
    guard case .resume(_, .success(let whole))? = exchange.complete(nil).first else {
      Issue.record("the answer was not taken")
      return
    }
    #expect(whole.body == Array("abcde".utf8))
    #expect(other.receive([UInt8(ascii: "f")]).count == 2)
    #expect(other.isOver)
  }
}
