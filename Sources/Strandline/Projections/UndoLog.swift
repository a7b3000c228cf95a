// How to undo changes of the projections, one by one, the newest first. Kept from the append of an event until it is
// durable, and as long as a view shows what was before it: a reader of an older moment reads what the first undo after it
// would bring back.
//
// A transaction may have hundreds of thousands of changes, most of them of records that were not there before, so an undo
// of those is small, and which undos are of which record is noted when a reader first asks.

import StrandlineSystem

/// The undos, in the order of their events.
struct UndoLog: Sendable {
  enum Change: Sendable {
    /// A record was saved of which nothing was known, as this type: its entry, and a first mutation in the outbox.
    case began(RecordID, type: String)
    /// The entry and the deletion that there were, and what is asked of the entry that there is since.
    indirect case record(RecordID, RecordEntry?, DeletionEntry?, after: AfterChange?)
    case attempted(LSN)
    case unattempted([LSN])
    indirect case sync(SyncState.Change)
    /// The event names contents.
    case contents([ContentHash])

    /// What there was of a record, and what is since; nil if this is of no record's entry.
    var ofRecord: (id: RecordID, before: RecordEntry?, deletion: DeletionEntry?, after: AfterChange?)? {
      switch self {
      case .began(let id, let type): (id, nil, nil, AfterChange(type: type))
      case .record(let id, let entry, let deletion, let after): (id, entry, deletion, after)
      default: nil
      }
    }

    /// The record whose entry this brings back.
    fileprivate var recordID: RecordID? {
      switch self {
      case .began(let id, _), .record(let id, _, _, _): id
      default: nil
      }
    }
  }
  struct Undo: Sendable {
    var lsn: LSN
    var change: Change

    /// What the record has owed since.
    var owed: Owed? {
      switch change {
      case .began: Owed(Pending(isDeletion: false, newest: lsn))
      case .record(_, _, _, let after): after?.owed
      default: nil
      }
    }
  }

  private(set) var undos: [Undo] = []
  /// The places of the undos of each record, ascending, counted from the first undo ever: place i is `undos[i - trimmed]`.
  /// Only those below `indexed`.
  private var placesByID: [RecordID: [Int]] = [:]
  private var indexed = 0
  /// How many undos were trimmed so far.
  private(set) var trimmed = 0

  /// The memory for so many undos is kept for the next ones.
  private static let keptMax = 16_384

  var count: Int { undos.count }

  mutating func append(_ change: Change, at lsn: LSN) { undos.append(Undo(lsn: lsn, change: change)) }

  /// Takes the newest undo of an event after `lsn`.
  mutating func removeLast(after lsn: LSN) -> Undo? {
    guard let last = undos.last, last.lsn > lsn else { return nil }
    undos.removeLast()
    if indexed > trimmed + undos.count {
      indexed = trimmed + undos.count
      if let id = last.change.recordID {
        placesByID[id]?.removeLast()
        if placesByID[id]?.isEmpty == true { placesByID[id] = nil }
      }
    }
    return last
  }

  /// What there was of a record before the first change after `lsn`; nil if it has not changed since.
  ///
  /// - Complexity: O(log n) for n changes of the record; and O(changes since the last call), once for each change.
  mutating func before(_ id: RecordID, after lsn: LSN) -> (RecordEntry?, DeletionEntry?)? {
    guard let last = undos.last, last.lsn > lsn else { return nil }
    index()
    guard let places = placesByID[id] else { return nil }
    // Ascending, as their LSNs are.
    let place = places.partitioningIndex { $0 >= trimmed && undos[$0 - trimmed].lsn > lsn }
    guard place < places.count, let found = undos[places[place] - trimmed].change.ofRecord else { return nil }
    return (found.before, found.deletion)
  }

  private mutating func index() {
    for place in max(indexed, trimmed)..<trimmed + undos.count {
      if let id = undos[place - trimmed].change.recordID { placesByID[id, default: []].append(place) }
    }
    indexed = trimmed + undos.count
  }

  /// The undos of events after `lsn`, the newest first.
  func reversed(after lsn: LSN) -> some Sequence<Undo> { undos.reversed().prefix { $0.lsn > lsn } }

  /// The place behind the undos of events up to `limit`, counted from the first undo ever.
  func end(of limit: LSN) -> Int {
    guard let last = undos.last, last.lsn > limit else { return trimmed + undos.count }
    return trimmed + undos.partitioningIndex { $0.lsn > limit }
  }

  /// Forgets how to undo the events up to `limit`.
  mutating func trim(upTo limit: LSN) {
    let count = end(of: limit) - trimmed
    guard count > 0 else { return }
    defer { trimmed += count }
    if count == undos.count {
      // Nothing is in flight: the usual case between two writes.
      undos.removeAll(keepingCapacity: undos.count <= Self.keptMax)
      if !placesByID.isEmpty { placesByID.removeAll(keepingCapacity: placesByID.count <= Self.keptMax) }
      return
    }
    for undo in undos[..<min(count, max(0, indexed - trimmed))] {
      guard let id = undo.change.recordID, let places = placesByID[id] else { continue }
      let left = places.filter { $0 >= trimmed + count }
      placesByID[id] = left.isEmpty ? nil : left
    }
    undos.removeFirst(count)
  }
}

/// From where on it is kept how to undo, beside what is in flight and what views show.
struct UndoBounds: Sendable {
  /// What a flush is about to set apart: how to undo what came after is kept for it.
  var flush: LSN?
  /// The moment before that of a compaction's judgement: how to undo what came after is kept for it.
  var compaction: LSN?
}

/// What a change made of a record's entry, as far as counts, observers and the outbox ask.
struct AfterChange: Sendable {
  var type: String
  var isLiving = true
  var owed: Owed?

  /// Of a record that began.
  init(type: String) { self.type = type }

  init(_ entry: RecordEntry) {
    type = entry.type
    isLiving = entry.view != nil
    owed = entry.pending.map { Owed($0) }
  }
}
