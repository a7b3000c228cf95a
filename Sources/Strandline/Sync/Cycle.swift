// One cycle: pull, push, and pull again if anything conflicted.
//
// The path of a fetched page: Cycle+Pull requests it and opens a transaction, IntakeDecision decides record by record,
// Intake appends to StoreCore. The path of an upload: Cycle+Push plans it with UploadPlan; Cycle+Sending appends `sent`,
// sends the request, and settles record by record.

import StrandlineSystem
import Synchronization

/// One cycle and what it remembers. What must outlive the cycle is in the log.
struct Cycle {
  let store: RecordStore
  let database: any CloudDatabase
  let options: CycleOptions
  var pacer: RequestPacer
  var report = SyncReport()
  /// The change tag with which a record met a conflict in this cycle: the record is not sent again with the same one.
  var conflictingTags: [RecordID: String] = [:]
  /// Records that the server answered NOT_FOUND for, and whose tombstone the feed has not brought.
  var missing: Set<RecordID> = []
  var hasConflicted = false

  /// How often batches of this cycle may still be halved.
  var splitsLeft = 18
  /// The most operations in a request: fewer once the server has refused as many. Halves of a batch are not sent where the
  /// app has replaced what is in them, and it may do so during every request; a batch that is made small is sent at once.
  var operationsMax = UploadPlan.operationsMax
  /// Zones whose fetch the server refused, each with its error.
  var refusedZones: [ZoneID: CloudError] = [:]

  init(store: RecordStore, database: any CloudDatabase, options: CycleOptions, memory: PaceMemory) {
    self.store = store
    self.database = database
    self.options = options
    self.pacer = RequestPacer(store: store, scope: database.address.scope, options: options, memory: memory)
  }

  /// Runs the cycle. `total` says what it has done, also when it throws.
  mutating func run() async throws {
    // Cycles run one after the other, so at the end of one no request is under way.
    defer { store.projections.endsSending() }
    do {
      // A copy says so first: what is unsent in it may have been sent by the original.
      if store.core.withLock({ $0.hasNewName }) { try await store.commit { try $0.appendOpened() } }
      try await checkAccount()
      if options.direction != .pushOnly { try await pull() }
      if options.direction != .pullOnly { try await pushAndPullAgain() }
      if let refusal = refusedZones.min(by: { $0.key < $1.key }) { throw refusal.value }
    } catch let error as CloudError {
      throw error.asStrandlineError("syncing '\(store.path)'")
    }
  }

  private mutating func pushAndPullAgain() async throws {
    if options.direction == .pushOnly, hasUnansweredUploads() { try await pull() }
    try await push()
    if hasConflicted, options.direction == .both { try await pull() }
  }

  /// What the cycle has done so far.
  var total: SyncReport {
    var total = report
    total.add(pacer.report)
    return total
  }

  var sync: SyncState { store.projections.sync }

  /// The one database that this syncs. What the store holds of the others is not touched.
  var scope: DatabaseScope { database.address.scope }

  /// Whether the answer to an upload was lost, to whichever database. Such a mutation may be at the server: fetch before
  /// sending it again.
  private func hasUnansweredUploads() -> Bool {
    store.projections.withLock { !$0.outbox.attempted.isEmpty }
  }

  /// Asks who is signed in, and throws if it is not the account that the store belongs to. A store belongs to one
  /// container, environment and user for life, with all its databases; its first cycle decides which.
  private mutating func checkAccount() async throws {
    let user = try await pacer.send("asking who is signed in") { [database] in try await database.user() }
    let address = database.address
    let bound = Bound(
      container: address.container, environment: address.environment, scope: address.scope,
      userHash: Bound.hash(ofUser: user))
    let known = sync.bounds
    if let other = known.values.first(where: { !$0.isSameAccount(as: bound) }) {
      let what = other.userHash != bound.userHash ? "another user" : "'\(other.container)' \(other.environment)"
      throw StrandlineError(
        .accountMismatch,
        "the store at '\(store.path)' belongs to \(what), not to '\(bound.container)' \(bound.environment) of this user; "
          + "nothing was sent; open another store for this account")
    }
    if known[scope] == nil { try await store.commit { try $0.append(.bound(bound)) } }
  }
}

extension Bound {
  /// Whether both are of one container, environment and user.
  fileprivate func isSameAccount(as other: Bound) -> Bool {
    container == other.container && environment == other.environment && userHash == other.userHash
  }
}
