// What the projections hold beside the rows of single records, as of one event: one row of a run, so that an open reads
// the log only from there on. The newest run has the one that counts. Layout: Formats/index.md, "state".

import StrandlineSystem

/// The projections as of one event, without the tables of records and deletions.
package struct StoredState: Sendable {
  /// The event.
  var lsn: LSN
  package var recordCount: UInt64
  var living: [ZoneCount]
  package var deletionCount: UInt64

  package var newest: LSNSet
  package var since: LSNSet
  var attempted: LSNSet

  var bounds: [Bound]
  var zones: [KnownZone]
  var databaseTokens: [DatabaseTokenAdvanced]
  var tenures: [Tenure]
  var held: [Held]
  var sets: [Joined]
  var unread: [Held]
  var openBlocks: [Blocked]
  var paces: [Pace]
  var listed: [Listing]
  var inboxes: [InboxRead]
  var inboxRefusals: [LSN]
  var latest: HybridTime
  var isParked: Bool
  /// The newest event when a compaction was last considered.
  var considered: LSN
  /// The contents that events name.
  var contents: [ContentTable.Named]

  struct ZoneCount: Sendable {
    var zone: ZoneID
    var living: LivingCount
  }
  struct TypeCount: Sendable {
    var type: String
    var count: UInt64
  }
  /// A `listed` event that has not ended.
  struct Listing: Sendable {
    var zone: ZoneID
    var lsn: LSN
    var names: UInt64
  }
  struct KnownZone: Sendable {
    var zone: ZoneID
    var state: ZoneState
  }
}

extension StoredState: FieldDescribed {
  package init<Coder: FieldCoder>(_ state: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      lsn: try field("lsn", .lsn, state?.lsn),
      recordCount: try field("recordCount", .varint, state?.recordCount),
      living: try field("living", .list(.group(ZoneCount.self)), state?.living),
      deletionCount: try field("deletionCount", .varint, state?.deletionCount),
      newest: try field("newest", .lsnSet, state?.newest), since: try field("since", .lsnSet, state?.since),
      attempted: try field("attempted", .lsnSet, state?.attempted),
      bounds: try field("bounds", .list(.payload(Bound.self)), state?.bounds),
      zones: try field("zones", .list(.group(KnownZone.self)), state?.zones),
      databaseTokens: try field(
        "databaseTokens", .list(.payload(DatabaseTokenAdvanced.self)), state?.databaseTokens),
      tenures: try field("tenures", .list(.group(Tenure.self)), state?.tenures),
      held: try field("held", .list(.payload(Held.self)), state?.held),
      sets: try field("sets", .list(.payload(Joined.self)), state?.sets),
      unread: try field("unread", .list(.payload(Held.self)), state?.unread),
      openBlocks: try field("openBlocks", .list(.payload(Blocked.self)), state?.openBlocks),
      paces: try field("paces", .list(.payload(Pace.self)), state?.paces),
      listed: try field("listed", .list(.group(Listing.self)), state?.listed),
      inboxes: try field("inboxes", .list(.payload(InboxRead.self)), state?.inboxes),
      inboxRefusals: try field("inboxRefusals", .list(.lsn), state?.inboxRefusals),
      latest: try field("latest", .time, state?.latest), isParked: try field("isParked", .flag, state?.isParked),
      considered: try field("considered", .lsn, state?.considered),
      contents: try field("contents", .list(.group(ContentTable.Named.self)), state?.contents))
    try field.require(deletionCount <= UInt64(Int.max) && recordCount <= UInt64(Int.max), "a count that is too large")
  }
}

extension StoredState.ZoneCount: FieldGroup {
  static var tableName: String { "zoneCount" }
  static var bytesMin: Int { 5 }
  init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    let zone = try field("zone", .zone, row?.zone)
    let count = try field("count", .varint, row.map { UInt64($0.living.total) })
    let types = try field(
      "types", .list(.group(StoredState.TypeCount.self)),
      row.map { row in
        (row.living.types ?? [:]).sorted { $0.key < $1.key }
          .map { StoredState.TypeCount(type: $0.key, count: UInt64($0.value)) }
      })
    try field.require(count <= UInt64(Int.max), "a count that is too large")
    var rest = count
    for type in types {
      try field.require(type.count > 0 && type.count <= rest, "counts of types that are not those of the zone")
      rest -= type.count
    }
    try field.require(
      types.isEmpty || (rest == 0 && types.count <= LivingCount.typesMax),
      "counts of types that are not those of the zone")
    self.init(
      zone: zone, living: LivingCount(stored: Int(count), types: types.map { ($0.type, Int($0.count)) }))
  }
}

extension StoredState.TypeCount: FieldGroup {
  static var tableName: String { "typeCount" }
  static var bytesMin: Int { 2 }
  init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(type: try field("type", .text, row?.type), count: try field("count", .varint, row?.count))
  }
}

extension StoredState.KnownZone: FieldGroup {
  static var tableName: String { "knownZone" }
  static var bytesMin: Int { 17 }
  init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(zone: try field("zone", .zone, row?.zone), state: ZoneState())
    state.wasSeen = try field("wasSeen", .flag, row?.state.wasSeen)
    state.isDirty = try field("isDirty", .flag, row?.state.isDirty)
    state.listedLoss = try field("listedLoss", .optional(.choice(ZoneLoss.self)), row?.state.listedLoss)
    state.lostReason = try field("lostReason", .optional(.choice(ZoneLoss.self)), row?.state.lostReason)
    state.lostWords = try field("lostWords", .text, row?.state.lostWords)
    state.token = try field("token", .optional(.token), row?.state.token)
    state.tokenLSN = try field("tokenLSN", .lsn, row?.state.tokenLSN)
    state.isFullFetch = try field("isFullFetch", .flag, row?.state.isFullFetch)
    state.isNew = try field("isNew", .flag, row?.state.isNew)
    state.hasGhosts = try field("hasGhosts", .flag, row?.state.hasGhosts)
    state.sweepEpoch = try field("sweepEpoch", .varint, row?.state.sweepEpoch)
    state.unprovedSince = try field("unprovedSince", .varint, row?.state.unprovedSince)
    state.resetPolicy = try field("resetPolicy", .text, row?.state.resetPolicy)
    state.ruledMilliseconds = try field("ruled", .zigzag, row?.state.ruledMilliseconds)
  }
}

extension StoredState.Listing: FieldGroup {
  static var tableName: String { "listing" }
  static var bytesMin: Int { 5 }
  init<Coder: FieldCoder>(_ row: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      zone: try field("zone", .zone, row?.zone), lsn: try field("lsn", .lsn, row?.lsn),
      names: try field("names", .varint, row?.names))
    // Together they are still below 2^63, however many there are.
    try field.require(names > 0 && names <= UInt64(UInt32.max), "a listing of no names, or of too many")
  }
}

extension Tenure: FieldGroup {
  package static var tableName: String { "tenure" }
  package static var bytesMin: Int { 17 }
  package init<Coder: FieldCoder>(_ tenure: Self?, _ field: inout Coder) throws(Coder.Failure) {
    self.init(
      tenure: try field("tenure", .u64, tenure?.tenure), writer: try field("writer", .u64, tenure?.writer),
      first: try field("first", .lsn, tenure?.first))
  }
}

// MARK: Types of fields

/// What follows the header of an event's payload.
struct PayloadType<Payload: EventPayload>: FieldType {
  var name: String { Payload.kind.name }
  var bytesMin: Int { 1 }
  func read(from reader: inout ByteReader) throws(ByteReaderError) -> Payload { try Payload(nil, &reader) }
  func write(_ value: Payload, to writer: inout ByteWriter) { value.encode(into: &writer) }
  func content(of value: Payload) -> FieldContent { .group(table: name, bytesMin: bytesMin, value.listedFields) }
}

extension FieldType {
  static func payload<Payload>(_ type: Payload.Type) -> Self where Self == PayloadType<Payload> { Self() }
}

/// A set of LSNs: a count of chunks; of each how far its number is above that of the one before it (above 0 for the first),
/// a bit for each of its 64 words that is not 0, and those words.
struct LSNSetType: FieldType {
  var name: String { "lsnSet" }
  var bytesMin: Int { 1 }
  func read(from reader: inout ByteReader) throws(ByteReaderError) -> LSNSet { try LSNSet(from: &reader) }
  func write(_ value: LSNSet, to writer: inout ByteWriter) { value.encode(into: &writer) }
  func content(of value: LSNSet) -> FieldContent { .list(value.all().map { .unsigned($0.rawValue) }) }
}

extension FieldType where Self == LSNSetType { static var lsnSet: Self { Self() } }
