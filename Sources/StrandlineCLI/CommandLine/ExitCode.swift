// The exit codes: the table that `strandline help exit-codes` prints, and the only place that maps errors to codes. The
// values are those of sysexits(3).

import Strandline
import StrandlineHost
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
      "verify: a torn tail, which the next open sets aside; repair: a plan was printed and nothing written; sync: "
        + "records are held, or a zone is lost; verify --against: something differs; demo, crash-test, simulate: a check failed"
    case .usage: "wrong usage: an unknown option or an invalid value"
    case .dataDamaged: "bad data: a damaged store, one of a later version, or input that cannot be stored"
    case .noSuchStore: "no such store, file or record"
    case .unreachable:
      "the server cannot be reached, or refuses all of a request, type or zone; a lost zone has unsent changes"
    case .ourBug: "an internal error of strandline; please report it"
    case .cannotCreate: "a file or directory cannot be created"
    case .inputOutput: "input/output error, including a full disk and a closed standard output"
    case .tryLater: "try again later: the server throttles requests, or another process has locked the store"
    case .notPermitted:
      "not permitted: a sign-in is needed, the store is another account's, or the system denies access"
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
    var message = error.message
    var cause: (any Error)? = error.underlying
    // A denied access has the exit code 77 whatever the store was doing; the system's error is one of the causes.
    while let below = cause {
      if let system = below as? SystemError {
        if system.isForbidden, !system.isDeviceLocked { code = .notPermitted }
        // Not each layer quotes the system's error in its message.
        if !message.contains(SystemError.words(for: system.errno)) { message += ": \(system)" }
      }
      cause = (below as? StrandlineError)?.underlying
    }
    self.init(code, message, try: Self.remedy(for: error.code, store: path))
  }

  /// Converts an error that `verb` threw. The remedy for a path that is no store, or is locked, depends on the verb and
  /// on what is there.
  init(_ error: any Error, of verb: Command?, store path: String?, _ fileSystem: any FileSystem) {
    self.init(error, store: path)
    guard let verb, let path else { return }
    switch (error as? StrandlineError)?.code ?? (error as? LogError).map({ StrandlineError($0, "").code }) {
    case .storeHeld? where verb.name == Command.serve.name:
      remedy =
        "another directory, or the same command when the other server has ended; log-dump and verify work meanwhile"
    case .notAStore?: describe(notAStore: path, verb, fileSystem)
    default: break
    }
  }

  private mutating func describe(notAStore path: String, _ verb: Command, _ fileSystem: any FileSystem) {
    let makes = ["import", "put", "sync", "serve"].contains(verb.name)
    // If the system cannot say what is there, the message of the layer below stays.
    guard let kind = try? fileSystem.kind(of: path) else { return }
    guard kind == .directory else {
      message = "'\(path)' is not a directory, and a store is one"
      remedy =
        makes
        ? "the path of a directory, which need not exist"
        : "the path of a store; to make one of a file of JSON Lines: strandline import STORE \(ShellWord.quote(path))"
      return
    }
    guard let names = try? fileSystem.list(path) else { return }
    if names.contains(where: { $0.hasSuffix(LogFormat.segmentSuffix) }) {
      // A log, but of the other role.
      remedy =
        verb.name == Command.serve.name
        ? "another directory; a server's journal and a device's store cannot be in the same one"
        : "another path; log-dump and verify can read a server's journal, and only serve writes it"
    } else if makes {
      remedy = "the path of a new or empty directory"
    } else if !names.contains(LogFormat.manifestName), names != [LogFormat.lockName] {
      message = "'\(path)' is not a store: it holds no segment (a file named by 16 hex digits and .seg)"
      remedy = "the path of a store: a directory that import, put, sync or an app has made"
    }
  }

  static func code(of error: SystemError) -> ExitCode {
    if error.isForbidden { return .notPermitted }
    if error.isAbsent { return .noSuchStore }
    return .inputOutput
  }

  private static func code(of code: StrandlineError.Code) -> ExitCode {
    switch code {
    case .noSuchStore, .notAStore, .noSuchRecord, .noSuchZone, .positionExpired: .noSuchStore
    case .storeHeld, .throttled, .outdated, .temporarilyUnavailable, .eventsHeld: .tryLater
    case .damaged, .fromTheFuture, .recordWasDeleted, .recordExists, .invalidName, .invalidValue, .tooLarge,
      .typeMismatch, .foreignZone, .foreignScope, .noSuchContent:
      .dataDamaged
    case .diskFull, .io, .outcomeUnknown, .storeReplaced: .inputOutput
    case .accountMismatch, .needsSignIn: .notPermitted
    case .unreachable, .serverRefused, .zoneLost, .notUploaded: .unreachable
    default: .ourBug
    }
  }

  private static func remedy(for code: StrandlineError.Code, store path: String?) -> String? {
    let store = path.map { ShellWord.quote($0) } ?? "STORE"
    switch code {
    case .noSuchStore: return "strandline import \(store) FILE   (a store is created by the first write)"
    case .storeHeld:
      return "the same command when the other process has ended; get, export, status and log-dump work meanwhile"
    case .damaged: return "strandline verify \(store)"
    case .storeReplaced: return "the same command, if what is at \(store) now is the store that is meant"
    case .diskFull: return "free space on the disk, then the same command; nothing that was acknowledged is lost"
    case .outcomeUnknown: return "strandline verify \(store), then the same command"
    case .needsSignIn: return "sign in again and pass the new token with --session-token-file or STRANDLINE_SESSION"
    case .noSuchZone, .zoneLost: return "strandline zones \(store)   (lists its zones, and says how each one is)"
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
