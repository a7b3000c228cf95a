// How many requests at a time may hold much memory.
//
// A short request can make the server hold megabytes: what it reads, what it changes, its answer. Hundreds of connections
// that ask at the same moment would fill the memory before the first answer is sent. So a request that comes to hold more than
// a little waits for one of a few places, and keeps it until its answer is made; from then on the connection counts the answer
// (ConnectionTable). Nobody waits for a place under the server's lock, and who has one waits for no other.

internal import Dispatch
internal import Synchronization

/// The places for requests that hold much memory.
final class LargeRequests: Sendable {
  // It begins at 0 and is signalled, because libdispatch traps if it is released below the value with which it began.
  private let free = DispatchSemaphore(value: 0)

  init(places: Int) {
    for _ in 0..<max(places, 1) { free.signal() }
  }

  /// How many requests wait for a place.
  let waiting = Atomic(0)

  fileprivate func enter() {
    waiting.add(1, ordering: .sequentiallyConsistent)
    free.wait()
    waiting.subtract(1, ordering: .sequentiallyConsistent)
  }

  fileprivate func leave() { free.signal() }
}

/// What one request holds.
struct RequestMemory: ~Copyable {
  /// A request that holds more bytes needs a place.
  static let smallBytes = 256 << 10

  private let places: LargeRequests
  private(set) var hasPlace = false

  init(_ places: LargeRequests) { self.places = places }

  deinit { if hasPlace { places.leave() } }

  /// The request holds so many bytes, or is about to. If they are many, waits for a place.
  mutating func hold(_ bytes: Int) {
    guard bytes > Self.smallBytes, !hasPlace else { return }
    places.enter()
    hasPlace = true
  }
}
