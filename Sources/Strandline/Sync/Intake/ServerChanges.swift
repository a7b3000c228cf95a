// Applies the records of a page or an answer in one transaction: the interface between the engine, which asks, and the intake, which
// decides.
//
// A resolver is app code, so it never runs under a lock of the store. If a conflict needs one, the transaction is undone, the
// resolver is asked, and the changes are applied again. If the app has written the record meanwhile, or its base has changed,
// the resolver is asked again.

import StrandlineSystem
import Synchronization

/// The server's word on one record.
package struct ServerChange: Sendable {
  package enum Kind: Sendable {
    /// The server has this version.
    case version(ServerRecord)
    /// The feed lists this version without its fields, which are still to be fetched.
    case listed(ServerRecord)
    /// The feed says that the record was deleted.
    case deletion
    /// The server does not have the record: the answer to a lookup.
    case absence
    /// The server has the record, but it cannot be read. The error has its bytes, if there were any.
    case unreadable(CloudError)
    /// The server does not have the record any more: a full fetch did not show it.
    case unseen(Unseen)
  }
  /// How to apply that a full fetch did not show a synced record.
  package enum Unseen: Sendable {
    /// It is removed. An unsent change of it stays, and the server's answer to that decides.
    case removedUnlessEdited
    /// It is removed. An unsent edit ends with it, or becomes a new record, by its type's rule. An unsent creation of another record
    /// under the name stays pending.
    case removed
    /// It is uploaded again, as a new record.
    case createdAgain
  }
  package var id: RecordID
  package var kind: Kind

  package init(_ id: RecordID, _ kind: Kind) {
    self.id = id
    self.kind = kind
  }

  /// The change from an answer to a lookup; nil if it does not say which version the server has.
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

/// The result of applying one page or answer.
package struct TakenChanges: Sendable {
  package var report = SyncReport()
  /// The records for which an event was appended, or a version confirmed.
  package var touched: Set<RecordID> = []
  /// Records that this store has synced and the server did not find, in the order of the changes.
  package var absent: [RecordID] = []
  /// Listed records that have a pending change here.
  package var listedAndPending: [String] = []
  /// Whether nothing was applied because `before` returned false.
  package var wasDropped = false

  package init() {}
}

extension RecordStore {
  /// How often resolvers are asked for one page or answer. If the app keeps writing the record, the conflict is then joined.
  private static let roundsMax = 3

  /// Applies the changes of a page or answer, in one transaction with the events that `before` and `after` append.
  ///
  /// When this returns, all events are durable. If it throws, none was appended.
  ///
  /// - Parameters:
  ///   - source: what brought the changes.
  ///   - serverOffset: how far the server's clock was ahead of this device's, if the answer had its time.
  ///   - rules: the conflict rules; nil: those with which the store was opened.
  ///   - page: the page's place in its zone's feed; nil for any other answer.
  ///   - before: called in the transaction, before the changes. If it returns false, the whole transaction is dropped. It may be
  ///     called several times, as the transaction is undone and repeated when a resolver has to be asked; so it must not add
  ///     up results across calls.
  ///   - after: called in the transaction, after the changes, under the same conditions: appends a page's token.
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
          // Shelved versions were fetched before this full fetch, so they must be stored before the sweep begins.
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

  /// Applies kept versions that `read` can read now and an earlier program could not, and those of a later app version if this app
  /// knows it by now. O(kept versions).
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

  /// Shows versions that wait for their parent in zones that are not being fetched, because they were lost meanwhile.
  ///
  /// - Throws: as `take`.
  package func showWaiting() async throws -> TakenChanges {
    let sync = projections.sync
    var taken = TakenChanges()
    let waiting = Set(sync.unread.values.lazy.filter(\.isShelved).map(\.id.zone))
    for zone in waiting.sorted() where sync.zones[zone]?.isDirty != true {
      // Listed records that are not fetched yet may be their parents.
      guard sync.listed[zone] == nil || sync.zones[zone]?.isLost == true else { continue }
      let shown = try await take([], .delta, page: PagePlace(zone: zone, isLast: true))
      taken.report.add(shown.report)
      taken.touched.formUnion(shown.touched)
    }
    return taken
  }

  /// Why a transaction is undone without a failure.
  private enum Undo: Error { case dropped, unanswered }
}
