// Queries: the records of one type and zone, or of all zones, that meet conditions, in an order, page by page.
//
// CloudKit answers from indexes that an app declares. This server has none: it walks the zone for each page, and reads those
// records alone whose fields the query names; it keeps no more of them than the page has, and gives up after a time. A page
// begins behind the version that the page before ended with, wherever that stands in the order now; so a record that
// changes between two pages may be shown twice, or not at all, as at CloudKit.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// What of the zones a query looks through.
  private struct QueryPart: Sendable {
    struct Entry: Sendable {
      var lsn: UInt64
      var zone: UInt64
      var name: String
      var modified: Int64
    }
    var entries: [Entry] = []
    /// The lives of the zones, with their names.
    var zones: [UInt64: String] = [:]
    /// The version that the page before ended with.
    var after: UInt64?
    /// The life that a marker names: of the zone; 0 for all zones.
    var life: UInt64 = 0
    var tenures: [ServerState.Tenure] = []
    var generation: UInt32 = 0
    /// The zone's token, if it is asked for.
    var token: String?
  }

  /// One page of the answer to a query.
  ///
  /// - Parameter showsToken: whether the answer has the zone's change token too.
  /// - Complexity: O(n log m) in the records of the type and of the page; if the query names fields, all records are read.
  func queryAnswer(
    _ message: QueryRequest, in key: DatabaseKey, showsToken: Bool = false, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    // A zone that is named counts, as at CloudKit.
    let name = message.zoneID == nil && message.zoneWide == true ? nil : try zoneName(message.zoneID, in: key)
    if showsToken { try checkHasToken(name ?? Names.defaultZone) }
    let query = try CheckedQuery(message.query, in: name.map { ZoneID($0, scope: key.scope) })
    memory.hold(recordCount(of: name, key) * MemoryLayout<QueryPart.Entry>.stride)
    let part = try queryPart(query, of: name, key, after: message.continuationMarker, showsToken)
    let limit = min(max(message.resultsLimit ?? limits.resultsMax, 1), limits.resultsMax)
    let reader = QueryReader(self, query)
    var last: FoundRecord?
    if let after = part.after { last = try lastShown(after, of: part, reader) }
    // One more than the page, which says that there is another.
    var first = FirstRecords(limit + 1, bytesMax: limits.answerBytesMax, query)
    for entry in part.entries {
      guard let record = try reader.found(entry.lsn, entry.zone, entry.name, entry.modified) else { continue }
      if let last, !last.precedes(record, query) { continue }
      first.insert(record)
      memory.hold(first.bytes)
    }
    return try write(first.sorted, min(limit, first.shownMax), part, message, key, &memory)
  }

  /// How many records a query may look through.
  private func recordCount(of name: String?, _ key: DatabaseKey) -> Int {
    core.withLock { core in
      if let name { return core.state.zone(name, in: key)?.entries.count ?? 0 }
      let lives = core.state.databases[key]?.zones.values
      return lives?.reduce(0) { $0 + (core.state.zones[$1]?.entries.count ?? 0) } ?? 0
    }
  }

  private func queryPart(
    _ query: CheckedQuery, of name: String?, _ key: DatabaseKey, after marker: String?, _ showsToken: Bool
  ) throws(ServerRefusal) -> QueryPart {
    try look { core throws(ServerRefusal) -> (QueryPart, UInt64) in
      var zones: [ZoneState] = []
      if let name {
        guard core.state.zone(name, in: key) != nil || name == Names.defaultZone else {
          throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
        }
        if let zone = core.state.zone(name, in: key) { zones.append(zone) }
      } else {
        zones = (core.state.databases[key]?.zones ?? [:]).values.compactMap { core.state.zones[$0] }
      }
      var part = QueryPart(tenures: core.state.tenures, generation: core.generation)
      if name != nil { part.life = zones.first?.life ?? 0 }
      for zone in zones {
        part.zones[zone.life] = zone.name
        for (name, entry) in zone.entries where !entry.isDeleted && entry.type.equalsUTF8(query.type) {
          part.entries.append(
            .init(lsn: entry.lsn, zone: zone.life, name: name.text, modified: entry.modified))
        }
      }
      let schema = core.state.schemas[Schema.Key(key)]
      guard !part.entries.isEmpty || schema?.knows(query.type) == true else {
        throw ServerRefusal(404, WireError(.notFound, "Did not find record type: \(query.type.prefix(255))"))
      }
      try query.check(schema)
      if let marker, !marker.isEmpty {
        do throws(WireReason) {
          part.after = try position(marker, kind: .query, life: part.life, core)
        } catch { throw .query(error.words) }
      }
      if showsToken, let zone = zones.first { part.token = token(zone, zone.lastLSN, core) }
      return (part, zones.map(\.lastLSN).max() ?? 0)
    }
  }

  /// The record that the page before ended with, as it was then.
  private func lastShown(
    _ lsn: UInt64, of part: QueryPart, _ reader: QueryReader
  ) throws(ServerRefusal) -> FoundRecord {
    // The event may be one that no marker of this server names: its checksum is no secret.
    do {
      let record = try RecordBytes(try journal.read(lsn))
      guard part.zones[record.zone] != nil else { throw SyncToken.invalidFormat }
      return try reader.placed(
        lsn, record.zone, record.text(record.name), try record.milliseconds(record.modified), record)
    } catch {
      throw .query(SyncToken.invalidFormat.words)
    }
  }

  private func write(
    _ found: [FoundRecord], _ limit: Int, _ part: QueryPart, _ message: QueryRequest, _ key: DatabaseKey,
    _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    let desired = DesiredFields(message.desiredKeys)
    let forms = part.zones.mapValues { name in
      AnswerForm(
        wireZone(name, key), own: ZoneID(name, owner: key.user, scope: key.scope), links: contentLinks())
    }
    var json = JSONWriter(capacity: 4096)
    json.beginObject()
    json.key("records")
    json.beginArray()
    var shown = 0
    for one in found.prefix(limit) where json.bytes.count < limits.answerBytesMax || shown == 0 {
      memory.hold(json.bytes.count)
      let record = try read(one.lsn)
      do throws(ByteReaderError) {
        try forms[one.zone]?.write(
          record, desired: desired, numbersAsStrings: message.numbersAsStrings ?? false, to: &json)
      } catch {
        throw ServerRefusal(500, WireError(.internalError, "event \(one.lsn) of the journal: \(error)"))
      }
      shown += 1
    }
    json.endArray()
    if shown < found.count, shown > 0 {
      let lsn = found[shown - 1].lsn
      json.key("continuationMarker")
      json.string(
        SyncToken(
          kind: .query, storeUUID: journal.storeUUID, life: part.life, tenure: part.tenures.tenure(of: lsn), lsn: lsn,
          generation: part.generation
        ).text)
    }
    if let token = part.token {
      json.key("syncToken")
      json.string(token)
    }
    json.endObject()
    return json.finish()
  }
}

/// Reads of records what a query is about, for as long as a query may take.
private struct QueryReader {
  private let server: CloudServer
  private let query: CheckedQuery
  private let deadline: UInt64

  init(_ server: CloudServer, _ query: CheckedQuery) {
    self.server = server
    self.query = query
    deadline = server.environment.clock.monotonicNanoseconds() &+ UInt64(server.limits.queryMillisecondsMax) * 1_000_000
  }

  /// A record with what it is sorted by; nil if it does not meet the conditions.
  func found(
    _ lsn: UInt64, _ zone: UInt64, _ name: String, _ modified: Int64
  ) throws(ServerRefusal) -> FoundRecord? {
    let record = query.readsRecords ? try server.read(lsn) : nil
    for condition in query.conditions {
      guard condition.matches(try read(condition.place, lsn, name, modified, record)) else { return nil }
    }
    return try placed(lsn, zone, name, modified, record)
  }

  /// A record with what it is sorted by.
  func placed(
    _ lsn: UInt64, _ zone: UInt64, _ name: String, _ modified: Int64, _ record: RecordBytes?
  ) throws(ServerRefusal) -> FoundRecord {
    try checkTime()
    var keys: [FieldValue?] = []
    for order in query.orders { keys.append(order.key(try read(order.place, lsn, name, modified, record))) }
    return FoundRecord(lsn: lsn, zone: zone, name: name, keys: keys)
  }

  private func read(
    _ place: QueryPlace, _ lsn: UInt64, _ name: String, _ modified: Int64, _ record: RecordBytes?
  ) throws(ServerRefusal) -> FieldValue? {
    try checkTime()
    do throws(ByteReaderError) { return try value(place, name, modified, record) } catch {
      throw ServerRefusal(500, WireError(.internalError, "event \(lsn) of the journal: \(error)"))
    }
  }

  /// - Throws: a refusal if the query has taken too long: its client may have gone long ago.
  private func checkTime() throws(ServerRefusal) {
    guard server.environment.clock.monotonicNanoseconds() > deadline else { return }
    throw ServerRefusal(
      503,
      WireError(
        .tryAgainLater,
        "the query takes more than \(server.limits.queryMillisecondsMax) ms here, which has no indexes; ask for less"))
  }

  private func value(
    _ place: QueryPlace, _ name: String, _ modified: Int64, _ record: RecordBytes?
  ) throws(ByteReaderError) -> FieldValue? {
    switch place {
    case .recordName: return .string(name)
    case .modified: return .date(milliseconds: modified)
    case .share: return nil
    default: break
    }
    guard let record else { return nil }
    switch place {
    case .created: return .date(milliseconds: try record.milliseconds(record.created))
    case .creator: return .string(try record.user(record.created))
    case .modifier: return .string(try record.user(record.modified))
    case .parent: return record.parent.map { .string(record.text($0)) }
    case .field(let name):
      guard let field = record.field(named: name) else { return nil }
      return try record.value(field)?.withoutAction
    case .allText:
      var texts: [FieldValue] = []
      for field in record.fields {
        switch try record.value(field) {
        case .string(let text)?: texts.append(.string(text))
        case .list(.strings, let items)?: texts += items
        default: break
        }
      }
      return .list(.strings, texts)
    case .recordName, .modified, .share: return nil
    }
  }
}
