// What the tests of pages share: a command that serves one until Ctrl-C, and a browser's requests to it, written by hand.

import StrandlineCLI
import StrandlineHost
import StrandlineSystem
import Synchronization
import Testing

/// A command that serves a page until Ctrl-C.
final class PageServing: Sendable {
  let port: UInt16
  /// The token of its address.
  let token: String
  private let machine: Machine
  private let task: Task<Screen, Never>

  /// Runs `open`, or `serve` with the address that it says.
  init(_ words: [String], on machine: Machine, _ lines: AsyncStream<String>) async throws {
    self.machine = machine
    task = Task { await machine.run(words, input: []) }
    var address: (port: UInt16, token: String)?
    for await line in lines {
      guard let found = line.firstMatch(of: /http:\/\/127\.0\.0\.1:(\d+)\/\?t=([0-9a-f]+)/) else { continue }
      address = UInt16(found.1).map { ($0, String(found.2)) }
      break
    }
    (port, token) = try #require(address, "no address was printed")
  }

  /// Presses Ctrl-C.
  func end() async -> Screen {
    machine.interrupt()
    return await task.value
  }

  /// How it ended by itself.
  func ended() async -> Screen { await task.value }

  // MARK: Requests

  struct Answer: Sendable {
    var status: Int
    var head: String
    var body: String
    func field(_ name: String) -> String? {
      head.split(separator: "\r\n").first { $0.lowercased().hasPrefix(name.lowercased() + ": ") }
        .map { String($0.dropFirst(name.count + 2)) }
    }
  }

  /// Longer than a busy machine delays an answer.
  private static let patience: Int64 = 60_000

  /// The answer to a request; of an event stream only its head, and what came with it.
  ///
  /// Waits on a thread of its own: the command that answers needs one of the few on which tasks run.
  func ask(
    _ method: String, _ target: String, _ fields: [String] = [], host: String? = nil, body: String = ""
  ) async throws -> Answer {
    try await onThread("browser") { try self.answer(method, target, fields, host: host, body: body) }
  }

  private func answer(
    _ method: String, _ target: String, _ fields: [String], host: String?, body: String
  ) throws -> Answer {
    let connection = try connect(method, target, fields, host: host, body: body)
    defer { connection.close() }
    var bytes: [UInt8] = []
    while true {
      let piece = try connection.receive(max: 1 << 16, timeoutMilliseconds: Self.patience)
      if piece.isEmpty { break }
      bytes += piece
      if String(decoding: bytes, as: UTF8.self).contains("Content-Type: text/event-stream") { break }
    }
    let parts = String(decoding: bytes, as: UTF8.self).split(separator: "\r\n\r\n", maxSplits: 1)
    let head = String(parts.first ?? "")
    return Answer(
      status: Int(head.split(separator: " ").dropFirst().first ?? "") ?? 0, head: head,
      body: parts.count > 1 ? String(parts[1]) : "")
  }

  /// A connection on which a request was sent.
  func connect(
    _ method: String, _ target: String, _ fields: [String] = [], host: String? = nil, body: String = ""
  ) throws -> Connection {
    let connection = try Connection.connect(host: "127.0.0.1", port: port, timeoutMilliseconds: Self.patience)
    let lines =
      [
        "\(method) \(target) HTTP/1.1", "Host: \(host ?? own)", "Connection: close",
        "Content-Length: \(body.utf8.count)",
      ]
      + fields
    let text = lines.map { $0 + "\r\n" }.joined() + "\r\n" + body
    try connection.send(Array(text.utf8), timeoutMilliseconds: Self.patience)
    return connection
  }

  var own: String { "127.0.0.1:\(port)" }
  var ownOrigin: String { "Origin: http://\(own)" }

  /// The cookie for which the token is exchanged.
  func cookie() async throws -> String {
    let answer = try await ask("GET", "/?t=\(token)")
    let pair = try #require(answer.field("Set-Cookie")?.split(separator: ";").first, "\(answer.head)")
    return "Cookie: \(pair)"
  }

  /// What the page sends with a request that changes something.
  func changeToken(_ cookie: String) async throws -> String {
    let session = try await ask("GET", "/api/session", [cookie]).body
    return "X-Strandline-Token: " + (try #require(session.firstMatch(of: /"changeToken":"([0-9a-f]{32})"/)).1)
  }

  /// What the page asks of a verb.
  func verb(_ name: String, _ words: [String] = []) async throws -> Answer {
    let query = (["verb=\(name)"] + words.map { "w=" + Self.encoded($0) }).joined(separator: "&")
    return try await ask("GET", "/api/run?\(query)", [cookie()])
  }

  /// The same for one that changes something.
  func change(_ name: String, _ words: [String]) async throws -> Answer {
    let cookie = try await cookie()
    let form = (["verb=\(name)"] + words.map { "w=" + Self.encoded($0) }).joined(separator: "&")
    return try await ask("POST", "/api/run", [cookie, ownOrigin, changeToken(cookie)], body: form)
  }

  static func encoded(_ text: String) -> String {
    text.utf8.map { byte in
      (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
        ? String(UnicodeScalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
    }.joined()
  }
}

extension Machine {
  /// Another process on the same disk.
  static func beside(_ machine: Machine) -> Machine { Machine(seed: 77, disk: machine.disk) }

  /// A machine, and the lines that its commands print on both streams.
  static func withLines(seed: UInt64 = 5, clock: any SystemClock = StandingClock()) -> (Machine, AsyncStream<String>) {
    let (lines, feed) = AsyncStream<String>.makeStream()
    return (Machine(seed: seed, clock: clock, onOutput: { feed.yield($0) }, onError: { feed.yield($0) }), lines)
  }
}

/// A clock that moves only when a test moves it. Sleeps return at once, so that whoever looks at it now and then looks often.
final class PushedClock: SystemClock {
  private let now = Mutex<UInt64>(0)
  func wallMilliseconds() -> Int64 { 1_767_225_600_000 }
  func monotonicNanoseconds() -> UInt64 { now.withLock { $0 } }
  func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    await Task.yield()
  }
  func sleepBlocking(milliseconds: Int64) {}
  func push(seconds: UInt64) { now.withLock { $0 += seconds * 1_000_000_000 } }
}
