// When the log of a store is compacted without being asked to, and how much of the past stays in it.

/// How much of the past a compaction leaves in a store, beside what every record is now. Whatever it is: what is owed to
/// the server, what is set aside, a decision that is open, and the names of deleted records stay.
public enum HistoryRetention: Hashable, Sendable {
  /// Everything: nothing is ever left out.
  case all
  /// All events from this long ago on, by the times in the events: hybrid times, which never go back, and the server's times of
  /// modification. The records as they were then can be read too. An event of a device whose clock is ahead stays
  /// longer; while this device's clock is behind, nothing is left out too early.
  case since(Duration)
  /// Nothing that no record needs.
  case latest

  /// 30 days.
  public static let recent = HistoryRetention.since(.seconds(30 * 86_400))
}

/// When a store's log is compacted in the background.
///
/// A compaction is considered whenever half as many events were written as there are records, from a size of two segments on.
/// With `HistoryRetention.latest`, and as long as what lives does not shrink, a log has so at most about twice the bytes that
/// live in it, and two segments.
package struct CompactionPolicy: Hashable, Sendable {
  /// How much of the past stays.
  package var history: HistoryRetention = .recent
  /// The log is compacted when so large a part of it, or of what is older than the history that stays, can go: from 0 to
  /// 1. nil: never unless `RecordStore.compact(keeping:)` is called.
  package var deadRatio: Double? = 1.0 / 3
  /// The part of the time in which a compaction in the background may read and write: above 0, at most 1.
  package var diskShare: Double = 0.25

  /// The defaults: 30 days of history, a third, a quarter.
  package init() {}

  /// How many events must be written before a compaction is considered again.
  package var eventsMin: UInt64 = 16_384

  /// After how many events a compaction of a store with so many records is considered again.
  func eventsBetween(_ records: Int) -> UInt64 { max(eventsMin, UInt64(records / 2)) }
}
