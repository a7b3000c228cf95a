// Goes through a run in the order of its keys.
//
// A cursor through the cache reads block after block, for a page of a list. One for the whole run reads large pieces of
// the file past the cache, so that a merge does not remove what look-ups need. Either checks that the keys rise: the
// files of a damaged medium never make a wrong order, those of crafted bytes an error.

import StrandlineSystem

/// A place in a run. It keeps the run open.
package struct RunCursor {
  private let run: Run
  /// Whether blocks come through the cache.
  private let isCached: Bool
  /// The key of the current entry.
  package private(set) var key: [UInt8] = []
  /// The current entry is a tombstone.
  package private(set) var isTombstone = false

  private var block: RunBlock?
  private var nextBlock = 0
  /// The number of the next entry in its block, and where it begins in the block's bytes.
  private var nextEntry = 0
  private var place = 0
  private var valueRange = 0..<0
  /// The next entry is the first that is decoded: no key is before it.
  private var isFirst = true
  /// `seek` has decoded the entry that the next `advance` returns.
  private var isSought = false
  /// A piece of the file, and the blocks in it; for a cursor past the cache.
  private var piece: [UInt8] = []
  private var pieceBlocks = 0..<0
  /// The checksum of the checksums of the blocks so far, as the footer has it.
  private(set) var blocksCRC: UInt32 = 0

  /// A cursor through the cache, before the first key that does not sort before `key`.
  init(_ run: Run, from key: [UInt8]) throws(RunError) {
    self.run = run
    isCached = true
    guard !key.isEmpty, run.index.blockCount > 0 else { return }
    nextBlock = run.index.block(for: key)
    try seek(key)
  }

  /// A cursor past the cache, before the first key.
  init(whole run: Run) {
    self.run = run
    isCached = false
  }

  /// The value of the current entry; nil if it is a tombstone. Requires that `advance` has returned true.
  package var value: RunValue? {
    guard let block, !isTombstone else { return nil }
    return RunValue(bytes: block.bytes, range: valueRange)
  }

  /// The number of the block that the current entry lies in.
  var blockNumber: Int { nextBlock - 1 }

  /// Moves to the next entry; to the first one, when it is called for the first time.
  ///
  /// - Returns: false if there is none.
  /// - Throws: `.damaged`, `.system`. The cursor is then of no more use.
  package mutating func advance() throws(RunError) -> Bool {
    if isSought {
      isSought = false
      return block != nil
    }
    while true {
      if let block, nextEntry < block.entryCount {
        try decode(block)
        return true
      }
      guard try enterNextBlock() else { return false }
    }
  }

  /// Moves to the first key from here that does not sort before `key`, which `advance` will return.
  private mutating func seek(_ key: [UInt8]) throws(RunError) {
    guard try enterNextBlock(), let block else { return }
    (nextEntry, place) = try RunFault.naming(run.path) { () throws(RunFault) in try block.seek(key) }
    repeat {
      guard try advance() else { break }
    } while self.key.precedes(key)
    isSought = true
  }

  /// - Returns: false if there is no more block.
  private mutating func enterNextBlock() throws(RunError) -> Bool {
    if let block, place != block.entriesEnd {
      throw block.fault(place, "the block has more than its \(block.entryCount) entries").error(run.path)
    }
    guard nextBlock < run.index.blockCount else {
      block = nil
      return false
    }
    let next = isCached ? try run.block(nextBlock) : try blockOfPiece(nextBlock)
    if !isCached {
      blocksCRC = CRC32C.checksum(next.bytes, next.start..<next.start + 4, continuing: blocksCRC)
    }
    block = next
    nextBlock += 1
    nextEntry = 0
    place = next.entriesStart
    return true
  }

  private mutating func decode(_ block: RunBlock) throws(RunError) {
    let isRestart = nextEntry % RunFormat.restartInterval == 0
    do throws(RunFault) {
      if isRestart, try block.restart(nextEntry / RunFormat.restartInterval) != place {
        throw block.fault(place, "no restart point names the entry \(nextEntry)")
      }
      guard place < block.entriesEnd else {
        throw block.fault(place, "the block has fewer entries than its \(block.entryCount)")
      }
      let entry = try block.entry(at: place)
      guard isNext(entry, block, isRestart: isRestart) else {
        throw block.fault(place, "a key does not sort behind the one before")
      }
      key.removeLast(key.count - entry.shared)
      key.append(contentsOf: block.bytes[entry.keyStart..<entry.keyEnd])
      isTombstone = entry.isTombstone
      valueRange = entry.keyEnd..<entry.end
      place = entry.end
    } catch {
      throw error.error(run.path)
    }
    nextEntry += 1
    isFirst = false
  }

  /// Whether the key of the entry sorts behind the current one and lacks exactly what the two have in common.
  private func isNext(_ entry: RunBlock.Entry, _ block: RunBlock, isRestart: Bool) -> Bool {
    let rest = entry.keyStart..<entry.keyEnd
    if isRestart {
      return entry.shared == 0 && (isFirst || key.precedes(0..<key.count, block.bytes, rest))
    }
    guard entry.shared <= key.count, !rest.isEmpty else { return false }
    return entry.shared == key.count || key[entry.shared] < block.bytes[rest.lowerBound]
  }

  /// A block of the piece of the file that was read last; reads the next piece if it is not in it.
  private mutating func blockOfPiece(_ number: Int) throws(RunError) -> RunBlock {
    if !pieceBlocks.contains(number) {
      var end = number + 1
      let start = run.index.range(of: number).lowerBound
      while end < run.index.blockCount, run.index.range(of: end).upperBound - start <= UInt64(RunFormat.chunkBytes) {
        end += 1
      }
      // The current block refers to the old piece; without this the piece would be copied.
      block = nil
      do throws(SystemError) {
        try run.file.read(
          at: start, count: Int(run.index.range(of: end - 1).upperBound - start), into: &piece)
      } catch {
        throw RunError(error, file: run.path)
      }
      pieceBlocks = number..<end
    }
    let start = run.index.range(of: pieceBlocks.lowerBound).lowerBound
    let range = run.index.range(of: number)
    let inPiece = Int(range.lowerBound - start)..<Int(range.upperBound - start)
    try RunFault.naming(run.path) { () throws(RunFault) in
      try RunBlock.check(piece, inPiece, at: range.lowerBound, run.seed)
    }
    return RunBlock(piece, inPiece, at: range.lowerBound)
  }
}
