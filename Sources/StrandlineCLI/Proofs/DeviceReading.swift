// Reads a device's log independently of the store's own code: which mutations have an outcome, which records were
// deleted, and which exist.

package import Strandline
import StrandlineLog
package import StrandlineSystem

/// One reading of a device's log, from its first event to its last durable one.
package struct DeviceReading {
  /// Mutations without an outcome.
  package private(set) var open: [RecordID: [LSN]] = [:]
  /// The number of all mutations.
  package private(set) var mutations = 0
  /// The outcomes of each record's mutations.
  package private(set) var outcomes: [RecordID: Set<Outcome>] = [:]
  /// Records of which the device has blocked a version, because it was deleted here or older than the one here.
  package private(set) var blocked: Set<RecordID> = []
  /// Existing records all of whose births were deleted.
  package private(set) var resurrected: [RecordID] = []
  package private(set) var lastLSN: LSN = .zero

  private var deletedBirths: [RecordID: Set<Birth>] = [:]

  private init() {}

  package init(_ path: String, _ environment: SystemEnvironment) throws {
    let reader = try LogReader.open(at: path, role: .store, environment: environment)
    var projections = Projections()
    var result = DeviceReading()
    try reader.poll { event in
      let decoded = try event.decoded()
      let lsn = LSN(event.lsn)
      try projections.apply(decoded, at: lsn, isDurable: true)
      result.apply(decoded, at: lsn)
    }
    result.lastLSN = LSN(reader.lastLSN)
    for (id, entry) in try projections.allEntries() {
      guard let view = entry.view else { continue }
      guard let dead = result.deletedBirths[id] else { continue }
      let births = try Self.births(reader.read(view.rawValue).decoded())
      if !births.isEmpty, births.isSubset(of: dead) { result.resurrected.append(id) }
    }
    self = result
  }

  /// The number of mutations without an outcome.
  package var openCount: Int { open.values.reduce(0) { $0 + $1.count } }

  private mutating func apply(_ event: Event, at lsn: LSN) {
    switch event {
    case .saved(let saved): begin(saved.id, lsn)
    case .superseded(let saved): begin(saved.id, lsn)
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
