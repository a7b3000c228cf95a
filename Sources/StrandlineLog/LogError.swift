// What can be wrong with a log: one error, whose code a caller may act on and whose message a person can.
//
// A message says what happened, where, and what to do about it; damage also names the causes that are
// not the medium's fault. Formats/log.md, "Recovery", says which state of the files leads to which code.

package import StrandlineSystem

/// A log that cannot do what it was asked.
package struct LogError: Error, Sendable, CustomStringConvertible {
  /// What kind of failure it is.
  package enum Code: String, Hashable, Sendable {
    /// Nothing stands at the path.
    case absent
    /// What stands at the path is no store (a file; a folder with a lock file alone).
    case notAStore
    /// The folder has files, none of which is a segment: a store is made only in a folder that is empty.
    case notEmptyDirectory
    /// Another writer has the store.
    case held
    /// Bytes that were acknowledged do not verify. Nothing on disk was changed.
    case damaged
    /// A segment that its successor names is not there.
    case missingSegment
    /// A segment is of another store, another history, or lies under another segment's name.
    case foreignSegment
    /// Written by a later version than this one can read (or, for a writer, can write beside).
    case fromTheFuture
    /// A log of the other role: a store's where a server's is asked for, or the reverse.
    case wrongRole
    /// The system failed a call.
    case io
    /// The disk (or quota) is full and the log could not be opened or closed for it.
    case full
    /// Nothing of the transaction is on disk, and the log is as it was before; `resume()` after the cause is gone.
    case rejected
    /// The log takes no more: an earlier write or sync failed. Open it again.
    case poisoned
    /// The write or sync of these LSNs failed: they may be there after the next open, or not.
    case outcomeUnknown
    /// The log was closed.
    case closed
    /// The transaction is above the limit; nothing was done.
    case transactionTooLarge
    /// The LSN was given, and is not durable yet.
    case notDurable
    /// No such LSN was given.
    case noSuchLSN
    /// The event was left out when its segment was compacted.
    case compacted
    /// The files change faster than they can be copied.
    case changing
    /// The store that was open does not lie at its path any more, or other bytes were put into its files.
    case replaced
    /// A registered consumer still needs what compaction would remove.
    case consumerHolds
  }

  package var code: Code
  /// A sentence: what, where, what to do.
  package var message: String
  /// The file it is about.
  package var file: String?
  /// The first byte in `file` that it is about.
  package var offset: UInt64?
  /// The LSNs that it is about.
  package var lsns: ClosedRange<UInt64>?
  /// The system call that failed.
  package var underlying: SystemError?
  /// Of damage: what does not verify, without place and advice.
  private(set) var fault: String?

  package init(
    _ code: Code, _ message: String, file: String? = nil, offset: UInt64? = nil,
    lsns: ClosedRange<UInt64>? = nil, underlying: SystemError? = nil
  ) {
    self.code = code
    self.message = message
    self.file = file
    self.offset = offset
    self.lsns = lsns
    self.underlying = underlying
  }

  /// Full disk somewhere below: the one failure that a person can end by deleting something.
  package var isFull: Bool { code == .full || underlying?.isFull == true }

  /// The system refused a file because the device is locked: the same call may succeed later.
  package var isDeviceLocked: Bool { underlying?.isDeviceLocked == true }

  package var description: String {
    guard let underlying, !message.contains(underlying.description) else { return message }
    return "\(message): \(underlying)"
  }
}

extension LogError {
  /// A system call that failed while `doing`.
  static func system(_ doing: String, _ error: SystemError, file: String? = nil) -> LogError {
    let code: Code = error.isFull ? .full : error.isReplacement ? .replaced : .io
    return LogError(code, "\(doing): \(error)", file: file ?? error.subject, underlying: error)
  }

  /// What every report of damage ends with: causes that are not a failing disk, and what to do.
  static let damageAdvice =
    "run 'strandline verify', which names every damaged place, then 'strandline repair', which shows what can be saved into "
    + "a new store; nothing was changed; often the cause is a copy that was made while a writer ran (copy a closed store, or a "
    + "snapshot of its file system), an incomplete backup, or a disk that loses what it had synced"

  /// Acknowledged bytes that do not verify.
  static func damaged(
    _ file: String, at range: Range<UInt64>, lsns: ClosedRange<UInt64>?, _ what: String
  ) -> LogError {
    let events = lsns.map { ", \(words(of: $0))" } ?? ""
    var error = LogError(
      .damaged,
      "'\(file)' is damaged at byte \(range.lowerBound) (up to \(range.upperBound)\(events)): \(what); \(damageAdvice)",
      file: file, offset: range.lowerBound, lsns: lsns)
    error.fault = what
    return error
  }

  /// The same about these events, unless it names some.
  func with(lsns: ClosedRange<UInt64>?) -> LogError {
    var result = self
    if result.lsns == nil { result.lsns = lsns }
    return result
  }

  private static func words(of lsns: ClosedRange<UInt64>) -> String {
    lsns.lowerBound == lsns.upperBound ? "LSN \(lsns.lowerBound)" : "LSNs \(lsns.lowerBound) to \(lsns.upperBound)"
  }

  /// What a list of findings says beside the place: of damage the fault and its events, else the whole message.
  var finding: String {
    guard let fault else { return message }
    // Of a transaction, any part of it.
    return lsns.map { "\(fault) (\($0.lowerBound == $0.upperBound ? "" : "in ")\(Self.words(of: $0)))" } ?? fault
  }

  static func absent(_ path: String) -> LogError {
    LogError(.absent, "there is no store at '\(path)'", file: path)
  }

  static func compacted(_ lsn: UInt64) -> LogError {
    LogError(
      .compacted, "LSN \(lsn) is not there any more: a compaction left it out, or it was lost before a repair",
      lsns: lsn...lsn)
  }

  /// A file of another store or history, or under another file's name.
  static func foreign(_ file: String, at offset: UInt64, _ what: String) -> LogError {
    LogError(.foreignSegment, "'\(file)': \(what); \(damageAdvice)", file: file, offset: offset)
  }

  /// The same, where a salvage meets it.
  var notSalvaged: LogError {
    var error = self
    error.message =
      "nothing was salvaged, because it is not known which files are this store's: \(message); move "
      + "'\(file ?? "the file")' away, and it counts as missing"
    return error
  }

  /// A listed file that is not there.
  static func missing(_ file: String, lsns: ClosedRange<UInt64>?, _ what: String) -> LogError {
    LogError(.missingSegment, "'\(file)' is missing\(what); \(damageAdvice)", file: file, lsns: lsns)
  }

  static func misnamedSegment(_ file: String) -> LogError {
    LogError(
      .foreignSegment,
      "'\(file)' is named like a segment and not as the log names them (16 small hex digits); nothing was changed; "
        + "move it away if it is not the store's", file: file)
  }

  /// A file that says where a segment ends, and says it otherwise than the segment or its successor.
  static func contradiction(
    _ file: String, _ segment: String, _ listed: SegmentEnd, _ end: SegmentEnd
  ) -> LogError {
    .damaged(
      file, at: 0..<1, lsns: nil,
      "it says that '\(segment)' ends at byte \(listed.offset) with LSN \(listed.lastLSN), and by the log itself it "
        + "ends at byte \(end.offset) with LSN \(end.lastLSN)\(listed.chain == end.chain ? "" : " of another history")")
  }

  /// A file that this version may read and not write beside.
  static func readOnly(_ file: String) -> LogError {
    .fromTheFuture(
      file, at: UInt64(LogFormat.Header.readOnlyCompatibleBits), "this version may read it, but not write to it")
  }

  static func fromTheFuture(_ file: String, at offset: UInt64, _ what: String) -> LogError {
    LogError(
      .fromTheFuture,
      "'\(file)' was written by a later version of Strandline: \(what); nothing was changed; use that version",
      file: file, offset: offset)
  }
}
