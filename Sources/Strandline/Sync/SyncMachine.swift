// The engine's state, and its steps: each makes at most one request and appends what follows from the answer.
//
// What must outlive the process is in the log; what is here says what is due, what waits and until when. A run makes steps
// until nothing is due. Before each request the machine asks the pace whether it may leave; while one kind of request
// waits, the others go on.
//
// The path of a fetched page: SyncMachine+Fetching requests it, IntakeDecision decides record by record, and what follows
// is one transaction with the page's token. The path of an upload: UploadQueue says what is ready; SyncMachine+Uploading
// makes the operations, appends `sent` and sends the request; SyncMachine+Settling appends what the answer says.

import StrandlineSystem
import Synchronization

/// The engine of one store and one database. One run at a time.
struct SyncMachine: Sendable {
  let store: RecordStore
  let database: any CloudDatabase
  let watch: SyncWatch
  var queue: UploadQueue
  var pace: RequestPace
  var options = CycleOptions()
  var firstFetch = FirstFetch.pageByPage
  /// What the run has done.
  var report = SyncReport()
  /// When runs that may end early are over.
  let deadline = RunDeadline()
  var longestRequest = SyncMachine.requestNanosecondsMin

  /// The last run did not come to its end.
  var hasFailed = false
  /// The account was asked for since the process began, or since the server asked for a sign-in.
  var isAccountKnown = false
  /// The database is to be asked which zones have changed.
  var isListDue = true
  /// Whether this run fetches what the server has not been asked for by an upload.
  var fetchesFeed = true
  /// Pages of that list in this run.
  var listPages = 0
  /// Pages in a row of that list that said that more is to come and left the token unchanged.
  var listRepeats = 0
  /// Zones that are being fetched, or have to be though the server has not said that they changed.
  var fetches: [ZoneID: ZoneFetch] = [:]
  /// The zones whose fetch the server refused in this run, each with its error.
  var refusedZones: [ZoneID: CloudError] = [:]
  /// The same, with those to which nothing, or no save, is sent, and those that are not erased, until a halt ends.
  var allRefusedZones: [ZoneID: CloudError] {
    refusedZones.merging(queue.halts.refusedZones) { known, _ in known }
      .merging(haltedErasures) { known, _ in known }
  }
  /// Zones that were fetched to their end, and whose sweep waits for answers to lookups.
  var sweeps: [ZoneID: OpenSweep] = [:]
  /// Queries for the newest records of zones that were never fetched.
  var newest: [ZoneID: NewestRecords] = [:]
  /// What is fetched next of what zones have listed.
  var listings: [ZoneID: ListedRecords] = [:]
  /// The most records in a lookup of those.
  var listedMax = UploadPlan.operationsMax
  /// Records to look up, by zone.
  var lookups: [ZoneID: Set<CloudName>] = [:]
  /// Zones in which children of deleted records may be that the app's rules for them were not applied to; nil before the
  /// first run.
  var childReviews: Set<ZoneID>?
  /// Records with a block or a version that could not be read were to be looked up in this run.
  var isReviewDue = true
  /// Records that the server does not have although it once did, each with what is being asked because of it.
  var doubts: [RecordID: Doubt] = [:]
  /// How often each record was refused although nothing is known to be wrong with it, and with what, if not because it had
  /// changed at the server meanwhile.
  var contention: [RecordID: (count: Int, error: CloudError?)] = [:]
  /// How often in a row the server asked to try each record again later, and the last of these refusals.
  var postponed: [RecordID: (count: Int, error: CloudError)] = [:]
  /// Those that were refused too often; they are held.
  var contentious: [RecordID] = []
  /// When records that wait for a time are tried again, by the monotonic clock.
  var times = Deadlines()
  /// When holds end by themselves.
  var holdEnds = Deadlines()
  /// Parts of a batch that the server refused as too much, the next one last.
  var parts: [Part] = []
  /// The page that comes next.
  var ahead: PageAhead?
  /// What is sent next.
  var prepared: Prepared?
  /// What was refused alone while the halves of a batch were sent, and the types of which this run has sent something.
  var refusedAlone: [(batch: [Upload], error: CloudError)] = []
  var takenTypes: Set<UploadHalts.HaltedType> = []
  /// How often this run's tokens were refused, by zone.
  var tokenRefusals: [ZoneID: Int] = [:]
  /// How often batches of this run may still be halved.
  var splitsLeft = 0
  /// What was written up to here is sent in this round, and how many rounds of this run may follow.
  var roundEnd: LSN = .none
  var roundsLeft = 0
  /// The most operations in a request: fewer once the server has refused as many. Halves of a batch are not sent where the
  /// app has replaced what is in them, and it may do so during every request; a batch that is made small is sent at once.
  var operationsMax: Int
  /// Answered requests of as many operations as there may be, since that number changed; and how many of them let it grow.
  var answeredFull = 0
  var growsAfter = SyncMachine.growsAfterMin
  /// While halves of a batch are sent: what both are again if one record alone turns out to be refused, and not the number of them.
  var sizeBefore: (operations: Int, growsAfter: Int)?
  /// Before that no request leaves, by the monotonic clock.
  private(set) var nextDeparture: UInt64 = 0
  /// What was kept because an earlier version of the program could not read it was read again. What this one keeps it cannot read.
  private var hasReadKept = false
  /// By zone, the records of which a lookup was refused, each alone, while none of another one was answered.
  var lookupsRefused: [ZoneID: RefusedLookups] = [:]
  /// The same of listed records.
  var listedRefused: [ZoneID: RefusedLookups] = [:]
  /// The most records in a lookup.
  var lookupsMax = UploadPlan.operationsMax
  /// What the last request failed with, if it was no `CloudError`.
  var foreignError: (any Error)?
  /// Zones of this run that are gone at the server.
  var lostZones: Set<ZoneID> = []
  let policies: SyncPolicies
  /// So many steps in a row a run makes without a request. For tests: they have a run meet the limit.
  var stepsMax = 100_000

  init(
    store: RecordStore, database: any CloudDatabase, watch: SyncWatch, _ policy: RequestPace.Policy,
    _ policies: SyncPolicies
  ) {
    self.policies = policies
    operationsMax = policies.batch.operationsMax
    self.store = store
    self.database = database
    self.watch = watch
    queue = UploadQueue(store: store, scope: database.address.scope, appVersion: policies.appVersion)
    pace = RequestPace(store: store, scope: database.address.scope, policy)
    if pace.operationsMax > 0 { operationsMax = min(operationsMax, pace.operationsMax) }
  }

  /// The fetch of one zone.
  struct ZoneFetch: Sendable {
    /// It goes on without being named by the server.
    var isForced = false
    var limit = SyncMachine.pageLimit
    /// It begins without the token.
    var startsOver = false
    /// The server has taken the token that it begins without, in this run.
    var hadToken = false
    /// Pages in a row that said that more is to come and left the token unchanged.
    var repeats = 0
    /// Pages in a row that were empty and said that more is to come.
    var emptyPages = 0
  }

  /// What is asked about a record that a save did not find.
  enum Doubt: Hashable, Sendable {
    /// The feed to its end, for its deletion.
    case feed
    /// The feed from its beginning, which shows every record and deletion.
    case wholeFeed
  }

  /// The one database that this syncs. What the store holds of the others is not touched.
  var scope: DatabaseScope { database.address.scope }

  func zone(_ id: ZoneID) -> ZoneState? { store.projections.withLock { $0.sync.zones[id] } }

  /// How often one run sends what was written meanwhile, and what it merged after conflicts.
  private static let roundsMax = 16
  static let growsAfterMin = 4
  static let growsAfterMax = 1_024
  /// How often batches of one run are halved: twice what finds one wrong record of 200, and a few more.
  private static let splitsMax = 36

  // MARK: A run

  /// What a step came to.
  enum Step {
    case worked
    /// What is due waits.
    case waits(RequestPace.Wait)
    /// Something is due, and there is no time for it.
    case outOfTime
    case idle
  }

  /// Makes steps until nothing is due. `report` says what the run has done, also when it throws.
  mutating func run(_ options: CycleOptions) async throws {
    begin(options)
    try await pace.begin()
    try await takeKept()
    // No request is under way at the end of a run.
    defer { store.projections.endsSending() }
    var limit = StepLimit(stepsMax: stepsMax)
    do {
      while true {
        switch try await step() {
        case .worked:
          try limit.count(requests: report.requests, in: store.path)
          watch.stepEnded(self)
        case .waits(let wait): try await sleep(wait)
        case .outOfTime:
          report.isUnfinished = true
          return
        case .idle:
          if try queue.checkHalts() { continue }
          // Nothing is left in hand, unless a zone was given up on the way.
          hasFailed = !refusedZones.isEmpty || !lostZones.isEmpty || !sweeps.isEmpty
          try finish()
          return
        }
      }
    } catch let error as CloudError {
      throw error.asStrandlineError("syncing '\(store.path)'")
    }
  }

  /// Applies what an earlier version of the program could not read, and shows what waits for a parent that no page will bring.
  private mutating func takeKept() async throws {
    var taken = TakenChanges()
    if !hasReadKept {
      taken = try await store.readKept { [database] in database.record(readingAgain: $0, in: $1) }
      hasReadKept = true
    }
    let shown = try await store.showWaiting()
    report.add(taken.report)
    report.add(shown.report)
    for id in taken.touched.union(shown.touched).sorted() { try changed(id) }
  }

  private mutating func begin(_ options: CycleOptions) {
    self.options = options
    report = SyncReport()
    (ahead, sweeps) = (nil, [:])
    // What the server took in an earlier run says nothing of the zone now.
    for zone in fetches.keys { fetches[zone]?.hadToken = false }
    if options.asksForChanges { (isListDue, isReviewDue) = (true, true) }
    listPages = 0
    // Of an upload whose answer was lost the feed says whether it arrived.
    fetchesFeed = options.direction != .pushOnly || store.projections.withLock { !$0.outbox.attempted.isEmpty }
    beginChildReviews()
    (roundEnd, roundsLeft) = (store.durableLSN, Self.roundsMax)
    if hasFailed { lookAgain() }
    hasFailed = true
    (refusedZones, lostZones, splitsLeft, takenTypes, tokenRefusals) = ([:], [], Self.splitsMax, [], [:])
    // A run that ended early has not said whose fault it was.
    for (zone, refused) in lookupsRefused { lookups[zone, default: []].formUnion(refused.names) }
    for zone in listedRefused.keys { listings[zone] = nil }
    (lookupsRefused, listedRefused) = ([:], [:])
    if options.isUserInitiated {
      pace.endOwnWaits()
      for (id, wait) in queue.waits where wait == .time && postponed[id] != nil { queue.wake(id) }
    }
    queue.beginRun(isUserInitiated: options.isUserInitiated, erasures: zonesToErase)
    // Also in a run that ends before its first step: else it would be made again at once, for the same moment.
    wakeWhatIsDue()
  }

  /// A run ended early: whatever it had taken in hand and not brought to an end is asked for again.
  private mutating func lookAgain() {
    queue.lookAgain()
    restoreSize()
    (parts, prepared, refusedAlone, sizeBefore) = ([], nil, [], nil)
    for (id, wait) in queue.waits {
      if wait == .lookup { lookups[id.zone, default: []].insert(id.key) }
      if wait == .fetch { fetch(id.zone) }
    }
    for zone in fetches.keys {
      fetches[zone]?.emptyPages = 0
    }
  }

  /// Makes at most one request.
  private mutating func step() async throws -> Step {
    try Task.checkCancellation()
    try store.requireWritable()
    // A copy says so first: what is unsent in it may have been sent by the original.
    if store.core.withLock({ $0.hasNewName }) { try await store.commit { try $0.appendOpened() } }
    // What has come is not thrown away.
    if try endsEarly() {
      guard hasPageAhead else { return .outOfTime }
      return try await fetchNextPage() ? .worked : .outOfTime
    }
    if isAccountKnown, try await decideLosses() { return .worked }
    wakeWhatIsDue()
    var blocked: RequestPace.Wait?
    for kind in [RequestKind.account, .zoneList, .query, .page, .lookup, .upload, .listed] {
      if kind != .account, !isAccountKnown { break }
      if let wait = pace.wait(for: kind) {
        if blocked.map({ wait.milliseconds < $0.milliseconds }) ?? true, try isDue(kind) { blocked = wait }
      } else if try await perform(kind) {
        return .worked
      }
    }
    if let blocked { return .waits(blocked) }
    return waitForTime()
  }

  /// Does what is due of a kind; false if nothing is.
  private mutating func perform(_ kind: RequestKind) async throws -> Bool {
    switch kind {
    case .account: try await askForAccount()
    case .zoneList: try await fetchList()
    case .query: try await queryNewest()
    case .page: try await fetchNextPage()
    case .lookup: try await lookUpNext()
    case .upload: try await upload()
    case .listed: try await fetchListed()
    }
  }

  func isDue(_ kind: RequestKind) throws -> Bool {
    switch kind {
    case .account: !isAccountKnown
    case .zoneList: isListDue && fetchesFeed
    case .query: zoneToQuery != nil
    case .page: nextZoneToFetch() != nil
    case .listed: zoneWithListing != nil
    case .lookup: owesLookups
    case .upload:
      sends && (zoneToErase != nil || store.projections.withLock { $0.outbox.newest.isEmpty } == false)
    }
  }

  /// Whether this run sends what is owed.
  var sends: Bool { options.direction != .pullOnly }

  /// Ends the run: throws if something that is owed was refused, so that a run without an error owes nothing, or says what it
  /// holds.
  private func finish() throws {
    let doing = "syncing '\(store.path)'"
    // A rule may have decided about one since.
    for zone in lostZones.sorted() {
      if let state = self.zone(zone), state.isLost { throw StrandlineError.loss(of: zone, state) }
    }
    if let refusal = allRefusedZones.min(by: { $0.key < $1.key }) { throw refusal.value.asStrandlineError(doing) }
    for (zone, sweep) in sweeps.sorted(by: { $0.key < $1.key }) {
      guard let failure = sweep.failure else { continue }
      throw failure.asStrandlineError("\(doing): asking for records that the list of zone '\(zone)' did not show")
    }
    if let halted = queue.halts.types.min(by: { ($0.key.zone, $0.key.type) < ($1.key.zone, $1.key.type) }) {
      throw StrandlineError(
        .serverRefused,
        "\(doing): the server refuses every '\(halted.key.type)' of zone '\(halted.key.zone)': \(halted.value); they stay in "
          + "the store, and the rest was sent; they are sent again by the next 'now()', after a relaunch, and once a day",
        underlying: halted.value)
    }
  }

  mutating func sleep(_ wait: RequestPace.Wait) async throws {
    let isTooLong = options.waitMillisecondsMax.map { report.waitedMilliseconds + wait.milliseconds > $0 } ?? false
    if isTooLong || isBeyondDeadline(wait.milliseconds) {
      var error = wait.error.asStrandlineError(
        wait.doing, wait: Double(wait.milliseconds) / 1000, isServers: wait.isServers)
      if let foreignError { error.underlying = foreignError }
      throw error
    }
    report.waitedMilliseconds += wait.milliseconds
    watch.waits(wait)
    try await store.environment.clock.sleep(milliseconds: wait.milliseconds)
  }

  /// When something that waits now is due; nil if nothing waits for a moment.
  mutating func nextDue() -> NextDue? {
    var dues = RequestKind.allCases.compactMap { kind in
      pace.wait(for: kind).map { NextDue(milliseconds: $0.milliseconds, isServers: $0.isServers) }
    }
    let now = store.environment.clock.monotonicNanoseconds()
    for moment in [times.first?.nanoseconds, holdEnds.first?.nanoseconds, queue.halts.nextTry] {
      guard let moment else { continue }
      let rest = moment > now ? Int64((moment - now + 999_999) / 1_000_000) : 0
      dues.append(NextDue(milliseconds: rest, isServers: false))
    }
    return dues.min { $0.milliseconds < $1.milliseconds }
  }

  /// Something has changed about a record, at the server or here. If it owes nothing any more, what was refused of it is
  /// forgotten: a later change of it begins anew.
  mutating func changed(_ id: RecordID) throws {
    queue.changed(id)
    guard queue.remembers(id) || contention[id] != nil || postponed[id] != nil,
      try store.projections.entry(id)?.pending == nil
    else { return }
    queue.settled(id)
    (contention[id], postponed[id]) = (nil, nil)
  }

  /// What it remembers of single records.
  var remembered: [String: Int] {
    [
      "waits": queue.waits.count, "tags": queue.refusedTags.count, "ended holds": queue.holds.ended.count,
      "kept": queue.keptCount, "contention": contention.count, "postponed": postponed.count,
      "contentious": contentious.count, "doubts": doubts.count, "lookups": lookups.count, "parts": parts.count,
      "lookupsRefused": lookupsRefused.count, "listedRefused": listedRefused.count,
      "refusedAlone": refusedAlone.count, "prepared": prepared == nil ? 0 : 1,
    ].filter { $0.value > 0 }
  }

  /// A person has released a record, or given its change up.
  mutating func holdEnded(_ id: RecordID) {
    (contention[id], postponed[id]) = (nil, nil)
    queue.wake(id)
    queue.changed(id)
  }

  // MARK: Times

  private mutating func wakeWhatIsDue() {
    let now = store.environment.clock.monotonicNanoseconds()
    for id in times.takeDue(now) where queue.waits[id] == .time { queue.wake(id) }
    for id in holdEnds.takeDue(now) where queue.waits[id] == .hold { queue.endHold(of: id) }
  }

  /// Nothing is due but what waits for a moment.
  private mutating func waitForTime() -> Step {
    guard sends else { return .idle }
    while let (id, _) = times.first, queue.waits[id] != .time { times.removeFirst() }
    if times.isEmpty { return .idle }
    // What this run would not send then either is not waited for.
    let (waits, only, frozen) = (queue.waits, options.zone, frozenZones)
    let next = times.first { waits[$0] == .time && (only == nil || $0.zone == only) && !frozen.contains($0.zone) }
    guard let (id, nanoseconds) = next else { return .idle }
    let now = store.environment.clock.monotonicNanoseconds()
    // Whatever it was refused with, it is only later that it is sent again.
    let error =
      postponed[id]?.error ?? CloudError(.conflict, reason: "'\(id)' was \(contentionError(of: id).reason)")
    return .waits(
      RequestPace.Wait(
        milliseconds: nanoseconds > now ? Int64((nanoseconds - now + 999_999) / 1_000_000) : 0, error: error,
        doing: "uploading to zone '\(id.zone)'", isServers: false))
  }

  /// A record is tried again in so many milliseconds.
  mutating func wait(_ id: RecordID, milliseconds: Int64) {
    queue.wait(id, for: .time)
    times.set(id, moment(in: milliseconds))
  }

  func moment(in milliseconds: Int64) -> UInt64 {
    store.environment.clock.monotonicNanoseconds() &+ UInt64(clamping: milliseconds) &* 1_000_000
  }

  // MARK: Requests

  /// Sends a request; nil if it failed and is to be sent again after a wait.
  ///
  /// Only for requests that change nothing, or that may be applied twice. An upload that may have been applied must not
  /// be sent again before the server was asked what it holds.
  ///
  /// - Parameter doing: what the request does, as an error says it: "creating zone 'Notes'".
  /// - Throws: `CloudError` for a refusal that no wait ends.
  mutating func ask<Answer: Sendable>(
    _ kind: RequestKind, _ doing: String, _ request: () async throws -> Answer
  ) async throws -> Answer? {
    do { return try await send(kind, request) } catch let error as CloudError {
      // Neither the user nor the list of changed zones can be asked for in smaller parts.
      let isWhole = error.code == .answerTooLarge && (kind == .account || kind == .zoneList)
      guard isWhole || ErrorPolicy.request(error) == .retry else { throw error }
      try await pace.failed(kind, error, doing: doing)
      return nil
    }
  }

  /// Sends a request once.
  mutating func send<Answer: Sendable>(_ kind: RequestKind, _ request: () async throws -> Answer) async throws -> Answer
  {
    let departure = departs(kind)
    return try ended(kind, await Ended(store.environment.clock, departure, request), departure)
  }

  /// When a request leaves, by the monotonic clock.
  struct Departure: Sendable {
    /// How long it is waited for, so that requests do not follow each other faster than the database takes them.
    var restMilliseconds: Int64
    var nanoseconds: UInt64
  }

  /// A request is to leave.
  mutating func departs(_ kind: RequestKind) -> Departure {
    report.requests += 1
    watch.requestBegins(kind)
    let now = store.environment.clock.monotonicNanoseconds()
    let rest = nextDeparture > now ? Int64((nextDeparture - now + 999_999) / 1_000_000) : 0
    let departure = Departure(restMilliseconds: rest, nanoseconds: now &+ UInt64(rest) &* 1_000_000)
    nextDeparture = departure.nanoseconds &+ UInt64(max(0, database.minimumInterval.wholeMilliseconds)) &* 1_000_000
    return departure
  }

  /// A request has ended.
  mutating func ended<Answer>(
    _ kind: RequestKind, _ ended: Ended<Answer>, _ departure: Departure
  ) throws -> Answer {
    let duration = ended.nanoseconds > departure.nanoseconds ? ended.nanoseconds - departure.nanoseconds : 0
    switch ended.result {
    case .success(let answer):
      longestRequest = max(longestRequest, duration)
      watch.requestEnded(kind)
      foreignError = nil
      // What an upload came to stands in the answer.
      if kind != .upload { pace.succeeded(kind) }
      return answer
    case .failure(let error):
      watch.requestEnded(kind, error)
      // A request that ran into its time-out counts as waiting.
      report.waitedMilliseconds += Int64(duration / 1_000_000)
      try Task.checkCancellation()
      if let error = error as? CloudError {
        if ErrorPolicy.request(error) == .signIn { isAccountKnown = false }
        throw error
      }
      // What failed on this device, such as the session's file, is no answer of the server's.
      if error is StrandlineError { throw error }
      // Otherwise `CloudDatabase` throws `CloudError` alone; another error of an app's own implementation counts as "no answer".
      foreignError = error
      throw CloudError(.networkError, reason: "the cloud database failed: \(error)")
    }
  }

  // MARK: The account

  /// Asks who is signed in, and throws if it is not the account that the store belongs to. A store belongs to one
  /// container, environment and user for life, with all its databases; its first run decides which.
  private mutating func askForAccount() async throws -> Bool {
    guard !isAccountKnown else { return false }
    guard let user = try await ask(.account, "asking who is signed in", { [database] in try await database.user() })
    else { return true }
    let address = database.address
    let bound = Bound(
      container: address.container, environment: address.environment, scope: address.scope,
      userHash: Bound.hash(ofUser: user))
    let known = store.projections.withLock { $0.sync.bounds }
    if let other = known.values.first(where: { !$0.isSameAccount(as: bound) }) {
      let what = other.userHash != bound.userHash ? "another user" : "'\(other.container)' \(other.environment)"
      throw StrandlineError(
        .accountMismatch,
        "the store at '\(store.path)' belongs to \(what), not to '\(bound.container)' \(bound.environment) of this user; "
          + "nothing was sent; open another store for this account")
    }
    if known[scope] == nil { try await store.commit { try $0.append(.bound(bound)) } }
    isAccountKnown = true
    return true
  }
}

extension Bound {
  /// Whether both are of one container, environment and user.
  fileprivate func isSameAccount(as other: Bound) -> Bool {
    container == other.container && environment == other.environment && userHash == other.userHash
  }
}

/// Ends a run that goes in a circle. A step that makes no request does its work for up to two hundred records, and then they are
/// done with; a fault in the engine that took them up again and again would keep a device busy for ever, without a word.
struct StepLimit {
  let stepsMax: Int
  private var requests = 0
  private var steps = 0

  init(stepsMax: Int) { self.stepsMax = stepsMax }

  /// A step has ended.
  ///
  /// - Throws: `.noProgress` if `stepsMax` steps before it and this one made no request.
  mutating func count(requests: Int, in path: String) throws(StrandlineError) {
    steps = requests == self.requests ? steps + 1 : 0
    self.requests = requests
    guard steps >= stepsMax else { return }
    throw StrandlineError(
      .noProgress,
      "syncing '\(path)' went in a circle: \(steps) steps in a row made no request; the run was ended, and "
        + "what is owed stays in the store; this is a fault of the library: please report it with the output of "
        + "'strandline pending' and 'strandline log-dump'")
  }
}

/// Records and the moments at which they are tried again.
struct Deadlines: Sendable {
  private var byID: [RecordID: UInt64] = [:]
  /// In descending order: the next one is the last.
  private var order: [(id: RecordID, nanoseconds: UInt64)] = []

  var isEmpty: Bool { order.isEmpty }
  var first: (id: RecordID, nanoseconds: UInt64)? { order.last }

  /// Sets a record's moment. O(log n) to find its place.
  mutating func set(_ id: RecordID, _ nanoseconds: UInt64) {
    byID[id] = nanoseconds
    var (low, high) = (0, order.count)
    while low < high {
      let middle = (low + high) / 2
      if order[middle].nanoseconds > nanoseconds { low = middle + 1 } else { high = middle }
    }
    order.insert((id, nanoseconds), at: low)
  }

  /// The next one of those that `isWanted` names. O(those before it).
  func first(where isWanted: (RecordID) -> Bool) -> (id: RecordID, nanoseconds: UInt64)? {
    order.last { byID[$0.id] == $0.nanoseconds && isWanted($0.id) }
  }

  mutating func removeFirst() {
    guard let first = order.popLast(), byID[first.id] == first.nanoseconds else { return }
    byID[first.id] = nil
  }

  /// Takes those whose moment has come.
  mutating func takeDue(_ now: UInt64) -> [RecordID] {
    var due: [RecordID] = []
    while let last = order.last, last.nanoseconds <= now {
      order.removeLast()
      // It may have been set anew since.
      if byID[last.id] == last.nanoseconds {
        byID[last.id] = nil
        due.append(last.id)
      }
    }
    return due
  }
}
