// The writer's hold on MANIFEST: one place that knows which segments are the log, and changes it.
//
// A commit waits here when it needs a segment. Every other change of the set of files is made in the background. After a change whose outcome is unknown no other is tried: what is named by either list is
// still there, and the next open finds out which one holds.
//
// Locks: `writing` for MANIFEST is held during a write; `state` for a moment, taken after it.

import StrandlineSystem

/// The list of a log that this process writes.
final class DirectoryKeeper: Sendable {
  let environment: SystemEnvironment
  let hold: StoreHold
  /// The folder as it is changed: each change looks first.
  let directory: StoreDirectory
  private let state: OrderedMutex<State>
  /// Held by the thread that writes MANIFEST.
  private let writing = OrderedMutex(.manifest, ())

  private struct State: Sendable {
    var manifest: Manifest
    /// Files that no list names any more, and that are to be removed.
    var dropped: Set<UInt64> = []
    var failure: SystemError?
  }

  /// - Parameter manifest: the list on the medium, with the changes of this open.
  init(environment: SystemEnvironment, hold: StoreHold, manifest: Manifest) {
    self.environment = environment
    self.hold = hold
    directory = hold.changed(by: environment.clock)
    state = OrderedMutex(.segments, State(manifest: manifest))
  }

  var manifest: Manifest { state.withLock { $0.manifest } }

  /// An ID that no segment has had.
  func newSegmentID() -> UInt64 {
    state.withLock { state in
      defer { state.manifest.nextSegmentID += 1 }
      return state.manifest.nextSegmentID
    }
  }

  /// Looks whether the store is still the one at its path.
  ///
  /// - Throws: `.replaced`.
  func check() throws(LogError) { try hold.check(now: environment.clock.monotonicNanoseconds()) }

  /// Compares the store with the files at its path.
  ///
  /// - Returns: what was found instead of the store; nil if nothing was.
  func replacement() -> LogError? {
    do throws(LogError) { try check() } catch { return error }
    return nil
  }

  /// Why a write was refused: a folder that was removed takes no new name, and that says more than the call that failed.
  /// What may be on the medium stays unknown, wherever that is now.
  func named(_ failure: WriteFailure) -> WriteFailure {
    guard case .refused = failure, let replacement = replacement() else { return failure }
    return .replaced(replacement)
  }

  /// Gives back what is reserved in a finished segment after its end. Nothing depends on it but space.
  func truncate(_ segmentID: UInt64, to end: UInt64) throws(SystemError) {
    // Merged meanwhile.
    guard let entry = manifest.entries.first(where: { $0.segmentID == segmentID }) else { return }
    let file = try directory.folder.open(SegmentName.name(segmentID), .readWrite)
    defer { file.close() }
    guard try file.size() > end else { return }
    // Another store's file, or a copy of this one, may be there since the last look: then it stays, and the next look says so.
    guard try hold.isCurrent() else { return }
    let header = try file.read(at: 0, count: LogFormat.headerBytes)
    guard header.count == LogFormat.headerBytes, header.u32(at: LogFormat.Header.salt) == entry.salt else { return }
    try file.truncate(to: end)
  }

  /// Changes the list. When this returns, the new one is on the medium.
  ///
  /// - Parameters:
  ///   - dropping: segments that the change takes off the list; `removeDropped` removes their files.
  ///   - listed: called when the new list holds.
  /// - Throws: `.refused` if the old list still holds, `.replaced` if it is not at the store's path any more.
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
        return next
      }
      // The first file that is made for it looks whether the store is still the one at its path.
      do throws(WriteFailure) {
        try changed(before.manifest).replace(in: directory.folder)
      } catch {
        if case .unknown(let cause) = error { state.withLock { $0.failure = cause } }
        throw named(error)
      }
      state.withLock { state in
        // What `noteForNextList` added meanwhile stays, and is on the next list.
        state.manifest = changed(state.manifest)
        state.dropped.formUnion(dropping)
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
    do {
      for id in segmentIDs.sorted() {
        do {
          try directory.folder.unlink(SegmentName.name(id))
        } catch  where error.isAbsent {
          continue
        }
      }
      try directory.folder.sync()
    } catch {
      return error
    }
    state.withLock { $0.dropped.subtract(segmentIDs) }
    return nil
  }

  /// A file that no list has named, and that its maker could not remove.
  func drop(_ segmentID: UInt64) { state.withLock { _ = $0.dropped.insert(segmentID) } }
}
