// Small segments become larger ones: every writer that appends leaves one, and each costs an open a read.
//
// Neighbours are merged when eight of about the same size have come together, so an event is copied once for every
// factor of eight that its segment grows, and never again when that has the size of a segment. A merge is a compaction
// that leaves nothing out (Log+Rewriting.swift).

import StrandlineSystem

extension Log {
  /// Merges small segments, if enough of them have come together. A segment that is known to be damaged stays as it is,
  /// and its neighbours are merged without it.
  ///
  /// - Throws: `.damaged` if a segment proved to be damaged (others were merged all the same), `.io`, `.full`; the log goes
  ///   on as it was. The failure is in `upkeepReport` too.
  /// - Complexity: O(bytes that are merged); O(segments) if none are.
  package func mergeSegments() throws(LogError) {
    try checkCopied()
    try upkeep.enter()
    defer { upkeep.leave() }
    try rewriting(.merging) { () throws(LogError) in try mergeSmall() }
  }

  private func mergeSmall() throws(LogError) {
    try keeper.check()
    var damage: LogError?
    var compacted: Set<UInt64> = []
    while let run = smallSegments(compacted) {
      do throws(LogError) {
        // Their headers say it, and the list does not. The next run is another one, because it ends with them.
        let known = compacted.count
        for input in run.dropLast() where try SegmentRewrite.isCompacted(keeper, input) {
          compacted.insert(input.segmentID)
        }
        if compacted.count == known { try merge(run) }
      } catch {
        // The next run is another one, because it has none of the damaged segments.
        guard noteDamage(error, in: run) else { throw error }
        damage = damage ?? error
      }
    }
    if let damage { throw damage }
    upkeep.succeeded(.merging)
  }

  private func smallSegments(_ compacted: Set<UInt64>) -> [SegmentRewrite.Input]? {
    SegmentChoice.small(
      keeper.manifest.entries, width: options.mergeWidth, bytesMax: UInt64(options.segmentBytesMax),
      damaged: files.damage.segmentIDs, compacted: compacted)
  }

  private func merge(_ run: [SegmentRewrite.Input]) throws(LogError) {
    do {
      let report = try rewrite(run, joiningUpTo: .max) { $0.map(LogSurvivor.init) }
      upkeep.succeeded(.merging) { $0.segmentsMerged += report.segmentsRead }
    } catch let error as LogError {
      throw error
    } catch {
      preconditionFailure("taking over events throws nothing of its own")
    }
  }

  /// Merges small segments while the log closes, the closing writer's own segment too: a writer that is open for a
  /// moment has no other occasion.
  ///
  /// - Returns: what the caller of `close` must learn: a disk that fails, or damage in a segment. Everything acknowledged
  ///   is as safe as before, and the next writer tries again. Nil also on a full disk, where a merge can wait.
  func mergeAtClose(_ writer: borrowing SegmentWriter) -> LogError? {
    guard options.upkeep == .inBackground, writer.hasAppended else { return nil }
    do throws(LogError) {
      try keepingFailure(of: .merging) { () throws(LogError) in try mergeSmall() }
      return nil
    } catch {
      guard !error.isFull else { return nil }
      var error = error
      error.message =
        "'\(path)' is closed and what was acknowledged is safe, but merging its segments failed: \(error.message)"
      return error
    }
  }
}
