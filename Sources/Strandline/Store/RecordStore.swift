// A store: one directory, one account, one writer. Opening it, closing it, and what it is.
//
// The log is the storage. Opening replays it into the projections; a write appends to it; a read is one look into
// the record table and one checked read of the log. Follow one write: RecordStore+Writing, WriteTransaction,
// StoreCore, then Log in the module below.

package import StrandlineLog
package import StrandlineSystem
package import Synchronization

/// A store of records, on disk, synced if you ask for it.
///
/// Safe to use from every task and thread. Readers see what is durable; closures of `write` see what was written
/// before them.
public final class RecordStore: Sendable {
  /// Where it lies.
  public let path: String
  package let source: EventSource
  package let environment: SystemEnvironment
  package let core: Mutex<StoreCore>
  package let settledWaiters = SettledWaiters()
  /// Who syncs this store, if anybody; set before anybody else sees the store.
  package let driver: Mutex<(any SyncDriver)?> = Mutex(nil)

  init(path: String, source: EventSource, environment: SystemEnvironment, projections: Projections) {
    self.path = path
    self.source = source
    self.environment = environment
    self.core = Mutex(StoreCore(projections: projections, source: source, environment: environment))
  }

  /// Opens the store at `path` for reading and writing, creating it if nothing (or an empty folder) is there, on a plain
  /// thread and without a sync engine. See `open(at:syncing:)` for what it promises.
  public static func openBlocking(
    at path: String, options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real,
    createIfAbsent: Bool = true
  ) throws -> RecordStore {
    do {
      var projections = Projections()
      let log = try Log.open(
        at: path, role: .store, options: environment.adapted(options.log), environment: environment.system,
        createIfAbsent: createIfAbsent
      ) { found in
        projections.apply(try EventSource.decode(found), at: LSN(found.lsn), isDurable: true)
      }
      projections.advance(to: LSN(log.durableLSN))
      return RecordStore(path: path, source: .writer(log), environment: environment.system, projections: projections)
    } catch { throw StrandlineError.translating(error, "cannot open the store at '\(path)'") }
  }

  /// Opens the store for reading only: takes no lock, changes no byte, and works while another process writes.
  ///
  /// It shows what was promised durable when it was opened: at most a fifth of a second old then.
  public static func openReadOnly(at path: String, environment: StoreEnvironment = .real) throws -> RecordStore {
    do {
      let reader = try LogReader.open(at: path, role: .store, environment: environment.system)
      var projections = Projections()
      try reader.poll { found in
        projections.apply(try EventSource.decode(found), at: LSN(found.lsn), isDurable: true)
      }
      projections.advance(to: LSN(reader.lastLSN))
      return RecordStore(
        path: path, source: .reader(reader), environment: environment.system, projections: projections)
    } catch { throw StrandlineError.translating(error, "cannot read the store at '\(path)'") }
  }

  /// What an open found: frames read, bytes set aside, time.
  package var recovery: RecoveryReport {
    switch source {
    case .writer(let log): log.recovery
    case .reader(let reader): reader.recovery
    }
  }

  /// The newest durable event.
  public var durableLSN: LSN { source.durableLSN }

  /// Ends the store: stops the engine, makes durable what is queued, gives the lock back. Harmless when repeated.
  ///
  /// - Throws: `StrandlineError` if the last sync failed; the store is closed all the same.
  public func close() async throws {
    let driver = driver.withLock { driver in
      defer { driver = nil }
      return driver
    }
    await driver?.stop()
    try closeBlocking()
  }

  /// The same for a plain thread, for a store without an engine.
  public func closeBlocking() throws {
    settledWaiters.close()
    guard case .writer(let log) = source else { return }
    do { try log.close() } catch { throw StrandlineError.translating(error, "closing the store at '\(path)'") }
  }
}

/// Who syncs a store: the engine, one floor above.
package protocol SyncDriver: Sendable {
  /// Something was written here.
  func noteLocalWrite()
  /// Ends it; nothing of it runs when this returns.
  func stop() async
}

/// Sizes and habits of a store's log.
public struct StoreOptions: Sendable {
  package var log = LogOptions()

  /// The defaults serve.
  public init() {}

  package init(log: LogOptions) { self.log = log }

  /// A segment file's size at which the next one is begun, in bytes; 16 MiB by default.
  public var segmentBytesMax: Int {
    get { Int(log.segmentBytesMax) }
    set { log.segmentBytesMax = .init(newValue) }
  }
}
