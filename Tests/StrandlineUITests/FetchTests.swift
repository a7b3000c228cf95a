// Goal: a view's list is the store's, follows its changes, and ends with the view or another store. Method: what SwiftUI does to
// a property of a view, by hand, over the stand-in.

import Foundation
import Observation
import Strandline
import StrandlineSimulation
import StrandlineTesting
import StrandlineUI
import SwiftUI
import Testing

struct Shell: SyncRecord {
  var id: String
  var kind: String
  var size: Int
}

@MainActor
private struct ShellList {
  @Fetch(where: #Predicate<Shell> { $0.size > 1 }, sortedBy: .descending(\.size)) var shells

  var ids: [String] { shells.map(\.id) }
  var live: Live<TypedValues<Shell>>? { $shells }

  /// What SwiftUI does before it draws.
  func draw() { _shells.update() }
}

@MainActor @Suite(.serialized, .timeLimit(.minutes(30)))
struct FetchTests {
  private func wait(until isMet: @MainActor () -> Bool) async {
    while true {
      let (changes, continuation) = AsyncStream.makeStream(of: Void.self)
      let isDone = withObservationTracking(isMet) { continuation.yield() }
      if isDone { return }
      for await _ in changes { break }
    }
  }

  private func open(_ seed: UInt64) async throws -> RecordStore {
    try await RecordStore.open(at: "/s\(seed)", environment: .simulated(disk: SimulatedDisk(), seed: seed))
  }

  @Test func `a list follows the store of its environment`() async throws {
    let (first, second) = (try await open(1), try await open(2))
    try await first.write { tx in
      for size in 1...3 { try tx.save(Shell(id: "s\(size)", kind: "cockle", size: size)) }
    }
    let list = ShellList()
    list.draw()
    #expect(list.ids.isEmpty && list.live == nil)
    EnvironmentValues.current.recordStore = first
    list.draw()
    await wait { list.ids == ["s3", "s2"] }
    let live = list.live
    list.draw()
    #expect(list.live === live)
    try await first.write { try $0.update(Shell.self, id: "s1") { $0.size = 9 } }
    await wait { list.ids == ["s1", "s3", "s2"] }
    EnvironmentValues.current.recordStore = second
    list.draw()
    await wait { list.live?.value?.isEmpty == true }
    #expect(list.live !== live)
    EnvironmentValues.current.recordStore = nil
    list.draw()
    #expect(list.live == nil && list.ids.isEmpty)
    try await first.close()
    try await second.close()
  }
}
