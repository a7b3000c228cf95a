// Comparisons in typed queries. Texts are compared by their bytes, as in indexes and at the server: two spellings of one letter
// that Swift's `==` calls equal are two texts here. All else is compared by Swift's own operators.

import StrandlineSystem

/// How values of a type are compared.
enum ByUTF8 {
  /// Whether it is one of those that are compared by their UTF-8.
  static func isText(_ type: Any.Type) -> Bool { type is String.Type }

  /// Whether two are equal.
  static func equal<Value: Equatable>(_ type: Value.Type) -> (Value, Value) -> Bool {
    if type is String.Type || type is String?.Type {
      return { left, right in isEqual(left as? String, right as? String) }
    }
    if type is [String].Type || type is [String]?.Type {
      return { left, right in
        guard let left = left as? [String], let right = right as? [String] else {
          return (left as? [String] == nil) == (right as? [String] == nil)
        }
        return left.count == right.count && zip(left, right).allSatisfy { isEqual($0, $1) }
      }
    }
    if type is any PointingProperty.Type || type is any OptionalPointer.Type {
      return { left, right in pointsAlike(left, right) ?? (left == right) }
    }
    return { $0 == $1 }
  }

  /// Whether two references point at the same record, whatever their actions; nil if one is nil.
  private static func pointsAlike(_ left: Any, _ right: Any) -> Bool? {
    func compare<Pointer: PointingProperty>(_ left: Pointer) -> Bool? {
      (right as? Pointer).map { left.pointsWhere($0) }
    }
    return (left as? any PointingProperty).flatMap { compare($0) }
  }

  private static func isEqual(_ left: String?, _ right: String?) -> Bool {
    guard let left, let right else { return left == nil && right == nil }
    return left.equalsUTF8(right)
  }

  /// Whether one comes before the other.
  static func precedes<Value: Comparable>(_ type: Value.Type) -> (Value, Value) -> Bool {
    guard isText(type) else { return { $0 < $1 } }
    return { left, right in
      guard let left = left as? String, let right = right as? String else { return left < right }
      return left.precedesByUTF8(right)
    }
  }

  /// Whether a range contains a value.
  static func rangeContains<Bounds: RangeExpression>(_ type: Bounds.Type) -> (Bounds, Bounds.Bound) -> Bool {
    guard isText(Bounds.Bound.self) else { return { $0.contains($1) } }
    let precedes = precedes(Bounds.Bound.self)
    return { bounds, value in
      guard let ends = RangeEnds(bounds) else { return bounds.contains(value) }
      if let lower = ends.lower, precedes(value, lower) { return false }
      guard let upper = ends.upper else { return true }
      return ends.hasUpper ? !precedes(upper, value) : precedes(value, upper)
    }
  }

  /// Whether one list has the other in it, in one piece.
  static func contains<Item>(_ all: [Item], _ part: [Item], _ isEqual: (Item, Item) -> Bool) -> Bool {
    guard part.count <= all.count else { return false }
    return (0...(all.count - part.count)).contains { start in
      part.indices.allSatisfy { isEqual(all[start + $0], part[$0]) }
    }
  }
}

/// Optionals of references.
private protocol OptionalPointer {}
extension Optional: OptionalPointer where Wrapped: PointingProperty {}

/// Where a range begins and ends.
struct RangeEnds<Bound: Comparable> {
  var lower: Bound?
  var upper: Bound?
  /// Whether `upper` is in it.
  var hasUpper = false

  /// - Returns: nil for a range of a type that is none of Swift's own.
  init?(_ range: some RangeExpression<Bound>) {
    switch range {
    case let range as ClosedRange<Bound>: (lower, upper, hasUpper) = (range.lowerBound, range.upperBound, true)
    case let range as Range<Bound>: (lower, upper) = (range.lowerBound, range.upperBound)
    case let range as PartialRangeFrom<Bound>: lower = range.lowerBound
    case let range as PartialRangeThrough<Bound>: (upper, hasUpper) = (range.upperBound, true)
    case let range as PartialRangeUpTo<Bound>: upper = range.upperBound
    default: return nil
    }
  }
}
