// Goal: no record leaves before what it needs, also while the server refuses its type, and whatever goes together; and once the server
// takes everything, all of it goes. Method: drawn histories of two types, of which the server refuses one for a while. The server
// knows which records it has, and refuses a save whose targets it lacks.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

/// A server that knows which records it has.
private struct KnowingServer {
  var names: Set<CloudName> = []
  /// It refuses each save of these types.
  var refusedTypes: Set<String> = ["Kind"]
  /// The records that it refuses as wrong.
  var wrong: Set<CloudName> = []

  private func refusal(of upload: Upload) -> CloudError? {
    if wrong.contains(upload.id.key) { return CloudError(.badRequest, reason: "wrong: \(upload.id.name)") }
    return refusedTypes.contains(upload.type) ? CloudError(.accessDenied, reason: "no \(upload.type)") : nil
  }

  mutating func answer(_ request: UploadRequest) -> SyncAnswer {
    var errors: [CloudName: CloudError] = [:]
    for upload in request.uploads { errors[upload.id.key] = refusal(of: upload) }
    var isChanged = true
    while isChanged {
      isChanged = false
      let taken = names.union(request.uploads.map(\.id.key).filter { errors[$0] == nil })
      for upload in request.uploads where errors[upload.id.key] == nil && !taken.isSuperset(of: upload.item.needs) {
        errors[upload.id.key] = CloudError(.validatingReferenceError, reason: "a target is missing")
        isChanged = true
      }
    }
    if request.isAtomic, !errors.isEmpty {
      for upload in request.uploads where errors[upload.id.key] == nil {
        errors[upload.id.key] = CloudError(.atomicError, reason: "another one was refused")
      }
    }
    guard case .records(var results) = SyncAnswer.taken(request) else { return .done }
    for (name, error) in errors { results[name] = .failed(error, serverRecord: nil) }
    names.formUnion(request.uploads.map(\.id.key).filter { errors[$0] == nil })
    return .records(results)
  }
}

/// A drawn history: what needs what, what goes together, what the server refuses.
private struct History {
  private static let names = (0..<8).map { "n\($0)" }
  let seed: UInt64
  private let random: SeededRandom
  private var server = KnowingServer()
  var driver: PlanDriver
  private(set) var sets = 0
  private(set) var halts = 0

  init(seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed)
    driver = try PlanDriver(LogLines.seen(), random: seed)
    for name in Self.names where below(8) == 0 { server.wrong.insert(CloudName(name)) }
    if below(3) == 0 { server.refusedTypes.insert("Sort") }
    var unwritten = Self.names
    while !unwritten.isEmpty { try write(&unwritten) }
  }

  private func below(_ count: UInt64) -> Int { Int(random.below(count)) }
  private func id(_ name: String) -> RecordID { RecordID(name, zone: LogLines.zone) }

  /// The app writes one record, or some that go together.
  private func write(_ unwritten: inout [String]) throws {
    let count = min(unwritten.count, below(2) == 0 ? 1 : 2 + below(2))
    let some = (0..<count).map { _ in unwritten.remove(at: below(UInt64(unwritten.count))) }
    let set = driver.facts.durableLSN.rawValue + 1
    try driver.facts.append(
      some.map { name in
        LogLines.saved(
          name, type: ["Note", "Kind", "Kind", "Sort"][below(4)], needs: below(2) == 0 ? Self.names[below(8)] : nil,
          contents: below(4) == 0 ? [1] : [])
      })
    if count > 1 {
      try driver.facts.append(some.map { .joined(Joined(id: id($0), set: LSN(set))) })
    }
  }

  private mutating func answer(_ request: SyncRequest) throws {
    let facts = driver.facts
    switch request {
    case .user: try driver.answer(request, .user("user"))
    case .changedZones: try driver.answer(request, .changed(token: "d \(facts.durableLSN)"))
    case .allZones: try driver.answer(request, .allZones([LogLines.zone]))
    case .pages(let pages): try driver.answer(request, .pages(of: pages, "t \(facts.durableLSN)"))
    case .newest: try driver.answer(request, .newest(NewestPage(records: [], marker: nil)))
    case .lookUp(let lookup):
      let known = lookup.names.filter(server.names.contains)
      try driver.answer(request, .found(known.map(\.text), tag: "new", of: lookup.names.map(\.text)))
    case .createZone, .eraseZone: try driver.answer(request, .done)
    case .uploadContent(let upload): try driver.answer(request, .uploaded(upload))
    case .modify(let upload):
      let sent = Set(upload.uploads.map(\.id.key))
      var before: Set<CloudName> = []
      for one in upload.uploads {
        let lacking = one.item.needs.filter { !server.names.contains($0) && !sent.contains($0) }
        try #require(lacking.isEmpty, "seed \(seed): \(one.id) without \(lacking)")
        // Only records of a circle may precede what they need.
        let later = one.item.needs.filter { !server.names.contains($0) && !before.contains($0) && $0 != one.id.key }
        for name in later { try #require(needs(name, one.id.key, upload), "seed \(seed): \(one.id) before \(name)") }
        before.insert(one.id.key)
      }
      if upload.isAtomic { sets += 1 }
      _ = try driver.leave(request)
      try driver.answer(request, server.answer(upload))
      if driver.plan.queue.halts.hasTypes { halts += 1 }
    }
  }

  /// Whether a record of a request needs another one, directly or through others of it.
  private func needs(_ name: CloudName, _ target: CloudName, _ upload: UploadRequest) -> Bool {
    var (met, next): (Set<CloudName>, [CloudName]) = ([name], [name])
    while let last = next.popLast() {
      for need in upload.uploads.first(where: { $0.id.key == last })?.item.needs ?? [] {
        if need == target { return true }
        if met.insert(need).inserted { next.append(need) }
      }
    }
    return false
  }

  private mutating func cycle() throws {
    driver.begin { $0.isUserInitiated = true }
    for turn in 0..<200 {
      try #require(turn < 199, "seed \(seed): the cycle does not end")
      let next: SyncPlan.Next
      do { next = try driver.next() } catch is RefusedCycle { return } catch is CloudError { return }
      switch next {
      case .wait(let wait): driver.facts.advance(milliseconds: wait.milliseconds)
      case .ask(let request): try answer(request)
      case .done: return
      case .outOfTime, .store: throw PlanDriver.Unexpected(words: "\(next)")
      }
    }
  }

  mutating func run() throws {
    for _ in 0..<4 { try cycle() }
    (server.refusedTypes, server.wrong) = ([], [])
    for held in driver.facts.learned({ Array($0.held.values) }) where held.durationMilliseconds == 0 {
      try driver.facts.append([.released(Released(id: held.id, lsn: held.lsn))])
      driver.plan.holdEnded(held.id, driver.facts)
    }
    for _ in 0..<3 { try cycle() }
    let left = try Self.names.filter { try driver.facts.entry(id($0))?.pending != nil }
    try #require(left == [], "seed \(seed): \(driver.plan.remembered)")
    try #require(driver.plan.remembered == [:], "seed \(seed)")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A server that knows what it has` {
  @Test func `gets no record before what it needs, and at last all of them, though it refuses a type for a while`()
    throws
  {
    var (sets, halts) = (0, 0)
    for seed in Campaign.seeds(1...1_600, every: 8) {
      var history = try History(seed: seed)
      try history.run()
      sets += history.sets
      halts += history.halts
    }
    #expect(sets > 100 && halts > 100, "\(sets) sets, \(halts) answers with a refused type")
  }
}
