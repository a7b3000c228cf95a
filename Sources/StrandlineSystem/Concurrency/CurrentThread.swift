// Which thread runs: a lock that knows its holder asks it, because a thread that waits for itself waits for ever.

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
}
