// Goal: a repair keeps every event that still verifies in a whole transaction, invents none, and touches nothing of the
// old directory. Method: a store that has been through reopens, merges and compactions, whose every frame's place is
// known from when it was whole; then one damage at a time, so that what must be left is known without asking the code.

import StrandlineLog
import StrandlineLogProofs
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Synchronization
import Testing

private let newPath = "/new"

/// A store, and where each of its events lies.
private struct WholeStore {
  let disk: SimulatedDisk
  let events: [LogEvent]

  /// Live, rewritten and compacted segments, one with copies of its predecessor's tail.
  init(seed: UInt64) throws {
    let disk = SimulatedDisk()
    let random = SeededRandom(seed: seed)
    var log = try openLog(disk, seed: seed)
    func write(_ count: Int, sizes: UInt64) throws {
      for number in 0..<count {
        var transaction = LogTransaction()
        for member in 0...random.below(3) {
          let size = Int(random.below(sizes)) + 1
          transaction.add(schema: UInt16(member), body: [UInt8(random.below(4))] + body(number, count: size))
        }
        let lsns = try log.append(transaction)
        try log.waitUntilDurableBlocking(lsns.upperBound)
      }
    }
    for _ in 0..<9 {
      try write(3, sizes: 300)
      try log.close()
      log = try openLog(disk, seed: random.next())
    }
    try log.mergeSegments()
    try log.compact { transaction in transaction.filter { $0.body[0] != 0 }.map(LogSurvivor.init) }
    try write(20, sizes: 900)
    // Its writer vanishes; the next one copies what was never promised.
    log = try openLog(SimulatedDisk())
    log = try openLog(disk, seed: random.next())
    #expect(log.recovery.copiedEvents > 0)
    try write(6, sizes: 900)
    try write(10, sizes: 900)
    try log.close()
    self.disk = disk.imageAfterCrash(.all)
    var events: [LogEvent] = []
    try LogReader.open(at: storePath, environment: .simulated(self.disk, seed: 1)).poll { events.append($0) }
    self.events = events
    #expect(self.disk.segments.count >= 5 && events.count > 60)
  }

  /// The bytes of each event's frame.
  static func place(_ event: LogEvent) -> (file: String, bytes: Range<Int>) {
    let start = Int(event.offset)
    return (
      storePath + "/" + SegmentName.name(event.segmentID),
      start..<start + LogFormat.frameBytes(bodyLength: event.body.count)
    )
  }

  /// The events of which `isBroken` says nothing, by whole transactions; and the members of the others.
  func split(_ isBroken: (LogEvent) -> Bool) -> (whole: [LogEvent], parts: [LogEvent], lost: [UInt64]) {
    var (whole, parts, lost): ([LogEvent], [LogEvent], [UInt64]) = ([], [], [])
    var start = 0
    while start < events.count {
      let end = events[start...].firstIndex(where: \.isLast) ?? events.count - 1
      let members = events[start...end]
      let left = members.filter { !isBroken($0) }
      if left.count == members.count { whole += left } else { parts += left }
      lost += members.filter(isBroken).map(\.lsn)
      start = end + 1
    }
    return (whole, parts, lost)
  }

  /// The events that bytes which differ from the whole store's leave.
  func left(on damaged: SimulatedDisk) -> (whole: [LogEvent], parts: [LogEvent], lost: [UInt64]) {
    var files: [String: (before: [UInt8], after: [UInt8])] = [:]
    for path in disk.paths { files[path] = (disk.peek(path) ?? [], damaged.peek(path) ?? []) }
    return split { event in
      let (file, bytes) = Self.place(event)
      guard let (before, after) = files[file] else { return false }
      return after.count < bytes.upperBound || after[bytes] != before[bytes]
    }
  }
}

extension LogEvent {
  fileprivate var words: String { "\(lsn) \(schema) \(body.prefix(4)) \(body.count)" }
}

/// Repairs what is on the disk and holds the result against what must be left; returns the plan.
@discardableResult
private func repair(
  _ disk: SimulatedDisk, leaves left: (whole: [LogEvent], parts: [LogEvent], lost: [UInt64]), _ comment: String,
  options: LogOptions = tiny
) throws -> SalvageReport {
  let before = disk.everything
  let environment = SystemEnvironment.simulated(disk, seed: 3)
  let salvage = try LogSalvage(at: storePath, environment: environment)
  var whole: [LogEvent] = []
  var parts: [LogEvent] = []
  let plan = try salvage.read { events, isPartial in
    if isPartial { parts += events } else { whole += events }
  }
  #expect(disk.everything == before, "\(comment): the plan changed something")
  #expect(whole.map(\.words) == left.whole.map(\.words), "\(comment): \(plan)")
  #expect(parts.map(\.words) == left.parts.map(\.words), "\(comment): \(plan)")
  for lsn in left.lost {
    #expect(
      plan.isOpenEnded || plan.lost.contains { $0.contains(lsn) }, "\(comment): LSN \(lsn) is not said to be lost")
  }
  for event in left.whole + left.parts {
    #expect(!plan.lost.contains { $0.contains(event.lsn) }, "\(comment): LSN \(event.lsn) is said to be lost")
  }
  try LogRepair.write(
    salvage, as: plan, to: newPath, options: options,
    survivors: { events, isPartial in isPartial ? [] : events.map(LogSurvivor.init) }, finish: { _ in })
  let after = disk.everything
  for (path, bytes) in before { #expect(after[path] == bytes, "\(comment): \(path) was changed") }
  for path in after.keys where before[path] == nil {
    #expect(path.hasPrefix(newPath + "/"), "\(comment): \(path) was left")
  }
  // Every byte that was not as written is kept, and its file says where it stood.
  for damage in plan.damages where !damage.bytes.isEmpty {
    let name = LogRepair.quarantineName(damage)
    let bytes = before[damage.file].map {
      Array($0[min(Int(damage.bytes.lowerBound), $0.count)...].prefix(damage.bytes.count))
    }
    #expect(after["\(newPath)/quarantine/\(name)"] == bytes, "\(comment): \(name)")
  }
  let report = try LogVerifier.verify(at: newPath, environment: environment)
  #expect(report.findings.isEmpty, "\(comment): \(report.findings)")
  var found: [LogEvent] = []
  let log = try openLog(disk, seed: 12, path: newPath, createIfAbsent: false) { found.append($0) }
  #expect(found.map(\.words) == left.whole.map(\.words), "\(comment): the new store")
  #expect(log.durableLSN == plan.lastLSN, "\(comment)")
  for event in left.whole.prefix(3) + left.whole.suffix(3) { #expect(try log.read(event.lsn).body == event.body) }
  if let lost = left.lost.first, lost <= log.durableLSN {
    #expect(logError { _ = try log.read(lost) }?.code == .compacted, "\(comment): LSN \(lost)")
  }
  // It goes on, with LSNs that no event had.
  let next = try log.write(body(1))
  #expect(next.lowerBound == plan.lastLSN + 1)
  try log.close()
  #expect(try LogVerifier.verify(at: newPath, environment: environment).isSound, "\(comment)")
  return plan
}

@Suite(.timeLimit(.minutes(30))) struct RepairTests {
  @Test(arguments: Campaign.seeds(2...4, every: 4))
  func `of a flipped bit anywhere loses what it hit alone`(seed: UInt64) throws {
    let store = try WholeStore(seed: seed)
    let random = SeededRandom(seed: seed)
    var repairs = 0
    for path in store.disk.paths {
      let bytes = try #require(store.disk.peek(path))
      for at in stride(from: Int(random.below(64)), to: bytes.count, by: 64) {
        // An eighth of the places, drawn, and all that hold a segment together.
        guard random.below(8) == 0 || at < 128 || 4096..<4096 + 80 ~= at else { continue }
        let damaged = store.disk.clone()
        var content = bytes
        content[at] ^= 1 << UInt8(random.below(8))
        damaged.poke(path, content)
        let plan = try repair(damaged, leaves: store.left(on: damaged), "seed \(seed), \(path) byte \(at)")
        #expect(plan.isDamaged || content == bytes || at >= 4096 || path.hasSuffix("CONTROL"))
        repairs += 1
      }
    }
    #expect(repairs > 100)
  }

  @Test(arguments: 1...2) func `of a file that is missing, cut or overwritten keeps the others`(seed: UInt64) throws {
    let store = try WholeStore(seed: seed)
    let random = SeededRandom(seed: seed)
    for path in store.disk.paths where !path.hasSuffix("LOCK") {
      let bytes = try #require(store.disk.peek(path))
      let missing = store.disk.clone()
      try missing.unlink(path)
      try repair(missing, leaves: store.left(on: missing), "seed \(seed), without \(path)")
      for _ in 0..<3 {
        let cut = store.disk.clone()
        let length = Int(random.below(UInt64(bytes.count)))
        cut.poke(path, Array(bytes[..<length]))
        try repair(cut, leaves: store.left(on: cut), "seed \(seed), \(path) cut to \(length)")
        let filled = store.disk.clone()
        let sector = Int(random.below(UInt64((bytes.count + 511) / 512))) * 512
        var content = bytes
        for at in sector..<min(sector + 512, bytes.count) { content[at] = length % 2 == 0 ? 0 : 0xA5 }
        filled.poke(path, content)
        try repair(filled, leaves: store.left(on: filled), "seed \(seed), \(path) sector \(sector)")
      }
    }
  }

  @Test func `does without the list of segments and without a header at once`() throws {
    let store = try WholeStore(seed: 5)
    for path in store.disk.segments {
      let damaged = store.disk.clone()
      try damaged.unlink(storePath + "/MANIFEST")
      try damaged.unlink(storePath + "/CONTROL")
      var content = try #require(damaged.peek(path))
      for at in 0..<128 { content[at] = 0 }
      damaged.poke(path, content)
      try repair(damaged, leaves: store.left(on: damaged), path)
    }
  }

  @Test func `of a store that is whole finds nothing to do`() throws {
    let store = try WholeStore(seed: 6)
    let plan = try repair(store.disk.clone(), leaves: (store.events, [], []), "whole")
    #expect(!plan.isDamaged && !plan.hasLostEvents && plan.strays.isEmpty && plan.bytesSetAside == 0)
  }

  @Test func `takes the copies of a segment that is lost from behind its predecessor's end`() throws {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    for number in 0..<4 { try log.write(body(number, count: 100)) }
    log = try openLog(SimulatedDisk())
    let before = disk.clone()
    log = try openLog(disk, seed: 8)
    #expect(log.recovery.copiedEvents == 1)
    try log.close()
    log = try openLog(SimulatedDisk())
    // The old bytes of the first segment are back, as after a power cut before the cut of its tail; the second is gone.
    let files = disk.segments
    disk.poke(files[0], before.peek(files[0]) ?? [])
    try disk.unlink(files[1])
    let salvage = try LogSalvage(at: storePath, environment: .simulated(disk, seed: 1))
    var bodies: [[UInt8]] = []
    let plan = try salvage.read { events, _ in bodies += events.map(\.body) }
    #expect(bodies == (0..<4).map { body($0, count: 100) })
    #expect(plan.isDamaged && plan.isOpenEnded)
  }

  @Test func `at a torn tail sets aside what an open would`() throws {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    for number in 0..<4 { try log.write(body(number, count: 100)) }
    log = try openLog(SimulatedDisk())
    let image = disk.imageAfterCrash(.all)
    var bytes = try #require(image.peek(image.segments[0]))
    bytes[firstGroup + 3 * 136 + 40] ^= 1
    image.poke(image.segments[0], bytes)
    let salvage = try LogSalvage(at: storePath, environment: .simulated(image, seed: 1))
    var count = 0
    let plan = try salvage.read { events, _ in count += events.count }
    #expect(count == 3 && !plan.isDamaged && plan.bytesSetAside > 0)
  }

  @Test func `refuses a place that is not its own, a store that is held, and what is no store`() throws {
    let store = try WholeStore(seed: 7)
    let disk = store.disk
    let environment = SystemEnvironment.simulated(disk, seed: 1)
    let salvage = try LogSalvage(at: storePath, environment: environment)
    let plan = try salvage.read { _, _ in }
    try disk.makeDirectory("/full")
    try disk.open("/full/x", .create).close()
    try disk.makeDirectory("/empty")
    let before = disk.everything
    func write(_ path: String) -> LogError? {
      logError {
        try LogRepair.write(
          salvage, as: plan, to: path, options: tiny, survivors: { events, _ in events.map(LogSurvivor.init) },
          finish: { _ in })
      }
    }
    for path in ["/full", "/full/x", storePath, storePath + "/inner", storePath + "/a/b"] {
      #expect(write(path)?.code == .notEmptyDirectory, "\(path)")
    }
    #expect(disk.everything == before)
    #expect(write("/empty") == nil)
    #expect(write("/empty")?.code == .notEmptyDirectory)
    // While a salvage reads no writer opens, and the other way round.
    #expect(logError { _ = try openLog(disk) }?.code == .held)
    let other = try WholeStore(seed: 8).disk
    let log = try openLog(other)
    #expect(logError { _ = try LogSalvage(at: storePath, environment: .simulated(other, seed: 1)) }?.code == .held)
    try log.close()
    #expect(logError { _ = try LogSalvage(at: "/none", environment: environment) }?.code == .absent)
    #expect(logError { _ = try LogSalvage(at: "/full", environment: environment) }?.code == .notAStore)
    #expect(logError { _ = try LogSalvage(at: "/full/x", environment: environment) }?.code == .notAStore)
  }

  /// A repair on a disk that fails: there is a whole new store, or none.
  private func write(_ fileSystem: any FileSystem) throws {
    let salvage = try LogSalvage(at: storePath, environment: .simulated(fileSystem, seed: 2))
    let plan = try salvage.read { _, _ in }
    try LogRepair.write(
      salvage, as: plan, to: newPath, options: tiny,
      survivors: { events, isPartial in isPartial ? [] : events.map(LogSurvivor.init) },
      finish: { place in
        let log = try openLog(fileSystem, path: place, createIfAbsent: false)
        try log.write(body(77))
        try log.close()
      })
  }

  private func damagedStore() throws -> (disk: SimulatedDisk, bodies: [[UInt8]]) {
    let store = try WholeStore(seed: 9)
    let event = store.events[20]
    let (path, place) = WholeStore.place(event)
    var bytes = try #require(store.disk.peek(path))
    bytes[place.lowerBound + 40] ^= 1
    store.disk.poke(path, bytes)
    let disk = store.disk.imageAfterCrash(.all)
    let left = store.split { $0.lsn == event.lsn }
    return (disk, left.whole.map(\.body) + [body(77)])
  }

  @Test func `that loses power at any call leaves a whole new store or none`() throws {
    let (disk, bodies) = try damagedStore()
    let old = disk.everything
    let counting = disk.clone()
    counting.keepsHistory = true
    try write(counting)
    var born = 0
    let states = counting.history + [counting]
    #expect(states.count > 30)
    for (call, state) in states.enumerated() {
      for loss in [CrashLoss.none, .all] {
        let image = state.imageAfterCrash(loss)
        for (path, bytes) in old { #expect(image.peek(path) == bytes, "call \(call)") }
        guard try image.kind(of: newPath) != .absent else {
          try write(image)
          #expect(try !image.list("/").contains { $0.contains(".init-") }, "call \(call)")
          continue
        }
        born += 1
        var found: [[UInt8]] = []
        try openLog(image, path: newPath, createIfAbsent: false) { found.append($0.body) }.close()
        #expect(found == bodies, "call \(call)")
      }
    }
    #expect(born > 0)
    #expect(try counting.kind(of: newPath) == .directory)
  }

  /// The damaged store is held by its folder, wherever that is.
  @Test(arguments: FolderFate.allCases)
  func `whose old folder is moved, removed or replaced at any call writes into none of them`(_ fate: FolderFate) throws
  {
    let (disk, bodies) = try damagedStore()
    for (path, seed) in [(FolderFate.otherPath, 31 as UInt64), (FolderFate.olderPath, 32)] {
      let other = try openLog(disk, seed: seed, path: path)
      for number in 0..<40 { try other.write(body(number)) }
      try other.close()
    }
    let old = disk.files(in: storePath)
    let counting = disk.clone()
    let first = counting.callCount + 1
    try write(counting)
    let last = counting.callCount
    #expect(last - first > 10)
    var whole = 0
    for call in first...last {
      let image = disk.clone()
      let put = Mutex<Result<[String: [UInt8]], any Error>?>(nil)
      image.interrupt(beforeCall: call) {
        let result = Result {
          _ = try fate.befall(image, old) { try openLog($0, seed: 41).write(body(6)) }
          return image.files(in: storePath)
        }
        put.withLock { $0 = result }
      }
      let failure = Result { try write(image) }
      let there = try #require(try put.withLock { try $0?.get() }, "call \(call)")
      // What it reads may be of two stores, or gone.
      if case .failure(let error) = failure {
        #expect(fate.isInPlace || fate.isRemoved, "\(fate), call \(call): \(error)")
        #expect(error is LogError, "\(fate), call \(call): \(error)")
      }
      for disk in [image, image.imageAfterCrash(using: SeededRandom(seed: UInt64(call)))] {
        #expect(disk.files(in: storePath) == there, "\(fate), call \(call)")
        if let kept = fate.keptPath { #expect(disk.files(in: kept) == old, "\(fate), call \(call)") }
        guard try disk.kind(of: newPath) == .directory else { continue }
        var found: [[UInt8]] = []
        try openLog(disk.clone(), path: newPath, createIfAbsent: false) { found.append($0.body) }.close()
        if !fate.isInPlace { #expect(found == bodies, "\(fate), call \(call)") }
        whole += 1
      }
    }
    #expect(whole > 0 || fate.isInPlace || fate.isRemoved, "\(fate): no repair ended")
  }

  @Test func `on a disk that is full, or fails any call, leaves nothing but the old`() throws {
    let (disk, bodies) = try damagedStore()
    let old = disk.everything
    for error in [SystemError.full("", ""), SystemError.device("", "")] {
      var ordinal = 0
      while true {
        ordinal += 1
        let image = disk.clone()
        let faults = FaultInjector(image)
        faults.plan(DiskFault(Set(DiskCall.allCases.filter(\.isMutating)), ordinal: ordinal, error: error))
        let failure = logError { try write(faults) }
        for (path, bytes) in old { #expect(image.peek(path) == bytes, "call \(ordinal)") }
        if try image.kind(of: newPath) == .absent {
          #expect(failure != nil)
          #expect(Set(image.everything.keys) == Set(old.keys), "call \(ordinal)")
          continue
        }
        var found: [[UInt8]] = []
        try openLog(image, path: newPath, createIfAbsent: false) { found.append($0.body) }.close()
        #expect(found == bodies, "call \(ordinal)")
        if failure == nil { break }
      }
      #expect(ordinal > 30)
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct ContradictionTests {
  /// Nothing is wrong with any byte, and still no open takes the store: repair must not call it whole.
  @Test func `files that contradict each other are damage`() throws {
    let disk = SimulatedDisk()
    for number in 0..<3 {
      let log = try openLog(disk, seed: UInt64(number))
      try log.write(body(number))
      try log.close()
    }
    let path = storePath + "/MANIFEST"
    var manifest = try Manifest.decode(try #require(disk.peek(path)), file: path)
    manifest.entries.remove(at: 1)
    disk.poke(path, manifest.encoded())
    #expect(logError { _ = try openLog(disk) } != nil)
    let salvage = try LogSalvage(at: storePath, environment: .simulated(disk, seed: 1))
    #expect(try salvage.read { _, _ in }.isDamaged)
  }
}
