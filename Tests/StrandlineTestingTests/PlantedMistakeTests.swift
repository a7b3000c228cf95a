// Goal: no excuse of the judge of simulated worlds is wider than the history that forced it. Method: each mistake is one that an
// excuse would cover if it had no end; a test writes it into a store where the excuse has ended, as an engine with that mistake
// would, and the judge has to find it.

import StrandlineLog
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

@testable import Strandline

/// A mistake of an engine, and the promise that it breaks.
private struct Mistake: CustomTestStringConvertible, Sendable {
  let testDescription: String
  let invariant: WorldInvariant
  /// What the judge says.
  let words: String
  /// What a later edit, or the end of a zone, may cover.
  var mayBeCovered = false
  /// Makes it, if the store has what it needs.
  let make: @Sendable (RecordStore) async throws -> Bool

  static let all = [
    Mistake(
      testDescription: "a record is removed as by a sweep when the sweep of a decision has ended",
      invariant: .noLostWrite, words: "was removed because a list did not show it, and the server has it"
    ) { store in
      let found = try store.decided { entry, ended in
        entry.pending == nil && entry.base.map { $0.version > ended } == true
      }
      return try await store.append(
        found.map { id, _ in
          .fetchedDelete(FetchedDelete(id: id, births: [], reason: .sweep))
        })
    },
    Mistake(
      testDescription: "an edit is made another life, as a decision does, when that has been carried out",
      invariant: .trueAncestors, words: "no version of the server's"
    ) { store in
      let found = try store.decided { entry, ended in
        entry.pending.map { !$0.isDeletion && $0.newest > ended } == true
          && entry.base.map { $0.version > ended } == true
      }
      guard let (id, entry) = found, let local = entry.pending?.newest else { return false }
      _ = try await store.commit { core in
        let loaded = try core.load(local, of: id)
        var version = loaded.version
        version.stamp.births = [Birth(time: core.tick(), writer: core.writer)]
        try core.append(
          .merged(
            Merged(
              id: id, version: version, dirty: loaded.dirty, base: .zero, local: local, time: core.tick(),
              editCount: loaded.editCount, tenure: core.tenure, rule: Merged.reviveRule)))
      }
      return true
    },
    Mistake(
      testDescription: "a join of two counts has one less", invariant: .noLostWrite, words: "and the apps have added",
      mayBeCovered: true
    ) { store in
      guard let join = try store.joined({ $0.made.version.type == "Tally" && $0.made.dirty["sum"] != nil }),
        case .int64(let sum)? = join.made.version.fields["sum"]
      else { return false }
      try await store.join(join) { version, _ in version.fields["sum"] = .int64(sum - 1) }
      return true
    },
  ]
}

/// A join that a store has made and not sent yet.
private struct Join {
  var event: Merged
  var lsn: LSN
  var made: LoadedVersion
}

extension RecordStore {
  /// A record of a zone about which a decision was carried out, and about which nothing is open.
  ///
  /// - Parameter suits: is asked with the event that ended it.
  fileprivate func decided(
    _ suits: (RecordEntry, LSN) -> Bool
  ) throws -> (id: RecordID, entry: RecordEntry)? {
    var (open, ended): (Set<ZoneID>, [ZoneID: LSN]) = ([], [:])
    var ids: Set<RecordID> = []
    try source.scan(after: .zero, upTo: source.durableLSN) { found in
      switch try found.decoded() {
      case .zoneChanged(let event) where event.change == .reset:
        ended[event.zone] = nil
        if ResyncSource(rawValue: event.policy) != nil { open.insert(event.zone) } else { open.remove(event.zone) }
      case .sweepEnded(let event) where open.contains(event.zone): ended[event.zone] = LSN(found.lsn)
      case .zoneChanged(let event) where event.change == .lost:
        ended[event.zone] = nil
        open.remove(event.zone)
      case .fetchedSave(let event): ids.insert(event.id)
      default: break
      }
      return true
    }
    for id in ids.sorted() {
      guard let end = ended[id.zone], let entry = try projections.entry(id), suits(entry, end),
        projections.withLock({ $0.sync.zones[id.zone]?.sweepEpoch == 0 && $0.sync.openBlocks[id] == nil })
      else { continue }
      return (id, entry)
    }
    return nil
  }

  /// The newest version of a record of which nothing is open, if a join has made it.
  fileprivate func joined(_ suits: (Join) -> Bool) throws -> Join? {
    var joins: [RecordID: (LSN, Merged)] = [:]
    try source.scan(after: .zero, upTo: source.durableLSN) { found in
      if case .merged(let event) = try found.decoded(), event.rule == Merged.joinRule {
        joins[event.id] = (LSN(found.lsn), event)
      }
      return true
    }
    func version(_ lsn: LSN) throws -> LoadedVersion? {
      guard lsn != .zero, let event = try source.eventIfKept(at: lsn) else { return nil }
      return try LoadedVersion(event, at: lsn)
    }
    for (id, (lsn, event)) in joins.sorted(by: { $0.key < $1.key }) {
      guard try projections.entry(id)?.pending?.newest == lsn, let made = try version(lsn) else { continue }
      let join = Join(event: event, lsn: lsn, made: made)
      if suits(join) { return join }
    }
    return nil
  }

  /// Makes a join again, with a mistake.
  fileprivate func join(_ join: Join, _ mistake: @Sendable (inout Version, inout [String: LSN]) -> Void) async throws {
    let event = join.event
    var (version, dirty) = (join.made.version, join.made.dirty)
    mistake(&version, &dirty)
    let editCount = join.made.editCount
    let (wrong, changed, lsn) = (version, dirty, join.lsn)
    _ = try await commit { core in
      try core.append(
        .merged(
          Merged(
            id: event.id, version: wrong, dirty: changed, base: event.base, local: lsn, ancestor: event.ancestor,
            time: core.tick(), editCount: editCount, tenure: core.tenure, rule: Merged.joinRule)))
    }
  }

  /// - Returns: whether there is something to append.
  fileprivate func append(_ event: Event?) async throws -> Bool {
    guard let event else { return false }
    _ = try await commit { try $0.append(event) }
    return true
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A mistake that an excuse would cover` {
  @Test(arguments: Mistake.all.indices) func `is found by the judge`(_ number: Int) async throws {
    let mistake = Mistake.all[number]
    var made = 0
    for seed in UInt64(1)...60 where made < 2 {
      let isMade = Mutex(false)
      var world = SimulatedWorld(seed: seed, devices: 3, faults: [.remade, .equal, .zones])
      world.plant { store in
        guard !isMade.withLock({ $0 }), !store.isSuspended else { return }
        if try await mistake.make(store) { isMade.withLock { $0 = true } }
      }
      let failure = await world.run(shrinks: false).failure
      guard isMade.withLock({ $0 }) else {
        #expect(failure == nil, "seed \(seed)")
        continue
      }
      if mistake.mayBeCovered, failure == nil { continue }
      made += 1
      #expect(failure?.invariant == mistake.invariant, "seed \(seed): \(failure.map { $0.message } ?? "nothing")")
      #expect(failure?.message.contains(mistake.words) == true, "seed \(seed): \(failure.map { $0.message } ?? "")")
    }
    #expect(made > 0, "no world had what the mistake needs")
  }
}
