// What an open for writing does about the tail: nothing, or a successor that holds the units above the promise.
//
// A frame above the last promise may be complete in memory and not on the medium (a sync that failed marks such
// pages clean), so it is not enough to read it: its bytes are written into a new file, synced, and only then
// served. Both files together would hold the same LSNs twice; the successor's opening frame seals the old one at
// W, never X. A tail that is promised to its end gets its successor at the first append. Rule: decision L2.

import StrandlineSystem

struct TailRecovery {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  let options: LogOptions
  let tenure: UInt64

  /// A writer that continues what was recovered. When this returns, everything that was read is durable.
  func writer(_ recovered: inout Recovery) throws(LogError) -> SegmentWriter {
    let last = recovered.last
    let tail = recovered.tail
    guard tail.unitEnd.lsn > tail.promised.lsn else {
      return makeWriter(recovered, segmentID: last.segmentID, durable: tail.promised, live: nil)
    }
    let header = SegmentHeader.new(
      environment, storeUUID: last.header.storeUUID, segmentID: last.segmentID + 1, tenure: tenure,
      role: last.header.role)
    var creation = SegmentCreation(
      environment: environment, directory: directory, header: header, predecessorID: last.segmentID,
      after: tail.promised, opens: last.opening.opens &+ 1)
    creation.copied = try copy(last, tail)
    let live: LiveSegment
    do throws(WriteFailure) {
      live = try creation.create(firstStepBytes: options.preallocationFirstStepBytes)
      do throws(SystemError) {
        try SegmentWriter.truncate(environment.fileSystem, last.path, to: UInt64(tail.promised.offset))
      } catch {
        throw WriteFailure.unknown(error)
      }
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause):
        throw .system("cannot keep the end of '\(directory.path)', which no earlier sync has covered", cause)
      }
    }
    recovered.tables[recovered.tables.count - 1].cut(to: tail.promised)
    var table = SegmentTable(path: live.path, identity: live.identity, firstLSN: live.firstLSN)
    table.append(live.copiedOffsets, end: live.end)
    recovered.tables.append(table)
    recovered.report.copiedEvents = tail.unitEnd.lsn - tail.promised.lsn
    recovered.report.segments += 1
    let durable = LogPosition(lsn: tail.unitEnd.lsn, chain: tail.unitEnd.chain, offset: live.end)
    return makeWriter(recovered, segmentID: header.segmentID, durable: durable, live: live)
  }

  private func makeWriter(
    _ recovered: Recovery, segmentID: UInt64, durable: LogPosition, live: LiveSegment?
  ) -> SegmentWriter {
    SegmentWriter(
      environment: environment, directory: directory, options: options,
      storeUUID: recovered.last.header.storeUUID, tenure: tenure, role: recovered.last.header.role,
      segmentID: segmentID, durable: durable, live: live,
      opens: recovered.last.opening.opens &+ (live == nil ? 0 : 1),
      fullFlushLSN: live == nil ? recovered.fullFlushLSN : durable.lsn)
  }

  /// The event frames of [W, X), read again and checked again.
  private func copy(_ last: SegmentSummary, _ tail: TailVerdict) throws(LogError) -> SegmentCreation.CopiedFrames {
    let file = try Recovery.openSegment(environment.fileSystem, last.path)
    defer { file.close() }
    var scanner = SegmentScanner(
      file: file, path: last.path, identity: last.identity, from: UInt64(tail.promised.offset),
      limit: UInt64(tail.unitEnd.offset))
    var copied = SegmentCreation.CopiedFrames()
    var lsn = tail.promised.lsn
    while case .frame(let header, let start, _) = try scanner.next() {
      guard header.type == FrameType.event.rawValue else { continue }
      copied.frames.append((start: copied.bytes.count, lsn: header.lsn, flags: header.flags))
      copied.bytes.append(contentsOf: scanner.window[start..<start + header.frameBytes])
      lsn = header.lsn
    }
    guard lsn == tail.unitEnd.lsn else {
      throw LogError(
        .io, "'\(last.path)' read differently a second time, at byte \(scanner.offset); nothing was changed",
        file: last.path, offset: scanner.offset)
    }
    return copied
  }
}
