// A condition beside its meaning, and the stores that are asked: as an app writes its pages, and as another device or a tool may
// have left them at the server.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Synchronization

/// A condition, and what it means.
struct Case: Sendable {
  let predicate: Predicate<Page>
  let isMet: @Sendable (Page) -> Bool
  let line: Int
  init(_ predicate: Predicate<Page>, line: Int = #line, _ isMet: @escaping @Sendable (Page) -> Bool) {
    (self.predicate, self.isMet, self.line) = (predicate, isMet, line)
  }
}

func pages(_ count: Int, seed: UInt64) -> [Page] {
  let random = SeededRandom(seed: seed)
  return (0..<count).map { number in Page("p\(100 + number)") { Int(random.below(UInt64($0))) } }
}

// Texts are compared by their UTF-8.
func same(_ left: String?, _ right: String?) -> Bool { left.map { Array($0.utf8) } == right.map { Array($0.utf8) } }
func less(_ left: String, _ right: String) -> Bool { left.utf8.lexicographicallyPrecedes(right.utf8) }
func begins(_ text: String, _ start: String) -> Bool { text.utf8.starts(with: start.utf8) }
func has(_ text: String, _ part: String) -> Bool {
  let (all, part) = (Array(text.utf8), Array(part.utf8))
  return all.indices.contains { all[$0...].starts(with: part) } || part.isEmpty
}

/// A cloud that has what a test gives it, hands it out in pages, and takes all that it is sent.
final class ScriptedFeed: CloudDatabase {
  /// The versions in their order; of a record that has a newer one, nil.
  private let versions = Mutex<[ServerRecord?]>([])
  private let zone: ZoneID
  private let pageMax: Int

  init(zone: ZoneID = Page.zone, pageMax: Int = 200) { (self.zone, self.pageMax) = (zone, pageMax) }

  func add(_ record: Record) {
    _ = add(
      CloudOperation(.create, name: record.id.name, type: record.type, fields: record.fields, parent: record.parent))
  }

  private func add(_ operation: CloudOperation) -> ServerRecord {
    versions.withLock { versions in
      let place = versions.firstIndex { $0?.name == operation.name }
      var record = ServerRecord(name: operation.name, type: operation.type)
      if let place, let known = versions[place] {
        record = known
        versions[place] = nil
      }
      for (field, value) in operation.fields { record.fields[field] = value }
      (record.parent, record.system) = (operation.parent, SystemFields(changeTag: "t\(versions.count)"))
      versions.append(record)
      return record
    }
  }

  private func page(since token: ChangeToken?, limit: Int) -> ZonePage {
    versions.withLock { versions in
      let begin = token.flatMap { Int($0.rawValue) } ?? 0
      let end = min(versions.count, begin + min(limit, pageMax))
      return ZonePage(
        changes: versions[begin..<end].compactMap { $0 }.map { .saved($0) }, token: ChangeToken(rawValue: "\(end)"),
        moreComing: end < versions.count)
    }
  }

  var address: CloudAddress { CloudAddress(container: "iCloud.test", environment: .development) }
  func user() async throws -> String { "_user" }
  func zones() async throws -> [ZoneID] { [zone] }
  func createZone(_ zone: ZoneID) async throws {}
  func deleteZone(_ zone: ZoneID) async throws {}
  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    Dictionary(uniqueKeysWithValues: operations.map { (CloudName($0.name), .record(add($0))) })
  }
  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    throw CloudError(.throttled)
  }
  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    var pages: [ZoneID: Result<ZonePage, CloudError>] = [:]
    for query in queries { pages[query.zone] = .success(page(since: query.token, limit: query.limit)) }
    return pages
  }
  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    DatabasePage(zones: [DatabasePage.Zone(id: zone)], token: ChangeToken(rawValue: "all"), moreComing: false)
  }
}
