// When a held record is sent again. A hold stands in the log: the server, or reading the record, has given a reason not to
// send its newest mutation. It ends by an edit or a person's verb, which are events of the log too; and, for which there is
// none, by its time, by another version of the app, and by a run that a person wants.

import StrandlineSystem

/// What an engine knows of the holds of what it has to send, beyond what the log says.
struct UploadHolds: Sendable {
  private let appVersion: String
  /// Those that the queue has met since the engine last asked for them, to be woken when their times are over.
  private var met: [Held] = []
  /// Those that are over though the log and the wall clock may say otherwise.
  private(set) var ended: [RecordID: Held] = [:]
  /// The records that wait for the end of a hold whose time the server has not named.
  private var own: Set<RecordID> = []
  /// Whether this run sends such records again, and those that it has sent or held itself.
  private var endsOwn = false
  private var wereTried: Set<RecordID> = []

  init(appVersion: String) { self.appVersion = appVersion }

  /// A run begins. If a person wants it, what is held for a time that the server has not named is sent again, once.
  ///
  /// - Returns: the records that are to be looked at again.
  mutating func beginRun(endsOwn: Bool) -> [RecordID] {
    (self.endsOwn, wereTried) = (endsOwn, [])
    return endsOwn ? own.sorted() : []
  }

  /// This run has held a record.
  mutating func wasTried(_ id: RecordID) { wereTried.insert(id) }

  /// A record waits for the end of its hold.
  mutating func begin(_ held: Held) {
    met.append(held)
    if held.isOwn { own.insert(held.id) }
  }

  /// It does not any more.
  mutating func waitEnded(of id: RecordID) { own.remove(id) }

  /// A hold is over by the monotonic clock, whatever the wall clock says.
  mutating func end(_ id: RecordID, _ held: Held?) { ended[id] = held }

  /// A record owes nothing any more, or is held otherwise.
  mutating func forget(_ id: RecordID) { ended[id] = nil }

  /// The holds that were met since the last call.
  mutating func takeMet() -> [Held] {
    defer { met = [] }
    return met
  }

  func isOver(_ held: Held, wall: Int64) -> Bool {
    ended[held.id] == held || held.hasEnded(wall: wall)
      // What the server found wrong, another version of the app may send otherwise.
      || (held.durationMilliseconds == 0 && !appVersion.isEmpty && held.appVersion != appVersion)
  }

  /// Whether a person ends the hold by this run, which notes that it was done.
  mutating func endsForPerson(_ held: Held) -> Bool {
    guard endsOwn, held.isOwn, wereTried.insert(held.id).inserted else { return false }
    ended[held.id] = held
    return true
  }
}

extension Held {
  /// Whether it lasts for a time that the server has not named.
  fileprivate var isOwn: Bool { durationMilliseconds > 0 && !isServers }

  /// Whether its time is over. A hold without one lasts until the record is edited or released.
  func hasEnded(wall: Int64) -> Bool {
    durationMilliseconds > 0 && wall &- wallMilliseconds >= durationMilliseconds
  }
}
