// The bodies of events that are appended and not known to be durable: closures of `write` and the engine read them, and
// the log cannot be read there yet.
//
// LSNs in flight are dense; they leave in front when they become durable, and at the end when a transaction fails. So the
// bodies lie behind each other in chunks. An array of its own for each would take many times the bytes of a small body,
// and a transaction may have hundreds of thousands.

import StrandlineSystem

/// The bodies of a run of LSNs.
package struct BodiesInFlight: Sendable {
  private struct Chunk: Sendable {
    var first: LSN
    var bytes: [UInt8] = []
    /// Where each body ends.
    var ends: [Int] = []

    /// The LSN behind the last.
    var end: LSN { first.advanced(by: ends.count) }

    mutating func append(_ body: [UInt8]) {
      bytes += body
      ends.append(bytes.count)
    }
  }
  /// In the order of their LSNs. Only a sole one may be empty.
  private var chunks: [Chunk] = []
  /// Bodies up to here are forgotten, though some may still take room in a chunk with later ones: their events are read
  /// from the log, which compaction changes.
  private var durable = LSN.zero

  package init() {}

  /// A chunk takes no more bodies than fit into this, but always one.
  package static let chunkBytesMax = 64 << 10

  /// Adds the body of the next event.
  ///
  /// - Precondition: `lsn` follows on the last one, or there is none.
  package mutating func append(_ body: [UInt8], at lsn: LSN) {
    if let last = chunks.indices.last {
      if chunks[last].ends.isEmpty {
        chunks[last].first = lsn
        chunks[last].append(body)
        return
      }
      precondition(lsn == chunks[last].end, "the body of event \(lsn) after that of event \(chunks[last].end)")
      if chunks[last].bytes.count + body.count <= Self.chunkBytesMax {
        chunks[last].append(body)
        return
      }
    }
    var chunk = Chunk(first: lsn)
    // One that follows another is filled, so it has its size from the start.
    if !chunks.isEmpty { chunk.bytes.reserveCapacity(max(Self.chunkBytesMax, body.count)) }
    chunk.append(body)
    chunks.append(chunk)
  }

  /// An event's body; nil if it is not in flight.
  ///
  /// - Complexity: O(log n) for n bodies, and O(the body's bytes).
  package subscript(lsn: LSN) -> [UInt8]? {
    guard lsn > durable else { return nil }
    let found = chunks.partitioningIndex { $0.end > lsn }
    guard found < chunks.count, lsn >= chunks[found].first else { return nil }
    let chunk = chunks[found]
    let place = Int(lsn.rawValue - chunk.first.rawValue)
    return Array(chunk.bytes[(place == 0 ? 0 : chunk.ends[place - 1])..<chunk.ends[place]])
  }

  /// Forgets the bodies up to `durable`. Their memory is given back chunk by chunk.
  package mutating func removeFirst(through durable: LSN) {
    self.durable = max(self.durable, durable)
    let count = chunks.firstIndex { $0.end > durable.advanced(by: 1) } ?? chunks.count
    guard count > 0 else { return }
    guard count == chunks.count else { return chunks.removeFirst(count) }
    // The usual case between two writes: the memory is used again, unless it is much.
    chunks.removeSubrange(1...)
    guard chunks[0].bytes.count <= Self.chunkBytesMax else { return chunks = [] }
    chunks[0].bytes.removeAll(keepingCapacity: true)
    chunks[0].ends.removeAll(keepingCapacity: true)
  }

  /// Forgets the bodies after `lsn`, whose events are undone.
  package mutating func removeLast(after lsn: LSN) {
    while let last = chunks.last, last.first > lsn { chunks.removeLast() }
    guard let last = chunks.indices.last, chunks[last].end > lsn.advanced(by: 1) else { return }
    let count = Int(lsn.rawValue - chunks[last].first.rawValue) + 1
    chunks[last].ends.removeSubrange(count...)
    chunks[last].bytes.removeSubrange(chunks[last].ends[count - 1]...)
  }
}
