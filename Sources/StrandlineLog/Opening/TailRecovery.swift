// What an open for writing does about the tail: nothing, or a successor that holds the units above the promise.
//
// A frame above the last promise may be complete in memory and not on the medium (a sync that failed marks such
// pages clean), so it is not enough to read it: its bytes are written into a new file, synced, and only then
// served. Both files together would hold the same LSNs twice; the successor's opening frame seals the old one at
// W, never X. A tail that is promised to its end gets its successor at the first append. Rule: decision L2.

import StrandlineSystem

struct TailRecovery {
  let keeper: DirectoryKeeper
  let options: LogOptions
  /// Nothing is reserved beside the copy: what the ballast has given back must do for the list too.
  var isTight = false

  private var environment: SystemEnvironment { keeper.environment }
  private var directory: StoreDirectory { keeper.directory }

  /// A writer that stands where the promises end, and has no place for what is above them: nothing can be appended.
  func stalledWriter(_ recovered: Recovery) -> SegmentWriter {
    SegmentWriter(
      keeper: keeper, options: options, segmentID: recovered.last.segmentID, durable: recovered.promised, live: nil)
  }

  /// A writer that continues what was recovered. When this returns, everything that was read is durable.
  func writer(_ recovered: inout Recovery) throws(LogError) -> SegmentWriter {
    guard let unpromised = recovered.unpromised else { return stalledWriter(recovered) }
    let last = recovered.last
    let promised = recovered.promised
    let copied = try copy(unpromised.segment, unpromised.range, after: promised.lsn, to: recovered.end.lsn)
    let live = try successor(of: last, at: promised, copied)
    recovered.tables[recovered.tables.count - 1].cut(to: promised)
    var table = SegmentTable(path: live.path, identity: live.identity, firstLSN: live.firstLSN)
    table.append(live.copiedOffsets, end: live.end)
    recovered.tables.append(table)
    recovered.report.copiedEvents = recovered.end.lsn - promised.lsn
    recovered.report.segments += 1
    // The frames behind the promise are void now. Their space is given back when no caller waits for it: freeing it takes
    // as long as all the rest.
    recovered.finished = (last.segmentID, UInt64(promised.offset))
    return SegmentWriter(
      keeper: keeper, options: options, segmentID: live.segment.identity.segmentID,
      durable: LogPosition(lsn: recovered.end.lsn, chain: recovered.end.chain, offset: live.end), live: live.segment)
  }

  /// A live segment that begins with copied events. When this returns, it is on the medium and listed.
  private func successor(
    of last: LogSegment, at promised: LogPosition, _ copied: SegmentCreation.CopiedFrames
  ) throws(LogError) -> Successor {
    let creation = SegmentCreation(folder: directory.folder)
    let manifest = keeper.manifest
    let header = SegmentHeader.new(
      environment, storeUUID: manifest.storeUUID, segmentID: keeper.newSegmentID(), role: manifest.role, kind: .live)
    let content = SegmentCreation.encoded(header, after: promised, predecessorID: last.segmentID, copied: copied)
    let file: any File
    let allocated: UInt64
    do throws(WriteFailure) {
      (file, allocated) = try creation.make(
        header.segmentID, content.bytes, allocated: isTight ? 0 : UInt64(options.preallocationFirstStepBytes),
        orLess: true)
      do throws(WriteFailure) {
        try keeper.commit { manifest in
          manifest.finish(last.segmentID, promised.end)
          manifest.entries.append(
            ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: promised.lsn + 1))
        }
      } catch {
        file.close()
        throw creation.takeBack(header.segmentID, after: error)
      }
    } catch {
      throw error.error(
        "cannot copy the \(copied.bytes.count) bytes of '\(last.path)' at byte \(promised.offset) that no earlier sync "
          + "has covered; make room, or mend the disk, and open again", file: last.path)
    }
    var segment = LiveSegment(
      file: file, path: directory.segment(header.segmentID), identity: header.identity,
      end: UInt32(content.bytes.count), allocated: allocated, firstLSN: promised.lsn + 1)
    for (frame, offset) in zip(copied.frames, content.offsets) { segment.index.add(frame.lsn, at: offset) }
    return Successor(segment: segment, copiedOffsets: content.offsets)
  }

  private struct Successor {
    let segment: LiveSegment
    let copiedOffsets: [UInt32]
    var path: String { segment.path }
    var identity: SegmentIdentity { segment.identity }
    var firstLSN: UInt64 { segment.firstLSN }
    var end: UInt32 { segment.end }
  }

  /// The event frames of [W, X), read again and checked again.
  private func copy(
    _ segment: SegmentSummary, _ range: Range<UInt32>, after first: UInt64, to last: UInt64
  ) throws(LogError) -> SegmentCreation.CopiedFrames {
    let file = try SegmentFile.open(directory.folder, segment.segmentID)
    defer { file.close() }
    var scanner = SegmentScanner(
      file: file, identity: segment.identity, from: UInt64(range.lowerBound), limit: UInt64(range.upperBound))
    var copied = SegmentCreation.CopiedFrames()
    var lsn = first
    while case .frame(let header, let start, _) = try scanner.next() {
      guard header.type == FrameType.event.rawValue else { continue }
      // In its new place a promise stands nowhere but in the opening frame.
      copied.frames.append((start: copied.bytes.count, lsn: header.lsn, flags: header.flags & ~LogFormat.flagSynced))
      copied.bytes.append(contentsOf: scanner.window[start..<start + header.frameBytes])
      lsn = header.lsn
    }
    guard lsn == last else {
      throw LogError(
        .io, "'\(segment.path)' read differently a second time, at byte \(scanner.offset); nothing was changed",
        file: segment.path, offset: scanner.offset)
    }
    return copied
  }
}
