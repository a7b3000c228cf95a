// A tool that saves a record without our stamp takes the name of its life with it, and a device that meets the record only
// then gives the life another one. What the two sides do about the record has to meet as if they had the same. And a server whose
// clock was set back shows versions that look older than they are.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Testing

/// A record that device a has created, b knows by the life that a began, and c by the server's creation time alone; each device
/// has done something about it since, and nothing of that is sent.
private struct TwoNames {
  let (a, b, c): (Device, Device, Device)
  let fleet: Fleet

  /// - Parameter joined: instead, c has created it, b knows that life alone, and a has joined one of its own to it.
  init(joined: Bool = false) async throws {
    fleet = try Fleet()
    (a, b, c) = (fleet.device("a"), fleet.device("b"), fleet.device("c"))
    if joined {
      try await c.put("n", ["title": "one"])
      try await a.put("n", ["body": "of a"])
      pass()
      try await exchange(c, b, a)
      pass()
      try await fleet.tool(a, "n", ["place": "tool", Names.stampField: nil])
      pass()
      return
    }
    try await a.put("n", ["title": "one", "body": "one"])
    pass()
    try await exchange(a, b)
    pass()
    try await fleet.tool(a, "n", ["place": "tool", Names.stampField: nil])
    pass()
    try await c.exchange()
    #expect(try await c.value("n", "place") == "tool")
    pass()
  }

  func pass() { for clock in [a.clock, b.clock, c.clock, fleet.serverClock] { clock.advance(milliseconds: 5_000) } }

  /// All of them sync until nothing is left to say.
  func rest(_ devices: Device...) async throws {
    for _ in 0..<2 {
      for device in devices + [a, b, c] {
        try await device.exchange()
        pass()
      }
    }
    try await expectAgreement(a, b, c)
  }
}

extension Fleet {
  /// Another tool saves fields of a note, whatever the server has.
  fileprivate func tool(_ device: Device, _ name: String, _ fields: [String: FieldValue?]) async throws {
    let operation = CloudOperation(.forceUpdate, name: name, type: "Note", fields: fields)
    let results = try await device.web().modify([operation], in: .main, atomic: false)
    guard case .record? = results[name] else { throw CloudError(.badRequest, reason: "\(results)") }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A life whose name a tool has dropped` {
  /// Two devices have begun a life each, and the server has both in one record. One who met the record before they were joined, and
  /// again after a tool had dropped the stamp, knows one life alone, and drops the other one's name with its next edit.
  @Test func `ends with the record, also for the device that knows it`() async throws {
    let world = try await TwoNames(joined: true)
    let (a, b, c) = (world.a, world.b, world.c)
    try await a.put("n", ["title": "of a"])
    try await a.exchange(.pullOnly)
    world.pass()
    try await b.put("n", ["title": "of b"])
    try await b.exchange()
    world.pass()
    // The later title wins. Nothing is left that only this device has edited.
    try await a.exchange(.pullOnly)
    world.pass()
    try await c.exchange()
    try await c.remove("n")
    try await c.exchange()
    world.pass()
    try await world.rest(a)
    for device in [a, b, c] { #expect(try await !device.lives("n")) }
  }

  @Test(arguments: [true, false])
  func `keeps the edits of both who know it by two names`(_ isFirst: Bool) async throws {
    let world = try await TwoNames()
    try await world.b.put("n", ["title": "b"])
    try await world.c.put("n", ["body": "c"])
    try await isFirst ? world.rest(world.b, world.c) : world.rest(world.c, world.b)
    for device in [world.a, world.b, world.c] {
      #expect(try await device.value("n") == "b")
      #expect(try await device.value("n", "body") == "c")
      #expect(try await device.value("n", "place") == "tool")
    }
  }

  @Test(arguments: [true, false], [true, false])
  func `stays deleted by whoever deletes it, while the other edits it`(_ isFirst: Bool, _ cDeletes: Bool) async throws {
    let world = try await TwoNames()
    let (deleting, editing) = cDeletes ? (world.c, world.b) : (world.b, world.c)
    try await deleting.remove("n")
    try await editing.put("n", ["body": "edited"])
    try await isFirst ? world.rest(deleting, editing) : world.rest(editing, deleting)
    #expect(try await !world.a.lives("n"))
    #expect(try await !world.fleet.device("new").syncedLives("n"))
  }

  @Test func `is known as one by whoever meets it then`() async throws {
    let world = try await TwoNames()
    try await world.c.put("n", ["body": "c"])
    try await world.rest()
    let new = world.fleet.device("new")
    try await new.exchange()
    try await new.put("n", ["title": "new"])
    try await world.a.put("n", ["body": "a"])
    try await world.a.exchange()
    world.pass()
    try await new.exchange()
    try await world.rest()
    #expect(try await world.b.value("n") == "new")
    #expect(try await world.b.value("n", "body") == "a")
    try await expectAgreement(world.a, new)
  }

  @Test(arguments: [true, false])
  func `is not the one that took its place`(_ cDeletes: Bool) async throws {
    let world = try await TwoNames()
    // b's new one takes the place of the old one in the server's record, whose creation time stays.
    try await world.b.remove("n")
    try await world.b.create("n", ["title": "new"])
    if cDeletes { try await world.c.remove("n") } else { try await world.c.put("n", ["body": "of the old one"]) }
    try await world.rest(world.b, world.c)
    for device in [world.a, world.b, world.c] {
      #expect(try await device.value("n") == "new")
      #expect(try await device.value("n", "body") == nil)
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A life under the creation time of another one` {
  @Test func `that has taken its place is not taken for it when a tool has dropped that name, too`() async throws {
    let world = try await TwoNames()
    try await world.b.remove("n")
    try await world.b.create("n", ["title": "new"])
    try await world.rest(world.b, world.c)
    try await world.fleet.tool(world.a, "n", ["place": "tool again", Names.stampField: nil])
    world.pass()
    let new = world.fleet.device("new")
    try await new.exchange()
    try await new.put("n", ["body": "of a device that knows no names"])
    try await new.exchange()
    world.pass()
    try await world.rest(world.c, world.b)
    for device in [world.a, world.b, world.c] {
      #expect(try await device.value("n") == "new")
      #expect(try await device.value("n", "body") == "of a device that knows no names")
    }
  }

  @Test func `that a device began under the name of a tool's record does not die with that`() async throws {
    let fleet = try Fleet()
    let (c, d) = (fleet.device("c"), fleet.device("d"))
    try await d.put("n", ["title": "d"])
    for clock in [c.clock, d.clock, fleet.serverClock] { clock.advance(milliseconds: 60_000) }
    try await c.put("other", ["title": "makes the zone"])
    try await c.exchange()
    let made = CloudOperation(.create, name: "n", type: "Note", fields: ["place": .string("tool")])
    guard case .record? = try await c.web().modify([made], in: .main, atomic: false)["n"] else {
      Issue.record("the server refuses it")
      return
    }
    try await c.exchange()
    #expect(try await c.value("n", "place") == "tool")
    try await c.remove("n")
    try await d.exchange()
    #expect(try await d.value("n", "place") == "tool")
    for _ in 0..<3 { try await exchange(c, d) }
    for device in [c, d] { #expect(try await device.value("n") == "d") }
    try await expectAgreement(c, d)
  }
}

extension Device {
  /// Whether a note lives here, after a sync.
  fileprivate func syncedLives(_ name: String) async throws -> Bool {
    try await exchange()
    return try await lives(name)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A server whose clock was set back` {
  private static let day: Int64 = 86_400_000

  @Test(arguments: [true, false])
  func `has what a tool writes then shown here`(_ isEdited: Bool) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "one", "body": "one"])
    try await exchange(a, b)
    fleet.serverClock.setWall(milliseconds: fleet.serverClock.wallMilliseconds() - Self.day)
    try await fleet.tool(a, "n", ["title": "tool", Names.stampField: nil])
    if isEdited { try await a.put("n", ["body": "a"]) }
    for _ in 0..<3 {
      try await exchange(a, b)
      for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 60_000) }
    }
    for device in [a, b] {
      // A merge takes the value with the later stamp, and a tool's value has the server's time.
      #expect(try await device.value("n") == (isEdited ? "one" : "tool"))
      #expect(try await device.value("n", "body") == (isEdited ? "a" : "one"))
    }
    try await expectAgreement(a, b)
  }

  @Test func `has the record shown that was created anew then`() async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    try await a.put("n", ["title": "one"])
    try await exchange(a, b)
    fleet.serverClock.setWall(milliseconds: fleet.serverClock.wallMilliseconds() - Self.day)
    try await b.remove("n")
    try await b.exchange()
    try await b.create("n", ["title": "anew"])
    try await b.exchange()
    for _ in 0..<3 {
      try await exchange(a, b)
      for clock in [a.clock, b.clock, fleet.serverClock] { clock.advance(milliseconds: 60_000) }
    }
    #expect(try await a.value("n") == "anew")
    try await expectAgreement(a, b)
  }
}
