// What can be wrong with a run or with the list of runs: one error that names the file and the place.
//
// A run holds nothing that its owner cannot make again. So an error says what kind of failure it is, and the owner
// decides: bytes that are not what was written are discarded with everything that was made from the same source, while a
// failed system call is no statement about the file.

package import StrandlineSystem

/// A run, or a list of runs, that cannot be read or written.
package struct RunError: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Code: String, Hashable, Sendable {
    /// Bytes do not verify, or contradict each other.
    case damaged
    /// The bytes verify and are another file's: of another store, another number, or not the file that the list names.
    case foreign
    /// The bytes verify and have a form that this version does not know.
    case fromTheFuture
    /// The list names a run that is not there.
    case missing
    /// The system failed a call.
    case system
  }

  package var code: Code
  package var file: String
  /// The first byte of `file` that the error is about; nil if it is about the whole file.
  package var offset: UInt64?
  /// What does not hold.
  package var what: String
  /// The system call that failed.
  package var cause: SystemError?

  package init(_ code: Code, _ file: String, at offset: UInt64? = nil, _ what: String, cause: SystemError? = nil) {
    self.code = code
    self.file = file
    self.offset = offset
    self.what = what
    self.cause = cause
  }

  /// A failed system call.
  init(_ error: SystemError, file: String) {
    self.init(.system, file, error.description, cause: error)
  }

  package var description: String {
    let place = offset.map { " at byte \($0)" } ?? ""
    return switch code {
    case .damaged: "'\(file)' is damaged\(place): \(what)"
    case .foreign: "'\(file)' is another file than the one expected\(place): \(what)"
    case .fromTheFuture: "'\(file)' was written by a later version\(place): \(what)"
    case .missing: "'\(file)' is missing: \(what)"
    case .system: "cannot read or write '\(file)': \(what)"
    }
  }
}

/// A part of a block, index or footer that does not hold, at an offset of the file; the reader of the file adds its name.
struct RunFault: Error {
  var offset: UInt64
  var what: String

  func error(_ file: String) -> RunError { RunError(.damaged, file, at: offset, what) }
}

extension RunFault {
  /// Runs `body`, and names the file in what it throws.
  @inline(__always)
  static func naming<Result>(
    _ file: String, _ body: () throws(RunFault) -> Result
  ) throws(RunError) -> Result {
    do throws(RunFault) { return try body() } catch { throw error.error(file) }
  }
}
