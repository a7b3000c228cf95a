// What the log says of holds and waits: the codes of those that are this store's own and not the server's, and how long they last.

extension Held {
  /// The code of a version that waits for its parent.
  package static let parentMissing = "PARENT_MISSING"
  /// The code of a version that was written by a later version of the app.
  package static let newerSchema = "NEWER_SCHEMA"
  /// The code of a record whose events are damaged in this store.
  package static let damaged = "DAMAGED"

  package var isShelved: Bool { direction == .download && code == Self.parentMissing }
  package var isOfNewerSchema: Bool { direction == .download && code == Self.newerSchema }
}

extension Held {
  /// The rest of the hold, in milliseconds: never more than its duration, even if the wall clock was set back.
  package func remaining(wall: Int64) -> Int64 {
    min(durationMilliseconds, max(0, wallMilliseconds &+ durationMilliseconds &- wall))
  }
}

extension Pace {
  /// The rest of the wait, in milliseconds: never more than its duration, even if the wall clock was set back.
  package func remaining(wall: Int64) -> Int64 {
    min(durationMilliseconds, max(0, wallMilliseconds &+ durationMilliseconds &- wall))
  }
}
