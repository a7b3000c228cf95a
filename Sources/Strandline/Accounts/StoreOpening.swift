// How the stores of a folder of accounts are opened; and the copy of what a store has not sent, which outlasts the store.

import StrandlineSystem

/// How each store of a folder of accounts is opened.
struct StoreOpening: Sendable {
  let types: [any SyncRecord.Type]
  let syncing: SyncConfiguration
  let rules: AccountRules
  let durability: Durability
  let options: StoreOptions
  let environment: StoreEnvironment
  let site: CallSite

  /// Opens the store of a name in a folder, which syncs with a database.
  func open(_ folder: AccountFolder, _ name: String, _ database: any CloudDatabase) async throws -> RecordStore {
    var configuration = syncing
    configuration.makeDatabase = { _, _ in database }
    let path = try place(of: name, in: folder)
    let store = try await RecordStore.open(
      at: path, types: types, syncing: configuration, durability: durability, options: options,
      environment: environment, fileID: site.fileID, line: site.line)
    do { try check(store, name, in: folder) } catch {
      _ = try? await store.close()
      throw error
    }
    return store
  }

  /// A store is opened by its path, and the folder of accounts may have been moved since it was opened, and another one may be at the
  /// path: nothing of that is opened, and nothing is made in it.
  private func place(of name: String, in folder: AccountFolder) throws -> String {
    if try folder.kind(of: name) == .absent {
      try folder.makeFolder(name)
      try folder.sync()
    }
    // Its files may be others by now, in the same folder.
    try folder.check()
    let path = folder.path(of: name)
    guard try environment.system.fileSystem.kind(of: path) == .directory,
      try folder.has(environment.system.fileSystem.folder(path), under: name)
    else { throw moved(folder) }
    return path
  }

  /// The same, once the store is open: whatever is decided is decided by this folder's.
  private func check(_ store: RecordStore, _ name: String, in folder: AccountFolder) throws {
    try folder.check()
    guard try folder.has(store.source.folder, under: name) else { throw moved(folder) }
  }

  private func moved(_ folder: AccountFolder) -> StrandlineError {
    StrandlineError(
      .storeReplaced,
      "the folder of accounts '\(folder.path)' was moved or removed, or another one was put there, while this process has it "
        + "open: nothing was written to what is there now; close the accounts, and open them where they are",
      file: folder.path)
  }

  /// Whether the store in a folder has sent everything. There may be no store: its user never opened it.
  func isAllSent(_ folder: AccountFolder, _ name: String) throws -> Bool {
    guard try folder.kind(of: name) != .absent, try !folder.list(name).isEmpty else { return true }
    return try withStore(folder, name, types, options) { store in
      // What another process has left there is not sent either, and no list of pending changes has it.
      try store.requireEmptyInbox()
      return try store.pendingChanges(limit: 1).changes.isEmpty
    }
  }

  /// Copies what the store in one folder has not sent into a store in another one. What a copy of before has left there is removed.
  func copyUnsent(_ folder: AccountFolder, from name: String, to archiveName: String) throws {
    if try folder.kind(of: archiveName) != .absent { try folder.removeContents(of: archiveName) }
    try withStore(folder, name, types, options) { store in
      // It has no types: nothing in it is removed with a parent, or refused by a rule of the app.
      try withStore(folder, archiveName, [], plainOptions) { archive in
        var after = LSN.zero
        while true {
          let page = try store.pendingChanges(after: after)
          for change in page.changes { try copy(change, of: store, to: archive) }
          guard let next = page.next else { return }
          after = next
        }
      }
    }
    try folder.sync()
  }

  private func copy(_ change: PendingChange, of store: RecordStore, to archive: RecordStore) throws {
    let type = try store.projections.entry(change.id)?.type ?? ""
    let shown = try store.record(change.id)
    var record = Record(type: type, id: change.id, fields: shown?.fields ?? [:])
    record.parent = shown?.parent
    // It may have what only a server gives.
    try archive.writeBlocking { tx in try tx.save(record, isVerbatim: true, creating: true) }
    if shown == nil { try archive.writeBlocking { tx in try tx.delete(change.id) } }
  }

  private func withStore<Value>(
    _ folder: AccountFolder, _ name: String, _ types: [any SyncRecord.Type], _ options: StoreOptions,
    _ body: (RecordStore) throws -> Value
  ) throws -> Value {
    let store = try RecordStore.openBlocking(
      at: try place(of: name, in: folder), types: types, options: options, environment: environment,
      fileID: site.fileID, line: site.line)
    let value: Value
    do {
      try check(store, name, in: folder)
      value = try body(store)
    } catch {
      // What failed is told; that the store could not be closed after it says nothing more.
      _ = try? store.closeBlocking()
      throw error
    }
    try store.closeBlocking()
    return value
  }

  /// The app's options for files, without what it declares of records.
  private var plainOptions: StoreOptions {
    var plain = options
    plain.declared = Declarations()
    plain.indexes = nil
    return plain
  }
}
