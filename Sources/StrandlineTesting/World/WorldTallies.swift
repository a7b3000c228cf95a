// Records that several devices change alike on purpose, under rules that have to count both: what the apps were told, and
// what must come of it.
//
// These records have names and a type of their own, so that nothing but these changes happens to them: no other rule, no
// deletion and no other tool explains a count that is wrong.

internal import Strandline
internal import StrandlineSystem
internal import Synchronization

/// A change that another device makes too.
enum WorldTallyChange: Hashable, Sendable {
  /// Adds to the counter.
  case add(Int)
  /// Adds an item to the set.
  case tag(Int)
  /// Raises the greatest number by one.
  case raise

  /// What the record begins with, on every device that creates it.
  static let beginning: [String: FieldValue] = ["sum": 0, "tags": .list(.strings, ["begun"]), "best": 0]

  /// The rules of the records.
  static let rules: TypeRules = {
    var rules = TypeRules()
    rules.fields = ["sum": .counter, "tags": .union, "best": .greatest]
    return rules
  }()

  func apply(to record: inout Record) {
    func number(_ field: String) -> Int64 { if case .int64(let number)? = record[field] { number } else { 0 } }
    switch self {
    case .add(let count): record["sum"] = .int64(number("sum") + Int64(count))
    case .tag(let item):
      guard case .list(_, let items)? = record["tags"], !items.contains(Self.tag(item)) else { return }
      record["tags"] = .list(.strings, items + [Self.tag(item)])
    case .raise: record["best"] = .int64(number("best") + 1)
    }
  }

  fileprivate static func tag(_ item: Int) -> FieldValue { .string("tag\(item)") }
}

/// What the apps of a world were told of such changes.
final class WorldTallies: Sendable {
  private struct Change {
    var id: RecordID
    var device: Int
    /// Of the event; none for a write that a power cut interrupted.
    var lsn: LSN
    var what: WorldTallyChange
    /// The greatest number that it wrote.
    var best: Int64
    /// The lives of the record that it changed, and the tag of the server's version that it was made from.
    var births: Set<Birth> = []
    var tag: String?
    /// It may be there or not: a power cut interrupted it, or its disk was put back.
    var isDoubtful: Bool
  }
  private struct State {
    var changes: [Change] = []
    /// The devices that have one past with another log, or of which a disk was put back: what of a log's changes the other has sent is
    /// not known.
    var copied: Set<Int> = []
    var deletedZones: Set<ZoneID> = []
  }
  private let state = Mutex(State())
  private let names: WorldNames

  init(_ names: WorldNames) { self.names = names }

  /// Whether an app may change a record now: it creates it, or the server has it. Of two creations of one name nothing says what
  /// each has added.
  func mayChange(_ id: RecordID, in store: RecordStore) throws -> Bool {
    guard let entry = try store.projections.entry(id) else { return true }
    return entry.base != nil
  }

  func remember(_ lsns: ClosedRange<LSN>, _ changes: [WorldChange], on device: Int, in store: RecordStore) throws {
    for case .tally(let record, let what) in changes {
      let id = names.records[record]
      for lsn in lsns.lowerBound.rawValue...lsns.upperBound.rawValue {
        let lsn = LSN(rawValue: lsn)
        guard case .saved(let saved) = try store.source.event(at: lsn), saved.id == id, saved.base != .zero,
          let fields = try LoadedVersion(.saved(saved), at: lsn)?.version.fields
        else { continue }
        var best: Int64 = 0
        if case .int64(let number)? = fields["best"] { best = number }
        let base = try store.projections.entry(id)?.base
        let change = Change(
          id: id, device: device, lsn: lsn, what: what, best: best, births: saved.births,
          tag: base?.version == saved.base ? base?.changeTag : nil, isDoubtful: false)
        state.withLock { $0.changes.append(change) }
      }
    }
  }

  /// A power cut interrupted a write.
  func interrupt(_ changes: [WorldChange], on device: Int) {
    for case .tally(let record, let what) in changes {
      let change = Change(
        id: names.records[record], device: device, lsn: .zero, what: what, best: .max, isDoubtful: true)
      state.withLock { $0.changes.append(change) }
    }
  }

  func copy(_ device: Int, to copy: Int) { state.withLock { $0.copied.formUnion([device, copy]) } }

  /// A device's disk was put back: what it was told after an event may be gone.
  func forfeit(_ device: Int, after lsn: LSN) {
    state.withLock { state in
      state.copied.insert(device)
      for place in state.changes.indices where state.changes[place].device == device && state.changes[place].lsn > lsn {
        state.changes[place].isDoubtful = true
      }
    }
  }

  /// A zone was deleted, with all that its records had counted.
  func delete(_ zone: ZoneID) { state.withLock { _ = $0.deletedZones.insert(zone) } }

  /// What a record is at rest.
  struct Life {
    /// The births of its lives.
    var births: Set<Birth>
    /// The tags that it has had at the server since it, or its zone, was deleted last.
    var tags: [String]
  }

  /// What is wrong with a record at rest; nil if it has what the apps were told.
  func broken(_ id: RecordID, _ record: Record?, _ life: Life) -> String? {
    let (all, copied, isDeleted) = state.withLock { state in
      (state.changes.filter { $0.id == id }, state.copied, state.deletedZones.contains(id.zone))
    }
    // Of a zone that was deleted, or emptied, only what was made from a version of the life that is there must be there.
    let sure = all.filter { change in
      if change.isDoubtful { return false }
      guard isDeleted else { return true }
      guard let tag = change.tag else { return false }
      return change.births == life.births && life.tags.contains { $0.equalsUTF8(tag) }
    }
    guard let record else { return sure.isEmpty ? nil : "\(id) is gone, and nobody deleted it" }
    // Where lives were put together that have no version in common, nothing says what each has counted of the other.
    let isBounded = !isDeleted || life.births.count == 1
    func sum(_ changes: [Change]) -> Int64 {
      changes.reduce(0) { if case .add(let count) = $1.what { $0 + Int64(count) } else { $0 } }
    }
    func tags(_ changes: [Change]) -> Set<FieldValue> {
      Set(changes.compactMap { if case .tag(let item) = $0.what { WorldTallyChange.tag(item) } else { nil } })
    }
    guard case .int64(let count)? = record["sum"], case .int64(let best)? = record["best"],
      case .list(_, let items)? = record["tags"]
    else { return "\(id) lacks a field: \(record)" }
    // Where two logs have one past, an increment that both owe must not count twice, and one may not be told from the other's.
    if (isBounded && count > sum(all)) || count < sum(sure.filter { !copied.contains($0.device) }) {
      return
        "\(id).sum is \(count), and the apps have added \(sum(sure))\(all.count > sure.count ? " to \(sum(all))" : "")"
    }
    let lacks = tags(sure).subtracting(items)
    if !lacks.isEmpty { return "\(id).tags lacks \(lacks), which was added and never removed" }
    if Set(items).count != items.count { return "\(id).tags has an item twice: \(items)" }
    if best < sure.map(\.best).max() ?? 0 || best > all.map(\.best).max() ?? 0 {
      return "\(id).best is \(best), and the apps have written \(sure.map(\.best).max() ?? 0)"
    }
    return nil
  }
}
