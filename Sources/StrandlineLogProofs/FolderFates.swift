// What can become of the folder of a store while a process writes it; for the campaigns of the log and of the store.
//
// A case is a campaign, an operation, a fate, a call that changes the disk, and whether the writer's next look is due: all
// of it follows from these, so that a failure is repeated alone.

import StrandlineLog
package import StrandlineSimulation
package import StrandlineSystem
import Synchronization

/// What happens to the folder of a store.
package enum FolderFate: String, CaseIterable, Sendable {
  /// It was moved, and there is nothing at its path.
  case moved
  /// It was moved, and another store is at its path.
  case replacedByAnother
  /// It was moved, and an older copy of it is at its path.
  case replacedByOlder
  /// A second process has made a store at its path, and writes it.
  case secondWriter
  /// It was removed.
  case removed
  /// It was removed, and another store is at its path.
  case removedAndReplaced
  /// Its files were removed, and another store's put into the same folder.
  case emptiedAndFilled
  /// An older copy was put over its files.
  case overwrittenByOlder
  /// Another store's files were put over its files.
  case overwrittenByAnother
  /// A copy of its files that was made since this writer opened it was put over them.
  case overwrittenBySameSession
  /// Its disk was mounted again, with other numbers of files.
  case remounted

  /// Where the store is.
  package static let path = "/store"
  /// Where the folder is moved to.
  package static let movedPath = "/moved"
  /// An older copy of the store.
  package static let olderPath = "/older"
  /// Another store.
  package static let otherPath = "/other"

  /// Whether the store is still the one at its path.
  package var goesOn: Bool { self == .remounted }
  /// Whether its files have other bytes now. The writer notices that when it compares CONTROL.
  package var isInPlace: Bool {
    self == .overwrittenByOlder || self == .overwrittenByAnother || self == .overwrittenBySameSession
  }
  /// Whether its files have no name any more.
  package var isRemoved: Bool { self == .removed || self == .removedAndReplaced || self == .emptiedAndFilled }

  /// Whether no writer can notice it if it comes right before a call of this kind: the writer has looked already. The meter notes
  /// only calls of which that is so.
  package func isBlind(before call: MeteredCall?) -> Bool {
    switch call {
    case .intoNamedFile: isInPlace
    case .ofName: isInPlace || self == .emptiedAndFilled
    case nil: false
    }
  }

  /// What was changed of a store that is at the path, if a writer of this store has changed something of it. What the writer
  /// had begun under a temporary name is its own.
  ///
  /// - Parameters:
  ///   - found: the files at the path.
  ///   - put: what was put there.
  package func changes(in found: [String: [UInt8]], of put: [String: [UInt8]]) -> [String] {
    // A copy that is put over files does not touch files of other names.
    let names = isInPlace ? Set(put.keys) : Set(put.keys).union(found.keys)
    return names.filter { found[$0] != put[$0] && !(put[$0] == nil && $0.hasSuffix(LogFormat.temporarySuffix)) }
      .sorted()
  }

  /// Whether other files are in the folder that a reader has open.
  package var isInFolder: Bool { isInPlace || self == .emptiedAndFilled }
  /// Where the files of the writer are; nil if they have no name.
  package var keptPath: String? {
    switch self {
    case .moved, .replacedByAnother, .replacedByOlder, .secondWriter: Self.movedPath
    case .remounted: Self.path
    case .removed, .removedAndReplaced, .emptiedAndFilled, .overwrittenByOlder, .overwrittenByAnother,
      .overwrittenBySameSession:
      nil
    }
  }
  /// The folder whose files are at the path afterwards; nil if there is none that was there before.
  package var sourcePath: String? {
    switch self {
    case .replacedByAnother, .removedAndReplaced, .emptiedAndFilled, .overwrittenByAnother: Self.otherPath
    case .replacedByOlder, .overwrittenByOlder: Self.olderPath
    case .moved, .removed, .secondWriter, .overwrittenBySameSession, .remounted: nil
    }
  }

  /// Lets it happen. When this returns, it is durable.
  ///
  /// - Parameters:
  ///   - copy: the files of the store at a moment of this session, for `.overwrittenBySameSession`.
  ///   - second: makes a store at the path and writes it, for `.secondWriter`.
  /// - Returns: what `second` has returned.
  package func befall<Second>(
    _ disk: SimulatedDisk, _ copy: [String: [UInt8]], second: (any FileSystem) throws -> Second
  ) throws -> Second? {
    func remove() throws {
      try disk.folder(Self.path).removeContents()
      try disk.removeDirectory(Self.path)
    }
    func move(_ from: String, to: String) throws { try disk.renameFolder(from, to: to) }
    switch self {
    case .moved: try move(Self.path, to: Self.movedPath)
    case .replacedByAnother:
      try move(Self.path, to: Self.movedPath)
      try move(Self.otherPath, to: Self.path)
    case .replacedByOlder:
      try move(Self.path, to: Self.movedPath)
      try move(Self.olderPath, to: Self.path)
    case .secondWriter:
      try move(Self.path, to: Self.movedPath)
      let made = try second(OtherProcess(disk))
      try disk.folder("/").sync()
      return made
    case .removed: try remove()
    case .removedAndReplaced:
      try remove()
      try move(Self.otherPath, to: Self.path)
    case .emptiedAndFilled:
      try disk.folder(Self.path).removeContents()
      try disk.folder(Self.path).sync()
      disk.put(disk.files(in: Self.otherPath), over: Self.path)
    case .overwrittenByOlder: disk.put(disk.files(in: Self.olderPath), over: Self.path)
    case .overwrittenByAnother: disk.put(disk.files(in: Self.otherPath), over: Self.path)
    case .overwrittenBySameSession: disk.put(copy, over: Self.path)
    case .remounted: disk.remount()
    }
    try disk.folder("/").sync()
    return nil
  }
}

// MARK: Cases

/// The campaigns.
package enum FolderCampaign: String, Sendable {
  case log, store
}

/// One case, in words: `log/append/moved/12/due`.
package struct FolderCase: Hashable, Sendable, CustomStringConvertible {
  package var campaign: FolderCampaign
  /// The raw value of the operation.
  package var operation: String
  package var fate: FolderFate
  /// The fate comes before the call of the operation with this number, from 1.
  package var call: Int
  /// Whether the writer's next look is due after it.
  package var isLookDue: Bool

  package init(_ campaign: FolderCampaign, _ operation: String, _ fate: FolderFate, call: Int, isLookDue: Bool) {
    (self.campaign, self.operation, self.fate, self.call, self.isLookDue) = (campaign, operation, fate, call, isLookDue)
  }

  /// nil if these are not the words of a case.
  package init?(_ words: String) {
    let parts = words.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
    guard parts.count == 5, let campaign = FolderCampaign(rawValue: parts[0]),
      let fate = FolderFate(rawValue: parts[2]),
      let call = Int(parts[3]), call > 0, ["due", "early"].contains(parts[4])
    else { return nil }
    self.init(campaign, parts[1], fate, call: call, isLookDue: parts[4] == "due")
  }

  package var description: String {
    "\(campaign.rawValue)/\(operation)/\(fate.rawValue)/\(call)/\(isLookDue ? "due" : "early")"
  }

  /// What is drawn in it.
  package var seed: UInt64 { description.utf8.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 } }
  /// Whether the power goes after it as well: in one of so many cases.
  package var hasPowerCut: Bool { (seed >> 32) % 8 == 0 }

  /// All cases of an operation that makes so many calls.
  package static func all(
    _ campaign: FolderCampaign, _ operation: String, calls: Int
  ) -> [FolderCase] {
    FolderFate.allCases.flatMap { fate in
      (0..<calls).flatMap { call in
        [true, false].map { FolderCase(campaign, operation, fate, call: call + 1, isLookDue: $0) }
      }
    }
  }
}

/// A case in which something of a store was changed or lost, or not said.
package struct FolderFailure: Error, CustomStringConvertible {
  package var folderCase: FolderCase
  package var what: String

  package init(_ folderCase: FolderCase, _ what: String) { (self.folderCase, self.what) = (folderCase, what) }

  /// The command that repeats it.
  package var command: String { "strandline crash-test --folder \(folderCase)" }
  package var description: String { "FOLDER_FAIL \(folderCase): \(what); repeat it with: \(command)" }
}

// MARK: What the campaigns open stores through

/// The same file system as another process sees it.
package final class OtherProcess: ForwardingFileSystem {
  package let base: any FileSystem
  package let openStores = OpenStores()
  package init(_ base: any FileSystem) { self.base = base }
}

/// A call that may change a file of a store by its name or through a file that has one.
package enum MeteredCall: Sendable {
  case intoNamedFile, ofName
}

/// Notes which calls of a writer may change what other files are put in the place of its own. The writer has read CONTROL before such
/// a call, and has not synced, renamed or removed a file or written into CONTROL since: one that has not could have noticed.
package final class CallMeter: ForwardingFileSystem {
  package let disk: SimulatedDisk
  private let noted = Mutex<[Int: MeteredCall]>([:])
  private let unnamed = Mutex<[String: MeteredFile]>([:])
  private let hasCompared = Atomic(false)
  package var base: any FileSystem { disk }
  package init(_ disk: SimulatedDisk) { self.disk = disk }

  package var calls: [Int: MeteredCall] { noted.withLock { $0 } }

  fileprivate func note(_ call: MeteredCall) {
    if hasCompared.load(ordering: .relaxed) { noted.withLock { $0[disk.callCount + 1] = call } }
  }

  fileprivate func compared() { hasCompared.store(true, ordering: .relaxed) }
  fileprivate func mustCompare() { hasCompared.store(false, ordering: .relaxed) }

  package func open(_ name: String, _ mode: OpenMode, in folder: any Folder) throws(SystemError) -> any File {
    let file = MeteredFile(self, try folder.open(name, mode), isControl: name == LogFormat.controlName)
    if name.hasSuffix(LogFormat.temporarySuffix) {
      unnamed.withLock { $0[name] = file }
    } else {
      file.getName()
    }
    return file
  }

  package func rename(_ name: String, to newName: String, in folder: any Folder) throws(SystemError) {
    note(.ofName)
    mustCompare()
    try folder.rename(name, to: newName)
    unnamed.withLock { $0.removeValue(forKey: name) }?.getName()
  }

  package func unlink(_ name: String, in folder: any Folder) throws(SystemError) {
    if !name.hasSuffix(LogFormat.temporarySuffix) { note(.ofName) }
    mustCompare()
    try folder.unlink(name)
  }
}

private final class MeteredFile: ForwardingFile {
  let meter: CallMeter
  let base: any File
  private let isControl: Bool
  private let hasName = Atomic(false)
  init(_ meter: CallMeter, _ base: any File, isControl: Bool) {
    self.meter = meter
    self.base = base
    self.isControl = isControl
  }

  func getName() { hasName.store(true, ordering: .relaxed) }

  private func note() {
    if hasName.load(ordering: .relaxed) { meter.note(.intoNamedFile) }
  }

  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    if isControl { meter.compared() }
    return try base.read(at: offset, count: count)
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    note()
    if isControl { meter.mustCompare() }
    try base.write(bytes, range, at: offset)
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    note()
    try base.preallocate(at: offset, length: length)
  }
  func truncate(to size: UInt64) throws(SystemError) {
    note()
    try base.truncate(to: size)
  }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    meter.mustCompare()
    try base.sync(strength)
  }
}
