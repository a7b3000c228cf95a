// Open files for reading single events: a few, so that many segments do not use up the descriptors.

import StrandlineSystem
import Synchronization

/// The files that were read from last.
final class SegmentFiles: Sendable {
  private static let openMax = 16
  private let fileSystem: any FileSystem
  /// Least recently used first.
  private let open = Mutex<[(segmentID: UInt64, file: any File)]>([])

  init(_ fileSystem: any FileSystem) { self.fileSystem = fileSystem }

  private func file(_ segmentID: UInt64, _ path: String) throws(SystemError) -> any File {
    try open.withLock { files throws(SystemError) -> any File in
      if let index = files.firstIndex(where: { $0.segmentID == segmentID }) {
        let found = files.remove(at: index)
        files.append(found)
        return found.file
      }
      let file = try fileSystem.open(path, .read)
      // The file that is dropped is closed by its last user, who may be reading from it now.
      if files.count == Self.openMax { files.removeFirst() }
      files.append((segmentID, file))
      return file
    }
  }

  func close() {
    open.withLock { files in
      for (_, file) in files { file.close() }
      files = []
    }
  }

  /// The event `lsn`, whose frame begins at `place.lowerBound` and ends at `place.upperBound` at the latest.
  func read(
    _ lsn: UInt64, at place: Range<UInt32>, identity: SegmentIdentity, path: String
  ) throws(LogError) -> LogEvent {
    let bytes: [UInt8]
    do {
      bytes = try file(identity.segmentID, path).read(at: UInt64(place.lowerBound), count: place.count)
    } catch {
      throw .system("cannot read LSN \(lsn)", error, file: path)
    }
    func damaged(_ what: String) -> LogError {
      .damaged(path, at: UInt64(place.lowerBound)..<UInt64(place.upperBound), lsns: lsn...lsn, what)
    }
    guard bytes.count >= LogFormat.frameHeaderBytes else { throw damaged(FrameFault.cut.rawValue) }
    let header: FrameHeader
    switch FrameHeader.decode(bytes, at: 0, offset: place.lowerBound, identity: identity) {
    case .failure(let error): throw damaged(error.fault.rawValue)
    case .success(let decoded): header = decoded
    }
    guard header.type == FrameType.event.rawValue, header.lsn == lsn else { throw damaged(FrameFault.order.rawValue) }
    guard header.frameBytes <= bytes.count else { throw damaged(FrameFault.cut.rawValue) }
    guard header.bodyMatches(bytes, at: 0) else { throw damaged(FrameFault.bodyCRC.rawValue) }
    let body = LogFormat.frameHeaderBytes
    return LogEvent(
      lsn: lsn, schema: header.schema, body: Array(bytes[body..<body + header.bodyLength]),
      indexInTransaction: header.indexInTransaction, isFirst: header.isFirst, isLast: header.isLast,
      segmentID: identity.segmentID, offset: place.lowerBound)
  }
}
