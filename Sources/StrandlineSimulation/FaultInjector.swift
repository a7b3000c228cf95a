// Injects faults into any file system: the k-th call of a kind fails, once or from then on.
//
// A test that lets every call of a scenario fail uses this: it runs the scenario once to count the calls, then once for
// each number. Calls are counted by kind, so that a test can require "one sync of data, none of a directory".

package import StrandlineSystem
internal import Synchronization

/// A kind of call that can be counted and made to fail.
package enum DiskCall: String, Sendable, CaseIterable {
  case folder, open, create, kind, list, sizes, identity, makeDirectory, rename, unlink, removeDirectory, syncDirectory,
    lock
  case size, read, write, preallocate, truncate, sync

  /// The system call that the error names.
  package var systemName: String {
    switch self {
    case .folder, .open, .create: "open"
    case .kind: "lstat"
    case .list: "opendir"
    case .sizes, .identity: "fstatat"
    case .makeDirectory: "mkdir"
    case .rename: "rename"
    case .unlink: "unlink"
    case .removeDirectory: "rmdir"
    case .syncDirectory: "fsync"
    case .lock: "flock"
    case .size: "fstat"
    case .read: "pread"
    case .write: "pwrite"
    case .preallocate: "fallocate"
    case .truncate: "ftruncate"
    case .sync: "fdatasync"
    }
  }

  /// Whether the call changes the disk.
  package var isMutating: Bool {
    switch self {
    case .folder, .open, .kind, .list, .sizes, .identity, .lock, .size, .read: false
    case .create, .makeDirectory, .rename, .unlink, .removeDirectory, .syncDirectory: true
    case .write, .preallocate, .truncate, .sync: true
    }
  }
}

/// One fault.
package struct DiskFault: Sendable {
  /// What the call has done before it throws.
  package enum Moment: Sendable {
    /// The call throws and has done nothing. A failed sync drops pages, if the disk has `failedSyncLosesPages` set.
    case before
    /// The call throws although it has taken effect.
    case after
    /// A write throws after it has written this many bytes; any other call behaves as with `before`.
    case afterBytes(Int)
  }

  /// The kinds of calls that match; empty for all kinds.
  package var calls: Set<DiskCall>
  /// Only calls whose path ends with this match.
  package var pathSuffix: String
  /// The number of the first call to fail, counted from 1 among the matching calls since the fault was planned.
  package var ordinal: Int
  /// All later matching calls fail too, until `clear()`.
  package var isSticky: Bool
  package var moment: Moment
  /// The error to throw. If its call or subject is empty, those of the failing call are filled in.
  package var error: SystemError

  package init(
    _ calls: Set<DiskCall>, pathSuffix: String = "", ordinal: Int = 1, isSticky: Bool = false,
    moment: Moment = .before, error: SystemError
  ) {
    self.calls = calls
    self.pathSuffix = pathSuffix
    self.ordinal = ordinal
    self.isSticky = isSticky
    self.moment = moment
    self.error = error
  }
}

/// A file system that forwards each call to `base`, unless a planned fault makes the call fail.
package final class FaultInjector: FileSystem {
  package let base: any FileSystem
  private let state = Mutex(State())

  private struct Plan {
    var fault: DiskFault
    /// How many matching calls there have been.
    var matches = 0
  }
  private struct State {
    var plans: [Plan] = []
    var counts: [DiskCall: Int] = [:]
    var struck = 0
    var shortReadBytes: Int?
  }

  package init(_ base: any FileSystem) { self.base = base }

  /// Plans a fault.
  package func plan(_ fault: DiskFault) { state.withLock { $0.plans.append(Plan(fault: fault)) } }

  /// Removes all planned faults and the limit of reads; the counts stay.
  package func clear() {
    state.withLock {
      $0.plans = []
      $0.shortReadBytes = nil
    }
  }

  /// The number of bytes that every read returns at most, as if the file ended there; nil for no limit.
  package var shortReadBytes: Int? {
    get { state.withLock { $0.shortReadBytes } }
    set { state.withLock { $0.shortReadBytes = newValue } }
  }

  /// How many calls have failed by a planned fault.
  package var struckCount: Int { state.withLock { $0.struck } }

  /// How many calls of a kind have begun since the last `resetCounts()`.
  package func count(_ call: DiskCall) -> Int { state.withLock { $0.counts[call] ?? 0 } }

  /// How many calls of all kinds have begun since the last `resetCounts()`.
  package var totalCount: Int { state.withLock { $0.counts.values.reduce(0, +) } }

  package func resetCounts() { state.withLock { $0.counts = [:] } }

  /// Counts a call and returns the fault that makes it fail, or nil.
  fileprivate func fault(for call: DiskCall, _ path: String) -> DiskFault? {
    state.withLock { state in
      state.counts[call, default: 0] += 1
      var result: DiskFault?
      for index in state.plans.indices {
        let fault = state.plans[index].fault
        guard fault.calls.isEmpty || fault.calls.contains(call), path.hasSuffix(fault.pathSuffix) else { continue }
        state.plans[index].matches += 1
        let matches = state.plans[index].matches
        if result == nil, matches == fault.ordinal || (fault.isSticky && matches > fault.ordinal) {
          result = fault
          state.struck += 1
        }
      }
      if var fault = result {
        if fault.error.call.isEmpty { fault.error.call = call.systemName }
        if fault.error.subject.isEmpty { fault.error.subject = path }
        result = fault
      }
      return result
    }
  }

  /// Runs a call, or throws the error of its fault.
  fileprivate func run<Result>(
    _ call: DiskCall, _ path: String, _ body: () throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    guard let fault = fault(for: call, path) else { return try body() }
    if case .after = fault.moment { _ = try body() }
    if call == .sync { (base as? SimulatedDisk)?.dropPagesAfterFailedSync(of: path) }
    throw fault.error
  }

  package func absolutePath(_ path: String) throws(SystemError) -> String { try base.absolutePath(path) }
  package var openStores: OpenStores { base.openStores }
  package func folder(_ path: String) throws(SystemError) -> any Folder {
    FaultyFolder(self, try run(.folder, path) { () throws(SystemError) in try base.folder(path) })
  }
  package func kind(of path: String) throws(SystemError) -> PathKind {
    try run(.kind, path) { () throws(SystemError) in try base.kind(of: path) }
  }
  package func makeDirectory(_ path: String) throws(SystemError) {
    try run(.makeDirectory, path) { () throws(SystemError) in try base.makeDirectory(path) }
  }
  package func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    // Matched by the new name, because the old one is often random and a test cannot know it.
    try run(.rename, newPath) { () throws(SystemError) in try base.renameFolder(path, to: newPath) }
  }
  package func removeDirectory(_ path: String) throws(SystemError) {
    try run(.removeDirectory, path) { () throws(SystemError) in try base.removeDirectory(path) }
  }
}

/// A folder that the fault injector has opened.
private final class FaultyFolder: Folder {
  let injector: FaultInjector
  let base: any Folder
  var path: String { base.path }

  init(_ injector: FaultInjector, _ base: any Folder) {
    self.injector = injector
    self.base = base
  }

  func wasMoved(to path: String) { base.wasMoved(to: path) }
  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let isCreating =
      switch mode {
      case .read, .readWrite: false
      case .create, .createPrivate: true
      }
    let file = try injector.run(isCreating ? .create : .open, path(of: name)) { () throws(SystemError) in
      try base.open(name, mode)
    }
    return FaultyFile(injector, file)
  }
  func kind(of name: String) throws(SystemError) -> PathKind {
    try injector.run(.kind, path(of: name)) { () throws(SystemError) in try base.kind(of: name) }
  }
  func list(_ name: String) throws(SystemError) -> [String] {
    try injector.run(.list, path(of: name)) { () throws(SystemError) in try base.list(name) }
  }
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] {
    try injector.run(.sizes, path) { () throws(SystemError) in try base.sizes(of: names) }
  }
  func makeFolder(_ name: String) throws(SystemError) {
    try injector.run(.makeDirectory, path(of: name)) { () throws(SystemError) in try base.makeFolder(name) }
  }
  func rename(_ name: String, to newName: String) throws(SystemError) {
    try injector.run(.rename, path(of: newName)) { () throws(SystemError) in try base.rename(name, to: newName) }
  }
  func unlink(_ name: String) throws(SystemError) {
    try injector.run(.unlink, path(of: name)) { () throws(SystemError) in try base.unlink(name) }
  }
  func removeFolder(_ name: String) throws(SystemError) {
    try injector.run(.removeDirectory, path(of: name)) { () throws(SystemError) in try base.removeFolder(name) }
  }
  func sync(_ name: String) throws(SystemError) {
    try injector.run(.syncDirectory, path(of: name)) { () throws(SystemError) in try base.sync(name) }
  }
  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try injector.run(.lock, path(of: name)) { () throws(SystemError) in try base.lock(name, exclusive: exclusive) }
  }
  func identity(of name: String) throws(SystemError) -> FileIdentity? {
    try injector.run(.identity, path(of: name)) { () throws(SystemError) in try base.identity(of: name) }
  }
  func setTreatment(_ treatment: FileTreatment) throws(SystemError) {
    try injector.run(.open, path) { () throws(SystemError) in try base.setTreatment(treatment) }
  }
}

/// A file that the fault injector has opened.
private final class FaultyFile: File {
  let injector: FaultInjector
  let base: any File
  var path: String { base.path }

  init(_ injector: FaultInjector, _ base: any File) {
    self.injector = injector
    self.base = base
  }

  func identity() throws(SystemError) -> FileIdentity {
    try injector.run(.identity, path) { () throws(SystemError) in try base.identity() }
  }
  func size() throws(SystemError) -> UInt64 {
    try injector.run(.size, path) { () throws(SystemError) in try base.size() }
  }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    let wanted = min(count, injector.shortReadBytes ?? count)
    return try injector.run(.read, path) { () throws(SystemError) in try base.read(at: offset, count: wanted) }
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    guard let fault = injector.fault(for: .write, path) else { return try base.write(bytes, range, at: offset) }
    switch fault.moment {
    case .before: break
    case .after: try base.write(bytes, range, at: offset)
    case .afterBytes(let count):
      let part = min(max(0, count), range.count)
      try base.write(bytes, range.lowerBound..<range.lowerBound + part, at: offset)
    }
    throw fault.error
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    try injector.run(.preallocate, path) { () throws(SystemError) in try base.preallocate(at: offset, length: length) }
  }
  func truncate(to size: UInt64) throws(SystemError) {
    try injector.run(.truncate, path) { () throws(SystemError) in try base.truncate(to: size) }
  }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    try injector.run(.sync, path) { () throws(SystemError) in try base.sync(strength) }
  }
  func close() { base.close() }
}
