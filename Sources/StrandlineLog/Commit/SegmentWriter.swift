// The disk's half of a commit: groups into the live segment, and the next segment when it is full.
//
// Used by one leader at a time. It keeps what the medium is known to have (`durable`) apart from where the next
// frame goes. One group is one write and one sync; a segment's successor is made only after the last sync of its
// predecessor returned, so that what its opening frame says is true. See Formats/log.md, "Append".

import StrandlineSystem

/// The writer's place on disk.
struct SegmentWriter: Sendable {
  let environment: SystemEnvironment
  let directory: StoreDirectory
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
  private var fullFlushLSN: UInt64
  /// The LSN that the last marker (or the opening frame) promises.
  private var promisedLSN: UInt64
  private(set) var hasAppended = false

  init(
    environment: SystemEnvironment, directory: StoreDirectory, options: LogOptions, storeUUID: [UInt8],
    tenure: UInt64, role: LogRole, segmentID: UInt64, durable: LogPosition, live: LiveSegment?, opens: UInt64,
    fullFlushLSN: UInt64
  ) {
    self.environment = environment
    self.directory = directory
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

  /// How many bytes of transactions fit into the live segment; 0 if another one is needed first.
  ///
  /// A segment without events takes any transaction: nowhere is more room.
  func room(forFirst frameBytes: Int) -> Int {
    guard let live else { return 0 }
    // The group's own marker, and one behind it for the promise at the end.
    let used = Int(live.end) + LogFormat.markerFrameBytes + LogFormat.markerFrameBytes
    let room = options.segmentBytesMax - used
    if room >= frameBytes { return room }
    return live.hasEvents ? 0 : frameBytes
  }

  /// Makes the next segment, which continues at `durable`, and gives its predecessor's reserved space back.
  ///
  /// - Returns: the new segment, and where the predecessor ends.
  mutating func rotate() throws(WriteFailure) -> LiveSegment {
    let isFirst = live == nil
    let header = SegmentHeader.new(
      environment, storeUUID: storeUUID, segmentID: segmentID + 1, tenure: tenure, role: role)
    let creation = SegmentCreation(
      environment: environment, directory: directory, header: header, predecessorID: segmentID, after: durable,
      opens: opens &+ (isFirst ? 1 : 0))
    let next = try creation.create(firstStepBytes: options.preallocationFirstStepBytes)
    let predecessor = directory.segment(segmentID)
    let sealedEnd = UInt64(durable.offset)
    adopt(next, opens: creation.opens)
    do {
      try Self.truncate(environment.fileSystem, predecessor, to: sealedEnd)
    } catch {
      throw .unknown(error)
    }
    return next
  }

  /// Goes on in a segment that was just made.
  private mutating func adopt(_ next: LiveSegment, opens: UInt64) {
    live?.file.close()
    live = next
    segmentID = next.identity.segmentID
    durable.offset = next.end
    promisedLSN = durable.lsn
    self.opens = opens
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
  /// - Returns: where its events lie.
  /// - Complexity: O(bytes of the group); one write and one sync.
  mutating func write(_ group: [QueuedTransaction], frameBytes: Int) throws(WriteFailure) -> [UInt32] {
    guard var live else { preconditionFailure("a group is written into a segment") }
    // Room for one more marker is reserved too, so that a promise at the end never meets a full disk.
    let needed = UInt64(live.end) + UInt64(GroupBuffer.bytes(frameBytes) + LogFormat.markerFrameBytes)
    do {
      try Self.reserve(needed, in: &live, options)
    } catch {
      throw .refused(error)
    }
    let buffer = GroupBuffer(
      group, frameBytes: frameBytes, marker: marker(live), at: live.end, after: durable, identity: live.identity)
    do {
      hasAppended = true
      try live.file.write(buffer.bytes, at: UInt64(live.end))
      try live.file.sync(options.strength)
    } catch {
      throw .unknown(error)
    }
    live.framesSinceMarker = UInt32(buffer.offsets.count)
    live.end = buffer.position.offset
    live.hasEvents = true
    self.live = live
    promisedLSN = durable.lsn
    durable = buffer.position
    if options.strength == .durable { fullFlushLSN = durable.lsn }
    return buffer.offsets
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

  /// The end of a clean use: promises what is durable, gives reserved space back, syncs; does nothing if this
  /// writer has appended nothing. The files are closed by `release`.
  mutating func finish() throws(SystemError) {
    guard let live, hasAppended else { return }
    try promise()
    try live.file.truncate(to: UInt64(self.live?.end ?? live.end))
    try live.file.sync(.durable)
  }

  mutating func release() {
    live?.file.close()
    live = nil
  }
}
