// Goal: an app's undo manager takes a transaction back and does it again, as often as the user asks, and the app is told what
// stays. Method: the menu's undo and redo by hand, over the stand-in.

import Foundation
import Strandline
import StrandlineSimulation
import StrandlineTesting
import StrandlineUI
import SwiftUI
import Testing

@MainActor @Suite(.timeLimit(.minutes(30)))
struct UndoManagerTests {
  /// What the app is told of each undo and redo.
  private func makeEnds() -> (
    AsyncStream<Result<Undone, any Error>>, AsyncStream<Result<Undone, any Error>>.Continuation
  ) {
    AsyncStream.makeStream(of: Result<Undone, any Error>.self)
  }

  private func open() async throws -> RecordStore {
    let store = try await RecordStore.open(at: "/s", environment: .simulated(disk: SimulatedDisk(), seed: 1))
    try await store.write { try $0.save(Shell(id: "s", kind: "cockle", size: 1)) }
    return store
  }

  @Test func `undo and redo take a transaction back, and do it again`() async throws {
    let store = try await open()
    let manager = UndoManager()
    let (ends, end) = makeEnds()
    let receipt = try await store.update(Shell.self, id: "s") { $0.size = 2 }.receipt
    manager.registerUndo(of: receipt, in: store) { end.yield($0) }
    var told = ends.makeAsyncIterator()
    for _ in 0..<3 {
      #expect(manager.canUndo && !manager.canRedo)
      manager.undo()
      #expect(try await told.next()?.get().kept.isEmpty == true)
      #expect(try store.fetch(Shell.self, id: "s")?.size == 1)
      #expect(!manager.canUndo && manager.canRedo)
      manager.redo()
      #expect(try await told.next()?.get().kept.isEmpty == true)
      #expect(try store.fetch(Shell.self, id: "s")?.size == 2)
    }
  }

  @Test func `a redo that is asked for at once waits for the undo`() async throws {
    let store = try await open()
    let manager = UndoManager()
    let (ends, end) = makeEnds()
    let receipt = try await store.write { try $0.delete(Shell.self, id: "s") }
    manager.registerUndo(of: receipt, in: store) { end.yield($0) }
    var told = ends.makeAsyncIterator()
    manager.undo()
    manager.redo()
    for _ in 0..<2 { _ = try await told.next()?.get() }
    #expect(try store.fetch(Shell.self, id: "s") == nil)
    manager.undo()
    _ = try await told.next()?.get()
    #expect(try store.fetch(Shell.self, id: "s")?.kind == "cockle")
  }

  @Test func `the app is told what stays, and why an undo fails`() async throws {
    let store = try await open()
    let manager = UndoManager()
    let (ends, end) = makeEnds()
    var told = ends.makeAsyncIterator()
    let receipt = try await store.update(Shell.self, id: "s") { $0.size = 2 }.receipt
    manager.registerUndo(of: receipt, in: store) { end.yield($0) }
    try await store.update(Shell.self, id: "s") { $0.size = 3 }
    manager.undo()
    #expect(try await told.next()?.get().kept.map(\.field) == ["size"])
    try await store.close()
    manager.redo()
    let failure = await told.next()
    #expect(throws: StrandlineError.self) { try failure?.get() }
  }
}
