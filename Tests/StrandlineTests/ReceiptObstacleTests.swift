// Goal: a receipt that waits says for what, and waits for nothing that only a person can end, whichever record stands in the
// way. Method: each state in which the engine sends nothing, with a caller that waits while the run ends, one that asks
// afterwards, and one after a relaunch.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

private let wrong = CloudError(.badRequest, reason: "wrong")

extension Device {
  fileprivate func save(
    _ name: String, _ fields: [String: FieldValue] = [:], type: String = "Note", parent: String? = nil
  ) async throws -> Receipt {
    try await open().write { tx in
      var record = try tx.record(RecordID(name)) ?? Record(type: type, id: RecordID(name))
      for (field, value) in fields { record[field] = value }
      if let parent { record.parent = parent }
      try tx.save(record)
    }
  }

  /// Begins to wait for a receipt, and goes on when the wait has begun.
  fileprivate func waiting(for receipt: Receipt) async throws -> Task<StrandlineError?, Never> {
    let store = try await open()
    let before = store.settledWaiters.count
    let hasEnded = Mutex(false)
    let task = Task {
      defer { hasEnded.withLock { $0 = true } }
      return await thrown(by: receipt)
    }
    while store.settledWaiters.count == before, !hasEnded.withLock({ $0 }) { await Task.yield() }
    return task
  }
}

private func thrown(by receipt: Receipt) async -> StrandlineError? {
  do { try await receipt.uploaded() } catch { return error as? StrandlineError }
  return nil
}

private func obstacles(_ receipt: Receipt) throws -> [String] {
  try receipt.pendingChanges().map { "\($0.id.name): \($0.obstacle.map { "\($0)" } ?? "-")" }
}

@Suite(.timeLimit(.minutes(30))) struct `What a receipt waits for` {
  @Test func `decision 45: a parent that is held until a person acts ends the wait of its child's child`() async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("parent")
    _ = try await a.save("child", ["of": link("parent")])
    let receipt = try await a.save("grandchild", ["of": link("child")])
    #expect(try obstacles(receipt) == ["grandchild: refers to Main/child"])
    cloud.refuse { $0.items["parent"] = [wrong] }
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    let error = try #require(await waiting.value)
    #expect(error.code == .notUploaded)
    #expect(error.message.contains("'Main/grandchild' waits for") && error.message.contains("'Main/parent' is held"))
    // One that asks later, and one after a relaunch, hear the same.
    #expect(await thrown(by: receipt)?.message == error.message)
    a.crash()
    _ = try await a.openRefusing()
    let again = try await a.open().receipt(at: receipt.position)
    #expect(await thrown(by: again)?.message == error.message)
    #expect(try obstacles(again) == ["grandchild: refers to Main/child"])
    try await a.open().releaseHolds(of: [RecordID("parent")])
    let last = try await a.waiting(for: again)
    #expect(try await a.run() == nil)
    #expect(await last.value == nil)
    #expect(try again.pendingChanges().isEmpty)
  }

  @Test func `a parent that is tried again by itself is waited for`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("parent")
    let receipt = try await a.save("child", ["of": link("parent")])
    cloud.refuse { $0.items["parent"] = [CloudError(.quotaExceeded, reason: "full")] }
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    #expect(try await a.open().settledWaiters.count == 1)
    #expect(try obstacles(receipt) == ["child: refers to Main/parent"])
    a.clock.advance(milliseconds: 300_000)
    #expect(try await a.run() == nil)
    #expect(await waiting.value == nil)
  }

  @Test func `what is over quota as a whole request is named by the receipt, the store and the next process`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("old")
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      script.refusal = { request, _ in request == .modify ? CloudError(.quotaExceeded, reason: "full") : nil }
    }
    // An edit and a creation.
    _ = try await a.save("old", ["title": "edited"])
    let receipt = try await a.save("new")
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run()?.message.contains("full") == true)
    // Storage may be free again without a person.
    #expect(try await a.open().settledWaiters.count == 1)
    for isRelaunched in [false, true] {
      if isRelaunched {
        try await a.close()
        // The wait goes on until then.
        #expect(await waiting.value?.code == .closed)
        _ = try await a.openRefusing()
      }
      let store = try await a.open()
      let again = try store.receipt(at: receipt.position)
      #expect(try obstacles(again) == ["new: held: QUOTA_EXCEEDED"], "\(isRelaunched)")
      let held = try store.status().held
      #expect(held.map(\.id.name).sorted() == ["new", "old"] && held.allSatisfy { $0.reason == "full" }, "\(held)")
      #expect(held.allSatisfy { $0.retryMilliseconds != nil })
    }
    let last = try await a.waiting(for: a.open().receipt(at: receipt.position))
    a.clock.advance(milliseconds: 24 * 3_600_000)
    #expect(try await a.run() == nil)
    #expect(await last.value == nil)
  }

  @Test func `a wait with a limit ends where one without would last: nobody syncs, offline, over quota`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    func late(_ receipt: Receipt) async -> String {
      do { try await receipt.uploaded(within: .seconds(5)) } catch {
        #expect((error as? StrandlineError)?.code == .notUploaded)
        return (error as? StrandlineError)?.message ?? ""
      }
      return ""
    }
    let receipt = try await a.save("n")
    let begun = a.clock.wallMilliseconds()
    let idle = await late(receipt)
    #expect(idle.contains("after 5.0 seconds") && idle.contains("call 'sync()'"), "\(idle)")
    #expect(a.clock.wallMilliseconds() - begun == 5_000)
    cloud.refuse { $0.refusal = { _, _ in CloudError(.networkError, reason: "no network") } }
    #expect(try await a.run()?.code == .unreachable)
    let offline = await late(receipt)
    #expect(offline.contains("no network"), "\(offline)")
    cloud.refuse {
      $0.refusal = { request, _ in request == .modify ? CloudError(.quotaExceeded, reason: "full") : nil }
    }
    a.clock.advance(milliseconds: 3_600_000)
    _ = try await a.run()
    let full = await late(receipt)
    #expect(full.contains("'Main/n' is not sent: held: QUOTA_EXCEEDED"), "\(full)")
    // Nobody waits any more, and the change stays pending.
    #expect(try await a.open().settledWaiters.count == 0)
    #expect(try receipt.pendingChanges().map(\.id.name) == ["n"])
    cloud.refuse { $0.refusal = nil }
    a.clock.advance(milliseconds: 24 * 3_600_000)
    #expect(try await a.run() == nil)
    // At once, also without any time.
    try await receipt.uploaded(within: .zero)
    // What only a person ends is thrown as without a limit.
    cloud.refuse { $0.items["bad"] = [wrong] }
    let bad = try await a.save("bad")
    _ = try await a.run()
    #expect(await late(bad).contains("'Main/bad' is held"))
  }

  @Test func `decision 45: one record of a set that is held ends the wait for the others`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing(atomicZones: [.main])
    cloud.refuse { script in
      (script.items["bad"], script.isForever) = ([wrong], true)
    }
    let receipt = try await a.open().write { tx in
      for name in ["bad", "good"] { try tx.save(Record(type: "Note", id: RecordID(name))) }
    }
    let waiting = try await a.waiting(for: receipt)
    _ = try await a.run()
    let error = try #require(await waiting.value)
    #expect(error.code == .notUploaded && error.message.contains("'Main/bad' is held"))
    #expect(try obstacles(receipt) == ["bad: held: BAD_REQUEST", "good: goes with Main/bad, which cannot go"])
    try await a.open().discardChanges(of: [RecordID("bad")])
    #expect(try await a.run() == nil)
    #expect(try receipt.pendingChanges().isEmpty)
  }

  @Test func `decision 45: a deletion whose referrer is held ends its wait`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("old")
    _ = try await a.save("moved", parent: "old")
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["moved"] = [wrong] }
    try await a.open().write { tx in
      var moved = try #require(try tx.record(RecordID("moved")))
      moved.parent = nil
      try tx.save(moved)
    }
    let receipt = try await a.open().write { tx in _ = try tx.delete(RecordID("old")) }
    let waiting = try await a.waiting(for: receipt)
    _ = try await a.run()
    #expect(await waiting.value?.message.contains("'Main/moved' is held") == true)
    #expect(try obstacles(receipt) == ["old: is referred to by Main/moved, which cannot go"])
  }

  @Test func `decision 45: a circle of which one record waits, over further ones, for a held record ends the wait`()
    async throws
  {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { ($0.items["bad"], $0.isForever) = ([wrong], true) }
    _ = try await a.save("bad")
    _ = try await a.save("further", ["of": link("bad")])
    // Of the two ways from the circle's second record the first one leads back.
    let receipt = try await a.open().write { tx in
      try tx.save(Record(type: "Note", id: RecordID("one"), fields: ["of": link("two")]))
      try tx.save(
        Record(type: "Note", id: RecordID("two"), fields: ["of": link("one"), "with": link("further")]))
    }
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    let error = try #require(await waiting.value)
    #expect(error.code == .notUploaded && error.message.contains("'Main/bad' is held"))
    #expect(try obstacles(receipt) == ["one: refers to Main/two", "two: refers to Main/further"])
    cloud.refuse { $0.items = [:] }
    try await a.open().releaseHolds(of: [RecordID("bad")])
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test(arguments: [["of", "with"], ["with", "of"]])
  func `decision 45: a circle that refers to what nobody has is held, and ends the wait`(
    _ names: [String]
  ) async throws {
    let a = try Fleet().device("a")
    _ = try await a.openRefusing()
    // Whichever of the two is looked at first.
    let receipt = try await a.open().write { tx in
      try tx.save(
        Record(type: "Note", id: RecordID("one"), fields: [names[0]: link("two"), names[1]: link("nowhere")]))
      try tx.save(Record(type: "Note", id: RecordID("two"), fields: ["of": link("one")]))
    }
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    #expect(try await a.open().status().held.map(\.id.name) == ["one"])
    // Ends a wait that goes on.
    try await a.close()
    #expect(await waiting.value?.message.contains("'Main/one' is held") == true)
  }

  @Test func `decision 45: a hold that ends by itself does not hide one that only a person ends`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    cloud.refuse { script in
      script.items["full"] = [CloudError(.quotaExceeded, reason: "full")]
      script.items["bad"] = [wrong]
    }
    _ = try await a.save("full")
    _ = try await a.save("bad")
    _ = try await a.save("further", ["of": link("bad")])
    let receipt = try await a.save("child", ["of": link("full"), "with": link("further")])
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    // Ends a wait that goes on.
    try await a.close()
    #expect(await waiting.value?.message.contains("'Main/bad' is held") == true)
  }

  @Test func `decision 45: a deletion whose referrer waits for a held record ends its wait`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("old")
    _ = try await a.save("moved", parent: "old")
    #expect(try await a.run() == nil)
    cloud.refuse { $0.items["new"] = [wrong] }
    _ = try await a.save("new")
    #expect(try await a.run() == nil)
    _ = try await a.save("moved", parent: "new")
    let receipt = try await a.open().write { tx in _ = try tx.delete(RecordID("old")) }
    for _ in 0..<2 {
      #expect(await thrown(by: receipt)?.message.contains("'Main/new' is held") == true)
      #expect(try await a.run() == nil)
    }
    #expect(try obstacles(receipt) == ["old: is referred to by Main/moved, which cannot go"])
    try await a.open().releaseHolds(of: [RecordID("new")])
    #expect(try await a.run() == nil)
    #expect(try await a.owesNothing)
  }

  @Test func `decision 45: a type that the server refuses ends the wait, and a later run takes it up`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    var receipts: [Receipt] = []
    for index in 0..<4 { receipts.append(try await a.save("n\(index)")) }
    cloud.refuse { script in for index in 0..<4 { script.items["n\(index)"] = [wrong] } }
    let waiting = try await a.waiting(for: receipts[0])
    #expect(try await a.run()?.code == .serverRefused)
    let error = try #require(await waiting.value)
    #expect(error.code == .serverRefused && error.message.contains("Note of Main"))
    #expect(try obstacles(receipts[0]) == ["n0: refused: Note of Main: BAD_REQUEST, wrong"])
    // One that asks before the next run waits for it: it lifts the halt.
    let again = try await a.waiting(for: receipts[0])
    #expect(try await a.run() == nil)
    #expect(await again.value == nil)
  }

  @Test func `decision 45: a lost zone ends the wait`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    _ = try await a.save("n")
    #expect(try await a.run() == nil)
    try await cloud.web.deleteZone(.main)
    let receipt = try await a.save("n", ["title": "edited"])
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run()?.code == .zoneLost)
    #expect(await waiting.value?.code == .zoneLost)
    #expect(try obstacles(receipt) == ["n: zone lost: deleted"])
    #expect(await thrown(by: receipt)?.code == .zoneLost)
  }

  @Test func `decision 45: a missing sign-in ends the wait, and after it the receipt ends`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    let receipt = try await a.save("n")
    cloud.refuse { $0.requests[.user] = [CloudError(.authenticationRequired, reason: "sign in")] }
    let waiting = try await a.waiting(for: receipt)
    #expect(try await a.run()?.code == .needsSignIn)
    #expect(await waiting.value?.code == .needsSignIn)
    // The next run may find a person signed in.
    let again = try await a.waiting(for: receipt)
    #expect(try await a.run() == nil)
    #expect(await again.value == nil)
  }

  @Test func `decision 45: another account ends the wait`() async throws {
    let a = try Fleet().device("a")
    _ = try await a.save("first")
    #expect(try await a.run() == nil)
    let receipt = try await a.save("n")
    try await a.close()
    let cloud = OtherUser(base: a.web())
    try await a.open(database: cloud)
    let again = try await a.open().receipt(at: receipt.position)
    let waiting = try await a.waiting(for: again)
    #expect(try await a.run()?.code == .accountMismatch)
    #expect(await waiting.value?.code == .accountMismatch)
  }
}

/// The fleet's server, as another user sees it.
private struct OtherUser: ForwardingDatabase {
  let base: any CloudDatabase
  func user() async throws -> String { "_another" }
}
