// Removes the directory that a command or a benchmark worked in. The library itself removes only files that it names.

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
}
