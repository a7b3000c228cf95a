// Goal: no expression gives a wrong answer, whatever store, indexes and unflushed changes there are. Method: random expressions
// of up to three levels, each beside the same closure; random stores with values that mean trouble, some of them from another device,
// whose numbers are none; all ways of asking.

import Foundation
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

@testable import Strandline

private typealias Node = any StandardPredicateExpression<Bool>
private typealias Root = PredicateExpressions.Variable<Page>
/// An expression, and what it means.
private typealias Condition = (node: Node, isMet: (Page) -> Bool)

private struct Maker {
  let random: SeededRandom
  let root: Root

  func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  func condition(depth: Int) -> Condition {
    switch depth == 0 ? 9 : below(10) {
    case 0, 1:
      let (left, right) = (condition(depth: depth - 1), condition(depth: depth - 1))
      return (and(left.node, right.node), { left.isMet($0) && right.isMet($0) })
    case 2, 3:
      let (left, right) = (condition(depth: depth - 1), condition(depth: depth - 1))
      return (or(left.node, right.node), { left.isMet($0) || right.isMet($0) })
    case 4:
      let inner = condition(depth: depth - 1)
      return (not(inner.node), { !inner.isMet($0) })
    default: return leaf()
    }
  }

  private func and(_ left: some StandardPredicateExpression<Bool>, _ right: some StandardPredicateExpression<Bool>)
    -> Node
  {
    PredicateExpressions.build_Conjunction(lhs: left, rhs: right)
  }
  private func or(_ left: some StandardPredicateExpression<Bool>, _ right: some StandardPredicateExpression<Bool>)
    -> Node
  {
    PredicateExpressions.build_Disjunction(lhs: left, rhs: right)
  }
  private func not(_ inner: some StandardPredicateExpression<Bool>) -> Node {
    PredicateExpressions.build_Negation(inner)
  }

  private func equal<Value: Equatable & Codable & Sendable>(
    _ path: any KeyPath<Page, Value> & Sendable, _ value: Value, _ isSame: @escaping (Value, Value) -> Bool
  ) -> Condition {
    let property = PredicateExpressions.build_KeyPath(root: root, keyPath: path)
    let constant = PredicateExpressions.build_Arg(value)
    let isNegated = below(4) == 0
    let node: Node =
      isNegated
      ? PredicateExpressions.build_NotEqual(lhs: property, rhs: constant)
      : (below(2) == 0
        ? PredicateExpressions.build_Equal(lhs: property, rhs: constant) as Node
        : PredicateExpressions.build_Equal(lhs: constant, rhs: property))
    return (node, { isSame($0[keyPath: path], value) != isNegated })
  }

  private func compare<Value: Comparable & Codable & Sendable>(
    _ path: any KeyPath<Page, Value> & Sendable, _ value: Value, _ precedes: @escaping (Value, Value) -> Bool,
    isOrdered: @escaping (Value) -> Bool = { _ in true }
  ) -> Condition {
    let property = PredicateExpressions.build_KeyPath(root: root, keyPath: path)
    let constant = PredicateExpressions.build_Arg(value)
    let isTurned = below(2) == 0
    func node(_ op: PredicateExpressions.ComparisonOperator, _ turned: PredicateExpressions.ComparisonOperator) -> Node
    {
      isTurned
        ? PredicateExpressions.build_Comparison(lhs: constant, rhs: property, op: turned) as Node
        : PredicateExpressions.build_Comparison(lhs: property, rhs: constant, op: op)
    }
    // A number that is none is neither before another one nor after it.
    func areOrdered(_ page: Page) -> Bool { isOrdered(value) && isOrdered(page[keyPath: path]) }
    switch below(4) {
    case 0: return (node(.lessThan, .greaterThan), { precedes($0[keyPath: path], value) })
    case 1:
      return (node(.lessThanOrEqual, .greaterThanOrEqual), { areOrdered($0) && !precedes(value, $0[keyPath: path]) })
    case 2: return (node(.greaterThan, .lessThan), { precedes(value, $0[keyPath: path]) })
    default:
      return (node(.greaterThanOrEqual, .lessThanOrEqual), { areOrdered($0) && !precedes($0[keyPath: path], value) })
    }
  }

  fileprivate func text() -> String { ["", "a", "ab", "L", "é", "e\u{301}", "\u{10FFFF}", "\u{FF5E}"][below(8)] }

  private func leaf() -> Condition {
    if below(2) == 0 { return below(2) == 0 ? textLeaf() : valueLeaf() }
    let sample = Page("x") { below($0) }
    func same<Value: Equatable>(_ left: Value, _ right: Value) -> Bool { left == right }
    func sameText(_ left: String?, _ right: String?) -> Bool {
      left.map { Array($0.utf8) } == right.map { Array($0.utf8) }
    }
    switch below(22) {
    case 0: return equal(\.title, text(), sameText)
    case 1: return compare(\.title, text()) { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    case 2: return equal(\.body, below(4) == 0 ? nil : text(), sameText)
    case 3: return equal(\.stars, sample.stars, same)
    case 4: return compare(\.stars, sample.stars, <)
    case 5: return equal(\.small, sample.small, same)
    case 6: return equal(\.price, sample.price, same)
    case 7:
      let price = below(9) == 0 ? .nan : sample.price
      return compare(\.price, price, <) { !$0.isNaN }
    case 8: return equal(\.rating, sample.rating, same)
    case 9: return equal(\.isDone, sample.isDone, same)
    case 10: return equal(\.mood, sample.mood, same)
    case 11: return equal(\.kind, sample.kind, same)
    case 12: return equal(\.made, sample.made.addingTimeInterval(below(3) == 0 ? 0.0004 : 0), same)
    case 13: return compare(\.made, sample.made.addingTimeInterval(below(3) == 0 ? -0.0004 : 0), <)
    case 14: return equal(\.due, sample.due, same)
    case 15: return equal(\.key, sample.key, same)
    case 16: return equal(\.folder, sample.folder) { $0?.id == $1?.id }
    case 17:
      let text = text()
      let list = PredicateExpressions.build_KeyPath(root: root, keyPath: \Page.tags)
      return (
        PredicateExpressions.build_contains(list, PredicateExpressions.build_Arg(text)),
        { $0.tags.contains { sameText($0, text) } }
      )
    case 18:
      let start = text()
      let title = PredicateExpressions.build_KeyPath(root: root, keyPath: \Page.title)
      return (
        PredicateExpressions.build_starts(title, with: PredicateExpressions.build_Arg(start)),
        { $0.title.utf8.starts(with: start.utf8) }
      )
    case 19:
      return (
        PredicateExpressions.build_KeyPath(root: root, keyPath: \Page.isDone) as Node, { $0.isDone }
      )
    case 20: return equal(\.parent, sample.parent, same)
    default:
      let stars = [sample.stars, below(5), 3]
      let property = PredicateExpressions.build_KeyPath(root: root, keyPath: \Page.stars)
      return (
        PredicateExpressions.build_contains(PredicateExpressions.build_Arg(stars), property),
        { stars.contains($0.stars) }
      )
    }
  }
}

// MARK: Operators beyond comparisons

extension Maker {
  private typealias Is = PredicateExpressions

  private func path<Value>(_ path: any KeyPath<Page, Value> & Sendable) -> Is.KeyPath<Root, Value> {
    Is.build_KeyPath(root: root, keyPath: path)
  }

  /// Conditions on texts and lists of texts.
  private func textLeaf() -> Condition {
    let (one, other) = (text(), text())
    switch below(12) {
    case 0:
      let body = Is.build_NilCoalesce(lhs: path(\.body), rhs: Is.build_Arg(one))
      return (Is.build_Equal(lhs: body, rhs: Is.build_Arg(other)), { same($0.body ?? one, other) })
    case 1: return (Is.build_contains(path(\.title), Is.build_Arg(one)), { has($0.title, one) })
    case 2:
      let isEmpty = Is.build_KeyPath(root: path(\.title), keyPath: \.isEmpty)
      return (isEmpty as Node, { $0.title.isEmpty })
    case 3:
      let node = Is.build_allSatisfy(path(\.tags)) { Is.build_starts($0, with: Is.build_Arg(one)) }
      return (node, { $0.tags.allSatisfy { begins($0, one) } })
    case 4:
      let node = Is.build_contains(path(\.tags)) { tag in
        Is.build_Comparison(lhs: tag, rhs: Is.build_Arg(one), op: .greaterThan)
      }
      return (node, { $0.tags.contains { less(one, $0) } })
    case 5:
      let found = Is.build_filter(path(\.tags)) { Is.build_NotEqual(lhs: $0, rhs: Is.build_Arg(one)) }
      let count = Is.build_KeyPath(root: found, keyPath: \.count)
      let wanted = below(3)
      return (
        Is.build_Equal(lhs: count, rhs: Is.build_Arg(wanted)), { $0.tags.count { !same($0, one) } == wanted }
      )
    case 6:
      let greatest = Is.build_NilCoalesce(lhs: Is.build_max(path(\.tags)), rhs: Is.build_Arg(one))
      return (
        Is.build_Equal(lhs: greatest, rhs: Is.build_Arg(other)), { same($0.tags.max(by: less) ?? one, other) }
      )
    case 7:
      // Optional chaining.
      let city = Is.build_flatMap(path(\.place)) { Is.build_KeyPath(root: $0, keyPath: \.city) }
      let wanted: String? = below(4) == 0 ? nil : one
      return (Is.build_Equal(lhs: city, rhs: Is.build_Arg(wanted)), { same($0.place?.city, wanted) })
    case 8:
      // Guarded by the first part.
      let isThere = Is.build_NotEqual(lhs: path(\.body), rhs: Is.build_NilLiteral())
      let isOne = Is.build_Equal(lhs: Is.build_ForcedUnwrap(path(\.body)), rhs: Is.build_Arg(one))
      return (Is.build_Conjunction(lhs: isThere, rhs: isOne), { $0.body.map { same($0, one) } ?? false })
    case 9: return equal(\.shout, one.uppercased(), { same($0, $1) })
    case 10:
      let (low, high) = less(other, one) ? (other, one) : (one, other)
      let range = Is.build_ClosedRange(lower: Is.build_Arg(low), upper: Is.build_Arg(high))
      return (Is.build_contains(range, path(\.title)), { !less($0.title, low) && !less(high, $0.title) })
    default:
      let node = Is.build_Conditional(
        path(\.isDone), Is.build_Equal(lhs: path(\.title), rhs: Is.build_Arg(one)),
        Is.build_starts(path(\.title), with: Is.build_Arg(other)))
      return (node, { $0.isDone ? same($0.title, one) : begins($0.title, other) })
    }
  }

  /// Conditions on numbers, names, lists of numbers and what is computed.
  private func valueLeaf() -> Condition {
    let (number, sample) = (below(5), Page("x") { below($0) })
    let names = (0..<1 + below(3)).map { _ in "p\(below(20))" }
    switch below(13) {
    case 0:
      return (
        Is.build_contains(Is.build_Arg(number..<number + 3), path(\.stars)),
        {
          (number..<number + 3).contains($0.stars)
        }
      )
    case 1:
      let range = Is.build_Range(lower: Is.build_Arg(-1.0), upper: Is.build_Arg(Double(number)))
      return (Is.build_contains(range, path(\.price)), { (-1.0..<Double(number)).contains($0.price) })
    case 2:
      let sum = Is.build_Arithmetic(lhs: path(\.clamped), rhs: Is.build_Arg(number), op: .add)
      return (Is.build_Comparison(lhs: sum, rhs: Is.build_Arg(4), op: .lessThan), { $0.clamped + number < 4 })
    case 3:
      let double = Is.build_Arithmetic(lhs: path(\.price), rhs: Is.build_Arg(2.0), op: .multiply)
      return (
        Is.build_Comparison(lhs: double, rhs: Is.build_Arg(Double(number)), op: .greaterThanOrEqual),
        { $0.price * 2 >= Double(number) }
      )
    case 4:
      let negated = Is.build_Negation(path(\.isDone))
      let minus = Is.build_UnaryMinus(path(\.price))
      let isLess = Is.build_Comparison(lhs: minus, rhs: Is.build_Arg(0.0), op: .lessThan)
      return (Is.build_Disjunction(lhs: negated, rhs: isLess), { !$0.isDone || -$0.price < 0 })
    case 5: return equal(\.level, sample.level, ==)
    case 6: return equal(\.id, names[0], ==)
    case 7: return compare(\.id, names[0], less)
    case 8: return (Is.build_contains(Is.build_Arg(names), path(\.id)), { names.contains($0.id) })
    case 9: return (Is.build_contains(path(\.numbers), Is.build_Arg(number)), { $0.numbers.contains(number) })
    case 10:
      let least = Is.build_min(path(\.numbers))
      let wanted: Int? = below(3) == 0 ? nil : number
      return (Is.build_Equal(lhs: least, rhs: Is.build_Arg(wanted)), { $0.numbers.min() == wanted })
    case 11:
      let length = Is.build_subscript(path(\.lengths), Is.build_Arg("title"))
      let wanted: Int? = number
      return (Is.build_Equal(lhs: length, rhs: Is.build_Arg(wanted)), { $0.lengths["title"] == wanted })
    default:
      let cast = Is.ConditionalCast<Is.KeyPath<Root, Int>, Int>(path(\.stars))
      let wanted: Int? = sample.stars
      return (Is.build_Equal(lhs: cast, rhs: Is.build_Arg(wanted)), { $0.stars == wanted })
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct GeneratedQueryTests {
  /// A store; every third one has pages of another device, whose numbers are none or have no end.
  private func open(_ seed: UInt64, _ below: (Int) -> Int) async throws -> RecordStore {
    let parents = [nil, ParentSchema(whenDeleted: .setNil), ParentSchema("folder", whenDeleted: .setNil)]
    let options = pageOptions(indexes: allIndexes.filter { _ in below(2) == 0 }, parent: parents[below(3)])
    let feed = ScriptedFeed()
    if seed % 3 == 0 {
      let written = try openPages()
      try written.writeBlocking { tx in
        for number in 0..<8 {
          let page = Page("q\(number)", below)
          try tx.save(page)
          guard var record = try tx.record(page.recordID) else { continue }
          record["price"] = [.double(.nan), .double(.infinity), .double(-0.0), record["price"]][below(4)]
          if below(3) == 0 { record["rating"] = .double(.nan) }
          feed.add(record)
        }
      }
      try written.closeBlocking()
    }
    var configuration = SyncConfiguration(feed)
    configuration.isAutomatic = false
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: options,
      environment: .simulated(disk: SimulatedDisk(), seed: seed))
    if seed % 3 == 0 {
      try await store.sync()
      let numbers = try store.fetch(Page.self).map(\.price)
      #expect(numbers.count == 8 && (seed != 3 || numbers.contains(where: \.isNaN)))
    }
    return store
  }

  @Test func `generated expressions have the answers of plain closures, whatever indexes there are`() async throws {
    let stores = Campaign.isWhole ? 170 : 6
    var (asked, met) = (0, 0)
    for seed in 1...UInt64(stores) {
      let random = SeededRandom(seed: seed)
      func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
      let store = try await open(seed, below)
      // Every fifth store has none.
      let pages = (0..<(seed % 5 == 0 ? 0 : 10 + below(15))).map { Page("p\($0)", below) }
      try store.writeBlocking { tx in for page in pages { try tx.save(page) } }
      if below(2) == 0 { try store.index?.flush() }
      try store.writeBlocking { tx in
        for page in pages where below(4) == 0 { try tx.update(Page.self, id: page.id) { $0 = Page(page.id, below) } }
        for page in pages where below(9) == 0 { try tx.delete(page) }
        for page in pages where below(4) == 0 {
          guard var record = try tx.record(page.recordID) else { continue }
          storeOtherwise(&record, below)
          try tx.save(record)
        }
      }
      let all = try store.fetch(Page.self)
      for number in 0..<60 {
        var meaning: ((Page) -> Bool)?
        let predicate = Predicate<Page> { variable in
          let made = Maker(random: random, root: variable).condition(depth: 3)
          meaning = made.isMet
          return made.node
        }
        let isMet = try #require(meaning)
        let comment: Comment = "seed \(seed): \(predicate)"
        let expected = all.filter(isMet).map(\.id)
        let typed = try TypedQuery([predicate], [], limit: nil)
        // Reading all records costs the most: what they say is known from the closure.
        for usesIndexes in number % 4 == 0 ? [true, false] : [true] {
          let found = try store.view().page(typed, usesIndexes: usesIndexes)
          #expect(found.records.map(\.id.name) == expected && found.unreadable.isEmpty, comment)
        }
        if number % 6 == 0 { #expect(try store.count(Page.self, where: predicate) == expected.count, comment) }
        if number % 6 == 1 { #expect(try store.exists(Page.self, where: predicate) == !expected.isEmpty, comment) }
        asked += 1
        if !expected.isEmpty, expected.count < all.count / 2 { met += 1 }
      }
      try askInside(store, random, "seed \(seed)")
      try await store.close()
    }
    print("typed queries: \(asked) expressions over \(stores) stores, \(met) with some of the records")
    #expect(met > asked / 5)
  }

  /// The same in a write, with what it has written.
  private func askInside(_ store: RecordStore, _ random: SeededRandom, _ seed: String) throws {
    func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
    try store.writeBlocking { tx in
      for number in 0..<6 {
        let page = Page("p\(below(30))", below)
        if number % 3 == 2 { try tx.delete(page) } else if try tx.record(page.recordID) != nil { try tx.save(page) }
      }
      let all = try tx.fetch(Page.self)
      for _ in 0..<10 {
        var meaning: ((Page) -> Bool)?
        let predicate = Predicate<Page> { variable in
          let made = Maker(random: random, root: variable).condition(depth: 2)
          meaning = made.isMet
          return made.node
        }
        let isMet = try #require(meaning)
        #expect(
          try tx.fetch(Page.self, where: predicate).map(\.id) == all.filter(isMet).map(\.id), "\(seed): \(predicate)")
      }
      #expect(try all.map(\.id) == all.compactMap { try tx.fetch(Page.self, id: $0.id)?.id })
    }
  }
}
