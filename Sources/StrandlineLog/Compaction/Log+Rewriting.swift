// Finished segments are rewritten: the one engine of compactions and merges. A merge is a compaction that leaves nothing
// out, of small neighbours wherever they stand.

import StrandlineSystem
import Synchronization

extension Log {
  /// One rewriting at a time; a failure is kept for the report.
  func rewriting<Result: Sendable>(_ kind: UpkeepKind, _ work: () throws(LogError) -> Result) throws(LogError) -> Result
  {
    try upkeep.rewriting.withLock { _ throws(LogError) -> Result in try keepingFailure(of: kind, work) }
  }

  /// The same for a caller that holds the lock of rewritings.
  func keepingFailure<Result: Sendable>(
    of kind: UpkeepKind, _ work: () throws(LogError) -> Result
  ) throws(LogError) -> Result {
    do throws(LogError) { return try work() } catch {
      upkeep.failed(kind, error, now: clock.monotonicNanoseconds())
      throw error
    }
  }

  /// Rewrites segments that stand side by side: all of them or, if anything fails, none. When it returns, what did not survive
  /// is gone from the medium.
  ///
  /// - Parameters:
  ///   - joined: an output takes one more segment while it has no more than this many bytes.
  ///   - survivors: as of `compact`.
  /// - Throws: `LogError`, or what `survivors` throws.
  func rewrite(
    _ inputs: some Collection<SegmentRewrite.Input>, joiningUpTo joined: UInt64,
    survivors: ([LogEvent]) throws -> [LogSurvivor]
  ) throws -> CompactionReport {
    var report = CompactionReport()
    var rest = Array(inputs)[...]
    guard let last = rest.last else { return report }
    var outputs: [MadeSegment] = []
    do {
      while !rest.isEmpty {
        let output = try rewriteFirst(of: &rest, asOf: last.end.lastLSN, joiningUpTo: joined, &report, survivors)
        if let output { outputs.append(output) }
      }
    } catch {
      takeBack(outputs)
      throw error
    }
    try replace(outputs)
    // What did not survive must not be readable any more, also what an earlier attempt has left.
    if let failure = keeper.removeDropped() {
      throw LogError.system("rewritten, but old segments of '\(path)' cannot be removed", failure)
    }
    return report
  }

  /// Takes the first inputs, as many as one output takes by what stays of them, and makes it; nil for one of which
  /// everything is alive and which no other joins: it stays as it is.
  ///
  /// - Parameter limit: the event as of which it is judged what is alive.
  private func rewriteFirst(
    of inputs: inout ArraySlice<SegmentRewrite.Input>, asOf limit: UInt64, joiningUpTo joined: UInt64,
    _ report: inout CompactionReport, _ survivors: ([LogEvent]) throws -> [LogSurvivor]
  ) throws -> MadeSegment? {
    guard let first = inputs.first else { return nil }
    var rewrite = try SegmentRewrite(keeper, from: first)
    var isChanged = false
    repeat {
      let input = inputs.removeFirst()
      try rewrite.read(input) { transaction in
        let kept = try survivors(transaction)
        if !isChanged { isChanged = kept != transaction.map(LogSurvivor.init) }
        return kept
      }
      report.bytesBefore += UInt64(input.end.offset)
      // The header's page is there once, however many become one.
    } while !inputs.isEmpty && rewrite.contentBytes <= joined
    report.segmentsRead += rewrite.inputs.count
    report.eventsRead += rewrite.eventsRead
    report.eventsKept += rewrite.events
    guard isChanged || rewrite.inputs.count > 1 else {
      report.bytesAfter += UInt64(first.end.offset)
      report.segmentsKept += 1
      return nil
    }
    if isChanged { rewrite.compacted(asOf: limit) }
    let output = try make(&rewrite)
    report.segmentsWritten += 1
    report.bytesAfter += rewrite.bytesWritten
    return output
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

  /// Keeps an error that speaks of the bytes of one of the segments that were read.
  ///
  /// - Returns: whether it does.
  func noteDamage(_ error: LogError, in inputs: some Sequence<SegmentRewrite.Input>) -> Bool {
    let input = inputs.first { keeper.directory.segment($0.segmentID) == error.file }
    return input.map { files.damage.add(error, in: $0.segmentID) } ?? false
  }

  /// Forgets damage that is not there any more: a read may fail once, and a file may be restored. Looks no further than
  /// the first segment whose damage is still there.
  func forgetHealed(_ finished: some Sequence<SegmentRewrite.Input>) {
    let known = files.damage.segmentIDs
    for input in finished where known.contains(input.segmentID) {
      do {
        try SegmentRewrite.walk(keeper, input) { _ in }
      } catch {
        return
      }
      files.damage.forget(input.segmentID)
    }
  }
}
