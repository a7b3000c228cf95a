// One-line descriptions of the plan's values that an app sees, for a log or a debugger.

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
    var rules = ZoneLoss.allCases.filter { self[$0] != .ask }.map { "\($0): \(self[$0])" }
    if remadeFollowedMax > 0 { rules.append("emptied or remade, with at most \(remadeFollowedMax) records: followed") }
    return rules.isEmpty ? "asks about lost zones" : rules.joined(separator: ", ")
  }
}

extension UploadBatch: CustomStringConvertible {
  /// Both limits.
  public var description: String {
    let count =
      operations.map { "at most \(String.count(max(1, $0), "operation"))" } ?? "as many operations as the server takes"
    return "\(count), and at most \(bytesMax) bytes"
  }
}

extension SyncPace: CustomStringConvertible {
  /// Its times in seconds.
  public var description: String {
    func seconds(_ duration: Duration) -> Double { Double(duration.wholeMilliseconds) / 1000 }
    return
      "syncs \(seconds(debounce)) s after a write and every \(seconds(poll)) s, waits up to \(seconds(longestWait)) s"
  }
}
