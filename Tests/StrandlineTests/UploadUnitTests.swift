// Goal: whatever refers to what, the order of an upload can be sent: records of a circle go together and no others do, a
// target goes before what refers to it, and what may go in any order keeps that of the log. Method: 2,000 drawn graphs with
// circles, saves and deletions, each held against what leads to what, which the test finds by another way than the plan.

import Strandline
import StrandlineSystem
import Testing

private let zone = ZoneID("Notes")

/// A drawn graph of records. Their order is that of the log.
private struct Graph {
  let items: [UploadItem]
  /// What each item leads to among those of its kind, itself among it only in a circle: a bit for each.
  let leads: [UInt32]

  init(seed: UInt64) {
    let random = SeededRandom(seed: seed)
    let count = 1 + Int(random.below(16))
    // From a few references to a tangle.
    let targetsMax = 1 + Int(random.below(4))
    let deletionsOf = 1 + random.below(4)
    let items = (0..<count).map { number in
      // Some refer to themselves, some twice to one record, some to a record that is not in the list.
      let targets = (0..<Int(random.below(UInt64(targetsMax)))).map { _ -> CloudName in
        "r\(random.below(UInt64(count + 2)))"
      }
      return UploadItem(
        id: RecordID("r\(number)", zone: zone), lsn: LSN(UInt64(number + 1)),
        isDeletion: random.below(deletionsOf) == 1, targets: targets)
    }
    var leads = items.map { item in
      items.enumerated().reduce(UInt32(0)) { bits, other in
        other.element.isDeletion == item.isDeletion && item.targets.contains(other.element.id.key)
          ? bits | 1 << other.offset : bits
      }
    }
    for middle in 0..<count {
      for start in 0..<count where leads[start] & 1 << middle != 0 { leads[start] |= leads[middle] }
    }
    (self.items, self.leads) = (items, leads)
  }

  func leads(_ from: Int, to: Int) -> Bool { leads[from] & 1 << to != 0 }
  func place(of item: UploadItem) -> Int { Int(item.lsn.rawValue) - 1 }

  /// What is wrong with an order; nil if nothing is.
  func broken(_ units: [[UploadItem]]) -> String? {
    let places = units.map { $0.map(place) }
    if places.joined().sorted() != Array(items.indices) { return "not every record once" }
    var unitOf = Array(repeating: 0, count: items.count)
    for (number, unit) in places.enumerated() {
      if unit.isEmpty { return "an empty unit" }
      if unit != unit.sorted() { return "a unit out of the order of the log" }
      for place in unit { unitOf[place] = number }
    }
    func isDeletion(_ unit: Int) -> Bool { items[places[unit][0]].isDeletion }
    for a in items.indices {
      for b in items.indices where a != b {
        let isOfOneKind = items[a].isDeletion == items[b].isDeletion
        let isCircle = isOfOneKind && leads(a, to: b) && leads(b, to: a)
        if isCircle != (unitOf[a] == unitOf[b]) { return "r\(a) and r\(b) \(isCircle ? "are apart" : "go together")" }
        if !isOfOneKind, items[b].isDeletion, unitOf[b] < unitOf[a] { return "deletion r\(b) before save r\(a)" }
        // A save after its target, a deletion before it.
        guard isOfOneKind, leads(a, to: b), !isCircle else { continue }
        if items[a].isDeletion ? unitOf[a] > unitOf[b] : unitOf[a] < unitOf[b] { return "r\(a) refers to r\(b)" }
      }
    }
    return brokenTie(places, isDeletion)
  }

  /// A unit goes before one that comes earlier in the log only where something that comes no later than that one leads to it;
  /// for deletions all of it is the other way round.
  private func brokenTie(_ places: [[Int]], _ isDeletion: (Int) -> Bool) -> String? {
    for left in places.indices {
      for right in places.indices where left < right && isDeletion(left) == isDeletion(right) {
        let (before, after) = (places[left], places[right])
        let isMoved: Bool
        if isDeletion(left) {
          guard let last = after.last, let end = before.last, last < end else { continue }
          isMoved = items.indices.contains { item in item >= end && after.contains { leads(item, to: $0) } }
        } else {
          guard let first = before.first, let start = after.first, first > start else { continue }
          isMoved = items.indices.contains { item in item <= start && before.contains { leads(item, to: $0) } }
        }
        if !isMoved { return "r\(before[0]) goes before r\(after[0]), and nothing asks for it" }
      }
    }
    return nil
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The units of an upload` {
  @Test func `hold in every graph whole circles, targets first, each record once, and ties in order`() {
    var (circles, moved, deletions) = (0, 0, 0)
    for seed in UInt64(1)...2_000 {
      let graph = Graph(seed: seed)
      let units = UploadPlan.units(graph.items)
      if let broken = graph.broken(units) {
        Issue.record("graph \(seed): \(broken): \(units.map { $0.map(\.id.name) }) of \(graph.items)")
        return
      }
      circles += units.count { $0.count > 1 }
      deletions += units.count { $0[0].isDeletion }
      if Array(units.joined()) != graph.items { moved += 1 }
    }
    // The graphs are of all kinds.
    #expect(circles > 250 && moved > 1_000 && deletions > 1_000, "\(circles) circles, \(moved), \(deletions)")
  }
}
