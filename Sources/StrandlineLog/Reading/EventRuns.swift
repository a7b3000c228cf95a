// Runs of events in order, segment by segment, for a writer's log and for a reader's.
//
// Segments are read in large pieces and not event by event. One that is merged or compacted meanwhile is left, and the run
// goes on behind the last event that was handed out, in the segment that stands for it.

import StrandlineSystem

/// A log whose events are found by their LSNs.
protocol EventAddresses {
  var files: SegmentFiles { get }

  /// Runs `body` with the place of an event, and again if its segment was replaced meanwhile. Damage that `body` throws is
  /// kept.
  func resolved<Result>(
    _ lsn: UInt64, _ body: (SegmentTable.Place, SegmentTable.Address) throws(LogError) -> Result
  ) throws(LogError) -> Result
}

extension EventAddresses {
  /// Hands the events of a range of LSNs to `visit`, in order, until it returns false.
  ///
  /// - Parameter limit: the last LSN that may be handed out.
  func handOut(_ lsns: ClosedRange<UInt64>, upTo limit: UInt64, _ visit: (LogEvent) throws -> Bool) throws {
    var next = max(1, lsns.lowerBound)
    let last = min(lsns.upperBound, limit)
    var visitorsError: (any Error)?
    while next <= last {
      let goesOn = try resolved(next) { (place, table) throws(LogError) -> Bool in
        let end = min(last, table.lastLSN)
        let goesOn = try files.scan(next...max(next, end), at: place, in: table) { event in
          next = event.lsn + 1
          do {
            return try visit(event)
          } catch {
            visitorsError = error
            return false
          }
        }
        if goesOn { next = max(next, end + 1) }
        return goesOn
      }
      if let visitorsError { throw visitorsError }
      guard goesOn else { return }
    }
  }
}
