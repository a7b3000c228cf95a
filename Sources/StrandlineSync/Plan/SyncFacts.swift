// The questions that the plan may ask of the log: read-only and synchronous, and the same log gives the same answers. So a test can run
// the plan on a few events in memory (`Tests/StrandlineTests/PlanSupport.swift`); the engine runs it on its store.

package import StrandlineLog
package import StrandlineSystem

/// The time at which the plan is asked, by two clocks.
package struct Moment: Sendable {
  /// Milliseconds since 1970 by this device's clock, which a person may set.
  package var wall: Int64
  /// Nanoseconds by the monotonic clock, which also counts while the device sleeps.
  var nanoseconds: UInt64

  init(wall: Int64, nanoseconds: UInt64) { (self.wall, self.nanoseconds) = (wall, nanoseconds) }

  package init(_ clock: any SystemClock) {
    self.init(wall: clock.wallMilliseconds(), nanoseconds: clock.monotonicNanoseconds())
  }

  /// The monotonic time in some milliseconds.
  package func after(milliseconds: Int64) -> UInt64 { nanoseconds &+ UInt64(clamping: milliseconds) &* 1_000_000 }

  /// Milliseconds until a monotonic time, rounded up; 0 if it has come.
  package func milliseconds(until end: UInt64) -> Int64 {
    end > nanoseconds ? Int64((end - nanoseconds + 999_999) / 1_000_000) : 0
  }
}

/// The questions that the current state answers: the fold of all events, those that are not durable yet among them.
package protocol FoldFacts: Sendable {
  /// Reads the part of the state that is about sync. `read` must be short: a lock may be held.
  func learned<Value: Sendable>(_ read: (SyncState) -> Value) -> Value
  func entry(_ id: RecordID) throws(StrandlineError) -> RecordEntry?
  func look(_ id: RecordID) throws(StrandlineError) -> KnownRecord
  /// The newest change of a record that a request may have carried and whose outcome is not known.
  func attempted(_ pending: Pending?) -> LSN?
  /// Whether a request may have carried a change whose outcome is not known.
  func wasAttempted(_ lsn: LSN) -> Bool
  /// Whether this store has nothing of a zone but its name.
  func knowsNothing(of zone: ZoneID) -> Bool
}

/// What the plan may know: the current state, single events, the app's declared types, and the time.
package protocol SyncFacts: FoldFacts {
  var now: Moment { get }
  /// The last event.
  var appliedLSN: LSN { get }
  /// The last event that is durable.
  var durableLSN: LSN { get }
  var schema: Schema { get }
  /// Whether a request may have carried any change whose outcome is not known.
  var hasAttempts: Bool { get }
  /// The newest pending changes of records, ascending: the first `count` of those above `lsn` and not above `end`.
  func pending(_ count: Int, after lsn: LSN, upTo end: LSN) -> [LSN]
  /// Which record a pending change is of.
  func change(at lsn: LSN) throws(StrandlineError) -> PendingFact
  /// Whether a record of a zone has a pending change. No event is read.
  func hasPending(in zone: ZoneID) throws(StrandlineError) -> Bool
  /// The known zones that the app's configuration does not sync. O(zones) if there are any.
  func zonesLeftOut(by synced: SyncedDatabase) -> Set<ZoneID>
  /// A durable event; nil if compaction has removed it.
  func readIfKept(_ lsn: LSN) throws(StrandlineError) -> LogEvent?
  /// A durable event that the log must have.
  func event(at lsn: LSN) throws(StrandlineError) -> Event
  /// An event that is not durable yet.
  func undurableEvent(at lsn: LSN) throws(StrandlineError) -> Event
}

/// The answer about a change that was pending a moment ago.
package enum PendingFact {
  case change(RecordID, LogEvent)
  /// A newer change, or the server's answer, has followed.
  case replaced
  /// Its event cannot be read. The index knows whose it is.
  case damaged(RecordID, StrandlineError)
}

extension FoldFacts {
  package func zone(_ id: ZoneID) -> ZoneState? { learned { $0.zones[id] } }

  /// Why a record's change is not sent; nil if it is.
  package func held(_ id: RecordID) -> Held? { learned { $0.held[id] } }

  /// The upload set of a record, all of which is sent in one atomic request; nil if the record is sent by itself.
  package func set(of id: RecordID) -> RecordSet? { learned { $0.sets[id] } }

  /// The records of a set, in order.
  package func members(of set: RecordSet) -> [RecordID] { learned { $0.members[set] ?? [] }.sorted() }

  /// Whether a record was deleted, and the server agrees.
  package func isGone(_ id: RecordID) throws -> Bool {
    let known = try look(id)
    return known.entry == nil && known.deletion != nil
  }

  /// Whether a creation may have reached the server: an unanswered `sent` names it, or another copy of this log (a clone,
  /// a restored backup) may have sent it.
  package func mayHaveBeenSent(_ pending: Pending) -> Bool {
    if attempted(pending) != nil { return true }
    let tenures = learned { $0.tenures }
    // Earlier changes were written under another writer ID, or before the first known tenure (in a repaired store). Whether they
    // were sent is not known.
    var end = tenures.first?.first ?? .zero
    if let current = tenures.last?.writer, let change = tenures.last(where: { $0.writer != current }) {
      end = tenures.first { $0.first > change.first }?.first ?? .zero
    }
    return pending.first < end
  }

  /// Whether the server may have a record whose pending change is a deletion, though this store knows no version there: a
  /// creation may have been sent, or it was a default, which all devices begin as one life.
  package func mayBeAtServer(_ id: RecordID, deletedBy pending: Pending) throws -> Bool {
    try mayHaveBeenSent(pending) || look(id).deletion?.births.contains(.ofDefaults) == true
  }
}

extension SyncFacts {
  var hasPending: Bool { !pending(1, after: .zero, upTo: appliedLSN).isEmpty }

  /// A durable event, decoded; nil if compaction has removed it.
  func eventIfKept(at lsn: LSN) throws(StrandlineError) -> Event? {
    try readIfKept(lsn).map { (found) throws(StrandlineError) in try found.decoded() }
  }

  /// The version of a record in a durable event; nil if the event holds none, or compaction has removed it.
  func versionIfKept(at lsn: LSN, of id: RecordID) throws(StrandlineError) -> ShownVersion? {
    try readIfKept(lsn).flatMap { (found) throws(StrandlineError) in try ShownVersion(found, of: id) }
  }

  /// The record whose newest pending change is the event at `lsn`; nil if it has been settled meanwhile.
  package func owner(ofPending lsn: LSN) throws(StrandlineError) -> RecordID? {
    do throws(StrandlineError) { return try eventIfKept(at: lsn)?.recordID } catch {
      // The engine holds changes that it cannot read.
      guard error.isOfOneRecord, let held = learned({ $0.held.values.first { $0.lsn == lsn } }) else {
        throw error
      }
      return held.id
    }
  }

  /// Whether this store has only the name of a zone, from the server's list: no token, no record, no pending or held change.
  func hasNothing(of zone: ZoneID) throws -> Bool {
    try knowsNothing(of: zone) && !hasPending(in: zone)
  }
}
