// Goal: every pending record has a place in the plan or will be read, and something ends each wait. Method: as in PlanTests.swift, with
// random changes and answers, and a look at every record after each step. A plan with a planted mistake is found.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

/// A random history of a few records of one zone, which need each other and go in sets.
struct RandomHistory {
  static let names = (0..<6).map { "n\($0)" }
  let seed: UInt64
  private let random: SeededRandom
  var driver: PlanDriver
  /// The places, and the kinds of waits, in which a record was found.
  private(set) var found: Set<String> = []
  private(set) var waits = UploadWait.Counts()
  private(set) var sent = 0
  /// Called when the plan asks, waits, or has nothing left to do.
  var look: (PlanDriver, _ step: String) throws -> Void = { _, _ in }

  init(seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    let isNew = random.below(4) == 0
    driver = try PlanDriver(
      isNew ? [] : LogLines.seen() + Self.names.prefix(3).map { LogLines.fetched($0) }, random: seed)
  }

  private func below(_ count: UInt64) -> Int { Int(random.below(count)) }
  private func name() -> String { Self.names[below(6)] }
  private func id(_ name: String) -> RecordID { RecordID(name, zone: LogLines.zone) }

  /// Checks every record.
  private mutating func check(_ step: String) throws {
    for name in Self.names {
      let broken = try driver.plan.brokenInvariant(of: id(name), driver.facts)
      try #require(broken == nil, "seed \(seed), \(step): \(broken ?? "")")
      guard let entry = try driver.facts.entry(id(name)), let pending = entry.pending else { continue }
      if driver.plan.keepsBack(id(name), entry, pending) { found.insert("kept back") }
      switch driver.plan.queue.places[id(name)] {
      case nil: if driver.plan.queue.isUnread(id(name), pending) { found.insert("unread") }
      case .ready?: found.insert("ready")
      case .inFlight?: found.insert("in flight")
      case .halved?: found.insert("halved")
      case .waits(let wait)?:
        found.insert("waits")
        waits.count(wait, 1)
      }
    }
  }

  /// The app writes: a save, an edit, a deletion, or two saves that go together.
  private mutating func write() throws {
    let name = name()
    let base = try driver.facts.entry(id(name))?.base?.version.rawValue ?? 0
    switch below(7) {
    case 0, 6: try driver.facts.append([LogLines.deleted(name, base: base)])
    case 1:
      let other = Self.names.first { $0 != name } ?? name
      let set = LSN(driver.facts.durableLSN.rawValue + 1)
      try driver.facts.append(
        [LogLines.saved(name, base: base, needs: below(2) == 0 ? other : nil), LogLines.saved(other)]
          + [name, other].map { .joined(Joined(id: id($0), set: set)) })
    case 2, 3: try driver.facts.append([LogLines.saved(name, base: base, needs: self.name())])
    default: try driver.facts.append([LogLines.saved(name, base: base)])
    }
  }

  mutating func run() throws {
    for _ in 0..<6 { try write() }
    for cycle in 0..<4 {
      let isUserInitiated = below(2) == 0
      driver.begin { $0.isUserInitiated = isUserInitiated }
      var turns = 0
      loop: while turns < 80 {
        turns += 1
        let next: SyncPlan.Next
        do { next = try driver.next() } catch is CloudError { break loop } catch is RefusedCycle {
          break loop
        } catch is StrandlineError { break loop }
        try look(driver, "seed \(seed), cycle \(cycle), turn \(turns)")
        switch next {
        case .done:
          try check("cycle \(cycle), at its end")
          break loop
        case .outOfTime, .store: throw PlanDriver.Unexpected(words: "\(next)")
        case .wait(let wait):
          try check("cycle \(cycle), turn \(turns), a wait")
          // A wait of no time could end a cycle that may not wait.
          try #require(wait.milliseconds > 0, "seed \(seed), cycle \(cycle), turn \(turns)")
          driver.facts.advance(milliseconds: wait.milliseconds)
        case .ask(let request):
          do { try answer(request, "cycle \(cycle), turn \(turns), \(request.words)") } catch is CloudError {
            break loop
          }
        }
      }
      driver.facts.advance(milliseconds: Int64(below(2) == 0 ? 1_000 : 100_000_000))
      try write()
    }
  }

  private mutating func answer(_ request: SyncRequest, _ step: String) throws {
    guard case .modify(let upload) = request else {
      try check("\(step), asked")
      let random = random
      try `The plan of a cycle`().answer(&driver, request, { Int(random.below($0)) }, seed)
      return try check("\(step), answered")
    }
    _ = try driver.leave(request)
    sent += 1
    try check("\(step), sent")
    // The app writes while it is under way.
    if below(4) == 0 { try write() }
    if below(2) == 0 {
      try driver.answer(request, .taken(upload))
    } else if below(4) > 0 {
      let codes: [CloudError.Code] = [
        .conflict, .validatingReferenceError, .notFound, .exists, .internalError, .accessDenied, .atomicError,
        .authenticationRequired,
      ]
      let names = Set(upload.uploads.map(\.id.name).filter { _ in below(2) == 0 })
      try driver.answer(request, .refused(upload, codes[below(8)], only: upload.isAtomic ? nil : names))
    } else {
      let codes: [CloudError.Code] = [.badRequest, .networkError, .quotaExceeded, .accessDenied, .limitExceeded]
      try driver.refuse(request, codes[below(5)])
    }
    try check("\(step), answered")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The place of a pending record` {
  @Test func `is known, and each wait has an end, whatever the app writes and the server answers`() throws {
    var found: Set<String> = []
    var (sent, waits) = (0, Set<String>())
    for seed in Campaign.seeds(1...600, every: 4) {
      var history = try RandomHistory(seed: seed)
      try history.run()
      found.formUnion(history.found)
      sent += history.sent
      for child in Mirror(reflecting: history.waits).children where child.value as? Int != 0 {
        waits.insert(child.label ?? "")
      }
    }
    // The histories come to every place and every kind of wait.
    #expect(found == ["unread", "ready", "in flight", "halved", "waits", "kept back"])
    #expect(waits == ["target", "fetch", "lookup", "time", "hold", "references", "together"])
    #expect(sent > 500)
  }

  @Test func `is found to be wrong if a wait has no end, or nothing will send or read a record`() throws {
    let driver = try PlanDriver(LogLines.seen() + [LogLines.saved("a")])
    let id = RecordID("a", zone: LogLines.zone)
    #expect(try driver.plan.brokenInvariant(of: id, driver.facts) == nil)
    let facts = driver.facts
    func broken(_ change: (inout SyncPlan) -> Void) throws -> String? {
      var plan = driver.plan
      plan.queue.cursor = facts.durableLSN
      change(&plan)
      return try plan.brokenInvariant(of: id, facts)
    }
    let item = UploadItem(id: id, lsn: facts.durableLSN, isDeletion: false, targets: [])
    #expect(try broken { _ in }?.contains("nowhere") == true)
    #expect(try broken { $0.queue.leaves([item]) } == nil)
    let older = UploadItem(id: id, lsn: LSN(1), isDeletion: false, targets: [])
    #expect(try broken { $0.queue.leaves([older]) }?.contains("newer change") == true)
    #expect(try broken { $0.queue.putBack([[older]], in: id.zone) }?.contains("newer change") == true)
    #expect(try broken { $0.queue.halve([item]) }?.contains("no half") == true)
    #expect(
      try broken {
        $0.queue.halve([item])
        $0.cycle.split.parts = [(id.zone, [[item]])]
      } == nil)
    for wait in [UploadWait.target(id), .fetch, .lookup, .hold, .references, .together] {
      #expect(try broken { $0.queue.wait(id, for: wait) }?.contains("nothing will end") == true, "\(wait)")
    }
    #expect(
      try broken {
        $0.queue.wait(id, for: .fetch)
        $0.fetch(id.zone)
      } == nil)
    #expect(
      try broken {
        $0.queue.wait(id, for: .lookup)
        $0.lookUp(id)
      } == nil)
    #expect(try broken { $0.wait(id, milliseconds: 5, facts) } == nil)
  }

  @Test func `is one: what waits, is in flight or in a half is not ready, and a newer change takes its place`() throws {
    let (id, other) = (RecordID("a", zone: LogLines.zone), RecordID("b", zone: LogLines.zone))
    var queue = OutgoingQueue(scope: .private)
    func item(_ lsn: UInt64, isDeletion: Bool = false) -> UploadItem {
      UploadItem(id: id, lsn: LSN(lsn), isDeletion: isDeletion, targets: [])
    }
    func expect(_ place: RecordPlace?, ready: Int, _ line: SourceLocation = #_sourceLocation) {
      #expect(queue.places[id] == place, sourceLocation: line)
      #expect(queue.places.readyCount(in: id.zone) == ready, sourceLocation: line)
    }
    queue.add([[item(5)]], in: id.zone)
    expect(.ready(LSN(5), isDeletion: false), ready: 1)
    queue.wait(id, for: .time(until: 7))
    expect(.waits(.time(until: 7)), ready: 0)
    #expect(queue.places.ends.first?.id == id && queue.places.counts.time == 1)
    // Units that return to the queue take nobody out of a wait.
    queue.putBack([[item(5)]], in: id.zone)
    queue.halve([item(5)])
    expect(.waits(.time(until: 7)), ready: 0)
    queue.wait(id, for: .target(other))
    #expect(queue.places.ends.isEmpty && queue.places.ids(waitingFor: .record(other)) == [id])
    queue.wake(id)
    expect(nil, ready: 0)
    #expect(queue.places.ids(waitingFor: .record(other)).isEmpty && queue.places.counts == UploadWait.Counts())
    queue.leaves([item(5)])
    // The app writes meanwhile, and the queue reads it.
    queue.add([[item(9)]], in: id.zone)
    queue.ended()
    expect(.ready(LSN(9), isDeletion: false), ready: 1)
    queue.add(deletion: LSN(11), of: id)
    expect(.ready(LSN(11), isDeletion: true), ready: 0)
    queue.leaves([item(11, isDeletion: true)])
    queue.ended()
    expect(nil, ready: 0)
    queue.halve([item(11), item(12)])
    expect(.halved(LSN(11)), ready: 0)
    #expect(queue.takeHalved([[item(11)], [item(12)]]) == [[item(11)]])
    #expect(queue.places.all.isEmpty)
  }
}
