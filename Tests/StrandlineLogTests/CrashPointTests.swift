// A slice of the proofs of `crash-test`: one long run crashed at its calls, damage to every kind of file, and histories
// that must raise no alarm. The whole campaign runs in release. What judges them all is shown to find what is planted.

import StrandlineLog
import StrandlineLogProofs
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `One long run` {
  @Test(arguments: 0..<(Campaign.isWhole ? 2 : 1)) func `crashed at the calls of some of its operations`(half: Int)
    throws
  {
    var points = CrashPoints(seed: 11)
    points.operations = 60
    points.paths = 120
    try points.run { $0 % 30 == half * 14 }
    print("crash points: \(points.report)")
    #expect(points.isComplete)
    #expect(points.report.operations[0] >= 2 && points.report.images[0] >= points.report.operations[0] * 30)
    #expect(points.report.images[1] > 50 && points.report.images[2] >= 2)
  }

  @Test(arguments: [SyncStrength.durable, .ordered])
  func `does everything that there is, whatever its seed`(strength: SyncStrength) throws {
    for seed in 1...3 as ClosedRange<UInt64> {
      var points = CrashPoints(seed: seed, strength: strength)
      // Nothing is crashed: what counts is what the run has done at its end.
      try points.run { _ in false }
      #expect(points.report.work.isComplete, "seed \(seed): \(points.report)")
    }
  }

  @Test func `is the same each time, and a point of it is found again`() throws {
    func run() throws -> String {
      var points = CrashPoints(seed: 5)
      points.operations = 9
      try points.run(levels: [1]) { $0 == 9 }
      return points.report.description
    }
    #expect(try run() == run())
    for point in [
      CrashPoint(level: 1, operation: 9, call: 1, image: 2), CrashPoint(level: 2, operation: 4, call: 3, image: 2),
      CrashPoint(level: 3, operation: 6, call: 0, image: 6),
    ] {
      var points = CrashPoints(seed: 5)
      try points.replay(point)
      #expect(points.report.totalImages == 1, "\(point)")
    }
    var points = CrashPoints(seed: 5)
    #expect(throws: LogProblem.self) {
      try points.replay(CrashPoint(level: 1, operation: 9, call: 999, image: 0))
    }
  }

  @Test func `tears the write that a crash meets`() throws {
    let disk = SimulatedDisk()
    let file = try disk.open("/a", .create)
    try disk.syncDirectory("/")
    disk.keepsHistory = true
    try file.write([UInt8](repeating: 7, count: 4 * 512), at: 0)
    try file.sync(.durable)
    let between = try #require(disk.history.last)
    var shapes: Set<[UInt8]> = []
    for seed in 0..<400 {
      let bytes = between.imageAfterCrash(using: SeededRandom(seed: UInt64(seed))).peek("/a") ?? []
      guard bytes.count == 4 * 512 else { continue }
      shapes.insert((0..<4).map { (sector: Int) -> UInt8 in bytes[sector * 512] == 7 ? 1 : 0 })
    }
    // Each subset of four sectors, prefixes and suffixes among them.
    #expect(shapes.count == 16)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `Every damage to a closed store` {
  @Test(arguments: 0..<(Campaign.isWhole ? 2 : 1)) func `gives its events or an error that names the file`(half: Int)
    throws
  {
    var rot = try BitRot(seed: 1)
    let kinds = rot.kinds
    for kind: RotKind in [
      .sealedSegment, .rewrittenSegment, .lastSegment, .truth("CONTROL"), .hint("BALLAST"),
    ] { #expect(kinds[kind] ?? 0 >= 8 << 10, "\(kind.word)") }
    // As large as a list of so many files is.
    #expect(kinds[.truth("MANIFEST")] ?? 0 > 256)
    let numbers = rot.damages.indices.filter { index in
      guard index % 2 == half else { return false }
      if case .bit = rot.damages[index] { return index % 2_681 == 0 }
      if case .cut = rot.damages[index] { return index % 367 == 0 }
      return index % 17 == 0
    }
    try rot.run(numbers)
    print("damage at rest: \(rot.report)")
    #expect(rot.report.damages == numbers.count)
    #expect(rot.report.count(.refused) > 25 && rot.report.count(.exactWithFinding) > 10)
    #expect(rot.report.excessBytes <= 256 << 10)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `No false alarm` {
  @Test(arguments: 0..<8) func `after what may legally happen to a store`(seed: UInt64) throws {
    var histories = LegalHistories(seed: seed)
    try histories.run()
    #expect(histories.steps == 40)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The oracle` {
  /// `count` events: a transaction of one, one of two, then single ones.
  private func issued(_ count: Int) -> [LogEvent] {
    (1...count).map { (lsn: Int) -> LogEvent in
      let index: UInt32 = lsn == 3 ? 1 : 0
      return LogEvent(
        lsn: UInt64(lsn), schema: 1, body: [UInt8(lsn)], indexInTransaction: index, isFirst: lsn != 3,
        isLast: lsn != 2, segmentID: 1, offset: 0)
    }
  }

  private func bounds(_ count: Int, acknowledged: Int) -> LogBounds {
    LogBounds(issued: issued(count).map { $0.content }, acknowledged: acknowledged, flushed: acknowledged)
  }

  private func verdict(_ bounds: LogBounds, _ lsns: [Int]) -> Int? {
    let all = issued(9)
    return try? bounds.check(lsns.map { all[$0 - 1] }, by: "a test")
  }

  @Test func `takes a prefix in whole transactions with all that was acknowledged`() {
    let bounds = bounds(6, acknowledged: 3)
    #expect(verdict(bounds, [1, 2, 3]) == 3)
    #expect(verdict(bounds, [1, 2, 3, 4, 5, 6]) == 6)
    for wrong in [
      [], [1], [1, 2], [1, 2, 4], [2, 3], [1, 3, 2], [1, 2, 3, 3], [1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 5],
    ] {
      #expect(verdict(bounds, wrong) == nil, "\(wrong)")
    }
    var other = issued(3)
    other[1].body = [99]
    #expect(throws: LogProblem.self) { try bounds.check(other, by: "a test") }
  }

  @Test func `lets go what the owner gave up, and nothing else, and never back`() {
    var bounds = bounds(6, acknowledged: 5)
    bounds.droppable = [2, 3, 5]
    #expect(verdict(bounds, [1, 2, 3, 4, 5]) == 5)
    #expect(verdict(bounds, [1, 4]) == 5)
    #expect(verdict(bounds, [1, 4, 6]) == 6)
    #expect(verdict(bounds, [1, 2, 4]) == 5)
    #expect(verdict(bounds, [1, 2, 3]) == nil)
    #expect(verdict(bounds, [4, 5]) == nil)
    let all = issued(6)
    bounds.settle(on: [all[0], all[3]], reach: 5)
    #expect(bounds.gone == [2, 3, 5] && bounds.issued.count == 5)
    #expect(verdict(bounds, [1, 4]) == 5)
    #expect(verdict(bounds, [1, 2, 4]) == nil)
    #expect(verdict(bounds, [1, 4, 6]) == nil)
  }
}
