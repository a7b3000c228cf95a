// What a query asks for, after the checks that need no records: conditions and orders, each of one place of a record.
//
// A condition with a list of values keeps them as a set, so that it costs what the record's list has, and not the product
// of both lists.

internal import Foundation
internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem

/// What a condition or an order of a query is about.
enum QueryPlace: Hashable {
  case field(String)
  /// All fields that hold text: what a search for words without a field looks through.
  case allText
  case recordName, created, modified, creator, modifier, parent
  /// This server has no shares: no record has one.
  case share

  /// - Throws: a refusal if the server does not know the place.
  init(_ fieldName: String?, _ systemFieldName: String?) throws(ServerRefusal) {
    switch (fieldName, systemFieldName) {
    case ("___recordId", nil), ("___recordID", nil), (nil, "recordName"): self = .recordName
    case ("___createTime", nil), (nil, "createdTimestamp"): self = .created
    case ("___modTime", nil), (nil, "modifiedTimestamp"): self = .modified
    case ("___createdBy", nil), (nil, "createdUserRecordName"): self = .creator
    case ("___modifiedBy", nil), (nil, "modifiedUserRecordName"): self = .modifier
    case ("___parent", nil), (nil, "parent"): self = .parent
    case ("___share", nil), (nil, "share"): self = .share
    case (let name?, nil) where !name.isEmpty && !name.hasPrefix("___"): self = .field(name)
    case (let name?, nil), (nil, let name?):
      throw .query("this server cannot query by '\(name.prefix(80))'")
    default: throw .query("a filter or a sort has one of fieldName and systemFieldName")
    }
  }

  /// Whether it holds the name of a record, which a query names by a reference or by text.
  var isName: Bool {
    switch self {
    case .recordName, .creator, .modifier, .parent, .share: true
    default: false
    }
  }

  /// Whether the fields of a record have to be read for it.
  var isInRecord: Bool {
    switch self {
    case .recordName, .modified, .share: false
    default: true
    }
  }

  /// As a refusal names it.
  var words: String {
    switch self {
    case .field(let name): name
    case .allText: "all fields"
    case .recordName: "recordName"
    case .created: "createdTimestamp"
    case .modified: "modifiedTimestamp"
    case .creator: "createdUserRecordName"
    case .modifier: "modifiedUserRecordName"
    case .parent: "parent"
    case .share: "share"
    }
  }
}

/// A condition that was checked.
struct QueryCondition {
  private enum Test {
    case filter(RecordFilter)
    case isIn(Set<FieldValue>, Bool)
    case listContainsAny(Set<FieldValue>, Bool)
    case listContainsAll(Set<FieldValue>, Bool)
    case near(Location, metres: Double)
    case words(Set<String>, all: Bool)
  }
  let place: QueryPlace
  private let test: Test

  private static let near = "NEAR"
  private static let searches = ["CONTAINS_ALL_TOKENS", "CONTAINS_ANY_TOKENS"]
  /// Every comparator that a condition may have.
  static let comparators = RecordFilter.Comparator.allCases.map(\.rawValue) + [near] + searches

  /// - Parameter zone: of the records; nil if they are of more than one.
  init(_ filter: QueryRequest.Filter, in zone: ZoneID?) throws(ServerRefusal) {
    let isSearch = Self.searches.contains(filter.comparator)
    place =
      if isSearch, filter.fieldName == nil, filter.systemFieldName == nil { .allText } else {
        try QueryPlace(filter.fieldName, filter.systemFieldName)
      }
    guard let value = filter.fieldValue else { throw .query("a filter has a fieldValue") }
    if isSearch {
      test = .words(try Self.words(value), all: filter.comparator == Self.searches[0])
      return
    }
    if filter.comparator == Self.near {
      guard case .location(let center) = value, center.isOnEarth else {
        throw .query("NEAR compares with a LOCATION, of latitude -90 to 90 and longitude -180 to 180")
      }
      guard let distance = filter.distance, distance >= 0 else {
        throw .query("NEAR needs the key distance: metres from the fieldValue")
      }
      test = .near(center, metres: distance)
      return
    }
    test = try Self.test(filter, value, place, zone)
  }

  private static func test(
    _ filter: QueryRequest.Filter, _ value: FieldValue, _ place: QueryPlace, _ zone: ZoneID?
  ) throws(ServerRefusal) -> Test {
    guard let comparator = RecordFilter.Comparator(rawValue: filter.comparator) else {
      throw .query("this server does not compare by '\(filter.comparator.prefix(80))'")
    }
    var values = [value]
    if comparator.takesList, case .list(_, let items) = value { values = items }
    if place.isName {
      values = values.map { value in
        if case .reference(let reference) = value { .string(reference.name) } else { value }
      }
    }
    values = values.map { value in (zone.map { value.relative(to: $0) } ?? value).withoutAction }
    let checked = RecordFilter(filter.fieldName ?? "", comparator, anyOf: values)
    if let defect = checked.defect { throw .query(defect) }
    switch comparator {
    case .isIn: return .isIn(Set(values), true)
    case .notIn: return .isIn(Set(values), false)
    case .listContains, .listContainsAny: return .listContainsAny(Set(values), true)
    case .notListContains, .notListContainsAny: return .listContainsAny(Set(values), false)
    case .listContainsAll: return .listContainsAll(Set(values), true)
    case .notListContainsAll: return .listContainsAll(Set(values), false)
    default: return .filter(checked)
    }
  }

  private static func words(_ value: FieldValue) throws(ServerRefusal) -> Set<String> {
    let words = value.words
    guard !words.isEmpty else {
      throw .query("a search for words compares with a STRING or a STRING_LIST that has some")
    }
    return words
  }

  func matches(_ value: FieldValue?) -> Bool {
    switch test {
    case .filter(let filter): return filter.matches(value)
    case .isIn(let set, let expected): return (value.map { set.contains($0) } ?? false) == expected
    case .listContainsAny(let set, let expected):
      guard case .list(_, let items)? = value else { return !expected }
      return items.contains { set.contains($0) } == expected
    case .listContainsAll(let set, let expected):
      guard case .list(_, let items)? = value else { return !expected }
      var found: Set<FieldValue> = []
      for item in items where set.contains(item) { found.insert(item) }
      return (found.count == set.count) == expected
    case .near(let center, let metres):
      guard case .location(let place)? = value else { return false }
      return place.metres(from: center) <= metres
    case .words(let words, let all):
      guard let found = value?.words else { return false }
      return all ? words.isSubset(of: found) : !words.isDisjoint(with: found)
    }
  }
}

/// An order that was checked.
struct QueryOrder {
  let place: QueryPlace
  let isAscending: Bool
  /// Of an order by distance: from where.
  let center: Location?

  init(_ sort: QueryRequest.Sort) throws(ServerRefusal) {
    place = try QueryPlace(sort.fieldName, sort.systemFieldName)
    isAscending = sort.ascending ?? true
    center = sort.relativeLocation
    if let center, !center.isOnEarth {
      throw .query("a relativeLocation has a latitude of -90 to 90 and a longitude of -180 to 180")
    }
  }

  /// What records are compared by. With an order by distance those without a place come last, in both directions.
  func key(_ value: FieldValue?) -> FieldValue? {
    guard let center else { return value?.sortKey }
    guard case .location(let place)? = value else { return .double(isAscending ? .infinity : -1) }
    return .double(place.metres(from: center))
  }
}

/// A query that was checked.
struct CheckedQuery {
  var type: String
  var conditions: [QueryCondition] = []
  var orders: [QueryOrder] = []

  /// The most conditions and orders. CloudKit names no limit.
  private static let conditionsMax = 100
  private static let ordersMax = 16

  /// - Parameter zone: of the records; nil if they are of more than one.
  init(_ query: QueryRequest.Query, in zone: ZoneID?) throws(ServerRefusal) {
    type = query.recordType
    guard !type.isEmpty else { throw .query("a query names a recordType") }
    guard query.filterBy.count <= Self.conditionsMax, query.sortBy.count <= Self.ordersMax else {
      throw .query("a query has at most \(Self.conditionsMax) filters and at most \(Self.ordersMax) sorts here")
    }
    for filter in query.filterBy { conditions.append(try QueryCondition(filter, in: zone)) }
    var places: Set<QueryPlace> = []
    for sort in query.sortBy {
      let order = try QueryOrder(sort)
      guard places.insert(order.place).inserted else {
        throw .query("the query sorts by '\(order.place.words.prefix(80))' twice")
      }
      orders.append(order)
    }
  }

  /// Whether the fields of a record have to be read to place it.
  var readsRecords: Bool { conditions.contains { $0.place.isInRecord } || orders.contains { $0.place.isInRecord } }

  /// Refuses places that CloudKit could have no index of.
  func check(_ schema: Schema?) throws(ServerRefusal) {
    for place in conditions.map(\.place) + orders.map(\.place) {
      guard case .field(let field) = place else { continue }
      guard schema?.kind(of: field, in: type)?.isQueryable == true else {
        throw .query("Field '\(field.prefix(255))' is not marked queryable")
      }
    }
    for order in orders where order.center != nil {
      guard case .field(let field) = order.place, schema?.kind(of: field, in: type)?.isLocation == true else {
        throw .query(
          "a relativeLocation orders by a field of the type LOCATION, and '\(order.place.words.prefix(80))' is none")
      }
    }
  }
}

/// A record that the query finds, with what it is sorted by.
struct FoundRecord {
  var lsn: UInt64
  var zone: UInt64
  var name: String
  var keys: [FieldValue?]

  /// The bytes of the texts and bytes that it is sorted by.
  var keyBytes: Int {
    keys.reduce(0) { sum, key in
      switch key {
      case .string(let text): sum + text.utf8.count
      case .bytes(let bytes): sum + bytes.count
      default: sum
      }
    }
  }

  /// Whether it comes before another one. Records that are equal in all come in the order of their names.
  func precedes(_ other: FoundRecord, _ query: CheckedQuery) -> Bool {
    for (place, order) in query.orders.enumerated() {
      let result = FieldValue.sortOrder(keys[place], other.keys[place])
      if result != 0 { return order.isAscending ? result < 0 : result > 0 }
    }
    if !name.equalsUTF8(other.name) { return name.precedesByUTF8(other.name) }
    return zone < other.zone
  }
}

/// The first of the records that a query finds: a heap whose root is the last of them, so that the others are not kept.
///
/// What records are sorted by may be as long as a record. Where that comes to more than so many bytes, the last are dropped,
/// and so is what would come after them: the page is shorter.
struct FirstRecords {
  private var heap: [FoundRecord] = []
  private let query: CheckedQuery
  private var limit: Int
  private let bytesMax: Int
  /// The bytes of what the records are sorted by.
  private(set) var bytes = 0
  private var isCut = false

  /// - Parameter bytesMax: of what records are sorted by; two records are kept however long that is.
  init(_ limit: Int, bytesMax: Int, _ query: CheckedQuery) {
    self.limit = limit
    self.bytesMax = bytesMax
    self.query = query
  }

  /// How many of the records a page may show: if some were dropped, the last says where the next page begins.
  var shownMax: Int { isCut ? heap.count - 1 : .max }

  mutating func insert(_ record: FoundRecord) {
    add(record)
    while bytes > bytesMax, heap.count > 2 {
      isCut = true
      limit = heap.count - 1
      bytes -= heap[0].keyBytes
      heap[0] = heap.removeLast()
      sink()
    }
  }

  private mutating func add(_ record: FoundRecord) {
    if heap.count < limit {
      bytes += record.keyBytes
      heap.append(record)
      var place = heap.count - 1
      while place > 0, heap[(place - 1) / 2].precedes(heap[place], query) {
        heap.swapAt(place, (place - 1) / 2)
        place = (place - 1) / 2
      }
    } else if let last = heap.first, record.precedes(last, query) {
      bytes += record.keyBytes - last.keyBytes
      heap[0] = record
      sink()
    }
  }

  private mutating func sink() {
    var place = 0
    while true {
      var later = place
      for child in [2 * place + 1, 2 * place + 2] where child < heap.count && heap[later].precedes(heap[child], query) {
        later = child
      }
      guard later != place else { return }
      heap.swapAt(place, later)
      place = later
    }
  }

  var sorted: [FoundRecord] { heap.sorted { $0.precedes($1, query) } }
}

extension Location {
  /// Whether a map has the place.
  var isOnEarth: Bool { (-90...90).contains(latitude) && (-180...180).contains(longitude) }

  /// The way over the surface of a sphere as large as the earth.
  func metres(from other: Location) -> Double {
    func radians(_ degrees: Double) -> Double { degrees * .pi / 180 }
    let north = sin(radians(latitude - other.latitude) / 2)
    let east = sin(radians(longitude - other.longitude) / 2)
    let part = north * north + cos(radians(latitude)) * cos(radians(other.latitude)) * east * east
    return 2 * 6_371_008.8 * asin(min(1, part.squareRoot()))
  }
}

extension FieldValue {
  /// A reference is found by its target, whatever a deletion of that does.
  var withoutAction: FieldValue {
    switch self {
    case .reference(var reference):
      reference.action = .none
      return .reference(reference)
    case .list(.references, let items): return .list(.references, items.map(\.withoutAction))
    default: return self
    }
  }

  /// What the value is sorted by: itself, or, of a kind that has no order, any value of such a kind, because a list may have
  /// a hundred times the bytes in memory that it has in a record.
  var sortKey: FieldValue {
    switch self {
    case .string, .int64, .double, .date, .bytes: self
    case .reference, .location, .asset, .list, .encrypted, .opaque: .list(.unknown, [])
    }
  }

  /// The words of a text or of a list of texts, in small letters.
  var words: Set<String> {
    switch self {
    case .string(let text):
      Set(text.lowercased().split { !$0.isLetter && !$0.isNumber }.map(String.init))
    case .list(.strings, let items): items.reduce(into: []) { $0.formUnion($1.words) }
    default: []
    }
  }
}

extension ServerRefusal {
  /// The refusal of a query.
  static func query(_ words: String) -> ServerRefusal { ServerRefusal(400, WireError(.badRequest, words)) }
}
