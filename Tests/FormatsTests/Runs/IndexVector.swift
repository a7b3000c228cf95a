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
    "A store whose index lies in five runs: a row of every table, tombstones, and every part that a row can have.\n"
    + "The engine's events make no sense; the rows do. Its bound is the end of its log. Two indexes are declared, and a\n"
    + "third one was dropped, whose rows stand there still.\n"

  /// Both directions; the values of `mark` have every tag.
  static let declared = [RecordIndex("Note", "title"), RecordIndex("Note", "mark", ascending: false)]
  static let dropped = RecordIndex("Note")

  static func note(_ name: String, _ title: String, _ mark: FieldValue? = nil) -> Record {
    var fields: [String: FieldValue] = ["title": .string(title)]
    fields["mark"] = mark
    return Record(type: "Note", id: RecordID(name), fields: fields)
  }

  /// One byte more than a row has of a text, and a zero byte among them.
  static let longText = String(repeating: "long\0", count: IndexValue.textBytesMax / 5) + "!"

  /// Of which the state knows the content.
  private static let photo = Asset(
    server: Asset.ServerFile(fileChecksum: "AQ=="), size: 3, contentHash: ContentHash(Array(0..<32)))

  private static let odd = EventSamples.version([
    "title": "Odd", "mark": .location(Location(latitude: 53.5, longitude: -0.0)), "photo": .asset(photo),
  ])

  /// A new store with its declared indexes and its first records.
  private static func begin(_ stage: Stage) throws -> RecordStore {
    var options = StoreOptions(log: Stage.options())
    // No run is merged with another.
    options.index.mergeWidth = 8
    let store = try RecordStore.openBlocking(
      at: stage.path, options: options, environment: StoreEnvironment(stage.environment))
    for index in declared + [dropped] { try store.addIndex(index) }
    try store.writeBlocking { tx in
      try tx.create(note("a", "First", -7))
      try tx.create(note("b", "First"))
      try tx.create(note("c", "First", .list(.strings, ["red", "", "a\0b", "red"])))
      try tx.create(note("d", "First", .reference(Reference("note-3", zone: EventSamples.zone, action: .none))))
      try tx.create(note("e", "First", -0.5))
      try tx.create(note("f", "", .bytes([0, 1, 0xFF])))
      try tx.create(note("g", "First"))
    }
    return store
  }

  /// A store at its end, still open.
  static func store(_ stage: Stage) throws -> RecordStore {
    let store = try begin(stage)
    func append(_ events: [Event]) throws {
      let place = try store.transact { core in for event in events { try core.append(event) } }.place
      if case .writer(let log) = store.source { try log.waitUntilDurableBlocking(place.lsn.rawValue) }
    }
    func newest(_ name: String) throws -> LSN {
      try store.projections.entry(RecordID(name))?.pending?.newest ?? .zero
    }
    let zone = EventSamples.zone
    // No app can give such names, and a key must take them.
    try append([
      .fetchedSave(
        FetchedSave(
          id: RecordID("nul\0in", zone: ZoneID("Zone\0")), version: odd,
          system: SystemFields(
            changeTag: "kz2", created: nil, modified: ServerTimestamp(milliseconds: 1, user: "", device: ""),
            unknown: [], archive: []),
          source: .lookup, isStamped: true))
    ])
    let touch = ServerTimestamp(milliseconds: EventSamples.wall, user: "_me", device: "A1B2")
    try append(
      try ["a", "b", "c"].map { name in
        .settled(
          Settled(
            id: RecordID(name), lsn: try newest(name), outcome: .saved, changeTag: "kz-\(name)", created: touch,
            modified: touch))
      })
    try store.writeBlocking { try $0.delete(RecordID("b")) }
    try append([.settled(Settled(id: RecordID("b"), lsn: try newest("b"), outcome: .deleted))])
    // A run, and three of the rows of indexes, which are built now.
    try store.index?.flush()
    try store.dropIndex(dropped)
    // The newest run, with tombstones and all that the engine remembers.
    try store.writeBlocking { tx in
      try tx.delete(RecordID("c"))
      try tx.save(note("a", "Second"))
      try tx.create(note("b", "Anew", .date(milliseconds: -1)))
    }
    try append([.sent(Sent(batch: 7, zone: .main, lsns: try [newest("a"), newest("d")].sorted()))])
    try store.writeBlocking { try $0.save(note("a", "Third", .string(longText))) }
    try append([
      .settled(Settled(id: RecordID("e"), lsn: try newest("e"), outcome: .discarded)),
      .bound(Bound(container: "iCloud.app", environment: "development", scope: .private, userHash: 5)),
      .held(
        Held(
          id: RecordID("d"), direction: .upload, lsn: try newest("d"), raw: [0x7B, 0x7D], code: "BAD_REQUEST",
          words: "no such field", requestUUID: "8C5E0000-0000-4000-8000-000000000001", attempts: 3,
          durationMilliseconds: 60_000, wallMilliseconds: EventSamples.wall)),
      .joined(Joined(id: RecordID("d"), set: LSN(5))),
      .held(
        Held(
          id: RecordID("far", zone: zone), direction: .download, lsn: .zero, raw: [1], code: "", words: "a later stamp",
          requestUUID: "", attempts: 1, durationMilliseconds: 1, wallMilliseconds: EventSamples.wall)),
      .blocked(
        Blocked(
          id: RecordID("note-9", zone: zone), subject: .version, changeTag: "kz4", births: [EventSamples.otherBirth],
          consequence: .deleteAgain, words: "a life that was deleted here")),
      .listed(Listed(zone: zone, items: [.init(name: "note-8", changeTag: "kz5", modifiedMilliseconds: 5)])),
      .tokenAdvanced(
        TokenAdvanced(zone: zone, asked: nil, token: ChangeToken(rawValue: "t1"), sweepEpoch: 0)),
      .zoneChanged(.lost(ZoneID("Gone"), .notFound, words: "ZONE_NOT_FOUND")),
      .databaseTokenAdvanced(.init(scope: .private, asked: nil, token: ChangeToken(rawValue: "d1"))),
      .pace(Pace.sample(1)),
      .accountChanged(AccountChanged(userHash: 5, isParked: true)),
    ])
    // It writes the run.
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
    let folder = RunFolder(try Repository.disk.folder(path), StoreIndex.folderName)
    guard let list = try RunList.load(folder, storeUUID: storeUUID) else { throw PageError("there is no list") }
    let binding = try RunBinding.decode(list, path: folder.path)
    let definitions = try definitions(path, storeUUID: storeUUID)
    var lines: [JSON] = [
      .object([
        "bound": .object([
          "lsn": .uint(binding.end.lsn), "chain": .uint(UInt64(binding.end.chain)),
          "nextIndexNumber": .uint(UInt64(binding.nextIndexNumber)),
          "numbers": .list(
            binding.indexes.map {
              .object(["number": .uint(UInt64($0.number)), "definition": .uint($0.definition)])
            }),
        ])
      ]),
      line(definitions, binding),
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
      while try cursor.advance() { lines.append(try line(cursor.key, cursor.value, definitions)) }
    }
    return lines
  }

  private static func line(_ key: [UInt8], _ value: RunValue?, _ definitions: IndexDefinitions) throws -> JSON {
    func row<Row: FieldDescribed>(_ type: Row.Type) throws -> JSON {
      guard let value else { return .null }
      return .row(try Row(row: value.bytes, value.range))
    }
    switch RunTable(rawValue: key[0]) {
    case .state: return .object(["table": .text("state"), "row": try row(StoredState.self)])
    case .records:
      guard let id = RowKey.recordID(key) else { break }
      return .object(["table": .text("records"), "record": .group(id), "row": try row(PlacedEntry.self)])
    case .deletions:
      guard let id = RowKey.recordID(key, table: .deletions) else { break }
      return .object(["table": .text("deletions"), "record": .group(id), "row": try row(DeletionEntry.self)])
    case .indexes:
      if let value, !value.range.isEmpty { throw PageError("a row of an index has bytes") }
      return try line(index: key, isRemoved: value == nil, definitions)
    default: break
    }
    throw PageError("a key of no table: \(hex(key))")
  }
}
