// Goal: an index answers conditions that several stored values meet, and leaves no record out that another tool has stored. Method:
// `explain` beside the answers, over records as the type writes them and as it only reads them.

import Foundation
import StrandlineSimulation
import StrandlineTesting
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct IndexedConditionTests {
  /// Pages `p0` and so on, in tables of the disk, each after a change of its own.
  private func open(
    _ count: Int, indexes: [String] = [], parent: ParentSchema? = nil, _ change: (Int, inout Record) -> Void
  ) throws -> RecordStore {
    let store = try openPages(indexes: indexes.map { RecordIndex("Page", $0) }, parent: parent)
    try store.writeBlocking { tx in
      for number in 0..<count {
        let page = Page("p\(number)") { _ in 0 }
        try tx.save(page)
        guard var record = try tx.record(page.recordID) else { continue }
        change(number, &record)
        try tx.save(record)
      }
    }
    try store.index?.flush()
    try store.buildIndexesBlocking()
    return store
  }

  /// The names of the pages that meet a condition, which an index must have answered, in any order of the index.
  private func found(_ store: RecordStore, _ index: String, _ predicate: Predicate<Page>) throws -> [String] {
    let plan = try store.explain(Page.self, where: predicate)
    #expect(plan.index == RecordIndex("Page", index) && plan.usesCondition && plan.evaluated.isEmpty, "\(plan)")
    let names = try store.fetch(Page.self, where: predicate).map(\.id)
    #expect(try store.count(Page.self, where: predicate) == names.count)
    return names
  }

  @Test func `a Bool that is true uses an index, whatever number is stored for it`() throws {
    let numbers: [Int64] = [0, 1, -1, 0, .max, .min]
    let store = try open(6, indexes: ["isDone"]) { $1["isDone"] = .int64(numbers[$0]) }
    let done = ["p1", "p2", "p4", "p5"]
    #expect(try found(store, "isDone", #Predicate { $0.isDone }) == done)
    #expect(try found(store, "isDone", #Predicate { $0.isDone == true }) == done)
    #expect(try found(store, "isDone", #Predicate { $0.isDone && $0.isDone }) == done)
    #expect(try found(store, "isDone", #Predicate { !$0.isDone }) == ["p0", "p3"])
    let other = try store.explain(Page.self, where: #Predicate { $0.isDone || $0.stars > 3 })
    #expect(other.index == nil && other.evaluated.count == 1)
    try store.closeBlocking()
  }

  @Test func `a Bool without an index is told which one would help`() throws {
    let store = try open(2) { _, _ in }
    #expect(try store.explain(Page.self, where: #Predicate { $0.isDone }).suggestion == RecordIndex("Page", "isDone"))
    try store.closeBlocking()
  }

  private struct Tally: SyncRecord {
    var id: String
    var count: Int64
  }

  @Test func `a wide integer is found by its field, beside records that have none there`() throws {
    let store = try RecordStore.openBlocking(at: "/t", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    let values: [FieldValue] = [.int64(.min), .int64(0), .int64(.max), .double(2.5), .string("2")]
    try store.writeBlocking { tx in
      for (number, value) in values.enumerated() {
        try tx.save(Record(type: "Tally", id: RecordID("t\(number)"), fields: ["count": value]))
      }
    }
    let least = Int64.min
    for (predicate, names) in [
      (#Predicate<Tally> { $0.count > 0 }, ["t2"]), (#Predicate<Tally> { $0.count == least }, ["t0"]),
    ] {
      let found = try store.fetch(Tally.self, where: predicate)
      #expect(found.map(\.id) == names && found.unreadable.isEmpty)
    }
    try store.closeBlocking()
  }

  @Test func `the order of Doubles uses an index, with numbers that were stored without a fraction`() throws {
    let values: [FieldValue] = [
      .double(-0.0), .double(0.5), .int64(1), .double(1), .double(1.5), .int64(2), .double(1e300), .int64(-3),
      .int64(1 << 53 + 1), .double(0x1p53), .double(-1e300), .int64(.min), .int64(.max),
    ]
    let store = try open(values.count, indexes: ["price"]) { $1["price"] = values[$0] }
    let all = try store.fetch(Page.self)
    for bound in [0, 0.5, 0.75, 1, 1.5, 2, 0x1p53, 0x1p54, -0x1p53, .infinity, -.infinity, 1e300, -2.5] {
      let cases: [(Predicate<Page>, (Double) -> Bool)] = [
        (#Predicate { $0.price < bound }, { $0 < bound }), (#Predicate { $0.price <= bound }, { $0 <= bound }),
        (#Predicate { bound < $0.price }, { $0 > bound }), (#Predicate { $0.price >= bound }, { $0 >= bound }),
        (#Predicate { $0.price == bound }, { $0 == bound }),
      ]
      for (number, one) in cases.enumerated() {
        let expected = all.filter { one.1($0.price) }.map(\.id)
        #expect(try found(store, "price", one.0).sorted() == expected.sorted(), "case \(number) of \(bound)")
      }
    }
    let none = Double.nan
    let unordered = try store.explain(Page.self, where: #Predicate { $0.price < none })
    #expect(unordered.index == nil && unordered.evaluated.count == 1)
    try store.closeBlocking()
  }

  @Test func `a range of Doubles reads no more of the index than the range`() throws {
    let store = try open(40, indexes: ["price", "title"]) { number, record in
      record["price"] = number % 2 == 0 ? .int64(Int64(number)) : .double(Double(number))
    }
    let typed = try TypedQuery([#Predicate<Page> { (3.0...6.5).contains($0.price) }], [], limit: nil)
    for ascending in [true, false] {
      let index = StoredIndex(number: 1, index: RecordIndex("Page", "price", ascending: ascending))
      let plan = try #require(IndexPlan(typed.query, zone: nil, [index]))
      let read = try store.records(ofType: "Page").filter { record in
        index.rows(record).contains { row in plan.ranges.contains { $0.contains(row) } }
      }
      #expect(read.map(\.id.name).sorted() == ["p3", "p4", "p5", "p6"])
    }
    // Both ends are known, so this index is better than one that has every record.
    #expect(
      try found(store, "price", #Predicate { (3.0...6.5).contains($0.price) && $0.title >= "" })
        == ["p3", "p4", "p5", "p6"])
    let sorted = try store.fetch(
      Page.self, where: #Predicate { $0.price > 3 }, #Predicate { $0.price < 8 }, sortedBy: .descending(\.price))
    // Whole numbers without a fraction are another type of field, which comes before.
    #expect(sorted.map(\.price) == [7, 5, 6, 4])
    try store.closeBlocking()
  }

  @Test func `a Float is found by an index if more digits of it were stored`() throws {
    let values = [0.1, Double(Float(0.1)), 0.1000001, 0.2]
    let store = try open(4, indexes: ["rating"]) { $1["rating"] = .double(values[$0]) }
    let rating = Float(0.1)
    #expect(try found(store, "rating", #Predicate { $0.rating == rating }) == ["p0", "p1"])
    try store.closeBlocking()
  }

  @Test func `children are found by the index that their type has for deleted parents`() throws {
    let (folder, reference) = (Parent<Folder>(id: "f1"), TypedReference<Folder>(id: "f1"))
    let store = try open(9, parent: ParentSchema(whenDeleted: .delete)) { $1.parent = ["f0", "f1", nil][$0 % 3] }
    #expect(try found(store, "___parent", #Predicate { $0.parent == folder }) == ["p1", "p4", "p7"])
    try store.writeBlocking { tx in
      try tx.update(Page.self, id: "p1") { $0.parent = Parent(id: "f2") }
      try tx.update(Page.self, id: "p2") { $0.parent = folder }
      #expect(try tx.fetch(Page.self, where: #Predicate { $0.parent == folder }).map(\.id) == ["p2", "p4", "p7"])
    }
    #expect(try found(store, "___parent", #Predicate { $0.parent == folder }) == ["p2", "p4", "p7"])
    try store.closeBlocking()
    let other = try open(9, parent: ParentSchema("folder", whenDeleted: .delete)) {
      $1["folder"] = [.reference(Reference("f0")), .reference(Reference("f1", action: .deleteSelf)), nil][$0 % 3]
    }
    #expect(try found(other, "folder", #Predicate { $0.folder == reference }) == ["p1", "p4", "p7"])
    let plain = try other.explain(Page.self, where: #Predicate { $0.parent == folder })
    #expect(plain.index == nil)
    try other.closeBlocking()
  }
}
