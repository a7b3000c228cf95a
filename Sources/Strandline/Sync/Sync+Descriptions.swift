// What the sync engine's values print: one line, for a log or a debugger.

extension SyncReport: CustomStringConvertible {
  /// The counts that are not 0.
  public var description: String {
    let counts: [(Int, String)] = [
      (fetchedSaves, "fetched"), (fetchedDeletes, "deleted"), (echoes, "known already"), (uploaded, "uploaded"),
      (recognized, "recognized"), (merged, "merged"), (blocked, "blocked"), (held, "held"),
    ]
    let done = counts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
    let waited = waitedMilliseconds > 0 ? ["waited \(waitedMilliseconds) ms"] : []
    return ([String.count(requests, "request")] + done + waited).joined(separator: ", ")
  }
}

extension SyncConfiguration: CustomStringConvertible {
  /// Whether the engine starts cycles by itself.
  public var description: String { isAutomatic ? "automatic sync" : "sync by hand" }
}

extension SyncEngine: CustomStringConvertible {
  /// What is synced with what.
  public var description: String { "sync of \(store) with \(database.address)" }
}
