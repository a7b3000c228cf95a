// Events that compaction writes in place of others: what is known of deleted names, under the LSN of one of the events that
// it stands for; and what is left of a save that a later one stands for, under its own.

/// Deletions that compaction packed: what the deletion index needs of each name to decide as before.
package struct Deletions: EventPayload, Hashable {
  package static let kind = EventKind.deletions
  /// One deleted name.
  package struct Item: Hashable, FieldGroup {
    package static let tableName = "deletedName"
    package static let bytesMin = 4 + 5
    package var id: RecordID
    /// The event that deleted it.
    package var lsn: LSN
    /// Whether this store's app deleted it; otherwise the server said so.
    package var isLocal: Bool
    package var births: Set<Birth>
    package var createdMilliseconds: Int64?
    package var changeTag: String?

    package init(
      id: RecordID, lsn: LSN, isLocal: Bool, births: Set<Birth>, createdMilliseconds: Int64?, changeTag: String?
    ) {
      self.id = id
      self.lsn = lsn
      self.isLocal = isLocal
      self.births = births
      self.createdMilliseconds = createdMilliseconds
      self.changeTag = changeTag
    }
    package init<Coder: FieldCoder>(_ item: Self?, _ field: inout Coder) throws(Coder.Failure) {
      id = try field("record", .id, item?.id)
      lsn = try field("lsn", .lsn, item?.lsn)
      isLocal = try field("isLocal", .flag, item?.isLocal)
      births = try field("births", .births, item?.births)
      createdMilliseconds = try field("created", .optional(.zigzag), item?.createdMilliseconds)
      changeTag = try field("changeTag", .optional(.text), item?.changeTag)
    }
  }
  /// The greatest hybrid time among the events that this replaces; zero if an event that stays has it.
  package var latest: HybridTime
  /// Ascending by record, each once.
  package var items: [Item]

  package init(latest: HybridTime = .zero, items: [Item]) {
    self.latest = latest
    self.items = items
  }
  package init<Coder: FieldCoder>(_ deletions: Self?, _ field: inout Coder) throws(Coder.Failure) {
    latest = try field("latest", .time, deletions?.latest)
    let items = try field("names", .list(.group(Item.self)), deletions?.items)
    try field.require(zip(items, items.dropFirst()).allSatisfy { $0.id < $1.id }, "deleted names out of order")
    self.items = items
  }
}

/// A pending save that is not its record's newest mutation, without its content: the newest alone is sent. It says since
/// when the record has been owed to the server, and to which mutation an answer may be.
package struct Superseded: EventPayload, Hashable {
  package static let kind = EventKind.superseded
  package var id: RecordID
  package var type: String
  package var time: HybridTime

  package init(id: RecordID, type: String, time: HybridTime) {
    self.id = id
    self.type = type
    self.time = time
  }
  package init<Coder: FieldCoder>(_ superseded: Self?, _ field: inout Coder) throws(Coder.Failure) {
    id = try field("record", .id, superseded?.id)
    type = try field("recordType", .text, superseded?.type)
    time = try field("time", .time, superseded?.time)
  }
}
