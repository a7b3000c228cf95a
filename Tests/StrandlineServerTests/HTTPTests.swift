// Goal: the HTTP server refuses bad requests with the right status, and goes on; a client that is slow, sends half a
// request or reads nothing does not delay the others. Method: bytes written by hand over a real loopback socket, and
// Python's urllib as a client of another author.

import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct HTTPTests {
  /// A server, and raw bytes to it.
  final class Raw: Sendable {
    /// Longer than a busy machine delays an answer; a server that never answers still fails the test.
    static let patience: Int64 = 60_000
    let server: LocalServer

    init(
      _ limits: ServerLimits = ServerLimits(), _ timeouts: HTTPTimeouts = HTTPTimeouts(), host: String = "127.0.0.1",
      allowedHosts: [String] = [], allowedOrigins: [String] = []
    ) throws {
      server = try LocalServer.run(
        directory: nil, host: host, allowedHosts: allowedHosts, allowedOrigins: allowedOrigins, limits: limits,
        timeouts: timeouts,
        environment: SystemEnvironment(fileSystem: POSIXFileSystem(), clock: RealClock(), random: SystemRandom()))
    }

    deinit { server.stop() }

    func connect() throws -> Connection {
      try Connection.connect(host: "127.0.0.1", port: UInt16(server.port), timeoutMilliseconds: Raw.patience)
    }

    /// Sends text on a new connection, says that no more comes, and reads to the end.
    func talk(_ text: String, hangUp: Bool = true) throws -> String {
      let connection = try connect()
      defer { connection.close() }
      try connection.send(Array(text.utf8), timeoutMilliseconds: Raw.patience)
      if hangUp { connection.shutdown() }
      return try Self.readAll(connection)
    }

    static func readAll(_ connection: Connection) throws -> String {
      var bytes: [UInt8] = []
      while true {
        let chunk = try connection.receive(max: 65536, timeoutMilliseconds: Raw.patience)
        if chunk.isEmpty { return String(decoding: bytes, as: UTF8.self) }
        bytes += chunk
      }
    }
  }

  static let base = "/database/1/iCloud.test/development/private"

  func post(_ endpoint: String, _ body: String, _ headers: String = "") -> String {
    "POST \(Self.base)/\(endpoint) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\(headers)\r\n"
      + body
  }

  @Test func `wrong requests get their status`() throws {
    let raw = try Raw()
    let cases: [(String, Int)] = [
      ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
      ("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
      ("GET \(Self.base)/..%2f..%2f/list HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
      ("GET \(Self.base)/records/modify HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
      ("DELETE \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
      ("GET \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
      ("GET http://localhost\(Self.base)/zones/list?x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
      ("GET \(Self.base)/zones/list HTTP/1.0\r\n\r\n", 200),
      ("GET \(Self.base)/zones/list HTTP/1.1\r\n\r\n", 400),
      ("GET \(Self.base)/zones/list HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
      ("GET \(Self.base)/zones/list HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
      ("GET \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
      (
        "GET \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        400
      ),
      ("GET \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
      ("POST \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
      ("POST \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000000\r\n\r\n", 413),
      ("POST \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
      ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
      ("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n", 417),
      ("POST / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
      ("POST / HTTP/1.1\r\nHost: localhost\r\nName : x\r\n\r\n", 400),
      ("GET / HTTP/1.1\nHost: localhost\n\n", 400), ("GET / HTTP/1.1\r\nHost: localhost\n\r\n", 400),
      ("nonsense\r\n\r\n", 400), ("\u{0}\u{1}\u{2}\r\n\r\n", 400), ("GET  / HTTP/1.1\r\n\r\n", 400),
      ("GET /\(String(repeating: "x", count: 17000)) HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
      (String(repeating: "y", count: 20000), 431),
      ("GET /database/1/iCloud.test/staging/private/zones/list HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
      ("GET /signin?user=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
      ("GET /signin HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
      (post("zones/list", "{}"), 200), (post("zones/modify", "{"), 400), (post("zones/modify", "[1,2]"), 400),
      (post("zones/modify", "{\"operations\":[{}]}"), 400), (post("changes/zone", "\u{FFFE}"), 400),
      (post("records/modify", String(repeating: "[", count: 100_000)), 400), (post("records/modify", ""), 400),
      (post("records/lookup", "{\"records\":[{\"recordName\":\"\\ud800\"}]}"), 400),
      (post("changes/zone", "{\"zones\":[],\"resultsLimit\":1e99}"), 400),
      (post("changes/database", ""), 200), (post("users/caller", ""), 405),
    ]
    for (request, status) in cases {
      let answer = try raw.talk(request)
      #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(request.prefix(120)) -> \(answer.prefix(200))")
    }
    let refused = try raw.talk("PUT \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(refused.contains("\r\nAllow: GET, HEAD, POST, OPTIONS\r\n"))
    #expect(refused.lowercased().contains("\r\nx-apple-request-uuid: "))
    // After all that it still answers.
    #expect(try raw.talk(post("zones/list", "{}")).contains("_defaultZone"))
  }

  @Test func `a connection serves one request after another, and ends when the client asks for it`() throws {
    let raw = try Raw()
    let connection = try raw.connect()
    defer { connection.close() }
    let list = post("zones/list", "{}")
    try connection.send(Array((list + list + post("zones/list", "{}", "Connection: close\r\n") + list).utf8))
    let answers = try Raw.readAll(connection)
    #expect(answers.components("HTTP/1.1 200 OK") == 3)
    #expect(answers.components("Connection: keep-alive") == 2)
    let head = try raw.talk("HEAD \(Self.base)/zones/list HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(head.hasSuffix("\r\n\r\n") && !head.contains("Content-Length: 0\r\n"))
  }

  @Test func `chunked bodies and expectations are understood`() throws {
    let raw = try Raw()
    let head = "POST \(Self.base)/zones/modify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    let json = "{\"operations\":[{\"operationType\":\"create\",\"zone\":{\"zoneID\":{\"zoneName\":\"Z\"}}}]}"
    let chunks = json.map { "1;x=y\r\n\($0)\r\n" }.joined() + "0\r\nTrailer: t\r\n\r\n"
    #expect(try raw.talk(head + "\r\n" + chunks).contains("\"zoneName\":\"Z\""))
    let connection = try raw.connect()
    defer { connection.close() }
    try connection.send(Array((head + "Expect: 100-continue\r\n\r\n").utf8))
    let go = try connection.receive(max: 100, timeoutMilliseconds: Raw.patience)
    #expect(String(decoding: go, as: UTF8.self) == "HTTP/1.1 100 Continue\r\n\r\n")
    try connection.send(Array(chunks.utf8))
    connection.shutdown()
    #expect(try Raw.readAll(connection).contains("\"zoneName\":\"Z\""))
    for bad in ["zz\r\n", "-1\r\n", "FFFFFFFFFF\r\n", "\r\n", "5\r\n{}\r\n\r\n0\r\n\r\n", "2\n{}\r\n0\r\n\r\n"] {
      #expect(try raw.talk(head + "\r\n" + bad).hasPrefix("HTTP/1.1 400 "), "\(bad)")
    }
    #expect(try raw.talk(head + "\r\nFFFFFFF\r\n").hasPrefix("HTTP/1.1 413 "))
  }

  @Test func `chunks that two readers could take in two ways are refused`() throws {
    let raw = try Raw()
    func chunked(_ body: String, _ version: String = "1.1") throws -> String {
      try raw.talk(
        "POST \(Self.base)/zones/list HTTP/\(version)\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\(body)")
    }
    #expect(try chunked("2\r\n{}\r\n0\r\n\r\n").hasPrefix("HTTP/1.1 200 "))
    // RFC 9112 (7.1.1) allows white space around the semicolon of an extension, and nowhere else.
    #expect(try chunked("2 ; a=b\r\n{}\r\n0;\tx\r\nA: b\r\n\r\n").hasPrefix("HTTP/1.1 200 "))
    for body in [
      " 2\r\n{}\r\n0\r\n\r\n", "\t2\r\n{}\r\n0\r\n\r\n", "2 \r\n{}\r\n0\r\n\r\n", "2;a\rb\r\n{}\r\n0\r\n\r\n",
      "2;\u{0}\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\nA: \rb\r\n\r\n", "2\r\n{}\r\n 0\r\n\r\n",
      "\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
      #expect(try chunked(body).hasPrefix("HTTP/1.1 400 "), "\(body)")
    }
    // RFC 9112 (6.1): HTTP/1.0 has no chunks, so that an old intermediary has passed them on as something else.
    #expect(try chunked("2\r\n{}\r\n0\r\n\r\n", "1.0").hasPrefix("HTTP/1.1 400 "))
  }

  @Test func `slow and half requests end by themselves, and others are served meanwhile`() throws {
    var timeouts = HTTPTimeouts()
    // Far longer than a busy machine delays a request that follows its connection at once.
    timeouts.header = 2_000
    timeouts.body = 2_000
    timeouts.idle = 2_000
    let raw = try Raw(ServerLimits(), timeouts)
    let slowHead = try raw.connect()
    try slowHead.send(Array("GET / HT".utf8))
    let slowBody = try raw.connect()
    try slowBody.send(Array(post("zones/list", "{}").dropLast().utf8))
    let silent = try raw.connect()
    #expect(try raw.talk(post("zones/list", "{}")).hasPrefix("HTTP/1.1 200 "))
    #expect(try Raw.readAll(slowHead).hasPrefix("HTTP/1.1 408 "))
    #expect(try Raw.readAll(slowBody).hasPrefix("HTTP/1.1 408 "))
    #expect(try Raw.readAll(silent) == "")
    #expect(try raw.talk(String(post("zones/list", "{}").dropLast())).hasPrefix("HTTP/1.1 400 "))
    #expect(try raw.talk("") == "")
  }

  @Test func `stopping ends connections that wait`() throws {
    let raw = try Raw()
    let waiting = try raw.connect()
    try waiting.send(Array("GET / HT".utf8))
    var faults = ServerFaults()
    faults.dropAnswer = 1
    raw.server.cloud.setFaults(faults)
    let hanging = try raw.connect()
    try hanging.send(Array(post("records/modify", "{\"operations\":[]}").utf8))
    raw.server.stop()
    try raw.server.waitUntilStopped()
    // Closed, or reset because half a request lay unread: either way it has ended, and at once.
    do { #expect(try Raw.readAll(waiting) == "") } catch let error as SystemError { #expect(!error.isTimeout) }
    #expect(raw.server.cloud.failure == "the server is closed")
    hanging.close()
  }

  @Test func `a connection accepted during the stop is closed without an answer`() throws {
    for _ in 0..<20 {
      let raw = try Raw()
      let coming = try (0..<30).map { _ in try raw.connect() }
      raw.server.stop()
      try raw.server.waitUntilStopped()
      for connection in coming {
        do { #expect(try Raw.readAll(connection) == "") } catch let error as SystemError { #expect(!error.isTimeout) }
        connection.close()
      }
    }
  }

  @Test func `an occupied port is named in the error`() throws {
    let raw = try Raw()
    let error = #expect(throws: StrandlineError.self) { try LocalServer.run(port: raw.server.port) }
    #expect(error?.description.contains("cannot listen on 127.0.0.1, port \(raw.server.port)") == true)
    #expect(throws: StrandlineError.self) { try LocalServer.run(port: 70000) }
  }

  @Test func `a client in another language syncs through the server`() throws {
    let folders = (ProcessEnvironment.value(of: "PATH") ?? "").split(separator: ":")
    let found = try folders.map { "\($0)/python3" }.first { try POSIXFileSystem().kind(of: $0) != .absent }
    let python = try #require(found, "python3 is in none of the folders of PATH; install it and run the tests again")
    let raw = try Raw()
    let script = """
      import json, sys, urllib.request, urllib.error
      base = sys.argv[1] + '/database/1/iCloud.test/development/private/'
      def ask(endpoint, body=None):
          data = None if body is None else json.dumps(body).encode()
          request = urllib.request.Request(base + endpoint, data=data, headers={'Content-Type': 'text/plain'})
          try:
              with urllib.request.urlopen(request, timeout=10) as answer:
                  assert answer.headers['X-Apple-Request-UUID']
                  return json.load(answer)
          except urllib.error.HTTPError as error:
              body = json.load(error)
              raise Exception(error.code, body['serverErrorCode'], body['reason'])
      zone = {'zoneName': 'Py'}
      made = ask('zones/modify', {'operations': [{'operationType': 'create', 'zone': {'zoneID': zone}}]})
      assert made['zones'][0]['zoneID']['zoneName'] == 'Py'
      assert 'Py' in [z['zoneID']['zoneName'] for z in ask('zones/list')['zones']]
      fields = {'title': {'value': 'Gr\\u00fc\\u00dfe \\U0001F30A'}, 'n': {'value': 7}, 'x': {'value': 1.5},
                'when': {'value': 1767225600000, 'type': 'TIMESTAMP'}, 'l': {'value': ['a', 'b']},
                'b': {'value': 'AP8=', 'type': 'BYTES'}}
      saved = ask('records/modify', {'zoneID': zone, 'operations': [
          {'operationType': 'create', 'record': {'recordName': 'r', 'recordType': 'Note', 'fields': fields}}]})
      record = saved['records'][0]
      assert record['fields']['n'] == {'value': 7, 'type': 'INT64'}, record
      assert record['fields']['l'] == {'value': ['a', 'b'], 'type': 'STRING_LIST'}, record
      tag = record['recordChangeTag']
      stale = ask('records/modify', {'zoneID': zone, 'operations': [{'operationType': 'update', 'record': {
          'recordName': 'r', 'recordType': 'Note', 'recordChangeTag': 'x', 'fields': {}}}]})
      assert stale['records'][0] == {'recordName': 'r', 'serverErrorCode': 'CONFLICT',
          'reason': 'client oplock error updating record'}, stale
      page = ask('changes/zone', {'zones': [{'zoneID': zone}]})['zones'][0]
      assert page['records'][0]['fields'] == record['fields'] and page['moreComing'] is False
      gone = ask('records/modify', {'zoneID': zone, 'operations': [
          {'operationType': 'delete', 'record': {'recordName': 'r', 'recordChangeTag': tag}}]})
      assert gone['records'] == [{'recordName': 'r', 'deleted': True}], gone
      page = ask('changes/zone', {'zones': [{'zoneID': zone, 'syncToken': page['syncToken']}]})['zones'][0]
      assert [(r['recordName'], r['deleted']) for r in page['records']] == [('r', True)]
      assert ask('changes/zone', {'zones': [{'zoneID': zone, 'syncToken': 'nonsense!'}]})['zones'][0]['reason'] \\
          == 'Unknown sync continuation type'
      assert ask('records/lookup', {'zoneID': zone, 'records': {'recordName': 'r'}})['records'] == [
          {'recordName': 'r', 'reason': 'Record not found', 'serverErrorCode': 'NOT_FOUND'}]
      try:
          ask('records/modify', {'zoneID': {'zoneName': 'None'}, 'operations': []})
          assert False
      except AssertionError:
          raise
      except Exception as error:
          assert error.args[:2] == (404, 'ZONE_NOT_FOUND'), error
      print('fine')
      """
    let child = try ChildProcess(
      python, ["-c", script, raw.server.url], input: .null, output: .pipe, errorOutput: .pipe)
    let output = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    let errors = String(decoding: try child.errorOutput?.readAll() ?? [], as: UTF8.self)
    _ = try child.wait()
    #expect(output == "fine\n", "\(errors)")
    raw.server.stop()
  }
}

extension String {
  /// How often a text occurs.
  fileprivate func components(_ text: String) -> Int { self.ranges(of: text).count }
}
