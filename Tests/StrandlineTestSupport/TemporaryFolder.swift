// A directory on the real disk that is removed when its test ends.

internal import StrandlineHost
internal import StrandlineSystem

/// A new directory in `TMPDIR` (or /tmp), which is removed with everything in it when this object is released.
package final class TemporaryFolder: Sendable {
  package let path: String
  private let disk = POSIXFileSystem()

  package init() throws {
    let parent = ProcessEnvironment.value(of: "TMPDIR").flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
    path = parent + "/strandline-" + String(SystemRandom().next(), radix: 16)
    try disk.makeDirectory(path)
  }

  /// The path of a name in the directory.
  package func callAsFunction(_ name: String) -> String { path + "/" + name }

  deinit { remove(path) }

  /// Removes a file, or a directory with everything in it. A symbolic link is removed and not followed.
  private func remove(_ path: String) {
    if (try? disk.unlink(path)) != nil { return }
    for name in (try? disk.list(path)) ?? [] { remove(path + "/" + name) }
    try? disk.removeDirectory(path)
  }
}
