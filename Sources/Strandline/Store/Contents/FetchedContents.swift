// The contents that were fetched from the server: copies, which can be fetched again. They lie beside the store's own contents, each under
// a name that is made from what the server calls it, and together they take no more than a setting allows: what was used last
// stays. A copy that a caller holds is not removed. Layout: Formats/assets.md.

import StrandlineLog
import StrandlineSystem

/// The copies of contents of the server, who holds them, and which are being fetched.
final class FetchedContents: Sendable {
  private let environment: SystemEnvironment
  private let state = OrderedMutex(State())

  private struct State: Sendable {
    /// How many hold each copy.
    var holds: [ContentHash: Int] = [:]
    /// Copies whose files are being removed.
    var removing: Set<ContentHash> = []
    /// When each was used last, in milliseconds since 1970; nil before the file that says it was read.
    var used: StagedNames?
    var downloads: [ContentHash: Download] = [:]
    var lastNumber: UInt64 = 0
  }

  private struct Download: Sendable {
    var number: UInt64
    var task: Task<Void, Never>
    /// Who waits for it, by number.
    var waiting: [UInt64: CheckedContinuation<Void, any Error>] = [:]
  }

  init(_ environment: SystemEnvironment) { self.environment = environment }

  /// The name of a copy: the SHA-256 of what the server calls the file. nil if the server has no name for it.
  static func key(of asset: Asset) -> ContentHash? {
    guard let checksum = asset.server?.fileChecksum else { return nil }
    return ContentHash(SHA256Digest.of(Array("\(asset.size) ".utf8) + Array(checksum.utf8)))
  }

  // MARK: Holding

  /// Holds a copy that is there.
  ///
  /// - Returns: whether it is; if not, nothing is held.
  func hold(_ key: ContentHash, size: Int64, in folder: ContentFolder) throws(SystemError) -> Bool {
    let now = environment.clock.wallMilliseconds()
    let isGoing = state.withLock { state in
      state.holds[key, default: 0] += 1
      state.used?.times[key] = now
      return state.removing.contains(key)
    }
    do throws(SystemError) {
      if !isGoing, try folder.sizeOfFetched(key) == size { return true }
    } catch {
      release(key)
      throw error
    }
    release(key)
    return false
  }

  func release(_ key: ContentHash) {
    state.withLock { state in
      guard let count = state.holds[key] else { return }
      state.holds[key] = count > 1 ? count - 1 : nil
    }
  }

  // MARK: Fetching

  /// Waits for the download of a copy, and begins one if none runs. When the last caller stops waiting, the download is cancelled. A
  /// caller whose task is cancelled returns at once.
  ///
  /// - Throws: the download's error, to all who wait for it; `CancellationError`.
  func share(_ key: ContentHash, _ download: @escaping @Sendable () async throws -> Void) async throws {
    let number = nextNumber()
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        join(key, number, continuation, download)
        // The cancellation may have come before there was anybody to wake.
        if Task.isCancelled { leave(key, number) }
      }
    } onCancel: {
      leave(key, number)
    }
  }

  private func nextNumber() -> UInt64 {
    state.withLock { state in
      state.lastNumber += 1
      return state.lastNumber
    }
  }

  private func join(
    _ key: ContentHash, _ number: UInt64, _ waiter: CheckedContinuation<Void, any Error>,
    _ download: @escaping @Sendable () async throws -> Void
  ) {
    state.withLock { state in
      if state.downloads[key] == nil {
        let task = Task { [weak self] in
          let result: Result<Void, any Error>
          do { result = .success(try await download()) } catch { result = .failure(error) }
          self?.end(key, number, result)
        }
        state.downloads[key] = Download(number: number, task: task)
      }
      state.downloads[key]?.waiting[number] = waiter
    }
  }

  /// A download has ended.
  ///
  /// - Parameter number: that of the caller who has begun it.
  private func end(_ key: ContentHash, _ number: UInt64, _ result: Result<Void, any Error>) {
    let waiting = state.withLock { state in
      state.downloads[key]?.number == number ? state.downloads.removeValue(forKey: key)?.waiting : nil
    }
    for waiter in (waiting ?? [:]).values { waiter.resume(with: result) }
  }

  private func leave(_ key: ContentHash, _ number: UInt64) {
    let (waiter, abandoned) = state.withLock { state -> (CheckedContinuation<Void, any Error>?, Task<Void, Never>?) in
      guard let waiter = state.downloads[key]?.waiting.removeValue(forKey: number) else { return (nil, nil) }
      guard state.downloads[key]?.waiting.isEmpty == true else { return (waiter, nil) }
      return (waiter, state.downloads.removeValue(forKey: key)?.task)
    }
    abandoned?.cancel()
    waiter?.resume(throwing: CancellationError())
  }

  // MARK: The folder

  /// Gives a copy that is on the medium its name, and removes others that were used before and for which there is no room. The caller has
  /// the turn of the folder (`StoreContents.publish`).
  func publish(
    _ temporary: String, as key: ContentHash, in folder: ContentFolder, bytesMax: Int64
  ) throws(SystemError) {
    let now = environment.clock.wallMilliseconds()
    // Who clears up removes no copy that is held.
    state.withLock { $0.holds[key, default: 0] += 1 }
    defer { release(key) }
    try readUsed(folder)
    state.withLock { $0.used?.times[key] = now }
    try folder.publish(temporary, asFetched: key)
    try makeRoom(in: folder, bytesMax: bytesMax)
    try folder.writeUsed(state.withLock { $0.used } ?? StagedNames())
    try folder.sync()
  }

  private func readUsed(_ folder: ContentFolder) throws(SystemError) {
    if state.withLock({ $0.used != nil }) { return }
    // If it is damaged, all count as used long ago.
    let used = try folder.used() ?? StagedNames()
    state.withLock { $0.used = used }
  }

  /// Removes copies, those first that were used first, until the rest takes no more than `bytesMax`.
  private func makeRoom(in folder: ContentFolder, bytesMax: Int64) throws(SystemError) {
    var copies = try folder.fetched()
    var bytes = copies.reduce(0) { $0 + $1.size }
    let used = state.withLock { $0.used?.times ?? [:] }
    let there = Set(copies.map(\.key))
    state.withLock { $0.used?.times = used.filter { there.contains($0.key) } }
    copies.sort { (used[$0.key] ?? .min, $0.key) < (used[$1.key] ?? .min, $1.key) }
    for copy in copies where bytes > bytesMax {
      let goes = state.withLock { state in
        guard state.holds[copy.key] == nil else { return false }
        state.removing.insert(copy.key)
        return true
      }
      guard goes else { continue }
      defer { state.withLock { _ = $0.removing.remove(copy.key) } }
      try folder.removeFetched(copy.key)
      state.withLock { $0.used?.times[copy.key] = nil }
      bytes -= copy.size
    }
  }
}

/// A copy that is being written under a temporary name. It is used by one thread after the other.
final class FetchedWriter: Sendable {
  private let folder: ContentFolder
  private let contents: StoreContents
  private let temporary: String
  private let file: any File
  private let asset: Asset
  private let state = OrderedMutex((digest: SHA256Digest(), size: Int64(0)))

  init(_ asset: Asset, _ folder: ContentFolder, _ contents: StoreContents) throws(SystemError) {
    (self.asset, self.folder, self.contents) = (asset, folder, contents)
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

  /// Writes the next bytes.
  func write(_ piece: [UInt8]) throws {
    try state.withLock { state in
      try file.write(piece, at: UInt64(state.size))
      state.digest.update(piece)
      state.size += Int64(piece.count)
    }
  }

  /// Checks the bytes that were written, and makes them durable under the name of the copy.
  ///
  /// - Throws: `StrandlineError` if it is not the content: its size is always known, its hash if a device of this app has said it.
  func finish(as key: ContentHash, bytesMax: Int64) throws {
    let (digest, size) = state.withLock { $0 }
    guard size == asset.size else {
      throw StrandlineError(
        .unreachable, "the server has sent \(size) bytes of a content of \(asset.size); nothing was kept; try again")
    }
    if let hash = asset.contentHash, ContentHash(digest.finish()) != hash {
      throw StrandlineError(
        .serverRefused,
        "the server has sent another content than the one that was uploaded: its hash is not \(hash.hexadecimal.prefix(12))…; "
          + "nothing was kept")
    }
    try file.sync(.durable)
    try contents.publish(temporary, asFetched: key, in: folder, bytesMax: bytesMax)
  }

  /// Removes what was written, if it got no name. What cannot be removed, the next open removes.
  func discard() { _ = Result { () throws(SystemError) in try folder.remove(temporary) } }
}

extension ContentFolder {
  private static let fetchedSuffix = ".fetched"
  private static let usedFile = "used"

  private static func fetchedFile(_ key: ContentHash) -> String { "\(name)/\(key.hexadecimal)\(fetchedSuffix)" }

  /// Where a copy lies.
  func pathOfFetched(_ key: ContentHash) -> String { store.path(of: Self.fetchedFile(key)) }

  func sizeOfFetched(_ key: ContentHash) throws(SystemError) -> Int64? { try sizeOfFile(Self.fetchedFile(key)) }

  /// The copies that are there.
  func fetched() throws(SystemError) -> [(key: ContentHash, size: Int64)] {
    let keys = try store.list(Self.name).compactMap { name -> ContentHash? in
      name.hasSuffix(Self.fetchedSuffix) ? ContentHash(hexadecimal: name.dropLast(Self.fetchedSuffix.count)) : nil
    }
    let sizes = try store.sizes(of: keys.map(Self.fetchedFile))
    return zip(keys, sizes).compactMap { key, size in size.map { (key, Int64(clamping: $0)) } }
  }

  func publish(_ temporary: String, asFetched key: ContentHash) throws(SystemError) {
    try store.rename("\(Self.name)/\(temporary)", to: Self.fetchedFile(key))
  }

  func removeFetched(_ key: ContentHash) throws(SystemError) { try unlink(Self.fetchedFile(key)) }

  /// When copies were used last; nil if the file that says it is damaged.
  func used() throws(SystemError) -> StagedNames? { try times(in: Self.usedFile) }

  func writeUsed(_ used: StagedNames) throws(SystemError) { try write(used, to: Self.usedFile) }
}
