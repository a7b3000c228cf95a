// Goal: whatever bytes a client sends, it gets a refusal with the right status, nothing of them is stored, and the next
// client is served. Method: one table of bodies that are almost a valid request, requests cut at every byte, and bodies
// and headers far above the limits, over real sockets.

import Strandline
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct HostileRequestTests {
  typealias Raw = HTTPTests.Raw

  private func head(_ length: Int, _ endpoint: String = "records/modify") -> [UInt8] {
    Array(
      "POST \(HTTPTests.base)/\(endpoint) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(length)\r\n\r\n".utf8)
  }

  /// A request that creates a record whose field has this JSON as its value.
  private func creating(_ value: String, name: String = "\"r\"", more: String = "") -> [UInt8] {
    Array(
      ("{\"zoneID\":{\"zoneName\":\"_defaultZone\"},\"operations\":[{\"operationType\":\"create\",\"record\":"
        + "{\"recordName\":\(name),\"recordType\":\"T\"\(more),\"fields\":{\"f\":{\"value\":\(value)}}}}]}").utf8)
  }

  /// Sends bytes and reads the answer to the end. Empty if the server closed the connection without one.
  private func talk(_ raw: Raw, _ bytes: [UInt8]) throws -> String {
    let connection = try raw.connect()
    defer { connection.close() }
    try connection.send(bytes, timeoutMilliseconds: Raw.patience)
    connection.shutdown()
    return try Raw.readAll(connection)
  }

  private func names(_ raw: Raw) throws -> [String] {
    let key = DatabaseKey(
      container: "iCloud.test", environment: "development", scope: .private, user: CloudServer.defaultUser)
    return try (raw.server.cloud.records(zone: "_defaultZone", in: key) ?? [:]).keys.sorted().texts
  }

  @Test func `a body that is no strict JSON, or holds what no record can, is refused and stores nothing`() throws {
    let raw = try Raw()
    let nines = String(repeating: "9", count: 400)
    let deep = 100_000
    var bodies: [(String, [UInt8])] = [
      ("integer of 400 digits", creating(nines)), ("negative one", creating("-" + nines)),
      ("exponent of 400 digits", creating("1e" + nines)), ("leading zero", creating("01")), ("plus", creating("+1")),
      ("no fraction", creating("1.")), ("hexadecimal", creating("0x1")), ("NaN", creating("NaN")),
      ("infinity", creating("1e999")), ("single quotes", creating("'a'")), ("comment", creating("1/**/")),
      ("key repeated in a value", creating("1,\"value\":2")),
      ("key repeated in a record", creating("1", more: ",\"recordType\":\"U\"")),
      ("key repeated by an escape", creating("1", more: ",\"record\\u0054ype\":\"U\"")),
      ("high surrogate alone", creating("\"\\ud800\"")), ("low surrogate alone", creating("\"\\udc00\"")),
      ("surrogates in the wrong order", creating("\"\\udc00\\ud800\"")),
      ("surrogate in a name", creating("1", name: "\"\\ud800\"")),
      ("short escape", creating("\"\\u12\"")), ("control character", creating("\"\u{1}\"")),
      ("list that nests", creating(String(repeating: "[", count: deep) + String(repeating: "]", count: deep))),
      (
        "object that nests",
        creating(String(repeating: "{\"a\":", count: deep) + "1" + String(repeating: "}", count: deep))
      ),
      ("list without an end", Array(String(repeating: "[", count: deep).utf8)),
      ("trailing comma", creating("[1,]")), ("two texts", creating("1") + creating("2")),
      ("zero byte", creating("1") + [0]),
      ("mark of UTF-8", [0xEF, 0xBB, 0xBF] + creating("1")),
    ]
    for (name, bytes) in [
      ("overlong slash", [0xC0, 0xAF]), ("overlong zero", [0xE0, 0x80, 0x80] as [UInt8]),
      ("surrogate in UTF-8", [0xED, 0xA0, 0x80]), ("above the last scalar", [0xF4, 0x90, 0x80, 0x80]),
      ("lone continuation", [0x80]), ("cut character", [0xE2, 0x82]), ("no UTF-8", [0xFF, 0xFE]),
    ] {
      bodies.append((name, Array("{\"operations\":[],\"x\":\"".utf8) + bytes + Array("\"}".utf8)))
      var body = creating("\"#\"")
      if let place = body.firstIndex(of: 0x23) { body.replaceSubrange(place...place, with: bytes) }
      bodies.append((name + " in a value", body))
    }
    let text = String(decoding: creating("1"), as: UTF8.self)
    let units = Array(text.utf16)
    bodies.append(("UTF-16, little-endian", [0xFF, 0xFE] + units.flatMap { [UInt8($0 & 255), UInt8($0 >> 8)] }))
    bodies.append(("UTF-16, big-endian, no mark", units.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }))
    for (name, body) in bodies {
      let answer = try talk(raw, head(body.count) + body)
      #expect(
        answer.hasPrefix("HTTP/1.1 400 ") || answer.contains("\"serverErrorCode\""), "\(name): \(answer.prefix(300))")
      #expect(!answer.hasPrefix("HTTP/1.1 5"), "\(name)")
      #expect(try names(raw) == [], "\(name)")
    }
    // The request without a fault is taken.
    let good = creating("1")
    #expect(try talk(raw, head(good.count) + good).hasPrefix("HTTP/1.1 200 "))
    #expect(try names(raw) == ["r"])
  }

  @Test func `a request cut at any byte has no effect`() throws {
    let raw = try Raw()
    let body = creating("\"\\u00e9\\ud83c\\udf0a\"")
    let whole = head(body.count) + body
    for end in 0..<whole.count {
      let answer = try talk(raw, Array(whole[..<end]))
      // Cut within the body, or with nothing at all of it.
      #expect(answer.isEmpty || answer.hasPrefix("HTTP/1.1 400 "), "at \(end): \(answer.prefix(200))")
    }
    for end in 0..<body.count {
      let answer = try talk(raw, head(end) + body[..<end])
      #expect(answer.hasPrefix("HTTP/1.1 400 "), "a body of \(end): \(answer.prefix(200))")
    }
    #expect(try names(raw) == [])
    #expect(try talk(raw, whole).hasPrefix("HTTP/1.1 200 "))
  }

  /// Sends a beginning and then so many bytes in pieces, as far as the server takes them, and reads the answer.
  private func flood(_ raw: Raw, _ beginning: [UInt8], _ piece: [UInt8], count: Int) throws -> String {
    let connection = try raw.connect()
    defer { connection.close() }
    try connection.send(beginning, timeoutMilliseconds: Raw.patience)
    do {
      for _ in 0..<count { try connection.send(piece, timeoutMilliseconds: Raw.patience) }
      connection.shutdown()
    } catch {
      // The server has refused the request and reads no more of it.
      #expect(error.isDisconnected)
    }
    return try Raw.readAll(connection)
  }

  @Test func `a body of 70 MB and a header of 10 MB are refused, and the client can read why`() throws {
    let raw = try Raw()
    let piece = [UInt8](repeating: 0x20, count: 1 << 20)
    #expect(try flood(raw, head(70 << 20), piece, count: 70).hasPrefix("HTTP/1.1 413 "))
    let chunked =
      "POST \(HTTPTests.base)/records/modify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    let chunk = Array("100000\r\n".utf8) + piece + [0x0D, 0x0A]
    #expect(try flood(raw, Array(chunked.utf8), chunk, count: 70).hasPrefix("HTTP/1.1 413 "))
    let line = Array(("A: " + String(repeating: "x", count: 1_000) + "\r\n").utf8)
    let request = Array("GET / HTTP/1.1\r\nHost: localhost\r\n".utf8)
    #expect(try flood(raw, request, line, count: 10_000).hasPrefix("HTTP/1.1 431 "))
    #expect(try flood(raw, request + Array("A: ".utf8), piece, count: 10).hasPrefix("HTTP/1.1 431 "))
    #expect(try flood(raw, Array("GET /".utf8), piece.map { $0 + 0x41 }, count: 10).hasPrefix("HTTP/1.1 431 "))
    let trailers = Array((chunked + "0\r\n").utf8)
    #expect(try flood(raw, trailers, line, count: 100).hasPrefix("HTTP/1.1 4"))
    // Empty lines before a request are skipped, and are no header; they end with the time limit of one.
    #expect(try raw.talk("\r\n\r\nGET /signin HTTP/1.1\r\nHost: localhost\r\n\r\n").hasPrefix("HTTP/1.1 200 "))
  }

  @Test func `two lengths, and lengths and chunks of other forms than digits, are refused`() throws {
    let raw = try Raw()
    for fields in [
      "Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2, 2", "Content-Length: +2", "Content-Length: 2 ;",
      "Content-Length: 0x2", "Content-Length: 2.0", "Content-Length:", "Content-Length: \u{FF12}",
      "Content-Length: 2\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
      "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: \u{B}chunked",
    ] {
      let answer = try raw.talk("POST \(HTTPTests.base)/zones/list HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n\r\n{}")
      #expect(answer.hasPrefix("HTTP/1.1 400 ") || answer.hasPrefix("HTTP/1.1 501 "), "\(fields): \(answer)")
    }
    let head = "POST \(HTTPTests.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for size in ["0x2", "+2", "-2", "2.", "2_", "g", "", "000000002", "2 2", "\u{FF12}", "2,", "\u{0}2"] {
      let answer = try raw.talk(head + "\(size)\r\n{}\r\n0\r\n\r\n")
      #expect(answer.hasPrefix("HTTP/1.1 400 "), "\(size.debugDescription): \(answer)")
    }
    #expect(try raw.talk(head + "02;a=\"b\"\r\n{}\r\n0\r\nA: b\r\n\r\n").hasPrefix("HTTP/1.1 200 "))
  }
}
