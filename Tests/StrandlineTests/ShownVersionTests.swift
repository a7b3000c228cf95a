// Goal: a record that is read without decoding its event whole is the record that the whole event holds, and what cannot be
// decoded is refused when it is read. Method: random versions in events of each kind, and the same bytes with random
// changes, are read in both ways.

import Strandline
import StrandlineLog
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30))) struct ShownVersionTests {
  private struct Maker {
    let random: SeededRandom

    func below(_ count: Int) -> Int { Int(random.below(UInt64(count))) }
    func text() -> String { ["", "a", "Ebbe", "und Flut bei Vollmond", "\u{1F41A}\u{E9}"][below(5)] }
    func zone() -> ZoneID { ZoneID(text(), owner: text(), scope: below(2) == 0 ? .private : .shared) }

    func item(_ kind: FieldValue.ListKind) -> FieldValue {
      switch kind {
      case .strings, .unknown: .string(text())
      case .int64s: .int64(Int64(bitPattern: random.next() >> random.below(64)))
      case .doubles: .double(Double(below(1000)) / 7)
      case .dates: .date(milliseconds: Int64(bitPattern: random.next() >> random.below(64)))
      case .bytes: .bytes(random.bytes(below(5)))
      case .references:
        .reference(Reference(text(), zone: below(2) == 0 ? zone() : nil, action: Reference.Action.allCases[below(3)]))
      case .locations: .location(Location(latitude: Double(below(90)), longitude: 1e-7, altitude: 3, timestamp: 5))
      case .assets: .asset(Asset(fileChecksum: text(), size: 9, downloadURL: below(2) == 0 ? text() : nil))
      }
    }
    func value() -> FieldValue {
      let kind = FieldValue.ListKind.allCases[below(9)]
      switch below(6) {
      case 0: return .list(kind, kind == .unknown ? [] : (0..<below(4)).map { _ in item(kind) })
      case 1: return .encrypted(item(kind))
      case 2: return .opaque(OpaqueValue(type: text(), json: Array("[1]".utf8)))
      default: return item(kind)
      }
    }

    static let names = ["title", "Z", "a", "abc", "abcdef", "stars", "note"]

    func version() -> Version {
      var version = Version(type: text())
      for name in Self.names where below(2) == 0 {
        if below(4) > 0 { version.fields[name] = value() }
        if below(4) > 0 {
          version.stamp.fields[name] = FieldStamp(time: HybridTime(rawValue: random.below(3)), writer: 7)
        }
      }
      if below(3) == 0 { version.parent = text() }
      if below(3) == 0 { version.stamp.seen = [9: Seen(lsn: LSN(300), tenure: 5, time: .zero)] }
      if below(3) == 0 { version.stamp.unknown = [1, 2] }
      for number in 0..<below(3) {
        version.stamp.births.insert(Birth(time: HybridTime(rawValue: UInt64(number)), writer: 7))
      }
      return version
    }

    func event() -> Event {
      let version = version()
      let dirty = below(2) == 0 ? [:] : Dictionary(uniqueKeysWithValues: version.names.prefix(2).map { ($0, LSN(200)) })
      let id = RecordID(text(), zone: zone())
      switch below(5) {
      case 0:
        let system = SystemFields(
          changeTag: "t", created: ServerTimestamp(milliseconds: 5, user: "_u"), unknown: [1], archive: [2])
        return .fetchedSave(FetchedSave(id: id, version: version, system: system, source: .feed, isStamped: true))
      case 1:
        return .merged(
          Merged(
            id: id, version: version, dirty: dirty, base: LSN(1), local: LSN(2), time: .zero, editCount: 3, tenure: 4,
            rule: Merged.joinRule))
      default:
        return .saved(
          Saved(
            id: id, type: version.type, births: version.stamp.births, base: LSN(random.next() >> random.below(64)),
            time: .zero, editCount: random.below(300), tenure: random.next(), isCreation: below(2) == 0,
            content: EncodedContent(version, dirty: dirty)))
      }
    }
  }

  private func found(_ body: [UInt8]) -> LogEvent {
    LogEvent(
      lsn: 500, schema: EventCodec.schema, body: body, indexInTransaction: 0, isFirst: true, isLast: true, segmentID: 1,
      offset: 0)
  }

  /// The record that the whole event holds; nil if it holds none.
  private func whole(_ body: [UInt8]) throws -> Record? {
    guard let loaded = try LoadedVersion(found(body).decoded(), at: LSN(500)) else { return nil }
    return loaded.version.record(RecordID("r"), system: loaded.system)
  }

  private func shown(_ body: [UInt8]) throws -> Record? {
    // Bytes that are no event are refused whatever the record.
    var id = RecordID("r")
    if let event = try? found(body).decoded() {
      guard let owner = event.recordID else { return nil }
      id = owner
    }
    guard let shown = try ShownVersion(found(body), of: id) else { return nil }
    return shown.record(RecordID("r"), system: shown.system)
  }

  private func expectSame(_ body: [UInt8]) throws {
    let whole = try whole(body)
    let shown = try shown(body)
    // Each field by itself first: then nothing was decoded before.
    for name in Maker.names + ["", "absent", "\(Version.parentField)", "zz"] {
      let value = name == Version.parentField ? nil : whole?.fields[name]
      #expect(shown?[name] == value, "\(name)")
    }
    #expect(shown == whole && shown?.nulls == whole?.nulls && shown?.system == whole?.system)
    #expect(shown?.hashValue == whole?.hashValue)
    var (changed, expected) = (shown, whole)
    changed?["title"] = "new"
    expected?["title"] = "new"
    #expect(changed == expected && changed?.nulls == expected?.nulls && shown == whole)
  }

  @Test func `what is read is what was written`() throws {
    let maker = Maker(random: SeededRandom(seed: 0xF1E1D))
    for _ in 0..<1_000 { try expectSame(EventCodec.encode(maker.event())) }
  }

  @Test func `a version is read for its own record only`() throws {
    let maker = Maker(random: SeededRandom(seed: 0x1D))
    for _ in 0..<300 {
      let event = maker.event()
      let id = try #require(event.recordID)
      let zone = id.zone
      let other: DatabaseScope = zone.scope == .private ? .shared : .private
      for another in [
        RecordID(id.name + "x", zone: zone),
        RecordID(id.name, zone: ZoneID(zone.name + "x", owner: zone.owner, scope: zone.scope)),
        RecordID(id.name, zone: ZoneID(zone.name, owner: zone.owner + "x", scope: zone.scope)),
        RecordID(id.name, zone: ZoneID(zone.name, owner: zone.owner, scope: other)),
      ] {
        let error = #expect(throws: StrandlineError.self) {
          try ShownVersion(self.found(EventCodec.encode(event)), of: another)
        }
        #expect(error?.isOfIndex == true && error?.isOfLyingIndex == true)
      }
    }
  }

  @Test func `bytes that no whole event has are refused when they are read`() throws {
    let maker = Maker(random: SeededRandom(seed: 0xBADF))
    var (refused, accepted) = (0, 0)
    let rounds = Campaign.isWhole ? 10_000 : 2_000
    for _ in 0..<rounds {
      var body = EventCodec.encode(maker.event())
      for _ in 0...maker.below(2) {
        let place = maker.below(body.count)
        switch maker.below(6) {
        case 0: body.remove(at: place)
        case 1: body.insert(UInt8(maker.below(256)), at: place)
        case 2: body.removeSubrange(place...)
        case 3: body[place] = UInt8(maker.below(12))
        default: body[place] = UInt8(maker.below(256))
        }
        if body.isEmpty { body = [0] }
      }
      do {
        _ = try whole(body)
      } catch {
        refused += 1
        #expect(throws: StrandlineError.self, "\(body)") { try shown(body) }
        continue
      }
      accepted += 1
      try expectSame(body)
    }
    #expect(refused > rounds / 5 && accepted > rounds / 10)
  }
}
