// The few system calls whose names collide with our own methods, and the one rule for EINTR.
//
// A method called `close` hides close(2) inside its type; these give each call a name that nothing hides,
// on every C library. A call interrupted by a signal before it did anything is repeated here; sync is
// not, because nobody says what an interrupted sync has written, and close is not, because the
// descriptor is gone on Linux although the call says EINTR.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// Calls by names of their own.
package enum SystemCall {
  /// The errno of this thread's last failed call.
  static var lastError: Int32 { errno }

  package static func open(_ path: String, _ flags: Int32, _ mode: UInt16 = 0) throws(SystemError) -> Int32 {
    while true {
      let descriptor = unsafe path.withCString { unsafe systemOpen($0, flags | O_CLOEXEC, mode_t(mode)) }
      if descriptor >= 0 { return descriptor }
      let code = errno
      if code != EINTR { throw SystemError(call: "open", subject: path, errno: code) }
    }
  }

  static func close(_ descriptor: Int32) { _ = systemClose(descriptor) }

  package static func read(
    _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int
  ) -> Int { unsafe systemRead(descriptor, buffer, count) }

  package static func write(_ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int) -> Int {
    unsafe systemWrite(descriptor, buffer, count)
  }

  static func status(_ descriptor: Int32, _ subject: String) throws(SystemError) -> stat {
    var result = stat()
    guard unsafe fstat(descriptor, &result) == 0 else {
      throw SystemError(call: "fstat", subject: subject, errno: errno)
    }
    return result
  }
}

// Outside of every type, so that these names still mean the C library's.
private func systemOpen(_ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
private func systemRead(_ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int) -> Int {
  unsafe read(descriptor, buffer, count)
}
private func systemWrite(_ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int) -> Int {
  unsafe write(descriptor, buffer, count)
}

/// A descriptor that is open for as long as somebody holds this object.
///
/// `close` of a file or socket lets go of it; a call on another thread that is still running holds it
/// too, and only when that call is done does the number go back to the system. So no call can ever
/// reach a stranger's file under a number that was given out again.
package final class Descriptor: Sendable {
  package let number: Int32
  package init(_ number: Int32) { self.number = number }
  deinit { SystemCall.close(number) }
}
