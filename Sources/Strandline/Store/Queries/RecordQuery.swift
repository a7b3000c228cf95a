// A question to a store: which records of a type, in which order. The words are those of CloudKit's own queries, so that
// a query means the same here and at the server.

import StrandlineSystem

/// Which records of a type to find, and in which order.
public struct RecordQuery: Hashable, Sendable {
  /// The records' type.
  public var recordType: String
  /// Their zone; nil for all zones.
  public var zone: ZoneID?
  /// Conditions that a record must all meet.
  public var filters: [RecordFilter]
  /// The order, the first the most significant; records that are equal in all come in the order of zone and name.
  public var sorts: [RecordSort]
  /// The most records in one page; nil for all.
  public var limit: Int?
  /// The fields that the records of the answer have; nil for all.
  public var desiredKeys: [String]?
  /// Conditions of a typed question that no filter can say, all of which must be met.
  var spans: [FieldSpans] = []

  /// Asks for the records of a type.
  public init(
    _ recordType: String, in zone: ZoneID? = nil, where filters: [RecordFilter] = [], sortedBy sorts: [RecordSort] = [],
    limit: Int? = nil, desiredKeys: [String]? = nil
  ) {
    self.recordType = recordType
    self.zone = zone
    self.filters = filters
    self.sorts = sorts
    self.limit = limit
    self.desiredKeys = desiredKeys
  }
}

/// A condition on one field.
///
/// A field without a value, and a value of another type than the condition's, meet none but the negated conditions. A
/// reference is the same as another one that points at the same record, whatever its action. An encrypted field cannot be
/// asked for, as at the server.
public struct RecordFilter: Hashable, Sendable {
  /// How a field's value is compared with the condition's; the raw values are the words of CloudKit Web Services.
  public enum Comparator: String, Hashable, Sendable, CaseIterable {
    /// The same value.
    case equals = "EQUALS"
    /// Another value, or none.
    case notEquals = "NOT_EQUALS"
    /// Less; text by its UTF-8.
    case lessThan = "LESS_THAN"
    /// Less or the same.
    case lessThanOrEquals = "LESS_THAN_OR_EQUALS"
    /// Greater.
    case greaterThan = "GREATER_THAN"
    /// Greater or the same.
    case greaterThanOrEquals = "GREATER_THAN_OR_EQUALS"
    /// One of the values of a list.
    case isIn = "IN"
    /// None of the values of a list, or no value.
    case notIn = "NOT_IN"
    /// Text that begins with the value.
    case beginsWith = "BEGINS_WITH"
    /// Anything else.
    case notBeginsWith = "NOT_BEGINS_WITH"
    /// A list that contains the value.
    case listContains = "LIST_CONTAINS"
    /// Anything else.
    case notListContains = "NOT_LIST_CONTAINS"
    /// A list that contains at least one of the values.
    case listContainsAny = "LIST_CONTAINS_ANY"
    /// Anything else.
    case notListContainsAny = "NOT_LIST_CONTAINS_ANY"
    /// A list that contains all values.
    case listContainsAll = "LIST_CONTAINS_ALL"
    /// Anything else.
    case notListContainsAll = "NOT_LIST_CONTAINS_ALL"
    /// A list of texts, one of which begins with the value.
    case listMemberBeginsWith = "LIST_MEMBER_BEGINS_WITH"
    /// Anything else.
    case notListMemberBeginsWith = "NOT_LIST_MEMBER_BEGINS_WITH"

    /// Whether it compares with a list of values.
    package var takesList: Bool {
      switch self {
      case .isIn, .notIn, .listContainsAny, .notListContainsAny, .listContainsAll, .notListContainsAll: true
      default: false
      }
    }
  }

  /// The field's name.
  public var field: String
  /// How it is compared.
  public var comparator: Comparator
  /// What it is compared with: one value, or for comparators of lists any number.
  public var values: [FieldValue]

  /// Compares with one value.
  public init(_ field: String, _ comparator: Comparator, _ value: FieldValue) {
    self.field = field
    self.comparator = comparator
    values = [value]
  }

  /// Compares with several values: `isIn`, `listContainsAny`, `listContainsAll` and their negations.
  public init(_ field: String, _ comparator: Comparator, anyOf values: [FieldValue]) {
    self.field = field
    self.comparator = comparator
    self.values = values
  }

  /// What is wrong with the condition; nil if nothing is.
  package var defect: String? {
    if !comparator.takesList, values.count != 1 { return "\(comparator.rawValue) compares with one value" }
    for value in values {
      switch value {
      case .asset, .encrypted, .opaque:
        return "\(comparator.rawValue) cannot compare with an asset, an encrypted value or one of an unknown type"
      case .list: return "\(comparator.rawValue) compares with single values, not with a list"
      default: break
      }
    }
    return nil
  }

  /// Whether a record's value of the field meets the condition.
  package func matches(_ value: FieldValue?) -> Bool {
    switch comparator {
    case .equals: value.map(isAnyOf) ?? false
    case .notEquals: !(value.map(isAnyOf) ?? false)
    case .lessThan: order(value).map { $0 < 0 } ?? false
    case .lessThanOrEquals: order(value).map { $0 <= 0 } ?? false
    case .greaterThan: order(value).map { $0 > 0 } ?? false
    case .greaterThanOrEquals: order(value).map { $0 >= 0 } ?? false
    case .isIn: value.map(isAnyOf) ?? false
    case .notIn: !(value.map(isAnyOf) ?? false)
    case .beginsWith: begins(value)
    case .notBeginsWith: !begins(value)
    case .listContains, .listContainsAny: contains(value)
    case .notListContains, .notListContainsAny: !contains(value)
    case .listContainsAll: containsAll(value)
    case .notListContainsAll: !containsAll(value)
    case .listMemberBeginsWith: memberBegins(value)
    case .notListMemberBeginsWith: !memberBegins(value)
    }
  }

  /// Whether it is one of the condition's values.
  private func isAnyOf(_ value: FieldValue) -> Bool { values.contains { Self.isSame(value, $0) } }

  /// Whether two values are the same. The action of a reference is an affair of the record that points, and no part of what it
  /// points at.
  private static func isSame(_ left: FieldValue, _ right: FieldValue) -> Bool {
    guard case .reference(let left) = left, case .reference(let right) = right else { return left == right }
    return left.pointsWhere(right)
  }

  private func order(_ value: FieldValue?) -> Int? {
    guard let value, let other = values.first else { return nil }
    return value.order(other)
  }

  private func begins(_ value: FieldValue?) -> Bool {
    guard case .string(let text)? = value, case .string(let prefix)? = values.first else { return false }
    return text.utf8.starts(with: prefix.utf8)
  }

  private func contains(_ value: FieldValue?) -> Bool {
    guard case .list(_, let items)? = value else { return false }
    return items.contains(where: isAnyOf)
  }

  private func containsAll(_ value: FieldValue?) -> Bool {
    guard case .list(_, let items)? = value else { return false }
    return values.allSatisfy { value in items.contains { Self.isSame($0, value) } }
  }

  private func memberBegins(_ value: FieldValue?) -> Bool {
    guard case .list(_, let items)? = value else { return false }
    return items.contains { begins($0) }
  }
}
