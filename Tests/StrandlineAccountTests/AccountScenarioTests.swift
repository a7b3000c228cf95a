// Users who sign in, sign out and come back: whose records are where, and what is asked of the server.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(30))) struct `A folder of accounts` {
  @Test func `124: before anybody is known, writes are kept and nothing is asked of the server`() async throws {
    let phone = Phone()
    try await phone.write("n")
    #expect(try await phone.sync() == .needsSignIn)
    #expect(try await phone.unsettled == 1)
    #expect(phone.line.count == 0)
    try await phone.close()
    #expect(try await phone.title("n") == "one")
    let accounts = try await phone.accounts
    #expect(accounts.account == nil && !accounts.isSignedIn && accounts.accounts.map(\.user) == [nil])
    // A session that the web does not take is no sign-out and no user: nothing changes but the answer.
    let error = await #expect(throws: StrandlineError.self) { try await accounts.accountMayHaveChanged() }
    #expect(error?.code == .needsSignIn && "\(error as Any)".contains("http://cloud.test/signin"))
    #expect(accounts.account == nil)
  }

  @Test(arguments: [false, true])
  func `125: what was written before anybody was known becomes the first user's, in the same store`(
    _ isOnDevice: Bool
  ) async throws {
    let phone = Phone(isOnDevice: isOnDevice)
    let before = try await phone.store
    try await phone.write("n")
    let shown = try await phone.signIn("_alice")
    #expect(shown === before)
    #expect(try await phone.sync() == nil)
    #expect(try phone.titles("_alice") == ["n": "one"])
    #expect(try await phone.accounts.account?.user == "_alice")
    // And not the second one's.
    try await phone.signIn("_bob")
    #expect(try await phone.sync() == nil)
    #expect(try phone.titles("_bob").isEmpty)
    #expect(try await phone.title("n") == nil)
  }

  @Test func `125: by a rule the first user begins with an empty store, and the one of before stays`() async throws {
    let phone = Phone()
    phone.rules.withoutAccount = .beginsEmpty
    try await phone.write("n")
    try await phone.signIn("_alice")
    #expect(try await phone.sync() == nil)
    #expect(try phone.titles("_alice").isEmpty)
    let accounts = try await phone.accounts
    #expect(accounts.accounts.map(\.user) == [nil, "_alice"])
    let kept = try await RecordStore.openReadOnly(at: accounts.accounts[0].path, environment: environment(phone))
    #expect(try kept.record(RecordID("n"))?["title"] == "one")
    try await accounts.remove(accounts.accounts[0], keepingUnsent: false)
    #expect(accounts.accounts.map(\.user) == ["_alice"])
    #expect(phone.disk.paths.allSatisfy { !$0.hasPrefix("/accounts/1/") })
  }

  @Test(arguments: [false, true])
  func `126: five edits and three deletions made while signed out go when the same user is back`(
    _ isOnDevice: Bool
  ) async throws {
    let phone = Phone(isOnDevice: isOnDevice)
    try await phone.signIn("_alice")
    for number in 0..<9 { try await phone.write("n\(number)") }
    #expect(try await phone.sync() == nil)
    let store = try await phone.store
    try await phone.signOut()
    let asked = phone.line.count
    for number in 0..<5 { try await phone.write("n\(number)", "two") }
    for number in 5..<8 { try await phone.erase("n\(number)") }
    #expect(try await phone.sync() == .needsSignIn)
    #expect(phone.line.count == asked)
    // Also after a relaunch.
    try await phone.close()
    #expect(try await phone.sync() == .needsSignIn)
    #expect(phone.line.count == asked)
    #expect(try await phone.accounts.account?.user == "_alice")
    #expect(try await phone.store !== store)
    let reopened = try await phone.store
    #expect(try await phone.signIn("_alice") === reopened)
    #expect(try await phone.sync() == nil)
    #expect(
      try phone.titles("_alice") == ["n0": "two", "n1": "two", "n2": "two", "n3": "two", "n4": "two", "n8": "one"])
  }

  @Test(arguments: [false, true])
  func `127, 128: another user gets another store, and the first one's edits go up merged when the first is back`(
    _ isOnDevice: Bool
  ) async throws {
    let phone = Phone(isOnDevice: isOnDevice)
    try await phone.signIn("_alice")
    for name in ["kept", "both"] { try await phone.write(name) }
    #expect(try await phone.sync() == nil)
    try await phone.write("kept", "two")
    try await phone.write("new", "hers")
    let hers = try await phone.store
    let shown = try await phone.signIn("_bob")
    #expect(shown !== hers)
    await #expect(throws: StrandlineError.self) { try await hers.sync() }
    #expect(try await phone.sync() == nil)
    #expect(try phone.titles("_bob").isEmpty)
    #expect(try phone.titles("_alice") == ["kept": "one", "both": "one"])
    for name in ["kept", "both", "new"] { #expect(try await phone.title(name) == nil) }
    try await phone.write("his")
    try await phone.other("_alice").put("both", "elsewhere")
    #expect(try await phone.sync() == nil)
    // What is parked outlasts a relaunch.
    try await phone.close()
    #expect(try await phone.title("his") == "one")
    try await phone.signIn("_alice")
    #expect(try await phone.sync() == nil)
    #expect(try phone.titles("_alice") == ["kept": "two", "both": "elsewhere", "new": "hers"])
    #expect(try await phone.title("both") == "elsewhere")
    #expect(try phone.titles("_bob") == ["his": "one"])
    #expect(try await phone.accounts.accounts.map(\.user) == ["_alice", "_bob"])
  }

  @Test func `130: a sign-out that removes keeps what was not sent, and nothing else`() async throws {
    let phone = Phone()
    phone.rules.signOut = .removes
    try await phone.signIn("_alice")
    for number in 0..<9 { try await phone.write("n\(number)") }
    #expect(try await phone.sync() == nil)
    for number in 0..<5 { try await phone.write("n\(number)", "two") }
    for number in 5..<8 { try await phone.erase("n\(number)") }
    try await phone.signOut()
    let accounts = try await phone.accounts
    #expect(accounts.store == nil && accounts.account == nil && accounts.unfinished == nil)
    #expect(phone.disk.paths.allSatisfy { !$0.hasPrefix("/accounts/1/") && !$0.hasSuffix("/session") })
    let archive = try #require(accounts.accounts.first)
    #expect(accounts.accounts.count == 1 && archive.isArchive && archive.user == "_alice")
    let kept = try await RecordStore.openReadOnly(at: archive.path, environment: environment(phone))
    let changes = try kept.pendingChanges().changes
    #expect(changes.filter { !$0.isDeletion }.map(\.id.name).sorted() == ["n0", "n1", "n2", "n3", "n4"])
    #expect(changes.filter(\.isDeletion).map(\.id.name).sorted() == ["n5", "n6", "n7"])
    #expect(try kept.record(RecordID("n3"))?["title"] == "two")
    #expect(try kept.record(RecordID("n8")) == nil)
    // The user is back, and everything comes from the server.
    try await phone.signIn("_alice")
    #expect(try await phone.sync() == nil)
    #expect(try await phone.title("n6") == "one")
    try await accounts.remove(archive)
    #expect(accounts.accounts.map(\.isArchive) == [false])
    // Where all was sent, nothing is kept.
    try await phone.signOut()
    #expect(accounts.accounts.map(\.user) == [nil])
    #expect(try await phone.sync() == .needsSignIn)
  }

  @Test(arguments: [false, true])
  func `131: a session that became another user's sends and fetches nothing, until that user's store is shown`(
    _ isOnDevice: Bool
  ) async throws {
    for moment in 0..<9 {
      let phone = Phone(isOnDevice: isOnDevice)
      try await phone.signIn("_alice")
      try await phone.write("old")
      #expect(try await phone.sync() == nil)
      try await phone.other("_bob").put("his", "his")
      try await phone.write("hers")
      // Another process signs another user in, before this request of the cycle; the server takes the first one's token no more.
      let (line, signIn) = (phone.line, phone.signInElsewhere)
      line.state.withLock { state in
        state.hook = (
          state.paths.count + moment,
          {
            try signIn("_bob")
            if !isOnDevice { line.state.withLock { $0.refusals = 1 } }
          }
        )
      }
      _ = try await phone.sync()
      _ = try await phone.sync()
      #expect(try phone.titles("_bob") == ["his": "his"], "before request \(moment)")
      #expect(try await phone.title("his") == nil, "before request \(moment)")
      line.state.withLock { ($0.hook, $0.refusals) = (nil, 0) }
      if !isOnDevice { try phone.signInElsewhere("_bob") }
      try await phone.accounts.accountMayHaveChanged()
      if try await phone.accounts.account?.user == "_bob" {
        #expect(try await phone.sync() == nil)
        #expect(try await phone.title("his") == "his")
        #expect(try await phone.title("hers") == nil)
      }
      try await phone.signIn("_alice")
      #expect(try await phone.sync() == nil)
      #expect(try phone.titles("_alice") == ["old": "one", "hers": "one"])
      #expect(try phone.titles("_bob") == ["his": "his"])
    }
  }

  @Test func `138: a session that has ended asks for a sign-in, and no account of the device is a sign-out`()
    async throws
  {
    for rule in SignOutRule.allCases {
      let web = Phone()
      web.rules.signOut = rule
      try await web.signIn("_alice")
      try await web.write("n")
      let store = try await web.store
      web.line.state.withLock { $0.refusals = 100 }
      #expect(try await web.sync() == .needsSignIn)
      _ = await #expect(throws: StrandlineError.self) { try await web.accounts.accountMayHaveChanged() }
      #expect(try await web.store === store)
      #expect(try await web.accounts.isSignedIn)

      let phone = Phone(isOnDevice: true)
      phone.rules.signOut = rule
      try await phone.signIn("_alice")
      try await phone.write("n")
      phone.device?.use(nil)
      let asked = phone.line.count
      let shown = try await phone.accounts.accountMayHaveChanged()
      #expect(phone.line.count == asked)
      #expect(try await !phone.accounts.isSignedIn)
      #expect((shown == nil) == (rule != .keepsOpen))
      if rule == .keepsOpen { #expect(try await phone.sync() == .needsSignIn) }
      // A relaunch keeps to the rule, too.
      try await phone.close()
      #expect(try await (phone.accounts.store == nil) == (rule != .keepsOpen))
      try await phone.signIn("_alice")
      #expect(try await phone.sync() == nil)
      #expect(try phone.titles("_alice") == (rule == .removes ? [:] : ["n": "one"]))
    }
  }

  @Test func `opens the store of the last user without the network`() async throws {
    let phone = Phone()
    try await phone.signIn("_alice")
    try await phone.write("n")
    #expect(try await phone.sync() == nil)
    try await phone.signIn("_bob")
    try await phone.signIn("_alice")
    try await phone.close()
    phone.line.state.withLock { $0.isCut = true }
    let asked = phone.line.count
    #expect(try await phone.title("n") == "one")
    #expect(phone.line.count == asked)
    let error = await #expect(throws: StrandlineError.self) { try await phone.accounts.accountMayHaveChanged() }
    #expect(error?.code == .unreachable)
    #expect(try await phone.title("n") == "one")
  }

  @Test func `tells users apart by bytes, and makes no path of a name`() async throws {
    let phone = Phone()
    let names = ["caf\u{E9}", "cafe\u{301}", "../../up", "_ALICE", "_alice", "1", "a/b\n"]
    for (number, name) in names.enumerated() {
      try await phone.signIn(name)
      try await phone.write("of \(number)")
      #expect(try await phone.sync() == nil)
    }
    for (number, name) in names.enumerated() {
      #expect(try phone.titles(name).keys.sorted() == ["of \(number)"])
    }
    let accounts = try await phone.accounts
    #expect(accounts.accounts.map { $0.user.map { Array($0.utf8) } } == names.map { Array($0.utf8) })
    #expect(accounts.accounts.map(\.path) == (1...names.count).map { "/accounts/\($0)" })
    #expect(phone.disk.paths.allSatisfy { $0.hasPrefix("/accounts/") && !$0.contains("_") })
  }

  @Test func `forgets the token at a sign-out, also one with which nobody was found`() async throws {
    let phone = Phone()
    let accounts = try await phone.accounts
    phone.line.state.withLock { $0.isCut = true }
    _ = await #expect(throws: StrandlineError.self) { try await phone.signIn("_alice") }
    #expect(phone.disk.peek("/accounts/session") != nil)
    try await accounts.signOut()
    #expect(phone.disk.peek("/accounts/session") == nil)
    phone.line.state.withLock { $0.isCut = false }
    let error = await #expect(throws: StrandlineError.self) { try await accounts.accountMayHaveChanged() }
    #expect(error?.code == .needsSignIn)
    try await phone.signIn("_alice")
    try await accounts.signOut()
    #expect(phone.disk.peek("/accounts/session") == nil)
    #expect(!accounts.isSignedIn && accounts.account?.user == "_alice")
    let refused = await #expect(throws: StrandlineError.self) {
      try await Phone(isOnDevice: true).accounts.signIn(token: "a")
    }
    #expect(refused?.code == .misuse)
  }

  @Test func `refuses a call after close, the removal of the store in use, and a folder of other things`()
    async throws
  {
    let phone = Phone()
    try await phone.signIn("_alice")
    let accounts = try await phone.accounts
    let own = try #require(accounts.account)
    #expect(await #expect(throws: StrandlineError.self) { try await accounts.remove(own) }?.code == .misuse)
    #expect(accounts.store != nil)
    try await phone.close()
    #expect(await #expect(throws: StrandlineError.self) { try await accounts.signOut() }?.code == .closed)
    #expect(accounts.store == nil)
    phone.disk.poke("/other", [1])
    for (path, code) in [("/other", StrandlineError.Code.notAStore), ("/accounts/1", .notAStore)] {
      let error = await #expect(throws: StrandlineError.self) {
        try await AccountStores.open(
          at: path, syncing: .cloudKitWeb(container, environment: .development, baseURL: "http://cloud.test"),
          environment: environment(phone))
      }
      #expect(error?.code == code, "\(path)")
    }
  }

  /// Its stores have the same names, and owe nothing.
  @Test func `asks no store of another folder that came to its path whether everything was sent`() async throws {
    let phone = Phone()
    try await phone.signIn("_alice")
    try await phone.write("n0")
    try await phone.signIn("_bob")
    let accounts = try await phone.accounts
    let alices = try #require(accounts.accounts.first { $0.user == "_alice" })
    let others = try await AccountStores.open(
      at: "/other", syncing: .cloudKitWeb(container, environment: .development, baseURL: "http://cloud.test"),
      environment: environment(phone))
    #expect(try #require(others.store).path == "/other/1")
    try await others.close()
    try phone.disk.renameFolder("/accounts", to: "/moved")
    try phone.disk.renameFolder("/other", to: "/accounts")
    func files(_ path: String) -> [String: [UInt8]] {
      var found: [String: [UInt8]] = [:]
      for file in phone.disk.paths where file.hasPrefix(path + "/") { found[file] = phone.disk.peek(file) }
      return found
    }
    let (theirs, own) = (files("/accounts"), files("/moved/1"))
    let error = await #expect(throws: StrandlineError.self) { try await accounts.remove(alices) }
    #expect(error?.code == .storeReplaced && error?.message.contains("folder of accounts") == true)
    #expect(files("/accounts") == theirs)
    #expect(files("/moved/1") == own && !own.isEmpty)
    // Where nothing is at the path, nothing is made there.
    try phone.disk.renameFolder("/accounts", to: "/elsewhere")
    #expect(await #expect(throws: StrandlineError.self) { try await accounts.remove(alices) }?.code == .storeReplaced)
    #expect(files("/accounts").isEmpty)
    // Back at its place, the removal that was begun goes on.
    try phone.disk.renameFolder("/moved", to: "/accounts")
    try await accounts.remove(alices)
    let archive = try #require(accounts.accounts.first { $0.isArchive })
    let kept = try await RecordStore.openReadOnly(at: archive.path, environment: environment(phone))
    #expect(try kept.pendingChanges().changes.map(\.id.name) == ["n0"])
    #expect(files("/accounts/1").isEmpty)
  }

  private func environment(_ phone: Phone) -> StoreEnvironment {
    StoreEnvironment(
      SystemEnvironment(fileSystem: phone.disk, clock: phone.clock, random: SeededRandom(seed: 77)), isSimulated: true)
  }
}

extension Phone {
  func signOut() async throws {
    device?.use(nil)
    try await accounts.signOut()
  }
}
