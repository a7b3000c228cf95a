// What a database around another one passes on.

import Strandline
import StrandlineSyncProofs
import Synchronization
import Testing

/// A database that changes nothing of another one.
struct Around: ForwardingDatabase {
  let base: any CloudDatabase
}

private final class Knowing: ForwardingDatabase {
  let base: any CloudDatabase
  /// How often it was told that a person wants a sync.
  let asked = Mutex(0)

  init(base: any CloudDatabase) { self.base = base }

  func beginCycle(isUserInitiated: Bool) { if isUserInitiated { asked.withLock { $0 += 1 } } }
  var serverClockOffset: Duration? { .milliseconds(5) }
  func record(readingAgain raw: [UInt8], in zone: ZoneID) -> ServerRecord? {
    ServerRecord(name: String(decoding: raw, as: UTF8.self), type: "Note")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A database around another one` {
  @Test func `passes on also what a database need not have`() async throws {
    let device = try Fleet().device("a")
    let cloud: any CloudDatabase = Around(base: Knowing(base: device.web()))
    #expect(cloud.serverClockOffset == .milliseconds(5))
    #expect(cloud.record(readingAgain: Array("n".utf8), in: .main)?.name == "n")
    try await device.open(database: cloud)
    try await device.write("n", ["title": "one"])
    #expect(try await device.run() == nil)
    #expect(try await device.owesNothing)
  }

  @Test func `is told when a person wants a sync, and not when the engine begins one by itself`() async throws {
    let device = try Fleet().device("a")
    let knowing = Knowing(base: device.web())
    try await device.open(database: Around(base: knowing))
    for (isUserInitiated, count) in [(false, 0), (true, 1), (false, 1), (true, 2)] {
      #expect(try await device.run(isUserInitiated: isUserInitiated) == nil)
      #expect(knowing.asked.withLock { $0 } == count)
    }
  }
}
