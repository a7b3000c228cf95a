// Goal: a content that a record names is there, whole, whatever call was the last one; one that nothing needs is removed, and none before.
// Method: single histories with a clock that the test turns; and one history whose every state of the disk, with each loss that a power
// cut allows, is opened, checked against what was acknowledged, and used.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Testing

private let day: Duration = .seconds(24 * 3_600)
private let id = RecordID("picture")

private func bytes(_ number: Int, count: Int = 5_000) -> [UInt8] { SeededRandom(seed: UInt64(number)).bytes(count) }

private func hash(_ bytes: [UInt8]) -> ContentHash {
  guard let hash = ContentHash(SHA256Digest.of(bytes)) else { preconditionFailure("a SHA-256 has 32 bytes") }
  return hash
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do {
    try await body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

private func asset(_ bytes: [UInt8]) -> Asset { Asset(contentHash: hash(bytes), size: Int64(bytes.count)) }

private func counts(_ count: Int, _ bytes: Int64) -> StoreStatus.Contents {
  StoreStatus.Contents(count: count, bytes: bytes, staged: 0)
}

private func picture(_ asset: Asset, title: String = "Pier") -> Record {
  Record(type: "Picture", id: id, fields: ["title": .string(title), "photo": .asset(asset)])
}

/// A store on a simulated disk.
private final class Scene {
  private(set) var disk: SimulatedDisk
  let clock: SimulatedClock
  private(set) var store: RecordStore
  var options: StoreOptions

  init(
    _ disk: SimulatedDisk = SimulatedDisk(), clock: SimulatedClock = SimulatedClock(),
    options: StoreOptions = StoreOptions()
  ) throws {
    (self.disk, self.clock, self.options) = (disk, clock, options)
    store = try Self.open(disk, clock, options)
  }

  static func open(_ disk: SimulatedDisk, _ clock: SimulatedClock, _ options: StoreOptions) throws -> RecordStore {
    try RecordStore.openBlocking(
      at: "/store", options: options, environment: .simulated(disk: disk, clock: clock, seed: 7))
  }

  func reopen() throws {
    try store.closeBlocking()
    store = try Self.open(disk, clock, options)
  }

  /// The process dies; what it has written stays.
  func crash() throws {
    disk = disk.imageAfterCrash(.none)
    store = try Self.open(disk, clock, options)
  }

  func save(_ asset: Asset, title: String = "Pier") throws {
    try store.writeBlocking { try $0.save(picture(asset, title: title)) }
  }

  func content(_ bytes: [UInt8]) -> [UInt8]? { disk.peek("/store/assets/\(hash(bytes).hexadecimal)") }

  /// The names in the folder of contents, but for the file of staged names.
  var names: [String] { disk.contentNames }

  /// What is wrong with the contents, by what the log says.
  func check() throws -> ContentCheck { try disk.checkContents() }
}

extension SimulatedDisk {
  fileprivate var contentNames: [String] {
    paths.filter { $0.hasPrefix("/store/assets/") }.map { String($0.dropFirst("/store/assets/".count)) }
      .filter { $0 != "staged" }
  }

  fileprivate func checkContents(at path: String = "/store") throws -> ContentCheck {
    var projections = Projections()
    let environment = StoreEnvironment.simulated(disk: self, seed: 1).system
    let reader = try LogReader.open(at: path, role: .store, environment: environment)
    try reader.poll { try projections.apply($0.decoded(), at: LSN($0.lsn), isDurable: true) }
    return try ContentCheck(of: projections.contents, in: reader.folder)
  }
}

@Suite(.timeLimit(.minutes(30)))
struct StoreContentsTests {
  // MARK: Staging

  @Test func `a staged content is there when its record is, and the file is not needed any more`() async throws {
    let scene = try Scene()
    let content = bytes(1, count: 3_000_000)
    scene.disk.poke("/photos/pier.jpg", content)
    let staged = try await scene.store.stage(contentsOf: "/photos/pier.jpg")
    #expect(staged.asset == asset(content))
    #expect("\(staged)" == "staged content of 3,000,000 bytes" || "\(staged)" == "staged content of 3000000 bytes")
    scene.disk.pokeRemove("/photos/pier.jpg")
    try scene.save(staged.asset)
    #expect(scene.content(content) == content)
    #expect(try scene.store.record(id)?["photo"] == .asset(asset(content)))
    #expect(try scene.check().findings.isEmpty)
    #expect(try scene.store.status().contents == counts(1, 3_000_000))
  }

  @Test func `equal contents are stored once, and pieces make the same content as the whole`() async throws {
    let scene = try Scene()
    let content = bytes(2)
    let first = try await scene.store.stage(content)
    let (pieces, continuation) = AsyncStream<[UInt8]>.makeStream()
    for start in stride(from: 0, to: content.count, by: 777) {
      continuation.yield(Array(content[start..<min(content.count, start + 777)]))
    }
    continuation.finish()
    let second = try await scene.store.stage(pieces: pieces)
    #expect(first.asset == second.asset)
    #expect(scene.names == [hash(content).hexadecimal])
    let empty = try await scene.store.stage([])
    #expect(empty.asset == asset([]) && scene.content([]) == [])
  }

  @Test func `a damaged content is whole again when it is staged again`() async throws {
    let scene = try Scene()
    let content = bytes(4)
    try scene.save(try await scene.store.stage(content).asset)
    scene.disk.poke("/store/assets/\(hash(content).hexadecimal)", bytes(5))
    #expect(try !scene.check().findings.isEmpty)
    _ = try await scene.store.stage(content)
    #expect(scene.content(content) == content && scene.names.count == 1)
    #expect(try scene.check().findings.isEmpty)
  }

  @Test func `what another writer has staged since is kept after a suspension`() async throws {
    let scene = try Scene()
    _ = try await scene.store.stage(bytes(6))
    try scene.store.suspendBlocking()
    let other = try Scene.open(scene.disk, scene.clock, scene.options)
    _ = try await other.stage(bytes(7))
    try other.closeBlocking()
    try scene.store.resumeBlocking()
    try scene.store.compactBlocking()
    #expect(scene.content(bytes(7)) != nil)
    try scene.reopen()
    #expect(scene.content(bytes(7)) != nil)
  }

  @Test func `what cannot be kept leaves nothing behind`() async throws {
    var options = StoreOptions()
    options.assetBytesMax = 1_000
    let scene = try Scene(options: options)
    scene.disk.poke("/large", bytes(3, count: 1_001))
    #expect(await code { _ = try await scene.store.stage(contentsOf: "/large") } == .tooLarge)
    #expect(await code { _ = try await scene.store.stage(bytes(3, count: 1_001)) } == .tooLarge)
    let (pieces, continuation) = AsyncStream<[UInt8]>.makeStream()
    continuation.yield(bytes(3, count: 900))
    continuation.yield(bytes(4, count: 101))
    continuation.finish()
    #expect(await code { _ = try await scene.store.stage(pieces: pieces) } == .tooLarge)
    #expect(await code { _ = try await scene.store.stage(contentsOf: "/absent") } == .io)
    #expect(scene.names == [])
    #expect(try await scene.store.stage(bytes(3, count: 1_000)).asset.size == 1_000)
    scene.disk.capacity = scene.disk.usedBytes
    #expect(await code { _ = try await scene.store.stage(bytes(4, count: 1_000)) } == .diskFull)
    #expect(scene.names.filter { $0.hasSuffix(".tmp") } == [])
    scene.disk.capacity = nil
    #expect(try await scene.store.stage(bytes(4, count: 1_000)).asset.size == 1_000)
  }

  @Test func `a transaction that names a content that is not there is refused, in the app's words`() async throws {
    let scene = try Scene()
    let absent = asset(bytes(5))
    let error = #expect(throws: StrandlineError.self) { try scene.save(absent) }
    #expect(error?.code == .noSuchContent)
    let words = "record 'Main/picture', field 'photo': the content \(absent.hexadecimalStart)"
    #expect(error?.message.contains(words) == true, "\(error?.message ?? "")")
    let staged = try await scene.store.stage(bytes(5))
    #expect(
      await code {
        try scene.save(Asset(contentHash: hash(bytes(5)), size: staged.asset.size + 1))
      } == .invalidValue)
    try scene.save(staged.asset)
    #expect(await code { try scene.save(absent.other) } == .noSuchContent)
    let list = FieldValue.list(.assets, [.asset(staged.asset), .asset(absent.other)])
    #expect(
      await code {
        let album = Record(type: "Album", id: RecordID("album"), fields: ["photos": list])
        try scene.store.writeBlocking { try $0.save(album) }
      } == .noSuchContent)
  }

  // MARK: Kept and removed

  @Test func `a content stays as long as the history names it, and goes with the compaction that removes that`()
    async throws
  {
    let scene = try Scene()
    let (old, new) = (bytes(10), bytes(11))
    try scene.save(try await scene.store.stage(old).asset)
    try scene.save(try await scene.store.stage(new).asset)
    scene.clock.advance(by: day * 2)
    try scene.reopen()
    #expect(scene.content(old) == old, "the history names it")
    try scene.store.compactBlocking(keeping: .all)
    #expect(scene.content(old) == old)
    try scene.store.compactBlocking(keeping: .latest)
    #expect(scene.content(old) == nil)
    #expect(scene.content(new) == new)
    #expect(try scene.check().findings.isEmpty)
    try scene.store.writeBlocking { try $0.delete(id) }
    try scene.store.compactBlocking(keeping: .latest)
    // Nobody has heard of the deletion: it is owed, and so nothing of the record is needed but its name.
    #expect(scene.names == [])
    #expect(try scene.store.status().contents == counts(0, 0))
  }

  @Test func `what is held is not removed, and what nobody names is a day after it was staged`() async throws {
    let scene = try Scene()
    let content = bytes(12)
    var staged: StagedContent? = try await scene.store.stage(content)
    scene.clock.advance(by: day * 3)
    try scene.store.compactBlocking()
    #expect(scene.content(content) == content, "held: \(staged.map { "\($0)" } ?? "")")
    staged = nil
    try scene.store.compactBlocking()
    #expect(scene.content(content) == nil)

    _ = try await scene.store.stage(content)
    scene.clock.advance(by: day - .seconds(1))
    try scene.reopen()
    #expect(scene.content(content) == content)
    #expect(try scene.store.status().contents.staged == 1)
    try scene.save(asset(content))
    scene.clock.advance(by: day)
    try scene.reopen()
    #expect(scene.content(content) == content, "a record names it")

    _ = try await scene.store.stage(bytes(13))
    scene.clock.advance(by: day)
    // The next stage sees that one has waited for too long.
    _ = try await scene.store.stage(bytes(14))
    #expect(scene.content(bytes(13)) == nil)
    #expect(scene.content(bytes(14)) != nil)
    // A clock that is set back makes no content stay for longer.
    scene.clock.turnWallClock(by: .zero - day * 30)
    try scene.reopen()
    scene.clock.advance(by: day)
    try scene.reopen()
    #expect(scene.names == [hash(content).hexadecimal])
  }

  @Test func `a transaction that fails names nothing, and one that is undone names it again`() async throws {
    struct Enough: Error {}
    let scene = try Scene()
    let (old, new) = (bytes(15), bytes(16))
    let staged = try await scene.store.stage(old)
    #expect(throws: Enough.self) {
      try scene.store.writeBlocking { tx in
        try tx.save(picture(staged.asset))
        throw Enough()
      }
    }
    #expect(try scene.store.status().contents.count == 0)
    try scene.save(staged.asset)
    try scene.save(try await scene.store.stage(new).asset)
    // What an undo does: the history has the old one, so its content is there.
    try scene.save(asset(old))
    try scene.store.compactBlocking()
    #expect(scene.content(old) == old)
    #expect(try scene.check().findings == [])
  }

  @Test func `a damaged list of staged names keeps what it may have named for another day`() async throws {
    let scene = try Scene()
    let content = bytes(17)
    _ = try await scene.store.stage(content)
    try scene.store.closeBlocking()
    var staged = try #require(scene.disk.peek("/store/assets/staged"))
    staged[9] ^= 0x40
    scene.disk.poke("/store/assets/staged", staged)
    scene.disk.poke("/store/assets/0123456789abcdef.tmp", [1])
    scene.disk.poke("/store/assets/notes.txt", [1])
    let second = try Scene(scene.disk, clock: scene.clock)
    #expect(second.names == [hash(content).hexadecimal, "notes.txt"].sorted(), "the app's own file is left alone")
    second.clock.advance(by: day)
    try second.reopen()
    #expect(second.names == ["notes.txt"])
  }

  @Test func `a store that is suspended and resumed goes on, and its contents with it`() async throws {
    let scene = try Scene()
    let staged = try await scene.store.stage(bytes(18))
    try scene.store.suspendBlocking()
    #expect(await code { _ = try await scene.store.stage(bytes(19)) } == .suspended)
    try scene.store.resumeBlocking()
    try scene.save(staged.asset)
    try scene.store.closeBlocking()
    #expect(await code { _ = try await scene.store.stage(bytes(19)) } == .closed)
    let reader = try RecordStore.openReadOnlyBlocking(
      at: "/store", environment: .simulated(disk: scene.disk, seed: 9))
    #expect(await code { _ = try await reader.stage(bytes(19)) } == .readOnly)
    #expect(try reader.status().contents == counts(1, 5_000))
  }

  @Test func `the sorted tables know which events name a content`() async throws {
    var log = LogOptions()
    log.segmentBytesMax = 8 << 10
    log.upkeep = .onDemand
    var index = IndexOptions()
    (index.flushCount, index.closeCount, index.mergeWidth) = (8, 1, 3)
    let options = StoreOptions(log: log, index: index)
    let scene = try Scene(options: options)
    var kept: [ContentHash] = []
    for number in 0..<40 {
      let staged = try await scene.store.stage(bytes(100 + number, count: 100))
      try scene.store.writeBlocking {
        try $0.save(Record(type: "Picture", id: RecordID("p\(number)"), fields: ["photo": .asset(staged.asset)]))
      }
      kept.append(try #require(staged.asset.contentHash))
    }
    try scene.reopen()
    scene.clock.advance(by: day * 2)
    try scene.reopen()
    let known = scene.store.projections.withLock { $0.contents }
    #expect(known.all.map(\.hash) == kept.sorted())
    #expect(try scene.check().findings.isEmpty && scene.check().unnamed == 0)
    let comparison = try #require(
      try IndexComparison(at: "/store", environment: StoreEnvironment.simulated(disk: scene.disk, seed: 3).system))
    var folded = Projections()
    let reader = try LogReader.open(
      at: "/store", role: .store, environment: StoreEnvironment.simulated(disk: scene.disk, seed: 4).system)
    try reader.poll { try folded.apply($0.decoded(), at: LSN($0.lsn), isDurable: true) }
    #expect(try comparison.contradiction(of: folded) == nil)
  }

  // MARK: Copies

  @Test func `a backup has the contents, and a damaged one is not copied`() async throws {
    let scene = try Scene()
    let content = bytes(20)
    try scene.save(try await scene.store.stage(content).asset)
    let report = try scene.store.backupBlocking(to: "/copy")
    #expect(report.contentBytes == 5_000)
    #expect(scene.disk.peek("/copy/assets/\(hash(content).hexadecimal)") == content)
    #expect(try scene.disk.checkContents(at: "/copy").findings.isEmpty)
    // The copy removes nothing of the original, and the original nothing of the copy.
    let copy = try RecordStore.openBlocking(at: "/copy", environment: .simulated(disk: scene.disk, seed: 8))
    try copy.writeBlocking { try $0.delete(id) }
    try copy.compactBlocking()
    #expect(scene.content(content) == content)
    #expect(scene.disk.peek("/copy/assets/\(hash(content).hexadecimal)") == nil)
    try copy.closeBlocking()

    var damaged = content
    damaged[100] ^= 1
    scene.disk.poke("/store/assets/\(hash(content).hexadecimal)", damaged)
    #expect(await code { try scene.store.backupBlocking(to: "/second") } == .damaged)
    #expect(!scene.disk.directoryPaths.contains("/second"))
    let check = try scene.check()
    #expect(check.findings.map(\.words) == ["its bytes are not those of which it has the hash as its name"])
    scene.disk.pokeRemove("/store/assets/\(hash(content).hexadecimal)")
    #expect(try scene.check().findings.map(\.words) == ["a record names this content, and it is not there"])
  }

  @Test func `a repaired store has the contents that its events name`() async throws {
    let scene = try Scene()
    let (kept, lost) = (bytes(21), bytes(22))
    try scene.save(try await scene.store.stage(kept).asset)
    let second = try await scene.store.stage(lost)
    try scene.store.writeBlocking {
      try $0.save(Record(type: "Picture", id: RecordID("second"), fields: ["photo": .asset(second.asset)]))
    }
    try scene.store.writeBlocking { try $0.save(Record(type: "Picture", id: RecordID("third"), fields: [:])) }
    try scene.store.closeBlocking()
    let segment = try #require(scene.disk.paths.first { $0.hasPrefix("/store/") && $0.hasSuffix(".seg") })
    var log = try #require(scene.disk.peek(segment))
    let place = try #require(log.firstRange(of: Array("second".utf8)))
    log[place.lowerBound] ^= 1
    scene.disk.poke(segment, log)
    let repair = try StoreRepair(at: "/store", environment: .simulated(disk: scene.disk, seed: 10))
    let plan = repair.plan
    #expect(plan.isNeeded && plan.beside.contents.count == 1 && plan.beside.contents.findings == [])
    try repair.apply(into: "/new")
    #expect(scene.disk.peek("/new/assets/\(hash(kept).hexadecimal)") == kept)
    #expect(scene.disk.peek("/new/assets/\(hash(lost).hexadecimal)") == nil, "no event that was kept names it")
    #expect(scene.content(lost) == lost, "the damaged store was not changed")
  }

  // MARK: Beside a sync that uploads no contents

  @Test func `a record whose content is here alone is held by name, and everything else is sent`() async throws {
    let scene = try Scene()
    try scene.save(try await scene.store.stage(bytes(25)).asset)
    try scene.store.writeBlocking {
      try $0.save(Record(type: "Picture", id: RecordID("plain"), fields: ["title": "T"]))
    }
    try scene.store.closeBlocking()
    var syncing = SyncConfiguration.simulated(SimulatedCloud())
    let make = syncing.makeDatabase
    syncing.makeDatabase = { StillContents(base: try make($0, $1)) }
    let store = try await RecordStore.open(
      at: "/store", syncing: syncing, environment: .simulated(disk: scene.disk, clock: scene.clock, seed: 7))
    #expect(try await store.sync().uploaded == 1)
    let held = try store.heldRecords()
    #expect(held.map(\.id) == [id] && held.first?.code == .unsupported)
    #expect(
      held.first?.reason == "the content of field 'photo': this transport uploads no contents of assets")
    let staged = try await store.stage(bytes(26))
    let refused = await code {
      _ = try await store.write {
        try $0.save(Record(type: "Picture", id: RecordID("x"), fields: ["photo": .asset(staged.asset)]))
      }
    }
    #expect(refused == .invalidValue)
    // Without the asset it is sent.
    try await store.write { try $0.save(Record(type: "Picture", id: id, fields: ["title": "No photo"])) }
    #expect(try await store.sync().uploaded == 1)
    try await store.close()
  }

  // MARK: A power cut at every call

  /// What was acknowledged when the disk had counted so many calls.
  private struct Acknowledged {
    var calls: Int
    /// What is staged, and held or younger than a day.
    var staged: [UInt8]?
    /// The record's photo.
    var named: [UInt8]?
  }

  @Test func `a power cut at any call leaves no record without its content and no file for ever`() async throws {
    let disk = SimulatedDisk()
    let clock = SimulatedClock()
    let scene = try Scene(disk, clock: clock)
    try scene.store.writeBlocking { try $0.save(Record(type: "Picture", id: RecordID("other"), fields: [:])) }
    disk.keepsHistory = true
    let start = disk.callCount
    var marks: [Acknowledged] = []
    func mark(staged: [UInt8]? = nil, named: [UInt8]?) {
      marks.append(Acknowledged(calls: disk.callCount - start, staged: staged, named: named))
    }
    let (first, second, third) = (bytes(30, count: 700), bytes(31, count: 700), bytes(32, count: 700))
    mark(named: nil)
    var staged: StagedContent? = try await scene.store.stage(first)
    mark(staged: first, named: nil)
    if let staged { try scene.save(staged.asset) }
    mark(named: first)
    staged = try await scene.store.stage(second)
    mark(staged: second, named: first)
    if let staged { try scene.save(staged.asset) }
    mark(named: second)
    staged = try await scene.store.stage(third)
    mark(staged: third, named: second)
    try scene.store.compactBlocking()
    mark(staged: third, named: second)
    staged = nil
    // Again, while its file is there.
    staged = try await scene.store.stage(third)
    try scene.save(asset(third), title: "Tide")
    mark(named: third)
    try scene.store.writeBlocking { try $0.delete(id) }
    mark(named: nil)
    try scene.store.compactBlocking()
    withExtendedLifetime(staged) {}
    var cases = 0
    for (calls, image) in (disk.history + [disk.clone()]).enumerated() {
      let acknowledged = try #require(marks.last { $0.calls <= calls })
      let begun = marks.first { $0.calls > calls }
      for loss in image.crashLosses() {
        cases += 1
        try await judge(image.imageAfterCrash(loss), acknowledged, begun, "call \(calls), \(loss)")
      }
    }
    #expect(cases > 300, "\(cases)")
  }

  /// Opens what a power cut has left.
  private func judge(
    _ disk: SimulatedDisk, _ acknowledged: Acknowledged, _ begun: Acknowledged?, _ place: String
  ) async throws {
    let scene = try Scene(disk, clock: SimulatedClock())
    let photo = try scene.store.record(id)?["photo"]
    let legal = [acknowledged.named, begun?.named].map { $0.map { FieldValue.asset(asset($0)) } }
    #expect(legal.contains(photo), "\(place)")
    let check = try scene.check()
    #expect(check.findings == [], "\(place)")
    if let staged = acknowledged.staged { #expect(scene.content(staged) == staged, "\(place)") }
    // What is there is what is named, or was staged today; and what is staged goes.
    #expect(scene.names.allSatisfy { ContentHash(hexadecimal: $0) != nil }, "\(place)")
    let content = bytes(33, count: 300)
    let staged = try await scene.store.stage(content)
    try scene.store.writeBlocking {
      try $0.save(Record(type: "Picture", id: RecordID("after"), fields: ["photo": .asset(staged.asset)]))
    }
    scene.clock.advance(by: day)
    try scene.reopen()
    try scene.store.compactBlocking()
    let named = [hash(content)] + (photo?.namedContents.map(\.hash) ?? [])
    #expect(scene.names == named.sorted().map(\.hexadecimal), "\(place)")
    #expect(scene.content(content) == content, "\(place)")
    #expect(try scene.check().findings == [], "\(place)")
    try scene.store.closeBlocking()
  }

  @Test func `each call that fails once leaves a store that goes on`() async throws {
    var calls = 0
    var failed = 0
    repeat {
      calls += 1
      let disk = SimulatedDisk()
      let scene = try Scene(disk)
      disk.failCall(disk.callCount + calls)
      let before = failed
      for number in 0..<2 {
        do {
          try scene.save(try await scene.store.stage(bytes(40 + number, count: 200)).asset, title: "\(number)")
        } catch { failed += 1 }
      }
      do { try scene.store.compactBlocking() } catch { failed += 1 }
      do { try scene.store.closeBlocking() } catch { failed += 1 }
      let isOver = failed == before && calls > 40
      let again = try Scene(disk)
      #expect(try again.check().findings == [], "call \(calls)")
      again.clock.advance(by: day)
      try again.reopen()
      try again.store.compactBlocking()
      let named = Set(try again.store.record(id)?["photo"]?.namedContents.map(\.hash.hexadecimal) ?? [])
      #expect(Set(again.names) == named, "call \(calls)")
      if isOver { break }
    } while calls < 200
    #expect(failed > 10)
  }
}

/// A cloud that moves no contents, as the native one.
private struct StillContents: ForwardingDatabase {
  let base: any CloudDatabase
  var movesContents: Bool { false }

  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    throw CloudError(.unsupported, reason: "this transport uploads no contents of assets")
  }
}

extension Asset {
  fileprivate var hexadecimalStart: String { String(contentHash?.hexadecimal.prefix(12) ?? "") }
  /// One that was never staged.
  fileprivate var other: Asset {
    asset(Array("another one".utf8))
  }
}
