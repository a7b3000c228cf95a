// What the apps of a simulated world were told: which writes were acknowledged, and which lives were deleted. At the end it
// is held against the records.

internal import Strandline
internal import Synchronization

/// The memory of all apps of a world.
struct WorldMemory {
  /// An acknowledged write of one field.
  struct Write {
    var id: RecordID
    var field: String
    var value: FieldValue?
    var stamp: FieldStamp
    var births: Set<Birth>
    /// What the writing device knew.
    var seen: [WriterID: Seen]
    var device: Int
    var writer: WriterID
    var tenure: UInt64
    var lsn: LSN
    /// The true time.
    var milliseconds: Int64
    /// How far the device's time may have been off.
    var errorMilliseconds: Int64
    /// The disk that held it was put back to an earlier state: it may be gone.
    var isForfeit = false

    /// Whether it was made after another one, by the same log or by one that had seen it.
    ///
    /// - Parameter logs: the tenures of each device's log.
    func replaces(_ other: Write, _ logs: [[Tenure]]) -> Bool {
      if device == other.device, writer == other.writer, lsn > other.lsn { return true }
      guard let seen = seen[other.writer] else { return false }
      if seen.tenure == other.tenure { return seen.lsn >= other.lsn }
      // A version of a later tenure of a log includes what the log had of the earlier ones.
      return logs.contains { tenures in
        guard let old = tenures.firstIndex(where: { $0.tenure == other.tenure }),
          let new = tenures.firstIndex(where: { $0.tenure == seen.tenure }), old < new
        else { return false }
        return other.lsn < tenures[old + 1].first
      }
    }
  }
  /// A deletion that an app was told of.
  private struct Deletion {
    var id: RecordID
    var births: Set<Birth>
    var device: Int
    var lsn: LSN
    var isForfeit = false
  }
  /// A default that an app was told to be saved.
  private struct Default {
    var id: RecordID
    var device: Int
    var lsn: LSN
    var isForfeit = false
  }
  /// A transaction that a power cut interrupted, or that was refused because the store's folder was moved.
  struct Interrupted {
    /// The last event before it.
    var before: LSN
    /// The value that all its fields have.
    var mark: String
    var count: Int
    /// The app was told that nothing of it is there.
    var isRefused = false
  }

  private(set) var writes: [Write] = []
  private var deletions: [Deletion] = []
  private var defaults: [Default] = []
  /// Births whose deletion was begun and perhaps not done.
  private var perhapsDead: [RecordID: Set<Birth>] = [:]
  /// Events that were acknowledged and have not been compacted since, with their records, by device.
  var acknowledged: [Int: [LSN: RecordID?]] = [:]
  var interrupted: [Int: Interrupted] = [:]
  /// Of each device whose disk was copied to a new one, or is such a copy, or was put back, the last event that both logs have.
  private var copies: [Int: [LSN]] = [:]
  private var forgetful: Set<Int> = []
  /// Records that another tool has written.
  var foreign: Set<RecordID> = []
  /// Records that were created under another type.
  var retyped: Set<RecordID> = []
  /// The zones about which a person has decided, by device.
  private var decided: [Int: Set<ZoneID>] = [:]
  /// Whether the last sync met a refusal of a single record.
  var hasRefused = false
  let meanwhile = WritesMeanwhile()
  let begunCompactions = Atomic64()
  let compacted = Atomic64()

  mutating func remember(_ more: [Write]) { writes += more }

  /// A person has said which side of a zone counts for a device.
  mutating func decided(_ device: Int, _ zone: ZoneID) { decided[device, default: []].insert(zone) }
  func hasDecided(_ device: Int, _ zone: ZoneID) -> Bool { decided[device]?.contains(zone) == true }

  mutating func saved(defaultOf id: RecordID, by device: Int, at lsn: LSN) {
    defaults.append(Default(id: id, device: device, lsn: lsn))
  }
  /// Whether an app was told that a default is saved, and its disk was not put back to before.
  func hasDefault(of id: RecordID) -> Bool { defaults.contains { $0.id == id && !$0.isForfeit } }

  mutating func dead(_ id: RecordID, _ births: Set<Birth>, by device: Int, at lsn: LSN) {
    deletions.append(Deletion(id: id, births: births, device: device, lsn: lsn))
  }
  mutating func mayBeDead(_ id: RecordID, _ births: Set<Birth>) { perhapsDead[id, default: []].formUnion(births) }

  /// A device's disk was copied to another one.
  mutating func copied(_ device: Int, to copy: Int, at lsn: LSN) {
    copies[device, default: []].append(lsn)
    copies[copy, default: []].append(lsn)
    forgetful.formUnion([device, copy])
    // What a person has decided is in the log.
    decided[copy] = decided[device]
  }

  /// Whether a device's log lacks what was sent from it: its disk was put back, or there is another one with the same past.
  func hasForgotten(_ device: Int) -> Bool { forgetful.contains(device) }

  /// Whether another log with the same past, or the disk of before, has one event of a device's log and not another.
  func isCopied(_ device: Int, with lsn: LSN, without later: LSN) -> Bool {
    copies[device]?.contains { $0 >= lsn && $0 < later } ?? false
  }

  /// A device's disk was put back: what it was told after an event may be gone.
  mutating func forfeit(_ device: Int, after lsn: LSN) {
    copies[device, default: []].append(lsn)
    for index in writes.indices where writes[index].device == device && writes[index].lsn > lsn {
      writes[index].isForfeit = true
    }
    for index in deletions.indices where deletions[index].device == device && deletions[index].lsn > lsn {
      deletions[index].isForfeit = true
    }
    for index in defaults.indices where defaults[index].device == device && defaults[index].lsn > lsn {
      defaults[index].isForfeit = true
    }
    acknowledged[device] = nil
    interrupted[device] = nil
    forgetful.insert(device)
  }

  /// The births whose deletion an app was told of.
  ///
  /// - Parameter spared: by device, the births whose deletion was given up later.
  func mustBeDead(_ id: RecordID, except spared: [Set<Birth>]) -> Set<Birth> {
    deletions.filter { $0.id == id && !$0.isForfeit }.reduce(into: []) {
      $0.formUnion($1.births.subtracting(spared[$1.device]))
    }
  }
  /// All births that may have been deleted.
  func mayBeDead(_ id: RecordID) -> Set<Birth> {
    deletions.filter { $0.id == id }.reduce(into: perhapsDead[id] ?? []) { $0.formUnion($1.births) }
  }
}

extension WorldMemory.Write {
  /// The writes of fields that a transaction made.
  static func all(
    _ lsns: ClosedRange<LSN>, _ changes: [WorldChange], on device: WorldDevice, in store: RecordStore,
    at milliseconds: Int64
  ) throws -> [Self] {
    var writes: [Self] = []
    for number in lsns.lowerBound.rawValue...lsns.upperBound.rawValue {
      let lsn = LSN(rawValue: number)
      let event = try store.source.event(at: lsn)
      guard let loaded = try LoadedVersion(event, at: lsn), let id = event.recordID else { continue }
      for change in changes {
        let field: String
        switch change {
        case .set(_, let number, _, _), .create(_, _, let number), .edit(_, let number):
          field = WorldPlan.fields[number]
        default: continue
        }
        guard WorldNames.each.contains(where: { $0.records[change.record] == id }) else { continue }
        guard let stamp = loaded.version.stamp.fields[field], loaded.dirty[field] == lsn else { continue }
        writes.append(
          Self(
            id: id, field: field, value: loaded.version.fields[field], stamp: stamp,
            births: loaded.version.stamp.births, seen: loaded.version.stamp.seen, device: device.number,
            writer: stamp.writer, tenure: loaded.own?.tenure ?? 0, lsn: lsn, milliseconds: milliseconds,
            errorMilliseconds: device.clock.errorMilliseconds))
      }
    }
    return writes
  }
}

/// What apps were told while a sync was under way.
final class WritesMeanwhile: Sendable {
  private let writes = Mutex<(count: Int, fields: [WorldMemory.Write])>((0, []))

  func add(_ more: [WorldMemory.Write]) {
    writes.withLock { writes in
      writes.count += 1
      writes.fields += more
    }
  }

  /// How many transactions there were, and the fields that they wrote.
  func take() -> (count: Int, fields: [WorldMemory.Write]) {
    writes.withLock { writes in
      defer { writes = (0, []) }
      return writes
    }
  }
}
