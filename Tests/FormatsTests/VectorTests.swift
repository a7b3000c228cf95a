// The golden stores: today's code makes the same bytes, reads them, and writes every frame and event again as it was.
//
// They are written only when asked for: STRANDLINE_WRITE_VECTORS=1 swift test --filter FormatsTests. Without it nothing is
// ever replaced; a difference is a failure, and either the code or the pages changed the format.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Testing

@Suite(.serialized, .timeLimit(.minutes(30))) struct `Golden stores` {
  private static let isWriting = ProcessEnvironment.value(of: "STRANDLINE_WRITE_VECTORS") == "1"

  @Test(arguments: Vector.all) func `are what the code makes today`(_ vector: Vector) throws {
    let files = try vector.make()
    #expect(try vector.make() == files, "made twice, and not the same")
    if Self.isWriting {
      for (name, bytes) in files { try Repository.write(bytes, "\(vector.folder)/\(name)") }
      try Repository.write(Array(vector.about.utf8), "\(vector.folder)/about.txt")
      let lines = try Dump.lines(Repository.path(vector.folder), on: Repository.disk)
      try Repository.write(Array((lines.joined(separator: "\n") + "\n").utf8), "\(vector.folder)/dump.jsonl")
    }
    let names = files.keys.sorted() + ["about.txt", "dump.jsonl"]
    #expect(try Repository.names(vector.folder) == names.sorted())
    for (name, bytes) in files {
      let golden = try Repository.bytes("\(vector.folder)/\(name)")
      let first = zip(golden, bytes).enumerated().first { $1.0 != $1.1 }?.offset
      #expect(golden == bytes, "\(vector.name)/\(name): \(golden.count) and \(bytes.count) bytes, at \(first ?? -1)")
    }
    #expect(try Repository.text("\(vector.folder)/about.txt") == vector.about)
  }

  @Test(arguments: Vector.all) func `dump as their text says`(_ vector: Vector) throws {
    let lines = try Dump.lines(Repository.path(vector.folder), on: Repository.disk)
    let golden = try Repository.text("\(vector.folder)/dump.jsonl").split(separator: "\n").map(String.init)
    #expect(lines.count == golden.count)
    for (line, expected) in zip(lines, golden) { #expect(line == expected) }
  }

  @Test(arguments: Vector.all) func `encode again to the same bytes`(_ vector: Vector) throws {
    let path = Repository.path(vector.folder)
    let reader = try LogReader.open(at: path, environment: .real)
    var frames = 0
    try reader.frames { frame in
      frames += 1
      let name = SegmentName.name(frame.segmentID)
      let golden = try Repository.bytes("\(vector.folder)/\(name)")
      let header = try SegmentHeader.decode(golden, file: name, named: frame.segmentID)
      #expect(header.encoded() == Array(golden[..<LogFormat.headerBytes]))
      #expect(golden[LogFormat.headerBytes..<LogFormat.headerPageBytes].allSatisfy { $0 == 0 })
      let range = Int(frame.offset)..<Int(frame.offset) + frame.frameBytes
      #expect(try encoded(frame, header.identity) == Array(golden[range]))
      switch (frame.type, reader.role) {
      case (.event, .store), (.event, .inbox):
        #expect(EventCodec.encode(try EventCodec.decode(frame.body)) == frame.body)
      case (.event, .server): #expect(try JournalEvent.decode(frame.body)?.encoded() == frame.body)
      case (.opening, _): #expect(frame.opening?.encoded() == frame.body)
      case (.index, _):
        #expect(IndexBody.decode(frame.body, at: 0, count: frame.body.count)?.encoded() == frame.body)
      case (.seal, _):
        #expect(SealBody.decode(frame.body, at: 0, count: frame.body.count)?.encoded() == frame.body)
      default: Issue.record("a golden frame of the type \(frame.header.type)")
      }
      if frame.type == .event, reader.role == .store { try reencodeContent(frame) }
    }
    #expect(frames > 0)
    let manifest = try Repository.bytes("\(vector.folder)/\(LogFormat.manifestName)")
    #expect(try Manifest.decode(manifest, file: "MANIFEST").encoded() == manifest)
    let control = try Repository.bytes("\(vector.folder)/\(LogFormat.controlName)")
    #expect(control.count == LogFormat.controlSlots * LogFormat.controlPageBytes)
    for start in stride(from: 0, to: control.count, by: LogFormat.controlPageBytes) {
      let slot = Array(control[start..<start + LogFormat.controlSlotBytes])
      // A slot that was never written is zero.
      if let decoded = try Control.decode(control, at: start, file: "CONTROL") {
        #expect(decoded.encoded() == slot)
      } else {
        #expect(start > 0 && slot.allSatisfy { $0 == 0 })
      }
    }
  }

  /// A frame, from what was read of it, written as the page says and not by the log's own code.
  private func encoded(_ frame: FrameView, _ identity: SegmentIdentity) throws -> [UInt8] {
    var padded = frame.body
    while padded.count % 8 != 0 { padded.append(0) }
    var rest = ByteWriter()
    rest.u32(UInt32(frame.body.count))
    rest.u64(frame.header.lsn)
    rest.u8(frame.header.type)
    rest.u8(frame.header.flags)
    rest.u16(frame.header.schema)
    rest.u32(frame.header.indexInTransaction)
    rest.u32(identity.salt)
    rest.u32(CRC32C.checksum(padded))
    var covered = ByteWriter()
    covered.u32(identity.seed)
    covered.u32(frame.offset)
    covered.raw(rest.bytes)
    var whole = ByteWriter()
    whole.u32(CRC32C.checksum(covered.bytes))
    whole.raw(rest.bytes)
    whole.raw(padded)
    return whole.bytes
  }

  /// The tail of an event is kept as bytes by its decoder; taken apart and put together it must be the same.
  private func reencodeContent(_ frame: FrameView) throws {
    let (content, type, births): (EncodedContent, String, Set<Birth>)
    switch try EventCodec.decode(frame.body) {
    case .saved(let event): (content, type, births) = (event.content, event.type, event.births)
    case .merged(let event): (content, type, births) = (event.content, event.type, event.births)
    case .fetchedSave(let event): (content, type, births) = (event.content, event.type, event.births)
    default: return
    }
    var (version, dirty) = try content.decoded(type: type, births: births, this: LSN(frame.lsn))
    for (name, lsn) in dirty where lsn.rawValue == frame.lsn { dirty[name] = LSN.zero }
    var before = ByteWriter()
    content.encode(into: &before)
    var after = ByteWriter()
    EncodedContent(version, dirty: dirty).encode(into: &after)
    #expect(before.bytes == after.bytes)
    // And the stamp that would travel with this version.
    let stamp = StampCodec.encode(version)
    #expect(StampCodec.encode(try StampCodec.decode(stamp)) == stamp)
  }

  @Test func `have an event of every kind and a value of every type`() throws {
    var kinds: Set<String> = []
    for event in try EventSamples.all() { kinds.insert(event.kindName) }
    #expect(kinds == Set(EventKind.allCases.map(\.name) + ["unknown-900"]))
    var tags: Set<UInt8> = []
    var lists: Set<UInt8> = []
    for value in EventSamples.values.values {
      var writer = ByteWriter()
      FieldCodec.encode(value, into: &writer)
      tags.insert(writer.bytes[0])
      if case .list(let kind, _) = value { lists.insert(kind.rawValue) }
    }
    // Null is no value of a field; a stamp of a cleared field stands for it.
    #expect(tags.union([0]) == Set(ValueTag.allCases.map(\.rawValue)))
    #expect(lists == Set(FieldValue.ListKind.allCases.map(\.rawValue)))
    let journal = JournalSamples.transactions(tenure: 1).joined().map(\.kind)
    #expect(Set(journal) == Set(JournalEventKind.allCases))
  }

  @Test func `are all there are, and all that the page lists`() throws {
    let names = Vector.all.map(\.name).sorted()
    // The conformance set, the sorted runs and the index have tables and tests of their own.
    let others = ["conformance", IndexVector.name, RunVector.name]
    #expect(try Repository.names("Formats/vectors").filter { !others.contains($0) } == names)
    let table = try Page("README.md").table("Golden stores", "name", "shows")
    #expect(try table.column("name").sorted() == names)
  }

  @Test func `damage is refused, and a torn tail heals and is sealed`() throws {
    let disk = SimulatedDisk()
    for (name, bytes) in try Vector.damagedMiddle.make() { disk.poke("/damaged/\(name)", bytes) }
    for (name, bytes) in try Vector.tornTail.make() { disk.poke("/torn/\(name)", bytes) }
    let environment = SystemEnvironment(
      fileSystem: disk, clock: SimulatedClock(autoAdvance: false), random: SeededRandom(seed: 9))
    #expect {
      try Log.open(at: "/damaged", role: .store, environment: environment) { _ in }
    } throws: {
      ($0 as? LogError)?.code == .damaged
    }
    var lsns: [UInt64] = []
    let log = try Log.open(at: "/torn", role: .store, options: Stage.options(), environment: environment) {
      lsns.append($0.lsn)
    }
    #expect(lsns == [1, 2])
    #expect(log.recovery.torn)
    try log.write([.pace(Pace.sample(9))])
    try log.close()
    let reader = try LogReader.open(at: "/torn", environment: environment)
    try reader.poll { _ in }
    #expect(reader.lastLSN == 3)
    #expect(!reader.recovery.torn)
  }
}
