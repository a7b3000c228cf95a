// The exit codes: the table that `strandline help exit-codes` prints, and the only place that maps errors to codes. The
// values are those of sysexits(3).

import Strandline
import StrandlineLog
import StrandlineSystem

/// How a command ended.
package enum ExitCode: Int32, CaseIterable, Sendable {
  case done = 0
  case recoverable = 1
  case usage = 64
  case dataDamaged = 65
  case noSuchStore = 66
  case unreachable = 69
  case ourBug = 70
  case cannotCreate = 73
  case inputOutput = 74
  case tryLater = 75
  case notPermitted = 77

  /// The description in the table of exit codes.
  var meaning: String {
    switch self {
    case .done: "success; verify: the store is sound"
    case .recoverable:
      "verify: a torn tail, which the next open sets aside; repair: a plan was printed and nothing written; demo, "
        + "crash-test: a check failed"
    case .usage: "wrong usage: an unknown option or an invalid value"
    case .dataDamaged: "bad data: a damaged store, or input that cannot be stored"
    case .noSuchStore: "no such store, file or record"
    case .unreachable: "the server cannot be reached, or refuses the request permanently"
    case .ourBug: "an internal error of strandline; please report it"
    case .cannotCreate: "a file or directory cannot be created"
    case .inputOutput: "input/output error, including a full disk and a closed standard output"
    case .tryLater: "try again later: the server throttles requests, or another process has locked the store"
    case .notPermitted: "not permitted: a sign-in is needed, or the system denies access"
    }
  }
}

/// An error with its exit code and the two lines that are printed for it on standard error.
struct Failure: Error {
  var code: ExitCode
  /// What happened, and where.
  var message: String
  /// What the user can do about it, usually a command.
  var remedy: String?

  init(_ code: ExitCode, _ message: String, try remedy: String? = nil) {
    self.code = code
    self.message = message
    self.remedy = remedy
  }
}

extension Failure {
  /// Converts an error that a command threw. `path` is the store of the command.
  init(_ error: any Error, store path: String?) {
    switch error {
    case let failure as Failure: self = failure
    case let error as StrandlineError: self = Failure(error, store: path)
    case let error as LogError:
      self = Failure(StrandlineError(error, "reading '\(path ?? "the log")'"), store: path)
    case let error as SystemError: self = Failure(Self.code(of: error), "\(error)")
    case is CancellationError: self = Failure(.tryLater, "interrupted")
    default:
      self = Failure(.ourBug, "\(error)", try: "report this together with the command line")
    }
  }

  private init(_ error: StrandlineError, store path: String?) {
    // `write` wraps an error that its closure threw.
    if let inner = error.underlying as? Failure {
      self = inner
      return
    }
    var code = Self.code(of: error.code)
    var cause: (any Error)? = error.underlying
    // A denied access has the exit code 77 whatever the store was doing; the system's error is one of the causes.
    while let below = cause {
      if let system = below as? SystemError {
        if system.isForbidden { code = .notPermitted }
        // A missing store has a code of its own, so what is missing here is the directory in which to create it.
        if system.isAbsent, code == .inputOutput { code = .cannotCreate }
      }
      cause = (below as? StrandlineError)?.underlying
    }
    self.init(code, error.message, try: Self.remedy(for: error.code, store: path))
  }

  static func code(of error: SystemError) -> ExitCode {
    if error.isForbidden { return .notPermitted }
    if error.isAbsent { return .noSuchStore }
    return .inputOutput
  }

  private static func code(of code: StrandlineError.Code) -> ExitCode {
    switch code {
    case .noSuchStore, .notAStore, .noSuchRecord: .noSuchStore
    case .storeHeld, .throttled, .outdated: .tryLater
    case .damaged, .fromTheFuture, .recordWasDeleted, .recordExists, .invalidName, .invalidValue, .tooLarge,
      .typeMismatch:
      .dataDamaged
    case .diskFull, .io, .outcomeUnknown: .inputOutput
    case .accountMismatch, .needsSignIn: .notPermitted
    case .unreachable, .serverRefused, .zoneLost: .unreachable
    default: .ourBug
    }
  }

  private static func remedy(for code: StrandlineError.Code, store path: String?) -> String? {
    let store = path.map { ShellWord.quote($0) } ?? "STORE"
    switch code {
    case .noSuchStore: return "strandline import \(store) FILE   (a store is created by the first write)"
    case .notAStore: return "another path (of a server's journal, only log-dump and verify can read it)"
    case .storeHeld:
      return "the same command when the other process has ended; get, export, status and log-dump work meanwhile"
    case .damaged: return "strandline verify \(store)"
    case .diskFull: return "free space on the disk, then the same command; nothing that was acknowledged is lost"
    case .outcomeUnknown: return "strandline verify \(store), then the same command"
    case .needsSignIn: return "sign in again and pass the new token with --session-token-file or STRANDLINE_SESSION"
    case .recordWasDeleted: return "the same command with --recreate, to create a new record with this name"
    case .accountMismatch: return "strandline status \(store)   (shows the account that the store belongs to)"
    default: return nil
    }
  }
}

/// Quoting for a POSIX shell.
enum ShellWord {
  /// Quotes the word for a shell, if it needs quotes.
  static func quote(_ word: String) -> String {
    let plain = word.utf8.allSatisfy { byte in
      (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
        || "-_./:=@%+,~".utf8.contains(byte)
    }
    if plain, !word.isEmpty { return word }
    return "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
  }
}
