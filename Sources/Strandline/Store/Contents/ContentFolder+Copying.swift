// Contents that another folder gets: that of a backup, or of a repaired store. And whether all are there and whole.

import StrandlineLog
package import StrandlineSystem

extension ContentFolder {
  /// Copies the contents to the folder of another store, but for those that it has. Each copy is checked by its hash. When this returns, the
  /// copies are on the medium.
  ///
  /// - Parameter progress: called after each piece with the bytes that were copied so far; what it throws ends the copying.
  /// - Returns: the bytes of the copies, and the contents that are damaged, or vanished meanwhile, and were left out.
  func copy(to other: ContentFolder, progress: (UInt64) throws -> Void = { _ in }) throws -> (
    bytes: UInt64, leftOut: [ContentHash]
  ) {
    let contents = try list().contents
    guard !contents.isEmpty else { return (0, []) }
    try other.make()
    var (bytes, leftOut): (UInt64, [ContentHash]) = (0, [])
    for hash in contents where try other.size(of: hash) == nil {
      do {
        if let count = try copy(hash, to: other, { try progress(bytes + $0) }) {
          bytes += count
        } else {
          leftOut.append(hash)
        }
      } catch let error as SystemError where error.isAbsent {
        // Its store has removed it since the list was read.
        leftOut.append(hash)
      }
    }
    try other.sync()
    return (bytes, leftOut)
  }

  /// - Returns: nil if the content is not what its name says.
  private func copy(_ hash: ContentHash, to other: ContentFolder, _ progress: (UInt64) throws -> Void) throws -> UInt64?
  {
    let input = try open(hash)
    defer { input.close() }
    let temporary = Self.temporaryName(of: hash)
    // What an earlier try of this copy has left.
    try other.remove(temporary)
    let output = try other.create(temporary)
    defer { output.close() }
    var (digest, offset) = (SHA256Digest(), UInt64(0))
    try Self.forEachPiece(of: input) { piece in
      digest.update(piece)
      try output.write(piece, at: offset)
      offset += UInt64(piece.count)
      try progress(offset)
    }
    guard ContentHash(digest.finish()) == hash else {
      try other.remove(temporary)
      return nil
    }
    try output.sync(.durable)
    try other.publish(temporary, as: hash)
    return offset
  }
}

/// What is wrong with the contents that a store's events name: nothing is changed.
package struct ContentCheck: Sendable {
  /// A content that is not there or is another one.
  package struct Finding: Hashable, Sendable {
    /// The file, as a path.
    package var file: String
    /// What is wrong with it.
    package var words: String
  }
  package private(set) var findings: [Finding] = []
  /// The contents that events name.
  package private(set) var count = 0
  /// How many bytes those contents have.
  package private(set) var bytes: Int64 = 0
  /// Contents in the folder that no event names: they were staged, or the store's next open removes them.
  package private(set) var unnamed = 0

  /// The check of a store without contents.
  init() {}

  /// Reads every byte of the contents that are named.
  ///
  /// - Parameters:
  ///   - table: what the events of the log fold to.
  ///   - folder: the store's.
  /// - Throws: `SystemError` if the folder cannot be read. A file that cannot be read is a finding.
  /// - Complexity: O(bytes of the contents).
  package init(of table: ContentTable, in folder: any Folder) throws {
    let folder = ContentFolder(folder)
    let there = try folder.list().contents
    unnamed = there.count { !table.contains($0) }
    for content in table.all {
      count += 1
      bytes &+= content.size
      if let words = Self.defect(of: content, folder) {
        findings.append(Finding(file: folder.path(of: content.hash), words: words))
      }
    }
  }

  private static func defect(of content: NamedContent, _ folder: ContentFolder) -> String? {
    do {
      guard let size = try folder.size(of: content.hash) else {
        return "a record names this content, and it is not there"
      }
      guard size == content.size else {
        return "it has \(size) bytes, and a record that names it says \(content.size)"
      }
      let isWhole = try folder.hash(of: content.hash) == content.hash
      return isWhole ? nil : "its bytes are not those of which it has the hash as its name"
    } catch {
      return "it cannot be read: \(error)"
    }
  }
}
