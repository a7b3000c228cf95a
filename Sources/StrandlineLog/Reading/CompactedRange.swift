// Up to where a log no longer tells its earlier states. A compaction judges by the state as of one event, and what stays
// of the events before it gives that state and all later ones, but not those before. The segments that it has changed say
// which event that was; others before it may have stayed as they were, so all are asked.

import StrandlineSystem

extension Log {
  /// The newest event by whose state a compaction has left anything out; 0 if none has. What the log holds up to an event
  /// from there on gives the state as of that event.
  ///
  /// - Throws: `.damaged` and others as `read(_:)` if a segment's header cannot be believed, `.io`.
  /// - Complexity: one read a segment.
  package func compactedLSN() throws(LogError) -> UInt64 {
    try keeper.directory.compactedLSN { () throws(LogError) in keeper.manifest }
  }
}

extension LogReader {
  /// The same, as far as the writing process has published it.
  package func compactedLSN() throws(LogError) -> UInt64 {
    try directory.compactedLSN { () throws(LogError) in
      try Manifest.read(directory)
    }
  }
}

extension StoreDirectory {
  /// - Parameter list: the list as it is now. Segments that it names are replaced meanwhile at times.
  func compactedLSN(
    _ list: () throws(LogError) -> Manifest
  ) throws(LogError) -> UInt64 {
    var replaced: LogError?
    for _ in 0..<8 {
      do throws(LogError) {
        var result: UInt64 = 0
        for entry in try list().entries where entry.end != nil {
          result = max(result, try compactedLSN(of: entry.segmentID))
        }
        return result
      } catch {
        guard error.underlying?.isAbsent == true else { throw error }
        replaced = error
      }
    }
    throw replaced ?? LogError(.io, "the segments of '\(path)' are replaced faster than they can be read")
  }

  private func compactedLSN(of segmentID: UInt64) throws(LogError) -> UInt64 {
    let path = segment(segmentID)
    let file = try SegmentFile.open(folder, segmentID)
    defer { file.close() }
    let bytes: [UInt8]
    do {
      bytes = try file.read(at: 0, count: LogFormat.headerBytes)
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    return try SegmentHeader.decode(bytes, file: path, named: segmentID).compactedLSN
  }
}
