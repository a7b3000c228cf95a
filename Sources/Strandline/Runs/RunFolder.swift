// The folder of runs: the names of its files, how a file comes into being, and how one goes.
//
// A file gets its name only when its content is durable: it is written under a temporary name, synced, renamed, and the
// directory is synced. A run counts only when the list names it, so whatever a crash or a failed call leaves behind can
// be removed: runs that no list names, and temporary files.

package import StrandlineSystem

/// A folder of runs, in the folder of a store or as a folder of its own. The caller makes the directory.
package struct RunFolder: Sendable {
  let store: any Folder
  /// The name in the folder of the store.
  let name: String

  package init(_ store: any Folder, _ name: String = ".") {
    self.store = store
    self.name = name
  }

  /// Where it was found: for messages.
  package var path: String { store.path(of: name) }

  // MARK: Names

  private static let digits = 16

  /// The number in 16 hexadecimal digits.
  private static func name(_ number: UInt64) -> String {
    let digits = String(number, radix: 16)
    return String(repeating: "0", count: Self.digits - digits.count) + digits
  }

  /// The name of a file of this folder in the folder of the store.
  func file(_ name: String) -> String { self.name == "." ? name : "\(self.name)/\(name)" }

  private func runFile(_ number: UInt64) -> String { file(Self.name(number) + RunFormat.runSuffix) }

  func temporaryRunFile(_ number: UInt64) -> String { file(Self.name(number) + RunFormat.temporarySuffix) }

  var listFile: String { file(RunFormat.listName) }

  // Paths, for messages.

  package func run(_ number: UInt64) -> String { path(of: runFile(number)) }

  package var list: String { path(of: listFile) }

  /// The path of a file by its name in the folder of the store.
  func path(of file: String) -> String { store.path(of: file) }

  /// The number that stands before `suffix`, if the name is one that a writer of runs gives.
  private static func number(_ name: String, _ suffix: String) -> UInt64? {
    guard name.hasSuffix(suffix), name.utf8.count == digits + suffix.utf8.count else { return nil }
    let digits = name.dropLast(suffix.count)
    guard let number = UInt64(digits, radix: 16), Self.name(number) == digits else { return nil }
    return number
  }

  // MARK: Files

  /// Opens a run.
  func open(_ number: UInt64) throws(SystemError) -> any File { try store.open(runFile(number), .read) }

  /// Creates a file under a temporary name, in the place of what an earlier attempt left.
  func create(_ file: String) throws(SystemError) -> any File {
    do {
      return try store.open(file, .create)
    } catch  where error.isTaken {
      try store.unlink(file)
      return try store.open(file, .create)
    }
  }

  /// Gives a file that is synced its name. When this returns, the name is on the medium.
  func publish(_ temporary: String, as file: String) throws(SystemError) {
    try store.rename(temporary, to: file)
    try sync()
  }

  /// Gives a run that is synced its name.
  func publish(_ temporary: String, asRun number: UInt64) throws(SystemError) {
    try publish(temporary, as: runFile(number))
  }

  /// Makes the names in it durable.
  func sync() throws(SystemError) { try store.sync(name) }

  /// Removes runs. A reader that has one open goes on reading it. The names are gone after a crash too when this
  /// returns. A run that is not there is no error.
  package func remove(_ numbers: some Sequence<UInt64>) throws(SystemError) {
    try unlink(numbers.map { runFile($0) })
  }

  /// Removes runs that no list names, whose writers have failed, finished or not.
  package func removeUnlisted(_ numbers: some Sequence<UInt64>) throws(SystemError) {
    try unlink(numbers.flatMap { [runFile($0), temporaryRunFile($0)] })
  }

  /// Removes what no list names: every run except those of `numbers`, every temporary file, and those of the owner's files
  /// of these names. Other names are left alone. Requires that no writer is at work in the folder.
  ///
  /// - Returns: the names of the files that were removed, sorted.
  @discardableResult
  package func removeLeftovers(
    keeping numbers: Set<UInt64>, ofFiles owned: [String] = []
  ) throws(SystemError) -> [String] {
    let names = try store.list(self.name).filter { name in
      if let number = Self.number(name, RunFormat.runSuffix) { return !numbers.contains(number) }
      return Self.number(name, RunFormat.temporarySuffix) != nil
        || (owned + [RunFormat.listName]).contains { name == $0 + RunFormat.temporarySuffix }
    }
    try unlink(names.map { file($0) })
    return names.sorted()
  }

  private func unlink(_ files: [String]) throws(SystemError) {
    guard !files.isEmpty else { return }
    for file in files {
      do {
        try store.unlink(file)
      } catch  where error.isAbsent {
        continue
      }
    }
    try sync()
  }
}
