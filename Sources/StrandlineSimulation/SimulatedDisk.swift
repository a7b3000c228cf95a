// A disk in memory that can lose power, on which the recovery rule is proved.
//
// It keeps the guarantees of `sync` and `syncDirectory`. A crash may lose everything else, sector by sector and name by
// name. A crash does not change this disk: `imageAfterCrash` returns another disk, as a given choice of losses would
// leave it, and may be called any number of times. SimulatedCrash.swift has the choices, SimulatedContent.swift the
// bytes.
//
// Nothing is random unless the caller passes a random source, and no lock is held while a caller's code runs.

// Imported publicly because a public type conforms to one of its protocols, which are visible in the package only.
public import StrandlineSystem
internal import Synchronization

/// A disk in memory that can lose power, fill up and fail, for an app's tests.
///
/// A new disk is an empty root directory: open a store at a path like "/notes". What a sync has covered survives a power
/// cut. Of the rest, the seed chooses what survives: each sector (512 bytes) of each unsynced write, each change of a
/// file's size, each creation, renaming and removal of a name. In the ranges of unsynced writes there may be zeros or
/// older bytes. Synced data is never damaged.
///
/// An open store uses the disk that it was opened on; `afterPowerCut` returns another disk.
public final class SimulatedDisk: FileSystem {
  let state: Mutex<SimulatedDiskState>
  package let openStores = OpenStores()
  private let treatments = Mutex<[String: FileTreatment]>([:])
  private let interruption = Mutex<(call: Int, body: @Sendable () -> Void)?>(nil)

  init(_ state: SimulatedDiskState) { self.state = Mutex(state) }

  /// Creates an empty disk with its power on.
  ///
  /// - Parameter capacity: The size in bytes that all files together may reach; nil for no limit.
  public convenience init(capacity: Int? = nil) {
    var state = SimulatedDiskState()
    state.capacity = capacity
    self.init(state)
  }

  // MARK: Power

  /// Cuts the power and returns the disk as a device finds it when it starts again: another disk with its power on, on
  /// which everything is durable, no lock is held, calls are counted from 0 and no failures are planned. `capacity` is
  /// that of this disk.
  ///
  /// From now on every call of a store on this disk throws `StrandlineError.io` or `.outcomeUnknown`. May be called again
  /// with other seeds, for other disks that the same power cut could have left.
  ///
  /// - Parameter seed: Chooses which unsynced changes survive. The same seed makes the same choice.
  public func afterPowerCut(seed: UInt64) -> SimulatedDisk {
    cutPower()
    return imageAfterCrash(using: SeededRandom(seed: seed))
  }

  /// Plans a power cut during the call that makes `callCount` this number. The call may take effect in part, and what it
  /// did counts as unsynced. A store's write is synced when it returns, so a power cut that tears it must be planned
  /// before it.
  ///
  /// Run a test once to learn `callCount`, then once for each number up to it.
  public func cutPower(atCall number: Int) {
    state.withLock { state in
      state.crashAtCall = number
      state.isTearing = true
    }
  }

  /// How many calls that change the disk have begun: those that create, write, reserve space, truncate, sync, rename and
  /// remove files and directories. Reads do not count.
  public var callCount: Int { state.withLock { $0.callCount } }

  /// Counts a start of the device and returns its number, from 1 on.
  package func nextStart() -> UInt64 {
    state.withLock { state in
      state.starts += 1
      return state.starts
    }
  }

  /// For tests: what a folder's owner has asked of the system, by the folder's path.
  package func treatment(of path: String) -> FileTreatment? { treatments.withLock { $0[path] } }

  /// This disk has no backups and no passcode, so there is nothing else to do.
  func note(_ treatment: FileTreatment, of path: String) { treatments.withLock { $0[path] = treatment } }

  /// The number of the mutating call, counted from 1, at which the power is cut. This call and all later ones, reads
  /// included, throw `SystemError.powerIsOff`.
  package var crashAtCall: Int? {
    get { state.withLock { $0.crashAtCall } }
    set { state.withLock { $0.crashAtCall = newValue } }
  }

  /// Whether the call at which the power is cut takes effect. If so, its effects count as unsynced, so that it may
  /// survive in whole or in part. If not (the default), it changes nothing.
  package var isTearing: Bool {
    get { state.withLock { $0.isTearing } }
    set { state.withLock { $0.isTearing = newValue } }
  }

  /// Whether the power was cut. Every call then throws; `imageAfterCrash` returns a disk with its power on.
  package var isOff: Bool { state.withLock { $0.isOff } }

  /// Cuts the power between two calls.
  package func cutPower() { state.withLock { $0.isOff = true } }

  /// Whether the disk keeps a copy of itself from before each mutating call, so that one run of a scenario yields a crash
  /// at every call. A crash *during* a call is tried with the copy from before the next call, in which the effects of the
  /// call are unsynced and its write may be torn. Setting this to false drops the copies.
  package var keepsHistory: Bool {
    get { state.withLock { $0.history != nil } }
    set { state.withLock { $0.history = newValue ? $0.history ?? [] : nil } }
  }

  /// The copies from before each mutating call since `keepsHistory` was set.
  package var history: [SimulatedDisk] {
    let states = state.withLock { $0.history ?? [] }
    return states.map { SimulatedDisk($0) }
  }

  /// Does something before the call that makes `callCount` this number, once: what another process does meanwhile.
  package func interrupt(beforeCall number: Int, _ body: @escaping @Sendable () -> Void) {
    interruption.withLock { $0 = (number, body) }
  }

  /// Does it no more, if that call has not come.
  package func endInterruption() { interruption.withLock { $0 = nil } }

  // MARK: Other faults

  /// Makes the call that makes `callCount` this number fail once with an input/output error. If it is a sync, the next
  /// power cut loses what it should have covered, even if a later sync succeeds, as on Linux.
  ///
  /// A store's write then throws `StrandlineError.io` if none of it is on the disk, and `.outcomeUnknown` if the store
  /// cannot know. The caller must then open the store again.
  public func failCall(_ number: Int) {
    state.withLock { state in
      state.failingCalls.insert(number)
      state.failedSyncLosesPages = true
    }
  }

  /// Whether a sync of strength `.ordered` only orders writes, as on Apple's systems: what came after it survives only if
  /// everything that it covered survives. If false (the default), it makes writes durable, as on Linux.
  package var isOrderedSyncWeak: Bool {
    get { state.withLock { $0.isOrderedSyncWeak } }
    set { state.withLock { $0.isOrderedSyncWeak = newValue } }
  }

  /// Whether a failed sync drops pages: readers still read what was written before it, and the next crash loses it even
  /// if a later sync succeeds ("fsyncgate").
  package var failedSyncLosesPages: Bool {
    get { state.withLock { $0.failedSyncLosesPages } }
    set { state.withLock { $0.failedSyncLosesPages = newValue } }
  }

  /// Makes the mutating call of this number fail with `error`, if it is a sync of a file or directory.
  package func failSync(atCall number: Int, with error: SystemError) {
    state.withLock { $0.syncFailures[number] = error }
  }

  /// Removes all planned failures of syncs.
  package func healSyncs() { state.withLock { $0.syncFailures = [:] } }

  /// Drops the pages of a file whose sync a fault injector has made fail, if `failedSyncLosesPages` is set.
  package func dropPagesAfterFailedSync(of path: String) {
    state.withLock { state in
      guard state.failedSyncLosesPages, let node = try? state.file("sync", path) else { return }
      state.nodes[node].losePages()
    }
  }

  /// The size in bytes that all files together may reach; nil for no limit. A test may change it at any time: with
  /// `usedBytes` the disk is full, with nil there is space again. A store's write for which there is no space throws
  /// `StrandlineError.diskFull` and changes nothing.
  public var capacity: Int? {
    get { state.withLock { $0.capacity } }
    set { state.withLock { $0.capacity = newValue } }
  }

  /// The sum of the sizes of all files in bytes.
  public var usedBytes: Int { state.withLock { $0.used } }

  // MARK: Inspecting and damaging

  /// Returns a copy of the disk with its unsynced effects and without its locks. The power is on or off as on this disk.
  package func clone() -> SimulatedDisk { SimulatedDisk(state.withLock { $0.detached() }) }

  /// The paths of all files, sorted.
  package var paths: [String] {
    let state = state.withLock { $0 }
    var result: [String] = []
    state.walk { if case .file = $1 { result.append($0) } }
    return result.sorted()
  }

  /// The paths of all directories except the root, sorted.
  package var directoryPaths: [String] {
    let state = state.withLock { $0 }
    var result: [String] = []
    state.walk { if case .directory = $1 { result.append($0) } }
    return result.sorted()
  }

  /// Returns a file's bytes as a reader reads them, also while the power is off; nil if there is no such file.
  package func peek(_ path: String) -> [UInt8]? {
    state.withLock { state in
      guard let node = try? state.file("peek", path) else { return nil }
      return state.nodes[node].current.all
    }
  }

  /// The files under a folder and their bytes; the names begin with "/".
  package func files(in path: String) -> [String: [UInt8]] {
    var result: [String: [UInt8]] = [:]
    for file in paths where file.hasPrefix(path + "/") { result[String(file.dropFirst(path.count))] = peek(file) }
    return result
  }

  /// Puts files into those of a folder, durably, as `cp -r` does.
  package func put(_ files: [String: [UInt8]], over path: String) {
    for (name, bytes) in files.sorted(by: { $0.key < $1.key }) { poke(path + name, bytes) }
  }

  /// Damages a file at rest: replaces its bytes durably. Creates the file and its directories if they are missing.
  package func poke(_ path: String, _ bytes: [UInt8]) {
    state.withLock { state in
      if let node = try? state.file("poke", path) {
        state.used += bytes.count - state.nodes[node].current.size
        state.nodes[node] = SimulatedNode(durable: SimulatedContent(bytes))
        return
      }
      var parts = path.split(separator: "/").map(String.init)
      guard let name = parts.popLast() else { return }
      var directory = 0
      for part in parts {
        if case .directory(let next) = state.directories[directory].current[part] {
          directory = next
          continue
        }
        state.directories.append(SimulatedDirectory())
        let next = state.directories.count - 1
        state.directories[directory].current[part] = .directory(next)
        state.directories[directory].durable[part] = .directory(next)
        directory = next
      }
      state.used += bytes.count
      state.nodes.append(SimulatedNode(durable: SimulatedContent(bytes)))
      state.directories[directory].current[name] = .file(state.nodes.count - 1)
      state.directories[directory].durable[name] = .file(state.nodes.count - 1)
    }
  }

  /// Damages the store at rest: removes a file durably.
  package func pokeRemove(_ path: String) {
    state.withLock { state in
      guard let location = try? state.location("poke", path), let node = try? state.file("poke", path) else { return }
      state.used -= state.nodes[node].current.size
      state.directories[location.directory].current[location.name] = nil
      state.directories[location.directory].durable[location.name] = nil
    }
  }

  /// No power cut shows bytes of the files that were removed until now, where a write was torn.
  package func forgetRemovedBytes() { state.withLock { $0.removedContents = [] } }

  /// Mounts the disk again: every file and directory gets another identity, as on network drives. What is open stays open.
  package func remount() { state.withLock { $0.device += 1 } }

  /// For tests: says of each file from now on that it has no name, as some drives do.
  package func countNoNames() { state.withLock { $0.countsNames = false } }

  // MARK: Access to the state

  /// Runs a call that changes nothing. Throws if the power is off.
  func read<Result: Sendable>(
    _ subject: String, _ body: (inout SimulatedDiskState) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    try state.withLock { (state) throws(SystemError) -> Result in
      if state.isOff { throw .powerIsOff(subject) }
      return try naming(subject) { () throws(SystemError) in try body(&state) }
    }
  }

  /// An error of a call on a folder names a file by its name there.
  private func naming<Result>(
    _ subject: String, _ body: () throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    do throws(SystemError) {
      return try body()
    } catch {
      var error = error
      if !error.subject.hasPrefix("/") { error.subject = subject }
      throw error
    }
  }

  /// A handle of a file was closed.
  func closed(_ node: Int) {
    state.withLock { state in
      let count = (state.handles[node] ?? 1) - 1
      state.handles[node] = count > 0 ? count : nil
      if count <= 0 { state.freeIfGone(node) }
    }
  }

  /// Counts and runs a call that changes the disk. Cuts the power, or throws a planned failure, if one is planned for the
  /// call's number. A sync during which the power is cut does not run: its effects count as unsynced, so that each of
  /// them may survive anyway.
  func mutate<Result: Sendable>(
    _ subject: String, isSync: Bool = false, _ body: (inout SimulatedDiskState) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    let due = interruption.withLock { interruption -> (@Sendable () -> Void)? in
      guard let (call, body) = interruption, callCount + 1 == call else { return nil }
      interruption = nil
      return body
    }
    if let due { LockPlace.asAnotherThread(due) }
    return try state.withLock { (state) throws(SystemError) -> Result in
      if state.isOff { throw .powerIsOff(subject) }
      if state.history != nil {
        var before = state.detached()
        before.inFlight = state.lastWrite
        state.history?.append(before)
      }
      state.callCount += 1
      if state.callCount == state.crashAtCall {
        if state.isTearing && !isSync { _ = try? body(&state) } else { state.inFlight = nil }
        state.isOff = true
        throw .powerIsOff(subject)
      }
      defer {
        state.lastWrite = state.inFlight
        state.inFlight = nil
      }
      if state.failingCalls.contains(state.callCount) {
        let failure = SystemError.device(isSync ? "fdatasync" : "simulated fault", subject)
        guard isSync else { throw failure }
        state.syncFailures[state.callCount] = failure
      }
      return try naming(subject) { () throws(SystemError) in try body(&state) }
    }
  }
}

extension SystemError {
  /// The error of every call on a disk whose power is off.
  package static func powerIsOff(_ subject: String) -> SystemError { .device("power", subject) }
}
