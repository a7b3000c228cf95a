// Where the events of a segment lie: exactly, for what this process has walked or written; roughly, by the index
// frame, for what it has not. A rough place costs a walk of some 16 KiB and no memory worth naming.

import StrandlineSystem

/// The places of one segment's events.
struct SegmentTable: Sendable {
  let path: String
  let identity: SegmentIdentity
  let firstLSN: UInt64
  private var places: Places
  /// Where the last event ends, at the latest.
  private(set) var end: UInt32
  /// The last LSN of its range.
  private(set) var lastLSN: UInt64

  private enum Places: Sendable {
    /// One offset an event, LSNs without gaps.
    case dense([UInt32])
    /// Some of them; or all, where LSNs have gaps.
    case sparse([IndexBody.Entry])
    /// Not looked at yet.
    case unknown
  }

  /// What is known of an event's place.
  enum Place {
    /// Its frame begins at the lower bound and ends at the upper one at the latest.
    case exact(Range<UInt32>)
    /// Its frame lies in this range, which begins with a frame.
    case near(Range<UInt32>)
    /// The segment's index has to be loaded first.
    case unknown
    /// It is in the segment's range, and is not there.
    case gone
  }

  /// A table without its places.
  struct Address: Sendable {
    let path: String
    let identity: SegmentIdentity
    let firstLSN: UInt64
    let lastLSN: UInt64
    let end: UInt32

    /// nil if no event can lie there.
    var lsns: ClosedRange<UInt64>? { firstLSN <= lastLSN ? firstLSN...lastLSN : nil }
  }

  var segmentID: UInt64 { identity.segmentID }
  var address: Address {
    Address(path: path, identity: identity, firstLSN: firstLSN, lastLSN: lastLSN, end: end)
  }

  /// A table to be filled by `append`.
  init(path: String, identity: SegmentIdentity, firstLSN: UInt64) {
    self.path = path
    self.identity = identity
    self.firstLSN = firstLSN
    places = .dense([])
    end = UInt32(LogFormat.openingEnd)
    lastLSN = firstLSN - 1
  }

  init(_ summary: SegmentSummary) {
    self.init(path: summary.path, identity: summary.identity, firstLSN: summary.opening.firstLSN)
    if summary.isRewritten { places = .sparse([]) }
  }

  /// A table of a segment that was not walked.
  init(unread segment: LogSegment, end: SegmentEnd) {
    self.init(path: segment.path, identity: segment.identity, firstLSN: segment.firstLSN)
    places = .unknown
    self.end = end.offset
    lastLSN = end.lastLSN
  }

  /// A table of a segment that was just rewritten.
  init(
    path: String, identity: SegmentIdentity, firstLSN: UInt64, rewritten: [IndexBody.Entry], isDense: Bool,
    end: SegmentEnd
  ) {
    self.init(path: path, identity: identity, firstLSN: firstLSN)
    places = isDense ? .dense(rewritten.map(\.offset)) : .sparse(rewritten)
    self.end = end.offset
    lastLSN = end.lastLSN
  }

  /// Whether it has been walked.
  var isExact: Bool {
    switch places {
    case .dense: true
    case .sparse(let entries): UInt64(entries.count) == lastLSN + 1 - firstLSN
    case .unknown: false
    }
  }

  /// The same without places, to be loaded from the segment's index.
  var unread: SegmentTable {
    var result = self
    result.places = .unknown
    return result
  }

  /// Takes in the events of a group, which end at `end` and have no gaps between their LSNs.
  mutating func append(_ offsets: [UInt32], end: UInt32) {
    guard case .dense(var dense) = places else { preconditionFailure("a writer appends to a dense segment") }
    places = .unknown
    dense.append(contentsOf: offsets)
    places = .dense(dense)
    lastLSN += UInt64(offsets.count)
    self.end = end
  }

  /// Takes in the events of a transaction, which end at `end`.
  mutating func append(_ events: [EventPlace], end: UInt32) {
    switch places {
    case .dense(var dense):
      places = .unknown
      for event in events { dense.append(event.offset) }
      places = .dense(dense)
    case .sparse(var entries):
      places = .unknown
      for event in events {
        entries.append(
          IndexBody.Entry(lsnDelta: UInt32(truncatingIfNeeded: event.lsn - firstLSN), offset: event.offset))
      }
      places = .sparse(entries)
    case .unknown:
      return
    }
    lastLSN = events.last?.lsn ?? lastLSN
    self.end = end
  }

  /// The segment's range reaches to here, whether there is an event or not.
  mutating func finish(_ end: SegmentEnd) {
    lastLSN = end.lastLSN
    self.end = end.offset
    seal()
  }

  /// The places that the segment's own index names.
  mutating func load(_ index: IndexBody) {
    guard case .unknown = places else { return }
    let first = UInt32(LogFormat.openingEnd)
    // An index that names places outside the segment names nothing that can be read.
    places = .sparse(index.entries.filter { first..<max(first, end) ~= $0.offset })
  }

  /// Forgets the events behind `position`: their copies in the successor count.
  mutating func cut(to position: LogPosition) {
    if case .dense(var dense) = places {
      dense.removeLast(Int(lastLSN - position.lsn))
      places = .dense(dense)
    }
    lastLSN = position.lsn
    end = position.offset
  }

  /// No more will come: gives back what the array has in reserve.
  mutating func seal() {
    switch places {
    case .dense(let dense): places = .dense(Array(dense[...]))
    case .sparse(let entries): places = .sparse(Array(entries[...]))
    case .unknown: break
    }
  }

  /// Where the event lies. The caller has checked that `lsn` is in the segment's range.
  func place(of lsn: UInt64) -> Place {
    switch places {
    case .dense(let offsets):
      let index = Int(lsn - firstLSN)
      guard index < offsets.count else { return .gone }
      return .exact(offsets[index]..<(index + 1 < offsets.count ? offsets[index + 1] : end))
    case .unknown:
      return .unknown
    case .sparse(let entries):
      let delta = lsn - firstLSN
      var low = 0
      var high = entries.count
      while low < high {
        let middle = (low + high) / 2
        if UInt64(entries[middle].lsnDelta) <= delta { low = middle + 1 } else { high = middle }
      }
      let begin = low > 0 ? entries[low - 1].offset : UInt32(LogFormat.openingEnd)
      return .near(begin..<max(begin, low < entries.count ? entries[low].offset : end))
    }
  }
}

extension [SegmentTable] {
  /// The table that has `lsn`. The caller has checked that one has.
  func index(of lsn: UInt64) -> Int {
    var low = 0
    var high = count
    while high - low > 1 {
      let middle = (low + high) / 2
      if self[middle].firstLSN <= lsn { low = middle } else { high = middle }
    }
    return low
  }
}
