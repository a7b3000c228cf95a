// Removing a folder that a command or a benchmark worked in. The library removes files one by one, by name.

package import StrandlineSystem

extension FileSystem {
  /// Removes a file or a folder with all it holds. No link is followed: only what is a folder itself is entered.
  package func removeTree(_ path: String) throws {
    do throws(SystemError) { return try unlink(path) } catch {
      if error.isAbsent { return }
    }
    for name in try list(path) { try removeTree(path + "/" + name) }
    try removeDirectory(path)
  }
}
