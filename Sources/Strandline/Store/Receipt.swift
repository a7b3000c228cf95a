// What a write returns: it is durable now; its upload and its outcome can be awaited.

import StrandlineLog
import Synchronization

/// What became of one mutation.
public enum MutationOutcome: Hashable, Sendable {
  /// The server has it.
  case saved
  /// It went into a version that holds another device's edit too.
  case merged
  /// A later mutation stands in its place.
  case superseded(by: LSN)
  /// It never needed to leave: the record was created and deleted before anything was sent.
  case cancelled
  /// The record was deleted at the server; the edit is kept in history.
  case deletedOnServer
  /// The server refused it for good.
  case rejected(code: String, reason: String)
  /// The app gave it up.
  case discarded
}

/// A durable write. Everything else about it can be awaited here.
public struct Receipt: Sendable {
  /// The events of the transaction; nil if it changed nothing.
  public let lsns: ClosedRange<LSN>?
  /// Everything up to here was durable when the receipt was given.
  public let durableLSN: LSN
  /// Where the transaction ends, in a form that may leave the process: `store.receipt(at:)` takes it after any number of
  /// relaunches. For a transaction that changed nothing it is the newest event that it saw.
  public let position: LogPosition
  private let store: RecordStore

  init(lsns: ClosedRange<LSN>?, durableLSN: LSN, position: LogPosition, store: RecordStore) {
    self.lsns = lsns
    self.durableLSN = durableLSN
    self.position = position
    self.store = store
  }

  /// Returns when every mutation of the transaction is settled: by the server, or by what took its place.
  ///
  /// - Throws: `StrandlineError.notSyncing` if the store has no engine; `.closed` if it is closed meanwhile;
  ///   `.damaged` and `.io` if an event of the transaction cannot be read; `CancellationError`. It never hangs without an
  ///   engine.
  /// - Complexity: O(mutations of the transaction).
  public func uploaded(fileID: String = #fileID, line: Int = #line) async throws {
    guard let lsns else { return }
    try await CallSite(fileID, line).run("waiting for an upload") { try await store.waitUntilSettled(lsns) }
  }

  /// What became of each record of the transaction, when all of it is settled. Ask before `compact()` has removed the
  /// events that say so: a record whose are gone is left out.
  ///
  /// - Throws: `StrandlineError` as `uploaded()`; `.damaged` and `.io` if an event cannot be read.
  public func outcome(fileID: String = #fileID, line: Int = #line) async throws -> [RecordID: MutationOutcome] {
    guard let lsns else { return [:] }
    try await uploaded(fileID: fileID, line: line)
    return try await CallSite(fileID, line).run("reading the outcome of events \(lsns)") {
      // The event that settled the mutation may not be durable yet, and only durable events can be read.
      if case .writer(let log) = store.source {
        try await log.waitUntilDurable(store.projections.appliedLSN.rawValue)
      }
      return try store.outcomes(of: lsns, fileID: fileID, line: line)
    }
  }
}

/// Those mutations of a transaction that the server may still be owed.
package struct OpenMutations: Sendable {
  fileprivate var mutations: [(id: RecordID, lsn: LSN)] = []
  /// So many of them, from the first, may be owed still.
  fileprivate var count = 0
  /// Compaction has removed mutations of the transaction, which a later one of a record stands for, and with them which
  /// record that is: nothing that is as old may be owed.
  fileprivate var compacted: LSN?

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
}

/// The callers of `Receipt.uploaded` that wait for their mutations to settle.
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
  private let state = Mutex(State())

  package init() {}

  fileprivate func wait(_ lsns: ClosedRange<LSN>, in store: RecordStore) async throws {
    let open = try store.openMutations(of: lsns)
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

  /// Resumes the waiters whose mutations are settled.
  package func resumeSettled(in store: RecordStore) {
    let waiting = state.withLock { $0.waiters }
    for (number, waiter) in waiting {
      var open = waiter.open
      let isSettled = Result { try open.isSettled(in: store.projections) }
      if case .success(false) = isSettled {
        state.withLock { $0.waiters[number]?.open.count = open.count }
      } else if let waiter = state.withLock({ $0.waiters.removeValue(forKey: number) }) {
        waiter.continuation.resume(with: isSettled.map { _ in () })
      }
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
      case .saved(let saved): open.mutations.append((saved.id, lsn))
      case .superseded(let saved): open.mutations.append((saved.id, lsn))
      case .deleted(let deleted): open.mutations.append((deleted.id, lsn))
      case nil: open.compacted = lsns.upperBound
      default: break
      }
      lsn = lsn.advanced(by: 1)
    }
    open.count = open.mutations.count
    return open
  }

  /// A receipt again, from a position that an earlier one gave, perhaps before a relaunch.
  ///
  /// - Throws: `StrandlineError.noSuchRecord` if the position is not of this log: the store was restored from a backup
  ///   or is another one.
  public func receipt(at position: LogPosition, fileID: String = #fileID, line: Int = #line) throws -> Receipt {
    try CallSite(fileID, line).run("looking for the write at event \(position.lsn)") {
      try requireOpen()
      return try findReceipt(at: position)
    }
  }

  private func findReceipt(at position: LogPosition) throws -> Receipt {
    let durable = source.durableLSN
    // A transaction that changed nothing in an empty log: every log has this place.
    if position.lsn == .none { return Receipt(lsns: nil, durableLSN: durable, position: position, store: self) }
    try check(position, in: projections.sync, upTo: durable)
    let first = try source.transactionStart(of: position.lsn)
    return Receipt(lsns: first...position.lsn, durableLSN: durable, position: position, store: self)
  }

  fileprivate func waitUntilSettled(_ lsns: ClosedRange<LSN>) async throws {
    try requireOpen()
    guard driver.withLock({ $0 }) != nil else {
      throw StrandlineError(.notSyncing, "the store at '\(path)' has no sync engine; nothing will be uploaded")
    }
    try await settledWaiters.wait(lsns, in: self)
  }

  /// What became of each record's mutation in a range of events, as far as it is settled and compaction has left the
  /// events that say so.
  ///
  /// - Throws: `StrandlineError`: `.damaged`, `.io`, `.closed`.
  /// - Complexity: O(events since the range).
  public func outcomes(
    of lsns: ClosedRange<LSN>, fileID: String = #fileID, line: Int = #line
  ) throws -> [RecordID: MutationOutcome] {
    try CallSite(fileID, line).run("reading the outcome of events \(lsns)") {
      try requireOpen()
      return try findOutcomes(of: lsns)
    }
  }

  private func findOutcomes(of lsns: ClosedRange<LSN>) throws -> [RecordID: MutationOutcome] {
    var open: [RecordID: LSN] = [:]
    var result: [RecordID: MutationOutcome] = [:]
    var lsn = lsns.lowerBound
    let end = source.durableLSN
    while lsn <= end, lsn <= lsns.upperBound || !open.isEmpty {
      defer { lsn = lsn.advanced(by: 1) }
      guard let event = try source.eventIfKept(at: lsn) else { continue }
      if let id = event.recordID, let mutation = open[id], let outcome = Self.outcome(of: mutation, by: event) {
        result[id] = outcome
        open[id] = nil
      }
      if lsns.contains(lsn) {
        switch event {
        case .saved(let saved): open[saved.id] = lsn
        case .superseded(let saved): open[saved.id] = lsn
        case .deleted(let deleted): open[deleted.id] = lsn
        default: break
        }
      }
    }
    return result
  }

  private static func outcome(of mutation: LSN, by event: Event) -> MutationOutcome? {
    switch event {
    case .merged(let merged) where merged.local >= mutation: return .merged
    case .discarded(let discarded) where discarded.lsn >= mutation: return .discarded
    case .settled(let settled) where settled.lsn > mutation: return .superseded(by: settled.lsn)
    case .settled(let settled) where settled.lsn == mutation: return settled.mutationOutcome
    default: return nil
    }
  }
}
