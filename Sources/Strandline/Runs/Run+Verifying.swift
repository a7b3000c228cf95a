// Checks a whole run: what an open and look-ups check, and everything else that Formats/runs.md says of a run.

import StrandlineSystem

extension Run {
  /// Reads the whole file past the cache, and checks every block, that its keys rise and lie between their separators,
  /// that the filter knows them, and that the footer's counts and checksum of the blocks are right.
  ///
  /// - Throws: `.damaged`, `.system`.
  package func verify() throws(RunError) {
    var cursor = RunCursor(whole: self)
    var (entries, tombstones) = (0, 0)
    var last: [UInt8] = []
    var blocks = 0
    while try cursor.advance() {
      entries += 1
      if cursor.isTombstone { tombstones += 1 }
      if cursor.blockNumber == blocks {
        try check(separatorOf: blocks, last: last, first: cursor.key)
        blocks += 1
      }
      guard mayContain(RunKey(cursor.key)) else {
        throw RunError(.damaged, path, at: footer.filterOffset, "the filter does not know a key of the run")
      }
      last = cursor.key
    }
    guard entries == entryCount, tombstones == tombstoneCount, cursor.blocksCRC == footer.blocksCRC else {
      throw RunError(
        .damaged, path, at: identity.fileBytes - UInt64(RunFormat.footerBytes),
        "the footer's counts or checksum are not those of the blocks")
    }
  }

  /// Checks that the separator is the shortest beginning of `first` that sorts behind `last`.
  private func check(separatorOf block: Int, last: [UInt8], first: [UInt8]) throws(RunError) {
    let common = last.commonPrefixCount(0..<last.count, first, 0..<first.count)
    let expected = block == 0 ? [] : Array(first[...common])
    guard index.separator(of: block) == expected else {
      throw RunError(
        .damaged, path, at: footer.indexOffset + UInt64(block * RunFormat.indexEntryBytes),
        "the separator of block \(block) is not the beginning of its first key")
    }
  }
}
