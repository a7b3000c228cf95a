// Who waits for changes. The moment at which events become durable is the one place that knows which records changed: it
// tells those observers that are concerned to look again, and nothing more. What an observer then reads is its own work,
// on its own task, so a slow observer delays neither a writer nor another observer.

import StrandlineSystem
import Synchronization

/// The observers of a store.
package final class Observers: Sendable {
  /// What an observer looks at.
  enum Interest: Sendable {
    case record(RecordID)
    /// Records of a type, in one zone if it is named.
    case records(type: String, zone: ZoneID?)
    /// Anything.
    case all
    /// Every event that became durable.
    case events

    func isConcerned(by changes: DurableChanges) -> Bool {
      switch self {
      case .record(let id): changes.ids.contains(id)
      case .records(let type, let zone?): changes.types[zone]?.contains(type) == true
      case .records(let type, nil): changes.types.values.contains { $0.contains(type) }
      case .all: true
      case .events: false
      }
    }
  }

  /// Tells one observer to look again.
  final class Signal: Sendable {
    private let continuation: AsyncStream<Void>.Continuation
    private let count = Atomic<UInt64>(0)

    fileprivate init(_ continuation: AsyncStream<Void>.Continuation) { self.continuation = continuation }

    /// How often the observer was told.
    var toldCount: UInt64 { count.load(ordering: .relaxed) }

    fileprivate func tell() {
      count.wrappingAdd(1, ordering: .relaxed)
      continuation.yield()
    }

    fileprivate func finish() { continuation.finish() }
  }

  private struct State: Sendable {
    var observers: [UInt64: (interest: Interest, signal: Signal)] = [:]
    var next: UInt64 = 0
    /// How many look at every event.
    var readers = 0
    var isClosed = false
  }
  private let state = OrderedMutex(State())

  package init() {}

  /// A stream of signals to look again; those that the observer has not yet waited for are one. It ends with the store.
  func signals(_ interest: Interest) -> AsyncStream<Void> { observe(interest).signals }

  /// The same, and what tells them.
  func observe(_ interest: Interest) -> (signals: AsyncStream<Void>, signal: Signal) {
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let signal = Signal(continuation)
    let number: UInt64? = state.withLock { state in
      guard !state.isClosed else { return nil }
      state.next += 1
      state.observers[state.next] = (interest, signal)
      if case .events = interest { state.readers += 1 }
      return state.next
    }
    guard let number else {
      signal.finish()
      return (stream, signal)
    }
    continuation.onTermination = { [weak self] _ in
      self?.state.withLock { state in
        guard let removed = state.observers.removeValue(forKey: number) else { return }
        if case .events = removed.interest { state.readers -= 1 }
      }
    }
    return (stream, signal)
  }

  /// Tells those who are concerned.
  func tell(_ changes: DurableChanges) {
    let concerned = state.withLock { state in
      state.observers.values.filter { $0.interest.isConcerned(by: changes) }.map(\.signal)
    }
    for signal in concerned { signal.tell() }
  }

  /// Tells those who read every event that there are more.
  func tellReaders() {
    let readers: [Signal] = state.withLock { state in
      guard state.readers > 0 else { return [] }
      return state.observers.values.compactMap { if case .events = $0.interest { $0.signal } else { nil } }
    }
    for reader in readers { reader.tell() }
  }

  /// Tells all of them.
  package func tellAll() {
    for observer in state.withLock({ Array($0.observers.values) }) { observer.signal.tell() }
  }

  /// Ends every observation.
  func close() {
    let signals = state.withLock { state in
      state.isClosed = true
      defer { (state.observers, state.readers) = ([:], 0) }
      return state.observers.values.map(\.signal)
    }
    for signal in signals { signal.finish() }
  }
}

/// A value of the store, and the same again whenever it has changed durably.
///
/// The first value comes at once. Changes that come faster than they are asked for are one, and the last of them is never
/// left out. Values that equal the one before are left out. It ends when the store is closed, and at once when the task is
/// cancelled; it throws what reading throws, and ends with that.
///
/// It goes on while the store is suspended, and shows what `refresh()` brings. If another process has compacted the store
/// meanwhile, so that what is shown cannot be read any more, the observation refreshes the store itself.
///
/// Each iteration begins anew: two loops over one observation are two observers.
public struct StoreObservation<Element: Sendable>: AsyncSequence, Sendable {
  /// Looks, and returns nil if it sees what it saw the last time.
  fileprivate typealias Look = @Sendable (RecordStore, inout (any Equatable & Sendable)?) throws -> Element?
  private let store: RecordStore
  private let interest: Observers.Interest
  private let look: Look

  init(
    _ store: RecordStore, _ interest: Observers.Interest, _ look: @escaping @Sendable (RecordStore) throws -> Element
  ) where Element: Equatable { self.init(store, interest, look) { $0 } }

  /// - Parameters:
  ///   - read: reads what tells whether the value has changed.
  ///   - make: makes the value of it.
  init<Read: Equatable & Sendable>(
    _ store: RecordStore, _ interest: Observers.Interest, _ read: @escaping @Sendable (RecordStore) throws -> Read,
    _ make: @escaping @Sendable (Read) throws -> Element
  ) {
    self.store = store
    self.interest = interest
    look = { store, last in
      let found = Seen(value: try read(store))
      if let known = last as? Seen<Read>, known == found { return nil }
      last = found
      return try make(found.value)
    }
  }

  /// What was read last. Not the value alone: to a cast, an optional that is nil and nothing at all are one.
  private struct Seen<Read: Equatable & Sendable>: Equatable, Sendable {
    let value: Read
  }

  /// Begins to observe.
  public func makeAsyncIterator() -> AsyncIterator {
    // In this order: what becomes durable from here on is told, and the first look sees what was before.
    store.projections.withLock { $0.countsChanges = true }
    return AsyncIterator(store, store.observers.observe(interest), look)
  }

  /// The values, one after the other.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let store: RecordStore
    private var signals: AsyncStream<Void>.AsyncIterator
    private let signal: Observers.Signal
    private let look: Look
    private var last: (any Equatable & Sendable)?
    private var isOver = false

    fileprivate init(
      _ store: RecordStore, _ observing: (signals: AsyncStream<Void>, signal: Observers.Signal),
      _ look: @escaping Look
    ) {
      self.store = store
      signals = observing.signals.makeAsyncIterator()
      signal = observing.signal
      self.look = look
    }

    /// How often the observer was told to look again: a proof asks it before it waits for a value that has changed.
    package var toldCount: UInt64 { signal.toldCount }

    /// The next value; nil at the end.
    public mutating func next() async throws -> Element? {
      var isOutdated = false
      while !isOver {
        if last != nil, !isOutdated, await signals.next() == nil { break }
        if Task.isCancelled { break }
        do {
          if isOutdated { try store.refresh() }
          isOutdated = false
          if let value = try look(store, &last) { return value }
        } catch let error as StrandlineError where error.code == .closed {
          break
        } catch let error as StrandlineError where error.code == .outdated {
          // Another process has compacted the store, or a resumption has made its state anew between view and read.
          isOutdated = true
          await Task.yield()
        } catch {
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
  /// A record, now and whenever it has changed durably; nil where it does not live.
  public func observe(_ id: RecordID) -> StoreObservation<Record?> {
    StoreObservation(self, .record(canonical(id))) { try $0.record(id) }
  }

  /// For tests: the store's state, now and whenever something of it has changed durably.
  package func observeStatus() -> StoreObservation<StoreStatus> {
    StoreObservation(self, .all) { try $0.status() }
  }

  /// Tells the observers what has become durable.
  func publish() {
    let durable = source.durableLSN
    let changes = projections.withLock { $0.takeDurableChanges(upTo: durable) }
    if !changes.isEmpty { observers.tell(changes) }
    index?.durabilityAdvanced()
    considerCompaction()
    observers.tellReaders()
  }
}
