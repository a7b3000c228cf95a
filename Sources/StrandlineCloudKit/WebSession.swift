// A signed-in user's session with CloudKit Web Services: one token, valid for one request, replaced by each answer.
//
// A token's successor is durable in the session file before the next request is sent: a process that ends between an
// answer and the next request finds the token that the server expects. The file lies beside the log, readable by its
// owner only; the token is never an event and never printed.

internal import Strandline
package import StrandlineSystem

/// The credential of one user, shared by all databases of that user.
public final class WebSession: Sendable, CustomStringConvertible {
  private struct State {
    var file: SessionFile
    var token: String?
    /// The token is not durable yet: no request may be sent before it is.
    var isUnsaved = false
    /// The server refused the token: the next request reads the file again, because another process may have signed in.
    var isRefused = false
    var refusal: Refusal?
    /// Whose the token is, as the server has said of it or of the one that it succeeds; nil if the server was not asked.
    var user: String?
  }

  /// What the server has said of a token, or of a request without one.
  private struct Refusal {
    var token: String?
    var error: CloudError
    /// How often in a row.
    var count: Int
    /// It is not sent before, by the monotonic clock.
    var end: UInt64
  }

  private let path: String
  private let state: OrderedMutex<State>
  /// Keeps one request in flight, over all databases of the user.
  let queue = RequestQueue()

  /// After this a token is sent again that was refused: the server may have been wrong. The time doubles while it goes on, up to an hour.
  static let refusedMilliseconds: UInt64 = 4_000
  static let refusedMillisecondsMax: UInt64 = 3_600_000

  /// The most bytes of a token. The service's tokens have a few hundred.
  package static let bytesMax = 16 * 1024

  /// Opens the session kept in a file; a missing file is a session without a token.
  package init(
    path: String, environment: SystemEnvironment
  ) throws {
    var file = try CallSite.unnamed.run("opening the session") {
      try SessionFile(path, environment.fileSystem)
    }
    self.path = file.path
    let token = try CallSite.unnamed.run("opening the session") { try file.read() }
    self.state = OrderedMutex(State(file: file, token: token))
  }

  /// Opens the session kept in a file of this machine; a missing file is a session without a token.
  ///
  /// - Throws: `StrandlineError(.io)` if the file cannot be read or holds no token.
  public convenience init(path: String) throws {
    try self.init(path: path, environment: .real)
  }

  /// Whether the session has a token; the server may still refuse it.
  public var hasToken: Bool { state.withLock { $0.token != nil } }

  /// Stores the token of a new sign-in. When this returns, it is durable in the session file.
  ///
  /// - Parameters:
  ///   - token: the web auth token that the sign-in page returned.
  /// - Throws: `StrandlineError`: `.invalidValue` if it cannot be a token, `.io` and `.diskFull` if the file cannot be
  ///   written; then the session keeps its old token.
  public func signIn(token: String) throws {
    try CallSite.unnamed.run("keeping the session") {
      guard WebSession.isToken(token) else {
        throw StrandlineError(
          .invalidValue,
          "the web auth token is empty, longer than \(WebSession.bytesMax) bytes, or holds a character outside printable "
            + "ASCII; pass the token as the sign-in page returned it")
      }
      try state.withLock { state in
        try state.file.write(token)
        state = State(file: state.file, token: token)
      }
    }
  }

  /// The token for the next request; nil if no user is signed in. The token is durable when this returns.
  package func tokenForRequest() throws -> String? {
    try state.withLock { state in
      try Self.saveUnsaved(&state)
      if state.isRefused || state.token == nil || state.refusal.map({ $0.token == state.token }) ?? false {
        let token = try state.file.read()
        // One that another process has left there may be another user's.
        if token != state.token { state.user = nil }
        state.token = token
        state.isRefused = false
      }
      return state.token
    }
  }

  /// Signs the user out: when this returns, there is no token in the session file and none in memory.
  ///
  /// - Throws: `StrandlineError.io` if the file cannot be removed; then the session keeps its token.
  public func signOut() throws {
    try CallSite.unnamed.run("forgetting the session") {
      try state.withLock { state in
        try state.file.remove()
        state = State(file: state.file, token: nil)
      }
    }
  }

  /// Whose the token of the next request is, as the server has said; nil if it was not asked since the token came from outside.
  var user: String? { state.withLock { $0.user } }

  /// Records whose a token is, unless another one has come meanwhile.
  func isUsers(_ user: String, _ token: String?) {
    state.withLock { if $0.token == token { $0.user = user } }
  }

  /// Stores the successor that the answer to a request with `old` brought, unless somebody has signed in or out meanwhile. One that
  /// cannot be written is kept in memory, and `tokenForRequest` writes it, or throws, before it is sent.
  ///
  /// - Returns: the token of which the answer speaks: the successor, or `old`. It is not the token of whoever has signed in meanwhile.
  @discardableResult
  func rotate(from old: String, to token: String) -> String {
    state.withLock { state in
      guard WebSession.isToken(token), state.token == old, old != token else { return old }
      (state.token, state.isRefused, state.isUnsaved) = (token, false, true)
      // If it fails, `tokenForRequest` tries again and throws if it fails again.
      try? Self.saveUnsaved(&state)
      return state.token == token ? token : old
    }
  }

  /// Brings the token to the file, unless another process has signed in or out since, or has brought the session further: then what
  /// that has left there counts.
  private static func saveUnsaved(_ state: inout State) throws {
    guard state.isUnsaved, let token = state.token else { return }
    if try !state.file.replace(with: token) { (state.token, state.user) = (try state.file.read(), nil) }
    state.isUnsaved = false
  }

  /// Records that the server refused the token.
  package func markRefused() {
    state.withLock { if !$0.isUnsaved { $0.isRefused = true } }
  }

  /// Records with what the server refused a token, or a request without one.
  ///
  /// - Parameter now: by the monotonic clock.
  func refused(_ token: String?, _ error: CloudError, at now: UInt64) {
    state.withLock { state in
      let before = state.refusal.flatMap { $0.token == token ? $0.count : nil } ?? 0
      let wait = min(Self.refusedMillisecondsMax, Self.refusedMilliseconds << UInt64(min(before, 10)))
      state.refusal = Refusal(token: token, error: error, count: before + 1, end: now &+ wait &* 1_000_000)
    }
  }

  /// A person wants to know: a token that was refused is sent once more.
  func endOwnWaits() { state.withLock { $0.refusal?.end = 0 } }

  /// The server has taken a token.
  func wasTaken() { state.withLock { $0.refusal = nil } }

  /// With what the server has refused this token; nil if it may be sent.
  func refusal(of token: String?, at now: UInt64) -> CloudError? {
    state.withLock { $0.refusal.flatMap { $0.token == token && now < $0.end ? $0.error : nil } }
  }

  /// The session file's path, without the token.
  public var description: String { "session in \(path)" }

  fileprivate static func isToken(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= bytesMax && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
  }
}

/// The file of a session. From the first time that it was found or written, it is written through the folder that it was
/// in then: so a store that takes the place of the one beside it never gets its token. It is read where it lies now.
private struct SessionFile: Sendable {
  /// The path of the file, from the root.
  let path: String
  private let fileSystem: any FileSystem
  private let parent: String
  private let name: String
  private var folder: (any Folder)?
  /// The token that was found in the file, or written into it, last; nil if there was none.
  private var known: String?

  init(_ path: String, _ fileSystem: any FileSystem) throws {
    do {
      self.path = try fileSystem.absolutePath(path)
    } catch {
      throw StrandlineError(.io, "cannot tell where the session file '\(path)' is", file: path, underlying: error)
    }
    guard self.path != "/" else { throw StrandlineError(.io, "the session file '/' is a folder", file: "/") }
    self.fileSystem = fileSystem
    let slash = self.path.lastIndex(of: "/") ?? self.path.startIndex
    parent = slash == self.path.startIndex ? "/" : String(self.path[..<slash])
    name = String(self.path[self.path.index(after: slash)...])
  }

  mutating func read() throws -> String? {
    do {
      known = nil
      guard let folder = try opened(), let text = try text(in: folder) else { return nil }
      self.folder = folder
      if text.isEmpty { return nil }
      guard WebSession.isToken(text) else {
        throw StrandlineError(
          .io, "the session file '\(path)' holds something other than a web auth token; sign in again or remove it",
          file: path)
      }
      known = text
      return text
    } catch let error as SystemError {
      throw StrandlineError(.io, "cannot read the session file '\(path)'", file: path, underlying: error)
    }
  }

  /// nil if there is no file.
  private func text(in folder: any Folder) throws(SystemError) -> String? {
    guard try folder.kind(of: name) != .absent else { return nil }
    let file = try folder.open(name, .read)
    defer { file.close() }
    let bytes = try file.read(at: 0, count: WebSession.bytesMax + 1)
    return String(decoding: bytes, as: UTF8.self).trimmingSpaces()
  }

  /// Writes a token as `write`, if the file still holds what was read or written last. Of two processes that do so at once the
  /// later one wins.
  ///
  /// - Returns: false if it does not; then nothing was written.
  mutating func replace(with token: String) throws -> Bool {
    do throws(SystemError) {
      var isThere = folder != nil
      if !isThere { isThere = try fileSystem.kind(of: parent) != .absent }
      let found = isThere ? try text(in: held()) : nil
      guard (found ?? "").equalsUTF8(known ?? "") else { return false }
    } catch {
      throw StrandlineError(.io, "cannot read the session file '\(path)'", file: path, underlying: error)
    }
    try write(token)
    return true
  }

  /// The folder through which it is written.
  private func held() throws(SystemError) -> any Folder {
    if let folder { folder } else { try fileSystem.folder(parent) }
  }

  /// nil if nothing lies there.
  private mutating func opened() throws(SystemError) -> (any Folder)? {
    guard try fileSystem.kind(of: parent) != .absent else {
      folder = nil
      return nil
    }
    let here = try fileSystem.folder(parent)
    // One that was moved, removed or replaced is read no more: a sign-in by another process goes to the path.
    if let folder, let own = try folder.identity(of: "."), let there = try here.identity(of: ".") {
      if own.isSame(as: there) { return folder }
    }
    folder = nil
    return here
  }

  /// Removes the file and what a crash has left of a new one, durably.
  mutating func remove() throws {
    do throws(SystemError) {
      known = nil
      guard try fileSystem.kind(of: parent) != .absent else { return }
      let folder = try held()
      var isThere = false
      for name in [name, name + ".tmp"] where try folder.kind(of: name) != .absent {
        try folder.unlink(name)
        isThere = true
      }
      if isThere { try folder.sync() }
    } catch {
      throw StrandlineError(.io, "cannot remove the session file '\(path)'", file: path, underlying: error)
    }
  }

  /// Writes a temporary file, syncs it, renames it, syncs the folder: after a crash the session file holds the old token
  /// or the new one.
  mutating func write(_ token: String) throws {
    let temporary = name + ".tmp"
    do throws(SystemError) {
      let folder = try held()
      if try folder.kind(of: temporary) != .absent { try folder.unlink(temporary) }
      let file = try folder.open(temporary, .createPrivate)
      defer { file.close() }
      try file.write(Array((token + "\n").utf8), at: 0)
      try file.sync(.durable)
      try folder.rename(temporary, to: name)
      known = token
      try folder.sync()
      self.folder = folder
    } catch {
      throw StrandlineError(
        error.isFull ? .diskFull : .io, "cannot write the session's new token to '\(path)'", file: path,
        underlying: error)
    }
  }
}
