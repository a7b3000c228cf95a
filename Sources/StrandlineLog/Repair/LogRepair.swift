// Writes what was salvaged from a damaged log as a new one: beside its place, synced, and renamed, so that there is a
// whole store or none (decisions L13, L16).
//
// Events keep their LSNs, because they refer to each other by LSN; what was lost is not there, and its LSNs, as far as
// they are known, are not given again. The new store has its own store UUID, and nothing in the old directory is changed.
// Bytes that did not verify are copied into the new store's `quarantine/`, each region as a file.

import StrandlineSystem

/// Makes a log of what is left of another.
package enum LogRepair {
  /// What the copies of a file's bytes are named in `quarantine/`.
  package static func quarantineName(_ damage: SalvageDamage) -> String {
    "\(name(of: damage))@\(damage.bytes.lowerBound)"
  }

  private static func name(of damage: SalvageDamage) -> String {
    damage.file.split(separator: "/").last.map(String.init) ?? ""
  }

  /// Writes the new log. When this returns, it is on the medium, its parent's entry included; if it throws, nothing
  /// stands at `path` that did not stand there before.
  ///
  /// - Parameters:
  ///   - plan: the report that the caller decided by; what is read now must be the same.
  ///   - path: nothing, or an empty folder; not in a store.
  ///   - survivors: what stays of a transaction, in the order of its LSNs.
  ///   - finish: is given the place where the store is being built, to open it and append what must be in it.
  /// - Throws: `LogError`, or what `survivors` and `finish` throw.
  /// - Complexity: O(bytes of the log); memory for one segment and one transaction.
  package static func write(
    _ salvage: LogSalvage, as plan: SalvageReport, to path: String, options: LogOptions = LogOptions(),
    survivors: ([LogEvent], _ isPartial: Bool) throws -> [LogSurvivor], finish: (String) throws -> Void
  ) throws {
    let fileSystem = salvage.environment.fileSystem
    let target = try StorePlace(path, fileSystem)
    try checkPlace(target, beside: salvage.path, "a repaired store")
    if let failure = target.removeUnfinishedStores() { throw failure }
    // What was to become another store keeps none from being repaired: the next repair tries again.
    _ = target.removeUnfinishedStores(ofAnyName: true)
    let building: UnfinishedStore
    do {
      building = try target.makeUnfinishedStore(salvage.environment.random)
    } catch {
      throw StoreCreation.failure(at: target, built: target, error)
    }
    do {
      let folder = building.folder
      defer { building.lock.unlock() }
      var output = RepairOutput(salvage, folder, options)
      let report = try salvage.read { events, isPartial in
        try output.add(try survivors(events, isPartial), upTo: events.last?.lsn ?? 0)
      }
      guard report == plan else {
        throw LogError(.io, "'\(salvage.path)' read differently a second time; nothing was written", file: salvage.path)
      }
      try output.finish(lastLSN: report.lastLSN)
      try keepDamagedBytes(report.damages, of: salvage.directory.folder, in: folder)
      if options.ballastBytes > 0 {
        try Ballast(
          directory: StoreDirectory(place: building.place, folder: folder), bytes: options.ballastBytes
        ).make()
      }
      try folder.sync()
      // `finish` opens the store and takes its lock.
      building.lock.unlock()
      try finish(building.place.path)
      try rename(building, to: target)
    } catch {
      do {
        try building.place.removeTree()
      } catch {
        // The next open for writing at `path` removes it; the first failure counts.
      }
      guard let error = error as? SystemError else { throw error }
      throw StoreCreation.failure(at: target, built: building.place, error)
    }
    do {
      try target.parent.sync()
    } catch {
      throw nameNotSynced(of: "the store at '\(target.path)'", error, file: target.path)
    }
  }

  /// Of the last sync. It is no full disk, whatever the system says: then the same call would be right when there is room,
  /// and now its place is taken.
  static func nameNotSynced(of what: String, _ error: SystemError, file: String) -> LogError {
    LogError(
      .io, "\(what) is complete, but its name may not survive a power cut: \(error)", file: file, underlying: error)
  }

  /// Gives a store that is complete and closed its name, with its lock: whoever clears up beside it removes one that is not
  /// locked.
  private static func rename(_ building: UnfinishedStore, to target: StorePlace) throws(SystemError) {
    let folder = building.folder
    guard let lock = try folder.lock(LogFormat.lockName, exclusive: true) else {
      throw .taken("flock", folder.path(of: LogFormat.lockName))
    }
    defer { lock.unlock() }
    guard try folder.kind(of: LogFormat.manifestName) == .file else {
      throw .absent("open", folder.path(of: LogFormat.manifestName))
    }
    try target.fileSystem.renameFolder(building.place.path, to: target.path)
  }

  /// Nothing is there, or an empty folder; and no folder above is a store (the one that is repaired, or another).
  package static func checkPlace(
    _ path: String, _ salvage: LogSalvage
  ) throws(LogError) {
    try checkPlace(
      try StorePlace(path, salvage.environment.fileSystem), beside: salvage.path, "a repaired store")
  }

  /// The same for `purpose`, which is made of the store at `source`.
  static func checkPlace(
    _ place: StorePlace, beside source: String, _ purpose: String
  ) throws(LogError) {
    let (path, fileSystem) = (place.path, place.fileSystem)
    do {
      switch try fileSystem.kind(of: path) {
      case .absent: break
      case .directory:
        guard try fileSystem.folder(path).list().isEmpty else {
          throw LogError(
            .notEmptyDirectory, "'\(path)' is not empty; nothing was written; \(purpose) needs a new folder",
            file: path)
        }
      case .file, .other:
        throw LogError(
          .notEmptyDirectory, "'\(path)' is a file; nothing was written; \(purpose) needs a new folder",
          file: path)
      }
      var above = place
      while !above.parent.path.equalsUTF8(above.path) {
        above = above.parent
        guard try fileSystem.kind(of: above.path) == .directory else { continue }
        let names = try fileSystem.folder(above.path).list()
        if above.path.equalsUTF8(source) || names.contains(where: { SegmentName.segmentID(of: $0) != nil }) {
          throw LogError(
            .notEmptyDirectory,
            "'\(path)' lies in the store '\(above.path)'; nothing was written; \(purpose) needs a folder of its own",
            file: path)
        }
      }
    } catch let error as LogError {
      throw error
    } catch let error as SystemError {
      throw .system("cannot look at '\(path)'", error, file: path)
    } catch {
      preconditionFailure("a disk throws its own errors alone")
    }
  }

  private static func keepDamagedBytes(
    _ damages: [SalvageDamage], of damaged: any Folder, in folder: any Folder
  ) throws(SystemError) {
    let damages = damages.filter { !$0.bytes.isEmpty }
    guard !damages.isEmpty else { return }
    try folder.makeFolder(LogFormat.quarantineName)
    for damage in damages {
      let source: any File
      do {
        source = try damaged.open(name(of: damage), .read)
      } catch  where error.isAbsent {
        continue
      }
      defer { source.close() }
      let copy = try folder.open(SegmentName.quarantined(quarantineName(damage)), .create)
      defer { copy.close() }
      var offset = damage.bytes.lowerBound
      let end = min(damage.bytes.upperBound, try source.size())
      while offset < end {
        let bytes = try source.read(at: offset, count: Int(min(UInt64(LogFormat.readChunkBytes), end - offset)))
        guard !bytes.isEmpty else { break }
        try copy.write(bytes, at: offset - damage.bytes.lowerBound)
        offset += UInt64(bytes.count)
      }
      try copy.sync(.durable)
    }
    try folder.sync(LogFormat.quarantineName)
  }
}

/// The segments of the new log, one after the other.
struct RepairOutput {
  private let environment: SystemEnvironment
  private let folder: any Folder
  private let options: LogOptions
  private let role: LogRole
  private let storeUUID: [UInt8]
  private var current: RewrittenSegment?
  private var entries: [ManifestEntry] = []

  init(_ salvage: LogSalvage, _ folder: any Folder, _ options: LogOptions) {
    environment = salvage.environment
    self.folder = folder
    self.options = options
    role = salvage.role
    storeUUID = environment.random.bytes(16)
  }

  /// Adds what stays of a transaction that ends with `last`.
  mutating func add(_ survivors: [LogSurvivor], upTo last: UInt64) throws {
    guard !survivors.isEmpty else { return }
    var segment = current ?? begun()
    current = nil
    segment.add(survivors)
    if segment.bytes.count >= options.segmentBytesMax {
      try write(&segment, rangeLastLSN: last)
    } else {
      current = segment
    }
  }

  /// Writes what is not written yet, and the files that say what the log is.
  mutating func finish(lastLSN: UInt64) throws {
    if entries.isEmpty || current != nil || lastEnd.lastLSN < lastLSN {
      var segment = current ?? begun()
      current = nil
      try write(&segment, rangeLastLSN: lastLSN)
    }
    let tail = entries[entries.count - 1].segmentID
    var manifest = Manifest(storeUUID: storeUUID, role: role, nextSegmentID: tail + 1)
    manifest.entries = entries
    do throws(WriteFailure) {
      try manifest.replace(in: folder)
    } catch {
      throw error.cause
    }
    let (bytes, _) = ControlFile.new(
      Control(storeUUID: storeUUID, bound: LogBound(segmentID: tail, lsn: lastEnd.lastLSN, end: lastEnd.offset)))
    let file = try folder.open(LogFormat.controlName, .create)
    defer { file.close() }
    try file.write(bytes, at: 0)
    try file.sync(.durable)
  }

  /// Where the last segment ends.
  private var lastEnd: SegmentEnd { entries.last?.end ?? SegmentEnd(offset: 0, lastLSN: 0, chain: 0) }

  private func begun() -> RewrittenSegment {
    let last = entries.last?.segmentID ?? 0
    let header = SegmentHeader.new(
      environment, storeUUID: storeUUID, segmentID: last + 1, role: role, kind: .rewritten)
    return RewrittenSegment(
      header,
      OpeningBody(
        firstLSN: lastEnd.lastLSN + 1, predecessorID: last, predecessorEnd: lastEnd.offset, chain: lastEnd.chain,
        durableEnd: 0))
  }

  private mutating func write(_ segment: inout RewrittenSegment, rangeLastLSN: UInt64) throws {
    segment.opening.rangeLastLSN = rangeLastLSN
    // The chain of what was lost is not known: it begins anew.
    segment.opening.rangeChain = segment.contentChain
    // Nor is what the lost events would say of earlier states.
    segment.header.compactedLSN = rangeLastLSN
    segment.finish()
    let creation = SegmentCreation(folder: folder)
    do throws(WriteFailure) {
      try creation.make(segment.header.segmentID, segment.bytes, allocated: UInt64(segment.bytes.count)).file.close()
    } catch {
      throw error.cause
    }
    entries.append(segment.entry)
  }
}
