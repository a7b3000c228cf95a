// Sorted tables that lie with right checksums: the tables of a store as rows, which a test changes and writes again as the
// store's own writer would. So no checksum, no count of a footer and no order of keys tells of the change.

import Strandline
import StrandlineSimulation
import StrandlineSystem

/// The tables of the store at `/store`.
struct CraftedTables {
  struct Row {
    var key: [UInt8]
    /// nil: a tombstone.
    var value: [UInt8]?
  }
  /// The newest first, as the list has them.
  var runs: [[Row]]
  private var properties: [[UInt8]] = []
  private var list: RunList

  private static func folder(_ disk: SimulatedDisk) throws -> RunFolder { RunFolder(try disk.folder("/store"), "runs") }

  /// Reads those of a store that is closed.
  init(_ disk: SimulatedDisk) throws {
    let folder = try Self.folder(disk)
    guard let header = disk.peek("/store/runs/RUNS"), header.count > 48,
      let list = try RunList.load(folder, storeUUID: Array(header[32..<48]))
    else { throw CraftingFailed("the store has no tables") }
    self.list = list
    runs = []
    for entry in list.entries {
      let run = try Run(folder, entry.run, storeUUID: list.storeUUID, cache: BlockCache())
      properties.append(run.properties)
      var rows: [Row] = []
      var cursor = try run.cursor()
      while try cursor.advance() {
        rows.append(Row(key: cursor.key, value: cursor.value.map { Array($0.bytes[$0.range]) }))
      }
      runs.append(rows)
    }
  }

  /// Writes them in the place of those that are there.
  func replace(on disk: SimulatedDisk) throws {
    let folder = try Self.folder(disk)
    var list = list
    list.entries = []
    for (rows, properties) in zip(runs, properties) {
      let writer = try RunWriter(
        folder, runNumber: list.nextRunNumber, storeUUID: list.storeUUID, keyCount: rows.count, properties: properties,
        random: SeededRandom(seed: list.nextRunNumber))
      list.nextRunNumber += 1
      for row in rows.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) { try writer.append(row.key, row.value) }
      list.entries.append(RunList.Entry(try writer.finish()))
    }
    try list.replace(folder)
  }

  /// Makes one table of them, as a merge of all does.
  mutating func merge() {
    var rows: [[UInt8]: Row] = [:]
    for run in runs.reversed() { for row in run { rows[row.key] = row } }
    runs = [rows.values.filter { $0.value != nil }]
    properties = [[properties.contains([1]) ? 1 : 0]]
  }

  /// Changes the row that counts of a key; nil: no table has one any more.
  mutating func set(_ key: [UInt8], to value: [UInt8]?) {
    var isDone = false
    for place in runs.indices {
      guard let row = runs[place].firstIndex(where: { $0.key == key }) else { continue }
      if let value, !isDone { runs[place][row].value = value } else { runs[place].remove(at: row) }
      isDone = true
    }
    if !isDone, let value { runs[0].append(Row(key: key, value: value)) }
  }

  /// The value that counts; nil if there is none.
  func value(_ key: [UInt8]) -> [UInt8]? {
    for run in runs {
      if let row = run.first(where: { $0.key == key }) { return row.value }
    }
    return nil
  }

  /// The keys of a table.
  func keys(_ table: RunTable) -> [[UInt8]] {
    Set(runs.flatMap { $0.map(\.key) }).filter { $0.first == table.rawValue && value($0) != nil }
      .sorted { $0.lexicographicallyPrecedes($1) }
  }

  func key(of id: RecordID) -> [UInt8]? { keys(.records).first { RowKey.recordID($0) == id } }

  /// A record's row.
  func entry(_ id: RecordID) throws -> PlacedEntry {
    guard let key = key(of: id), let row = value(key) else { throw CraftingFailed("'\(id)' has no row") }
    return try PlacedEntry(row: row, 0..<row.count)
  }

  mutating func set(_ id: RecordID, to entry: PlacedEntry) throws {
    guard let key = key(of: id) else { throw CraftingFailed("'\(id)' has no row") }
    set(key, to: entry.row)
  }

  /// Changes the row beside the tables.
  mutating func changeState(_ body: (inout StoredState) -> Void) throws {
    guard let row = value([RunTable.state.rawValue]) else { throw CraftingFailed("there is no state") }
    var state = try StoredState(row: row, 0..<row.count)
    body(&state)
    set([RunTable.state.rawValue], to: state.row)
  }
}

struct CraftingFailed: Error {
  let words: String
  init(_ words: String) { self.words = words }
}
