// A contended lock, which the thread sanitizer must not report, and a data race, which it must report.
//
// Each thread begins when all have started. Else one that is done before the next one starts may be the one that
// starts it, and then no two accesses race, however many there are.

import Foundation
import Synchronization

final class Counter {
  var value = 0
  let lock = Mutex(())
  let started = Atomic(0)
  let ended = DispatchSemaphore(value: 0)
}

@main
enum Contention {
  static let threads = 4

  static func main() {
    let counter = Counter()
    let isLocked = CommandLine.arguments.last == "locked"
    for _ in 0..<threads {
      Thread.detachNewThread {
        counter.started.add(1, ordering: .relaxed)
        while counter.started.load(ordering: .relaxed) < threads {}
        for _ in 0..<20_000 {
          if isLocked { counter.lock.withLock { _ in counter.value += 1 } } else { counter.value += 1 }
        }
        counter.ended.signal()
      }
    }
    for _ in 0..<threads { counter.ended.wait() }
    print(counter.value)
  }
}
