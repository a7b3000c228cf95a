// Goal: the moments of very many records cost little, in whatever order they are set. Method: a count of the work, not of time.

import StrandlineSimulation
import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

@Suite(.timeLimit(.minutes(30))) struct RecordDeadlineTests {
  @Test(arguments: [true, false])
  func `100,000 moments are set and taken with little work, ascending and descending`(isAscending: Bool) {
    let count = 100_000
    var deadlines = Deadlines()
    for number in 0..<count {
      deadlines.set(RecordID("n\(number)"), UInt64(isAscending ? number : count - number))
    }
    #expect(deadlines.moves <= count * 17)
    var taken: [RecordID] = []
    for now in stride(from: 0, through: UInt64(count), by: 997) { taken += deadlines.takeDue(now) }
    taken += deadlines.takeDue(.max)
    #expect(taken == (0..<count).map { RecordID("n\(isAscending ? $0 : count - 1 - $0)") })
    #expect(deadlines.moves <= count * 34)
    #expect(deadlines.isEmpty && deadlines.first == nil)
  }

  @Test func `the last moment of a record counts, and the one that is wanted is found without the others`() {
    let random = SeededRandom(seed: 7)
    for _ in 0..<200 {
      var deadlines = Deadlines()
      var known: [RecordID: UInt64] = [:]
      for _ in 0..<100 {
        let (id, moment) = (RecordID("n\(random.below(12))"), random.below(40))
        switch random.below(8) {
        case 0:
          let due = deadlines.takeDue(moment)
          #expect(Set(due) == Set(known.filter { $0.value <= moment }.keys) && Set(due).count == due.count)
          #expect(due == due.sorted { (known[$0] ?? 0, $0) < (known[$1] ?? 0, $1) })
          for id in due { known[id] = nil }
        case 1:
          let wanted = { (id: RecordID) in id.name.utf8.count == 2 }
          let found = deadlines.first(where: wanted)
          let expected = known.filter { wanted($0.key) }.min { ($0.value, $0.key) < ($1.value, $1.key) }
          #expect(found?.id == expected?.key && found?.nanoseconds == expected?.value)
        case 2:
          deadlines.remove(id)
          known[id] = nil
        default:
          deadlines.set(id, moment)
          known[id] = moment
        }
        // The first one is never one that was replaced or removed.
        let first = known.min { ($0.value, $0.key) < ($1.value, $1.key) }
        #expect(deadlines.first?.id == first?.key && deadlines.first?.nanoseconds == first?.value)
      }
    }
  }
}
