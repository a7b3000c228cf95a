// Goal: a scan from any LSN on hands out the same events as one read after the other does, each once and in order, whatever
// lies between: segments, seals, gaps of compactions, reopenings. Method: random logs in tiny segments, a writer's and a
// reader's scan against single reads; and scans while the segments under them are replaced.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

extension Log {
  fileprivate func scan(after lsn: UInt64, upTo limit: UInt64 = .max, _ visit: (LogEvent) throws -> Bool) throws {
    if lsn < limit { try forEachEvent(in: lsn + 1...limit, visit) }
  }
}

extension LogReader {
  fileprivate func scan(after lsn: UInt64, _ visit: (LogEvent) throws -> Bool) throws {
    try forEachEvent(in: lsn + 1...UInt64.max, visit)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `A scan from an event on` {
  /// The events of a range, read one by one; those that a compaction removed are left out.
  private func singles(_ range: ClosedRange<UInt64>, _ read: (UInt64) throws -> LogEvent) throws -> [LogEvent] {
    try range.compactMap { lsn in
      do { return try read(lsn) } catch let error as LogError where error.code == .compacted { return nil }
    }
  }

  /// Leaves out some events.
  private func compact(_ log: Log, _ random: SeededRandom) throws {
    try log.finishSegment()
    try log.compact { transaction in
      transaction.filter { _ in random.below(3) > 0 }.map(LogSurvivor.init)
    }
  }

  @Test(arguments: Campaign.seeds(1...12, every: 4))
  func `hands out what single reads do`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    let disk = SimulatedDisk()
    var log: Log? = try openLog(disk)
    var written = 0
    for step in 0..<80 {
      let comment: Comment = "seed \(seed), step \(step)"
      switch random.below(14) {
      case 0:
        try log?.close()
        log = try openLog(disk, seed: seed &* 1_000 &+ UInt64(step))
      case 1:
        log = nil
        log = try openLog(disk, seed: seed &* 1_000 &+ UInt64(step))
      case 2: if let log { try compact(log, random) }
      case 3: try log?.mergeSegments()
      default:
        var transaction = LogTransaction()
        for _ in 0...random.below(4) {
          written += 1
          transaction.add(schema: 1, body: body(written, count: Int(random.below(900))))
        }
        if let lsns = try log?.append(transaction) { try log?.waitUntilDurableBlocking(lsns.upperBound) }
      }
      guard let log, log.durableLSN > 0, random.below(2) == 0 else { continue }
      let first = random.below(log.durableLSN + 1)
      let last = random.below(3) == 0 ? .max : first + 1 + random.below(40)
      let end = min(last, log.durableLSN)
      let expected = first < end ? try singles(first + 1...end, log.read) : []
      var found: [LogEvent] = []
      try log.scan(after: first, upTo: last) { event in
        found.append(event)
        return true
      }
      #expect(found == expected, comment)
      // It ends where it is told to, and the next goes on from there.
      guard let middle = expected.indices.dropLast().last else { continue }
      var half: [LogEvent] = []
      try log.scan(after: first) { event in
        half.append(event)
        return event.lsn < expected[middle].lsn
      }
      #expect(half == Array(expected[...middle]), comment)

      try log.raiseControl()
      let reader = try LogReader.open(at: storePath, role: .store, environment: .simulated(disk, seed: 1))
      try reader.poll { _ in }
      let served = try singles(1...reader.lastLSN, reader.read)
      // The segments that were read are replaced under the reader.
      let replaces = random.below(3) == 0
      if replaces { try compact(log, random) }
      var seen: [LogEvent] = []
      try reader.scan(after: 0) { event in
        seen.append(event)
        return true
      }
      if replaces {
        // Of a file that was open already, also what the compaction has left out.
        let left = try singles(1...reader.lastLSN, log.read).map(\.lsn)
        #expect(seen.map(\.lsn) == seen.map(\.lsn).sorted() && Set(seen.map(\.lsn)).isSuperset(of: left), comment)
        #expect(Set(seen.map(\.body)).isSubset(of: served.map(\.body)), comment)
      } else {
        #expect(seen == served, comment)
      }
    }
    try log?.close()
  }

  @Test func `goes on while the segments under it are replaced, and ends with a close`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...60 { try log.write(body(number, count: 700)) }
    let before = try singles(1...60, log.read)
    var found: [LogEvent] = []
    let random = SeededRandom(seed: 3)
    try log.scan(after: 0) { event in
      found.append(event)
      if event.lsn == 5 { try compact(log, random) }
      return true
    }
    let after = Set(try singles(1...60, log.read).map(\.lsn))
    #expect(found.map(\.lsn) == found.map(\.lsn).sorted() && Set(found.map(\.lsn)).isSuperset(of: after))
    #expect(Set(found.map(\.body)).isSubset(of: before.map(\.body)))
    let error = logError {
      try log.scan(after: 0) { _ in
        try log.close()
        return true
      }
    }
    #expect(error?.code == .closed)
    #expect(logError { try log.scan(after: 0) { _ in true } }?.code == .closed)
  }

  @Test func `names the event that is damaged`() throws {
    let disk = SimulatedDisk()
    let log = try openLog(disk)
    for number in 1...20 { try log.write(body(number, count: 700)) }
    let found = try log.read(11)
    let file = storePath + "/" + SegmentName.name(found.segmentID)
    var bytes = try #require(disk.peek(file))
    bytes[Int(found.offset) + LogFormat.frameHeaderBytes + 9] ^= 4
    disk.poke(file, bytes)
    var last: UInt64 = 0
    let error = logError {
      try log.scan(after: 2) { event in
        last = event.lsn
        return true
      }
    }
    #expect(error?.code == .damaged && error?.lsns == 11...11 && error?.offset == UInt64(found.offset) && last == 10)
    #expect(logError { try log.scan(after: 11) { _ in true } } == nil)
    try log.close()
  }
}
