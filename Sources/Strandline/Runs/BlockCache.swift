// The blocks that were read lately, for all runs of a store together, within a budget of bytes.
//
// Only blocks that have been checked are in it. A block that is given out stays valid after it was removed, because the
// caller has a reference to its bytes. CLOCK (Corbató, 1968) chooses what is removed: a hand goes round all blocks, passes
// those that were used since it last came by, and removes the first that was not. Several parts with a lock each let
// readers on several threads proceed at the same time.

import StrandlineSystem
import Synchronization

/// A cache of blocks. Safe to call from any thread.
package final class BlockCache: Sendable {
  /// The bytes that the caller allows for blocks.
  package static let bytesMaxDefault = 16 << 20
  /// A part has at least so many bytes, so that a small cache is one part and holds what it can.
  private static let partBytesMin = 1 << 20
  private static let partCountMax = 8

  /// A block of an open run.
  package struct Key: Hashable, Sendable {
    /// The number that the cache gave the run.
    package var owner: UInt64
    package var block: Int

    package init(owner: UInt64, block: Int) {
      self.owner = owner
      self.block = block
    }
  }

  fileprivate struct Slot {
    var key: Key
    var bytes: [UInt8]
    var wasUsed: Bool
  }

  private final class Part: Sendable {
    let blocks = OrderedMutex(.leaf, BlockTable())
  }

  package let bytesMax: Int
  private let parts: [Part]
  private let owners = Atomic<UInt64>(0)

  /// - Parameter bytesMax: the budget. A block that is larger than its part of the budget is not kept.
  package init(bytesMax: Int = BlockCache.bytesMaxDefault) {
    self.bytesMax = max(0, bytesMax)
    let count = min(Self.partCountMax, max(1, bytesMax / Self.partBytesMin))
    parts = (0..<count).map { _ in Part() }
  }

  /// The bytes that the cached blocks take.
  package var usedBytes: Int { parts.reduce(0) { $0 + $1.blocks.withLock { $0.usedBytes } } }

  /// A number for a run that was opened.
  package func newOwner() -> UInt64 { owners.wrappingAdd(1, ordering: .relaxed).oldValue }

  private func part(_ key: Key) -> Part { parts[(key.block &+ Int(truncatingIfNeeded: key.owner)) % parts.count] }

  /// The bytes of a block; nil if the cache does not have it.
  package func block(_ key: Key) -> [UInt8]? {
    part(key).blocks.withLock { $0.use(key) }
  }

  /// Keeps a block that has been checked.
  package func insert(_ bytes: [UInt8], _ key: Key) {
    let partBytes = bytesMax / parts.count
    guard BlockTable.cost(bytes) <= partBytes else { return }
    part(key).blocks.withLock { $0.insert(bytes, key, bytesMax: partBytes) }
  }

  /// Removes the blocks of a run that was closed.
  package func removeAll(of owner: UInt64) {
    for part in parts { part.blocks.withLock { $0.removeAll(of: owner) } }
  }
}

/// The blocks of one part: a hash table with open addressing, round whose slots the hand goes. So a look-up touches one
/// place of memory beside the block.
private struct BlockTable {
  /// What a block costs beside its bytes: the array's header, and the slots, of which half or more are free.
  private static let overheadBytes = 128
  private static let slotCountMin = 64

  /// As many as a power of two.
  private var slots = [BlockCache.Slot?](repeating: nil, count: slotCountMin)
  private var count = 0
  private var hand = 0
  private(set) var usedBytes = 0

  static func cost(_ bytes: [UInt8]) -> Int { bytes.count + overheadBytes }

  /// Where the search for a key begins.
  private func home(_ key: BlockCache.Key) -> Int {
    // Fibonacci hashing (Knuth, volume 3, section 6.4): the upper bits of the product depend on all bits of the key.
    let product = (UInt64(truncatingIfNeeded: key.block) ^ key.owner << 40) &* 0x9E37_79B9_7F4A_7C15
    return Int(truncatingIfNeeded: product >> UInt64(UInt64.bitWidth - slots.count.trailingZeroBitCount))
  }

  /// The slot that has the key, or the free one in which the search ends.
  private func place(_ key: BlockCache.Key) -> Int {
    var place = home(key)
    while let slot = slots[place], slot.key != key { place = (place + 1) & (slots.count - 1) }
    return place
  }

  mutating func use(_ key: BlockCache.Key) -> [UInt8]? {
    let place = place(key)
    guard let slot = slots[place] else { return nil }
    if !slot.wasUsed { slots[place]?.wasUsed = true }
    return slot.bytes
  }

  /// Makes room and inserts a block, unless another reader has inserted it meanwhile.
  mutating func insert(_ bytes: [UInt8], _ key: BlockCache.Key, bytesMax: Int) {
    guard slots[place(key)] == nil else { return }
    while count > 0, usedBytes + Self.cost(bytes) > bytesMax { removeUnused() }
    if 2 * count >= slots.count { grow() }
    slots[place(key)] = BlockCache.Slot(key: key, bytes: bytes, wasUsed: false)
    count += 1
    usedBytes += Self.cost(bytes)
  }

  mutating func removeAll(of owner: UInt64) {
    // A removal moves a later block into the slot, so the slot is looked at until it keeps what it has.
    for place in slots.indices {
      while let slot = slots[place], slot.key.owner == owner { remove(place) }
    }
  }

  private mutating func grow() {
    let old = slots
    slots = [BlockCache.Slot?](repeating: nil, count: 2 * old.count)
    for case .some(let slot) in old { slots[place(slot.key)] = slot }
  }

  /// Moves the hand to a block that was not used since it came by, and removes it. Requires that there is a block.
  private mutating func removeUnused() {
    while true {
      let place = hand
      hand = (hand + 1) & (slots.count - 1)
      guard let slot = slots[place] else { continue }
      if !slot.wasUsed { return remove(place) }
      slots[place]?.wasUsed = false
    }
  }

  /// Empties a slot, and moves the blocks behind it whose search would end there (Knuth, volume 3, section 6.4,
  /// algorithm R).
  private mutating func remove(_ place: Int) {
    guard let slot = slots[place] else { return }
    count -= 1
    usedBytes -= Self.cost(slot.bytes)
    let mask = slots.count - 1
    var free = place
    var next = place
    while true {
      next = (next + 1) & mask
      guard let candidate = slots[next] else { break }
      // It may move if the free slot lies between its home and it.
      if (next - home(candidate.key)) & mask >= (next - free) & mask {
        slots[free] = candidate
        free = next
      }
    }
    slots[free] = nil
  }
}
