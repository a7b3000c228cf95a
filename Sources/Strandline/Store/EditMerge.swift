// An edit of a typed value, applied to what its record is by now: three ways, field by field, in encoded form.

import StrandlineSystem

/// What a value was, what it has become, and by which rules that meets what the store has by now.
struct EditMerge {
  /// The fields of the value that is saved, the parent among them.
  let value: [String: FieldValue?]
  /// What they were before.
  let origin: [String: FieldValue?]
  /// Nil: what the value has stands.
  let rules: TypeRules?
  /// Whether the type reads an absent field and a null as two things.
  let keepsNulls: Bool

  /// Puts the fields that were changed into a record.
  ///
  /// - Returns: whether there are such fields.
  func apply(to record: inout Record) -> Bool {
    var isChanged = false
    for (name, ours) in value where origin[name] != .some(ours) {
      isChanged = true
      if name == Version.parentField {
        let merged = merged(name, ours, record.parent.map { .reference(Reference($0)) })
        record.parent = if case .reference(let reference)? = merged { reference.name } else { nil }
        continue
      }
      let merged = merged(name, ours, record[name])
      record[name] = merged
      if merged == nil, keepsNulls { record.nulls.insert(name) }
    }
    return isChanged
  }

  /// The value of a field that was changed from `origin` to `ours`, while the store has `theirs`.
  private func merged(_ name: String, _ ours: FieldValue?, _ theirs: FieldValue?) -> FieldValue? {
    // A type may not say what the field was; then it is written as it is.
    guard let rule = rule(of: name), let before = origin[name], before != theirs else { return ours }
    switch rule {
    case .join, .clientWins: return ours
    case .serverWins: return theirs
    case .union, .counter, .greatest:
      // A null of one side is a removal of the whole value, by which these rules do not go.
      guard let ours, let theirs else { return ours }
      let merged =
        switch rule {
        case .union: FieldMerge.union(ours, theirs, .some(before))
        case .counter: FieldMerge.sum(ours, theirs, .some(before)) ?? FieldMerge.greatest(ours, theirs)
        default: FieldMerge.greatest(ours, theirs)
        }
      return merged ?? ours
    }
  }

  /// A resolver is asked about what a server has, and not here, where a transaction is open.
  private func rule(of name: String) -> FieldRule? {
    guard let rules else { return nil }
    return switch rules.record {
    case .join: rules.fields[name] ?? .join
    case .serverWins: .serverWins
    case .clientWins, .resolver: .join
    }
  }
}
