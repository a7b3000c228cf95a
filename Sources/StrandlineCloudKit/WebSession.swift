// A signed-in user's session with CloudKit Web Services: one token, good for one round trip, replaced by each
// answer.
//
// The successor of a token is on the disk, under the file's final name, before the next request goes out: a
// process that dies between an answer and the next request finds the token that the server expects. The file
// lies beside the log, readable by its owner only, and the token is never an event, never printed.

internal import Strandline
internal import Synchronization
package import StrandlineSystem

/// The credential of one user, shared by all databases that the user reaches.
public final class WebSession: Sendable, CustomStringConvertible {
  private struct State {
    var token: String?
    /// The token in memory is not on the disk yet: nothing may be sent before it is.
    var isUnsaved = false
    /// The server refused the token: read the file again, somebody may have signed in.
    var isRefused = false
  }

  private let path: String
  private let fileSystem: any FileSystem
  private let state: Mutex<State>
  /// One request at a time, whichever database it goes to.
  let lane = RequestLane()

  /// A token's length is a few hundred characters; a file beyond this is something else.
  package static let bytesMax = 16 * 1024

  /// Opens the session kept in a file; a missing file is a session without a token.
  package init(
    path: String, environment: SystemEnvironment, fileID: String = #fileID, line: Int = #line
  ) throws {
    self.path = path
    self.fileSystem = environment.fileSystem
    let token = try CallSite(fileID, line).run("opening the session") {
      try WebSession.read(path, environment.fileSystem)
    }
    self.state = Mutex(State(token: token))
  }

  /// Opens the session kept in a file of this machine; a missing file is a session without a token.
  ///
  /// - Throws: `StrandlineError(.io)` if the file cannot be read or holds no token.
  public convenience init(path: String, fileID: String = #fileID, line: Int = #line) throws {
    try self.init(path: path, environment: .real, fileID: fileID, line: line)
  }

  /// Whether there is a token at all, good or not.
  public var hasToken: Bool { state.withLock { $0.token != nil } }

  /// Takes a token from a fresh sign-in and keeps it. When this returns, the file holds it durably.
  ///
  /// - Throws: `StrandlineError`: `.invalidValue` if it cannot be a token, `.io` and `.diskFull` if the file cannot be
  ///   written; the token that was there stays.
  public func signIn(token: String, fileID: String = #fileID, line: Int = #line) throws {
    try CallSite(fileID, line).run("keeping the session") {
      guard WebSession.isToken(token) else {
        throw StrandlineError(.invalidValue, "the web auth token is empty or holds characters that no token has")
      }
      try state.withLock { state in
        try WebSession.write(token, path, fileSystem)
        state = State(token: token)
      }
    }
  }

  /// The token for the next request; nil if nobody is signed in. The token is durable when this returns.
  func tokenForRequest() throws -> String? {
    try state.withLock { state in
      if state.isUnsaved, let token = state.token {
        try WebSession.write(token, path, fileSystem)
        state.isUnsaved = false
      }
      if state.isRefused || state.token == nil {
        state.token = try WebSession.read(path, fileSystem)
        state.isRefused = false
      }
      return state.token
    }
  }

  /// Takes the successor that an answer brought. A successor that cannot be written is kept in memory, and
  /// `tokenForRequest` writes it, or fails, before anything is sent with it.
  func rotate(to token: String) {
    guard WebSession.isToken(token) else { return }
    state.withLock { state in
      guard state.token != nil, state.token != token else { return }
      state.token = token
      state.isRefused = false
      do {
        try WebSession.write(token, path, fileSystem)
        state.isUnsaved = false
      } catch {
        // Not lost: `isUnsaved` makes the next request try again and report the failure before it is sent.
        state.isUnsaved = true
      }
    }
  }

  /// The server wants a sign-in.
  func refuse() {
    state.withLock { if !$0.isUnsaved { $0.isRefused = true } }
  }

  /// Never the token.
  public var description: String { "session in \(path)" }

  private static func isToken(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= bytesMax && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
  }

  private static func read(_ path: String, _ fileSystem: any FileSystem) throws -> String? {
    do {
      guard try fileSystem.kind(of: path) != .absent else { return nil }
      let file = try fileSystem.open(path, .read)
      defer { file.close() }
      let bytes = try file.read(at: 0, count: bytesMax + 1)
      let text = String(decoding: bytes, as: UTF8.self).trimmingSpaces()
      if text.isEmpty { return nil }
      guard isToken(text) else {
        throw StrandlineError(
          .io, "the session file '\(path)' holds no web auth token; sign in again or remove it", file: path)
      }
      return text
    } catch let error as SystemError {
      throw StrandlineError(.io, "cannot read the session file '\(path)'", file: path, underlying: error)
    }
  }

  /// Temporary name, sync, rename, sync of the folder: after a crash the file holds the old token or the new one.
  private static func write(_ token: String, _ path: String, _ fileSystem: any FileSystem) throws {
    let temporary = path + ".tmp"
    do {
      if try fileSystem.kind(of: temporary) != .absent { try fileSystem.unlink(temporary) }
      let file = try fileSystem.open(temporary, .createPrivate)
      defer { file.close() }
      try file.write(Array((token + "\n").utf8), at: 0)
      try file.sync(.durable)
      try fileSystem.rename(temporary, to: path)
      try fileSystem.syncDirectory(folder(of: path))
    } catch {
      throw StrandlineError(
        error.isFull ? .diskFull : .io, "cannot keep the session's new token in '\(path)'", file: path,
        underlying: error)
    }
  }

  private static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}
