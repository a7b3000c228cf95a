// The one door through which the plan looks at the log. All of it is read-only and synchronous, and the same log gives the
// same answers. A test opens it on a fold of a few events in memory (`Tests/StrandlineTests/Plan`), the engine on its store.

import StrandlineLog
import StrandlineSystem

/// When the plan is asked.
struct Moment: Sendable {
  /// Milliseconds since 1970 by this device's clock, which a person may turn.
  var wall: Int64
  /// Nanoseconds by the monotonic clock, which runs on while the device sleeps.
  var nanoseconds: UInt64

  init(wall: Int64, nanoseconds: UInt64) { (self.wall, self.nanoseconds) = (wall, nanoseconds) }

  init(_ clock: any SystemClock) {
    self.init(wall: clock.wallMilliseconds(), nanoseconds: clock.monotonicNanoseconds())
  }

  /// The monotonic time in some milliseconds.
  func after(milliseconds: Int64) -> UInt64 { nanoseconds &+ UInt64(clamping: milliseconds) &* 1_000_000 }

  /// Milliseconds until a monotonic time, rounded up; 0 if it has come.
  func milliseconds(until end: UInt64) -> Int64 {
    end > nanoseconds ? Int64((end - nanoseconds + 999_999) / 1_000_000) : 0
  }
}

/// What the plan may know: the log's projections, single events of it, what the app declares of its types, and the time.
protocol SyncFacts: Sendable {
  var now: Moment { get }
  /// The fold of the log, with what is not durable yet.
  var projections: SharedProjections { get }
  var durableLSN: LSN { get }
  var schema: Schema { get }
  /// A durable event; nil if compaction has removed it.
  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent?
  /// A durable event that the log must have.
  func event(at lsn: LSN) throws(StrandlineError) -> Event
  /// An event that is not durable yet.
  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event
}

extension SyncFacts {
  func zone(_ id: ZoneID) -> ZoneState? { projections.withLock { $0.sync.zones[id] } }

  /// The same; nil if compaction has removed it.
  func eventIfKept(at lsn: LSN) throws(StrandlineError) -> Event? {
    try readIfKept(lsn).map { (found) throws(StrandlineError) in try EventSource.decode(found) }
  }

  /// The version of a record in a durable event; nil if the event holds none, or compaction has removed it.
  func versionIfKept(at lsn: LSN, of id: RecordID) throws(StrandlineError) -> ShownVersion? {
    try readIfKept(lsn).flatMap { (found) throws(StrandlineError) in try ShownVersion(found, of: id) }
  }

  /// The record whose newest pending change is the event at `lsn`; nil if it has been settled meanwhile.
  func owner(ofPending lsn: LSN) throws(StrandlineError) -> RecordID? {
    do throws(StrandlineError) { return try eventIfKept(at: lsn)?.recordID } catch {
      // The engine holds what it cannot read.
      guard error.isOfOneRecord, let held = projections.withLock({ $0.sync.held.values.first { $0.lsn == lsn } }) else {
        throw error
      }
      return held.id
    }
  }

  /// How many records of a zone have pending changes. O(all that have): asked when a zone is lost.
  func pendingCount(in zone: ZoneID) throws -> Int {
    var count = 0
    for lsn in projections.owed(.max, after: .none, upTo: durableLSN) {
      // The upload holds by its name what cannot be read.
      do { if try owner(ofPending: lsn)?.zone == zone { count += 1 } } catch {
        guard error.isOfOneRecord else { throw error }
      }
    }
    return count
  }

  /// Whether nothing of a zone is here but its name, which a list has named: no token, no record, and nothing that is pending or
  /// held.
  func hasNothing(of zone: ZoneID) throws -> Bool {
    let knowsNothing = projections.withLock { $0.knowsNothing(of: zone) }
    return try knowsNothing && pendingCount(in: zone) == 0
  }
}

extension SharedProjections {
  /// Whether a record was deleted, and the server agrees.
  func isGone(_ id: RecordID) throws -> Bool {
    let known = try look(id)
    return known.entry == nil && known.deletion != nil
  }
}
