// What one segment file says of itself by its first page, before it is known whether it belongs to the log: its header, its
// opening frame, or why one of them does not verify. A survey (LogSurvey.swift) holds the facts of all files against each
// other. Rules: Formats/log.md, "Recovery".

import StrandlineSystem

/// A segment's header and opening frame.
package struct SegmentSummary: Sendable {
  package let path: String
  package let header: SegmentHeader
  package let opening: OpeningBody
  package let identity: SegmentIdentity
  package var segmentID: UInt64 { header.segmentID }
  package var isRewritten: Bool { header.kind == .rewritten }

  init(path: String, header: SegmentHeader, opening: OpeningBody) {
    self.path = path
    self.header = header
    self.opening = opening
    identity = header.identity
  }

  /// The end that a rewritten segment says itself.
  var rewrittenEnd: SegmentEnd? {
    guard isRewritten else { return nil }
    return SegmentEnd(offset: opening.durableEnd, lastLSN: opening.rangeLastLSN, chain: opening.rangeChain)
  }

  /// The end of the segment before it.
  var predecessorEnd: SegmentEnd {
    SegmentEnd(offset: opening.predecessorEnd, lastLSN: opening.predecessorLastLSN, chain: opening.chain)
  }

  /// Whether it stands behind `previous`.
  func continues(_ previous: SegmentSummary) -> Bool {
    if let end = previous.rewrittenEnd {
      return opening.predecessorLastLSN == end.lastLSN && opening.chain == end.chain
    }
    return opening.predecessorID == previous.segmentID
  }
}

/// What one segment file says by its first page.
struct SegmentFacts: Sendable {
  let segmentID: UInt64
  let path: String
  var size: UInt64 = 0
  /// nil if it does not verify.
  var header: SegmentHeader?
  /// nil if it does not verify, or is not there.
  var opening: OpeningBody?
  /// Why the header or the opening frame does not verify.
  var problem: LogError?
  /// The header's page and the opening frame; kept only if something in them does not verify.
  var firstBytes: [UInt8] = []

  var summary: SegmentSummary? {
    guard let header, let opening else { return nil }
    return SegmentSummary(path: path, header: header, opening: opening)
  }

  init(segmentID: UInt64, path: String) {
    self.segmentID = segmentID
    self.path = path
  }

  /// Reads them.
  ///
  /// - Throws: `.io`.
  static func read(_ folder: any Folder, _ segmentID: UInt64) throws(LogError) -> SegmentFacts {
    let file = try SegmentFile.open(folder, segmentID)
    defer { file.close() }
    return try read(file, segmentID)
  }

  /// Reads them from a file that is open.
  static func read(_ file: any File, _ segmentID: UInt64) throws(LogError) -> SegmentFacts {
    let path = file.path
    var facts = SegmentFacts(segmentID: segmentID, path: path)
    facts.size = try SegmentFile.size(of: file)
    let bytes: [UInt8]
    do {
      bytes = try file.read(at: 0, count: LogFormat.openingEnd)
    } catch {
      throw .system("cannot read segment '\(path)'", error, file: path)
    }
    facts.firstBytes = bytes
    let header: SegmentHeader
    do throws(LogError) {
      header = try SegmentHeader.decode(bytes, file: path, named: segmentID)
    } catch {
      facts.problem = error
      return facts
    }
    facts.header = header
    let first = try wholeFirstFrame(bytes, header.identity, file, facts.size)
    do throws(LogError) {
      facts.opening = try opening(first, header, path)
      facts.firstBytes = []
    } catch {
      facts.problem = error
    }
    return facts
  }

  /// The first bytes of a file, and as many more as its first frame has: one of another length is of a later version if it
  /// verifies whole, and else it is damaged.
  private static func wholeFirstFrame(
    _ bytes: [UInt8], _ identity: SegmentIdentity, _ file: any File, _ size: UInt64
  ) throws(LogError) -> [UInt8] {
    let start = LogFormat.headerPageBytes
    guard bytes.count == LogFormat.openingEnd,
      case .success(let frame) = FrameHeader.decode(bytes, at: start, offset: UInt32(start), identity: identity),
      start + frame.frameBytes > bytes.count, UInt64(start + frame.frameBytes) <= size
    else { return bytes }
    do {
      return try file.read(at: 0, count: start + frame.frameBytes)
    } catch {
      throw .system("cannot read segment '\(file.path)'", error, file: file.path)
    }
  }

  /// The opening frame in the first bytes of a segment, which have its first frame whole if the file has.
  ///
  /// - Throws: `.damaged`, `.fromTheFuture`.
  private static func opening(
    _ bytes: [UInt8], _ header: SegmentHeader, _ path: String
  ) throws(LogError) -> OpeningBody {
    func damaged(_ what: String) -> LogError {
      .damaged(path, at: UInt64(LogFormat.headerPageBytes)..<UInt64(LogFormat.openingEnd), lsns: nil, what)
    }
    switch decodeOpening(bytes, header.identity) {
    case .failure(.fault(let fault)): throw damaged("its opening frame: \(fault.rawValue)")
    case .failure(.unknownForm):
      throw .fromTheFuture(
        path, at: UInt64(LogFormat.headerPageBytes), "it does not begin with an opening frame of this version")
    case .success(let opening):
      guard opening.isConsistent(header.kind) else { throw damaged("its opening frame contradicts itself") }
      return opening
    }
  }

  enum OpeningFault: Error {
    case fault(FrameFault)
    case unknownForm
  }

  /// The opening frame under an identity; what it says is not checked.
  static func decodeOpening(
    _ bytes: [UInt8], _ identity: SegmentIdentity
  ) -> Result<OpeningBody, OpeningFault> {
    let start = LogFormat.headerPageBytes
    guard bytes.count >= start + LogFormat.frameHeaderBytes else { return .failure(.fault(.cut)) }
    let frame: FrameHeader
    switch FrameHeader.decode(bytes, at: start, offset: UInt32(start), identity: identity) {
    case .failure(let error): return .failure(.fault(error.fault))
    case .success(let decoded): frame = decoded
    }
    guard bytes.count >= start + frame.frameBytes else { return .failure(.fault(.cut)) }
    guard frame.bodyMatches(bytes, at: start) else { return .failure(.fault(.bodyCRC)) }
    guard frame.type == FrameType.opening.rawValue, frame.flags == 0, frame.schema == 0,
      frame.indexInTransaction == 0, frame.frameBytes == LogFormat.openingFrameBytes
    else { return .failure(.unknownForm) }
    let body = start + LogFormat.frameHeaderBytes
    guard let opening = OpeningBody.decode(bytes, at: body, count: frame.bodyLength, lsn: frame.lsn) else {
      return .failure(.unknownForm)
    }
    return .success(opening)
  }
}

/// Calls on a segment's file, with the log's errors.
enum SegmentFile {
  static func open(_ folder: any Folder, _ segmentID: UInt64) throws(LogError) -> any File {
    do {
      return try folder.open(SegmentName.name(segmentID), .read)
    } catch {
      let path = folder.path(of: SegmentName.name(segmentID))
      throw .system("cannot open segment '\(path)'", error, file: path)
    }
  }

  static func size(of file: any File) throws(LogError) -> UInt64 {
    do {
      return try file.size()
    } catch {
      throw .system("cannot read segment '\(file.path)'", error, file: file.path)
    }
  }
}
