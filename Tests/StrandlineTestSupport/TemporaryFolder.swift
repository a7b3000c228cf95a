// A folder on the real disk that is gone when its test is.

internal import StrandlineSystem

/// A new folder in `TMPDIR` (or /tmp), removed with all it holds when this object goes.
package final class TemporaryFolder: Sendable {
  package let path: String
  private let disk = POSIXFileSystem()

  package init() throws {
    let parent = ProcessEnvironment.value(of: "TMPDIR").flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
    path = parent + "/strandline-" + String(SystemRandom().next(), radix: 16)
    try disk.makeDirectory(path)
  }

  /// The path of a name in the folder.
  package func callAsFunction(_ name: String) -> String { path + "/" + name }

  deinit { remove(path) }

  /// Removes a name first as a file, so that a link is removed and never followed.
  private func remove(_ path: String) {
    if (try? disk.unlink(path)) != nil { return }
    for name in (try? disk.list(path)) ?? [] { remove(path + "/" + name) }
    try? disk.removeDirectory(path)
  }
}
