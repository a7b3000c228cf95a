// The file system as the log uses it, and what each call guarantees after a crash.
//
// Nothing else in the package opens, writes or syncs a file. There are three implementations: the real file system
// (POSIXFileSystem), a simulated disk that can lose power, and a fault injector around either. The recovery rule
// relies on the guarantees in this file and on no others, and is proved on the simulated disk.
//
// Paths are strings with "/" between their components. Every call may throw `SystemError`, and a call that throws
// guarantees nothing. After a failed `sync` the caller must not assume that anything written since the last successful
// one is on the medium, even if a later sync succeeds (fsync(2); "fsyncgate").

/// How a file is opened.
package enum OpenMode: Sendable {
  /// For reading; the file must exist.
  case read
  /// For reading and writing; the file must exist.
  case readWrite
  /// For reading and writing; the file must not exist and is created, empty (mode 0644).
  case create
  /// As `create`, but only the user who owns it may read it (mode 0600): for a file that holds a secret.
  case createPrivate
}

/// What a sync guarantees.
package enum SyncStrength: UInt32, Sendable {
  /// Orders writes: after a power cut a suffix of what was written may be missing, but no write that precedes one that
  /// survived (`F_BARRIERFSYNC` on Apple systems; the same as `.durable` elsewhere).
  case ordered = 1
  /// What was written survives a power cut when the call returns (`F_FULLFSYNC` on Apple systems,
  /// fdatasync(2) on Linux).
  case durable = 2
}

/// What a path names.
package enum PathKind: Sendable {
  case absent
  case file
  case directory
  case other
}

/// A file system.
package protocol FileSystem: Sendable {
  /// Opens a file. The name of a created file survives a crash only after `syncDirectory` of its directory.
  func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File

  /// Returns what `path` names: `.absent` if nothing has this name. Throws if the path cannot be read, because it may
  /// then name a file.
  func kind(of path: String) throws(SystemError) -> PathKind

  /// Returns the names in a directory, without "." and "..", in no particular order.
  func list(_ directory: String) throws(SystemError) -> [String]

  /// Returns the size in bytes of each of `names` in a directory, in their order: nil where nothing has the name, 0 for
  /// what is no file. Costs one look at the directory, however many names there are, and no open of a file.
  func sizes(of names: [String], in directory: String) throws(SystemError) -> [UInt64?]

  /// Makes one directory. Its parent must exist, and the name survives a crash after `syncDirectory` of the parent.
  func makeDirectory(_ path: String) throws(SystemError)

  /// Atomically renames a file or directory within one file system, and replaces a file or an empty directory of the
  /// new name. Until `syncDirectory` of its directory (of both, if they differ) either name may survive a crash.
  func rename(_ path: String, to newPath: String) throws(SystemError)

  /// Removes a file's name.
  func unlink(_ path: String) throws(SystemError)

  /// Removes an empty directory.
  func removeDirectory(_ path: String) throws(SystemError)

  /// Makes the names in a directory durable. When this returns, the creations, renames and removals in it that
  /// preceded the call are on the medium.
  func syncDirectory(_ path: String) throws(SystemError)

  /// Takes an advisory lock on a file (flock(2)) without waiting for it. The lock ends with `unlock()` or with the
  /// process.
  ///
  /// - Returns: The lock, or nil if another holder's lock excludes it.
  /// - Throws: ENOENT if `exclusive` is false and the file is missing. An exclusive lock creates the file.
  func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)?
}

/// An open file. Safe to call from any thread; concurrent writes to the same bytes are the caller's error.
package protocol File: AnyObject, Sendable {
  var path: String { get }

  /// The size in bytes.
  func size() throws(SystemError) -> UInt64

  /// Reads `count` bytes at `offset`, or fewer if the file ends before them. Continues after a short read.
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8]

  /// Reads as `read(at:count:)` does, but reuses the memory of `buffer`, for a caller that reads a whole file in steps.
  /// Afterwards `buffer` holds the bytes that were read; it is empty if this throws.
  func read(at offset: UInt64, count: Int, into buffer: inout [UInt8]) throws(SystemError)

  /// Writes all of `bytes[range]` at `offset`, and continues after a short write. If it throws, any part of the range
  /// may have been written. Nothing is durable before `sync`.
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError)

  /// Reserves disk space and sets the size to at least `offset + length`; the new bytes read as zero. Throws ENOSPC if
  /// the disk is full; a reader may then see some of the zeros and nothing else.
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError)

  /// Sets the size. Bytes beyond it are lost.
  func truncate(to size: UInt64) throws(SystemError)

  /// Makes everything durable that was written to this file before the call, and its size, with the guarantee of
  /// `strength`. Throws EINTR instead of repeating the call, because an interrupted sync may have failed.
  func sync(_ strength: SyncStrength) throws(SystemError)

  /// Closes the file. Later calls throw EBADF; a second `close` does nothing.
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
  /// Releases the lock. A second call does nothing.
  func unlock()
}
