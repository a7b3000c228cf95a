// Queries: the records of one type and zone that meet conditions, in an order, page by page.
//
// CloudKit answers from indexes that an app declares. This server has none: it walks the zone for each page, and reads those
// records alone whose fields the query names. A page begins behind the version that the page before ended with, wherever
// that stands in the order now; so a record that changes between two pages may be shown twice, or not at all, as at CloudKit.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

/// What a condition or an order of a query is about.
private enum QueryPlace: Hashable {
  case field(String)
  case recordName, created, modified

  /// - Throws: a refusal if the server does not know the place.
  init(_ fieldName: String?, _ systemFieldName: String?) throws(ServerRefusal) {
    switch (fieldName, systemFieldName) {
    case ("___recordId", nil), ("___recordID", nil), (nil, "recordName"): self = .recordName
    case ("___createTime", nil), (nil, "createdTimestamp"): self = .created
    case ("___modTime", nil), (nil, "modifiedTimestamp"): self = .modified
    case (let name?, nil) where !name.isEmpty && !name.hasPrefix("___"): self = .field(name)
    case (let name?, nil), (nil, let name?):
      throw .query("this server cannot query by '\(name.prefix(80))'")
    default: throw .query("a filter or a sort has one of fieldName and systemFieldName")
    }
  }
}

/// A query that was checked.
private struct CheckedQuery {
  var type: String
  var filters: [(place: QueryPlace, filter: RecordFilter)] = []
  var sorts: [(place: QueryPlace, isAscending: Bool)] = []

  /// The most conditions and orders. CloudKit names no limit.
  private static let partsMax = 100

  /// - Parameter zone: of the records.
  init(_ query: QueryRequest.Query, in zone: ZoneID) throws(ServerRefusal) {
    type = query.recordType
    guard !type.isEmpty else { throw .query("a query names a recordType") }
    guard query.filterBy.count <= Self.partsMax, query.sortBy.count <= Self.partsMax else {
      throw .query("a query has at most \(Self.partsMax) filters and \(Self.partsMax) sorts here")
    }
    for filter in query.filterBy {
      let place = try QueryPlace(filter.fieldName, filter.systemFieldName)
      filters.append((place, try Self.checked(filter, place, zone)))
    }
    for sort in query.sortBy {
      sorts.append((try QueryPlace(sort.fieldName, sort.systemFieldName), sort.ascending ?? true))
    }
  }

  private static func checked(
    _ filter: QueryRequest.Filter, _ place: QueryPlace, _ zone: ZoneID
  ) throws(ServerRefusal) -> RecordFilter {
    guard let comparator = RecordFilter.Comparator(rawValue: filter.comparator) else {
      throw .query("this server does not compare by '\(filter.comparator.prefix(80))'")
    }
    guard let value = filter.fieldValue else { throw .query("a filter has a fieldValue") }
    var values = [value]
    if comparator.takesList, case .list(_, let items) = value { values = items }
    if place == .recordName {
      values = values.map { value in
        if case .reference(let reference) = value { .string(reference.name) } else { value }
      }
    }
    values = values.map { $0.relative(to: zone).withoutAction }
    let checked = RecordFilter(filter.fieldName ?? "", comparator, anyOf: values)
    if let defect = checked.defect { throw .query(defect) }
    return checked
  }

  var places: [QueryPlace] { filters.map(\.place) + sorts.map(\.place) }

  /// Whether the fields of a record have to be read to place it.
  var readsRecords: Bool {
    places.contains { place in
      switch place {
      case .field, .created: true
      case .recordName, .modified: false
      }
    }
  }
}

/// A record that the query finds, with what it is sorted by.
private struct FoundRecord {
  var lsn: UInt64
  var name: String
  var keys: [FieldValue?]

  /// Whether it comes before another one. Records that are equal in all come in the order of their names.
  func precedes(_ other: FoundRecord, _ query: CheckedQuery) -> Bool {
    for (place, sort) in query.sorts.enumerated() {
      let order = FieldValue.sortOrder(keys[place], other.keys[place])
      if order != 0 { return sort.isAscending ? order < 0 : order > 0 }
    }
    return name.precedesByUTF8(other.name)
  }
}

extension FieldValue {
  /// A reference is found by its target, whatever a deletion of that does.
  fileprivate var withoutAction: FieldValue {
    switch self {
    case .reference(var reference):
      reference.action = .none
      return .reference(reference)
    case .list(.references, let items): return .list(.references, items.map(\.withoutAction))
    default: return self
    }
  }
}

extension ServerRefusal {
  /// The refusal of a query.
  fileprivate static func query(_ words: String) -> ServerRefusal {
    ServerRefusal(400, WireError(.badRequest, words))
  }
}

extension CloudServer {
  /// What of a zone a query looks through.
  private struct QueryPart: Sendable {
    struct Entry: Sendable {
      var lsn: UInt64
      var name: String
      var modified: Int64
    }
    var entries: [Entry] = []
    var life: UInt64 = 0
    /// The version that the page before ended with.
    var after: UInt64?
    var tenures: [ServerState.Tenure] = []
    var generation: UInt32 = 0
  }

  /// One page of the answer to a query.
  ///
  /// - Complexity: O(n log n) in the records of the type; if the query names fields, all of them are read.
  func queryAnswer(_ message: QueryRequest, in key: DatabaseKey) throws(ServerRefusal) -> [UInt8] {
    if message.zoneID == nil, message.zoneWide == true {
      throw .query("this server queries one zone at a time; name it with zoneID")
    }
    let name = try zoneName(message.zoneID, in: key)
    let query = try CheckedQuery(message.query, in: ZoneID(name, scope: key.scope))
    let part = try queryPart(query, of: name, key, after: message.continuationMarker)
    var found: [FoundRecord] = []
    for entry in part.entries {
      if let record = try match(entry, query) { found.append(record) }
    }
    if let after = part.after {
      let last = try lastShown(after, of: part.life, query)
      found.removeAll { !last.precedes($0, query) }
    }
    found.sort { $0.precedes($1, query) }
    let limit = min(max(message.resultsLimit ?? limits.resultsMax, 1), limits.resultsMax)
    let form = AnswerForm(wireZone(name, key), own: ZoneID(name, owner: key.user, scope: key.scope))
    return try write(found, limit, part, message, form)
  }

  private func queryPart(
    _ query: CheckedQuery, of name: String, _ key: DatabaseKey, after marker: String?
  ) throws(ServerRefusal) -> QueryPart {
    try look { core throws(ServerRefusal) -> (QueryPart, UInt64) in
      let zone = core.state.zone(name, in: key)
      guard zone != nil || name == Names.defaultZone else {
        throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
      }
      var part = QueryPart(tenures: core.state.tenures, generation: core.generation)
      part.life = zone?.life ?? 0
      for (name, entry) in zone?.entries ?? [:]
      where !entry.isDeleted && entry.type.equalsUTF8(query.type) {
        part.entries.append(.init(lsn: entry.lsn, name: name.text, modified: entry.modified))
      }
      let schema = core.state.schemas[Schema.Key(key)]
      guard !part.entries.isEmpty || schema?.knows(query.type) == true else {
        throw ServerRefusal(404, WireError(.notFound, "Did not find record type: \(query.type.prefix(255))"))
      }
      for case .field(let field) in query.places where schema?.kind(of: field, in: query.type)?.isQueryable != true {
        throw .query("Field '\(field.prefix(255))' is not marked queryable")
      }
      if let marker, !marker.isEmpty {
        do throws(WireReason) {
          part.after = try position(marker, kind: .query, life: part.life, core)
        } catch { throw .query(error.words) }
      }
      return (part, zone?.lastLSN ?? 0)
    }
  }

  /// A record with what it is sorted by; nil if it does not meet the conditions.
  private func match(_ entry: QueryPart.Entry, _ query: CheckedQuery) throws(ServerRefusal) -> FoundRecord? {
    let record = query.readsRecords ? try read(entry.lsn) : nil
    do throws(ByteReaderError) {
      for (place, filter) in query.filters where try !filter.matches(value(place, entry, record)) { return nil }
      var keys: [FieldValue?] = []
      for sort in query.sorts { keys.append(try value(sort.place, entry, record)) }
      return FoundRecord(lsn: entry.lsn, name: entry.name, keys: keys)
    } catch {
      throw ServerRefusal(500, WireError(.internalError, "event \(entry.lsn) of the journal: \(error)"))
    }
  }

  private func value(
    _ place: QueryPlace, _ entry: QueryPart.Entry, _ record: RecordBytes?
  ) throws(ByteReaderError) -> FieldValue? {
    switch place {
    case .recordName: return .string(entry.name)
    case .modified: return .date(milliseconds: entry.modified)
    case .created:
      return try record.map { (record) throws(ByteReaderError) in
        .date(milliseconds: try record.milliseconds(record.created))
      }
    case .field(let name):
      guard let record, let field = record.fields.first(where: { record.body.order($0.name, of: name) == 0 }) else {
        return nil
      }
      return try record.value(field)?.withoutAction
    }
  }

  /// The record that the page before ended with, as it was then.
  private func lastShown(
    _ lsn: UInt64, of life: UInt64, _ query: CheckedQuery
  ) throws(ServerRefusal) -> FoundRecord {
    // The event may be one that no marker of this server names: its checksum is no secret.
    do {
      let record = try RecordBytes(try journal.read(lsn))
      guard record.zone == life else { throw SyncToken.invalidFormat }
      let entry = QueryPart.Entry(
        lsn: lsn, name: record.text(record.name), modified: try record.milliseconds(record.modified))
      var keys: [FieldValue?] = []
      for sort in query.sorts { keys.append(try value(sort.place, entry, record)) }
      return FoundRecord(lsn: lsn, name: entry.name, keys: keys)
    } catch {
      throw .query(SyncToken.invalidFormat.words)
    }
  }

  private func write(
    _ found: [FoundRecord], _ limit: Int, _ part: QueryPart, _ message: QueryRequest, _ form: AnswerForm
  ) throws(ServerRefusal) -> [UInt8] {
    let desired = DesiredFields(message.desiredKeys)
    var json = JSONWriter(capacity: 4096)
    json.beginObject()
    json.key("records")
    json.beginArray()
    var shown = 0
    for one in found.prefix(limit) where json.bytes.count < limits.answerBytesMax || shown == 0 {
      let record = try read(one.lsn)
      do throws(ByteReaderError) {
        try form.write(
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
    json.endObject()
    return json.finish()
  }
}
