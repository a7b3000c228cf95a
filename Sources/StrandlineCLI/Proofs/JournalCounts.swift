// How often each change was applied, by the word of the server's own journal: "exactly once" is counted here and not
// believed from what clients say.
//
// A version that a device uploads says in its stamp up to which of its mutations it goes. So an applied save that
// goes no further, for any writer, than the save before it was applied before: it is a duplicate. A deletion of what
// is deleted is one too.

import Strandline
import StrandlineLog
import StrandlineServer
package import StrandlineSystem

/// A count over a server's journal.
package struct JournalCounts {
  /// Saves and deletions of records.
  package private(set) var applied = 0
  /// Names of records to which the same change was applied more than once, as often as it was.
  package private(set) var duplicated: [String] = []
  /// Records that live at the server.
  package private(set) var living = 0

  private struct Key: Hashable {
    var zone: UInt64
    var name: String
  }

  package init(_ directory: String, _ environment: SystemEnvironment) throws {
    let reader = try LogReader.open(at: directory, role: .server, environment: environment)
    var seen: [Key: [WriterID: Seen]] = [:]
    var alive: Set<Key> = []
    var result = Self()
    try reader.poll { event in
      switch try JournalEvent.decode(event.body) {
      case .recordSaved(let record):
        let key = Key(zone: record.zone, name: record.name)
        result.applied += 1
        alive.insert(key)
        guard case .bytes(let bytes)? = record.fields[Names.stampField] else { return }
        let now = try StampCodec.decode(bytes).seen
        if let before = seen[key], !Self.goesFurther(now, than: before) { result.duplicated.append(record.name) }
        seen[key] = now
      case .recordDeleted(let zone, let name, _):
        result.applied += 1
        if alive.remove(Key(zone: zone, name: name)) == nil { result.duplicated.append(name) }
      default: break
      }
    }
    result.living = alive.count
    self = result
  }

  private init() {}

  private static func goesFurther(_ now: [WriterID: Seen], than before: [WriterID: Seen]) -> Bool {
    now.contains { writer, seen in
      guard let old = before[writer] else { return true }
      return (seen.time, seen.lsn) > (old.time, old.lsn)
    }
  }
}
