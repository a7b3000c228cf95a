// How many events that need not stay whole become one packed event. A pack has the LSN of the last event that it took
// something from, and is closed before an event of one of its records that stays: a reader of the compacted log then
// meets both in the order in which they happened.

/// Unsettled saves for which a later mutation stands.
struct SupersededPacking {
  /// The most that one pack holds: its size stays far below the limit of an event.
  static let mutationsMax = 65_536

  private var open: [RecordID: Int] = [:]
  private var records: [Superseded.Record] = []
  private var mutations: [Superseded.Mutation] = []
  private var carrier: LSN = .none

  mutating func add(_ id: RecordID, _ type: String, _ lsn: LSN, _ time: HybridTime, at carrier: LSN) {
    var place = open[id] ?? -1
    if place < 0 || records[place].type != type {
      place = records.count
      records.append(Superseded.Record(id: id, type: type))
      open[id] = place
    }
    mutations.append(Superseded.Mutation(lsn: lsn, record: place, time: time))
    self.carrier = carrier
  }

  /// Closes the pack if so many more are too many. One event brings no more than one pack holds.
  mutating func makeRoom(for count: Int, into packs: inout [LSN: Event]) {
    if mutations.count + count > Self.mutationsMax { close(into: &packs) }
  }

  /// Closes the pack if something of a record is in it.
  mutating func close(for id: RecordID, into packs: inout [LSN: Event]) {
    if open[id] != nil { close(into: &packs) }
  }

  mutating func close(into packs: inout [LSN: Event]) {
    guard !mutations.isEmpty else { return }
    packs[carrier] = .superseded(Superseded(records: records, mutations: mutations.sorted { $0.lsn < $1.lsn }))
    self = SupersededPacking()
  }
}

/// Deleted names.
struct DeletionPacking {
  static let itemsMax = 65_536

  let key: HashKey
  /// What the index knows of each name, and has to know after the pack.
  private let wanted: [KeyedHash: DeletionEntry]
  private var open: [KeyedHash: Deletions.Item] = [:]
  private var carrier: LSN = .none

  init(key: HashKey, wanted: [KeyedHash: DeletionEntry]) {
    self.key = key
    self.wanted = wanted
  }

  /// An event that deleted a name is left out: its fact is packed, if it is the one that the index has.
  mutating func add(_ id: RecordID, _ lsn: LSN) {
    let hash = KeyedHash(of: id, key: key)
    guard let entry = wanted[hash], entry.lsn == lsn else { return }
    put(hash, entry, at: lsn)
  }

  /// A fact that was packed before; as it was, if all of the record stays.
  mutating func add(_ item: Deletions.Item, at lsn: LSN, isWhole: Bool) {
    if isWhole {
      put(item.hash, DeletionEntry(item), at: lsn)
    } else if let entry = wanted[item.hash], entry.lsn == item.lsn {
      put(item.hash, entry, at: lsn)
    }
  }

  private mutating func put(_ hash: KeyedHash, _ entry: DeletionEntry, at lsn: LSN) {
    open[hash] = Deletions.Item(
      hash: hash, lsn: entry.lsn, isLocal: entry.isLocal, births: entry.births,
      createdMilliseconds: entry.createdMilliseconds, changeTag: entry.changeTag)
    carrier = lsn
  }

  /// Closes the pack if so many more are too many. One event brings no more than one pack holds.
  mutating func makeRoom(for count: Int, into packs: inout [LSN: Event]) {
    if open.count + count > Self.itemsMax { close(into: &packs) }
  }

  /// Closes the pack if a name is in it.
  mutating func close(for id: RecordID, into packs: inout [LSN: Event]) {
    if !open.isEmpty, open[KeyedHash(of: id, key: key)] != nil { close(into: &packs) }
  }

  mutating func close(into packs: inout [LSN: Event]) {
    guard !open.isEmpty else { return }
    packs[carrier] = .deletions(Deletions(key: key, items: open.values.sorted { $0.hash < $1.hash }))
    open = [:]
    carrier = .none
  }
}
