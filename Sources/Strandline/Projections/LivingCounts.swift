// How many records live, zone by zone and type by type: kept with every change, so that a count walks no records.
//
// A zone has as many types as its schema, some dozens. A server may send a type with each record all the same: so a zone
// that has had too many types counts its records as a whole only.

/// How many records live in a zone; or by how many more at one moment than at another.
package struct LivingCount: Sendable {
  /// Of more types than these none is counted apart.
  package static let typesMax = 256

  package private(set) var total = 0
  private var countsByType: [String: Int] = [:]
  private var hasTooManyTypes = false
  /// The type whose number changed last, and its place: many changes in a row are of one type.
  private var last: (type: String, place: Dictionary<String, Int>.Index)?

  init() {}

  /// - Parameter types: empty if they are not counted.
  init(stored total: Int, types: [(type: String, count: Int)]) {
    self.total = total
    countsByType = Dictionary(types.map { ($0.type, $0.count) }) { $0 + $1 }
    hasTooManyTypes = types.isEmpty && total != 0
  }

  /// How many of each type, none of it left out but those of which there are none; nil if types are not counted.
  package var types: [String: Int]? { hasTooManyTypes ? nil : countsByType.filter { $0.value != 0 } }

  /// How many of a type; nil if types are not counted.
  func count(ofType type: String) -> Int? { hasTooManyTypes ? nil : countsByType[type] ?? 0 }

  mutating func add(_ change: Int, _ type: String) {
    total += change
    if hasTooManyTypes { return }
    if let last, last.type == type {
      countsByType.values[last.place] += change
      return
    }
    countsByType[type, default: 0] += change
    boundTypes()
    last = countsByType.index(forKey: type).map { (type, $0) }
  }

  mutating func add(_ other: LivingCount) {
    total += other.total
    countsByType.merge(other.countsByType, uniquingKeysWith: +)
    hasTooManyTypes = hasTooManyTypes || other.hasTooManyTypes
    last = nil
    boundTypes()
  }

  private mutating func boundTypes() {
    guard countsByType.count > Self.typesMax else { return }
    countsByType = countsByType.filter { $0.value != 0 }
    if countsByType.count > Self.typesMax { (countsByType, hasTooManyTypes) = ([:], true) }
  }
}

extension [ZoneID: LivingCount] {
  /// How many live, in all zones or in one; nil if it is asked about a type that is not counted there.
  package func total(ofType type: String?, in zone: ZoneID?) -> Int? {
    func count(_ living: LivingCount) -> Int? { type.map { living.count(ofType: $0) } ?? living.total }
    if let zone { return self[zone].map(count) ?? 0 }
    var sum = 0
    for living in values {
      guard let more = count(living) else { return nil }
      sum += more
    }
    return sum
  }

  /// Counts a record that becomes `after` and was `before`: its type if it lives.
  mutating func change(_ zone: ZoneID, from before: String?, to after: String?) {
    guard before != after else { return }
    if let before { self[zone, default: LivingCount()].add(-1, before) }
    if let after { self[zone, default: LivingCount()].add(1, after) }
  }
}

extension RecordEntry {
  /// The record's type, if it lives.
  var livingType: String? { view == nil ? nil : type }
}

extension AfterChange {
  /// The record's type, if it lives.
  var livingType: String? { isLiving ? type : nil }
}
