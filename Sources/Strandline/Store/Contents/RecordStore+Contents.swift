// The contents of files, as an app sees them: staged before a transaction names them, kept as long as an event does, removed when
// none does any more.

import StrandlineLog
import StrandlineSystem

extension RecordStore {
  var contents: StoreContents { core.contents }

  /// Copies a file into the store, so that a transaction can name its content.
  ///
  /// ```swift
  /// let photo = try await store.stage(contentsOf: path)
  /// try await store.write { try $0.save(Picture(title: "The pier", photo: photo.asset)) }
  /// ```
  ///
  /// When this returns, the content is on the medium: a transaction that names it never names what a power cut takes. Writers do not
  /// wait meanwhile. The file itself is not changed and not needed any more. Equal contents are stored once.
  ///
  /// The content stays as long as the result is kept, as long as a record or its history names it, and for 24 hours after this call, so
  /// that an app that is closed in between can name it by its hash. After that the store removes it.
  ///
  /// - Returns: what holds the content; its `asset` is the value for a field.
  /// - Throws: `StrandlineError`: `.tooLarge` above ``StoreOptions/assetBytesMax``, `.diskFull` and `.io` (also if the file cannot be
  ///   read); nothing is kept then. `.readOnly`, `.suspended`, `.closed`; `.misuse` inside a closure of `write`.
  /// - Complexity: O(bytes of the file), read and written once; three syncs; memory for one piece of 1 MiB.
  public func stage(contentsOf path: String, fileID: String = #fileID, line: Int = #line) async throws -> StagedContent
  {
    try await staging(fileID, line) { writer in
      let file = try Self.open(path, self.environment.fileSystem)
      defer { file.close() }
      try ContentWriter.check(Int64(clamping: try file.size()), max: self.assetBytesMax)
      try ContentFolder.forEachPiece(of: file) { try writer.write($0) }
    }
  }

  /// Copies bytes into the store, so that a transaction can name them as the content of an asset. See ``stage(contentsOf:fileID:line:)``.
  ///
  /// - Throws: `StrandlineError` as the other one.
  public func stage(_ bytes: [UInt8], fileID: String = #fileID, line: Int = #line) async throws -> StagedContent {
    try await staging(fileID, line) { writer in
      try ContentWriter.check(Int64(bytes.count), max: self.assetBytesMax)
      try writer.write(bytes)
    }
  }

  /// Copies what comes in pieces into the store, such as a download. See ``stage(contentsOf:fileID:line:)``.
  ///
  /// - Throws: `StrandlineError` as the other one; what the sequence throws, and `CancellationError`: nothing is kept then.
  public func stage<Pieces: AsyncSequence>(
    pieces: Pieces, fileID: String = #fileID, line: Int = #line
  ) async throws -> StagedContent where Pieces.Element == [UInt8] {
    let site = CallSite(fileID, line)
    return try await site.run(stagingWords) {
      let writer = try self.contentWriter()
      do {
        for try await piece in pieces { try writer.write(piece) }
        try Task.checkCancellation()
        return try await onContentThread { try self.finish(writer) }
      } catch {
        writer.discard()
        throw error
      }
    }
  }

  private var stagingWords: String { "staging a content in the store at '\(path)'" }

  private func staging(
    _ fileID: String, _ line: Int, _ body: @escaping @Sendable (ContentWriter) throws -> Void
  ) async throws -> StagedContent {
    try await CallSite(fileID, line).run(stagingWords) {
      try await onContentThread {
        let writer = try self.contentWriter()
        do {
          try body(writer)
          return try self.finish(writer)
        } catch {
          writer.discard()
          throw error
        }
      }
    }
  }

  private func contentWriter() throws -> ContentWriter {
    try core.requireFree(for: "stage", instead: "call it before, and name its asset here")
    try requireWritable()
    guard case .writer(let log) = source else {
      throw StrandlineError(.readOnly, "the store at '\(path)' was opened for reading only")
    }
    return try ContentWriter(ContentFolder(log.folder), contents, bytesMax: assetBytesMax)
  }

  private func finish(_ writer: ContentWriter) throws -> StagedContent {
    let durable = source.durableLSN
    let isOverdue = contents.waiting { hash in projections.withLock { $0.contents.contains(hash) } }?.isOverdue == true
    let staged = try writer.finish { hash in projections.withLock { $0.contents.contains(hash, upTo: durable) } }
    if isOverdue { clearUpContents() }
    return staged
  }

  private var assetBytesMax: Int64 { core.withLock { $0.declared.assetBytesMax } }

  /// Reading and writing a file blocks its thread. Where everything happens in turns, the caller does it.
  func onContentThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    if case .inTurns = environment.overlap { return try work() }
    let result = OrderedMutex<Value?>(nil)
    try await onOwnThread {
      let value = try work()
      result.withLock { $0 = value }
    }
    guard let value = result.withLock({ $0 }) else { preconditionFailure("the work has ended without a value") }
    return value
  }

  private static func open(_ path: String, _ fileSystem: any FileSystem) throws(SystemError) -> any File {
    let absolute = try fileSystem.absolutePath(path)
    let slash = absolute.lastIndex(of: "/") ?? absolute.startIndex
    let parent = slash == absolute.startIndex ? "/" : String(absolute[..<slash])
    return try fileSystem.folder(parent).open(String(absolute[absolute.index(after: slash)...]), .read)
  }

  /// How many contents were staged that no event names yet.
  func stagedContents(isNamed: (ContentHash) -> Bool) throws -> Int {
    if let known = contents.waiting(isNamed: isNamed) { return known.count }
    // Another process has them, or the first clearing up has not read the file yet.
    return try ContentFolder(source.folder).staged()?.times.keys.count { !isNamed($0) } ?? 0
  }

  // MARK: Contents beside lines

  /// Copies all contents to the folder at `path`, which is made if it is missing, each under `assets/` and its hash.
  ///
  /// - Returns: how many bytes were copied; contents that are there are not copied again.
  /// - Throws: `StrandlineError`: `.damaged` if one is not what its name says; `.diskFull`, `.io`.
  package func copyContents(to path: String) throws -> UInt64 {
    try CallSite.unnamed.run("copying the contents of '\(self.path)' to '\(path)'") {
      let fileSystem = environment.fileSystem
      if try fileSystem.kind(of: path) == .absent { try fileSystem.makeDirectory(path) }
      let (bytes, leftOut) = try ContentFolder(source.folder).copy(to: ContentFolder(try fileSystem.folder(path)))
      // One that has been removed since it was listed is named by nothing.
      guard let damaged = try leftOut.first(where: { try ContentFolder(source.folder).size(of: $0) != nil }) else {
        return bytes
      }
      let file = ContentFolder(source.folder).path(of: damaged)
      throw StrandlineError(.damaged, "the content '\(file)' is not the one that its name says", file: file)
    }
  }

  /// Stages the contents that lie below the folder at `path` as `copyContents` leaves them.
  ///
  /// - Returns: what holds them.
  /// - Throws: `StrandlineError` as `stage`.
  package func stageContents(of path: String) throws -> [StagedContent] {
    try CallSite.unnamed.run("staging the contents below '\(path)'") {
      let folder = ContentFolder(try environment.fileSystem.folder(try environment.fileSystem.absolutePath(path)))
      return try folder.list().contents.map { hash in
        let file = try folder.open(hash)
        defer { file.close() }
        let writer = try contentWriter()
        do {
          try ContentFolder.forEachPiece(of: file) { try writer.write($0) }
          return try finish(writer)
        } catch {
          writer.discard()
          throw error
        }
      }
    }
  }

  // MARK: Clearing up

  /// Removes the contents that nothing needs any more. Also where it cannot, the store can be used: the status says why, and the next
  /// open and the next compaction try again.
  func clearUpContents() {
    guard case .writer(let log) = source, source.damage.isEmpty else { return }
    let folder = ContentFolder(log.folder)
    do throws(SystemError) {
      try contents.clearUp(in: folder) { hash, body in
        core.withLock { core in
          if !core.projections.withLock({ $0.contents.contains(hash) }) { body() }
        }
      }
      contents.failure.withLock { $0 = nil }
    } catch {
      contents.failure.withLock { $0 = "the contents of '\(path)' cannot be cleared up: \(error)" }
    }
  }

  /// The same at the end of an open: what an interrupted session left goes, and so does what has waited for too long. In the background
  /// where the store has one.
  func clearUpContentsOfOpen() {
    guard case .writer(let log) = source, let compaction else { return }
    guard case .inBackground = log.options.upkeep else { return clearUpContents() }
    compaction.enqueue { [weak self] in
      guard let self, (try? self.requireWritable()) != nil else { return }
      self.clearUpContents()
    }
  }

  /// Forgets which of the events that a compaction may have removed name contents.
  ///
  /// - Parameters:
  ///   - limit: what is behind it was not looked at.
  ///   - stays: whether an event is known to have stayed.
  func forgetContents(upTo limit: LSN, but stays: (LSN) -> Bool) throws(StrandlineError) {
    var gone: [(LSN, ContentHash)] = []
    for (lsn, hash) in projections.withLock({ $0.contents.versions(upTo: limit) }) where !stays(lsn) {
      do throws(StrandlineError) {
        // What stays of it without its content, or what was packed in its place, names nothing.
        let event = try source.eventIfKept(at: lsn)
        if event?.namedContents.contains(where: { $0.hash == hash }) != true { gone.append((lsn, hash)) }
      } catch {
        // One that cannot be read may name it.
        guard error.isOfOneRecord else { throw error }
      }
    }
    if !gone.isEmpty {
      projections.withLock { state in for (lsn, hash) in gone { state.contents.remove(hash, at: lsn) } }
    }
  }
}

extension Event {
  /// The contents that it names by their hash.
  fileprivate var namedContents: [NamedContent] {
    switch self {
    case .saved(let event): event.content.namedContents
    case .merged(let event): event.content.namedContents
    case .fetchedSave(let event): event.content.namedContents
    default: []
    }
  }
}

extension WriteTransaction {
  /// Refuses an asset whose content is not here.
  func checkContents(of value: FieldValue?, in field: String, of id: RecordID) throws {
    guard let store, let value else { return }
    for content in value.localContents {
      if core.isNotingForInbox {
        throw StrandlineError(
          .invalidValue,
          "record '\(id)', field '\(field)': the store's inbox takes no contents; stage it in the process that has the "
            + "store open")
      }
      if core.synced?.movesContents == false {
        throw StrandlineError(
          .invalidValue,
          "record '\(id)', field '\(field)': the content of the asset is on this device alone, and the database that this store "
            + "syncs with moves no contents; name one that is at the server")
      }
      let words = "record '\(id)', field '\(field)': the content \(content.hash.hexadecimal.prefix(12))…"
      guard let size = try store.contents.size(of: content.hash, in: ContentFolder(store.source.folder)) else {
        throw StrandlineError(
          .noSuchContent,
          "\(words) is not in the store: stage it with 'stage' before the transaction, and keep what that returns until "
            + "then")
      }
      guard size == content.size else {
        throw StrandlineError(
          .invalidValue,
          "\(words) has \(size) bytes, and the asset says \(content.size): use the one that 'stage' has returned")
      }
    }
  }
}
