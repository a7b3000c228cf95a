// The server's journal: a log on a disk, or memory for tests that need no disk.
//
// `append` returns when its events are durable, and only then does the server change its state or answer. So a failed
// append leaves nothing to undo.

internal import StrandlineLog
package import StrandlineSystem
internal import Synchronization

/// Why an append or a read failed.
package enum JournalFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// Nothing was written, because the disk is full for example. A later append may succeed.
  case refused(String)
  /// The transaction exceeds the log's limit.
  case tooLarge(String)
  /// Whether the last append is durable is unknown until the journal is opened again. Every later call fails.
  case broken(String)

  package var description: String {
    switch self {
    case .refused(let words), .tooLarge(let words), .broken(let words): words
    }
  }
}

/// A journal, open for one writer.
package protocol ServerJournal: Sendable {
  /// 16 random bytes that identify the journal.
  var storeUUID: [UInt8] { get }
  /// A random number that identifies this opening of the journal.
  var tenure: UInt64 { get }
  /// Appends bodies, all or none, and returns their LSNs when they are durable.
  func append(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64>
  /// The body of a durable event.
  func read(_ lsn: UInt64) throws(JournalFailure) -> [UInt8]
  /// Hands the bodies of durable events up to an LSN to `body`, in order. Throws a failure of the journal, or what `body`
  /// throws.
  func forEachEvent(upTo last: UInt64, _ body: (UInt64, [UInt8]) throws -> Void) throws
  /// Closes the journal and releases its lock.
  func close() throws
}

/// A journal in memory.
package final class MemoryJournal: ServerJournal {
  package let storeUUID: [UInt8]
  package let tenure: UInt64
  private let bodies = Mutex<[[UInt8]]>([])

  package init(random: any RandomSource) {
    storeUUID = random.bytes(16)
    tenure = random.next()
  }

  package func append(_ added: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
    bodies.withLock { bodies in
      let first = UInt64(bodies.count) + 1
      bodies += added
      return first...UInt64(bodies.count)
    }
  }

  package func read(_ lsn: UInt64) throws(JournalFailure) -> [UInt8] {
    let body = bodies.withLock { lsn >= 1 && lsn <= UInt64($0.count) ? $0[Int(lsn - 1)] : nil }
    guard let body else { throw .broken("the journal has no event \(lsn)") }
    return body
  }

  package func forEachEvent(upTo last: UInt64, _ body: (UInt64, [UInt8]) throws -> Void) throws {
    for lsn in stride(from: 1, through: last, by: 1) { try body(lsn, try read(lsn)) }
  }

  package func close() {}
}

/// A journal in a log.
package final class LogJournal: ServerJournal {
  private let log: Log

  package var storeUUID: [UInt8] { log.storeUUID }
  package var tenure: UInt64 { log.tenure }

  /// Opens the log in a directory, creating it if there is none, and calls `replay` with every event in order.
  package init(
    directory: String, environment: SystemEnvironment, controlIntervalMilliseconds: Int64? = 200,
    replay: (UInt64, [UInt8]) throws -> Void
  ) throws {
    let options = LogOptions(controlIntervalMilliseconds: controlIntervalMilliseconds)
    log = try Log.open(at: directory, role: .server, options: options, environment: environment) { event in
      guard event.schema == JournalEvent.schema else {
        throw JournalEventError(
          description: "event \(event.lsn) has the schema \(event.schema), which this version does not know",
          isFromNewerVersion: true)
      }
      try replay(event.lsn, event.body)
    }
  }

  package func append(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
    var transaction = LogTransaction()
    for body in bodies { transaction.add(schema: JournalEvent.schema, body: body) }
    do {
      // After a rejection (a full disk) the log accepts nothing until `resume`. Each request tries again: if there is
      // still no room, the log rejects it too.
      if case .rejecting = log.state { log.resume() }
      let lsns = try log.append(transaction)
      try log.waitUntilDurableBlocking(lsns.upperBound)
      return lsns
    } catch let error as LogError {
      switch error.code {
      case .rejected: throw .refused(error.description)
      case .transactionTooLarge: throw .tooLarge(error.description)
      default: throw .broken(error.description)
      }
    } catch {
      throw .broken("\(error)")
    }
  }

  package func read(_ lsn: UInt64) throws(JournalFailure) -> [UInt8] {
    do throws(LogError) {
      return try log.read(lsn).body
    } catch {
      throw .broken(error.description)
    }
  }

  package func forEachEvent(upTo last: UInt64, _ body: (UInt64, [UInt8]) throws -> Void) throws {
    guard last > 0 else { return }
    try log.forEachEvent(in: 1...last) { event in
      try body(event.lsn, event.body)
      return true
    }
  }

  package func close() throws { try log.close() }
}
