// Goal: an answer is read in the same way however it is split, one that is cut is never taken for a whole one, and one that
// two readers could understand in two ways is refused. Method: the pure reader, at every byte, and a table of bad answers.

import StrandlineCloudKit
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30))) struct AnswerReaderTests {
  private struct Sample {
    var text: String
    var status = 200
    var body: String
    var keepsAlive = true
    /// The answer ends with the connection.
    var endsAtClose = false
  }

  private static let samples = [
    Sample(text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nhello", body: "hello"),
    Sample(text: "HTTP/1.1 503 \r\nContent-Length: 0\r\n\r\n", status: 503, body: ""),
    Sample(text: "HTTP/1.1 204\r\n\r\n", status: 204, body: ""),
    Sample(text: "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", status: 304, body: ""),
    Sample(
      text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\nhel\r\n02\r\nlo\r\n0\r\n"
        + "A: b\r\nC: d\r\n\r\n",
      body: "hello"),
    Sample(
      text: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n"
        + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", body: "ok"),
    Sample(
      text: "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok", body: "ok", keepsAlive: false),
    Sample(text: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", body: "ok", keepsAlive: false),
    Sample(text: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", body: "ok"),
    Sample(text: "HTTP/1.1 200 OK\r\n\r\nok", body: "ok", keepsAlive: false, endsAtClose: true),
    Sample(text: "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 1\r\n\r\n{", body: "{"),
  ]

  private func makeReader(method: String = "POST", header: Int = 1000, body: Int = 1000) -> HTTPAnswerReader {
    HTTPAnswerReader(method: method, headerBytesMax: header, bodyBytesMax: body)
  }

  private func check(_ reader: HTTPAnswerReader, _ sample: Sample, _ comment: String) throws {
    let answer = try #require(reader.answer, "\(comment)")
    #expect(answer.status == sample.status, "\(comment)")
    #expect(String(decoding: answer.body, as: UTF8.self) == sample.body, "\(comment)")
    #expect(reader.keepsAlive == sample.keepsAlive, "\(comment)")
  }

  @Test func `an answer split anywhere is the same answer`() throws {
    for sample in Self.samples {
      let bytes = Array(sample.text.utf8)
      for cut in 0...bytes.count {
        var reader = makeReader()
        try reader.receive(Array(bytes[..<cut]))
        try reader.receive(Array(bytes[cut...]))
        if sample.endsAtClose { try reader.end() }
        try check(reader, sample, "\(sample.text) split at \(cut)")
      }
      var bytewise = makeReader()
      for byte in bytes {
        #expect(bytewise.answer == nil, "\(sample.text)")
        try bytewise.receive([byte])
      }
      if sample.endsAtClose { try bytewise.end() }
      try check(bytewise, sample, sample.text)
    }
  }

  @Test func `an answer cut anywhere is no answer`() throws {
    for sample in Self.samples where !sample.endsAtClose {
      let bytes = Array(sample.text.utf8)
      for count in 0..<bytes.count {
        var reader = makeReader()
        try reader.receive(Array(bytes[..<count]))
        let defect = #expect(throws: HTTPDefect.self) { try reader.end() }
        guard case .cut? = defect else {
          Issue.record("\(sample.text) cut at \(count): \(String(describing: defect))")
          continue
        }
        #expect(reader.answer == nil)
      }
    }
  }

  @Test func `bytes behind an answer are never read as the next one`() throws {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    var together = makeReader()
    try together.receive(Array((text + "!").utf8))
    #expect(together.answer?.body == Array("ok".utf8) && !together.keepsAlive)
    var later = makeReader()
    try later.receive(Array(text.utf8))
    #expect(later.keepsAlive)
    try later.receive(Array("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".utf8))
    #expect(later.answer?.body == Array("ok".utf8) && !later.keepsAlive)
    var head = makeReader(method: "HEAD")
    try head.receive(Array("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".utf8))
    #expect(head.answer?.body == [] && head.keepsAlive)
  }

  /// Answers that a strict reader refuses, and what it says.
  static let bad: [(text: String, words: String)] = [
    ("SSH-2.0-OpenSSH_9.9\r\n", "does not begin with HTTP/1"), ("<html>", "does not begin with HTTP/1"),
    ("HTTP/2 200\r\n\r\n", "does not begin with HTTP/1"), ("HTTP/1.2 200 OK\r\n\r\n", "status line"),
    ("HTTP/1.1 OK\r\n\r\n", "status line"), ("HTTP/1.1 20 OK\r\n\r\n", "status line"),
    ("HTTP/1.1 099 OK\r\n\r\n", "status line"), ("HTTP/1.1 +20 OK\r\n\r\n", "status line"),
    ("HTTP/1.1\r\n\r\n", "status line"), ("HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
    ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "without CR"), ("HTTP/1.1 200 OK\r\n\n", "without CR"),
    ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", "control character"),
    ("HTTP/1.1 200 OK\r\nA\u{0}: b\r\n\r\n", "control character"),
    ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "Name: value"), ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", "Name: value"),
    ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "Name: value"), ("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "Name: value"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n", "not one number"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "together"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer coding"),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer coding"),
    ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", "compressed"),
    (chunked("x\r\n"), "no size"), (chunked("\r\n"), "no size"), (chunked("-1\r\n"), "no size"),
    (chunked("0x1\r\n"), "no size"), (chunked("FFFFFFFFF\r\n"), "no size"), (chunked("1\na\r\n"), "without CR"),
    (chunked("1\r\nabc"), "longer than its size"), (chunked("1\r\na\rb"), "longer than its size"),
    (chunked(String(repeating: "0", count: 1025)), "more than 1024 bytes"),
    (chunked("3E9\r\n"), "larger than 1000 bytes"), (chunked("0\r\nA: b\n\r\n"), "without CR"),
    (chunked("0\r\n" + String(repeating: "A: b\r\n", count: 251)), "header is larger than 1000 bytes"),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "larger than 1000 bytes"),
    ("HTTP/1.1 200 OK\r\n\r\n" + String(repeating: "x", count: 1001), "larger than 1000 bytes"),
    ("HTTP/1.1 200 OK\r\nA: " + String(repeating: "x", count: 1001), "header is larger than 1000 bytes"),
    (String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 41), "header is larger than 1000 bytes"),
  ]

  private static func chunked(_ body: String) -> String {
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
  }

  @Test func `a bad answer is refused as soon as it can be seen`() {
    for (text, words) in Self.bad {
      for step in [1, text.utf8.count] {
        var reader = makeReader()
        let defect = #expect(throws: HTTPDefect.self, "\(text)") {
          let bytes = Array(text.utf8)
          for start in stride(from: 0, to: bytes.count, by: step) {
            try reader.receive(Array(bytes[start..<min(start + step, bytes.count)]))
          }
        }
        #expect(reader.answer == nil)
        #expect(defect.map(Self.words)?.contains(words) == true, "\(text): \(defect.map(Self.words) ?? "")")
      }
    }
  }

  private static func words(_ defect: HTTPDefect) -> String {
    switch defect {
    case .malformed(let words), .unsupported(let words), .cut(let words): words
    case .headerTooLarge(let max): "the answer's header is larger than \(max) bytes"
    case .bodyTooLarge(let max): "the answer is larger than \(max) bytes"
    }
  }

  @Test func `damaged answers end the same whether they come whole or byte by byte`() {
    let random = SeededRandom(seed: 20_261_122)
    let alphabet = Array("\r\n :;,0123456789aAfFxHTP/.-".utf8) + [0x00, 0xFF]
    /// The answer as text, or nil if the reader refused it.
    func outcome(_ pieces: [[UInt8]]) -> String? {
      var reader = makeReader()
      do throws(HTTPDefect) {
        for piece in pieces { try reader.receive(piece) }
        try reader.end()
      } catch {
        return nil
      }
      return reader.answer.map { "\($0.status) \($0.headers.fields.count) \($0.body)" }
    }
    var refused = 0
    let rounds = Campaign.isWhole ? 20_000 : 4_000
    for round in 0..<rounds {
      var bytes = Array(Self.samples[Int(random.next() % UInt64(Self.samples.count))].text.utf8)
      for _ in 0..<1 + random.next() % 3 {
        let place = Int(random.next() % UInt64(bytes.count))
        let byte = alphabet[Int(random.next() % UInt64(alphabet.count))]
        switch random.next() % 3 {
        case 0: bytes[place] = byte
        case 1: bytes.insert(byte, at: place)
        default: bytes.remove(at: place)
        }
      }
      let whole = outcome([bytes])
      #expect(whole == outcome(bytes.map { [$0] }), "round \(round): \(String(decoding: bytes, as: UTF8.self))")
      if whole == nil { refused += 1 }
    }
    // Both outcomes are common.
    #expect((rounds / 10..<rounds / 10 * 9).contains(refused), "\(refused)")
  }

  @Test func `the limits allow what is as large as they are`() throws {
    var body = makeReader(body: 1001)
    try body.receive(Array("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n".utf8) + [UInt8](repeating: 1, count: 1001))
    #expect(body.answer?.body.count == 1001)
    let line = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: "
    for (count, isAllowed) in [(1000, true), (1001, false)] {
      var head = makeReader()
      let bytes = Array((line + String(repeating: "x", count: count - line.utf8.count) + "\r\n\r\n").utf8)
      do throws(HTTPDefect) {
        try head.receive(bytes)
        #expect(isAllowed && head.answer != nil)
      } catch {
        #expect(!isAllowed && error == .headerTooLarge(bytesMax: 1000))
      }
    }
  }

  @Test func `addresses are scheme, host and port`() {
    func words(_ text: String) -> String? {
      HTTPOrigin(text).map { "\($0.scheme) \($0.host) \($0.port) \($0.hostField)" }
    }
    #expect(words("http://127.0.0.1:8080") == "http 127.0.0.1 8080 127.0.0.1:8080")
    #expect(words("HTTP://LocalHost") == "http localhost 80 localhost")
    #expect(words("https://api.apple-cloudkit.com") == "https api.apple-cloudkit.com 443 api.apple-cloudkit.com")
    #expect(words("https://h:80") == "https h 80 h:80")
    #expect(words("http://[::1]:7") == "http ::1 7 [::1]:7")
    #expect(words("http://[fe80::1%eth0]") == "http fe80::1%eth0 80 [fe80::1]")
    for bad in [
      "", "http", "http:", "http://", "http://:1", "http://a b", "http://a/", "http://a?b", "http://u:p@h", "http://a:",
      "http://a:0", "http://a:65536", "http://a:+1", "http://a:1:2", "http://[::1", "http://[::1]x", "http://[a]",
      "http://[]", "ftp://a", "http://ü", "http://a\r\nb", "http://a%00b",
    ] { #expect(words(bad) == nil, "\(bad)") }
  }

  @Test func `requests are written so that no part of one can be read as another request`() throws {
    let origin = try #require(HTTPOrigin("http://h:1"))
    func text(_ request: HTTPRequest) -> String? {
      HTTPRequestWriter.bytes(of: request, to: origin).map { String(decoding: $0, as: UTF8.self) }
    }
    func request(
      _ path: String, _ query: String = "", _ headers: HTTPHeaders = [:], method: String = "POST"
    ) -> HTTPRequest {
      HTTPRequest(method: method, origin: "http://h:1", path: path, query: query, headers: headers, body: [0x78])
    }
    #expect(
      text(request("/p", "a=b", ["A": "b c"]))
        == "POST /p?a=b HTTP/1.1\r\nHost: h:1\r\nA: b c\r\nContent-Length: 1\r\n\r\nx")
    #expect(text(request("", method: "GET")) == "GET / HTTP/1.1\r\nHost: h:1\r\n\r\n")
    for bad in [
      request("p"), request("/p q"), request("/p\r\n"), request("/ü"), request("/p", "a b"), request("/p", "a#b"),
      request("/p", "", ["A": "b\r\nC: d"]), request("/p", "", ["A": "b\nc"]), request("/p", "", ["A b": "c"]),
      request("/p", "", ["": "c"]), request("/p", "", ["host": "x"]), request("/p", "", ["Content-Length": "0"]),
      request("/p", "", ["Transfer-Encoding": "chunked"]), request("/p", method: "P OST"), request("/p", method: ""),
    ] { #expect(text(bad) == nil, "\(bad)") }
  }
}
