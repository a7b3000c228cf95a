// Goal: a page in a browser on this machine neither reads nor changes what the server holds, whatever name it gives the
// server (DNS rebinding) and whatever form it sends (CSRF), unless its origin is allowed; then it can do both. Method:
// bytes written by hand over a real loopback socket, as browsers send them.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct AccessTests {
  typealias Raw = HTTPTests.Raw

  private static let list = "\(HTTPTests.base)/zones/list"
  private static let zone =
    "{\"operations\":[{\"operationType\":\"create\",\"zone\":{\"zoneID\":{\"zoneName\":\"Stolen\"}}}]}"

  private func get(_ target: String, _ fields: String...) -> String {
    "GET \(target) HTTP/1.1\r\n" + fields.map { $0 + "\r\n" }.joined() + "\r\n"
  }

  private func post(_ endpoint: String, _ body: String, _ fields: String...) -> String {
    "POST \(HTTPTests.base)/\(endpoint) HTTP/1.1\r\nContent-Length: \(body.utf8.count)\r\n"
      + (["Host: localhost:8080"] + fields).map { $0 + "\r\n" }.joined() + "\r\n" + body
  }

  private func status(_ answer: String) -> Int? { answer.split(separator: " ").dropFirst().first.flatMap { Int($0) } }

  // MARK: Hosts

  /// The hosts that every server answers.
  private static let own = [
    "localhost", "LocalHost:8080", "a.localhost", "a.b.localhost:1", "127.0.0.1", "127.0.0.1:65535", "127.255.0.3",
    "[::1]", "[::1]:8080", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]",
  ]
  /// Names that look like this machine's and are another's, or that only some parsers take for an address.
  private static let foreign = [
    "127.0.0.1.evil.com", "127.evil.com", "127.0.0.1.evil.com:8080", "evil.com", "localhost.evil.com", "xlocalhost",
    "evil-localhost", "127.1", "127.0.0.01", "127.0.0.256", "127.0.0.1.", "2130706433", "0x7f000001", "localhost.",
  ]
  /// Addresses of another machine, or of no machine.
  private static let addresses = ["0.0.0.0", "10.0.0.1:8080", "[::]", "[::2]", "[fd00::1]:80", "[::ffff:10.0.0.1]"]
  private static let malformed = [
    "", "localhost:", "localhost:0", "localhost:65536", "localhost:+1", "localhost:1:2", "[::1", "::1", "[127.0.0.1]",
    "a@localhost", "localhost/", "localhost#", "local host", "127.0.0.1,evil.com", "localhost\\evil.com", "\u{E9}",
  ]

  @Test func `a host that is not this machine's is refused, in the field and in the target`() throws {
    let raw = try Raw()
    for (hosts, expected) in [(Self.own, 200), (Self.foreign + Self.addresses, 403), (Self.malformed, 400)] {
      for host in hosts {
        #expect(try status(raw.talk(get(Self.list, "Host: \(host)"))) == expected, "Host: \(host)")
        // A space or a byte outside of ASCII breaks the request line; a slash or a mark ends the host.
        guard !host.contains(where: { " \u{E9}/".contains($0) }) else { continue }
        #expect(
          try status(raw.talk(get("http://\(host)\(Self.list)", "Host: localhost"))) == expected, "target: \(host)")
      }
    }
    // RFC 9112 (3.2.2): the target's host counts, and the field does not.
    #expect(try status(raw.talk(get("HTTP://localhost\(Self.list)", "Host: evil.com"))) == 200)
    #expect(try status(raw.talk(get("http://evil.com", "Host: localhost"))) == 403)
    #expect(try status(raw.talk(get("http://evil.com?@localhost/", "Host: localhost"))) == 403)
    #expect(try status(raw.talk(get("https://localhost\(Self.list)", "Host: localhost"))) == 400)
    #expect(try status(raw.talk("GET \(Self.list) HTTP/1.0\r\nHost: evil.com\r\n\r\n")) == 403)
    #expect(try status(raw.talk("GET \(Self.list) HTTP/1.0\r\nHost: evil.com\r\nHost: localhost\r\n\r\n")) == 400)
  }

  @Test func `names are added by the list, and a server of the network answers under addresses`() throws {
    let named = try Raw(allowedHosts: ["Box.example"])
    #expect(try status(named.talk(get(Self.list, "Host: box.EXAMPLE:90"))) == 200)
    #expect(try status(named.talk(get(Self.list, "Host: a.box.example"))) == 403)
    #expect(try status(named.talk(get(Self.list, "Host: 10.0.0.1"))) == 403)
    let open = try Raw(host: "0.0.0.0", allowedHosts: ["box.example"])
    for host in Self.own + Self.addresses + ["box.example"] {
      #expect(try status(open.talk(get(Self.list, "Host: \(host)"))) == 200, "\(host)")
    }
    for host in Self.foreign { #expect(try status(open.talk(get(Self.list, "Host: \(host)"))) == 403, "\(host)") }
    for host in ["", "a:1", "http://a", "a/b", "*", "a b"] {
      #expect(throws: StrandlineError.self) { try LocalServer.run(allowedHosts: [host]) }
    }
    for origin in ["", "*", "null", "a.example", "http://a.example/", "http://a.example/x", "ftp://a.example"] {
      #expect(throws: StrandlineError.self) { try LocalServer.run(allowedOrigins: [origin]) }
    }
  }

  // MARK: Origins

  @Test func `a page of a foreign origin changes nothing and reads nothing`() throws {
    let raw = try Raw(allowedOrigins: ["https://app.example"])
    let forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json"]
    let origins = [
      "http://evil.example", "null", "", "https://app.example.evil.example", "http://app.example", "file://",
      "https://app.example:444", "https://app.example/", "http://localhost:8081", "http://localhost",
      "https://localhost:8080", "https://app.example https://evil.example", "*",
    ]
    for origin in origins {
      for form in forms {
        let answer = try raw.talk(post("zones/modify", Self.zone, "Content-Type: \(form)", "Origin: \(origin)"))
        #expect(status(answer) == 403, "\(origin) \(form)")
        #expect(!answer.lowercased().contains("access-control-"), "\(origin)")
      }
      #expect(try status(raw.talk(get(Self.list, "Host: localhost:8080", "Origin: \(origin)"))) == 403, "\(origin)")
      let asked = "OPTIONS \(Self.list) HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: \(origin)\r\n"
      let answer = try raw.talk(asked + "Access-Control-Request-Method: POST\r\n\r\n")
      #expect(status(answer) == 403 && !answer.lowercased().contains("access-control-"), "\(origin)")
    }
    let twice = post("zones/modify", Self.zone, "Origin: https://app.example", "Origin: https://evil.example")
    #expect(try status(raw.talk(twice)) == 400)
    // A link or an image, which browsers send without an origin.
    for site in ["cross-site", "Cross-Site"] {
      #expect(try status(raw.talk(get("/signin", "Host: localhost", "Sec-Fetch-Site: \(site)"))) == 403)
    }
    for site in ["none", "same-origin", "same-site"] {
      #expect(try status(raw.talk(get("/signin", "Host: localhost", "Sec-Fetch-Site: \(site)"))) == 200)
    }
    #expect(raw.server.cloud.statistics.requests == [:])
    #expect(try !raw.talk(get(Self.list, "Host: localhost")).contains("Stolen"))
    // A program names no origin, and a page of the server itself names the server's.
    #expect(try status(raw.talk(post("zones/modify", Self.zone, "Content-Type: text/plain"))) == 200)
    #expect(try status(raw.talk(post("zones/list", "{}", "Origin: http://localhost:8080"))) == 200)
  }

  @Test func `a page of an allowed origin asks first, changes data and reads every answer`() throws {
    let raw = try Raw(allowedOrigins: ["http://localhost:3000", "https://App.example"])
    for origin in ["http://localhost:3000", "https://app.example"] {
      let asked = try raw.talk(
        "OPTIONS \(HTTPTests.base)/zones/modify HTTP/1.1\r\nHost: localhost\r\nOrigin: \(origin)\r\n"
          + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n"
          + "Access-Control-Request-Private-Network: true\r\n\r\n")
      #expect(asked.hasPrefix("HTTP/1.1 204 No Content\r\n") && asked.hasSuffix("\r\n\r\n"))
      for line in [
        "Access-Control-Allow-Origin: \(origin)", "Access-Control-Allow-Methods: GET, HEAD, POST",
        "Access-Control-Allow-Headers: Content-Type, *", "Access-Control-Max-Age: 600", "Vary: Origin",
        "Access-Control-Allow-Private-Network: true",
      ] { #expect(asked.contains("\r\n\(line)\r\n"), "\(line)") }
      #expect(!asked.contains("Content-Length"))
      for (request, expected) in [
        (post("zones/modify", Self.zone, "Origin: \(origin)", "Content-Type: application/json"), 200),
        (get(Self.list, "Host: localhost", "Origin: \(origin)", "Sec-Fetch-Site: cross-site"), 200),
        (post("zones/modify", "{", "Origin: \(origin)"), 400), (get("/", "Host: localhost", "Origin: \(origin)"), 404),
        (get("\(HTTPTests.base)/zones/modify", "Host: localhost", "Origin: \(origin)"), 405),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: \(origin)\r\nContent-Length: 99999999\r\n\r\n", 413),
      ] {
        let answer = try raw.talk(request)
        #expect(status(answer) == expected, "\(request) -> \(answer)")
        #expect(answer.contains("\r\nAccess-Control-Allow-Origin: \(origin)\r\n"), "\(answer)")
        #expect(answer.contains("\r\nVary: Origin\r\n"))
        #expect(answer.contains("Access-Control-Expose-Headers: X-Apple-Request-UUID"))
      }
    }
    let program = try raw.talk(get(Self.list, "Host: localhost"))
    #expect(program.contains("Stolen") && program.contains("\r\nVary: Origin\r\n"))
    #expect(!program.contains("Access-Control-Allow-Origin"))
  }

  @Test func `OPTIONS of a program tells the methods of a path`() throws {
    let raw = try Raw()
    for (target, methods) in [
      (Self.list, "GET, HEAD, POST, OPTIONS"), ("\(HTTPTests.base)/records/modify", "POST, OPTIONS"),
      ("/signin", "GET, HEAD, POST, OPTIONS"), ("*", "GET, HEAD, POST, OPTIONS"),
    ] {
      let answer = try raw.talk("OPTIONS \(target) HTTP/1.1\r\nHost: localhost\r\n\r\n")
      #expect(answer.hasPrefix("HTTP/1.1 204 No Content\r\n"), "\(target)")
      #expect(answer.contains("\r\nAllow: \(methods)\r\n"), "\(target)")
    }
    #expect(try status(raw.talk("OPTIONS /x HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 404)
    #expect(try status(raw.talk("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 400)
  }

  // MARK: Tokens

  @Test func `with sessions required, the public database is read without one, and changed with one`() async throws {
    var faults = ServerFaults()
    faults.requireSession = true
    let server = CloudServer.still(faults: faults)
    let query = #"{"query":{"recordType":"Note"}}"#
    let create = #"{"operations":[{"operationType":"create","record":{"recordName":"n","recordType":"Note"}}]}"#
    #expect(try server.post("records/modify", create, scope: "public").status == 421)
    func session() throws -> String {
      "ckWebAuthToken=" + server.signIn().flatMap { ["+": "%2B", "/": "%2F", "=": "%3D"][$0] ?? String($0) }
    }
    #expect(try server.post("records/modify", create, scope: "public", query: session()).status == 200)
    let found = try server.post("records/query", query, scope: "public")
    #expect(found.status == 200 && found.body.contains(#""recordName":"n""#), "\(found.body)")
    #expect(try server.post("records/lookup", #"{"records":[{"recordName":"n"}]}"#, scope: "public").status == 200)
    // Who asks for a user, or for what only a user has, has to be one.
    #expect(try server.post("records/lookup", #"{"records":[{"recordName":"n"}]}"#).status == 421)
    let caller = HTTPRequest(
      method: "GET", origin: "http://127.0.0.1:1", path: "/database/1/iCloud.test/development/public/users/caller")
    guard case .respond(let answer) = server.answer(caller) else { return }
    #expect(answer.status == 421)
    // A session that is no more valid is refused, though none was needed.
    let old = try server.post("records/query", query, scope: "public", query: "ckWebAuthToken=1__AAAA")
    #expect(old.status == 421)
  }

  @Test(arguments: ["KeyID", "SignatureV1", "ISO8601Date"])
  func `a request that is signed with a server's key is refused by name`(_ part: String) throws {
    let server = CloudServer.still()
    var request = HTTPRequest(
      origin: "http://127.0.0.1:1", path: "/database/1/iCloud.test/development/public/records/lookup",
      body: Array(#"{"records":[]}"#.utf8))
    request.headers.append("X-Apple-CloudKit-Request-\(part)", String(repeating: "a", count: 64))
    guard case .respond(let answer) = server.answer(request) else { return }
    let body = String(decoding: answer.body, as: UTF8.self)
    #expect(
      answer.status == 401 && body.contains("AUTHENTICATION_FAILED") && body.contains("server-to-server"), "\(body)")
  }

  @Test func `with a list of API tokens, a request needs one of them`() throws {
    let raw = try Raw()
    raw.server.cloud.setAPITokens(["a/b+c", "second"])
    for query in ["", "?ckAPIToken=", "?ckAPIToken=a", "?ckAPIToken=a/b%20c", "?x=second", "?ckWebAuthToken=second"] {
      let answer = try raw.talk(get(Self.list + query, "Host: localhost"))
      #expect(status(answer) == 401 && answer.contains("\"AUTHENTICATION_FAILED\""), "\(query)")
    }
    #expect(try status(raw.talk(get(Self.list + "?ckAPIToken=%ff", "Host: localhost"))) == 400)
    for query in ["?ckAPIToken=a%2Fb%2Bc", "?x=1&ckAPIToken=second&y"] {
      #expect(try status(raw.talk(get(Self.list + query, "Host: localhost"))) == 200, "\(query)")
    }
    #expect(try status(raw.talk(get("/signin", "Host: localhost"))) == 200)
    raw.server.cloud.setAPITokens(nil)
    #expect(try status(raw.talk(get(Self.list, "Host: localhost"))) == 200)
  }
}
