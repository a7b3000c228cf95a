// The status in words: one plain sentence for a user, and lines for a support mail without any of the user's data.

public import Foundation

extension SyncStatus {
  /// One plain sentence in English, with the time of day of this device's time zone: `Synced`, `Uploading 1,204 of 60,000`,
  /// `Paused until 14:02: the server asked for it`, `2 records need attention: over quota`. It names no record.
  public var sentence: String { sentence(in: .current) }

  /// The sentence, with the time of day in a time zone.
  public func sentence(in timeZone: TimeZone) -> String {
    switch phase {
    case .stopped: return "Stopped: the store is closed"
    case .paused: return "Paused: the store is suspended"
    case .uploading:
      guard let upload, upload.total > 0 else { return "Uploading" }
      return "Uploading \(Self.number(upload.done)) of \(Self.number(upload.total))"
    case .fetching:
      if let listing = download.listing {
        return "Fetching \(Self.number(listing.done)) of \(Self.pluralized(listing.total, "record"))"
      }
      if download.records > 0 { return "Fetching: \(Self.pluralized(download.records, "change"))" }
      // An empty poll is not shown.
      return lastFetchMilliseconds == nil ? "Looking for changes" : idleSentence(timeZone)
    case .waiting: return wait.map { words(for: $0, timeZone) } ?? "Waiting"
    case .needsPerson, .idle: return idleSentence(timeZone)
    }
  }

  private func words(for wait: Wait, _ timeZone: TimeZone) -> String {
    let time = Self.timeOfDay(wait.untilMilliseconds, timeZone)
    if wait.isServers { return "Paused until \(time): the server asked for it" }
    let isAway = wait.code == .networkError
    return "Waiting until \(time): \(isAway ? "the server cannot be reached" : Self.words(forCode: wait.code))"
  }

  /// The sentence while no request is under way and none waits.
  private func idleSentence(_ timeZone: TimeZone) -> String {
    switch failureCode {
    case .needsSignIn?: return "Sign in to go on syncing"
    case .accountMismatch?: return "Not synced: this data belongs to another account, or to another app container"
    case .fromTheFuture?: return "Update this app to go on syncing"
    default: break
    }
    if let lost = halts.first(where: { $0.type == nil }) {
      let count = halts.count { $0.type == nil }
      let why = lost.lostReason?.words ?? Self.words(forCode: lost.code)
      if let next = lost.nextTryMilliseconds {
        // A user knows no zones.
        if lost.code == .quotaExceeded, unsettled > 0 {
          return
            "The iCloud storage is full: \(Self.pluralized(unsettled, "change")) \(unsettled == 1 ? "waits" : "wait") until "
            + Self.timeOfDay(next, timeZone)
        }
        return "\(Self.pluralized(count, "zone")) not uploaded until \(Self.timeOfDay(next, timeZone)): \(why)"
      }
      return "\(count == 1 ? "A zone needs" : "\(Self.number(count)) zones need") attention: \(why)"
    }
    let attention = needsAttention
    if !attention.isEmpty {
      let count = attention.reduce(0) { $0 + $1.count }
      return
        "\(Self.pluralized(count, "record")) \(count == 1 ? "needs" : "need") attention: \(Self.causes(of: attention))"
    }
    if let halt = halts.first, let type = halt.type {
      return "The server refuses every '\(type.oneLine)': \(Self.words(forCode: halt.code))"
    }
    let timed = held.filter { $0.nextTryMilliseconds != nil }
    if let next = timed.compactMap(\.nextTryMilliseconds).min() {
      let count = timed.reduce(0) { $0 + $1.count }
      return "\(Self.pluralized(count, "record")) \(count == 1 ? "is" : "are") tried again from "
        + "\(Self.timeOfDay(next, timeZone)) on: \(Self.causes(of: timed))"
    }
    if failsInPart, waits.time > 0 {
      let words = waits.time == 1 ? "waits: the server wants it later" : "wait: the server wants them later"
      return "\(Self.pluralized(waits.time, "change")) \(words)"
    }
    if failsInPart, failureCode == .throttled, download.zonesLeft > 0 {
      return "\(Self.pluralized(download.zonesLeft, "zone")) not fetched to the end: \(Self.words(for: .throttled))"
    }
    if let failureCode { return "Not synced: \(Self.words(for: failureCode))" }
    if !leftOut.isEmpty {
      return "Changes of \(Self.pluralized(leftOut.count, "zone")) that this app does not sync stay on this device"
    }
    if unsettled > 0 { return "\(Self.pluralized(unsettled, "change")) to upload" }
    if let listing = download.listing {
      return "\(Self.pluralized(listing.total - listing.done, "record")) to fetch"
    }
    guard lastFetchMilliseconds == nil, lastUploadMilliseconds == nil else { return "Synced" }
    return account == nil ? "Not synced yet" : "Not synced since the start"
  }

  /// The held records that stay as they are until a person acts: those that are not tried again by themselves, and those over the
  /// quota. Records that wait for their parent are none of them.
  public var needsAttention: [HeldGroup] {
    held.filter {
      ($0.nextTryMilliseconds == nil && $0.code != .parentMissing)
        || $0.code == .quotaExceeded
    }
  }

  /// Why records are held, each cause once.
  private static func causes(of groups: [HeldGroup]) -> String {
    var causes: [String] = []
    for words in groups.map({ Self.words(forCode: $0.code) }) where !causes.contains(words) { causes.append(words) }
    return causes.joined(separator: ", ")
  }

  /// The words for a code.
  static func words(forCode code: CloudError.Code) -> String {
    switch code {
    case .quotaExceeded: "over quota"
    case .accessDenied: "not permitted"
    case .badRequest: "refused by the server"
    case .limitExceeded, .answerTooLarge: "too large"
    case .validatingReferenceError: "other records refer to it, or it refers to a missing one"
    case .notFound: "missing at the server"
    case .newerSchema: "a later version of the app wrote it"
    case .parentMissing: "shown when its parent record has arrived"
    case .conflict: "changed elsewhere again and again"
    case .damaged: "damaged on this device"
    case .zoneLost: "changes of a zone that is not synced stay on this device"
    default: "the server answered \(code)"
    }
  }

  /// The words for the error of a cycle.
  static func words(for failure: StrandlineError.Code) -> String {
    switch failure {
    case .zoneLost: words(forCode: .zoneLost)
    case .unreachable: "the server cannot be reached"
    case .throttled: "the server is busy"
    case .serverRefused: "the server refused it"
    case .diskFull: "no room on this device"
    case .io, .outcomeUnknown, .storeReplaced: "this device's storage failed"
    case .damaged: "damaged on this device"
    case .temporarilyUnavailable: "this device is locked"
    case .closed, .suspended: "the app has closed the store"
    default: "this app met an error (\(failure.rawValue.oneLine))"
    }
  }

  /// The engine's part of `RecordStore.diagnostics()`, without the user's data: codes, counts, ages and times; no names of records, zones or users, no
  /// values, and no text from a server.
  package func diagnostics() -> String {
    var lines: [(String, String)] = [
      ("phase", phase.rawValue), ("unsettled", "\(unsettled)"),
      ("oldestUnsettledMilliseconds", oldestUnsettledMilliseconds.map { "\($0)" } ?? "-"), ("inFlight", "\(inFlight)"),
      ("upload", upload.map { "\($0.done) of \($0.total)" } ?? "-"),
      ("download", "\(download.pages) pages, \(download.records) records, \(download.zonesLeft) zones left"),
      ("listing", download.listing.map { "\($0.done) of \($0.total)" } ?? "-"),
      ("lastUpload", ago(lastUploadMilliseconds)), ("lastFetch", ago(lastFetchMilliseconds)),
      (
        "waits",
        "target \(waits.target), fetch \(waits.fetch), lookup \(waits.lookup), content \(waits.content), time \(waits.time), "
          + "hold \(waits.hold), references \(waits.references), together \(waits.together)"
      ),
    ]
    for group in held {
      let next = group.nextTryMilliseconds.map { "next try in \($0 &- milliseconds) ms" } ?? "until a person acts"
      lines.append(
        ("held", "\(group.count) \(group.isDownload ? "downloads" : "changes"), \(group.code), \(next)"))
    }
    if let wait {
      let whose = wait.isServers ? "the server's" : "the engine's"
      lines.append(("wait", "\(wait.untilMilliseconds &- milliseconds) ms, \(whose), \(wait.code)"))
    }
    for halt in halts {
      let next = halt.nextTryMilliseconds.map { ", next try in \($0 &- milliseconds) ms" } ?? ""
      lines.append(("halt", "\(halt.type == nil ? "a zone" : "a type"), \(halt.code)\(next)"))
    }
    if !leftOut.isEmpty { lines.append(("leftOut", "\(leftOut.count)")) }
    for decision in lossesDecided {
      lines.append(
        (
          "lossDecided",
          "\(decision.rule), \(decision.reason), \(ago(decision.milliseconds)), \(decision.unsent) unsent"
        ))
    }
    if let retry { lines.append(("retry", "\(retry.count), \(retry.code.oneLine)")) }
    if let failureCode { lines.append(("failure", failureCode.rawValue)) }
    if let last = lastOperation {
      let result = last.failure?.oneLine ?? "answered"
      lines.append(
        ("lastOperation", "\(last.kind), \(ago(last.milliseconds)), \(last.durationMilliseconds) ms, \(result)"))
    }
    if let account { lines.append(("account", "\(account.container.oneLine) \(account.environment)")) }
    return lines.map { "\($0.0): \($0.1)\n" }.joined()
  }

  private func ago(_ moment: Int64?) -> String { moment.map { "\(milliseconds &- $0) ms ago" } ?? "-" }

  private static func pluralized(_ count: Int, _ thing: String) -> String {
    "\(number(count)) \(thing)\(count == 1 ? "" : "s")"
  }

  /// A number with thousands separators: "60,000".
  private static func number(_ number: Int) -> String {
    var text = String(number.magnitude)
    var place = text.count - 3
    while place > 0 {
      text.insert(",", at: text.index(text.startIndex, offsetBy: place))
      place -= 3
    }
    return number < 0 ? "-\(text)" : text
  }

  /// Hours and minutes: "14:02".
  private static func timeOfDay(_ milliseconds: Int64, _ timeZone: TimeZone) -> String {
    let seconds = milliseconds / 1000
    let local = seconds &+ Int64(timeZone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(seconds))))
    let minutes = ((local / 60) % 1440 + 1440) % 1440
    let (hour, minute) = (minutes / 60, minutes % 60)
    return "\(hour < 10 ? "0" : "")\(hour):\(minute < 10 ? "0" : "")\(minute)"
  }
}

extension RecordStore {
  /// The store and its engine for a support mail, line by line, without the user's data: codes, counts, ages, sizes and times; no names
  /// of records, zones or users, no values, and no text from a server. Works in a store without an engine too.
  ///
  /// - Throws: `StrandlineError`: `.io` and `.damaged` if the oldest pending change cannot be read; `.closed`.
  /// - Complexity: O(zones + held records), and one read of the log.
  public func diagnostics() throws -> String {
    let status = try status()
    let views = status.views.map { "\($0.milliseconds) ms, \($0.bytes) bytes" }
    let projections = status.projections.map { "\($0.name) \($0.lag) events behind" }
    let damage = status.damage.map { place in
      let file = place.file.split(separator: "/").last.map(String.init) ?? ""
      return "\(file) at byte \(place.offset)"
    }
    let inbox = status.inbox.map {
      "\($0.transactions) to take in, \($0.refusals.count) refused" + ($0.failure == nil ? "" : ", cannot be read")
    }
    var lines: [(String, String)] = [
      ("records", "\(status.records)"), ("deletedNames", "\(status.deleted)"), ("unsettled", "\(status.unsettled)"),
      ("held", "\(status.held.count)"), ("zones", "\(status.zones.count)"),
      ("lostZones", "\(status.zones.count(where: \.isLost))"), ("durableLSN", "\(status.durableLSN)"),
      ("checkpoint", "\(status.checkpoint)"), ("recordsToLookUp", "\(status.openBlocks)"),
      ("changesKept", "\(status.changesKept)"), ("changesUnindexed", "\(status.changesUnindexed)"),
      ("logBytes", "\(status.logBytes)"),
    ]
    lines.append(("views", views.joined(separator: "; ")))
    lines.append(("projections", projections.joined(separator: "; ")))
    lines.append(("damage", damage.joined(separator: "; ")))
    lines.append(("indexFailure", index?.lastError?.code.rawValue ?? "-"))
    lines.append(("compactionFailure", compaction?.failure?.code.rawValue ?? "-"))
    if let inbox { lines.append(("inbox", inbox)) }
    if let engine = syncEngine { lines.append(("engine", "\n" + engine.status.diagnostics())) }
    return lines.map { "\($0.0): \($0.1)\n" }.joined()
  }
}
