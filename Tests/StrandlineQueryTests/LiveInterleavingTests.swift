// Goal: in whatever order writers, pages of a sync, readers, cancellations and the end of a store come, no observer and no view
// sees an older answer after a newer one, the last that each sees is the store's, and each ends when it is cancelled or the store
// is closed. Method: everything that a store, its engine and its observers do in tasks is a job of an executor that runs one job
// at a time, which of those that are ready a seed says, and only when the test tells it; the main actor has its turn between.
// All writes make the answers greater, so that an older one is less.

import Foundation
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import StrandlineTestSupport
import Synchronization
import Testing

@testable import Strandline

/// What is asked of the store, as a number that grows with each change.
private enum Question: Int, CaseIterable {
  case list, count, one

  func answer(_ store: RecordStore) throws -> Int {
    switch self {
    case .list: Question.sum(try store.fetch(Page.self, where: #Predicate { $0.stars > 0 }))
    case .count: try store.count(Page.self)
    case .one: Question.stars(try store.fetch(Page.self, id: "p0"))
    }
  }

  static func sum(_ pages: TypedValues<Page>) -> Int { pages.reduce(0) { $0 + $1.stars } }
  static func stars(_ page: Page?) -> Int { page?.stars ?? 0 }
}

/// What one observer has seen.
private final class Sight: Sendable {
  let question: Question
  let seen = Mutex<[Int]>([])
  let isOver = Mutex(false)
  init(_ question: Question) { self.question = question }

  func see(_ answer: Int) { seen.withLock { $0.append(answer) } }
  var last: Int? { seen.withLock { $0.last } }
  var isOrdered: Bool { seen.withLock { $0 == $0.sorted() } }
}

/// One that an app keeps in a view.
@MainActor
private struct Shown {
  let sight: Sight
  private var list: Live<TypedValues<Page>>?
  private var count: Live<Int>?
  private var one: Live<Page?>?

  init(_ question: Question, _ store: RecordStore) {
    sight = Sight(question)
    switch question {
    case .list: list = store.live(Page.self, where: #Predicate { $0.stars > 0 })
    case .count: count = store.liveCount(Page.self)
    case .one: one = store.live(Page.self, id: "p0")
    }
  }

  /// A view is drawn.
  func draw() {
    let answer = list?.value.map(Question.sum) ?? count?.value ?? one?.value.map(Question.stars)
    if let answer, answer != sight.last { sight.see(answer) }
  }
  var isLive: Bool { list?.isLive ?? count?.isLive ?? one?.isLive ?? false }
  var error: StrandlineError? { list?.error ?? count?.error ?? one?.error }
  weak var object: AnyObject? { list ?? count ?? one }
}

/// What an app keeps no more, and whether it is gone.
private struct Dropped {
  weak var object: AnyObject?
}

/// What did not come, however many jobs ran.
private struct Unmet: Error, CustomStringConvertible {
  let description: String
}

@MainActor
private final class Stage {
  private let random: SeededRandom
  private let executor: SteppingExecutor
  private let feed = ScriptedFeed(pageMax: 2)
  private let store: RecordStore
  private var observers: [(sight: Sight, task: Task<Void, Never>)] = []
  private var cancelled: [Sight] = []
  private var shown: [Shown] = []
  private var dropped: [Dropped] = []
  private let running = Mutex(0)
  private var isClosed = false
  private var number = 0
  private var pages = 0

  init(seed: UInt64) async throws {
    random = SeededRandom(seed: seed)
    executor = SteppingExecutor(SeededRandom(seed: seed ^ 0x1_0000))
    var configuration = SyncConfiguration(feed)
    configuration.isAutomatic = false
    let system = SystemEnvironment(
      fileSystem: SimulatedDisk(), clock: SimulatedClock(), random: SeededRandom(seed: seed ^ 0x2_0000),
      taskExecutor: executor)
    store = try await RecordStore.open(
      at: "/store", syncing: configuration, options: pageOptions(),
      environment: StoreEnvironment(system, isSimulated: true))
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  private func page(_ name: String) -> Page {
    number += 1
    var page = Page(name, below)
    page.stars = number
    return page
  }

  /// Lets some jobs of both kinds run, and views be drawn.
  private func turn(_ jobs: Int) async {
    for _ in 0..<jobs {
      if below(3) == 0 { await Task.yield() } else { executor.step() }
      if below(2) == 0 { for view in shown { view.draw() } }
    }
  }

  private func run(_ body: @escaping @Sendable () async throws -> Void) {
    running.withLock { $0 += 1 }
    Task(executorPreference: executor) { [weak self] in
      do { try await body() } catch let error as StrandlineError where error.code == .closed {
      } catch { Issue.record("\(error)") }
      self?.running.withLock { $0 -= 1 }
    }
  }

  private func observe(_ question: Question) {
    let (sight, store) = (Sight(question), store)
    let task = Task(executorPreference: executor) {
      do {
        switch question {
        case .list:
          for try await pages in store.observe(Page.self, where: #Predicate { $0.stars > 0 }) {
            sight.see(Question.sum(pages))
          }
        case .count: for try await count in store.observeCount(Page.self) { sight.see(count) }
        case .one: for try await page in store.observe(Page.self, id: "p0") { sight.see(Question.stars(page)) }
        }
      } catch { Issue.record("\(error)") }
      sight.isOver.withLock { $0 = true }
    }
    observers.append((sight, task))
  }

  func act() async throws {
    switch below(isClosed ? 2 : 12) {
    case 0 where !observers.isEmpty:
      let (sight, task) = observers.remove(at: below(observers.count))
      task.cancel()
      cancelled.append(sight)
    case 1 where !shown.isEmpty: dropped.append(Dropped(object: shown.remove(at: below(shown.count)).object))
    case 2, 3: observe(Question.allCases[below(3)])
    case 4, 5: shown.append(Shown(Question.allCases[below(3)], store))
    case 6:
      for _ in 0...below(3) {
        let page = page("s\(pages)")
        let encoded = try RecordEncoder.encode(page)
        var record = Record(type: Page.recordType, id: page.recordID)
        for field in encoded.fields { record[field.name] = field.value }
        record.parent = encoded.parent ?? nil
        feed.add(record)
        pages += 1
      }
      run { [store] in try await store.sync() }
    case 7 where below(6) == 0:
      isClosed = true
      run { [store] in try await store.close() }
    default:
      if isClosed { break }
      let page = page("p\(below(3))")
      try store.writeBlocking { try $0.save(page) }
    }
    await turn(below(8))
  }

  /// Lets everything run until a condition is met.
  private func wait(_ what: String, until isMet: () throws -> Bool) async throws {
    for _ in 0..<5_000 {
      if try isMet() { return }
      await turn(20)
    }
    throw Unmet(description: what)
  }

  func end() async throws {
    if !isClosed {
      try await wait("the sync ends") { running.withLock { $0 } == 0 }
      try await wait("each sees the store's answer") {
        for view in shown { view.draw() }
        return try (observers.map(\.sight) + shown.map(\.sight)).allSatisfy { try $0.last == $0.question.answer(store) }
      }
      run { [store] in try await store.close() }
    }
    try await wait("everything ends") {
      running.withLock { $0 } == 0 && !shown.contains { $0.isLive }
        && (observers.map(\.sight) + cancelled).allSatisfy { $0.isOver.withLock { $0 } }
        && dropped.allSatisfy { $0.object == nil }
    }
    for sight in observers.map(\.sight) + cancelled + shown.map(\.sight) {
      #expect(sight.isOrdered, "\(sight.question): \(sight.seen.withLock { $0 })")
    }
    for view in shown { #expect(view.error == nil) }
  }

  var sights: Int { observers.count + cancelled.count + shown.count }
}

@MainActor @Suite(.timeLimit(.minutes(30)))
struct LiveInterleavingTests {
  private static let variable = "STRANDLINE_LIVE_SEED"
  private static let seeds: [UInt64] =
    ProcessEnvironment.value(of: variable).flatMap { UInt64($0) }.map { [$0] } ?? Campaign.seeds(1...1_000, every: 5)

  @Test func `in any order of writes, pages, cancellations and the end, the last answer seen is the store's`()
    async throws
  {
    var sights = 0
    for seed in Self.seeds {
      do {
        let stage = try await Stage(seed: seed)
        for _ in 0..<20 { try await stage.act() }
        try await stage.end()
        sights += stage.sights
      } catch {
        Issue.record("never: \(error); again with: \(Self.variable)=\(seed) swift test --filter LiveInterleavingTests")
        return
      }
    }
    print("observers and views: \(sights) in \(Self.seeds.count) interleavings")
    #expect(sights > Self.seeds.count)
  }
}
