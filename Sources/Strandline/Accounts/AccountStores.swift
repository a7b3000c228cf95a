// A folder of stores, one a user: which one is open, and what a sign-in, a sign-out and a removal do.
//
// Three things keep one user's records from another's. A store's folder is its user's for ever (AccountList). A store syncs through a
// database that sends nothing while another user is signed in (AccountDatabase, `CloudDatabase.restricted`). And its log is
// bound to the user since its first sync (SyncPlan). Each of them alone is enough.

import Dispatch
import StrandlineSystem

/// The stores of all users of an app on this device, of which the one is open that is the signed-in user's.
///
/// ```swift
/// let accounts = try await AccountStores.open(at: folder, syncing: cloud)
/// _ = try await accounts.accountMayHaveChanged()
/// let store = accounts.store
/// ```
///
/// A user's unsent work stays in the user's store while another one is signed in, and goes up when the user is back. Nothing is
/// removed but by the app's word: ``SignOutRule/removes``, or `remove(_:)`.
///
/// The folder is reached as it was opened. If it is moved, removed or replaced meanwhile, calls that change something throw
/// `.storeReplaced` (<doc:Accounts>).
///
/// Safe to use from every task. Calls that change who is shown run one after the other.
public final class AccountStores: Sendable {
  /// The folder.
  public let path: String
  /// The database of whoever is signed in.
  package let database: any CloudDatabase
  private let folder: AccountFolder
  private let opening: StoreOpening
  private let state: OrderedMutex<AccountState>
  private let turns = AccountTurns()

  private init(_ folder: AccountFolder, _ list: AccountList, _ opening: StoreOpening) throws {
    self.folder = folder
    self.opening = opening
    path = folder.path
    database = try opening.syncing.makeDatabase(folder.path, opening.environment)
    state = OrderedMutex(AccountState(list: list))
  }

  /// Opens a folder of accounts, which is made if nothing is there, and in it the store of the user who was signed in last. That needs no
  /// network, and nothing is asked of the server. Before anybody was known, a store without an account opens; nothing is ever
  /// asked of the server for that one.
  ///
  /// What a crash has left of a sign-out or a removal is finished first; `unfinished` says if that fails.
  ///
  /// - Parameters:
  ///   - path: the folder. It holds nothing else.
  ///   - types: as for `RecordStore.open`.
  ///   - syncing: the cloud of all users. On the web the session of the signed-in user is kept in this folder.
  ///   - rules: what becomes of stores at a sign-out, and of what was written before anybody was known.
  ///   - durability: as for `RecordStore.open`.
  ///   - options: as for `RecordStore.open`; every store of the folder has them.
  ///   - environment: as for `RecordStore.open`.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Throws: `StrandlineError`: `.storeHeld` while the accounts are open elsewhere, `.notAStore` if the folder holds other
  ///   files, `.damaged` and `.fromTheFuture` of the list of accounts, `.storeReplaced` if the folder was moved during the call, and what
  ///   `RecordStore.open` throws.
  /// - Complexity: O(accounts), and as `RecordStore.open` for one store.
  public static func open(
    at path: String, types: [any SyncRecord.Type] = [], syncing: SyncConfiguration,
    rules: AccountRules = AccountRules(), durability: Durability = .durable, options: StoreOptions = StoreOptions(),
    environment: StoreEnvironment = .real, fileID: String = #fileID, line: Int = #line
  ) async throws -> AccountStores {
    let site = CallSite(fileID, line)
    let stores = try site.run("cannot open the accounts at '\(path)'") {
      let folder = try held(at: path, environment.system.fileSystem)
      let opening = StoreOpening(
        types: types, syncing: syncing, rules: rules, durability: durability, options: options,
        environment: StoreEnvironment(in: folder, environment), site: site)
      return try AccountStores(folder, try AccountList.load(from: folder), opening)
    }
    try await site.run("cannot open the accounts at '\(path)'") {
      try await stores.turns.run {
        try await stores.explaining {
          await stores.finish()
          try await stores.openShown()
        }
      }
    }
    return stores
  }

  /// Opens the folder and takes its lock: two lists in memory would give one number to two users.
  private static func held(at path: String, _ fileSystem: any FileSystem) throws -> AccountFolder {
    let folder = try folder(at: path, fileSystem)
    guard let lock = try folder.lock(AccountList.lockName, exclusive: true) else {
      throw StrandlineError(
        .storeHeld,
        "the accounts at '\(path)' are open in another process, or in another part of this one; close them there",
        file: path)
    }
    return try AccountFolder(folder, lock, fileSystem)
  }

  /// Opens the folder, and makes it durable if nothing was there.
  private static func folder(at path: String, _ fileSystem: any FileSystem) throws -> any Folder {
    let path = try fileSystem.absolutePath(path)
    switch try fileSystem.kind(of: path) {
    case .directory: break
    case .absent:
      try fileSystem.makeDirectory(path)
      let slash = path.lastIndex(of: "/") ?? path.startIndex
      try fileSystem.folder(slash == path.startIndex ? "/" : String(path[..<slash])).sync()
    case .file, .other: throw StrandlineError(.notAStore, "'\(path)' is not a folder", file: path)
    }
    return try fileSystem.folder(path)
  }

  // MARK: The stores

  /// The store of the user who is signed in, or was last; of nobody, before anybody was known. Nil where a rule has closed or removed
  /// it, and after a call that failed to open it.
  ///
  /// It is another object when another user has signed in, and the one of before is closed. It stays the same one over a sign-out that
  /// keeps it open, and when the first user takes it over.
  public var store: RecordStore? { state.withLock { $0.open?.store } }

  /// The user whose store is shown; nil before anybody was known, and after the removal of the store.
  public var account: StoredAccount? {
    state.withLock { state in state.list.shown.flatMap { $0.userBytes == nil ? nil : described($0) } }
  }

  /// Whether the user of the store is signed in, as far as the app was told. A session that has ended is no sign-out:
  /// `SyncStatus` asks for a new one.
  public var isSignedIn: Bool { state.withLock { $0.list.signIn == .yes } }

  /// All stores of the folder, in the order in which they began: also the one of before anybody was known, archives, and one whose
  /// removal has failed (`unfinished`).
  public var accounts: [StoredAccount] {
    state.withLock { $0.list.entries.filter { $0.fate != .filling }.map(described) }
  }

  /// Why a sign-out or a removal that was begun is not finished; nil if none is. The next call that changes something, and the next
  /// open, try it again.
  public var unfinished: StrandlineError? { state.withLock { $0.unfinished } }

  private func described(_ entry: AccountList.Entry) -> StoredAccount {
    StoredAccount(
      number: entry.number, user: entry.userName, path: folder.path(of: entry.folderName),
      isArchive: entry.fate == .archive)
  }

  // MARK: Changes

  /// Asks the cloud who is signed in, and opens that user's store. Call it at the start, when the system says that the account may have
  /// changed (`CKAccountChanged`), and when `SyncStatus` says that a store belongs to another account.
  ///
  /// If the cloud knows that nobody is signed in (`CloudError.Code.noAccount`), this is a sign-out. If the web asks for a sign-in,
  /// this throws `.needsSignIn`, and no store changes; nor does one if the cloud cannot be reached.
  ///
  /// - Returns: the store that is open then; which user's it is, is durable.
  /// - Throws: `StrandlineError`: `.needsSignIn`, `.unreachable`, `.throttled`, `.serverRefused`; what `RecordStore.open` throws, of the store
  ///   that was to open, and `RecordStore.close`, of the one before; `.storeReplaced` if the folder of accounts was moved, removed or
  ///   replaced; `.closed`.
  /// - Complexity: one request; as `RecordStore.open` if another user is signed in.
  @discardableResult
  public func accountMayHaveChanged() async throws -> RecordStore? {
    try await change("asking who is signed in") { try await self.askWhoIsSignedIn() }
  }

  /// Signs in with what `begin` does, and opens the user's store.
  package func signIn(_ begin: @escaping @Sendable () throws -> Void) async throws -> RecordStore? {
    try await change("signing in") {
      try begin()
      return try await self.askWhoIsSignedIn()
    }
  }

  /// Signs the user out: from now on the store syncs nothing, the credential is forgotten, and the rule of `AccountRules.signOut` decides
  /// what becomes of the store. Does nothing more for a user who is signed out already.
  ///
  /// The sign-out is durable when this returns; if it throws, nothing is synced all the same.
  ///
  /// - Throws: `StrandlineError`: `.io`, `.diskFull`, `.storeReplaced`; with `SignOutRule.removes` also what opening and closing a store throw, and then
  ///   nothing was removed that was not sent.
  public func signOut() async throws {
    try await change("signing out", first: { self.state.withLock { $0.open }?.database.shut() }) {
      try self.beginSignOut()
      let leaving = self.state.withLock { $0.list.entries.filter { $0.fate == .leaving } }
      try await self.finishSignOut()
      await self.finish()
      try self.checkIsGone(leaving)
      try await self.openShown()
      return nil
    }
  }

  /// Removes a store with everything in it. What it had not sent is first copied into a store of its own
  /// (``StoredAccount/isArchive``), unless it is such a store, or is not to be kept.
  ///
  /// The removal is durable when this returns. A crash before that leaves the store whole, or the next open finishes it.
  ///
  /// - Parameters:
  ///   - account: one of `accounts`; nothing happens if it is not there any more.
  ///   - keepingUnsent: whether what was not sent is kept.
  /// - Throws: `StrandlineError`: `.misuse` for the store that is shown while its user is signed in; what opening a store throws, unless nothing
  ///   is to be kept; `.io`, `.diskFull`; `.storeReplaced` if the folder of accounts was moved, removed or replaced: then nothing of what is
  ///   there now was removed.
  /// - Complexity: O(files of the store); O(unsent records).
  public func remove(_ account: StoredAccount, keepingUnsent: Bool = true) async throws {
    try await change("removing a store") {
      var list = self.state.withLock { $0.list }
      guard let entry = list.entries.first(where: { $0.number == account.number }) else { return nil }
      if list.shownNumber == entry.number {
        guard list.signIn != .yes else {
          throw StrandlineError(
            .misuse, "the user of \(account) is signed in; nothing was removed; sign the user out first")
        }
        list.shownNumber = nil
        try await self.closeShown()
      }
      // One that is half erased has nothing left to keep.
      if entry.fate != .removed {
        list.set(keepingUnsent && entry.fate != .archive ? .leaving : .removed, of: entry.number)
      }
      try self.save(list)
      await self.finish()
      try self.checkIsGone([entry])
      try await self.openShown()
      return nil
    }
  }

  /// Closes the store that is open. Every later call that throws throws `.closed`; a second call of this does nothing.
  ///
  /// - Throws: as `RecordStore.close`.
  public func close() async throws {
    try await turns.run {
      self.state.withLock { $0.isClosed = true }
      defer { self.folder.release() }
      try await self.closeShown()
    }
  }

  // MARK: Steps

  /// Runs what changes something, after what a call before has left undone.
  ///
  /// - Parameter first: is done whatever has become of the folder.
  @discardableResult
  private func change(
    _ doing: String, first: @escaping @Sendable () -> Void = {},
    _ body: @escaping @Sendable () async throws -> RecordStore?
  ) async throws -> RecordStore? {
    try await CallSite.unnamed.run("\(doing), for the accounts at '\(path)'") {
      try await self.turns.run {
        guard !self.state.withLock({ $0.isClosed }) else {
          throw StrandlineError(.closed, "the accounts at '\(self.path)' are closed")
        }
        first()
        return try await self.explaining {
          // Before anything is asked of the server, and before a token goes into the folder.
          try self.folder.check()
          await self.finish()
          return try await body()
        }
      }
    }
  }

  /// Says what has become of the folder where that is why something failed.
  private func explaining<Value>(_ body: () async throws -> Value) async throws -> Value {
    do { return try await body() } catch { throw folder.explained(error) }
  }

  private func askWhoIsSignedIn() async throws -> RecordStore? {
    // A credential that was to be forgotten signs nobody in.
    try await finishSignOut()
    do { return try await show(try await database.user()) } catch let error as CloudError {
      guard error.code == .noAccount else { throw error.asStrandlineError("asking who is signed in") }
      if isSignedIn {
        try beginSignOut()
        try await finishSignOut()
        await finish()
        try await openShown()
      }
      return store
    }
  }

  /// Shows the store of a user who is signed in.
  private func show(_ name: String) async throws -> RecordStore? {
    let user = Array(name.utf8)
    var list = state.withLock { $0.list }
    if let known = list.entry(of: user) {
      list.shownNumber = known.number
    } else if let first = list.shown, first.userBytes == nil, opening.rules.withoutAccount != .beginsEmpty {
      list.give(first.number, to: user)
    } else {
      list.shownNumber = list.add(user).number
    }
    list.signIn = .yes
    try save(list)
    if let open = state.withLock({ $0.open }), open.number == list.shownNumber {
      open.database.open(for: name)
      open.store.syncEngine?.wake(.foreground)
      return open.store
    }
    // The store of before is closed whatever its last sync had to say, and the other one opened.
    let closed: Result<Void, any Error>
    do { closed = .success(try await closeShown()) } catch { closed = .failure(error) }
    try await openShown()
    try closed.get()
    return store
  }

  /// Notes the sign-out durably, and stops the sync.
  private func beginSignOut() throws {
    var list = state.withLock { $0.list }
    guard list.signIn != .ending else { return }
    state.withLock { $0.open }?.database.shut()
    if opening.rules.signOut == .removes, list.signIn == .yes, let shown = list.shownNumber {
      list.set(.leaving, of: shown)
      list.shownNumber = nil
    }
    list.signIn = .ending
    try save(list)
  }

  private func finishSignOut() async throws {
    var list = state.withLock { $0.list }
    guard list.signIn == .ending else { return }
    try database.forgetCredential()
    switch opening.rules.signOut {
    case .keepsOpen: break
    // The store of nobody is nobody's to close.
    case .closes, .removes: if list.shown.map({ $0.userBytes != nil }) ?? true { try await closeShown() }
    }
    list.signIn = .no
    try save(list)
  }

  /// Carries out what the list says is begun, as far as it can be. Each part may be done twice. What fails keeps nothing else
  /// from being done.
  private func finish() async {
    var failure: (any Error)?
    func trying(_ work: () async throws -> Void) async {
      do { try await work() } catch { failure = failure ?? error }
    }
    await trying { try await finishSignOut() }
    for entry in state.withLock({ $0.list.entries }) where entry.fate == .leaving {
      await trying { try await archive(entry) }
    }
    for entry in state.withLock({ $0.list.entries }) where entry.fate == .removed {
      await trying { try await erase(entry) }
    }
    let unfinished = failure.map { error in
      let error = StrandlineError.translating(
        folder.explained(error), "finishing what was begun for the accounts at '\(path)'")
      return error as? StrandlineError ?? StrandlineError(.io, "\(error)")
    }
    state.withLock { $0.unfinished = unfinished }
  }

  /// Throws if the removal of one of these stores is not finished.
  private func checkIsGone(_ entries: [AccountList.Entry]) throws {
    let (list, unfinished) = state.withLock { ($0.list, $0.unfinished) }
    let numbers = Set(entries.map(\.number))
    guard let unfinished, list.entries.contains(where: { numbers.contains($0.number) }) else { return }
    throw unfinished
  }

  private func erase(_ entry: AccountList.Entry) async throws {
    try await offThread { [folder] in
      guard try folder.kind(of: entry.folderName) != .absent else { return }
      try folder.removeContents(of: entry.folderName)
      try folder.removeFolder(entry.folderName)
      try folder.sync()
    }
    var list = state.withLock { $0.list }
    list.drop(entry.number)
    try save(list)
  }

  /// Copies what a store has not sent into a new one, and lets the store be removed.
  private func archive(_ entry: AccountList.Entry) async throws {
    let isEmpty = try await offThread { [opening, folder] in
      try opening.isAllSent(folder, entry.folderName)
    }
    var list = state.withLock { $0.list }
    if !isEmpty {
      let archive =
        list.entries.first { $0.fate == .filling && $0.userBytes == entry.userBytes }
        ?? list.add(entry.userBytes, .filling)
      try save(list)
      try await offThread { [opening, folder] in
        try opening.copyUnsent(folder, from: entry.folderName, to: archive.folderName)
      }
      list.set(.archive, of: archive.number)
    }
    list.set(.removed, of: entry.number)
    try save(list)
  }

  /// Opens the store that is to be shown, if it is not open and the rules let it.
  private func openShown() async throws {
    guard state.withLock({ $0.open }) == nil else { return }
    var list = state.withLock { $0.list }
    if list.shown == nil, list.entries.isEmpty {
      // Nobody is known, at the beginning or again.
      list.shownNumber = list.add(nil).number
      try save(list)
    }
    guard let entry = list.shown,
      entry.userBytes == nil || list.signIn == .yes || opening.rules.signOut == .keepsOpen
    else { return }
    let database = AccountDatabase(database)
    if list.signIn == .yes, let user = entry.userName { database.open(for: user) }
    let store = try await opening.open(folder, entry.folderName, database)
    state.withLock { $0.open = OpenAccount(number: entry.number, store: store, database: database) }
  }

  private func closeShown() async throws {
    let open = state.withLock { state in
      defer { state.open = nil }
      return state.open
    }
    open?.database.shut()
    try await open?.store.close()
  }

  private func save(_ list: AccountList) throws {
    // After a failed save the disk may be ahead of what is known here: then also the same list is written again.
    guard state.withLock({ $0.isListUnsure || $0.list != list }) else { return }
    state.withLock { $0.isListUnsure = true }
    try folder.replace(with: list)
    state.withLock { ($0.list, $0.isListUnsure) = (list, false) }
  }

  /// Runs what blocks on the disk for long off the cooperative pool.
  private func offThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Result { try work() }) }
    }
  }
}

/// What a folder of accounts remembers.
private struct AccountState {
  var list: AccountList
  /// The last save has failed: the disk may have that list.
  var isListUnsure = false
  var open: OpenAccount?
  var unfinished: StrandlineError?
  var isClosed = false
}

/// The store that is open.
private struct OpenAccount: Sendable {
  var number: UInt64
  var store: RecordStore
  var database: AccountDatabase
}

extension AccountList {
  /// The store of nobody becomes a user's.
  fileprivate mutating func give(_ number: UInt64, to user: [UInt8]) {
    for index in entries.indices where entries[index].number == number { entries[index].userBytes = user }
  }
}

/// Runs asynchronous work one after the other, in the order of the calls.
private final class AccountTurns: Sendable {
  private let last: OrderedMutex<Task<Void, Never>?> = OrderedMutex(nil)

  func run<Value: Sendable>(_ work: @escaping @Sendable () async throws -> Value) async throws -> Value {
    let task = last.withLock { last in
      let before = last
      let task = Task {
        await before?.value
        return try await work()
      }
      // What it throws is its caller's to hear.
      last = Task { _ = await task.result }
      return task
    }
    return try await withTaskCancellationHandler {
      try await task.value
    } onCancel: {
      task.cancel()
    }
  }
}

extension AccountStores: CustomStringConvertible {
  /// The folder, and whose store is shown.
  public var description: String { "accounts at '\(path)', \(account.map { "\($0)" } ?? "nobody's store")".oneLine }
}
