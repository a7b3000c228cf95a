// Goal: more than three hundred conditions as an app writes them have the answers of plain closures, over pages of every kind: of
// this app, of another device or a tool whose numbers are none or have no end, and none at all. Method: each store is asked all
// of them, with and without indexes.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30)))
struct WrittenQueryTests {
  private static let cases = TypedQueryTests.cases + WrittenTexts.cases + WrittenValues.cases + WrittenLists.cases

  /// Whom a store has its pages of.
  enum Origin: CaseIterable { case app, server, nobody }

  private func open(_ origin: Origin, indexes: [RecordIndex]) async throws -> RecordStore {
    guard origin == .server else {
      let store = try openPages(indexes: indexes)
      if origin == .app { try store.writeBlocking { tx in for page in pages(60, seed: 5) { try tx.save(page) } } }
      return store
    }
    let (feed, written) = (ScriptedFeed(), try openPages())
    let odd: [FieldValue] = [.double(.nan), .double(.infinity), .double(-.infinity), .double(-0.0), .int64(1)]
    try written.writeBlocking { tx in
      for (number, page) in pages(60, seed: 6).enumerated() {
        try tx.save(page)
        guard var record = try tx.record(page.recordID) else { continue }
        storeOtherwise(&record) { number % $0 }
        if number % 2 == 0 { record["price"] = odd[number / 2 % odd.count] }
        if number % 7 == 0 { record["rating"] = .double(.nan) }
        feed.add(record)
      }
    }
    try written.closeBlocking()
    var configuration = SyncConfiguration(feed)
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: pageOptions(indexes: indexes),
      environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.sync()
    return store
  }

  @Test(arguments: Origin.allCases, [false, true])
  func `every written condition has the answer of a plain closure`(origin: Origin, isIndexed: Bool) async throws {
    let store = try await open(origin, indexes: isIndexed ? allIndexes : [])
    try store.index?.flush()
    try store.buildIndexesBlocking()
    let all = try store.fetch(Page.self)
    #expect(all.count == (origin == .nobody ? 0 : 60) && all.unreadable.isEmpty)
    if origin == .server { #expect(all.contains { $0.price.isNaN } && all.contains { $0.rating?.isNaN == true }) }
    var (met, indexed) = (0, 0)
    for one in Self.cases {
      let expected = all.filter(one.isMet).map(\.id)
      let found = try store.fetch(Page.self, where: one.predicate)
      #expect(found.map(\.id) == expected && found.unreadable.isEmpty, "line \(one.line), \(one.predicate)")
      #expect(try store.count(Page.self, where: one.predicate) == expected.count, "line \(one.line)")
      if !expected.isEmpty { met += 1 }
      if try store.explain(Page.self, where: one.predicate).usesCondition { indexed += 1 }
    }
    print("written conditions: \(Self.cases.count), \(met) met, \(indexed) by an index (\(origin))")
    #expect(Self.cases.count >= 300)
    #expect(met >= (origin == .nobody ? 0 : Self.cases.count - 6), "\(met) of \(Self.cases.count)")
    #expect(isIndexed && origin != .nobody ? indexed > 80 : true, "\(indexed)")
    try await store.close()
  }
}
