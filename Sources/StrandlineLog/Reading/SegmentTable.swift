// Where the events of a segment lie: exactly, for what this process has walked or written; for what it has not, the
// segment's own index says it roughly (SegmentFiles.swift). A rough place costs a walk of some 4 KiB.

import StrandlineSystem

/// The places of one segment's events.
struct SegmentTable: Sendable {
  let path: String
  let identity: SegmentIdentity
  let firstLSN: UInt64
  private var places: Places
  /// Where the segment ends, as far as it is known.
  private(set) var end: UInt32
  /// Where the last event ends, at the latest.
  private var eventsEnd: UInt32
  /// The last LSN of its range.
  private(set) var lastLSN: UInt64

  private enum Places: Sendable {
    /// One offset an event, LSNs without gaps.
    case dense([UInt32])
    /// LSN and offset of every event, where LSNs have gaps.
    case sparse([IndexBody.Entry])
    /// The segment's index says it.
    case unknown
  }

  /// What is known of an event's place.
  enum Place {
    /// Its frame begins at the lower bound and ends at the upper one at the latest.
    case exact(Range<UInt32>)
    /// Its frame lies in this range, which begins with a frame.
    case near(Range<UInt32>)
    /// The segment's index says where.
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
    eventsEnd = end
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
    eventsEnd = end.offset
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
    eventsEnd = end.offset
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
    eventsEnd = end
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
    eventsEnd = end
  }

  /// The segment's range reaches to here, whether there is an event or not.
  mutating func finish(_ end: SegmentEnd) {
    lastLSN = end.lastLSN
    self.end = end.offset
    seal()
  }

  /// Forgets the events behind `position`: their copies in the successor count.
  mutating func cut(to position: LogPosition) {
    if case .dense(var dense) = places {
      dense.removeLast(Int(lastLSN - position.lsn))
      places = .dense(dense)
    }
    lastLSN = position.lsn
    end = position.offset
    eventsEnd = end
  }

  /// Its writer goes on in another segment, and this one ends here.
  mutating func seal(at end: UInt32) {
    self.end = end
    seal()
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
      return .exact(offsets[index]..<(index + 1 < offsets.count ? offsets[index + 1] : eventsEnd))
    case .unknown:
      return .unknown
    case .sparse(let entries):
      return .near(entries.range(of: lsn - firstLSN, end: eventsEnd))
    }
  }

  /// Where exactly the event lies, if that is known without a read.
  func exactPlace(of lsn: UInt64) -> LogPlace? {
    guard case .exact(let range) = place(of: lsn) else { return nil }
    return LogPlace(segmentID: segmentID, offset: range.lowerBound, frameBytes: UInt32(range.count))
  }

  /// The memory of its places.
  private var placeBytes: Int {
    switch places {
    case .dense(let offsets): offsets.count * MemoryLayout<UInt32>.stride
    case .sparse(let entries): entries.count * MemoryLayout<IndexBody.Entry>.stride
    case .unknown: 0
    }
  }

  fileprivate mutating func forgetPlaces(beyond bytes: inout Int) {
    bytes -= placeBytes
    if bytes < 0 { places = .unknown }
  }
}

extension [IndexBody.Entry] {
  /// The bytes in which the event lies that is `delta` above the segment's first LSN: from the last entry that is not
  /// above it to the next one, or to `end`; from the first frame on if all are above it.
  func range(of delta: UInt64, end: UInt32) -> Range<UInt32> {
    let next = partitioningIndex { UInt64($0.lsnDelta) > delta }
    let begin = next > 0 ? self[next - 1].offset : UInt32(LogFormat.openingEnd)
    return begin..<Swift.max(begin, next < count ? self[next].offset : end)
  }
}

extension [SegmentTable] {
  /// Forgets the exact places of the oldest segments, as far as those of all finished ones have more than `bytes`. Each
  /// of them must have its end.
  mutating func forgetPlaces(beyond bytes: Int) {
    var left = bytes
    for index in indices.dropLast().reversed() { self[index].forgetPlaces(beyond: &left) }
  }

  /// The table that has `lsn`. The caller has checked that one has.
  func index(of lsn: UInt64) -> Int {
    Swift.max(0, partitioningIndex { $0.firstLSN > lsn } - 1)
  }
}
