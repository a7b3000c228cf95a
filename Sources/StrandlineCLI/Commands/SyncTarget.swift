// The server that a verb syncs a store with: its address and its tokens, from the command line. Tokens are read from a file
// or the environment and never from an argument, because every user of the machine can read the arguments of a process.

import Foundation
import Strandline
import StrandlineCloudKit
import StrandlineHost
import StrandlineSystem
import Synchronization

/// A store, and the server to sync it with.
struct SyncTarget {
  let storePath: String
  private let url: String
  private let address: CloudAddress
  private let apiToken: String
  private let sessionPath: String?
  /// The types whose newest records come first to a store that has nothing of a zone yet.
  private let recentTypes: [String]
  /// The zones that are not synced.
  private let leftOut: Set<ZoneID>
  private let console: Console

  private static let tokenBytesMax = 16 << 10

  static let container = Option("--container", "ID", "The container, such as iCloud.com.example.notes.")
  static let environment = Option("--environment", "NAME", "development or production. Default: development.")
  static let apiToken = Option("--api-token-file", "FILE", "A file that holds the container's API token.")
  static let sessionToken = Option(
    "--session-token-file", "FILE", "A file with the session token; each new token is written to it.")

  /// - Parameter option: the option that names the server.
  init(_ arguments: Arguments, _ verb: String, url option: String, _ console: Console) throws {
    guard let url = arguments[option] else { throw UsageError(message: "\(verb) needs \(option) URL") }
    guard let container = arguments["--container"] else { throw UsageError(message: "\(verb) needs --container ID") }
    // A store keeps the container of its first sync for life.
    guard !container.isEmpty, container.utf8.allSatisfy(Self.isOfContainer) else {
      throw UsageError(
        message: "--container takes letters, digits, '.', '-' and '_', as in iCloud.com.example.notes, not "
          + "'\(container.prefix(80))'")
    }
    if let defect = Self.defect(url: url) {
      throw UsageError(message: "\(option) takes http:// or https://, a host and optionally a port, \(defect)")
    }
    let name = arguments["--environment"] ?? CloudEnvironment.development.rawValue
    guard let environment = CloudEnvironment(rawValue: name) else {
      throw UsageError(message: "--environment takes development or production, not '\(name)'")
    }
    self.url = url
    self.console = console
    storePath = arguments.operands[0]
    address = CloudAddress(container: container, environment: environment)
    recentTypes = arguments.all("--recent")
    if recentTypes.contains("") { throw UsageError(message: "--recent takes the name of a record type, not ''") }
    leftOut = Set(arguments.all("--leave-out").map { ZoneID($0) })
    if arguments.all("--leave-out").contains("") {
      throw UsageError(message: "--leave-out takes the name of a zone, not ''")
    }
    sessionPath = arguments["--session-token-file"]
    apiToken =
      try arguments["--api-token-file"].map { try Self.token(in: $0, console) }
      ?? console.variable("STRANDLINE_API_TOKEN") ?? ""
    if apiToken.isEmpty,
      URLComponents(string: url)?.host == URLComponents(string: WebServicesDatabase.appleOrigin)?.host
    {
      throw UsageError(
        message: "CloudKit needs the container's API token: name its file with --api-token-file, or set "
          + "STRANDLINE_API_TOKEN")
    }
  }

  private static func isOfContainer(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"),
      UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
      true
    default: false
    }
  }

  /// What is wrong with a server's URL, if anything.
  ///
  /// The URL is part of errors that the store keeps in its log, so it must not hold a password, and a refused one is not
  /// repeated: the user's terminal may be recorded.
  private static func defect(url text: String) -> String? {
    if text.contains("@") { return "and no user name or password; tokens are read from files or the environment" }
    guard let parts = URLComponents(string: text), ["http", "https"].contains(parts.scheme?.lowercased() ?? ""),
      let host = parts.host, !host.isEmpty, parts.port.map({ (1...65535).contains($0) }) ?? true
    else { return "not '\(printable(text))'" }
    // A lone slash at the end means the same as none.
    guard ["", "/"].contains(parts.path), parts.query == nil, parts.fragment == nil else {
      return "and neither a path nor a query, not '\(printable(text))'"
    }
    return nil
  }

  private static func token(in path: String, _ console: Console) throws -> String {
    let file: any File
    do { file = try console.fileSystem.open(path, .read) } catch {
      throw Failure(Failure.code(of: error), "cannot read the token file '\(path)': \(error)")
    }
    defer { file.close() }
    let text = String(decoding: try file.read(at: 0, count: tokenBytesMax + 1), as: UTF8.self)
    let token = text.split(whereSeparator: \.isWhitespace)
    guard token.count == 1, let word = token.first, word.utf8.count <= tokenBytesMax else {
      throw Failure(.dataDamaged, "the token file '\(path)' must hold one token and nothing else")
    }
    return String(word)
  }

  /// Opens the store, which is created if it is missing.
  ///
  /// - Parameter isAutomatic: it syncs by itself.
  func open(_ session: SessionBox, isAutomatic: Bool) async throws -> RecordStore {
    let fresh = console.variable("STRANDLINE_SESSION")
    var configuration = SyncConfiguration {
      [address, apiToken, url, sessionPath, timeout = console.requestTimeout] storePath, environment in
      let opened = try WebSession(path: sessionPath ?? storePath + "/session", environment: environment.system)
      if isAutomatic, let fresh, !opened.hasToken { try opened.signIn(token: fresh) }
      session.set(opened)
      return WebServicesDatabase(
        address: address, apiToken: apiToken, session: opened, baseURL: url,
        transport: NetworkTransport(timeout: timeout, totalTimeout: 6 * timeout), environment: environment.system)
    }
    configuration.isAutomatic = isAutomatic
    if !leftOut.isEmpty { configuration.zones = .allBut(leftOut) }
    if !recentTypes.isEmpty { configuration.firstFetch = .recentFirst(types: recentTypes) }
    return try await RecordStore.open(
      at: storePath, syncing: configuration, environment: StoreEnvironment(console.environment))
  }

  /// Makes a run. The token of a new sign-in (STRANDLINE_SESSION) is used only if there is no session yet or the
  /// server refuses the stored token: each request replaces the token, so the stored one is newer than the variable's.
  func signedIn<Value>(_ session: SessionBox, _ body: () async throws -> Value) async throws -> Value {
    let fresh = console.variable("STRANDLINE_SESSION")
    if let fresh, let session = session.get(), !session.hasToken {
      try session.signIn(token: fresh)
      return try await body()
    }
    do { return try await body() } catch let error as StrandlineError where error.code == .needsSignIn {
      guard let fresh, let session = session.get() else { throw error }
      try session.signIn(token: fresh)
      return try await body()
    }
  }

  /// The error with the remedy that fits a sync.
  func failure(_ error: any Error) -> any Error {
    guard let error = error as? StrandlineError else { return error }
    var failure = Failure(error, store: storePath)
    if (error.underlying as? CloudError)?.code == .noSecureConnection {
      #if canImport(Darwin)
        failure.remedy = "a certificate for this address, of an authority that the keychain trusts"
      #else
        failure.remedy =
          "a certificate for this address, of an authority that this machine trusts or that SSL_CERT_FILE=FILE names"
      #endif
    } else if error.code == .throttled || error.code == .unreachable {
      let wait = error.retryAfter.map { "in \(Int($0.rounded(.up))) seconds" } ?? "in a minute"
      failure.remedy = "the same command \(wait); the store keeps what was not sent"
    }
    return failure
  }
}

/// Passes the session from the closure that makes the database to the code that signs in.
final class SessionBox: Sendable {
  private let session = Mutex<WebSession?>(nil)
  func set(_ opened: WebSession) { session.withLock { $0 = opened } }
  func get() -> WebSession? { session.withLock { $0 } }
}
