// Conditions by key paths, each a predicate of one operator: for those that are put together at run time, and in place of a
// `#Predicate` that is too long for the compiler.

public import Foundation

extension Predicate {
  /// A property compared with a value:
  ///
  /// ```swift
  /// let notes = try store.fetch(Note.self, where: .where(\.stars, .greater, 3), .where(\.title, .beginsWith, "L"))
  /// ```
  public static func `where`<Value: SyncRecord, Property: Equatable & Codable & Sendable>(
    _ property: any KeyPath<Value, Property> & Sendable, _ comparison: PropertyEquality, _ value: Property
  ) -> Predicate<Value> {
    Predicate<Value> { variable in
      let path = PredicateExpressions.build_KeyPath(root: variable, keyPath: property)
      let value = PredicateExpressions.build_Arg(value)
      return switch comparison {
      case .equal: PredicateExpressions.build_Equal(lhs: path, rhs: value)
      case .notEqual: PredicateExpressions.build_NotEqual(lhs: path, rhs: value)
      }
    }
  }

  /// A property whose values have an order, compared with a value.
  public static func `where`<Value: SyncRecord, Property: Comparable & Codable & Sendable>(
    _ property: any KeyPath<Value, Property> & Sendable, _ comparison: PropertyComparison, _ value: Property
  ) -> Predicate<Value> {
    Predicate<Value> { variable in
      PredicateExpressions.build_Comparison(
        lhs: PredicateExpressions.build_KeyPath(root: variable, keyPath: property),
        rhs: PredicateExpressions.build_Arg(value), op: comparison.op)
    }
  }

  /// A text compared with another.
  public static func `where`<Value: SyncRecord>(
    _ property: any KeyPath<Value, String> & Sendable, _ comparison: TextComparison, _ text: String
  ) -> Predicate<Value> {
    Predicate<Value> { variable in
      let path = PredicateExpressions.build_KeyPath(root: variable, keyPath: property)
      let text = PredicateExpressions.build_Arg(text)
      return switch comparison {
      case .beginsWith: PredicateExpressions.build_starts(path, with: text)
      case .contains: PredicateExpressions.build_contains(path, text)
      }
    }
  }

  /// A list that contains a value.
  public static func `where`<Value: SyncRecord, Items: Sequence & Codable & Sendable>(
    _ property: any KeyPath<Value, Items> & Sendable, contains item: Items.Element
  ) -> Predicate<Value> where Items.Element: Equatable & Codable & Sendable {
    Predicate<Value> { variable in
      PredicateExpressions.build_contains(
        PredicateExpressions.build_KeyPath(root: variable, keyPath: property), PredicateExpressions.build_Arg(item))
    }
  }

  /// A property that is one of several values.
  public static func `where`<Value: SyncRecord, Property: Equatable & Codable & Sendable>(
    _ property: any KeyPath<Value, Property> & Sendable, isIn values: [Property]
  ) -> Predicate<Value> {
    Predicate<Value> { variable in
      PredicateExpressions.build_contains(
        PredicateExpressions.build_Arg(values), PredicateExpressions.build_KeyPath(root: variable, keyPath: property))
    }
  }
}

/// Whether a property is a value.
public enum PropertyEquality: Hashable, Sendable {
  /// The same value; a text to the byte.
  case equal
  /// Another value, or none.
  case notEqual
}

/// How a property is compared with a value; texts by their UTF-8.
public enum PropertyComparison: Hashable, Sendable {
  /// The property is less than the value.
  case less
  /// The property is less than the value, or equals it.
  case lessOrEqual
  /// The property is greater than the value.
  case greater
  /// The property is greater than the value, or equals it.
  case greaterOrEqual

  fileprivate var op: PredicateExpressions.ComparisonOperator {
    switch self {
    case .less: .lessThan
    case .lessOrEqual: .lessThanOrEqual
    case .greater: .greaterThan
    case .greaterOrEqual: .greaterThanOrEqual
    }
  }
}

/// How a text is compared with another, by their UTF-8.
public enum TextComparison: Hashable, Sendable {
  /// It begins with the other.
  case beginsWith
  /// The other is a part of it.
  case contains
}
