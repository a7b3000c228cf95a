// A content that was staged, and the writing of one.

import StrandlineSystem
import Synchronization

/// A file's content that the store has copied and that no transaction may name yet.
///
/// ``RecordStore/stage(contentsOf:fileID:line:)`` makes it. As long as the app keeps it, the content stays; a transaction that saves its
/// ``asset`` in a field keeps it from then on, and this may go.
public final class StagedContent: Sendable {
  /// The value for a field: it names the content by its hash.
  public let asset: Asset
  private let contents: StoreContents
  private let hash: ContentHash

  /// Takes over one hold of `contents`.
  init(_ content: NamedContent, of contents: StoreContents) {
    asset = Asset(contentHash: content.hash, size: content.size)
    hash = content.hash
    self.contents = contents
  }

  deinit { contents.release(hash) }
}

extension StagedContent: CustomStringConvertible {
  /// "staged content of 12 bytes".
  public var description: String { "staged content of \(String.count(asset.size, "byte"))" }
}

/// A content that is being written under a temporary name. It is used by one thread after the other.
final class ContentWriter: Sendable {
  private let folder: ContentFolder
  private let contents: StoreContents
  private let temporary: String
  private let file: any File
  private let bytesMax: Int64
  private let state = Mutex((digest: SHA256Digest(), size: Int64(0), isDone: false))

  init(_ folder: ContentFolder, _ contents: StoreContents, bytesMax: Int64) throws(SystemError) {
    self.folder = folder
    self.contents = contents
    self.bytesMax = bytesMax
    try folder.make()
    temporary = contents.begin(in: folder)
    do throws(SystemError) {
      file = try folder.create(temporary)
    } catch {
      contents.end(temporary)
      throw error
    }
  }

  deinit {
    file.close()
    contents.end(temporary)
  }

  /// Refuses more bytes than the setting allows.
  static func check(_ size: Int64, max bytesMax: Int64) throws(StrandlineError) {
    guard size > bytesMax else { return }
    throw StrandlineError(
      .tooLarge,
      "the content has more than \(bytesMax) bytes, the most that 'StoreOptions.assetBytesMax' allows; CloudKit's web "
        + "services take no larger asset; nothing was kept of it")
  }

  /// Writes the next bytes.
  func write(_ piece: [UInt8]) throws {
    try state.withLock { state in
      let size = state.size + Int64(piece.count)
      try Self.check(size, max: bytesMax)
      try file.write(piece, at: UInt64(state.size))
      state.digest.update(piece)
      state.size = size
    }
  }

  /// Makes the content durable under its hash.
  func finish(isNamed: (ContentHash) -> Bool) throws -> StagedContent {
    let (digest, size) = state.withLock { ($0.digest, $0.size) }
    try file.sync(.durable)
    guard let hash = ContentHash(digest.finish()) else { preconditionFailure("a SHA-256 has 32 bytes") }
    let content = NamedContent(hash: hash, size: size)
    try contents.publish(temporary, as: content, in: folder, isNamed: isNamed)
    state.withLock { $0.isDone = true }
    return StagedContent(content, of: contents)
  }

  /// Removes what was written, if it got no name. What cannot be removed, the next open removes; the first failure counts.
  func discard() {
    guard state.withLock({ !$0.isDone }) else { return }
    _ = Result { () throws(SystemError) in try folder.remove(temporary) }
  }
}
