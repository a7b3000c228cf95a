// How a segment comes into being: under a temporary name, synced, and only then with its own, and listed before
// anything in it is acknowledged (decisions L1, L7).
//
// Every segment is made here, with other content: a live one has its opening frame (and, after a recovery, the copied
// frames), a rewritten one is complete (decision L4). Everything before the rename can fail without a trace in the log: the
// file has no name that a reader believes. Between the rename and the list it can be taken back.

import StrandlineSystem

/// A write that failed, and what that means for the log.
enum WriteFailure: Error {
  /// Nothing of it is there; the log is as it was.
  case refused(SystemError)
  /// It may be there or not.
  case unknown(SystemError)
  /// Nothing of it is there, and no more is written: the store is not at its path any more.
  case replaced(LogError)

  /// A rename that failed, or the sync after it. `HeldFolder` makes no rename among the files of another store.
  static func renaming(_ error: SystemError) -> WriteFailure { error.isReplacement ? .refused(error) : .unknown(error) }

  /// What failed.
  var cause: SystemError {
    switch self {
    case .refused(let cause), .unknown(let cause): cause
    case .replaced(let error): error.underlying ?? .stale("open", error.file ?? "")
    }
  }

  /// As an error of the log, while `doing`.
  func error(_ doing: String, file: String? = nil) -> LogError {
    if case .replaced(let error) = self { return error }
    return .system(doing, cause, file: file ?? cause.subject)
  }
}

/// Makes segments in a directory.
struct SegmentCreation {
  let folder: any Folder

  /// Frames of a predecessor above its promise, to be taken over: still with the predecessor's stamps.
  struct CopiedFrames {
    var bytes: [UInt8] = []
    /// Where each begins in `bytes`, and its LSN and flags.
    var frames: [(start: Int, lsn: UInt64, flags: UInt8)] = []
  }

  /// The bytes of the header page, the opening frame and the copied frames; and where each copied event lies.
  static func encoded(
    _ header: SegmentHeader, after: LogPosition, predecessorID: UInt64, copied: CopiedFrames = CopiedFrames()
  ) -> (bytes: [UInt8], offsets: [UInt32]) {
    let identity = header.identity
    let end = LogFormat.openingEnd + copied.bytes.count
    var bytes = header.encodedPage()
    bytes.reserveCapacity(end)
    bytes.append(
      contentsOf: OpeningBody(
        firstLSN: after.lsn + 1, predecessorID: predecessorID, predecessorEnd: after.offset, chain: after.chain,
        durableEnd: UInt32(end)
      ).encodedFrame(identity))
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

  /// Makes a file with this content and space up to `allocated`. When this returns, the file, its content and its
  /// name are on the medium.
  ///
  /// - Parameter orLess: on a disk that has no room for so much, with the space of its content alone.
  /// - Returns: the file, and up to where it has space.
  func make(
    _ segmentID: UInt64, _ content: [UInt8], allocated: UInt64, orLess: Bool = false
  ) throws(WriteFailure) -> (file: any File, allocated: UInt64) {
    let temporary = SegmentName.temporaryName(segmentID)
    let file: any File
    do {
      file = try Self.createFile(folder, temporary)
    } catch {
      throw .refused(error)
    }
    var allocated = max(allocated, UInt64(content.count))
    do {
      do {
        try file.preallocate(at: 0, length: allocated)
      } catch  where error.isFull && orLess && allocated > UInt64(content.count) {
        try file.truncate(to: 0)
        allocated = UInt64(content.count)
        try file.preallocate(at: 0, length: allocated)
      }
      try file.write(content, at: 0)
      try file.sync(.durable)
    } catch let cause {
      file.close()
      // Gives the space back. If that fails too, the next creation or the next writer removes the file, and the first
      // failure is the one to report.
      do { try folder.unlink(temporary) } catch { throw .refused(cause) }
      throw .refused(cause)
    }
    do {
      try folder.rename(temporary, to: SegmentName.name(segmentID))
      try folder.sync()
    } catch {
      file.close()
      throw .renaming(error)
    }
    return (file, allocated)
  }

  /// Takes a segment back that no list names: an unlisted one that continues the log would be believed.
  func takeBack(_ segmentID: UInt64, after failure: WriteFailure) -> WriteFailure {
    // Of a store that was replaced another file may have that name.
    guard case .refused = failure else { return failure }
    do {
      try folder.unlink(SegmentName.name(segmentID))
      try folder.sync()
      return failure
    } catch {
      return error.isReplacement ? failure : .unknown(failure.cause)
    }
  }

  /// Creates a file of the log's own temporary names, in the place of what an earlier attempt left.
  static func createFile(_ folder: any Folder, _ name: String) throws(SystemError) -> any File {
    do {
      return try folder.open(name, .create)
    } catch  where error.isTaken {
      try folder.unlink(name)
      return try folder.open(name, .create)
    }
  }
}

/// The segment that this writer appends to. No other process has written an event to it, or ever will.
struct LiveSegment: Sendable {
  private let file: any File
  var path: String
  let identity: SegmentIdentity
  /// Where the next frame goes.
  var end: UInt32
  /// Up to here space is reserved.
  var allocated: UInt64
  let firstLSN: UInt64
  /// How often space was reserved; the steps double.
  var steps = 0
  var index: IndexBuilder
  /// It has its seal: the next group goes into another one.
  var isSealed = false

  init(
    file: any File, path: String, identity: SegmentIdentity, end: UInt32, allocated: UInt64, firstLSN: UInt64
  ) {
    self.file = file
    self.path = path
    self.identity = identity
    self.end = end
    self.allocated = allocated
    self.firstLSN = firstLSN
    index = IndexBuilder(firstLSN: firstLSN)
  }

  // Errors of the file name the path under which it was created, where it is not any more: a segment is made under a temporary
  // name, the first one in the temporary folder of a store. Those of these calls name the segment where it is.

  func write(_ bytes: [UInt8], at offset: UInt64) throws(SystemError) {
    do throws(SystemError) { try file.write(bytes, at: offset) } catch { throw named(error) }
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    do throws(SystemError) { try file.preallocate(at: offset, length: length) } catch { throw named(error) }
  }
  func truncate(to size: UInt64) throws(SystemError) {
    do throws(SystemError) { try file.truncate(to: size) } catch { throw named(error) }
  }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    do throws(SystemError) { try file.sync(strength) } catch { throw named(error) }
  }
  func close() { file.close() }

  private func named(_ error: SystemError) -> SystemError {
    var error = error
    error.subject = path
    return error
  }
}
