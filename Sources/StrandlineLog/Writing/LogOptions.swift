// The options of one writer: whose log it is, how large its pieces are, how hard it syncs.

package import StrandlineSystem

/// Whose events a log holds. The log itself never looks into them.
package enum LogRole: Hashable, Sendable {
  /// A store of records.
  case store
  /// The journal of the local server.
  case server
  /// What other processes have left for a store.
  case inbox

  /// Its four bytes in a segment's header.
  package var bytes: [UInt8] {
    switch self {
    case .store: Array("stor".utf8)
    case .server: Array("srvr".utf8)
    case .inbox: Array("inbx".utf8)
    }
  }

  /// For a sentence.
  package var words: String {
    switch self {
    case .store: "a store's log"
    case .server: "a server's journal"
    case .inbox: "a store's inbox"
    }
  }
}

/// Sizes and habits of one writer. None of them is written down: two opens may differ in all of them.
package struct LogOptions: Sendable {
  /// The group that brings a segment to this many bytes seals it, and the next one goes into another.
  package var segmentBytesMax: Int
  /// Space is reserved ahead of the end: first this much,
  package var preallocationFirstStepBytes: Int
  /// then twice as much each time, up to this much.
  package var preallocationStepBytesMax: Int
  /// What is synced together holds at most this many bytes; a larger transaction is synced alone.
  package var groupBytesMax: Int
  /// A transaction with more bytes of frames is refused before anything is done.
  package var transactionBytesMax: Int
  /// How long an open waits for another writer to go.
  package var lockWaitMilliseconds: Int64
  /// Whether CONTROL says of each group that it is durable before its writers hear of it, so that whoever opens or polls
  /// a reader after that finds it. It costs a group one write of 64 bytes, without a sync. If false, readers find it when
  /// CONTROL is raised after `controlIntervalMilliseconds`.
  package var publishesGroups: Bool
  /// How long after the first acknowledged transaction that CONTROL does not cover it is raised: for recovery, and for
  /// readers in other processes. nil: never by itself, and then no thread is started but for an `async` wait.
  package var controlIntervalMilliseconds: Int64?
  /// How hard a group is synced.
  package var strength: SyncStrength
  /// Space that a new store sets aside for the recovery of a full disk; 0 for none.
  package var ballastBytes: Int
  /// So many neighbours of about the same size become one segment.
  package var mergeWidth: Int
  /// A consumer that keeps more than this from being compacted is named in an error.
  package var consumerHoldBytesMax: UInt64
  /// Memory for the indexes of finished segments that single events were read from; those used last stay.
  package var indexBytesMax: Int
  /// Memory for the exact places of events in finished segments that this log has written or walked; those of the newest
  /// segments stay, and the others' are found by their indexes.
  package var placeBytesMax: Int
  /// When space is given back and small segments are merged.
  package var upkeep: UpkeepSchedule

  /// When a log does what no append waits for.
  package enum UpkeepSchedule: Sendable {
    /// On a thread of its own, while appends go on.
    case inBackground
    /// Only when `Log.maintain()`, `mergeSegments()` or `compact` is called; for tests that repeat a run.
    case onDemand
  }

  package init(
    segmentBytesMax: Int = 16 << 20, preallocationFirstStepBytes: Int = 1 << 20,
    preallocationStepBytesMax: Int = 16 << 20, groupBytesMax: Int = 1 << 20,
    transactionBytesMax: Int = 64 << 20, lockWaitMilliseconds: Int64 = 250,
    publishesGroups: Bool = true, controlIntervalMilliseconds: Int64? = 200, strength: SyncStrength = .durable,
    ballastBytes: Int = 1 << 20, mergeWidth: Int = 8,
    consumerHoldBytesMax: UInt64 = 256 << 20, indexBytesMax: Int = 4 << 20, placeBytesMax: Int = 16 << 20,
    upkeep: UpkeepSchedule = .inBackground
  ) {
    // Offsets are 32 bits: the largest segment is one of the largest soft size and one transaction on top.
    precondition(segmentBytesMax <= 1 << 30 && transactionBytesMax <= LogFormat.bodyBytesMax)
    precondition(preallocationFirstStepBytes > 0 && preallocationStepBytesMax > 0)
    self.segmentBytesMax = segmentBytesMax
    self.preallocationFirstStepBytes = preallocationFirstStepBytes
    self.preallocationStepBytesMax = preallocationStepBytesMax
    self.groupBytesMax = groupBytesMax
    self.transactionBytesMax = transactionBytesMax
    self.lockWaitMilliseconds = lockWaitMilliseconds
    self.publishesGroups = publishesGroups
    self.controlIntervalMilliseconds = controlIntervalMilliseconds
    self.strength = strength
    self.ballastBytes = ballastBytes
    self.mergeWidth = mergeWidth
    self.consumerHoldBytesMax = consumerHoldBytesMax
    self.indexBytesMax = indexBytesMax
    self.placeBytesMax = placeBytesMax
    self.upkeep = upkeep
  }
}
