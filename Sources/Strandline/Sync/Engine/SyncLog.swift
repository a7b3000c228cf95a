// The engine's log, for the app's own logging. Without one, lines are not even formatted.

/// How much a line of the engine's log matters.
public enum SyncLogLevel: Int, Hashable, Comparable, Sendable, CaseIterable {
  /// Each request, and its answer.
  case debug = 0
  /// Waits, and the ends of cycles.
  case info = 1
  /// Records that are held, and zones that are lost.
  case notice = 2
  /// Types and zones that the server refuses as a whole, and cycles that failed.
  case error = 3
  /// Orders by importance.
  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
}

/// Takes the lines of the engine's log.
///
/// Lines of the level `info` and above may name records and zones, and quote the server: show them to the user before they leave
/// the device. `write` is called on the engine's task, twice for each request at the level `debug`, and once for each hold, lost
/// zone, halt, wait and end of a cycle. It must return soon.
public struct SyncLog: Sendable {
  /// Lines below this level are not formatted.
  public var level: SyncLogLevel
  private let write: @Sendable (SyncLogLevel, String) -> Void

  /// Takes lines of this level and above.
  public init(from level: SyncLogLevel = .info, _ write: @escaping @Sendable (SyncLogLevel, String) -> Void) {
    (self.level, self.write) = (level, write)
  }

  func callAsFunction(_ level: SyncLogLevel, _ line: @autoclosure () -> String) {
    if level >= self.level { write(level, line().oneLine) }
  }
}
