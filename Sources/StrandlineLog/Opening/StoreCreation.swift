// How a store comes into being: whole, with its lock held and its first segment in it, or not at all.
//
// It is built beside its place as `<store>.init-<random>`, synced, and renamed: the rename is the moment of birth,
// and no reader sees a store that is half there. Two creators may race; the rename of the slower one meets a folder
// that is not empty, and it opens that store instead. Rule: decision L16.

import StrandlineSystem

/// A store to be made.
struct StoreCreation {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  let role: LogRole
  let options: LogOptions

  /// A store that is there, and this caller's to write.
  struct Created {
    let lock: any FileLock
    let storeUUID: [UInt8]
    let live: LiveSegment
    let keeper: DirectoryKeeper
  }

  /// Makes it. When this returns a store, it is on the medium, its parent's entry included.
  ///
  /// - Returns: nil if another creator made one meanwhile.
  func create() throws(LogError) -> Created? {
    let place = StoreDirectory(
      directory.path + LogFormat.initInfix + SegmentName.hex(environment.random.next()))
    do {
      return try build(in: place)
    } catch {
      throw Self.failure(at: directory, built: place, error)
    }
  }

  /// The error of a creation that failed. The folder that it was built in is named only where the failing call was about
  /// a file inside it: its own name means nothing to the caller.
  static func failure(at directory: StoreDirectory, built place: StoreDirectory, _ error: SystemError) -> LogError {
    var error = error
    if error.subject == place.path { error.subject = directory.path }
    return .system("cannot make a store at '\(directory.path)'", error, file: directory.path)
  }

  private func build(in place: StoreDirectory) throws(SystemError) -> Created? {
    let fileSystem = environment.fileSystem
    var lock: (any FileLock)?
    var live: LiveSegment?
    do throws(SystemError) {
      try fileSystem.makeDirectory(place.path)
      lock = try fileSystem.lock(place.lock, exclusive: true)
      let storeUUID = environment.random.bytes(16)
      let header = SegmentHeader.new(
        environment, storeUUID: storeUUID, segmentID: 1, role: role, kind: .live)
      let made = try makeSegment(header, in: place)
      live = made
      let manifest = try makeManifest(header, in: place)
      let control = try makeControl(header, made, in: place)
      do throws(SystemError) {
        try Ballast(fileSystem: fileSystem, directory: place, bytes: options.ballastBytes).make()
      } catch  where error.isFull {
        // A store on a disk that is nearly full is better than none; upkeep makes the ballast when there is room.
      }
      try fileSystem.syncDirectory(place.path)
      try fileSystem.rename(place.path, to: directory.path)
      // From here on it is a store; a failure leaves one that the next open serves.
      try fileSystem.syncDirectory(directory.parent)
      // A folder name out of 2^64 that another process had locked first.
      guard let lock else { throw SystemError.taken("flock", place.lock) }
      let keeper = DirectoryKeeper(
        environment: environment, directory: directory, manifest: manifest, control: control)
      var moved = made
      moved.path = directory.segment(1)
      return Created(lock: lock, storeUUID: storeUUID, live: moved, keeper: keeper)
    } catch {
      live?.close()
      defer { lock?.unlock() }
      do throws(SystemError) {
        if try fileSystem.kind(of: place.path) == .directory { try fileSystem.removeTree(place.path) }
      } catch {
        // The next open for writing removes it; the first failure counts.
      }
      if error.isTaken, error.call == "rename" { return nil }
      throw error
    }
  }

  private func makeSegment(_ header: SegmentHeader, in place: StoreDirectory) throws(SystemError) -> LiveSegment {
    let content = SegmentCreation.encoded(
      header, after: LogPosition(lsn: 0, chain: 0, offset: 0), predecessorID: 0
    ).bytes
    do throws(WriteFailure) {
      let (file, allocated) = try SegmentCreation(fileSystem: environment.fileSystem, directory: place)
        .make(header.segmentID, content, allocated: UInt64(options.preallocationFirstStepBytes), orLess: true)
      return LiveSegment(
        file: file, path: place.segment(header.segmentID), identity: header.identity, end: UInt32(content.count),
        softBytes: options.segmentBytesMax,
        allocated: allocated, firstLSN: 1)
    } catch {
      throw error.cause
    }
  }

  private func makeManifest(_ header: SegmentHeader, in place: StoreDirectory) throws(SystemError) -> Manifest {
    var manifest = Manifest(storeUUID: header.storeUUID, role: role, nextSegmentID: header.segmentID + 1)
    manifest.add(ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: 1))
    do throws(WriteFailure) {
      try manifest.write(environment.fileSystem, place)
    } catch {
      throw error.cause
    }
    return manifest
  }

  private func makeControl(
    _ header: SegmentHeader, _ live: LiveSegment, in place: StoreDirectory
  ) throws(SystemError) -> ControlFile {
    let (bytes, control) = ControlFile.new(
      Control(
        storeUUID: header.storeUUID, bound: LogBound(segmentID: header.segmentID, lsn: 0, end: live.end)))
    let file = try environment.fileSystem.open(place.control, .create)
    defer { file.close() }
    try file.write(bytes, at: 0)
    try file.sync(.durable)
    return control
  }
}
