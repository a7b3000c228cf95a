// What a device's log says of itself, read without the store's own answers: which mutations were acknowledged and
// which of them have an outcome, which lives were deleted, which live.

package import Strandline
import StrandlineLog
package import StrandlineSystem

/// One reading of a device's log, from its first event to its last durable one.
package struct DeviceReading {
  /// Mutations without an outcome.
  package private(set) var open: [RecordID: [LSN]] = [:]
  /// Mutations in all.
  package private(set) var mutations = 0
  /// Outcomes by name.
  package private(set) var outcomes: [RecordID: Set<Outcome>] = [:]
  /// Records of which a version was refused here, because it would have brought back what is deleted or old.
  package private(set) var blocked: Set<RecordID> = []
  /// Living records of whose births every one was deleted.
  package private(set) var resurrected: [RecordID] = []
  package private(set) var lastLSN: LSN = .none

  private var deletedBirths: [RecordID: Set<Birth>] = [:]

  private init() {}

  package init(_ path: String, _ environment: SystemEnvironment) throws {
    let reader = try LogReader.open(at: path, role: .store, environment: environment)
    var projections = Projections()
    var result = DeviceReading()
    try reader.poll { event in
      let decoded = try EventSource.decode(event)
      let lsn = LSN(event.lsn)
      projections.apply(decoded, at: lsn, isDurable: true)
      result.take(decoded, at: lsn)
    }
    result.lastLSN = LSN(reader.lastLSN)
    for (zone, names) in projections.records.zones {
      for (name, entry) in names {
        guard let view = entry.view else { continue }
        let id = RecordID(name, zone: zone)
        guard let dead = result.deletedBirths[id] else { continue }
        let births = try Self.births(EventSource.decode(reader.read(view.rawValue)))
        if !births.isEmpty, births.isSubset(of: dead) { result.resurrected.append(id) }
      }
    }
    self = result
  }

  /// Mutations without an outcome, all together.
  package var openCount: Int { open.values.reduce(0) { $0 + $1.count } }

  private mutating func take(_ event: Event, at lsn: LSN) {
    switch event {
    case .saved(let saved): begin(saved.id, lsn)
    case .deleted(let deleted):
      begin(deleted.id, lsn)
      deletedBirths[deleted.id, default: []].formUnion(deleted.births)
    case .merged(let merged):
      end(merged.id, upTo: merged.local, .merged)
      begin(merged.id, lsn)
    case .settled(let settled): end(settled.id, upTo: settled.lsn, settled.outcome)
    case .discarded(let discarded): end(discarded.id, upTo: discarded.lsn, .discarded)
    case .fetchedDelete(let fetched): deletedBirths[fetched.id, default: []].formUnion(fetched.births)
    case .blocked(let refused): if refused.subject == .version { blocked.insert(refused.id) }
    default: break
    }
  }

  private mutating func begin(_ id: RecordID, _ lsn: LSN) {
    mutations += 1
    open[id, default: []].append(lsn)
  }

  private mutating func end(_ id: RecordID, upTo lsn: LSN, _ outcome: Outcome) {
    outcomes[id, default: []].insert(outcome)
    open[id]?.removeAll { $0 <= lsn }
    if open[id]?.isEmpty == true { open[id] = nil }
  }

  private static func births(_ event: Event) -> Set<Birth> {
    switch event {
    case .saved(let event): event.births
    case .merged(let event): event.births
    case .fetchedSave(let event): event.births
    default: []
    }
  }
}
