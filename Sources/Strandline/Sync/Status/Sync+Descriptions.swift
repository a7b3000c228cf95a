// One-line descriptions of the sync engine's values, for a log or a debugger.

import StrandlineSystem

extension SyncReport: CustomStringConvertible {
  /// The counts that are not 0.
  public var description: String {
    let counts: [(Int, String)] = [
      (fetchedSaves, "fetched"), (fetchedDeletes, "deleted"), (echoes, "known already"), (uploaded, "uploaded"),
      (recognized, "recognized"), (merged, "merged"), (blocked, "blocked"), (held, "held"),
    ]
    let done = counts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
    let waited = waitedMilliseconds > 0 ? ["waited \(waitedMilliseconds) ms"] : []
    let rest = isUnfinished ? ["unfinished"] : []
    return ([String.count(requests, "request")] + done + waited + lossesDecided.map { "\($0)" } + rest).joined(
      separator: ", ")
  }
}

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

extension SyncStatus.Waits: CustomStringConvertible {
  /// The number of waiting records.
  public var description: String { "\(total) waiting" }
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

extension ZoneLossDecision: CustomStringConvertible {
  /// The zone, the reason and the decision.
  public var description: String {
    let what = rule == .uploadAgain ? "uploaded again" : "removed here"
    return "zone \(zone) was lost (\(reason)) and is \(what), with \(String.count(unsent, "unsent change"))".oneLine
  }
}

extension ZoneLossRules: CustomStringConvertible {
  /// The rules that do not ask.
  public var description: String {
    let rules = ZoneLoss.allCases.filter { self[$0] != .ask }.map { "\($0): \(self[$0])" }
    return rules.isEmpty ? "asks about lost zones" : rules.joined(separator: ", ")
  }
}

extension UploadBatch: CustomStringConvertible {
  /// Both limits.
  public var description: String { "at most \(operationsMax) operations and \(bytesMax) bytes" }
}

extension OverQuotaWait: CustomStringConvertible {
  /// The first and the longest wait.
  public var description: String { "\(first) at first, \(longest) at most" }
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

extension SyncPace: CustomStringConvertible {
  /// Its times in seconds.
  public var description: String {
    func seconds(_ duration: Duration) -> Double { Double(duration.wholeMilliseconds) / 1000 }
    return
      "syncs \(seconds(debounce)) s after a write and every \(seconds(poll)) s, waits up to \(seconds(longestWait)) s"
  }
}

extension SyncEngine: CustomStringConvertible {
  /// The store and the database.
  public var description: String { "sync of \(store) with \(database.address)" }
}
