// Random lives of a fleet: edits, deletions, new lives, lost answers, power cuts, expired tokens, throttling; then a quiet
// phase in which everything must agree.
//
// The oracle shares no code with the engine beyond reading stamps: for every acknowledged write it notes the stamp that
// the write put on its field, and at the end the living record must carry that stamp or a greater one. Deleted births
// must stay dead, and the server's journal must not hold the same mutation twice.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// One run of a fleet, from one seed.
package struct FleetSimulation {
  /// What went wrong, and how to see it again.
  package struct Failure: Error, CustomStringConvertible {
    package var seed: UInt64
    package var step: Int
    package var what: String
    package var trace: [String]
    package var description: String {
      "seed \(seed), step \(step): \(what)\n  " + trace.suffix(80).joined(separator: "\n  ")
    }
  }

  /// What happened in a run: a campaign that never meets these has proved little.
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
    /// Events that compactions removed.
    package var removed: UInt64 = 0
    /// Records of which a compaction dared to leave out nothing.
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
  /// Every acknowledged write of a field: the stamp it got, and the lives it was for.
  private var acknowledged: [(id: RecordID, field: String, stamp: FieldStamp, births: Set<Birth>)] = []
  /// Every life whose deletion was acknowledged to the app.
  private var deleted: [RecordID: Set<Birth>] = [:]
  private var allDeleted: [RecordID: Set<Birth>] = [:]
  /// The lives that were begun, deleted by somebody, and begun again because the first answer was lost.
  private var sentAgain: [RecordID: Set<Birth>] = [:]
  /// Which faults this run has at all.
  private let hasCrashes: Bool
  private let hasLostAnswers: Bool
  private let hasThrottling: Bool
  private let hasExpiry: Bool
  private let hasStalePages: Bool
  /// Dice of its own: a life without compaction is the same as before there was any.
  private let compaction: SeededRandom
  private let hasCompaction: Bool
  /// What the oracle has read of a device's log before a compaction took it away.
  private let harvests: [String: Harvest]

  package init(seed: UInt64, devices count: Int = 3) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    var limits = ServerLimits()
    // Small pages in half of the lives: a zone of five names then has several.
    if random.below(2) == 0 { limits.resultsMax = 2 }
    fleet = try Fleet(seed: seed, limits: limits)
    // Clocks that disagree by less than a minute: beyond it times are clamped, which has its own tests.
    compaction = SeededRandom(seed: seed ^ 0xC0_4A_C7)
    hasCompaction = compaction.below(3) > 0
    let segmentBytesMax = hasCompaction ? 8 << 10 : nil
    devices = (0..<count).map { [random, fleet] place in
      fleet.device(
        "d\(place)", clockSkewMilliseconds: Int64(random.below(40_000)) - 20_000, segmentBytesMax: segmentBytesMax)
    }
    harvests = Dictionary(uniqueKeysWithValues: devices.map { ($0.name, Harvest()) })
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
      let (chance, harvest) = (SeededRandom(seed: compaction.next()), harvests[device.name])
      compactMeanwhile = {
        guard chance.below(4) == 0 else { return }
        let result = Result {
          try harvest?.read(store)
          return try store.compactBlocking()
        }
        compactions.withLock { $0.append(result) }
      }
      device.whileAsking(compactMeanwhile)
    }
    // The app goes on editing while the cycle runs.
    if hasEdits {
      let (id, field, chance) = (name(), field(), SeededRandom(seed: random.next()))
      let words = "\(device.name) step \(step), meanwhile"
      device.whileAsking { [compactMeanwhile] in
        defer { compactMeanwhile?() }
        guard chance.below(3) == 0 else { return }
        // A name that is deleted by now refuses, as it must.
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
      note(report)
      trace.append("\(step) \(device.name) syncs \(direction): \(report)")
    } catch let error as StrandlineError where error.code.isTransient {
      trace.append("\(step) \(device.name) syncs \(direction): \(error.code.rawValue)")
    }
    for result in compactions.withLock({ $0 }) {
      let report = try result.get()
      note(report)
      trace.append("\(step) \(device.name) compacted meanwhile \(report.eventsBefore) to \(report.eventsAfter)")
    }
  }

  private mutating func note(_ report: SyncReport) {
    tally.recognized += report.recognized
    tally.merged += report.merged
    tally.blocked += report.blocked
  }

  /// The server applies a batch and the device never hears of it; then perhaps the device's power goes too.
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
    if case .success(let report) = result { note(report) }
    trace.append("\(step) \(device.name) syncs, answer lost: \(fleet.server.statistics.droppedAnswers - dropped)")
    if hasCrashes, random.below(2) == 0 { try await crash(device) }
  }

  private mutating func crash(_ device: Device) async throws {
    tally.crashes += 1
    trace.append("\(step) \(device.name) loses power")
    device.crash(random.below(2) == 0 ? .none : .all)
  }

  private mutating func compact(_ device: Device) async throws {
    try harvests[device.name]?.read(try await device.open())
    let (report, broken) = try await device.compact()
    note(report)
    trace.append("\(step) \(device.name) compacts \(report.eventsBefore) events to \(report.eventsAfter)")
    if let broken { throw failure(broken) }
  }

  private mutating func note(_ report: StoreCompaction) {
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
        note(report)
        trace.append("quiet \(round) \(device.name): \(report)")
        if let broken = try await device.brokenInvariant() { throw failure(broken) }
      }
    }
    var dumps: [[String]] = []
    for device in devices {
      dumps.append(try await device.dump())
      let status = try await device.open().status()
      guard status.unsettled == 0 else {
        let ids = Set(try await device.open().core.withLock { Array($0.projections.outbox.records.values) })
        throw failure("\(device.name) still owes \(status.unsettled) mutations\n\(try await story(ids))")
      }
      guard status.openBlocks == 0 else {
        throw failure("\(device.name) has \(status.openBlocks) blocks without an end")
      }
    }
    allDeleted = deleted
    for device in devices {
      try harvests[device.name]?.read(try await device.open())
      for (id, births) in harvests[device.name]?.found.deleted ?? [:] { allDeleted[id, default: []].formUnion(births) }
    }
    // A device that joins late sees what the server holds.
    let late = fleet.device("late")
    try await late.sync()
    dumps.append(try await late.dump())
    for (place, dump) in dumps.enumerated() where dump != dumps[0] {
      let (mine, others) = (Set(dump).subtracting(dumps[0]).sorted(), Set(dumps[0]).subtracting(dump).sorted())
      let ids = Set(
        (mine + others).compactMap { $0.split(separator: "/", maxSplits: 1).last?.prefix { $0 != " " } }.map {
          RecordID(String($0))
        })
      throw failure("device \(place) ends with \(mine), and device 0 with \(others)\n\(try await story(ids))")
    }
    try await checkJournal()
    try await checkWrites(on: late)
  }

  private func checkWrites(on device: Device) async throws {
    let store = try await device.open()
    // A life that nobody deleted must be there.
    for write in acknowledged where deletedBirths(write.id).isDisjoint(with: write.births) {
      let births = try store.core.withLock { core in try core.view(write.id)?.version.stamp.births }
      guard let births, !births.isDisjoint(with: write.births) else {
        throw failure(
          "\(write.id): an acknowledged life \(write.births) is gone, though nobody deleted it\n\(try await story([write.id]))"
        )
      }
    }
    for id in store.recordIDs() {
      let version = try store.core.withLock { core in try core.view(id)?.version }
      guard let version else { continue }
      if let dead = deleted[id], version.stamp.births.isSubset(of: dead.subtracting(sentAgain[id] ?? [])) {
        throw failure(
          "\(id) lives, though all its births were deleted: \(version.stamp.births)\n\(try await story([id]))")
      }
      for write in acknowledged where write.id == id && !write.births.isDisjoint(with: version.stamp.births) {
        // A write into a life that somebody deleted went with it, though the name may live on in another life.
        if !write.births.isDisjoint(with: deletedBirths(id)) { continue }
        let final = version.stamp.fields[write.field]
        guard let final, final >= write.stamp else {
          throw failure(
            "\(id).\(write.field): an acknowledged write with stamp \(write.stamp) ended as \(String(describing: final))\n"
              + (try await story([id])))
        }
      }
    }
  }

  /// No mutation was applied twice: two versions of a record in a row with the same `seen` would be one.
  ///
  /// With a deletion in between it is the one case that the rules allow: a creation whose answer was lost, which somebody
  /// deleted before this device had its first token. A fetch without token cannot tell whose tombstone it shows, so the
  /// creation is kept and sent again. Nor can a page tell that shows another life under the name by then: the tombstone
  /// in between is no longer in the feed, and the creation is joined with that life.
  private mutating func checkJournal() async throws {
    let joinedUnheard = joinedUnheard()
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
          .formUnion(again.intersection(joinedUnheard[RecordID(record.name)] ?? []))
      case .recordDeleted(_, let name, _)?:
        ended[name, default: []].formUnion(living.removeValue(forKey: name) ?? [])
        if let seen = last.removeValue(forKey: name) { beforeDeletion[name, default: []].append(seen) }
      default: return
      }
    }
    if let duplicate {
      let story = try await story([RecordID(duplicate.name)])
      throw failure("\(duplicate.name) was applied twice: \(duplicate.seen)\n\(story)")
    }
  }

  /// The lives that a device began and joined with another one's before it had heard that the server knew of them.
  private func joinedUnheard() -> [RecordID: Set<Birth>] {
    harvests.values.reduce(into: [:]) { $0.merge($1.found.joinedUnheard) { $0.union($1) } }
  }

  /// The events of some records on every device, for a failure's message.
  private func story(_ ids: Set<RecordID>) async throws -> String {
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

  /// The lives that anybody deleted, by the logs of all devices: also those deleted while a cycle ran.
  private func deletedBirths(_ id: RecordID) -> Set<Birth> { allDeleted[id] ?? [] }

  private func births(of id: RecordID, on device: Device) async throws -> Set<Birth> {
    try await device.open().core.withLock { core in try core.view(id)?.version.stamp.births ?? [] }
  }
}

/// What the oracle has read of a device's log, before a compaction takes it away.
private final class Harvest: Sendable {
  struct Found: Sendable {
    var upTo: LSN = .none
    var births: [LSN: Set<Birth>] = [:]
    var deleted: [RecordID: Set<Birth>] = [:]
    var begun: [RecordID: Set<Birth>] = [:]
    var heard: [RecordID: Set<Birth>] = [:]
    var joinedUnheard: [RecordID: Set<Birth>] = [:]
  }
  private let state = Mutex(Found())
  var found: Found { state.withLock { $0 } }

  /// Reads on, from where it was read last.
  func read(_ store: RecordStore) throws {
    try state.withLock { found in
      while found.upTo < store.durableLSN {
        found.upTo = found.upTo.advanced(by: 1)
        if let event = try store.source.eventIfKept(at: found.upTo) { found.take(event) }
      }
    }
  }
}

extension Harvest.Found {
  mutating func take(_ event: Event) {
    switch event {
    case .saved(let event):
      births[upTo] = event.births
      if event.isCreation { begun[event.id, default: []].formUnion(event.births) }
    case .deleted(let event): deleted[event.id, default: []].formUnion(event.births)
    // A creation that may have arrived goes with the tombstone that follows it, and says so.
    case .fetchedDelete(let event): deleted[event.id, default: []].formUnion(event.births)
    case .fetchedSave(let event): heard[event.id, default: []].formUnion(event.births)
    case .settled(let event) where event.outcome == .saved:
      heard[event.id, default: []].formUnion(births[event.lsn] ?? [])
    case .merged(let event):
      births[upTo] = event.births
      let own = event.births.intersection(begun[event.id] ?? [])
      joinedUnheard[event.id, default: []].formUnion(own.subtracting(heard[event.id] ?? []))
    default: break
    }
  }
}
