// How the golden store with an index is made, and what the package's own code understands of it.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// The golden store whose index lies in runs.
enum IndexVector {
  static let name = "indexed"
  static let folder = "Formats/vectors/\(name)"
  static let about =
    "A store whose index lies in two runs: a row of every table, tombstones, and every part that a row can have.\n"
    + "The engine's events make no sense; the rows do. Its bound is the end of its log.\n"

  static func note(_ name: String, _ title: String) -> Record {
    Record(type: "Note", id: RecordID(name), fields: ["title": .string(title)])
  }

  /// A store at its end, still open.
  static func store(_ stage: Stage) throws -> RecordStore {
    let store = try stage.openStore()
    func append(_ events: [Event]) throws {
      let upTo = try store.transact { core in for event in events { try core.append(event) } }.upTo
      if case .writer(let log) = store.source { try log.waitUntilDurableBlocking(upTo.rawValue) }
    }
    func newest(_ name: String) throws -> LSN {
      try store.projections.entry(RecordID(name))?.pending?.newest ?? .none
    }
    let zone = EventSamples.zone
    try store.writeBlocking { tx in
      for name in ["a", "b", "c", "d", "e"] { try tx.create(note(name, "First")) }
    }
    // No app can give such names, and a key must take them.
    try append([
      .fetchedSave(
        FetchedSave(
          id: RecordID("nul\0in", zone: ZoneID("Zone\0")), version: EventSamples.version(["title": "Odd"]),
          system: SystemFields(
            changeTag: "kz2", created: nil, modified: Touch(milliseconds: 1, user: "", device: ""), unknown: [],
            archive: []),
          source: .lookup, isStamped: true))
    ])
    let touch = Touch(milliseconds: EventSamples.wall, user: "_me", device: "A1B2")
    try append(
      try ["a", "b", "c"].map { name in
        .settled(
          Settled(
            id: RecordID(name), lsn: try newest(name), outcome: .saved, changeTag: "kz-\(name)", created: touch,
            modified: touch))
      })
    try store.writeBlocking { try $0.delete(RecordID("b")) }
    try append([.settled(Settled(id: RecordID("b"), lsn: try newest("b"), outcome: .deleted))])
    try store.index?.flush()
    // A second run, with tombstones and all that the engine remembers.
    try store.writeBlocking { tx in
      try tx.delete(RecordID("c"))
      try tx.save(note("a", "Second"))
      try tx.create(note("b", "Anew"))
    }
    try store.writeBlocking { try $0.save(note("a", "Third")) }
    try append([.sent(Sent(batch: 7, zone: .main, lsns: [try newest("d")]))])
    try append([
      .settled(Settled(id: RecordID("e"), lsn: try newest("e"), outcome: .discarded)),
      .bound(Bound(container: "iCloud.app", environment: "development", scope: .private, userHash: 5)),
      .held(
        Held(
          id: RecordID("d"), direction: .upload, lsn: try newest("d"), raw: [0x7B, 0x7D], code: "BAD_REQUEST",
          words: "no such field", requestUUID: "8C5E0000-0000-4000-8000-000000000001", attempts: 3,
          durationMilliseconds: 60_000, wallMilliseconds: EventSamples.wall)),
      .held(
        Held(
          id: RecordID("far", zone: zone), direction: .download, lsn: .none, raw: [1], code: "", words: "a later stamp",
          requestUUID: "", attempts: 1, durationMilliseconds: 1, wallMilliseconds: EventSamples.wall)),
      .blocked(
        Blocked(
          id: RecordID("note-9", zone: zone), subject: .version, changeTag: "kz4", births: [EventSamples.otherBirth],
          consequence: .deleteAgain, words: "a life that was deleted here")),
      .tokenAdvanced(
        TokenAdvanced(zone: zone, asked: nil, token: ChangeToken(rawValue: "t1"), sweepEpoch: 0)),
      .zoneChanged(.lost(ZoneID("Gone"), .notFound, words: "ZONE_NOT_FOUND")),
      .databaseTokenAdvanced(
        DatabaseTokenAdvanced(scope: .private, asked: nil, token: ChangeToken(rawValue: "d1"))),
      .pace(Pace.sample(1)),
      .accountChanged(AccountChanged(userHash: 5, isParked: true)),
    ])
    // It writes the run, and packs the save that another stands for.
    try store.compactBlocking()
    return store
  }

  static func make() throws -> [String: [UInt8]] {
    let stage = Stage(seed: 11)
    try store(stage).closeBlocking()
    return stage.files()
  }

  // MARK: What the code understands

  static func dump(_ path: String, storeUUID: [UInt8]) throws -> [JSON] {
    let folder = RunFolder(Repository.disk, "\(path)/\(StoreIndex.folderName)")
    guard let list = try RunList.load(folder, storeUUID: storeUUID) else { throw PageError("there is no list") }
    let end = try RunBinding.decode(list, path: folder.path).end
    var lines: [JSON] = [
      .object(["bound": .object(["lsn": .uint(end.lsn), "chain": .uint(UInt64(end.chain))])])
    ]
    let cache = BlockCache()
    for entry in list.entries {
      let run = try Run(folder, entry.run, storeUUID: storeUUID, cache: cache)
      lines.append(
        .object([
          "run": .text(String(run.path.split(separator: "/").last ?? "")),
          "hasDeletions": .bool(RunProperties(run.properties).hasDeletions),
        ]))
      var cursor = try run.cursor()
      while try cursor.advance() { lines.append(try line(cursor.key, cursor.value)) }
    }
    return lines
  }

  private static func line(_ key: [UInt8], _ value: RunValue?) throws -> JSON {
    func row<Row: FieldDescribed>(_ type: Row.Type) throws -> JSON {
      guard let value else { return .null }
      return .row(try Row(row: value.bytes, value.range))
    }
    switch RunTable(rawValue: key[0]) {
    case .state: return .object(["table": .text("state"), "row": try row(StoredState.self)])
    case .records:
      guard let id = RowKey.recordID(key) else { break }
      return .object(["table": .text("records"), "record": .group(id), "row": try row(RecordEntry.self)])
    case .deletions:
      guard RowKey.deletion(key) != nil else { break }
      return .object([
        "table": .text("deletions"), "key": .hexed(key[1..<17]), "hash": .hexed(key[17...]),
        "row": try row(DeletionEntry.self),
      ])
    default: break
    }
    throw PageError("a key of no table: \(hex(key))")
  }
}
