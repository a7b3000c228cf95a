// What an edit and a version of the server become, by the rules. Pure.
//
// A join gives no field a new stamp: the greater one wins, with its value. A value that is neither side's is new, so its
// stamp is later than both; so is that of a value that a rule chose although the other side's is later, or the next join
// would undo the choice. Every rule joins what both sides have seen.

import StrandlineSystem

/// An unsettled edit, and a version of the server that does not contain it.
struct ConflictMerge {
  /// The edit's version; times from the future are clamped.
  let edit: Version
  /// The fields that it changed.
  let changed: Set<String>
  let server: Version
  /// The version that both were made from; nil if it is not known.
  let ancestor: Version?
  /// Who writes a value that is neither side's.
  let writer: WriterID

  /// Whether both sides changed the record, to different values. If not, the edit is moved to the new base and nothing is
  /// said of it.
  var isConflict: Bool {
    guard edit.fields != server.fields, let ancestor else { return edit.fields != server.fields }
    return ancestor.fields != server.fields || changed.contains { server.rewrites($0, of: ancestor) }
  }

  /// Field by field: by the field's rule, or the later change.
  func byField(_ rules: [String: FieldRule]) -> Version {
    var result = Join.join(edit, server)
    for (name, rule) in rules where edit.fields[name] != server.fields[name] {
      guard let value = value(of: name, by: rule) else { continue }
      put(value, name, into: &result)
    }
    return result
  }

  /// The edit's changes, and of all other fields the server's.
  func clientWins() -> Version {
    var result = joinedServer
    for name in changed { put(edit.fields[name], name, into: &result) }
    return result
  }

  /// What a resolver returned. A field that it left out is null.
  func resolved(_ record: Record) -> Version {
    var fields = record.fields.mapValues { $0.relative(to: record.id.zone) }
    if let parent = record.parent { fields[Version.parentField] = .reference(Reference(parent)) }
    var result = joinedServer
    for name in Set(server.names).union(edit.names).union(fields.keys) { put(fields[name], name, into: &result) }
    return result
  }

  /// The server's version, that has seen what the edit has.
  private var joinedServer: Version {
    var result = server
    result.stamp.births.formUnion(edit.stamp.births)
    result.stamp.joinSeen(edit.stamp.seen)
    return result
  }

  /// Gives a field of the result a value, and the stamp that it has or has to have.
  private func put(_ value: FieldValue?, _ name: String, into result: inout Version) {
    let (ours, theirs) = (edit.stamp.fields[name], server.stamp.fields[name])
    let later = [ours, theirs].compactMap(\.self).max()
    result.fields[name] = value
    switch (value == edit.fields[name], value == server.fields[name]) {
    case (true, true): result.stamp.fields[name] = later
    case (false, true): result.stamp.fields[name] = theirs
    case (true, false) where ours != nil && ours == later: result.stamp.fields[name] = ours
    case (_, false): result.stamp.fields[name] = FieldStamp(time: (later?.time ?? .zero).next, writer: writer)
    }
  }

  // MARK: Fields

  /// The value of a field whose values differ; nil: the later change. `.some(nil)`: null.
  private func value(of name: String, by rule: FieldRule) -> FieldValue?? {
    let (ours, theirs) = (edit.fields[name], server.fields[name])
    switch rule {
    case .join: return nil
    case .serverWins: return .some(theirs)
    case .clientWins: return .some(changed.contains(name) ? ours : theirs)
    case .union, .counter, .greatest:
      if let ancestor {
        if ancestor.fields[name] == theirs { return .some(ours) }
        if ancestor.fields[name] == ours { return .some(theirs) }
      }
      // A null of one side is a removal of the whole value, by which these rules do not go.
      guard let ours, let theirs else { return nil }
      let merged =
        switch rule {
        case .union: FieldMerge.union(ours, theirs, ancestor.map { $0.fields[name] })
        case .counter: FieldMerge.sum(ours, theirs, ancestor.map { $0.fields[name] })
        default: FieldMerge.greatest(ours, theirs)
        }
      return merged.map { .some($0) }
    }
  }
}

extension Version {
  /// Whether a field was written since an ancestor had it, if only with the value that it had. A time from the future may have
  /// become less since.
  func rewrites(_ name: String, of ancestor: Version) -> Bool {
    guard let ours = stamp.fields[name] else { return false }
    return ancestor.stamp.fields[name].map { ours.time > $0.time } ?? true
  }
}
