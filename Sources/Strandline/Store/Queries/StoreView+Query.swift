// Answering a query: the records of the type that meet all conditions, in order, one page at a time.
//
// Each candidate is read and compared, whether an index names it or all records of the type are looked at: so an index
// that is incomplete could leave a record out, and nothing else could go wrong. With a limit and an order no more records
// are kept in memory than the page has.

import StrandlineSystem

/// One page of a query's answer.
public struct QueryPage: Hashable, Sendable {
  /// The records, in order.
  public var records: [Record]
  /// The records that may be part of the answer and cannot be read, each with the reason, in the order of their
  /// identities: their bytes are damaged, or were written by a later version. Only what was met on the way to this page is
  /// named; in a query with an order several pages may meet the same record.
  public var unreadable: [UnreadableRecord] = []
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
  ///   store; else as `record(_:)`, but a record that alone cannot be read is in `unreadable`.
  /// - Complexity: with an index that has the order, O(records of the page × log(records)); with one that has the
  ///   conditions, reads the records that meet those; without an index reads every record of the type, memory for one
  ///   page. `explain(_:)` says which.
  public func query(
    _ query: RecordQuery, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPage {
    try CallSite(fileID, line).run("querying records of type '\(query.recordType)'") {
      var page = try answer(query, after: cursor)
      for place in page.unreadable.indices { page.unreadable[place].error.location = "\(fileID):\(line)" }
      return page
    }
  }

  /// The same; a test compares what an index answers with what all records say.
  ///
  /// - Parameter patience: after how many records of one index the others are looked at.
  package func answer(
    _ query: RecordQuery, after cursor: QueryCursor? = nil, usesIndexes: Bool = true, patience: Int? = nil
  ) throws -> QueryPage {
    try store.requireOpen()
    try check(query, cursor)
    let wanted = Wanted(query: query)
    return try page(wanted, after: cursor, usesIndexes: usesIndexes, patience: patience ?? IndexNarrowing.patience)
  }

  /// The records that meet a typed question; a test compares what an index answers with what all records say.
  ///
  /// - Parameter written: what takes the place of what the view shows.
  func page<Value: SyncRecord>(
    _ typed: TypedQuery<Value>, after cursor: QueryCursor? = nil, with written: WrittenRecords? = nil,
    usesIndexes: Bool = true
  ) throws -> QueryPage {
    try store.requireOpen()
    try check(typed.query, cursor)
    let wanted = Wanted(typed, with: written)
    if let ids = typed.ids { return try page(wanted, of: ids, after: cursor) }
    return try page(wanted, after: cursor, usesIndexes: usesIndexes, patience: IndexNarrowing.patience)
  }

  /// How many values meet a typed question.
  func count<Value: SyncRecord>(_ typed: TypedQuery<Value>, with written: WrittenRecords? = nil) throws -> Int {
    try store.requireOpen()
    let wanted = Wanted(typed, with: written)
    if written == nil, typed.isForAll { return try count(ofType: typed.query.recordType, in: typed.query.zone) }
    var count = 0
    if let unreadable = written?.unreadable.first { throw unreadable.error }
    for record in written?.records ?? [] where try wanted.asks(for: record) { count += 1 }
    guard let ids = typed.ids else { return try count + self.count(wanted) }
    try forEachRecord(ids) {
      if try wanted.includes($0) { count += 1 }
    } unreadable: {
      if !wanted.hides($0.id) { throw $0.error }
    }
    return count
  }

  /// How the store would answer a query: by which index, or by reading every record of the type, and which index would
  /// spare that.
  ///
  /// - Throws: `StrandlineError`: `.invalidValue` as `query(_:)`, `.closed`.
  public func explain(_ query: RecordQuery, fileID: String = #fileID, line: Int = #line) throws -> QueryPlan {
    try CallSite(fileID, line).run("explaining a query of records of type '\(query.recordType)'") {
      try store.requireOpen()
      try check(query, nil)
      return try plan(query)
    }
  }

  private func plan(_ query: RecordQuery, evaluated: [String] = []) throws -> QueryPlan {
    if let plan = IndexPlan(query, zone: query.zone.map(store.canonical), try memory().runs?.indexes ?? []) {
      return QueryPlan(
        way: .index(
          plan.index.index, narrowing: plan.others.map(\.index.index), usesCondition: plan.isBounded),
        isSorted: plan.isSorted, evaluated: evaluated)
    }
    let remedy = query.suggestion.map { index in
      let isBeingBuilt = store.index?.declared.contains { $0.index == index && !$0.isReady } ?? false
      return isBeingBuilt ? QueryPlan.Remedy.wait(index) : .declare(index)
    }
    return QueryPlan(
      way: .all(type: query.recordType, remedy ?? .nothing), isSorted: query.sorts.isEmpty, evaluated: evaluated)
  }

  /// How a typed question would be answered.
  func plan<Value: SyncRecord>(_ typed: TypedQuery<Value>) throws -> QueryPlan {
    try store.requireOpen()
    try check(typed.query, nil)
    guard let ids = typed.ids else { return try plan(typed.query, evaluated: typed.evaluated) }
    return QueryPlan(
      way: .names(count: ids.count), isSorted: typed.query.sorts.isEmpty, evaluated: typed.evaluated)
  }

  /// How many records a query finds, whatever its limit.
  ///
  /// - Throws: `StrandlineError` as `query(_:)`, and for a record that alone cannot be read: it may have to be counted.
  /// - Complexity: as `query(_:)`; without conditions no record is read.
  public func count(_ query: RecordQuery, fileID: String = #fileID, line: Int = #line) throws -> Int {
    try CallSite(fileID, line).run("counting records of type '\(query.recordType)'") {
      try store.requireOpen()
      try check(query, nil)
      if query.filters.isEmpty { return try count(ofType: query.recordType, in: query.zone) }
      return try count(Wanted(query: query))
    }
  }

  private func count(_ wanted: Wanted) throws -> Int {
    let indexed = try withIndex(wanted.query, true) { plan, memory, runs in
      var count = 0
      try search(wanted, plan, memory, runs) { _, _ in
        count += 1
        return true
      } unreadable: {
        if !wanted.hides($0.id) { throw $0.error }
      }
      return count
    }
    if let indexed { return indexed }
    var count = 0
    try scan(wanted) { _ in
      count += 1
      return true
    } unreadable: {
      if !wanted.hides($0.id) { throw $0.error }
    }
    return count
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

  /// Hands the records that meet all conditions to `body`, in the order of zone and name, until it returns false. Reads
  /// every record of the type.
  private func scan(
    _ wanted: Wanted, after id: RecordID? = nil, _ body: (Record) throws -> Bool,
    unreadable report: (UnreadableRecord) throws -> Void
  ) throws {
    let range = EntryScan.Range(zone: wanted.query.zone, after: id.map(store.canonical))
    try forEachLiving(ofType: wanted.query.recordType, in: range) { candidate, entry in
      guard let record = try load(candidate, entry, orReport: report), try wanted.includes(record, orReport: report)
      else { return true }
      return try body(record)
    }
  }

  /// Hands the records that meet all conditions to `body`, in the order of the plan's rows, with the key of the row, until
  /// it returns false.
  ///
  /// - Parameter willLoad: asked before a record is read; false ends the search.
  private func search(
    _ wanted: Wanted, _ plan: IndexPlan, _ memory: EntryScan.Memory, _ runs: RunSet, from start: [UInt8] = [],
    patience: Int = IndexNarrowing.patience, willLoad: ([UInt8]) -> Bool = { _ in true },
    _ body: (Record, [UInt8]) throws -> Bool, unreadable report: (UnreadableRecord) throws -> Void
  ) throws {
    var narrowing = IndexNarrowing(plan, runs, patience: patience)
    let zone = wanted.query.zone.map(store.canonical)
    var search = try IndexSearch(plan, runs, memory, from: start) { id, entry in
      guard let place = entry.view, zone == nil || id.zone == zone else { return [] }
      return try reading(id, orReport: report) {
        try store.indexRows.rows(plan.index, place) {
          try load(id, PlacedEntry(entry)).map { plan.index.rows($0) } ?? []
        }
      } ?? []
    }
    while let found = try search.next() {
      guard willLoad(found.key) else { return }
      guard zone == nil || found.id.zone == zone, try !found.isStored || !narrowing.excludes(found.key),
        let record = try load(found.id, found.entry, orReport: report),
        record.type == wanted.query.recordType, plan.isFirst(found.key, of: record),
        try wanted.includes(record, orReport: report)
      else { continue }
      guard try body(record, found.key) else { return }
    }
  }

  /// Answers with an index if one can be used; else returns nil.
  private func withIndex<Answer>(
    _ query: RecordQuery, _ usesIndexes: Bool, _ body: (IndexPlan, EntryScan.Memory, RunSet) throws -> Answer
  ) throws -> Answer? {
    guard usesIndexes else { return nil }
    // Runs that fail are made anew without indexes, so that the second attempt finds none, or new ones.
    for _ in 0..<2 {
      let memory = try memory()
      guard let runs = memory.runs, let plan = IndexPlan(query, zone: query.zone.map(store.canonical), runs.indexes)
      else { return nil }
      do { return try body(plan, memory, runs) } catch let error as StrandlineError where error.isOfIndex {
        try store.projections.discardIndex(error)
      }
    }
    return nil
  }

  private func page(
    _ wanted: Wanted, after cursor: QueryCursor?, usesIndexes: Bool, patience: Int
  ) throws -> QueryPage {
    let query = wanted.query
    let indexed = try withIndex(query, usesIndexes) { plan, memory, runs in
      var page = PageBuilder(query, after: cursor)
      var last: ArraySlice<UInt8> = []
      let start = plan.start(query, after: cursor, cursor.map { store.canonical($0.id) })
      try search(wanted, plan, memory, runs, from: start, patience: patience) { key in
        !plan.isSorted || !page.isFull || plan.index.value(key) == last
      } _: { record, key in
        page.add(record)
        last = plan.index.value(key)
        // Records of one value, or of values that begin alike, may come in another order than the answer's.
        let isInOrder = query.sorts.isEmpty || (query.sorts.count == 1 && plan.index.isWhole(key))
        return !(plan.isSorted && page.isFull && isInOrder)
      } unreadable: {
        page.unreadable[$0.id] = $0
      }
      return page
    }
    if let indexed { return try indexed.finished(store.source.storeUUID, wanted) }
    var page = PageBuilder(query, after: cursor)
    // Without an order the candidates come in the answer's own order, and the first page ends the search.
    try scan(wanted, after: query.sorts.isEmpty ? cursor?.id : nil) { record in
      page.add(record)
      return !query.sorts.isEmpty || !page.isFull
    } unreadable: {
      page.unreadable[$0.id] = $0
    }
    return try page.finished(store.source.storeUUID, wanted)
  }

  /// The page of those of some records that are wanted.
  private func page(_ wanted: Wanted, of ids: [RecordID], after cursor: QueryCursor?) throws -> QueryPage {
    var page = PageBuilder(wanted.query, after: cursor)
    try forEachRecord(ids) {
      if try wanted.includes($0, orReport: { page.unreadable[$0.id] = $0 }) { page.add($0) }
    } unreadable: {
      page.unreadable[$0.id] = $0
    }
    return try page.finished(store.source.storeUUID, wanted)
  }
}

/// What a transaction has written since the view was taken, of the records of a type.
struct WrittenRecords {
  /// All that were changed or deleted: what the view shows of them does not count.
  var ids: Set<RecordID> = []
  /// Those that live.
  var records: [Record] = []
  var unreadable: [UnreadableRecord] = []
}

/// The records that a question is for.
private struct Wanted {
  let query: RecordQuery
  let written: WrittenRecords?
  /// What a typed question asks besides, of a record that meets the conditions of `query`.
  private let isMet: ((Record) throws(StrandlineError) -> Bool)?

  init(query: RecordQuery) { (self.query, written, isMet) = (query, nil, nil) }

  init<Value>(_ typed: TypedQuery<Value>, with written: WrittenRecords?) {
    query = typed.query
    self.written = written
    isMet = { (record) throws(StrandlineError) in try typed.isMet(by: record) }
  }

  /// Whether what the view shows of a record does not count.
  func hides(_ id: RecordID) -> Bool { written?.ids.contains(id) == true }

  /// Whether the question is for a record of the view.
  func includes(_ record: Record) throws(StrandlineError) -> Bool {
    if hides(record.id) { return false }
    return try asks(for: record)
  }

  /// The same; a record that makes an error is handed to `report`.
  func includes(_ record: Record, orReport report: (UnreadableRecord) throws -> Void) throws -> Bool {
    do throws(StrandlineError) { return try includes(record) } catch {
      try report(UnreadableRecord(id: record.id, record: record, error: error))
      return false
    }
  }

  /// Whether a record meets all conditions.
  ///
  /// - Throws: the error that the question makes for this record.
  func asks(for record: Record) throws(StrandlineError) -> Bool {
    guard record.type == query.recordType, query.filters.allSatisfy({ $0.matches(record.indexed($0.field)) }),
      query.spans.allSatisfy({ $0.matches(record.indexed($0.field)) })
    else { return false }
    return try isMet?(record) ?? true
  }
}

/// Collects a page. It keeps little more than the page has.
private struct PageBuilder {
  let query: RecordQuery
  let limit: Int
  let order: MatchOrder
  let start: Match?
  var found: [Match] = []
  var unreadable: [RecordID: UnreadableRecord] = [:]

  init(_ query: RecordQuery, after cursor: QueryCursor?) {
    self.query = query
    limit = query.limit ?? .max
    order = MatchOrder(sorts: query.sorts)
    start = cursor.map { Match(values: $0.values, id: $0.id, record: nil) }
  }

  /// Whether more was found than the page has: one more says that there is a next one.
  var isFull: Bool { found.count > limit }

  mutating func add(_ record: Record) {
    let match = Match(values: query.sorts.map { record[$0.field] }, id: record.id, record: record)
    if let start, !order.precedes(start, match) { return }
    found.append(match)
    // Sorted in batches: a record costs O(log) in the mean.
    if limit < Int.max / 2, found.count > 2 * limit + 64 {
      found.sort(by: order.precedes)
      found.removeSubrange((limit + 1)...)
    }
  }

  /// The page, with what a transaction has written.
  consuming func finished(_ storeUUID: [UInt8], _ wanted: Wanted) throws -> QueryPage {
    if let written = wanted.written {
      for id in written.ids { unreadable[id] = nil }
      for one in written.unreadable { unreadable[one.id] = one }
      for record in written.records {
        do throws(StrandlineError) { if try wanted.asks(for: record) { add(record) } } catch {
          unreadable[record.id] = UnreadableRecord(id: record.id, record: record, error: error)
        }
      }
    }
    return page(storeUUID)
  }

  private func page(_ storeUUID: [UInt8]) -> QueryPage {
    // What an index found comes in its order, which is most often the answer's.
    let isSorted = !zip(found, found.dropFirst()).contains { order.precedes($1, $0) }
    let sorted = isSorted ? found : found.sorted(by: order.precedes)
    let page = sorted.prefix(limit)
    var next: QueryCursor?
    if sorted.count > page.count, let last = page.last {
      next = QueryCursor(storeUUID: storeUUID, query: query.digest, values: last.values, id: last.id)
    }
    var unreadable = unreadable.values.sorted { $0.id < $1.id }
    if query.sorts.isEmpty {
      // In the order of identities the record has its place, and belongs to one page.
      if let start { unreadable.removeAll { $0.id <= start.id } }
      if let next { unreadable.removeAll { $0.id > next.id } }
    }
    return QueryPage(
      records: page.compactMap { $0.record?.with(only: query.desiredKeys) }, unreadable: unreadable, cursor: next)
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
    for one in spans {
      writer.string(one.field)
      writer.varint(UInt64(one.spans.count))
      for span in one.spans {
        FieldCodec.encode(span.lower, into: &writer)
        FieldCodec.encode(span.upper, into: &writer)
      }
    }
    for sort in sorts {
      writer.string(sort.field)
      writer.u8(sort.ascending ? 1 : 0)
    }
    return CRC32C.checksum(writer.bytes)
  }
}

extension RecordStore {
  /// A view for a question of the caller's line.
  private func located(_ fileID: String, _ line: Int) throws -> StoreView {
    try CallSite(fileID, line).run("taking a view of the store at '\(path)'") { try view() }
  }

  /// A page of the records that a query asks for, as far as they are durable. See `StoreView.query(_:)`.
  ///
  /// - Throws: `StrandlineError` as `StoreView.query(_:)`.
  public func query(
    _ query: RecordQuery, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPage {
    try located(fileID, line).query(query, after: cursor, fileID: fileID, line: line)
  }

  /// How the store would answer a query. See `StoreView.explain(_:)`.
  ///
  /// - Throws: `StrandlineError` as `StoreView.explain(_:)`.
  public func explain(_ query: RecordQuery, fileID: String = #fileID, line: Int = #line) throws -> QueryPlan {
    try located(fileID, line).explain(query, fileID: fileID, line: line)
  }

  /// The first page of a query's answer, now and whenever a record of its type has changed durably.
  public func observe(
    _ query: RecordQuery, fileID: String = #fileID, line: Int = #line
  ) -> StoreObservation<QueryPage> {
    StoreObservation(self, .records(type: query.recordType, zone: query.zone.map(canonical))) {
      try $0.query(query, fileID: fileID, line: line)
    }
  }
}
