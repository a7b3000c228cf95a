// A LogError becomes a StrandlineError here and nowhere else, with its place on disk and its events.

package import StrandlineLog

extension StrandlineError {
  /// The public form of a log's error.
  package init(_ error: LogError, _ doing: String) {
    var message = "\(doing): \(error.message)"
    if error.code == .compacted {
      message += " after the store was opened; open it again to read what took its place"
    }
    if error.code == .consumerHolds {
      message +=
        ": release a view that is not needed any more, let a projection catch up or remove it, and compact again; "
        + "what is older was compacted"
    }
    let code = Self.code(of: error)
    if code == .temporarilyUnavailable { message += Self.lockedAdvice }
    self.init(
      code, message, file: error.file, offset: error.offset,
      lsns: error.lsns.map { LSN($0.lowerBound)...LSN($0.upperBound) }, underlying: error.underlying)
  }

  package static let lockedAdvice =
    "; nothing is damaged and nothing was changed: try again when the device is unlocked, or give the files a weaker "
    + "protection class"

  private static func code(of error: LogError) -> Code {
    switch error.code {
    case .io where error.isDeviceLocked, .rejected where error.isDeviceLocked: .temporarilyUnavailable
    case .absent: .noSuchStore
    case .notAStore, .notEmptyDirectory, .wrongRole: .notAStore
    case .held: .storeHeld
    case .damaged, .missingSegment, .foreignSegment, .noSuchLSN: .damaged
    case .compacted, .changing: .outdated
    case .fromTheFuture: .fromTheFuture
    case .replaced: .storeReplaced
    case .full: .diskFull
    case .io: .io
    case .rejected: error.isFull ? .diskFull : .io
    case .poisoned, .outcomeUnknown: .outcomeUnknown
    case .closed: .closed
    case .transactionTooLarge: .tooLarge
    case .consumerHolds: .eventsHeld
    // No call of the store asks for an event before it is durable.
    case .notDurable: .io
    }
  }
}
