// When an engine makes its automatic runs, and how far many engines are apart.

import Strandline
import StrandlineSystem
import Testing

@testable import Strandline

@Suite(.timeLimit(.minutes(30)))
struct RunScheduleTests {
  @Test func `a wait that the server names is kept, and ends for many devices at different moments`() {
    let random = SeededRandom(seed: 1)
    let due = NextDue(milliseconds: 20_000, isServers: true)
    let waits = (0..<100).map { _ in
      var schedule = RunSchedule(SyncPace())
      // The poll of a run that failed may come earlier, and sends nothing then.
      for _ in 0..<8 { _ = schedule.runEnded(hasFailed: true, due: nil, random) }
      return schedule.runEnded(hasFailed: true, due: due, random)
    }
    #expect(waits.allSatisfy { (20_000...25_000).contains($0) })
    #expect(Set(waits).count > 90)
  }

  @Test func `the engine's own wait is drawn once`() {
    var schedule = RunSchedule(SyncPace())
    let due = NextDue(milliseconds: 700, isServers: false)
    #expect(schedule.runEnded(hasFailed: true, due: due, SeededRandom(seed: 1)) == 700)
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

  @Test func `a push is followed at once, a write after half a second`() {
    #expect(RunSchedule.debounce([.push]) == 0 && RunSchedule.debounce([]) == 500)
    #expect(!RunSchedule.options([.push]).isUserInitiated && RunSchedule.options([.foreground]).isUserInitiated)
  }
}
