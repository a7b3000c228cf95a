// The writer's hold on MANIFEST and CONTROL: one place that knows which segments are the log, and changes it.
//
// A commit never waits here, unless it needs a segment that was not made ahead. Everybody else who changes the set of
// files does so from the background. After a change whose outcome is unknown no other is tried: what is named by
// either list is still there, and the next open finds out which one holds.

import StrandlineSystem
import Synchronization

/// The list of a log that this process writes.
final class DirectoryKeeper: Sendable {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  /// Held for a moment. Taken after `writing`.
  private let state: Mutex<State>
  /// Held by whoever writes one of the two files.
  private let writing = Mutex(())

  private struct State: Sendable {
    var manifest: Manifest
    var control: ControlFile
    /// To be taken off the list with the next change: made ahead by a writer that is gone, and not used.
    var unused: [UInt64]
    /// Obsolete files that were removed, and their removal synced: the next list need not name them.
    var removed: Set<UInt64> = []
    var failure: SystemError?
  }

  /// - Parameters:
  ///   - manifest: what is on the medium, with the changes of this open.
  ///   - unused: segments on the list that are not part of the log.
  init(
    environment: SystemEnvironment, directory: StoreDirectory, manifest: Manifest, control: ControlFile,
    unused: [UInt64] = []
  ) {
    self.environment = environment
    self.directory = directory
    state = Mutex(State(manifest: manifest, control: control, unused: unused))
  }

  var manifest: Manifest { state.withLock { $0.manifest } }

  /// An ID that no segment has had.
  func newSegmentID() -> UInt64 {
    state.withLock { state in
      defer { state.manifest.nextSegmentID += 1 }
      return state.manifest.nextSegmentID
    }
  }

  /// Changes the list. When this returns, the new one is on the medium, and files that it makes obsolete are gone
  /// from the directory (or will be, by a later writer).
  ///
  /// - Parameters:
  ///   - removes: false: obsolete files are left to `removeObsolete`, because somebody waits for the change.
  ///   - listed: called when the new list holds, before any file is removed.
  /// - Throws: `.refused` if the old list still holds.
  func commit(
    removes: Bool = true, _ change: (inout Manifest) -> Void, listed: () -> Void = {}
  ) throws(WriteFailure) {
    try writing.withLock { _ throws(WriteFailure) in
      let before = state.withLock { $0 }
      // Nothing of this change is anywhere, and nothing will be: whoever made a file for it takes it back.
      if let failure = before.failure { throw .refused(failure) }
      func changed(_ manifest: Manifest) -> Manifest {
        var next = manifest
        change(&next)
        next.entries.removeAll { before.unused.contains($0.segmentID) }
        next.obsolete = (next.obsolete + before.unused).filter { !before.removed.contains($0) }
        next.number += 1
        return next
      }
      let next = changed(before.manifest)
      do throws(WriteFailure) {
        try next.write(environment.fileSystem, directory)
      } catch {
        if case .unknown(let cause) = error { state.withLock { $0.failure = cause } }
        throw error
      }
      state.withLock { state in
        // What was noted meanwhile stays, and is on the next list.
        state.manifest = changed(state.manifest)
        state.unused = []
        state.removed = []
      }
      listed()
    }
    if removes { removeObsolete() }
  }

  /// Removes files that the list calls obsolete. What cannot be removed now stays on it.
  func removeObsolete() {
    let segmentIDs = state.withLock { state in state.manifest.obsolete.filter { !state.removed.contains($0) } }
    guard !segmentIDs.isEmpty else { return }
    let fileSystem = environment.fileSystem
    do {
      for id in segmentIDs {
        do {
          try fileSystem.unlink(directory.segment(id))
        } catch  where error.isAbsent {
          continue
        }
      }
      try fileSystem.syncDirectory(directory.path)
    } catch {
      return
    }
    state.withLock { $0.removed.formUnion(segmentIDs) }
  }

  /// Says in memory what the next list will say: it need not be on the medium at once.
  func note(_ change: (inout Manifest) -> Void) { state.withLock { change(&$0.manifest) } }

  /// Raises the bounds in CONTROL. When this returns they are on the medium.
  func bound(_ change: (inout Control) -> Void) throws(SystemError) {
    try writing.withLock { _ throws(SystemError) in
      var control = state.withLock { $0.control }
      defer { state.withLock { $0.control = control } }
      try control.write(environment.fileSystem, directory, change)
    }
  }
}

extension Manifest {
  /// A segment was made ahead, and is used now.
  mutating func use(_ segmentID: UInt64, firstLSN: UInt64) {
    guard let index = entries.firstIndex(where: { $0.segmentID == segmentID }) else { return }
    var entry = entries.remove(at: index)
    entry.state = .used
    entry.firstLSN = firstLSN
    add(entry)
  }

  /// A segment will not grow any more.
  mutating func finish(_ segmentID: UInt64, _ end: SegmentEnd, events: UInt64?) {
    guard let index = entries.firstIndex(where: { $0.segmentID == segmentID }) else { return }
    entries[index].lastLSN = end.lastLSN
    entries[index].end = end.offset
    entries[index].chain = end.chain
    if let events { entries[index].events = events }
  }

  /// Adds an entry in its place: those that are in use before those that are not.
  mutating func add(_ entry: ManifestEntry) {
    switch entry.state {
    case .prepared: entries.append(entry)
    case .used:
      entries.insert(entry, at: entries.firstIndex { $0.state == .prepared } ?? entries.count)
    }
  }
}
