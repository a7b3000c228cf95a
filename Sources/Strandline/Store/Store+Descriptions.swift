// What a store and its values print: one line, for a log or a debugger.

extension RecordStore: CustomStringConvertible {
  /// The store's folder.
  public var description: String { "store at '\(path)'".oneLine }
}

extension StoreInbox: CustomStringConvertible {
  /// The store's folder.
  public var description: String { "inbox of the store at '\(path)'".oneLine }
}

extension InboxRefusal: CustomStringConvertible {
  /// Why, and how many changes there were.
  public var description: String {
    "\(String.count(changes.count, "change")) of another process refused: \(message)".oneLine
  }
}

extension StoreOptions: CustomStringConvertible {
  /// The size of a segment.
  public var description: String { "segments of \(segmentBytesMax) bytes" }
}

extension StoreEnvironment: CustomStringConvertible {
  /// Whether a test made it.
  public var description: String { isSimulated ? "simulated environment" : "this machine" }
}

extension Receipt: CustomStringConvertible {
  /// The events of the transaction, and what is durable.
  public var description: String {
    let events = lsns.map {
      $0.lowerBound == $0.upperBound ? "event \($0.upperBound)" : "events \($0.lowerBound)-\($0.upperBound)"
    }
    return "\(events ?? "no event"), durable up to \(durableLSN)"
  }
}

extension MutationOutcome: CustomStringConvertible {
  /// The outcome in a few words.
  public var description: String {
    switch self {
    case .saved: "saved"
    case .merged: "merged"
    case .superseded(let lsn): "superseded by event \(lsn)"
    case .cancelled: "cancelled"
    case .deletedOnServer: "deleted on the server"
    case .rejected(let code, let reason): "rejected: \(code)\(reason.isEmpty ? "" : ", \(reason)")".oneLine
    case .discarded: "discarded"
    case .partlyLost(let fields): "merged, but for \(fields.joined(separator: ", "))".oneLine
    case .lost: "lost"
    }
  }
}

extension StoreStatus: CustomStringConvertible {
  /// Counts, and the newest durable event.
  public var description: String {
    let parts = [
      String.count(records, "record"), "\(unsettled) unsent", held.isEmpty ? nil : "\(held.count) held",
      waitMilliseconds.map { "waiting \($0) ms" }, "durable up to \(durableLSN)",
      damage.isEmpty ? nil : String.count(damage.count, "damaged place"),
    ]
    return parts.compactMap { $0 }.joined(separator: ", ")
  }
}

extension SyncedAccount: CustomStringConvertible {
  /// Container, environment, and the databases that were synced.
  public var description: String {
    "\(container) \(environment) \(scopes.map { "\($0)" }.joined(separator: ", "))".oneLine
  }
}

extension HeldRecord: CustomStringConvertible {
  /// The record, and why it is held.
  public var description: String {
    "\(id): \(code)\(reason.isEmpty ? "" : ", \(reason)") (\(String.count(attempts, "attempt")))".oneLine
  }
}

extension StoreStatus.Damage: CustomStringConvertible {
  /// File and offset, the events if they are known, and what is wrong.
  public var description: String {
    "\(file):\(offset)\(lsns.map { ", events \($0.lowerBound) to \($0.upperBound)" } ?? ""): \(message)".oneLine
  }
}

extension StoreStatus.Zone: CustomStringConvertible {
  /// The zone, its records, and what is the matter with it.
  public var description: String {
    "\(id): \(String.count(records, "record"))\(isDirty ? ", to be fetched" : "")\(isLost ? ", lost" : "")".oneLine
  }
}

extension StoreCompaction: CustomStringConvertible {
  /// Bytes, events and files, before and after.
  public var description: String {
    "bytes \(bytesBefore) to \(bytesAfter), events \(eventsBefore) to \(eventsAfter), "
      + "files \(segmentsBefore) to \(segmentsAfter)"
  }
}

extension StoreStatus.View: CustomStringConvertible {
  /// What it shows, for how long, and what it keeps.
  public var description: String { "view of event \(lsn), held for \(milliseconds) ms, keeps \(bytes) bytes" }
}

extension StoreView: CustomStringConvertible {
  /// What it shows.
  public var description: String { "view of event \(lsn) of \(store)" }
}

extension RecordQuery: CustomStringConvertible {
  /// Type, zone, conditions and order.
  public var description: String {
    let parts = [
      recordType + (zone.map { " in \($0)" } ?? ""),
      filters.isEmpty ? nil : "where " + filters.map { "\($0)" }.joined(separator: " and "),
      sorts.isEmpty ? nil : "by " + sorts.map { "\($0)" }.joined(separator: ", "), limit.map { "at most \($0)" },
    ]
    return parts.compactMap { $0 }.joined(separator: ", ").oneLine
  }
}

extension RecordFilter: CustomStringConvertible {
  /// The field, the comparison and the values.
  public var description: String {
    "\(field) \(comparator.rawValue) \(values.map { "\($0)" }.joined(separator: ", "))".oneLine
  }
}

extension QueryPage: CustomStringConvertible {
  /// How many records, which cannot be read, and whether there are more.
  public var description: String {
    let names = unreadable.map { "\($0.id)" }.joined(separator: ", ")
    return
      (String.count(records.count, "record") + (names.isEmpty ? "" : ", unreadable: \(names)")
      + (cursor == nil ? "" : ", more to come")).oneLine
  }
}

extension QueryCursor: CustomStringConvertible {
  /// Where the next page begins.
  public var description: String { "after \(id)".oneLine }
}

extension RecordChange: CustomStringConvertible {
  /// What was done to which record, by whom, and where it stands.
  public var description: String {
    let parts = [
      "\(kind) \(id) at event \(position.lsn), \(origin)", mutation.map { "of event \($0)" }, outcome.map { "\($0)" },
      cause.map { "with the deletion of event \($0)" }, reason, isCompacted ? "compacted" : nil,
    ]
    return parts.compactMap { $0 }.joined(separator: ", ").oneLine
  }
}

extension RecordHistory: CustomStringConvertible {
  /// How many changes, and whether there are more.
  public var description: String {
    String.count(changes.count, "change") + (next == nil ? "" : ", more to come")
      + (compactedLSN.map { ", compacted up to event \($0)" } ?? "")
  }
}

extension ChangePage: CustomStringConvertible {
  /// How many changes, up to where, and whether there are more.
  public var description: String {
    "\(String.count(changes.count, "change")) up to event \(position.lsn)" + (hasMore ? ", more to come" : "")
  }
}

extension ProjectionBatch: CustomStringConvertible {
  /// What is to be applied, and the position to store.
  public var description: String {
    (beginsAnew ? "anew, " : "") + "\(saved.count) saved, \(deleted.count) deleted, "
      + (position.map { "up to event \($0.lsn)" } ?? "more to come")
  }
}

extension StoreStatus.Projection: CustomStringConvertible {
  /// The name, and how far behind it is.
  public var description: String { "\(name): \(String.count(lag, "event")) behind".oneLine }
}

extension HistoryRetention: CustomStringConvertible {
  /// How much of the past stays.
  public var description: String {
    switch self {
    case .all: "all history"
    case .since(let duration): "history of \(duration)"
    case .latest: "no history"
    }
  }
}

extension CompactionPolicy: CustomStringConvertible {
  /// How much of the past stays, and when the rest goes.
  public var description: String {
    "\(history); " + (deadRatio.map { "compacts from a part of \($0) on, in \(diskShare) of the time" } ?? "on demand")
  }
}

extension StoreBackup: CustomStringConvertible {
  /// The newest event of the copy, and its size.
  public var description: String { "up to event \(lsn), \(bytes) bytes" }
}
