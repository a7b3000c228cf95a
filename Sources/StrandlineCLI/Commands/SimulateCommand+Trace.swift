// `simulate --trace`: the requests of each world in a file, so that two versions of the engine can be compared with `diff`.

import StrandlineHost
import StrandlineSystem
import StrandlineTesting
import Synchronization

/// The file of a trace. Worlds end in any order, and are written in the order of their seeds, so that the same command gives
/// the same bytes. Of a campaign that fails the world that failed is the last one in it.
final class TraceFile: Sendable {
  private struct State {
    var file: any File
    var bytes: UInt64 = 0
    /// The world to write next.
    var next: UInt64 = 0
    /// Worlds that ended before it.
    var early: [UInt64: (bytes: [UInt8], isLast: Bool)] = [:]
    var hasLast = false
  }
  private let state: Mutex<State>
  private let path: String
  private let fileSystem: any FileSystem

  private var temporary: String { path + ".tmp" }

  /// Nothing is at `path` before `end()`.
  init(_ path: String, _ fileSystem: any FileSystem) throws {
    (self.path, self.fileSystem) = (path, fileSystem)
    let temporary = path + ".tmp"
    if try fileSystem.kind(of: temporary) != .absent { try fileSystem.unlink(temporary) }
    state = Mutex(State(file: try fileSystem.open(temporary, .create)))
  }

  /// Adds the world of a number of the campaign.
  ///
  /// - Complexity: O(lines); a world that ended early is kept in memory until those before it have ended.
  func add(_ number: UInt64, _ world: SimulatedWorld, _ outcome: WorldOutcome) throws {
    let head = "world \(world.seed): \(Words.plural(world.devices, "device")), faults \(world.faults)"
    let text = ([head] + outcome.requests).map { $0 + "\n" }.joined()
    try state.withLock { state in
      state.early[number] = (Array(text.utf8), outcome.failure != nil)
      while !state.hasLast, let (bytes, isLast) = state.early.removeValue(forKey: state.next) {
        try state.file.write(bytes, at: state.bytes)
        state.bytes += UInt64(bytes.count)
        state.next += 1
        state.hasLast = isLast
      }
    }
  }

  /// Puts the file in its place, and replaces one that is there.
  func end() throws {
    try state.withLock { state in
      defer { state.file.close() }
      try state.file.sync(.durable)
    }
    try fileSystem.rename(temporary, to: path)
  }
}
