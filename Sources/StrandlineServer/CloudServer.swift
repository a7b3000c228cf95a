// CloudKit's semantics, once: zones, records, tags, tokens, without HTTP. The local server, the simulator and the
// tests all ask this one.
//
// Every request runs alone, under one lock, from validation to the sync of its events; memory follows the journal
// and never runs ahead of it. So an answer speaks of durable state only, a failed commit leaves nothing to undo,
// and the order of the journal is the order of the answers. What that costs, concurrent writers sharing a sync,
// a server for development does not need.

internal import Strandline
package import StrandlineCloudKit
package import StrandlineSystem
internal import Synchronization

/// A cloud of one's own: CloudKit's zones, change tags, feeds and refusals over a journal.
public final class CloudServer: Sendable {
  /// What was asked and done, for tests.
  public struct Statistics: Sendable, Hashable {
    /// Requests by endpoint ("records/modify"), refused ones too.
    public var requests: [String: Int] = [:]
    /// Operations on records that were applied, as the journal has them (cascades not counted).
    public var appliedOperations = 0
    /// Answers that were dropped on purpose.
    public var droppedAnswers = 0
    /// Stale pages that were served.
    public var replayedPages = 0
  }

  struct Core {
    var state: ServerState
    /// Whether this writer's `opened` is in the journal.
    var isOpened = false
    var faults: ServerFaults
    var limits: ServerLimits
    var statistics = Statistics()
    var failure: String?
    /// Tokens below this generation have expired.
    var generation: UInt32 = 0
    /// `records/modify` requests still to come before the answer is dropped.
    var untilDrop: Int?
    /// Requests still to refuse; nil for all.
    var throttled: Int?
    var recordings: [UInt64: Recording] = [:]
    var sessions = SessionTable()
  }

  let core: Mutex<Core>
  let journal: any ServerJournal
  let environment: SystemEnvironment
  private let onLine: @Sendable (String) -> Void

  /// The user that everyone is who does not say otherwise.
  public static let defaultUser = "_737472616e646c696e652d7573657231"

  /// A server over a journal whose events are in `state` already.
  init(
    journal: any ServerJournal, state: ServerState, faults: ServerFaults, limits: ServerLimits,
    environment: SystemEnvironment, onLine: @escaping @Sendable (String) -> Void
  ) {
    self.journal = journal
    self.environment = environment
    self.onLine = onLine
    core = Mutex(Core(state: state, faults: ServerFaults(), limits: limits))
    setFaults(faults)
  }

  /// A server that keeps nothing beyond its own life.
  package convenience init(
    inMemory environment: SystemEnvironment, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    self.init(
      journal: MemoryJournal(random: environment.random), state: ServerState(), faults: faults, limits: limits,
      environment: environment, onLine: onLine)
  }

  /// A server that keeps nothing beyond its own life, for an app's tests.
  public convenience init(faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits()) {
    self.init(inMemory: .real, faults: faults, limits: limits)
  }

  /// A server whose journal lies in a directory; what it answered before it was last ended is there.
  ///
  /// - Parameter idleMarkerMilliseconds: see `LogOptions`; nil for simulations, which want no thread.
  /// - Throws: `StrandlineError`: `.damaged`, `.storeHeld`, `.notAStore`, `.io` and others of the log.
  package convenience init(
    directory: String, faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits(),
    environment: SystemEnvironment, idleMarkerMilliseconds: Int64? = 200,
    onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) throws {
    var state = ServerState()
    do {
      let journal = try LogJournal(
        directory: directory, environment: environment, idleMarkerMilliseconds: idleMarkerMilliseconds
      ) { lsn, body in
        if let event = try JournalEvent.decode(body) { try state.apply(event, at: lsn) } else { state.skip(lsn) }
      }
      self.init(
        journal: journal, state: state, faults: faults, limits: limits, environment: environment, onLine: onLine)
    } catch let error as JournalEventError {
      throw StrandlineError(
        error.isFromNewerVersion ? .fromTheFuture : .damaged, "the server's journal in '\(directory)': \(error)")
    } catch {
      throw StrandlineError.translating(error, "cannot open the server's journal")
    }
  }

  /// Gives the journal back. Requests afterwards are refused.
  public func close() throws {
    let isFirst = core.withLock { core in
      defer { core.failure = core.failure ?? "the server is closed" }
      return core.failure == nil
    }
    if isFirst { try journal.close() }
  }

  // MARK: what tests ask and turn

  /// What was asked and done so far.
  public var statistics: Statistics { core.withLock { $0.statistics } }

  /// Why the server takes nothing any more; nil while it is well.
  public var failure: String? { core.withLock { $0.failure } }

  /// The faults in force.
  public var faults: ServerFaults { core.withLock { $0.faults } }

  /// Changes the faults. Counts (`throttle`, `dropAnswer`) begin anew, and `expireTokens` expires all tokens
  /// given out so far each time that it is set.
  public func setFaults(_ faults: ServerFaults) {
    core.withLock { core in
      if faults.expireTokens { core.generation += 1 }
      if !faults.replayPage { core.recordings = [:] }
      core.untilDrop = faults.dropAnswer
      core.throttled = faults.throttle?.requests
      core.faults = faults
    }
  }

  /// A token for a user, as a sign-in page would give it.
  public func signIn(user: String = CloudServer.defaultUser) -> String {
    core.withLock { $0.sessions.signIn(user: user, storeUUID: journal.storeUUID, random: environment.random) }
  }

  /// Hands out every event of the journal, in order.
  ///
  /// For tests: what was applied is counted in the journal itself.
  package func forEachEvent(_ body: (UInt64, JournalEvent) throws -> Void) throws {
    let last = core.withLock { $0.state.lastLSN }
    var lsn: UInt64 = 1
    while lsn <= last {
      if let event = try JournalEvent.decode(try journal.read(lsn)) { try body(lsn, event) }
      lsn += 1
    }
  }

  /// A record as the server holds it now; nil if it is deleted or was never there.
  package func record(_ name: String, zone: String, in key: DatabaseKey) throws -> JournalRecord? {
    try core.withLock { core in
      guard let entry = core.state.zone(zone, in: key)?.entries[name], !entry.isDeleted else { return nil }
      return try read(entry.lsn)
    }
  }

  /// All living records of a zone, by name; nil if there is no such zone.
  package func records(zone: String, in key: DatabaseKey) throws -> [String: JournalRecord]? {
    try core.withLock { core in
      guard let zone = core.state.zone(zone, in: key) else { return nil }
      var result: [String: JournalRecord] = [:]
      for (name, entry) in zone.entries where !entry.isDeleted { result[name] = try read(entry.lsn) }
      return result
    }
  }

  /// Removes a zone as a person would at the console (a purge).
  ///
  /// For tests: the local server has no console, and a client must bear what CloudKit's can do.
  package func deleteZone(_ name: String, in key: DatabaseKey) throws {
    try core.withLock { core in
      guard let zone = core.state.zone(name, in: key) else { return }
      try commit([.zoneDeleted(life: zone.life)], &core)
    }
  }

  func say(_ line: String) { onLine(line) }

  // MARK: the journal

  /// A record event, read back.
  func read(_ lsn: UInt64) throws(ServerRefusal) -> JournalRecord {
    do {
      guard case .recordSaved(let record)? = try JournalEvent.decode(try journal.read(lsn)) else {
        throw JournalEventError(description: "event \(lsn) of the journal is not the record that it was")
      }
      return record
    } catch {
      throw ServerRefusal(500, WireError(.internalError, "\(error)"))
    }
  }

  /// Makes events durable and takes them in. Refuses, and changes nothing, when the journal does.
  func commit(_ events: [JournalEvent], _ core: inout Core) throws(ServerRefusal) {
    guard !events.isEmpty else { return }
    let events = (core.isOpened ? [] : [.opened(tenure: journal.tenure)]) + events
    do {
      let lsns = try journal.commit(events.map { $0.encoded() })
      var lsn = lsns.lowerBound
      for event in events {
        try core.state.apply(event, at: lsn)
        lsn += 1
      }
      core.isOpened = true
    } catch JournalFailure.refused(let words) {
      throw ServerRefusal(503, WireError(.tryAgainLater, words, retryAfter: 1))
    } catch JournalFailure.tooLarge(let words) {
      throw ServerRefusal(413, WireError(.badRequest, words))
    } catch {
      core.failure = "the journal failed: \(error)"
      throw ServerRefusal(503, WireError(.tryAgainLater, "the journal failed: \(error)"))
    }
  }
}

/// A refusal of a whole request.
package struct ServerRefusal: Error, Sendable {
  package var status: Int
  package var error: WireError
  package init(_ status: Int, _ error: WireError) {
    self.status = status
    self.error = error
  }
}
