// Where each record stands in the log: at most two LSNs, those of its base and of its newest unsettled mutation. Values
// stay in the log.
//
// The view is the newest unsettled mutation's after-image, else the base. Projections never merge.

/// The last version of a record that the server is known to hold.
package struct Base: Hashable, Sendable {
  /// The event that says that the server holds it: a `fetchedSave`, or the `settled` of an upload.
  package var version: LSN
  /// The event that holds the values: the same `fetchedSave`, or the mutation that was acknowledged.
  package var content: LSN
  package var changeTag: String
  package var createdMilliseconds: Int64?
  package var modifiedMilliseconds: Int64?

  package init(
    version: LSN, content: LSN, changeTag: String, createdMilliseconds: Int64? = nil, modifiedMilliseconds: Int64? = nil
  ) {
    self.version = version
    self.content = content
    self.changeTag = changeTag
    self.createdMilliseconds = createdMilliseconds
    self.modifiedMilliseconds = modifiedMilliseconds
  }
}

/// What the server is owed of a record: its unsettled mutations, of which the newest alone is enough to send. However many
/// there are, this stays as small.
package struct Pending: Hashable, Sendable {
  /// Whether the newest mutation is a deletion.
  package var isDeletion: Bool
  /// The newest unsettled mutation.
  package var newest: LSN
  /// Most records have one unsettled mutation, and an entry in memory has no room for what else there may be.
  private var others: Others

  private enum Others: Hashable, Sendable {
    case none
    indirect case some(first: LSN, attempts: [Attempt], since: LSN)
  }

  /// A mutation that a request may have carried, whose outcome is not known, and that is not the newest any more.
  package struct Attempt: Hashable, Sendable {
    package var lsn: LSN
    /// The record's next mutation.
    package var next: LSN

    package init(lsn: LSN, next: LSN) {
      self.lsn = lsn
      self.next = next
    }
  }

  /// - Parameters:
  ///   - first: nil: the newest is the only one.
  ///   - since: nil: the first one.
  package init(isDeletion: Bool, newest: LSN, first: LSN? = nil, attempts: [Attempt] = [], since: LSN? = nil) {
    self.isDeletion = isDeletion
    self.newest = newest
    let first = first ?? newest
    let since = since ?? first
    others =
      since == newest && first == newest && attempts.isEmpty
      ? .none : .some(first: first, attempts: attempts, since: since)
  }

  /// The oldest unsettled mutation.
  package var first: LSN { if case .some(let first, _, _) = others { first } else { newest } }

  /// Ascending.
  package var attempts: [Attempt] { if case .some(_, let attempts, _) = others { attempts } else { [] } }

  /// The oldest mutation whose content the server is owed: older than the first where a merge has taken its place, which
  /// carries what it changed.
  package var since: LSN { if case .some(_, _, let since) = others { since } else { newest } }

  /// The mutations that the server may have, ascending: the first may have been sent from a copy of this log.
  package var sendable: [LSN] { [first] + attempts.map(\.lsn) + [newest] }

  /// Whether `lsn` is one of the mutations that an answer may be about.
  package func mayBeAnswered(_ lsn: LSN) -> Bool { lsn == newest || attempts.contains { $0.lsn == lsn } }
}

/// One record: its base and what the server is owed.
package struct RecordEntry: Hashable, Sendable {
  package var type: String
  /// Most records of a store that does not sync have no base, and an entry in memory has no room for one.
  private var storedBase: StoredBase
  package var pending: Pending?

  private enum StoredBase: Hashable, Sendable {
    case none
    indirect case some(Base)
  }

  package init(type: String, base: Base? = nil, pending: Pending? = nil) {
    self.type = type
    storedBase = base.map { .some($0) } ?? .none
    self.pending = pending
  }

  package var base: Base? {
    get {
      guard case .some(let base) = storedBase else { return nil }
      return base
    }
    set { storedBase = newValue.map { .some($0) } ?? .none }
  }

  /// The event that holds what the app reads; nil if the app sees no record.
  package var view: LSN? {
    if let pending { return pending.isDeletion ? nil : pending.newest }
    return base?.content
  }
}
