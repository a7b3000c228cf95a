// Events of the exchange with the server: what was sent, what became of it, what was fetched, merged and blocked.

/// A request is about to be sent. Durable before it is, so that a mutation without one was never sent.
package struct Sent: EventPayload, Hashable {
  package static let kind = EventKind.sent
  /// A random number for the request's batch.
  package var batch: UInt64
  package var zone: ZoneID
  /// The mutations in it, ascending.
  package var lsns: [LSN]

  package init(batch: UInt64, zone: ZoneID, lsns: [LSN]) {
    self.batch = batch
    self.zone = zone
    self.lsns = lsns
  }
  package init<Coder: FieldCoder>(_ sent: Self?, _ field: inout Coder) throws(Coder.Failure) {
    batch = try field("batch", .u64, sent?.batch)
    zone = try field("zone", .zone, sent?.zone)
    lsns = try field("lsns", .ascendingLSNs, sent?.lsns)
  }
}

/// The server refused the only request that carried the mutation, which begins a life: nothing of it was applied, and it is
/// still owed.
package struct Refused: EventPayload, Hashable {
  package static let kind = EventKind.refused
  package var id: RecordID
  package var lsn: LSN

  package init(id: RecordID, lsn: LSN) {
    self.id = id
    self.lsn = lsn
  }
  package init<Coder: FieldCoder>(_ refused: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, refused?.id)
    lsn = try field("lsn", .lsn, refused?.lsn)
  }
}

/// What became of a mutation.
package enum Outcome: UInt8, Hashable, Sendable, CaseIterable {
  /// The server has it.
  case saved = 1
  /// The server has deleted the record for us, or it was gone already.
  case deleted = 2
  /// A later version of the server includes it, or includes what it was merged to.
  case merged = 3
  /// A later mutation, or another life of the name, replaced it.
  case superseded = 4
  /// There was nothing to send: created and deleted before a request carried it.
  case cancelled = 5
  /// The record was deleted at the server; the edit is not sent.
  case deletedOnServer = 6
  /// The server refused it for good.
  case rejected = 7
  /// The app gave it up.
  case discarded = 8
  /// It lost a conflict: nothing of what it changed is at the server, as the `conflicted` beside it says.
  case lost = 9
}

/// A mutation, and every earlier one of the same record, is no longer owed to the server.
package struct Settled: EventPayload, Hashable {
  package static let kind = EventKind.settled
  package var id: RecordID
  package var lsn: LSN
  package var outcome: Outcome
  /// The server's version after it; nil where there is none, or where it is known already.
  package var changeTag: String?
  package var created: ServerTimestamp?
  package var modified: ServerTimestamp?
  /// What the transport keeps with that version; empty on the web.
  package var archive: [UInt8]
  /// The server's error code and reason, if it refused; else empty.
  package var code: String
  package var words: String

  package init(
    id: RecordID, lsn: LSN, outcome: Outcome, changeTag: String? = nil, created: ServerTimestamp? = nil,
    modified: ServerTimestamp? = nil, archive: [UInt8] = [], code: String = "", words: String = ""
  ) {
    self.id = id
    self.lsn = lsn
    self.outcome = outcome
    self.changeTag = changeTag
    self.created = created
    self.modified = modified
    self.archive = archive
    self.code = code
    self.words = words
  }
  package init<Coder: FieldCoder>(_ settled: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, settled?.id)
    lsn = try field("lsn", .lsn, settled?.lsn)
    outcome = try field("outcome", .choice(Outcome.self), settled?.outcome)
    changeTag = try field("changeTag", .optional(.text), settled?.changeTag)
    created = try field("created", .optional(.touch), settled?.created)
    modified = try field("modified", .optional(.touch), settled?.modified)
    archive = try field("archive", .bytes, settled?.archive)
    code = try field("code", .text, settled?.code)
    words = try field("words", .text, settled?.words)
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
  /// The fields that were changed here, and the server's others.
  package static let clientWinsRule = "clientWins"
  /// What a resolver of the app made of both.
  package static let resolverRule = "resolver"
  /// A life that begins with the edit, because its type's edits win over deletions.
  package static let reviveRule = "revive"
  package var id: RecordID
  package var type: String
  package var births: Set<Birth>
  /// The server version's event.
  package var base: LSN
  /// The local mutation that was merged.
  package var local: LSN
  /// The event with the version that both sides were made from; none if it is not known.
  package var ancestor: LSN
  package var time: HybridTime
  package var editCount: UInt64
  package var tenure: UInt64
  /// The rule's name.
  package var rule: String
  /// Why it is not the rule that the app declared; else empty.
  package var words: String
  package var content: EncodedContent

  package init(
    id: RecordID, version: Version, dirty: [String: LSN], base: LSN, local: LSN, ancestor: LSN = .zero,
    time: HybridTime, editCount: UInt64, tenure: UInt64, rule: String, words: String = ""
  ) {
    self.id = id
    self.type = version.type
    self.births = version.stamp.births
    self.base = base
    self.local = local
    self.ancestor = ancestor
    self.time = time
    self.editCount = editCount
    self.tenure = tenure
    self.rule = rule
    self.words = words
    self.content = EncodedContent(version, dirty: dirty)
  }
  package init<Coder: FieldCoder>(_ merged: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, merged?.id)
    type = try field("recordType", .text, merged?.type)
    births = try field("births", .births, merged?.births)
    base = try field("base", .lsn, merged?.base)
    local = try field("local", .lsn, merged?.local)
    ancestor = try field("ancestor", .lsn, merged?.ancestor)
    time = try field("time", .time, merged?.time)
    editCount = try field("editCount", .varint, merged?.editCount)
    tenure = try field("tenure", .u64, merged?.tenure)
    rule = try field("rule", .text, merged?.rule)
    words = try field("words", .text, merged?.words)
    content = try field("content", .content, merged?.content)
  }
}

/// What was changed here met a change of the server's, and one of the two lost, or both were put together: which
/// side lost, in which fields, by which rule. No record follows from it. Compaction keeps it as long as the record lives,
/// also when the versions that it names are gone.
package struct Conflicted: EventPayload, Hashable {
  package static let kind = EventKind.conflicted
  /// The server's version wins as a whole.
  package static let serverWinsRule = "serverWins"
  /// The record was deleted, and a deletion wins.
  package static let deletionRule = "deletion"
  /// The server keeps the type of a record that lives.
  package static let typeRule = "type"
  package enum Loser: UInt8, Hashable, Sendable, CaseIterable {
    /// Both changes are in the result.
    case none = 1
    /// The change of here.
    case here = 2
    /// The server's.
    case there = 3
    /// Something else has taken the place of both.
    case both = 4

    package init(here: Bool, there: Bool) { self = here ? (there ? .both : .here) : there ? .there : .none }
    package var isHere: Bool { self == .here || self == .both }
  }
  package struct Field: Hashable, FieldGroup {
    package static let tableName = "conflictedField"
    package static let bytesMin = 3
    package var name: String
    package var rule: String
    package var loser: Loser

    package init(name: String, rule: String, loser: Loser) {
      self.name = name
      self.rule = rule
      self.loser = loser
    }
    package init<Coder: FieldCoder>(_ one: Self?, _ field: inout Coder) throws(Coder.Failure) {
      name = try field("name", .text, one?.name)
      rule = try field("rule", .text, one?.rule)
      loser = try field("loser", .choice(Loser.self), one?.loser)
    }
  }
  package var id: RecordID
  /// The mutation of here.
  package var local: LSN
  /// The server's version, or its deletion; of a save that a rule refused in part, what this store had.
  package var server: LSN
  /// The event with the version that both sides were made from; none if it is not known.
  package var ancestor: LSN
  package var wallMilliseconds: Int64
  /// The rule of the record.
  package var rule: String
  /// Why it is not the rule that the app declared, or which rule gave the mutation up; else empty.
  package var words: String
  /// The fields that a rule decided, in the order of their names; none where a deletion lost, and where what lost was no field.
  package var fields: [Field]

  package init(
    id: RecordID, local: LSN, server: LSN, ancestor: LSN, wallMilliseconds: Int64, rule: String, words: String,
    fields: [Field]
  ) {
    self.id = id
    self.local = local
    self.server = server
    self.ancestor = ancestor
    self.wallMilliseconds = wallMilliseconds
    self.rule = rule
    self.words = words
    self.fields = fields
  }
  package init<Coder: FieldCoder>(_ conflicted: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, conflicted?.id)
    local = try field("local", .lsn, conflicted?.local)
    server = try field("server", .lsn, conflicted?.server)
    ancestor = try field("ancestor", .lsn, conflicted?.ancestor)
    wallMilliseconds = try field("wall", .zigzag, conflicted?.wallMilliseconds)
    rule = try field("rule", .text, conflicted?.rule)
    words = try field("words", .text, conflicted?.words)
    fields = try field("fields", .list(.group(Field.self)), conflicted?.fields)
  }
}

/// A version that the server holds. Its stamp was compared with its values and clamped before it was written here, so a
/// merge compares these stamps as they are.
package struct FetchedSave: EventPayload {
  package static let kind = EventKind.fetchedSave
  package enum Source: UInt8, Sendable, CaseIterable { case feed = 1, lookup = 2, query = 3 }
  package var id: RecordID
  package var type: String
  package var births: Set<Birth>
  package var changeTag: String
  package var created: ServerTimestamp?
  package var modified: ServerTimestamp?
  package var source: Source
  /// Whether the version brought a stamp.
  package var isStamped: Bool
  /// The greatest time in its stamp.
  package var latest: HybridTime
  /// Top-level keys of the server's JSON that we do not know.
  package var unknown: [UInt8]
  /// What the transport keeps with the version; empty on the web.
  package var archive: [UInt8]
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
    self.archive = system.archive
    self.content = EncodedContent(version)
  }
  package init<Coder: FieldCoder>(_ fetched: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, fetched?.id)
    type = try field("recordType", .text, fetched?.type)
    births = try field("births", .births, fetched?.births)
    changeTag = try field("changeTag", .text, fetched?.changeTag)
    created = try field("created", .optional(.touch), fetched?.created)
    modified = try field("modified", .optional(.touch), fetched?.modified)
    source = try field("source", .choice(Source.self), fetched?.source)
    isStamped = try field("isStamped", .flag, fetched?.isStamped)
    latest = try field("latest", .time, fetched?.latest)
    unknown = try field("unknownKeys", .bytes, fetched?.unknown)
    archive = try field("archive", .bytes, fetched?.archive)
    content = try field("content", .content, fetched?.content)
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
  /// The births that this log knew under the name; none for a name that it never held.
  package var births: Set<Birth>
  package var reason: Reason

  package init(id: RecordID, births: Set<Birth>, reason: Reason) {
    self.id = id
    self.births = births
    self.reason = reason
  }
  package init<Coder: FieldCoder>(_ fetched: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, fetched?.id)
    births = try field("births", .births, fetched?.births)
    reason = try field("reason", .choice(Reason.self), fetched?.reason)
  }
}

/// Names seen again while a sweep was open.
package struct Confirmed: EventPayload, Hashable {
  package static let kind = EventKind.confirmed
  package var zone: ZoneID
  package var names: [String]
  /// Since when the zone is known to exist: another one of that name was made later.
  package var age: ZoneAge

  package init(zone: ZoneID, names: [String], age: ZoneAge) {
    self.zone = zone
    self.names = names
    self.age = age
  }
  package init<Coder: FieldCoder>(_ confirmed: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, confirmed?.zone)
    names = try field("names", .list(.text), confirmed?.names)
    age = ZoneAge(
      lsn: try field("knownFrom", .optional(.lsn), confirmed?.age.lsn),
      milliseconds: try field("knownSince", .optional(.zigzag), confirmed?.age.milliseconds))
  }
}

/// Names of a page that the server listed without their records, which are still to be fetched; in the page's own transaction.
package struct Listed: EventPayload, Hashable {
  package static let kind = EventKind.listed
  package struct Item: Hashable, FieldGroup {
    package static let tableName = "listedItem"
    package static let bytesMin = 3
    package var name: String
    package var changeTag: String
    package var modifiedMilliseconds: Int64

    package init(name: String, changeTag: String, modifiedMilliseconds: Int64) {
      self.name = name
      self.changeTag = changeTag
      self.modifiedMilliseconds = modifiedMilliseconds
    }
    package init<Coder: FieldCoder>(_ item: Self?, _ field: inout Coder) throws(Coder.Failure) {
      name = try field("name", .text, item?.name)
      changeTag = try field("changeTag", .text, item?.changeTag)
      modifiedMilliseconds = try field("modified", .zigzag, item?.modifiedMilliseconds)
    }
  }
  package var zone: ZoneID
  package var items: [Item]

  package init(zone: ZoneID, items: [Item]) {
    self.zone = zone
    self.items = items
  }
  package init<Coder: FieldCoder>(_ listed: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, listed?.zone)
    items = try field("items", .list(.group(Item.self)), listed?.items)
  }
}

/// What some `listed` events name is here, or the server does not have it; in the transaction of the last answer.
package struct ListedEnded: EventPayload, Hashable {
  package static let kind = EventKind.listedEnded
  package var zone: ZoneID
  /// The `listed` events, in ascending order.
  package var lsns: [LSN]

  package init(zone: ZoneID, lsns: [LSN]) {
    self.zone = zone
    self.lsns = lsns
  }
  package init<Coder: FieldCoder>(_ ended: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("zone", .zone, ended?.zone)
    lsns = try field("lsns", .ascendingLSNs, ended?.lsns)
  }
}

/// A version, a deletion or a mutation was not applied here, and what has to be asked of the server because of it.
package struct Blocked: EventPayload, Hashable {
  package static let kind = EventKind.blocked
  package enum Subject: UInt8, Sendable, CaseIterable { case version = 1, mutation = 2, deletion = 3 }
  package enum Consequence: UInt8, Sendable, CaseIterable { case none = 1, lookup = 2, deleteAgain = 3 }
  package var id: RecordID
  package var subject: Subject
  /// The mutation. For a version that shows that the server went back in time: the event of the version here that the server
  /// once acknowledged; none for any other version. For a deletion of which nothing says more than that a full fetch did not show
  /// the record: the event of the version here; none for one that the feed shows.
  package var lsn: LSN
  /// The version's tag; empty for a mutation.
  package var changeTag: String
  package var births: Set<Birth>
  package var consequence: Consequence
  package var words: String

  package init(
    id: RecordID, subject: Subject, lsn: LSN = .zero, changeTag: String = "", births: Set<Birth>,
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
  package init<Coder: FieldCoder>(_ blocked: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, blocked?.id)
    subject = try field("subject", .choice(Subject.self), blocked?.subject)
    lsn = try field("lsn", .lsn, blocked?.lsn)
    changeTag = try field("changeTag", .text, blocked?.changeTag)
    births = try field("births", .births, blocked?.births)
    consequence = try field("consequence", .choice(Consequence.self), blocked?.consequence)
    words = try field("words", .text, blocked?.words)
  }
}

/// An asset's content was uploaded; the record can name the receipt until it expires.
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
  package init<Coder: FieldCoder>(_ uploaded: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, uploaded?.id)
    lsn = try field("lsn", .lsn, uploaded?.lsn)
    self.field = try field("field", .text, uploaded?.field)
    receipt = try field("receipt", .text, uploaded?.receipt)
    wallMilliseconds = try field("wall", .zigzag, uploaded?.wallMilliseconds)
  }
}
