// Backups: a store as it was at one event, copied while an app writes and compacts it. How the files are copied stands in
// LogBackup; here the copy gets its mark. Runs are not copied: its first writer makes them of its log. Which indexes were
// declared the log does not know, so that is copied.

import Dispatch
package import StrandlineLog
import StrandlineSystem
import Synchronization

/// What a backup holds.
public struct StoreBackup: Hashable, Sendable {
  /// The newest event in it: the backup is the store as it was after this event.
  public var lsn: LSN
  /// Bytes of its segment files.
  public var bytes: UInt64
  /// Segment files.
  package var segments: Int
  /// Bytes of the contents of assets.
  public var contentBytes: UInt64
}

extension RecordStore {
  /// Copies the store to a new folder, while it is read, written, synced and compacted. The copy is the store as it was
  /// after one event: it holds everything whose `write` had returned when this was called.
  ///
  /// The copy is a store of its own. It can be opened beside the original, on this device or another one, and both can sync
  /// with the same account: its first writer takes a new writer name, and takes nothing that was unsent for unknown to the
  /// server. When this returns, the copy is on the medium; if it throws, or the process ends, nothing stands at `newPath`.
  /// The contents of assets are copied too. Declared indexes are declared in the copy; its first writer builds them. Files beside the events, such as a
  /// sign-in, are not copied.
  ///
  /// Works on a suspended store, and on one that was opened for reading only; then it holds at least what the writing
  /// process has acknowledged before the call.
  ///
  /// At `newPath` there must be nothing, or an empty folder, whose parent exists and is no store.
  ///
  /// - Returns: what was copied.
  /// - Throws: `StrandlineError`: `.notAStore` if `newPath` is not free, `.diskFull`, `.damaged` (the original is: what
  ///   cannot be trusted is not copied), `.outdated` if the store is compacted faster than it can be copied, `.io`,
  ///   `.closed`; `CancellationError` if the task is cancelled.
  /// - Complexity: O(bytes of the log and of the contents).
  @discardableResult
  public func backup(to newPath: String) async throws -> StoreBackup {
    try await Self.onOwnThread { flag in
      try self.backupBlocking(to: newPath) { _ in try flag.check() }
    }
  }

  /// Copies the store at `path` to a new folder, whichever process has it open. See `backup(to:)`; of a store that another
  /// process writes, the copy holds at least what that has acknowledged before the call.
  ///
  /// - Throws: `StrandlineError` as `backup(to:)`, and `.noSuchStore`.
  @discardableResult
  public static func backup(
    at path: String, to newPath: String, environment: StoreEnvironment = .real
  ) async throws -> StoreBackup {
    try await onOwnThread { flag in
      try backupBlocking(at: path, to: newPath, environment: environment) { _ in
        try flag.check()
      }
    }
  }

  /// The same on a plain thread.
  @discardableResult
  package func backupBlocking(
    to newPath: String, progress: (LogBackupProgress) throws -> Void = { _ in }
  ) throws -> StoreBackup {
    try CallSite.unnamed.run("backing the store at '\(path)' up") {
      try requireOpen()
      // Says in the log how far it is durable; a log that cannot say it now said it with its last groups.
      if case .writer(let log) = source, case .open = log.state {
        try log.checkPlace()
        try log.flushBlocking()
        try log.raiseControl()
      }
    }
    return try CallSite.unnamed.run("backing the store at '\(path)' up to '\(newPath)'") {
      do {
        return try contents.withoutRemoval {
          try Self.backup(of: source.folder, to: newPath, environment, progress)
        }
      } catch {
        // A folder that was removed has no files: why says more.
        if case .writer(let log) = source, case .open = log.state { try log.checkPlace() }
        throw error
      }
    }
  }

  package static func backupBlocking(
    at path: String, to newPath: String, environment: StoreEnvironment,
    progress: (LogBackupProgress) throws -> Void = { _ in }
  ) throws -> StoreBackup {
    try CallSite.unnamed.run("backing the store at '\(path)' up to '\(newPath)'") {
      let system = environment.system
      return try backup(of: try LogReader.folder(of: path, environment: system), to: newPath, system, progress)
    }
  }

  private static func backup(
    of folder: any Folder, to newPath: String, _ environment: SystemEnvironment,
    _ progress: (LogBackupProgress) throws -> Void
  ) throws -> StoreBackup {
    var contentBytes: UInt64 = 0
    // Before the log is read and after it: what its events name was there before, or has come since. A content is removed only when
    // they do not name it any more.
    func copyContents(_ source: any Folder, _ copy: any Folder) throws {
      let (bytes, leftOut) = try ContentFolder(source).copy(to: ContentFolder(copy)) { copied in
        try progress(LogBackupProgress(bytesCopied: contentBytes + copied, bytesTotal: contentBytes + copied))
      }
      contentBytes += bytes
      guard let damaged = try leftOut.first(where: { try ContentFolder(source).size(of: $0) != nil }) else { return }
      throw StrandlineError(
        .damaged,
        "a content of the store is not the one that its name says, so it was not copied; 'strandline verify' names all of them",
        file: ContentFolder(source).path(of: damaged))
    }
    let report = try LogBackup.make(
      of: folder, at: newPath, role: .store, environment: environment,
      ownerBytes: { lsn, _ in CopyMark(lsn: LSN(lsn)).bytes }, progress: progress, prepare: copyContents
    ) { source, copy in
      try copyContents(source, copy)
      try IndexFiles(source, environment, cache: BlockCache(bytesMax: 0)).copyDefinitions(to: copy)
    }
    return StoreBackup(
      lsn: LSN(report.lastLSN), bytes: report.bytes, segments: report.segments, contentBytes: contentBytes)
  }

  /// Copying blocks its thread, so it does not run on the cooperative pool; a task that is cancelled sets the flag.
  private static func onOwnThread<Value: Sendable>(
    _ work: @escaping @Sendable (CancellationFlag) throws -> Value
  ) async throws -> Value {
    let flag = CancellationFlag()
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        DispatchQueue.global(qos: .utility).async { continuation.resume(with: Result { try work(flag) }) }
      }
    } onCancel: {
      flag.set()
    }
  }
}

/// Tells a thread that the task that waits for it was cancelled.
private final class CancellationFlag: Sendable {
  private let isSet = Atomic(false)
  func set() { isSet.store(true, ordering: .releasing) }
  func check() throws { if isSet.load(ordering: .acquiring) { throw CancellationError() } }
}
