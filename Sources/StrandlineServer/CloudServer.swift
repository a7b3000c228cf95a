// CloudKit's semantics of zones, records, change tags and tokens, without HTTP. The local server, the simulator and the
// tests share this implementation.
//
// One lock (`core`) orders the requests: under it a write is checked, appended to the journal and applied to the tables in
// memory, so that the order of the journal is the order of the answers. The lock is free again before the events are
// durable: the writers that come meanwhile share one sync. Each request, a reader's too, then waits until the newest event
// that it has seen is durable, and only then is answered: no answer shows what a power cut could take back. Records are
// read and answers are written without the lock.
//
// If the journal refuses events (a full disk), nothing of them is on disk: all requests that have seen them are refused, and
// the tables are built anew from what is durable. From then on one writer at a time tries, under the lock, until one
// succeeds. If the journal fails, the server stops.

package import Strandline
package import StrandlineCloudKit
internal import StrandlineLog
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
    package var replayedPages = 0
  }

  /// What the requests read and write.
  struct Core {
    var state: ServerState
    /// Whether the journal has refused events and has not taken any since.
    var isRejecting = false
    /// Tokens below this generation have expired.
    var generation: UInt32 = 0
    /// By the zone's life; nil if the fault `replayPage` is off.
    var staleRecords: [UInt64: StaleRecords]?
  }

  /// What a request meets before it comes to `core`: sign-in, faults, counts. Its lock is held for moments only.
  struct Front {
    var faults = ServerFaults()
    var statistics = Statistics()
    /// The number of `records/modify` requests up to the one whose answer is dropped.
    var untilDrop: Int?
    /// The number of requests that are still throttled; nil for all.
    var throttled: Int?
    var sessions = SessionTable()
    var lookedReferences = 0
    /// The API tokens that are accepted; nil for any.
    var apiTokens: Set<String>?
    /// Where contents are fetched, and which generation of their addresses counts.
    var contentOrigin = "http://127.0.0.1"
    var contentGeneration: UInt32 = 0
  }

  /// May be held when `front`, `halt` or a lock of the journal is taken, never the reverse.
  let core: OrderedMutex<Core>
  let front = OrderedMutex(Front())
  /// Taken alone, for moments.
  let pushTable = OrderedMutex(PushTable())
  /// Why every further request is refused; nil if none is.
  private let halt = OrderedMutex<String?>(nil)
  /// How many requests have left `core` and wait until what they saw is durable.
  private let waiting = Atomic(0)
  let limits: ServerLimits
  let large: LargeRequests
  let journal: any ServerJournal
  let environment: SystemEnvironment
  let contents: ServerContents
  private let onLine: @Sendable (String) -> Void

  /// The user of requests without a session.
  public static let defaultUser = "_737472616e646c696e652d7573657231"

  /// A server over a journal; `state` is the fold of the journal's events.
  init(
    journal: any ServerJournal, state: ServerState, contents: ServerContents, faults: ServerFaults,
    limits: ServerLimits, environment: SystemEnvironment, onLine: @escaping @Sendable (String) -> Void
  ) {
    self.journal = journal
    self.contents = contents
    self.environment = environment
    self.onLine = onLine
    self.limits = limits
    large = LargeRequests(places: limits.largeRequestsMax)
    core = OrderedMutex(.server, Core(state: state))
    setFaults(faults)
  }

  /// A server that keeps its journal in memory.
  package convenience init(
    inMemory environment: SystemEnvironment, faults: ServerFaults = ServerFaults(),
    limits: ServerLimits = ServerLimits(), onLine: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    let journal = MemoryJournal(random: environment.random)
    let contents = ServerContents(inMemory: journal.storeUUID, random: environment.random)
    self.init(
      journal: journal, state: ServerState(), contents: contents, faults: faults, limits: limits,
      environment: environment, onLine: onLine)
  }

  /// A server that keeps its journal in memory, for an app's tests.
  public convenience init(faults: ServerFaults = ServerFaults()) { self.init(inMemory: .real, faults: faults) }

  /// A server in memory with other limits than CloudKit's.
  package convenience init(faults: ServerFaults = ServerFaults(), limits: ServerLimits) {
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
    var check = JournalCheck()
    do {
      let journal = try LogJournal(
        directory: directory, environment: environment, controlIntervalMilliseconds: controlIntervalMilliseconds
      ) { event in
        do throws(JournalEventError) {
          try check.apply(event)
        } catch {
          throw error.publicError(in: directory, at: LSN(rawValue: event.lsn))
        }
      }
      let contents: ServerContents
      do {
        contents = try ServerContents(in: journal.folder, storeUUID: journal.storeUUID, random: environment.random)
      } catch {
        // What this start has to say is that failure; nothing was appended.
        _ = try? journal.close()
        throw error
      }
      self.init(
        journal: journal, state: check.state, contents: contents, faults: faults, limits: limits,
        environment: environment, onLine: onLine)
    } catch {
      throw StrandlineError.translating(error, "cannot open the server's journal in '\(directory)'")
    }
  }

  /// Closes the journal and releases its lock. Later requests are refused. A second call does nothing; after a failure of the
  /// journal, of which each request has told, the first one releases the lock and throws nothing.
  ///
  /// - Throws: `StrandlineError`: `.outcomeUnknown` or `.io` if the journal's last write or sync failed. The lock is
  ///   released all the same.
  public func close() throws {
    // Under the lock, so that no request is between its look and its append.
    let isFirst = core.withLock { _ in stop("the server is closed") }
    guard isFirst else {
      // Of a journal that has failed, each request has said why. It gives its files back all the same.
      _ = Result { try journal.close() }
      return
    }
    try CallSite.unnamed.run("closing the server's journal") { try journal.close() }
  }

  // MARK: For tests

  /// The counts so far.
  public var statistics: Statistics { front.withLock { $0.statistics } }

  /// Why the server refuses every request: its journal failed, or it is closed. Nil if it does not.
  public var failure: String? { halt.withLock { $0 } }

  /// The faults in force.
  public var faults: ServerFaults { front.withLock { $0.faults } }

  /// Sets the faults. The counts of `throttle` and `dropAnswer` start again; each call with `expireTokens` expires all
  /// tokens given out so far.
  public func setFaults(_ faults: ServerFaults) { set(faults) { _ in true } }

  /// The faults that requests will still meet: with what is left of the counts, and without those that are used up.
  package var faultsAhead: ServerFaults { front.withLock { Self.ahead($0) } }

  /// Switches to other faults. What was on and stays on goes on: no token expires once more.
  package func switchFaults(to faults: ServerFaults) { set(faults) { !$0.expireTokens } }

  private static func ahead(_ front: Front) -> ServerFaults {
    var faults = front.faults
    if let left = front.throttled { faults.throttle?.requests = left }
    if faults.throttle?.requests == 0 { faults.throttle = nil }
    faults.dropAnswer = front.untilDrop
    return faults
  }

  private func set(_ faults: ServerFaults, expiring: (ServerFaults) -> Bool) {
    core.withLock { core in
      if faults.expireTokens, expiring(front.withLock { $0.faults }) { core.generation += 1 }
      core.staleRecords = faults.replayPage ? core.staleRecords ?? [:] : nil
      front.withLock { front in
        front.untilDrop = faults.dropAnswer
        front.throttled = faults.throttle?.requests
        if faults.expireContentAddresses { front.contentGeneration += 1 }
        front.faults = faults
      }
    }
  }

  /// Signs a user in and returns the web auth token that a sign-in page would return.
  public func signIn(user: String = CloudServer.defaultUser) -> String {
    front.withLock { $0.sessions.signIn(user: user, storeUUID: journal.storeUUID, random: environment.random) }
  }

  /// Calls `body` with every event of the journal, in order.
  ///
  /// For tests: they count in the journal what was applied.
  package func forEachEvent(_ body: (UInt64, JournalEvent) throws -> Void) throws {
    try journal.forEachEvent(upTo: journal.durableLSN) { lsn, bytes in
      if let event = try JournalEvent.decode(bytes) { try body(lsn, event) }
    }
  }

  /// How many requests wait until what they saw is durable.
  ///
  /// For tests: a test gives a disk the permit for a sync when all of them wait for it.
  package var waitingRequests: Int { waiting.load(ordering: .sequentiallyConsistent) }

  /// How many requests wait because others hold much memory.
  ///
  /// For tests: they wait until a request waits.
  package var requestsWaitingForMemory: Int { large.waiting.load(ordering: .sequentiallyConsistent) }

  /// How many references requests have looked at to save and delete records.
  ///
  /// For tests: they compare it with what the requests brought.
  package var lookedReferences: Int { front.withLock { $0.lookedReferences } }

  /// A record as the server holds it now; nil if it is deleted or was never there.
  package func record(_ name: String, zone: String, in key: DatabaseKey) throws -> JournalRecord? {
    try look { core throws(ServerRefusal) -> (UInt64?, UInt64) in
      guard let entry = core.state.zone(zone, in: key)?.entries[name], !entry.isDeleted else {
        return (nil, core.state.lastLSN)
      }
      return (entry.lsn, core.state.lastLSN)
    }.map { lsn in try decodedRecord(lsn) }
  }

  /// All undeleted records of a zone, by name; nil if there is no such zone.
  package func records(zone: String, in key: DatabaseKey) throws -> [CloudName: JournalRecord]? {
    try look { core throws(ServerRefusal) -> ([CloudName: UInt64]?, UInt64) in
      guard let zone = core.state.zone(zone, in: key) else { return (nil, core.state.lastLSN) }
      return (zone.entries.filter { !$0.value.isDeleted }.mapValues(\.lsn), core.state.lastLSN)
    }?.mapValues { lsn in try decodedRecord(lsn) }
  }

  private func decodedRecord(_ lsn: UInt64) throws -> JournalRecord {
    guard case .recordSaved(let record)? = try JournalEvent.decode(try journal.read(lsn)) else {
      throw JournalEventError(description: "event \(lsn) of the journal should hold a saved record and does not")
    }
    return record
  }

  /// Deletes a zone without a request, as CloudKit's console does.
  ///
  /// For tests: the local server has no console.
  package func deleteZone(_ name: String, in key: DatabaseKey) throws {
    try look { core throws(ServerRefusal) -> ((), UInt64) in
      if let zone = core.state.zone(name, in: key) { try write(.zoneDeleted(life: zone.life), &core) }
      return ((), core.state.lastLSN)
    }
  }

  func printLine(_ line: String) { onLine(line) }

  // MARK: Requests and the journal

  /// Runs the part of a request that needs the tables, alone, then waits until what it saw is durable.
  ///
  /// - Parameter body: returns its result, and the newest event that the result depends on.
  /// - Throws: what `body` throws; a refusal if the journal has failed, or the server is closed; also if the journal then
  ///   fails or refuses what `body` has seen.
  func look<Value>(
    _ body: (inout Core) throws(ServerRefusal) -> (Value, UInt64)
  ) throws(ServerRefusal) -> Value {
    let (value, seen) = try core.withLock { core throws(ServerRefusal) in
      if let failure { throw ServerRefusal(503, WireError(.tryAgainLater, failure)) }
      let result = try body(&core)
      waiting.add(1, ordering: .sequentiallyConsistent)
      return result
    }
    defer { waiting.subtract(1, ordering: .sequentiallyConsistent) }
    guard seen > 0 else { return value }
    do throws(JournalFailure) { try journal.waitUntilDurable(seen) } catch {
      throw core.withLock { refusal(for: error, &$0) }
    }
    return value
  }

  /// A saved record, from its event's bytes.
  func read(_ lsn: UInt64) throws(ServerRefusal) -> RecordBytes {
    do {
      return try RecordBytes(try journal.read(lsn))
    } catch {
      throw ServerRefusal(500, WireError(.internalError, "event \(lsn) of the journal: \(error)"))
    }
  }

  /// An event to write, and what it does.
  struct NewEvent: Sendable {
    var body: [UInt8]
    var change: StateChange
  }

  /// Appends events to the journal and applies them to the tables. They are durable when `look` has returned.
  func write(_ events: [NewEvent], _ core: inout Core) throws(ServerRefusal) {
    guard !events.isEmpty else { return }
    var events = events
    if core.state.tenures.last?.tenure != journal.tenure {
      events.insert(NewEvent(.opened(tenure: journal.tenure)), at: 0)
    }
    do throws(JournalFailure) {
      let lsns: ClosedRange<UInt64>
      if core.isRejecting {
        // The LSNs of refused events are given again: no request may wait for one of them still.
        guard waiting.load(ordering: .sequentiallyConsistent) == 0 else {
          throw JournalFailure.refused("the journal has refused events a moment ago")
        }
        journal.resume()
        lsns = try journal.append(events.map(\.body))
        try journal.waitUntilDurable(lsns.upperBound)
        core.isRejecting = false
      } else {
        lsns = try journal.append(events.map(\.body))
      }
      var lsn = lsns.lowerBound
      for event in events {
        do throws(JournalEventError) { try core.state.apply(event.change, at: lsn) } catch {
          throw JournalFailure.broken(error.description)
        }
        lsn += 1
      }
    } catch {
      throw refusal(for: error, &core)
    }
  }

  /// Appends one event, as a transaction of its own.
  func write(_ event: JournalEvent, _ core: inout Core) throws(ServerRefusal) { try write([NewEvent(event)], &core) }

  /// What a request is told whose events, or those that it has seen, the journal did not take.
  private func refusal(for failure: JournalFailure, _ core: inout Core) -> ServerRefusal {
    switch failure {
    case .tooLarge(let words): return ServerRefusal(413, WireError(.limitExceeded, words))
    case .refused(let words):
      do { try stepBack(&core) } catch {
        stop("the journal cannot be read: \(error)")
      }
      return ServerRefusal(503, WireError(.tryAgainLater, words, retryAfter: 1))
    case .broken(let words):
      stop("the journal failed: \(words)")
      return ServerRefusal(503, WireError(.tryAgainLater, "the journal failed: \(words)"))
    }
  }

  /// Builds the tables anew from what is durable, if they have more.
  private func stepBack(_ core: inout Core) throws {
    let durable = journal.durableLSN
    core.isRejecting = true
    guard core.state.lastLSN > durable else { return }
    var state = ServerState()
    try journal.forEachEvent(upTo: durable) { lsn, body in try state.apply(body, at: lsn) }
    core.state = state
  }

  /// Refuses every further request. Returns false if they are refused already.
  @discardableResult
  private func stop(_ words: String) -> Bool {
    halt.withLock { halt in
      guard halt == nil else { return false }
      halt = words
      return true
    }
  }
}

extension CloudServer.NewEvent {
  /// An event that saves no record.
  init(_ event: JournalEvent) {
    body = event.encoded()
    switch event {
    case .opened(let tenure): change = .opened(tenure: tenure)
    case .zoneCreated(let life, let key, let name): change = .zoneCreated(life: life, key, name: name)
    case .zoneDeleted(let life): change = .zoneDeleted(life: life)
    case .recordDeleted(let zone, let name, _): change = .recordDeleted(zone: zone, name: name)
    case .recordSaved: preconditionFailure("a saved record is written from its bytes")
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
