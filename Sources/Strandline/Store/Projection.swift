// What an app implements to keep a database of its own in step with a store: an index for full text search, a table for
// reports, a file for a widget. The store hands it batches; how they come about stands in ProjectionRun.swift.

/// A database of the app's own that is made from a store's records, and kept in step with them.
///
/// The database keeps the position up to which it was made beside what it was made of, and writes both in one transaction
/// of its own. So whatever happens between that transaction and the next, a crash too, what is missing is applied again
/// from the position that is there, and nothing is missed.
///
/// ```swift
/// let task = Task { try await store.project(into: search) }
/// ```
public protocol Projection: Sendable {
  /// Names the projection, in `RecordStore.diagnostics()` and in errors.
  var name: String { get }

  /// Returns the position that the database has stored with the last batch; nil if it has none.
  ///
  /// Asked once, when a projection begins.
  func appliedPosition() async throws -> LogPosition?

  /// Applies a batch, and stores its position, in one transaction of the database. When it returns, both are durable; if it
  /// throws, neither is there, and the projection ends with that error.
  ///
  /// A batch may come again whose content is there already. It says what records are, not what was done to them, so
  /// applying it twice is the same as once.
  func apply(_ batch: ProjectionBatch) async throws
}

/// What a projection has to apply in one transaction.
public struct ProjectionBatch: Sendable, Hashable {
  /// Whether to remove everything from the database first: the batches that follow make it anew.
  public var beginsAnew: Bool
  /// Records that were saved: each replaces what the database has of it. At most 1,000.
  public var saved: [Record]
  /// Records that do not live any more; the database may never have had them.
  public var deleted: [RecordID]
  /// The position to store. Nil until the database was made anew to its end: store nil then, so that it is made anew from
  /// the beginning if the app ends before.
  public var position: LogPosition?
  /// Whether the database equals the store as it was at `position` when the batch is applied.
  ///
  /// Where more than 1,000 records have changed, it takes several batches from one such moment to the next. In between, a
  /// record may be newer than another one that the app wrote in the same transaction.
  public var isConsistent: Bool

  /// Makes a batch, for an app's own tests.
  public init(
    beginsAnew: Bool = false, saved: [Record] = [], deleted: [RecordID] = [], position: LogPosition?,
    isConsistent: Bool = true
  ) {
    self.beginsAnew = beginsAnew
    self.saved = saved
    self.deleted = deleted
    self.position = position
    self.isConsistent = isConsistent
  }
}

extension RecordStore {
  /// Keeps a projection in step: applies what it has missed, and then what becomes durable, until the store is closed.
  ///
  /// As long as this runs, compaction leaves in place what the projection has not applied, and `RecordStore.diagnostics()`
  /// names it with its lag. A projection that fell behind gets each record once, as it is then, however often it was
  /// written; a slow one delays no writer. A store that was opened for reading only is followed as far as `refresh()` has
  /// brought it, and the process that writes it does not wait.
  ///
  /// One whose position has expired, because compaction went on while it did not run, is made anew from a view of the store;
  /// if `rebuilding` is false, that is an error instead.
  ///
  /// - Throws: what the projection throws; `CancellationError` if the task is cancelled; `StrandlineError`:
  ///   `.positionExpired`; `.noSuchRecord` if the stored position is of another store, or newer than what this one still
  ///   has; as `record(_:)` and `changes(since:)`.
  /// - Complexity: O(what has changed); to make it anew O(records), and memory for their IDs.
  public func project(
    into projection: any Projection, rebuilding: Bool = true
  ) async throws {
    try await CallSite.unnamed.run("keeping the projection '\(projection.name)' in step") {
      try requireOpen()
      var signals = observers.signals(.events).makeAsyncIterator()
      do {
        var run = try await ProjectionRun(self, projection, rebuilding: rebuilding)
        repeat { try await run.catchUp(to: durableLSN) } while await signals.next() != nil
      } catch  where .closed ~= error && isOver {
        return
      }
      try Task.checkCancellation()
    }
  }

  /// Applies to a projection what it has missed, up to what is durable now: before a search, or in an app that is open
  /// for a moment only. Beside `project(into:)` for the same projection it must not be called.
  ///
  /// - Returns: the position that the projection has reached.
  /// - Throws: as `project(into:)`; `StrandlineError.closed`.
  /// - Complexity: as `project(into:)`.
  @discardableResult
  public func bringUpToDate(
    _ projection: any Projection, rebuilding: Bool = true
  ) async throws -> LogPosition {
    try await CallSite.unnamed.run("bringing the projection '\(projection.name)' up to date") {
      try requireOpen()
      var run = try await ProjectionRun(self, projection, rebuilding: rebuilding)
      return try await run.catchUp(to: durableLSN)
    }
  }

  private var isOver: Bool {
    do { try requireOpen() } catch { return true }
    return false
  }
}
