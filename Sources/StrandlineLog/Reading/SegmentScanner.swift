// Frames out of one file, in order of place, up to the first that does not verify.
//
// The file is read in chunks of 256 KiB. A frame that does not fit is read again alone, with a length that its
// header's checksum has vouched for and that the file's size bounds: no allocation follows an unverified length.
// A read that fails is an error and never the end of the log.

import StrandlineSystem

/// A cursor over the frames of a segment.
struct SegmentScanner {
  enum Step {
    /// A frame that verifies; its bytes begin at `at` of `window`.
    case frame(FrameHeader, at: Int, offset: UInt32)
    /// The bytes at `offset` are no frame.
    case stop(FrameFault)
  }

  let file: any File
  let identity: SegmentIdentity
  /// Nothing is read from here on: the size of the file, or where its successor says that it ends.
  let limit: UInt64
  /// The next frame, or the first that does not verify.
  private(set) var offset: UInt64
  private(set) var window: [UInt8] = []
  private var windowOffset: UInt64 = 0
  private(set) var bytesRead: UInt64 = 0

  init(file: any File, identity: SegmentIdentity, from offset: UInt64, limit: UInt64) {
    self.file = file
    self.identity = identity
    self.offset = offset
    // Offsets in frames have 32 bits; a file that is larger has junk behind them.
    self.limit = min(limit, UInt64(UInt32.max))
  }

  /// The next frame.
  mutating func next() throws(LogError) -> Step {
    let headerBytes = LogFormat.frameHeaderBytes
    guard offset < limit else { return .stop(.unwritten) }
    guard limit - offset >= UInt64(headerBytes), try load(headerBytes) else { return .stop(.cut) }
    let place = UInt32(offset)
    let header: FrameHeader
    switch FrameHeader.decode(window, at: Int(offset - windowOffset), offset: place, identity: identity) {
    case .failure(let error): return .stop(error.fault)
    case .success(let decoded): header = decoded
    }
    let bytes = header.frameBytes
    guard limit - offset >= UInt64(bytes), try load(bytes) else { return .stop(.cut) }
    let start = Int(offset - windowOffset)
    guard header.bodyMatches(window, at: start) else { return .stop(.bodyCRC) }
    offset += UInt64(bytes)
    return .frame(header, at: start, offset: place)
  }

  /// Goes on elsewhere; for a reader that looks for the next frame behind damage.
  mutating func skip(to offset: UInt64) { self.offset = offset }

  /// Makes `count` bytes at `offset` part of the window; false if the file does not have them (any more).
  private mutating func load(_ count: Int) throws(LogError) -> Bool {
    if offset >= windowOffset, offset + UInt64(count) <= windowOffset + UInt64(window.count) { return true }
    let wanted = Int(min(UInt64(max(count, LogFormat.readChunkBytes)), limit - offset))
    do {
      try file.read(at: offset, count: wanted, into: &window)
    } catch {
      throw .system("cannot read segment '\(file.path)'", error, file: file.path)
    }
    windowOffset = offset
    bytesRead += UInt64(window.count)
    return window.count >= count
  }
}

extension SegmentScanner {
  /// The first frame of a range whose header verifies, for a caller that goes on behind damage: nil if there is none.
  ///
  /// - Parameter range: begins with a multiple of 8.
  /// - Complexity: O(bytes that are passed over).
  static func firstFrame(
    of file: any File, identity: SegmentIdentity, in range: Range<UInt64>
  ) throws(LogError) -> (offset: UInt64, header: FrameHeader)? {
    let headerBytes = LogFormat.frameHeaderBytes
    let end = min(range.upperBound, UInt64(UInt32.max))
    var offset = range.lowerBound
    while offset + UInt64(headerBytes) <= end {
      let chunk: [UInt8]
      do {
        chunk = try file.read(at: offset, count: Int(min(UInt64(LogFormat.readChunkBytes), end - offset)))
      } catch {
        throw .system("cannot read segment '\(file.path)'", error, file: file.path)
      }
      var at = 0
      while at + headerBytes <= chunk.count {
        if chunk.u32(at: at + LogFormat.FrameField.tag) == identity.salt,
          case .success(let header) = FrameHeader.decode(
            chunk, at: at, offset: UInt32(offset) + UInt32(at), identity: identity)
        {
          return (offset + UInt64(at), header)
        }
        at += LogFormat.frameAlignment
      }
      // The file is shorter than it was a moment ago.
      guard at > 0 else { return nil }
      offset += UInt64(at)
    }
    return nil
  }
}
