// Where events are read from by their LSN: a log that this store holds, or one that another process writes.

package import StrandlineLog
package import StrandlineSystem

/// A log, for reading.
package enum EventSource: Sendable {
  case writer(Log)
  case reader(LogReader)

  /// The folder of the log.
  package var folder: any Folder {
    switch self {
    case .writer(let log): log.folder
    case .reader(let reader): reader.folder
    }
  }

  /// Whether another process may write and compact the log.
  package var isReader: Bool { if case .reader = self { true } else { false } }

  /// The event at `lsn`, which must be durable. One read and a checksum.
  package func event(at lsn: LSN) throws(StrandlineError) -> Event { try read(lsn.rawValue).decoded() }

  /// The same; nil if compaction removed it.
  package func eventIfKept(at lsn: LSN) throws(StrandlineError) -> Event? {
    guard let found = try readIfKept(lsn.rawValue) else { return nil }
    return try found.decoded()
  }

  /// The version of a record in the event at `lsn`, which must be durable; nil if the event holds none.
  ///
  /// - Throws: an error of a lying index if the event is of another record.
  package func version(at lsn: LSN, of id: RecordID) throws(StrandlineError) -> ShownVersion? {
    try ShownVersion(read(lsn.rawValue), of: id)
  }

  /// The same; nil also if compaction removed the event.
  ///
  /// - Parameter hint: where the event was seen last.
  package func versionIfKept(
    at lsn: LSN, of id: RecordID, hint: LogPlace? = nil
  ) throws(StrandlineError) -> ShownVersion? {
    guard let found = try readIfKept(lsn.rawValue, hint) else { return nil }
    return try ShownVersion(found, of: id)
  }

  /// The first event that is left of the transaction that `lsn` is in; `lsn` itself if none is left before it.
  package func transactionStart(of lsn: LSN) throws(StrandlineError) -> LSN {
    var first = lsn
    var at = lsn.rawValue
    while at > 0 {
      if let found = try readIfKept(at) {
        if at < lsn.rawValue, found.isLast { return first }
        first = LSN(at)
        if found.isFirst { return first }
      }
      at -= 1
    }
    return first
  }

  /// Throws the public error: what reads an event is as often a public call as the engine.
  private func read(_ lsn: UInt64, _ hint: LogPlace? = nil) throws(StrandlineError) -> LogEvent {
    do throws(LogError) {
      switch self {
      case .writer(let log): return try Self.read(lsn, hint, log)
      case .reader(let reader): return try Self.read(lsn, hint, reader)
      }
    } catch {
      throw StrandlineError(error, "reading event \(lsn)")
    }
  }

  /// A read that began before a suspension goes on where the suspended store reads.
  private static func read(_ lsn: UInt64, _ hint: LogPlace?, _ log: Log) throws(LogError) -> LogEvent {
    do throws(LogError) {
      return if let hint { try log.read(lsn, at: hint) } else { try log.read(lsn) }
    } catch {
      guard let reader = log.readerAfterClose else { throw error }
      return try read(lsn, hint, reader)
    }
  }

  private static func read(_ lsn: UInt64, _ hint: LogPlace?, _ reader: LogReader) throws(LogError) -> LogEvent {
    if let hint { try reader.read(lsn, at: hint) } else { try reader.read(lsn) }
  }

  /// The event as it stands in the log; nil if compaction removed it.
  package func readIfKept(_ lsn: UInt64, _ hint: LogPlace? = nil) throws(StrandlineError) -> LogEvent? {
    do {
      return try read(lsn, hint)
    } catch {
      // The log's word for an event that a compaction removed; nothing else has this code here.
      if error.code == .outdated { return nil }
      throw error
    }
  }

  /// Hands the durable events of a range that are left to `visit`, in order, until it returns false.
  package func forEachEvent(in lsns: ClosedRange<UInt64>, _ visit: (LogEvent) throws -> Bool) throws {
    switch self {
    case .writer(let log): try log.forEachEvent(in: lsns, visit)
    case .reader(let reader): try reader.forEachEvent(in: lsns, visit)
    }
  }

  /// The newest event by whose state a compaction has left anything out; see `Log.compactedLSN()`.
  package func compactedLSN() throws(StrandlineError) -> LSN {
    do throws(LogError) {
      switch self {
      case .writer(let log): return LSN(try log.compactedLSN())
      case .reader(let reader): return LSN(try reader.compactedLSN())
      }
    } catch {
      throw StrandlineError(error, "asking up to where the log was compacted")
    }
  }

  package var storeUUID: [UInt8] {
    switch self {
    case .writer(let log): log.storeUUID
    case .reader(let reader): reader.storeUUID
    }
  }

  /// The newest durable event.
  package var durableLSN: LSN {
    switch self {
    case .writer(let log): LSN(log.durableLSN)
    case .reader(let reader): LSN(reader.lastLSN)
    }
  }

  /// The bytes of the log's segments, as far as they are written.
  package var segmentBytes: UInt64 {
    switch self {
    case .writer(let log): log.segmentBytes
    case .reader(let reader): reader.segmentBytes
    }
  }

  /// The bytes of the finished segments that end after `lsn`; 0 of a log that another process writes.
  package func finishedBytes(after lsn: LSN) -> UInt64 {
    if case .writer(let log) = self { return log.finishedBytes(after: lsn.rawValue) }
    return 0
  }

  /// The damage that was met in the log since it was opened.
  package var damage: [LogDamage] {
    switch self {
    case .writer(let log): log.damage
    case .reader(let reader): reader.damage
    }
  }
}
