// Goal: how many records live, of each zone and type, is known without a look at a record, and is right after everything
// that may change it. Method: random saves, deletions and lives of another type against a dictionary, with flushes, compactions,
// views, and opens in between; the calls of the disk are counted.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Counts by zone and type` {
  private static let zones = [ZoneID.main, ZoneID("Other")]
  private static let types = ["A", "B", "C"]

  /// Compares every count with what `model` says lives.
  private func check(_ view: StoreView, _ model: [RecordID: String], _ comment: Comment) throws {
    for zone in [nil] + Self.zones {
      for type in [nil] + Self.types {
        let expected = model.count { (zone == nil || $0.key.zone == zone) && (type == nil || $0.value == type) }
        #expect(try view.count(ofType: type, in: zone) == expected, comment)
      }
    }
  }

  @Test(arguments: Campaign.seeds(1...12, every: 4))
  func `are those of the records, whatever has happened`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: Int) -> Int { Int(random.below(UInt64(count))) }
    let disk = SimulatedDisk()
    var store = try openIndexed(disk, seed: seed)
    var model: [RecordID: String] = [:]
    var moments: [(position: LogPosition, model: [RecordID: String])] = []
    for step in 0..<80 {
      let comment: Comment = "seed \(seed), step \(step)"
      switch below(12) {
      case 0..<8:
        var next = model
        try store.writeBlocking { tx in
          for _ in 0...below(4) {
            let id = RecordID("r\(below(9))", zone: Self.zones[below(2)])
            if let type = next[id], below(2) == 0 {
              try tx.save(Record(type: type, id: id, fields: ["v": .int64(Int64(step))]))
            } else if next[id] != nil {
              try tx.delete(id)
              next[id] = nil
            } else {
              let type = Self.types[below(3)]
              try tx.create(Record(type: type, id: id))
              next[id] = type
            }
          }
        }
        model = next
      case 8: try #require(store.index).flush()
      case 9:
        if below(3) == 0 {
          try store.compactBlocking()
          moments = []
        }
      default:
        try store.closeBlocking()
        store = try openIndexed(disk, seed: seed &* 1000 &+ UInt64(step))
      }
      let view = try store.view()
      try check(view, model, comment)
      moments.append((view.position, model))
      let then = moments[below(moments.count)]
      try check(store.view(asOf: then.position), then.model, "\(comment), then")
      #expect(store.projections.withLock { $0.brokenInvariant() } == nil, comment)
    }
    try store.closeBlocking()
  }

  @Test func `read nothing, however many records there are`() throws {
    let disk = SimulatedDisk()
    let store = try openIndexed(disk, seed: 1)
    try store.writeBlocking { tx in
      for number in 0..<500 { try tx.create(Record(type: Self.types[number % 3], id: RecordID("r\(number)"))) }
    }
    try store.closeBlocking()
    let injector = FaultInjector(disk)
    let reader = try RecordStore.openReadOnlyBlocking(
      at: "/store", environment: StoreEnvironment(.simulated(injector, seed: 2)))
    injector.resetCounts()
    #expect(try reader.view().count(ofType: "B") == 167 && reader.view().count(ofType: "B", in: ZoneID("None")) == 0)
    #expect(try reader.view().count() == 500 && reader.recordCount == 500 && injector.totalCount == 0)
    try reader.closeBlocking()
  }

  @Test func `end a list behind the last record that lives, whatever was deleted`() throws {
    let disk = SimulatedDisk()
    let store = try openIndexed(disk, seed: 1)
    let count = 12_000
    try store.writeBlocking { tx in
      for number in 0..<count { try tx.create(Record(type: "A", id: RecordID("r\(100_000 + number)"))) }
      for number in [0, 5_000] { try tx.create(Record(type: "B", id: RecordID("r\(100_000 + number)b"))) }
    }
    try store.writeBlocking { tx in
      for number in 3..<count { try tx.delete(RecordID("r\(100_000 + number)")) }
    }
    try store.closeBlocking()
    let injector = FaultInjector(disk)
    let reader = try RecordStore.openReadOnlyBlocking(
      at: "/store", environment: StoreEnvironment(.simulated(injector, seed: 2)))
    func calls(_ body: () throws -> Void) throws -> Int {
      injector.resetCounts()
      try body()
      return injector.totalCount
    }
    func names(ofType type: String?) throws -> [String] { try reader.recordIDs(ofType: type).map(\.name) }
    var found: [String] = []
    let few = try calls { found = try names(ofType: "A") }
    #expect(found == ["r100000", "r100001", "r100002"])
    let half = try calls { found = try names(ofType: "B") }
    #expect(found == ["r100000b", "r105000b"])
    #expect(try names(ofType: nil).count == 5)
    #expect(few < 30 && few * 3 < half, "\(few) and \(half) calls")
    try reader.closeBlocking()
  }

  @Test func `of a zone with too many types are right all the same`() throws {
    let disk = SimulatedDisk()
    var store = try openIndexed(disk, seed: 1)
    let limit = LivingCount.typesMax
    func count(_ type: String, in zone: ZoneID? = nil) throws -> Int { try store.view().count(ofType: type, in: zone) }
    func isCounted() -> Bool { store.projections.withLock { $0.records.living[.main]?.types != nil } }
    try store.writeBlocking { tx in
      for number in 0..<limit { try tx.create(Record(type: "T\(number)", id: RecordID("r\(number)"))) }
      try tx.create(Record(type: "T1", id: RecordID("other", zone: Self.zones[1])))
    }
    let before = try store.view()
    let counts = try (0..<limit).map { try count("T\($0)", in: .main) }
    #expect(isCounted() && Set(counts) == [1])
    // One that is gone makes room.
    try store.writeBlocking { tx in
      try tx.delete(RecordID("r0"))
      try tx.create(Record(type: "U", id: RecordID("u")))
    }
    #expect(try isCounted() && count("U") == 1 && count("T0") == 0 && before.count(ofType: "T0") == 1)
    try store.writeBlocking { tx in try tx.create(Record(type: "V", id: RecordID("v"))) }
    for _ in 0..<2 {
      #expect(!isCounted())
      #expect(try count("V") == 1 && count("T1") == 2 && count("T1", in: Self.zones[1]) == 1 && count("T0") == 0)
      #expect(try store.view().count() == limit + 2 && store.status().records == limit + 2)
      #expect(store.projections.withLock { $0.brokenInvariant() } == nil)
      try store.closeBlocking()
      store = try openIndexed(disk, seed: 2)
    }
    try store.closeBlocking()
  }

  @Test func `that say another sum than the zone's are damage, and the runs are made anew`() throws {
    let disk = SimulatedDisk()
    let store = try openIndexed(disk, seed: 1)
    try store.writeBlocking { tx in try tx.create(Record(type: "A", id: RecordID("r"))) }
    var row = store.projections.withLock { $0.storedState.row }
    #expect(try StoredState(row: row, 0..<row.count).row == row)
    // The zone's count, its one type, and the type's count stand in this order.
    let place = try #require((0..<row.count - 4).first { Array(row[$0..<$0 + 5]) == [1, 1, 1, UInt8(ascii: "A"), 1] })
    for (offset, byte) in [(0, 2), (4, 0), (4, 2)] as [(Int, UInt8)] {
      var other = row
      other[place + offset] = byte
      #expect(throws: ByteReaderError.self) { try StoredState(row: other, 0..<other.count) }
    }
    row[place + 1] = 0
    row.removeSubrange(place + 2..<place + 5)
    #expect(try StoredState(row: row, 0..<row.count).row == row)
    try store.closeBlocking()
  }
}
