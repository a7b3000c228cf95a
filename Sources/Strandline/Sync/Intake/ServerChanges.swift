// What a page or an answer says of records, applied in one transaction: the interface between the engine, which asks, and
// the intake, which decides.
//
// A resolver is code of the app, so none runs while a lock of the store is held. If a conflict needs one, the transaction
// is undone, the resolver is asked, and the changes are applied again. An answer counts for the question that was asked
// alone: if the app has written the record meanwhile, or its base is another one, the resolver is asked again.

import StrandlineSystem
import Synchronization

/// What the server says of one record.
package struct ServerChange: Sendable {
  package enum Kind: Sendable {
    /// It holds this version.
    case version(ServerRecord)
    /// Its feed says that it holds a version, of which the fields are still to be fetched.
    case listed(ServerRecord)
    /// Its feed says that the record was deleted.
    case deletion
    /// It does not have the record: the answer to a lookup.
    case absence
    /// It names the record, and the record cannot be read. The error has its bytes, if it had any.
    case unreadable(CloudError)
    /// It has the record no more: a full fetch did not show it.
    case unseen(Unseen)
  }
  /// What becomes of a synced record that a full fetch did not show.
  package enum Unseen: Sendable {
    /// It is removed. If a change of it is not sent, that stays, and what the server says to it decides.
    case removedUnlessEdited
    /// It is removed. A change that is not sent ends with it, or begins a new life, as its type's rule says. What another life began
    /// here stays owed.
    case removed
    /// It is uploaded again, as the first version of a new life.
    case createdAgain
  }
  package var id: RecordID
  package var kind: Kind

  package init(_ id: RecordID, _ kind: Kind) {
    self.id = id
    self.kind = kind
  }

  /// What the answer to a lookup says of a record; nil if it does not say what the server has. Of a record that it does not
  /// have the feed brings the deletion.
  init?(_ id: RecordID, answer: CloudResult?) {
    switch answer {
    case .record(let record)?: self.init(id, .version(record))
    case .deleted?: self.init(id, .absence)
    case .failed(let error, _)? where error.code == .notFound: self.init(id, .absence)
    case .failed(let error, _)? where !error.raw.isEmpty: self.init(id, .unreadable(error))
    case .failed?, nil: return nil
    }
  }

  /// When the server changed the record, by its clock.
  fileprivate var modifiedMilliseconds: Int64? {
    switch kind {
    case .version(let server), .listed(let server): return server.system.modified?.milliseconds
    case .deletion, .absence, .unreadable, .unseen: return nil
    }
  }
}

/// What followed from the changes of one page or answer.
package struct TakenChanges: Sendable {
  package var report = SyncReport()
  /// The records of which something was appended or confirmed.
  package var touched: Set<RecordID> = []
  /// The absent records that have a base here, in the order of the changes.
  package var absent: [RecordID] = []
  /// The names of those that a page listed without their fields and of which a change is not sent.
  package var listedAndOwed: [String] = []
  /// Whether nothing was applied because `before` said so.
  package var wasDropped = false

  package init() {}
}

extension RecordStore {
  /// How often resolvers are asked because of one page or answer. A conflict that has no answer even then, because the app
  /// goes on writing the record, is joined.
  private static let roundsMax = 3

  /// Applies the changes of a page or answer, in one transaction with what `before` and `after` append.
  ///
  /// When this returns, all of it is durable. If it throws, nothing of it was appended.
  ///
  /// - Parameters:
  ///   - source: what brought the changes.
  ///   - serverOffset: how far the server's clock was ahead of this device's when the answer came, if the transport says so.
  ///   - rules: what becomes of conflicts; nil: by the rules with which the store was opened.
  ///   - page: where the page stands in its zone's feed; nil for any other answer.
  ///   - before: called in the transaction, before the changes. If it returns false, the transaction is dropped whole. It
  ///     may be called more than once, because a transaction that needs an answer of the app is undone and made again; so
  ///     it sets what it tells the caller, and adds nothing to it.
  ///   - after: the same behind the changes: here the token of a page is appended.
  /// - Throws: what `before` and `after` throw; `.tooLarge` if the changes do not fit into one transaction; `.damaged`,
  ///   `.io`, `.diskFull`, `.outcomeUnknown`, `.suspended`, `.closed`.
  package func take(
    _ changes: [ServerChange], _ source: Intake.Source, serverOffset: Int64? = nil,
    rules: ConflictRules? = nil, page: PagePlace? = nil,
    before: (inout StoreCore) throws -> Bool = { _ in true }, after: (inout StoreCore) throws -> Void = { _ in }
  ) async throws -> TakenChanges {
    let (standard, schema) = core.withLock { ($0.declared.conflicts, $0.declared.schema) }
    let rules = rules ?? standard
    let newest = changes.lazy.compactMap(\.modifiedMilliseconds).max()
    var answers = ConflictAnswers()
    var rounds = 0
    while true {
      var intake = Intake(source, rules: rules, schema: schema, page: page)
      intake.answers = answers
      do {
        try await commit { core in
          // What waits was fetched before the feed begins anew, so it is behind the sweep.
          if let page, page.startsOver { try intake.showAll(in: page.zone, &core) }
          guard try before(&core) else { throw Undo.dropped }
          if let serverOffset { core.learn(serverOffset: serverOffset) }
          if let newest { core.learn(serverMilliseconds: newest, isNow: false) }
          for change in changes { try intake.apply(change, to: &core) }
          try intake.endWaiting(&core)
          try intake.appendListing(&core)
          guard intake.questions.isEmpty else { throw Undo.unanswered }
          try after(&core)
          try core.appendServerOffset()
        }
        return intake.taken
      } catch Undo.dropped {
        var taken = TakenChanges()
        taken.wasDropped = true
        return taken
      } catch Undo.unanswered {
        rounds += 1
        answers.mayAsk = rounds < Self.roundsMax
        for question in intake.questions { answers.known[question.key] = question.ask() }
      }
    }
  }

  /// Reads the records again that an earlier version could not read and whose bytes were kept, and applies those that
  /// `read` can read now; and those that a later version of the app wrote, if this one knows them. O(what was kept).
  ///
  /// - Throws: as `take`.
  package func readKept(_ read: (_ raw: [UInt8], ZoneID) -> ServerRecord?) async throws -> TakenChanges {
    let unread = projections.withLock { $0.sync.unread }
    let schema = core.withLock { $0.declared.schema }
    let changes = unread.sorted { $0.key < $1.key }.compactMap { id, held -> ServerChange? in
      if held.isShelved || held.raw.isEmpty { return nil }
      guard held.isOfNewerSchema else { return read(held.raw, id.zone).map { ServerChange(id, .version($0)) } }
      do throws(CloudError) {
        let server = try ShelvedVersion(held.raw).server
        return schema.refusing(server) == nil ? ServerChange(id, .version(server)) : nil
      } catch { return ServerChange(id, .unreadable(error)) }
    }
    return changes.isEmpty ? TakenChanges() : try await take(changes, .delta)
  }

  /// Shows versions as they are that wait for their parent in a zone of which nothing is being fetched, because it was lost
  /// meanwhile.
  ///
  /// - Throws: as `take`.
  package func showWaiting() async throws -> TakenChanges {
    let sync = projections.sync
    var taken = TakenChanges()
    let waiting = Set(sync.unread.values.lazy.filter(\.isShelved).map(\.id.zone))
    for zone in waiting.sorted() where sync.zones[zone]?.isDirty != true {
      // What was listed may bring their parents.
      guard sync.listed[zone] == nil || sync.zones[zone]?.isLost == true else { continue }
      let shown = try await take([], .delta, page: PagePlace(zone: zone, isLast: true))
      taken.report.add(shown.report)
      taken.touched.formUnion(shown.touched)
    }
    return taken
  }

  /// Why a transaction is undone that did not fail.
  private enum Undo: Error { case dropped, unanswered }
}
