// How a store comes into being: whole, with its lock held and its first segment in it, or not at all.
//
// It is built beside its place as `<store>.init-<random>`, synced, and renamed: the rename is the moment of birth,
// and no reader sees a store that is half there. Two creators may race; the rename of the slower one meets a folder
// that is not empty, and it opens that store instead. Rule: decision L16.

import StrandlineSystem

/// A store to be made.
struct StoreCreation {
  let environment: SystemEnvironment
  let place: StorePlace
  let role: LogRole
  let options: LogOptions

  /// A store that is there, and this caller's to write.
  struct Created {
    let live: LiveSegment
    let keeper: DirectoryKeeper
  }

  /// Makes it. When this returns a store, it is on the medium, its parent's entry included.
  ///
  /// - Returns: nil if another creator made one meanwhile.
  func create() throws(LogError) -> Created? {
    let building: UnfinishedStore
    do {
      building = try place.makeUnfinishedStore(environment.random)
    } catch {
      throw Self.failure(at: place, built: place, error)
    }
    do {
      return try build(building)
    } catch {
      throw Self.failure(at: place, built: building.place, error)
    }
  }

  /// The error of a creation that failed. The folder that it was built in is named only where the failing call was about
  /// a file inside it: its own name means nothing to the caller.
  static func failure(at place: StorePlace, built building: StorePlace, _ error: SystemError) -> LogError {
    var error = error
    if error.subject == building.path { error.subject = place.path }
    return .system("cannot make a store at '\(place.path)'", error, file: place.path)
  }

  private func build(_ building: UnfinishedStore) throws(SystemError) -> Created? {
    let folder = building.folder
    var live: LiveSegment?
    var control: (any File)?
    do throws(SystemError) {
      let storeUUID = environment.random.bytes(16)
      let header = SegmentHeader.new(
        environment, storeUUID: storeUUID, segmentID: 1, role: role, kind: .live)
      let made = try makeSegment(header, in: folder)
      live = made
      let manifest = try makeManifest(header, in: folder)
      let (file, slots) = try makeControl(header, made, in: folder)
      control = file
      do throws(SystemError) {
        try Ballast(directory: StoreDirectory(place: place, folder: folder), bytes: options.ballastBytes).make()
      } catch  where error.isFull {
        // A store on a disk that is nearly full is better than none; upkeep makes the ballast when there is room.
      }
      try folder.sync()
      try environment.fileSystem.renameFolder(building.place.path, to: place.path)
      folder.wasMoved(to: place.path)
      // From here on it is a store; a failure leaves one that the next open serves.
      try place.parent.sync()
      let hold = StoreHold(
        StoreDirectory(place: place, folder: folder), storeUUID: storeUUID, lock: building.lock, control: file,
        slots: slots, now: environment.clock.monotonicNanoseconds())
      let keeper = DirectoryKeeper(environment: environment, hold: hold, manifest: manifest)
      var moved = made
      moved.path = folder.path(of: SegmentName.name(1))
      return Created(live: moved, keeper: keeper)
    } catch {
      live?.close()
      control?.close()
      defer { building.lock.unlock() }
      do throws(SystemError) {
        try building.place.removeTree()
      } catch {
        // The next open for writing removes it; the first failure counts.
      }
      if error.isTaken, error.call == "rename" { return nil }
      throw error
    }
  }

  private func makeSegment(_ header: SegmentHeader, in folder: any Folder) throws(SystemError) -> LiveSegment {
    let content = SegmentCreation.encoded(
      header, after: LogPosition(lsn: 0, chain: 0, offset: 0), predecessorID: 0
    ).bytes
    do throws(WriteFailure) {
      let (file, allocated) = try SegmentCreation(folder: folder)
        .make(header.segmentID, content, allocated: UInt64(options.preallocationFirstStepBytes), orLess: true)
      return LiveSegment(
        file: file, path: folder.path(of: SegmentName.name(header.segmentID)), identity: header.identity,
        end: UInt32(content.count), allocated: allocated, firstLSN: 1)
    } catch {
      throw error.cause
    }
  }

  private func makeManifest(_ header: SegmentHeader, in folder: any Folder) throws(SystemError) -> Manifest {
    var manifest = Manifest(storeUUID: header.storeUUID, role: role, nextSegmentID: header.segmentID + 1)
    manifest.entries.append(ManifestEntry(segmentID: header.segmentID, salt: header.salt, firstLSN: 1))
    do throws(WriteFailure) {
      try manifest.replace(in: folder)
    } catch {
      throw error.cause
    }
    return manifest
  }

  /// When this returns, it is on the medium; the file stays open.
  private func makeControl(
    _ header: SegmentHeader, _ live: LiveSegment, in folder: any Folder
  ) throws(SystemError) -> (any File, ControlFile) {
    let (bytes, slots) = ControlFile.new(
      Control(
        storeUUID: header.storeUUID, bound: LogBound(segmentID: header.segmentID, lsn: 0, end: live.end)))
    let file = try folder.open(LogFormat.controlName, .create)
    do throws(SystemError) {
      try file.write(bytes, at: 0)
      try file.sync(.durable)
    } catch {
      file.close()
      throw error
    }
    return (file, slots)
  }
}
