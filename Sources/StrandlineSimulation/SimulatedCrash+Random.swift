// A crash with everything the fault model allows, drawn from a random source.
//
// Only the byte ranges of unsynced writes and of unsynced growth may come out wrong: bytes that an earlier
// sync covered keep their value, also those in the same sector (power-safe overwrite).

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
    // The barrier that the crash met: all that it and earlier ones cover is there, nothing that came later is.
    let met = random.below(2) == 0 ? barriers : Int(random.below(UInt64(barriers + 1)))
    for (index, piece) in pieces.enumerated() {
      if let sealed = piece.sealed, sealed <= met { wanted[index] = true }
      if piece.born > met { wanted[index] = false }
    }
    var image = image(pieces, closed(pieces, wanted))
    for node in nodes.indices where !nodes[node].effects.isEmpty {
      let content = image.nodes[node].durable
      guard content.size > 0 else { continue }
      let spoilt = spoil(content, nodes[node], met, blockSectors, random)
      image.nodes[node] = SimulatedNode(durable: spoilt)
    }
    return image
  }

  /// A crash whose torn writes end in an older file's bytes: all names, sizes and beginnings of writes survive, and
  /// behind a drawn sector each unsynced write shows what lay at the same place of a file that was cut or removed.
  func staleImage(_ random: any RandomSource) -> SimulatedDiskState {
    let pieces = pieces()
    var image = image(pieces, [Bool](repeating: true, count: pieces.count))
    guard !graveyard.isEmpty else { return image }
    let stale = graveyard[Int(random.below(UInt64(graveyard.count)))]
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

  /// Each block of each file holds one of its versions since the last sync; the write in flight is torn.
  private func drawBlocks(
    _ pieces: [CrashPiece], _ blockSectors: Int, _ wanted: inout [Bool], _ random: any RandomSource
  ) {
    var blocks: [(block: Block, pieces: [Int])] = []
    var places: [Block: Int] = [:]
    for (index, piece) in pieces.enumerated() {
      guard case .sector(let node, let sector) = piece.cell else { continue }
      let block = Block(node: node, number: sector / blockSectors)
      if let place = places[block] {
        blocks[place].pieces.append(index)
      } else {
        places[block] = blocks.count
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

  /// Which blocks of the write in flight survive, given their number and how many there are. Nil, one time in
  /// ten: no shape, each block by itself.
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

  /// Each file's size is one of its sizes since the last sync, half of the time the last one.
  private func drawSizes(_ pieces: [CrashPiece], _ wanted: inout [Bool], _ random: any RandomSource) {
    for (index, piece) in pieces.enumerated() {
      guard case .size = piece.cell else { continue }
      let later = pieces[index...].count { $0.cell == piece.cell }
      wanted[index] = random.below(UInt64(2 * later)) != 0
    }
  }

  /// In one crash of four all names survive, in one of four none, else each by itself.
  private func drawOperations(_ pieces: [CrashPiece], _ wanted: inout [Bool], _ random: any RandomSource) {
    let mood = random.below(4)
    for (index, piece) in pieces.enumerated() {
      guard case .operation = piece.cell else { continue }
      wanted[index] = mood == 0 || (mood > 1 && random.below(2) == 0)
    }
  }

  /// Zeros, junk or bytes of an older file, where unsynced work was under way.
  private func spoil(
    _ content: SimulatedContent, _ node: SimulatedNode, _ barrier: Int, _ blockSectors: Int,
    _ random: any RandomSource
  ) -> SimulatedContent {
    // Half of the crashes lose without inventing.
    guard random.below(2) == 0 else { return content }
    var result = content
    let stale = graveyard.isEmpty ? nil : graveyard[Int(random.below(UInt64(graveyard.count)))]
    func overwrite(_ range: Range<Int>) {
      let range = range.clamped(to: 0..<content.size)
      guard !range.isEmpty else { return }
      let bytes: [UInt8]
      switch random.below(3) {
      case 0: bytes = [UInt8](repeating: 0, count: range.count)
      case 1: bytes = random.bytes(range.count)
      default:
        // The same place of an older file: the frames there are well formed and lie at the right offsets.
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

    // Growth whose size survived: what no write has covered was never on the medium either.
    // Growth under a barrier that was kept is as good as durable.
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
