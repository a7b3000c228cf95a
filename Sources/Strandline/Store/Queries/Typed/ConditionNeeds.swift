// What an index can answer of a condition on a property: a condition on the field that each record meets whose property meets
// the property's. It may let more records pass, because each that is found is judged by the predicate itself; it must let none out.
//
// So nothing is asked of an index where two fields can give one value: a Bool, for which any number but 0 is true; a number that
// may be stored as DOUBLE or as INT64; an enum that reads what it does not know as one of its cases.

import Foundation
import StrandlineSystem

/// Conditions on fields that a record must meet, and the only records that can.
struct ConditionNeeds {
  var filters: [RecordFilter] = []
  /// Nil: any.
  var names: Set<CloudName>?

  var isEmpty: Bool { filters.isEmpty && names == nil }

  mutating func add(_ other: ConditionNeeds) {
    filters += other.filters
    if let others = other.names { names = names.map { $0.intersection(others) } ?? others }
  }
}

extension ConditionNeeds {
  /// What a comparison of a property with a value needs; empty if no index can answer it.
  init<Constant>(_ field: PropertyField, _ comparator: RecordFilter.Comparator, _ constant: Constant) {
    if field.name == "id" {
      if comparator == .equals { names = Self.name(constant).map { [$0] } }
      return
    }
    guard field.isIndexable, let value = StoredConstant(constant, in: field.zone) else { return }
    switch comparator {
    case .equals:
      guard let values = value.equals else { return }
      filters = [RecordFilter(field.name, values.count == 1 ? .equals : .isIn, anyOf: values)]
    case .listContains:
      guard let values = value.equals else { return }
      filters = [RecordFilter(field.name, .listContainsAny, anyOf: values)]
    case .lessThanOrEquals:
      guard let bounds = value.bounds else { return }
      filters = [RecordFilter(field.name, comparator, bounds.upper)]
    case .greaterThanOrEquals:
      guard let bounds = value.bounds else { return }
      filters = [RecordFilter(field.name, comparator, bounds.lower)]
    case .beginsWith:
      if case .string = value.bounds?.lower { filters = [RecordFilter(field.name, comparator, .string(value.text))] }
    default: break
    }
  }

  /// What it needs that a property is one of several values.
  init<Constant>(_ field: PropertyField, anyOf constants: [Constant]) {
    if field.name == "id" {
      let known = constants.compactMap { Self.name($0) }
      if known.count == constants.count { names = Set(known) }
      return
    }
    let values = constants.compactMap { StoredConstant($0, in: field.zone)?.equals }
    guard field.isIndexable, values.count == constants.count, !values.isEmpty else { return }
    filters = [RecordFilter(field.name, .isIn, anyOf: values.flatMap { $0 })]
  }

  private static func name(_ constant: Any) -> CloudName? {
    (constant as? any RecordNameConvertible).map { CloudName($0.recordName) }
  }
}

extension PropertyField {
  /// Whether a record without the field meets no condition on it but the negated ones.
  fileprivate var isIndexable: Bool {
    guard name != "id", !isPart else { return false }
    if case .value = absence { return false }
    return true
  }
}

/// A value of a predicate, as fields hold it.
private struct StoredConstant {
  /// All field values that are read as this value; nil if they are not known.
  var equals: [FieldValue]?
  /// Values between which all lie that are read as this value, in the order of the fields; nil if they have another order.
  var bounds: (lower: FieldValue, upper: FieldValue)?

  var text: String { if case .string(let text)? = bounds?.lower { text } else { "" } }

  private init(equals: [FieldValue]?, bounds: (lower: FieldValue, upper: FieldValue)? = nil) {
    (self.equals, self.bounds) = (equals, bounds)
  }

  /// - Returns: nil for nil, and for a type of which nothing is known.
  init?<Constant>(_ constant: Constant, in zone: ZoneID) {
    guard let made = Self.make(constant, in: zone), made.equals != nil || made.bounds != nil else { return nil }
    self = made
  }

  private static func make<Constant>(_ constant: Constant, in zone: ZoneID) -> StoredConstant? {
    switch constant {
    // Of an optional its value.
    case let optional as any OptionalProperty: unwrapped(optional, in: zone)
    case let text as String: StoredConstant(exact: .string(text))
    case let flag as Bool: flag ? nil : StoredConstant(equals: [.int64(0)])
    case let date as Date: StoredConstant(date)
    case let id as UUID: StoredConstant(equals: [.string(id.uuidString), .string(id.uuidString.lowercased())])
    case let bytes as Data: bytes.isEmpty ? nil : StoredConstant(equals: [.bytes(Array(bytes))])
    case let number as Double: StoredConstant(number)
    case let number as Float: StoredConstant(Double(number))
    case let number as any FixedWidthInteger: Int64(exactly: number).map { StoredConstant(exact: .int64($0)) }
    case let reference as any PointingProperty: StoredConstant(equals: reference.pointers(in: zone))
    case let value as any RawRepresentable & Codable: raw(value).map { StoredConstant(equals: [$0]) }
    default: nil
    }
  }

  private static func unwrapped<Property: OptionalProperty>(
    _ property: Property, in zone: ZoneID
  ) -> StoredConstant? {
    property.value.flatMap { StoredConstant($0, in: zone) }
  }

  private init(exact value: FieldValue) {
    equals = [value]
    bounds = (value, value)
  }

  /// Dates are stored in milliseconds. One between two of them is none that is read.
  private init(_ date: Date) {
    let exact = (date.timeIntervalSince1970 * 1000).rounded()
    guard let milliseconds = Int64(exactly: exact), milliseconds > .min, milliseconds < .max else {
      self.init(equals: nil)
      return
    }
    self.init(
      equals: Date(milliseconds: milliseconds) == date ? [.date(milliseconds: milliseconds)] : nil,
      bounds: (.date(milliseconds: milliseconds - 1), .date(milliseconds: milliseconds + 1)))
  }

  /// A number that other tools may have stored without a fraction.
  private init(_ number: Double) {
    let stored = number == 0 ? 0 : number
    let whole = Int64(exactly: stored).map { [FieldValue.int64($0)] } ?? []
    self.init(equals: number.isFinite ? [.double(stored)] + whole : nil)
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
  /// The reference, in a record of a zone, as it is stored.
  func stored(in zone: ZoneID) -> FieldValue
  /// Whether it points at the same record as another.
  func pointsWhere(_ other: Self) -> Bool
}

extension PointingProperty {
  /// The references that point at the same record, with each action.
  fileprivate func pointers(in zone: ZoneID) -> [FieldValue]? {
    guard case .reference(let stored) = stored(in: zone) else { return nil }
    return Reference.Action.allCases.map { .reference(Reference(stored.name, zone: stored.zone, action: $0)) }
  }
}

extension TypedReference: PointingProperty {
  func stored(in zone: ZoneID) -> FieldValue { fieldValue(in: zone).relative(to: zone) }
  func pointsWhere(_ other: Self) -> Bool { CloudName(id.recordName) == CloudName(other.id.recordName) }
}

extension Reference: PointingProperty {
  func stored(in zone: ZoneID) -> FieldValue { FieldValue.reference(self).relative(to: zone) }
  func pointsWhere(_ other: Self) -> Bool { CloudName(name) == CloudName(other.name) && zone == other.zone }
}
