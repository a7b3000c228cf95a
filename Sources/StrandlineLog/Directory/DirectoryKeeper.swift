// The writer's hold on MANIFEST and CONTROL: one place that knows which segments are the log, and changes it.
//
// A commit never waits here, unless it needs a segment and none is prepared. Every other change of the set of files is
// made in the background. After a change whose outcome is unknown no other is tried: what is named by either list is
// still there, and the next open finds out which one holds.
//
// Locks: `writing` for MANIFEST and `bounding` for CONTROL are each held during a write; `state` for a moment, taken
// after either of them.

import StrandlineSystem
import Synchronization

/// The list of a log that this process writes.
final class DirectoryKeeper: Sendable {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  private let state: Mutex<State>
  /// Held by the thread that writes MANIFEST.
  private let writing = Mutex(())
  /// Held by the thread that writes CONTROL.
  private let bounding: Mutex<ControlFile>

  private struct State: Sendable {
    var manifest: Manifest
    /// To be taken off the list with the next change: an earlier writer prepared them and did not use them.
    var unused: [UInt64]
    /// Files that no list names any more, and that are to be removed.
    var dropped: Set<UInt64> = []
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
    state = Mutex(State(manifest: manifest, unused: unused))
    bounding = Mutex(control)
  }

  var manifest: Manifest { state.withLock { $0.manifest } }

  /// An ID that no segment has had.
  func newSegmentID() -> UInt64 {
    state.withLock { state in
      defer { state.manifest.nextSegmentID += 1 }
      return state.manifest.nextSegmentID
    }
  }

  // MARK: MANIFEST

  /// Changes the list. When this returns, the new one is on the medium.
  ///
  /// - Parameters:
  ///   - dropping: segments that the change takes off the list; `removeDropped` removes their files.
  ///   - listed: called when the new list holds.
  /// - Throws: `.refused` if the old list still holds.
  func commit(
    dropping: [UInt64] = [], _ change: (inout Manifest) -> Void, listed: () -> Void = {}
  ) throws(WriteFailure) {
    try writing.withLock { _ throws(WriteFailure) in
      let before = state.withLock { $0 }
      // Nothing of this change is anywhere, and nothing will be: a caller that made a file for it takes it back.
      if let failure = before.failure { throw .refused(failure) }
      func changed(_ manifest: Manifest) -> Manifest {
        var next = manifest
        change(&next)
        next.entries.removeAll { before.unused.contains($0.segmentID) }
        return next
      }
      do throws(WriteFailure) {
        try changed(before.manifest).write(environment.fileSystem, directory)
      } catch {
        if case .unknown(let cause) = error { state.withLock { $0.failure = cause } }
        throw error
      }
      state.withLock { state in
        // What `noteForNextList` added meanwhile stays, and is on the next list.
        state.manifest = changed(state.manifest)
        state.dropped.formUnion(before.unused + dropping)
        state.unused = []
      }
      listed()
    }
  }

  /// Says in memory what the next list will say: it need not be on the medium at once.
  func noteForNextList(_ change: (inout Manifest) -> Void) { state.withLock { change(&$0.manifest) } }

  /// The files of segments that no list names any more are removed. Those that cannot be removed now are tried again
  /// with the next call, or by the next writer's open.
  ///
  /// - Returns: what kept a file from being removed.
  @discardableResult
  func removeDropped() -> SystemError? {
    let segmentIDs = state.withLock { $0.dropped }
    guard !segmentIDs.isEmpty else { return nil }
    let fileSystem = environment.fileSystem
    do {
      for id in segmentIDs.sorted() {
        do {
          try fileSystem.unlink(directory.segment(id))
        } catch  where error.isAbsent {
          continue
        }
      }
      try fileSystem.syncDirectory(directory.path)
    } catch {
      return error
    }
    state.withLock { $0.dropped.subtract(segmentIDs) }
    return nil
  }

  /// A file that no list has named, and that its maker could not remove.
  func drop(_ segmentID: UInt64) { state.withLock { _ = $0.dropped.insert(segmentID) } }

  // MARK: CONTROL

  /// Writes a bound, unless CONTROL promises more. When this returns, what CONTROL promises is on the medium.
  func write(_ bound: LogBound) throws(SystemError) {
    try bounding.withLock { control throws(SystemError) in
      let current = control.current.bound
      guard bound.isAhead(of: current) || control.isRaised else { return }
      try control.write(bound.isAhead(of: current) ? bound : current, environment.fileSystem, directory)
    }
  }

  /// Writes a bound without a sync, if it is ahead of the last one.
  ///
  /// - Returns: whether CONTROL covers it now; false while another thread writes CONTROL.
  func raise(_ bound: LogBound) throws(SystemError) -> Bool {
    let isCovered: Void? = try bounding.withLockIfAvailable { control throws(SystemError) in
      guard bound.isAhead(of: control.current.bound) else { return }
      try control.raise(bound, environment.fileSystem, directory)
    }
    return isCovered != nil
  }
}

extension LogBound {
  /// Whether it promises more.
  func isAhead(of other: LogBound) -> Bool {
    lsn > other.lsn || (lsn == other.lsn && segmentID == other.segmentID && end > other.end)
  }
}
