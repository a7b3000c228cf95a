// A page is asked for while the one before it is committed, and may be out of date when its turn comes: by a write of the app, a
// refusal, a crash. Where time is simulated, the driver does now the one and now the other first; `shift` makes each test meet both.

import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineTestSupport
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct OverlapTests {
  private static let batch = 200

  /// A run before the one that counts turns the order around: the account is not asked for again.
  private func shift(_ shift: Int, _ device: Device) async throws {
    if shift > 0 { try await device.exchange() }
  }

  private func fill(_ device: Device, _ count: Int) async throws {
    try await device.open().write { tx in
      for number in 0..<count {
        try tx.save(Record(type: "Note", id: RecordID("n\(number)"), fields: ["title": "old"]))
      }
    }
  }

  @Test func `a page is asked for before the page in front of it is committed, and no page is asked for twice`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for number in 0..<15 { try await b.put("n\(number)", ["title": "t"]) }
    try await b.exchange()
    let cloud = try await a.openRefusing()
    let shown = Mutex<[Int]>([])
    cloud.refuse { script in
      script.pageMax = 3
      script.beforePage = { _ in
        let count = try await a.dump().count
        shown.withLock { $0.append(count) }
      }
    }
    try await a.exchange()
    let behind = shown.withLock { $0.enumerated().map { 3 * $0.offset - $0.element } }
    #expect(behind.count == 5)
    #expect(behind.allSatisfy { $0 == 0 || $0 == 3 } && behind.contains(3), "one page behind at most: \(behind)")
    try await expectAgreement(a, b)
  }

  @Test(arguments: [0, 1])
  func `a batch leaves with the newest of each record, and each is sent once`(_ shift: Int)
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await self.shift(shift, a)
    try await fill(a, 3 * Self.batch)
    cloud.refuse {
      $0.beforeModify = { number in
        // Of the next batch: one is edited, one deleted.
        guard number == 1 else { return }
        try await a.write("n250", ["title": "new"])
        try await a.erase("n251")
      }
    }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count).sorted() == [1, 198, 200, 200])
    let names = cloud.sent.joined()
    #expect(names.count == 599 && Set(names).count == 599, "each is sent once, and 251 never")
    try await b.exchange()
    #expect(try await b.value("n250") == "new")
    #expect(try await !b.lives("n251"))
    try await expectAgreement(a, b)
  }

  @Test(arguments: [0, 1])
  func `what needs a refused record of the batch before waits`(_ shift: Int)
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await self.shift(shift, a)
    try await fill(a, Self.batch - 1)
    try await a.write("parent")
    for number in 0..<10 { try await a.write("child\(number)", parent: "parent") }
    for number in 0..<10 { try await a.write("other\(number)") }
    cloud.refuse { script in
      script.items["parent"] = [CloudError(.badRequest, reason: "no such field")]
    }
    _ = try await a.run()
    #expect(cloud.sent.map(\.count) == [200, 10], "the others are sent, and no child")
    #expect(try await a.open().pendingChanges().changes.first { $0.id == RecordID("child3") }?.obstacle != nil)
    try await a.write("parent", ["title": "right"])
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test(arguments: [0, 1])
  func `children go in the batch behind that of their parent`(_ shift: Int) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await self.shift(shift, a)
    try await fill(a, Self.batch - 1)
    try await a.write("parent")
    // Some of each batch refer to what the first one carries.
    for number in 0..<Self.batch {
      try await a.write("child\(number)", parent: "parent")
      try await a.write("other\(number)")
    }
    #expect(try await a.run() == nil)
    #expect(cloud.sent.map(\.count) == [200, 200, 200], "as many requests as without references")
    try await b.exchange()
    try await expectAgreement(a, b)
  }

  @Test(arguments: [0, 1], Campaign.seeds(1...7, every: 4).map { Int($0) })
  func `a crash behind any answer loses nothing and sends nothing twice that was acknowledged`(
    _ shift: Int, _ point: Int
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await self.shift(shift, a)
    for number in 0..<7 { try await b.put("b\(number)", ["title": "t"]) }
    try await b.exchange()
    try await fill(a, 2 * Self.batch + 50)
    let state = Mutex((answers: 0, isDead: false))
    cloud.refuse { script in
      script.pageMax = 2
      // A process that has ended asks for nothing.
      script.refusal = { _, _ in state.withLock { $0.isDead } ? CloudError(.accessDenied, reason: "ended") : nil }
    }
    a.whileAsking {
      let isOver = state.withLock { state in
        state.answers += 1
        if state.answers == point { state.isDead = true }
        return state.answers == point
      }
      if isOver { a.crash() }
    }
    _ = try await a.run()
    a.whileAsking(nil)
    let again = try await a.openRefusing()
    try await a.exchange()
    try await b.exchange()
    try await expectAgreement(a, b)
    #expect(try await a.dump().count == 7 + 2 * Self.batch + 50)
    // One batch may have been applied without its answer.
    #expect(again.sent.joined().count + cloud.sent.joined().count <= 3 * Self.batch + 50)
  }
}
