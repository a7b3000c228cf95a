// What happens in a simulated world, as data: a list of steps that follows from the seed alone. Each step has a seed of its
// own, so a world that leaves some steps out does the same in the others. So a failure can be shrunk, printed, and
// repeated by the numbers of the steps that are left.

internal import Strandline
internal import StrandlineSystem

/// A change to one record in an app's transaction. Records, fields and types are numbers into the world's names.
enum WorldChange: Hashable, Sendable {
  /// Writes a field, or removes its value. If the record does not live, it is created, or the write is refused if it has
  /// been deleted.
  case set(record: Int, field: Int, isNil: Bool, revives: Bool)
  /// Puts a record below another one of its zone, or takes it from there.
  case parent(record: Int, Int?)
  /// Lets a record refer to another one of its zone, or to none.
  case link(record: Int, Int?, Reference.Action)
  /// Begins a new life of a record, with one field. If it lives, that life is deleted first.
  case create(record: Int, type: Int, field: Int)
  case delete(record: Int)
  /// A change that other devices make too, of a record that has no other changes.
  case tally(record: Int, WorldTallyChange)
  /// Saves what a record begins with.
  case saveDefault(record: Int)
  /// Writes a field of a record that the app sees.
  case edit(record: Int, field: Int)

  var record: Int {
    switch self {
    case .set(let record, _, _, _), .parent(let record, _), .link(let record, _, _), .create(let record, _, _),
      .delete(let record), .tally(let record, _), .saveDefault(let record), .edit(let record, _):
      record
    }
  }
}

/// What becomes of one request on its way.
enum WorldRequestFault: Hashable, Sendable {
  /// The server never gets it.
  case requestLost
  /// The server does what is asked, and its answer never comes.
  case answerLost
  /// The server gets it twice; the device gets the first answer, or the second.
  case twice(second: Bool)
  case late(milliseconds: Int64)
  /// If it asks for changes of zones, the device gets an earlier page of each, as many pages back as this says.
  case oldAnswer(back: Int, WorldOldAnswer)
}

/// How a page of before is shown again. Each says that more is to come: of an answer that said it was the last one no
/// device could tell that it is old.
enum WorldOldAnswer: Hashable, Sendable, CaseIterable {
  /// With the token that was asked with.
  case repeated
  /// With its own token, which takes the device back to where it was.
  case rewound
  /// Without its changes, and with the token that was asked with.
  case empty
  /// Without its versions: the tombstones of before.
  case tombstones
}

/// What a page of a feed from the beginning leaves out.
enum WorldOmission: Hashable, Sendable, CaseIterable {
  /// Everything, and it says that it was the last one.
  case all
  /// Every second record.
  case half
  /// Nothing, but it says too early that it was the last one.
  case rest
}

/// What another tool does at the server.
enum WorldForeignChange: Hashable, Sendable {
  case write(field: Int)
  case garbageStamp
  case delete
}

/// What happens in a step.
enum WorldAction: Hashable, Sendable {
  /// An app's transaction.
  case write(device: Int, [WorldChange])
  /// A sync: 0 both directions, 1 only down, 2 only up.
  case sync(device: Int, direction: Int)
  /// What happens to the n-th request of the device's next sync.
  case request(device: Int, number: Int, WorldRequestFault)
  /// The device has no network for a while.
  case offline(device: Int, milliseconds: Int64)
  /// The app writes after the n-th answer of the device's next sync.
  case writeMeanwhile(device: Int, number: Int, WorldChange)
  /// The store is compacted after the n-th answer of the device's next sync.
  case compactMeanwhile(device: Int, number: Int)
  /// The power is cut at the n-th call of the device's next step that changes the disk; 0: now.
  case cutPower(device: Int, call: Int)
  case compact(device: Int, keepsMilliseconds: Int64?)
  case turnClock(device: Int, milliseconds: Int64)
  /// The server is busy.
  case throttle(status: Int, retryAfter: Int?, requests: Int)
  /// The server refuses the next so many changes of a record.
  case refuse(record: Int, code: Int, times: Int)
  case quota(isFull: Bool)
  case expireTokens
  case deleteZone(Int)
  case makeZone(Int)
  case foreign(record: Int, WorldForeignChange)
  case stalePages(Bool)
  /// The zone is deleted and made again.
  case remakeZone(Int)
  /// Another tool makes so many records in the first zone.
  case crowd(Int)
  /// The device deletes every record of a zone that it sees.
  case emptyZone(device: Int, zone: Int)
  /// The next page of a feed from the beginning that the device asks for leaves records out.
  case omit(device: Int, WorldOmission)
  /// The server refuses every change of a zone, or does so no more.
  case deny(zone: Int, Bool)
  /// The disk has so many bytes left; nil: as many as it wants.
  case fillDisk(device: Int, spareBytes: Int?)
  /// A new device begins with a copy of this one's disk.
  case copy(device: Int)
  /// Keeps the disk as it is, for a later `restore`.
  case backUp(device: Int)
  case restore(device: Int)
  /// A person looks at a record.
  case show(device: Int, record: Int)
  /// A person changes fields of what a screen shows, and the app saves it, and goes on with what the save returned or with what it
  /// saved.
  case editScreen(device: Int, record: Int, fields: [Int], keeps: Bool)
  /// A process that only reads the device's store looks what is new: before the n-th call of the device's next step that changes
  /// the disk; 0: now.
  case look(device: Int, call: Int)
  /// A person moves the folder of the device's open store: before the n-th call of the device's next step that changes the disk; 0:
  /// now. After that step the app finds out, and opens the store where it is.
  case moveFolder(device: Int, call: Int)

  /// The device that the step is about, if it is about one.
  var device: Int? {
    switch self {
    case .write(let device, _), .sync(let device, _), .request(let device, _, _), .offline(let device, _),
      .writeMeanwhile(let device, _, _), .compactMeanwhile(let device, _), .cutPower(let device, _),
      .compact(let device, _), .turnClock(let device, _), .copy(let device), .backUp(let device), .restore(let device),
      .fillDisk(let device, _), .emptyZone(let device, _), .omit(let device, _), .show(let device, _),
      .editScreen(let device, _, _, _), .look(let device, _), .moveFolder(let device, _):
      device
    case .throttle, .refuse, .quota, .expireTokens, .deleteZone, .makeZone, .foreign, .stalePages, .deny,
      .remakeZone, .crowd:
      nil
    }
  }
}

/// A step of a plan.
struct WorldStep: Hashable, Sendable {
  /// Its place in the plan of the seed, from 0.
  var number: Int
  /// Milliseconds that pass before it.
  var pause: Int64
  var seed: UInt64
  var action: WorldAction
}

/// A world before it runs.
struct WorldPlan: Sendable {
  static let zones = [ZoneID("Main"), atomicZone]
  /// The zone in which a transaction is uploaded as it was written.
  static let atomicZone = ZoneID("Work")
  static let types = ["Note", "Task"]
  static let fields = ["title", "body", "count"]
  static let namesPerZone = 4
  static let linkField = "link"
  /// A few, so that devices meet at the same ones. Then come the records that several devices change alike.
  static let recordCount = zones.count * namesPerZone
  /// The type of the records that several devices change alike.
  static let tallyType = "Tally"

  /// The type under which a record is created unless a step says another one.
  static func type(of record: Int) -> Int { record % 2 }

  let seed: UInt64
  /// Devices at the beginning.
  let devices: Int
  /// The groups that this world has.
  let faults: WorldFaults
  /// What its zones and records are called.
  /// Whether apps write references with VALIDATE.
  var linksValidate = true
  var names: WorldNames {
    var names = faults.contains(.names) ? WorldNames.equal : .usual
    names.linksValidate = linksValidate
    return names
  }
  /// How far each device's wall clock is off at first, in milliseconds.
  private(set) var clockOffsets: [Int64] = []
  /// Whether pages of changes hold two records at most.
  let hasSmallPages: Bool
  /// Whether a new device joins when the world has come to rest.
  let hasLateDevice: Bool
  private(set) var steps: [WorldStep] = []
  /// By how much one of the server's nodes is late by its clock, compared with the other one; 0: there is one node.
  private(set) var lagMilliseconds: Int64 = 0

  init(seed: UInt64, devices: Int, days: Int, allowed: WorldFaults) {
    self.seed = seed
    self.devices = devices
    let random = SeededRandom(seed: seed &* 0x9E37_79B9_7F4A_7C15 ^ 0x5742_4C44)
    var faults: WorldFaults = []
    // Drawn for every group, so that what one group does in a seed does not depend on which others are allowed.
    let early = WorldFaults.each.filter { !WorldFaults.later.union(.alone).contains($0) }
    for group in early where random.below(2) == 0 { faults.insert(group) }
    let others = SeededRandom(seed: seed &* 0xD1B5_4A32_D192_ED03 ^ 0x4C41_5445)
    for group in WorldFaults.each where WorldFaults.later.contains(group) && others.below(2) == 0 {
      faults.insert(group)
    }
    for group in WorldFaults.each where WorldFaults.alone.contains(group) && Self.random(seed, group).below(2) == 0 {
      faults.insert(group)
    }
    self.faults = faults.intersection(allowed)
    hasSmallPages = random.below(2) == 0
    hasLateDevice = random.below(4) == 0
    let years = SeededRandom(seed: random.next())
    for _ in 0..<devices { clockOffsets.append(self.faults.contains(.clocks) ? Self.offset(years) : 0) }
    for number in clockOffsets.indices { clockOffsets[number] += Int64(random.below(20_000)) - 10_000 }
    let drawn = self.faults.subtracting(WorldFaults.later.union(.alone))
    var drawing = WorldDrawing(devices: devices, faults: drawn, random: random)
    let count = days * (50 + Int(random.below(60)))
    let pauseMax = UInt64(2 * 86_400_000 * days / count)
    for _ in 0..<count {
      // Half of the pauses are short, as between the actions of one person, so that the others make up the days.
      let pause = random.below(2) == 0 ? random.below(3_000) : random.below(2 * pauseMax)
      for (place, action) in drawing.next().enumerated() {
        steps.append(
          WorldStep(number: steps.count, pause: place == 0 ? Int64(pause) : 0, seed: random.next(), action: action))
      }
    }
    if self.faults.contains(.rights) {
      strew(days, others) { .deny(zone: $0.below(Self.zones.count), $0.below(2) == 0) }
    }
    if self.faults.contains(.space) {
      strew(days, others) {
        .fillDisk(
          device: $0.below(devices), spareBytes: $0.below(2) == 0 ? $0.below($0.below(2) == 0 ? 1 : 30_000) : nil)
      }
    }
    lagMilliseconds = self.faults.contains(.nodes) ? Self.lag(Self.drawing(seed, .nodes)) : 0
    if self.faults.contains(.equal) { strewEqual(days, Self.drawing(seed, .equal)) }
    if self.faults.contains(.remade) { strewRemade(days) }
    if self.faults.contains(.omissions) { strewOmissions(days) }
    if self.faults.contains(.crowds) { strewCrowd() }
    if self.faults.contains(.readers) { strewVisits(4 * days, .readers) { .look(device: $0, call: $1) } }
    if self.faults.contains(.moves) { strewVisits(3 * days, .moves) { .moveFolder(device: $0, call: $1) } }
    if self.faults.contains(.screens) {
      let random = Self.drawing(seed, .screens)
      for _ in 0..<6 { strew(days, random, Self.screen(of: devices)) }
    }
    if self.faults.contains(.defaults) { strewDefaults(days) }
  }

  /// A zone with one record, or with 99 to 130 beside others, which all devices fetch, and of which many or all are gone or not
  /// shown later. With pages of two records a fetch of the many would take more requests than any sync may send.
  private mutating func strewCrowd() {
    let random = Self.drawing(seed, .crowds)
    guard !hasSmallPages, random.below(2) == 0 else { return }
    let count = random.below(3) == 0 ? 1 : 99 + random.below(WorldNames.crowdMax - 98)
    let device = random.below(devices)
    let sync = WorldAction.sync(device: device, direction: 0)
    let syncs = (0..<devices).map { WorldAction.sync(device: $0, direction: 0) }
    // The one record is alone: what was there before is gone on every device.
    let crowd = (count == 1 ? [.emptyZone(device: device, zone: 0), sync] + syncs : []) + [.crowd(count)]
    for _ in 0...random.below(2) {
      let omission = WorldOmission.allCases[random.below(WorldOmission.allCases.count)]
      switch random.below(3) {
      case 0: insert(crowd + syncs + [.remakeZone(0), sync], random)
      case 1: insert(crowd + syncs + [.emptyZone(device: random.below(devices), zone: 0), sync], random)
      default: insert(crowd + syncs + [.omit(device: device, omission), .expireTokens, sync], random)
      }
    }
  }

  /// What others do in a store's folder: between two steps, or in the middle of a write or a sync, which follows then.
  private mutating func strewVisits(
    _ countMax: Int, _ group: WorldFaults, _ visit: (_ device: Int, _ call: Int) -> WorldAction
  ) {
    let random = Self.drawing(seed, group)
    for _ in 0..<countMax * (1 + random.below(3)) {
      let device = random.below(devices)
      switch random.below(5) {
      case 0: insert([visit(device, 0)], random)
      case 1, 2:
        let change = WorldChange.set(
          record: random.below(Self.recordCount), field: random.below(Self.fields.count), isNil: false, revives: true)
        insert([visit(device, 1 + random.below(4)), .write(device: device, [change])], random)
      default:
        let call = 1 + random.below(random.below(3) == 0 ? 60 : 12)
        insert([visit(device, call), .sync(device: device, direction: 0)], random)
      }
    }
  }

  /// The random numbers of one group.
  private static func random(_ seed: UInt64, _ group: WorldFaults) -> SeededRandom {
    SeededRandom(seed: (seed ^ UInt64(group.rawValue) << 32) &* 0xA24B_AED4_963E_E407)
  }

  /// The same, after the one that has decided whether the world has the group.
  private static func drawing(_ seed: UInt64, _ group: WorldFaults) -> SeededRandom {
    let random = random(seed, group)
    _ = random.next()
    return random
  }

  /// Zones that are made again, or emptied.
  private mutating func strewRemade(_ days: Int) {
    let random = Self.drawing(seed, .remade)
    for _ in 0..<days * (1 + random.below(3)) {
      let zone = random.below(Self.zones.count)
      let device = random.below(devices)
      if random.below(2) == 0 {
        insert([.remakeZone(zone)], random)
      } else {
        insert([.emptyZone(device: device, zone: zone), .sync(device: device, direction: 0)], random)
      }
    }
  }

  /// Feeds that leave records out, which follow upon refused tokens; and deletions that the server does not find.
  private mutating func strewOmissions(_ days: Int) {
    let random = Self.drawing(seed, .omissions)
    for _ in 0..<days * (2 + random.below(4)) {
      let device = random.below(devices)
      let omission = WorldOmission.allCases[random.below(WorldOmission.allCases.count)]
      insert([.omit(device: device, omission), .expireTokens, .sync(device: device, direction: 0)], random)
    }
    guard let code = WorldRefusals.codes.firstIndex(of: .notFound) else { return }
    for _ in 0..<days * (2 + random.below(4)) {
      let record = random.below(Self.recordCount)
      let device = random.below(devices)
      insert(
        [
          .refuse(record: record, code: code, times: 1 + random.below(2)),
          .write(device: device, [.delete(record: record)]), .sync(device: device, direction: 0),
        ], random)
    }
  }

  /// Puts steps that follow each other between those that are there, whose numbers stay.
  private mutating func insert(_ actions: [WorldAction], _ random: SeededRandom) {
    let place = random.below(steps.count + 1)
    for (offset, action) in actions.enumerated() {
      let step = WorldStep(number: steps.count, pause: 0, seed: random.next(), action: action)
      steps.insert(step, at: place + offset)
    }
  }

  /// What happens at a screen: few records, so that they are looked at, changed and saved again and again.
  private static func screen(of devices: Int) -> (_ random: SeededRandom) -> WorldAction {
    { random in
      let (device, record) = (random.below(devices), random.below(recordCount))
      if random.below(3) == 0 { return .show(device: device, record: record) }
      let first = random.below(fields.count)
      let both = random.below(3) == 0 ? [first, (first + 1) % fields.count] : [first]
      return .editScreen(device: device, record: record, fields: both, keeps: random.below(2) == 0)
    }
  }

  /// Puts steps between those that are there, whose numbers stay.
  private mutating func strew(
    _ days: Int, _ random: SeededRandom, _ action: (_ random: SeededRandom) -> WorldAction
  ) {
    for _ in 0..<days * (4 + random.below(8)) {
      let step = WorldStep(number: steps.count, pause: 0, seed: random.next(), action: action(random))
      steps.insert(step, at: random.below(steps.count + 1))
    }
  }

  /// Puts changes between the steps that two or three devices make alike, one after the other.
  private mutating func strewEqual(_ days: Int, _ random: SeededRandom) {
    for _ in 0..<days * (8 + random.below(12)) {
      let record = Self.recordCount + random.below(names.tallies.count)
      let what: WorldTallyChange =
        switch random.below(4) {
        case 0, 1: .add(1 + random.below(2))
        case 2: .tag(random.below(6))
        default: .raise
        }
      let first = random.below(devices)
      let place = random.below(steps.count + 1)
      for offset in 0..<min(devices, 2 + random.below(2)) {
        let change = WorldChange.tally(record: record, what)
        let device = (first + offset) % devices
        let action: WorldAction =
          random.below(8) == 0
          ? .writeMeanwhile(device: device, number: 1 + random.below(6), change) : .write(device: device, [change])
        steps.insert(
          WorldStep(number: steps.count, pause: 0, seed: random.next(), action: action), at: place + offset)
      }
    }
  }

  /// What begins with a default: each device saves it at some time, and again, edits it and deletes it.
  private mutating func strewDefaults(_ days: Int) {
    let random = Self.drawing(seed, .defaults)
    let (devices, count) = (devices, names.defaults.count)
    let first = names.records.count - names.crowd.count - count
    strew(days, random) { random in
      let device = random.below(devices)
      let record = first + random.below(count)
      let change: WorldChange =
        switch random.below(8) {
        case 0...3: .saveDefault(record: record)
        // Rarely: on a deleted name nothing happens any more.
        case 4 where random.below(3) == 0: .delete(record: record)
        default: .edit(record: record, field: random.below(Self.fields.count))
        }
      if random.below(4) == 0 { return .writeMeanwhile(device: device, number: 1 + random.below(6), change) }
      return .write(device: device, [change])
    }
  }

  /// How late a node may be by its clock: some milliseconds, seconds, or minutes.
  private static func lag(_ random: SeededRandom) -> Int64 {
    let most = [100, 5_000, 40_000, 240_000][random.below(4)]
    return Int64(1 + random.below(most))
  }

  /// How far a clock may be off: minutes to years, before or after.
  static func offset(_ random: some RandomSource) -> Int64 {
    let magnitudes: [Int64] = [30_000, 600_000, 86_400_000, 31_536_000_000, 94_608_000_000]
    let most = magnitudes[Int(random.below(UInt64(magnitudes.count)))]
    let offset = Int64(random.below(UInt64(most)))
    return random.below(2) == 0 ? offset : -offset
  }

  /// Leaves out all steps but these.
  mutating func keep(_ numbers: Set<Int>) { steps.removeAll { !numbers.contains($0.number) } }
}

extension SeededRandom {
  fileprivate func below(_ bound: Int) -> Int { Int(below(UInt64(bound))) }
}

/// Draws the steps of a plan.
private struct WorldDrawing {
  let devices: Int
  let faults: WorldFaults
  let random: SeededRandom
  private var copies = 0
  private var hasBackup: Set<Int> = []
  private var deletedZones: Set<Int> = []

  init(devices: Int, faults: WorldFaults, random: SeededRandom) {
    self.devices = devices
    self.faults = faults
    self.random = random
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
  private func device() -> Int { below(devices + copies) }
  private func record() -> Int { below(WorldPlan.recordCount) }
  private func field() -> Int { below(WorldPlan.fields.count) }

  /// A record of the same zone.
  private func neighbour(of record: Int) -> Int {
    record / WorldPlan.namesPerZone * WorldPlan.namesPerZone + below(WorldPlan.namesPerZone)
  }

  /// The actions of the next step: one, or a fault with the sync that it meets.
  mutating func next() -> [WorldAction] {
    switch below(20) {
    case 0..<8: return [write()]
    case 8..<15: return sync()
    default: return disturb() ?? [write()]
    }
  }

  private func write(on device: Int? = nil) -> WorldAction {
    let count = below(4) == 0 ? 2 + below(2) : 1
    var changes: [WorldChange] = []
    while changes.count < count {
      let one = change()
      if !changes.contains(where: { $0.record == one.record }) { changes.append(one) }
    }
    return .write(device: device ?? self.device(), changes)
  }

  private func change() -> WorldChange {
    let record = record()
    switch below(16) {
    case 0, 1: return .delete(record: record)
    case 2 where faults.contains(.types):
      return .create(record: record, type: below(2) == 0 ? below(2) : WorldPlan.type(of: record), field: field())
    case let draw where (3...5).contains(draw) && faults.contains(.references):
      let target: Int? = below(5) == 0 ? nil : neighbour(of: record)
      if below(3) == 0 { return .parent(record: record, target == record ? nil : target) }
      return .link(record: record, target, Reference.Action.allCases[below(Reference.Action.allCases.count)])
    default: return .set(record: record, field: field(), isNil: below(8) == 0, revives: below(3) > 0)
    }
  }

  /// A sync, and what happens during it.
  private func sync() -> [WorldAction] {
    let device = device()
    var actions: [WorldAction] = []
    if faults.contains(.network), below(3) == 0 {
      for _ in 0...below(2) { actions.append(.request(device: device, number: 1 + below(8), requestFault())) }
    }
    if faults.contains(.stale), below(4) == 0 {
      for number in 0..<(below(3) == 0 ? 3 : 1) {
        let form = WorldOldAnswer.allCases[below(WorldOldAnswer.allCases.count)]
        actions.append(.request(device: device, number: 2 + number + below(3), .oldAnswer(back: 1 + below(6), form)))
      }
    }
    if faults.contains(.app), below(2) == 0 {
      for _ in 0...below(2) {
        actions.append(.writeMeanwhile(device: device, number: 1 + below(8), change()))
      }
    }
    if faults.contains(.compaction), below(5) == 0 {
      actions.append(.compactMeanwhile(device: device, number: 1 + below(6)))
    }
    if faults.contains(.power), below(6) == 0 {
      actions.append(.cutPower(device: device, call: 1 + below(below(3) == 0 ? 60 : 12)))
    }
    let direction = below(8)
    actions.append(.sync(device: device, direction: direction < 3 ? direction : 0))
    return actions
  }

  private func requestFault() -> WorldRequestFault {
    switch below(7) {
    case 0, 1: .requestLost
    case 2, 3, 4: .answerLost
    case 5: .twice(second: below(2) == 0)
    default: .late(milliseconds: Int64(below(20_000)))
    }
  }

  /// A fault of one of the world's groups; nil without one.
  private mutating func disturb() -> [WorldAction]? {
    let kinds = WorldFaults.each.filter { faults.contains($0) }
    guard !kinds.isEmpty else { return nil }
    let device = device()
    switch kinds[below(kinds.count)] {
    case .network: return [.offline(device: device, milliseconds: Int64(below(7_200_000)))]
    case .busy:
      let retryAfter: Int? = below(3) == 0 ? nil : below(below(4) == 0 ? 4_000 : 30)
      return [.throttle(status: below(2) == 0 ? 503 : 429, retryAfter: retryAfter, requests: 1 + below(4))]
    case .power:
      if below(3) > 0 { return [.cutPower(device: device, call: 0)] }
      return [.cutPower(device: device, call: 1 + below(4)), write(on: device)]
    case .clocks:
      // A clock that is wrong is put right as often as a right one is put wrong.
      return [.turnClock(device: device, milliseconds: below(2) == 0 ? 0 : WorldPlan.offset(random))]
    case .refusals: return [.refuse(record: record(), code: below(1_000), times: below(4) == 0 ? 1_000 : 1 + below(3))]
    case .quota: return [.quota(isFull: below(2) == 0)]
    case .tokens: return [.expireTokens]
    case .zones: return zone()
    case .foreign: return [.foreign(record: record(), foreignChange())]
    case .stale: return [.stalePages(below(4) > 0)]
    case .compaction: return [.compact(device: device, keepsMilliseconds: below(2) == 0 ? nil : 1 << Int64(below(24)))]
    case .copies: return copy(device)
    default: return nil
    }
  }

  private func foreignChange() -> WorldForeignChange {
    switch below(6) {
    case 0: .garbageStamp
    case 1: .delete
    default: .write(field: field())
    }
  }

  private mutating func zone() -> [WorldAction]? {
    let zone = below(WorldPlan.zones.count)
    if deletedZones.remove(zone) != nil { return [.makeZone(zone)] }
    // Rarely, because nothing of before outlives it.
    guard below(4) == 0 else { return nil }
    deletedZones.insert(zone)
    return [.deleteZone(zone)]
  }

  private mutating func copy(_ device: Int) -> [WorldAction] {
    if copies == 0, below(4) == 0 {
      copies = 1
      return [.copy(device: device)]
    }
    if hasBackup.contains(device) { return [.restore(device: device)] }
    hasBackup.insert(device)
    return [.backUp(device: device)]
  }
}
