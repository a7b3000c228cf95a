// Answering a query: the records of the type that meet all conditions, in order, one page at a time.
//
// Each candidate is read and compared. With a limit and an order no more records are kept in memory than the page has.

import StrandlineSystem

/// One page of a query's answer.
public struct QueryPage: Hashable, Sendable {
  /// The records, in order.
  public var records: [Record]
  /// Where the next page begins; nil if this is the last.
  public var cursor: QueryCursor?
}

extension StoreView {
  /// A page of the records that a query asks for, as the view shows them.
  ///
  /// `cursor` is where an earlier page of the same query ended; nil for the first page. The pages may come from different
  /// views: what is changed in between is where its new values put it.
  ///
  /// - Throws: `StrandlineError`: `.invalidValue` for a condition that cannot be asked, or a cursor of another query or
  ///   store; else as `record(_:)`.
  /// - Complexity: reads every record of the type; O(records × log(limit)), memory for one page.
  public func query(
    _ query: RecordQuery, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPage {
    try CallSite(fileID, line).run("querying records of type '\(query.recordType)'") {
      try store.requireOpen()
      try check(query, cursor)
      return try page(query, after: cursor)
    }
  }

  /// How many records a query finds, whatever its limit.
  ///
  /// - Throws: `StrandlineError` as `query(_:)`.
  /// - Complexity: as `query(_:)`; without conditions no record is read.
  public func count(_ query: RecordQuery, fileID: String = #fileID, line: Int = #line) throws -> Int {
    try CallSite(fileID, line).run("counting records of type '\(query.recordType)'") {
      try store.requireOpen()
      try check(query, nil)
      if query.filters.isEmpty { return try count(ofType: query.recordType, in: query.zone) }
      var count = 0
      try forEachMatch(query) { _ in
        count += 1
        return true
      }
      return count
    }
  }

  private func check(_ query: RecordQuery, _ cursor: QueryCursor?) throws {
    for filter in query.filters {
      if let defect = filter.defect {
        throw StrandlineError(.invalidValue, "the condition on field '\(filter.field)' cannot be asked: \(defect)")
      }
    }
    if let limit = query.limit, limit < 1 {
      throw StrandlineError(.invalidValue, "a query's limit is \(limit); it must be at least 1, or left out")
    }
    guard let cursor else { return }
    guard cursor.storeUUID == store.source.storeUUID else {
      throw StrandlineError(.invalidValue, "the cursor is of another store; begin the query anew without one")
    }
    guard cursor.query == query.digest, cursor.values.count == query.sorts.count else {
      throw StrandlineError(.invalidValue, "the cursor is of another query; begin this one without a cursor")
    }
  }

  /// Hands the records that meet all conditions to `body`, in the order of zone and name, until it returns false.
  private func forEachMatch(
    _ query: RecordQuery, after id: RecordID? = nil, _ body: (Record) throws -> Bool
  ) throws {
    let range = EntryScan.Range(zone: query.zone, after: id.map(store.canonical))
    try forEachLiving(ofType: query.recordType, in: range) { candidate, entry in
      guard let record = try store.load(candidate, entry, asOf: lsn), record.type == query.recordType,
        query.filters.allSatisfy({ $0.matches(record[$0.field]) })
      else { return true }
      return try body(record)
    }
  }

  private func page(_ query: RecordQuery, after cursor: QueryCursor?) throws -> QueryPage {
    let limit = query.limit ?? .max
    var found: [Match] = []
    let order = MatchOrder(sorts: query.sorts)
    let start = cursor.map { Match(values: $0.values, id: $0.id, record: nil) }
    // Without an order the candidates come in the answer's own order, and the first page ends the search.
    try forEachMatch(query, after: query.sorts.isEmpty ? cursor?.id : nil) { record in
      let match = Match(values: query.sorts.map { record[$0.field] }, id: record.id, record: record)
      if query.sorts.isEmpty {
        found.append(match)
        return found.count <= limit
      }
      if let start, !order.precedes(start, match) { return true }
      found.append(match)
      // One more than the page has says that there is a next one. Sorted in batches: a record costs O(log) in the mean.
      if limit < Int.max / 2, found.count > 2 * limit + 64 {
        found.sort(by: order.precedes)
        found.removeSubrange((limit + 1)...)
      }
      return true
    }
    if !query.sorts.isEmpty { found.sort(by: order.precedes) }
    let page = found.prefix(limit)
    var next: QueryCursor?
    if found.count > page.count, let last = page.last {
      next = QueryCursor(storeUUID: store.source.storeUUID, query: query.digest, values: last.values, id: last.id)
    }
    return QueryPage(records: page.compactMap { $0.record?.with(only: query.desiredKeys) }, cursor: next)
  }
}

/// A record that meets a query's conditions, and what it is sorted by.
private struct Match {
  var values: [FieldValue?]
  var id: RecordID
  var record: Record?
}

private struct MatchOrder {
  var sorts: [RecordSort]

  func precedes(_ left: Match, _ right: Match) -> Bool {
    for (place, sort) in sorts.enumerated() {
      let order = FieldValue.sortOrder(left.values[place], right.values[place])
      if order != 0 { return sort.ascending ? order < 0 : order > 0 }
    }
    return left.id < right.id
  }
}

extension Record {
  fileprivate func with(only keys: [String]?) -> Record {
    guard let keys else { return self }
    var record = self
    record.fields = fields.filter { keys.contains($0.key) }
    return record
  }
}

extension RecordQuery {
  /// What a cursor is bound to: everything but how much of the answer is wanted.
  fileprivate var digest: UInt32 {
    var writer = ByteWriter()
    writer.string(recordType)
    writer.u8(zone == nil ? 0 : 1)
    if let zone { _ = ZoneID(zone, &writer) }
    writer.varint(UInt64(filters.count))
    for filter in filters {
      writer.string(filter.field)
      writer.string(filter.comparator.rawValue)
      writer.varint(UInt64(filter.values.count))
      for value in filter.values { FieldCodec.encode(value, into: &writer) }
    }
    for sort in sorts {
      writer.string(sort.field)
      writer.u8(sort.ascending ? 1 : 0)
    }
    return CRC32C.checksum(writer.bytes)
  }
}

extension RecordStore {
  /// A page of the records that a query asks for, as far as they are durable. See `StoreView.query(_:)`.
  ///
  /// - Throws: `StrandlineError` as `StoreView.query(_:)`.
  public func query(
    _ query: RecordQuery, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPage {
    try view(fileID: fileID, line: line).query(query, after: cursor, fileID: fileID, line: line)
  }

  /// The first page of a query's answer, now and whenever a record of its type has changed durably.
  public func observe(
    _ query: RecordQuery, fileID: String = #fileID, line: Int = #line
  ) -> Observation<[Record]> {
    Observation(self, .records(type: query.recordType, zone: query.zone.map(canonical))) {
      try $0.query(query, fileID: fileID, line: line).records
    }
  }
}
