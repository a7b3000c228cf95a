// The folder of a log: where it is looked for, its names, what may be there, and its lock.
//
// A path is used once, to find the folder. From then on every file of the store is reached through the folder that was
// opened, so that whatever is at the path later is not touched. Paths of files are for messages alone.

import StrandlineSystem

/// Where a store is looked for.
struct StorePlace: Sendable {
  let fileSystem: any FileSystem
  /// Absolute, without slashes at the end.
  let path: String

  /// - Throws: `.io` if the path is relative and it is not known to what.
  init(_ path: String, _ fileSystem: any FileSystem) throws(LogError) {
    do {
      self.init(absolute: try fileSystem.absolutePath(path), fileSystem)
    } catch {
      throw .system("cannot tell where '\(path)' is", error, file: path)
    }
  }

  private init(absolute path: String, _ fileSystem: any FileSystem) {
    self.path = path
    self.fileSystem = fileSystem
  }

  /// The folder that has the store's own name; of "/" it is "/".
  var parent: StorePlace {
    guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else {
      return StorePlace(absolute: "/", fileSystem)
    }
    return StorePlace(absolute: String(path[..<slash]), fileSystem)
  }

  /// The store's own name.
  var name: String { String(path[(path.lastIndex(of: "/").map(path.index(after:)) ?? path.startIndex)...]) }

  /// A new place beside this one, for a store in the making; see `makeUnfinishedStore`.
  func beside(_ random: any RandomSource) -> StorePlace {
    StorePlace(absolute: path + LogFormat.initInfix + SegmentName.hex(random.next()), fileSystem)
  }

  /// What has a name in the same folder.
  func sibling(_ name: String) -> StorePlace {
    StorePlace(absolute: "\(parent.path == "/" ? "" : parent.path)/\(name)", fileSystem)
  }

  /// Opens the folder.
  func open() throws(SystemError) -> StoreDirectory {
    StoreDirectory(place: self, folder: try fileSystem.folder(path))
  }

  /// Makes the names in this folder durable.
  func sync() throws(SystemError) { try fileSystem.folder(path).sync() }

  /// Removes the folder and what is in it, the lock last: without it an interrupted removal would not be taken up again.
  func removeTree() throws(SystemError) {
    guard try fileSystem.kind(of: path) == .directory else { return }
    try fileSystem.folder(path).removeContents(last: LogFormat.lockName)
    try fileSystem.removeDirectory(path)
  }

  /// What is at the path.
  enum Contents {
    case absent
    case empty
    case log(StoreDirectory, StoreDirectory.Files)
  }

  /// Tells a log, an empty folder and no folder at the path apart.
  ///
  /// - Throws: `.notAStore`, `.notEmptyDirectory`, `.io`.
  func contents() throws(LogError) -> Contents {
    guard let directory = try directory() else { return .absent }
    guard let files = try directory.filesIfAny() else { return .empty }
    return .log(directory, files)
  }

  /// The folder that is there; nil if nothing is.
  private func directory() throws(LogError) -> StoreDirectory? {
    let kind: PathKind
    do {
      kind = try fileSystem.kind(of: path)
      if kind == .directory { return try open() }
    } catch {
      throw .system("cannot look at '\(path)'", error, file: path)
    }
    guard kind == .absent else {
      throw LogError(.notAStore, "'\(path)' is not a folder, and a store is one; give another path", file: path)
    }
    return nil
  }

  /// The folder of the log that is there.
  ///
  /// - Throws: `.absent` if there is none; what `contents` throws.
  func log() throws(LogError) -> StoreDirectory {
    guard case .log(let directory, _) = try contents() else { throw .absent(path) }
    return directory
  }

  /// The folder, whatever is in it.
  ///
  /// - Throws: `.absent`, `.notAStore`, `.io`.
  func anyFolder() throws(LogError) -> StoreDirectory {
    guard let directory = try directory() else { throw .absent(path) }
    return directory
  }
}

/// The open folder of a log.
struct StoreDirectory: Sendable {
  /// Where it was found.
  let place: StorePlace
  let folder: any Folder

  // Paths, for messages.

  var path: String { folder.path }
  var lock: String { folder.path(of: LogFormat.lockName) }
  var manifest: String { folder.path(of: LogFormat.manifestName) }
  var control: String { folder.path(of: LogFormat.controlName) }
  var ballast: String { folder.path(of: LogFormat.ballastName) }
  var quarantine: String { folder.path(of: LogFormat.quarantineName) }
  func segment(_ id: UInt64) -> String { folder.path(of: SegmentName.name(id)) }

  /// The files of a log.
  struct Files: Sendable {
    /// In ascending order.
    var segmentIDs: [UInt64]
    /// Names that end like a segment's and are none.
    var misnamed: [String]
    /// Names that the log gives to what is not finished: an interrupted writer left them.
    var temporaries: [String]
  }

  /// The files of the log that is in it; nil if it is empty.
  ///
  /// - Throws: `.notAStore`, `.notEmptyDirectory`, `.io`.
  func filesIfAny() throws(LogError) -> Files? {
    let names: [String]
    do {
      names = try folder.list()
    } catch {
      throw .system("cannot look at '\(path)'", error, file: path)
    }
    let segments = names.filter { $0.hasSuffix(LogFormat.segmentSuffix) }
    if !segments.isEmpty || names.contains(LogFormat.manifestName) {
      func segmentID(_ name: String) -> UInt64? {
        SegmentName.segmentID(of: name).flatMap { 1..<LogFormat.numberMax ~= $0 ? $0 : nil }
      }
      return Files(
        segmentIDs: segments.compactMap(segmentID).sorted(),
        misnamed: segments.filter { segmentID($0) == nil }.sorted(),
        temporaries: names.filter(Self.isTemporary).sorted())
    }
    if names.isEmpty { return nil }
    if names == [LogFormat.lockName] {
      throw LogError(
        .notAStore,
        "'\(path)' holds a lock and no segment: either a store's segments are gone, or it never was a store; "
          + "nothing was changed; remove the folder if nothing is missed", file: path)
    }
    throw LogError(
      .notEmptyDirectory,
      "'\(path)' holds other files and no segment (\(names.sorted().prefix(3).joined(separator: ", "))); "
        + "nothing was changed; a store is made in a new or empty folder", file: path)
  }

  /// The same.
  ///
  /// - Throws: `.absent` if it is empty.
  func files() throws(LogError) -> Files {
    guard let files = try filesIfAny() else { throw .absent(path) }
    return files
  }

  /// Looks whether this folder is still the one at its path, for a reader, which keeps nothing of it from being moved.
  ///
  /// - Throws: `.replaced`.
  func checkForReading() throws(LogError) {
    do throws(SystemError) {
      let (own, here) = (try folder.identity(of: "."), try place.open())
      if let own, let there = try here.folder.identity(of: "."), own.isSame(as: there) { return }
      // Drives that change numbers.
      for _ in 0..<3 { if try hasSameLists(here) { return } }
    } catch  where error.isAbsent || error.isNotDirectory {
      // Nothing is there.
    } catch {
      // A look that fails says nothing about the folder; what cannot be read is said by the reading.
      return
    }
    throw replacedForReading
  }

  /// What a reader says that finds another store, or none.
  var replacedForReading: LogError {
    LogError(
      .replaced,
      "the store that was opened for reading does not lie at '\(place.path)' any more: it was moved, removed or replaced; "
        + "what was read of it is still shown; close it, and open what is there", file: place.path,
      underlying: .stale("open", place.path))
  }

  /// Whether both are one store: what the other one says is between what this one says before and after it, because a
  /// writer may go on meanwhile.
  func hasSameLists(_ other: StoreDirectory) throws(SystemError) -> Bool {
    do throws(LogError) {
      let before = try ControlFile.read(self).current
      let there = try ControlFile.read(other).current
      let after = try ControlFile.read(self).current
      guard before.storeUUID == there.storeUUID, !there.isBefore(before), !after.isBefore(there) else { return false }
      return try Manifest.read(self).storeUUID == Manifest.read(other).storeUUID
    } catch {
      if let cause = error.underlying, !cause.isAbsent { throw cause }
      return false
    }
  }

  /// Moves segments that have no place in the log out of the way, to where no reader looks.
  func quarantine(_ segmentIDs: [UInt64]) throws(SystemError) {
    guard !segmentIDs.isEmpty else { return }
    if try folder.kind(of: LogFormat.quarantineName) == .absent {
      try folder.makeFolder(LogFormat.quarantineName)
      try folder.sync()
    }
    for id in segmentIDs {
      let name = SegmentName.name(id)
      // A name that is taken there keeps its file: nothing unknown is ever removed.
      let kept = SegmentName.quarantined(name)
      var place = kept
      var copy = 1
      while try folder.kind(of: place) != .absent {
        place = "\(kept).\(copy)"
        copy += 1
      }
      try folder.rename(name, to: place)
    }
    try folder.sync(LogFormat.quarantineName)
    try folder.sync()
  }

  /// Whether the log itself gives such names to what is not finished; other people's files are left alone.
  private static func isTemporary(_ name: String) -> Bool {
    guard name.hasSuffix(LogFormat.temporarySuffix) else { return false }
    let base = String(name.dropLast(LogFormat.temporarySuffix.count))
    return [LogFormat.manifestName, LogFormat.ballastName].contains(base)
      || SegmentName.segmentID(of: base + LogFormat.segmentSuffix) != nil
  }

  /// Whether the log, or its owner, gives such names to files and folders of a store.
  static func isOwn(_ name: String) -> Bool {
    [
      LogFormat.lockName, LogFormat.manifestName, LogFormat.controlName, LogFormat.ballastName,
      LogFormat.quarantineName, LogFormat.ownerFolderName, LogFormat.contentFolderName,
    ].contains(name) || isTemporary(name) || SegmentName.segmentID(of: name) != nil
  }

  /// Takes the lock for a writer, trying again for a while: readers take it for an instant to look whether it
  /// is free.
  func lockForWriting(_ environment: SystemEnvironment, waitMilliseconds: Int64) throws(LogError) -> any FileLock {
    // Counted in naps and not by the clock, so that a clock that stands still cannot make it endless.
    let napMilliseconds: Int64 = 10
    var naps = waitMilliseconds / napMilliseconds
    while true {
      do {
        if let held = try folder.lock(LogFormat.lockName, exclusive: true) { return held }
      } catch {
        throw .system("cannot lock '\(path)' for writing", error, file: lock)
      }
      guard naps > 0 else {
        throw LogError(
          .held, "'\(path)' is being written by another process (or another part of this one); close it there",
          file: lock)
      }
      naps -= 1
      environment.clock.sleepBlocking(milliseconds: napMilliseconds)
    }
  }

  /// Whether a writer has the lock. No lock file (a copy of a store) counts as free.
  func isHeld() throws(LogError) -> Bool {
    do {
      guard let free = try folder.lock(LogFormat.lockName, exclusive: false) else { return true }
      free.unlock()
      return false
    } catch  where error.isAbsent {
      return false
    } catch {
      throw .system("cannot look whether '\(path)' is being written", error, file: lock)
    }
  }
}
