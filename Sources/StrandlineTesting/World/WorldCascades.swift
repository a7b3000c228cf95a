// Whether a deletion that a device sends can take an edit along that the device has not sent. The server deletes what refers to
// a deleted record, in the version that it has; an edit that has taken the reference away goes before. Each request is judged
// before it is sent, by what the store owes and by the versions that it knows. The engine's order is not asked.

internal import Strandline
internal import StrandlineServer

enum WorldCascades {
  /// What is wrong with a request; nil if nothing is.
  static func broken(_ operations: [CloudOperation], in zone: ZoneID, _ store: RecordStore) throws -> String? {
    let names = Set(operations.map(\.name))
    var deleted: [String: LSN] = [:]
    for operation in operations where operation.kind == .delete {
      let pending = try store.projections.entry(RecordID(operation.name, zone: zone))?.pending
      // What makes room for another type of record is no deletion of the app's.
      if let pending, pending.isDeletion { deleted[operation.name] = pending.newest }
    }
    if deleted.isEmpty { return nil }
    for lsn in store.projections.owed {
      guard let id = try store.source.eventIfKept(at: lsn)?.recordID, id.zone == zone, !names.contains(id.name),
        let entry = try store.projections.entry(id), let pending = entry.pending, !pending.isDeletion,
        let base = entry.base, let edit = try version(at: pending.newest, store),
        let known = try version(at: base.content, store)
      else { continue }
      for (field, value) in known.version.fields {
        for reference in value.references where reference.action == .deleteSelf {
          guard let deletion = deleted[reference.name], let written = edit.dirty[field], written < deletion,
            edit.version.fields[field]?.references.contains(where: { $0.name == reference.name }) != true
          else { continue }
          return "it deletes \(reference.name), and has not sent that \(id) does not refer to it any more"
        }
      }
    }
    return nil
  }

  private static func version(at lsn: LSN, _ store: RecordStore) throws -> LoadedVersion? {
    guard let event = try store.source.eventIfKept(at: lsn) else { return nil }
    return try LoadedVersion(event, at: lsn)
  }
}
