// What the server of a simulated world has held, read from its journal as it grows: every version of every record, in
// order. The judge compares the devices with this; it shares no code with the engine but the decoding of stamps.

internal import Strandline
internal import StrandlineServer
internal import StrandlineSystem

/// The history of the server's records.
struct WorldHistory {
  /// One state of a record.
  struct State {
    /// The event of the journal.
    var lsn: UInt64
    /// nil: it was deleted.
    var version: Version?
    /// Another tool made it.
    var isForeign: Bool
  }
  /// A version that the server has held.
  struct Version {
    var tag: String
    var type: String
    var parent: String?
    /// The record's creation time.
    var created: Int64
    /// Without the stamp.
    var fields: [String: FieldValue]
    /// nil if the stamp is missing or cannot be read.
    var stamp: WireStamp?

    /// The life that the record was created with, as a version without a stamp names it.
    var unstampedBirth: Birth { Birth(time: HybridTime(milliseconds: created), writer: 0) }

    /// The births of its lives; nil if it does not say.
    ///
    /// The life that the record was created with has two names where a tool has dropped the stamp: that of the stamp, and the
    /// creation time by no writer. Which one a version has depends on what its device had seen before.
    ///
    /// - Parameter living: the births of the lives of the version that it replaces.
    func lives(after living: Set<Birth>) -> Set<Birth>? {
      guard var births = stamp?.births else { return nil }
      let unstamped = unstampedBirth
      let isFirst = { (birth: Birth) in birth.time.milliseconds <= created }
      if births.contains(unstamped) { births.formUnion(living.filter(isFirst)) }
      if living.contains(unstamped), births.contains(where: isFirst) { births.insert(unstamped) }
      return births
    }
  }
  /// One life of a zone.
  struct Zone {
    var id: ZoneID
    /// When it began, by the server's events.
    var begun: UInt64
    var records: [CloudName: [State]] = [:]
    var isDeleted = false
  }

  private(set) var zones: [UInt64: Zone] = [:]
  private(set) var lastLSN: UInt64 = 0
  /// A mutation that the server has applied twice.
  private(set) var duplicate: (id: RecordID, words: String)?
  /// A version of a device's that includes less than the one that it replaced.
  private(set) var forgetful: (id: RecordID, words: String)?
  /// Zones of which a life has ended.
  private(set) var lostZones: Set<ZoneID> = []
  /// Births of records that were saved again after the server had deleted them.
  private(set) var returned: [RecordID: Set<Birth>] = [:]
  private var resurrected: (id: RecordID, births: Set<Birth>)?
  /// Births of records that the server deleted along with the record that they refer to, as their references ask for.
  private(set) var cascaded: [RecordID: Set<Birth>] = [:]

  /// The first record that a device has brought back since this was asked last, though all its births were deleted.
  mutating func takeResurrected() -> (id: RecordID, births: Set<Birth>)? {
    defer { resurrected = nil }
    return resurrected
  }

  /// Reads what the server has done since this was called last.
  mutating func readOn(_ server: CloudServer, isForeign: Bool = false) throws {
    var events: [(lsn: UInt64, event: JournalEvent)] = []
    lastLSN = try server.forEachEvent(after: lastLSN) { lsn, event in events.append((lsn, event)) }
    for (lsn, event) in events { apply(event, at: lsn, isForeign: isForeign) }
  }

  private mutating func apply(_ event: JournalEvent, at lsn: UInt64, isForeign: Bool) {
    switch event {
    case .opened: break
    case .zoneCreated(let life, _, let name): zones[life] = Zone(id: ZoneID(name), begun: lsn)
    case .zoneDeleted(let life):
      zones[life]?.isDeleted = true
      if let id = zones[life]?.id { lostZones.insert(id) }
    case .recordDeleted(let life, let name, let cause):
      if cause.isCascade, let zone = zones[life] {
        let births = zone.records[name]?.last?.version?.stamp?.births ?? []
        cascaded[RecordID(name, zone: zone.id), default: []].formUnion(births)
      }
      zones[life]?.records[CloudName(name), default: []].append(State(lsn: lsn, version: nil, isForeign: isForeign))
    case .recordSaved(let record):
      guard let zone = zones[record.zone] else { return }
      let id = RecordID(record.name, zone: zone.id)
      var fields = record.fields
      var stamp: WireStamp?
      if case .bytes(let bytes)? = fields.removeValue(forKey: Names.stampField) {
        stamp = try? StampCodec.decode(bytes)
      }
      let states = zone.records[record.name] ?? []
      if !isForeign, let stamp { judge(stamp, of: id, after: states) }
      let version = Version(
        tag: record.tag, type: record.type, parent: record.parent, created: record.created.milliseconds, fields: fields,
        stamp: stamp)
      zones[record.zone]?.records[CloudName(record.name), default: []].append(
        State(lsn: lsn, version: version, isForeign: isForeign))
    }
  }

  /// Whether a device's version repeats what the server had already.
  private mutating func judge(_ stamp: WireStamp, of id: RecordID, after states: [State]) {
    if let last = states.last, !last.isForeign, let before = last.version?.stamp, before.seen == stamp.seen {
      duplicate = (id, "two versions in a row include exactly \(stamp.seen)")
    }
    if let last = states.last, !last.isForeign, let before = last.version?.stamp {
      for (writer, old) in before.seen.sorted(by: { $0.key < $1.key }) {
        if let new = stamp.seen[writer], new >= old { continue }
        forgetful = (id, "mutation \(old.lsn) of \(String(writer, radix: 16)) was included before")
      }
    }
    guard states.contains(where: { $0.version == nil }) else { return }
    var dead: Set<Birth> = []
    var living: Set<Birth> = []
    for state in states {
      // A life ends with the record, or when another one takes its place. A version without a stamp goes on with what was there.
      if let version = state.version {
        guard let births = version.lives(after: living) else { continue }
        dead.formUnion(living.subtracting(births))
        living = births
      } else {
        dead.formUnion(living)
        living = []
      }
    }
    let again = stamp.births.intersection(dead)
    if !again.isEmpty { returned[id, default: []].formUnion(again) }
    let wasThere = !living.isDisjoint(with: stamp.births)
    if resurrected == nil, !wasThere, !stamp.births.isEmpty, stamp.births.isSubset(of: dead) {
      resurrected = (id, stamp.births)
    }
  }

  // MARK: Questions

  /// All states that a record has had, in every life of its zone.
  func states(of id: RecordID) -> [State] {
    let lives = zones.values.filter { $0.id == id.zone }.compactMap { $0.records[id.name] }
    return lives.count == 1 ? lives[0] : lives.flatMap(\.self).sorted { $0.lsn < $1.lsn }
  }

  /// The last life of a zone.
  private func newest(_ id: ZoneID) -> Zone? {
    zones.values.filter { $0.id == id }.max { $0.begun < $1.begun }
  }

  /// The tags that a record has had at the server since it, or its zone, was deleted last.
  func livingTags(of id: RecordID) -> [String] {
    guard let states = newest(id.zone)?.records[id.name] else { return [] }
    let begun = states.lastIndex { $0.version == nil }.map { $0 + 1 } ?? 0
    return states[begun...].compactMap { $0.version?.tag }
  }

  /// Whether the server has a zone now.
  func isThere(_ id: ZoneID) -> Bool {
    newest(id)?.isDeleted == false
  }

  /// Whether the server has a record now, with one of some births.
  func has(_ id: RecordID, oneOf births: Set<Birth>) -> Bool {
    let newest = newest(id.zone)
    guard newest?.isDeleted == false, let living = newest?.records[id.name]?.last?.version?.stamp?.births else {
      return false
    }
    return !living.isDisjoint(with: births)
  }

  /// Whether the version that the value of a write replaced had the field as another write gave it, with its time, which was later.
  func hasReplaced(_ write: WorldMemory.Write, _ other: WorldMemory.Write) -> Bool {
    let versions = states(of: write.id).compactMap(\.version)
    guard let before = versions.lastIndex(where: { $0.fields[write.field] != write.value }) else { return false }
    return other.stamp.time > write.stamp.time && versions[before].stamp?.fields[write.field]?.0 == other.stamp
  }

  /// Whether the server has held a version of a record that includes a mutation.
  ///
  /// - Parameter begun: the lives that the mutation began. A version of such a life was made from it.
  func hasHeld(
    _ id: RecordID, mutation lsn: LSN, of writer: WriterID, tenure: UInt64, begun: Set<Birth>
  ) -> Bool {
    states(of: id).contains { state in
      guard let stamp = state.version?.stamp else { return false }
      if !stamp.births.isDisjoint(with: begun) { return true }
      let seen = stamp.seen
      if let own = seen[writer], own.lsn > lsn { return true }
      // The store may have taken another writer number between the mutation and the later one that contains it.
      return seen.values.contains { $0.lsn >= lsn && $0.tenure == tenure }
    }
  }
}
