// The order of values of fields, which queries answer in and the rows of indexes stand in.

import StrandlineSystem

/// An order by one field. Records without a value come first; values of different types in the order text, whole
/// numbers, numbers, times, bytes, all others.
public struct RecordSort: Hashable, Sendable {
  /// The field's name.
  public var field: String
  /// From the least to the greatest; else the reverse.
  public var ascending: Bool

  /// Sorts by a field.
  public init(_ field: String, ascending: Bool = true) {
    self.field = field
    self.ascending = ascending
  }
}

extension FieldValue {
  /// Below, at or above zero as this is less than, the same as or greater than a value of the same type; nil if they
  /// cannot be compared.
  package func order(_ other: FieldValue) -> Int? {
    switch (self, other) {
    case (.string(let left), .string(let right)):
      left.utf8.elementsEqual(right.utf8) ? 0 : (left.precedesByUTF8(right) ? -1 : 1)
    case (.int64(let left), .int64(let right)): left == right ? 0 : (left < right ? -1 : 1)
    case (.double(let left), .double(let right)): left == right ? 0 : (left < right ? -1 : 1)
    case (.date(let left), .date(let right)): left == right ? 0 : (left < right ? -1 : 1)
    case (.bytes(let left), .bytes(let right)):
      left == right ? 0 : (left.lexicographicallyPrecedes(right) ? -1 : 1)
    default: nil
    }
  }

  /// The place of a type among types that cannot be compared with each other.
  private var rank: Int {
    switch self {
    case .string: 1
    case .int64: 2
    case .double: 3
    case .date: 4
    case .bytes: 5
    default: 6
    }
  }

  /// The order of sorting, which every two values have.
  package static func sortOrder(_ left: FieldValue?, _ right: FieldValue?) -> Int {
    guard let left else { return right == nil ? 0 : -1 }
    guard let right else { return 1 }
    return left.order(right) ?? left.rank - right.rank
  }
}

extension RecordSort: CustomStringConvertible {
  /// The field, and whether the order is the reverse.
  public var description: String { (field + (ascending ? "" : " descending")).oneLine }
}
