// Goal: the local server takes and gives contents as CloudKit's does: an address for each field, a receipt for the record that it was
// uploaded for, addresses that expire, refusals without JSON. Method: the protocol as a client speaks it, in this process and over a
// socket.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

private func bytes(_ count: Int) -> [UInt8] { SeededRandom(seed: UInt64(count)).bytes(count) }

/// The client's side of the endpoints for assets.
private struct Client {
  let server: CloudServer
  let clock = StillClock()

  init(faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits()) {
    server = CloudServer(
      inMemory: SystemEnvironment(fileSystem: POSIXFileSystem(), clock: clock, random: SeededRandom(seed: 7)),
      faults: faults, limits: limits)
  }

  func post(_ endpoint: String, _ body: [UInt8]) -> HTTPResponse {
    send(
      HTTPRequest(
        origin: "http://127.0.0.1", path: "/database/1/iCloud.test/development/private/\(endpoint)", body: body))
  }

  func send(_ request: HTTPRequest) -> HTTPResponse {
    guard case .respond(let response) = server.answer(request) else { preconditionFailure("no answer") }
    return response
  }

  /// The address for an upload.
  func address(_ record: String, _ field: String) throws -> String {
    let request = AssetTokens(
      zoneID: WireZoneID(zoneName: "Notes"),
      tokens: [WireAssetField(recordName: record, recordType: "Note", fieldName: field)])
    let reply = try WireJSON.decode(AssetTokens.self, post("assets/upload", WireJSON.encode(request)).body)
    return try #require(reply.tokens.first?.url)
  }

  func upload(_ content: [UInt8], to address: String) -> HTTPResponse {
    let origin = try? HTTPOrigin.split(address)
    return send(HTTPRequest(origin: origin?.origin ?? "", path: origin?.path ?? "", body: content))
  }

  func download(_ address: String) -> HTTPResponse {
    let origin = try? HTTPOrigin.split(address)
    return send(HTTPRequest(method: "GET", origin: origin?.origin ?? "", path: origin?.path ?? ""))
  }

  func asset(_ content: [UInt8], for record: String, _ field: String = "photo") throws -> Asset {
    try WireJSON.decode(UploadedFile.self, upload(content, to: try address(record, field)).body).singleFile.asset
  }

  func save(_ name: String, _ asset: Asset, _ field: String = "photo") async throws -> CloudResult? {
    try await server.client().one(
      CloudOperation(.forceUpdate, name: name, type: "Note", fields: [field: .asset(asset)]))
  }

  func photo(_ name: String) async throws -> Asset? {
    let found = try await server.client().lookup([name], in: notes)[name]?.record?.fields["photo"]
    guard case .asset(let asset)? = found else { return nil }
    return asset
  }
}

extension HTTPOrigin {
  /// Scheme, host and port of an address, and the rest.
  fileprivate static func split(_ address: String) throws -> (origin: String, path: String) {
    let start = try #require(address.firstRange(of: "://"))
    let slash = try #require(address[start.upperBound...].firstIndex(of: "/"))
    return (String(address[..<slash]), String(address[slash...]))
  }
}

@Suite(.timeLimit(.minutes(30)))
struct AssetTests {
  @Test func `a content is uploaded, named by its record, and fetched from the address in the answer`() async throws {
    let client = Client()
    try await client.server.client().createZone(notes)
    let content = bytes(70_000)
    let asset = try client.asset(content, for: "a")
    #expect(asset.size == 70_000 && asset.state == .uploaded)
    #expect(try await client.save("a", asset)?.record != nil)
    let found = try #require(try await client.photo("a"))
    #expect(found.size == 70_000 && found.state == .downloadable)
    #expect(found.fileChecksum?.utf8.count == 28, "base64 of 21 bytes")
    let response = client.download(try #require(found.downloadURL))
    #expect(response.status == 200 && response.body == content)
    // Equal contents have one checksum.
    #expect(try client.asset(content, for: "b").fileChecksum == found.fileChecksum)
    #expect(try client.asset(bytes(3), for: "b").fileChecksum != found.fileChecksum)
  }

  @Test func `a receipt counts for its record, its field and its content, and for fifteen minutes`() async throws {
    let client = Client()
    try await client.server.client().createZone(notes)
    let asset = try client.asset(bytes(100), for: "a")
    #expect(try await client.save("b", asset)?.code == .badRequest)
    #expect(try await client.save("a", asset, "other")?.code == .badRequest)
    let larger = try client.asset(bytes(101), for: "a")
    let mixed = Asset(
      fileChecksum: try #require(larger.fileChecksum), size: 101, receipt: asset.receipt)
    #expect(try await client.save("a", mixed)?.code == .badRequest)
    let made = Asset(fileChecksum: "AQ==", size: 3, receipt: "00ff")
    #expect(try await client.save("a", made)?.code == .badRequest)
    client.clock.advance(15 * 60 * 1_000)
    #expect(try await client.save("a", asset)?.record != nil)
    client.clock.advance(1)
    #expect(try await client.save("a", asset)?.error?.reason.contains("expired") == true)
  }

  @Test func `a record names the content of another one by a receipt of assets/rereference`() async throws {
    let client = Client()
    try await client.server.client().createZone(notes)
    let content = bytes(200)
    _ = try await client.save("a", try client.asset(content, for: "a"))
    func ask(_ name: String) -> HTTPResponse {
      client.post(
        "assets/rereference",
        WireJSON.encode(
          RereferenceRequest(
            zoneID: WireZoneID(zoneName: "Notes"), assets: [WireAssetField(recordName: name, fieldName: "photo")])))
    }
    let reply = try WireJSON.decode(RereferenceReply.self, ask("a").body)
    #expect(try await client.save("b", try #require(reply.assets.first?.asset))?.record != nil)
    let address = try #require(try await client.photo("b")?.downloadURL)
    #expect(client.download(address).body == content)
    #expect(ask("absent").status == 404)
  }

  @Test func `addresses expire, and the content host refuses without JSON`() async throws {
    var limits = ServerLimits()
    limits.assetBytesMax = 1_000
    let client = Client(limits: limits)
    try await client.server.client().createZone(notes)
    let address = try client.address("a", "photo")
    #expect(client.upload(bytes(1_001), to: address).status == 413)
    #expect(client.upload(bytes(1_000), to: address).status == 200)
    client.clock.advance(15 * 60 * 1_000 + 1)
    let expired = client.upload(bytes(10), to: address)
    #expect(expired.status == 410 && expired.headers["Content-Type"] == "text/plain; charset=UTF-8")
    #expect(client.download("http://127.0.0.1/content/00/x").status == 404)
    _ = try await client.save("a", try client.asset(bytes(10), for: "a"))
    let download = try #require(try await client.photo("a")?.downloadURL)
    #expect(client.upload(bytes(10), to: download).status == 404, "an address is for one thing")
    var faults = ServerFaults()
    faults.contentHostStatus = 421
    client.server.setFaults(faults)
    #expect(client.download(download).status == 421)
    faults = ServerFaults()
    faults.expireContentAddresses = true
    client.server.setFaults(faults)
    #expect(client.download(download).status == 410)
    #expect(client.download(try #require(try await client.photo("a")?.downloadURL)).status == 200)
    faults = ServerFaults()
    faults.quotaExceeded = true
    client.server.setFaults(faults)
    let refused = client.post(
      "assets/upload",
      WireJSON.encode(
        AssetTokens(
          zoneID: WireZoneID(zoneName: "Notes"), tokens: [WireAssetField(recordName: "a", fieldName: "photo")])))
    #expect(refused.status == 413 && String(decoding: refused.body, as: UTF8.self).contains("QUOTA_EXCEEDED"))
  }

  @Test func `over a socket a content goes to disk and comes from there, also after a restart`() async throws {
    let folder = try TemporaryFolder()
    let content = bytes(20_000_001)
    let transport = NetworkTransport()
    func request(_ method: String, _ address: String, _ body: [UInt8] = []) throws -> HTTPRequest {
      let (origin, path) = try HTTPOrigin.split(address)
      return HTTPRequest(method: method, origin: origin, path: path, body: body)
    }
    var checksum: String?
    for round in 0..<2 {
      let server = try LocalServer.run(directory: folder("journal"), environment: .real)
      let client = WebServicesDatabase(
        address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: nil,
        baseURL: server.url,
        transport: transport, environment: .real)
      if round == 0 {
        try await client.createZone(notes)
        let tokens = AssetTokens(
          zoneID: WireZoneID(zoneName: "Notes"), tokens: [WireAssetField(recordName: "a", fieldName: "photo")])
        let reply = try await transport.send(
          HTTPRequest(
            origin: server.url, path: "/database/1/iCloud.test/development/private/assets/upload",
            body: WireJSON.encode(tokens)))
        let address = try #require(try WireJSON.decode(AssetTokens.self, reply.body).tokens.first?.url)
        let uploaded = try await transport.send(try request("POST", address, content))
        let asset = try WireJSON.decode(UploadedFile.self, uploaded.body).singleFile.asset
        checksum = asset.fileChecksum
        _ = try await client.one(CloudOperation(.create, name: "a", type: "Note", fields: ["photo": .asset(asset)]))
      }
      guard case .asset(let asset)? = try await client.lookup(["a"], in: notes)["a"]?.record?.fields["photo"] else {
        Issue.record("no photo")
        return
      }
      #expect(asset.fileChecksum == checksum)
      let response = try await transport.send(try request("GET", try #require(asset.downloadURL)))
      #expect(response.body == content)
      server.stop()
      try server.waitUntilStopped()
    }
  }
}

extension Asset {
  fileprivate var fileChecksum: String? { server?.fileChecksum }
  fileprivate var receipt: String? { server?.receipt }
  fileprivate var downloadURL: String? { server?.downloadURL }
}
