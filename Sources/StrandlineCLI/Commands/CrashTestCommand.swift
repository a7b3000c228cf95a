// `crash-test`: the proofs, for anybody to run. Simulated: histories of the log on a disk that loses power, complete
// for short ones. Real: processes killed at random moments over a real file system. A failure prints the one command
// that repeats it.

import Strandline
import StrandlineHost
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization

extension Command {
  static let crashTest = Command(
    "crash-test", "Crash on purpose, and check that nothing acknowledged is lost.", operands: [],
    details: [
      "Without --real: the log on a simulated disk that loses power at every call of a long run, in its recoveries and",
      "in theirs, and in every history of up to three operations; damage to every kind of file; then random histories",
      "until the time is over. It says what was complete. With --real: import, sync and serve as processes, killed at",
      "random moments over real records; at the end two devices and a fresh third one are equal byte for byte.",
    ],
    options: [
      Option("--seconds", "S", "How long; 60 if it is not said (with --real: at least, and until the kills are done)."),
      Option("--seed", "N", "Draws every choice; printed, and drawn itself if it is not said."),
      Option("--exhaustive", "Simulated: everything, with every bit of every file flipped, however long it takes."),
      Option("--ordered", "Simulated: syncs keep order and promise no more, as on Apple systems."),
      Option(
        "--history", "WORD",
        "Simulated: only this history, in a failure's letters, or 'random', 'legal' or 'live' for the seed's own."),
      Option("--level", "L", "Simulated: only one crash of the long run, of this level, at"),
      Option("--operation", "K", "this operation,"),
      Option("--call", "C", "this call of it,"),
      Option("--image", "I", "and what is left."),
      Option("--rot", "N", "Simulated: only the damage of this number."),
      Option(
        "--fleet", "LIVES",
        "Instead: so many lives of a fleet of devices and a server, with lost answers, stale pages and power cuts."),
      Option("--real", "Kill real processes."),
      Option("--kills", "K", "With --real: at least so many kills; 50 if it is not said."),
      Option("--records", "FILE", "With --real: JSON Lines to work on; without it, something that this machine has."),
    ],
    examples: [
      Example("Half a minute of power cuts", "strandline crash-test --seconds 30"),
      Example("Everything, some minutes long", "strandline crash-test --exhaustive --seed 1"),
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
  /// All suites to their end.
  var isExhaustive: Bool
  var strength: SyncStrength
  /// One crash of the long run, if it is what is asked for.
  var point: CrashPoint?
  /// One damage, if it is what is asked for.
  var rot: Int?

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
    isExhaustive = arguments.has("--exhaustive")
    strength = arguments.has("--ordered") ? .ordered : .durable
    rot = try arguments.number("--rot", in: 0...1_000_000_000)
    if let level: Int = try arguments.number("--level", in: 1...3) {
      point = CrashPoint(
        level: level, operation: try arguments.number("--operation", in: 0...1_000_000) ?? 0,
        call: try arguments.number("--call", in: 0...1_000_000) ?? 0,
        image: try arguments.number("--image", in: 0...1_000_000) ?? 0)
    } else if ["--operation", "--call", "--image"].contains(where: { arguments[$0] != nil }) {
      throw UsageError(message: "--operation, --call and --image need --level")
    }
    if isReal || lives != nil, isExhaustive || strength == .ordered || point != nil || rot != nil {
      throw UsageError(message: "--exhaustive, --ordered, --level and --rot are for the simulated disk")
    }
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

  init(_ options: CrashTestOptions, _ console: Console) {
    self.options = options
    self.console = console
  }

  func run() throws -> ExitCode {
    try console.print("seed \(options.seed)")
    try console.flush()
    do {
      if let history = options.history { return try replay(history) }
      if let point = options.point { return try replay(point) }
      if let rot = options.rot { return try replay(rot) }
      return try campaign()
    } catch let failure as LogHistoryFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    } catch let failure as CrashPointFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    } catch let failure as RotFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    }
  }

  private func campaign() throws -> ExitCode {
    let clock = console.environment.clock
    let start = clock.monotonicNanoseconds()
    let end = start + UInt64(options.seconds) * 1_000_000_000
    let shown = Mutex(Progress(console))
    var campaign = ProofCampaign(seed: options.seed, isOver: { clock.monotonicNanoseconds() >= end }) { images in
      shown.withLock { $0.update("\(Words.count(images)) disks") }
    }
    campaign.isExhaustive = options.isExhaustive
    campaign.strength = options.strength
    let outcome = Result { try campaign.run() }
    let nanoseconds = clock.monotonicNanoseconds() - start
    shown.withLock { $0.end() }
    let results = try outcome.get()
    for result in results where result.parts > 0 || result.tally.images > 0 { try console.print(Self.line(result)) }
    for line in results.flatMap(\.tally.rot.lines) { try console.print("  " + line) }
    let images = results.reduce(0) { $0 + $1.tally.images }
    let rate = nanoseconds > 0 ? UInt64(images) * 1_000_000_000 / nanoseconds : 0
    try console.print(
      "crash-test: nothing lost in \(Words.count(images)) disks, \(Words.count(rate)) a second, "
        + "seed \(options.seed); \(Words.seconds(nanoseconds: nanoseconds))")
    return .done
  }

  private static func line(_ result: ProofResult) -> String {
    let tally = result.tally
    let what =
      switch result.suite {
      case .legal: "no false alarm: \(tally.legalRuns) runs of legal histories, \(tally.legalSteps) steps"
      case .shortHistories: "every history of up to 2 operations: \(tally.histories)"
      case .crashPoints: "every call of a long run: \(tally.points)"
      case .liveSegments: "a killed writer's segment cut and zeroed behind every unit: \(tally.liveSegments)"
      case .bitRot: "damage at rest: \(Words.count(tally.rot.damages)) damages"
      case .histories: "every history of 3 operations: \(tally.histories)"
      case .drawn: "random histories: \(tally.histories)"
      }
    if result.suite == .drawn { return what }
    return what + (result.isComplete ? " (complete)" : " (\(result.partsDone) of \(result.parts) parts in the time)")
  }

  // MARK: One thing again

  private func replay(_ point: CrashPoint) throws -> ExitCode {
    var run = CrashPoints(seed: options.seed, strength: options.strength)
    do { try run.replay(point) } catch let problem as LogProblem {
      throw UsageError(message: problem.description)
    }
    try console.print("crash-test: nothing lost at \(point)")
    return .done
  }

  private func replay(_ rot: Int) throws -> ExitCode {
    var run = try BitRot(seed: options.seed)
    guard run.damages.indices.contains(rot) else {
      throw UsageError(message: "--rot is a number below \(run.damages.count) here")
    }
    try run.run([rot])
    try console.print("crash-test: nothing lost in \(run.report)")
    return .done
  }

  private func replay(_ word: String) throws -> ExitCode {
    let parts = word.split(separator: ":")
    if word == "legal" {
      var run = LegalHistories(seed: options.seed)
      try run.run()
      try console.print("crash-test: no false alarm in \(run.steps) steps")
      return .done
    }
    if word == "live" {
      var run = LiveSegmentLoss(seed: options.seed)
      try run.run()
      try console.print("crash-test: nothing lost in \(run.report)")
      return .done
    }
    var run = LogHistories(seed: options.seed, strength: options.strength)
    if word == "random" {
      try run.runRandom()
    } else if parts.count == 3, parts[0] == "random", let length = Int(parts[1]), let crashes = Int(parts[2]) {
      try run.runRandom(length: max(0, length), crashes: max(0, crashes))
    } else {
      let history = try word.map { letter throws(UsageError) -> LogOperation in
        guard let operation = LogOperation(rawValue: letter) else {
          throw UsageError(
            message:
              "--history is a word of the letters \(String(LogOperation.allCases.map(\.rawValue))), 'random', 'legal' or 'live'"
          )
        }
        return operation
      }
      try run.run(history)
    }
    try console.print("crash-test: nothing lost in \(run.report)")
    return .done
  }
}
