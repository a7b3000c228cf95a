// Which thread runs: a lock that knows its holder asks it, because a thread that waits for itself waits for ever. And how it
// leaves its core to others while it waits for them.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The thread that asks.
package enum CurrentThread {
  /// Its number, which no other living thread has. Never 0.
  package static var id: UInt {
    #if canImport(Glibc)
      UInt(pthread_self())
    #else
      unsafe UInt(bitPattern: pthread_self())
    #endif
  }

  /// Lets another thread run that waits for this one's core; returns at once if none does.
  package static func yield() { sched_yield() }
}
