// A disk that remembers the largest read that was asked of it.
//
// A reader that believes a length which no checksum has confirmed asks for that many bytes. On a real disk it would
// have allocated them before the system could say that the file is shorter; here it is noticed.

import StrandlineSystem
import Synchronization

/// A disk around a disk. Everything goes through unchanged.
final class ReadMeter: FileSystem {
  private let base: any FileSystem
  private let excess = Mutex(Int64.min)

  init(_ base: any FileSystem) { self.base = base }

  /// By how many bytes the greediest read exceeded the size of its file; negative if none did.
  var excessBytes: Int64 { excess.withLock { $0 } }

  fileprivate func note(_ count: Int, _ size: UInt64) {
    let more = Int64(clamping: count) - Int64(clamping: size)
    excess.withLock { $0 = max($0, more) }
  }

  func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File {
    MeteredFile(self, try base.open(path, mode))
  }
  func kind(of path: String) throws(SystemError) -> PathKind { try base.kind(of: path) }
  func list(_ directory: String) throws(SystemError) -> [String] { try base.list(directory) }
  func makeDirectory(_ path: String) throws(SystemError) { try base.makeDirectory(path) }
  func rename(_ path: String, to newPath: String) throws(SystemError) { try base.rename(path, to: newPath) }
  func unlink(_ path: String) throws(SystemError) { try base.unlink(path) }
  func removeDirectory(_ path: String) throws(SystemError) { try base.removeDirectory(path) }
  func syncDirectory(_ path: String) throws(SystemError) { try base.syncDirectory(path) }
  func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try base.lock(path, exclusive: exclusive)
  }
}

private final class MeteredFile: File {
  private let meter: ReadMeter
  private let base: any File
  var path: String { base.path }

  init(_ meter: ReadMeter, _ base: any File) {
    self.meter = meter
    self.base = base
  }

  func size() throws(SystemError) -> UInt64 { try base.size() }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    meter.note(count, try base.size())
    return try base.read(at: offset, count: count)
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    try base.write(bytes, range, at: offset)
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    try base.preallocate(at: offset, length: length)
  }
  func truncate(to size: UInt64) throws(SystemError) { try base.truncate(to: size) }
  func sync(_ strength: SyncStrength) throws(SystemError) { try base.sync(strength) }
  func close() { base.close() }
}
