// One cycle: pull, push, and pull again if anything conflicted.
//
// Follow one fetched page: Cycle+Pull asks and commits, Intake decides record by record, StoreCore appends. Follow one
// upload: Cycle+Push plans with UploadPlan; Cycle+Sending marks `sent`, asks, and settles record by record.

import StrandlineSystem
import Synchronization

/// One cycle's work and memory. It forgets everything at its end: what must outlive it is in the log.
struct Cycle {
  let store: RecordStore
  let database: any CloudDatabase
  let options: CycleOptions
  var lane: Lane
  var report = SyncReport()
  /// The tag with which a record met a conflict in this cycle: it is never sent again under the same one.
  var refusedTags: [RecordID: String] = [:]
  /// Records that the server says it does not have, and whose tombstone the feed has not brought.
  var missing: Set<RecordID> = []
  var hasConflicted = false

  /// How often a batch may still be halved.
  var splitsLeft = 18
  /// Zones that the server would not show, each with its words; the others go on.
  var refusedZones: [ZoneID: CloudError] = [:]

  init(store: RecordStore, database: any CloudDatabase, options: CycleOptions, memory: PaceMemory) {
    self.store = store
    self.database = database
    self.options = options
    self.lane = Lane(store: store, options: options, memory: memory)
  }

  /// Runs the cycle; what it has done is in the report, also when it throws.
  mutating func run() async throws {
    // Cycles run one after the other: what was being sent is answered or marked as attempted.
    defer { store.core.withLock { $0.sending = [] } }
    do {
      try await identify()
      if options.direction != .pushOnly { try await pull() }
      if options.direction != .pullOnly { try await pushAndPullAgain() }
      if let refusal = refusedZones.min(by: { $0.key < $1.key }) { throw refusal.value }
    } catch let error as CloudError {
      throw error.asStrandlineError("syncing '\(store.path)'")
    }
  }

  private mutating func pushAndPullAgain() async throws {
    if options.direction == .pushOnly, hasOpenAttempts() { try await pull() }
    try await push()
    if hasConflicted, options.direction == .both { try await pull() }
  }

  /// What is done so far.
  var total: SyncReport {
    var total = report
    total.add(lane.report)
    return total
  }

  var sync: SyncState { store.core.withLock { $0.projections.sync } }

  /// An upload whose outcome nobody heard: look before sending again.
  private func hasOpenAttempts() -> Bool {
    store.core.withLock { core in
      core.projections.outbox.all.contains { lsn in
        guard let id = core.projections.outbox.records[lsn] else { return false }
        return core.projections.records[id]?.pending?.attempted != nil
      }
    }
  }

  /// Whose account this is. A store belongs to one container, environment, database and user for life.
  private mutating func identify() async throws {
    let user = try await lane.ask("asking who is signed in") { [database] in try await database.user() }
    let address = database.address
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325  // FNV-1a, 64 bits: to know the user again, not to name one
    for byte in user.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
    let bound = Bound(
      container: address.container, environment: address.environment, scope: address.scope, userHash: hash)
    guard let known = sync.bound else {
      try await store.commit { $0.append(.bound(bound)) }
      return
    }
    guard known == bound else {
      let what =
        known.userHash != bound.userHash
        ? "another user" : "'\(known.container)' \(known.environment) \(known.scope)"
      throw StrandlineError(
        .accountMismatch,
        "the store at '\(store.path)' belongs to \(what), not to '\(bound.container)' \(bound.environment) \(bound.scope) "
          + "of this user; nothing was sent; open another store for this account")
    }
  }
}
