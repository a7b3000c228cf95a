// What another process leaves in a store's inbox: taken in once, at the time at which it was written, merged by the rules, and
// kept where it cannot be. Method: one store that stays open, and an inbox on the same disk, with a clock that the test moves.

import Foundation
import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

/// The app's store and what its extension opens, on one disk.
private struct Scene {
  static let path = "/store"
  let disk: SimulatedDisk
  let clock = SimulatedClock()
  let store: RecordStore

  static var options: StoreOptions {
    var options = StoreOptions()
    options.conflicts["Item"] = Item.rules
    return options
  }

  init(_ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1) async throws {
    self.disk = disk
    store = try await RecordStore.open(
      at: Self.path, options: Self.options, environment: Self.environment(disk, clock, seed: seed))
  }

  private static func environment(
    _ disk: any FileSystem, _ clock: SimulatedClock, seed: UInt64
  ) -> StoreEnvironment {
    StoreEnvironment(
      SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: seed)), isSimulated: true)
  }

  func inbox(seed: UInt64 = 2, through fileSystem: (any FileSystem)? = nil) throws -> StoreInbox {
    try RecordStore.inbox(
      at: Self.path, options: Self.options, environment: Self.environment(fileSystem ?? disk, clock, seed: seed))
  }

  func pass(seconds: Int64) { clock.advance(milliseconds: seconds * 1_000) }

  func item(_ id: String = "n") throws -> Item? { try store.fetch(Item.self, id: id) }

  func stamp(_ field: String, of id: String = "n") throws -> FieldStamp? {
    try store.core.withLock { try $0.view(RecordID(id))?.version.stamp.fields[field] }
  }

  var inboxStatus: StoreStatus.Inbox? { get throws { try store.status().inbox } }
}

private func error(_ body: () throws -> Void) -> StrandlineError? {
  do { try body() } catch { return error as? StrandlineError }
  return nil
}

@Suite(.timeLimit(.minutes(30)))
struct InboxTests {
  @Test func `what an extension saves is there after a refresh, once, and then not in the inbox`() async throws {
    let scene = try await Scene()
    try await scene.store.write { try $0.save(Item(id: "old", title: "old")) }
    #expect(try scene.inboxStatus == nil)
    let inbox = try scene.inbox()
    try inbox.write { tx in
      try tx.save(Item(id: "a", title: "shared"))
      try tx.save(Item(id: "b", parent: Parent(id: "a")))
    }
    #expect(try scene.item("a") == nil)
    let waiting = try #require(try scene.inboxStatus)
    #expect(waiting.transactions == 1 && waiting.bytes > 0 && waiting.refusals == [] && waiting.failure == nil)
    #expect(try scene.store.refresh())
    #expect(try scene.item("a")?.title == "shared" && scene.item("b")?.parent == Parent(id: "a"))
    #expect(try scene.inboxStatus?.transactions == 0)
    #expect(try scene.store.status().unsettled == 3)
    let end = scene.store.durableLSN
    #expect(try !scene.store.refresh() && scene.store.durableLSN == end)
    // It has left the medium.
    let kept = scene.disk.paths.filter { $0.hasPrefix("/store/inbox/") && $0.hasSuffix(".seg") }
      .contains { String(decoding: scene.disk.peek($0) ?? [], as: UTF8.self).contains("shared") }
    #expect(!kept)
    try await scene.store.close()
    let again = try await Scene(scene.disk, seed: 3)
    #expect(try again.store.durableLSN == end && again.item("a")?.title == "shared")
    try await again.store.close()
  }

  @Test func `an open and a resumption take in what was left meanwhile`() async throws {
    let scene = try await Scene()
    try await scene.store.suspend()
    try scene.inbox().write { try $0.save(Item(id: "a")) }
    try await scene.store.resume()
    #expect(try scene.item("a") != nil)
    try await scene.store.close()
    try scene.inbox().write { try $0.save(Item(id: "b")) }
    let again = try await Scene(scene.disk, seed: 3)
    #expect(try again.item("a") != nil && again.item("b") != nil)
    try await again.store.close()
  }

  @Test func `a transaction sees the store and what was left before, and nothing is left if it throws`() async throws {
    let scene = try await Scene()
    try await scene.store.write { try $0.save(Item(title: "first", opens: 5)) }
    let inbox = try scene.inbox()
    try inbox.write { try $0.update(Item.self, id: "n") { $0.opens += 1 } }
    let seen = try scene.inbox(seed: 9).write { tx in
      try tx.save(Item(id: "m"))
      let count = try tx.fetch(Item.self).count
      return try (tx.fetch(Item.self, id: "n")?.opens, count)
    }
    #expect(seen.0 == 6 && seen.1 == 2)
    struct Stop: Error {}
    #expect(throws: Stop.self) {
      try inbox.write { tx in
        try tx.save(Item(id: "never"))
        throw Stop()
      }
    }
    // A call that fails within a closure that goes on leaves nothing either.
    try inbox.write { tx in
      #expect(error { try tx.update(Item.self, id: "absent") { $0.title = "x" } }?.code == .noSuchRecord)
      _ = error { try tx.save(Record(type: "Other", id: RecordID("n"))) }
    }
    #expect(try scene.inboxStatus?.transactions == 2)
    try scene.store.refresh()
    #expect(try scene.item()?.opens == 6 && scene.item("m") != nil && scene.item("never") == nil)
    try await scene.store.close()
  }

  @Test func `fields are merged by time and by rule with what the app has changed meanwhile`() async throws {
    let scene = try await Scene()
    let first = Item(title: "a", body: "a", tags: ["x"], opens: 10, best: 1, fixed: "f")
    try await scene.store.write { try $0.save(first) }
    scene.pass(seconds: 10)
    let inbox = try scene.inbox()
    try inbox.write { tx in
      try tx.update(Item.self, id: "n") { item in
        item.title = "extension"
        item.body = nil
        item.tags = ["x", "e"]
        item.opens += 1
        item.best = 5
      }
    }
    let written = scene.clock.wallMilliseconds()
    scene.pass(seconds: 10)
    try await scene.store.update(Item.self, id: "n") { item in
      item.title = "app"
      item.tags = ["x", "p"]
      item.opens += 100
      item.best = 7
    }
    scene.pass(seconds: 10)
    try scene.store.refresh()
    let item = try #require(try scene.item())
    // The app was later.
    #expect(item.title == "app")
    // It has not touched it.
    #expect(item.body == nil)
    #expect(item.tags == ["x", "e", "p"] && item.opens == 111 && item.best == 7)
    #expect(try scene.stamp("body")?.time.milliseconds == written)
    // The edits that lost are told.
    let lost = try scene.store.conflicts(of: RecordID("n")).flatMap(\.fields).map(\.name)
    #expect(Set(lost) == ["title", "best"])
    #expect(try scene.inboxStatus?.refusals == [])
    // In the other order the extension is later.
    try await scene.store.update(Item.self, id: "n") { $0.title = "app 2" }
    scene.pass(seconds: 10)
    try inbox.write { try $0.update(Item.self, id: "n") { $0.title = "extension 2" } }
    try scene.store.refresh()
    #expect(try scene.item()?.title == "extension 2")
    try await scene.store.close()
  }

  @Test func `a value with a version is an edit of what was read, in one call or in several`() async throws {
    let scene = try await Scene()
    try await scene.store.write { try $0.save(Item(title: "a", opens: 1)) }
    let inbox = try scene.inbox()
    var item = try #require(try inbox.write { try $0.fetch(Item.self, id: "n") })
    scene.pass(seconds: 1)
    try await scene.store.update(Item.self, id: "n") { item in
      item.body = "app"
      item.opens += 10
    }
    item.title = "b"
    item.opens += 1
    try inbox.write { try $0.save(&item) }
    #expect(item.opens == 12 && item.body == "app")
    item.opens += 1
    try inbox.write { try $0.save(&item) }
    // One that is new there is one life, before and after it was taken in.
    var new = Item(id: "new")
    try inbox.write { try $0.save(&new) }
    new.title = "edited"
    try inbox.write { try $0.save(&new) }
    try scene.store.refresh()
    let read = try #require(try scene.item())
    #expect(read.title == "b" && read.body == "app" && read.opens == 13)
    new.body = "later"
    try inbox.write { try $0.save(&new) }
    try scene.store.refresh()
    #expect(try scene.item("new")?.title == "edited" && scene.item("new")?.body == "later")
    try await scene.store.close()
  }

  @Test func `what was not left can be saved again`() async throws {
    let scene = try await Scene()
    try await scene.store.write { try $0.save(Item(title: "a")) }
    let faults = FaultInjector(scene.disk)
    let inbox = try scene.inbox(through: faults)
    var item = try #require(try inbox.write { try $0.fetch(Item.self, id: "n") })
    item.title = "b"
    // A segment keeps the name under which its file was made for whoever has it open.
    faults.plan(
      DiskFault([.write], pathSuffix: ".tmp", ordinal: 1, isSticky: true, error: .device("pwrite", "")))
    #expect(error { try inbox.write { try $0.save(&item) } } != nil)
    faults.clear()
    try inbox.write { try $0.save(item) }
    try scene.store.refresh()
    #expect(try scene.item()?.title == "b")
    try await scene.store.close()
  }

  @Test func `a save of a name that was deleted meanwhile is kept by name until the app decides`() async throws {
    let scene = try await Scene()
    try await scene.store.write { tx in
      try tx.save(Item(title: "a"))
      try tx.save(Item(id: "m"))
    }
    let inbox = try scene.inbox()
    try inbox.write { tx in
      try tx.save(Item(id: "late", title: "kept", body: "all of it"))
      try tx.update(Item.self, id: "m") { $0.title = "with it" }
    }
    try inbox.write { try $0.update(Item.self, id: "n") { $0.title = "b" } }
    try await scene.store.write { tx in
      try tx.save(Item(id: "late"))
      try tx.delete(Item.self, id: "late")
      try tx.delete(Item.self, id: "n")
    }
    try inbox.write { try $0.save(Item(id: "after")) }
    #expect(try scene.store.refresh())
    // A transaction is taken in whole or not at all, and the others are.
    #expect(try scene.item("late") == nil && scene.item("m")?.title == "" && scene.item("after") != nil)
    let status = try #require(try scene.inboxStatus)
    #expect(status.transactions == 0 && status.refusals.map(\.code) == [.recordWasDeleted, .recordWasDeleted])
    #expect(status.refusals.map(\.ids) == [[RecordID("late"), RecordID("m")], [RecordID("n")]])
    #expect(status.refusals[0].message.contains("late"))
    // It outlasts compactions, flushes and opens.
    try await scene.store.compact()
    try scene.store.index?.flush()
    try await scene.store.close()
    let again = try await Scene(scene.disk, seed: 3)
    let refusals = try again.store.inboxRefusals()
    #expect(refusals.count == 2)
    let first = try #require(refusals.first)
    guard case .save(let record)? = first.changes.first else { return #expect(Bool(false), "\(first.changes)") }
    #expect(record["title"] == "kept" && record["body"] == "all of it")
    try await again.store.write { tx in
      for case .save(let record) in first.changes { try tx.create(record) }
      try tx.end(first)
    }
    #expect(try again.item("late")?.title == "kept")
    #expect(try again.store.inboxRefusals().map(\.lsn) == refusals.dropFirst().map(\.lsn))
    #expect(error { try again.store.writeBlocking { try $0.end(first) } }?.code == .noSuchRecord)
    try await again.store.compact()
    try await again.store.close()
    let third = try await Scene(scene.disk, seed: 4)
    #expect(try third.store.inboxRefusals().map(\.lsn) == refusals.dropFirst().map(\.lsn))
    try await third.store.close()
  }

  @Test func `deletions and creations are those of the life that was seen`() async throws {
    let scene = try await Scene()
    try await scene.store.write { tx in
      try tx.save(Item(title: "a"))
      try tx.save(Item(id: "gone"))
    }
    let inbox = try scene.inbox()
    try inbox.write { tx in
      try tx.delete(Item.self, id: "n")
      try tx.delete(Item.self, id: "gone")
    }
    // The app has begun another life of the one, and has deleted the other already.
    try await scene.store.write { tx in
      try tx.delete(Item.self, id: "n")
      try tx.create(Item(title: "another"))
      try tx.delete(Item.self, id: "gone")
    }
    try scene.store.refresh()
    #expect(try scene.item()?.title == "another" && scene.item("gone") == nil)
    try inbox.write { tx in
      try tx.create(Item(id: "gone", title: "again"))
      try tx.delete(Item.self, id: "n")
    }
    try scene.store.refresh()
    #expect(try scene.item("gone")?.title == "again" && scene.item() == nil)
    #expect(try scene.inboxStatus?.refusals == [])
    // Both have begun a record under one name: one record, with the later fields.
    try inbox.write { try $0.save(Item(id: "twice", title: "extension", body: "b")) }
    scene.pass(seconds: 1)
    try await scene.store.write { try $0.save(Item(id: "twice", title: "app")) }
    try scene.store.refresh()
    #expect(try scene.item("twice")?.title == "app")
    // One that was to be created is refused.
    try inbox.write { try $0.create(Item(id: "both")) }
    try await scene.store.write { try $0.create(Item(id: "both")) }
    try scene.store.refresh()
    #expect(try scene.inboxStatus?.refusals.map(\.code) == [.recordExists])
    try await scene.store.close()
  }

  @Test func `an older copy of the inbox that was put back loses and doubles nothing`() async throws {
    let scene = try await Scene()
    try await scene.store.write { try $0.save(Item()) }
    let inbox = try scene.inbox()
    for _ in 0..<3 { try inbox.write { try $0.update(Item.self, id: "n") { $0.opens += 1 } } }
    let files = scene.disk.paths.filter { $0.hasPrefix("/store/inbox/") }.map { ($0, scene.disk.peek($0) ?? []) }
    for _ in 0..<3 { try inbox.write { try $0.update(Item.self, id: "n") { $0.opens += 1 } } }
    try scene.store.refresh()
    #expect(try scene.item()?.opens == 6)
    for path in scene.disk.paths where path.hasPrefix("/store/inbox/") { scene.disk.pokeRemove(path) }
    for (path, bytes) in files { scene.disk.poke(path, bytes) }
    try inbox.write { try $0.update(Item.self, id: "n") { $0.opens += 1 } }
    try scene.store.refresh()
    #expect(try scene.item()?.opens == 7 && scene.inboxStatus?.failure == nil)
    // One that was removed is made again.
    for path in scene.disk.paths where path.hasPrefix("/store/inbox/") { scene.disk.pokeRemove(path) }
    try inbox.write { try $0.update(Item.self, id: "n") { $0.opens += 1 } }
    try scene.store.refresh()
    #expect(try scene.item()?.opens == 8)
    try await scene.store.close()
  }

  @Test func `the inbox of another store, and a damaged one, are left as they are and said`() async throws {
    let scene = try await Scene()
    let other = SimulatedDisk()
    let otherScene = try await Scene(other, seed: 7)
    try otherScene.inbox().write { try $0.save(Item(id: "other")) }
    try await otherScene.store.close()
    for path in other.paths where path.hasPrefix("/store/inbox/") { scene.disk.poke(path, other.peek(path) ?? []) }
    #expect(error { try scene.store.refresh() }?.code == .notAStore)
    #expect(try scene.inboxStatus?.transactions == 1 && scene.inboxStatus?.failure?.contains("another store") == true)
    #expect(error { _ = try scene.inbox().write { try $0.save(Item()) } }?.code == .notAStore)
    #expect(try scene.item("other") == nil)
    for path in scene.disk.paths where path.hasPrefix("/store/inbox/") { scene.disk.pokeRemove(path) }
    try scene.inbox().write { try $0.save(Item(title: "a")) }
    let segment = try #require(scene.disk.paths.first { $0.hasPrefix("/store/inbox/") && $0.hasSuffix(".seg") })
    var bytes = try #require(scene.disk.peek(segment))
    bytes[4_200] ^= 1
    scene.disk.poke(segment, bytes)
    #expect(error { try scene.store.refresh() }?.code == .damaged)
    // The store opens, reads and writes all the same.
    try await scene.store.close()
    let again = try await Scene(scene.disk, seed: 3)
    #expect(try again.inboxStatus?.failure != nil)
    try await again.store.write { try $0.save(Item(id: "fine")) }
    bytes[4_200] ^= 1
    scene.disk.poke(segment, bytes)
    try again.store.refresh()
    #expect(try again.item()?.title == "a" && again.inboxStatus?.failure == nil)
    try await again.store.close()
  }

  @Test func `a process that has the inbox open keeps the store from nothing else`() async throws {
    let scene = try await Scene()
    try scene.inbox().write { try $0.save(Item(id: "a")) }
    let environment = SystemEnvironment(
      fileSystem: scene.disk, clock: scene.clock, random: SeededRandom(seed: 11))
    let held = try Log.open(at: "/store/inbox", role: .inbox, environment: environment) { _ in }
    #expect(try !scene.store.refresh())
    try await scene.store.write { try $0.save(Item()) }
    #expect(error { _ = try scene.inbox().write { try $0.save(Item(id: "b")) } }?.code == .storeHeld)
    try held.close()
    #expect(try scene.store.refresh())
    #expect(try scene.item("a") != nil && scene.inboxStatus?.transactions == 0)
    // A full disk takes nothing in, and loses nothing.
    try scene.inbox().write { try $0.save(Item(id: "c", title: String(repeating: "x", count: 50_000))) }
    try await scene.store.close()
    scene.disk.capacity = scene.disk.usedBytes
    let again = try await Scene(scene.disk, seed: 3)
    if try again.item("c") == nil { #expect(try again.inboxStatus?.transactions == 1) }
    scene.disk.capacity = nil
    try again.store.refresh()
    #expect(try again.item("c") != nil)
    try await again.store.close()
  }

  @Test func `without a store nothing is made, and no call waits for itself`() async throws {
    let disk = SimulatedDisk()
    let inbox = try RecordStore.inbox(at: "/nothing", environment: .simulated(disk: disk, seed: 1))
    #expect(error { _ = try inbox.write { try $0.save(Item()) } }?.code == .noSuchStore)
    #expect(disk.paths.isEmpty && disk.directoryPaths.isEmpty)
    let scene = try await Scene()
    try scene.inbox().write { try $0.save(Item()) }
    let store = scene.store
    try store.writeBlocking { _ in #expect(error { try store.refresh() }?.code == .misuse) }
    try await scene.store.close()
  }
}
