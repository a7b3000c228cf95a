// Applies the records of a page or an answer in one transaction: the interface between the engine, which asks, and the intake, which
// decides.
//
// A resolver is app code, so it never runs under a lock of the store. If a conflict needs one, the transaction is undone, the
// resolver is asked, and the changes are applied again. If the app has written the record meanwhile, or its base has changed,
// the resolver is asked again.

import StrandlineSystem
import Synchronization

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
    _ changes: [ServerChange], _ source: ServerChange.Source, serverOffset: Int64? = nil,
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
