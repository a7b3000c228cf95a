// What the log asks of a disk, and what each call promises after a crash.
//
// Nothing else in the package opens, writes or syncs a file. Three implementations: the real one
// (POSIXFileSystem), a simulated disk that can lose power, and a fault injector around either. The
// recovery rule is written against the promises on this page and proved on the simulated disk.
//
// Paths are plain strings with "/" between parts. Every call may throw `SystemError`; a call that throws
// has promised nothing, and after a failed `sync` nothing that was written since the last successful one
// may be believed to be on the medium, even if a later sync succeeds (fsync(2); "fsyncgate").

/// How a file is opened.
package enum OpenMode: Sendable {
  /// For reading; the file must exist.
  case read
  /// For reading and writing; the file must exist.
  case readWrite
  /// For reading and writing; the file must not exist and is created, empty (mode 0644).
  case create
  /// As `create`, but for nobody else's eyes (mode 0600): a file that holds a secret.
  case createPrivate
}

/// How hard a sync works.
package enum SyncStrength: UInt32, Sendable {
  /// After a power cut a suffix of what was written may be missing, never a hole (`F_BARRIERFSYNC` on
  /// Apple systems; the same as `.durable` elsewhere).
  case ordered = 1
  /// What was written survives a power cut when the call returns (`F_FULLFSYNC` on Apple systems,
  /// fdatasync(2) on Linux).
  case durable = 2
}

/// What stands at a path.
package enum PathKind: Sendable {
  case absent
  case file
  case directory
  case other
}

/// A disk.
package protocol FileSystem: Sendable {
  /// Opens a file. A created name survives a crash only after `syncDirectory` of its folder.
  func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File

  /// What stands at `path`; `.absent` is an answer, every other failure is thrown: unreadable is not absent.
  func kind(of path: String) throws(SystemError) -> PathKind

  /// The names in a folder, without "." and "..", in no particular order.
  func list(_ directory: String) throws(SystemError) -> [String]

  /// Makes one folder; its parent must exist. The name survives a crash after `syncDirectory` of the parent.
  func makeDirectory(_ path: String) throws(SystemError)

  /// Atomically gives a file or folder another name on the same file system, replacing a file or an empty
  /// folder of that name. Which of the two names survives a crash is open until `syncDirectory` of the
  /// folder (or of both folders, if they differ).
  func rename(_ path: String, to newPath: String) throws(SystemError)

  /// Removes a file's name.
  func unlink(_ path: String) throws(SystemError)

  /// Removes an empty folder.
  func removeDirectory(_ path: String) throws(SystemError)

  /// When this returns, the names in this folder are on the medium: creations, renames and removals that
  /// were done in it before the call.
  func syncDirectory(_ path: String) throws(SystemError)

  /// Takes an advisory lock on a file, creating it if it is missing and `exclusive` is asked for; nil if
  /// somebody else holds a lock that excludes this one. A shared lock on a missing file is nil-free:
  /// it throws ENOENT. The lock ends with `unlock()` or with the process (flock(2)).
  func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)?
}

/// An open file. Safe to call from any thread; concurrent writes to the same bytes are the caller's error.
package protocol File: AnyObject, Sendable {
  var path: String { get }

  /// The size in bytes.
  func size() throws(SystemError) -> UInt64

  /// Reads up to `count` bytes at `offset`: fewer only at the end of the file (short reads are repeated).
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8]

  /// The same into an array that is there, whose memory is used again: for reading a file from end to end.
  /// Afterwards `buffer` holds what was read, and nothing if this throws.
  func read(at offset: UInt64, count: Int, into buffer: inout [UInt8]) throws(SystemError)

  /// Writes all of `bytes[range]` at `offset` (short writes are repeated). When it throws, any part of the
  /// range may have been written. Nothing is durable before `sync`.
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError)

  /// Reserves space and sets the size to at least `offset + length`; the new bytes read as zero. A disk
  /// that is full throws here (ENOSPC) and has written nothing that a reader can see but zeros.
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError)

  /// Sets the size; cut bytes are gone.
  func truncate(to size: UInt64) throws(SystemError)

  /// When this returns, everything written to this file before the call (and its size) is on the medium, as
  /// `strength` says. EINTR counts as failure and is thrown: it is never repeated.
  func sync(_ strength: SyncStrength) throws(SystemError)

  /// Ends the use of the descriptor. Further calls throw EBADF; closing twice is harmless.
  func close()
}

extension File {
  package func read(at offset: UInt64, count: Int, into buffer: inout [UInt8]) throws(SystemError) {
    buffer = []
    buffer = try read(at: offset, count: count)
  }

  /// Writes all of `bytes` at `offset`.
  package func write(_ bytes: [UInt8], at offset: UInt64) throws(SystemError) {
    try write(bytes, 0..<bytes.count, at: offset)
  }
}

/// An advisory lock that is held.
package protocol FileLock: AnyObject, Sendable {
  /// Gives the lock back; a second call is harmless.
  func unlock()
}
