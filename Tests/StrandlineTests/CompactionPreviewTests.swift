// Goal: what a preview says of a compaction is what the compaction then does, event for event. Method: histories of a store at
// random, previewed by a reader beside the writer, and then compacted; with the past that stays and without.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A preview of a compaction` {
  private func id(_ number: Int) -> RecordID { RecordID("r\(number)") }

  @Test func `says which events go, and changes nothing`() throws {
    var went: UInt64 = 0
    var partial = 0
    for seed in Campaign.seeds(1...40, every: 4) {
      let random = SeededRandom(seed: seed)
      func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
      let disk = SimulatedDisk()
      let clock = SimulatedClock()
      var options = Device.options
      options.segmentBytesMax = 8 << 10
      let store = try RecordStore.openBlocking(
        at: "/s", options: options, environment: .simulated(disk: disk, clock: clock, seed: seed))
      for step in 0..<(200 + below(200)) {
        if below(4) == 0 { clock.turnWallClock(by: .seconds(Int64(below(86_400)))) }
        _ = try store.writeBlocking { tx in
          let id = id(below(20))
          if below(6) == 0 {
            _ = try tx.delete(id)
          } else {
            let record = Record(type: "Note", id: id, fields: ["v": .int64(Int64(step)), "w": .string("some words")])
            do { try tx.save(record) } catch let error as StrandlineError where error.code == .recordWasDeleted {
              try tx.create(record)
            }
          }
        }
      }
      let reader = try RecordStore.openReadOnlyBlocking(
        at: "/s", environment: .simulated(disk: disk, clock: clock, seed: seed + 1_000))
      for history in [HistoryRetention.all, .since(.seconds(Int64(below(60)) * 86_400)), .latest] {
        // The segment in use may go too: a compaction that is asked for finishes it. The reader sees that it has ended.
        if case .writer(let log) = store.source, history != .all { try log.finishSegment() }
        try reader.refresh()
        let files = try disk.paths.map { path in (path, try bytes(of: path, on: disk)) }
        let preview = try #require(try reader.previewCompaction(keeping: history))
        #expect(try files.allSatisfy { try bytes(of: $0.0, on: disk) == $0.1 }, "a preview changes no file")
        let report = try store.compactBlocking(keeping: history, proof: .both)
        #expect(
          (preview.eventsBefore, preview.eventsAfter) == (report.eventsBefore, report.eventsAfter),
          "seed \(seed), \(history)")
        #expect(preview.bytesAfter <= preview.bytesBefore)
        #expect(preview.bytesBefore <= report.bytesBefore)
        went += report.eventsBefore - report.eventsAfter
        if case .since = history, report.eventsBefore > 0, report.eventsBefore < UInt64(store.durableLSN.rawValue) {
          partial += 1
        }
      }
      try reader.closeBlocking()
      #expect(try store.previewCompaction(keeping: .latest) == nil, "a store that is written is compacted instead")
      try store.closeBlocking()
    }
    #expect(went > 300 && partial > 1, "\(went) events went, \(partial) histories went in part")
  }

  private func bytes(of path: String, on disk: SimulatedDisk) throws -> [UInt8] {
    let file = try disk.open(path, .read)
    defer { file.close() }
    return try file.read(at: 0, count: 1 << 20)
  }
}
