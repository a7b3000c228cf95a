// How the golden stores are made: by the package's own code, on a simulated disk, with random sources and clocks that are fixed.
// The bytes under Formats/vectors are what this file makes; a test makes them again and compares.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem

/// A golden store.
struct Vector: Sendable, CustomStringConvertible {
  var name: String
  /// Two lines on what it shows.
  var about: String
  /// The files of the store, by name.
  var make: @Sendable () throws -> [String: [UInt8]]

  var description: String { name }
  var folder: String { "Formats/vectors/\(name)" }

  static let all: [Vector] = [
    empty, oneSave, threeEvents, everyEventKind, manySegments, compacted, tornTail, damagedMiddle, copiedTail,
    serverJournal, inbox,
  ]
}

/// A random source that first gives numbers that a person can recognise, and then follow a seed.
final class ScriptedRandom: RandomSource {
  private let rest: SeededRandom
  private let script: LockedScript

  init(_ script: [UInt64], seed: UInt64) {
    self.script = LockedScript(script)
    rest = SeededRandom(seed: seed)
  }

  func next() -> UInt64 { script.next() ?? rest.next() }
}

/// A machine of which nothing is random: the disk is memory, the clock stands.
struct Stage {
  let disk = SimulatedDisk()
  let path = "/golden"
  let environment: SystemEnvironment

  init(seed: UInt64) {
    environment = SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(autoAdvance: false), random: SeededRandom(seed: seed))
  }

  /// The values of the worked example: tenure, the name while it is built, the store's 16 bytes, the salt, the
  /// writer, in the order in which they are drawn.
  init(recognisableWithSeed seed: UInt64) {
    environment = SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(autoAdvance: false),
      random: ScriptedRandom(
        [
          0x1122_3344_5566_7788, 0, 0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908, 0x5341_4C54,
          0xA1A2_A3A4_A5A6_A7A8,
        ], seed: seed))
  }

  /// Nothing happens by time or in the background, and no space is reserved beyond what is needed: files end where
  /// their bytes end. No ballast: it says nothing.
  static func options(segmentBytesMax: Int = 1 << 20) -> LogOptions {
    LogOptions(
      segmentBytesMax: segmentBytesMax, preallocationFirstStepBytes: 1, preallocationStepBytesMax: 1,
      publishesGroups: false, controlIntervalMilliseconds: nil, ballastBytes: 0, upkeep: .onDemand)
  }

  func openLog(
    _ role: LogRole = .store, on disk: SimulatedDisk? = nil, segmentBytesMax: Int = 1 << 20
  ) throws -> Log {
    var environment = environment
    if let disk { environment.fileSystem = disk }
    return try Log.open(
      at: path, role: role, options: Self.options(segmentBytesMax: segmentBytesMax), environment: environment
    ) { _ in }
  }

  func openStore(segmentBytesMax: Int = 1 << 20) throws -> RecordStore {
    try RecordStore.openBlocking(
      at: path, options: StoreOptions(log: Self.options(segmentBytesMax: segmentBytesMax)),
      environment: StoreEnvironment(environment))
  }

  /// The files of the store, without its lock: a copy is as good without.
  func files(of disk: SimulatedDisk? = nil) -> [String: [UInt8]] {
    let disk = disk ?? self.disk
    var result: [String: [UInt8]] = [:]
    for path in disk.paths where path.hasPrefix(self.path + "/") {
      let name = String(path.dropFirst(self.path.count + 1))
      if name != LogFormat.lockName { result[name] = disk.peek(path) }
    }
    return result
  }
}

extension Log {
  /// Appends one transaction and waits for it.
  func write(_ events: [Event]) throws {
    try waitUntilDurableBlocking(try append(EventCodec.transaction(events)).upperBound)
  }
}

/// A note as the examples store it.
private func note(_ name: String, _ title: String) -> Record {
  Record(type: "Note", id: RecordID(name), fields: ["title": .string(title)])
}

extension Vector {
  static let empty = Vector(
    name: "empty",
    about: "A store that was made and closed without a write: a header and an opening frame, no events.\n"
      + "The smallest segment that a log accepts, 4160 bytes.\n"
  ) {
    let stage = Stage(recognisableWithSeed: 1)
    try stage.openLog().close()
    return stage.files()
  }

  static let oneSave = Vector(
    name: "one-save",
    about: "One record saved in a new store, closed cleanly: `opened` and `saved` are one transaction.\n"
      + "Behind them stand the segment's index, which promises both, and its seal.\n"
  ) {
    let stage = Stage(seed: 2)
    let store = try stage.openStore()
    try store.writeBlocking { try $0.save(note("first", "Hello, shore")) }
    try store.closeBlocking()
    return stage.files()
  }

  static let threeEvents = Vector(
    name: "three-events",
    about: "The worked example of log.md: a record saved, then deleted, in two transactions; closed cleanly.\n"
      + "Everything random has a value that a person can recognise.\n"
  ) {
    let stage = Stage(recognisableWithSeed: 3)
    let store = try stage.openStore()
    try store.writeBlocking { try $0.save(note("n1", "Hi")) }
    try store.writeBlocking { try $0.delete(RecordID("n1")) }
    try store.closeBlocking()
    return stage.files()
  }

  static let everyEventKind = Vector(
    name: "every-event-kind",
    about: "One event of each kind, every type of value, and one event of an unknown kind that may be "
      + "skipped.\nThe history makes no sense; the bytes do.\n"
  ) {
    let stage = Stage(seed: 4)
    let log = try stage.openLog()
    let events = try EventSamples.all()
    // Transactions of three, and a lone rest.
    for start in stride(from: 0, to: events.count, by: 3) {
      try log.write(Array(events[start..<min(start + 3, events.count)]))
    }
    try log.close()
    return stage.files()
  }

  static let manySegments = Vector(
    name: "many-segments",
    about: "Segments that were full after one or two transactions, and a second writer that began one of its own.\n"
      + "Each opening frame names the end and the chain of the segment before; the group that filled a segment sealed it.\n"
  ) {
    let stage = Stage(seed: 5)
    for writer in 0..<2 {
      let store = try stage.openStore(segmentBytesMax: 4600)
      for index in 0..<3 {
        try store.writeBlocking { try $0.save(note("n\(index)", "writer \(writer), note \(index)")) }
      }
      try store.closeBlocking()
    }
    return stage.files()
  }

  static let compacted = Vector(
    name: "compacted",
    about: "A rewritten segment for LSNs 1 to 4, of which 2 and 3 were left out, and the segment that continues them.\n"
      + "The order of the log is that of MANIFEST, not that of the IDs.\n"
  ) {
    let stage = Stage(seed: 10)
    let log = try stage.openLog()
    for index in 1...4 { try log.write([.pace(Pace.sample(index))]) }
    try log.finishSegment()
    try log.compact { events in events.filter { $0.lsn == 1 || $0.lsn == 4 }.map(LogSurvivor.init) }
    try log.write([.pace(Pace.sample(5))])
    try log.close()
    return stage.files()
  }

  static let tornTail = Vector(
    name: "torn-tail",
    about: "The writer died in the middle of its third transaction: the last frame is cut.\n"
      + "The flag of the third group promises the two before, so they are served and the rest is set aside.\n"
  ) {
    let stage = Stage(seed: 6)
    let log = try stage.openLog()
    for index in 1...3 { try log.write([.pace(Pace.sample(index))]) }
    var files = stage.files()
    let name = SegmentName.name(1)
    // The cut is some 20 bytes before the end of the third event.
    guard let whole = files[name], let last = whole.lastIndex(where: { $0 != 0 }) else { return files }
    files[name] = Array(whole[..<(last - 20)])
    return files
  }

  static let damagedMiddle = Vector(
    name: "damaged-middle",
    about: "The store of three-events with one bit changed in the body of event 2, which was acknowledged.\n"
      + "Not a torn tail: a promise lies behind it. It is refused with file, byte and LSNs, and nothing is changed.\n"
  ) {
    var files = try threeEvents.make()
    let name = SegmentName.name(1)
    // At 4160 event 1 of 72 bytes; event 2 begins at 4232 with 32 bytes of header.
    files[name]?[4232 + 32 + 8] ^= 0x01
    return files
  }

  static let copiedTail = Vector(
    name: "copied-tail",
    about: "The writer of segment 1 died after its second sync; another writer opened the store.\n"
      + "Segment 2 ends segment 1 at its last promise (LSN 1) and holds a copy of event 2 behind its opening frame.\n"
  ) {
    let stage = Stage(seed: 7)
    let log = try stage.openLog()
    for index in 1...2 { try log.write([.pace(Pace.sample(index))]) }
    let afterDeath = stage.disk.clone()
    try stage.openLog(on: afterDeath).close()
    return stage.files(of: afterDeath)
  }

  static let serverJournal = Vector(
    name: "server-journal",
    about: "A journal of the local server, role srvr and schema 2: one event of each kind.\n"
      + "A zone is made, a record saved and deleted in it, and the zone deleted.\n"
  ) {
    let stage = Stage(seed: 8)
    let log = try stage.openLog(.server)
    for events in JournalSamples.transactions(tenure: log.tenure) {
      var transaction = LogTransaction()
      for event in events { transaction.add(schema: JournalEvent.schema, body: event.encoded()) }
      try log.waitUntilDurableBlocking(try log.append(transaction).upperBound)
    }
    try log.close()
    return stage.files()
  }
}

extension Vector {
  static let inbox = Vector(
    name: "inbox",
    about: "What another process has left for a store, role inbx: one transaction with each operation.\n"
      + "An older copy was put back before the second one, so two events take the place of those that it lacks.\n"
  ) {
    let stage = Stage(seed: 9)
    let log = try stage.openLog(.inbox)
    let time = HybridTime(milliseconds: EventSamples.wall)
    try log.write(
      InboxChange.Operation.allCases.map {
        .inboxChange(.sample($0, id: RecordID("note-\($0.rawValue)"), time: time))
      })
    let read = Event.inboxRead(InboxRead(inbox: log.storeUUID, position: LSN(6)))
    try log.write([read, read])
    try log.write([.inboxChange(.sample(.save, id: RecordID("note-9"), time: time.next))])
    try log.close()
    return stage.files()
  }
}

extension Pace {
  /// A small event.
  static func sample(_ number: Int, scope: DatabaseScope = .private) -> Pace {
    Pace(
      scope: scope, durationMilliseconds: Int64(number) * 1000, wallMilliseconds: 1_780_000_000_000,
      isServers: number % 2 == 1, serverOffsetMilliseconds: Int64(number) * -7,
      reason: "OVERLOAD")
  }
}
