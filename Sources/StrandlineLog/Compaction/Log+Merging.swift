// Small segments become larger ones: every writer that appends leaves one, and each costs an open a read.
//
// Neighbours are merged when eight of about the same size have come together, so an event is copied once for every
// factor of eight that its segment grows, and never again when that has the size of a segment. Nothing is left out.

import StrandlineSystem
import Synchronization

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
    try mergeNow()
  }

  private func mergeNow() throws(LogError) {
    try rewriting(.merging) { () throws(LogError) in
      try keeper.check()
      var damage: LogError?
      while let run = mergeableRun() {
        do throws(LogError) {
          try merge(run)
        } catch {
          // The next run is another one, because it has none of the damaged segments.
          guard noteDamage(error, in: run) else { throw error }
          damage = damage ?? error
        }
      }
      if let damage { throw damage }
      upkeep.succeeded(.merging)
    }
  }

  private func merge(_ run: [SegmentRewrite.Input]) throws(LogError) {
    var rewrite = try SegmentRewrite(keeper, from: run[0])
    do {
      for input in run { try rewrite.read(input) { $0.map(LogSurvivor.init) } }
    } catch let error as LogError {
      throw error
    } catch {
      preconditionFailure("taking over events throws nothing of its own")
    }
    try replace([try make(&rewrite)])
    if let failure = keeper.removeDropped() {
      throw .system("merged, but old segments of '\(path)' cannot be removed", failure)
    }
    upkeep.succeeded(.merging) { $0.segmentsMerged += run.count }
  }

  /// Merges small segments while the log closes, the closing writer's own segment too: a writer that is open for a
  /// moment has no other occasion.
  ///
  /// - Returns: what the caller of `close` must learn: a disk that fails, or damage in a segment. Everything acknowledged
  ///   is as safe as before, and the next writer tries again. Nil also on a full disk, where a merge can wait.
  func mergeAtClose(_ writer: borrowing SegmentWriter) -> LogError? {
    guard options.upkeep == .inBackground, writer.hasAppended else { return nil }
    do throws(LogError) {
      try mergeNow()
      return nil
    } catch {
      guard !error.isFull else { return nil }
      var error = error
      error.message =
        "'\(path)' is closed and what was acknowledged is safe, but merging its segments failed: \(error.message)"
      return error
    }
  }

  /// One rewriting at a time; a failure is kept for the report.
  func rewriting<Result>(_ kind: UpkeepKind, _ work: () throws(LogError) -> Result) throws(LogError) -> Result {
    try upkeep.rewriting.withLock { _ throws(LogError) -> Result in
      do throws(LogError) {
        return try work()
      } catch {
        upkeep.failed(kind, error, now: clock.monotonicNanoseconds())
        throw error
      }
    }
  }

  /// Writes an output that no list names yet.
  func make(_ rewrite: inout SegmentRewrite) throws(LogError) -> MadeSegment {
    do throws(WriteFailure) {
      return try rewrite.make()
    } catch {
      throw Self.failure("cannot rewrite segments of '\(path)'", keeper.named(error))
    }
  }

  /// Puts outputs on the list in place of their inputs, all of them at once, and lets reads find the events there
  /// before the inputs go. When this returns, the list is on the medium. If the new one is refused, the old one holds and
  /// the outputs are taken back; if that is not known, both sets of files stay, and the next open sees which counts.
  func replace(_ outputs: [MadeSegment]) throws(LogError) {
    guard !outputs.isEmpty else { return }
    let replaced = outputs.flatMap(\.replaced)
    do throws(WriteFailure) {
      try keeper.commit(
        dropping: replaced,
        { manifest in for output in outputs { manifest.replace(output.replaced, with: output.entry) } },
        listed: {
          queue.withLock { state in
            for output in outputs { state.replace(Set(output.replaced), with: output.table) }
          }
          files.drop(Set(replaced))
        })
    } catch {
      switch error {
      case .refused, .replaced: takeBack(outputs)
      case .unknown: break
      }
      throw Self.failure("cannot rewrite segments of '\(path)'", error)
    }
  }

  /// Takes outputs back that no list names.
  func takeBack(_ outputs: [MadeSegment]) {
    for output in outputs { keeper.drop(output.entry.segmentID) }
    // What cannot be removed now is removed by the next rewriting, or by the next writer.
    keeper.removeDropped()
  }

  /// Neighbours of one size class or smaller ones, eight at least, that fit into a segment together.
  private func mergeableRun() -> [SegmentRewrite.Input]? {
    let entries = keeper.manifest.entries
    let damaged = files.damage.segmentIDs
    for level in 0..<8 {
      let limit = (UInt64(LogFormat.headerPageBytes) * 2) << UInt64(3 * level)
      guard limit < UInt64(options.segmentBytesMax) else { return nil }
      var run: [SegmentRewrite.Input] = []
      var bytes: UInt64 = 0
      for entry in entries {
        let end = UInt64(entry.end?.offset ?? 0)
        // The header's page is there once, however many become one.
        let content = end - min(end, UInt64(LogFormat.headerPageBytes))
        // One that is damaged, or whose end is not on the list, stands between its neighbours all the same.
        let isSmall = end != 0 && end <= limit && !damaged.contains(entry.segmentID)
        let fits = isSmall && bytes + content <= UInt64(options.segmentBytesMax)
        if !fits {
          if run.count >= options.mergeWidth { return run }
          run = []
          bytes = 0
        }
        if isSmall, let input = SegmentRewrite.Input(entry) {
          run.append(input)
          bytes += content
        }
      }
      if run.count >= options.mergeWidth { return run }
    }
    return nil
  }
}
