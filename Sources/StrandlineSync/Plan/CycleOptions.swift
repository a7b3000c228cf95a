// What a cycle is to do: the options of its caller.

/// The options of a cycle.
package struct CycleOptions: Sendable {
  package enum Direction: Sendable { case both, pullOnly, pushOnly }
  package var direction: Direction = .both
  /// Only this zone; nil for all.
  package var zone: ZoneID?
  /// How long the cycle may wait in all before it throws `.throttled` or `.unreachable`; nil for no limit.
  package var waitMillisecondsMax: Int64? = 30_000
  /// The backoff of an earlier cycle does not delay this one; a wait that the server named does.
  package var isUserInitiated = true
  /// Whether the server is asked which zones have changed. After a write it is not: only known changes are sent and fetched.
  package var asksForChanges = true
  /// The cycle may end at the engine's deadline.
  package var mayEndEarly = false
  /// The zone to verify; nil for none.
  package var verifies: ZoneID?
  package init() {}
}
