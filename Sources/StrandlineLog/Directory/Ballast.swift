// Space that is set aside while there is some, for the one moment when an open needs a little and the disk is full.
//
// An open may have to copy the end of the log before it can serve it (TailRecovery.swift). On a full disk it removes
// the ballast and tries again; the next writer that finds room makes it anew (decision L16).

import StrandlineSystem

/// A file of zeros that is never read.
struct Ballast {
  let directory: StoreDirectory
  let bytes: Int

  private var folder: any Folder { directory.folder }

  /// Makes it, if it is not there.
  func make() throws(SystemError) {
    guard bytes > 0, try folder.kind(of: LogFormat.ballastName) == .absent else { return }
    let temporary = LogFormat.ballastName + LogFormat.temporarySuffix
    let file = try SegmentCreation.createFile(folder, temporary)
    defer { file.close() }
    do {
      try file.preallocate(at: 0, length: UInt64(bytes))
      try file.sync(.durable)
    } catch let cause {
      // What cannot be removed now is removed by the next attempt; the first failure is the one to report.
      do { try folder.unlink(temporary) } catch { throw cause }
      throw cause
    }
    try folder.rename(temporary, to: LogFormat.ballastName)
  }

  /// Gives the space back to the disk; false if there is none.
  func release() throws(SystemError) -> Bool {
    do {
      try folder.unlink(LogFormat.ballastName)
    } catch  where error.isAbsent {
      return false
    }
    try folder.sync()
    return true
  }
}
