// Typed values by a condition: `#Predicate` and key paths in place of field names.
//
// The conditions that an index can answer become those of a `RecordQuery`; each record that is found is judged by the predicates
// themselves. So an answer is the same with every index and without one.

public import Foundation
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
      guard let field = try PropertyFields.field(of: property, property), field.name != "id", !field.isPart
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
    var filters: [RecordFilter] = []
    // A record without the field has the prototype's value.
    for filter in needs.filters where try !prototype.meets(filter) { filters.append(filter) }
    var sorts: [RecordSort] = []
    for order in orders { sorts.append(try order.sort()) }
    ids = needs.names.map { $0.sorted().map { RecordID($0.text, zone: Value.zone) } }
    query = RecordQuery(Value.recordType, in: Value.zone, where: filters, sortedBy: sorts, limit: limit)
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

  /// The values of the records of a page.
  static func values(_ page: QueryPage, _ prototype: PrototypeFields) -> TypedValues<Value> {
    var values = TypedValues<Value>(unreadable: page.unreadable, cursor: page.cursor)
    for record in page.records { values.add(record, prototype) }
    return values
  }
}

extension PrototypeFields {
  /// Whether the prototype's value of a field meets a condition.
  fileprivate func meets(_ filter: RecordFilter) throws(StrandlineError) -> Bool {
    do { return try self[filter.field].map { filter.matches($0) } ?? false } catch let error as StrandlineError {
      throw error
    } catch {
      throw StrandlineError(.invalidValue, "the prototype cannot be stored: \(error)", underlying: error)
    }
  }
}

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
  ///   what to declare), or for an order by what is no field.
  /// - Complexity: as `query(_:)`, by what an index can answer of the conditions; `explain` says what that is. Of a record that
  ///   is looked at, the fields are decoded that the conditions name.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> TypedValues<Value> {
    try CallSite(fileID, line).run("fetching records of type '\(Value.recordType)'") {
      try answer(TypedQuery(conditions, orders, limit: limit), after: cursor, "\(fileID):\(line)")
    }
  }

  /// The first of the values that meet all conditions; nil if none does. Else as ``fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that; the error of a record that cannot be read, if it may have been the first.
  public func first<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    try CallSite(fileID, line).run("fetching the first record of type '\(Value.recordType)'") {
      let found = try answer(TypedQuery(conditions, orders, limit: 1), after: nil, "\(fileID):\(line)")
      if let unreadable = found.unreadable.first { throw unreadable.error }
      return found.first
    }
  }

  /// How many values meet all conditions.
  ///
  /// - Throws: as ``fetch(_:where:sortedBy:limit:after:fileID:line:)``; the error of a record that cannot be read: it may have to be counted.
  public func count<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try CallSite(fileID, line).run("counting records of type '\(Value.recordType)'") {
      try count(TypedQuery(conditions, [], limit: nil))
    }
  }

  /// How the store answers ``fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func explain<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPlan {
    try CallSite(fileID, line).run("explaining a query of records of type '\(Value.recordType)'") {
      try plan(TypedQuery(conditions, orders, limit: limit))
    }
  }
}

extension RecordStore {
  /// The values of a type that meet all conditions, as far as they are durable, and the records that cannot be read. See
  /// ``StoreView/fetch(_:where:sortedBy:limit:after:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func fetch<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, after cursor: QueryCursor? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> TypedValues<Value> {
    try CallSite(fileID, line).run("fetching records of type '\(Value.recordType)'") {
      try view(fileID: fileID, line: line)
        .answer(TypedQuery(conditions, orders, limit: limit), after: cursor, "\(fileID):\(line)")
    }
  }

  /// The first of the values that meet all conditions, as far as they are durable; nil if none does. See
  /// ``StoreView/first(_:where:sortedBy:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func first<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    fileID: String = #fileID, line: Int = #line
  ) throws -> Value? {
    try CallSite(fileID, line).run("fetching the first record of type '\(Value.recordType)'") {
      let found = try view(fileID: fileID, line: line)
        .answer(TypedQuery(conditions, orders, limit: 1), after: nil, "\(fileID):\(line)")
      if let unreadable = found.unreadable.first { throw unreadable.error }
      return found.first
    }
  }

  /// How many values meet all conditions, as far as they are durable. See ``StoreView/count(_:where:fileID:line:)``.
  ///
  /// - Throws: as that.
  public func count<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) throws -> Int {
    try CallSite(fileID, line).run("counting records of type '\(Value.recordType)'") {
      try view(fileID: fileID, line: line).count(TypedQuery(conditions, [], limit: nil))
    }
  }

  /// How the store answers ``fetch(_:where:sortedBy:limit:after:fileID:line:)``: by which index, and what of the conditions is
  /// evaluated on each record.
  ///
  /// - Throws: as that.
  public func explain<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) throws -> QueryPlan {
    try CallSite(fileID, line).run("explaining a query of records of type '\(Value.recordType)'") {
      try view(fileID: fileID, line: line).plan(TypedQuery(conditions, orders, limit: limit))
    }
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
    observe(TypedQuestion(conditions: conditions, orders: orders, limit: limit), CallSite(fileID, line))
  }

  func observe<Value: SyncRecord>(
    _ question: TypedQuestion<Value>, _ site: CallSite
  ) -> StoreObservation<TypedValues<Value>> {
    StoreObservation(self, .records(type: Value.recordType, zone: canonical(Value.zone))) { store in
      try site.run("fetching records of type '\(Value.recordType)'") {
        try store.view(fileID: site.fileID, line: site.line).page(question.read())
      }
    } _: { page in
      var values = TypedQuery<Value>.values(page, PrototypeFields(Value.self))
      values.locate("\(site.fileID):\(site.line)")
      return values
    }
  }

  /// A value, now and whenever its record has changed durably; nil while it does not live.
  ///
  /// It ends as `observe(_:)` of a record does, and with the error of a record that cannot be read as the type.
  public func observe<Value: SyncRecord>(
    _ type: Value.Type, _ id: Value.ID, fileID: String = #fileID, line: Int = #line
  ) -> StoreObservation<Value?> {
    let id = canonical(Value.recordID(id))
    return StoreObservation(self, .record(id)) { store in
      try store.record(id, fileID: fileID, line: line)
    } _: { record in
      try record?.value(as: type, fileID: fileID, line: line)
    }
  }

  /// How many values meet all conditions, now and whenever that has changed durably.
  ///
  /// It ends as `observe(_:)` of a query does, and with what `count` throws.
  public func observeCount<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line
  ) -> StoreObservation<Int> {
    observeCount(TypedQuestion(conditions: conditions, orders: [], limit: nil), CallSite(fileID, line))
  }

  func observeCount<Value: SyncRecord>(
    _ question: TypedQuestion<Value>, _ site: CallSite
  ) -> StoreObservation<Int> {
    StoreObservation(self, .records(type: Value.recordType, zone: canonical(Value.zone))) { store in
      try site.run("counting records of type '\(Value.recordType)'") {
        try store.view(fileID: site.fileID, line: site.line).count(question.read())
      }
    }
  }
}

/// A question that is asked again and again.
struct TypedQuestion<Value: SyncRecord>: Sendable {
  let conditions: [Predicate<Value>]
  let orders: [ValueOrder<Value>]
  let limit: Int?

  func read() throws(StrandlineError) -> TypedQuery<Value> { try TypedQuery(conditions, orders, limit: limit) }
}
