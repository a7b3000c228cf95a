// Calls of the store from within its own closures. Method: a table of every closure that an app hands to the store, and of every
// call that needs no waiting; each pair is made on a store of its own. What would wait for the closure throws and names both
// calls; all else works.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

private let id = RecordID("n")

private struct Probe: SyncRecord {
  /// What migration does besides.
  @TaskLocal static var whileReading: (@Sendable () -> Void)?
  static func migrate(_ record: inout Record) { whileReading?() }
  var id: String
  var title: String
}

/// A call without `await`.
private struct Call: Sendable {
  let name: String
  /// Whether it would wait for a closure that holds the writer's lock.
  var waits = false
  let make: @Sendable (RecordStore) throws -> Void

  init(_ name: String, waits: Bool = false, _ make: @escaping @Sendable (RecordStore) throws -> Void) {
    (self.name, self.waits, self.make) = (name, waits, make)
  }

  static let all: [Call] = [
    Call("record") { _ = try $0.record(id) },
    Call("records") { _ = try $0.records([id]) + $0.records(ofType: "Probe") },
    Call("recordIDs") { _ = try $0.recordIDs() },
    Call("forEachRecord") { try $0.forEachRecord { _ in } },
    Call("recordCount") { _ = ($0.recordCount, $0.durableLSN, $0.isSuspended, $0.description) },
    Call("value") { _ = try $0.fetch(Probe.self, id: "n") },
    Call("values") { _ = try ($0.fetch(Probe.self).count, $0.fetch(Probe.self, ids: ["n"]).count) },
    Call("query") { _ = try ($0.query(RecordQuery("Probe")), $0.explain(RecordQuery("Probe"))) },
    Call("view") { _ = try $0.view().count() },
    Call("read") { try $0.read { _ = try ($0.count(RecordQuery("Probe")), $0.position) } },
    Call("view(asOf:)") { store in _ = try store.view(asOf: store.view().position).record(id) },
    Call("history") { _ = try ($0.history(of: id), $0.conflicts(of: id)) },
    Call("changes") { _ = try $0.changes(since: .start) },
    Call("status") { _ = try $0.status() },
    Call("indexes") { _ = try $0.indexes() },
    Call("addIndex") { try $0.addIndex(RecordIndex("Probe", "title")) },
    Call("dropIndex") { try $0.dropIndex(RecordIndex("Probe", "title")) },
    Call("refresh") { try $0.refresh() },
    Call("inbox") { store in
      let inbox = try RecordStore.inbox(at: store.path, environment: StoreEnvironment(store.environment))
      try inbox.write { try $0.save(Probe(id: "left", title: "left")) }
      _ = (try store.inboxRefusals(), try store.heldRecords())
    },
    Call("fetch") { store in
      _ = try store.fetch(Probe.self, where: #Predicate { $0.title == "outer" }).count
      _ = try (store.count(Probe.self), store.first(Probe.self)?.title)
    },
    Call("observeCount") { _ = ($0.observeCount(Probe.self), $0.observe(Probe.self), $0.observe(Probe.self, id: "n")) },
    Call("receipt") { store in _ = try store.receipt(at: store.view().position).pendingChanges() },
    Call("pendingChanges") { _ = try $0.pendingChanges() },
    Call("observe") { _ = ($0.observe(id), $0.observe(RecordQuery("Probe")), $0.observeStatus(), $0.refreshes()) },
    Call("observeChanges") { _ = $0.observeChanges(since: .start) },
    Call("sync.status") { store in
      let sync = try store.engine
      _ = (sync.status, sync.statuses, sync.isConstrained, sync.lastReport, sync.lastError, "\(sync)")
    },
    Call("sync.wake") { store in
      try store.engine.wake(.push)
      let sync = try store.engine
      sync.isConstrained = true
    },
    Call("openReadOnly") { store in
      try RecordStore.openReadOnlyBlocking(at: store.path, environment: StoreEnvironment(store.environment))
        .closeBlocking()
    },
    Call("writeBlocking", waits: true) { try $0.writeBlocking { try $0.save(Probe(id: "other", title: "inner")) } },
    Call("updateBlocking", waits: true) { try $0.updateBlocking(Probe.self, id: "n") { $0.title = "inner" } },
    Call("queueBlocking", waits: true) { _ = try $0.queueBlocking { _ in }.waitBlocking() },
    Call("compact", waits: true) { try $0.compactBlocking() },
    Call("suspend", waits: true) { try $0.suspendBlocking() },
    Call("resume", waits: true) { try $0.resumeBlocking() },
    Call("closeBlocking", waits: true) { try $0.closeBlocking() },
  ]
}

/// A projection that does something once while it applies a batch.
private struct Applying: Projection {
  let name = "applying"
  let body: @Sendable () async -> Void
  func appliedPosition() -> LogPosition? { nil }
  func apply(_ batch: ProjectionBatch) async { await body() }
}

/// A closure that the store takes.
private struct Place: Sendable {
  let name: String
  /// The call that holds the writer's lock; nil if none does.
  var holder: String?
  let enter: @Sendable (Opened, @escaping @Sendable () -> Void) async throws -> Void

  init(
    _ name: String, under holder: String? = nil,
    _ enter: @escaping @Sendable (RecordStore, @escaping @Sendable () -> Void) async throws -> Void
  ) {
    (self.name, self.holder) = (name, holder)
    self.enter = { opened, call in try await enter(opened.store, call) }
  }

  /// The resolver of the opened store.
  private init(resolver name: String) {
    self.name = name
    enter = { opened, call in try await opened.resolve(call) }
  }

  /// The log of the opened store's engine, at the first line that contains some words.
  private init(log words: String) {
    name = "sync log: \(words)"
    enter = { opened, call in try await opened.log(words, call) }
  }

  static let all: [Place] = [
    Place("write", under: "write") { store, call in try await store.write { _ in call() } },
    Place("write with a value", under: "write") { store, call in
      _ = try await store.write { _ in
        call()
        return 1
      }.value
    },
    Place("writeBlocking", under: "writeBlocking") { store, call in try store.writeBlocking { _ in call() } },
    Place("queueBlocking", under: "queueBlocking") { store, call in
      _ = try store.queueBlocking { _ in call() }.waitBlocking()
    },
    Place("update", under: "update") { store, call in try await store.update(Probe.self, id: "n") { _ in call() } },
    Place("updateBlocking", under: "updateBlocking") { store, call in
      try store.updateBlocking(Probe.self, id: "n") { _ in call() }
    },
    Place("update in write", under: "write") { store, call in
      try await store.write { tx in try tx.update(Probe.self, id: "n") { _ in call() } }
    },
    Place("migrate in write", under: "write") { store, call in
      try await Probe.$whileReading.withValue(call) {
        _ = try await store.write { _ = try $0.fetch(Probe.self, id: "n") }
      }
    },
    Place("migrate in update", under: "updateBlocking") { store, call in
      _ = try Probe.$whileReading.withValue(call) { try store.updateBlocking(Probe.self, id: "n") { _ in } }
    },
    Place("migrate in value") { store, call in
      _ = try Probe.$whileReading.withValue(call) { try store.fetch(Probe.self, id: "n") }
    },
    Place("migrate in values") { store, call in
      _ = try Probe.$whileReading.withValue(call) { try store.fetch(Probe.self).count }
    },
    Place("migrate in migrateAll") { store, call in
      _ = try await Probe.$whileReading.withValue(call) { try await store.migrateAll(Probe.self) }
    },
    Place("progress of migrateAll") { store, call in
      try await store.migrateAll(Probe.self) { _ in call() }
    },
    Place(resolver: "resolver"),
    Place(log: "request: "), Place(log: " answered after "), Place(log: "cycle ended: "),
    Place("inbox.write") { store, call in
      let inbox = try RecordStore.inbox(at: store.path, environment: StoreEnvironment(store.environment))
      try inbox.write { _ in call() }
    },
    Place("read") { store, call in try store.read { _ in call() } },
    Place("forEachRecord") { store, call in try store.forEachRecord { _ in call() } },
    Place("progress of backup") { store, call in
      try store.backupBlocking(to: "/copy") { _ in call() }
    },
    Place("projection") { store, call in try await store.bringUpToDate(Applying { call() }) },
    Place("observer") { store, call in
      for try await _ in store.observe(id) {
        call()
        break
      }
    },
  ]
}

/// A store that syncs with that of another device, and what is done when its resolver is called.
private final class Opened: Sendable {
  let store: RecordStore
  private let own: Device
  private let other: Device
  private let resolving: Resolving
  private let logging: Logging

  private final class Resolving: Sendable {
    let call = Mutex<(@Sendable () -> Void)?>(nil)
  }

  private final class Logging: Sendable {
    let call = Mutex<(words: String, body: @Sendable () -> Void)?>(nil)
  }

  init() async throws {
    let fleet = try Fleet()
    let resolving = Resolving()
    var rules = ConflictRules()
    rules["Probe"].record = .resolver { conflict in
      resolving.call.withLock { $0 }?()
      return conflict.server
    }
    let logging = Logging()
    (own, other, self.resolving, self.logging) = (fleet.device("own"), fleet.device("other"), resolving, logging)
    store = try await own.open(conflicts: rules) { configuration in
      configuration.log = SyncLog(from: .debug) { _, line in
        if let call = logging.call.withLock({ $0 }), line.contains(call.words) { call.body() }
      }
    }
    try await store.write { try $0.save(Probe(id: "n", title: "outer")) }
  }

  /// Both devices change the record, and the resolver decides.
  func resolve(_ call: @escaping @Sendable () -> Void) async throws {
    try await exchange(own, other)
    resolving.call.withLock { $0 = call }
    try await other.open().update(Probe.self, id: "n") { $0.title = "other" }
    try await other.exchange()
    try await store.update(Probe.self, id: "n") { $0.title = "own" }
    _ = try await own.sync(waitMillisecondsMax: 0)
  }

  /// A cycle, which says what it does.
  func log(_ words: String, _ call: @escaping @Sendable () -> Void) async throws {
    logging.call.withLock { $0 = (words, call) }
    _ = try await own.sync(waitMillisecondsMax: 0)
  }

  func close() async throws {
    resolving.call.withLock { $0 = nil }
    logging.call.withLock { $0 = nil }
    try await store.close()
  }
}

/// What the first of some calls threw.
private final class Outcome: Sendable {
  private let state = Mutex<(count: Int, error: (any Error)?)>((0, nil))
  var isMade: Bool { state.withLock { $0.count > 0 } }
  var error: (any Error)? { state.withLock { $0.error } }

  func make(_ body: () throws -> Void) {
    guard
      state.withLock({ state in
        state.count += 1
        return state.count == 1
      })
    else { return }
    do { try body() } catch { state.withLock { $0.error = error } }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct ReentrancyTests {
  @Test(arguments: Place.all.indices) func `a call inside a closure works, or names both calls`(place: Int) async throws
  {
    let place = Place.all[place]
    for call in Call.all {
      let opened = try await Opened()
      let store = opened.store
      let outcome = Outcome()
      // What comes of the outer call is not asked: its store may have been closed meanwhile.
      _ = try? await place.enter(opened) { outcome.make { try call.make(store) } }
      #expect(outcome.isMade, "\(place.name), \(call.name)")
      if place.name == "inbox.write", call.name == "inbox" {
        let error = outcome.error as? StrandlineError
        #expect(error?.code == .misuse && error?.message.contains("inside the closure of 'write'") == true)
      } else if let holder = place.holder, call.waits {
        let error = outcome.error as? StrandlineError
        #expect(error?.code == .misuse, "\(place.name), \(call.name): \(error.map { "\($0)" } ?? "nothing")")
        let words =
          "'\(call.name)' was called inside the closure of '\(holder)' at StrandlineTests/ReentrancyTests.swift:"
        #expect(error?.message.contains(words) == true, "\(place.name), \(call.name): \(error?.message ?? "")")
        // Nothing of it has happened, and the store goes on.
        #expect(try store.fetch(Probe.self, id: "n")?.title == "outer" && !store.isSuspended)
        try await store.write { try $0.save(Probe(id: "later", title: "later")) }
      } else {
        #expect(outcome.error == nil, "\(place.name), \(call.name): \(outcome.error.map { "\($0)" } ?? "")")
      }
      _ = try? await opened.close()
    }
  }

  /// It is asked under the locks of the call for which a file is used. Calls that throw nothing have no way to refuse.
  @Test func `a call inside 'isProtectedDataAvailable' names both calls`() throws {
    let silent = ["recordCount", "observeCount", "observe", "observeChanges", "sync.status", "sync.wake"]
    for call in Call.all where !silent.contains(call.name) {
      let faults = FaultInjector(SimulatedDisk())
      let asked = Mutex<RecordStore?>(nil)
      let outcome = Outcome()
      let fileSystem = ProtectedFileSystem(faults) {
        if let store = asked.withLock({ $0 }) { outcome.make { try call.make(store) } }
        return false
      }
      func open() throws -> RecordStore {
        try RecordStore.openBlocking(
          at: "/store",
          environment: StoreEnvironment(
            SystemEnvironment(fileSystem: fileSystem, clock: SimulatedClock(), random: SeededRandom(seed: 1)),
            isSimulated: true))
      }
      let first = try open()
      try first.writeBlocking { try $0.save(Probe(id: "n", title: "outer")) }
      try first.closeBlocking()
      let store = try open()
      asked.withLock { $0 = store }
      faults.plan(DiskFault([.read], error: .notPermitted("", "")))
      let outer = #expect(throws: StrandlineError.self) { _ = try store.fetch(Probe.self, id: "n") }
      #expect(outer?.code == .temporarilyUnavailable, "\(call.name): \(outer.map { "\($0)" } ?? "")")
      #expect(outcome.isMade, "\(call.name)")
      let error = outcome.error as? StrandlineError
      #expect(error?.code == .misuse, "\(call.name): \(outcome.error.map { "\($0)" } ?? "nothing")")
      #expect(error?.message.contains("was called inside 'isProtectedDataAvailable'") == true, "\(call.name)")
      // Nothing of it has happened, and the store goes on.
      asked.withLock { $0 = nil }
      try store.writeBlocking { try $0.save(Probe(id: "later", title: "later")) }
      #expect(try store.fetch(Probe.self, id: "n")?.title == "outer" && !store.isSuspended)
      try store.closeBlocking()
    }
  }

  @Test func `a call that waits, inside a closure that may wait, ends`() async throws {
    typealias Waiting = @Sendable (RecordStore) async throws -> Void
    let calls: [Waiting] = [
      { try await $0.write { try $0.save(Probe(id: "other", title: "inner")) } },
      { try await $0.update(Probe.self, id: "n") { $0.title = "inner" } },
      { try await $0.migrateAll(Probe.self) },
      { try await $0.compact(keeping: .latest) },
      { try await $0.backup(to: "/copy") },
      { try await $0.buildIndexes() },
      {
        try await $0.suspend()
        try await $0.resume()
      },
      { try await $0.close() },
    ]
    for (number, call) in calls.enumerated() {
      let opened = try await Opened()
      let store = opened.store
      let failure = Mutex<(any Error)?>(nil)
      let isMade = Mutex(false)
      let once: @Sendable () async -> Void = {
        guard
          !isMade.withLock({ made in
            defer { made = true }
            return made
          })
        else { return }
        do { try await call(store) } catch { failure.withLock { $0 = error } }
      }
      // The last one closes the store, of which the projection hears.
      _ = try? await store.bringUpToDate(Applying(body: once))
      #expect(isMade.withLock { $0 } && failure.withLock { $0 } == nil, "call \(number)")
      _ = try? await opened.close()
    }
  }

  @Test func `a resolver may write`() async throws {
    let fleet = try Fleet()
    let (left, right) = (fleet.device("left"), fleet.device("right"))
    let box = Mutex<RecordStore?>(nil)
    let outcome = Outcome()
    var rules = ConflictRules()
    rules["Probe"].record = .resolver { conflict in
      outcome.make {
        let store = try #require(box.withLock { $0 })
        try store.writeBlocking { try $0.save(Probe(id: "other", title: "by the resolver")) }
        try store.updateBlocking(Probe.self, id: "other") { $0.title += ", twice" }
      }
      return conflict.server
    }
    let store = try await right.open(conflicts: rules)
    box.withLock { $0 = store }
    try await left.open().write { try $0.save(Probe(id: "n", title: "1")) }
    try await exchange(left, right)
    try await left.open().update(Probe.self, id: "n") { $0.title = "left" }
    try await store.update(Probe.self, id: "n") { $0.title = "right" }
    try await exchange(left, right, left, right)
    #expect(outcome.isMade && outcome.error == nil)
    #expect(try store.fetch(Probe.self, id: "other")?.title == "by the resolver, twice")
    box.withLock { $0 = nil }
  }
}
