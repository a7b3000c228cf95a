// Comparisons in a predicate, and what joins them: the conditions of which an index answers most. Each says beside its Swift
// meaning what a record needs to meet it, where a property is compared with a constant.
//
// Texts are compared by their UTF-8, as indexes and the server do, where Swift's own operators compare by Unicode.

import Foundation
import StrandlineSystem

// MARK: And, or, not

extension PredicateExpressions.Conjunction: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (left, right) = (try reader.condition(lhs), try reader.condition(rhs))
    var needs = left.needs
    needs.add(right.needs)
    return PredicateCondition(needing: needs, evaluated: left.evaluated + right.evaluated) {
      try left.isMet($0) && right.isMet($0)
    }
  }
}

extension PredicateExpressions.Disjunction: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    let (left, right) = (try reader.read(lhs).evaluate, try reader.read(rhs).evaluate)
    return .computed { try left($0) || right($0) }
  }
}

extension PredicateExpressions.Negation: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let inner = try reader.read(wrapped)
    // `!$0.isDone` is `$0.isDone == false`.
    let needs = if case .field(let field, _) = inner { ConditionNeeds(field, .equal, false) } else { ConditionNeeds() }
    let evaluate = inner.evaluate
    return PredicateCondition(needing: needs) { try !evaluate($0) }
  }
}

// MARK: Two values

extension PredicateExpressions.Equal: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (left, right) = (try reader.read(lhs), try reader.read(rhs))
    let needs =
      switch (left, right) {
      case (.field(let field, _), .constant(let value)), (.constant(let value), .field(let field, _)):
        ConditionNeeds(field, .equal, value)
      default: ConditionNeeds()
      }
    let (first, second, isEqual) = (left.evaluate, right.evaluate, ByUTF8.equal(LHS.Output.self))
    return PredicateCondition(needing: needs) { try isEqual(first($0), second($0)) }
  }
}

extension PredicateExpressions.NotEqual: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    let isEqual = ByUTF8.equal(LHS.Output.self)
    return try reader.both(lhs, rhs) { !isEqual($0, $1) }
  }
}

extension PredicateExpressions.Comparison: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (left, right) = (try reader.read(lhs), try reader.read(rhs))
    let isUpper = op == .lessThan || op == .lessThanOrEqual
    let needs =
      switch (left, right) {
      case (.field(let field, _), .constant(let value)):
        ConditionNeeds(field, isUpper ? .atMost : .atLeast, value)
      case (.constant(let value), .field(let field, _)):
        ConditionNeeds(field, isUpper ? .atLeast : .atMost, value)
      default: ConditionNeeds()
      }
    let (first, second, isOrdered) = (left.evaluate, right.evaluate, Self.order(op))
    return PredicateCondition(needing: needs) { try isOrdered(first($0), second($0)) }
  }

  /// Each operator as Swift's own: with a number that is none, none of them is true.
  private static func order(
    _ op: PredicateExpressions.ComparisonOperator
  ) -> (LHS.Output, LHS.Output) -> Bool {
    let (precedes, isText) = (ByUTF8.precedes(LHS.Output.self), ByUTF8.isText(LHS.Output.self))
    return switch op {
    case .lessThan: precedes
    case .lessThanOrEqual: isText ? { !precedes($1, $0) } : { $0 <= $1 }
    case .greaterThan: { precedes($1, $0) }
    case .greaterThanOrEqual: isText ? { !precedes($0, $1) } : { $0 >= $1 }
    @unknown default: { _, _ in false }
    }
  }
}

// MARK: Ranges

extension PredicateExpressions.RangeExpressionContains: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (range, element) = (try reader.read(range), try reader.read(element))
    var needs = ConditionNeeds()
    if case (.constant(let range), .field(let field, _)) = (range, element), let ends = RangeEnds(range) {
      if let lower = ends.lower { needs.add(ConditionNeeds(field, .atLeast, lower)) }
      if let upper = ends.upper { needs.add(ConditionNeeds(field, .atMost, upper)) }
    }
    let (bounds, place, contains) = (
      range.evaluate, element.evaluate, ByUTF8.rangeContains(RangeExpression.Output.self)
    )
    return PredicateCondition(needing: needs) { try contains(bounds($0), place($0)) }
  }
}

extension PredicateExpressions.Range: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { try reader.range(lower, upper, "..<") { $0..<$1 } }
}

extension PredicateExpressions.ClosedRange: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { try reader.range(lower, upper, "...") { $0...$1 } }
}

extension PredicateReader {
  /// A range of two expressions. Swift's own operators would end the process where it ends before it begins.
  fileprivate func range<Lower: PredicateExpression, Upper: PredicateExpression, Bounds>(
    _ lower: Lower, _ upper: Upper, _ sign: String, _ make: @escaping (Lower.Output, Lower.Output) -> Bounds
  ) throws(StrandlineError) -> PredicateReading<Value, Bounds>
  where Lower.Output: Comparable, Upper.Output == Lower.Output {
    let (low, high) = (try read(lower), try read(upper))
    guard case (.constant(let lower), .constant(let upper)) = (low, high) else {
      let (lower, upper) = (low.evaluate, high.evaluate)
      return .computed { scope in
        let (lower, upper) = (try lower(scope), try upper(scope))
        guard lower <= upper else { throw PredicateError.invalidInput }
        return make(lower, upper)
      }
    }
    guard lower <= upper else {
      throw StrandlineError(.invalidValue, "the range of a condition ends before it begins: \(lower) \(sign) \(upper)")
    }
    return .constant(make(lower, upper))
  }
}
