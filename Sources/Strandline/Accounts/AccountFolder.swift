// The folder of accounts as it is changed: before a name in it is made, replaced or removed, its lock and its list are compared with
// those at its path.
//
// Everything is done through the folder that was opened, so one that is moved takes its accounts along, and another one that comes to
// its path is never changed. But its files can be removed or overwritten: then a name in the same folder means another user's store,
// and a removal would destroy that. What is left is the time between a look and the call that follows it at once.
//
// A store is opened by its path, as every log is. What it makes beside its place is made in this folder all the same (AccountFileSystem).

import StrandlineSystem

/// The folder of accounts that this process has open, with its lock.
final class AccountFolder: Folder {
  private struct State {
    /// The bytes of the list that was found or written; of two, while one is written. Nil is no list.
    var lists: [[UInt8]?]
    /// What the last look has found.
    var replacement: AccountReplacement?
    var isReleased = false
  }

  private let base: any Folder
  private let lock: any FileLock
  fileprivate let fileSystem: any FileSystem
  /// Whether the drive counts the names of a file. Some always say 0.
  private let countsNames: Bool
  private let state: OrderedMutex<State>

  /// - Parameter lock: that of the folder, which this one gives back.
  init(_ base: any Folder, _ lock: any FileLock, _ fileSystem: any FileSystem) throws(SystemError) {
    self.base = base
    self.lock = lock
    self.fileSystem = fileSystem
    countsNames = try lock.identity().links > 0
    state = OrderedMutex(.leaf, State(lists: [try AccountList.bytes(in: base)]))
  }

  /// Gives the lock back. What is done afterwards is compared with nothing: a request may bring a token to the session still.
  func release() {
    state.withLock { $0.isReleased = true }
    lock.unlock()
  }

  /// Replaces the list. When this returns, the new one is durable; if it throws, either may be.
  func replace(with list: AccountList) throws(SystemError) {
    let bytes = list.bytes
    let before = state.withLock { state in
      defer { state.lists.append(bytes) }
      return state.lists
    }
    do throws(SystemError) {
      try list.save(to: self)
    } catch {
      // It was not renamed.
      if error.isReplacement { state.withLock { $0.lists = before } }
      throw error
    }
    state.withLock { $0.lists = [bytes] }
  }

  // MARK: Whether it is still there

  /// Compares what is held with what is at the path.
  ///
  /// - Throws: an error with `isReplacement`, of which `explained` makes a sentence; what keeps the look from being made.
  func check() throws(SystemError) { try check("open", ".") }

  private func check(_ call: String, _ name: String) throws(SystemError) {
    guard let look = try look() else { return }
    let replacement = look.replacement
    state.withLock { $0.replacement = replacement }
    if replacement != nil { throw .replaced(call, base.path(of: name)) }
  }

  /// nil once the lock was given back.
  private func look() throws(SystemError) -> AccountLook? {
    let (lists, isReleased) = state.withLock { ($0.lists, $0.isReleased) }
    if isReleased { return nil }
    let held = try lock.identity()
    let isNamed = !countsNames || held.links > 0
    let here: any Folder
    do throws(SystemError) {
      here = try fileSystem.folder(base.path)
    } catch {
      guard error.isAbsent || error.isNotDirectory else { throw error }
      return AccountLook(isNamed: isNamed, lock: .absent, list: .absent)
    }
    let lockHere = try here.identity(of: AccountList.lockName)
    let listHere = try AccountList.bytes(in: here)
    return AccountLook(
      isNamed: isNamed, lock: lockHere.map { $0.isSame(as: held) ? .held : .another } ?? .absent,
      list: lists.contains(listHere) ? .known : listHere == nil ? .absent : .another)
  }

  /// The sentence about what has become of the folder, if that is why a call has failed; else the error as it is.
  func explained(_ error: any Error) -> any Error {
    guard let cause = error as? SystemError ?? (error as? StrandlineError)?.underlying as? SystemError
    else { return error }
    // A call that meets other files fails in many ways: a name is missing, or is there already.
    if !cause.isReplacement { _ = Result { try check() } }
    return state.withLock { $0.replacement }?.error(path) ?? error
  }

  // MARK: Calls that look first

  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    switch mode {
    case .create, .createPrivate: try check("open", name)
    case .read, .readWrite: break
    }
    return try base.open(name, mode)
  }

  func makeFolder(_ name: String) throws(SystemError) {
    try check("mkdir", name)
    try base.makeFolder(name)
  }

  func rename(_ name: String, to newName: String) throws(SystemError) {
    try check("rename", newName)
    try base.rename(name, to: newName)
  }

  func unlink(_ name: String) throws(SystemError) {
    try check("unlink", name)
    try base.unlink(name)
  }

  func removeFolder(_ name: String) throws(SystemError) {
    try check("rmdir", name)
    try base.removeFolder(name)
  }

  // MARK: Other calls

  var path: String { base.path }
  func wasMoved(to path: String) { base.wasMoved(to: path) }
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

/// The file system for what is in a folder of accounts: the path of that folder leads to the one that is held, and what is directly in
/// it is made, renamed and removed there.
struct AccountFileSystem: FileSystem {
  private let held: AccountFolder
  private let base: any FileSystem

  init(_ held: AccountFolder) {
    self.held = held
    base = held.fileSystem
  }

  private func isHeld(_ path: String) -> Bool { path.equalsUTF8(held.path) }

  /// The name of what is directly in the folder; nil for anything else.
  private func inner(_ path: String) -> String? {
    let folder = held.path(of: "").utf8
    guard path.utf8.starts(with: folder) else { return nil }
    let name = String(decoding: path.utf8.dropFirst(folder.count), as: UTF8.self)
    return name.isEmpty || name.utf8.contains(UInt8(ascii: "/")) ? nil : name
  }

  func absolutePath(_ path: String) throws(SystemError) -> String { try base.absolutePath(path) }
  func folder(_ path: String) throws(SystemError) -> any Folder { isHeld(path) ? held : try base.folder(path) }
  func kind(of path: String) throws(SystemError) -> PathKind { isHeld(path) ? .directory : try base.kind(of: path) }
  var openStores: OpenStores { base.openStores }

  func makeDirectory(_ path: String) throws(SystemError) {
    if let name = inner(path) { try held.makeFolder(name) } else { try base.makeDirectory(path) }
  }

  func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    if let name = inner(path), let newName = inner(newPath) {
      try held.rename(name, to: newName)
    } else {
      try base.renameFolder(path, to: newPath)
    }
  }

  func removeDirectory(_ path: String) throws(SystemError) {
    if let name = inner(path) { try held.removeFolder(name) } else { try base.removeDirectory(path) }
  }
}

extension StoreEnvironment {
  /// An environment for what is in a folder of accounts.
  init(in folder: AccountFolder, _ environment: StoreEnvironment) {
    var system = environment.system
    system.fileSystem = AccountFileSystem(folder)
    self.init(system, isSimulated: environment.isSimulated)
  }
}
