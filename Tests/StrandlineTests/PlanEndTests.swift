// Goal: nothing that is pending is forgotten, whatever the server has refused. Method: drawn histories, at the end of which the
// server takes everything: then all of it goes, and the plan remembers nothing of it.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

extension `The plan of a cycle` {
  /// A plan with saves, edits and deletions that are pending, some of which refer to each other.
  private func drawn(_ seed: UInt64, _ below: (UInt64) -> Int) throws -> PlanDriver {
    let names = (0..<6).map { "n\($0)" }
    let driver = try PlanDriver(LogLines.seen(), random: seed) { $0.batch.operations = 1 + below(4) }
    for name in names {
      let isKnown = below(2) == 0
      if isKnown { try driver.facts.append([LogLines.fetched(name)]) }
      let base = isKnown ? driver.facts.durableLSN.rawValue : 0
      switch below(4) {
      case 0: break
      case 1 where isKnown: try driver.facts.append([LogLines.deleted(name, base: base)])
      default:
        let target = below(3) == 0 ? names[below(6)] : nil
        let contents: [UInt8] = below(3) == 0 ? [1, 2] : []
        try driver.facts.append([LogLines.saved(name, base: base, needs: target, contents: contents)])
      }
    }
    return driver
  }

  /// One cycle.
  ///
  /// - Parameter refuses: whether the server may refuse whatever it is asked.
  private func run(_ driver: inout PlanDriver, refuses: Bool, _ below: (UInt64) -> Int, _ seed: UInt64) throws {
    var turns = 0
    while true {
      turns += 1
      try #require(turns < 400, "seed \(seed): the cycle does not end")
      let next: SyncPlan.Next
      do { next = try driver.next() } catch { return }
      switch next {
      case .done, .outOfTime, .store: return
      case .wait(let wait):
        driver.facts.advance(milliseconds: wait.milliseconds)
        if refuses, turns > 60 { return }
      case .ask(let request):
        if refuses {
          do { try answer(&driver, request, below, seed) } catch is CloudError { return }
        } else {
          try take(&driver, request)
        }
      }
    }
  }

  /// The server takes it, and has nothing new.
  private func take(_ driver: inout PlanDriver, _ request: SyncRequest) throws {
    switch request {
    case .user: try driver.answer(request, .user("user"))
    case .changedZones: try driver.answer(request, .changed(token: "d \(driver.facts.durableLSN)"))
    case .allZones: try driver.answer(request, .allZones([zone]))
    case .pages(let pages): try driver.answer(request, .pages(of: pages, "t \(driver.facts.durableLSN)"))
    case .newest: try driver.answer(request, .newest(NewestPage(records: [], marker: nil)))
    case .lookUp(let lookup):
      let known = try lookup.names.filter { try driver.facts.entry(RecordID($0, zone: zone))?.base != nil }
      try driver.answer(request, .found(known.map(\.text), tag: "a", of: lookup.names.map(\.text)))
    case .createZone, .eraseZone: try driver.answer(request, .done)
    case .uploadContent(let upload): try driver.answer(request, .uploaded(upload))
    case .modify:
      let upload = try driver.leave(request)
      try driver.answer(request, .taken(upload))
    }
  }

  /// What waits for a person: what is held for ever is released, and a lost zone is synced again.
  private func decide(_ driver: inout PlanDriver) throws {
    for held in driver.facts.learned({ Array($0.held.values) }) where held.durationMilliseconds == 0 {
      try driver.facts.append([.released(Released(id: held.id, lsn: held.lsn))])
      driver.plan.holdEnded(held.id, driver.facts)
    }
    if driver.facts.zone(zone)?.isLost == true {
      try driver.facts.append([.zoneChanged(ZoneChanged(zone: zone, change: .reset, words: "a person"))])
    }
  }

  @Test func `brings everything to its end by itself, once the server takes it, and remembers nothing of it`() throws {
    for seed in Campaign.seeds(1...400, every: 4) {
      let random = SeededRandom(seed: seed)
      func below(_ count: UInt64) -> Int { Int(random.below(count)) }
      var driver = try drawn(seed, below)
      for _ in 0..<3 {
        driver.begin { $0.isUserInitiated = below(2) == 0 }
        try run(&driver, refuses: true, below, seed)
        driver.facts.advance(milliseconds: Int64(below(1_000_000)))
      }
      try decide(&driver)
      for _ in 0..<3 {
        driver.facts.advance(milliseconds: 48 * 3_600_000)
        driver.begin { $0.isUserInitiated = false }
        try run(&driver, refuses: false, below, seed)
      }
      let left = try driver.facts.pending(.max, after: .zero, upTo: driver.facts.durableLSN)
        .compactMap { try driver.facts.owner(ofPending: $0)?.name }
      #expect(left == [], "seed \(seed): \(driver.plan.queue.places.waits)")
      #expect(driver.plan.remembered == [:], "seed \(seed)")
    }
  }

  @Test func `a cycle without time is over if there is nothing to ask for, and not if something is pending`() throws {
    var driver = try asked(Lines.seen())
    try expectEnd(&driver)
    let over = try driver.plan.next(driver.facts, SyncPlan.Means(hasTime: false))
    guard case .done = over else { throw PlanDriver.Unexpected(words: "\(over)") }
    try driver.facts.append([Lines.saved("n")])
    later(&driver, milliseconds: 0)
    var next = try driver.plan.next(driver.facts, SyncPlan.Means(hasTime: false))
    while case .store(let step) = next {
      try driver.plan.recorded(step, .taken(TakenChanges()), driver.facts)
      next = try driver.plan.next(driver.facts, SyncPlan.Means(hasTime: false))
    }
    guard case .outOfTime = next else { throw PlanDriver.Unexpected(words: "\(next)") }
  }
}
