// The network: requests through Foundation's URLSession, which keeps nothing (no cookies, no cache, no
// credentials), follows no redirect, and takes no answer above a limit.
//
// A delegate gathers each answer, so that one that is too large is cut off where it exceeds the limit and never
// held whole. Words of errors are made here from the kind of failure: URLSession's own name the whole URL, and
// with it the tokens.

internal import Foundation
internal import Synchronization
private import Strandline

#if canImport(FoundationNetworking)
  internal import FoundationNetworking
#endif

/// Sends requests over the network.
public final class URLSessionTransport: Transport {
  private let session: URLSession
  private let gatherer: Gatherer

  /// A transport of its own connections.
  ///
  /// - Parameters:
  ///   - timeout: seconds without a byte before a request fails.
  ///   - totalTimeout: seconds that a whole exchange may take.
  ///   - answerBytesMax: the largest body that is taken.
  public init(timeout: Double = 60, totalTimeout: Double = 300, answerBytesMax: Int = 64 << 20) {
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
  }

  deinit {
    // A session holds its delegate until it is told to end.
    session.finishTasksAndInvalidate()
  }

  /// Sends a request and returns the whole answer.
  public func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    let text = request.origin + request.path + (request.query.isEmpty ? "" : "?" + request.query)
    guard let url = URL(string: text), let scheme = url.scheme?.lowercased(), scheme == "http" || scheme == "https",
      url.host != nil
    else {
      throw CloudError(.networkError, reason: "'\(request.origin)' is no address of a server (http://host:port)")
    }
    var urlRequest = URLRequest(url: url)
    urlRequest.httpMethod = request.method
    for field in request.headers.fields { urlRequest.addValue(field.value, forHTTPHeaderField: field.name) }
    if request.method != "GET" { urlRequest.httpBody = Data(request.body) }
    let task = session.dataTask(with: urlRequest)
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        gatherer.expect(task.taskIdentifier, origin: request.origin, continuation)
        task.resume()
      }
    } onCancel: {
      task.cancel()
    }
  }

  /// Gathers the answers of all tasks of a session.
  private final class Gatherer: NSObject, URLSessionDataDelegate, Sendable {
    private struct Exchange {
      var origin: String
      var continuation: CheckedContinuation<HTTPResponse, any Error>
      var response = HTTPResponse(status: 0)
      var isTooLarge = false
    }
    private let answerBytesMax: Int
    private let exchanges = Mutex<[Int: Exchange]>([:])

    init(answerBytesMax: Int) { self.answerBytesMax = answerBytesMax }

    func expect(_ task: Int, origin: String, _ continuation: CheckedContinuation<HTTPResponse, any Error>) {
      exchanges.withLock { $0[task] = Exchange(origin: origin, continuation: continuation) }
    }

    func urlSession(
      _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
      newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
      // A redirect would carry the tokens elsewhere. The answer 3xx is the answer.
      completionHandler(nil)
    }

    func urlSession(
      _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
      completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
      if let response = response as? HTTPURLResponse {
        var headers = HTTPHeaders()
        for (name, value) in response.allHeaderFields { headers.append("\(name)", "\(value)") }
        exchanges.withLock {
          $0[dataTask.taskIdentifier]?.response = HTTPResponse(status: response.statusCode, headers: headers)
        }
      }
      completionHandler(.allow)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
      let isTooLarge = exchanges.withLock { exchanges -> Bool in
        guard var exchange = exchanges.removeValue(forKey: dataTask.taskIdentifier) else { return false }
        exchange.isTooLarge = exchange.isTooLarge || exchange.response.body.count + data.count > answerBytesMax
        if !exchange.isTooLarge { exchange.response.body.append(contentsOf: data) }
        let isTooLarge = exchange.isTooLarge
        exchanges[dataTask.taskIdentifier] = exchange
        return isTooLarge
      }
      if isTooLarge { dataTask.cancel() }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
      guard let exchange = exchanges.withLock({ $0.removeValue(forKey: task.taskIdentifier) }) else { return }
      exchange.continuation.resume(with: outcome(exchange, error))
    }

    private func outcome(_ exchange: Exchange, _ error: (any Error)?) -> Result<HTTPResponse, any Error> {
      func failed(_ what: String) -> Result<HTTPResponse, any Error> {
        .failure(CloudError(.networkError, reason: "\(exchange.origin): \(what)"))
      }
      if exchange.isTooLarge { return failed("the answer is larger than \(answerBytesMax) bytes") }
      if let error {
        let code = (error as? URLError)?.code ?? .unknown
        if code == .cancelled { return .failure(CancellationError()) }
        return failed(Self.words(code))
      }
      guard exchange.response.status != 0 else { return failed("the answer was no HTTP") }
      // A body shorter than its Content-Length is a connection that broke, whatever the library thinks of it.
      if let length = exchange.response.headers["content-length"].flatMap({ Int($0) }),
        exchange.response.headers["content-encoding"] == nil, exchange.response.body.count < length
      {
        return failed("the connection ended after \(exchange.response.body.count) of \(length) bytes")
      }
      return .success(exchange.response)
    }

    private static func words(_ code: URLError.Code) -> String {
      switch code {
      case .cannotConnectToHost: "cannot connect; is the server running?"
      case .cannotFindHost, .dnsLookupFailed: "cannot find the host"
      case .timedOut: "timed out"
      case .networkConnectionLost: "the connection was lost"
      case .notConnectedToInternet: "there is no network"
      case .badServerResponse, .cannotParseResponse: "the answer was no HTTP"
      case .secureConnectionFailed, .serverCertificateUntrusted, .serverCertificateHasBadDate,
        .serverCertificateNotYetValid, .serverCertificateHasUnknownRoot:
        "the secure connection failed"
      case .badURL, .unsupportedURL: "no address of a server"
      default: "the request failed (URL error \(code.rawValue))"
      }
    }
  }
}
