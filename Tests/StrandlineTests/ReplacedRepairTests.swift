// A damaged store with contents and an inbox whose folder is moved, removed or replaced while it is repaired into a new one: at
// each call that changes the disk, with a power cut after it. Neither what is at the path nor what was moved is written.

import Strandline
import StrandlineHost
import StrandlineLog
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

private let content = [UInt8](repeating: 7, count: 3000)

private func environment(_ disk: any FileSystem, seed: UInt64) -> StoreEnvironment {
  StoreEnvironment(
    SystemEnvironment(fileSystem: disk, clock: SimulatedClock(), random: SeededRandom(seed: seed)), isSimulated: true)
}

private func open(_ disk: any FileSystem, seed: UInt64, at path: String = FolderFate.path) throws -> RecordStore {
  try RecordStore.openBlocking(at: path, environment: environment(disk, seed: seed))
}

extension RecordStore {
  fileprivate func put(_ name: String, _ asset: Asset? = nil) throws {
    var fields: [String: FieldValue] = ["n": 1]
    if let asset { fields["file"] = .asset(asset) }
    let record = Record(type: "T", id: RecordID(name), fields: fields)
    try writeBlocking { try $0.save(record) }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A repair of a store that is replaced` {
  /// Two events are damaged; what was left in the inbox is not read yet.
  private func damaged() throws -> SimulatedDisk {
    let disk = SimulatedDisk()
    for path in ["/contents", "/contents/assets"] { try disk.makeDirectory(path) }
    let hash = try #require(ContentHash(SHA256Digest.of(content))?.hexadecimal)
    disk.put(["/assets/" + hash: content], over: "/contents")
    for (path, seed) in [(FolderFate.olderPath, 1 as UInt64), (FolderFate.otherPath, 2), (FolderFate.path, 3)] {
      let store = try open(disk, seed: seed, at: path)
      let staged = try store.stageContents(of: "/contents")
      try store.put("asset", staged[0].asset)
      for number in 0..<12 { try store.put("\(path.dropFirst())\(number)") }
      try store.closeBlocking()
    }
    try RecordStore.inbox(at: FolderFate.path, environment: environment(disk, seed: 4)).write {
      try $0.save(Record(type: "T", id: RecordID("left"), fields: ["n": 1]))
    }
    var events: [LogEvent] = []
    try LogReader.open(at: FolderFate.path, environment: environment(disk, seed: 5).system).poll { events.append($0) }
    for event in events.suffix(6).prefix(2) {
      let path = FolderFate.path + "/" + SegmentName.name(event.segmentID)
      var bytes = try #require(disk.peek(path))
      bytes[Int(event.offset) + LogFormat.frameHeaderBytes + event.body.count / 2] ^= 0x20
      disk.poke(path, bytes)
    }
    return disk.imageAfterCrash(.all)
  }

  private func repair(_ disk: any FileSystem) throws {
    try StoreRepair(at: FolderFate.path, environment: environment(disk, seed: 6)).apply(into: "/new")
  }

  /// What the new store holds; nil if there is none.
  private func repaired(_ disk: SimulatedDisk) throws -> Set<String>? {
    guard try disk.kind(of: "/new") == .directory else { return nil }
    let store = try open(OtherProcess(disk.clone()), seed: 7, at: "/new")
    defer { _ = Result { try store.closeBlocking() } }
    var names: Set<String> = []
    try store.forEachRecord { names.insert($0.id.name) }
    _ = try store.copyContents(to: "/copied")
    return names
  }

  @Test(arguments: FolderFate.allCases) func `writes into none of them, whatever becomes of it`(_ fate: FolderFate)
    throws
  {
    let disk = try damaged()
    let old = disk.files(in: FolderFate.path)
    let counting = disk.clone()
    try repair(counting)
    let whole = try #require(try repaired(counting))
    #expect(whole.contains("asset") && whole.count > 8)
    let calls = counting.callCount - disk.clone().callCount
    #expect(calls > 20)
    for call in 1...calls where Campaign.takes(call, every: 4) {
      let comment: Comment = "\(fate), call \(call)"
      let image = disk.clone()
      let struck = fate.befall(image, beforeCall: image.callCount + call, old) { disk in
        let second = try open(disk, seed: 8)
        try second.put("second")
        try second.closeBlocking()
      }
      let outcome = Result { try repair(image) }
      let there = try #require(try struck.files, comment)
      if case .failure(let error) = outcome {
        #expect(error is StrandlineError && (fate.isInPlace || fate.isRemoved), "\(comment): \(error)")
      }
      for image in [image, image.imageAfterCrash(using: SeededRandom(seed: UInt64(call)))] {
        #expect(image.files(in: FolderFate.path) == there, comment)
        if let kept = fate.keptPath { #expect(image.files(in: kept) == old, comment) }
        // What is there has one name from the rename on that ends a repair.
        let found = try repaired(image)
        if !fate.isInPlace, let found { #expect(found == whole, comment) }
        if case .success = outcome { #expect(found != nil, comment) }
      }
    }
  }
}
