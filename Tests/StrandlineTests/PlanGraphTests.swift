// Goal: whatever refers to what, whatever is released and whatever goes together, a plan sends no record before what it needs, no
// deletion before the save that keeps a record from going along, and no set in parts. Method: drawn logs of a few records, which are at
// the server or not, saved or deleted, with references of all kinds, in sets; a model of the server carries out what the plan sends.

import StrandlineSystem
import StrandlineTestSupport
import Testing

@testable import Strandline
@testable import StrandlineSync

private let zone = LogLines.zone

/// A reference to another record of the zone.
private struct Bond: Hashable {
  var target: String
  var action: Reference.Action
}

extension LogLines {
  private static func version(_ name: String, _ bonds: [Bond]) -> Version {
    var version = Version(type: "Note", fields: ["title": .string(name)])
    for (number, bond) in bonds.enumerated() {
      version.fields["to\(number)"] = .reference(Reference(bond.target, action: bond.action))
    }
    version.stamp.births = [Birth(time: HybridTime(milliseconds: 1_000), writer: 5)]
    return version
  }

  fileprivate static func fetched(_ name: String, _ bonds: [Bond]) -> Event {
    .fetchedSave(
      FetchedSave(
        id: RecordID(name, zone: zone), version: version(name, bonds),
        system: SystemFields(
          changeTag: "a", created: ServerTimestamp(milliseconds: 1), modified: ServerTimestamp(milliseconds: 2)),
        source: .feed, isStamped: true))
  }

  fileprivate static func saved(_ name: String, _ bonds: [Bond], base: LSN) -> Event {
    let version = version(name, bonds)
    let dirty = Dictionary(uniqueKeysWithValues: version.names.map { ($0, LSN.zero) })
    return .saved(
      Saved(
        id: RecordID(name, zone: zone), type: "Note", births: version.stamp.births, base: base,
        time: HybridTime(milliseconds: 2_000), editCount: 1, tenure: 1, isCreation: base == .zero,
        content: EncodedContent(version, dirty: dirty)))
  }
}

/// A drawn log.
private struct DrawnLog {
  enum Change: Hashable {
    case save([Bond])
    case deletion

    var bonds: [Bond] { if case .save(let bonds) = self { bonds } else { [] } }
  }

  /// What the server has of each record.
  private(set) var server: [String: [Bond]] = [:]
  /// What is to be sent.
  private(set) var changes: [String: Change] = [:]
  private(set) var sets: [[String]] = []
  private(set) var events = LogLines.seen()
  /// The most operations of a request, but for sets and circles.
  let operations: Int

  init(seed: UInt64) {
    let random = SeededRandom(seed: seed)
    func below(_ count: Int) -> Int { Int(random.below(UInt64(count))) }
    let names = (0..<3 + below(6)).map { "r\($0)" }
    // From a few references to a tangle.
    let (bondsMax, deletionOf) = (1 + below(3), 2 + below(4))
    func bonds() -> [Bond] {
      let actions: [Reference.Action] = [.none, .validate, .deleteSelf, .deleteSelf]
      let all = (0..<below(bondsMax + 1)).map { _ in Bond(target: names[below(names.count)], action: actions[below(4)])
      }
      return Array(Set(all)).sorted { ($0.target, "\($0.action)") < ($1.target, "\($1.action)") }
    }
    operations = 1 + below(6)
    for name in names where below(3) > 0 { server[name] = bonds() }
    var bases: [String: LSN] = [:]
    for (name, bonds) in server.sorted(by: { $0.key < $1.key }) {
      events.append(LogLines.fetched(name, bonds))
      // After the opening and the account.
      bases[name] = LSN(UInt64(events.count) + 2)
    }
    var order = names
    for place in order.indices.reversed() { order.swapAt(place, below(place + 1)) }
    for name in order where below(6) > 0 {
      let base = bases[name] ?? .zero
      if base != .zero, below(deletionOf) == 0 {
        changes[name] = .deletion
        events.append(LogLines.deleted(name, base: base.rawValue))
      } else {
        let bonds = bonds()
        changes[name] = .save(bonds)
        events.append(LogLines.saved(name, bonds, base: base))
      }
    }
    var left = order.filter { changes[$0] != nil }
    for number in 0..<below(3) where left.count > 2 {
      let set = Array(left.prefix(2 + below(2)))
      left.removeFirst(set.count)
      sets.append(set)
      events += set.map { .joined(Joined(id: RecordID($0, zone: zone), set: LSN(1_000 + UInt64(number)))) }
    }
  }

  /// Whether what a record refers to leads back to it, over other saves: then all of them go in one request, in any order.
  func isCircle(_ from: String, _ to: String) -> Bool {
    var (met, open) = (Set([to]), [to])
    while let name = open.popLast() {
      for bond in changes[name]?.bonds ?? [] {
        if bond.target == from { return true }
        if met.insert(bond.target).inserted { open.append(bond.target) }
      }
    }
    return false
  }
}

/// A server that only checks: it carries out what a plan sends.
private struct ModelServer {
  let log: DrawnLog
  private var records: [String: [Bond]]
  private(set) var sent: [String] = []

  init(_ log: DrawnLog) { (self.log, records) = (log, log.server) }

  /// What is wrong with a request; nil if nothing is.
  mutating func broken(_ upload: UploadRequest) -> String? {
    let names = upload.uploads.map(\.id.name)
    for set in log.sets where !Set(set).isDisjoint(with: names) {
      if !Set(set).isSubset(of: names) { return "\(names) has a part of \(set)" }
      if !upload.isAtomic { return "\(names) is not atomic" }
    }
    for (place, one) in upload.uploads.enumerated() {
      let name = names[place]
      if sent.contains(name) { return "\(name) twice" }
      guard let change = log.changes[name] else { return "\(name) has no change" }
      switch change {
      case .save(let bonds):
        if one.operation.kind == .delete { return "\(name) is deleted" }
        if let broken = brokenSave(of: name, bonds, after: names[place...]) { return broken }
        records[name] = bonds
      case .deletion:
        if one.operation.kind != .delete { return "\(name) is saved" }
        if let broken = brokenDeletion(of: name) { return broken }
        records[name] = nil
      }
      sent.append(name)
    }
    return nil
  }

  /// What it needs is there, or is in no log, or goes with it because it needs this one in turn.
  private func brokenSave(of name: String, _ bonds: [Bond], after rest: ArraySlice<String>) -> String? {
    for bond in bonds where bond.action != .none && bond.target != name {
      // Deleted or not, the server has had it.
      guard log.server[bond.target] == nil, log.changes[bond.target] != nil, records[bond.target] == nil else {
        continue
      }
      if rest.contains(bond.target), log.isCircle(name, bond.target) { continue }
      return "\(name) before \(bond.target), which it needs"
    }
    return nil
  }

  /// No save that is still to come releases the reference by which the server would refuse the deletion, or delete its record too.
  private func brokenDeletion(of name: String) -> String? {
    var (gone, open) = (Set([name]), [name])
    while let target = open.popLast() {
      for (other, bonds) in records.sorted(by: { $0.key < $1.key })
      where bonds.contains(Bond(target: target, action: .deleteSelf)) && gone.insert(other).inserted {
        open.append(other)
      }
    }
    for (other, bonds) in records where other != name && !sent.contains(other) {
      guard case .save(let next)? = log.changes[other] else { continue }
      for bond in bonds where bond.action == .deleteSelf ? gone.contains(bond.target) : bond.target == name {
        if bond.action == .none || next.contains(bond) { continue }
        return "\(name) is deleted before the save of \(other), which releases \(bond.target)"
      }
    }
    return nil
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A plan of what refers to what` {
  /// Sends all of a log.
  private func run(_ log: DrawnLog, _ seed: UInt64) throws -> (sent: [String], requests: Int) {
    var driver = try PlanDriver(log.events, random: seed) { $0.batch.operations = log.operations }
    var (server, requests) = (ModelServer(log), 0)
    driver.begin()
    for _ in 0..<100 {
      let next = try driver.next()
      if case .done = next { return (server.sent, requests) }
      guard case .ask(let request) = next else { throw PlanDriver.Unexpected(words: "\(next)") }
      switch request {
      case .user: try driver.answer(request, .user("user"))
      case .changedZones: try driver.answer(request, .changed())
      case .modify:
        let upload = try driver.leave(request)
        let broken = server.broken(upload)
        try #require(broken == nil, "seed \(seed): \(broken ?? ""): \(log)")
        requests += 1
        try driver.answer(.modify(upload), .taken(upload))
      default: throw PlanDriver.Unexpected(words: request.words)
      }
    }
    throw PlanDriver.Unexpected(words: "seed \(seed): no end")
  }

  @Test func `sends all of it, whole sets, targets first, and no deletion before the save that releases it`() throws {
    var (sets, circles, released, requests) = (0, 0, 0, 0)
    for seed in Campaign.seeds(1...2_000, every: 4) {
      let log = DrawnLog(seed: seed)
      let (sent, count) = try run(log, seed)
      try #require(sent.sorted() == log.changes.keys.sorted(), "seed \(seed): \(log)")
      requests += count
      sets += log.sets.count
      for (name, change) in log.changes {
        circles += change.bonds.count {
          $0.target != name && log.server[$0.target] == nil && log.isCircle(name, $0.target)
        }
        released += Set(log.server[name] ?? []).subtracting(change.bonds).count { bond in
          change != .deletion && bond.action != .none && log.changes[bond.target] == .deletion
        }
      }
    }
    // The logs are of all kinds.
    #expect(sets > 100 && circles > 50 && released > 50 && requests > 1_000, "\((sets, circles, released, requests))")
  }
}
