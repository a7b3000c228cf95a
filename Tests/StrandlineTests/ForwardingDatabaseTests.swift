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
  var movesContents: Bool { true }
  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    Asset(fileChecksum: place.field, size: content.size)
  }
  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws { try sink.write([7]) }
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
    let place = ContentPlace(record: RecordID("n"), type: "Note", field: "photo")
    #expect(cloud.movesContents && !Around(base: RefusingCloud(device)).movesContents)
    let source = ContentSource(size: 3, path: "/c") { _, _ in [] }
    #expect(try await cloud.upload(source, for: place) == Asset(fileChecksum: "photo", size: 3))
    let got = Mutex<[UInt8]>([])
    let sink = ContentSink(size: 1) { piece in got.withLock { $0 += piece } }
    try await cloud.download(Asset(fileChecksum: "c", size: 1), of: place, into: sink)
    #expect(got.withLock { $0 } == [7])
    #expect(throws: StrandlineError.self) { try source.piece(at: 0, count: 1) }
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
