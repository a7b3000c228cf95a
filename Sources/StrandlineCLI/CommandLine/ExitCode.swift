// What a command's end says to the shell: one table, printed by `strandline help exit-codes`, and the one place
// where errors become numbers. The values are those of sysexits(3).

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

  /// One line of the table.
  var meaning: String {
    switch self {
    case .done: "done; for verify: nothing wrong"
    case .recoverable:
      "the check found something recoverable (verify: a torn tail; repair: a plan); demo, crash-test: not as promised"
    case .usage: "wrong usage: an unknown option, a bad value"
    case .dataDamaged: "bad data: a damaged store, or input that cannot be stored"
    case .noSuchStore: "no such store, file or record"
    case .unreachable: "the server cannot be reached, or refuses for good"
    case .ourBug: "a bug of ours, caught; please report it"
    case .cannotCreate: "a file or directory cannot be created"
    case .inputOutput: "input/output error; also a full disk and a closed standard output"
    case .tryLater: "try again later: throttled, or the store is held by another process"
    case .notPermitted: "not permitted: a sign-in is needed, or the system refuses access"
    }
  }
}

/// An error with everything that its two lines on standard error say.
struct Failure: Error {
  var code: ExitCode
  /// What happened, and where.
  var message: String
  /// The command that helps.
  var remedy: String?

  init(_ code: ExitCode, _ message: String, try remedy: String? = nil) {
    self.code = code
    self.message = message
    self.remedy = remedy
  }
}

extension Failure {
  /// Whatever a command threw. `path` is the store that it was about.
  init(_ error: any Error, store path: String?) {
    switch error {
    case let failure as Failure: self = failure
    case let error as StrandlineError: self = Failure(error, store: path)
    case let error as LogError:
      self = Failure(StrandlineError(error, "reading '\(path ?? "the log")'"), store: path)
    case let error as SystemError: self = Failure(Self.code(of: error), "\(error)")
    case is CancellationError: self = Failure(.tryLater, "interrupted")
    default:
      self = Failure(.ourBug, "\(error)", try: "report this, with the command line")
    }
  }

  private init(_ error: StrandlineError, store path: String?) {
    // What a closure of `write` threw comes back wrapped.
    if let inner = error.underlying as? Failure {
      self = inner
      return
    }
    var code = Self.code(of: error.code)
    var cause: (any Error)? = error.underlying
    // The system's word on what is not permitted lies below the log's.
    while let below = cause {
      if let system = below as? SystemError {
        if system.isForbidden { code = .notPermitted }
        // An absent store has its own code; what is absent here is the folder that it was to be made in.
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
    case .notAStore: return "another path (log-dump and verify read a server's journal too)"
    case .storeHeld: return "the same again when the other process is done; get, export, status and log-dump work now"
    case .damaged: return "strandline verify \(store)"
    case .diskFull: return "make room on the disk, then the same again; nothing that was acknowledged is lost"
    case .outcomeUnknown: return "strandline verify \(store), then the same again"
    case .needsSignIn: return "sign in anew and give the token with --session-token-file or STRANDLINE_SESSION"
    case .recordWasDeleted: return "the same with --recreate, if a new record of that name is meant"
    case .accountMismatch: return "strandline status \(store)   (it names the account that the store belongs to)"
    default: return nil
    }
  }
}

/// Words for a shell.
enum ShellWord {
  /// The word as a shell takes it back, quoted only where it must be.
  static func quote(_ word: String) -> String {
    let plain = word.utf8.allSatisfy { byte in
      (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
        || "-_./:=@%+,~".utf8.contains(byte)
    }
    if plain, !word.isEmpty { return word }
    return "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
  }
}
