// Goal: requests that come during a sync share the next one; no answer, a reader's neither, shows what is not durable; and
// what the disk refuses or fails to sync is shown to nobody. Method: a disk whose syncs wait for a permit. Requests run on
// threads of their own; the server counts those that wait, so that each step begins when the last is where it should be.

import Dispatch
import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

/// A disk on which, once it is armed, each sync of a file waits for a permit.
private final class GatedDisk: ForwardingFileSystem {
  let base: any FileSystem
  private let isArmed = Atomic(false)
  private let arrived = DispatchSemaphore(value: 0)
  private let permits = DispatchSemaphore(value: 0)
  private let fault = Mutex<SystemError?>(nil)

  init(_ base: any FileSystem) { self.base = base }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    GatedFile(base: try folder.open(name, mode), disk: self)
  }

  func arm() { isArmed.store(true, ordering: .sequentiallyConsistent) }

  /// Lets what waits, and all later syncs, through.
  func disarm() {
    isArmed.store(false, ordering: .sequentiallyConsistent)
    permits.signal()
  }

  /// Returns when one more sync waits.
  func waitForSync() { arrived.wait() }

  /// Lets one sync through, or makes it fail.
  func permit(_ error: SystemError? = nil) {
    fault.withLock { $0 = error }
    permits.signal()
  }

  fileprivate func pass() throws(SystemError) {
    guard isArmed.load(ordering: .sequentiallyConsistent) else { return }
    arrived.signal()
    permits.wait()
    if let error = fault.withLock({ $0 }) { throw error }
  }
}

private final class GatedFile: ForwardingFile {
  let base: any File
  private let disk: GatedDisk

  init(base: any File, disk: GatedDisk) {
    self.base = base
    self.disk = disk
  }

  func sync(_ strength: SyncStrength) throws(SystemError) {
    try disk.pass()
    try base.sync(strength)
  }
}

/// A request on a thread of its own.
private struct Asking: Sendable {
  private final class Box: Sendable { let result = Mutex<Result<RecordsReply, ServerRefusal>?>(nil) }
  private let box = Box()
  private let thread: BlockingThread

  init(_ ask: @escaping @Sendable () throws(ServerRefusal) -> RecordsReply) throws {
    thread = try BlockingThread.start(name: "asking") { [box] in
      let result: Result<RecordsReply, ServerRefusal>
      do throws(ServerRefusal) { result = .success(try ask()) } catch { result = .failure(error) }
      box.result.withLock { $0 = result }
    }
  }

  /// What the answer is now; nil if there is none yet.
  var answer: Result<RecordsReply, ServerRefusal>? { box.result.withLock { $0 } }

  func wait() -> Result<RecordsReply, ServerRefusal>? {
    thread.join()
    return answer
  }
}

@Suite(.timeLimit(.minutes(30)))
struct SharedSyncTests {
  private let memory = SimulatedDisk()
  private let disk: GatedDisk
  private let server: CloudServer

  /// A server with the zone and one record, durable.
  init() throws {
    disk = GatedDisk(memory)
    server = try RestartTests.open(disk)
    _ = try server.modifyZones(RestartTests.makeZone, in: database)
    _ = try server.modify(RestartTests.save("old", 1), in: database)
  }

  private func save(_ name: String, _ value: Int64 = 1) throws -> Asking {
    try Asking { [server] () throws(ServerRefusal) in
      try server.modify(RestartTests.save(name, value), in: database)
    }
  }

  private func lookUp(_ name: String) throws -> Asking {
    try Asking { [server] () throws(ServerRefusal) in try server.lookup(Self.lookup(name), in: database) }
  }

  private static func lookup(_ name: String) -> RecordsLookupRequest {
    RecordsLookupRequest(zoneID: WireZoneID(notes), records: [.init(recordName: name)])
  }

  /// Returns when so many requests wait until what they saw is durable.
  private func waitUntilWaiting(_ count: Int) async { while server.waitingRequests < count { await Task.yield() } }

  @Test func `requests that come during a sync share the next one`() async throws {
    disk.arm()
    let first = try save("a")
    disk.waitForSync()
    let others = try ["b", "c", "d"].map { try save($0) }
    await waitUntilWaiting(4)
    #expect(first.answer == nil)
    disk.permit()
    #expect(try first.wait()?.get().records.first?.error == nil)
    disk.waitForSync()
    for other in others { #expect(other.answer == nil) }
    disk.permit()
    // Without a third permit.
    for other in others { #expect(try other.wait()?.get().records.first?.error == nil) }
    disk.disarm()
    #expect(try server.records(zone: "Notes", in: database)?.keys.sorted() == ["a", "b", "c", "d", "old"])
  }

  @Test func `a reader is not shown what is not durable yet`() async throws {
    disk.arm()
    let write = try save("old", 2)
    disk.waitForSync()
    let reading = try lookUp("old")
    let missing = try lookUp("never")
    await waitUntilWaiting(2)
    // What is not touched by the write is answered at once.
    #expect(try missing.wait()?.get().records.first?.error?.serverErrorCode == "NOT_FOUND")
    await waitUntilWaiting(2)
    #expect(reading.answer == nil && write.answer == nil)
    disk.permit()
    #expect(try reading.wait()?.get().records.first?.fields?["value"] == .int64(2))
    #expect(try write.wait()?.get().records.first?.error == nil)
    disk.disarm()
  }

  @Test func `a request that would hold much waits while others do, and a small one is answered`() async throws {
    try server.close()
    var limits = ServerLimits()
    limits.largeRequestsMax = 1
    let server = try RestartTests.open(disk, limits: limits)
    for name in ["large", "still"] {
      var save = RestartTests.save(name, 1)
      save.operations[0].record.fields?["text"] = .string(String(repeating: "x", count: 300_000))
      _ = try server.modify(save, in: database)
    }
    disk.arm()
    // The request has a few bytes, and what it changes 300 kB.
    func touch() throws -> Asking {
      try Asking { () throws(ServerRefusal) in try server.modify(RestartTests.save("large", 2), in: database) }
    }
    let first = try touch()
    disk.waitForSync()
    let second = try touch()
    let reading = try Asking { () throws(ServerRefusal) in
      let names = ["still", "still"].map { RecordsLookupRequest.Item(recordName: $0) }
      return try server.lookup(RecordsLookupRequest(zoneID: WireZoneID(notes), records: names), in: database)
    }
    while server.requestsWaitingForMemory < 2 { await Task.yield() }
    let small = try Asking { () throws(ServerRefusal) in try server.lookup(Self.lookup("old"), in: database) }
    #expect(try small.wait()?.get().records.first?.fields?["value"] == .int64(1))
    #expect(first.answer == nil && second.answer == nil && reading.answer == nil)
    disk.disarm()
    for asking in [first, second, reading] { #expect(try asking.wait()?.get().records.first?.error == nil) }
    #expect(server.requestsWaitingForMemory == 0)
    #expect(try server.record("large", zone: "Notes", in: database)?.fields["value"] == .int64(2))
    try server.close()
  }

  @Test func `a writer builds on what is not durable yet`() async throws {
    disk.arm()
    let first = try save("old", 2)
    disk.waitForSync()
    let second = try Asking { [server] () throws(ServerRefusal) in
      var record = WireRecord(recordName: "old")
      record.recordType = "Note"
      record.fields = ["other": .int64(3)]
      return try server.modify(
        ModifyRequest(
          zoneID: WireZoneID(notes), atomic: true, desiredKeys: nil,
          operations: [.init(operationType: "forceUpdate", record: record)]), in: database)
    }
    await waitUntilWaiting(2)
    disk.disarm()
    _ = try first.wait()?.get()
    #expect(try second.wait()?.get().records.first?.fields == ["value": .int64(2), "other": .int64(3)])
  }

  @Test func `a sync that fails refuses all that waited, and every later request`() async throws {
    disk.arm()
    let write = try save("old", 2)
    disk.waitForSync()
    let another = try save("b")
    let reading = try lookUp("old")
    await waitUntilWaiting(3)
    disk.permit(SystemError.device("fdatasync", "journal"))
    for asking in [write, another, reading] {
      guard case .failure(let refusal)? = asking.wait() else {
        Issue.record("it was answered")
        continue
      }
      #expect(refusal.status == 503)
    }
    #expect(server.failure?.contains("the journal failed") == true)
    #expect(throws: ServerRefusal.self) { try server.lookup(Self.lookup("old"), in: database) }
    disk.disarm()
  }

  @Test func `what a full disk refuses is taken back, and the server goes on`() async throws {
    disk.arm()
    let first = try save("a")
    disk.waitForSync()
    let big = FieldValue.bytes([UInt8](repeating: 7, count: 900_000))
    let names = ["b", "c", "old"]
    let others = try names.map { name in
      try Asking { [server] () throws(ServerRefusal) in
        var record = WireRecord(recordName: name)
        record.recordType = "Note"
        record.fields = ["big": big]
        return try server.modify(
          ModifyRequest(
            zoneID: WireZoneID(notes), atomic: true, desiredKeys: [],
            operations: [.init(operationType: "forceUpdate", record: record)]), in: database)
      }
    }
    await waitUntilWaiting(4)
    memory.capacity = memory.usedBytes
    disk.disarm()
    #expect(try first.wait()?.get().records.first?.error == nil)
    // There may be room for some of them.
    var expected: [CloudName: [String: FieldValue]] = ["a": ["value": 1], "old": ["value": 1]]
    var refusals = 0
    for (name, other) in zip(names, others) {
      switch other.wait() {
      case .success: expected[CloudName(name), default: [:]]["big"] = big
      case .failure(let refusal):
        refusals += 1
        #expect(refusal.error.serverErrorCode == "TRY_AGAIN_LATER")
      case nil: Issue.record("no answer")
      }
    }
    #expect(refusals > 0)
    #expect(server.failure == nil)
    #expect(try server.records(zone: "Notes", in: database)?.mapValues(\.fields) == expected)
    // Readers do not wait for what was refused, and as long as the disk is full each writer is told so.
    #expect(try server.lookup(Self.lookup("old"), in: database).records.first?.error == nil)
    memory.capacity = nil
    _ = try server.modify(RestartTests.save("new", 5), in: database)
    expected["new"] = ["value": 5]
    #expect(try server.records(zone: "Notes", in: database)?.mapValues(\.fields) == expected)
    try server.close()
    let again = try RestartTests.open(memory, seed: 2)
    #expect(try again.records(zone: "Notes", in: database)?.mapValues(\.fields) == expected)
  }
}
