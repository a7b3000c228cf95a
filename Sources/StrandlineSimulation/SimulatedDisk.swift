// A disk in memory that can lose power: the stage on which the recovery rule is proved.
//
// What `sync` and `syncDirectory` promise is kept; everything else may be lost at a crash, sector by sector
// and name by name. A crash is not an event here but a question: from any state, `imageAfterCrash` makes
// the disk that a given choice of losses would leave, as often as asked. See SimulatedCrash.swift for the
// choices, SimulatedContent.swift for the bytes.
//
// Nothing is random unless a random source is handed in, and no lock is held while a caller's code runs.

// Public, because a public type's conformance is asked for it; its protocols are the package's all the same.
public import StrandlineSystem
internal import Synchronization

/// A disk in memory that can lose power, fill up and fail, for an app's tests.
///
/// It begins as an empty root folder: open a store at a path like "/notes". What a sync has covered survives a power cut.
/// Everything else survives or is lost by choice: each sector (512 bytes) of each unsynced write, each change of a file's
/// size, each creation, renaming and removal of a name; where unsynced writes were under way, zeros or older bytes may be
/// found. Damage to synced data is not part of it.
///
/// Stores that are open belong to the instance that they were opened on; what `afterPowerCut` gives is another disk.
public final class SimulatedDisk: FileSystem {
  let state: Mutex<SimulatedDiskState>

  init(_ state: SimulatedDiskState) { self.state = Mutex(state) }

  /// An empty disk, with power.
  ///
  /// - Parameter capacity: how many bytes all files together may have; nil for no bound.
  public convenience init(capacity: Int? = nil) {
    var state = SimulatedDiskState()
    state.capacity = capacity
    self.init(state)
  }

  // MARK: Power

  /// The disk as it is found after a power cut at this moment: another disk, with power, nothing locked, everything on it
  /// durable, its calls counted from 0 and no failures planned. `capacity` is as it was.
  ///
  /// If this disk still has power it loses it now: every later call of a store on it throws `StrandlineError.io` or
  /// `.outcomeUnknown`. Ask again with other seeds for what else the same cut could have left.
  ///
  /// - Parameter seed: chooses what unsynced work survives; the same seed, the same choice.
  public func afterPowerCut(seed: UInt64) -> SimulatedDisk {
    cutPower()
    return imageAfterCrash(using: SeededRandom(seed: seed))
  }

  /// Cuts the power during the call that makes `callCount` this number: the call may take effect in part, and what it left
  /// is among the unsynced work. A write that is awaited is synced when it returns, so a cut that tears one must be
  /// planned with this, not made after it.
  ///
  /// Run a test once to learn `callCount`, then once for each number up to it.
  public func cutPower(atCall number: Int) {
    state.withLock { state in
      state.crashAtCall = number
      state.isTearing = true
    }
  }

  /// How many calls that change the disk have begun: creating, writing, reserving space, cutting, syncing, renaming and
  /// removing files and folders. Reads do not count.
  public var callCount: Int { state.withLock { $0.callCount } }

  /// Counts a start of the device and returns its number, from 1 on.
  package func nextStart() -> UInt64 {
    state.withLock { state in
      state.starts += 1
      return state.starts
    }
  }

  /// The number of the mutating call, counted from 1, at which the power goes: it and all calls after it, reads
  /// too, throw `SystemError.powerIsOff`.
  package var crashAtCall: Int? {
    get { state.withLock { $0.crashAtCall } }
    set { state.withLock { $0.crashAtCall = newValue } }
  }

  /// Whether the call that meets the power cut may take effect, in whole or in part. If not (the default) it
  /// leaves nothing; if so, its effects are among the unsynced ones.
  package var isTearing: Bool {
    get { state.withLock { $0.isTearing } }
    set { state.withLock { $0.isTearing = newValue } }
  }

  /// The power is gone. Only `imageAfterCrash` leads on from here.
  package var isOff: Bool { state.withLock { $0.isOff } }

  /// Cuts the power between two calls.
  package func cutPower() { state.withLock { $0.isOff = true } }

  /// Keep a copy of the disk as it was before each mutating call, so that one run of a history yields its crash
  /// at every call. What the call in flight may have left is among the unsynced effects before the *next* call,
  /// where a write just done is torn as one in flight. Setting it to false forgets the copies.
  package var keepsHistory: Bool {
    get { state.withLock { $0.history != nil } }
    set { state.withLock { $0.history = newValue ? $0.history ?? [] : nil } }
  }

  /// The disks before each mutating call since `keepsHistory` was set.
  package var history: [SimulatedDisk] {
    let states = state.withLock { $0.history ?? [] }
    return states.map { SimulatedDisk($0) }
  }

  // MARK: Other faults

  /// Lets the call that makes `callCount` this number fail with an input/output error, once. A sync that fails so loses
  /// what it should have covered at the next power cut, even if a later sync succeeds, as on Linux.
  ///
  /// A store's write then throws `StrandlineError.io` if nothing of it is on the disk, and `.outcomeUnknown` if that cannot
  /// be known; such a store is to be opened again.
  public func failCall(_ number: Int) {
    state.withLock { state in
      state.failingCalls.insert(number)
      state.failedSyncLosesPages = true
    }
  }

  /// A sync of strength `.ordered` promises order alone, as on Apple's systems: what came after it survives
  /// only if all that it covered has. If not set (the default) it is as good as `.durable`, as on Linux.
  package var isOrderedSyncWeak: Bool {
    get { state.withLock { $0.isOrderedSyncWeak } }
    set { state.withLock { $0.isOrderedSyncWeak = newValue } }
  }

  /// After a sync that failed, the pages written before it read back fine, and are gone at the next crash even
  /// if a later sync succeeds ("fsyncgate").
  package var failedSyncLosesPages: Bool {
    get { state.withLock { $0.failedSyncLosesPages } }
    set { state.withLock { $0.failedSyncLosesPages = newValue } }
  }

  /// Lets the mutating call of this number fail with `error`, if it is a sync of a file or folder.
  package func failSync(atCall number: Int, with error: SystemError) {
    state.withLock { $0.syncFailures[number] = error }
  }

  /// Ends all planned failures of syncs.
  package func healSyncs() { state.withLock { $0.syncFailures = [:] } }

  /// Tells the disk that a sync of this file was reported as failed by a layer above.
  package func noteFailedSync(_ path: String) {
    state.withLock { state in
      guard state.failedSyncLosesPages, let node = try? state.file("sync", path) else { return }
      state.nodes[node].losePages()
    }
  }

  /// How many bytes all files together may have; nil for no bound. May change at any time: set it to `usedBytes` and
  /// the disk is full, to nil and there is room again. A store's write for which there is no room throws
  /// `StrandlineError.diskFull` and has changed nothing.
  public var capacity: Int? {
    get { state.withLock { $0.capacity } }
    set { state.withLock { $0.capacity = newValue } }
  }

  /// The sizes of all files together, in bytes.
  public var usedBytes: Int { state.withLock { $0.used } }

  // MARK: Looking from outside

  /// The same disk at this moment, unsynced effects included, without locks. A disk that is off stays off.
  package func clone() -> SimulatedDisk { SimulatedDisk(state.withLock { $0.detached() }) }

  /// The paths of all files, sorted.
  package var paths: [String] {
    let state = state.withLock { $0 }
    var result: [String] = []
    state.walk { if case .file = $1 { result.append($0) } }
    return result.sorted()
  }

  /// The paths of all folders but the root, sorted.
  package var directoryPaths: [String] {
    let state = state.withLock { $0 }
    var result: [String] = []
    state.walk { if case .directory = $1 { result.append($0) } }
    return result.sorted()
  }

  /// A file's bytes as a reader would see them, power or not; nil if there is no such file.
  package func peek(_ path: String) -> [UInt8]? {
    state.withLock { state in
      guard let node = try? state.file("peek", path) else { return nil }
      return state.nodes[node].current.all
    }
  }

  /// Damage at rest: the file has these bytes now, durably, as if it had always had them. A file that is missing
  /// is made, and its folders.
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

  /// Removes a file durably, as a careless hand would.
  package func pokeRemove(_ path: String) {
    state.withLock { state in
      guard let place = try? state.place("poke", path), let node = try? state.file("poke", path) else { return }
      state.used -= state.nodes[node].current.size
      state.directories[place.directory].current[place.name] = nil
      state.directories[place.directory].durable[place.name] = nil
    }
  }

  // MARK: The two ways in

  /// A call that changes nothing.
  func look<Result: Sendable>(
    _ subject: String, _ body: (inout SimulatedDiskState) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    try state.withLock { (state) throws(SystemError) -> Result in
      if state.isOff { throw .powerIsOff(subject) }
      return try body(&state)
    }
  }

  /// A call that changes something: counted, and cut off when its number is up. A sync in flight needs no `body`
  /// at the cut: what it might have achieved is what the unsynced effects may survive as anyway.
  func mutate<Result: Sendable>(
    _ subject: String, isSync: Bool = false, _ body: (inout SimulatedDiskState) throws(SystemError) -> Result
  ) throws(SystemError) -> Result {
    try state.withLock { (state) throws(SystemError) -> Result in
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
      return try body(&state)
    }
  }
}

extension SystemError {
  /// What every call on a disk without power throws.
  package static func powerIsOff(_ subject: String) -> SystemError { .device("power", subject) }
}
