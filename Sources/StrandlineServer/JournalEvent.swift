// The events of the local server's journal, a log of role `srvr`, and their bytes. Layout: Formats/journal.md.
//
// A record event holds the whole record after the change, so the newest event of a record is its state. It names the
// request and the operation that caused it, so a test can count from the journal how often a change was applied. Frames
// have schema 2; bodies begin with the payload header of a store's events.

package import Strandline
internal import StrandlineSystem

/// The numbers of the journal's events.
package enum JournalEventKind: UInt16, CaseIterable, Sendable {
  /// A server opened the journal; the first event of its first transaction.
  case opened = 1
  case zoneCreated = 2
  case zoneDeleted = 3
  case recordSaved = 4
  case recordDeleted = 5
}

/// Identifies a database: every container, environment, scope and user has its own.
package struct DatabaseKey: Hashable, Sendable {
  package var container: String
  package var environment: String
  package var scope: DatabaseScope
  /// Empty for the public database.
  package var user: String

  package init(container: String, environment: String, scope: DatabaseScope, user: String) {
    self.container = container
    self.environment = environment
    self.scope = scope
    self.user = user
  }

  package static func == (left: DatabaseKey, right: DatabaseKey) -> Bool {
    left.scope == right.scope && left.user.equalsUTF8(right.user) && left.container.equalsUTF8(right.container)
      && left.environment.equalsUTF8(right.environment)
  }

  package func hash(into hasher: inout Hasher) {
    hasher.combine(scope)
    for text in [user, container, environment] { text.hashUTF8(into: &hasher) }
  }
}

/// The cause of a change: an operation of a request, or the deletion of a record that this one referred to.
package struct JournalCause: Hashable, FieldGroup {
  package static let tableName = "cause"
  package static let bytesMin = 1 + 2 + 1
  /// 16 bytes.
  package var requestUUID: [UInt8]
  /// The operation's place in its request, counted from 0.
  package var operation: UInt16
  /// Whether the record was deleted with its target (DELETE_SELF) and not named in the request.
  package var isCascade: Bool

  package init(requestUUID: [UInt8], operation: UInt16, isCascade: Bool) {
    self.requestUUID = requestUUID
    self.operation = operation
    self.isCascade = isCascade
  }
  package init<Coder: FieldCoder>(_ cause: Self?, _ field: inout Coder) throws(Coder.Failure) {
    requestUUID = try field("requestUUID", .bytes, cause?.requestUUID)
    operation = try field("operation", .u16, cause?.operation)
    isCascade = try field("isCascade", .flag, cause?.isCascade)
  }
}

/// A record after a change.
package struct JournalRecord: Hashable, FieldDescribed {
  /// The zone's life.
  package var zone: UInt64
  package var name: String
  package var type: String
  package var parent: String?
  package var tag: String
  package var created: ServerTimestamp
  package var modified: ServerTimestamp
  package var cause: JournalCause
  package var fields: [String: FieldValue]

  package init(
    zone: UInt64, name: String, type: String, parent: String?, tag: String, created: ServerTimestamp,
    modified: ServerTimestamp,
    cause: JournalCause, fields: [String: FieldValue]
  ) {
    self.zone = zone
    self.name = name
    self.type = type
    self.parent = parent
    self.tag = tag
    self.created = created
    self.modified = modified
    self.cause = cause
    self.fields = fields
  }
  package init<Coder: FieldCoder>(_ record: Self?, _ field: inout Coder) throws(Coder.Failure) {
    zone = try field("life", .u64, record?.zone)
    name = try field("name", .text, record?.name)
    type = try field("recordType", .text, record?.type)
    parent = try field("parent", .optional(.text), record?.parent)
    tag = try field("changeTag", .text, record?.tag)
    created = try field("created", .touch, record?.created)
    modified = try field("modified", .touch, record?.modified)
    cause = try field("cause", .group(JournalCause.self), record?.cause)
    fields = try field("fields", ServerFieldsType(), record?.fields)
  }
}

/// One field of a record, as the journal holds it.
private struct ServerField: FieldGroup {
  static let tableName = "serverField"
  static let bytesMin = 1 + 1
  var name: String
  var value: FieldValue?

  init(name: String, value: FieldValue) {
    self.name = name
    self.value = value
  }
  init<Coder: FieldCoder>(_ one: Self?, _ field: inout Coder) throws(Coder.Failure) {
    name = try field("name", .text, one?.name)
    let value = try field("value", .value, one?.value)
    try field.require(value != nil, "a field of the value null")
    self.value = value
  }
}

/// A record's fields. Written in ascending order of their names; of two of one name the later one counts.
private struct ServerFieldsType: FieldType {
  var name: String { "\(ServerField.tableName)*" }
  var bytesMin: Int { 1 }
  func read(from reader: inout ByteReader) throws(ByteReaderError) -> [String: FieldValue] {
    var fields: [String: FieldValue] = [:]
    for _ in 0..<(try reader.count(minimumBytes: ServerField.bytesMin)) {
      let field = try ServerField(nil, &reader)
      fields[field.name] = field.value
    }
    return fields
  }
  func write(_ value: [String: FieldValue], to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    for field in Self.sorted(value) { _ = ServerField(field, &writer) }
  }
  func content(of value: [String: FieldValue]) -> FieldContent {
    .list(Self.sorted(value).map { GroupType<ServerField>().content(of: $0) })
  }

  private static func sorted(_ fields: [String: FieldValue]) -> [ServerField] {
    fields.sorted { $0.key.precedesByUTF8($1.key) }.map { ServerField(name: $0.key, value: $0.value) }
  }
}

/// One event.
package enum JournalEvent: Hashable, Sendable {
  case opened(tenure: UInt64)
  /// `life` is drawn at random: a zone of the same name that comes later is another zone.
  case zoneCreated(life: UInt64, DatabaseKey, name: String)
  case zoneDeleted(life: UInt64)
  case recordSaved(JournalRecord)
  case recordDeleted(zone: UInt64, name: String, JournalCause)
}

/// An event of the journal cannot be decoded, or contradicts the events before it.
package struct JournalEventError: Error, Hashable, Sendable, CustomStringConvertible {
  package var description: String
  /// The event's kind or version is one that a newer version of the server writes.
  package var isFromNewerVersion = false

  /// The public form, of the event at an LSN.
  package func publicError(in directory: String, at lsn: LSN) -> StrandlineError {
    StrandlineError(
      isFromNewerVersion ? .fromTheFuture : .damaged, "the server's journal in '\(directory)': \(self)",
      file: directory, lsns: lsn...lsn)
  }
}

extension JournalEvent {
  /// The number that frames of the journal carry.
  package static let schema: UInt16 = 2
  package static let version: UInt8 = 1

  package var kind: JournalEventKind {
    switch self {
    case .opened: .opened
    case .zoneCreated: .zoneCreated
    case .zoneDeleted: .zoneDeleted
    case .recordSaved: .recordSaved
    case .recordDeleted: .recordDeleted
    }
  }

  /// The event's body.
  package func encoded() -> [UInt8] {
    var writer = ByteWriter()
    _ = PayloadHeader(PayloadHeader(kind: kind.rawValue, version: Self.version, flags: 0), &writer)
    _ = JournalEvent(kind, self, &writer)
    return writer.bytes
  }

  /// The fields behind the payload header, in the order of their bytes.
  package var listedFields: [ListedField] {
    var list = FieldList()
    _ = JournalEvent(kind, self, &list)
    return list.fields
  }

  /// Decodes a body; nil for an unknown kind that a reader may skip.
  package static func decode(_ body: [UInt8]) throws(JournalEventError) -> JournalEvent? {
    let header: PayloadHeader
    do throws(ByteReaderError) {
      var reader = ByteReader(body)
      header = try PayloadHeader(nil, &reader)
      if let kind = JournalEventKind(rawValue: header.kind), header.version == Self.version {
        let event = try JournalEvent(kind, nil, &reader)
        guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the event") }
        return event
      }
    } catch {
      throw JournalEventError(description: "an event that cannot be read: \(error)")
    }
    if header.isSkippable { return nil }
    throw JournalEventError(
      description: "an event of kind \(header.kind), version \(header.version), which this version does not know",
      isFromNewerVersion: true)
  }

  // MARK: The layout of each kind

  private init<Coder: FieldCoder>(
    _ kind: JournalEventKind, _ event: JournalEvent?, _ field: inout Coder
  ) throws(Coder.Failure) {
    switch kind {
    case .opened:
      self = .opened(tenure: try field("tenure", .u64, event?.tenure))
    case .zoneCreated:
      let life = try field("life", .u64, event?.life)
      let key = DatabaseKey(
        container: try field("container", .text, event?.database?.container),
        environment: try field("environment", .text, event?.database?.environment),
        scope: try field("scope", .choice(DatabaseScope.self), event?.database?.scope),
        user: try field("user", .text, event?.database?.user))
      self = .zoneCreated(life: life, key, name: try field("name", .text, event?.name))
    case .zoneDeleted:
      self = .zoneDeleted(life: try field("life", .u64, event?.life))
    case .recordSaved:
      self = .recordSaved(try JournalRecord(event?.record, &field))
    case .recordDeleted:
      let life = try field("life", .u64, event?.life)
      let name = try field("name", .text, event?.name)
      self = .recordDeleted(zone: life, name: name, try field("cause", .group(JournalCause.self), event?.cause))
    }
  }

  private var tenure: UInt64? {
    guard case .opened(let tenure) = self else { return nil }
    return tenure
  }

  private var life: UInt64? {
    switch self {
    case .opened: nil
    case .zoneCreated(let life, _, _), .zoneDeleted(let life), .recordDeleted(let life, _, _): life
    case .recordSaved(let record): record.zone
    }
  }

  private var database: DatabaseKey? {
    guard case .zoneCreated(_, let database, _) = self else { return nil }
    return database
  }

  private var name: String? {
    switch self {
    case .opened, .zoneDeleted: nil
    case .zoneCreated(_, _, let name), .recordDeleted(_, let name, _): name
    case .recordSaved(let record): record.name
    }
  }

  private var record: JournalRecord? {
    guard case .recordSaved(let record) = self else { return nil }
    return record
  }

  private var cause: JournalCause? {
    switch self {
    case .opened, .zoneCreated, .zoneDeleted: nil
    case .recordSaved(let record): record.cause
    case .recordDeleted(_, _, let cause): cause
    }
  }
}
