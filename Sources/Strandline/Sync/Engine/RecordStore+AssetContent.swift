// The content of an asset as a file, for an app that shows it: from this store, or fetched from the server. In this folder because only
// the engine has the server.

import StrandlineLog
import StrandlineSystem

extension RecordStore {
  /// The content of an asset as a file. If this store does not have it, it is fetched from the server; callers that want the same content
  /// share one download. See <doc:Assets>.
  ///
  /// A copy that was fetched stays for the next call, as long as there is room (``StoreOptions/fetchedBytesMax``). Its size is checked, and
  /// its hash if this store has it. If the address that came with the record has expired, the record is looked up for another one.
  ///
  /// - Parameters:
  ///   - asset: the value of a field, as the record was read.
  ///   - record: the record that has it.
  ///   - fileID: the caller's file, for `StrandlineError.location`; leave it out.
  ///   - line: the caller's line; leave it out.
  /// - Returns: what holds the content: its path is valid as long as this is kept.
  /// - Throws: `StrandlineError`: `.noSuchContent` if the record does not name the content (any more), or if it was of this device alone
  ///   and is not there; `.notSyncing` if it would have to be fetched and the store does not sync; of the server `.unreachable`,
  ///   `.throttled`, `.needsSignIn`, `.accountMismatch`, `.serverRefused`; `.diskFull`, `.io`, `.readOnly`, `.suspended`, `.closed`.
  ///   `CancellationError`; the download ends when nobody waits for it any more.
  /// - Complexity: one look into the folder if it is there. Else O(bytes), fetched and written once, with two syncs, and memory for one
  ///   piece.
  public func contents(
    of asset: Asset, in record: RecordID, fileID: String = #fileID, line: Int = #line
  ) async throws -> AssetContent {
    let words = "the content of an asset of '\(record)' in the store at '\(path)'"
    return try await CallSite(fileID, line).run(words) {
      try self.requireWritable()
      guard case .writer(let log) = self.source else {
        throw StrandlineError(.readOnly, "the store at '\(self.path)' was opened for reading only, and keeps no copies")
      }
      let folder = ContentFolder(log.folder)
      if let own = try self.ownContent(of: asset, folder) { return own }
      guard let key = FetchedContents.key(of: asset) else {
        throw StrandlineError(
          .noSuchContent, "\(words) was on this device alone, and is not there any more: restore it from a backup")
      }
      while true {
        if try self.contents.fetched.hold(key, size: asset.size, in: folder) {
          return AssetContent(path: folder.pathOfFetched(key), asset.size) { [contents = self.contents] in
            contents.fetched.release(key)
          }
        }
        let (known, place) = try self.place(of: asset, in: record, words)
        let database = try self.engine.database
        try await self.contents.fetched.share(key) {
          do { try await self.fetch(known, as: key, from: place, database, folder) } catch let error as CloudError {
            if error.code == .notFound { throw StrandlineError(.noSuchContent, "\(words): \(error.reason)") }
            throw error.asStrandlineError("fetching \(words)")
          }
        }
      }
    }
  }

  /// The content in this store; nil if it is not there.
  private func ownContent(of asset: Asset, _ folder: ContentFolder) throws -> AssetContent? {
    guard let hash = asset.contentHash else { return nil }
    // Held before it is looked for, so that it is not removed in between.
    contents.hold(hash)
    let content = AssetContent(path: folder.path(of: hash), asset.size) { [contents] in contents.release(hash) }
    return try contents.size(of: hash, in: folder) == asset.size ? content : nil
  }

  /// The field of a record that names a content, and its value there.
  private func place(of asset: Asset, in id: RecordID, _ words: String) throws -> (Asset, ContentPlace) {
    if let record = try record(id) {
      for (field, value) in record.fields {
        guard let known = value.assets.first(where: { $0.isSameFile(as: asset) }) else { continue }
        return (known, ContentPlace(record: id, type: record.type, field: field))
      }
    }
    throw StrandlineError(.noSuchContent, "\(words): the record names no such content any more; read it again")
  }

  private func fetch(
    _ asset: Asset, as key: ContentHash, from place: ContentPlace, _ database: any CloudDatabase,
    _ folder: ContentFolder
  ) async throws {
    try requireWritable()
    let writer = try FetchedWriter(asset, folder, contents)
    do {
      let sink = ContentSink(size: asset.size) { piece in
        // Once the store is closed or suspended, its folder is not this process's any more.
        try self.requireWritable()
        try writer.write(piece)
      }
      try await database.download(asset, of: place, into: sink)
      let bytesMax = core.withLock { $0.declared.fetchedBytesMax }
      try await onContentThread {
        try self.requireWritable()
        try writer.finish(as: key, bytesMax: bytesMax)
      }
    } catch {
      writer.discard()
      throw error
    }
  }
}

/// The content of an asset, as a file that stays as long as this is kept.
///
/// ``RecordStore/contents(of:in:fileID:line:)`` makes it. The file must not be changed.
public final class AssetContent: Sendable {
  /// Where the file is.
  public let path: String
  /// Its size in bytes.
  public let size: Int64
  private let release: @Sendable () -> Void

  /// Takes over one hold, which `release` ends.
  init(path: String, _ size: Int64, release: @escaping @Sendable () -> Void) {
    (self.path, self.size, self.release) = (path, size, release)
  }

  deinit { release() }
}

extension AssetContent: CustomStringConvertible {
  /// The size, and where it is.
  public var description: String { "content of \(String.count(size, "byte")) at '\(path)'" }
}
