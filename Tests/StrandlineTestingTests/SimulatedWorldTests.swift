// The simulated world: a slice of the random worlds, and that a broken promise is found, shrunk, and repeated by what the
// failure says. The whole campaign runs in release through `strandline simulate`.

import Strandline
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `Simulated worlds` {
  @Test func `keep every promise`() async {
    let first = ProcessEnvironment.value(of: "STRANDLINE_SEED").flatMap { UInt64($0) } ?? 1
    let count = ProcessEnvironment.value(of: "STRANDLINE_WORLDS").flatMap { UInt64($0) } ?? (Campaign.isWhole ? 40 : 8)
    var tally = WorldTally()
    for seed in first..<first + count {
      let outcome = await SimulatedWorld(seed: seed, devices: 2 + Int(seed % 4)).run(keepsHistory: false)
      if let failure = outcome.failure {
        Issue.record(failure)
        return
      }
      tally.add(outcome.tally)
    }
    print("worlds: \(count), \(tally)")
    if count >= 40 { #expect(tally.missing(with: .all).filter { $0 != .recognized } == []) }
  }

  /// The check of the documentation's example, in other worlds than there.
  @Test func `keep what an app checks in them`() async {
    let seeds = Campaign.seeds(21...100, every: 20)
    for seed in seeds {
      var world = SimulatedWorld(seed: seed, devices: 3, faults: [.power, .app])
      world.check { stores in
        let counts = try stores.map { try $0.recordIDs(ofType: "Note").count }
        return Set(counts).count == 1 ? nil : "the devices count \(counts) notes"
      }
      let failure = await world.run().failure
      #expect(failure == nil, "\(failure.map { "\($0)" } ?? "")")
    }
    print("worlds with the check of an app: \(seeds.count)")
  }

  @Test func `count what several devices add alike, and go by no time of two nodes`() async {
    let tally = await Self.tally("equal edits and two nodes", [.equal, .nodes, .network, .stale, .power, .compaction])
    #expect(tally[.equalWrite] > 0 && tally[.otherNode] > 0)
  }

  /// Runs worlds with some faults, and records the first that breaks a promise.
  private static func tally(_ words: String, _ faults: WorldFaults) async -> WorldTally {
    var tally = WorldTally()
    let seeds = Campaign.seeds(1...200, every: 20)
    for seed in seeds {
      let world = SimulatedWorld(seed: seed, devices: 2 + Int(seed % 3), faults: faults)
      let outcome = await world.run(keepsHistory: false)
      if let failure = outcome.failure {
        Issue.record(failure)
        break
      }
      tally.add(outcome.tally)
    }
    print("worlds of \(words): \(seeds.count), \(tally)")
    return tally
  }

  @Test func `let defaults give way to what people write and delete, and lose none`() async {
    let tally = await Self.tally("defaults", [.defaults, .network, .power, .tokens, .app, .compaction, .copies])
    #expect(tally[.savedDefault] > 0 && tally[.knownDefault] > 0 && tally[.editedDefault] > 0)
  }

  /// Worlds that once broke a promise, shrunk to the steps that did, and what they show.
  static let famous: [FamousWorld] = [
    FamousWorld(
      "a page that a full disk refused is more than memory holds, and the disk has room again", seed: 600_965,
      devices: 3,
      steps: [28, 120, 191, 33, 34, 121, 156]),
    FamousWorld(
      "a disk has room again before the next flush of what memory holds is tried", seed: 500_369, devices: 3,
      steps: [9, 80, 143, 144, 48, 50, 133, 53, 81, 67]),
    FamousWorld(
      "a copy and its original merge the increment that both have pending", seed: 400_380, devices: 2,
      steps: [207, 64, 65, 69, 202, 203, 210, 211, 77, 98, 99, 100, 183, 106]),
    FamousWorld(
      "two records refer to each other, and the refusal of one is a reference of the other", seed: 309_479, devices: 5,
      steps: [21, 35, 53, 58, 59, 66, 82, 87, 98]),
    FamousWorld(
      "a record is deleted while the save that takes a reference to it away is over quota", seed: 568, devices: 2,
      steps: [10, 48, 59, 67, 69, 74, 77]),
    FamousWorld(
      "a record is deleted while the save that takes a reference to it away is refused for now", seed: 11_281,
      devices: 3, steps: [18, 19, 25, 34, 37], without: WorldFaults.all.subtracting([.refusals, .references])),
    FamousWorld(
      "a deletion waits for what goes together with a record that is refused", seed: 10_408, devices: 2,
      steps: [13, 18, 19, 67, 70, 71, 79], without: WorldFaults.all.subtracting([.refusals, .references])),
    FamousWorld(
      "a copy edits what it was copied with before either knows of the other", seed: 20_566, devices: 4,
      steps: [3, 23, 49, 54, 68]),
    FamousWorld(
      "a clock is put right, the power is cut, and the log's word on the server's clock is years off", seed: 20_669,
      devices: 3, steps: [14, 16, 20, 31, 50, 73, 83, 110, 114, 115]),
    FamousWorld(
      "a right time is replaced knowingly by that of a clock that was set back", seed: 11_584, devices: 2,
      steps: [40, 41, 100, 102, 113]),
    FamousWorld(
      "a deletion waits for a reference that another device has taken away since", seed: 10_553, devices: 3,
      steps: [21, 44, 47, 65, 69, 78, 80, 84, 87]),
    FamousWorld(
      "each of two devices deletes one of a record's two lives, and both go on writing it", seed: 900_209, devices: 3,
      steps: [10, 20, 23, 31, 34, 49, 50, 57, 60, 62, 65, 66], without: [.stale, .refusals]),
    FamousWorld(
      "a record is deleted while the zone is made to which its transaction is about to go", seed: 872, devices: 2,
      steps: [143, 158, 160, 161, 162]),
    FamousWorld(
      "one of a transaction is refused, and another one refers to what was deleted elsewhere", seed: 264, devices: 2,
      steps: [5, 22, 24, 43, 53, 94, 130]),
    FamousWorld(
      "two records refer to each other, and the server has lost one of them with its zone", seed: 58_906, devices: 4,
      steps: [7, 26, 28, 35, 56, 59, 70]),
    FamousWorld(
      "a page that is behind shows what a copy wrote under the writer number of the original", seed: 58_984, devices: 2,
      steps: [17, 19, 42, 43, 50, 54, 61, 65, 76, 79, 85, 90, 101, 107]),
    FamousWorld(
      "the app deletes a record while the refused deletion of its old life waits", seed: 59_266, devices: 4,
      steps: [7, 47, 48, 49, 51, 53, 55, 62, 64, 68, 77, 79, 80, 97, 99, 114, 115, 116]),
    FamousWorld(
      "a deletion waits for a save that becomes a deletion, which is refused", seed: 60_968, devices: 2,
      steps: [2, 13, 18, 20, 22, 23, 90, 93, 96]),
    FamousWorld(
      "of records that go together one is held, and what keeps the others back leads back to them", seed: 65_100,
      devices: 2, steps: [3, 5, 6, 16, 20, 35, 43, 54]),
    FamousWorld(
      "a record of a transaction is deleted while the transaction waits for what it needed", seed: 75_697, devices: 3,
      steps: [34, 35, 36, 37, 54, 60, 80, 99]),
    FamousWorld(
      "a transaction waits for what refers to its deletion, and both end with one page", seed: 59_891, devices: 5,
      steps: [23, 24, 26, 31, 40, 64, 83, 84, 86]),
    FamousWorld(
      "three lives of one name after a copy, each deleted by another device while it is edited", seed: 60_141,
      devices: 3, steps: [19, 26, 28, 30, 34, 35, 37, 40, 46, 49, 54, 70, 71, 74]),
    FamousWorld(
      "an old page shows a record that the server has lost and got again since from a disk put back", seed: 100_021,
      devices: 3, steps: [7, 8, 25, 36, 48, 50, 57, 58, 69, 73, 77, 81, 84, 86]),
    FamousWorld(
      "a record is not found, and the feed from its beginning is asked again later", seed: 217_959, devices: 5,
      steps: [2, 6, 22, 27, 75, 91, 92, 95]),
    FamousWorld(
      "the clock of a copy is set ahead, and the original writes the same field later", seed: 231_578, devices: 4,
      steps: [20, 50, 56, 58, 62, 67, 76]),
    FamousWorld(
      "a full fetch of a disk put back meets a page of before, with the end of an earlier life", seed: 205_964,
      devices: 2, steps: [20, 24, 26, 38, 39, 52, 83, 85, 90, 94, 96, 97, 99, 107, 115, 118]),
    FamousWorld(
      "a listed name is created and deleted here before the listed record is fetched", seed: 301_810, devices: 4,
      steps: [3, 12, 13, 37, 39, 41, 42, 50, 51, 55, 59, 60, 67, 68]),
    FamousWorld(
      "a refused record is edited so that it refers to a transaction that waits for it", seed: 405_070, devices: 4,
      steps: [14, 28, 39, 48, 53]),
    FamousWorld(
      "a record at the server waits for a refused one, and another record refers to it", seed: 411_703, devices: 5,
      steps: [23, 34, 60, 87, 104, 108]),
    FamousWorld(
      "two records refer to each other, and one of them to a third, which is held", seed: 478_881, devices: 3,
      steps: [32, 36, 41, 43, 59, 60, 72, 90, 100]),
    FamousWorld(
      "a disk is put back, and knows of the first of two writes that it has sent", seed: 421_134, devices: 4,
      steps: [2, 5, 15, 32, 34, 72, 120, 122]),
    FamousWorld(
      "the lookup after a conflict finds the zone gone, which is then made anew", seed: 405_214, devices: 4,
      steps: [20, 67, 68, 86, 107, 110]),
    FamousWorld(
      "a zone is deleted while a resync goes on that a power cut has interrupted", seed: 200_591, devices: 5,
      steps: [3, 121, 129, 22, 156, 38, 39, 40, 41, 53, 54, 70, 75], with: .later.union(.alone)),
    FamousWorld(
      "an old answer has the pages of two zones, and a power cut has kept the token of one", seed: 3_001_386,
      devices: 4, steps: [142, 30, 164, 39, 46, 68, 69, 73, 74, 81, 82, 86, 88, 89, 101, 102, 103, 106],
      with: .later.union(.alone)),
    FamousWorld(
      "a cut process has created what another device deletes, and the feed of the next one repeats itself", seed: 836,
      devices: 2, steps: [2, 3, 7, 87, 8, 10, 11, 93, 100, 109, 20, 27, 28, 30, 95, 96, 43, 51],
      with: .later.union(.alone)),
    FamousWorld(
      "a disk put back deletes what it may have sent to a zone that the server has never had", seed: 9_000_529,
      devices: 3, steps: [163, 135, 10, 13, 172, 77, 169, 170], with: .later.union(.alone)),
  ]

  @Test(arguments: famous) func `keep their promises where they once did not`(_ world: FamousWorld) async {
    var again = SimulatedWorld(seed: world.seed, devices: world.devices, faults: world.faults)
    again.steps = world.steps
    if let failure = await again.run(shrinks: false).failure { Issue.record("\(world): \(failure)") }
  }

  @Test func `have one history for a seed`() async {
    for seed in UInt64(1)...4 {
      let world = SimulatedWorld(seed: seed, devices: 3, faults: .all)
      let (one, two) = (await world.run(shrinks: false), await world.run(shrinks: false))
      #expect(one.history == two.history && one.tally == two.tally && !one.history.isEmpty)
      // The same world, not told.
      let three = await world.run(shrinks: false, keepsHistory: false)
      #expect(three.tally == one.tally && three.history.isEmpty)
      #expect(one.failure?.message == two.failure?.message)
    }
  }

  @Test func `have one trace of requests for a seed, and are no other world with it`() async {
    for seed in Campaign.seeds(1...20, every: 5) {
      let world = SimulatedWorld(seed: seed, devices: 2 + Int(seed % 4))
      let one = await world.run(shrinks: false, keepsHistory: true, tracesRequests: true)
      let two = await world.run(shrinks: false, keepsHistory: true, tracesRequests: true)
      #expect(one.requests.map { Array($0.utf8) } == two.requests.map { Array($0.utf8) }, "seed \(seed)")
      let plain = await world.run(shrinks: false)
      #expect(plain.history == one.history && plain.tally == one.tally && plain.requests.isEmpty, "seed \(seed)")
      #expect(one.requests.allSatisfy { line in line.hasPrefix("end ") || line.contains(" -> ") }, "seed \(seed)")
      #expect(!one.requests.contains { $0.utf8.contains(UInt8(ascii: "\n")) })
      let ends = one.requests.filter { $0.hasPrefix("end ") }
      // All have come to hold the same.
      let digests = Set(ends.map { $0.split(separator: " ", maxSplits: 1)[1].split(separator: " has ").last })
      #expect(digests.count == 1 && ends.count > world.devices, "seed \(seed): \(ends)")
    }
  }

  @Test func `that broke a promise say so at the end of their trace`() async {
    var world = SimulatedWorld(seed: 5, devices: 2, faults: [])
    world.check { _ in "a demand that no world keeps" }
    let outcome = await world.run(shrinks: false, keepsHistory: false, tracesRequests: true)
    #expect(outcome.requests.last == "end the world broke a promise: app" && outcome.requests.count > 10)
  }

  @Test func `are shrunk to what breaks a promise, and repeated by its steps`() async throws {
    var world = SimulatedWorld(seed: 5, devices: 3, faults: [])
    // A demand that most worlds break: it holds only where nobody has written a title.
    world.check { stores in
      for store in stores {
        for id in try store.recordIDs() where try store.record(id)?["title"] != nil { return "\(id) has a title" }
      }
      return nil
    }
    let failure = try #require(await world.run().failure)
    #expect(failure.invariant == .app && failure.message.hasSuffix("has a title"))
    // One write of a title is enough.
    #expect(failure.steps.count == 1)
    #expect(
      failure.command
        == "strandline simulate --seed 5 --devices 3 --faults none --steps \(failure.steps[0])")
    var again = world
    again.steps = Set(failure.steps)
    let outcome = await again.run()
    #expect(outcome.failure?.message == failure.message && outcome.failure?.history == failure.history)
    again.steps = []
    #expect(await again.run().failure == nil)
  }

  @Test func `of a week have seven days`() async {
    let outcome = await SimulatedWorld(seed: 3, devices: 2, days: 7, faults: []).run()
    #expect(outcome.failure == nil)
    // The pauses are random, and the rest takes some hours.
    let days = Double(outcome.tally.deviceMilliseconds) / 2 / 86_400_000
    #expect(days > 5 && days < 10)
    #expect(outcome.tally.steps > 350)
  }

  @Test func `have faults with names`() {
    #expect(WorldFaults(names: "none") == [] && WorldFaults(names: "all") == .all)
    #expect(WorldFaults(names: "network,power") == [.network, .power])
    #expect(WorldFaults(names: "network,,power") == nil && WorldFaults(names: "weather") == nil)
    #expect(WorldFaults([.power, .network]).description == "network,power")
    #expect(WorldFaults.all.description == "all" && WorldFaults().description == "none")
    for group in WorldFaults.each { #expect(WorldFaults(names: group.description) == group) }
  }

  @Test func `say which cases never occurred`() {
    var tally = WorldTally()
    #expect(tally.missing(with: []).contains(.merged) && !tally.missing(with: []).contains(.powerCut))
    #expect(tally.missing(with: .power).contains(.powerCut))
    tally.add(tally)
    #expect("\(tally)" == "0 steps, 0 requests")
  }
}

/// A world that once broke a promise.
struct FamousWorld: CustomTestStringConvertible, Sendable {
  /// What it shows.
  let story: String
  let seed: UInt64
  let devices: Int
  let steps: Set<Int>
  let faults: WorldFaults

  /// - Parameter more: groups that were added later; else it has none of them.
  init(
    _ story: String, seed: UInt64, devices: Int, steps: Set<Int>, without missing: WorldFaults = [],
    with more: WorldFaults = []
  ) {
    (self.story, self.seed, self.devices, self.steps) = (story, seed, devices, steps)
    faults = WorldFaults.all.subtracting(missing).subtracting(.later.union(.alone)).union(more)
  }

  var testDescription: String { "\(seed): \(story)" }
}
