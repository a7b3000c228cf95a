// Which finished segments are rewritten together. It only computes.

import StrandlineSystem

/// The choice, by what MANIFEST lists.
enum SegmentChoice {
  /// For a compaction: the oldest, as far as each has an end at or below `limit`.
  static func oldest(_ entries: [ManifestEntry], upTo limit: UInt64) -> ArraySlice<SegmentRewrite.Input> {
    var inputs: [SegmentRewrite.Input] = []
    for entry in entries {
      guard let input = SegmentRewrite.Input(entry), input.end.lastLSN <= limit else { break }
      inputs.append(input)
    }
    return inputs[...]
  }

  /// For a merge: neighbours of one size class or smaller ones, `width` at least, that fit into a segment together.
  ///
  /// - Parameters:
  ///   - damaged: they stay as they are.
  ///   - compacted: nothing is joined after one. An index that was written after its end goes on from there; an output that
  ///     lacks events and reaches beyond would have it read the whole log at each open.
  static func small(
    _ entries: [ManifestEntry], width: Int, bytesMax: UInt64, damaged: Set<UInt64>, compacted: Set<UInt64>
  ) -> [SegmentRewrite.Input]? {
    for level in 0..<8 {
      let limit = (UInt64(LogFormat.headerPageBytes) * 2) << UInt64(3 * level)
      guard limit < bytesMax else { return nil }
      var run: [SegmentRewrite.Input] = []
      var bytes: UInt64 = 0
      for entry in entries {
        // One that is damaged, or whose end is not on the list, stands between its neighbours all the same.
        guard let input = SegmentRewrite.Input(entry), UInt64(input.end.offset) <= limit,
          !damaged.contains(input.segmentID)
        else {
          if run.count >= width { return run }
          (run, bytes) = ([], 0)
          continue
        }
        // The header's page is there once, however many become one.
        let content = UInt64(input.end.offset) - UInt64(LogFormat.headerPageBytes)
        if bytes + content > bytesMax {
          if run.count >= width { return run }
          (run, bytes) = ([], 0)
        }
        run.append(input)
        bytes += content
        if compacted.contains(input.segmentID) {
          if run.count >= width { return run }
          (run, bytes) = ([], 0)
        }
      }
      if run.count >= width { return run }
    }
    return nil
  }
}
