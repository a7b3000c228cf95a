// Counts in the server's journal how often each change was applied, so that "exactly once" does not rely on what
// clients report.
//
// The stamp of an uploaded version says which mutation of each writer is the newest that it includes. So a save that
// includes no newer mutation of any writer than the previous save of the record was applied twice: it is a duplicate.
// So is the deletion of a record that is deleted already.

import Strandline
import StrandlineLog
import StrandlineServer
package import StrandlineSystem

/// A count over a server's journal.
package struct JournalCounts {
  /// Saves and deletions of records.
  package private(set) var applied = 0
  /// Which changes were applied again, each with its place in the journal: see `Repetition`.
  package private(set) var duplicated: [Repetition] = []
  /// The number of records that exist on the server.
  package private(set) var living = 0

  /// A change of a record that the server applied again.
  package struct Repetition: CustomStringConvertible {
    package var name: String
    /// The event that applies it again, and the one before it of the same record.
    package var lsn: UInt64
    package var before: UInt64?
    package var isDeletion: Bool

    package var description: String {
      "\(name) (\(isDeletion ? "deleted" : "saved") at LSN \(lsn), last changed at \(before.map { "LSN \($0)" } ?? "none"))"
    }
  }

  private struct Key: Hashable {
    var zone: UInt64
    var name: CloudName
  }

  package init(_ directory: String, _ environment: SystemEnvironment) throws {
    let reader = try LogReader.open(at: directory, role: .server, environment: environment)
    var seen: [Key: [WriterID: Seen]] = [:]
    var alive: Set<Key> = []
    var changed: [Key: UInt64] = [:]
    var result = Self()
    try reader.poll { event in
      switch try JournalEvent.decode(event.body) {
      case .recordSaved(let record):
        let key = Key(zone: record.zone, name: CloudName(record.name))
        result.applied += 1
        alive.insert(key)
        let last = changed.updateValue(event.lsn, forKey: key)
        guard case .bytes(let bytes)? = record.fields[Names.stampField] else { return }
        let now = try StampCodec.decode(bytes).seen
        if let before = seen[key], !Self.isNewer(now, than: before) {
          result.duplicated.append(Repetition(name: record.name, lsn: event.lsn, before: last, isDeletion: false))
        }
        seen[key] = now
      case .recordDeleted(let zone, let name, _):
        result.applied += 1
        let key = Key(zone: zone, name: CloudName(name))
        let last = changed.updateValue(event.lsn, forKey: key)
        if alive.remove(key) == nil {
          result.duplicated.append(Repetition(name: name, lsn: event.lsn, before: last, isDeletion: true))
        }
      default: break
      }
    }
    result.living = alive.count
    self = result
  }

  private init() {}

  /// Whether `now` includes a newer mutation of some writer than `before`.
  private static func isNewer(_ now: [WriterID: Seen], than before: [WriterID: Seen]) -> Bool {
    now.contains { writer, seen in
      guard let old = before[writer] else { return true }
      return seen > old
    }
  }
}
