// Goal: nothing is removed here because an answer did not show it, before the server was asked for it by name; and a zone of
// which nothing is left waits for a person, whatever its size.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import Synchronization
import Testing

private let expired = CloudError(.changeTokenExpired, reason: "the sync token has expired")
private let missing = CloudError(.notFound, reason: "the record does not exist")

/// Two devices with the same synced records, and the cloud of the second one.
private func devices(_ count: Int) async throws -> (fleet: Fleet, a: Device, b: Device, cloud: RefusingCloud) {
  let fleet = try Fleet()
  let (a, b) = (fleet.device("a"), fleet.device("b"))
  try await a.open().write { tx in
    for index in 0..<count {
      try tx.save(Record(type: "Note", id: RecordID("n\(index)"), fields: ["title": .string("t\(index)")]))
    }
  }
  try await exchange(a, b)
  let cloud = try await b.openRefusing()
  try await b.exchange()
  cloud.forgetSent()
  return (fleet, a, b, cloud)
}

extension Device {
  fileprivate func zone() async throws -> StoreStatus.Zone {
    try #require(try await open().status().zones.first { $0.id == .main })
  }
  fileprivate func names() async throws -> Set<String> {
    var names: Set<String> = []
    try await open().forEachRecord { names.insert($0.id.name) }
    return names
  }
}

private func allNames(_ count: Int) -> Set<String> { Set((0..<count).map { "n\($0)" }) }

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
    let (_, a, b, cloud) = try await devices(count)
    try await a.put("n0", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.page = { wrong.shown($0, $1) }
      if wrong == .ends { script.pageMax = 60 }
    }
    try await b.exchange()
    #expect(try await b.value("n0") == "newer")
    #expect(try await b.names() == allNames(count))
    #expect(try await !b.zone().ghostsPossible)
    #expect(cloud.count(.lookup) == (count == 1 && wrong != .empty ? 0 : count <= 60 && wrong == .ends ? 0 : 1))
    try await expectAgreement(a, b)
  }

  @Test func `costs no request if it is nothing`() async throws {
    let (_, a, b, cloud) = try await devices(30)
    try await a.put("n0", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { $0.requests[.zoneChanges] = [expired] }
    try await b.exchange()
    #expect(cloud.count(.zoneChanges) == 2 && cloud.count(.lookup) == 0)
    try await expectAgreement(a, b)
  }

  @Test func `goes when the server says that it does not have it`() async throws {
    let (_, a, b, cloud) = try await devices(30)
    for name in ["n3", "n20"] { try await a.remove(name) }
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.hidesDeletions = true
      // And what is there is left out too.
      script.hidden = ["n5"]
    }
    try await b.exchange()
    #expect(cloud.count(.lookup) == 1)
    #expect(try await b.names() == a.names())
    #expect(try await !b.zone().ghostsPossible)
    try await expectAgreement(a, b)
  }

  @Test func `has its newer version when it was looked up`() async throws {
    let (_, a, b, cloud) = try await devices(5)
    try await a.put("n2", ["title": "newer"])
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
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
    let (_, a, b, cloud) = try await devices(30)
    try await a.remove("n3")
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.hidesDeletions = true
      script.hidden = ["n5"]
      script.refusal = { request, _ in request == .lookup ? CloudError(.serviceUnavailable, reason: "not now") : nil }
    }
    #expect(try await b.run() != nil)
    #expect(try await b.names().count == 30)
    #expect(try await b.zone().ghostsPossible)
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
    #expect(try await b.names() == a.names())
    #expect(try await !b.zone().ghostsPossible)
    #expect(again.count(.zoneChanges) == 1 && again.count(.lookup) == 1)
    try await expectAgreement(a, b)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A crash while it is proved` {
  @Test(arguments: WrongPage.allCases)
  func `at any request removes nothing that lives, and leaves nothing that does not`(_ wrong: WrongPage) async throws {
    var isWhole = false
    for request in 1...20 where !isWhole {
      let (_, a, b, cloud) = try await devices(30)
      try await a.remove("n3")
      try await a.put("n4", ["title": "newer"])
      try await a.exchange()
      try await b.put("n6", ["title": "edited"])
      let count = Mutex(0)
      cloud.refuse { script in
        script.requests[.zoneChanges] = [expired]
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
      #expect(try await b.names().isSuperset(of: allNames(30).subtracting(["n3"])), "request \(request)")
      b.crash()
      let again = RefusingCloud(b)
      again.refuse { $0.hidesDeletions = true }
      try await b.open(database: again)
      // The crash came before the token was refused: then it is refused now.
      let isOpen = try await b.zone().ghostsPossible
      if !isWhole, !isOpen { again.refuse { $0.requests[.zoneChanges] = [expired] } }
      try await exchange(b, a, b)
      #expect(try await b.names() == allNames(30).subtracting(["n3"]), "request \(request)")
      #expect(try await !b.zone().ghostsPossible, "request \(request)")
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
  private func behind(_ code: CloudError.Code) async throws -> (Device, Device, RefusingCloud, VagueCloud) {
    let (_, a, b, _) = try await devices(30)
    for name in ["n3", "n4"] { try await a.remove(name) }
    try await a.exchange()
    try await b.close()
    let cloud = RefusingCloud(b)
    let vague = VagueCloud(cloud, ["n3", "n5"])
    vague.error.withLock { $0 = CloudError(code, reason: "not this one") }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
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
    let (a, b, cloud, vague) = try await behind(code)
    try await b.put("n7", ["title": "edited"])
    #expect(try await b.run() == nil)
    #expect(try await b.names() == allNames(30).subtracting(["n4"]), "what is proved is removed")
    #expect(try await b.open().status().openBlocks == 2)
    #expect(try await !b.zone().ghostsPossible)
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
    #expect(try await b.names() == allNames(30).subtracting(["n3", "n4"]))
    try await exchange(a, b)
    try await expectAgreement(a, b)
  }

  @Test func `and later wrongly that the record is gone kills none of its lives`() async throws {
    let (a, b, cloud, vague) = try await behind(.tryAgainLater)
    #expect(try await b.run() == nil)
    #expect(try await b.names().contains("n5"))
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
    let (_, a, b, _) = try await devices(1)
    try await a.remove("n0")
    try await a.exchange()
    try await b.close()
    let cloud = RefusingCloud(b)
    let vague = VagueCloud(cloud, ["n0"])
    vague.error.withLock { $0 = CloudError(.tryAgainLater, reason: "not this one") }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.hidesDeletions = true
    }
    try await b.open(database: vague)
    for _ in 0..<2 {
      let error = try await b.run()
      #expect(error?.code == .throttled && error?.message.contains("not this one") == true)
      #expect(try await b.zone().ghostsPossible)
      #expect(try await b.names() == ["n0"])
    }
    vague.error.withLock { $0 = nil }
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.names() == ["n0"])
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A zone of which nothing is left` {
  /// The zone is deleted and made anew before the second device asks again, and has another record.
  private func remade(_ count: Int) async throws -> (Fleet, Device, RefusingCloud) {
    let (fleet, _, b, cloud) = try await devices(count)
    try await b.put("n0", ["title": "edited"])
    try await b.put("mine", ["title": "new"])
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    let other = fleet.device("other")
    try await other.put("other", ["title": "other"])
    try await other.exchange()
    return (fleet, b, cloud)
  }

  @Test(arguments: [1, 99, 101, 250], ResyncSource.allCases)
  func `132: is lost, whatever its size, and a person decides`(_ count: Int, _ source: ResyncSource) async throws {
    let (fleet, b, cloud) = try await remade(count)
    let error = try await b.run()
    #expect(error?.code == .zoneLost)
    #expect(error?.message.contains("emptied, or deleted and made again") == true, "\(error?.message ?? "-")")
    #expect(try await b.zone().lostReason == .deleted)
    #expect(try await b.names() == allNames(count).union(["mine", "other"]))
    #expect(try await b.value("n0") == "edited")
    #expect(try await b.open().status().unsettled == 2)
    #expect(cloud.sent.isEmpty)
    let obstacles = try await b.open().pendingChanges().changes.map(\.obstacle)
    #expect(obstacles.allSatisfy { if case .zoneLost? = $0 { true } else { false } } && obstacles.count == 2)
    // Asked again, it is the same.
    try await b.open().sync.resumeZone(.main)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.names().count == count + 2)

    try await b.open().sync.resync(.main, from: source)
    try await b.exchange()
    try await b.exchange()
    let late = fleet.device("late")
    try await late.exchange()
    try await expectAgreement(b, late)
    #expect(try await b.names() == (source == .here ? allNames(count) : []).union(["mine", "other"]))
    if source == .here { #expect(try await b.value("n0") == "edited") }
  }

  @Test(arguments: [1, 99, 101]) func `because a device emptied it is followed, if the feed says so`(
    _ count: Int
  ) async throws {
    let (_, a, b, cloud) = try await devices(count)
    try await a.open().write { tx in for index in 0..<count { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    cloud.refuse { $0.requests[.zoneChanges] = [expired] }
    try await b.exchange()
    #expect(try await b.names() == [])
    try await expectAgreement(a, b)
  }

  @Test(arguments: [1, 99, 101]) func `is lost if the server has forgotten the deletions and the token`(
    _ count: Int
  ) async throws {
    let (_, a, b, cloud) = try await devices(count)
    try await a.open().write { tx in for index in 0..<count { try tx.delete(RecordID("n\(index)")) } }
    try await a.exchange()
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.hidesDeletions = true
    }
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.zone().lostReason == .deleted)
    #expect(try await b.names().count == count)
  }

  @Test(arguments: [false, true]) func `is not known by what this device has uploaded to it since`(
    _ hasToken: Bool
  ) async throws {
    let (fleet, b): (Fleet, Device)
    if hasToken {
      let made = try await devices(3)
      (fleet, b) = (made.fleet, made.b)
    } else {
      fleet = try Fleet()
      b = fleet.device("b")
      for name in allNames(3).sorted() { try await b.put(name, ["title": "t"]) }
      try await b.exchange()
      #expect(try await b.open().projections.withLock { $0.sync.zones[.main]?.token } == nil)
    }
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    try await b.put("mine", ["title": "new"])
    try await b.exchange(.pushOnly)
    #expect(try await b.unsettled == 0)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.names() == allNames(3).union(["mine"]))
  }

  @Test(arguments: [0, 29, 30]) func `is followed without a question where the app wants that, and says so`(
    _ most: Int
  ) async throws {
    let (fleet, _, b, _) = try await devices(30)
    try await b.close()
    try await b.open(database: RefusingCloud(b)) { $0.zoneLosses.remadeFollowedMax = most }
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    guard most == 30 else {
      #expect(try await b.run()?.code == .zoneLost)
      #expect(try await b.names() == allNames(30))
      return
    }
    let report = try await b.exchange()
    #expect(report.lossesDecided.map(\.rule) == [.removeHere] && report.lossesDecided.map(\.zone) == [.main])
    #expect(try await b.names() == [])
    #expect(try await b.owesNothing)
  }

  @Test func `is not followed where something is unsent`() async throws {
    let (fleet, _, b, _) = try await devices(3)
    try await b.close()
    try await b.open(database: RefusingCloud(b)) { $0.zoneLosses.remadeFollowedMax = 100 }
    try await b.put("n1", ["title": "edited"])
    try fleet.server.deleteZone("Main", in: fleet.database)
    fleet.serverClock.advance(milliseconds: 1)
    try await b.web().createZone(.main)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.value("n1") == "edited")
    #expect(try await b.names() == allNames(3))
  }

  @Test(arguments: [false, true]) func `and that is deleted while the server's side is carried out has no token any more`(
    _ crashes: Bool
  ) async throws {
    let (fleet, _, b, cloud) = try await devices(9)
    try await b.open().sync.resync(.main, from: .server)
    cloud.refuse { script in
      script.pageMax = 3
      script.refusal = { request, _ in request == .lookup ? CloudError(.networkError, reason: "away") : nil }
      script.hidden = ["n1"]
    }
    #expect(try await b.run(waitMillisecondsMax: 0) != nil)
    let begun = try await b.zone()
    #expect(begun.hasToken && begun.ghostsPossible)
    try fleet.server.deleteZone("Main", in: fleet.database)
    if crashes { b.crash() } else { try await b.close() }
    try await b.open(database: b.web())
    try await b.exchange()
    let ended = try await b.zone()
    #expect(ended.lostReason == .erased && !ended.hasToken && !ended.ghostsPossible)
    #expect(try await b.names().isEmpty)
    // A zone of that name that another device makes is fetched from its beginning when a person wants it.
    let other = fleet.device("other")
    try await other.put("other", ["title": "other"])
    try await other.exchange()
    try await b.open().sync.resumeZone(.main)
    try await b.exchange()
    try await expectAgreement(b, other)
  }

  @Test func `is the same one if the server took its token`() async throws {
    let (_, a, b, cloud) = try await devices(1)
    try await a.remove("n0")
    try await a.exchange()
    cloud.refuse { $0.hidesDeletions = true }
    try await b.put("n0", ["title": "edited"])
    // The save is not found, the feed says nothing, and the whole feed neither.
    try await b.exchange()
    #expect(try await b.names() == [])
    #expect(try await b.owesNothing)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A zone that was only named` {
  @Test(arguments: [false, true]) func `is forgotten when the server does not have it, and made when it is written to`(
    _ compacts: Bool
  ) async throws {
    let (fleet, _, b, cloud) = try await devices(1)
    let old = ZoneID("Old")
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: old))
        return page
      }
    }
    try await b.exchange()
    #expect(try await b.open().status().zones.map(\.id) == [.main])
    #expect(try await b.owesNothing)
    if compacts { try await b.open().compact() }
    cloud.refuse { $0.list = nil }
    b.crash()
    try await b.open()
    try await b.write("late", ["title": "t"], zone: old)
    try await b.exchange()
    #expect(try await b.owesNothing)
    #expect(try fleet.server.records(zone: "Old", in: fleet.database).map { Array($0.keys) } == ["late"])
  }

  @Test func `is lost if something is owed to it`() async throws {
    let (_, _, b, cloud) = try await devices(1)
    let old = ZoneID("Old")
    cloud.refuse { script in
      script.list = { _, page in
        var page = page
        page.zones.append(DatabasePage.Zone(id: old))
        return page
      }
    }
    try await b.write("late", ["title": "t"], zone: old)
    #expect(try await b.run()?.code == .zoneLost)
    #expect(try await b.unsettled == 1)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A deletion that the server does not find` {
  @Test func `is looked at, and sent again if the record lives`() async throws {
    let (_, a, b, cloud) = try await devices(2)
    cloud.refuse { $0.items["n0"] = [missing, missing] }
    try await b.remove("n0")
    try await b.exchange()
    #expect(cloud.count(.lookup) == 2)
    #expect(cloud.sent == [["n0"], ["n0"], ["n0"]])
    try await exchange(a, b)
    #expect(try await a.names() == ["n1"])
    try await expectAgreement(a, b)
  }

  @Test func `waits longer and longer for a server that never finds what it has, and is held at last`() async throws {
    let (_, _, b, cloud) = try await devices(1)
    cloud.refuse { script in
      script.items["n0"] = [missing]
      script.isForever = true
    }
    try await b.remove("n0")
    _ = try await b.run(waitMillisecondsMax: 3_600_000)
    #expect(cloud.sent.count == 9, "as often as a save that is refused without a cause")
    #expect(try await b.open().status().held.map(\.code) == ["NOT_FOUND"])
    #expect(try await b.unsettled == 1)
  }

  @Test func `is settled by one look if the record is gone`() async throws {
    let (_, a, b, cloud) = try await devices(2)
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

@Suite(.timeLimit(.minutes(30))) struct `A comparison with a server that was put back` {
  /// A device whose server forgets the newest version of "v", and "w".
  private func putBack() async throws -> (fleet: Fleet, old: CloudServer, b: Device) {
    let fleet = try Fleet()
    let b = fleet.device("b")
    try await b.put("v", ["title": "one"])
    try await b.put("same", ["title": "one"])
    try await b.exchange()
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await b.put("v", ["title": "two"])
    try await b.put("w", ["title": "new"])
    try await b.exchange()
    let old = try fleet.server(of: image)
    try await b.close()
    try await b.open(through: InProcessTransport(old))
    return (fleet, old, b)
  }

  @Test func `118: removes nothing, and what is here goes up by a resync`() async throws {
    let (fleet, old, b) = try await putBack()
    let error = await #expect(throws: StrandlineError.self) { try await b.open().sync.verify(.main) }
    #expect(error?.code == .zoneLost)
    #expect(try await b.zone().lostReason == .wentBack)
    #expect(try await b.names() == ["v", "w", "same"])
    #expect(try await b.value("v") == "two")
    try await b.open().sync.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    let late = fleet.device("late")
    try await late.open(through: InProcessTransport(old))
    try await late.exchange()
    #expect(try await late.names() == ["v", "w", "same"])
    #expect(try await late.value("v") == "two")
    try await expectAgreement(b, late)
  }

  @Test func `118: sends by a resync from here also what it took before it was known`() async throws {
    let (fleet, old, b) = try await putBack()
    // The older version of "v" is left out of the list and of lookups at first, so only "w" differs.
    try await b.close()
    let cloud = HidingCloud(b.web(through: InProcessTransport(old)))
    try await b.open(database: cloud)
    let current = try await b.open().projections.withLock { $0.sync.zones[.main]?.token }
    #expect(current != nil)
    cloud.hide("v")
    let found = try await b.open().sync.verify(.main)
    #expect(found.mended == ["w"], "\(found)")
    #expect(try await b.names() == ["v", "same"])
    cloud.hide(nil)
    await #expect(throws: StrandlineError.self) { try await b.open().sync.verify(.main) }
    #expect(try await b.zone().lostReason == .wentBack)
    try await b.open().sync.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    #expect(try await b.names() == ["v", "w", "same"])
    #expect(try await b.value("w") == "new")
    let late = fleet.device("late")
    try await late.open(through: InProcessTransport(old))
    try await late.exchange()
    #expect(try await late.value("w") == "new")
    #expect(try await late.value("v") == "two")
    try await expectAgreement(b, late)
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A resync of what a server lost that was put back` {
  /// "x" was deleted elsewhere, and a sweep has removed it here.
  ///
  /// - Parameter isOlder: the server was put back to a time after that; else to one when "x" was not created.
  @Test(arguments: [false, true]) func `sends nothing again that another device had deleted`(
    _ isOlder: Bool
  ) async throws {
    let fleet = try Fleet()
    let (a, b) = (fleet.device("a"), fleet.device("b"))
    let cloud = try await b.openRefusing()
    if isOlder { try await b.put("x", ["title": "one"]) }
    for name in ["same", "v"] { try await b.put(name, ["title": "one"]) }
    try await exchange(b, a)
    var image = fleet.serverDisk.imageAfterCrash(.all)
    if !isOlder { try await b.put("x", ["title": "one"]) }
    if !isOlder { try await b.put("v", ["title": "two"]) }
    try await exchange(b, a)
    try await a.remove("x")
    try await a.exchange()
    if isOlder {
      image = fleet.serverDisk.imageAfterCrash(.all)
      fleet.serverClock.advance(milliseconds: 1_000)
      try await b.put("v", ["title": "two"])
      try await b.exchange(.pushOnly)
    }
    cloud.refuse { script in
      script.requests[.zoneChanges] = [expired]
      script.hidesDeletions = true
    }
    #expect(try await b.run() == nil)
    #expect(try await b.names() == ["same", "v"])
    if !isOlder {
      try await b.put("same", ["title": "two"])
      try await b.exchange()
    }
    let old = try fleet.server(of: image)
    try await b.close()
    try await b.open(through: InProcessTransport(old))
    await #expect(throws: StrandlineError.self) { try await b.open().sync.verify(.main) }
    #expect(try await b.zone().lostReason == .wentBack)
    try await b.open().sync.resync(.main, from: .here)
    try await b.exchange()
    try await b.exchange()
    #expect(try await b.names() == ["same", "v"])
    #expect(try await b.value("v") == "two")
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A server that does not say what it has of an older version that it shows` {
  @Test(arguments: [false, true]) func `has nothing removed before`(_ sweeps: Bool) async throws {
    let fleet = try Fleet()
    let b = fleet.device("b")
    for name in ["v", "same"] { try await b.put(name, ["title": "one"]) }
    try await b.exchange()
    let image = fleet.serverDisk.imageAfterCrash(.all)
    try await b.put("v", ["title": "two"])
    try await b.put("w", ["title": "new"])
    try await b.exchange()
    let old = try fleet.server(of: image)
    try await b.close()
    let cloud = HidingCloud(b.web(through: InProcessTransport(old)))
    cloud.hide("v", fromLists: false)
    try await b.open(database: cloud)
    let c = fleet.device("c")
    try await c.open(through: InProcessTransport(old))
    try await c.exchange()
    for round in 0..<2 {
      if sweeps {
        // The zone has changed, by more than the old server has forgotten.
        for number in 0..<10 { try await c.put("c\(number)", ["title": .string("\(round)")]) }
        try await c.exchange()
        cloud.refuseToken()
        #expect(try await b.run() != nil)
      } else {
        await #expect(throws: StrandlineError.self) { try await b.open().sync.verify(.main) }
      }
      #expect(try await b.names().isSuperset(of: ["v", "w", "same"]))
    }
    cloud.hide(nil)
    await #expect(throws: StrandlineError.self) { try await b.open().sync.verify(.main) }
    #expect(try await b.zone().lostReason == .wentBack)
    #expect(try await b.names().isSuperset(of: ["v", "w", "same"]))
  }
}

/// A cloud that leaves one record's older version out, and answers a lookup of it with the version that it was told to keep.
private final class HidingCloud: ForwardingDatabase {
  let base: any CloudDatabase
  private let hidden = Mutex<String?>(nil)
  private let isListed = Mutex(false)
  private let refusesToken = Mutex(false)

  init(_ base: any CloudDatabase) { self.base = base }

  func hide(_ name: String?, fromLists: Bool = true) {
    hidden.withLock { $0 = name }
    isListed.withLock { $0 = !fromLists }
  }

  /// The next token has expired.
  func refuseToken() { refusesToken.withLock { $0 = true } }

  func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
    var found = try await base.lookup(names, in: zone)
    // Says nothing of it, as a busy server does.
    if let name = hidden.withLock({ $0 }), found[name] != nil {
      found[name] = .failed(CloudError(.tryAgainLater, reason: "busy"), serverRecord: nil)
    }
    return found
  }

  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    let isRefused = refusesToken.withLock { refuses in
      defer { if token != nil { refuses = false } }
      return refuses && token != nil
    }
    if isRefused { throw expired }
    var page = try await base.zoneChanges(in: zone, since: token, limit: limit)
    if isListed.withLock({ $0 }) { return page }
    let name = hidden.withLock { $0 }
    page.changes.removeAll { if case .saved(let record) = $0 { record.name == name } else { false } }
    return page
  }
}
