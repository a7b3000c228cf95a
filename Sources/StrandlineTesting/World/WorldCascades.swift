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
      if let pending { deleted[operation.name] = pending.newest }
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
          guard let written = edit.dirty[field],
            edit.version.fields[field]?.references.contains(where: { $0.name == reference.name }) != true
          else { continue }
          for name in try chain(from: reference.name, zone, store) {
            guard let deletion = deleted[name], written < deletion, !goTogether(id, RecordID(name, zone: zone), store)
            else { continue }
            return "it deletes \(name), and has not sent that \(id) does not refer to \(reference.name) any more"
          }
        }
      }
    }
    return nil
  }

  /// The record and those with which it is deleted, through the references that the server has as far as the store knows.
  private static func chain(from name: String, _ zone: ZoneID, _ store: RecordStore) throws -> Set<String> {
    var met: Set<String> = [name]
    var left = [name]
    while let next = left.popLast() {
      guard let base = try store.projections.entry(RecordID(next, zone: zone))?.base,
        let known = try version(at: base.content, store)
      else { continue }
      for reference in known.version.fields.values.flatMap(\.references)
      where reference.action == .deleteSelf && met.insert(reference.name).inserted { left.append(reference.name) }
    }
    return met
  }

  /// What makes room for a record of another type goes before the set of that record.
  private static func goTogether(_ id: RecordID, _ other: RecordID, _ store: RecordStore) -> Bool {
    store.projections.set(of: id).map { $0 == store.projections.set(of: other) } ?? false
  }

  private static func version(at lsn: LSN, _ store: RecordStore) throws -> LoadedVersion? {
    guard let event = try store.source.eventIfKept(at: lsn) else { return nil }
    return try LoadedVersion(event, at: lsn)
  }
}
