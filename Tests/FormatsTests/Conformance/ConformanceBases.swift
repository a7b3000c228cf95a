// The stores that the cases of the conformance set begin with: each is right, and each has parts that the others lack.

/// A store to begin with.
enum ConformanceBase: String, CaseIterable, Sendable {
  case closed, killed, finished, rewritten, copied, journal

  var about: String {
    switch self {
    case .closed: "one segment, two transactions, closed: index, seal, CONTROL at the seal"
    case .killed:
      "one segment, three groups, its writer killed: the last one is promised by nothing; CONTROL was raised once"
    case .finished: "two finished segments with their ends in MANIFEST, and a tail of two groups"
    case .rewritten: "a compacted segment for LSNs 1 to 6, without 2 and 4, and a tail"
    case .copied: "a killed segment, and the next one with a copy of what nothing promised"
    case .journal: "a log of the role srvr, closed"
    }
  }

  /// What the page demands of the base itself.
  var demand: Demand {
    switch self {
    case .closed: .sound(3, events: 3)
    case .killed: .sound(4, events: 4)
    case .finished: .sound(6, events: 6)
    case .rewritten: .sound(8, events: 6)
    case .copied: .sound(3, events: 3)
    case .journal: .sound(1, events: 1)
    }
  }

  func make(_ layouts: LogLayouts) throws -> StoreImage {
    switch self {
    case .closed: try Self.closed(layouts)
    case .killed: try Self.killed(layouts)
    case .finished: try Self.finished(layouts)
    case .rewritten: try Self.rewritten(layouts)
    case .copied: try Self.copied(layouts)
    case .journal: try Self.journal(layouts)
    }
  }

  private static func closed(_ layouts: LogLayouts) throws -> StoreImage {
    var segment = try SegmentBuilder(layouts, 1, kind: 0, after: .init())
    try segment.transaction(2)
    try segment.transaction(1)
    try segment.close()
    var store = try StoreBuilder(layouts, nextSegmentID: 2)
    try store.add(segment)
    try store.bound(0, segment: 1, lsn: 0, end: 4160)
    try store.bound(1, segment: 1, lsn: 3, end: segment.image.end)
    return store.image
  }

  private static func killed(_ layouts: LogLayouts) throws -> StoreImage {
    var segment = try SegmentBuilder(layouts, 1, kind: 0, after: .init())
    try segment.transaction(2)
    let raised = segment.image.end
    try segment.transaction(1)
    try segment.transaction(1)
    var store = try StoreBuilder(layouts, nextSegmentID: 2)
    try store.add(segment)
    try store.bound(0, segment: 1, lsn: 0, end: 4160)
    try store.bound(1, segment: 1, lsn: 2, end: raised)
    return store.image
  }

  private static func finished(_ layouts: LogLayouts) throws -> StoreImage {
    var first = try SegmentBuilder(layouts, 1, kind: 0, after: .init())
    try first.transaction(2)
    try first.close()
    var second = try SegmentBuilder(layouts, 2, kind: 0, after: first.before)
    try second.transaction(1)
    try second.transaction(1)
    try second.close()
    var third = try SegmentBuilder(layouts, 3, kind: 0, after: second.before)
    try third.transaction(1)
    try third.transaction(1)
    var store = try StoreBuilder(layouts, nextSegmentID: 4)
    try store.add(first, end: true)
    try store.add(second, end: true)
    try store.add(third)
    try store.bound(2, segment: 1, lsn: 2, end: first.image.end)
    try store.bound(3, segment: 2, lsn: 4, end: second.image.end)
    return store.image
  }

  private static func rewritten(_ layouts: LogLayouts) throws -> StoreImage {
    // The segments 1 to 3 before the compaction: their chain is what the output must hand on.
    var input = try SegmentBuilder(layouts, 3, kind: 0, after: .init())
    try input.transaction(6)
    try input.close()
    var output = try SegmentBuilder(layouts, 5, kind: 1, after: .init())
    try output.transaction(2, isSynced: false, lsns: [1, 3])
    try output.transaction(2, isSynced: false, lsns: [5, 6])
    try output.finishRewritten(6, chain: input.chain)
    var tail = try SegmentBuilder(layouts, 4, kind: 0, after: input.before)
    try tail.transaction(1)
    try tail.transaction(1)
    var store = try StoreBuilder(layouts, nextSegmentID: 6)
    try store.add(output, end: true)
    try store.add(tail)
    try store.bound(4, segment: 4, lsn: 6, end: 4160)
    try store.bound(5, segment: 4, lsn: 7, end: tail.image.offset(2))
    return store.image
  }

  private static func copied(_ layouts: LogLayouts) throws -> StoreImage {
    var first = try SegmentBuilder(layouts, 1, kind: 0, after: .init())
    try first.transaction(1)
    try first.transaction(1)
    let promised = first.before
    try first.transaction(1)
    var second = try SegmentBuilder(layouts, 2, kind: 0, after: promised)
    try second.transaction(1, isSynced: false)
    try second.promiseCopies()
    var store = try StoreBuilder(layouts, nextSegmentID: 3)
    try store.add(first)
    try store.add(second)
    try store.image.entries[0].set("lastLSN", promised.lsn)
    try store.image.entries[0].set("end", UInt64(promised.end))
    try store.image.entries[0].set("chain", UInt64(promised.chain))
    try store.bound(0, segment: 1, lsn: 0, end: 4160)
    return store.image
  }

  private static func journal(_ layouts: LogLayouts) throws -> StoreImage {
    var segment = try SegmentBuilder(layouts, 1, kind: 0, after: .init(), role: "srvr")
    try segment.transaction(1)
    try segment.close()
    var store = try StoreBuilder(layouts, role: "srvr", nextSegmentID: 2)
    try store.add(segment)
    try store.bound(0, segment: 1, lsn: 0, end: 4160)
    try store.bound(1, segment: 1, lsn: 1, end: segment.image.end)
    return store.image
  }
}
