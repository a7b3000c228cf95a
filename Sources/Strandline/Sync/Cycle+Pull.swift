// Pull: which zones changed, then each of them page by page. A page and its token are one transaction.

import StrandlineSystem
import Synchronization

extension Cycle {
  static let pageLimit = 200
  /// Pages in one fetch of a zone that leave the token where it is and say that more is to come.
  static let repeatsMax = 10
  /// Pages in a row that bring nothing and say that more is to come. Dozens have been seen.
  static let emptyPagesMax = 1_000

  mutating func pull() async throws {
    try await pullDatabase()
    let zones = sync.zones.filter { $0.value.isDirty && !$0.value.isLost }.keys.sorted()
    for zone in zones where options.zone == nil || options.zone == zone {
      do { try await pullZone(zone) } catch let error as CloudError where ErrorPolicy.request(error) != .signIn {
        // One zone that cannot be shown does not stop the others.
        refusedZones[zone] = error
      }
    }
    try await endBlocks()
  }

  // MARK: The database

  private mutating func pullDatabase() async throws {
    var moreComing = true
    var pages = 0
    while moreComing {
      pages += 1
      guard pages <= Self.emptyPagesMax else {
        throw CloudError(.unexpectedServerResponse, reason: "the list of changed zones does not end")
      }
      let asked = sync.databaseToken
      var token = asked
      let page: DatabasePage
      do {
        page = try await askDatabase(since: asked)
      } catch let error as CloudError where asked != nil && ErrorPolicy.mayBeExpiredToken(error) {
        // Once without the token: only if that works was it the token's fault.
        token = nil
        page = try await askDatabase(since: nil)
      }
      guard page.token != asked || !page.zones.isEmpty else {
        guard page.moreComing else { return }
        throw CloudError(
          .unexpectedServerResponse, reason: "more changes are said to come, but none and no new token do")
      }
      guard !page.moreComing || page.token != asked else {
        throw CloudError(
          .unexpectedServerResponse, reason: "more changes are said to come, and the token stays the same")
      }
      let scope = database.address.scope
      try await store.commit { core in
        guard core.projections.sync.databaseToken == asked else { return }
        if token == nil, asked != nil {
          // A list from the beginning does not name what was deleted meanwhile: each zone is asked for itself.
          for zone in core.projections.sync.zones.keys.sorted() {
            core.append(.zoneChanged(ZoneChanged(zone: zone, change: .dirty, reason: "the database's token expired")))
          }
        }
        for zone in page.zones {
          var id = zone.id
          id.scope = scope
          if zone.isDeleted {
            // Only what was seen here can be lost here.
            if core.projections.sync.zones[id]?.wasSeen == true {
              core.append(
                .zoneChanged(ZoneChanged(zone: id, change: .lost, reason: "deleted at the server", policy: "freeze")))
            }
          } else {
            core.append(.zoneChanged(ZoneChanged(zone: id, change: .dirty)))
          }
        }
        core.append(.tokenAdvanced(TokenAdvanced(zone: nil, asked: token, token: page.token)))
      }
      moreComing = page.moreComing
    }
  }

  private mutating func askDatabase(since token: ChangeToken?) async throws -> DatabasePage {
    try await lane.ask("asking which zones changed") { [database] in
      try await database.databaseChanges(since: token, limit: Self.pageLimit)
    }
  }

  // MARK: A zone

  /// Fetches a zone to its end, from where this store stands; `fromStart`, from its beginning, because the zone's life is
  /// in doubt. The token that was there stays until the first page without it is here.
  mutating func pullZone(_ zone: ZoneID, fromStart: Bool = false) async throws {
    var limit = Self.pageLimit
    var moreComing = true
    var startsOver = fromStart
    var repeats = 0
    var emptyPages = 0
    while moreComing {
      let asked = sync.zones[zone]?.token
      var isReset = startsOver && asked != nil
      let page: ZonePage
      do {
        (page, isReset) = try await askZone(zone, since: asked, fromStart: isReset, limit: limit)
      } catch let error as CloudError where error.code == .zoneNotFound {
        try await lose(zone, "the server says: \(error)")
        return
      }
      emptyPages = page.changes.isEmpty ? emptyPages + 1 : 0
      guard emptyPages <= Self.emptyPagesMax else {
        throw CloudError(
          .unexpectedServerResponse,
          reason: "\(emptyPages) pages of zone '\(zone)' in a row were empty and said that more is to come")
      }
      if page.moreComing, page.token == asked {
        // An old page may come between; a server that goes on like this is in a loop.
        repeats += 1
        guard repeats <= Self.repeatsMax, !page.changes.isEmpty else {
          throw CloudError(
            .unexpectedServerResponse,
            reason: "more changes of zone '\(zone)' are said to come, and the token stays the same")
        }
      }
      do {
        try await commit(page, of: zone, asked: asked, isReset: isReset)
      } catch let error as StrandlineError where error.code == .tooLarge && limit > 1 {
        limit /= 2
        continue
      }
      startsOver = false
      moreComing = page.moreComing
    }
  }

  /// One page; `isReset` if it was asked without the token that is there. A token that is refused is tried without once:
  /// if that fails too, the token was innocent and stays.
  private mutating func askZone(
    _ zone: ZoneID, since token: ChangeToken?, fromStart: Bool, limit: Int
  ) async throws -> (page: ZonePage, isReset: Bool) {
    do {
      return (try await askZone(zone, since: fromStart ? nil : token, limit: limit), fromStart)
    } catch let error as CloudError where token != nil && !fromStart && ErrorPolicy.mayBeExpiredToken(error) {
      return (try await askZone(zone, since: nil, limit: limit), true)
    }
  }

  private mutating func askZone(_ zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await lane.ask("fetching changes of zone '\(zone)'") { [database] in
      try await database.zoneChanges(in: zone, since: token, limit: limit)
    }
  }

  /// Applies a page: all of it and its token, or nothing.
  private mutating func commit(_ page: ZonePage, of zone: ZoneID, asked: ChangeToken?, isReset: Bool) async throws {
    let isFullFetch = isReset || asked == nil || sync.zones[zone]?.isFullFetch == true
    var intake = Intake(isFullFetch ? .fullFetch : .delta)
    let wall = store.environment.clock.wallMilliseconds()
    try await store.commit { core in
      // A page that was asked with a token that is no longer current speaks of another time: drop it whole.
      guard core.projections.sync.zones[zone]?.token == asked else { return }
      if isReset {
        core.append(
          .zoneChanged(
            ZoneChanged(zone: zone, change: .reset, reason: "the change token was refused or is in doubt")))
      }
      for change in page.changes {
        switch change {
        case .saved(let record): try intake.take(record, as: RecordID(record.name, zone: zone), &core)
        case .deleted(let name): try intake.takeDeletion(of: RecordID(name, zone: zone), &core)
        case .failed(let name, let error):
          intake.report.held += 1
          core.append(
            .held(
              Held(
                id: RecordID(name, zone: zone), direction: .download, lsn: .none, code: error.code.rawValue,
                words: error.reason, requestUUID: error.requestUUID ?? "", attempts: 1, wallMilliseconds: wall)))
          // The token moves on; the record is asked for until it can be shown.
          core.append(
            .blocked(
              Blocked(
                id: RecordID(name, zone: zone), subject: .version, births: [], consequence: .lookup,
                words: "the server could not show it")))
        }
      }
      if page.token != asked || isReset {
        core.append(
          .tokenAdvanced(TokenAdvanced(zone: zone, asked: isReset ? nil : asked, token: page.token)))
      }
      if !page.moreComing, core.projections.sync.zones[zone]?.isDirty == true {
        core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
      }
    }
    report.add(intake.report)
  }

  mutating func lose(_ zone: ZoneID, _ reason: String) async throws {
    try await store.commit { core in
      core.append(.zoneChanged(ZoneChanged(zone: zone, change: .lost, reason: reason, policy: "freeze")))
    }
  }

  // MARK: Blocks

  /// A block must end in agreement: ask what the server really holds.
  private mutating func endBlocks() async throws {
    var byZone: [ZoneID: [String]] = [:]
    for (id, block) in sync.openBlocks where block.consequence == .lookup {
      if sync.zones[id.zone]?.isLost != true { byZone[id.zone, default: []].append(id.name) }
    }
    for (zone, names) in byZone.sorted(by: { $0.key < $1.key }) { try await lookUp(names.sorted(), in: zone) }
  }

  /// Looks records up and takes in what the server says, a request's answers in one transaction.
  mutating func lookUp(_ names: [String], in zone: ZoneID) async throws {
    var rest = names[...]
    while !rest.isEmpty {
      let some = Array(rest.prefix(UploadPlan.operationsMax))
      rest = rest.dropFirst(some.count)
      let found = try await lane.ask("looking up \(some.count) records of zone '\(zone)'") { [database] in
        try await database.lookup(some, in: zone)
      }
      var intake = Intake(.lookup)
      var absent: Set<RecordID> = []
      try await store.commit { core in
        for name in some {
          let id = RecordID(name, zone: zone)
          switch found[name] {
          case .record(let record): try intake.take(record, as: id, &core)
          case .deleted: absent.insert(id)
          case .failed(let error, _) where error.code == .notFound: absent.insert(id)
          case .failed(let error, _):
            // Unanswered, it stays as it is and is asked again in the next cycle; the others go on.
            if ErrorPolicy.item(error) == .signIn { throw error }
          case nil: break
          }
        }
        for id in absent.sorted() { try Self.takeAbsence(of: id, &intake, &core) }
      }
      report.add(intake.report)
      missing.formUnion(absent.filter { id in store.core.withLock { $0.projections.records[id]?.base != nil } })
    }
  }

  /// A direct question found nothing. That ends a block, and the doubt about a deletion; whether a record that we hold is
  /// deleted, only the feed may say.
  private static func takeAbsence(of id: RecordID, _ intake: inout Intake, _ core: inout StoreCore) throws {
    if let block = core.projections.sync.openBlocks[id] {
      if block.subject == .deletion {
        try intake.takeDeletion(of: id, isConfirmed: true, &core)
      } else {
        core.append(
          .blocked(
            Blocked(id: id, subject: .version, births: [], consequence: .none, words: "the server does not have it")))
      }
    }
    guard let entry = core.projections.records[id], let pending = entry.pending, pending.isDeletion else { return }
    core.append(
      .settled(Settled(id: id, lsn: pending.newest, outcome: entry.base == nil ? .cancelled : .deleted)))
  }
}
