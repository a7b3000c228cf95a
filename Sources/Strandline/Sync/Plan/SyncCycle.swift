// What the plan has in hand of one cycle, and what is to be asked for in this cycle or a later one.

import StrandlineSystem

/// What is to be asked for, in this cycle or a later one.
struct SyncAgenda: Sendable {
  /// The account was asked for since the process began, or since the server asked for a sign-in.
  var isAccountKnown = false
  /// The database is to be asked which zones have changed.
  var isList = true
  /// It has refused its token: the list is asked for from its beginning.
  var isListFromStart = false
  /// What tells whether that list goes on.
  var listProgress = FeedProgress()
  /// Records with an open question, or a version that could not be read, are to be looked up.
  var isReview = true
  /// What an earlier version of the app could not read is to be read again. What this one keeps it cannot read.
  var readsKept = true
  /// No cycle has begun: an earlier process may not have settled the children of deleted records, and its holds may be over.
  var isFirstCycle = true
  /// The last cycle did not come to its end.
  var wasIncomplete = false
}

/// What one cycle has in hand, from its begin to its end.
struct SyncCycle: Sendable {
  /// How often one cycle sends what was written meanwhile, and what it merged after conflicts.
  static let roundsMax = 16

  var options = CycleOptions()
  var report = SyncReport()
  /// Whether it fetches what the server has not been asked for by an upload.
  var fetchesFeed = true
  /// What was written up to here is sent in this round, and how many rounds may follow.
  var roundEnd = LSN.none
  var roundsLeft = SyncCycle.roundsMax
  var split = BatchSplit()
  /// Operations that were made while a request was under way, each by the event of its change.
  var made: [LSN: MadeOperation] = [:]
  /// Turns of the plan since the last request.
  var idleTurns = 0
  /// What it fails with concerns a zone, a type or a record, and all the rest was synced.
  var failsInPart = false

  init(_ options: CycleOptions, fetchesFeed: Bool, upTo durable: LSN) {
    (self.options, self.fetchesFeed, roundEnd) = (options, fetchesFeed, durable)
  }

  init() {}

  /// Whether it sends what is pending.
  var sends: Bool { options.direction != .pullOnly }

  /// The operation that was made ahead for a record's newest change, if it is still the one.
  mutating func take(_ item: UploadItem, _ entry: RecordEntry) -> MadeOperation? {
    guard let known = made.removeValue(forKey: item.lsn), known.base == entry.base else { return nil }
    return known
  }

  /// Begins another round, if something was written since this one began: an app that writes all the time does not keep a cycle
  /// from ending.
  mutating func beginsRound(_ facts: some SyncFacts) -> Bool {
    let durable = facts.durableLSN
    guard roundsLeft > 0, !facts.pending(1, after: roundEnd, upTo: durable).isEmpty else { return false }
    (roundEnd, roundsLeft) = (durable, roundsLeft - 1)
    return true
  }
}

/// Why a cycle has failed.
struct RunFailure: Sendable {
  var error: StrandlineError
  /// It concerns a zone, a type or a record, and all the rest was synced.
  var isOfPart: Bool
}

/// When something is due that waits.
package struct NextDue: Sendable {
  package var milliseconds: Int64
  /// Whether the server named the wait.
  package var isServers: Bool
}
