// A failed system call, its subject and its errno, and the table of messages for each errno.

#if canImport(Glibc)
  private import Glibc
#elseif canImport(Musl)
  private import Musl
#elseif canImport(Darwin)
  private import Darwin
#endif

/// A system call that failed.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The call, as its man page names it: "open", "pwrite", "fdatasync".
  package var call: String
  /// The path or address that it was called with.
  package var subject: String
  /// The errno.
  package var errno: Int32
  /// Why the call failed, where that is known better than the errno says it.
  package enum Cause: Hashable, Sendable {
    /// The device is locked, and the call succeeds when it is unlocked (ProtectedFileSystem).
    case deviceLocked
    /// The call was not made, because other files are where those of an open store were.
    case replacement
  }
  package var cause: Cause?

  package init(call: String, subject: String, errno: Int32) {
    self.call = call
    self.subject = subject
    self.errno = errno
  }

  package var isDeviceLocked: Bool { cause == .deviceLocked }
  package var isReplacement: Bool { cause == .replacement }

  package var description: String {
    "\(call) '\(subject)': \(Self.words(for: errno)) (errno \(errno)\(isDeviceLocked ? ", the device is locked" : ""))"
  }

  /// The disk is full, the quota is used up, or the file has reached the largest size.
  package var isFull: Bool { errno == ENOSPC || errno == EDQUOT || errno == EFBIG }
  /// The path names nothing.
  package var isAbsent: Bool { errno == ENOENT }
  /// A part of the path is a file.
  package var isNotDirectory: Bool { errno == ENOTDIR }
  /// The caller has no permission, or the file system is read-only.
  package var isForbidden: Bool { errno == EACCES || errno == EPERM || errno == EROFS }
  /// The system does not permit the call, whatever the file's permissions are.
  var isNotPermitted: Bool { errno == EPERM }
  /// The file's permissions or the system refuse the call.
  var isRefused: Bool { errno == EACCES || errno == EPERM }
  /// The name exists already. (For a rename onto a directory that is not empty, POSIX allows either errno.)
  package var isTaken: Bool { errno == EEXIST || errno == ENOTEMPTY }

  /// The caller's time limit has passed.
  package var isTimeout: Bool { errno == ETIMEDOUT }

  /// The peer of a socket has closed the connection or reset it.
  package var isDisconnected: Bool {
    errno == EPIPE || errno == ECONNRESET || errno == ECONNABORTED || errno == ENOTCONN
  }
  /// This process, or the system, has no free descriptor.
  package var isOutOfDescriptors: Bool { errno == EMFILE || errno == ENFILE }
  /// No server listens at the address.
  package var isConnectionRefused: Bool { errno == ECONNREFUSED }

  /// The message for an errno. strerror(3) is not used, because it is not thread-safe.
  package static func words(for errno: Int32) -> String {
    switch errno {
    case EPERM: "operation not permitted"
    case ENOENT: "no such file or directory"
    case EINTR: "interrupted by a signal"
    case EIO: "input/output error of the device"
    case ENXIO: "no such device"
    case EBADF: "the file is closed"
    case EAGAIN: "temporarily unavailable"
    case ENOMEM: "out of memory"
    case EACCES: "permission denied"
    case EEXIST: "already exists"
    case ENOTDIR: "not a directory"
    case EISDIR: "is a directory"
    case EINVAL: "invalid argument"
    case ENFILE: "too many open files in the system"
    case EMFILE: "too many open files in this process"
    case EFBIG: "the file would be too large"
    case ENOSPC: "no space left on the device"
    case EROFS: "read-only file system"
    case EPIPE: "the reader of this pipe is gone"
    case ENAMETOOLONG: "the name is too long"
    case ENOTEMPTY: "the directory is not empty"
    case ELOOP: "too many symbolic links"
    case EDQUOT: "the disk quota is used up"
    case ENOTSUP: "not supported here"
    case EADDRINUSE: "the address is in use"
    case EADDRNOTAVAIL: "the address is not available"
    case ECONNREFUSED: "connection refused"
    case ECONNRESET: "connection reset by the peer"
    case ESTALE: "it is not the file any more that it was"
    case ETIMEDOUT: "timed out"
    default: "error"
    }
  }
}

// Errors by the names that other files use, so that only this file and the POSIX ones import the C library.
extension SystemError {
  package static func full(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ENOSPC)
  }
  package static func absent(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ENOENT)
  }
  /// What the path names is not what it named before.
  package static func stale(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ESTALE)
  }
  /// The same, before a call that would change them.
  package static func replaced(_ call: String, _ subject: String) -> SystemError {
    var error = stale(call, subject)
    error.cause = .replacement
    return error
  }
  package static func closed(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EBADF)
  }
  package static func device(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EIO)
  }
  package static func taken(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EEXIST)
  }
  package static func notEmpty(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ENOTEMPTY)
  }
  package static func notDirectory(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ENOTDIR)
  }
  package static func isDirectory(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EISDIR)
  }
  /// For tests: they inject it as a fault.
  package static func interrupted(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EINTR)
  }
  /// For tests: they inject it as a fault.
  package static func forbidden(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EACCES)
  }
  /// For tests: they inject it as a fault.
  package static func notPermitted(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EPERM)
  }
  package static func tooLarge(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EFBIG)
  }
  package static func timedOut(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: ETIMEDOUT)
  }
  package static func invalid(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EINVAL)
  }
  /// For tests: what a write to standard output throws when the pipe's reader has closed it.
  package static func brokenPipe(_ call: String, _ subject: String) -> SystemError {
    SystemError(call: call, subject: subject, errno: EPIPE)
  }
}
