// Goal: no power cut leaves CONTROL without a slot that verifies, also when the writer before was killed between writing
// a slot and syncing it. Method: a writer is killed at each of its calls, the next one goes on with what the page cache
// holds, and the power is cut at each of its calls, with the losses that tear both slots at once.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The bounds beside a log` {
  /// A writer's life.
  private struct Life {
    /// What was acknowledged, and how many calls of the disk had been made by then.
    var acknowledged: [(calls: Int, body: [UInt8])] = []
    /// The disk before each call: what a kill there leaves, or a power cut makes of it.
    var disks: [SimulatedDisk] = []
  }

  /// The writer appends twice and closes.
  private func live(on disk: SimulatedDisk, _ number: Int) throws -> Life {
    disk.keepsHistory = true
    defer { disk.keepsHistory = false }
    var life = Life()
    let start = disk.callCount
    let log = try openLog(disk, seed: UInt64(number))
    for index in 0..<2 {
      let content = body(number * 10 + index)
      try log.write(content)
      life.acknowledged.append((disk.callCount - start, content))
    }
    try log.close()
    life.disks = disk.history
    return life
  }

  /// The unsynced pieces of CONTROL, by slot.
  private func unsyncedSlots(_ disk: SimulatedDisk) -> Set<Int> {
    Set(disk.unsyncedEffects().compactMap { slot(of: $0) })
  }

  private func slot(of effect: UnsyncedEffect) -> Int? {
    guard effect.path == storePath + "/" + LogFormat.controlName, case .sector(let sector) = effect.kind else {
      return nil
    }
    return sector * 512 / LogFormat.controlPageBytes
  }

  /// What a power cut may keep of the sectors of a slot that was being written.
  private enum Kept: CaseIterable {
    case nothing, firstSector, allButTheFirst, everything

    func keeps(_ effect: UnsyncedEffect, from start: Int) -> Bool {
      guard case .sector(let sector) = effect.kind else { return true }
      return switch self {
      case .nothing: false
      case .firstSector: sector == start
      case .allButTheFirst: sector != start
      case .everything: true
      }
    }
  }

  @Test func `outlive a power cut in the life after a kill, whichever slots it tears`() throws {
    let first = SimulatedDisk()
    let before = try live(on: first, 1)
    var killsWithUnsyncedBounds = 0
    var cuts = 0
    for (kill, killed) in before.disks.enumerated() where !unsyncedSlots(killed).isEmpty {
      // Before that the store did not have its name.
      guard killed.paths.contains(storePath + "/" + LogFormat.controlName) else { continue }
      killsWithUnsyncedBounds += 1
      let known = before.acknowledged.filter { $0.calls <= kill }
      let after = try live(on: killed, 2)
      for (cut, state) in after.disks.enumerated() {
        let expected = (known + after.acknowledged.filter { $0.calls <= cut }).map(\.body)
        for one in Kept.allCases {
          for other in Kept.allCases {
            let image = state.imageAfterCrash { effect in
              guard let slot = slot(of: effect) else { return true }
              let start = slot * LogFormat.controlPageBytes / 512
              return (slot == 0 ? one : other).keeps(effect, from: start)
            }
            cuts += 1
            let found = try recovered(image)
            #expect(found.starts(with: expected), "killed at \(kill), cut at \(cut), kept: \(one), \(other)")
          }
        }
      }
    }
    // The history that this is about has happened.
    #expect(killsWithUnsyncedBounds > 0 && cuts > 100)
  }

  @Test func `never say again what a raise had said that a power cut tore`() throws {
    let disk = SimulatedDisk()
    let store = try openLog(disk, seed: 1)
    try store.close()
    // Two transactions. That the second is durable is said by an unsynced raise and nothing else.
    let log = try openLog(disk, seed: 2)
    try log.write(body(0))
    try log.write(body(1))
    try log.raiseControl()
    let torn = disk.unsyncedEffects().filter { slot(of: $0) != nil }
    #expect(!torn.isEmpty)
    for effect in torn {
      guard case .sector(let sector) = effect.kind else { continue }
      // The cut ruins one sector of the raise. The next writer copies the second transaction into another segment.
      let ruined = disk.imageAfterCrash(.all)
      let path = storePath + "/" + LogFormat.controlName
      var bytes = try #require(ruined.peek(path))
      bytes.replaceSubrange(sector * 512..<sector * 512 + 4, with: [1, 2, 3, 4])
      ruined.poke(path, bytes)
      let second = try openLog(ruined, seed: 3)
      try second.write(body(2))
      try second.raiseControl()
      // Of its raise this cut keeps that sector only.
      let image = ruined.imageAfterCrash { slot(of: $0) == nil || $0.kind == .sector(sector) }
      #expect(try recovered(image) == [body(0), body(1), body(2)], "sector \(sector)")
    }
  }
}
