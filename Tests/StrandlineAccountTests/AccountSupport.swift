// A device with a folder of accounts and a server with several users, in one process: on the web, where a session says who is
// signed in, and as an app on a device whose account the system keeps.

import Strandline
import StrandlineCloudKit
import StrandlineServer
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting
import Synchronization
import Testing

let container = "iCloud.test"

/// Carries requests to the server, or not; and does something before one of them.
final class Line: Transport {
  struct State: Sendable {
    var isCut = false
    /// How many of the next requests are refused as not signed in.
    var refusals = 0
    /// Done before the request that makes `count` this number.
    var hook: (number: Int, body: @Sendable () throws -> Void)?
    var paths: [String] = []
  }
  private let inner: InProcessTransport
  private let clock: SimulatedClock
  let state = Mutex(State())

  init(_ server: CloudServer, _ clock: SimulatedClock) {
    inner = InProcessTransport(server, waitsForDroppedAnswers: false)
    self.clock = clock
  }

  /// How many requests have left.
  var count: Int { state.withLock { $0.paths.count } }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    clock.advance(milliseconds: 1)
    let (isCut, isRefused, hook) = state.withLock { state in
      state.paths.append(request.path)
      let isRefused = state.refusals > 0
      state.refusals = max(0, state.refusals - 1)
      guard let hook = state.hook, hook.number <= state.paths.count else {
        return (state.isCut, isRefused, nil as (@Sendable () throws -> Void)?)
      }
      state.hook = nil
      return (state.isCut, isRefused, hook.body)
    }
    try hook?()
    if isCut { throw CloudError(.networkError, reason: "the line is cut") }
    if isRefused {
      return HTTPResponse(
        status: 421,
        body: Array(#"{"serverErrorCode":"AUTHENTICATION_REQUIRED","redirectURL":"http://cloud.test/signin"}"#.utf8))
    }
    return try await inner.send(request)
  }
}

/// The account of a device: the system says whose it is, and the requests of whoever it is reach the server.
final class DeviceAccount: ForwardingDatabase {
  private let user = Mutex<String?>(nil)
  private let databases = Mutex<[CloudName: any CloudDatabase]>([:])
  private let nobodys: any CloudDatabase
  private let make: @Sendable (String) -> any CloudDatabase

  init(_ nobodys: any CloudDatabase, _ make: @escaping @Sendable (String) -> any CloudDatabase) {
    (self.nobodys, self.make) = (nobodys, make)
  }

  func use(_ name: String?) { user.withLock { $0 = name } }

  var base: any CloudDatabase {
    guard let name = user.withLock({ $0 }) else { return nobodys }
    return databases.withLock { databases in
      if let known = databases[name] { return known }
      let made = make(name)
      databases[name] = made
      return made
    }
  }

  func user() async throws -> String {
    guard let name = user.withLock({ $0 }) else { throw CloudError(.noAccount, reason: "the device has no account") }
    return name
  }
}

/// One device, and the server.
final class Phone {
  let server: CloudServer
  let clock = SimulatedClock(wallMilliseconds: 1_780_000_000_000, autoAdvance: true)
  let line: Line
  /// The account that the system keeps; nil on the web.
  let device: DeviceAccount?
  private(set) var disk = SimulatedDisk()
  /// What the accounts reach the disk through; the disk itself if it is nil.
  var through: (any FileSystem)?
  var rules = AccountRules()
  private(set) var open: AccountStores?
  /// The folder of accounts.
  private let path: String
  private let seed: UInt64

  init(seed: UInt64 = 1, isOnDevice: Bool = false, path: String = "/accounts") {
    self.seed = seed
    self.path = path
    var faults = ServerFaults()
    faults.requireSession = true
    let server = CloudServer(
      inMemory: SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: seed ^ 0x5EC1)),
      faults: faults)
    self.server = server
    let line = Line(server, clock)
    self.line = line
    device =
      isOnDevice
      ? DeviceAccount(Self.web(line, nil)) { user in Self.web(line, server.signIn(user: user)) } : nil
  }

  /// A client of the server with a session of its own, in memory.
  private static func web(_ transport: any Transport, _ token: String?) -> any CloudDatabase {
    do {
      let environment = SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: SimulatedClock(), random: SeededRandom(seed: 5))
      let session = try WebSession(path: "/session", environment: environment)
      if let token { try session.signIn(token: token) }
      return WebServicesDatabase(
        address: CloudAddress(container: container, environment: .development), apiToken: "", session: session,
        baseURL: "http://cloud.test",
        transport: transport, environment: environment)
    } catch {
      preconditionFailure("\(error)")
    }
  }

  /// Another device of a user.
  func other(_ user: String) -> any CloudDatabase { Self.web(InProcessTransport(server), server.signIn(user: user)) }

  private var configuration: SyncConfiguration {
    var configuration: SyncConfiguration
    if let device {
      configuration = SyncConfiguration(device)
    } else {
      let line = line
      configuration = .cloudKitWeb(
        CloudAddress(container: container, environment: .development), apiToken: "", baseURL: "http://cloud.test",
        making: { line })
    }
    configuration.isAutomatic = false
    return configuration
  }

  /// The accounts; opened if they are not.
  var accounts: AccountStores {
    get async throws {
      if let open { return open }
      var environment = StoreEnvironment.simulated(disk: disk, clock: clock, seed: seed)
      if let through {
        var system = environment.system
        system.fileSystem = through
        environment = StoreEnvironment(system, isSimulated: true)
      }
      let made = try await AccountStores.open(
        at: path, syncing: configuration, rules: rules, environment: environment)
      open = made
      return made
    }
  }

  var store: RecordStore {
    get async throws { try #require(try await accounts.store) }
  }

  func close() async throws {
    let closing = open
    open = nil
    try await closing?.close()
  }

  /// Cuts the power; the next call starts the device again.
  func cutPower(_ seed: UInt64) {
    disk = disk.afterPowerCut(seed: seed)
    open = nil
  }

  func restart(on disk: SimulatedDisk) {
    self.disk = disk
    open = nil
  }

  @discardableResult
  func signIn(_ user: String) async throws -> RecordStore? {
    if let device {
      device.use(user)
      return try await accounts.accountMayHaveChanged()
    }
    return try await accounts.signIn(token: server.signIn(user: user))
  }

  /// A user signs in elsewhere on this device: in another process, or in the system's settings.
  var signInElsewhere: @Sendable (String) throws -> Void {
    { [device, disk, clock, server, path] user in
      if let device { return device.use(user) }
      let environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: 8))
      try WebSession(path: path + "/session", environment: environment).signIn(token: server.signIn(user: user))
    }
  }

  func write(_ name: String, _ title: String = "one") async throws {
    try await store.write { tx in
      var record = try tx.record(RecordID(name)) ?? Record(type: "Note", id: RecordID(name), fields: [:])
      record["title"] = .string(title)
      try tx.save(record)
    }
  }

  func erase(_ name: String) async throws {
    try await store.write { tx in try tx.delete(RecordID(name)) }
  }

  /// Syncs the store that is shown; the code of the error, if there is one.
  @discardableResult
  func sync() async throws -> StrandlineError.Code? {
    do { try await store.sync() } catch let error as StrandlineError { return error.code }
    return nil
  }

  func title(_ name: String) async throws -> FieldValue? { try await store.record(RecordID(name))?["title"] }

  var unsettled: Int { get async throws { try await store.status().unsettled } }

  /// What the server has of a user.
  func atServer(_ user: String) throws -> [CloudName: JournalRecord] {
    let key = DatabaseKey(container: container, environment: "development", scope: .private, user: user)
    return try server.records(zone: "Main", in: key) ?? [:]
  }

  func titles(_ user: String) throws -> [String: FieldValue] {
    var titles: [String: FieldValue] = [:]
    for (name, record) in try atServer(user) { titles[name.text] = record.fields["title"] }
    return titles
  }
}

extension CloudDatabase {
  /// Saves a note, as another device does that has no store.
  func put(_ name: String, _ title: String) async throws {
    try await createZone(.main)
    var tag: String?
    if case .record(let record)? = try await lookup([name], in: .main)[name] { tag = record.system.changeTag }
    let operation = CloudOperation(
      tag == nil ? .create : .update, name: name, type: "Note", changeTag: tag, fields: ["title": .string(title)])
    _ = try await modify([operation], in: .main, atomic: false)
  }
}
