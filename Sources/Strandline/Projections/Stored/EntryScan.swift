// Records in the order of zone and name, from runs and memory together: what lists, queries and `export` go through. It
// sorts what lies in memory, which is bounded, and nothing else.

import StrandlineSystem

/// The records that have an entry as of one event, in the order of zone and name.
struct EntryScan {
  /// A range of records.
  struct Range {
    /// nil: all zones.
    var zone: ZoneID?
    /// What their names begin with.
    var namePrefix = ""
    /// The record behind which to begin; nil: from the first on.
    var after: RecordID?

    /// Whether a record whose key begins with `prefix` is in the range: of several zones the names are not one range.
    func includes(_ id: RecordID) -> Bool {
      zone != nil || namePrefix.isEmpty || id.name.utf8.starts(with: namePrefix.utf8)
    }

    /// What the keys of the range begin with.
    var prefix: [UInt8] {
      guard let zone else { return RunTable.records.key }
      return RowKey.zone(zone) + Array(namePrefix.utf8)
    }
  }

  /// What lies in memory, as of an event; and the runs that know the rest.
  struct Memory: Sendable {
    /// What has changed since the runs were written; the later parts count.
    var changed: [[RecordID: RecordEntry?]]
    var runs: RunSet?
  }

  private var rows: TableScan<RecordID, PlacedEntry>

  init(_ memory: Memory, _ range: Range) throws(StrandlineError) {
    let start = range.after.map { RowKey.record($0) } ?? range.prefix
    rows = try TableScan(
      .init(prefix: range.prefix, id: { RowKey.recordID($0) }) { (bytes, place) throws(ByteReaderError) in
        try PlacedEntry(row: bytes, place)
      }, memory.runs, memory.runs?.runs ?? [], from: start, isBehind: range.after != nil,
      changed: Self.sorted(memory.changed, range, from: start))
  }

  private static func sorted(
    _ parts: [[RecordID: RecordEntry?]], _ range: Range, from start: [UInt8]
  ) -> [TableScan<RecordID, PlacedEntry>.Change] {
    let isAfter = range.after != nil
    var found: [TableScan<RecordID, PlacedEntry>.Change] = []
    for (number, part) in parts.enumerated() {
      for (id, entry) in part {
        guard range.zone == nil || id.zone == range.zone,
          range.namePrefix.isEmpty || id.name.utf8.starts(with: range.namePrefix.utf8),
          !parts[(number + 1)...].contains(where: { $0.keys.contains(id) })
        else { continue }
        let key = RowKey.record(id)
        guard !key.precedes(start), !isAfter || key != start else { continue }
        found.append((key, id, entry.map { PlacedEntry($0) }))
      }
    }
    return found.sorted { $0.key.precedes($1.key) }
  }

  /// The next record; nil behind the last.
  ///
  /// - Throws: if a run cannot be read; it has failed then, and the scan is of no more use.
  mutating func next() throws(StrandlineError) -> (id: RecordID, found: PlacedEntry)? {
    try rows.next().map { ($0.id, $0.row) }
  }
}

extension Projections {
  /// What a scan as of `lsn` needs of memory.
  ///
  /// - Precondition: `lsn` is durable, or a view shows it.
  func scanMemory(asOf lsn: LSN) -> EntryScan.Memory {
    let parts = [records.rows.frozen, records.changed, changes(after: lsn)]
    return EntryScan.Memory(changed: parts.filter { !$0.isEmpty }, runs: runs)
  }

  /// Every record with an entry, with everything that was applied. O(records), and their memory.
  package func allEntries() throws(StrandlineError) -> [RecordID: RecordEntry] {
    if runs == nil { return records.rows.inMemory }
    var scan = try EntryScan(scanMemory(asOf: appliedLSN), EntryScan.Range())
    var result: [RecordID: RecordEntry] = [:]
    while let (id, found) = try scan.next() { result[id] = found.entry }
    return result
  }
}
