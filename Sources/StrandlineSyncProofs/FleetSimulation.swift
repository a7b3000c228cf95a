// Random runs of several devices and a server: edits, deletions, re-creations, lost answers, power cuts, expired tokens,
// throttling; then a quiet phase after which all of them must agree.
//
// The oracle shares no code with the engine except the decoding of stamps. For every acknowledged write it records the
// stamp of the written field, and at the end the record must carry this stamp or a greater one. A record whose births
// were all deleted must not exist, and the server's journal must not hold the same mutation twice.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// One run of a fleet, from one seed.
package struct FleetSimulation {
  /// A violation, with the seed and the steps that lead to it.
  package struct Failure: Error, CustomStringConvertible {
    package var seed: UInt64
    package var step: Int
    package var what: String
    package var trace: [String]
    package var description: String {
      "seed \(seed), step \(step): \(what)\n  " + trace.suffix(80).joined(separator: "\n  ")
    }
  }

  /// How often each case occurred in a run. A campaign in which one of them never occurs does not test it.
  package struct Tally: Hashable, Sendable {
    package var steps = 0
    package var writes = 0
    package var crashes = 0
    package var lostAnswers = 0
    package var recognized = 0
    package var merged = 0
    package var blocked = 0
    package var resets = 0
    package var compactions = 0
    /// How many events compactions have removed.
    package var removed: UInt64 = 0
    /// How many records a compaction has kept with all their events.
    package var keptWhole = 0
    package init() {}
    package mutating func add(_ other: Tally) {
      steps += other.steps
      writes += other.writes
      crashes += other.crashes
      lostAnswers += other.lostAnswers
      recognized += other.recognized
      merged += other.merged
      blocked += other.blocked
      resets += other.resets
      compactions += other.compactions
      removed += other.removed
      keptWhole += other.keptWhole
    }
  }

  private let seed: UInt64
  private let random: SeededRandom
  private let fleet: Fleet
  private let devices: [Device]
  private var trace: [String] = []
  private var step = 0
  private var tally = Tally()
  /// Every acknowledged write of a field, with its stamp and the births of the record at that time.
  private var acknowledged: [(id: RecordID, field: String, stamp: FieldStamp, births: Set<Birth>)] = []
  /// All births whose deletion a device has acknowledged to its app.
  private var deleted: [RecordID: Set<Birth>] = [:]
  /// `deleted`, and all births that the devices' logs say were deleted.
  private var allDeleted: [RecordID: Set<Birth>] = [:]
  /// The births of records that a device has created and, because the answer was lost, sent again after another device
  /// had deleted them.
  private var sentAgain: [RecordID: Set<Birth>] = [:]
  /// Which kinds of faults this run has.
  private let hasCrashes: Bool
  private let hasLostAnswers: Bool
  private let hasThrottling: Bool
  private let hasExpiry: Bool
  private let hasStalePages: Bool
  /// A random source of its own, so that all other choices of a seed are the same with and without compactions.
  private let compaction: SeededRandom
  private let hasCompaction: Bool
  /// What the oracle has read in each device's log before compactions removed it.
  private let readings: [String: LogReading]

  package init(seed: UInt64, devices count: Int = 3) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    var limits = ServerLimits()
    // Half of the runs have small pages, so that a zone of five names has several.
    if random.below(2) == 0 { limits.resultsMax = 2 }
    fleet = try Fleet(seed: seed, limits: limits)
    // The devices' clocks differ by less than a minute. Above that the engine clamps times, which other tests cover.
    compaction = SeededRandom(seed: seed ^ 0xC0_4A_C7)
    hasCompaction = compaction.below(3) > 0
    let segmentBytesMax = hasCompaction ? 8 << 10 : nil
    devices = (0..<count).map { [random, fleet] number in
      fleet.device(
        "d\(number)", clockSkewMilliseconds: Int64(random.below(40_000)) - 20_000, segmentBytesMax: segmentBytesMax)
    }
    readings = Dictionary(uniqueKeysWithValues: devices.map { ($0.name, LogReading()) })
    hasCrashes = random.below(2) == 0
    hasLostAnswers = random.below(2) == 0
    hasThrottling = random.below(2) == 0
    hasExpiry = random.below(3) == 0
    hasStalePages = random.below(2) == 0
  }

  /// Runs `steps` random steps and the quiet phase.
  package static func run(seed: UInt64, steps: Int = 60) async throws -> Tally {
    var simulation = try FleetSimulation(seed: seed)
    do {
      try await simulation.run(steps: steps)
    } catch let failure as Failure { throw failure } catch { throw simulation.failure("threw \(error)") }
    return simulation.tally
  }

  private func failure(_ what: String) -> Failure { Failure(seed: seed, step: step, what: what, trace: trace) }

  private mutating func run(steps: Int) async throws {
    setFaults(ServerFaults())
    for number in 1...steps {
      step = number
      tally.steps += 1
      let device = devices[Int(random.below(UInt64(devices.count)))]
      device.clock.advance(milliseconds: Int64(random.below(3_000)))
      fleet.serverClock.advance(milliseconds: Int64(random.below(3_000)))
      switch random.below(20) {
      case 0..<8: try await edit(device)
      case 8..<10: try await delete(device)
      case 10: try await create(device)
      case 11..<17: try await sync(device)
      case 17: if hasLostAnswers { try await syncLosingTheAnswer(device) }
      case 18: if hasCrashes { try await crash(device) }
      default: disturb()
      }
      if let broken = try await device.brokenInvariant() { throw failure(broken) }
      if hasCompaction, compaction.below(6) == 0 {
        try await compact(devices[Int(compaction.below(UInt64(devices.count)))])
      }
    }
    try await quiet()
  }

  // MARK: Steps

  private func name() -> RecordID { RecordID("r\(random.below(5))") }
  private func field() -> String { ["title", "body", "count"][Int(random.below(3))] }

  private mutating func edit(_ device: Device) async throws {
    let id = name()
    let field = field()
    let value: FieldValue? = random.below(8) == 0 ? nil : .string("\(device.name) step \(step)")
    let parent: String?? = random.below(6) == 0 ? .some(random.below(3) == 0 ? nil : "folder") : nil
    try await write(device, "edits \(id.name).\(field)", id, [field]) { tx in
      var record = try tx.record(id) ?? Record(type: "Note", id: id)
      record[field] = value
      if let parent { record.parent = parent }
      try tx.save(record)
    }
  }

  private mutating func create(_ device: Device) async throws {
    let id = name()
    let field = field()
    let value: FieldValue = .string("\(device.name) step \(step), anew")
    try await write(device, "creates \(id.name)", id, [field]) { tx in
      try tx.create(Record(type: "Note", id: id, fields: [field: value]))
    }
  }

  private mutating func delete(_ device: Device) async throws {
    let id = name()
    let births = try await births(of: id, on: device)
    trace.append("\(step) \(device.name) deletes \(id.name) \(births.sorted())")
    try await device.open().write { tx in try tx.delete(id) }
    if !births.isEmpty { deleted[id, default: []].formUnion(births) }
  }

  private mutating func write(
    _ device: Device, _ what: String, _ id: RecordID, _ fields: [String],
    _ body: (inout WriteTransaction) throws -> Void
  ) async throws {
    let store = try await device.open()
    do {
      let receipt = try await store.write(body)
      tally.writes += 1
      trace.append("\(step) \(device.name) \(what) \(receipt.lsns.map { "\($0)" } ?? "(unchanged)")")
      guard let lsn = receipt.lsns?.upperBound, let loaded = try LoadedVersion(store.source.event(at: lsn), at: lsn)
      else {
        return
      }
      for field in fields {
        if let stamp = loaded.version.stamp.fields[field] {
          acknowledged.append((id, field, stamp, loaded.version.stamp.births))
        }
      }
    } catch let error as StrandlineError where [.recordWasDeleted, .recordExists].contains(error.code) {
      trace.append("\(step) \(device.name) \(what): \(error.code.rawValue)")
    }
  }

  private mutating func sync(_ device: Device) async throws {
    let direction: CycleOptions.Direction =
      switch random.below(8) {
      case 0: .pullOnly
      case 1: .pushOnly
      default: .both
      }
    let hasEdits = random.below(2) == 0
    let store = try await device.open()
    let compactions: Mutex<[Result<StoreCompaction, any Error>]> = Mutex([])
    var compactMeanwhile: (@Sendable () -> Void)?
    if hasCompaction, compaction.below(3) == 0 {
      let history = drawHistory()
      let (chance, reading) = (SeededRandom(seed: compaction.next()), readings[device.name])
      compactMeanwhile = {
        guard chance.below(4) == 0 else { return }
        let result = Result {
          try reading?.readOn(store)
          return try store.compactBlocking(keeping: history)
        }
        compactions.withLock { $0.append(result) }
      }
      device.whileAsking(compactMeanwhile)
    }
    // The app edits while the cycle runs.
    if hasEdits {
      let (id, field, chance) = (name(), field(), SeededRandom(seed: random.next()))
      let words = "\(device.name) step \(step), meanwhile"
      device.whileAsking { [compactMeanwhile] in
        defer { compactMeanwhile?() }
        guard chance.below(3) == 0 else { return }
        // If the name was deleted meanwhile, the write throws, as it must.
        _ = try? store.writeBlocking { tx in
          var record = try tx.record(id) ?? Record(type: "Note", id: id)
          record[field] = .string("\(words) \(chance.next())")
          if chance.below(4) == 0 { try tx.delete(id) } else { try tx.save(record) }
        }
      }
    }
    defer { device.whileAsking(nil) }
    do {
      let report = try await device.sync(direction, waitMillisecondsMax: 10_000)
      count(report)
      trace.append("\(step) \(device.name) syncs \(direction): \(report)")
    } catch let error as StrandlineError where error.code.isTransient {
      trace.append("\(step) \(device.name) syncs \(direction): \(error.code.rawValue)")
    }
    for result in compactions.withLock({ $0 }) {
      let report = try result.get()
      count(report)
      trace.append("\(step) \(device.name) compacted meanwhile \(report.eventsBefore) to \(report.eventsAfter)")
    }
  }

  private mutating func count(_ report: SyncReport) {
    tally.recognized += report.recognized
    tally.merged += report.merged
    tally.blocked += report.blocked
  }

  /// Syncs a device whose connection breaks after the server has applied a batch. In some runs the device's power is cut
  /// then.
  private mutating func syncLosingTheAnswer(_ device: Device) async throws {
    let store = try await device.open()
    let dropped = fleet.server.statistics.droppedAnswers
    var faults = fleet.server.faults
    faults.dropAnswer = 1
    fleet.server.setFaults(faults)
    let engine = try store.sync
    var options = CycleOptions()
    options.waitMillisecondsMax = 10_000
    let task = Task { [options] in try await engine.cycle(options) }
    let server = fleet.server
    let watcher = Task {
      while !Task.isCancelled, server.statistics.droppedAnswers == dropped { await Task.yield() }
      task.cancel()
    }
    let result = await task.result
    watcher.cancel()
    await watcher.value
    faults.dropAnswer = nil
    fleet.server.setFaults(faults)
    if fleet.server.statistics.droppedAnswers > dropped { tally.lostAnswers += 1 }
    if case .success(let report) = result { count(report) }
    trace.append("\(step) \(device.name) syncs, answer lost: \(fleet.server.statistics.droppedAnswers - dropped)")
    if hasCrashes, random.below(2) == 0 { try await crash(device) }
  }

  private mutating func crash(_ device: Device) async throws {
    tally.crashes += 1
    trace.append("\(step) \(device.name) loses power")
    device.crash(random.below(2) == 0 ? .none : .all)
  }

  private mutating func compact(_ device: Device) async throws {
    try readings[device.name]?.readOn(try await device.open())
    let history = drawHistory()
    let (report, broken) = try await device.compact(keeping: history)
    count(report)
    trace.append(
      "\(step) \(device.name) compacts \(report.eventsBefore) events to \(report.eventsAfter), keeping \(history)")
    if let broken { throw failure(broken) }
  }

  /// Half of the compactions leave no more than what is needed, the others a part of the past too.
  private mutating func drawHistory() -> HistoryRetention {
    if compaction.below(2) == 0 { return .latest }
    return .since(.milliseconds(Int64(1) << Int64(compaction.below(24))))
  }

  private mutating func count(_ report: StoreCompaction) {
    tally.compactions += 1
    tally.removed += report.eventsBefore - report.eventsAfter
    tally.keptWhole += report.recordsKeptWhole
  }

  private mutating func disturb() {
    var faults = fleet.server.faults
    switch random.below(3) {
    case 0 where hasThrottling:
      faults.throttle = .init(
        status: random.below(2) == 0 ? 503 : 429, retryAfter: Double(random.below(20)), requests: 2)
    case 1 where hasExpiry:
      faults.expireTokens = true
      tally.resets += 1
    default: faults.throttle = nil
    }
    trace.append("\(step) the server: \(faults.throttle.map { "\($0)" } ?? "") \(faults.expireTokens)")
    setFaults(faults)
  }

  private func setFaults(_ faults: ServerFaults) {
    var faults = faults
    faults.replayPage = hasStalePages
    fleet.server.setFaults(faults)
  }

  // MARK: The end

  private mutating func quiet() async throws {
    fleet.server.setFaults(ServerFaults())
    for round in 1...6 {
      for device in devices {
        device.clock.advance(milliseconds: 60_000)
        let report = try await device.sync(waitMillisecondsMax: nil)
        count(report)
        trace.append("quiet \(round) \(device.name): \(report)")
        if let broken = try await device.brokenInvariant() { throw failure(broken) }
      }
    }
    var dumps: [[String]] = []
    for device in devices {
      dumps.append(try await device.dump())
      let status = try await device.open().status()
      guard status.unsettled == 0 else {
        let store = try await device.open()
        let ids = Set(try store.projections.owed.compactMap { try store.source.eventIfKept(at: $0)?.recordID })
        throw failure("\(device.name) still has \(status.unsettled) unsettled records\n\(try await events(of: ids))")
      }
      guard status.openBlocks == 0 else {
        throw failure("\(device.name) still has \(status.openBlocks) blocked records to look up")
      }
    }
    allDeleted = deleted
    for device in devices {
      try readings[device.name]?.readOn(try await device.open())
      for (id, births) in readings[device.name]?.found.deleted ?? [:] { allDeleted[id, default: []].formUnion(births) }
    }
    // A device that syncs for the first time sees what the server holds.
    let late = fleet.device("late")
    try await late.sync()
    dumps.append(try await late.dump())
    for (number, dump) in dumps.enumerated() where dump != dumps[0] {
      let (mine, others) = (Set(dump).subtracting(dumps[0]).sorted(), Set(dumps[0]).subtracting(dump).sorted())
      let ids = Set(
        (mine + others).compactMap { $0.split(separator: "/", maxSplits: 1).last?.prefix { $0 != " " } }.map {
          RecordID(String($0))
        })
      throw failure("only device \(number) has \(mine), only device 0 has \(others)\n\(try await events(of: ids))")
    }
    try await checkJournal()
    try await checkWrites(on: late)
  }

  private func checkWrites(on device: Device) async throws {
    let store = try await device.open()
    // A record with a birth that no device has deleted must exist.
    for write in acknowledged where deletedBirths(write.id).isDisjoint(with: write.births) {
      let births = try store.core.withLock { core in try core.view(write.id)?.version.stamp.births }
      guard let births, !births.isDisjoint(with: write.births) else {
        throw failure(
          "\(write.id): the acknowledged births \(write.births) are lost, but no device deleted them\n"
            + (try await events(of: [write.id]))
        )
      }
    }
    for id in try store.recordIDs() {
      let version = try store.core.withLock { core in try core.view(id)?.version }
      guard let version else { continue }
      if let dead = deleted[id], version.stamp.births.isSubset(of: dead.subtracting(sentAgain[id] ?? [])) {
        throw failure(
          "\(id) exists, but all its births were deleted: \(version.stamp.births)\n\(try await events(of: [id]))")
      }
      for write in acknowledged where write.id == id && !write.births.isDisjoint(with: version.stamp.births) {
        // A write is lost with the births that a device has deleted, although a record of that name may have others.
        if !write.births.isDisjoint(with: deletedBirths(id)) { continue }
        let final = version.stamp.fields[write.field]
        guard let final, final >= write.stamp else {
          throw failure(
            "\(id).\(write.field): an acknowledged write has stamp \(write.stamp), but the field has "
              + "\(String(describing: final)) at the end\n" + (try await events(of: [id])))
        }
      }
    }
  }

  /// Checks that the server has applied no mutation twice, which would show as two consecutive versions of a record with
  /// the same `seen`.
  ///
  /// With a deletion between the two versions the rules allow it in one case: the answer to a creation was lost, and
  /// another device deleted the record before this device had its first token. A fetch without a token cannot tell which
  /// births a tombstone is for, so the device keeps the creation and sends it again. Nor can it tell from a page that has
  /// a re-created record under the name: the feed no longer has the tombstone between the two, and the device merges its
  /// creation with the re-created record.
  private mutating func checkJournal() async throws {
    let mergedUnconfirmed = mergedUnconfirmed()
    try fleet.server.close()
    var living: [String: Set<Birth>] = [:]
    var ended: [String: Set<Birth>] = [:]
    var last: [String: [WriterID: Seen]] = [:]
    var beforeDeletion: [String: [[WriterID: Seen]]] = [:]
    let reader = try LogReader.open(
      at: "/cloud", role: .server,
      environment: SystemEnvironment(fileSystem: fleet.serverDisk, clock: fleet.serverClock, random: random))
    var duplicate: (name: String, seen: [WriterID: Seen])?
    try reader.poll { found in
      switch try JournalEvent.decode(found.body) {
      case .recordSaved(let record)?:
        guard case .bytes(let bytes)? = record.fields[Names.stampField] else { return }
        let stamp = try StampCodec.decode(bytes)
        if last[record.name] == stamp.seen { duplicate = (record.name, stamp.seen) }
        if beforeDeletion[record.name]?.contains(stamp.seen) == true {
          sentAgain[RecordID(record.name), default: []].formUnion(stamp.births)
        }
        last[record.name] = stamp.seen
        living[record.name] = stamp.births
        let again = stamp.births.intersection(ended[record.name] ?? [])
        sentAgain[RecordID(record.name), default: []]
          .formUnion(again.intersection(mergedUnconfirmed[RecordID(record.name)] ?? []))
      case .recordDeleted(_, let name, _)?:
        ended[name, default: []].formUnion(living.removeValue(forKey: name) ?? [])
        if let seen = last.removeValue(forKey: name) { beforeDeletion[name, default: []].append(seen) }
      default: return
      }
    }
    if let duplicate {
      let events = try await events(of: [RecordID(duplicate.name)])
      throw failure("\(duplicate.name) was applied twice: \(duplicate.seen)\n\(events)")
    }
  }

  /// The births that a device has created and merged with others before the server had confirmed them.
  private func mergedUnconfirmed() -> [RecordID: Set<Birth>] {
    readings.values.reduce(into: [:]) { $0.merge($1.found.mergedUnconfirmed) { $0.union($1) } }
  }

  /// The events of some records on every device, for the message of a failure.
  private func events(of ids: Set<RecordID>) async throws -> String {
    var lines: [String] = []
    for device in devices {
      let store = try await device.open()
      var lsn = LSN(1)
      while lsn <= store.durableLSN {
        defer { lsn = lsn.advanced(by: 1) }
        guard let event = try store.source.eventIfKept(at: lsn) else { continue }
        if let id = event.recordID, ids.contains(id) {
          lines.append("    \(device.name) \(lsn) \(id.name) \(event.kindName) \(Self.summary(event))")
        }
        if case .sent(let sent) = event { lines.append("    \(device.name) \(lsn) sent \(sent.lsns)") }
      }
    }
    return lines.joined(separator: "\n")
  }

  private static func summary(_ event: Event) -> String {
    switch event {
    case .saved(let event): "births \(event.births.sorted()) base \(event.base)"
    case .deleted(let event): "births \(event.births.sorted()) base \(event.base)"
    case .merged(let event): "births \(event.births.sorted()) base \(event.base) local \(event.local)"
    case .fetchedSave(let event): "births \(event.births.sorted()) tag \(event.changeTag) \(event.source)"
    case .fetchedDelete(let event): "births \(event.births.sorted()) \(event.reason)"
    case .settled(let event): "\(event.lsn) \(event.outcome) tag \(event.changeTag ?? "-")"
    case .blocked(let event): "births \(event.births.sorted()) tag \(event.changeTag) \(event.words)"
    case .held(let event): "\(event.lsn) \(event.code)"
    default: ""
    }
  }

  /// The births that any device has deleted according to the logs, also during a sync cycle.
  private func deletedBirths(_ id: RecordID) -> Set<Birth> { allDeleted[id] ?? [] }

  private func births(of id: RecordID, on device: Device) async throws -> Set<Birth> {
    try await device.open().core.withLock { core in try core.view(id)?.version.stamp.births ?? [] }
  }
}

/// What the oracle has read in a device's log, which it reads before each compaction.
private final class LogReading: Sendable {
  struct Found: Sendable {
    var upTo: LSN = .none
    /// The births of the version that an event wrote.
    var births: [LSN: Set<Birth>] = [:]
    var deleted: [RecordID: Set<Birth>] = [:]
    /// The births of creations on this device.
    var created: [RecordID: Set<Birth>] = [:]
    /// The births that the device knows to have been on the server.
    var confirmed: [RecordID: Set<Birth>] = [:]
    /// The births of own creations that were merged before they were confirmed.
    var mergedUnconfirmed: [RecordID: Set<Birth>] = [:]
  }
  private let state = Mutex(Found())
  var found: Found { state.withLock { $0 } }

  /// Reads the events after those that were read before.
  func readOn(_ store: RecordStore) throws {
    try state.withLock { found in
      while found.upTo < store.durableLSN {
        found.upTo = found.upTo.advanced(by: 1)
        if let event = try store.source.eventIfKept(at: found.upTo) { found.apply(event) }
      }
    }
  }
}

extension LogReading.Found {
  mutating func apply(_ event: Event) {
    switch event {
    case .saved(let event):
      births[upTo] = event.births
      if event.isCreation { created[event.id, default: []].formUnion(event.births) }
    case .deleted(let event): deleted[event.id, default: []].formUnion(event.births)
    // This event also names the births of a creation that the server may have applied before the deletion.
    case .fetchedDelete(let event): deleted[event.id, default: []].formUnion(event.births)
    case .fetchedSave(let event): confirmed[event.id, default: []].formUnion(event.births)
    case .settled(let event) where event.outcome == .saved:
      confirmed[event.id, default: []].formUnion(births[event.lsn] ?? [])
    case .merged(let event):
      births[upTo] = event.births
      let own = event.births.intersection(created[event.id] ?? [])
      mergedUnconfirmed[event.id, default: []].formUnion(own.subtracting(confirmed[event.id] ?? []))
    default: break
    }
  }
}
