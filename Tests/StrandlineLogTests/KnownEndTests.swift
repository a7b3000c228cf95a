// Goal: an open and a reader that go on behind an event which the caller knows hand out what follows it and nothing else,
// and never go on with another history. Method: a log of many small segments that was killed, closed, merged or compacted;
// every transaction's end, known rightly and wrongly.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A known end` {
  private enum Ending: CaseIterable { case killed, closed, merged, compacted }

  /// A log, and the end of each of its transactions.
  private func log(_ ending: Ending) throws -> (disk: SimulatedDisk, ends: [LogEnd], compacted: UInt64) {
    let disk = SimulatedDisk()
    var log = try openLog(disk)
    var ends: [LogEnd] = []
    for step in 0..<90 {
      let bodies = (0...step % 3).map { body(step * 10 + $0, count: 100 + step * 7 % 400) }
      let lsns = try log.append(transaction(bodies))
      try log.waitUntilDurableBlocking(lsns.upperBound)
      ends.append(log.durableEnd)
      #expect(ends.last?.lsn == lsns.upperBound)
      if step % 17 == 16 {
        try log.close()
        log = try openLog(disk, seed: UInt64(step))
        #expect(log.durableEnd == ends.last)
      }
    }
    var compacted: UInt64 = 0
    switch ending {
    case .killed: break
    case .closed: try log.close()
    case .merged:
      _ = try log.mergeSegments()
      try log.close()
    case .compacted:
      try log.compact(
        upTo: ends[60].lsn,
        prepare: {
          compacted = $0.lastLSN
          return true
        }
      ) { transaction in
        transaction.filter { $0.lsn % 5 == 0 }.map(LogSurvivor.init)
      }
      try log.close()
    }
    return (disk.clone(), ends, compacted)
  }

  /// What is handed out behind `end`; nil if the log does not have it.
  private func behind(_ end: LogEnd, _ disk: SimulatedDisk) throws -> (opened: [UInt64]?, read: [UInt64]?) {
    var (opened, read): ([UInt64]?, [UInt64]?) = ([], [])
    let reader = try LogReader.open(at: storePath, environment: .simulated(disk, seed: 3)) { _ in end }
    do { try reader.poll { read?.append($0.lsn) } } catch is AnotherHistory { read = nil }
    var isRefused = false
    let log = try Log.open(
      at: storePath, role: .store, options: tiny, environment: .simulated(disk.clone(), seed: 50),
      behind: { _, _, refused in
        // Whatever was handed out before counts no more.
        isRefused = refused
        opened = []
        return end
      }
    ) { opened?.append($0.lsn) }
    try log.close()
    if isRefused {
      // Then everything is.
      #expect(opened?.first == 1 || opened?.first == 5)
      opened = nil
    }
    return (opened, read)
  }

  @Test func `is where an open and a reader go on`() throws {
    for ending in Ending.allCases {
      let (disk, ends, compacted) = try log(ending)
      var found = 0
      for end in ends {
        let comment = "\(ending), event \(end.lsn)"
        let (opened, read) = try behind(end, disk)
        #expect(opened == read, "\(comment)")
        // Within a range that was compacted only the end of a segment is still known.
        guard let opened else {
          #expect(end.lsn < compacted, "\(comment)")
          continue
        }
        found += 1
        #expect(
          opened.filter { $0 > max(compacted, end.lsn) }
            == Array(stride(from: max(compacted, end.lsn) + 1, through: ends[ends.count - 1].lsn, by: 1)), "\(comment)")
        #expect(opened.allSatisfy { $0 > end.lsn }, "\(comment)")
      }
      #expect(found >= 30, "\(ending)")
      #expect(ending != .compacted || compacted > 50)
    }
  }

  @Test func `of another history is refused`() throws {
    let (disk, ends, _) = try log(.killed)
    for (place, end) in ends.enumerated() where place % 9 == 4 {
      for wrong in [
        LogEnd(lsn: end.lsn, chain: end.chain ^ 1), LogEnd(lsn: end.lsn, chain: ends[place - 1].chain),
        LogEnd(lsn: ends[ends.count - 1].lsn + 1, chain: end.chain),
      ] {
        let (opened, read) = try behind(wrong, disk)
        #expect(opened == nil && read == nil, "\(wrong)")
      }
    }
  }

  @Test func `stays known when small segments after a compacted one are merged`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.segmentBytesMax = 20_000
    options.mergeWidth = 3
    var ends: [LogEnd] = []
    func open() throws -> Log { try openLog(disk, options: options, seed: UInt64(ends.count) + 20) }
    func write(_ count: Int) throws {
      for _ in 0..<count {
        let log = try open()
        try log.write(body(ends.count))
        ends.append(log.durableEnd)
        try log.close()
      }
    }
    try write(3)
    var log = try open()
    try log.compact { $0.filter { $0.lsn != 2 }.map(LogSurvivor.init) }
    try log.close()
    try write(2)
    log = try open()
    try log.mergeSegments()
    #expect(log.upkeepReport.segmentsMerged == 0, "nothing is joined after the compacted one")
    try log.close()
    try write(1)
    log = try open()
    try log.mergeSegments()
    #expect(log.upkeepReport.segmentsMerged == 3)
    try log.close()
    #expect(disk.segments.count == 2)
    for end in ends.dropFirst(2) {
      let (opened, read) = try behind(end, disk)
      let expected = Array(stride(from: end.lsn + 1, through: 6, by: 1))
      #expect(opened == expected && read == expected, "event \(end.lsn)")
    }
  }
}
