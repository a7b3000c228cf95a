// What to believe of the last segment.
//
// X is the end of the last complete unit before the first frame that does not verify; W is the furthest promise.
//   X <  W   acknowledged bytes are damaged: an error, and nothing on disk is changed
//   X == W   everything that is there was promised; bytes behind X are set aside
//   X >  W   complete units above the promise: they are served, after a copy of them is durable
// Promises are looked for behind X too, in every byte up to the end of the file: a frame whose header verifies at its
// own offset was written by this segment's writer, wherever it lies. Rule: Formats/log.md, "Recovery".

import StrandlineSystem

/// What was found of the tail.
struct TailVerdict {
  /// X.
  var unitEnd: LogPosition
  /// W.
  var promised: LogPosition
  /// Bytes that were written behind X and carry no promise.
  var bytesSetAside: UInt64
  var bytesRead: UInt64
}

/// What lies behind the first frame that does not verify.
struct Resync {
  /// The furthest frame with the flag `synced`: everything before it was on the medium.
  var promise: (offset: UInt32, lsn: UInt64)?
  /// Behind the last byte that is not zero.
  var writtenEnd: UInt64
  var bytesRead: UInt64 = 0

  /// Reads everything from `start` on.
  ///
  /// - Parameter untilUnwritten: stop at the first chunk of zeros; for a reader that looks often.
  static func scan(
    _ file: any File, identity: SegmentIdentity, from start: UInt64, untilUnwritten: Bool = false
  ) throws(LogError) -> Resync {
    var result = Resync(promise: nil, writtenEnd: start)
    var offset = start
    let limit = UInt64(UInt32.max)
    let headerBytes = LogFormat.frameHeaderBytes
    let saltByte = UInt8(truncatingIfNeeded: identity.salt)
    let tagAt = LogFormat.FrameField.tag
    while offset < limit {
      let chunk: [UInt8]
      do {
        chunk = try file.read(at: offset, count: LogFormat.readChunkBytes)
      } catch {
        throw .system("cannot read segment '\(file.path)'", error, file: file.path)
      }
      result.bytesRead += UInt64(chunk.count)
      guard let last = chunk.lastNonZero(in: 0..<chunk.count) else {
        if chunk.count < LogFormat.readChunkBytes || untilUnwritten { break }
        offset += UInt64(chunk.count)
        continue
      }
      result.writtenEnd = offset + UInt64(last) + 1
      var at = 0
      while at + headerBytes <= chunk.count {
        if chunk[at + tagAt] == saltByte, chunk[at + LogFormat.FrameField.flags] & LogFormat.flagSynced != 0,
          case .success(let header) = FrameHeader.decode(
            chunk, at: at, offset: UInt32(truncatingIfNeeded: offset + UInt64(at)), identity: identity),
          1..<LogFormat.numberMax ~= header.lsn
        {
          result.promise = (UInt32(truncatingIfNeeded: offset + UInt64(at)), header.lsn)
        }
        at += LogFormat.frameAlignment
      }
      if chunk.count < LogFormat.readChunkBytes { break }
      // The next chunk begins where a header could first have been cut by the end of this one.
      offset += UInt64(at)
    }
    return result
  }
}

extension TailVerdict {
  /// Judges the segment that `walk` has stopped in.
  ///
  /// - Throws: `.damaged` if X < W.
  static func judge(_ walk: SegmentWalk, untilUnwritten: Bool = false) throws(LogError) -> TailVerdict {
    let stopped = walk.scanner.offset
    let resync = try Resync.scan(
      walk.scanner.file, identity: walk.summary.identity, from: stopped, untilUnwritten: untilUnwritten)
    let end = walk.unitEnd
    try check(walk, resync.promise)
    // A promise behind X that reaches X: the frame that carries it was cut behind its header.
    let promised = resync.promise?.offset == end.offset ? end : walk.promised
    try walk.checkPromises()
    return TailVerdict(
      unitEnd: end, promised: promised, bytesSetAside: max(resync.writtenEnd, stopped) - UInt64(end.offset),
      bytesRead: walk.scanner.bytesRead + resync.bytesRead)
  }

  /// X >= W, and W is a boundary that the walk has seen.
  private static func check(_ walk: SegmentWalk, _ promise: (offset: UInt32, lsn: UInt64)?) throws(LogError) {
    let end = walk.unitEnd
    let promisedEnd = max(walk.opening.durableEnd, promise?.offset ?? 0, walk.bound?.end ?? 0)
    guard promisedEnd <= end.offset else {
      let first = end.lsn + 1
      // Events that were copied behind an opening frame are promised without their number.
      let copied = walk.opening.durableEnd > end.offset ? first : 0
      let last = max(copied, promise.map { $0.lsn - 1 } ?? 0, walk.bound?.lsn ?? 0)
      throw .damaged(
        walk.path, at: UInt64(end.offset)..<UInt64(promisedEnd), lsns: first <= last ? first...last : nil,
        "its bytes up to \(promisedEnd) were acknowledged, and a frame before that does not verify")
    }
    // A promise above X was refused; one at X must speak of the same history.
    if let promise, promise.offset == end.offset, promise.lsn != end.lsn + 1 {
      throw .damaged(
        walk.path, at: UInt64(end.offset)..<UInt64(end.offset) + 1, lsns: nil,
        "a promise of LSN \(promise.lsn - 1) stands where LSN \(end.lsn) ends")
    }
  }
}
