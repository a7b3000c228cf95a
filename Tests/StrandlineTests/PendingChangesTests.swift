// What a store says of what it owes: record by record, with what each waits for.

import Strandline
import StrandlineSyncProofs
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `What a store says of what it owes` {
  private func obstacles(_ device: Device) async throws -> [String: String] {
    let store = try await device.open()
    var found: [String: String] = [:]
    var last = LSN.zero
    repeat {
      let page = try store.pendingChanges(after: last, limit: 2)
      for change in page.changes {
        #expect(try store.pendingChange(of: change.id) == change)
        found[change.id.name] = change.obstacle.map { "\($0)" } ?? "-"
      }
      guard let next = page.next else { break }
      last = next
    } while true
    return found
  }

  @Test func `names what a save and what a deletion wait for`() async throws {
    let a = try Fleet().device("a")
    let cloud = try await a.openRefusing()
    try await a.write("old")
    try await a.write("moved", parent: "old")
    #expect(try await a.run() == nil)
    cloud.refuse { script in
      for name in ["moved", "parent"] { script.items[name] = [CloudError(.badRequest, reason: "wrong")] }
    }
    // Moved away from the record that is then deleted; the server hears of neither.
    try await a.open().write { tx in
      var moved = try #require(try tx.record(RecordID("moved")))
      moved.parent = nil
      try tx.save(moved)
      try tx.delete(RecordID("old"))
    }
    try await a.write("parent")
    try await a.write("child", ["of": link("parent")])
    try await a.write("free")
    #expect(
      try await obstacles(a) == [
        "moved": "-", "old": "-", "parent": "-", "child": "refers to Main/parent", "free": "-",
      ])
    _ = try await a.run()
    #expect(
      try await obstacles(a) == [
        "moved": "held: BAD_REQUEST", "old": "is referred to by Main/moved, which cannot go",
        "parent": "held: BAD_REQUEST", "child": "refers to Main/parent",
      ])
    try await a.open().releaseHolds(of: [RecordID("moved"), RecordID("parent")])
    #expect(try await a.run() == nil)
    #expect(try await obstacles(a).isEmpty)
    #expect(try await a.owesNothing)
  }

  @Test func `of several missing targets, names one that is still owed`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await a.openRefusing()
    try await a.write("gone")
    #expect(try await a.run() == nil)
    try await b.exchange()
    try await b.remove("gone")
    try await b.exchange()
    cloud.refuse { script in script.items["refused"] = [CloudError(.badRequest, reason: "wrong")] }
    try await a.write("refused")
    _ = try await a.run()
    try await a.write("child", ["of": link("refused")], parent: "gone")
    _ = try await a.run()
    #expect(try await obstacles(a) == ["refused": "held: BAD_REQUEST", "child": "refers to Main/refused"])
  }
}
