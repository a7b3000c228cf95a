// Goal: damage in a finished segment of a store that is open costs what the damage holds and nothing else, and the status
// names it. Method: a bit of one event is flipped while no store is open; the runs are believed, so that the open does not
// read it.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30))) struct `Damage in a finished segment` {
  private let disk = SimulatedDisk()

  private func id(_ number: Int) -> RecordID { RecordID("r\(number)") }

  /// A store of sixty records in several segments, closed; one event of the second segment is damaged.
  private func damaged() throws -> (lsn: LSN, number: Int, file: String, offset: UInt64) {
    let store = try openIndexed(disk, seed: 1)
    for number in 0..<60 {
      try store.writeBlocking { tx in
        let text = FieldValue.string(String(repeating: "x", count: 600))
        try tx.save(Record(type: "Note", id: id(number), fields: ["v": .int64(Int64(number)), "text": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let second = try (0..<60).first { number in
      guard let lsn = try store.projections.entry(id(number))?.view else { return false }
      return log.place(of: lsn.rawValue)?.segmentID == 2
    }
    let number = try #require(second)
    let lsn = try #require(try store.projections.entry(id(number))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    try store.closeBlocking()
    let file = "/store/\(SegmentName.name(2))"
    var bytes = try #require(disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    disk.poke(file, bytes)
    return (lsn, number, file, UInt64(place.offset))
  }

  @Test func `is named by the status of the store that met it, and writes and other reads go on`() throws {
    let (lsn, number, file, offset) = try damaged()
    let store = try openIndexed(disk, seed: 2)
    #expect(try store.status().damage == [])
    for _ in 0..<2 {
      #expect { _ = try store.record(id(number)) } throws: {
        let error = $0 as? StrandlineError
        return error?.code == .damaged && error?.file == file && error?.offset == offset
      }
    }
    let status = try store.status()
    let found = try #require(status.damage.first)
    #expect(status.damage.count == 1 && found.file == file && found.offset == offset && found.lsns == lsn...lsn)
    #expect("\(status)".hasSuffix(", 1 damaged place"))
    #expect("\(found)".hasPrefix("\(file):\(offset), events \(lsn) to \(lsn): "), "\(found)")
    for other in 0..<60 where other != number {
      #expect(try store.record(id(other))?["v"] == .int64(Int64(other)))
    }
    try store.writeBlocking { tx in
      try tx.save(Record(type: "Note", id: id(59), fields: ["v": 100]))
      try tx.create(Record(type: "Note", id: id(60), fields: ["v": 60]))
      try tx.delete(id(58))
    }
    #expect(try store.record(id(59))?["v"] == 100 && store.record(id(60))?["v"] == 60)
    let bytes = disk.peek(file)
    #expect { try store.compactBlocking() } throws: { ($0 as? StrandlineError)?.code == .damaged }
    #expect(disk.peek(file) == bytes)
    #expect(try store.status().damage == status.damage)
    try store.closeBlocking()
    // The next open reads it no more than this one did.
    let again = try openIndexed(disk, seed: 3)
    #expect(try again.status().damage == [] && again.record(id(60))?["v"] == 60)
    try again.closeBlocking()
  }

  @Test func `is named by the status of a reader that met it`() throws {
    let (lsn, number, file, offset) = try damaged()
    let reader = try RecordStore.openReadOnly(at: "/store", environment: .simulated(disk: disk, seed: 2))
    #expect(try reader.status().damage == [])
    #expect(throws: StrandlineError.self) { _ = try reader.record(id(number)) }
    let found = try #require(try reader.status().damage.first)
    #expect(found.file == file && found.offset == offset && found.lsns == lsn...lsn)
    try reader.closeBlocking()
  }

  @Test func `does not keep the status from telling the rest when it hits the oldest unsettled mutation`() throws {
    let store = try openIndexed(disk, seed: 1)
    for number in 0..<60 {
      try store.writeBlocking { tx in
        let text = FieldValue.string(String(repeating: "x", count: 600))
        try tx.save(Record(type: "Note", id: id(number), fields: ["text": text]))
      }
    }
    guard case .writer(let log) = store.source else { throw StrandlineError(.readOnly, "") }
    let lsn = try #require(try store.projections.entry(id(0))?.view)
    let place = try #require(log.place(of: lsn.rawValue))
    try store.closeBlocking()
    let file = "/store/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    disk.poke(file, bytes)
    let again = try openIndexed(disk, seed: 2)
    let status = try again.status()
    #expect(status.unsettled == 60 && status.oldestUnsettledMilliseconds == nil)
    #expect(status.damage.map(\.file) == [file] && status.damage.first?.lsns == lsn...lsn)
    try again.closeBlocking()
  }
}
