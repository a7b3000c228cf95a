// The projections between an append and its sync: what a reader sees, what an undo restores, and that no event costs
// more because others came before it.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

private let zone = ZoneID("Z")

/// Random events of a few records, as a store writes them.
private struct Lives {
  let random: SeededRandom
  var projections = Projections()
  private var time: UInt16 = 0

  init(seed: UInt64) { random = SeededRandom(seed: seed) }

  private func below(_ count: UInt64) -> UInt64 { random.next() % count }

  /// An event that may follow; nil if the one that was drawn may not.
  mutating func next() throws -> Event? {
    time += 1
    let id = RecordID("r\(below(4))", zone: zone)
    let entry = try projections.entry(id)
    let mutations = entry?.pending?.sendable ?? []
    // A record keeps its type for life, and may have had another life.
    let type = entry?.view == nil ? ["T", "U"][Int(below(2))] : entry?.type ?? "T"
    let birth = Birth(time: HybridTime(milliseconds: Int64(time), count: 0), writer: 7)
    switch below(13) {
    case 0...3:
      let time = HybridTime(milliseconds: Int64(time), count: 0)
      let content = EncodedContent(Version(type: type))
      return .saved(
        Saved(
          id: id, type: type, births: [birth], base: entry?.base?.version ?? .zero, time: time, editCount: 1, tenure: 9,
          isCreation: entry == nil, content: content))
    case 4:
      guard entry?.view != nil else { return nil }
      return .deleted(
        Deleted(
          id: id, births: [birth], base: entry?.base?.version ?? .zero,
          time: HybridTime(milliseconds: Int64(time), count: 0), tenure: 9))
    case 5, 6:
      guard !mutations.isEmpty else { return nil }
      return .sent(Sent(batch: 1, zone: zone, lsns: [mutations[Int(below(UInt64(mutations.count)))]]))
    case 7:
      guard let newest = mutations.last else { return nil }
      let lsn = entry?.pending?.isDeletion == true ? newest : mutations[Int(below(UInt64(mutations.count)))]
      let outcomes: [Outcome] = [.saved, .deleted, .rejected, .merged, .cancelled]
      return .settled(
        Settled(id: id, lsn: lsn, outcome: outcomes[Int(below(5))], changeTag: "t\(time)", created: nil, modified: nil))
    case 8: return .fetchedDelete(FetchedDelete(id: id, births: [birth], reason: .feed))
    case 9:
      guard let newest = mutations.last else { return nil }
      return .held(
        Held(
          id: id, direction: .upload, lsn: newest, code: "C", words: "", requestUUID: "", attempts: 1,
          durationMilliseconds: 0, wallMilliseconds: 0))
    case 10: return .blocked(Blocked(id: id, subject: .version, births: [], consequence: .lookup, words: ""))
    case 11:
      // The server's record may have another type: it was deleted there and created anew.
      return .fetchedSave(
        FetchedSave(
          id: id, version: Version(type: ["T", "U"][Int(below(2))]), system: SystemFields(changeTag: "t\(time)"),
          source: .lookup, isStamped: true))
    default: return .zoneChanged(ZoneChanged(zone: zone, change: below(2) == 0 ? .dirty : .clean))
    }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Projections of events that are not durable` {
  @Test(arguments: Campaign.seeds(1...40, every: 8))
  func `are undone to what they were, and readers see what was durable`(seed: UInt64) throws {
    var lives = Lives(seed: seed)
    // Everything as it was after each event since the last one that became durable.
    var history = [lives.projections]
    for step in 1...300 {
      guard let event = try lives.next() else { continue }
      let lsn = lives.projections.appliedLSN.advanced(by: 1)
      try lives.projections.apply(event, at: lsn, isDurable: false)
      history.append(lives.projections)
      #expect(lives.projections.brokenInvariant() == nil, "seed \(seed), step \(step)")
      let place = Int(lives.random.next() % UInt64(history.count))
      let (durable, bound) = (history[place], history[place].appliedLSN)
      switch lives.random.next() % 8 {
      case 0:
        lives.projections.undo(to: bound)
        let (now, comment) = (lives.projections, "seed \(seed), step \(step)")
        #expect(try now.difference(from: durable).ids.isEmpty, "\(comment)")
        #expect(now.outbox.newest == durable.outbox.newest && now.outbox.attempted == durable.outbox.attempted)
        #expect(now.sync.held == durable.sync.held && now.sync.zones == durable.sync.zones, "\(comment)")
        #expect(now.sync.openBlocks == durable.sync.openBlocks && now.appliedLSN == bound, "\(comment)")
        history.removeSubrange((place + 1)...)
      case 1:
        lives.projections.trim(upTo: bound)
        history.removeSubrange(..<place)
      default:
        for number in 0..<4 {
          let id = RecordID("r\(number)", zone: zone)
          #expect(try lives.projections.entry(id, asOf: bound) == durable.entry(id), "seed \(seed), step \(step)")
          #expect(try lives.projections.deletion(id, asOf: bound) == durable.deletion(id), "seed \(seed), step \(step)")
        }
        let sync = lives.projections.sync(asOf: bound)
        #expect(sync.held == durable.sync.held && sync.zones == durable.sync.zones, "seed \(seed), step \(step)")
        #expect(sync.openBlocks == durable.sync.openBlocks, "seed \(seed), step \(step)")
        let (then, there) = (lives.projections.living(asOf: bound), durable.records.living)
        for type in [nil, "T", "U"] {
          #expect(
            then.total(ofType: type, in: zone) == there.total(ofType: type, in: zone), "seed \(seed), step \(step)")
        }
      }
    }
  }

  @Test func `a set of LSNs is one`() {
    let random = SeededRandom(seed: 5)
    var set = LSNSet()
    var model: Set<LSN> = []
    for step in 0..<4_000 {
      // Some in a row, some far away, some at the borders of words and chunks.
      let bases: [UInt64] = [0, 63, 4_095, 4_096, 1 << 40, UInt64(step)]
      let lsn = LSN(bases[Int(random.next() % 6)] &+ random.next() % 70)
      if random.next() % 3 == 0 {
        #expect(set.remove(lsn) == (model.remove(lsn) != nil))
      } else {
        #expect(set.insert(lsn) == model.insert(lsn).inserted)
      }
      #expect(set.count == model.count && set.first == model.min() && set.contains(lsn) == model.contains(lsn))
    }
    #expect(set.all() == model.sorted())
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A store whose writer is at work` {
  private func open() throws -> RecordStore {
    try RecordStore.openBlocking(at: "/store", environment: .simulated(disk: SimulatedDisk(), seed: 1))
  }

  @Test func `is read inside a closure of write: what was durable before`() throws {
    let store = try open()
    let id = RecordID("a")
    try store.writeBlocking { try $0.save(Record(type: "T", id: id, fields: ["n": 1])) }
    try store.writeBlocking { tx in
      try tx.save(Record(type: "T", id: id, fields: ["n": 2]))
      try tx.save(Record(type: "T", id: RecordID("b"), fields: ["n": 3]))
      #expect(try store.record(id)?["n"] == 1)
      #expect(try store.record(RecordID("b")) == nil)
      #expect(store.recordCount == 1)
      #expect(try store.records(ofType: "T").map(\.id) == [id])
      let status = try store.status()
      #expect(status.records == 1 && status.unsettled == 1)
      #expect(try tx.record(id)?["n"] == 2)
    }
    #expect(try store.record(id)?["n"] == 2)
    try store.closeBlocking()
  }

  @Test func `costs no more for a record's edit, however many went before`() throws {
    // Time is not asserted: what grew with the square was the copy of all edits in each undo. 60,000 of them took
    // twelve seconds; these would still take more than one.
    let store = try open()
    for round in 0..<20 {
      try store.writeBlocking { tx in
        for edit in 0..<1_000 {
          try tx.save(Record(type: "T", id: RecordID("a"), fields: ["n": .int64(Int64(round * 1_000 + edit))]))
        }
      }
    }
    let status = try store.status()
    #expect(status.unsettled == 1)
    #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
    try store.closeBlocking()
  }
}
