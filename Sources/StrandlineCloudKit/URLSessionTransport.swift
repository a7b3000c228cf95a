// Sends requests through Foundation's URLSession, without cookies, cache or stored credentials, following no redirect,
// and accepting no answer above a limit.
//
// A delegate collects each answer piece by piece, so that an answer above the limit is never held whole. Exchange.swift
// decides what each callback means for the caller; there is one exchange for each request, all behind one lock. The
// decisions are carried out here, outside of the lock. The messages of errors are made here too: those of URLSession
// hold the whole URL, and with it the tokens.
//
// On Linux a session is made for each request. FoundationNetworking (libcurl) sends a request again if the kept-alive
// connection that carried it ends before the answer, and the second POST has a header and no body: the server waits for
// the body, and the client for the answer, until the time-out. A connection that carries one request is never such a
// connection.

internal import Foundation
private import Strandline
internal import StrandlineSystem

#if canImport(FoundationNetworking)
  internal import FoundationNetworking
#endif

/// Sends requests with Foundation's URLSession. ``NetworkTransport`` uses it for `https:` addresses.
///
/// A request is sent at most once. On Linux this costs a connection and a TLS handshake for each request, because
/// FoundationNetworking repeats a request whose kept-alive connection broke. Two of its defects remain there: while it
/// waits for an answer on a new connection it occupies a core, and it ends the process if the connection ends within the
/// answer's header. The store is sound after that, as after any crash: the next cycle looks which operations arrived.
package final class URLSessionTransport: Transport, CustomStringConvertible {
  #if canImport(FoundationNetworking)
    private let configuration: URLSessionConfiguration
  #else
    private let session: URLSession
  #endif
  private let gatherer: Gatherer

  /// A transport with its own connections.
  ///
  /// - Parameters:
  ///   - timeout: seconds without a byte after which a request fails.
  ///   - totalTimeout: seconds that a request and its answer may take.
  ///   - answerBytesMax: the largest body that is accepted.
  package init(timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20) {
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
    #if canImport(FoundationNetworking)
      self.configuration = configuration
    #else
      session = URLSession(configuration: configuration, delegate: gatherer, delegateQueue: nil)
    #endif
  }

  /// A quarter of a second, and zero to a server on this machine.
  package func minimumInterval(to origin: String) -> Duration { HTTPOrigin.minimumInterval(to: origin) }

  /// What it is; requests in flight hold credentials.
  package var description: String { "transport over URLSession" }

  #if canImport(FoundationNetworking)
    /// A task in a session of its own.
    private func task(for request: URLRequest) -> URLSessionTask {
      let session = URLSession(configuration: configuration, delegate: gatherer, delegateQueue: nil)
      // The session ends after the task. Until then it keeps its delegate alive.
      defer { session.finishTasksAndInvalidate() }
      return session.dataTask(with: request)
    }
  #else
    deinit {
      // A session keeps its delegate alive until it is invalidated.
      session.finishTasksAndInvalidate()
    }

    private func task(for request: URLRequest) -> URLSessionTask { session.dataTask(with: request) }
  #endif

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
    let task = task(for: urlRequest)
    gatherer.begin(task, origin: request.origin)
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
      if code == .cancelled { return .cancelled }
      // On Linux a certificate that does not verify has no code of its own, only libcurl's words, which name the host and
      // no part of the URL's path or query.
      let words = error.localizedDescription
      if code == .unknown, words.hasPrefix("SSL") {
        return .failed("the TLS connection failed, or the server's certificate is not valid (\(words.prefix(160)))")
      }
      return .failed(self.words(code))
    }

    private static func words(_ code: URLError.Code) -> String {
      switch code {
      case .cannotConnectToHost: "cannot connect; is the server running?"
      case .cannotFindHost, .dnsLookupFailed: "cannot find the host"
      case .timedOut: "timed out"
      case .networkConnectionLost: "the connection was lost"
      case .notConnectedToInternet: "this machine has no network connection"
      case .badServerResponse, .cannotParseResponse: "the answer is not HTTP"
      case .secureConnectionFailed, .serverCertificateUntrusted, .serverCertificateHasBadDate,
        .serverCertificateNotYetValid, .serverCertificateHasUnknownRoot:
        "the TLS connection failed, or the server's certificate is not valid"
      case .badURL, .unsupportedURL: "not a server's address; give http://host:port or https://host"
      default: "the request failed (URL error \(code.rawValue))"
      }
    }
  }
}
