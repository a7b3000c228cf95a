// The load that thousands of devices put on one server: each has a real store and engine, and makes its runs by the
// engine's own schedule, on simulated time. Devices are in pairs, each pair with a database of its own: what one uploads,
// the other is told of by a push. All share the gate, which counts requests, refuses what is more than the server's
// capacity, and fails everything during an outage.

import Strandline
import StrandlineCloudKit
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem

/// What a fleet is, and what happens to it.
package struct FleetShape: Sendable {
  package var devices = 2_000
  package var days = 3
  package var seed: UInt64 = 1
  /// Edits that a device makes in a day, at random times.
  package var editsPerDay = 40
  /// What a device is expected to send in a day. The server's capacity is three times that of all.
  package var requestsPerDay = 150
  package var hasJitter = true
  /// Whether the engine's own waits grow beyond a minute.
  package var hasPace = true
  package init() {}

  /// A server that fails for six hours, from the ninth hour of the second day.
  static let (outageBegin, outageEnd) = (Int64(33 * 3_600_000), Int64(39 * 3_600_000))
  /// The devices start during the first hour. The mean is taken from the fourth one to the outage.
  static let (startEnd, meanBegin) = (Int64(3_600_000), Int64(4 * 3_600_000))

  var pace: SyncPace {
    var pace = SyncPace()
    pace.hasJitter = hasJitter
    if !hasPace { pace.longestWait = .seconds(60) }
    // Such apps are in the background most of the day: pushes wake them.
    pace.poll = .seconds(4 * 3600)
    return pace
  }
}

/// What a fleet came to.
package struct FleetOutcome: Sendable, Equatable {
  /// Requests that reached the server, by the minute.
  package var requests: [Int] = []
  /// Those of them that were refused because the server was out, or at the end of its capacity, by the minute.
  package var refused: [Int] = []
  /// How long an edit that was made before the outage's end waited after it, at most, in milliseconds.
  package var longestWait: Int64 = 0
  /// Requests of runs without an error that neither asked what has changed, nor brought nor fetched anything.
  package var needless = 0
  /// Requests before the end of a wait that the server had named, and those after a failed one of the same run.
  package var impolite = 0
  /// Refused requests that met the end of the server's capacity.
  package var overload = 0
  /// Requests a second that the server answers at most.
  package var capacity = 0.0
  package var edits = 0

  /// Requests a second before the outage.
  package var mean: Double {
    let range = Int(FleetShape.meanBegin / 60_000)..<Int(FleetShape.outageBegin / 60_000)
    return Double(requests[range].reduce(0, +)) / Double(range.count * 60)
  }

  /// Requests a second in the busiest 5 minutes of the hour after the outage, refused ones too.
  package var peak: Double {
    let end = Int(FleetShape.outageEnd / 60_000)
    return (end...end + 55).map { Double(requests[$0..<$0 + 5].reduce(0, +)) / 300 }.max() ?? 0
  }

  /// Requests a second in each 5 minutes of the hour after the outage.
  package var recovery: [Double] {
    let end = Int(FleetShape.outageEnd / 60_000)
    return stride(from: end, to: end + 60, by: 5).map { Double(requests[$0..<$0 + 5].reduce(0, +)) / 300 }
  }

  package static let peakRatioMax = 2.0
  package static let waitMillisecondsMax: Int64 = 30 * 60_000

  /// Which bars do not hold, each as a sentence.
  package var missed: [String] {
    var words: [String] = []
    let ratio = Int((peak / mean * 100).rounded())
    if peak > Self.peakRatioMax * mean {
      words.append("the busiest 5 minutes after the outage have \(ratio) % of the mean, and may have 200 %")
    }
    if longestWait > Self.waitMillisecondsMax {
      words.append("an edit waited \(longestWait / 1000) s after the outage, and may wait 1800 s")
    }
    if needless > 0 { words.append("\(needless) requests were needless") }
    if impolite > 0 { words.append("\(impolite) requests came too early") }
    return words
  }
}

/// A run of a fleet.
package struct FleetLoad {
  private let shape: FleetShape
  private let executor: OneAtATimeExecutor
  private let gate: FleetGate
  private let random: SeededRandom
  private let clock = SimulatedClock()
  private let begin: UInt64
  private var devices: [FleetDevice] = []
  private var queue = FleetQueue()
  private var outcome = FleetOutcome()

  private init(_ shape: FleetShape, _ executor: OneAtATimeExecutor) {
    (self.shape, self.executor) = (shape, executor)
    random = SeededRandom(seed: shape.seed)
    begin = clock.monotonicNanoseconds()
    gate = FleetGate(
      clock, capacity: 3 * Double(shape.devices * shape.requestsPerDay) / 86_400, minutes: shape.days * 1_440)
  }

  /// Runs a fleet to its end. The same shape has the same outcome.
  ///
  /// - Parameter progress: is called each simulated hour, and may throw to end it.
  package static func run(
    _ shape: FleetShape, _ progress: (Int) throws -> Void = { _ in }
  ) async throws -> FleetOutcome {
    let executor = OneAtATimeExecutor()
    return try await withTaskExecutorPreference(executor) { try await run(shape, executor, progress) }
  }

  private static func run(
    _ shape: FleetShape, _ executor: OneAtATimeExecutor, _ progress: (Int) throws -> Void
  ) async throws -> FleetOutcome {
    var load = FleetLoad(shape, executor)
    try await load.start()
    try await load.run(progress)
    let counts = load.gate.counts
    load.outcome.requests = counts.requests
    load.outcome.refused = counts.refused
    load.outcome.overload = counts.overload
    load.outcome.impolite += counts.early
    load.outcome.capacity = load.gate.capacity
    for device in load.devices { try await device.store.close() }
    return load.outcome
  }

  private var now: Int64 { Int64((clock.monotonicNanoseconds() - begin) / 1_000_000) }

  private mutating func start() async throws {
    var server = CloudServer(inMemory: environment(SimulatedDisk(), 0))
    for number in 0..<shape.devices {
      if number % 2 == 0 { server = CloudServer(inMemory: environment(SimulatedDisk(), UInt64(number) << 1)) }
      devices.append(try await open(number, server))
      queue.add(Int64(random.below(UInt64(FleetShape.startEnd))), number, .timeOut(0))
      queue.add(FleetShape.startEnd + editPause(), number, .edit)
    }
  }

  private func environment(_ disk: SimulatedDisk, _ stream: UInt64) -> SystemEnvironment {
    SystemEnvironment(
      fileSystem: disk, clock: clock, random: SeededRandom(seed: shape.seed ^ (stream &* 0xD1B5_4A32_D192_ED03)),
      taskExecutor: executor)
  }

  private func open(_ number: Int, _ server: CloudServer) async throws -> FleetDevice {
    let system = environment(SimulatedDisk(), UInt64(number) << 1 | 1)
    let transport = FleetTransport(base: InProcessTransport(server), gate: gate, device: number)
    var configuration = SyncConfiguration(
      WebServicesDatabase(
        address: CloudAddress(container: "iCloud.fleet", environment: .development), apiToken: "", session: nil,
        baseURL: "http://cloud.invalid",
        transport: transport, environment: system))
    configuration.isAutomatic = false
    let random = SeededRandom(seed: shape.seed ^ (UInt64(number + 1) &* 0x9E6C_63D0_876A_3F6B))
    configuration.pace = shape.pace
    configuration.random = random
    let store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: Self.options,
      environment: StoreEnvironment(system, isSimulated: true))
    return FleetDevice(store: store, random: random, schedule: CycleSchedule(shape.pace))
  }

  /// Small files, so that thousands of stores need little memory.
  private static let options: StoreOptions = {
    var options = StoreOptions()
    options.log.segmentBytesMax = 8 << 10
    options.compaction.deadRatio = nil
    return options
  }()

  /// On average as many edits a day as the shape says.
  private func editPause() -> Int64 { 1 + Int64(random.below(UInt64(2 * 86_400_000 / Int64(shape.editsPerDay)))) }

  // MARK: Events

  private mutating func run(_ progress: (Int) throws -> Void) async throws {
    let end = Int64(shape.days) * 86_400_000
    var hour = -1
    while let event = queue.next(), event.time < end {
      if event.time > now { clock.advance(milliseconds: event.time - now) }
      if Int(now / 3_600_000) > hour {
        hour = Int(now / 3_600_000)
        try progress(hour)
        if hour > 0, hour % 24 == 0 { for device in devices { _ = try device.store.compactBlocking(keeping: .latest) } }
      }
      let number = event.device
      switch event.what {
      case .edit: try edit(number)
      case .poke:
        devices[number].causes.insert(.push)
        signal(number)
      case .timeOut(let turn):
        if turn == devices[number].turn { goOn(number) }
      case .run: try await sync(number)
      }
    }
    for device in devices { remember(device, until: now) }
  }

  private mutating func edit(_ number: Int) throws {
    outcome.edits += 1
    let (count, names) = (outcome.edits, 8)
    let id = RecordID("d\(number % 2)-\(random.below(UInt64(names)))")
    _ = try devices[number].store.writeBlocking { tx in
      try tx.save(Record(type: "Note", id: id, fields: ["number": .int64(Int64(count))]))
    }
    if devices[number].unsentSince == nil { devices[number].unsentSince = now }
    queue.add(now + editPause(), number, .edit)
    signal(number)
  }

  /// As the engine's signal: it is kept until the device waits for it.
  private mutating func signal(_ number: Int) {
    if devices[number].isWaiting { goOn(number) } else { devices[number].isSignalled = true }
  }

  /// The device's wait is over.
  private mutating func goOn(_ number: Int) {
    devices[number].turn += 1
    devices[number].isWaiting = false
    devices[number].options = CycleSchedule.options(devices[number].causes)
    queue.add(now + devices[number].schedule.debounce(devices[number].causes, devices[number].random), number, .run)
    devices[number].causes = []
  }

  private mutating func sync(_ number: Int) async throws {
    var device = devices[number]
    let refusedBefore = gate.counts(of: number)
    var hasFailed = false
    do {
      let report = try await device.store.engine.cycle(device.options)
      // The first runs ask for the account and make the zones.
      if now > FleetShape.meanBegin { outcome.needless += Self.needless(report, afterFailure: device.hasFailed) }
      if report.uploaded > 0 { queue.add(now + 1_000, number ^ 1, .poke) }
      remember(device, until: now)
      device.unsentSince = nil
    } catch let error as StrandlineError {
      guard error.code.isTransient else { throw error }
      hasFailed = true
      outcome.impolite += max(0, gate.counts(of: number) - refusedBefore - 1)
    }
    device.hasFailed = hasFailed
    let engine = try device.store.engine
    let (due, isOfAll) = (engine.nextDue, hasFailed && !engine.failsInPart)
    let wait = device.schedule.cycleEnded(hasFailed: isOfAll, due: due, device.random)
    device.isWaiting = true
    queue.add(now + wait, number, .timeOut(device.turn))
    devices[number] = device
    if device.isSignalled {
      devices[number].isSignalled = false
      goOn(number)
    }
  }

  /// A run has to ask what has changed, to fetch that, and to send what is owed. After a failed run it also has to ask
  /// whether an upload arrived whose answer did not.
  private static func needless(_ report: SyncReport, afterFailure: Bool) -> Int {
    let fetched = report.fetchedSaves + report.fetchedDeletes + report.echoes > 0 || afterFailure ? 1 : 0
    let sent = report.uploaded > 0 ? 1 : 0
    return max(0, report.requests - 1 - fetched - sent)
  }

  /// All that a device owed has arrived, or the time is over.
  private mutating func remember(_ device: FleetDevice, until: Int64) {
    guard let since = device.unsentSince, until >= FleetShape.outageEnd else { return }
    outcome.longestWait = max(outcome.longestWait, until - max(since, FleetShape.outageEnd))
  }
}

/// A device of the fleet, and where its engine's loop stands.
private struct FleetDevice {
  let store: RecordStore
  let random: any RandomSource
  var schedule: CycleSchedule
  /// The options of the run that was asked for.
  var options = CycleSchedule.options([])
  var causes: Set<SyncCause> = []
  var isWaiting = true
  var isSignalled = false
  /// Counts the waits, so that the time-out of an earlier one does nothing.
  var turn = 0
  var hasFailed = false
  /// When the first edit was made that is not at the server.
  var unsentSince: Int64?
}

/// What happens when. Events of one moment come in the order in which they were added.
private struct FleetQueue {
  enum What { case edit, poke, timeOut(Int), run }
  struct Event {
    var time: Int64
    var number: UInt64
    var device: Int
    var what: What
  }
  /// A heap: each event is before those at twice its place, and one and two more.
  private var heap: [Event] = []
  private var count: UInt64 = 0

  private func isBefore(_ left: Int, _ right: Int) -> Bool {
    (heap[left].time, heap[left].number) < (heap[right].time, heap[right].number)
  }

  mutating func add(_ time: Int64, _ device: Int, _ what: What) {
    count += 1
    heap.append(Event(time: time, number: count, device: device, what: what))
    var place = heap.count - 1
    while place > 0, isBefore(place, (place - 1) / 2) {
      heap.swapAt(place, (place - 1) / 2)
      place = (place - 1) / 2
    }
  }

  mutating func next() -> Event? {
    guard !heap.isEmpty else { return nil }
    heap.swapAt(0, heap.count - 1)
    let event = heap.removeLast()
    var place = 0
    while true {
      var first = place
      for child in [2 * place + 1, 2 * place + 2] where child < heap.count && isBefore(child, first) { first = child }
      if first == place { return event }
      heap.swapAt(first, place)
      place = first
    }
  }
}
