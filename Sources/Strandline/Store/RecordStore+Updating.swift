// One edit as one transaction, and the migration of all records of a type.

public import Foundation
import StrandlineSystem

extension RecordStore {
  /// Edits a typed value in a transaction of its own: `WriteTransaction.update`.
  ///
  /// ```swift
  /// try await store.update(Note.self, id: id) { $0.title = "High tide" }
  /// ```
  ///
  /// The closure runs as that of `write`. `.value` after the call takes the value alone.
  ///
  /// - Returns: the value as it was written, and the transaction's receipt, when both are durable.
  /// - Throws: as `WriteTransaction.update` and `write`.
  @discardableResult
  nonisolated(nonsending) public func update<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID, fileID: String = #fileID, line: Int = #line,
    _ body: (inout Value) throws -> Void
  ) async throws -> (value: Value, receipt: Receipt) {
    try await commit("update", fileID, line) { try $0.update(type, id: id, fileID: fileID, line: line, body) }
  }

  /// Edits all values that meet the conditions, in a transaction of its own: `WriteTransaction.update` of all that it finds.
  ///
  /// ```swift
  /// try await store.update(Note.self, where: #Predicate { $0.folder == old }) { $0.folder = new }
  /// ```
  ///
  /// - Returns: how many met the conditions, and the transaction's receipt, when all edits are durable.
  /// - Throws: as `WriteTransaction.update` and `write`. Nothing has changed then.
  @discardableResult
  nonisolated(nonsending) public func update<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., fileID: String = #fileID, line: Int = #line,
    _ body: (inout Value) throws -> Void
  ) async throws -> (count: Int, receipt: Receipt) {
    let (count, receipt) = try await commit("update", fileID, line) {
      try $0.updateAll(type, conditions, fileID, line, body)
    }
    return (count, receipt)
  }

  /// `update` on a plain thread.
  ///
  /// - Throws: as `update`, but for `CancellationError`; `.misuse` inside a closure of `write` or `update`.
  @discardableResult
  package func updateBlocking<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID, fileID: String = #fileID, line: Int = #line,
    _ body: (inout Value) throws -> Void
  ) throws -> (value: Value, receipt: Receipt) {
    try commitBlocking("updateBlocking", fileID, line) { try $0.update(type, id: id, fileID: fileID, line: line, body) }
  }

  /// Stores for all records of a type what `SyncRecord.migrate` makes of them, so that queries, indexes and observers see it.
  ///
  /// It works in batches, each a transaction, and changes only what migration changes: where nothing is to migrate, nothing is
  /// written. If it ends early, because it is cancelled, fails, or the process dies, what it did stays, and the next call does the
  /// rest. Writes and syncs go on meanwhile.
  ///
  /// - Parameters:
  ///   - type: the type.
  ///   - progress: called after each batch, with what was done so far.
  /// - Returns: what was done, and the records that were left as they are, each with the reason.
  /// - Throws: as `write`; `CancellationError` between two batches.
  /// - Complexity: reads every record of the type.
  @discardableResult
  nonisolated(nonsending) public func migrateAll<Value: SyncRecord>(
    _ type: Value.Type, progress: (MigrationReport) -> Void = { _ in }
  ) async throws -> MigrationReport {
    let site = CallSite.unnamed
    var report = MigrationReport()
    var last: RecordID?
    while true {
      try Task.checkCancellation()
      let batch = try site.run("migrating records of type '\(Value.recordType)'") {
        try MigrationBatch(after: last, of: type, in: self)
      }
      guard batch.examined > 0 else { return report }
      last = batch.last
      report.examined += batch.examined
      report.failed += batch.failed
      if !batch.ids.isEmpty {
        let written = try await commit("migrateAll", "", 0) { try batch.write(type, &$0) }.value
        report.migrated += written.migrated
        report.failed += written.failed
      }
      progress(report)
    }
  }
}

/// What `RecordStore.migrateAll` has done.
public struct MigrationReport: Sendable, Hashable {
  /// The records that it has looked at.
  public var examined = 0
  /// Those of which it has written what migration makes.
  public var migrated = 0
  /// Those that stay as they are: the type cannot read them even after `migrate`, their bytes cannot be read, or what `migrate`
  /// makes cannot be saved.
  public var failed: [UnreadableRecord] = []

  init() {}
}

extension MigrationReport: CustomStringConvertible {
  /// The counts, and the records that stay as they are.
  public var description: String {
    let names = failed.map { "\($0.id)" }.joined(separator: ", ")
    return ("\(String.count(migrated, "record")) of \(examined) migrated" + (names.isEmpty ? "" : ", failed: \(names)"))
      .oneLine
  }
}

/// Some records in a row, and those of them that are to be migrated.
private struct MigrationBatch {
  /// So that a zone that is uploaded atomically takes a batch in one request.
  private static let recordsMax = 100
  /// No transaction takes much more.
  private static let bytesMax = 8 << 20

  private(set) var examined = 0
  private(set) var last: RecordID?
  private(set) var ids: [RecordID] = []
  private(set) var failed: [UnreadableRecord] = []

  init<Value: SyncRecord>(
    after last: RecordID?, of type: Value.Type, in store: RecordStore
  ) throws {
    self.last = last
    var bytes = 0
    let view = try store.view()
    let range = EntryScan.Range(zone: Value.zone, after: last)
    try view.forEachLiving(ofType: Value.recordType, in: range) { id, entry in
      self.last = id
      examined += 1
      let record = try view.load(id, entry) { failed.append($0) }
      if let record {
        do {
          if try record.migrated(to: type) != nil {
            ids.append(id)
            bytes += record.undecodedByteCount
          }
        } catch let error as StrandlineError where error.isOfValue {
          failed.append(UnreadableRecord(id: id, record: record, error: error))
        }
      }
      return examined < Self.recordsMax && bytes < Self.bytesMax
    }
  }

  func write<Value: SyncRecord>(
    _ type: Value.Type, _ transaction: inout WriteTransaction
  ) throws -> (migrated: Int, failed: [UnreadableRecord]) {
    var migrated = 0
    var failed: [UnreadableRecord] = []
    for id in ids {
      do {
        if try transaction.migrate(id, type) { migrated += 1 }
      } catch let error as StrandlineError where error.isOfValue && !transaction.isTooLarge {
        failed.append(UnreadableRecord(id: id, record: try transaction.find(id), error: error))
      }
    }
    return (migrated, failed)
  }
}

extension StrandlineError {
  /// One value cannot be read or saved, and others can.
  fileprivate var isOfValue: Bool {
    isOfOneRecord
      || [.typeMismatch, .missingField, .invalidName, .invalidValue, .tooLarge, .foreignZone].contains(code)
  }
}
