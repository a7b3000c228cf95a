// The judge: what is checked after each step. It reads the devices' logs, the server's journal and the devices' state, and
// decides by none of the engine's rules.

internal import Strandline
internal import StrandlineServer
internal import StrandlineSystem
internal import Synchronization

extension WorldRun {
  /// Checks a device after a step.
  mutating func judge(_ device: WorldDevice) async throws {
    try history.readOn(server)
    if let duplicate = history.duplicate {
      throw WorldBroken(.onceInEffect, "\(duplicate.id) was applied twice: \(duplicate.words)")
    }
    if let forgetful = history.forgetful {
      throw WorldBroken(
        .trueAncestors, "a version of \(forgetful.id) includes less than the one before: \(forgetful.words)")
    }
    if let back = history.takeResurrected(), try !mayBringBack(device, back.id, back.births) {
      throw WorldBroken(
        .noResurrection, "\(device.name) sent \(back.id) again, though its births were deleted: \(back.births.sorted())"
      )
    }
    let line = device.line.takeTally()
    tally.add(line.tally)
    if let broken = line.broken.first { throw WorldBroken(broken.invariant, "\(device.name): \(broken.words)") }
    if let part = together.takeBroken().first { throw WorldBroken(.together, "\(device.name): \(part)") }
    guard let store = device.store else { return }
    try await app.plant(store)
    try device.readOn()
    let reading = device.reading
    if let lsn = reading.wronglySpared.first {
      throw WorldBroken(
        .noResurrection, "\(device.name): the deletion \(lsn) was given up, and the server has no other life")
    }
    let events = device.takeUnjudged()
    for (lsn, event) in events { try judge(event, lsn, reading, device) }
    // What an app writes changes no token and no version of the server's; a start may.
    if judgedStarts.updateValue(device.starts, forKey: device.number) != device.starts
      || events.contains(where: { !Self.isApps($0.event) })
    {
      try judgeTokens(device, store, reading)
    }
  }

  /// Whether a device cannot know that a record that it sends was deleted with all its lives. One of them it has begun itself and
  /// sent before; but it has forgotten that, or it never had an answer, and it had no token, or an expired one: a fetch without
  /// one shows what is deleted, and not which life.
  private func mayBringBack(_ device: WorldDevice, _ id: RecordID, _ births: Set<Birth>) throws -> Bool {
    // As it was before the device sent the record.
    let confirmed = device.reading.confirmed[id] ?? []
    if device.store != nil { try device.readOn() }
    let own = births.intersection(device.reading.created[id] ?? [])
    if memory.hasForgotten(device.number) { return !own.isEmpty }
    let reading = device.reading
    // All devices begin a default as one life: this one has not heard that another one deleted it.
    if births == [.ofDefaults], own == births, reading.deleted[id]?.contains(.ofDefaults) != true { return true }
    let hadNoToken =
      reading.goneInFullFetch.contains(id)
      || own.contains { reading.begun[$0] ?? .zero < reading.fetchedWhole[id.zone] ?? .zero }
    return hadNoToken && !own.isSubset(of: confirmed)
  }

  private static func isApps(_ event: Event) -> Bool {
    switch event {
    case .saved, .deleted, .sent: true
    default: false
    }
  }

  // MARK: Events

  private func judge(_ event: Event, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    switch event {
    case .settled(let event) where event.outcome == .saved: try judgeSaved(event, lsn, reading, device)
    case .settled(let event) where event.outcome == .deleted: try judgeDeleted(event, lsn, reading, device)
    case .settled(let event): try judgeEnd(event, lsn, reading, device)
    case .conflicted(let event): try judgeDefault(event, lsn, device)
    case .fetchedDelete(let event) where event.reason == .sweep: try judgeRemoved(event, lsn, reading, device)
    case .fetchedDelete(let event): try judgeDeletion(event, lsn, reading, device)
    case .fetchedSave(let event): try judgeVersion(event, lsn, device)
    case .merged(let event):
      // What is uploaded again as another life was made from no version that the server has.
      let isOtherLife =
        event.rule == Merged.reviveRule && event.base == .zero && memory.hasDecided(device.number, event.id.zone)
        && reading.mayFollowDecision(event.id, reading.mutations[event.local]?.births ?? [], at: lsn)
      guard isOtherLife || reading.versions[event.base] == event.id else {
        throw WorldBroken(
          .trueAncestors, "\(device.name) \(lsn): \(event.id) was merged with \(event.base), no version of the server's"
        )
      }
      guard reading.mutations[event.local]?.id == event.id else {
        throw WorldBroken(
          .trueAncestors, "\(device.name) \(lsn): \(event.id) was merged from \(event.local), no mutation of it")
      }
      try judgeTold(of: event.local, result: lsn, server: event.base, event.id, lsn, reading, device)
    default: break
    }
  }

  private func judgeSaved(
    _ event: Settled, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice
  ) throws {
    guard let mutation = reading.mutations[event.lsn], !mutation.isDeletion, let writer = reading.writers[event.lsn],
      !history.hasHeld(
        event.id, mutation: event.lsn, of: writer, tenure: mutation.tenure,
        begun: mutation.isCreation ? mutation.births : [])
    else { return }
    throw WorldBroken(
      .checkpointAfterAck,
      "\(device.name) \(lsn): mutation \(event.lsn) of \(event.id) is settled as saved, and the server never had it")
  }

  private func judgeDeleted(
    _ event: Settled, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice
  ) throws {
    guard let mutation = reading.mutations[event.lsn], !mutation.births.isEmpty,
      !history.lostZones.contains(event.id.zone), let last = history.states(of: event.id).last,
      let living = last.version?.stamp?.births, !living.isEmpty, living.isSubset(of: mutation.births)
    else { return }
    throw WorldBroken(
      .checkpointAfterAck,
      "\(device.name) \(lsn): the deletion \(event.lsn) of \(event.id) is settled, and the server has that life")
  }

  private func judgeVersion(_ event: FetchedSave, _ lsn: LSN, _ device: WorldDevice) throws {
    let version = try event.content.decoded(type: event.type, births: event.births, this: lsn).version
    var fields = version.fields
    fields[Version.parentField] = nil
    let isTrue = history.states(of: event.id).contains { state in
      guard let held = state.version else { return false }
      return held.tag.equalsUTF8(event.changeTag) && held.type == event.type && held.parent.equalsUTF8(version.parent)
        && held.fields == fields
    }
    if !isTrue {
      throw WorldBroken(
        .trueAncestors,
        "\(device.name) \(lsn): the version \(event.changeTag) of \(event.id) is none that the server had")
    }
  }

  // MARK: Tokens

  private func judgeTokens(_ device: WorldDevice, _ store: RecordStore, _ reading: WorldReading) throws {
    let sync = store.projections.sync
    for (id, zone) in sync.zones.sorted(by: { $0.key < $1.key }) {
      // A page left out what no page will bring; the comparison at rest mends it.
      if device.line.omitted.contains(id) { continue }
      guard let token = zone.token, let place = server.place(ofToken: app.client?.text(token) ?? token.rawValue),
        let life = history.zones[place.life]
      else { continue }
      let records = life.records
      for (name, states) in records.sorted(by: { $0.key < $1.key }) {
        // A page shows each record at the place of its latest change, so a token says nothing of those that have changed
        // after it.
        guard let last = states.last, last.lsn <= place.lsn else { continue }
        let record = RecordID(name, zone: id)
        // Set aside by name, or still to be fetched.
        if sync.unread[record] != nil || sync.openBlocks[record] != nil { continue }
        if reading.lists(record, last.version?.tag) { continue }
        // It was listed, and the zone was deleted before it was looked up.
        if life.isDeleted, reading.hasLookedUp(record) { continue }
        let entry = try store.core.withLock { core in try core.projections.entry(record) }
        // A page that is behind showed it once more, to a device that deletes it, or puts another life in its place: the answer
        // to that says that it is gone.
        if last.version == nil, let entry, let pending = entry.pending {
          let shown = states.last { $0.version != nil && ($0.version?.tag).equalsUTF8(entry.base?.changeTag) }?.version?
            .stamp?
            .births
          let births = reading.mutations[pending.newest]?.births ?? []
          let replaces =
            shown?.isSubset(of: reading.deleted[record] ?? []) == true && shown?.isDisjoint(with: births) == true
          if pending.isDeletion || replaces { continue }
        }
        try judge(entry?.base, of: record, states, reading, device)
      }
    }
  }

  private func judge(
    _ base: Base?, of id: RecordID, _ states: [WorldHistory.State], _ reading: WorldReading, _ device: WorldDevice
  ) throws {
    func words() -> String { "\(device.name): the token of \(id.zone) names the last change of \(id.name)" }
    let last = states.last?.version
    if let base {
      // A tag that the server never gave is judged elsewhere.
      guard !(last?.tag).equalsUTF8(base.changeTag),
        states.contains(where: { ($0.version?.tag).equalsUTF8(base.changeTag) })
      else { return }
      throw WorldBroken(
        .tokenAfterData, "\(words()), \(last?.tag ?? "a deletion"), but the device has \(base.changeTag)")
    }
    guard let last else { return }
    // A life that this device knows to be deleted is not taken in, though the feed shows it.
    if let births = last.stamp?.births, births.isSubset(of: reading.deleted[id] ?? []) { return }
    if memory.foreign.contains(id) || memory.retyped.contains(id) { return }
    throw WorldBroken(.tokenAfterData, "\(words()), version \(last.tag), but the device has none")
  }

  // MARK: After a power cut or a move

  mutating func judgeRestart(_ device: WorldDevice, in store: RecordStore) throws {
    for (lsn, id) in (memory.acknowledged[device.number] ?? [:]).sorted(by: { $0.key < $1.key }) {
      let found = lsn <= store.durableLSN ? try store.source.eventIfKept(at: lsn) : nil
      guard let found, found.recordID == id else {
        throw WorldBroken(
          .durable,
          "\(device.name): event \(lsn) was acknowledged and is \(found?.kindName ?? "lost") after a power cut or a move"
        )
      }
    }
    guard let interrupted = memory.interrupted.removeValue(forKey: device.number) else { return }
    var count = 0
    var lsn = interrupted.before
    while lsn < store.durableLSN {
      lsn = lsn.advanced(by: 1)
      guard case .saved? = try store.source.eventIfKept(at: lsn),
        let loaded = try LoadedVersion(store.source.event(at: lsn), at: lsn)
      else { continue }
      if loaded.dirty.values.contains(lsn) { count += 1 }
    }
    if count != 0, count != interrupted.count {
      throw WorldBroken(
        .whole, "\(device.name): \(count) of \(interrupted.count) changes of an interrupted transaction are there")
    }
    if count != 0, interrupted.isRefused {
      throw WorldBroken(.honest, "\(device.name): a write was refused as that of a moved store, and is there")
    }
  }

  // MARK: Owed and refused

  /// What a store owes: the newest unsettled mutation of each record.
  func owed(_ store: RecordStore) throws -> [RecordID: LSN] {
    var owed: [RecordID: LSN] = [:]
    for lsn in store.projections.owed {
      if let id = try store.source.eventIfKept(at: lsn)?.recordID { owed[id] = lsn }
    }
    return owed
  }

  /// What a sync that has returned has left in silence: it was owed before, is owed unchanged, and the store does not say
  /// why. nil if nothing.
  func silence(_ device: WorldDevice, _ before: [RecordID: LSN]) -> WorldBroken? {
    guard let store = device.store, let after = try? owed(store) else { return nil }
    let left = before.filter { id, lsn in after[id] == lsn }
    guard let silent = left.keys.sorted().first(where: { !isExplained($0, before, in: store) })
    else { return nil }
    return WorldBroken(
      .noSilence, "\(device.name) synced without an error and still owes \(silent), and does not say why")
  }

  /// The holds of a device whose time is over, with what they hold. The time is that of its clock, so there are none if that was
  /// turned.
  func overHolds(_ device: WorldDevice) -> [RecordID: LSN] {
    guard device.clock.turnCount == 0, let store = device.store else { return [:] }
    let wall = device.clock.wallMilliseconds()
    return store.projections.withLock { state in
      state.sync.held.filter { _, held in
        held.durationMilliseconds > 0 && held.wallMilliseconds + held.durationMilliseconds <= wall
      }.mapValues(\.lsn)
    }
  }

  /// A hold whose time was over before a sync that has returned, and that has not ended; nil if there is none.
  func endlessHold(_ device: WorldDevice, _ before: [RecordID: LSN]) -> WorldBroken? {
    let after = overHolds(device)
    guard let id = before.keys.sorted().first(where: { after[$0] == before[$0] }) else { return nil }
    return WorldBroken(
      .noStuckState, "\(device.name) synced without an error and still holds \(id), though its time was over before")
  }

  /// Whether the store says why a record is not sent: it is held, its zone is lost, or it waits for one of which that is true,
  /// or which the app has changed during the sync.
  private func isExplained(_ id: RecordID, _ before: [RecordID: LSN], in store: RecordStore) -> Bool {
    var asked: Set<RecordID> = []
    var next = id
    while asked.insert(next).inserted {
      guard let change = try? store.pendingChange(of: next) else { return false }
      switch change.obstacle {
      case .held, .zoneLost, .zoneLeftOut: return true
      case .target(let other), .referrer(let other), .together(let other): next = other
      case .halted, nil: return before[next] != change.lsn
      }
    }
    return false
  }

  /// Whether a record hangs on one of others, directly or through others: by a reference, as its child, or because a transaction
  /// that goes to the server as a whole wrote both.
  func waits(for others: Set<RecordID>, _ id: RecordID, in store: RecordStore) -> Bool {
    var asked: Set<RecordID> = []
    var open = [id]
    while let next = open.popLast() {
      guard asked.insert(next).inserted else { continue }
      if next != id, others.contains(next) { return true }
      open += store.projections.together(with: next)
      guard let record = try? store.record(next) else { continue }
      if let parent = record.parent { open.append(RecordID(parent, zone: next.zone)) }
      for value in record.fields.values {
        for reference in value.references { open.append(RecordID(reference.name, zone: next.zone)) }
      }
    }
    return false
  }
}

extension WorldRun {
  /// The events of all devices' logs about records, tokens and zones, for the history of a failure.
  func logs() -> [String] {
    var lines: [String] = []
    for device in devices {
      guard let store = device.store else { continue }
      var lsn = LSN.zero
      while lsn < store.durableLSN {
        lsn = lsn.advanced(by: 1)
        guard let event = try? store.source.eventIfKept(at: lsn) else { continue }
        let fields = (try? LoadedVersion(event, at: lsn)).flatMap(\.self).map { Self.summary($0.version) } ?? ""
        lines.append("log of \(device.name) \(lsn): \(event.kindName) \(Self.summary(event))\(fields)")
      }
    }
    return lines
  }

  /// The fields with their times, and what the version includes.
  private static func summary(_ version: Strandline.Version) -> String {
    let fields = version.names.sorted().map { name in
      "\(name) \(version.fields[name].map { "\($0)" } ?? "nil") \(version.stamp.fields[name].map { "\($0)" } ?? "-")"
    }
    let seen = version.stamp.seen.sorted { $0.key < $1.key }.map { "\(String($0, radix: 16)) \($1.lsn)" }
    return " {\(fields.joined(separator: ", "))} seen {\(seen.joined(separator: ", "))}"
  }

  private static func summary(_ event: Event) -> String {
    let name = event.recordID.map { "\($0) " } ?? ""
    return switch event {
    case .saved(let event): "\(name)births \(event.births.sorted()) base \(event.base)"
    case .deleted(let event): "\(name)births \(event.births.sorted()) base \(event.base)"
    case .merged(let event):
      "\(name)births \(event.births.sorted()) base \(event.base) local \(event.local) by \(event.rule)"
    case .fetchedSave(let event): "\(name)births \(event.births.sorted()) tag \(event.changeTag) by \(event.source)"
    case .fetchedDelete(let event): "\(name)births \(event.births.sorted()) by \(event.reason)"
    case .settled(let event): "\(name)\(event.lsn) \(event.outcome) tag \(event.changeTag ?? "-") \(event.code)"
    case .conflicted(let event):
      "\(name)\(event.local) with \(event.server) from \(event.ancestor) by \(event.rule): "
        + event.fields.map { "\($0.name) by \($0.rule), lost \($0.loser)" }.joined(separator: ", ")
    case .blocked(let event): "\(name)births \(event.births.sorted()) tag \(event.changeTag) \(event.words)"
    case .held(let event): "\(name)\(event.lsn) \(event.code): \(event.words)"
    case .sent(let event): "\(event.lsns)"
    case .listed(let event): "\(event.zone) \(event.items.map { "\($0.name) \($0.changeTag)" })"
    case .listedEnded(let event): "\(event.zone) \(event.lsns)"
    case .tokenAdvanced(let event): "\(event.zone)"
    case .zoneChanged(let event): "\(event.zone) \(event.change) \(event.words)"
    default: name
    }
  }
}
