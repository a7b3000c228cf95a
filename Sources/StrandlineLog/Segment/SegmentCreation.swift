// How a segment comes into being: under a temporary name, synced, and only then with its own (decision L1).
//
// Everything before the rename can fail without a trace in the log: the file has no name that a reader believes.
// From the rename on the outcome of a failure is unknown, and the log is poisoned. So a named segment always has
// a header, an opening frame and, after a recovery, the copied frames.

import StrandlineSystem

/// A write that failed, and what that means for the log.
enum WriteFailure: Error {
  /// Nothing of it is there; the log is as it was.
  case refused(SystemError)
  /// It may be there or not.
  case unknown(SystemError)
}

/// A segment to be made.
struct SegmentCreation {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  let header: SegmentHeader
  /// What stands before it: the last LSN and chain, and where the predecessor ends.
  let predecessorID: UInt64
  let after: LogPosition
  let opens: UInt64
  /// Frames of the predecessor above its promise, to be taken over: still with the predecessor's stamps.
  var copied = CopiedFrames()

  struct CopiedFrames {
    var bytes: [UInt8] = []
    /// Where each begins in `bytes`, and its LSN and flags.
    var frames: [(start: Int, lsn: UInt64, flags: UInt8)] = []
  }

  /// The bytes of the header page, the opening frame and the copied frames; and where each copied event lies.
  func encoded() -> (bytes: [UInt8], offsets: [UInt32]) {
    let identity = header.identity
    let start = LogFormat.headerPageBytes
    let end = start + LogFormat.openingFrameBytes + copied.bytes.count
    var bytes = header.encoded()
    bytes.reserveCapacity(end)
    bytes.append(zeros: start - bytes.count)
    let opening = OpeningBody(
      firstLSN: after.lsn + 1, predecessorID: predecessorID, predecessorLastLSN: after.lsn,
      predecessorEnd: after.offset, chain: after.chain, durableEnd: UInt32(end), opens: opens)
    bytes.append(unstampedFrame: .opening, schema: 0, index: 0, body: opening.encoded())
    bytes.stampFrame(at: start, lsn: opening.firstLSN, flags: 0, offset: UInt32(start), identity: identity)
    let base = bytes.count
    bytes.append(contentsOf: copied.bytes)
    var offsets: [UInt32] = []
    for frame in copied.frames {
      let offset = UInt32(base + frame.start)
      bytes.stampFrame(
        at: base + frame.start, lsn: frame.lsn, flags: frame.flags, offset: offset, identity: identity)
      offsets.append(offset)
    }
    return (bytes, offsets)
  }

  /// Makes the segment. When this returns, the file, its content and its name are on the medium.
  func create(firstStepBytes: Int) throws(WriteFailure) -> LiveSegment {
    let fileSystem = environment.fileSystem
    let temporary = directory.temporarySegment(header.segmentID)
    let path = directory.segment(header.segmentID)
    let content = encoded()
    let allocated = max(firstStepBytes, content.bytes.count)
    let file: any File
    do {
      file = try Self.createFile(fileSystem, temporary)
    } catch {
      throw .refused(error)
    }
    do {
      try file.preallocate(at: 0, length: UInt64(allocated))
      try file.write(content.bytes, at: 0)
      try file.sync(.durable)
    } catch {
      file.close()
      // Gives the space back. If that fails too, the next creation or the next writer removes the file.
      do { try fileSystem.unlink(temporary) } catch { throw .refused(error) }
      throw .refused(error)
    }
    do {
      try fileSystem.rename(temporary, to: path)
      try fileSystem.syncDirectory(directory.path)
    } catch {
      file.close()
      throw .unknown(error)
    }
    return LiveSegment(
      file: file, path: path, identity: header.identity, end: UInt32(content.bytes.count),
      allocated: UInt64(allocated), firstLSN: after.lsn + 1, copiedOffsets: content.offsets)
  }

  /// Creates a file of the log's own temporary names, in the place of what an earlier attempt left.
  private static func createFile(_ fileSystem: any FileSystem, _ path: String) throws(SystemError) -> any File {
    do {
      return try fileSystem.open(path, .create)
    } catch  where error.isTaken {
      try fileSystem.unlink(path)
      return try fileSystem.open(path, .create)
    }
  }
}

/// The segment that this writer appends to. No other process has written to it, or ever will (decision L16).
struct LiveSegment: Sendable {
  let file: any File
  var path: String
  let identity: SegmentIdentity
  /// Where the next frame goes.
  var end: UInt32
  /// Up to here space is reserved.
  var allocated: UInt64
  let firstLSN: UInt64
  let copiedOffsets: [UInt32]
  /// Frames since the last marker, the opening frame counted.
  var framesSinceMarker: UInt32
  var hasEvents: Bool
  /// How often space was reserved; the steps double.
  var steps = 0

  init(
    file: any File, path: String, identity: SegmentIdentity, end: UInt32, allocated: UInt64, firstLSN: UInt64,
    copiedOffsets: [UInt32]
  ) {
    self.file = file
    self.path = path
    self.identity = identity
    self.end = end
    self.allocated = allocated
    self.firstLSN = firstLSN
    self.copiedOffsets = copiedOffsets
    framesSinceMarker = 1 + UInt32(copiedOffsets.count)
    hasEvents = !copiedOffsets.isEmpty
  }

  /// The same file after its folder got another name.
  func renamed(_ path: String) -> LiveSegment {
    var result = self
    result.path = path
    return result
  }
}
