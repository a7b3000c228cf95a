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
  let firstStepBytes: Int

  /// A store that is there, and ours to write.
  struct Created {
    let lock: any FileLock
    let storeUUID: [UInt8]
    let live: LiveSegment
  }

  /// Makes it. When this returns a store, it is on the medium, its parent's entry included.
  ///
  /// - Returns: nil if somebody else made one meanwhile.
  func create() throws(LogError) -> Created? {
    do {
      return try build()
    } catch {
      throw .system("cannot make a store at '\(directory.path)'", error, file: directory.path)
    }
  }

  private func build() throws(SystemError) -> Created? {
    let fileSystem = environment.fileSystem
    let place = StoreDirectory(
      directory.path + LogFormat.initInfix + SegmentName.hex(environment.random.next()))
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
      try fileSystem.rename(place.path, to: directory.path)
      // From here on it is a store; a failure leaves one that the next open serves.
      try fileSystem.syncDirectory(directory.parent)
      // A folder name out of 2^64 that somebody else had locked first: not worth a sentence of its own.
      guard let lock else { throw SystemError.taken("flock", place.lock) }
      return Created(lock: lock, storeUUID: storeUUID, live: made.renamed(directory.segment(1)))
    } catch {
      live?.file.close()
      lock?.unlock()
      try remove(place)
      if error.isTaken, error.call == "rename" { return nil }
      throw error
    }
  }

  private func makeSegment(_ header: SegmentHeader, in place: StoreDirectory) throws(SystemError) -> LiveSegment {
    do throws(WriteFailure) {
      return try SegmentCreation(
        environment: environment, directory: place, header: header, predecessorID: 0,
        after: LogPosition(lsn: 0, chain: 0, offset: 0), opens: 1
      ).create(firstStepBytes: firstStepBytes)
    } catch {
      switch error {
      case .refused(let cause), .unknown(let cause): throw cause
      }
    }
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
