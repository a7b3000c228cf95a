// How many events that need not stay whole become one packed event. A pack has the LSN of the last event that it took
// something from, its carrier, and is closed before an event of one of its records that stays: a reader of the compacted log
// then meets both in the order in which they happened.

import StrandlineLog

/// Unsettled saves for which a later mutation stands.
struct SupersededPacking {
  /// The most that one pack holds: its size stays far below the limit of an event.
  static let mutationsMax = 65_536

  private var places: [RecordID: Int] = [:]
  private var records: [Superseded.Record] = []
  private var mutations: [Superseded.Mutation] = []
  private var carrier: LSN = .none

  var isOpen: Bool { !mutations.isEmpty }

  mutating func add(_ id: RecordID, _ type: String, _ lsn: LSN, _ time: HybridTime, at carrier: LSN) {
    var place = places[id] ?? -1
    if place < 0 || records[place].type != type {
      place = records.count
      records.append(Superseded.Record(id: id, type: type))
      places[id] = place
    }
    mutations.append(Superseded.Mutation(lsn: lsn, record: place, time: time))
    self.carrier = carrier
  }

  /// Whether the pack is to be closed before so many more. One event brings no more than one pack holds.
  func isFull(for count: Int) -> Bool { mutations.count + count > Self.mutationsMax }

  /// Whether something of a record is in the pack.
  func has(_ id: RecordID) -> Bool { places[id] != nil }

  /// Closes the pack; returns its carrier, nil if it is empty.
  mutating func close() -> LSN? {
    guard isOpen else { return nil }
    defer { self = SupersededPacking() }
    return carrier
  }

  /// Closes the pack; returns the event that stands for all of it.
  mutating func take() -> Event {
    defer { self = SupersededPacking() }
    return .superseded(Superseded(records: records, mutations: mutations.sorted { $0.lsn < $1.lsn }))
  }
}

/// Deleted names.
struct DeletionPacking {
  static let itemsMax = 65_536

  let key: HashKey
  private var items: [KeyedHash: Deletions.Item] = [:]
  private var carrier: LSN = .none

  init(key: HashKey) { self.key = key }

  var isOpen: Bool { !items.isEmpty }

  /// - Parameter carrier: the event that the name is packed from.
  mutating func add(_ hash: KeyedHash, _ entry: DeletionEntry, at carrier: LSN) {
    items[hash] = Deletions.Item(
      hash: hash, lsn: entry.lsn, isLocal: entry.isLocal, births: entry.births,
      createdMilliseconds: entry.createdMilliseconds, changeTag: entry.changeTag)
    self.carrier = carrier
  }

  /// Whether the pack is to be closed before so many more. One event brings no more than one pack holds.
  func isFull(for count: Int) -> Bool { items.count + count > Self.itemsMax }

  /// Whether a name is in the pack.
  func has(_ id: RecordID) -> Bool { isOpen && items[KeyedHash(of: id, key: key)] != nil }

  /// Closes the pack; returns its carrier, nil if it is empty.
  mutating func close() -> LSN? {
    guard isOpen else { return nil }
    defer { self = DeletionPacking(key: key) }
    return carrier
  }

  /// Closes the pack; returns the event that stands for all of it.
  mutating func take() -> Event {
    defer { self = DeletionPacking(key: key) }
    return .deletions(Deletions(key: key, items: items.values.sorted { $0.hash < $1.hash }))
  }
}
