// Goal: a version that has seen the one here is newer, whatever its times say. Method: the server's clock goes back between two
// versions, as that of another node may be behind; then what a lookup, a list and a comparison show has to end up here.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

extension Fleet {
  /// The server's clock goes back, as where the next request meets another node.
  fileprivate func goBack(_ milliseconds: Int64 = 50) {
    serverClock.setWall(milliseconds: serverClock.wallMilliseconds() - milliseconds)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A version whose time is before that of the one here` {
  @Test(arguments: [true, false])
  func `is taken where this device has begun a new life on the old one`(_ isStamped: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "old"])
    try await exchange(a, b)
    fleet.goBack()
    try await fleet.edit("n", "edited", by: b, isStamped: isStamped)
    try await a.open().write { tx in
      try tx.delete(RecordID("n"))
      try tx.create(Record(type: "Note", id: RecordID("n"), fields: ["title": "new"]))
    }
    try await a.exchange()
    #expect(try await a.open().status().unsettled == 0)
    #expect(try await a.open().status().held.isEmpty)
    try await exchange(b, a)
    #expect(try await b.value("n") == "new")
    try await expectAgreement(a, b)
  }

  @Test(arguments: [true, false])
  func `is taken where the first fetch lists it`(_ isStamped: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.open(firstFetch: .recentFirst(types: [], count: 0))
    try await a.put("n", ["title": "old"])
    try await a.sync(.pushOnly)
    try await b.exchange()
    fleet.goBack()
    try await fleet.edit("n", "edited", by: b, isStamped: isStamped)
    for _ in 0..<2 { try await exchange(a, b) }
    #expect(try await a.value("n") == "edited")
    try await expectAgreement(a, b)
    #expect(try await a.open().engine.verify(.main).isEqual)
  }

  @Test(arguments: [true, false])
  func `is mended by a comparison that finds it`(_ isStamped: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "old"])
    try await exchange(a, b)
    let cloud = try await b.openRefusing()
    try await b.exchange()
    fleet.goBack()
    try await fleet.edit("n", "edited", by: a, isStamped: isStamped)
    cloud.refuse { $0.hidden = ["n"] }
    try await b.exchange()
    cloud.refuse { $0.hidden = [] }
    try await b.exchange()
    #expect(try await b.value("n") == "old", "the feed is past it")
    let found = try await b.open().engine.verify(.main)
    #expect(found.isEqual && found.mended == ["n"], "\(found)")
    #expect(try await b.value("n") == "edited")
    try await b.verify()
  }
}

extension Fleet {
  /// Another device edits a note, or another tool replaces it and drops the stamp.
  fileprivate func edit(_ name: String, _ title: FieldValue, by device: Device, isStamped: Bool) async throws {
    guard isStamped else {
      let replace = CloudOperation(.forceReplace, name: name, type: "Note", fields: ["title": .some(title)])
      _ = try await device.web().modify([replace], in: .main, atomic: false)
      return
    }
    try await device.put(name, ["title": title])
    try await device.exchange()
  }
}
