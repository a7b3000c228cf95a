// Goal: whatever call of either process is the last one, of the app that reads an inbox or of the extension that writes to it,
// or of both at a power cut: what was acknowledged is in the store once, what was not is there once or not at all, and what
// could not be taken in is kept once. Method: every write adds a bit of its own to one counter, and a record of its own, so that
// each loss and each doubling shows in the sum.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

private struct Tally: SyncRecord {
  var id = "tally"
  var sum: Int64 = 0
}

private struct Mark: SyncRecord {
  var id: String
  var text = ""
}

private let tally = RecordID("tally")
/// A name that the app deletes before it takes in the extension's save of it.
private let late = "late"

/// One process after the other, on one disk.
private final class TwoProcesses {
  static let path = "/store"
  enum Step: Hashable {
    case app(Int), left(Int), leftLate(Int), deleteLate, refresh, close
  }
  static let steps: [Step] = [
    .app(20), .left(0), .refresh, .left(1), .app(21), .left(2), .refresh, .leftLate(3), .deleteLate, .left(4), .refresh,
    .close, .left(5), .app(22), .left(6), .refresh, .close,
  ]

  let disk: SimulatedDisk
  private let clock = SimulatedClock()
  private var store: RecordStore?
  /// What each process goes through; a process that dies gets another.
  private var appFiles: FaultInjector
  private var extensionFiles: FaultInjector
  private var seed: UInt64
  private(set) var acknowledged: Set<Int> = []
  private(set) var begun: Set<Int> = []
  /// After which call each write was acknowledged, and before which it was begun.
  private(set) var marks: [(calls: Int, begun: Set<Int>, acknowledged: Set<Int>)] = []
  private static let mutating = DiskCall.allCases.filter(\.isMutating)
  /// Of each process, how many calls have changed the disk.
  var calls: (app: Int, extension: Int) {
    func count(_ files: FaultInjector) -> Int { Self.mutating.reduce(0) { $0 + files.count($1) } }
    return (count(appFiles), count(extensionFiles))
  }

  init(_ disk: SimulatedDisk, seed: UInt64) {
    self.disk = disk
    self.seed = seed
    appFiles = FaultInjector(disk)
    extensionFiles = FaultInjector(disk)
  }

  static var options: StoreOptions {
    var log = LogOptions(
      segmentBytesMax: 8 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
      lockWaitMilliseconds: 0, controlIntervalMilliseconds: nil, ballastBytes: 0, upkeep: .onDemand)
    log.mergeWidth = 3
    var options = StoreOptions(log: log)
    options.conflicts["Tally"].fields = ["sum": .counter]
    return options
  }

  private func environment(_ files: any FileSystem) -> StoreEnvironment {
    seed += 1
    return StoreEnvironment(
      SystemEnvironment(fileSystem: files, clock: clock, random: SeededRandom(seed: seed)), isSimulated: true)
  }

  /// Lets one process die before one of its calls that change the disk: it changes nothing from there on.
  func kill(isApp: Bool, atCall ordinal: Int) {
    let fault = DiskFault(
      Set(Self.mutating), pathSuffix: "", ordinal: ordinal, isSticky: true, error: .device("died", ""))
    (isApp ? appFiles : extensionFiles).plan(fault)
  }

  private func opened() throws -> RecordStore {
    if let store { return store }
    let opened = try RecordStore.openBlocking(
      at: Self.path, options: Self.options, environment: environment(appFiles))
    store = opened
    return opened
  }

  private func note() { marks.append((disk.callCount, begun, acknowledged)) }

  private func mark(_ number: Int, _ name: String? = nil, _ tx: inout WriteTransaction) throws {
    if try tx.fetch(Tally.self, id: "tally") == nil { try tx.save(Tally()) }
    try tx.update(Tally.self, id: "tally") { $0.sum += 1 << Int64(number) }
    try tx.save(Mark(id: name ?? "m\(number)", text: "\(number)"))
  }

  /// Does a step; a process that dies in it does not go on.
  func perform(_ step: Step) throws {
    clock.advance(milliseconds: 1_000)
    let files: FaultInjector
    switch step {
    case .left, .leftLate: files = extensionFiles
    case .app, .deleteLate, .refresh, .close: files = appFiles
    }
    do {
      switch step {
      case .app(let number):
        try act(number) { body in try self.opened().writeBlocking(body) }
      case .left(let number), .leftLate(let number):
        let name: String? = if case .leftLate = step { late } else { nil }
        let inbox = try RecordStore.inbox(
          at: Self.path, options: Self.options, environment: environment(extensionFiles))
        try act(number, name) { body in try inbox.write(body) }
      case .deleteLate:
        try opened().writeBlocking { tx in
          if try tx.fetch(Mark.self, id: late) == nil { try tx.create(Mark(id: late)) }
          try tx.delete(Mark.self, id: late)
        }
      case .refresh:
        try opened().refresh()
      case .close:
        try opened().closeBlocking()
        store = nil
      }
    } catch {
      if disk.isOff { throw error }
      guard files.struckCount > 0 else { throw error }
    }
    renewTheDead()
  }

  private func act(
    _ number: Int, _ name: String? = nil, _ write: ((inout WriteTransaction) throws -> Void) throws -> Void
  ) throws {
    begun.insert(number)
    note()
    try write { tx in try self.mark(number, name, &tx) }
    acknowledged.insert(number)
    note()
  }

  /// A process that is gone has no memory and no lock; the next one that runs in its place finds the disk.
  private func renewTheDead() {
    if appFiles.struckCount > 0 {
      store = nil
      appFiles = FaultInjector(disk)
    }
    if extensionFiles.struckCount > 0 { extensionFiles = FaultInjector(disk) }
  }

  // MARK: What must hold

  /// What was begun and acknowledged when so many calls had been made.
  func bounds(atCall call: Int) -> (begun: Set<Int>, acknowledged: Set<Int>) {
    let last = marks.last { $0.calls <= call }
    return (last?.begun ?? [], last?.acknowledged ?? [])
  }

  /// Looks whether a store that has read its inbox holds what it must.
  static func check(_ store: RecordStore, begun: Set<Int>, acknowledged: Set<Int>, _ what: String) throws {
    var sum = try #require(try store.fetch(Tally.self, id: "tally"), "\(what)").sum
    let refusals = try store.inboxRefusals()
    #expect(refusals.count <= 1, "\(what): \(refusals)")
    for number in begun.union(acknowledged) {
      let bit: Int64 = 1 << Int64(number)
      let isIn = sum & bit != 0
      sum &= ~bit
      if number == Self.lateNumber {
        #expect(refusals.isEmpty || !isIn, "\(what): \(number) was taken in and refused")
        #expect(isIn || !refusals.isEmpty || !acknowledged.contains(number), "\(what): \(number) is lost")
      } else {
        #expect(isIn || !acknowledged.contains(number), "\(what): \(number) is lost")
        #expect(try (store.fetch(Mark.self, id: "m\(number)") != nil) == isIn, "\(what): half of \(number) is there")
      }
    }
    #expect(sum == 0, "\(what): \(String(sum, radix: 2)) was doubled, or came from nowhere")
    for case .save(let record) in refusals.flatMap(\.changes) { #expect(record.id.name == late, "\(what)") }
    let inbox = try store.status().inbox
    #expect(inbox?.transactions ?? 0 == 0 && inbox?.failure == nil, "\(what): \(String(describing: inbox))")
  }

  private static let lateNumber = 3

  /// Lets both processes go on, and looks after each step.
  func finish(_ number: Int, begun: Set<Int>, acknowledged: Set<Int>, _ what: String) throws {
    let store = try opened()
    try Self.check(store, begun: begun, acknowledged: acknowledged, what)
    try perform(.left(number))
    try perform(.refresh)
    try Self.check(store, begun: begun.union([number]), acknowledged: acknowledged.union([number]), what + ", later")
    try perform(.close)
  }
}

/// A disk with a store that was closed.
private func prepared() throws -> SimulatedDisk {
  let disk = SimulatedDisk()
  let store = try RecordStore.openBlocking(
    at: TwoProcesses.path, options: TwoProcesses.options, environment: .simulated(disk: disk, seed: 1))
  try store.writeBlocking { try $0.save(Tally()) }
  try store.closeBlocking()
  return disk.imageAfterCrash(.none)
}

@Suite(.timeLimit(.minutes(30))) struct `An inbox and its store` {
  @Test func `lose nothing and double nothing at a power cut at any call`() throws {
    let disk = try prepared()
    let processes = TwoProcesses(disk, seed: 10)
    disk.keepsHistory = true
    for step in TwoProcesses.steps { try processes.perform(step) }
    let moments = disk.history + [disk.clone()]
    let first = disk.callCount - moments.count + 1
    disk.keepsHistory = false
    var images = 0
    for (place, moment) in moments.enumerated() where Campaign.takes(place, every: 12) {
      let (begun, acknowledged) = processes.bounds(atCall: first + place)
      for image in 0..<4 {
        let after =
          switch image {
          case 0: moment.clone()
          case 1: moment.imageAfterCrash(.none)
          case 2: moment.imageAfterCrash(.all)
          default: moment.imageAfterCrash(using: SeededRandom(seed: UInt64(place) << 8))
          }
        images += 1
        let again = TwoProcesses(after, seed: 1_000 + UInt64(place) * 10)
        try again.finish(
          30, begun: begun, acknowledged: acknowledged, "call \(place) of \(moments.count), image \(image)")
      }
    }
    print("an inbox and its store: \(images) power cuts at \(moments.count) calls")
    #expect(images > (Campaign.isWhole ? 1_000 : 80), "\(images)")
  }

  @Test func `lose nothing and double nothing if one process dies at any call and the other goes on`() throws {
    let base = try prepared()
    let whole = TwoProcesses(base.clone(), seed: 10)
    for step in TwoProcesses.steps { try whole.perform(step) }
    let calls = whole.calls
    #expect(calls.app > 100 && calls.extension > 100, "\(calls)")
    var deaths = 0
    for isApp in [true, false] {
      for call in 1...(isApp ? calls.app : calls.extension) where Campaign.takes(call, every: 12) {
        let what = "\(isApp ? "the app" : "the extension") dies at its call \(call)"
        let processes = TwoProcesses(base.clone(), seed: 10)
        processes.kill(isApp: isApp, atCall: call)
        do { for step in TwoProcesses.steps { try processes.perform(step) } } catch {
          Issue.record("\(what): \(error)")
          continue
        }
        try processes.finish(30, begun: processes.begun, acknowledged: processes.acknowledged, what)
        deaths += 1
      }
    }
    print("an inbox and its store: \(deaths) deaths at \(calls) calls")
    #expect(deaths > (Campaign.isWhole ? 300 : 25), "\(deaths)")
  }
}
