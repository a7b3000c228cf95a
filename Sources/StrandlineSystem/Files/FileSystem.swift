// The file system as the log uses it, and what each call guarantees after a crash.
//
// Nothing else in the package opens, writes or syncs a file. There are three implementations: the real file system
// (POSIXFileSystem), a simulated disk that can lose power, and a fault injector around either. The recovery rule
// relies on the guarantees in this file and on no others, and is proved on the simulated disk.
//
// A file system makes and finds folders by their paths; everything in a folder is reached through the folder. A path says
// what is somewhere now, and a folder that was opened stays the same one, however it is moved: so a store that another
// one has replaced at its path is never written into that one.
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

/// What the operating system does with files apart from what is in them. Apple systems have it; elsewhere it has no effect.
package struct FileTreatment: Hashable, Sendable {
  /// When they can be read on a device that has a passcode.
  package enum Protection: Hashable, Sendable {
    /// From the first unlock after a start on, also while the device is locked (class C).
    case untilFirstUnlock
    /// While the device is unlocked (class A).
    case whileUnlocked
    /// As the system gives it: what the folder around it has.
    case inherited
  }
  package var protection: Protection
  /// Whether a backup of the device leaves them out.
  package var isLeftOutOfBackups: Bool

  package init(_ protection: Protection, isLeftOutOfBackups: Bool) {
    self.protection = protection
    self.isLeftOutOfBackups = isLeftOutOfBackups
  }
}

/// What a path names.
package enum PathKind: Sendable {
  case absent
  case file
  case directory
  case other
}

/// Tells files and folders apart, as long as something holds them open and their disk is not mounted again.
package struct FileIdentity: Hashable, Sendable {
  package var device: UInt64
  package var number: UInt64
  /// How many names it has; 0 once the last one was removed.
  package var links: UInt64

  package init(device: UInt64, number: UInt64, links: UInt64) {
    self.device = device
    self.number = number
    self.links = links
  }

  /// Whether both are of one file, whatever names it has.
  package func isSame(as other: FileIdentity) -> Bool { device == other.device && number == other.number }
}

/// A file system: what makes, finds and moves folders.
package protocol FileSystem: Sendable {
  /// Returns `path` with its beginning at the root and without "/" at its end. A relative one begins at the directory in
  /// which the process is now.
  func absolutePath(_ path: String) throws(SystemError) -> String

  /// Opens a folder.
  func folder(_ path: String) throws(SystemError) -> any Folder

  /// Returns what `path` names: `.absent` if nothing has this name. Throws if the path cannot be read, because it may
  /// then name a file.
  func kind(of path: String) throws(SystemError) -> PathKind

  /// Makes one directory. Its parent must exist, and the name survives a crash after `sync` of the parent.
  func makeDirectory(_ path: String) throws(SystemError)

  /// Atomically renames a directory within one file system, and replaces an empty directory of the new name. Until `sync`
  /// of its parent (of both, if they differ) either name may survive a crash.
  func renameFolder(_ path: String, to newPath: String) throws(SystemError)

  /// Removes an empty directory.
  func removeDirectory(_ path: String) throws(SystemError)

  /// The paths of the stores that this process writes.
  var openStores: OpenStores { get }
}

/// An open folder: the files in it, by their names. It stays the same folder when it is moved, and is released with its
/// last reference. Safe to call from any thread.
///
/// A name is relative to the folder: one component, or a sub-folder and a name in it ("runs/0001.run"); "." is the folder
/// itself. No name begins with "/", and none has "..".
package protocol Folder: AnyObject, Sendable {
  /// Where it was when it was opened: for messages.
  var path: String { get }

  /// Says that it was moved by this process.
  func wasMoved(to path: String)

  /// Opens a file. The name of a created file survives a crash only after `sync` of its folder.
  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File

  /// Returns what `name` names: `.absent` if nothing has this name. Throws if it cannot be read, because it may then name
  /// a file.
  func kind(of name: String) throws(SystemError) -> PathKind

  /// Returns the names in the folder `name`, without "." and "..", in no particular order.
  func list(_ name: String) throws(SystemError) -> [String]

  /// Returns the size in bytes of each of `names`, in their order: nil where nothing has the name, 0 for what is no file.
  /// Opens no file.
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?]

  /// Makes a folder in it. The name survives a crash after `sync`.
  func makeFolder(_ name: String) throws(SystemError)

  /// Atomically renames a file, and replaces a file of the new name. Until `sync` of its folder (of both, if they differ)
  /// either name may survive a crash.
  func rename(_ name: String, to newName: String) throws(SystemError)

  /// Removes a file's name.
  func unlink(_ name: String) throws(SystemError)

  /// Removes an empty folder in it.
  func removeFolder(_ name: String) throws(SystemError)

  /// Makes the names in the folder `name` durable. When this returns, the creations, renames and removals in it that
  /// preceded the call are on the medium.
  func sync(_ name: String) throws(SystemError)

  /// Takes an advisory lock on a file (flock(2)) without waiting for it. The lock ends with `unlock()` or with the
  /// process.
  ///
  /// - Returns: The lock, or nil if another holder's lock excludes it.
  /// - Throws: ENOENT if `exclusive` is false and the file is missing. An exclusive lock creates the file.
  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)?

  /// Which file or folder has the name now; nil if none has.
  func identity(of name: String) throws(SystemError) -> FileIdentity?

  /// Has the system treat the folder like this, with all that is in it and all that will be.
  func setTreatment(_ treatment: FileTreatment) throws(SystemError)
}

extension Folder {
  package func list() throws(SystemError) -> [String] { try list(".") }
  package func sync() throws(SystemError) { try sync(".") }

  /// The path of what has a name in it: for messages, and for nothing else.
  package func path(of name: String) -> String { name == "." ? path : path == "/" ? "/" + name : "\(path)/\(name)" }

  /// Whether an open folder has this name in it now. One that was found by a path may lie in another folder, which has come to it
  /// since this one was opened.
  package func has(_ found: any Folder, under name: String) throws(SystemError) -> Bool {
    guard let mine = try identity(of: name), let there = try found.identity(of: ".") else { return false }
    return mine.isSame(as: there)
  }

  /// Removes what is in the folder `name`, that which is called `last` after all the rest.
  package func removeContents(of name: String = ".", last: String? = nil) throws(SystemError) {
    let names = try list(name)
    for inner in names.filter({ $0 != last }) + names.filter({ $0 == last }) {
      let place = name == "." ? inner : "\(name)/\(inner)"
      if try kind(of: place) == .directory {
        try removeContents(of: place)
        try removeFolder(place)
      } else {
        try unlink(place)
      }
    }
  }
}

/// The stores that one process writes, by their absolute paths. The lock of a store belongs to its files, so it does not
/// say that the store at its path was removed while this process had it open, and another one is about to be made there.
package final class OpenStores: Sendable {
  /// By their bytes: to a file system paths that Unicode calls equal are two.
  private let paths = OrderedMutex<Set<[UInt8]>>([])

  package init() {}

  /// - Returns: false if it is there already.
  package func add(_ path: String) -> Bool { paths.withLock { $0.insert(Array(path.utf8)).inserted } }

  package func contains(_ path: String) -> Bool { paths.withLock { $0.contains(Array(path.utf8)) } }

  package func remove(_ path: String) { paths.withLock { _ = $0.remove(Array(path.utf8)) } }
}

/// An open file. Safe to call from any thread; concurrent writes to the same bytes are the caller's error.
package protocol File: AnyObject, Sendable {
  var path: String { get }

  /// Which file it is, and how many names it has now.
  func identity() throws(SystemError) -> FileIdentity

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
  /// Which file is locked, and how many names it has now.
  func identity() throws(SystemError) -> FileIdentity

  /// Releases the lock. A second call does nothing.
  func unlock()
}
