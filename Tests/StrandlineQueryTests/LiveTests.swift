// Goal: a view shows the store's newest answer, and never an older one after it. Method: what reads `value` is woken by Swift's
// Observation, as a view is; random writes between.

import Foundation
import Observation
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Testing

@testable import Strandline

@MainActor @Suite(.timeLimit(.minutes(30)))
struct LiveTests {
  /// Waits until what `look` reads meets a condition, woken as a view is.
  private func wait(until isMet: @MainActor () -> Bool) async {
    while true {
      let (changes, continuation) = AsyncStream.makeStream(of: Void.self)
      let isDone = withObservationTracking(isMet) { continuation.yield() }
      if isDone { return }
      for await _ in changes { break }
    }
  }

  @Test func `a live list, value and count show the newest answer and end with the store`() async throws {
    let store = try openPages()
    let random = SeededRandom(seed: 3)
    let live = store.live(Page.self, where: #Predicate { $0.stars == 50 }, sortedBy: .ascending(\.title))
    let one = store.live(Page.self, id: "p1")
    let count = store.liveCount(Page.self)
    await wait { live.value != nil && count.value == 0 }
    #expect(live.value?.isEmpty == true)
    for number in 1...3 {
      var page = Page("p\(number)") { Int(random.below(UInt64($0))) }
      (page.stars, page.title) = (50, "title \(4 - number)")
      try await store.write { try $0.save(page) }
    }
    await wait { live.value?.count == 3 && count.value == 3 && one.value??.id == "p1" }
    #expect(live.value?.map(\.id) == ["p3", "p2", "p1"])
    try await store.write { try $0.delete(Page.self, id: "p1") }
    await wait { one.value == .some(nil) && live.value?.count == 2 }
    try await store.close()
    await wait { !live.isLive && !one.isLive && !count.isLive }
    #expect(live.error == nil && live.value?.count == 2)
  }

  @Test func `a live value ends with its owner`() async throws {
    let store = try openPages()
    weak var gone: Live<Int>?
    do {
      let count = store.liveCount(Page.self)
      gone = count
      await wait { count.value == 0 }
    }
    #expect(gone == nil)
    try await store.close()
  }

  @Test func `an answer that cannot be read ends it with the error`() async throws {
    let store = try openPages()
    let one = store.live(Page.self, id: "p1")
    try await store.write { try $0.create(Record(type: "Other", id: RecordID("p1"))) }
    await wait { !one.isLive }
    #expect(one.error?.code == .typeMismatch)
    try await store.close()
  }

  @Test func `the last answer shown is the store's, and none is older than one before`() async throws {
    for seed in 1...UInt64(Campaign.isWhole ? 1_000 : 20) {
      let store = try openPages(seed: seed)
      let random = SeededRandom(seed: seed)
      let page = Page("p") { Int(random.below(UInt64($0))) }
      let live = store.live(Page.self, id: "p")
      var shown: [Int] = []
      for number in 1...5 {
        try await store.write { tx in
          var page = page
          page.stars = number
          try tx.save(page)
        }
        for _ in 0..<random.below(4) {
          await Task.yield()
          if let stars = live.value??.stars { shown.append(stars) }
        }
      }
      await wait { live.value??.stars == 5 }
      #expect(shown == shown.sorted(), "seed \(seed)")
      try await store.close()
    }
  }
}
