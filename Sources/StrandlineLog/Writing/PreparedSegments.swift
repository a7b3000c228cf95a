// The next segment, made before it is needed, so that going on in it costs a commit nothing.
//
// Making a file durable takes two syncs, listing it two more, and writing its space once as many bytes as it will
// hold. All of it is done on the upkeep thread while commits go into the present segment. What a commit finds is a
// file with a header, zeros, and its place in the list; the opening frame goes in with the first group (decision L4).

import StrandlineSystem
import Synchronization

/// A segment that has a header and no frames.
struct PreparedSegment: Sendable {
  let header: SegmentHeader
  let file: any File
  let path: String
  /// The group that brings it to this many bytes seals it.
  let softBytes: Int
  let allocated: UInt64
}

/// At most one segment ahead.
final class PreparedSegments: Sendable {
  private let keeper: DirectoryKeeper
  private let state = Mutex(State.none)

  private enum State: Sendable {
    case none
    case making
    case ready(PreparedSegment)
    case ended
  }

  init(keeper: DirectoryKeeper) { self.keeper = keeper }

  /// Whether one is there to be used.
  var isReady: Bool {
    state.withLock { if case .ready = $0 { true } else { false } }
  }

  /// Whether none is there and none is being made.
  var isDue: Bool {
    state.withLock { if case .none = $0 { true } else { false } }
  }

  /// Hands over the segment that is ready.
  func removeReady() -> PreparedSegment? {
    state.withLock { state in
      guard case .ready(let prepared) = state else { return nil }
      state = .none
      return prepared
    }
  }

  /// Makes one of `softBytes`, if none is there. When this returns it is on the medium and listed.
  func make(softBytes: Int) throws(WriteFailure) {
    let begins = state.withLock { state in
      guard case .none = state else { return false }
      state = .making
      return true
    }
    guard begins else { return }
    do throws(WriteFailure) {
      let prepared = try build(softBytes)
      let isWanted = state.withLock { state in
        guard case .making = state else { return false }
        state = .ready(prepared)
        return true
      }
      if !isWanted { try remove(prepared) }
    } catch {
      state.withLock { if case .making = $0 { $0 = .none } }
      throw error
    }
  }

  private func build(_ softBytes: Int) throws(WriteFailure) -> PreparedSegment {
    do throws(LogError) { try keeper.check() } catch { throw .replaced(error) }
    let manifest = keeper.manifest
    let directory = keeper.directory
    let header = SegmentHeader.new(
      keeper.environment, storeUUID: manifest.storeUUID, segmentID: keeper.newSegmentID(), role: manifest.role,
      kind: .prepared)
    let creation = SegmentCreation(folder: directory.folder)
    // The group that seals a segment goes beyond its soft size; most go no further than this.
    let allocated = UInt64(softBytes + softBytes / 64)
    let file = try creation.make(header.segmentID, header.encodedPage(), allocated: allocated).file
    do throws(WriteFailure) {
      try keeper.commit { manifest in
        manifest.add(ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: 0))
      }
    } catch {
      file.close()
      throw creation.takeBack(header.segmentID, after: error)
    }
    return PreparedSegment(
      header: header, file: file, path: directory.segment(header.segmentID), softBytes: softBytes,
      allocated: allocated)
  }

  /// No more will be needed: removes the one that is ready. One that is being made is removed by its maker.
  func end() throws(WriteFailure) {
    let ready = state.withLock { state -> PreparedSegment? in
      defer { state = .ended }
      if case .ready(let prepared) = state { return prepared }
      return nil
    }
    if let ready { try remove(ready) }
  }

  /// Closes the file that is ready and leaves it to the next writer.
  func release() {
    state.withLock { state in
      if case .ready(let prepared) = state { prepared.file.close() }
      state = .ended
    }
  }

  private func remove(_ prepared: PreparedSegment) throws(WriteFailure) {
    prepared.file.close()
    let segmentID = prepared.header.segmentID
    try keeper.commit(dropping: [segmentID]) { manifest in
      manifest.entries.removeAll { $0.segmentID == segmentID }
    }
    keeper.removeDropped()
  }
}
