// Goal: the engine's task wakes at a signal or when its time is over, once for each. Method: both at one moment, again and again.

import Strandline
import StrandlineSimulation
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A signal with a time-out` {
  private final class Waiting: Sendable {
    private let ended = Mutex(false)
    var hasEnded: Bool { ended.withLock { $0 } }

    func wait(for signal: AsyncSignal, _ clock: SimulatedClock) async {
      await signal.wait(atMost: 10, clock: clock)
      ended.withLock { $0 = true }
    }
  }

  @Test func `ends one wait where both come at once`() async {
    let (signal, clock) = (AsyncSignal(), SimulatedClock(autoAdvance: false))
    for _ in 0..<500 {
      let first = Task { await Waiting().wait(for: signal, clock) }
      while clock.sleeperCount == 0 { await Task.yield() }
      signal.signal()
      clock.advance(milliseconds: 10)
      await first.value
      let next = Waiting()
      let second = Task { await next.wait(for: signal, clock) }
      while clock.sleeperCount == 0, !next.hasEnded { await Task.yield() }
      for _ in 0..<10 { await Task.yield() }
      #expect(!next.hasEnded)
      clock.advance(milliseconds: 10)
      await second.value
    }
  }

  @Test func `ends the next wait at once where nobody waits`() async {
    let (signal, clock) = (AsyncSignal(), SimulatedClock(autoAdvance: false))
    signal.signal()
    await signal.wait(atMost: 10, clock: clock)
    #expect(clock.sleeperCount == 0)
  }
}
