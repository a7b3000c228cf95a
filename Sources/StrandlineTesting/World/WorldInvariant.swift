// What must hold in a simulated world: the promises of the library, each with a name.

/// What must hold in every simulated world, after each step and when the world has come to rest.
package enum WorldInvariant: String, Hashable, Sendable, CaseIterable {
  /// Durable: what a write has acknowledged is in the log after any power cut.
  case durable
  /// Durable: a transaction that was not acknowledged is there as a whole or not at all.
  case whole
  /// Token after data: a device's change token names no change at the server that the device lacks, and has not set aside
  /// by name.
  case tokenAfterData
  /// Checkpoint after ack: a mutation is settled as saved only if the server has had a version that includes it, and as
  /// deleted only if the server has not the life that it deleted.
  case checkpointAfterAck
  /// Exactly once in effect: the server applies no mutation twice.
  case onceInEffect
  /// Deleted stays deleted: a record whose lives have all been deleted is nowhere.
  case noResurrection
  /// Converges: a merge was made from a version that the server had and from a mutation of this device, and each version
  /// that a device holds as the server's is one that the server had. What a device sends includes what it replaces.
  case trueAncestors
  /// Atomic: of what a transaction wrote in an atomic zone, as far as it is owed, each request brings the server all or
  /// nothing.
  case together
  /// Converges: at rest all devices and the server hold the same bytes.
  case converged
  /// Converges: an acknowledged write is in the record at the end, or a later one stands there; none that was made in
  /// knowledge of another loses to it; and of two writes by right clocks the one made ten minutes later wins.
  /// No deletion goes before an edit that has taken away the reference by which it would delete the edited record.
  case noLostWrite
  /// Polite: no request before the time that the server has named is over, and no more than a hundred in one sync.
  case polite
  /// One bad record never stops the rest: while single records are refused, everything else arrives.
  case oneBadRecord
  /// Nothing to decide at night: when the faults are over and time has passed, nothing is owed, held, blocked or frozen
  /// that a person did not ask for.
  case noStuckState
  /// Bounded: an engine that owes nothing remembers nothing of single records.
  case bounded
  /// Nothing ends in silence: a sync that returns has left nothing that it was to send, unless the status names it.
  case noSilence
  /// Honest: a step fails only if one of the world's faults explains it, and a log replayed gives the same projections.
  case honest
  /// What the app itself demands of its records.
  case app
}
