// Tells a file that is refused while the device is locked from one that is refused for good.
//
// iOS encrypts files with a key that it discards while the device is locked (data protection, class "complete" or, until
// the first unlock after a start, the default class). A call on such a file then fails with EPERM, as if its permissions
// were wrong, and succeeds when the device is unlocked. The errno alone does not say which of the two it is; here it is
// asked, and `SystemError.isDeviceLocked` carries the answer to the error that the app sees. No call is repeated, and
// nothing is decided by it below.

internal import CStrandline

/// Whether an app is asked whether protected files can be read. That happens under whatever locks a file is used, so the app's
/// closure must not call a store: it would wait for itself.
package enum ProtectionQuestion {
  /// Whether this thread runs the closure.
  package static var isAsked: Bool { strandline_is_asking() }

  static func ask(_ closure: () -> Bool) -> Bool {
    let before = strandline_is_asking()
    strandline_set_asking(true)
    defer { strandline_set_asking(before) }
    return closure()
  }
}

/// A file system whose files may be unavailable while the device is locked.
package struct ProtectedFileSystem: FileSystem {
  private let base: any FileSystem
  private let rule: ProtectionRule

  /// - Parameter isProtectedDataAvailable: asked after a call was refused, on the thread of the call.
  package init(_ base: any FileSystem, isProtectedDataAvailable: @escaping @Sendable () -> Bool) {
    self.init(base, ProtectionRule { $0.isRefused && !ProtectionQuestion.ask(isProtectedDataAvailable) })
  }

  private init(_ base: any FileSystem, _ rule: ProtectionRule) {
    self.base = base
    self.rule = rule
  }

  /// The file system of this machine. Where the system has data protection, EPERM counts as a locked device: a file in
  /// the app's own container is refused with it for no other reason.
  package static var real: any FileSystem {
    #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
      ProtectedFileSystem(POSIXFileSystem(), ProtectionRule { $0.isNotPermitted })
    #else
      POSIXFileSystem()
    #endif
  }

  package func absolutePath(_ path: String) throws(SystemError) -> String { try base.absolutePath(path) }
  package var openStores: OpenStores { base.openStores }
  package func folder(_ path: String) throws(SystemError) -> any Folder {
    ProtectedFolder(try rule.marking { () throws(SystemError) in try base.folder(path) }, rule)
  }
  package func kind(of path: String) throws(SystemError) -> PathKind {
    try rule.marking { () throws(SystemError) in try base.kind(of: path) }
  }
  package func makeDirectory(_ path: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.makeDirectory(path) }
  }
  package func renameFolder(_ path: String, to newPath: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.renameFolder(path, to: newPath) }
  }
  package func removeDirectory(_ path: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.removeDirectory(path) }
  }
}

/// Whether the device was locked when a call failed.
private struct ProtectionRule: Sendable {
  let isLocked: @Sendable (SystemError) -> Bool

  init(_ isLocked: @escaping @Sendable (SystemError) -> Bool) { self.isLocked = isLocked }

  func marking<Result>(_ call: () throws(SystemError) -> Result) throws(SystemError) -> Result {
    do {
      return try call()
    } catch {
      var error = error
      if isLocked(error) { error.cause = .deviceLocked }
      throw error
    }
  }
}

private final class ProtectedFolder: Folder {
  private let base: any Folder
  private let rule: ProtectionRule
  var path: String { base.path }

  init(_ base: any Folder, _ rule: ProtectionRule) {
    self.base = base
    self.rule = rule
  }

  func wasMoved(to path: String) { base.wasMoved(to: path) }
  func open(_ name: String, _ mode: OpenMode) throws(SystemError) -> any File {
    ProtectedFile(try rule.marking { () throws(SystemError) in try base.open(name, mode) }, rule)
  }
  func kind(of name: String) throws(SystemError) -> PathKind {
    try rule.marking { () throws(SystemError) in try base.kind(of: name) }
  }
  func list(_ name: String) throws(SystemError) -> [String] {
    try rule.marking { () throws(SystemError) in try base.list(name) }
  }
  func sizes(of names: [String]) throws(SystemError) -> [UInt64?] {
    try rule.marking { () throws(SystemError) in try base.sizes(of: names) }
  }
  func makeFolder(_ name: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.makeFolder(name) }
  }
  func rename(_ name: String, to newName: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.rename(name, to: newName) }
  }
  func unlink(_ name: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.unlink(name) }
  }
  func removeFolder(_ name: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.removeFolder(name) }
  }
  func sync(_ name: String) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.sync(name) }
  }
  func lock(_ name: String, exclusive: Bool) throws(SystemError) -> (any FileLock)? {
    try rule.marking { () throws(SystemError) in try base.lock(name, exclusive: exclusive) }
  }
  func identity(of name: String) throws(SystemError) -> FileIdentity? {
    try rule.marking { () throws(SystemError) in try base.identity(of: name) }
  }
  func setTreatment(_ treatment: FileTreatment) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.setTreatment(treatment) }
  }
}

private final class ProtectedFile: File {
  private let base: any File
  private let rule: ProtectionRule
  var path: String { base.path }

  init(_ base: any File, _ rule: ProtectionRule) {
    self.base = base
    self.rule = rule
  }

  func identity() throws(SystemError) -> FileIdentity {
    try rule.marking { () throws(SystemError) in try base.identity() }
  }
  func size() throws(SystemError) -> UInt64 { try rule.marking { () throws(SystemError) in try base.size() } }
  func read(at offset: UInt64, count: Int) throws(SystemError) -> [UInt8] {
    try rule.marking { () throws(SystemError) in try base.read(at: offset, count: count) }
  }
  func read(at offset: UInt64, count: Int, into buffer: inout [UInt8]) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.read(at: offset, count: count, into: &buffer) }
  }
  func write(_ bytes: [UInt8], _ range: Range<Int>, at offset: UInt64) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.write(bytes, range, at: offset) }
  }
  func preallocate(at offset: UInt64, length: UInt64) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.preallocate(at: offset, length: length) }
  }
  func truncate(to size: UInt64) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.truncate(to: size) }
  }
  func sync(_ strength: SyncStrength) throws(SystemError) {
    try rule.marking { () throws(SystemError) in try base.sync(strength) }
  }
  func close() { base.close() }
}
