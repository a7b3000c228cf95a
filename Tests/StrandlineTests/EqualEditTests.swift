// Goal: where both sides have changed a field since a version that both know, its rule decides, equal values or not; and no
// history counts an increment twice. Method: the smallest histories between devices, in every order, with lost answers,
// copies and a server that shows what it showed before.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

/// Rules by which `count` is a counter, `tags` a set and `best` the greatest number.
private let rules: ConflictRules = {
  var rules = ConflictRules()
  rules["Note"].fields = ["count": .counter, "tags": .union, "best": .greatest]
  return rules
}()

/// Devices that have the note `n` in common.
private func devices(_ count: Int, holding fields: [String: FieldValue]) async throws -> (fleet: Fleet, d: [Device]) {
  let fleet = try Fleet()
  let d = (0..<count).map { fleet.device("d\($0)") }
  for device in d { try await device.open(on: fleet, rules) }
  try await d[0].put("n", fields.mapValues { $0 })
  for device in d { try await device.exchange() }
  return (fleet, d)
}

extension Fleet {
  /// A device pushes, and does not hear the answer.
  fileprivate func loseAnswer(to device: Device, _ direction: CycleOptions.Direction = .pushOnly) async {
    var faults = ServerFaults()
    faults.dropAnswer = 1
    server.setFaults(faults)
    _ = try? await device.sync(direction, waitMillisecondsMax: 0)
    server.setFaults(ServerFaults())
  }
}

extension Device {
  fileprivate func open(on fleet: Fleet, _ rules: ConflictRules) async throws {
    try await open(through: InProcessTransport(fleet.server, waitsForDroppedAnswers: false), conflicts: rules)
  }

  /// Adds to the counter of the note, as its app sees it.
  fileprivate func add(_ number: Int64) async throws {
    guard case .int64(let known)? = try await value("n", "count") else { throw CloudError(.notFound) }
    try await put("n", ["count": .int64(known + number)])
  }

  fileprivate func tag(_ tag: String) async throws {
    guard case .list(_, let tags)? = try await value("n", "tags") else { throw CloudError(.notFound) }
    try await put("n", ["tags": .list(.strings, tags + [.string(tag)])])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Equal edits of two devices` {
  @Test func `of a counter are both counted`() async throws {
    let (_, d) = try await devices(2, holding: ["count": 100])
    for device in d { try await device.add(1) }
    try await exchange(d[0], d[1], d[0])
    for device in d { #expect(try await device.value("n", "count") == 102) }
    try await expectAgreement(d[0], d[1])
  }

  @Test(arguments: [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
  func `of three are counted in every order, also twice, and sets end as sets`(_ order: [Int]) async throws {
    let (_, d) = try await devices(3, holding: ["count": 100, "tags": .list(.strings, ["x"]), "best": 1])
    for round in 1...2 {
      for device in d {
        try await device.add(1)
        try await device.tag("t\(round)")
        try await device.put("n", ["best": .int64(Int64(round) * 10)])
      }
      for _ in 0..<2 { for place in order { try await d[place].exchange() } }
      #expect(try await d[0].value("n", "count") == .int64(100 + 3 * Int64(round)))
      guard case .list(_, let tags)? = try await d[0].value("n", "tags") else { throw CloudError(.notFound) }
      #expect(Set(tags) == Set((1...round).map { .string("t\($0)") } + ["x"]) && tags.count == round + 1)
      #expect(try await d[0].value("n", "best") == .int64(Int64(round) * 10))
      try await expectAgreement(d[0], d[1], d[2])
    }
  }

  /// Every way in which three devices that add one can take turns, two turns each, with an answer of each that may be lost.
  @Test func `of three are counted once whatever answers are lost`() async throws {
    let random = SeededRandom(seed: 52)
    for _ in 0..<24 {
      let (fleet, d) = try await devices(3, holding: ["count": 0])
      var added: Int64 = 0
      var words: [String] = []
      for _ in 0..<9 {
        let place = Int(random.below(3))
        if random.below(2) == 0 {
          try await d[place].add(1)
          added += 1
          words.append("\(place) adds")
        } else {
          let loses = random.below(3) == 0
          let direction: CycleOptions.Direction = random.below(2) == 0 ? .pushOnly : .both
          if loses {
            await fleet.loseAnswer(to: d[place], direction)
          } else {
            _ = try? await d[place].sync(direction, waitMillisecondsMax: 0)
          }
          words.append("\(place) syncs\(loses ? ", and hears nothing" : "")")
        }
      }
      for device in d { device.clock.advance(milliseconds: 600_000) }
      for _ in 0..<3 { for device in d { try await device.exchange() } }
      for device in d { #expect(try await device.value("n", "count") == .int64(added), "\(words)") }
      try await expectAgreement(d[0], d[1], d[2])
    }
  }

  /// The answer to the first increment is lost, another device adds one on top of it, and this one adds one more, so that both
  /// sides hold the same number.
  @Test func `that go on from an edit whose answer was lost are counted once`() async throws {
    let (fleet, d) = try await devices(2, holding: ["count": 5])
    try await d[0].add(1)
    await fleet.loseAnswer(to: d[0])
    try await d[1].exchange()
    try await d[1].add(1)
    try await d[1].exchange()
    try await d[0].add(1)
    d[0].clock.advance(milliseconds: 600_000)
    try await exchange(d[0], d[1])
    for device in d { #expect(try await device.value("n", "count") == 8) }
    try await expectAgreement(d[0], d[1])
  }

  /// A copy of a disk has an increment that the original has sent, and in whose place it has written on under a later tenure.
  @Test func `are one where a copy of a disk has the same write`() async throws {
    let (fleet, d) = try await devices(2, holding: ["count": 5])
    try await d[0].add(1)
    let image = d[0].disk.clone()
    try await d[0].exchange()
    try await d[0].close()
    try await d[0].open(on: fleet, rules)
    try await d[0].put("n", ["title": "later"])
    try await d[0].exchange()
    let copy = fleet.device("copy")
    copy.restore(from: image)
    try await copy.open(on: fleet, rules)
    try await exchange(copy, d[0], d[1])
    for device in [d[0], d[1], copy] { #expect(try await device.value("n", "count") == 6) }
    try await expectAgreement(d[0], d[1], copy)
  }

  /// The copy has merged the increment before it sent it, so that the original does not know it by its stamp.
  @Test func `are one where a copy of a disk has merged and sent the same write`() async throws {
    let (fleet, d) = try await devices(2, holding: ["count": 5])
    try await d[0].add(1)
    let image = d[0].disk.clone()
    // Rewritten with the value that it had, so that the copy's increment gets a new stamp.
    for number in [7, 5] {
      for clock in [d[0].clock, d[1].clock, fleet.serverClock] { clock.advance(milliseconds: 600_000) }
      try await d[1].put("n", ["count": .int64(Int64(number))])
      try await d[1].exchange()
    }
    let copy = fleet.device("copy")
    copy.restore(from: image)
    try await copy.open(on: fleet, rules)
    try await exchange(copy, d[0], d[1], copy)
    for device in [d[0], d[1], copy] { #expect(try await device.value("n", "count") == 6) }
    try await expectAgreement(d[0], d[1], copy)
  }

  /// The original has merged the increment again and again before the copy's version comes, fewer times than are looked through and more.
  @Test(arguments: [(merges: 60, count: Int64(6)), (merges: 70, count: Int64(6))])
  func `are one where a copy has sent what was merged at most 64 times since`(merges: Int, count: Int64) async throws {
    let (fleet, d) = try await devices(2, holding: ["count": 5])
    try await d[0].add(1)
    let image = d[0].disk.clone()
    for number in 1...merges {
      for clock in [d[0].clock, d[1].clock, fleet.serverClock] { clock.advance(milliseconds: 600_000) }
      try await d[1].put("n", ["count": .int64(number == merges ? 5 : Int64(number) * 100)])
      try await d[1].exchange()
      _ = try await d[0].sync(.pullOnly, waitMillisecondsMax: 0)
    }
    let copy = fleet.device("copy")
    copy.restore(from: image)
    try await copy.open(on: fleet, rules)
    try await exchange(copy, d[0], d[1], copy)
    for device in [d[0], d[1], copy] { #expect(try await device.value("n", "count") == .int64(count)) }
    try await expectAgreement(d[0], d[1], copy)
  }

  /// Compaction has taken the increment that the copy has sent, and with it what both sides went on from.
  @Test func `are not counted twice where compaction has taken what both went on from`() async throws {
    let (fleet, d) = try await devices(2, holding: ["count": 5])
    try await d[0].add(1)
    let image = d[0].disk.clone()
    try await d[0].exchange()
    let copy = fleet.device("copy")
    copy.restore(from: image)
    try await copy.open(on: fleet, rules)
    try await copy.add(1)
    for number in 0..<40 { try await copy.put("filler\(number)", ["title": "x"]) }
    #expect(try await copy.compact().broken == nil)
    try await exchange(copy, d[0], d[1])
    for device in [d[0], d[1], copy] { #expect(try await device.value("n", "count") == 7) }
    try await expectAgreement(d[0], d[1], copy)
  }

  /// Another tool replaces the record as a whole and drops the stamp, by which this device would know its own edit.
  @Test func `are one where the stamp is gone and the answer was lost`() async throws {
    let (fleet, d) = try await devices(1, holding: ["count": 5])
    try await d[0].add(1)
    await fleet.loseAnswer(to: d[0])
    let replace = CloudOperation(
      .forceReplace, name: "n", type: "Note", fields: ["count": .some(6), "title": "of a tool"])
    _ = try await d[0].web().modify([replace], in: .main, atomic: false)
    d[0].clock.advance(milliseconds: 600_000)
    try await d[0].exchange()
    #expect(try await d[0].value("n", "count") == 6)
    #expect(try await d[0].value("n") == "of a tool")
    try await expectAgreement(d[0])
  }

  @Test func `ask a resolver where both sides changed the record, and never because of an own edit`() async throws {
    let fleet = try Fleet()
    let asked = Mutex<[Conflict]>([])
    var rules = ConflictRules()
    rules["Note"].record = .resolver { conflict in
      asked.withLock { $0.append(conflict) }
      func number(_ record: Record?) -> Int64 { if case .int64(let number)? = record?["count"] { number } else { 0 } }
      var record = conflict.server
      record["count"] = .int64(
        number(conflict.server) + number(conflict.local) - number(conflict.ancestor))
      return record
    }
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    for device in [a, b] { try await device.open(on: fleet, rules) }
    try await a.put("n", ["count": 100])
    try await exchange(a, b)
    for device in [a, b] { try await device.add(1) }
    try await exchange(a, b, a)
    for device in [a, b] { #expect(try await device.value("n", "count") == 102) }
    #expect(asked.withLock { $0.count } == 1)
    // The answer to an own edit is lost, and the feed shows it.
    try await a.add(1)
    await fleet.loseAnswer(to: a)
    a.clock.advance(milliseconds: 600_000)
    try await exchange(a, b)
    #expect(asked.withLock { $0.count } == 1)
    for device in [a, b] { #expect(try await device.value("n", "count") == 103) }
    try await expectAgreement(a, b)
  }
}
