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

  var record: Int {
    switch self {
    case .set(let record, _, _, _), .parent(let record, _), .link(let record, _, _), .create(let record, _, _),
      .delete(let record):
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
  /// If it asks for a zone's changes, the device gets an answer of before, so many back.
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

  /// The device that the step is about, if it is about one.
  var device: Int? {
    switch self {
    case .write(let device, _), .sync(let device, _), .request(let device, _, _), .offline(let device, _),
      .writeMeanwhile(let device, _, _), .compactMeanwhile(let device, _), .cutPower(let device, _),
      .compact(let device, _), .turnClock(let device, _), .copy(let device), .backUp(let device), .restore(let device),
      .fillDisk(let device, _), .show(let device, _), .editScreen(let device, _, _, _):
      device
    case .throttle, .refuse, .quota, .expireTokens, .deleteZone, .makeZone, .foreign, .stalePages, .deny: nil
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
  /// All records that there can be. A few, so that devices meet at the same ones.
  static let records: [RecordID] = zones.flatMap { zone in
    (0..<namesPerZone).map { RecordID("r\($0)", zone: zone) }
  }

  /// The type under which a record is created unless a step says another one.
  static func type(of record: Int) -> Int { record % 2 }

  let seed: UInt64
  /// Devices at the beginning.
  let devices: Int
  /// The groups that this world has.
  let faults: WorldFaults
  /// How far each device's wall clock is off at first, in milliseconds.
  private(set) var clockOffsets: [Int64] = []
  /// Whether pages of changes hold two records at most.
  let hasSmallPages: Bool
  /// Whether a new device joins when the world has come to rest.
  let hasLateDevice: Bool
  private(set) var steps: [WorldStep] = []

  init(seed: UInt64, devices: Int, days: Int, allowed: WorldFaults) {
    self.seed = seed
    self.devices = devices
    let random = SeededRandom(seed: seed &* 0x9E37_79B9_7F4A_7C15 ^ 0x5742_4C44)
    var faults: WorldFaults = []
    // Drawn for every group, so that what one group does in a seed does not depend on which others are allowed.
    let early = WorldFaults.each.filter { !WorldFaults.later.contains($0) }
    for group in early where random.below(2) == 0 { faults.insert(group) }
    let others = SeededRandom(seed: seed &* 0xD1B5_4A32_D192_ED03 ^ 0x4C41_5445)
    for group in WorldFaults.each where WorldFaults.later.contains(group) && others.below(2) == 0 {
      faults.insert(group)
    }
    self.faults = faults.intersection(allowed)
    hasSmallPages = random.below(2) == 0
    hasLateDevice = random.below(4) == 0
    let years = SeededRandom(seed: random.next())
    for _ in 0..<devices { clockOffsets.append(self.faults.contains(.clocks) ? Self.offset(years) : 0) }
    for number in clockOffsets.indices { clockOffsets[number] += Int64(random.below(20_000)) - 10_000 }
    var drawing = WorldDrawing(devices: devices, faults: self.faults.subtracting(WorldFaults.later), random: random)
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
    if self.faults.contains(.screens) {
      let screens = SeededRandom(seed: seed &* 0xA076_1D64_78BD_642F ^ 0x5343_5245)
      for _ in 0..<6 { strew(days, screens, Self.screen(of: devices)) }
    }
  }

  /// What happens at a screen: few records, so that they are looked at, changed and saved again and again.
  private static func screen(of devices: Int) -> (_ random: SeededRandom) -> WorldAction {
    { random in
      let (device, record) = (random.below(devices), random.below(records.count))
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
  private func record() -> Int { below(WorldPlan.records.count) }
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
