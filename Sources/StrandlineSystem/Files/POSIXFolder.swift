// An open folder of the real file system: every call begins at its descriptor (openat(2) and its relatives), so that it
// reaches the files of this folder and of no other one, whatever is at the folder's path by now.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A folder of the real file system.
final class POSIXFolder: Folder {
  private let descriptor: Descriptor
  private let currentPath: OrderedMutex<String>

  init(_ path: String, _ descriptor: Descriptor) {
    self.descriptor = descriptor
    currentPath = OrderedMutex(.leaf, path)
  }

  var path: String { currentPath.withLock { $0 } }
  func wasMoved(to path: String) { currentPath.withLock { $0 = path } }

  /// Runs `body` with the descriptor, which stays open until `body` returns.
  ///
  /// - Throws: EINVAL for a name that leads out of the folder.
  private func at<Result>(
    _ call: String, _ name: String, _ body: (Int32) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    guard !name.hasPrefix("/"), !name.split(separator: "/").contains("..") else {
      throw .invalid(call, path(of: name))
    }
    return try withExtendedLifetime(descriptor) { () throws(SystemError) in try body(descriptor.number) }
  }

  private func fail(_ call: String, _ name: String) -> SystemError {
    SystemError(call: call, subject: path(of: name), errno: SystemCall.lastError)
  }

  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    try at("open", name) { (folder) throws(SystemError) in
      let path = path(of: name)
      let number =
        switch mode {
        // Without O_NONBLOCK, opening a pipe in the place of a file would block until a writer opens it. It has no
        // effect on a regular file.
        case .read: try SystemCall.open(name, in: folder, O_RDONLY | O_NONBLOCK, subject: path)
        case .readWrite: try SystemCall.open(name, in: folder, O_RDWR, subject: path)
        case .create: try SystemCall.open(name, in: folder, O_RDWR | O_CREAT | O_EXCL, 0o644, subject: path)
        case .createPrivate: try SystemCall.open(name, in: folder, O_RDWR | O_CREAT | O_EXCL, 0o600, subject: path)
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
  }

  func kind(of name: String) throws(SystemError) -> PathKind {
    try at("lstat", name) { (folder) throws(SystemError) in
      try Self.kind(of: name, in: folder, subject: path(of: name))
    }
  }

  /// What has a name in a folder that is open, or a path.
  static func kind(of name: String, in folder: Int32, subject: String) throws(SystemError) -> PathKind {
    var status = stat()
    guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
      let code = errno
      if code == ENOENT { return .absent }
      throw SystemError(call: "lstat", subject: subject, errno: code)
    }
    if status.st_mode & S_IFMT == S_IFLNK {
      // A symbolic link has the kind of its target. A link without a target is not absent: creating a file there fails.
      guard unsafe fstatat(folder, name, &status, 0) == 0 else {
        let code = errno
        if code == ENOENT { return .other }
        throw SystemError(call: "stat", subject: subject, errno: code)
      }
    }
    return switch status.st_mode & S_IFMT {
    case S_IFREG: .file
    case S_IFDIR: .directory
    default: .other
    }
  }

  func list(_ name: String) throws(SystemError) -> [String] {
    try at("opendir", name) { (folder) throws(SystemError) in
      let path = path(of: name)
      let number: Int32
      do throws(SystemError) {
        // A descriptor of its own: reading moves its place, and the one of the folder is shared.
        number = try SystemCall.open(name, in: folder, O_RDONLY | O_DIRECTORY, subject: path)
      } catch {
        throw SystemError(call: "opendir", subject: path, errno: error.errno)
      }
      guard let stream = unsafe fdopendir(number) else {
        let code = errno
        SystemCall.close(number)
        throw SystemError(call: "opendir", subject: path, errno: code)
      }
      defer { unsafe _ = closedir(stream) }
      var names: [String] = []
      while true {
        // readdir(3) returns NULL both at the end and on failure; only errno distinguishes the two.
        errno = 0
        guard let entry = unsafe readdir(stream) else {
          let code = errno
          if code != 0 { throw SystemError(call: "readdir", subject: path, errno: code) }
          return names
        }
        let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { raw in
          unsafe String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
        }
        if name != "." && name != ".." { names.append(name) }
      }
    }
  }

  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] {
    var result: [UInt64?] = []
    result.reserveCapacity(names.count)
    for name in names {
      let status = try status(of: name)
      result.append(status.map { $0.st_mode & S_IFMT == S_IFREG ? UInt64(max(0, $0.st_size)) : 0 })
    }
    return result
  }

  func identity(of name: String) throws(SystemError) -> FileIdentity? {
    try status(of: name).map { FileIdentity($0) }
  }

  /// nil if nothing has the name.
  private func status(of name: String) throws(SystemError) -> stat? {
    try at("fstatat", name) { (folder) throws(SystemError) in
      var status = stat()
      if unsafe fstatat(folder, name, &status, 0) == 0 { return status }
      let code = errno
      if code == ENOENT { return nil }
      throw SystemError(call: "fstatat", subject: path(of: name), errno: code)
    }
  }

  func makeFolder(_ name: String) throws(SystemError) {
    try at("mkdir", name) { (folder) throws(SystemError) in
      guard unsafe mkdirat(folder, name, 0o755) == 0 else { throw fail("mkdir", name) }
    }
  }

  func rename(_ name: String, to newName: String) throws(SystemError) {
    try at("rename", newName) { (_) throws(SystemError) in }
    try at("rename", name) { (folder) throws(SystemError) in
      guard unsafe renameat(folder, name, folder, newName) == 0 else { throw fail("rename", name) }
    }
  }

  func unlink(_ name: String) throws(SystemError) {
    try at("unlink", name) { (folder) throws(SystemError) in
      guard unsafe unlinkat(folder, name, 0) == 0 else { throw fail("unlink", name) }
    }
  }

  func removeFolder(_ name: String) throws(SystemError) {
    try at("rmdir", name) { (folder) throws(SystemError) in
      guard unsafe unlinkat(folder, name, AT_REMOVEDIR) == 0 else { throw fail("rmdir", name) }
    }
  }

  func sync(_ name: String) throws(SystemError) {
    try at("open", name) { (folder) throws(SystemError) in
      let path = path(of: name)
      let opened =
        name == "."
        ? descriptor
        : Descriptor(try SystemCall.open(name, in: folder, O_RDONLY | O_DIRECTORY, subject: path))
      try withExtendedLifetime(opened) { () throws(SystemError) in
        #if canImport(Darwin)
          try POSIXFile.sync(opened.number, .durable, subject: path)
        #else
          guard fsync(opened.number) == 0 else { throw SystemError(call: "fsync", subject: path, errno: errno) }
        #endif
      }
    }
  }

  func setTreatment(_ treatment: FileTreatment) throws(SystemError) {
    #if canImport(Darwin)
      try withExtendedLifetime(descriptor) { () throws(SystemError) in
        try AppleTreatment.leaveOut(treatment.isLeftOutOfBackups, descriptor.number, subject: path)
        if let wanted = AppleTreatment.protectionClass(treatment.protection) { try protect(".", wanted) }
      }
    #endif
  }

  #if canImport(Darwin)
    /// Gives what is in a folder a protection class, and then the folder: what is made in it from then on gets the same, and an
    /// interrupted run is not taken for a finished one.
    private func protect(_ name: String, _ wanted: Int32) throws(SystemError) {
      let path = path(of: name)
      try at("open", name) { (folder) throws(SystemError) in
        let opened = Descriptor(try SystemCall.open(name, in: folder, O_RDONLY | O_NONBLOCK, subject: path))
        guard try AppleTreatment.lacks(wanted, opened.number, subject: path) else { return }
        if try kind(of: name) == .directory {
          for inner in try list(name) { try protect(name == "." ? inner : "\(name)/\(inner)", wanted) }
        }
        try AppleTreatment.protect(wanted, opened.number, subject: path)
      }
    }
  #endif

  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try at("open", name) { (folder) throws(SystemError) -> (any FileLock)? in
      let path = path(of: name)
      let flags = exclusive ? O_RDWR | O_CREAT : O_RDONLY
      let descriptor = Descriptor(try SystemCall.open(name, in: folder, flags, 0o644, subject: path))
      return try withExtendedLifetime(descriptor) { () throws(SystemError) -> (any FileLock)? in
        while flock(descriptor.number, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0 {
          let code = errno
          if code == EWOULDBLOCK { return nil }
          if code != EINTR { throw SystemError(call: "flock", subject: path, errno: code) }
        }
        return POSIXLock(path, descriptor)
      }
    }
  }
}

/// A lock of flock(2), with a descriptor of its own.
private final class POSIXLock: FileLock {
  private let path: String
  /// nil after `unlock`.
  private let descriptor: OrderedMutex<Descriptor?>

  init(_ path: String, _ descriptor: Descriptor) {
    self.path = path
    self.descriptor = OrderedMutex(.leaf, descriptor)
  }

  func identity() throws(SystemError) -> FileIdentity {
    guard let descriptor = descriptor.withLock({ $0 }) else { throw .closed("fstat", path) }
    return try withExtendedLifetime(descriptor) { () throws(SystemError) in
      try SystemCall.identity(descriptor.number, path)
    }
  }

  func unlock() {
    guard let descriptor = descriptor.withLock({ $0.take() }) else { return }
    // The lock belongs to the open file, which a child between fork and exec shares: if this process only closed its
    // descriptor, the lock would last until the child's exec. LOCK_UN releases it at once.
    withExtendedLifetime(descriptor) { _ = flock(descriptor.number, LOCK_UN) }
  }

  deinit { unlock() }
}
