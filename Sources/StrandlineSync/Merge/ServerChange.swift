// The intake's input and its result: changes that the server has sent, their place in the feed, and what the store did with them.

import StrandlineSystem

/// The server's word on one record.
package struct ServerChange: Sendable {
  package enum Kind: Sendable {
    /// The server has this version.
    case version(ServerRecord)
    /// The feed lists this version without its fields, which are still to be fetched.
    case listed(ServerRecord)
    /// The feed says that the record was deleted.
    case deletion
    /// The server does not have the record: the answer to a lookup.
    case absence
    /// The server has the record, but it cannot be read. The error has its bytes, if there were any.
    case unreadable(CloudError)
    /// The server does not have the record any more: a full fetch did not show it.
    case unseen(Unseen)
  }
  /// How to apply that a full fetch did not show a synced record.
  package enum Unseen: Sendable {
    /// It is removed. An unsent change of it stays, and the server's answer to that decides.
    case removedUnlessEdited
    /// It is removed. An unsent edit ends with it, or becomes a new record, by its type's rule. An unsent creation of another record
    /// under the name stays pending.
    case removed
    /// It is uploaded again, as a new record.
    case createdAgain
  }
  /// What brought the changes: the feed after a token, the feed from its beginning, a lookup, or a query.
  package enum Source: Sendable { case delta, fullFetch, lookup, query }
  package var id: RecordID
  package var kind: Kind

  package init(_ id: RecordID, _ kind: Kind) {
    self.id = id
    self.kind = kind
  }

  /// The change from an answer to a lookup; nil if it does not say which version the server has.
  init?(_ id: RecordID, answer: CloudResult?) {
    switch answer {
    case .record(let record)?: self.init(id, .version(record))
    case .deleted?: self.init(id, .absence)
    case .failed(let error, _)? where error.code == .notFound: self.init(id, .absence)
    case .failed(let error, _)? where !error.raw.isEmpty: self.init(id, .unreadable(error))
    case .failed?, nil: return nil
    }
  }

  /// When the server changed the record, by its clock.
  package var modifiedMilliseconds: Int64? {
    switch kind {
    case .version(let server), .listed(let server): return server.system.modified?.milliseconds
    case .deletion, .absence, .unreadable, .unseen: return nil
    }
  }
}

/// A page's place in the feed of its zone.
package struct PagePlace: Sendable {
  package var zone: ZoneID
  /// No page follows.
  package var isLast: Bool
  /// Versions stay on the shelf while records of the zone are listed and not fetched.
  package var waitsForListed: Bool
  /// A full fetch begins with it.
  package var startsOver: Bool
  /// Its token was in the feed before: the server repeats an old page.
  package var isRepeated: Bool

  package init(
    zone: ZoneID, isLast: Bool, waitsForListed: Bool = false, startsOver: Bool = false, isRepeated: Bool = false
  ) {
    self.zone = zone
    self.isLast = isLast
    self.waitsForListed = waitsForListed
    self.startsOver = startsOver
    self.isRepeated = isRepeated
  }
}

/// The result of applying one page or answer.
package struct TakenChanges: Sendable {
  package var report = SyncReport()
  /// The records for which an event was appended, or a version confirmed.
  package var touched: Set<RecordID> = []
  /// Records that this store has synced and the server did not find, in the order of the changes.
  package var absent: [RecordID] = []
  /// Listed records that have a pending change here.
  package var listedAndPending: [String] = []
  /// Whether nothing was applied because `before` returned false.
  package var wasDropped = false

  package init() {}
}
