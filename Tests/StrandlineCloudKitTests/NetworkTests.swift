// Goal: every failure of a connection becomes a CloudError with a clear reason. Method: URLSession against loopback
// sockets that misbehave, and against the local server.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct NetworkTests {
  private func failure(_ answer: String, keepsOpen: Bool = false, bytesMax: Int = 1 << 20) async throws -> CloudError? {
    let server = try ByteServer(answer, keepsOpen: keepsOpen)
    // It listens as long as it lives, and nothing after its address uses it.
    defer { withExtendedLifetime(server) {} }
    let transport = URLSessionTransport(timeout: keepsOpen ? 1 : 60, totalTimeout: 60, answerBytesMax: bytesMax)
    let client = WebServicesDatabase.over(transport, apiToken: "top+secret", baseURL: server.url)
    let error = try await refusal { _ = try await client.zones() }
    #expect(error.map { "\($0)" }?.contains("secret") != true)
    return error
  }

  @Test func `nothing listening`() async throws {
    let listener = try Listener.bind(host: "127.0.0.1", port: 0)
    listener.close()
    let client = WebServicesDatabase.over(URLSessionTransport(), baseURL: "http://127.0.0.1:\(listener.port)")
    let error = try await refusal { _ = try await client.zones() }
    #expect(error?.code == .networkError)
    #expect(
      error?.reason.hasPrefix("http://127.0.0.1:\(listener.port): cannot connect") == true, "\(error?.reason ?? "")")
  }

  @Test func `addresses that are not valid`() async throws {
    for url in ["", "nonsense", "ftp://x", "http://", "http://a b"] {
      let error = try await refusal {
        _ = try await WebServicesDatabase.over(URLSessionTransport(), baseURL: url).zones()
      }
      #expect(error?.code == .networkError, "\(url)")
    }
  }

  @Test func `garbage, silence and cuts are network errors`() async throws {
    #expect(try await failure("")?.code == .networkError)
    #expect(try await failure("SSH-2.0-OpenSSH_9.9\r\n")?.code == .networkError)
    #expect(try await failure("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"zones\":[")?.code == .networkError)
    #expect(
      try await failure("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"zon")?.code == .networkError)
    let silent = try await failure("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", keepsOpen: true)
    #expect(silent?.code == .networkError)
    #expect(silent?.reason.hasSuffix("timed out") == true)
    let large = try await failure(
      "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + String(repeating: "x", count: 200_000), bytesMax: 1000)
    #expect(large?.reason.contains("larger than 1000 bytes") == true)
  }

  @Test func `portals, redirects and refusals give different errors`() async throws {
    func answer(_ status: String, _ body: String, _ header: String = "") -> String {
      "HTTP/1.1 \(status)\r\n\(header)Connection: close\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }
    #expect(try await failure(answer("200 OK", "<html>"))?.code == .unexpectedServerResponse)
    #expect(try await failure(answer("200 OK", ""))?.code == .unexpectedServerResponse)
    let redirect = try await failure(answer("302 Found", "", "Location: http://127.0.0.1:1/\r\n"))
    #expect(redirect?.code == .unexpectedServerResponse && redirect?.httpStatus == 302)
    let busy = try await failure(answer("503 Busy", "<html>", "Retry-After: 30\r\n"))
    #expect(busy?.code == .serviceUnavailable && busy?.retryAfter == 30)
    let signIn = try await failure(answer("421 X", "{\"serverErrorCode\":\"AUTHENTICATION_REQUIRED\"}"))
    #expect(signIn?.code == .authenticationRequired)
    #expect(try await failure(answer("200 OK", "{\"zones\":[]}")) == nil)
  }

  @Test func `the client syncs with the local server over a socket`() async throws {
    let folder = try TemporaryFolder()
    let server = try LocalServer.run(directory: folder("journal"))
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test/ü?"), baseURL: server.url, transport: URLSessionTransport())
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

  @Test func `a cancelled request ends, whenever the cancellation comes`() async throws {
    let server = try ByteServer("", keepsOpen: true)
    defer { withExtendedLifetime(server) {} }
    let client = WebServicesDatabase.over(URLSessionTransport(), baseURL: server.url)
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
