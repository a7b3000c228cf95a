// Typed questions to a view. How they are answered is in TypedQuestion.swift, once for all whom they are asked of.

public import Foundation
import StrandlineSystem

extension StoreView {
  /// The values of a type that meet all conditions, as the view shows them, and the records that cannot be read.
  ///
  /// ```swift
  /// let notes = try store.fetch(
  ///   Note.self, where: #Predicate { $0.folder == id && $0.title.starts(with: "L") }, sortedBy: .descending(\.made), limit: 20)
  /// ```
  ///
  /// Every operator of `#Predicate` has Swift's meaning, but for texts and references: texts are compared by their UTF-8, as in
  /// indexes and at the server, and a reference equals another that points at the same record, whatever its action. Conditions
  /// on stored properties see the fields as they are stored (`SyncRecord.migrate` makes none of them); those on computed
  /// properties see the value. A condition that fails for a record, as `!` of nil or a sum that overflows, makes that record
  /// unreadable.
  ///
  /// - Parameters:
  ///   - type: the type.
  ///   - conditions: all must be met. Write several where the compiler gives up one long one, or terms: `.where(\.stars, .greater, 3)`.
  ///   - orders: the first is the most significant; equal values come in the order of their names.
  ///   - limit: the most values of one page; nil: all.
  ///   - cursor: `TypedValues.cursor` of the page before, of the same conditions and orders; nil: from the beginning.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError` as `query(_:)`; `.invalidValue` if the properties' fields cannot be found out (the error says
  ///   what to declare), or for an order by a computed property.
  /// - Complexity: as `query(_:)`, by what an index can answer of the conditions; `explain` says what that is. Of a record that
  ///   is looked at, the fields are decoded that the conditions name.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> TypedValues<Value> {
    try TypedQuestion(conditions, by: orders, limit: limit, fileID, line).values(of: AnswerSource(self), after: cursor)
  }

  /// The first of the values that meet all conditions; nil if none does. Else as ``fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that; the error of a record that cannot be read, if it may have been the first.
  public func first<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    try TypedQuestion(conditions, by: orders, fileID, line).first(of: AnswerSource(self))
  }

  /// Whether any value meets all conditions.
  ///
  /// - Throws: as ``fetch(_:where:sortedBy:limit:after:fileID:line:)``; the error of a record that cannot be read, if no other one meets
  ///   the conditions.
  public func exists<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Bool {
    try TypedQuestion(conditions, fileID, line).exists(in: AnswerSource(self))
  }

  /// How many values meet all conditions.
  ///
  /// - Throws: as ``fetch(_:where:sortedBy:limit:after:fileID:line:)``; the error of a record that cannot be read: it may have to be counted.
  public func count<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try TypedQuestion(conditions, fileID, line).count(of: AnswerSource(self))
  }

  /// How the store answers ``fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func explain<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPlan {
    try TypedQuestion(conditions, by: orders, limit: limit, fileID, line).plan(of: AnswerSource(self))
  }
}
