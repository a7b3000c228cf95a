// Events of what this device did: opened the log, saved and deleted records, held, released and discarded mutations.

import StrandlineSystem

/// The first event of the first transaction of each tenure, and again when the store draws another writer number. Never
/// appended alone, except by a repair that has no other event to write.
package struct Opened: EventPayload, Hashable {
  package static let kind = EventKind.opened
  package var writer: WriterID
  package var storeUUID: [UInt8]
  package var tenure: UInt64

  package init(writer: WriterID, storeUUID: [UInt8], tenure: UInt64) {
    self.writer = writer
    self.storeUUID = storeUUID
    self.tenure = tenure
  }
  package init<Coder: FieldCoder>(_ opened: Self?, _ field: inout Coder) throws(Coder.Failure) {
    writer = try field("writer", .u64, opened?.writer)
    storeUUID = try field("storeUUID", .raw16, opened?.storeUUID)
    tenure = try field("tenure", .u64, opened?.tenure)
  }
}

/// The container and the user that the store belongs to, since the first successful sync with one of its databases. All
/// databases of a store are of one container, environment and user.
package struct Bound: EventPayload, Hashable {
  package static let kind = EventKind.bound
  package var container: String
  package var environment: String
  package var scope: DatabaseScope
  /// A hash of the user's record name: enough to recognize the user.
  package var userHash: UInt64

  package init(container: String, environment: String, scope: DatabaseScope, userHash: UInt64) {
    self.container = container
    self.environment = environment
    self.scope = scope
    self.userHash = userHash
  }
  package init<Coder: FieldCoder>(_ bound: Self?, _ field: inout Coder) throws(Coder.Failure) {
    container = try field("container", .text, bound?.container)
    environment = try field("environment", .text, bound?.environment)
    scope = try field("scope", .choice(DatabaseScope.self), bound?.scope)
    userHash = try field("userHash", .u64, bound?.userHash)
  }

  /// The hash of a user's record name: FNV-1a, 64 bits. The log does not hold the name.
  package static func hash(ofUser name: String) -> UInt64 {
    name.utf8.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
  }
}

/// A local save: the record after it, its stamp, and the dirty map. The newest one of a record is enough to send.
package struct Saved: EventPayload {
  package static let kind = EventKind.saved
  package var id: RecordID
  package var type: String
  package var births: Set<Birth>
  /// The event that made the base: a `fetchedSave` or a `settled`; none for a record that the server never had.
  package var base: LSN
  /// This mutation's own time; every field that it wrote has it, or the time at which another process wrote it (`InboxChange`).
  package var time: HybridTime
  /// Saves of this life of the record, this one included.
  package var editCount: UInt64
  package var tenure: UInt64
  /// Whether the app created the record with this, which begins a new life.
  package var isCreation: Bool
  package var content: EncodedContent

  package init(
    id: RecordID, type: String, births: Set<Birth>, base: LSN, time: HybridTime, editCount: UInt64, tenure: UInt64,
    isCreation: Bool, content: EncodedContent
  ) {
    self.id = id
    self.type = type
    self.births = births
    self.base = base
    self.time = time
    self.editCount = editCount
    self.tenure = tenure
    self.isCreation = isCreation
    self.content = content
  }
  package init<Coder: FieldCoder>(_ saved: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, saved?.id)
    type = try field("recordType", .text, saved?.type)
    births = try field("births", .births, saved?.births)
    base = try field("base", .lsn, saved?.base)
    time = try field("time", .time, saved?.time)
    editCount = try field("editCount", .varint, saved?.editCount)
    tenure = try field("tenure", .u64, saved?.tenure)
    isCreation = try field("isCreation", .flag, saved?.isCreation)
    content = try field("content", .content, saved?.content)
  }
}

extension Saved {
  /// Passes over the fields before the content, with the checks that the description makes, and returns the type; nil if
  /// the event is of another record.
  static func skipToContent(_ reader: inout ByteReader, of id: RecordID) throws(ByteReaderError) -> String? {
    guard try ChoiceType<DatabaseScope>().read(from: &reader) == id.zone.scope,
      try reader.skipString(equalTo: id.zone.owner), try reader.skipString(equalTo: id.zone.name),
      try reader.skipString(equalTo: id.name)
    else { return nil }
    let type = try reader.string()
    try reader.skip(try reader.count(minimumBytes: Birth.bytesMin) * Birth.bytesMin)
    _ = try reader.varint()
    try reader.skip(8)
    _ = try reader.varint()
    try reader.skip(8)
    _ = try FlagType().read(from: &reader)
    return type
  }
}

/// A local deletion, provisional until it is settled.
package struct Deleted: EventPayload, Hashable {
  package static let kind = EventKind.deleted
  package var id: RecordID
  /// The births that the record had when it was deleted; another life of the same name is not deleted by this.
  package var births: Set<Birth>
  package var base: LSN
  package var time: HybridTime
  package var tenure: UInt64
  /// The deletion that took it along by the rule of its type, of a record above it; none if it was asked for itself.
  package var cause: LSN

  package init(id: RecordID, births: Set<Birth>, base: LSN, time: HybridTime, tenure: UInt64, cause: LSN = .zero) {
    self.id = id
    self.births = births
    self.base = base
    self.time = time
    self.tenure = tenure
    self.cause = cause
  }
  package init<Coder: FieldCoder>(_ deleted: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, deleted?.id)
    births = try field("births", .births, deleted?.births)
    base = try field("base", .lsn, deleted?.base)
    time = try field("time", .time, deleted?.time)
    tenure = try field("tenure", .u64, deleted?.tenure)
    cause = try field("cause", .lsn, deleted?.cause)
  }
}

/// What is owed of the record belongs to a set: it goes to the server in one request with what is owed of the other records
/// of that set. It does until nothing of the record is owed.
package struct Joined: EventPayload, Hashable {
  package static let kind = EventKind.joined
  package var id: RecordID
  /// The set's number: the LSN of the first event of the transaction that began it.
  package var set: LSN

  package init(id: RecordID, set: LSN) {
    self.id = id
    self.set = set
  }
  package init<Coder: FieldCoder>(_ joined: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, joined?.id)
    set = try field("set", .lsn, joined?.set)
  }
}

/// A mutation that is not sent, or a version that is not applied, for now, with the server's code and reason. Other
/// records are not affected.
package struct Held: EventPayload, Hashable {
  package static let kind = EventKind.held
  package enum Direction: UInt8, Sendable, CaseIterable { case upload = 1, download = 2 }
  package var id: RecordID
  package var direction: Direction
  /// The mutation that is held; none for a download.
  package var lsn: LSN
  /// What came and could not be applied, as it came.
  package var raw: [UInt8]
  package var code: String
  package var words: String
  package var requestUUID: String
  package var attempts: UInt64
  /// How long the hold lasts from `wallMilliseconds` on; 0: until it is released.
  package var durationMilliseconds: Int64
  package var wallMilliseconds: Int64
  /// Whether the server named how long. Otherwise a person may end it.
  package var isServers: Bool
  /// The version of the app that was refused; empty if it has not said it.
  package var appVersion: String

  package init(
    id: RecordID, direction: Direction, lsn: LSN, raw: [UInt8] = [], code: String, words: String,
    requestUUID: String = "", attempts: UInt64, durationMilliseconds: Int64 = 0, wallMilliseconds: Int64,
    isServers: Bool = false, appVersion: String = ""
  ) {
    self.id = id
    self.direction = direction
    self.lsn = lsn
    self.raw = raw
    self.code = code
    self.words = words
    self.requestUUID = requestUUID
    self.attempts = attempts
    self.durationMilliseconds = durationMilliseconds
    self.wallMilliseconds = wallMilliseconds
    self.isServers = isServers
    self.appVersion = appVersion
  }
  package init<Coder: FieldCoder>(_ held: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, held?.id)
    direction = try field("direction", .choice(Direction.self), held?.direction)
    lsn = try field("lsn", .lsn, held?.lsn)
    raw = try field("raw", .bytes, held?.raw)
    code = try field("code", .text, held?.code)
    words = try field("words", .text, held?.words)
    requestUUID = try field("requestUUID", .text, held?.requestUUID)
    attempts = try field("attempts", .varint, held?.attempts)
    durationMilliseconds = try field("duration", .zigzag, held?.durationMilliseconds)
    wallMilliseconds = try field("wall", .zigzag, held?.wallMilliseconds)
    isServers = try field("isServers", .flag, held?.isServers)
    appVersion = try field("appVersion", .text, held?.appVersion)
  }
}

/// A hold ended; the mutation is sent again, or the version applied.
package struct Released: EventPayload, Hashable {
  package static let kind = EventKind.released
  package var id: RecordID
  package var lsn: LSN

  package init(id: RecordID, lsn: LSN) {
    self.id = id
    self.lsn = lsn
  }
  package init<Coder: FieldCoder>(_ released: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, released?.id)
    lsn = try field("lsn", .lsn, released?.lsn)
  }
}

/// The app gave up every pending mutation of the record up to the LSN.
package struct Discarded: EventPayload, Hashable {
  package static let kind = EventKind.discarded
  package var id: RecordID
  package var lsn: LSN

  package init(id: RecordID, lsn: LSN) {
    self.id = id
    self.lsn = lsn
  }
  package init<Coder: FieldCoder>(_ discarded: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, discarded?.id)
    lsn = try field("lsn", .lsn, discarded?.lsn)
  }
}
