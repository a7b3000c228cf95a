// The bytes of a simulated file, and what a file has done to them since its last sync.
//
// Bytes past the last one written are not stored: they are zero. So setting a large size costs nothing,
// as on a real disk, and a copy of a file shares its array until one of the two is written.

/// A sector: the piece of a file that a power cut keeps or loses as one.
package let simulatedSectorBytes = 512

/// The bytes of one file.
struct SimulatedContent: Sendable {
  /// The bytes up to the last one written; may be shorter than `size`, and while an image is built, longer.
  private(set) var stored: [UInt8] = []
  private(set) var size = 0

  init() {}
  init(_ bytes: [UInt8]) {
    stored = bytes
    size = bytes.count
  }

  var all: [UInt8] { read(0..<size) }

  /// The bytes of a range, which is cut at the end of the file.
  func read(_ range: Range<Int>) -> [UInt8] {
    let end = min(range.upperBound, size)
    guard range.lowerBound < end else { return [] }
    let storedEnd = min(end, stored.count)
    guard range.lowerBound < storedEnd else { return [UInt8](repeating: 0, count: end - range.lowerBound) }
    var result = Array(stored[range.lowerBound..<storedEnd])
    if storedEnd < end { result.append(contentsOf: repeatElement(0, count: end - storedEnd)) }
    return result
  }

  /// Puts bytes in place without touching the size: data and size reach a medium apart.
  mutating func put(_ bytes: ArraySlice<UInt8>, at offset: Int) {
    let end = offset + bytes.count
    if stored.count < end {
      if stored.count < offset { stored.append(contentsOf: repeatElement(0, count: offset - stored.count)) }
      let overlap = stored.count - offset
      if overlap > 0 { stored.replaceSubrange(offset..., with: bytes.prefix(overlap)) }
      stored.append(contentsOf: bytes.dropFirst(max(0, overlap)))
    } else {
      stored.replaceSubrange(offset..<end, with: bytes)
    }
  }

  /// Sets the size; what is cut off is gone and reads as zero should the file grow again.
  mutating func resize(to newSize: Int) {
    if newSize < size { cut(to: newSize) }
    size = newSize
  }

  /// Forgets bytes past `end`.
  mutating func cut(to end: Int) {
    if stored.count > end { stored.removeSubrange(end...) }
  }
}

/// Something done to a file that no sync has made durable.
enum SimulatedFileEffect: Sendable {
  /// Bytes written; each sector of them may survive or not.
  case write(offset: Int, bytes: [UInt8])
  /// The size set, by a write past the end, a reservation or a truncation.
  case resize(from: Int, to: Int)

  /// The sectors that a write touches.
  var sectors: Range<Int> {
    guard case .write(let offset, let bytes) = self, !bytes.isEmpty else { return 0..<0 }
    return offset / simulatedSectorBytes..<(offset + bytes.count - 1) / simulatedSectorBytes + 1
  }

  /// The part of a write that lies in the given sectors, and where it begins.
  func part(in sectors: Range<Int>) -> (offset: Int, bytes: ArraySlice<UInt8>)? {
    guard case .write(let offset, let bytes) = self else { return nil }
    let start = max(offset, sectors.lowerBound * simulatedSectorBytes)
    let end = min(offset + bytes.count, sectors.upperBound * simulatedSectorBytes)
    guard start < end else { return nil }
    return (start, bytes[start - offset..<end - offset])
  }
}

/// An effect with its place among the barriers of the disk, which are numbered from 1.
struct SimulatedPendingEffect: Sendable {
  var effect: SimulatedFileEffect
  /// How many barriers there had been: this may survive only if all that those cover has survived.
  var born: Int
  /// The first barrier that covers this effect.
  var sealed: Int?
}

/// A file, apart from its names.
struct SimulatedNode: Sendable {
  /// What the medium holds for certain.
  var durable = SimulatedContent()
  /// What a reader sees.
  var current = SimulatedContent()
  /// What lies between the two, in the order of the calls.
  var effects: [SimulatedPendingEffect] = []
  /// A failed sync has dropped pages: `current` shows bytes that `durable` and `effects` do not have.
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

  /// Puts what is pending under a barrier.
  mutating func seal(_ barrier: Int) {
    for index in effects.indices where effects[index].sealed == nil { effects[index].sealed = barrier }
  }

  /// Makes durable what barriers cover: the drive's cache has been emptied for another file's sake.
  mutating func syncSealed() {
    // What a barrier covers is the beginning of the list: it covered all there was.
    let count = effects.prefix { $0.sealed != nil }.count
    guard count > 0 else { return }
    for pending in effects.prefix(count) { durable.apply(pending.effect) }
    durable.finish()
    effects.removeFirst(count)
  }

  /// What a failed sync may do: the written pages are marked clean and read back fine, yet the medium never
  /// gets them, whatever later syncs say. The size goes by the journal and stays pending. What a barrier has covered
  /// is in the drive already.
  mutating func losePages() {
    hasLostPages = true
    effects.removeAll {
      if case .write = $0.effect { return $0.sealed == nil }
      return false
    }
  }
}

extension SimulatedContent {
  /// Does to this content what the effect did to the file.
  mutating func apply(_ effect: SimulatedFileEffect) {
    switch effect {
    case .write(let offset, let bytes): put(bytes[...], at: offset)
    case .resize(let old, let new):
      // A truncation that happened cuts bytes; the size before it is the one of its time, not of this image.
      if new < old { cut(to: new) }
      size = new
    }
  }

  /// Ends a run of `apply`: data without size is no data.
  mutating func finish() { cut(to: size) }
}
