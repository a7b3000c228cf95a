// Runs a cycle: asks the plan for the next request, step or wait, carries it out, and hands the result back. All I/O of a cycle is
// here: requests go to the database, steps to the store, waits to the clock.
//
// One request is under way at a time, and work that does not need its answer goes on beside it. The next page of a feed is
// prefetched while the page before it is applied; it is used only if the plan then asks for that very page. And the operations
// of the next batch are prepared while a batch is under way.

import StrandlineSystem
import Synchronization

/// The engine's state between cycles, and the loop of a cycle.
struct CycleDriver: Sendable {
  /// A request is expected to take a second, or as long as the longest one so far.
  static let requestNanosecondsMin: UInt64 = 1_000_000_000

  let store: RecordStore
  let database: any CloudDatabase
  let watch: SyncWatch
  /// Whether a request and the work beside it run at once, or in alternating order.
  private let overlap: Overlap
  /// The deadlines of cycles that may end early.
  let deadline = CycleDeadline()
  var plan: SyncPlan
  /// The page that was prefetched.
  private var ahead: (request: PageRequest, outcome: SyncOutcome)?
  /// Earliest monotonic time of the next request.
  private var nextDeparture: UInt64 = 0
  private var longestRequest = CycleDriver.requestNanosecondsMin
  /// The error of the last request, if it was no `CloudError`.
  private var foreignError: (any Error)?

  init(
    store: RecordStore, database: any CloudDatabase, watch: SyncWatch, _ policy: RequestPace.Policy,
    _ policies: SyncPolicies
  ) {
    (self.store, self.database, self.watch) = (store, database, watch)
    overlap = store.environment.overlap
    plan = SyncPlan(
      StoreFacts(store), database.address, policies, policy, operationsMax: database.operationsMax)
  }

  private var clock: any SystemClock { store.environment.clock }

  // MARK: The loop

  /// Makes a cycle. `plan.cycle.report` has its counts, also when this throws.
  mutating func run(_ options: CycleOptions) async throws {
    plan.begin(options, StoreFacts(store))
    database.beginCycle(isUserInitiated: options.isUserInitiated)
    try await drive { _ in false }
  }

  /// Follows the plan until nothing is due, or until `isOver`.
  mutating func drive(until isOver: (SyncPlan) throws -> Bool) async throws {
    ahead = nil
    do {
      while try !isOver(plan) {
        // A cancellation waits until the results of an answer are in the log.
        if plan.steps.isEmpty { try Task.checkCancellation() }
        try store.requireWritable()
        // A copy of a store logs its new writer ID first: the original may have sent the copy's pending changes.
        if store.core.withLock({ $0.hasNewName }) { try await store.commit { try $0.appendOpened() } }
        let means = SyncPlan.Means(hasTime: !isOutOfTime, ahead: ahead?.request)
        switch try plan.next(StoreFacts(store), means) {
        case .ask(let request): try await carry(out: request)
        case .store(let step): try await carry(out: step)
        case .wait(let wait):
          plan.cycle.failsInPart = wait.isOfPart
          try await sleep(wait)
          plan.cycle.failsInPart = false
          continue
        case .outOfTime:
          plan.cycle.report.isUnfinished = true
          return
        case .done: return
        }
        watch.stepEnded(plan, takeNotices(), plan.allRefusedZones(StoreFacts(store)))
      }
    } catch let error as CloudError {
      throw error.asStrandlineError(doing)
    } catch let error as RefusedCycle {
      throw error.asStrandlineError(doing)
    } catch let error as AnotherAccount {
      throw error.asStrandlineError(store.path)
    } catch let error as NoProgress {
      throw StrandlineError(
        .noProgress,
        "\(doing): internal error: \(error.turns) turns in a row made no request; the cycle was ended, and nothing was "
          + "lost; this is a fault of the library: please report it with the output of 'strandline pending' and "
          + "'strandline log-dump'")
    }
  }

  private var doing: String { "syncing '\(store.path)'" }

  private mutating func takeNotices() -> [SyncNotice] {
    defer { plan.notices = [] }
    return plan.notices
  }

  /// Carries out all queued steps, before the next request or the end of the cycle.
  private mutating func carryOutSteps() async throws {
    while let step = plan.takeStep() { try await carry(out: step) }
  }

  /// Hands the end of a request to the plan. If that ends the cycle, its steps are made durable first.
  private mutating func apply(_ outcome: SyncOutcome, to request: SyncRequest) async throws {
    do { try plan.apply(outcome, to: request, StoreFacts(store)) } catch {
      try await carryOutSteps()
      throw error
    }
  }

  private mutating func carry(out request: SyncRequest) async throws {
    try await carryOutSteps()
    if case .uploadContent(let upload) = request { return try await carry(out: upload) }
    if case .eraseZone(let zone) = request {
      let rest = Moment(clock).milliseconds(until: nextDeparture)
      if rest > 0 { try await clock.sleep(milliseconds: rest) }
      guard plan.stillErases(zone, StoreFacts(store)) else { return }
    }
    guard case .modify(let wanted) = request else {
      let outcome: SyncOutcome
      if case .pages(let pages) = request, let known = ahead, pages == [known.request] {
        outcome = known.outcome
      } else {
        outcome = try await ask(request)
      }
      if request.pageCount > 0 { ahead = nil }
      return try await apply(outcome, to: request)
    }
    let (leaving, fallenOut) = try await store.prepare(wanted)
    plan.leaves(leaving, fallenOut)
    if leaving.uploads.isEmpty { return }
    watch.sends(leaving.uploads.count)
    let (asked, looked) = await ask(.modify(leaving)) { [store] plan in
      Result { try plan.lookAhead(StoreFacts(store)) }
    }
    let outcome: SyncOutcome
    do { outcome = try asked.get() } catch let error as StrandlineError {
      // This device has failed, and nothing was sent. If this cannot be logged, the feed is read first, as after a crash.
      _ = try? await store.perform(plan.unsent(leaving), database)
      throw error
    }
    try await apply(outcome, to: .modify(leaving))
    if case .failure(let error) = looked {
      // The results of the answer are made durable first.
      try await carryOutSteps()
      throw error
    }
  }

  /// Uploads a content. One that cannot be read here keeps its record back, and no other.
  private mutating func carry(out upload: ContentUpload) async throws {
    let content = OpenContent(upload.content, in: store)
    var sent = upload
    sent.source = content.source
    let outcome: SyncOutcome
    do { outcome = try await ask(.uploadContent(sent)) } catch {
      guard let failure = content.failure else { throw error }
      outcome = SyncOutcome(
        result: .failure(CloudError(CloudError.Code(rawValue: Held.damaged), reason: failure.message)))
    }
    try await apply(outcome, to: .uploadContent(upload))
  }

  private mutating func carry(out step: StoreStep) async throws {
    if case .page(let page) = step, let next = page.ahead, !isOutOfTime {
      try await carry(out: step, askingFor: next)
    } else {
      try plan.recorded(step, try await store.perform(step, database), StoreFacts(store))
    }
  }

  /// Carries out a step while a page is prefetched.
  ///
  /// - Throws: the step's error, or the request's if the step succeeded. Both have ended by then.
  private mutating func carry(out step: StoreStep, askingFor page: PageRequest) async throws {
    let (asked, worked) = await ask(.pages([page])) { [store, database] _ in
      await Self.result { try await store.perform(step, database) }
    }
    try plan.recorded(step, try worked.get(), StoreFacts(store))
    let outcome = try asked.get()
    if case .failure(let error) = outcome.result, error.meaning.request == .retry {
      plan.aheadFailed(page, error, StoreFacts(store))
    } else {
      plan.hear(outcome, .page)
      ahead = (page, outcome)
    }
  }

  // MARK: Requests

  /// When a request leaves, by the monotonic clock.
  private struct Departure: Sendable {
    /// The wait before it, which keeps the database's least interval between requests.
    var restMilliseconds: Int64
    var nanoseconds: UInt64
  }

  /// How a request ended, and when by the monotonic clock.
  private struct Ended: Sendable {
    var result: Result<SyncAnswer, any Error>
    var serverOffset: Int64?
    var nanoseconds: UInt64

    init(
      _ request: SyncRequest, by database: any CloudDatabase, _ departure: Departure, _ clock: any SystemClock
    ) async {
      result = await CycleDriver.result {
        if departure.restMilliseconds > 0 { try await clock.sleep(milliseconds: departure.restMilliseconds) }
        return try await request.perform(by: database)
      }
      serverOffset = database.serverClockOffset?.wholeMilliseconds
      nanoseconds = clock.monotonicNanoseconds()
    }
  }

  private static func result<Value>(_ body: () async throws -> Value) async -> Result<Value, any Error> {
    do { return .success(try await body()) } catch { return .failure(error) }
  }

  /// Sends a request once.
  ///
  /// - Throws: failures of this device, such as an unreadable session file; `CancellationError`.
  mutating func ask(_ request: SyncRequest) async throws -> SyncOutcome {
    let departure = departs(request.kind)
    let ended = await Ended(request, by: database, departure, clock)
    return try outcome(of: request, ended, departure)
  }

  /// Sends a request once, and does `work` beside it. Both have ended when this returns.
  private mutating func ask<Value: Sendable>(
    _ request: SyncRequest, beside work: (inout SyncPlan) async -> Result<Value, any Error>
  ) async -> (Result<SyncOutcome, any Error>, Result<Value, any Error>) {
    let departure = departs(request.kind)
    let (database, clock) = (database, clock)
    let ended: Ended
    let worked: Result<Value, any Error>
    switch overlap {
    case .concurrent:
      async let answer = Ended(request, by: database, departure, clock)
      worked = await work(&plan)
      ended = await answer
    case .inTurns where plan.cycle.report.requests.isMultiple(of: 2):
      worked = await work(&plan)
      ended = await Ended(request, by: database, departure, clock)
    case .inTurns:
      ended = await Ended(request, by: database, departure, clock)
      worked = await work(&plan)
    }
    return (Result { try outcome(of: request, ended, departure) }, worked)
  }

  private mutating func departs(_ kind: RequestKind) -> Departure {
    plan.cycle.report.requests += 1
    plan.cycle.idleTurns = 0
    watch.requestBegins(kind)
    let now = Moment(clock)
    let rest = now.milliseconds(until: nextDeparture)
    let departure = Departure(restMilliseconds: rest, nanoseconds: now.after(milliseconds: rest))
    nextDeparture = departure.nanoseconds &+ UInt64(max(0, database.minimumInterval.wholeMilliseconds)) &* 1_000_000
    return departure
  }

  private mutating func outcome(of request: SyncRequest, _ ended: Ended, _ departure: Departure) throws -> SyncOutcome {
    let duration = ended.nanoseconds > departure.nanoseconds ? ended.nanoseconds - departure.nanoseconds : 0
    switch ended.result {
    case .success(let answer):
      // A content's size says nothing of the next request.
      if request.kind != .content { longestRequest = max(longestRequest, duration) }
      watch.requestEnded(request.kind, pages: request.pageCount)
      foreignError = nil
      return SyncOutcome(result: .success(answer), serverOffset: ended.serverOffset)
    case .failure(let error):
      watch.requestEnded(request.kind, error)
      // The time of a failed request counts as waiting: mostly it ran into its time-out.
      plan.cycle.report.waitedMilliseconds += Int64(duration / 1_000_000)
      try Task.checkCancellation()
      if let error = error as? CloudError {
        return SyncOutcome(result: .failure(error), serverOffset: ended.serverOffset)
      }
      // A failure of this device, such as an unreadable session file, is no answer of the server's.
      if error is StrandlineError { throw error }
      // `CloudDatabase` throws nothing else; another error from an app's own implementation counts as "no answer".
      foreignError = error
      return SyncOutcome(result: .failure(CloudError(.networkError, reason: "the cloud database failed: \(error)")))
    }
  }

  // MARK: Waits

  mutating func sleep(_ wait: RequestPace.Wait) async throws {
    let waited = plan.cycle.report.waitedMilliseconds
    let isTooLong = plan.cycle.options.waitMillisecondsMax.map { waited + wait.milliseconds > $0 } ?? false
    if isTooLong || isBeyondDeadline(wait.milliseconds) {
      var error = wait.error.asStrandlineError(
        wait.doing, wait: Double(wait.milliseconds) / 1000, isServers: wait.isServers)
      if let foreignError { error.underlying = foreignError }
      throw error
    }
    plan.cycle.report.waitedMilliseconds += wait.milliseconds
    watch.waits(wait)
    try await clock.sleep(milliseconds: wait.milliseconds)
  }

  /// Whether a request that begins now might not be answered before the deadline.
  private var isOutOfTime: Bool {
    guard plan.cycle.options.mayEndEarly, let end = deadline.first else { return false }
    let departure = max(clock.monotonicNanoseconds(), nextDeparture)
    let (moment, overflow) = departure.addingReportingOverflow(longestRequest)
    return overflow || moment > end
  }

  /// Whether a wait would last beyond the deadline.
  private func isBeyondDeadline(_ milliseconds: Int64) -> Bool {
    guard plan.cycle.options.mayEndEarly, let end = deadline.first else { return false }
    return Moment(clock).after(milliseconds: milliseconds) > end
  }
}

extension RefusedCycle {
  func asStrandlineError(_ doing: String) -> StrandlineError {
    isWhole
      ? StrandlineError(.serverRefused, "\(doing): \(words)", underlying: error)
      : error.asStrandlineError("\(doing): \(words)")
  }
}

extension AnotherAccount {
  func asStrandlineError(_ path: String) -> StrandlineError {
    let what = known.userHash != found.userHash ? "another user" : "'\(known.container)' \(known.environment)"
    return StrandlineError(
      .accountMismatch,
      "the store at '\(path)' belongs to \(what), not to '\(found.container)' \(found.environment) of this user; "
        + "nothing was sent; open another store for this account")
  }
}
