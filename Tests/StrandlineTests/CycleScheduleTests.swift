// When an engine makes its automatic cycles, and how far many engines are apart.

import Strandline
import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30)))
struct CycleScheduleTests {
  private let random = SeededRandom(seed: 6)

  @Test func `a moment that devices share is spread, as far as the app wants`() {
    var pace = SyncPace()
    func waits(_ causes: Set<SyncCause>, seed: UInt64) -> [Int64] {
      let (schedule, random) = (CycleSchedule(pace), SeededRandom(seed: seed))
      return (0..<1_000).map { _ in schedule.debounce(causes, random) }
    }
    let first = waits([.networkReturned], seed: 1)
    #expect(first.allSatisfy { (0...1_000).contains($0) })
    #expect(first != waits([.networkReturned], seed: 2) && first == waits([.networkReturned], seed: 1))
    // Evenly: in each tenth of the second about as many.
    let tenths = Dictionary(grouping: first) { min(9, $0 / 100) }.mapValues(\.count)
    #expect(tenths.count == 10 && tenths.values.allSatisfy { (60...140).contains($0) }, "\(tenths)")
    let pushes = waits([.push], seed: 1)
    #expect(pushes.allSatisfy { (0...250).contains($0) } && Set(pushes).count > 100)
    pace.spread = .seconds(60)
    #expect(waits([.networkReturned, .push], seed: 1).contains { $0 > 50_000 })
    for change in [{ $0.spread = .zero }, { $0.debounce = .zero }, { $0.hasJitter = false }]
      as [(inout SyncPace) -> Void]
    {
      pace = SyncPace()
      change(&pace)
      #expect(waits([.networkReturned], seed: 1).allSatisfy { $0 == 0 })
    }
    pace.spread = .seconds(Int64.max)
    #expect(waits([.networkReturned], seed: 1).allSatisfy { $0 >= 0 })
  }

  @Test func `a wait that the server names is kept, and ends for many devices at different moments`() {
    let random = SeededRandom(seed: 1)
    let due = NextDue(milliseconds: 20_000, isServers: true)
    let waits = (0..<100).map { _ in
      var schedule = CycleSchedule(SyncPace())
      // The poll of a run that failed may come earlier, and sends nothing then.
      for _ in 0..<8 { _ = schedule.cycleEnded(hasFailed: true, due: nil, random) }
      return schedule.cycleEnded(hasFailed: true, due: due, random)
    }
    #expect(waits.allSatisfy { (20_000...25_000).contains($0) })
    #expect(Set(waits).count > 90)
  }

  @Test func `the engine's own wait is drawn once`() {
    var schedule = CycleSchedule(SyncPace())
    let due = NextDue(milliseconds: 700, isServers: false)
    #expect(schedule.cycleEnded(hasFailed: true, due: due, SeededRandom(seed: 1)) == 700)
  }

  @Test func `own waits double to 29 minutes, and long ones are spread over all of them`() {
    let (pace, random) = (SyncPace(), SeededRandom(seed: 2))
    for failures in 1...9 {
      let whole = Int64(1000) << (failures - 1)
      for _ in 0..<20 { #expect((whole / 2...whole).contains(pace.ownWait(failures: failures, random))) }
    }
    let waits = (0..<4_000).map { _ in pace.ownWait(failures: 30, random) }
    #expect(waits.allSatisfy { (150_000...29 * 60_000).contains($0) })
    // Of the devices that wait, so many return in the first third of the longest wait, and so many in the last.
    let third = Int64(29 * 60_000 / 3)
    let all = waits.reduce(0, +)
    let first = waits.reduce(0) { $0 + min($1, third) } * 100 / all
    let last = waits.reduce(0) { $0 + max(0, $1 - 2 * third) } * 100 / all
    #expect((38...50).contains(first) && (18...28).contains(last), "\(first) % and \(last) %")
    var without = pace
    without.hasJitter = false
    #expect(without.ownWait(failures: 30, random) == 29 * 60_000)
  }

  @Test func `the foreground is followed at once, a write after half a second`() {
    let schedule = CycleSchedule(SyncPace())
    #expect(schedule.debounce([.foreground, .networkReturned], random) == 0 && schedule.debounce([], random) == 500)
    #expect(!CycleSchedule.options([.push]).isUserInitiated && CycleSchedule.options([.foreground]).isUserInitiated)
  }

  @Test func `an app's own pace counts, whatever numbers it has`() {
    var pace = SyncPace()
    (pace.debounce, pace.poll, pace.longestWait) = (.zero, .seconds(600), .seconds(10))
    let random = SeededRandom(seed: 3)
    var schedule = CycleSchedule(pace)
    #expect(schedule.debounce([], random) == 0)
    for _ in 0..<50 {
      #expect((300_000...600_000).contains(schedule.cycleEnded(hasFailed: false, due: nil, random)))
      #expect((5_000...10_000).contains(pace.ownWait(failures: 20, random)))
    }
    (pace.debounce, pace.poll, pace.longestWait) = (.seconds(-5), .seconds(-1), .seconds(-1))
    schedule = CycleSchedule(pace)
    #expect(schedule.debounce([], random) == 0 && schedule.cycleEnded(hasFailed: false, due: nil, random) >= 500)
    #expect(pace.ownWait(failures: 20, random) >= 500)
    pace.poll = .seconds(Int64.max)
    pace.debounce = .seconds(Int64.max)
    schedule = CycleSchedule(pace)
    #expect(schedule.cycleEnded(hasFailed: false, due: nil, isConstrained: true, random) > 0)
    #expect(schedule.debounce([], isConstrained: true, random) > 0)
    #expect(SyncPace.prompt.ownWait(failures: 20, random) <= 300_000)
  }

  @Test func `a constrained device runs by itself a tenth as often, and at once when it is asked to`() {
    let random = SeededRandom(seed: 4)
    var schedule = CycleSchedule(SyncPace())
    for _ in 0..<50 {
      let wait = schedule.cycleEnded(hasFailed: false, due: nil, isConstrained: true, random)
      #expect((300_000...600_000).contains(wait))
    }
    #expect(schedule.debounce([], isConstrained: true, random) == 5_000)
    #expect((0...250).contains(schedule.debounce([.push], isConstrained: true, random)))
    // What waits for a moment comes at that moment.
    let due = NextDue(milliseconds: 700, isServers: false)
    #expect(schedule.cycleEnded(hasFailed: true, due: due, isConstrained: true, random) == 700)
  }
}
