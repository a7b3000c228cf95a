// `simulate`: runs random worlds of devices and a cloud, each from the next seed, and checks the library's promises in
// them. A failure is shrunk, printed step by step, and repeated by the command that it names.

import Strandline
import StrandlineHost
import StrandlineSystem
import StrandlineTesting
import Synchronization

extension Command {
  static let simulate = Command(
    "simulate", "Run random worlds of devices and a cloud; check every promise.", operands: [],
    details: [
      "Each world follows from one seed: apps write, devices sync, and networks, disks, clocks and the server fail. Time",
      "is simulated. After each step, and when the faults have ended and all devices have synced, it is checked that",
      "nothing acknowledged is lost, nothing deleted comes back, nothing is applied twice, nothing is stuck, and that all",
      "devices and the server hold the same bytes. A world that breaks a promise is shrunk and printed.",
      "",
      "With --trace each request of each device is also written to a file: the step, the device, the kind of the request,",
      "its zone, names and outcome, one line each; and what everyone holds at rest. The same command gives the same bytes,",
      "so `diff` shows what another version of the sync engine asks differently.",
      "",
      "With --fleet it measures the load of many devices on one server instead, with an outage of six hours on the second",
      "day: whether the devices return evenly, whether no edit waits long, and whether no device sends more than it must.",
    ],
    options: [
      Option(
        "--devices", "N",
        "Devices of each world, 1 to 16; of a fleet, 2 to 20000. Default: 2 to 5, by the seed; of a fleet, 2000."),
      Option("--days", "D", "Days that pass in each world. Default: 1; of a fleet, 3."),
      Option("--seed", "S", "The seed of the first world; each next world has the next seed. Default: a random one."),
      Option("--runs", "R", "How many worlds. Default: 1 with --seed, else 100."),
      Option(
        "--faults", "PLAN",
        "The faults that worlds may have: all, none, or some of network, power, clocks, refusals, quota, tokens, zones,"
          + " foreign, references, types, copies, stale, compaction, app, busy, automatic, rights, space, equal, nodes,"
          + " remade, omissions, names, screens, crowds, readers, moves and defaults, with commas between them."
          + " Default: all."),
      Option("--steps", "LIST", "With --seed: only these steps of one world, as a failure printed them."),
      Option("--trace", "FILE", "Also write the requests of the devices, one line each, to this file."),
      Option("--fleet", "The load of many devices on one server instead of worlds."),
      Option("--without", "LIST", "With --fleet: without jitter, pace or both (jitter,pace), to compare."),
      Option("--svg", "FILE", "With --fleet: also draw requests over time, with and without jitter and pace."),
      .json,
    ],
    examples: [
      Example("A hundred worlds", "strandline simulate"),
      Example("What happens in one of them", "strandline simulate --seed 8231 --devices 3"),
      Example(
        "A month of lost answers and power cuts", "strandline simulate --runs 50 --days 30 --faults network,power"),
      Example("What two versions ask differently", "strandline simulate --seed 1 --runs 500 --trace requests.txt"),
      Example("The load after an outage", "strandline simulate --fleet --svg fleet.svg"),
    ],
    run: { arguments, console in
      if arguments.has("--fleet") { return try await simulateFleet(arguments, console) }
      for name in ["--without", "--svg"] where arguments[name] != nil {
        throw UsageError(message: "\(name) can be used with --fleet only")
      }
      let options = try SimulateOptions(arguments, console)
      let trace = try arguments["--trace"].map { try TraceFile($0, console.environment.fileSystem) }
      let campaign = WorldCampaign(options, trace, console)
      let start = console.environment.clock.monotonicNanoseconds()
      async let other: Void = campaign.runSome()
      try await campaign.runSome()
      try await other
      try trace?.end()
      let nanoseconds = console.environment.clock.monotonicNanoseconds() &- start
      let result = campaign.result()
      try options.isJSON
        ? console.write(result.json(options).canonicalBytes + [UInt8(ascii: "\n")])
        : result.show(options, nanoseconds, console)
      guard let failure = result.failure else { return try result.judge(options) }
      throw Failure(
        .recoverable, "in the world of seed \(failure.seed) a promise was broken: \(failure.invariant.rawValue)",
        try: failure.command)
    })
}

/// The options of `simulate`.
struct SimulateOptions: Sendable {
  var devices: Int?
  var days: Int
  var seed: UInt64
  var runs: UInt64
  var faults: WorldFaults
  var steps: [Int]?
  var isJSON: Bool

  init(_ arguments: Arguments, _ console: Console) throws {
    devices = try arguments.number("--devices", in: 1...16)
    days = try arguments.number("--days", in: 1...1_000) ?? 1
    let given = try arguments["--seed"].map { text in try CrashTestOptions.seed(text) }
    seed = given ?? console.environment.random.next() >> 32
    runs = try arguments.number("--runs", in: 1...1_000_000_000) ?? (given == nil ? 100 : 1)
    let plan = arguments["--faults"] ?? "all"
    guard let faults = WorldFaults(names: plan) else {
      throw UsageError(
        message: "--faults takes 'all', 'none' or names with commas between them, not '\(printable(plan))'")
    }
    self.faults = faults
    steps = try arguments["--steps"].map { text in try CrashTestOptions.steps(text) }
    isJSON = arguments.has("--json")
    if steps != nil, runs != 1 || given == nil {
      throw UsageError(message: "--steps needs --seed, and no --runs but 1")
    }
  }

  /// The world of a number of the campaign.
  func world(_ number: UInt64) -> SimulatedWorld {
    let seed = seed &+ number
    var world = SimulatedWorld(seed: seed, devices: devices ?? 2 + Int(seed % 4), days: days, faults: faults)
    world.steps = steps.map { Set($0) }
    return world
  }
}

/// What became of the worlds.
private struct WorldResult: Sendable {
  var worlds: UInt64 = 0
  var tally = WorldTally()
  var failure: WorldFailure?
  /// The number of the world that failed.
  var failedNumber: UInt64 = 0
  /// What happened in the only world.
  var history: [String] = []

  /// Enough worlds that each case must have occurred.
  private static let worldsForAllCases: UInt64 = 500

  /// - Throws: `Failure` if the worlds were many, and one of the cases that they were to test never occurred.
  func judge(_ options: SimulateOptions) throws -> ExitCode {
    let missing = tally.missing(with: options.faults)
    guard worlds >= Self.worldsForAllCases, !missing.isEmpty else { return .done }
    throw Failure(
      .recoverable,
      "in \(Words.plural(worlds, "world")) this never occurred: \(missing.map(\.rawValue).joined(separator: ", "))",
      try: "the same command with more after --runs")
  }

  func show(_ options: SimulateOptions, _ nanoseconds: UInt64, _ console: Console) throws {
    try console.print("seed \(options.seed)")
    if let failure {
      // An error message has one line, so the steps of the world are printed before it.
      for line in "\(failure)".split(separator: "\n") { console.say(printable(String(line))) }
      return
    }
    for line in history { try console.print(printable(line)) }
    try console.print("\(tally)")
    let deviceDays = Double(tally.deviceMilliseconds) / 86_400_000
    var words = "simulate: in \(Words.plural(worlds, "world")), \(Words.count(UInt64(deviceDays))) device-days, "
    words += "every promise was kept; \(Words.seconds(nanoseconds: nanoseconds))"
    try console.print(words)
  }

  func json(_ options: SimulateOptions) -> JSONValue {
    var cases: [String: JSONValue] = [:]
    for what in WorldCase.allCases { cases[what.rawValue] = .integer(Int64(tally[what])) }
    return .object([
      "seed": .string(String(options.seed)), "worlds": .integer(Int64(clamping: worlds)),
      "steps": .integer(Int64(tally.steps)), "requests": .integer(Int64(tally.requests)),
      "requestsMax": .integer(Int64(tally.requestsMax)),
      "deviceMilliseconds": .integer(tally.deviceMilliseconds), "cases": .object(cases),
      "broken": failure.map { .string($0.invariant.rawValue) } ?? .null,
      "message": failure.map { .string($0.message) } ?? .null,
      "history": .array((failure?.history ?? history).map { .string($0) }),
      "command": failure.map { .string($0.command) } ?? .null,
    ])
  }
}

/// Worlds whose seeds are shared out to several tasks.
private final class WorldCampaign: Sendable {
  private let options: SimulateOptions
  private let begun = Atomic<UInt64>(0)
  private let hasFailed = Atomic(false)
  private let found = Mutex(WorldResult())
  private let progress: Mutex<Progress>
  private let trace: TraceFile?

  init(_ options: SimulateOptions, _ trace: TraceFile?, _ console: Console) {
    (self.options, self.trace) = (options, trace)
    progress = Mutex(Progress(console))
  }

  /// Runs the next world until all were begun or one has failed.
  ///
  /// They are begun in the order of their seeds, and what was begun is run to its end. So the first that fails is among the
  /// failures of all tasks, however fast each is.
  ///
  /// - Throws: `SystemError` if the trace cannot be written. Then no other world begins.
  func runSome() async throws {
    while !hasFailed.load(ordering: .acquiring) {
      let number = begun.wrappingAdd(1, ordering: .relaxed).oldValue
      guard number < options.runs else { break }
      let world = options.world(number)
      let outcome = await world.run(
        shrinks: options.steps == nil, keepsHistory: options.runs == 1, tracesRequests: trace != nil)
      found.withLock { found in
        found.worlds += 1
        found.tally.add(outcome.tally)
        if options.runs == 1 { found.history = outcome.history }
        if let failure = outcome.failure, found.failure == nil || number < found.failedNumber {
          (found.failure, found.failedNumber) = (failure, number)
        }
      }
      if outcome.failure != nil { hasFailed.store(true, ordering: .releasing) }
      do { try trace?.add(number, world, outcome) } catch {
        hasFailed.store(true, ordering: .releasing)
        throw error
      }
      progress.withLock { $0.update(Words.plural(number + 1, "world")) }
    }
  }

  func result() -> WorldResult {
    progress.withLock { $0.end() }
    return found.withLock { $0 }
  }
}
