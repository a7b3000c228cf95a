// Fuzzes a single frame, and the bodies of the log's own frames.

import StrandlineLog
import StrandlineSystem

enum FrameFuzzing {
  /// Input: flags, the identity of a segment, an offset in it, and the bytes there.
  static func runFrame(_ input: inout FuzzInput) {
    let flags = FuzzFlags(rawValue: input.byte())
    let identity = SegmentIdentity(storeUUID: input.padded(16), segmentID: input.u64(), salt: input.u32())
    let offset = input.u32()
    var bytes = input.padded(LogFormat.frameHeaderBytes) + input.rest()
    if flags.contains(.repaired) { _ = LogFuzzing.repairFrame(&bytes, at: 0, offset: offset, identity: identity) }
    guard case .success(let header) = FrameHeader.decode(bytes, at: 0, offset: offset, identity: identity) else {
      return
    }
    require(header.bodyLength <= LogFormat.bodyBytesMax, "a length of \(header.bodyLength)")
    require(header.frameBytes % LogFormat.frameAlignment == 0, "a frame of \(header.frameBytes) bytes")
    guard header.frameBytes <= bytes.count else { return }
    let matches = header.bodyMatches(bytes, at: 0)
    require(matches || !flags.contains(.repaired), "a repaired body does not match")
  }

  /// A body that is decoded must be encoded to the same bytes.
  static func runBodies(_ input: inout FuzzInput) {
    let bytes = input.rest()
    if let index = IndexBody.decode(bytes, at: 0, count: bytes.count) {
      require(index.encoded() == bytes, "an index is not written as it was read")
    }
    if let seal = SealBody.decode(bytes, at: 0, count: bytes.count) {
      require(seal.encoded() == bytes, "a seal is not written as it was read")
    }
    if let opening = OpeningBody.decode(bytes, at: 0, count: bytes.count, lsn: 1) {
      require(opening.encoded() == bytes, "an opening is not written as it was read")
    }
  }
}
