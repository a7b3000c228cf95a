// The tutorial's app, step by step: HouseTests finds each of its blocks here, letter by letter.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineServer
import StrandlineTestSupport
import StrandlineTesting
import Testing

struct Page: SyncRecord {
  static var schema: [SchemaRule<Page>] {
    [.merge(\.tags, .union), .index(\.title)]  // tags of both devices stay; titles are found without reading all pages
  }

  var id = RecordName.random()
  var title: String
  var text = ""
  var tags: Set<String> = []
}

@MainActor
final class Notebook {
  let store: RecordStore
  let pages: Live<TypedValues<Page>>  // @Observable: a view that reads `pages.value` is drawn again

  init(at folder: String, syncing cloud: SyncConfiguration?, environment: StoreEnvironment = .real) async throws {
    store = try await RecordStore.open(at: folder, types: [Page.self], syncing: cloud, environment: environment)
    pages = store.live(Page.self, sortedBy: .ascending(\.title))
  }

  func add(_ title: String) async throws -> Page {
    let page = Page(title: title)
    try await store.write { try $0.save(page) }  // it is durable when this returns
    return page
  }

  func change(_ id: Page.ID, _ body: @Sendable (inout Page) -> Void) async throws {
    try await store.update(Page.self, id: id, body)  // the fields that the closure changes, and no others
  }

  func find(_ beginning: String) throws -> [Page] {
    Array(try store.fetch(Page.self, where: #Predicate { $0.title.starts(with: beginning) }))
  }
}

func localServer(_ url: String) -> SyncConfiguration {
  .cloudKitWeb("iCloud.example.notebook", environment: .development, baseURL: url)
}

func conflictLines(of page: Page.ID, in store: RecordStore) throws -> [String] {
  try store.conflicts(of: Page.recordID(page)).flatMap { conflict in
    conflict.fields.map { field in
      let mine = conflict.local?[field.name].map { "\($0)" } ?? "nothing"
      let theirs = conflict.server?[field.name].map { "\($0)" } ?? "nothing"
      return "\(field.name): here \(mine), there \(theirs), lost: \(field.loser)"
    }
  }
}

@MainActor @Test(.timeLimit(.minutes(30)))
func `two devices edit a page, and both edits stay or are told`() async throws {
  let (cloud, clock) = (SimulatedCloud(), SimulatedClock())
  let phone = try await Notebook(
    at: "/book", syncing: .simulated(cloud),
    environment: .simulated(disk: SimulatedDisk(), clock: clock, seed: 1))
  let tablet = try await Notebook(
    at: "/book", syncing: .simulated(cloud),
    environment: .simulated(disk: SimulatedDisk(), clock: clock, seed: 2))
  let page = try await phone.add("Harbour")
  try await phone.store.sync()
  try await tablet.store.sync()

  try await phone.change(page.id) { ($0.title, $0.tags) = ("Old harbour", ["north"]) }
  clock.advance(by: .seconds(60))
  try await tablet.change(page.id) { ($0.title, $0.tags) = ("New harbour", ["quiet"]) }
  try await phone.store.sync()
  try await tablet.store.sync()  // meets the phone's edit, merges, and sends what came of it
  try await phone.store.sync()

  for device in [phone, tablet] {
    let merged = try #require(try device.store.fetch(Page.self, id: page.id))
    #expect(merged.title == "New harbour")  // the change that was made last
    #expect(merged.tags == ["north", "quiet"])  // both, by the type's rule
  }
  let lines = try conflictLines(of: page.id, in: tablet.store)
  #expect(lines.contains { $0.hasPrefix("title: here") && $0.hasSuffix("lost: there") })
}

@MainActor @Test(.timeLimit(.minutes(30)))
func `a page that was added outlives a power cut at any call`() async throws {
  for call in 1...40 {
    let disk = SimulatedDisk()
    let book = try await Notebook(at: "/book", syncing: nil, environment: .simulated(disk: disk, seed: 1))
    let first = try await book.add("Harbour")
    disk.cutPower(atCall: disk.callCount + call)
    let second = try? await book.add("Lighthouse")

    let found = disk.afterPowerCut(seed: UInt64(call))
    let again = try await Notebook(at: "/book", syncing: nil, environment: .simulated(disk: found, seed: 2))
    #expect(try again.store.fetch(Page.self, id: first.id)?.title == "Harbour")
    if let second { #expect(try again.store.fetch(Page.self, id: second.id)?.title == "Lighthouse") }
  }
}

@MainActor @Test(.timeLimit(.minutes(30))) func `the notebook's list and search show what was added`() async throws {
  let book = try await Notebook(
    at: "/book", syncing: nil, environment: .simulated(disk: SimulatedDisk(), seed: 1))
  for title in ["Pier", "Harbour"] { _ = try await book.add(title) }
  while book.pages.value?.count != 2 { await Task.yield() }
  #expect(book.pages.value?.map(\.title) == ["Harbour", "Pier"])
  #expect(try book.find("Pi").map(\.title) == ["Pier"])
  try await book.store.close()
}

@MainActor @Test(.timeLimit(.minutes(30))) func `two notebooks meet at a server on this machine`() async throws {
  let folder = try TemporaryFolder()
  let server = try LocalServer.run()
  let phone = try await Notebook(at: folder("phone"), syncing: localServer(server.url))
  let page = try await phone.add("Harbour")
  try await phone.store.sync()
  let tablet = try await Notebook(at: folder("tablet"), syncing: localServer(server.url))
  try await tablet.store.syncEngine?.fetched()
  #expect(try tablet.store.fetch(Page.self, id: page.id)?.title == "Harbour")
  try await phone.store.close()
  try await tablet.store.close()
  server.stop()
  try await onThread("server") { try server.waitUntilStopped() }
}
