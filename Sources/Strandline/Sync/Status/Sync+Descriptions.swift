// One-line descriptions of the sync engine's values, for a log or a debugger.

import StrandlineSystem

extension SyncStatus: CustomStringConvertible {
  /// The phase, and the numbers of pending and held records.
  public var description: String {
    let held = held.reduce(0) { $0 + $1.count }
    return "\(phase.rawValue), \(unsettled) unsettled\(held > 0 ? ", \(held) held" : "")"
  }
}

extension SyncStatus.HeldGroup: CustomStringConvertible {
  /// The number and the code.
  public var description: String { "\(count) \(isDownload ? "downloads" : "changes"): \(code)".oneLine }
}

extension SyncStatus.Progress: CustomStringConvertible {
  /// Both numbers.
  public var description: String { "\(done) of \(total)" }
}

extension SyncStatus.Download: CustomStringConvertible {
  /// The counts.
  public var description: String {
    ([String.count(pages, "page"), String.count(records, "record"), "\(String.count(zonesLeft, "zone")) left"]
      + (listing.map { ["\($0) listed"] } ?? [])).joined(separator: ", ")
  }
}

extension SyncStatus.Wait: CustomStringConvertible {
  /// The end of the wait, and its cause.
  public var description: String { "until \(untilMilliseconds) ms: \(code), \(reason)".oneLine }
}

extension SyncStatus.Halt: CustomStringConvertible {
  /// The zone or type, and the cause.
  public var description: String { "\(type.map { "\($0) of " } ?? "")\(zone): \(code), \(reason)".oneLine }
}

extension SyncStatus.Retry: CustomStringConvertible {
  /// The number of failures, and the last code.
  public var description: String { "\(String.count(count, "failure")), the last \(code)".oneLine }
}

extension SyncStatus.Operation: CustomStringConvertible {
  /// The kind of request and its result.
  public var description: String { "\(kind) \(failure.map { "failed with \($0)" } ?? "answered")".oneLine }
}

extension SyncLog: CustomStringConvertible {
  /// The level.
  public var description: String { "log from level \(level) on" }
}

extension SyncConfiguration: CustomStringConvertible {
  /// Whether the engine syncs by itself.
  public var description: String { isAutomatic ? "automatic sync" : "sync by hand" }
}

extension SyncEngine: CustomStringConvertible {
  /// The store and the database.
  public var description: String { "sync of \(store) with \(database.address)" }
}
