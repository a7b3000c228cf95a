// The folder of a log: its names, what may stand there, and its lock.

import StrandlineSystem

/// The paths of a log.
struct StoreDirectory: Sendable {
  /// Without slashes at the end.
  let path: String
  /// The folder that the store's own name stands in.
  let parent: String

  init(_ path: String) {
    var text = path[...]
    while text.utf8.count > 1, text.hasSuffix("/") { text.removeLast() }
    self.path = String(text)
    if let slash = text.lastIndex(of: "/") {
      parent = slash == text.startIndex ? "/" : String(text[..<slash])
    } else {
      parent = "."
    }
  }

  var lock: String { file(LogFormat.lockName) }
  var manifest: String { file(LogFormat.manifestName) }
  var control: String { file(LogFormat.controlName) }
  var ballast: String { file(LogFormat.ballastName) }
  var quarantine: String { file(LogFormat.quarantineName) }
  func file(_ name: String) -> String { "\(path)/\(name)" }
  func segment(_ id: UInt64) -> String { file(SegmentName.name(id)) }
  func temporarySegment(_ id: UInt64) -> String { file(SegmentName.temporaryName(id)) }

  /// The files of a log.
  struct Files: Sendable {
    /// In ascending order.
    var segmentIDs: [UInt64]
    /// Names that end like a segment's and are none.
    var misnamed: [String]
    /// Names that the log gives to what is not finished: an interrupted writer left them.
    var temporaries: [String]
  }

  /// What stands at the path.
  enum Contents {
    case absent
    case empty
    case log(Files)
  }

  /// Looks.
  ///
  /// - Throws: `.notAStore`, `.notEmptyDirectory`, `.io`.
  func contents(_ fileSystem: any FileSystem) throws(LogError) -> Contents {
    guard let names = try names(fileSystem) else { return .absent }
    let segments = names.filter { $0.hasSuffix(LogFormat.segmentSuffix) }
    if !segments.isEmpty || names.contains(LogFormat.manifestName) {
      func segmentID(_ name: String) -> UInt64? {
        SegmentName.segmentID(of: name).flatMap { 1..<LogFormat.numberMax ~= $0 ? $0 : nil }
      }
      return .log(
        Files(
          segmentIDs: segments.compactMap(segmentID).sorted(),
          misnamed: segments.filter { segmentID($0) == nil }.sorted(),
          temporaries: names.filter(Self.isTemporary).sorted()))
    }
    if names.isEmpty { return .empty }
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

  /// The names in the folder; nil if nothing is there.
  private func names(_ fileSystem: any FileSystem) throws(LogError) -> [String]? {
    let kind: PathKind
    do {
      kind = try fileSystem.kind(of: path)
      if kind == .directory { return try fileSystem.list(path) }
    } catch {
      throw .system("cannot look at '\(path)'", error, file: path)
    }
    guard kind == .absent else {
      throw LogError(.notAStore, "'\(path)' is not a folder, and a store is one; give another path", file: path)
    }
    return nil
  }

  /// The files of the log that is there.
  ///
  /// - Throws: `.absent` if there is none; what `contents` throws.
  func files(_ fileSystem: any FileSystem) throws(LogError) -> Files {
    guard case .log(let files) = try contents(fileSystem) else {
      throw LogError(.absent, "there is no store at '\(path)'", file: path)
    }
    return files
  }

  /// Moves segments that have no place in the log out of the way, to where no reader looks.
  func quarantine(_ segmentIDs: [UInt64], _ fileSystem: any FileSystem) throws(SystemError) {
    guard !segmentIDs.isEmpty else { return }
    if try fileSystem.kind(of: quarantine) == .absent {
      try fileSystem.makeDirectory(quarantine)
      try fileSystem.syncDirectory(path)
    }
    for id in segmentIDs {
      let name = SegmentName.name(id)
      // A name that is taken there keeps its file: nothing unknown is ever removed.
      var place = "\(quarantine)/\(name)"
      var copy = 1
      while try fileSystem.kind(of: place) != .absent {
        place = "\(quarantine)/\(name).\(copy)"
        copy += 1
      }
      try fileSystem.rename(file(name), to: place)
    }
    try fileSystem.syncDirectory(quarantine)
    try fileSystem.syncDirectory(path)
  }

  /// Whether the log itself gives such names to what is not finished; other people's files are left alone.
  private static func isTemporary(_ name: String) -> Bool {
    guard name.hasSuffix(LogFormat.temporarySuffix) else { return false }
    let base = String(name.dropLast(LogFormat.temporarySuffix.count))
    return [LogFormat.manifestName, LogFormat.ballastName].contains(base)
      || SegmentName.segmentID(of: base + LogFormat.segmentSuffix) != nil
  }

  /// Takes the lock for a writer, trying again for a while: readers take it for an instant to look whether it
  /// is free.
  func lockForWriting(_ environment: SystemEnvironment, waitMilliseconds: Int64) throws(LogError) -> any FileLock {
    // Counted in naps and not by the clock, so that a clock that stands still cannot make it endless.
    let napMilliseconds: Int64 = 10
    var naps = waitMilliseconds / napMilliseconds
    while true {
      do {
        if let held = try environment.fileSystem.lock(lock, exclusive: true) { return held }
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
  func isHeld(_ fileSystem: any FileSystem) throws(LogError) -> Bool {
    do {
      guard let free = try fileSystem.lock(lock, exclusive: false) else { return true }
      free.unlock()
      return false
    } catch  where error.isAbsent {
      return false
    } catch {
      throw .system("cannot look whether '\(path)' is being written", error, file: lock)
    }
  }
}
