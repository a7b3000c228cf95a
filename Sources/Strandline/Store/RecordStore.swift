// A store: one directory, one account, one writer. Opening it, closing it, and what it is.
//
// The log is the storage. Opening reads the runs of the index and what the log has behind them; a write appends to it; a
// read is one look into the projections and one checked read of the log. Follow one write: RecordStore+Writing,
// WriteTransaction, StoreCore, then Log in the module below.

package import StrandlineLog
package import StrandlineSystem
import Synchronization

/// A store of records, on disk, synced if you ask for it.
///
/// Safe to use from every task and thread. Readers see what is durable; closures of `write` see what was written
/// before them.
///
/// Its functions throw `StrandlineError`, besides `CancellationError` and what an app's own closure throws. Each takes
/// `fileID` and `line`, which are left out: they name the calling line in the error.
public final class RecordStore: Sendable {
  /// Where it lies.
  public let path: String
  /// Where events are read from: the log, while the store is open for writing; a reader of it otherwise.
  package var source: EventSource { place.withLock { $0 } }
  private let place: OrderedMutex<EventSource>
  package let environment: SystemEnvironment
  /// The writer's state. Held as long as a closure of `write` runs, so no reader takes it.
  package let core: WriterLock
  /// What readers look into.
  package let projections: SharedProjections
  /// The compaction that the store runs by itself; nil in one that was opened for reading only.
  package let compaction: CompactionUpkeep?
  /// Who writes the runs below the projections; nil in a store that is suspended or was opened for reading only, which
  /// writes none.
  package var index: StoreIndex? { indexPlace.withLock { $0 } }
  private let indexPlace: OrderedMutex<StoreIndex?>
  /// The rows in declared indexes of what lies in memory.
  let indexRows = IndexRowCache()
  package let settledWaiters = SettledWaiters()
  /// The losses of zones about which the app's rules decide, and no person.
  package let ruledLosses: OrderedMutex<Set<ZoneLoss>> = OrderedMutex([])
  package let observers = Observers()
  package let registeredProjections = RegisteredProjections()
  /// Who needs events that a compaction would remove. They outlast a suspension, and the log that they are known to.
  package let consumers: LogConsumers
  /// Set when a close begins: from then on every public call that throws throws `.closed`.
  private let isClosed = Atomic(false)
  /// Set when a suspension begins, and cleared when the store has been resumed.
  let isSuspending = Atomic(false)
  /// Held while the store is suspended, resumed or closed, so that these run one after the other. Taken before `core`.
  let suspension: OrderedMutex<Suspension?> = OrderedMutex(.suspension, nil)
  /// The sync engine, if the store has one; set before `open` returns the store.
  package let driver: OrderedMutex<(any SyncDriver)?> = OrderedMutex(nil)

  /// - Parameters:
  ///   - compaction: how the store compacts itself, if it writes.
  ///   - index: makes the writer of runs, of a store that has one.
  init(
    path: String, source: EventSource, environment: SystemEnvironment, projections: Projections,
    compaction: CompactionPolicy? = nil, index: (SharedProjections) -> StoreIndex? = { _ in nil }
  ) {
    self.path = path
    self.compaction = compaction.map { CompactionUpkeep($0, environment.clock) }
    place = OrderedMutex(source)
    self.environment = environment
    self.projections = SharedProjections(projections)
    indexPlace = OrderedMutex(index(self.projections))
    self.core = WriterLock(StoreCore(projections: self.projections, source: source, environment: environment))
    consumers = if case .writer(let log) = source { log.consumers } else { LogConsumers() }
    self.projections.onFailure { [weak self] failed throws(StrandlineError) in try self?.rebuild(failed) }
    if case .writer(let log) = source { observe(log) }
  }

  /// Has the log tell the observers what becomes durable in it.
  private func observe(_ log: Log) { log.observeDurability { [weak self] in self?.publish() } }

  /// Reads events from another place from now on: a reader of the log, or the log of another tenure.
  func read(from source: EventSource) {
    if case .writer(let log) = source { observe(log) }
    let before = place.withLock { place in
      defer { place = source }
      return place
    }
    // The last one that holds a reader closes its files: not under a lock.
    withExtendedLifetime(before) {}
  }

  /// Has the runs written by another index from now on; nil: by none.
  func write(runsBy index: StoreIndex?) { indexPlace.withLock { $0 = index } }

  /// Opens the store at `path` for reading and writing, creating it if nothing (or an empty folder) is there, on a plain
  /// thread and without a sync engine. See `open(at:syncing:)` for what it promises.
  ///
  /// With `createIfAbsent` false it throws `.noSuchStore` where nothing is.
  ///
  /// - Throws: `StrandlineError` as `open(at:syncing:)`.
  package static func openBlocking(
    at path: String, types: [any SyncRecord.Type] = [], durability: Durability = .durable,
    options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real, createIfAbsent: Bool = true,
    fileID: String = #fileID, line: Int = #line
  ) throws -> RecordStore {
    let store = try openAlone(
      at: path, types: types, durability: durability, options: options, environment: environment,
      createIfAbsent: createIfAbsent, fileID: fileID, line: line)
    do {
      try store.readInboxOfOpen()
    } catch {
      // What this open has to say is that failure.
      _ = try? store.closeBlocking()
      throw error
    }
    return store
  }

  /// The same, without a look into the inbox: what it holds may be of zones that only the sync engine knows to be the store's.
  static func openAlone(
    at path: String, types: [any SyncRecord.Type], durability: Durability, options: StoreOptions,
    environment: StoreEnvironment, createIfAbsent: Bool, fileID: String, line: Int
  ) throws -> RecordStore {
    try CallSite(fileID, line).run("cannot open the store at '\(path)'") {
      let options = try options.declaring(types)
      if let defect = options.schema.defect { throw StrandlineError(.invalidName, defect) }
      var logOptions = environment.adapted(options.log)
      if case .ordered = durability { logOptions.strength = .ordered }
      // A log that does nothing by itself is not compacted by itself either.
      var compaction = options.compaction
      if logOptions.upkeep != .inBackground { compaction.deadRatio = nil }
      let cache = BlockCache(bytesMax: options.index.cacheBytesMax)
      var opening = IndexOpening(
        environment.system, cache, ignoringRuns: options.index.ignoresRuns,
        spillingAt: options.index.unstoredCountMax)
      let log: Log
      do {
        log = try open(path, logOptions, environment.system, createIfAbsent, &opening)
      } catch  where opening.hasFailed {
        opening = IndexOpening(
          environment.system, cache, ignoringRuns: true, spillingAt: options.index.unstoredCountMax)
        log = try open(path, logOptions, environment.system, createIfAbsent, &opening)
      }
      let files = IndexFiles(log.folder, environment.system, storeUUID: log.storeUUID, cache: cache)
      do {
        if let failure = opening.definitionsFailure { throw failure }
        try log.folder.setTreatment(options.fileTreatment)
        try files.syncDefinitions()
      } catch {
        // What this open has to say is that failure; nothing was appended that a close could lose.
        _ = try? log.close()
        throw error
      }
      let opened = opening.finish(at: log.durableLSN)
      let copyMark = try CopyMark(ownerBytes: log.ownerBytes, of: log.folder)
      let store = RecordStore(
        path: log.path, source: .writer(log), environment: environment.system, projections: opened.projections,
        compaction: compaction
      ) { projections in
        StoreIndex(
          opened, files: files, options: options.index, log: log, projections: projections)
      }
      store.core.withLock { core in
        core.renameWriter(ofCopy: copyMark)
        core.declared = options.declared
      }
      store.index?.opened(declaring: options.indexes, adding: options.schema.childIndexes)
      store.considerCompaction()
      store.clearUpContentsOfOpen()
      return store
    }
  }

  private static func open(
    _ path: String, _ options: LogOptions, _ environment: SystemEnvironment, _ createIfAbsent: Bool,
    _ opening: inout IndexOpening
  ) throws -> Log {
    // Two closures change it, one after the other.
    let shared = OrderedMutex(.opening, opening)
    defer { opening = shared.withLock { $0 } }
    return try Log.open(
      at: path, role: .store, options: options, environment: environment, createIfAbsent: createIfAbsent,
      behind: { folder, uuid, isRefused in shared.withLock { $0.begin(folder, uuid, isRefused: isRefused) } }
    ) { found in
      try shared.withLock { try $0.apply(found) }
    }
  }

  /// A run has failed: what was made of it is made again from the log. See `StoreIndex`.
  private func rebuild(_ failed: RunSet) throws(StrandlineError) {
    do {
      if let index, try index.rebuild(failed) { return }
      let files = IndexFiles(source.folder, environment, cache: BlockCache(bytesMax: 0))
      let applied = projections.appliedLSN
      let (opened, reader) = try IndexOpening.folding(files, spillingAt: nil, upTo: applied)
      // What was compacted behind what is shown here gives another moment: views of this one have expired then.
      if reader.rewrittenLSN <= applied.rawValue, opened.projections.appliedLSN == applied {
        projections.withLock { state in
          if failed.hasLied { _ = state.replace(with: opened.projections) } else { state.adopt(opened.projections) }
        }
      } else {
        projections.replace(with: try IndexOpening.folding(files, spillingAt: nil).opened.projections)
      }
    } catch {
      let error = StrandlineError.translating(error, "making the index of the store at '\(path)' anew")
      throw error as? StrandlineError ?? StrandlineError(.io, "\(error)")
    }
  }

  /// Opens the store for reading only: takes no lock, changes no byte, and works while another process writes.
  ///
  /// It shows what was durable when it was opened, all that a `write` had returned for before, until `refresh()` brings it up
  /// to date. Of a store that is written with `durability: .ordered` it shows what the last full sync has covered.
  ///
  /// - Throws: `StrandlineError`: `.noSuchStore`, `.notAStore`, `.damaged`, `.fromTheFuture`, `.io`.
  /// - Complexity: O(events since the writing process wrote its index last), or O(bytes of the log) if it has written none.
  public static func openReadOnly(
    at path: String, environment: StoreEnvironment = .real
  ) async throws -> RecordStore {
    try await onThread { try openReadOnlyBlocking(at: path, environment: environment) }
  }

  /// `openReadOnly` on a plain thread.
  package static func openReadOnlyBlocking(
    at path: String, environment: StoreEnvironment = .real
  ) throws -> RecordStore {
    try CallSite.unnamed.run("cannot read the store at '\(path)'") {
      let system = environment.system
      let folder = try LogReader.folder(of: path, environment: system)
      let (opened, reader) = try IndexOpening.reading(
        IndexFiles(folder, system, cache: BlockCache(bytesMax: IndexOptions().cacheBytesMax)))
      return RecordStore(
        path: reader.path, source: .reader(reader), environment: system, projections: opened.projections)
    }
  }

  /// What an open found: frames read, bytes set aside, time.
  package var recovery: RecoveryReport {
    switch source {
    case .writer(let log): log.recovery
    case .reader(let reader): reader.recovery
    }
  }

  /// The newest durable event.
  package var durableLSN: LSN { source.durableLSN }

  /// Closes the store: stops the engine, makes durable what is queued, gives the lock back. A second call does nothing;
  /// every other call that throws throws `.closed` from now on.
  ///
  /// - Throws: `StrandlineError`: `.outcomeUnknown` or `.io` if the last write or sync failed. Also `.io` if upkeep, or the
  ///   writing of the sorted tables, met a failing disk while it closed; then all that was acknowledged is safe, and the
  ///   message says so. The store is closed all the same.
  public func close(fileID: String = #fileID, line: Int = #line) async throws {
    try requireNoClosure(of: "close", CallSite(fileID, line))
    isClosed.store(true, ordering: .releasing)
    let driver = driver.withLock { driver in
      defer { driver = nil }
      return driver
    }
    await driver?.stop()
    try closeBlocking(fileID: fileID, line: line)
  }

  /// The same on a plain thread, for a store without an engine.
  ///
  /// - Throws: as `close`; `.misuse` inside a closure of `write`, and nothing was closed.
  package func closeBlocking(fileID: String = #fileID, line: Int = #line) throws {
    try requireNoClosure(of: "closeBlocking", CallSite(fileID, line))
    isClosed.store(true, ordering: .releasing)
    settledWaiters.close()
    observers.close()
    // A suspension or a resumption under way ends first: then the log that is closed is the last one.
    try suspension.withLock { _ in
      guard case .writer(let log) = source else { return }
      core.inbox.turn.withLock { _ in }
      core.contents.forgetStaged()
      compaction?.wait()
      let tables = Result { try index?.close(Self.closed(path)) }
      try CallSite(fileID, line).run("closing the store at '\(path)'") {
        try log.close()
        if case .failure(let error) = tables { try report(closingTables: error) }
      }
    }
  }

  /// Tables that were not written are a matter of the next open's time: nothing is lost without them. But a disk that fails is
  /// told, and a full one will have room again.
  private func report(closingTables error: any Error) throws(StrandlineError) {
    guard var error = error as? StrandlineError, error.code == .io else { return }
    error.message =
      "'\(path)' is closed and what was acknowledged is safe, but its sorted tables could not be written, and the next open "
      + "makes them again: \(error.message)"
    throw error
  }

  /// Refuses a call inside a closure of `write` that would wait until the closure has ended.
  func requireNoClosure(of name: String, _ site: CallSite) throws {
    try site.run(name) { try core.requireFree(for: name, instead: "call it when that has returned") }
  }

  /// Refuses a call after `close`, also where it would need nothing from the log.
  package func requireOpen() throws(StrandlineError) {
    guard isClosed.load(ordering: .acquiring) else { return }
    throw Self.closed(path)
  }

  private static func closed(_ path: String) -> StrandlineError {
    StrandlineError(.closed, "the store at '\(path)' is closed")
  }

  /// Refuses also a call that needs the log's lock while the store is suspended.
  package func requireWritable() throws(StrandlineError) {
    try requireOpen()
    if isSuspending.load(ordering: .acquiring) { throw StrandlineError.suspended }
  }
}

/// What a store tells its sync engine, which is declared one floor above.
package protocol SyncDriver: Sendable {
  /// A transaction of the app became durable.
  func localWriteEnded()
  /// Why one of some mutations does not leave before a person does something, as far as the log says it; nil if all may.
  func obstacle(to open: OpenMutations) throws -> StrandlineError?
  /// These records are not held any more.
  func holdsEnded(_ ids: [RecordID])
  /// Gives up the cycle under way and begins none until `resume`. When this returns, no cycle runs.
  func pause() async
  /// Goes on after `pause`.
  func resume()
  /// Ends the engine. When this returns, none of its tasks runs.
  func stop() async
}

/// What has become of a transaction when `write` returns.
public enum Durability: Hashable, Sendable {
  /// It survives a crash of the process and a power cut: one full sync a group of transactions (fdatasync(2) on Linux,
  /// `F_FULLFSYNC` on Apple systems, several milliseconds there).
  case durable
  /// It survives a crash of the process. A power cut may take the newest transactions, as far as no later full sync has
  /// covered them, but never one without all behind it: one barrier a group (`F_BARRIERFSYNC`, a fraction of a full sync
  /// on Apple systems; on Linux the same as `durable`). A full sync precedes every upload, so a server never has a change
  /// that this device may lose.
  case ordered
}

/// Options of a store: of its log, and what the app declares of its records.
public struct StoreOptions: Sendable {
  package var log = LogOptions()
  package var index = IndexOptions()
  /// The indexes that the store is to have. Those that it lacks are built in the background after it was opened, others
  /// are dropped. nil, the default, leaves the store's as they are.
  public var indexes: [RecordIndex]?

  /// How much of the past a store keeps when it compacts its log by itself; 30 days by default.
  public var history: HistoryRetention {
    get { compaction.history }
    set { compaction.history = newValue }
  }

  /// The most bytes that the content of an asset may have; 50,000,000 by default, which is what CloudKit's web services take. Above it
  /// ``RecordStore/stage(contentsOf:fileID:line:)`` throws `.tooLarge`.
  public var assetBytesMax: Int64 {
    get { declared.assetBytesMax }
    set { declared.assetBytesMax = newValue }
  }

  /// The most bytes that copies of contents of the server may take on this device together; 500,000,000 by default. When there are more,
  /// those are removed that were used first, and never one that is held (``AssetContent``). The contents of this device are none of
  /// them.
  public var fetchedBytesMax: Int64 {
    get { declared.fetchedBytesMax }
    set { declared.fetchedBytesMax = newValue }
  }

  /// When the log is compacted.
  package var compaction = CompactionPolicy()

  package var declared = Declarations()

  /// What becomes of records that were changed on two devices. By default every field keeps the change that was made last,
  /// and a deletion wins over an edit. All devices of an app should have the same rules.
  public var conflicts: ConflictRules {
    get { declared.conflicts }
    set { declared.conflicts = newValue }
  }

  /// What the app declares of its record types, also of a store that does not sync; nothing by default.
  ///
  /// Where a type has a rule for deleted parents, the store keeps an index on the field that names the parent, so that a
  /// deletion finds the children.
  public var schema: Schema {
    get { declared.schema }
    set { declared.schema = newValue }
  }

  /// Zones in which a transaction is uploaded as it was written: in one request, all of it or nothing. None by default.
  ///
  /// What transactions wrote that share a record, and that the server does not have yet, goes together as well. A transaction
  /// of `write` may change at most 200 records of such a zone, which is what one request holds; more than that in all go in
  /// several requests, as they do in other zones. Other devices may still see a part for a moment: the feed has pages.
  /// A record that such a zone owes the server takes memory until it is sent; one of another zone takes none.
  ///
  /// If a transaction deletes a record that refers to another one by `.deleteSelf`, and the app has deleted that other one by itself, the
  /// server may delete both before the rest of the transaction arrives.
  ///
  /// A record that the server refuses keeps the others of its set from being sent. `PendingChange.obstacle` names it.
  public var atomicZones: Set<ZoneID> {
    get { declared.atomicZones }
    set { declared.atomicZones = newValue }
  }

  /// When the store's files can be read on a device with a passcode. It counts on iOS, iPadOS, tvOS, watchOS and visionOS, where the
  /// system encrypts files by such a class; on a Mac and on Linux it has no effect.
  ///
  /// By default they can be read from the first unlock after a start on, also while the device is locked: a sync in the background,
  /// a widget and a notification find their records. Each open for writing gives the class to the store's folder and to all files
  /// in it that have another one.
  public var fileProtection: FileProtection {
    get { FileProtection(fileTreatment.protection) }
    set { fileTreatment.protection = newValue.treatment }
  }

  /// Whether a backup of the device (iCloud Backup, Finder, Time Machine) leaves the store out; false by default, because what was not
  /// uploaded yet is nowhere else. It counts on Apple systems; on Linux it has no effect.
  ///
  /// A store that is restored with a device goes on where the backup was made, under another writer number. An app whose
  /// records are all at the server may leave it out: a new device fetches them. Each open for writing sets or removes the mark on
  /// the store's folder, whatever the app itself has done to it.
  public var isExcludedFromBackup: Bool {
    get { fileTreatment.isLeftOutOfBackups }
    set { fileTreatment.isLeftOutOfBackups = newValue }
  }

  var fileTreatment = FileTreatment(.untilFirstUnlock, isLeftOutOfBackups: false)

  /// The defaults.
  public init() {}

  package init(log: LogOptions, index: IndexOptions = IndexOptions()) {
    self.log = log
    self.index = index
  }

  /// A segment file's size at which the next one is begun, in bytes; 16 MiB by default.
  package var segmentBytesMax: Int {
    get { Int(log.segmentBytesMax) }
    set { log.segmentBytesMax = .init(newValue) }
  }
}

/// When files can be read on a device with a passcode: the classes of Apple's data protection that suit a store.
public enum FileProtection: Hashable, Sendable, CaseIterable {
  /// From the first unlock after the device has started, also while it is locked
  /// (`FileProtectionType.completeUntilFirstUserAuthentication`).
  case completeUntilFirstUserAuthentication
  /// While the device is unlocked (`FileProtectionType.complete`). While it is locked, calls of the store throw
  /// `.temporarilyUnavailable`, and a sync in the background ends with that.
  case complete
  /// What the folder around the store gives its files: the class is left to the app.
  case inherited

  fileprivate init(_ treatment: FileTreatment.Protection) {
    self =
      switch treatment {
      case .untilFirstUnlock: .completeUntilFirstUserAuthentication
      case .whileUnlocked: .complete
      case .inherited: .inherited
      }
  }

  fileprivate var treatment: FileTreatment.Protection {
    switch self {
    case .completeUntilFirstUserAuthentication: .untilFirstUnlock
    case .complete: .whileUnlocked
    case .inherited: .inherited
    }
  }
}
