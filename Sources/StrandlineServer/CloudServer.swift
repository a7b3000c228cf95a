// CloudKit's semantics of zones, records, change tags and tokens, without HTTP. The local server, the simulator and the
// tests share this implementation.
//
// Every request runs under one lock, from validation to the sync of its events; memory is changed after the journal is
// durable. So an answer shows durable state only, a failed write leaves nothing to undo, and the order of the journal is
// the order of the answers. The price is that writers never share a sync, which a server for development can afford.

internal import Strandline
package import StrandlineCloudKit
package import StrandlineSystem
internal import Synchronization

/// A local CloudKit: zones, change tags, feeds and refusals over a journal.
public final class CloudServer: Sendable {
  /// Counts of requests and of what they did, for tests.
  public struct Statistics: Sendable, Hashable {
    /// Requests by endpoint ("records/modify"), refused ones too.
    public var requests: [String: Int] = [:]
    /// Operations on records that were applied and are durable, without deletions by DELETE_SELF.
    public var appliedOperations = 0
    /// Answers that the fault `dropAnswer` dropped.
    public var droppedAnswers = 0
    /// Stale pages that the fault `replayPage` served.
    public var replayedPages = 0
  }

  struct Core {
    var state: ServerState
    /// Whether this writer's `opened` is in the journal.
    var isOpened = false
    var faults: ServerFaults
    var limits: ServerLimits
    var statistics = Statistics()
    /// Why every further request is refused; nil if none is.
    var failure: String?
    /// Tokens below this generation have expired.
    var generation: UInt32 = 0
    /// The number of `records/modify` requests up to the one whose answer is dropped.
    var untilDrop: Int?
    /// The number of requests that are still throttled; nil for all.
    var throttled: Int?
    /// By the zone's life.
    var staleRecords: [UInt64: StaleRecords] = [:]
    var sessions = SessionTable()
  }

  let core: Mutex<Core>
  let journal: any ServerJournal
  let environment: SystemEnvironment
  private let onLine: @Sendable (String) -> Void

  /// The user of requests without a session.
  public static let defaultUser = "_737472616e646c696e652d7573657231"

  /// A server over a journal; `state` is the fold of the journal's events.
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

  /// A server that keeps its journal in memory.
  package convenience init(
    inMemory environment: SystemEnvironment, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    self.init(
      journal: MemoryJournal(random: environment.random), state: ServerState(), faults: faults, limits: limits,
      environment: environment, onLine: onLine)
  }

  /// A server that keeps its journal in memory, for an app's tests.
  public convenience init(faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits()) {
    self.init(inMemory: .real, faults: faults, limits: limits)
  }

  /// A server whose journal lies in a directory. Everything that an earlier server of this directory answered is there.
  ///
  /// - Parameter controlIntervalMilliseconds: see `LogOptions`; nil for simulations, which run without the upkeep thread.
  /// - Throws: `StrandlineError`: `.damaged`, `.storeHeld`, `.notAStore`, `.io` and others of the log.
  package convenience init(
    directory: String, faults: ServerFaults = ServerFaults(), limits: ServerLimits = ServerLimits(),
    environment: SystemEnvironment, controlIntervalMilliseconds: Int64? = 200,
    onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) throws {
    var state = ServerState()
    do {
      let journal = try LogJournal(
        directory: directory, environment: environment, controlIntervalMilliseconds: controlIntervalMilliseconds
      ) { lsn, body in
        do throws(JournalEventError) {
          if let event = try JournalEvent.decode(body) { try state.apply(event, at: lsn) } else { state.skip(lsn) }
        } catch {
          throw Self.publicError(error, in: directory, at: LSN(rawValue: lsn))
        }
      }
      self.init(
        journal: journal, state: state, faults: faults, limits: limits, environment: environment, onLine: onLine)
    } catch let error as JournalEventError {
      throw Self.publicError(error, in: directory, at: nil)
    } catch {
      throw StrandlineError.translating(error, "cannot open the server's journal in '\(directory)'")
    }
  }

  /// The public form of an event that cannot be decoded, or that does not follow from those before it.
  private static func publicError(
    _ error: JournalEventError, in directory: String, at lsn: LSN?
  ) -> StrandlineError {
    StrandlineError(
      error.isFromNewerVersion ? .fromTheFuture : .damaged, "the server's journal in '\(directory)': \(error)",
      file: directory, lsns: lsn.map { $0...$0 })
  }

  /// Closes the journal and releases its lock. Later requests are refused. A second call does nothing.
  ///
  /// - Throws: `StrandlineError`: `.outcomeUnknown` or `.io` if the journal's last write or sync failed. The lock is
  ///   released all the same.
  public func close(fileID: String = #fileID, line: Int = #line) throws {
    let isFirst = core.withLock { core in
      defer { core.failure = core.failure ?? "the server is closed" }
      return core.failure == nil
    }
    guard isFirst else { return }
    try CallSite(fileID, line).run("closing the server's journal") { try journal.close() }
  }

  // MARK: For tests

  /// The counts so far.
  public var statistics: Statistics { core.withLock { $0.statistics } }

  /// Why the server refuses every request: its journal failed, or it is closed. Nil if it does not.
  public var failure: String? { core.withLock { $0.failure } }

  /// The faults in force.
  public var faults: ServerFaults { core.withLock { $0.faults } }

  /// Sets the faults. The counts of `throttle` and `dropAnswer` start again; each call with `expireTokens` expires all
  /// tokens given out so far.
  public func setFaults(_ faults: ServerFaults) {
    core.withLock { core in
      if faults.expireTokens { core.generation += 1 }
      if !faults.replayPage { core.staleRecords = [:] }
      core.untilDrop = faults.dropAnswer
      core.throttled = faults.throttle?.requests
      core.faults = faults
    }
  }

  /// Signs a user in and returns the web auth token that a sign-in page would return.
  public func signIn(user: String = CloudServer.defaultUser) -> String {
    core.withLock { $0.sessions.signIn(user: user, storeUUID: journal.storeUUID, random: environment.random) }
  }

  /// Calls `body` with every event of the journal, in order.
  ///
  /// For tests: they count in the journal what was applied.
  package func forEachEvent(_ body: (UInt64, JournalEvent) throws -> Void) throws {
    try journal.forEachEvent(upTo: core.withLock { $0.state.lastLSN }) { lsn, bytes in
      if let event = try JournalEvent.decode(bytes) { try body(lsn, event) }
    }
  }

  /// A record as the server holds it now; nil if it is deleted or was never there.
  package func record(_ name: String, zone: String, in key: DatabaseKey) throws -> JournalRecord? {
    try core.withLock { core in
      guard let entry = core.state.zone(zone, in: key)?.entries[name], !entry.isDeleted else { return nil }
      return try read(entry.lsn)
    }
  }

  /// All undeleted records of a zone, by name; nil if there is no such zone.
  package func records(zone: String, in key: DatabaseKey) throws -> [String: JournalRecord]? {
    try core.withLock { core in
      guard let zone = core.state.zone(zone, in: key) else { return nil }
      var result: [String: JournalRecord] = [:]
      for (name, entry) in zone.entries where !entry.isDeleted { result[name] = try read(entry.lsn) }
      return result
    }
  }

  /// Deletes a zone without a request, as CloudKit's console does.
  ///
  /// For tests: the local server has no console.
  package func deleteZone(_ name: String, in key: DatabaseKey) throws {
    try core.withLock { core in
      guard let zone = core.state.zone(name, in: key) else { return }
      try write([.zoneDeleted(life: zone.life)], &core)
    }
  }

  func printLine(_ line: String) { onLine(line) }

  // MARK: The journal

  /// The record in a `recordSaved` event.
  func read(_ lsn: UInt64) throws(ServerRefusal) -> JournalRecord {
    do {
      guard case .recordSaved(let record)? = try JournalEvent.decode(try journal.read(lsn)) else {
        throw JournalEventError(description: "event \(lsn) of the journal should hold a saved record and does not")
      }
      return record
    } catch {
      throw ServerRefusal(500, WireError(.internalError, "\(error)"))
    }
  }

  /// Appends events to the journal and, when they are durable, applies them to the state. If the journal refuses them,
  /// this throws and the state is unchanged.
  func write(_ events: [JournalEvent], _ core: inout Core) throws(ServerRefusal) {
    guard !events.isEmpty else { return }
    let events = (core.isOpened ? [] : [.opened(tenure: journal.tenure)]) + events
    do {
      let lsns = try journal.append(events.map { $0.encoded() })
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
