// Sends requests through Foundation's URLSession, without cookies, cache or stored credentials, following no redirect,
// and accepting no answer above a limit.
//
// A delegate collects each answer piece by piece, so that an answer above the limit is never held whole. Exchange.swift
// decides what each callback means for the caller; there is one exchange for each request, all behind one lock. The
// decisions are carried out here, outside of the lock. The messages of errors are made here too: those of URLSession
// hold the whole URL, and with it the tokens.
//
// For Apple's systems alone, where it is the system's: FoundationNetworking on Linux is another program, and has no part in this
// package. It asks nobody for a password, and a timer of its own ends a request whose session does not.

#if canImport(Darwin)
  internal import Foundation
  package import StrandlineSystem
  private import Strandline

  /// Sends requests with Foundation's URLSession. ``NetworkTransport`` uses it for `https:` addresses.
  ///
  /// A request is sent at most once.
  package final class URLSessionTransport: Transport, CustomStringConvertible {
    private let session: URLSession
    private let gatherer: Gatherer
    private let totalTimeout: Double
    private let clock: any SystemClock

    /// A transport with its own connections.
    ///
    /// - Parameters:
    ///   - timeout: seconds without a byte after which a request fails.
    ///   - totalTimeout: seconds that a request and its answer may take.
    ///   - answerBytesMax: the largest body that is accepted.
    ///   - clock: measures the total time.
    package init(
      timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20,
      clock: any SystemClock = SystemEnvironment.real.clock
    ) {
      let configuration = URLSessionConfiguration.ephemeral
      configuration.httpCookieStorage = nil
      configuration.httpShouldSetCookies = false
      configuration.httpCookieAcceptPolicy = .never
      configuration.urlCache = nil
      configuration.urlCredentialStorage = nil
      configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
      configuration.timeoutIntervalForRequest = timeout
      configuration.timeoutIntervalForResource = totalTimeout
      gatherer = Gatherer(answerBytesMax: answerBytesMax)
      session = URLSession(configuration: configuration, delegate: gatherer, delegateQueue: nil)
      self.totalTimeout = totalTimeout
      self.clock = clock
    }

    /// A quarter of a second, and zero to a server on this machine.
    package func minimumInterval(to origin: String) -> Duration { HTTPOrigin.minimumInterval(to: origin) }

    /// What it is; requests in flight hold credentials.
    package var description: String { "transport over URLSession" }

    deinit {
      // A session keeps its delegate alive until it is invalidated.
      session.finishTasksAndInvalidate()
    }

    /// Sends a request and returns the whole answer; see `Transport.send(_:)`.
    package func send(_ request: HTTPRequest) async throws -> HTTPResponse {
      let text = request.origin + request.path + (request.query.isEmpty ? "" : "?" + request.query)
      guard let url = URL(string: text), let scheme = url.scheme?.lowercased(), scheme == "http" || scheme == "https",
        url.host != nil
      else {
        throw CloudError(
          .networkError, reason: "'\(request.origin)' is not a server's address; give http://host:port or https://host")
      }
      var urlRequest = URLRequest(url: url)
      urlRequest.httpMethod = request.method
      for field in request.headers.fields { urlRequest.addValue(field.value, forHTTPHeaderField: field.name) }
      if request.method != "GET" { urlRequest.httpBody = Data(request.body) }
      let task = session.dataTask(with: urlRequest)
      gatherer.begin(task, origin: request.origin)
      // The session's own time-outs do not run while it waits for something else than bytes.
      let timer = Task { [gatherer, clock, totalTimeout] in
        try await clock.sleep(milliseconds: SocketLimits.milliseconds(totalTimeout))
        gatherer.update(task) { $0.giveUp(afterSeconds: totalTimeout) }
      }
      defer { timer.cancel() }
      return try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
          gatherer.update(task) { $0.wait(continuation) }
        }
      } onCancel: {
        // May run before the caller waits, or concurrently.
        gatherer.update(task) { $0.cancel() }
      }
    }

    /// Collects the answers to all tasks.
    private final class Gatherer: NSObject, URLSessionDataDelegate, Sendable {
      typealias Caller = CheckedContinuation<HTTPResponse, any Error>
      private let answerBytesMax: Int
      /// By task; the identifiers of two sessions' tasks may be equal. An exchange that is over is removed.
      private let exchanges = OrderedMutex<[ObjectIdentifier: Exchange<Caller>]>([:])

      init(answerBytesMax: Int) { self.answerBytesMax = answerBytesMax }

      /// Registers a task before its callbacks come. The caller must wait afterwards, cancelled or not.
      func begin(_ task: URLSessionTask, origin: String) {
        let exchange = Exchange<Caller>(origin: origin, answerBytesMax: answerBytesMax)
        exchanges.withLock { $0[ObjectIdentifier(task)] = exchange }
      }

      /// Gives an input to a task's exchange and carries out the actions. A callback after the end finds no exchange.
      func update(_ task: URLSessionTask, _ input: (inout Exchange<Caller>) -> [Exchange<Caller>.Action]) {
        let id = ObjectIdentifier(task)
        let actions = exchanges.withLock { exchanges -> [Exchange<Caller>.Action] in
          // Removed while it changes, so that its body is not copied.
          guard var exchange = exchanges.removeValue(forKey: id) else { return [] }
          let actions = input(&exchange)
          if !exchange.isOver { exchanges[id] = exchange }
          return actions
        }
        for action in actions {
          switch action {
          case .start: task.resume()
          case .resume(let caller, let outcome): caller.resume(with: outcome)
          case .cancel: task.cancel()
          }
        }
      }

      func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
      ) {
        // A redirect would send the tokens to another server. The caller gets the 3xx answer.
        completionHandler(nil)
      }

      func urlSession(
        _ session: URLSession, task: URLSessionTask, didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
      ) {
        switch challenge.protectionSpace.authenticationMethod {
        case NSURLAuthenticationMethodServerTrust: completionHandler(.performDefaultHandling, nil)
        // Nobody can be asked for a password or a certificate. The caller gets the 401.
        default: completionHandler(.rejectProtectionSpace, nil)
        }
      }

      func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
      ) {
        if let response = response as? HTTPURLResponse {
          var headers = HTTPHeaders()
          for (name, value) in response.allHeaderFields { headers.append("\(name)", "\(value)") }
          update(dataTask) { $0.receive(status: response.statusCode, headers: headers) }
        }
        completionHandler(.allow)
      }

      func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        update(dataTask) { $0.receive(data) }
      }

      func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        update(task) { $0.complete(error.map(Self.problem)) }
      }

      private static func problem(_ error: any Error) -> Exchange<Caller>.Problem {
        let code = (error as? URLError)?.code ?? .unknown
        switch code {
        case .cancelled: return .cancelled
        case .serverCertificateUntrusted, .serverCertificateHasBadDate, .serverCertificateNotYetValid,
          .serverCertificateHasUnknownRoot:
          return .noSecureConnection("the server's certificate is not accepted (URL error \(code.rawValue))")
        default: return .failed(words(code))
        }
      }

      private static func words(_ code: URLError.Code) -> String {
        switch code {
        case .cannotConnectToHost: "cannot connect; is the server running?"
        case .cannotFindHost, .dnsLookupFailed: "cannot find the host"
        case .timedOut: "timed out"
        case .networkConnectionLost: "the connection was lost"
        case .notConnectedToInternet: "this machine has no network connection"
        case .badServerResponse, .cannotParseResponse: "the answer is not HTTP"
        case .secureConnectionFailed: "the TLS connection failed"
        case .badURL, .unsupportedURL: "not a server's address; give http://host:port or https://host"
        default: "the request failed (URL error \(code.rawValue))"
        }
      }
    }
  }
#endif
