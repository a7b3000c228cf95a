// The contents of assets that the local server has: files in `assets/` of its directory, or bytes in memory.
//
// The files have the form of a store's (Formats/assets.md). What clients see of a content, its `fileChecksum`, is made from the
// content's hash and the journal's UUID, so that no client can compute it, as with CloudKit's.

internal import Strandline
internal import StrandlineSystem

/// A content that the server has.
struct ServerContent: Hashable, Sendable {
  var hash: ContentHash
  var size: Int64
}

/// The contents of a server.
final class ServerContents: Sendable {
  /// nil: they are in memory.
  private let folder: ContentFolder?
  private let storeUUID: [UInt8]
  private let random: any RandomSource
  private let state = OrderedMutex(State())

  private struct State: Sendable {
    /// By `fileChecksum`.
    var known: [CloudName: ServerContent] = [:]
    var inMemory: [ContentHash: [UInt8]] = [:]
  }

  /// - Parameter folder: the open folder of the journal.
  /// - Throws: `SystemError` if it cannot be read.
  init(in folder: any Folder, storeUUID: [UInt8], random: any RandomSource) throws {
    let contents = ContentFolder(folder)
    (self.folder, self.storeUUID, self.random) = (contents, storeUUID, random)
    let found = try contents.list()
    // An upload that was not finished has no answer, and nobody knows its name.
    for name in found.temporaries { try contents.remove(name) }
    for hash in found.contents {
      if let size = try contents.size(of: hash) { learn(ServerContent(hash: hash, size: size)) }
    }
  }

  /// Contents in memory.
  init(inMemory storeUUID: [UInt8], random: any RandomSource) {
    (folder, self.storeUUID, self.random) = (nil, storeUUID, random)
  }

  private func learn(_ content: ServerContent) {
    state.withLock { $0.known[CloudName(checksum(of: content.hash))] = content }
  }

  /// What clients know it by: base64 of 21 bytes, the first of them 1.
  func checksum(of hash: ContentHash) -> String { text([1] + digest(of: hash, for: "file").prefix(20)) }

  /// The value of a field that has it, without receipt and address.
  func file(_ content: ServerContent) -> Asset.ServerFile {
    Asset.ServerFile(
      fileChecksum: checksum(of: content.hash),
      referenceChecksum: text([1] + digest(of: content.hash, for: "reference").prefix(20)),
      wrappingKey: text(digest(of: content.hash, for: "key").prefix(16)))
  }

  private func digest(of hash: ContentHash, for use: String) -> [UInt8] {
    SHA256Digest.of(storeUUID + Array(use.utf8) + hash.bytes)
  }

  private func text(_ bytes: some Sequence<UInt8>) -> String {
    var text: [UInt8] = []
    let bytes = Array(bytes)
    text.append(base64: bytes, 0..<bytes.count)
    return String(decoding: text, as: UTF8.self)
  }

  /// The content of a `fileChecksum`; nil if there is none.
  func find(_ checksum: String) -> ServerContent? { state.withLock { $0.known[CloudName(checksum)] } }

  /// Hands the bytes of a content to `body`, piece by piece, until it returns false.
  ///
  /// - Throws: `SystemError` if the file cannot be read.
  func read(_ content: ServerContent, _ body: ([UInt8]) -> Bool) throws {
    struct Enough: Error {}
    guard let folder else {
      if let bytes = state.withLock({ $0.inMemory[content.hash] }) { _ = body(bytes) }
      return
    }
    let file = try folder.open(content.hash)
    defer { file.close() }
    do {
      try ContentFolder.forEachPiece(of: file) { if !body($0) { throw Enough() } }
    } catch is Enough {}
  }

  // MARK: Uploads

  /// A content that is being uploaded.
  func begin() throws -> Intake {
    guard let folder else { return Intake(.memory([])) }
    try folder.make()
    let name = folder.temporaryName(random)
    return Intake(.file(try folder.create(name), name))
  }

  /// The bytes of an upload, as far as they have come. It is used by one thread.
  final class Intake: Sendable {
    enum Place: Sendable {
      case memory([UInt8])
      case file(any File, String)
    }
    fileprivate let state: OrderedMutex<(place: Place, digest: SHA256Digest, size: Int64)>

    fileprivate init(_ place: Place) { state = OrderedMutex((place, SHA256Digest(), 0)) }

    func write(_ piece: [UInt8]) throws {
      try state.withLock { state in
        switch state.place {
        case .memory(var bytes):
          // Removed while it grows, so that it is not copied.
          state.place = .memory([])
          bytes += piece
          state.place = .memory(bytes)
        case .file(let file, _): try file.write(piece, at: UInt64(state.size))
        }
        state.digest.update(piece)
        state.size += Int64(piece.count)
      }
    }
  }

  /// Keeps what has come. When this returns, it is on the medium.
  func finish(_ intake: Intake) throws -> ServerContent {
    let (place, digest, size) = intake.state.withLock { $0 }
    guard let hash = ContentHash(digest.finish()) else { preconditionFailure("a SHA-256 has 32 bytes") }
    let content = ServerContent(hash: hash, size: size)
    switch place {
    case .memory(let bytes): state.withLock { $0.inMemory[hash] = bytes }
    case .file(let file, let name):
      defer { file.close() }
      try file.sync(.durable)
      try folder?.publish(name, as: hash)
      try folder?.sync()
    }
    learn(content)
    return content
  }

  /// Removes what has come of an upload that has ended early. What cannot be removed, the next start removes.
  func discard(_ intake: Intake) {
    guard case .file(let file, let name) = intake.state.withLock({ $0.place }) else { return }
    file.close()
    _ = Result { () throws(SystemError) in try folder?.remove(name) }
  }
}
