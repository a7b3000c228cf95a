// Finished segments about which an open believes MANIFEST: what the open costs, what it refuses all the same, and what
// becomes of damage that is met later.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `A segment that is believed` {
  /// Two events a segment.
  private static let two = options(segmentBytesMax: 4_350)
  private static let bodyBytes = 60

  private static func options(segmentBytesMax: Int) -> LogOptions {
    var options = tiny
    options.segmentBytesMax = segmentBytesMax
    options.mergeWidth = 4
    return options
  }

  /// A store that was closed, of so many finished segments and one at the end that only CONTROL and its seal finish.
  private func store(segments: Int) throws -> (disk: SimulatedDisk, bodies: [[UInt8]]) {
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: Self.two)
    var bodies: [[UInt8]] = []
    while disk.segments.count <= segments {
      bodies.append(body(bodies.count, count: Self.bodyBytes))
      try log.write(bodies[bodies.count - 1])
    }
    try log.close()
    return (disk.imageAfterCrash(.all), bodies)
  }

  private func openUnread(_ fileSystem: any FileSystem, from lsn: UInt64? = nil) throws -> Log {
    try Log.open(
      at: storePath, role: .store, options: Self.two, environment: .simulated(fileSystem, seed: 8),
      createIfAbsent: false,
      from: lsn
    ) { _ in #expect(lsn != nil, "nothing is replayed") }
  }

  private func path(_ segmentID: UInt64) -> String { storePath + "/" + SegmentName.name(segmentID) }

  /// Where each event lies.
  private func places(_ disk: SimulatedDisk) throws -> [LogEvent] {
    var events: [LogEvent] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).poll { events.append($0) }
    return events
  }

  private func flip(_ disk: SimulatedDisk, _ path: String, at offset: Int) throws {
    var bytes = try #require(disk.peek(path))
    bytes[offset] ^= 4
    disk.poke(path, bytes)
  }

  // MARK: What an open costs

  @Test func `205: costs an open nothing: as many calls with 6 and with 600 segments`() throws {
    var counts: [[DiskCall: Int]] = []
    for segments in [6, 600] {
      let (disk, bodies) = try store(segments: segments)
      let faults = FaultInjector(disk)
      func calls() -> [DiskCall: Int] {
        defer { faults.resetCounts() }
        return Dictionary(uniqueKeysWithValues: DiskCall.allCases.map { ($0, faults.count($0)) })
      }
      let log = try openUnread(faults)
      counts.append(calls())
      #expect(log.durableLSN == UInt64(bodies.count) && log.recovery.bytesRead == 0)
      #expect(log.recovery.segments == segments + 1)
      try log.close()
      faults.resetCounts()
      let again = try openUnread(faults, from: UInt64(bodies.count) + 1)
      #expect(calls() == counts[counts.count - 1], "a replay from behind the last event")
      try again.close()
      faults.resetCounts()
      // A reader of another process that knows everything already.
      let known = try end(of: disk)
      let reader = try LogReader.open(at: storePath, environment: .simulated(faults, seed: 1)) { _ in known }
      try reader.poll { _ in Issue.record("everything was handed out") }
      #expect(reader.lastLSN == UInt64(bodies.count))
      counts.append(calls())
      try reader.poll { _ in Issue.record("everything was handed out") }
      counts.append(calls())
      #expect(
        try reader.read(2).body == bodies[1] && reader.read(UInt64(bodies.count)).body == bodies[bodies.count - 1])
    }
    #expect(counts[0] == counts[3] && counts[1] == counts[4] && counts[2] == counts[5])
    #expect(counts[0][.open] ?? 0 <= 10 && counts[0][.read] == 8 && counts[0][.sizes] == 1)
    #expect(counts[2][.sizes] == 0)
    print("an open: \(counts[0].filter { $0.value > 0 })")
  }

  // MARK: What an open refuses all the same

  @Test func `is refused at open if it is not there or has fewer bytes than are listed`() throws {
    let (disk, bodies) = try store(segments: 6)
    let events = try places(disk)
    let bytes = try #require(disk.peek(path(3)))
    for length in [0, 1, 127, 4_096, 4_159, bytes.count - 40, bytes.count - 1, nil] as [Int?] {
      let damaged = disk.clone()
      if let length { damaged.poke(path(3), Array(bytes[..<length])) } else { damaged.pokeRemove(path(3)) }
      let before = damaged.everything
      let error = logError { _ = try openUnread(damaged) }
      #expect(error?.code == (length == nil ? .missingSegment : .damaged) && error?.file == path(3))
      let inIt = events.filter { $0.segmentID == 3 }.map(\.lsn)
      #expect(error?.lsns == inIt[0]...inIt[inIt.count - 1])
      #expect(error?.offset == length.map(UInt64.init))
      #expect(damaged.everything == before)
      let reading = logError {
        _ = try LogReader.open(at: storePath, environment: .simulated(damaged, seed: 1)) { _ in
          LogEnd(lsn: UInt64(bodies.count), chain: 0)
        }
      }
      #expect(reading?.code == error?.code && reading?.file == error?.file)
    }
    // Void bytes behind the end belong to no event.
    disk.poke(path(3), bytes + [1, 2, 3])
    try openUnread(disk).close()
  }

  @Test func `is refused at open by a list or a bound that contradicts itself`() throws {
    let (disk, _) = try store(segments: 6)
    let manifestPath = storePath + "/" + LogFormat.manifestName
    let manifest = try Manifest.decode(try #require(disk.peek(manifestPath)), file: manifestPath)
    func refused(_ change: (inout Manifest) -> Void) -> LogError? {
      var changed = manifest
      change(&changed)
      let damaged = disk.clone()
      damaged.poke(manifestPath, changed.encoded())
      return logError { _ = try openUnread(damaged) }
    }
    #expect(refused { _ in } == nil)
    for error in [
      refused { $0.entries[2].firstLSN += 1 }, refused { $0.entries[2].end?.lastLSN += 1 },
      refused { $0.entries.remove(at: 2) }, refused { $0.entries.swapAt(1, 2) }, refused { $0.entries[0].firstLSN = 2 },
    ] {
      #expect(error?.code == .damaged && error?.file == manifestPath, "\(String(describing: error))")
    }
    // The segment that is read says another end of the one before it, which is believed.
    let neighbour = manifest.entries.count - 2
    #expect(refused { $0.entries[neighbour].end?.offset -= 8 }?.code == .damaged)
    #expect(refused { $0.entries[neighbour].end?.chain ^= 1 }?.code == .foreignSegment)
  }

  // MARK: What is met later

  @Test func `that is damaged is told by the read that meets it; writes and other reads go on`() throws {
    let (disk, bodies) = try store(segments: 6)
    let (events, known) = (try places(disk), try end(of: disk))
    let victim = try #require(events.first { $0.segmentID == 3 })
    let neighbour = try #require(events.last { $0.segmentID == 3 })
    #expect(victim.lsn < neighbour.lsn)
    try flip(disk, path(3), at: Int(victim.offset) + 40)
    let log = try openUnread(disk)
    #expect(log.damage.isEmpty)
    for _ in 0..<2 {
      let error = logError { _ = try log.read(victim.lsn) }
      #expect(error?.code == .damaged && error?.file == path(3) && error?.offset == UInt64(victim.offset))
      #expect(error?.lsns == victim.lsn...victim.lsn)
    }
    #expect(log.damage.count == 1)
    let damage = try #require(log.damage.first)
    #expect(damage.segmentID == 3 && damage.file == path(3) && damage.offset == UInt64(victim.offset))
    #expect(damage.lsns == victim.lsn...victim.lsn && damage.code == .damaged && damage.message.contains(path(3)))
    for event in events where event.lsn != victim.lsn {
      #expect(try log.read(event.lsn).body == bodies[Int(event.lsn) - 1])
    }
    try log.write([7])
    #expect(try log.read(log.durableLSN).body == [7])
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) { _ in known }
    var news: [[UInt8]] = []
    try reader.poll { news.append($0.body) }
    try log.close()
    try reader.poll { news.append($0.body) }
    #expect(news == [[7]])
    #expect(logError { _ = try reader.read(victim.lsn) }?.offset == UInt64(victim.offset))
    #expect(try reader.read(neighbour.lsn).body == bodies[Int(neighbour.lsn) - 1])
    #expect(reader.damage.map(\.offset) == [UInt64(victim.offset)])
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(disk, seed: 1)).isDamaged)
  }

  @Test func `is checked at its first touch: header, opening frame, index and seal`() throws {
    let (disk, bodies) = try store(segments: 6)
    let events = try places(disk)
    let lsn = try #require(events.first { $0.segmentID == 3 }).lsn
    let size = try #require(disk.peek(path(3))).count
    for at in [0, 20, 60, 124, 4_096, 4_130, size - 50] {
      let damaged = disk.clone()
      try flip(damaged, path(3), at: at)
      let log = try openUnread(damaged)
      for _ in 0..<2 {
        let error = logError { _ = try log.read(lsn) }
        #expect(error?.code == .damaged && error?.file == path(3) && error?.offset != nil, "byte \(at)")
      }
      #expect(log.damage.map(\.segmentID) == [3], "byte \(at)")
      #expect(try log.read(1).body == bodies[0])
      try log.close()
    }
    // Without a seal that verifies the events are found one after the other, and what was met is told all the same.
    let damaged = disk.clone()
    try flip(damaged, path(3), at: size - 8)
    let log = try openUnread(damaged)
    #expect(try log.read(lsn).body == bodies[Int(lsn) - 1])
    #expect(log.damage.map(\.offset) == [UInt64(size - LogFormat.sealFrameBytes)])
    try log.close()
    // A file of another store, with more bytes than are listed.
    let (other, _) = try store(segments: 6)
    let foreign = disk.clone()
    foreign.poke(path(3), try #require(other.peek(path(4))) + [UInt8](repeating: 0, count: 1_000))
    let late = try openUnread(foreign)
    let error = logError { _ = try late.read(lsn) }
    #expect(error?.code == .foreignSegment && error?.file == path(3) && late.damage.map(\.segmentID) == [3])
    try late.close()
  }

  @Test func `that vanishes while the log is open is missing for the read that asks for it`() throws {
    let (disk, bodies) = try store(segments: 6)
    let events = try places(disk)
    let log = try openUnread(disk)
    disk.pokeRemove(path(3))
    let lsn = try #require(events.first { $0.segmentID == 3 }).lsn
    let error = logError { _ = try log.read(lsn) }
    #expect(error?.code == .missingSegment && error?.file == path(3) && error?.lsns?.contains(lsn) == true)
    #expect(log.damage.map(\.code) == [.missingSegment])
    #expect(try log.read(1).body == bodies[0])
    try log.write([7])
    try log.close()
  }

  // MARK: What is left alone

  @Test(arguments: [true, false]) func `that is damaged is not compacted, nor is what follows it`(isKnown: Bool) throws
  {
    let (disk, bodies) = try store(segments: 6)
    let events = try places(disk)
    let victim = try #require(events.first { $0.segmentID == 4 })
    try flip(disk, path(4), at: Int(victim.offset) + 40)
    let log = try openUnread(disk)
    if isKnown { #expect(logError { _ = try log.read(victim.lsn) }?.code == .damaged) }
    let before = disk.everything
    var asked: [UInt64] = []
    for round in 0..<2 {
      asked = []
      let error = logError {
        try log.compact { transaction in
          asked += transaction.map(\.lsn)
          return transaction.filter { $0.lsn % 2 == 0 }.map(LogSurvivor.init)
        }
      }
      #expect(error?.code == .damaged && error?.file == path(4), "round \(round)")
      for id in 4...7 { #expect(disk.peek(path(UInt64(id))) == before[path(UInt64(id))], "segment \(id)") }
      // What stands before it was compacted.
      for id in 1...3 { #expect(disk.peek(path(UInt64(id))) == nil, "segment \(id)") }
    }
    let last = try #require(events.last { $0.segmentID == 3 }).lsn
    #expect(asked.allSatisfy { $0 <= last })
    for event in events where event.lsn != victim.lsn {
      if event.lsn <= last, event.lsn % 2 == 1 {
        #expect(logError { _ = try log.read(event.lsn) }?.code == .compacted)
      } else {
        #expect(try log.read(event.lsn).body == bodies[Int(event.lsn) - 1])
      }
    }
    #expect(log.damage.map(\.segmentID) == [4])
    try log.write([7])
    try log.close()
  }

  @Test(arguments: [true, false]) func `that is damaged is not merged, and its neighbours are`(isKnown: Bool) throws {
    let (disk, bodies) = try store(segments: 11)
    let events = try places(disk)
    let victim = try #require(events.first { $0.segmentID == 6 })
    try flip(disk, path(6), at: Int(victim.offset) + 40)
    let bytes = disk.peek(path(6))
    let log = try Log.open(
      at: storePath, role: .store, options: Self.options(segmentBytesMax: 20_000),
      environment: .simulated(disk, seed: 8), from: nil
    ) { _ in }
    if isKnown { #expect(logError { _ = try log.read(victim.lsn) }?.code == .damaged) }
    let error = logError { try log.mergeSegments() }
    if isKnown {
      #expect(error == nil)
    } else {
      #expect(error?.code == .damaged && error?.file == path(6))
    }
    #expect(disk.peek(path(6)) == bytes && log.damage.map(\.segmentID) == [6])
    #expect(disk.segments.count < 12 && disk.peek(path(2)) == nil && disk.peek(path(8)) == nil)
    for event in events where event.lsn != victim.lsn {
      #expect(try log.read(event.lsn).body == bodies[Int(event.lsn) - 1])
    }
    try log.mergeSegments()
    try log.write([7])
    try log.close()
  }
}
