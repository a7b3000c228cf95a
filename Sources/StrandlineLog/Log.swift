// The log: events in order, durable, on one page. Opening, closing, and what it is; how an append becomes durable
// stands in Commit/, what an open believes in Recovery/, how one event is read in Log+Reading.swift.
//
// Format and recovery rule: Formats/log.md.

package import StrandlineSystem

/// What a log can do at the moment.
package enum LogState: Sendable {
  case open
  /// A group was refused before a byte of it was written. Nothing more is taken until `resume()`.
  case rejecting(LogError)
  /// A write or sync failed. Nothing more is taken until the log is opened again.
  case poisoned(LogError)
  case closed
}

/// A write-ahead log in a directory, held by this writer. Safe to use from every thread and task.
package final class Log: Sendable {
  package let path: String
  package let storeUUID: [UInt8]
  package let tenure: UInt64
  package let role: LogRole
  package let recovery: RecoveryReport
  package let isNew: Bool

  init(path: String) {
    self.path = path
    storeUUID = []
    tenure = 0
    role = .store
    recovery = RecoveryReport()
    isNew = false
  }

  /// Opens the log at `path` for writing, creating it if nothing (or an empty folder) is there.
  ///
  /// Every event that is in the log is handed to `replay` once, in order, whole transactions only. When `open`
  /// returns, all of them are durable and `append` works. An open without an append changes no byte, but for
  /// temporary files of an interrupted writer, which are removed, and a tail above the last promise, which is
  /// copied into a segment of its own.
  ///
  /// - Throws: `LogError`, or what `replay` threw; the lock is given back first.
  /// - Complexity: O(bytes of the log).
  package static func open(
    at path: String, role: LogRole, options: LogOptions = .init(), environment: SystemEnvironment,
    createIfAbsent: Bool = true, replay: (LogEvent) throws -> Void
  ) throws -> Log {
    throw LogError(.io, "being built")
  }

  /// The LSN that the next event will have.
  package var nextLSN: UInt64 { 1 }
  /// Everything up to here is on the medium; 0 if nothing is.
  package var durableLSN: UInt64 { 0 }

  /// Puts a transaction into the queue and gives its events their LSNs, in the order of calls.
  package func append(_ transaction: LogTransaction) throws(LogError) -> ClosedRange<UInt64> {
    throw LogError(.io, "being built")
  }

  /// Returns when everything up to `lsn` is durable.
  package func waitUntilDurable(_ lsn: UInt64) async throws {
    throw LogError(.io, "being built")
  }

  /// The same for a plain thread, which does the sync itself if nobody else is at it.
  package func waitUntilDurableBlocking(_ lsn: UInt64) throws {
    throw LogError(.io, "being built")
  }

  package var state: LogState { .closed }

  /// After a clean rejection: takes appends again, from the LSN after the last durable one.
  package func resume() {}

  /// Reads one durable event.
  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    throw LogError(.io, "being built")
  }

  /// Writes a marker that promises what is durable, unless the last one does.
  package func promiseNow() throws(LogError) {
    throw LogError(.io, "being built")
  }

  /// Makes durable what is queued, promises it, and gives the lock back.
  package func close() throws {
    throw LogError(.io, "being built")
  }
}
