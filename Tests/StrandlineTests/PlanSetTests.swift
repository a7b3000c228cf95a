// Goal: records that go together go as soon as all of them can, whichever of their waits ends last and whatever needs them in turn; and
// what cannot go keeps nothing else of a refused type back. Method: as in PlanTests.swift. The log says which records are a set.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

extension LogLines {
  /// Puts records into one set, as a transaction in an atomic zone does.
  fileprivate static func joined(_ names: String..., set: UInt64 = 1_000) -> [Event] {
    names.map { .joined(Joined(id: RecordID($0, zone: zone), set: LSN(set))) }
  }

  /// A save that needs several records, in this order.
  fileprivate static func saved(_ name: String, needs targets: [String]) -> Event {
    var version = Version(type: "Note", fields: ["title": .string(name)])
    for (number, target) in targets.enumerated() {
      version.fields["above\(number)"] = .reference(Reference(target, action: .validate))
    }
    let time = HybridTime(milliseconds: 1_000)
    version.stamp.births = [Birth(time: time, writer: 5)]
    let dirty = Dictionary(uniqueKeysWithValues: version.names.map { ($0, LSN.zero) })
    return .saved(
      Saved(
        id: RecordID(name, zone: zone), type: "Note", births: version.stamp.births, base: .zero, time: time,
        editCount: 1, tenure: 1, isCreation: true, content: EncodedContent(version, dirty: dirty)))
  }
}

extension SyncAnswer {
  /// These records of an atomic request were refused, and the others because of them.
  fileprivate static func refusedTogether(
    _ upload: UploadRequest, _ codes: [String: CloudError.Code]
  ) -> SyncAnswer {
    var results: [CloudName: CloudResult] = [:]
    for one in upload.uploads {
      let code = codes[one.id.name] ?? .atomicError
      results[one.id.key] = .failed(CloudError(code, reason: "refused"), serverRecord: nil)
    }
    return .records(results)
  }
}

extension `The plan of a cycle` {
  /// A refusal makes the plan ask what has changed; then nothing is left to do.
  private func expectEndAfterRefusal(
    _ driver: inout PlanDriver, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let request = try driver.request()
    guard case .changedZones = request else { throw PlanDriver.Unexpected(words: request.words) }
    try driver.answer(request, .changed(token: "list \(driver.facts.durableLSN)"))
    try expectEnd(&driver, sourceLocation: sourceLocation)
  }

  /// A plan with an edit of "t", which the server has, that is held until a person or an edit ends that.
  private func holdingEdit() throws -> PlanDriver {
    var driver = try edited(["t"])
    let edit = try expectUpload(&driver, ["t"])
    try driver.answer(edit.request, .refused(edit.upload, .badRequest))
    try expectEndAfterRefusal(&driver)
    return driver
  }

  // MARK: Waits within a set

  @Test(arguments: [["x", "mate"], ["mate", "x"]])
  func `a set waits for what nobody brings, and goes when only another one of it is missing`(_ needs: [String]) throws {
    var driver = try asked(
      Lines.seen() + [Lines.saved("child", needs: needs), Lines.saved("mate")] + Lines.joined("child", "mate"))
    let first = try expectUpload(&driver, ["mate", "child"])
    #expect(first.upload.isAtomic)
    try driver.answer(first.request, .refusedTogether(first.upload, ["child": .validatingReferenceError]))
    // Once is enough to know.
    try expectEndAfterRefusal(&driver)
    #expect(driver.plan.queue.wait(of: id("child")) == .target(id("x")))
    try driver.facts.append([Lines.saved("x")])
    later(&driver, milliseconds: 0)
    let x = try expectUpload(&driver, ["x"])
    try driver.answer(x.request, .taken(x.upload))
    let set = try expectUpload(&driver, ["mate", "child"])
    try driver.answer(set.request, .taken(set.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `a set goes again when the backoff of one of it is over that is held for another one of it`() throws {
    var driver = try holdingEdit()
    try driver.facts.append(
      [Lines.saved("child", needs: ["mate", "t"]), Lines.saved("mate")] + Lines.joined("child", "mate"))
    later(&driver, milliseconds: 0)
    for number in 0..<3 {
      let set = try expectUpload(&driver, ["mate", "child"])
      try driver.answer(set.request, .refusedTogether(set.upload, ["child": .validatingReferenceError]))
      try driver.answer(driver.request(), .changed(token: "refused \(number)"))
    }
    #expect(driver.facts.held(id("child")) != nil)
    _ = try wait(&driver)
    let again = try expectUpload(&driver, ["mate", "child"])
    try driver.answer(again.request, .taken(again.upload))
    try expectEnd(&driver)
  }

  @Test func `a set goes again when the backoff of what it needs is over, and that is held for one of it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("r", needs: "m")])
    let alone = try expectUpload(&driver, ["r"])
    try driver.answer(alone.request, .refused(alone.upload, .validatingReferenceError))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append([Lines.saved("m", needs: "r"), Lines.saved("other")] + Lines.joined("m", "other"))
    later(&driver, milliseconds: 0)
    for number in 0..<RecordMemory.waitsAt {
      let set = try expectUpload(&driver, ["m", "r", "other"])
      try driver.answer(set.request, .refusedTogether(set.upload, ["r": .validatingReferenceError]))
      try driver.answer(driver.request(), .changed(token: "refused \(number)"))
    }
    _ = try wait(&driver)
    _ = try expectUpload(&driver, ["m", "r", "other"])
  }

  // MARK: Circles through a set

  @Test func `a set goes with the record that one of it waits for, and that needs it in turn`() throws {
    var driver = try asked(
      Lines.seen() + [Lines.saved("r0", needs: "r1"), Lines.saved("r1", needs: "r0"), Lines.saved("r2")]
        + Lines.joined("r1", "r2"))
    let first = try expectUpload(&driver, ["r1", "r0", "r2"])
    try driver.answer(
      first.request, .refusedTogether(first.upload, ["r0": .exists, "r1": .validatingReferenceError]))
    // The server has no such record after all.
    try driver.answer(expectLookup(&driver, ["r0"]), .found([], tag: "a", of: ["r0"]))
    let again = try expectUpload(&driver, ["r1", "r0", "r2"])
    try driver.answer(again.request, .taken(again.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `a set goes with what one of it was held for, if the app writes that later and it needs the set`() throws {
    var driver = try asked(
      Lines.seen() + [Lines.saved("child", needs: "x"), Lines.saved("mate")] + Lines.joined("child", "mate"))
    let first = try expectUpload(&driver, ["child", "mate"])
    try driver.answer(first.request, .refusedTogether(first.upload, ["child": .validatingReferenceError]))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append([Lines.saved("x", needs: "mate")])
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["mate", "x", "child"])
  }

  @Test func `a set goes though each of it is held for another record, as a new process finds it`() throws {
    var driver = try asked(Lines.seen())
    try driver.facts.append(
      [Lines.saved("a", needs: "r"), Lines.saved("b", needs: "a")] + Lines.joined("a", "b")
        + [Lines.saved("r", needs: "b")])
    for name in ["a", "b"] {
      let newest = try #require(driver.facts.entry(id(name))?.pending?.newest)
      try driver.facts.append([
        .held(
          Held(
            id: id(name), direction: .upload, lsn: newest, code: CloudError.Code.validatingReferenceError.rawValue,
            words: "refused", attempts: 1, wallMilliseconds: driver.facts.now.wall))
      ])
    }
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["a", "b", "r"])
  }

  @Test func `a set takes along what was held for one of it`() throws {
    var driver = try asked(Lines.seen() + [Lines.saved("r", needs: "m")])
    let alone = try expectUpload(&driver, ["r"])
    try driver.answer(alone.request, .refused(alone.upload, .validatingReferenceError))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append([Lines.saved("m", needs: "r"), Lines.saved("other")] + Lines.joined("m", "other"))
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["m", "r", "other"])
  }

  @Test func `a set takes along the edit that one of it waits for, and that needs it in turn`() throws {
    var driver = try holdingEdit()
    try driver.facts.append(
      [Lines.saved("child", needs: "t"), Lines.saved("mate")] + Lines.joined("child", "mate"))
    later(&driver, milliseconds: 0)
    let first = try expectUpload(&driver, ["child", "mate"])
    try driver.answer(first.request, .refusedTogether(first.upload, ["child": .validatingReferenceError]))
    try expectEndAfterRefusal(&driver)
    #expect(driver.plan.queue.wait(of: id("child")) == .target(id("t")))
    try driver.facts.append([Lines.saved("t", base: 1, needs: "child")])
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["child", "t", "mate"])
  }

  // MARK: Circles of single records

  @Test(arguments: [false, true])
  func `a record that was held for another one goes with it, though that one needs it`(_ isRelaunched: Bool) throws {
    var driver = try asked(Lines.seen() + [Lines.saved("p", needs: "c")])
    let alone = try expectUpload(&driver, ["p"])
    try driver.answer(alone.request, .refused(alone.upload, .validatingReferenceError))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append([Lines.saved("c", needs: "p")])
    if isRelaunched {
      driver.relaunch()
      driver.begin { $0.isUserInitiated = false }
      try driver.answer(driver.request(), .user("user"))
      try driver.answer(driver.request(), .changed(token: "relaunched"))
    } else {
      later(&driver, milliseconds: 0)
    }
    let both = try expectUpload(&driver, ["c", "p"])
    try driver.answer(both.request, .taken(both.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `a record that was held for an edit goes with the next edit, though that one needs it`() throws {
    var driver = try holdingEdit()
    try driver.facts.append([Lines.saved("child", needs: "t")])
    later(&driver, milliseconds: 0)
    let alone = try expectUpload(&driver, ["child"])
    try driver.answer(alone.request, .refused(alone.upload, .validatingReferenceError))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append([Lines.saved("t", base: 1, needs: "child")])
    later(&driver, milliseconds: 0)
    _ = try expectUpload(&driver, ["t", "child"])
  }

  // MARK: Refused types

  /// A plan with a held record "held", then these events, and three records of a type that is refused.
  private func refusingKind(_ events: [Event]) throws -> PlanDriver {
    var driver = try asked(Lines.seen() + [Lines.saved("held")])
    let held = try expectUpload(&driver, ["held"])
    try driver.answer(held.request, .refused(held.upload, .badRequest))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append(events + ["k1", "k2", "k3"].map { Lines.saved($0, type: "Kind") })
    later(&driver, milliseconds: 0)
    let kinds = try expectUpload(&driver, ["k1", "k2", "k3"])
    try driver.answer(kinds.request, .refused(kinds.upload, .accessDenied))
    #expect(driver.plan.queue.halts.types.count == 1)
    try driver.answer(driver.request(), .changed(token: "kinds"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    return driver
  }

  @Test func `of a refused type another record is tried if a set that has one of it cannot go`() throws {
    var driver = try refusingKind([Lines.saved("s", type: "Kind")] + Lines.joined("held", "s"))
    later(&driver, milliseconds: 300_000)
    let probe = try expectUpload(&driver, ["k1"])
    try driver.answer(probe.request, .taken(probe.upload))
    _ = try expectUpload(&driver, ["k2", "k3"])
  }

  @Test func `of a refused type another record is tried if one that needs what is held cannot go`() throws {
    var driver = try refusingKind([Lines.saved("a", type: "Kind", needs: "held")])
    later(&driver, milliseconds: 300_000)
    _ = try expectUpload(&driver, ["k1"])
  }

  @Test func `of a refused type a set is tried with the whole of another one that it needs`() throws {
    var driver = try refusingKind([])
    let first = [Lines.saved("s1", type: "Kind", needs: "t1"), Lines.saved("s2", type: "Kind")]
    let second = ["t1", "t2"].map { Lines.saved($0, type: "Kind") }
    try driver.facts.append(first + second + Lines.joined("s1", "s2") + Lines.joined("t1", "t2", set: 2_000))
    later(&driver, milliseconds: 300_000)
    let probe = try expectUpload(&driver, ["t1", "s1", "s2", "t2"])
    #expect(probe.upload.isAtomic)
    try driver.answer(probe.request, .taken(probe.upload))
    _ = try expectUpload(&driver, ["k1", "k2", "k3"])
  }

  /// Sends these, and the server refuses all of these types: they are halted.
  private func refusing(_ types: Set<String>, _ events: [Event]) throws -> PlanDriver {
    var driver = try asked(Lines.seen() + events)
    let request = try driver.request()
    let upload = try driver.leave(request)
    let refused = upload.uploads.filter { types.contains($0.type) }.map { ($0.id.name, CloudError.Code.accessDenied) }
    try driver.answer(request, .refusedTogether(upload, Dictionary(uniqueKeysWithValues: refused)))
    #expect(Set(driver.plan.queue.halts.types.keys.map(\.type)) == types)
    try driver.answer(driver.request(), .changed(token: "refused"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    driver.begin { $0.asksForChanges = false }
    return driver
  }

  @Test(arguments: [["Kind"], ["Kind", "Note"]], 0..<3)
  func `of a refused type what another one of it needs over one of another type is tried with it`(
    _ types: Set<String>, whichIsFirst first: Int
  ) throws {
    // Only whole circles can go.
    let events = (0..<3).flatMap { number in
      let circle = [
        Lines.saved("a\(number)", type: "Kind", needs: "b\(number)"), Lines.saved("b\(number)", needs: "c\(number)"),
        Lines.saved("c\(number)", type: "Kind", needs: "a\(number)"),
      ]
      return circle[first...] + circle[..<first]
    }
    var driver = try refusing(types, events)
    let probe = try expectUpload(&driver, isSorted: true, ["a0", "b0", "c0"])
    try driver.answer(probe.request, .taken(probe.upload))
    let rest = try expectUpload(&driver, isSorted: true, ["a1", "a2", "b1", "b2", "c1", "c2"])
    try driver.answer(rest.request, .taken(rest.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `of two refused types one of each is tried with the other, if they need each other`() throws {
    let events = (0..<3).flatMap { number in
      [
        Lines.saved("a\(number)", type: "Kind", needs: "b\(number)"),
        Lines.saved("b\(number)", type: "Sort", needs: "a\(number)"),
      ]
    }
    var driver = try refusing(["Kind", "Sort"], events)
    let probe = try expectUpload(&driver, ["a0", "b0"])
    try driver.answer(probe.request, .taken(probe.upload))
    let rest = try expectUpload(&driver, ["a1", "b1", "a2", "b2"])
    try driver.answer(rest.request, .taken(rest.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  @Test func `of a refused type one set is tried at a time, whatever it is refused for`() throws {
    var driver = try refusingKind([])
    for number in 1...3 {
      let names = ["a\(number)", "b\(number)"]
      try driver.facts.append(
        names.map { Lines.saved($0, type: "Kind") } + Lines.joined(names[0], names[1], set: 1_000 + UInt64(number)))
    }
    later(&driver, milliseconds: 300_000)
    let probe = try expectUpload(&driver, ["a1", "b1"])
    try driver.answer(probe.request, .refusedTogether(probe.upload, ["a1": .badRequest]))
    try driver.answer(driver.request(), .changed(token: "probe"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
  }

  @Test func `of a refused type nothing goes with a set because what it waits for would go along`() throws {
    var driver = try refusingKind(
      [Lines.saved("child", type: "Kind", needs: "p"), Lines.saved("mate")] + Lines.joined("child", "mate"))
    later(&driver, milliseconds: 300_000)
    let probe = try expectUpload(&driver, ["child", "mate"])
    try driver.answer(probe.request, .refusedTogether(probe.upload, ["child": .validatingReferenceError]))
    try driver.answer(driver.request(), .changed(token: "probe"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    #expect(driver.plan.queue.wait(of: id("child")) == .target(id("p")))
    // It needs the set in turn, but the type's next try has yet to come.
    try driver.facts.append([Lines.saved("p", needs: "child")])
    later(&driver, milliseconds: 0)
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    later(&driver, milliseconds: 600_000)
    _ = try expectUpload(&driver, ["child", "p", "mate"])
  }

  @Test func `of a refused type a set is tried after the lookup that a conflict of one of it has asked for`() throws {
    var driver = try asked(Lines.seen() + ["child", "mate"].map { Lines.fetched($0) })
    let type = UploadHalts.HaltedType(zone: zone, type: "Note")
    try driver.facts.append(["child", "mate"].map { Lines.saved($0, base: 1) } + Lines.joined("child", "mate"))
    driver.plan.queue.refuse(tag: "a", of: id("child"))
    driver.plan.queue.halt(
      type, [], because: CloudError(.accessDenied, reason: "no"), at: driver.facts.now.nanoseconds)
    driver.begin { $0.asksForChanges = false }
    try driver.answer(expectLookup(&driver, ["child"]), .found(["child"], tag: "a"))
    try driver.answer(expectPage(&driver, from: "t0"), .page("t1"))
    let set = try expectUpload(&driver, ["child", "mate"])
    try driver.answer(set.request, .taken(set.upload))
    try expectEnd(&driver)
    #expect(driver.plan.remembered == [:])
  }

  /// Lets the server take everything, until nothing is left to do.
  private func takeAll(_ driver: inout PlanDriver) throws {
    for _ in 0..<40 {
      switch try driver.next() {
      case .wait(let wait): driver.facts.advance(milliseconds: wait.milliseconds)
      case .done: return
      case .ask(let request):
        switch request {
        case .modify(let upload):
          _ = try driver.leave(request)
          try driver.answer(request, .taken(upload))
        case .changedZones: try driver.answer(request, .changed(token: "list \(driver.facts.durableLSN)"))
        default: try driver.answer(request, .page("page \(driver.facts.durableLSN)"))
        }
      case let next: throw PlanDriver.Unexpected(words: "\(next)")
      }
    }
    throw PlanDriver.Unexpected(words: "no end")
  }

  @Test func `a set of a refused type goes although one of it is held for a target that has come since`() throws {
    var driver = try asked(
      Lines.seen() + [Lines.saved("child", type: "Kind", needs: "x"), Lines.saved("mate")]
        + Lines.joined("child", "mate"))
    let request = try driver.request()
    guard case .modify(let set) = request else { throw PlanDriver.Unexpected(words: request.words) }
    _ = try driver.leave(request)
    try driver.answer(request, .refusedTogether(set, ["child": .validatingReferenceError]))
    try expectEndAfterRefusal(&driver)
    try driver.facts.append(["k1", "k2", "k3"].map { Lines.saved($0, type: "Kind") })
    later(&driver, milliseconds: 0)
    let kinds = try expectUpload(&driver, ["k1", "k2", "k3"])
    try driver.answer(kinds.request, .refused(kinds.upload, .accessDenied))
    try driver.answer(driver.request(), .changed(token: "kinds"))
    #expect(throws: RefusedCycle.self) { _ = try driver.next() }
    try driver.facts.append([Lines.saved("x")])
    later(&driver, milliseconds: 300_000)
    try takeAll(&driver)
    for name in ["x", "child", "mate", "k1"] {
      #expect(try driver.facts.entry(id(name))?.pending == nil, "\(name)")
    }
  }
}
