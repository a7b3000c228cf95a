// Goal: a record's history and the changes since a position are what the log holds, each change once and in order, on any
// page size, in small segments, through reopenings, syncs, merges and compactions. Method: random histories against a list
// that the test keeps itself, and against every event read by its number; and each position that must be refused.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

private func open(
  _ disk: SimulatedDisk = SimulatedDisk(), seed: UInt64 = 1, segmentBytes: Int = 16 << 20
) throws -> RecordStore {
  var options = StoreOptions()
  options.segmentBytesMax = segmentBytes
  return try RecordStore.openBlocking(at: "/store", options: options, environment: .simulated(disk: disk, seed: seed))
}

private func id(_ name: String) -> RecordID { RecordID(name) }

extension RecordStore {
  fileprivate func put(_ name: String, _ number: Int) throws {
    try writeBlocking { try $0.put(name, number) }
  }

  /// All changes after a position, in pages of random sizes.
  fileprivate func pages(since start: LogPosition = .start, _ random: SeededRandom) throws -> [RecordChange] {
    var result: [RecordChange] = []
    var page: ChangePage
    var position = start
    repeat {
      let limit = Int(1 + random.below(7))
      page = try changes(since: position, limit: limit)
      #expect(page.position.lsn > position.lsn || !page.hasMore)
      // Whole transactions, and none more when the limit is reached.
      if case .writer(let log) = source, page.position.lsn > position.lsn {
        #expect(try log.read(page.position.lsn.rawValue).isLast)
      }
      let last = try page.changes.last.map { try source.transactionStart(of: $0.position.lsn) }
      #expect(page.changes.filter { $0.position.lsn < last ?? .zero }.count < limit)
      result += page.changes
      position = try LogPosition(text: page.position.description)
    } while page.hasMore
    #expect(position.lsn == durableLSN)
    return result
  }

  fileprivate func wholeHistory(
    of id: RecordID, _ random: SeededRandom
  ) throws -> (changes: [RecordChange], compacted: LSN) {
    var result: [RecordChange] = []
    var compacted = LSN.zero
    var next: LSN? = LSN.zero
    while let after = next {
      let limit = Int(1 + random.below(4))
      let page = try history(of: id, after: after, limit: limit)
      #expect(page.changes.count <= limit && (page.next == nil || page.changes.count == limit))
      result += page.changes
      compacted = max(compacted, page.compactedLSN ?? .zero)
      next = page.next
    }
    return (result, compacted)
  }

  /// Every event that is left, read by its number.
  fileprivate func events() throws -> [(event: Event, lsn: LSN)] {
    try (1...max(1, durableLSN.rawValue)).compactMap { number in
      try source.eventIfKept(at: LSN(rawValue: number)).map { ($0, LSN(rawValue: number)) }
    }
  }
}

extension WriteTransaction {
  fileprivate mutating func put(_ name: String, _ number: Int) throws {
    let record = Record(type: "T", id: RecordID(name), fields: ["n": .int64(Int64(number))])
    if try self.record(record.id) == nil { try create(record) } else { try save(record) }
  }
}

private func code(_ body: () throws -> Void) -> StrandlineError.Code? {
  do { try body() } catch { return (error as? StrandlineError)?.code }
  return nil
}

@Suite(.timeLimit(.minutes(30)))
struct `A record's history` {
  /// What the test itself knows of a change.
  private struct Known: Equatable {
    var kind: RecordChange.Kind
    var id: RecordID
    var number: FieldValue?
  }

  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `and the changes since a position are what was done`(seed: UInt64) throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.below(count)) }
    let disk = SimulatedDisk()
    var store = try open(disk, seed: seed, segmentBytes: 6_000)
    var known: [Known] = []
    var marks: [(position: LogPosition, count: Int)] = [(.start, 0)]
    for step in 0..<150 {
      if below(12) == 0 {
        try store.closeBlocking()
        store = try open(disk, seed: seed &+ UInt64(step), segmentBytes: 6_000)
      }
      var done: [Known] = []
      let receipt = try store.writeBlocking { tx in
        for place in 0...below(4) {
          let name = "r\(below(6))"
          if below(4) == 0 {
            guard try tx.record(id(name)) != nil else { continue }
            try tx.delete(id(name))
            done.append(Known(kind: .deleted, id: id(name)))
          } else {
            // Another value each time: a save that changes nothing is no event.
            let number = step * 10 + place
            try tx.put(name, number)
            done.append(Known(kind: .saved, id: id(name), number: .int64(Int64(number))))
          }
        }
      }
      known += done
      marks.append((receipt.position, known.count))
    }
    func plain(_ changes: [RecordChange]) -> [Known] {
      changes.map { Known(kind: $0.kind, id: $0.id, number: $0.record?["n"]) }
    }
    for _ in 0..<30 {
      let (position, count) = marks[below(UInt64(marks.count))]
      let changes = try store.pages(since: position, random)
      let isSame = plain(changes) == Array(known[count...])
      #expect(isSame, "seed \(seed), since \(position)")
      #expect(changes.allSatisfy { $0.origin == .local && $0.milliseconds != nil })
      // Each change is a position to go on from, also in the middle of a transaction.
      guard let middle = changes.indices.randomElement(below) else { continue }
      #expect(try store.pages(since: changes[middle].position, random) == Array(changes[(middle + 1)...]))
    }
    for number in 0..<6 {
      let (changes, compacted) = try store.wholeHistory(of: id("r\(number)"), random)
      #expect(plain(changes) == known.filter { $0.id == id("r\(number)") } && compacted == .zero, "seed \(seed)")
    }
    #expect(try store.history(of: id("never")).changes == [])
    try store.closeBlocking()
  }

  /// Two devices that edit the same records and sync; one of them compacts at the end.
  @Test(arguments: Campaign.seeds(1...6, every: 3))
  func `has what the server said too, and is shortened by a compaction alone`(seed: UInt64) async throws {
    let random = SeededRandom(seed: seed)
    func below(_ count: UInt64) -> Int { Int(random.below(count)) }
    let fleet = try Fleet(seed: seed)
    let devices = [fleet.device("a", segmentBytesMax: 20_000), fleet.device("b")]
    for step in 0..<60 {
      let device = devices[below(2)]
      try await device.open().write { tx in
        for _ in 0...below(2) {
          let name = "r\(below(5))"
          if below(5) == 0 { try tx.delete(id(name)) } else { try tx.put(name, step) }
        }
      }
      if below(3) == 0 { try await device.sync() }
    }
    for _ in 0..<2 { for device in devices { try await device.sync() } }
    let store = try await devices[0].open()
    let events = try store.events()
    let changes = try store.pages(random)
    #expect(changes.map(\.position.lsn) == events.filter { $0.event.recordID != nil }.map(\.lsn))
    #expect(Set(changes.map(\.kind)).isSuperset(of: [.saved, .deleted, .fetched, .settled]))
    #expect(Set(changes.map(\.origin)) == [.local, .server])
    var before: [RecordID: [RecordChange]] = [:]
    for number in 0..<5 {
      before[id("r\(number)")] = try store.wholeHistory(of: id("r\(number)"), random).changes
      #expect(before[id("r\(number)")] == changes.filter { $0.id == id("r\(number)") })
    }

    // Some that are unsent, and some that are superseded before they are sent.
    for round in 0..<3 { try store.writeBlocking { tx in for name in ["r0", "r1"] { try tx.put(name, 900 + round) } } }
    for name in ["r0", "r1"] { before[id(name)] = try store.wholeHistory(of: id(name), random).changes }
    try await store.compact(keeping: .latest)
    try await store.write { try $0.put("r4", 1_000) }
    for (id, whole) in before {
      let (left, compacted) = try store.wholeHistory(of: id, random)
      #expect(left.map(\.position.lsn) == left.map(\.position.lsn).sorted())
      var rest = whole[...]
      for change in left where change.record?["n"] != 1_000 {
        // Each is one that was there, with its value or without.
        let found = try #require(rest.firstIndex { $0.position == change.position }, "\(change)")
        let old = rest[found]
        let isDeletion = [.deleted, .fetchedDeletion].contains(old.kind)
        #expect(old.id == change.id && (old.kind == change.kind || isDeletion))
        if !change.isCompacted { #expect(change == old) }
        rest = rest[(found + 1)...]
      }
      // What is missing lies at or below what is said to be compacted.
      let kept = Set(left.map(\.position.lsn))
      #expect(whole.allSatisfy { kept.contains($0.position.lsn) || $0.position.lsn <= compacted }, "seed \(seed)")
      // The record, and the deletion of a name, are still told.
      if try store.record(id) == nil {
        #expect(left.contains { $0.kind == .deleted || $0.kind == .fetchedDeletion } || whole.isEmpty, "\(id)")
      } else {
        #expect(left.contains { $0.record != nil })
      }
    }
    for device in devices { try await device.close() }
  }

  @Test func `tells what compaction has left of superseded saves, page by page`() throws {
    let store = try open()
    for round in 0..<40 { try store.put("a", round) }
    try store.put("b", 7)
    let whole = try store.wholeHistory(of: id("a"), SeededRandom(seed: 1)).changes
    try store.compactBlocking()
    for seed in 1...5 as ClosedRange<UInt64> {
      let (left, compacted) = try store.wholeHistory(of: id("a"), SeededRandom(seed: seed))
      #expect(left.map(\.position) == [whole[0].position, whole[39].position])
      #expect(left[0].isCompacted && left[0].milliseconds == whole[0].milliseconds && left[1] == whole[39])
      #expect(compacted > .zero)
    }
    try store.closeBlocking()
  }

  @Test func `of an identity in another spelling, and with a limit that cannot be`() throws {
    let store = try open()
    try store.put("a", 1)
    let spelled = RecordID("a", zone: ZoneID("Main", owner: "__defaultOwner__"))
    #expect(try store.history(of: spelled).changes.count == 1)
    #expect(code { _ = try store.history(of: id("a"), limit: 0) } == .invalidValue)
    #expect(code { _ = try store.changes(since: .start, limit: -1) } == .invalidValue)
    try store.closeBlocking()
  }
}

extension Range<Int> {
  fileprivate func randomElement(_ below: (UInt64) -> Int) -> Int? {
    isEmpty ? nil : lowerBound + below(UInt64(count))
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The changes since a position` {
  @Test func `are refused for a position of another store, a restored one, and one from before a compaction`() throws {
    let disk = SimulatedDisk()
    var store = try open(disk)
    for round in 0..<5 { try store.put("a", round) }
    let backup = disk.clone()
    let early = try store.changes(since: .start, limit: 2).position
    let late = try store.writeBlocking { try $0.put("b", 1) }.position

    let other = try RecordStore.openBlocking(at: "/other", environment: .simulated(disk: SimulatedDisk(), seed: 9))
    try other.writeBlocking { try $0.put("x", 1) }
    #expect(code { _ = try other.changes(since: early) } == .noSuchRecord)
    #expect(try other.changes(since: .start).changes.count == 1)
    try other.closeBlocking()

    let restored = try open(backup, seed: 4)
    #expect(code { _ = try restored.changes(since: late) } == .noSuchRecord)
    #expect(try restored.changes(since: early).changes.count == 3)
    // The same number under another tenure.
    for round in 0..<3 { try restored.put("c", round) }
    #expect(code { _ = try restored.changes(since: late) } == .noSuchRecord)
    try restored.closeBlocking()

    #expect(try store.changes(since: early).changes.count == 4)
    try store.compactBlocking()
    try store.put("c", 1)
    #expect(code { _ = try store.changes(since: early) } == .positionExpired)
    #expect(code { _ = try store.changes(since: .start) } == .positionExpired)
    #expect(try store.changes(since: late).changes.map(\.id) == [id("c")])
    // The place of a view is one to go on from, with the same records.
    let position = try store.read { $0.position }
    #expect(try store.changes(since: position).changes == [])
    try store.closeBlocking()
    store = try open(disk, seed: 3)
    #expect(code { _ = try store.changes(since: early) } == .positionExpired)
    let none = try store.changes(since: position)
    #expect(none.changes == [] && none.position == position && !none.hasMore)
    try store.put("d", 1)
    #expect(try store.changes(since: position).changes.map(\.id) == [id("d")])
    for text in ["", "x:1", "\(position)0", position.description.uppercased() + " ", "0000000000000001:-1"] {
      #expect(code { _ = try LogPosition(text: text) } == .invalidValue || text == "\(position)0")
    }
    #expect(code { _ = try store.changes(since: LogPosition(text: "\(position)0")) } == .noSuchRecord)
    try store.closeBlocking()
  }

  @Test func `are refused where compaction has left no gap, and where it has taken the newest events`() async throws {
    let store = try open()
    try store.put("a", 1)
    try store.put("a", 2)
    #expect(try store.changes(since: .start).changes.count == 2)
    // The first save is packed under its own number.
    #expect(try store.compactBlocking().eventsAfter == 3)
    #expect(code { _ = try store.changes(since: .start) } == .positionExpired)
    try store.closeBlocking()

    let device = try Fleet().device("a")
    let synced = try await device.open()
    try await synced.write { try $0.put("b", 1) }
    try await device.sync()
    try await synced.write { try $0.delete(id("b")) }
    let deleted = try synced.read { $0.position }
    try await device.sync(.pushOnly)
    #expect(try synced.changes(since: deleted).changes.map(\.kind) == [.settled])
    try await synced.compact(keeping: .latest)
    #expect(try synced.source.eventIfKept(at: synced.durableLSN) == nil)
    #expect(code { _ = try synced.changes(since: deleted) } == .positionExpired)
    let history = try synced.history(of: id("b"))
    #expect(history.changes.map(\.kind) == [.deleted] && history.compactedLSN == synced.durableLSN)
    #expect(history.changes[0].isCompacted && history.changes[0].position == deleted)
    try await device.close()
  }

  @Test func `hand out what precedes damage, and then the damage`() throws {
    let disk = SimulatedDisk()
    let store = try open(disk)
    for round in 0..<3 { try store.put("a", round) }
    let middle = try store.writeBlocking { try $0.put("b", 1) }.position
    try store.put("c", 1)
    guard case .writer(let log) = store.source else { return }
    let found = try log.read(middle.lsn.rawValue)
    let file = "/store/" + SegmentName.name(found.segmentID)
    var bytes = try #require(disk.peek(file))
    bytes[Int(found.offset) + LogFormat.frameHeaderBytes + 8] ^= 1
    disk.poke(file, bytes)
    let page = try store.changes(since: .start)
    #expect(page.changes.count == 3 && page.hasMore)
    #expect {
      try store.changes(since: page.position)
    } throws: { error in
      let error = error as? StrandlineError
      return error?.code == .damaged && error?.lsns == middle.lsn...middle.lsn && error?.offset == UInt64(found.offset)
    }
    #expect(try store.changes(since: middle).changes.map(\.id) == [id("c")])
    #expect(code { _ = try store.history(of: id("b")) } == .damaged)
    try store.closeBlocking()
  }

  @Test func `are those of another process's store too, as far as it was refreshed`() async throws {
    let disk = SimulatedDisk()
    let store = try open(disk, segmentBytes: 5_000)
    for round in 0..<20 { try store.put("a", round) }
    try store.raisePromise()
    let environment = StoreEnvironment.simulated(disk: disk, seed: 77)
    let reader = try RecordStore.openReadOnlyBlocking(at: "/store", environment: environment)
    #expect(try reader.pages(SeededRandom(seed: 1)).count == 20)
    let position = try reader.read { $0.position }
    var live = reader.observeChanges(since: position).makeAsyncIterator()
    for round in 0..<20 { try store.put("b", round) }
    try store.raisePromise()
    #expect(try reader.changes(since: position).changes == [])
    try reader.refresh()
    #expect(try reader.pages(since: position, SeededRandom(seed: 2)).count == 20)
    #expect(try reader.history(of: id("b")) == store.history(of: id("b")))
    for round in 0..<20 { #expect(try await live.next()?.record?["n"] == .int64(Int64(round))) }
    try store.compactBlocking()
    try store.put("c", 1)
    try store.raisePromise()
    try reader.refresh()
    #expect(code { _ = try reader.changes(since: position) } == .positionExpired)
    try await reader.close()
    #expect(try await live.next() == nil)
    try store.closeBlocking()
  }
}

extension RecordStore {
  fileprivate func raisePromise() throws {
    if case .writer(let log) = source { try log.raiseControl() }
  }
}

@Suite(.timeLimit(.minutes(30)))
struct `The sequence of changes` {
  @Test func `begins with what is there, and goes on with what becomes durable`() async throws {
    let store = try open()
    for round in 0..<600 { try store.put("a", round) }
    let position = try store.changes(since: .start, limit: 10).position
    var changes = store.observeChanges(since: position).makeAsyncIterator()
    for round in 10..<600 { #expect(try await changes.next()?.record?["n"] == .int64(Int64(round))) }
    // Each, also those that were not asked for meanwhile.
    for round in 0..<5 { try store.put("b", round) }
    for round in 0..<5 { #expect(try await changes.next()?.record?["n"] == .int64(Int64(round))) }
    let end = try store.read { $0.position }
    let waiting = Task {
      for try await change in store.observeChanges(since: end) { return change.id as RecordID? }
      return nil
    }
    try await store.write { try $0.delete(id("b")) }
    #expect(try await waiting.value == id("b"))
    #expect(try await changes.next()?.kind == .deleted)
    try await store.close()
    #expect(try await changes.next() == nil)
    #expect(try await changes.next() == nil)
  }

  @Test(arguments: Campaign.seeds(1...4, every: 2))
  func `194: gives every change once, whatever writes meanwhile`(seed: UInt64) async throws {
    let store = try open(seed: seed, segmentBytes: 30_000)
    let readers = (0..<3).map { _ in
      Task {
        var last = LSN.zero
        var numbers: [String: Int64] = [:]
        for try await change in store.observeChanges(since: .start) {
          #expect(change.position.lsn > last)
          last = change.position.lsn
          guard case .int64(let number)? = change.record?["n"] else { continue }
          #expect(number == numbers[change.id.name, default: 0] + 1)
          numbers[change.id.name] = number
          if numbers.values.reduce(0, +) == 400 { break }
        }
        return numbers
      }
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask { for round in 1...100 { try await store.write { try $0.put("w\(writer)", round) } } }
      }
      try await group.waitForAll()
    }
    for reader in readers {
      #expect(try await reader.value == ["w0": 100, "w1": 100, "w2": 100, "w3": 100])
    }
    try await store.close()
  }

  @Test func `ends at once with its task, and with an error when its position has expired`() async throws {
    let store = try open()
    try store.put("a", 1)
    let (started, signal) = AsyncStream<Void>.makeStream()
    let waiting = Task {
      var count = 0
      for try await _ in store.observeChanges(since: .start) {
        count += 1
        signal.yield()
      }
      return count
    }
    for await _ in started { break }
    waiting.cancel()
    #expect(try await waiting.value == 1)

    // A consumer that is too slow costs itself its place, and holds back no compaction.
    var slow = store.observeChanges(since: .start).makeAsyncIterator()
    #expect(try await slow.next()?.id == id("a"))
    for round in 0..<30 { try store.put("b", round) }
    #expect(try store.compactBlocking().eventsAfter < 10)
    await #expect {
      _ = try await slow.next()
    } throws: {
      ($0 as? StrandlineError)?.code == .positionExpired
    }
    #expect(try await slow.next() == nil)
    try await store.close()
  }
}
