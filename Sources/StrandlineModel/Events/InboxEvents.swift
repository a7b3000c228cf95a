// Events of writing for a store that another process has open: what is left in its inbox, and how far the store has read it.
//
// An inbox is a log of its own. It holds `inboxChange` alone, and `inboxRead` where an older copy of it was put back; a store's
// log holds the others.

import StrandlineSystem

/// A change of one record that another process has left for the store. Those of one transaction are taken in together.
package struct InboxChange: EventPayload, Hashable {
  package static let kind = EventKind.inboxChange

  /// What is to become of the record.
  package enum Operation: UInt8, Sendable, CaseIterable {
    /// It begins, unless it lives by now: then its fields are changed.
    case save = 1
    /// A life begins, also of a name that was deleted.
    case create = 2
    case edit = 3
    case delete = 4
  }

  /// A field that is changed.
  package struct Field: FieldGroup, Hashable {
    package static var tableName: String { "inboxField" }
    package static var bytesMin: Int { 4 }
    package var name: String
    /// Whether it is known what the field was.
    package var isBeforeKnown: Bool
    /// What the other process made its change from.
    package var before: FieldValue?
    package var after: FieldValue?

    package init(name: String, before: FieldValue??, after: FieldValue?) {
      self.name = name
      isBeforeKnown = if case .some = before { true } else { false }
      self.before = before ?? nil
      self.after = after
    }
    package init<Coder: FieldCoder>(_ changed: Self?, _ field: inout Coder) throws(Coder.Failure) {
      name = try field("name", .text, changed?.name)
      isBeforeKnown = try field("isBeforeKnown", .flag, changed?.isBeforeKnown)
      before = try field("before", .value, changed.map { $0.before })
      after = try field("after", .value, changed.map { $0.after })
    }
  }

  /// The store for which it was left.
  package var storeUUID: [UInt8]
  package var id: RecordID
  package var operation: Operation
  package var type: String
  /// The life that it begins, or those that the record had that it changes.
  package var births: Set<Birth>
  /// When the other process wrote it.
  package var time: HybridTime
  package var fields: [Field]

  package init(
    storeUUID: [UInt8], id: RecordID, operation: Operation, type: String, births: Set<Birth>, time: HybridTime,
    fields: [Field] = []
  ) {
    self.storeUUID = storeUUID
    self.id = id
    self.operation = operation
    self.type = type
    self.births = births
    self.time = time
    self.fields = fields
  }
  package init<Coder: FieldCoder>(_ change: Self?, _ field: inout Coder) throws(Coder.Failure) {
    storeUUID = try field("storeUUID", .raw16, change?.storeUUID)
    id = try field("record", .id, change?.id)
    operation = try field("operation", .choice(Operation.self), change?.operation)
    type = try field("recordType", .text, change?.type)
    births = try field("births", .births, change?.births)
    time = try field("time", .time, change?.time)
    fields = try field("fields", .list(.group(Field.self)), change?.fields)
  }
}

/// The store has read an inbox up to a position, and holds what it took in: in the same transaction, so that no change of
/// the inbox is lost or made twice.
package struct InboxRead: EventPayload, Hashable {
  package static let kind = EventKind.inboxRead
  /// The UUID of the inbox's log.
  package var inbox: [UInt8]
  /// The last event of that log that was read.
  package var position: LSN

  package init(inbox: [UInt8], position: LSN) {
    self.inbox = inbox
    self.position = position
  }
  package init<Coder: FieldCoder>(_ read: Self?, _ field: inout Coder) throws(Coder.Failure) {
    inbox = try field("inbox", .raw16, read?.inbox)
    position = try field("position", .lsn, read?.position)
  }
}

/// A transaction of an inbox that the store could not take in. It is kept until the app has decided about it.
package struct InboxRefused: EventPayload, Hashable {
  package static let kind = EventKind.inboxRefused
  /// The error's code.
  package var code: String
  package var words: String
  package var wallMilliseconds: Int64
  /// Its `inboxChange` events.
  package var changes: [[UInt8]]

  package init(code: String, words: String, wallMilliseconds: Int64, changes: [[UInt8]]) {
    self.code = code
    self.words = words
    self.wallMilliseconds = wallMilliseconds
    self.changes = changes
  }
  package init<Coder: FieldCoder>(_ refused: Self?, _ field: inout Coder) throws(Coder.Failure) {
    code = try field("code", .text, refused?.code)
    words = try field("words", .text, refused?.words)
    wallMilliseconds = try field("wall", .zigzag, refused?.wallMilliseconds)
    changes = try field("changes", .list(.bytes), refused?.changes)
  }
}

/// The app has decided about a transaction that the store could not take in.
package struct InboxRefusalEnded: EventPayload, Hashable {
  package static let kind = EventKind.inboxRefusalEnded
  /// The `inboxRefused` event.
  package var lsn: LSN

  package init(lsn: LSN) { self.lsn = lsn }
  package init<Coder: FieldCoder>(_ ended: Self?, _ field: inout Coder) throws(Coder.Failure) {
    lsn = try field("lsn", .lsn, ended?.lsn)
  }
}
