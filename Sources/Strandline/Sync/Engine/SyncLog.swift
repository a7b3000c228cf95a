// Where the engine writes what it does, if the app wants to know.

/// How much a line of the engine's log matters.
public enum SyncLogLevel: Int, Hashable, Comparable, Sendable, CaseIterable {
  /// Each request, and its answer.
  case debug = 0
  /// Waits, and the ends of runs.
  case info = 1
  /// Records that are set aside, and zones that are frozen.
  case notice = 2
  /// Types and zones that the server refuses as a whole, and runs that failed.
  case error = 3
  /// Order by how much it matters.
  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
}

/// Takes the lines of the engine's log.
///
/// Lines of the level `info` and above may name records and zones, and quote the server: show them to the user before they leave
/// the device. `write` is called on the engine's task, twice a request at the level `debug`, and once a hold, freeze, halt, wait
/// or end of a run; it must return soon, and must not call the store.
public struct SyncLog: Sendable {
  /// Lines below this level are not made.
  public var level: SyncLogLevel
  private let write: @Sendable (SyncLogLevel, String) -> Void

  /// Takes lines from a level on.
  public init(from level: SyncLogLevel = .info, _ write: @escaping @Sendable (SyncLogLevel, String) -> Void) {
    (self.level, self.write) = (level, write)
  }

  func callAsFunction(_ level: SyncLogLevel, _ line: @autoclosure () -> String) {
    if level >= self.level { write(level, line().oneLine) }
  }
}
