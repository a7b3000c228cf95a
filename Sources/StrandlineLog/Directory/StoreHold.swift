// What a writer keeps open of its store as long as it writes it: the folder, LOCK and CONTROL; and whether they are still
// what is at the store's path.
//
// Everything is written through them, so a folder that was moved or removed takes the writer along, and a store that has
// taken its place is never written by it. But an app that writes into a folder that nobody finds any more, or into files
// that another copy was put over, has to hear of it: so a writer looks, a fifth of a second apart at the most while it
// commits, before each larger step, and right before a name in the folder is changed (HeldFolder.swift). From the first look
// that finds another store, nothing is written. CONTROL alone is compared before and after each group, and before each write
// into it, each seal and each cut: so no group is acknowledged in files whose CONTROL a copy has replaced.
//
// Locks: the one around CONTROL is held during a write; the one around what was found for a moment, taken after it.

import StrandlineSystem
import Synchronization

/// How often a writer looks.
package enum StoreLook {
  /// No commit is later after the last look than this.
  package static let milliseconds = 200
}

/// The open files of a store that this process writes.
final class StoreHold: Sendable {
  let directory: StoreDirectory
  private let storeUUID: [UInt8]
  private let lock: any FileLock
  private let control: any File
  /// Whether the drive counts the names of a file. Some always say 0.
  private let countsNames: Bool
  /// Held by the thread that writes CONTROL, or compares it.
  private let bounding: OrderedMutex<ControlFile>
  /// What the looks have found. A commit asks once a group, so that a lock is quick enough.
  private let finding = OrderedMutex(Finding.held)
  private let isClaimed = Atomic<Bool>(false)
  /// By the monotonic clock: when the last look was that found no other store.
  private let lastLook: Atomic<UInt64>

  /// - Parameters:
  ///   - control: open for writing.
  ///   - slots: what was read from it, or written into it.
  init(
    _ directory: StoreDirectory, storeUUID: [UInt8], lock: any FileLock, control: any File, slots: ControlFile,
    now: UInt64
  ) {
    self.directory = directory
    self.storeUUID = storeUUID
    self.lock = lock
    self.control = control
    // A look that fails here says nothing, and so nothing is concluded from the number of names later.
    countsNames = ((try? control.identity())?.links ?? 0) > 0
    bounding = OrderedMutex(.control, slots)
    lastLook = Atomic(now)
  }

  /// Takes the store's path for this process. The caller has the lock.
  ///
  /// - Throws: `.held` if a part of this process has a store open that was there before this one.
  func claim() throws(LogError) {
    guard directory.place.fileSystem.openStores.add(directory.place.path) else { throw Self.isOpen(directory.place) }
    isClaimed.store(true, ordering: .releasing)
  }

  /// A store whose folder was moved or removed, and that this process has open at a path.
  static func isOpen(_ place: StorePlace) -> LogError {
    LogError(
      .held,
      "another part of this process still writes the store that was at '\(place.path)' before its folder was moved or "
        + "removed; close it there", file: place.path)
  }

  /// Gives the path and the lock back, in this order: who finds the lock free may take the path. A second call does nothing.
  func release() {
    if isClaimed.exchange(false, ordering: .acquiringAndReleasing) {
      directory.place.fileSystem.openStores.remove(directory.place.path)
    }
    control.close()
    lock.unlock()
  }

  // MARK: CONTROL

  /// Writes a bound, unless CONTROL promises more. When this returns, what CONTROL promises is on the medium.
  ///
  /// - Throws: `.refused`; `.replaced` if it has other bytes than this writer has written, which stay.
  func write(_ bound: LogBound) throws(WriteFailure) {
    try change { slots throws(SystemError) in
      let current = slots.current.bound
      guard bound.isAhead(of: current) || slots.isRaised else { return true }
      return try slots.write(bound.isAhead(of: current) ? bound : current, to: control)
    }
  }

  /// Writes a bound without a sync, if it is ahead of the last one: readers find then what is durable up to there.
  ///
  /// - Throws: `.refused`; `.replaced` if it has other bytes than this writer has written, which stay.
  func raise(_ bound: LogBound) throws(WriteFailure) {
    try change { slots throws(SystemError) in
      // Also where a group is only ordered, and CONTROL says nothing new: its writers are told in a moment.
      guard bound.isAhead(of: slots.current.bound) else { return try slots.isCurrentIn(control) }
      return try slots.raise(bound, to: control)
    }
  }

  /// Compares CONTROL, right before events are written into a segment.
  ///
  /// - Throws: `.refused`; `.replaced` if it has other bytes than this writer has written.
  func compare() throws(WriteFailure) {
    try change { slots throws(SystemError) in try slots.isCurrentIn(control) }
  }

  /// Whether CONTROL has what this writer has found or written there.
  func isCurrent() throws(SystemError) -> Bool {
    try bounding.withLock { slots throws(SystemError) in try slots.isCurrentIn(control) }
  }

  /// - Parameter body: returns false if CONTROL has other bytes than this writer has written.
  private func change(_ body: (inout ControlFile) throws(SystemError) -> Bool) throws(WriteFailure) {
    let isOurs: Bool
    do throws(SystemError) {
      isOurs = try bounding.withLock { slots throws(SystemError) in try body(&slots) }
    } catch {
      throw .refused(error)
    }
    if !isOurs { throw .replaced(note(.overwritten)) }
  }

  // MARK: Whether it is still there

  /// What is known of the files at the path.
  private enum Finding {
    /// They are those that are held.
    case held
    /// The last look failed, which says nothing about the folder.
    case lookFailed(SystemError)
    /// They are others, so that nothing is written any more. This one stays.
    case replaced(LogError)
  }

  /// What was found instead of the store; nil as long as nothing was.
  var replacement: LogError? {
    finding.withLock { finding in
      guard case .replaced(let error) = finding else { return nil }
      return error
    }
  }

  /// Why the last look failed; nil if it did not.
  var lookFailure: SystemError? {
    finding.withLock { finding in
      guard case .lookFailed(let error) = finding else { return nil }
      return error
    }
  }

  /// Looks, if the last look is a fifth of a second ago.
  ///
  /// - Throws: `.replaced`, also if an earlier look has found it.
  func checkIfDue(now: UInt64) throws(LogError) {
    if let replacement { throw replacement }
    guard now &- lastLook.load(ordering: .relaxed) >= UInt64(StoreLook.milliseconds) * 1_000_000 else { return }
    try check(now: now)
  }

  /// Compares what is held with the files at the path.
  ///
  /// - Throws: `.replaced`, also if an earlier look has found it.
  func check(now: UInt64) throws(LogError) {
    if let replacement { throw replacement }
    let replacement: Replacement?
    let next: Finding
    do throws(SystemError) {
      replacement = try look()
      next = .held
    } catch {
      // What is written goes to the files that are held, and the next look is as soon as after one that succeeds.
      replacement = nil
      next = .lookFailed(error)
    }
    if let replacement { throw note(replacement) }
    let replaced: LogError? = finding.withLock { finding in
      // Another thread's look has found more.
      if case .replaced(let error) = finding { return error }
      finding = next
      return nil
    }
    if let replaced { throw replaced }
    lastLook.store(now, ordering: .relaxed)
  }

  /// Keeps what was found first.
  private func note(_ replacement: Replacement) -> LogError {
    finding.withLock { finding in
      if case .replaced(let error) = finding { return error }
      let error = replacement.error(directory.place.path)
      finding = .replaced(error)
      return error
    }
  }

  /// What has taken the store's place; nil if nothing has.
  private func look() throws(SystemError) -> Replacement? {
    // First, because this needs no path.
    guard try bounding.withLock({ slots throws(SystemError) in try slots.isIn(control) }) else { return .overwritten }
    let (heldLock, heldControl) = (try lock.identity(), try control.identity())
    let isUnnamed = countsNames && (heldLock.links == 0 || heldControl.links == 0)
    let here: StoreDirectory
    do throws(SystemError) {
      here = try directory.place.open()
    } catch {
      guard error.isAbsent || error.isNotDirectory else { throw error }
      return isUnnamed ? .removed : .moved
    }
    let lockHere = try here.folder.identity(of: LogFormat.lockName)
    let controlHere = try here.folder.identity(of: LogFormat.controlName)
    if let controlHere, controlHere.isSame(as: heldControl) {
      return lockHere?.isSame(as: heldLock) == true ? nil : .unlocked
    }
    if isUnnamed {
      return lockHere == nil && controlHere == nil ? .removed : .anotherInPlaceOfRemoved
    }
    guard lockHere != nil || controlHere != nil else { return .moved }
    // Network drives and drives of other systems change numbers, so what is there has the last word.
    guard try isThisStore(here) else { return .anotherInPlaceOfMoved }
    return lockHere == nil ? .unlocked : nil
  }

  /// Whether MANIFEST and CONTROL at the path are this store's, as this writer has written them.
  private func isThisStore(_ here: StoreDirectory) throws(SystemError) -> Bool {
    do throws(LogError) {
      guard try Manifest.read(here).storeUUID == storeUUID else { return false }
      // Nothing is written meanwhile.
      return try bounding.withLock { slots throws(LogError) in try ControlFile.read(here).current == slots.current }
    } catch {
      if let cause = error.underlying, !cause.isAbsent { throw cause }
      return false
    }
  }

  /// What has become of a store that is being written.
  private enum Replacement {
    /// Its files have no name any more, and nothing is at its path.
    case removed
    /// Its files have no name any more, and others are at its path.
    case anotherInPlaceOfRemoved
    /// Nothing is at its path; its files are somewhere else.
    case moved
    /// Other files are at its path; its own are somewhere else.
    case anotherInPlaceOfMoved
    /// Its files have other bytes than this writer has written.
    case overwritten
    /// Its lock file has another name or none, so that another writer may come; everything else is there.
    case unlocked

    func error(_ path: String) -> LogError {
      let untouched = "; nothing was written to what is there now"
      let words =
        switch self {
        case .removed:
          "the store at '\(path)' was removed while it was open for writing: what was acknowledged is lost with it, but "
            + "for what a backup or a server has\(untouched)"
        case .anotherInPlaceOfRemoved:
          "the store at '\(path)' was removed while it was open for writing, and other files are there now: what was "
            + "acknowledged is lost with it, but for what they, a backup or a server have\(untouched)"
        case .moved:
          "the store was moved away from '\(path)' while it was open for writing: what was acknowledged is whole where it "
            + "is now, and is lost if it was removed since\(untouched)"
        case .anotherInPlaceOfMoved:
          "the store was moved away from '\(path)' while it was open for writing, and another one is there now: what was "
            + "acknowledged is whole where it was moved to, and is not in the one at this path\(untouched)"
        case .overwritten:
          "another copy was put over the files of the store at '\(path)' while it was open for writing: what was "
            + "acknowledged since that copy was made may be lost; a write that was under way may have gone into the copy, and "
            + "everything later was not written"
        case .unlocked:
          "the LOCK of the store at '\(path)' was removed or replaced while it was open for writing, so that another "
            + "process may write it now; nothing else is missing\(untouched)"
        }
      return LogError(
        .replaced, "\(words); close this store, and open what is there", file: path, underlying: .stale("open", path))
    }
  }
}

extension LogBound {
  /// Whether it promises more.
  func isAhead(of other: LogBound) -> Bool {
    lsn > other.lsn || (lsn == other.lsn && segmentID == other.segmentID && end > other.end)
  }
}
