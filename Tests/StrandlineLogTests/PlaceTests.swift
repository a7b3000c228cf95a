// Events by their numbers and by a place that the caller has kept, runs of events, and what a replay from a bound does not
// touch.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `An event by its place` {
  private static let options: LogOptions = {
    var options = tiny
    options.mergeWidth = 4
    return options
  }()

  /// Some ten segments, transactions of three events, and bodies on both sides of 1 KiB.
  private func store() throws -> (disk: SimulatedDisk, events: [LogEvent]) {
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: Self.options)
    var number = 0
    while disk.segments.count < 10 {
      let bodies = (number..<number + 3).map { body($0, count: $0 % 5 == 0 ? 1_200 : 90 + $0 % 40) }
      let lsns = try log.append(transaction(bodies))
      try log.waitUntilDurableBlocking(lsns.upperBound)
      number += 3
    }
    try log.close()
    var events: [LogEvent] = []
    try openLog(disk.clone(), options: Self.options, seed: 8) { events.append($0) }.close()
    return (disk.imageAfterCrash(.all), events)
  }

  private func openUnread(_ fileSystem: any FileSystem, from lsn: UInt64? = nil) throws -> Log {
    try Log.open(
      at: storePath, role: .store, options: Self.options, environment: .simulated(fileSystem, seed: 9), from: lsn
    ) { _ in }
  }

  @Test func `is one read of its bytes, and nothing else of an unread segment`() throws {
    let (disk, events) = try store()
    let meter = CountedReads(disk)
    let log = try openUnread(meter)
    let known = try end(of: disk)
    let reader = try LogReader.open(at: storePath, environment: .simulated(meter, seed: 1)) { _ in known }
    try reader.poll { _ in }
    for event in events {
      #expect(event.place.segmentID == event.segmentID && event.place.offset == event.offset)
      meter.reset()
      #expect(try log.read(event.lsn, at: event.place) == event)
      #expect(meter.reads == 1 && meter.bytes == Int(event.place.frameBytes))
      #expect(meter.opened.allSatisfy { $0.hasSuffix(SegmentName.name(event.segmentID)) })
      meter.reset()
      #expect(try reader.read(event.lsn, at: event.place) == event)
      #expect(meter.reads == 1 && meter.bytes == Int(event.place.frameBytes))
      // Without its size 1 KiB is read, and the rest if that was not enough.
      let unsized = LogPlace(segmentID: event.segmentID, offset: event.offset)
      meter.reset()
      #expect(try log.read(event.lsn, at: unsized) == event)
      #expect(meter.reads == (event.body.count > 1_000 ? 2 : 1))
    }
    #expect(log.indexBytes == 0 && log.damage.isEmpty)
    try log.close()
  }

  @Test func `is found all the same if the place is wrong`() throws {
    let (disk, events) = try store()
    let log = try openUnread(disk)
    for (index, event) in events.enumerated() {
      let other = events[(index + 7) % events.count].place
      var shifted = event.place
      shifted.offset += 8
      var cut = event.place
      cut.frameBytes = 16
      for hint in [
        other, shifted, cut, LogPlace(segmentID: event.segmentID, offset: 0, frameBytes: 4_096),
        LogPlace(segmentID: event.segmentID, offset: .max, frameBytes: .max),
        LogPlace(segmentID: 999, offset: event.offset, frameBytes: 100),
      ] {
        #expect(try log.read(event.lsn, at: hint) == event, "\(hint)")
      }
    }
    #expect(log.damage.isEmpty)
    #expect(logError { _ = try log.read(999_999, at: events[0].place) }?.code == .noSuchLSN)
    try log.close()
  }

  @Test func `is found in the segment that stands for the one of the place, after a merge and a compaction`() throws {
    let (disk, events) = try store()
    let log = try openUnread(disk)
    let known = try end(of: disk)
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) { _ in known }
    try reader.poll { _ in }
    try log.compact { transaction in transaction.filter { $0.lsn % 3 != 0 }.map(LogSurvivor.init) }
    for look in ["the writer", "a reader"] {
      for event in events {
        func read() throws(LogError) -> LogEvent {
          look == "the writer"
            ? try log.read(event.lsn, at: event.place) : try reader.read(event.lsn, at: event.place)
        }
        if event.lsn % 3 == 0 {
          #expect(logError { _ = try read() }?.code == .compacted, "\(look)")
        } else {
          let found = try read()
          #expect(found.body == event.body && found.lsn == event.lsn && found.segmentID != event.segmentID)
        }
      }
    }
    try log.close()
  }

  @Test func `is known of what was appended, without a read`() throws {
    let meter = CountedReads(SimulatedDisk())
    let log = try openLog(meter, options: Self.options)
    #expect(log.place(of: 1) == nil)
    var bodies: [[UInt8]] = []
    for number in 0..<40 {
      bodies.append(body(number, count: 300))
      try log.write(bodies[number])
    }
    #expect(log.place(of: 0) == nil && log.place(of: 41) == nil)
    meter.reset()
    let places = try (1...40).map { try #require(log.place(of: $0)) }
    #expect(meter.reads == 0 && Set(places.map(\.segmentID)).count > 1)
    for (index, place) in places.enumerated() {
      let lsn = UInt64(index) + 1
      let found = try log.read(lsn, at: place)
      #expect(found.body == bodies[index] && found.place == place)
    }
    #expect(meter.reads == 40)
    try log.close()
  }

  @Test func `that is damaged is told, and needs no header of its segment`() throws {
    let (disk, events) = try store()
    let victim = try #require(events.first { $0.segmentID == 4 })
    let neighbour = try #require(events.last { $0.segmentID == 4 })
    let path = storePath + "/" + SegmentName.name(4)
    var bytes = try #require(disk.peek(path))
    bytes[60] ^= 1
    bytes[Int(victim.offset) + 40] ^= 1
    disk.poke(path, bytes)
    let log = try openUnread(disk)
    #expect(try log.read(neighbour.lsn, at: neighbour.place) == neighbour)
    let error = logError { _ = try log.read(victim.lsn, at: victim.place) }
    #expect(error?.code == .damaged && error?.file == path && error?.lsns?.contains(victim.lsn) == true)
    #expect(log.damage.map(\.segmentID) == [4])
    try log.close()
  }

  // MARK: Runs of events

  @Test func `and those behind it are handed out in order, over segments, merges and gaps`() throws {
    let (disk, events) = try store()
    let log = try openUnread(disk)
    let known = try end(of: disk)
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) { _ in known }
    try reader.poll { _ in }
    let count = UInt64(events.count)
    func found(_ lsns: ClosedRange<UInt64>, upTo limit: Int = .max) throws -> [LogEvent] {
      var found: [LogEvent] = []
      try log.forEachEvent(in: lsns) { event in
        found.append(event)
        return found.count < limit
      }
      return found
    }
    for first in stride(from: 1, through: count, by: 7) {
      for last in [first, first + 1, first + 20, count, count + 9] where first <= last {
        let expected = events.filter { first...last ~= $0.lsn }
        #expect(try found(first...last) == expected)
        var read: [LogEvent] = []
        try reader.forEachEvent(in: first...last) { event in
          read.append(event)
          return true
        }
        #expect(read == expected)
      }
    }
    #expect(try found(2...count, upTo: 5) == Array(events[1..<6]))
    #expect(try found(0...3) == Array(events[..<3]) && found(count + 1...count + 5).isEmpty)
    // Nothing of other segments is opened.
    let other = CountedReads(disk.clone())
    let again = try openUnread(other)
    other.reset()
    var seen: Set<UInt64> = []
    try again.forEachEvent(in: events[events.count / 2].lsn...count) { event in
      seen.insert(event.segmentID).inserted || true
    }
    #expect(Set(other.opened) == Set(seen.map { storePath + "/" + SegmentName.name($0) }))
    #expect(seen.count > 2 && seen.count < 8)
    struct Stop: Error {}
    #expect(throws: Stop.self) { try log.forEachEvent(in: 1...count) { _ in throw Stop() } }
    try log.compact { transaction in transaction.filter { $0.lsn % 3 != 0 }.map(LogSurvivor.init) }
    #expect(try found(1...count).map(\.lsn) == (1...count).filter { $0 % 3 != 0 })
    // A reader that begins now; the other one has files open that were removed.
    let late = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)) { _ in known }
    try late.poll { _ in }
    var read: [UInt64] = []
    try late.forEachEvent(in: 1...count) { event in
      read.append(event.lsn)
      return true
    }
    #expect(read == (1...count).filter { $0 % 3 != 0 })
    try log.write([7])
    #expect(try found(count...count + 1).last?.body == [7])
    try log.close()
  }

  @Test func `and damage among them is told where it lies`() throws {
    let (disk, events) = try store()
    let victim = try #require(events.first { $0.segmentID == 4 })
    let path = storePath + "/" + SegmentName.name(4)
    var bytes = try #require(disk.peek(path))
    bytes[Int(victim.offset) + 40] ^= 1
    disk.poke(path, bytes)
    let log = try openUnread(disk)
    var last: UInt64 = 0
    let error = logError {
      try log.forEachEvent(in: 1...UInt64(events.count)) { event in
        last = event.lsn
        return true
      }
    }
    #expect(error?.code == .damaged && error?.file == path && error?.offset == UInt64(victim.offset))
    #expect(last == victim.lsn - 1 && log.damage.map(\.segmentID) == [4])
    try log.close()
  }

  // MARK: A bound

  @Test func `is where a replay and a reader begin: no segment before it is opened`() throws {
    let (disk, events) = try store()
    let middle = events[events.count * 2 / 3]
    let bound = try #require(events.last { $0.segmentID == middle.segmentID })
    let known = try end(of: disk, segmentEndingWith: bound.lsn)
    let before = Set(events.filter { $0.segmentID < bound.segmentID }.map(\.segmentID))
      .map { storePath + "/" + SegmentName.name($0) }
    #expect(before.count > 4)
    let meter = CountedReads(disk)
    var replayed: [LogEvent] = []
    let log = try Log.open(
      at: storePath, role: .store, options: Self.options, environment: .simulated(meter, seed: 9), from: bound.lsn + 1
    ) { replayed.append($0) }
    #expect(replayed == events.filter { $0.lsn > bound.lsn })
    #expect(Set(meter.opened).isDisjoint(with: before))
    meter.reset()
    let reader = try LogReader.open(at: storePath, environment: .simulated(meter, seed: 1)) { _ in known }
    var polled: [LogEvent] = []
    try reader.poll { polled.append($0) }
    try log.write([7])
    try log.close()
    try reader.poll { polled.append($0) }
    #expect(polled.dropLast() == replayed[...] && polled.last?.body == [7])
    #expect(Set(meter.opened).isDisjoint(with: before))
    #expect(try reader.read(1) == events[0])
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `An event by its number` {
  /// A log with segments of every sort: full ones, ones closed early, left by a writer that vanished.
  private func store(closing: Bool) throws -> (SimulatedDisk, [[UInt8]]) {
    let disk = SimulatedDisk()
    let random = SeededRandom(seed: 21)
    var options = tiny
    options.segmentBytesMax = 60_000
    var bodies: [[UInt8]] = []
    for writer in 0..<6 {
      var log: Log? = try openLog(disk, options: options, seed: UInt64(writer) + 10)
      for step in 0..<(writer == 2 ? 1 : 40) {
        if step % 7 == 6 { try log?.raiseControl() }
        let sizes = (0...random.below(3)).map { _ in Int(random.below(3_000)) }
        let added = sizes.map { body(bodies.count &* 7 &+ $0, count: $0) }
        bodies += added
        let lsns = try #require(try log?.append(transaction(added)))
        try log?.waitUntilDurableBlocking(lsns.upperBound)
      }
      if writer % 2 == 1 || (writer == 5 && closing) { try log?.close() }
      log = nil
    }
    if !closing {
      let log = try openLog(disk, options: options, seed: 40)
      for number in 0..<3 {
        bodies.append(body(number, count: 900))
        try log.write(bodies[bodies.count - 1])
      }
      return (disk.clone(), bodies)
    }
    return (disk, bodies)
  }

  @Test(arguments: [true, false]) func `is found without a replay, wherever it lies`(closing: Bool) throws {
    let (disk, bodies) = try store(closing: closing)
    #expect(disk.segments.count > 8 && bodies.count > 200)
    var replayed: [LogEvent] = []
    let first = try openLog(disk.clone(), seed: 50) { replayed.append($0) }
    #expect(replayed.map(\.body) == bodies)
    let image = disk.clone()
    let log = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(image, seed: 50), from: nil
    ) { _ in Issue.record("nothing is replayed") }
    #expect(log.durableLSN == UInt64(bodies.count) && log.nextLSN == first.nextLSN)
    #expect(log.recovery.copiedEvents == (closing ? 0 : 1))
    // Backwards and with a stride, so that no neighbour has loaded what is needed.
    for step in 0..<bodies.count {
      let lsn = UInt64(bodies.count - 1 - step * 37 % bodies.count) + 1
      let event = try log.read(lsn)
      let same = replayed[Int(lsn) - 1]
      #expect(event.body == same.body && event.lsn == lsn && event.schema == same.schema)
      #expect(event.indexInTransaction == same.indexInTransaction && event.isFirst == same.isFirst)
      #expect(event.isLast == same.isLast)
    }
    #expect(logError { _ = try log.read(UInt64(bodies.count) + 1) }?.code == .noSuchLSN)
    try log.write([5])
    #expect(try log.read(log.durableLSN).body == [5])
    try log.close()
    #expect(try recovered(image) == bodies + [[5]])
  }

  @Test(arguments: [true, false]) func `is where a replay from the middle begins`(closing: Bool) throws {
    let (disk, bodies) = try store(closing: closing)
    for from in stride(from: 1, through: bodies.count + 2, by: 13) {
      var seen: [[UInt8]] = []
      let log = try Log.open(
        at: storePath, role: .store, options: tiny, environment: .simulated(disk.clone(), seed: 50),
        from: UInt64(from)
      ) { seen.append($0.body) }
      #expect(seen == Array(bodies.dropFirst(from - 1)), "from \(from)")
      for lsn in [1, from / 2 + 1, bodies.count] { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    }
  }

  @Test func `is refused when its bytes or its index's are damaged, and others are not`() throws {
    let (disk, bodies) = try store(closing: true)
    var places: [LogEvent] = []
    try openLog(disk.clone(), seed: 50) { places.append($0) }.close()
    // In a segment that ends with its seal.
    let victim = try #require(
      places.dropFirst(120).first { event in
        guard let bytes = disk.peek(storePath + "/" + SegmentName.name(event.segmentID)) else { return false }
        return event.body.count > 20 && bytes[bytes.count - LogFormat.sealFrameBytes + 16] == FrameType.seal.rawValue
      })
    let path = storePath + "/" + SegmentName.name(victim.segmentID)
    var bytes = try #require(disk.peek(path))
    bytes[Int(victim.offset) + 40] ^= 1
    let damaged = disk.clone()
    damaged.poke(path, bytes)
    let log = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(damaged, seed: 50), from: nil
    ) { _ in }
    #expect(logError { _ = try log.read(victim.lsn) }?.code == .damaged)
    #expect(logError { _ = try log.read(victim.lsn) }?.file == path)
    for lsn in [1, 2, bodies.count] { #expect(try log.read(UInt64(lsn)).body == bodies[lsn - 1]) }
    try log.close()
    // An index was acknowledged with its group: without it the segment is damaged.
    bytes = try #require(disk.peek(path))
    bytes[bytes.count - LogFormat.sealFrameBytes - 4] ^= 1
    let without = disk.clone()
    without.poke(path, bytes)
    #expect(try LogVerifier.verify(at: storePath, environment: .simulated(without, seed: 1)).isDamaged)
    let other = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(without, seed: 50), from: nil
    ) { _ in }
    #expect(logError { _ = try other.read(victim.lsn) }?.file == path)
  }

  @Test func `what a recovery makes void is given back at the close, and no open waits for it`() throws {
    let disk = SimulatedDisk()
    do {
      let log = try openLog(disk)
      for number in 0..<2 { try log.write(body(number, count: 1_300)) }
    }
    let log = try openLog(disk, seed: 8)
    #expect(log.recovery.copiedEvents == 1)
    var openings: [OpeningBody] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames {
      if let opening = $0.opening { openings.append(opening) }
    }
    let first = storePath + "/" + SegmentName.name(1)
    let end = try #require(openings.last).predecessorEnd
    #expect(try #require(disk.peek(first)).count > end)
    try log.close()
    #expect(try #require(disk.peek(first)).count == end)
    #expect(try recovered(disk) == (0..<2).map { body($0, count: 1_300) })
  }
}
