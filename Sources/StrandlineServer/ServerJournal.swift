// Where the server's events go: a log on a disk, or memory for tests that need no disk.
//
// A commit returns when its events are durable, and only then does the server change its mind or answer. So there
// is nothing to take back when a commit fails.

internal import StrandlineLog
package import StrandlineSystem
internal import Synchronization

/// Why a commit or read failed.
package enum JournalFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// Nothing was written (the disk is full, say); it may work later.
  case refused(String)
  /// The transaction is above what the log takes.
  case tooLarge(String)
  /// The journal takes no more: whether the last commit is on the disk is unknown until it is opened again.
  case broken(String)

  package var description: String {
    switch self {
    case .refused(let words), .tooLarge(let words), .broken(let words): words
    }
  }
}

/// A journal, open for one writer.
package protocol ServerJournal: Sendable {
  /// 16 bytes that name the journal.
  var storeUUID: [UInt8] { get }
  /// This writer's time with the journal.
  var tenure: UInt64 { get }
  /// Makes bodies durable, all or none, and returns their LSNs.
  func commit(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64>
  /// The body of a durable event.
  func read(_ lsn: UInt64) throws(JournalFailure) -> [UInt8]
  /// Gives the journal back.
  func close() throws
}

/// A journal that ends with the process.
package final class MemoryJournal: ServerJournal {
  package let storeUUID: [UInt8]
  package let tenure: UInt64
  private let bodies = Mutex<[[UInt8]]>([])

  package init(random: any RandomSource) {
    storeUUID = random.bytes(16)
    tenure = random.next()
  }

  package func commit(_ added: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
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

  package func close() {}
}

/// A journal in a log.
package final class LogJournal: ServerJournal {
  private let log: Log

  package var storeUUID: [UInt8] { log.storeUUID }
  package var tenure: UInt64 { log.tenure }

  /// Opens the log in a directory, creating it if there is none, and hands every event to `replay` in order.
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

  package func commit(_ bodies: [[UInt8]]) throws(JournalFailure) -> ClosedRange<UInt64> {
    var transaction = LogTransaction()
    for body in bodies { transaction.add(schema: JournalEvent.schema, body: body) }
    do {
      // After a clean rejection (a full disk) the log waits to be told to go on. Being asked again is the telling:
      // if there is still no room it refuses again.
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

  package func close() throws { try log.close() }
}
