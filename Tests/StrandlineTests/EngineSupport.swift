// A cloud between an engine and the fleet's server that refuses what a test names, lets the app write during a request,
// and remembers what was sent.

import Strandline
import StrandlineCloudKit
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// A database that answers for one zone at a time, also where several are asked for at once.
protocol ZoneByZoneDatabase: ForwardingDatabase {
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage
  func zoneListing(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage
}

extension ZoneByZoneDatabase {
  func zoneListing(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await base.zoneListing(in: zone, since: token, limit: limit)
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    try await answers(to: queries) { query in
      query.listsOnly
        ? try await zoneListing(in: query.zone, since: query.token, limit: query.limit)
        : try await zoneChanges(in: query.zone, since: query.token, limit: query.limit)
    }
  }
}

/// The answers to queries, one after the other. What refuses the only one refuses the request.
func answers(
  to queries: [ZoneQuery], _ page: (ZoneQuery) async throws -> ZonePage
) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
  var answers: [ZoneID: Result<ZonePage, CloudError>] = [:]
  for query in queries {
    do { answers[query.zone] = .success(try await page(query)) } catch let error as CloudError where queries.count > 1 {
      answers[query.zone] = .failure(error)
    }
  }
  return answers
}

/// The fleet's server, with refusals.
final class RefusingCloud: CloudDatabase {
  /// The requests that a test can refuse as a whole.
  enum Request: Hashable, Sendable {
    case user, zones, createZone, deleteZone, modify, lookup, zoneChanges, databaseChanges
  }

  struct Script: Sendable {
    /// What operations on a record are answered with, one at a time; the last for ever if `isForever`.
    var items: [String: [CloudError]] = [:]
    /// What requests are answered with, one at a time.
    var requests: [Request: [any Error]] = [:]
    /// The last refusal of a list is repeated.
    var isForever = false
    /// Batches are applied, and answered with these, one at a time.
    var lostAnswers: [CloudError] = []
    /// Asked for each request before the server: an error refuses it as a whole.
    var refusal: (@Sendable (Request, [CloudOperation]) -> CloudError?)?
    /// Called before the n-th `modify` (from 1) reaches the server.
    var beforeModify: (@Sendable (Int) async throws -> Void)?
    /// Called when a batch has arrived, before it is answered.
    var afterModify: (@Sendable () throws -> Void)?
    /// Called before the n-th page of a zone is asked for (from 1).
    var beforePage: (@Sendable (Int) async throws -> Void)?
    /// Records that pages do not show.
    var hidden: Set<String> = []
    /// Records of pages and lookups that are shown in another form.
    var shown: [String: ZoneChange] = [:]
    /// What zones are answered with instead of their pages.
    var zones: [ZoneID: CloudError] = [:]
    /// Every request for pages, in order.
    var queries: [[ZoneQuery]] = []
    /// A conflict brings the server's version along, as the native adapter does.
    var bringsVersions = false
    /// Pages of zones show no deletions: the server has forgotten them, as CloudKit does in time.
    var hidesDeletions = false
    /// At most so many changes in a page; 0: as many as the engine asks for.
    var pageMax = 0
    /// Asked for what to show instead of the n-th page of a zone's changes (from 1).
    var page: (@Sendable (Int, ZonePage) -> ZonePage)?
    /// The same for the list of changed zones.
    var list: (@Sendable (Int, DatabasePage) -> DatabasePage)?
    /// Every batch that was sent, in order; and whether all of it or nothing was to be applied.
    var batches: [[CloudOperation]] = []
    var areAtomic: [Bool] = []
    /// How often each request was made.
    var counts: [Request: Int] = [:]
  }

  let web: WebServicesDatabase
  let script = Mutex(Script())

  init(_ device: Device) { web = device.web() }

  /// Changes what the cloud does.
  func refuse(_ body: @Sendable (inout Script) -> Void) { script.withLock { body(&$0) } }

  /// The names of each batch, in order.
  var sent: [[String]] { script.withLock { $0.batches.map { $0.map(\.name) } } }
  var requestCount: Int { script.withLock { $0.counts.values.reduce(0, +) } }
  func count(_ request: Request) -> Int { script.withLock { $0.counts[request] ?? 0 } }
  var areAtomic: [Bool] { script.withLock { $0.areAtomic } }
  func forgetSent() { script.withLock { ($0.batches, $0.areAtomic, $0.counts) = ([], [], [:]) } }

  private func check(_ request: Request, _ operations: [CloudOperation] = []) throws {
    try script.withLock { script in
      script.counts[request, default: 0] += 1
      if let refusal = script.refusal?(request, operations) { throw refusal }
      guard let first = script.requests[request]?.first else { return }
      if !script.isForever || script.requests[request]?.count ?? 0 > 1 { script.requests[request]?.removeFirst() }
      throw first
    }
  }

  private static func next(_ name: String, _ script: inout Script) -> CloudError? {
    guard let first = script.items[name]?.first else { return nil }
    if !script.isForever || script.items[name]?.count ?? 0 > 1 { script.items[name]?.removeFirst() }
    return first
  }

  var address: CloudAddress { web.address }

  func user() async throws -> String {
    try check(.user)
    return try await web.user()
  }

  func zones() async throws -> [ZoneID] {
    try check(.zones)
    return try await web.zones()
  }

  func createZone(_ zone: ZoneID) async throws {
    try check(.createZone)
    try await web.createZone(zone)
  }

  func deleteZone(_ zone: ZoneID) async throws {
    try check(.deleteZone)
    try await web.deleteZone(zone)
  }

  func modify(_ operations: [CloudOperation], in zone: ZoneID, atomic: Bool) async throws -> [CloudName: CloudResult] {
    let (number, hook) = script.withLock { script in
      script.batches.append(operations)
      script.areAtomic.append(atomic)
      return (script.batches.count, script.beforeModify)
    }
    try await hook?(number)
    try check(.modify, operations)
    var refused: [CloudName: CloudResult] = [:]
    script.withLock { script in
      for operation in operations {
        if let error = Self.next(operation.name, &script) {
          refused[operation.name] = .failed(error, serverRecord: nil)
        }
      }
    }
    var rest = operations.filter { refused[$0.name] == nil }
    if atomic, !refused.isEmpty {
      for operation in rest {
        refused[operation.name] = .failed(CloudError(.atomicError, reason: "another one failed"), serverRecord: nil)
      }
      rest = []
    }
    var results = try await web.modify(rest, in: zone, atomic: atomic)
    if script.withLock({ $0.bringsVersions }) {
      let conflicts = results.filter { _, result in
        if case .failed(let error, _) = result { error.code == .conflict } else { false }
      }
      let versions = try await web.lookup(conflicts.keys.sorted().texts, in: zone)
      for (name, result) in conflicts {
        guard case .failed(let error, _) = result, case .record(let server)? = versions[name] else { continue }
        results[name] = .failed(error, serverRecord: server)
      }
    }
    try script.withLock { $0.afterModify }?()
    if let lost = script.withLock({ $0.lostAnswers.isEmpty ? nil : $0.lostAnswers.removeFirst() }) { throw lost }
    return results.merging(refused) { first, _ in first }
  }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    try check(.lookup)
    var results = try await web.lookup(names, in: zone)
    let shown = script.withLock { $0.shown }
    for name in names {
      if case .failed(_, let error)? = shown[name] { results[name] = .failed(error, serverRecord: nil) }
    }
    return results
  }

  func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
    try check(.zoneChanges)
    let (number, before) = script.withLock { ($0.counts[.zoneChanges] ?? 0, $0.beforePage) }
    try await before?(number)
    let pageMax = script.withLock { $0.pageMax }
    let queries = queries.map { query in
      var query = query
      if pageMax > 0 { query.limit = min(pageMax, query.limit) }
      // It has no pages without fields.
      query.listsOnly = false
      return query
    }
    script.withLock { $0.queries.append(queries) }
    var answers = try await web.zoneChanges(of: queries)
    for (zone, error) in script.withLock({ $0.zones }) where answers[zone] != nil { answers[zone] = .failure(error) }
    return answers.mapValues { $0.map { shown($0, number) } }
  }

  /// What the script makes of a page.
  private func shown(_ page: ZonePage, _ number: Int) -> ZonePage {
    let (shown, hidden, hidesDeletions) = script.withLock { ($0.shown, $0.hidden, $0.hidesDeletions) }
    var page = page
    if hidesDeletions {
      page.changes.removeAll { change in
        if case .deleted = change { true } else { false }
      }
    }
    page.changes.removeAll { change in
      if case .saved(let record) = change { hidden.contains(record.name) } else { false }
    }
    page.changes = page.changes.map { change in
      guard case .saved(let record) = change else { return change }
      return shown[record.name] ?? change
    }
    let hook = script.withLock { $0.page }
    return hook?(number, page) ?? page
  }

  func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
    try check(.databaseChanges)
    let page = try await web.databaseChanges(since: token, limit: limit)
    let (number, hook) = script.withLock { ($0.counts[.databaseChanges] ?? 0, $0.list) }
    return hook?(number, page) ?? page
  }
}

extension Device {
  /// Opens the store with a cloud that refuses what a test names.
  func openRefusing(atomicZones: Set<ZoneID> = []) async throws -> RefusingCloud {
    try await close()
    let cloud = RefusingCloud(self)
    try await open(database: cloud, atomicZones: atomicZones)
    return cloud
  }

  /// Saves a record with these fields.
  func write(
    _ name: String, _ fields: [String: FieldValue] = [:], type: String = "Note", zone: ZoneID = .main,
    parent: String? = nil
  ) async throws {
    let id = RecordID(name, zone: zone)
    try await open().write { tx in
      var record = try tx.record(id) ?? Record(type: type, id: id)
      for (field, value) in fields { record[field] = value }
      if let parent { record.parent = parent }
      try tx.save(record)
    }
  }

  func erase(_ name: String, zone: ZoneID = .main) async throws {
    try await open().write { tx in try tx.delete(RecordID(name, zone: zone)) }
  }

  var unsettled: Int { get async throws { try await open().status().unsettled } }

  /// Whether nothing is unsettled, held or lost.
  var owesNothing: Bool {
    get async throws {
      let status = try await open().status()
      return status.unsettled == 0 && status.held.isEmpty && status.zones.allSatisfy { !$0.isLost }
    }
  }

  /// Runs a cycle, whose error it returns, and checks the store's invariants.
  @discardableResult
  func run(waitMillisecondsMax: Int64? = 30_000, isUserInitiated: Bool = true) async throws -> StrandlineError? {
    var found: StrandlineError?
    do {
      try await sync(waitMillisecondsMax: waitMillisecondsMax, isUserInitiated: isUserInitiated)
    } catch let error as StrandlineError { found = error }
    let broken = try await brokenInvariant()
    #expect(broken == nil)
    return found
  }
}

/// A reference that binds.
func link(_ name: String, _ action: Reference.Action = .validate) -> FieldValue {
  .reference(Reference(name, action: action))
}

extension CloudDatabase {
  private func page(_ query: ZoneQuery) async throws -> ZonePage {
    guard let answer = try await zoneChanges(of: [query])[query.zone] else {
      throw CloudError(.unexpectedServerResponse, reason: "the answer says nothing of zone '\(query.zone)'")
    }
    return try answer.get()
  }

  /// The page of one zone.
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await page(ZoneQuery(zone, since: token, limit: limit))
  }

  /// The same without the values of fields.
  func zoneListing(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await page(ZoneQuery(zone, since: token, limit: limit, listsOnly: true))
  }
}
