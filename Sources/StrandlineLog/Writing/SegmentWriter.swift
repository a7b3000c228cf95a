// The disk's half of a commit: groups into the live segment, and the next segment when it is full.
//
// Used by one thread at a time. It keeps what the medium is known to have (`durable`) apart from where the next
// frame goes. One group is one write and one sync. The group that brings a segment to its size takes the segment's
// index and seal along; the next group makes another one, only after the last sync of its predecessor returned, so that
// what an opening frame says is true. See Formats/log-writer.md, "Append".

import StrandlineSystem

/// The writer's place on disk.
struct SegmentWriter: Sendable {
  let keeper: DirectoryKeeper
  let options: LogOptions
  /// The segment that holds the end of the log: the live one, or the one that the next one continues.
  private(set) var segmentID: UInt64
  /// The end of what is durable as the options' strength says, in that segment.
  private(set) var durable: LogPosition
  /// nil until this writer's first append, unless it created the store or recovered a tail.
  private(set) var live: LiveSegment?
  /// The end of what a full sync has covered.
  private(set) var flushed: LogBound
  private(set) var hasAppended = false

  private var directory: StoreDirectory { keeper.directory }

  /// - Parameter durable: what is on the medium in the full sense: an open has synced the directory.
  init(
    keeper: DirectoryKeeper, options: LogOptions, segmentID: UInt64, durable: LogPosition, live: LiveSegment?
  ) {
    self.keeper = keeper
    self.options = options
    self.segmentID = segmentID
    self.durable = durable
    self.live = live
    flushed = LogBound(segmentID: segmentID, lsn: durable.lsn, end: durable.offset)
  }

  // MARK: The next segment

  /// Whether the next group needs another segment.
  var needsSegment: Bool { live.map(\.isSealed) ?? true }

  /// A segment that a writer goes on in, and what it leaves.
  struct Rotation {
    let table: SegmentTable
    /// The predecessor ends here; what is reserved behind it can be given back.
    let predecessor: (segmentID: UInt64, end: UInt64)
  }

  /// Goes on in another segment, which continues at `durable`.
  mutating func rotate() throws(WriteFailure) -> Rotation {
    let predecessor = (segmentID: segmentID, end: UInt64(durable.offset))
    let next = try make()
    do {
      try keeper.truncate(predecessor.segmentID, to: predecessor.end)
    } catch {
      // It keeps its reserved space until upkeep tries again. No event depends on it.
    }
    segmentID = next.identity.segmentID
    durable.offset = next.end
    live?.close()
    live = next
    return Rotation(
      table: SegmentTable(path: next.path, identity: next.identity, firstLSN: next.firstLSN),
      predecessor: predecessor)
  }

  /// Makes a segment: file, name and list are on the medium before a group goes in.
  private func make() throws(WriteFailure) -> LiveSegment {
    let creation = SegmentCreation(folder: directory.folder)
    let manifest = keeper.manifest
    let header = SegmentHeader.new(
      keeper.environment, storeUUID: manifest.storeUUID, segmentID: keeper.newSegmentID(), role: manifest.role,
      kind: .live)
    let content = SegmentCreation.encoded(header, after: durable, predecessorID: segmentID).bytes
    let (file, allocated) = try creation.make(
      header.segmentID, content, allocated: UInt64(options.preallocationFirstStepBytes), orLess: true)
    let (segmentID, durable) = (segmentID, durable)
    do throws(WriteFailure) {
      try keeper.commit { manifest in
        manifest.finish(segmentID, durable.end)
        manifest.entries.append(
          ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: durable.lsn + 1))
      }
    } catch {
      file.close()
      throw creation.takeBack(header.segmentID, after: error)
    }
    return LiveSegment(
      file: file, path: directory.segment(header.segmentID), identity: header.identity, end: UInt32(content.count),
      allocated: allocated, firstLSN: durable.lsn + 1)
  }

  // MARK: One group

  /// Writes a group behind the live segment's end and syncs it. When this returns, the group is on the medium as
  /// the options' strength says.
  ///
  /// - Returns: where its events lie, and where they end.
  /// - Complexity: O(bytes of the group); one write and one sync.
  mutating func write(_ group: inout PendingGroup) throws(WriteFailure) -> (offsets: [UInt32], end: UInt32) {
    guard var live else { preconditionFailure("a group is written into a segment") }
    // A copy that was put over the files since the last look keeps its bytes.
    try keeper.hold.compare()
    let groupEnd = UInt64(live.end) + UInt64(group.frames.count)
    let seals = groupEnd >= UInt64(options.segmentBytesMax)
    do {
      try Self.reserve(groupEnd + Self.trailerBytes(live, group.frames.count), in: &live, options)
    } catch {
      self.live = live
      throw .refused(error)
    }
    let identity = live.identity
    let stamped = group.stamp(at: live.end, after: durable, identity: identity, index: &live.index)
    var position = stamped.position
    if seals {
      let trailer = SegmentTrailer.encoded(
        live.index.index, at: position.offset, lastLSN: position.lsn, chain: position.chain, isSynced: false,
        identity: identity)
      group.append(trailer: trailer)
      position.offset += UInt32(trailer.count)
    }
    do {
      hasAppended = true
      try live.write(group.frames, at: UInt64(live.end))
      try live.sync(options.strength)
    } catch {
      throw .unknown(error)
    }
    live.isSealed = seals
    live.end = position.offset
    self.live = live
    segmentID = identity.segmentID
    durable = position
    if options.strength == .durable { noteFlushed() }
    return (stamped.offsets, stamped.position.offset)
  }

  private mutating func noteFlushed() {
    flushed = LogBound(segmentID: segmentID, lsn: durable.lsn, end: durable.offset)
  }

  /// What may follow a group of `frameBytes`: its segment's index and seal, so that they never meet a full disk.
  private static func trailerBytes(_ live: LiveSegment, _ frameBytes: Int) -> UInt64 {
    let entries = live.index.index.entries.count + frameBytes / LogFormat.indexStepBytes + 1
    return UInt64(SegmentTrailer.bytes(entries: entries))
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
      try live.preallocate(at: live.allocated, length: end - live.allocated)
      live.allocated = end
    } catch  where error.isFull && end > needed {
      // A whole step does not fit any more; what is needed now may.
      try live.preallocate(at: live.allocated, length: needed - live.allocated)
      live.allocated = needed
    }
    live.steps += 1
  }

  // MARK: Flush and end

  /// Makes everything that was written durable in the full sense, before an event leaves the device (decision L9).
  mutating func flush() throws(SystemError) {
    guard flushed.lsn < durable.lsn else { return }
    // Of whichever file: a full sync takes along what barriers have covered, in a predecessor too. What an earlier
    // writer left to barriers was made durable by the open, which synced the directory.
    if let live { try live.sync(.durable) }
    noteFlushed()
  }

  /// The end of a clean use: seals the segment, gives reserved space back, syncs, and says in CONTROL where the log ends;
  /// does nothing if this writer has appended nothing. The files are closed by `release`.
  ///
  /// - Throws: `.refused` if CONTROL cannot be read; `.unknown`; `.replaced` if a copy was put over the files.
  mutating func finish() throws(WriteFailure) {
    if live != nil { try keeper.hold.compare() }
    do throws(SystemError) { guard try seal() else { return } } catch { throw .unknown(error) }
    do throws(WriteFailure) {
      try keeper.hold.write(flushed)
    } catch {
      if case .refused(let cause) = error { throw .unknown(cause) }
      throw error
    }
  }

  /// - Returns: whether CONTROL is to say where the log ends.
  private mutating func seal() throws(SystemError) -> Bool {
    guard var live else { return false }
    guard hasAppended else {
      // Made by this writer, for nothing or for the copies in it: all of it is synced, and what it reserved is not used.
      try live.truncate(to: UInt64(live.end))
      live.allocated = UInt64(live.end)
      self.live = live
      return false
    }
    if !live.isSealed {
      // Promised by the index frame: a sync has returned for everything before it.
      let trailer = SegmentTrailer.encoded(
        live.index.index, at: live.end, lastLSN: durable.lsn, chain: durable.chain, isSynced: true,
        identity: live.identity)
      try live.write(trailer, at: UInt64(live.end))
      live.end += UInt32(trailer.count)
      live.isSealed = true
      durable.offset = live.end
    }
    self.live = live
    try live.truncate(to: UInt64(durable.offset))
    try live.sync(.durable)
    noteFlushed()
    let (segmentID, end) = (segmentID, durable.end)
    keeper.noteForNextList { $0.finish(segmentID, end) }
    return true
  }

  mutating func release() {
    live?.close()
    live = nil
  }
}
