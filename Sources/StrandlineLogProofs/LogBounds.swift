// What a log must hold after a crash: the oracle. It shares no code with the log.
//
// It knows for each event whether it must be there, may be there or may never come back, so it judges a log that
// only grows and a log that forgets what its owner needs no more by the same rule.

package import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// Something that the log promised not to do.
package struct LogProblem: Error, CustomStringConvertible {
  var what: String
  package init(_ what: String) { self.what = what }
  package var description: String { what }
}

/// What of an event a crash must not change.
package struct LogEventContent: Hashable, Sendable {
  var lsn: UInt64
  var schema: UInt16
  var body: [UInt8]
  var index: UInt32
  var isFirst: Bool
  var isLast: Bool
}

extension LogEvent {
  /// The same as comparing `content`, without making one.
  package func has(_ other: LogEventContent) -> Bool {
    lsn == other.lsn && schema == other.schema && indexInTransaction == other.index && isFirst == other.isFirst
      && isLast == other.isLast && body == other.body
  }

  /// Without its place, which a copy changes.
  package var content: LogEventContent {
    LogEventContent(
      lsn: lsn, schema: schema, body: body, index: indexInTransaction, isFirst: isFirst, isLast: isLast)
  }
}

/// What may be found after a crash: at least what was acknowledged and not given up since, at most what was issued.
/// LSNs are stable: an event may go, but no other event ever has its number.
package struct LogBounds {
  /// Every event that was issued, in order: the one at index i has LSN i + 1.
  package var issued: [LogEventContent]
  /// How many of them were acknowledged, or returned by an open: they outlive the process.
  package var acknowledged = 0
  /// How many of those outlive the power too. The same, unless syncs are barriers only.
  package var flushed = 0
  /// LSNs that the owner needs no more: each may be there or not. An operation that gives events up says so here
  /// before its first call, because from then on a crash may find them or not.
  package var droppable: Set<UInt64> = []
  /// LSNs that an open did not return: they never come back.
  package var gone: Set<UInt64> = []
  /// Compactions that were begun: each draws anew.
  var rounds: UInt64 = 0
  package init(issued: [LogEventContent], acknowledged: Int = 0, flushed: Int = 0) {
    self.issued = issued
    self.acknowledged = acknowledged
    self.flushed = flushed
  }

  /// What must hold when not only the process is gone.
  package var afterPowerCut: LogBounds {
    var result = self
    result.acknowledged = flushed
    return result
  }

  func mayBeAbsent(_ lsn: Int) -> Bool {
    (!droppable.isEmpty || !gone.isEmpty) && (droppable.contains(UInt64(lsn)) || gone.contains(UInt64(lsn)))
  }

  /// Checks what was found; returns the LSN up to which it reaches, which is the number of events if none may go.
  @discardableResult
  package func check(_ events: [LogEvent], by whom: String) throws -> Int {
    var reach = 0
    for event in events {
      guard event.lsn > UInt64(reach) else {
        throw LogProblem("\(whom) found LSN \(event.lsn) after LSN \(reach)")
      }
      guard event.lsn <= UInt64(issued.count) else {
        throw LogProblem("\(issued.count) events were issued, and \(whom) found LSN \(event.lsn)")
      }
      let lsn = Int(event.lsn)
      while reach < lsn - 1 {
        reach += 1
        guard mayBeAbsent(reach) else { throw LogProblem("\(whom) found LSN \(lsn) and not LSN \(reach)") }
      }
      reach = lsn
      guard event.has(issued[lsn - 1]) else {
        throw LogProblem("\(whom) found another event with LSN \(lsn) than was issued, \(event.body.count) bytes")
      }
      if !gone.isEmpty, gone.contains(event.lsn) { throw LogProblem("\(whom) found LSN \(lsn), which was gone") }
    }
    let last = reach
    // What may be absent at the end counts as far as it was acknowledged, or as its transaction goes.
    while reach < issued.count, mayBeAbsent(reach + 1), reach < acknowledged || !issued[reach].isFirst { reach += 1 }
    guard reach >= acknowledged else {
      throw LogProblem("\(acknowledged) events were acknowledged, and \(whom) found those up to \(last)")
    }
    if reach > 0, !issued[reach - 1].isLast { throw LogProblem("\(whom) found a part of a transaction") }
    return reach
  }

  /// What an open has returned stays; what it has not returned never comes back.
  package mutating func settle(on events: [LogEvent], reach: Int) {
    issued.removeSubrange(reach...)
    acknowledged = reach
    guard !droppable.isEmpty else { return }
    // Numbers above the end are given anew.
    if droppable.contains(where: { $0 > UInt64(reach) }) { droppable = droppable.filter { $0 <= UInt64(reach) } }
    let found = Set(events.map(\.lsn))
    gone.formUnion(droppable.filter { $0 <= UInt64(reach) && !found.contains($0) })
  }
}
