// A `#Predicate` in the words of the store. Its expression is a tree of the toolchain's own types; each is read once into a
// closure that answers for one record, and into conditions that an index can answer.
//
// Texts are compared by their UTF-8, as indexes and the server do, where Swift's own operators compare by Unicode. What is read
// of a record is the fields that the predicate names; the whole value is decoded only for what is no field. An expression that
// this file does not know evaluates itself, on the whole value.

public import Foundation
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
struct PredicateReading<Value: SyncRecord, Output> {
  /// Its value for one record.
  let evaluate: (PredicateScope<Value>) throws -> Output
  /// The field that it is.
  var field: PropertyField?
  /// Its value, if that is the same for all records.
  var constant: Output?
  /// What a record must meet for it to be true. Empty: nothing that an index could answer.
  var needs = ConditionNeeds()
  /// Conditions that are joined by "and" in it and of which an index can answer nothing, in words.
  var evaluated: [String] { parts ?? (needs.isEmpty ? [words] : []) }
  /// Those of an "and".
  var parts: [String]?
  /// The expression, in Swift's words.
  var words = ""

  init(field: PropertyField? = nil, _ evaluate: @escaping (PredicateScope<Value>) throws -> Output) {
    self.field = field
    self.evaluate = evaluate
  }

  /// The same value for all records.
  init(constant: Output) {
    evaluate = { _ in constant }
    self.constant = constant
  }
}

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

/// An expression of a predicate that the store reads.
protocol ReadableExpression: PredicateExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Output
  >
}

/// Reads one predicate about values of a type.
struct PredicateReader<Value: SyncRecord> {
  /// The value, in the predicate.
  let variable: PredicateExpressions.Variable<Value>

  /// A condition with what it needs.
  static func read(
    _ predicate: Predicate<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    try PredicateReader(variable: predicate.variable).read(any: predicate.expression)
  }

  private func read(
    any expression: some StandardPredicateExpression<Bool>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> { try read(expression) }

  func read<One: PredicateExpression>(
    _ expression: One
  ) throws(StrandlineError) -> PredicateReading<Value, One.Output> {
    var reading: PredicateReading<Value, One.Output>
    if let readable = expression as? any ReadableExpression,
      let known = try open(readable) as? PredicateReading<Value, One.Output>
    {
      reading = known
    } else {
      let variable = variable
      reading = PredicateReading { scope in
        try expression.evaluate(scope.bindings.binding(variable, to: scope.candidate.value()))
      }
    }
    reading.words = Self.words(expression)
    return reading
  }

  /// An expression's operator: the name of its type, without the types of its parts.
  private static func words(_ expression: some PredicateExpression) -> String {
    String("\(type(of: expression))".prefix { $0 != "<" })
  }

  private func open(_ expression: some ReadableExpression) throws(StrandlineError) -> Any { try expression.read(self) }

  /// The value of an expression of two others.
  func both<Left: PredicateExpression, Right: PredicateExpression, Output>(
    _ left: Left, _ right: Right, _ join: @escaping (Left.Output, Right.Output) throws -> Output
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (left, right) = (try read(left).evaluate, try read(right).evaluate)
    return PredicateReading { try join(left($0), right($0)) }
  }

  /// The value of an expression of one other.
  func one<One: PredicateExpression, Output>(
    _ expression: One, _ change: @escaping (One.Output) throws -> Output
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let inner = try read(expression).evaluate
    return PredicateReading { try change(inner($0)) }
  }
}

// MARK: Values and properties

extension PredicateExpressions.Value: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { PredicateReading(constant: value) }
}

extension PredicateExpressions.NilLiteral: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { PredicateReading(constant: nil) }
}

extension PredicateExpressions.Variable: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    guard key != reader.variable.key else {
      return PredicateReading { scope in
        guard let value = try scope.candidate.value() as? Output else { throw PredicateError.undefinedVariable }
        return value
      }
    }
    return PredicateReading { scope in
      guard let value = scope.bindings[self] else { throw PredicateError.undefinedVariable }
      return value
    }
  }
}

extension PredicateExpressions.KeyPath: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let path = keyPath
    if let root = root as? PredicateExpressions.Variable<Value>, root.key == reader.variable.key,
      let path = path as? Swift.KeyPath<Value, Output>
    {
      guard let field = try PropertyFields.field(of: path, keyPath), let property = FieldProperty<Output>(field) else {
        return PredicateReading { try $0.candidate.value()[keyPath: path] }
      }
      return PredicateReading(field: field) { scope in
        try property.read(scope.candidate.fields) ?? scope.candidate.value()[keyPath: path]
      }
    }
    return try reader.one(root) { $0[keyPath: path] }
  }
}

/// How a property is read of a record's fields.
struct FieldProperty<Output> {
  /// The value; nil if only the type's own decoding knows it.
  let read: (RecordFields) throws -> Output?

  /// - Returns: nil if the property is of a type that cannot be decoded.
  init?(_ field: PropertyField) {
    let key = PropertyKey(stringValue: field.name)
    guard let read = Self.plain(field) ?? Self.optional(key) ?? Self.required(key) else { return nil }
    guard case .value = field.absence else {
      self.read = read
      return
    }
    // An absent field has a value that the type makes.
    self.read = { fields in if case .some(.some) = try fields.find(key) { try read(fields) } else { nil } }
  }

  /// The most usual types, without a decoder.
  private static func plain(_ field: PropertyField) -> ((RecordFields) throws -> Output?)? {
    let key = PropertyKey(stringValue: field.name)
    func required<Plain: Decodable>(_ take: @escaping (RecordFields) -> Plain?) -> (RecordFields) throws -> Output? {
      { fields in try (take(fields) ?? RecordDecoder.property(Plain.self, key, of: fields)) as? Output }
    }
    switch Output.self {
    case is String.Type: return required { $0.text(field.name) }
    case is Int.Type: return required { fields -> Int? in fields.integer(field.name) }
    case is Double.Type: return required { $0.number(field.name) }
    default: return nil
    }
  }

  private static func optional(_ key: PropertyKey) -> ((RecordFields) throws -> Output?)? {
    func make<Property: OptionalProperty>(_ type: Property.Type) -> ((RecordFields) throws -> Output?)? {
      func make<Wrapped: Decodable>(_ wrapped: Wrapped.Type) -> (RecordFields) throws -> Output? {
        { fields in
          let value = try RecordDecoder.optionalProperty(wrapped, key, of: fields)
          return Property(wrapping: value as? Property.Wrapped) as? Output
        }
      }
      return (Property.Wrapped.self as? any Decodable.Type).map { make($0) }
    }
    return (Output.self as? any OptionalProperty.Type).flatMap { make($0) }
  }

  private static func required(_ key: PropertyKey) -> ((RecordFields) throws -> Output?)? {
    func make<Property: Decodable>(_ type: Property.Type) -> (RecordFields) throws -> Output? {
      { fields in try RecordDecoder.property(type, key, of: fields) as? Output }
    }
    return (Output.self as? any Decodable.Type).map { make($0) }
  }
}

/// A field's name as a key.
struct PropertyKey: CodingKey {
  let stringValue: String
  var intValue: Int? { nil }
  init(stringValue: String) { self.stringValue = stringValue }
  init?(intValue: Int) { return nil }
}

// MARK: And, or, not

extension PredicateExpressions.Conjunction: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (left, right) = (try reader.read(lhs), try reader.read(rhs))
    var reading = PredicateReading<Value, Bool> { try left.evaluate($0) && right.evaluate($0) }
    reading.needs.add(left.needs)
    reading.needs.add(right.needs)
    reading.parts = left.evaluated + right.evaluated
    return reading
  }
}

extension PredicateExpressions.Disjunction: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (left, right) = (try reader.read(lhs).evaluate, try reader.read(rhs).evaluate)
    return PredicateReading { try left($0) || right($0) }
  }
}

extension PredicateExpressions.Negation: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let inner = try reader.read(wrapped)
    var reading = PredicateReading<Value, Bool> { try !inner.evaluate($0) }
    // `!$0.isDone` is `$0.isDone == false`.
    if let field = inner.field { reading.needs = ConditionNeeds(field, .equals, false) }
    return reading
  }
}

extension PredicateExpressions.Conditional: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (test, yes, no) = (
      try reader.read(test).evaluate, try reader.read(trueBranch).evaluate, try reader.read(falseBranch).evaluate
    )
    return PredicateReading { try test($0) ? yes($0) : no($0) }
  }
}

// MARK: Comparing

extension PredicateExpressions.Equal: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (left, right) = (try reader.read(lhs), try reader.read(rhs))
    let isEqual = ByUTF8.equal(LHS.Output.self)
    var reading = PredicateReading<Value, Bool> { try isEqual(left.evaluate($0), right.evaluate($0)) }
    if let field = left.field, let constant = right.constant {
      reading.needs = ConditionNeeds(field, .equals, constant)
    } else if let field = right.field, let constant = left.constant {
      reading.needs = ConditionNeeds(field, .equals, constant)
    }
    return reading
  }
}

extension PredicateExpressions.NotEqual: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let isEqual = ByUTF8.equal(LHS.Output.self)
    return try reader.both(lhs, rhs) { !isEqual($0, $1) }
  }
}

extension PredicateExpressions.Comparison: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (left, right) = (try reader.read(lhs), try reader.read(rhs))
    let precedes = ByUTF8.precedes(LHS.Output.self)
    let op = op
    // Each operator as Swift's own: with a number that is none, none of them is true.
    let isMet: (LHS.Output, LHS.Output) -> Bool =
      switch op {
      case .lessThan: { precedes($0, $1) }
      case .lessThanOrEqual: ByUTF8.isText(LHS.Output.self) ? { !precedes($1, $0) } : { $0 <= $1 }
      case .greaterThan: { precedes($1, $0) }
      case .greaterThanOrEqual: ByUTF8.isText(LHS.Output.self) ? { !precedes($0, $1) } : { $0 >= $1 }
      @unknown default: { _, _ in false }
      }
    var reading = PredicateReading<Value, Bool> { try isMet(left.evaluate($0), right.evaluate($0)) }
    let isUpper = op == .lessThan || op == .lessThanOrEqual
    if let field = left.field, let constant = right.constant {
      reading.needs = ConditionNeeds(field, isUpper ? .lessThanOrEquals : .greaterThanOrEquals, constant)
    } else if let field = right.field, let constant = left.constant {
      reading.needs = ConditionNeeds(field, isUpper ? .greaterThanOrEquals : .lessThanOrEquals, constant)
    }
    return reading
  }
}

extension PredicateExpressions.RangeExpressionContains: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (bounds, place) = (try reader.read(range), try reader.read(element))
    let contains = ByUTF8.rangeContains(RangeExpression.Output.self)
    var reading = PredicateReading<Value, Bool> { try contains(bounds.evaluate($0), place.evaluate($0)) }
    if let field = place.field, let range = bounds.constant {
      switch range {
      case let range as Swift.ClosedRange<Element.Output>:
        reading.needs.add(ConditionNeeds(field, .greaterThanOrEquals, range.lowerBound))
        reading.needs.add(ConditionNeeds(field, .lessThanOrEquals, range.upperBound))
      case let range as Swift.Range<Element.Output>:
        reading.needs.add(ConditionNeeds(field, .greaterThanOrEquals, range.lowerBound))
        reading.needs.add(ConditionNeeds(field, .lessThanOrEquals, range.upperBound))
      case let range as PartialRangeFrom<Element.Output>:
        reading.needs = ConditionNeeds(field, .greaterThanOrEquals, range.lowerBound)
      case let range as PartialRangeThrough<Element.Output>:
        reading.needs = ConditionNeeds(field, .lessThanOrEquals, range.upperBound)
      case let range as PartialRangeUpTo<Element.Output>:
        reading.needs = ConditionNeeds(field, .lessThanOrEquals, range.upperBound)
      default: break
      }
    }
    return reading
  }
}

extension PredicateExpressions.Range: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (low, high) = (try reader.read(lower), try reader.read(upper))
    guard let lower = low.constant, let upper = high.constant else {
      return PredicateReading { scope in
        let (lower, upper) = (try low.evaluate(scope), try high.evaluate(scope))
        // Swift's own operator would end the process.
        guard lower <= upper else { throw PredicateError.invalidInput }
        return lower..<upper
      }
    }
    guard lower <= upper else {
      throw StrandlineError(.invalidValue, "the range of a condition ends before it begins: \(lower) ..< \(upper)")
    }
    return PredicateReading(constant: lower..<upper)
  }
}

extension PredicateExpressions.ClosedRange: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (low, high) = (try reader.read(lower), try reader.read(upper))
    guard let lower = low.constant, let upper = high.constant else {
      return PredicateReading { scope in
        let (lower, upper) = (try low.evaluate(scope), try high.evaluate(scope))
        // Swift's own operator would end the process.
        guard lower <= upper else { throw PredicateError.invalidInput }
        return lower...upper
      }
    }
    guard lower <= upper else {
      throw StrandlineError(.invalidValue, "the range of a condition ends before it begins: \(lower) ... \(upper)")
    }
    return PredicateReading(constant: lower...upper)
  }
}

// MARK: Sequences

extension PredicateExpressions.SequenceContains: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (items, item) = (try reader.read(sequence), try reader.read(element))
    let isEqual = ByUTF8.equal(RHS.Output.self)
    var reading = PredicateReading<Value, Bool> { scope in
      let item = try item.evaluate(scope)
      return try items.evaluate(scope).contains { isEqual($0, item) }
    }
    if let field = items.field, let item = item.constant {
      reading.needs = ConditionNeeds(field, .listContains, item)
    } else if let field = item.field, let items = items.constant {
      reading.needs = ConditionNeeds(field, anyOf: Array(items))
    }
    return reading
  }
}

extension PredicateExpressions.SequenceContainsWhere: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (items, test) = (try reader.read(sequence).evaluate, try reader.read(test).evaluate)
    let variable = variable
    return PredicateReading { scope in try items(scope).contains { try test(scope.binding(variable, $0)) } }
  }
}

extension PredicateExpressions.SequenceAllSatisfy: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (items, test) = (try reader.read(sequence).evaluate, try reader.read(test).evaluate)
    let variable = variable
    return PredicateReading { scope in try items(scope).allSatisfy { try test(scope.binding(variable, $0)) } }
  }
}

extension PredicateExpressions.Filter: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (items, test) = (try reader.read(sequence).evaluate, try reader.read(filter).evaluate)
    let variable = variable
    return PredicateReading { scope in try items(scope).filter { try test(scope.binding(variable, $0)) } }
  }
}

extension PredicateExpressions.SequenceStartsWith: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let (base, prefix) = (try reader.read(base), try reader.read(prefix))
    let isEqual = ByUTF8.equal(Base.Output.Element.self)
    var reading = PredicateReading<Value, Bool> { scope in
      let (all, start) = (try base.evaluate(scope), try prefix.evaluate(scope))
      if let all = all as? String, let start = start as? String { return all.utf8.starts(with: start.utf8) }
      return all.starts(with: start, by: isEqual)
    }
    if let field = base.field, let start = prefix.constant as? String {
      reading.needs = ConditionNeeds(field, .beginsWith, start)
    }
    return reading
  }
}

extension PredicateExpressions.CollectionContainsCollection: ReadableExpression {
  func read<Value: SyncRecord>(_ reader: PredicateReader<Value>) throws(StrandlineError) -> PredicateReading<
    Value, Bool
  > {
    let isEqual = ByUTF8.equal(Base.Output.Element.self)
    return try reader.both(base, other) { base, other in
      if let base = base as? String, let other = other as? String {
        return ByUTF8.contains(Array(base.utf8), Array(other.utf8), ==)
      }
      return ByUTF8.contains(Array(base), Array(other), isEqual)
    }
  }
}

extension PredicateExpressions.SequenceMinimum: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let precedes = ByUTF8.precedes(Elements.Output.Element.self)
    return try reader.one(elements) { $0.min(by: precedes) }
  }
}

extension PredicateExpressions.SequenceMaximum: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let precedes = ByUTF8.precedes(Elements.Output.Element.self)
    return try reader.one(elements) { $0.max(by: precedes) }
  }
}

extension PredicateExpressions.CollectionIndexSubscript: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.both(wrapped, index) { items, index in
      // A place outside would end the process.
      guard items.startIndex <= index, index < items.endIndex else { throw PredicateError.invalidInput }
      return items[index]
    }
  }
}

extension PredicateExpressions.CollectionRangeSubscript: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.both(wrapped, range) { items, range in
      guard items.startIndex <= range.lowerBound, range.upperBound <= items.endIndex else {
        throw PredicateError.invalidInput
      }
      return items[range]
    }
  }
}

extension PredicateExpressions.DictionaryKeySubscript: ReadableExpression {
  func read<Item: SyncRecord>(
    _ reader: PredicateReader<Item>
  ) throws(StrandlineError) -> PredicateReading<Item, Output> {
    try reader.both(wrapped, key) { $0[$1] }
  }
}

extension PredicateExpressions.DictionaryKeyDefaultValueSubscript: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (all, key, other) = (
      try reader.read(wrapped).evaluate, try reader.read(key).evaluate, try reader.read(self.default).evaluate
    )
    return PredicateReading { scope in try all(scope)[key(scope)] ?? other(scope) }
  }
}

// MARK: Optionals and types

extension PredicateExpressions.NilCoalesce: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (value, other) = (try reader.read(lhs).evaluate, try reader.read(rhs).evaluate)
    return PredicateReading { try value($0) ?? other($0) }
  }
}

extension PredicateExpressions.OptionalFlatMap: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (value, change) = (try reader.read(wrapped).evaluate, try reader.read(transform).evaluate)
    let variable = variable
    return PredicateReading { scope in
      guard let value = try value(scope) else { return nil }
      let result = try change(scope.binding(variable, value))
      // The closure gives a `Result`, or an optional one.
      return (result as Any) as? Result
    }
  }
}

extension PredicateExpressions.ForcedUnwrap: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.one(inner) { value in
      guard let value else { throw PredicateError.forceUnwrapFailure }
      return value
    }
  }
}

extension PredicateExpressions.ConditionalCast: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { try reader.one(input) { $0 as? Desired } }
}

extension PredicateExpressions.ForceCast: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.one(input) { value in
      guard let value = value as? Desired else { throw PredicateError.forceCastFailure }
      return value
    }
  }
}

extension PredicateExpressions.TypeCheck: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> { try reader.one(input) { $0 is Desired } }
}

// MARK: Numbers

extension PredicateExpressions.UnaryMinus: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { try reader.one(wrapped) { try Exact.negative($0) } }
}

extension PredicateExpressions.Arithmetic: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let op = op
    return try reader.both(lhs, rhs) { try Exact.result(op, $0, $1) }
  }
}

extension PredicateExpressions.FloatDivision: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { try reader.both(lhs, rhs) { $0 / $1 } }
}

extension PredicateExpressions.IntDivision: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.both(lhs, rhs) { try Exact.quotient($0, $1) }
  }
}

extension PredicateExpressions.IntRemainder: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.both(lhs, rhs) { try Exact.remainder($0, $1) }
  }
}

/// Arithmetic that throws where Swift's operators would end the process: what is added comes from records, which others write.
private enum Exact {
  static func result<Number: Numeric>(
    _ op: PredicateExpressions.ArithmeticOperator, _ left: Number, _ right: Number
  ) throws -> Number {
    if let left = left as? any FixedWidthInteger { return try whole(op, left, right) }
    switch op {
    case .add: return left + right
    case .subtract: return left - right
    case .multiply: return left * right
    @unknown default: throw PredicateError.invalidInput
    }
  }

  private static func whole<Whole: FixedWidthInteger, Number>(
    _ op: PredicateExpressions.ArithmeticOperator, _ left: Whole, _ right: Number
  ) throws -> Number {
    guard let right = right as? Whole else { throw PredicateError.invalidInput }
    let (result, overflows) =
      switch op {
      case .add: left.addingReportingOverflow(right)
      case .subtract: left.subtractingReportingOverflow(right)
      case .multiply: left.multipliedReportingOverflow(by: right)
      @unknown default: (left, true)
      }
    guard !overflows, let number = result as? Number else { throw PredicateError.invalidInput }
    return number
  }

  static func negative<Number: SignedNumeric>(_ number: Number) throws -> Number {
    func whole<Whole: FixedWidthInteger>(_ number: Whole) throws -> Any {
      let (result, overflows) = Whole.zero.subtractingReportingOverflow(number)
      guard !overflows else { throw PredicateError.invalidInput }
      return result
    }
    guard let fixed = number as? any FixedWidthInteger else { return -number }
    guard let result = try whole(fixed) as? Number else { throw PredicateError.invalidInput }
    return result
  }

  static func quotient<Number: BinaryInteger>(_ left: Number, _ right: Number) throws -> Number {
    try check(left, right)
    return left / right
  }

  static func remainder<Number: BinaryInteger>(_ left: Number, _ right: Number) throws -> Number {
    try check(left, right)
    return left % right
  }

  private static func check<Number: BinaryInteger>(_ left: Number, _ right: Number) throws {
    func overflows<Whole: FixedWidthInteger>(_ left: Whole) -> Bool {
      (right as? Whole).map { left.dividedReportingOverflow(by: $0).overflow } ?? false
    }
    if right == 0 || (left as? any FixedWidthInteger).map({ overflows($0) }) == true {
      throw PredicateError.invalidInput
    }
  }
}
