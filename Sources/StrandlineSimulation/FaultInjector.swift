// Faults on request, around any disk: the k-th call of a kind fails, once or from then on.
//
// The tests that sweep over every call of a scenario stand on this: run once to count, then once for
// each number. It also counts calls by kind, so that a test can say "one sync of data, none of a folder".

package import StrandlineSystem
internal import Synchronization

/// A kind of call that can be counted and made to fail.
package enum DiskCall: String, Sendable, CaseIterable {
  case open, create, kind, list, makeDirectory, rename, unlink, removeDirectory, syncDirectory, lock
  case size, read, write, preallocate, truncate, sync

  /// The call that the error names.
  package var systemName: String {
    switch self {
    case .open, .create: "open"
    case .kind: "lstat"
    case .list: "opendir"
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

  /// The call changes the disk.
  package var isMutating: Bool {
    switch self {
    case .open, .kind, .list, .lock, .size, .read: false
    case .create, .makeDirectory, .rename, .unlink, .removeDirectory, .syncDirectory: true
    case .write, .preallocate, .truncate, .sync: true
    }
  }
}

/// One fault.
package struct DiskFault: Sendable {
  /// When the fault strikes, and what the disk has done by then.
  package enum Moment: Sendable {
    /// The call throws and has done nothing. A sync that fails so drops pages, if the disk below does that.
    case before
    /// The call throws although all is done: the answer was lost.
    case after
    /// A write throws after this many bytes; any other call behaves as `before`.
    case afterBytes(Int)
  }

  /// The kinds that count; empty for all.
  package var calls: Set<DiskCall>
  /// Only paths that end so count.
  package var pathSuffix: String
  /// The first call to fail, counted from 1 among those that count since the fault was planned.
  package var ordinal: Int
  /// All later calls that count fail too, until `clear()`.
  package var isSticky: Bool
  package var moment: Moment
  /// The error; the call and the subject are filled in if they are empty.
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

/// A disk around a disk.
package final class FaultInjector: FileSystem {
  package let base: any FileSystem
  private let state = Mutex(State())

  private struct Plan {
    var fault: DiskFault
    var met = 0
  }
  private struct State {
    var plans: [Plan] = []
    var counts: [DiskCall: Int] = [:]
    var struck = 0
    var shortReadBytes: Int?
  }

  package init(_ base: any FileSystem) { self.base = base }

  /// Adds a fault.
  package func plan(_ fault: DiskFault) { state.withLock { $0.plans.append(Plan(fault: fault)) } }

  /// Ends all faults; the counts stay.
  package func clear() {
    state.withLock {
      $0.plans = []
      $0.shortReadBytes = nil
    }
  }

  /// Every read returns at most this many bytes, as if the file ended there; nil for whole reads.
  package var shortReadBytes: Int? {
    get { state.withLock { $0.shortReadBytes } }
    set { state.withLock { $0.shortReadBytes = newValue } }
  }

  /// How many faults have struck.
  package var struckCount: Int { state.withLock { $0.struck } }

  /// How many calls of a kind have begun since the start or the last `resetCounts()`.
  package func count(_ call: DiskCall) -> Int { state.withLock { $0.counts[call] ?? 0 } }

  /// All calls together.
  package var totalCount: Int { state.withLock { $0.counts.values.reduce(0, +) } }

  package func resetCounts() { state.withLock { $0.counts = [:] } }

  /// Counts a call, and says which fault it meets.
  fileprivate func meet(_ call: DiskCall, _ path: String) -> DiskFault? {
    state.withLock { state in
      state.counts[call, default: 0] += 1
      var result: DiskFault?
      for index in state.plans.indices {
        let fault = state.plans[index].fault
        guard fault.calls.isEmpty || fault.calls.contains(call), path.hasSuffix(fault.pathSuffix) else { continue }
        state.plans[index].met += 1
        let met = state.plans[index].met
        if result == nil, met == fault.ordinal || (fault.isSticky && met > fault.ordinal) {
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

  /// A call under faults.
  fileprivate func run<Result>(
    _ call: DiskCall, _ path: String, _ body: () throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    guard let fault = meet(call, path) else { return try body() }
    if case .after = fault.moment { _ = try body() }
    if call == .sync { (base as? SimulatedDisk)?.noteFailedSync(path) }
    throw fault.error
  }

  package func open(_ path: String, _ mode: OpenMode) throws(SystemError) -> any File {
    let isCreating =
      switch mode {
      case .read, .readWrite: false
      case .create, .createPrivate: true
      }
    let file = try run(isCreating ? .create : .open, path) { () throws(SystemError) in try base.open(path, mode) }
    return FaultyFile(self, file)
  }
  package func kind(of path: String) throws(SystemError) -> PathKind {
    try run(.kind, path) { () throws(SystemError) in try base.kind(of: path) }
  }
  package func list(_ directory: String) throws(SystemError) -> [String] {
    try run(.list, directory) { () throws(SystemError) in try base.list(directory) }
  }
  package func makeDirectory(_ path: String) throws(SystemError) {
    try run(.makeDirectory, path) { () throws(SystemError) in try base.makeDirectory(path) }
  }
  package func rename(_ path: String, to newPath: String) throws(SystemError) {
    // The new name is what a test knows: the old one is often random.
    try run(.rename, newPath) { () throws(SystemError) in try base.rename(path, to: newPath) }
  }
  package func unlink(_ path: String) throws(SystemError) {
    try run(.unlink, path) { () throws(SystemError) in try base.unlink(path) }
  }
  package func removeDirectory(_ path: String) throws(SystemError) {
    try run(.removeDirectory, path) { () throws(SystemError) in try base.removeDirectory(path) }
  }
  package func syncDirectory(_ path: String) throws(SystemError) {
    try run(.syncDirectory, path) { () throws(SystemError) in try base.syncDirectory(path) }
  }
  package func lock(_ path: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try run(.lock, path) { () throws(SystemError) in try base.lock(path, exclusive: exclusive) }
  }
}

/// A file of a faulty disk.
private final class FaultyFile: File {
  let injector: FaultInjector
  let base: any File
  var path: String { base.path }

  init(_ injector: FaultInjector, _ base: any File) {
    self.injector = injector
    self.base = base
  }

  func size() throws(SystemError) -> UInt64 {
    try injector.run(.size, path) { () throws(SystemError) in try base.size() }
  }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    let wanted = min(count, injector.shortReadBytes ?? count)
    return try injector.run(.read, path) { () throws(SystemError) in try base.read(at: offset, count: wanted) }
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    guard let fault = injector.meet(.write, path) else { return try base.write(bytes, range, at: offset) }
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
