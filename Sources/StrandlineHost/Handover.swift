// Hands values from one thread to another that works on them meanwhile, so many ahead at most: the memory of what waits is
// bounded, whichever of the two is faster.

private import Dispatch
private import Synchronization

/// A bounded queue from one thread, the giver, to another, the taker. Both block: neither may be a thread of Swift's
/// concurrency pool that others need.
package final class Handover<Item: Sendable>: Sendable {
  private struct State: Sendable {
    /// What was given and not taken, the oldest first.
    var waiting: [Item] = []
    var isEnded = false
    var isStopped = false
  }
  private let state = Mutex(State())
  // Both begin at 0 and are signalled, because libdispatch traps if one is released below the value with which it began.
  private let filled = DispatchSemaphore(value: 0)
  private let free = DispatchSemaphore(value: 0)

  /// - Parameter ahead: How many values may wait.
  package init(ahead: Int) {
    precondition(ahead > 0)
    for _ in 0..<ahead { free.signal() }
  }

  /// Gives a value, once there is room for it.
  ///
  /// - Returns: false if the queue was stopped.
  package func give(_ item: Item) -> Bool {
    free.wait()
    let isTaken = state.withLock { state in
      precondition(!state.isEnded, "a value after the last one")
      if !state.isStopped { state.waiting.append(item) }
      return !state.isStopped
    }
    // Without a taker there is always room.
    (isTaken ? filled : free).signal()
    return isTaken
  }

  /// Says that the last value has been given.
  package func end() {
    state.withLock { $0.isEnded = true }
    filled.signal()
  }

  /// Waits for the next value; nil after the last one, or when the queue was stopped.
  package func take() -> Item? {
    filled.wait()
    let item = state.withLock { $0.waiting.isEmpty ? nil : $0.waiting.removeFirst() }
    // Each later call finds the end too.
    (item == nil ? filled : free).signal()
    return item
  }

  /// Drops what waits and all that is given from now on: the giver learns it at its next value, the taker finds the end.
  package func stop() {
    state.withLock { state in
      state.isStopped = true
      state.waiting = []
    }
    free.signal()
    filled.signal()
  }
}
