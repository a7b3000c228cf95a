// Everything outside the process that a command uses, in one value: standard streams, environment variables, file
// system, clock. Tests pass their own and compare whole screens.
//
// Data goes to standard output through a buffer, which is flushed before a command ends, waits for more events or
// acknowledges a batch. Messages go to standard error at once. If standard output cannot be written, the command ends
// with exit code 74. If standard error cannot be written, there is no stream left on which to report it.

import StrandlineHost
package import StrandlineSystem
import Synchronization

/// The streams, variables and system environment of a command. Safe to use from every task and thread.
package final class Console: Sendable {
  let environment: SystemEnvironment
  let isErrorTerminal: Bool
  let mayColorErrors: Bool
  /// The seconds without any byte from the server after which a request fails. Short, because a user waits for it.
  let requestTimeout: Double
  /// A store that is open already, for verbs that read it; nil if each opens what it reads.
  let reader: SharedReader?
  private let variables: @Sendable (String) -> String?
  private let writeOutput: @Sendable ([UInt8]) throws -> Void
  private let writeError: @Sendable ([UInt8]) -> Void
  private let readInput: @Sendable (Int) throws -> [UInt8]
  private let outputIsOpen: @Sendable () -> Bool
  private let interrupts: @Sendable (@escaping @Sendable () -> Void) throws -> Void
  private let buffer = Mutex<[UInt8]>([])

  private static let bufferBytesMax = 64 << 10

  package init(
    environment: SystemEnvironment, isErrorTerminal: Bool = false, mayColorErrors: Bool = false,
    requestTimeout: Double = 20, reader: SharedReader? = nil,
    variables: @escaping @Sendable (String) -> String?,
    output: @escaping @Sendable ([UInt8]) throws -> Void, error: @escaping @Sendable ([UInt8]) -> Void,
    input: @escaping @Sendable (Int) throws -> [UInt8], outputIsOpen: @escaping @Sendable () -> Bool = { true },
    interrupts: @escaping @Sendable (@escaping @Sendable () -> Void) throws -> Void
  ) {
    self.environment = environment
    self.isErrorTerminal = isErrorTerminal
    self.mayColorErrors = mayColorErrors
    self.requestTimeout = requestTimeout
    self.reader = reader
    self.variables = variables
    self.writeOutput = output
    self.writeError = error
    self.readInput = input
    self.outputIsOpen = outputIsOpen
    self.interrupts = interrupts
  }

  /// The console of this process.
  static func real() -> Console {
    StandardStreams.ignoreBrokenPipes()
    return Console(
      environment: .real, isErrorTerminal: Terminal.isTerminal(.error), mayColorErrors: Terminal.mayColor(.error),
      variables: { ProcessEnvironment.value(of: $0) },
      output: { try StandardStreams.write($0, to: .output) },
      error: { bytes in
        do { try StandardStreams.write(bytes, to: .error) } catch {
          // There is no other stream to report it on.
        }
      },
      input: { try StandardInput.read(max: $0) }, outputIsOpen: { StandardStreams.hasReader(.output) },
      interrupts: { try Signals.onInterrupt($0) })
  }

  // MARK: Standard output

  /// Prints a line of data.
  func print(_ line: String) throws { try write(Array((line + "\n").utf8)) }

  /// Writes bytes of data.
  func write(_ bytes: [UInt8]) throws {
    let full: [UInt8]? = buffer.withLock { buffer in
      buffer += bytes
      guard buffer.count >= Self.bufferBytesMax else { return nil }
      defer { buffer = [] }
      return buffer
    }
    if let full { try emit(full) }
  }

  /// Writes the buffered data with one call.
  func flush() throws {
    let buffered = buffer.withLock { buffer in
      defer { buffer = [] }
      return buffer
    }
    if !buffered.isEmpty { try emit(buffered) }
  }

  /// Whether standard output can still be read. A command that waits asks it, because only a write would tell otherwise.
  var isOutputOpen: Bool { outputIsOpen() }

  private func emit(_ bytes: [UInt8]) throws {
    do { try writeOutput(bytes) } catch {
      throw Failure(.inputOutput, "cannot write to standard output: \(error)")
    }
  }

  // MARK: Standard error

  /// Writes a line to standard error.
  func say(_ line: String) { writeError(Array((line + "\n").utf8)) }

  /// Writes text to standard error without a line end, for progress.
  func sayRaw(_ text: String) { writeError(Array(text.utf8)) }

  /// Reports an error: a line with what happened, and if there is one, a line with the remedy.
  func report(_ failure: Failure) {
    let word = mayColorErrors ? "\u{1B}[1;31merror:\u{1B}[0m" : "error:"
    say("\(word) \(printable(failure.message))")
    if let remedy = failure.remedy { say("try: \(printable(remedy))") }
  }

  // MARK: Input, variables, interrupts

  /// Waits for standard input and returns at most `max` bytes; an empty array at its end.
  func read(max: Int) throws -> [UInt8] {
    do { return try readInput(max) } catch {
      throw Failure(.inputOutput, "cannot read standard input: \(error)")
    }
  }

  /// The value of an environment variable; nil if it is not set or empty.
  func variable(_ name: String) -> String? { variables(name).flatMap { $0.isEmpty ? nil : $0 } }

  /// Calls `body` at the first Ctrl-C or SIGTERM.
  func onInterrupt(_ body: @escaping @Sendable () -> Void) throws { try interrupts(body) }

  var fileSystem: any FileSystem { environment.fileSystem }
}

/// Escapes control and format characters of text from a file or a server, so that it cannot control the terminal.
func printable(_ text: String) -> String {
  if text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F && $0 < 0x80 }) { return text }
  var result = ""
  for scalar in text.unicodeScalars {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned:
      result += "\\u{\(String(scalar.value, radix: 16))}"
    default: result.unicodeScalars.append(scalar)
    }
  }
  return result
}
