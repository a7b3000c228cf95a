// Goal: what only a transport, a later version or another database understands survives in a store: a transport's archive
// of a version, values of unknown types, the state of two databases, the reason of a zone's loss, the local form of an
// asset. Method: a client that cannot send a record without its archive, as a native one, on the fleet's server; clouds
// that answer from a script; and every way on which a base comes, stays or goes (acknowledgement, fetch, conflict,
// compaction, repair, full fetch).

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private let id = RecordID("n")

/// A client of the fleet's server that needs an archive to send a record again, as CloudKit's own framework does: a
/// record without it is one that the server has never shown, and conflicts with what is there.
private final class NativeLike: ZoneByZoneDatabase {
  let base: any CloudDatabase
  /// What was sent with an archive that is not the one of the operation's tag.
  let wrong: Mutex<[String]> = Mutex([])

  init(_ device: Device) { base = device.web() }

  private static func archive(_ name: String, _ tag: String?) -> [UInt8] {
    Array("archive of \(name) \(tag ?? "")".utf8)
  }

  private func archived(_ record: ServerRecord) -> ServerRecord {
    var record = record
    record.system.archive = Self.archive(record.name, record.system.changeTag)
    return record
  }

  private func archived(_ result: CloudResult) -> CloudResult {
    switch result {
    case .record(let record): .record(archived(record))
    case .deleted: .deleted
    case .failed(let error, let record): .failed(error, serverRecord: record.map(archived))
    }
  }

  func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] {
    let lacking = operations.filter { $0.changeTag != nil && $0.archive != Self.archive($0.name, $0.changeTag) }
    wrong.withLock { $0 += lacking.map { "\($0.kind) \($0.name)" } }
    let names = Set(lacking.map(\.name))
    var results = try await base.modify(operations.filter { !names.contains($0.name) }, in: zone, atomic: atomic)
    for name in names { results[name] = .failed(CloudError(.conflict), serverRecord: nil) }
    let conflicts = results.filter { _, result in
      if case .failed(let error, _) = result { error.code == .conflict } else { false }
    }
    for (name, known) in try await base.lookup(conflicts.keys.sorted().texts, in: zone) {
      if case .record(let record) = known { results[name] = .failed(CloudError(.conflict), serverRecord: record) }
    }
    return results.mapValues(archived)
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try await base.lookup(names, in: zone).mapValues(archived)
  }

  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    var page = try await base.zoneChanges(in: zone, since: token, limit: limit)
    page.changes = page.changes.map { change in
      if case .saved(let record) = change { .saved(archived(record)) } else { change }
    }
    return page
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try await base.databaseChanges(since: token, limit: limit)
  }
}

extension Device {
  fileprivate func save(_ fields: [String: FieldValue], _ id: RecordID = id) async throws {
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      for (field, value) in fields { record[field] = value }
      try tx.save(record)
    }
  }

  fileprivate func cycle() async throws {
    try await sync()
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }

  /// Runs a cycle that must end with an error.
  fileprivate func cycle(endingWith code: StrandlineError.Code) async throws {
    do {
      try await sync()
      Issue.record("the cycle succeeded")
    } catch let error as StrandlineError { #expect(error.code == code, "\(error)") }
    let broken = try await brokenInvariant()
    #expect(broken == nil)
  }

  /// Opens the store again, with a client that needs archives.
  fileprivate func openNatively() async throws -> NativeLike {
    try await close()
    let native = NativeLike(self)
    try await open(database: native)
    return native
  }

  fileprivate func archive() async throws -> String? {
    try await open().record(id)?.system.map { String(decoding: $0.archive, as: UTF8.self) }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A transport's archive` {
  @Test func `goes back with the version that it came with, whatever made that version the base`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let native = try await a.openNatively()
    try await a.save(["title": "one"])
    try await a.cycle()
    #expect(try await a.archive()?.hasPrefix("archive of n ") == true, "an acknowledgement brings it")
    try await a.save(["title": "two"])
    try await a.cycle()
    try await b.cycle()
    try await b.save(["body": "theirs"])
    try await b.cycle()
    #expect(try await b.archive() == "", "the web has none")
    try await a.save(["title": "three"])
    try await a.cycle()
    try await b.cycle()
    try await b.save(["body": "again"])
    try await b.cycle()
    // The feed brings it.
    try await a.cycle()
    #expect(try await a.open().record(id)?["body"] == "again")
    try await a.save(["title": "four"])
    try await a.cycle()
    // And a compaction and a relaunch keep it.
    #expect(try await a.compact().broken == nil)
    let later = try await a.openNatively()
    try await a.save(["title": "five"])
    try await a.cycle()
    try await a.open().write { try $0.delete(id) }
    try await a.cycle()
    #expect(native.wrong.withLock { $0 } == [] && later.wrong.withLock { $0 } == [])
    try await b.cycle()
    #expect(try await b.open().record(id) == nil)
    #expect(try await a.open().status().unsettled == 0)
  }

  @Test func `comes with the answer to a conflict, and goes back with the merge`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let native = try await a.openNatively()
    try await a.save(["title": "one"])
    try await a.cycle()
    try await b.cycle()
    try await b.save(["body": "theirs"])
    try await b.cycle()
    try await a.save(["title": "mine"])
    try await a.sync(.pushOnly)
    try await a.cycle()
    #expect(native.wrong.withLock { $0 } == [])
    try await b.cycle()
    #expect(try await a.dump() == b.dump())
    #expect(try await b.open().record(id)?.fields == ["title": "mine", "body": "theirs"])
  }

  @Test func `stays through a full fetch that brings nothing new`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    let native = try await a.openNatively()
    try await a.save(["title": "one"])
    try await a.save(["title": "other"], RecordID("m"))
    try await a.cycle()
    var faults = ServerFaults()
    faults.expireTokens = true
    fleet.server.setFaults(faults)
    let before = try await a.archive()
    try await a.save(["title": "two"], RecordID("m"))
    try await a.cycle()
    #expect(try await a.archive() == before)
    try await a.save(["title": "three"])
    try await a.cycle()
    #expect(native.wrong.withLock { $0 } == [])
    #expect(try await a.open().status().unsettled == 0)
  }

  /// The store was synced by the web before: its base has no archive, and every version that comes is known by its tag.
  @Test func `is taken from a known version if the base has none`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "one"])
    // The second cycle fetches what the first one sent: nothing of the record is left to come.
    for _ in 0..<2 { try await a.cycle() }
    let native = try await a.openNatively()
    try await a.save(["title": "two"])
    for _ in 0..<2 { try await a.cycle() }
    #expect(native.wrong.withLock { $0 } == ["update n"], "the first try alone")
    #expect(try await a.open().status().unsettled == 0)
    try await b.cycle()
    #expect(try await a.dump() == b.dump())
    // Without an edit it comes with the feed.
    let c = fleet.device("c")
    try await c.cycle()
    #expect(try await c.archive() == "")
    _ = try await c.openNatively()
    var faults = ServerFaults()
    faults.expireTokens = true
    fleet.server.setFaults(faults)
    try await b.save(["title": "other"], RecordID("m"))
    try await b.cycle()
    try await c.cycle()
    #expect(try await c.archive()?.hasPrefix("archive of n ") == true)
  }

  @Test func `comes again after a repair lost it`() async throws {
    let fleet = try Fleet()
    let a = fleet.device("a")
    _ = try await a.openNatively()
    try await a.save(["title": "one"])
    try await a.cycle()
    try await a.close()
    var hit = 0
    try LogReader.open(at: "/store", environment: a.environment.system).poll { found in
      guard case .settled = try found.decoded() else { return }
      hit += 1
      let path = "/store/" + SegmentName.name(found.segmentID)
      var bytes = try #require(a.disk.peek(path))
      bytes[Int(found.offset) + LogFormat.frameHeaderBytes + found.body.count / 2] ^= 0x20
      a.disk.poke(path, bytes)
    }
    #expect(hit == 1)
    try StoreRepair(at: "/store", environment: a.environment).apply(into: "/new")
    try a.disk.rename("/store", to: "/old")
    try a.disk.rename("/new", to: "/store")
    let native = try await a.openNatively()
    try await a.cycle()
    #expect(try await a.archive()?.hasPrefix("archive of n ") == true)
    try await a.save(["title": "two"])
    try await a.cycle()
    #expect(native.wrong.withLock { $0 } == [])
    #expect(try await a.open().status().unsettled == 0)
  }
}

/// A database that answers from a script, and keeps what it was asked.
private final class ScriptedDatabase: CloudDatabase {
  struct Script: Sendable {
    var user = "_me"
    var zones: [DatabasePage.Zone] = []
    /// Each is shown once.
    var pages: [ZoneID: [ZoneChange]] = [:]
    /// Thrown once, by the next request for changed zones.
    var refusal: CloudError?
    var asked: [String] = []
    var operations: [CloudOperation] = []
    var count = 0
  }
  let address: CloudAddress
  let script: Mutex<Script>

  init(_ scope: DatabaseScope, _ script: Script = Script()) {
    address = CloudAddress(container: "iCloud.test", scope: scope)
    self.script = Mutex(script)
  }

  var asked: [String] {
    script.withLock { script in
      defer { script.asked = [] }
      return script.asked
    }
  }

  private func next(_ script: inout Script, _ asked: String) -> ChangeToken {
    script.asked.append(asked)
    script.count += 1
    return ChangeToken(rawValue: "\(address.scope)-\(script.count)")
  }

  func user() async throws -> String { script.withLock { $0.user } }
  func zones() async throws -> [ZoneID] { [] }
  func createZone(_ zone: ZoneID) async throws { script.withLock { $0.asked.append("create \(zone)") } }
  func deleteZone(_ zone: ZoneID) async throws { script.withLock { $0.asked.append("delete \(zone)") } }

  func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] {
    script.withLock { script in
      var results: [CloudName: CloudResult] = [:]
      for operation in operations {
        let tag = next(&script, "\(operation.kind) \(zone)/\(operation.name)").rawValue
        script.operations.append(operation)
        results[operation.name] = .record(
          ServerRecord(name: operation.name, type: operation.type, system: SystemFields(changeTag: tag)))
      }
      return results
    }
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    script.withLock { $0.asked += names.map { "lookup \(zone)/\($0)" } }
    return Dictionary(
      uniqueKeysWithValues: names.map { (CloudName($0), .failed(CloudError(.notFound), serverRecord: nil)) })
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    script.withLock { script in
      var answers: [ZoneID: Result<ZonePage, CloudError>] = [:]
      for query in queries {
        let next = next(&script, "\(query.zone) since \(query.token?.rawValue ?? "the beginning")")
        answers[query.zone] = .success(
          ZonePage(changes: script.pages.removeValue(forKey: query.zone) ?? [], token: next, moreComing: false))
      }
      return answers
    }
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try script.withLock { script in
      let next = next(&script, "zones since \(token?.rawValue ?? "the beginning")")
      if let refusal = script.refusal {
        script.refusal = nil
        throw refusal
      }
      defer { script.zones = [] }
      return DatabasePage(zones: script.zones, token: next, moreComing: false)
    }
  }
}

private let ours = ZoneID("Ours", owner: "_other", scope: .shared)

private func version(_ name: String, tag: String, _ fields: [String: FieldValue]) -> ServerRecord {
  ServerRecord(
    name: name, type: "Note", fields: fields,
    system: SystemFields(
      changeTag: tag, created: ServerTimestamp(milliseconds: 1_000),
      modified: ServerTimestamp(milliseconds: 1_767_225_600_000)))
}

@Suite(.timeLimit(.minutes(30))) struct `Two databases in one store` {
  private let device: Device
  private let mine = ScriptedDatabase(.private)
  private let shared = ScriptedDatabase(.shared)

  init() throws { device = try Fleet().device("a") }

  private func cycle(_ database: ScriptedDatabase) async throws {
    try await device.close()
    try await device.open(database: database)
    try await device.cycle()
  }

  @Test func `204: have tokens, zones and accounts of their own`() async throws {
    try await device.open(database: mine)
    try await device.save(["title": "mine"])
    try await device.cycle()
    #expect(mine.asked == ["zones since the beginning", "create Main", "create Main/n"])
    // What is owed to one database, what it has to show and what is to be asked of it do not concern the other.
    try await device.save(["title": "edited"])
    try await device.open().commit { core in
      try core.append(.zoneChanged(ZoneChanged(zone: .main, change: .dirty)))
      try core.append(
        .blocked(
          Blocked(id: RecordID("doubtful"), subject: .version, births: [], consequence: .lookup, words: "a test's")))
    }
    shared.script.withLock {
      $0.zones = [.init(id: ours)]
      $0.pages = [ours: [.saved(version("theirs", tag: "s", ["title": "theirs"]))]]
    }
    try await cycle(shared)
    #expect(shared.asked == ["zones since the beginning", "shared/_other/Ours since the beginning"])
    #expect(try await device.open().record(RecordID("theirs", zone: ours))?["title"] == "theirs")
    #expect(try await device.open().status().unsettled == 1)
    #expect(try await device.compact().broken == nil)
    mine.script.withLock { script in
      let system = SystemFields(changeTag: "private-2")
      script.pages = [.main: [.saved(ServerRecord(name: "n", type: "Note", fields: ["title": "mine"], system: system))]]
    }
    try await cycle(mine)
    #expect(
      mine.asked == [
        "zones since private-1", "Main since the beginning", "lookup Main/doubtful", "update Main/n",
      ])
    shared.script.withLock { $0.zones = [.init(id: ours)] }
    try await cycle(shared)
    #expect(shared.asked == ["zones since shared-1", "shared/_other/Ours since shared-2"])
    let status = try await device.open().status()
    #expect(status.account?.scopes == [.private, .shared] && status.account?.container == "iCloud.test")
    #expect(status.unsettled == 0 && !status.zones.contains { $0.isLost })
  }

  @Test func `107: an expired token of one fetches the zones of that one again`() async throws {
    mine.script.withLock { $0.zones = [.init(id: .main)] }
    shared.script.withLock { $0.zones = [.init(id: ours)] }
    try await cycle(mine)
    try await cycle(shared)
    _ = (mine.asked, shared.asked)
    shared.script.withLock { $0.refusal = CloudError(.changeTokenExpired) }
    try await cycle(shared)
    #expect(
      shared.asked == ["zones since shared-1", "zones since the beginning", "shared/_other/Ours since shared-2"])
    try await cycle(mine)
    #expect(mine.asked == ["zones since private-1"])
  }

  @Test func `204: a wait of one does not hold the other`() async throws {
    mine.script.withLock { $0.refusal = CloudError(.throttled, retryAfter: 3600) }
    await #expect(throws: StrandlineError.self) { try await cycle(mine) }
    try await cycle(shared)
    #expect(shared.asked == ["zones since the beginning"])
    #expect(try await device.open().status().waitMilliseconds ?? 0 > 3_000_000)
    _ = mine.asked
    await #expect(throws: StrandlineError.self) { try await cycle(mine) }
    #expect(mine.asked == [])
  }

  @Test func `of another user are refused`() async throws {
    try await cycle(mine)
    shared.script.withLock { $0.user = "_someone" }
    do {
      try await cycle(shared)
      Issue.record("the other account was taken")
    } catch let error as StrandlineError { #expect(error.code == .accountMismatch) }
    #expect(shared.asked == [])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The loss of a zone` {
  @Test(arguments: ZoneLoss.allCases) func `133, 134: keeps the reason that the transport names`(loss: ZoneLoss)
    async throws
  {
    let device = try Fleet().device("a")
    let cloud = ScriptedDatabase(.private)
    try await device.open(database: cloud)
    try await device.save(["title": "mine"])
    try await device.cycle()
    cloud.script.withLock { $0.zones = [.init(id: .main, loss: loss)] }
    try await device.save(["title": "edited"])
    try await device.cycle(endingWith: .zoneLost)
    #expect(try await device.compact().broken == nil)
    try await device.close()
    let store = try await device.open(database: cloud)
    let zone = try #require(try store.status().zones.first)
    // That the app ended a zone is the store's own to say.
    #expect(
      zone.lostReason == ([.erasing, .erased].contains(loss) ? .deleted : loss) && zone.isLost
        && !zone.lostWords.isEmpty)
    // Frozen: nothing is sent until the app decides.
    #expect(try store.status().unsettled == 1 && store.record(id)?["title"] == "edited")
    try await store.engine.resumeZone(.main)
    #expect(try store.status().zones.first?.lostReason == nil)
  }

  @Test func `without a reason from the server is one that was not found`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.save(["title": "mine"])
    try await a.cycle()
    try await b.cycle()
    let other = try Fleet(seed: 3)
    try await a.close()
    try await a.open(through: InProcessTransport(other.server))
    try await a.save(["title": "edited"])
    try await a.cycle(endingWith: .zoneLost)
    let zone = try #require(try await a.open().status().zones.first)
    #expect(zone.lostReason == .notFound && zone.lostWords.contains("ZONE_NOT_FOUND"))
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A value of an unknown type` {
  private static let json =
    #"{"dimensions":3,"far":{"a":[true,false,null]},"quote\"d":"ü/\u0001","values":[0.5,-1,1e+21]}"#
  private static let field = #"{"type":"VECTOR","value":\#(json)}"#
  private static let secret = #"{"isEncrypted":true,"type":"VECTOR_LIST","value":[]}"#

  /// The record as the server of a later version shows it.
  private static func record(_ title: String, tag: String) throws -> ServerRecord {
    let text = """
      {"recordName":"n","recordType":"Note","recordChangeTag":"\(tag)","parent":{"recordName":"p"},
       "created":{"timestamp":1000},"modified":{"timestamp":1767225600000},
       "fields":{"title":{"value":"\(title)"},"future":\(field),"secret":\(secret)}}
      """
    let record = try WireJSON.decode(WireRecord.self, Array(text.utf8))
    #expect(record.defect == nil)
    return record.serverRecord(name: "n", in: .main)
  }

  private let device: Device
  private let cloud = ScriptedDatabase(.private)

  init() throws { device = try Fleet().device("a") }

  private func fetch(_ title: String, tag: String) async throws {
    let record = try Self.record(title, tag: tag)
    cloud.script.withLock {
      $0.zones = [.init(id: .main)]
      $0.pages = [.main: [.saved(record)]]
    }
    try await device.cycle()
  }

  /// The last operation as the client sends it.
  private func sent() async throws -> String {
    let operation = try #require(cloud.script.withLock { $0.operations.last })
    let transport = KeepingTransport()
    _ = try? await device.web(through: transport).modify([operation], in: .main, atomic: false)
    return String(decoding: transport.body.withLock { $0 }, as: UTF8.self)
  }

  @Test func `goes from the wire through the store to the wire`() async throws {
    try await device.open(database: cloud)
    try await fetch("one", tag: "1")
    let value = try #require(try await device.open().record(id)?["future"])
    #expect(value == .opaque(OpaqueValue(type: "VECTOR", json: Array(Self.json.utf8))))
    #expect(try await device.compact().broken == nil)
    try await device.close()
    let store = try await device.open(database: cloud)
    // Without a parent the whole record is sent.
    try await store.write { tx in
      var record = try #require(try tx.record(id))
      record.parent = nil
      record["title"] = "two"
      try tx.save(record)
    }
    try await device.cycle()
    #expect(try store.status().unsettled == 0)
    let sent = try await sent()
    #expect(sent.contains("\"operationType\":\"replace\""))
    #expect(sent.contains("\"future\":\(Self.field)"), "\(sent)")
    #expect(sent.contains("\"secret\":\(Self.secret)"), "\(sent)")
    #expect(try store.record(id)?["future"] == value)
  }

  @Test func `survives a merge`() async throws {
    try await device.open(database: cloud)
    try await fetch("one", tag: "1")
    try await device.save(["body": "mine"])
    try await fetch("theirs", tag: "2")
    let record = try #require(try await device.open().record(id))
    #expect(record["title"] == "theirs" && record["body"] == "mine")
    #expect(record["future"] == .opaque(OpaqueValue(type: "VECTOR", json: Array(Self.json.utf8))))
    #expect(try await device.open().status().unsettled == 0)
  }

  private struct Note: SyncRecord {
    var id: String
    var title: String
    var future: String?
  }

  @Test func `is a typed error to a typed read, and no app makes one`() async throws {
    let store = try await device.open(database: cloud)
    try await fetch("one", tag: "1")
    do {
      _ = try store.fetch(Note.self, id: "n")
      Issue.record("it was read")
    } catch let error as StrandlineError {
      #expect(error.code == .typeMismatch)
      #expect(
        error.message.contains(
          "field 'future': it holds a value of the type 'VECTOR', which this version does not know"))
    }
    let value = try #require(try store.record(id)?["future"])
    for fields in [["other": value], ["title": value], ["title": .encrypted(value)]] {
      await #expect { try await device.save(fields) } throws: {
        ($0 as? StrandlineError)?.code == .invalidValue
      }
    }
    await #expect { try await device.save(["future": value], RecordID("m")) } throws: {
      ($0 as? StrandlineError)?.code == .invalidValue
    }
    // What is there may stay, and go.
    try await device.save(["future": value, "title": "two"])
    #expect(try store.record(id)?["future"] == value)
    try await store.write { tx in
      var record = try #require(try tx.record(id))
      record["future"] = nil
      try tx.save(record)
    }
    #expect(try store.record(id)?["future"] == nil)
  }

  @Test func `has an order and an equality by its bytes`() {
    func opaque(_ type: String, _ json: String) -> OpaqueValue { OpaqueValue(type: type, json: Array(json.utf8)) }
    let ordered = [opaque("A", "2"), opaque("B", "1"), opaque("B", "10"), opaque("B", "2"), opaque("é", "0")]
    #expect(ordered.reversed().sorted() == ordered)
    #expect(opaque("é", "1") != opaque("e\u{301}", "1") && opaque("A", "1") != opaque("A", "1.0"))
  }
}

/// Answers as a server that shows one record which cannot be read.
private final class UnreadableTransport: Transport {
  static let record = Array(#"{"recordName":"n", "fields":{"f":{"value":"\ud800"}},"recordType":"Note"}"#.utf8)

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    var body = Array(#"{"users":[{"userRecordName":"_me"}],"zones":[],"syncToken":"d","records":["#.utf8)
    if request.path.hasSuffix("records/lookup") { body += Self.record }
    body += Array("]}".utf8)
    if request.path.hasSuffix("changes/database") {
      body = Array(#"{"zones":[{"zoneID":{"zoneName":"Main"}}],"syncToken":"d"}"#.utf8)
    } else if request.path.hasSuffix("changes/zone") {
      body = Array(#"{"zones":[{"zoneID":{"zoneName":"Main"},"syncToken":"next","records":["#.utf8)
      body += Self.record + Array("]}]}".utf8)
    }
    return HTTPResponse(status: 200, body: body)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A record that cannot be read` {
  @Test func `104: is held with its bytes, and the token moves`() async throws {
    let device = try Fleet().device("a")
    let store = try await device.open(database: device.web(through: UnreadableTransport()))
    for _ in 0..<2 {
      try await device.cycle()
      let held = try #require(store.projections.sync.unread[id])
      #expect(held.raw == UnreadableTransport.record)
      #expect(held.words.contains("fields.f: an escape of half a surrogate pair"))
      #expect(store.projections.sync.zones[.main]?.token?.rawValue == "next")
    }
    #expect(try store.status().records == 0)
  }
}

/// Keeps the body of the last request, and answers nothing.
private final class KeepingTransport: Transport {
  let body: Mutex<[UInt8]> = Mutex([])
  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    body.withLock { $0 = request.body }
    return HTTPResponse(status: 503, headers: [:], body: [])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The local form of an asset` {
  private let hash = ContentHash([UInt8](repeating: 7, count: 32))

  private func decoded(_ value: FieldValue) throws -> FieldValue? {
    var writer = ByteWriter()
    FieldCodec.encode(value, into: &writer)
    var reader = ByteReader(writer.bytes)
    let value = try FieldCodec.decode(from: &reader)
    #expect(reader.isAtEnd)
    return value
  }

  @Test func `has one state, which its bytes keep`() throws {
    let hash = try #require(hash)
    let file = Asset.ServerFile(fileChecksum: "c", wrappingKey: "w")
    var uploaded = file
    uploaded.receipt = "r"
    for (asset, state) in [
      (Asset(contentHash: hash, size: 3), Asset.State.local), (Asset(server: uploaded, size: 3), .uploaded),
      (Asset(server: uploaded, size: 3, contentHash: hash), .uploaded), (Asset(server: file, size: 3), .downloadable),
      (Asset(server: Asset.ServerFile(), size: 3, contentHash: hash), .downloadable),
    ] {
      #expect(asset.state == state)
      #expect(try decoded(.asset(asset)) == .asset(asset))
      #expect(try decoded(.encrypted(.list(.assets, [.asset(asset)]))) == .encrypted(.list(.assets, [.asset(asset)])))
    }
    #expect(ContentHash([1, 2, 3]) == nil)
  }

  @Test func `is no value to save where its content is not`() async throws {
    let device = try Fleet().device("a")
    let local = FieldValue.asset(Asset(contentHash: try #require(hash), size: 3))
    for value in [local, .list(.assets, [local]), .encrypted(local)] {
      await #expect { try await device.save(["file": value]) } throws: {
        // An encrypted one is never taken; nor is one of this device by a store that was opened to sync.
        [.noSuchContent, .invalidValue].contains(($0 as? StrandlineError)?.code)
      }
    }
  }

  /// A server names another place of the content in each answer, and no receipt. A device that judged the field's stamp by
  /// them took every version for one that another tool had written.
  @Test func `and what the server says anew in each answer do not touch the field's stamp`() throws {
    var version = Version(type: "Note")
    let mine = Asset(
      server: Asset.ServerFile(fileChecksum: "c", wrappingKey: "w", receipt: "r"), size: 3, contentHash: hash)
    let stamp = FieldStamp(time: HybridTime(milliseconds: 5), writer: 9)
    for name in ["file", "files", "changed"] { version.stamp.fields[name] = stamp }
    version.fields = ["file": .asset(mine), "files": .list(.assets, [.asset(mine)]), "changed": .asset(mine)]
    let theirs = FieldValue.asset(Asset(fileChecksum: "c", size: 3, downloadURL: "https://x"))
    let arrival = Arrival(
      ServerRecord(
        name: "n", type: "Note",
        fields: [
          "file": theirs, "files": .list(.assets, [theirs]), "changed": .asset(Asset(fileChecksum: "d", size: 3)),
          Names.stampField: .bytes(StampCodec.encode(version)),
        ], system: SystemFields(modified: ServerTimestamp(milliseconds: 7))), ancestor: nil, knownBirths: nil)
    #expect(arrival.version.stamp.fields["file"] == stamp && arrival.version.stamp.fields["files"] == stamp)
    #expect(arrival.version.stamp.fields["changed"]?.writer == 0)
  }
}
