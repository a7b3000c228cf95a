// `crash-test`: runs the proofs. Simulated: histories of the log on a disk that loses power, all of them up to a short
// length. Real: processes that are killed at random moments on a real file system. A failure prints the command that
// repeats it.

import Strandline
import StrandlineHost
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization

extension Command {
  static let crashTest = Command(
    "crash-test", "Cut the power or kill processes; check that nothing acknowledged is lost.", operands: [],
    details: [
      "Without --real, the log runs on a simulated disk. Its power is cut at every call of a long run, at every call of",
      "the recoveries and of their recoveries, and in every history of up to three operations; every kind of file is",
      "damaged; then random histories run until the time is over. The output says which parts are complete.",
      "With --real, import, sync and serve run as processes on real records and are killed at random moments; at the",
      "end two devices and a new third one must be equal byte for byte.",
    ],
    options: [
      Option("--seconds", "S", "How long to run. Default: 60; with --real 0, and always until the kills are done."),
      Option("--seed", "N", "The seed of all random choices. Default: a random one. It is printed."),
      Option("--exhaustive", "Simulated: all cases, including each bit of each file flipped, however long it takes."),
      Option("--ordered", "Simulated: syncs only order writes, as F_BARRIERFSYNC does on Apple systems."),
      Option(
        "--history", "WORD",
        "Simulated: only this history: the letters that a failure printed, or 'random', 'legal' or 'live' of this seed."
      ),
      Option(
        "--level", "L",
        "Simulated: only one crash of the long run of this seed. 1: in the run, 2: in a recovery, 3: in the recovery from that."
      ),
      Option("--operation", "K", "With --level: the number of the operation."),
      Option("--call", "C", "With --level: the number of the disk call in that operation."),
      Option("--image", "I", "With --level: the number of the disk that the crash left. Default: 0."),
      Option("--rot", "N", "Simulated: only the damage with this number."),
      Option(
        "--folder", "CASE",
        "Simulated: only this case of a folder that is moved, removed or replaced while it is written, as a failure printed it."
      ),
      Option(
        "--store", "HISTORIES",
        "Run only this many random histories of a store on a simulated disk, against a model: writes, fetched pages,"
          + " queries, declared indexes, views, observers, flushes and merges of its index, compactions, failing calls and"
          + " reads, power cuts, a reader in another process."),
      Option("--steps", "LIST", "With --store and --seed: only these steps of one history, as a failure printed them."),
      Option("--real", "Kill real processes."),
      Option("--kills", "K", "With --real: the least number of kills. Default: 50."),
      Option(
        "--records", "FILE",
        "With --real: records in JSON Lines. Default: packages, services or time zones of this machine."),
    ],
    examples: [
      Example("Half a minute of power cuts", "strandline crash-test --seconds 30"),
      Example("All cases, in some minutes", "strandline crash-test --exhaustive --seed 1"),
      Example("Ten thousand histories of a store", "strandline crash-test --store 10000"),
      Example("Two hundred kills", "strandline crash-test --real --kills 200"),
    ],
    run: { arguments, console in
      let options = try CrashTestOptions(arguments, console)
      if let histories = options.histories { return try await runStore(histories, options, console) }
      return try await onThread("crash-test") {
        try options.isReal ? runReal(options, console) : SimulatedCrashTest(options, console).run()
      }
    })

  /// Runs random histories of a store, each with the next seed, two at a time.
  private static func runStore(_ histories: UInt64, _ options: CrashTestOptions, _ console: Console) async throws
    -> ExitCode
  {
    try console.print("seed \(options.seed)")
    try console.flush()
    let start = console.environment.clock.monotonicNanoseconds()
    let campaign = StoreCampaign(histories, options, console)
    async let other = campaign.runSome()
    var (tally, failure) = try await campaign.runSome()
    let (othersTally, othersFailure) = try await other
    campaign.progress.withLock { $0.end() }
    tally.add(othersTally)
    if let others = othersFailure, failure.map({ others.number < $0.number }) ?? true { failure = others }
    if let failure = failure?.failure {
      // An error message has one line, so the steps of the history are printed before it.
      for line in "\(failure)".split(separator: "\n") { console.say(printable(String(line))) }
      throw Failure(
        .ourBug, "the history of a store with seed \(failure.seed) failed",
        try: "strandline crash-test --store 1 --seed \(failure.seed) --steps "
          + failure.steps.map { "\($0)" }.joined(separator: ","))
    }
    let counts = [
      (tally.steps, "steps"), (tally.writes, "writes"), (tally.powerCuts, "power cuts"), (tally.failures, "failures"),
      (tally.compactions, "compactions"), (tally.damages, "damages"), (tally.settled, "settled"),
      (tally.pages, "pages"), (tally.viewReads, "reads of views"), (tally.comparisons, "comparisons with the log"),
      (tally.fetched, "fetched"), (tally.indexChanges, "changes of indexes"),
      (tally.writesBesideBuilds, "writes beside a build"), (tally.indexedPages, "pages by an index"),
      (tally.cascaded, "records deleted with the one above them"),
      (tally.observed, "observed changes"), (tally.failedReads, "failed reads"), (tally.refreshes, "refreshes"),
      (tally.mistakesRefused, "mistakes of compactions refused"),
      (tally.rowsNotJudged, "compactions that the rules could not judge"),
      (tally.runsMax, "runs at most"),
    ]
    try console.print(counts.map { "\(Words.count($0.0)) \($0.1)" }.joined(separator: ", "))
    try console.print(
      "crash-test: in \(Words.plural(histories, "history", "histories")) the store said what it was told; "
        + Words.seconds(nanoseconds: console.environment.clock.monotonicNanoseconds() &- start))
    return .done
  }

  private static func runReal(_ options: CrashTestOptions, _ console: Console) throws -> ExitCode {
    // Read first, so that a mistyped path or a bad line leaves no directory behind.
    let given = try options.records.map { try GivenRecords($0, console) }
    if let given, given.records.isEmpty {
      throw Failure(
        .dataDamaged, "'\(options.records ?? "")' holds no records", try: "a file with records after --records")
    }
    let work = try WorkDirectory(console, kept: nil)
    let loop = KillLoop(work, options, given)
    let outcome = Result { try loop.run() }
    if case .failure(let error) = outcome, loop.isUnderTest {
      work.keep()
      console.say("the stores and the server's journal are left in \(work.path)")
      console.say(
        "repeat it with: \(options.replay)   (the random choices repeat; the timing of the processes does not)")
      try work.close()
      throw error
    }
    try work.close()
    return try outcome.get()
  }
}

/// Random histories of a store, whose seeds are shared out to several tasks.
private final class StoreCampaign: Sendable {
  private let histories: UInt64
  private let options: CrashTestOptions
  /// How many were begun.
  private let begun = Atomic<UInt64>(0)
  private let hasFailed = Atomic(false)
  let progress: Mutex<Progress>

  init(_ histories: UInt64, _ options: CrashTestOptions, _ console: Console) {
    self.histories = histories
    self.options = options
    progress = Mutex(Progress(console))
  }

  /// Runs the next history until all were begun or one has failed.
  ///
  /// They are begun in the order of their seeds, and what was begun is run to its end. So the first that fails is among the
  /// failures of all tasks, however fast each is.
  func runSome() async throws -> (tally: StoreHistory.Tally, failure: (number: UInt64, failure: StoreHistory.Failure)?)
  {
    var tally = StoreHistory.Tally()
    while !hasFailed.load(ordering: .acquiring) {
      let number = begun.wrappingAdd(1, ordering: .relaxed).oldValue
      guard number < histories else { break }
      do {
        tally.add(try await StoreHistory.run(seed: options.seed &+ number, only: options.steps))
      } catch let failure as StoreHistory.Failure {
        hasFailed.store(true, ordering: .releasing)
        return (tally, (number, failure))
      }
      if number % 64 == 63 { progress.withLock { $0.update(Words.plural(number + 1, "history", "histories")) } }
    }
    return (tally, nil)
  }
}

/// The options of a crash test.
struct CrashTestOptions: Sendable {
  var seconds: Int64
  var seed: UInt64
  var history: String?
  var isReal: Bool
  var kills: Int
  var records: String?
  /// The number of simulations of devices and a server, if only these are to run.
  var lives: UInt64?
  /// The number of histories of a store, if only these are to run.
  var histories: UInt64?
  /// The steps of a history, if only these are to run.
  var steps: [Int]?
  /// Whether all suites run to their end.
  var isExhaustive: Bool
  var strength: SyncStrength
  /// The crash of the long run to repeat, if only this one is to run.
  var point: CrashPoint?
  /// The number of the damage to repeat, if only this one is to run.
  var rot: Int?
  /// The case of a replaced folder to repeat, if only this one is to run.
  var folder: FolderCase?

  private static let secondsDefault: Int64 = 60
  private static let killsDefault = 50
  private static let weekSeconds: Int64 = 7 * 86_400

  init(_ arguments: Arguments, _ console: Console) throws {
    isReal = arguments.has("--real")
    let given = try arguments.number("--seconds", in: (isReal ? 0 : 1)...Self.weekSeconds)
    seconds = given ?? (isReal ? 0 : Self.secondsDefault)
    seed = try arguments["--seed"].map { text in try Self.seed(text) } ?? console.environment.random.next() >> 32
    history = arguments["--history"]
    kills = try arguments.number("--kills", in: 1...1_000_000) ?? Self.killsDefault
    records = arguments["--records"]
    histories = try arguments.number("--store", in: 1...1_000_000_000)
    steps = try arguments["--steps"].map { text in try Self.steps(text) }
    if steps != nil, histories != 1 || arguments["--seed"] == nil {
      throw UsageError(message: "--steps needs --store 1 and --seed")
    }
    isExhaustive = arguments.has("--exhaustive")
    strength = arguments.has("--ordered") ? .ordered : .durable
    rot = try arguments.number("--rot", in: 0...1_000_000_000)
    folder = try arguments["--folder"].map { text throws(UsageError) in
      guard let one = FolderCase(text) else {
        throw UsageError(
          message: "--folder takes a case as a failure prints it, such as log/append/moved/3/due, not '\(text)'")
      }
      return one
    }
    if let level: Int = try arguments.number("--level", in: 1...3) {
      // The numbers mean a crash only together with the run that they were counted in.
      guard arguments["--seed"] != nil, let operation: Int = try arguments.number("--operation", in: 0...1_000_000),
        let call: Int = try arguments.number("--call", in: 0...1_000_000)
      else {
        throw UsageError(
          message: "--level needs --seed, --operation and --call, as a failure of crash-test prints them")
      }
      point = CrashPoint(
        level: level, operation: operation, call: call,
        image: try arguments.number("--image", in: 0...1_000_000) ?? 0)
    } else if ["--operation", "--call", "--image"].contains(where: { arguments[$0] != nil }) {
      throw UsageError(message: "--operation, --call and --image need --level")
    }
    if isReal || histories != nil, isExhaustive || strength == .ordered || point != nil || rot != nil || folder != nil {
      throw UsageError(
        message: "--exhaustive, --ordered, --level, --rot and --folder can be used with the simulated disk only")
    }
    if histories != nil, isReal || history != nil {
      throw UsageError(message: "--store cannot be used with --real or --history")
    }
    if isReal, history != nil { throw UsageError(message: "--history cannot be used with --real") }
    if !isReal, records != nil || arguments["--kills"] != nil {
      throw UsageError(message: "--kills and --records need --real")
    }
  }

  /// Parses a list of steps.
  static func steps(_ text: String) throws(UsageError) -> [Int] {
    var steps: [Int] = []
    for word in text.split(separator: ",") {
      guard let step = Int(word), step >= 0 else {
        throw UsageError(message: "--steps takes numbers with commas between them, not '\(text)'")
      }
      steps.append(step)
    }
    return steps
  }

  /// Parses a seed: decimal, or hexadecimal after "0x".
  static func seed(_ text: String) throws(UsageError) -> UInt64 {
    let value = text.hasPrefix("0x") ? UInt64(text.dropFirst(2), radix: 16) : UInt64(text)
    guard let value else { throw UsageError(message: "--seed takes a number, decimal or 0x…, not '\(text)'") }
    return value
  }

  /// The command that repeats this run.
  var replay: String {
    var words = ["strandline", "crash-test"]
    if isReal { words += ["--real", "--kills", String(kills)] }
    words += ["--seed", String(seed), "--seconds", String(seconds)]
    if let records { words += ["--records", ShellWord.quote(records)] }
    return words.joined(separator: " ")
  }
}

/// The proofs on the simulated disk.
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
      if let folder = options.folder { return try replay(folder) }
      return try campaign()
    } catch let failure as LogHistoryFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    } catch let failure as CrashPointFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    } catch let failure as RotFailure {
      throw Failure(.recoverable, failure.description, try: failure.command)
    } catch let failure as FolderFailure {
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
    guard images > 0 else {
      throw Failure(
        .recoverable, "crash-test: the time was over before a disk was checked, so nothing is proven",
        try: "the same command with a greater number after --seconds")
    }
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

  // MARK: Repeating one failure

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
      throw UsageError(message: "--rot takes a number from 0 to \(run.damages.count - 1) with this seed, not \(rot)")
    }
    try run.run([rot])
    try console.print("crash-test: nothing lost in \(run.report)")
    return .done
  }

  private func replay(_ folder: FolderCase) throws -> ExitCode {
    do {
      switch folder.campaign {
      case .log:
        var run = try ReplacedFolders()
        try run.replay(folder)
      case .store:
        var run = try ReplacedStores()
        try run.replay(folder)
      }
    } catch let problem as LogProblem {
      throw UsageError(message: problem.description)
    }
    try console.print("crash-test: nothing lost, and nothing foreign changed, in \(folder)")
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
              "--history takes 'random', 'legal', 'live' or letters of \(String(LogOperation.allCases.map(\.rawValue)))"
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
