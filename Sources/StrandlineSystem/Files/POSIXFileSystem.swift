// The real file system, by POSIX calls.
//
// Every descriptor is opened close-on-exec: a child process must not inherit a store's files, and above all not its
// lock, which would then be held until the child ends.

internal import Synchronization

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The file system of this machine.
package struct POSIXFileSystem: FileSystem {
  package init() {}

  package func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let number =
      switch mode {
      // Without O_NONBLOCK, opening a pipe in the place of a file would block until a writer opens it. It has no
      // effect on a regular file.
      case .read: try SystemCall.open(path, O_RDONLY | O_NONBLOCK)
      case .readWrite: try SystemCall.open(path, O_RDWR)
      case .create: try SystemCall.open(path, O_RDWR | O_CREAT | O_EXCL, 0o644)
      case .createPrivate: try SystemCall.open(path, O_RDWR | O_CREAT | O_EXCL, 0o600)
      }
    let descriptor = Descriptor(number)
    // open(2) also opens a directory or a pipe for reading. Refuse them here rather than at the first read.
    if mode == .read {
      let kind = try SystemCall.status(number, path).st_mode & S_IFMT
      if kind == S_IFDIR { throw .isDirectory("open", path) }
      if kind == S_IFIFO || kind == S_IFSOCK { throw .invalid("open", path) }
    }
    return POSIXFile(path: path, descriptor: descriptor)
  }

  package func kind(of path: String) throws(SystemError) -> PathKind {
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else {
      let code = errno
      if code == ENOENT { return .absent }
      throw SystemError(call: "lstat", subject: path, errno: code)
    }
    if status.st_mode & S_IFMT == S_IFLNK {
      // A symbolic link has the kind of its target. A link without a target is not absent: creating a file there fails.
      guard unsafe stat(path, &status) == 0 else {
        let code = errno
        if code == ENOENT { return .other }
        throw SystemError(call: "stat", subject: path, errno: code)
      }
    }
    return switch status.st_mode & S_IFMT {
    case S_IFREG: .file
    case S_IFDIR: .directory
    default: .other
    }
  }

  package func list(_ directory: String) throws(SystemError) -> [String] {
    guard let stream = unsafe opendir(directory) else {
      throw SystemError(call: "opendir", subject: directory, errno: errno)
    }
    defer { unsafe _ = closedir(stream) }
    var names: [String] = []
    while true {
      // readdir(3) returns NULL both at the end and on failure; only errno distinguishes the two.
      errno = 0
      guard let entry = unsafe readdir(stream) else {
        let code = errno
        if code != 0 { throw SystemError(call: "readdir", subject: directory, errno: code) }
        return names
      }
      let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { raw in
        unsafe String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name != "." && name != ".." { names.append(name) }
    }
  }

  package func sizes(of names: [String], in directory: String) throws(SystemError) -> [UInt64?] {
    let descriptor = Descriptor(try SystemCall.open(directory, O_RDONLY | O_DIRECTORY))
    return try withExtendedLifetime(descriptor) { () throws(SystemError) in
      var result: [UInt64?] = []
      result.reserveCapacity(names.count)
      for name in names {
        var status = stat()
        if unsafe fstatat(descriptor.number, name, &status, 0) == 0 {
          result.append(status.st_mode & S_IFMT == S_IFREG ? UInt64(max(0, status.st_size)) : 0)
        } else {
          let code = errno
          guard code == ENOENT else {
            throw SystemError(call: "fstatat", subject: "\(directory)/\(name)", errno: code)
          }
          result.append(nil)
        }
      }
      return result
    }
  }

  package func makeDirectory(_ path: String) throws(SystemError) {
    guard unsafe mkdir(path, 0o755) == 0 else { throw SystemError(call: "mkdir", subject: path, errno: errno) }
  }

  package func rename(_ path: String, to newPath: String) throws(SystemError) {
    guard systemRename(path, newPath) == 0 else { throw SystemError(call: "rename", subject: path, errno: errno) }
  }

  package func unlink(_ path: String) throws(SystemError) {
    guard systemUnlink(path) == 0 else { throw SystemError(call: "unlink", subject: path, errno: errno) }
  }

  package func removeDirectory(_ path: String) throws(SystemError) {
    guard unsafe rmdir(path) == 0 else { throw SystemError(call: "rmdir", subject: path, errno: errno) }
  }

  package func syncDirectory(_ path: String) throws(SystemError) {
    let descriptor = Descriptor(try SystemCall.open(path, O_RDONLY | O_DIRECTORY))
    try withExtendedLifetime(descriptor) { () throws(SystemError) in
      #if canImport(Darwin)
        try POSIXFile.sync(descriptor.number, .durable, subject: path)
      #else
        guard fsync(descriptor.number) == 0 else { throw SystemError(call: "fsync", subject: path, errno: errno) }
      #endif
    }
  }

  package func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    let flags = exclusive ? O_RDWR | O_CREAT : O_RDONLY
    let descriptor = Descriptor(try SystemCall.open(path, flags, 0o644))
    return try withExtendedLifetime(descriptor) { () throws(SystemError) -> (any FileLock)? in
      while flock(descriptor.number, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0 {
        let code = errno
        if code == EWOULDBLOCK { return nil }
        if code != EINTR { throw SystemError(call: "flock", subject: path, errno: code) }
      }
      return POSIXLock(descriptor)
    }
  }
}

/// A lock of flock(2), with a descriptor of its own.
private final class POSIXLock: FileLock {
  /// nil after `unlock`.
  private let descriptor: Mutex<Descriptor?>

  init(_ descriptor: Descriptor) { self.descriptor = Mutex(descriptor) }

  func unlock() {
    guard let descriptor = descriptor.withLock({ $0.take() }) else { return }
    // The lock belongs to the open file, which a child between fork and exec shares: if this process only closed its
    // descriptor, the lock would last until the child's exec. LOCK_UN releases it at once.
    withExtendedLifetime(descriptor) { _ = flock(descriptor.number, LOCK_UN) }
  }

  deinit { unlock() }
}

// Outside of the type, because inside it these names mean its methods.
private func systemRename(_ path: String, _ newPath: String) -> Int32 { unsafe rename(path, newPath) }
private func systemUnlink(_ path: String) -> Int32 { unsafe unlink(path) }
