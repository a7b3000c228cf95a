// What the local server remembers: its own events, in a log of role `srvr`, and their bytes.
//
// A record event holds the whole record after the change, so that the newest event of a record answers for it. It
// names the request and the operation that caused it: how often a change was applied can be counted here, and
// not only believed from what clients say. Frames carry schema 2; bodies begin with kind u16, version u8, flags
// u8 (bit 0: a reader that does not know the kind may skip it).

package import Strandline
internal import StrandlineSystem

/// The numbers of the journal's events.
package enum JournalEventKind: UInt16, CaseIterable, Sendable {
  /// A writer began: the first event of its first transaction.
  case opened = 1
  case zoneCreated = 2
  case zoneDeleted = 3
  case recordSaved = 4
  case recordDeleted = 5
}

/// Which database: every container, environment, scope and user has its own.
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
}

/// What made a change: an operation of a request, or the deletion of a record that this one referred to.
package struct JournalCause: Hashable, Sendable {
  /// 16 bytes.
  package var requestUUID: [UInt8]
  /// The operation's place in its request.
  package var operation: UInt16
  /// Whether the record itself was not named: it followed its target (DELETE_SELF).
  package var isCascade: Bool

  package init(requestUUID: [UInt8], operation: UInt16, isCascade: Bool) {
    self.requestUUID = requestUUID
    self.operation = operation
    self.isCascade = isCascade
  }
}

/// A record after a change.
package struct JournalRecord: Hashable, Sendable {
  /// The zone's life.
  package var zone: UInt64
  package var name: String
  package var type: String
  package var parent: String?
  package var tag: String
  package var created: Touch
  package var modified: Touch
  package var cause: JournalCause
  package var fields: [String: FieldValue]

  package init(
    zone: UInt64, name: String, type: String, parent: String?, tag: String, created: Touch, modified: Touch,
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

/// A body that is no event of the journal.
package struct JournalEventError: Error, Hashable, Sendable, CustomStringConvertible {
  package var description: String
  /// A later version of Strandline wrote the event; otherwise its bytes are not those of any event.
  package var isOfNewerVersion = false
}

extension JournalEvent {
  /// The number that frames of the journal carry.
  package static let schema: UInt16 = 2
  package static let version: UInt8 = 1
  package static let skippableFlag: UInt8 = 1

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
    writer.u16(kind.rawValue)
    writer.u8(Self.version)
    writer.u8(0)
    switch self {
    case .opened(let tenure): writer.u64(tenure)
    case .zoneCreated(let life, let key, let name):
      writer.u64(life)
      writer.string(key.container)
      writer.string(key.environment)
      writer.u8(key.scope.rawValue)
      writer.string(key.user)
      writer.string(name)
    case .zoneDeleted(let life): writer.u64(life)
    case .recordSaved(let record): Self.write(record, into: &writer)
    case .recordDeleted(let zone, let name, let cause):
      writer.u64(zone)
      writer.string(name)
      Self.write(cause, into: &writer)
    }
    return writer.bytes
  }

  private static func write(_ cause: JournalCause, into writer: inout ByteWriter) {
    writer.blob(cause.requestUUID)
    writer.u16(cause.operation)
    writer.u8(cause.isCascade ? 1 : 0)
  }

  private static func write(_ touch: Touch, into writer: inout ByteWriter) {
    writer.zigzag(touch.milliseconds)
    writer.string(touch.user)
    writer.string(touch.device)
  }

  private static func write(_ record: JournalRecord, into writer: inout ByteWriter) {
    writer.u64(record.zone)
    writer.string(record.name)
    writer.string(record.type)
    writer.u8(record.parent == nil ? 0 : 1)
    if let parent = record.parent { writer.string(parent) }
    writer.string(record.tag)
    write(record.created, into: &writer)
    write(record.modified, into: &writer)
    write(record.cause, into: &writer)
    writer.varint(UInt64(record.fields.count))
    for (name, value) in record.fields.sorted(by: { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }) {
      writer.string(name)
      FieldCodec.encode(value, into: &writer)
    }
  }

  /// Reads a body; nil for a kind that is not known and says that it may be skipped.
  package static func decode(_ body: [UInt8]) throws(JournalEventError) -> JournalEvent? {
    var reader = ByteReader(body)
    do {
      let number = try reader.u16()
      let version = try reader.u8()
      let flags = try reader.u8()
      guard let kind = JournalEventKind(rawValue: number), version == Self.version else {
        if flags & skippableFlag != 0 { return nil }
        throw JournalEventError(
          description: "an event of kind \(number), version \(version), which this version does not know",
          isOfNewerVersion: true)
      }
      let event = try decode(kind, from: &reader)
      guard reader.isAtEnd else { throw JournalEventError(description: "\(reader.remaining) bytes after an event") }
      return event
    } catch let error as JournalEventError {
      throw error
    } catch {
      throw JournalEventError(description: "an event that cannot be read: \(error)")
    }
  }

  private static func decode(_ kind: JournalEventKind, from reader: inout ByteReader) throws -> JournalEvent {
    switch kind {
    case .opened: return .opened(tenure: try reader.u64())
    case .zoneCreated:
      let life = try reader.u64()
      let container = try reader.string()
      let environment = try reader.string()
      guard let scope = DatabaseScope(rawValue: try reader.u8()) else {
        throw JournalEventError(description: "a zone of an unknown database scope")
      }
      let key = DatabaseKey(container: container, environment: environment, scope: scope, user: try reader.string())
      return .zoneCreated(life: life, key, name: try reader.string())
    case .zoneDeleted: return .zoneDeleted(life: try reader.u64())
    case .recordSaved: return .recordSaved(try record(from: &reader))
    case .recordDeleted:
      return .recordDeleted(zone: try reader.u64(), name: try reader.string(), try cause(from: &reader))
    }
  }

  private static func cause(from reader: inout ByteReader) throws -> JournalCause {
    JournalCause(
      requestUUID: try reader.blob(), operation: try reader.u16(), isCascade: try reader.u8() != 0)
  }

  private static func touch(from reader: inout ByteReader) throws -> Touch {
    Touch(milliseconds: try reader.zigzag(), user: try reader.string(), device: try reader.string())
  }

  private static func record(from reader: inout ByteReader) throws -> JournalRecord {
    let zone = try reader.u64()
    let name = try reader.string()
    let type = try reader.string()
    let parent = try reader.u8() == 0 ? nil : try reader.string()
    var record = JournalRecord(
      zone: zone, name: name, type: type, parent: parent, tag: try reader.string(), created: try touch(from: &reader),
      modified: try touch(from: &reader), cause: try cause(from: &reader), fields: [:])
    for _ in 0..<(try reader.count(minimumBytes: 2)) {
      let field = try reader.string()
      guard let value = try FieldCodec.decode(from: &reader) else {
        throw JournalEventError(description: "a field of the value null")
      }
      record.fields[field] = value
    }
    return record
  }
}
