// The inbox of a store: a log of its own in the store's folder, to which other processes append, and which the store empties.
//
// A call opens the inbox, and closes it before it returns. The process that has it open holds its lock, and no other one appends
// or removes. An open syncs what it finds, so all that a call reads is durable. The inbox lies in the store's folder, so that
// whoever moves or removes the store does so with the inbox.

import StrandlineLog
import StrandlineSystem
import Synchronization

/// An inbox that is open, and locked.
struct InboxLog {
  /// How long a call waits for another process that has it open.
  static let lockWaitMilliseconds: Int64 = 2_000
  /// The most events with which `fill` bridges a gap, where an older copy of the inbox was put back. No store reads as many at
  /// once.
  private static let gapMax: UInt64 = 1 << 20

  private let log: Log
  /// The events of each transaction, in order.
  private let transactions: [ClosedRange<UInt64>]
  private let path: String

  /// Opens the inbox of a store.
  ///
  /// A log is opened by its path, and another store may have come to that path. The inbox of such a store is not opened.
  ///
  /// - Parameters:
  ///   - folder: the store's.
  ///   - check: throws if the store is not at its path. It runs if the path leads to a folder with another number than the inbox
  ///     in `folder`. Some drives change these numbers, so this check decides.
  /// - Throws: `LogError`, `.held` if another process has it open.
  init(
    ofStoreIn folder: any Folder, _ environment: SystemEnvironment, createIfAbsent: Bool, check: () throws -> Void
  ) throws {
    let options = LogOptions(
      segmentBytesMax: 1 << 20, preallocationFirstStepBytes: 64 << 10, preallocationStepBytesMax: 1 << 20,
      lockWaitMilliseconds: Self.lockWaitMilliseconds, controlIntervalMilliseconds: nil, ballastBytes: 0,
      upkeep: .onDemand)
    var found: [ClosedRange<UInt64>] = []
    var first: UInt64?
    let name = RecordStore.inboxFolderName
    path = folder.path(of: name)
    // In the store's own folder: by the path it might be made in another store's.
    if createIfAbsent, try folder.kind(of: name) == .absent {
      do throws(SystemError) {
        try folder.makeFolder(name)
      } catch {
        // Another process has made it.
        guard error.isTaken else { throw error }
      }
    }
    if try folder.kind(of: name) == .directory {
      if try environment.fileSystem.kind(of: path) != .directory { try check() }
      try Self.require(environment.fileSystem.folder(path), in: folder, check)
    }
    log = try Log.open(
      at: path, role: .inbox, options: options, environment: environment, createIfAbsent: createIfAbsent
    ) { event in
      let begin = first ?? event.lsn
      first = event.isLast ? nil : begin
      if event.isLast { found.append(begin...event.lsn) }
    }
    transactions = found
    do { try Self.require(log.folder, in: folder, check) } catch {
      _ = Result { try log.close() }
      throw error
    }
  }

  /// Refuses a folder that is not the inbox in the store's folder, if `check` does.
  private static func require(_ found: any Folder, in folder: any Folder, _ check: () throws -> Void) throws {
    if try !folder.has(found, under: RecordStore.inboxFolderName) { try check() }
  }

  /// The folder of the inbox, which stays the same one wherever it is moved.
  var folder: any Folder { log.folder }

  /// The UUID of its log.
  var uuid: [UInt8] { log.storeUUID }

  /// The last event that it has had.
  var end: LSN { LSN(log.durableLSN) }

  /// Whether nothing is in it: what was left is taken in and removed.
  var isEmpty: Bool { transactions.isEmpty }

  /// Its transactions after a position, in order.
  func transactions(after position: LSN) -> [ClosedRange<UInt64>] {
    transactions.filter { $0.upperBound > position.rawValue }
  }

  /// The changes of one transaction, and their bytes.
  ///
  /// - Parameter storeUUID: the store for which they must be.
  func changes(_ lsns: ClosedRange<UInt64>, for storeUUID: [UInt8]) throws -> [(change: InboxChange, body: [UInt8])] {
    var changes: [(InboxChange, [UInt8])] = []
    for lsn in lsns {
      let found = try log.read(lsn)
      switch try found.decoded() {
      case .inboxChange(let change):
        guard change.storeUUID == storeUUID else {
          throw StrandlineError(
            .notAStore,
            "event \(lsn) of the inbox '\(path)' was left for another store; nothing of it was taken in or removed; move the "
              + "folder back into the store that it comes from, or remove it", file: path)
        }
        changes.append((change, found.body))
      case .inboxRead: break
      case let event:
        throw StrandlineError(
          .damaged, "event \(lsn) of the inbox '\(path)' is a '\(event.kindName)', which no process leaves there",
          file: path)
      }
    }
    return changes
  }

  /// Appends a transaction; it is durable when this returns.
  ///
  /// - Parameter position: how far the store has read this inbox.
  func append(_ changes: [InboxChange], after position: LSN) throws {
    if position > end { try fill(upTo: position) }
    try append(changes.map { .inboxChange($0) })
  }

  private func append(_ events: [Event]) throws {
    try log.waitUntilDurableBlocking(log.append(EventCodec.transaction(events)).upperBound)
  }

  /// An older copy of the inbox was put back: what is appended must not get the LSNs of what the store has read.
  private func fill(upTo position: LSN) throws {
    let missing = position.rawValue - end.rawValue
    guard missing <= Self.gapMax else {
      throw StrandlineError(
        .damaged, "the store has read event \(position) of the inbox '\(path)', which ends with event \(end)",
        file: path)
    }
    let read = Event.inboxRead(InboxRead(inbox: uuid, position: position))
    try append(Array(repeating: read, count: Int(missing)))
  }

  /// Removes what the store has read, and holds durably.
  func removeAll(through position: LSN) throws {
    guard let first = transactions.first, first.lowerBound <= position.rawValue else { return }
    try log.finishSegment()
    try log.compact { events in
      (events.last?.lsn ?? 0) > position.rawValue ? events.map(LogSurvivor.init) : []
    }
  }

  /// Gives the lock back.
  func close() throws { try log.close() }
}

extension RecordStore {
  /// The inbox's folder in the store's.
  package static let inboxFolderName = "inbox"

  /// What the inbox holds that the store has not read, and what the store has refused; nil if nothing was ever left. Takes no lock.
  func inboxStatus(_ sync: SyncState) throws -> StoreStatus.Inbox? {
    guard try hasInbox || !sync.inbox.refusals.isEmpty else { return nil }
    var status = StoreStatus.Inbox(transactions: 0, bytes: 0, refusals: [], failure: nil)
    status.refusals = try refusals(sync).map { refusal in
      StoreStatus.Inbox.Refusal(
        lsn: refusal.lsn, ids: refusal.changes.map(\.id), code: refusal.code, message: refusal.message)
    }
    do {
      let reader = try LogReader.open(
        at: source.folder.path(of: Self.inboxFolderName), role: .inbox, environment: environment)
      guard try source.folder.has(reader.folder, under: Self.inboxFolderName) else {
        throw LogError(.replaced, "another store is at '\(source.folder.path)', and its inbox was not read")
      }
      let position = sync.inbox.positions[reader.storeUUID] ?? .zero
      try reader.poll { event in
        guard event.lsn > position.rawValue else { return }
        status.bytes += UInt64(event.body.count)
        if event.isLast { status.transactions += 1 }
      }
    } catch {
      let isEmpty = (error as? LogError)?.code == .absent
      let error = StrandlineError.translating(error, "reading the inbox")
      // Who made the folder may have left nothing in it.
      if !isEmpty { status.failure = (error as? StrandlineError)?.message ?? "\(error)" }
    }
    if let failure = core.inbox.failure.withLock({ $0 }) { status.failure = failure }
    return status
  }
}
