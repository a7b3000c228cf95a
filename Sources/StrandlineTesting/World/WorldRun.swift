// One simulated world while it runs: the devices, the server, and the steps of the plan, one after the other. One task
// awaits one device at a time, so the same plan gives the same history.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineServer
internal import StrandlineSimulation
internal import StrandlineSystem
internal import Synchronization

/// A promise that was broken. The run catches it and says in which step.
struct WorldBroken: Error {
  var invariant: WorldInvariant
  var words: String
  init(_ invariant: WorldInvariant, _ words: String) { (self.invariant, self.words) = (invariant, words) }
}

/// A world under way.
struct WorldRun {
  let plan: WorldPlan
  let app: WorldApp
  private let executor: OneAtATimeExecutor
  let time = WorldTime()
  let server: CloudServer
  let refusals = WorldRefusals()
  let denials = WorldDenials()
  private let losses = WorldLosses()
  let refused = Atomic64()
  private(set) var devices: [WorldDevice] = []
  var history = WorldHistory()
  var tally = WorldTally()
  var memory = WorldMemory()
  let together: WorldTogether
  var screens = WorldScreens()
  private(set) var trace: [String] = []
  /// Whether `trace` is written: words for each step cost a tenth of the world, and few worlds are read.
  private let isTold: Bool
  /// The devices' requests, if they are traced.
  let requests: WorldRequests?
  private(set) var step = -1
  private let serverClock: WorldServerClock
  let tallies: WorldTallies
  /// The tool that others use at the server.
  private let tool: WebServicesDatabase
  /// What is planned for a call of each device's next step that changes the disk.
  var planned = WorldPlannedCalls()
  private var isQuotaFull = false
  /// The zones that a person has had each device ask for again.
  var resumed: [Int: Set<ZoneID>] = [:]
  /// Which start of each device the judge of tokens has seen last.
  var judgedStarts: [Int: UInt64] = [:]

  static let address = CloudAddress(container: "iCloud.world", environment: .development)
  static let key = DatabaseKey(
    container: address.container, environment: address.environment.rawValue, scope: .private,
    user: CloudServer.defaultUser)

  init(
    _ plan: WorldPlan, _ app: WorldApp, isTold: Bool, _ executor: OneAtATimeExecutor, _ requests: WorldRequests? = nil
  ) {
    self.executor = executor
    self.requests = requests
    self.plan = plan
    self.app = app
    self.isTold = isTold
    tallies = WorldTallies(plan.names)
    serverClock = WorldServerClock(time, lagMilliseconds: plan.lagMilliseconds, seed: plan.seed ^ 0x4C_41_47)
    var limits = ServerLimits()
    if plan.hasSmallPages { limits.resultsMax = 2 }
    let environment = SystemEnvironment(
      fileSystem: SimulatedDisk(), clock: serverClock, random: SeededRandom(seed: plan.seed ^ 0x5E_4E_4E))
    server = CloudServer(inMemory: environment, limits: limits)
    together = WorldTogether(server)
    tool = WebServicesDatabase(
      address: Self.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid",
      transport: InProcessTransport(server), environment: environment)
    for offset in plan.clockOffsets { addDevice(offMilliseconds: offset) }
  }

  @discardableResult
  mutating func addDevice(offMilliseconds: Int64) -> WorldDevice {
    let number = devices.count
    let (refusals, denials, losses) = (refusals, denials, losses)
    let refused = refused
    let together = together
    let requests = requests
    let client = app.client
    let device = WorldDevice(
      number: number, seed: plan.seed &* 31 &+ UInt64(number) &* 0x9E37_79B9,
      clock: WorldClock(time, offMilliseconds: offMilliseconds), line: WorldLine(server, time, serverClock),
      executor: executor,
      database: { environment, line, store in
        let base: any CloudDatabase =
          client?.make(number, line, environment)
          ?? WebServicesDatabase(
            address: Self.address, apiToken: "", session: nil, baseURL: "http://cloud.invalid", transport: line,
            environment: environment.system)
        let database = WorldDatabase(
          base: base,
          refusals: refusals, denials: denials, losses: losses, together: together, device: number, store: store,
          onRefusal: { refused.add() }, onDanger: { line.note($0) })
        return requests.map { TracedDatabase(base: database, device: number, requests: $0) } ?? database
      }, configure: app.configure)
    devices.append(device)
    return device
  }

  // MARK: Running

  /// Runs the steps and the rest. Returns what was broken first.
  mutating func run() async -> WorldBroken? {
    do {
      try await makeForeignRecords()
      for next in plan.steps {
        step = next.number
        requests?.begin(step: step)
        tally.steps += 1
        time.advance(milliseconds: next.pause)
        try await take(next)
        if let number = next.action.device, number < devices.count { try await judge(devices[number]) }
      }
      step = -1
      requests?.begin(step: nil)
      try await rest()
    } catch let broken as WorldBroken {
      return broken
    } catch {
      return WorldBroken(.honest, "threw \(error)")
    }
    tally.deviceMilliseconds = (time.milliseconds - WorldTime.beginMilliseconds) * Int64(devices.count)
    return nil
  }

  /// Ends the devices, as a power cut does. A store that is not closed keeps its memory: a store and its engine hold each other.
  func end() async { for device in devices { await device.end() } }

  mutating func say(_ words: @autoclosure () -> String) {
    guard isTold else { return }
    trace.append(step < 0 ? "at rest: \(words())" : "\(step) \(words())")
  }

  private mutating func take(_ next: WorldStep) async throws {
    if let number = next.action.device {
      // The copy that would have made this device may have been left out.
      guard number < devices.count else { return }
      let device = devices[number]
      do {
        try await take(next, on: device)
      } catch let error as StrandlineError where isFull(device, error) {
        say("\(device.name) cannot do it: the disk is full")
      }
    } else {
      try await disturb(next)
    }
  }

  private mutating func take(_ next: WorldStep, on device: WorldDevice) async throws {
    switch next.action {
    case .write(_, let changes):
      if next.seed.isMultiple(of: 3), try await restoreRecord(changes, on: device) { return }
      try await write(changes, on: device)
    case .sync(_, let direction):
      try await sync(device, cause(direction, next.seed))
      try await decideLosses(on: device, next.seed)
    case .request(_, let number, let fault):
      device.line.plan(fault, request: number)
      say("\(device.name): request \(number) of the next sync: \(fault)")
    case .offline(_, let milliseconds):
      device.line.goOffline(milliseconds: milliseconds)
      say("\(device.name) has no network for \(milliseconds) ms")
    case .writeMeanwhile(_, let number, let change): planWrite(change, on: device, afterAnswer: number)
    case .compactMeanwhile(_, let number): try await planCompaction(on: device, afterAnswer: number)
    case .cutPower(_, 0):
      tally[.powerCut] += 1
      say("\(device.name) loses power")
      try await restart(device, seed: next.seed)
    case .cutPower(_, let call):
      planned.cuts[device.number] = (call, next.seed)
      say("\(device.name) will lose power at its disk's call \(call)")
    case .compact(_, let milliseconds): try await compact(device, milliseconds)
    case .turnClock(_, let milliseconds):
      device.clock.turn(toOffMilliseconds: milliseconds)
      device.line.forgetWait()
      tally[.turnedClock] += 1
      say("\(device.name): the clock is off by \(milliseconds) ms")
    case .copy: try await copy(device)
    case .backUp:
      let store = try await device.open()
      try device.backUp(at: store.durableLSN)
      say("\(device.name) is backed up at \(store.durableLSN)")
    case .restore: try await restore(device)
    case .emptyZone(_, let zone): try await emptyZone(zone, on: device)
    case .omit(_, let omission):
      device.line.plan(omission)
      say("\(device.name): the next feed from the beginning leaves out \(omission)")
    case .fillDisk(_, let spareBytes):
      device.disk.capacity = spareBytes.map { device.disk.usedBytes + $0 }
      say("\(device.name): the disk has \(spareBytes.map { "\($0) bytes" } ?? "room")")
    case .show(_, let record): try await show(record, on: device)
    case .editScreen(_, let record, let fields, let keeps):
      try await editScreen(record, fields, keeps: keeps, on: device)
    case .look(_, 0): try await look(at: device)
    case .look(_, let call): planned.visits[device.number] = (.look, call, next.seed)
    case .moveFolder(_, 0): try await moveFolder(of: device, seed: next.seed)
    case .moveFolder(_, let call): planned.visits[device.number] = (.move, call, next.seed)
    default: break
    }
  }

  /// Whether an error says that a device's disk is full, and it is.
  mutating func isFull(_ device: WorldDevice, _ error: StrandlineError) -> Bool {
    guard error.code == .diskFull, device.disk.capacity != nil else { return false }
    tally[.fullDisk] += 1
    // The wait that the server asked for may not have been written down.
    device.line.forgetWait()
    return true
  }

  // MARK: The app

  private mutating func write(_ changes: [WorldChange], on device: WorldDevice) async throws {
    let store = try await device.open()
    if case .tally(let record, _)? = changes.first, try !tallies.mayChange(plan.names.records[record], in: store) {
      return
    }
    let mark = "\(device.name).\(step)"
    let before = store.durableLSN
    let known = try births(of: changes, in: store)
    arm(device)
    let names = plan.names
    do {
      let receipt = try store.writeBlocking { tx in
        for change in changes { try Self.apply(change, names, mark: mark, number: Int64(step), to: &tx) }
      }
      say("\(device.name) \(Self.words(changes)): \(receipt.lsns.map { "\($0)" } ?? "unchanged")")
      try remember(receipt, changes, known, on: device, in: store)
    } catch let error as StrandlineError {
      let isPlain = changes.allSatisfy { if case .set(_, _, false, false) = $0 { true } else { false } }
      var interrupted = WorldMemory.Interrupted(before: before, mark: mark, count: changes.count)
      if isMoved(device, error) {
        say("\(device.name) \(Self.words(changes)): the store was moved")
        interrupted.isRefused = true
        memory.interrupted[device.number] = interrupted
      } else if device.disk.isOff {
        tally[.powerCutInWrite] += 1
        say("\(device.name) \(Self.words(changes)): the power is cut")
        tallies.interrupt(changes, on: device.number)
        memory.interrupted[device.number] = isPlain ? interrupted : nil
        for change in changes {
          memory.mayBeDead(plan.names.records[change.record], known[change.record] ?? [])
        }
      } else if [.recordWasDeleted, .recordExists, .invalidValue, .typeMismatch].contains(error.code)
        || isForeignName(error)
      {
        say("\(device.name) \(Self.words(changes)): \(error.code.rawValue)")
      } else if isFull(device, error) {
        say("\(device.name) \(Self.words(changes)): the disk is full")
      } else {
        throw WorldBroken(.honest, "\(device.name) cannot write: \(error)")
      }
    }
    try await endPlanned(device)
  }

  /// A person deletes every record of a zone.
  private mutating func emptyZone(_ zone: Int, on device: WorldDevice) async throws {
    let store = try await device.open()
    var changes: [WorldChange] = []
    for (number, id) in plan.names.records.enumerated() where id.zone == plan.names.zones[zone] {
      if try store.record(id) != nil { changes.append(.delete(record: number)) }
    }
    guard !changes.isEmpty else { return }
    tally[.emptiedZone] += 1
    try await write(changes, on: device)
    // The disk may have been full, or the power cut.
    let written = try await device.open()
    if case .delete(let record)? = changes.first, try written.record(plan.names.records[record]) == nil {
      tallies.delete(plan.names.zones[zone])
    }
  }

  /// A person has a deleted record back as it was last, instead of an app creating it; false if it is there, or never was.
  private mutating func restoreRecord(_ changes: [WorldChange], on device: WorldDevice) async throws -> Bool {
    guard case .set(let record, _, _, true)? = changes.first, changes.count == 1 else { return false }
    let store = try await device.open()
    let id = plan.names.records[record]
    guard try store.record(id) == nil else { return false }
    arm(device)
    do {
      let receipt = try await store.restore(id)
      say("\(device.name) restores \(id): \(receipt.lsns.map { "\($0)" } ?? "unchanged")")
      tally[.restoredRecord] += 1
      // It writes each field that the record had.
      let fields = WorldPlan.fields.indices.map { field in
        WorldChange.set(record: record, field: field, isNil: false, revives: true)
      }
      try remember(receipt, fields, [:], on: device, in: store)
    } catch let error as StrandlineError {
      if isMoved(device, error) {
        say("\(device.name) cannot restore \(id): the store was moved")
      } else if device.disk.isOff {
        tally[.powerCutInWrite] += 1
      } else if error.code == .noSuchRecord || isForeignName(error)
        || (error.code == .invalidValue && error.message.contains("below itself"))
      {
        try await endPlanned(device)
        return false
      } else if isFull(device, error) {
        say("\(device.name) cannot restore \(id): the disk is full")
      } else {
        throw WorldBroken(.honest, "\(device.name) cannot restore \(id): \(error)")
      }
    }
    try await endPlanned(device)
    return true
  }

  /// Whether an app was told that it cannot begin a record under one of the names that only other tools make.
  private func isForeignName(_ error: StrandlineError) -> Bool {
    error.code == .invalidName && plan.faults.contains(.names)
  }

  /// The births of the records that a transaction changes, as the app sees them before it.
  private func births(of changes: [WorldChange], in store: RecordStore) throws -> [Int: Set<Birth>] {
    try store.core.withLock { core in
      var births: [Int: Set<Birth>] = [:]
      for change in changes {
        births[change.record] = try core.view(plan.names.records[change.record])?.version.stamp.births
      }
      return births
    }
  }

  static func apply(
    _ change: WorldChange, _ names: WorldNames, mark: String, number: Int64, to tx: inout WriteTransaction
  ) throws {
    let id = names.records[change.record]
    func found() throws -> Record {
      try tx.record(id) ?? Record(type: WorldPlan.types[WorldPlan.type(of: change.record)], id: id)
    }
    switch change {
    case .set(_, let field, let isNil, let revives):
      let isThere = try tx.record(id) != nil
      var record = try found()
      record[WorldPlan.fields[field]] = isNil ? nil : value(field, mark, number)
      // Only an explicit creation brings back a record that was deleted.
      if isThere || !revives { try tx.save(record) } else { try tx.create(record) }
    case .parent(_, let target):
      var record = try found()
      let above = try target.flatMap { try tx.record(names.records[$0]) }?.id
      record.parent = try above.flatMap { try isAbove(id, $0, tx) ? nil : $0.name }
      try tx.save(record)
    case .link(_, let target, let action):
      var record = try found()
      // An app refers only to what it sees.
      var visible = try target.flatMap { try tx.record(names.records[$0]) }
      if record.type == "Task", let above = visible, try isAbove(id, above.id, tx) { visible = nil }
      let taken = names.linksValidate || action != .validate ? action : .none
      record[WorldPlan.linkField] = visible.map { .reference(Reference($0.id.name, action: taken)) }
      try tx.save(record)
    case .create(_, let type, let field):
      try tx.delete(id)
      try tx.create(
        Record(
          type: WorldPlan.types[type], id: id, fields: [WorldPlan.fields[field]: value(field, mark, number)]))
    case .delete: try tx.delete(id)
    case .tally(_, let what):
      if var record = try tx.record(id) {
        what.apply(to: &record)
        try tx.save(record)
      } else {
        try tx.save(Record(type: WorldPlan.tallyType, id: id, fields: WorldTallyChange.beginning))
      }
    case .saveDefault:
      var record = try found()
      record.fields = WorldDefaults.fields(mark, number)
      try tx.saveDefault(record)
    case .edit(_, let field):
      guard var record = try tx.record(id) else { return }
      record[WorldPlan.fields[field]] = value(field, mark, number)
      try tx.save(record)
    }
  }

  /// Whether a record is another one, or above it: a store takes no circle of parents. One that two devices have made together
  /// has no end.
  private static func isAbove(_ id: RecordID, _ other: RecordID, _ tx: borrowing WriteTransaction) throws -> Bool {
    var met: Set<RecordID> = []
    var next = other
    while next != id {
      guard met.insert(next).inserted, let record = try tx.record(next) else { return false }
      var name = record.parent
      if record.type == "Task" {
        guard case .reference(let link)? = record[WorldPlan.linkField] else { return false }
        name = link.name
      }
      guard let name else { return false }
      next = RecordID(name, zone: id.zone)
    }
    return true
  }

  /// A value that no other write has.
  static func value(_ field: Int, _ mark: String, _ number: Int64) -> FieldValue {
    WorldPlan.fields[field] == "count"
      ? .int64(number * 1_000 + Int64(mark.utf8.reduce(0) { ($0 &* 31 &+ Int($1)) % 1_000 })) : .string(mark)
  }

  mutating func remember(
    _ receipt: Receipt, _ changes: [WorldChange], _ known: [Int: Set<Birth>], on device: WorldDevice,
    in store: RecordStore
  ) throws {
    tally[.write] += 1
    if Set(changes.map(\.record)).count > 1 { tally[.together] += 1 }
    guard let lsns = receipt.lsns else {
      if case .saveDefault? = changes.first { tally[.knownDefault] += 1 }
      return
    }
    device.acknowledge(lsns.upperBound)
    for change in changes {
      let id = plan.names.records[change.record]
      switch change {
      case .delete: if bury(id, known[change.record], by: device, at: lsns.upperBound) { tally[.delete] += 1 }
      case .create(_, let type, _):
        if bury(id, known[change.record], by: device, at: lsns.upperBound) { tally[.recreate] += 1 }
        if type != WorldPlan.type(of: change.record) {
          tally[.retype] += 1
          memory.retyped.insert(id)
        }
      case .link, .parent: tally[.reference] += 1
      case .tally: tally[.equalWrite] += 1
      case .saveDefault:
        tally[.savedDefault] += 1
        memory.saved(defaultOf: id, by: device.number, at: lsns.upperBound)
        try judgeDefault(id, at: lsns.upperBound, on: device, in: store)
      case .edit: tally[.editedDefault] += 1
      case .set: break
      }
    }
    memory.remember(try WorldMemory.Write.all(lsns, changes, on: device, in: store, at: time.milliseconds))
    try together.remember(lsns, on: device.number, in: store)
    try tallies.remember(lsns, changes, on: device.number, in: store)
    for lsn in lsns.lowerBound.rawValue...lsns.upperBound.rawValue {
      memory.acknowledged[device.number, default: [:]][LSN(rawValue: lsn)] =
        try store.source.event(at: LSN(rawValue: lsn)).recordID
    }
    if step.isMultiple(of: 4), !device.disk.isOff {
      try judgeReader(of: device, changes, upTo: lsns.upperBound, in: store)
    }
  }

  /// What a write has returned, a reader in another process finds at once.
  private mutating func judgeReader(
    of device: WorldDevice, _ changes: [WorldChange], upTo lsn: LSN, in store: RecordStore
  ) throws {
    tally[.otherReader] += 1
    let reader = try device.reader()
    guard reader.durableLSN >= lsn else {
      throw WorldBroken(.durable, "\(device.name): a reader opened after event \(lsn) shows \(reader.durableLSN)")
    }
    for change in changes {
      let id = plan.names.records[change.record]
      let (written, found) = (try store.record(id), try reader.record(id))
      guard written == found else {
        throw WorldBroken(.durable, "\(device.name): a reader shows \(id) as \(found.map { "\($0)" } ?? "absent")")
      }
    }
  }

  /// Remembers that an app was told of the end of a life. Returns false if there was none.
  private mutating func bury(_ id: RecordID, _ births: Set<Birth>?, by device: WorldDevice, at lsn: LSN) -> Bool {
    guard let births, !births.isEmpty else { return false }
    memory.dead(id, births, by: device.number, at: lsn)
    return true
  }

  private func planWrite(_ change: WorldChange, on device: WorldDevice, afterAnswer number: Int) {
    let (step, meanwhile, time, names, tallies) = (step, memory.meanwhile, time, plan.names, tallies)
    device.line.plan(afterAnswer: number) {
      guard let store = device.store else { return }
      if case .tally(let record, _) = change,
        (try? tallies.mayChange(names.records[record], in: store)) != true
      {
        return
      }
      // The write throws if the name was deleted meanwhile, and if the power was cut; both are as they must be.
      let written = try? store.writeBlocking { tx in
        try Self.apply(change, names, mark: "\(device.name).\(step)", number: Int64(step), to: &tx)
      }
      guard let lsns = written?.lsns else {
        if written == nil { tallies.interrupt([change], on: device.number) }
        return
      }
      // The power may be cut by now, and what was acknowledged is there all the same.
      if (try? tallies.remember(lsns, [change], on: device.number, in: store)) == nil {
        tallies.interrupt([change], on: device.number)
      }
      // The power may be cut by now, and the events cannot be read.
      meanwhile.add((try? WorldMemory.Write.all(lsns, [change], on: device, in: store, at: time.milliseconds)) ?? [])
    }
  }

  static func words(_ changes: [WorldChange]) -> String {
    changes.map { "\($0)" }.joined(separator: " and ")
  }

  // MARK: Compaction, copies, power

  private mutating func compact(_ device: WorldDevice, _ milliseconds: Int64?) async throws {
    let store = try await device.open()
    try device.readOn()
    // Also one that fails may have done a part of its work.
    memory.acknowledged[device.number] = nil
    let report = try store.compactBlocking(
      keeping: milliseconds.map { .since(.milliseconds($0)) } ?? .latest, proof: .both)
    tally[.compaction] += 1
    say("\(device.name) compacts \(report.eventsBefore) events to \(report.eventsAfter)")
  }

  private mutating func planCompaction(on device: WorldDevice, afterAnswer number: Int) async throws {
    let (begun, compacted) = (memory.begunCompactions, memory.compacted)
    device.line.plan(afterAnswer: number) {
      guard let store = device.store, (try? device.readOn()) != nil else { return }
      begun.add()
      // It throws if the power was cut, perhaps after it has done its work.
      if (try? store.compactBlocking(keeping: .latest)) != nil { compacted.add() }
    }
    say("\(device.name) will compact after answer \(number)")
  }

  private mutating func copy(_ device: WorldDevice) async throws {
    _ = try await device.open()
    try device.readOn()
    let copy = addDevice(offMilliseconds: device.clock.offMilliseconds)
    if device.clock.isUnheard { copy.clock.forgetsTurn() }
    await copy.replaceDisk(by: device.image(), at: device.path, reading: device.reading)
    copy.line.omitted = device.line.omitted
    together.copy(device.number, to: copy.number)
    tallies.copy(device.number, to: copy.number)
    memory.copied(device.number, to: copy.number, at: device.reading.upTo)
    tally[.copy] += 1
    say("\(copy.name) begins as a copy of \(device.name)")
  }

  private mutating func restore(_ device: WorldDevice) async throws {
    guard let backup = device.backup else { return }
    _ = try await device.open()
    try device.readOn()
    await device.replaceDisk(by: backup.disk, at: backup.path, reading: forfeit(device, back: backup))
    device.line.forgetWait()
    tally[.restore] += 1
    say("\(device.name) gets its disk of event \(backup.lsn) back")
  }

  /// A device goes back to what it was: what it was told since may be gone.
  ///
  /// - Returns: the reading of the log with which the device goes on.
  mutating func forfeit(_ device: WorldDevice, back backup: WorldDevice.Backup) -> WorldReading {
    memory.forfeit(device.number, after: backup.lsn)
    together.forfeit(device.number, after: backup.lsn)
    tallies.forfeit(device.number, after: backup.lsn)
    if backup.turnCount != device.clock.turnCount { device.clock.forgetsTurn() }
    var reading = device.reading
    (reading.upTo, reading.listed) = (backup.lsn, backup.listed)
    reading.forgetEvents(after: backup.lsn)
    return reading
  }

  mutating func restart(_ device: WorldDevice, seed: UInt64) async throws {
    await device.restart(seed: seed)
    do {
      try await openWithRoom(device)
      try judgeRestart(device, in: try await device.open())
    } catch let error as StrandlineError {
      throw WorldBroken(.honest, "\(device.name) does not open after a power cut: \(error)")
    }
  }

  /// Opens a store; a person makes room for it if need be.
  mutating func openWithRoom(_ device: WorldDevice) async throws {
    do {
      _ = try await device.open()
    } catch let error as StrandlineError where isFull(device, error) {
      say("\(device.name) does not open on a full disk, and a person makes room")
      device.disk.capacity = nil
      _ = try await device.open()
    }
  }

  // MARK: Syncing

  /// Why a device syncs in a step.
  private func cause(_ direction: Int, _ seed: UInt64) -> WorldCause {
    guard plan.faults.contains(.automatic), !seed.isMultiple(of: 4) else { return WorldCause(direction: direction) }
    return WorldCause(direction: direction, isUserInitiated: false, asksForChanges: !seed.isMultiple(of: 3))
  }

  private mutating func sync(_ device: WorldDevice, _ cause: WorldCause) async throws {
    let store = try await device.open()
    let before = try owed(store)
    arm(device)
    let error = await sync(device, cause, owedBefore: before)
    // First: what the store does beside the sync could meet the cut after it was asked for.
    device.disk.crashAtCall = nil
    let isOff = device.disk.isOff
    let isMoved = (error as? StrandlineError).map { self.isMoved(device, $0) } ?? false
    if isOff { tally[.powerCutInSync] += 1 }
    // The wait may not have been written down yet.
    if isOff || device.fate != nil { device.line.forgetWait() }
    if memory.begunCompactions.take() > 0 { memory.acknowledged[device.number] = nil }
    takeCounts()
    // What the open store knows may be the explanation.
    if let error, !isOff, !isMoved { try explain(error, device) }
    try await endPlanned(device)
  }

  /// Now and then a person decides at once about a zone that was emptied, or made again.
  private mutating func decideLosses(on device: WorldDevice, _ seed: UInt64) async throws {
    guard !plan.faults.isDisjoint(with: [.remade, .omissions]), seed.isMultiple(of: 3), let store = device.store else {
      return
    }
    try history.readOn(server)
    for zone in try store.status().zones where zone.lostReason == .deleted && history.isThere(zone.id) {
      let source: ResyncSource = seed.isMultiple(of: 2) ? .here : .server
      try await store.engine.resync(zone.id, from: source)
      memory.decided(device.number, zone.id)
      say("\(device.name): a person has \(zone.id) synced again, from \(source)")
    }
  }

  /// Syncs and counts. Returns the error.
  mutating func sync(
    _ device: WorldDevice, _ cause: WorldCause, owedBefore: [RecordID: LSN]
  ) async -> (any Error)? {
    device.line.beginSync()
    let over = overHolds(device)
    if !cause.isUserInitiated { tally[.automaticSync] += 1 }
    let word =
      ["", " down", " up"][cause.direction]
      + (cause.isUserInitiated ? "" : cause.asksForChanges ? " by itself" : " after a write")
    do {
      let report = try await device.syncNow(cause)
      device.clock.heardServer()
      let requests = device.line.endSync()
      tally.requestsMax = max(tally.requestsMax, requests)
      tally[.sync] += 1
      tally[.uploaded] += report.uploaded
      tally[.fetched] += report.fetchedSaves + report.fetchedDeletes
      tally[.merged] += report.merged
      tally[.recognized] += report.recognized
      tally[.blocked] += report.blocked
      // At rest only what still happens is told.
      let words = isTold ? Self.words(report) : ""
      if step >= 0 || words.contains(",") { say("\(device.name) syncs\(word): \(words)") }
      if requests > 100 { return WorldBroken(.polite, "\(device.name) sent \(requests) requests in one sync") }
      // Only a sync in both directions settles what it meets on the way.
      if cause.direction == 0 { return silence(device, owedBefore) ?? endlessHold(device, over) }
      return nil
    } catch {
      tally[.failedSync] += 1
      let requests = device.line.endSync()
      say("\(device.name) syncs\(word): throws \(error)")
      return requests > 100 ? WorldBroken(.polite, "\(device.name) sent \(requests) requests in one sync") : error
    }
  }

  private static func words(_ report: SyncReport) -> String {
    let counts = [
      ("requests", report.requests), ("fetched", report.fetchedSaves), ("fetched deletions", report.fetchedDeletes),
      ("echoes", report.echoes), ("uploaded", report.uploaded), ("recognized", report.recognized),
      ("merged", report.merged), ("blocked", report.blocked), ("held", report.held),
    ]
    return counts.filter { $0.1 > 0 }.map { "\($0.0) \($0.1)" }.joined(separator: ", ")
  }

  /// Whether the world's faults explain that a sync has thrown.
  private mutating func explain(_ error: any Error, _ device: WorldDevice) throws {
    if let broken = error as? WorldBroken { throw broken }
    guard let error = error as? StrandlineError else {
      throw WorldBroken(.honest, "\(device.name) cannot sync: \(error)")
    }
    if isFull(device, error) || error.code.isTransient { return }
    // What a person has to end, and a halt, may last longer than the refusal.
    if error.code == .needsSignIn, plan.faults.contains(.refusals) { return }
    if error.code == .serverRefused, let halts = try? device.store?.engine.status.halts,
      halts.contains(where: mayBeHalted)
    {
      return
    }
    let isRefused = isQuotaFull || !refusals.all.isEmpty || memory.hasRefused
    if isRefused, [.serverRefused, .needsSignIn].contains(error.code) { return }
    if error.code == .serverRefused, !history.lostZones.isEmpty { return }
    if error.code == .zoneLost, let lost = try device.store?.status().zones.filter(\.isLost),
      lost.allSatisfy({ mayBeLost($0, device) })
    {
      return
    }
    throw WorldBroken(.honest, "\(device.name) cannot sync: \(error)")
  }

  /// Whether a fault of the world can have a device wait for a person because of a zone.
  private func mayBeLost(_ zone: StoreStatus.Zone, _ device: WorldDevice) -> Bool {
    // It was deleted, or a feed left out the deletions of all that the device knows.
    if history.lostZones.contains(zone.id) || device.line.omitted.contains(zone.id) { return true }
    // A device has emptied a crowded zone, and another one hears of it by a fetch from the beginning.
    return tally[.emptiedZone] > 0 && tally[.crowd] > 0 && zone.lostReason == .missingRecords
  }

  /// Whether a fault of the world can have caused a halt.
  private func mayBeHalted(_ halt: SyncStatus.Halt) -> Bool {
    if halt.type != nil { return plan.faults.contains(.refusals) }
    return denials.hasDenied(halt.zone)
      || (plan.faults.contains(.quota) && halt.code == .quotaExceeded)
  }

  mutating func takeCounts() {
    tally[.compactionInSync] += memory.compacted.take()
    let meanwhile = memory.meanwhile.take()
    tally[.writeInSync] += meanwhile.count
    memory.remember(meanwhile.fields)
    let count = refused.take()
    tally[.refusal] += count
    memory.hasRefused = count > 0
    tally[.deniedRequest] += denials.takeCount()
  }

  // MARK: The server and other tools

  private mutating func disturb(_ next: WorldStep) async throws {
    let names = plan.names
    var faults = server.faults
    faults.expireTokens = false
    switch next.action {
    case .throttle(let status, let retryAfter, let requests):
      faults.throttle = .init(status: status, retryAfter: retryAfter.map(Double.init), requests: requests)
      server.setFaults(faults)
    case .quota(let isFull):
      if isFull, !isQuotaFull { tally[.fullQuota] += 1 }
      isQuotaFull = isFull
      faults.quotaExceeded = isFull
      server.setFaults(faults)
    case .expireTokens:
      tally[.expiredTokens] += 1
      faults.expireTokens = true
      server.setFaults(faults)
    case .stalePages(let isOn):
      faults.replayPage = isOn
      server.setFaults(faults)
    case .refuse(let record, let code, let times):
      let code = WorldRefusals.codes[code % WorldRefusals.codes.count]
      refusals.plan(names.records[record], code, times: times)
      say("the server refuses \(names.records[record]) \(times) times with \(code.rawValue)")
      return
    case .deny(let zone, let isDenied): denials.set(names.zones[zone], isDenied)
    case .deleteZone(let zone):
      guard try server.records(zone: names.zones[zone].name, in: Self.key) != nil else { return }
      tally[.deletedZone] += 1
      tallies.delete(names.zones[zone])
      losses.name(WorldLosses.reasons[Int(next.seed % 3)], for: names.zones[zone])
      try server.deleteZone(names.zones[zone].name, in: Self.key)
      try history.readOn(server)
    case .makeZone(let zone):
      // The tool is not throttled: it is not what is tested.
      server.setFaults(ServerFaults())
      defer { server.setFaults(faults) }
      try await tool.createZone(names.zones[zone])
    case .remakeZone(let zone):
      guard try server.records(zone: names.zones[zone].name, in: Self.key) != nil else { return }
      tally[.remadeZone] += 1
      tallies.delete(names.zones[zone])
      try server.deleteZone(names.zones[zone].name, in: Self.key)
      for device in devices { device.line.forgetPages(of: names.zones[zone]) }
      server.setFaults(ServerFaults())
      defer { server.setFaults(faults) }
      try await tool.createZone(names.zones[zone])
      try history.readOn(server)
    case .crowd(let count):
      server.setFaults(ServerFaults())
      defer { server.setFaults(faults) }
      try await makeCrowd(of: count)
    case .foreign(let record, let change):
      server.setFaults(ServerFaults())
      defer { server.setFaults(faults) }
      try await foreign(change, names.records[record], mark: "tool.\(next.number)", number: Int64(next.number))
      return
    default: break
    }
    say("the server: \(next.action)")
  }

  private mutating func foreign(
    _ change: WorldForeignChange, _ id: RecordID, mark: String, number: Int64
  ) async throws {
    guard try server.records(zone: id.zone.name, in: Self.key) != nil else { return }
    let old = try server.record(id.name, zone: id.zone.name, in: Self.key)
    var operation = CloudOperation(.forceUpdate, name: id.name, type: old?.type ?? WorldPlan.types[0])
    switch change {
    case .write(let field):
      operation.fields = [WorldPlan.fields[field]: Self.value(field, mark, number)]
      tally[.foreignWrite] += 1
    case .garbageStamp:
      guard old != nil else { return }
      operation.fields = [Names.stampField: .bytes(Array(mark.utf8))]
      tally[.garbageStamp] += 1
    case .delete:
      guard old != nil else { return }
      operation = CloudOperation(.forceDelete, name: id.name)
      tally[.foreignDelete] += 1
    }
    if plan.lagMilliseconds > 0, serverClock.nextRequest() { tally[.otherNode] += 1 }
    try history.readOn(server)
    let result = try await tool.modify([operation], in: id.zone, atomic: false)[id.name]
    try history.readOn(server, isForeign: true)
    memory.foreign.insert(id)
    say("another tool: \(change) of \(id): \(result.map { "\($0)".prefix(60) } ?? "-")")
  }

  /// Another tool makes many records at once, those that are not there.
  private mutating func makeCrowd(of count: Int) async throws {
    let zone = plan.names.zones[0]
    if try server.records(zone: zone.name, in: Self.key) == nil { try await tool.createZone(zone) }
    var operations: [CloudOperation] = []
    for (number, id) in plan.names.crowd.prefix(count).enumerated() {
      guard try server.record(id.name, zone: zone.name, in: Self.key) == nil else { continue }
      var operation = CloudOperation(.create, name: id.name, type: WorldPlan.types[0])
      operation.fields = [WorldPlan.fields[0]: Self.value(0, "crowd.\(number)", Int64(number))]
      operations.append(operation)
      memory.foreign.insert(id)
    }
    tally[.crowd] += 1
    try history.readOn(server)
    _ = try await tool.modify(operations, in: zone, atomic: false)
    try history.readOn(server, isForeign: true)
  }

  /// Another tool makes what no app can begin.
  private mutating func makeForeignRecords() async throws {
    guard plan.faults.contains(.names) else { return }
    for zone in plan.names.zones { try await tool.createZone(zone) }
    for (number, id) in plan.names.foreign.enumerated() {
      try await foreign(.write(field: 0), id, mark: "tool.begin.\(number)", number: Int64(number))
      tally[.equalName] += 1
    }
  }

  /// A person looks at what a device cannot send because of a reference, and takes the reference away: to a record that is
  /// not there any more, or that another device wants to delete.
  mutating func mendReferences() async throws {
    var unwanted: Set<RecordID> = []
    var owing: [(device: WorldDevice, ids: [RecordID])] = []
    for device in devices {
      let store = try await device.open()
      let ids = try owed(store).keys.sorted()
      owing.append((device, ids))
      for id in ids where try store.record(id) == nil { unwanted.insert(id) }
      // The server changes a record's type only by deleting it, which a reference to it forbids too.
      for held in try store.heldRecords() where held.code == .validatingReferenceError { unwanted.insert(held.id) }
    }
    for device in devices {
      let store = try await device.open()
      let ids = owing.first { $0.device.number == device.number }?.ids ?? []
      for id in plan.names.single {
        guard var record = try store.record(id) else { continue }
        func isGone(_ name: String) throws -> Bool {
          let target = RecordID(name, zone: id.zone)
          if unwanted.contains(target) { return true }
          return try ids.contains(id) && store.record(target) == nil
        }
        var isMended = false
        if case .reference(let reference)? = record[WorldPlan.linkField], try isGone(reference.name) {
          record[WorldPlan.linkField] = nil
          isMended = true
        }
        if let parent = record.parent, try isGone(parent) {
          record.parent = nil
          isMended = true
        }
        guard isMended else { continue }
        let mended = record
        try store.writeBlocking { tx in try tx.save(mended) }
        say("\(device.name): a person takes the reference of \(id) away")
      }
    }
  }

  /// The zones that do not exist are made again, as a person would let a tool do it.
  mutating func makeZones() async throws {
    for zone in plan.names.zones where history.lostZones.contains(zone) { try await tool.createZone(zone) }
  }

  /// All faults of the server end, but for refusals of single records, and all disks have room.
  mutating func healServer() {
    isQuotaFull = false
    denials.end()
    tally[.stalePage] += server.statistics.replayedPages
    server.setFaults(ServerFaults())
    for device in devices {
      device.line.heal()
      device.disk.capacity = nil
    }
  }
}

/// A count that several closures share.
final class Atomic64: Sendable {
  private let count = Atomic<Int>(0)
  func add() { count.add(1, ordering: .relaxed) }
  func take() -> Int { count.exchange(0, ordering: .relaxed) }
}
