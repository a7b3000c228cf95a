// Seeded histories of users on one device: who signs in, out and back, what they edit, what other devices do, cut lines, ended
// sessions, and power cuts at any call. After each step nothing of a user may be in another user's store or at another user's
// server; at the end everything that was acknowledged is at its user's server.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

/// One history. What a record is called says whose it is: "alice 3" is Alice's, and "nobody-1 3" was written in
/// the first store when nobody was known.
private final class AccountHistory {
  static let users = ["alice", "bob", "carol"]

  let seed: UInt64
  let phone: Phone
  private let random: SeededRandom
  /// Whose the stores are or were, by number.
  private var owners: [UInt64: String] = [:]
  /// The stores that were looked at since they were closed.
  private var closed: Set<UInt64> = []
  private var written = 0
  /// Records that are at their users' servers at the end, or are not: what a call has acknowledged.
  private var living: [CloudName: String] = [:]
  private var dead: Set<CloudName> = []
  private(set) var steps: [String] = []

  init(_ seed: UInt64) {
    self.seed = seed
    random = SeededRandom(seed: seed)
    phone = Phone(seed: seed, isOnDevice: seed % 3 == 0)
    phone.rules.signOut = SignOutRule.allCases[Int(seed / 3 % 3)]
    if seed.isMultiple(of: 7) { phone.rules.withoutAccount = .beginsEmpty }
  }

  private func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }
  private func anyUser() -> String { Self.users[below(Self.users.count)] }

  func run(_ count: Int) async throws {
    for _ in 0..<count {
      do { try await step() } catch let error as StrandlineError {
        steps.append("  threw \(error.code.rawValue)")
        guard phone.disk.isOff else {
          #expect(Self.expected.contains(error.code), "seed \(seed): \(steps.joined(separator: "\n")): \(error)")
          continue
        }
      }
      if phone.disk.isOff { restart() }
      do { try await check() } catch  where phone.disk.isOff {
        // The planned cut has come while the device started.
        restart()
        try await check()
      }
    }
    try await end()
  }

  private static let expected: [StrandlineError.Code] = [
    .needsSignIn, .accountMismatch, .unreachable, .throttled, .misuse, .closed, .serverRefused,
  ]

  private func restart() {
    steps.append("the power is cut")
    // The other process has gone with it.
    phone.line.state.withLock { $0.hook = nil }
    phone.cutPower(random.next())
  }

  // MARK: Steps

  private func step() async throws {
    let kind = below(17)
    switch kind {
    case 0...4: try await write()
    case 5: try await erase()
    case 6...8: try await sync()
    case 9, 10:
      let user = anyUser()
      steps.append("\(user) signs in")
      try await phone.signIn(user)
    case 11:
      steps.append("sign-out")
      try await phone.signOut()
    case 12:
      let user = anyUser()
      steps.append("another device of \(user) writes")
      written += 1
      let name = "\(user) \(written)"
      try await phone.other(user).put(name, user)
      living[CloudName(name)] = user
    case 13:
      let (moment, user, signIn) = (below(6), anyUser(), phone.signInElsewhere)
      let (line, isOnDevice) = (phone.line, phone.device != nil)
      steps.append("\(user) signs in elsewhere before the next request but \(moment)")
      line.state.withLock { state in
        state.hook = (
          state.paths.count + moment + 1,
          {
            try signIn(user)
            if !isOnDevice { line.state.withLock { $0.refusals = 1 } }
          }
        )
      }
      try await sync()
    case 14: try await interrupt()
    case 15:
      steps.append("the power will be cut")
      phone.disk.cutPower(atCall: phone.disk.callCount + 1 + below(60))
    default:
      if below(2) == 0 {
        steps.append("the account may have changed")
        try await phone.accounts.accountMayHaveChanged()
      } else {
        try await remove()
      }
    }
  }

  /// Whose store is shown; nil if none is.
  private func owner() async throws -> String? {
    let accounts = try await phone.accounts
    guard let path = accounts.store?.path else { return nil }
    return accounts.accounts.first { $0.path == path }.map(owner)
  }

  private func owner(_ account: StoredAccount) -> String { account.user ?? "nobody-\(account.number)" }

  private func write() async throws {
    guard let owner = try await owner() else { return }
    written += 1
    let name = "\(owner) \(written)"
    steps.append("writes '\(name)'")
    try await phone.write(name, owner)
    living[CloudName(name)] = owner
  }

  private func erase() async throws {
    guard let owner = try await owner() else { return }
    let names = living.keys.filter { $0.text.hasPrefix(owner + " ") }.sorted()
    guard !names.isEmpty else { return }
    let name = names[below(names.count)]
    guard try await phone.store.record(RecordID(name.text)) != nil else { return }
    steps.append("erases '\(name.text)'")
    // If the power is cut meanwhile, it may be erased and may not.
    living[name] = nil
    try await phone.erase(name.text)
    dead.insert(name)
  }

  private func sync() async throws {
    guard try await owner() != nil else { return }
    steps.append("syncs")
    do { try await phone.store.sync() } catch let error as StrandlineError {
      steps.append("  \(error.code.rawValue)")
      guard !phone.disk.isOff else { return }
      #expect(Self.expected.contains(error.code), "seed \(seed): \(error) after:\n\(steps.joined(separator: "\n"))")
    }
  }

  /// The line is cut, or the session ends, for a while.
  private func interrupt() async throws {
    let (isCut, refusals) = (below(2) == 0, below(4))
    steps.append(isCut ? "syncs without a line" : "syncs, and the session is refused \(refusals) times")
    phone.line.state.withLock { ($0.isCut, $0.refusals) = (isCut, refusals) }
    try await sync()
    phone.line.state.withLock { ($0.isCut, $0.refusals) = (false, 0) }
    phone.clock.advance(milliseconds: 3_600_000)
  }

  private func remove() async throws {
    let accounts = try await phone.accounts
    let all = accounts.accounts
    guard !all.isEmpty else { return }
    let account = all[below(all.count)]
    steps.append("removes \(account)")
    // What it has not sent is in an archive from now on, and not awaited at the server.
    for name in living.keys where user(of: name.text) == owner(account) {
      if try phone.titles(owner(account))[name.text] == nil { living[name] = nil }
    }
    try await accounts.remove(account)
  }

  // MARK: What must hold

  /// The user of a record, by its name.
  private func user(of name: String) -> String {
    let label = String(name.split(separator: " ").first ?? "")
    guard label.hasPrefix("nobody-"), let number = UInt64(label.dropFirst(7)) else { return label }
    return owners[number] ?? label
  }

  private func check() async throws {
    let accounts = try await phone.accounts
    for account in accounts.accounts { if let user = account.user { owners[account.number] = user } }
    for user in Self.users {
      for name in try phone.atServer(user).keys {
        #expect(
          self.user(of: name.text) == user,
          "seed \(seed): \(name.text) at \(user)'s server after:\n\(steps.joined(separator: "\n"))")
      }
    }
    for account in accounts.accounts {
      let isShown = !account.isArchive && accounts.store?.path == account.path
      // What is closed stays as it is until it is shown again.
      if isShown { closed.remove(account.number) } else if !closed.insert(account.number).inserted { continue }
      let store = isShown ? accounts.store : try reader(account.path)
      guard let store else { continue }
      for record in try records(store) {
        let isNobodys = account.isArchive && account.user == nil && user(of: record.name).hasPrefix("nobody-")
        #expect(
          isNobodys || user(of: record.name) == owner(account),
          "seed \(seed): \(record.name) in \(account) after:\n\(steps.joined(separator: "\n"))")
      }
    }
  }

  private func records(_ store: RecordStore) throws -> [RecordID] {
    try store.query(RecordQuery("Note", limit: 1_000)).records.map(\.id)
  }

  private func reader(_ path: String) throws -> RecordStore? {
    let environment = StoreEnvironment.simulated(disk: phone.disk, clock: phone.clock, seed: seed ^ 0x0EAD)
    do { return try RecordStore.openReadOnlyBlocking(at: path, environment: environment) } catch StrandlineError.Code
      .noSuchStore
    {
      return nil
    }
  }

  /// Everybody comes back, and has sent everything.
  private func end() async throws {
    steps.append("the end")
    closed = []
    phone.line.state.withLock { $0 = Line.State(paths: $0.paths) }
    phone.cutPower(random.next())
    for user in Self.users {
      try await phone.signIn(user)
      #expect(try await phone.accounts.unfinished == nil, "seed \(seed)")
      do { try await phone.store.sync() } catch {
        Issue.record("seed \(seed): \(user): \(error) after:\n\(steps.joined(separator: "\n"))")
      }
      #expect(try await phone.unsettled == 0, "seed \(seed)")
      try await check()
    }
    guard phone.rules.signOut != .removes else { return }
    for (name, owner) in living {
      let user = user(of: name.text)
      guard Self.users.contains(user) else { continue }
      #expect(
        try phone.titles(user)[name.text] == .string(owner),
        "seed \(seed): \(name.text) is not at \(user)'s server after:\n\(steps.joined(separator: "\n"))")
    }
    for name in dead where Self.users.contains(user(of: name.text)) {
      #expect(
        try phone.titles(user(of: name.text))[name.text] == nil,
        "seed \(seed): \(name.text) lives after:\n\(steps.joined(separator: "\n"))")
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Users of one device` {
  @Test(arguments: 0..<8)
  func `127, 128: have nothing of each other's in their stores and at their servers, whatever happens`(
    _ part: UInt64
  ) async throws {
    for seed in (part * 64)..<(part * 64 + 64) { try await AccountHistory(seed).run(14) }
  }

  @Test(arguments: [0, 1, 2] as [UInt64])
  func `are as before or after each change, after a power cut at any call of it`(_ rule: UInt64) async throws {
    /// Two users, and what was not sent by the first.
    func begin() async throws -> Phone {
      let phone = Phone(seed: 3)
      phone.rules.signOut = SignOutRule.allCases[Int(rule)]
      try await phone.write("first")
      try await phone.signIn("_alice")
      _ = try await phone.sync()
      try await phone.write("parked")
      return phone
    }
    for changes in [
      { (phone: Phone) in
        try await phone.signIn("_bob"); return ()
      },
      { (phone: Phone) in try await phone.signOut() },
    ] {
      let whole = try await begin()
      let from = whole.disk.callCount
      try await changes(whole)
      let end = whole.disk.callCount
      #expect(end > from)
      for call in (from + 1)...end {
        for seed in 0..<2 as Range<UInt64> {
          let phone = try await begin()
          phone.disk.cutPower(atCall: call)
          _ = try? await changes(phone)
          phone.restart(on: phone.disk.imageAfterCrash(using: SeededRandom(seed: seed)))
          let user = try await phone.accounts.account?.user
          #expect(user == nil || user == "_alice" || user == "_bob", "call \(call)")
          #expect(try await phone.accounts.unfinished == nil, "call \(call)")
          if user == "_alice", let store = try await phone.accounts.store {
            #expect(try store.record(RecordID("parked")) != nil, "call \(call)")
          }
          let archives = try await phone.accounts.accounts.filter(\.isArchive)
          for user in ["_bob", "_alice"] {
            try await phone.signIn(user)
            #expect(try await phone.sync() == nil, "call \(call), \(user)")
          }
          #expect(try phone.titles("_bob").isEmpty, "call \(call)")
          let hers = try phone.titles("_alice")
          #expect(hers["first"] == "one", "call \(call)")
          // It is at the server or in an archive.
          #expect(hers["parked"] == "one" || archives.count == 1, "call \(call)")
        }
      }
    }
  }
}
