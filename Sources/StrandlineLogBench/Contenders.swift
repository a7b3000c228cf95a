// Who takes part in `bench log`: our log, SQLite, and the bare loop that knows nothing but bytes.
//
// The bare loop is the limit of the hardware: as many bytes in as many writes, each followed by a sync, into files
// whose space was prepared. How space is best prepared differs between disks, so it runs with both methods, and the
// better one counts. Its first file is prepared before the clock runs, as a log's first step is; later ones are not.

import StrandlineHost
import StrandlineLog
import StrandlineSystem
import Synchronization

/// What a round took.
struct Sample: Sendable {
  var nanoseconds: UInt64
  /// Of single calls, if they were taken.
  var latencies: [UInt64] = []
}

/// Somebody who does a work.
protocol Contender: Sendable {
  /// Does `count` pieces of it.
  func round(_ count: Int) async throws -> Sample
  /// Gives back what it holds.
  func end() throws
}

/// A work that blocks, on a thread that may.
struct BlockingContender: Contender {
  let clock: any SystemClock
  /// Before the clock runs; for works that begin anew in each round.
  var prepare: @Sendable () throws -> Void = {}
  /// One round.
  let work: @Sendable (_ count: Int) throws -> Void
  /// After the clock was stopped.
  var finish: @Sendable () throws -> Void = {}
  var close: @Sendable () throws -> Void = {}

  func round(_ count: Int) async throws -> Sample {
    try await onThread("bench") {
      try prepare()
      let begin = clock.monotonicNanoseconds()
      try work(count)
      let sample = Sample(nanoseconds: clock.monotonicNanoseconds() - begin)
      try finish()
      return sample
    }
  }

  func end() throws { try close() }
}

/// Tasks that write to one log, each waiting for its own.
struct TaskContender: Contender {
  let clock: any SystemClock
  let log: Log
  let body: [UInt8]
  let writers: Int
  let stop: Flag

  /// `count` writes of each task.
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

/// Writes and syncs of bytes that mean nothing.
final class BareLoop: Sendable {
  /// How the space of a file is prepared.
  enum Preset: String, CaseIterable, Sendable {
    /// The file system reserves it.
    case reserved
    /// Zeros are written.
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

  /// One write and one sync.
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
