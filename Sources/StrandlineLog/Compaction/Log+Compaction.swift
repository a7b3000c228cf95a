// Compaction: what is not needed any more leaves the log, LSNs stay.
//
// Only the oldest finished segments are rewritten, as a prefix, so no older value can outlive a newer fact that was
// left out. What is alive only the owner of the log knows: it is handed every transaction and says what stays of it,
// as it is or packed into other bytes under the same LSN (decisions L6, L8). Consumers that are registered hold it
// back: what one of them has not read yet is not touched, and one that holds too much is named. Appends go on
// meanwhile; one rewriting runs at a time.

import StrandlineSystem
import Synchronization

/// What a compaction did.
package struct CompactionReport: Hashable, Sendable {
  package var segmentsRead = 0
  package var segmentsWritten = 0
  /// Segments of which everything is alive.
  package var segmentsKept = 0
  package var eventsRead: UInt64 = 0
  package var eventsKept: UInt64 = 0
  package var bytesBefore: UInt64 = 0
  package var bytesAfter: UInt64 = 0

  package init() {}
}

/// A reader of the log that needs what it has not read: compaction leaves it there.
package final class LogConsumer: Sendable {
  package let name: String
  private let position: Atomic<UInt64>
  private let onEnd: @Sendable () -> Void

  init(name: String, position: UInt64, onEnd: @escaping @Sendable () -> Void) {
    self.name = name
    self.position = Atomic(position)
    self.onEnd = onEnd
  }

  /// Everything up to here was read.
  package var lsn: UInt64 { position.load(ordering: .acquiring) }

  /// Everything up to `lsn` was read. Going back has no effect.
  package func advance(to lsn: UInt64) { position.max(lsn, ordering: .releasing) }

  /// Ends the consumer: it holds back no compaction any more. Releasing the object does the same.
  package func end() { onEnd() }

  deinit { onEnd() }
}

/// The consumers of a log, by number. They may outlive it: a log that is opened again is given those of the closed one.
package final class LogConsumers: Sendable {
  private let entries = OrderedMutex<[UInt64: @Sendable () -> (name: String, lsn: UInt64)?]>([:])
  private let nextNumber = Atomic<UInt64>(0)

  package init() {}

  package func register(_ name: String, after lsn: UInt64) -> LogConsumer {
    let number = nextNumber.add(1, ordering: .relaxed).oldValue
    let consumer = LogConsumer(name: name, position: lsn) { [weak self] in
      _ = self?.entries.withLock { $0.removeValue(forKey: number) }
    }
    entries.withLock { entries in
      entries[number] = { [weak consumer] in consumer.map { ($0.name, $0.lsn) } }
    }
    return consumer
  }

  /// The consumer that has read least; of several the first by name.
  var slowest: (name: String, lsn: UInt64)? {
    let all = entries.withLock { Array($0.values) }.compactMap { $0() }
    return all.min { ($0.lsn, $0.name) < ($1.lsn, $1.name) }
  }
}

extension Log {
  /// The bytes of the segments that are finished. O(segments).
  package var finishedBytes: UInt64 { finishedBytes(after: 0) }

  /// The bytes of all segments, as far as they are written. O(segments).
  package var segmentBytes: UInt64 { queue.withLock { $0.tables.reduce(0) { $0 + UInt64($1.end) } } }

  /// The bytes of the finished segments that end after `lsn`, which a consumer there keeps from being compacted.
  package func finishedBytes(after lsn: UInt64) -> UInt64 {
    keeper.manifest.entries.reduce(0) { sum, entry in
      guard let end = entry.end, end.lastLSN > lsn else { return sum }
      return sum + UInt64(end.offset)
    }
  }

  /// The size at which a segment is finished.
  package var segmentBytesMax: Int { Int(options.segmentBytesMax) }

  /// Registers a consumer: compaction removes nothing above the LSN that it has advanced to, as long as it lives.
  package func register(consumer name: String, after lsn: UInt64) -> LogConsumer {
    consumers.register(name, after: lsn)
  }

  /// Goes on in another segment, so that everything that is durable lies in finished ones. Does nothing if the newest
  /// segment has no event yet.
  ///
  /// - Throws: `.io` or `.full`; the log goes on where it was. `.outcomeUnknown`, which poisons it.
  package func finishSegment() throws(LogError) {
    try upkeep.enter()
    defer { upkeep.leave() }
    try queue.withLock { state throws(LogError) in try state.checkWritable() }
    let failure = disk.withLock { writer -> LogError? in
      // It may have been poisoned while this waited.
      guard case .open = queue.withLock({ $0.phase }) else { return nil }
      guard let newest = keeper.manifest.entries.last, newest.firstLSN <= writer.durable.lsn else { return nil }
      do throws(WriteFailure) {
        // Sealed and bounded as at a clean close: no later group in it will promise its last one.
        try writer.finish()
        let rotation = try writer.rotate()
        queue.withLock { $0.rotated(rotation, placeBytesMax: options.placeBytesMax) }
        upkeep.add(rotation.predecessor)
        return nil
      } catch {
        let failure = keeper.named(error)
        if case .refused = failure {} else { fail(failure).tell() }
        return Self.failure("cannot go on in another segment of '\(path)'", failure)
      }
    }
    if let failure { throw failure }
  }

  /// Rewrites the oldest finished segments, as far as they end at or below `limit`: all of them or, if anything fails,
  /// none, so that what is left out may depend on what is packed in another of them.
  ///
  /// Safe beside appends and reads; a second call waits for the first. When it returns, what did not survive is gone
  /// from the medium, and LSNs that were removed read as `.compacted`.
  ///
  /// A damaged segment stays as it is, and so does what follows it: a newer fact that was left out there would no longer
  /// stand against what a repair may find in it. One of which damage was met earlier is read again first.
  ///
  /// - Parameters:
  ///   - prepare: asked before, with the events that it is about, which no other call rewrites meanwhile; not asked if
  ///     there are none. Asked again, with fewer, if a segment proves to be damaged. If it returns false, nothing is done.
  ///   - survivors: what stays of a transaction: some of its LSNs, rising, each with its content or another. Asked in
  ///     the order of the log, about finished segments only.
  /// - Throws: `.consumerHolds` if a consumer keeps more than `LogOptions.consumerHoldBytesMax` from being looked at
  ///   (what is below it was compacted all the same); `.damaged` if a segment is damaged (what stands before it was
  ///   compacted all the same); `.io`, `.full`; or what the closures throw. The log goes on as it was, and the failure is
  ///   in `upkeepReport`.
  /// - Complexity: O(bytes of the segments that are read); until it ends, the medium holds what survives twice.
  @discardableResult
  package func compact(
    upTo limit: UInt64 = .max, prepare: (FinishedEvents) throws -> Bool = { _ in true },
    survivors: ([LogEvent]) throws -> [LogSurvivor]
  ) throws -> CompactionReport {
    try checkCopied()
    try upkeep.enter()
    defer { upkeep.leave() }
    try checkPlace()
    var report = CompactionReport()
    var ownersError: (any Error)?
    do throws(LogError) {
      try rewriting(.compacting) { () throws(LogError) in
        // In this order: a consumer that registers after the second line begins above what the first one found.
        let finished = SegmentChoice.oldest(keeper.manifest.entries, upTo: limit)
        let slowest = consumers.slowest
        forgetHealed(finished)
        var damaged: SegmentRewrite.Input?
        var free = finished.prefix(0)
        while true {
          let known = files.damage.segmentIDs
          damaged = finished.first { known.contains($0.segmentID) }
          free = finished.prefix { $0.end.lastLSN <= slowest?.lsn ?? .max && !known.contains($0.segmentID) }
          report = CompactionReport()
          do {
            guard let last = free.last else { break }
            let events = FinishedEvents(keeper: keeper, inputs: Array(free), lastLSN: last.end.lastLSN)
            guard try prepare(events) else { break }
            // Of half-empty segments two fit into one.
            report = try rewrite(free, joiningUpTo: UInt64(options.segmentBytesMax) / 2, survivors: survivors)
            break
          } catch let error as LogError {
            // Without the segment that proved to be damaged, and what follows it.
            guard noteDamage(error, in: free) else { throw error }
          } catch {
            ownersError = error
            throw LogError(.io, "the owner of '\(path)' could not say what is alive: \(error)", file: path)
          }
        }
        if let damaged, let error = files.damage.error(in: damaged.segmentID) { throw error }
        let held = finished[free.endIndex...].reduce(0) { $0 + UInt64($1.end.offset) }
        if let slowest, held > options.consumerHoldBytesMax {
          throw LogError(
            .consumerHolds,
            "the consumer '\(slowest.name)' has read up to LSN \(slowest.lsn) and keeps \(held) bytes from being "
              + "compacted", file: path, lsns: slowest.lsn...max(slowest.lsn, durableLSN))
        }
        upkeep.succeeded(.compacting) { $0.compactions += 1 }
      }
    } catch {
      if let ownersError { throw ownersError }
      throw error
    }
    return report
  }
}

/// The events that a compaction is about.
package struct FinishedEvents {
  let keeper: DirectoryKeeper
  let inputs: [SegmentRewrite.Input]
  /// The last LSN of their range.
  package let lastLSN: UInt64

  /// Reads them, a transaction at a time, in the order of the log.
  ///
  /// - Throws: `LogError`, or what `body` throws.
  package func forEachTransaction(_ body: ([LogEvent]) throws -> Void) throws {
    for input in inputs { try SegmentRewrite.walk(keeper, input, body) }
  }
}
