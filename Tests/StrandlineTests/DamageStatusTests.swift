// Goal: damage in a finished segment of a store that is open costs what the damage holds and nothing else; the status names
// it, and so do a query and a list of values, beside the records that can be read. Method: a bit of one event is flipped
// while no store is open; the runs are believed, so that the open does not read it.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30))) struct `Damage in a finished segment` {
  private let disk = SimulatedDisk()

  private func id(_ number: Int) -> RecordID { RecordID("r\(number)") }

  private struct Note: SyncRecord {
    var id: String
    var v: Int
  }

  /// A store of sixty records in several segments, closed; one event of the second segment is damaged.
  private func damaged(
    declaring indexes: [RecordIndex]? = nil
  ) throws -> (lsn: LSN, number: Int, file: String, offset: UInt64) {
    let store = try openIndexed(disk, seed: 1, declaring: indexes)
    for number in 0..<60 {
      try store.writeBlocking { tx in
        let text = FieldValue.string(String(repeating: "x", count: 600))
        try tx.save(Record(type: "Note", id: id(number), fields: ["v": .int64(Int64(number)), "text": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let second = try (0..<60).first { number in
      guard let lsn = try store.projections.entry(id(number))?.view else { return false }
      return log.place(of: lsn.rawValue)?.segmentID == 2
    }
    let number = try #require(second)
    let lsn = try #require(try store.projections.entry(id(number))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    try store.closeBlocking()
    let file = "/store/\(SegmentName.name(2))"
    var bytes = try #require(disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    disk.poke(file, bytes)
    return (lsn, number, file, UInt64(place.offset))
  }

  @Test func `is named by the status of the store that met it, and writes and other reads go on`() throws {
    let (lsn, number, file, offset) = try damaged()
    let store = try openIndexed(disk, seed: 2)
    #expect(try store.status().damage == [])
    for _ in 0..<2 {
      #expect { _ = try store.record(id(number)) } throws: {
        let error = $0 as? StrandlineError
        return error?.code == .damaged && error?.file == file && error?.offset == offset
      }
    }
    let status = try store.status()
    let found = try #require(status.damage.first)
    #expect(status.damage.count == 1 && found.file == file && found.offset == offset && found.lsns == lsn...lsn)
    #expect("\(status)".hasSuffix(", 1 damaged place"))
    #expect("\(found)".hasPrefix("\(file):\(offset), events \(lsn) to \(lsn): "), "\(found)")
    for other in 0..<60 where other != number {
      #expect(try store.record(id(other))?["v"] == .int64(Int64(other)))
    }
    try store.writeBlocking { tx in
      try tx.save(Record(type: "Note", id: id(59), fields: ["v": 100]))
      try tx.create(Record(type: "Note", id: id(60), fields: ["v": 60]))
      try tx.delete(id(58))
    }
    #expect(try store.record(id(59))?["v"] == 100 && store.record(id(60))?["v"] == 60)
    let bytes = disk.peek(file)
    #expect { try store.compactBlocking() } throws: { ($0 as? StrandlineError)?.code == .damaged }
    #expect(disk.peek(file) == bytes)
    #expect(try store.status().damage == status.damage)
    try store.closeBlocking()
    // The next open reads it no more than this one did.
    let again = try openIndexed(disk, seed: 3)
    #expect(try again.status().damage == [] && again.record(id(60))?["v"] == 60)
    try again.closeBlocking()
  }

  @Test(arguments: [[], [RecordIndex("Note", "v")]])
  func `leaves a query its other records and is named beside them`(indexes: [RecordIndex]) async throws {
    let (lsn, number, file, offset) = try damaged(declaring: indexes)
    let store = try openIndexed(disk, seed: 2, declaring: indexes)
    let others = (0..<60).filter { $0 != number }
    func values(_ records: [Record]) -> [Int] {
      records.compactMap { if case .int64(let value)? = $0["v"] { Int(value) } else { nil } }
    }
    let all = try store.query(RecordQuery("Note"))
    #expect(values(all.records).sorted() == others && all.cursor == nil && all.unreadable.count == 1)
    let unreadable = try #require(all.unreadable.first)
    #expect(unreadable.id == id(number) && unreadable.record == nil && unreadable.error.code == .damaged)
    #expect(unreadable.error.file == file && unreadable.error.offset == offset && unreadable.error.lsns == lsn...lsn)
    #expect(unreadable.error.location?.contains("DamageStatusTests.swift:") == true)
    #expect("\(all)" == "59 records, unreadable: Main/r\(number)")

    for sorts in [[], [RecordSort("v")], [RecordSort("v", ascending: false)]] {
      let filters = [RecordFilter("v", .greaterThanOrEquals, 0)]
      let query = RecordQuery("Note", where: filters, sortedBy: sorts, limit: 7)
      #expect(try (store.explain(query).index != nil) == !indexes.isEmpty)
      var (found, named): ([Int], [RecordID]) = ([], [])
      var cursor: QueryCursor?
      repeat {
        let page = try store.query(query, after: cursor)
        #expect(Set(page.unreadable).isSubset(of: [unreadable]))
        found += values(page.records)
        named += page.unreadable.map(\.id)
        cursor = page.cursor
      } while cursor != nil
      #expect(found.sorted() == others && Set(named) == [id(number)])
      if let sort = sorts.first { #expect(found == (sort.ascending ? others : others.reversed())) }
      if sorts.isEmpty { #expect(named.count == 1) }
      #expect { _ = try store.view().count(query) } throws: { ($0 as? StrandlineError)?.code == .damaged }
    }
    let one = RecordQuery("Note", where: [RecordFilter("v", .equals, .int64(Int64(others[3])))])
    let page = try store.query(one)
    // An index knows that the damaged record is not asked for.
    #expect(values(page.records) == [others[3]] && page.unreadable.isEmpty == !indexes.isEmpty)

    var observed = store.observe(RecordQuery("Note")).makeAsyncIterator()
    #expect(try await observed.next() == all)
    try await store.write { tx in try tx.delete(id(others[0])) }
    let second = try await observed.next()
    #expect(second?.records.count == 58 && second?.unreadable == all.unreadable)
    try await store.close()
  }

  @Test func `leaves a query its other records where memory has what the index lacks`() throws {
    let index = RecordIndex("Note", "v")
    let store = try openIndexed(disk, seed: 1, declaring: [index])
    for number in 0..<60 {
      try store.writeBlocking { tx in
        try tx.save(Record(type: "Note", id: id(number), fields: ["v": .int64(Int64(number))]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    try #require(store.index).flush()
    try store.writeBlocking { tx in
      try tx.save(Record(type: "Note", id: id(7), fields: ["v": 100]))
      try tx.save(Record(type: "Note", id: id(8), fields: ["v": 101]))
    }
    let lsn = try #require(try store.projections.entry(id(7))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    disk.poke(file, bytes)
    let query = RecordQuery("Note", where: [RecordFilter("v", .greaterThan, 50)], sortedBy: [RecordSort("v")])
    #expect(try store.explain(query).index == index)
    let page = try store.query(query)
    #expect(page.records.map(\.id) == (51..<60).map(id) + [id(8)])
    #expect(page.unreadable.map(\.id) == [id(7)])
    try? store.closeBlocking()
  }

  @Test func `leaves a list of values the others and is named beside them`() throws {
    let (lsn, number, _, _) = try damaged()
    let store = try openIndexed(disk, seed: 2)
    let others = (0..<60).filter { $0 != number }
    let all = try store.fetch(Note.self)
    #expect(all.map(\.v).sorted() == others && all.unreadable.map(\.id) == [id(number)])
    #expect(all.unreadable.first?.record == nil && all.unreadable.first?.error.lsns == lsn...lsn)
    let some = try store.fetch(Note.self, ids: ["r\(others[1])", "r\(number)", "r\(others[0])"])
    #expect(some.map(\.v) == [others[1], others[0]] && some.unreadable.map(\.id) == [id(number)])
    // What has no place for it throws.
    #expect { _ = try store.records(ofType: "Note") } throws: { ($0 as? StrandlineError)?.code == .damaged }
    #expect { _ = try store.records([id(number)]) } throws: { ($0 as? StrandlineError)?.lsns == lsn...lsn }
    try store.closeBlocking()
  }

  @Test func `is named by the status of a reader that met it`() throws {
    let (lsn, number, file, offset) = try damaged()
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 2))
    #expect(try reader.status().damage == [])
    #expect(throws: StrandlineError.self) { _ = try reader.record(id(number)) }
    let found = try #require(try reader.status().damage.first)
    #expect(found.file == file && found.offset == offset && found.lsns == lsn...lsn)
    try reader.closeBlocking()
  }

  @Test func `does not keep the status from telling the rest when it hits the oldest unsettled mutation`() throws {
    let store = try openIndexed(disk, seed: 1)
    for number in 0..<60 {
      try store.writeBlocking { tx in
        let text = FieldValue.string(String(repeating: "x", count: 600))
        try tx.save(Record(type: "Note", id: id(number), fields: ["text": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let lsn = try #require(try store.projections.entry(id(0))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    try store.closeBlocking()
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    disk.poke(file, bytes)
    let again = try openIndexed(disk, seed: 2)
    let status = try again.status()
    #expect(status.unsettled == 60 && status.oldestUnsettledMilliseconds == nil)
    #expect(status.damage.map(\.file) == [file] && status.damage.first?.lsns == lsn...lsn)
    try again.closeBlocking()
  }
}
