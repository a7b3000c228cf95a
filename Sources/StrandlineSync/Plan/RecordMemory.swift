// What the server has said of single records so far: how often it refused them, and which are in doubt. It holds beside the place of a
// record (RecordPlace.swift), and outlives it. A record without a pending change is forgotten.

import StrandlineSystem

/// Refusals and doubts of single records, and the ends of their holds.
package struct RecordMemory: Sendable {
  /// How far the engine has looked for a record that the server did not find for a save.
  enum Doubt: Hashable, Sendable {
    /// It reads the feed to its end, which may bring the deletion.
    case feed
    /// It reads the feed from its beginning, which shows every record and deletion.
    case wholeFeed
    /// The feed from its beginning has shown the record. If a save still does not find it, another fetch will not help.
    case shown
  }

  struct Memory: Sendable {
    /// How often in a row the record was refused though nothing is known to be wrong with it, and the last refusal.
    var refusals = 0
    var refusal: CloudError?
    /// How often in a row the server asked to try it again later, the last such refusal, and the end of the wait that it named, by
    /// the monotonic clock.
    var postponed: (count: Int, error: CloudError, until: UInt64)?
    /// How often in a row lookups did not bring the server's version, the last error, and the end of the wait that it named, by the
    /// monotonic clock. Only a lookup that brings it resets this, not a refusal of the change.
    var unshown: (count: Int, error: CloudError, until: UInt64)?
    /// The change that was held last, and how often, once that hold has ended.
    var holds: (lsn: LSN, count: UInt64)?
    /// The server did not find it although it once had it.
    var doubt: Doubt?

    var isEmpty: Bool { refusals == 0 && postponed == nil && unshown == nil && holds == nil && doubt == nil }
  }

  /// After how many refusals in a row a record waits before the next try, and after how many it is held.
  static let waitsAt = 3
  static let holdsAt = 9

  private var all: [RecordID: Memory] = [:]
  /// Records that were refused too often: they are held next.
  var refusedTooOften: [RecordID] = []
  /// When timed holds end.
  var holdEnds = Deadlines()
  /// The contents that records wait for, and those that were uploaded.
  var contents = ContentLane()
  private let random: any RandomSource

  init(random: any RandomSource) { self.random = random }

  subscript(id: RecordID) -> Memory { all[id] ?? Memory() }

  var count: Int { all.count + refusedTooOften.count }

  func hasRefusals(of id: RecordID) -> Bool {
    all[id].map {
      $0.refusals > 0 || $0.postponed != nil || $0.unshown != nil || $0.holds != nil || $0.doubt == .shown
    } ?? false
  }

  /// Whether a record's wait is the engine's own, which a person may end: the server has named none, or its is over.
  func waitsOnOwn(_ id: RecordID, at now: Moment) -> Bool {
    (all[id]?.unshown?.until ?? all[id]?.postponed?.until).map { $0 <= now.nanoseconds } ?? false
  }

  /// Why a record waits for a time; nil if neither a lookup nor an upload has asked for it.
  func waitError(of id: RecordID) -> CloudError? { all[id].flatMap { $0.unshown?.error ?? $0.postponed?.error } }

  private mutating func change(_ id: RecordID, _ body: (inout Memory) -> Void) {
    var memory = self[id]
    body(&memory)
    all[id] = memory.isEmpty ? nil : memory
  }

  /// A record was refused though nothing is known to be wrong with it.
  mutating func countRefusal(of id: RecordID, _ error: CloudError) {
    change(id) { memory in
      memory.refusals += 1
      memory.refusal = error
    }
  }

  /// The server asks to try a record again later.
  mutating func postpone(_ id: RecordID, _ error: CloudError, at now: Moment) {
    let until = now.after(milliseconds: error.retryAfterMilliseconds ?? 0)
    change(id) { $0.postponed = (($0.postponed?.count ?? 0) + 1, error, until) }
  }

  /// A lookup did not bring the server's version of a record.
  mutating func countUnshown(_ id: RecordID, _ error: CloudError, at now: Moment) {
    let until = now.after(milliseconds: error.retryAfterMilliseconds ?? 0)
    change(id) { $0.unshown = (($0.unshown?.count ?? 0) + 1, error, until) }
  }

  /// A hold has ended, and its record is sent again.
  mutating func released(_ held: Held) { change(held.id) { $0.holds = (held.lsn, held.attempts) } }

  /// How often a change was held before it was sent again.
  func attempts(of item: UploadItem) -> UInt64 {
    all[item.id]?.holds.flatMap { $0.lsn == item.lsn ? $0.count : nil } ?? 0
  }

  mutating func endPostponement(of id: RecordID) {
    if all[id]?.postponed != nil { change(id) { $0.postponed = nil } }
  }

  /// A lookup has brought the server's version of a record, or said that there is none.
  mutating func shown(_ id: RecordID) {
    if all[id]?.unshown != nil { change(id) { $0.unshown = nil } }
  }

  mutating func forgetRefusals(of id: RecordID) {
    guard hasRefusals(of: id) else { return }
    change(id) { memory in
      (memory.refusals, memory.refusal, memory.postponed, memory.unshown, memory.holds) = (0, nil, nil, nil, nil)
      if memory.doubt == .shown { memory.doubt = nil }
    }
  }

  /// The record was held for its refusals. One more lookup without its version holds it again, or two more refusals: after the first
  /// of them it is merged with the server's version.
  mutating func forgetCount(of id: RecordID) {
    change(id) { memory in
      if let unshown = memory.unshown {
        memory.unshown = (min(unshown.count, Self.holdsAt - 1), unshown.error, unshown.until)
      } else {
        memory.refusals = min(memory.refusals, Self.holdsAt - 2)
      }
      if memory.doubt == .shown { memory.doubt = nil }
    }
  }

  /// One error for all refusals of a record: their number, and the last one in the server's words.
  func refusalsError(of id: RecordID) -> CloudError {
    let memory = self[id]
    let times = "refused \(memory.refusals) times"
    var words = times
    if let unshown = memory.unshown {
      words += ", and asked for \(unshown.count) times, which the server answers with "
      words += "\(unshown.error.code.rawValue): \(unshown.error.reason)"
    }
    guard let error = memory.refusal ?? memory.unshown?.error else { return CloudError(.conflict, reason: words) }
    if memory.unshown == nil, error.meaning.item == .resolve {
      words += ", each time after the server was asked for its newest version"
    }
    if memory.refusal != nil { words += ", at last with \(error.code.rawValue): \(error.reason)" }
    return CloudError(
      error.code, reason: words, retryAfter: memory.unshown?.error.retryAfter, requestUUID: error.requestUUID)
  }

  // MARK: Doubts

  mutating func doubt(_ id: RecordID, _ doubt: Doubt) { change(id) { $0.doubt = doubt } }

  mutating func endDoubt(of id: RecordID) {
    if all[id]?.doubt != nil { change(id) { $0.doubt = nil } }
  }

  /// The records of a zone that are in doubt.
  func doubts(in zone: ZoneID) -> [(id: RecordID, doubt: Doubt)] {
    all.compactMap { id, memory in id.zone == zone ? memory.doubt.map { (id, $0) } : nil }.sorted { $0.id < $1.id }
  }

  mutating func endDoubts(in zone: ZoneID) {
    for (id, _) in doubts(in: zone) { endDoubt(of: id) }
  }

  // MARK: Times

  /// The wait of one record after `count` others: it doubles from one second to about four minutes, and a random part of its second
  /// half is left off.
  func backoff(_ count: Int) -> Int64 {
    let whole = Int64(1_000) << Int64(min(count, 8))
    return whole / 2 + Int64(random.below(UInt64(whole / 2) + 1))
  }
}

/// Records and the moments at which something is due for them: a heap. Replaced entries stay in it and are skipped, until they are
/// more than half of it, or the first.
struct Deadlines: Sendable {
  private struct Entry: Comparable, Sendable {
    var nanoseconds: UInt64
    var id: RecordID

    static func < (one: Entry, other: Entry) -> Bool { (one.nanoseconds, one.id) < (other.nanoseconds, other.id) }
  }

  /// The current moment of each record.
  private var byID: [RecordID: UInt64] = [:]
  private var heap = MinHeap<Entry>()

  var isEmpty: Bool { heap.isEmpty }
  var first: (id: RecordID, nanoseconds: UInt64)? { heap.first.map { ($0.id, $0.nanoseconds) } }
  /// How many entries have been moved, for a test of the cost.
  var moves: Int { heap.moves }

  /// The records that have one.
  var ids: some Collection<RecordID> { byID.keys }

  /// A record's moment; nil if it has none.
  subscript(id: RecordID) -> UInt64? { byID[id] }

  /// Sets a record's moment. O(log n).
  mutating func set(_ id: RecordID, _ nanoseconds: UInt64) {
    guard byID.updateValue(nanoseconds, forKey: id) != nanoseconds else { return }
    heap.insert(Entry(nanoseconds: nanoseconds, id: id))
    clear()
  }

  /// A record has no moment any more.
  mutating func remove(_ id: RecordID) { if byID.removeValue(forKey: id) != nil { clear() } }

  /// Takes replaced entries out.
  private mutating func clear() {
    if heap.count > 2 * byID.count + 64 { heap = MinHeap(byID.map { Entry(nanoseconds: $1, id: $0) }) }
    while let first = heap.first, byID[first.id] != first.nanoseconds { _ = heap.popFirst() }
  }

  /// The first one that `isWanted` accepts. O(k log k), where k entries come before it.
  func first(where isWanted: (RecordID) -> Bool) -> (id: RecordID, nanoseconds: UInt64)? {
    heap.first { byID[$0.id] == $0.nanoseconds && isWanted($0.id) }.map { ($0.id, $0.nanoseconds) }
  }

  /// Takes those whose moment has come. O(log n) for each.
  mutating func takeDue(_ now: UInt64) -> [RecordID] {
    var due: [RecordID] = []
    while let first = heap.first, first.nanoseconds <= now {
      due.append(first.id)
      remove(first.id)
    }
    return due
  }
}

/// A binary heap: the least element is the first.
struct MinHeap<Element: Comparable & Sendable>: Sendable {
  private var elements: [Element] = []
  /// How many elements have been moved since it was made.
  private(set) var moves = 0

  init() {}

  /// O(n).
  init(_ elements: [Element]) {
    self.elements = elements
    for place in (0..<elements.count / 2).reversed() { sink(place) }
  }

  var count: Int { elements.count }
  var isEmpty: Bool { elements.isEmpty }
  var first: Element? { elements.first }

  /// O(log n).
  mutating func insert(_ element: Element) {
    elements.append(element)
    var place = elements.count - 1
    while place > 0, case let parent = (place - 1) / 2, elements[place] < elements[parent] {
      swap(place, parent)
      place = parent
    }
  }

  /// O(log n).
  mutating func popFirst() -> Element? {
    guard let first = elements.first, let last = elements.popLast() else { return nil }
    if !elements.isEmpty {
      elements[0] = last
      sink(0)
    }
    return first
  }

  /// The least element that `isWanted` accepts. O(k log k), where k elements are less.
  func first(where isWanted: (Element) -> Bool) -> Element? {
    guard !elements.isEmpty else { return nil }
    // The next larger element is a child of one that was skipped.
    var next = MinHeap<Place>([Place(place: 0, element: elements[0])])
    while let found = next.popFirst() {
      if isWanted(found.element) { return found.element }
      for child in [found.place * 2 + 1, found.place * 2 + 2] where child < elements.count {
        next.insert(Place(place: child, element: elements[child]))
      }
    }
    return nil
  }

  private struct Place: Comparable, Sendable {
    var place: Int
    var element: Element

    static func < (one: Place, other: Place) -> Bool { one.element < other.element }
    static func == (one: Place, other: Place) -> Bool { one.element == other.element }
  }

  private mutating func sink(_ start: Int) {
    var place = start
    while true {
      var least = place
      for child in [place * 2 + 1, place * 2 + 2] where child < elements.count && elements[child] < elements[least] {
        least = child
      }
      if least == place { return }
      swap(place, least)
      place = least
    }
  }

  private mutating func swap(_ one: Int, _ other: Int) {
    elements.swapAt(one, other)
    moves += 1
  }
}
