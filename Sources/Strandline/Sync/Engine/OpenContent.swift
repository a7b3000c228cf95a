// A content of the store while it goes up: held, so that it stays, and read piece by piece.

import StrandlineSystem

/// A content that is being uploaded.
final class OpenContent: Sendable {
  /// Reads it, as long as this object is there.
  let source: ContentSource
  private let reading: Reading

  /// Why it could not be read; nil if it could.
  var failure: StrandlineError? { reading.failure.withLock { $0 } }

  init(_ content: NamedContent, in store: RecordStore) {
    let folder = ContentFolder(store.source.folder)
    let reading = Reading(content, folder, store.contents)
    self.reading = reading
    source = ContentSource(size: content.size, path: folder.path(of: content.hash)) { offset, count in
      try reading.read(at: offset, count)
    }
  }

  private final class Reading: Sendable {
    let failure = OrderedMutex<StrandlineError?>(nil)
    private let file = OrderedMutex<(any File)?>(nil)
    private let content: NamedContent
    private let folder: ContentFolder
    private let contents: StoreContents

    init(_ content: NamedContent, _ folder: ContentFolder, _ contents: StoreContents) {
      (self.content, self.folder, self.contents) = (content, folder, contents)
      contents.hold(content.hash)
    }

    deinit {
      file.withLock { $0?.close() }
      contents.release(content.hash)
    }

    func read(at offset: Int64, _ count: Int) throws -> [UInt8] {
      do {
        let open = try file.withLock { $0 } ?? opened()
        let bytes = try open.read(at: UInt64(offset), count: count)
        guard !bytes.isEmpty || count == 0 else { throw damage("it ends after \(offset) bytes") }
        return bytes
      } catch {
        let known = error as? StrandlineError ?? damage("it cannot be read: \(error)")
        failure.withLock { $0 = known }
        throw known
      }
    }

    private func opened() throws -> any File {
      guard let size = try folder.size(of: content.hash) else { throw damage("it is not there") }
      guard size == content.size else { throw damage("it has \(size) bytes") }
      // A file that something else has changed would go up as the content that the record names.
      guard try folder.hash(of: content.hash) == content.hash else {
        throw damage("its bytes are not those of its hash")
      }
      let open = try folder.open(content.hash)
      file.withLock { $0 = open }
      return open
    }

    private func damage(_ words: String) -> StrandlineError {
      let path = folder.path(of: content.hash)
      return StrandlineError(
        .damaged,
        "the content '\(path)' of \(content.size) bytes cannot be uploaded: \(words); restore it from a backup, or save another "
          + "one in its place", file: path)
    }
  }
}
