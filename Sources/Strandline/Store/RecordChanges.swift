// The changes since a position as a sequence: first those that the log has, then each as it becomes durable. It pulls
// pages from the log, so what is in memory is one page, however slow the consumer is and however much is written
// meanwhile.

/// The changes of records since a position, each once and in the order of the log; then those that become durable.
///
/// It ends when the store is closed, and at once when the task is cancelled. It throws what `changes(since:)` throws, and
/// ends with that: `.positionExpired` if compaction has removed events that were not asked for yet, because a sequence
/// holds back no compaction. `RecordChange.position` is where to begin the next one.
///
/// Each iteration begins anew, after the same position.
public struct RecordChanges: AsyncSequence, Sendable {
  private let store: RecordStore
  private let position: LogPosition

  init(_ store: RecordStore, since position: LogPosition) {
    self.store = store
    self.position = position
  }

  /// Begins after the position.
  public func makeAsyncIterator() -> AsyncIterator {
    // In this order: what becomes durable from here on is told, and the first page has what was before.
    let signals = store.observers.signals(.events)
    return AsyncIterator(store, position, signals)
  }

  /// The changes, one after the other.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private static let pageLimit = 256
    private let store: RecordStore
    private var signals: AsyncStream<Void>.AsyncIterator
    private var position: LogPosition
    private var page: ArraySlice<RecordChange> = []
    private var hasMore = true
    private var isOver = false

    fileprivate init(
      _ store: RecordStore, _ position: LogPosition, _ signals: AsyncStream<Void>
    ) {
      self.store = store
      self.signals = signals.makeAsyncIterator()
      self.position = position
    }

    /// The next change; nil at the end.
    public mutating func next() async throws -> RecordChange? {
      while !isOver {
        if Task.isCancelled { break }
        if let change = page.popFirst() { return change }
        if !hasMore, await signals.next() == nil { break }
        do {
          let read = try store.changes(since: position, limit: Self.pageLimit)
          page = read.changes[...]
          position = read.position
          hasMore = read.hasMore
        } catch let error as StrandlineError where error.code == .closed { break } catch {
          isOver = true
          throw error
        }
      }
      isOver = true
      return nil
    }
  }
}

extension RecordStore {
  /// The changes of records since a position, and then each as it becomes durable: what `changes(since:)` pages, as a
  /// sequence that does not end by itself.
  ///
  /// A consumer that is slow delays no writer and takes no memory but for a page.
  public func observeChanges(
    since position: LogPosition
  ) -> RecordChanges { RecordChanges(self, since: position) }
}
