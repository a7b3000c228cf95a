// Goal: a body is found as long as its event is in flight, and never after. Method: random appends, failures and syncs
// against a dictionary.

import Strandline
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Bodies in flight` {
  @Test(arguments: Campaign.seeds(1...20, every: 20))
  func `are found until they are durable or undone`(_ seed: UInt64) {
    let random = SeededRandom(seed: seed)
    var bodies = BodiesInFlight()
    var model: [LSN: [UInt8]] = [:]
    var (durable, last) = (LSN.zero, LSN.zero)
    for step in 0..<600 {
      switch random.below(10) {
      case 0..<6:
        for _ in 0..<(1 + random.below(4)) {
          last = last.advanced(by: 1)
          let count = random.below(8) == 0 ? BodiesInFlight.chunkBytesMax : 8_000
          let body = [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: Int(random.below(UInt64(count))))
          bodies.append(body, at: last)
          model[last] = body
        }
      case 6, 7:
        // A transaction fails: its events are undone, and their LSNs are given again.
        last = durable.advanced(by: Int(random.below(last.rawValue - durable.rawValue + 1)))
        bodies.removeLast(after: last)
        model = model.filter { $0.key <= last }
      default:
        durable = durable.advanced(by: Int(random.below(last.rawValue - durable.rawValue + 1)))
        if random.below(3) == 0 { durable = last }
        bodies.removeFirst(through: durable)
        model = model.filter { $0.key > durable }
      }
      for lsn in (max(durable.rawValue, 3) - 3)...(last.rawValue + 3) {
        let found = bodies[LSN(lsn)]
        #expect(found == model[LSN(lsn)], "seed \(seed), step \(step), event \(lsn)")
        if found != model[LSN(lsn)] { return }
      }
    }
  }
}
