// What a write returns: it is durable now; its upload and its outcome can be awaited.

import StrandlineLog
import StrandlineSystem

/// A durable write. Everything else about it can be awaited here.
public struct Receipt: Sendable {
  /// The events of the transaction; nil if it changed nothing.
  package let lsns: ClosedRange<LSN>?
  /// Everything up to here was durable when the receipt was given.
  package let durableLSN: LSN
  /// Where the transaction ends, in a form that may leave the process: `store.receipt(at:)` takes it after any number of
  /// relaunches. For a transaction that changed nothing it is the newest event that it saw.
  public let position: LogPosition
  let store: RecordStore

  init(lsns: ClosedRange<LSN>?, durableLSN: LSN, position: LogPosition, store: RecordStore) {
    self.lsns = lsns
    self.durableLSN = durableLSN
    self.position = position
    self.store = store
  }

  /// Returns when the server has the content of every mutation of the transaction, also where a merge or a later mutation
  /// carried it there.
  ///
  /// A change that the server refused for now, and that is tried again by itself, is waited for. A wait that only a person
  /// ends is not: this throws what stands in the way, and can be called again. `pendingChanges()` says what is waited for. An
  /// engine that does not run by itself is waited for until the app calls `sync()`, and a suspended one until it is resumed:
  /// `uploaded(within:)` waits for no longer than you say.
  ///
  /// - Throws: `StrandlineError.notUploaded` if a change is held until the app edits, releases or discards it, or waits for
  ///   one that is, and if it was rejected, given up, lost in a conflict as a whole, or ended with a deletion at the server; the
  ///   message says which, and `outcome()` says it as a value. `.serverRefused` if a run has ended in which the server refused
  ///   every record of a type, this one's or one's that this one waits for. `.zoneLost` if its zone is frozen; `.needsSignIn`,
  ///   `.accountMismatch` and `.fromTheFuture` if a run ended with that; `.notSyncing` if the store has no engine; `.closed` if
  ///   it is closed meanwhile; `.damaged` and `.io` if an event of the transaction cannot be read; `CancellationError`.
  /// - Complexity: O(mutations of the transaction); O(events from the write to its end) where something else than the answer
  ///   to its own upload ended one.
  public func uploaded() async throws {
    guard let lsns else { return }
    try await CallSite.unnamed.run("waiting for an upload") {
      try await store.waitUntilSettled(lsns)
      try store.checkUploaded(lsns)
    }
  }

  /// As `uploaded()`, but waits for no longer than `limit`: offline, over quota, and where nobody calls `sync()` of an engine that does
  /// not run by itself, `uploaded()` waits for as long as that lasts.
  ///
  /// - Throws: as `uploaded()`; `StrandlineError.notUploaded` also if the server does not have all of it in time. The message says
  ///   what is known of the reason. The change stays pending, and this can be called again.
  /// - Complexity: as `uploaded()`.
  public func uploaded(within limit: Duration) async throws {
    guard let lsns else { return }
    try await CallSite.unnamed.run("waiting for an upload") {
      try await store.waitUntilSettled(lsns, within: limit)
      try store.checkUploaded(lsns)
    }
  }

  /// What became of each record of the transaction, when nothing of it is owed any more. Ask before `compact()` has removed
  /// the events that say so: a record whose are gone is left out.
  ///
  /// - Throws: as `uploaded()`, but a change that was rejected, given up, lost, or ended with a deletion is a value here.
  /// - Complexity: O(events from the write to its end).
  public func outcome() async throws -> [RecordID: MutationOutcome] {
    guard let lsns else { return [:] }
    return try await CallSite.unnamed.run("reading the outcome of events \(lsns)") {
      try await store.waitUntilSettled(lsns)
      return try store.outcomes(of: lsns)
    }
  }
}

/// Those mutations of a transaction that the server may still be owed.
package struct OpenMutations: Sendable {
  private(set) var mutations: [(id: RecordID, lsn: LSN)] = []
  /// The last one of each record, and the zones of all.
  private var lsns: [RecordID: LSN] = [:]
  private var zones: Set<ZoneID> = []
  /// So many of them, from the first, may be owed still.
  fileprivate var count = 0
  /// Compaction has removed mutations of the transaction, which a later one of a record stands for, and with them which
  /// record that is: nothing that is as old may be owed.
  fileprivate var compacted: LSN?

  fileprivate mutating func append(_ id: RecordID, _ lsn: LSN) {
    mutations.append((id, lsn))
    lsns[id] = lsn
    zones.insert(id.zone)
    count += 1
  }

  /// Whether nothing is owed.
  package mutating func isSettled(in projections: SharedProjections) throws(StrandlineError) -> Bool {
    while count > 0 {
      let mutation = mutations[count - 1]
      if try projections.owes(mutation.id, mutation.lsn) { return false }
      count -= 1
    }
    guard let compacted, let oldest = projections.withLock({ $0.outbox.oldest }) else { return true }
    return oldest > compacted
  }

  /// Why one of them does not leave before a person does something; nil if all may.
  ///
  /// Each commit of the engine asks this for each receipt that is awaited, so what is held is looked for among the mutations, or
  /// they among what is held, whichever are fewer.
  ///
  /// - Parameter ruled: the losses of zones about which a rule decides: the run that carries it out says what it came to.
  fileprivate func obstacle(
    in projections: SharedProjections, ruled: Set<ZoneLoss>
  ) throws(StrandlineError) -> StrandlineError? {
    let (holds, lost) = projections.withLock { state in
      let holds =
        state.sync.held.count < count
        ? state.sync.held.values.filter { lsns[$0.id] != nil }
        : mutations.prefix(count).compactMap { state.sync.held[$0.id] }
      let lost = zones.compactMap { id in state.sync.zones[id].map { (id: id, state: $0) } }.filter { zone in
        zone.state.lostReason.map { !zone.state.isFollowed && !ruled.contains($0) } ?? false
      }
      return (holds, lost)
    }
    for zone in lost {
      for (id, lsn) in mutations.prefix(count) where id.zone == zone.id {
        if try projections.owes(id, lsn) { return StrandlineError.loss(of: zone.id, zone.state) }
      }
    }
    for held in holds {
      guard let error = StrandlineError.held(held), let lsn = lsns[held.id] else { continue }
      if try projections.owes(held.id, lsn) { return error }
    }
    return nil
  }
}

/// The callers of receipts that wait until nothing of their transactions is owed.
package final class SettledWaiters: Sendable {
  private struct Waiter: Sendable {
    var open: OpenMutations
    let continuation: CheckedContinuation<Void, any Error>
  }
  private struct State: Sendable {
    var waiters: [UInt64: Waiter] = [:]
    var next: UInt64 = 0
    var isClosed = false
  }
  private let state = OrderedMutex(State())

  package init() {}

  /// How many callers wait.
  ///
  /// For tests: they go on when a wait has begun.
  package var count: Int { state.withLock { $0.waiters.count } }

  fileprivate func wait(_ open: OpenMutations, in store: RecordStore) async throws {
    let number = state.withLock { state in
      state.next += 1
      return state.next
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
        let refusal: (any Error)? = state.withLock { state in
          if state.isClosed { return StrandlineError(.closed, "the store is closed") }
          if Task.isCancelled { return CancellationError() }
          state.waiters[number] = Waiter(open: open, continuation: continuation)
          return nil
        }
        if let refusal { continuation.resume(throwing: refusal) }
        resumeSettled(in: store)
      }
    } onCancel: {
      let waiter = state.withLock { $0.waiters.removeValue(forKey: number) }
      waiter?.continuation.resume(throwing: CancellationError())
    }
  }

  /// Resumes the waiters whose mutations are settled, or wait for a person.
  package func resumeSettled(in store: RecordStore) {
    let waiting = state.withLock { $0.waiters }
    guard !waiting.isEmpty else { return }
    let ruled = store.ruledLosses.withLock { $0 }
    for (number, waiter) in waiting {
      var open = waiter.open
      let isSettled = Result {
        if try open.isSettled(in: store.projections) { return true }
        if let obstacle = try open.obstacle(in: store.projections, ruled: ruled) { throw obstacle }
        return false
      }
      if case .success(false) = isSettled {
        state.withLock { $0.waiters[number]?.open.count = open.count }
      } else if let waiter = state.withLock({ $0.waiters.removeValue(forKey: number) }) {
        waiter.continuation.resume(with: isSettled.map { _ in () })
      }
    }
  }

  /// Ends the waits for which `obstacle` names a reason, or throws one.
  package func end(_ obstacle: (OpenMutations) throws -> StrandlineError?) {
    for (number, waiter) in state.withLock({ $0.waiters }) {
      let reason: any Error
      do {
        guard let found = try obstacle(waiter.open) else { continue }
        reason = found
      } catch { reason = error }
      state.withLock { $0.waiters.removeValue(forKey: number) }?.continuation.resume(throwing: reason)
    }
  }

  /// Ends every wait.
  package func close() {
    let waiting = state.withLock { state in
      state.isClosed = true
      defer { state.waiters = [:] }
      return state.waiters
    }
    for waiter in waiting.values {
      waiter.continuation.resume(throwing: StrandlineError(.closed, "the store was closed"))
    }
  }
}

extension RecordStore {
  /// The mutations of a transaction.
  ///
  /// - Complexity: O(mutations of the transaction).
  package func openMutations(of lsns: ClosedRange<LSN>) throws(StrandlineError) -> OpenMutations {
    var open = OpenMutations()
    var lsn = lsns.lowerBound
    while lsn <= lsns.upperBound {
      switch try source.eventIfKept(at: lsn) {
      case .saved(let saved): open.append(saved.id, lsn)
      case .superseded(let saved): open.append(saved.id, lsn)
      case .deleted(let deleted): open.append(deleted.id, lsn)
      case nil: open.compacted = lsns.upperBound
      default: break
      }
      lsn = lsn.advanced(by: 1)
    }
    return open
  }

  /// A receipt again, from a position that an earlier one gave, perhaps before a relaunch.
  ///
  /// Returns at once.
  ///
  /// - Throws: `StrandlineError.noSuchRecord` if the position is not of this log: the store was restored from a backup
  ///   or is another one. `.damaged` and `.io` if an event of the transaction cannot be read; `.closed`.
  /// - Complexity: O(events of the transaction), and of the stretch before it that a compaction has removed.
  public func receipt(at position: LogPosition) throws -> Receipt {
    try CallSite.unnamed.run("looking for the write at event \(position.lsn)") {
      try requireOpen()
      return try findReceipt(at: position)
    }
  }

  private func findReceipt(at position: LogPosition) throws -> Receipt {
    let durable = source.durableLSN
    // A transaction that changed nothing in an empty log: every log has this place.
    if position.lsn == .zero { return Receipt(lsns: nil, durableLSN: durable, position: position, store: self) }
    try check(position, in: projections.sync, upTo: durable)
    let first = try source.transactionStart(of: position.lsn)
    return Receipt(lsns: first...position.lsn, durableLSN: durable, position: position, store: self)
  }

  fileprivate func waitUntilSettled(_ lsns: ClosedRange<LSN>) async throws {
    try requireOpen()
    guard let driver = driver.withLock({ $0 }) else {
      throw StrandlineError(.notSyncing, "the store at '\(path)' has no sync engine; nothing will be uploaded")
    }
    let open = try openMutations(of: lsns)
    if let obstacle = try driver.obstacle(to: open) { throw obstacle }
    try await settledWaiters.wait(open, in: self)
    // The event that settled the mutation may not be durable yet, and only durable events can be read.
    if case .writer(let log) = source { try await log.waitUntilDurable(projections.appliedLSN.rawValue) }
  }

  /// The same for a time.
  fileprivate func waitUntilSettled(_ lsns: ClosedRange<LSN>, within limit: Duration) async throws {
    let milliseconds = Int64(max(0, min(limit / .milliseconds(1), 1e15)).rounded(.up))
    let isSettled = try await withThrowingTaskGroup(of: Bool.self) { group in
      group.addTask {
        try await self.waitUntilSettled(lsns)
        return true
      }
      group.addTask {
        try await self.environment.clock.sleep(milliseconds: milliseconds)
        return false
      }
      defer { group.cancelAll() }
      return try await group.next() ?? true
    }
    if isSettled { return }
    var open = try openMutations(of: lsns)
    // Both may have come at once.
    if try open.isSettled(in: projections) { return try await waitUntilSettled(lsns) }
    throw StrandlineError(
      .notUploaded,
      "the server does not have events \(lsns) after \(limit), and they stay pending: \(try whatDelays(open))")
  }
}
