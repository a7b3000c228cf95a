// What a page or an answer says of records, applied in one transaction: the interface between the engine, which asks, and
// the intake, which decides.

import StrandlineSystem

/// What the server says of one record.
package struct ServerChange: Sendable {
  package enum Kind: Sendable {
    /// It holds this version.
    case version(ServerRecord)
    /// Its feed says that the record was deleted.
    case deletion
    /// It does not have the record: the answer to a lookup.
    case absence
    /// Its feed names the record, and could not show it.
    case unreadable(CloudError)
  }
  package var id: RecordID
  package var kind: Kind

  package init(_ id: RecordID, _ kind: Kind) {
    self.id = id
    self.kind = kind
  }
}

/// What followed from the changes of one page or answer.
package struct TakenChanges: Sendable {
  package var report = SyncReport()
  /// The records of which something was appended or confirmed.
  package var touched: Set<RecordID> = []
  /// The absent records that have a base here, in the order of the changes.
  package var absent: [RecordID] = []
  /// Whether nothing was applied because `before` said so.
  package var wasDropped = false

  package init() {}
}

/// What becomes of conflicts.
package struct ConflictRules: Sendable {
  /// The standard rules.
  package init() {}
}

extension RecordStore {
  /// Applies the changes of a page or answer, in one transaction with what `before` and `after` append.
  ///
  /// When this returns, all of it is durable. If it throws, nothing of it was appended.
  ///
  /// - Parameters:
  ///   - source: what brought the changes.
  ///   - rules: what becomes of conflicts.
  ///   - before: called in the transaction, before the changes. If it returns false, the transaction is dropped whole. It
  ///     may be called more than once, because a transaction that needs an answer of the app is undone and made again; so
  ///     it sets what it tells the caller, and adds nothing to it.
  ///   - after: the same behind the changes: here the token of a page is appended.
  /// - Throws: what `before` and `after` throw; `.tooLarge` if the changes do not fit into one transaction; `.damaged`,
  ///   `.io`, `.diskFull`, `.outcomeUnknown`, `.suspended`, `.closed`.
  package func take(
    _ changes: [ServerChange], _ source: Intake.Source, rules: ConflictRules = ConflictRules(),
    before: (inout StoreCore) throws -> Bool = { _ in true }, after: (inout StoreCore) throws -> Void = { _ in }
  ) async throws -> TakenChanges {
    var intake = Intake(source, rules: rules)
    do {
      try await commit { core in
        guard try before(&core) else { throw Undo.dropped }
        for change in changes { try intake.apply(change, to: &core) }
        try after(&core)
      }
      return intake.taken
    } catch Undo.dropped {
      var taken = TakenChanges()
      taken.wasDropped = true
      return taken
    }
  }

  /// Why a transaction is undone that did not fail.
  private enum Undo: Error { case dropped }
}
