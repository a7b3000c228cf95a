// An open file on the real disk: what "write", "preallocate" and "sync" mean on each OS, and why.
//
// Short reads and writes are repeated until all is done. A sync is called once and its failure is
// thrown, EINTR included: after a failed sync the kernel may have dropped the pages and marked them
// clean, so a second sync that succeeds proves nothing.

internal import CStrandline
internal import Synchronization

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A file of the real disk. Safe to call from any thread; see `Descriptor` for what closing means meanwhile.
package final class POSIXFile: File {
  package let path: String
  private let held: Mutex<Descriptor?>

  init(path: String, descriptor: Descriptor) {
    self.path = path
    self.held = Mutex(descriptor)
  }

  /// Runs `body` on the descriptor, which stays open until it is done.
  private func use<Result>(
    _ call: String, _ body: (Int32) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    guard let descriptor = held.withLock({ $0 }) else { throw .closed(call, path) }
    return try withExtendedLifetime(descriptor) { () throws(SystemError) -> Result in
      try body(descriptor.number)
    }
  }

  /// `offset + count` as the kernel's signed offset, or EFBIG.
  private func checked(_ call: String, _ offset: UInt64, _ count: UInt64) throws(SystemError) -> off_t {
    let (end, overflow) = offset.addingReportingOverflow(count)
    guard !overflow, end <= UInt64(Int64.max) else { throw SystemError(call: call, subject: path, errno: EFBIG) }
    return off_t(offset)
  }

  package func size() throws(SystemError) -> UInt64 {
    try use("fstat") { (descriptor) throws(SystemError) in try sizeOf(descriptor) }
  }

  private func sizeOf(_ descriptor: Int32) throws(SystemError) -> UInt64 {
    let status = try SystemCall.status(descriptor, path)
    return UInt64(max(0, status.st_size))
  }

  /// A read above this size is first held against the size of the file, so that a hostile length costs no memory.
  private static let unquestionedCount = 64 << 10

  package func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    try use("pread") { (descriptor) throws(SystemError) in
      let wanted = try bounded(descriptor, offset, count)
      guard wanted > 0 else { return [] }
      let start = try checked("pread", offset, UInt64(wanted))
      var failure: Int32 = 0
      let result = unsafe [UInt8](unsafeUninitializedCapacity: wanted) { buffer, done in
        failure = unsafe Self.fill(UnsafeMutableRawBufferPointer(buffer), wanted, &done, descriptor, start)
      }
      guard failure == 0 else { throw SystemError(call: "pread", subject: path, errno: failure) }
      return result
    }
  }

  package func read(at offset: UInt64, count: Int, into buffer: inout [UInt8]) throws(SystemError) {
    do throws(SystemError) {
      try use("pread") { (descriptor) throws(SystemError) in
        let wanted = try bounded(descriptor, offset, count)
        let start = try checked("pread", offset, UInt64(wanted))
        // Zeros only where the buffer grows: as a rule it has the length of the last read.
        if buffer.count < wanted { buffer.append(zeros: wanted - buffer.count) }
        var done = 0
        let failure = unsafe buffer.withUnsafeMutableBytes { bytes in
          unsafe Self.fill(bytes, wanted, &done, descriptor, start)
        }
        guard failure == 0 else { throw SystemError(call: "pread", subject: path, errno: failure) }
        buffer.removeLast(buffer.count - done)
      }
    } catch {
      buffer = []
      throw error
    }
  }

  /// `count`, or if it is large and the file is shorter, what the file has from `offset` on.
  private func bounded(_ descriptor: Int32, _ offset: UInt64, _ count: Int) throws(SystemError) -> Int {
    guard count > Self.unquestionedCount else { return max(0, count) }
    let size = try sizeOf(descriptor)
    return size > offset ? Int(min(UInt64(count), size - offset)) : 0
  }

  /// Reads until `wanted` bytes are there or the file ends. 0, or an errno.
  private static func fill(
    _ buffer: UnsafeMutableRawBufferPointer, _ wanted: Int, _ done: inout Int, _ descriptor: Int32, _ start: off_t
  ) -> Int32 {
    guard let base = buffer.baseAddress else { return 0 }
    while done < wanted {
      let got = unsafe pread(descriptor, base + done, wanted - done, start + off_t(done))
      if got > 0 {
        done += got
      } else if got == 0 {
        return 0
      } else if errno != EINTR {
        return errno
      }
    }
    return 0
  }

  package func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    precondition(range.lowerBound >= 0 && range.upperBound <= bytes.count)
    guard !range.isEmpty else { return }
    let start = try checked("pwrite", offset, UInt64(range.count))
    try use("pwrite") { (descriptor) throws(SystemError) in
      let failure: Int32 = unsafe bytes.withUnsafeBytes { buffer in
        guard let base = buffer.baseAddress else { return 0 }
        var done = 0
        while done < range.count {
          let put = unsafe pwrite(
            descriptor, base + range.lowerBound + done, range.count - done, start + off_t(done))
          if put > 0 {
            done += put
          } else if put == 0 {
            // POSIX leaves a write of nothing open; a device that makes no progress is a broken one.
            return EIO
          } else if errno != EINTR {
            return errno
          }
        }
        return 0
      }
      guard failure == 0 else { throw SystemError(call: "pwrite", subject: path, errno: failure) }
    }
  }

  /// Space is reserved first, so that a full disk shows before a byte is written, and then written with zeros: a
  /// file system keeps reserved space as "unwritten", and the first sync over it has to change that in its journal,
  /// which costs as much as the sync itself, and far more on a busy machine.
  package func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    guard length > 0 else { return }
    let start = try checked("fallocate", offset, length)
    let old = try size()
    try use("fallocate") { (descriptor) throws(SystemError) in
      let code = strandline_preallocate(descriptor, Int64(start), Int64(length))
      guard code == 0 || code == ENOTSUP || code == EOPNOTSUPP || code == ENOSYS else {
        throw SystemError(call: "fallocate", subject: path, errno: code)
      }
    }
    try writeZeros(from: old, to: offset + length)
  }

  /// Zeros from the old end of the file on. Bytes that stood already are not touched. If the disk fills up, the
  /// file gets its old size back.
  private func writeZeros(from old: UInt64, to end: UInt64) throws(SystemError) {
    var at = old
    while at < end {
      let count = Int(min(UInt64(Self.zeros.count), end - at))
      do {
        try write(Self.zeros, 0..<count, at: at)
      } catch {
        try? truncate(to: old)
        throw error
      }
      at += UInt64(count)
    }
  }

  private static let zeros = [UInt8](repeating: 0, count: 256 << 10)

  package func truncate(to size: UInt64) throws(SystemError) {
    let length = try checked("ftruncate", size, 0)
    try use("ftruncate") { (descriptor) throws(SystemError) in
      while ftruncate(descriptor, length) != 0 {
        let code = errno
        if code != EINTR { throw SystemError(call: "ftruncate", subject: path, errno: code) }
      }
    }
  }

  package func sync(_ strength: SyncStrength) throws(SystemError) {
    try use("sync") { (descriptor) throws(SystemError) in
      try Self.sync(descriptor, strength, subject: path)
    }
  }

  /// One sync of one descriptor.
  ///
  /// - Linux: fdatasync(2) for both strengths. It leaves out only metadata that no reader of the data needs;
  ///   a changed size is written.
  /// - Apple: fsync(2) hands the data to the drive and orders nothing there. `F_BARRIERFSYNC` orders,
  ///   `F_FULLFSYNC` empties the drive's cache. Volumes that know neither (network, FAT) get the next
  ///   stronger call that works, at last fsync.
  static func sync(_ descriptor: Int32, _ strength: SyncStrength, subject: String) throws(SystemError) {
    #if canImport(Darwin)
      if strength == .ordered, fcntl(descriptor, F_BARRIERFSYNC) != -1 { return }
      if strength == .ordered, !isUnsupported(errno) {
        throw SystemError(call: "F_BARRIERFSYNC", subject: subject, errno: errno)
      }
      if fcntl(descriptor, F_FULLFSYNC) != -1 { return }
      if !isUnsupported(errno) { throw SystemError(call: "F_FULLFSYNC", subject: subject, errno: errno) }
      guard fsync(descriptor) == 0 else { throw SystemError(call: "fsync", subject: subject, errno: errno) }
    #else
      guard fdatasync(descriptor) == 0 else { throw SystemError(call: "fdatasync", subject: subject, errno: errno) }
    #endif
  }

  #if canImport(Darwin)
    /// The volume does not know this fcntl; any other failure is a failed sync.
    private static func isUnsupported(_ code: Int32) -> Bool {
      code == ENOTSUP || code == EOPNOTSUPP || code == EINVAL || code == ENOTTY
    }
  #endif

  package func close() { held.withLock { $0 = nil } }
}
