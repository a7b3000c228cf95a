// What the suites of the log share: a small log on a simulated disk, and a look at its bytes.

import Dispatch
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

/// Small enough that a few appends fill a segment.
let tiny = LogOptions(
  segmentBytesMax: 7_900, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
  lockWaitMilliseconds: 0, publishesGroups: false, controlIntervalMilliseconds: nil, ballastBytes: 0,
  upkeep: .onDemand)

let storePath = "/store"

/// Where the first group of a segment begins.
let firstGroup = LogFormat.openingEnd

/// What a clean close writes behind the last group: the index and the seal.
func closingBytes(places: Int) -> Int {
  LogFormat.frameBytes(bodyLength: places * LogFormat.indexEntryBytes) + LogFormat.sealFrameBytes
}

/// A log on `fileSystem`.
func openLog(
  _ fileSystem: any FileSystem, options: LogOptions = tiny, seed: UInt64 = 7, role: LogRole = .store,
  path: String = storePath, createIfAbsent: Bool = true, replay: (LogEvent) throws -> Void = { _ in }
) throws -> Log {
  try Log.open(
    at: path, role: role, options: options, environment: .simulated(fileSystem, seed: seed),
    createIfAbsent: createIfAbsent, replay: replay)
}

/// The bodies that an open of a copy returns.
func recovered(_ disk: SimulatedDisk, seed: UInt64 = 99) throws -> [[UInt8]] {
  var bodies: [[UInt8]] = []
  let log = try openLog(disk.clone(), seed: seed) { bodies.append($0.body) }
  try log.close()
  return bodies
}

/// What CONTROL promises.
func bound(_ disk: SimulatedDisk) throws -> LogBound {
  let bytes = try #require(disk.peek(storePath + "/" + LogFormat.controlName))
  let slots = try [0, LogFormat.controlPageBytes].compactMap { try Control.decode(bytes, at: $0, file: "CONTROL") }
  return try #require(slots.max { $0.sequence < $1.sequence }).bound
}

/// The last event of a log on a disk, with its chain; or that of a segment, by its LSN.
func end(of disk: SimulatedDisk, segmentEndingWith lsn: UInt64? = nil) throws -> LogEnd {
  guard let lsn else {
    let log = try openLog(disk.clone(), seed: 77)
    defer { #expect(throws: Never.self) { try log.close() } }
    return log.durableEnd
  }
  let manifest = try Manifest.decode(try #require(disk.peek(storePath + "/MANIFEST")), file: "MANIFEST")
  let end = try #require(manifest.entries.compactMap(\.end).first { $0.lastLSN == lsn })
  return LogEnd(lsn: end.lastLSN, chain: end.chain)
}

/// Bytes that tell which event they are of.
func body(_ number: Int, count: Int = 20) -> [UInt8] {
  (0..<count).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0 &* ($0 &+ number)) }
}

func transaction(_ bodies: [[UInt8]]) -> LogTransaction {
  var result = LogTransaction()
  for (index, body) in bodies.enumerated() { result.add(schema: UInt16(index), body: body) }
  return result
}

extension Log {
  /// Appends a transaction and waits on this thread.
  @discardableResult
  func write(_ bodies: [UInt8]...) throws -> ClosedRange<UInt64> {
    let lsns = try append(transaction(bodies))
    try waitUntilDurableBlocking(lsns.upperBound)
    return lsns
  }
}

extension SimulatedDisk {
  /// Every file with its bytes.
  var everything: [String: [UInt8]] {
    Dictionary(uniqueKeysWithValues: paths.map { ($0, peek($0) ?? []) })
  }

  /// The paths of the segments, in order.
  var segments: [String] { paths.filter { $0.hasSuffix(".seg") && $0.hasPrefix(storePath + "/") } }
}

/// The error that `body` throws, if it is the log's.
func logError(_ body: () throws -> Void) -> LogError? {
  do {
    try body()
    return nil
  } catch {
    return error as? LogError
  }
}

/// A clock that moves when a thread sleeps on it, and tells a test what the watch does meanwhile.
final class WatchClock: SystemClock {
  private let state = Mutex<(now: UInt64, naps: Int, allowed: Int)>((0, 0, 0))
  private let permits = DispatchSemaphore(value: 0)
  private let asleep = DispatchSemaphore(value: 0)

  func wallMilliseconds() -> Int64 { 0 }
  func monotonicNanoseconds() -> UInt64 { state.withLock { $0.now } }
  func sleep(milliseconds: Int64) async throws {}
  func sleepBlocking(milliseconds: Int64) {
    asleep.signal()
    permits.wait()
    state.withLock { $0.now += UInt64(milliseconds) * 1_000_000 }
  }

  /// Returns when a thread sleeps.
  func waitUntilAsleep() { asleep.wait() }
  /// Ends a sleep.
  func wake() { permits.signal() }
}
