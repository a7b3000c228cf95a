// What the plan has the store do between two requests: mostly, append the events that follow from an answer. A step is a value, like
// a request. `Engine/StoreSteps.swift` carries it out and hands its result back to the plan.
//
// A step is carried out a moment after the plan decided on it, and the app may have written meanwhile. So each event has a
// premise, which is checked again under the writer's lock: an event whose premise does not hold any more is left out.

import StrandlineSystem

/// One thing that the store does for the plan. Its events are durable when it is done.
package enum StoreStep: Sendable {
  /// Appends events in one transaction, or nothing if the step's own premise does not hold.
  case append(AppendStep)
  /// Carries out the decision about a lost zone, which the app's rule or a return of the zone has brought.
  case decideLoss(LossStep)
  /// Applies versions that an earlier version of the app could not read, and shows records whose parent no page will bring.
  case takeKept(readsAgain: Bool)
  /// Applies a page of a zone's feed, with its change token.
  case page(PageStep)
  /// Applies an answer that is not a page of a feed.
  case answers(AnswerStep)
  /// Applies the app's declared rule to the children in a zone whose parent was deleted.
  case settleChildren(ZoneID, then: ChildrenSettled)
  /// Finds the records of a zone that its open sweep has not seen.
  case findAbsent(ZoneID, sweep: UInt64)
  /// Finds the synced records of a zone, all of which will be removed.
  case findSynced(ZoneID)
  /// Creates records again that sweeps have removed since the server went back to an older state.
  case createAgain(ZoneID, sweep: UInt64)
}

/// Events to append.
package struct AppendStep: Sendable {
  package var events: [SyncEvent]
  package var premise = Premise.none
  package var serverOffset: Int64?
  /// The records of the events: uploads that wait for them are tried again.
  var touched: [RecordID] = []
  /// The zones that the events set aside as lost.
  var losses: [ZoneID] = []
}

/// A lost zone that is synced again.
package struct LossStep: Sendable {
  package var zone: ZoneID
  /// Why the zone was lost when that was decided.
  package var reason: ZoneLoss
  package var reset: ZoneChanged
  /// What observers are told, but for the number of unsent changes; nil if the rule decided earlier.
  package var decision: ZoneLossDecision?
}

/// The result of a step.
package enum StoreResult: Sendable {
  case done
  /// The premise did not hold any more, and nothing was done.
  case dropped
  /// A rule has decided about a lost zone, which has this number of unsent changes.
  case decided(unsent: Int)
  case taken(TakenChanges)
  /// The changes do not fit into one transaction; none was applied.
  case tooLarge(StrandlineError)
  case absent(AbsenceProof)
  case synced([RecordID])
  /// The records that were changed here.
  case changed([RecordID])
}

/// What continues when the children of a zone are settled.
package enum ChildrenSettled: Sendable {
  /// The zone's fetch has come to its end.
  case fetch
  /// The last of the zone's listed records is here: these events are appended.
  case listing([SyncEvent])
}

/// An event to append, and its premise.
package enum SyncEvent: Sendable {
  case event(Event, if: Premise)
  /// The server has deleted the old record of a name, which a new one of another type will take.
  case endOldLife(RecordID)

  package static func append(_ event: Event) -> SyncEvent { .event(event, if: .none) }
}

/// The condition, checked under the writer's lock, for appending an event.
package enum Premise: Sendable {
  case none
  /// The database's token is the one in the request.
  case databaseToken(DatabaseScope, ChangeToken?)
  /// A change is the newest one of its record.
  case newest(RecordID, LSN)
  /// It is, and it deletes a record that cannot be at the server.
  case neverSent(RecordID, LSN)
  /// The server's version of a record is still this one, the record has no pending change, and its version is not in question.
  case unquestioned(RecordID, LSN)
  /// A change is held.
  case held(RecordID, LSN)
  /// A version that could not be read is kept.
  case unread(RecordID)
  /// A zone is lost for this reason.
  case lost(ZoneID, ZoneLoss)
  /// The app has neither erased a zone nor asked for that.
  case notErased(ZoneID)
  /// This store has nothing of a zone.
  case nothingKnown(ZoneID)
  /// A zone's sweep is open.
  case sweep(ZoneID, UInt64)
  /// The server's side decides about a zone.
  case removes(ZoneID)
  /// A zone has changed, and no sweep of it is open.
  case unswept(ZoneID)
}

/// A page of a zone's feed, to be applied.
package struct PageStep: Sendable {
  package var request: PageRequest
  package var page: ZonePage
  /// The token that the zone has.
  package var token: ChangeToken?
  /// The page begins a feed without that token.
  package var isReset: Bool
  /// The server has accepted that token since it was in doubt: the zone is still the same one.
  package var isSameZone: Bool
  /// Children of deleted records are settled when the feed is at its end.
  package var reviewsChildren: Bool
  package var serverOffset: Int64?
  /// The page that the engine may prefetch meanwhile.
  package var ahead: PageRequest?
}

/// An answer that is not a page of a feed, to be applied.
package struct AnswerStep: Sendable {
  enum Cause: Sendable {
    case lookUp(LookupAnswer)
    case newest(NewestRequest, NewestPage)
    case listed(ListedAnswer)
    case removal(ZoneID, Removal)
    case upload(UploadAnswer)
  }
  /// What follows when records are removed.
  enum Removal: Sendable {
    /// More of them, or nothing.
    case part
    /// The proof of absence goes on; `saysFollowed`: observers are told that the app follows the zone that was made again.
    case proof(count: Int, saysFollowed: Bool)
  }
  /// The premise of the whole step.
  package var premise = Premise.none
  package var changes: [ServerChange]
  package var source: ServerChange.Source
  package var page: PagePlace?
  /// Appended before the changes.
  package var before: [SyncEvent] = []
  /// Appended after them.
  package var after: [SyncEvent] = []
  /// Times of saves, by the server's clock.
  package var heardMilliseconds: [Int64] = []
  package var serverOffset: Int64?
  var cause: Cause
}

extension FoldFacts {
  /// Whether a premise holds. The store asks under the writer's lock.
  package func holds(_ premise: Premise) throws -> Bool {
    switch premise {
    case .none: return true
    case .databaseToken(let scope, let token): return learned { $0.databaseTokens[scope] } == token
    case .newest(let id, let lsn): return try entry(id)?.pending?.newest == lsn
    case .neverSent(let id, let lsn):
      guard let entry = try entry(id), let pending = entry.pending else { return false }
      return try pending.newest == lsn && entry.base == nil && !mayBeAtServer(id, deletedBy: pending)
    case .unquestioned(let id, let version):
      guard let entry = try entry(id) else { return false }
      return entry.base?.version == version && entry.pending == nil
        && learned { $0.openBlocks[id] }?.subject != .deletion
    case .held(let id, let lsn): return held(id)?.lsn == lsn
    case .unread(let id): return learned { $0.unread[id] } != nil
    case .lost(let id, let reason): return zone(id)?.lostReason == reason
    case .notErased(let id): return zone(id)?.isErased != true
    case .nothingKnown(let id): return knowsNothing(of: id)
    case .sweep(let id, let sweep): return sweep != 0 && zone(id)?.sweepEpoch == sweep
    case .removes(let id): return zone(id)?.resetPolicy == ResyncSource.server.rawValue
    // Without a token, a person or a rule has decided about the zone meanwhile.
    case .unswept(let id): return zone(id).map { $0.isDirty && $0.sweepEpoch == 0 && $0.token != nil } ?? false
    }
  }

  /// What of an upload may leave. The store asks under the writer's lock, before the upload leaves. Only newest changes are ever sent:
  /// operations that the app has replaced meanwhile are taken out, with those that need them.
  package func premises(of request: UploadRequest) throws -> (leaving: UploadRequest, fallenOut: FallenOut) {
    var (leaving, fallenOut) = (request, FallenOut())
    leaving.uploads = []
    var names: Set<CloudName> = []
    for upload in request.uploads {
      guard let entry = try entry(upload.id), entry.pending?.newest == upload.lsn else { continue }
      // A newer version of the server's has arrived since the operation was made.
      guard entry.base?.version == upload.base else {
        fallenOut.stale.append(upload.id)
        continue
      }
      names.insert(upload.id.key)
    }
    for upload in request.uploads where names.contains(upload.id.key) {
      // The deletion of an old record refers to nothing.
      if !upload.isPreparation, let target = try missingTarget(of: upload.item, sentWith: names) {
        fallenOut.lacking.append((upload.id, target))
        names.remove(upload.id.key)
      } else {
        var upload = upload
        if wasAttempted(upload.lsn) { upload.isFirstOfLife = false }
        leaving.uploads.append(upload)
      }
    }
    if request.isAtomic, leaving.uploads.count < request.uploads.count { leaving.uploads = [] }
    return (leaving, fallenOut)
  }
}

extension StoreStep {
  /// Appends events without premises.
  static func append(_ events: [Event]) -> StoreStep { .append(AppendStep(events: events.map(SyncEvent.append))) }
}
