// Small segments become larger ones: every writer that appends leaves one, and each costs an open a look.
//
// Neighbours are merged when eight of about the same size have come together, so an event is copied once for every
// factor of eight that its segment grows, and never again when that has the size of a segment. Nothing is left out.

import StrandlineSystem
import Synchronization

extension Log {
  /// Merges small segments, if enough of them have come together.
  ///
  /// - Throws: `.damaged`, `.io`, `.full`; the log goes on as it was. The failure is in `upkeepReport` too.
  /// - Complexity: O(bytes that are merged); O(segments) if none are.
  package func mergeSegments() throws(LogError) {
    try rewriting { () throws(LogError) in
      while let run = mergeableRun() {
        var rewrite = try SegmentRewrite(keeper, run, tenure: tenure)
        do {
          try rewrite.read { $0.map(LogSurvivor.init) }
        } catch let error as LogError {
          throw error
        } catch {
          preconditionFailure("taking over events throws nothing of its own")
        }
        try replace(&rewrite)
        upkeep.succeeded { $0.segmentsMerged += run.count }
      }
    }
  }

  /// A writer that came for a moment merges what has come together, its own segment too. If that fails, everything is
  /// as safe as before, and the next writer tries again.
  func mergeAtClose(_ writer: borrowing SegmentWriter) {
    guard options.upkeep == .inBackground, writer.hasAppended else { return }
    do throws(LogError) {
      try mergeSegments()
    } catch {
      // In `upkeepReport`, and nothing that the closing depends on.
    }
  }

  /// One rewriting at a time; a failure is kept for the report.
  func rewriting<Result>(_ work: () throws(LogError) -> Result) throws(LogError) -> Result {
    try upkeep.rewriting.withLock { _ throws(LogError) -> Result in
      do throws(LogError) {
        return try work()
      } catch {
        if error.code != .consumerHolds { upkeep.failed(error, now: clock.monotonicNanoseconds()) }
        throw error
      }
    }
  }

  /// Writes an output, and lets reads find its events in it before the inputs go.
  func replace(_ rewrite: inout SegmentRewrite) throws(LogError) {
    let inputs = Set(rewrite.inputs.map(\.entry.segmentID))
    try rewrite.write { table in
      commit.withLock { $0.replace(inputs, with: table) }
      files.drop(inputs)
    }
  }

  /// Neighbours of one size class or smaller ones, eight at least, that fit into a segment together.
  private func mergeableRun() -> [SegmentRewrite.Input]? {
    let entries = keeper.manifest.entries.filter { $0.state == .used }
    for level in 0..<8 {
      let limit = (UInt64(LogFormat.headerPageBytes) * 2) << UInt64(3 * level)
      guard limit < UInt64(options.segmentBytesMax) else { return nil }
      var run: [SegmentRewrite.Input] = []
      var bytes: UInt64 = 0
      for entry in entries {
        // The header's page is there once, however many become one.
        let content = UInt64(entry.end) - min(UInt64(entry.end), UInt64(LogFormat.headerPageBytes))
        // One whose end is not on the list stands between its neighbours all the same.
        let isSmall = entry.end != 0 && UInt64(entry.end) <= limit
        let fits = isSmall && bytes + content <= UInt64(options.segmentBytesMax)
        if !fits {
          if run.count >= options.mergeWidth { return run }
          run = []
          bytes = 0
        }
        if isSmall {
          run.append(SegmentRewrite.Input(entry: entry))
          bytes += content
        }
      }
      if run.count >= options.mergeWidth { return run }
    }
    return nil
  }
}
