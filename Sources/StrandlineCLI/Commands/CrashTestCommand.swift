// `crash-test`: the proofs, for anybody to run. Simulated: histories of the log on a disk that loses power, complete
// for short ones. Real: processes killed at random moments over a real file system. A failure prints the one command
// that repeats it.

import Strandline
import StrandlineSystem
import StrandlineTesting

extension Command {
  static let crashTest = Command(
    "crash-test", "Crash on purpose, and check that nothing acknowledged is lost.", operands: [],
    details: [
      "Without --real: the log on a simulated disk that loses power at every call; every history of up to three",
      "operations, then random ones until the time is over. With --real: import, sync and serve as processes, killed",
      "at random moments over real records; at the end two devices and a fresh third one are equal byte for byte.",
    ],
    options: [
      Option("--seconds", "S", "How long, at least; 60 if it is not said (with --real: until the kills are done)."),
      Option("--seed", "N", "Draws every choice; printed, and drawn itself if it is not said."),
      Option(
        "--history", "WORD", "Simulated: only this history, in a failure's letters, or 'random' for the seed's own."),
      Option(
        "--fleet", "LIVES",
        "Instead: so many lives of a fleet of devices and a server, with lost answers, stale pages and power cuts."),
      Option("--real", "Kill real processes."),
      Option("--kills", "K", "With --real: at least so many kills; 50 if it is not said."),
      Option("--records", "FILE", "With --real: JSON Lines to work on; without it, something that this machine has."),
    ],
    examples: [
      Example("Half a minute of power cuts", "strandline crash-test --seconds 30"),
      Example("A thousand lives of a fleet", "strandline crash-test --fleet 1000"),
      Example("Two hundred kills", "strandline crash-test --real --kills 200"),
    ],
    run: { arguments, console in
      let options = try CrashTestOptions(arguments, console)
      if let lives = options.lives { return try await runFleet(lives, options, console) }
      return try await onThread("crash-test") {
        try options.isReal ? runReal(options, console) : SimulatedCrashTest(options, console).run()
      }
    })

  /// Lives of a fleet, one seed after the other.
  private static func runFleet(_ lives: UInt64, _ options: CrashTestOptions, _ console: Console) async throws
    -> ExitCode
  {
    try console.print("seed \(options.seed)")
    try console.flush()
    var tally = FleetSimulation.Tally()
    for number in 0..<lives {
      let seed = options.seed &+ number
      do { tally.add(try await FleetSimulation.run(seed: seed)) } catch let failure as FleetSimulation.Failure {
        // An error has one line; the story of the life is told before it.
        for line in "\(failure)".split(separator: "\n") { console.say(printable(String(line))) }
        throw Failure(
          .ourBug, "the life of the fleet with seed \(seed) ended wrongly",
          try: "strandline crash-test --fleet 1 --seed \(seed)")
      }
    }
    let counts = [
      (tally.steps, "steps"), (tally.writes, "acknowledged writes"), (tally.crashes, "power cuts"),
      (tally.lostAnswers, "lost answers"), (tally.recognized, "recognized"), (tally.merged, "merged"),
      (tally.blocked, "blocked"), (tally.resets, "expired tokens"),
    ]
    try console.print(counts.map { "\(Words.count($0.0)) \($0.1)" }.joined(separator: ", "))
    try console.print("crash-test: \(Words.count(lives)) lives of a fleet ended in agreement")
    return .done
  }

  private static func runReal(_ options: CrashTestOptions, _ console: Console) throws -> ExitCode {
    let place = try Workplace(console, kept: nil)
    let outcome = Result { try KillLoop(place, options).run() }
    if case .failure(let error) = outcome {
      place.keep()
      console.say("what was left is in \(place.path)")
      console.say(
        "repeat it with: \(options.replay)   (the moments of kills are drawn alike; the machine's are its own)")
      try place.close()
      throw error
    }
    try place.close()
    return try outcome.get()
  }
}

/// How a crash test is asked for.
struct CrashTestOptions: Sendable {
  var seconds: Int64
  var seed: UInt64
  var history: String?
  var isReal: Bool
  var kills: Int
  var records: String?
  /// Lives of a fleet, if they are what is asked for.
  var lives: UInt64?

  private static let secondsDefault: Int64 = 60
  private static let killsDefault = 50
  private static let weekSeconds: Int64 = 7 * 86_400

  init(_ arguments: Arguments, _ console: Console) throws {
    isReal = arguments.has("--real")
    let given = try arguments.number("--seconds", in: 0...Self.weekSeconds)
    seconds = given ?? (isReal ? 0 : Self.secondsDefault)
    seed = try arguments["--seed"].map { text in try Self.seed(text) } ?? console.environment.random.next() >> 32
    history = arguments["--history"]
    kills = try arguments.number("--kills", in: 1...1_000_000) ?? Self.killsDefault
    records = arguments["--records"]
    lives = try arguments.number("--fleet", in: 1...1_000_000_000)
    if lives != nil, isReal || history != nil {
      throw UsageError(message: "--fleet goes with neither --real nor --history")
    }
    if isReal, history != nil { throw UsageError(message: "--history is for simulated histories, not for --real") }
    if !isReal, records != nil || arguments["--kills"] != nil {
      throw UsageError(message: "--kills and --records need --real")
    }
  }

  /// Decimal, or hexadecimal with 0x before it.
  private static func seed(_ text: String) throws(UsageError) -> UInt64 {
    let value = text.hasPrefix("0x") ? UInt64(text.dropFirst(2), radix: 16) : UInt64(text)
    guard let value else { throw UsageError(message: "--seed takes a number, decimal or 0x…, not '\(text)'") }
    return value
  }

  /// The command that does the same again.
  var replay: String {
    var words = ["strandline", "crash-test"]
    if isReal { words += ["--real", "--kills", String(kills)] }
    words += ["--seed", String(seed), "--seconds", String(seconds)]
    if let records { words += ["--records", ShellWord.quote(records)] }
    return words.joined(separator: " ")
  }
}

/// The campaign on the simulated disk.
struct SimulatedCrashTest {
  private let options: CrashTestOptions
  private let console: Console

  /// Histories of so many operations are tried completely.
  private static let completeLength = 3
  private static let randomLength = 24
  private static let randomCrashes = 6

  init(_ options: CrashTestOptions, _ console: Console) {
    self.options = options
    self.console = console
  }

  func run() throws -> ExitCode {
    try console.print("seed \(options.seed)")
    try console.flush()
    if let history = options.history { return try replay(history) }
    var progress = Progress(console)
    defer { progress.end() }
    let deadline = UInt64(options.seconds) * 1_000_000_000
    var total = LogHistoryReport()

    for length in 0...Self.completeLength {
      var run = LogHistories(seed: options.seed)
      let count = LogHistories.count(length: length)
      do {
        try run.runAll(length: length) { number in
          progress.update("histories of \(length): \(number) of \(count)")
          return true
        }
      } catch let failure as LogHistoryFailure { throw Failure(.recoverable, failure.description) }
      total += run.report
      progress.end()
      try console.print("every history of \(Words.plural(length, "operation")): \(run.report)")
      try console.flush()
    }
    var drawn = LogHistoryReport()
    var seed = options.seed
    while progress.nanoseconds < deadline {
      drawn += try random(seed)
      seed &+= 1
      progress.update("random histories: \(drawn.histories)")
    }
    progress.end()
    total += drawn
    if drawn.histories > 0 { try console.print("random histories of \(Self.randomLength) operations: \(drawn)") }
    try console.print("crash-test: nothing lost in \(total); \(Words.seconds(nanoseconds: progress.nanoseconds))")
    return .done
  }

  private func random(_ seed: UInt64) throws -> LogHistoryReport {
    var run = LogHistories(seed: seed)
    do {
      try run.runRandom(length: Self.randomLength, crashes: Self.randomCrashes)
    } catch let failure as LogHistoryFailure {
      throw Failure(
        .recoverable, failure.description, try: "strandline crash-test --seed \(seed) --history random")
    }
    return run.report
  }

  private func replay(_ word: String) throws -> ExitCode {
    let report: LogHistoryReport
    if word == "random" {
      report = try random(options.seed)
    } else {
      let history = try word.map { letter throws(UsageError) -> LogOperation in
        guard let operation = LogOperation(rawValue: letter) else {
          throw UsageError(
            message: "--history is a word of the letters \(String(LogOperation.allCases.map(\.rawValue))), or 'random'")
        }
        return operation
      }
      var run = LogHistories(seed: options.seed)
      do { try run.run(history) } catch let failure as LogHistoryFailure {
        throw Failure(.recoverable, failure.description)
      }
      report = run.report
    }
    try console.print("crash-test: nothing lost in \(report)")
    return .done
  }
}
