// Goal: a device that begins with a zone gets the newest records first, then the list of all names with the token, then the
// rest; and whatever ends a process or a token on the way costs one request at most. Method: a server that was filled
// beside the engine, devices on simulated disks, and a cloud between the two that counts, cuts and changes.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// A cloud that counts what is asked, and answers in parts.
final class CountedCloud: ZoneByZoneDatabase {
  enum Request: Hashable, Sendable { case query, listing, page, lookup, other }

  let base: any CloudDatabase
  let counts: Mutex<[Request: Int]> = Mutex([:])
  /// The names that lookups were answered for, in order.
  let answered: Mutex<[String]> = Mutex([])
  /// Called before a request, with its kind and its number among those of the kind, from 1.
  let before: Mutex<(@Sendable (Request, Int) async throws -> Void)?> = Mutex(nil)
  /// What lookups say of these names.
  let unreadable: Mutex<[String: CloudError]> = Mutex([:])
  /// What lookups of these names are refused with as a whole.
  let refused: Mutex<[String: CloudError]> = Mutex([:])
  let pageMax: Int
  let lookupMax: Int

  init(_ device: Device, pageMax: Int = 200, lookupMax: Int = 200) {
    base = device.web()
    (self.pageMax, self.lookupMax) = (pageMax, lookupMax)
  }

  func count(_ request: Request) -> Int { counts.withLock { $0[request] ?? 0 } }
  var total: Int { counts.withLock { $0.values.reduce(0, +) } }

  private func begin(_ request: Request) async throws {
    let number = counts.withLock { counts in
      counts[request, default: 0] += 1
      return counts[request] ?? 0
    }
    try await before.withLock { $0 }?(request, number)
  }

  func user() async throws -> String {
    try await begin(.other)
    return try await base.user()
  }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await begin(.other)
    return try await base.databaseChanges(since: token, limit: limit)
  }
  func newestRecords(
    ofType type: String, in zone: ZoneID, limit: Int, after marker: String?
  ) async throws -> NewestPage {
    try await begin(.query)
    return try await base.newestRecords(ofType: type, in: zone, limit: min(limit, pageMax), after: marker)
  }
  func zoneListing(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await begin(.listing)
    return try await base.zoneListing(in: zone, since: token, limit: min(limit, pageMax))
  }
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await begin(.page)
    return try await base.zoneChanges(in: zone, since: token, limit: min(limit, pageMax))
  }
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await begin(.lookup)
    let refused = refused.withLock { $0 }
    if let error = names.lazy.compactMap({ refused[$0] }).first { throw error }
    guard names.count <= lookupMax else { throw CloudError(.limitExceeded, reason: "too many for this test") }
    var found = try await base.lookup(names, in: zone)
    answered.withLock { $0 += names }
    for (name, error) in unreadable.withLock({ $0 }) where found[name] != nil {
      found[name] = .failed(error, serverRecord: nil)
    }
    return found
  }
}

extension Fleet {
  /// Records that another tool has written: of the type Note, `n0` first; those of `deleted` are deleted again.
  fileprivate func fill(_ count: Int, deleted: Range<Int> = 0..<0) async throws {
    let cloud = device("filler").web()
    try await cloud.createZone(.main)
    for start in stride(from: 0, to: count, by: 200) {
      let some = (start..<min(count, start + 200)).map { number in
        CloudOperation(.create, name: "n\(number)", type: "Note", fields: ["title": .string("t\(number)")])
      }
      _ = try await cloud.modify(some, in: .main, atomic: false)
    }
    for start in stride(from: deleted.lowerBound, to: deleted.upperBound, by: 200) {
      let some = (start..<min(deleted.upperBound, start + 200)).map { CloudOperation(.forceDelete, name: "n\($0)") }
      _ = try await cloud.modify(some, in: .main, atomic: false)
    }
  }

  fileprivate func edit(_ names: [String], _ title: String) async throws {
    let operations = names.map {
      CloudOperation(.forceUpdate, name: $0, type: "Note", fields: ["title": .string(title)])
    }
    _ = try await device("filler").web().modify(operations, in: .main, atomic: false)
  }

  fileprivate func erase(_ names: [String]) async throws {
    _ = try await device("filler").web()
      .modify(names.map { CloudOperation(.forceDelete, name: $0) }, in: .main, atomic: false)
  }
}

extension Device {
  fileprivate var listedLeft: Int {
    get async throws { try await open().projections.sync.listed[.main]?.count ?? 0 }
  }

  /// Expects that this has all of the server, and owes and lists nothing.
  ///
  /// - Parameter replays: compares with a replay of the log too, which takes a time for each event that grows with the store.
  fileprivate func expectComplete(
    _ fleet: Fleet, replays: Bool = true, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    let records = try fleet.server.records(zone: "Main", in: fleet.database)
    let store = try await open()
    var here: [CloudName: FieldValue?] = [:]
    try store.forEachRecord { here[$0.id.key] = $0["title"] }
    #expect(here == records?.mapValues { $0.fields["title"] }, "\(name)", sourceLocation: sourceLocation)
    #expect(try await listedLeft == 0, sourceLocation: sourceLocation)
    #expect(try store.engine.status.download.listing == nil, sourceLocation: sourceLocation)
    if replays { #expect(try await brokenInvariant() == nil, sourceLocation: sourceLocation) }
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil, sourceLocation: sourceLocation)
    #expect(try await owesNothing, sourceLocation: sourceLocation)
  }
}

private let recent = FirstFetch.recentFirst(types: ["Note"], count: 20)

@Suite(.timeLimit(.minutes(30))) struct FirstFetchTests {
  @Test func `113: a new device has the newest records after three requests, and all within a stated number`()
    async throws
  {
    let fleet = try Fleet()
    // A tenth of the scenario: 1,000 records and 5,000 tombstones.
    try await fleet.fill(6_000, deleted: 0..<5_000)
    let newest = (5_980..<6_000).map { "n\($0)" }
    try await fleet.edit(newest, "newest")
    let device = fleet.device("a")
    let cloud = CountedCloud(device)
    try await device.open(database: cloud, firstFetch: recent)
    let sizes = Mutex<[Int]>([])
    let store = try await device.open()
    cloud.before.withLock { before in
      before = { request, number in
        if request == .listing, number == 1 { sizes.withLock { $0.append(store.recordCount) } }
        if request == .lookup, number == 1 {
          sizes.withLock { $0.append(cloud.total) }
          #expect(store.projections.sync.zones[.main]?.isDirty == false, "the token is at the end of the feed")
          let listing = try #require(try store.engine.status.download.listing)
          #expect(listing.done == 20 && listing.total == 1_000)
          #expect(try store.engine.status.sentence == "Fetching 20 of 1,000 records")
        }
      }
    }
    let report = try await device.sync()
    let pages = 30  // 6,000 names, 200 a page
    #expect(sizes.withLock { $0 } == [20, 3 + pages + 1], "the newest are here before the first page is asked for")
    #expect(report.fetchedSaves == 1_000)
    #expect(cloud.count(.query) == 1 && cloud.count(.page) == 0 && cloud.count(.listing) == pages)
    #expect(cloud.count(.lookup) == 5, "980 records, 200 a request")
    #expect(report.requests == 2 + 1 + pages + 5)
    try await device.expectComplete(fleet, replays: false)
    // From now on it is as any other device.
    try await fleet.edit(["n5001"], "later")
    try await device.sync()
    #expect(cloud.count(.page) == 1 && cloud.count(.listing) == pages && cloud.count(.query) == 1)
    try await device.expectComplete(fleet, replays: false)
  }

  @Test func `113: what the server has no index for, or the transport no request, is done without`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(10)
    let lines = Mutex<[String]>([])
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    cloud.before.withLock { before in
      before = { request, _ in
        if request == .query { throw CloudError(.badRequest, reason: "Type is not marked sortable: ___modTime") }
      }
    }
    var configuration = SyncConfiguration(cloud)
    configuration.isAutomatic = false
    configuration.firstFetch = .recentFirst(types: ["Note", "Task"])
    configuration.log = SyncLog(from: .notice) { _, line in lines.withLock { $0.append(line) } }
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: Device.options, environment: a.environment)
    try await store.sync()
    #expect(cloud.count(.query) == 2 && cloud.count(.lookup) == 1)
    #expect(store.recordCount == 10)
    let said = lines.withLock { $0 }.joined()
    #expect(said.contains("goes without the newest 'Note'") && said.contains("sortable"), "\(said)")
    // RefusingCloud has neither queries nor pages without fields.
    let b = fleet.device("b")
    let plain = RefusingCloud(b)
    try await b.open(database: plain, firstFetch: recent)
    try await b.sync()
    #expect(plain.count(.lookup) == 0 && plain.count(.zoneChanges) == 1)
    try await b.expectComplete(fleet)
  }

  @Test func `113: a query that fails for now keeps no page waiting`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(10)
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    cloud.before.withLock { before in
      before = { request, _ in if request == .query { throw CloudError(.internalError, reason: "not now") } }
    }
    try await a.open(database: cloud, firstFetch: recent)
    let report = try await a.sync()
    #expect(cloud.count(.query) == 1 && report.waitedMilliseconds == 0)
    try await a.expectComplete(fleet)
  }

  @Test(arguments: [CloudError.Code.tryAgainLater, .throttled, .serviceUnavailable])
  func `113: a server that is too busy for queries alone brings everything all the same`(_ code: CloudError.Code)
    async throws
  {
    let fleet = try Fleet()
    try await fleet.fill(10)
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    cloud.before.withLock { before in
      before = { request, _ in if request == .query { throw CloudError(code, reason: "no queries today") } }
    }
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note", "Task"], count: 20))
    try await a.sync()
    #expect(cloud.count(.query) == 2)
    try await a.expectComplete(fleet)
  }

  @Test func `114: a first fetch that its time ends at two fifths goes on there`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(1_000)
    let a = fleet.device("a")
    let first = CountedCloud(a, pageMax: 90)
    let clock = a.clock
    first.before.withLock { before in
      before = { request, number in
        if request == .lookup { clock.advance(by: .seconds(number == 3 ? 60 : 1)) }
      }
    }
    try await a.open(database: first, firstFetch: .recentFirst(types: [], count: 0))
    let report = try await a.open().sync(deadline: .seconds(5))
    #expect(report.isUnfinished && report.fetchedSaves > 300 && report.fetchedSaves < 900, "\(report)")
    let shown = report.fetchedSaves
    let status = try await a.open().engine.status
    #expect(status.sentence.hasSuffix("records to fetch"), "\(status.sentence)")
    #expect(status.diagnostics().contains("listing: \(shown) of "))
    a.crash()
    let second = CountedCloud(a, pageMax: 90)
    // It goes on with what was listed, however the app wants its first fetches now.
    try await a.open(database: second)
    #expect(try await a.open().recordCount == shown)
    #expect(try await a.sync().fetchedSaves == 1_000 - shown)
    #expect(second.count(.listing) == 0, "no page is asked for twice")
    let answered = first.answered.withLock { $0 } + second.answered.withLock { $0 }
    #expect(answered.count == 1_000 && Set(answered).count == 1_000, "no record is asked for twice")
    try await a.expectComplete(fleet)
  }

  @Test func `114: whenever the power goes, a first fetch goes on, and repeats one request at most`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(40, deleted: 0..<10)
    var call = 1
    var cuts = 0
    while true {
      let a = fleet.device("a\(call)")
      let first = CountedCloud(a, pageMax: 8, lookupMax: 10)
      try await a.open(database: first, firstFetch: .recentFirst(types: ["Note"], count: 3))
      a.disk.cutPower(atCall: a.disk.callCount + call)
      let isCut: Bool
      do {
        try await a.sync()
        isCut = false
      } catch { isCut = true }
      guard isCut else { break }
      cuts += 1
      a.crash(call.isMultiple(of: 2) ? .none : .all)
      let second = CountedCloud(a, pageMax: 8, lookupMax: 10)
      try await a.open(database: second, firstFetch: .recentFirst(types: ["Note"], count: 3))
      #expect(try await a.brokenInvariant() == nil, "call \(call)")
      try await a.sync()
      // Five pages. One may be under way while the one before it is written.
      #expect(first.count(.listing) + second.count(.listing) <= 7, "call \(call)")
      let answered = first.answered.withLock { $0.count } + second.answered.withLock { $0.count }
      #expect((27...27 + 10).contains(answered), "call \(call): \(answered) names")
      try await a.expectComplete(fleet)
      call += 1
    }
    #expect(cuts > 20, "\(cuts)")
  }

  @Test func `what was listed outlasts a compaction at any moment, and leaves the log when it is fetched`() async throws
  {
    let fleet = try Fleet()
    try await fleet.fill(40, deleted: 0..<10)
    for request in [CountedCloud.Request.listing, .lookup] {
      for number in 1...3 {
        let a = fleet.device("a\(request)\(number)")
        let cloud = CountedCloud(a, pageMax: 8, lookupMax: 10)
        try await a.open(database: cloud, firstFetch: recent)
        let broken = Mutex<[String]>([])
        cloud.before.withLock { before in
          before = { asked, count in
            guard asked == request, count == number else { return }
            if let words = try await a.compact().broken { broken.withLock { $0.append(words) } }
          }
        }
        try await a.sync()
        #expect(broken.withLock { $0 } == [])
        try await a.expectComplete(fleet)
        try await a.close()
        try await a.open()
        #expect(try await a.compact().broken == nil)
        try await a.expectComplete(fleet)
      }
    }
  }

  @Test func `a token that is refused while the list is read drops what was listed, and all comes with its fields`()
    async throws
  {
    let fleet = try Fleet()
    try await fleet.fill(40)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 8)
    cloud.before.withLock { before in
      before = { request, number in
        guard request == .listing, number == 4 else { return }
        var faults = ServerFaults()
        faults.expireTokens = true
        fleet.server.setFaults(faults)
        fleet.server.setFaults(ServerFaults())
      }
    }
    try await a.open(database: cloud, firstFetch: recent)
    try await a.sync()
    #expect(cloud.count(.page) == 5 && cloud.count(.lookup) == 0)
    try await a.expectComplete(fleet)
  }

  @Test func `what changes at the server meanwhile comes as it is, and what is deleted stays away`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(40)
    for moment in 1...6 {
      let a = fleet.device("a\(moment)")
      let cloud = CountedCloud(a, pageMax: 8, lookupMax: 10)
      try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 4))
      cloud.before.withLock { before in
        before = { request, number in
          guard request == .lookup || request == .listing, cloud.count(.listing) + cloud.count(.lookup) == moment else {
            return
          }
          try await fleet.edit(["n1", "n\(30 + moment)"], "edited \(moment)")
          try await fleet.erase(["n\(10 + moment)", "n\(20 + moment)"])
        }
      }
      try await a.sync()
      try await a.sync()
      try await a.expectComplete(fleet)
    }
  }

  @Test func `a change of a listed record is merged with the server's before it is sent`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(20)
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 1))
    try await a.write("n3", ["body": "mine"])
    try await a.sync()
    let record = try await a.open().record(RecordID("n3"))
    #expect(record?["body"] == "mine" && record?["title"] == "t3")
    try await a.expectComplete(fleet)
    #expect(try await fleet.device("b").synced().value("n3", "body") == "mine")
  }

  @Test func `a record that changes between two pages of the list is listed twice and asked for once`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(20)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 8)
    cloud.before.withLock { before in
      before = { request, number in
        if request == .listing, number == 2 { try await fleet.edit(["n1"], "edited") }
      }
    }
    try await a.open(database: cloud, firstFetch: recent.without)
    let report = try await a.sync()
    #expect(cloud.answered.withLock { $0.count } == 20 && report.held == 0)
    try await a.expectComplete(fleet)
  }

  @Test func `what the app creates and deletes under a listed name leaves the listed record alone`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(20)
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    let broken = CloudError(.networkError, reason: "cut")
    cloud.before.withLock { $0 = { request, _ in if request == .lookup { throw broken } } }
    try await a.open(database: cloud, firstFetch: recent.without)
    await #expect(throws: StrandlineError.self) { try await a.sync() }
    #expect(try await a.listedLeft == 20)
    try await a.write("n3", ["title": "mine"])
    try await a.open().write { try $0.delete(RecordID("n3")) }
    cloud.before.withLock { $0 = nil }
    // The deletion is settled before the listed record is asked for.
    try await a.exchange(.pushOnly)
    #expect(try await a.owesNothing)
    a.crash()
    try await a.open(database: cloud, firstFetch: recent.without)
    try await a.sync()
    try await a.expectComplete(fleet)
    #expect(try await a.value("n3", "title") == "t3")
  }

  @Test func `what the app writes meanwhile goes before the rest comes`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(100)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, lookupMax: 3)
    try await a.open(database: cloud, firstFetch: recent.without)
    // More often than a run begins to send what is written during it.
    let sent = Mutex<[Int]>([])
    cloud.before.withLock { before in
      before = { request, number in
        guard request == .lookup, cloud.answered.withLock({ $0.count }) > 0 else { return }
        sent.withLock { $0.append(fleet.applications) }
        try await a.write("mine\(number)", ["title": "m"])
      }
    }
    let filled = fleet.applications
    try await a.sync()
    let applied = sent.withLock { $0 }
    #expect(applied.count > 20)
    #expect(applied == applied.indices.map { filled + $0 }, "\(applied)")
    try await a.expectComplete(fleet)
  }

  @Test func `a record that cannot be shown is held by name, and the others come`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(10)
    let a = fleet.device("a")
    let late = LateCloud(Listing(base: a.web()))
    try await late.breakRecord("n4")
    try await a.open(database: late, firstFetch: recent.without)
    try await a.sync()
    #expect(try await a.open().recordCount == 9)
    #expect(try await a.open().status().held.map(\.id.name) == ["n4"])
    #expect(try await a.listedLeft == 0)
    late.mendRecords()
    try await a.open().releaseHolds(of: [RecordID("n4")])
    try await a.sync()
    try await a.expectComplete(fleet)
  }

  @Test func `a record that cannot be shown and is then deleted is held no longer`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(10)
    let a = fleet.device("a")
    let late = LateCloud(a.web())
    try await a.open(database: late)
    try await a.sync()
    // That a life of the name has ended is known already.
    try await fleet.erase(["n4"])
    try await a.sync()
    try await fleet.edit(["n4"], "again")
    try await late.breakRecord("n4")
    try await a.sync()
    #expect(try await a.open().status().held.map(\.id.name) == ["n4"])
    late.mendRecords()
    try await fleet.erase(["n4"])
    try await a.sync()
    #expect(try await a.open().status().held == [])
    try await a.expectComplete(fleet)
  }

  @Test func `children wait on the shelf for parents that are listed, and nothing stays there`() async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.write("list", ["title": "old"])
    for number in 0..<12 { try await b.write("task\(number)", ["title": "t"], type: "Task", parent: "list") }
    try await b.write("orphan", ["title": "t"], type: "Task", parent: "gone")
    try await b.sync()
    // Now it comes last in the feed.
    try await b.write("list", ["title": "new"])
    try await b.sync()
    var schema = Schema()
    schema["Task"].parent = ParentSchema()
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4, lookupMax: 4)
    let shown = Mutex<[Int]>([])
    try await a.open(database: cloud, schema: schema, firstFetch: .recentFirst(types: [], count: 0))
    let store = try await a.open()
    cloud.before.withLock { before in
      before = { request, _ in if request == .lookup { shown.withLock { $0.append(store.recordCount) } } }
    }
    try await a.sync()
    #expect(shown.withLock { $0.allSatisfy { $0 == 0 } }, "\(shown.withLock { $0 })")
    try await expectAgreement(a, b)
    #expect(store.recordCount == 14)
  }

  @Test func `what waits for a parent that nothing brings is shown behind a list that names nothing new`() async throws
  {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.write("orphan", ["title": "t"], type: "Task", parent: "gone")
    for number in 0..<5 { try await b.write("n\(number)", ["title": "t"]) }
    try await b.sync()
    var schema = Schema()
    schema["Task"].parent = ParentSchema()
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 2)
    let broken = CloudError(.networkError, reason: "cut")
    cloud.before.withLock { $0 = { request, number in if request == .page, number >= 3 { throw broken } } }
    try await a.open(database: cloud, schema: schema)
    await #expect(throws: StrandlineError.self) { try await a.sync() }
    #expect(try await !a.lives("orphan"))
    a.crash()
    for number in 0..<5 { try await b.erase("n\(number)") }
    try await b.sync()
    let second = CountedCloud(a)
    try await a.open(database: second, schema: schema, firstFetch: recent.without)
    try await a.sync()
    #expect(second.count(.listing) > 0 && second.count(.page) == 0)
    #expect(try await a.lives("orphan"))
    try await expectAgreement(a, b)
  }

  @Test func `a child waits for a parent that was listed after the reading of the list began`() async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.write("task", ["title": "t"], type: "Task", parent: "late")
    for name in ["n0", "n1", "n2", "late", "n3"] { try await b.write(name, ["title": "t"]) }
    try await b.sync()
    // Behind the others in the feed.
    for name in ["late", "n3"] {
      try await b.write(name, ["title": "edited"])
      try await b.sync()
    }
    var schema = Schema()
    schema["Task"].parent = ParentSchema()
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4, lookupMax: 2)
    try await a.open(database: cloud, schema: schema, firstFetch: recent.without)
    let store = try await a.open()
    let clock = a.clock
    let isShown = Mutex<[Bool]>([])
    cloud.before.withLock { before in
      before = { request, number in
        // The second page has to wait until the first one's names are being fetched.
        if request == .listing, number == 2 { throw CloudError(.internalError, reason: "not now") }
        guard request == .lookup else { return }
        clock.advance(by: .seconds(60))
        let task = try store.record(RecordID("task"))
        isShown.withLock { $0.append(task != nil) }
      }
    }
    try await a.sync()
    #expect(cloud.count(.listing) == 3)
    #expect(isShown.withLock { $0.count > 2 && !$0.contains(true) }, "\(isShown.withLock { $0 })")
    try await a.expectComplete(fleet)
  }

  @Test func `a listed record that could not be read before the list's end stays held`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(12)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4)
    var noKey = CloudError(.unexpectedServerResponse, reason: "no key")
    noKey.raw = Array("{}".utf8)
    let error = noKey
    cloud.unreadable.withLock { $0["n2"] = error }
    let names = Mutex<[String]>([])
    cloud.before.withLock { before in
      before = { request, number in
        guard request == .listing else { return }
        // The second page has to wait until the first one's names are being fetched.
        if number == 2 { throw CloudError(.internalError, reason: "not now") }
        names.withLock { $0 = cloud.answered.withLock { $0 } }
      }
    }
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 2))
    _ = try await a.sync()
    #expect(names.withLock { $0.contains("n2") }, "it was looked up before the last page")
    #expect(try await a.open().status().held.map(\.id.name) == ["n2"])
    #expect(try await a.listedLeft == 0)
    cloud.unreadable.withLock { $0 = [:] }
    try await a.open().releaseHolds(of: [RecordID("n2")])
    try await a.sync()
    try await a.expectComplete(fleet)
  }

  @Test func `a listed record that is refused for its sign-in keeps the others from nothing`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(12)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4)
    cloud.unreadable.withLock { $0["n2"] = CloudError(.authenticationFailed, reason: "not this one") }
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 2))
    try await a.sync()
    #expect(try await a.open().status().held.map(\.id.name) == ["n2"])
    #expect(try await a.listedLeft == 0)
    cloud.unreadable.withLock { $0 = [:] }
    try await a.sync()
    try await a.expectComplete(fleet)
  }

  @Test(arguments: [CloudError.Code.accessDenied, .badRequest])
  func `a listed record that no request may ask for is held by name, and the others come`(_ code: CloudError.Code)
    async throws
  {
    let fleet = try Fleet()
    try await fleet.fill(12)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4)
    cloud.refused.withLock { $0["n2"] = CloudError(code, reason: "not this one") }
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 2))
    try await a.sync()
    #expect(try await a.open().status().held.map(\.id.name) == ["n2"])
    #expect(try await a.open().recordCount == 11)
    #expect(try await a.listedLeft == 0)
    let asked = cloud.count(.lookup)
    try await a.sync()
    #expect(cloud.count(.lookup) == asked)
    cloud.refused.withLock { $0 = [:] }
    try await a.open().releaseHolds(of: [RecordID("n2")])
    try await a.sync()
    try await a.expectComplete(fleet)
  }

  @Test func `where every lookup of listed records is refused, few are made, and nothing is held`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(40)
    let a = fleet.device("a")
    let cloud = CountedCloud(a, pageMax: 4)
    for number in 0..<40 { cloud.refused.withLock { $0["n\(number)"] = CloudError(.accessDenied, reason: "not now") } }
    try await a.open(database: cloud, firstFetch: .recentFirst(types: ["Note"], count: 2))
    #expect(try await a.run(waitMillisecondsMax: 0)?.code == .serverRefused)
    #expect(try await a.open().status().held.isEmpty)
    #expect(cloud.count(.lookup) <= 20)
    cloud.refused.withLock { $0 = [:] }
    a.clock.advance(milliseconds: 60_000)
    try await a.sync()
    try await a.expectComplete(fleet)
  }

  @Test func `a page that comes when the app has the zone fetched anew does not end its fetch`() async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.write("list", ["title": "old"])
    try await b.write("task", ["title": "t"], type: "Task", parent: "list")
    try await b.sync()
    var schema = Schema()
    schema["Task"].parent = ParentSchema(whenDeleted: .delete)
    let a = fleet.device("a")
    let cloud = CountedCloud(a)
    try await a.open(database: cloud, schema: schema)
    try await a.sync()
    try await b.erase("list")
    try await b.sync()
    let pages = cloud.count(.page)
    let store = try await a.open()
    cloud.before.withLock { before in
      before = { request, number in
        if request == .page, number == pages + 1 { try await store.resync(.main, from: .server) }
      }
    }
    try await a.sync()
    #expect(cloud.count(.page) == pages + 2)
    #expect(try await !a.lives("list"))
    #expect(try await !a.lives("task"))
    try await a.sync()
    #expect(try await a.owesNothing)
  }

  @Test func `children of a parent that was deleted go as declared, though they come last`() async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.write("list", ["title": "old"])
    try await b.write("task", ["title": "t"], type: "Task", parent: "list")
    try await b.sync()
    try await b.erase("list")
    try await b.sync()
    var schema = Schema()
    schema["Task"].parent = ParentSchema(whenDeleted: .delete)
    let a = fleet.device("a")
    try await a.open(schema: schema, firstFetch: .recentFirst(types: [], count: 0))
    try await a.sync()
    #expect(try await a.lives("task") == false)
    try await a.sync()
    #expect(try await a.owesNothing)
    #expect(try await a.listedLeft == 0)
  }

  @Test func `123: a query's answer enters with its tag, and an older version never takes the place of a newer one`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let store = try await a.open()
    let id = RecordID("n")
    func take(_ record: ServerRecord) async throws -> SyncReport {
      let taken = try await store.take([ServerChange(id, .version(record))], .query)
      #expect(try await a.brokenInvariant() == nil)
      // What is not taken raises no question either: the feed answers it.
      #expect(store.projections.sync.openBlocks.isEmpty)
      return taken.report
    }
    let cloud = b.web()
    func current() async throws -> ServerRecord {
      try #require(try await cloud.newestRecords(ofType: "Note", in: .main, limit: 9, after: nil).records.first)
    }
    try await b.put("n", ["title": "one"])
    try await b.sync()
    let one = try await current()
    try await b.put("n", ["title": "two"])
    try await b.sync()
    let two = try await current()
    // The first version that is shown is taken, with its tag, and as what it is.
    #expect(try await take(one).fetchedSaves == 1)
    #expect(try await a.value("n") == "one")
    let base = try #require(store.projections.entry(id)?.base)
    #expect(base.changeTag == one.system.changeTag)
    guard case .fetchedSave(let event) = try store.source.event(at: base.version) else {
      Issue.record("the base is no fetched version")
      return
    }
    #expect(event.source == .query)
    #expect(try await take(one).echoes == 1)
    // A newer one takes its place; the older one then does not.
    #expect(try await take(two).fetchedSaves == 1)
    #expect(try await take(one).fetchedSaves == 0)
    #expect(try await a.value("n") == "two")
    // What the feed brought, and what is written here, is not taken back either.
    try await a.sync()
    try await a.put("n", ["title": "mine"])
    #expect(try await take(two) == take(two))
    #expect(try await a.value("n") == "mine")
    try await a.sync()
    #expect(try await take(two).fetchedSaves == 0)
    #expect(try await a.value("n") == "mine")
    // Nor what was deleted, before or after the deletion was sent.
    try await a.remove("n")
    #expect(try await take(two).fetchedSaves == 0)
    try await a.sync()
    #expect(try await take(two).fetchedSaves == 0)
    #expect(try await a.lives("n") == false)
    try await a.sync()
    try await b.sync()
    try await expectAgreement(a, b)
  }

  @Test func `123: versions without stamps go by the server's clock`() async throws {
    let fleet = try Fleet()
    try await fleet.fill(1)
    let cloud = fleet.device("b").web()
    func current() async throws -> ServerRecord {
      try #require(try await cloud.newestRecords(ofType: "Note", in: .main, limit: 9, after: nil).records.first)
    }
    let old = try await current()
    fleet.serverClock.advance(by: .seconds(1))
    try await fleet.edit(["n0"], "later")
    let new = try await current()
    let a = fleet.device("a")
    let store = try await a.open()
    for record in [new, old, new] {
      _ = try await store.take([ServerChange(RecordID("n0"), .version(record))], .query)
      #expect(try await a.value("n0") == "later")
      #expect(store.projections.sync.openBlocks.isEmpty)
    }
  }
}

/// A database whose listing is one, around one whose pages a test changes.
private struct Listing: ForwardingDatabase {
  let base: any CloudDatabase
}

extension FirstFetch {
  /// The same without a query.
  fileprivate var without: FirstFetch { .recentFirst(types: [], count: 0) }
}

extension Device {
  /// This device after a sync.
  fileprivate func synced() async throws -> Device {
    try await sync()
    return self
  }
}
