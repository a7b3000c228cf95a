// The queue between two threads: values arrive once and in order, no more than allowed wait, and either side may end.

import StrandlineHost
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct HandoverTests {
  @Test(arguments: [1, 2, 16])
  func `values come in the order in which they were given, and no more than allowed wait`(ahead: Int) throws {
    let values = Handover<Int>(ahead: ahead)
    let given = Mutex(0)
    let giver = try BlockingThread.start(name: "giver") {
      for value in 0..<1_000 {
        #expect(values.give(value))
        given.withLock { $0 = value + 1 }
      }
      values.end()
    }
    for value in 0..<1_000 {
      // The one that is taken next is among those that wait.
      #expect(given.withLock { $0 } - value <= ahead)
      #expect(values.take() == value)
    }
    #expect(values.take() == nil && values.take() == nil)
    giver.join()
  }

  @Test func `a taker that stops frees the giver, who is told`() throws {
    let values = Handover<Int>(ahead: 1)
    let refused = Mutex<Int?>(nil)
    let giver = try BlockingThread.start(name: "giver") {
      var value = 0
      while values.give(value) { value += 1 }
      refused.withLock { $0 = value }
      // Again, and at once.
      #expect(!values.give(0))
      values.end()
    }
    #expect(values.take() == 0)
    values.stop()
    giver.join()
    #expect(try #require(refused.withLock { $0 }) >= 1)
    #expect(values.take() == nil)
  }

  @Test func `without a value there is only the end`() throws {
    let values = Handover<Int>(ahead: 1)
    let giver = try BlockingThread.start(name: "giver") { values.end() }
    #expect(values.take() == nil)
    giver.join()
  }
}
