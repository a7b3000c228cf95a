// What an index can answer of a condition on a property: a condition on the field that each record meets whose property meets
// the property's. It may let more records pass, because each that is found is judged by the predicate itself; it must let none out.
//
// So it has all values of a field that are read as one of the property: every number but 0 is a Bool that is true, and a Double may
// be stored as DOUBLE or as INT64. Nothing is asked of an index where they are not known: for an enum that reads what it does not
// know as one of its cases.

import Foundation
import StrandlineSystem

/// Conditions on fields that a record must meet, and the only records that can.
struct ConditionNeeds {
  /// How a property is compared with a constant.
  enum Relation { case equal, atMost, atLeast, beginsWith, contains }

  private(set) var filters: [RecordFilter] = []
  private(set) var spans: [FieldSpans] = []
  /// Nil: any.
  private(set) var names: Set<CloudName>?

  var isEmpty: Bool { filters.isEmpty && spans.isEmpty && names == nil }

  /// A condition that every record meets.
  init() {}

  mutating func add(_ other: ConditionNeeds) {
    filters += other.filters
    spans += other.spans
    if let others = other.names { names = names.map { $0.intersection(others) } ?? others }
  }

  /// What a comparison of a property with a value needs; nothing if no index can answer it.
  init<Constant>(_ field: PropertyField, _ relation: Relation, _ constant: Constant) {
    if field.isName {
      if relation == .equal { names = Self.name(constant).map { [$0] } }
      return
    }
    guard let name = field.indexed, let stored = StoredConstant(constant, in: field.zone) else { return }
    switch relation {
    case .equal:
      if let values = stored.values {
        filters = [Self.filter(name, .equals, .isIn, values)]
      } else {
        require(name, stored.spans)
      }
    case .atMost: require(name, stored.spans.compactMap { $0.upper.map { .to($0) } })
    case .atLeast: require(name, stored.spans.compactMap { $0.lower.map { .from($0) } })
    case .beginsWith:
      if let text = constant as? String { filters = [RecordFilter(name, .beginsWith, .string(text))] }
    case .contains:
      if let values = stored.values { filters = [Self.filter(name, .listContains, .listContainsAny, values)] }
    }
  }

  /// What it needs that a property is one of several values.
  init<Constant>(_ field: PropertyField, anyOf constants: [Constant]) {
    if field.isName {
      let known = constants.compactMap { Self.name($0) }
      if known.count == constants.count { names = Set(known) }
      return
    }
    let values = constants.compactMap { StoredConstant($0, in: field.zone)?.values }
    guard let name = field.indexed, values.count == constants.count, !values.isEmpty else { return }
    filters = [RecordFilter(name, .isIn, anyOf: values.flatMap { $0 })]
  }

  private mutating func require(_ field: String, _ spans: [FieldSpans.Span]) {
    if !spans.isEmpty { self.spans.append(FieldSpans(field, spans)) }
  }

  private static func filter(
    _ field: String, _ one: RecordFilter.Comparator, _ several: RecordFilter.Comparator, _ values: [FieldValue]
  ) -> RecordFilter { RecordFilter(field, values.count == 1 ? one : several, anyOf: values) }

  private static func name(_ constant: Any) -> CloudName? {
    (constant as? any RecordNameConvertible).map { CloudName($0.recordName) }
  }
}

/// A value of a predicate, as fields hold it.
private struct StoredConstant {
  typealias Span = FieldSpans.Span

  /// All field values that are read as this value; nil if they are not known one by one.
  private(set) var values: [FieldValue]?
  /// For each type of field the span outside of which none is read as this value: as a lesser one below, as a greater one above.
  /// Empty if fields have another order than the property, or none. A span may end before it begins: then the type has no such value.
  private(set) var spans: [Span] = []

  /// - Returns: nil for nil, and for a type of which nothing is known.
  init?<Constant>(_ constant: Constant, in zone: ZoneID) {
    guard let made = Self.make(constant, in: zone) else { return nil }
    self = made
  }

  private init(_ values: [FieldValue]?, _ spans: [Span] = []) { (self.values, self.spans) = (values, spans) }

  private static func make<Constant>(_ constant: Constant, in zone: ZoneID) -> StoredConstant? {
    switch constant {
    // Of an optional its value.
    case let optional as any OptionalProperty: unwrapped(optional, in: zone)
    case let text as String: StoredConstant(exact: .string(text))
    case let flag as Bool:
      flag ? StoredConstant(nil, [.to(.int64(-1)), .from(.int64(1))]) : StoredConstant([.int64(0)])
    case let date as Date: StoredConstant(date)
    case let id as UUID: StoredConstant([.string(id.uuidString), .string(id.uuidString.lowercased())])
    case let bytes as Data: bytes.isEmpty ? nil : StoredConstant([.bytes(Array(bytes))])
    case let number as Double: StoredConstant(number, least: number, greatest: number)
    // Numbers with more digits are read as the next one that a Float has.
    case let number as Float: StoredConstant(nil, least: Double(number.nextDown), greatest: Double(number.nextUp))
    case let number as any FixedWidthInteger: Int64(exactly: number).map { StoredConstant(exact: .int64($0)) }
    case let reference as any PointingProperty: StoredConstant([reference.pointer(in: zone)])
    case let value as any RawRepresentable & Codable: raw(value).map { StoredConstant([$0]) }
    default: nil
    }
  }

  private static func unwrapped<Property: OptionalProperty>(
    _ property: Property, in zone: ZoneID
  ) -> StoredConstant? {
    property.value.flatMap { StoredConstant($0, in: zone) }
  }

  private init(exact value: FieldValue) { self.init([value], [.between(value, value)]) }

  /// Dates are stored in milliseconds. One between two of them is none that is read.
  private init?(_ date: Date) {
    let exact = (date.timeIntervalSince1970 * 1000).rounded()
    guard let milliseconds = Int64(exactly: exact), milliseconds > .min, milliseconds < .max else { return nil }
    self.init(
      Date(milliseconds: milliseconds) == date ? [.date(milliseconds: milliseconds)] : nil,
      [.between(.date(milliseconds: milliseconds - 1), .date(milliseconds: milliseconds + 1))])
  }

  /// From here on a Double has no fractions, and one whole number is read of several.
  private static let wholeMax = 0x1p53

  /// A number that other tools may have stored without a fraction.
  ///
  /// - Parameter number: the number that a value must be read as; nil where several numbers are read as the same one.
  private init?(_ number: Double?, least: Double, greatest: Double) {
    guard !least.isNaN, !greatest.isNaN else { return nil }
    // Beyond `wholeMax` a bound only says that it is beyond.
    func whole(_ number: Double, _ rule: FloatingPointRoundingRule) -> FieldValue {
      .int64(Int64(min(max(number, -Self.wholeMax), Self.wholeMax).rounded(rule)))
    }
    let upper: FieldValue = greatest < Self.wholeMax ? whole(greatest, .down) : .int64(.max)
    let lower: FieldValue = least > -Self.wholeMax ? whole(least, .up) : .int64(.min)
    spans = [.between(.double(least), .double(greatest)), .between(lower, upper)]
    guard let number, number.magnitude < Self.wholeMax else { return }
    // Zero has two signs.
    values = [.double(number == 0 ? 0 : number)] + (Int64(exactly: number).map { [.int64($0)] } ?? [])
  }

  /// The field of a value with a raw one, if no other raw value is read as it.
  private static func raw<Value: RawRepresentable & Codable>(_ value: Value) -> FieldValue? {
    guard !(Value.self is any JSONField.Type), !(Value.self is any FieldStorable.Type) else { return nil }
    let stored: FieldValue
    switch value.rawValue {
    case let text as String: stored = .string(text)
    case let number as any FixedWidthInteger:
      guard let wide = Int64(exactly: number) else { return nil }
      stored = .int64(wide)
    default: return nil
    }
    func fieldOf(_ value: Value) -> FieldValue? { try? RecordEncoder.fieldValue(value, at: [], in: .main) }
    // What it makes of a raw value that no app has.
    func isRead(_ field: FieldValue) -> Bool {
      (try? RecordDecoder.value(Value.self, field, at: [], in: .main)).flatMap { fieldOf($0) } == stored
    }
    return isRead(.string("\u{1}strandline")) || isRead(.int64(.min + 1)) || fieldOf(value) != stored ? nil : stored
  }
}

/// A property that points at a record.
protocol PointingProperty {
  /// What points at the same record, in a record of a zone. A filter finds what is stored of it, whatever its action.
  func pointer(in zone: ZoneID) -> FieldValue
  /// Whether it points at the same record as another.
  func pointsWhere(_ other: Self) -> Bool
}

extension TypedReference: PointingProperty {
  func pointer(in zone: ZoneID) -> FieldValue {
    FieldValue.reference(Reference(id.recordName, zone: Target.zone)).relative(to: zone)
  }
  func pointsWhere(_ other: Self) -> Bool { CloudName(id.recordName) == CloudName(other.id.recordName) }
}

extension Reference: PointingProperty {
  func pointer(in zone: ZoneID) -> FieldValue { FieldValue.reference(self).relative(to: zone) }
  func pointsWhere(_ other: Self) -> Bool { CloudName(name) == CloudName(other.name) && zone == other.zone }
}

extension Parent: PointingProperty {
  /// A parent has no action, and lies in the zone of its children.
  func pointer(in zone: ZoneID) -> FieldValue { .reference(Reference(id.recordName)) }
  func pointsWhere(_ other: Self) -> Bool { self == other }
}
