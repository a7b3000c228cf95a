// What a proof asks a server in its own process: what happened since it last looked, and how far a change token goes.

internal import Strandline

extension CloudServer {
  /// Calls `body` with the journal's events after an LSN, in order. Returns the LSN of the last one.
  ///
  /// For tests: they check after each step what the server has done in it.
  package func forEachEvent(after lsn: UInt64, _ body: (UInt64, JournalEvent) throws -> Void) throws -> UInt64 {
    let last = journal.durableLSN
    guard lsn < last else { return lsn }
    for number in lsn + 1...last {
      if let event = try JournalEvent.decode(try journal.read(number)) { try body(number, event) }
    }
    return last
  }

  /// The life of the zone and the event that a zone's change token names, whether it has expired or not; nil if it is no
  /// token of this journal.
  ///
  /// For tests: a token must not go further than what its device holds.
  package func place(ofToken text: String) -> (life: UInt64, lsn: UInt64)? {
    guard let token = try? SyncToken.parse(text), token.storeUUID == journal.storeUUID, token.kind == .zone else {
      return nil
    }
    return (token.life, token.lsn)
  }
}
