// `syncing: .cloudKit(…)` over the stand-in: the steps of the README's example, and what an app is told where nobody is signed in.

import CloudKit
import Strandline
import StrandlineCloudKit
import StrandlineNativeCloudKit
import StrandlineServer
import StrandlineSystem
import StrandlineTestSupport
import Testing

func openWithAccountOfDevice(at folder: String) async throws -> RecordStore {
  let cloud = SyncConfiguration.cloudKit("iCloud.app", environment: .development)
  return try await RecordStore.open(at: folder, syncing: cloud)
}

@Suite(.timeLimit(.minutes(30)))
struct `An app that syncs through CloudKit's framework` {
  private struct Note: SyncRecord {
    var id = RecordName.random()
    var title: String
  }

  @Test func `uploads what is written, and another device reads it`() async throws {
    let folder = try TemporaryFolder()
    let address = CloudAddress(container: "iCloud.app", environment: .production)
    let server = CloudServer(inMemory: .real)
    let cloud = StandInCloud(address, over: InProcessTransport(server), ownUser: CloudServer.defaultUser)
    try await CKContainer.$cloud.withValue(cloud) {
      var configuration = SyncConfiguration.cloudKit("iCloud.app", environment: .production)
      configuration.isAutomatic = false
      let store = try await RecordStore.open(at: folder("a"), syncing: configuration)
      let note = Note(title: "Low tide at six")
      let receipt = try await store.write { try $0.save(note) }
      try await store.sync()
      try await receipt.uploaded()
      try await store.update(Note.self, id: note.id) { $0.title = "Low tide at seven" }
      try await store.sync()
      try await store.close()
      #expect(cloud.takeManners().allSatisfy { $0.group == "Strandline" && $0.isUrgent })

      let other = try await RecordStore.open(at: folder("b"), syncing: configuration)
      try await other.sync()
      #expect(try other.fetch(Note.self, id: note.id)?.title == "Low tide at seven")
      try await other.close()
      // It names the other environment.
      let mistaken = try await openWithAccountOfDevice(at: folder("b"))
      await #expect(throws: StrandlineError.self) { try await mistaken.sync() }
      try await mistaken.close()
    }
  }

  @Test func `is told that nobody is signed in, and keeps what was written`() async throws {
    let folder = try TemporaryFolder()
    var configuration = SyncConfiguration.cloudKit("iCloud.app", environment: .production)
    configuration.isAutomatic = false
    let store = try await RecordStore.open(at: folder("a"), syncing: configuration)
    try await store.write { try $0.save(Note(id: "n", title: "Low tide at six")) }
    await #expect { try await store.sync() } throws: { ($0 as? StrandlineError)?.code == .needsSignIn }
    #expect(try store.fetch(Note.self, id: "n") != nil)
    #expect(try store.status().unsettled == 1)
    try await store.close()
  }

  @Test func `says how its requests are made`() {
    var options = NativeRequestOptions()
    #expect("\(options)" == "'Strandline', 60.0 seconds a request, 600.0 seconds at most")
    options.allowsCellularAccess = false
    #expect("\(options)".hasSuffix(", no cellular network"))
  }
}
