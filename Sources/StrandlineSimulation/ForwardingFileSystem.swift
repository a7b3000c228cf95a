// File systems that forward to another one, for tests that observe or change one call and leave the others as they are.

package import StrandlineSystem

/// A file system that forwards every call to `base` that the conforming type does not implement itself.
package protocol ForwardingFileSystem: FileSystem {
  var base: any FileSystem { get }
}

extension ForwardingFileSystem {
  package func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File { try base.open(path, mode) }
  package func kind(of path: String) throws(SystemError) -> PathKind { try base.kind(of: path) }
  package func list(_ directory: String) throws(SystemError) -> [String] { try base.list(directory) }
  package func sizes(of names: [String], in directory: String) throws(SystemError) -> [UInt64?] {
    try base.sizes(of: names, in: directory)
  }
  package func makeDirectory(_ path: String) throws(SystemError) { try base.makeDirectory(path) }
  package func rename(_ path: String, to newPath: String) throws(SystemError) { try base.rename(path, to: newPath) }
  package func unlink(_ path: String) throws(SystemError) { try base.unlink(path) }
  package func removeDirectory(_ path: String) throws(SystemError) { try base.removeDirectory(path) }
  package func syncDirectory(_ path: String) throws(SystemError) { try base.syncDirectory(path) }
  package func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try base.lock(path, exclusive: exclusive)
  }
}

/// A file that forwards every call to `base` that the conforming type does not implement itself.
package protocol ForwardingFile: File {
  var base: any File { get }
}

extension ForwardingFile {
  package var path: String { base.path }
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
