// The border between the log's errors and the public one: every LogError becomes a StrandlineError here.

import StrandlineLog
import StrandlineSystem

extension StrandlineError {
  /// The public form of whatever the floors below threw.
  package static func translating(_ error: any Error, _ doing: String) -> any Error {
    switch error {
    case is StrandlineError, is CancellationError: error
    case let error as LogError where error.code == .compacted:
      StrandlineError(
        .outdated,
        "\(doing): \(error.message) after the store was opened; open it again to read what took its place")
    case let error as LogError:
      StrandlineError(code(of: error), "\(doing): \(error.message)", underlying: error.underlying)
    case let error as SystemError: StrandlineError(error.isFull ? .diskFull : .io, "\(doing): \(error)")
    case let error as ByteReaderError: StrandlineError(.damaged, "\(doing): \(error)")
    // An app's own error, thrown by its closure, stays what it is.
    default: error
    }
  }

  private static func code(of error: LogError) -> Code {
    switch error.code {
    case .absent: .noSuchStore
    case .notAStore, .notEmptyDirectory, .wrongRole: .notAStore
    case .held: .storeHeld
    case .damaged, .missingSegment, .foreignSegment, .noSuchLSN: .damaged
    case .compacted: .outdated
    case .fromTheFuture: .fromTheFuture
    case .full: .diskFull
    case .io: .io
    case .rejected: error.isFull ? .diskFull : .io
    case .poisoned, .outcomeUnknown: .outcomeUnknown
    case .closed: .closed
    case .transactionTooLarge: .tooLarge
    case .notDurable, .consumerHolds: .io
    }
  }
}
