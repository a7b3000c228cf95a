// What CONTROL says of groups, and the watch: what happens a fifth of a second after an append.
//
// What promises a group inside its segment follows that group, so a segment that is cut takes the promise along. So
// CONTROL says of each group that it is durable, before its writers hear of it: readers in other processes find by it what
// was acknowledged (decisions L10, L21). It is one write without a sync; the system brings it to the medium in its
// own time. The watch does it again where it failed, and says what a flush has made durable. It also writes what was
// appended and what no caller waits for.

import Dispatch
import StrandlineSystem
import Synchronization

extension Log {
  /// Watches until everything that was appended is durable and covered by CONTROL. One watch at a time.
  func startWatching() {
    guard let milliseconds = options.controlIntervalMilliseconds else { return }
    watchQueue.async { [weak self, clock] in
      while true {
        clock.sleepBlocking(milliseconds: milliseconds)
        guard let self, self.watch() else { return }
      }
    }
  }

  /// Writes what is queued and raises CONTROL.
  ///
  /// - Returns: whether to look again: more was appended meanwhile.
  private func watch() -> Bool {
    let leads = queue.withLock { state in
      guard state.hasQueue, !state.isLed else { return false }
      state.isLed = true
      return true
    }
    if leads {
      writeNextGroup()
      stopLeading()
    }
    if let bound = queue.withLock({ $0.boundToRaise() }) { raise(to: bound) }
    return queue.withLock { state in
      // A group that is being written is neither queued nor durable: its raise is still to come.
      let isUnderWay = state.isOpen && state.durableLSN + 1 < state.nextLSN
      state.isWatched = isUnderWay || state.boundToRaise() != nil
      return state.isWatched
    }
  }

  /// Says in CONTROL how far the log is durable, without a sync, unless CONTROL says so already.
  ///
  /// - Throws: `.io` or `.full`; the log goes on, and what it has acknowledged is as durable as before.
  package func raiseControl() throws(LogError) {
    guard let bound = queue.withLock({ $0.boundToRaise() }) else { return }
    raise(to: bound)
    if let failure = upkeep.failure(of: .raising) { throw failure }
  }

  /// Says in CONTROL that a group is durable, before its writers hear of it. The caller holds the disk, so no close ends it.
  ///
  /// - Returns: whether CONTROL says so. A failure is upkeep's, not a writer's: the watch tries again, and so does the next group at
  ///   once, because readers wait for it.
  /// - Throws: `.unknown` if a copy was put over the files, perhaps before the group was written into them.
  func publish(_ bound: LogBound) throws(WriteFailure) -> Bool {
    do throws(WriteFailure) {
      try keeper.hold.raise(bound)
    } catch {
      guard case .refused(let cause) = error else { throw .unknown(error.cause) }
      let failure = LogError.system("cannot raise the bound in '\(keeper.directory.control)'", cause)
      upkeep.failed(.raising, failure, now: clock.monotonicNanoseconds())
      return false
    }
    if upkeep.failure(of: .raising) != nil { upkeep.succeeded(.raising) }
    return true
  }

  /// A failure is upkeep's, not a writer's.
  private func raise(to bound: LogBound) {
    guard upkeep.isDue(.raising, now: clock.monotonicNanoseconds()) else { return }
    do throws(LogError) {
      try upkeep.enter()
      defer { upkeep.leave() }
      do throws(LogError) {
        try keeper.hold.checkIfDue(now: clock.monotonicNanoseconds())
        do throws(WriteFailure) {
          try keeper.hold.raise(bound)
        } catch {
          throw error.error("cannot raise the bound in '\(keeper.directory.control)'")
        }
      } catch {
        guard error.code == .replaced else { throw error }
        // Not while a group is being written, of which nobody can say yet whether it is durable.
        return disk.withLock { _ in queue.withLock { $0.poison(error) } }.tell()
      }
      queue.withLock { $0.raised(to: bound) }
      upkeep.succeeded(.raising)
    } catch {
      if error.code != .closed { upkeep.failed(.raising, error, now: clock.monotonicNanoseconds()) }
    }
  }
}
