// "From events to records" of Formats/events.md, proved: events.py, written from the page, computes from the events alone
// what the projections compute. Over the golden stores, over logs of devices that edited, synced and compacted, and over
// random events of every kind in any order, because the page says what follows from those too.

import Strandline
import StrandlineLog
import StrandlineHost
import StrandlineSystem
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `What follows from events` {
  /// Compares what events.py computes of each history with the projections.
  private func compare(_ histories: [(name: String, fold: HistoryFold)]) throws {
    let folder = try TemporaryFolder()
    let text = histories.map { $0.fold.text + "-\n" }.joined()
    let file = try Repository.disk.open(folder("histories"), .create)
    try file.write(Array(text.utf8), at: 0)
    file.close()
    let found = try Decoder.output("events.py", ["--fold", folder("histories")]).split(separator: "\n")
    #expect(found.count == histories.count)
    for (theirs, history) in zip(found, histories) {
      let ours = history.fold.json().line
      guard theirs != ours else { continue }
      let same = zip(theirs.utf8, ours.utf8).prefix { $0 == $1 }.count
      let (page, code) = (theirs.utf8.dropFirst(max(0, same - 200)), ours.utf8.dropFirst(max(0, same - 200)))
      Issue.record(
        "\(history.name): the page says …\(Substring(page.prefix(400))), the code …\(Substring(code.prefix(400)))")
      return
    }
  }

  private func fold(_ reader: LogReader) throws -> HistoryFold {
    var fold = HistoryFold()
    try reader.poll { try fold.apply($0.body, at: LSN($0.lsn)) }
    return fold
  }

  @Test func `is on the page what it is in golden stores`() throws {
    var histories: [(String, HistoryFold)] = []
    for vector in Vector.all where ![Vector.damagedMiddle.name, Vector.serverJournal.name].contains(vector.name) {
      let reader = try LogReader.open(at: Repository.path(vector.folder), environment: .real)
      histories.append((vector.name, try fold(reader)))
    }
    #expect(histories.count >= 8)
    try compare(histories)
  }

  @Test func `is on the page what it is in random histories`() throws {
    var histories: [(String, HistoryFold)] = []
    var kinds: Set<String> = []
    for seed in UInt64(1)...(Campaign.isWhole ? 400 : 100) {
      var history = RandomHistory(seed: seed)
      let fold = try history.fold(events: 60)
      kinds.formUnion(fold.kinds)
      histories.append(("random history of seed \(seed)", fold))
    }
    // Every kind takes part, and no property of a record is always the same.
    #expect(kinds.isSuperset(of: EventKind.allCases.map(\.name)))
    let entries = histories.flatMap { $0.1.projections.records.changed.values.compactMap { $0 } }
    #expect(entries.contains { $0.base != nil && $0.pending?.isDeletion == true })
    #expect(histories.contains { !$0.1.projections.outbox.attempted.isEmpty })
    #expect(entries.contains { $0.base != nil && $0.pending == nil && $0.base?.content != $0.base?.version })
    #expect(histories.contains { !$0.1.projections.sync.held.isEmpty && !$0.1.projections.sync.openBlocks.isEmpty })
    #expect(histories.contains { $0.1.projections.deletions.inMemory.values.contains { $0.isProvisional } })
    try compare(histories)
  }

  @Test func `is on the page what it is in logs of devices that sync and compact`() async throws {
    var histories: [(String, HistoryFold)] = []
    var kinds: Set<String> = []
    for seed in UInt64(1)...15 {
      for (name, fold) in try await Self.lives(seed: seed) {
        kinds.formUnion(fold.kinds)
        histories.append(("\(name) of seed \(seed)", fold))
      }
    }
    for kind in ["deleted", "sent", "settled", "merged", "fetchedSave", "fetchedDelete", "deletions", "superseded"] {
      #expect(kinds.contains(kind), "\(kind) never came")
    }
    try compare(histories)
  }

  /// Two devices that save, delete, sync and compact at random; the logs of both, as each life ends.
  private static func lives(seed: UInt64) async throws -> [(String, HistoryFold)] {
    let random = SeededRandom(seed: seed)
    let fleet = try Fleet(seed: seed)
    let devices = ["a", "b"].map { fleet.device($0, segmentBytesMax: 8 << 10) }
    for step in 0..<40 {
      let device = devices[Int(random.below(2))]
      device.clock.advance(milliseconds: Int64(random.below(3_000)))
      let store = try await device.open()
      let id = RecordID("n\(random.below(4))")
      switch random.below(8) {
      case 0..<4:
        let field = ["title", "body"][Int(random.below(2))]
        try await store.write { tx in
          let old = try tx.record(id)
          var record = old ?? Record(type: "Note", id: id, fields: [:])
          record.fields[field] = .string("\(step)")
          if old == nil { try tx.create(record) } else { try tx.save(record) }
        }
      case 4: try await store.write { tx in _ = try tx.delete(id) }
      case 5, 6: try await device.sync()
      default: _ = try await device.compact()
      }
    }
    var result: [(String, HistoryFold)] = []
    for device in devices {
      try await device.close()
      var fold = HistoryFold()
      let reader = try LogReader.open(
        at: "/store",
        environment: SystemEnvironment(fileSystem: device.disk, clock: device.clock, random: SeededRandom(seed: seed)))
      try reader.poll { try fold.apply($0.body, at: LSN($0.lsn)) }
      result.append((device.name, fold))
    }
    return result
  }
}

/// Events of every kind in any order, about few records, so that they meet.
private struct RandomHistory {
  private let random: SeededRandom
  private var lsn: UInt64 = 0
  /// LSNs at which no event stands: what a pack may speak of.
  /// The mutations so far: what is settled and sent is mostly one of them.
  private var mutations: [(lsn: LSN, id: RecordID)] = []
  private let zones = [ZoneID("Notes"), ZoneID("Ours", owner: "_0a1b", scope: .shared)]

  init(seed: UInt64) { random = SeededRandom(seed: seed) }

  mutating func fold(events: Int) throws -> HistoryFold {
    var fold = HistoryFold()
    for _ in 0..<events {
      lsn += 1 + random.below(3)
      let event = event()
      switch event {
      case .saved, .superseded, .deleted, .merged: if let id = event.recordID { mutations.append((LSN(lsn), id)) }
      default: break
      }
      try fold.apply(EventCodec.encode(event), at: LSN(lsn))
    }
    return fold
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
  private func some<Value>(_ values: [Value]) -> Value { values[below(values.count)] }
  private func earlier() -> LSN { LSN(lsn > 1 ? random.below(lsn) : 0) }
  private func zone() -> ZoneID { some(zones) }
  private func scope() -> DatabaseScope { some(DatabaseScope.allCases) }
  /// One of the newest mutations mostly, else any LSN and any record.
  private func mutation() -> (lsn: LSN, id: RecordID) {
    guard below(4) > 0, !mutations.isEmpty else { return (earlier(), id()) }
    return some(Array(mutations.suffix(8)))
  }
  private func id() -> RecordID { RecordID(some(["n1", "ä"]), zone: zone()) }
  /// Times and touches that meet each other, and the limit at which a time counts as one from the future.
  private func time() -> HybridTime { HybridTime(milliseconds: minutes(), count: some([0, 1, .max])) }
  private func touch() -> ServerTimestamp? { below(4) == 0 ? nil : ServerTimestamp(milliseconds: minutes()) }
  private func minutes() -> Int64 { 1_000_000 + Int64(below(4)) * 60_000 }
  private func births() -> Set<Birth> {
    Set((0..<below(3)).map { _ in Birth(time: .zero, writer: 1 + random.below(4)) })
  }
  private func tag() -> String { "t\(below(100))" }

  private func version() -> Version {
    var version = Version(type: some(["Note", "Task"]))
    version.stamp.births = births()
    for name in ["body", "title"] where below(3) > 0 {
      version.fields[name] = .int64(Int64(below(100)))
      if below(3) > 0 { version.stamp.fields[name] = FieldStamp(time: time(), writer: random.below(4)) }
    }
    for _ in 0..<below(3) {
      version.stamp.seen[random.below(some([4, 70]))] = Seen(lsn: LSN(random.below(50)), tenure: 1, time: time())
    }
    return version
  }

  private func dirty(_ version: Version) -> [String: LSN] {
    Dictionary(
      uniqueKeysWithValues: version.names.filter { _ in below(2) == 0 }.map { ($0, some([.zero, earlier()])) })
  }

  private mutating func event() -> Event {
    switch some(
      EventKind.allCases + [
        .saved, .saved, .deleted, .sent, .joined, .settled, .settled, .fetchedSave, .blocked, .blocked,
      ])
    {
    case .opened:
      return .opened(Opened(writer: random.below(4), storeUUID: Array(0..<16), tenure: random.below(9)))
    case .bound:
      return .bound(Bound(container: "c\(below(3))", environment: "development", scope: scope(), userHash: 7))
    case .saved:
      let version = version()
      return .saved(
        Saved(
          id: id(), type: version.type, births: version.stamp.births, base: earlier(), time: time(), editCount: 1,
          tenure: 1, isCreation: below(2) == 0, content: EncodedContent(version, dirty: dirty(version))))
    case .deleted: return .deleted(Deleted(id: id(), births: births(), base: earlier(), time: time(), tenure: 1))
    case .sent:
      let lsns = Set((0..<below(4)).map { _ in mutation().lsn }).sorted()
      return .sent(Sent(batch: random.next(), zone: zone(), lsns: lsns))
    case .settled:
      let (lsn, id) = mutation()
      return .settled(
        Settled(
          id: id, lsn: lsn, outcome: some([.saved, .saved, .saved] + Outcome.allCases),
          changeTag: below(4) == 0 ? nil : tag(), created: touch(), modified: touch()))
    case .merged:
      let version = version()
      let (local, id) = mutation()
      return .merged(
        Merged(
          id: id, version: version, dirty: dirty(version), base: earlier(), local: local, time: time(),
          editCount: 1, tenure: 1, rule: "join"))
    case .fetchedSave:
      return .fetchedSave(
        FetchedSave(
          id: id(), version: version(), system: SystemFields(changeTag: tag(), created: touch(), modified: touch()),
          source: some(FetchedSave.Source.allCases), isStamped: true))
    case .fetchedDelete:
      return .fetchedDelete(
        FetchedDelete(id: id(), births: births(), reason: some(FetchedDelete.Reason.allCases)))
    case .confirmed: return .confirmed(Confirmed(zone: zone(), names: ["n1"], age: .fetched))
    case .listed:
      let items = (0..<below(4)).map { Listed.Item(name: "n\($0)", changeTag: tag(), modifiedMilliseconds: 5) }
      return .listed(Listed(zone: zone(), items: items))
    case .listedEnded:
      return .listedEnded(ListedEnded(zone: zone(), lsns: Set((0..<below(4)).map { _ in earlier() }).sorted()))
    case .blocked:
      return .blocked(
        Blocked(
          id: id(), subject: some(Blocked.Subject.allCases), lsn: earlier(), births: births(),
          consequence: some(Blocked.Consequence.allCases), words: ""))
    case .held:
      return .held(
        Held(
          id: id(), direction: some(Held.Direction.allCases), lsn: earlier(), code: "c\(below(9))", words: "",
          attempts: 1, wallMilliseconds: 0))
    case .released: return .released(Released(id: id(), lsn: earlier()))
    case .joined: return .joined(Joined(id: below(3) == 0 ? id() : mutation().id, set: earlier()))
    case .refused:
      let (lsn, id) = mutation()
      return .refused(Refused(id: id, lsn: lsn))
    case .discarded:
      let (lsn, id) = mutation()
      return .discarded(Discarded(id: id, lsn: lsn))
    case .tokenAdvanced:
      return .tokenAdvanced(
        TokenAdvanced(
          zone: zone(), asked: below(2) == 0 ? nil : ChangeToken(rawValue: tag()),
          token: ChangeToken(rawValue: tag())))
    case .databaseTokenAdvanced:
      return .databaseTokenAdvanced(
        DatabaseTokenAdvanced(scope: scope(), asked: nil, token: ChangeToken(rawValue: tag())))
    case .zoneChanged:
      let ruled = Int64(below(3))
      if below(4) == 0 {
        return .zoneChanged(.lost(zone(), some(ZoneLoss.allCases), words: tag(), ruledMilliseconds: ruled))
      }
      if below(8) == 0 { return .zoneChanged(.listed(zone(), some(ZoneLoss.allCases))) }
      let change = some(ZoneChanged.Change.allCases.filter { $0 != .lost })
      return .zoneChanged(
        ZoneChanged(
          zone: zone(), change: change, words: tag(), policy: some(["", "server", "here"]), ruledMilliseconds: ruled))
    case .sweepBegan:
      return .sweepBegan(SweepBegan(zone: zone(), epoch: 1 + random.below(9), since: 1 + random.below(9)))
    case .sweepEnded: return .sweepEnded(SweepEnded(zone: zone(), epoch: 1, seen: 1, removed: 0))
    case .assetUploaded:
      return .assetUploaded(AssetUploaded(id: id(), lsn: earlier(), field: "f", receipt: "r", wallMilliseconds: 0))
    case .conflicted:
      let (local, id) = mutation()
      let fields = [Conflicted.Field(name: "a", rule: "join", loser: some(Conflicted.Loser.allCases))]
      return .conflicted(
        Conflicted(
          id: id, local: local, server: earlier(), ancestor: earlier(), wallMilliseconds: 5, rule: "join", words: "",
          fields: below(2) == 0 ? [] : fields))
    case .inboxChange: return .inboxChange(.sample(.edit, id: id(), time: time()))
    case .inboxRead:
      return .inboxRead(InboxRead(inbox: Array(repeating: UInt8(below(2)), count: 16), position: earlier()))
    case .inboxRefused:
      return .inboxRefused(InboxRefused(code: "recordWasDeleted", words: "", wallMilliseconds: 5, changes: [[1, 2]]))
    case .inboxRefusalEnded: return .inboxRefusalEnded(InboxRefusalEnded(lsn: earlier()))
    case .accountChanged: return .accountChanged(AccountChanged(userHash: 5, isParked: below(2) == 0))
    case .pace: return .pace(Pace.sample(below(9), scope: scope()))
    case .deletions: return .deletions(deletions())
    case .superseded: return .superseded(Superseded(id: id(), type: some(["Note", "Task"]), time: time()))
    }
  }

  private func deletions() -> Deletions {
    let items = Set((0..<below(4)).map { _ in id() }).map { id in
      Deletions.Item(
        id: id, lsn: earlier(), isLocal: below(2) == 0, births: births(),
        createdMilliseconds: below(2) == 0 ? nil : Int64(below(99)), changeTag: below(2) == 0 ? nil : tag())
    }
    return Deletions(latest: time(), items: items.sorted { $0.id < $1.id })
  }
}
