// Goal: a view as of an earlier position shows what the store held then, record by record, or is refused: it never shows
// anything else, whatever was written, deleted, flushed, merged, compacted, synced, crashed or reopened since. Method: random
// histories on a simulated disk, with a copy of what every moment's own view showed; later each position is asked for again.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

private func id(_ name: String) -> RecordID { RecordID(name) }

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do { try body() } catch { return (error as? StrandlineError)?.code }
  return nil
}

/// A moment, as the view that was taken then showed it.
private struct Moment {
  let position: LogPosition
  let records: [RecordID: Record]

  init(_ store: RecordStore) throws {
    let view = try store.view()
    position = view.position
    var records: [RecordID: Record] = [:]
    try view.forEachRecord { records[$0.id] = $0 }
    self.records = records
  }

  /// What a view shows by every way of reading it that differs from the moment's records.
  func differences(_ view: StoreView, _ below: (UInt64) -> Int) throws -> [String] {
    var result: [String] = []
    func check(_ isSame: Bool, _ what: String) { if !isSame { result.append(what) } }
    var shown: [RecordID: Record] = [:]
    try view.forEachRecord { shown[$0.id] = $0 }
    check(shown == records, "records")
    check(try view.count() == records.count, "count")
    check(try view.count(ofType: "T") == records.count { $0.value.type == "T" }, "count of a type")
    check(try view.count(in: .main) == records.count { $0.key.zone == .main }, "count of a zone")
    let ids = (0..<6).map { _ in id("r\(below(14))") }
    check(try view.records(ids) == ids.compactMap { records[$0] }, "records by IDs")
    check(try view.record(ids[0]) == records[ids[0]], "record")
    let query = RecordQuery(
      "T", where: [RecordFilter("n", .greaterThan, .int64(Int64(below(100))))], sortedBy: [RecordSort("n")])
    let expected = records.values.filter { record in
      record.type == "T" && query.filters.allSatisfy { $0.matches(record[$0.field]) }
    }
    for usesIndexes in [true, false] {
      let found = try view.answer(query, usesIndexes: usesIndexes).records
      check(Set(found) == Set(expected) && found.count == expected.count, "a query, indexes \(usesIndexes)")
    }
    return result
  }
}

/// A store with small runs and segments, and what it held at every moment so far.
private struct Life {
  let seed: UInt64
  let random: SeededRandom
  var disk = SimulatedDisk()
  var store: RecordStore
  var moments: [Moment] = []
  /// Everything up to here may have been compacted.
  var compacted = LSN.zero
  var held: [(view: StoreView, moment: Moment)] = []
  var steps: [String] = []
  var shown = 0
  var refused = 0

  init(_ seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    store = try openIndexed(disk, seed: seed, declaring: [RecordIndex("T", "n")])
  }

  var comment: String { "seed \(seed): \(steps.suffix(12).joined(separator: ", "))" }

  func below(_ bound: UInt64) -> Int { Int(random.below(bound)) }

  mutating func reopen() throws {
    held = []
    store = try openIndexed(disk, seed: random.next())
  }

  mutating func step() throws {
    let number = Int64(steps.count)
    switch below(24) {
    case 0..<9:
      steps.append("save")
      try store.writeBlocking { tx in
        for place in 0...below(3) {
          let id = id("r\(below(14))")
          let record = Record(type: ["T", "U"][place / 3], id: id, fields: ["n": .int64(number + Int64(place))])
          if let known = try tx.record(id) {
            try tx.save(Record(type: known.type, id: id, fields: record.fields))
          } else {
            try tx.create(record)
          }
        }
      }
    case 9..<12:
      steps.append("delete")
      try store.writeBlocking { try $0.delete(id("r\(below(14))")) }
    case 12:
      steps.append("fail")
      #expect(throws: CancellationError.self) {
        try store.writeBlocking { tx in
          try tx.save(Record(type: "T", id: id("never"), fields: ["n": 1]))
          throw CancellationError()
        }
      }
    case 13:
      steps.append("flush")
      try store.index?.flush()
    case 14:
      steps.append("index")
      let index = RecordIndex("T", "n")
      if below(2) == 0 { try store.dropIndex(index) } else { try store.addIndex(index) }
    case 15:
      guard case .writer(let log) = store.source else { return }
      steps.append("finish or merge")
      if below(2) == 0 { try log.finishSegment() } else { try log.mergeSegments() }
    case 16:
      steps.append("compact")
      compacted = store.durableLSN
      try store.compactBlocking()
    case 17:
      steps.append("reopen")
      held = []
      try store.closeBlocking()
      try reopen()
    case 18:
      steps.append("crash")
      disk = disk.imageAfterCrash(.none)
      try reopen()
    case 19: if held.count < 3, let moment = moments.randomElement(below) { try hold(moment) }
    case 20: if !held.isEmpty { held.remove(at: below(UInt64(held.count))) }
    default: try check()
    }
    moments.append(try Moment(store))
  }

  mutating func hold(_ moment: Moment) throws {
    if let view = try view(of: moment, in: store) { held.append((view, moment)) }
  }

  /// The view of a moment; nil if it is refused, which it may be for a compaction alone.
  mutating func view(of moment: Moment, in store: RecordStore) throws -> StoreView? {
    let text = "\(moment.position), \(comment)"
    do {
      let view = try store.view(asOf: moment.position)
      #expect(view.position == moment.position, "\(text)")
      shown += 1
      return view
    } catch StrandlineError.Code.positionExpired {
      #expect(moment.position.lsn < compacted, "\(text)")
      refused += 1
      return nil
    }
  }

  mutating func check() throws {
    for _ in 0..<4 {
      guard let moment = moments.randomElement(below), let view = try view(of: moment, in: store) else { continue }
      let differences = try moment.differences(view, below)
      #expect(differences.isEmpty, "\(differences) as of \(moment.position), \(comment)")
    }
    for (view, moment) in held {
      let differences = try moment.differences(view, below)
      #expect(differences.isEmpty, "\(differences) of a held view as of \(moment.position), \(comment)")
    }
    guard below(3) == 0 else { return }
    if case .writer(let log) = store.source { try log.raiseControl() }
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: .simulated(disk: disk, seed: 1))
    guard let moment = moments.randomElement(below), let view = try view(of: moment, in: reader) else { return }
    let differences = try moment.differences(view, below)
    #expect(differences.isEmpty, "\(differences) in another process, as of \(moment.position), \(comment)")
  }
}

extension Array {
  fileprivate func randomElement(_ below: (UInt64) -> Int) -> Element? {
    isEmpty ? nil : self[below(UInt64(count))]
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A view as of an earlier position` {
  @Test(arguments: Campaign.seeds(1...24))
  func `shows what the store held then, or is refused`(seed: UInt64) throws {
    var life = try Life(seed)
    for _ in 0..<160 { try life.step() }
    try life.check()
    #expect(life.shown > 4, "\(life.shown) shown, \(life.refused) refused, seed \(seed)")
    life.held = []
    try life.store.closeBlocking()
  }

  /// Two devices that edit the same records and sync: what the server said has changed too.
  @Test(arguments: Campaign.seeds(1...8, every: 4))
  func `shows what a syncing store held, with what the server said`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.below(count)) }
    let fleet = try Fleet(seed: seed)
    let devices = [fleet.device("a", segmentBytesMax: 20_000), fleet.device("b")]
    var moments: [Moment] = []
    var compacted = LSN.zero
    var (shown, refused) = (0, 0)
    for step in 0..<90 {
      let device = devices[below(4) / 3]
      let store = try await device.open()
      try await store.write { tx in
        for _ in 0...below(2) {
          let id = id("r\(below(5))")
          if below(5) == 0 {
            try tx.delete(id)
          } else {
            let record = Record(type: "T", id: id, fields: ["n": .int64(Int64(step))])
            if try tx.record(id) == nil { try tx.create(record) } else { try tx.save(record) }
          }
        }
      }
      if below(3) == 0 { try await device.sync() }
      let own = try await devices[0].open()
      switch below(12) {
      case 0:
        compacted = own.durableLSN
        try await own.compact(keeping: .latest)
      case 1:
        try await devices[0].close()
      case 2:
        if case .writer(let log) = own.source { try log.finishSegment() }
      default: break
      }
      let now = try await devices[0].open()
      moments.append(try Moment(now))
      for _ in 0..<3 {
        guard let moment = moments.randomElement(below) else { continue }
        do {
          let differences = try moment.differences(try now.view(asOf: moment.position), below)
          #expect(differences.isEmpty, "\(differences), seed \(seed), step \(step), as of \(moment.position)")
          shown += 1
        } catch StrandlineError.Code.positionExpired {
          #expect(moment.position.lsn < compacted, "seed \(seed), step \(step)")
          refused += 1
        }
      }
    }
    #expect(shown > 4, "\(shown) shown, \(refused) refused, seed \(seed)")
    for device in devices { try await device.close() }
  }

  @Test func `of a place within a transaction is that of its end, and the start is an empty store`() throws {
    let disk = SimulatedDisk()
    let store = try openIndexed(disk, seed: 1)
    let receipt = try store.writeBlocking { tx in
      for name in ["r1", "r2", "r3"] { try tx.save(Record(type: "T", id: id(name), fields: ["n": 1])) }
    }
    try store.writeBlocking { try $0.delete(id("r2")) }
    for change in try store.changes(since: .start).changes.prefix(3) {
      let view = try store.view(asOf: change.position)
      #expect(view.lsn == receipt.position.lsn && view.position == receipt.position)
      #expect(try view.count() == 3 && view.record(id("r2"))?["n"] == 1)
    }
    #expect(try store.view(asOf: .start).count() == 0)
    #expect(try store.status().views.isEmpty)
    let view = try store.view(asOf: receipt.position)
    #expect(try store.status().views.map(\.lsn) == [view.lsn])
    let now = try store.view()
    #expect(try store.view(asOf: now.position).lsn == now.lsn)
    try store.closeBlocking()
  }

  @Test func `of another log is refused, and one from before a compaction`() throws {
    let disk = SimulatedDisk()
    var store = try openIndexed(disk, seed: 1)
    let first = try store.writeBlocking { try $0.save(Record(type: "T", id: id("r1"), fields: ["n": 1])) }
    let restored = try openIndexed(disk.clone(), seed: 2)
    let second = try store.writeBlocking { try $0.save(Record(type: "T", id: id("r1"), fields: ["n": 2])) }
    #expect(code { _ = try restored.view(asOf: second.position) } == .noSuchRecord)
    #expect(try restored.view(asOf: first.position).record(id("r1"))?["n"] == 1)
    try restored.closeBlocking()

    // As long as a view is held, compaction leaves in place what it shows.
    var view: StoreView? = try store.view(asOf: first.position)
    try store.compactBlocking()
    #expect(try view?.record(id("r1"))?["n"] == 1)
    #expect(try store.view(asOf: first.position).record(id("r1"))?["n"] == 1)
    view = nil
    try store.compactBlocking()
    for _ in 0..<2 {
      #expect(code { _ = try store.view(asOf: first.position) } == .positionExpired)
      #expect(code { _ = try store.view(asOf: .start) } == .positionExpired)
      #expect(try store.view(asOf: second.position).record(id("r1"))?["n"] == 2)
      try store.closeBlocking()
      store = try openIndexed(disk, seed: 3)
    }
    try store.closeBlocking()
  }

  /// The segment behind the position stays as it is: no gap there says that something is missing.
  @Test func `is refused where compaction has changed older segments alone`() throws {
    let store = try openIndexed(SimulatedDisk(), seed: 1)
    guard case .writer(let log) = store.source else { return }
    let saved = try store.writeBlocking { try $0.save(Record(type: "T", id: id("r1"), fields: ["n": 1])) }
    try log.finishSegment()
    try store.writeBlocking { try $0.delete(id("r1")) }
    try store.compactBlocking()
    #expect(try store.changes(since: saved.position).changes.map(\.kind) == [.deleted])
    #expect(code { _ = try store.view(asOf: saved.position) } == .positionExpired)
    try store.closeBlocking()
  }
}
