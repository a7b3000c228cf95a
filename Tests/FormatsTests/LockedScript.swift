// A list of numbers that is used up once, from whatever thread.

import Synchronization

final class LockedScript: Sendable {
  private let rest: Mutex<[UInt64]>
  init(_ numbers: [UInt64]) { rest = Mutex(numbers.reversed()) }
  func next() -> UInt64? { rest.withLock { $0.popLast() } }
}
