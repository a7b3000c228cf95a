// The sorted runs of an open store, and who writes them: what lies in memory becomes a run when it is much, or when the
// store is closed; runs become one as there get more of them. None of it is needed for a write to be durable: the log has
// everything, and the runs are made again from it where one of them fails.
//
// Six locks, in this order: `building` for the length of a build, `compacting`, `merging` for the length of a merge,
// `flushing` for the length of a flush, that of the projections for a moment, `state` for the length of a change of the
// list. A flush waits for no merge and for no build.
//
// One index ends with its log: a store that is suspended has none, and a resumed one gets another, over the runs and with
// the declared indexes that the disk has by then.

import Dispatch
import StrandlineLog
import StrandlineSystem
import Synchronization

/// When the runs of a store are written.
package struct IndexOptions: Sendable {
  /// So many changes in memory are written into a run.
  package var flushCount = 16_384
  /// Fewer events than this since the last run are not written when the store is closed: the next open reads them.
  package var closeCount: UInt64 = 1_000
  /// So many runs of about the same size become one.
  package var mergeWidth = 4
  /// The runs that there are are not read; all are made from the log.
  package var ignoresRuns = false
  /// Memory for blocks that were read.
  package var cacheBytesMax = BlockCache.bytesMaxDefault

  package init() {}

  /// A write is refused when so many changes are in memory and cannot be written.
  var unstoredCountMax: Int { 4 * flushCount }
}

/// The runs of a store that is open for writing.
package final class StoreIndex: Sendable {
  /// The folder of the runs, in that of the store.
  package static let folderName = LogFormat.ownerFolderName

  let files: IndexFiles
  package let options: IndexOptions
  let log: Log
  let projections: SharedProjections
  /// Held while the log is compacted, or read from its beginning.
  private let compacting = Mutex(())
  private let rebuildsWanted = Atomic(0)
  /// Held while runs are made one: a close waits for it.
  private let merging = Mutex(())
  /// Held while a flush, or a new making of all runs, is under way.
  let flushing = Mutex(())
  /// Held while declared indexes are built; before the others.
  let building = Mutex(())
  let state: Mutex<State>
  /// Read by a merge and by a build in between.
  let isClosing = Atomic(false)
  /// What writing runs throws when the index has ended; set under `flushing`, so that none is written behind it.
  private let ended: Mutex<StrandlineError?> = Mutex(nil)
  /// Where background work runs; nil: on the thread that asks for it, so that a simulated run can be repeated.
  private let queue: DispatchQueue?
  let mergeQueue: DispatchQueue?
  let buildQueue: DispatchQueue?

  /// The set of runs, and what the list on the medium has to do with it.
  enum Listing: Sendable {
    /// The list names them.
    case listed(RunSet)
    /// It does not, or may not: the next flush writes one. nil: there are none.
    case unlisted(RunSet?)
    /// Runs said what the log does not, and events were in flight when all were made again: some of what the runs said may
    /// be in memory still. No list names a run until the next open, which makes all of them again.
    case withheld(RunSet?)
    /// All runs are being made again, so that no other writer of runs begins; of these one could not be read.
    case rebuilding(RunSet?, isWithheld: Bool)

    var runs: RunSet? {
      switch self {
      case .listed(let runs): runs
      case .unlisted(let runs), .withheld(let runs), .rebuilding(let runs, _): runs
      }
    }
    var isListed: Bool {
      if case .listed = self { return true }
      return false
    }
    /// Whether no list may name a run before the next open.
    var isWithheld: Bool {
      switch self {
      case .withheld, .rebuilding(_, isWithheld: true): true
      case .listed, .unlisted, .rebuilding(_, isWithheld: false): false
      }
    }
    var isRebuilding: Bool {
      if case .rebuilding = self { return true }
      return false
    }

    /// The same runs, opened with other indexes.
    mutating func reopen(as runs: RunSet) {
      switch self {
      case .listed: self = .listed(runs)
      case .unlisted: self = .unlisted(runs)
      case .withheld: self = .withheld(runs)
      case .rebuilding(_, let isWithheld): self = .rebuilding(runs, isWithheld: isWithheld)
      }
    }

    /// Runs that the list on the medium may not name.
    static func notListed(_ runs: RunSet?, isWithheld: Bool) -> Listing {
      isWithheld ? .withheld(runs) : .unlisted(runs)
    }
  }

  struct State: Sendable {
    var listing: Listing
    var current: RunSet? { listing.runs }
    /// Above the numbers of all runs that were ever written.
    var nextRunNumber: UInt64
    var isClearedUp = false
    /// Runs that may have files and that the next list does not name: their writing failed, or they could not be removed.
    var unlisted: Set<UInt64> = []
    var isFlushQueued = false
    var isMergeQueued = false
    /// The last flush that failed, if none succeeded since.
    var failure: Failure?
    /// The declared indexes. One without a number waits to be built; one with a number gets its rows from every flush.
    var definitions: IndexDefinitions
    /// What the file that names them says.
    var definitionsFile: DefinitionsFile
    /// The store was opened with a list of indexes.
    var hasList = false
    /// How often all runs were made anew.
    var generation = 0
    var isBuildQueued = false
    /// A build has failed: it is not tried again before the next open, or until an index is declared.
    var hasBuildFailed = false
    /// Why the last merge in the background failed, and the last build; nil if it did not.
    var mergeError: StrandlineError?
    var buildError: StrandlineError?
  }

  /// The file that names the declared indexes.
  enum DefinitionsFile: Sendable {
    /// The file lists the indexes that the app has declared.
    case known
    /// A write of it has failed, so that it may say otherwise: the next change writes it again.
    case uncertain
    /// It says nothing, until the next change writes it again.
    case damaged(StrandlineError)

    var isKnown: Bool { if case .known = self { true } else { false } }
    var damage: StrandlineError? { if case .damaged(let error) = self { error } else { nil } }

    /// It is about to be written; that may fail.
    mutating func beginWriting() { if isKnown { self = .uncertain } }
  }

  /// A flush that failed.
  package struct Failure: Sendable {
    package var error: StrandlineError
    package var count = 1
    /// By the monotonic clock: it is not tried before.
    package var notBefore: UInt64
  }

  convenience init(
    _ opened: IndexOpening.Opened, files: IndexFiles, options: IndexOptions, log: Log, projections: SharedProjections
  ) {
    self.init(
      opened.projections.runs, nextRunNumber: opened.nextRunNumber, isListed: opened.isListed,
      declared: DeclaredIndexes(definitions: opened.definitions, damage: opened.definitionsDamage), files: files,
      options: options, log: log, projections: projections)
  }

  /// - Parameters:
  ///   - runs: those of the projections.
  ///   - nextRunNumber: above the numbers of all runs that were ever written.
  ///   - isListed: whether the list on the medium names `runs`.
  ///   - declared: the declared indexes. The index builds those again of which `runs` lack rows.
  init(
    _ runs: RunSet?, nextRunNumber: UInt64, isListed: Bool, declared: DeclaredIndexes, files: IndexFiles,
    options: IndexOptions, log: Log, projections: SharedProjections
  ) {
    self.files = files
    self.options = options
    self.log = log
    self.projections = projections
    var definitions = declared.definitions
    let ready = runs?.indexes ?? []
    for place in definitions.indexes.indices where !ready.contains(definitions.indexes[place]) {
      definitions.indexes[place].number = 0
    }
    state = Mutex(
      State(
        listing: runs.flatMap { isListed ? .listed($0) : nil } ?? .unlisted(runs), nextRunNumber: nextRunNumber,
        definitions: definitions, definitionsFile: declared.damage.map { .damaged($0) } ?? .known))
    let inBackground = log.options.upkeep == .inBackground
    queue = inBackground ? DispatchQueue(label: "strandline.index.flush", qos: .utility) : nil
    mergeQueue = inBackground ? DispatchQueue(label: "strandline.index.merge", qos: .utility) : nil
    buildQueue = inBackground ? DispatchQueue(label: "strandline.index.build", qos: .utility) : nil
  }

  // MARK: When

  /// Why what lies in memory could not be written; nil if nothing is wrong.
  package var failure: Failure? { state.withLock { $0.failure } }

  /// The last failure of the index, for the status: of a flush, a merge or a build; or the damage of the file of the declared
  /// indexes.
  var lastError: StrandlineError? {
    state.withLock { $0.failure?.error ?? $0.mergeError ?? $0.buildError ?? $0.definitionsFile.damage }
  }

  /// Runs upkeep for which no caller waits, and keeps its error for the status.
  func keepingError(
    in place: WritableKeyPath<State, StrandlineError?>, _ doing: String, _ body: () throws -> Void
  ) {
    var failed: StrandlineError?
    do { try body() } catch is RunsAreMadeAnew { return } catch {
      let error = StrandlineError.translating(error, "\(doing) of the store at '\(files.storePath)'")
      failed = error as? StrandlineError ?? StrandlineError(.io, "\(error)", underlying: error)
    }
    state.withLock { $0[keyPath: place] = failed }
  }

  /// How many runs there are.
  package var runCount: Int { state.withLock { $0.current?.runs.count ?? 0 } }

  /// Something became durable: writes what lies in memory if it is much.
  func durabilityAdvanced() {
    if projections.unstoredCount >= options.flushCount { flushInBackground() }
  }

  /// The store was opened: lists what was made anew of a long log, so that the next open need not do it again.
  ///
  /// - Parameters:
  ///   - indexes: all that it is to have; nil: those that it has.
  ///   - others: what it is to have besides.
  func opened(declaring indexes: [RecordIndex]?, adding others: [RecordIndex]) {
    // A store is opened also where no index can be declared, such as on a full disk: every query works without. The next
    // open tries again.
    if let indexes {
      state.withLock { $0.hasList = true }
      _ = try? declareOnly(indexes + others.filter { !indexes.contains($0) })
    } else if !others.isEmpty {
      _ = try? redefine { definitions in definitions.add(others) }
    }
    if state.withLock({ $0.current != nil && !$0.listing.isListed }) { flushInBackground() }
    durabilityAdvanced()
    // What earlier sessions left because they ended before.
    mergeIfDue()
    buildInBackground()
  }

  private func flushInBackground() {
    let now = files.environment.clock.monotonicNanoseconds()
    let begins = state.withLock { state in
      guard !state.isFlushQueued, state.failure.map({ $0.notBefore <= now }) ?? true else { return false }
      state.isFlushQueued = true
      return true
    }
    guard begins else { return }
    inBackground(queue) { index in
      // A failure is kept: status names it, and a write that finds memory full throws it.
      _ = try? index.flush()
      index.state.withLock { $0.isFlushQueued = false }
    }
  }

  func inBackground(_ queue: DispatchQueue?, _ body: @escaping @Sendable (StoreIndex) -> Void) {
    guard let queue else { return body(self) }
    queue.async { [weak self] in
      guard let self, !self.isClosing.load(ordering: .acquiring) else { return }
      body(self)
    }
  }

  /// Waits until memory has room for what a transaction changes.
  ///
  /// - Throws: why it could not be written, if it is four times too much.
  func makeRoom() throws {
    // What the log could not write counts as well, and nothing can be stored before the next transaction has undone it.
    if case .rejecting = log.state { return }
    guard projections.unstoredCount >= options.unstoredCountMax else { return }
    let now = files.environment.clock.monotonicNanoseconds()
    // A disk that was full may have room by now: a write that would be refused is worth another try.
    if let failure, failure.notBefore > now, failure.error.code != .diskFull { throw failure.error }
    // A flush that is under way is waited for; it may have been all that was missing.
    do { try flush(ifAtLeast: options.unstoredCountMax) } catch let error as StrandlineError
      where error.code == .diskFull && error.lsns != nil
    {
      // The log could not write events that memory still has. The next transaction undoes them first, and is refused itself if the
      // disk is full still.
    }
  }

  /// Ends background work, and writes what the next open would otherwise read from the log, if it is much. When this
  /// returns, or throws, nothing is being written, and nothing will be: the log's lock can be given back.
  ///
  /// - Parameter error: what a later flush throws.
  func close(_ error: StrandlineError) throws {
    isClosing.store(true, ordering: .releasing)
    let listing = state.withLock { $0.listing }
    let known = listing.isListed ? listing.runs?.end.lsn ?? 0 : 0
    defer {
      flushing.withLock { _ in ended.withLock { $0 = error } }
      building.withLock { _ in }
      // A compaction ends by itself, and removes the runs that it wrote for a comparison.
      compacting.withLock { _ in }
      merging.withLock { _ in }
      queue?.sync {}
      mergeQueue?.sync {}
      buildQueue?.sync {}
    }
    guard case .open = log.state else { return }
    if state.withLock({ $0.listing.isWithheld }) {
      // The next open makes all runs again, at a moment that has time for it.
      return try flushing.withLock { _ in try files.removeList() }
    }
    if log.durableLSN >= known + options.closeCount { try flush() }
    mergeToClose()
  }

  // MARK: Flushing

  /// Writes what is durable of what lies in memory into a run. When this returns, the list on the medium names runs that
  /// hold everything that was durable when it was called.
  ///
  /// - Parameters:
  ///   - count: does nothing if less lies in memory by now.
  ///   - always: writes a run also if no event is new; the projections may have learned what no event says.
  ///   - beginsBuild: builds in the background what is declared and not built.
  /// - Throws: `StrandlineError`: `.diskFull`, `.io`, `.outcomeUnknown`; then memory has what it had.
  package func flush(ifAtLeast count: Int = 0, always: Bool = false, beginsBuild: Bool = true) throws {
    do {
      try flushing.withLock { _ in
        try checkNotEnded()
        guard projections.unstoredCount >= count else { return }
        try flushHeld(always: always)
      }
      state.withLock { $0.failure = nil }
    } catch {
      let error = StrandlineError.translating(error, "writing the index of the store at '\(files.storePath)'")
      note(error)
      throw error
    }
    mergeIfDue()
    if beginsBuild { buildInBackground() }
  }

  /// Whether `close` has returned, or is about to: nothing is written any more. The caller holds `flushing`.
  package var hasEnded: Bool { ended.withLock { $0 != nil } }

  /// - Throws: what `close` was given, when it has ended the index. The caller holds `flushing`.
  func checkNotEnded() throws(StrandlineError) { if let error = ended.withLock({ $0 }) { throw error } }

  private func note(_ error: any Error) {
    guard let error = error as? StrandlineError else { return }
    let now = files.environment.clock.monotonicNanoseconds()
    state.withLock { state in
      let count = (state.failure?.count ?? 0) + 1
      // A tenth of a second, twice as long after each failure, half a minute at most.
      let wait = min(30_000, UInt64(100) << UInt64(min(count - 1, 9))) * 1_000_000
      state.failure = Failure(error: error, count: count, notBefore: now &+ wait)
    }
  }

  private func flushHeld(always: Bool) throws {
    // The end first, so that how to undo what follows it is kept until it is set apart.
    let isListed = state.withLock { $0.listing.isListed }
    let (end, isNew) = projections.withLock { state in
      let end = log.durableEnd
      let isNew = always || !isListed || end.lsn > (state.runs?.end.lsn ?? 0)
      if isNew { state.undoBounds.flush = LSN(end.lsn) }
      return (end, isNew)
    }
    guard isNew else { return }
    defer { projections.withLock { $0.undoBounds.flush = nil } }
    // A run must not know more than what a power cut leaves of the log; nor must readers in other processes.
    try log.flushBlocking()
    // It only saves readers a reading of everything; upkeep reports a failure.
    _ = try? log.raiseControl()
    let durable = projections.withLock { $0.beginFlush(upTo: LSN(end.lsn)) }
    do {
      let number = try newRunNumber()
      do {
        let (indexed, unreadable) = changedRows(durable)
        let run = try files.write(durable, indexed, number: number) { self.log.place(of: $0.rawValue) }
        let ready = state.withLock { $0.current?.indexes } ?? []
        let runs = try change(
          to: [run] + (state.withLock { $0.current?.runs } ?? []), end: end,
          indexes: ready.filter { !unreadable.contains($0) })
        projections.withLock { $0.endFlush(runs) }
      } catch {
        noteUnlisted([number])
        throw error
      }
    } catch {
      projections.withLock { $0.cancelFlush() }
      throw error
    }
    removeUnlisted()
  }

  private func noteUnlisted(_ numbers: Set<UInt64>) { state.withLock { $0.unlisted.formUnion(numbers) } }

  /// Removes what earlier failures left, after a list was written that does not name it. What cannot be removed now is
  /// removed after the next flush, or by the next writer.
  private func removeUnlisted() {
    let numbers = state.withLock { state in
      defer { state.unlisted = [] }
      return state.unlisted
    }
    guard !numbers.isEmpty else { return }
    do { try files.removeUnlisted(numbers) } catch { noteUnlisted(numbers) }
  }

  func newRunNumber() throws -> UInt64 {
    try log.checkPlace()
    return try state.withLock { state in
      guard !state.listing.isRebuilding else { throw RunsAreMadeAnew() }
      try clearUp(&state)
      defer { state.nextRunNumber += 1 }
      return state.nextRunNumber
    }
  }

  /// Removes what interrupted writers left, before the first file of this one.
  func clearUp() throws { try state.withLock { state in try clearUp(&state) } }

  private func clearUp(_ state: inout State) throws {
    guard !state.isClearedUp else { return }
    try files.clearUp(keeping: state.current, isListed: state.listing.isListed)
    state.isClearedUp = true
  }

  /// Replaces the set of runs, and the list on the medium. The caller holds `flushing`.
  ///
  /// - Parameter indexes: the declared indexes of which the runs have every row.
  func change(to runs: [Run], end: LogEnd, indexes: [StoredIndex]) throws -> RunSet {
    try log.checkPlace()
    return try state.withLock { state in
      // One that a flush could not keep has no number any more, also if that flush then failed.
      let indexes = indexes.filter { state.definitions.indexes.contains($0) }
      let set = files.set(
        runs, end: end, nextRunNumber: state.nextRunNumber, indexes: indexes,
        nextIndexNumber: state.definitions.nextNumber)
      guard !state.listing.isWithheld else {
        state.listing = .withheld(set)
        return set
      }
      do throws(RunListFailure) { try set.list.replace(files.folder) } catch {
        // The list on the medium may be either: the runs of both stay until one was written.
        state.listing = .unlisted(state.current)
        throw files.failure(error.cause)
      }
      state.listing = .listed(set)
      return set
    }
  }

  // MARK: Merging

  /// Makes one run of several, if there are that many of about the same size.
  private func mergeIfDue() {
    let begins = state.withLock { state in
      guard !state.isMergeQueued, mergeable(state.current) > 0 else { return false }
      state.isMergeQueued = true
      return true
    }
    guard begins else { return }
    inBackground(mergeQueue) { index in
      // What cannot be merged stays as it is; the next flush tries again.
      index.keepingError(in: \.mergeError, "merging the runs") { while try index.mergeOnce() {} }
      index.state.withLock { $0.isMergeQueued = false }
    }
  }

  /// How many of the newest runs are to become one; 0 for none.
  private func mergeable(_ set: RunSet?) -> Int { set.map { options.tiers.due($0.runs) } ?? 0 }

  /// Merges what is due when the store is closed: background work that a session which ends early has given up would leave
  /// a run more each time. What is large is left to the next session that lives longer, unless there are too many.
  private func mergeToClose() {
    keepingError(in: \.mergeError, "merging the runs") {
      while try merging.withLock({ _ in try mergeHeldToClose() }) {}
    }
  }

  private func mergeHeldToClose() throws -> Bool {
    let isDue = state.withLock { state in
      guard let set = state.current else { return false }
      let entries = set.runs.prefix(mergeable(set)).reduce(0) { $0 + $1.entryCount }
      return entries <= options.unstoredCountMax || set.runs.count > options.tiers.most(set.runs)
    }
    return try isDue && mergeHeld(isCancelled: { false })
  }

  /// - Returns: whether there may be more to merge.
  private func mergeOnce() throws -> Bool {
    let isCancelled: @Sendable () -> Bool = { self.isClosing.load(ordering: .acquiring) }
    return try merging.withLock { _ in try !isCancelled() && mergeHeld(isCancelled: isCancelled) }
  }

  private func mergeHeld(isCancelled: @Sendable () -> Bool) throws -> Bool {
    let (set, count, indexes) = state.withLock { state in
      (state.current, mergeable(state.current), Set(state.definitions.indexes.map(\.number)))
    }
    guard let set, count > 1 else { return false }
    let inputs = Array(set.runs.prefix(count))
    let merged: Run
    let number = try newRunNumber()
    var met: [UInt8: UInt64] = [:]
    do throws(RunError) {
      guard
        let run = try files.merge(
          inputs, number: number, dropsTombstones: count == set.runs.count, indexes: indexes,
          isCancelled: isCancelled, met: &met)
      else { return false }
      // All rows of the store were met.
      if count == set.runs.count { try set.check(met) }
      merged = run
    } catch {
      noteUnlisted([number])
      // The next look-up makes the runs again.
      if error.cause == nil { throw set.fail(error) }
      throw files.failure(error)
    }
    // Not beside a flush, whose set would have the inputs again.
    let isChanged: Bool
    do {
      isChanged = try replace(inputs, by: merged)
    } catch {
      noteUnlisted([number])
      throw error
    }
    let left = isChanged ? inputs : [merged]
    do { try files.remove(left) } catch {
      noteUnlisted(Set(left.map(\.identity.runNumber)))
      throw error
    }
    return isChanged
  }

  /// Lists a run for those that it was made of; false if other runs have taken their place.
  private func replace(_ inputs: [Run], by merged: Run) throws -> Bool {
    try flushing.withLock { _ in
      guard !hasEnded, let current = state.withLock({ $0.current }),
        current.end == projections.withLock({ $0.runs?.end }),
        let first = current.runs.firstIndex(where: { $0 === inputs[0] })
      else { return false }
      let runs = Array(current.runs[..<first]) + [merged] + current.runs[(first + inputs.count)...]
      let changed = try change(to: runs, end: current.end, indexes: current.indexes)
      projections.withLock { $0.replaceRuns(changed) }
      return true
    }
  }

  // MARK: Failing runs

  /// Whether a reader waits for runs to be made anew, which a compaction holds up.
  var isRebuildWanted: Bool { rebuildsWanted.load(ordering: .acquiring) > 0 }

  /// Makes all runs anew from the log: one of `failed` could not be read. Returns at once if that was done.
  ///
  /// - Returns: whether it is done; an index that has ended writes no runs.
  /// - Throws: what reading the log throws.
  func rebuild(_ failed: RunSet) throws -> Bool {
    rebuildsWanted.add(1, ordering: .acquiringAndReleasing)
    defer { rebuildsWanted.subtract(1, ordering: .acquiringAndReleasing) }
    let isDone = try whileCompacting {
      try flushing.withLock { _ in
        guard projections.withLock({ $0.runs === failed }) else { return true }
        guard !hasEnded else {
          // A reader of the log, which does it instead, finds in it what is promised.
          _ = try? log.raiseControl()
          return false
        }
        // What fails is not believed by the next open either. If it cannot be removed, it fails there again.
        let number = state.withLock { state in
          state.listing = .rebuilding(state.current, isWithheld: state.listing.isWithheld)
          return state.nextRunNumber
        }
        // Where it throws.
        defer {
          state.withLock { state in
            guard case .rebuilding(let runs, let isWithheld) = state.listing else { return }
            state.listing = .notListed(runs, isWithheld: isWithheld)
          }
        }
        _ = try? files.removeList()
        _ = try? log.raiseControl()
        let made = try IndexOpening.folding(files, spillingAt: options.flushCount, nextRunNumber: number).opened
        guard made.projections.appliedLSN.rawValue >= failed.end.lsn else {
          throw StrandlineError(
            .io,
            "a run of the index failed, and the log can be read up to event \(made.projections.appliedLSN) only, "
              + "before event \(failed.end.lsn), which the index had; try again")
        }
        state.withLock { state in
          state.unlisted.formUnion(state.current?.list.runNumbers ?? [])
          state.nextRunNumber = made.nextRunNumber
          state.generation += 1
          state.hasBuildFailed = false
          for place in state.definitions.indexes.indices { state.definitions.indexes[place].number = 0 }
        }
        let isWhole = projections.withLock { state in
          if failed.hasLied { return state.replace(with: made.projections) }
          state.adopt(made.projections)
          return true
        }
        state.withLock { $0.listing = .notListed(made.projections.runs, isWithheld: !isWhole) }
        return true
      }
    }
    if isDone { buildInBackground() }
    return isDone
  }

  /// Hands out an empty fold, which writes runs as an open does where it gets large, and removes them afterwards.
  func withFold(_ body: (inout SpillingFold) throws -> Void) throws {
    var fold = SpillingFold(
      SpillingFold.Spill(files: files, runs: SpilledRuns(every: options.unstoredCountMax)) {
        try self.files.makeFolder()
        return try self.newRunNumber()
      })
    defer {
      noteUnlisted(fold.runNumbers)
      removeUnlisted()
    }
    try body(&fold)
  }

  /// Runs a compaction of the log: no run is made from the log meanwhile.
  func whileCompacting<Result: Sendable>(_ body: () throws -> Result) rethrows -> Result {
    try compacting.withLock { _ in try body() }
  }
}

/// All runs are being made anew, so that no run can be made of those that there were.
private struct RunsAreMadeAnew: Error {}
