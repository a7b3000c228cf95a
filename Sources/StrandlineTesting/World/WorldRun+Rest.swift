// The end of a simulated world: the faults end, time passes, the devices sync in turn, and everything must be settled and
// alike.

internal import Strandline
internal import StrandlineServer
internal import StrandlineSystem
internal import Synchronization

extension WorldRun {
  /// The time between two rounds: no wait that a fault has caused lasts longer than two of them. A person ends most waits; what
  /// ends them otherwise takes a day at most.
  private var roundMilliseconds: Int64 { plan.faults.contains(.automatic) ? 13 * 3_600_000 : 3_600_000 }
  /// Why the devices sync: if the engines sync by themselves, everything has to end without a person.
  private var restCause: WorldCause { WorldCause(isUserInitiated: !plan.faults.contains(.automatic)) }
  private static let roundsMax = 12
  /// How far a stamp may be ahead of the true time without being corrected; the devices' clocks are off by ten seconds.
  private static let believedMilliseconds: Int64 = 50_000

  mutating func rest() async throws {
    healServer()
    for device in devices { _ = try await device.open() }
    let stubborn = refusals.all
    if !stubborn.isEmpty {
      try await rounds(4, tolerating: Set(stubborn.keys))
      try await judgeOthers(of: Set(stubborn.keys))
      refusals.end()
    }
    try await rounds(Self.roundsMax, tolerating: [])
    for device in devices { try await judgeStuck(device) }
    if plan.hasLateDevice {
      let late = addDevice(offMilliseconds: 0)
      try await mustSync(late)
      try await judge(late)
    }
    try await traceDigests()
    try await judgeConvergence()
    for device in devices {
      if let broken = try await device.brokenProjection() { throw WorldBroken(.honest, "\(device.name): \(broken)") }
    }
    try await judgeWrites()
    try await judgeDefaults()
    for id in plan.names.tallies {
      let store = try await devices[0].open()
      let births = try store.core.withLock { core in try core.view(id)?.version.stamp.births }
      let living = WorldTallies.Life(births: births ?? [], tags: history.livingTags(of: id))
      if let broken = tallies.broken(id, try store.record(id), living) { throw WorldBroken(.noLostWrite, broken) }
    }
    if let broken = try await app.check(devices.map { $0.store }.compactMap { $0 }) {
      throw WorldBroken(.app, broken)
    }
  }

  /// Lets all devices sync in turn until nothing changes, `count` times at most.
  private mutating func rounds(_ count: Int, tolerating refused: Set<RecordID>) async throws {
    for round in 1...count {
      time.advance(milliseconds: roundMilliseconds)
      try await makeZones()
      var isQuiet = true
      let before = server.statistics.appliedOperations
      for device in devices {
        try await resumeZones(device)
        // In the middle, so that what ends by itself has had its time.
        if round == count / 2, refused.isEmpty { try await releaseHolds(device) }
        let store = try await device.open()
        let owed = try owed(store)
        var error = await sync(device, restCause, owedBefore: owed)
        if (error as? StrandlineError)?.code == .needsSignIn {
          say("\(device.name): a person signs in")
          error = await sync(device, WorldCause(), owedBefore: owed)
        }
        takeCounts()
        try await judge(device)
        if let broken = error as? WorldBroken { throw broken }
        if let error {
          isQuiet = false
          if round == count, refused.isEmpty {
            throw WorldBroken(.noStuckState, "\(device.name) cannot sync although no fault is left: \(error)")
          }
        }
        if error == nil, refused.isEmpty, !device.line.omitted.isEmpty {
          isQuiet = false
          try await compareZones(device)
        }
        let status = try store.status()
        if status.unsettled > 0 || status.openBlocks > 0 || status.zones.contains(where: \.isLost) { isQuiet = false }
      }
      if plan.faults.contains(.references), !isQuiet, round.isMultiple(of: 3) { try await mendReferences() }
      if round == count / 2 { for device in devices { try await device.relaunch() } }
      // The round in which nothing is uploaded shows every device what the last one has uploaded.
      if isQuiet, server.statistics.appliedOperations == before { return }
    }
  }

  private mutating func mustSync(_ device: WorldDevice) async throws {
    _ = try await device.open()
    if let error = await sync(device, restCause, owedBefore: [:]) {
      throw error as? WorldBroken ?? WorldBroken(.noStuckState, "\(device.name) cannot sync: \(error)")
    }
  }

  /// A person lets the device sync its lost zones again.
  private mutating func resumeZones(_ device: WorldDevice) async throws {
    let store = try await device.open()
    for zone in try store.status().zones where zone.isLost {
      tally[.resumedZone] += 1
      // Asked again, it may be there; one that was made again is not what it was.
      guard resumed[device.number, default: []].insert(zone.id).inserted else {
        let source: ResyncSource = (plan.seed &+ UInt64(device.number)).isMultiple(of: 2) ? .here : .server
        try await store.engine.resync(zone.id, from: source)
        memory.decided(device.number, zone.id)
        say("\(device.name): a person has \(zone.id) synced again, from \(source)")
        continue
      }
      try await store.engine.resumeZone(zone.id)
      say("\(device.name): a person resumes \(zone.id)")
    }
  }

  /// A person has a device compare the zones of which a page left records out: no page will bring them. One that does not agree yet
  /// is compared again later.
  private mutating func compareZones(_ device: WorldDevice) async throws {
    let store = try await device.open()
    for zone in device.line.omitted.sorted() {
      let state = store.projections.withLock { $0.sync.zones[zone] }
      guard let state, state.wasSeen, !state.isLost else { continue }
      device.line.beginSync()
      defer { _ = device.line.endSync() }
      let found: ZoneVerification
      do { found = try await store.engine.verify(zone) } catch let error as StrandlineError {
        say("\(device.name) compares: throws \(error)")
        continue
      }
      tally[.verifiedZone] += 1
      say("\(device.name) compares: \(found)")
      if found.isEqual { device.line.omitted.remove(zone) }
    }
    try await judge(device)
  }

  /// What the server says of a record itself, or of one that it refers to: no time makes it right.
  private static let lastingCodes = [CloudError.Code.badRequest, .limitExceeded, .validatingReferenceError]

  /// A person has the device send again what the server refused for good.
  private mutating func releaseHolds(_ device: WorldDevice) async throws {
    let store = try await device.open()
    let held = try store.status().held.filter {
      $0.retryMilliseconds == nil && !$0.isDownload && Self.lastingCodes.contains($0.code)
    }
    guard !held.isEmpty else { return }
    try await store.releaseHolds(of: held.map(\.id))
    say("\(device.name): a person releases \(held.map { $0.id.description }.joined(separator: ", "))")
  }

  // MARK: Nothing is stuck

  /// While single records are refused, what does not hang on them must have arrived.
  private mutating func judgeOthers(of refused: Set<RecordID>) async throws {
    for device in devices {
      let store = try await device.open()
      // What is held by its name is judged when the refusals have ended, and so is what goes with one of these or not at all.
      let single = refused.union(try store.status().held.map(\.id))
      let refused = single.union(single.flatMap { store.projections.together(with: $0) })
      for id in try owed(store).keys.sorted() where !refused.contains(id) {
        // What was written together goes together.
        let together = store.projections.together(with: id) + [id]
        if try waits(for: refused, id, in: store)
          || together.contains(where: { try isPointedAt($0, from: refused, in: store) })
        {
          continue
        }
        throw WorldBroken(
          .oneBadRecord, "\(device.name) still owes \(id), though only \(refused.sorted()) are refused")
      }
    }
  }

  /// Whether one of the others refers to the record at the server, so that its deletion waits for them: in the version that
  /// the server has or may have, or in the one that the store has of it, which has not synced since the reference was taken away.
  func isPointedAt(_ id: RecordID, from others: Set<RecordID>, in store: RecordStore) throws -> Bool {
    try others.contains { other in
      guard other.zone == id.zone else { return false }
      if try WorldCascades.bound(to: other, store).contains(id.name) { return true }
      let known = try store.projections.entry(other)?.base?.changeTag
      let states = history.states(of: other)
      let versions = [states.last, states.last { ($0.version?.tag).equalsUTF8(known) && known != nil }].compactMap {
        $0?.version
      }
      return versions.contains { version in
        let names = version.fields.values.flatMap(\.references).map(\.name) + [version.parent].compactMap(\.self)
        return names.contains { $0.equalsUTF8(id.name) }
      }
    }
  }

  private mutating func judgeStuck(_ device: WorldDevice) async throws {
    let store = try await device.open()
    let status = try store.status()
    let name = device.name
    if let held = status.held.first {
      throw WorldBroken(.noStuckState, "\(name) holds \(held.id) for ever: \(held.code): \(held.reason)")
    }
    if status.unsettled > 0 {
      let ids = try owed(store).keys.sorted()
      throw WorldBroken(.noStuckState, "\(name) still owes \(ids.map(\.description).joined(separator: ", "))")
    }
    if status.openBlocks > 0 { throw WorldBroken(.noStuckState, "\(name) has \(status.openBlocks) open blocks") }
    if let zone = status.zones.first(where: \.isLost) {
      throw WorldBroken(.noStuckState, "\(name) has frozen \(zone.id), which exists")
    }
    if let zone = device.line.omitted.min(), store.projections.withLock({ $0.sync.zones[zone]?.wasSeen == true }) {
      throw WorldBroken(.converged, "\(name) cannot mend what a page of \(zone) left out")
    }
    if let left = try store.engine.remembered, !left.isEmpty {
      throw WorldBroken(.bounded, "\(name) owes nothing and remembers \(left)")
    }
    if let wait = status.waitMilliseconds, wait > 2 * 3_600_000 {
      throw WorldBroken(.noStuckState, "\(name) waits another \(wait) ms: \(status.waitReason ?? "")")
    }
  }

  // MARK: Everything is alike

  /// What each device and the server hold, as the judge of convergence compares it.
  private func traceDigests() async throws {
    guard let requests else { return }
    func note(_ name: String, _ lines: [String]) {
      let text = lines.sorted { $0.precedesByUTF8($1) }.map { "\($0)\n" }.joined()
      let digits = String(XXH64.hash(Array(text.utf8)), radix: 16)
      let digest = String(repeating: "0", count: 16 - digits.count) + digits
      requests.note("\(name) has \(lines.count) records, digest \(digest)")
    }
    for device in devices { note(device.name, try await device.dump()) }
    note("the server", try serverLines())
  }

  /// All records of the server, one on each line, ordered by the bytes.
  private func serverLines() throws -> [String] {
    var lines: [String] = []
    for zone in plan.names.zones {
      for (name, record) in try server.records(zone: zone.name, in: Self.key) ?? [:] {
        var fields = record.fields
        fields[Names.stampField] = nil
        lines.append(WorldDevice.line(RecordID(name, zone: zone), record.type, record.parent, fields))
      }
    }
    return lines.sorted { $0.precedesByUTF8($1) }
  }

  private mutating func judgeConvergence() async throws {
    let lines = try serverLines()
    for device in devices {
      let dump = try await device.dump().sorted { $0.precedesByUTF8($1) }
      guard dump.map({ CloudName($0) }) != lines.map({ CloudName($0) }) else { continue }
      let here = Set(texts: dump).subtracting(Set(texts: lines)).sorted().texts.joined(separator: "\n    ")
      let there = Set(texts: lines).subtracting(Set(texts: dump)).sorted().texts.joined(separator: "\n    ")
      throw WorldBroken(
        .converged, "only \(device.name) has\n    \(here)\n  and only the server has\n    \(there)")
    }
  }

  // MARK: Nothing is lost, nothing comes back

  private mutating func judgeWrites() async throws {
    var dead: [RecordID: Set<Birth>] = [:]
    var unconfirmed: [RecordID: Set<Birth>] = [:]
    var givenUp: [RecordID: Set<Birth>] = [:]
    for device in devices {
      let reading = device.reading
      for (id, births) in reading.deleted { dead[id, default: []].formUnion(births) }
      for (id, births) in reading.mergedUnconfirmed { unconfirmed[id, default: []].formUnion(births) }
      for (id, births) in reading.givenUp { givenUp[id, default: []].formUnion(births) }
      // Of two logs with one past, one may owe a creation that the other has ended before it was sent: no server tells.
      for (id, birth, begun, ended) in reading.deletedUnconfirmed
      where memory.isCopied(device.number, with: begun, without: ended) {
        unconfirmed[id, default: []].insert(birth)
      }
    }
    let store = try await devices[0].open()
    var logs: [[Tenure]] = []
    for device in devices { logs.append(try await device.open().projections.withLock { $0.sync.tenures }) }
    for id in plan.names.single where !history.lostZones.contains(id.zone) && !memory.foreign.contains(id) {
      let version = try store.core.withLock { core in try core.view(id)?.version }
      // The server may have applied a creation whose answer was lost, and another device may have deleted it before this
      // device had its first token: a fetch without one cannot say which births a tombstone is of, and the creation is
      // sent again, alone or merged with a later life.
      let mayReturn = (history.returned[id] ?? []).union(unconfirmed[id] ?? [])
      // A deletion is of the lives that its app saw. One that met a record with another life too was given up, and the
      // record lives on for all: the app can see it, and may go on writing.
      let spared = devices.map { $0.reading.spared[id] ?? [] }
      let mustBeDead = memory.mustBeDead(id, except: spared).subtracting(mayReturn)
      if let version, !version.stamp.births.isEmpty, version.stamp.births.isSubset(of: mustBeDead) {
        throw WorldBroken(.noResurrection, "\(id) exists, but all its births were deleted: \(version.stamp.births)")
      }
      let excused = memory.mayBeDead(id).union(dead[id] ?? []).union(givenUp[id] ?? [])
        .union(history.cascaded[id] ?? [])
      try judgeWrites(of: id, version, excused: excused, logs)
    }
  }

  private func judgeWrites(
    of id: RecordID, _ version: Version?, excused: Set<Birth>, _ logs: [[Tenure]]
  ) throws {
    let writes = memory.writes.filter { $0.id == id && !$0.isForfeit && $0.births.isDisjoint(with: excused) }
    // A disk of before has forgotten these, and the server has not.
    let arrived = memory.writes.filter { $0.id == id && $0.isForfeit && version?.stamp.fields[$0.field] == $0.stamp }
    for write in writes {
      guard let version, !version.stamp.births.isDisjoint(with: write.births) else {
        throw WorldBroken(.noLostWrite, "\(id): the acknowledged write \(words(write)) is lost with its record")
      }
      // It was replaced knowingly since, perhaps by a clock that was set back.
      if (writes + arrived).contains(where: { $0.field == write.field && $0.replaces(write, logs) }) { continue }
      // A time from the future is not believed, so such a stamp may have become less.
      if write.stamp.time.milliseconds > write.milliseconds + Self.believedMilliseconds - plan.lagMilliseconds {
        continue
      }
      guard let stamp = version.stamp.fields[write.field], stamp >= write.stamp else {
        let found = version.stamp.fields[write.field].map { "\($0)" } ?? "no stamp"
        throw WorldBroken(
          .noLostWrite, "\(id).\(write.field): the acknowledged write \(words(write)) is lost; the field has \(found)")
      }
    }
    for field in WorldPlan.fields { try judgeOrder(writes.filter { $0.field == field }, version?.fields[field], logs) }
  }

  /// The write whose value stands at the end was not made before another one that knew it, nor, by right clocks, ten minutes
  /// before another one.
  private func judgeOrder(_ writes: [WorldMemory.Write], _ value: FieldValue?, _ logs: [[Tenure]]) throws {
    guard let value, let last = writes.last(where: { $0.value == value }) else { return }
    for other in writes where other.value != value {
      // What a copy of a log has sent under its name does not tell the original how much of its own the server has. Then the
      // times decide, and one of them is of a wrong clock.
      let known = last.errorMilliseconds > 30_000 ? [] : logs
      // A copy that still owes the one, or the disk of before, does not know of the other. Its clock was ahead, so its time became
      // less when it came to the server. Where the clock was put right before the other one, or a third device has replaced that
      // one or sent it on with a lesser time, or made the other one from it, nothing tells which is the later.
      let later = other.device == last.device ? other.lsn : LSN(rawValue: .max)
      if last.errorMilliseconds > 30_000, memory.isCopied(last.device, with: last.lsn, without: later),
        !history.hasReplaced(last, other)
      {
        continue
      }
      if other.replaces(last, known) || (other.device == last.device && other.lsn > last.lsn) {
        throw WorldBroken(
          .noLostWrite, "\(last.id).\(last.field): \(words(last)) stands, but \(words(other)) was written knowing it")
      }
      // What was written knowing the other by a clock that was wrong took its place, and counts from then on.
      let isReplaced = writes.contains { $0.errorMilliseconds > 30_000 && $0.replaces(other, logs) }
      // A time that goes on from one that was ahead, before the server's clock was known, counts from when it was sent.
      let goesOn = last.stamp.time.milliseconds > last.milliseconds + Self.believedMilliseconds - plan.lagMilliseconds
      if last.errorMilliseconds <= 30_000, other.errorMilliseconds <= 30_000, !isReplaced, !goesOn,
        other.milliseconds > last.milliseconds + 600_000
      {
        throw WorldBroken(
          .noLostWrite,
          "\(last.id).\(last.field): \(words(last)) stands, but \(words(other)) was written "
            + "\((other.milliseconds - last.milliseconds) / 1000) s later, and both clocks were right")
      }
    }
  }

  private func words(_ write: WorldMemory.Write) -> String {
    "\(write.value.map { "\($0)" } ?? "nil") (d\(write.device) \(write.lsn), \(write.stamp))"
  }
}
