// What others do in the folder of a device's store: a process that only reads it, and a person who moves it, or puts an older copy
// in its place, while the app has it open. All come between two steps, or before a call in the middle of a write or a sync.

internal import Strandline
internal import StrandlineLog
internal import StrandlineSimulation
internal import StrandlineSystem
internal import Synchronization

/// What others do in a store's folder.
enum WorldVisit: Sendable {
  /// A process that reads the store looks what is new.
  case look
  /// A person moves the folder.
  case move
}

/// What is planned for a call of each device's next step that changes the disk: by device, before which of its calls.
struct WorldPlannedCalls {
  /// At this call the power is cut.
  var cuts: [Int: (call: Int, seed: UInt64)] = [:]
  var visits: [Int: (what: WorldVisit, call: Int, seed: UInt64)] = [:]
  /// What the visits met.
  let met = WorldMet()
}

/// What visits in the middle of a step met.
final class WorldMet: Sendable {
  private struct State {
    var looks = 0
    var moves = 0
    var broken: String?
  }
  private let state = Mutex(State())

  func look(_ broken: String?) {
    state.withLock { state in
      state.looks += 1
      state.broken = state.broken ?? broken
    }
  }
  func move(_ broken: String?) {
    state.withLock { state in
      state.moves += 1
      state.broken = state.broken ?? broken
    }
  }

  /// How many there were since this was asked last, and what was wrong first.
  func take() -> (looks: Int, moves: Int, broken: String?) {
    state.withLock { state in
      defer { state = State() }
      return (state.looks, state.moves, state.broken)
    }
  }
}

extension WorldRun {
  // MARK: Planned calls

  /// Lets what is planned count the calls of what follows. A visit waits for a power cut to be over.
  func arm(_ device: WorldDevice) {
    let disk = device.disk
    if let cut = planned.cuts[device.number] {
      disk.cutPower(atCall: disk.callCount + cut.call)
    } else if let visit = planned.visits[device.number] {
      let (met, time) = (planned.met, time)
      let acknowledged = device.acknowledged
      disk.interrupt(beforeCall: disk.callCount + visit.call) {
        switch visit.what {
        case .look: met.look(Self.lookMeanwhile(at: device, acknowledged))
        case .move:
          do {
            try Self.takeAway(device, visit.seed)
            // Half of the moves are noticed in the same step, if the writer begins another group in it.
            if visit.seed.isMultiple(of: 2) { time.advance(milliseconds: Int64(StoreLook.milliseconds)) }
            met.move(nil)
          } catch { met.move("the folder cannot be moved: \(error)") }
        }
      }
    }
  }

  /// After what something was planned for: the device starts again if its power was cut, and the store is opened again where it is
  /// if its folder was moved.
  mutating func endPlanned(_ device: WorldDevice) async throws {
    if let cut = planned.cuts.removeValue(forKey: device.number) {
      device.disk.crashAtCall = nil
      if device.disk.isOff { try await restart(device, seed: cut.seed) }
    } else if let visit = planned.visits.removeValue(forKey: device.number) {
      device.disk.endInterruption()
      let met = planned.met.take()
      tally[.readerMeanwhile] += met.looks
      tally[.movedFolderMeanwhile] += met.moves
      if let broken = met.broken { throw WorldBroken(.durable, "\(device.name): \(broken)") }
      if met.looks > 0 { say("\(device.name): a reader has looked meanwhile") }
      try await reopen(device, seed: visit.seed)
    }
  }

  // MARK: Readers

  /// A process that only reads a device's store looks what is new: it shows what the app was told, and what the writer shows.
  mutating func look(at device: WorldDevice) async throws {
    let store = try await device.open()
    let wasOpen = device.openReader != nil
    let reader: RecordStore
    do { reader = try device.refreshedReader() } catch {
      throw WorldBroken(.durable, "\(device.name): a reader cannot look: \(error)")
    }
    if wasOpen { tally[.refreshedReader] += 1 }
    say("\(device.name): a reader \(wasOpen ? "looks again" : "is opened") and shows \(reader.durableLSN)")
    guard device.acknowledged <= reader.durableLSN, reader.durableLSN <= store.durableLSN else {
      throw WorldBroken(
        .durable,
        "\(device.name): a reader shows event \(reader.durableLSN), \(device.acknowledged) was acknowledged, and "
          + "\(store.durableLSN) is durable")
    }
    // What a full disk keeps an open from copying only the writer has.
    guard reader.durableLSN == store.durableLSN else { return }
    let (shown, written) = (try WorldDevice.dump(reader), try WorldDevice.dump(store))
    if let difference = zip(shown + [""], written + [""]).first(where: { !$0.equalsUTF8($1) }) {
      throw WorldBroken(.durable, "\(device.name): a reader shows '\(difference.0)' for '\(difference.1)'")
    }
  }

  /// The same while the writer is at work: what was acknowledged before is shown, and nothing that a power cut could take.
  ///
  /// - Returns: what is wrong.
  private static func lookMeanwhile(at device: WorldDevice, _ acknowledged: LSN) -> String? {
    do {
      let shown = try device.refreshedReader().durableLSN
      guard shown >= acknowledged else {
        return "a reader in the middle of a step shows event \(shown), and \(acknowledged) was acknowledged"
      }
      let synced = try device.lastSyncedLSN()
      guard shown <= synced else {
        return "a reader in the middle of a step shows event \(shown), and a power cut leaves \(synced)"
      }
      return nil
    } catch {
      return "a reader cannot look in the middle of a step: \(error)"
    }
  }

  // MARK: Moved folders

  /// A person moves the folder of a device's store; one time in four that there is an older copy, it comes in its place.
  private static func takeAway(_ device: WorldDevice, _ seed: UInt64) throws {
    if device.backup != nil, seed >> 8 & 3 == 0 { try device.putBackupInPlace() } else { try device.moveFolder() }
  }

  /// Whether an error says that a device's folder was moved, and it was.
  mutating func isMoved(_ device: WorldDevice, _ error: StrandlineError) -> Bool {
    guard device.fate != nil, isOfMoved(error) else { return false }
    tally[.refusedAfterMove] += 1
    return true
  }

  /// A person moves the folder of a device's open store, or puts an older copy in its place.
  mutating func moveFolder(of device: WorldDevice, seed: UInt64) async throws {
    _ = try await device.open()
    try Self.takeAway(device, seed)
    tally[.movedFolder] += 1
    try await reopen(device, seed: seed)
  }

  /// The app finds out what became of its store's folder, if anything has, and opens the store again.
  mutating func reopen(_ device: WorldDevice, seed: UInt64) async throws {
    guard let store = device.store, let fate = device.fate else { return }
    try device.readOn()
    try judgeReaderOfMoved(device)
    time.advance(milliseconds: Int64(StoreLook.milliseconds))
    do {
      // Whatever it writes.
      _ = try store.writeBlocking { tx in
        try tx.save(Record(type: WorldPlan.types[0], id: RecordID("moved", zone: plan.names.zones[0])))
      }
      throw WorldBroken(.honest, "\(device.name): a write was taken though the store was moved 200 ms before")
    } catch let error as StrandlineError {
      try judgeMoved(device, error)
    }
    switch fate {
    case .moved(let left): try await reopenMoved(device, store, from: left, seed)
    case .replaced(let place): try await goOnWithBackup(device, store, movedTo: place, seed)
    }
  }

  /// The app ends, or the power is cut.
  private mutating func end(_ device: WorldDevice, _ seed: UInt64) async throws {
    if seed.isMultiple(of: 3) { return await device.restart(seed: seed) }
    guard let error = await device.closeMoved() as? StrandlineError else {
      throw WorldBroken(.honest, "\(device.name): the close of a moved store says nothing")
    }
    try judgeMoved(device, error)
    device.endReader()
  }

  /// The app opens the store where it is: everything is there that was acknowledged, and nothing at the place that it left.
  private mutating func reopenMoved(
    _ device: WorldDevice, _ store: RecordStore, from left: String, _ seed: UInt64
  ) async throws {
    say("\(device.name): the store is moved from \(left) to \(device.path)")
    let durable = store.durableLSN
    if seed.isMultiple(of: 3) {
      try await restart(device, seed: seed)
    } else {
      try await end(device, seed)
      do { _ = try await device.open() } catch let error as StrandlineError where isFull(device, error) {
        say("\(device.name) does not open on a full disk, and a person makes room")
        device.disk.capacity = nil
      }
    }
    let opened = try await device.open()
    try judgeRestart(device, in: opened)
    guard opened.durableLSN >= durable else {
      throw WorldBroken(
        .durable, "\(device.name): event \(durable) was durable, and the moved store ends with \(opened.durableLSN)")
    }
    let there = device.disk.paths.filter { $0 == left || $0.hasPrefix(left + "/") }
    if !there.isEmpty {
      throw WorldBroken(.durable, "\(device.name): there are files where the store was moved away from: \(there)")
    }
    // What may come in its place later.
    if device.backup == nil { try device.backUp(at: opened.durableLSN) }
  }

  /// The app opens the older copy at its path, in which this writer has changed nothing. The store that was moved away is whole in
  /// its new place.
  private mutating func goOnWithBackup(
    _ device: WorldDevice, _ store: RecordStore, movedTo place: String, _ seed: UInt64
  ) async throws {
    guard let backup = device.backup else { return }
    say("\(device.name): the store of event \(backup.lsn) takes the place of the one of \(store.durableLSN)")
    tally[.replacedFolder] += 1
    let (acknowledged, written) = (device.acknowledged, try Self.dumpUnlessOutdated(store))
    try await end(device, seed)
    let changed = device.changesOfBackup()
    if !changed.isEmpty {
      throw WorldBroken(.durable, "\(device.name): the writer of a moved store has changed \(changed) of another one")
    }
    let kept = try device.reader(at: place)
    guard kept.durableLSN >= acknowledged else {
      throw WorldBroken(
        .durable,
        "\(device.name): event \(acknowledged) was acknowledged, and the moved store ends with \(kept.durableLSN)")
    }
    if kept.durableLSN == store.durableLSN, let written,
      try !WorldDevice.dump(kept).elementsEqual(written, by: { $0.equalsUTF8($1) })
    {
      throw WorldBroken(.durable, "\(device.name): the moved store shows something else than its writer")
    }
    try device.goOnWithBackup(reading: forfeit(device, back: backup))
    device.line.forgetWait()
    do { _ = try await device.open() } catch let error as StrandlineError where isFull(device, error) {
      say("\(device.name) does not open on a full disk, and a person makes room")
      device.disk.capacity = nil
      _ = try await device.open()
    }
  }

  /// - Throws: if the error is none of those that a moved store has.
  private func judgeMoved(_ device: WorldDevice, _ error: StrandlineError) throws {
    if isOfMoved(error) { return }
    throw WorldBroken(.honest, "\(device.name): a store whose folder was moved says \(error)")
  }

  /// A log whose end a full disk kept its open from copying says that until it can: also when there is room, but the folder was moved.
  private func isOfMoved(_ error: StrandlineError) -> Bool {
    error.code == .storeReplaced || (error.code == .diskFull && plan.faults.contains(.space))
  }

  /// A reader that was open says so, and goes on to show what it showed, as far as no compaction has removed it since.
  private func judgeReaderOfMoved(_ device: WorldDevice) throws {
    guard let reader = device.openReader else { return }
    let shown = try Self.dumpUnlessOutdated(reader)
    do {
      try reader.refresh()
    } catch let error as StrandlineError where error.code == .storeReplaced {
      guard try Self.dumpUnlessOutdated(reader) == shown else {
        throw WorldBroken(.durable, "\(device.name): a reader of a moved store shows something else")
      }
      return
    }
    // It was opened in the new place, after the move.
    guard case .moved = device.fate, reader.path.equalsUTF8(device.path) else {
      throw WorldBroken(.honest, "\(device.name): a reader does not say that its store was moved")
    }
  }

  /// Returns nil where the reader says that the writer's compaction has removed events since it was opened or refreshed; or, where
  /// it looked for them, that the store was moved.
  private static func dumpUnlessOutdated(_ reader: RecordStore) throws -> [String]? {
    do { return try WorldDevice.dump(reader) } catch let error as StrandlineError
      where error.code == .outdated || error.code == .storeReplaced
    {
      return nil
    }
  }
}
