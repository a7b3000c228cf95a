// Declaring indexes. An app lists them in `StoreOptions.indexes` when it opens the store; these calls are for tools, and for
// an app that adds one later.

import Dispatch
import StrandlineSystem

extension RecordStore {
  /// The declared indexes, in the order in which they were declared.
  ///
  /// - Throws: `StrandlineError`: `.closed`; in a store that was opened for reading only, `.io` if they cannot be read, and
  ///   `.damaged` if their file is. A store that was opened for writing has none then, and `status()` says why.
  public func indexes() throws -> [RecordIndexStatus] {
    try CallSite.unnamed.run("listing the indexes of the store at '\(path)'") {
      try requireOpen()
      if let index { return index.declared }
      let files = IndexFiles(
        source.folder, environment, storeUUID: source.storeUUID, cache: BlockCache(bytesMax: 0))
      let ready = projections.withLock { $0.runs }?.indexes ?? []
      let declared = try files.loadDefinitions()
      if let damage = declared.damage { throw damage }
      return declared.definitions.indexes.map { RecordIndexStatus(index: $0.index, isReady: ready.contains($0)) }
    }
  }

  /// Declares an index. When this returns, that is durable; the index is built in the background, also after the next open
  /// if the process ends before. Queries use it as soon as it is built. Does nothing if it is declared.
  ///
  /// If it throws `.diskFull` or `.io`, the next open may find the index declared or not; no query is answered otherwise.
  /// A later call of this or of `dropIndex`, for any index, decides it when it returns.
  ///
  /// - Throws: `StrandlineError`: `.readOnly`, `.diskFull`, `.io`, `.closed`, `.suspended`; `.invalidValue` for a field or
  ///   a type that has no name, or above 340 indexes.
  package func addIndex(_ index: RecordIndex, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("adding the index \(index)") {
      let writer = try requireIndex()
      if index.recordType.isEmpty || index.fields.contains(where: { $0.field.isEmpty }) {
        throw StrandlineError(.invalidValue, "an index names a type, and a field or none")
      }
      try writer.declare(index)
    }
  }

  /// Drops an index. When this returns, that is durable, and no query uses it; its space is given back as runs of the
  /// store are merged. Does nothing if it is not declared. After an error as with `addIndex`.
  ///
  /// - Throws: `StrandlineError`: `.readOnly`, `.diskFull`, `.io`, `.closed`, `.suspended`.
  package func dropIndex(_ index: RecordIndex, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("dropping the index \(index)") { try requireIndex().drop(index) }
  }

  /// Waits until every declared index is built.
  ///
  /// - Throws: `StrandlineError`: `.readOnly`, `.damaged` if a record cannot be read, `.diskFull`, `.io`; `.closed` and
  ///   `.suspended` also if the store is closed or suspended meanwhile. What is not built then is built after the next
  ///   open, or after `resume()`.
  /// - Complexity: reads every record of the types whose indexes are not built.
  package func buildIndexes(fileID: String = #fileID, line: Int = #line) async throws {
    // Reading all records blocks its thread for long, so it does not run on the cooperative pool.
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global(qos: .utility).async {
        continuation.resume(with: Result { try self.buildIndexesBlocking(fileID: fileID, line: line) })
      }
    }
  }

  /// The same on a plain thread.
  package func buildIndexesBlocking(fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("building the indexes of the store at '\(path)'") {
      guard try requireIndex().build() else {
        // If it was not the store that was closed, it was this index, by a suspension.
        try requireOpen()
        throw StrandlineError.suspended
      }
    }
  }

  /// Opens a store without believing its sorted tables, and makes them from the log anew, with its declared indexes. When
  /// this returns, they are on the medium; if it throws, or the power goes, the next open makes them.
  ///
  /// - Throws: what opening the store, building its indexes and closing it throw.
  /// - Complexity: O(bytes of the log); reads every record of the types with a declared index once more.
  package static func makeTablesAnew(
    at path: String, options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real
  ) throws {
    var options = options
    options.index.ignoresRuns = true
    let store = try openBlocking(at: path, options: options, environment: environment, createIfAbsent: false)
    do {
      // Replaces a damaged file of the declared indexes.
      try store.requireIndex().redefine { _ in }
      try store.requireIndex().flush(always: true)
      try store.buildIndexesBlocking()
    } catch {
      _ = try? store.closeBlocking()
      throw error
    }
    try store.closeBlocking()
  }

  private func requireIndex() throws -> StoreIndex {
    try requireWritable()
    guard let index else {
      // Suspended since, or never writable.
      if isSuspended { throw StrandlineError.suspended }
      throw StrandlineError(.readOnly, "the store at '\(path)' was opened for reading only")
    }
    return index
  }
}
