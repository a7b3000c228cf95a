// What a page asks of a store it asks with the verbs of the command, word for word: an answer is what the verb prints, and
// beside it the command line that prints the same. So the page has no second meaning of anything, and teaches the command.

import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem
import Synchronization

/// A verb that a page may ask for, and with which words.
struct PageVerb: Sendable {
  var name: String
  /// Options besides `--json`.
  var options: Set<String> = []
  /// Options without which it may not be asked.
  var needs: Set<String> = []
  /// How many operands follow the store.
  var operands: ClosedRange<Int> = 0...0
  /// What the first of them must be one of; nil for anything.
  var forms: Set<String>?
  /// Whether the answer may have as many lines as the store has records, so that `--limit` says how many.
  var isLimited = false

  /// The verbs that read a store.
  static let reading: [PageVerb] = [
    PageVerb(name: "status", options: ["--limit"]), PageVerb(name: "types", options: ["--zone", "--fields"]),
    PageVerb(name: "zones"),
    PageVerb(name: "held", options: ["--zone", "--code", "--limit", "--after", "--count"], isLimited: true),
    PageVerb(name: "pending", options: ["--zone", "--limit", "--after", "--count"], isLimited: true),
    PageVerb(name: "index", operands: 1...1, forms: ["list"]),
    PageVerb(name: "get", options: ["--zone", "--stamps"], operands: 1...1),
    PageVerb(name: "why", options: ["--zone"], operands: 1...1),
    PageVerb(name: "history", options: ["--zone", "--from", "--limit"], operands: 1...1, isLimited: true),
    PageVerb(
      name: "query",
      options: ["--zone", "--where", "--sort", "--limit", "--after", "--explain", "--count"], operands: 1...1,
      isLimited: true),
    logDump, PageVerb(name: "verify"),
    PageVerb(name: "compact", options: ["--dry-run", "--history"], needs: ["--dry-run"]),
  ]

  /// The verbs that read a server's journal.
  static let readingJournal: [PageVerb] = [logDump]

  private static let logDump = PageVerb(
    name: "log-dump", options: ["--from", "--to", "--kind", "--record", "--zone", "--hex"])

  /// The verbs that change a store.
  static let changing: [PageVerb] = [
    PageVerb(name: "held", options: ["--zone"], operands: 1...1_000, forms: ["release", "discard", "retry"]),
    PageVerb(name: "zones", operands: 2...2, forms: ["resume", "resync-from-server", "resync-from-here"]),
  ]

  private static let linesMax = 1_000

  /// Checks the words after the verb and the store.
  fileprivate func check(_ arguments: Arguments) throws(UsageError) {
    let given = Set(arguments.values.keys).union(arguments.flags).subtracting(["--json"])
    if let option = given.subtracting(options).sorted().first {
      throw UsageError(message: "a page cannot ask \(name) with \(option)")
    }
    if let option = needs.subtracting(given).sorted().first {
      throw UsageError(message: "a page cannot ask \(name) without \(option)")
    }
    guard operands.contains(arguments.operands.count - 1), arguments.operands.count < 2 || isForm(arguments.operands[1])
    else { throw UsageError(message: "a page cannot ask \(name) with these words") }
    guard isLimited, !arguments.has("--explain"), !arguments.has("--count") else { return }
    guard try arguments.number("--limit", in: 1...Self.linesMax) != nil else {
      throw UsageError(message: "a page asks \(name) with --limit, from 1 to \(Self.linesMax)")
    }
  }

  private func isForm(_ word: String) -> Bool { forms?.contains(word) ?? true }
}

/// Runs verbs on one store or journal and takes what they print.
struct PageVerbs: Sendable {
  let path: String
  let environment: SystemEnvironment
  /// The store, so that no verb opens it again; nil of a journal.
  let reader: SharedReader?

  private let questions = Questions()

  init(path: String, environment: SystemEnvironment, reader: SharedReader?) {
    (self.path, self.environment, self.reader) = (path, environment, reader)
  }

  /// The most bytes that a verb may print.
  private static let outputBytesMax = 16 << 20

  /// The path as no option begins.
  var operand: String { path.hasPrefix("-") ? "./" + path : path }

  /// The answer of the verb that `query` names, with its words.
  ///
  /// A verb that has begun goes on to its end, also if the browser that asked is gone by then. The server stops only after it.
  ///
  /// - Parameter tell: takes a line on what came of it.
  func run(_ query: PageQuery, among verbs: [PageVerb], tell: (String) -> Void = { _ in }) -> HTTPResponse {
    let name = query["verb"] ?? ""
    let words = query.all("w")
    guard let verb = verbs.first(where: { $0.name == name }), let command = Command.named(name) else {
      return PageService.refusal(404, "a page cannot ask '\(printable(String(name.prefix(80))))' here")
    }
    do throws(UsageError) {
      // First the store: no word that a page sends takes its place.
      let json = command.options.contains { $0.name == Option.json.name } ? [Option.json.name] : []
      let arguments = try Arguments([operand] + json + words, for: command)
      try verb.check(arguments)
      guard questions.begin() else {
        return PageService.refusal(503, "too many questions are being answered; try again when one of them is done")
      }
      defer { questions.end() }
      return answer(command, arguments, words, tell)
    } catch { return PageService.refusal(400, error.message) }
  }

  private func answer(
    _ command: Command, _ arguments: Arguments, _ words: [String], _ tell: (String) -> Void
  ) -> HTTPResponse {
    let output = Capture(bytesMax: Self.outputBytesMax)
    let notes = Capture(bytesMax: 1 << 20)
    let console = Console(
      environment: environment, reader: reader, variables: { _ in nil }, output: { try output.take($0) },
      error: { try? notes.take($0) }, input: { _ in [] }, interrupts: { _ in })
    let ended = Handover<ExitCode>(ahead: 1)
    Task.detached { [path] in _ = ended.give(await Tool.run(command, arguments, store: path, console)) }
    let code = ended.take() ?? .ourBug
    let isText = arguments.has("--explain") || (arguments.has("--count") && command.name == Command.query.name)
    let lines = output.lines.map { isText ? JSONValue.string(String(decoding: $0, as: UTF8.self)) : .raw($0) }
    let line = (["strandline", command.name, ShellWord.quote(operand)] + words.map(ShellWord.quote)).joined(
      separator: " ")
    // The verb itself can only say that it could not print.
    let said =
      output.isCut
      ? ["error: the answer is larger than a page can show", "try: the same command in a terminal"]
      : notes.lines.map { String(decoding: $0, as: UTF8.self) }
    let failure = said.first { $0.hasPrefix("error: ") }
    tell(
      code == .done
        ? "note: the page has done: \(printable(line))"
        : "note: the page asked, and it was not done: \(printable(line)); \(failure ?? "exit code \(code.rawValue)")")
    return PageService.json(
      .object([
        "code": .integer(Int64(code.rawValue)), "command": .string(line), "isCut": .bool(output.isCut),
        "lines": .array(lines),
        "notes": .array(said.map { .string($0) }),
      ]))
  }
}

/// The questions under way. One that a browser has given up runs on, so there is a limit.
private final class Questions: Sendable {
  private let count = Mutex(0)
  private static let countMax = 32

  /// Whether one more may be answered.
  func begin() -> Bool {
    count.withLock { count in
      guard count < Self.countMax else { return false }
      count += 1
      return true
    }
  }

  func end() { count.withLock { $0 -= 1 } }
}

/// Collects what a verb prints, up to a limit; then whole lines.
private final class Capture: Sendable {
  private let state = Mutex((bytes: [UInt8](), isCut: false))
  private let bytesMax: Int

  init(bytesMax: Int) { self.bytesMax = bytesMax }

  func take(_ more: [UInt8]) throws {
    try state.withLock { state in
      state.isCut = state.isCut || state.bytes.count + more.count > bytesMax
      guard !state.isCut else { throw Failure(.inputOutput, "the answer is too large") }
      state.bytes += more
    }
  }

  var isCut: Bool { state.withLock { $0.isCut } }

  var lines: [[UInt8]] {
    state.withLock { state in
      // What was taken last may end within a line.
      let end = state.isCut ? state.bytes.lastIndex(of: UInt8(ascii: "\n")) ?? 0 : state.bytes.count
      return state.bytes[..<end].split(separator: UInt8(ascii: "\n")).map(Array.init)
    }
  }
}
