// The tables of records and of deleted names, read side by side: all that rows say of a record comes at once.

import StrandlineSystem

/// What rows and memory say of every record and every deleted name, in the order of zone and name.
struct KnownRecordScan {
  private var entries: EntryScan
  private var deletions: TableScan<RecordID, DeletionEntry>
  private var entry: (id: RecordID, entry: RecordEntry)?
  private var deletion: (id: RecordID, deletion: DeletionEntry)?

  /// - Throws: as `next()`.
  init(_ projections: Projections) throws(StrandlineError) {
    entries = try EntryScan(projections.scanMemory(asOf: projections.appliedLSN), EntryScan.Range())
    deletions = try projections.scanDeletions()
    try readEntry()
    try readDeletion()
  }

  /// The next record; nil after the last.
  ///
  /// - Throws: if a run cannot be read; it has failed then, and the scan is of no more use.
  mutating func next() throws(StrandlineError) -> (id: RecordID, known: KnownRecord)? {
    guard let (id, entry) = entry else {
      guard let (id, deletion) = deletion else { return nil }
      try readDeletion()
      return (id, KnownRecord(deletion: deletion))
    }
    guard let (deletedID, deletion) = deletion, deletedID <= id else {
      try readEntry()
      return (id, KnownRecord(entry: entry))
    }
    try readDeletion()
    guard deletedID == id else { return (deletedID, KnownRecord(deletion: deletion)) }
    try readEntry()
    return (id, KnownRecord(entry: entry, deletion: deletion))
  }

  private mutating func readEntry() throws(StrandlineError) {
    entry = try entries.next().map { ($0.id, $0.found.entry) }
  }

  private mutating func readDeletion() throws(StrandlineError) {
    deletion = try deletions.next().map { ($0.id, $0.row) }
  }
}
