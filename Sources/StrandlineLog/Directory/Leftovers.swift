// What interrupted writers left: what of it is the log's own and is removed, and what is kept out of the way.
//
// A writer that is interrupted in a compaction, a merge or a recovery leaves segments that no list names: outputs that
// were never listed, and inputs whose outputs are listed. Their events are all in the log (or were left out of it on purpose), so such a file is removed: else the store would grow with each attempt,
// and what a compaction removed would stay readable. A file with events that the log does not have is unknown, and
// nothing unknown is ever removed: it is moved to `quarantine/` (decisions L7, L23).

package import StrandlineSystem

/// The unlisted segments of a log that was opened.
struct Leftovers: Sendable {
  /// The log's own: every event in them lies in the range of LSNs that the log covers.
  private(set) var redundant: [UInt64] = []
  /// With events that the log does not have.
  private(set) var unknown: [UInt64] = []

  var isEmpty: Bool { redundant.isEmpty && unknown.isEmpty }

  /// Sorts them.
  ///
  /// - Parameters:
  ///   - firstLSN: the first LSN that the log covers.
  ///   - lastLSN: the last.
  /// - Throws: `.io`, `.fromTheFuture`.
  /// - Complexity: O(bytes of the files that are not rewritten segments).
  init(
    _ unplaced: [SegmentFacts], covering firstLSN: UInt64, to lastLSN: UInt64, in directory: StoreDirectory
  ) throws(LogError) {
    for facts in unplaced {
      let range = try Self.range(of: facts, directory)
      let isCovered = range.map { firstLSN <= $0.lowerBound && $0.upperBound <= lastLSN + 1 } ?? false
      if isCovered { redundant.append(facts.segmentID) } else { unknown.append(facts.segmentID) }
    }
  }

  /// The LSNs that a file stands for, half open; nil for one whose first page does not verify.
  private static func range(
    of facts: SegmentFacts, _ directory: StoreDirectory
  ) throws(LogError) -> Range<UInt64>? {
    guard let summary = facts.summary else { return nil }
    let first = summary.opening.firstLSN
    if let end = summary.rewrittenEnd { return first..<end.lastLSN + 1 }
    let file = try SegmentFile.open(directory.folder, facts.segmentID)
    defer { file.close() }
    // Every event frame that verifies, wherever it lies.
    var last = first - 1
    var offset = UInt64(LogFormat.openingEnd)
    while let frame = try SegmentScanner.firstFrame(of: file, identity: summary.identity, in: offset..<facts.size) {
      if frame.header.type == FrameType.event.rawValue, frame.header.lsn < LogFormat.numberMax {
        last = max(last, frame.header.lsn)
      }
      offset = min(facts.size, frame.offset + UInt64(LogFormat.frameAlignment))
    }
    return first..<last + 1
  }
}

extension StoreDirectory {
  /// Removes the redundant files and moves the unknown ones to `quarantine/`.
  func clear(_ leftovers: Leftovers) throws(SystemError) {
    guard !leftovers.isEmpty else { return }
    for id in leftovers.redundant { try folder.unlink(SegmentName.name(id)) }
    try quarantine(leftovers.unknown)
    try folder.sync()
  }

  /// What is kept in `quarantine/`: names and bytes, in order.
  func quarantined() throws(LogError) -> [QuarantinedFile] {
    do {
      guard try folder.kind(of: LogFormat.quarantineName) == .directory else { return [] }
      var found: [QuarantinedFile] = []
      for name in try folder.list(LogFormat.quarantineName).sorted() {
        let place = SegmentName.quarantined(name)
        guard try folder.kind(of: place) == .file else { continue }
        let file = try folder.open(place, .read)
        defer { file.close() }
        found.append(QuarantinedFile(name: name, bytes: try file.size()))
      }
      return found
    } catch {
      throw .system("cannot look at '\(quarantine)'", error, file: quarantine)
    }
  }
}

extension StorePlace {
  /// Removes `<store>.init-<random>` beside this store: stores that interrupted creations and repairs did not finish.
  /// One whose lock is held is being made now; one without a lock file was just begun, or is not the log's.
  ///
  /// - Returns: what kept one from being removed.
  func removeUnfinishedStores() -> LogError? {
    do {
      let prefix = name + LogFormat.initInfix
      guard try fileSystem.kind(of: parent.path) == .directory else { return nil }
      for name in try fileSystem.folder(parent.path).list() where name.hasPrefix(prefix) {
        guard SegmentName.segmentID(of: name.dropFirst(prefix.count) + LogFormat.segmentSuffix) != nil else { continue }
        let place = sibling(name)
        guard try fileSystem.kind(of: place.path) == .directory else { continue }
        let folder = try place.open().folder
        guard try folder.kind(of: LogFormat.lockName) == .file,
          let lock = try folder.lock(LogFormat.lockName, exclusive: true)
        else { continue }
        defer { lock.unlock() }
        try folder.removeContents(last: LogFormat.lockName)
        try fileSystem.removeDirectory(place.path)
      }
      return nil
    } catch {
      return .system("cannot remove what an interrupted writer left beside '\(path)'", error)
    }
  }
}

/// A file in `quarantine/`.
package struct QuarantinedFile: Hashable, Sendable {
  package var name: String
  package var bytes: UInt64

  package init(name: String, bytes: UInt64) {
    self.name = name
    self.bytes = bytes
  }

  /// The files in the `quarantine/` of the store at `path`, sorted by name.
  ///
  /// - Throws: `.io` if the directory or a file in it cannot be read.
  package static func all(
    at path: String, _ fileSystem: any FileSystem
  ) throws(LogError) -> [QuarantinedFile] {
    let place = try StorePlace(path, fileSystem)
    do {
      guard try fileSystem.kind(of: place.path) == .directory else { return [] }
      return try place.open().quarantined()
    } catch let error as LogError {
      throw error
    } catch let error as SystemError {
      throw .system("cannot look at '\(place.path)'", error, file: place.path)
    } catch {
      preconditionFailure("a disk throws its own errors alone")
    }
  }
}
