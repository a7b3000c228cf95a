// System calls whose names our methods hide, and the rule for EINTR.
//
// Inside a type with a method `close`, the name `close` does not mean close(2). Here each call has a name that no
// method hides. An `open` that a signal interrupts is repeated. A sync is not, because no system says what an
// interrupted sync has written. A close is not, because Linux releases the descriptor even if close returns EINTR.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// System calls.
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

  /// Opens what has a name in a folder that is open.
  static func open(
    _ name: String, in folder: Int32, _ flags: Int32, _ mode: UInt16 = 0, subject: String
  ) throws(SystemError) -> Int32 {
    while true {
      let descriptor = unsafe name.withCString { unsafe systemOpenAt(folder, $0, flags | O_CLOEXEC, mode_t(mode)) }
      if descriptor >= 0 { return descriptor }
      let code = errno
      if code != EINTR { throw SystemError(call: "open", subject: subject, errno: code) }
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

  static func identity(_ descriptor: Int32, _ subject: String) throws(SystemError) -> FileIdentity {
    FileIdentity(try status(descriptor, subject))
  }
}

extension FileIdentity {
  init(_ status: stat) {
    self.init(
      device: UInt64(truncatingIfNeeded: status.st_dev), number: UInt64(truncatingIfNeeded: status.st_ino),
      links: UInt64(truncatingIfNeeded: status.st_nlink))
  }
}

// Outside of every type, where these names mean the C library's functions.
private func systemOpen(_ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemOpenAt(_ folder: Int32, _ name: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe openat(folder, name, flags, mode)
}
private func systemClose(_ descriptor: Int32) -> Int32 { close(descriptor) }
private func systemRead(_ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int) -> Int {
  unsafe read(descriptor, buffer, count)
}
private func systemWrite(_ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int) -> Int {
  unsafe write(descriptor, buffer, count)
}

/// A descriptor that is closed when the last reference to this object is released.
///
/// `close` of a file or socket releases its reference. A call that still runs on another thread has a reference of its
/// own, so the number is closed only when that call returns. Therefore no call can reach another file whose open got
/// the same number.
package final class Descriptor: Sendable {
  package let number: Int32
  package init(_ number: Int32) { self.number = number }
  deinit { SystemCall.close(number) }
}
