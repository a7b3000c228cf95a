// What passed between this device and the cloud: sent, settled, merged, fetched, blocked.

package import StrandlineSystem

/// A request is about to leave: durable before it does, so that an attempt always leaves a trace.
package struct Sent: EventPayload, Hashable {
  package static let kind = EventKind.sent
  /// Names the batch; random.
  package var batch: UInt64
  package var zone: ZoneID
  /// The mutations in it, ascending.
  package var lsns: [LSN]

  package init(batch: UInt64, zone: ZoneID, lsns: [LSN]) {
    self.batch = batch
    self.zone = zone
    self.lsns = lsns
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    batch = try reader.u64()
    zone = try FieldCodec.decodeZone(from: &reader)
    lsns = []
    var last: UInt64 = 0
    for _ in 0..<(try reader.count(minimumBytes: 1)) {
      let start = reader.offset
      let (next, overflow) = last.addingReportingOverflow(try reader.varint())
      if overflow { throw ByteReaderError(offset: start, what: "an LSN above 64 bits") }
      last = next
      lsns.append(LSN(last))
    }
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.u64(batch)
    FieldCodec.encode(zone, into: &bytes)
    bytes.varint(UInt64(lsns.count))
    var last: UInt64 = 0
    for lsn in lsns {
      bytes.varint(lsn.rawValue &- last)
      last = lsn.rawValue
    }
  }
}

/// What became of a mutation, in the log's words.
package enum Outcome: UInt8, Hashable, Sendable, CaseIterable {
  /// The server has it.
  case saved = 1
  /// The server has deleted the record for us, or it was gone already.
  case deleted = 2
  /// A later version of the server holds it, or holds what it was merged into.
  case merged = 3
  /// A later mutation or another life of the name stands in its place.
  case superseded = 4
  /// It never needed to leave.
  case cancelled = 5
  /// The record was deleted at the server; the edit is kept in history.
  case deletedOnServer = 6
  /// The server refused it for good.
  case rejected = 7
  /// The app gave it up.
  case discarded = 8
}

/// A mutation is settled: it, and everything of the record before it, is no longer this device's to send.
package struct Settled: EventPayload, Hashable {
  package static let kind = EventKind.settled
  package var id: RecordID
  package var lsn: LSN
  package var outcome: Outcome
  /// The server's version after it; nil where there is none.
  package var changeTag: String?
  package var created: Touch?
  package var modified: Touch?
  /// The server's words, if it refused.
  package var code: String
  package var words: String

  package init(
    id: RecordID, lsn: LSN, outcome: Outcome, changeTag: String? = nil, created: Touch? = nil,
    modified: Touch? = nil, code: String = "", words: String = ""
  ) {
    self.id = id
    self.lsn = lsn
    self.outcome = outcome
    self.changeTag = changeTag
    self.created = created
    self.modified = modified
    self.code = code
    self.words = words
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    lsn = LSN(try reader.varint())
    outcome = try reader.choice("an outcome")
    changeTag = try reader.optionalString()
    created = try reader.touch()
    modified = try reader.touch()
    code = try reader.string()
    words = try reader.string()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    bytes.varint(lsn.rawValue)
    bytes.u8(outcome.rawValue)
    bytes.optional(changeTag)
    bytes.touch(created)
    bytes.touch(modified)
    bytes.string(code)
    bytes.string(words)
  }
}

/// The outcome of a conflict, logged because it is never computed again: the after-image of the join, based on the
/// server version that stands in the same transaction.
package struct Merged: EventPayload {
  package static let kind = EventKind.merged
  /// The join of both sides, field by field.
  package static let joinRule = "join"
  /// A new life that takes the place of the one that the server holds.
  package static let replaceRule = "replace"
  package var id: RecordID
  package var type: String
  package var births: Set<Birth>
  /// The server version's event.
  package var base: LSN
  /// The local mutation that was merged.
  package var local: LSN
  package var time: HybridTime
  package var editCount: UInt64
  package var tenure: UInt64
  /// The rule's name.
  package var rule: String
  package var content: EncodedContent

  package init(
    id: RecordID, version: Version, dirty: [String: LSN], base: LSN, local: LSN, time: HybridTime,
    editCount: UInt64, tenure: UInt64, rule: String
  ) {
    self.id = id
    self.type = version.type
    self.births = version.stamp.births
    self.base = base
    self.local = local
    self.time = time
    self.editCount = editCount
    self.tenure = tenure
    self.rule = rule
    self.content = EncodedContent(version, dirty: dirty)
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    type = try reader.string()
    births = try StampCodec.decodeBirths(from: &reader)
    base = LSN(try reader.varint())
    local = LSN(try reader.varint())
    time = HybridTime(rawValue: try reader.u64())
    editCount = try reader.varint()
    tenure = try reader.u64()
    rule = try reader.string()
    content = EncodedContent(rest: &reader)
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    bytes.string(type)
    StampCodec.encode(births: births, into: &bytes)
    bytes.varint(base.rawValue)
    bytes.varint(local.rawValue)
    bytes.u64(time.rawValue)
    bytes.varint(editCount)
    bytes.u64(tenure)
    bytes.string(rule)
    content.encode(into: &bytes)
  }
}

/// A version that the server holds. Its stamp has been held against its values and clamped where it entered, so
/// what stands here is what everybody compares.
package struct FetchedSave: EventPayload {
  package static let kind = EventKind.fetchedSave
  package enum Source: UInt8, Sendable, CaseIterable { case feed = 1, lookup = 2, query = 3 }
  package var id: RecordID
  package var type: String
  package var births: Set<Birth>
  package var changeTag: String
  package var created: Touch?
  package var modified: Touch?
  package var source: Source
  /// Whether the version brought a stamp.
  package var isStamped: Bool
  /// The greatest time in its stamp.
  package var latest: HybridTime
  /// Top-level keys of the server's JSON that we do not know.
  package var unknown: [UInt8]
  package var content: EncodedContent

  package init(
    id: RecordID, version: Version, system: SystemFields, source: Source, isStamped: Bool
  ) {
    self.id = id
    self.type = version.type
    self.births = version.stamp.births
    self.changeTag = system.changeTag ?? ""
    self.created = system.created
    self.modified = system.modified
    self.source = source
    self.isStamped = isStamped
    self.latest = version.stamp.latest
    self.unknown = system.unknown
    self.content = EncodedContent(version)
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    type = try reader.string()
    births = try StampCodec.decodeBirths(from: &reader)
    changeTag = try reader.string()
    created = try reader.touch()
    modified = try reader.touch()
    source = try reader.choice("a source")
    isStamped = try reader.flag()
    latest = HybridTime(rawValue: try reader.u64())
    unknown = try reader.blob()
    content = EncodedContent(rest: &reader)
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    bytes.string(type)
    StampCodec.encode(births: births, into: &bytes)
    bytes.string(changeTag)
    bytes.touch(created)
    bytes.touch(modified)
    bytes.u8(source.rawValue)
    bytes.u8(isStamped ? 1 : 0)
    bytes.u64(latest.rawValue)
    bytes.blob(unknown)
    content.encode(into: &bytes)
  }
}

/// The server no longer has a record.
package struct FetchedDelete: EventPayload, Hashable {
  package static let kind = EventKind.fetchedDelete
  package enum Reason: UInt8, Sendable, CaseIterable {
    /// A tombstone in the feed, after a token.
    case feed = 1
    /// Absent at the end of a sweep.
    case sweep = 2
    /// Its zone was removed.
    case zone = 3
    /// A tombstone in a fetch without token.
    case fullFetch = 4
  }
  package var id: RecordID
  /// The lives that this log knew under the name; none for a name never known.
  package var births: Set<Birth>
  package var reason: Reason

  package init(id: RecordID, births: Set<Birth>, reason: Reason) {
    self.id = id
    self.births = births
    self.reason = reason
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    births = try StampCodec.decodeBirths(from: &reader)
    reason = try reader.choice("a reason")
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    StampCodec.encode(births: births, into: &bytes)
    bytes.u8(reason.rawValue)
  }
}

/// Names seen again while a sweep was open.
package struct Confirmed: EventPayload, Hashable {
  package static let kind = EventKind.confirmed
  package var zone: ZoneID
  package var names: [String]

  package init(zone: ZoneID, names: [String]) {
    self.zone = zone
    self.names = names
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try FieldCodec.decodeZone(from: &reader)
    names = []
    for _ in 0..<(try reader.count(minimumBytes: 1)) { names.append(try reader.string()) }
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(zone, into: &bytes)
    bytes.varint(UInt64(names.count))
    for name in names { bytes.string(name) }
  }
}

/// Names whose bodies are still to fetch.
package struct Listed: EventPayload, Hashable {
  package static let kind = EventKind.listed
  package struct Item: Hashable, Sendable {
    package var name: String
    package var changeTag: String
    package var modifiedMilliseconds: Int64
    package init(name: String, changeTag: String, modifiedMilliseconds: Int64) {
      self.name = name
      self.changeTag = changeTag
      self.modifiedMilliseconds = modifiedMilliseconds
    }
  }
  package var zone: ZoneID
  package var items: [Item]

  package init(zone: ZoneID, items: [Item]) {
    self.zone = zone
    self.items = items
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    zone = try FieldCodec.decodeZone(from: &reader)
    items = []
    for _ in 0..<(try reader.count(minimumBytes: 3)) {
      items.append(
        Item(
          name: try reader.string(), changeTag: try reader.string(), modifiedMilliseconds: try reader.zigzag()))
    }
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(zone, into: &bytes)
    bytes.varint(UInt64(items.count))
    for item in items {
      bytes.string(item.name)
      bytes.string(item.changeTag)
      bytes.zigzag(item.modifiedMilliseconds)
    }
  }
}

/// A version, a deletion or a mutation was refused here, and what follows from it: a block must end in agreement.
package struct Blocked: EventPayload, Hashable {
  package static let kind = EventKind.blocked
  package enum Subject: UInt8, Sendable, CaseIterable { case version = 1, mutation = 2, deletion = 3 }
  package enum Consequence: UInt8, Sendable, CaseIterable { case none = 1, lookup = 2, deleteAgain = 3 }
  package var id: RecordID
  package var subject: Subject
  /// The mutation; none for a version.
  package var lsn: LSN
  /// The version's tag; empty for a mutation.
  package var changeTag: String
  package var births: Set<Birth>
  package var consequence: Consequence
  package var words: String

  package init(
    id: RecordID, subject: Subject, lsn: LSN = .none, changeTag: String = "", births: Set<Birth>,
    consequence: Consequence, words: String
  ) {
    self.id = id
    self.subject = subject
    self.lsn = lsn
    self.changeTag = changeTag
    self.births = births
    self.consequence = consequence
    self.words = words
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    subject = try reader.choice("a subject")
    lsn = LSN(try reader.varint())
    changeTag = try reader.string()
    births = try StampCodec.decodeBirths(from: &reader)
    consequence = try reader.choice("a consequence")
    words = try reader.string()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    bytes.u8(subject.rawValue)
    bytes.varint(lsn.rawValue)
    bytes.string(changeTag)
    StampCodec.encode(births: births, into: &bytes)
    bytes.u8(consequence.rawValue)
    bytes.string(words)
  }
}

/// An asset's content is at the server; its receipt serves for a while.
package struct AssetUploaded: EventPayload, Hashable {
  package static let kind = EventKind.assetUploaded
  package var id: RecordID
  package var lsn: LSN
  package var field: String
  package var receipt: String
  package var wallMilliseconds: Int64

  package init(id: RecordID, lsn: LSN, field: String, receipt: String, wallMilliseconds: Int64) {
    self.id = id
    self.lsn = lsn
    self.field = field
    self.receipt = receipt
    self.wallMilliseconds = wallMilliseconds
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    id = try FieldCodec.decodeID(from: &reader)
    lsn = LSN(try reader.varint())
    field = try reader.string()
    receipt = try reader.string()
    wallMilliseconds = try reader.zigzag()
  }
  package func encode(into bytes: inout ByteWriter) {
    FieldCodec.encode(id, into: &bytes)
    bytes.varint(lsn.rawValue)
    bytes.string(field)
    bytes.string(receipt)
    bytes.zigzag(wallMilliseconds)
  }
}
