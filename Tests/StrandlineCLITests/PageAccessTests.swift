// Goal: the data of a page is for the browser that was given its address, and for the page alone in it; a hostile page in
// another tab, or of another program on this machine, reads nothing and changes nothing. Method: the whole table of who may ask
// what, walked over a real loopback socket: every path with every method, cookie, token, origin, host and word of the browser on
// where a request came from. What is expected is said once, in the order in which it matters, and not taken from the program.

import StrandlineServer
import StrandlineSystem
import Testing

@testable import StrandlineCLI

@Suite(.serialized, .timeLimit(.minutes(30)))
struct `Who may ask a page` {
  private enum Cookie: CaseIterable { case none, wrong, right }
  private enum Token: CaseIterable { case none, wrong, right }
  private enum Origin: String, CaseIterable {
    case none, own
    case otherPort = "http://127.0.0.1:1"
    case otherName = "http://evil.example"
    case opaque = "null"
  }
  private enum Site: String, CaseIterable {
    case none = ""
    case typed = "none"
    case sameOrigin = "same-origin"
    case sameSite = "same-site"
    case crossSite = "cross-site"
  }

  private struct Question {
    var path: String
    var method: String
    var isOwnHost: Bool
    var cookie: Cookie
    var token: Token
    var origin: Origin
    var site: Site
  }

  private typealias Row = (path: String, get: Int, post: Int, isData: Bool)

  /// The paths of a server's page besides.
  private static let serverPaths: [Row] = [
    ("/", 200, 405, true), ("/api/session", 200, 404, true), ("/api/run?verb=log-dump", 200, 404, true),
    ("/api/events", 200, 404, true), ("/api/faults", 200, 200, true), ("/api/cloud", 404, 400, true),
    ("/api/requests", 200, 404, true), ("/api/request?number=1", 200, 404, true), ("/api/databases", 200, 404, true),
    ("/api/newest", 200, 404, true), ("/page/closed.html", 200, 405, false), ("/page/page.css", 200, 405, false),
    ("/page/icon.svg", 200, 405, false), ("/page/parts.js", 200, 405, false), ("/page/grid.js", 200, 405, false),
    ("/page/store.js", 200, 405, false), ("/page/sync.js", 200, 405, false), ("/page/log.js", 200, 405, false),
    ("/page/server.js", 200, 405, false),
  ]

  /// A server's paths with data alone, and with something to change.
  private static let wholeOfServer = ["/api/requests", "/api/faults"]

  /// The paths, with the status for one who may ask by GET, and the one for one who may change.
  private static let paths: [Row] = [
    ("/", 200, 405, true), ("/?t=RIGHT", 303, 405, false), ("/?t=WRONG", 401, 405, false), ("/?t=", 401, 405, false),
    ("/page/page.js", 200, 405, false), ("/page/none.js", 404, 405, false), ("/nothing", 404, 405, false),
    ("/api/session", 200, 404, true), ("/api/run?verb=types", 200, 404, true), ("/api/events", 200, 404, true),
    ("/api/space", 200, 404, true), ("/api/nothing", 404, 404, true),
  ]

  private func expected(_ question: Question, _ row: Row) -> Int {
    // First what is refused whatever is asked: another name for this address, and another page than this one.
    if !question.isOwnHost { return 403 }
    if [.otherPort, .otherName, .opaque].contains(question.origin) { return 403 }
    if question.site == .crossSite, question.origin == .none { return 403 }
    if ["DELETE", "PUT", "OPTIONS"].contains(question.method) { return 405 }
    if [.sameSite, .crossSite].contains(question.site) { return 403 }
    let isAPI = row.path.hasPrefix("/api/")
    // Then who has the cookie.
    let isRead = ["GET", "HEAD"].contains(question.method)
    if isAPI || (row.isData && isRead), question.cookie != .right { return 401 }
    if isRead { return row.get }
    // Then whether this page sent it: a browser names the origin of every POST.
    if isAPI, question.token != .right || question.origin != .own { return 403 }
    return row.post
  }

  /// What a page answers and a table of paths leaves out, or says otherwise.
  private static func differences(_ rows: [Row], _ names: (get: Set<String>, post: Set<String>)) -> Set<String> {
    let walked = rows.filter { $0.path.hasPrefix("/api/") }.map { row in
      (name: String(row.path.dropFirst(5).prefix { $0 != "?" }), row: row)
    }
    let left = names.get.union(names.post).subtracting(walked.map(\.name))
    let others = walked.filter { name, row in
      (row.get == 404) == names.get.contains(name) || (row.post != 404 && !names.post.contains(name))
    }
    return left.union(others.map(\.name))
  }

  @Test func `has every path and every name that there is`() throws {
    let environment = Machine().environment
    let access = PageAccess(environment.random)
    let store = PageService(StorePage("/A", allowsChanges: true, environment), access, environment)
    let server = ServerPage(
      CloudServer(inMemory: environment), directory: "/srv", needsAPIToken: false, access, environment)
    for (names, rows) in [(store.names, Self.paths), (server.page.names, Self.serverPaths)] {
      #expect(Self.differences(rows, names) == [])
      #expect(Self.differences(rows, (names.get.union(["new"]), names.post)) == ["new"])
      #expect(Self.differences(rows, (names.get, names.post.union(["new"]))) == ["new"])
      #expect(Self.differences(rows, (names.get.subtracting(["session"]), names.post)) == ["session"])
    }
    #expect(PageService.files.subtracting((Self.paths + Self.serverPaths).map(\.path)) == [])
  }

  @Test func `is the whole table`() async throws {
    let (machine, lines) = Machine.withLines()
    _ = await machine.run("import", "/A", "-", input: note("a", "kept quiet"))
    let page = try await PageServing(["open", "--allow-changes", "/A"], on: machine, lines)
    let held = try await walk(page, Self.paths, more: 10_000)
    held.close()
    let ended = await page.end()
    #expect(ended.code == .done)
  }

  @Test func `is the whole table of a server too`() async throws {
    let (machine, lines) = Machine.withLines()
    let page = try await PageServing(["serve", "/srv"], on: machine, lines)
    let zone = #"{"operations":[{"operationType":"create","zone":{"zoneID":{"zoneName":"kept quiet"}}}]}"#
    #expect(
      try await page.ask("POST", "/database/1/iCloud.test/development/private/zones/modify", body: zone).status == 200)
    let held = try await walk(page, Self.serverPaths, isServer: true, more: 5_000)
    held.close()
    let ended = await page.end()
    #expect(ended.code == .done)
  }

  /// Asks everything. Returns a stream that is still open.
  private func walk(_ page: PageServing, _ paths: [Row], isServer: Bool = false, more than: Int) async throws
    -> Connection
  {
    let right = try await page.cookie()
    let token = try await page.changeToken(right)
    let name = try #require(right.firstMatch(of: /strandline-\d+/)).0
    // A page that stays open: else the command ends a minute after the first stream, which simulated time makes a moment.
    let held = try page.connect("GET", "/api/events", [right])
    _ = try held.receive(max: 1 << 10, timeoutMilliseconds: 10_000)
    var asked = 0
    for row in paths {
      for method in ["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"] {
        for isOwnHost in [true, false] {
          for cookie in Cookie.allCases {
            for secret in Token.allCases {
              for origin in Origin.allCases {
                for site in Site.allCases {
                  // All with all, but of the methods that no path takes each secret and each origin by itself, and so of a server's
                  // other paths: its page has the same access.
                  let isWhole = isServer ? Self.wholeOfServer.contains(row.path) : !["PUT", "OPTIONS"].contains(method)
                  if !isWhole, (origin, site) != (.own, .none), (cookie, secret) != (.right, .right) { continue }
                  // A foreign host is refused before anything else is read: all with all where there is data, and something to change.
                  let isOfData =
                    Self.wholeOfServer.contains(row.path)
                    || ["/", "/api/session", "/api/run?verb=types"].contains(row.path)
                  if !isOwnHost, !isOfData, secret != .right || site != .none { continue }
                  let question = Question(
                    path: row.path, method: method, isOwnHost: isOwnHost, cookie: cookie, token: secret, origin: origin,
                    site: site)
                  let fields = [
                    cookie == .none ? "" : cookie == .right ? right : "Cookie: \(name)=\(page.token)",
                    secret == .none ? "" : secret == .right ? token : "X-Strandline-Token: \(page.token)",
                    origin == .none ? "" : origin == .own ? page.ownOrigin : "Origin: \(origin.rawValue)",
                    site == .none ? "" : "Sec-Fetch-Site: \(site.rawValue)",
                  ].filter { !$0.isEmpty }
                  let target = row.path.replacing("RIGHT", with: page.token).replacing(
                    "WRONG", with: String(repeating: "0", count: 32))
                  let host = isOwnHost ? nil : "evil.example"
                  let answer = try await page.ask(method, target, fields, host: host)
                  #expect(answer.status == expected(question, row), "\(question)")
                  let mayRead = answer.status == 200 && row.isData
                  #expect(mayRead || !answer.body.contains("kept quiet"), "\(question)")
                  asked += 1
                }
              }
            }
          }
        }
      }
    }
    #expect(asked > than)
    return held
  }

  @Test func `and every answer keeps foreign scripts and frames away, and tells no secret`() async throws {
    let (machine, lines) = Machine.withLines()
    _ = await machine.run("import", "/A", "-", input: note("a", "1"))
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    #expect(page.token.count == 32, "128 bits")
    let exchanged = try await page.ask("GET", "/?t=\(page.token)")
    #expect(exchanged.field("Location") == "/")
    let cookie = try #require(exchanged.field("Set-Cookie"))
    #expect(cookie.hasSuffix("; Path=/; HttpOnly; SameSite=Strict"))
    #expect(!cookie.contains(page.token), "the cookie is another secret than the address")
    let sent = try await page.cookie()
    for target in [
      "/", "/page/page.js", "/page/page.css", "/api/session", "/api/run?verb=status", "/api/none", "/none",
    ] {
      let answer = try await page.ask("GET", target, [sent])
      let policy = try #require(answer.field("Content-Security-Policy"), "\(target)")
      #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"))
      #expect(policy.contains("script-src 'self'") && !policy.contains("unsafe"))
      #expect(answer.field("X-Content-Type-Options") == "nosniff" && answer.field("Cache-Control") == "no-store")
      #expect(answer.field("Cross-Origin-Resource-Policy") == "same-origin")
      for secret in [page.token, String(sent.split(separator: "=").last ?? "")] {
        #expect(!answer.body.contains(secret) && !answer.head.contains(secret), "\(target)")
      }
    }
    // A link on a page of this machine may lead here; no other request of that page comes through.
    let link = ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate"]
    #expect(try await page.ask("GET", "/", [sent] + link).status == 200)
    #expect(try await page.ask("GET", "/api/session", [sent] + link).status == 403)
    let other = try await page.ask("GET", "/", ["Cookie: strandline-1=\(sent.split(separator: "=").last ?? "")"])
    #expect(other.status == 401 && other.body.contains("Open the address that the command printed"))
    let screen = await page.end()
    #expect(!screen.err.contains(page.token), "standard error may be kept as a log")
  }

  @Test func `a page asks verbs that read, with its own store and words that the table has`() async throws {
    let (machine, lines) = Machine.withLines()
    _ = await machine.run("import", "/A", "-", input: note("a", "1") + note("b", "2"))
    _ = await machine.run("import", "/B", "-", input: note("secret", "1"))
    let page = try await PageServing(["open", "/A"], on: machine, lines)
    let good: [(String, [String], String)] = [
      ("types", [], #""records":2"#), ("get", ["a"], #""title":"1""#),
      ("query", ["Note", "--where", #"title = "2""#, "--limit", "5"], #""recordName":"b""#),
      ("query", ["Note", "--limit", "1"], #""cursor":""#), ("why", ["a"], #""state":"pending""#),
      ("query", ["Note", "--count"], #""lines":["2"]"#),
      ("log-dump", ["--from", "2", "--to", "3"], #""recordName":"a""#), ("index", ["list"], #""lines":[]"#),
      ("compact", ["--dry-run", "--history", "latest"], #""eventsDropped":0"#),
      ("pending", ["--count"], #""lines":[{"count":2,"waitsFor":null}]"#), ("status", ["--limit", "0"], #""held":[]"#),
      ("pending", ["--limit", "1", "--after", "2"], #""recordName":"b""#), ("held", ["--count"], #""lines":[]"#),
      ("held", ["--code", "X", "--limit", "1"], #""lines":[{"cursor":null}]"#), ("zones", [], #""zoneName":"Main""#),
      ("history", ["a", "--limit", "5"], #""lsn":"#), ("verify", [], #""result":"sound""#),
    ]
    #expect(Set(good.map(\.0)) == Set(PageVerb.reading.map(\.name)), "each verb of the table is asked")
    for (verb, words, part) in good {
      let answer = try await page.verb(verb, words)
      #expect(answer.status == 200 && answer.body.contains(part), "\(verb) \(words): \(answer.body)")
    }
    let first = try await page.verb("query", ["Note", "--limit", "1"]).body
    #expect(first.contains(#""command":"strandline query /A Note --limit 1""#))
    // No word takes the place of the store, none waits, and none changes anything.
    for (verb, words) in [
      ("get", ["/B", "secret"]), ("types", ["/B"]), ("log-dump", ["--follow"]), ("query", ["Note"]),
      ("query", ["Note", "--limit", "1001"]), ("pending", []), ("held", []), ("held", ["retry"]),
      ("held", ["release", "a"]),
      ("zones", ["resume", "Main"]), ("index", ["drop", "Note"]), ("index", []), ("put", ["{}"]), ("delete", ["a"]),
      ("compact", []), ("compact", ["--history", "latest"]), ("compact", ["--dry-run", "--prove"]), ("export", []),
      ("serve", []), ("", []), ("verify", ["--against", "http://127.0.0.1:1"]),
    ] {
      let answer = try await page.verb(verb, words)
      #expect(
        [400, 404].contains(answer.status) && answer.body.hasPrefix(#"{"error":"#), "\(verb) \(words): \(answer.body)")
      #expect(!answer.body.contains("secret\""))
    }
    for command in Command.all where !PageVerb.reading.contains(where: { $0.name == command.name }) {
      #expect(try await page.verb(command.name).status == 404, "\(command.name)")
    }
    #expect(try await page.verb("get", ["none"]).body.contains("error: '/A' has no record"))
    #expect(try await page.verb("query", ["Note", "--where", "x", "--limit", "1"]).body.contains("is no condition"))
    _ = await page.end()
  }
}
