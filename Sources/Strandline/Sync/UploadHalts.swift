// What the server refuses whatever a record says: every record of a type, and every save to a storage that is full. To hold
// such records one by one would ask the server once for each; so nothing of the kind is sent until the halt ends.
//
// A type's halt ends by a run that a person wants, by a relaunch, and by itself a day after it began. That of a full storage ends by
// the same two, and by itself after the wait of `OverQuotaWait`, which doubles while the storage stays full and is the first one again
// after a deletion: else each write of the app would send a whole request to have it refused.

import StrandlineSystem

/// What an engine does not send because the server is known to refuse it.
struct UploadHalts: Sendable {
  /// The records of one type in a zone.
  struct HaltedType: Hashable, Sendable {
    var zone: ZoneID
    var type: String
  }

  /// Zones and types of which every record was refused with the same words.
  private(set) var types: [HaltedType: CloudError] = [:]
  /// When each is tried again, by the monotonic clock.
  private var ends: [HaltedType: UInt64] = [:]
  /// The owners of zones whose storage is full, as the server has said.
  private var fullStorages: [String: FullStorage] = [:]
  /// How often in a row each owner's storage was full.
  private var timesFull: [String: UInt64] = [:]
  /// The zones of which saves are owed that are not sent because of that, each with one of these saves.
  private var unsent: [ZoneID: RecordID] = [:]

  private struct FullStorage: Sendable {
    var error: CloudError
    /// When it is tried again, by the monotonic clock.
    var end: UInt64
  }

  /// The zones of which saves are owed that are not sent because their owner's storage is full.
  var overQuota: [ZoneID: CloudError] {
    var refusals: [ZoneID: CloudError] = [:]
    for zone in unsent.keys { refusals[zone] = fullStorages[zone.owner]?.error }
    return refusals
  }

  /// When a full storage is tried again.
  var nextSaves: UInt64? { fullStorages.values.map(\.end).min() }

  mutating func halt(_ type: HaltedType, because error: CloudError, at now: UInt64) {
    types[type] = error
    ends[type] = now &+ UInt64(SyncMachine.holdMillisecondsMax) &* 1_000_000
  }

  /// Lifts the halts of types whose day is over, or all of them.
  ///
  /// - Returns: whether there was one.
  mutating func liftTypes(at now: UInt64, all: Bool) -> Bool {
    let over = ends.filter { all || now >= $0.value }
    for type in over.keys { (types[type], ends[type]) = (nil, nil) }
    return !over.isEmpty
  }

  /// The storage of a zone's owner is full: no save goes to the owner's zones, but deletions, which free it.
  ///
  /// - Parameter id: one of the saves.
  mutating func haltSaves(of id: RecordID, because error: CloudError, _ wait: OverQuotaWait, at now: UInt64) {
    let owner = id.zone.owner
    let times = (timesFull[owner] ?? 0) + 1
    timesFull[owner] = times
    fullStorages[owner] = FullStorage(
      error: error, end: now &+ UInt64(wait.milliseconds(attempts: times)) &* 1_000_000)
    unsent[id.zone] = id
  }

  /// The server has taken a change. After a save the storage is not full. A deletion may have freed some of it: the wait is the
  /// shortest one then, and no less, for an app that deletes all the time.
  mutating func taken(_ id: RecordID, isDeletion: Bool, _ wait: OverQuotaWait, at now: UInt64) {
    let owner = id.zone.owner
    if !isDeletion {
      timesFull[owner] = nil
    } else if let full = fullStorages[owner] {
      fullStorages[owner]?.end = min(full.end, now &+ UInt64(wait.milliseconds(attempts: 1)) &* 1_000_000)
    }
  }

  /// Lifts the halts of saves whose wait is over, or all of them.
  ///
  /// - Returns: whether there was one.
  mutating func liftSaves(at now: UInt64, all: Bool) -> Bool {
    let over = fullStorages.filter { all || now >= $0.value.end }.keys
    for owner in over {
      fullStorages[owner] = nil
      unsent = unsent.filter { $0.key.owner != owner }
    }
    return !over.isEmpty
  }

  /// Forgets the zones whose save, the one that was remembered, is not owed any more: another one may be.
  ///
  /// - Returns: whether there was one.
  mutating func forgetSent(_ owes: (RecordID) throws -> Bool) rethrows -> Bool {
    let left = try unsent.filter { try owes($0.value) }
    defer { unsent = left }
    return left.count < unsent.count
  }

  /// Whether the server is known to refuse whatever is like this.
  func contains(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    types[HaltedType(zone: id.zone, type: entry.type)] != nil
      || (!pending.isDeletion && fullStorages[id.zone.owner] != nil)
  }

  /// A change is owed that is not sent because of a halt.
  mutating func met(_ id: RecordID, _ pending: Pending) {
    if !pending.isDeletion, fullStorages[id.zone.owner] != nil { unsent[id.zone] = id }
  }
}
