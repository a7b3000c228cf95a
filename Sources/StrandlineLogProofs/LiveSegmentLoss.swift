// Damage at rest to the segment that a killed writer was appending to: behind every unit of it the file is cut, and
// everything is zeroed. What promises a group inside its segment is lost with the rest then, so CONTROL alone can say
// that something is missing. It must, for all that was acknowledged when it was last raised; what was acknowledged since
// is the one window that Formats/log.md names.
//
// A writer lives a life that is drawn from a seed, and after each of its operations a copy of the disk is damaged.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// What was tried.
package struct LiveSegmentLossReport: Sendable, CustomStringConvertible {
  package var damages = 0
  package var refused = 0
  /// Of these the loss was inside the window.
  package var healed = 0

  package init() {}

  package static func += (left: inout LiveSegmentLossReport, right: LiveSegmentLossReport) {
    left.damages += right.damages
    left.refused += right.refused
    left.healed += right.healed
  }

  package var description: String {
    "\(damages) cuts and holes in a live segment: \(refused) refused, \(healed) later than CONTROL's last update"
  }
}

/// The lives of one seed.
package struct LiveSegmentLoss {
  package let seed: UInt64
  package private(set) var report = LiveSegmentLossReport()

  package init(seed: UInt64) { self.seed = seed }

  private static let operations = 40

  /// Runs one life.
  ///
  /// - Throws: `LogHistoryFailure`.
  package mutating func run() throws {
    let random = SeededRandom(seed: seed)
    let disk = SimulatedDisk()
    let scene = LogScene(disk: disk, seed: seed, strength: .durable)
    var history = ""
    do {
      try scene.open()
      for _ in 0..<Self.operations {
        let drawn: [LogOperation] = [.small, .three, .large, .pair, .double, .idle, .idle, .maintain, .vanish, .close]
        let operation = drawn[Int(random.below(UInt64(drawn.count)))]
        history.append(operation.rawValue)
        try scene.perform(operation)
        try damage(disk.clone(), scene.bounds(beforeCall: .max), raised: scene.raisedLSN)
      }
    } catch let error as LogProblem {
      throw LogHistoryFailure(
        history: history, seed: seed, crash: "the live segment", what: error.description,
        command: "strandline crash-test --history live --seed 0x\(String(seed, radix: 16))")
    }
  }

  /// Every cut and every hole behind a unit of the last segment.
  private mutating func damage(_ image: SimulatedDisk, _ bounds: LogBounds, raised: Int) throws {
    var last: (path: String, ends: [Int]) = ("", [])
    try LogReader.open(at: LogHistories.path, environment: .simulated(image, seed: 1)).frames { frame in
      let path = LogHistories.path + "/" + SegmentName.name(frame.segmentID)
      if path != last.path { last = (path, [LogFormat.headerPageBytes]) }
      last.ends.append(Int(frame.offset) + frame.frameBytes)
    }
    guard let bytes = image.peek(last.path) else { throw LogProblem("the store has no segment") }
    for end in last.ends.dropLast() {
      for isCut in [true, false] {
        let damaged = image.clone()
        let rest = isCut ? [] : [UInt8](repeating: 0, count: bytes.count - end)
        damaged.poke(last.path, Array(bytes[..<end]) + rest)
        report.damages += 1
        try judge(damaged, bounds, raised, isCut ? "cut at \(end)" : "zeros from \(end)")
      }
    }
  }

  private mutating func judge(_ disk: SimulatedDisk, _ bounds: LogBounds, _ raised: Int, _ words: String) throws {
    let verified = try LogVerifier.verify(at: LogHistories.path, environment: .simulated(disk, seed: 1))
    var found: [LogEvent] = []
    do {
      let log = try Log.open(
        at: LogHistories.path, role: .store, options: LogHistories.options, environment: .simulated(disk, seed: 2)
      ) { found.append($0) }
      try log.close()
    } catch let error as LogError {
      guard [.damaged, .missingSegment].contains(error.code) else { throw LogProblem("\(words): \(error)") }
      guard verified.isDamaged else { throw LogProblem("\(words): an open is refused, and verify finds nothing") }
      report.refused += 1
      return
    }
    guard !verified.isDamaged else { throw LogProblem("\(words): it opens, and verify says that it is damaged") }
    var floor = bounds
    floor.acknowledged = min(bounds.acknowledged, raised)
    try floor.check(found, by: "an open of what was \(words)")
    if found.count < bounds.acknowledged { report.healed += 1 }
  }
}
