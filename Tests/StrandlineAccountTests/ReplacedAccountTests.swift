// A folder of accounts that is moved, removed or replaced while a process has it open: at each call that changes the disk, of each
// operation that changes the list or removes a store.
//
// Nothing of what is at the path afterwards changes, and what was acknowledged is whole where the folder was moved to. Where the
// folder itself stays and its files are others, a look and the call that follows it at once have a moment between them: what that one
// call has done is allowed there, and nothing after it.

import Strandline
import StrandlineLogProofs
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import StrandlineTesting
import Synchronization
import Testing

/// What is done to the accounts meanwhile.
private enum AccountOperation: String, CaseIterable, Sendable {
  case signInNew, signInKnown, signOut, remove

  func run(_ phone: Phone) async throws {
    switch self {
    case .signInNew: try await phone.signIn("_frank")
    case .signInKnown: try await phone.signIn("_bob")
    // Removes the store of the user who signs out.
    case .signOut: try await phone.signOut()
    case .remove:
      let accounts = try await phone.accounts
      try await accounts.remove(try #require(accounts.accounts.first { $0.user == "_bob" }))
    }
  }
}

/// One case.
private struct AccountCase: CustomStringConvertible {
  var operation: AccountOperation
  var fate: FolderFate
  /// The fate comes before the call of the operation with this number, from 1.
  var call: Int

  var description: String { "\(operation.rawValue)/\(fate.rawValue)/\(call)" }
  var seed: UInt64 { description.utf8.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 } }
}

/// A case in which something was changed or lost, or not said.
private struct AccountFailure: Error, CustomStringConvertible {
  var description: String
}

/// Other accounts that a second process has made at the path, and has open.
private struct SecondAccounts {
  var lock: any FileLock
  var store: RecordStore
}

/// What a fate has left at the path.
private final class StruckAccounts: Sendable {
  private struct Found {
    var failure: (any Error)?
    var second: SecondAccounts?
    /// The files that were there right after it.
    var put: [String: [UInt8]]?
    /// Those that are there after the one call before which it came.
    var next: [String: [UInt8]]?
  }
  private let found = Mutex(Found())

  var failure: (any Error)? { found.withLock { $0.failure } }
  var second: SecondAccounts? { found.withLock { $0.second } }
  var put: [String: [UInt8]]? { found.withLock { $0.put } }
  var next: [String: [UInt8]]? { found.withLock { $0.next } }

  /// Lets a fate come before a call that changes the disk.
  func strike(_ disk: SimulatedDisk, _ fate: FolderFate, beforeCall call: Int, _ copy: [String: [UInt8]]) {
    disk.interrupt(beforeCall: call) { [self] in
      let result = Result { try fate.befall(disk, copy, second: ReplacedAccounts.second) }
      found.withLock { found in
        do { found.second = try result.get() } catch { found.failure = error }
        found.put = disk.files(in: FolderFate.path)
      }
      disk.interrupt(beforeCall: disk.callCount + 2) { [self] in
        let files = disk.files(in: FolderFate.path)
        found.withLock { $0.next = files }
      }
    }
  }
}

/// The campaign.
private struct ReplacedAccounts {
  private static let path = FolderFate.path
  private static let list = "/" + AccountList.fileName
  private let base: SimulatedDisk
  private(set) var cases = 0
  /// How many of the operations have ended with an error.
  private(set) var refusals = 0
  private(set) var powerCuts = 0
  /// In how many the call that was about to be made has put the list in the place of the copy's, so that nobody can notice it.
  private(set) var blind = 0
  /// What a test changes on the disk of each case before that is judged: the campaign must find it.
  var meddle: (SimulatedDisk) -> Void = { _ in }

  init() async throws {
    let disk = SimulatedDisk()
    let phone = Phone(seed: 1, path: Self.path)
    phone.restart(on: disk)
    try await phone.signIn("_alice")
    try await phone.write("alice 0")
    try await phone.close()
    disk.put(disk.files(in: Self.path), over: FolderFate.olderPath)
    try await phone.write("alice 1")
    try await phone.signIn("_bob")
    try await phone.write("bob 0")
    try await phone.close()
    // Its stores have the numbers of this one's.
    let other = Phone(seed: 2, path: FolderFate.otherPath)
    other.restart(on: disk)
    for user in ["_carol", "_dave", "_erin", "_grace"] {
      try await other.signIn(user)
      try await other.write("\(user.dropFirst()) 0")
    }
    try await other.close()
    try disk.folder("/").sync()
    base = disk
  }

  private static let acknowledged = [
    "_alice": ["alice 0", "alice 1", "alice 2"], "_bob": ["bob 0"], "_heidi": ["heidi 0"],
  ]

  /// A device whose accounts are open, and the files of an earlier moment of this process.
  private func opened(
    _ disk: SimulatedDisk, through fileSystem: (any FileSystem)? = nil
  ) async throws -> (Phone, copy: [String: [UInt8]]) {
    let phone = Phone(seed: 3, path: Self.path)
    phone.through = fileSystem
    phone.rules.signOut = .removes
    phone.restart(on: disk)
    _ = try await phone.accounts
    let copy = disk.files(in: Self.path)
    try await phone.signIn("_heidi")
    try await phone.write("heidi 0")
    try await phone.signIn("_alice")
    try await phone.write("alice 2")
    return (phone, copy)
  }

  static func second(_ fileSystem: any FileSystem) throws -> SecondAccounts {
    try fileSystem.makeDirectory(path)
    let folder = try fileSystem.folder(path)
    guard let lock = try folder.lock("accounts.lock", exclusive: true) else {
      throw AccountFailure(description: "a new folder is locked")
    }
    var list = AccountList()
    list.shownNumber = list.add(nil).number
    try list.save(to: folder)
    let store = try RecordStore.openBlocking(
      at: path + "/1",
      environment: StoreEnvironment(
        SystemEnvironment(fileSystem: fileSystem, clock: SimulatedClock(), random: SeededRandom(seed: 31)),
        isSimulated: true))
    try write("second 0", in: store)
    return SecondAccounts(lock: lock, store: store)
  }

  private static func write(_ name: String, in store: RecordStore) throws {
    try store.writeBlocking { try $0.save(Record(type: "Note", id: RecordID(name), fields: [:])) }
  }

  /// Runs the cases that are chosen.
  ///
  /// - Throws: `AccountFailure` with the first cases that fail.
  mutating func run(choose: (Int) -> Bool = { _ in true }) async throws {
    var number = 0
    var failures: [String] = []
    for operation in AccountOperation.allCases {
      let meter = CallMeter(base.clone())
      let (phone, _) = try await opened(meter.disk, through: meter)
      let before = meter.disk.callCount
      try await operation.run(phone)
      let count = meter.disk.callCount - before
      try demand(count > 0, "\(operation) changes nothing")
      try await phone.close()
      for fate in FolderFate.allCases {
        for call in 1...count {
          defer { number += 1 }
          guard choose(number), failures.count < 20 else { continue }
          // A store's writer has compared already: its own campaign has that.
          if fate.isInPlace, case .intoNamedFile? = meter.calls[before + call] { continue }
          let one = AccountCase(operation: operation, fate: fate, call: call)
          cases += 1
          do { try await attempt(one) } catch { failures.append("\(one): \(error)") }
        }
      }
    }
    if !failures.isEmpty { throw AccountFailure(description: failures.joined(separator: "\n")) }
  }

  private mutating func attempt(_ one: AccountCase) async throws {
    let fate = one.fate
    let disk = base.clone()
    let (phone, copy) = try await opened(disk)
    let struck = StruckAccounts()
    struck.strike(disk, fate, beforeCall: disk.callCount + one.call, copy)
    let outcome = await error { try await one.operation.run(phone) }
    disk.endInterruption()
    if let failure = struck.failure { throw failure }
    guard let put = struck.put else { throw AccountFailure(description: "the call has not come") }
    if fate.isInPlace, let next = struck.next, next[Self.list] != put[Self.list] {
      blind += 1
      _ = await error { try await phone.close() }
      return
    }
    if let outcome {
      refusals += 1
      try demandReplaced(outcome, fate)
    }
    meddle(disk)
    let found = disk.files(in: Self.path)
    if !fate.goesOn {
      // A folder that was put there is not touched by any call; files in this folder by the one that was about to be made.
      let expected = fate.isInFolder ? struck.next ?? found : put
      let source = fate == .overwrittenBySameSession ? copy : fate.sourcePath.map { base.files(in: $0) } ?? [:]
      let changes = Self.changes(in: found, of: expected, source, isInPlace: fate.isInPlace)
      try demand(changes.isEmpty, "what is at the path was changed: \(changes.joined(separator: ", "))")
    }
    if one.seed % 8 == 0, fate.keptPath != nil {
      powerCuts += 1
      let image = disk.imageAfterCrash(using: SeededRandom(seed: one.seed))
      // What a second process has not synced it may lose.
      let isWhole = image.files(in: Self.path) == put || fate.goesOn || fate == .secondWriter
      try demand(isWhole, "a power cut has changed what is at the path")
      try await judge(image, one)
    }
    // Whatever the operation came to, the next one knows.
    let late = await error { try await phone.signIn("_ivan") }
    if let late { try demandReplaced(late, fate) } else { try demand(fate.goesOn, "a sign-in was taken") }
    try demand(fate.goesOn || disk.files(in: Self.path) == found, "what is at the path was changed later")
    try await judge(disk, one)
    _ = await error { try await phone.close() }
    try demand(fate.goesOn || disk.files(in: Self.path) == found, "what is at the path was changed by the close")
    if let second = struck.second {
      try Self.write("second 1", in: second.store)
      try second.store.closeBlocking()
      second.lock.unlock()
    }
  }

  /// What was changed at the path. What this process had begun under a temporary name is its own, and so is a store that it makes.
  private static func changes(
    in found: [String: [UInt8]], of expected: [String: [UInt8]], _ source: [String: [UInt8]], isInPlace: Bool
  ) -> [String] {
    // A copy that is put over files does not touch files of other names.
    (isInPlace ? Set(source.keys) : Set(expected.keys).union(found.keys))
      .filter { found[$0] != expected[$0] && (source[$0] != nil || !($0.hasSuffix(".tmp") || $0.contains(".init-"))) }
      .sorted()
  }

  private func demandReplaced(_ error: any Error, _ fate: FolderFate) throws {
    guard let error = error as? StrandlineError else { throw error }
    // A store that is made while its drive is mounted again has files with numbers of before and of after it, and says so.
    if fate.goesOn, error.code == .storeReplaced, error.message.contains("the LOCK of the store") { return }
    guard !fate.goesOn else { throw error }
    // What was written into files that had other bytes by then is neither there nor not there, and a store that is opened then may
    // have files of two stores.
    let isUnknown = fate.isInFolder && [.outcomeUnknown, .damaged].contains(error.code)
    guard error.code == .storeReplaced || isUnknown else { throw error }
  }

  /// Everything that was acknowledged is there: in its user's store, or in the archive of one that was removed.
  private func judge(_ disk: SimulatedDisk, _ one: AccountCase) async throws {
    guard let kept = one.fate.keptPath else { return }
    let phone = Phone(seed: 4, path: kept)
    phone.rules.signOut = .removes
    phone.restart(on: disk.clone())
    let accounts = try await phone.accounts
    if let unfinished = accounts.unfinished { throw unfinished }
    let stores = accounts.accounts
    try await phone.close()
    for (user, names) in Self.acknowledged {
      let own = stores.filter { $0.user == user }
      let mayBeArchived =
        user == "_alice" && one.operation == .signOut || user == "_bob" && one.operation == .remove
      try demand(own.count == 1, "\(user) has \(own)")
      for account in own {
        try demand(!account.isArchive || mayBeArchived, "\(account) is an archive")
        let store = try await RecordStore.openReadOnly(
          at: account.path,
          environment: StoreEnvironment(
            SystemEnvironment(fileSystem: phone.disk, clock: phone.clock, random: SeededRandom(seed: 5)),
            isSimulated: true))
        for name in names {
          try demand(try store.record(RecordID(name)) != nil, "'\(name)', which was acknowledged, is not in \(account)")
        }
      }
    }
  }

  private func demand(_ condition: Bool, _ words: @autoclosure () -> String) throws {
    guard condition else { throw AccountFailure(description: words()) }
  }

  private func error(_ body: () async throws -> Void) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
  }
}

@Suite(.timeLimit(.minutes(30))) struct `A folder of accounts that is replaced` {
  @Test func `is the only one that is changed, at any call of any change of its accounts`() async throws {
    var campaign = try await ReplacedAccounts()
    do { try await campaign.run { Campaign.takes($0) } } catch { Issue.record("\(error)") }
    print(
      "replaced accounts: \(campaign.cases) cases, \(campaign.refusals) refused, \(campaign.blind) unnoticed, "
        + "\(campaign.powerCuts) disks after a power cut")
    #expect(campaign.cases > (Campaign.isWhole ? 1_000 : 100), "\(campaign.cases)")
    #expect(campaign.refusals > (Campaign.isWhole ? 500 : 50), "\(campaign.refusals)")
    #expect(campaign.blind * 20 < campaign.cases, "\(campaign.blind)")
    #expect(campaign.powerCuts > (Campaign.isWhole ? 20 : 2), "\(campaign.powerCuts)")
  }

  @Test func `is noticed by the campaign when it is changed or loses a record`() async throws {
    for (damaged, words) in [("/store/accounts", "was changed"), ("/moved/accounts", "")] {
      var campaign = try await ReplacedAccounts()
      campaign.meddle = { disk in
        if disk.peek("/moved/accounts") != nil, disk.peek(damaged) != nil { disk.poke(damaged, [1]) }
      }
      let failure = await #expect(throws: AccountFailure.self) {
        try await campaign.run { Campaign.takes($0, every: 24) }
      }
      #expect(try #require(failure).description.contains(words), "\(String(describing: failure))")
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `What has become of a folder of accounts` {
  private typealias Row = (lock: AccountLook.Lock, list: AccountLook.List, isNamed: Bool)

  /// The whole table.
  @Test func `follows from the name and the number of its lock, and the bytes of its list`() {
    let rows: [(Row, AccountReplacement?)] = [
      ((.held, .known, true), nil),
      ((.held, .known, false), nil),
      ((.held, .another, true), .overwritten),
      ((.held, .another, false), .overwritten),
      ((.held, .absent, true), .overwritten),
      ((.held, .absent, false), .overwritten),
      ((.another, .known, true), nil),
      ((.another, .known, false), .unlocked),
      ((.another, .another, true), .anotherInPlaceOfMoved),
      ((.another, .another, false), .anotherInPlaceOfRemoved),
      ((.another, .absent, true), .anotherInPlaceOfMoved),
      ((.another, .absent, false), .anotherInPlaceOfRemoved),
      ((.absent, .known, true), .unlocked),
      ((.absent, .known, false), .unlocked),
      ((.absent, .another, true), .anotherInPlaceOfMoved),
      ((.absent, .another, false), .anotherInPlaceOfRemoved),
      ((.absent, .absent, true), .moved),
      ((.absent, .absent, false), .removed),
    ]
    var looks: Set<AccountLook> = []
    for (row, replacement) in rows {
      let look = AccountLook(isNamed: row.isNamed, lock: row.lock, list: row.list)
      looks.insert(look)
      #expect(look.replacement == replacement, "\(look)")
    }
    #expect(looks.count == AccountLook.Lock.allCases.count * AccountLook.List.allCases.count * 2)
    for replacement in AccountReplacement.allCases {
      let error = replacement.error("/here")
      #expect(error.code == .storeReplaced && error.message.contains("'/here'") && error.file == "/here")
    }
  }

  private func message(_ phone: Phone) async -> String? {
    let error = await #expect(throws: StrandlineError.self) { try await phone.signIn("_bob") }
    #expect(error?.code == .storeReplaced)
    return error?.message
  }

  private func opened() async throws -> Phone {
    let phone = Phone()
    try await phone.signIn("_alice")
    try await phone.write("alice 0")
    return phone
  }

  @Test func `is said in a sentence`() async throws {
    let moved = try await opened()
    try moved.disk.renameFolder("/accounts", to: "/moved")
    #expect(await message(moved)?.contains("was moved away from '/accounts'") == true)
    // Who moves it back is served again.
    try moved.disk.renameFolder("/moved", to: "/accounts")
    #expect(try await moved.signIn("_bob") != nil)
    let removed = try await opened()
    try removed.disk.folder("/accounts").removeContents()
    try removed.disk.removeDirectory("/accounts")
    #expect(await message(removed)?.contains("'/accounts' was removed") == true)
    let listless = try await opened()
    listless.disk.pokeRemove("/accounts/accounts")
    #expect(await message(listless)?.contains("the list of") == true)
    let unlocked = try await opened()
    unlocked.disk.pokeRemove("/accounts/accounts.lock")
    #expect(await message(unlocked)?.contains("the lock of") == true)
  }

  @Test func `is noticed on a drive that counts no names`() async throws {
    let phone = Phone()
    phone.disk.countNoNames()
    try await phone.signIn("_alice")
    #expect(try await phone.signIn("_bob") != nil)
    try phone.disk.folder("/accounts").removeContents()
    #expect(await message(phone)?.contains("moved away") == true)
  }

  /// A session of the folder that is held is not brought into the other one, and the user's requests end.
  @Test func `keeps no sign-out from ending the sync, and brings no token elsewhere`() async throws {
    let phone = try await opened()
    let other = Phone(seed: 2, path: "/other")
    other.restart(on: phone.disk)
    try await other.signIn("_carol")
    try await other.close()
    let store = try await phone.store
    try phone.disk.renameFolder("/accounts", to: "/moved")
    try phone.disk.renameFolder("/other", to: "/accounts")
    let theirs = phone.disk.files(in: "/accounts")
    #expect(await #expect(throws: StrandlineError.self) { try await phone.signOut() }?.code == .storeReplaced)
    let count = phone.line.count
    #expect(await #expect(throws: StrandlineError.self) { try await store.sync() }?.code == .needsSignIn)
    #expect(await message(phone)?.contains("another one is there now") == true)
    #expect(phone.line.count == count)
    #expect(phone.disk.files(in: "/accounts") == theirs)
  }
}
