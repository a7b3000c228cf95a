// What is known of a deleted name, and what is known of a record together with its name.

/// What is known of a deleted name.
package struct DeletionEntry: Hashable, Sendable {
  /// The lives that were deleted. Empty for a tombstone of a name that was never known here.
  package var births: Set<Birth>
  /// The server's creation time and last tag of the life that was deleted, where known.
  package var createdMilliseconds: Int64?
  package var changeTag: String?
  /// The event that deleted it.
  package var lsn: LSN
  /// A local deletion that the server has not confirmed: the lives that come back if it refuses. Nil otherwise.
  package var provisional: Set<Birth>?
  /// Whether this store's app deleted it; otherwise the server said so.
  package var isLocal: Bool

  package init(
    births: Set<Birth>, createdMilliseconds: Int64? = nil, changeTag: String? = nil, lsn: LSN,
    provisional: Set<Birth>? = nil, isLocal: Bool
  ) {
    self.births = births
    self.createdMilliseconds = createdMilliseconds
    self.changeTag = changeTag
    self.lsn = lsn
    self.provisional = provisional
    self.isLocal = isLocal
  }

  package var isProvisional: Bool { provisional != nil }

  /// The entry without its provisional deletion; nil if nothing else was deleted under the name.
  package var refused: DeletionEntry? {
    guard let provisional else { return self }
    var rest = self
    rest.births.subtract(provisional)
    rest.provisional = nil
    return rest.births.isEmpty ? nil : rest
  }
}

extension DeletionEntry {
  package init(_ item: Deletions.Item) {
    self.init(
      births: item.births, createdMilliseconds: item.createdMilliseconds, changeTag: item.changeTag, lsn: item.lsn,
      provisional: nil, isLocal: item.isLocal)
  }
}

/// What is known of a record: its entry, and whether its name was deleted.
package struct KnownRecord: Sendable {
  package var entry: RecordEntry?
  package var deletion: DeletionEntry?

  package init(entry: RecordEntry? = nil, deletion: DeletionEntry? = nil) {
    self.entry = entry
    self.deletion = deletion
  }
}
