// The implementations that `bench log` compares: our log, SQLite, and a bare loop of writes and syncs.
//
// The bare loop is the limit of the hardware: as many bytes in as many writes, each followed by a sync, into files with
// space reserved in advance. Which method of reserving is faster differs between disks, so the loop runs with both, and
// the better one counts. Its first file is reserved before the time is measured, as the log's first step is; the
// following files are reserved within it.

import StrandlineHost
import StrandlineLog
package import StrandlineSystem
import Synchronization

/// The measurements of one round.
package struct Sample: Sendable {
  var nanoseconds: UInt64
  /// The nanoseconds of each single call; empty if they were not measured.
  var latencies: [UInt64]

  package init(nanoseconds: UInt64, latencies: [UInt64] = []) {
    self.nanoseconds = nanoseconds
    self.latencies = latencies
  }
}

/// One implementation of a workload.
package protocol Contender: Sendable {
  /// Runs and measures a round of `count` operations.
  func round(_ count: Int) async throws -> Sample
  /// Closes its files. The caller runs no round afterwards.
  func end() throws
}

/// A blocking implementation, which runs on a thread of its own.
package struct BlockingContender: Contender {
  private let clock: any SystemClock
  private let prepare: @Sendable () throws -> Void
  private let work: @Sendable (_ count: Int) throws -> Void
  private let finish: @Sendable () throws -> Void
  private let close: @Sendable () throws -> Void

  /// - Parameters:
  ///   - prepare: Runs before each round, outside of the measured time.
  ///   - work: The measured operations of one round.
  ///   - finish: Runs after each round, outside of the measured time.
  ///   - close: Runs after the last round.
  package init(
    clock: any SystemClock, prepare: @escaping @Sendable () throws -> Void = {},
    work: @escaping @Sendable (_ count: Int) throws -> Void, finish: @escaping @Sendable () throws -> Void = {},
    close: @escaping @Sendable () throws -> Void = {}
  ) {
    self.clock = clock
    self.prepare = prepare
    self.work = work
    self.finish = finish
    self.close = close
  }

  package func round(_ count: Int) async throws -> Sample {
    try await onThread("bench") {
      try prepare()
      let begin = clock.monotonicNanoseconds()
      try work(count)
      let sample = Sample(nanoseconds: clock.monotonicNanoseconds() - begin)
      try finish()
      return sample
    }
  }

  package func end() throws { try close() }
}

/// Tasks that write to one log at the same time; each waits until its write is durable before the next one.
struct TaskContender: Contender {
  let clock: any SystemClock
  let log: Log
  let body: [UInt8]
  let writers: Int
  let stop: Flag

  /// Each task writes `count` times.
  func round(_ count: Int) async throws -> Sample {
    let begin = clock.monotonicNanoseconds()
    let latencies = try await withThrowingTaskGroup(of: [UInt64].self) { group in
      for _ in 0..<writers {
        group.addTask {
          var latencies: [UInt64] = []
          latencies.reserveCapacity(count)
          for _ in 0..<count {
            try stop.check()
            let begin = clock.monotonicNanoseconds()
            var transaction = LogTransaction()
            transaction.add(schema: 0, body: body)
            try await log.waitUntilDurable(log.append(transaction).upperBound)
            latencies.append(clock.monotonicNanoseconds() - begin)
          }
          return latencies
        }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    return Sample(nanoseconds: clock.monotonicNanoseconds() - begin, latencies: latencies)
  }

  func end() throws { try log.close() }
}

/// Writes and syncs arbitrary bytes.
final class BareLoop: Sendable {
  /// How the space of a file is reserved before it is used.
  enum Preset: String, CaseIterable, Sendable {
    /// By `File.preallocate`.
    case reserved
    /// By writing zeros.
    case zeros
  }

  private static let fileBytes = 16 << 20
  private let fileSystem: any FileSystem
  private let path: String
  private let preset: Preset
  private let state: Mutex<State>

  private struct State {
    var file: any File
    var offset = 0
    var files = 1
  }

  init(_ fileSystem: any FileSystem, _ path: String, _ preset: Preset) throws {
    self.fileSystem = fileSystem
    self.path = path
    self.preset = preset
    state = Mutex(State(file: try Self.prepare(fileSystem, path + "-1", preset)))
  }

  private static func prepare(_ fileSystem: any FileSystem, _ path: String, _ preset: Preset) throws -> any File {
    let file = try fileSystem.open(path, .create)
    switch preset {
    case .reserved: try file.preallocate(at: 0, length: UInt64(fileBytes))
    case .zeros:
      let zeros = [UInt8](repeating: 0, count: 1 << 20)
      for offset in stride(from: 0, to: fileBytes, by: zeros.count) { try file.write(zeros, at: UInt64(offset)) }
    }
    try file.sync(.durable)
    return file
  }

  /// Writes the bytes at the end of the file and syncs it. Starts the next file if this one is full.
  func write(_ bytes: [UInt8]) throws {
    try state.withLock { state in
      if state.offset + bytes.count > Self.fileBytes {
        state.file.close()
        state.files += 1
        state.file = try Self.prepare(fileSystem, path + "-\(state.files)", preset)
        state.offset = 0
      }
      try state.file.write(bytes, at: UInt64(state.offset))
      try state.file.sync(.durable)
      state.offset += bytes.count
    }
  }

  func close() { state.withLock { $0.file.close() } }
}
