// A `#Predicate` in the words of the store. Its expression is a tree of the toolchain's own types; each is read once, into a
// closure that answers for one record and into what an index can answer. This file has what the three others share, which know
// the expressions: values, comparisons and sequences.
//
// Of a record the store reads the fields that the predicate names; it decodes the whole value only for computed properties. An
// expression that no file here knows evaluates itself, on the whole value.

import Foundation
import StrandlineSystem

/// One record that conditions are asked about.
final class Candidate<Value: SyncRecord> {
  let record: Record
  /// The fields as they are stored.
  let fields: RecordFields
  private var decoded: Value?

  init(_ record: Record, _ prototype: PrototypeFields) throws {
    self.record = record
    fields = RecordFields(record, read: nil, try Value.id(named: record.id.name), prototype)
  }

  /// The whole value, as a read gives it.
  func value() throws -> Value {
    if let decoded { return decoded }
    let value = try RecordDecoder.decode(Value.self, from: record, fields.prototype)
    decoded = value
    return value
  }
}

/// A record, and the values of the variables of closures inside the predicate.
struct PredicateScope<Value: SyncRecord> {
  let candidate: Candidate<Value>
  var bindings = PredicateBindings()

  func binding<Item>(_ variable: PredicateExpressions.Variable<Item>, _ item: Item) -> PredicateScope {
    var scope = self
    scope.bindings[variable] = item
    return scope
  }
}

/// What an expression is for the store.
enum PredicateReading<Value: SyncRecord, Output> {
  typealias Evaluation = (PredicateScope<Value>) throws -> Output

  /// The same value for all records.
  case constant(Output)
  /// A field of the record.
  case field(PropertyField, Evaluation)
  /// A computed property, or an expression of several parts.
  case computed(Evaluation)

  /// Its value for one record.
  var evaluate: Evaluation {
    switch self {
    case .constant(let value): { _ in value }
    case .field(_, let evaluate), .computed(let evaluate): evaluate
    }
  }
}

/// A condition, as the store reads it.
struct PredicateCondition<Value: SyncRecord> {
  /// Whether a record meets it.
  let isMet: (PredicateScope<Value>) throws -> Bool
  /// What each record that meets it has, in words that an index knows.
  let needs: ConditionNeeds
  /// Those of the conditions that "and" joins in it of which an index can answer nothing.
  fileprivate(set) var evaluated: [String]

  init(
    needing needs: ConditionNeeds, evaluated: [String] = [], _ isMet: @escaping (PredicateScope<Value>) throws -> Bool
  ) {
    (self.isMet, self.needs, self.evaluated) = (isMet, needs, evaluated)
  }
}

/// An expression of a predicate that the store reads.
protocol ReadableExpression: PredicateExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output>
}

/// A condition of which an index may answer something.
protocol ReadableCondition: PredicateExpression where Output == Bool {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value>
}

/// Reads one predicate about values of a type.
struct PredicateReader<Value: SyncRecord> {
  /// The value, in the predicate.
  let variable: PredicateExpressions.Variable<Value>

  static func condition(_ predicate: Predicate<Value>) throws(StrandlineError) -> PredicateCondition<Value> {
    try PredicateReader(variable: predicate.variable).condition(any: predicate.expression)
  }

  private func condition(
    any expression: some StandardPredicateExpression<Bool>
  ) throws(StrandlineError) -> PredicateCondition<Value> { try condition(expression) }

  /// An expression as a condition.
  func condition<One: PredicateExpression<Bool>>(
    _ expression: One
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    var condition: PredicateCondition<Value>
    if let readable = expression as? any ReadableCondition {
      condition = try open(readable)
    } else {
      let reading = try read(expression)
      // `$0.isDone` is `$0.isDone == true`.
      let needs =
        if case .field(let field, _) = reading { ConditionNeeds(field, .equal, true) } else { ConditionNeeds() }
      condition = PredicateCondition(needing: needs, reading.evaluate)
    }
    if condition.needs.isEmpty, condition.evaluated.isEmpty { condition.evaluated = [Self.words(expression)] }
    return condition
  }

  /// An expression as a value.
  func read<One: PredicateExpression>(
    _ expression: One
  ) throws(StrandlineError) -> PredicateReading<Value, One.Output> {
    let known: Any? =
      if let readable = expression as? any ReadableExpression {
        try open(readable)
      } else if let readable = expression as? any ReadableCondition {
        PredicateReading<Value, Bool>.computed(try open(readable).isMet)
      } else {
        nil
      }
    if let known = known as? PredicateReading<Value, One.Output> { return known }
    let variable = variable
    return .computed { scope in
      try expression.evaluate(scope.bindings.binding(variable, to: scope.candidate.value()))
    }
  }

  /// An expression's operator: the name of its type, without the types of its parts.
  private static func words(_ expression: some PredicateExpression) -> String {
    String("\(type(of: expression))".prefix { $0 != "<" })
  }

  private func open(_ expression: some ReadableExpression) throws(StrandlineError) -> Any { try expression.read(self) }
  private func open(_ expression: some ReadableCondition) throws(StrandlineError) -> PredicateCondition<Value> {
    try expression.condition(self)
  }

  /// The value of an expression of one other.
  func one<One: PredicateExpression, Output>(
    _ expression: One, _ change: @escaping (One.Output) throws -> Output
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let inner = try read(expression).evaluate
    return .computed { try change(inner($0)) }
  }

  /// The value of an expression of two others.
  func both<Left: PredicateExpression, Right: PredicateExpression, Output>(
    _ left: Left, _ right: Right, _ join: @escaping (Left.Output, Right.Output) throws -> Output
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (left, right) = (try read(left).evaluate, try read(right).evaluate)
    return .computed { try join(left($0), right($0)) }
  }
}
