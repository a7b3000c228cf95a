// Goal: a typed question has the answer of a plain closure over all values, whatever indexes there are, and inside a transaction
// with what it has written. Method: each operator of `#Predicate` once, by hand, beside the same closure; then generated
// expressions over random stores, with and without indexes, in a view and in a write.

import Foundation
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct TypedQueryTests {
  /// Of the conditions that an app writes. `WrittenQueryTests` has more of them.
  static let cases = texts + values + lists + places

  private static let texts: [Case] = {
    let (text, decomposed, none) = ("a", "e\u{301}", String?.none)
    let (from, through, upTo) = ("b"..., ..."b", ..<"b")
    return [
      Case(#Predicate { $0.title == text }) { same($0.title, "a") },
      Case(#Predicate { $0.title == decomposed }) { same($0.title, "e\u{301}") },
      Case(#Predicate { $0.title != text }) { !same($0.title, "a") },
      Case(#Predicate { $0.title < "b" }) { less($0.title, "b") },
      Case(#Predicate { "b" <= $0.title }) { !less($0.title, "b") },
      Case(#Predicate { $0.title > "\u{FF5E}" }) { less("\u{FF5E}", $0.title) },
      Case(#Predicate { $0.title >= "L" }) { !less($0.title, "L") },
      Case(#Predicate { $0.title.starts(with: "L") }) { $0.title.utf8.starts(with: "L".utf8) },
      Case(#Predicate { $0.title.contains("b") }) { $0.title.utf8.contains(UInt8(ascii: "b")) },
      // The letter with its accent has this byte first.
      Case(#Predicate { $0.title.contains("e") }) { $0.title.utf8.contains(UInt8(ascii: "e")) },
      Case(#Predicate { ("a"..<"b").contains($0.title) }) { !less($0.title, "a") && less($0.title, "b") },
      Case(#Predicate { from.contains($0.title) }) { !less($0.title, "b") },
      Case(#Predicate { through.contains($0.title) }) { !less("b", $0.title) },
      Case(#Predicate { upTo.contains($0.title) }) { less($0.title, "b") },
      Case(#Predicate { $0.title.isEmpty }) { $0.title.isEmpty },
      Case(#Predicate { $0.title.count > 1 }) { $0.title.count > 1 },
      Case(#Predicate { ("a"..."b").contains($0.title) }) { !less($0.title, "a") && !less("b", $0.title) },
      Case(#Predicate { $0.body == nil }) { $0.body == nil },
      Case(#Predicate { $0.body != nil }) { $0.body != nil },
      Case(#Predicate { $0.body == text }) { $0.body.map { same($0, "a") } ?? false },
      Case(#Predicate { $0.body == none }) { $0.body == nil },
      Case(#Predicate { ($0.body ?? "b") == "b" }) { same($0.body ?? "b", "b") },
      Case(#Predicate { $0.body?.starts(with: "L") == true }) { $0.body?.utf8.starts(with: "L".utf8) == true },
      Case(#Predicate { ($0.body.flatMap { $0.count } ?? 0) > 1 }) { ($0.body?.count ?? 0) > 1 },
    ]
  }()

  private static let values: [Case] = {
    let (mood, day) = (Mood.wild, Date(timeIntervalSince1970: 2))
    let (key, kind, level) = (Page.keys[0], Kind.other, Level.high)
    let (from, through, upTo) = (2..., ...2, ..<2)
    return [
      Case(#Predicate { $0.stars > 2 }) { $0.stars > 2 },
      Case(#Predicate { $0.stars <= 2 && $0.stars != 0 }) { $0.stars <= 2 && $0.stars != 0 },
      Case(#Predicate { (1...3).contains($0.stars) }) { (1...3).contains($0.stars) },
      Case(#Predicate { (1..<3).contains($0.stars) }) { (1..<3).contains($0.stars) },
      Case(#Predicate { from.contains($0.stars) }) { $0.stars >= 2 },
      Case(#Predicate { through.contains($0.stars) }) { $0.stars <= 2 },
      Case(#Predicate { upTo.contains($0.stars) }) { $0.stars < 2 },
      Case(#Predicate { $0.stars < 4 && ($0.stars..<4).contains(1) }) { $0.stars <= 1 },
      Case(#Predicate { $0.stars < 4 && ($0.stars...4).contains(4) }) { $0.stars < 4 },
      Case(#Predicate { [1, 3].contains($0.stars) }) { [1, 3].contains($0.stars) },
      Case(#Predicate { $0.stars / 2 == 1 }) { $0.stars / 2 == 1 },
      Case(#Predicate { $0.stars % 2 == 1 }) { $0.stars % 2 == 1 },
      Case(#Predicate { -$0.stars < -2 }) { -$0.stars < -2 },
      Case(#Predicate { $0.stars - 1 == 2 }) { $0.stars - 1 == 2 },
      Case(#Predicate { $0.small == 200 }) { $0.small == 200 },
      Case(#Predicate { $0.price == 1 }) { $0.price == 1 },
      Case(#Predicate { $0.price > 0.25 }) { $0.price > 0.25 },
      Case(#Predicate { $0.price / 2 < 0.4 }) { $0.price / 2 < 0.4 },
      Case(#Predicate { $0.price * 2 == 5 }) { $0.price * 2 == 5 },
      Case(#Predicate { $0.rating == 0.25 }) { $0.rating == 0.25 },
      Case(#Predicate { $0.isDone }) { $0.isDone },
      Case(#Predicate { !$0.isDone }) { !$0.isDone },
      Case(#Predicate { $0.isDone == true }) { $0.isDone },
      Case(#Predicate { $0.mood == mood }) { $0.mood == .wild },
      Case(#Predicate { $0.mood != mood }) { $0.mood != .wild },
      Case(#Predicate { $0.level == level }) { $0.level == .high },
      Case(#Predicate { $0.kind == kind }) { $0.kind == .other },
      Case(#Predicate { $0.made == day }) { $0.made == day },
      Case(#Predicate { $0.made > day }) { $0.made > day },
      Case(#Predicate { $0.made <= day }) { $0.made <= day },
      Case(#Predicate { $0.due == nil || $0.made < day }) { $0.due == nil || $0.made < day },
      Case(#Predicate { $0.key == key }) { $0.key == key },
    ]
  }()

  private static let lists: [Case] = {
    let folder = TypedReference<Folder>(id: "f1")
    return [
      Case(#Predicate { $0.tags.contains("a") }) { $0.tags.contains { same($0, "a") } },
      Case(#Predicate { $0.tags.contains("é") }) { $0.tags.contains { same($0, "é") } },
      Case(#Predicate { $0.tags.contains { $0.starts(with: "L") } }) {
        $0.tags.contains { $0.utf8.starts(with: "L".utf8) }
      },
      Case(#Predicate { $0.tags.allSatisfy { $0 == "a" } }) { $0.tags.allSatisfy { same($0, "a") } },
      Case(#Predicate { $0.tags.filter { $0 > "a" }.count == 1 }) { $0.tags.filter { less("a", $0) }.count == 1 },
      Case(#Predicate { $0.tags.min() == "a" }) { page in page.tags.min(by: less).map { same($0, "a") } ?? false },
      Case(#Predicate { $0.tags.max() == "a" }) { page in page.tags.max(by: less).map { same($0, "a") } ?? false },
      Case(#Predicate { $0.tags == ["é"] }) { $0.tags.count == 1 && same($0.tags[0], "é") },
      Case(#Predicate { $0.numbers.contains(2) }) { $0.numbers.contains(2) },
      Case(#Predicate { $0.folder == folder }) { $0.folder?.id == "f1" },
      Case(#Predicate { $0.folder?.id == "f0" }) { $0.folder?.id == "f0" },
      Case(#Predicate { $0.place?.city == "a" }) { $0.place.map { same($0.city, "a") } ?? false },
      Case(#Predicate { $0.shout == "A" }) { $0.title == "a" },
      Case(#Predicate { $0.clamped == 3 }) { $0.clamped == 3 },
      Case(#Predicate { $0.id == "p103" }) { $0.id == "p103" },
      Case(#Predicate { $0.id == "p103" && $0.stars > 100 }) { $0.id == "p103" && $0.stars > 100 },
      Case(#Predicate { ["p101", "p105", "none"].contains($0.id) }) { $0.id == "p101" || $0.id == "p105" },
      Case(#Predicate { $0.id > "p110" }) { $0.id > "p110" },
      Case(#Predicate { $0.isDone ? $0.stars > 1 : $0.stars < 1 }) { $0.isDone ? $0.stars > 1 : $0.stars < 1 },
      Case(#Predicate { $0.title == "a" || $0.stars == 2 }) { same($0.title, "a") || $0.stars == 2 },
      Case(#Predicate { !($0.title == "a" || $0.stars == 2) }) { !(same($0.title, "a") || $0.stars == 2) },
      Case(#Predicate { _ in true }) { _ in true },
      Case(.where(\.stars, .greaterOrEqual, 3)) { $0.stars >= 3 },
      Case(.where(\.stars, .less, 3)) { $0.stars < 3 },
      Case(.where(\.mood, .notEqual, .calm)) { $0.mood != .calm },
      Case(.where(\.body, .equal, "L")) { $0.body.map { same($0, "L") } ?? false },
      Case(.where(\.title, .contains, "o")) { $0.title.contains("o") },
      Case(.where(\.title, .beginsWith, "a")) { $0.title.utf8.starts(with: "a".utf8) },
      Case(.where(\.tags, contains: "b")) { $0.tags.contains("b") },
      Case(.where(\.mood, isIn: [.calm, .none])) { $0.mood == .calm || $0.mood == .none },
    ]
  }()

  private static let places: [Case] = [
    Case(#Predicate { $0.tags.count > 1 && $0.tags[1] == "a" }) { $0.tags.count > 1 && same($0.tags[1], "a") },
    Case(#Predicate { $0.tags.count > 1 && $0.tags[0..<1].contains("a") }) {
      $0.tags.count > 1 && same($0.tags[0], "a")
    },
    Case(#Predicate { $0.lengths["title"] == 1 }) { $0.title.utf8.count == 1 },
    Case(#Predicate { $0.lengths["none"] == nil }) { _ in true },
    Case(#Predicate { $0.lengths["title", default: 9] == 1 }) { $0.title.utf8.count == 1 },
    Case(#Predicate { $0.lengths["none", default: 9] == 9 }) { _ in true },
  ]

  /// Casts, as the compiler writes them for a generic type; of a type that it knows it would warn.
  private static let casts: [Case] = {
    typealias Stars = PredicateExpressions.KeyPath<PredicateExpressions.Variable<Page>, Int>
    func stars(_ variable: PredicateExpressions.Variable<Page>) -> Stars {
      PredicateExpressions.build_KeyPath(root: variable, keyPath: \.stars)
    }
    return [
      Case(
        Predicate {
          PredicateExpressions.build_Equal(
            lhs: PredicateExpressions.ConditionalCast<Stars, Int>(stars($0)), rhs: PredicateExpressions.build_Arg(3))
        }
      ) { $0.stars == 3 },
      Case(
        Predicate {
          PredicateExpressions.build_Equal(
            lhs: PredicateExpressions.ConditionalCast<Stars, String>(stars($0)),
            rhs: PredicateExpressions.build_NilLiteral())
        }
      ) { _ in true },
      Case(
        Predicate {
          PredicateExpressions.build_Equal(
            lhs: PredicateExpressions.ForceCast<Stars, Int>(stars($0)), rhs: PredicateExpressions.build_Arg(3))
        }
      ) { $0.stars == 3 },
      Case(Predicate { PredicateExpressions.TypeCheck<Stars, Int>(stars($0)) }) { _ in true },
      Case(
        Predicate { PredicateExpressions.build_Negation(PredicateExpressions.TypeCheck<Stars, String>(stars($0))) }
      ) { _ in true },
    ]
  }()

  @Test(arguments: [false, true])
  func `every operator has the answer of a plain closure`(isIndexed: Bool) throws {
    let store = try openPages(indexes: isIndexed ? allIndexes : [])
    let pages = pages(60, seed: 5)
    try store.writeBlocking { tx in for page in pages { try tx.save(page) } }
    try store.index?.flush()
    var met = 0
    let cases = Self.cases + Self.casts
    for one in cases {
      let expected = try store.fetch(Page.self).filter(one.isMet).map(\.id)
      let found = try store.fetch(Page.self, where: one.predicate)
      #expect(found.map(\.id) == expected, "line \(one.line)")
      #expect(found.unreadable.isEmpty, "line \(one.line): \(found.unreadable)")
      #expect(try store.count(Page.self, where: one.predicate) == expected.count, "line \(one.line)")
      #expect(try store.exists(Page.self, where: one.predicate) == !expected.isEmpty, "line \(one.line)")
      #expect(try store.first(Page.self, where: one.predicate)?.id == expected.first, "line \(one.line)")
      if !expected.isEmpty { met += 1 }
    }
    // A case that no page meets would prove little.
    #expect(met >= cases.count - 4, "\(met) of \(cases.count)")
    try store.closeBlocking()
  }

  @Test func `several conditions are joined by and, in any of the two forms`() throws {
    let store = try openPages(indexes: allIndexes)
    try store.writeBlocking { tx in for page in pages(60, seed: 6) { try tx.save(page) } }
    let found = try store.fetch(
      Page.self, where: #Predicate { $0.stars > 0 }, .where(\.title, .beginsWith, "L"), #Predicate { !$0.isDone },
      sortedBy: .descending(\.stars), .ascending(\.title), limit: 100)
    let expected = try store.fetch(Page.self)
      .filter { $0.stars > 0 && $0.title.utf8.starts(with: "L".utf8) && !$0.isDone }
      .sorted { ($1.stars, $0.title, $0.id) < ($0.stars, $1.title, $1.id) }
    #expect(found.map(\.id) == expected.map(\.id))
    try store.closeBlocking()
  }

  @Test func `pages follow each other by their cursors`() throws {
    let store = try openPages(indexes: [RecordIndex("Page", "stars")])
    try store.writeBlocking { tx in for page in pages(57, seed: 7) { try tx.save(page) } }
    var (ids, cursor): ([String], QueryCursor?) = ([], nil)
    repeat {
      let page = try store.fetch(
        Page.self, where: #Predicate { !$0.title.isEmpty }, sortedBy: .ascending(\.stars), limit: 7, after: cursor)
      ids += page.map(\.id)
      cursor = page.cursor
    } while cursor != nil
    let expected = try store.fetch(Page.self).filter { !$0.title.isEmpty }.sorted {
      ($0.stars, $0.id) < ($1.stars, $1.id)
    }
    #expect(ids == expected.map(\.id))
    let names = ["p101", "p105", "p103", "none"]
    let first = try store.fetch(Page.self, where: #Predicate { names.contains($0.id) }, limit: 2)
    #expect(first.map(\.id) == ["p101", "p103"])
    let rest = try store.fetch(
      Page.self, where: #Predicate { names.contains($0.id) }, limit: 2, after: first.cursor)
    #expect(rest.map(\.id) == ["p105"] && rest.cursor == nil)
    try store.closeBlocking()
  }

  @Test func `explain names the index, what is evaluated, and records that are named`() throws {
    let store = try openPages(indexes: [RecordIndex("Page", "small")])
    try store.writeBlocking { tx in for page in pages(40, seed: 8) { try tx.save(page) } }
    try store.index?.flush()
    let mixed = try store.explain(Page.self, where: #Predicate { $0.small == 200 && $0.shout == "A" })
    #expect(mixed.index == RecordIndex("Page", "small"))
    #expect(mixed.usesCondition)
    #expect(mixed.evaluated.count == 1)
    #expect("\(mixed)".contains("evaluates on each"), "\(mixed)")
    let title = try store.explain(Page.self, where: #Predicate { $0.title == "a" })
    #expect(title.suggestion == RecordIndex("Page", "title"), "\(title)")
    let named = try store.explain(Page.self, where: #Predicate { $0.id == "p101" })
    #expect("\(named)" == "reads 1 record by name")
    try store.closeBlocking()
  }

  @Test func `an order by what is no field is refused, with the reason`() throws {
    let store = try openPages()
    for order in [ValueOrder<Page>.ascending(\.shout), .descending(\.clamped), .ascending(\.id), .ascending(\.parent)] {
      let error = #expect(throws: StrandlineError.self) { try store.fetch(Page.self, sortedBy: order) }
      #expect(error?.code == .invalidValue)
      #expect(error?.message.contains("no field") == true)
    }
    try store.closeBlocking()
  }

  @Test func `a condition that fails for one record makes that one unreadable`() throws {
    let store = try openPages()
    var (full, empty) = (pages(2, seed: 9)[0], pages(2, seed: 9)[1])
    (full.body, full.stars, empty.body, empty.stars) = ("a", 1, nil, .max)
    let pair = [full, empty]
    try store.writeBlocking { tx in for page in pair { try tx.save(page) } }
    let failing: [Predicate<Page>] = [
      #Predicate { $0.body! == "a" }, #Predicate { $0.stars + 1 == 2 }, #Predicate { $0.stars * 2 == 2 },
      #Predicate { ($0.stars...4).contains(3) }, #Predicate { ($0.stars..<4).contains(3) },
    ]
    for predicate in failing {
      let found = try store.fetch(Page.self, where: predicate)
      #expect(found.map(\.id) == [full.id])
      #expect(found.unreadable.map(\.id.name) == [empty.id])
      #expect(throws: StrandlineError.self) { try store.count(Page.self, where: predicate) }
      // It comes after the first one by its name; by another order it may be before.
      #expect(try store.first(Page.self, where: predicate)?.id == full.id)
      #expect(throws: StrandlineError.self) {
        try store.first(Page.self, where: predicate, sortedBy: .descending(\.stars))
      }
    }
    try store.closeBlocking()
  }

  @Test func `a range that ends before it begins is refused at the call`() throws {
    let store = try openPages()
    let (low, high) = (1, 3)
    for predicate: Predicate<Page> in [
      #Predicate { (high...low).contains($0.stars) }, #Predicate { (high..<low).contains($0.stars) },
    ] {
      let error = #expect(throws: StrandlineError.self) { try store.fetch(Page.self, where: predicate) }
      #expect(error?.code == .invalidValue)
      #expect(error?.message.contains("ends before it begins: 3 ..") == true)
    }
    try store.closeBlocking()
  }

  @Test func `a record without a field has the value that the type gives it`() throws {
    let store = try openPages(indexes: allIndexes)
    let page = pages(1, seed: 10)[0]
    try store.writeBlocking { try $0.save(page) }
    try store.writeBlocking { tx in
      var record = try #require(try tx.record(page.recordID))
      (record["stars"], record["price"]) = (nil, .int64(2))
      try tx.save(record)
    }
    try store.index?.flush()
    #expect(try store.count(Page.self, where: #Predicate { $0.stars == 3 }) == 1)
    #expect(try store.count(Page.self, where: #Predicate { $0.stars > 2 }) == 1)
    // A number that another tool has stored without a fraction.
    #expect(try store.count(Page.self, where: #Predicate { $0.price == 2 }) == 1)
    #expect(try store.count(Page.self, where: #Predicate { $0.price > 1.5 }) == 1)
    try store.closeBlocking()
  }

  @Test func `a record without a field has the value of its type's prototype`() throws {
    let store = try openPages(indexes: ["stars", "done"].map { RecordIndex("Card", $0) })
    try store.writeBlocking { tx in
      try tx.save(Card(id: "a", stars: 1, isDone: false))
      try tx.create(Record(type: "Card", id: RecordID("b", zone: Card.zone)))
      try tx.save(Card(id: "c", stars: 3, isDone: true))
    }
    try store.index?.flush()
    #expect(try store.fetch(Card.self, where: #Predicate { $0.stars == 3 }).map(\.id) == ["b", "c"])
    #expect(try store.fetch(Card.self, where: #Predicate { $0.stars > 1 }).map(\.id) == ["b", "c"])
    #expect(try store.fetch(Card.self, where: #Predicate { $0.isDone }).map(\.id) == ["b", "c"])
    #expect(try store.fetch(Card.self, where: #Predicate { !$0.isDone }).map(\.id) == ["a"])
    try store.closeBlocking()
  }

  @Test func `an enum that reads unknown texts as one of its cases finds them`() throws {
    let store = try openPages(indexes: allIndexes)
    let page = pages(1, seed: 11)[0]
    try store.writeBlocking { try $0.save(page) }
    try store.writeBlocking { tx in
      var record = try #require(try tx.record(page.recordID))
      record["kind"] = "from the future"
      try tx.save(record)
    }
    try store.index?.flush()
    #expect(try store.count(Page.self, where: #Predicate { $0.kind == kindOther }) == 1)
    try store.closeBlocking()
  }

  @Test func `a transaction sees what it has written, and its answer stays as it was`() throws {
    let store = try openPages(indexes: allIndexes)
    let pages = pages(30, seed: 12)
    try store.writeBlocking { tx in for page in pages { try tx.save(page) } }
    try store.writeBlocking { tx in
      try tx.update(Page.self, id: pages[0].id) { $0.stars = 77 }
      try tx.delete(pages[1])
      var new = pages[2]
      (new.id, new.stars) = ("new", 77)
      try tx.save(new)
      #expect(try tx.fetch(Page.self, where: #Predicate { $0.stars == 77 }).map(\.id) == ["new", pages[0].id])
      #expect(try tx.count(Page.self) == 30)
      #expect(try tx.first(Page.self, where: #Predicate { $0.id == "p101" }) == nil)
      // Of records that are named: one that was edited, one that was deleted, one that is new.
      let names = [pages[0].id, pages[1].id, "new", pages[3].id]
      #expect(try tx.count(Page.self, where: #Predicate { names.contains($0.id) }) == 3)
      #expect(try tx.exists(Page.self, where: #Predicate { names.contains($0.id) && $0.stars == 77 }))
      #expect(try !tx.exists(Page.self, where: #Predicate { names.contains($0.id) && $0.stars == -77 }))
      #expect(try tx.count(Page.self, where: #Predicate { names.contains($0.id) && $0.stars == 77 }) == 2)
      #expect(
        try tx.fetch(Page.self, where: #Predicate { names.contains($0.id) }).map(\.id)
          == ["new", pages[0].id, pages[3].id])
      let some = try tx.fetch(Page.self, sortedBy: .descending(\.stars), limit: 3)
      for page in some { try tx.delete(page) }
      #expect(some.count == 3)
      #expect(try tx.count(Page.self) == 27)
      #expect(try tx.update(Page.self, where: #Predicate { $0.isDone }) { $0.title = "done" } > 0)
      let done = try tx.fetch(Page.self, where: #Predicate { $0.title == "done" })
      #expect(done.allSatisfy(\.isDone) && !done.isEmpty)
    }
    #expect(try store.count(Page.self) == 27)
    try store.closeBlocking()
  }

  @Test(arguments: [false, true])
  func `a view answers every question as of its moment`(isIndexed: Bool) throws {
    let store = try openPages(indexes: isIndexed ? [RecordIndex("Page", "small")] : [])
    try store.writeBlocking { tx in for page in pages(40, seed: 14) { try tx.save(page) } }
    try store.index?.flush()
    let view = try store.view()
    let found = try view.fetch(Page.self, where: #Predicate { $0.small == 200 }, sortedBy: .descending(\.title)).map(
      \.id)
    #expect(found.count > 2)
    try store.writeBlocking { tx in
      for page in try tx.fetch(Page.self, where: #Predicate { $0.small == 200 }) { try tx.delete(page) }
    }
    #expect(try view.count(Page.self, where: #Predicate { $0.small == 200 }) == found.count)
    #expect(
      try view.first(Page.self, where: #Predicate { $0.small == 200 }, sortedBy: .descending(\.title))?.id
        == found.first)
    #expect(try view.exists(Page.self, where: #Predicate { $0.small == 200 }))
    #expect(try !view.exists(Page.self, where: #Predicate { $0.small == 77 }))
    #expect(try view.first(Page.self, where: #Predicate { $0.small == 77 }) == nil)
    #expect(try view.explain(Page.self, where: #Predicate { $0.small == 200 }).usesCondition == isIndexed)
    #expect(try !store.exists(Page.self, where: #Predicate { $0.small == 200 }))
    #expect(try store.first(Page.self, where: #Predicate { $0.small == 200 }) == nil)
    try store.closeBlocking()
  }

  @Test func `a store edits all that it finds in one transaction, or none`() async throws {
    let store = try openPages()
    let pages = pages(40, seed: 15)
    try await store.write { tx in for page in pages { try tx.save(page) } }
    let before = try store.fetch(Page.self).map { $0 }
    let wanted = before.filter { $0.isDone && $0.stars < 3 }.map(\.id)
    let done = try await store.update(
      Page.self, where: #Predicate { $0.isDone }, .where(\.stars, .less, 3)
    ) { $0.title = "edited" }
    #expect(done.count == wanted.count && done.count > 2)
    let edited = try store.fetch(Page.self, where: #Predicate { $0.title == "edited" })
    #expect(edited.map(\.id) == wanted)
    #expect(try await store.undo(done.receipt).kept.isEmpty)
    #expect(try store.fetch(Page.self).map { $0 } == before)
    struct Refusal: Error {}
    var count = 0
    await #expect(throws: Refusal.self) {
      try await store.update(Page.self, where: #Predicate { $0.isDone }) { page in
        count += 1
        if count == 3 { throw Refusal() }
        page.title = "lost"
      }
    }
    #expect(try store.fetch(Page.self).map { $0 } == before)
    let none = try await store.update(Page.self, where: #Predicate { $0.stars == 77 }) { $0.title = "" }
    #expect(none.count == 0 && none.receipt.lsns == nil)
    try await store.close()
  }

  @Test func `an observation hands out the values whenever they change`() async throws {
    let store = try openPages()
    let page = pages(1, seed: 13)[0]
    var values = store.observe(Page.self, where: #Predicate { $0.title == "seen" }).makeAsyncIterator()
    #expect(try await values.next()?.isEmpty == true)
    try await store.write { try $0.save(page) }
    try await store.write { try $0.update(Page.self, id: page.id) { $0.title = "seen" } }
    #expect(try await values.next()?.map(\.title) == ["seen"])
    try await store.close()
    #expect(try await values.next() == nil)
  }
}

private let kindOther = Kind.other

private struct Card: SyncRecord, Equatable {
  static var prototype: Card? { Card(id: "", stars: 3, isDone: true) }
  var id: String
  var stars: Int
  var isDone: Bool
  enum CodingKeys: String, CodingKey {
    case id, stars
    case isDone = "done"
  }
}
