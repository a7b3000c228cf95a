// What others do in the folder of a device's store while the app has it open: a process that only reads it, and a person who moves
// it away (WorldFates.swift). Both come between two steps, or before a call in the middle of a write or a sync.

internal import Strandline
internal import StrandlineLog
internal import StrandlineSimulation
internal import StrandlineSystem
internal import Synchronization

/// What others do in a store's folder.
enum WorldVisit: Sendable {
  /// A process that reads the store looks what is new.
  case look
  /// A person does something with the folder.
  case move
}

/// What is planned for a call of each device's next step that changes the disk: by device, before which of its calls.
struct WorldPlannedCalls {
  /// At this call the power is cut.
  var cuts: [Int: (call: Int, seed: UInt64)] = [:]
  var visits: [Int: (what: WorldVisit, call: Int, seed: UInt64)] = [:]
  /// What the visits met.
  let met = WorldMet()
}

/// What visits in the middle of a step met.
final class WorldMet: Sendable {
  private struct State {
    var looks = 0
    var moves = 0
    var broken: String?
  }
  private let state = Mutex(State())

  func look(_ broken: String?) {
    state.withLock { state in
      state.looks += 1
      state.broken = state.broken ?? broken
    }
  }
  func move(_ broken: String?) {
    state.withLock { state in
      state.moves += 1
      state.broken = state.broken ?? broken
    }
  }

  /// How many there were since this was asked last, and what was wrong first.
  func take() -> (looks: Int, moves: Int, broken: String?) {
    state.withLock { state in
      defer { state = State() }
      return (state.looks, state.moves, state.broken)
    }
  }
}

extension WorldRun {
  // MARK: Planned calls

  /// Lets what is planned count the calls of what follows. A visit waits for a power cut to be over.
  func arm(_ device: WorldDevice) {
    let disk = device.disk
    if let cut = planned.cuts[device.number] {
      disk.cutPower(atCall: disk.callCount + cut.call)
    } else if let visit = planned.visits[device.number] {
      let (met, time) = (planned.met, time)
      let acknowledged = device.acknowledged
      disk.interrupt(beforeCall: disk.callCount + visit.call) {
        switch visit.what {
        case .look: met.look(Self.lookMeanwhile(at: device, acknowledged))
        case .move:
          do {
            guard try Self.takeAway(device, visit.seed, isMeanwhile: true) else { return }
            // One time in four the power goes soon after it, often before the writer has noticed.
            if visit.seed >> 16 & 3 == 0 {
              disk.cutPower(atCall: disk.callCount + 1 + Int(visit.seed >> 20 & 7))
            }
            // Half of the moves are noticed in the same step, if the writer begins another group in it.
            if visit.seed.isMultiple(of: 2) { time.advance(milliseconds: Int64(StoreLook.milliseconds)) }
            met.move(nil)
          } catch { met.move("the folder cannot be moved: \(error)") }
        }
      }
    }
  }

  /// After what something was planned for: the device starts again if its power was cut, and the app finds out what became of the
  /// folder of its store.
  mutating func endPlanned(_ device: WorldDevice) async throws {
    if let cut = planned.cuts.removeValue(forKey: device.number) {
      device.disk.crashAtCall = nil
      if device.disk.isOff { try await restart(device, seed: cut.seed) }
    } else if let visit = planned.visits.removeValue(forKey: device.number) {
      device.disk.endInterruption()
      device.disk.crashAtCall = nil
      let met = planned.met.take()
      tally[.readerMeanwhile] += met.looks
      tally[.movedFolderMeanwhile] += met.moves
      if let broken = met.broken { throw WorldBroken(.durable, "\(device.name): \(broken)") }
      if met.looks > 0 { say("\(device.name): a reader has looked meanwhile") }
      try await reopen(device, seed: visit.seed)
    }
  }

  // MARK: Readers

  /// A process that only reads a device's store looks what is new: it shows what the app was told, and what the writer shows.
  mutating func look(at device: WorldDevice) async throws {
    let store = try await device.open()
    let wasOpen = device.openReader != nil
    let reader: RecordStore
    do { reader = try device.refreshedReader() } catch {
      throw WorldBroken(.durable, "\(device.name): a reader cannot look: \(error)")
    }
    if wasOpen { tally[.refreshedReader] += 1 }
    say("\(device.name): a reader \(wasOpen ? "looks again" : "is opened") and shows \(reader.durableLSN)")
    guard device.acknowledged <= reader.durableLSN, reader.durableLSN <= store.durableLSN else {
      throw WorldBroken(
        .durable,
        "\(device.name): a reader shows event \(reader.durableLSN), \(device.acknowledged) was acknowledged, and "
          + "\(store.durableLSN) is durable")
    }
    // What a full disk keeps an open from copying only the writer has.
    guard reader.durableLSN == store.durableLSN else { return }
    let (shown, written) = (try WorldDevice.dump(reader), try WorldDevice.dump(store))
    if let difference = zip(shown + [""], written + [""]).first(where: { !$0.equalsUTF8($1) }) {
      throw WorldBroken(.durable, "\(device.name): a reader shows '\(difference.0)' for '\(difference.1)'")
    }
  }

  /// The same while the writer is at work: what was acknowledged before is shown, and nothing that a power cut could take.
  ///
  /// - Returns: what is wrong.
  private static func lookMeanwhile(at device: WorldDevice, _ acknowledged: LSN) -> String? {
    do {
      let shown = try device.refreshedReader().durableLSN
      guard shown >= acknowledged else {
        return "a reader in the middle of a step shows event \(shown), and \(acknowledged) was acknowledged"
      }
      let synced = try device.lastSyncedLSN()
      guard shown <= synced else {
        return "a reader in the middle of a step shows event \(shown), and a power cut leaves \(synced)"
      }
      return nil
    } catch {
      return "a reader cannot look in the middle of a step: \(error)"
    }
  }
}
