// The files of a store's runs: read at open, written by flushes and merges.

import StrandlineLog
package import StrandlineSystem

/// The folder of a store's runs, and what reading and writing them needs.
package struct IndexFiles: Sendable {
  /// The folder that the log has open.
  let storeFolder: any Folder
  let environment: SystemEnvironment
  let storeUUID: [UInt8]
  let cache: BlockCache

  package init(
    _ storeFolder: any Folder, _ environment: SystemEnvironment, storeUUID: [UInt8] = [], cache: BlockCache
  ) {
    self.storeFolder = storeFolder
    self.environment = environment
    self.storeUUID = storeUUID
    self.cache = cache
  }

  /// The same of a store whose log says its UUID.
  func named(_ storeUUID: [UInt8]) -> IndexFiles {
    IndexFiles(storeFolder, environment, storeUUID: storeUUID, cache: cache)
  }

  /// Where the store was found: for messages.
  var storePath: String { storeFolder.path }

  var folder: RunFolder { RunFolder(storeFolder, StoreIndex.folderName) }

  // MARK: Reading

  /// The runs that are listed; nil if there is no list.
  ///
  /// - Parameter definitions: of which indexes they may have rows; it learns which numbers were given.
  func load(_ definitions: inout IndexDefinitions) throws(RunError) -> RunSet? {
    guard let list = try RunList.load(folder, storeUUID: storeUUID) else { return nil }
    let binding = try RunBinding.decode(list, path: folder.list)
    definitions.nextNumber = max(definitions.nextNumber, binding.nextIndexNumber)
    var runs: [Run] = []
    for entry in list.entries { runs.append(try open(entry.run)) }
    return RunSet(
      runs: runs, list: list, end: binding.end,
      indexes: definitions.indexes.filter { $0.number != 0 && binding.indexes.contains(RunBinding.Complete($0)) })
  }

  private func open(_ run: RunIdentity) throws(RunError) -> Run {
    try Run(folder, run, storeUUID: storeUUID, cache: cache)
  }

  /// A set of runs, and the list that names them.
  ///
  /// - Parameters:
  ///   - indexes: the declared indexes of which the runs have every row.
  ///   - nextIndexNumber: above the numbers of all indexes of which they have any.
  func set(
    _ runs: [Run], end: LogEnd, nextRunNumber: UInt64, indexes: [StoredIndex], nextIndexNumber: UInt32
  ) -> RunSet {
    var list = RunList(storeUUID: storeUUID, nextRunNumber: nextRunNumber)
    list.entries = runs.map { RunList.Entry($0.identity) }
    list.binding =
      RunBinding(end: end, nextIndexNumber: nextIndexNumber, indexes: indexes.map(RunBinding.Complete.init)).encoded
    return RunSet(runs: runs, list: list, end: end, indexes: indexes)
  }

  // MARK: Writing

  /// Writes what lies in memory of projections into a run. When this returns, the run is on the medium.
  ///
  /// - Parameters:
  ///   - indexRows: what becomes of rows of indexes, in the order of their keys.
  ///   - place: where an event lies, if that is known.
  func write(
    _ projections: Projections, _ indexRows: [RowChange] = [], number: UInt64,
    place: (LSN) -> LogPlace? = { _ in nil }
  ) throws -> Run {
    do throws(RunError) {
      try makeFolder()
      let (records, deletions) = projections.unstoredRows(place)
      let longest = indexRows.reduce(max(records.keyBytesMax, deletions.keyBytesMax)) { max($0, $1.key.count) }
      if longest > RunFormat.keyBytesMax {
        throw RunError(.system, folder.path, "the names of a record and its zone have \(longest) bytes together")
      }
      let writer = try RunWriter(
        folder, runNumber: number, storeUUID: storeUUID,
        keyCount: records.count + deletions.count + indexRows.count + 1,
        properties: RunProperties(hasDeletions: deletions.count > 0).bytes, random: environment.random)
      try writer.append(RowKey.state, projections.storedState.row)
      try records.forEach { (bytes, key, value) throws(RunError) in try writer.append(bytes, key: key, value: value) }
      try deletions.forEach { (bytes, key, value) throws(RunError) in try writer.append(bytes, key: key, value: value) }
      for row in indexRows { try writer.append(row.key, row.value) }
      return try open(try writer.finish())
    } catch {
      throw failure(error)
    }
  }

  /// Writes what several runs say together into one; nil if that was cancelled.
  ///
  /// - Parameters:
  ///   - indexes: the numbers of indexes; rows of others are left out.
  ///   - met: how many rows of each table there were, by their numbers.
  func merge(
    _ runs: [Run], number: UInt64, dropsTombstones: Bool, indexes: Set<UInt32>, isCancelled: @Sendable () -> Bool,
    met: inout [UInt8: UInt64]
  ) throws(RunError) -> Run? {
    let writer = try RunWriter(
      folder, runNumber: number, storeUUID: storeUUID, keyCount: runs.reduce(0) { $0 + $1.entryCount },
      properties: RunProperties(hasDeletions: runs.contains { RunProperties($0.properties).hasDeletions }).bytes,
      random: environment.random)
    let isWhole = try writer.merge(
      runs, dropsTombstones: dropsTombstones,
      isKept: { key in
        if let table = key.first { met[table, default: 0] += 1 }
        return StoredIndex.number(key).map { indexes.contains($0) } ?? true
      }, isCancelled: isCancelled)
    guard isWhole else { return nil }
    return try open(try writer.finish())
  }

  /// The same, where nothing is counted.
  func merge(
    _ runs: [Run], number: UInt64, dropsTombstones: Bool, indexes: Set<UInt32>, isCancelled: @Sendable () -> Bool
  ) throws(RunError) -> Run? {
    var met: [UInt8: UInt64] = [:]
    return try merge(
      runs, number: number, dropsTombstones: dropsTombstones, indexes: indexes, isCancelled: isCancelled, met: &met)
  }

  /// Writes rows of an index into a run that no list names yet.
  ///
  /// - Parameter keys: in their order, each once.
  func write(indexRows keys: [[UInt8]], number: UInt64) throws(RunError) -> Run {
    let writer = try RunWriter(
      folder, runNumber: number, storeUUID: storeUUID, keyCount: keys.count,
      properties: RunProperties(hasDeletions: false).bytes, random: environment.random)
    for key in keys { try writer.append(key, [UInt8]()) }
    return try open(try writer.finish())
  }

  func makeFolder() throws(RunError) {
    do throws(SystemError) {
      guard try storeFolder.kind(of: StoreIndex.folderName) == .absent else { return }
      try storeFolder.makeFolder(StoreIndex.folderName)
      try storeFolder.sync()
    } catch {
      throw RunError(error, file: folder.path)
    }
  }

  /// Removes what interrupted writers left, before the first run is written.
  func clearUp(keeping runs: RunSet?, isListed: Bool) throws {
    do throws(SystemError) {
      guard try storeFolder.kind(of: StoreIndex.folderName) == .directory else { return }
      if !isListed, try storeFolder.kind(of: folder.listFile) == .file {
        // It names runs that cannot be used.
        try storeFolder.unlink(folder.listFile)
        try folder.sync()
      }
      try folder.removeLeftovers(keeping: runs?.list.runNumbers ?? [], ofFiles: [IndexDefinitions.fileName])
    } catch {
      throw failure(RunError(error, file: folder.path))
    }
  }

  /// Removes runs that no list names any more. A reader that has one open goes on reading it.
  func remove(_ runs: [Run]) throws {
    do throws(SystemError) { try folder.remove(runs.map(\.identity.runNumber)) } catch {
      throw failure(RunError(error, file: folder.path))
    }
  }

  /// Removes runs that no list names, whole or not.
  func removeUnlisted(_ numbers: Set<UInt64>) throws {
    do throws(SystemError) { try folder.removeUnlisted(numbers.sorted()) } catch {
      throw failure(RunError(error, file: folder.path))
    }
  }

  /// Removes the list: no run counts any more.
  func removeList() throws {
    do throws(SystemError) {
      try storeFolder.unlink(folder.listFile)
      try folder.sync()
    } catch  where error.isAbsent {
      return
    } catch {
      throw failure(RunError(error, file: folder.list))
    }
  }

  /// The public form of a failure to write.
  func failure(_ error: RunError) -> StrandlineError { StrandlineError(error) }
}

/// What becomes of a row; a value of nil removes it.
typealias RowChange = (key: [UInt8], value: [UInt8]?)

extension Projections {
  /// The rows of what lies in memory, table by table, in the order of their keys.
  fileprivate func unstoredRows(_ place: (LSN) -> LogPlace?) -> (records: RowBuffer, deletions: RowBuffer) {
    (
      Self.rows(records.changed, .records) { entry, bytes in
        PlacedEntry(entry, at: entry.view.flatMap(place)).encode(into: &bytes)
      }, Self.rows(deletions.changed, .deletions) { $0.encode(into: &$1) }
    )
  }

  private static func rows<Row>(
    _ changed: [RecordID: Row?], _ table: RunTable, _ write: (Row, inout ByteWriter) -> Void
  ) -> RowBuffer {
    var rows = RowBuffer()
    var zone: (id: ZoneID, key: [UInt8])?
    for (id, row) in changed {
      let zoneKey: [UInt8]
      if let zone, zone.id == id.zone {
        zoneKey = zone.key
      } else {
        zoneKey = RowKey.zone(id.zone, table: table)
        zone = (id.zone, zoneKey)
      }
      rows.append { bytes in
        bytes.raw(zoneKey)
        bytes.text(id.name)
      } value: { bytes in
        guard let row else { return false }
        write(row, &bytes)
        return true
      }
    }
    rows.sort()
    return rows
  }
}
