// Whether the last event that says what a record holds is one that its row names.
//
// A row that is missing, or that is older than the log, agrees with every event that it names; what it would have to name
// goes. So the log is read once more, from its end, and the first event that is met of each record must stay. Which records were
// met is kept in a Bloom filter: of a hundred such rows it passes over one. That one, the fold and `verify` find.

package import StrandlineLog
import StrandlineSystem

/// Reads events in parts, the newest part first, the events of each in the order of the log; and says where a part ends.
package typealias ReadingBackwards = (
  _ event: (LogEvent) throws -> Void, _ end: () throws -> Void
) throws -> Void

/// The last words on records, from the newest to the oldest.
struct LastWords {
  /// What an event says of its record.
  private struct Word {
    /// Of the record's name.
    var hash: UInt64
    var lsn: LSN
    var kind: Kind
  }

  private enum Kind {
    /// What the record holds.
    case content
    /// The name is deleted.
    case deletion
    /// A pack says that it is, and may follow events of a later life.
    case packed
    /// What was owed is settled, so that an older event says what the record holds.
    case ending
  }

  private let names: NamedEvents
  private var met: RunFilter
  /// Those of the part that is being read.
  private var words: [Word] = []
  /// The newest event that should stay and does not.
  private(set) var lost: LSN?

  /// - Parameter count: how many records and deleted names there are.
  init(_ names: NamedEvents, count: Int) {
    self.names = names
    met = RunFilter(keyCount: count)
  }

  /// Takes the next event of a part.
  ///
  /// - Throws: what decoding throws.
  mutating func take(_ found: LogEvent) throws {
    let kind: Kind
    switch try found.kind() {
    case .saved, .merged, .superseded, .fetchedSave: kind = .content
    case .deleted, .fetchedDelete: kind = .deletion
    case .discarded: kind = .ending
    case .settled:
      guard case .settled(let settled) = try found.decoded() else { return }
      kind = settled.outcome == .saved && settled.changeTag != nil ? .content : .ending
    case .deletions:
      guard case .deletions(let packed) = try found.decoded() else { return }
      for item in packed.items { words.append(Word(hash: Self.hash(item.id), lsn: item.lsn, kind: .packed)) }
      return
    default: return
    }
    words.append(Word(hash: try Self.hash(found), lsn: LSN(found.lsn), kind: kind))
  }

  /// Ends a part: of its records only the last words count, and only of those that no newer part has met.
  mutating func endPart() {
    for word in words.reversed() {
      if RunFilter.mayContain(word.hash, met.bytes, met.bytes.indices) { continue }
      if word.kind != .packed { met.insert(word.hash) }
      let stays =
        switch word.kind {
        case .content: names.whole.contains(word.lsn)
        case .deletion, .packed: names.deletions.contains(word.lsn)
        case .ending: true
        }
      if !stays { lost = max(lost ?? .zero, word.lsn) }
    }
    words.removeAll(keepingCapacity: true)
  }

  /// The hash of the name that a record's event begins with, as it lies in the bytes.
  private static func hash(_ found: LogEvent) throws -> UInt64 {
    var reader = ByteReader(found.body)
    do throws(ByteReaderError) {
      try reader.skip(PayloadHeader.bytes + 1)
      for _ in 0..<3 { try reader.skipString() }
    } catch {
      // Decoding says it in the words of an event.
      return try found.decoded().recordID.map(hash) ?? 0
    }
    return XXH64.hash(found.body, PayloadHeader.bytes..<reader.offset)
  }

  private static func hash(_ id: RecordID) -> UInt64 {
    var writer = ByteWriter(capacity: 64)
    GroupType<RecordID>().write(id, to: &writer)
    return XXH64.hash(writer.bytes)
  }
}
