// The client side of a load on a server, as cheap as it can be: client and server share the machine's processors, so
// requests are bytes that were made before, and of an answer only its status and its length are read.

import StrandlineCloudKit
import StrandlineLogBench
import StrandlineSystem

/// A request whose bytes are ready but for some numbers.
struct PreparedRequest: Sendable {
  private(set) var bytes: [UInt8]
  private let places: [Int]

  /// Where this number stands in a body, another one is written. It has as many digits as all of them.
  static let placeholder: Int64 = 9_999_999_999
  private static let digits = 10

  /// A POST to an endpoint of the private database of `container`.
  init(_ endpoint: String, _ body: [UInt8], container: String) {
    let head =
      "POST /database/1/\(container)/development/private/\(endpoint) HTTP/1.1\r\nHost: 127.0.0.1\r\n"
      + "Content-Type: application/json\r\nContent-Length: \(body.count)\r\n\r\n"
    bytes = Array(head.utf8) + body
    let digits = Array(String(Self.placeholder).utf8)
    var places: [Int] = []
    var index = head.utf8.count
    while index + digits.count <= bytes.count {
      if bytes[index] == digits[0], bytes[index..<index + digits.count].elementsEqual(digits) {
        places.append(index)
        index += digits.count
      } else {
        index += 1
      }
    }
    self.places = places
  }

  /// Writes `first` to the first place of the placeholder, and `step` more to each next one.
  mutating func number(from first: Int, step: Int) {
    var number = first
    for place in places {
      var rest = number
      for index in stride(from: place + Self.digits - 1, through: place, by: -1) {
        bytes[index] = 0x30 + UInt8(rest % 10)
        rest /= 10
      }
      number += step
    }
  }
}

/// One connection of a load.
struct LoadConnection {
  private let connection: Connection
  private var buffer: [UInt8] = []

  /// The most milliseconds for an answer.
  private static let patience: Int64 = 60_000
  private static let headerBytesMax = 16 << 10

  init(port: UInt16) throws(SystemError) {
    connection = try Connection.connect(host: "127.0.0.1", port: port, timeoutMilliseconds: Self.patience)
  }

  /// Sends a request and waits for its whole answer.
  ///
  /// - Throws: `SystemError` if the connection ends before; `BenchFailure` if the answer is a refusal, of the request or
  ///   of one of its records.
  mutating func exchange(_ request: [UInt8]) throws {
    try send(request)
    try receive()
  }

  func send(_ bytes: [UInt8]) throws(SystemError) {
    try connection.send(bytes, timeoutMilliseconds: Self.patience)
  }

  func close() { connection.close() }

  private mutating func receive() throws {
    buffer.removeAll(keepingCapacity: true)
    var head: Int?
    while head == nil {
      let searched = buffer.count
      try fill()
      head = try HTTPSyntax.endOfHead(in: buffer, from: searched, bytesMax: Self.headerBytesMax)
    }
    guard let head else { return }
    let length = try Self.bodyLength(buffer[..<head])
    while buffer.count < head + 4 + length { try fill() }
    guard buffer.count == head + 4 + length else {
      throw BenchFailure(description: "the server sent more than one answer to one request")
    }
    guard buffer.starts(with: "HTTP/1.1 200".utf8), !Self.hasError(buffer[(head + 4)...]) else {
      throw BenchFailure(
        description: "the server refused a request: \(String(decoding: buffer.prefix(1_000), as: UTF8.self))")
    }
  }

  private mutating func fill() throws {
    let bytes = try connection.receive(max: 64 << 10, timeoutMilliseconds: Self.patience)
    guard !bytes.isEmpty else { throw SystemError.closed("recv", "server") }
    buffer += bytes
  }

  private static func bodyLength(_ head: ArraySlice<UInt8>) throws -> Int {
    let name = Array("Content-Length: ".utf8)
    for line in head.split(separator: 0x0A) where line.starts(with: name) {
      if let length = Int(String(decoding: line.dropFirst(name.count).dropLast(), as: UTF8.self)) { return length }
    }
    throw BenchFailure(description: "the server's answer has no length")
  }

  private static let errorKey = Array("\"serverErrorCode\"".utf8)

  /// Whether an answer has a refusal of a record. No text of the benchmark's records holds the key.
  private static func hasError(_ body: ArraySlice<UInt8>) -> Bool {
    let last = body.endIndex - errorKey.count
    var index = body.startIndex
    while index <= last {
      // The third byte of the key is rarer than its first.
      if body[index + 2] == errorKey[2], body[index + 1] == errorKey[1], body[index...].starts(with: errorKey) {
        return true
      }
      index += 1
    }
    return false
  }
}
