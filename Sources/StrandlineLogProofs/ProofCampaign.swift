// All proofs of the log on the simulated disk, in one run on all processors.
//
// The work is cut into parts that know nothing of each other; lanes take one after the other until the time is over.
// What was done completely, and what the time cut short, is said for each suite: a number of images alone would not
// tell.

import Dispatch
package import StrandlineSystem
import Synchronization

/// A suite of the campaign, in the order in which they run.
package enum ProofSuite: Int, Sendable, CaseIterable {
  case legal, shortHistories, crashPoints, bitRot, liveSegments, histories, drawn
}

/// What lanes have done.
package struct ProofTally: Sendable {
  package var histories = LogHistoryReport()
  package var points = CrashPointReport()
  package var rot = RotReport()
  package var liveSegments = LiveSegmentLossReport()
  package var legalRuns = 0
  package var legalSteps = 0

  package init() {}

  /// Disks that were opened and judged.
  package var images: Int { histories.images + points.totalImages + rot.damages + liveSegments.damages }

  package static func += (left: inout ProofTally, right: ProofTally) {
    left.histories += right.histories
    left.points += right.points
    left.rot += right.rot
    left.liveSegments += right.liveSegments
    left.legalRuns += right.legalRuns
    left.legalSteps += right.legalSteps
  }
}

/// What became of one suite.
package struct ProofResult: Sendable {
  package var suite: ProofSuite
  package var tally = ProofTally()
  /// Parts done to their end, of so many; drawn histories have no end.
  package var partsDone = 0
  package var parts = 0
  package var isComplete: Bool { partsDone == parts }
}

/// The campaign.
package struct ProofCampaign: Sendable {
  package var seed: UInt64
  package var strength = SyncStrength.durable
  /// More drawn images at each call, every damage instead of a slice, and no end before all suites are complete.
  package var isExhaustive = false
  /// Whether the time is over.
  package var isOver: @Sendable () -> Bool
  /// Called by any lane when something was done.
  package var progress: @Sendable (_ images: Int) -> Void

  package init(
    seed: UInt64, isOver: @escaping @Sendable () -> Bool, progress: @escaping @Sendable (Int) -> Void = { _ in }
  ) {
    self.seed = seed
    self.isOver = isOver
    self.progress = progress
  }

  /// Lanes; as many run at once as there are processors.
  private static let lanes = 64
  /// Parts that a suite is cut into.
  private static let pointParts = 16
  private static let rotParts = 16
  private static let historyParts = 8
  /// Of all damages, a slice takes one in so many, and those that are no bits all.
  private static let rotSlice = 40
  private static let legalParts = 4
  private static let legalRuns = 10
  private static let drawnAtOnce = 4

  private struct Part: Sendable {
    var suite: ProofSuite
    /// Whether it was done to its end.
    var run: @Sendable (_ isOver: @escaping @Sendable () -> Bool) throws -> (ProofTally, Bool)
  }

  private struct Shared {
    var next = 0
    var drawn: UInt64 = 0
    var failure: (part: Int, error: any Error)?
    var results = ProofSuite.allCases.map { ProofResult(suite: $0) }
    var images = 0
  }

  /// Runs it.
  ///
  /// - Throws: the failure of the first part that failed.
  package func run() throws -> [ProofResult] {
    let parts = parts()
    let shared = Mutex(Shared())
    for part in parts { shared.withLock { $0.results[part.suite.rawValue].parts += 1 } }
    let isOver: @Sendable () -> Bool = { [isOver, isExhaustive] in
      shared.withLock { $0.failure != nil } || (!isExhaustive && isOver())
    }
    DispatchQueue.concurrentPerform(iterations: Self.lanes) { _ in
      while !isOver() {
        let number = shared.withLock { shared in
          defer { shared.next += 1 }
          return shared.next
        }
        let part: Part
        if number < parts.count {
          part = parts[number]
        } else if !self.isOver() {
          part = drawn(
            shared.withLock {
              $0.drawn += UInt64(Self.drawnAtOnce); return $0.drawn
            })
        } else {
          return
        }
        do {
          let (tally, isDone) = try part.run(isOver)
          let images = shared.withLock { shared in
            shared.results[part.suite.rawValue].tally += tally
            if isDone, number < parts.count { shared.results[part.suite.rawValue].partsDone += 1 }
            shared.images += tally.images
            return shared.images
          }
          progress(images)
        } catch {
          shared.withLock { shared in
            if shared.failure.map({ $0.part > number }) ?? true { shared.failure = (number, error) }
          }
        }
      }
    }
    return try shared.withLock { shared in
      if let failure = shared.failure { throw failure.error }
      return shared.results
    }
  }

  // MARK: Parts

  private func parts() -> [Part] {
    var parts: [Part] = []
    for number in 0..<Self.legalParts { parts.append(legal(number)) }
    parts.append(liveSegments())
    for length in 0...2 { parts.append(histories(.shortHistories, length, 0, 1)) }
    // Turn by turn, so that a run that is cut short has looked at everything.
    for number in 0..<max(Self.pointParts, Self.rotParts, Self.historyParts) {
      if number < Self.rotParts { parts.append(rot(number)) }
      if number < Self.pointParts { parts.append(points(number)) }
      if number < Self.historyParts { parts.append(histories(.histories, 3, number, Self.historyParts)) }
    }
    return parts
  }

  private func legal(_ number: Int) -> Part {
    Part(suite: .legal) { [seed] _ in
      var tally = ProofTally()
      for run in 0..<Self.legalRuns {
        var histories = LegalHistories(seed: seed &+ UInt64(number * Self.legalRuns + run))
        try histories.run()
        tally.legalRuns += 1
        tally.legalSteps += histories.steps
      }
      return (tally, true)
    }
  }

  private func histories(_ suite: ProofSuite, _ length: Int, _ number: Int, _ parts: Int) -> Part {
    Part(suite: suite) { [seed, strength] isOver in
      var run = LogHistories(seed: seed, strength: strength)
      var isDone = true
      try run.runAll(length: length) { history in
        guard history % parts == number else { return false }
        if isOver() { isDone = false }
        return isDone
      }
      var tally = ProofTally()
      tally.histories = run.report
      return (tally, isDone)
    }
  }

  private func points(_ number: Int) -> Part {
    Part(suite: .crashPoints) { [seed, strength, isExhaustive] isOver in
      var run = CrashPoints(seed: seed, strength: strength)
      run.isOver = isOver
      // The numbers of images stay those of the shorter run, so that one command repeats either.
      if isExhaustive {
        run.triesSurvivors = true
        run.recoveries = 4
        run.paths = 20_000
      }
      try run.run { $0 % Self.pointParts == number }
      var tally = ProofTally()
      tally.points = run.report
      return (tally, run.isComplete)
    }
  }

  /// Every cut and every hole behind a unit of a killed writer's segment.
  private func liveSegments() -> Part {
    Part(suite: .liveSegments) { [seed, isExhaustive] _ in
      var tally = ProofTally()
      for life in 0..<UInt64(isExhaustive ? Self.livesExhaustive : Self.lives) {
        var run = LiveSegmentLoss(seed: seed &+ life)
        try run.run()
        tally.liveSegments += run.report
      }
      return (tally, true)
    }
  }

  private static let lives = 8
  private static let livesExhaustive = 200

  private func rot(_ number: Int) -> Part {
    Part(suite: .bitRot) { [seed, isExhaustive] isOver in
      var run = try BitRot(seed: seed)
      // Neighbours are shared out: the parts are equally long.
      let damages = run.damages
      let mine = damages.indices.lazy.filter { index in
        guard index % Self.rotParts == number else { return false }
        if isExhaustive { return true }
        guard case .bit = damages[index] else { return index / Self.rotParts % 4 == 0 }
        return index / Self.rotParts % Self.rotSlice == 0
      }
      try run.run(mine, isOver: isOver)
      var tally = ProofTally()
      tally.rot = run.report
      return (tally, !isOver())
    }
  }

  private func drawn(_ number: UInt64) -> Part {
    Part(suite: .drawn) { [seed, strength] _ in
      var tally = ProofTally()
      for one in 0..<UInt64(Self.drawnAtOnce) {
        var run = LogHistories(seed: seed &+ number &+ one, strength: strength)
        try run.runRandom()
        tally.histories += run.report
      }
      return (tally, true)
    }
  }
}
