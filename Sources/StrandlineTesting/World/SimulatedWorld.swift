// A world of devices and a cloud that follows from one seed, in which an app tests its own policies and the library proves
// its promises.

public import Strandline
package import StrandlineCloudKit
internal import StrandlineSystem

/// Another client of a world's cloud than that of the web.
package struct WorldClient: Sendable {
  /// Makes the client of a device, each time that its store is opened, over the line to the server.
  package var make: @Sendable (_ device: Int, any Transport, StoreEnvironment) -> any CloudDatabase
  /// The server's text of a token of this client.
  package var text: @Sendable (ChangeToken) -> String

  package init(
    make: @escaping @Sendable (_ device: Int, any Transport, StoreEnvironment) -> any CloudDatabase,
    text: @escaping @Sendable (ChangeToken) -> String
  ) {
    self.make = make
    self.text = text
  }
}

/// What an app adds to a simulated world: its own configuration of the sync, and its own demands.
struct WorldApp: Sendable {
  typealias Configure = @Sendable (inout SyncConfiguration, inout StoreOptions) -> Void
  var configure: Configure = { _, _ in }
  /// How the devices speak to the cloud; nil: by the web.
  var client: WorldClient?
  /// Whether the app has policies of its own.
  var isConfigured = false
  var check: @Sendable ([RecordStore]) async throws -> String? = { _ in nil }
  /// What a test does to a device's store before it is judged, as an engine with a mistake would.
  var plant: @Sendable (RecordStore) async throws -> Void = { _ in }
}

/// A few devices and a cloud in the test's own process, which follow from one seed: apps write, delete, create and read;
/// devices sync; networks, disks, clocks and the server fail. After each step and at the end it is checked that the
/// promises of the library hold (`WorldInvariant`).
///
/// The same seed gives the same history. Time is simulated: a world of a day takes some milliseconds.
///
/// ```swift
/// for seed in 0..<100 {
///   let outcome = await SimulatedWorld(seed: UInt64(seed)).run()
///   #expect(outcome.failure == nil)
/// }
/// ```
public struct SimulatedWorld: Sendable {
  /// The seed of every random choice.
  public let seed: UInt64
  /// Devices at the beginning: 1 to 16.
  public let devices: Int
  /// Days that pass, about: 1 to 1,000. Each has 50 to 110 random steps.
  public let days: Int
  /// The faults that the world may have. It draws some of them.
  public let faults: WorldFaults
  /// The numbers of the steps that are taken; nil for all. A failure names those that are enough for it.
  public var steps: Set<Int>?
  private var app = WorldApp()

  /// Describes a world; nothing runs yet. Numbers outside their range are taken for the nearest one in it.
  public init(seed: UInt64, devices: Int = 3, days: Int = 1, faults: WorldFaults = .all) {
    self.seed = seed
    self.devices = min(max(devices, 1), 16)
    self.days = min(max(days, 1), 1_000)
    self.faults = faults
  }

  /// Opens each device's store with other settings than the default: with the app's own policies.
  ///
  /// - Parameter body: changes the configuration of one device, which syncs with the world's cloud, and the options of its
  ///   store. Called once for each start of a device.
  public mutating func configure(
    _ body: @escaping @Sendable (inout SyncConfiguration, inout StoreOptions) -> Void
  ) {
    app.configure = body
    app.isConfigured = true
  }

  /// Adds a demand of the app's own, which is checked when the world has come to rest.
  ///
  /// - Parameter body: gets the open stores of all devices, and returns what is wrong with them, or nil. What it throws
  ///   counts as wrong.
  public mutating func check(_ body: @escaping @Sendable ([RecordStore]) async throws -> String?) { app.check = body }

  /// Lets the devices speak to the cloud in another way.
  package mutating func connect(by client: WorldClient) { app.client = client }

  /// Has a store changed after each step before its device is judged, as an engine with a mistake would: the judge must find it.
  package mutating func plant(_ body: @escaping @Sendable (RecordStore) async throws -> Void) { app.plant = body }

  /// Runs the world. A failure is shrunk first: steps are left out as long as the same invariant breaks.
  ///
  /// - Parameters:
  ///   - shrinks: whether a failure is shrunk, which takes up to some hundred runs.
  ///   - keepsHistory: whether the outcome has the history of a world that kept its promises; without it a world is
  ///     faster. A failure has one in any case.
  /// - Complexity: O(steps · records) for the checks, beside what the devices do.
  public func run(shrinks: Bool = true, keepsHistory: Bool = true) async -> WorldOutcome {
    await run(shrinks: shrinks, keepsHistory: keepsHistory, tracesRequests: false)
  }

  /// As `run(shrinks:keepsHistory:)`; with `tracesRequests` the outcome also has the devices' requests, and what everyone
  /// holds at rest. Nothing else is different by that. Of a failure they are those of the whole world, not of the shrunk one.
  package func run(shrinks: Bool, keepsHistory: Bool, tracesRequests: Bool) async -> WorldOutcome {
    let requests = tracesRequests ? WorldRequests() : nil
    let executor = OneAtATimeExecutor()
    let outcome = await withTaskExecutorPreference(executor) {
      var run = WorldRun(plan, app, isTold: keepsHistory, executor, requests)
      let broken = await run.run()
      let result = self.outcome(of: run, broken)
      await run.end()
      return result
    }
    // The same steps once more, told this time.
    if outcome.failure != nil, !keepsHistory {
      return await self.run(shrinks: shrinks, keepsHistory: true, tracesRequests: tracesRequests)
    }
    guard shrinks, let failure = outcome.failure else { return outcome }
    return WorldOutcome(
      tally: outcome.tally, failure: await shrunk(failure), history: outcome.history, requests: outcome.requests)
  }

  var plan: WorldPlan {
    var plan = WorldPlan(seed: seed, devices: devices, days: days, allowed: faults)
    // CloudKit's framework has no VALIDATE references.
    plan.linksValidate = app.client == nil
    if let steps { plan.keep(steps) }
    return plan
  }

  private func outcome(of run: WorldRun, _ broken: WorldBroken?) -> WorldOutcome {
    let failure = broken.map {
      WorldFailure(
        seed: seed, devices: devices, days: days, faults: faults, invariant: $0.invariant, message: $0.words,
        steps: run.plan.steps.map(\.number), isShrunk: steps != nil, history: run.trace + run.logs())
    }
    if let broken { run.requests?.note("the world broke a promise: \(broken.invariant.rawValue)") }
    return WorldOutcome(
      tally: run.tally, failure: failure, history: run.trace, requests: run.requests?.lines ?? [])
  }

  // MARK: Shrinking

  /// Leaves out as many steps as it can while the same invariant breaks: those after the failure, whole devices, then
  /// ever smaller parts.
  private func shrunk(_ failure: WorldFailure) async -> WorldFailure {
    var best = failure
    var tries = 0
    func fails(_ numbers: [Int]) async -> WorldFailure? {
      tries += 1
      var world = self
      world.steps = Set(numbers)
      let found = await world.run(shrinks: false, keepsHistory: false).failure
      return found?.invariant == failure.invariant ? found : nil
    }
    let all = plan.steps
    for device in 0..<devices {
      let others = Set(all.filter { $0.action.device != device }.map(\.number))
      let numbers = best.steps.filter { others.contains($0) }
      if numbers.count < best.steps.count, let found = await fails(numbers) { best = found }
    }
    var size = max(1, best.steps.count / 2)
    while tries < 400 {
      var at = 0
      var isSmaller = false
      while at < best.steps.count, tries < 400 {
        var numbers = best.steps
        numbers.removeSubrange(at..<min(at + size, numbers.count))
        if let found = await fails(numbers) {
          best = found
          isSmaller = true
        } else {
          at += size
        }
      }
      if size == 1, !isSmaller { break }
      if !isSmaller || size > best.steps.count { size = max(1, size / 2) }
    }
    return best
  }
}

/// What became of a world.
public struct WorldOutcome: Sendable, CustomStringConvertible {
  /// What happened in it, counted.
  package let tally: WorldTally
  /// What was broken; nil if every promise held.
  public let failure: WorldFailure?
  /// What happened in it, one line for each step; empty if it was not kept. The same seed gives the same lines.
  public let history: [String]
  /// What each device asked the cloud, one line for each request, and at the end what everyone holds; empty if it was not
  /// traced. The same seed gives the same bytes.
  package let requests: [String]

  /// The failure, or the counts.
  public var description: String { failure.map { "\($0)" } ?? "\(tally)" }
}

/// A broken promise, with what repeats it.
public struct WorldFailure: Error, Sendable, CustomStringConvertible {
  /// The world's seed.
  public let seed: UInt64
  /// Its devices at the beginning.
  public let devices: Int
  /// Its days.
  public let days: Int
  /// The faults that it was allowed.
  public let faults: WorldFaults
  /// Which promise.
  package let invariant: WorldInvariant
  /// What was found.
  public let message: String
  /// The numbers of the steps that lead to it.
  public let steps: [Int]
  /// Whether steps were left out.
  let isShrunk: Bool
  /// What happened up to it.
  public let history: [String]

  /// The command that repeats it.
  public var command: String {
    var words = "strandline simulate --seed \(seed) --devices \(devices)"
    if days != 1 { words += " --days \(days)" }
    if faults != .all { words += " --faults \(faults)" }
    if isShrunk { words += " --steps \(steps.map(String.init).joined(separator: ","))" }
    return words
  }

  /// The invariant, what was found, the history, and the command that repeats it.
  public var description: String {
    let lines = history.map { "\n  \($0)" }.joined()
    return "\(invariant.rawValue): \(message)\(lines)\nrepeat it with: \(command)"
  }
}
