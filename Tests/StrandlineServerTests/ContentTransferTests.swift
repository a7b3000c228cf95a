// Goal: the web client moves contents in pieces, to and from the content host, without a token of the service, and says what is wrong in
// words that hold no address. Method: the local server over a socket, and in this process with a transport that keeps what it saw.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

private let place = ContentPlace(record: RecordID("a", zone: notes), type: "Note", field: "photo")

private func source(_ content: [UInt8], _ read: (@Sendable (Int) -> Void)? = nil) -> ContentSource {
  ContentSource(size: Int64(content.count), path: "/content") { offset, count in
    read?(count)
    return Array(content[Int(offset)..<(Int(offset) + count)])
  }
}

/// Collects a content.
private final class Collected: Sendable {
  private let state = Mutex((bytes: [UInt8](), largest: 0))
  var bytes: [UInt8] { state.withLock { $0.bytes } }
  var largest: Int { state.withLock { $0.largest } }

  func sink(_ size: Int64) -> ContentSink {
    ContentSink(size: size) { piece in
      self.state.withLock { state in
        state.bytes += piece
        state.largest = max(state.largest, piece.count)
      }
    }
  }
}

/// Keeps what it carries, and answers some requests itself.
private final class Recorder: Transport {
  let base: any Transport
  let seen: Mutex<[HTTPRequest]> = Mutex([])
  /// Answers for the content host, one at a time.
  let answers: Mutex<[HTTPResponse]> = Mutex([])

  init(_ base: any Transport) { self.base = base }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    seen.withLock { $0.append(request) }
    if request.path.hasPrefix("/content/"),
      let answer = answers.withLock({ $0.isEmpty ? nil : $0.removeFirst() })
    {
      return answer
    }
    return try await base.send(request)
  }
}

private func code(_ body: () async throws -> Void) async -> CloudError? {
  do {
    try await body()
    return nil
  } catch { return error as? CloudError ?? CloudError(.unsupported, reason: "\(error)") }
}

@Suite(.timeLimit(.minutes(30)))
struct ContentTransferTests {
  @Test func `over a socket a content goes up and comes down in pieces`() async throws {
    let folder = try TemporaryFolder()
    let server = try LocalServer.run(directory: folder("journal"), environment: .real)
    defer { server.stop() }
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: nil,
      baseURL: server.url, transport: NetworkTransport(), environment: .real)
    try await client.createZone(notes)
    for size in [0, 1, 262_144, 20_000_001] {
      let content = SeededRandom(seed: UInt64(size)).bytes(size)
      let largest = Mutex(0)
      let asset = try await client.upload(
        source(content) { count in largest.withLock { $0 = max($0, count) } }, for: place)
      #expect(asset.state == .uploaded && asset.size == Int64(size))
      #expect(largest.withLock { $0 } <= 262_144)
      _ = try await client.one(
        CloudOperation(.forceUpdate, name: "a", type: "Note", fields: ["photo": .asset(asset)]))
      let known = try await client.lookup(["a"], in: notes)["a"]?.record?.fields["photo"]?.assets.first
      let collected = Collected()
      try await client.download(try #require(known), of: place, into: collected.sink(Int64(size)))
      #expect(collected.bytes == content && collected.largest <= 1 << 20)
    }
    // A refusal may have more bytes than a content.
    let small = try await client.upload(source([7]), for: place)
    _ = try await client.one(CloudOperation(.forceUpdate, name: "a", type: "Note", fields: ["photo": .asset(small)]))
    let old = try #require(try await client.lookup(["a"], in: notes)["a"]?.record?.fields["photo"]?.assets.first)
    var faults = ServerFaults()
    faults.expireContentAddresses = true
    server.cloud.setFaults(faults)
    let renewed = Collected()
    try await client.download(old, of: place, into: renewed.sink(1))
    #expect(renewed.bytes == [7])
    let large = try await client.upload(source(Array(repeating: 1, count: 400_000)), for: place)
    _ = try await client.one(CloudOperation(.forceUpdate, name: "a", type: "Note", fields: ["photo": .asset(large)]))
    // One that is larger than the record says is not taken.
    let known = try #require(try await client.lookup(["a"], in: notes)["a"]?.record?.fields["photo"]?.assets.first)
    let collected = Collected()
    let error = await code { try await client.download(known, of: place, into: collected.sink(1_000)) }
    #expect(error?.code == .answerTooLarge && collected.bytes.isEmpty)
  }

  @Test func `no token of the service goes to the content host, and a 421 of it signs nobody out`() async throws {
    let server = CloudServer.still()
    let recorder = Recorder(InProcessTransport(server))
    var faults = ServerFaults()
    faults.requireSession = true
    server.setFaults(faults)
    let session = try WebSession(
      path: "/session",
      environment: SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: StillClock(), random: SeededRandom(seed: 3)))
    try session.signIn(token: server.signIn(user: "u"))
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "secret", session: session,
      baseURL: "http://127.0.0.1:1", transport: recorder, environment: .still())
    try await client.createZone(notes)
    recorder.answers.withLock { $0 = [HTTPResponse(status: 421)] }
    let error = await code { _ = try await client.upload(source([1, 2, 3]), for: place) }
    #expect(error?.code == .serviceUnavailable && error?.httpStatus == nil)
    let asset = try await client.upload(source([1, 2, 3]), for: place)
    #expect(asset.state == .uploaded)
    let toHost = recorder.seen.withLock { $0.filter { $0.path.hasPrefix("/content/") } }
    #expect(toHost.count == 2)
    for request in toHost {
      #expect(request.query.isEmpty && request.headers["Content-Type"] == "application/octet-stream")
    }
  }

  @Test func `refusals of the content host have no JSON, and no error has an address`() async throws {
    let server = CloudServer.still()
    let recorder = Recorder(InProcessTransport(server))
    let client = WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: nil,
      baseURL: "http://127.0.0.1:1", transport: recorder, environment: .still())
    try await client.createZone(notes)
    func refused(_ answers: HTTPResponse...) async -> CloudError? {
      recorder.answers.withLock { $0 = answers }
      let error = await code { _ = try await client.upload(source([1, 2, 3]), for: place) }
      if let error { #expect(!error.reason.contains("/content/")) }
      return error
    }
    #expect(await refused(HTTPResponse(status: 413))?.code == .limitExceeded)
    let busy = await refused(HTTPResponse(status: 503, headers: ["Retry-After": "7"]))
    #expect(busy?.code == .serviceUnavailable && busy?.retryAfter == 7)
    // An address that has expired is asked for once more.
    #expect(await refused(HTTPResponse(status: 410)) == nil)
    #expect(await refused(HTTPResponse(status: 403), HTTPResponse(status: 403))?.code == .accessDenied)
    #expect(await refused(HTTPResponse(status: 302))?.code == .unexpectedServerResponse)
    for body in ["", "{", "[]", "{\"singleFile\":1}", "{\"singleFile\":{\"size\":3}}"] {
      let error = await refused(HTTPResponse(status: 200, body: Array(body.utf8)))
      #expect(error?.code == .unexpectedServerResponse, "\(body)")
    }
    let other = "{\"singleFile\":{\"fileChecksum\":\"AQ==\",\"size\":4,\"receipt\":\"r\"}}"
    #expect(await refused(HTTPResponse(status: 200, body: Array(other.utf8)))?.code == .networkError)
    let bare = "{\"singleFile\":{\"fileChecksum\":\"AQ==\",\"size\":3}}"
    #expect(await refused(HTTPResponse(status: 200, body: Array(bare.utf8)))?.code == .unexpectedServerResponse)
  }

  @Test func `a download that no address leads to is one error: of a record that is gone, or that has another content`()
    async throws
  {
    let server = CloudServer.still()
    let client = server.client()
    try await client.createZone(notes)
    let asset = try await client.upload(source([1, 2, 3]), for: place)
    _ = try await client.one(CloudOperation(.create, name: "a", type: "Note", fields: ["photo": .asset(asset)]))
    // Without an address the record is looked up.
    let collected = Collected()
    try await client.download(asset, of: place, into: collected.sink(3))
    #expect(collected.bytes == [1, 2, 3])
    let other = Asset(fileChecksum: "AQ==", size: 3)
    #expect(await code { try await client.download(other, of: place, into: collected.sink(3)) }?.code == .notFound)
    let gone = ContentPlace(record: RecordID("x", zone: notes), type: "Note", field: "photo")
    #expect(await code { try await client.download(asset, of: gone, into: collected.sink(3)) }?.code == .notFound)
    for text in ["", "ftp://host/x", "http://", "http://host", "http://ho st/x", "https:///x"] {
      let strange = Asset(
        fileChecksum: try #require(asset.server?.fileChecksum), size: 3, downloadURL: text)
      let collected = Collected()
      try await client.download(strange, of: place, into: collected.sink(3))
      #expect(collected.bytes == [1, 2, 3], "an address that is none is as one that is missing")
    }
  }
}
