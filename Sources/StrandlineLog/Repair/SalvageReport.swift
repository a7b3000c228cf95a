// What a look through a damaged log found: how much of it verifies, and what is missing.

/// A region of a file that is not what was written.
package struct SalvageDamage: Hashable, Sendable {
  package var file: String
  /// In the file; empty for a file that is missing.
  package var bytes: Range<UInt64>
  /// The LSNs that were lost with it, as far as its neighbours bound them; nil if none were, or it is not known.
  package var lsns: ClosedRange<UInt64>?
  package var words: String
}

/// The result of a salvage.
package struct SalvageReport: Hashable, Sendable {
  /// Segments from which something was read.
  package var segments = 0
  package var transactions: UInt64 = 0
  /// Events in whole transactions.
  package var events: UInt64 = 0
  /// Transactions of which a member is lost, and the events that are left of them.
  package var partialTransactions: UInt64 = 0
  package var partialEvents: UInt64 = 0
  package var damages: [SalvageDamage] = []
  /// Events that were there; ascending. In a segment that was compacted some of them may have been left out before.
  package var lost: [ClosedRange<UInt64>] = []
  /// Events may have followed the last one; how many is not known.
  package var isOpenEnded = false
  /// No LSN above this is known to have been given.
  package var lastLSN: UInt64 = 0
  /// Events that stand behind the end that a segment has, whose copies were lost with the next segment.
  package var eventsBehindEnds: UInt64 = 0
  /// Bytes that were written and never acknowledged; an open would set them aside too.
  package var bytesSetAside: UInt64 = 0
  /// Segments of this store without a place in its history; nothing was read from them.
  package var strays: [String] = []

  package init() {}

  package var isDamaged: Bool { !damages.isEmpty }
  /// Whether what is left may be a history with holes.
  package var hasLostEvents: Bool { !lost.isEmpty || isOpenEnded || partialTransactions > 0 }
  package var bytesDamaged: UInt64 { damages.reduce(0) { $0 + UInt64($1.bytes.count) } }
}
