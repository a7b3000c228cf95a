// A contended lock, which the thread sanitizer must not report, and a data race, which it must report.

import Dispatch
import Synchronization

final class Counter {
  var value = 0
  let lock = Mutex(())
}

@main
enum Contention {
  static func main() {
    let counter = Counter()
    let isLocked = CommandLine.arguments.last == "locked"
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
      for _ in 0..<20_000 {
        if isLocked { counter.lock.withLock { _ in counter.value += 1 } } else { counter.value += 1 }
      }
    }
    print(counter.value)
  }
}
