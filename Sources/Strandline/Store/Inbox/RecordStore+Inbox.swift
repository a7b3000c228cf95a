// The store reads its inbox: what other processes have left there becomes mutations of its own.
//
// One transaction of the inbox becomes one of the store, with the position up to which the inbox was read. Before the store has
// all of it durably, nothing leaves the inbox. A crash in between leaves a position that says what was read; so nothing is
// lost, and nothing is made twice. A transaction that cannot be taken in is kept in the store's log, and the app decides.

public import Foundation
import StrandlineLog
import StrandlineSystem

/// The reading of an inbox.
struct InboxReading: ~Copyable, Sendable {
  /// Held as long as a thread reads it; taken before the writer's state.
  let turn = OrderedMutex<Void>(.inbox, ())
  /// Why the last reading has failed; nil if it has not.
  let failure = OrderedMutex<String?>(nil)
}

extension RecordStore {
  /// Whether another process has ever left anything.
  var hasInbox: Bool { get throws { try source.folder.kind(of: Self.inboxFolderName) == .directory } }

  /// Reads the inbox where the call that does so is about something else, and remembers a failure for the status.
  func tryInbox() { _ = try? readInbox() }

  /// Reads the inbox at the end of an open.
  ///
  /// - Throws: `StrandlineError.temporarilyUnavailable` as any part of an open on a locked device. Another failure is in the
  ///   status: a store whose inbox is damaged can be used.
  func readInboxOfOpen() throws {
    do {
      _ = try readInbox()
    } catch let error as StrandlineError where error.code == .temporarilyUnavailable {
      throw error
    } catch {}
  }

  /// Takes in what other processes have left. What they leave meanwhile may stay for the next time, and so does all of it while
  /// one of them has the inbox open.
  ///
  /// - Returns: whether anything was there.
  func readInbox() throws -> Bool {
    guard case .writer(let log) = source else { return false }
    // The look comes first: where nothing was ever left, a call in a closure of the store has nothing to wait for.
    let isThere = Result { try hasInbox }
    if case .success(false) = isThere { return false }
    try core.requireFree(for: "refresh", instead: "call it when that has returned")
    return try core.inbox.turn.withLock { _ in
      do {
        let isNew = try isThere.get() && readInbox(log)
        core.inbox.failure.withLock { $0 = nil }
        return isNew
      } catch {
        let error = StrandlineError.translating(error, "reading the inbox of the store at '\(path)'")
        let message = (error as? StrandlineError)?.message ?? "\(error)"
        core.inbox.failure.withLock { $0 = message }
        throw error
      }
    }
  }

  /// For a caller that is about to remove the store: takes in everything that other processes have left.
  ///
  /// - Throws: `.storeHeld` while another process writes there; what reading it throws; `.misuse` as long as a change that could not
  ///   be taken in waits for the app's decision.
  func requireEmptyInbox() throws {
    guard case .writer(let log) = source, try hasInbox else { return }
    try core.inbox.turn.withLock { _ in _ = try readInbox(log, waitsForWriters: true) }
    let refused = projections.withLock { $0.sync.inbox.refusals.count }
    guard refused == 0 else {
      throw StrandlineError(
        .misuse,
        "\(refused) change(s) that another process has left for the store at '\(path)' could not be taken in, and wait for a "
          + "decision: open the store, and end them")
    }
  }

  /// - Parameter waitsForWriters: throws `.storeHeld` where another process has the inbox open, instead of reading it another time.
  private func readInbox(_ log: Log, waitsForWriters: Bool = false) throws -> Bool {
    let inbox: InboxLog
    do {
      inbox = try InboxLog(ofStoreIn: log.folder, environment, createIfAbsent: false) { try log.checkPlace() }
    } catch let error as LogError where error.code == .absent || error.code == .held && !waitsForWriters {
      return false
    }
    let result = Result { try takeIn(inbox, log) }
    // What was appended to it is durable; a close that fails says so again at the next open.
    let closed = Result { try inbox.close() }
    let isNew = try result.get()
    try closed.get()
    if isNew { driver.withLock { $0 }?.localWriteEnded() }
    return isNew
  }

  private func takeIn(_ inbox: InboxLog, _ log: Log) throws -> Bool {
    if inbox.isEmpty { return false }
    let uuid = inbox.uuid
    let position = core.withLock { $0.projections.sync.inbox.positions[uuid] ?? .zero }
    let unread = inbox.transactions(after: position)
    var last: QueuePlace?
    for lsns in unread {
      let changes = try inbox.changes(lsns, for: log.storeUUID)
      last = try takeIn(changes, InboxRead(inbox: uuid, position: LSN(lsns.upperBound)))
    }
    if let last { try waitUntilDurableBlocking(last) }
    // Also what an earlier reading has taken in and not removed. A store that is written in order alone may lose it yet.
    try log.flushBlocking()
    try inbox.removeAll(through: unread.last.map { LSN($0.upperBound) } ?? position)
    settledWaiters.resumeSettled(in: self)
    return !unread.isEmpty
  }

  /// Queues one transaction of the inbox, whole or as one that was refused.
  private func takeIn(_ changes: [(change: InboxChange, body: [UInt8])], _ read: InboxRead) throws -> QueuePlace {
    do {
      return try transact { core in
        try core.takeIn(changes.map(\.change))
        try core.append(.inboxRead(read))
      }.place
    } catch let error as StrandlineError where error.isOfInboxChange {
      return try transact { core in
        try core.append(
          .inboxRefused(
            InboxRefused(
              code: error.code.rawValue, words: error.message,
              wallMilliseconds: core.environment.clock.wallMilliseconds(), changes: changes.map(\.body))))
        try core.append(.inboxRead(read))
      }.place
    }
  }
}

// MARK: What was refused

/// A transaction that another process has left in the inbox and that the store could not take in, such as a save of a record
/// that was deleted meanwhile. Nothing of it is in the records, and all of it is in the log until the app has decided.
public struct InboxRefusal: Hashable, Sendable {
  /// One of its changes.
  public enum Change: Hashable, Sendable {
    /// A record that was to begin, with all its fields.
    case save(Record)
    /// A record that was to be changed: the fields that were written, as they were to be.
    case edit(Record)
    /// A record that was to be deleted.
    case delete(RecordID)

    /// The record's identity.
    public var id: RecordID {
      switch self {
      case .save(let record), .edit(let record): record.id
      case .delete(let id): id
      }
    }
  }
  /// The event that keeps it.
  public let lsn: LSN
  /// Why it was refused.
  public let code: StrandlineError.Code
  /// The same in words, which name the record.
  public let message: String
  /// When the store refused it.
  public var date: Date { Date(milliseconds: milliseconds) }
  private let milliseconds: Int64
  /// What it was to change, in order.
  public let changes: [Change]
}

extension InboxRefusal {
  fileprivate init(_ event: InboxRefused, _ changes: [Change], at lsn: LSN) {
    self.lsn = lsn
    code = StrandlineError.Code(rawValue: event.code)
    message = event.words
    milliseconds = event.wallMilliseconds
    self.changes = changes
  }
}

extension InboxRefusal.Change {
  fileprivate init(_ change: InboxChange) {
    var record = Record(type: change.type, id: change.id)
    for field in change.fields {
      if field.name == Version.parentField {
        if case .reference(let reference)? = field.after { record.parent = reference.name }
        continue
      }
      record[field.name] = field.after
      if field.after == nil { record.nulls.insert(field.name) }
    }
    self =
      switch change.operation {
      case .save, .create: .save(record)
      case .edit: .edit(record)
      case .delete: .delete(change.id)
      }
  }
}

extension RecordStore {
  /// The transactions of the inbox that the store could not take in and about which the app has not decided, the oldest first.
  ///
  /// To bring back what was saved, create it again in the transaction that ends the refusal:
  ///
  /// ```swift
  /// for refusal in try store.inboxRefusals() {
  ///   try await store.write { tx in
  ///     for case .save(let record) in refusal.changes { try tx.create(record) }
  ///     try tx.end(refusal)
  ///   }
  /// }
  /// ```
  ///
  /// - Throws: `StrandlineError`: `.damaged`, `.io`, `.closed`.
  /// - Complexity: one read of the log a refusal.
  public func inboxRefusals() throws -> [InboxRefusal] {
    try CallSite.unnamed.run("reading what the store at '\(path)' refused of its inbox") {
      try requireOpen()
      let durable = source.durableLSN
      return try refusals(projections.withLock { $0.sync(asOf: durable) })
    }
  }

  func refusals(_ sync: SyncState) throws -> [InboxRefusal] {
    try sync.inbox.refusals.sorted().compactMap { lsn in
      guard case .inboxRefused(let event)? = try source.eventIfKept(at: lsn) else { return nil }
      let changes = try event.changes.compactMap { body -> InboxRefusal.Change? in
        guard case .inboxChange(let change) = try EventCodec.decode(body) else { return nil }
        return InboxRefusal.Change(change)
      }
      return InboxRefusal(event, changes, at: lsn)
    }
  }
}

extension WriteTransaction {
  /// Ends a refusal of the inbox: the app has decided what becomes of it, in this transaction or before. Nothing is kept of it.
  ///
  /// - Throws: `StrandlineError.noSuchRecord` if it has ended already.
  public mutating func end(_ refusal: InboxRefusal, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("ending the refusal of event \(refusal.lsn)") {
      guard core.projections.sync.inbox.refusals.contains(refusal.lsn) else {
        throw StrandlineError(.noSuchRecord, "no refusal of the inbox is open under event \(refusal.lsn)")
      }
      try core.append(.inboxRefusalEnded(InboxRefusalEnded(lsn: refusal.lsn)))
    }
  }
}
