// Both sides work at once: while the server answers, the machine does what needs no answer. It commits a page while the next
// one is asked for, whose token is in it; and it reads and encodes a batch while the one before is under way. One request
// is under way at a time.
//
// What is made ahead counts for nothing before its turn. A page is applied only if the zone's token is still the one that it
// was asked with. A batch leaves only with those records whose newest mutation and base are still the encoded ones, and its
// `sent` is appended then; a refusal in the batch before drops it. So a crash, a cancellation or a write of the app in
// between costs the work and nothing else. In memory are two pages or two batches at most.

import StrandlineSystem

extension SyncMachine {
  /// A page that was asked for while the one before it was committed.
  struct PageAhead: Sendable {
    var zone: ZoneID
    var asked: ChangeToken
    var limit: Int
    /// It was asked for without fields.
    var lists: Bool
    var answer: Result<ZonePage, CloudError>
  }

  /// What the queue had next while a request was under way; with its operations, if it is to be sent.
  struct Prepared: Sendable {
    var work: UploadQueue.Work
    var batch: Batch?
  }

  // MARK: Requests

  /// How a request ended, and when by the monotonic clock.
  struct Ended<Answer: Sendable>: Sendable {
    var result: Result<Answer, any Error>
    var nanoseconds: UInt64

    init(_ clock: any SystemClock, _ departure: Departure, _ request: () async throws -> Answer) async {
      result = await SyncMachine.result {
        if departure.restMilliseconds > 0 { try await clock.sleep(milliseconds: departure.restMilliseconds) }
        return try await request()
      }
      nanoseconds = clock.monotonicNanoseconds()
    }
  }

  private static func result<Value>(_ body: () async throws -> Value) async -> Result<Value, any Error> {
    do { return .success(try await body()) } catch { return .failure(error) }
  }

  /// Sends a request once, and does `work` meanwhile. Where time is simulated one follows the other, now this one first and
  /// now that one, so that a seed is one history.
  ///
  /// - Throws: what `work` threw, else what the request threw. Both have ended by then.
  mutating func send<Answer: Sendable>(
    _ kind: RequestKind, _ request: @escaping @Sendable () async throws -> Answer,
    meanwhile work: (inout SyncMachine) async throws -> Void
  ) async throws -> Answer {
    let departure = departs(kind)
    let clock = store.environment.clock
    let ended: Ended<Answer>
    let worked: Result<Void, any Error>
    if !clock.isSimulated {
      async let answer = Ended(clock, departure, request)
      worked = await Self.result { try await work(&self) }
      ended = await answer
    } else if report.requests.isMultiple(of: 2) {
      worked = await Self.result { try await work(&self) }
      ended = await Ended(clock, departure, request)
    } else {
      ended = await Ended(clock, departure, request)
      worked = await Self.result { try await work(&self) }
    }
    let answer = Result { try self.ended(kind, ended, departure) }
    try worked.get()
    return try answer.get()
  }

  // MARK: A page ahead

  /// The page that was asked for ahead, if it is the one to apply next. Throws the refusal, if there was one.
  mutating func takePageAhead(
    of zone: ZoneID, since token: ChangeToken?, _ limit: Int, _ lists: Bool
  ) throws -> ZonePage? {
    guard let ahead else { return nil }
    self.ahead = nil
    let isIt = ahead.zone == zone && ahead.asked == token && ahead.limit == limit && ahead.lists == lists
    return isIt ? try ahead.answer.get() : nil
  }

  /// Whether the next page is here already.
  var hasPageAhead: Bool {
    guard let ahead, ahead.zone == nextZoneToFetch(), fetches[ahead.zone]?.startsOver != true else { return false }
    return zone(ahead.zone)?.token == ahead.asked
  }

  /// Asks for the page behind the one that `work` commits meanwhile, unless requests have to wait.
  mutating func askAhead(
    of zone: ZoneID, since token: ChangeToken, _ limit: Int, _ lists: Bool,
    meanwhile work: (inout SyncMachine) async throws -> Void
  ) async throws {
    guard pace.wait(for: .page) == nil, !isOutOfTime else { return try await work(&self) }
    let answer: Result<ZonePage, CloudError>
    do {
      let page = try await send(
        .page, { [database] in try await database.page(of: zone, since: token, limit, lists: lists) }, meanwhile: work)
      answer = .success(page)
    } catch let error as CloudError {
      guard ErrorPolicy.request(error) != .retry else {
        return try await pace.failed(.page, error, doing: "fetching changes of zone '\(zone)'")
      }
      answer = .failure(error)
    }
    ahead = PageAhead(zone: zone, asked: token, limit: limit, lists: lists, answer: answer)
  }

  // MARK: A batch ahead

  /// Takes the next saves from the queue and makes their operations.
  ///
  /// Deletions are left: which of them may go depends on what the server says to the saves that are under way.
  mutating func prepare() throws {
    guard prepared == nil, parts.isEmpty, contentious.isEmpty, zoneToErase == nil else { return }
    guard let work = try queue.next(reading(savesOnly: true)) else { return }
    var batch: Batch?
    if case .send(let zone, let units) = work { batch = try makeBatch(of: units, in: zone) }
    prepared = Prepared(work: work, batch: batch)
  }

  /// What was prepared, if it may go now.
  mutating func takePrepared(_ frozen: Set<ZoneID>) -> Prepared? {
    if case .send(let zone, _)? = prepared?.work, frozen.contains(zone) { dropPrepared() }
    // Whether an old life may be deleted is asked again: the app, or the answer, may have changed what keeps it.
    if prepared?.batch?.uploads.contains(where: \.isPreparation) == true { dropPrepared() }
    defer { prepared = nil }
    return prepared
  }

  /// What was prepared is taken from the queue anew.
  mutating func dropPrepared() {
    guard let dropped = prepared else { return }
    prepared = nil
    switch dropped.work {
    case .send(let zone, let units):
      queue.putBack(dropped.batch.map { UploadPlan.units($0.uploads.map(\.item) + $0.tooLarge) } ?? units, in: zone)
      for (id, _, _) in dropped.batch?.unreadable ?? [] { queue.wake(id) }
    case .hold(let unreadable): for (id, _, _) in unreadable { queue.wake(id) }
    // Deletions and sets are not prepared.
    case .sendTogether, .cancel: break
    }
  }
}
