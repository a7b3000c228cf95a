// What may survive a crash: the choices, and the disk that each choice leaves.
//
// The pieces that a crash keeps or loses are: each sector of each unsynced write, each unsynced change of a file's size,
// each unsynced operation on a name. Pieces of one cell (one sector of a file, the size of a file, a name) took effect
// in the order of the calls. So a crash that loses a piece loses all later pieces of its cell, and one that keeps a
// piece keeps all earlier ones. Pieces of different cells are independent, except by barriers, if the disk has them:
// what came after a barrier survives only if everything that the barrier covered has survived.

package import StrandlineSystem
internal import Synchronization

/// An unsynced change that a crash may lose.
package struct UnsyncedEffect: Sendable, CustomStringConvertible {
  package enum Kind: Sendable, Hashable {
    /// Sector `sector` (of 512 bytes) of a write.
    case sector(Int)
    /// The size of a file.
    case size(from: Int, to: Int)
    /// An operation on a name, with the call: create, mkdir, rename, unlink or rmdir.
    case name(String)
  }
  /// The number that `CrashLoss` takes.
  package var index: Int
  /// The path of the file or name; for a rename, both names. Empty for a file that has no name any more.
  package var path: String
  package var kind: Kind

  package var description: String {
    switch kind {
    case .sector(let sector): "#\(index) \(path): sector \(sector)"
    case .size(let from, let to): "#\(index) \(path): size \(from) to \(to)"
    case .name(let call): "#\(index) \(call) \(path)"
    }
  }
}

/// Which unsynced effects a crash loses.
package enum CrashLoss: Sendable, Hashable, CustomStringConvertible {
  /// Nothing unsynced survives.
  case none
  /// Everything unsynced survives.
  case all
  /// Everything survives except this one and those that depend on it.
  case allBut(Int)
  /// Only this one survives, and those that it depends on.
  case only(Int)

  package var description: String {
    switch self {
    case .none: "nothing unsynced survives"
    case .all: "everything unsynced survives"
    case .allBut(let index): "effect #\(index) is lost"
    case .only(let index): "only effect #\(index) survives"
    }
  }
}

/// A piece with its cell. Pieces are ordered by file, then by call; those of names come last.
struct CrashPiece {
  enum Cell: Hashable {
    case sector(node: Int, Int)
    case size(node: Int)
    case operation
  }
  var cell: Cell
  /// The index into the file's effects, or into the disk's operations.
  var effect: Int
  var born: Int
  var sealed: Int?
}

extension SimulatedDisk {
  /// How many pieces a crash at this moment could lose.
  package var unsyncedEffectCount: Int { state.withLock { $0.pieces().count } }

  /// The pieces that a crash at this moment could lose.
  package func unsyncedEffects() -> [UnsyncedEffect] { state.withLock { $0.detached() }.unsyncedEffects() }

  /// Returns the disk after a crash at this moment with these losses: another disk, on which everything is durable, no
  /// lock is held, the power is on, calls are counted from 0 and no faults are planned. `capacity`,
  /// `failedSyncLosesPages` and `isOrderedSyncWeak` are those of this disk.
  package func imageAfterCrash(_ loss: CrashLoss) -> SimulatedDisk {
    let state = state.withLock { $0.detached() }
    let pieces = state.pieces()
    return SimulatedDisk(state.image(pieces, state.kept(pieces, loss)))
  }

  /// Returns the disk after a crash that keeps the pieces for which `keeping` returns true, as far as the pieces that
  /// they depend on are kept. Calls `keeping` once for each piece.
  package func imageAfterCrash(keeping: (UnsyncedEffect) -> Bool) -> SimulatedDisk {
    let state = state.withLock { $0.detached() }
    let pieces = state.pieces()
    return SimulatedDisk(state.image(pieces, state.closed(pieces, state.unsyncedEffects().map(keeping))))
  }

  /// Returns the disk after a random crash with everything that the fault model allows: old versions of sectors or
  /// pages, torn writes, sizes without data, zeros and stale bytes in unsynced writes, lost names.
  package func imageAfterCrash(using random: any RandomSource) -> SimulatedDisk {
    SimulatedDisk(state.withLock { $0.detached() }.randomImage(random))
  }

  /// Returns the disk after a crash that tore each unsynced write and left an older file's bytes behind the tear.
  package func imageAfterCrash(staleUsing random: any RandomSource) -> SimulatedDisk {
    SimulatedDisk(state.withLock { $0.detached() }.staleImage(random))
  }

  /// The losses that the exhaustive tests try: nothing survives, everything does, and each single piece is lost.
  package func crashLosses() -> [CrashLoss] {
    let count = unsyncedEffectCount
    return count == 0 ? [.all] : [.none, .all] + (0..<count).map { .allBut($0) }
  }
}

extension SimulatedDiskState {
  func pieces() -> [CrashPiece] {
    var result: [CrashPiece] = []
    for (node, file) in nodes.enumerated() {
      for (index, pending) in file.effects.enumerated() {
        func add(_ cell: CrashPiece.Cell) {
          result.append(CrashPiece(cell: cell, effect: index, born: pending.born, sealed: pending.sealed))
        }
        switch pending.effect {
        case .resize: add(.size(node: node))
        case .write: for sector in pending.effect.sectors { add(.sector(node: node, sector)) }
        }
      }
    }
    for (index, operation) in operations.enumerated() {
      result.append(CrashPiece(cell: .operation, effect: index, born: operation.born))
    }
    return result
  }

  func unsyncedEffects() -> [UnsyncedEffect] {
    var paths: [Int: String] = [:]
    walk { path, entry in if case .file(let node) = entry { paths[node] = path } }
    return pieces().enumerated().map { index, piece in
      switch piece.cell {
      case .sector(let node, let sector):
        return UnsyncedEffect(index: index, path: paths[node] ?? "", kind: .sector(sector))
      case .size(let node):
        guard case .resize(let from, let to) = nodes[node].effects[piece.effect].effect else {
          preconditionFailure("a piece of kind `size` belongs to a write")
        }
        return UnsyncedEffect(index: index, path: paths[node] ?? "", kind: .size(from: from, to: to))
      case .operation:
        let operation = operations[piece.effect]
        return UnsyncedEffect(index: index, path: operation.path, kind: .name(operation.call))
      }
    }
  }

  /// Whether the later piece can survive only if the earlier one does, by their cell.
  private func depends(_ later: CrashPiece, on earlier: CrashPiece) -> Bool {
    guard later.cell == earlier.cell else { return false }
    guard case .operation = later.cell else { return true }
    return operations[later.effect].hasCommonName(with: operations[earlier.effect])
  }

  func kept(_ pieces: [CrashPiece], _ loss: CrashLoss) -> [Bool] {
    switch loss {
    case .none: return [Bool](repeating: false, count: pieces.count)
    case .all: return [Bool](repeating: true, count: pieces.count)
    case .allBut(let lost):
      var kept = [Bool](repeating: true, count: pieces.count)
      guard kept.indices.contains(lost) else { return kept }
      kept[lost] = false
      return closed(pieces, kept)
    case .only(let wanted):
      var kept = [Bool](repeating: false, count: pieces.count)
      guard kept.indices.contains(wanted) else { return kept }
      kept[wanted] = true
      var open = [wanted]
      while let later = open.popLast() {
        for earlier in pieces.indices where !kept[earlier] {
          // Pieces are ordered by file and not by time, so one that a barrier orders first may have a higher index.
          let isCovered = pieces[earlier].sealed.map { $0 <= pieces[later].born } ?? false
          guard isCovered || (earlier < later && depends(pieces[later], on: pieces[earlier])) else { continue }
          kept[earlier] = true
          open.append(earlier)
        }
      }
      return kept
    }
  }

  /// Returns `wanted` without the pieces that depend on a lost one.
  func closed(_ pieces: [CrashPiece], _ wanted: [Bool]) -> [Bool] {
    var kept = wanted
    // Nothing that came after the first barrier that covers a lost piece can survive. The pieces that this loop drops
    // are covered by later barriers only, so it need not run again.
    if let broken = pieces.indices.lazy.filter({ !kept[$0] }).compactMap({ pieces[$0].sealed }).min() {
      for index in pieces.indices where pieces[index].born >= broken { kept[index] = false }
    }
    var lostCells: Set<CrashPiece.Cell> = []
    var lostOperations: [Int] = []
    for (index, piece) in pieces.enumerated() {
      if case .operation = piece.cell {
        if lostOperations.contains(where: { operations[piece.effect].hasCommonName(with: operations[$0]) }) {
          kept[index] = false
        }
        if !kept[index] { lostOperations.append(piece.effect) }
      } else {
        if !lostCells.isEmpty, lostCells.contains(piece.cell) { kept[index] = false }
        if !kept[index] { lostCells.insert(piece.cell) }
      }
    }
    return kept
  }

  /// The disk on which exactly the kept pieces have taken effect. Requires that `kept` comes from `closed` or `kept`.
  func image(_ pieces: [CrashPiece], _ kept: [Bool]) -> SimulatedDiskState {
    var image = SimulatedDiskState()
    image.failedSyncLosesPages = failedSyncLosesPages
    image.isOrderedSyncWeak = isOrderedSyncWeak
    image.capacity = capacity
    image.starts = starts
    image.device = device
    image.removedContents = removedContents

    image.directories = directories.map { SimulatedDirectory(durable: $0.durable, current: [:]) }
    var next = pieces.startIndex
    image.nodes = []
    image.nodes.reserveCapacity(nodes.count)
    for (node, file) in nodes.enumerated() {
      let start = next
      while next < pieces.count, pieces[next].belongs(to: node) { next += 1 }
      image.nodes.append(
        SimulatedNode(durable: file.content(of: pieces[start..<next], kept: kept[start..<next])))
    }
    while next < pieces.count {
      if kept[next] {
        for edit in operations[pieces[next].effect].edits {
          image.directories[edit.directory].durable[edit.name] = edit.entry
        }
      }
      next += 1
    }
    for index in image.directories.indices { image.directories[index].current = image.directories[index].durable }
    image.emptyUnreachable()
    return image
  }

  /// Empties the files that have no name, and adds up the space of the others.
  private mutating func emptyUnreachable() {
    var isNamed = [Bool](repeating: false, count: nodes.count)
    var unvisited = [0]
    while let directory = unvisited.popLast() {
      for entry in directories[directory].current.values {
        switch entry {
        case .file(let node): isNamed[node] = true
        case .directory(let index): unvisited.append(index)
        }
      }
    }
    used = 0
    for node in nodes.indices {
      if isNamed[node] { used += nodes[node].current.size } else { nodes[node] = SimulatedNode() }
    }
  }
}

extension CrashPiece {
  fileprivate func belongs(to node: Int) -> Bool {
    switch cell {
    case .sector(let owner, _), .size(let owner): owner == node
    case .operation: false
    }
  }
}

extension SimulatedNode {
  /// The file's bytes after a crash that keeps these pieces of it.
  fileprivate func content(of pieces: ArraySlice<CrashPiece>, kept: ArraySlice<Bool>) -> SimulatedContent {
    if !kept.contains(true) { return durable }
    // The common case copies nothing: the array is shared until one of the disks is written.
    if !hasLostPages && !kept.contains(false) { return current }
    var content = durable
    for index in pieces.indices where kept[index] {
      let effect = effects[pieces[index].effect].effect
      switch pieces[index].cell {
      case .size: content.apply(effect)
      case .sector(_, let sector):
        if let part = effect.part(in: sector..<sector + 1) { content.put(part.bytes, at: part.offset) }
      case .operation: break
      }
    }
    content.finish()
    return content
  }
}
