// The folder of a store as its writer changes it: before a name in it is made, replaced or removed, the writer looks whether
// the files that it holds are still those at the store's path.
//
// A folder that is moved takes its writer along, and so needs no look. But the files in it can be removed and another store's
// put there: then a name in the same folder means a file of the other store, and a rename or a removal would destroy it. What
// is left is the time between a look and the call that follows it at once (Formats/log.md, "Downsides and known limits").

import StrandlineSystem

extension StoreHold {
  /// The folder as it is changed: each change looks first.
  func changed(by clock: any SystemClock) -> StoreDirectory {
    StoreDirectory(place: directory.place, folder: HeldFolder(self, clock))
  }
}

/// The folder that a writer holds.
final class HeldFolder: Folder {
  private let base: any Folder
  private let hold: StoreHold
  private let clock: any SystemClock

  init(_ hold: StoreHold, _ clock: any SystemClock) {
    base = hold.directory.folder
    self.hold = hold
    self.clock = clock
  }

  /// - Throws: an error with `isReplacement`. `StoreHold.replacement` says what is there.
  private func look(_ call: String, _ name: String) throws(SystemError) {
    do throws(LogError) {
      try hold.check(now: clock.monotonicNanoseconds())
    } catch {
      throw .replaced(call, base.path(of: name))
    }
  }

  var path: String { base.path }
  func wasMoved(to path: String) { base.wasMoved(to: path) }

  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    if mode == .create { try look("open", name) }
    return try base.open(name, mode)
  }

  func makeFolder(_ name: String) throws(SystemError) {
    try look("mkdir", name)
    try base.makeFolder(name)
  }

  func rename(_ name: String, to newName: String) throws(SystemError) {
    try look("rename", newName)
    try base.rename(name, to: newName)
  }

  func unlink(_ name: String) throws(SystemError) {
    try look("unlink", name)
    try base.unlink(name)
  }

  func removeFolder(_ name: String) throws(SystemError) {
    try look("rmdir", name)
    try base.removeFolder(name)
  }

  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try base.lock(name, exclusive: exclusive)
  }
  func kind(of name: String) throws(SystemError) -> PathKind { try base.kind(of: name) }
  func list(_ name: String) throws(SystemError) -> [String] { try base.list(name) }
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] { try base.sizes(of: names) }
  func sync(_ name: String) throws(SystemError) { try base.sync(name) }
  func identity(of name: String) throws(SystemError) -> FileIdentity? { try base.identity(of: name) }
  func setTreatment(_ treatment: FileTreatment) throws(SystemError) { try base.setTreatment(treatment) }
}
