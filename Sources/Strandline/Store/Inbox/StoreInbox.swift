// Writing for a store that another process has open: what an app's extension does.
//
// A call opens the inbox, which locks it, and the store for reading; does its transaction in memory, over the store and what
// the inbox holds already; appends what became of the records; and closes both. Nothing is open between two calls, so the
// system may stop the process at any time.

import StrandlineLog
import StrandlineSystem

/// What another process than the app leaves for a store: a share extension, a widget, an intent.
///
/// The app has its store open and is its one writer. An extension writes to the store's inbox, whether the app runs or not:
///
/// ```swift
/// let inbox = try RecordStore.inbox(at: path, types: [Note.self])
/// try inbox.write { try $0.save(Note(title: "Shared")) }
/// ```
///
/// The app's store takes in what is there when it is opened or resumed, and when the app calls ``RecordStore/refresh()``,
/// which the extension may ask it for by a Darwin notification. Both processes need the store's folder: an app group on iOS.
///
/// A value of it is a place, and holds nothing open.
public struct StoreInbox: Sendable {
  /// Where the store lies.
  public let path: String
  private let environment: SystemEnvironment
  private let declared: Declarations

  fileprivate init(path: String, environment: SystemEnvironment, declared: Declarations) {
    self.path = path
    self.environment = environment
    self.declared = declared
  }

  /// Leaves one transaction for the store.
  ///
  /// The closure does what one of ``RecordStore``'s `write` does, and sees the store with all that was left for it before. What it
  /// saved, edited and deleted is durable when this returns, and the store takes it in whole: as changes of its own, at the time
  /// at which they were made here. A record that the app has changed meanwhile is merged as after an edit on two devices: fields
  /// that one side alone has changed have that change, and others go by ``ConflictRules``, by default to the later one. An edit
  /// that loses is in `RecordStore.conflicts(of:)`.
  ///
  /// A transaction that cannot be taken in, because one of its records was deleted meanwhile or created under the same name, is in
  /// ``RecordStore/inboxRefusals()`` until the app has decided about it.
  ///
  /// The call blocks its thread, for some milliseconds if the disk is idle.
  ///
  /// - Returns: what the closure returns.
  /// - Throws: what the closure throws; then nothing was left. `StrandlineError`: `.noSuchStore` (the app makes the store),
  ///   `.storeHeld` if another process kept the inbox open for two seconds, `.diskFull`, `.outcomeUnknown`, `.tooLarge` (a
  ///   transaction has at most 64 MiB), `.damaged` and `.io` if the store or the inbox cannot be read, `.notAStore` if the
  ///   inbox is that of another store, `.misuse` in the closure of another call for the same inbox, `.storeReplaced` if the
  ///   store was moved during the call. Nothing was left then, and the next call opens the store that is at the path.
  /// - Complexity: that of ``RecordStore/openReadOnly(at:environment:)``, and O(what the inbox holds).
  @discardableResult
  public func write<Value>(
    fileID: String = #fileID, line: Int = #line, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> Value {
    let site = CallSite(fileID, line)
    return try site.run("writing to the inbox of the store at '\(path)'") {
      let turn = try OpenInboxes.begin(path, WriterCall("write", site), environment)
      defer { OpenInboxes.end(turn) }
      // Before anything is made in a folder that is no store.
      let folder = try LogReader.folder(of: path, environment: environment)
      let inbox = try opened(in: folder)
      let result = Result { try write(to: inbox, site, body) }
      // What was appended is durable, and an error would have the caller leave it twice; the next open clears up.
      _ = Result { try inbox.close() }
      return try result.get()
    }
  }

  /// Opens the inbox of the store in a folder.
  private func opened(in folder: any Folder) throws -> InboxLog {
    let lock = try folder.identity(of: LogFormat.lockName)
    do {
      return try InboxLog(ofStoreIn: folder, environment, createIfAbsent: true) { throw Self.moved(path) }
    } catch {
      // A name that is missing says only that, also where the store was moved or removed meanwhile.
      let cause = error as? SystemError ?? (error as? LogError)?.underlying
      guard cause?.isAbsent == true, try !isAtItsPath(folder, lock) else { throw error }
      throw Self.moved(path)
    }
  }

  /// Whether the path leads to a folder still, and to the store in it.
  private func isAtItsPath(_ folder: any Folder, _ lock: FileIdentity?) throws -> Bool {
    guard let here = try? LogReader.folder(of: path, environment: environment) else { return false }
    guard let lock, let lockHere = try here.identity(of: LogFormat.lockName) else { return false }
    return try folder.has(here, under: ".") && lockHere.isSame(as: lock)
  }

  private static func moved(_ path: String) -> LogError {
    LogError(
      .replaced,
      "the store at '\(path)' was moved, or another one was put there, during this call: nothing was left for it; write again",
      file: path)
  }

  private func write<Value>(
    to inbox: InboxLog, _ site: CallSite, _ body: (inout WriteTransaction) throws -> Value
  ) throws -> Value {
    // The call holds the inbox's lock: the app's store reads nothing of the inbox until this call has ended.
    let store = try RecordStore.openReadOnlyBlocking(at: path, environment: StoreEnvironment(environment))
    guard try store.source.folder.has(inbox.folder, under: RecordStore.inboxFolderName) else { throw Self.moved(path) }
    // What is rehearsed is nowhere but in memory, so no table can be made again meanwhile.
    store.projections.onFailure { _ throws(StrandlineError) in
      throw StrandlineError(
        .io,
        "a sorted table of the store cannot be read, and the app's store makes it again when it meets that: open the app"
      )
    }
    let uuid = inbox.uuid
    let position = store.projections.sync.inbox.positions[uuid] ?? .zero
    let earlier = try inbox.transactions(after: position).map {
      try inbox.changes($0, for: store.source.storeUUID).map(\.change)
    }
    let declared = declared
    // Set in the lock and not returned from it, as in `RecordStore.enqueue`.
    var value: Value?
    do {
      let changes = try store.core.withLock(for: WriterCall("write", site)) { core in
        core.declared = declared
        return try core.rehearse(after: earlier) { core in
          var transaction = WriteTransaction(core: core, of: store)
          do {
            value = try body(&transaction)
            try transaction.join()
          } catch {
            core = transaction.finish()
            throw error
          }
          core = transaction.finish()
        }
      }
      if !changes.isEmpty { try inbox.append(changes, after: position) }
    } catch {
      // What was read and saved of versions is not what the store will have.
      store.core.withLock { $0.versions.undo(after: store.source.durableLSN) }
      throw error
    }
    store.core.withLock { $0.versions.settle(through: $0.projections.appliedLSN) }
    guard let value else { preconditionFailure("a transaction was left whose closure did not run") }
    return value
  }
}

/// The calls of this process that have an inbox open. A call from the closure of one would wait for that one's lock in vain.
private enum OpenInboxes {
  struct Turn: Sendable {
    var thread: UInt
    var path: String
    var call: WriterCall
  }
  private static let turns = OrderedMutex<[Turn]>([])

  /// - Throws: `.misuse` if this thread has the inbox open.
  static func begin(_ path: String, _ call: WriterCall, _ environment: SystemEnvironment) throws -> Turn {
    let turn = Turn(thread: CurrentThread.id, path: try environment.fileSystem.absolutePath(path), call: call)
    let outer = turns.withLock { turns in
      let outer = turns.first { $0.thread == turn.thread && $0.path.equalsUTF8(turn.path) }
      if outer == nil { turns.append(turn) }
      return outer
    }
    if let outer { throw outer.call.refusing(call.name, "use its transaction") }
    return turn
  }

  static func end(_ turn: Turn) {
    turns.withLock { turns in turns.removeAll { $0.thread == turn.thread && $0.path.equalsUTF8(turn.path) } }
  }
}

extension RecordStore {
  /// The inbox of the store at `path`, for a process that writes while another one has the store open.
  ///
  /// Reads and changes nothing yet.
  ///
  /// - Parameters:
  ///   - path: the store's folder, the same that the app opens.
  ///   - types: the types whose ``SyncRecord/schema`` is to hold, as the app gives them to `open`.
  ///   - options: what the app declares of its records, as it gives it to `open`; the rest of it is not used.
  ///   - environment: disk, clock and random source; the machine's own by default.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError.invalidName` and `.invalidValue` for a schema that `open` would refuse.
  public static func inbox(
    at path: String, types: [any SyncRecord.Type] = [], options: StoreOptions = StoreOptions(),
    environment: StoreEnvironment = .real, fileID: String = #fileID, line: Int = #line
  ) throws -> StoreInbox {
    try CallSite(fileID, line).run("cannot write to the inbox of the store at '\(path)'") {
      let options = try options.declaring(types)
      if let defect = options.schema.defect { throw StrandlineError(.invalidName, defect) }
      return StoreInbox(path: path, environment: environment.system, declared: options.declared)
    }
  }
}
