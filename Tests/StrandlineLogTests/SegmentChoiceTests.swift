// Which segments a merge takes, by lists that are written down.

import StrandlineSystem
import Testing

@testable import StrandlineLog

@Suite(.timeLimit(.minutes(30)))
struct `The choice of small segments` {
  /// A list with segments of these bytes, of two events each; 0: one that may grow.
  private func list(_ bytes: [UInt32]) -> [ManifestEntry] {
    bytes.enumerated().map { index, bytes in
      let first = UInt64(index) * 2 + 1
      return ManifestEntry(
        segmentID: UInt64(index) + 1, salt: 1, firstLSN: first,
        end: bytes == 0 ? nil : SegmentEnd(offset: bytes, lastLSN: first + 1, chain: 7))
    }
  }

  private func chosen(
    _ bytes: [UInt32], width: Int = 3, bytesMax: UInt64 = 1 << 20, damaged: Set<UInt64> = [],
    compacted: Set<UInt64> = []
  ) -> [UInt64]? {
    SegmentChoice.small(list(bytes), width: width, bytesMax: bytesMax, damaged: damaged, compacted: compacted)?
      .map(\.segmentID)
  }

  @Test func `takes neighbours of one size class, and as many as have come together`() {
    #expect(chosen([5_000, 5_000]) == nil)
    #expect(chosen([5_000, 5_000, 5_000]) == [1, 2, 3])
    #expect(chosen([900_000, 5_000, 5_000, 6_000, 8_192, 900_000]) == [2, 3, 4, 5])
    #expect(chosen([5_000, 5_000, 900_000, 5_000, 5_000]) == nil)
    // Larger ones with smaller ones among them, in the next class.
    #expect(chosen([20_000, 30_000, 5_000, 900_000]) == [1, 2, 3])
    // The smallest first.
    #expect(chosen([20_000, 30_000, 40_000, 5_000, 5_000, 5_000]) == [4, 5, 6])
  }

  @Test func `takes no more than fit into a segment, and none that may grow`() {
    #expect(chosen([8_000, 8_000, 8_000, 8_000, 8_000], bytesMax: 12_000) == [1, 2, 3])
    #expect(chosen([8_000, 8_000, 8_000], width: 3, bytesMax: 8_200) == nil)
    #expect(chosen([5_000, 5_000, 5_000], bytesMax: 8_192) == nil)
    #expect(chosen([5_000, 5_000, 0, 5_000]) == nil)
    #expect(chosen([5_000, 0, 5_000, 5_000, 5_000]) == [3, 4, 5])
  }

  @Test func `leaves a damaged one where it is, with neighbours on either side`() {
    let bytes = [UInt32](repeating: 5_000, count: 7)
    #expect(chosen(bytes, damaged: [4]) == [1, 2, 3])
    #expect(chosen(bytes, damaged: [3]) == [4, 5, 6, 7])
    #expect(chosen(bytes, damaged: [3, 5]) == nil)
  }

  @Test func `joins nothing after a compacted one`() {
    let bytes = [UInt32](repeating: 5_000, count: 5)
    #expect(chosen(bytes, compacted: [1]) == [2, 3, 4, 5])
    #expect(chosen(bytes, compacted: [3]) == [1, 2, 3])
    #expect(chosen(bytes, compacted: [2, 4]) == nil)
    #expect(chosen(bytes, compacted: [5]) == [1, 2, 3, 4, 5])
  }

  @Test func `of the oldest ends with the first that may grow, or that ends above the limit`() {
    #expect(SegmentChoice.oldest(list([5_000, 5_000, 0]), upTo: .max).map(\.segmentID) == [1, 2])
    #expect(SegmentChoice.oldest(list([5_000, 5_000, 5_000]), upTo: 5).map(\.segmentID) == [1, 2])
    #expect(SegmentChoice.oldest(list([0, 5_000]), upTo: .max).isEmpty)
  }
}
