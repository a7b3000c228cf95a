// The index at a segment's end: what it names, how little a read through it reads, and how much memory indexes have.

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The index of a segment` {
  private static let options = LogOptions(
    segmentBytesMax: 60_000, preallocationFirstStepBytes: 64 << 10, lockWaitMilliseconds: 0,
    controlIntervalMilliseconds: nil, ballastBytes: 0, indexBytesMax: 1 << 20, upkeep: .onDemand)

  /// Transactions of 400 events that are larger than all steps of the index; two segments and one at the end.
  private func store() throws -> (disk: SimulatedDisk, bodies: [[UInt8]]) {
    let disk = SimulatedDisk()
    let log = try openLog(disk, options: Self.options)
    var bodies: [[UInt8]] = []
    while disk.segments.count < 3 {
      let events = (0..<400).map { body(bodies.count + $0, count: 20 + $0 % 150) }
      let lsns = try log.append(transaction(events))
      try log.waitUntilDurableBlocking(lsns.upperBound)
      bodies += events
    }
    try log.close()
    return (disk.imageAfterCrash(.all), bodies)
  }

  private func openUnread(_ fileSystem: any FileSystem, _ options: LogOptions = Self.options) throws -> Log {
    try Log.open(
      at: storePath, role: .store, options: options, environment: .simulated(fileSystem, seed: 8), from: nil
    ) { _ in }
  }

  private func frames(_ disk: SimulatedDisk) throws -> [FrameView] {
    var frames: [FrameView] = []
    try LogReader.open(at: storePath, environment: .simulated(disk, seed: 1)).frames { frames.append($0) }
    return frames
  }

  @Test func `names the first event, and then each that begins 4 KiB behind the last place`() throws {
    let (disk, _) = try store()
    var expected: [IndexBody.Entry] = []
    var first: UInt64 = 1
    var indexes = 0
    for frame in try frames(disk) {
      switch frame.type {
      case .opening:
        (expected, first) = ([], frame.lsn)
      case .event:
        if let last = expected.last, frame.offset < last.offset + 4_096 { continue }
        expected.append(IndexBody.Entry(lsnDelta: UInt32(frame.lsn - first), offset: frame.offset))
      case .index:
        indexes += 1
        #expect(IndexBody.decode(frame.body, at: 0, count: frame.body.count)?.entries == expected)
        #expect(expected.count > 10)
      default: continue
      }
    }
    #expect(indexes == 3)
  }

  @Test func `lets a read of any event through an unread segment read 4 KiB and a frame`() throws {
    let (disk, bodies) = try store()
    let meter = CountedReads(disk)
    let log = try openUnread(meter)
    // Each segment's index is loaded once.
    for lsn in [1, bodies.count] { _ = try log.read(UInt64(lsn)) }
    _ = try log.read(UInt64(bodies.count / 2))
    meter.reset()
    for (index, body) in bodies.enumerated() {
      let lsn = UInt64(index) * 37 % UInt64(bodies.count) + 1
      let found = try log.read(lsn)
      #expect(found.lsn == lsn && found.body == bodies[Int(lsn) - 1], "\(body.count)")
      #expect(meter.reads == 1 && meter.bytes <= 4_096 + 32 + 176, "LSN \(lsn): \(meter.bytes) bytes")
      meter.reset()
    }
    try log.close()
  }

  @Test func `is verified, place by place`() throws {
    let (disk, _) = try store()
    let index = try #require(try frames(disk).first { $0.type == .index })
    let path = storePath + "/" + SegmentName.name(index.segmentID)
    let bytes = try #require(disk.peek(path))
    let header = try SegmentHeader.decode(bytes, file: path, named: index.segmentID)
    var body = try #require(IndexBody.decode(index.body, at: 0, count: index.body.count))
    for change in [8, -8] {
      // Another place, under right checksums.
      body.entries[3].offset = UInt32(Int(body.entries[3].offset) + change)
      var frame = encodedIndex(body, index, header.identity)
      #expect(frame.count == index.frameBytes)
      let damaged = disk.clone()
      var content = bytes
      content.replaceSubrange(Int(index.offset)..<Int(index.offset) + frame.count, with: frame)
      damaged.poke(path, content)
      let report = try LogVerifier.verify(at: storePath, environment: .simulated(damaged, seed: 1))
      #expect(report.isDamaged && report.findings[0].offset == UInt64(index.offset))
      body.entries[3].offset = UInt32(Int(body.entries[3].offset) - change)
      frame = encodedIndex(body, index, header.identity)
      #expect(frame == Array(bytes[Int(index.offset)..<Int(index.offset) + frame.count]))
    }
  }

  private func encodedIndex(_ body: IndexBody, _ frame: FrameView, _ identity: SegmentIdentity) -> [UInt8] {
    var bytes = frame.header
    let content = body.encoded()
    let padding = [UInt8](repeating: 0, count: frame.frameBytes - LogFormat.frameHeaderBytes - content.count)
    bytes.bodyCRC = CRC32C.checksum(content + padding)
    var writer = ByteWriter(capacity: frame.frameBytes)
    writer.u32(0)
    writer.u32(UInt32(bytes.bodyLength))
    writer.u64(bytes.lsn)
    writer.u8(bytes.type)
    writer.u8(bytes.flags)
    writer.u16(bytes.schema)
    writer.u32(bytes.indexInTransaction)
    writer.u32(bytes.tag)
    writer.u32(bytes.bodyCRC)
    var result = writer.bytes
    let crc = identity.headCRC(result, headerAt: 0, offset: frame.offset)
    for index in 0..<4 { result[index] = UInt8(truncatingIfNeeded: crc >> UInt32(8 * index)) }
    return result + content + padding
  }

  @Test func `has bounded memory, and so have exact places; each event is found all the same`() throws {
    let disk = SimulatedDisk()
    var options = tiny
    options.indexBytesMax = 1_000
    options.placeBytesMax = 64
    let log = try openLog(disk, options: options)
    var bodies: [[UInt8]] = []
    for number in 0..<200 {
      bodies.append(body(number, count: 300))
      try log.write(bodies[number])
    }
    #expect(disk.segments.count > 15)
    func expectAll(_ log: Log) throws {
      for step in 0..<bodies.count {
        let index = step * 37 % bodies.count
        #expect(try log.read(UInt64(index) + 1).body == bodies[index])
        #expect(log.indexBytes <= 1_000)
      }
      #expect(log.indexBytes > 0)
    }
    try expectAll(log)
    try log.close()
    // Replayed, and not.
    for from in [1, nil] as [UInt64?] {
      let again = try Log.open(
        at: storePath, role: .store, options: options, environment: .simulated(disk, seed: 8), from: from
      ) { _ in }
      try expectAll(again)
      try again.close()
    }
  }
}

/// A disk that counts reads and what they return.
final class CountedReads: ForwardingFileSystem {
  let base: any FileSystem
  private let counts = Mutex((reads: 0, bytes: 0, opened: [String]()))

  init(_ base: any FileSystem) { self.base = base }

  var reads: Int { counts.withLock { $0.reads } }
  var bytes: Int { counts.withLock { $0.bytes } }
  /// The files that were opened, in order.
  var opened: [String] { counts.withLock { $0.opened } }
  func reset() { counts.withLock { $0 = (0, 0, []) } }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    let file = try folder.open(name, mode)
    counts.withLock { $0.opened.append(folder.path(of: name)) }
    return CountedFile(self, file)
  }

  private final class CountedFile: ForwardingFile {
    let disk: CountedReads
    let base: any File
    init(_ disk: CountedReads, _ base: any File) {
      self.disk = disk
      self.base = base
    }
    func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
      let bytes = try base.read(at: offset, count: count)
      disk.counts.withLock { counts in
        counts.reads += 1
        counts.bytes += bytes.count
      }
      return bytes
    }
  }
}
