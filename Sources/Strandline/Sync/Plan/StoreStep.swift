// What the plan has the store do between two requests: mostly to append what follows from an answer. A step is a value, as a
// request is. `Engine/StoreSteps.swift` carries it out, and its result goes back to the plan together with it.
//
// The plan decides by what it has seen; a step is carried out a moment later, under the writer's lock, and the app may have
// written meanwhile. So each event has its premise, which is checked again there: an event whose premise does not hold any more
// is left out.

import StrandlineSystem

/// One thing that the store does for the plan. Its events are durable when it is done.
enum StoreStep: Sendable {
  /// Appends events in one transaction, or nothing if the premise of all does not hold.
  case append(AppendStep)
  /// Carries out what the app's rule for lost zones, or the server, has decided about one.
  case decideLoss(LossStep)
  /// Applies what an earlier version of the app could not read, and shows what waits for a parent that no page will bring.
  case takeKept(readsAgain: Bool)
  /// Applies a page of a zone's feed, with its token.
  case page(PageStep)
  /// Applies the other answers.
  case answers(AnswerStep)
  /// Does what the app has declared with the children in a zone whose parent was deleted.
  case settleChildren(ZoneID, then: ChildrenSettled)
  /// Finds the records of a zone that its open sweep has not seen.
  case findAbsent(ZoneID, sweep: UInt64)
  /// Finds the synced records of a zone, all of which are removed.
  case findSynced(ZoneID)
  /// Creates again what sweeps have removed since the server went back in time.
  case createAgain(ZoneID, sweep: UInt64)
}

/// Events to append.
struct AppendStep: Sendable {
  var events: [SyncEvent]
  var premise = Premise.none
  var serverOffset: Int64?
  /// The records that they are about: those that wait for them are looked at again.
  var touched: [RecordID] = []
  /// The zones that are lost by them.
  var losses: [ZoneID] = []
}

/// A lost zone that is synced again.
struct LossStep: Sendable {
  var zone: ZoneID
  /// Why it was lost when that was decided.
  var reason: ZoneLoss
  var reset: ZoneChanged
  /// What is told of it; nil if a rule has decided before.
  var decision: ZoneLossDecision?
}

/// What a step came to.
enum StoreResult: Sendable {
  case done
  /// The premise did not hold any more, and nothing was done.
  case dropped
  case taken(TakenChanges)
  /// What is to be applied does not fit into one transaction; nothing of it was.
  case tooLarge(StrandlineError)
  case absent(AbsenceProof)
  case synced([RecordID])
  /// The records that were changed here.
  case changed([RecordID])
}

/// What goes on when the children of a zone are settled.
enum ChildrenSettled: Sendable {
  /// The zone's fetch has come to its end.
  case fetch
  /// The last of what the zone has listed is here: these events end.
  case listing([SyncEvent])
}

/// An event to append, and what has to hold for it.
enum SyncEvent: Sendable {
  case event(Event, if: Premise)
  /// The server has deleted the old life of a name, to which another type is given.
  case endOldLife(RecordID)

  static func append(_ event: Event) -> SyncEvent { .event(event, if: .none) }
}

/// What has to hold under the writer's lock for an event to be appended.
enum Premise: Sendable {
  case none
  /// The database's token is the one that was asked with.
  case databaseToken(DatabaseScope, ChangeToken?)
  /// A change is the newest one of its record.
  case newest(RecordID, LSN)
  /// It is, and deletes what no request has carried.
  case neverSent(RecordID, LSN)
  /// The server's version of a record is the same, nothing of it is pending, and it is not in question.
  case unquestioned(RecordID, LSN)
  /// A change is held.
  case held(RecordID, LSN)
  /// A version that could not be read is kept back.
  case unread(RecordID)
  /// A zone is lost for this reason.
  case lost(ZoneID, ZoneLoss)
  /// The app has not ended a zone, nor asked for its end.
  case notErased(ZoneID)
  /// The same, and nobody has decided about it.
  case notDecided(ZoneID)
  /// Nothing of a zone is here.
  case nothingKnown(ZoneID)
  /// A zone's sweep is open.
  case sweep(ZoneID, UInt64)
  /// The server's side decides about a zone.
  case removes(ZoneID)
  /// A zone has changed, and no sweep of it is open.
  case unswept(ZoneID)
}

/// A page of a zone's feed, to be applied.
struct PageStep: Sendable {
  var request: PageRequest
  var page: ZonePage
  /// The token that the zone has.
  var token: ChangeToken?
  /// The page begins a feed without that token.
  var isReset: Bool
  /// The server has taken that token since it was in doubt: the zone is the one that it was.
  var isSameZone: Bool
  /// Children of deleted records are settled when the feed is at its end.
  var reviewsChildren: Bool
  var serverOffset: Int64?
  /// What the engine may ask for meanwhile.
  var ahead: PageRequest?
}

/// Answers beside the feed, to be applied.
struct AnswerStep: Sendable {
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
    /// The proof of their absence goes on; and the app is told that it follows the zone without a question.
    case proof(count: Int, saysFollowed: Bool)
  }
  /// What has to hold for any of it.
  var premise = Premise.none
  var changes: [ServerChange]
  var source: Intake.Source
  var page: PagePlace?
  /// Appended before the changes.
  var before: [SyncEvent] = []
  /// Appended after them.
  var after: [SyncEvent] = []
  /// When the server saved something, by its clock.
  var heardMilliseconds: [Int64] = []
  var serverOffset: Int64?
  var cause: Cause
}

extension StoreStep {
  /// Appends events, each of them.
  static func append(_ events: [Event]) -> StoreStep { .append(AppendStep(events: events.map(SyncEvent.append))) }
}
