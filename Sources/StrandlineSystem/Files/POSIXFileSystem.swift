// The real file system, by POSIX calls. What makes and finds folders is here, what reaches the files in one in
// POSIXFolder.swift.
//
// Every descriptor is opened close-on-exec: a child process must not inherit a store's files, and above all not its
// lock, which would then be held until the child ends.

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

  private static let openStores = OpenStores()
  package var openStores: OpenStores { Self.openStores }

  package func absolutePath(_ path: String) throws(SystemError) -> String {
    // No name of anything, and not one of the directory in which the process is.
    guard !path.isEmpty else { throw SystemError(call: "open", subject: path, errno: ENOENT) }
    var text = path
    if !path.hasPrefix("/") {
      guard let here = unsafe getcwd(nil, 0) else { throw SystemError(call: "getcwd", subject: path, errno: errno) }
      defer { unsafe free(here) }
      text = unsafe String(cString: here)
      if path != "." { text += path.hasPrefix("./") ? "/" + path.dropFirst(2) : "/" + path }
    }
    while text.utf8.count > 1, text.hasSuffix("/") { text.removeLast() }
    return text
  }

  package func folder(_ path: String) throws(SystemError) -> any Folder {
    let path = try absolutePath(path)
    return POSIXFolder(path, Descriptor(try SystemCall.open(path, O_RDONLY | O_DIRECTORY)))
  }

  package func kind(of path: String) throws(SystemError) -> PathKind {
    try POSIXFolder.kind(of: path, in: AT_FDCWD, subject: path)
  }

  package func makeDirectory(_ path: String) throws(SystemError) {
    guard unsafe mkdir(path, 0o755) == 0 else { throw SystemError(call: "mkdir", subject: path, errno: errno) }
  }

  package func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    // With a slash at its end the name is a directory's, and no file can be moved like this.
    guard unsafe rename(path + "/", newPath) == 0 else {
      throw SystemError(call: "rename", subject: path, errno: errno)
    }
  }

  package func removeDirectory(_ path: String) throws(SystemError) {
    guard unsafe rmdir(path) == 0 else { throw SystemError(call: "rmdir", subject: path, errno: errno) }
  }
}
