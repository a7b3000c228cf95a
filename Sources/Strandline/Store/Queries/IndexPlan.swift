// Which rows of which index a query reads. A plan names ranges that have a row of every record that meets the query's
// conditions; they may have others too, because every record that is found is compared.

import StrandlineSystem

/// Keys from `lower` on, up to the last one that does not sort behind `upper` or that begins with it.
struct IndexRange: Hashable, Sendable {
  var lower: [UInt8]
  var upper: [UInt8]

  func contains(_ key: [UInt8]) -> Bool { !key.precedes(lower) && !isBehind(key) }

  func isBehind(_ key: [UInt8]) -> Bool { !key.precedes(upper) && !key.starts(with: upper) }

  /// The keys that both ranges have; nil if they share none.
  fileprivate func intersection(_ other: IndexRange) -> IndexRange? {
    // Of two ends of which one begins with the other, the longer one comes first.
    let isFirst =
      upper.starts(with: other.upper) || (upper.precedes(other.upper) && !other.upper.starts(with: upper))
    let range = IndexRange(
      lower: lower.precedes(other.lower) ? other.lower : lower, upper: isFirst ? upper : other.upper)
    return range.isBehind(range.lower) ? nil : range
  }

  /// Of encoded values: whether they are items of lists.
  fileprivate var isOfItems: Bool { lower.first == IndexValue.Tag.item.rawValue }
}

/// How an index answers a query.
struct IndexPlan: Sendable {
  var index: StoredIndex
  /// In the order of their keys; no row is in two.
  var ranges: [IndexRange]
  /// Whether the ranges stand for conditions.
  var isBounded = true
  /// What the keys of all rows begin with where they are of one value, or of none.
  private var valueKey: [UInt8] = []
  /// The rows come in the order of the answer, apart from records whose first sort value, or its beginning, is the same.
  var isSorted: Bool

  /// Plans by indexes on other fields that stand for other conditions, the best of each field: what none of their rows is of
  /// need not be read.
  private(set) var others: [IndexPlan] = []

  /// What makes one plan better than another: how few records it is likely to read.
  fileprivate var rank: Int

  /// The best plan; nil if no index can be used.
  init?(_ query: RecordQuery, zone: ZoneID?, _ indexes: [StoredIndex]) {
    let plans = indexes.compactMap { IndexPlan(query, zone: zone, $0) }
    // Of equals the one that was declared first.
    guard let best = plans.max(by: { $0.rank < $1.rank }), let first = plans.first(where: { $0.rank == best.rank })
    else { return nil }
    self = first
    var fields: Set<String> = []
    if first.isBounded, let field = first.field { fields.insert(field) }
    // A half-open range is likely to have most records.
    for plan in plans.sorted(by: { $0.rank > $1.rank }) where plan.isBounded && plan.rank >= Self.narrowRank {
      if let field = plan.field, fields.insert(field).inserted { others.append(plan) }
    }
  }

  private var field: String? { index.index.fields.first?.field }

  /// The rank of a plan with a range that is bounded on both sides.
  private static let narrowRank = 6

  private init?(_ query: RecordQuery, zone: ZoneID?, _ stored: StoredIndex) {
    guard stored.index.recordType == query.recordType else { return nil }
    index = stored
    guard let field = stored.index.fields.first else {
      // All records of the type, in the order of zone and name.
      let key = stored.prefix + (zone.map { RowKey.zone($0).dropFirst() } ?? [])
      ranges = [IndexRange(lower: key, upper: key)]
      (isBounded, valueKey) = (false, stored.prefix)
      isSorted = query.sorts.isEmpty
      rank = isSorted ? 1 : 0
      return
    }
    let sorts = query.sorts.first == field
    let filters = query.filters.filter { $0.field == field.field }
    if let values = Self.points(filters) {
      // In each range of one value the records stand in the order of zone and name.
      let ends = zone.map { Array(RowKey.zone($0).dropFirst()) } ?? []
      ranges = Set(values.map(stored.stored)).map { value in
        IndexRange(lower: stored.prefix + value + ends, upper: stored.prefix + value + ends)
      }
      valueKey = stored.prefix + stored.stored(values.first ?? [])
      let isInOrder = values.allSatisfy { $0[0] <= IndexValue.Tag.other.rawValue }
      isSorted = query.sorts.isEmpty ? ranges.count <= 1 : sorts && isInOrder
      rank = isSorted ? 9 : 8
    } else if let spans = Self.spans(filters, query.spans.filter { $0.field == field.field }) {
      ranges = spans.map { span in
        let ends = stored.isInverted ? (stored.stored(span.upper), stored.stored(span.lower)) : (span.lower, span.upper)
        return IndexRange(lower: stored.prefix + ends.0, upper: stored.prefix + ends.1)
      }
      isSorted = sorts && !spans.contains { $0.isOfItems }
      // One that begins or ends with its type is half-open.
      let isNarrow = spans.allSatisfy { $0.lower.count > 1 && $0.upper.count > 1 }
      rank = (isNarrow ? Self.narrowRank : 3) + (sorts ? 1 : 0)
    } else if sorts {
      let ends = [stored.stored([IndexValue.Tag.none.rawValue]), stored.stored([IndexValue.Tag.other.rawValue])]
      ranges = [
        IndexRange(
          lower: stored.prefix + ends[stored.isInverted ? 1 : 0],
          upper: stored.prefix + ends[stored.isInverted ? 0 : 1])
      ]
      (isSorted, isBounded) = (true, false)
      rank = query.limit == nil ? 2 : 5
    } else {
      return nil
    }
    ranges.sort { $0.lower.precedes($1.lower) }
  }

  /// Where a search begins that goes on after a page.
  func start(_ query: RecordQuery, after cursor: QueryCursor?, _ id: RecordID?) -> [UInt8] {
    guard let cursor, let id, isSorted else { return [] }
    let place = RowKey.record(id).dropFirst()
    guard !query.sorts.isEmpty else { return valueKey + place }
    let key = index.prefix + index.stored(IndexValue.sorted(cursor.values.first ?? nil))
    let whole = key + place
    // Among equal values, or those that begin alike, another order decides.
    return query.sorts.count == 1 && index.isWhole(whole) ? whole : key
  }

  /// Whether the record has this row, and none before it in the ranges: an item that stands in several ranges is found
  /// once, and a row that an update left behind never.
  func isFirst(_ key: [UInt8], of record: Record) -> Bool {
    guard let field = index.index.fields.first else { return true }
    let value = index.value(key)
    let tag = (value.first ?? 0) ^ (field.ascending ? 0 : 0xFF)
    if tag <= IndexValue.Tag.other.rawValue {
      // A record has one row by which it is sorted.
      return index.stored(IndexValue.sorted(record[field.field])).elementsEqual(value)
    }
    let rows = index.rows(record)
    return rows.contains(key)
      && !rows.contains { row in row.precedes(key) && ranges.contains { $0.contains(row) } }
  }

  /// The encoded values of which a record must have one, by the condition that names the fewest; nil if none names any.
  private static func points(_ filters: [RecordFilter]) -> [[UInt8]]? {
    var best: [[UInt8]]?
    for filter in filters {
      let values: [FieldValue]
      switch filter.comparator {
      case .equals, .isIn, .listContains, .listContainsAny: values = filter.values
      // A list that contains all of no values is any list.
      case .listContainsAll where !filter.values.isEmpty: values = [filter.values[0]]
      default: continue
      }
      let isOfLists = filter.comparator != .equals && filter.comparator != .isIn
      let all = values.flatMap(\.sameValues)
      let known = all.compactMap { isOfLists ? IndexValue.item($0) : IndexValue.equal($0) }
      guard known.count == all.count, best.map({ known.count < $0.count }) ?? true else { continue }
      best = known
    }
    return best
  }

  /// The encoded values of which a record must have one; nil if nothing bounds them.
  private static func spans(_ filters: [RecordFilter], _ others: [FieldSpans]) -> [IndexRange]? {
    var result: [IndexRange]?
    let all =
      filters.map { filter in filter.values.first.flatMap { bounds(filter.comparator, $0) }.map { [$0] } }
      + others.map { $0.spans.compactMap(bounds) }
    for case let spans? in all {
      guard let known = result else {
        result = spans
        continue
      }
      // Items of lists and values are two tables, as it were: a span is in one of them, and two may be met by two items.
      guard !known.contains(where: \.isOfItems), !spans.contains(where: \.isOfItems) else { continue }
      result = known.flatMap { one in spans.compactMap(one.intersection) }
    }
    return result
  }

  private static func bounds(_ span: FieldSpans.Span) -> IndexRange? {
    let lower = span.lower.flatMap { bounds(.greaterThanOrEquals, $0) }
    let upper = span.upper.flatMap { bounds(.lessThanOrEquals, $0) }
    guard let lower, let upper else { return lower ?? upper }
    // One that ends before it begins has nothing.
    return lower.intersection(upper)
  }

  private static func bounds(
    _ comparator: RecordFilter.Comparator, _ value: FieldValue
  ) -> IndexRange? {
    let type = IndexValue.type(value)
    let key = IndexValue.sorted(value)
    switch comparator {
    case .lessThan, .lessThanOrEquals:
      if case .reference = value { return nil }
      if case .location = value { return nil }
      return IndexRange(lower: type, upper: key)
    case .greaterThan, .greaterThanOrEquals:
      if case .reference = value { return nil }
      if case .location = value { return nil }
      // Every number compares as greater than one that is none.
      if case .double(let number) = value, number.isNaN { return IndexRange(lower: type, upper: type) }
      return IndexRange(lower: key, upper: type)
    case .beginsWith, .listMemberBeginsWith:
      guard case .string(let text) = value else { return nil }
      let start = comparator == .beginsWith ? [] : [IndexValue.Tag.item.rawValue]
      let beginning = start + IndexValue.beginning(text)
      return IndexRange(lower: beginning, upper: beginning)
    default: return nil
    }
  }
}

extension RecordQuery {
  /// An index that would spare a reading of all records; nil if none would.
  var suggestion: RecordIndex? {
    func field(_ comparators: Set<RecordFilter.Comparator>) -> String? {
      filters.first { comparators.contains($0.comparator) }?.field
    }
    func index(on field: String) -> RecordIndex {
      RecordIndex(recordType, field, ascending: sorts.first { $0.field == field }?.ascending ?? true)
    }
    let lists: Set<RecordFilter.Comparator> = [.listContains, .listContainsAny, .listContainsAll]
    let beginnings: Set<RecordFilter.Comparator> = [.beginsWith, .listMemberBeginsWith]
    if let field = field([.equals, .isIn]) ?? field(lists.union(beginnings)) { return index(on: field) }
    if limit != nil, let sort = sorts.first { return RecordIndex(recordType, fields: [sort]) }
    let orders: Set<RecordFilter.Comparator> = [.lessThan, .lessThanOrEquals, .greaterThan, .greaterThanOrEquals]
    if let field = field(orders) ?? spans.first?.field { return index(on: field) }
    if let sort = sorts.first { return RecordIndex(recordType, fields: [sort]) }
    return filters.isEmpty && spans.isEmpty ? RecordIndex(recordType) : nil
  }
}
