// Where events are read from by their LSN: a log that this store holds, or one that another process writes.

package import StrandlineLog
import StrandlineSystem

/// A log, for reading.
package enum EventSource: Sendable {
  case writer(Log)
  case reader(LogReader)

  /// The event at `lsn`, which must be durable. One read and a checksum.
  package func event(at lsn: LSN) throws -> Event {
    let found: LogEvent
    switch self {
    case .writer(let log): found = try log.read(lsn.rawValue)
    case .reader(let reader): found = try reader.read(lsn.rawValue)
    }
    return try EventSource.decode(found)
  }

  /// The event at `lsn`; nil if it was left out by a compaction or lost before a repair.
  package func eventIfThere(at lsn: LSN) throws -> Event? {
    do {
      return try event(at: lsn)
    } catch let error as LogError where error.code == .compacted {
      return nil
    }
  }

  /// The first event of the transaction that `lsn` is in.
  package func transactionStart(of lsn: LSN) throws -> LSN {
    let found: LogEvent
    switch self {
    case .writer(let log): found = try log.read(lsn.rawValue)
    case .reader(let reader): found = try reader.read(lsn.rawValue)
    }
    return LSN(lsn.rawValue - min(lsn.rawValue - 1, UInt64(found.indexInTransaction)))
  }

  /// The newest durable event.
  package var durableLSN: LSN {
    switch self {
    case .writer(let log): LSN(log.durableLSN)
    case .reader(let reader): LSN(reader.lastLSN)
    }
  }

  package static func decode(_ found: LogEvent) throws -> Event {
    guard found.schema == EventCodec.schema else {
      throw StrandlineError(
        .fromTheFuture, "event \(found.lsn) has payload schema \(found.schema), which this version does not know")
    }
    do {
      return try EventCodec.decode(found.body)
    } catch {
      throw StrandlineError(
        error.what.hasPrefix("an event of a newer version") ? .fromTheFuture : .damaged,
        "event \(found.lsn) cannot be read: \(error); its checksum is right, so it was written like this")
    }
  }
}

/// A version of a record as an event holds it.
package struct LoadedVersion: Sendable {
  package var version: Version
  /// Which fields have been written here and not yet acknowledged, each with the mutation that wrote it last.
  package var dirty: [String: LSN]
  /// The mutation's own tenure and time; nil for a version that was fetched.
  package var own: (tenure: UInt64, time: HybridTime)?
  package var editCount: UInt64
  /// The base that the mutation was made on.
  package var base: LSN
  /// The server's words about the version, if it was fetched.
  package var system: SystemFields?

  /// Decodes the version in an event; nil if the event holds none.
  package init?(_ event: Event, at lsn: LSN) throws {
    switch event {
    case .saved(let saved):
      (version, dirty) = try saved.content.decoded(type: saved.type, births: saved.births, this: lsn)
      own = (saved.tenure, saved.time)
      editCount = saved.editCount
      base = saved.base
    case .merged(let merged):
      (version, dirty) = try merged.content.decoded(type: merged.type, births: merged.births, this: lsn)
      own = (merged.tenure, merged.time)
      editCount = merged.editCount
      base = merged.base
    case .fetchedSave(let fetched):
      (version, dirty) = try fetched.content.decoded(type: fetched.type, births: fetched.births, this: lsn)
      own = nil
      editCount = 0
      base = lsn
      system = SystemFields(
        changeTag: fetched.changeTag, created: fetched.created, modified: fetched.modified, unknown: fetched.unknown)
    default: return nil
    }
  }
}
