// The file `accounts`: which store is whose, and whose store is shown. Formats/accounts.md describes its bytes.
//
// A store's folder has a number and never a user's name: a name may be any text, and two that a file system takes for one are two
// users. The file is replaced as a whole, by a rename, so a power cut leaves the old list or the new one. Each change of what the
// folder holds is in the list before it is made, and is finished at the next open if a crash came between.

package import StrandlineSystem

/// Which stores a folder of accounts holds.
package struct AccountList: Hashable, Sendable {
  /// Whether a store stays or goes.
  package enum Fate: String, Hashable, Sendable, CaseIterable {
    /// It is there for its user.
    case kept
    /// Its unsent records are copied into another store, and then it is removed.
    case leaving
    /// It is removed.
    case removed
    /// It is to hold the unsent records of a store that leaves, and does not hold all of them yet.
    case filling
    /// It holds the unsent records of a store that was removed.
    case archive
  }

  package struct Entry: Hashable, Sendable {
    /// The name of its folder.
    package var number: UInt64
    /// The UTF-8 of the user's record name; nil for the store of before anybody was known.
    package var userBytes: [UInt8]?
    package var fate = Fate.kept

    var folderName: String { String(number) }
    var userName: String? { userBytes.map { String(decoding: $0, as: UTF8.self) } }
  }

  /// Whether somebody is signed in, as far as the app knows.
  package enum SignIn: String, Hashable, Sendable, CaseIterable {
    case yes, no
    /// The user has signed out, and the credential may still be there.
    case ending
  }

  package var entries: [Entry] = []
  /// The number of the store that opens; nil if none does.
  package var shownNumber: UInt64?
  package var signIn = SignIn.no
  /// The number of the next store. No number is given twice.
  private(set) var next: UInt64 = 1

  package static let fileName = "accounts"
  private static let temporaryName = "accounts.tmp"
  /// The file whose lock is held while the accounts are open.
  static let lockName = "accounts.lock"
  /// The list of ten thousand accounts has fewer bytes.
  private static let bytesMax = 8 << 20
  private static let title = "strandline accounts "
  private static let version = "1"

  var shown: Entry? { entries.first { $0.number == shownNumber } }

  /// The store of a user.
  func entry(of user: [UInt8]) -> Entry? { entries.first { $0.userBytes == user && $0.fate == .kept } }

  /// Begins a store.
  package mutating func add(_ user: [UInt8]?, _ fate: Fate = .kept) -> Entry {
    let entry = Entry(number: next, userBytes: user, fate: fate)
    next += 1
    entries.append(entry)
    return entry
  }

  package mutating func set(_ fate: Fate, of number: UInt64) {
    for index in entries.indices where entries[index].number == number { entries[index].fate = fate }
  }

  package mutating func drop(_ number: UInt64) { entries.removeAll { $0.number == number } }

  // MARK: Bytes

  package var bytes: [UInt8] {
    var lines = [Self.title + Self.version, "next \(next)", "shown \(shownNumber.map { String($0) } ?? "-")"]
    lines.append("signed-in \(signIn.rawValue)")
    for entry in entries {
      lines.append("account \(entry.number) \(entry.fate.rawValue) \(entry.userBytes.map(Self.hexadecimal) ?? "-")")
    }
    let text = lines.map { $0 + "\n" }.joined()
    let sum = CRC32C.checksum(Array(text.utf8))
    return Array((text + "crc32c \(sum)\n").utf8)
  }

  /// Reads a list.
  ///
  /// - Throws: `.damaged`, `.fromTheFuture`.
  init(_ bytes: [UInt8], file: String) throws(StrandlineError) {
    func damaged(_ what: String) -> StrandlineError {
      StrandlineError(
        .damaged,
        "the list of accounts '\(file)' is damaged: \(what); the stores beside it are untouched, each in a folder of its own; put the "
          + "file back from a backup", file: file)
    }
    var lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
    guard let first = lines.first, first.hasPrefix(Self.title) else { throw damaged("it does not begin as one") }
    guard first == Self.title + Self.version else {
      throw StrandlineError(
        .fromTheFuture,
        "the list of accounts '\(file)' is of a version that this one does not know; use a later version of Strandline",
        file: file)
    }
    guard lines.count > 2, lines.last?.isEmpty == true else { throw damaged("its end is missing") }
    lines.removeLast()
    let sum = lines.removeLast()
    let text = lines.map { $0 + "\n" }.joined()
    guard sum == "crc32c \(CRC32C.checksum(Array(text.utf8)))" else { throw damaged("its checksum is another one") }
    for line in lines.dropFirst() {
      guard read(line.split(separator: " ")) else { throw damaged("the line '\(line.prefix(60))' says nothing") }
    }
    let numbers = Set(entries.map(\.number))
    guard numbers.count == entries.count, numbers.allSatisfy({ $0 < next }) else {
      throw damaged("two accounts have one number")
    }
    guard shownNumber.map(numbers.contains) ?? true else { throw damaged("the account that it shows is not in it") }
  }

  package init() {}

  private mutating func read(_ words: [Substring]) -> Bool {
    switch (words.first, words.count) {
    case ("next", 2):
      guard let number = UInt64(words[1]) else { return false }
      next = number
    case ("shown", 2):
      guard words[1] == "-" || UInt64(words[1]) != nil else { return false }
      shownNumber = UInt64(words[1])
    case ("signed-in", 2):
      guard let known = SignIn(rawValue: String(words[1])) else { return false }
      signIn = known
    case ("account", 4):
      guard let number = UInt64(words[1]), let fate = Fate(rawValue: String(words[2])) else { return false }
      guard words[3] != "-" else {
        entries.append(Entry(number: number, userBytes: nil, fate: fate))
        return true
      }
      guard let user = Self.bytes(words[3]) else { return false }
      entries.append(Entry(number: number, userBytes: user, fate: fate))
    default: return false
    }
    return true
  }

  private static func hexadecimal(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  private static func bytes(_ text: Substring) -> [UInt8]? {
    let digits = Array(text)
    guard !digits.isEmpty, digits.count.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let byte = UInt8(String(digits[index...(index + 1)]), radix: 16) else { return nil }
      bytes.append(byte)
    }
    return bytes
  }

  // MARK: The file

  /// The bytes of the list of a folder; nil if none is there.
  static func bytes(in folder: any Folder) throws(SystemError) -> [UInt8]? {
    do throws(SystemError) {
      let file = try folder.open(fileName, .read)
      defer { file.close() }
      return try file.read(at: 0, count: bytesMax)
    } catch {
      guard error.isAbsent else { throw error }
      return nil
    }
  }

  /// The list of a folder, in which one begins if nothing is there.
  ///
  /// - Throws: `.damaged` also if the list is missing and stores are there: a lost list is no empty one.
  package static func load(from folder: any Folder) throws -> AccountList {
    let file = folder.path(of: fileName)
    if let bytes = try bytes(in: folder) { return try AccountList(bytes, file: file) }
    let names = try folder.list()
    if names.contains(where: { UInt64($0) != nil }) {
      throw StrandlineError(
        .damaged,
        "the list of accounts '\(file)' is missing, and stores are there; nothing was changed; put the file back from a backup",
        file: file)
    }
    guard names.allSatisfy({ $0 == temporaryName || $0 == lockName || $0.hasPrefix("session") }) else {
      throw StrandlineError(
        .notAStore, "'\(folder.path)' holds other files; accounts need a folder of their own", file: folder.path)
    }
    return AccountList()
  }

  /// Replaces the list of a folder. When this returns, the new one is durable; if it throws, either may be.
  package func save(to folder: any Folder) throws(SystemError) {
    if try folder.kind(of: Self.temporaryName) != .absent { try folder.unlink(Self.temporaryName) }
    let file = try folder.open(Self.temporaryName, .createPrivate)
    do throws(SystemError) {
      try file.write(bytes, at: 0)
      try file.sync(.durable)
    } catch {
      file.close()
      throw error
    }
    file.close()
    try folder.rename(Self.temporaryName, to: Self.fileName)
    try folder.sync()
  }
}
