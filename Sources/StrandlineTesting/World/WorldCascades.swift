// Whether a deletion that a device sends can take an edit along that the device has not sent. The server deletes what refers to
// a deleted record, in the version that it has; an edit that has taken the reference away goes before. Each request is judged
// before it is sent, by what the store owes and by the versions that it knows. The engine's order is not asked.

internal import Strandline
internal import StrandlineServer

enum WorldCascades {
  /// What is wrong with a request; nil if nothing is.
  static func broken(
    _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool, _ store: RecordStore
  ) throws -> String? {
    // Where one operation may be refused and the others not, what goes with a deletion does not go before it.
    let names = atomic ? Set(texts: operations.map(\.name)) : []
    var deleted: Set<CloudName> = []
    /// The new life that takes the place of what is deleted.
    var successors: [CloudName: LSN] = [:]
    for operation in operations where operation.kind == .delete {
      guard let pending = try store.projections.entry(RecordID(operation.name, zone: zone))?.pending else { continue }
      deleted.insert(CloudName(operation.name))
      if !pending.isDeletion { successors[operation.name] = pending.newest }
    }
    if deleted.isEmpty { return nil }
    if let broken = try meantForSuccessor(successors, in: zone, store) { return broken }
    for lsn in store.projections.owed where lsn <= store.durableLSN {
      guard let id = try store.source.eventIfKept(at: lsn)?.recordID, id.zone == zone, !names.contains(id.name),
        !deleted.contains(id.name), let entry = try store.projections.entry(id), let pending = entry.pending,
        !pending.isDeletion,
        let edit = try version(at: pending.newest, store)
      else { continue }
      for (field, value) in try atServer(entry, store).flatMap(\.version.fields) {
        for reference in value.references where reference.action == .deleteSelf {
          guard edit.dirty[field] != nil, !edit.version.fields.values.flatMap(\.references).contains(reference)
          else { continue }
          for name in try chain(from: reference.name, zone, store) where deleted.contains(name) {
            return "it deletes \(name), and has not sent that \(id) does not refer to \(reference.name) any more"
          }
        }
      }
    }
    return nil
  }

  /// What was created after the new life of a name, and refers to it, is not deleted with the old one.
  private static func meantForSuccessor(
    _ successors: [CloudName: LSN], in zone: ZoneID, _ store: RecordStore
  ) throws -> String? {
    if successors.isEmpty { return nil }
    for id in WorldNames.each.flatMap(\.records) where id.zone == zone {
      guard let base = try store.projections.entry(id)?.base,
        case .saved(let event)? = try store.source.eventIfKept(at: base.content), event.isCreation,
        let sent = try version(at: base.content, store)
      else { continue }
      for reference in sent.version.fields.values.flatMap(\.references) where reference.action == .deleteSelf {
        guard let successor = successors[reference.name], base.content > successor else { continue }
        return "it deletes \(reference.name), and \(id) was made for what takes its place"
      }
    }
    return nil
  }

  /// What the server may refuse to delete, or would delete a record with, before its save, which takes the reference away.
  static func bound(to id: RecordID, _ store: RecordStore) throws -> Set<CloudName> {
    guard let entry = try store.projections.entry(id), entry.pending?.isDeletion == false else { return [] }
    var bound: Set<CloudName> = []
    let kept = try needs(of: id, store)
    for known in try atServer(entry, store) {
      if let parent = known.version.parent, !kept.contains(parent) { bound.insert(CloudName(parent)) }
      for reference in known.version.fields.values.flatMap(\.references)
      where reference.action != .none && !kept.contains(reference.name) {
        bound.formUnion(try chain(from: reference.name, id.zone, store))
      }
    }
    return bound
  }

  /// What the server has to have before it takes the record's newest version, or in the same request.
  static func needs(of id: RecordID, _ store: RecordStore) throws -> Set<CloudName> {
    guard let pending = try store.projections.entry(id)?.pending, !pending.isDeletion,
      let edit = try version(at: pending.newest, store)?.version
    else { return [] }
    let references = edit.fields.values.flatMap(\.references).filter { $0.action != .none }
    return Set(texts: references.map(\.name) + [edit.parent].compactMap(\.self))
  }

  /// The record and those with which it is deleted, through the references that the server has as far as the store knows.
  private static func chain(from name: String, _ zone: ZoneID, _ store: RecordStore) throws -> Set<CloudName> {
    var met: Set<CloudName> = [CloudName(name)]
    var left = [CloudName(name)]
    while let next = left.popLast() {
      guard let entry = try store.projections.entry(RecordID(next, zone: zone)) else { continue }
      for reference in try atServer(entry, store).flatMap({ $0.version.fields.values.flatMap(\.references) })
      where reference.action == .deleteSelf && met.insert(CloudName(reference.name)).inserted {
        left.append(CloudName(reference.name))
      }
    }
    return met
  }

  /// The versions that the server may have: what a request without an answer has carried may have arrived.
  private static func atServer(_ entry: RecordEntry, _ store: RecordStore) throws -> [LoadedVersion] {
    var lsns = [entry.base?.content].compactMap { $0 } + (entry.pending?.attempts.map(\.lsn) ?? [])
    if let pending = entry.pending, !pending.isDeletion, store.projections.attempted(pending) == pending.newest {
      lsns.append(pending.newest)
    }
    return try lsns.compactMap { try version(at: $0, store) }
  }

  private static func version(at lsn: LSN, _ store: RecordStore) throws -> LoadedVersion? {
    // What is being written cannot be read yet.
    guard lsn <= store.durableLSN, let event = try store.source.eventIfKept(at: lsn) else { return nil }
    return try LoadedVersion(event, at: lsn)
  }
}
