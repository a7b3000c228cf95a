// A random crash, with everything that the fault model allows.
//
// Only the byte ranges of unsynced writes and of unsynced growth may be damaged. Bytes that an earlier sync covered keep
// their values, also those in the same sector as an unsynced write (powersafe overwrite, as SQLite calls it).

internal import StrandlineSystem

extension SimulatedDiskState {
  func randomImage(_ random: any RandomSource) -> SimulatedDiskState {
    let pieces = pieces()
    var wanted = [Bool](repeating: true, count: pieces.count)
    // Three crashes in ten lose whole pages of 4 KiB, the others single sectors.
    let blockSectors = random.below(10) < 3 ? 8 : 1
    drawBlocks(pieces, blockSectors, &wanted, random)
    drawSizes(pieces, &wanted, random)
    drawOperations(pieces, &wanted, random)
    // The last barrier before the crash: everything that it and earlier barriers cover survives, and nothing that came
    // after it does.
    let last = random.below(2) == 0 ? barriers : Int(random.below(UInt64(barriers + 1)))
    for (index, piece) in pieces.enumerated() {
      if let sealed = piece.sealed, sealed <= last { wanted[index] = true }
      if piece.born > last { wanted[index] = false }
    }
    var image = image(pieces, closed(pieces, wanted))
    for node in nodes.indices where !nodes[node].effects.isEmpty {
      let content = image.nodes[node].durable
      guard content.size > 0 else { continue }
      let damaged = damage(content, nodes[node], last, blockSectors, random)
      image.nodes[node] = SimulatedNode(durable: damaged)
    }
    return image
  }

  /// A crash that tears each unsynced write: all names and sizes survive, and each write up to a random sector. From
  /// there on, the file holds the bytes at the same offset of a file that was truncated or removed.
  func staleImage(_ random: any RandomSource) -> SimulatedDiskState {
    let pieces = pieces()
    var image = image(pieces, [Bool](repeating: true, count: pieces.count))
    guard !removedContents.isEmpty else { return image }
    let stale = removedContents[Int(random.below(UInt64(removedContents.count)))]
    for node in nodes.indices where !nodes[node].effects.isEmpty {
      var content = image.nodes[node].durable
      for pending in nodes[node].effects {
        let sectors = pending.effect.sectors
        guard !sectors.isEmpty else { continue }
        let first = sectors.lowerBound + Int(random.below(UInt64(sectors.count)))
        guard let part = pending.effect.part(in: first..<sectors.upperBound) else { continue }
        let range = (part.offset..<part.offset + part.bytes.count).clamped(to: 0..<content.size)
        let old = stale.read(range)
        content.put((old + [UInt8](repeating: 0, count: range.count - old.count))[...], at: range.lowerBound)
      }
      image.nodes[node] = SimulatedNode(durable: content)
    }
    return image
  }

  private struct Block: Hashable {
    var node: Int
    var number: Int
  }

  /// Chooses one of its versions since the last sync for each block of each file, and tears the write in flight.
  private func drawBlocks(
    _ pieces: [CrashPiece], _ blockSectors: Int, _ wanted: inout [Bool], _ random: any RandomSource
  ) {
    var blocks: [(block: Block, pieces: [Int])] = []
    var indexes: [Block: Int] = [:]
    for (index, piece) in pieces.enumerated() {
      guard case .sector(let node, let sector) = piece.cell else { continue }
      let block = Block(node: node, number: sector / blockSectors)
      if let known = indexes[block] {
        blocks[known].pieces.append(index)
      } else {
        indexes[block] = blocks.count
        blocks.append((block, [index]))
      }
    }
    let tear = drawTear(random)
    for (block, members) in blocks {
      var versions: [Int] = []
      for index in members where versions.last != pieces[index].effect { versions.append(pieces[index].effect) }
      var survivors = Int(random.below(UInt64(versions.count + 1)))
      if let inFlight, inFlight.node == block.node, versions.last == inFlight.effect, let tear {
        let sectors = nodes[inFlight.node].effects[inFlight.effect].effect.sectors
        let first = sectors.lowerBound / blockSectors
        let count = (sectors.upperBound - 1) / blockSectors - first + 1
        let survives = tear(block.number - first, count)
        survivors = survives ? versions.count : min(survivors, versions.count - 1)
      }
      for index in members {
        wanted[index] = survivors == versions.count || pieces[index].effect < versions[survivors]
      }
    }
  }

  /// Chooses which blocks of the write in flight survive: a function of a block's number and the count of blocks. In one
  /// crash of ten it returns nil, and each block survives or not independently.
  private func drawTear(_ random: any RandomSource) -> ((Int, Int) -> Bool)? {
    let bits = random.next()
    let cut = random.next()
    switch random.below(10) {
    case 0: return nil
    case 1, 2: return { number, count in number < Int(cut % UInt64(count + 1)) }
    case 3, 4: return { number, count in number >= Int(cut % UInt64(count + 1)) }
    case 5: return { number, _ in number == 0 }
    case 6: return { number, count in number == count - 1 }
    default: return { number, _ in (bits >> UInt64(number % 64)) & 1 == 1 }
    }
  }

  /// Chooses one of its sizes since the last sync for each file, with probability 1/2 the last one.
  private func drawSizes(_ pieces: [CrashPiece], _ wanted: inout [Bool], _ random: any RandomSource) {
    for (index, piece) in pieces.enumerated() {
      guard case .size = piece.cell else { continue }
      let later = pieces[index...].count { $0.cell == piece.cell }
      wanted[index] = random.below(UInt64(2 * later)) != 0
    }
  }

  /// In one crash of four all operations on names survive, in one of four none, else each one independently.
  private func drawOperations(_ pieces: [CrashPiece], _ wanted: inout [Bool], _ random: any RandomSource) {
    let mode = random.below(4)
    for (index, piece) in pieces.enumerated() {
      guard case .operation = piece.cell else { continue }
      wanted[index] = mode == 0 || (mode > 1 && random.below(2) == 0)
    }
  }

  /// Overwrites parts of unsynced writes and of unsynced growth with zeros, random bytes or bytes of an older file.
  private func damage(
    _ content: SimulatedContent, _ node: SimulatedNode, _ barrier: Int, _ blockSectors: Int,
    _ random: any RandomSource
  ) -> SimulatedContent {
    // Half of the crashes lose bytes and damage none.
    guard random.below(2) == 0 else { return content }
    var result = content
    let stale = removedContents.isEmpty ? nil : removedContents[Int(random.below(UInt64(removedContents.count)))]
    func overwrite(_ range: Range<Int>) {
      let range = range.clamped(to: 0..<content.size)
      guard !range.isEmpty else { return }
      let bytes: [UInt8]
      switch random.below(3) {
      case 0: bytes = [UInt8](repeating: 0, count: range.count)
      case 1: bytes = random.bytes(range.count)
      default:
        // The same offset of an older file, where well-formed frames begin at the right offsets.
        let old = stale?.read(range) ?? []
        bytes = old + [UInt8](repeating: 0, count: range.count - old.count)
      }
      result.put(bytes[...], at: range.lowerBound)
    }

    for pending in node.effects where (pending.sealed ?? .max) > barrier && pending.born <= barrier {
      let effect = pending.effect
      guard case .write = effect else { continue }
      var sector = effect.sectors.lowerBound
      while sector < effect.sectors.upperBound {
        let blockEnd = (sector / blockSectors + 1) * blockSectors
        if random.below(8) == 0, let part = effect.part(in: sector..<min(blockEnd, effect.sectors.upperBound)) {
          overwrite(part.offset..<part.offset + part.bytes.count)
        }
        sector = blockEnd
      }
    }

    // In growth whose size survived, blocks that no write covered may hold anything, because they were never written to
    // the medium. Growth that a surviving barrier covers counts as durable.
    var low = node.durable.size
    for pending in node.effects where (pending.sealed ?? .max) <= barrier {
      if case .resize(_, let size) = pending.effect { low = size }
    }
    let grown = min(low, content.size)..<content.size
    let written = node.effects.compactMap { pending -> Range<Int>? in
      guard case .write(let offset, let bytes) = pending.effect else { return nil }
      return offset..<offset + bytes.count
    }
    guard !grown.isEmpty else { return result }
    for _ in 0..<random.below(9) {
      let at = grown.lowerBound + Int(random.below(UInt64(grown.count)))
      let block = at / (blockSectors * simulatedSectorBytes) * blockSectors * simulatedSectorBytes
      let range = (block..<block + blockSectors * simulatedSectorBytes).clamped(to: grown)
      if !written.contains(where: { $0.overlaps(range) }) { overwrite(range) }
    }
    return result
  }
}
