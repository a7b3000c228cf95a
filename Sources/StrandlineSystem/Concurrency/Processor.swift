// A moment's wait that is too short to sleep.

private import CStrandline

/// The processor that a thread runs on.
package enum Processor {
  /// Tells the processor that this thread only looks for a change, and lets others on for an instant.
  package static func pause() { strandline_pause() }
}
