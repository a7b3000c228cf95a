// What the server refuses whatever a record says: every record of a type, and every save to a storage that is full. To hold
// such records one by one would ask the server once for each; so nothing of the kind is sent until the halt ends.
//
// A type's halt ends by a run that a person wants, by a relaunch, and by itself a day after it began; that of a full storage
// when the next run begins, for deletions free it, and so does what is done elsewhere.

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
  /// The owners of zones whose storage is full, as the server has said in this run.
  private var fullStorages: [String: CloudError] = [:]
  /// The zones of which saves are owed that are not sent because of that.
  private(set) var overQuota: [ZoneID: CloudError] = [:]

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
  mutating func haltSaves(of zone: ZoneID, because error: CloudError) {
    fullStorages[zone.owner] = error
    overQuota[zone] = error
  }

  /// Lifts the halts of saves.
  ///
  /// - Returns: whether there was one.
  mutating func liftSaves() -> Bool {
    defer { (fullStorages, overQuota) = ([:], [:]) }
    return !fullStorages.isEmpty
  }

  /// Whether the server is known to refuse whatever is like this.
  func contains(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    types[HaltedType(zone: id.zone, type: entry.type)] != nil
      || (!pending.isDeletion && fullStorages[id.zone.owner] != nil)
  }

  /// A change is owed that is not sent because of a halt.
  mutating func met(_ id: RecordID, _ pending: Pending) {
    if !pending.isDeletion, let error = fullStorages[id.zone.owner] { overQuota[id.zone] = error }
  }
}
