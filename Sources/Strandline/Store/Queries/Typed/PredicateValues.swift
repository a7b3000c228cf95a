// Values in a predicate: constants, properties, optionals and numbers. They are here together because none of them is a condition:
// an index answers for the comparison in which they are. Swift's own operators end the process where a sum overflows or an
// optional is forced; here that makes one record unreadable, because the values come from records, which others write.

import Foundation
import StrandlineSystem

extension PredicateExpressions.Value: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { .constant(value) }
}

extension PredicateExpressions.NilLiteral: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> { .constant(nil) }
}

extension PredicateExpressions.Variable: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let isRecord = key == reader.variable.key
    return .computed { scope in
      let value = isRecord ? try scope.candidate.value() as? Output : scope.bindings[self]
      guard let value else { throw PredicateError.undefinedVariable }
      return value
    }
  }
}

// MARK: Properties

extension PredicateExpressions.KeyPath: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let path = keyPath
    guard let root = root as? PredicateExpressions.Variable<Value>, root.key == reader.variable.key,
      let path = path as? Swift.KeyPath<Value, Output>
    else { return try reader.one(root) { $0[keyPath: path] } }
    guard let field = try PropertyFields.field(of: path, keyPath), let property = FieldProperty<Output>(field) else {
      return .computed { try $0.candidate.value()[keyPath: path] }
    }
    return .field(field) { try property.read($0.candidate.fields) ?? $0.candidate.value()[keyPath: path] }
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
    case is Int64.Type: return required { fields -> Int64? in fields.integer(field.name) }
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

// MARK: Optionals and types

extension PredicateExpressions.Conditional: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (test, yes, no) = (
      try reader.read(test).evaluate, try reader.read(trueBranch).evaluate, try reader.read(falseBranch).evaluate
    )
    return .computed { try test($0) ? yes($0) : no($0) }
  }
}

extension PredicateExpressions.NilCoalesce: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (value, other) = (try reader.read(lhs).evaluate, try reader.read(rhs).evaluate)
    return .computed { try value($0) ?? other($0) }
  }
}

extension PredicateExpressions.OptionalFlatMap: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    let (value, change) = (try reader.read(wrapped).evaluate, try reader.read(transform).evaluate)
    let variable = variable
    return .computed { scope in
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

/// Arithmetic that throws where Swift's operators would end the process.
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
