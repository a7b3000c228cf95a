// What a server demands of a journal that it opens. `verify` asks the same, so that it calls no journal sound that no server
// opens.

package import StrandlineLog

/// The events of a journal, checked and applied in their order.
package struct JournalCheck {
  /// The fold of the events so far.
  private(set) var state = ServerState()

  package init() {}

  /// Checks the next event, and applies it.
  ///
  /// - Throws: `JournalEventError` if it cannot be read, or does not follow from those before it.
  package mutating func apply(_ event: LogEvent) throws(JournalEventError) {
    guard event.schema == JournalEvent.schema else {
      throw JournalEventError(
        description: "event \(event.lsn) has the schema \(event.schema), which this version does not know",
        isFromNewerVersion: true)
    }
    try state.apply(event.body, at: event.lsn)
  }
}
