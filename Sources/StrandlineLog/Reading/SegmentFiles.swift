// Open files for reading single events: a few, so that many segments do not use up the descriptors.
//
// A segment that an open has believed is checked here, when its index is first asked for: header, opening frame, seal and
// index. Damage that is met is thrown, and kept in `damage`. A read of one event verifies that event's frame, whose
// checksum names the segment, so it needs none of the rest.

import StrandlineSystem

/// The files that were read from last.
final class SegmentFiles: Sendable {
  /// 1 GiB in segments of the usual size.
  private static let openMax = 64
  private let folder: any Folder
  private let indexes: OrderedMutex<SegmentIndexes>
  private let open = OrderedMutex(OpenFiles())

  private struct OpenFiles {
    /// In no order: there are few.
    var files: [(segmentID: UInt64, file: any File, use: UInt64)] = []
    var uses: UInt64 = 0
  }

  /// What was met in files that an open has believed, or that have changed since.
  let damage = FoundDamage()

  /// - Parameter indexBytesMax: the memory for indexes.
  init(_ folder: any Folder, indexBytesMax: Int) {
    self.folder = folder
    indexes = OrderedMutex(SegmentIndexes(bytesMax: indexBytesMax))
  }

  private func file(_ segmentID: UInt64) throws(SystemError) -> any File {
    try open.withLock { open throws(SystemError) -> any File in
      open.uses += 1
      if let place = open.files.firstIndex(where: { $0.segmentID == segmentID }) {
        open.files[place].use = open.uses
        return open.files[place].file
      }
      let file = try folder.open(SegmentName.name(segmentID), .read)
      // The file that is dropped is closed by its last user, who may be reading from it now.
      if open.files.count == Self.openMax,
        let oldest = open.files.indices.min(by: { open.files[$0].use < open.files[$1].use })
      {
        open.files.remove(at: oldest)
      }
      open.files.append((segmentID, file, open.uses))
      return file
    }
  }

  func close() {
    open.withLock { open in
      for (_, file, _) in open.files { file.close() }
      open.files = []
    }
  }

  /// Forgets files that are about to be removed; a read from one that is under way goes on.
  func drop(_ segmentIDs: Set<UInt64>) {
    open.withLock { $0.files.removeAll { segmentIDs.contains($0.segmentID) } }
    indexes.withLock { $0.remove(segmentIDs) }
  }

  /// The memory of the indexes that are loaded.
  var indexBytes: Int { indexes.withLock { $0.bytes } }

  /// The event `lsn`, which lies where `place` says.
  ///
  /// - Throws: `.damaged`, `.compacted` if the segment has others around it and not this one, `.io`.
  func read(
    _ lsn: UInt64, at place: SegmentTable.Place, in table: SegmentTable.Address
  ) throws(LogError) -> LogEvent {
    switch place {
    case .exact(let range):
      return try readExactly(lsn, range, table.identity, table.path)
    case .near(let range):
      return try search(lsn, range, table.identity, table.path)
    case .unknown:
      let index = try index(of: table)
      return try search(
        lsn, index.entries.range(of: lsn - table.firstLSN, end: index.eventsEnd), table.identity, table.path)
    case .gone:
      throw .compacted(lsn)
    }
  }

  /// The event `lsn`, if it lies at a place; nil if something else does. One read, or two if the place does not know the
  /// frame's size.
  ///
  /// - Throws: `.io`.
  func read(
    _ lsn: UInt64, at place: LogPlace, in table: SegmentTable.Address
  ) throws(LogError) -> LogEvent? {
    guard place.offset >= UInt32(LogFormat.openingEnd), place.offset < table.end else { return nil }
    let rest = Int(table.end - place.offset)
    let offset = UInt64(place.offset)
    do {
      let file = try self.file(table.identity.segmentID)
      let wanted = place.frameBytes == 0 ? Self.unknownFrameBytes : Int(place.frameBytes)
      var bytes = try file.read(at: offset, count: min(wanted, rest))
      guard bytes.count >= LogFormat.frameHeaderBytes,
        case .success(let header) = FrameHeader.decode(bytes, at: 0, offset: place.offset, identity: table.identity),
        header.type == FrameType.event.rawValue, header.lsn == lsn, header.frameBytes <= rest
      else { return nil }
      if header.frameBytes > bytes.count { bytes = try file.read(at: offset, count: header.frameBytes) }
      guard header.frameBytes <= bytes.count, header.bodyMatches(bytes, at: 0) else { return nil }
      return LogEvent(header, bytes, at: 0, segmentID: table.identity.segmentID, offset: place.offset)
    } catch {
      throw .system("cannot read LSN \(lsn)", error, file: table.path)
    }
  }

  /// What is read of a frame of which only the place is known.
  private static let unknownFrameBytes = 1_024

  /// Hands the events of a range of LSNs in one segment to `visit`, in order, until it returns false.
  ///
  /// - Parameter place: that of the first, or of one before it.
  /// - Returns: whether `visit` wants more.
  func scan(
    _ lsns: ClosedRange<UInt64>, at place: SegmentTable.Place, in table: SegmentTable.Address,
    _ visit: (LogEvent) -> Bool
  ) throws(LogError) -> Bool {
    var range: Range<UInt32>
    switch place {
    case .exact(let found), .near(let found): range = found.lowerBound..<table.end
    case .gone: return true
    case .unknown:
      let index = try index(of: table)
      range = index.entries.range(of: lsns.lowerBound - table.firstLSN, end: index.eventsEnd)
      let last = index.entries.range(of: lsns.upperBound - table.firstLSN, end: index.eventsEnd)
      range = range.lowerBound..<max(range.upperBound, last.upperBound)
    }
    let file: any File
    do {
      file = try self.file(table.identity.segmentID)
    } catch {
      throw LogError.system("cannot read LSN \(lsns.lowerBound)", error, file: table.path)
    }
    var scanner = SegmentScanner(
      file: file, identity: table.identity, from: UInt64(range.lowerBound), limit: UInt64(range.upperBound))
    var next = lsns.lowerBound
    while scanner.offset < UInt64(range.upperBound) {
      switch try scanner.next() {
      case .frame(let header, let start, let offset):
        guard header.type == FrameType.event.rawValue, header.lsn >= next else { continue }
        guard header.lsn <= lsns.upperBound else { return true }
        let event = LogEvent(
          header, scanner.window, at: start, segmentID: table.identity.segmentID, offset: offset)
        guard visit(event) else { return false }
        guard header.lsn < lsns.upperBound else { return true }
        next = header.lsn + 1
      case .stop(let fault):
        // Where LSNs have no gaps it is the next one's frame.
        var isDense = false
        if case .exact = place { isDense = true }
        throw LogError.damaged(
          table.path, at: scanner.offset..<UInt64(range.upperBound), lsns: next...(isDense ? next : lsns.upperBound),
          fault.rawValue)
      }
    }
    return true
  }

  private func readExactly(
    _ lsn: UInt64, _ place: Range<UInt32>, _ identity: SegmentIdentity, _ path: String
  ) throws(LogError) -> LogEvent {
    let bytes: [UInt8]
    do {
      bytes = try file(identity.segmentID).read(at: UInt64(place.lowerBound), count: place.count)
    } catch {
      throw .system("cannot read LSN \(lsn)", error, file: path)
    }
    func damaged(_ what: String) -> LogError {
      .damaged(path, at: UInt64(place.lowerBound)..<UInt64(place.upperBound), lsns: lsn...lsn, what)
    }
    guard bytes.count >= LogFormat.frameHeaderBytes else { throw damaged(FrameFault.cut.rawValue) }
    let header: FrameHeader
    switch FrameHeader.decode(bytes, at: 0, offset: place.lowerBound, identity: identity) {
    case .failure(let error): throw damaged(error.fault.rawValue)
    case .success(let decoded): header = decoded
    }
    guard header.type == FrameType.event.rawValue, header.lsn == lsn else { throw damaged(FrameFault.order.rawValue) }
    guard header.frameBytes <= bytes.count else { throw damaged(FrameFault.cut.rawValue) }
    guard header.bodyMatches(bytes, at: 0) else { throw damaged(FrameFault.bodyCRC.rawValue) }
    return LogEvent(header, bytes, at: 0, segmentID: identity.segmentID, offset: place.lowerBound)
  }

  /// An event that lies between two places that the index names.
  private func search(
    _ lsn: UInt64, _ range: Range<UInt32>, _ identity: SegmentIdentity, _ path: String
  ) throws(LogError) -> LogEvent {
    let file: any File
    do {
      file = try self.file(identity.segmentID)
      // Two places are further apart only where events are large themselves.
      if range.count <= 4 * LogFormat.indexStepBytes {
        let bytes = try file.read(at: UInt64(range.lowerBound), count: range.count)
        if let event = Self.event(lsn, in: bytes, at: range.lowerBound, identity) { return event }
      }
    } catch {
      throw .system("cannot read LSN \(lsn)", error, file: path)
    }
    return try walk(to: lsn, range, identity, file)
  }

  /// The event, if its frame verifies, and the headers of all frames before it; these are passed over unseen but for
  /// their headers, which have checksums of their own. nil otherwise.
  ///
  /// - Parameter bytes: those of the segment from `offset` on, where a frame begins.
  private static func event(
    _ lsn: UInt64, in bytes: [UInt8], at offset: UInt32, _ identity: SegmentIdentity
  ) -> LogEvent? {
    var at = 0
    while bytes.count - at >= LogFormat.frameHeaderBytes {
      let place = offset + UInt32(at)
      guard case .success(let header) = FrameHeader.decode(bytes, at: at, offset: place, identity: identity),
        header.frameBytes <= bytes.count - at
      else { return nil }
      if header.type == FrameType.event.rawValue, header.lsn >= lsn {
        guard header.lsn == lsn, header.bodyMatches(bytes, at: at) else { return nil }
        return LogEvent(header, bytes, at: at, segmentID: identity.segmentID, offset: place)
      }
      at += header.frameBytes
    }
    return nil
  }

  /// Walks from a place that the index names, frame by frame, and says what is wrong if there is no such event.
  private func walk(
    to lsn: UInt64, _ range: Range<UInt32>, _ identity: SegmentIdentity, _ file: any File
  ) throws(LogError) -> LogEvent {
    let path = file.path
    var scanner = SegmentScanner(
      file: file, identity: identity, from: UInt64(range.lowerBound), limit: UInt64(range.upperBound))
    // What does not verify and lies before the event, or where it should be.
    var met: (range: Range<UInt64>, fault: FrameFault)?
    func error(_ lsns: ClosedRange<UInt64>?) -> LogError? {
      met.map { .damaged(path, at: $0.range, lsns: lsns, $0.fault.rawValue) }
    }
    while scanner.offset < UInt64(range.upperBound) {
      switch try scanner.next() {
      case .frame(let header, let start, let offset):
        guard header.type == FrameType.event.rawValue else { continue }
        if header.lsn == lsn {
          if let error = error(nil) { damage.add(error, in: identity.segmentID) }
          return LogEvent(header, scanner.window, at: start, segmentID: identity.segmentID, offset: offset)
        }
        if header.lsn > lsn { throw error(lsn...lsn) ?? .compacted(lsn) }
      case .stop(let fault):
        let begin = scanner.offset
        let end = UInt64(range.upperBound)
        let behind = min(begin + UInt64(LogFormat.frameAlignment), end)
        // The event may lie behind what does not verify.
        let next = try SegmentScanner.firstFrame(of: file, identity: identity, in: behind..<end)
        met = met ?? (begin..<(next?.offset ?? end), fault)
        guard let next, next.header.lsn <= lsn else { throw error(lsn...lsn) ?? .compacted(lsn) }
        scanner.skip(to: next.offset)
      }
    }
    throw error(lsn...lsn) ?? .compacted(lsn)
  }

  /// The index of a finished segment, from memory or from its file.
  func index(of table: SegmentTable.Address) throws(LogError) -> SegmentIndex {
    let segmentID = table.identity.segmentID
    if let index = indexes.withLock({ $0.use(segmentID) }) { return index }
    var index = try readIndex(of: table)
    // One that names places outside the segment names nothing that can be read.
    let places = UInt32(LogFormat.openingEnd)..<max(UInt32(LogFormat.openingEnd), index.eventsEnd)
    index.entries = index.entries.filter { places.contains($0.offset) }
    indexes.withLock { $0.add(index, segmentID) }
    return index
  }

  /// The places that the index of a finished segment names, after a check of the segment. One without a seal (its writer
  /// was interrupted) is walked for them; what does not verify in it is kept in `damage`, and the rest has its places.
  ///
  /// - Throws: `.damaged`, `.foreignSegment`, `.fromTheFuture`, `.io`.
  /// - Complexity: O(1) reads with an index, else O(bytes of the segment).
  private func readIndex(of table: SegmentTable.Address) throws(LogError) -> SegmentIndex {
    let (path, identity, end) = (table.path, table.identity, table.end)
    let file: any File
    do {
      file = try self.file(identity.segmentID)
    } catch {
      throw .system("cannot read the index of '\(path)'", error, file: path)
    }
    try check(file, table)
    guard let (seal, lsn) = try SegmentTrailer.seal(file, identity: identity, end: end) else {
      return SegmentIndex(entries: try walked(file, table).entries, eventsEnd: end)
    }
    var scanner = SegmentScanner(file: file, identity: identity, from: UInt64(seal.indexOffset), limit: UInt64(end))
    guard lsn == table.lastLSN, case .frame(let header, let start, _) = try scanner.next(),
      header.type == FrameType.index.rawValue, scanner.offset == UInt64(end) - UInt64(LogFormat.sealFrameBytes)
    else {
      throw .damaged(
        path, at: UInt64(seal.indexOffset)..<UInt64(end), lsns: nil, "its seal does not speak of its index and events")
    }
    guard
      let index = IndexBody.decode(
        scanner.window, at: start + LogFormat.frameHeaderBytes, count: header.bodyLength)
    else { throw .fromTheFuture(path, at: UInt64(seal.indexOffset), "an index of another form") }
    return SegmentIndex(entries: index.entries, eventsEnd: seal.indexOffset)
  }

  /// Whether a file's first page is that of the segment that is meant.
  private func check(_ file: any File, _ table: SegmentTable.Address) throws(LogError) {
    let (path, identity) = (table.path, table.identity)
    let facts = try SegmentFacts.read(file, identity.segmentID)
    if let header = facts.header, header.identity != identity {
      throw .foreign(
        path, at: UInt64(LogFormat.Header.salt), "it is another segment than the one that the list of segments means"
      ).with(lsns: table.lsns)
    }
    if let problem = facts.problem { throw problem.with(lsns: table.lsns) }
    guard let summary = facts.summary, summary.opening.firstLSN == table.firstLSN,
      summary.rewrittenEnd.map({ $0.offset == table.end && $0.lastLSN == table.lastLSN }) ?? true
    else {
      throw .damaged(
        path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(LogFormat.openingEnd), lsns: table.lsns,
        "its opening frame speaks of other events than the list of segments")
    }
  }

  /// The places in a segment that has no index.
  private func walked(_ file: any File, _ table: SegmentTable.Address) throws(LogError) -> IndexBody {
    let (identity, end) = (table.identity, UInt64(table.end))
    var builder = IndexBuilder(firstLSN: table.firstLSN)
    var scanner = SegmentScanner(
      file: file, identity: identity, from: UInt64(LogFormat.headerPageBytes), limit: end)
    var last = table.firstLSN - 1
    while scanner.offset < end {
      switch try scanner.next() {
      case .frame(let header, _, let offset):
        guard header.type == FrameType.event.rawValue else { continue }
        builder.add(header.lsn, at: offset)
        last = header.lsn
      case .stop(let fault):
        let begin = scanner.offset
        let behind = begin + UInt64(LogFormat.frameAlignment)
        let next =
          behind < end ? try SegmentScanner.firstFrame(of: file, identity: identity, in: behind..<end) : nil
        let upper = next.map { $0.header.lsn - 1 } ?? table.lastLSN
        damage.add(
          .damaged(
            table.path, at: begin..<(next?.offset ?? end), lsns: last < upper ? last + 1...upper : nil,
            fault.rawValue), in: identity.segmentID)
        guard let next else { return builder.index }
        scanner.skip(to: next.offset)
      }
    }
    return builder.index
  }
}

/// The index of one segment, in memory.
struct SegmentIndex: Sendable {
  var entries: [IndexBody.Entry]
  /// Where the last event ends, at the latest.
  let eventsEnd: UInt32

  var bytes: Int { entries.count * MemoryLayout<IndexBody.Entry>.stride + Self.fixedBytes }
  /// What one without entries costs, about.
  private static let fixedBytes = 128
}

/// The indexes that were used last, as many as fit.
private struct SegmentIndexes: Sendable {
  let bytesMax: Int
  private(set) var bytes = 0
  private var loaded: [UInt64: (index: SegmentIndex, use: UInt64)] = [:]
  private var uses: UInt64 = 0

  init(bytesMax: Int) { self.bytesMax = bytesMax }

  mutating func use(_ segmentID: UInt64) -> SegmentIndex? {
    guard let place = loaded.index(forKey: segmentID) else { return nil }
    uses += 1
    loaded.values[place].use = uses
    return loaded.values[place].index
  }

  /// Others go until it fits; it stays, whatever its size.
  mutating func add(_ index: SegmentIndex, _ segmentID: UInt64) {
    remove([segmentID])
    while bytes + index.bytes > bytesMax, let oldest = loaded.min(by: { $0.value.use < $1.value.use }) {
      remove([oldest.key])
    }
    uses += 1
    loaded[segmentID] = (index, uses)
    bytes += index.bytes
  }

  mutating func remove(_ segmentIDs: Set<UInt64>) {
    for segmentID in segmentIDs { bytes -= loaded.removeValue(forKey: segmentID)?.index.bytes ?? 0 }
  }
}

/// Collects the places of an index: the first event, and then each that begins 4 KiB or more behind the last place.
struct IndexBuilder: Sendable {
  let firstLSN: UInt64
  private(set) var index = IndexBody()
  /// An event that begins here or behind has a place.
  private var next: UInt32 = 0

  init(firstLSN: UInt64) { self.firstLSN = firstLSN }

  /// An event begins here.
  mutating func add(_ lsn: UInt64, at offset: UInt32) {
    // Deltas have 32 bits; a range that is longer (after many compactions) is searched from its last entry.
    guard offset >= next, let delta = UInt32(exactly: lsn - firstLSN) else { return }
    index.entries.append(IndexBody.Entry(lsnDelta: delta, offset: offset))
    next = offset + UInt32(LogFormat.indexStepBytes)
  }
}
