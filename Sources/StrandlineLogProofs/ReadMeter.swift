// A disk that remembers the largest read that was asked of it.
//
// A reader that believes a length which no checksum has confirmed asks for that many bytes. On a real disk it would
// have allocated them before the system could say that the file is shorter; here it is noticed.

import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// A disk around a disk. Everything goes through unchanged.
final class ReadMeter: ForwardingFileSystem {
  let base: any FileSystem
  private let excess = Mutex(Int64.min)

  init(_ base: any FileSystem) { self.base = base }

  /// By how many bytes the greediest read exceeded the size of its file; negative if none did.
  var excessBytes: Int64 { excess.withLock { $0 } }

  fileprivate func note(_ count: Int, _ size: UInt64) {
    let more = Int64(clamping: count) - Int64(clamping: size)
    excess.withLock { $0 = max($0, more) }
  }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    MeteredFile(self, try folder.open(name, mode))
  }
}

private final class MeteredFile: ForwardingFile {
  private let meter: ReadMeter
  let base: any File

  init(_ meter: ReadMeter, _ base: any File) {
    self.meter = meter
    self.base = base
  }

  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    meter.note(count, try base.size())
    return try base.read(at: offset, count: count)
  }
}
