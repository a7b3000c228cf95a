// No false alarm: whatever may legally happen to a store, `verify` calls it sound or torn, and an open works.
//
// A run draws from the log's own operations and from what people and machines do to a folder: power cuts, kills, a
// copy without the lock file, a backup and its return. After each step a copy of the disk is looked at.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// The generator. What it does follows from its seed alone.
package struct LegalHistories {
  package let seed: UInt64
  package private(set) var steps = 0

  package init(seed: UInt64) { self.seed = seed }

  /// What happens to a folder from outside.
  private enum Event: CaseIterable {
    case powerCut, kill, secondOpener, copyWithoutLock, backup, restore
  }

  /// A run of `length` steps.
  ///
  /// - Throws: `LogHistoryFailure`.
  package mutating func run(length: Int = 40) throws {
    let random = SeededRandom(seed: seed ^ 0x1E6A_1)
    var word: [String] = []
    do {
      var scene = LogScene(disk: SimulatedDisk(), seed: random.next(), strength: .durable)
      try scene.open()
      var backup: (disk: SimulatedDisk, bounds: LogBounds)?
      for _ in 0..<length {
        steps += 1
        if random.below(3) > 0 {
          let operation = LogOperation.draw(random)
          word.append("\(operation)")
          try scene.perform(operation)
        } else {
          let event = Event.allCases[Int(random.below(UInt64(Event.allCases.count)))]
          word.append("\(event)")
          let bounds = scene.bounds(beforeCall: .max)
          var next: (disk: SimulatedDisk, bounds: LogBounds)?
          switch event {
          case .powerCut: next = (scene.disk.imageAfterCrash(using: random), bounds.afterPowerCut)
          case .kill: next = (scene.disk.clone(), bounds)
          case .secondOpener: try openSecond(scene)
          case .copyWithoutLock: next = (copyWithoutLock(scene.disk), bounds)
          case .backup: backup = (scene.disk.imageAfterCrash(.all), bounds)
          case .restore:
            // The whole folder as it was, as a person would put it back; what came later is not missed.
            if let backup { next = (backup.disk.clone(), backup.bounds) }
          }
          if let next {
            scene.letGo()
            scene = LogScene(disk: next.disk, seed: random.next(), strength: .durable, after: next.bounds)
            try look(next.disk)
            try scene.open()
          }
        }
        // While a writer is open, and as if it had been killed.
        try look(scene.disk)
        try look(scene.disk.clone())
      }
    } catch {
      throw LogHistoryFailure(
        history: word.joined(separator: " "), seed: seed, crash: "none", what: "a false alarm: \(error)",
        command: "strandline crash-test --seed 0x\(String(seed, radix: 16)) --history legal")
    }
  }

  private func look(_ disk: SimulatedDisk) throws {
    let report = try LogVerifier.verify(at: LogHistories.path, environment: .simulated(disk, seed: 3))
    guard !report.isDamaged else { throw LogProblem("verify says \(report.findings)") }
    try LogReader.open(at: LogHistories.path, environment: .simulated(disk, seed: 3)).poll { _ in }
  }

  /// Another writer is told that the store is held, and nothing else.
  private func openSecond(_ scene: LogScene) throws {
    do {
      _ = try Log.open(
        at: LogHistories.path, role: .store, options: LogHistories.options, environment: .simulated(scene.disk, seed: 4)
      ) { _ in }
    } catch let error as LogError where error.code == .held {
      return
    }
    throw LogProblem("two writers hold one store")
  }

  private func copyWithoutLock(_ disk: SimulatedDisk) -> SimulatedDisk {
    let copy = SimulatedDisk()
    for path in disk.paths where !path.hasSuffix("/LOCK") { copy.poke(path, disk.peek(path) ?? []) }
    return copy
  }
}
