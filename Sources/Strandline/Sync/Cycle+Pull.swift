// Pull: asks which zones changed, then fetches each of them page by page. A page and its token are one transaction.

import StrandlineSystem
import Synchronization

extension Cycle {
  static let pageLimit = 200
  /// Pages in one fetch of a zone that may say that more is to come and leave the token unchanged.
  static let repeatsMax = 10
  /// Pages in a row that may be empty and say that more is to come. The live service was seen to send dozens.
  static let emptyPagesMax = 1_000

  mutating func pull() async throws {
    report.add(try await store.takeKept { [database] in database.record(readingAgain: $0, in: $1) }.report)
    try await pullDatabase()
    let zones = sync.zones.filter { $0.key.scope == scope && $0.value.isDirty && !$0.value.isLost }.keys.sorted()
    for zone in zones where options.zone == nil || options.zone == zone {
      do { try await pullZone(zone) } catch let error as CloudError where ErrorPolicy.request(error) != .signIn {
        // The other zones are fetched all the same; the cycle throws this error at its end.
        refusedZones[zone] = error
      }
    }
    try await lookUpBlockedRecords()
  }

  // MARK: The database

  private mutating func pullDatabase() async throws {
    var moreComing = true
    var pages = 0
    while moreComing {
      pages += 1
      guard pages <= Self.emptyPagesMax else {
        throw CloudError(
          .unexpectedServerResponse,
          reason: "the list of changed zones did not end after \(Self.emptyPagesMax) pages")
      }
      let asked = sync.databaseTokens[scope]
      var token = asked
      let page: DatabasePage
      do {
        page = try await requestDatabasePage(since: asked)
      } catch let error as CloudError where asked != nil && ErrorPolicy.mayBeExpiredToken(error) {
        // Asked once without the token. Only if that succeeds was the token the cause.
        token = nil
        page = try await requestDatabasePage(since: nil)
      }
      guard page.token != asked || !page.zones.isEmpty else {
        guard page.moreComing else { return }
        throw CloudError(
          .unexpectedServerResponse,
          reason: "the list of changed zones says that more is to come, without a zone or a new token")
      }
      guard !page.moreComing || page.token != asked else {
        throw CloudError(
          .unexpectedServerResponse,
          reason: "the list of changed zones says that more is to come, and its token stays the same")
      }
      let scope = scope
      try await store.commit { core in
        guard core.projections.sync.databaseTokens[scope] == asked else { return }
        if token == nil, asked != nil {
          // A list from the beginning does not name zones that were deleted meanwhile: fetch each known zone.
          for zone in core.projections.sync.zones.keys.sorted() where zone.scope == scope {
            try core.append(
              .zoneChanged(ZoneChanged(zone: zone, change: .dirty, words: "the database's token expired")))
          }
        }
        let account = Account(core.projections.sync)
        for zone in page.zones {
          var id = zone.id
          id.scope = scope
          id = account.canonical(id)
          if let loss = zone.loss {
            // A zone that this log never saw at the server has nothing here to freeze.
            if core.projections.sync.zones[id]?.wasSeen == true {
              try core.append(.zoneChanged(.lost(id, loss, words: "the list of changed zones says that it is gone")))
            }
          } else {
            try core.append(.zoneChanged(ZoneChanged(zone: id, change: .dirty)))
          }
        }
        try core.append(.databaseTokenAdvanced(DatabaseTokenAdvanced(scope: scope, asked: token, token: page.token)))
      }
      moreComing = page.moreComing
    }
  }

  private mutating func requestDatabasePage(since token: ChangeToken?) async throws -> DatabasePage {
    try await pacer.send("asking which zones changed") { [database] in
      try await database.databaseChanges(since: token, limit: Self.pageLimit)
    }
  }

  // MARK: A zone

  /// Fetches a zone to its end, from its token on; with `fromStart` from its beginning. The old token stays until the
  /// first page without it is durable.
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
        (page, isReset) = try await requestPage(of: zone, since: asked, fromStart: isReset, limit: limit)
      } catch let error as CloudError where error.code == .zoneNotFound {
        try await markMissing(zone, error)
        return
      }
      emptyPages = page.changes.isEmpty ? emptyPages + 1 : 0
      guard emptyPages <= Self.emptyPagesMax else {
        throw CloudError(
          .unexpectedServerResponse,
          reason: "\(emptyPages) pages of changes of zone '\(zone)' in a row were empty and said that more is to come")
      }
      if page.moreComing, page.token == asked {
        // The server may repeat an old page a few times; one that goes on is in a loop.
        repeats += 1
        guard repeats <= Self.repeatsMax, !page.changes.isEmpty else {
          throw CloudError(
            .unexpectedServerResponse,
            reason: "changes of zone '\(zone)': the server says that more is to come, and the token stays the same")
        }
      }
      do {
        try await apply(page, of: zone, asked: asked, isReset: isReset)
      } catch let error as StrandlineError where error.code == .tooLarge && limit > 1 {
        // The page exceeds one transaction: fetch it again in halves.
        limit /= 2
        continue
      }
      startsOver = false
      moreComing = page.moreComing
    }
  }

  /// Requests one page; `isReset`: without the token that this store has. If the server refuses the token, the page is
  /// requested once without it; if that fails too, the token was not the cause and is kept.
  private mutating func requestPage(
    of zone: ZoneID, since token: ChangeToken?, fromStart: Bool, limit: Int
  ) async throws -> (page: ZonePage, isReset: Bool) {
    do {
      return (try await requestPage(of: zone, since: fromStart ? nil : token, limit: limit), fromStart)
    } catch let error as CloudError where token != nil && !fromStart && ErrorPolicy.mayBeExpiredToken(error) {
      return (try await requestPage(of: zone, since: nil, limit: limit), true)
    }
  }

  private mutating func requestPage(of zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await pacer.send("fetching changes of zone '\(zone)'") { [database] in
      try await database.zoneChanges(in: zone, since: token, limit: limit)
    }
  }

  /// Applies a page and its token in one transaction.
  private mutating func apply(_ page: ZonePage, of zone: ZoneID, asked: ChangeToken?, isReset: Bool) async throws {
    let isFullFetch = isReset || asked == nil || sync.zones[zone]?.isFullFetch == true
    let changes = page.changes.map { change in
      switch change {
      case .saved(let record): ServerChange(RecordID(record.name, zone: zone), .version(record))
      case .deleted(let name): ServerChange(RecordID(name, zone: zone), .deletion)
      case .failed(let name, let error): ServerChange(RecordID(name, zone: zone), .unreadable(error))
      }
    }
    let taken = try await store.take(
      changes, isFullFetch ? .fullFetch : .delta, serverOffset: database.serverOffsetMilliseconds
    ) { core in
      // Requested with a token that is no longer the zone's: the page may be older than what is here. Drop it whole.
      guard core.projections.sync.zones[zone]?.token == asked else { return false }
      if isReset {
        try core.append(
          .zoneChanged(
            ZoneChanged(zone: zone, change: .reset, words: "the change token was refused or is in doubt")))
      }
      return true
    } after: { core in
      if page.token != asked || isReset {
        try core.append(
          .tokenAdvanced(TokenAdvanced(zone: zone, asked: isReset ? nil : asked, token: page.token)))
      }
      if !page.moreComing, core.projections.sync.zones[zone]?.isDirty == true {
        try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .clean)))
      }
    }
    report.add(taken.report)
  }

  /// The server answered that it does not have the zone.
  mutating func markMissing(_ zone: ZoneID, _ error: CloudError) async throws {
    try await store.commit { core in
      try core.append(.zoneChanged(.lost(zone, .notFound, words: "the server does not have it: \(error)")))
    }
  }

  // MARK: Lookups

  /// Looks up the blocked records: the answer says what the server holds now, which closes the block.
  private mutating func lookUpBlockedRecords() async throws {
    var byZone: [ZoneID: [String]] = [:]
    for (id, block) in sync.openBlocks where id.zone.scope == scope && block.consequence == .lookup {
      if sync.zones[id.zone]?.isLost != true { byZone[id.zone, default: []].append(id.name) }
    }
    for (zone, names) in byZone.sorted(by: { $0.key < $1.key }) { try await lookUp(names.sorted(), in: zone) }
  }

  /// Looks records up and applies the answers, those of one request in one transaction. A request whose answer is too large
  /// for the server is made again for half of its records.
  mutating func lookUp(_ names: [String], in zone: ZoneID) async throws {
    var rest = names[...]
    var most = UploadPlan.operationsMax
    while !rest.isEmpty {
      let some = Array(rest.prefix(most))
      let found: [String: CloudResult]
      do {
        found = try await pacer.send("looking up \(some.count) records of zone '\(zone)'") { [database] in
          try await database.lookup(some, in: zone)
        }
      } catch let error as CloudError where ErrorPolicy.request(error) == .split && some.count > 1 {
        most = some.count / 2
        continue
      }
      rest = rest.dropFirst(some.count)
      var changes: [ServerChange] = []
      var absent: [RecordID] = []
      for name in some {
        let id = RecordID(name, zone: zone)
        switch found[name] {
        case .record(let record): changes.append(ServerChange(id, .version(record)))
        case .deleted: absent.append(id)
        case .failed(let error, _) where error.code == .notFound: absent.append(id)
        case .failed(let error, _) where !error.raw.isEmpty: changes.append(ServerChange(id, .unreadable(error)))
        case .failed(let error, _):
          // The record stays as it is and is looked up again in the next cycle.
          if ErrorPolicy.item(error) == .signIn { throw error }
        case nil: break
        }
      }
      changes += absent.sorted().map { ServerChange($0, .absence) }
      let taken = try await store.take(changes, .lookup, serverOffset: database.serverOffsetMilliseconds)
      report.add(taken.report)
      missing.formUnion(taken.absent)
    }
  }
}
