// Prepared segments, and places found by index: what going on in the next segment costs, what a power cut leaves
// at each call of it, and that an event is found wherever it lies without anything having been replayed.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

/// Three of these fill a segment of the tests' size, and the third seals it.
private func third(_ number: Int) -> [UInt8] { body(number, count: 1_300) }

private func openings(_ disk: SimulatedDisk) throws -> [OpeningBody] {
  var result: [OpeningBody] = []
  try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames {
    if let opening = $0.opening { result.append(opening) }
  }
  return result
}

private func manifest(_ disk: SimulatedDisk) throws -> Manifest {
  try Manifest.decode(try #require(disk.peek(storePath + "/MANIFEST")), file: "MANIFEST")
}

/// What is left after a crash holds what was acknowledged, and only what was issued, in order; again after a power
/// cut; and it takes an append that stays. A reader and `verify` see no damage and change nothing.
private func check(_ image: SimulatedDisk, _ acknowledged: Int, _ issued: [[UInt8]], _ comment: String) throws {
  let calls = image.callCount
  let environment = SystemEnvironment.simulated(image, seed: 1)
  var seen: [[UInt8]] = []
  try LogReader.open(at: storePath, environment: environment).poll { seen.append($0.body) }
  #expect(seen == Array(issued.prefix(seen.count)) && seen.count >= acknowledged, "\(comment): a reader")
  let report = try LogVerifier.verify(at: storePath, environment: environment)
  #expect(!report.isDamaged && report.lastLSN == UInt64(seen.count), "\(comment): \(report)")
  #expect(image.callCount == calls, "\(comment): looking changed the disk")
  var found: [[UInt8]] = []
  // Let go at once: what an open has returned stays, whether anything is closed or not.
  _ = try openLog(image, seed: 31) { found.append($0.body) }
  #expect(found == seen, "\(comment): a writer found other events than a reader")
  let later = image.imageAfterCrash(.none)
  var again: [[UInt8]] = []
  let log = try openLog(later, seed: 32) { again.append($0.body) }
  #expect(again == found, "\(comment): after another power cut")
  try log.write([77])
  for lsn in 1...log.durableLSN { #expect(try log.read(lsn).body == (found + [[77]])[Int(lsn) - 1], "\(comment)") }
  try log.prepareSegment()
  try log.write([78])
  try log.close()
  #expect(try recovered(later.imageAfterCrash(.none)) == found + [[77], [78]], "\(comment): after an append")
  #expect(try LogVerifier.verify(at: storePath, environment: .simulated(later, seed: 1)).isSound, "\(comment)")
}

@Suite(.timeLimit(.minutes(30)))
struct `A prepared segment` {
  @Test func `costs the commit that goes on in it one write and one sync, and none of a folder`() throws {
    let disk = SimulatedDisk()
    let faults = FaultInjector(disk)
    let log = try openLog(faults)
    var number = 0
    func write() throws {
      try log.write(third(number))
      number += 1
    }
    for _ in 0..<3 { try write() }
    for round in 0..<4 {
      // The one at hand is full and sealed; the next is made, in the background of a real log.
      faults.resetCounts()
      try log.prepareSegment()
      // Its file, and the list: each synced under another name, renamed, and the folder synced.
      #expect(faults.count(.create) == 2 && faults.count(.rename) == 2 && faults.count(.syncDirectory) == 2)
      try log.prepareSegment()
      #expect(faults.count(.create) == 2, "one is enough")
      faults.resetCounts()
      try write()
      #expect(disk.segments.count == round + 2)
      // CONTROL is compared before it.
      #expect(faults.count(.sync) == 1 && faults.count(.write) == 1 && faults.count(.read) == 1, "round \(round)")
      #expect(faults.totalCount == 3)
      faults.resetCounts()
      for _ in 0..<2 { try write() }
      // The last of them seals it under its own sync.
      #expect(faults.count(.sync) == 2 && faults.count(.syncDirectory) == 0 && faults.count(.create) == 0)
    }
    try log.close()
    #expect(try recovered(disk) == (0..<number).map(third))
    #expect(log.upkeepReport.failure == nil)
  }

  @Test func `has its opening frame in its first group, and no promise before the second`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(third(number)) }
    try log.prepareSegment()
    let path = disk.segments[1]
    #expect(try manifest(disk).entries.map(\.isPrepared) == [false, true])
    let before = try #require(disk.peek(path))
    #expect(before[4096...].allSatisfy { $0 == 0 } && before[64] == 1)
    for number in 3..<5 { try log.write(third(number)) }
    let bytes = try #require(disk.peek(path))
    #expect(Array(bytes[..<4096]) == Array(before[..<4096]))
    var frames: [FrameView] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames { frames.append($0) }
    let second = frames.filter { $0.segmentID == 2 }
    #expect(second.map(\.type) == [.opening, .event, .event])
    let opening = try #require(second[0].opening)
    let seal = try #require(frames.last { $0.segmentID == 1 })
    #expect(opening.durableEnd == 0 && opening.predecessorID == 1 && opening.predecessorLastLSN == 3)
    #expect(seal.type == .seal && opening.predecessorEnd == seal.offset + UInt32(seal.frameBytes))
    #expect(second.map(\.header.isSynced) == [false, false, true])
    try log.close()
  }

  @Test func `L4: a crash at any call of making it, going on in it and leaving it loses nothing`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    var issued: [[UInt8]] = []
    func write(_ count: Int = 1) throws {
      for _ in 0..<count {
        issued.append(third(issued.count))
        try log.write(issued[issued.count - 1])
      }
    }
    try write(3)
    disk.keepsHistory = true
    var marks: [(calls: Int, acknowledged: Int)] = [(0, 3)]
    for step in [
      { try log.prepareSegment() }, { try write() }, { try write() }, { try log.raiseControl() },
      { try log.prepareSegment() }, { try write() }, { try write() }, { try log.close() },
    ] as [() throws -> Void] {
      try step()
      marks.append((disk.history.count, issued.count))
    }
    #expect(disk.segments.count == 3)
    var images = 0
    var recoveryImages = 0
    for (call, state) in (disk.history + [disk.clone()]).enumerated() {
      let acknowledged = marks.last { $0.calls <= call }?.acknowledged ?? 3
      let losses = state.crashLosses().map { ($0.description, state.imageAfterCrash($0)) }
      for (loss, image) in losses + [("the process only", state.clone())] {
        images += 1
        let comment = "before call \(call + 1), \(loss)"
        let untouched = images % 24 == 0 ? image.clone() : nil
        try check(image, acknowledged, issued, comment)
        guard let untouched else { continue }
        // Again at every call of what the open does about it.
        untouched.keepsHistory = true
        _ = try openLog(untouched, seed: 33)
        for (call, state) in untouched.history.enumerated() {
          for loss in state.crashLosses() {
            recoveryImages += 1
            try check(
              state.imageAfterCrash(loss), acknowledged, issued, "\(comment), then before call \(call + 1), \(loss)")
          }
        }
      }
    }
    print("a prepared segment: \(images) disks after a crash, \(recoveryImages) more after one in recovery")
    #expect(images > 100 && recoveryImages > 10)
  }

  @Test func `L4: of its first group, unsynced, any subset of sectors may survive`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(third(number)) }
    try log.prepareSegment()
    disk.keepsHistory = true
    let issued = (0..<3).map(third) + [body(50, count: 1_500), body(51, count: 1_400)]
    try log.write(issued[3], issued[4])
    // Before the sync of the group: its write is all that is not on the medium.
    let state = disk.history[disk.history.count - 1]
    let count = state.unsyncedEffects().count
    #expect(6...9 ~= count)
    var whole = 0
    for subset in 0..<1 << count {
      let image = state.imageAfterCrash { subset >> $0.index & 1 == 1 }
      let found = try recovered(image)
      #expect(found.count == 3 || found.count == 5, "a part of a transaction")
      #expect(found == Array(issued.prefix(found.count)))
      if found.count == 5 { whole += 1 }
      if subset % 5 == 0 || found.count == 5 { try check(image, 3, issued, "subset \(subset)") }
    }
    // Nothing of it is promised: only all of its sectors make it a group (the last may hold zeros alone).
    #expect(1...2 ~= whole)
  }

  @Test func `what a recovery makes void is given back at the close, and no open waits for it`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      for number in 0..<2 { try log.write(third(number)) }
    }
    let log = try openLog(disk, seed: 8)
    #expect(log.recovery.copiedEvents == 1)
    let first = storePath + "/" + SegmentName.name(1)
    let end = try #require(try openings(disk).last).predecessorEnd
    #expect(try #require(disk.peek(first)).count > end)
    try log.close()
    #expect(try #require(disk.peek(first)).count == end)
    #expect(try recovered(disk) == (0..<2).map(third))
  }

  @Test func `L4: whole and unpromised is copied, and its own file counts no more`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      for number in 0..<3 { try log.write(third(number)) }
      try log.prepareSegment()
      try log.write(third(3))
    }
    var log = try openLog(disk, seed: 8)
    #expect(log.recovery.copiedEvents == 1 && log.durableLSN == 4)
    #expect(try openings(disk).map(\.predecessorID) == [0, 1] && (try openings(disk).map(\.durableEnd))[1] > 4160)
    #expect(try manifest(disk).entries.map(\.segmentID) == [1, 3])
    try log.write(third(4))
    try log.close()
    #expect(disk.peek(storePath + "/" + SegmentName.name(2)) == nil, "gone at the latest at a close")
    log = try openLog(disk, seed: 9)
    for number in 5..<10 { try log.write(third(number)) }
    try log.close()
    #expect(try recovered(disk) == (0..<10).map(third))
  }

  @Test func `L4: without its opening frame it is unused, unless something in it was promised`() throws {
    for writes in 1...3 {
      let disk = SimulatedDisk()
      do {
        let log = try openLog(disk)
        for number in 0..<3 { try log.write(third(number)) }
        try log.prepareSegment()
        for number in 3..<3 + writes { try log.write(third(number)) }
      }
      let path = disk.segments[1]
      let bytes = try #require(disk.peek(path))
      for at in stride(from: 4096, to: 4160, by: 5) {
        let damaged = disk.clone()
        var content = bytes
        content[at] ^= 0x20
        damaged.poke(path, content)
        guard writes > 1 else {
          try check(damaged, 3, (0..<4).map(third), "byte \(at)")
          continue
        }
        let before = damaged.everything
        let error = logError { _ = try openLog(damaged) }
        #expect(error?.code == .damaged && error?.file == path, "byte \(at): \(String(describing: error))")
        #expect(damaged.everything == before)
      }
    }
  }

  @Test func `L4: what CONTROL says of it is a promise too`() throws {
    // One group that fills it and seals it: no promise stands in it, but the close says how far the log reaches.
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 0..<3 { try log.write(third(number)) }
    try log.prepareSegment()
    try log.write(body(3, count: 9_000))
    try log.close()
    let path = disk.segments[1]
    let bytes = try #require(disk.peek(path))
    for at in stride(from: 4096, to: bytes.count, by: 97) {
      let damaged = disk.clone()
      var content = bytes
      content[at] ^= 0x20
      damaged.poke(path, content)
      let before = damaged.everything
      let error = logError { _ = try openLog(damaged) }
      #expect(error.map { [.damaged, .missingSegment].contains($0.code) } == true, "byte \(at)")
      #expect(damaged.everything == before)
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(damaged, seed: 1))
      #expect(report.isDamaged, "byte \(at)")
    }
  }

  @Test func `that was not used is gone after a close, and after the next writer's first append`() throws {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    try log.write(third(0))
    try log.prepareSegment()
    #expect(disk.segments.count == 2)
    try log.close()
    #expect(disk.segments.count == 1)
    #expect(try manifest(disk).entries.map(\.segmentID) == [1])
    do {
      let log = try openLog(disk, seed: 8)
      try log.prepareSegment()
      #expect(disk.segments.count == 2)
    }
    let before = disk.everything
    #expect(before[storePath + "/" + SegmentName.name(3)] != nil, "an ID is not given twice")
    log = try openLog(disk, seed: 9)
    #expect(disk.everything == before, "an open without an append changes no byte")
    try log.write(third(1))
    #expect(disk.segments.map { String($0.suffix(5)) } == ["1.seg", "4.seg"])
    #expect(try manifest(disk).entries.map(\.segmentID) == [1, 4])
    try log.close()
    #expect(try recovered(disk) == [third(0), third(1)])
  }

  @Test func `that cannot be made is no failure of a commit`() throws {
    for call in [DiskCall.create, .preallocate, .write, .sync, .rename, .syncDirectory] {
      for ordinal in 1...2 {
        for error in [SystemError.full("", ""), .device("", "")] {
          let disk = SimulatedDisk()
          disk.failedSyncLosesPages = true
          let faults = FaultInjector(disk)
          let log = try openLog(faults)
          try log.write(third(0))
          faults.plan(DiskFault([call], ordinal: ordinal, error: error))
          let failure = logError { try log.prepareSegment() }
          if faults.struckCount > 0 {
            #expect(failure?.code == (error.isFull ? .full : .io), "\(call) \(ordinal): \(String(describing: failure))")
            #expect(log.upkeepReport.failures == 1 && log.upkeepReport.failure?.code == failure?.code)
          }
          faults.clear()
          // The segment at hand goes on; the next is made at once, unless it is not known which list holds.
          try log.write(third(1))
          var written = 2
          var refused: LogError?
          while written < 6, refused == nil {
            refused = logError { try log.write(third(written)) }
            if refused == nil { written += 1 }
          }
          if let refused {
            let isUnknown = call == .rename || call == .syncDirectory
            #expect(
              isUnknown && [.outcomeUnknown, .poisoned, .rejected].contains(refused.code),
              "\(call) \(ordinal): \(refused)")
          }
          _ = logError { try log.close() }
          for loss in [CrashLoss.none, .all] {
            let found = try recovered(disk.imageAfterCrash(loss))
            #expect(found.count >= written && found == (0..<found.count).map(third), "\(call) \(ordinal) \(loss)")
          }
        }
      }
    }
  }
}

/// A history drawn from a seed, with prepared segments, closes, deaths and power cuts at any call of any step. The
/// oracle is the list of what was appended.
private struct DrawnHistory {
  let seed: UInt64
  private var disk = SimulatedDisk()
  private let random: SeededRandom
  private let options: LogOptions
  private var log: Log?
  private var issued: [[UInt8]] = []
  /// How many of them no process's death takes away, and how many no power cut does.
  private var acknowledged = 0
  private var flushed = 0
  private(set) var crashes = 0
  private(set) var segments = 0

  init(seed: UInt64, strength: SyncStrength) {
    self.seed = seed
    random = SeededRandom(seed: seed)
    var options = tiny
    options.strength = strength
    options.ballastBytes = seed % 3 == 0 ? 4_096 : 0
    self.options = options
    disk.isOrderedSyncWeak = strength == .ordered
  }

  private mutating func open() throws {
    var found: [[UInt8]] = []
    let first: UInt64? = random.below(3) == 0 ? nil : 1
    let log = try Log.open(
      at: storePath, role: .store, options: options, environment: .simulated(disk, seed: random.next()), from: first
    ) { found.append($0.body) }
    if first == nil {
      for lsn in 1..<log.durableLSN + 1 { found.append(try log.read(lsn).body) }
    }
    try require(found.count >= acknowledged, "\(acknowledged) were acknowledged, \(found.count) found")
    try require(found == Array(issued.prefix(found.count)), "something else was found than was issued")
    try require(log.durableLSN == UInt64(found.count), "LSN \(log.durableLSN) of \(found.count)")
    issued = found
    acknowledged = found.count
    if options.strength == .durable { flushed = found.count }
    self.log = log
  }

  private func require(_ holds: Bool, _ what: String) throws {
    if !holds { throw LogError(.damaged, what) }
  }

  private mutating func step(_ letter: UInt64) throws {
    if log == nil { try open() }
    switch letter {
    case 0...6:
      let sizes = [[20], [1_300], [40, 0, 500], [3_700], [9_000], [600, 600], [1]][Int(letter)]
      let added = sizes.map { body(Int(random.below(1 << 30)), count: $0) }
      guard let lsns = try log?.append(transaction(added)) else { return }
      issued += added
      try log?.waitUntilDurableBlocking(lsns.upperBound)
      acknowledged = issued.count
      if options.strength == .durable { flushed = acknowledged }
    case 7, 8, 9: try log?.prepareSegment()
    case 10: try log?.raiseControl()
    case 11:
      try log?.flushBlocking()
      flushed = acknowledged
    case 12:
      try log?.close()
      log = nil
      flushed = acknowledged
    default: log = nil
    }
  }

  mutating func run(steps: Int) throws {
    try open()
    for _ in 0..<steps {
      let letter = random.below(14)
      guard random.below(8) == 0 else {
        try step(letter)
        segments = max(segments, disk.segments.count)
        continue
      }
      crashes += 1
      disk.isTearing = random.below(2) == 0
      disk.crashAtCall = disk.callCount + 1 + Int(random.below(10))
      do {
        try step(letter)
        disk.cutPower()
      } catch  where disk.isOff {
        // The power went; what the step threw says no more than that.
      }
      log = nil
      disk = disk.imageAfterCrash(using: random)
      acknowledged = flushed
      let environment = SystemEnvironment.simulated(disk, seed: 1)
      var seen = 0
      try LogReader.open(at: storePath, environment: environment).poll { _ in seen += 1 }
      let report = try LogVerifier.verify(at: storePath, environment: environment)
      try require(!report.isDamaged && report.lastLSN == UInt64(seen), "verify says \(report)")
      try open()
      try require(issued.count == seen, "a reader saw \(seen), a writer \(issued.count)")
    }
    log = nil
    disk = disk.imageAfterCrash(.none)
    acknowledged = flushed
    // With something appended: an open alone leaves a torn end as it is.
    try step(0)
    try log?.close()
    let report = try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1))
    try require(report.isSound, "\(report)")
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A log whose segments are prepared` {
  @Test(arguments: [SyncStrength.durable, .ordered])
  func `keeps what was acknowledged through drawn histories and power cuts`(strength: SyncStrength) throws {
    var crashes = 0
    var segments = 0
    for seed in Campaign.seeds(1...60) {
      var history = DrawnHistory(seed: seed, strength: strength)
      do {
        try history.run(steps: 50)
      } catch {
        Issue.record(
          "seed \(seed), \(strength): \(error); repeat it with: swift test --filter 'A log whose segments are prepared'"
        )
      }
      crashes += history.crashes
      segments = max(segments, history.segments)
    }
    print("prepared segments, drawn: \(crashes) power cuts, up to \(segments) segments")
    #expect(crashes > (Campaign.isWhole ? 300 : 60) && segments > 10)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `An event by its number` {
  /// A log with segments of every sort: full ones, prepared ones, ones closed early, left by a writer that vanished.
  private func store(closing: Bool) throws -> (SimulatedDisk, [[UInt8]]) {
    let disk = SimulatedDisk()
    let random = SeededRandom(seed: 21)
    var options = tiny
    options.segmentBytesMax = 60_000
    var bodies: [[UInt8]] = []
    for writer in 0..<6 {
      var log: Log? = try openLog(disk, options: options, seed: UInt64(writer) + 10)
      for step in 0..<(writer == 2 ? 1 : 40) {
        if step % 9 == 4 { try log?.prepareSegment() }
        if step % 7 == 6 { try log?.raiseControl() }
        let sizes = (0...random.below(3)).map { _ in Int(random.below(3_000)) }
        let added = sizes.map { body(bodies.count &* 7 &+ $0, count: $0) }
        bodies += added
        let lsns = try #require(try log?.append(transaction(added)))
        try log?.waitUntilDurableBlocking(lsns.upperBound)
      }
      if writer % 2 == 1 || (writer == 5 && closing) { try log?.close() }
      log = nil
    }
    if !closing {
      let log = try openLog(disk, options: options, seed: 40)
      for number in 0..<3 {
        bodies.append(body(number, count: 900))
        try log.write(bodies[bodies.count - 1])
      }
      return (disk.clone(), bodies)
    }
    return (disk, bodies)
  }

  @Test(arguments: [true, false]) func `is found without a replay, wherever it lies`(closing: Bool) throws {
    let (disk, bodies) = try store(closing: closing)
    #expect(disk.segments.count > 8 && bodies.count > 200)
    var replayed: [LogEvent] = []
    let first = try openLog(disk.clone(), seed: 50) { replayed.append($0) }
    #expect(replayed.map(\.body) == bodies)
    let image = disk.clone()
    let log = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(image, seed: 50), from: nil
    ) { _ in Issue.record("nothing is replayed") }
    #expect(log.durableLSN == UInt64(bodies.count) && log.nextLSN == first.nextLSN)
    #expect(log.recovery.copiedEvents == (closing ? 0 : 1))
    // Backwards and with a stride, so that no neighbour has loaded what is needed.
    for step in 0..<bodies.count {
      let lsn = UInt64(bodies.count - 1 - step * 37 % bodies.count) + 1
      let event = try log.read(lsn)
      let same = replayed[Int(lsn) - 1]
      #expect(event.body == same.body && event.lsn == lsn && event.schema == same.schema)
      #expect(event.indexInTransaction == same.indexInTransaction && event.isFirst == same.isFirst)
      #expect(event.isLast == same.isLast)
    }
    #expect(logError { _ = try log.read(UInt64(bodies.count) + 1) }?.code == .noSuchLSN)
    try log.write([5])
    #expect(try log.read(log.durableLSN).body == [5])
    try log.close()
    #expect(try recovered(image) == bodies + [[5]])
  }

  @Test(arguments: [true, false]) func `is where a replay from the middle begins`(closing: Bool) throws {
    let (disk, bodies) = try store(closing: closing)
    for from in stride(from: 1, through: bodies.count + 2, by: 13) {
      var seen: [[UInt8]] = []
      let log = try Log.open(
        at: storePath, role: .store, options: tiny, environment: .simulated(disk.clone(), seed: 50),
        from: UInt64(from)
      ) { seen.append($0.body) }
      #expect(seen == Array(bodies.dropFirst(from - 1)), "from \(from)")
      for lsn in [1, from / 2 + 1, bodies.count] { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    }
  }

  @Test func `is refused when its bytes or its index's are damaged, and others are not`() throws {
    let (disk, bodies) = try store(closing: true)
    var places: [LogEvent] = []
    try openLog(disk.clone(), seed: 50) { places.append($0) }.close()
    // In a segment that ends with its seal.
    let victim = try #require(
      places.dropFirst(120).first { event in
        guard let bytes = disk.peek(storePath + "/" + SegmentName.name(event.segmentID)) else { return false }
        return event.body.count > 20 && bytes[bytes.count - LogFormat.sealFrameBytes + 16] == FrameType.seal.rawValue
      })
    let path = storePath + "/" + SegmentName.name(victim.segmentID)
    var bytes = try #require(disk.peek(path))
    bytes[Int(victim.offset) + 40] ^= 1
    let damaged = disk.clone()
    damaged.poke(path, bytes)
    let log = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(damaged, seed: 50), from: nil
    ) { _ in }
    #expect(logError { _ = try log.read(victim.lsn) }?.code == .damaged)
    #expect(logError { _ = try log.read(victim.lsn) }?.file == path)
    for lsn in [1, 2, bodies.count] { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    try log.close()
    // An index was acknowledged with its group: without it the segment is damaged.
    bytes = try #require(disk.peek(path))
    bytes[bytes.count - LogFormat.sealFrameBytes - 4] ^= 1
    let without = disk.clone()
    without.poke(path, bytes)
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(without, seed: 1)).isDamaged)
    let other = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(without, seed: 50), from: nil
    ) { _ in }
    #expect(logError { _ = try other.read(victim.lsn) }?.file == path)
  }
}
