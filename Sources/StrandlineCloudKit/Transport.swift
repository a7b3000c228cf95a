// An HTTP request, its answer, and the protocol that carries them.
//
// NetworkTransport uses the network: SocketTransport for `http:`, URLSessionTransport for `https:`. InProcessTransport
// calls the local server in the same process, so that tests and simulations exercise JSON and headers without sockets. A
// request's query holds the credentials and is never printed.

package import Strandline

/// Header fields in the order in which they came; names compare without regard to case.
package struct HTTPHeaders: Sendable, Hashable, ExpressibleByDictionaryLiteral, CustomStringConvertible {
  /// Name and value, in order.
  package private(set) var fields: [Field] = []

  /// One line of a header.
  package struct Field: Sendable, Hashable, CustomStringConvertible {
    /// The field's name, as it was spelled.
    package var name: String
    /// The field's value, without the spaces around it.
    package var value: String
    /// Makes a field.
    package init(name: String, value: String) {
      self.name = name
      self.value = value
    }

    /// The name. Values are not printed: some are credentials.
    package var description: String { name }
  }

  /// A header without fields.
  package init() {}

  /// A header of these fields, in order.
  package init(dictionaryLiteral elements: (String, String)...) {
    fields = elements.map { Field(name: $0.0, value: $0.1) }
  }

  /// The first value under a name. Setting it replaces all fields of that name; nil removes them.
  package subscript(name: String) -> String? {
    get { fields.first { Self.areEqual($0.name, name) }?.value }
    set {
      fields.removeAll { Self.areEqual($0.name, name) }
      if let newValue { fields.append(Field(name: name, value: newValue)) }
    }
  }

  /// Adds a field; those of the same name stay.
  package mutating func append(_ name: String, _ value: String) {
    fields.append(Field(name: name, value: value))
  }

  /// The names, in order. Values are not printed: some are credentials.
  package var description: String { fields.map(\.name).joined(separator: ", ") }

  /// All values under a name, in order.
  package func all(_ name: String) -> [String] {
    var values: [String] = []
    for field in fields where Self.areEqual(field.name, name) { values.append(field.value) }
    return values
  }

  /// Compares two names without regard to the case of ASCII letters; a valid name has no others.
  private static func areEqual(_ left: String, _ right: String) -> Bool {
    guard left.utf8.count == right.utf8.count else { return false }
    return zip(left.utf8, right.utf8).allSatisfy { a, b in
      a == b || (a ^ b == 0x20 && (0x61...0x7A).contains(a | 0x20))
    }
  }
}

/// A request with its body.
package struct HTTPRequest: Sendable, CustomStringConvertible {
  /// "GET" or "POST".
  package var method: String
  /// Scheme, host and port: "https://api.apple-cloudkit.com".
  package var origin: String
  /// Percent-encoded, from the first "/", without the query.
  package var path: String
  /// Percent-encoded, without "?". It carries the tokens: never print it.
  package var query: String
  /// The header, without the fields that the transport adds.
  package var headers: HTTPHeaders
  /// The bytes after the header.
  package var body: [UInt8]

  /// Makes a request.
  package init(
    method: String = "POST", origin: String, path: String, query: String = "", headers: HTTPHeaders = HTTPHeaders(),
    body: [UInt8] = []
  ) {
    self.method = method
    self.origin = origin
    self.path = path
    self.query = query
    self.headers = headers
    self.body = body
  }

  /// Method, origin and path, without the query and its tokens.
  package var description: String { "\(method) \(origin)\(path)" }
}

/// An answer with its body.
package struct HTTPResponse: Sendable, CustomStringConvertible {
  /// The status code: 200.
  package var status: Int
  /// The header.
  package var headers: HTTPHeaders
  /// The body, with transfer and content coding removed.
  package var body: [UInt8]

  /// Makes an answer.
  package init(status: Int, headers: HTTPHeaders = HTTPHeaders(), body: [UInt8] = []) {
    self.status = status
    self.headers = headers
    self.body = body
  }

  /// The status, and the size of the body.
  package var description: String { "\(status), \(body.count) bytes" }
}

/// A transport does not take the body of an answer. Status and header have come: the header may bring the session's next token.
package struct AnswerTooLarge: Error, CustomStringConvertible {
  /// The answer without its body.
  package var head: HTTPResponse
  /// Words that hold no token.
  package var description: String

  package init(head: HTTPResponse, description: String) { (self.head, self.description) = (head, description) }
}

/// Carries requests to a server. ``NetworkTransport`` is what a database uses if it is given no other.
///
/// An app conforms a type of its own if requests must go another way. Such a type sends a request at most once (the engine
/// looks whether an operation arrived before it sends it again), follows no redirect, and prints no query.
package protocol Transport: Sendable {
  /// Sends a request and returns the whole answer, of any status.
  ///
  /// - Throws: `CloudError(.networkError)` if no whole answer came (its reason names the host and the cause, never the
  ///   query); `CancellationError` if the task was cancelled.
  func send(_ request: HTTPRequest) async throws -> HTTPResponse

  /// Sends a request whose body is a content, which is read in pieces while it is sent.
  ///
  /// - Throws: as `send(_:)`; what reading the content throws.
  func send(_ request: HTTPRequest, body: ContentSource) async throws -> HTTPResponse

  /// Sends a request. The body of an answer with the status 200 goes to `sink`, as it comes, and is not in the result.
  ///
  /// - Throws: as `send(_:)`; `AnswerTooLarge` if that body has more bytes than `sink` takes; what `sink` throws.
  func send(_ request: HTTPRequest, into sink: ContentSink) async throws -> HTTPResponse

  /// The transport for contents, with connections of its own: they are large, and go to another server.
  var forContents: any Transport { get }

  /// From one request of a sync to the next, at least, to a server: scheme, host and port. Zero by default; the transports of the
  /// network name a quarter of a second, and zero for a server on this machine.
  func minimumInterval(to origin: String) -> Duration
}

extension Transport {
  /// Sends the content as it would send any body: it is in memory as a whole meanwhile.
  package func send(_ request: HTTPRequest, body: ContentSource) async throws -> HTTPResponse {
    var request = request
    request.body = try body.whole()
    return try await send(request)
  }

  /// Hands the body on when all of it has come.
  package func send(_ request: HTTPRequest, into sink: ContentSink) async throws -> HTTPResponse {
    var response = try await send(request)
    guard response.status == 200 else { return response }
    let body = response.body
    response.body = []
    guard body.count <= sink.size else {
      throw AnswerTooLarge(
        head: response, description: "\(request.origin): the answer is larger than \(sink.size) bytes")
    }
    if !body.isEmpty { try sink.write(body) }
    return response
  }

  /// This one.
  package var forContents: any Transport { self }

  /// Zero: requests follow each other at once.
  package func minimumInterval(to origin: String) -> Duration { .zero }
}

/// Percent-encoding of everything but RFC 3986's unreserved characters, as the credentials in a query need it.
package enum PercentEncoding {
  package static func encode(_ text: String) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var result: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: result.append(byte)
      default: result += [0x25, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  /// Nil if an escape is not "%" and two hexadecimal digits, or the bytes are not UTF-8.
  package static func decode(_ text: Substring) -> String? {
    if !text.utf8.contains(0x25) { return String(text) }
    var result: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      guard byte == 0x25 else {
        result.append(byte)
        continue
      }
      guard let high = rest.popFirst().flatMap(nibble), let low = rest.popFirst().flatMap(nibble) else { return nil }
      result.append(high << 4 | low)
    }
    return String(validating: result, as: UTF8.self)
  }

  private static func nibble(_ byte: UInt8) -> UInt8? {
    switch byte {
    case 0x30...0x39: byte - 0x30
    case 0x41...0x46: byte - 0x41 + 10
    case 0x61...0x66: byte - 0x61 + 10
    default: nil
    }
  }
}
