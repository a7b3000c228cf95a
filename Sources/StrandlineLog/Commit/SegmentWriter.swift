// The disk's half of a commit: groups into the live segment, and the next segment when it is full.
//
// Used by one leader at a time. It keeps what the medium is known to have (`durable`) apart from where the next
// frame goes. One group is one write and one sync. The group that brings a segment to its size takes the segment's
// index and seal along; the next group opens the segment that was made ahead, or makes one. Either is done only
// after the last sync of its predecessor returned, so that what an opening frame says is true. See Formats/log.md,
// "Append".

import StrandlineSystem

/// The writer's place on disk.
struct SegmentWriter: Sendable {
  let keeper: DirectoryKeeper
  let preparation: SegmentPreparation
  let options: LogOptions
  let storeUUID: [UInt8]
  let tenure: UInt64
  let role: LogRole
  /// The segment that holds the end of the log: the live one, or the one that the next will continue.
  private(set) var segmentID: UInt64
  /// The end of what is durable, in that segment.
  private(set) var durable: LogPosition
  /// nil until this writer's first append, unless it created the store or recovered a tail.
  private(set) var live: LiveSegment?
  private var opens: UInt64
  private(set) var fullFlushLSN: UInt64
  /// The LSN that the last marker (or the opening frame) promises.
  private var promisedLSN: UInt64
  private(set) var hasAppended = false

  private var fileSystem: any FileSystem { keeper.environment.fileSystem }
  private var directory: StoreDirectory { keeper.directory }

  init(
    keeper: DirectoryKeeper, preparation: SegmentPreparation, options: LogOptions, storeUUID: [UInt8],
    tenure: UInt64, role: LogRole, segmentID: UInt64, durable: LogPosition, live: LiveSegment?, opens: UInt64,
    fullFlushLSN: UInt64
  ) {
    self.keeper = keeper
    self.preparation = preparation
    self.options = options
    self.storeUUID = storeUUID
    self.tenure = tenure
    self.role = role
    self.segmentID = segmentID
    self.durable = durable
    self.live = live
    self.opens = opens
    self.fullFlushLSN = fullFlushLSN
    promisedLSN = durable.lsn
  }

  /// How many bytes of transactions fit into the live segment before it has its size, at least the first one's; 0 if
  /// another segment is needed.
  func room(forFirst frameBytes: Int) -> Int {
    guard let live, !live.isSealed else { return 0 }
    return max(frameBytes, live.softBytes - Int(live.end) - LogFormat.markerFrameBytes)
  }

  /// Whether half of the reserved space is used up, and nobody has made the next segment.
  var wantsPreparation: Bool {
    guard let live else { return false }
    return UInt64(live.end) * 2 >= min(live.allocated, UInt64(live.softBytes)) && preparation.isDue
  }

  /// How large the next segment is to be: twice the space of this one, so that what is written ahead is in proportion
  /// to what has been written, up to the size that all of them have in the end.
  var nextSoftBytes: Int {
    // On a full disk a segment has less than a first step.
    let space = max(
      options.preallocationFirstStepBytes, live.map { Int(min($0.allocated, UInt64($0.softBytes))) } ?? 0)
    return min(options.segmentBytesMax, 2 * max(space, LogFormat.headerPageBytes))
  }

  /// A segment that a writer goes on in, and what it leaves.
  struct Rotation {
    let table: SegmentTable
    /// The predecessor ends here; what is reserved behind it can be given back.
    let predecessor: (segmentID: UInt64, end: UInt64)
  }

  /// Goes on in another segment, which continues at `durable`.
  mutating func rotate() throws(WriteFailure) -> Rotation {
    let predecessor = (segmentID: segmentID, end: UInt64(durable.offset))
    if let prepared = preparation.take() {
      use(prepared)
    } else {
      try make()
      do {
        try Self.truncate(fileSystem, directory.segment(predecessor.segmentID), to: predecessor.end)
      } catch {
        // Merged meanwhile; or it keeps its reserved space until upkeep tries again. No event depends on it.
      }
    }
    guard let live else { preconditionFailure("a writer has a segment after a rotation") }
    return Rotation(
      table: SegmentTable(path: live.path, identity: live.identity, firstLSN: live.firstLSN),
      predecessor: predecessor)
  }

  /// Takes the segment that was made ahead. Nothing is written: its opening frame waits for the first group.
  private mutating func use(_ prepared: PreparedSegment) {
    if live == nil { opens &+= 1 }
    let identity = prepared.header.identity
    let opening = OpeningBody(
      firstLSN: durable.lsn + 1, predecessorID: segmentID, predecessorLastLSN: durable.lsn,
      predecessorEnd: durable.offset, chain: durable.chain, durableEnd: 0, opens: opens)
    var next = LiveSegment(
      file: prepared.file, path: prepared.path, identity: identity, end: UInt32(LogFormat.headerPageBytes),
      softBytes: prepared.softBytes,
      allocated: prepared.allocated, firstLSN: durable.lsn + 1)
    var bytes: [UInt8] = []
    bytes.append(opening: opening, identity: identity)
    next.pendingOpening = bytes
    let finished = finished
    keeper.note { manifest in
      finished(&manifest)
      manifest.use(identity.segmentID, firstLSN: opening.firstLSN)
    }
    adopt(next)
  }

  /// Makes a segment at once: file, name and list are on the medium before anything goes in.
  private mutating func make() throws(WriteFailure) {
    let opens = opens &+ (live == nil ? 1 : 0)
    let creation = SegmentCreation(fileSystem: fileSystem, directory: directory)
    let header = SegmentHeader.new(
      keeper.environment, storeUUID: storeUUID, segmentID: keeper.newSegmentID(), tenure: tenure, role: role)
    let content = SegmentCreation.encoded(header, after: durable, predecessorID: segmentID, opens: opens).bytes
    let (file, allocated) = try creation.make(
      header.segmentID, content, allocated: UInt64(options.preallocationFirstStepBytes), orLess: true)
    let firstLSN = durable.lsn + 1
    let finished = finished
    do throws(WriteFailure) {
      try keeper.commit { manifest in
        finished(&manifest)
        manifest.add(
          ManifestEntry(segmentID: header.segmentID, salt: header.salt, state: .used, firstLSN: firstLSN))
      }
    } catch {
      file.close()
      throw creation.takeBack(header.segmentID, after: error)
    }
    self.opens = opens
    adopt(
      LiveSegment(
        file: file, path: directory.segment(header.segmentID), identity: header.identity, end: UInt32(content.count),
        softBytes: options.segmentBytesMax,
        allocated: allocated, firstLSN: firstLSN))
  }

  /// What the list is to say of the segment that is left: it ends where the log does, which was its last sync.
  private var finished: (inout Manifest) -> Void {
    let (segmentID, events) = (segmentID, live?.events)
    let end = SegmentEnd(offset: durable.offset, lastLSN: durable.lsn, chain: durable.chain)
    return { manifest in manifest.finish(segmentID, end, events: events) }
  }

  /// Goes on in a segment.
  private mutating func adopt(_ next: LiveSegment) {
    live?.file.close()
    live = next
    segmentID = next.identity.segmentID
    durable.offset = next.end
    promisedLSN = durable.lsn
  }

  /// Cuts what is void behind a sealed end. Nothing depends on it but space.
  static func truncate(_ fileSystem: any FileSystem, _ path: String, to end: UInt64) throws(SystemError) {
    let file = try fileSystem.open(path, .readWrite)
    defer { file.close() }
    if try file.size() > end { try file.truncate(to: end) }
  }

  /// Writes a group behind the live segment's end and syncs it. When this returns, the group is on the medium as
  /// the options' strength says.
  ///
  /// - Returns: where its events lie, and where they end.
  /// - Complexity: O(bytes of the group); one write and one sync.
  mutating func write(_ group: [QueuedTransaction], frameBytes: Int) throws(WriteFailure) -> (
    offsets: [UInt32], end: UInt32
  ) {
    guard var live else { preconditionFailure("a group is written into a segment") }
    let isOpening = live.pendingOpening != nil
    let prefixBytes = isOpening ? LogFormat.openingFrameBytes : LogFormat.markerFrameBytes
    let groupEnd = UInt64(live.end) + UInt64(prefixBytes + frameBytes)
    // A segment that was made at once has little space of its own; rather than that it grows, the log goes on in the
    // one that was made ahead, as soon as there is one.
    let seals =
      groupEnd >= UInt64(live.softBytes)
      || (groupEnd + UInt64(frameBytes) > live.allocated && preparation.isReady)
    do {
      try Self.reserve(groupEnd + Self.trailerBytes(live, frameBytes), in: &live, options)
    } catch {
      self.live = live
      throw .refused(error)
    }
    var prefix = live.pendingOpening ?? []
    if !isOpening {
      prefix.append(marker: marker(live), lsn: durable.lsn + 1, at: live.end, identity: live.identity)
    }
    var buffer = GroupBuffer(
      group, frameBytes: frameBytes, prefix: prefix, at: live.end, after: durable, identity: live.identity)
    let end = buffer.position.offset
    live.events += UInt64(buffer.offsets.count)
    var first = 0
    for queued in group {
      live.index.add(queued.firstLSN, at: buffer.offsets[first])
      first += queued.transaction.count
    }
    if seals { live.end = buffer.append(sealOf: live) } else { live.end = end }
    do {
      hasAppended = true
      try live.file.write(buffer.bytes, at: UInt64(self.live?.end ?? live.end))
      try live.file.sync(options.strength)
    } catch {
      throw .unknown(error)
    }
    live.framesSinceMarker = UInt32(buffer.offsets.count) + (isOpening ? 1 : 0)
    live.pendingOpening = nil
    live.isSealed = seals
    if seals { live.framesSinceMarker += 2 }
    self.live = live
    promisedLSN = durable.lsn
    durable = buffer.position
    if options.strength == .durable { fullFlushLSN = durable.lsn }
    return (buffer.offsets, end)
  }

  /// What may follow a group of `frameBytes`: its segment's index and seal, and a marker for the promise at the end,
  /// so that neither ever meets a full disk.
  private static func trailerBytes(_ live: LiveSegment, _ frameBytes: Int) -> UInt64 {
    let entries = live.index.index.entries.count + frameBytes / LogFormat.indexStepBytes + 1
    return UInt64(
      LogFormat.frameBytes(bodyLength: entries * LogFormat.indexEntryBytes) + LogFormat.sealFrameBytes
        + LogFormat.markerFrameBytes)
  }

  /// Reserves space up to `needed`: by steps that double, and not beyond the soft size of a segment.
  private static func reserve(
    _ needed: UInt64, in live: inout LiveSegment, _ options: LogOptions
  ) throws(SystemError) {
    guard needed > live.allocated else { return }
    let doubled = options.preallocationFirstStepBytes << min(live.steps + 1, 16)
    let step = UInt64(min(doubled, options.preallocationStepBytesMax))
    let end = max(needed, min(live.allocated + step, UInt64(options.segmentBytesMax)))
    do {
      try live.file.preallocate(at: live.allocated, length: end - live.allocated)
      live.allocated = end
    } catch  where error.isFull && end > needed {
      // A whole step does not fit any more; what is needed now may.
      try live.file.preallocate(at: live.allocated, length: needed - live.allocated)
      live.allocated = needed
    }
    live.steps += 1
  }

  /// The promise of what is durable.
  private func marker(_ live: LiveSegment) -> MarkerBody {
    MarkerBody(
      durableLSN: durable.lsn, durableEnd: durable.offset, framesSincePrevious: live.framesSinceMarker,
      chain: durable.chain, strength: options.strength, fullFlushLSN: min(fullFlushLSN, durable.lsn))
  }

  /// Writes a marker that promises what is durable, without a sync, unless a marker does already. Nothing of the
  /// promise is new to this process: it is for recovery and for readers of other processes.
  mutating func promise() throws(SystemError) {
    guard var live, promisedLSN < durable.lsn else { return }
    var bytes: [UInt8] = []
    bytes.append(marker: marker(live), lsn: durable.lsn + 1, at: live.end, identity: live.identity)
    try live.file.write(bytes, at: UInt64(live.end))
    live.framesSinceMarker = 0
    live.end += UInt32(bytes.count)
    self.live = live
    promisedLSN = durable.lsn
  }

  /// Makes everything that was written durable in the full sense, before an event leaves the device (decision L9).
  mutating func flush() throws(SystemError) {
    guard fullFlushLSN < durable.lsn else { return }
    // Of whichever file: it takes along what barriers have covered, in a predecessor too. What an earlier writer left
    // to barriers was made durable by the open, which synced the directory.
    if let live { try live.file.sync(.durable) }
    fullFlushLSN = durable.lsn
  }

  /// The end of a clean use: promises what is durable, seals the segment, gives reserved space back, syncs, and
  /// says so in CONTROL; does nothing if this writer has appended nothing. The files are closed by `release`.
  mutating func finish() throws(SystemError) {
    // Taken and not written to: the log ends in the predecessor, which was sealed. The next writer drops it.
    guard var live, live.pendingOpening == nil else { return }
    guard hasAppended else {
      // Made by this writer, for nothing or for the copies in it: all of it is synced, and what it reserved is not used.
      try live.file.truncate(to: UInt64(live.end))
      return
    }
    if !live.isSealed {
      var bytes: [UInt8] = []
      let start = live.end
      if promisedLSN < durable.lsn {
        bytes.append(marker: marker(live), lsn: durable.lsn + 1, at: start, identity: live.identity)
      }
      bytes.append(
        contentsOf: SealFrame.encoded(
          live.index.index, at: start + UInt32(bytes.count), firstLSN: live.firstLSN, lastLSN: durable.lsn,
          events: live.events, chain: durable.chain, identity: live.identity))
      try live.file.write(bytes, at: UInt64(start))
      promisedLSN = durable.lsn
      live.end = start + UInt32(bytes.count)
      live.isSealed = true
      durable.offset = live.end
    }
    self.live = live
    try live.file.truncate(to: UInt64(durable.offset))
    try live.file.sync(.durable)
    fullFlushLSN = durable.lsn
    keeper.note(finished)
    let (segmentID, durable, opens) = (segmentID, durable, opens)
    try keeper.bound { control in
      control.tailSegmentID = segmentID
      control.durableLSN = durable.lsn
      control.fullFlushLSN = durable.lsn
      control.durableEnd = durable.offset
      control.isClean = true
      control.opens = opens
    }
  }

  mutating func release() {
    live?.file.close()
    live = nil
  }
}
