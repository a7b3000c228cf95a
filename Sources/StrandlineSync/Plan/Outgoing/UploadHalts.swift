// Halts: refusals that do not depend on the single record. The server refuses every record of a type, every save to full storage,
// every change of a read-only zone, or the erasure of a zone. Holding such records one by one would cost a request for each, so
// nothing of the kind is sent until the halt ends.
//
// A halted type lets one record through in a user-initiated cycle, and by itself after a wait that doubles with each refusal:
// first a record that was not refused yet or was edited since. With it go its whole upload set and the records that it needs, also those
// of a halted type, as those of a set or a circle can only go together. If the server accepts it, the halt ends. Deletions are always
// sent.
//
// A halt of whole requests ends with a user-initiated cycle, or after such a wait: otherwise each write of the app would cost a
// refused request. A deletion resets the wait for full storage to the first one. A relaunch ends every halt.

import StrandlineSystem

/// The halts of one engine.
package struct UploadHalts: Sendable {
  /// The records of one type in a zone.
  package struct HaltedType: Hashable, Sendable {
    package var zone: ZoneID
    package var type: String
  }

  /// The kinds of whole requests that the server may refuse.
  private enum Kind: Hashable, Sendable {
    /// Saves to the zones of an owner, whose storage is full.
    case saves(owner: CloudName)
    /// Changes of a zone.
    case changes(ZoneID)
    /// The erasure of a zone.
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

  /// The halt of a type.
  private struct TypeHalt: Sendable {
    /// The record that is sent though the type is halted.
    enum Probe: Hashable, Sendable {
      case none
      /// The next one that was not refused yet (`isNew`), or the next of any.
      case next(isNew: Bool)
      /// This one, with the rest of its upload set and what it needs, until the server accepts or refuses it.
      case records(Set<RecordID>, isNew: Bool)

      var ids: Set<RecordID> { if case .records(let ids, _) = self { ids } else { [] } }
    }
    var error: CloudError
    /// When the next record is let through, by the monotonic clock.
    var end: UInt64
    /// How often in a row it was refused.
    var refusals: UInt64
    /// The changes that were refused.
    var refused: [RecordID: LSN] = [:]
    var probe = Probe.none
    /// Records that were let through and had to wait for something else.
    var skipped: Set<RecordID> = []
    /// A record that this halt keeps back; nil if none was read.
    var unsent: RecordID?
  }

  private var typeHalts: [HaltedType: TypeHalt] = [:]
  private var halts: [Kind: Halt] = [:]
  /// How often in a row each was refused.
  private var refusals: [Kind: UInt64] = [:]
  /// Zones with pending changes that such a halt keeps back, each with one of the records.
  private var unsent: [ZoneID: RecordID] = [:]

  /// Zones with pending changes that are kept back because whole requests are refused, each with the refusal.
  var refusedZones: [ZoneID: CloudError] {
    var refused: [ZoneID: CloudError] = [:]
    for zone in unsent.keys { refused[zone] = (halts[.changes(zone)] ?? halts[.saves(to: zone)])?.error }
    return refused
  }

  /// Zones and types of which every record was refused with the same words.
  package var types: [HaltedType: CloudError] { typeHalts.mapValues(\.error) }
  var hasTypes: Bool { !typeHalts.isEmpty }
  var isAny: Bool { hasTypes || !halts.isEmpty }

  /// When the first halt lets something through.
  var nextTry: UInt64? { (halts.values.map(\.end) + typeHalts.values.map(\.end)).min() }

  /// When the halt of whole requests to a zone ends; nil if there is none.
  package func nextTry(of zone: ZoneID) -> UInt64? {
    [.changes(zone), .saves(to: zone), .erasure(zone)].lazy.compactMap { halts[$0]?.end }.first
  }

  /// When a type is tried again; nil if it is not refused.
  package func nextTry(of type: HaltedType) -> UInt64? { typeHalts[type]?.end }

  /// Halts a type: from now on only its deletions are sent, and one record now and then.
  ///
  /// - Parameter items: the records that were refused.
  mutating func halt(_ type: HaltedType, _ items: [UploadItem], because error: CloudError, at now: UInt64) {
    var halt = typeHalts[type] ?? TypeHalt(error: error, end: now, refusals: 0)
    (halt.error, halt.probe, halt.refusals) = (error, .none, halt.refusals + 1)
    halt.end = Self.end(attempts: halt.refusals, at: now)
    for item in items { halt.refused[item.id] = item.lsn }
    halt.unsent = items.first?.id ?? halt.unsent
    typeHalts[type] = halt
  }

  /// Lets one record through of each halted type whose wait is over, or of all of them.
  ///
  /// - Returns: whether there is such a type.
  mutating func probeTypes(at now: UInt64, all: Bool) -> Bool {
    let due = typeHalts.filter { all || now >= $0.value.end }
    for (type, halt) in due {
      typeHalts[type]?.probe = .next(isNew: true)
      typeHalts[type]?.skipped = []
      // If the record is not sent, the next one is let through then.
      typeHalts[type]?.end = Self.end(attempts: halt.refusals + 1, at: now)
    }
    return !due.isEmpty
  }

  /// Everything pending was read. If a halted type had no record that was not refused yet, any record is let through.
  ///
  /// - Returns: whether everything has to be read again for that.
  mutating func probeAny() -> Bool {
    var isChanged = false
    for (type, halt) in typeHalts where halt.probe == .next(isNew: true) {
      typeHalts[type]?.probe = .next(isNew: false)
      isChanged = true
    }
    return isChanged
  }

  /// The server has accepted a record of a type.
  ///
  /// - Returns: whether the type was halted.
  mutating func taken(_ type: HaltedType) -> Bool { typeHalts.removeValue(forKey: type) != nil }

  /// Whether a record of a halted type is let through. If none was chosen yet, it may be this one.
  ///
  /// - Parameter together: the records of its upload set.
  mutating func letsThrough(
    _ id: RecordID, _ entry: RecordEntry, _ pending: Pending, together: [RecordID] = []
  ) -> Bool {
    let type = HaltedType(zone: id.zone, type: entry.type)
    guard let halt = typeHalts[type], !isHalted(id, pending) else { return false }
    switch halt.probe {
    case .none: return false
    case .records(let ids, _): return ids.contains(id)
    case .next(let isNew):
      if halt.skipped.contains(id) { return false }
      if isNew, let refused = halt.refused[id], refused >= pending.newest { return false }
      typeHalts[type]?.probe = .records(Set(together).union([id]), isNew: isNew)
      return true
    }
  }

  /// A record that is let through takes along one that it needs, whatever its type: that one may need a record of the halted type in
  /// turn, or be of another type that is halted.
  ///
  /// - Returns: whether it goes along, and did not before.
  mutating func letAlong(_ id: RecordID, with other: RecordID, _ pending: Pending) -> Bool {
    guard !isHalted(id, pending) else { return false }
    var isAdded = false
    for type in typeHalts.keys where type.zone == id.zone {
      guard case .records(var ids, let isNew)? = typeHalts[type]?.probe, ids.contains(other) else { continue }
      // Not copied for each record.
      typeHalts[type]?.probe = .none
      isAdded = ids.insert(id).inserted || isAdded
      typeHalts[type]?.probe = .records(ids, isNew: isNew)
    }
    return isAdded
  }

  /// Whether a record is let through, or goes along with one that is.
  func isLetThrough(_ id: RecordID) -> Bool { typeHalts.values.contains { $0.probe.ids.contains(id) } }

  /// The server has refused a record that was let through, for a reason of its own: until the halt's wait is over no other one is.
  mutating func refused(_ id: RecordID) {
    for (type, halt) in typeHalts where halt.probe.ids.contains(id) { typeHalts[type]?.probe = .none }
  }

  /// A record that was let through has to wait for something else: the next one is let through.
  mutating func waits(_ id: RecordID) {
    for (type, halt) in typeHalts where type.zone == id.zone {
      guard case .records(let ids, let isNew) = halt.probe, ids.contains(id) else { continue }
      typeHalts[type]?.probe = .next(isNew: isNew)
      typeHalts[type]?.skipped.formUnion(ids)
    }
  }

  /// The storage of a zone's owner is full: only deletions, which free storage, are sent to the owner's zones.
  ///
  /// - Parameter id: one of the saves.
  mutating func haltSaves(of id: RecordID, because error: CloudError, at now: UInt64) {
    halt(.saves(to: id.zone), because: error, at: now)
    unsent[id.zone] = id
  }

  /// The server has refused a request because of its zone: no change of the zone is sent.
  ///
  /// - Parameter id: one of the changes.
  mutating func haltChanges(of id: RecordID, because error: CloudError, at now: UInt64) {
    halt(.changes(id.zone), because: error, at: now)
    unsent[id.zone] = id
  }

  /// The server has refused to erase a zone: it is not asked again before the halt ends.
  mutating func haltErasure(of zone: ZoneID, because error: CloudError, at now: UInt64) {
    halt(.erasure(zone), because: error, at: now)
  }

  /// Why a zone is not erased now.
  func refusedErasure(of zone: ZoneID) -> CloudError? { halts[.erasure(zone)]?.error }

  /// Forgets the refusals of erasures that are over, or that the app has taken back.
  ///
  /// - Parameter wanted: the zones that the app wants erased.
  mutating func keepErasures(of wanted: [ZoneID]) {
    func isOver(_ kind: Kind) -> Bool { if case .erasure(let zone) = kind { !wanted.contains(zone) } else { false } }
    halts = halts.filter { !isOver($0.key) }
    refusals = refusals.filter { !isOver($0.key) }
  }

  private mutating func halt(_ kind: Kind, because error: CloudError, at now: UInt64) {
    let count = (refusals[kind] ?? 0) + 1
    refusals[kind] = count
    halts[kind] = Halt(error: error, end: Self.end(attempts: count, at: now))
  }

  private static func end(attempts: UInt64, at now: UInt64) -> UInt64 {
    now &+ UInt64(SyncPlan.holdMilliseconds(attempts: attempts)) &* 1_000_000
  }

  /// The server has accepted a change. After a save the storage is not full. A deletion may have freed some of it: the wait becomes the
  /// first, shortest one, and not less, as the app may delete all the time.
  mutating func taken(_ id: RecordID, isDeletion: Bool, at now: UInt64) {
    refusals[.changes(id.zone)] = nil
    let saves = Kind.saves(to: id.zone)
    if !isDeletion {
      refusals[saves] = nil
    } else if let full = halts[saves] {
      halts[saves]?.end = min(full.end, Self.end(attempts: 1, at: now))
    }
  }

  /// Lifts the halts of whole requests whose wait is over, or all of them.
  ///
  /// - Returns: whether there was one, and the owners whose storage is not treated as full any more.
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

  /// Forgets remembered records that are not pending or not halted any more. Others may be, which reading everything again finds.
  ///
  /// - Parameter pending: the pending change of a record.
  /// - Returns: whether there was one.
  mutating func forgetSent(_ pending: (RecordID) throws -> Pending?) rethrows -> Bool {
    let left = try unsent.filter { _, id in try pending(id).map { isHalted(id, $0) } ?? false }
    defer { unsent = left }
    var isOver = left.count < unsent.count
    for (type, halt) in typeHalts {
      // Everything was read again since, and the halt kept nothing back.
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

  /// Whether a halt keeps a change back.
  func contains(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    isHalted(id, pending) || isOfHaltedType(id, entry, pending)
  }

  private func isOfHaltedType(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) -> Bool {
    !pending.isDeletion && typeHalts[HaltedType(zone: id.zone, type: entry.type)] != nil
      && !isLetThrough(id)
  }

  private func isHalted(_ id: RecordID, _ pending: Pending) -> Bool {
    guard !halts.isEmpty else { return false }
    return halts[.changes(id.zone)] != nil || (!pending.isDeletion && halts[.saves(to: id.zone)] != nil)
  }

  /// Remembers a pending change that a halt keeps back.
  mutating func met(_ id: RecordID, _ entry: RecordEntry, _ pending: Pending) {
    if isHalted(id, pending) {
      unsent[id.zone] = id
    } else {
      typeHalts[HaltedType(zone: id.zone, type: entry.type)]?.unsent = id
    }
  }
}
