// How to undo changes of the projections, one by one, the newest first. Kept from the append of an event until it is
// durable, and as long as a view shows what was before it: a reader of an older moment reads what the first undo after it
// would bring back.

/// The undos, in the order of their events.
struct UndoLog: Sendable {
  enum Change: Sendable {
    /// The entry and the deletion that there were, and what an observer asks of the entry that there is since.
    indirect case record(RecordID, RecordEntry?, DeletionEntry?, after: AfterChange?)
    /// A mutation was added to the outbox, after another one of the record.
    case appended(RecordID, after: LSN?)
    case settled(RecordID, [Outbox.Settled], newest: LSN)
    case attempted(LSN)
    case unattempted(LSN)
    case sync(SyncState.Change)
  }
  struct Undo: Sendable {
    var lsn: LSN
    var change: Change
  }

  private(set) var undos: [Undo] = []
  /// The places of the undos of each record, ascending, counted from the first undo ever: place i is `undos[i - trimmed]`.
  private var placesByID: [RecordID: [Int]] = [:]
  /// How many undos were trimmed so far.
  private(set) var trimmed = 0

  var count: Int { undos.count }

  mutating func append(_ change: Change, at lsn: LSN) {
    if case .record(let id, _, _, _) = change { placesByID[id, default: []].append(trimmed + undos.count) }
    undos.append(Undo(lsn: lsn, change: change))
  }

  /// Takes the newest undo of an event after `lsn`.
  mutating func removeLast(after lsn: LSN) -> Undo? {
    guard let last = undos.last, last.lsn > lsn else { return nil }
    undos.removeLast()
    if case .record(let id, _, _, _) = last.change {
      placesByID[id]?.removeLast()
      if placesByID[id]?.isEmpty == true { placesByID[id] = nil }
    }
    return last
  }

  /// What there was of a record before the first change after `lsn`; nil if it has not changed since.
  func before(_ id: RecordID, after lsn: LSN) -> (RecordEntry?, DeletionEntry?)? {
    guard let places = placesByID[id] else { return nil }
    // Ascending, as their LSNs are.
    var (low, high) = (0, places.count)
    while low < high {
      let middle = (low + high) / 2
      if places[middle] < trimmed || undos[places[middle] - trimmed].lsn <= lsn {
        low = middle + 1
      } else {
        high = middle
      }
    }
    guard low < places.count, case .record(_, let entry, let deletion, _) = undos[places[low] - trimmed].change else {
      return nil
    }
    return (entry, deletion)
  }

  /// The undos of events after `lsn`, the newest first.
  func reversed(after lsn: LSN) -> some Sequence<Undo> { undos.reversed().prefix { $0.lsn > lsn } }

  /// Forgets how to undo the events up to `limit`.
  mutating func trim(upTo limit: LSN) {
    let count = undos.firstIndex { $0.lsn > limit } ?? undos.count
    guard count > 0 else { return }
    defer { trimmed += count }
    if count == undos.count {
      // Nothing is in flight: the usual case between two writes.
      undos.removeAll(keepingCapacity: true)
      placesByID.removeAll(keepingCapacity: true)
      return
    }
    for undo in undos[..<count] {
      guard case .record(let id, _, _, _) = undo.change, let places = placesByID[id] else { continue }
      let left = places.filter { $0 >= trimmed + count }
      placesByID[id] = left.isEmpty ? nil : left
    }
    undos.removeFirst(count)
  }
}

/// What a change made of a record's entry, as far as counts and observers ask.
struct AfterChange: Sendable {
  var type: String
  var isLiving: Bool

  init(_ entry: RecordEntry) {
    type = entry.type
    isLiving = entry.view != nil
  }
}
