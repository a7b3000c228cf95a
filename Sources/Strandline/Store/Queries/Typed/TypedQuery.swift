// Typed values by a condition: `#Predicate` and key paths in place of field names.
//
// The conditions that an index can answer become those of a `RecordQuery`; each record that is found is judged by the predicates
// themselves. So an answer is the same with every index and without one.

import Foundation
import StrandlineSystem

/// An order of values by one property.
///
/// ```swift
/// let newest = try store.fetch(Note.self, sortedBy: .descending(\.made), limit: 20)
/// ```
public struct ValueOrder<Value: SyncRecord>: Sendable {
  let sort: @Sendable () throws(StrandlineError) -> RecordSort

  /// From the least to the greatest; records without a value come first. Texts are in the order of their UTF-8.
  public static func ascending<Property>(_ property: any KeyPath<Value, Property> & Sendable) -> ValueOrder {
    ValueOrder(property, ascending: true)
  }

  /// From the greatest to the least; records without a value come last.
  public static func descending<Property>(_ property: any KeyPath<Value, Property> & Sendable) -> ValueOrder {
    ValueOrder(property, ascending: false)
  }

  private init<Property>(_ property: any KeyPath<Value, Property> & Sendable, ascending: Bool) {
    sort = { () throws(StrandlineError) in
      guard let field = try PropertyFields.field(of: property, property), !field.isName, !field.isPart
      else {
        throw StrandlineError(
          .invalidValue,
          "values of \(Value.self) cannot be sorted by a property that is no field (\(property)): it is computed, it is the "
            + "ID or the parent, or init(from:) makes it of a field in a way of its own; sort the values that were fetched"
        )
      }
      return RecordSort(field.name, ascending: ascending)
    }
  }
}

extension ValueOrder: CustomStringConvertible {
  /// The field, and whether the order is the reverse; that there is no such field.
  public var description: String {
    do throws(StrandlineError) { return try sort().description } catch { return "no field" }
  }
}

/// A question for values of a type, read.
struct TypedQuery<Value: SyncRecord> {
  /// What the store's indexes are asked.
  let query: RecordQuery
  /// The only records that can meet the conditions; nil: any.
  let ids: [RecordID]?
  /// The conditions of which an index can answer nothing, in words.
  let evaluated: [String]
  private let conditions: [PredicateCondition<Value>]
  let prototype = PrototypeFields(Value.self)

  /// - Throws: `StrandlineError.invalidValue`.
  init(_ predicates: [Predicate<Value>], _ orders: [ValueOrder<Value>], limit: Int?) throws(StrandlineError) {
    var (conditions, needs): ([PredicateCondition<Value>], ConditionNeeds) = ([], ConditionNeeds())
    for predicate in predicates {
      let condition = try PredicateReader.condition(predicate)
      needs.add(condition.needs)
      conditions.append(condition)
    }
    self.conditions = conditions
    evaluated = conditions.flatMap(\.evaluated)
    // A record without the field has the prototype's value.
    var (filters, spans): ([RecordFilter], [FieldSpans]) = ([], [])
    for filter in needs.filters where try !prototype.has(filter.field, filter.matches) { filters.append(filter) }
    for span in needs.spans where try !prototype.has(span.field, span.matches) { spans.append(span) }
    var sorts: [RecordSort] = []
    for order in orders { sorts.append(try order.sort()) }
    ids = needs.names.map { $0.sorted().map { RecordID($0.text, zone: Value.zone) } }
    var query = RecordQuery(Value.recordType, in: Value.zone, where: filters, sortedBy: sorts, limit: limit)
    query.spans = spans
    self.query = query
  }

  /// Whether it asks for all values of the type.
  var isForAll: Bool { conditions.isEmpty }

  /// Whether a record meets all conditions.
  ///
  /// - Throws: `StrandlineError`: what makes this record unreadable.
  func isMet(by record: Record) throws(StrandlineError) -> Bool {
    if conditions.isEmpty { return true }
    do {
      let scope = PredicateScope(candidate: try Candidate<Value>(record, prototype))
      for condition in conditions where try !condition.isMet(scope) { return false }
      return true
    } catch {
      throw RecordDecoder.unreadable(record, as: Value.self, error)
    }
  }
}

extension PrototypeFields {
  /// Whether the prototype has a field, and its value meets a condition.
  fileprivate func has(_ field: String, _ isMet: (FieldValue?) -> Bool) throws(StrandlineError) -> Bool {
    do { return try self[field].map(isMet) ?? false } catch let error as StrandlineError {
      throw error
    } catch {
      throw StrandlineError(.invalidValue, "the prototype cannot be stored: \(error)", underlying: error)
    }
  }
}
