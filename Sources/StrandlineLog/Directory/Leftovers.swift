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
  /// Removes `<store>.init-<random>` beside this store: stores that interrupted creations, backups and repairs did not
  /// finish. One whose lock is held is being made now; one with other files than a store's is not the log's.
  ///
  /// - Parameter ofAnyName: also those that were to become another store in the same folder.
  /// - Returns: what kept one from being removed.
  func removeUnfinishedStores(ofAnyName: Bool = false) -> LogError? {
    do throws(SystemError) {
      guard try fileSystem.kind(of: parent.path) == .directory else { return nil }
      for found in try fileSystem.folder(parent.path).list() where Self.isUnfinished(found) {
        guard ofAnyName || found.utf8.starts(with: (name + LogFormat.initInfix).utf8) else { continue }
        let place = sibling(found)
        guard try fileSystem.kind(of: place.path) == .directory else { continue }
        do throws(SystemError) {
          try place.removeUnfinished()
        } catch  where error.isAbsent || error.isTaken {
          // Another process removes it, or makes it now.
        }
      }
      return nil
    } catch {
      return .system("cannot remove what an interrupted writer left beside '\(path)'", error)
    }
  }

  /// Whether the log gives such names to stores that are not finished.
  private static func isUnfinished(_ name: String) -> Bool {
    let digits = name.suffix(16)
    return SegmentName.segmentID(of: digits + LogFormat.segmentSuffix) != nil
      && name.dropLast(16).hasSuffix(LogFormat.initInfix)
  }

  /// Removes this folder, if it holds a store that nobody makes any more.
  private func removeUnfinished() throws(SystemError) {
    let folder = try fileSystem.folder(path)
    let names = try folder.list()
    // One that was just begun. Needs no lock, for which a full disk may have no room: it fails if something is in it by now.
    if names.isEmpty { return try fileSystem.removeDirectory(path) }
    guard names.allSatisfy(StoreDirectory.isOwn) else { return }
    // A power cut may have taken the lock file alone: then this makes it.
    guard let lock = try folder.lock(LogFormat.lockName, exclusive: true) else { return }
    defer { lock.unlock() }
    // Who made it may have given it its name meanwhile, and closed it: then this is the lock of a store.
    guard try fileSystem.kind(of: path) == .directory else { return }
    try folder.removeContents(last: LogFormat.lockName)
    try fileSystem.removeDirectory(path)
  }

  /// Makes a folder beside this place for a store in the making, and locks it. Who clears up meanwhile may remove one that
  /// has no lock yet: then another one is made.
  func makeUnfinishedStore(_ random: any RandomSource) throws(SystemError) -> UnfinishedStore {
    for _ in 0..<Self.attemptsMax {
      if let made = try makeFolder(beside(random)) { return made }
    }
    throw .stale("mkdir", path)
  }

  private static let attemptsMax = 3

  /// - Returns: nil if it was removed at once.
  private func makeFolder(_ place: StorePlace) throws(SystemError) -> UnfinishedStore? {
    do throws(SystemError) {
      try fileSystem.makeDirectory(place.path)
      do throws(SystemError) {
        // It stays the same folder when it gets its name.
        let folder = try fileSystem.folder(place.path)
        guard let lock = try folder.lock(LogFormat.lockName, exclusive: true) else { return nil }
        // The lock may be on a file that has no name any more.
        if try folder.kind(of: LogFormat.lockName) == .file {
          return UnfinishedStore(place: place, folder: folder, lock: lock)
        }
        lock.unlock()
        return nil
      } catch  where error.isAbsent {
        return nil
      } catch {
        // What cannot be removed, the next writer removes; the first failure counts.
        _ = try? place.removeTree()
        throw error
      }
    } catch {
      // Its own name means nothing to the caller.
      var error = error
      if error.subject == place.path { error.subject = path }
      throw error
    }
  }
}

/// The folder of a store in the making, beside the place that it will have.
struct UnfinishedStore {
  let place: StorePlace
  let folder: any Folder
  let lock: any FileLock
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
