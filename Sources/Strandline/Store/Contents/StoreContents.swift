// The contents of a store that is open for writing: who holds one, what may be removed, and when.
//
// A content stays while an event names it (`ContentTable`), while somebody holds it, and for a day after it was staged. Two locks:
// `turn` is held for the length of a change in the folder and taken before that of the writer's state; `state` for a moment, also
// inside a transaction, which asks whether a content is there. A content is removed in three steps: under the writer's lock it is seen
// that no event names it and noted that it goes; then its file is removed; then the note ends. So no transaction names one that goes.

import StrandlineLog
import StrandlineSystem

/// Who holds contents, and what the file of staged names says.
package final class StoreContents: Sendable {
  private let environment: SystemEnvironment
  /// The copies of contents of the server.
  let fetched: FetchedContents
  private let turn = OrderedMutex<Void>(.contents, ())
  private let state = OrderedMutex(State())
  /// Why contents could not be cleared up at the last try; nil if nothing is wrong.
  let failure = OrderedMutex<String?>(nil)

  private struct State: Sendable {
    /// How many hold each content.
    var holds: [ContentHash: Int] = [:]
    /// Temporary files that are being written.
    var inProgress: Set<CloudName> = []
    /// Contents whose files are being removed.
    var removing: Set<ContentHash> = []
    /// How many backups read the folder: nothing is removed meanwhile.
    var pauses = 0
    /// What the file of staged names says; nil before it was read, and while it is written.
    var staged: StagedNames?
  }

  /// A content that nothing names stays so long, in milliseconds: the app has been closed before it named it.
  static let stagedMillisecondsMax: Int64 = 24 * 3_600 * 1_000

  init(_ environment: SystemEnvironment) {
    self.environment = environment
    fetched = FetchedContents(environment)
  }

  // MARK: Holding

  func hold(_ hash: ContentHash) { state.withLock { $0.holds[hash, default: 0] += 1 } }

  func release(_ hash: ContentHash) {
    state.withLock { state in
      guard let count = state.holds[hash] else { return }
      state.holds[hash] = count > 1 ? count - 1 : nil
    }
  }

  /// Whether somebody holds it.
  private func isHeld(_ hash: ContentHash) -> Bool { state.withLock { $0.holds[hash] != nil } }

  /// Runs `body` while no content is removed.
  func withoutRemoval<Value>(_ body: () throws -> Value) rethrows -> Value {
    // What is being removed is gone first.
    turn.withLock { _ in state.withLock { $0.pauses += 1 } }
    defer { state.withLock { $0.pauses -= 1 } }
    return try body()
  }

  // MARK: In a transaction

  /// The size of a content that a transaction may name; nil if it is not there. The caller holds the writer's lock.
  func size(of hash: ContentHash, in folder: ContentFolder) throws(SystemError) -> Int64? {
    if state.withLock({ $0.removing.contains(hash) }) { return nil }
    return try folder.size(of: hash)
  }

  // MARK: Staging

  /// A temporary name, under which nothing is removed before `end`.
  func begin(in folder: ContentFolder) -> String {
    let name = folder.temporaryName(environment.random)
    state.withLock { _ = $0.inProgress.insert(CloudName(name)) }
    return name
  }

  /// The file of that name is gone, or has another one.
  func end(_ temporary: String) { state.withLock { _ = $0.inProgress.remove(CloudName(temporary)) } }

  /// Gives a content that is on the medium its name, and holds it once. When this returns, the name is on the medium, and so is that
  /// it was staged.
  ///
  /// - Parameter isNamed: whether an event names a content that is durable.
  func publish(
    _ temporary: String, as content: NamedContent, in folder: ContentFolder, isNamed: (ContentHash) -> Bool
  ) throws(SystemError) {
    let now = environment.clock.wallMilliseconds()
    // Before the file has its name: who clears up removes no content that is held.
    hold(content.hash)
    do throws(SystemError) {
      try turn.withLock { (_) throws(SystemError) in
        var staged = try readStaged(folder, now).names
        staged.times = staged.times.filter { !isNamed($0.key) }
        staged.times[content.hash] = now
        try write(staged, folder)
        // Also where one is there: these bytes are known to be right.
        try folder.publish(temporary, as: content.hash)
        try folder.sync()
        state.withLock { $0.staged = staged }
      }
    } catch {
      release(content.hash)
      throw error
    }
  }

  /// Gives a copy of a content of the server its name.
  func publish(
    _ temporary: String, asFetched key: ContentHash, in folder: ContentFolder, bytesMax: Int64
  ) throws(SystemError) {
    try turn.withLock { (_) throws(SystemError) in
      try fetched.publish(temporary, as: key, in: folder, bytesMax: bytesMax)
    }
  }

  /// The file of staged names. Of a damaged one the contents that it may have named count from now on.
  ///
  /// - Returns: also whether the file has to be written again.
  private func readStaged(
    _ folder: ContentFolder, _ now: Int64
  ) throws(SystemError) -> (names: StagedNames, isDamaged: Bool) {
    if let staged = state.withLock({ $0.staged }) { return (staged, false) }
    if let staged = try folder.staged() { return (staged, false) }
    var staged = StagedNames()
    for hash in try folder.list().contents { staged.times[hash] = now }
    return (staged, true)
  }

  /// Replaces the file. Until the folder is synced it is not known what a crash would leave of it.
  private func write(_ staged: StagedNames, _ folder: ContentFolder) throws(SystemError) {
    state.withLock { $0.staged = nil }
    try folder.write(staged)
  }

  /// From now on the file says what is staged, and not this memory: others may write it. Waits for what changes the folder.
  func forgetStaged() { turn.withLock { _ in state.withLock { $0.staged = nil } } }

  // MARK: Clearing up

  /// How many contents wait to be named, and whether one has waited for too long; nil if the file of staged names was not read yet.
  ///
  /// - Parameter isNamed: whether an event names it.
  func waiting(isNamed: (ContentHash) -> Bool) -> (count: Int, isOverdue: Bool)? {
    let now = environment.clock.wallMilliseconds()
    guard let known = state.withLock({ $0.staged }) else { return nil }
    let times = known.times.filter { !isNamed($0.key) }
    return (times.count, times.contains { isOverdue($0.value, now) && !isHeld($0.key) })
  }

  private func isOverdue(_ time: Int64, _ now: Int64) -> Bool { now &- time >= Self.stagedMillisecondsMax }

  /// Removes the files that interrupted writers left, and the contents that nothing names, nobody holds and that were not staged within
  /// a day.
  ///
  /// - Parameter whileUnnamed: calls its argument under the writer's lock if no event names the content, durable or not.
  func clearUp(in folder: ContentFolder, whileUnnamed: (ContentHash, () -> Void) -> Void) throws(SystemError) {
    try turn.withLock { (_) throws(SystemError) in
      guard try folder.isThere else { return state.withLock { $0.staged = StagedNames() } }
      let now = environment.clock.wallMilliseconds()
      let (before, isDamaged) = try readStaged(folder, now)
      var staged = before
      // A clock that was set back would keep them for as long as it was ahead.
      for (hash, time) in staged.times where time > now { staged.times[hash] = now }
      let (contents, temporaries) = try folder.list()
      var hasChanged = false
      for name in temporaries where state.withLock({ !$0.inProgress.contains(CloudName(name)) && $0.pauses == 0 }) {
        try folder.remove(name)
        hasChanged = true
      }
      for hash in contents where staged.times[hash].map({ isOverdue($0, now) }) ?? true {
        guard try remove(hash, folder, whileUnnamed) else { continue }
        staged.times[hash] = nil
        hasChanged = true
      }
      let there = Set(contents)
      staged.times = staged.times.filter { there.contains($0.key) }
      if isDamaged || staged != before {
        try write(staged, folder)
        hasChanged = true
      }
      if hasChanged { try folder.sync() }
      state.withLock { $0.staged = staged }
    }
  }

  /// - Returns: whether it was removed.
  private func remove(
    _ hash: ContentHash, _ folder: ContentFolder, _ whileUnnamed: (ContentHash, () -> Void) -> Void
  ) throws(SystemError) -> Bool {
    whileUnnamed(hash) {
      state.withLock { state in
        if state.holds[hash] == nil, state.pauses == 0 { state.removing.insert(hash) }
      }
    }
    guard state.withLock({ $0.removing.contains(hash) }) else { return false }
    defer { state.withLock { _ = $0.removing.remove(hash) } }
    try folder.remove(hash)
    return true
  }
}
