// Goal: every failure of a connection becomes a CloudError with a clear reason, whichever transport carries the request.
// Method: each of them against loopback sockets that misbehave, and against the local server.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct NetworkTests {
  enum Kind: CaseIterable {
    #if canImport(Darwin)
      case session
    #endif
    case sockets

    func transport(timeout: Double = 60, bytesMax: Int = 64 << 20) -> any Transport {
      switch self {
      #if canImport(Darwin)
        case .session: URLSessionTransport(timeout: timeout, totalTimeout: 60, answerBytesMax: bytesMax)
      #endif
      case .sockets: NetworkTransport(timeout: timeout, totalTimeout: 60, answerBytesMax: bytesMax)
      }
    }
  }

  private func failure(
    _ kind: Kind, _ answer: String, keepsOpen: Bool = false, bytesMax: Int = 1 << 20
  ) async throws -> CloudError? {
    let server = try ByteServer(answer, keepsOpen: keepsOpen)
    // It listens as long as it lives, and nothing after its address uses it.
    defer { withExtendedLifetime(server) {} }
    let transport = kind.transport(timeout: keepsOpen ? 1 : 60, bytesMax: bytesMax)
    let client = WebServicesDatabase.over(transport, apiToken: "top+secret", baseURL: server.url)
    let error = try await refusal { _ = try await client.zones() }
    #expect(error.map { "\($0)" }?.contains("secret") != true)
    return error
  }

  @Test(arguments: Kind.allCases) func `nothing listening`(kind: Kind) async throws {
    let listener = try Listener.bind(host: "127.0.0.1", port: 0)
    listener.close()
    let client = WebServicesDatabase.over(kind.transport(), baseURL: "http://127.0.0.1:\(listener.port)")
    let error = try await refusal { _ = try await client.zones() }
    #expect(error?.code == .networkError)
    #expect(
      error?.reason.hasPrefix("http://127.0.0.1:\(listener.port): cannot connect") == true, "\(error?.reason ?? "")")
  }

  @Test(arguments: Kind.allCases) func `addresses that are not valid`(kind: Kind) async throws {
    for url in ["", "nonsense", "ftp://x", "http://", "http://a b"] {
      let error = try await refusal {
        _ = try await WebServicesDatabase.over(kind.transport(), baseURL: url).zones()
      }
      #expect(error?.code == .networkError, "\(url)")
    }
  }

  @Test(arguments: Kind.allCases) func `garbage, silence and cuts are network errors`(kind: Kind) async throws {
    #expect(try await failure(kind, "")?.code == .networkError)
    #expect(try await failure(kind, "SSH-2.0-OpenSSH_9.9\r\n")?.code == .networkError)
    #expect(
      try await failure(kind, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"zones\":[")?.code == .networkError)
    #expect(
      try await failure(kind, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"zon")?.code == .networkError
    )
    let silent = try await failure(kind, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", keepsOpen: true)
    #expect(silent?.code == .networkError)
    #expect(silent?.reason.contains("timed out") == true)
    let large = try await failure(
      kind, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + String(repeating: "x", count: 200_000), bytesMax: 1000)
    #expect(large?.reason.contains("larger than 1000 bytes") == true && large?.code == .answerTooLarge)
  }

  @Test(arguments: Kind.allCases) func `portals, redirects and refusals give different errors`(kind: Kind) async throws
  {
    func answer(_ status: String, _ body: String, _ header: String = "") -> String {
      "HTTP/1.1 \(status)\r\n\(header)Connection: close\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }
    #expect(try await failure(kind, answer("200 OK", "<html>"))?.code == .unexpectedServerResponse)
    #expect(try await failure(kind, answer("200 OK", ""))?.code == .unexpectedServerResponse)
    let redirect = try await failure(kind, answer("302 Found", "", "Location: http://127.0.0.1:1/\r\n"))
    #expect(redirect?.code == .unexpectedServerResponse && redirect?.httpStatus == 302)
    let busy = try await failure(kind, answer("503 Busy", "<html>", "Retry-After: 30\r\n"))
    #expect(busy?.code == .serviceUnavailable && busy?.retryAfter == 30)
    let signIn = try await failure(kind, answer("421 X", "{\"serverErrorCode\":\"AUTHENTICATION_REQUIRED\"}"))
    #expect(signIn?.code == .authenticationRequired)
    #expect(try await failure(kind, answer("200 OK", "{\"zones\":[]}")) == nil)
  }

  @Test(arguments: Kind.allCases) func `the client syncs with the local server over a socket`(kind: Kind) async throws {
    let folder = try TemporaryFolder()
    let server = try LocalServer.run(directory: folder("journal"))
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test/ü?", environment: .development), baseURL: server.url,
      transport: kind.transport())
    #expect(try await client.user() == CloudServer.defaultUser)
    try await client.createZone(notes)
    #expect(try await client.zones() == [notes])
    let text = String(repeating: "\u{1F30A}", count: 200_000)
    let operations = [
      CloudOperation(.create, name: "a", type: "Note", fields: ["text": .string(text)]),
      CloudOperation(.create, name: "b/+ ?", type: "Note", fields: ["n": .int64(.max)]),
    ]
    let saved = try await client.modify(operations, in: notes, atomic: true)
    #expect(saved.values.allSatisfy { $0.record != nil })
    let page = try await client.zoneChanges(in: notes, since: nil, limit: 200)
    #expect(page.changes.count == 2)
    #expect(try await client.lookup(["a"], in: notes)["a"]?.record?.fields["text"] == .string(text))
    // The dropped answer: the operation is applied and durable, and the client gets no answer.
    var faults = ServerFaults()
    faults.dropAnswer = 1
    server.cloud.setFaults(faults)
    let unheard = Task {
      try await client.modify([CloudOperation(.create, name: "c", type: "Note")], in: notes, atomic: false)
    }
    while server.cloud.statistics.droppedAnswers == 0, !Task.isCancelled { await Task.yield() }
    unheard.cancel()
    await #expect(throws: CancellationError.self) { _ = try await unheard.value }
    #expect(try await client.lookup(["c"], in: notes)["c"]?.record != nil)
    server.stop()
    try server.waitUntilStopped()
    let gone = try await refusal { _ = try await client.zones() }
    #expect(gone?.code == .networkError)
  }

  @Test(arguments: Kind.allCases) func `a cancelled request ends, whenever the cancellation comes`(kind: Kind)
    async throws
  {
    let server = try ByteServer("", keepsOpen: true)
    defer { withExtendedLifetime(server) {} }
    let client = WebServicesDatabase.over(kind.transport(), baseURL: server.url)
    for round in 0..<200 {
      let task = Task {
        // Every second request is cancelled before it begins: its handler runs first of all.
        if round.isMultiple(of: 2) { while !Task.isCancelled { await Task.yield() } }
        return try await client.zones()
      }
      for _ in 0..<round / 8 { await Task.yield() }
      task.cancel()
      await #expect(throws: CancellationError.self) { try await task.value }
    }
  }
}
