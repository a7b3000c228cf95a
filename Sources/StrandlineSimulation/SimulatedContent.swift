// The bytes of a simulated file, and the writes and changes of size since its last sync.
//
// Bytes behind the last one written are zero and are not stored. So setting a large size costs nothing, as on a real
// disk, and a copy of a file shares its array until one of the two is written.

/// The size of a sector: a power cut keeps or loses a sector as a whole.
package let simulatedSectorBytes = 512

/// The bytes of one file.
struct SimulatedContent: Sendable {
  /// The bytes up to the last one written: may be fewer than `size`, and more while an image is built.
  private(set) var stored: [UInt8] = []
  private(set) var size = 0

  init() {}
  init(_ bytes: [UInt8]) {
    stored = bytes
    size = bytes.count
  }

  var all: [UInt8] { read(0..<size) }

  /// The bytes of the part of a range that lies within the file.
  func read(_ range: Range<Int>) -> [UInt8] {
    let end = min(range.upperBound, size)
    guard range.lowerBound < end else { return [] }
    let storedEnd = min(end, stored.count)
    guard range.lowerBound < storedEnd else { return [UInt8](repeating: 0, count: end - range.lowerBound) }
    var result = Array(stored[range.lowerBound..<storedEnd])
    // An array: without optimization, other sequences are copied element by element.
    if storedEnd < end { result.append(contentsOf: [UInt8](repeating: 0, count: end - storedEnd)) }
    return result
  }

  /// Stores bytes at `offset` without changing the size: data and size reach the medium independently.
  mutating func put(_ bytes: ArraySlice<UInt8>, at offset: Int) {
    let end = offset + bytes.count
    if stored.count < end {
      if stored.count < offset { stored.append(contentsOf: [UInt8](repeating: 0, count: offset - stored.count)) }
      let overlap = stored.count - offset
      if overlap > 0 { stored.replaceSubrange(offset..., with: bytes.prefix(overlap)) }
      stored.append(contentsOf: bytes.dropFirst(max(0, overlap)))
    } else {
      stored.replaceSubrange(offset..<end, with: bytes)
    }
  }

  /// Sets the size. Bytes behind it are dropped: they read as zero if the file grows again.
  mutating func resize(to newSize: Int) {
    if newSize < size { cut(to: newSize) }
    size = newSize
  }

  /// Drops the stored bytes from `end` on.
  mutating func cut(to end: Int) {
    if stored.count > end { stored.removeSubrange(end...) }
  }
}

/// A change to a file that no sync has made durable.
enum SimulatedFileEffect: Sendable {
  /// A write; each of its sectors may survive or not.
  case write(offset: Int, bytes: [UInt8])
  /// A change of the size by a write behind the end, a reservation or a truncation.
  case resize(from: Int, to: Int)

  /// The sectors that a write touches.
  var sectors: Range<Int> {
    guard case .write(let offset, let bytes) = self, !bytes.isEmpty else { return 0..<0 }
    return offset / simulatedSectorBytes..<(offset + bytes.count - 1) / simulatedSectorBytes + 1
  }

  /// The part of a write that lies in the given sectors, and its offset in the file.
  func part(in sectors: Range<Int>) -> (offset: Int, bytes: ArraySlice<UInt8>)? {
    guard case .write(let offset, let bytes) = self else { return nil }
    let start = max(offset, sectors.lowerBound * simulatedSectorBytes)
    let end = min(offset + bytes.count, sectors.upperBound * simulatedSectorBytes)
    guard start < end else { return nil }
    return (start, bytes[start - offset..<end - offset])
  }
}

/// An effect with its order relative to the barriers of the disk, which are numbered from 1.
struct SimulatedPendingEffect: Sendable {
  var effect: SimulatedFileEffect
  /// The number of barriers before this effect: it may survive only if everything that they cover has survived.
  var born: Int
  /// The first barrier that covers this effect; nil if there is none yet.
  var sealed: Int?
}

/// The content of a file without its names.
struct SimulatedNode: Sendable {
  /// What survives every crash.
  var durable = SimulatedContent()
  /// What a reader reads before a crash.
  var current = SimulatedContent()
  /// The changes that lead from `durable` to `current`, in the order of the calls.
  var effects: [SimulatedPendingEffect] = []
  /// Whether a failed sync has dropped pages, so that `current` has bytes that are neither in `durable` nor in `effects`.
  private(set) var hasLostPages = false

  init() {}
  init(durable content: SimulatedContent) {
    durable = content
    current = content
  }

  mutating func write(_ bytes: ArraySlice<UInt8>, at offset: Int, barriers: Int) {
    let end = offset + bytes.count
    if end > current.size { resize(to: end, barriers: barriers) }
    current.put(bytes, at: offset)
    effects.append(.init(effect: .write(offset: offset, bytes: Array(bytes)), born: barriers))
  }

  mutating func resize(to size: Int, barriers: Int) {
    guard size != current.size else { return }
    effects.append(.init(effect: .resize(from: current.size, to: size), born: barriers))
    current.resize(to: size)
  }

  mutating func sync() {
    for pending in effects { durable.apply(pending.effect) }
    durable.finish()
    effects.removeAll()
  }

  /// Records that `barrier` covers all effects that no earlier barrier covers.
  mutating func seal(_ barrier: Int) {
    for index in effects.indices where effects[index].sealed == nil { effects[index].sealed = barrier }
  }

  /// Makes durable what barriers cover, because a sync of another file has flushed the drive's cache.
  mutating func syncSealed() {
    // Each barrier covered all effects of its time, so the covered effects are a prefix of the list.
    let count = effects.prefix { $0.sealed != nil }.count
    guard count > 0 else { return }
    for pending in effects.prefix(count) { durable.apply(pending.effect) }
    durable.finish()
    effects.removeFirst(count)
  }

  /// Simulates what a failed sync may do: the kernel marks the written pages as clean, readers still read them, and no
  /// later sync writes them to the medium. The size is in the file system's journal and stays pending. What a barrier
  /// covers is in the drive's cache already and stays too.
  mutating func losePages() {
    hasLostPages = true
    effects.removeAll {
      if case .write = $0.effect { return $0.sealed == nil }
      return false
    }
  }
}

extension SimulatedContent {
  /// Applies an effect to this content. The caller ends a series of these calls with `finish`.
  mutating func apply(_ effect: SimulatedFileEffect) {
    switch effect {
    case .write(let offset, let bytes): put(bytes[...], at: offset)
    case .resize(let old, let new):
      // Compares with the size at the time of the call (`old`), not with that of this content, to detect a truncation.
      if new < old { cut(to: new) }
      size = new
    }
  }

  /// Drops bytes behind the size: data whose size was lost cannot be read.
  mutating func finish() { cut(to: size) }
}
