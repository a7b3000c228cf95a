// Goal: nothing is removed here because an answer did not show it, before the server was asked for it by name.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

private let missing = CloudError(.notFound, reason: "the record does not exist")

/// How the first page of a full fetch is wrong.
enum WrongPage: CaseIterable, Sendable {
  case empty, half, ends

  /// The page in this form; the first one that is shown after a token was refused is the second that is asked for.
  func shown(_ number: Int, _ page: ZonePage) -> ZonePage {
    guard number == 2 else { return page }
    var page = page
    switch self {
    case .empty: page.changes = []
    case .half: page.changes = page.changes.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
    case .ends: break
    }
    page.moreComing = false
    return page
  }
}

@Suite struct `The age of a zone` {
  @Test func `says of what it had that it was in it`() {
    let minute: Int64 = 60_000
    let (known, begun): (UInt64, Int64) = (20, 100 * minute)
    let table: [(age: ZoneAge, version: UInt64, modified: Int64?, isIncluded: Bool)] = [
      (ZoneAge(), 30, begun, false),
      (.fetched, 1, nil, true),
      // What came here after a record that is still there, or with it.
      (ZoneAge(lsn: LSN(rawValue: known)), 20, nil, true),
      (ZoneAge(lsn: LSN(rawValue: known)), 21, 0, true),
      (ZoneAge(lsn: LSN(rawValue: known)), 19, nil, false),
      // What the server had after it had created that one, by clocks that may differ.
      (ZoneAge(lsn: LSN(rawValue: known), milliseconds: begun), 19, begun + 10 * minute, true),
      (ZoneAge(lsn: LSN(rawValue: known), milliseconds: begun), 19, begun + 10 * minute - 1, false),
      (ZoneAge(lsn: LSN(rawValue: known), milliseconds: begun), 19, begun - 10 * minute, false),
      // The two were in one request.
      (ZoneAge(lsn: LSN(rawValue: known), milliseconds: begun), 19, begun, true),
      (ZoneAge(lsn: LSN(rawValue: known), milliseconds: begun), 19, nil, false),
    ]
    for row in table {
      #expect(row.age.includes(LSN(rawValue: row.version), row.modified) == row.isIncluded, "\(row)")
    }
    var age = ZoneAge(lsn: LSN(rawValue: 20), milliseconds: 100)
    age.add(LSN(rawValue: 30), 50)
    age.add(ZoneAge())
    #expect(age == ZoneAge(lsn: LSN(rawValue: 20), milliseconds: 50))
  }
}

@Suite struct `What follows from an absence` {
  /// What is known, by turns: living, not asked for, asked for in vain, gone, unread.
  private func known(
    _ living: Int, _ unasked: Int, _ untold: Int, _ gone: Int, unread: Int = 0, same: Bool,
    decided: ResyncSource? = nil, follows: Bool = false
  ) -> AbsenceKnowledge {
    var known = AbsenceKnowledge()
    (known.living, known.unasked, known.untold, known.gone, known.unread) = (living, unasked, untold, gone, unread)
    (known.isSameZone, known.decided, known.followsRemade) = (same, decided, follows)
    return known
  }

  @Test func `is decided by what is known alone`() {
    let table: [(AbsenceKnowledge, AbsenceKnowledge.Step)] = [
      (known(0, 0, 0, 0, same: false), .end),
      (known(100, 0, 0, 0, same: true), .end),
      (known(100, 0, 0, 0, same: false), .end),
      // The same zone: a person is asked before anything is looked up, and only about much.
      (known(100, 1, 0, 0, same: true), .lookUp),
      (known(100, 100, 0, 0, same: true), .lookUp),
      (known(101, 101, 0, 0, same: true), .ask),
      (known(1_000, 200, 0, 0, same: true), .lookUp),
      (known(1_000, 201, 0, 0, same: true), .ask),
      (known(1_000, 100, 50, 51, same: true), .ask),
      (known(100, 0, 0, 3, same: true), .remove),
      (known(100, 1, 0, 3, same: true), .lookUp),
      // What is proved goes though another answer is missing.
      (known(100, 0, 1, 3, same: true), .remove),
      (known(100, 0, 1, 0, same: true), .setAside),
      // Somebody has decided.
      (known(1_000, 900, 0, 0, same: false, decided: .server), .lookUp),
      (known(1_000, 900, 0, 0, same: true, decided: .here), .lookUp),
      (known(1_000, 0, 0, 900, same: false, decided: .server), .remove),
      (known(1_000, 0, 0, 900, same: false, decided: .here), .remove),
      (known(1_000, 0, 1, 0, same: false, decided: .server), .setAside),
      (known(1_000, 0, 1, 0, same: true, decided: .here), .wait),
      // Nothing says that it is the same one: the first lookups come before any question.
      (known(1, 1, 0, 0, same: false), .lookUp),
      (known(101, 101, 0, 0, same: false), .lookUp),
      (known(10_000, 10_000, 0, 0, same: false), .lookUp),
      (known(10_000, 9_800, 0, 200, same: false), .lose),
      (known(1, 0, 0, 1, same: false), .lose),
      (known(99, 0, 0, 99, same: false), .lose),
      (known(101, 0, 0, 101, same: false), .lose),
      (known(99, 0, 1, 98, same: false), .wait),
      (known(99, 0, 99, 0, same: false), .wait),
      (known(99, 0, 0, 99, same: false, follows: true), .remove),
      (known(400, 200, 0, 200, same: false, follows: true), .lookUp),
      (known(99, 0, 1, 98, same: false, follows: true), .wait),
      // Names of which nothing is here.
      (known(5, 0, 0, 0, unread: 1, same: true), .lookUp),
      (known(0, 0, 0, 0, unread: 1, same: false), .lookUp),
    ]
    for (known, step) in table { #expect(known.next() == step, "\(known)") }
  }

  @Test func `removes nothing that is not proved, and loses nothing that is known, whatever is known`() {
    for living in [0, 1, 99, 100, 101, 250, 1_000] {
      for unasked in [0, 1, 99, 200, 201] {
        for untold in [0, 1, 150] {
          for gone in [0, 1, 101, 200] {
            for (flags, decided) in [nil, ResyncSource.server, .here].flatMap({ side in (0..<4).map { ($0, side) } }) {
              let it = known(
                living + unasked + untold + gone, unasked, untold, gone, same: flags & 1 != 0, decided: decided,
                follows: flags & 2 != 0)
              let isSure = it.isSameZone || it.decided != nil
              let isRight =
                switch it.next() {
                case .remove: gone > 0 && unasked == 0 && (isSure || (it.followsRemade && untold == 0))
                case .lose: gone > 0 && !isSure && !it.followsRemade
                case .ask: unasked + untold + gone > 100 && it.decided == nil && it.isSameZone
                case .end: unasked + untold + gone == 0
                case .lookUp: unasked > 0
                case .setAside: untold > 0 && unasked == 0 && gone == 0 && isSure && it.decided != .here
                case .wait: untold > 0 && unasked == 0
                }
              #expect(isRight, "\(it): \(it.next())")
            }
          }
        }
      }
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What a full fetch does not list` {
  @Test(arguments: [1, 99, 101, 150], WrongPage.allCases)
  func `108: stays if the server has it, though the feed left it out`(_ count: Int, _ wrong: WrongPage) async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(count)
    try await a.put("n0", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.page = { wrong.shown($0, $1) }
      if wrong == .ends { script.pageMax = 60 }
    }
    try await b.exchange()
    #expect(try await b.value("n0") == "newer")
    #expect(try await b.livingNames() == noteNames(count))
    #expect(try await !b.mainZone().ghostsPossible)
    #expect(cloud.count(.lookup) == (count == 1 && wrong != .empty ? 0 : count <= 60 && wrong == .ends ? 0 : 1))
    try await expectAgreement(a, b)
  }

  /// As many as are looked up without a person's word, and more than one lookup holds.
  @Test func `goes and stays by two lookups, each of at most 200 names`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(1_200)
    let store = try await a.open()
    try await store.write { tx in for number in 0..<210 { try tx.delete(RecordID("n\(number)")) } }
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
      script.hidden = Set((210..<230).map { "n\($0)" })
    }
    try await b.exchange()
    #expect(cloud.count(.lookup) == 2, "\(cloud.count(.lookup))")
    #expect(try await b.livingNames() == noteNames(1_200).subtracting(noteNames(210)))
    #expect(try await !b.mainZone().ghostsPossible)
    try await expectAgreement(a, b)
  }

  @Test func `costs no request if it is nothing`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(30)
    try await a.put("n0", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { $0.requests[.zoneChanges] = [tokenExpired] }
    try await b.exchange()
    #expect(cloud.count(.zoneChanges) == 2 && cloud.count(.lookup) == 0)
    try await expectAgreement(a, b)
  }

  @Test func `goes when the server says that it does not have it`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(30)
    for name in ["n3", "n20"] { try await a.remove(name) }
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
      // And what is there is left out too.
      script.hidden = ["n5"]
    }
    try await b.exchange()
    #expect(cloud.count(.lookup) == 1)
    #expect(try await b.livingNames() == a.livingNames())
    #expect(try await !b.mainZone().ghostsPossible)
    try await expectAgreement(a, b)
  }

  @Test func `has its newer version when it was looked up`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(5)
    try await a.put("n2", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidden = ["n2"]
    }
    try await b.exchange()
    #expect(try await b.value("n2") == "newer")
    try await expectAgreement(a, b)
  }

  @Test(arguments: [false, true])
  func `stays while the server does not answer, through a crash, and the next run asks again`(
    _ crashes: Bool
  ) async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(30)
    try await a.remove("n3")
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
      script.hidden = ["n5"]
      script.refusal = { request, _ in request == .lookup ? CloudError(.serviceUnavailable, reason: "not now") : nil }
    }
    #expect(try await b.run() != nil)
    #expect(try await b.livingNames().count == 30)
    #expect(try await b.mainZone().ghostsPossible)
    var again = cloud
    if crashes {
      b.crash()
      again = RefusingCloud(b)
      try await b.open(database: again)
    }
    again.refuse { script in
      script.refusal = nil
      script.hidesDeletions = true
    }
    again.forgetSent()
    try await b.exchange()
    #expect(try await b.livingNames() == a.livingNames())
    #expect(try await !b.mainZone().ghostsPossible)
    #expect(again.count(.zoneChanges) == 1 && again.count(.lookup) == 1)
    try await expectAgreement(a, b)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A crash while it is proved` {
  @Test(arguments: WrongPage.allCases)
  func `at any request removes nothing that lives, and leaves nothing that does not`(_ wrong: WrongPage) async throws {
    var isWhole = false
    for request in 1...20 where !isWhole {
      let (_, a, b, cloud) = try await devicesWithNotes(30)
      try await a.remove("n3")
      try await a.put("n4", ["title": "newer"])
      try await a.exchange()
      try await b.put("n6", ["title": "edited"])
      let count = Mutex(0)
      cloud.refuse { script in
        script.requests[.zoneChanges] = [tokenExpired]
        script.hidesDeletions = true
        script.page = { wrong.shown($0, $1) }
        if wrong == .ends { script.pageMax = 12 }
        script.refusal = { _, _ in
          count.withLock { count in
            count += 1
            return count >= request ? CloudError(.networkError, reason: "away") : nil
          }
        }
      }
      isWhole = try await b.run(waitMillisecondsMax: 0) == nil
      #expect(try await b.livingNames().isSuperset(of: noteNames(30).subtracting(["n3"])), "request \(request)")
      b.crash()
      let again = RefusingCloud(b)
      again.refuse { $0.hidesDeletions = true }
      try await b.open(database: again)
      // The crash came before the token was refused: then it is refused now.
      let isOpen = try await b.mainZone().ghostsPossible
      if !isWhole, !isOpen { again.refuse { $0.requests[.zoneChanges] = [tokenExpired] } }
      try await exchange(b, a, b)
      #expect(try await b.livingNames() == noteNames(30).subtracting(["n3"]), "request \(request)")
      #expect(try await !b.mainZone().ghostsPossible, "request \(request)")
      try await expectAgreement(a, b)
    }
    #expect(isWhole, "the requests of a whole run were gone through")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `An answer that does not say whether the server has a record` {
  /// A cloud whose lookups are answered with an error for some records.
  private final class VagueCloud: ForwardingDatabase {
    let base: any CloudDatabase
    let error = Mutex<CloudError?>(nil)
    let names: Set<String>
    init(_ base: any CloudDatabase, _ names: Set<String>) { (self.base, self.names) = (base, names) }
    func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
      var found = try await base.lookup(names, in: zone)
      guard let error = error.withLock({ $0 }) else { return found }
      for name in names where self.names.contains(name) { found[name] = .failed(error, serverRecord: nil) }
      return found
    }
  }

  /// The feed shows neither "n5", which lives, nor "n3" and "n4", which do not. Lookups of "n3" and "n5" are refused.
  private func leavingOut(_ code: CloudError.Code) async throws -> (Device, Device, RefusingCloud, VagueCloud) {
    let (_, a, b, _) = try await devicesWithNotes(30)
    for name in ["n3", "n4"] { try await a.remove(name) }
    try await a.exchange()
    try await b.close()
    let cloud = RefusingCloud(b)
    let vague = VagueCloud(cloud, ["n3", "n5"])
    vague.error.withLock { $0 = CloudError(code, reason: "not this one") }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
      script.hidden = ["n5"]
    }
    try await b.open(database: vague)
    return (a, b, cloud, vague)
  }

  @Test(arguments: [CloudError.Code.tryAgainLater, .accessDenied], [false, true])
  func `leaves that record as it is, is asked for by each run, also after a relaunch, and delays nothing else`(
    _ code: CloudError.Code, _ relaunches: Bool
  ) async throws {
    let (a, b, cloud, vague) = try await leavingOut(code)
    try await b.put("n7", ["title": "edited"])
    #expect(try await b.run() == nil)
    #expect(try await b.livingNames() == noteNames(30).subtracting(["n4"]), "what is proved is removed")
    #expect(try await b.open().status().openBlocks == 2)
    #expect(try await !b.mainZone().ghostsPossible)
    #expect(cloud.sent == [["n7"]])
    let requests = (cloud.requestCount, cloud.count(.lookup))
    #expect(try await b.run() == nil)
    #expect(cloud.count(.lookup) - requests.1 == 1 && cloud.requestCount - requests.0 <= 3)
    if relaunches {
      try await b.open().compact()
      b.crash()
      try await b.open(database: vague)
    }
    vague.error.withLock { $0 = nil }
    #expect(try await b.run() == nil)
    #expect(try await b.livingNames() == noteNames(30).subtracting(["n3", "n4"]))
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `and later wrongly that the record is gone kills none of its lives`() async throws {
    let (a, b, cloud, vague) = try await leavingOut(.tryAgainLater)
    #expect(try await b.run() == nil)
    #expect(try await b.livingNames().contains("n5"))
    // An answer that is late.
    vague.error.withLock { $0 = missing }
    #expect(try await b.run() == nil)
    vague.error.withLock { $0 = nil }
    cloud.refuse { $0.hidden = [] }
    try await a.put("n5", ["title": "edited"])
    try await exchange(a, b, a, b)
    for device in [a, b] { #expect(try await device.value("n5") == "edited") }
    try await expectAgreement(a, b)
  }

  @Test func `about the only record of a zone keeps its sweep open, and the run says so`() async throws {
    let (_, a, b, _) = try await devicesWithNotes(1)
    try await a.remove("n0")
    try await a.exchange()
    try await b.close()
    let cloud = RefusingCloud(b)
    let vague = VagueCloud(cloud, ["n0"])
    vague.error.withLock { $0 = CloudError(.tryAgainLater, reason: "not this one") }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [tokenExpired]
      script.hidesDeletions = true
    }
    try await b.open(database: vague)
    for _ in 0..<2 {
      let error = try await b.run()
      #expect(error?.code == .throttled && error?.message.contains("not this one") == true)
      #expect(try await b.mainZone().ghostsPossible)
      #expect(try await b.livingNames() == ["n0"])
    }
    vague.error.withLock { $0 = nil }
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.livingNames() == ["n0"])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A deletion that the server does not find` {
  @Test func `is looked at, and sent again if the record lives`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(2)
    cloud.refuse { $0.items["n0"] = [missing, missing] }
    try await b.remove("n0")
    try await b.exchange()
    #expect(cloud.count(.lookup) == 2)
    #expect(cloud.sent == [["n0"], ["n0"], ["n0"]])
    try await exchange(a, b)
    #expect(try await a.livingNames() == ["n1"])
    try await expectAgreement(a, b)
  }

  @Test func `waits longer and longer for a server that never finds what it has, and is held at last`() async throws {
    let (_, _, b, cloud) = try await devicesWithNotes(1)
    cloud.refuse { script in
      script.items["n0"] = [missing]
      script.isForever = true
    }
    try await b.remove("n0")
    _ = try await b.run(waitMillisecondsMax: 3_600_000)
    #expect(cloud.sent.count == 9, "as often as a save that is refused without a cause")
    #expect(try await b.open().status().held.map(\.code) == [.notFound])
    #expect(try await b.unsettled == 1)
  }

  @Test func `is settled by one look if the record is gone`() async throws {
    let (_, a, b, cloud) = try await devicesWithNotes(2)
    try await b.remove("n0")
    try await a.remove("n0")
    try await a.exchange()
    try await b.exchange(.pushOnly)
    #expect(cloud.count(.lookup) == 1 && cloud.sent == [["n0"]])
    #expect(try await b.owesNothing)
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }
}
