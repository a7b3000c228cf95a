// Following a store that another process writes: what has become durable there is applied here.
//
// Between two looks the writing process may have compacted the log. Then events may be missing that were never seen here,
// and the projections are made anew: what is left of a log gives the same state only if it is read from its beginning.

import StrandlineLog
import StrandlineSystem
import Synchronization

extension RecordStore {
  /// Brings a store that was opened for reading only, or is suspended, up to what the writing process has made durable,
  /// and tells the observers. A store that writes takes in what other processes have left in its inbox (``StoreInbox``), and is
  /// up to date otherwise.
  ///
  /// Views that are held go on to show what they showed, unless the writing process has compacted the store: then they
  /// have expired, and throw `.outdated`.
  ///
  /// What was taken in is durable when this returns. While another process has the inbox open, all of it stays for the next
  /// call.
  ///
  /// - Returns: whether this call has brought anything new.
  /// - Throws: `StrandlineError`: `.damaged`, `.fromTheFuture`, `.io`, `.closed`. Of a store that writes, also what `write`
  ///   throws, and `.notAStore` if the inbox was left for another store; then what was not taken in is still in the inbox. Of
  ///   one that reads, the whole transactions that stand before
  ///   the failure in the log are shown then, and the observers told: what the writing store held at one moment. The next
  ///   call goes on behind them.
  /// - Complexity: O(new events); after a compaction O(bytes of the log).
  @discardableResult
  public func refresh() throws -> Bool {
    try CallSite.unnamed.run("reading what is new in the store at '\(path)'") {
      try requireOpen()
      guard case .reader(let reader) = source else { return try readInbox() }
      return try core.withLock { _ in try follow(reader) }
    }
  }

  /// Applies what `reader` has not handed out yet, and tells the observers.
  ///
  /// - Parameter wasRewritten: the log was compacted since the projections were made, so they are made anew.
  /// - Returns: whether anything was new.
  func follow(_ reader: LogReader, wasRewritten: Bool = false) throws -> Bool {
    let before = projections.appliedLSN
    var isMadeAnew = false
    // Also after a failure: what was read before it is the log up to the end of a transaction, so it may be shown.
    defer {
      publish()
      if isMadeAnew { observers.tellAll() }
    }
    while true {
      do {
        if wasRewritten, !isMadeAnew { throw MissedEvents() }
        try applyNews(of: reader)
        break
      } catch is MissedEvents {
        try makeAnew()
        isMadeAnew = true
      } catch let error as StrandlineError where error.isOfIndex {
        try makeAnew()
        isMadeAnew = true
      }
    }
    // The writing process has written runs meanwhile: they take the place of what memory has, unless a view shows it.
    if projections.withLock({ $0.unstoredCount > IndexOptions().unstoredCountMax && $0.views.isEmpty }) {
      try makeAnew()
      isMadeAnew = true
    }
    return isMadeAnew || projections.appliedLSN > before
  }

  private func makeAnew() throws {
    let files = IndexFiles(
      source.folder, environment, cache: BlockCache(bytesMax: IndexOptions().cacheBytesMax))
    projections.replace(with: try IndexOpening.reading(files).opened.projections)
    indexRows.removeAll()
  }

  /// Applies whole transactions. What a transaction holds that was applied already (the projections were made anew) is
  /// passed over.
  private func applyNews(of reader: LogReader) throws {
    var transaction: [(event: Event, lsn: LSN)] = []
    var next = projections.appliedLSN.advanced(by: 1)
    try reader.poll { found in
      let lsn = LSN(found.lsn)
      guard lsn >= next else { return }
      let event = try found.decoded()
      if lsn > next || EventCodec.kind(ofBody: found.body)?.isPacked == true { throw MissedEvents() }
      next = lsn.advanced(by: 1)
      transaction.append((event, lsn))
      guard found.isLast else { return }
      let events = transaction
      transaction = []
      try projections.withLockOnce { (state) throws(StrandlineError) in
        for (event, lsn) in events { try state.apply(event, at: lsn, isDurable: false) }
      }
    }
    // The newest events have left the log.
    if LSN(reader.lastLSN) >= next { throw MissedEvents() }
  }
}

/// Events are not there that would have to be applied.
private struct MissedEvents: Error {}

/// The newest event of a store that another process writes: at once, and whenever a look has found more.
///
/// It ends when the store is closed, and at once when the task is cancelled; it throws what `RecordStore.refresh` throws, and
/// ends with that. Each iteration looks for itself.
package struct StoreRefreshes: AsyncSequence, Sendable {
  private let store: RecordStore
  private let milliseconds: Int64

  fileprivate init(_ store: RecordStore, _ milliseconds: Int64) {
    self.store = store
    self.milliseconds = milliseconds
  }

  /// Begins to follow.
  package func makeAsyncIterator() -> AsyncIterator { AsyncIterator(store, milliseconds) }

  /// The newest events, one after the other.
  package struct AsyncIterator: AsyncIteratorProtocol {
    private let store: RecordStore
    private let milliseconds: Int64
    private var hasBegun = false
    private var isOver = false

    fileprivate init(_ store: RecordStore, _ milliseconds: Int64) {
      self.store = store
      self.milliseconds = milliseconds
    }

    /// The newest event that can be read now, when there is more than before; nil at the end.
    package mutating func next() async throws -> LSN? {
      guard !isOver else { return nil }
      do {
        while true {
          if hasBegun { try await store.environment.clock.sleep(milliseconds: milliseconds) }
          try Task.checkCancellation()
          let isNew = try store.refresh()
          if isNew || !hasBegun {
            hasBegun = true
            return store.durableLSN
          }
        }
      } catch {
        isOver = true
        if error is CancellationError || (error as? StrandlineError)?.code == .closed { return nil }
        throw error
      }
    }
  }
}

extension RecordStore {
  /// Follows the process that writes the store, as long as the sequence is iterated: refreshes this one again and again, so
  /// that reads, observations and `observeChanges` show what is new.
  ///
  /// - Parameter interval: how long to wait between two looks, a millisecond at least. The writing process says at
  ///   once what is durable.
  /// - Complexity: a look costs a few reads of the disk if nothing is new, else as `refresh()`.
  package func refreshes(every interval: Duration = .milliseconds(200)) -> StoreRefreshes {
    StoreRefreshes(self, max(1, interval.wholeMilliseconds))
  }
}
