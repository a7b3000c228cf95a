// A store out of what is left of a damaged one: which events stay, and what must be said of the holes.
//
// Whole transactions are kept whole. Of a transaction with a damaged event only the app's own saves and deletions are
// kept, which no server has; what it had from the server is fetched again. After any loss every zone that the server has is fetched from its
// beginning, and nothing is removed for being absent. What was settled in a hole would be owed for ever, or be sent
// again over what came after it: where the log still shows that it was settled, that is said anew. Rule: decision L13.

package import StrandlineLog
import StrandlineSystem

/// A repair: first its plan, then, if the caller applies it, the new store.
package struct StoreRepair: Sendable {
  /// What a repair would do.
  package struct Plan: Sendable {
    package var salvage: SalvageReport
    /// Events that the new store takes over.
    package var eventsKept: UInt64 = 0
    /// Events that verify and stay behind: what incomplete transactions had from the server, and tokens.
    package var eventsLeftBehind: UInt64 = 0
    /// Events whose checksum is right and that mean nothing; they stay behind too.
    package var eventsUnreadable: UInt64 = 0
    /// Zones that are fetched from their beginning.
    package var zonesReset: [ZoneID] = []
    /// Records with changes that the server has not settled as far as the log says.
    package var unsettled = 0
    /// Records that live or are deleted and not settled.
    package var records = 0
    /// Whether it is still known whose account this is.
    package var isBound = false
    /// What the store has beside its log.
    package var beside = RepairedBeside()
    /// What must have been settled in a hole.
    var settlements: [Settled] = []

    /// Whether there is anything to repair.
    package var isNeeded: Bool { salvage.isDamaged || eventsUnreadable > 0 }
    /// Whether the new store's history has holes.
    package var hasHoles: Bool { salvage.hasLostEvents || eventsUnreadable > 0 }
  }

  package let plan: Plan
  private let salvage: LogSalvage
  private let environment: StoreEnvironment

  /// Reads all of a damaged store and changes nothing. No writer can open it while this value lives.
  ///
  /// - Throws: `StrandlineError`: `.noSuchStore`, `.storeHeld`, `.notAStore` (also for a server's journal), `.damaged` if
  ///   nothing can be saved, `.fromTheFuture`, `.io`.
  /// - Complexity: O(bytes of the log).
  package init(at path: String, environment: StoreEnvironment) throws {
    do {
      let salvage = try LogSalvage(at: path, environment: environment.system)
      guard salvage.role == .store else {
        throw StrandlineError(
          .notAStore,
          "'\(path)' is a server's journal, which is not repaired: its devices would go on with change tokens for a "
            + "history that has holes; begin a new directory, and let the devices send what they have")
      }
      var reading = RepairReading()
      let report = try salvage.read { events, isPartial in try reading.add(events, isPartial: isPartial) }
      self.salvage = salvage
      self.environment = environment
      let files = IndexFiles(
        salvage.folder, environment.system, storeUUID: salvage.storeUUID, cache: BlockCache(bytesMax: 0))
      let declared = try files.loadDefinitions()
      let contents = reading.contents
      var plan = try reading.plan(report)
      plan.beside = RepairedBeside(
        indexes: declared.damage.map { .failure($0) } ?? .success(declared.definitions.indexes.map(\.index)),
        contents: try ContentCheck(of: contents, in: salvage.folder))
      self.plan = plan
    } catch { throw StrandlineError.translating(error, "reading the damaged store at '\(path)'") }
  }

  /// The record that a damaged event's bytes name, for a person to look at. Their checksum does not match, so the name may be what is
  /// damaged in them.
  ///
  /// - Returns: nil where they name none, or several events are damaged in one place.
  package func recordNamed(in damage: SalvageDamage) -> RecordID? {
    guard damage.lsns?.count == 1, damage.file.hasPrefix(salvage.folder.path + "/") else { return nil }
    let name = String(damage.file.dropFirst(salvage.folder.path.count + 1))
    let start = damage.bytes.lowerBound + UInt64(LogFormat.frameHeaderBytes)
    guard start < damage.bytes.upperBound, let file = try? salvage.folder.open(name, .read) else { return nil }
    defer { file.close() }
    // Zone, owner and name have at most 255 bytes each, as far as an app gives them.
    let count = min(1_024, Int(damage.bytes.upperBound - start))
    guard let body = try? file.read(at: start, count: count),
      EventCodec.kind(ofBody: body)?.isOfOneRecord == true, body.count > PayloadHeader.bytes
    else { return nil }
    var reader = ByteReader(body, PayloadHeader.bytes..<body.count)
    guard let id = try? RecordID(nil, &reader), !id.name.isEmpty else { return nil }
    return id
  }

  /// Writes the new store at `newPath`. When this returns, it is on the medium.
  ///
  /// - Throws: `StrandlineError`: `.notAStore` if `newPath` is no new or empty folder, `.diskFull`, `.io`; then nothing stands
  ///   at `newPath` that did not stand there before.
  /// - Complexity: O(bytes of the log).
  package func apply(into newPath: String) throws {
    let hasHoles = plan.hasHoles
    var options = LogOptions()
    // Nobody reads it before it is whole.
    options.publishesGroups = false
    options.upkeep = .onDemand
    options.controlIntervalMilliseconds = nil
    do {
      try LogRepair.write(
        salvage, as: plan.salvage, to: newPath, options: options,
        survivors: { events, isPartial in
          try RepairReading.survivors(events, isPartial).kept
            .filter { !hasHoles || !$0.event.isDatabaseToken }.map { LogSurvivor($0.found) }
        },
        finish: { place in
          let folder = try environment.system.fileSystem.folder(place)
          // Those that no kept event names, the open removes.
          _ = try ContentFolder(salvage.folder).copy(to: ContentFolder(folder))
          let store = try RecordStore.openBlocking(
            at: place, options: StoreOptions(log: options), environment: environment, createIfAbsent: false)
          let outcome = Result { try begin(store) }
          let closed = Result { try store.closeBlocking() }
          try outcome.get()
          try closed.get()
        })
    } catch {
      let doing = "cannot repair '\(salvage.path)' into '\(newPath)'"
      guard var inner = error as? StrandlineError else { throw StrandlineError.translating(error, doing) }
      // A call on the new store while it is built: the caller asked for a repair, on no line of this file.
      inner.message = "\(doing): \(inner.message)"
      inner.location = nil
      throw inner
    }
  }

  /// Appends the new store's first events. It writes under a new writer ID, as a store restored from a backup does: what of
  /// the old one's work has left is not known.
  private func begin(_ store: RecordStore) throws {
    // The first open of the new store builds them.
    if case .success(let indexes) = plan.beside.indexes, !indexes.isEmpty {
      try store.index?.redefine { definitions in definitions.add(indexes) }
    }
    try store.commitBlocking { core in
      core.renameWriter()
      try core.appendOpened()
      for zone in plan.zonesReset {
        // That the server has it may have been said in a hole.
        try core.append(.zoneChanged(ZoneChanged(zone: zone, change: .dirty, words: Self.reason)))
        try core.append(
          .zoneChanged(
            ZoneChanged(zone: zone, change: .reset, words: Self.reason, policy: ZoneState.keepsAbsent)))
      }
    }
    var rest = plan.settlements[...]
    while !rest.isEmpty {
      let some = rest.prefix(10_000)
      rest = rest.dropFirst(some.count)
      try store.commitBlocking { core in for settled in some { try core.append(.settled(settled)) } }
    }
  }

  private static let reason = "events were lost and the store was repaired"
}

/// What a damaged store has beside its log, as far as the new one gets it.
package struct RepairedBeside: Sendable {
  /// The declared indexes, which the new store declares too; or why they are lost.
  package var indexes: Result<[RecordIndex], StrandlineError> = .success([])
  /// The contents of assets that the kept events name. The new store gets those that are whole.
  package var contents = ContentCheck()
}

/// What one pass over the salvaged events collects for the plan.
private struct RepairReading {
  typealias Read = (found: LogEvent, event: Event)

  private var projections = Projections()
  /// What the kept events name.
  var contents: ContentTable { projections.contents }
  private var kept: UInt64 = 0
  private var leftBehind: UInt64 = 0
  private var unreadable: UInt64 = 0
  private var databaseTokens: UInt64 = 0
  /// Zones that the server had.
  private var zones: Set<ZoneID> = []
  /// The lives that each record's newest mutation is of.
  private var births: [RecordID: (lsn: LSN, births: Set<Birth>)] = [:]

  /// What stays of a transaction.
  static func survivors(_ events: [LogEvent], _ isPartial: Bool) throws -> (kept: [Read], unreadable: UInt64) {
    var read: [Read] = []
    var unreadable: UInt64 = 0
    for found in events {
      do throws(StrandlineError) {
        let event = try found.decoded()
        _ = try LoadedVersion(event, at: LSN(found.lsn))
        read.append((found, event))
      } catch {
        if error.code == .fromTheFuture { throw error }
        // Counted, and reported: its checksum is right, so it was written like this.
        unreadable += 1
      }
    }
    if isPartial || unreadable > 0 { read.removeAll { !$0.event.staysAlone } }
    return (read, unreadable)
  }

  mutating func add(_ events: [LogEvent], isPartial: Bool) throws {
    let (read, bad) = try Self.survivors(events, isPartial)
    kept += UInt64(read.count)
    unreadable += bad
    leftBehind += UInt64(events.count - read.count) - bad
    for (found, event) in read {
      let lsn = LSN(found.lsn)
      recordBirthsAndZones(of: event, at: lsn)
      try projections.apply(event, at: lsn, isDurable: true)
    }
  }

  private mutating func recordBirthsAndZones(of event: Event, at lsn: LSN) {
    switch event {
    case .saved(let saved): births[saved.id] = (lsn, saved.births)
    case .deleted(let deleted): births[deleted.id] = (lsn, deleted.births)
    case .merged(let merged): births[merged.id] = (lsn, merged.births)
    case .fetchedSave(let fetched): zones.insert(fetched.id.zone)
    case .fetchedDelete(let fetched): zones.insert(fetched.id.zone)
    case .settled(let settled): if settled.changeTag != nil { zones.insert(settled.id.zone) }
    case .sent(let sent): zones.insert(sent.zone)
    case .zoneChanged(let changed): zones.insert(changed.zone)
    case .tokenAdvanced(let advanced): zones.insert(advanced.zone)
    case .databaseTokenAdvanced: databaseTokens += 1
    default: break
    }
  }

  consuming func plan(_ report: SalvageReport) throws -> StoreRepair.Plan {
    var plan = StoreRepair.Plan(salvage: report)
    plan.eventsUnreadable = unreadable
    plan.eventsKept = kept
    plan.eventsLeftBehind = leftBehind
    plan.isBound = !projections.sync.bounds.isEmpty
    if plan.hasHoles {
      // The list of zones may have been in a hole: it is asked for from its beginning.
      plan.eventsKept -= databaseTokens
      plan.eventsLeftBehind += databaseTokens
      // A lost zone stays frozen until the app resumes it.
      plan.zonesReset = zones.filter { projections.sync.zones[$0]?.isLost != true }.sorted()
      plan.settlements = try settlements()
    }
    for settled in plan.settlements {
      try projections.apply(.settled(settled), at: projections.appliedLSN.advanced(by: 1), isDurable: true)
    }
    plan.unsettled = projections.outbox.count
    plan.records = projections.records.count
    return plan
  }

  /// A version of the server enters alone only where nothing is owed (a merge or settlement would stand beside it), and
  /// a tombstone leaves nothing of its lives owed. So what is owed from before such an event was settled in between.
  private func settlements() throws(StrandlineError) -> [Settled] {
    var result: [Settled] = []
    for (id, entry) in try projections.allEntries() {
      guard let pending = entry.pending else { continue }
      if let base = entry.base, base.version > pending.newest, base.content == base.version {
        result.append(Settled(id: id, lsn: pending.newest, outcome: pending.isDeletion ? .superseded : .merged))
      } else if let deletion = try projections.deletion(id), deletion.lsn > pending.newest,
        let mine = births[id], mine.lsn == pending.newest, !mine.births.isEmpty,
        mine.births.isSubset(of: deletion.births)
      {
        result.append(
          Settled(id: id, lsn: pending.newest, outcome: pending.isDeletion ? .deleted : .deletedOnServer))
      }
    }
    return result.sorted { $0.lsn < $1.lsn }
  }
}

extension Event {
  /// Whether the event is kept without the rest of its transaction: the app's mutations, and the writer's `opened`.
  fileprivate var staysAlone: Bool {
    switch self {
    case .saved, .deleted, .opened: true
    default: false
    }
  }

  fileprivate var isDatabaseToken: Bool {
    if case .databaseTokenAdvanced = self { return true }
    return false
  }
}
