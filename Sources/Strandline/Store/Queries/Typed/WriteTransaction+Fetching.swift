// Questions inside a closure of `write`: what is durable is asked as from outside, with the store's indexes, and what was
// written since takes its place.

public import Foundation
import StrandlineSystem

extension WriteTransaction {
  /// The values of a type that meet all conditions, as this transaction sees them, and the records that cannot be read.
  ///
  /// The answer is that of this moment: what is written after does not change it.
  ///
  /// ```swift
  /// try await store.write { tx in
  ///   for note in try tx.fetch(Note.self, where: #Predicate { $0.stars == 0 }) { try tx.delete(note) }
  /// }
  /// ```
  ///
  /// The values have no ``RecordVersion`` of this moment's save: edit them by `update`.
  ///
  /// - Throws: `StrandlineError` as `StoreView.fetch`.
  /// - Complexity: as `StoreView.fetch`, and O(records that were written and are not durable yet).
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> TypedValues<Value> {
    try TypedQuestion(conditions, by: orders, limit: limit, fileID, line).values(
      of: answers(about: Value.zone), after: cursor)
  }

  /// The first of the values that meet all conditions, as this transaction sees them; nil if none does.
  ///
  /// - Throws: `StrandlineError` as `StoreView.first`.
  public func first<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    try TypedQuestion(conditions, by: orders, fileID, line).first(of: answers(about: Value.zone))
  }

  /// Whether any value meets all conditions, as this transaction sees them.
  ///
  /// - Throws: `StrandlineError` as `StoreView.exists`.
  public func exists<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Bool {
    try TypedQuestion(conditions, fileID, line).exists(in: answers(about: Value.zone))
  }

  /// How many values meet all conditions, as this transaction sees them.
  ///
  /// - Throws: `StrandlineError` as `StoreView.count`.
  public func count<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try TypedQuestion(conditions, fileID, line).count(of: answers(about: Value.zone))
  }

  /// Edits all values that meet the conditions now, each as `update(_:_:_:)` of one does.
  ///
  /// ```swift
  /// try await store.write { tx in
  ///   try tx.update(Note.self, where: #Predicate { $0.folder == old }) { $0.folder = new }
  /// }
  /// ```
  ///
  /// - Returns: how many met the conditions.
  /// - Throws: as `fetch`, and as `update(_:_:_:)`; the error of a record that cannot be read and may meet the conditions. Nothing
  ///   was changed in a record that was not reached; let the closure of `write` throw, and nothing was changed at all.
  @discardableResult
  public mutating func update<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line,
    _ body: (inout Value) throws -> Void
  ) throws -> Int {
    try updateAll(type, conditions, fileID, line, body)
  }

  /// The same with conditions in a list.
  mutating func updateAll<Value: SyncRecord>(
    _ type: Value.Type, _ conditions: [Predicate<Value>], _ fileID: String, _ line: Int,
    _ body: (inout Value) throws -> Void
  ) throws -> Int {
    try CallSite(fileID, line).run("updating records of type '\(Value.recordType)'") {
      let found = try TypedQuestion(conditions, fileID, line).values(of: answers(about: Value.zone), after: nil)
      try found.requireAll()
      for value in found { try update(type, id: value.id, fileID: fileID, line: line, body) }
      return found.count
    }
  }

  /// The durable records, with those that the transaction has written to a zone since.
  private func answers(about zone: ZoneID) throws -> AnswerSource {
    guard let store else { throw StrandlineError(.misuse, "a transaction of the engine answers no questions") }
    var source = try AnswerSource(store)
    source.written = try written(since: source.view, zone)
    return source
  }

  /// What was written to a zone since a view was taken, durable by now or not.
  private func written(since view: StoreView, _ zone: ZoneID) throws -> WrittenRecords {
    let zone = account.canonical(zone)
    var written = WrittenRecords()
    written.ids = Set(core.projections.withLock { $0.changes(after: view.moment) }.keys.lazy.filter { $0.zone == zone })
    for id in written.ids {
      let record = try view.reading(id, orReport: { written.unreadable.append($0) }) { try find(id) }
      if let record { written.records.append(record) }
    }
    return written
  }
}
