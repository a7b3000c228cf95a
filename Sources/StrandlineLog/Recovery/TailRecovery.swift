// What an open for writing does about the tail: nothing, or a successor that holds the units above the promise.
//
// A frame above the last promise may be complete in memory and not on the medium (a sync that failed marks such
// pages clean), so it is not enough to read it: its bytes are written into a new file, synced, and only then
// served. Both files together would hold the same LSNs twice; the successor's opening frame seals the old one at
// W, never X. A tail that is promised to its end gets its successor at the first append. Rule: decision L2.

import StrandlineSystem

struct TailRecovery {
  let keeper: DirectoryKeeper
  let preparation: SegmentPreparation
  let options: LogOptions
  let tenure: UInt64
  /// Nothing is reserved beside the copy: what the ballast has given back must do for the list too.
  var isTight = false

  private var environment: SystemEnvironment { keeper.environment }
  private var directory: StoreDirectory { keeper.directory }

  /// A writer that stands where the promises end, and has no place for what is above them: nothing can be appended.
  func stalledWriter(_ recovered: Recovery) -> SegmentWriter {
    makeWriter(recovered, segmentID: recovered.last.segmentID, durable: recovered.promised, live: nil)
  }

  /// A writer that continues what was recovered. When this returns, everything that was read is durable.
  func writer(_ recovered: inout Recovery) throws(LogError) -> SegmentWriter {
    guard let unpromised = recovered.unpromised else {
      // Made ahead, and nothing whole in it: the log ends before it.
      if recovered.isLastUnused { recovered.tables.removeLast() }
      return makeWriter(recovered, segmentID: recovered.last.segmentID, durable: recovered.promised, live: nil)
    }
    let last = recovered.last
    let promised = recovered.promised
    let copied = try copy(unpromised, after: promised.lsn, to: recovered.end.lsn)
    let fileSystem = environment.fileSystem
    let creation = SegmentCreation(fileSystem: fileSystem, directory: directory)
    let header = SegmentHeader.new(
      environment, storeUUID: last.header.storeUUID, segmentID: keeper.newSegmentID(), tenure: tenure,
      role: last.header.role)
    let content = SegmentCreation.encoded(
      header, after: promised, predecessorID: last.segmentID, opens: last.opening.opens &+ 1, copied: copied)
    let file: any File
    let allocated: UInt64
    do throws(WriteFailure) {
      (file, allocated) = try creation.make(
        header.segmentID, content.bytes, allocated: isTight ? 0 : UInt64(options.preallocationFirstStepBytes),
        orLess: true)
      do throws(WriteFailure) {
        try keeper.commit(removes: false) { manifest in
          let end = SegmentEnd(offset: promised.offset, lastLSN: promised.lsn, chain: promised.chain)
          manifest.finish(last.segmentID, end, events: nil)
          manifest.add(
            ManifestEntry(segmentID: header.segmentID, salt: header.salt, state: .used, firstLSN: promised.lsn + 1))
        }
      } catch {
        file.close()
        throw creation.takeBack(header.segmentID, after: error)
      }
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause):
        throw .system("cannot keep the end of '\(directory.path)', which no earlier sync has covered", cause)
      }
    }
    let live = LiveSegment(
      file: file, path: directory.segment(header.segmentID), identity: header.identity,
      end: UInt32(content.bytes.count), softBytes: options.segmentBytesMax, allocated: allocated,
      firstLSN: promised.lsn + 1,
      copied: zip(copied.frames, content.offsets).map { ($0.lsn, $1, $0.flags & LogFormat.flagFirst != 0) })
    if recovered.isLastUnused {
      recovered.tables.removeLast()
    } else {
      recovered.tables[recovered.tables.count - 1].cut(to: promised)
    }
    var table = SegmentTable(path: live.path, identity: live.identity, firstLSN: live.firstLSN)
    table.append(content.offsets, end: live.end)
    recovered.tables.append(table)
    recovered.report.copiedEvents = recovered.end.lsn - promised.lsn
    recovered.report.segments += 1
    // The frames behind the promise are void now, and their space, like that of files that are on no list any more, is
    // given back when nobody waits for it: freeing it takes as long as all the rest.
    recovered.finished = (last.segmentID, UInt64(promised.offset))
    let durable = LogPosition(lsn: recovered.end.lsn, chain: recovered.end.chain, offset: live.end)
    return makeWriter(recovered, segmentID: header.segmentID, durable: durable, live: live)
  }

  private func makeWriter(
    _ recovered: Recovery, segmentID: UInt64, durable: LogPosition, live: LiveSegment?
  ) -> SegmentWriter {
    SegmentWriter(
      keeper: keeper, preparation: preparation, options: options, storeUUID: recovered.last.header.storeUUID,
      tenure: tenure,
      role: recovered.last.header.role, segmentID: segmentID, durable: durable, live: live,
      opens: recovered.last.opening.opens &+ (live == nil ? 0 : 1),
      fullFlushLSN: live == nil ? recovered.fullFlushLSN : durable.lsn)
  }

  /// The event frames of [W, X), read again and checked again.
  private func copy(
    _ unpromised: Recovery.Unpromised, after first: UInt64, to last: UInt64
  ) throws(LogError) -> SegmentCreation.CopiedFrames {
    let segment = unpromised.segment
    let file = try Recovery.openSegment(environment.fileSystem, segment.path)
    defer { file.close() }
    var scanner = SegmentScanner(
      file: file, path: segment.path, identity: segment.identity, from: UInt64(unpromised.from),
      limit: UInt64(unpromised.to))
    var copied = SegmentCreation.CopiedFrames()
    var lsn = first
    while case .frame(let header, let start, _) = try scanner.next() {
      guard header.type == FrameType.event.rawValue else { continue }
      copied.frames.append((start: copied.bytes.count, lsn: header.lsn, flags: header.flags))
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
