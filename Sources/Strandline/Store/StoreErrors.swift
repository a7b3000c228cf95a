// The border between private errors and the public one: a RunError, SystemError or decoding error becomes a StrandlineError
// here and nowhere else, with its place on disk and the line of the app that called; a LogError in StrandlineError+LogError.

import StrandlineLog
import StrandlineSystem

/// The line of an app that called a public function.
///
/// Public functions whose errors may name a mistake of the caller take `fileID` and `line` as two default arguments and not as one value: `#line` names the caller's
/// line only where it is itself the default argument.
package struct CallSite: Sendable {
  package let fileID: String
  package let line: Int

  /// For calls in which no mistake of the caller is named: their errors leave without a line.
  package static let unnamed = CallSite("", 0)

  package init(_ fileID: String, _ line: Int) {
    self.fileID = fileID
    self.line = line
  }

  /// Runs the body of a public call; what it throws leaves as a public error that names this line.
  ///
  /// - Parameter doing: what the caller asked for; begins the messages of translated errors.
  /// - Throws: `.misuse` inside a closure that only answers; what `body` throws.
  package func run<Value>(_ doing: @autoclosure () -> String, _ body: () throws -> Value) throws -> Value {
    if ProtectionQuestion.isAsked { throw located(Self.refusal(of: doing())) }
    do { return try body() } catch { throw located(StrandlineError.translating(error, doing())) }
  }

  /// The refusal of a call that would use files under the locks of the call for which the closure is asked.
  private static func refusal(of doing: String) -> StrandlineError {
    StrandlineError(
      .misuse,
      "\(doing): this was called inside 'isProtectedDataAvailable', which is asked in the middle of another call and only answers; "
        + "call it when that has returned")
  }

  /// The same for a body that waits.
  package func run<Value>(
    isolation: isolated (any Actor)? = #isolation, _ doing: @autoclosure () -> String, _ body: () async throws -> Value
  ) async throws -> Value {
    do { return try await body() } catch { throw located(StrandlineError.translating(error, doing())) }
  }

  /// The innermost public call has named its line already: that of the transaction inside a closure of `write`.
  private func located(_ error: any Error) -> any Error {
    guard !fileID.isEmpty, var error = error as? StrandlineError, error.location == nil else { return error }
    error.location = "\(fileID):\(line)"
    return error
  }
}

extension StrandlineError {
  /// The public form of an error of the log, a run, the file system or a decoder. Other errors stay what they are: public ones,
  /// cancellation, and those that an app's own closure throws.
  package static func translating(_ error: any Error, _ doing: String) -> any Error {
    switch error {
    case let error as LogError: StrandlineError(error, doing)
    case let error as SystemError:
      StrandlineError(
        code(of: error),
        "\(doing): \(error)\(error.isDeviceLocked ? lockedAdvice : "")", file: error.subject, underlying: error)
    case let error as RunError: StrandlineError(error, doing)
    case let error as ByteReaderError: StrandlineError(.damaged, "\(doing): \(error)")
    default: error
    }
  }

  /// The public form of an error of a run.
  ///
  /// - Parameter doing: begins the message, if it is there.
  package init(_ error: RunError, _ doing: String? = nil) {
    let code: Code =
      if let cause = error.cause {
        Self.code(of: cause)
      } else {
        .damaged
      }
    self.init(
      code, doing.map { "\($0): \(error)" } ?? "\(error)", file: error.file, offset: error.offset,
      underlying: error.cause)
  }

  private static func code(of error: SystemError) -> Code {
    if error.isDeviceLocked { return .temporarilyUnavailable }
    if error.isReplacement { return .storeReplaced }
    return error.isFull ? .diskFull : .io
  }
}
