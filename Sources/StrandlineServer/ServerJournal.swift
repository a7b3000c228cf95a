// The server's journal: a log on a disk, or memory for tests that need no disk.
//
// `append` gives events their places, which is the order of the server's answers; `waitUntilDurable` is the receipt. Many
// requests append while one sync is under way, and share the next. What is not durable yet can be read: from memory, until
// the disk has it.

package import StrandlineLog
package import StrandlineSystem

/// Why an append or a read failed.
package enum JournalFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// Nothing was written of what is not durable, because the disk is full for example. After `resume` a later append may
  /// succeed.
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
  /// Everything up to here is durable; 0 if nothing is.
  var durableLSN: UInt64 { get }
  /// Appends bodies, all or none, and returns their LSNs. They are durable when `waitUntilDurable` has returned. After a
  /// refusal all further ones are refused until `resume`.
  func append(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64>
  /// Blocks until everything up to an LSN is durable.
  func waitUntilDurable(_ lsn: UInt64) throws(JournalFailure)
  /// After a refusal: takes appends again. LSNs above `durableLSN` are given again, so that no caller may wait for one.
  func resume()
  /// The body of an event, durable or not.
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
  private let bodies = OrderedMutex<[[UInt8]]>([])

  package init(random: any RandomSource) {
    storeUUID = random.bytes(16)
    tenure = random.next()
  }

  package var durableLSN: UInt64 { bodies.withLock { UInt64($0.count) } }

  package func append(_ added: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
    bodies.withLock { bodies in
      let first = UInt64(bodies.count) + 1
      bodies += added
      return first...UInt64(bodies.count)
    }
  }

  package func waitUntilDurable(_ lsn: UInt64) {}

  package func resume() {}

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
  private let pending = OrderedMutex(.journal, Pending())

  /// The bodies of events that are not durable, and perhaps of some that are.
  private struct Pending {
    var first: UInt64 = 1
    var bodies: [[UInt8]] = []

    mutating func append(_ added: [[UInt8]], at first: UInt64) {
      if bodies.isEmpty { self.first = first }
      bodies += added
    }

    mutating func drop(upTo lsn: UInt64) {
      guard lsn >= first, !bodies.isEmpty else { return }
      let count = Int(min(lsn - first + 1, UInt64(bodies.count)))
      bodies.removeFirst(count)
      first += UInt64(count)
    }

    func body(_ lsn: UInt64) -> [UInt8]? {
      lsn >= first && lsn - first < UInt64(bodies.count) ? bodies[Int(lsn - first)] : nil
    }
  }

  package var storeUUID: [UInt8] { log.storeUUID }
  /// The open folder of the log.
  package var folder: any Folder { log.folder }
  package var tenure: UInt64 { log.tenure }
  package var durableLSN: UInt64 { log.durableLSN }

  /// Opens the log in a directory, creating it if there is none, and calls `replay` with every event in order.
  package init(
    directory: String, environment: SystemEnvironment, controlIntervalMilliseconds: Int64? = 200,
    replay: (LogEvent) throws -> Void
  ) throws {
    let options = LogOptions(controlIntervalMilliseconds: controlIntervalMilliseconds)
    log = try Log.open(at: directory, role: .server, options: options, environment: environment, replay: replay)
  }

  package func append(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
    var transaction = LogTransaction()
    for body in bodies { transaction.add(schema: JournalEvent.schema, body: body) }
    // The lock is held around the append, so that the bodies stand in the order of their LSNs.
    return try pending.withLock { pending throws(JournalFailure) in
      do throws(LogError) {
        let lsns = try log.append(transaction)
        pending.append(bodies, at: lsns.lowerBound)
        return lsns
      } catch {
        throw Self.failure(error)
      }
    }
  }

  package func waitUntilDurable(_ lsn: UInt64) throws(JournalFailure) {
    do {
      try log.waitUntilDurableBlocking(lsn)
    } catch let error as LogError {
      throw Self.failure(error)
    } catch {
      throw .broken("\(error)")
    }
    let durable = log.durableLSN
    pending.withLock { $0.drop(upTo: durable) }
  }

  package func resume() {
    pending.withLock { $0 = Pending() }
    log.resume()
  }

  private static func failure(_ error: LogError) -> JournalFailure {
    switch error.code {
    case .rejected: .refused(error.description)
    case .transactionTooLarge: .tooLarge(error.description)
    default: .broken(error.description)
    }
  }

  package func read(_ lsn: UInt64) throws(JournalFailure) -> [UInt8] {
    if let body = pending.withLock({ $0.body(lsn) }) { return body }
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
