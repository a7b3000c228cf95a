// Goal: the contents of assets go up before their records, once, and come down when an app asks for them; what is wrong with one harms
// nothing else. Method: devices and a server in one process, whose content host counts what goes through it and refuses on demand.

import Strandline
import StrandlineServer
import StrandlineSimulation
import StrandlineSyncProofs
import StrandlineSystem
import Synchronization
import Testing

private func bytes(_ number: Int, count: Int = 5_000) -> [UInt8] { SeededRandom(seed: UInt64(number)).bytes(count) }

/// Two devices that show pictures.
private struct Scene {
  let fleet: Fleet
  let a: Device
  let b: Device

  init(limits: ServerLimits = ServerLimits()) throws {
    fleet = try Fleet(limits: limits)
    (a, b) = (fleet.device("a"), fleet.device("b"))
  }

  /// How many contents were sent to the server, and how many came from it.
  var uploads: Int { fleet.server.statistics.requests["content/upload"] ?? 0 }
  var downloads: Int { fleet.server.statistics.requests["content/download"] ?? 0 }

  func fault(_ change: (inout ServerFaults) -> Void) {
    var faults = ServerFaults()
    change(&faults)
    fleet.server.setFaults(faults)
  }

  /// Saves a picture with this content.
  func save(_ name: String, _ content: [UInt8], title: String = "Pier", on device: Device) async throws {
    let staged = try await device.open().stage(content)
    try await device.put(name, ["title": .string(title), "photo": .asset(staged.asset)], type: "Picture")
  }

  func photo(_ name: String, on device: Device) async throws -> Asset? {
    guard case .asset(let asset)? = try await device.value(name, "photo") else { return nil }
    return asset
  }

  /// The bytes of a picture's photo, fetched if need be.
  func content(_ name: String, on device: Device) async throws -> [UInt8]? {
    let photo = try #require(try await photo(name, on: device))
    let content = try await device.open().contents(of: photo, in: RecordID(name))
    #expect(content.size == photo.size)
    return device.disk.peek(content.path)
  }

  func held(on device: Device) async throws -> [String: CloudError.Code] {
    Dictionary(uniqueKeysWithValues: try await device.open().heldRecords().map { ($0.id.name, $0.code) })
  }
}

private func code(_ body: () async throws -> Void) async -> StrandlineError.Code? {
  do {
    try await body()
    return nil
  } catch { return (error as? StrandlineError)?.code ?? StrandlineError.Code(rawValue: "\(error)") }
}

@Suite(.timeLimit(.minutes(30)))
struct ContentSyncTests {
  // MARK: Up

  @Test func `164: a new content is in the store before its record, goes up before it, and comes down elsewhere`()
    async throws
  {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    #expect(scene.uploads == 1 && scene.downloads == 0, "a content comes when it is asked for")
    let photo = try #require(try await scene.photo("p", on: scene.b))
    #expect(photo.state == .downloadable && photo.size == 5_000 && photo.contentHash == nil)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
    #expect(scene.downloads == 1)
    // What has sent it learns what the server calls it, and needs no download.
    try await exchange(scene.a)
    let own = try #require(try await scene.photo("p", on: scene.a))
    #expect(own.state == .downloadable && own.contentHash != nil)
    #expect(try await scene.content("p", on: scene.a) == bytes(1))
    #expect(scene.uploads == 1 && scene.downloads == 1)
    #expect(
      !scene.a.disk.paths.contains { $0.hasSuffix(".tmp") } && !scene.b.disk.paths.contains { $0.hasSuffix(".tmp") })
  }

  @Test func `an edit of another field sends no byte of a content, and keeps the stamp of the content's field`()
    async throws
  {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await scene.a.exchange(.pushOnly)
    // Before the feed has shown the record to the device that sent it, in the same process.
    try await scene.a.put("p", ["title": "first"])
    try await scene.a.exchange(.pushOnly)
    // After a relaunch, before the feed: the record is looked up.
    try await scene.a.put("p", ["title": "second"])
    try await scene.a.close()
    try await scene.a.exchange(.pushOnly)
    try await exchange(scene.b, scene.a)
    #expect(try await scene.b.value("p") == "second")
    // Another device edits the content's neighbour, and both edit at once.
    try await scene.b.put("p", ["caption": "sea"])
    try await scene.a.put("p", ["title": "third"])
    try await exchange(scene.b, scene.a, scene.b)
    for device in [scene.a, scene.b] {
      #expect(try await device.value("p") == "third")
      #expect(try await device.value("p", "caption") == "sea")
      #expect(try await scene.content("p", on: device) == bytes(1))
    }
    #expect(scene.uploads == 1)
    #expect(try await scene.a.open().status().held.isEmpty)
  }

  @Test func `165: a content that is replaced is the new one everywhere`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
    try await scene.save("p", bytes(2), on: scene.b)
    #expect(try await scene.content("p", on: scene.b) == bytes(2), "before it is uploaded")
    try await exchange(scene.b, scene.a)
    #expect(try await scene.content("p", on: scene.a) == bytes(2))
    #expect(scene.uploads == 2)
  }

  @Test func `a list of contents goes up whole, and the records of others do not wait for it`() async throws {
    let scene = try Scene()
    let store = try await scene.a.open()
    var staged: [StagedContent] = []
    for number in 1...3 { staged.append(try await store.stage(bytes(number))) }
    try await scene.a.put("p", ["photos": .list(.assets, staged.map { .asset($0.asset) })], type: "Picture")
    try await scene.a.put("n", ["title": "note"])
    try await exchange(scene.a, scene.b)
    #expect(scene.uploads == 3)
    guard case .list(.assets, let photos)? = try await scene.b.value("p", "photos") else {
      Issue.record("no list")
      return
    }
    for (number, photo) in zip(1..., photos.flatMap(\.assets)) {
      let content = try await scene.b.open().contents(of: photo, in: RecordID("p"))
      #expect(scene.b.disk.peek(content.path) == bytes(number))
    }
    #expect(try await scene.b.value("n") == "note")
  }

  @Test func `168: a content that is damaged here, or that the server refuses, holds its record alone`() async throws {
    var limits = ServerLimits()
    limits.assetBytesMax = 6_000
    let scene = try Scene(limits: limits)
    try await scene.save("damaged", bytes(1), on: scene.a)
    try await scene.save("large", bytes(2, count: 6_001), on: scene.a)
    try await scene.save("good", bytes(3), on: scene.a)
    let hash = try #require(try await scene.photo("damaged", on: scene.a)?.contentHash)
    scene.a.disk.poke("/store/assets/\(hash.hexadecimal)", bytes(4))
    try await scene.a.exchange()
    let held = try await scene.held(on: scene.a)
    #expect(held.keys.sorted() == ["damaged", "large"])
    #expect(held["large"] == .limitExceeded)
    let words = try await scene.a.open().heldRecords().map(\.reason).joined()
    #expect(words.contains("its bytes are not those of its hash") && words.contains("HTTP 413"), "\(words)")
    try await scene.b.exchange()
    #expect(try await scene.content("good", on: scene.b) == bytes(3))
    // What is saved in its place goes up.
    try await scene.save("damaged", bytes(5), on: scene.a)
    try await exchange(scene.a, scene.b)
    #expect(try await scene.content("damaged", on: scene.b) == bytes(5))
  }

  @Test func `a damaged content that was restored from a backup goes up when its record is released`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    let hash = try #require(try await scene.photo("p", on: scene.a)?.contentHash)
    let path = "/store/assets/\(hash.hexadecimal)"
    scene.a.disk.poke(path, Array(bytes(1).dropLast()))
    try await scene.a.exchange()
    #expect(try await scene.held(on: scene.a).keys.sorted() == ["p"] && scene.uploads == 0)
    // Time alone brings no bytes back.
    scene.a.clock.advance(milliseconds: 48 * 3_600_000)
    try await scene.a.exchange()
    #expect(try await scene.held(on: scene.a).keys.sorted() == ["p"])
    scene.a.disk.poke(path, bytes(1))
    try await scene.a.open().releaseHolds(of: [RecordID("p")])
    try await exchange(scene.a, scene.b)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
  }

  @Test func `records that name one content send it once each, and one download serves them all`() async throws {
    let scene = try Scene()
    for name in ["p", "q"] { try await scene.save(name, bytes(1), on: scene.a) }
    try await exchange(scene.a, scene.b)
    #expect(scene.uploads == 2, "a receipt counts for one record")
    for name in ["p", "q"] { #expect(try await scene.content(name, on: scene.b) == bytes(1)) }
    #expect(scene.downloads == 1)
  }

  @Test func `records of an atomic zone that go together wait for a content of one of them`() async throws {
    let scene = try Scene()
    let cloud = HookedContentCloud(RefusingCloud(scene.a), scene.a.web())
    let store = try await scene.a.open(database: cloud, atomicZones: [.main])
    let staged = try await store.stage(bytes(1))
    _ = try await store.write { tx in
      try tx.save(Record(type: "Picture", id: RecordID("p"), fields: ["photo": .asset(staged.asset)]))
      try tx.save(Record(type: "Note", id: RecordID("n"), fields: ["title": "of the picture"]))
    }
    scene.fault { $0.contentHostStatus = 503 }
    #expect(await code { try await scene.a.sync(waitMillisecondsMax: 0) } == .throttled)
    #expect(cloud.cloud.sent.isEmpty, "one alone is not sent")
    scene.fault { _ in }
    try await exchange(scene.a, scene.b)
    #expect(cloud.cloud.sent.map { $0.sorted() } == [["n", "p"]] && cloud.cloud.areAtomic == [true])
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
    // A content that the server refuses holds the set: it cannot go in part.
    scene.fault { $0.contentHostStatus = 413 }
    let other = try await store.stage(bytes(2))
    _ = try await store.write { tx in
      try tx.save(Record(type: "Picture", id: RecordID("q"), fields: ["photo": .asset(other.asset)]))
      try tx.save(Record(type: "Note", id: RecordID("m"), fields: ["title": "of the other"]))
    }
    try await scene.a.exchange()
    #expect(try await scene.held(on: scene.a).keys.sorted() == ["q"])
    #expect(cloud.cloud.sent.count == 1)
  }

  @Test func `a content that goes up stays meanwhile, though its record names another one and a compaction runs`()
    async throws
  {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    let hash = try #require(try await scene.photo("p", on: scene.a)?.contentHash)
    try await scene.a.close()
    let (a, clock) = (scene.a, scene.a.clock)
    let cloud = HookedContentCloud(RefusingCloud(a), a.web())
    cloud.onFirstUpload {
      try await scene.save("p", bytes(2), on: a)
      clock.advance(milliseconds: 48 * 3_600_000)
      _ = try await a.compact()
      #expect(a.disk.paths.contains("/store/assets/\(hash.hexadecimal)"), "it was removed")
    }
    try await a.open(database: cloud)
    try await exchange(a, scene.b)
    #expect(try await scene.content("p", on: scene.b) == bytes(2))
    #expect(scene.uploads == 2)
    #expect(try await a.owesNothing)
  }

  @Test func `a store that is closed while a content goes up sends it after the next open`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await scene.a.close()
    let cloud = HookedContentCloud(RefusingCloud(scene.a), scene.a.web())
    let gate = Gate()
    cloud.onFirstUpload { try await gate.pass() }
    let store = try await scene.a.open(database: cloud)
    async let ended = code { _ = try await store.sync() }
    await gate.arrived()
    try await scene.a.close()
    #expect(await ended == .closed)
    #expect(scene.uploads == 0)
    try await exchange(scene.a, scene.b)
    #expect(scene.uploads == 1)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
  }

  @Test func `a power cut at any call of a sync and of a download loses no content, and leaves no file for ever`()
    async throws
  {
    var calls = 0
    for isTorn in [false, true] {
      for number in 1...500 {
        let scene = try Scene()
        try await scene.save("q", bytes(2), on: scene.b)
        try await scene.b.exchange()
        try await scene.save("p", bytes(1), on: scene.a)
        scene.a.disk.cutPower(atCall: scene.a.disk.callCount + number)
        scene.a.disk.isTearing = isTorn
        _ = await code {
          try await scene.a.exchange()
          _ = try await scene.content("q", on: scene.a)
        }
        let isCut = scene.a.disk.isOff
        scene.a.crash(isTorn ? .all : .none)
        try await exchange(scene.a, scene.b)
        #expect(try await scene.content("p", on: scene.b) == bytes(1), "\(number)")
        #expect(try await scene.content("p", on: scene.a) == bytes(1), "\(number)")
        #expect(try await scene.content("q", on: scene.a) == bytes(2), "\(number)")
        #expect(try await scene.a.owesNothing, "\(number)")
        let files = scene.a.disk.paths.filter { $0.hasPrefix("/store/assets/") }
        #expect(files.count { $0.hasSuffix(".fetched") } == 1 && !files.contains { $0.hasSuffix(".tmp") }, "\(files)")
        if !isCut {
          calls = number
          break
        }
      }
      #expect(calls > 20)
    }
  }

  @Test func `a content host that is busy or misdirected keeps contents back and nothing else`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await scene.a.put("n", ["title": "note"])
    for status in [421, 503] {
      scene.fault { $0.contentHostStatus = status }
      #expect(await code { try await scene.a.sync(waitMillisecondsMax: 0) } == .throttled, "\(status)")
      #expect(try await scene.held(on: scene.a).isEmpty)
    }
    try await scene.b.exchange()
    #expect(try await scene.b.value("n") == "note")
    #expect(try await !scene.b.lives("p"))
    scene.fault { _ in }
    try await exchange(scene.a, scene.b)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
  }

  @Test
  func `172: a relaunch before its record was sent sends a content again, from its file, and leaves no second one`()
    async throws
  {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    let disk = scene.a.disk
    // The power goes when the content is at the server and its record is not.
    scene.a.whileAsking { if scene.fleet.server.statistics.requests["content/upload"] == 1 { disk.cutPower() } }
    #expect(await code { try await scene.a.sync() } != nil)
    scene.a.whileAsking(nil)
    scene.a.crash()
    try await exchange(scene.a, scene.b)
    #expect(scene.uploads == 2)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
    #expect(scene.a.disk.paths.filter { $0.hasPrefix("/store/assets/") && !$0.hasSuffix("staged") }.count == 1)
    #expect(scene.fleet.serverDisk.paths.filter { $0.hasPrefix("/cloud/assets/") }.count == 1)
  }

  @Test func `an upload whose answer was lost is recognized, and keeps the hash of its content`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await scene.a.close()
    let cloud = HookedContentCloud(RefusingCloud(scene.a), scene.a.web())
    cloud.cloud.refuse { $0.lostAnswers = [CloudError(.networkError, reason: "lost")] }
    try await scene.a.open(database: cloud)
    try await scene.a.exchange()
    #expect(scene.uploads == 1 && cloud.cloud.sent.count == 1)
    #expect(try await scene.photo("p", on: scene.a)?.contentHash != nil)
    #expect(try await scene.a.owesNothing)
  }

  @Test func `a receipt that has become old is not used`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await scene.a.close()
    let cloud = HookedContentCloud(RefusingCloud(scene.a), scene.a.web())
    let clock = scene.a.clock
    cloud.cloud.refuse {
      $0.requests[.modify] = [CloudError(.throttled, reason: "busy", retryAfter: 660)]
    }
    try await scene.a.open(database: cloud)
    #expect(await code { try await scene.a.sync() } == .throttled)
    clock.advance(milliseconds: 661_000)
    try await scene.a.exchange()
    #expect(scene.uploads == 2)
    #expect(try await scene.a.owesNothing)
  }

  @Test func `a store whose database moves no contents takes none`() async throws {
    let scene = try Scene()
    try await scene.a.open(database: RefusingCloud(scene.a))
    #expect(await code { try await scene.save("p", bytes(1), on: scene.a) } == .invalidValue)
  }

  // MARK: Down

  @Test func `callers share one download, and an address that has expired is renewed by a lookup`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    scene.fault { $0.expireContentAddresses = true }
    scene.fault { _ in }
    let before = scene.fleet.server.statistics.requests["records/lookup"] ?? 0
    let photo = try #require(try await scene.photo("p", on: scene.b))
    let store = try await scene.b.open()
    let paths = try await withThrowingTaskGroup(of: String.self) { group in
      for _ in 0..<4 { group.addTask { try await store.contents(of: photo, in: RecordID("p")).path } }
      return try await group.reduce(into: Set()) { $0.insert($1) }
    }
    #expect(paths.count == 1)
    #expect(scene.fleet.server.statistics.requests["records/lookup"] == before + 1)
    // The address that has expired, and the fresh one.
    #expect(scene.downloads == 2)
    #expect(try await scene.content("p", on: scene.b) == bytes(1))
  }

  @Test func `a caller that is cancelled does not wait for the others, and the last one ends the download`()
    async throws
  {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    try await scene.b.close()
    let cloud = HookedContentCloud(RefusingCloud(scene.b), scene.b.web())
    let gate = Gate()
    cloud.onDownloads { try await gate.pass() }
    let store = try await scene.b.open(database: cloud)
    let photo = try #require(try await scene.photo("p", on: scene.b))
    func ask() -> Task<AssetContent, any Error> { Task { try await store.contents(of: photo, in: RecordID("p")) } }
    func isCancelled(_ task: Task<AssetContent, any Error>) async -> Bool {
      task.cancel()
      do { _ = try await task.value } catch { return error is CancellationError }
      return false
    }
    let (first, second) = (ask(), ask())
    await gate.arrived()
    #expect(await isCancelled(second))
    #expect(await isCancelled(first))
    #expect(scene.downloads == 0)
    // The next one begins again.
    let third = ask()
    await gate.arrived()
    gate.open()
    #expect(scene.b.disk.peek(try await third.value.path) == bytes(1))
    #expect(scene.downloads == 1)
  }

  @Test func `a store that is closed while a content comes down keeps nothing of it`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    try await scene.b.close()
    let cloud = HookedContentCloud(RefusingCloud(scene.b), scene.b.web())
    let gate = Gate()
    cloud.onDownloads { try await gate.pass() }
    let store = try await scene.b.open(database: cloud)
    let photo = try #require(try await scene.photo("p", on: scene.b))
    async let ended = code { _ = try await store.contents(of: photo, in: RecordID("p")) }
    await gate.arrived()
    try await scene.b.close()
    gate.open()
    #expect(await ended == .closed)
    #expect(!scene.b.disk.paths.contains { $0.hasSuffix(".fetched") || $0.hasSuffix(".tmp") })
  }

  @Test func `what was used last stays when there is no room for all, and what is held always`() async throws {
    let scene = try Scene()
    for number in 1...4 { try await scene.save("p\(number)", bytes(number), on: scene.a) }
    try await exchange(scene.a, scene.b)
    let store = try await scene.b.open()
    store.core.withLock { $0.declared.fetchedBytesMax = 10_000 }
    func fetch(_ number: Int) async throws -> AssetContent {
      scene.b.clock.advance(milliseconds: 1_000)
      let photo = try #require(try await scene.photo("p\(number)", on: scene.b))
      return try await store.contents(of: photo, in: RecordID("p\(number)"))
    }
    var first: AssetContent? = try await fetch(1)
    let path = try #require(first?.path)
    _ = try await fetch(2)
    _ = try await fetch(3)
    #expect(scene.downloads == 3)
    #expect(scene.b.disk.peek(path) == bytes(1), "it is held")
    _ = try await fetch(3)
    #expect(scene.downloads == 3, "it was used last")
    first = nil
    _ = try await fetch(2)
    #expect(scene.downloads == 4)
    #expect(scene.b.disk.peek(path) == nil)
    let total = scene.b.disk.paths.filter { $0.hasSuffix(".fetched") }.count
    #expect(total == 2)
    // The order outlasts a relaunch.
    try await scene.b.close()
    try await scene.b.open().core.withLock { $0.declared.fetchedBytesMax = 10_000 }
    let again = try await scene.b.open()
    let photo = try #require(try await scene.photo("p4", on: scene.b))
    _ = try await again.contents(of: photo, in: RecordID("p4"))
    let two = try #require(try await scene.photo("p2", on: scene.b))
    _ = try await again.contents(of: two, in: RecordID("p2"))
    #expect(scene.downloads == 5)
  }

  @Test func `a content that is not what it should be is not kept, and the reason is named`() async throws {
    let scene = try Scene()
    try await scene.save("p", bytes(1), on: scene.a)
    try await exchange(scene.a, scene.b)
    let photo = try #require(try await scene.photo("p", on: scene.b))
    let id = RecordID("p")
    try await scene.b.close()
    try await scene.b.open(database: ShortContentCloud(base: scene.b.web()))
    #expect(await code { _ = try await scene.b.open().contents(of: photo, in: id) } == .unreachable)
    #expect(!scene.b.disk.paths.contains { $0.hasSuffix(".fetched") || $0.hasSuffix(".tmp") })
    // Another record, another content, and a store that does not sync.
    let other = Asset(fileChecksum: "other", size: 5_000)
    #expect(await code { _ = try await scene.b.open().contents(of: other, in: id) } == .noSuchContent)
    #expect(await code { _ = try await scene.b.open().contents(of: photo, in: RecordID("x")) } == .noSuchContent)
    try await scene.b.close()
    let alone = try await RecordStore.open(at: "/store", options: Device.options, environment: scene.b.environment)
    #expect(await code { _ = try await alone.contents(of: photo, in: id) } == .notSyncing)
    try await alone.close()
    #expect(await code { _ = try await alone.contents(of: photo, in: id) } == .closed)
  }
}

/// Keeps who comes until it is opened, or until the caller is cancelled.
private final class Gate: Sendable {
  private let arrivals = AsyncStream.makeStream(of: Void.self)
  private let openings = AsyncStream.makeStream(of: Void.self)

  func pass() async throws {
    arrivals.continuation.yield()
    for await _ in openings.stream { break }
    try Task.checkCancellation()
  }

  /// Returns when somebody has come.
  func arrived() async { for await _ in arrivals.stream { break } }

  func open() { openings.continuation.finish() }
}

/// A cloud that refuses what a test names, moves contents, and runs what a test names before it does.
private final class HookedContentCloud: ForwardingDatabase {
  let base: any CloudDatabase
  let cloud: RefusingCloud
  private let web: any CloudDatabase
  private typealias Hook = @Sendable () async throws -> Void
  private let hooks = Mutex((upload: Hook?.none, download: Hook?.none))

  /// Runs this before the first upload of a content.
  func onFirstUpload(_ body: @escaping @Sendable () async throws -> Void) { hooks.withLock { $0.upload = body } }

  /// Runs this before each download of a content.
  func onDownloads(_ body: @escaping @Sendable () async throws -> Void) { hooks.withLock { $0.download = body } }

  init(_ cloud: RefusingCloud, _ web: any CloudDatabase) {
    (base, self.cloud, self.web) = (cloud, cloud, web)
  }

  var movesContents: Bool { true }

  func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    try await hooks.withLock { $0.upload.take() }?()
    return try await web.upload(content, for: place)
  }

  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    try await hooks.withLock { $0.download }?()
    try await web.download(asset, of: place, into: sink)
  }
}

/// A cloud that ends each content early.
private struct ShortContentCloud: ForwardingDatabase {
  let base: any CloudDatabase

  func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    let short = ContentSink(size: sink.size) { try sink.write(Array($0.dropLast())) }
    try await base.download(asset, of: place, into: short)
  }
}
