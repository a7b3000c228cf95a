// Where the plan has a record's newest pending change: in one place of five, or nowhere.
//
//   pending in the log ──▶ looked at ──▶ ready ──▶ in flight ──▶ settled in the log
//           ▲               ▲  │  │        ▲           │
//           │               │  │  │        │           │ refused
//           └─ kept back ◀──┼──┘  │        └─ halved ◀─┤
//                           │     └──▶ waits ◀─────────┘
//                           └── its end ─┘
//
// `RecordPlaces` is the one table of it. Lists beside it only have an order: the lanes of ready changes, the halves of a refused batch,
// the moments of timed waits. An entry of a list counts only if the table has the same change there.
//
// Three facts hold beside a place, so they are no places:
//
// - What the log says of the record (held, put into a set, in question): the log alone has it.
// - What the server has said of it so far: its refusals, its doubt, the tag of its last conflict (`RecordMemory`,
//   `OutgoingQueue.refusedTags`). They outlive every place: a record that was refused twice is ready, in flight and refused again.
// - That the queue has yet to read it, for the first time or once more (`cursor`, `woken`). It may be in a place meanwhile, for an older
//   change, or because something else may end its wait too.
//
// A change that a halt or a frozen zone keeps back has no place: the end of the halt reads everything again.

import StrandlineSystem

/// The place of a pending change.
package enum RecordPlace: Hashable, Sendable {
  case ready(LSN, isDeletion: Bool)
  case inFlight(LSN)
  /// In a half of a refused batch that is sent next; or it was refused alone, and is held when the halves have been sent.
  case halved(LSN)
  case waits(UploadWait)

  /// Whether the server, or the next request, has this change.
  func isSending(_ lsn: LSN) -> Bool {
    switch self {
    case .inFlight(let sent), .halved(let sent): sent == lsn
    case .ready, .waits: false
    }
  }
}

/// The places of records, and what follows from them: counters, who waits for what, and the moments of timed waits.
package struct RecordPlaces: Sendable {
  /// An event that may end the waits of several records.
  enum Trigger: Hashable {
    case record(RecordID)
    case fetch(ZoneID)
    case references(ZoneID)
  }

  private(set) var all: [RecordID: RecordPlace] = [:]
  /// How many records have each kind of wait.
  package private(set) var counts = UploadWait.Counts()
  /// How many saves of each zone are ready.
  private var readyCounts: [ZoneID: Int] = [:]
  private var waiting: [Trigger: Set<RecordID>] = [:]
  /// The records whose changes are in flight.
  private var inFlight: Set<RecordID> = []
  /// When records with a timed wait are tried again, by the monotonic clock.
  private(set) var ends = Deadlines()

  /// A record's place; nil if it has none.
  package subscript(id: RecordID) -> RecordPlace? {
    get { all[id] }
    set {
      let old: RecordPlace?
      if let newValue { old = all.updateValue(newValue, forKey: id) } else { old = all.removeValue(forKey: id) }
      if let old { note(id, old, isThere: false) }
      if let newValue { note(id, newValue, isThere: true) }
    }
  }

  /// What a record waits for; nil if for nothing.
  package func wait(of id: RecordID) -> UploadWait? { if case .waits(let wait)? = all[id] { wait } else { nil } }

  /// Everything that waits.
  var waits: [RecordID: UploadWait] {
    all.compactMapValues { if case .waits(let wait) = $0 { wait } else { nil } }
  }

  func readyCount(in zone: ZoneID) -> Int { readyCounts[zone] ?? 0 }

  func isReady(_ item: UploadItem) -> Bool { all[item.id] == .ready(item.lsn, isDeletion: item.isDeletion) }

  /// The records that wait for something, in order.
  func ids(waitingFor trigger: Trigger) -> [RecordID] { (waiting[trigger] ?? []).sorted() }

  /// The request under way has ended: what was in flight has no place.
  mutating func endFlight() { for id in inFlight { self[id] = nil } }

  /// Forgets the places that `isMeant` names.
  mutating func forget(where isMeant: (RecordPlace) -> Bool) {
    for (id, place) in all where isMeant(place) { self[id] = nil }
  }

  /// Ends the timed waits whose moment has come.
  mutating func takeDue(_ now: UInt64) -> [RecordID] {
    let due = ends.takeDue(now)
    for id in due { self[id] = nil }
    return due
  }

  /// Keeps up what follows from one place.
  private mutating func note(_ id: RecordID, _ place: RecordPlace, isThere: Bool) {
    switch place {
    case .ready(_, isDeletion: true), .halved: break
    case .ready: readyCounts[id.zone, default: 0] += isThere ? 1 : -1
    case .inFlight: if isThere { inFlight.insert(id) } else { inFlight.remove(id) }
    case .waits(let wait):
      counts.count(wait, isThere ? 1 : -1)
      if case .time(let end) = wait { if isThere { ends.set(id, end) } else { ends.remove(id) } }
      guard let trigger = Self.trigger(of: wait, id) else { return }
      if isThere { waiting[trigger, default: []].insert(id) } else { waiting[trigger]?.remove(id) }
      if waiting[trigger]?.isEmpty == true { waiting[trigger] = nil }
    }
  }

  private static func trigger(of wait: UploadWait, _ id: RecordID) -> Trigger? {
    switch wait {
    case .target(let target): .record(target)
    case .fetch: .fetch(id.zone)
    case .references: .references(id.zone)
    case .lookup, .content, .time, .hold, .together: nil
    }
  }
}
