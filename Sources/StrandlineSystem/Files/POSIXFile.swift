// An open file on the real file system: which calls write, preallocate and sync it on each OS, and why.
//
// Short reads and writes are continued until they are complete. A sync is called once and its failure is thrown,
// EINTR included: after a failed sync the kernel may have dropped the pages and marked them clean, so a second sync
// that succeeds proves nothing.

internal import CStrandline

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A file of the real file system. Safe to call from any thread; `Descriptor` says what a `close` during a call does.
package final class POSIXFile: File {
  package let path: String
  /// nil after `close`.
  private let descriptor: OrderedMutex<Descriptor?>

  init(path: String, descriptor: Descriptor) {
    self.path = path
    self.descriptor = OrderedMutex(.leaf, descriptor)
  }

  /// Runs `body` with the descriptor, which stays open until `body` returns.
  private func withDescriptor<Result>(
    _ call: String, _ body: (Int32) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    guard let descriptor = descriptor.withLock({ $0 }) else { throw .closed(call, path) }
    return try withExtendedLifetime(descriptor) { () throws(SystemError) -> Result in
      try body(descriptor.number)
    }
  }

  /// Converts `offset` to the kernel's signed type. Throws EFBIG if `offset + count` does not fit into it.
  private func kernelOffset(_ call: String, _ offset: UInt64, _ count: UInt64) throws(SystemError) -> off_t {
    let (end, overflow) = offset.addingReportingOverflow(count)
    guard !overflow, end <= UInt64(Int64.max) else { throw SystemError(call: call, subject: path, errno: EFBIG) }
    return off_t(offset)
  }

  package func identity() throws(SystemError) -> FileIdentity {
    try withDescriptor("fstat") { (descriptor) throws(SystemError) in try SystemCall.identity(descriptor, path) }
  }

  package func size() throws(SystemError) -> UInt64 {
    try withDescriptor("fstat") { (descriptor) throws(SystemError) in try sizeOf(descriptor) }
  }

  private func sizeOf(_ descriptor: Int32) throws(SystemError) -> UInt64 {
    let status = try SystemCall.status(descriptor, path)
    return UInt64(max(0, status.st_size))
  }

  /// A read of more bytes than this is first limited to what the file holds, so that a length from crafted or damaged
  /// bytes cannot make it allocate more memory than that.
  private static let unlimitedReadMax = 64 << 10

  package func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    try withDescriptor("pread") { (descriptor) throws(SystemError) in
      let wanted = try limitedCount(descriptor, offset, count)
      guard wanted > 0 else { return [] }
      let start = try kernelOffset("pread", offset, UInt64(wanted))
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
      try withDescriptor("pread") { (descriptor) throws(SystemError) in
        let wanted = try limitedCount(descriptor, offset, count)
        let start = try kernelOffset("pread", offset, UInt64(wanted))
        // Only new bytes of the buffer are set to zero. It usually has the length of the last read already.
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

  /// Returns `count`; if it is above `unlimitedReadMax`, at most the number of bytes from `offset` to the file's end.
  private func limitedCount(_ descriptor: Int32, _ offset: UInt64, _ count: Int) throws(SystemError) -> Int {
    guard count > Self.unlimitedReadMax else { return max(0, count) }
    let size = try sizeOf(descriptor)
    return size > offset ? Int(min(UInt64(count), size - offset)) : 0
  }

  /// Reads until `buffer` holds `wanted` bytes or the file ends. Returns 0 or an errno.
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
    let start = try kernelOffset("pwrite", offset, UInt64(range.count))
    try withDescriptor("pwrite") { (descriptor) throws(SystemError) in
      let failure: Int32 = unsafe bytes.withUnsafeBytes { buffer in
        guard let base = buffer.baseAddress else { return 0 }
        var done = 0
        while done < range.count {
          let put = unsafe pwrite(
            descriptor, base + range.lowerBound + done, range.count - done, start + off_t(done))
          if put > 0 {
            done += put
          } else if put == 0 {
            // POSIX does not say when pwrite returns 0. Repeating it might never end, so it counts as a device error.
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

  /// Reserves the space first, so that a full disk fails before a byte is written, and then writes zeros to it. A file
  /// system marks reserved space as unwritten, and the first sync after a write to it commits the change of that mark
  /// to its journal. This costs as much as the sync itself, and far more on a busy machine.
  package func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    guard length > 0 else { return }
    let start = try kernelOffset("fallocate", offset, length)
    let old = try size()
    try withDescriptor("fallocate") { (descriptor) throws(SystemError) in
      let code = strandline_preallocate(descriptor, Int64(start), Int64(length))
      guard code == 0 || code == ENOTSUP || code == EOPNOTSUPP || code == ENOSYS else {
        throw SystemError(call: "fallocate", subject: path, errno: code)
      }
    }
    try writeZeros(from: old, to: offset + length)
  }

  /// Writes zeros from the old end of the file to `end`. If a write fails, the file is truncated to its old size.
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
    let length = try kernelOffset("ftruncate", size, 0)
    try withDescriptor("ftruncate") { (descriptor) throws(SystemError) in
      while ftruncate(descriptor, length) != 0 {
        let code = errno
        if code != EINTR { throw SystemError(call: "ftruncate", subject: path, errno: code) }
      }
    }
  }

  package func sync(_ strength: SyncStrength) throws(SystemError) {
    try withDescriptor("sync") { (descriptor) throws(SystemError) in
      try Self.sync(descriptor, strength, subject: path)
    }
  }

  /// Syncs one descriptor.
  ///
  /// - Linux: fdatasync(2) for both strengths. It omits only metadata that reading the data does not need, so a changed
  ///   size is written.
  /// - Apple: fsync(2) passes the data to the drive and does not order writes there. `F_BARRIERFSYNC` orders them,
  ///   `F_FULLFSYNC` flushes the drive's cache. On a volume without `F_BARRIERFSYNC` (network, FAT) `F_FULLFSYNC` is
  ///   tried, and without that, fsync.
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
    /// Whether this errno means that the volume does not support the fcntl. Any other errno means a failed sync.
    private static func isUnsupported(_ code: Int32) -> Bool {
      code == ENOTSUP || code == EOPNOTSUPP || code == EINVAL || code == ENOTTY
    }
  #endif

  package func close() { descriptor.withLock { $0 = nil } }
}
