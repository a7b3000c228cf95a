// `syncing: .cloudKitWeb(…)` against the server's semantics without a network: the steps of an app, the
// place of the session file, and the error without an API token.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A store that syncs with CloudKit` {
  private struct Shell: SyncRecord {
    var id = RecordName.random()
    var name: String
  }

  @Test func `uploads what is written, and another device reads it`() async throws {
    let folder = try TemporaryFolder()
    let server = CloudServer(inMemory: .real)
    let configuration = SyncConfiguration.cloudKitWeb(
      CloudAddress(container: "iCloud.app", environment: .development), apiToken: nil, baseURL: "http://127.0.0.1:1",
      making: { InProcessTransport(server) })
    let store = try await RecordStore.open(at: URL(filePath: folder("a")), syncing: configuration)
    let shell = Shell(name: "whelk")
    let receipt = try await store.write { try $0.save(shell) }
    try await store.sync()
    try await receipt.uploaded()
    try await store.close()

    let other = try await RecordStore.open(at: folder("b"), syncing: configuration)
    try await other.sync()
    #expect(try other.fetch(Shell.self, id: shell.id)?.name == "whelk")
    try await other.close()
  }

  @Test func `keeps its session in the store's folder, for its owner alone`() async throws {
    let folder = try TemporaryFolder()
    let store = try await RecordStore.open(at: folder("a"))
    try await store.close()
    let session = try WebSession(path: folder("a") + "/session")
    try session.signIn(token: "54__token")
    var faults = ServerFaults()
    faults.requireSession = true
    let server = CloudServer(inMemory: .real, faults: faults)
    let configuration = SyncConfiguration.cloudKitWeb(
      CloudAddress(container: "iCloud.app", environment: .development), apiToken: nil, baseURL: "http://127.0.0.1:1",
      making: { InProcessTransport(server) })
    let synced = try await RecordStore.open(at: folder("a"), syncing: configuration)
    // The server did not give this token. A valid one written to the same file is used without opening the store again.
    await #expect(throws: StrandlineError.self) { try await synced.sync() }
    try session.signIn(token: server.signIn(user: "_alice"))
    try await synced.sync()
    try await synced.close()
    #expect(try POSIXFileSystem().kind(of: folder("a") + "/session") == .file)
  }

  @Test func `says that Apple's service needs an API token`() async throws {
    guard ProcessEnvironment.value(of: SyncConfiguration.apiTokenVariable) == nil else { return }
    let folder = try TemporaryFolder()
    await #expect {
      try await RecordStore.open(at: folder("a"), syncing: .cloudKitWeb("iCloud.app", environment: .production))
    } throws: {
      ($0 as? StrandlineError)?.code == .invalidValue && "\($0)".contains("STRANDLINE_API_TOKEN")
    }
    // The failed open released the lock: the store opens again.
    let store = try await RecordStore.open(at: folder("a"))
    try await store.close()
    await #expect(throws: StrandlineError.self) {
      try await RecordStore.open(at: #require(URL(string: "https://example.org/notes")))
    }
  }
}
