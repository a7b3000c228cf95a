// Damage that was met after an open: what a read, a merge or a compaction found in a log that is in use.
//
// An open believes MANIFEST about finished segments, so what is wrong inside them is met later, or never. The caller
// whose read meets it gets the error; writes, and reads of other events, go on. What was met is kept here, so that a
// status can name it, and so that no merge and no compaction touches the segment: its bytes are all that a repair has.

import StrandlineSystem

/// A damaged place of a log that is open.
package struct LogDamage: Hashable, Sendable {
  package var segmentID: UInt64
  package var code: LogError.Code
  package var file: String
  /// The first byte that does not verify.
  package var offset: UInt64
  /// The events that it takes, as far as they are known.
  package var lsns: ClosedRange<UInt64>?
  /// A sentence: what, where, what to do.
  package var message: String
}

/// The damage that was met so far.
final class FoundDamage: Sendable {
  /// A segment may be damaged everywhere; no more places are kept.
  static let placesMax = 64

  private let state = OrderedMutex(State())

  private struct State: Sendable {
    var places: [LogDamage] = []
    /// By segment, the first error.
    var errors: [UInt64: LogError] = [:]
  }

  /// In the order in which it was met.
  var all: [LogDamage] { state.withLock { $0.places } }

  /// Segments that are to be left as they are.
  var segmentIDs: Set<UInt64> { state.withLock { Set($0.errors.keys) } }

  /// What was first met in a segment.
  func error(in segmentID: UInt64) -> LogError? { state.withLock { $0.errors[segmentID] } }

  /// The segment proved to be whole.
  func forget(_ segmentID: UInt64) {
    state.withLock { state in
      state.errors[segmentID] = nil
      state.places.removeAll { $0.segmentID == segmentID }
    }
  }

  /// Keeps `error` if it speaks of the bytes of a segment; each place once.
  ///
  /// - Returns: whether it does.
  @discardableResult
  func add(_ error: LogError, in segmentID: UInt64) -> Bool {
    guard error.isOfBytes else { return false }
    state.withLock { state in
      if state.errors[segmentID] == nil { state.errors[segmentID] = error }
      let place = LogDamage(
        segmentID: segmentID, code: error.code, file: error.file ?? "", offset: error.offset ?? 0, lsns: error.lsns,
        message: error.message)
      let isKnown = state.places.contains { $0.segmentID == segmentID && $0.offset == place.offset }
      if !isKnown, state.places.count < Self.placesMax { state.places.append(place) }
    }
    return true
  }
}

extension LogError {
  /// It says that a file has other bytes than were written to it, or is gone; not that a call failed.
  fileprivate var isOfBytes: Bool {
    switch code {
    case .damaged, .missingSegment, .foreignSegment, .fromTheFuture: true
    default: false
    }
  }
}
