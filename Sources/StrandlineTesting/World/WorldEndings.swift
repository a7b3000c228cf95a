// What a device's log says to have ended: the judge of edits that are not sent any more, of records that are not shown any
// more, and of what the app is told when a change of its own loses. Each is held against what the server has done with the
// lives of the record. An excuse names the fault, the decision or the request that explains the end.

internal import Strandline
internal import StrandlineSystem

extension WorldHistory {
  /// What the server has ended of a record.
  struct Ended {
    /// The lives that are over, or were.
    var births: Set<Birth> = []
    /// The record was deleted once, by itself or with its zone.
    var isDeleted = false
  }

  /// The lives that the server has ended under a name: it deleted the record, or its zone, or another life took its place.
  func ended(_ id: RecordID) -> Ended {
    var ended = Ended()
    for zone in zones.values where zone.id == id.zone {
      guard let states = zone.records[id.name] else { continue }
      var living: Set<Birth> = []
      for state in states {
        guard let version = state.version else {
          ended.births.formUnion(living)
          ended.isDeleted = true
          living = []
          continue
        }
        guard let births = version.lives(after: living) else {
          // A tool's version does not say which life it goes on with, and may have one of its own.
          living.insert(version.unstampedBirth)
          continue
        }
        ended.births.formUnion(living.subtracting(births))
        living = births
      }
      guard zone.isDeleted else { continue }
      ended.births.formUnion(living)
      ended.isDeleted = true
    }
    return ended
  }
}

extension WorldRun {
  /// Whether the server has ended some lives of a record, or has deleted the record while a request of the device may have
  /// brought it those of them that it never had: a deletion does not say of which life it is.
  private func hasEnded(_ id: RecordID, _ births: Set<Birth>, _ reading: WorldReading) -> Bool {
    let ended = history.ended(id)
    let left = births.subtracting(ended.births)
    return left.isEmpty || (ended.isDeleted && left.isSubset(of: reading.sent[id] ?? []))
  }

  // MARK: Edits

  /// Judges the end of a mutation that ended in another way than by the server's answer to its upload.
  func judgeEnd(_ event: Settled, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    if event.outcome == .deletedOnServer { try judgeEnded(event, lsn, reading, device) }
    try judgeGivenUp(event, lsn, reading, device)
    guard let mutation = reading.mutations[event.lsn], !mutation.isDeletion else { return }
    let met = reading.newestVersion(of: event.id, upTo: lsn)
    switch event.outcome {
    case .merged, .lost:
      try judgeTold(of: event.lsn, result: met, server: met, event.id, lsn, reading, device)
    case .deletedOnServer where !reading.hasWritten(event.id, after: event.lsn, before: lsn), .rejected:
      try judgeTold(of: event.lsn, result: .zero, server: .zero, event.id, lsn, reading, device)
    default: break
    }
  }

  /// An edit ends as deleted only if the server has deleted its record, or a person has decided about the zone.
  private func judgeEnded(_ event: Settled, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    guard let mutation = reading.mutations[event.lsn], !hasEnded(event.id, mutation.births, reading) else { return }
    let isDecided = memory.hasDecided(device.number, event.id.zone)
    if isDecided, reading.mayFollowDecision(event.id, mutation.births, at: lsn) { return }
    throw WorldBroken(
      .noSilence, "\(device.name) \(lsn): the edit \(event.lsn) of \(event.id) ended, and the server never deleted it")
  }

  /// A device may give up a mutation if the server's record has another type, or if no request has carried it. The worlds have no other
  /// rule, and no person, that gives one up.
  private func judgeGivenUp(_ event: Settled, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    guard let mutation = reading.mutations[event.lsn] else { return }
    let words = "\(device.name) \(lsn): mutation \(event.lsn) of \(event.id) is \(event.outcome)"
    switch event.outcome {
    case .cancelled where mutation.isDeletion:
      // A copy may have sent what this device never did.
      if memory.hasForgotten(device.number) || !history.has(event.id, oneOf: mutation.births) { return }
      throw WorldBroken(.noResurrection, "\(words), and the server has that life")
    case .rejected where !mutation.isDeletion:
      let types = history.states(of: event.id).compactMap(\.version?.type)
      if types.contains(where: { $0 != mutation.type }) { return }
      throw WorldBroken(.noSilence, "\(words), and the server never had the record as another type")
    case .cancelled where mutation.births == [.ofDefaults]:
      if history.ended(event.id).isDeleted { return }
      throw WorldBroken(.noSilence, "\(words), and nobody has deleted a default of it")
    case .discarded:
      if app.isConfigured { return }
      throw WorldBroken(.noSilence, "\(words), and nobody gave it up")
    case .cancelled, .rejected, .superseded, .deleted:
      if event.outcome == .superseded || event.outcome == .deleted, mutation.isDeletion { return }
      throw WorldBroken(.noSilence, "\(words), which is no end of it")
    default: return
    }
  }

  // MARK: Records

  /// A device may remove a record as deleted only if the server has deleted it, or if a person has decided about its zone.
  func judgeDeletion(_ event: FetchedDelete, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    guard !hasEnded(event.id, event.births, reading) else { return }
    if memory.hasDecided(device.number, event.id.zone), reading.isDecided(event.id.zone, at: lsn) { return }
    throw WorldBroken(
      .noSilence, "\(device.name) \(lsn): \(event.id) was removed as deleted, and the server never deleted it")
  }

  /// What is removed because a full fetch did not show it, the server does not have, and has deleted, unless a person has decided.
  func judgeRemoved(_ event: FetchedDelete, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice) throws {
    if memory.hasDecided(device.number, event.id.zone), reading.isDecided(event.id.zone, at: lsn) { return }
    // Of what the app has begun since, nothing was removed.
    let births = (reading.confirmed[event.id] ?? []).filter { reading.begun[$0] ?? .zero < lsn }
    let words = "\(device.name) \(lsn): \(event.id) was removed because a list did not show it, and the server"
    guard !history.has(event.id, oneOf: births) else { throw WorldBroken(.noLostWrite, "\(words) has it") }
    guard births.isEmpty || !history.ended(event.id).births.isDisjoint(with: births) else {
      throw WorldBroken(.noSilence, "\(words) never deleted it")
    }
  }

  // MARK: What the app is told

  /// What an edit has changed and what became of it without that, the app is told field by field.
  ///
  /// - Parameters:
  ///   - local: the edit.
  ///   - result: the event with the version that has taken its place; none if the record is gone.
  ///   - server: the event with the server's version that the edit met; none if it met none.
  func judgeTold(
    of local: LSN, result: LSN, server: LSN, _ id: RecordID, _ lsn: LSN, _ reading: WorldReading, _ device: WorldDevice
  ) throws {
    // A copy has written under the same numbers, and rules of an app's own make a value of both.
    guard !app.isConfigured, !memory.hasForgotten(device.number), let store = device.store,
      reading.writers[local] != nil, let edit = try version(at: local, in: store),
      edit.version.type != WorldPlan.tallyType
    else { return }
    let (left, met) = (try version(at: result, in: store), try version(at: server, in: store))
    // A compaction has taken it.
    if (left == nil && result != .zero) || (met == nil && server != .zero) { return }
    for (name, at) in edit.dirty.sorted(by: { $0.key.precedesByUTF8($1.key) }) {
      // Nobody has written it.
      if edit.version.stamp.fields[name] == .ofDefaults { continue }
      if let left, left.version.fields[name] == edit.version.fields[name] { continue }
      // What the server had, somebody has replaced who knew it.
      if reading.acknowledged[id] ?? .zero >= at { continue }
      if let writer = reading.writers[at], let seen = met?.version.stamp.seen[writer], seen.lsn >= at { continue }
      if reading.told[local]?.contains(name) == true { continue }
      throw WorldBroken(
        .noSilence, "\(device.name) \(lsn): the edit \(local) of \(id) has lost \(name), and the app is not told")
    }
  }

  private func version(at lsn: LSN, in store: RecordStore) throws -> LoadedVersion? {
    guard lsn != .zero, lsn <= store.durableLSN, let event = try store.source.eventIfKept(at: lsn) else { return nil }
    return try LoadedVersion(event, at: lsn)
  }
}
