// The names that must not come back, each with the lives that were deleted.
//
// An entry says nothing of another life of the same name: a version is dead only if all its births are dead.
// Entries leave by evidence, never by a clock; nothing removes them yet but the server's refusal of a deletion.

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
  /// Deleted here, by this store's app; otherwise by the server's word.
  package var isLocal: Bool

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

/// The deleted names.
package struct DeletionIndex: Sendable {
  package private(set) var entries: [RecordID: DeletionEntry] = [:]

  package init() {}

  package subscript(id: RecordID) -> DeletionEntry? {
    get { entries[id] }
    set { entries[id] = newValue }
  }

  /// Whether a version with these births is of deleted lives only.
  package func isDead(_ id: RecordID, births: Set<Birth>) -> Bool {
    guard let entry = entries[id], !births.isEmpty, !entry.births.isEmpty else { return false }
    return births.isSubset(of: entry.births)
  }
}
