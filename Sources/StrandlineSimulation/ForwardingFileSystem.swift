// File systems that forward to another one, for tests that observe or change one call and leave the others as they are.

package import StrandlineSystem

/// A file system that forwards every call to `base` that the conforming type does not implement itself. The calls on its
/// folders come to it too, with the folder of `base`.
package protocol ForwardingFileSystem: AnyObject, FileSystem {
  var base: any FileSystem { get }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File
  func kind(of name: String, in folder: any Folder) throws(SystemError) -> PathKind
  func list(_ name: String, in folder: any Folder) throws(SystemError) -> [String]
  func rename(_ name: String, to newName: String, in folder: any Folder) throws(SystemError)
  func unlink(_ name: String, in folder: any Folder) throws(SystemError)
  func lock(_ name: String, exclusive: Bool, in folder: any Folder) throws(SystemError) -> (any FileLock)?
}

extension ForwardingFileSystem {
  package var openStores: OpenStores { base.openStores }
  package func absolutePath(_ path: String) throws(SystemError) -> String { try base.absolutePath(path) }
  package func folder(_ path: String) throws(SystemError) -> any Folder {
    ForwardingFolder(self, try base.folder(path))
  }
  package func kind(of path: String) throws(SystemError) -> PathKind { try base.kind(of: path) }
  package func makeDirectory(_ path: String) throws(SystemError) { try base.makeDirectory(path) }
  package func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    try base.renameFolder(path, to: newPath)
  }
  package func removeDirectory(_ path: String) throws(SystemError) { try base.removeDirectory(path) }

  package func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    try folder.open(name, mode)
  }
  package func kind(of name: String, in folder: any Folder) throws(SystemError) -> PathKind {
    try folder.kind(of: name)
  }
  package func list(_ name: String, in folder: any Folder) throws(SystemError) -> [String] { try folder.list(name) }
  package func rename(_ name: String, to newName: String, in folder: any Folder) throws(SystemError) {
    try folder.rename(name, to: newName)
  }
  package func unlink(_ name: String, in folder: any Folder) throws(SystemError) { try folder.unlink(name) }
  package func lock(
    _ name: String, exclusive: Bool, in folder: any Folder
  ) throws(SystemError) -> (any FileLock)? { try folder.lock(name, exclusive: exclusive) }
}

/// A folder of a forwarding file system.
private final class ForwardingFolder: Folder {
  private let fileSystem: any ForwardingFileSystem
  private let base: any Folder
  var path: String { base.path }

  init(_ fileSystem: any ForwardingFileSystem, _ base: any Folder) {
    self.fileSystem = fileSystem
    self.base = base
  }

  func wasMoved(to path: String) { base.wasMoved(to: path) }
  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    try fileSystem.open(name, mode, in: base)
  }
  func kind(of name: String) throws(SystemError) -> PathKind { try fileSystem.kind(of: name, in: base) }
  func list(_ name: String) throws(SystemError) -> [String] { try fileSystem.list(name, in: base) }
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] { try base.sizes(of: names) }
  func makeFolder(_ name: String) throws(SystemError) { try base.makeFolder(name) }
  func rename(_ name: String, to newName: String) throws(SystemError) {
    try fileSystem.rename(name, to: newName, in: base)
  }
  func unlink(_ name: String) throws(SystemError) { try fileSystem.unlink(name, in: base) }
  func removeFolder(_ name: String) throws(SystemError) { try base.removeFolder(name) }
  func sync(_ name: String) throws(SystemError) { try base.sync(name) }
  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try fileSystem.lock(name, exclusive: exclusive, in: base)
  }
  func identity(of name: String) throws(SystemError) -> FileIdentity? { try base.identity(of: name) }
  func setTreatment(_ treatment: FileTreatment) throws(SystemError) { try base.setTreatment(treatment) }
}

/// A file that forwards every call to `base` that the conforming type does not implement itself.
package protocol ForwardingFile: File {
  var base: any File { get }
}

extension ForwardingFile {
  package var path: String { base.path }
  package func identity() throws(SystemError) -> FileIdentity { try base.identity() }
  package func size() throws(SystemError) -> UInt64 { try base.size() }
  package func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    try base.read(at: offset, count: count)
  }
  package func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    try base.write(bytes, range, at: offset)
  }
  package func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    try base.preallocate(at: offset, length: length)
  }
  package func truncate(to size: UInt64) throws(SystemError) { try base.truncate(to: size) }
  package func sync(_ strength: SyncStrength) throws(SystemError) { try base.sync(strength) }
  package func close() { base.close() }
}
