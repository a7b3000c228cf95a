// Whether a lock that a thread takes out of turn is found, whatever the two locks are.

import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The order of locks` {
  @Test func `has a sentence on each two that are taken out of turn, and on no others`() {
    for (number, place) in LockPlace.allCases.enumerated() {
      #expect(place.conflict(held: 0) == nil)
      for (otherNumber, other) in LockPlace.allCases.enumerated() {
        let conflict = place.conflict(held: 1 << UInt64(other.rawValue))
        if otherNumber < number {
          #expect(conflict == nil)
        } else {
          #expect(conflict?.contains("holds the lock '\(other)' takes the lock '\(place)'") == true)
        }
      }
    }
    // Of several it names the one that is nearest.
    #expect(
      LockPlace.queue.conflict(held: 1 << UInt64(LockPlace.writer.rawValue) | 1 << UInt64(LockPlace.value.rawValue))
        != nil)
  }

  @Test func `is that of each thread for itself`() {
    let queue = OrderedMutex(.queue, 1)
    let value = OrderedMutex(2)
    let sum = queue.withLock { one in value.withLock { one + $0 } }
    #expect(sum == 3)
    value.withLock { _ in LockPlace.asAnotherThread { queue.withLock { $0 += 1 } } }
    #expect(queue.withLock { $0 } == 2)
  }

  #if DEBUG
    @Test func `ends a debug build where a thread breaks it`() async {
      let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
        let queue = OrderedMutex(.queue, 1)
        let value = OrderedMutex(2)
        value.withLock { _ in queue.withLock { _ in } }
      }
      let words = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
      #expect(words.contains("a thread that holds the lock 'value' takes the lock 'queue'"))
    }
  #endif
}
