// Files by their paths, for the command, the proofs and the tests: what a person names on the command line, and what a test
// puts into a folder. No library reaches a file like this: it opens the folder, and holds it.

package import StrandlineSystem

extension FileSystem {
  /// The folder that a path stands in, and the name there.
  private func place(_ path: String) throws(SystemError) -> (folder: any Folder, name: String) {
    let path = try absolutePath(path)
    guard let slash = path.lastIndex(of: "/"), path != "/" else { throw .invalid("open", path) }
    let parent = slash == path.startIndex ? "/" : String(path[..<slash])
    return (try folder(parent), String(path[path.index(after: slash)...]))
  }

  package func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let (folder, name) = try place(path)
    return try folder.open(name, mode)
  }

  package func list(_ path: String) throws(SystemError) -> [String] { try folder(path).list() }

  package func unlink(_ path: String) throws(SystemError) {
    let (folder, name) = try place(path)
    try folder.unlink(name)
  }

  /// Renames a file in its folder, or a folder.
  package func rename(_ path: String, to newPath: String) throws(SystemError) {
    if try kind(of: path) == .directory { return try renameFolder(path, to: newPath) }
    let (folder, name) = try place(path)
    let (newFolder, newName) = try place(newPath)
    guard folder.path.equalsUTF8(newFolder.path) else { throw .invalid("rename", newPath) }
    try folder.rename(name, to: newName)
  }

  package func syncDirectory(_ path: String) throws(SystemError) { try folder(path).sync() }

  package func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    let (folder, name) = try place(path)
    return try folder.lock(name, exclusive: exclusive)
  }
}
