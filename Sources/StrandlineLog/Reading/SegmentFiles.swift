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

  /// Forgets files that are about to be removed; a read from one that is under way goes on.
  func drop(_ segmentIDs: Set<UInt64>) {
    open.withLock { files in files.removeAll { segmentIDs.contains($0.segmentID) } }
  }

  /// The frames of a segment, from `offset` on.
  ///
  /// - Throws: `.io`.
  func scanner(of table: SegmentTable.Address, from offset: UInt32) throws(LogError) -> SegmentScanner {
    do {
      let file = try file(table.identity.segmentID, table.path)
      return SegmentScanner(file: file, identity: table.identity, from: UInt64(offset), limit: UInt64(table.end))
    } catch {
      throw .system("cannot read segment '\(table.path)'", error, file: table.path)
    }
  }

  /// The event `lsn`, which lies where `place` says.
  ///
  /// - Throws: `.damaged`, `.compacted` if the segment has others around it and not this one, `.io`.
  func read(
    _ lsn: UInt64, at place: SegmentTable.Place, identity: SegmentIdentity, path: String
  ) throws(LogError) -> LogEvent {
    switch place {
    case .exact(let range):
      return try readExactly(lsn, range, identity, path)
    case .near(let range):
      return try search(lsn, range, identity, path)
    case .gone, .unknown:
      throw .compacted(lsn)
    }
  }

  private func readExactly(
    _ lsn: UInt64, _ place: Range<UInt32>, _ identity: SegmentIdentity, _ path: String
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
    return LogEvent(header, bytes, at: 0, segmentID: identity.segmentID, offset: place.lowerBound)
  }

  /// Walks from a place that the index names.
  private func search(
    _ lsn: UInt64, _ range: Range<UInt32>, _ identity: SegmentIdentity, _ path: String
  ) throws(LogError) -> LogEvent {
    let file: any File
    do {
      file = try self.file(identity.segmentID, path)
    } catch {
      throw .system("cannot read LSN \(lsn)", error, file: path)
    }
    var scanner = SegmentScanner(
      file: file, identity: identity, from: UInt64(range.lowerBound), limit: UInt64(range.upperBound))
    while scanner.offset < UInt64(range.upperBound) {
      switch try scanner.next() {
      case .frame(let header, let start, let offset):
        guard header.type == FrameType.event.rawValue else { continue }
        if header.lsn == lsn {
          return LogEvent(header, scanner.window, at: start, segmentID: identity.segmentID, offset: offset)
        }
        if header.lsn > lsn { throw .compacted(lsn) }
      case .stop(let fault):
        throw .damaged(
          path, at: scanner.offset..<UInt64(range.upperBound), lsns: lsn...lsn, fault.rawValue)
      }
    }
    throw .compacted(lsn)
  }

  /// The places that the index of a finished segment names; if it has none that verifies (its writer was
  /// interrupted), the segment is walked for them.
  ///
  /// - Complexity: O(1) reads with an index, else O(bytes of the segment).
  func index(of table: SegmentTable.Address) throws(LogError) -> IndexBody {
    let (path, identity, end) = (table.path, table.identity, table.end)
    let file: any File
    do {
      file = try self.file(identity.segmentID, path)
    } catch {
      throw .system("cannot read the index of '\(path)'", error, file: path)
    }
    if let (seal, _) = try SegmentTrailer.seal(file, identity: identity, end: end) {
      var scanner = SegmentScanner(file: file, identity: identity, from: UInt64(seal.indexOffset), limit: UInt64(end))
      if case .frame(let header, let start, _) = try scanner.next(), header.type == FrameType.index.rawValue,
        let index = IndexBody.decode(
          scanner.window, at: start + LogFormat.frameHeaderBytes, count: header.bodyLength)
      {
        return index
      }
    }
    var builder = IndexBuilder(firstLSN: table.firstLSN)
    var scanner = SegmentScanner(
      file: file, identity: identity, from: UInt64(LogFormat.headerPageBytes), limit: UInt64(end))
    while scanner.offset < UInt64(end) {
      guard case .frame(let header, _, let offset) = try scanner.next() else {
        throw .damaged(
          path, at: scanner.offset..<UInt64(end), lsns: nil, "a frame that was acknowledged does not verify")
      }
      if header.type == FrameType.event.rawValue, header.isFirst { builder.add(header.lsn, at: offset) }
    }
    return builder.index
  }
}

/// Collects the places of an index: the first transaction, and then one every 16 KiB or more.
struct IndexBuilder: Sendable {
  let firstLSN: UInt64
  private(set) var index = IndexBody()

  init(firstLSN: UInt64) { self.firstLSN = firstLSN }

  /// A transaction begins here.
  mutating func add(_ lsn: UInt64, at offset: UInt32) {
    if let last = index.entries.last, offset - last.offset < UInt32(LogFormat.indexStepBytes) { return }
    // Deltas have 32 bits; a range that is longer (after many compactions) is searched from its last entry.
    guard let delta = UInt32(exactly: lsn - firstLSN) else { return }
    index.entries.append(IndexBody.Entry(lsnDelta: delta, offset: offset))
  }
}
