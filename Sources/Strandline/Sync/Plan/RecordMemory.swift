// What the engine remembers of single records between requests, beside what they wait for (Outgoing/OutgoingQueue.swift): how often
// they were refused, and what is in doubt. A record of which nothing is pending is forgotten.

import StrandlineSystem

/// What is remembered of single records.
struct RecordMemory: Sendable {
  /// What is asked about a record that a save did not find.
  enum Doubt: Hashable, Sendable {
    /// The feed to its end, for its deletion.
    case feed
    /// The feed from its beginning, which shows every record and deletion.
    case wholeFeed
  }

  struct Memory: Sendable {
    /// How often in a row the record was refused although nothing is known to be wrong with it, and with what, if not because it
    /// had changed at the server meanwhile.
    var refusals = 0
    var refusal: CloudError?
    /// How often in a row the server asked to try it again later, and the last of these refusals.
    var postponed: (count: Int, error: CloudError)?
    /// The server does not have it although it once did.
    var doubt: Doubt?

    var isEmpty: Bool { refusals == 0 && postponed == nil && doubt == nil }
  }

  /// How often a record may be refused because of the server's version before it waits, and before it is held.
  static let waitsAt = 3
  static let holdsAt = 9

  private var all: [RecordID: Memory] = [:]
  /// Those that were refused too often: they are held next.
  var refusedTooOften: [RecordID] = []
  /// When records that wait for a time are tried again, by the monotonic clock.
  var times = Deadlines()
  /// When holds end by themselves.
  var holdEnds = Deadlines()
  private let random: any RandomSource

  init(random: any RandomSource) { self.random = random }

  subscript(id: RecordID) -> Memory { all[id] ?? Memory() }

  var count: Int { all.count + refusedTooOften.count }

  func hasRefusals(of id: RecordID) -> Bool { all[id].map { $0.refusals > 0 || $0.postponed != nil } ?? false }

  private mutating func change(_ id: RecordID, _ body: (inout Memory) -> Void) {
    var memory = self[id]
    body(&memory)
    all[id] = memory.isEmpty ? nil : memory
  }

  /// A record was refused although nothing is known to be wrong with it: with this error, or because it had changed at the
  /// server meanwhile.
  mutating func countRefusal(of id: RecordID, _ error: CloudError? = nil) {
    change(id) { memory in
      memory.refusals += 1
      memory.refusal = error
    }
  }

  /// The server asks to try a record again later.
  mutating func postpone(_ id: RecordID, _ error: CloudError) {
    change(id) { $0.postponed = (($0.postponed?.count ?? 0) + 1, error) }
  }

  mutating func endPostponement(of id: RecordID) {
    if all[id]?.postponed != nil { change(id) { $0.postponed = nil } }
  }

  mutating func forgetRefusals(of id: RecordID) {
    guard hasRefusals(of: id) else { return }
    change(id) { memory in
      (memory.refusals, memory.refusal, memory.postponed) = (0, nil, nil)
    }
  }

  /// It was held for them.
  mutating func forgetCount(of id: RecordID) {
    change(id) { memory in
      (memory.refusals, memory.refusal) = (0, nil)
    }
  }

  /// What the refusals of a record come to: the last of them, if it was none of those that a newer version at the server
  /// explains.
  func refusalsError(of id: RecordID) -> CloudError {
    let memory = self[id]
    let times = "refused \(memory.refusals) times"
    guard let error = memory.refusal else {
      return CloudError(.conflict, reason: times + ", each time after the server was asked for its newest version")
    }
    return CloudError(
      error.code, reason: "\(times), at last with \(error.code.rawValue): \(error.reason)",
      requestUUID: error.requestUUID)
  }

  // MARK: Doubts

  /// One that was sent again before its doubt has ended waits for the same.
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

  /// The wait of one record after a number of others: from a second it doubles up to about four minutes, and is drawn between half
  /// and all of it.
  func backoff(_ count: Int) -> Int64 {
    let whole = Int64(1_000) << Int64(min(count, 8))
    return whole / 2 + Int64(random.below(UInt64(whole / 2) + 1))
  }
}

/// Records and the moments at which they are tried again.
struct Deadlines: Sendable {
  private var byID: [RecordID: UInt64] = [:]
  /// In descending order: the next one is the last.
  private var order: [(id: RecordID, nanoseconds: UInt64)] = []

  var isEmpty: Bool { order.isEmpty }
  var first: (id: RecordID, nanoseconds: UInt64)? { order.last }

  /// Sets a record's moment. O(log n) to find its place.
  mutating func set(_ id: RecordID, _ nanoseconds: UInt64) {
    byID[id] = nanoseconds
    var (low, high) = (0, order.count)
    while low < high {
      let middle = (low + high) / 2
      if order[middle].nanoseconds > nanoseconds { low = middle + 1 } else { high = middle }
    }
    order.insert((id, nanoseconds), at: low)
  }

  /// The next one of those that `isWanted` names. O(those before it).
  func first(where isWanted: (RecordID) -> Bool) -> (id: RecordID, nanoseconds: UInt64)? {
    order.last { byID[$0.id] == $0.nanoseconds && isWanted($0.id) }
  }

  mutating func removeFirst() {
    guard let first = order.popLast(), byID[first.id] == first.nanoseconds else { return }
    byID[first.id] = nil
  }

  /// Takes those whose moment has come.
  mutating func takeDue(_ now: UInt64) -> [RecordID] {
    var due: [RecordID] = []
    while let last = order.last, last.nanoseconds <= now {
      order.removeLast()
      // It may have been set again since.
      if byID[last.id] == last.nanoseconds {
        byID[last.id] = nil
        due.append(last.id)
      }
    }
    return due
  }
}
