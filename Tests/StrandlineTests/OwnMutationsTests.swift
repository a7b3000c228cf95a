// Goal: a version contains a mutation of this store if its stamp proves that, and not if a clone or a restored backup of the log may have
// written what the stamp names. Method: tables over one log of a few events, without a store.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

/// A log that writer 5 has opened twice, and that goes on under another writer ID.
///
/// | LSN | event |
/// | --- | --- |
/// | 10 | record "r" is created |
/// | 12 | it is edited |
/// | 14 | another record is created |
/// | 20 | the second tenure begins |
/// | 21, 22 | a version of writer 2 arrives; it is merged with 12 |
/// | 23, 24 | a version of writer 9 arrives; it is merged with 22 |
/// | 40 | the third tenure begins, of writer 7 |
/// | 60 | the end |
private struct Log {
  static let (life, otherLife) = (Birth(time: HybridTime(milliseconds: 10), writer: 5), birth(14))
  static let (id, other) = (RecordID("r", zone: ZoneID("Notes")), RecordID("other", zone: ZoneID("Notes")))
  private var events: [LSN: Event] = [:]
  private var sync = SyncState()

  private static func birth(_ time: Int64) -> Birth { Birth(time: HybridTime(milliseconds: time), writer: 5) }

  init() {
    for (number, writer, first) in [(1, 5, 1), (2, 5, 20), (3, 7, 40)] as [(UInt64, WriterID, UInt64)] {
      _ = sync.assign(.tenure(Tenure(tenure: number, writer: writer, first: LSN(first))))
    }
    events[LSN(10)] = Self.saved(Self.id, Self.life, isCreation: true)
    events[LSN(12)] = Self.saved(Self.id, Self.life, isCreation: false)
    events[LSN(14)] = Self.saved(Self.other, Self.otherLife, isCreation: true)
    events[LSN(21)] = Self.fetched(seen: [2: (5, 1)])
    merge(12, with: 21, at: 22)
    events[LSN(23)] = Self.fetched(seen: [9: (3, 1)])
    merge(22, with: 23, at: 24)
  }

  /// Merges of `number` versions of writer 2, one after another, the first with 12.
  ///
  /// - Returns: the last of them.
  mutating func merge(times number: UInt64) -> LSN {
    var local: UInt64 = 12
    for place in 0..<number {
      events[LSN(1_000 + 2 * place)] = Self.fetched(seen: [2: (1, 1)])
      merge(local, with: 1_000 + 2 * place, at: 1_001 + 2 * place)
      local = 1_001 + 2 * place
    }
    return LSN(local)
  }

  /// Compaction has removed an event.
  mutating func compact(_ lsn: UInt64) { events[LSN(lsn)] = nil }

  func event(_ lsn: LSN) -> Event? { events[lsn] }

  var mutations: OwnMutations { OwnMutations(sync, upTo: LSN(60)) }

  private mutating func merge(_ local: UInt64, with base: UInt64, at lsn: UInt64) {
    let merged = Merged(
      id: Self.id, version: Self.version([:]), dirty: [:], base: LSN(base), local: LSN(local), ancestor: .zero,
      time: HybridTime(milliseconds: Int64(lsn)), editCount: 1, tenure: 2, rule: "", words: "")
    events[LSN(lsn)] = .merged(merged)
  }

  private static func saved(_ id: RecordID, _ life: Birth, isCreation: Bool) -> Event {
    var version = Version(type: "Note", fields: ["title": .string("t")])
    version.stamp.births = [life]
    return .saved(
      Saved(
        id: id, type: "Note", births: [life], base: .zero, time: life.time, editCount: 1, tenure: 1,
        isCreation: isCreation, content: EncodedContent(version, dirty: ["title": .zero])))
  }

  private static func version(_ seen: [WriterID: (lsn: UInt64, tenure: UInt64)]) -> Version {
    var version = Version(type: "Note", fields: ["title": .string("t")])
    version.stamp = stamp(seen)
    return version
  }

  private static func fetched(seen: [WriterID: (lsn: UInt64, tenure: UInt64)]) -> Event {
    .fetchedSave(
      FetchedSave(
        id: id, version: version(seen),
        system: SystemFields(
          changeTag: "t", created: ServerTimestamp(milliseconds: 1), modified: ServerTimestamp(milliseconds: 2)),
        source: .feed, isStamped: true))
  }

  static func stamp(
    _ seen: [WriterID: (lsn: UInt64, tenure: UInt64)], of lives: Set<Birth> = [life]
  ) -> Stamp {
    Stamp(
      births: lives,
      seen: seen.mapValues {
        Seen(lsn: LSN($0.lsn), tenure: $0.tenure, time: HybridTime(milliseconds: Int64($0.lsn)))
      })
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What of this store a version contains` {
  private typealias Named = [WriterID: (lsn: UInt64, tenure: UInt64)]
  private let log = Log()
  private var own: OwnMutations { log.mutations }
  private static let nobody: Set<Birth> = [Birth(time: HybridTime(milliseconds: 99), writer: 3)]

  /// The version names this; of 10 and 12 it contains the second number, 0 for none.
  @Test func `is said by the names in its stamp, and by its life`() throws {
    let table: [(why: String, named: Named, lives: Set<Birth>, newest: UInt64)] = [
      ("it names the newer one", [5: (12, 1)], Self.nobody, 12),
      ("it names one between them", [5: (11, 1)], Self.nobody, 10),
      ("it names a later one of a later tenure of this log", [5: (30, 2)], Self.nobody, 12),
      ("it names a later one of their tenure, which a restored log lacks", [5: (35, 1)], Self.nobody, 12),
      ("another log has written that under this writer's name", [5: (12, 9)], Self.nobody, 0),
      ("it is beyond this log's end, and of another tenure than theirs", [5: (70, 2)], Self.nobody, 0),
      ("it names an earlier one", [5: (9, 1)], Self.nobody, 0),
      ("it is of the life that the first one began", [:], [Log.life], 10),
      ("it is of another record's life", [:], [Log.otherLife], 0),
    ]
    for row in table {
      let found = own.newestIncluded(in: Log.stamp(row.named, of: row.lives), of: [LSN(10), LSN(12)], log.event)
      #expect(found ?? .zero == LSN(row.newest), "\(row.why)")
    }
    var compacted = log
    compacted.compact(10)
    let found = own.newestIncluded(in: Log.stamp([:]), of: [LSN(10), LSN(12)], compacted.event)
    #expect(found == nil, "the creation is compacted away")
  }

  @Test func `is the mutation that a merge has joined, if it is also all that the merge was made with`() throws {
    let table: [(why: String, named: Named, lives: Set<Birth>, merge: UInt64, contains: Bool)] = [
      ("it has both", [2: (5, 1), 5: (12, 1)], [Log.life], 22, true),
      ("it has more of both", [2: (6, 1), 5: (13, 1)], [Log.life], 22, true),
      ("it lacks what arrived", [2: (4, 1), 5: (12, 1)], [Log.life], 22, false),
      ("it lacks this store's part", [2: (5, 1), 5: (9, 1)], [Log.life], 22, false),
      ("it is of another life", [2: (5, 1), 5: (12, 1)], Self.nobody, 22, false),
      ("no merge is there", [2: (5, 1), 5: (12, 1)], [Log.life], 12, false),
      ("it has both of two merges", [2: (5, 1), 9: (3, 1), 5: (12, 1)], [Log.life], 24, true),
      ("it has the newer of two merges alone", [9: (3, 1), 5: (22, 2)], [Log.life], 24, true),
      ("it lacks what the older of two merges was made with", [9: (3, 1), 5: (12, 9)], [Log.life], 24, false),
    ]
    for row in table {
      var log = log
      // Only the edit is in question, and not the life that it continues.
      log.compact(10)
      let stamp = Log.stamp(row.named, of: row.lives)
      let contains = try own.containsBoth(stamp, ofMergeAt: LSN(row.merge), log.event)
      #expect(contains == row.contains, "\(row.why)")
    }
    var compacted = log
    compacted.compact(21)
    let stamp = Log.stamp([2: (5, 1), 5: (12, 1)])
    #expect(try !own.containsBoth(stamp, ofMergeAt: LSN(22), compacted.event), "what arrived is compacted away")
  }

  @Test func `is looked for in 64 merges of a record`() throws {
    var log = log
    let stamp = Log.stamp([2: (1, 1), 5: (12, 1)])
    let most = log.merge(times: UInt64(OwnMutations.mergesMax))
    #expect(try own.containsBoth(stamp, ofMergeAt: most, log.event))
    let more = log.merge(times: UInt64(OwnMutations.mergesMax) + 1)
    #expect(try !own.containsBoth(stamp, ofMergeAt: more, log.event))
  }

  /// The record's edit is pending from 10 to 24, and its body was written at 12.
  @Test func `is acknowledged up to the newest one that is part of the pending edit`() throws {
    let table: [(why: String, named: Named, dirty: [String: LSN]?, base: UInt64, included: UInt64, newest: UInt64)] = [
      ("no edit is pending, so what was sent counts", [5: (12, 1)], nil, 0, 10, 10),
      ("a field's mutation is named", [5: (12, 1)], ["body": LSN(12)], 0, 0, 12),
      ("one that was sent is newer", [5: (12, 1)], ["body": LSN(12)], 0, 24, 24),
      ("the base has it", [5: (12, 1)], ["body": LSN(12)], 12, 0, 0),
      ("it is named, and no field is left of it", [5: (12, 1)], [:], 0, 0, 12),
      ("the named one is of another record", [5: (14, 1)], [:], 10, 0, 0),
      ("nothing is named", [:], ["body": LSN(12)], 0, 0, 0),
      ("a merge of it and all that it was made with are there", [2: (5, 1), 5: (12, 1)], ["body": LSN(22)], 0, 0, 22),
    ]
    for row in table {
      var log = log
      if row.named.isEmpty { log.compact(10) }
      let base = row.base == 0 ? nil : Base(version: LSN(row.base), content: LSN(row.base), changeTag: "a")
      let entry = RecordEntry(
        type: "Note", base: base, pending: Pending(isDeletion: false, newest: LSN(24), first: LSN(10)))
      let newest = try own.acknowledged(
        in: Log.stamp(row.named), Log.id, entry, dirty: row.dirty, row.included == 0 ? nil : LSN(row.included),
        log.event)
      #expect(newest == LSN(row.newest), "\(row.why)")
    }
  }

  /// The pending change is at 24, and carries on an older one.
  @Test func `is a part of a merge that the base lacks`() throws {
    let table: [(why: String, named: Named, base: Named?, since: UInt64, contains: Bool)] = [
      ("nothing is known at the server", [5: (12, 1)], nil, 12, true),
      ("the base lacks it", [5: (12, 1)], [2: (5, 1)], 12, true),
      ("the base has it", [5: (12, 1)], [5: (12, 1)], 12, false),
      ("the version lacks it", [2: (5, 1)], nil, 12, false),
      ("the change carries nothing on", [5: (24, 2)], nil, 24, false),
    ]
    for row in table {
      let pending = Pending(isDeletion: false, newest: LSN(24), since: LSN(row.since))
      let contains = own.containsPart(
        Log.stamp(row.named, of: Self.nobody), of: pending, row.base.map { Log.stamp($0, of: Self.nobody) }, log.event)
      #expect(contains == row.contains, "\(row.why)")
    }
  }

  /// The pending change is the one at 12, or at 45, under the third tenure's writer.
  @Test func `may be of a copy of this log, if it names what this log has not written`() {
    let table: [(why: String, named: Named, pending: UInt64, mayBe: Bool, names: Bool)] = [
      ("it names the change itself", [5: (12, 1)], 12, false, false),
      ("a copy has written later", [5: (13, 9)], 12, true, true),
      ("a copy has written before it", [5: (11, 9)], 12, false, true),
      ("a copy has written under an earlier writer ID", [5: (50, 9)], 45, false, true),
      ("a copy has written under the present one", [7: (50, 9)], 45, true, true),
      ("what is named is beyond the end", [7: (61, 3)], 45, true, true),
      ("another store has written", [2: (50, 9)], 45, false, false),
      ("nothing is named", [:], 12, false, false),
    ]
    for row in table {
      let pending = Pending(isDeletion: false, newest: LSN(row.pending))
      #expect(own.mayBeOfCopy(Log.stamp(row.named), pending) == row.mayBe, "\(row.why)")
      #expect(own.namesCopy(Log.stamp(row.named)) == row.names, "\(row.why)")
    }
  }
}
