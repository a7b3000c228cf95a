// Typed questions to a store: a view of the newest durable event answers each. An app observes the values that it keeps on screen.

public import Foundation
import StrandlineSystem

extension RecordStore {
  /// The values of a type that meet all conditions, as far as they are durable, and the records that cannot be read. See
  /// ``StoreView/fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> TypedValues<Value> {
    try TypedQuestion(conditions, by: orders, limit: limit, fileID, line).values(of: AnswerSource(self), after: cursor)
  }

  /// The first of the values that meet all conditions, as far as they are durable; nil if none does. See
  /// ``StoreView/first(_:where:sortedBy:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func first<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    try TypedQuestion(conditions, by: orders, fileID, line).first(of: AnswerSource(self))
  }

  /// Whether any value meets all conditions, as far as they are durable. See ``StoreView/exists(_:where:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func exists<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Bool {
    try TypedQuestion(conditions, fileID, line).exists(in: AnswerSource(self))
  }

  /// How many values meet all conditions, as far as they are durable. See ``StoreView/count(_:where:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func count<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try TypedQuestion(conditions, fileID, line).count(of: AnswerSource(self))
  }

  /// How the store answers ``fetch(_:where:sortedBy:limit:after:fileID:line:)``: by which index, and what of the conditions is
  /// evaluated on each record.
  ///
  /// - Throws: as that.
  public func explain<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPlan {
    try TypedQuestion(conditions, by: orders, limit: limit, fileID, line).plan(of: AnswerSource(self))
  }

  /// The values that meet all conditions, now and whenever a record of the type has changed durably: the first page of
  /// ``fetch(_:where:sortedBy:limit:after:fileID:line:)``, with the unreadable beside them.
  ///
  /// ```swift
  /// for try await notes in store.observe(Note.self, where: #Predicate { $0.stars > 3 }) { show(notes) }
  /// ```
  ///
  /// It ends as `observe(_:)` of a query does.
  public func observe<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) -> StoreObservation<TypedValues<Value>> {
    TypedQuestion(conditions, by: orders, limit: limit, fileID, line).observation(of: self)
  }

  /// A value, now and whenever its record has changed durably; nil while it does not live.
  ///
  /// It ends as `observe(_:)` of a record does, and with the error of a record that cannot be read as the type.
  public func observe<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID
  ) -> StoreObservation<Value?> {
    let id = canonical(Value.recordID(id))
    return StoreObservation(self, .record(id)) { store in
      try store.record(id)
    } _: { record in
      try record?.value(as: type)
    }
  }

  /// How many values meet all conditions, now and whenever that has changed durably.
  ///
  /// It ends as `observe(_:)` of a query does, and with what `count` throws.
  public func observeCount<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>...
  ) -> StoreObservation<Int> { TypedQuestion(conditions, "", 0).countObservation(of: self) }
}
