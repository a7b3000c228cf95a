// The file system of a random history: a simulated disk whose reads can fail, with a moment at which something else is
// done while an index is being built. Background work of a simulated store runs on the thread that asks for it, so this
// is how a build and a write come to overlap, the same way each time.

import Strandline
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// A simulated disk, behind failing calls, behind a call during which something else is done.
final class StoreHistoryFiles: ForwardingFileSystem {
  /// Makes calls fail.
  let faults: FaultInjector
  var base: any FileSystem { faults }
  private let moment = Mutex<(@Sendable () -> Void)?>(nil)

  init(_ disk: SimulatedDisk) { faults = FaultInjector(disk) }

  /// Does `body` once, before the next run of an index is created.
  func beforeNextRun(_ body: @escaping @Sendable () -> Void) { moment.withLock { $0 = body } }

  /// Forgets what `beforeNextRun` was told, if it was not done.
  func forgetMoment() { moment.withLock { $0 = nil } }

  func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    if case .create = mode, Self.isRun(name) {
      let body = moment.withLock { moment in
        defer { moment = nil }
        return moment
      }
      if let body { LockPlace.asAnotherThread(body) }
    }
    return try folder.open(name, mode)
  }

  /// Whether the name is that of a run, which is a number, under a temporary name or not.
  private static func isRun(_ file: String) -> Bool {
    let parts = file.split(separator: "/").suffix(2)
    guard parts.count == 2, parts.first.map(String.init) == StoreIndex.folderName, let name = parts.last else {
      return false
    }
    return UInt64(name.prefix { $0 != "." }, radix: 16) != nil
  }
}
