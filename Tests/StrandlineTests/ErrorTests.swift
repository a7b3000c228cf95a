// Goal: what is public throws public errors alone, with the place on disk, the events and the caller's line. Method: a
// table of every public call that throws; each call is made on a store that was closed and on one whose bytes were
// damaged under it. A public call that is missing in the table fails the test.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineSyncProofs
import StrandlineTesting
import Testing

private let id = RecordID("n")
private let here = "StrandlineTests/ErrorTests.swift:"

private struct Memo: SyncRecord {
  var id: String
  var title: String
}

/// A store that syncs, and a write that is uploaded.
private struct Scene: Sendable {
  let fleet: Fleet
  let device: Device
  let store: RecordStore
  let engine: SyncEngine
  let receipt: Receipt
  let found: LogEvent

  init() async throws {
    fleet = try Fleet()
    device = fleet.device("a")
    store = try await device.open()
    receipt = try await store.write { tx in try tx.save(Memo(id: "n", title: "first")) }
    // The second cycle fetches what the first one sent, so that a third has nothing to do.
    try await device.sync()
    try await device.sync()
    engine = try store.engine
    let lsn = try #require(receipt.lsns?.upperBound)
    guard case .writer(let log) = store.source else { throw CancellationError() }
    found = try log.read(lsn.rawValue)
  }

  /// The position of the event before the note's.
  var beforeReceipt: LogPosition {
    get throws {
      let lsn = try #require(receipt.lsns?.upperBound.rawValue)
      return LogPosition(tenure: receipt.position.tenure, lsn: LSN(rawValue: lsn - 1))
    }
  }

  var lsns: ClosedRange<LSN>? { receipt.lsns.map { $0.upperBound...$0.upperBound } }
  var file: String { "/store/" + SegmentName.name(found.segmentID) }

  /// Flips a bit in the body of the note's event, under the open store.
  func damage() throws {
    var bytes = try #require(device.disk.peek(file))
    bytes[Int(found.offset) + LogFormat.frameHeaderBytes + found.body.count / 2] ^= 0x20
    device.disk.poke(file, bytes)
  }
}

/// A projection that ends with its first batch.
private struct Following: Projection {
  let name = "following"
  let position: LogPosition

  init(_ position: LogPosition) { self.position = position }

  func appliedPosition() -> LogPosition? { position }
  func apply(_ batch: ProjectionBatch) throws { throw CancellationError() }
}

/// What a call throws.
private enum Outcome: Equatable {
  case nothing
  case strandline(StrandlineError.Code)
  case cloud
  case cancelled
  case other(String)

  init(_ error: (any Error)?) {
    switch error {
    case nil: self = .nothing
    case let error as StrandlineError: self = .strandline(error.code)
    case is CloudError: self = .cloud
    case is CancellationError: self = .cancelled
    case let error?: self = .other("\(type(of: error)): \(error)")
    }
  }
}

private func error(of body: () async throws -> Void) async -> (any Error)? {
  do {
    try await body()
    return nil
  } catch { return error }
}

/// Runs `body` in a task that is cancelled before.
private func cancelled(_ body: @escaping @Sendable () async throws -> Void) async throws {
  let (never, continuation) = AsyncStream<Never>.makeStream()
  let task = Task {
    // Ends with the cancellation.
    for await _ in never {}
    try await body()
  }
  task.cancel()
  try await task.value
  continuation.finish()
}

/// Throws what a call names beside what it returns.
private func throwFirst(_ unreadable: [UnreadableRecord]) throws {
  if let record = unreadable.first { throw record.error }
}

/// A public call that throws, and what it throws when it is made after `close`, and on damage.
private struct PublicCall: Sendable {
  let name: String
  let closed: StrandlineError.Code?
  let damaged: StrandlineError.Code?
  let make: @Sendable (Scene) async throws -> Void

  init(
    _ name: String, closed: StrandlineError.Code? = .closed, damaged: StrandlineError.Code? = .damaged,
    _ make: @escaping @Sendable (Scene) async throws -> Void
  ) {
    self.name = name
    self.closed = closed
    self.damaged = damaged
    self.make = make
  }

  static let all: [PublicCall] = [
    // An open of a store that was closed succeeds; for the damage the store is closed first.
    PublicCall("RecordStore.openReadOnly(at:environment:)", closed: nil) { scene in
      _ = try await RecordStore.openReadOnly(at: "/store", environment: scene.device.environment)
    },
    PublicCall("RecordStore.open(at:types:syncing:durability:options:environment:)", closed: nil, damaged: nil) {
      scene in
      try await scene.device.close()
      try await RecordStore.open(at: "/store", environment: scene.device.environment).close()
      try await RecordStore.open(at: URL(filePath: "/store"), environment: scene.device.environment).close()
    },
    PublicCall("RecordStore.close()", closed: nil, damaged: nil) { try await $0.store.close() },
    PublicCall("RecordStore.suspend()", damaged: nil) { try await $0.store.suspend() },
    PublicCall("RecordStore.resume()", damaged: nil) { try await $0.store.resume() },
    PublicCall("RecordStore.backup(to:)") { try await $0.store.backup(to: "/copy-\(UUID())") },
    PublicCall("RecordStore.stage(contentsOf:)", damaged: nil) {
      _ = try await $0.store.stage(contentsOf: "/store/MANIFEST")
    },
    PublicCall("RecordStore.stage(_:)", damaged: nil) { _ = try await $0.store.stage([1, 2, 3]) },
    PublicCall("RecordStore.stage<>(pieces:)", damaged: nil) { scene in
      let (pieces, continuation) = AsyncStream<[UInt8]>.makeStream()
      continuation.finish()
      _ = try await scene.store.stage(pieces: pieces)
    },
    PublicCall("RecordStore.contents(of:in:)", damaged: nil) { scene in
      let staged = try? await scene.store.stage([1])
      _ = try await scene.store.contents(of: staged?.asset ?? Asset(fileChecksum: "c", size: 1), in: id)
    },
    PublicCall("RecordStore.backup(at:to:environment:)", closed: nil) {
      try await RecordStore.backup(at: "/store", to: "/copy-\(UUID())", environment: $0.device.environment)
    },
    PublicCall("RecordStore.write(_:)", damaged: nil) { try await $0.store.write { _ in } },
    PublicCall("RecordStore.write<>(_:)") { _ = try await $0.store.write { tx in try tx.record(id) }.value },
    PublicCall("RecordStore.compact(keeping:)") { try await $0.store.compact() },
    PublicCall("RecordStore.record(_:)") { _ = try $0.store.record(id) },
    PublicCall("RecordStore.records(_:)") { _ = try $0.store.records([id]) },
    PublicCall("RecordStore.forEachRecord(ofType:in:_:)") { try $0.store.forEachRecord { _ in } },
    PublicCall("RecordStore.records(ofType:in:)") { _ = try $0.store.records(ofType: "Memo") },
    PublicCall("RecordStore.fetch<>(_:id:)") { _ = try $0.store.fetch(Memo.self, id: "n") },
    PublicCall("RecordStore.fetch<>(_:ids:)") { try throwFirst($0.store.fetch(Memo.self, ids: ["n"]).unreadable) },
    PublicCall("RecordStore.view()", damaged: nil) { _ = try $0.store.view() },
    PublicCall("RecordStore.view(asOf:)") { _ = try $0.store.view(asOf: try $0.beforeReceipt) },
    PublicCall("RecordStore.read<>(_:)", damaged: nil) { _ = try $0.store.read { try $0.count() } },
    PublicCall("RecordStore.query(_:after:)") { try throwFirst($0.store.query(RecordQuery("Memo")).unreadable) },
    PublicCall("RecordStore.fetch<>(_:where:sortedBy:limit:after:)") {
      try throwFirst($0.store.fetch(Memo.self, where: #Predicate { $0.title == "first" }).unreadable)
    },
    PublicCall("RecordStore.first<>(_:where:sortedBy:)") { _ = try $0.store.first(Memo.self) },
    PublicCall("RecordStore.exists<>(_:where:)") {
      _ = try $0.store.exists(Memo.self, where: #Predicate { $0.title == "first" })
    },
    PublicCall("RecordStore.count<>(_:where:)") {
      _ = try $0.store.count(Memo.self, where: #Predicate { $0.title == "first" })
    },
    PublicCall("RecordStore.explain<>(_:where:sortedBy:limit:)", damaged: nil) { _ = try $0.store.explain(Memo.self) },
    PublicCall("RecordStore.explain(_:)", damaged: nil) { _ = try $0.store.explain(RecordQuery("Memo")) },
    PublicCall("RecordStore.indexes()", damaged: nil) { _ = try $0.store.indexes() },
    PublicCall("StoreView.explain(_:)", damaged: nil) { _ = try $0.store.view().explain(RecordQuery("Memo")) },
    PublicCall("RecordStore.refresh()", damaged: nil) { _ = try $0.store.refresh() },
    PublicCall("RecordStore.inboxRefusals()", damaged: nil) { _ = try $0.store.inboxRefusals() },
    // It is another process's, and opens the store itself.
    PublicCall("StoreInbox.write<>(_:)", closed: nil) { scene in
      try RecordStore.inbox(at: "/store", environment: scene.device.environment).write { tx in _ = try tx.record(id) }
    },
    PublicCall("StoreView.record(_:)") { _ = try $0.store.view().record(id) },
    PublicCall("StoreView.records(_:)") { _ = try $0.store.view().records([id]) },
    PublicCall("StoreView.count(ofType:in:)", damaged: nil) { _ = try $0.store.view().count(ofType: "Memo") },
    PublicCall("StoreView.count(_:)") {
      _ = try $0.store.view().count(RecordQuery("Memo", where: [RecordFilter("title", .equals, "first")]))
    },
    PublicCall("StoreView.forEachRecord(ofType:in:_:)") { try $0.store.view().forEachRecord { _ in } },
    PublicCall("StoreView.query(_:after:)") { try throwFirst($0.store.view().query(RecordQuery("Memo")).unreadable) },
    PublicCall("StoreView.fetch<>(_:where:sortedBy:limit:after:)") {
      try throwFirst($0.store.view().fetch(Memo.self).unreadable)
    },
    PublicCall("StoreView.first<>(_:where:sortedBy:)") { _ = try $0.store.view().first(Memo.self) },
    PublicCall("StoreView.exists<>(_:where:)") {
      _ = try $0.store.view().exists(Memo.self, where: #Predicate { $0.title == "first" })
    },
    PublicCall("StoreView.count<>(_:where:)") {
      _ = try $0.store.view().count(Memo.self, where: #Predicate { $0.title == "first" })
    },
    PublicCall("StoreView.explain<>(_:where:sortedBy:limit:)", damaged: nil) {
      _ = try $0.store.view().explain(Memo.self)
    },
    // After a close it ends without an error.
    PublicCall("StoreObservation.next()", closed: nil) {
      var values = $0.store.observe(id).makeAsyncIterator()
      _ = try await values.next()
    },
    PublicCall("RecordStore.history(of:after:limit:)") { _ = try $0.store.history(of: id) },
    PublicCall("RecordStore.restore(_:)") { _ = try await $0.store.restore(id) },
    PublicCall("RecordStore.undo(_:)") { _ = try await $0.store.undo($0.receipt) },
    PublicCall("RecordStore.conflicts(of:after:limit:)") { _ = try $0.store.conflicts(of: id) },
    PublicCall("RecordStore.changes(since:limit:)") { _ = try $0.store.changes(since: try $0.beforeReceipt) },
    PublicCall("RecordChanges.next()", closed: nil) {
      var changes = $0.store.observeChanges(since: try $0.beforeReceipt).makeAsyncIterator()
      _ = try await changes.next()
    },
    PublicCall("RecordStore.project(into:rebuilding:)") { scene in
      try await scene.store.project(into: Following(try scene.beforeReceipt))
    },
    PublicCall("RecordStore.bringUpToDate(_:rebuilding:)") { scene in
      try await scene.store.bringUpToDate(Following(try scene.beforeReceipt))
    },
    PublicCall("StoreView.fetch<>(_:id:)") { _ = try $0.store.view().fetch(Memo.self, id: "n") },
    PublicCall("StoreView.fetch<>(_:ids:)") { try throwFirst($0.store.view().fetch(Memo.self, ids: ["n"]).unreadable) },
    PublicCall("RecordStore.heldRecords()", damaged: nil) { _ = try $0.store.heldRecords() },
    PublicCall("RecordStore.diagnostics()", damaged: nil) { _ = try $0.store.diagnostics() },
    PublicCall("RecordStore.sync()", damaged: nil) { try await $0.store.sync() },
    PublicCall("RecordStore.sync(deadline:)", damaged: nil) { try await $0.store.sync(deadline: .seconds(60)) },
    PublicCall("RecordStore.receipt(at:)") { _ = try $0.store.receipt(at: $0.receipt.position) },
    PublicCall("RecordStore.pendingChanges(after:limit:)", damaged: nil) { _ = try $0.store.pendingChanges() },
    PublicCall("Receipt.uploaded()") { try await $0.receipt.uploaded() },
    PublicCall("Receipt.uploaded(within:)") { try await $0.receipt.uploaded(within: .seconds(5)) },
    PublicCall("Receipt.pendingChanges()") { _ = try $0.receipt.pendingChanges() },
    PublicCall("Receipt.outcome()") { _ = try await $0.receipt.outcome() },
    PublicCall("RecordStore.releaseHolds(of:)", damaged: nil) { try await $0.store.releaseHolds(of: []) },
    PublicCall("RecordStore.discardChanges(of:)", damaged: nil) { try await $0.store.discardChanges(of: []) },
    PublicCall("SyncEngine.fetched()", damaged: nil) { try await $0.engine.fetched() },
    PublicCall("SyncEngine.resumeZone(_:)", damaged: nil) { try await $0.engine.resumeZone(.main) },
    PublicCall("SyncEngine.verify(_:)", damaged: nil) { try await $0.engine.verify(.main) },
    PublicCall("SyncEngine.eraseZone(_:discardingUnsent:)", damaged: nil) { try await $0.engine.eraseZone(.main) },
    PublicCall("SyncEngine.resync(_:from:)", damaged: nil) { try await $0.engine.resync(.main, from: .server) },
    PublicCall("WriteTransaction.record(_:)") { try await $0.store.write { tx in _ = try tx.record(id) } },
    PublicCall("WriteTransaction.save(_:)") {
      try await $0.store.write { tx in try tx.save(Record(type: "Memo", id: id, fields: ["title": "second"])) }
    },
    PublicCall("WriteTransaction.create(_:)") {
      try await $0.store.write { tx in try tx.create(Record(type: "Memo", id: id, fields: ["title": "second"])) }
    },
    PublicCall("WriteTransaction.saveDefault(_:)") {
      try await $0.store.write { tx in try tx.saveDefault(Record(type: "Memo", id: id)) }
    },
    PublicCall("WriteTransaction.saveDefault<>(_:)") {
      try await $0.store.write { tx in try tx.saveDefault(Memo(id: "n", title: "n")) }
    },
    PublicCall("WriteTransaction.delete(_:)") { try await $0.store.write { tx in try tx.delete(id) } },
    PublicCall("WriteTransaction.save<>(_:)") {
      try await $0.store.write { tx in try tx.save(Memo(id: "n", title: "second")) }
    },
    PublicCall("WriteTransaction.save<>(_:from:)") {
      try await $0.store.write { tx in try tx.save(Memo(id: "n", title: "second"), from: Memo(id: "n", title: "first"))
      }
    },
    PublicCall("WriteTransaction.update<>(_:id:_:)") {
      try await $0.store.write { tx in try tx.update(Memo.self, id: "n") { $0.title = "second" } }
    },
    PublicCall("RecordStore.update<>(_:id:_:)") {
      try await $0.store.update(Memo.self, id: "n") { $0.title = "second" }
    },
    PublicCall("RecordStore.update<>(_:where:_:)") {
      try await $0.store.update(Memo.self) { $0.title = "second" }
    },
    PublicCall("RecordStore.migrateAll<>(_:progress:)") {
      try throwFirst(try await $0.store.migrateAll(Memo.self).failed)
    },
    PublicCall("WriteTransaction.create<>(_:)") {
      try await $0.store.write { tx in try tx.create(Memo(id: "n", title: "second")) }
    },
    PublicCall("WriteTransaction.delete<>(_:)") {
      try await $0.store.write { tx in try tx.delete(Memo(id: "n", title: "")) }
    },
    PublicCall("WriteTransaction.delete<>(_:id:)") {
      try await $0.store.write { tx in try tx.delete(Memo.self, id: "n") }
    },
    PublicCall("WriteTransaction.fetch<>(_:id:)") {
      try await $0.store.write { tx in _ = try tx.fetch(Memo.self, id: "n") }
    },
    PublicCall("WriteTransaction.fetch<>(_:where:sortedBy:limit:after:)") {
      try await $0.store.write { tx in try throwFirst(tx.fetch(Memo.self).unreadable) }
    },
    PublicCall("WriteTransaction.first<>(_:where:sortedBy:)") {
      try await $0.store.write { tx in _ = try tx.first(Memo.self) }
    },
    PublicCall("WriteTransaction.exists<>(_:where:)") {
      try await $0.store.write { tx in _ = try tx.exists(Memo.self, where: #Predicate { $0.title == "first" }) }
    },
    PublicCall("WriteTransaction.count<>(_:where:)") {
      try await $0.store.write { tx in _ = try tx.count(Memo.self, where: #Predicate { $0.title == "first" }) }
    },
    PublicCall("WriteTransaction.update<>(_:where:_:)") {
      try await $0.store.write { tx in try tx.update(Memo.self) { $0.title = "second" } }
    },
  ]

  /// Calls that use no store, each with arguments that make it fail.
  static let withoutStore: [(names: [String], outcome: Outcome, make: @Sendable () async throws -> Void)] = [
    (
      ["Record.value<>(as:)"], .strandline(.typeMismatch),
      { _ = try Record(type: "Other", id: RecordID("n")).value(as: Memo.self) }
    ),
    (
      ["Projection.appliedPosition()"], .nothing,
      {
        let projection: any Projection = Following(.start)
        _ = try await projection.appliedPosition()
      }
    ),
    (
      ["Projection.apply(_:)"], .cancelled,
      {
        let projection: any Projection = Following(.start)
        try await projection.apply(ProjectionBatch(position: nil))
      }
    ),
    (
      ["RecordStore.inbox(at:types:options:environment:)"], .strandline(.invalidValue),
      { _ = try RecordStore.inbox(at: "/store", types: [Memo.self, Memo.self]) }
    ),
    (
      ["WriteTransaction.end(_:)"], .strandline(.noSuchRecord),
      {
        let environment = StoreEnvironment.simulated(disk: SimulatedDisk(), seed: 1)
        let store = try RecordStore.openBlocking(at: "/store", environment: environment)
        try RecordStore.inbox(at: "/store", environment: environment).write { try $0.save(Memo(id: "n", title: "x")) }
        try store.writeBlocking { tx in
          try tx.save(Memo(id: "n", title: "y"))
          try tx.delete(Memo.self, id: "n")
        }
        try store.refresh()
        let refusal = try #require(try store.inboxRefusals().first)
        for _ in 0..<2 { try store.writeBlocking { try $0.end(refusal) } }
      }
    ),
    (["QueryCursor.init(text:)"], .strandline(.invalidValue), { _ = try QueryCursor(text: "no cursor") }),
    (["LSN.init(text:)"], .strandline(.invalidValue), { _ = try LSN(text: "x") }),
    (["LogPosition.init(text:)"], .strandline(.invalidValue), { _ = try LogPosition(text: "x") }),
    (["ZoneID.init(text:)"], .strandline(.invalidValue), { _ = try ZoneID(text: "") }),
    (["RecordID.init(text:)"], .strandline(.invalidValue), { _ = try RecordID(text: "x") }),
    (["FieldValue.init(text:)"], .strandline(.invalidValue), { _ = try FieldValue(text: "x") }),
    (["FieldValue.text()"], .strandline(.invalidValue), { _ = try FieldValue.double(.nan).text() }),
    (["Record.init(text:)"], .strandline(.invalidValue), { _ = try Record(text: "x") }),
    (
      ["Record.text()"], .strandline(.invalidValue),
      {
        _ = try Record(type: "Memo", id: id, fields: ["title": .double(.nan)]).text()
      }
    ),
    (["WebSession.init(path:)"], .strandline(.io), { _ = try WebSession(path: "/") }),
    (["WebSession.signIn(token:)"], .strandline(.invalidValue), { try WebSession(path: "/none").signIn(token: "") }),
    (["WebSession.signOut()"], .nothing, { try WebSession(path: "/none").signOut() }),
    (
      ["AccountStores.open(at:types:syncing:rules:durability:options:environment:)"], .strandline(.notAStore),
      {
        let disk = SimulatedDisk()
        disk.poke("/accounts", [1])
        _ = try await AccountStores.open(
          at: "/accounts", syncing: .simulated(SimulatedCloud()), environment: .simulated(disk: disk, seed: 1))
      }
    ),
    (
      ["AccountStores.accountMayHaveChanged()"], .strandline(.closed),
      { _ = try await closedAccounts().accountMayHaveChanged() }
    ),
    (
      ["AccountStores.signIn(token:)"], .strandline(.closed),
      { _ = try await closedAccounts().signIn(token: "t") }
    ),
    (["AccountStores.signOut()"], .strandline(.closed), { try await closedAccounts().signOut() }),
    (
      ["AccountStores.remove(_:keepingUnsent:)"], .strandline(.closed),
      {
        let accounts = try await closedAccounts()
        try await accounts.remove(try #require(accounts.accounts.first))
      }
    ),
    (["AccountStores.close()"], .nothing, { try await closedAccounts().close() }),
    (["CloudDatabase.forgetCredential()"], .nothing, { try unreachable().forgetCredential() }),
    (["CloudDatabase.awaitPush()"], .cloud, { try await unreachable().awaitPush() }),
    (
      ["CloudDatabase.upload(_:for:)"], .cloud,
      {
        let content = ContentSource(size: 1, path: "/none") { _, _ in [1] }
        _ = try await unreachable().upload(content, for: ContentPlace(record: id, type: "Memo", field: "photo"))
      }
    ),
    (
      ["CloudDatabase.download(_:of:into:)"], .cloud,
      {
        let place = ContentPlace(record: id, type: "Memo", field: "photo")
        let asset = Asset(fileChecksum: "c", size: 1)
        try await unreachable().download(asset, of: place, into: ContentSink(size: 1) { _ in })
      }
    ),
    (
      ["ContentSource.piece(at:count:)"], .strandline(.damaged),
      { _ = try ContentSource(size: 1, path: "/none") { _, _ in [] }.piece(at: 0, count: 1) }
    ),
    (
      ["ContentSink.write(_:)"], .strandline(.diskFull),
      { try ContentSink(size: 1) { _ in throw StrandlineError(.diskFull, "no room") }.write([1]) }
    ),
    (
      ["LocalServer.run(directory:host:port:allowedHosts:allowedOrigins:faults:)"], .strandline(.invalidValue),
      {
        _ = try LocalServer.run(port: 70_000)
      }
    ),
    (
      ["LocalServer.waitUntilStopped()"], .nothing,
      {
        let server = try LocalServer.run()
        server.stop()
        try server.waitUntilStopped()
      }
    ),
    (
      ["CloudServer.close()"], .strandline(.io),
      {
        let fleet = try Fleet()
        fleet.serverDisk.cutPower()
        try fleet.server.close()
      }
    ),
    (
      ["CloudDatabase.user()"], .cloud,
      { _ = try await unreachable().user() }
    ),
    (
      ["CloudDatabase.zones()"], .cloud,
      { _ = try await unreachable().zones() }
    ),
    (
      ["CloudDatabase.createZone(_:)"],
      .cloud,
      {
        try await unreachable().createZone(.main)
      }
    ),
    (
      ["CloudDatabase.deleteZone(_:)"],
      .cloud,
      {
        try await unreachable().deleteZone(.main)
      }
    ),
    (
      [
        "CloudDatabase.modify(_:in:atomic:)"
      ], .cloud,
      {
        _ = try await unreachable().modify([CloudOperation(.forceDelete, name: "n")], in: .main, atomic: false)
      }
    ),
    (
      ["CloudDatabase.lookup(_:in:)"], .cloud,
      {
        _ = try await unreachable().lookup(["n"], in: .main)
      }
    ),
    (
      [
        "CloudDatabase.zoneChanges(of:)"
      ], .cloud,
      {
        _ = try await unreachable().zoneChanges(of: [ZoneQuery(.main, since: nil, limit: 10)])
      }
    ),
    (
      [
        "CloudDatabase.newestRecords(ofType:in:limit:after:)"
      ], .cloud,
      {
        _ = try await unreachable().newestRecords(ofType: "Note", in: .main, limit: 10, after: nil)
      }
    ),
    (
      [
        "CloudDatabase.databaseChanges(since:limit:)"
      ], .cloud,
      {
        _ = try await unreachable().databaseChanges(since: nil, limit: 10)
      }
    ),
  ]

  private static func closedAccounts() async throws -> AccountStores {
    let accounts = try await AccountStores.open(
      at: "/accounts", syncing: .simulated(SimulatedCloud()),
      environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await accounts.close()
    return accounts
  }

  /// A database at an address that no transport accepts.
  private static func unreachable() -> Around {
    Around(
      base: WebServicesDatabase(
        address: CloudAddress(container: "iCloud.test", environment: .development), apiToken: "", session: nil,
        baseURL: "gopher://x"))
  }
}

/// An app's own database, which throws what it must not.
private struct FailingDatabase: CloudDatabase {
  struct Failure: Error {}
  let address = CloudAddress(container: "iCloud.test", environment: .development)
  func user() async throws -> String { throw Failure() }
  func zones() async throws -> [ZoneID] { throw Failure() }
  func createZone(_ zone: ZoneID) async throws { throw Failure() }
  func deleteZone(_ zone: ZoneID) async throws { throw Failure() }
  func modify(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
  ) async throws -> [CloudName: CloudResult] { throw Failure() }
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] { throw Failure() }
  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] { throw Failure() }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage { throw Failure() }
}

@Suite(.timeLimit(.minutes(30)))
struct ErrorTests {
  // MARK: Every public call

  @Test func `every public call that throws stands in the table`() throws {
    let known = PublicCall.all.map(\.name) + PublicCall.withoutStore.flatMap(\.names)
    let unlisted = Set(try PublicThrowingCalls.inSources()).symmetricDifference(known).sorted()
    #expect(unlisted == [])
    // The comparison finds a call that the table lacks.
    let planted = """
      extension RecordStore {
        public func vanish(
          _ id: RecordID, in zones: [String: (Int) throws -> Void] = [:], fileID: String = #fileID
        ) async throws -> Bool { true }
        public func stay(_ body: () throws -> Void) -> Bool { true }
        public var last: Int { get throws { 1 } }
      }
      """
    #expect(PublicThrowingCalls.names(in: planted) == ["RecordStore.vanish(_:in:)", "RecordStore.last"])
  }

  /// The calls whose errors name the caller's line. Inside a closure it is `write` that names it.
  private static func located() throws -> Set<String> {
    let inClosures = PublicCall.all.map(\.name).filter { $0.hasPrefix("WriteTransaction.") }
    return try PublicThrowingCalls.askingForLine().union(inClosures)
  }

  @Test func `after close each throws that the store is closed`() async throws {
    let lines = try Self.located()
    for call in PublicCall.all {
      let scene = try await Scene()
      try await scene.device.close()
      let thrown = await error { try await call.make(scene) }
      #expect(Outcome(thrown) == call.closed.map { .strandline($0) } ?? .nothing, "\(call.name)")
      if let thrown = thrown as? StrandlineError {
        // A view of a closed store is refused by `view`, which asks for no line.
        let isLocated = lines.contains(call.name) && !call.name.hasPrefix("StoreView.")
        #expect(thrown.location?.hasPrefix(here) == (isLocated ? true : nil), "\(call.name): \(thrown)")
      }
    }
  }

  @Test func `on damage at rest each names file, byte and event`() async throws {
    let lines = try Self.located()
    for call in PublicCall.all {
      let scene = try await Scene()
      try scene.damage()
      let thrown = await error { try await call.make(scene) }
      #expect(Outcome(thrown) == call.damaged.map { .strandline($0) } ?? .nothing, "\(call.name)")
      guard let thrown = thrown as? StrandlineError else { continue }
      #expect(thrown.location?.hasPrefix(here) == (lines.contains(call.name) ? true : nil), "\(call.name): \(thrown)")
      #expect(thrown.file == scene.file, "\(call.name): \(thrown)")
      let (offset, lsns) = (try #require(thrown.offset), try #require(thrown.lsns))
      if [".open", ".compact", ".backup", "StoreInbox."].contains(where: call.name.contains) {
        // A reader of the whole log reads transactions, and stops at a damaged one.
        #expect(offset <= UInt64(scene.found.offset), "\(call.name): \(thrown)")
        #expect(scene.lsns.map { lsns.contains($0.lowerBound) } == true, "\(call.name): \(thrown)")
      } else {
        #expect(offset == UInt64(scene.found.offset), "\(call.name): \(thrown)")
        #expect(lsns == scene.lsns, "\(call.name): \(thrown)")
      }
      #expect(!thrown.description.contains("\n"))
    }
  }

  @Test func `a store that is open for reading throws the same`() async throws {
    for call in PublicCall.all where call.name.hasPrefix("RecordStore.") && !call.name.contains("open") {
      let scene = try await Scene()
      let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: scene.device.environment)
      let seen = Scene(scene, reader)
      let writes = ["write", "compact", "sync"].contains { call.name.hasPrefix("RecordStore.\($0)") }
      var thrown = await error { try await call.make(seen) }
      let expected: Outcome =
        call.name.hasPrefix("RecordStore.sync(") ? .strandline(.notSyncing) : .strandline(.readOnly)
      if writes { #expect(Outcome(thrown) == expected, "\(call.name)") }
      try await reader.close()
      thrown = await error { try await call.make(seen) }
      #expect(Outcome(thrown) == call.closed.map { .strandline($0) } ?? .nothing, "\(call.name)")
    }
  }

  @Test func `calls without a store throw what their documentation says`() async throws {
    let lines = try PublicThrowingCalls.askingForLine()
    for call in PublicCall.withoutStore {
      let thrown = await error { try await call.make() }
      #expect(Outcome(thrown) == call.outcome, "\(call.names): \(thrown.map { "\($0)" } ?? "nothing")")
      if let thrown = thrown as? StrandlineError {
        let isAsked = call.names.contains(where: lines.contains)
        #expect(thrown.location?.hasPrefix(here) == (isAsked ? true : nil), "\(call.names): \(thrown)")
      }
    }
  }

  // MARK: The error itself

  @Test func `a catch clause matches a code`() async throws {
    let scene = try await Scene()
    try scene.damage()
    do {
      _ = try scene.store.record(id)
      Issue.record("read a damaged value")
    } catch StrandlineError.Code.closed {
      Issue.record("took damage for a closed store")
    } catch StrandlineError.Code.damaged {
      // As it must be.
    }
    let cancelled: any Error = CancellationError()
    #expect(!(StrandlineError.Code.damaged ~= cancelled))
  }

  @Test func `the line is the caller's, through async calls and inside a closure`() async throws {
    let store = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let line = #line + 1
    let outer = await error { try await store.write { tx in try tx.save(Record(type: "1", id: id)) } }
    #expect((outer as? StrandlineError)?.location == "\(here)\(line)")
    let inner = await error {
      try await store.write { tx in
        try tx.save(Record(type: "Memo", id: id))
        // The line of the transaction's call says more than that of `write`.
        try tx.create(Record(type: "Memo", id: id))
      }
    }
    #expect((inner as? StrandlineError)?.location == "\(here)\(line + 6)")
    #expect(inner.map { "\($0)".contains("(called at \(here)\(line + 6))") } == true)
    try store.closeBlocking()
  }

  @Test func `the description is one line with the chain of causes`() {
    let cause = StrandlineError(
      .io, "cannot read\nthe page", underlying: CloudError(.networkError, reason: "gone"), location: "A/B.swift:1")
    let error = StrandlineError(.unreachable, "syncing", underlying: cause, location: "C/D.swift:2")
    #expect("\(error)" == "syncing [cannot read the page [NETWORK_ERROR: gone]] (called at C/D.swift:2)")
    // A cause that the message quotes is not repeated.
    let system = SystemError(call: "pread", subject: "/s/1", errno: 5)
    let quoted = StrandlineError(.io, "reading: \(system)", underlying: system)
    #expect("\(quoted)" == "reading: \(system)")
  }

  // MARK: Opening

  private func openingError(_ disk: SimulatedDisk, at path: String = "/s") throws -> StrandlineError {
    do {
      let environment = StoreEnvironment.simulated(disk: disk, seed: 7)
      try RecordStore.openBlocking(at: path, environment: environment, createIfAbsent: false).closeBlocking()
    } catch let error as StrandlineError {
      #expect(error.location?.hasPrefix(here) == true)
      return error
    }
    return try #require(nil as StrandlineError?, "opened")
  }

  /// A disk with a store of several segments, closed.
  private func disk(segments: Int = 2) throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    for index in 0..<segments {
      let store = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: disk, seed: UInt64(index)))
      try store.writeBlocking { tx in try tx.save(Record(type: "Memo", id: RecordID("n-\(index)"))) }
      try store.closeBlocking()
    }
    return disk
  }

  @Test func `the error names the path of a missing store, a file, and a server's journal`() throws {
    let disk = SimulatedDisk()
    let absent = try openingError(disk)
    #expect(absent.code == .noSuchStore && absent.file == "/s" && absent.offset == nil && absent.lsns == nil)
    try disk.open("/f", .create).close()
    #expect(try openingError(disk, at: "/f").code == .notAStore)
    let environment = StoreEnvironment.simulated(disk: disk, seed: 1).system
    let options = LogOptions(controlIntervalMilliseconds: nil)
    try Log.open(at: "/j", role: .server, options: options, environment: environment) { _ in }.close()
    let journal = try openingError(disk, at: "/j")
    #expect(journal.code == .notAStore && journal.file != nil)
  }

  @Test func `a store that is held is transient`() throws {
    let disk = try disk()
    let holder = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: disk, seed: 9))
    let held = try openingError(disk)
    #expect(held.code == .storeHeld && held.code.isTransient && held.file?.hasPrefix("/s") == true)
    try holder.closeBlocking()
  }

  @Test func `a missing segment names its file`() throws {
    let disk = try disk(segments: 3)
    disk.pokeRemove("/s/" + SegmentName.name(2))
    let missing = try openingError(disk)
    #expect(missing.code == .damaged && missing.file?.hasPrefix("/s/") == true)
  }

  @Test func `an event of the future names its LSN`() throws {
    let disk = try disk()
    let environment = StoreEnvironment.simulated(disk: disk, seed: 8).system
    let options = LogOptions(controlIntervalMilliseconds: nil)
    let log = try Log.open(at: "/s", role: .store, options: options, environment: environment) { _ in }
    var transaction = LogTransaction()
    // Kind 9999 of version 1, which may not be skipped.
    transaction.add(schema: EventCodec.schema, body: [0x0F, 0x27, 1, 0])
    let lsn = try log.append(transaction).lowerBound
    try log.waitUntilDurableBlocking(lsn)
    try log.close()
    let future = try openingError(disk)
    #expect(future.code == .fromTheFuture && future.lsns == LSN(rawValue: lsn)...LSN(rawValue: lsn))
    // Bytes that are not an event, with a correct checksum, are damage.
    #expect(throws: EventCodecError.fromNewerVersion(kind: 9999, version: 1)) {
      try EventCodec.decode([0x0F, 0x27, 1, 0])
    }
    #expect(throws: EventCodecError.self) { try EventCodec.decode([1]) }
    let found = LogEvent(
      lsn: 3, schema: EventCodec.schema, body: [1], indexInTransaction: 0, isFirst: true, isLast: true, segmentID: 1,
      offset: 0)
    #expect {
      try found.decoded()
    } throws: {
      ($0 as? StrandlineError)?.code == .damaged
        && ($0 as? StrandlineError)?.lsns == LSN(rawValue: 3)...LSN(rawValue: 3)
    }
  }

  @Test func `a server's journal: damage, an event of the future, another holder`() throws {
    func environment(_ disk: SimulatedDisk) -> SystemEnvironment {
      StoreEnvironment.simulated(disk: disk, seed: 3).system
    }
    func thrown(_ disk: SimulatedDisk) throws -> StrandlineError {
      do {
        try CloudServer(directory: "/c", environment: environment(disk), controlIntervalMilliseconds: nil).close()
      } catch let error as StrandlineError { return error }
      return try #require(nil as StrandlineError?, "opened")
    }
    let disk = SimulatedDisk()
    let server = try CloudServer(directory: "/c", environment: environment(disk), controlIntervalMilliseconds: nil)
    #expect(try thrown(disk).code == .storeHeld)
    try server.close()
    let damaged = disk.clone()
    let file = "/c/" + SegmentName.name(1)
    var bytes = try #require(disk.peek(file))
    bytes[LogFormat.headerPageBytes + LogFormat.frameHeaderBytes + 4] ^= 1
    damaged.poke(file, bytes)
    let error = try thrown(damaged)
    #expect(error.code == .damaged && error.file == file && error.offset != nil, "\(error)")
    for (schema, body) in [(JournalEvent.schema, [0x0F, 0x27, 1, 0] as [UInt8]), (99, [1])] {
      let future = disk.clone()
      let options = LogOptions(controlIntervalMilliseconds: nil)
      let log = try Log.open(at: "/c", role: .server, options: options, environment: environment(future)) { _ in }
      var transaction = LogTransaction()
      transaction.add(schema: schema, body: body)
      try log.waitUntilDurableBlocking(try log.append(transaction).lowerBound)
      try log.close()
      let error = try thrown(future)
      #expect(error.code == .fromTheFuture && error.file == "/c", "\(error)")
    }
  }

  @Test func `a full disk and a failing one give different codes`() throws {
    let full = SimulatedDisk(capacity: 100)
    let environment = StoreEnvironment.simulated(disk: full, seed: 1)
    #expect {
      try RecordStore.openBlocking(at: "/s", environment: environment)
    } throws: {
      ($0 as? StrandlineError)?.code == .diskFull && ($0 as? StrandlineError)?.file == "/s"
    }
    let disk = try disk()
    let store = try RecordStore.openBlocking(at: "/s", environment: .simulated(disk: disk, seed: 9))
    try store.writeBlocking { tx in try tx.save(Record(type: "Memo", id: id)) }
    for call in 1...4 { disk.failCall(disk.callCount + call) }
    #expect {
      try store.writeBlocking { tx in try tx.save(Record(type: "Memo", id: RecordID("later"))) }
    } throws: { error in
      guard let error = error as? StrandlineError else { return false }
      return [.io, .outcomeUnknown].contains(error.code) && error.file?.hasPrefix("/s/") == true
        && error.underlying != nil
    }
    disk.cutPower()
    #expect(throws: StrandlineError.self) { try store.closeBlocking() }
  }

  @Test func `a write that was cancelled before it was queued throws its cancellation`() async throws {
    let scene = try await Scene()
    await #expect(throws: CancellationError.self) {
      try await cancelled { try await scene.store.write { tx in try tx.delete(id) } }
    }
    #expect(try scene.store.record(id) != nil)
    try await scene.device.close()
  }

  @Test func `an error of an app's own database makes the sync fail as unreachable`() async throws {
    var configuration = SyncConfiguration(FailingDatabase())
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: "/s", syncing: configuration, environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let thrown = await error { try await store.sync() } as? StrandlineError
    #expect(thrown?.code == .unreachable && thrown?.underlying is FailingDatabase.Failure)
    #expect(try store.engine.lastError?.code == .unreachable)
    try await store.close()
  }

  @Test func `an app's own error passes through a closure unchanged`() async throws {
    struct Own: Error {}
    let scene = try await Scene()
    await #expect(throws: Own.self) { try await scene.store.write { _ in throw Own() } }
    #expect(throws: Own.self) { try scene.store.forEachRecord { _ in throw Own() } }
    try await scene.device.close()
  }
}

extension Scene {
  /// The same, seen through another handle.
  fileprivate init(_ other: Scene, _ store: RecordStore) {
    fleet = other.fleet
    device = other.device
    self.store = store
    engine = other.engine
    receipt = other.receipt
    found = other.found
  }
}
