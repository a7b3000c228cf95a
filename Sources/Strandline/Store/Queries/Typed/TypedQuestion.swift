// How a typed question is answered, once for a store, a view and a transaction: their public calls say only who asks, and what of.

import Foundation
import StrandlineSystem

/// What answers typed questions.
struct AnswerSource {
  let view: StoreView
  /// What takes the place of what the view shows; nil outside of a transaction.
  var written: WrittenRecords?

  init(_ view: StoreView) { self.view = view }

  /// A store, as far as it is durable now.
  init(_ store: RecordStore) throws {
    try store.requireOpen()
    self.init(StoreView(store))
  }
}

/// A question for values of a type, as it was asked: it may be asked again and again.
struct TypedQuestion<Value: SyncRecord>: Sendable {
  private let conditions: [Predicate<Value>]
  private let orders: [ValueOrder<Value>]
  private let limit: Int?
  private let site: CallSite

  init(
    _ conditions: [Predicate<Value>], by orders: [ValueOrder<Value>] = [], limit: Int? = nil, _ fileID: String,
    _ line: Int
  ) {
    (self.conditions, self.orders, self.limit) = (conditions, orders, limit)
    site = CallSite(fileID, line)
  }

  func values(
    of source: @autoclosure () throws -> AnswerSource, after cursor: QueryCursor?
  ) throws -> TypedValues<Value> {
    try run("fetching records") {
      let typed = try read(limit: limit)
      return values(try page(typed, of: source(), after: cursor), typed.prototype)
    }
  }

  /// The first value; nil if there is none.
  ///
  /// - Throws: the error of a record that cannot be read, if it may have been the first.
  func first(of source: @autoclosure () throws -> AnswerSource) throws -> Value? {
    try run("fetching the first record") {
      let typed = try read(limit: 1)
      let found = values(try page(typed, of: source()), typed.prototype)
      // In the order of names what comes after it was not the first.
      if orders.isEmpty, let first = found.first,
        found.unreadable.allSatisfy({ first.id.recordName.precedesByUTF8($0.id.name) })
      {
        return first
      }
      try found.requireAll()
      return found.first
    }
  }

  /// Whether there is any value.
  ///
  /// - Throws: the error of a record that cannot be read, if no other one meets the conditions.
  func exists(in source: @autoclosure () throws -> AnswerSource) throws -> Bool {
    try run("looking for a record") {
      let typed = try read(limit: 1)
      let found = try page(typed, of: source())
      if found.records.isEmpty { try values(found, typed.prototype).requireAll() }
      return !found.records.isEmpty
    }
  }

  func count(of source: @autoclosure () throws -> AnswerSource) throws -> Int {
    try run("counting records") {
      let source = try source()
      return try source.view.count(read(limit: nil), with: source.written)
    }
  }

  func plan(of source: @autoclosure () throws -> AnswerSource) throws -> QueryPlan {
    try run("explaining a query of records") { try source().view.plan(read(limit: limit)) }
  }

  func observation(of store: RecordStore) -> StoreObservation<TypedValues<Value>> {
    StoreObservation(store, interest(of: store)) { store in
      try run("fetching records") { try page(read(limit: limit), of: AnswerSource(store)) }
    } _: {
      values($0, PrototypeFields(Value.self))
    }
  }

  func countObservation(of store: RecordStore) -> StoreObservation<Int> {
    StoreObservation(store, interest(of: store)) { try count(of: AnswerSource($0)) }
  }

  private func interest(of store: RecordStore) -> Observers.Interest {
    .records(type: Value.recordType, zone: store.canonical(Value.zone))
  }

  private func run<Answer>(_ doing: String, _ body: () throws -> Answer) throws -> Answer {
    try site.run("\(doing) of type '\(Value.recordType)'", body)
  }

  private func read(limit: Int?) throws(StrandlineError) -> TypedQuery<Value> {
    try TypedQuery(conditions, orders, limit: limit)
  }

  private func page(
    _ typed: TypedQuery<Value>, of source: AnswerSource, after cursor: QueryCursor? = nil
  ) throws -> QueryPage { try source.view.page(typed, after: cursor, with: source.written) }

  private func values(_ page: QueryPage, _ prototype: PrototypeFields) -> TypedValues<Value> {
    var values = TypedValues<Value>(unreadable: page.unreadable, cursor: page.cursor)
    for record in page.records { values.add(record, prototype) }
    values.locate("\(site.fileID):\(site.line)")
    return values
  }
}

extension TypedValues {
  /// - Throws: the error of a record that cannot be read.
  func requireAll() throws { if let first = unreadable.first { throw first.error } }
}
