// Lists, texts and dictionaries in a predicate. They are apart because of the closures inside them, whose variable has each item
// in turn, and because a text is a sequence too: it begins with another and contains it by its UTF-8, as in an index.

import Foundation
import StrandlineSystem

extension PredicateExpressions.SequenceContains: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (sequence, element) = (try reader.read(sequence), try reader.read(element))
    let needs =
      switch (sequence, element) {
      case (.field(let field, _), .constant(let item)): ConditionNeeds(field, .contains, item)
      case (.constant(let items), .field(let field, _)): ConditionNeeds(field, anyOf: Array(items))
      default: ConditionNeeds()
      }
    let (items, item, isEqual) = (sequence.evaluate, element.evaluate, ByUTF8.equal(RHS.Output.self))
    return PredicateCondition(needing: needs) { scope in
      let item = try item(scope)
      return try items(scope).contains { isEqual($0, item) }
    }
  }
}

extension PredicateExpressions.SequenceStartsWith: ReadableCondition {
  func condition<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateCondition<Value> {
    let (base, prefix) = (try reader.read(base), try reader.read(prefix))
    var needs = ConditionNeeds()
    if case (.field(let field, _), .constant(let start as String)) = (base, prefix) {
      needs = ConditionNeeds(field, .beginsWith, start)
    }
    let (whole, start, isEqual) = (base.evaluate, prefix.evaluate, ByUTF8.equal(Base.Output.Element.self))
    return PredicateCondition(needing: needs) { scope in
      let (whole, start) = (try whole(scope), try start(scope))
      if let whole = whole as? String, let start = start as? String { return whole.utf8.starts(with: start.utf8) }
      return whole.starts(with: start, by: isEqual)
    }
  }
}

extension PredicateExpressions.CollectionContainsCollection: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    let isEqual = ByUTF8.equal(Base.Output.Element.self)
    return try reader.both(base, other) { base, other in
      if let base = base as? String, let other = other as? String {
        return ByUTF8.contains(Array(base.utf8), Array(other.utf8), ==)
      }
      return ByUTF8.contains(Array(base), Array(other), isEqual)
    }
  }
}

// MARK: Closures over the items

extension PredicateExpressions.SequenceContainsWhere: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    try reader.each(of: sequence, variable, test) { try $0.contains(where: $1) }
  }
}

extension PredicateExpressions.SequenceAllSatisfy: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Bool> {
    try reader.each(of: sequence, variable, test) { try $0.allSatisfy($1) }
  }
}

extension PredicateExpressions.Filter: ReadableExpression {
  func read<Value: SyncRecord>(
    _ reader: PredicateReader<Value>
  ) throws(StrandlineError) -> PredicateReading<Value, Output> {
    try reader.each(of: sequence, variable, filter) { try $0.filter($1) }
  }
}

extension PredicateReader {
  /// What a test, inside which a variable is each item, says of a sequence.
  fileprivate func each<Items: PredicateExpression, Output>(
    of sequence: Items, _ variable: PredicateExpressions.Variable<Items.Output.Element>,
    _ test: some PredicateExpression<Bool>,
    _ ask: @escaping (Items.Output, (Items.Output.Element) throws -> Bool) throws -> Output
  ) throws(StrandlineError) -> PredicateReading<Value, Output> where Items.Output: Sequence {
    let (items, test) = (try read(sequence).evaluate, try read(test).evaluate)
    return .computed { scope in try ask(items(scope)) { try test(scope.binding(variable, $0)) } }
  }
}

// MARK: Single items

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
    return .computed { scope in try all(scope)[key(scope)] ?? other(scope) }
  }
}
