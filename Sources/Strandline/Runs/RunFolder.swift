// The folder of runs: the names of its files, how a file comes into being, and how one goes.
//
// A file gets its name only when its content is durable: it is written under a temporary name, synced, renamed, and the
// directory is synced. A run counts only when the list names it, so whatever a crash or a failed call leaves behind can
// be removed: runs that no list names, and temporary files.

package import StrandlineSystem

/// A folder of runs. The caller makes the directory.
package struct RunFolder: Sendable {
  package let fileSystem: any FileSystem
  package let path: String

  package init(_ fileSystem: any FileSystem, _ path: String) {
    self.fileSystem = fileSystem
    self.path = path
  }

  // MARK: Names

  private static let digits = 16

  /// The number in 16 hexadecimal digits.
  private static func name(_ number: UInt64) -> String {
    let digits = String(number, radix: 16)
    return String(repeating: "0", count: Self.digits - digits.count) + digits
  }

  package func run(_ number: UInt64) -> String { "\(path)/\(Self.name(number))\(RunFormat.runSuffix)" }

  func temporaryRun(_ number: UInt64) -> String { "\(path)/\(Self.name(number))\(RunFormat.temporarySuffix)" }

  package var list: String { "\(path)/\(RunFormat.listName)" }

  var temporaryList: String { list + RunFormat.temporarySuffix }

  /// The number that stands before `suffix`, if the name is one that a writer of runs gives.
  private static func number(_ name: String, _ suffix: String) -> UInt64? {
    guard name.hasSuffix(suffix), name.utf8.count == digits + suffix.utf8.count else { return nil }
    let digits = name.dropLast(suffix.count)
    guard let number = UInt64(digits, radix: 16), Self.name(number) == digits else { return nil }
    return number
  }

  // MARK: Files

  /// Creates a file under a temporary name, in the place of what an earlier attempt left.
  func create(_ path: String) throws(SystemError) -> any File {
    do {
      return try fileSystem.open(path, .create)
    } catch  where error.isTaken {
      try fileSystem.unlink(path)
      return try fileSystem.open(path, .create)
    }
  }

  /// Gives a file that is synced its name. When this returns, the name is on the medium.
  func publish(_ temporary: String, as path: String) throws(SystemError) {
    try fileSystem.rename(temporary, to: path)
    try fileSystem.syncDirectory(self.path)
  }

  /// Removes runs. A reader that has one open goes on reading it. The names are gone after a crash too when this
  /// returns. A run that is not there is no error.
  package func remove(_ numbers: some Sequence<UInt64>) throws(SystemError) {
    try unlink(numbers.map { run($0) })
  }

  /// Removes runs that no list names, whose writers have failed, finished or not.
  package func removeUnlisted(_ numbers: some Sequence<UInt64>) throws(SystemError) {
    try unlink(numbers.flatMap { [run($0), temporaryRun($0)] })
  }

  /// Removes what no list names: every run except those of `numbers`, every temporary file, and those of the owner's files
  /// of these names. Other names are left alone. Requires that no writer is at work in the folder.
  ///
  /// - Returns: the names of the files that were removed, sorted.
  @discardableResult
  package func removeLeftovers(
    keeping numbers: Set<UInt64>, ofFiles owned: [String] = []
  ) throws(SystemError) -> [String] {
    let names = try fileSystem.list(path).filter { name in
      if let number = Self.number(name, RunFormat.runSuffix) { return !numbers.contains(number) }
      return Self.number(name, RunFormat.temporarySuffix) != nil
        || (owned + [RunFormat.listName]).contains { name == $0 + RunFormat.temporarySuffix }
    }
    try unlink(names.map { "\(path)/\($0)" })
    return names.sorted()
  }

  private func unlink(_ paths: [String]) throws(SystemError) {
    guard !paths.isEmpty else { return }
    for path in paths {
      do {
        try fileSystem.unlink(path)
      } catch  where error.isAbsent {
        continue
      }
    }
    try fileSystem.syncDirectory(path)
  }
}
