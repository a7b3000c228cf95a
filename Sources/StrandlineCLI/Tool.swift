// The entry point of the command: runs a command line, reports an error in at most two lines, and returns the exit code.

import Dispatch
import Foundation
import StrandlineHost
import StrandlineSystem

@main
package struct Tool {
  /// Also the version of the log's format: every later version of the command reads what version 1 has written.
  private static let version = "1"

  /// Not async, because the runtime of an async `main` may open descriptors before its first line runs.
  package static func main() {
    StandardStreams.openClosed()
    Task.detached {
      let code = await run(given: CommandWords.given(), Console.real())
      exit(code.rawValue)
    }
    dispatchMain()
  }

  /// Runs one command line. A word that is not valid UTF-8 is nil and makes it fail.
  package static func run(given words: [String?], _ console: Console) async -> ExitCode {
    if let index = words.firstIndex(of: nil) {
      let failure = Failure(
        .usage, "argument \(index + 1) is not valid UTF-8, and no path with such a name can be opened",
        try: "the same command in that directory with the path . or with a path that is valid UTF-8")
      console.report(failure)
      return failure.code
    }
    return await run(words.compactMap(\.self), console)
  }

  /// Runs one command line.
  private static func run(_ words: [String], _ console: Console) async -> ExitCode {
    do {
      let code = try await dispatch(words, console)
      try console.flush()
      return code
    } catch {
      // The data that was printed before the failure is still written. If that fails too, both errors are reported,
      // and the exit code is that of the first.
      let unwritten = Result { try console.flush() }
      let failure = failure(error, words, console)
      if case .failure(let second) = unwritten, failure.code != .inputOutput {
        console.report(Failure(second, store: nil))
      }
      console.report(failure)
      return failure.code
    }
  }

  private static func dispatch(_ words: [String], _ console: Console) async throws -> ExitCode {
    guard let name = words.first, name != "--help", name != "-h" else {
      try show(Help.overview, console)
      return .done
    }
    if name == "--version" {
      try show(["strandline \(version)"], console)
      return .done
    }
    let rest = Array(words.dropFirst())
    if name == "help" { return try help(rest, console) }
    guard let command = Command.named(name) else {
      throw UsageError(
        message: (name.hasPrefix("-") ? "unknown option '\(name)'" : "unknown verb '\(name)'")
          + Suggestion.sentence(name, among: Command.all.map(\.name) + ["help"]))
    }
    let arguments = try Arguments(rest, for: command)
    if arguments.has(Option.help.name) {
      try show(Help.screen(command), console)
      return .done
    }
    return try await command.run(arguments, console)
  }

  private static func help(_ words: [String], _ console: Console) throws -> ExitCode {
    guard let topic = words.first else {
      try show(Help.overview, console)
      return .done
    }
    if topic == "exit-codes" {
      try show(Help.exitCodes, console)
    } else if let command = Command.named(topic) {
      try show(Help.screen(command), console)
    } else {
      throw UsageError(
        message: "no help on '\(topic)'"
          + Suggestion.sentence(topic, among: Command.all.map(\.name) + ["exit-codes"]))
    }
    return .done
  }

  private static func show(_ lines: [String], _ console: Console) throws {
    for line in lines { try console.print(line) }
  }

  /// Runs one verb and reports its failure, for a caller that is not a command line.
  static func run(_ command: Command, _ arguments: Arguments, store path: String, _ console: Console) async -> ExitCode
  {
    do {
      let code = try await command.run(arguments, console)
      try console.flush()
      return code
    } catch {
      // What was printed before the failure is part of the answer. The failure that is reported is the first one.
      try? console.flush()
      let failure =
        (error as? UsageError).map { Failure(.usage, $0.message) }
        ?? Failure(error, of: command, store: path, console.fileSystem)
      console.report(failure)
      return failure.code
    }
  }

  private static func failure(_ error: any Error, _ words: [String], _ console: Console) -> Failure {
    let verb = words.first.flatMap { Command.named($0) }
    if let usage = error as? UsageError {
      return Failure(.usage, usage.message, try: "strandline help" + (verb.map { " \($0.name)" } ?? ""))
    }
    // The store is the first operand of every verb that has one.
    let store = verb.flatMap { verb in (try? Arguments(Array(words.dropFirst()), for: verb))?.operands.first }
    return Failure(error, of: verb, store: store, console.fileSystem)
  }
}
