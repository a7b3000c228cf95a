// Everything a command may touch, in one value: streams, variables, disk, clock. Tests hand in their own and compare
// whole screens.
//
// Data goes to standard output, through a buffer that is empty whenever a command ends, follows or acknowledges;
// talk goes to standard error at once. A standard output that cannot be written ends the command (exit 74); a
// standard error that cannot be written has nobody left to tell.

import StrandlineHost
package import StrandlineSystem
import Synchronization

/// The surroundings of a command. Safe to use from every task and thread.
package final class Console: Sendable {
  let environment: SystemEnvironment
  let isErrorTerminal: Bool
  let mayColorErrors: Bool
  /// Seconds of a server's silence after which a request fails: a person waits at the terminal.
  let requestTimeout: Double
  private let variables: @Sendable (String) -> String?
  private let writeOutput: @Sendable ([UInt8]) throws -> Void
  private let writeError: @Sendable ([UInt8]) -> Void
  private let readInput: @Sendable (Int) throws -> [UInt8]
  private let interrupts: @Sendable (@escaping @Sendable () -> Void) throws -> Void
  private let buffer = Mutex<[UInt8]>([])

  private static let bufferBytesMax = 64 << 10

  package init(
    environment: SystemEnvironment, isErrorTerminal: Bool = false, mayColorErrors: Bool = false,
    requestTimeout: Double = 20, variables: @escaping @Sendable (String) -> String?,
    output: @escaping @Sendable ([UInt8]) throws -> Void, error: @escaping @Sendable ([UInt8]) -> Void,
    input: @escaping @Sendable (Int) throws -> [UInt8],
    interrupts: @escaping @Sendable (@escaping @Sendable () -> Void) throws -> Void
  ) {
    self.environment = environment
    self.isErrorTerminal = isErrorTerminal
    self.mayColorErrors = mayColorErrors
    self.requestTimeout = requestTimeout
    self.variables = variables
    self.writeOutput = output
    self.writeError = error
    self.readInput = input
    self.interrupts = interrupts
  }

  /// The process's own.
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
      input: { try StandardInput.read(max: $0) },
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

  /// Writes what is waiting, with one write(2).
  func flush() throws {
    let waiting = buffer.withLock { buffer in
      defer { buffer = [] }
      return buffer
    }
    if !waiting.isEmpty { try emit(waiting) }
  }

  private func emit(_ bytes: [UInt8]) throws {
    do { try writeOutput(bytes) } catch {
      throw Failure(.inputOutput, "cannot write to standard output: \(error)")
    }
  }

  // MARK: Standard error

  /// Says a line on standard error.
  func say(_ line: String) { writeError(Array((line + "\n").utf8)) }

  /// Writes to standard error as it is; for progress.
  func sayRaw(_ text: String) { writeError(Array(text.utf8)) }

  /// Reports an error in its two lines.
  func report(_ failure: Failure) {
    let word = mayColorErrors ? "\u{1B}[1;31merror:\u{1B}[0m" : "error:"
    say("\(word) \(printable(failure.message))")
    if let remedy = failure.remedy { say("try: \(printable(remedy))") }
  }

  // MARK: The rest

  /// Up to `max` bytes of standard input; empty at its end.
  func read(max: Int) throws -> [UInt8] {
    do { return try readInput(max) } catch {
      throw Failure(.inputOutput, "cannot read standard input: \(error)")
    }
  }

  /// A variable of the environment; nil if it is not set or empty.
  func variable(_ name: String) -> String? { variables(name).flatMap { $0.isEmpty ? nil : $0 } }

  /// Calls `body` at the first Ctrl-C or SIGTERM.
  func onInterrupt(_ body: @escaping @Sendable () -> Void) throws { try interrupts(body) }

  var fileSystem: any FileSystem { environment.fileSystem }
}

/// Text from elsewhere as a terminal may see it: control characters are written out.
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
