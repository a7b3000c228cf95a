// Histories that once went wrong, or would under a simpler rule, each step by step. The names begin with the
// decision that forbids them.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private let id = RecordID("n")

private func note(_ fields: [String: FieldValue], parent: String? = nil) -> Record {
  Record(type: "Note", id: id, fields: fields, parent: parent)
}

extension Device {
  fileprivate func save(_ fields: [String: FieldValue]) async throws {
    try await open().write { tx in
      var record = try tx.record(id) ?? note([:])
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  fileprivate func replaceLife(_ fields: [String: FieldValue]) async throws {
    try await open().write { tx in
      try tx.delete(id)
      try tx.create(note(fields))
    }
  }

  fileprivate func read(_ field: String = "title") async throws -> FieldValue? { try await open().record(id)?[field] }

  fileprivate func settle() async throws {
    try await sync()
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }

  /// The server applies what this device sends next, the answer is lost, and the device loses power.
  fileprivate func syncLosingTheAnswer(_ fleet: Fleet) async throws {
    let dropped = fleet.server.statistics.droppedAnswers
    fleet.server.setFaults(ServerFaults(dropAnswer: 1))
    let store = try await open()
    let task = Task { try await store.sync() }
    while fleet.server.statistics.droppedAnswers == dropped { await Task.yield() }
    task.cancel()
    _ = await task.result
    fleet.server.setFaults(ServerFaults())
    crash()
  }
}

extension ServerFaults {
  fileprivate init(dropAnswer: Int) {
    self.init()
    self.dropAnswer = dropAnswer
  }
}

/// Two devices that hold the record "n", and agree.
private func pair() async throws -> (fleet: Fleet, a: Device, b: Device) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  try await a.save(["title": "first"])
  try await a.settle()
  try await b.settle()
  return (fleet, a, b)
}

private func agree(_ devices: Device...) async throws {
  for _ in 0..<3 { for device in devices { try await device.settle() } }
  let first = try await devices[0].dump()
  for device in devices {
    #expect(try await device.dump() == first)
    #expect(try await device.open().status().unsettled == 0)
    #expect(try await device.open().status().openBlocks == 0)
  }
}

@Suite(.timeLimit(.minutes(30))) struct HistoryTests {
  @Test func `decision 1: an edit of another field after an edit in flight loses neither`() async throws {
    let (fleet, a, b) = try await pair()
    // 9 sets title, 11 sets body; only the newest is sent, and 9 counts as superseded.
    try await a.save(["title": "9"])
    try await a.save(["body": "11"])
    a.crash()
    try await agree(a, b)
    #expect(try await b.read() == "9")
    #expect(try await b.read("body") == "11")
    // The same with the answer lost in between.
    try await a.save(["other": "13"])
    try await a.save(["body": "15"])
    try await a.syncLosingTheAnswer(fleet)
    try await a.save(["count": 12])
    try await agree(a, b)
    #expect(try await b.read("other") == "13")
    #expect(try await b.read() == "9")
    #expect(try await b.read("body") == "15")
    #expect(try await b.read("count") == 12)
  }

  @Test func `decision 2: a creation whose answer was lost, then deleted by the app, does not come back`() async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "x"])
    try await a.syncLosingTheAnswer(fleet)
    try await a.open().write { tx in try tx.delete(id) }
    try await agree(a, b)
    #expect(try await a.read() == nil)
    #expect(try await b.read() == nil)
  }

  @Test func `decision 2: a creation that may have left is deleted at the server, by a run that only sends too`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "x"])
    // The power is cut when the server has it and the engine has not heard of it.
    let store = try await a.open()
    let disk = a.disk
    a.whileAsking { if fleet.server.statistics.appliedOperations > 0 { disk.cutPower() } }
    await #expect(throws: (any Error).self) { try await store.sync() }
    a.whileAsking(nil)
    a.crash()
    try await a.open().write { tx in try tx.delete(id) }
    try await a.sync(.pushOnly)
    try await b.settle()
    #expect(try await b.read() == nil)
  }

  @Test func `decision 2: a replacement whose answer was lost, deleted elsewhere, stays deleted`() async throws {
    let (fleet, a, b) = try await pair()
    try await a.replaceLife(["title": "second"])
    try await a.syncLosingTheAnswer(fleet)
    try await b.settle()
    #expect(try await b.read() == "second")
    try await b.open().write { tx in try tx.delete(id) }
    try await b.settle()
    try await agree(a, b)
    #expect(try await a.read() == nil)
    #expect(try await b.read() == nil)
  }

  @Test func `decision 2: the first record of a zone, whose answer was lost, stays deleted after a deletion elsewhere`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "x"])
    try await a.syncLosingTheAnswer(fleet)
    try await b.settle()
    try await b.open().write { tx in try tx.delete(id) }
    try await b.settle()
    let applied = fleet.server.statistics.appliedOperations
    try await a.settle()
    #expect(fleet.server.statistics.appliedOperations == applied)
    try await agree(a, b)
    #expect(try await a.read() == nil)
    #expect(try await b.read() == nil)
  }

  @Test func `decision 2: in a zone that may be older than the list a tombstone ends no creation that never arrived`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await b.openRefusing()
    try await b.settle()
    try await a.save(["title": "A's"])
    try await a.settle()
    try await a.open().write { tx in try tx.delete(id) }
    try await a.settle()
    try await b.save(["title": "B's"])
    cloud.refuse { $0.requests[.modify] = [CloudError(.networkError, reason: "lost on the way")] }
    await #expect(throws: StrandlineError.self) { try await b.sync(.pushOnly, waitMillisecondsMax: 0) }
    try await b.settle()
    #expect(try await b.read() == "B's")
    try await agree(a, b)
    #expect(try await a.read() == "B's")
  }

  @Test func `decision 2: a tombstone of an attempted creation leaves a later life alone`() async throws {
    let (fleet, a, b) = try await pair()
    try await a.replaceLife(["title": "second"])
    try await a.syncLosingTheAnswer(fleet)
    try await b.settle()
    try await b.open().write { tx in try tx.delete(id) }
    try await b.settle()
    try await a.replaceLife(["title": "third"])
    try await agree(a, b)
    #expect(try await a.read() == "third")
    #expect(try await b.read() == "third")
  }

  @Test func `decision 2: an old page does not bring a deleted creation back as saved`() async throws {
    let fleet = try Fleet()
    let (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
    try await a.save(["title": "x"])
    try await a.syncLosingTheAnswer(fleet)
    var faults = ServerFaults()
    faults.replayPage = true
    fleet.server.setFaults(faults)
    try await b.settle()
    try await b.open().write { tx in try tx.delete(id) }
    try await b.settle()
    // A has no token, so the tombstone may be older than its creation.
    try await a.sync(.pullOnly)
    // The page that comes next shows the creation once more, from before the deletion, and no tombstone follows.
    try await c.open().write { tx in try tx.save(Record(type: "Note", id: RecordID("other"))) }
    try await c.settle()
    let replayed = fleet.server.statistics.replayedPages
    try await a.settle()
    #expect(fleet.server.statistics.replayedPages == replayed + 1)
    fleet.server.setFaults(ServerFaults())
    try await agree(a, b, c)
    #expect(try await a.read() == nil)
    #expect(try await a.open().recordIDs().map(\.name) == ["other"])
  }

  @Test func `decision 3: fields of a dead life do not enter a new one`() async throws {
    let (fleet, a, b) = try await pair()
    try await a.save(["secret": "of the first life"])
    try await a.syncLosingTheAnswer(fleet)
    try await a.replaceLife(["title": "second"])
    try await agree(a, b)
    #expect(try await b.read() == "second")
    #expect(try await b.read("secret") == nil)
    #expect(try await a.read("secret") == nil)
  }

  @Test func `decision 2: a record sent again after its deletion is not taken for a server that went back`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
    try await a.open().write { tx in try tx.save(Record(type: "Note", id: RecordID("other"))) }
    try await a.settle()
    // A creates the record; the answer is lost. B creates it too and saves a merge of both lives; C deletes that.
    try await a.save(["title": "A's"])
    try await a.syncLosingTheAnswer(fleet)
    try await b.save(["body": "B's"])
    try await b.settle()
    try await c.settle()
    try await c.open().write { tx in try tx.delete(id) }
    try await c.settle()
    // A's token has expired, and in a fetch from the beginning the tombstone may be older than its creation: A creates the record
    // again.
    var faults = ServerFaults()
    faults.expireTokens = true
    fleet.server.setFaults(faults)
    fleet.server.setFaults(ServerFaults())
    fleet.serverClock.advance(milliseconds: 1_000)
    try await a.settle()
    // B fetches a record of A's life alone, which lacks what the server once acknowledged to B.
    try await b.settle()
    #expect(try await b.open().status().zones.allSatisfy { !$0.isLost })
    #expect(try await b.read() == "A's")
    try await agree(a, b, c)
  }

  @Test func `decision 3: an edit of a new life is not undone by what the old one held`() async throws {
    let (fleet, a, b) = try await pair()
    // The new life has no title, so it removes the old one's. The answer is lost, and A edits again meanwhile.
    try await a.replaceLife(["body": "second"])
    fleet.serverClock.advance(milliseconds: 10_000)
    try await a.syncLosingTheAnswer(fleet)
    try await a.save(["title": "of the second life"])
    try await agree(a, b)
    #expect(try await b.read("body") == "second")
    #expect(try await b.read() == "of the second life")
  }

  @Test func `decision 3: two devices that create the same name keep both lives`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["fromA": 1])
    try await b.save(["fromB": 2])
    try await agree(a, b)
    #expect(try await a.read("fromA") == 1)
    #expect(try await a.read("fromB") == 2)
  }

  @Test func `decision 3: an edit of a dead life is never merged into another one`() async throws {
    let (_, a, b) = try await pair()
    try await a.save(["title": "edit of the first"])
    try await b.replaceLife(["body": "second"])
    try await b.settle()
    try await agree(a, b)
    #expect(try await a.read() == nil)
    #expect(try await a.read("body") == "second")
  }

  @Test func `decision 4: an edit made while another device's edit is fetched loses neither`() async throws {
    let (fleet, a, b) = try await pair()
    try await b.save(["title": "B's"])
    try await b.settle()
    // A edits while its own cycle is fetching B's edit.
    let store = try await a.open()
    let once = Mutex(false)
    a.whileAsking {
      let isFirst = once.withLock { done in
        defer { done = true }
        return !done
      }
      guard isFirst else { return }
      _ = try? store.writeBlocking { tx in
        var record = try tx.record(id) ?? note([:])
        record["body"] = "A's"
        try tx.save(record)
      }
    }
    try await a.settle()
    a.whileAsking(nil)
    try await agree(a, b)
    #expect(try await a.read() == "B's")
    #expect(try await a.read("body") == "A's")
    #expect(fleet.server.statistics.appliedOperations == 3)
  }

  @Test func `decision 5: an edit whose answer was lost is not sent again after another device built on it`()
    async throws
  {
    let (fleet, a, b) = try await pair()
    try await a.save(["count": 1])
    try await a.syncLosingTheAnswer(fleet)
    try await b.settle()
    try await b.save(["count": 2])
    try await b.settle()
    let applied = fleet.server.statistics.appliedOperations
    try await agree(a, b)
    #expect(fleet.server.statistics.appliedOperations == applied, "A's edit is in B's version already")
    #expect(try await a.read("count") == 2)
  }

  @Test func `decision 5: a clone draws a new writer ID before it sends`() async throws {
    let (_, a, b) = try await pair()
    let image = a.disk.clone()
    try await a.save(["title": "from the original"])
    try await a.settle()
    try await a.close()
    b.restore(from: image)
    try await b.save(["body": "from the clone"])
    try await agree(a, b)
    #expect(try await a.read() == "from the original")
    #expect(try await a.read("body") == "from the clone")
    let names = try await [a.open(), b.open()].map { $0.projections.sync.writer }
    #expect(names[0] != names[1])
  }

  @Test func `decision 5: a store knows its creation in what a copy made of it under the same writer ID`() async throws
  {
    let fleet = try Fleet()
    // Half a year ahead, so that by the times alone the older title would win.
    let a = fleet.device("a", clockSkewMilliseconds: 15_000_000_000)
    let b = fleet.device("b")
    try await a.save(["title": "first"])
    b.restore(from: a.disk.clone())
    try await b.settle()
    // The copy has met no other version, so it still writes under the name that it was copied with.
    try await b.save(["title": "edited"])
    try await b.settle()
    let applied = fleet.server.statistics.appliedOperations
    let report = try await a.sync()
    #expect(report.recognized == 1 && report.merged == 0)
    #expect(try await a.read() == "edited")
    try await agree(a, b)
    #expect(fleet.server.statistics.appliedOperations == applied, "the server had all of it")
  }

  @Test func `decision 24: by a clock ahead, an edit in a copy of a log does not win over a later one in the original`()
    async throws
  {
    let fleet = try Fleet()
    // Half a year ahead: both times become less, each at its own upload.
    let a = fleet.device("a", clockSkewMilliseconds: 15_000_000_000)
    let b = fleet.device("b", clockSkewMilliseconds: 15_000_000_000)
    try await a.save(["body": "x"])
    try await a.save(["title": "older"])
    b.restore(from: a.disk.clone())
    try await a.close()
    // In a process of its own, so that the copy cannot know that its log has the older edit and no later one.
    try await a.save(["title": "newer"])
    try await a.settle()
    for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 3_600_000) }
    try await b.settle()
    try await agree(a, b)
    #expect(try await a.read() == "newer")
    #expect(try await b.read("body") == "x")
  }

  @Test func `decision 43: after a relaunch, the first answer says what the server's clock shows`() async throws {
    let fleet = try Fleet()
    let year: Int64 = 31_536_000_000
    let a = fleet.device("a", clockSkewMilliseconds: -2 * year)
    let b = fleet.device("b")
    try await a.save(["title": "first"])
    try await a.settle()
    try await b.settle()
    try await a.close()
    // Put right, but for some hours: what the log says of the server's clock now leads two years ahead.
    a.clock.setWall(milliseconds: fleet.serverClock.wallMilliseconds() - 40_000_000)
    try await a.save(["title": "older"])
    for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 3_600_000) }
    try await b.save(["title": "other"])
    try await b.settle()
    try await a.settle()
    try await agree(a, b)
    // The times that the merge compared were those of clocks that are right, so that which won stays the later one.
    guard case .record(let record)? = try await b.web().lookup(["n"], in: .main)["n"],
      case .bytes(let bytes)? = record.fields[Names.stampField],
      let stamp = try StampCodec.decode(bytes).fields["title"]?.0
    else { return #expect(Bool(false), "there is no stamp") }
    #expect(stamp.time.isBelievable(at: fleet.serverClock.wallMilliseconds()))
  }

  @Test func `decision 43: a run that brings nothing but the list says what the server's clock shows`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    try await a.save(["title": "first"])
    try await a.settle()
    try await a.settle()
    try await a.close()
    for clock in [a.clock, fleet.serverClock] { clock.advance(milliseconds: 3_600_000) }
    a.clock.setWall(milliseconds: fleet.serverClock.wallMilliseconds() - 40_000_000)
    #expect(try await a.sync().requests == 2)
    try await a.save(["title": "later"])
    let store = try await a.open()
    let newest = try #require(try store.projections.entry(RecordID("n"))?.pending?.newest)
    let stamp = try LoadedVersion(store.source.event(at: newest), at: newest)?.version.stamp.fields["title"]
    let off = try #require(stamp).time.milliseconds - fleet.serverClock.wallMilliseconds()
    #expect(abs(off) < 60_000, "\(off)")
  }

  @Test func `decision 5: a version includes what the same log wrote under an earlier writer ID`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("m")
    #expect(try await a.run() == nil)
    try await a.close()
    b.restore(from: a.disk.clone())
    try await b.write("x")
    try await b.settle()
    try await a.open(database: cloud)
    try await a.write("n", ["title": "one"])
    let first = try #require(try await a.open().projections.sync.writer)
    // The feed shows what the copy wrote, so this one takes another name, and the app edits while the creation is sent.
    cloud.refuse { script in
      script.batches = []
      script.beforeModify = { number in
        if number == 1 { try await a.write("n", ["title": "two"]) }
      }
    }
    #expect(try await a.run() == nil)
    #expect(try await a.open().projections.sync.writer != first)
    try await a.write("n", ["title": "three"])
    #expect(try await a.run() == nil)
    guard case .record(let record)? = try await cloud.web.lookup(["n"], in: .main)["n"],
      case .bytes(let bytes)? = record.fields[Names.stampField]
    else { return #expect(Bool(false), "there is no stamp") }
    #expect(try StampCodec.decode(bytes).seen.keys.contains(first))
  }

  @Test func `decision 3: an unsent merge brings no life back that has ended since`() async throws {
    let fleet = try Fleet()
    let (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
    try await c.save(["title": "offline"])
    a.restore(from: c.disk.clone())
    try await b.save(["title": "b's"])
    try await b.settle()
    let ended = try await stamp(b).births
    try await a.sync(.pullOnly)
    // What a has merged and not sent has two lives. One of them ends, and a new one takes its place; the copy of a's log merges
    // its own life with that.
    try await b.replaceLife(["body": "new"])
    try await b.settle()
    try await c.settle()
    try await c.open().write { tx in try tx.delete(id) }
    try await a.settle()
    #expect(try await stamp(b).births.isDisjoint(with: ended))
    try await agree(a, b, c)
    #expect(try await a.open().record(id) == nil, "all its lives were deleted")
  }

  @Test func `decision 12: what a copy sends when another tool has taken the stamp away is no server gone back`()
    async throws
  {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["body": "one"])
    b.restore(from: a.disk.clone())
    for text in ["two", "three", "four"] {
      try await a.settle()
      try await a.save(["body": .string(text)])
    }
    try await a.settle()
    var tool = CloudOperation(.forceUpdate, name: id.name, type: "Note")
    tool.fields = [Names.stampField: .bytes([7])]
    _ = try await a.web().modify([tool], in: .main, atomic: false)
    fleet.serverClock.advance(milliseconds: 1_000)
    // The copy writes under the same number, and at a place that the original's log passed long ago.
    try await b.save(["title": "copy's"])
    try await b.settle()
    try await a.settle()
    #expect(try await a.read() == "copy's")
    try await agree(a, b)
  }

  @Test func `decision 12: a page that leads nowhere ends no record`() async throws {
    let (fleet, a, b) = try await pair()
    try await b.close()
    let cloud = RepeatingCloud(b.web())
    try await b.open(database: cloud)
    // An answer of before shows the end of an earlier life, of which this store does not know.
    cloud.repeats.withLock { $0 = [.deleted(name: id.name)] }
    try await a.open().write { tx in try tx.save(Record(type: "Note", id: RecordID("other"))) }
    try await a.settle()
    try await b.settle()
    #expect(cloud.repeats.withLock { $0.isEmpty })
    #expect(try await b.read() == "first")
    try await agree(a, b)
    #expect(fleet.server.statistics.appliedOperations == 2)
  }

  @Test func `decision 7: a database token without its zones' pages misses nothing`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "x"])
    try await a.settle()
    // B fetches the list of changed zones and loses power before the zone's first page.
    let store = try await b.open()
    let count = Mutex(0)
    let disk = b.disk
    b.whileAsking {
      let number = count.withLock { count in
        count += 1
        return count
      }
      if number == 3 { disk.cutPower() }
    }
    await #expect(throws: (any Error).self) { try await store.sync() }
    b.whileAsking(nil)
    b.crash()
    try await b.settle()
    #expect(try await b.read() == "x")
  }

  @Test func `decision 8: a removed parent reaches every device`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open().write { tx in try tx.save(note(["title": "x"], parent: "folder")) }
    try await agree(a, b)
    #expect(try await b.open().record(id)?.parent == "folder")
    try await a.open().write { tx in
      var record = try #require(try tx.record(id))
      record.parent = nil
      try tx.save(record)
    }
    try await agree(a, b)
    #expect(try await b.open().record(id)?.parent == nil)
    #expect(try await b.read() == "x")
  }

  @Test func `28, 31: a batch that is too large is halved, and a record that is too large alone is held`() async throws
  {
    var limits = ServerLimits()
    limits.operationsMax = 3
    let fleet = try Fleet(limits: limits)
    let a = fleet.device("a")
    // The proxy before the server refuses a body above a size. One record is above it alone.
    let proxy = ProxyWithLimit(base: InProcessTransport(fleet.server), bytesMax: 4_000)
    try await a.open(through: proxy)
    try await a.open().write { tx in
      for index in 0..<10 { try tx.save(Record(type: "Note", id: RecordID("n-\(index)"), fields: ["title": "x"])) }
      let long = FieldValue.string(String(repeating: "x", count: 5_000))
      try tx.save(Record(type: "Note", id: RecordID("n-large"), fields: ["title": long]))
    }
    let report = try await a.sync()
    #expect(report.uploaded == 10 && report.held == 1)
    #expect(proxy.refused.value > 0)
    let status = try await a.open().status()
    #expect(status.held.map(\.id.name) == ["n-large"])
    #expect(status.unsettled == 1)
    // It is not sent again, and later records are sent.
    let refused = proxy.refused.value
    try await a.open().write { tx in try tx.save(Record(type: "Note", id: RecordID("n-after"), fields: [:])) }
    #expect(try await a.sync().uploaded == 1)
    #expect(proxy.refused.value == refused)
    // After an edit makes it smaller it is sent.
    try await a.open().write { tx in
      var record = try #require(try tx.record(RecordID("n-large")))
      record["title"] = "short"
      try tx.save(record)
    }
    #expect(try await a.sync().uploaded == 1)
    #expect(try await a.open().status().unsettled == 0)
    #expect(try await a.open().status().held.isEmpty)
  }

  @Test func `decision 20: a child that moves away is saved before its old parent is deleted`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    func child(of parent: String) -> Record {
      Record(
        type: "Item", id: RecordID("child"),
        fields: ["list": .reference(Reference(parent, action: .deleteSelf)), "title": "kept"])
    }
    try await a.open().write { tx in
      try tx.save(child(of: "old"))
      try tx.save(Record(type: "List", id: RecordID("old")))
    }
    try await agree(a, b)
    try await a.open().write { tx in
      try tx.delete(RecordID("old"))
      try tx.save(child(of: "new"))
      try tx.save(Record(type: "List", id: RecordID("new")))
    }
    try await agree(a, b)
    #expect(try await b.open().record(RecordID("child"))?["title"] == "kept")
    #expect(try await b.open().record(RecordID("old")) == nil)
  }

  @Test func `decision 16: a feed that never ends is an error and not a loop`() async throws {
    let (fleet, a, _) = try await pair()
    try await a.close()
    try await a.open(through: EndlessFeed(base: InProcessTransport(fleet.server)))
    do {
      _ = try await a.sync()
      Issue.record("the feed ended")
    } catch let error as StrandlineError { #expect(error.code == .serverRefused) }
    let broken = try await a.brokenInvariant()
    #expect(broken == nil)
    #expect(try await a.read() == "first")
  }

  @Test func `decision 25: another user's account is refused, and nothing is sent`() async throws {
    let (_, a, _) = try await pair()
    let other = try Fleet(seed: 9)
    try await a.close()
    let stranger = InProcessTransport(other.server)
    let store = try await a.open(through: AnotherUser(stranger))
    try await store.write { tx in try tx.save(note(["title": "mine"])) }
    do {
      _ = try await a.sync()
      Issue.record("the other account was taken")
    } catch let error as StrandlineError { #expect(error.code == .accountMismatch) }
    #expect(other.server.statistics.appliedOperations == 0)
  }
}

/// Answers each request for changes with an empty page, a new token, and more to come.
private struct EndlessFeed: Transport {
  let base: InProcessTransport
  let count = Counter()
  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    var response = try await base.send(request)
    guard String(decoding: response.body, as: UTF8.self).contains("moreComing"),
      String(decoding: request.body, as: UTF8.self).contains("zoneID")
    else { return response }
    let number = count.next()
    response.body = Array(
      #"{"zones":[{"zoneID":{"zoneName":"Main"},"syncToken":"t\#(number)","moreComing":true,"records":[]}]}"#.utf8)
    return response
  }
}

/// Refuses requests whose body is above a size, as a proxy before the server does: in HTML, without CloudKit's JSON.
private struct ProxyWithLimit: Transport {
  let base: InProcessTransport
  let bytesMax: Int
  let refused = Counter()
  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    guard request.body.count > bytesMax else { return try await base.send(request) }
    _ = refused.next()
    return HTTPResponse(status: 413, body: Array("<html>Request Entity Too Large</html>".utf8))
  }
}

private final class Counter: Sendable {
  private let count = Mutex(0)
  var value: Int { count.withLock { $0 } }
  func next() -> Int {
    count.withLock { count in
      count += 1
      return count
    }
  }
}

/// What the server has of a record under its stamp.
private func stamp(_ device: Device) async throws -> WireStamp {
  guard case .record(let record)? = try await device.web().lookup([id.name], in: .main)[id.name],
    case .bytes(let bytes)? = record.fields[Names.stampField]
  else { throw CloudError(.notFound, reason: "the test expects a record with a stamp") }
  return try StampCodec.decode(bytes)
}

/// A cloud that answers a request for a zone's changes with these, and with the token that it was asked with.
private final class RepeatingCloud: ZoneByZoneDatabase {
  let base: any CloudDatabase
  let repeats: Mutex<[ZoneChange]> = Mutex([])

  init(_ base: any CloudDatabase) { self.base = base }

  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    let changes = repeats.withLock { repeats in
      defer { repeats = [] }
      return repeats
    }
    guard let token, !changes.isEmpty else {
      return try await base.zoneChanges(in: zone, since: token, limit: limit)
    }
    return ZonePage(changes: changes, token: token, moreComing: true)
  }
}

/// Answers as if another user were signed in.
private struct AnotherUser: Transport {
  let base: InProcessTransport
  init(_ base: InProcessTransport) { self.base = base }
  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    var response = try await base.send(request)
    let text = String(decoding: response.body, as: UTF8.self)
    response.body = Array(text.replacing(CloudServer.defaultUser, with: "_another").utf8)
    return response
  }
}
