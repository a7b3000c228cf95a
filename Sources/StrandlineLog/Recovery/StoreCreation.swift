// How a store comes into being: whole, with its lock held and its first segment in it, or not at all.
//
// It is built beside its place as `<store>.init-<random>`, synced, and renamed: the rename is the moment of birth,
// and nobody sees a store that is half there. Two creators may race; the rename of the slower one meets a folder
// that is not empty, and it opens that store instead. Rule: decision L16.

import StrandlineSystem

/// A store to be made.
struct StoreCreation {
  let environment: SystemEnvironment
  let directory: StoreDirectory
  let role: LogRole
  let tenure: UInt64
  let options: LogOptions

  /// A store that is there, and ours to write.
  struct Created {
    let lock: any FileLock
    let storeUUID: [UInt8]
    let live: LiveSegment
    let keeper: DirectoryKeeper
  }

  /// Makes it. When this returns a store, it is on the medium, its parent's entry included.
  ///
  /// - Returns: nil if somebody else made one meanwhile.
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
        environment, storeUUID: storeUUID, segmentID: 1, tenure: tenure, role: role)
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
      // A folder name out of 2^64 that somebody else had locked first: not worth a sentence of its own.
      guard let lock else { throw SystemError.taken("flock", place.lock) }
      let keeper = DirectoryKeeper(
        environment: environment, directory: directory, manifest: manifest, control: control)
      var moved = made
      moved.path = directory.segment(1)
      return Created(lock: lock, storeUUID: storeUUID, live: moved, keeper: keeper)
    } catch {
      live?.file.close()
      lock?.unlock()
      do throws(SystemError) {
        try remove(place)
      } catch {
        // What cannot be removed lies beside the store, under a name that no reader opens; the first failure counts.
      }
      if error.isTaken, error.call == "rename" { return nil }
      throw error
    }
  }

  private func makeSegment(_ header: SegmentHeader, in place: StoreDirectory) throws(SystemError) -> LiveSegment {
    let content = SegmentCreation.encoded(
      header, after: LogPosition(lsn: 0, chain: 0, offset: 0), predecessorID: 0, opens: 1
    ).bytes
    do throws(WriteFailure) {
      let (file, allocated) = try SegmentCreation(fileSystem: environment.fileSystem, directory: place)
        .make(header.segmentID, content, allocated: UInt64(options.preallocationFirstStepBytes), orLess: true)
      return LiveSegment(
        file: file, path: place.segment(header.segmentID), identity: header.identity, end: UInt32(content.count),
        softBytes: options.segmentBytesMax,
        allocated: allocated, firstLSN: 1)
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause): throw cause
      }
    }
  }

  private func makeManifest(_ header: SegmentHeader, in place: StoreDirectory) throws(SystemError) -> Manifest {
    var manifest = Manifest(storeUUID: header.storeUUID, role: role, nextSegmentID: header.segmentID + 1)
    manifest.number = 1
    manifest.add(ManifestEntry(segmentID: header.segmentID, salt: header.salt, state: .used, firstLSN: 1))
    do throws(WriteFailure) {
      try manifest.write(environment.fileSystem, place)
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause): throw cause
      }
    }
    return manifest
  }

  private func makeControl(
    _ header: SegmentHeader, _ live: LiveSegment, in place: StoreDirectory
  ) throws(SystemError) -> ControlFile {
    let (bytes, control) = ControlFile.fresh(
      Control(
        storeUUID: header.storeUUID, tailSegmentID: header.segmentID, durableLSN: 0, fullFlushLSN: 0,
        durableEnd: live.end, isClean: false))
    let file = try environment.fileSystem.open(place.control, .create)
    defer { file.close() }
    try file.write(bytes, at: 0)
    try file.sync(.durable)
    return control
  }

  /// Removes what was built, if it still stands at its building place.
  private func remove(_ place: StoreDirectory) throws(SystemError) {
    let fileSystem = environment.fileSystem
    guard try fileSystem.kind(of: place.path) == .directory else { return }
    for name in try fileSystem.list(place.path) { try fileSystem.unlink(place.file(name)) }
    try fileSystem.removeDirectory(place.path)
  }
}

extension SegmentHeader {
  /// A header for a segment that is about to be made.
  static func new(
    _ environment: SystemEnvironment, storeUUID: [UInt8], segmentID: UInt64, tenure: UInt64, role: LogRole
  ) -> SegmentHeader {
    var salt: UInt32 = 0
    while salt == 0 { salt = UInt32(truncatingIfNeeded: environment.random.next()) }
    return SegmentHeader(
      storeUUID: storeUUID, segmentID: segmentID, tenure: tenure, salt: salt, role: role,
      createdNanoseconds: UInt64(max(0, environment.clock.wallMilliseconds())) &* 1_000_000)
  }
}
