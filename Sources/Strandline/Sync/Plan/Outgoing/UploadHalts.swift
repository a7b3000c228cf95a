// What the server refuses whatever a record says: every record of a type, every save to a storage that is full, every change of a
// zone that the user may not write to, the erasure of a zone. To hold such records one by one would ask the server once for each;
// so nothing of the kind is sent until the halt ends.
//
// A type's halt lets one record through when a person wants a run, and by itself after a wait that doubles while the server goes on
// refusing: one that it has not refused yet, or that was edited since, before one that it has. When it takes that one, all of the type
// goes. Deletions go all the time. A relaunch ends it.
//
// That of whole requests ends by a run that a person wants, by a relaunch, and by itself after such a wait: else each write of the app
// would send a whole request to have it refused. A deletion makes the wait for a full storage the first one again.

import StrandlineSystem

/// What an engine does not send because the server is known to refuse it.
struct UploadHalts: Sendable {
  /// The records of one type in a zone.
  struct HaltedType: Hashable, Sendable {
    var zone: ZoneID
    var type: String
  }

  /// What the server refuses in whole requests.
  private enum Kind: Hashable, Sendable {
    /// Saves to the zones of an owner, whose storage is full.
    case saves(owner: CloudName)
    /// Changes of a zone.
    case changes(ZoneID)
    /// The end of a zone, which the app wants.
    case erasure(ZoneID)

    static func saves(to zone: ZoneID) -> Kind { .saves(owner: CloudName(zone.owner)) }

    func includes(_ zone: ZoneID) -> Bool {
      switch self {
      case .saves(let owner): CloudName(zone.owner) == owner
      case .changes(let other), .erasure(let other): zone == other
      }
    }
  }

  private struct Halt: Sendable {
    var error: CloudError
    /// When it is tried again, by the monotonic clock.
    var end: UInt64
  }

  /// A type of which records are refused alike.
  private struct TypeHalt: Sendable {
    /// Which record is sent next though the type is halted.
    enum Probe: Hashable, Sendable {
      case none
      /// One that was not refused yet; or whichever comes first, where there is no such one.
      case next(isNew: Bool)
      /// This one, with what goes together with it, until the server has said something of it.
      case records(Set<RecordID>, isNew: Bool)
    }
    var error: CloudError
    /// When the next one is let through, by the monotonic clock.
    var end: UInt64
    /// How often in a row it was refused.
    var refusals: UInt64
    /// The changes that were refused.
    var refused: [RecordID: LSN] = [:]
    var probe = Probe.none
    /// What was to be let through and has to wait for something else.
    var skipped: Set<RecordID> = []
    /// One that is not sent because of this; nil if none was met.
    var unsent: RecordID?
  }

  private var typeHalts: [HaltedType: TypeHalt] = [:]
  private var halts: [Kind: Halt] = [:]
  /// How often in a row each was refused.
  private var refusals: [Kind: UInt64] = [:]
  /// The zones of which changes are owed that are not sent because of that, each with one of these.
  private var unsent: [ZoneID: RecordID] = [:]

  /// The zones of which changes are owed that are not sent because whole requests are refused, each with the refusal.
  var refusedZones: [ZoneID: CloudError] {
    var refused: [ZoneID: CloudError] = [:]
    for zone in unsent.keys { refused[zone] = (halts[.changes(zone)] ?? halts[.saves(to: zone)])?.error }
    return refused
  }

  /// Zones and types of which every record was refused with the same words.
  var types: [HaltedType: CloudError] { typeHalts.mapValues(\.error) }

  /// The next moment at which anything that is halted is tried again.
  var nextTry: UInt64? { (halts.values.map(\.end) + typeHalts.values.map(\.end)).min() }

  /// When what is refused of a zone in whole requests is tried again; nil if nothing is.
  func nextTry(of zone: ZoneID) -> UInt64? {
    [.changes(zone), .saves(to: zone), .erasure(zone)].lazy.compactMap { halts[$0]?.end }.first
  }

  /// When a type is tried again; nil if it is not refused.
  func nextTry(of type: HaltedType) -> UInt64? { typeHalts[type]?.end }

  /// Nothing of a type is sent any more but deletions, and one record now and then.
  ///
  /// - Parameter items: those that were refused.
  mutating func halt(_ type: HaltedType, _ items: [UploadItem], because error: CloudError, at now: UInt64) {
    var halt = typeHalts[type] ?? TypeHalt(error: error, end: now, refusals: 0)
    (halt.error, halt.probe, halt.refusals) = (error, .none, halt.refusals + 1)
    halt.end = now &+ UInt64(SyncPlan.holdMilliseconds(attempts: halt.refusals)) &* 1_000_000
    for item in items { halt.refused[item.id] = item.lsn }
    halt.unsent = items.first?.id ?? halt.unsent
    typeHalts[type] = halt
  }

  /// Lets one record through of each type whose wait is over, or of every one.
  ///
  /// - Returns: whether there is one.
  mutating func probeTypes(at now: UInt64, all: Bool) -> Bool {
    let due = typeHalts.filter { all || now >= $0.value.end }
    for (type, halt) in due {
      typeHalts[type]?.probe = .next(isNew: true)
      typeHalts[type]?.skipped = []
      // If nothing comes of it, the next one is let through then.
      typeHalts[type]?.end = now &+ UInt64(SyncPlan.holdMilliseconds(attempts: halt.refusals + 1)) &* 1_000_000
    }
    return !due.isEmpty
  }

  /// Everything that is owed was looked at.
  ///
  /// - Returns: whether it is to be looked at again: no record of a type was new to the server, so that any may go.
  mutating func probeAny() -> Bool {
    var isChanged = false
    for (type, halt) in typeHalts where halt.probe == .next(isNew: true) {
      typeHalts[type]?.probe = .next(isNew: false)
      typeHalts[type]?.skipped = []
      isChanged = true
    }
    return isChanged
  }

  /// The server has taken a record of a type.
  ///
  /// - Returns: whether the type was halted.
  mutating func taken(_ type: HaltedType) -> Bool { typeHalts.removeValue(forKey: type) != nil }

  /// Whether a record is the one of its type that is let through; if there is none yet, it may be this one.
  ///
  /// - Parameter together: the records that go together with it.
  mutating func letsThrough(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, together: () -> [RecordID]
  ) -> Bool {
    let type = HaltedType(zone: id.zone, type: entry.type)
    guard let halt = typeHalts[type], !isHalted(id, pending) else { return false }
    switch halt.probe {
    case .none: return false
    case .records(let ids, _): return ids.contains(id)
    case .next(let isNew):
      if halt.skipped.contains(id) { return false }
      if isNew, let refused = halt.refused[id], refused >= pending.newest { return false }
      typeHalts[type]?.probe = .records(Set(together()).union([id]), isNew: isNew)
      return true
    }
  }

  /// A record that was let through has to wait for something else: the next one is.
  mutating func waits(_ id: RecordID) {
    for (type, halt) in typeHalts where type.zone == id.zone {
      guard case .records(let ids, let isNew) = halt.probe, ids.contains(id) else { continue }
      typeHalts[type]?.probe = .next(isNew: isNew)
      typeHalts[type]?.skipped.formUnion(ids)
    }
  }

  /// The storage of a zone's owner is full: no save goes to the owner's zones, but deletions, which free it.
  ///
  /// - Parameter id: one of the saves.
  mutating func haltSaves(of id: RecordID, because error: CloudError, _ wait: OverQuotaWait, at now: UInt64) {
    halt(.saves(to: id.zone), because: error, at: now) { wait.milliseconds(attempts: $0) }
    unsent[id.zone] = id
  }

  /// The server has refused a request because of its zone: no change of it is sent.
  ///
  /// - Parameter id: one of the changes.
  mutating func haltChanges(of id: RecordID, because error: CloudError, at now: UInt64) {
    halt(.changes(id.zone), because: error, at: now) { SyncPlan.holdMilliseconds(attempts: $0) }
    unsent[id.zone] = id
  }

  /// The server has refused to end a zone: it is not asked again before the halt ends.
  mutating func haltErasure(of zone: ZoneID, because error: CloudError, at now: UInt64) {
    halt(.erasure(zone), because: error, at: now) { SyncPlan.holdMilliseconds(attempts: $0) }
  }

  /// Why a zone is not ended now.
  func refusedErasure(of zone: ZoneID) -> CloudError? { halts[.erasure(zone)]?.error }

  /// Forgets the refusals of erasures that are over, or that the app has taken back.
  ///
  /// - Parameter wanted: the zones that the app wants ended.
  mutating func keepErasures(of wanted: [ZoneID]) {
    func isOver(_ kind: Kind) -> Bool { if case .erasure(let zone) = kind { !wanted.contains(zone) } else { false } }
    halts = halts.filter { !isOver($0.key) }
    refusals = refusals.filter { !isOver($0.key) }
  }

  private mutating func halt(
    _ kind: Kind, because error: CloudError, at now: UInt64, _ milliseconds: (UInt64) -> Int64
  ) {
    let count = (refusals[kind] ?? 0) + 1
    refusals[kind] = count
    halts[kind] = Halt(error: error, end: now &+ UInt64(milliseconds(count)) &* 1_000_000)
  }

  /// The server has taken a change. After a save the storage is not full. A deletion may have freed some of it: the wait is the
  /// shortest one then, and no less, for an app that deletes all the time.
  mutating func taken(_ id: RecordID, isDeletion: Bool, _ wait: OverQuotaWait, at now: UInt64) {
    refusals[.changes(id.zone)] = nil
    let saves = Kind.saves(to: id.zone)
    if !isDeletion {
      refusals[saves] = nil
    } else if let full = halts[saves] {
      halts[saves]?.end = min(full.end, now &+ UInt64(wait.milliseconds(attempts: 1)) &* 1_000_000)
    }
  }

  /// Lifts the halts of whole requests whose wait is over, or all of them.
  ///
  /// - Returns: whether there was one, and the owners whose storage counts as full no more.
  mutating func liftRequests(at now: UInt64, all: Bool) -> (isAny: Bool, owners: Set<CloudName>) {
    let over = halts.filter { all || now >= $0.value.end }.keys
    var owners: Set<CloudName> = []
    for kind in over {
      halts[kind] = nil
      unsent = unsent.filter { !kind.includes($0.key) }
      if case .saves(let owner) = kind { owners.insert(owner) }
    }
    return (!over.isEmpty, owners)
  }

  /// Forgets the zones whose change, the one that was remembered, is not owed any more, or would be sent: another one may be owed.
  ///
  /// - Parameter pending: what is owed of a record.
  /// - Returns: whether there was one.
  mutating func forgetSent(_ pending: (RecordID) throws -> Pending?) rethrows -> Bool {
    let left = try unsent.filter { _, id in try pending(id).map { isHalted(id, $0) } ?? false }
    defer { unsent = left }
    var isOver = left.count < unsent.count
    for (type, halt) in typeHalts {
      // All that is owed was looked at once more since, and none was met.
      guard let id = halt.unsent else {
        typeHalts[type] = nil
        continue
      }
      if try pending(id)?.isDeletion == false { continue }
      typeHalts[type]?.unsent = nil
      isOver = true
    }
    return isOver
  }

  /// Whether the server is known to refuse whatever is like this.
  func contains(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    isHalted(id, pending) || isOfHaltedType(id, entry, pending)
  }

  private func isOfHaltedType(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    guard !typeHalts.isEmpty, !pending.isDeletion else { return false }
    let halt = typeHalts[HaltedType(zone: id.zone, type: entry.type)]
    switch halt?.probe {
    case .records(let ids, _)?: return !ids.contains(id)
    case nil: return false
    default: return true
    }
  }

  private func isHalted(_ id: RecordID, _ pending: Pending) -> Bool {
    guard !halts.isEmpty else { return false }
    return halts[.changes(id.zone)] != nil || (!pending.isDeletion && halts[.saves(to: id.zone)] != nil)
  }

  /// A change is owed that is not sent because of a halt.
  mutating func met(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) {
    if isHalted(id, pending) {
      unsent[id.zone] = id
    } else {
      typeHalts[HaltedType(zone: id.zone, type: entry.type)]?.unsent = id
    }
  }
}
