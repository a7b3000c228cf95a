// Copies and removes directories that a command or a benchmark worked in. The library itself removes only files that it
// names.

package import StrandlineSystem

extension FileSystem {
  /// Removes a file, or a directory with everything in it. A symbolic link is removed and not followed.
  package func removeTree(_ path: String) throws {
    do throws(SystemError) { return try unlink(path) } catch {
      if error.isAbsent { return }
    }
    for name in try list(path) { try removeTree(path + "/" + name) }
    try removeDirectory(path)
  }

  /// Copies a file, or a directory with everything in it. Nothing may be at `newPath`. The copy is not synced.
  package func copyTree(_ path: String, to newPath: String) throws {
    if try kind(of: path) == .directory {
      try makeDirectory(newPath)
      for name in try list(path) { try copyTree(path + "/" + name, to: newPath + "/" + name) }
      return
    }
    let source = try open(path, .read)
    defer { source.close() }
    let copy = try open(newPath, .create)
    defer { copy.close() }
    var offset: UInt64 = 0
    while true {
      let bytes = try source.read(at: offset, count: 1 << 20)
      if bytes.isEmpty { return }
      try copy.write(bytes, at: offset)
      offset += UInt64(bytes.count)
    }
  }
}
