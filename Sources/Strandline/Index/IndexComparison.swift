// Compares the sorted tables of a store with its log: what `verify` asks, because no look-up can see that a row is missing.
//
// The tables are read as a reader of the store reads them, and the rest of the log is applied to them. Then they must be
// what the whole log folds to, and each declared index must have a row for everything that its records have. Changes
// nothing.

import StrandlineLog
package import StrandlineSystem

/// The tables of a store, to be compared with what its log folds to.
package struct IndexComparison {
  /// What the tables and the log after them say; nil if they cannot be read.
  private var tables: Projections?
  /// Why they cannot be read, or why it is not known which indexes are declared.
  private var defect: String?
  private let reader: LogReader
  private let files: IndexFiles

  /// The event as of which they are compared.
  package var end: LSN { tables?.appliedLSN ?? LSN(reader.lastLSN) }

  /// Reads the tables.
  ///
  /// - Returns: nil if there are none, or if they are not of this log: then no open believes them. But a damaged file of the
  ///   declared indexes is reported in any case.
  /// - Throws: what reading the log throws.
  package init?(at path: String, environment: SystemEnvironment) throws {
    let folder = try LogReader.folder(of: path, environment: environment)
    var files = IndexFiles(folder, environment, cache: BlockCache(bytesMax: BlockCache.bytesMaxDefault))
    // A writer may replace runs while they are read.
    for isLast in [false, false, true] {
      var defect: RunError?
      var tables: Projections?
      var runs: RunSet?
      var damage: StrandlineError?
      let reader = try LogReader.open(in: folder, role: .store, environment: environment) { uuid in
        files = files.named(uuid)
        tables = nil
        var declared = (try? files.loadDefinitions()) ?? DeclaredIndexes()
        damage = declared.damage
        do throws(RunError) {
          runs = try files.load(&declared.definitions)
          for run in runs?.runs ?? [] { try run.verify() }
        } catch {
          defect = error
        }
        guard defect == nil, let runs else { return nil }
        do throws(StrandlineError) { tables = Projections(try runs.state(), runs) } catch {
          defect = RunError(.damaged, path, error.message)
        }
        return tables == nil ? nil : runs.end
      }
      if defect == nil, tables == nil, damage == nil { return nil }
      do {
        try reader.poll { found in
          guard tables != nil else { return }
          try tables?.apply(found.decoded(), at: LSN(found.lsn), isDurable: true)
        }
        tables?.advance(to: LSN(reader.lastLSN))
      } catch is AnotherHistory {
        return nil
      } catch let error as StrandlineError where error.isOfIndex {
        defect = RunError(.damaged, path, error.message)
      }
      guard defect == nil || isLast else { continue }
      self.reader = reader
      self.files = files
      self.defect = defect.map { "\($0)" } ?? damage?.message
      self.tables = defect == nil ? tables : nil
      return
    }
    return nil
  }

  /// Where the tables differ from what the log says; nil if they do not.
  ///
  /// - Parameter folded: what all events up to `end` fold to, in memory.
  /// - Throws: what reading the log throws.
  /// - Complexity: O(records); with declared indexes, all of their records are read.
  package func contradiction(of folded: Projections) throws -> String? {
    guard defect == nil, let tables else { return defect }
    do {
      var folded = folded
      // Memory knew the times of transactions that were given up, which no event says.
      folded.sync.learn(tables.sync.latest)
      if let words = try tables.contradiction(of: folded) { return words }
      return try missingIndexRow(tables)
    } catch let error as StrandlineError where error.isOfIndex {
      return error.message
    }
  }

  /// A row that a declared index should have; rows that it should not have are none of its defects.
  private func missingIndexRow(_ tables: Projections) throws -> String? {
    guard let runs = tables.runs, !runs.indexes.isEmpty else { return nil }
    let types = Dictionary(grouping: runs.indexes, by: \.index.recordType)
    let source = EventSource.reader(reader)
    var scan = try EntryScan(EntryScan.Memory(changed: [], runs: runs), EntryScan.Range())
    while let (id, found) = try scan.next() {
      // What has changed since is looked for in memory, and its version may be gone.
      guard tables.records.changed[id] == nil, let indexes = types[found.entry.type], let lsn = found.entry.view,
        let record = try source.versionIfKept(at: lsn, of: id, hint: found.place)?.record(id, system: nil)
      else { continue }
      for stored in indexes {
        for key in stored.rows(record) where try !runs.has(key) {
          return "the index \(stored.index) has no row for record '\(id)'"
        }
      }
    }
    return nil
  }
}
