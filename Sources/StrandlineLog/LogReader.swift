// Reading a log that may belong to somebody else: no lock is kept and no byte is changed (decision L10).

package import StrandlineSystem

/// One frame, for dumps.
package struct FrameView: Hashable, Sendable {
  package var segmentID: UInt64
  package var offset: UInt32
  package var header: FrameHeader
  /// nil for types that this version does not know.
  package var type: FrameType?
  package var lsn: UInt64
  /// Header, body and padding.
  package var frameBytes: Int
  /// The fields of a marker.
  package var marker: MarkerBody?
  /// The fields of an opening frame.
  package var opening: OpeningBody?
  package var body: [UInt8]
}

/// A view of a log that another process may be writing.
package final class LogReader: Sendable {
  package let path: String
  package let storeUUID: [UInt8]
  package let role: LogRole

  init(path: String) {
    self.path = path
    storeUUID = []
    role = .store
  }

  /// Looks at the log at `path`. Only headers are read here; events come with `poll`.
  package static func open(at path: String, role: LogRole? = nil, environment: SystemEnvironment) throws(LogError)
    -> LogReader
  {
    throw LogError(.io, "being built")
  }

  /// Hands every event that is new since the last call to `visit`, whole transactions only.
  package func poll(_ visit: (LogEvent) throws -> Void) throws {
    throw LogError(.io, "being built")
  }

  package func read(_ lsn: UInt64) throws(LogError) -> LogEvent {
    throw LogError(.io, "being built")
  }

  /// What a writer's open would have found at the last `poll`.
  package var recovery: RecoveryReport { RecoveryReport() }
  /// The last LSN that `poll` has handed out.
  package var lastLSN: UInt64 { 0 }
  /// Whether a writer holds the store now.
  package var isHeldByWriter: Bool { get throws(LogError) { false } }

  /// Every frame of every segment that verifies, in order of place.
  package func frames(visit: (FrameView) throws -> Void) throws {
    throw LogError(.io, "being built")
  }
}
