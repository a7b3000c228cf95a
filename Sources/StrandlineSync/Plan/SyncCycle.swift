// Two parts of the plan's state: one that a new cycle starts empty, and one that outlives a cycle.

import StrandlineSystem

/// What this cycle or a later one has to ask for.
struct SyncAgenda: Sendable {
  /// The server has said who is signed in, in this process and since it last asked for a sign-in.
  var isAccountKnown = false
  /// The list of changed zones has to be fetched.
  var isList = true
  /// The server has refused the list's token: the list is fetched from its beginning.
  var isListFromStart = false
  /// Detects a list that repeats itself.
  var listProgress = FeedProgress()
  /// Records with an open question, or a version that could not be read, have to be looked up.
  var isReview = true
  /// Versions that an earlier version of the app could not read have to be tried again, once in a process.
  var readsKept = true
  /// No cycle has begun: an earlier process may not have settled the children of deleted records, and its holds may be over.
  var isFirstCycle = true
  /// The last cycle ended early.
  var wasIncomplete = false

  /// The server asks for a sign-in: it is asked who is signed in before anything else.
  mutating func forgetAccount() { isAccountKnown = false }
  mutating func askForList() { isList = true }
  mutating func askForReview() { isReview = true }
  mutating func beginReview() { isReview = false }
}

/// The state of one cycle.
package struct SyncCycle: Sendable {
  /// How often one cycle sends the changes that were written or merged while it was running.
  static let roundsMax = 16

  package var options = CycleOptions()
  package var report = SyncReport()
  /// Whether it reads the feeds of changed zones. If not, it reads only those that an upload needs.
  var fetchesFeed = true
  /// This round sends the changes up to here.
  var roundEnd = LSN.zero
  var roundsLeft = SyncCycle.roundsMax
  var split = BatchSplit()
  /// Operations that were prepared while a request was under way, each by the event of its change.
  var made: [LSN: MadeOperation] = [:]
  /// How often the token of each zone was refused.
  var tokenRefusals: [ZoneID: Int] = [:]
  /// The zones that were found to be lost.
  private(set) var lost: Set<ZoneID> = []
  /// Turns of the plan since the last request.
  package var idleTurns = 0
  /// Its failure concerns a zone, a type or a record, and all the rest was synced.
  package var failsInPart = false

  /// Changes that are written meanwhile are sent in this cycle, whatever it has used up.
  mutating func keepRound() { roundsLeft = max(roundsLeft, 1) }

  init(_ options: CycleOptions, fetchesFeed: Bool, upTo durable: LSN) {
    (self.options, self.fetchesFeed, roundEnd) = (options, fetchesFeed, durable)
  }

  init() {}

  /// A zone was found to be lost. If it still is at the end, the cycle ends with that error, so that the app learns of it.
  mutating func noteLoss(of zone: ZoneID) { lost.insert(zone) }

  /// A rule has decided about a lost zone.
  mutating func forgetLoss(of zone: ZoneID) { lost.remove(zone) }

  /// Whether it sends pending changes.
  var sends: Bool { options.direction != .pullOnly }

  /// The operation that was prepared for a record's newest change, if the record's base is still the same.
  mutating func take(_ item: UploadItem, _ entry: RecordEntry) -> MadeOperation? {
    guard let known = made.removeValue(forKey: item.lsn), known.base == entry.base else { return nil }
    return known
  }

  /// Begins another round, if changes were written since this one began. Limited, so that a cycle ends also while the app writes all
  /// the time.
  mutating func beginsRound(_ facts: some SyncFacts) -> Bool {
    let durable = facts.durableLSN
    guard roundsLeft > 0, !facts.pending(1, after: roundEnd, upTo: durable).isEmpty else { return false }
    (roundEnd, roundsLeft) = (durable, roundsLeft - 1)
    return true
  }
}

/// Why a cycle has failed.
package struct CycleFailure: Sendable {
  package var error: StrandlineError
  /// It concerns a zone, a type or a record, and all the rest was synced.
  package var isOfPart: Bool

  package init(error: StrandlineError, isOfPart: Bool) {
    self.error = error
    self.isOfPart = isOfPart
  }
}

/// When the first timed wait ends.
package struct NextDue: Sendable {
  package var milliseconds: Int64
  /// Whether the server named the wait.
  package var isServers: Bool
}
