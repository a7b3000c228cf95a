// A read-only directory in memory, and a clock that counts its calls, for readers that are fuzzed. Every write throws, so
// a reader that tries to change a byte fails.

import StrandlineSystem
import Synchronization

/// The directory and its files.
final class FuzzDisk: FileSystem {
  static let folder = "/s"
  private let files: [String: [UInt8]]
  private let isHeld: Bool

  init(_ files: [String: [UInt8]], isHeld: Bool = false) {
    self.files = files
    self.isHeld = isHeld
  }

  var environment: SystemEnvironment {
    SystemEnvironment(fileSystem: self, clock: FuzzClock(), random: SeededRandom(seed: 1))
  }

  let openStores = OpenStores()
  func absolutePath(_ path: String) throws(SystemError) -> String { path }
  func kind(of path: String) throws(SystemError) -> PathKind {
    path == Self.folder ? .directory : files[path] == nil ? .absent : .file
  }
  func folder(_ path: String) throws(SystemError) -> any Folder {
    guard path == Self.folder else { throw .absent("open", path) }
    return FuzzFolder(files, isHeld: isHeld)
  }
  func makeDirectory(_ path: String) throws(SystemError) { throw .closed("mkdir", path) }
  func renameFolder(_ path: String, to newPath: String) throws(SystemError) { throw .closed("rename", path) }
  func removeDirectory(_ path: String) throws(SystemError) { throw .closed("rmdir", path) }
}

private final class FuzzFolder: Folder {
  private let files: [String: [UInt8]]
  private let isHeld: Bool
  let path = FuzzDisk.folder

  init(_ files: [String: [UInt8]], isHeld: Bool) {
    self.files = files
    self.isHeld = isHeld
  }

  func wasMoved(to path: String) {}
  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let path = path(of: name)
    guard case .read = mode else { throw .closed("open", path) }
    guard let bytes = files[path] else { throw .absent("open", path) }
    return FuzzFile(path, bytes)
  }
  func kind(of name: String) throws(SystemError) -> PathKind { files[path(of: name)] == nil ? .absent : .file }
  func list(_ name: String) throws(SystemError) -> [String] {
    guard name == "." else { throw .absent("opendir", path(of: name)) }
    return files.keys.sorted().map { String($0.dropFirst(path.count + 1)) }
  }
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] {
    names.map { files[path(of: $0)].map { UInt64($0.count) } }
  }
  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    guard files[path(of: name)] != nil else { throw .absent("open", path(of: name)) }
    return isHeld ? nil : FuzzLock()
  }
  func identity(of name: String) throws(SystemError) -> FileIdentity? {
    name == "." || files[path(of: name)] != nil ? FuzzLock.identity : nil
  }
  func makeFolder(_ name: String) throws(SystemError) { throw .closed("mkdir", path(of: name)) }
  func rename(_ name: String, to newName: String) throws(SystemError) { throw .closed("rename", path(of: name)) }
  func unlink(_ name: String) throws(SystemError) { throw .closed("unlink", path(of: name)) }
  func removeFolder(_ name: String) throws(SystemError) { throw .closed("rmdir", path(of: name)) }
  func sync(_ name: String) throws(SystemError) { throw .closed("fsync", path(of: name)) }
  func setTreatment(_ treatment: FileTreatment) throws(SystemError) { throw .closed("fcntl", path) }
}

private final class FuzzFile: File {
  let path: String
  private let bytes: [UInt8]

  init(_ path: String, _ bytes: [UInt8]) {
    self.path = path
    self.bytes = bytes
  }

  func identity() throws(SystemError) -> FileIdentity { FuzzLock.identity }
  func size() throws(SystemError) -> UInt64 { UInt64(bytes.count) }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    guard count > 0, offset < UInt64(bytes.count) else { return [] }
    // Allocates as many bytes as a read of a real file does: the requested count.
    var result: [UInt8] = []
    result.reserveCapacity(count)
    let start = Int(offset)
    result.append(contentsOf: bytes[start..<start + min(count, bytes.count - start)])
    return result
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    throw .closed("pwrite", path)
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) { throw .closed("fallocate", path) }
  func truncate(to size: UInt64) throws(SystemError) { throw .closed("ftruncate", path) }
  func sync(_ strength: SyncStrength) throws(SystemError) { throw .closed("fdatasync", path) }
  func close() {}
}

private final class FuzzLock: FileLock {
  static let identity = FileIdentity(device: 1, number: 1, links: 1)
  func identity() throws(SystemError) -> FileIdentity { Self.identity }
  func unlock() {}
}

private final class FuzzClock: SystemClock {
  private let ticks = Atomic<UInt64>(0)
  func wallMilliseconds() -> Int64 { Int64(ticks.add(1, ordering: .relaxed).newValue) }
  func monotonicNanoseconds() -> UInt64 { ticks.add(1, ordering: .relaxed).newValue }
  func sleep(milliseconds: Int64) async throws {}
  func sleepBlocking(milliseconds: Int64) {}
}
