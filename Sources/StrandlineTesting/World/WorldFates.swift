// What a person does with the folder of a device's store while the app has it open: it is moved, removed, emptied or overwritten,
// and an older copy or another store comes in its place. The app is told, changes nothing of what came, and goes on with its own
// store where that is, or with the copy. At every call of each operation the campaigns of replaced folders try it; here it meets
// syncs, conflicts, readers, power cuts and the rest of a life.

internal import Strandline
internal import StrandlineLog
internal import StrandlineSimulation
internal import StrandlineSystem

/// What can become of the folder of a device's open store.
enum WorldFate: CaseIterable {
  /// A person moves it.
  case moved
  /// A person moves it, and puts the copy of before that is kept in its place.
  case replacedByOlder
  /// A person moves it, and puts another store in its place.
  case replacedByAnother
  /// A person removes it.
  case removed
  /// A person removes it, and puts the copy of before in its place.
  case removedForOlder
  /// A person removes its files, and puts those of the copy of before into the same folder.
  case emptiedForOlder
  /// A person puts the files of the copy of before over its files.
  case overwrittenByOlder

  /// Whether the app goes on with the copy of before.
  var goesBack: Bool { self != .moved && self != .replacedByAnother }
  /// Whether the store is whole in another place, and something else is at its path.
  var displaces: Bool { self == .replacedByOlder || self == .replacedByAnother }
  /// Whether the files that the writer and its readers have open have no name any more, or other bytes.
  var endsFiles: Bool { self != .moved && !displaces }

  /// In which a case of the tally is counted; nil for a mere move, which is counted where it happens.
  var tallied: WorldCase? {
    switch self {
    case .moved: nil
    case .replacedByOlder: .replacedFolder
    case .replacedByAnother: .otherStoreInPlace
    case .removed, .removedForOlder: .removedFolder
    case .emptiedForOlder, .overwrittenByOlder: .refilledFolder
    }
  }
}

/// A store that no device has made.
enum AnotherStore {
  /// Its files, by their names with a "/" before them.
  static let files = Result {
    let disk = SimulatedDisk()
    let system = SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: 7))
    let store = try RecordStore.openBlocking(at: "/store", environment: StoreEnvironment(system, isSimulated: true))
    try store.writeBlocking { tx in try tx.save(Record(type: "Other", id: RecordID("another"), fields: [:])) }
    try store.closeBlocking()
    return disk.files(in: "/store")
  }
}

extension WorldRun {
  /// A person does something with the folder of a device's store. One time in eight its disk is only mounted again.
  ///
  /// - Parameter isMeanwhile: whether it comes in the middle of a write or a sync. What no writer can notice right before a call that
  ///   changes its files does not come then.
  /// - Returns: whether the store is not any more where it was opened.
  static func takeAway(_ device: WorldDevice, _ seed: UInt64, isMeanwhile: Bool) throws -> Bool {
    if seed >> 24 & 7 == 0 {
      device.disk.remount()
      return false
    }
    // A copy that is just the store's present state is no other store.
    let hasOlder = try device.backup.map { try $0.lsn < device.lastSyncedLSN() } ?? false
    let fates = WorldFate.allCases.filter { fate in
      (!fate.goesBack || hasOlder) && (!isMeanwhile || fate.displaces || fate == .moved)
    }
    try device.befall(fates[Int(truncatingIfNeeded: (seed >> 8) % UInt64(fates.count))])
    return true
  }

  /// Whether an error says that a device's folder was taken away, and it was.
  mutating func isMoved(_ device: WorldDevice, _ error: StrandlineError) -> Bool {
    guard let fate = device.fate, isOf(fate, error) else { return false }
    tally[.refusedAfterMove] += 1
    return true
  }

  /// A person does something with the folder of a device's open store.
  mutating func moveFolder(of device: WorldDevice, seed: UInt64) async throws {
    _ = try await device.open()
    // Of a store that is removed nobody reads the rest.
    try device.readOn()
    if try Self.takeAway(device, seed, isMeanwhile: false) {
      tally[.movedFolder] += 1
    } else {
      tally[.remountedFolder] += 1
    }
    try await reopen(device, seed: seed)
  }

  /// The app finds out what became of its store's folder, if anything has, and opens the store again.
  mutating func reopen(_ device: WorldDevice, seed: UInt64) async throws {
    guard let store = device.store, let fate = device.fate else { return }
    if let tallied = fate.tallied { tally[tallied] += 1 }
    if device.disk.isOff {
      tally[.powerCutAfterMove] += 1
    } else {
      try device.readOn()
      try judgeReader(of: device, after: fate)
      try judgeWrite(to: store, of: device, after: fate)
    }
    switch fate {
    case .moved: try await reopenMoved(device, store, seed)
    case .replacedByAnother: try await moveBack(device, store, seed)
    default: try await goOnWithBackup(device, store, after: fate, seed)
    }
  }

  /// The app ends, or the power is cut, if it has not been.
  private mutating func end(_ device: WorldDevice, _ fate: WorldFate, _ seed: UInt64) async throws {
    if device.disk.isOff || seed.isMultiple(of: 3) { return await device.restart(seed: seed) }
    guard let error = await device.closeMoved() as? StrandlineError else {
      throw WorldBroken(.honest, "\(device.name): the close says nothing of a store that was \(fate)")
    }
    try judge(error, of: device, after: fate)
    device.endReader()
  }

  /// The app opens the store where it is now. Nothing is in the place that it left.
  private mutating func reopenMoved(_ device: WorldDevice, _ store: RecordStore, _ seed: UInt64) async throws {
    let left = device.openedPath
    say("\(device.name): the store is moved from \(left) to \(device.path)")
    try await end(device, .moved, seed)
    try await openWhole(device, of: store.durableLSN)
    let there = device.disk.paths.filter { $0 == left || $0.hasPrefix(left + "/") }
    if !there.isEmpty {
      throw WorldBroken(.durable, "\(device.name): there are files where the store was moved away from: \(there)")
    }
    // What may come in its place later.
    if device.backup == nil, let lsn = device.store?.durableLSN { try device.backUp(at: lsn) }
  }

  /// A person puts the store back to its path, where this writer has changed nothing of another store.
  private mutating func moveBack(_ device: WorldDevice, _ store: RecordStore, _ seed: UInt64) async throws {
    say("\(device.name): another store is in the place of that of event \(store.durableLSN), which is put back")
    try await end(device, .replacedByAnother, seed)
    try judgePut(device, .replacedByAnother)
    try device.moveBack()
    try await openWhole(device, of: store.durableLSN)
  }

  /// The app opens the older copy at its path, in which this writer has changed nothing. A store that was moved away is whole in
  /// its new place.
  private mutating func goOnWithBackup(
    _ device: WorldDevice, _ store: RecordStore, after fate: WorldFate, _ seed: UInt64
  ) async throws {
    guard let backup = device.backup else { return }
    say("\(device.name): the store of event \(store.durableLSN) is \(fate), and the one of \(backup.lsn) follows")
    let acknowledged = device.acknowledged
    let written = device.disk.isOff || !fate.displaces ? nil : try Self.dumpUnlessOutdated(store)
    try await end(device, fate, seed)
    try judgePut(device, fate)
    if fate.displaces {
      let kept = try device.reader(at: WorldDevice.displacedPath)
      // What the app could not read any more when the power went.
      try device.readOn(by: kept)
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
    }
    try device.goOnWithBackup(after: fate, reading: forfeit(device, back: backup))
    device.line.forgetWait()
    try await openWithRoom(device)
  }

  /// Opens a store that nobody has changed: it has what was acknowledged.
  private mutating func openWhole(_ device: WorldDevice, of durable: LSN) async throws {
    try await openWithRoom(device)
    let opened = try await device.open()
    try judgeRestart(device, in: opened)
    guard opened.durableLSN >= durable else {
      throw WorldBroken(
        .durable, "\(device.name): event \(durable) was durable, and the moved store ends with \(opened.durableLSN)")
    }
  }

  // MARK: Judging

  /// A write is refused when the writer has looked. Whatever it writes.
  private func judgeWrite(to store: RecordStore, of device: WorldDevice, after fate: WorldFate) throws {
    time.advance(milliseconds: Int64(StoreLook.milliseconds))
    do {
      _ = try store.writeBlocking { tx in
        try tx.save(Record(type: WorldPlan.types[0], id: RecordID("moved", zone: plan.names.zones[0])))
      }
    } catch let error as StrandlineError {
      return try judge(error, of: device, after: fate)
    }
    throw WorldBroken(.honest, "\(device.name): a write was taken though the store was \(fate) 200 ms before")
  }

  /// What was put at the path is as it was put there.
  private func judgePut(_ device: WorldDevice, _ fate: WorldFate) throws {
    let changed = try device.changes(since: fate)
    if changed.isEmpty { return }
    throw WorldBroken(.durable, "\(device.name): the writer of a store that was \(fate) has changed \(changed)")
  }

  /// - Throws: if the error is none of those that such a store has.
  private func judge(_ error: StrandlineError, of device: WorldDevice, after fate: WorldFate) throws {
    if isOf(fate, error) { return }
    throw WorldBroken(.honest, "\(device.name): a store that was \(fate) says \(error)")
  }

  /// A log whose end a full disk kept its open from copying says that until it can: also when there is room, but the folder was moved.
  private func isOf(_ fate: WorldFate, _ error: StrandlineError) -> Bool {
    error.code == .storeReplaced || (error.code == .diskFull && plan.faults.contains(.space))
  }

  /// A reader that was open says so, and goes on to show what it showed, as far as no compaction has removed it since, and its files
  /// are there.
  private func judgeReader(of device: WorldDevice, after fate: WorldFate) throws {
    guard let reader = device.openReader else { return }
    // What it reads by a name is another store's now, or nowhere: the campaigns judge what it may say.
    if fate.endsFiles { return device.endReader() }
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
    guard fate == .moved, reader.path.equalsUTF8(device.path) else {
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
