// One event of each kind, with every part that an event can have, and every type of value: what golden bytes are made
// of. A kind that is missing here is found by a test.

import Strandline
import StrandlineServer
import StrandlineSystem

/// Events of a store.
enum EventSamples {
  static let zone = ZoneID("Notes")
  static let sharedZone = ZoneID("Ours", owner: "_0a1b2c", scope: .shared)
  static let id = RecordID("note-1", zone: zone)
  static let wall: Int64 = 1_780_000_000_000

  static func time(_ milliseconds: Int64, _ count: UInt16 = 0) -> HybridTime {
    HybridTime(milliseconds: wall + milliseconds, count: count)
  }

  static let birth = Birth(time: time(1), writer: 0xA1A2_A3A4_A5A6_A7A8)
  static let otherBirth = Birth(time: time(2, 3), writer: 0)

  /// Every type of value, and the corners of some.
  static let values: [String: FieldValue] = [
    "text": "Ärmel \"über\" \\ alles\n🐚",
    "emptyText": "",
    "zero": 0,
    "least": .int64(.min),
    "greatest": .int64(.max),
    "number": 1.5,
    "minusZero": .double(-0.0),
    "before1970": .date(milliseconds: -1),
    "when": .date(milliseconds: wall),
    "data": .bytes([0, 1, 0xFF]),
    "near": .reference(Reference("note-2")),
    "far": .reference(Reference("note-3", zone: sharedZone, action: .none)),
    "owned": .reference(Reference("note-4", action: .deleteSelf)),
    "needed": .reference(Reference("note-5", zone: zone, action: .validate)),
    "place": .location(Location(latitude: 53.5, longitude: -0.0)),
    "trip": .location(
      Location(
        latitude: -33.25, longitude: 151.125, horizontalAccuracy: 5, verticalAccuracy: 3, altitude: 10.5, speed: 1.25,
        course: 270, timestamp: wall)),
    "file": .asset(Asset(fileChecksum: "AbC=", size: 1 << 20)),
    "picture": .asset(
      Asset(
        fileChecksum: "AbD=", size: 12, referenceChecksum: "r", wrappingKey: "w", receipt: "p",
        downloadURL: "https://example.org/${f}")),
    "native": .asset(Asset(server: Asset.ServerFile(), size: -1)),
    "strings": .list(.strings, ["a", ""]),
    "int64s": .list(.int64s, [1, -1]),
    "doubles": .list(.doubles, [0.25]),
    "dates": .list(.dates, [.date(milliseconds: 0)]),
    "byteStrings": .list(.bytes, [.bytes([]), .bytes([7])]),
    "references": .list(.references, [.reference(Reference("note-2"))]),
    "locations": .list(.locations, [.location(Location(latitude: 1, longitude: 2))]),
    "assets": .list(.assets, [.asset(Asset(fileChecksum: "x", size: 0))]),
    "unknownList": .list(.unknown, []),
    "secret": .encrypted(.string("quiet")),
    "secretList": .encrypted(.list(.int64s, [42])),
    "future": .opaque(OpaqueValue(type: "VECTOR", json: Array(#"{"dimensions":3,"values":[0.5,1,null]}"#.utf8))),
    "secretFuture": .encrypted(.opaque(OpaqueValue(type: "ÄON", json: Array("\"🐚\"".utf8)))),
  ]

  /// Files of which this device has the content.
  private static func files() -> [String: FieldValue] {
    guard let hash = ContentHash(Array(0x20..<0x40)) else { return [:] }
    return [
      "draft": .asset(Asset(contentHash: hash, size: 3)),
      "sent": .asset(Asset(server: Asset.ServerFile(receipt: "p"), size: 3, contentHash: hash)),
    ]
  }

  static func version(_ fields: [String: FieldValue]) -> Version {
    var version = Version(type: "Note", fields: fields)
    version.stamp.births = [birth, otherBirth]
    for name in fields.keys { version.stamp.fields[name] = FieldStamp(time: time(1), writer: birth.writer) }
    version.stamp.fields["cleared"] = FieldStamp(time: time(5, 1), writer: 7)
    version.stamp.seen = [
      birth.writer: Seen(lsn: LSN(300), tenure: 0x1122_3344_5566_7788, time: time(1)),
      7: Seen(lsn: LSN(4), tenure: 9, time: time(5, 1)),
    ]
    version.stamp.unknown = [0xEE, 0x01]
    return version
  }

  static func all() throws -> [Event] {
    var few = version(["title": "Hi", "untouched": 1])
    few.parent = "note-0"
    few.stamp.fields["untouched"] = nil
    let all = version(values.merging(files()) { first, _ in first })
    let touch = ServerTimestamp(milliseconds: wall + 10, user: "_me", device: "A1B2")
    let writer = ByteWriter.event(of: 900, isSkippable: true, body: [1, 2, 3])
    return [
      .opened(Opened(writer: birth.writer, storeUUID: Array(0..<16), tenure: 0x1122_3344_5566_7788)),
      .bound(Bound(container: "iCloud.app", environment: "development", scope: .private, userHash: .max)),
      .saved(
        Saved(
          id: id, type: all.type, births: all.stamp.births, base: .zero, time: time(5, 1), editCount: 200,
          tenure: 0x1122_3344_5566_7788, isCreation: true,
          content: EncodedContent(all, dirty: ["text": .zero, "cleared": LSN(2), "secretList": LSN(1)]))),
      .deleted(Deleted(id: id, births: [birth], base: LSN(1), time: time(6), tenure: 1, cause: LSN(3))),
      .sent(Sent(batch: 0xFEDC_BA98_7654_3210, zone: zone, lsns: [LSN(3), LSN(4), LSN(1000)])),
      .settled(
        Settled(
          id: id, lsn: LSN(3), outcome: .saved, changeTag: "kz1", created: touch, modified: touch,
          archive: [0x62, 0x70, 0x00])),
      .merged(
        Merged(
          id: id, version: few, dirty: ["title": LSN(3)], base: LSN(8), local: LSN(3), ancestor: LSN(2),
          time: time(7), editCount: 2, tenure: 1, rule: "join", words: "joined, because the resolver failed")),
      .fetchedSave(
        FetchedSave(
          id: RecordID("note-2", zone: sharedZone), version: few,
          system: SystemFields(
            changeTag: "kz2", created: nil, modified: touch, unknown: Array("{\"share\":{\"recordName\":\"s\"}}".utf8),
            archive: [0x62, 0x70, 0xFF]),
          source: .lookup, isStamped: true)),
      .fetchedDelete(FetchedDelete(id: id, births: [birth, otherBirth], reason: .fullFetch)),
      .confirmed(
        Confirmed(
          zone: zone, names: ["note-1", "note-2"], age: ZoneAge(lsn: LSN(7), milliseconds: 1_700_000_000_123))),
      .listed(
        Listed(zone: zone, items: [Listed.Item(name: "note-9", changeTag: "kz3", modifiedMilliseconds: wall)])),
      .listedEnded(ListedEnded(zone: zone, lsns: [LSN(7), LSN(9)])),
      .blocked(
        Blocked(
          id: id, subject: .version, changeTag: "kz4", births: [otherBirth], consequence: .deleteAgain,
          words: "a life that was deleted here")),
      .held(
        Held(
          id: id, direction: .upload, lsn: LSN(3), raw: [0x7B, 0x7D], code: "BAD_REQUEST", words: "no such field",
          requestUUID: "8C5E0000-0000-4000-8000-000000000001", attempts: 3, durationMilliseconds: 60_000,
          wallMilliseconds: wall, isServers: true, appVersion: "2.1")),
      .released(Released(id: id, lsn: LSN(3))),
      .refused(Refused(id: id, lsn: LSN(3))),
      .joined(Joined(id: id, set: LSN(300))),
      .discarded(Discarded(id: id, lsn: LSN(3))),
      .tokenAdvanced(
        TokenAdvanced(
          zone: zone, asked: ChangeToken(rawValue: "t1"), token: ChangeToken(rawValue: "t2"), sweepEpoch: 1)),
      .databaseTokenAdvanced(
        DatabaseTokenAdvanced(
          scope: .shared, asked: ChangeToken(rawValue: "d1"), token: ChangeToken(rawValue: "d2"))),
      .databaseTokenAdvanced(
        DatabaseTokenAdvanced(scope: .private, asked: nil, token: ChangeToken(rawValue: "d1"))),
      .zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "resumed by the app", policy: "resume")),
      .zoneChanged(.listed(zone, .purged)),
      .zoneChanged(.lost(zone, .notFound, words: "ZONE_NOT_FOUND")),
      .zoneChanged(
        ZoneChanged(
          zone: zone, change: .reset, words: "lost", policy: "server", ruledMilliseconds: 1_780_000_000_000)),
      .sweepBegan(SweepBegan(zone: zone, epoch: 7, since: 4)),
      .sweepEnded(SweepEnded(zone: zone, epoch: 1, seen: 130, removed: 2)),
      .assetUploaded(
        AssetUploaded(id: id, lsn: LSN(3), field: "file", receipt: "p", wallMilliseconds: wall)),
      .conflicted(
        Conflicted(
          id: id, local: LSN(3), server: LSN(8), ancestor: LSN(2), wallMilliseconds: wall, rule: "join",
          words: "joined, because the resolver failed",
          fields: [
            Conflicted.Field(name: "count", rule: "counter", loser: .none),
            Conflicted.Field(name: "title", rule: "join", loser: .here),
          ])),
      .inboxChange(.sample(.edit, id: id, time: time(5))),
      .inboxRead(InboxRead(inbox: Array(16..<32), position: LSN(300))),
      .inboxRefused(
        InboxRefused(
          code: "recordWasDeleted", words: "it was deleted here", wallMilliseconds: wall,
          changes: [EventCodec.encode(.inboxChange(.sample(.save, id: id, time: time(5))))])),
      .inboxRefusalEnded(InboxRefusalEnded(lsn: LSN(300))),
      .accountChanged(AccountChanged(userHash: 5, isParked: true)),
      .pace(Pace.sample(1)),
      .deletions(
        Deletions(
          latest: time(9),
          items: [
            Deletions.Item(
              id: RecordID("gone"), lsn: LSN(4), isLocal: true, births: [birth], createdMilliseconds: wall,
              changeTag: "kz1"),
            Deletions.Item(
              id: RecordID("gone", zone: ZoneID("Shared", owner: "_b", scope: .shared)), lsn: LSN(300), isLocal: false,
              births: [], createdMilliseconds: nil,
              changeTag: nil),
          ])),
      .superseded(Superseded(id: id, type: "Note", time: time(5))),
      try EventCodec.decode(writer),
    ]
  }
}

extension ByteWriter {
  /// The body of an event of a kind that this version does not know.
  static func event(of kind: UInt16, isSkippable: Bool, body: [UInt8]) -> [UInt8] {
    var writer = ByteWriter()
    writer.u16(kind)
    writer.u8(EventCodec.payloadVersion)
    writer.u8(isSkippable ? 1 : 0)
    writer.raw(body)
    return writer.bytes
  }
}

extension InboxChange {
  /// A change of two fields, of which one was empty.
  static func sample(_ operation: Operation, id: RecordID, time: HybridTime) -> InboxChange {
    let isEdit = operation == .edit
    return InboxChange(
      storeUUID: Array(0..<16), id: id, operation: operation, type: operation == .delete ? "" : "Note",
      births: [EventSamples.birth], time: time,
      fields: operation == .delete
        ? []
        : [
          Field(name: "title", before: isEdit ? .some(.string("Lo")) : nil, after: .string("Hi")),
          Field(name: "count", before: isEdit ? .some(nil) : nil, after: .int64(7)),
        ])
  }
}

/// Events of the local server.
enum JournalSamples {
  static func transactions(tenure: UInt64) -> [[JournalEvent]] {
    let key = DatabaseKey(container: "iCloud.app", environment: "development", scope: .private, user: "_default")
    let cause = JournalCause(requestUUID: Array(0x10..<0x20), operation: 0, isCascade: false)
    let touch = ServerTimestamp(milliseconds: EventSamples.wall, user: "_default", device: "2")
    let life: UInt64 = 0xBEEF
    var fields = EventSamples.values
    fields["strandlineStamp"] = .bytes(StampCodec.encode(EventSamples.version(["title": "Hi"])))
    let record = JournalRecord(
      zone: life, name: "note-1", type: "Note", parent: "note-0", tag: "kz1", created: touch, modified: touch,
      cause: cause, fields: fields)
    var following = cause
    following.operation = 300
    following.isCascade = true
    return [
      [.opened(tenure: tenure), .zoneCreated(life: life, key, name: "Notes")],
      [.recordSaved(record)],
      [.recordDeleted(zone: life, name: "note-1", cause), .recordDeleted(zone: life, name: "note-6", following)],
      [.zoneDeleted(life: life)],
    ]
  }
}
